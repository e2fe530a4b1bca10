"""The compiled ops as one differentiable function, `sequence`, for every cell.

It runs one direction of one layer over a whole sequence, as `reference.Cell.sequence` does. On the
CPU, and on GPUs if built for them, that is a kernel; where a kernel cannot do what is asked
(differentiate twice, forward-mode AD, ``torch.func`` transforms, other devices), the reference does
it.

The ops themselves, ``torch.ops.rotcell.NAME`` and ``NAME_backward`` for every cell, are made by the
compiled library. What torch must know of them besides (shapes, derivatives) is registered here,
from the cells' descriptions.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils import flop_counter

from . import _libraries
from .reference import CELLS, GATE_FUNCTIONS, UNCHANGED, Cell, StateChanges, Weights

__all__ = ["sequence", "use_reference"]

_libraries.load()

#: Of each op: torch handles every argument of a call, used or not, so what few calls use is left to
#: the second.
OVERLOADS = ("default", "extended")

#: A third one, in which each row of the batch has a bias of its own; on the CPU only.
ROW_BIAS = "row_bias"

#: The ops know gate functions by number.
_FUNCTION_NUMBERS = {name: number for number, name in enumerate(GATE_FUNCTIONS)}
_FUNCTION_NAMES = tuple(GATE_FUNCTIONS)


class _Mode(threading.local):
    def __init__(self) -> None:
        # Not of the class: what is compiled looks again at attributes of the object only.
        self.reference = False


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


def as_tokens(tensor: Tensor) -> Tensor:
    """``[T, B, .]``, or the state ``[1, B, .]`` of one layer and direction, as ``[N, .]``."""
    return tensor if tensor.dim() == 2 else tensor.flatten(0, 1)


def laid_out_as(
    x: Tensor, states: Sequence[Tensor], results: Sequence[Tensor], batch_first: bool = False
) -> tuple[Tensor, ...]:
    """Output ``[N, P]`` and last states ``[B, .]``, as input and first states are laid out.

    What comes after them stays as it is.
    """
    out, *rest = results
    if x.dim() == 3:
        out = out.unflatten(0, x.shape[:2])
        out = out.transpose(0, 1) if batch_first else out
    if states[0].dim() == 3:
        # Stacked, so that they are no views: users of nn.LSTM call detach_(), which refuses those.
        rest[: len(states)] = [torch.stack([state]) for state in rest[: len(states)]]
    return out, *rest


def sequence(
    cell: Cell,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Weights,
    batch_sizes: Tensor | None = None,
    reverse: bool = False,
    gates: str = "sigmoid",
    angle_gates: str = "sigmoid",
    batch_first: bool = False,
    changes: StateChanges = UNCHANGED,
    return_cells: bool = False,
) -> tuple[Tensor, ...]:
    """Run a sequence through one direction of one layer: see `reference.Cell.sequence`.

    Besides tokens ``[N, I]`` and states ``[B, .]`` it takes what nn.LSTM has for one layer and
    direction, ``[T, B, I]`` and ``[1, B, .]``, and gives output and last states likewise; with
    `batch_first` the output of such input is ``[B, T, P]``. None of them is a view. Cells are
    ``[N, H]``, in the number type that the kernel saves them in.
    """
    ops = _OPS[cell.name]
    device = x.device
    device_type = device.type  # kept: torch makes a string of it each time
    tensors: tuple[Any, ...] = (x, *states, *weights[: ops.num_weights])
    if device_type != "meta" and torch.is_autocast_enabled(device_type):
        tensors = _autocast(tensors, torch.get_autocast_dtype(device_type))
        if changes is not UNCHANGED:
            changes = StateChanges(*_autocast(changes, torch.get_autocast_dtype(device_type)))
    options = (reverse, gates, angle_gates)
    if _needs_reference(cell, device, device_type, tensors):
        return _by_reference(ops, tensors, batch_sizes, options, batch_first, changes, return_cells)
    arguments = (
        *tensors, batch_sizes, reverse, _FUNCTION_NUMBERS[gates], _FUNCTION_NUMBERS[angle_gates],
    )  # fmt: skip
    is_plain = changes is UNCHANGED and not return_cells
    extras = () if is_plain else ops.extras(changes, return_cells)
    needs_gradient = torch.is_grad_enabled() and _any_requires_grad(tensors)
    compiling = torch.compiler.is_compiling()
    if compiling or torch._C._is_tracing():
        # A trace is for any run, with or without gradients, so it saves nothing for them.
        forward = ops.forward[bool(extras)]
        flat = [as_tokens(t) for t in tensors[: 1 + ops.num_states]]
        rest = arguments[len(flat) :]
        found = forward(*flat, *rest, compiling and needs_gradient, *extras)
        return laid_out_as(x, states, ops.results(found, return_cells), batch_first)
    # The ops are differentiable by themselves, but at every call that takes the dispatcher another
    # way round through Python: below its autograd there is nothing but the kernel.
    try:
        if needs_gradient:
            results: tuple[Tensor, ...] = ops.differentiable(batch_first, extras, *arguments)
            return results
        with torch._C._AutoDispatchBelowAutograd():
            found = ops.forward[bool(extras)](*arguments, False, *extras)
            if batch_first:
                found[0].transpose_(0, 1)
            return ops.results(found, return_cells)
    except RuntimeError:
        if not _may_be_refused(cell.name, device, tensors[0].dtype):
            raise
    return _by_reference(ops, tensors, batch_sizes, options, batch_first, changes, return_cells)


def takes_row_bias(cell: Cell, x: Tensor) -> bool:
    """Whether `sequence_with_row_bias` can run here and now."""
    if x.device.type != "cpu" or torch.compiler.is_compiling() or torch._C._is_tracing():
        return False
    # A half type is too coarse for a part of the sum; and autocast would make it one.
    if x.dtype not in (torch.float32, torch.float64) or torch.is_autocast_enabled("cpu"):
        return False
    # Whichever of the tensors forward-mode AD may concern.
    if forward_ad._current_level >= 0:
        return False
    return not _needs_reference(cell, x.device, "cpu", (x,))


def sequence_with_row_bias(
    cell: Cell,
    x: Tensor,
    row_bias: Tensor,
    states: Sequence[Tensor],
    weights: Weights,
    batch_sizes: Tensor | None,
    reverse: bool,
    gates: str,
    angle_gates: str,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """As `sequence`, but each row of the batch has a bias of its own, ``[B, rows]``.

    The weights have none. Only where `takes_row_bias`.
    """
    ops = _OPS[cell.name]
    tensors: tuple[Any, ...] = (row_bias, x, *states, *weights[: ops.num_weights])
    options = (reverse, _FUNCTION_NUMBERS[gates], _FUNCTION_NUMBERS[angle_gates])
    if torch.is_grad_enabled() and _any_requires_grad(tensors):
        found: tuple[Tensor, ...] = ops.differentiable_in_rows(
            batch_first, *tensors, batch_sizes, *options
        )
        return found
    with torch._C._AutoDispatchBelowAutograd():
        forward = ops.with_row_bias[0]
        found = forward(*tensors[1:], batch_sizes, *options, False, row_bias)[: ops.num_results]
        if batch_first:
            found[0].transpose_(0, 1)
        return found


def _any_requires_grad(tensors: Sequence[Tensor | None]) -> bool:
    # Not any(): a generator takes longer than most searches here do.
    for tensor in tensors:  # noqa: SIM110
        if tensor is not None and tensor.requires_grad:
            return True
    return False


def _by_reference(
    ops: _Ops,
    tensors: Sequence[Any],
    batch_sizes: Tensor | None,
    options: tuple[bool, str, str],
    batch_first: bool,
    changes: StateChanges,
    return_cells: bool,
) -> tuple[Tensor, ...]:
    x, states, weights = ops.split(tensors)
    tokens, rows = as_tokens(x), [as_tokens(state) for state in states]
    found = ops.cell.sequence(tokens, rows, weights, batch_sizes, *options, changes, return_cells)
    return laid_out_as(x, states, found, batch_first)


def sequence_with_saved(
    cell: Cell,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Weights,
    batch_sizes: Tensor | None,
    reverse: bool,
    gates: str,
    angle_gates: str,
    changes: StateChanges = UNCHANGED,
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]] | None:
    """As `sequence`, without gradients, and with what the kernel saves for backward.

    That is the gates after activation, ``[N, rows]``, angles as shares of a turn, and of each state
    but the output its value after every step. None where the reference would run.
    """
    ops = _OPS[cell.name]
    tensors: tuple[Any, ...] = (x, *states, *weights[: ops.num_weights])
    device_type = x.device.type
    if device_type != "meta" and torch.is_autocast_enabled(device_type):
        tensors = _autocast(tensors, torch.get_autocast_dtype(device_type))
        if changes is not UNCHANGED:
            changes = StateChanges(*_autocast(changes, torch.get_autocast_dtype(device_type)))
    if _needs_reference(cell, x.device, device_type, tensors):
        return None
    functions = _FUNCTION_NUMBERS[gates], _FUNCTION_NUMBERS[angle_gates]
    with torch._C._AutoDispatchBelowAutograd():
        extras = ops.extras(changes, False)
        forward = ops.forward[bool(extras)]
        results = forward(*tensors, batch_sizes, reverse, *functions, True, *extras)
    saved = _activations(cell, results[ops.num_results :], states[-1].shape[-1])
    return results[: ops.num_results], saved


def gradients_from_saved(
    cell: Cell,
    grads: Sequence[Tensor | None],
    x: Tensor,
    states: Sequence[Tensor],
    weights: Weights,
    batch_sizes: Tensor | None,
    reverse: bool,
    gates: str,
    angle_gates: str,
    out: Tensor,
    saved: Sequence[Tensor],
    changes: StateChanges = UNCHANGED,
) -> tuple[Tensor | None, ...]:
    """Gradients of x, states and weights by the kernel, from those of output and last states.

    `out` and `saved` are what `sequence_with_saved` gave.
    """
    ops = _OPS[cell.name]
    tensors = (x, *states, *weights[: ops.num_weights])
    options = (reverse, _FUNCTION_NUMBERS[gates], _FUNCTION_NUMBERS[angle_gates])
    needed = [t is not None for t in tensors]
    saved = _as_saved(cell, saved, states[-1].shape[-1], _saved_dtype(x))
    changed = changes[: ops.num_changes] if changes is not UNCHANGED else ()
    return _kernel_gradients(ops, grads, tensors, batch_sizes, options, out, saved, needed, changed)


#: Kinds of devices whose kernels save gates and memory of half types in the half type; others save
#: them in float32. A gate above a half (but no candidate) is then saved as its distance from 1 with
#: the sign turned, because a half type is too coarse near 1.
_SAVES_HALVES = {"cuda"}


def _saved_dtype(x: Tensor) -> torch.dtype:
    half = x.dtype in (torch.float16, torch.bfloat16)
    return torch.float32 if half and x.device.type not in _SAVES_HALVES else x.dtype


def _shares(cell: Cell, gates: Tensor, hidden_size: int) -> Iterator[Tensor]:
    """The columns of those gates that are shares of 1, or of a turn."""
    meanings = cell.recurrence.gates
    for gate in cell.gates:
        if meanings.get(gate) != "candidate":
            yield gates[:, cell.rows_of(gate, hidden_size)]


def _activations(cell: Cell, saved: Sequence[Tensor], hidden_size: int) -> tuple[Tensor, ...]:
    """What a kernel saved, as activations and values of the states."""
    if saved[0].dtype not in (torch.float16, torch.bfloat16):
        return tuple(saved)
    gates, *rest = [t.float() for t in saved]
    for columns in _shares(cell, gates, hidden_size):
        columns.copy_(torch.where(torch.signbit(columns), 1 + columns, columns))
    return gates, *rest


def _as_saved(
    cell: Cell, saved: Sequence[Tensor], hidden_size: int, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """The other way round."""
    if dtype not in (torch.float16, torch.bfloat16):
        return tuple(saved)
    gates, *rest = saved
    gates = gates.clone()
    for columns in _shares(cell, gates, hidden_size):
        columns.copy_(torch.where(columns > 0.5, -(1 - columns), columns))
    return tuple(t.to(dtype) for t in (gates, *rest))


#: Cells, devices and types for which no kernel is to be trusted.
_given_up: set[tuple[str, torch.device, torch.dtype]] = set()


#: Those for which some calls are not: the op says which, by an error.
_partly_given_up: set[tuple[str, torch.device, torch.dtype]] = set()


def give_up(cell: Cell, device: torch.device, dtype: torch.dtype, partly: bool = False) -> None:
    """Run this cell, or the calls that the op refuses, on the reference there from now on."""
    (_partly_given_up if partly else _given_up).add((cell.name, device, dtype))


_gpu_kernels_wanted = True


def want_gpu_kernels(wanted: bool) -> None:
    """Whether GPUs run kernels, where there are any; otherwise the reference."""
    global _gpu_kernels_wanted
    _gpu_kernels_wanted = wanted


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _constant_when_compiled(function: _Function) -> _Function:
    """Do what ``torch.compiler.assume_constant_result`` does.

    That imports torch's compiler first: as long again as importing torch, in every process.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@_constant_when_compiled
