// The sequences of cpu_sequences.h, on the CUDA kernels in the executor. Results come in the same
// order, as far as they go.
#pragma once

#include <cstring>
#include <limits>

#include "cuda/device_math.h"
#include "cuda/kernels.h"
#include "tests/cpu_sequences.h"

namespace rotcell::tests {

template <class T>
struct NumberOf;
template <>
struct NumberOf<float> {
  static constexpr auto kNumber = cuda::Number::kFloat32;
  static constexpr double kEpsilon = 0x1p-23;
};
template <>
struct NumberOf<double> {
  static constexpr auto kNumber = cuda::Number::kFloat64;
  static constexpr double kEpsilon = 0x1p-52;
};
template <>
struct NumberOf<__half> {
  static constexpr auto kNumber = cuda::Number::kFloat16;
  static constexpr double kEpsilon = 0x1p-10;
};
template <>
struct NumberOf<__nv_bfloat16> {
  static constexpr auto kNumber = cuda::Number::kBFloat16;
  static constexpr double kEpsilon = 0x1p-7;
};

template <class T>
std::vector<T> converted(const std::vector<double>& values) {
  std::vector<T> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    result[i] = cuda::to_storage<T>(static_cast<cuda::Compute<T>>(values[i]));
  }
  return result;
}

template <class T>
std::vector<double> doubles(const std::vector<T>& values) {
  std::vector<double> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i] = cuda::to_compute(values[i]);
  return result;
}

// What is never written stays NaN, and shows.
template <class T>
std::vector<T> unwritten(int64_t count) {
  return std::vector<T>(count, cuda::to_storage<T>(NAN));
}

// c = a b, or a b^T, or added to c: what torch's products do between the stepwise kernels. a is
// [rows, depth], rows of a, b and c lie so many elements apart.
template <class T>
void product(int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t a_stride, const T* b,
             int64_t b_stride, bool transposed, T* c, int64_t c_stride, bool add) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      cuda::Compute<T> sum = add ? cuda::to_compute(c[i * c_stride + j]) : 0;
      for (int64_t k = 0; k < depth; ++k) {
        sum += cuda::to_compute(a[i * a_stride + k]) *
               cuda::to_compute(transposed ? b[j * b_stride + k] : b[k * b_stride + j]);
      }
      c[i * c_stride + j] = cuda::to_storage<T>(sum);
    }
  }
}

inline cuda::Steps cuda_steps(const Shape& shape, const Sequence& sequence) {
  return {shape.steps, shape.batch, shape.packed ? sequence.batch_sizes.data() : nullptr,
          shape.packed ? sequence.offsets.data() : nullptr, shape.reverse};
}

// A step of the sequence on the host, at a position in the order of processing.
struct HostStep {
  int64_t token, token_before, rows, carried;

  HostStep(const Sequence& sequence, int64_t position) {
    const cpu::Steps& steps = sequence.steps;
    const int64_t step = steps.reverse ? steps.count - 1 - position : position;
    const int64_t before = steps.reverse ? step + 1 : step - 1;
    token = steps.offsets[step];
    rows = steps.batch_sizes[step];
    token_before = position > 0 ? steps.offsets[before] : 0;
    carried = position > 0 ? std::min(rows, steps.batch_sizes[before]) : 0;
  }
};

struct OnPath {
  cuda::Path path;
  cuda::DeviceProperties device;

  cuda::Plan plan(const cuda::Request& request) const {
    const auto found = cuda::plan_path(path, request, device);
    if (!found) throw std::runtime_error("the sequence does not fit the device on this path");
    return *found;
  }
};

template <class T>
class CudaLstm {
 public:
  using A = cuda::Compute<T>;

  CudaLstm(const Shape& shape, const OnPath& where)
      : where_(where),
        sequence_(shape),
        shape_(shape),
        H(shape.hidden),
        B(shape.batch),
        G(RotLstmRows::count(H)),
        N(sequence_.tokens),
        w_hh(converted<T>(random_values<double>(G * H, 1, weight_scale(H)))),
        from_input(converted<T>(random_values<double>(N * G, 3))),
        h0(converted<T>(random_values<double>(B * H, 4))),
        c0(random_values<A>(B * H, 5)) {}

  Results<double> run() {
    std::vector<T> out = unwritten<T>(N * H), h_n = unwritten<T>(B * H);
    std::vector<A> c = c0, gates = unwritten<A>(N * G), cells = unwritten<A>(N * H);
    forward(out, h_n, c, &gates, &cells);
    std::vector<T> inference_out = unwritten<T>(N * H), inference_h = unwritten<T>(B * H);
    std::vector<A> inference_c = c0;
    forward(inference_out, inference_h, inference_c, nullptr, nullptr);
    auto grad_h = random_values<A>(B * H, 7), grad_c = random_values<A>(B * H, 8);
    std::vector<T> grad_gates = unwritten<T>(N * G);
    backward(gates, cells, grad_h, grad_c, grad_gates);
    return {doubles(out),    doubles(h_n),    doubles(c),
            doubles(gates),  doubles(cells),  doubles(inference_out),
            doubles(grad_h), doubles(grad_c), doubles(grad_gates)};
  }

