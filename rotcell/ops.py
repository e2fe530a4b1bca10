"""The compiled ops as differentiable functions: `rot_lstm` and `rot_gru`.

Both run one direction of one layer over a whole sequence, with the arguments and results of their
namesakes in `rotcell.reference`. On the CPU, and on GPUs if built for them, they are kernels; where
a kernel cannot do what is asked (differentiate twice, forward-mode AD, ``torch.func`` transforms,
other devices), the reference does it.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import _C as _C  # registers torch.ops.rotcell
from . import reference

__all__ = ["rot_gru", "rot_lstm", "use_reference"]

_DEVICES_WITH_KERNELS = frozenset({"cpu", "meta"} | ({"cuda"} if _C.has_cuda else set()))


# The one overload of each op: to look for it at every call takes its time.
_rot_lstm = torch.ops.rotcell.rot_lstm.default
_rot_gru = torch.ops.rotcell.rot_gru.default


class _Mode(threading.local):
    reference = False


_mode = _Mode()


@contextlib.contextmanager
def use_reference() -> Iterator[None]:
    """Run all layers and cells in this block (and thread) on `rotcell.reference`.

    For debugging and comparison; slow.

    >>> import rotcell
    >>> layer, x = rotcell.RotLSTM(3, 4), torch.randn(5, 2, 3)
    >>> with rotcell.use_reference():
    ...     expected, _ = layer(x)
    >>> torch.allclose(layer(x)[0], expected, atol=1e-6)
    True
    """
    before = _mode.reference
    _mode.reference = True
    try:
        yield
    finally:
        _mode.reference = before


def rot_lstm(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
    w_hr: Tensor | None = None,
    batch_sizes: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a sequence through one direction of one RotLSTM layer: see `reference.rot_lstm`."""
    device = x.device.type
    tensors = _autocast(device, x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr)
    arguments = (*tensors, batch_sizes, reverse)
    if _needs_reference(device, tensors):
        return reference.rot_lstm(*arguments)
    if _needs_gradient(tensors):
        out, h_n, c_n = _differentiable_rot_lstm(*arguments)
    else:
        out, h_n, c_n, _, _ = _rot_lstm(*arguments, False)
    return out, h_n, c_n


def rot_gru(
    x: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
    batch_sizes: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """Run a sequence through one direction of one RotGRU layer: see `reference.rot_gru`."""
    device = x.device.type
    tensors = _autocast(device, x, h0, w_ih, w_hh, b_ih, b_hh)
    arguments = (*tensors, batch_sizes, reverse)
    if _needs_reference(device, tensors):
        return reference.rot_gru(*arguments)
    if _needs_gradient(tensors):
        out, h_n = _differentiable_rot_gru(*arguments)
    else:
        out, h_n, _ = _rot_gru(*arguments, False)
    return out, h_n


def _autocast(device: str, *tensors: Tensor | None) -> tuple[Any, ...]:
    """Under autocast, all but float64 tensors go to its type, as for nn.LSTM."""
    if device == "meta" or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(t.to(dtype) if t is not None and t.dtype != torch.float64 else t for t in tensors)


def _needs_reference(device: str, tensors: Sequence[Tensor | None]) -> bool:
    if _mode.reference:
        return True
    if device not in _DEVICES_WITH_KERNELS:
        _say_that_there_is_no_kernel(device)
        return True
    if torch.compiler.is_compiling():
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    return forward_ad._current_level >= 0 and any(
        forward_ad.unpack_dual(t).tangent is not None for t in tensors if t is not None
    )


_devices_spoken_of: set[str] = set()


def _say_that_there_is_no_kernel(device: str) -> None:
    if device not in _devices_spoken_of:
        _devices_spoken_of.add(device)
        warnings.warn(
            f"rotcell has no kernels for device type {device!r}: its layers run on the slower "
            "reference code there.",
            stacklevel=2,
        )


def _needs_gradient(tensors: Sequence[Tensor | None]) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _differentiable(name: str, num_states: int) -> Callable[..., Any]:
    """Make a torch.autograd.Function of an op and its backward op, and return its `apply`.

    It takes what the op takes, but for `save`: the input, states, w_ih, w_hh, b_ih, b_hh, any
    further weights, batch_sizes, reverse.
    """
    forward_op = getattr(torch.ops.rotcell, name).default
    backward_op = getattr(torch.ops.rotcell, f"{name}_backward").default
    num_results = 1 + num_states
    first_weight = 1 + num_states
    first_bias = first_weight + 2

    class SequenceFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, ...]:
            *tensors, batch_sizes, reverse = arguments
            results = forward_op(*arguments, True)
            out, saved = results[0], results[num_results:]
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(batch_sizes, out, *saved, *tensors)
            ctx.num_saved = len(saved)
            ctx.reverse = reverse
            return tuple(results[:num_results])

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
            batch_sizes, out, *rest = ctx.saved_tensors
            saved, tensors = rest[: ctx.num_saved], rest[ctx.num_saved :]
            wanted = ctx.needs_input_grad[: len(tensors)]
            if torch.is_grad_enabled() and not torch.compiler.is_compiling():
                # create_graph=True: the gradients will themselves be differentiated.
                function = getattr(reference, name)
                found = _reference_gradients(
                    lambda *inputs: function(*inputs, batch_sizes, ctx.reverse),
                    tensors,
                    grads,
                    wanted,
                )
                return (*found, None, None)
            without_biases = tensors[:first_bias] + tensors[first_bias + 2 :]
            by_kernel = backward_op(
                *grads, *without_biases, batch_sizes, ctx.reverse, out, *saved,
                wanted[0], any(wanted[first_weight:]),
            )  # fmt: skip
            *before, bias = by_kernel[: first_bias + 1]
            # The biases have the same gradient, but a tensor each: it may become their .grad.
            every = (*before, bias, bias.clone(), *by_kernel[first_bias + 1 :])
            return (*(g if w else None for w, g in zip(wanted, every, strict=True)), None, None)

    return SequenceFunction.apply