def _is_given_up(cell_name: str, device: torch.device, dtype: torch.dtype) -> bool:
    if not _gpu_kernels_wanted and device.type == "cuda":
        return True
    return bool(_given_up) and (cell_name, device, dtype) in _given_up


def _may_be_refused(cell_name: str, device: torch.device, dtype: torch.dtype) -> bool:
    partly = (cell_name, device, dtype) in _partly_given_up
    return partly or _is_given_up(cell_name, device, dtype)


def _autocast(tensors: Sequence[Tensor | None], dtype: torch.dtype) -> tuple[Tensor | None, ...]:
    """All floats but float64 go to the type of autocast, as for nn.LSTM."""
    return tuple(
        t.to(dtype) if t is not None and t.is_floating_point() and t.dtype != torch.float64 else t
        for t in tensors
    )


def _needs_reference(
    cell: Cell, device: torch.device, device_type: str, tensors: Sequence[Any]
) -> bool:
    if _mode.reference or _is_given_up(cell.name, device, tensors[0].dtype):
        return True
    if device_type != "cpu" and not _has_kernels(device):
        _warn_of_missing_kernels(device)
        return True
    if torch.compiler.is_compiling():
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    return forward_ad._current_level >= 0 and any(
        forward_ad.unpack_dual(t).tangent is not None for t in tensors if t is not None
    )