 private:
  cuda::Request request(cuda::Pass pass) const {
    return {cuda::Cell::kRotLstm, pass, H, B, shape_.steps, NumberOf<T>::kNumber, false};
  }

  void forward(std::vector<T>& out, std::vector<T>& h_n, std::vector<A>& c, std::vector<A>* gates,
               std::vector<A>* cells) {
    if (where_.path == cuda::Path::kStepwise) {
      std::vector<T> preactivations = from_input;
      h_n = h0;
      for (int64_t position = 0; position < shape_.steps; ++position) {
        const HostStep step(sequence_, position);
        T* row = preactivations.data() + step.token * G;
        product(step.rows, G, H, h_n.data(), H, w_hh.data(), H, true, row, G, true);
        cuda::step(NumberOf<T>::kNumber,
                   cuda::LstmStepForward{step.rows, int(H), row, c.data(), h_n.data(),
                                         out.data() + step.token * H,
                                         gates ? gates->data() + step.token * G : nullptr,
                                         cells ? cells->data() + step.token * H : nullptr},
                   nullptr);
      }
      return;
    }
    const cuda::LstmForward p{cuda_steps(shape_, sequence_),
                              int(H),
                              from_input.data(),
                              w_hh.data(),
                              h0.data(),
                              c.data(),
                              out.data(),
                              h_n.data(),
                              gates ? gates->data() : nullptr,
                              cells ? cells->data() : nullptr};
    const cuda::Request asked = request(cuda::Pass::kForward);
    if (where_.path == cuda::Path::kResident) {
      cuda::resident(asked, where_.plan(asked), p, nullptr);
    } else {
      cuda::cooperative(asked, where_.plan(asked), p, nullptr);
    }
  }

  void backward(const std::vector<A>& gates, const std::vector<A>& cells, std::vector<A>& grad_h,
                std::vector<A>& grad_c, std::vector<T>& grad_gates) {
    const auto grad_out = converted<T>(random_values<double>(N * H, 6));
    if (where_.path == cuda::Path::kStepwise) {
      std::vector<T> through = converted<T>(doubles(grad_h));
      for (int64_t position = shape_.steps - 1; position >= 0; --position) {
        const HostStep step(sequence_, position);
        T* grad_row = grad_gates.data() + step.token * G;
        cuda::step(
            NumberOf<T>::kNumber,
            cuda::LstmStepBackward{
                step.rows, int(H), step.carried, gates.data() + step.token * G,
                cells.data() + step.token * H, cells.data() + step.token_before * H, c0.data(),
                grad_out.data() + step.token * H, through.data(), grad_c.data(), grad_row, nullptr},
            nullptr);
        product(step.rows, H, G, grad_row, G, w_hh.data(), H, false, through.data(), H, false);
      }
      for (int64_t i = 0; i < B * H; ++i) grad_h[i] = cuda::to_compute(through[i]);
      return;
    }
    const cuda::LstmBackward p{cuda_steps(shape_, sequence_),
                               int(H),
                               w_hh.data(),
                               c0.data(),
                               gates.data(),
                               cells.data(),
                               grad_out.data(),
                               grad_h.data(),
                               grad_c.data(),
                               grad_gates.data()};
    const cuda::Request asked = request(cuda::Pass::kBackward);
    if (where_.path == cuda::Path::kResident) {
      cuda::resident(asked, where_.plan(asked), p, nullptr);
    } else {
      cuda::cooperative(asked, where_.plan(asked), p, nullptr);
    }
  }

  OnPath where_;
  Sequence sequence_;
  Shape shape_;
  int64_t H, B, G, N;
  std::vector<T> w_hh, from_input, h0;
  std::vector<A> c0;
};

template <class T>
class CudaGru {
 public:
  using A = cuda::Compute<T>;

  CudaGru(const Shape& shape, const OnPath& where)
      : where_(where),
        sequence_(shape),
        shape_(shape),
        H(shape.hidden),
        B(shape.batch),
        G(RotGruRows::count(H)),
        N(sequence_.tokens),
        candidate(RotGruRows::offset(RotGruRows::kCandidate, H)),
        w_hh(converted<T>(random_values<double>(G * H, 1, weight_scale(H)))),
        from_input(converted<T>(random_values<double>(N * G, 3))),
        h0(converted<T>(random_values<double>(B * H, 4))) {}

  Results<double> run() {
    std::vector<T> out = unwritten<T>(N * H), h_n = unwritten<T>(B * H);
    std::vector<A> gates = unwritten<A>(N * G), scratch = unwritten<A>(B * G);
    forward(out, h_n, gates, true);
    std::vector<T> inference_out = unwritten<T>(N * H), inference_h = unwritten<T>(B * H);
    forward(inference_out, inference_h, scratch, false);
    auto grad_h = random_values<A>(B * H, 7);
    std::vector<T> grad_gates = unwritten<T>(N * G), rotated = unwritten<T>(N * H);
    backward(gates, out, grad_h, grad_gates, rotated);
    return {doubles(out),    doubles(h_n),        doubles(gates),  doubles(inference_out),
            doubles(grad_h), doubles(grad_gates), doubles(rotated)};
  }

