// The sequences of cpu_sequences.h, on the CUDA kernels in the emulator. Results come in the same
// order, as far as they go.
#pragma once

#include <map>
#include <stdexcept>

#include "cuda/kernels/cell_io.h"
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/stepwise.h"
#include "drivers/cpu_sequences.h"

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

// c = a b, or a b^T: what torch's matmuls do between the stepwise kernels. a is
// [rows, depth], rows of a, b and c lie so many elements apart.
template <class T>
void matmul(int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t a_stride, const T* b,
            int64_t b_stride, bool transposed, T* c, int64_t c_stride) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      cuda::Compute<T> sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        sum += cuda::to_compute(a[i * a_stride + k]) *
               cuda::to_compute(transposed ? b[j * b_stride + k] : b[k * b_stride + j]);
      }
      c[i * c_stride + j] = cuda::to_storage<T>(sum);
    }
  }
}

struct OnPath {
  cuda::Path path;
  cuda::DeviceProperties device;
  // What a block may have in each pass, if that is less than the device has.
  std::map<cuda::Pass, int64_t> shared_bytes{};

  cuda::Plan plan(const cuda::Request& request) const {
    cuda::DeviceProperties of_pass = device;
    if (const auto less = shared_bytes.find(request.pass); less != shared_bytes.end()) {
      of_pass.shared_bytes_per_block = less->second;
    }
    const auto found = cuda::plan_path(path, request, of_pass);
    if (!found) throw std::runtime_error("the sequence does not fit the device on this path");
    return *found;
  }
};

// Buffers are heap blocks of the exact size; those that a cell does not have are empty.
template <class T>
class CudaCell {
 public:
  using A = cuda::Compute<T>;

  CudaCell(CellIndex cell, const Shape& shape, const OnPath& where)
      : where_(where),
        cell_(cell),
        description_(kCells[cell]),
        sequence_(shape),
        shape_(shape),
        H(shape.hidden),
        B(shape.batch),
        G(description_.rows(H)),
        N(sequence_.tokens),
        C(description_.has_cell_state ? H : 0),
        O(description_.stages > 1 ? H : 0),
        w_hh(converted<T>(random_values<double>(G * H, 1, weight_scale(H)))),
        from_input(converted<T>(random_values<double>(N * G, 3))),
        h0(converted<T>(random_values<double>(B * H, 4))),
        c0(random_values<A>(B * C, 5)) {}

  Results<double> run() {
    Kept kept{unwritten<T>(N * H), unwritten<T>(B * H), c0, unwritten<T>(N * G),
              unwritten<T>(N * C)};
    forward(kept, Keep::kForBackward);
    Kept inference{unwritten<T>(N * H), unwritten<T>(B * H), c0, {}, {}};
    forward(inference, Keep::kNothing);
    auto grad_h = random_values<A>(B * H, 7), grad_c = random_values<A>(B * C, 8);
    std::vector<T> grad_gates = unwritten<T>(N * G), second_operand = unwritten<T>(N * O);
    backward(kept, grad_h, grad_c, grad_gates, second_operand);
    return {doubles(kept.out),   doubles(kept.h_n),      doubles(kept.c), activations(kept.gates),
            doubles(kept.cells), doubles(inference.out), doubles(grad_h), doubles(grad_c),
            doubles(grad_gates), doubles(second_operand)};
  }

 private:
  struct Kept {
    std::vector<T> out, h_n;
    std::vector<A> c;
    std::vector<T> gates, cells;
  };

  // The activations of the gates that were kept.
  std::vector<double> activations(const std::vector<T>& kept) const {
    using KeptAs = cuda::KeptActivation<T>;
    std::vector<double> result(kept.size());
    cuda::with_cell(cell_, [&](auto cell) {
      using Cell = typename decltype(cell)::Type;
      for (size_t i = 0; i < kept.size(); ++i) {
        const int gate = static_cast<int>(static_cast<int64_t>(i) % G / H);  // or the angles
        const bool tanh = gate < Cell::kGateCount && Cell::activation(gate) == Activation::kTanh;
        result[i] = tanh ? KeptAs::tanh(kept[i]) : KeptAs::share(kept[i]);
      }
    });
    return result;
  }

