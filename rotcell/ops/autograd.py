"""The derivatives of the ops: by their backward ops, or twice by the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from rotcell.reference import StateHooks

from .by_reference import gradients_by_reference
from .cell_ops import CellOps, Overload, slice_of
from .private_torch import below_autograd, register_derivative

__all__ = ["DERIVATIVES", "BackwardCall", "differentiable_sequence", "register", "steps_first"]


class BackwardCall:
    """A call of a backward op, with what the forward call had and gave."""

    def __init__(self, ops: CellOps, overload: Overload) -> None:
        op = overload.backward
        self._op = op.call
        self._first_weight = ops.first_weight
        given = (
            *(f"grad_{name}" for name in ops.results), *ops.tensors, "batch_sizes", *ops.options,
            "out", *ops.saved, "needs_grad_x", "needs_grad_weights", *ops.hooks, "grad_cells",
        )  # fmt: skip
        self._no_hooks = (None,) * len(ops.hooks)
        self._arguments = itemgetter(*(given.index(name) for name in op.arguments))
        # The gradients of both biases come as one.
        extra = ("row_bias",) if "row_bias" in op.results else ()
        wanted = ["bias" if n in ("b_ih", "b_hh") else n for n in (*ops.tensors, *extra)]
        self._gradients = itemgetter(*(op.results.index(name) for name in wanted))
        self._has_biases = "b_ih" in ops.tensors
        if self._has_biases:
            self._biases = slice_of(ops.tensors, ("b_ih", "b_hh"))
            self._w_hh = ops.tensors.index("w_hh")
        self._split_bias = ops.cell.split_bias
        self._extra = (True,) * len(extra)

    def __call__(
        self,
        grads: Sequence[Tensor | None],
        tensors: Sequence[Tensor | None],
        batch_sizes: Tensor | None,
        options: Sequence[Any],
        out: Tensor,
        saved: Sequence[Tensor],
        needed: Sequence[bool],
        hooks: Sequence[Tensor | None] = (),
        grad_cells: Tensor | None = None,
    ) -> tuple[Tensor | None, ...]:
        """Gradients of the tensors that need them, given those of output and last states.

        If there is a bias per row of the batch, its gradient comes last.
        """
        needs_grad_weights = any(needed[self._first_weight :])
        given = (
            *grads, *tensors, batch_sizes, *options, out, *saved, needed[0], needs_grad_weights,
            *(hooks or self._no_hooks), grad_cells,
        )  # fmt: skip
        with below_autograd():
            found = list(self._gradients(self._op(*self._arguments(given))))
        # A tensor for each bias: it may become its .grad.
        if needs_grad_weights and self._has_biases:
            recurrent_rows = tensors[self._w_hh].shape[0]  # type: ignore[union-attr]
            found[self._biases] = self._split_bias(found[self._biases.start], recurrent_rows)
        return tuple(g if n else None for n, g in zip((*needed, *self._extra), found, strict=True))


class Derivative:
    """The derivative of a forward op: what is kept for the backward pass, and the gradients."""

    def __init__(self, ops: CellOps, overload: Overload) -> None:
        self.ops = ops
        self.forward = overload.forward.call
        arguments = overload.forward.arguments
        self._is_extended = overload is ops.extended
        hooks = ops.hooks if self._is_extended else ()
        self._tensors = slice_of(arguments, ops.tensors)
        self._options = slice_of(arguments, ops.options)
        self._batch_sizes = arguments.index("batch_sizes")
        self._save = arguments.index("save")
        self._saved = slice_of(overload.forward.results, ops.saved)
        self._results = slice_of(overload.forward.results, ops.results)
        kept = (*ops.tensors, "batch_sizes", "out", *ops.saved, *hooks)
        self._kept_tensors, self._kept_saved, self._kept_hooks = (
            slice_of(kept, group) for group in (ops.tensors, ops.saved, hooks)
        )
        self._kept_batch_sizes, self._kept_out = kept.index("batch_sizes"), kept.index("out")
        self._extension = slice(self._save + 1, None)
        self._hooks = slice(0, len(hooks))  # of the extension, as is the next
        self._return_cells = slice(len(hooks), None)
        self._without_gradient = (None,) * (len(arguments) - len(ops.tensors))
        self._call = BackwardCall(ops, overload)

    def keep(
        self,
        ctx: Any,
        arguments: Sequence[Any],
        extension: Sequence[Any],
        results: Sequence[Tensor],
        save: bool,
        batch_first: bool = False,
    ) -> None:
        """Keep what `gradients` needs: the op's arguments and results."""
        ctx.set_materialize_grads(False)
        ctx.derivative, ctx.save, ctx.batch_first = self, save, batch_first
        ctx.options = arguments[self._options]
        ctx.returns_cells = any(extension[self._return_cells])
        ctx.save_for_backward(
            *arguments[self._tensors], arguments[self._batch_sizes], results[0],
            *results[self._saved], *extension[self._hooks],
        )  # fmt: skip

    def gradients(
        self, ctx: Any, grads: Sequence[Tensor | None], needed: Sequence[bool]
    ) -> tuple[Tensor | None, ...]:
        """Gradients of the op's tensors, given those of output, last states, returned cells."""
        ops, kept = self.ops, ctx.saved_tensors
        tensors, hooks = kept[self._kept_tensors], kept[self._kept_hooks]
        saved: Sequence[Tensor] = kept[self._kept_saved]
        batch_sizes, out = kept[self._kept_batch_sizes], kept[self._kept_out]
        needed = needed[: len(tensors)]
        if ctx.batch_first:
            out, grads = steps_first(out, grads)

        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            # create_graph=True: the gradients will themselves be differentiated.
            return gradients_by_reference(
                ops, tensors, batch_sizes, ctx.options, StateHooks(*hooks), ctx.returns_cells,
                grads, needed,
            )  # fmt: skip
        if not ctx.save:
            extension = ops.extension(StateHooks(*hooks), False)
            forward = ops.overload(extension).forward.call
            with below_autograd():
                results = forward(*tensors, batch_sizes, *ctx.options, True, *extension)
            saved = results[self._saved]
        *of_results, grad_cells = grads if ctx.returns_cells else (*grads, None)
        return self._call(
            of_results, tensors, batch_sizes, ctx.options, out, saved, needed, hooks, grad_cells
        )

    # For register_derivative

    def setup_context(self, ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        """Keep what `backward` needs."""
        self.keep(ctx, inputs, inputs[self._extension], output, save=inputs[self._save])
        saved = output[self._saved]
        ctx.mark_non_differentiable(*(saved[:-1] if ctx.returns_cells else saved))

    def backward(self, ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients of all arguments of the op."""
        of_cells = grads[-1:] if ctx.returns_cells else ()
        found = self.gradients(ctx, (*grads[self._results], *of_cells), ctx.needs_input_grad)
        return (*found, *self._without_gradient)


def steps_first(
    out: Tensor, grads: Sequence[Tensor | None]
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """Output, and the gradient of it, ``[B, T, P]`` as ``[T, B, P]``."""
    grad_out, *others = grads
    grad_out = None if grad_out is None else grad_out.transpose(0, 1)
    return out.transpose(0, 1), (grad_out, *others)


class SequenceFunction(torch.autograd.Function):
    """The forward op, differentiable without the dispatcher's detour through Python.

    Takes the `Derivative` of an overload, `batch_first`, what `CellOps.extension` gave, and the
    op's arguments before `save`. Returns output and last states, and the cell states if asked for.
    """

    @staticmethod
    def forward(
        ctx: Any,
        derivative: Derivative,
        batch_first: bool,
        extension: Sequence[Any],
        *arguments: Any,
    ) -> tuple[Tensor, ...]:
        """Call the op and keep what backward needs."""
        with below_autograd():
            results = derivative.forward(*arguments, True, *extension)
            if batch_first:
                results[0].transpose_(0, 1)
        derivative.keep(ctx, arguments, extension, results, save=True, batch_first=batch_first)
        ctx.num_arguments = len(arguments)
        return derivative.ops.returned(results, ctx.returns_cells)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients of all arguments."""
        found = ctx.derivative.gradients(ctx, grads, ctx.needs_input_grad[-ctx.num_arguments :])
        return (None, None, None, *found, *[None] * (ctx.num_arguments - len(found)))


differentiable_sequence: Callable[..., tuple[Tensor, ...]] = SequenceFunction.apply

#: The derivatives of a cell's forward op, without and with state hooks.
DERIVATIVES: dict[str, tuple[Derivative, Derivative]] = {}


def register(ops: CellOps) -> None:
    """Register the derivatives of a cell's ops."""
    name = f"rotcell::{ops.cell.name}"

    def refuse(ctx: Any, *grads: Tensor | None) -> Any:
        raise RuntimeError(
            f"{name}_backward is not differentiable: differentiate {name} twice instead"
        )

    def refuse_row_bias(ctx: Any, *grads: Tensor | None) -> Any:
        raise RuntimeError(
            f"{name}.row_bias is not differentiable when called directly: pass a context to a layer"
        )

    plain, extended = (Derivative(ops, overload) for overload in (ops.plain, ops.extended))
    for derivative, overload in ((plain, ops.plain), (extended, ops.extended)):
        register_derivative(overload.forward.call, derivative.backward, derivative.setup_context)
        register_derivative(overload.backward.call, refuse)
    for op in ops.row_bias or ():
        register_derivative(op.call, refuse_row_bias)
    DERIVATIVES[ops.cell.name] = plain, extended