 private:
  cuda::Request request(cuda::Pass pass) const {
    return {cuda::Cell::kRotGru, pass, H, B, shape_.steps, NumberOf<T>::kNumber, false};
  }

  void forward(std::vector<T>& out, std::vector<T>& h_n, std::vector<A>& gates, bool save) {
    std::vector<T> rotated = unwritten<T>(B * H);
    if (where_.path == cuda::Path::kStepwise) {
      std::vector<T> preactivations = from_input, recurrent(B * G);
      h_n = h0;
      for (int64_t position = 0; position < shape_.steps; ++position) {
        const HostStep step(sequence_, position);
        T* row = preactivations.data() + step.token * G;
        A* gates_t = gates.data() + (save ? step.token * G : 0);
        product(step.rows, G, H, h_n.data(), H, w_hh.data(), H, true, recurrent.data(), G, false);
        cuda::step(NumberOf<T>::kNumber,
                   cuda::GruStepReset{step.rows, int(H), row, recurrent.data(), h_n.data(), gates_t,
                                      rotated.data()},
                   nullptr);
        product(step.rows, H, H, rotated.data(), H, w_hh.data() + candidate * H, H, true,
                row + candidate, G, true);
        cuda::step(NumberOf<T>::kNumber,
                   cuda::GruStepUpdate{step.rows, int(H), row, gates_t, h_n.data(),
                                       out.data() + step.token * H},
                   nullptr);
      }
      return;
    }
    const cuda::GruForward p{cuda_steps(shape_, sequence_),
                             int(H),
                             from_input.data(),
                             w_hh.data(),
                             h0.data(),
                             out.data(),
                             h_n.data(),
                             gates.data(),
                             rotated.data(),
                             save};
    const cuda::Request asked = request(cuda::Pass::kForward);
    if (where_.path == cuda::Path::kResident) {
      cuda::resident(asked, where_.plan(asked), p, nullptr);
    } else {
      cuda::cooperative(asked, where_.plan(asked), p, nullptr);
    }
  }

  void backward(const std::vector<A>& gates, const std::vector<T>& out, std::vector<A>& grad_h,
                std::vector<T>& grad_gates, std::vector<T>& rotated) {
    const auto grad_out = converted<T>(random_values<double>(N * H, 6));
    if (where_.path == cuda::Path::kStepwise) {
      std::vector<T> through = converted<T>(std::vector<double>(B * H)), grad_rotated(B * H);
      for (int64_t position = shape_.steps - 1; position >= 0; --position) {
        const HostStep step(sequence_, position);
        T* grad_row = grad_gates.data() + step.token * G;
        const A* gates_t = gates.data() + step.token * G;
        const T* out_before = out.data() + step.token_before * H;
        cuda::step(NumberOf<T>::kNumber,
                   cuda::GruStepUpdateBackward{step.rows, int(H), step.carried, gates_t, out_before,
                                               h0.data(), grad_out.data() + step.token * H,
                                               through.data(), grad_h.data(), grad_row},
                   nullptr);
        product(step.rows, H, H, grad_row + candidate, G, w_hh.data() + candidate * H, H, false,
                grad_rotated.data(), H, false);
        cuda::step(NumberOf<T>::kNumber,
                   cuda::GruStepResetBackward{step.rows, int(H), step.carried, gates_t, out_before,
                                              h0.data(), grad_rotated.data(), grad_h.data(),
                                              grad_row, rotated.data() + step.token * H},
                   nullptr);
        product(step.rows, H, candidate, grad_row, G, w_hh.data(), H, false, through.data(), H,
                false);
        product(step.rows, H, G - candidate - H, grad_row + candidate + H, G,
                w_hh.data() + (candidate + H) * H, H, false, through.data(), H, true);
      }
      for (int64_t i = 0; i < B * H; ++i) grad_h[i] += cuda::to_compute(through[i]);
      return;
    }
    const cuda::GruBackward p{cuda_steps(shape_, sequence_),
                              int(H),
                              w_hh.data(),
                              h0.data(),
                              gates.data(),
                              out.data(),
                              grad_out.data(),
                              grad_h.data(),
                              grad_gates.data(),
                              rotated.data()};
    const cuda::Request asked = request(cuda::Pass::kBackward);
    if (where_.path == cuda::Path::kResident) {
      cuda::resident(asked, where_.plan(asked), p, nullptr);
    } else {
      cuda::cooperative(asked, where_.plan(asked), p, nullptr);
    }
  }

  OnPath where_;
  Sequence sequence_;
  Shape shape_;
  int64_t H, B, G, N, candidate;
  std::vector<T> w_hh, from_input, h0;
};

}  // namespace rotcell::tests