  // The weights of the columns of the gates that a matmul makes; other rows among them are zero.
  struct Matmul {
    int64_t first, rows;
    std::vector<T> weights;
  };

  Matmul matmul_of(int stage) const {
    const int64_t first = description_.first_row_of_matmul(stage, H);
    const int64_t rows = description_.span_of_matmul(stage, H);
    Matmul matmul{first, rows, {w_hh.begin() + first * H, w_hh.begin() + (first + rows) * H}};
    if (rows > description_.rows_of_matmul(stage, H)) {
      const int64_t other = description_.first_row_of_matmul(1, H) - first;
      const int64_t other_rows = description_.rows_of_matmul(1, H);
      std::fill_n(matmul.weights.begin() + other * H, other_rows * H, cuda::to_storage<T>(0));
    }
    return matmul;
  }

  cuda::Request request(cuda::Pass pass) const {
    return {.cell = cell_,
            .pass = pass,
            .hidden = H,
            .batch = B,
            .steps = shape_.steps,
            .number = NumberOf<T>::kNumber,
            .projection = false};
  }

  void forward(Kept& kept, Keep keep) {
    std::vector<T> second_operand = unwritten<T>(B * O);
    std::vector<A> waiting = unwritten<A>(description_.stages > 1 ? B * G : 0);
    std::vector<uint64_t> signals(cuda::signal_count(B));
    if (where_.path == cuda::Path::kStepwise) {
      forward_stepwise(kept, keep, second_operand);
      return;
    }
    launch(request(cuda::Pass::kForward), cuda::Forward{.steps = sequence_.steps,
                                                        .hidden = int(H),
                                                        .activations = shape_.activations,
                                                        .keep = keep,
                                                        .from_input = from_input.data(),
                                                        .w_hh = w_hh.data(),
                                                        .h0 = h0.data(),
                                                        .c = kept.c.data(),
                                                        .out = kept.out.data(),
                                                        .h_n = kept.h_n.data(),
                                                        .gates = kept.gates.data(),
                                                        .cells = kept.cells.data(),
                                                        .waiting = waiting.data(),
                                                        .second_operand = second_operand.data(),
                                                        .signals = signals.data()});
  }

  // What both directions of the stepwise path have in common.
  void describe(cuda::StepwiseSequence& s) const {
    s = {.steps = sequence_.steps,
         .hidden = int(H),
         .outputs = int(H),
         .gate_rows = G,
         .number_bytes = sizeof(T),
         .compute_bytes = sizeof(A),
         .last_stage = description_.stages - 1,
         .has_cell_state = description_.has_cell_state,
         .activations = shape_.activations,
         .hooks = {},
         .resets = nullptr,
         .dropout = nullptr,
         .zoneout_h = {},
         .zoneout_c = {},
         .h0 = h0.data()};
  }

  void forward_stepwise(Kept& kept, Keep keep, std::vector<T>& second_operand) {
    const bool keeps = keep == Keep::kForBackward;
    std::vector<T> matmuls = unwritten<T>(B * G);
    kept.h_n = h0;
    cuda::StepwiseForward s{};
    describe(s);
    s.keep = keep;
    s.result_is = cuda::ResultIs::kOutput;
    s.from_input = from_input.data();
    s.out = kept.out.data();
    s.gates = keeps ? kept.gates.data() : nullptr;
    s.cells = keeps && C > 0 ? kept.cells.data() : nullptr;
    s.h = s.masked_h = s.result = kept.h_n.data();
    s.c = kept.c.data();
    s.matmuls = matmuls.data();
    s.second_operand = second_operand.data();
    for (int64_t position = 0; position < shape_.steps; ++position) {
      const Step step = step_at(sequence_.steps, position);
      for (int stage = 0; stage <= s.last_stage; ++stage) {
        const Matmul weights = matmul_of(stage);
        matmul(step.rows, weights.rows, H, stage == 0 ? kept.h_n.data() : second_operand.data(), H,
               weights.weights.data(), H, true, matmuls.data() + weights.first, G);
        cuda::stage(cell_, NumberOf<T>::kNumber, stage_of(s, stage, step), nullptr);
      }
    }
  }

