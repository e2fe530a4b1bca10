// Matrices on a GPU. Their memory, and the matmuls between them, belong to the program around us:
// torch in the wheel.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "cuda/kernels/numbers.h"
#include "cuda/platform/stream.h"

namespace rotcell::cuda {

struct MatrixLayout {
  int64_t rows = 0, columns = 0;
  int64_t row_stride = 0, column_stride = 0;  // in elements
};

// A matrix as the program knows it: a tensor of torch.
using MatrixHandle = void*;

// What the runtime borrows. Everything happens on the device's current stream.
struct MatrixLibrary {
  // The stream that the program uses on the device.
  Stream (*current_stream)(int device);
  // An uninitialized, contiguous matrix; *data is where it is.
  MatrixHandle (*empty)(int device, Number number, int64_t rows, int64_t columns, void** data);
  // int64 values, copied without waiting for the copy; zeros if `values` is null.
  MatrixHandle (*integers)(int device, const int64_t* values, int64_t count, void** data);
  // The same memory in another layout; `offset` counts elements from the first one.
  MatrixHandle (*view)(MatrixHandle of, const MatrixLayout& layout, int64_t offset);
  void (*release)(MatrixHandle matrix);
  void (*fill)(MatrixHandle matrix, double value);
  // Also from another dtype.
  void (*copy)(MatrixHandle to, MatrixHandle from);
  // A new contiguous matrix, in the wider dtype of both.
  MatrixHandle (*add)(MatrixHandle a, MatrixHandle b, void** data);
  // A new contiguous matrix of the rows of all these.
  MatrixHandle (*concatenate)(std::span<const MatrixHandle> parts, void** data);
  // out = a b, and out = bias + a b with the bias in each row.
  void (*matmul)(MatrixHandle out, MatrixHandle a, MatrixHandle b);
  void (*matmul_with_bias)(MatrixHandle out, MatrixHandle bias, MatrixHandle a, MatrixHandle b);
};

// Must be called before the first layer call.
void use_matrix_library(const MatrixLibrary& library);
const MatrixLibrary& matrix_library();

struct ReleaseMatrix {
  void operator()(MatrixHandle matrix) const { matrix_library().release(matrix); }
};
using MatrixOwner = std::unique_ptr<void, ReleaseMatrix>;

// Owns its memory or, made by borrowed() or borrow(), is valid as long as the owner is. May be
// undefined: what a cell or a call does not have.
class Matrix {
 public:
  Matrix() = default;
  static Matrix borrowed(MatrixHandle handle, void* data, Number number, MatrixLayout layout) {
    return Matrix(handle, data, number, layout);
  }
  static Matrix empty(int device, Number number, int64_t rows, int64_t columns);
  static Matrix zeros(int device, Number number, int64_t rows, int64_t columns);

  Matrix borrow() const { return borrowed(handle_, data_, number_, layout_); }

  explicit operator bool() const { return handle_ != nullptr; }
  MatrixHandle handle() const { return handle_; }
  void* data() const { return data_; }  // null if undefined
  Number number() const { return number_; }
  int64_t rows() const { return layout_.rows; }
  int64_t columns() const { return layout_.columns; }

  // Views of the same memory.
  Matrix rows_from(int64_t first, int64_t count) const { return block(first, count, 0, columns()); }
  Matrix columns_from(int64_t first, int64_t count) const { return block(0, rows(), first, count); }
  Matrix block(int64_t row, int64_t rows, int64_t column, int64_t columns) const;
  Matrix transposed() const;

  void fill(double value) const { matrix_library().fill(handle_, value); }
  void copy(const Matrix& from) const { matrix_library().copy(handle_, from.handle_); }

 private:
  Matrix(MatrixHandle handle, void* data, Number number, const MatrixLayout& layout)
      : handle_(handle), data_(data), number_(number), layout_(layout) {}
  static Matrix owned(MatrixHandle handle, void* data, Number number, const MatrixLayout& layout);
  friend Matrix add(const Matrix& a, const Matrix& b);
  friend Matrix concatenated(std::span<const Matrix> parts);

  MatrixHandle handle_ = nullptr;
  void* data_ = nullptr;
  Number number_ = Number::kFloat32;
  MatrixLayout layout_;
  MatrixOwner owner_;
};

// The first rows of a matrix. The view is rebuilt only when their number changes.
class FirstRows {
 public:
  explicit FirstRows(const Matrix& whole) : whole_(whole.borrow()) {}
  const Matrix& operator()(int64_t rows) {
    if (!view_ || rows != view_.rows()) view_ = whole_.rows_from(0, rows);
    return view_;
  }

 private:
  Matrix whole_, view_;
};

// int64 values on the device.
struct DeviceIntegers {
  int64_t* data = nullptr;
  MatrixOwner owner;

  static DeviceIntegers copied(int device, std::span<const int64_t> values);
  static DeviceIntegers zeros(int device, int64_t count);
};

// In the dtype of a, which is not narrower than that of b.
Matrix add(const Matrix& a, const Matrix& b);

// The rows of all of them.
Matrix concatenated(std::span<const Matrix> parts);

// out = a b
void matmul(const Matrix& out, const Matrix& a, const Matrix& b);

// out = x w^T + bias, if there is one.
void linear(const Matrix& out, const Matrix& x, const Matrix& weights, const Matrix& bias);

// out [1, columns] = the sum of the rows. A matmul with ones, so torch's switch for TF32 counts.
void sum_of_rows(int device, const Matrix& out, const Matrix& matrix);

}  // namespace rotcell::cuda
