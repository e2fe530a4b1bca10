"""Cells that see whole rows against their equations, written once more in float64."""

from __future__ import annotations

import contextlib
import copy
import doctest
import importlib
import inspect
import io
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from helpers import assert_all_near, assert_near, double_parameters, gradients, leaves, pack
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import rotcell
from rotcell.reference_rows import rotate_by_layers, rotate_from_to

Parameters = dict[str, Tensor]


# The equations for one row: vectors, one gate at a time, dense rotation matrices


def affine(p: Parameters, gate: int, size: int, x: Tensor, h: Tensor | None) -> Tensor:
    """W_gate [x, h] + b_gate, of gates that all have `size` rows."""
    rows = slice(gate * size, (gate + 1) * size)
    a = p["weight_ih"][rows] @ x
    if h is not None:
        a = a + p["weight_hh"][rows] @ h
    for name in ("bias_ih", "bias_hh"):
        if name in p and len(p[name]) >= rows.stop:
            a = a + p[name][rows]
    return a


def normalized(a: Tensor) -> Tensor:
    mean = a.sum() / len(a)
    variance = ((a - mean) ** 2).sum() / len(a)
    return (a - mean) / (variance + 1e-5) ** 0.5


def plane(size: int, k: int, angle: Tensor) -> Tensor:
    """The matrix that turns units k and k + 1."""
    basis = torch.eye(size, dtype=angle.dtype)
    a, b = basis[k], basis[k + 1]
    cos, sin = torch.cos(angle), torch.sin(angle)
    both = torch.outer(a, a) + torch.outer(b, b)
    return basis - both + cos * both + sin * (torch.outer(b, a) - torch.outer(a, b))


def theta(angles: Tensor, size: int) -> Tensor:
    matrix = torch.eye(size, dtype=angles.dtype)
    for layer in range(len(angles)):
        for number, k in enumerate(range(layer % 2, size - 1, 2)):
            matrix = plane(size, k, angles[layer, number]) @ matrix
    return matrix


def lstm_gates(p: Parameters, x: Tensor, h: Tensor, size: int) -> dict[str, Tensor]:
    from_x, from_h = normalized(p["weight_ih"] @ x), normalized(p["weight_hh"] @ h)
    a = from_x * p["gain_ih"] + from_h * p["gain_hh"]
    a = a + p.get("bias_ih", 0.0) + p.get("bias_hh", 0.0)
    i, f, g, o = (a[k * size : (k + 1) * size] for k in range(4))
    gates = {"i": i.sigmoid(), "f": f.sigmoid(), "g": g.tanh(), "o": o.sigmoid()}
    return gates | {"angles": 2 * math.pi * a[4 * size :].sigmoid()}


def lstm_step(p: Parameters, x: Tensor, h: Tensor, c: Tensor) -> list[Tensor]:
    size = len(c)
    gates = lstm_gates(p, x, h, size)
    c = gates["f"] * c + gates["i"] * gates["g"]
    for k, angle in enumerate(gates["angles"]):  # none in an LSTM
        c = plane(size, 2 * k, angle) @ c
    y = gates["o"] * torch.tanh(normalized(c) * p["gain_c"] + p["bias_c"])
    return [p["weight_hr"] @ y if "weight_hr" in p else y, c]


def rum_step(p: Parameters, x: Tensor, h: Tensor, eta: float | None) -> list[Tensor]:
    """With the rotation as the authors code it: a basis of the plane, and a matrix of 2 x 2."""
    size = len(h)
    r, u, e = affine(p, 0, size, x, h), affine(p, 1, size, x, h), affine(p, 2, size, x, None)
    u = torch.sigmoid(u)
    first = e / e.norm()
    second = r - (first @ r) * first
    second = second / second.norm()
    cos = (e @ r) / (e.norm() * r.norm())
    sin = (1 - cos**2) ** 0.5
    along = torch.stack([first @ h, second @ h])
    turned = torch.stack([cos * along[0] - sin * along[1], sin * along[0] + cos * along[1]])
    basis = torch.stack([first, second])
    h = u * h + (1 - u) * torch.relu(e + h + (turned - along) @ basis)
    return [h if eta is None else eta * h / h.norm()]


def modrelu(a: Tensor, shift: Tensor) -> Tensor:
    return torch.stack(
        [(v.abs() + s).clamp(min=0) * v.sign() for v, s in zip(a, shift, strict=True)]
    )


def goru_step(p: Parameters, x: Tensor, h: Tensor) -> list[Tensor]:
    size = len(h)
    r, g = (torch.sigmoid(affine(p, gate, size, x, h)) for gate in range(2))
    a = p["weight_ih"][2 * size :] @ x + r * (theta(p["angles"], size) @ h)
    return [g * h + (1 - g) * modrelu(a, p["threshold"] + 0.001)]


def eurnn_step(p: Parameters, x: Tensor, h: Tensor) -> list[Tensor]:
    a = p["weight_ih"] @ x + theta(p["angles"], len(h)) @ h
    return [modrelu(a, p["threshold"] + 0.01)]


