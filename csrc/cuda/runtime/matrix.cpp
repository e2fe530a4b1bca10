#include "cuda/runtime/matrix.h"

#include <vector>

namespace rotcell::cuda {
namespace {

MatrixLibrary borrowed_library{};

MatrixLayout contiguous(int64_t rows, int64_t columns) {
  return {.rows = rows, .columns = columns, .row_stride = columns, .column_stride = 1};
}

}  // namespace

void use_matrix_library(const MatrixLibrary& library) { borrowed_library = library; }

const MatrixLibrary& matrix_library() { return borrowed_library; }

Matrix Matrix::owned(MatrixHandle handle, void* data, Number number, const MatrixLayout& layout) {
  Matrix matrix(handle, data, number, layout);
  matrix.owner_.reset(handle);
  return matrix;
}

Matrix Matrix::empty(int device, Number number, int64_t rows, int64_t columns) {
  void* data;
  const MatrixHandle handle = matrix_library().empty(device, number, rows, columns, &data);
  return owned(handle, data, number, contiguous(rows, columns));
}

Matrix Matrix::zeros(int device, Number number, int64_t rows, int64_t columns) {
  Matrix matrix = empty(device, number, rows, columns);
  matrix.fill(0);
  return matrix;
}

Matrix Matrix::block(int64_t row, int64_t rows, int64_t column, int64_t columns) const {
  MatrixLayout layout = layout_;
  layout.rows = rows;
  layout.columns = columns;
  const int64_t offset = row * layout.row_stride + column * layout.column_stride;
  void* data = static_cast<char*>(data_) + offset * storage_bytes(number_);
  return owned(matrix_library().view(handle_, layout, offset), data, number_, layout);
}

Matrix Matrix::transposed() const {
  const MatrixLayout layout{.rows = layout_.columns,
                            .columns = layout_.rows,
                            .row_stride = layout_.column_stride,
                            .column_stride = layout_.row_stride};
  return owned(matrix_library().view(handle_, layout, 0), data_, number_, layout);
}

DeviceIntegers DeviceIntegers::copied(int device, std::span<const int64_t> values) {
  void* data;
  MatrixOwner owner(
      matrix_library().integers(device, values.data(), static_cast<int64_t>(values.size()), &data));
  return {static_cast<int64_t*>(data), std::move(owner)};
}

DeviceIntegers DeviceIntegers::zeros(int device, int64_t count) {
  void* data;
  MatrixOwner owner(matrix_library().integers(device, nullptr, count, &data));
  return {static_cast<int64_t*>(data), std::move(owner)};
}

Matrix add(const Matrix& a, const Matrix& b) {
  void* data;
  const MatrixHandle sum = matrix_library().add(a.handle(), b.handle(), &data);
  return Matrix::owned(sum, data, a.number(), contiguous(a.rows(), a.columns()));
}

Matrix concatenated(std::span<const Matrix> parts) {
  std::vector<MatrixHandle> handles;
  int64_t rows = 0;
  for (const Matrix& part : parts) {
    handles.push_back(part.handle());
    rows += part.rows();
  }
  void* data;
  const MatrixHandle joined = matrix_library().concatenate(handles, &data);
  return Matrix::owned(joined, data, parts[0].number(), contiguous(rows, parts[0].columns()));
}

void matmul(const Matrix& out, const Matrix& a, const Matrix& b) {
  matrix_library().matmul(out.handle(), a.handle(), b.handle());
}

void linear(const Matrix& out, const Matrix& x, const Matrix& weights, const Matrix& bias) {
  const Matrix transposed = weights.transposed();
  if (bias) {
    matrix_library().matmul_with_bias(out.handle(), bias.handle(), x.handle(), transposed.handle());
  } else {
    matmul(out, x, transposed);
  }
}

void sum_of_rows(int device, const Matrix& out, const Matrix& matrix) {
  const Matrix ones = Matrix::empty(device, matrix.number(), matrix.rows(), 1);
  ones.fill(1);
  matmul(out.transposed(), matrix.transposed(), ones);
}

}  // namespace rotcell::cuda