@_constant_when_compiled
def _has_kernels(device: torch.device) -> bool:
    """Whether our kernels run on a device: some GPUs may be too old, or too new, for the build."""
    if device.type in ("cpu", "meta"):
        return True
    if device.type != "cuda" or not _libraries.has_cuda():
        return False
    if not torch.cuda.is_available():
        return True  # without a GPU these are fake tensors, traced for a machine that has one
    index = torch.cuda.current_device() if device.index is None else device.index
    return _gpu_has_kernels(index)


@functools.cache
def _gpu_has_kernels(index: int) -> bool:
    return _libraries.cuda_has_code(index)


_warned_devices: set[torch.device] = set()


def _warn_of_missing_kernels(device: torch.device) -> None:
    if device not in _warned_devices:
        _warned_devices.add(device)
        warnings.warn(
            f"rotcell has no kernels for device {str(device)!r}: its layers run on the slower "
            "reference code there.",
            stacklevel=3,
        )


class _Ops(NamedTuple):
    """A cell's ops, and what of their arguments depends on the cell."""

    cell: Cell
    #: The overloads of each op, without and with what `extras` gives: to look for one at every
    #: call takes its time.
    forward: tuple[Any, Any]
    backward: tuple[Any, Any]
    #: The forward op as a torch.autograd.Function: takes `batch_first`, what `extras` gives and the
    #: op's arguments before `save`, returns output and states, and the cells if asked for.
    differentiable: Callable[..., Any]
    #: The forward and backward op with biases of rows, and both as a Function that takes
    #: `batch_first`, the biases and the op's arguments before `save`.
    with_row_bias: tuple[Any, Any]
    differentiable_in_rows: Callable[..., Any]
    num_states: int
    num_weights: int
    num_results: int

    def split(self, tensors: Sequence[Any]) -> tuple[Tensor, Sequence[Tensor], Weights]:
        """Tell input, states and weights apart."""
        first_weight = 1 + self.num_states
        return tensors[0], tensors[1:first_weight], Weights(*tensors[first_weight:])

    @property
    def num_changes(self) -> int:
        """How many of the tensors of `StateChanges` the ops take: zoneout for each state."""
        return 2 + self.num_states

    def extras(self, changes: StateChanges, return_cells: bool) -> tuple[Any, ...]:
        """What the extended overload of the forward op takes after `save`; empty if nothing."""
        if not return_cells and all(change is None for change in changes):
            return ()
        has_cells = self.num_states > 1
        return *changes[: self.num_changes], *([return_cells] if has_cells else [])

    def results(self, found: tuple[Tensor, ...], return_cells: bool) -> tuple[Tensor, ...]:
        """Of the op's results: output and states, and the cells if they are wanted."""
        wanted = found[: self.num_results]
        return (*wanted, found[-1]) if return_cells else wanted