class Case:
    """A layer and its equations."""

    def __init__(self, layer: Any, step: Callable[..., list[Tensor]], **options: Any) -> None:
        self.layer, self.step, self.options = layer, step, options
        self.cell: Any = getattr(rotcell, f"{layer.__name__}Cell")
        self.num_states = 2 if layer in (rotcell.LSTM, rotcell.RotLSTM) else 1

    def make(self, input_size: int = 3, hidden_size: int = 5, **options: Any) -> Any:
        """A layer with parameters that are all away from their special initial values."""
        return self._drawn(self.layer(input_size, hidden_size, **(self.options | options)))

    def make_cell(self, **options: Any) -> Any:
        """A single-step cell with such parameters."""
        return self._drawn(self.cell(3, 5, **(self.options | options)))

    @staticmethod
    @torch.no_grad()
    def _drawn(module: Any) -> Any:
        for name, parameter in module.named_parameters():
            scale = 1.0 if name.startswith(("angles", "weight")) else 0.3
            parameter.copy_(torch.randn_like(parameter) * scale + name.startswith("gain"))
        return module

    def states(self, layer: Any, batch: int) -> list[Tensor]:
        count = layer.num_layers * (2 if layer.bidirectional else 1)
        sizes = [layer.proj_size or layer.hidden_size, layer.hidden_size][: self.num_states]
        return [torch.randn(count, batch, n, dtype=layer.weight_ih_l0.dtype) for n in sizes]

    def hx(self, states: Sequence[Tensor]) -> Any:
        return states[0] if self.num_states == 1 else tuple(states)

    def run(self, layer: Any, x: Any, states: Sequence[Tensor], **options: Any) -> list[Tensor]:
        """Output, a tensor, and last states."""
        out, last = layer(x, self.hx(states), **options)
        out = out if isinstance(out, Tensor) else out.data
        return [out, last] if self.num_states == 1 else [out, *last]

    def expected(
        self, layer: Any, p: Parameters, sequences: Sequence[Tensor], states: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The outputs of each sequence [T_b, D * P], and the last states."""
        outputs, lasts = [], []
        for b, x in enumerate(sequences):
            last = []
            for k in range(layer.num_layers):
                columns = []
                for direction in range(2 if layer.bidirectional else 1):
                    suffix = f"_l{k}" + "_reverse" * direction
                    own = {n.removesuffix(suffix): w for n, w in p.items() if n.endswith(suffix)}
                    state = [s[len(last), b] for s in states]
                    steps = []
                    for t in reversed(range(len(x))) if direction else range(len(x)):
                        state = self.step(own, x[t], *state)
                        steps.append(state[0])
                    columns.append(torch.stack(steps[::-1] if direction else steps))
                    last.append(state)
                x = torch.cat(columns, dim=1)
            outputs.append(x)
            lasts.append([torch.stack(parts) for parts in zip(*last, strict=True)])
        return outputs, [torch.stack(parts, dim=1) for parts in zip(*lasts, strict=True)]


CASES = {
    "layer_norm_lstm": Case(rotcell.LSTM, lstm_step, layer_norm=True),
    "layer_norm_rot_lstm": Case(rotcell.RotLSTM, lstm_step, layer_norm=True),
    "rum": Case(rotcell.RUM, lambda p, x, h: rum_step(p, x, h, None)),
    "rum_eta": Case(rotcell.RUM, lambda p, x, h: rum_step(p, x, h, 1.7), eta=1.7),
    "goru": Case(rotcell.GORU, goru_step),
    "goru_capacity_5": Case(rotcell.GORU, goru_step, capacity=5),
    "eurnn": Case(rotcell.EURNN, eurnn_step),
    "eurnn_capacity_3": Case(rotcell.EURNN, eurnn_step, capacity=3),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def compare(
    case: Case, layer: Any, lengths: Sequence[int], dtype: torch.dtype, packed: bool
) -> None:
    """Outputs, last states and the gradients of input, states and every parameter."""
    layer = layer.to(dtype)
    sequences = [torch.randn(n, layer.input_size, dtype=dtype) for n in lengths]
    states = leaves(case.states(layer, len(lengths)))
    if packed:
        inputs = leaves(sequences)
        results = case.run(layer, pack(inputs), states)
    else:
        inputs = leaves([torch.stack(sequences, dim=1)])
        results = case.run(layer, inputs[0], states)

    p = double_parameters(layer)
    sequences64, states64 = leaves(sequences, torch.float64), leaves(states, torch.float64)
    outputs, last = case.expected(layer, p, sequences64, states64)
    out = pack(outputs).data if packed else torch.stack(outputs, dim=1)
    weights = [torch.randn_like(r) for r in (out, *last)]
    tolerance = {torch.float64: 1e-11, torch.float32: 3e-5}[dtype]
    assert_all_near(results, [out, *last], tolerance=tolerance)

    p = {name: w for name, w in p.items() if w.numel()}  # a single unit has no angles
    own = [w for w in layer.parameters() if w.numel()]
    found = gradients(results, [*inputs, *states, *own], weights)
    wanted = gradients([out, *last], [*sequences64, *states64, *p.values()], weights)
    if not packed:
        wanted = (torch.stack(wanted[: len(lengths)], dim=1), *wanted[len(lengths) :])
    names = [*(f"input {k}" for k in range(len(inputs))), "h", "c"][: len(inputs) + len(states)]
    assert_all_near(found, wanted, [*names, *p], tolerance=tolerance, least_scale=1.0)


# With two units, layer norm is nearly a step function of their difference: float64 only.
@pytest.mark.parametrize(
    ("hidden_size", "dtype"),
    [(2, torch.float64), *((n, d) for n in (5, 8) for d in (torch.float32, torch.float64))],
)
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_layer_follows_its_equations(
    case: Case, hidden_size: int, packed: bool, dtype: torch.dtype
) -> None:
    lengths = [3, 5, 1] if packed else [4, 4, 4]
    compare(case, case.make(hidden_size=hidden_size), lengths, dtype, packed)


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_stacked_layers_in_both_directions(case: Case, packed: bool) -> None:
    layer = case.make(num_layers=2, bidirectional=True)
    compare(case, layer, [2, 4, 3] if packed else [3, 3], torch.float64, packed)


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("eurnn")])
def test_layers_without_biases_follow_their_equations(name: str) -> None:
    case = CASES[name]
    compare(case, case.make(bias=False), [3, 3], torch.float64, False)


@pytest.mark.parametrize("name", ["layer_norm_lstm", "layer_norm_rot_lstm"])
def test_layer_norm_with_a_projection(name: str) -> None:
    case = CASES[name]
    compare(case, case.make(proj_size=2, num_layers=2), [3, 3], torch.float64, False)


@pytest.mark.parametrize("name", ["layer_norm_lstm", "goru", "eurnn"])
def test_a_single_unit_follows_its_equations(name: str) -> None:
    case = CASES[name]
    compare(case, case.make(hidden_size=1), [3, 3], torch.float64, False)


# Single steps


@pytest.mark.parametrize("batched", [True, False])
def test_a_single_step_follows_the_equations(case: Case, batched: bool) -> None:
    cell = case.make_cell(dtype=torch.float64)
    x = torch.randn(2, 3, dtype=torch.float64)
    states = [torch.randn(2, 5, dtype=torch.float64) for _ in range(case.num_states)]
    inputs = leaves([x, *states] if batched else [x[0], *(s[0] for s in states)])
    found = cell(inputs[0], case.hx(inputs[1:]))
    found = [found] if case.num_states == 1 else list(found)

    p = double_parameters(cell)
    inputs64 = leaves(inputs)
    rows = list(zip(*inputs64, strict=True)) if batched else [inputs64]
    expected = [torch.stack(s) for s in zip(*(case.step(p, *row) for row in rows), strict=True)]
    expected = expected if batched else [s[0] for s in expected]
    weights = [torch.randn_like(s) for s in expected]
    names = ["x", "h", "c"][: len(inputs)]
    assert_all_near(
        [*found, *gradients(found, [*inputs, *cell.parameters()], weights)],
        [*expected, *gradients(expected, [*inputs64, *p.values()], weights)],
        [*names[1:], *(f"gradient of {name}" for name in (*names, *p))],
        tolerance=1e-11,
        least_scale=1.0,
    )


def test_single_steps_in_a_loop_are_the_layer(case: Case) -> None:
    layer, cell = case.make(dtype=torch.float64), case.make_cell(dtype=torch.float64)
    assert repr(cell) == repr(layer).replace("(", "Cell(", 1)
    cell.load_state_dict({n.removesuffix("_l0"): w for n, w in layer.state_dict().items()})
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    state = None
    for x_t in x:
        state = cell(x_t, state)
    last = layer(x)[1]
    found, expected = ([s] if case.num_states == 1 else list(s) for s in (state, last))
    assert_all_near(found, [s[0] for s in expected])
    file = io.BytesIO()
    torch.save(cell, file)
    file.seek(0)
    for twin in (copy.deepcopy(cell), torch.load(file, weights_only=True)):
        assert repr(twin) == repr(cell)
        assert torch.equal(twin(x[0])[0], cell(x[0])[0])


def test_single_steps_compile_and_take_empty_sizes(case: Case) -> None:
    torch._dynamo.reset()
    cell, x = case.make_cell(), torch.randn(2, 3)
    compiled = torch.compile(cell, fullgraph=True, backend="aot_eager")
    assert_near(compiled(x)[0], cell(x)[0])
    for batch, inputs, hidden in ((0, 3, 5), (2, 0, 5), (2, 3, 0)):
        found = case.cell(inputs, hidden, **case.options)(torch.randn(batch, inputs))
        found = found if isinstance(found, Tensor) else found[0]
        assert found.shape == (batch, hidden)


def test_layers_and_single_steps_start_alike(case: Case) -> None:
    torch.manual_seed(1)
    layer = case.layer(3, 6, **case.options)
    torch.manual_seed(1)
    cell = case.cell(3, 6, **case.options)
    for (name, found), expected in zip(cell.named_parameters(), layer.parameters(), strict=True):
        assert torch.equal(found, expected), name
    if case.layer in (rotcell.GORU, rotcell.EURNN):
        assert cell.angles.shape == (case.options.get("capacity", 2), 3)


# Derivatives


def test_gradcheck_once_and_twice(case: Case) -> None:
    layer = case.make(2, 3, dtype=torch.float64)
    x, states = torch.randn(2, 2, 2, dtype=torch.float64), case.states(layer, 2)
    names = [name for name, _ in layer.named_parameters()]

    def run(x: Tensor, *rest: Tensor) -> Any:
        given = dict(zip(names, rest[case.num_states :], strict=True))
        hx = case.hx(rest[: case.num_states])
        return torch.func.functional_call(layer, given, (x, hx))[0]

    inputs = leaves([x, *states, *layer.parameters()])
    assert gradcheck(run, inputs)
    assert gradgradcheck(run, inputs)


def test_per_sample_gradients_by_vmap(case: Case) -> None:
    layer = case.make(dtype=torch.float64)
    p = {name: w.detach() for name, w in layer.named_parameters()}
    x = torch.randn(3, 4, 3, dtype=torch.float64)

    def loss(p: Parameters, x: Tensor) -> Tensor:
        return torch.func.functional_call(layer, p, (x,))[0].square().sum()

    every = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(p, x)
    for b in range(3):
        one = torch.func.grad(loss)(p, x[b])
        assert_all_near([every[n][b] for n in p], [one[n] for n in p], list(p), least_scale=1.0)


def test_rotation_maps_one_direction_to_the_other() -> None:
    e, r, h = torch.randn(3, 4, 6, dtype=torch.float64).unbind()
    turned = rotate_from_to(e, e, r)
    assert_near(turned, r * (e.norm(dim=-1) / r.norm(dim=-1)).unsqueeze(-1))
    assert_near(rotate_from_to(h, e, r).norm(dim=-1), h.norm(dim=-1))
    basis = torch.linalg.qr(torch.stack([e, r], dim=-1)).Q  # [4, 6, 2]
    outside = h - (basis @ (basis.mT @ h.unsqueeze(-1))).squeeze(-1)
    assert_near(rotate_from_to(outside, e, r), outside)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 300.0])
@pytest.mark.parametrize("angle", ["parallel", "opposite", "nearly opposite", "e zero", "r zero"])
def test_gradients_of_the_rotation_are_finite(angle: str, scale: float, dtype: torch.dtype) -> None:
    if angle == "nearly opposite" and dtype == torch.float16 and scale < 1:
        pytest.skip("the gradients exceed the range of fp16")
    e = torch.randn(3, 7, dtype=dtype) * scale
    r = {
        "parallel": 2 * e,
        "opposite": -e,
        "nearly opposite": -e * (1 + 2 * torch.finfo(dtype).eps * torch.randn_like(e)),
        "e zero": e.clone(),
        "r zero": torch.zeros_like(e),
    }[angle]
    e = torch.zeros_like(e) if angle == "e zero" else e
    h, e, r = leaves([torch.randn(3, 7, dtype=dtype), e, r])
    turned = rotate_from_to(h, e, r)
    tolerance = 100 * torch.finfo(dtype).eps
    assert_near(turned.double().norm(dim=-1), h.double().norm(dim=-1), tolerance)
    if "opposite" not in angle:
        assert_near(turned, h, tolerance)
    grads = torch.autograd.grad(turned.float().square().sum() + turned.float().sum(), [h, e, r])
    assert all(g.isfinite().all() for g in grads)


@pytest.mark.parametrize("eta", [None, 1.0])
def test_rum_of_zeros_has_finite_gradients(eta: float | None) -> None:
    layer = rotcell.RUM(3, 4, eta=eta, bias=False)
    x = torch.zeros(5, 2, 3, requires_grad=True)
    out, _ = layer(x)
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_layers_of_rotations_are_orthogonal() -> None:
    h = torch.randn(3, 7, dtype=torch.float64)
    assert_near(rotate_by_layers(h, torch.randn(4, 3).double()).norm(dim=1), h.norm(dim=1))


# What all layers can


def test_resets_separate_sequences(case: Case) -> None:
    layer = case.make(bidirectional=True, dtype=torch.float64)
    x, states = torch.randn(6, 2, 3, dtype=torch.float64), case.states(layer, 2)
    resets = torch.zeros(6, 2, dtype=torch.bool)
    resets[2] = True
    out = case.run(layer, x, states, resets=resets)[0]
    zeros = [torch.zeros_like(s) for s in states]
    half = layer.hidden_size
    assert_near(out[:2, :, :half], case.run(layer, x[:2], states)[0][..., :half])
    assert_near(out[2:, :, :half], case.run(layer, x[2:], zeros)[0][..., :half])
    assert_near(out[:2, :, half:], case.run(layer, x[:2], zeros)[0][..., half:])


def test_zoneout_in_eval_mode_is_the_expected_value(case: Case) -> None:
    layer = case.make(zoneout=0.25, dtype=torch.float64).eval()
    plain = case.make(dtype=torch.float64)
    plain.load_state_dict(layer.state_dict())
    x, states = torch.randn(1, 2, 3, dtype=torch.float64), case.states(layer, 2)
    found, fresh = case.run(layer, x, states)[1:], case.run(plain, x, states)[1:]
    assert_all_near(found, [0.25 * s + 0.75 * f for s, f in zip(states, fresh, strict=True)])


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("eurnn")])
def test_recurrent_dropout_of_all_is_no_recurrent_weight(name: str) -> None:
    case = CASES[name]
    layer = case.make(recurrent_dropout=1.0, dtype=torch.float64)
    twin = case.make(dtype=torch.float64)
    twin.load_state_dict(layer.state_dict())
    torch.nn.init.zeros_(twin.weight_hh_l0)
    x, states = torch.randn(3, 2, 3, dtype=torch.float64), case.states(layer, 2)
    assert_all_near(case.run(layer, x, states), case.run(twin, x, states))


def test_batch_first_unbatched_and_context(case: Case) -> None:
    layer = case.make(dtype=torch.float64)
    turned = case.make(batch_first=True, dtype=torch.float64)
    turned.load_state_dict(layer.state_dict())
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    out = layer(x)[0]
    assert_near(turned(x.transpose(0, 1))[0], out.transpose(0, 1))
    assert_near(layer(x[:, 0])[0], out[:, 0])
    same = torch.cat([x[..., :2], x[:1, :, 2:].expand(4, -1, -1)], dim=-1)
    assert_near(layer(x[..., :2], context=x[0, :, 2:])[0], layer(same)[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_formats_and_autocast(case: Case, dtype: torch.dtype) -> None:
    layer = case.make()
    half = copy.deepcopy(layer).to(dtype)
    x = torch.randn(3, 2, 3)
    expected = layer(x)[0]
    found = half(x.to(dtype))[0]
    assert found.dtype == dtype
    assert_near(found, expected, 30 * torch.finfo(dtype).eps, least_scale=1.0)
    with torch.autocast("cpu", dtype=dtype):
        cast = layer(x)[0]
    assert cast.dtype == dtype
    cast.float().sum().backward()
    assert layer.weight_ih_l0.grad.dtype == torch.float32


def test_compiled_and_exported_layers_compute_the_same(case: Case) -> None:
    torch._dynamo.reset()
    layer = case.make(bidirectional=True)
    x = torch.randn(3, 2, 3)
    expected = layer(x)[0]
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_near(compiled(x)[0], expected)
    compiled(x)[0].sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    assert_near(torch.export.export(layer, (x,)).module()(x)[0], expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", ["layer_norm_rot_lstm", "rum_eta", "goru_capacity_5", "eurnn"])
def test_onnx_with_any_number_of_steps(name: str) -> None:
    onnx_reference = pytest.importorskip("onnx.reference")
    pytest.importorskip("onnxscript")
    import rotcell.onnx

    layer = CASES[name].make().eval()
    dynamic = torch.export.Dim.DYNAMIC
    program = torch.onnx.export(
        layer, (torch.randn(3, 2, 3),), dynamo=True, verbose=False,
        dynamic_shapes=({0: dynamic, 1: dynamic},),
        custom_translation_table=rotcell.onnx.translations(),
    )  # fmt: skip
    run = onnx_reference.ReferenceEvaluator(program.model_proto).run
    x = torch.randn(6, 4, 3)
    found = run(None, {program.model_proto.graph.input[0].name: x.numpy()})[0]
    assert_near(torch.from_numpy(found), layer(x)[0])


def test_return_cells_of_a_layer_normalized_lstm() -> None:
    case = CASES["layer_norm_rot_lstm"]
    layer = case.make(dtype=torch.float64)
    _, (_, c_n), cells = layer(torch.randn(4, 2, 3, dtype=torch.float64), return_cells=True)
    assert cells.shape == (4, 2, 5)
    assert torch.equal(cells[-1], c_n[0])


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("name", ["layer_norm_lstm", "layer_norm_rot_lstm"])
def test_trace_of_a_layer_normalized_lstm(name: str, reverse: int) -> None:
    case = CASES[name]
    layer = case.make(bidirectional=True, dtype=torch.float64)
    rows = [torch.randn(length, 3, dtype=torch.float64) for length in (2, 4)]
    states = case.states(layer, 2)
    trace = rotcell.trace(layer, pack(rows), case.hx(states))
    assert_near(trace.output.data, layer(pack(rows), case.hx(states))[0].data)
    direction = trace[reverse]
    assert direction.rotates == (name == "layer_norm_rot_lstm")
    suffix = "_l0" + "_reverse" * reverse
    named = layer.named_parameters()
    p = {n.removesuffix(suffix): w.detach() for n, w in named if n.endswith(suffix)}
    for row, x in enumerate(rows):
        h, c = (s[reverse, row] for s in states)
        for t in reversed(range(len(x))) if reverse else range(len(x)):
            for gate, values in lstm_gates(p, x[t], h, 5).items():
                if values.numel():
                    assert_near(direction.row(gate, row)[t], values, what=gate)
            h, c = lstm_step(p, x[t], h, c)
            assert_near(direction.row("after_rotation", row)[t], c, what="after_rotation")


def test_trace_names_layers_it_cannot_read() -> None:
    for layer in (rotcell.RUM(3, 5), rotcell.GORU(3, 5), rotcell.EURNN(3, 5)):
        with pytest.raises(TypeError, match=f"per timestep, got {type(layer).__name__}"):
            rotcell.trace(layer, torch.randn(2, 1, 3))


def test_copies_and_whole_models_from_files(case: Case) -> None:
    layer = case.make()
    x = torch.randn(3, 2, 3)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for twin in (copy.deepcopy(layer), copy.copy(layer), torch.load(file, weights_only=True)):
        assert repr(twin) == repr(layer)
        assert torch.equal(twin(x)[0], layer(x)[0])


# Kernels


class CalledOps(TorchDispatchMode):
    """Records which ops of ours are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "rotcell":
            self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_a_call_is_one_op_each_way_without_a_warning(case: Case) -> None:
    layer = case.make()
    name = layer._cell.name
    with warnings.catch_warnings(), CalledOps() as called:
        warnings.simplefilter("error")
        layer(torch.randn(2, 1, 3))[0].sum().backward()
    assert called.names == [name, f"{name}_backward"]


@pytest.mark.parametrize("zoneout", [0.0, 0.3])
@pytest.mark.parametrize(
    ("batch", "steps", "size"), [(1, 3, 3), (1, 40, 33), (9, 40, 50), (37, 30, 18), (20, 3, 130)]
)
def test_kernels_agree_with_the_reference(
    case: Case, batch: int, steps: int, size: int, zoneout: float
) -> None:
    layer = case.make(7, size, zoneout=zoneout, dtype=torch.float64)
    with torch.no_grad():  # with larger weights small errors grow from step to step
        for name, parameter in layer.named_parameters():
            parameter.mul_(size**-0.5 if name.startswith("weight_hh") else 1.0)
            parameter.mul_(0.3 if name.startswith("gain_hh") else 1.0)
    x = torch.randn(steps, batch, 7, dtype=torch.float64)
    resets = torch.rand(steps, batch) < 0.1
    inputs = leaves([x, *case.states(layer, batch), *layer.parameters()])
    names = [name for name, _ in layer.named_parameters()]

    def run() -> list[Tensor]:
        torch.manual_seed(5)
        given = dict(zip(names, inputs[1 + case.num_states :], strict=True))
        hx = case.hx(inputs[1 : 1 + case.num_states])
        call = torch.func.functional_call
        out, last = call(layer, given, (inputs[0], hx), {"resets": resets} if zoneout else {})
        return [out, last] if isinstance(last, Tensor) else [out, *last]

    found = run()
    with rotcell.use_reference():
        expected = run()
    assert_all_near(found, expected, tolerance=1e-10)
    weights = [torch.randn_like(r) for r in expected]
    of = ["x", "h", "c"][: 1 + case.num_states] + names
    wanted = gradients(expected, inputs, weights)
    assert_all_near(gradients(found, inputs, weights), wanted, of, 1e-9, least_scale=1.0)


# Threads share rows of the batch; with few rows, or few rows of large weights, each makes some
# columns of the matmuls, and their math is cut by rows.
@pytest.mark.parametrize(
    ("batch", "steps", "hidden"), [(37, 60, 40), (1, 30, 259), (3, 30, 256), (20, 3, 1030)]
)
@pytest.mark.parametrize("options", [{}, {"packed": True}, {"zoneout": 0.2}], ids=str)
def test_the_number_of_threads_changes_no_bit(
    case: Case, options: dict[str, Any], batch: int, steps: int, hidden: int
) -> None:
    zoneout = options.get("zoneout", 0.0)
    has_recurrent_weights = case.layer is not rotcell.EURNN
    dropout = {"recurrent_dropout": zoneout} if has_recurrent_weights else {}
    layer = case.make(8, hidden, zoneout=zoneout, **dropout)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.mul_(hidden**-0.5 if name.startswith("weight_hh") else 1.0)
    x = torch.randn(steps, batch, 8, requires_grad=True)
    lengths = [steps - k % 3 for k in range(batch)]
    resets = {"resets": torch.rand(steps, batch) < 0.1} if zoneout else {}
    states = leaves(case.states(layer, batch))
    inputs = [x, *states, *layer.parameters()]
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            torch.manual_seed(0)
            given = x
            if "packed" in options:
                given = pack_padded_sequence(x, lengths, enforce_sorted=False)
            results = case.run(layer, given, states, **resets)
            found.append([*results, *gradients(results, inputs, [r.detach() for r in results])])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def angle_case(angle: str) -> tuple[Any, Tensor]:
    """A RUM whose e and r have this angle at every step, and its input."""
    layer = rotcell.RUM(4, 4, bias=False, dtype=torch.float64)
    of_e = 0.0 if angle == "e zero" else 1.0
    of_r = {"opposite": -1.0, "r zero": 0.0}.get(angle, 2.0)
    with torch.no_grad():
        layer.weight_hh_l0.zero_()
        for gate, scale in (("e", of_e), ("r", of_r)):
            layer.gate_rows(gate, "weight_ih_l0").copy_(scale * torch.eye(4))
    return layer, torch.randn(3, 2, 4, dtype=torch.float64)


@pytest.mark.parametrize("angle", ["parallel", "opposite", "e zero", "r zero"])
def test_rum_kernel_at_special_angles(angle: str) -> None:
    layer, x = angle_case(angle)
    results = []
    for uses_reference in (False, True):
        layer.zero_grad()
        inputs = leaves([x, torch.ones(1, 2, 4, dtype=torch.float64)])
        with rotcell.use_reference() if uses_reference else contextlib.nullcontext():
            out = layer(*inputs)[0]
        out.sum().backward()
        results.append([out, *(i.grad for i in inputs), *(p.grad for p in layer.parameters())])
    assert all(t.isfinite().all() for t in results[0])
    # For opposite vectors the gradients are those of a division by the rounding error.
    if angle == "opposite":
        assert_near(results[0][0], results[1][0])
    else:
        assert_all_near(*results, tolerance=1e-9, least_scale=1.0)


def test_ops_refuse_parameters_of_other_shapes() -> None:
    layer = rotcell.GORU(3, 4, capacity=3)
    layer.angles_l0 = torch.nn.Parameter(torch.zeros(3, 3))
    with pytest.raises(RuntimeError, match=r"expected angles of shape \[3, 2\], got \[3, 3\]"):
        layer(torch.randn(2, 1, 3))
    layer.angles_l0 = torch.nn.Parameter(torch.zeros(3, 2))
    layer.threshold_l0 = torch.nn.Parameter(torch.zeros(5))
    with pytest.raises(RuntimeError, match=r"expected threshold of shape \[4\], got \[5\]"):
        layer(torch.randn(2, 1, 3))


def test_flops_are_those_of_the_matmuls() -> None:
    counts = {}
    for layer in (rotcell.LSTM(3, 5), rotcell.LSTM(3, 5, layer_norm=True), rotcell.EURNN(3, 5)):
        with FlopCounterMode(display=False) as counter:
            layer(torch.randn(7, 2, 3))
        counts[repr(layer)] = counter.get_total_flops()
    assert list(counts.values()) == [2 * 14 * 20 * 8, 2 * 14 * 20 * 8, 2 * 14 * 5 * 3]


# Names, shapes, starts, checkpoints


def shapes(layer: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in layer.named_parameters()}


def test_parameters_have_documented_names_and_shapes() -> None:
    assert shapes(rotcell.RUM(3, 5)) == {
        "weight_ih_l0": (15, 3), "weight_hh_l0": (10, 5), "bias_ih_l0": (15,), "bias_hh_l0": (10,),
    }  # fmt: skip
    assert shapes(rotcell.GORU(3, 5, capacity=3)) == {
        "weight_ih_l0": (15, 3), "weight_hh_l0": (10, 5), "bias_ih_l0": (10,), "bias_hh_l0": (10,),
        "threshold_l0": (5,), "angles_l0": (3, 2),
    }  # fmt: skip
    assert shapes(rotcell.EURNN(3, 5)) == {
        "weight_ih_l0": (5, 3), "threshold_l0": (5,), "angles_l0": (2, 2),
    }  # fmt: skip
    plain, normalized = rotcell.RotLSTM(3, 5), rotcell.RotLSTM(3, 5, layer_norm=True)
    more = {"gain_ih_l0": (22,), "gain_hh_l0": (22,), "gain_c_l0": (5,), "bias_c_l0": (5,)}
    assert shapes(normalized) == shapes(plain) | more


@pytest.mark.parametrize("layer", [rotcell.LSTM, rotcell.RUM, rotcell.GORU, rotcell.EURNN])
def test_docstrings_document_arguments_and_parameters(layer: Any) -> None:
    text = inspect.getdoc(layer)
    assert max(map(len, text.splitlines())) <= 100
    for argument in list(inspect.signature(layer.__init__).parameters)[1:]:
        assert f"\n    {argument}: " in text, argument
    options = {"layer_norm": True} if layer is rotcell.LSTM else {}
    for name in shapes(layer(3, 4, **options)):
        assert f"``{name.replace('_l0', '_l{k}')}``: ``[" in text, name


@pytest.mark.parametrize("module", ["reference_rows", "layers.rum", "layers.orthogonal"])
def test_docstring_examples_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"rotcell.{module}"))
    assert result.attempted > 0
    assert result.failed == 0


