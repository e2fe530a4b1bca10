#include "torch/tensor.h"

#include <array>
#include <cstring>
#include <stdexcept>

// Of the generated shims only these are used: they are there since before 2.10, with the same
// parameters. Those for CUDA are in libtorch_cuda, to which only our CUDA library is linked.
extern "C" {
AOTITorchError aoti_torch_aten_fill__Scalar(AtenTensorHandle self, double value);
AOTITorchError aoti_torch_cpu_mm_out(AtenTensorHandle out, AtenTensorHandle a, AtenTensorHandle b);
__attribute__((weak)) AOTITorchError aoti_torch_cuda_mm_out(AtenTensorHandle out,
                                                            AtenTensorHandle a, AtenTensorHandle b);
// Newer than the oldest torch that we run with, so it may be missing.
__attribute__((weak)) const char* torch_exception_get_what_without_backtrace();
}

namespace rotcell::ops {
namespace {

constexpr size_t kMaxDims = 4;

using Dims = std::array<int64_t, kMaxDims>;

}  // namespace

void throw_error(const std::string& text) { throw std::runtime_error(text); }

void throw_shim_error(const char* shim) {
  if (torch_exception_get_what_without_backtrace != nullptr) {
    const char* what = torch_exception_get_what_without_backtrace();
    if (what != nullptr && *what != '\0') throw std::runtime_error(what);
  }
  throw std::runtime_error(std::string("rotcell: torch failed in ") + shim);
}

std::string dtype_name(DType dtype) {
  const std::pair<DType, const char*> names[] = {
      {aoti_torch_dtype_float32(), "Float"},
      {aoti_torch_dtype_float64(), "Double"},
      {aoti_torch_dtype_float16(), "Half"},
      {aoti_torch_dtype_bfloat16(), "BFloat16"},
      {aoti_torch_dtype_uint8(), "Byte"},
      {aoti_torch_dtype_int8(), "Char"},
      {aoti_torch_dtype_int16(), "Short"},
      {aoti_torch_dtype_int32(), "Int"},
      {aoti_torch_dtype_int64(), "Long"},
      {aoti_torch_dtype_uint16(), "UInt16"},
      {aoti_torch_dtype_uint32(), "UInt32"},
      {aoti_torch_dtype_uint64(), "UInt64"},
      {aoti_torch_dtype_bool(), "Bool"},
      {aoti_torch_dtype_complex32(), "ComplexHalf"},
      {aoti_torch_dtype_complex64(), "ComplexFloat"},
      {aoti_torch_dtype_complex128(), "ComplexDouble"},
      {aoti_torch_dtype_float8_e5m2(), "Float8_e5m2"},
      {aoti_torch_dtype_float8_e4m3fn(), "Float8_e4m3fn"},
      {aoti_torch_dtype_float8_e5m2fnuz(), "Float8_e5m2fnuz"},
      {aoti_torch_dtype_float8_e4m3fnuz(), "Float8_e4m3fnuz"},
  };
  for (const auto& [known, name] : names) {
    if (known == dtype) return name;
  }
  return "number " + std::to_string(dtype);
}

std::string device_name(const Device& device) {
  const std::pair<int32_t, const char*> names[] = {
      {aoti_torch_device_type_cpu(), "cpu"},   {aoti_torch_device_type_cuda(), "cuda"},
      {aoti_torch_device_type_meta(), "meta"}, {aoti_torch_device_type_xpu(), "xpu"},
      {aoti_torch_device_type_mps(), "mps"},
  };
  std::string name = "device type " + std::to_string(device.type);
  for (const auto& [known, text] : names) {
    if (known == device.type) name = text;
  }
  return device.index >= 0 ? name + ":" + std::to_string(device.index) : name;
}

std::string sizes_text(std::span<const int64_t> sizes) {
  std::string text = "[";
  for (const int64_t size : sizes) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  }
  return text + "]";
}

Tensor Tensor::empty(std::span<const int64_t> sizes, DType dtype, Device device) {
  check(sizes.size() <= kMaxDims, "a tensor of ", sizes.size(), " dimensions inside an op");
  Dims strides{};
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i] > 0 ? sizes[i] : 1;
  }
  AtenTensorHandle handle;
  ROTCELL_SHIM(aoti_torch_empty_strided, static_cast<int64_t>(sizes.size()), sizes.data(),
               strides.data(), dtype, device.type, device.index, &handle);
  return Tensor(handle);
}

