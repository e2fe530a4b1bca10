// The ops for CUDA tensors, as torch calls them: library.cpp has their schema.
#pragma once

#include <tuple>

#include "ops/sequence.h"

namespace rotcell::ops::gpu {

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> rot_lstm(
    const at::Tensor& x, const at::Tensor& h0, const at::Tensor& c0, const at::Tensor& w_ih,
    const at::Tensor& w_hh, const OptionalTensor& b_ih, const OptionalTensor& b_hh,
    const OptionalTensor& w_hr, const OptionalTensor& batch_sizes, bool reverse, bool save);

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>
rot_lstm_backward(const OptionalTensor& grad_out, const OptionalTensor& grad_h_n,
                  const OptionalTensor& grad_c_n, const at::Tensor& x, const at::Tensor& h0,
                  const at::Tensor& c0, const at::Tensor& w_ih, const at::Tensor& w_hh,
                  const OptionalTensor& w_hr, const OptionalTensor& batch_sizes, bool reverse,
                  const at::Tensor& out, const at::Tensor& gates, const at::Tensor& cells,
                  bool x_wanted, bool weights_wanted);

std::tuple<at::Tensor, at::Tensor, at::Tensor> rot_gru(
    const at::Tensor& x, const at::Tensor& h0, const at::Tensor& w_ih, const at::Tensor& w_hh,
    const OptionalTensor& b_ih, const OptionalTensor& b_hh, const OptionalTensor& batch_sizes,
    bool reverse, bool save);

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> rot_gru_backward(
    const OptionalTensor& grad_out, const OptionalTensor& grad_h_n, const at::Tensor& x,
    const at::Tensor& h0, const at::Tensor& w_ih, const at::Tensor& w_hh,
    const OptionalTensor& batch_sizes, bool reverse, const at::Tensor& out, const at::Tensor& gates,
    bool x_wanted, bool weights_wanted);

}  // namespace rotcell::ops::gpu