def test_initial_values_are_those_of_the_authors() -> None:
    lstm = rotcell.LSTM(3, 5, layer_norm=True, forget_bias=9.0)
    assert all((p == 1).all() for n, p in lstm.named_parameters() if n.startswith("gain"))
    assert (lstm.bias_c_l0 == 0).all()
    assert (lstm.gate_rows("f", "bias_ih_l0") > 8).all()

    rum = rotcell.RUM(3, 5)
    identity = torch.eye(5)
    for gate in "ru":
        both = [rum.gate_rows(gate, f"weight_{k}_l0") for k in ("ih", "hh")]
        w = torch.cat(both, dim=1)
        assert_near(w @ w.T, identity)
        assert (rum.gate_rows(gate, "bias_ih_l0") == 1).all()
    w_e = rum.gate_rows("e", "weight_ih_l0")
    assert_near(w_e.T @ w_e, torch.eye(3))
    assert (rum.gate_rows("e", "bias_ih_l0") == 0).all()
    assert (rum.bias_hh_l0 == 0).all()

    goru = rotcell.GORU(3, 50)
    assert 0.009 < goru.weight_ih_l0.abs().max() <= 0.01
    assert 0.009 < goru.weight_hh_l0.abs().max() <= 0.01
    assert (goru.gate_rows("r", "bias_ih_l0") == 2).all()
    assert goru.gate_rows("g", "bias_ih_l0").abs().max() <= math.sqrt(3 / 50)
    assert (goru.bias_hh_l0 == 0).all()
    assert (goru.threshold_l0 == 0.01).all()
    eurnn = rotcell.EURNN(3, 50)
    assert (eurnn.threshold_l0 == 0).all()
    for layer in (goru, eurnn):
        assert 2 < layer.angles_l0.abs().max() <= math.pi