def _register(cell: Cell) -> _Ops:
    """Tell torch what it must know of a cell's ops."""
    name = f"rotcell::{cell.name}"
    forward_ops, backward_ops = (
        tuple(getattr(getattr(torch.ops.rotcell, op), overload) for overload in OVERLOADS)
        for op in (cell.name, f"{cell.name}_backward")
    )
    row_bias_ops = tuple(
        getattr(getattr(torch.ops.rotcell, op), ROW_BIAS)
        for op in (cell.name, f"{cell.name}_backward")
    )
    num_states = len(cell.states)
    num_weights = len(Weights._fields) - (0 if cell.can_project else 1)
    num_results = 1 + num_states  # output, last states; saved tensors come after them
    num_tensors = 1 + num_states + num_weights
    num_changes = 2 + num_states  # zoneout for each state
    has_cells = num_states > 1

    def keep(
        ctx: Any,
        inputs: Sequence[Any],
        extras: Sequence[Any],
        results: Sequence[Tensor],
        save: bool,
        batch_first: bool = False,
    ) -> None:
        """Keep what `differentiate` needs: the op's arguments and results."""
        ctx.set_materialize_grads(False)
        batch_sizes, *ctx.options = inputs[num_tensors : num_tensors + 4]
        saved = results[num_results:]
        ctx.save, ctx.batch_first = save, batch_first
        #: Whether the cells are a result, if there are extras at all.
        ctx.extras = any(extras[num_changes:]) if extras else None
        changes = extras[:num_changes]
        ctx.save_for_backward(*inputs[:num_tensors], batch_sizes, results[0], *saved, *changes)

    def by_step(
        out: Tensor, grads: Sequence[Tensor | None]
    ) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        """Output, and the gradient of it, ``[B, T, P]`` as ``[T, B, P]``."""
        grad_out, *others = grads
        grad_out = None if grad_out is None else grad_out.transpose(0, 1)
        return out.transpose(0, 1), (grad_out, *others)

    def differentiate(
        ctx: Any, grads: Sequence[Tensor | None], needed: Sequence[bool]
    ) -> tuple[Tensor | None, ...]:
        """Gradients of the op's tensors, given those of its output, last states, returned cells."""
        kept = ctx.saved_tensors
        tensors, (batch_sizes, out, *saved) = kept[:num_tensors], kept[num_tensors:]
        returns_cells = ctx.extras
        changes: list[Tensor | None] = []
        if returns_cells is not None:
            saved, changes = saved[:-num_changes], saved[-num_changes:]
        needed = needed[:num_tensors]
        if ctx.batch_first:
            out, grads = by_step(out, grads)

        def reference_gradients() -> tuple[Tensor | None, ...]:
            return _reference_gradients(
                ops, tensors, batch_sizes, ctx.options, StateChanges(*changes), bool(returns_cells),
                grads, needed,
            )  # fmt: skip

        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            # create_graph=True: the gradients will themselves be differentiated.
            return reference_gradients()
        if not ctx.save:
            with torch._C._AutoDispatchBelowAutograd():
                extras = ops.extras(StateChanges(*changes), False)
                forward = forward_ops[bool(extras)]
                saved = forward(*tensors, batch_sizes, *ctx.options, True, *extras)[num_results:]
        try:
            return _kernel_gradients(
                ops, grads, tensors, batch_sizes, ctx.options, out, saved, needed, changes
            )
        except RuntimeError:
            where = cell.name, out.device, out.dtype
            if torch.compiler.is_compiling() or not _may_be_refused(*where):
                raise
        with torch.enable_grad():
            found = reference_gradients()
        return tuple(None if g is None else g.detach() for g in found)

    class SequenceFunction(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any, batch_first: bool, extras: Sequence[Any], *arguments: Any
        ) -> tuple[Tensor, ...]:
            with torch._C._AutoDispatchBelowAutograd():
                found = forward_ops[bool(extras)](*arguments, True, *extras)
                if batch_first:
                    found[0].transpose_(0, 1)
            keep(ctx, arguments, extras, found, save=True, batch_first=batch_first)
            return ops.results(found, bool(ctx.extras))

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
            return (None, None, *differentiate(ctx, grads, ctx.needs_input_grad[2:]), *[None] * 4)

    class RowBiasFunction(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any, batch_first: bool, row_bias: Tensor, *arguments: Any
        ) -> tuple[Tensor, ...]:
            with torch._C._AutoDispatchBelowAutograd():
                found = row_bias_ops[0](*arguments, True, row_bias)
                if batch_first:
                    found[0].transpose_(0, 1)
            ctx.set_materialize_grads(False)
            batch_sizes, *ctx.options = arguments[num_tensors:]
            ctx.batch_first = batch_first
            out, saved = found[0], found[num_results:]
            ctx.save_for_backward(row_bias, *arguments[:num_tensors], batch_sizes, out, *saved)
            return ops.results(found, False)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
            row_bias, *kept = ctx.saved_tensors
            tensors, (batch_sizes, out, *saved) = kept[:num_tensors], kept[num_tensors:]
            needed = ctx.needs_input_grad[2 : 2 + num_tensors]
            if ctx.batch_first:
                out, grads = by_step(out, grads)
            if torch.is_grad_enabled():
                found = _row_bias_by_reference(
                    ops, row_bias, tensors, batch_sizes, ctx.options, grads, needed
                )
            else:
                found = _kernel_gradients(
                    ops, grads, tensors, batch_sizes, ctx.options, out, saved, needed,
                    with_row_bias=True,
                )  # fmt: skip
            *of_tensors, of_row_bias = found
            return None, of_row_bias, *of_tensors, *[None] * 4

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        save, *extras = inputs[num_tensors + 4 :]
        keep(ctx, inputs, extras, output, save=save)
        saved = output[num_results:]
        ctx.mark_non_differentiable(*(saved[:-1] if ctx.extras else saved))

    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        cells = grads[-1:] if ctx.extras else ()
        found = differentiate(ctx, (*grads[:num_results], *cells), ctx.needs_input_grad)
        return (*found, *[None] * (5 if ctx.extras is None else 5 + num_changes + has_cells))

    def refuse(ctx: Any, *grads: Tensor | None) -> Any:
        raise RuntimeError(
            f"{name}_backward is not differentiable: differentiate {name} twice instead"
        )

    def refuse_directly(ctx: Any, *grads: Tensor | None) -> Any:
        raise RuntimeError(
            f"{name}.{ROW_BIAS} is not differentiable by itself: give a layer a context instead"
        )

    for forward_op, backward_op in zip(forward_ops, backward_ops, strict=True):
        torch.library.register_autograd(forward_op, backward, setup_context=setup_context)
        torch.library.register_autograd(backward_op, refuse)
        torch.library.register_fake(forward_op, _fake_forward(cell, forward_op))
        torch.library.register_fake(backward_op, _fake_backward(cell))
    for op in row_bias_ops:
        torch.library.register_autograd(op, refuse_directly)
    torch.library.register_fake(row_bias_ops[0], _fake_forward(cell, row_bias_ops[0]))
    torch.library.register_fake(row_bias_ops[1], _fake_backward(cell, with_row_bias=True))
    _register_flops(cell, forward_ops[0], backward_ops[0])
    ops = _Ops(
        cell, forward_ops, backward_ops, SequenceFunction.apply, row_bias_ops,
        RowBiasFunction.apply, num_states, num_weights, num_results,
    )  # fmt: skip
    return ops


