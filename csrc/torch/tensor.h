// A tensor of torch, over the C functions ("shims") of LibTorch's stable ABI, and errors with our
// own messages. docs/internals/stable-abi.md describes the shims.
//
// No wrapper of torch's own (torch::stable::Tensor and its ops) is used: they cost a third of a
// small call. A matrix takes no memory here, and asking for a size is a function call.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace rotcell::ops {

// ---- Errors ----

[[noreturn]] void throw_error(const std::string& text);

inline std::string text_of(const std::string& text) { return text; }
inline std::string text_of(const char* text) { return text; }
template <class Number>
  requires std::is_arithmetic_v<Number>
std::string text_of(Number number) {
  return std::to_string(number);
}

// An error "rotcell: ..." of these parts.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw_error((std::string("rotcell: ") + ... + text_of(parts)));
}

template <class... Parts>
inline void check(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]] {
    fail(parts...);
  }
}

// The error that torch met in a shim, in torch's words if it has them (2.13 and newer).
[[noreturn]] void throw_shim_error(const char* shim);

inline void check_shim(AOTITorchError code, const char* shim) {
  if (code != AOTI_TORCH_SUCCESS) [[unlikely]] {
    throw_shim_error(shim);
  }
}

// Calls a shim and throws if it fails.
#define ROTCELL_SHIM(name, ...) ::rotcell::ops::check_shim(name(__VA_ARGS__), #name)

// ---- Dtypes and devices, as torch numbers them ----

using DType = int32_t;

inline DType float32() { return aoti_torch_dtype_float32(); }
inline DType float64() { return aoti_torch_dtype_float64(); }
inline DType float16() { return aoti_torch_dtype_float16(); }
inline DType bfloat16() { return aoti_torch_dtype_bfloat16(); }
inline DType int8() { return aoti_torch_dtype_int8(); }
inline DType int64() { return aoti_torch_dtype_int64(); }
inline DType boolean() { return aoti_torch_dtype_bool(); }

template <class T>
DType dtype_of() {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double> ||
                std::is_same_v<T, int64_t>);
  if constexpr (std::is_same_v<T, float>) return float32();
  if constexpr (std::is_same_v<T, double>) return float64();
  if constexpr (std::is_same_v<T, int64_t>) return int64();
}

// As torch's own messages name it: "Float", "Half", ...
std::string dtype_name(DType dtype);

inline int64_t element_size(DType dtype) {
  return static_cast<int64_t>(aoti_torch_dtype_element_size(dtype));
}

struct Device {
  int32_t type, index;

  bool is_cpu() const { return type == aoti_torch_device_type_cpu(); }
  bool is_cuda() const { return type == aoti_torch_device_type_cuda(); }
  friend bool operator==(const Device&, const Device&) = default;
};

std::string device_name(const Device& device);  // "cpu", "cuda:0"

inline Device cpu_device() { return {aoti_torch_device_type_cpu(), -1}; }

// ---- Tensors ----

using Sizes = std::initializer_list<int64_t>;

std::string sizes_text(std::span<const int64_t> sizes);  // "[2, 3]"
inline std::string sizes_text(Sizes sizes) {
  return sizes_text(std::span<const int64_t>(sizes.begin(), sizes.size()));
}

