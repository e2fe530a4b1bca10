"""A sequence with a bias per row of the batch: how a layer's context enters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rotcell.reference import NO_HOOKS, Cell, Weights

from .autograd import BackwardCall, steps_first
from .availability import lowers_float32, needs_reference
from .by_reference import gradients_by_reference
from .cell_ops import ACTIVATION_NUMBERS, CELL_OPS, CellOps, slice_of
from .private_torch import below_autograd, is_tracing, may_be_in_forward_ad
from .sequences import any_requires_grad

__all__ = ["append_to_every_token", "sequence_with_row_bias", "takes_row_bias"]


def takes_row_bias(cell: Cell, x: Tensor) -> bool:
    """Whether `sequence_with_row_bias` can run here and now."""
    if cell.op_name not in ROW_BIAS_PASSES or x.device.type != "cpu":
        return False
    if torch.compiler.is_compiling() or is_tracing():
        return False
    if cell.recurrence.apart:  # a context is a part of x, a bias per row would be of x and h
        return False
    # fp16 and bf16 are too coarse for a part of the sum, and autocast would make it one.
    if x.dtype not in (torch.float32, torch.float64) or torch.is_autocast_enabled("cpu"):
        return False
    if x.dtype == torch.float32 and lowers_float32():
        return False
    # Any of the tensors may have a tangent.
    if may_be_in_forward_ad():
        return False
    return not needs_reference(cell, x.device, "cpu", (x,))


def sequence_with_row_bias(
    cell: Cell,
    x: Tensor,
    row_bias: Tensor,
    states: Sequence[Tensor],
    weights: Weights,
    batch_sizes: Tensor | None,
    reverse: bool,
    gate_activation: str,
    angle_activation: str,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """As `sequence`, but each row of the batch has its own bias, ``[B, rows]``.

    The weights have no biases. Only where `takes_row_bias`.
    """
    ops = CELL_OPS[cell.op_name]
    tensors: tuple[Any, ...] = (x, *states, *weights[: ops.num_weights])
    options = reverse, ACTIVATION_NUMBERS[gate_activation], ACTIVATION_NUMBERS[angle_activation]
    if torch.is_grad_enabled() and (row_bias.requires_grad or any_requires_grad(tensors)):
        return _differentiable(
            ROW_BIAS_PASSES[cell.op_name], batch_first, row_bias, *tensors, batch_sizes, *options
        )
    with below_autograd():
        forward = ROW_BIAS_PASSES[cell.op_name].forward
        results = forward(*tensors, batch_sizes, *options, False, row_bias)
        if batch_first:
            results[0].transpose_(0, 1)
        return ops.returned(results, False)


class RowBiasPass:
    """Where the parts of a call with a bias per row are, for its backward pass."""

    def __init__(self, ops: CellOps) -> None:
        self.ops = ops
        overload = ops.row_bias
        assert overload is not None
        self.forward = overload.forward.call
        self.backward = BackwardCall(ops, overload)
        arguments = overload.forward.arguments
        self.tensors = slice_of(arguments, ops.tensors)
        self.options = slice_of(arguments, ops.options)
        self.batch_sizes = arguments.index("batch_sizes")
        self.saved = slice_of(overload.forward.results, ops.saved)


class RowBiasFunction(torch.autograd.Function):
    """The op with a bias per row: takes `RowBiasPass`, `batch_first`, the biases, and the rest."""

    @staticmethod
    def forward(
        ctx: Any, parts: RowBiasPass, batch_first: bool, row_bias: Tensor, *arguments: Any
    ) -> tuple[Tensor, ...]:
        """Call the op and keep what backward needs."""
        with below_autograd():
            results = parts.forward(*arguments, True, row_bias)
            if batch_first:
                results[0].transpose_(0, 1)
        ctx.set_materialize_grads(False)
        ctx.parts, ctx.batch_first = parts, batch_first
        ctx.options, ctx.num_arguments = arguments[parts.options], len(arguments)
        ctx.save_for_backward(
            row_bias, arguments[parts.batch_sizes], results[0], *results[parts.saved],
            *arguments[parts.tensors],
        )  # fmt: skip
        return parts.ops.returned(results, False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients of all arguments."""
        parts: RowBiasPass = ctx.parts
        row_bias, batch_sizes, out, *rest = ctx.saved_tensors
        num_saved = len(parts.ops.saved)
        saved, tensors = rest[:num_saved], rest[num_saved:]
        needed = ctx.needs_input_grad[-ctx.num_arguments :][: len(tensors)]
        if ctx.batch_first:
            out, grads = steps_first(out, grads)
        if torch.is_grad_enabled():
            found = _gradients_by_reference(
                parts.ops, row_bias, tensors, batch_sizes, ctx.options, grads, needed
            )
        else:
            found = parts.backward(grads, tensors, batch_sizes, ctx.options, out, saved, needed)
        *of_tensors, of_row_bias = found
        without = [None] * (ctx.num_arguments - len(tensors))
        return None, None, of_row_bias, *of_tensors, *without


