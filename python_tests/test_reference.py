"""The reference against the paper: values by hand, an explicit rotation matrix, gradchecks."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from helpers import (
    CLASSIC_GRU,
    GRU,
    LSTM,
    PLAIN_LSTM,
    TORCH_GRU,
    Kind,
    assert_all_near,
    assert_near,
)
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from rotcell.reference import CELLS, Weights, hard_sigmoid, rotate

QUARTER_TURN = -math.log(3)  # sigmoid of it is 1/4, so the angle is pi/2


def rotation_matrix(angles: list[float], size: int) -> list[list[float]]:
    """The paper's block-diagonal U, with a 1 for the unit that has no partner."""
    matrix = [[float(row == column) for column in range(size)] for row in range(size)]
    for k, u in enumerate(angles):
        matrix[2 * k][2 * k] = math.cos(u)
        matrix[2 * k][2 * k + 1] = -math.sin(u)
        matrix[2 * k + 1][2 * k] = math.sin(u)
        matrix[2 * k + 1][2 * k + 1] = math.cos(u)
    return matrix


def matmul(matrix: list[list[float]], vector: list[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def keras_hard_sigmoid(x: float) -> float:
    return min(1.0, max(0.0, 0.2 * x + 0.5))


ACTIVATIONS = {"sigmoid": sigmoid, "hard_sigmoid": keras_hard_sigmoid}


class Paper:
    """The paper's equations in plain Python, gates by name, weights acting on [h, x]."""

    def __init__(
        self,
        gates: tuple[str, ...],
        input_size: int,
        hidden_size: int,
        gate_activation: str = "sigmoid",
        angle_activation: str = "sigmoid",
    ) -> None:
        self.hidden_size = hidden_size
        self.gate_activation, self.angle_activation = (
            ACTIVATIONS[gate_activation],
            ACTIVATIONS[angle_activation],
        )
        self.rows = {g: hidden_size // 2 if g == "rot" else hidden_size for g in gates}
        self.w_h = {g: torch.randn(n, hidden_size).double() for g, n in self.rows.items()}
        self.w_x = {g: torch.randn(n, input_size).double() for g, n in self.rows.items()}
        self.b_h = {g: torch.randn(n).double() for g, n in self.rows.items()}
        self.b_x = {g: torch.randn(n).double() for g, n in self.rows.items()}

    def weights(self) -> Weights:
        """Weights in the layout of the package."""
        parts = (self.w_x, self.w_h, self.b_x, self.b_h)
        return Weights(*(torch.cat(list(part.values())) for part in parts))

    def affine(self, gate: str, h: list[float], x: list[float]) -> list[float]:
        weights = torch.cat([self.w_h[gate], self.w_x[gate]], dim=1).tolist()
        biases = (self.b_h[gate] + self.b_x[gate]).tolist()
        return [a + b for a, b in zip(matmul(weights, h + x), biases, strict=True)]

    def rotated(self, d: list[float], h: list[float], x: list[float]) -> list[float]:
        if "rot" not in self.rows:
            return d
        angles = [2 * math.pi * self.angle_activation(a) for a in self.affine("rot", h, x)]
        return matmul(rotation_matrix(angles, self.hidden_size), d)

    def lstm(self, x: list[float], h: list[float], c: list[float]) -> list[list[float]]:
        f, i, o = ([self.gate_activation(a) for a in self.affine(gate, h, x)] for gate in "fio")
        g = [math.tanh(a) for a in self.affine("g", h, x)]
        d = [f[k] * c[k] + i[k] * g[k] for k in range(self.hidden_size)]
        c = self.rotated(d, h, x)
        return [[o[k] * math.tanh(c[k]) for k in range(self.hidden_size)], c]

    def gru(self, x: list[float], h: list[float]) -> list[list[float]]:
        z = [self.gate_activation(a) for a in self.affine("z", h, x)]
        d = [hk * self.gate_activation(a) for hk, a in zip(h, self.affine("r", h, x), strict=True)]
        candidate = [math.tanh(a) for a in self.affine("n", self.rotated(d, h, x), x)]
        return [[(1 - z[k]) * h[k] + z[k] * candidate[k] for k in range(self.hidden_size)]]

    def torch_gru(self, x: list[float], h: list[float]) -> list[list[float]]:
        """As torch's documentation of nn.GRU has it."""
        r, z = ([self.gate_activation(a) for a in self.affine(gate, h, x)] for gate in "rz")
        of_x = matmul(self.w_x["n"].tolist(), x)
        of_h = matmul(self.w_h["n"].tolist(), h)
        b_x, b_h = self.b_x["n"].tolist(), self.b_h["n"].tolist()
        n = [
            math.tanh(of_x[k] + b_x[k] + r[k] * (of_h[k] + b_h[k])) for k in range(self.hidden_size)
        ]
        return [[(1 - z[k]) * n[k] + z[k] * h[k] for k in range(self.hidden_size)]]


#: The gates of each cell, in the documented order, and the equations they follow.
WRITTEN = {
    LSTM: (("i", "f", "g", "o", "rot"), Paper.lstm),
    GRU: (("r", "z", "n", "rot"), Paper.gru),
    PLAIN_LSTM: (("i", "f", "g", "o"), Paper.lstm),
    CLASSIC_GRU: (("r", "z", "n"), Paper.gru),
    TORCH_GRU: (("r", "z", "n"), Paper.torch_gru),
}


def test_gate_order_is_the_documented_one(kind: Kind) -> None:
    assert kind.description.gates == WRITTEN[kind][0]


@pytest.mark.parametrize("functions", list(itertools.product(ACTIVATIONS, repeat=2)), ids=str)
@pytest.mark.parametrize("hidden_size", [1, 2, 3, 6, 7])
def test_steps_follow_the_papers_equations(
    kind: Kind, hidden_size: int, functions: tuple[str, str]
) -> None:
    gates, step = WRITTEN[kind]
    paper = Paper(gates, 3, hidden_size, *functions)
    states_t = [torch.full((1, hidden_size), 0.3).double()] * kind.num_states
    states = [s[0].tolist() for s in states_t]
    for x in torch.randn(4, 3).double():
        states = step(paper, x.tolist(), *states)
        states_t = kind.description.step(x[None], states_t, paper.weights(), *functions)
    for state_t, state in zip(states_t, states, strict=True):
        assert_near(state_t[0], torch.tensor(state, dtype=torch.float64))


def test_lstm_by_hand_half_turn() -> None:
    """All weights 0: gates are 1/2, the candidate 0, the angle pi."""
    h, c = CELLS["rot_lstm"].step(
        torch.ones(1, 1),
        [torch.ones(1, 3), torch.tensor([[1.0, 2.0, 4.0]])],
        Weights(torch.zeros(13, 1), torch.zeros(13, 3)),
    )
    torch.testing.assert_close(c, torch.tensor([[-0.5, -1.0, 2.0]]))
    torch.testing.assert_close(h, torch.tensor([[-0.2310586, -0.3807971, 0.4820138]]))


def test_lstm_by_hand_quarter_turn() -> None:
    """The pair (1, 2), halved, becomes (-1, 1/2): counter-clockwise, first unit first."""
    bias = torch.zeros(9)
    bias[8] = QUARTER_TURN
    _, c = CELLS["rot_lstm"].step(
        torch.ones(1, 1),
        [torch.ones(1, 2), torch.tensor([[1.0, 2.0]])],
        Weights(torch.zeros(9, 1), torch.zeros(9, 2), bias),
    )
    torch.testing.assert_close(c, torch.tensor([[-1.0, 0.5]]))


def test_gru_by_hand_quarter_turn() -> None:
    """The candidate sees the rotated half of the state (here through an identity matrix)."""
    w_hh = torch.zeros(7, 2)
    w_hh[4:6] = torch.eye(2)
    bias = torch.zeros(7)
    bias[6] = QUARTER_TURN
    weights = Weights(torch.zeros(7, 1), w_hh, bias)
    (h,) = CELLS["rot_gru"].step(torch.ones(1, 1), [torch.tensor([[1.0, 2.0]])], weights)
    expected = [0.5 * 1 + 0.5 * math.tanh(-1), 0.5 * 2 + 0.5 * math.tanh(0.5)]
    torch.testing.assert_close(h, torch.tensor([expected]))


def test_hard_sigmoid_has_no_slope_at_its_ends() -> None:
    a = torch.tensor([-3.0, -2.5, -2.0, 0.0, 2.0, 2.5, 3.0], dtype=torch.float64)
    a.requires_grad_()
    value = hard_sigmoid(a)
    expected = [0.0, 0.0, 0.1, 0.5, 0.9, 1.0, 1.0]
    torch.testing.assert_close(value.tolist(), expected)
    (slope,) = torch.autograd.grad(value.sum(), a)
    torch.testing.assert_close(slope.tolist(), [0.0, 0.0, 0.2, 0.2, 0.2, 0.0, 0.0])


def test_gates_are_found_by_short_and_long_name(kind: Kind) -> None:
    long_names = kind.description.recurrence.gates | kind.description.rotation.gates
    end = 0
    for short, long in long_names.items():
        rows = kind.description.rows_of(short, 7)
        assert rows == kind.description.rows_of(long, 7)
        assert rows.start == end
        end = rows.stop
    assert end == kind.rows(7)
    with pytest.raises(ValueError, match="gate must be one of"):
        kind.description.rows_of("p", 7)


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_rotate_is_the_matmul_with_the_block_diagonal_matrix(size: int) -> None:
    d, u = torch.randn(3, size).double(), 7 * torch.rand(3, size // 2).double()
    matrices = torch.tensor([rotation_matrix(row, size) for row in u.tolist()], dtype=torch.float64)
    expected = torch.einsum("bij,bj->bi", matrices, d)
    assert_near(rotate(d, u), expected, 1e-15 * 4)


def test_rotate_by_minus_the_angle_takes_it_back() -> None:
    d, u = torch.randn(2, 4, 7).double(), torch.randn(2, 4, 3).double()
    assert_near(rotate(rotate(d, u), -u), d)
    assert torch.equal(rotate(d, torch.zeros_like(u)), d)


def weights_for(
    kind: Kind, inputs: int, hidden: int, output: int, bias: bool, **options: Any
) -> dict[str, Tensor]:
    rows = kind.rows(hidden)
    shapes: dict[str, tuple[int, ...]] = {"w_ih": (rows, inputs), "w_hh": (rows, output)}
    if bias:
        shapes |= {"b_ih": (rows,), "b_hh": (rows,)}
    if output != hidden:
        shapes["w_hr"] = (output, hidden)
    return {
        name: torch.randn(shape, dtype=torch.float64, **options) for name, shape in shapes.items()
    }


def sequence(
    kind: Kind,
    x: Tensor,
    *states: Tensor,
    batch_sizes: Tensor | None = None,
    reverse: bool = False,
    **weights: Tensor,
) -> tuple[Tensor, ...]:
    return kind.description.sequence(x, states, Weights(**weights), batch_sizes, reverse)


@pytest.mark.parametrize(
    ("hidden", "output", "sizes", "reverse"),
    [(5, 5, [3, 2, 1], True), (4, 2, None, False), (1, 1, [3, 2, 1], False)],
)
def test_gradients_of_the_reference(
    kind: Kind, hidden: int, output: int, sizes: list[int] | None, reverse: bool
) -> None:
    output = output if kind.description.can_project else hidden
    weights = weights_for(kind, 2, hidden, output, bias=True, requires_grad=True)
    x = torch.randn(sum(sizes) if sizes else 6, 2, dtype=torch.float64, requires_grad=True)
    states = [
        torch.randn(3, n, dtype=torch.float64, requires_grad=True)
        for n in kind.state_sizes(hidden, output)
    ]
    batch_sizes = None if sizes is None else torch.tensor(sizes)

    def run(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(weights, rest[len(states) :], strict=True))
        given = rest[: len(states)]
        return kind.description.sequence(x, given, Weights(**named), batch_sizes, reverse)

    inputs = (x, *states, *weights.values())
    assert gradcheck(run, inputs, fast_mode=True, check_forward_ad=True)
    assert gradgradcheck(run, inputs, fast_mode=True)


def test_reverse_is_forward_over_flipped_tokens(kind: Kind) -> None:
    weights = weights_for(kind, 3, 4, 4, bias=False)
    x, states = torch.randn(5, 2, 3).double(), [torch.randn(2, 4).double()] * kind.num_states
    out, *last = sequence(kind, x.flatten(0, 1), *states, **weights, reverse=True)
    flipped, *flipped_last = sequence(kind, x.flip(0).flatten(0, 1), *states, **weights)
    assert torch.equal(out.view(5, 2, 4), flipped.view(5, 2, 4).flip(0))
    assert all(map(torch.equal, last, flipped_last))


def test_rows_that_have_ended_keep_their_state(kind: Kind) -> None:
    weights = weights_for(kind, 3, 4, 4, bias=True)
    x, states = torch.randn(4, 3).double(), [torch.randn(2, 4).double()] * kind.num_states
    out, h_n, *_ = sequence(kind, x, *states, **weights, batch_sizes=torch.tensor([2, 1, 1]))
    assert torch.equal(h_n, torch.stack([out[3], out[1]]))


@pytest.mark.parametrize("sizes", [[2, 3], [3, 3], [2, 2], [1, 2, 2], []])
def test_batch_sizes_that_do_not_fit_are_refused(kind: Kind, sizes: list[int]) -> None:
    weights = weights_for(kind, 3, 4, 4, bias=True)
    states = [torch.randn(2, 4).double()] * kind.num_states
    batch_sizes = torch.tensor(sizes, dtype=torch.int64)
    with pytest.raises(RuntimeError):
        sequence(kind, torch.randn(5, 3).double(), *states, **weights, batch_sizes=batch_sizes)


def test_padded_tokens_must_fill_whole_steps(kind: Kind) -> None:
    states = [torch.randn(2, 4).double()] * kind.num_states
    with pytest.raises(RuntimeError):
        sequence(kind, torch.randn(5, 3).double(), *states, **weights_for(kind, 3, 4, 4, bias=True))


def test_vmap_over_the_batch_is_the_batch(kind: Kind) -> None:
    weights = weights_for(kind, 3, 5, 5, bias=True)
    x = torch.randn(6, 4, 3).double()
    states = [torch.randn(4, 5).double() for _ in range(kind.num_states)]

    def alone(x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        return sequence(kind, x, *(s.unsqueeze(0) for s in states), **weights)

    out, *last = torch.func.vmap(alone, in_dims=(1, *[0] * len(states)))(x, *states)
    expected, *expected_last = sequence(kind, x.flatten(0, 1), *states, **weights)
    assert_near(out.transpose(0, 1), expected.view(6, 4, 5))
    assert_all_near([s.squeeze(1) for s in last], expected_last)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_float_type_stays_itself(kind: Kind, dtype: torch.dtype) -> None:
    weights = {name: w.to(dtype) for name, w in weights_for(kind, 3, 4, 4, bias=True).items()}
    states = [torch.randn(2, 4).to(dtype)] * kind.num_states
    for result in sequence(kind, torch.randn(6, 3).to(dtype), *states, **weights):
        assert result.dtype == dtype
        assert result.isfinite().all()


def test_an_empty_batch_gives_empty_results_and_zero_gradients(kind: Kind) -> None:
    weights = weights_for(kind, 3, 4, 4, bias=True, requires_grad=True)
    out, *last = sequence(
        kind, torch.randn(0, 3).double(), *[torch.randn(0, 4).double()] * kind.num_states, **weights
    )
    assert out.shape == (0, 4)
    assert all(s.shape == (0, 4) for s in last)
    out.sum().backward()
    assert all(torch.equal(w.grad, torch.zeros_like(w)) for w in weights.values())
