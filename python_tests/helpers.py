"""What the test files share: all cells, plain twins to compare with, comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
)

import rotcell
from rotcell import ops
from rotcell.reference import CELLS, LINEAR_ROT_LSTM, Cell, Weights

#: Largest error allowed, relative to the largest value of a tensor.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}

#: Options that add a number to the input biases of a gate, where there is such a gate.
SHIFTS = {"rotation_bias": "rot", "forget_bias": "f"}


@dataclass(frozen=True, eq=False)
class Kind:
    """A cell of the list, with everything that is made of it. What differs is its description."""

    description: Cell
    layer: Any
    cell: Any
    plain_layer: type[nn.LSTM] | type[nn.GRU]
    plain_cell: type[nn.LSTMCell] | type[nn.GRUCell]

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        return self.description.name

    @property
    def num_states(self) -> int:
        return len(self.description.states)

    @property
    def num_weights(self) -> int:
        return len(Weights._fields) - (not self.description.can_project)

    @property
    def op(self) -> Any:
        return getattr(torch.ops.rotcell, self.name)

    @property
    def backward_op(self) -> Any:
        return getattr(torch.ops.rotcell, f"{self.name}_backward")

    def _split(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        first, end = 1 + self.num_states, 1 + self.num_states + self.num_weights
        weights = Weights(*arguments[first:end])
        return arguments[0], arguments[1:first], weights, *arguments[end:]

    def kernel(self, *arguments: Any) -> tuple[Tensor, ...]:
        """The op over x, states, weights[, batch_sizes, reverse, both activations]."""
        return ops.sequence(self.description, *self._split(arguments))

    def reference(self, *arguments: Any) -> tuple[Tensor, ...]:
        """The reference over the same."""
        return self.description.sequence(*self._split(arguments))

    def step(
        self, x: Tensor, state: Sequence[Tensor], *weights: Tensor | None, **options: Any
    ) -> tuple[Tensor, ...]:
        return self.description.step(x, state, Weights(*weights), **options)

    def weights(self, parameters: Mapping[str, Tensor], hidden_size: int) -> Weights:
        """The parameters of a single-step cell as its equations take them."""
        w_ih = parameters["weight_ih"]
        w_hh = parameters.get("weight_hh", w_ih.new_empty(0, hidden_size))
        return Weights(w_ih, w_hh, parameters.get("bias_ih"), parameters.get("bias_hh"))

    def rows(self, hidden_size: int) -> int:
        return self.description.rows(hidden_size)

    def angle_rows(self, hidden_size: int) -> slice:
        """Rows of the angles, which come last; an empty slice where there are none."""
        rows = self.rows(hidden_size)
        return slice(rows - self.description.rotation.angles(hidden_size), rows)

    def state_sizes(self, hidden_size: int, output_size: int | None = None) -> list[int]:
        return self.description.state_sizes(hidden_size, output_size or hidden_size)

    def as_hx(self, states: Sequence[Tensor]) -> Any:
        """Put states into the form that this kind of layer takes them in."""
        return states[0] if self.num_states == 1 else tuple(states)

    def as_states(self, hx: Any) -> tuple[Tensor, ...]:
        return (hx,) if self.num_states == 1 else tuple(hx)


def _kind(description: Cell) -> Kind:
    public = [value for value in vars(rotcell).values() if isinstance(value, type)]
    layer, cell = sorted(
        (c for c in public if getattr(c, "_cell", None) is description), key=lambda c: c.__name__
    )
    assert cell.__name__ == layer.__name__ + "Cell"
    plain = (nn.GRU, nn.GRUCell) if len(description.states) == 1 else (nn.LSTM, nn.LSTMCell)
    return Kind(description, layer, cell, *plain)


#: Rotations of larger groups are options of these: test_rotation_size.py has them.
KINDS = tuple(_kind(cell) for cell in CELLS.values() if cell.rotation.size == 2)
#: The cells that rotate larger groups, below the layers.
GROUPED = tuple(
    Kind(cell, None, None, nn.LSTM if len(cell.states) > 1 else nn.GRU, nn.LSTMCell)
    for cell in CELLS.values()
    if cell.rotation.size > 2
)
#: Gates from the input alone: without recurrent weights or separate ops.
LINEAR = _kind(LINEAR_ROT_LSTM)
#: For what is about one of them alone.
LSTM, GRU, PLAIN_LSTM, CLASSIC_GRU, TORCH_GRU = KINDS[:5]
ROTATING = tuple(kind for kind in KINDS if kind.description.rotates)

#: Constructor options that change what is computed. "proj_size" is for cells that can project.
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "no_bias": {"bias": False},
    "two_layers": {"num_layers": 2},
    "bidirectional": {"bidirectional": True},
    "deep_bidirectional": {"num_layers": 3, "bidirectional": True},
    "deep_bidirectional_no_bias": {"num_layers": 2, "bidirectional": True, "bias": False},
    "projection": {"proj_size": 2},
    "deep_bidirectional_projection": {"num_layers": 2, "bidirectional": True, "proj_size": 3},
    "projection_no_bias": {"proj_size": 1, "bias": False},
}


def kinds_and_options() -> list[tuple[Kind, str]]:
    return [
        (kind, name)
        for kind in KINDS
        for name, options in OPTIONS.items()
        if kind.description.can_project or "proj_size" not in options
    ]


def states_for(
    kind: Kind, layer: Any, batch: int | None, dtype: torch.dtype | None = None
) -> tuple[Tensor, ...]:
    """Random initial states of a layer; without a batch dimension if batch is None."""
    directions = layer.num_layers * (2 if layer.bidirectional else 1)
    sizes = kind.state_sizes(layer.hidden_size, layer.proj_size)
    lead = (directions,) if batch is None else (directions, batch)
    dtype = dtype or layer.weight_ih_l0.dtype
    return tuple(torch.randn(*lead, size, dtype=dtype) for size in sizes)


def run_step_by_step(
    kind: Kind, layer: Any, parameters: dict[str, Tensor], x: Tensor, states: Sequence[Tensor]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Compute what a layer must: loops over layers, directions and the steps of the paper.

    x is [T, B, I], states are [layers * directions, B, size]; dropout is left out.
    """
    directions = 2 if layer.bidirectional else 1
    functions = {
        "gate_activation": layer.gate_activation,
        "angle_activation": layer.angle_activation,
    }
    last: list[tuple[Tensor, ...]] = []
    for k in range(layer.num_layers):
        outputs = []
        for direction in range(directions):
            suffix = f"_l{k}" + ("_reverse" if direction else "")
            weights = [
                parameters.get(name + suffix)
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
            ]
            state = tuple(s[k * directions + direction] for s in states)
            steps = []
            for x_t in x.flip(0) if direction else x:
                state = kind.step(x_t, state, *weights, **functions)
                steps.append(state[0])
            out = torch.stack(steps)
            outputs.append(out.flip(0) if direction else out)
            last.append(state)
        x = torch.cat(outputs, dim=-1)
    return x, tuple(torch.stack(parts) for parts in zip(*last, strict=True))