def test_gates_that_a_parameter_does_not_have() -> None:
    layer = rotcell.RUM(3, 5)
    assert [gate for gate, _ in layer.named_gates("weight_hh_l0")] == ["r", "u"]
    with pytest.raises(ValueError, match="has rows in weight_hh_l0, got 'e'"):
        layer.gate_rows("e", "weight_hh_l0")
    with pytest.raises(ValueError, match=r"a weight_ih of this EURNN, got 'angles_l0'"):
        rotcell.EURNN(3, 5).gate_rows("n", "angles_l0")


def test_checkpoints_name_their_cell(case: Case) -> None:
    layer = case.make()
    case.make().load_state_dict(layer.state_dict())
    with pytest.raises(RuntimeError, match=f"is that of a '{layer._cell.name}', expected"):
        rotcell.RotGRU(3, 5).load_state_dict(layer.state_dict())


def test_checkpoints_of_other_options() -> None:
    with pytest.raises(RuntimeError, match=r"saved with capacity=4 \(here 2\)"):
        rotcell.GORU(3, 5).load_state_dict(rotcell.GORU(3, 5, capacity=4).state_dict())
    with pytest.warns(UserWarning, match=r"saved with eta=2.0 \(here None\)"):
        rotcell.RUM(3, 5).load_state_dict(rotcell.RUM(3, 5, eta=2).state_dict())
    normalized = rotcell.LSTM(3, 5, layer_norm=True)
    with pytest.raises(RuntimeError, match="that of a 'layer_norm_lstm', expected 'lstm'"):
        rotcell.LSTM(3, 5).load_state_dict(normalized.state_dict())
    with pytest.raises(RuntimeError, match="gain_ih_l0"):
        normalized.load_state_dict(torch.nn.LSTM(3, 5).state_dict())
    with pytest.raises(TypeError, match=r"a rotcell\.LSTM without layer norm"):
        rotcell.RotLSTM.from_lstm(normalized)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: rotcell.LSTM(3, 4, layer_norm=1), TypeError, "layer_norm must be a bool"),
        (lambda: rotcell.RUM(3, 4, eta=0), ValueError, "eta must be None or positive"),
        (lambda: rotcell.RUM(3, 4, eta="1"), TypeError, "eta must be None or a real number"),
        (lambda: rotcell.RUM(3, 4, proj_size=2), ValueError, "proj_size must be None"),
        (lambda: rotcell.GORU(3, 4, capacity=0), ValueError, "capacity must be greater than zero"),
        (lambda: rotcell.GORU(3, 4, capacity=2.0), TypeError, "capacity must be an int"),
        (lambda: rotcell.GORU(3, 4, zoneout=(0.1, 0.2)), ValueError, "zoneout must be a float"),
        (lambda: rotcell.EURNN(3, 4, bias=False), ValueError, "bias must be True"),
        (lambda: rotcell.EURNNCell(3, 4, bias=False), ValueError, "bias must be True"),
        (lambda: rotcell.GORUCell(3, 4, capacity=0), ValueError, "capacity must be greater"),
        (lambda: rotcell.RUMCell(3, 4, eta=-1.0), ValueError, "eta must be None or positive"),
        (lambda: rotcell.EURNN(3, 4, recurrent_dropout=0.1), TypeError, "'recurrent_dropout'"),
    ],
)
def test_bad_options_are_refused(
    make: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()