_differentiable: Callable[..., tuple[Tensor, ...]] = RowBiasFunction.apply

ROW_BIAS_PASSES = {name: RowBiasPass(ops) for name, ops in CELL_OPS.items() if ops.row_bias}


def _gradients_by_reference(
    ops: CellOps,
    row_bias: Tensor,
    tensors: Sequence[Tensor],
    batch_sizes: Tensor | None,
    options: Sequence[Any],
    grads: Sequence[Tensor | None],
    needed: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Gradients that can be differentiated again; that of the biases comes last.

    To the reference the biases are further inputs, the same at every step, with weights of 1.
    """
    first_weight = ops.first_weight
    x, w_ih = tensors[0], tensors[first_weight]
    width = x.shape[-1]
    wide_x = append_to_every_token(x, row_bias, batch_sizes)
    wide_w = torch.cat([w_ih, torch.eye(*[w_ih.shape[0]] * 2, dtype=w_ih.dtype)], dim=1)
    wide = (wide_x, *tensors[1:first_weight], wide_w, *tensors[first_weight + 1 :])
    wanted = (True, *needed[1:])
    found = list(
        gradients_by_reference(ops, wide, batch_sizes, options, NO_HOOKS, False, grads, wanted)
    )
    of_wide = found[0]
    if of_wide is None:
        return (*found, None)
    of_w_ih = found[first_weight]
    if of_w_ih is not None:
        found[first_weight] = of_w_ih[:, :width]
    found[0] = of_wide[..., :width] if needed[0] else None
    of_row_bias = _sum_over_tokens(of_wide[..., width:], row_bias.shape[0], batch_sizes)
    return (*found, of_row_bias)


def append_to_every_token(x: Tensor, of_rows: Tensor, batch_sizes: Tensor | None) -> Tensor:
    """``[N, I]`` or ``[T, B, I]`` and ``[B, C]``, the same at every step, as ``[..., I + C]``."""
    if x.dim() == 3:
        every = of_rows.expand(x.shape[0], *of_rows.shape)
    elif batch_sizes is None:
        every = of_rows.expand(x.shape[0] // of_rows.shape[0], *of_rows.shape).flatten(0, 1)
    else:
        every = of_rows.index_select(0, _rows_of_tokens(x, batch_sizes))
    return torch.cat([x, every.to(x.dtype)], dim=-1)


def _sum_over_tokens(tokens: Tensor, batch: int, batch_sizes: Tensor | None) -> Tensor:
    """``[N, C]`` or ``[T, B, C]`` as ``[B, C]``: the sum over the tokens of each row."""
    if batch_sizes is None:
        return tokens.reshape(-1, batch, tokens.shape[-1]).sum(0)
    rows = _rows_of_tokens(tokens, batch_sizes)
    return tokens.new_zeros(batch, tokens.shape[1]).index_add(0, rows, tokens)


def _rows_of_tokens(tokens: Tensor, batch_sizes: Tensor) -> Tensor:
    """Which row of the batch each token of packed sequences belongs to."""
    count = tokens.shape[0]
    first = batch_sizes.cumsum(0) - batch_sizes  # token of every step
    of_step = torch.repeat_interleave(first, batch_sizes, output_size=count)
    return (torch.arange(count) - of_step).to(tokens.device)