_differentiable_rot_lstm = _differentiable("rot_lstm", num_states=2)
_differentiable_rot_gru = _differentiable("rot_gru", num_states=1)


def _reference_gradients(
    function: Callable[..., tuple[Tensor, ...]],
    inputs: Sequence[Tensor | None],
    grads: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Gradients of the inputs that are wanted, which can be differentiated again."""
    # A view for each input: the same tensor may come in twice, with a gradient for each place.
    views = [None if t is None else t.view_as(t) for t in inputs]
    outputs = function(*views)
    reached = [(o, g) for o, g in zip(outputs, grads, strict=True) if g is not None]
    targets = [v for v, w in zip(views, wanted, strict=True) if w and v is not None]
    if not reached:
        return tuple(None for _ in inputs)
    found = iter(
        torch.autograd.grad(
            [o for o, _ in reached],
            targets,
            [g for _, g in reached],
            create_graph=True,
            allow_unused=True,
        )
    )
    return tuple(next(found) if w else None for w in wanted)


def _compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type a kernel computes and saves in."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


@torch.library.register_fake("rotcell::rot_lstm")
def _(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, batch_sizes, reverse, save):  # type: ignore[no-untyped-def]
    saved = {"dtype": _compute_dtype(x.dtype)}
    tokens = x.shape[0]
    return (
        x.new_empty(tokens, h0.shape[1]),
        h0.new_empty(h0.shape),
        c0.new_empty(c0.shape),
        x.new_empty((tokens, w_hh.shape[0]) if save else (0,), **saved),
        x.new_empty((tokens, c0.shape[1]) if save else (0,), **saved),
    )


@torch.library.register_fake("rotcell::rot_lstm_backward")
def _(  # type: ignore[no-untyped-def]
    grad_out, grad_h_n, grad_c_n, x, h0, c0, w_ih, w_hh, w_hr, batch_sizes, reverse, out, gates,
    cells, x_wanted, weights_wanted,
):  # fmt: skip
    weights = [(0,)] * 4
    if weights_wanted:
        projection = (0,) if w_hr is None else w_hr.shape
        weights = [w_ih.shape, w_hh.shape, w_hh.shape[:1], projection]
    return (
        x.new_empty(x.shape if x_wanted else (0,)),
        h0.new_empty(h0.shape),
        c0.new_empty(c0.shape),
        *(x.new_empty(shape) for shape in weights),
    )


@torch.library.register_fake("rotcell::rot_gru")
def _(x, h0, w_ih, w_hh, b_ih, b_hh, batch_sizes, reverse, save):  # type: ignore[no-untyped-def]
    tokens = x.shape[0]
    return (
        x.new_empty(tokens, h0.shape[1]),
        h0.new_empty(h0.shape),
        x.new_empty((tokens, w_hh.shape[0]) if save else (0,), dtype=_compute_dtype(x.dtype)),
    )


@torch.library.register_fake("rotcell::rot_gru_backward")
def _(  # type: ignore[no-untyped-def]
    grad_out, grad_h_n, x, h0, w_ih, w_hh, batch_sizes, reverse, out, gates, x_wanted,
    weights_wanted,
):  # fmt: skip
    weights = [w_ih.shape, w_hh.shape, w_hh.shape[:1]] if weights_wanted else [(0,)] * 3
    return (
        x.new_empty(x.shape if x_wanted else (0,)),
        h0.new_empty(h0.shape),
        *(x.new_empty(shape) for shape in weights),
    )