def _kernel_gradients(
    ops: _Ops,
    grads: Sequence[Tensor | None],
    tensors: Sequence[Tensor | None],
    batch_sizes: Tensor | None,
    options: Sequence[Any],
    out: Tensor,
    saved: Sequence[Tensor],
    needed: Sequence[bool],
    changes: Sequence[Tensor | None] = (),
    with_row_bias: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of the tensors that need them, given those of output, last states and cells.

    That of the biases of rows comes last.
    """
    extras: tuple[Tensor | None, ...] = ()
    if changes:
        cells = grads[ops.num_results :] or (None,)  # that of the cells, if they were returned
        extras = (*changes, *(cells if ops.num_states > 1 else ()))
    first_bias = 1 + ops.num_states + Weights._fields.index("b_ih")
    without_biases = (*tensors[:first_bias], *tensors[first_bias + 2 :])
    with torch._C._AutoDispatchBelowAutograd():
        backward = ops.with_row_bias[1] if with_row_bias else ops.backward[bool(extras)]
        found = backward(
            *grads[: ops.num_results], *without_biases, batch_sizes, *options, out, *saved,
            needed[0], any(needed[1 + ops.num_states :]), *extras,
        )  # fmt: skip
    *before, bias = found[: first_bias + 1]
    # The biases have the same gradient, but a tensor each: it may become their .grad.
    every = (*before, bias, bias.clone(), *found[first_bias + 1 :])
    if with_row_bias:
        needed = (*needed, True)
    return tuple(g if n else None for n, g in zip(needed, every, strict=True))


def _row_bias_by_reference(
    ops: _Ops,
    row_bias: Tensor,
    tensors: Sequence[Tensor],
    batch_sizes: Tensor | None,
    options: Sequence[Any],
    grads: Sequence[Tensor | None],
    needed: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Gradients that can be differentiated again; that of the biases of rows comes last.

    To the reference these are further inputs, the same at every step, with weights of 1.
    """
    first_weight = 1 + ops.num_states
    x, w_ih = tensors[0], tensors[first_weight]
    width = x.shape[-1]
    wide_x = beside_every_token(x, row_bias, batch_sizes)
    wide_w = torch.cat([w_ih, torch.eye(*[w_ih.shape[0]] * 2, dtype=w_ih.dtype)], dim=1)
    wide = (wide_x, *tensors[1:first_weight], wide_w, *tensors[first_weight + 1 :])
    wanted = (True, *needed[1:])
    found = list(
        _reference_gradients(ops, wide, batch_sizes, options, UNCHANGED, False, grads, wanted)
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


def beside_every_token(x: Tensor, of_rows: Tensor, batch_sizes: Tensor | None) -> Tensor:
    """``[N, I]`` or ``[T, B, I]`` and ``[B, C]``, the same at every step, as ``[..., I + C]``."""
    if x.dim() == 3:
        every = of_rows.expand(x.shape[0], *of_rows.shape)
    elif batch_sizes is None:
        every = of_rows.expand(x.shape[0] // of_rows.shape[0], *of_rows.shape).flatten(0, 1)
    else:
        every = of_rows.index_select(0, _rows_of_tokens(x, batch_sizes))
    return torch.cat([x, every.to(x.dtype)], dim=-1)


def _sum_over_tokens(tokens: Tensor, batch: int, batch_sizes: Tensor | None) -> Tensor:
    """``[N, C]`` or ``[T, B, C]`` as ``[B, C]``: what the tokens of each row add up to."""
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


def _reference_gradients(
    ops: _Ops,
    tensors: Sequence[Tensor | None],
    batch_sizes: Tensor | None,
    options: Sequence[Any],
    changes: StateChanges,
    return_cells: bool,
    grads: Sequence[Tensor | None],
    needed: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Gradients of the tensors that need them, which can be differentiated again."""
    reverse, gates, angle_gates = options
    # A view for each input: the same tensor may come in twice, with a gradient for each place.
    views = [None if t is None else t.view_as(t) for t in tensors]
    names = (reverse, _FUNCTION_NAMES[gates], _FUNCTION_NAMES[angle_gates])
    outputs = _by_reference(ops, views, batch_sizes, names, False, changes, return_cells)
    reached = [(o, g) for o, g in zip(outputs, grads, strict=True) if g is not None]
    targets = [v for v, n in zip(views, needed, strict=True) if n and v is not None]
    if not reached:
        return tuple(None for _ in tensors)
    found = iter(
        torch.autograd.grad(
            [o for o, _ in reached],
            targets,
            [g for _, g in reached],
            create_graph=True,
            allow_unused=True,
        )
    )
    return tuple(next(found) if n else None for n in needed)


def _positions_of_needs(cell: Cell) -> slice:
    """Where a backward op's arguments tell which gradients are needed."""
    schema = getattr(torch.ops.rotcell, f"{cell.name}_backward").default._schema
    names = [a.name for a in schema.arguments]
    return slice(names.index("needs_grad_x"), names.index("needs_grad_weights") + 1)


def _fake_forward(cell: Cell, op: Any) -> Callable[..., tuple[Tensor, ...]]:
    num_states = len(cell.states)
    names = [a.name for a in op._schema.arguments]

    def fake(*arguments: Any) -> tuple[Tensor, ...]:
        x, *rest = arguments
        states, w_hh, save = rest[:num_states], rest[num_states + 1], arguments[names.index("save")]
        keep_cells = save or (names[-1] == "return_cells" and arguments[-1])
        tokens = math.prod(x.shape[:-1])
        # Gates and, of each state but the output, every step's value.
        widths = [w_hh.shape[0], *(s.shape[-1] for s in states[1:])]
        return (
            x.new_empty(*x.shape[:-1], states[0].shape[-1]),
            *(s.new_empty(s.shape) for s in states),
            *(
                x.new_empty((tokens, w) if keep else (0,), dtype=_saved_dtype(x))
                for w, keep in zip(widths, (save, keep_cells), strict=False)
            ),
        )

    return fake


def _fake_backward(cell: Cell, with_row_bias: bool = False) -> Callable[..., tuple[Tensor, ...]]:
    num_states = len(cell.states)
    needs = _positions_of_needs(cell)

    def fake(*arguments: Any) -> tuple[Tensor, ...]:
        x, *rest = arguments[1 + num_states :]
        states, (w_ih, w_hh, w_hr) = rest[:num_states], rest[num_states : num_states + 3]
        needs_grad_x, needs_grad_weights = arguments[needs]
        shapes = [w_ih.shape, w_hh.shape, w_hh.shape[:1]]
        if cell.can_project:
            shapes.append((0,) if w_hr is None else w_hr.shape)
        return (
            x.new_empty(x.shape if needs_grad_x else (0,)),
            *(s.new_empty(s.shape) for s in states),
            *(x.new_empty(shape if needs_grad_weights else (0,)) for shape in shapes),
            *([x.new_empty(states[0].shape[-2], w_hh.shape[0])] if with_row_bias else []),
        )

    return fake


def _register_flops(cell: Cell, forward_op: Any, backward_op: Any) -> None:
    """Let torch.utils.flop_counter count the matrix products, as it does those of other ops."""
    num_states = len(cell.states)
    needs = _positions_of_needs(cell)

    def forward(x: Any, *rest: Any, out_shape: Any = None, **_: Any) -> int:
        w_ih, w_hh = rest[num_states : num_states + 2]
        w_hr = rest[num_states + 4] if cell.can_project else None
        return _flops(x[:-1], w_ih, w_hh, w_hr)

    def backward(*arguments: Any, out_shape: Any = None, **_: Any) -> int:
        x, *rest = arguments[1 + num_states :]
        w_ih, w_hh, w_hr = rest[num_states : num_states + 3]
        needs_grad_x, needs_grad_weights = arguments[needs]
        # The states' gradients take the products with w_hh and w_hr again; those of the weights
        # take every product again, and that of the input the one with w_ih.
        through_time = _flops(x[:-1], None, w_hh, w_hr if cell.can_project else None)
        with_x = _flops(x[:-1], w_ih, None, None)
        flops = through_time
        if needs_grad_x:
            flops += with_x
        if needs_grad_weights:
            flops += through_time + with_x
        return flops

    for op, formula in ((forward_op, forward), (backward_op, backward)):
        flop_counter.register_flop_formula(op.overloadpacket)(formula)


def _flops(tokens: Sequence[int], *shapes: Any) -> int:
    """Of products of every token with weights of these shapes; None is no weight."""
    products: int = sum(shape[0] * shape[1] for shape in shapes if shape is not None)
    return 2 * math.prod(tokens) * products


_OPS = {name: _register(cell) for name, cell in CELLS.items()}