def run_sequences_alone(
    kind: Kind,
    layer: Any,
    parameters: dict[str, Tensor],
    sequences: Sequence[Tensor],
    states: Sequence[Tensor],
) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """`run_step_by_step` for sequences of different lengths [T_b, I], one at a time."""
    results = [
        run_step_by_step(kind, layer, parameters, x.unsqueeze(1), [s[:, b : b + 1] for s in states])
        for b, x in enumerate(sequences)
    ]
    last = zip(*(state for _, state in results), strict=True)
    return [out.squeeze(1) for out, _ in results], tuple(torch.cat(s, dim=1) for s in last)


def leaves(tensors: Iterable[Tensor], dtype: torch.dtype | None = None) -> list[Tensor]:
    return [t.detach().to(dtype or t.dtype).clone().requires_grad_() for t in tensors]


def double_parameters(layer: nn.Module) -> dict[str, Tensor]:
    names = [name for name, _ in layer.named_parameters()]
    return dict(zip(names, leaves(layer.parameters(), torch.float64), strict=True))


def gradients(
    results: Sequence[Tensor], inputs: Sequence[Tensor], weights: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Gradients of a fixed random combination of the results."""
    return torch.autograd.grad(
        results,
        list(inputs),
        [w.to(r.dtype) for w, r in zip(weights, results, strict=True)],
        materialize_grads=True,
    )


def assert_near(
    actual: Tensor,
    expected: Tensor,
    tolerance: float | None = None,
    what: str = "",
    least_scale: float = 0.0,
) -> None:
    """Compare relative to the largest expected value, which is how accuracy is promised.

    A sum whose terms happen to cancel keeps the error of its terms: least_scale is their order.
    """
    assert actual.shape == expected.shape, (what, actual.shape, expected.shape)
    if expected.numel() == 0:
        return
    if tolerance is None:
        tolerance = TOLERANCE[actual.dtype]
    error = (actual.double() - expected.double()).abs().max().item()
    largest = max(expected.double().abs().max().item(), least_scale)
    assert error <= tolerance * largest, f"{what}: error {error:.3g}, largest value {largest:.3g}"


def assert_all_near(
    actual: Sequence[Tensor],
    expected: Sequence[Tensor],
    names: Sequence[str] | None = None,
    tolerance: float | None = None,
    least_scale: float = 0.0,
) -> None:
    names = names or [str(k) for k in range(len(expected))]
    for a, e, name in zip(actual, expected, names, strict=True):
        assert_near(a, e, tolerance, name, least_scale)


def run_equations(
    step: Callable[[Tensor, list[Tensor]], list[Tensor]],
    x: Tensor,
    states: list[Tensor],
    lengths: Sequence[int],
) -> list[Tensor]:
    """Output [T, B, H], zero after the end of a row, and last states, of x [T, B, I].

    `step` has a cell's equations for one timestep: from x [B, I] and states to new states.
    """
    outputs = []
    for t, x_t in enumerate(x):
        alive = torch.tensor([[t < length] for length in lengths])
        new = step(x_t, states)
        states = [torch.where(alive, n, s) for n, s in zip(new, states, strict=True)]
        outputs.append(torch.where(alive, states[0], 0))
    return [torch.stack(outputs), *states]


def check_equations(
    kind: Kind,
    layer: Any,
    step: Callable[[Tensor, list[Tensor], list[Tensor]], list[Tensor]],
    sizes: tuple[int, int],
    packed: bool,
    tolerance: float,
) -> None:
    """Compare results and gradients of a layer with the equations of a step in float64.

    `step` takes x, states and the layer's parameters; `sizes` are steps and batch.
    """
    steps, batch = sizes
    dtype = layer.weight_ih_l0.dtype
    lengths = torch.linspace(steps, 1, batch).long() if packed else torch.full((batch,), steps)
    given = [torch.randn(steps, batch, layer.input_size).to(dtype)]
    given += [torch.randn(1, batch, layer.hidden_size).to(dtype) for _ in range(kind.num_states)]
    x, *states = leaves(given)
    taken = pack_padded_sequence(x, lengths, enforce_sorted=False) if packed else x
    out, last = layer(taken, kind.as_hx(states))
    if packed:
        out, _ = pad_packed_sequence(out)
    found = [out, *kind.as_states(last)]
    parameters = dict(layer.named_parameters())
    exact = leaves([*given, *parameters.values()], torch.float64)
    x2, states2, weights = exact[0], exact[1 : len(given)], exact[len(given) :]
    expected = run_equations(
        lambda x_t, now: step(x_t, now, weights), x2, [s[0] for s in states2], lengths.tolist()
    )
    expected[1:] = [s.unsqueeze(0) for s in expected[1:]]
    of_results = [torch.randn_like(e) for e in expected]
    letters = kind.description.states
    assert_all_near(
        [*found, *gradients(found, [x, *states, *parameters.values()], of_results)],
        [*expected, *gradients(expected, exact, of_results)],
        ["out", *letters, "x", *(f"{s}_0" for s in letters), *parameters],
        tolerance,
        least_scale=0.05,
    )


def check_derivatives(layer: Any) -> None:
    """First and second derivatives of a layer's output by x and parameters, by differences."""
    names = [name for name, _ in layer.named_parameters()]
    x = torch.randn(3, 2, layer.input_size, dtype=torch.float64, requires_grad=True)

    def run(x: Tensor, *weights: Tensor) -> Tensor:
        named = dict(zip(names, weights, strict=True))
        result: Tensor = torch.func.functional_call(layer, named, (x,))[0]
        return result

    inputs = (x, *leaves(layer.parameters()))
    assert gradcheck(run, inputs, fast_mode=True)
    assert gradgradcheck(run, inputs, fast_mode=True)


def random_sequences(
    lengths: Sequence[int], features: int, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    return [torch.randn(length, features, dtype=dtype) for length in lengths]


def pack(sequences: Sequence[Tensor]) -> PackedSequence:
    return pack_sequence(list(sequences), enforce_sorted=False)
