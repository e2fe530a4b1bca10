"""Short sequences, as a kernel and as the reference in float64 compute them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from rotcell import _libraries, ops
from rotcell.reference import NO_HOOKS, Cell, Gates, StateHooks, Weights

STEPS, INPUTS = 4, 5
#: Largest error relative to the largest value, in units of the dtype's rounding. A mistake in a
#: kernel is as large as the values themselves.
ROUNDINGS = {torch.float64: 8192, torch.float32: 256, torch.float16: 8, torch.bfloat16: 8}
TF32_ROUNDING = 2.0**-10
#: Values below this are compared as if they were that large: sums may cancel.
LEAST_SCALE = 0.25


def tolerance(dtype: torch.dtype) -> float:
    """The largest error allowed, relative to the largest value of a tensor."""
    rounding = torch.finfo(dtype).eps
    if dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32:
        return ROUNDINGS[torch.float16] * TF32_ROUNDING
    return ROUNDINGS[dtype] * rounding


def or_infinite(value: float) -> float:
    """The error, or infinity for NaN."""
    return math.inf if math.isnan(value) else value


class _RecordingGates(Gates):
    """Gates that keep their values."""

    @classmethod
    def of(cls, gates: Gates) -> _RecordingGates:
        return cls(**{field.name: getattr(gates, field.name) for field in fields(gates)})

    @functools.cached_property
    def recorded(self) -> dict[str, Tensor]:
        return {}

    def values(self, state: Tensor, *gates: str) -> list[Tensor]:
        found = super().values(state, *gates)
        self.recorded.update(zip(gates, found, strict=True))
        return found


class _RecordingCell(Cell):
    """A cell whose reference keeps the gates, which the kernels save for backward."""

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell.name, replace(cell.recurrence, step=self._record), cell.rotation)
        self._step = cell.recurrence.step
        self._steps: list[Tensor] = []

    def _record(
        self, gates: Gates, states: Sequence[Tensor], w_hr: Tensor | None
    ) -> tuple[Tensor, ...]:
        recording = _RecordingGates.of(gates)
        new = self._step(recording, states, w_hr)
        self._steps.append(torch.cat([recording.recorded[g] for g in self.gates], dim=-1))
        return new

    def saved(self, reverse: bool) -> Tensor:
        """The gates of all tokens."""
        return torch.cat(self._steps[::-1] if reverse else self._steps).detach()


@dataclass(frozen=True)
class SequenceKind:
    """What a sequence is like that is compared."""

    name: str
    lengths: Sequence[int]
    options: tuple[bool, str, str]  # reverse, gate_activation, angle_activation
    option: str = ""  # of `_libraries.CUDA_OPTIONS`


@dataclass
class ShortSequence:
    """A sequence with random values, as the kernel and as the reference see it."""

    cell: Cell
    tensors: list[Tensor]  # x, states and weights
    batch_sizes: Tensor | None
    options: tuple[bool, str, str]  # reverse, gate_activation, angle_activation
    changes: StateHooks

    @classmethod
    def random(
        cls,
        cell: Cell,
        hidden_size: int,
        kind: SequenceKind,
        device: torch.device,
        dtype: torch.dtype,
    ) -> ShortSequence:
        """Draw random values for a kind of sequence."""
        lengths = kind.lengths
        generator = torch.Generator(device).manual_seed(1)

        def uniform(bound: float, *shape: int) -> Tensor:
            values = torch.rand(shape, generator=generator, device=device, dtype=torch.float64)
            return (2 * bound * values - bound).to(dtype)

        _, projection, state_changes = _libraries.CUDA_OPTIONS
        rows, scale = cell.rows(hidden_size), hidden_size**-0.5
        batch, tokens = len(lengths), sum(lengths)
        outputs = (hidden_size + 1) // 2 if kind.option == projection else hidden_size
        states = [uniform(1, batch, s) for s in cell.state_sizes(hidden_size, outputs)]
        weights = [uniform(scale, rows, INPUTS), uniform(scale, rows, outputs)]
        biases = [uniform(scale, rows), uniform(scale, rows)]
        projections = [uniform(scale, outputs, hidden_size)] if kind.option == projection else []
        x = uniform(1, tokens, INPUTS)
        changes = NO_HOOKS
        if kind.option == state_changes:
            has_cell_state = len(cell.states) > 1
            changes = StateHooks(
                resets=uniform(1, tokens) > 0.4,
                recurrent_dropout=1 + uniform(1, batch, outputs),
                zoneout_h=uniform(1, tokens, hidden_size).abs(),
                zoneout_c=uniform(1, tokens, hidden_size).abs() if has_cell_state else None,
            )
        sizes = [sum(length > t for length in lengths) for t in range(max(lengths))]
        same = min(lengths) == max(lengths)
        batch_sizes = None if same else torch.tensor(sizes, device="cpu")
        tensors = [x, *states, *weights, *biases, *projections]
        return cls(cell, tensors, batch_sizes, kind.options, changes)

    def split(self, tensors: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor], Weights]:
        first = 1 + len(self.cell.states)
        return tensors[0], tensors[1:first], Weights(*tensors[first:])

    def grads(self, results: Sequence[Tensor]) -> list[Tensor]:
        """Gradients of the results, in the kernel's dtype: arbitrary numbers of order 1."""
        dtype = self.tensors[0].dtype
        numbers = [torch.arange(r.numel(), device=r.device, dtype=r.dtype) for r in results]
        return [torch.cos(n).view(r.shape).to(dtype) for n, r in zip(numbers, results, strict=True)]

    @functools.cached_property
    def reference(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Results, what is saved for backward, and gradients, in float64."""
        recorder = _RecordingCell(self.cell)
        leaves = [t.double().requires_grad_() for t in self.tensors]
        changes = StateHooks(
            *(t if t is None or t.dtype == torch.bool else t.double() for t in self.changes)
        )
        has_cell_state = len(self.cell.states) > 1
        found = recorder.sequence(
            *self.split(leaves), self.batch_sizes, *self.options, changes, has_cell_state
        )
        saved = [recorder.saved(self.options[0])]
        if has_cell_state:  # as the steps left it
            saved.append(found[-1].detach())
            found = found[:-1]
        grads = torch.autograd.grad(found, leaves, [g.double() for g in self.grads(found)])
        return [r.detach() for r in found], saved, list(grads)

    def by_kernel(self, pass_name: str) -> list[Tensor]:
        """What the kernel makes of the reference's numbers: results and saved, or gradients."""
        split = self.split(self.tensors)
        if pass_name == "forward":
            made = ops.kernel_with_saved(
                self.cell, *split, self.batch_sizes, *self.options, self.changes
            )
            return [*made[0], *made[1]]
        results, saved, _ = self.reference
        dtype = self.tensors[0].dtype
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        grads = ops.gradients_from_saved(
            self.cell,
            self.grads(results),
            *split,
            self.batch_sizes,
            *self.options,
            results[0].to(dtype),
            [s.to(wide) for s in saved],
            self.changes,
        )
        return [g for g in grads if g is not None]

    def compare(self, pass_name: str) -> dict[str, Tensor]:
        """The largest error of each tensor, relative to its largest value; still on the device."""
        states = self.cell.states
        results, saved, grads = self.reference
        if pass_name == "forward":
            kept = ["gates", *(f"{state} kept" for state in states[1:])]
            names, expected = ["output", *(f"{s}_n" for s in states), *kept], [*results, *saved]
        else:
            weights = Weights._fields[: len(self.tensors) - 1 - len(states)]
            tensors = ["x", *(f"{state}_0" for state in states), *weights]
            names, expected = [f"gradient of {name}" for name in tensors], grads
        return {
            name: (a.double() - b).abs().max() / b.abs().max().clamp(min=LEAST_SCALE)
            for name, a, b in zip(names, self.by_kernel(pass_name), expected, strict=True)
            if b.numel()
        }


def kinds_of_sequences(batch: int, option: str = "") -> list[SequenceKind]:
    """What is compared of every path, or of an option of the stepwise one."""
    different = sorted((1 + row % STEPS for row in range(batch)), reverse=True)
    if option:
        functions = (True, "sigmoid", "hard_sigmoid")
        return [SequenceKind(f" ({option})", different, functions, option=option)]
    return [
        SequenceKind("", [STEPS] * batch, (False, "sigmoid", "sigmoid")),
        SequenceKind(" (packed, reverse)", different, (True, "hard_sigmoid", "hard_sigmoid")),
    ]