// A handle that may be undefined. It owns its handle or, made by `borrowed`, is only good as long
// as the owner is. Copies would hide costs: use share() or borrow().
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(AtenTensorHandle owned) : handle_(owned), owns_(owned != nullptr) {}
  static Tensor borrowed(AtenTensorHandle handle) {
    Tensor tensor;
    tensor.handle_ = handle;
    return tensor;
  }

  Tensor(Tensor&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), owns_(std::exchange(other.owns_, false)) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(owns_, other.owns_);
    return *this;
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() {
    if (owns_) aoti_torch_delete_tensor_object(handle_);
  }

  // Uninitialized and contiguous, also under torch.use_deterministic_algorithms.
  static Tensor empty(Sizes sizes, DType dtype, Device device = cpu_device()) {
    return empty(std::span<const int64_t>(sizes.begin(), sizes.size()), dtype, device);
  }
  static Tensor empty(std::span<const int64_t> sizes, DType dtype, Device device);
  static Tensor zeros(Sizes sizes, DType dtype, Device device = cpu_device());

  Tensor borrow() const { return borrowed(handle_); }
  // A further owner of the same tensor.
  Tensor share() const;
  // Gives the handle, which must be owned, away.
  AtenTensorHandle release() {
    owns_ = false;
    return std::exchange(handle_, nullptr);
  }

  explicit operator bool() const { return handle_ != nullptr; }
  bool defined() const { return handle_ != nullptr; }
  bool owns() const { return owns_; }
  AtenTensorHandle handle() const { return handle_; }

  int64_t dim() const {
    int64_t dim;
    ROTCELL_SHIM(aoti_torch_get_dim, handle_, &dim);
    return dim;
  }
  std::span<const int64_t> sizes() const { return {sizes_pointer(), static_cast<size_t>(dim())}; }
  std::span<const int64_t> strides() const {
    int64_t* strides;
    ROTCELL_SHIM(aoti_torch_get_strides, handle_, &strides);
    return {strides, static_cast<size_t>(dim())};
  }
  int64_t size(int64_t dim) const { return sizes_pointer()[dim]; }
  int64_t stride(int64_t dim) const { return strides()[static_cast<size_t>(dim)]; }
  int64_t numel() const {
    int64_t numel;
    ROTCELL_SHIM(aoti_torch_get_numel, handle_, &numel);
    return numel;
  }
  int64_t bytes() const { return numel() * element_size(dtype()); }
  DType dtype() const {
    int32_t dtype;
    ROTCELL_SHIM(aoti_torch_get_dtype, handle_, &dtype);
    return dtype;
  }
  Device device() const {
    Device device;
    ROTCELL_SHIM(aoti_torch_get_device_type, handle_, &device.type);
    ROTCELL_SHIM(aoti_torch_get_device_index, handle_, &device.index);
    return device;
  }
  bool is_contiguous() const {
    bool contiguous;
    ROTCELL_SHIM(aoti_torch_is_contiguous, handle_, &contiguous);
    return contiguous;
  }
  int64_t storage_offset() const {
    int64_t offset;
    ROTCELL_SHIM(aoti_torch_get_storage_offset, handle_, &offset);
    return offset;
  }

  // Whether the storage holds every element. Sharding frees the storage of a tensor that it leaves
  // its sizes, and reading such a tensor would crash.
  bool has_its_storage() const;

  void* raw_data() const {
    void* data;
    ROTCELL_SHIM(torch_get_mutable_data_ptr, handle_, &data);
    return data;
  }
  const void* raw_const_data() const {
    const void* data;
    ROTCELL_SHIM(torch_get_const_data_ptr, handle_, &data);
    return data;
  }
  // The caller knows that the elements are of type T. Null for an undefined tensor.
  template <class T>
  T* data() const {
    return handle_ ? static_cast<T*>(raw_data()) : nullptr;
  }
  template <class T>
  const T* const_data() const {
    return handle_ ? static_cast<const T*>(raw_const_data()) : nullptr;
  }

  // Views of the same memory. `offset` counts elements from the first one of this tensor.
  Tensor view(Sizes sizes, Sizes strides, int64_t offset = 0) const;
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const;
  Tensor transposed() const;  // of a matrix

  // The same values, contiguous and of this type: a borrowed handle of this tensor if it is so
  // already, otherwise a copy. Undefined if this is.
  Tensor as_contiguous(DType dtype) const;
  Tensor as_contiguous() const { return as_contiguous(dtype()); }
  // A contiguous copy.
  Tensor copied() const { return copied(dtype()); }
  Tensor copied(DType dtype) const;

  void copy_(const Tensor& source) const;  // source may be of another type or device
  void zero_() const { ROTCELL_SHIM(aoti_torch_zero_, handle_); }
  void fill_(double value) const;

 private:
  const int64_t* sizes_pointer() const {
    int64_t* sizes;
    ROTCELL_SHIM(aoti_torch_get_sizes, handle_, &sizes);
    return sizes;
  }

  AtenTensorHandle handle_ = nullptr;
  bool owns_ = false;
};

// The tensor as an owner, of this type: itself if it is so already.
Tensor owned_as(Tensor tensor, DType dtype);

// out = a b, on the device of out.
void mm_out(const Tensor& out, const Tensor& a, const Tensor& b);

// While it lives, ops called by this thread record nothing for autograd. Where an op is called with
// inputs that require gradients, those inside it would.
class GradModeOff {
 public:
  GradModeOff() : before_(aoti_torch_grad_mode_is_enabled()) {
    if (before_) aoti_torch_grad_mode_set_enabled(false);
  }
  ~GradModeOff() {
    if (before_) aoti_torch_grad_mode_set_enabled(true);
  }
  GradModeOff(const GradModeOff&) = delete;
  GradModeOff& operator=(const GradModeOff&) = delete;

 private:
  bool before_;
};

}  // namespace rotcell::ops