Tensor Tensor::zeros(Sizes sizes, DType dtype, Device device) {
  Tensor tensor = empty(sizes, dtype, device);
  if (device.is_cpu()) {
    if (const int64_t bytes = tensor.bytes()) std::memset(tensor.raw_data(), 0, bytes);
  } else {
    tensor.zero_();
  }
  return tensor;
}

Tensor Tensor::share() const {
  if (!handle_) return {};
  AtenTensorHandle handle;
  ROTCELL_SHIM(aoti_torch_new_tensor_handle, handle_, &handle);
  return Tensor(handle);
}

bool Tensor::has_its_storage() const {
  if (numel() == 0) return true;
  int64_t bytes;
  ROTCELL_SHIM(aoti_torch_get_storage_size, handle_, &bytes);
  const std::span<const int64_t> lengths = sizes(), steps = strides();
  int64_t last = storage_offset();  // element
  for (size_t i = 0; i < lengths.size(); ++i) last += (lengths[i] - 1) * steps[i];
  return last < bytes / element_size(dtype());
}

// The shim counts offsets from the tensor's own first element, whatever the name of its parameter.
Tensor Tensor::view(Sizes sizes, Sizes strides, int64_t offset) const {
  AtenTensorHandle handle;
  ROTCELL_SHIM(aoti_torch__reinterpret_tensor, handle_, static_cast<int64_t>(sizes.size()),
               sizes.begin(), strides.begin(), offset, &handle);
  return Tensor(handle);
}

Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length) const {
  const std::span<const int64_t> from_sizes = sizes(), from_strides = strides();
  check(from_sizes.size() <= kMaxDims, "narrow of ", from_sizes.size(), " dimensions inside an op");
  Dims sizes{};
  for (size_t i = 0; i < from_sizes.size(); ++i) sizes[i] = from_sizes[i];
  sizes[dim] = length;
  AtenTensorHandle handle;
  ROTCELL_SHIM(aoti_torch__reinterpret_tensor, handle_, static_cast<int64_t>(from_sizes.size()),
               sizes.data(), from_strides.data(), start * from_strides[dim], &handle);
  return Tensor(handle);
}

Tensor Tensor::transposed() const { return view({size(1), size(0)}, {stride(1), stride(0)}); }

Tensor Tensor::as_contiguous(DType wanted) const {
  if (!handle_) return {};
  if (dtype() == wanted && is_contiguous()) return borrow();
  return copied(wanted);
}

Tensor Tensor::copied(DType wanted) const {
  if (!handle_) return {};
  const Device device = this->device();
  Tensor copy = empty(sizes(), wanted, device);
  const int64_t bytes = copy.bytes();
  if (bytes == 0) return copy;
  if (device.is_cpu() && dtype() == wanted && is_contiguous()) {
    std::memcpy(copy.raw_data(), raw_const_data(), bytes);
  } else {
    copy.copy_(*this);
  }
  return copy;
}

void Tensor::copy_(const Tensor& source) const {
  ROTCELL_SHIM(aoti_torch_copy_, handle_, source.handle_, /*non_blocking=*/0);
}

void Tensor::fill_(double value) const {
  ROTCELL_SHIM(aoti_torch_aten_fill__Scalar, handle_, value);
}

Tensor owned_as(Tensor tensor, DType dtype) {
  if (!tensor) return {};
  if (tensor.dtype() != dtype) return tensor.copied(dtype);
  return tensor.owns() ? std::move(tensor) : tensor.share();
}

void mm_out(const Tensor& out, const Tensor& a, const Tensor& b) {
  if (out.device().is_cpu()) {
    ROTCELL_SHIM(aoti_torch_cpu_mm_out, out.handle(), a.handle(), b.handle());
  } else {
    ROTCELL_SHIM(aoti_torch_cuda_mm_out, out.handle(), a.handle(), b.handle());
  }
}

}  // namespace rotcell::ops