  void backward(const Kept& kept, std::vector<A>& grad_h, std::vector<A>& grad_c,
                std::vector<T>& grad_gates, std::vector<T>& second_operand) {
    const auto grad_out = converted<T>(random_values<double>(N * H, 6));
    std::vector<uint64_t> signals(cuda::signal_count(B));
    if (where_.path == cuda::Path::kStepwise) {
      backward_stepwise(kept, grad_out, grad_h, grad_c, grad_gates, second_operand);
      return;
    }
    launch(request(cuda::Pass::kBackward), cuda::Backward{.steps = sequence_.steps,
                                                          .hidden = int(H),
                                                          .activations = shape_.activations,
                                                          .output_gradient = OutputGradient::kGiven,
                                                          .w_hh = w_hh.data(),
                                                          .h0 = h0.data(),
                                                          .c0 = c0.data(),
                                                          .gates = kept.gates.data(),
                                                          .cells = kept.cells.data(),
                                                          .out = kept.out.data(),
                                                          .grad_out = grad_out.data(),
                                                          .grad_h = grad_h.data(),
                                                          .grad_c = grad_c.data(),
                                                          .grad_gates = grad_gates.data(),
                                                          .second_operand = second_operand.data(),
                                                          .signals = signals.data()});
  }

  void backward_stepwise(const Kept& kept, const std::vector<T>& grad_out, std::vector<A>& grad_h,
                         std::vector<A>& grad_c, std::vector<T>& grad_gates,
                         std::vector<T>& second_operand) {
    std::vector<T> through = converted<T>(doubles(grad_h)), grad_second_operand(B * O);
    std::vector<A> direct(description_.reads_output ? B * H : 0, A(0));
    cuda::StepwiseBackward s{};
    describe(s);
    s.output_gradient = OutputGradient::kGiven;
    s.recompute_second_operand = O > 0 ? cuda::Recompute::kYes : cuda::Recompute::kNo;
    s.has_direct = description_.reads_output;
    s.gates = kept.gates.data();
    s.cells = C > 0 ? kept.cells.data() : nullptr;
    s.out = kept.out.data();
    s.grad_out = grad_out.data();
    s.grad_gates = grad_gates.data();
    s.second_operand = second_operand.data();
    s.c0 = c0.data();
    s.grad_h = s.grad_result = through.data();
    s.grad_c = grad_c.data();
    s.grad_direct = direct.data();
    s.grad_second_operand = grad_second_operand.data();
    for (int64_t position = shape_.steps - 1; position >= 0; --position) {
      const Step step = step_at(sequence_.steps, position);
      for (int stage = s.last_stage; stage >= 0; --stage) {
        cuda::stage(cell_, NumberOf<T>::kNumber, stage_of(s, stage, step), nullptr);
        const Matmul weights = matmul_of(stage);
        matmul(step.rows, H, weights.rows, grad_gates.data() + step.token * G + weights.first, G,
               weights.weights.data(), H, false,
               stage == 0 ? through.data() : grad_second_operand.data(), H);
      }
    }
    for (int64_t i = 0; i < B * H; ++i) grad_h[i] = cuda::to_compute(through[i]);
    for (size_t i = 0; i < direct.size(); ++i) grad_h[i] += direct[i];
  }

  template <class Params>
  void launch(const cuda::Request& asked, const Params& params) const {
    if (where_.path == cuda::Path::kResident) {
      cuda::resident(asked, where_.plan(asked), params, nullptr);
    } else {
      cuda::cooperative(asked, where_.plan(asked), params, nullptr);
    }
  }

  OnPath where_;
  CellIndex cell_;
  const CellDescription& description_;
  Sequence sequence_;
  Shape shape_;
  int64_t H, B, G, N;
  int64_t C, O;  // H, or 0 for a cell without cell state, without a second matmul
  std::vector<T> w_hh, from_input, h0;
  std::vector<A> c0;
};

}  // namespace rotcell::tests
