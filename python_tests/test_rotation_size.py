"""rotation_size: RotLSTM and RotGRU rotate groups of k units by brickwork layers of planes."""

from __future__ import annotations

import copy
import math
import warnings
from functools import partial
from typing import Any

import pytest
import torch
from helpers import (
    GRU,
    LSTM,
    Kind,
    assert_all_near,
    assert_near,
    check_derivatives,
    check_equations,
)
from torch import Tensor, nn

import rotcell
from rotcell.reference import CELLS, angles_per_group, rotate_groups

pytestmark = pytest.mark.filterwarnings("ignore:rotcell has no kernels:UserWarning")

TOLERANCES = {
    torch.float64: 1e-11,
    torch.float32: 3e-5,
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}
PAIRED = (LSTM, GRU)
kinds = pytest.mark.parametrize("kind", PAIRED, ids=str)

# Steps, batch, inputs, units: with and without units left over, and each way the CPU runtime has
# to run a call.
SHAPES = {
    "few_tokens": (2, 3, 4, 9),
    "one_row": (30, 1, 8, 45),
    "by_step": (8, 9, 5, 19),
    "one_group": (9, 16, 3, 8),
    "many_rows": (6, 32, 10, 72),
    "shared_units": (20, 1, 256, 300),
}


def rotated(d: Tensor, u: Tensor, size: int) -> Tensor:
    """Groups of d [B, H], times the exponential of each layer's skew-symmetric matrix."""
    groups = d.shape[1] // size
    angles = u.unflatten(1, (groups, -1))
    g = d[:, : groups * size].unflatten(1, (groups, size))
    number = 0
    for layer in range(size):
        generator = u.new_zeros(len(d), groups, size, size)
        for first in range(layer % 2, size - 1, 2):
            quarter = torch.zeros(size, size, dtype=u.dtype)
            quarter[first + 1, first], quarter[first, first + 1] = 1, -1
            generator = generator + angles[:, :, number, None, None] * quarter
            number += 1
        g = (torch.matrix_exp(generator) @ g.unsqueeze(-1)).squeeze(-1)
    assert number == angles.shape[2]
    return torch.cat([g.flatten(1), d[:, groups * size :]], dim=1)


def written_again(
    kind: Kind, k: int, x: Tensor, states: list[Tensor], weights: list[Tensor]
) -> list[Tensor]:
    """The equations of a timestep."""
    w_ih, w_hh, b_ih, b_hh = weights
    hidden = states[0].shape[-1]
    of_x, of_h = x @ w_ih.T + b_ih, states[0] @ w_hh.T + b_hh
    gates = (4 if kind is LSTM else 3) * hidden
    u = 2 * math.pi * torch.sigmoid((of_x + of_h)[:, gates:])
    if kind is LSTM:
        _, c = states
        i, f, g, o = (of_x + of_h)[:, :gates].split(hidden, dim=1)
        c = rotated(f.sigmoid() * c + i.sigmoid() * g.tanh(), u, k)
        return [o.sigmoid() * c.tanh(), c]
    (h,) = states
    r, z = (of_x + of_h)[:, : 2 * hidden].sigmoid().split(hidden, dim=1)
    w_n, b_n = w_hh[2 * hidden : gates], b_hh[2 * hidden : gates]
    n = torch.tanh(of_x[:, 2 * hidden : gates] + rotated(h * r, u, k) @ w_n.T + b_n)
    return [(1 - z) * h + z * n]


def check_size(
    kind: Kind, k: int, shape: tuple[int, int, int, int], dtype: torch.dtype, packed: bool
) -> None:
    steps, batch, inputs, hidden = shape
    layer = kind.layer(inputs, hidden, rotation_size=k).to(dtype)
    step = partial(written_again, kind, k)
    check_equations(kind, layer, step, (steps, batch), packed, TOLERANCES[dtype])


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("k", [3, 4, 5, 8])
@kinds
def test_it_follows_the_equations(
    kind: Kind, k: int, shape: tuple[int, int, int, int], packed: bool
) -> None:
    check_size(kind, k, shape, torch.float64, packed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("k", [3, 4, 8])
@kinds
def test_every_dtype_follows_the_equations(kind: Kind, k: int, dtype: torch.dtype) -> None:
    check_size(kind, k, (6, 9, 5, 35), dtype, packed=False)


def test_groups_of_two_are_the_pairs() -> None:
    d, u = torch.randn(3, 7), torch.randn(3, 3)
    assert torch.equal(rotate_groups(d, u, 2), CELLS["rot_lstm"].rotation.turn(d, u))
    layer = rotcell.RotLSTM(3, 7, rotation_size=2)
    assert layer._cell is CELLS["rot_lstm"]
    assert "rotation_size" not in repr(layer)


@pytest.mark.parametrize("k", [3, 4, 5, 8])
def test_a_rotation_is_orthogonal_proper_and_undone_by_its_inverse(k: int) -> None:
    hidden = 2 * k + 1
    u = torch.randn(2 * angles_per_group(k), dtype=torch.float64) * 3
    matrix = rotate_groups(torch.eye(hidden, dtype=torch.float64), u, k).T
    assert_near(matrix @ matrix.T, torch.eye(hidden, dtype=torch.float64))
    assert_near(torch.linalg.det(matrix), torch.tensor(1.0, dtype=torch.float64))
    d = torch.randn(4, hidden, dtype=torch.float64)
    assert_near(rotate_groups(rotate_groups(d, u, k), u, k, inverse=True), d)
    assert (matrix[:k, :k].abs() > 1e-3).sum() > k  # it mixes more than pairs


@kinds
def test_shapes_names_and_repr(kind: Kind) -> None:
    layer, cell = kind.layer(3, 11, rotation_size=4), kind.cell(3, 11, rotation_size=4)
    gates = len(kind.description.gates) - 1
    assert layer.weight_ih_l0.shape == cell.weight_ih.shape == (gates * 11 + 12, 3)
    assert layer.gate_rows("rot", "weight_hh_l0").shape == (12, 11)
    assert "rotation_size=4" in repr(layer)
    assert "rotation_size=4" in repr(cell)
    alone = kind.layer(3, 11, rotation_size=4, angles_from="input")
    assert alone.weight_hh_l0.shape == (gates * 11, 11)
    shifted = kind.layer(3, 11, rotation_size=4, rotation_bias=-50.0)
    assert (shifted.gate_rows("rot", "bias_ih_l0") < -40).all()


@pytest.mark.parametrize(
    ("size", "error", "message"),
    [
        (1, ValueError, "rotation_size must be between 2 and hidden_size=6, got 1"),
        (7, ValueError, "rotation_size must be between 2 and hidden_size=6, got 7"),
        (2.0, TypeError, "rotation_size must be an int, got float"),
        (True, TypeError, "rotation_size must be an int, got bool"),
    ],
)
@kinds
def test_other_sizes_are_refused(
    kind: Kind, size: Any, error: type[Exception], message: str
) -> None:
    for module in (kind.layer, kind.cell):
        with pytest.raises(error, match=message):
            module(3, 6, rotation_size=size)


@kinds
def test_a_checkpoint_of_another_size_is_refused(kind: Kind) -> None:
    # With 6 units, groups of 3 and of 4 have as many angles.
    three, four = kind.layer(3, 6, rotation_size=3), kind.layer(3, 6, rotation_size=4)
    three.load_state_dict(kind.layer(3, 6, rotation_size=3).state_dict())
    with pytest.raises(RuntimeError, match=r"saved with rotation_size=4 \(here 3\)"):
        three.load_state_dict(four.state_dict())
    with pytest.raises(RuntimeError, match=r"saved with rotation_size=4 \(here 2\)"):
        kind.layer(3, 6).load_state_dict(four.state_dict())
    with pytest.raises(RuntimeError, match=r"saved with rotation_size=2 \(here 4\)"):
        four.load_state_dict(kind.layer(3, 6).state_dict())


@kinds
def test_weights_of_another_size_without_a_description_are_named(kind: Kind) -> None:
    for module in (kind.layer, kind.cell):
        pairs = dict(module(3, 11).state_dict())  # a plain dict, as safetensors has them
        module(3, 11).load_state_dict(pairs)
        with pytest.raises(RuntimeError, match=r"as with rotation_size=2, expected .*size=4"):
            module(3, 11, rotation_size=4).load_state_dict(pairs)
        fives = dict(module(3, 5, rotation_size=5).state_dict())
        with pytest.raises(RuntimeError, match=r"as with rotation_size=5, expected .*size=2"):
            module(3, 5).load_state_dict(fives)


@pytest.mark.parametrize("k", [3, 4])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "bias": False}])
@kinds
def test_gradients_once_and_twice(kind: Kind, options: dict[str, Any], k: int) -> None:
    layer = kind.layer(2, 5, rotation_size=k, dtype=torch.float64, **options)
    check_derivatives(layer)


@pytest.mark.parametrize("angles_from", ["both", "input"])
@pytest.mark.parametrize("k", [3, 4, 8])
@kinds
def test_every_option_goes_with_it(kind: Kind, k: int, angles_from: str) -> None:
    options: dict[str, Any] = {"recurrent_dropout": 0.3, "zoneout": 0.2, "num_layers": 2}
    layer = kind.layer(
        4, 17, rotation_size=k, angles_from=angles_from, dtype=torch.float64, **options
    )
    x, resets = torch.randn(7, 3, 3).double(), torch.rand(7, 3) < 0.3
    context = torch.randn(3, 1).double()
    results = []
    for reference in (False, True):
        torch.manual_seed(0)
        with rotcell.use_reference() if reference else warnings.catch_warnings():
            out, last = layer(x, resets=resets, context=context)
        grads = torch.autograd.grad(out.sum(), list(layer.parameters()))
        results.append([out, *kind.as_states(last), *grads])
    assert_all_near(*results)


@pytest.mark.parametrize("k", [4, 5])
@kinds
def test_context_single_step_compile_and_vmap(kind: Kind, k: int) -> None:
    layer = kind.layer(4, 10, rotation_size=k, dtype=torch.float64)
    x, context = torch.randn(6, 3, 3).double(), torch.randn(3, 1).double()
    joined = torch.cat([x, context.expand(6, 3, 1)], dim=-1)
    expected, last = layer(joined)
    assert_near(layer(x, context=context)[0], expected)
    cell = kind.cell(4, 10, rotation_size=k, dtype=torch.float64)
    cell.load_state_dict({n.removesuffix("_l0"): v for n, v in layer.state_dict().items()})
    state: Any = None
    for x_t in joined:
        state = cell(x_t, state)
    assert_all_near(kind.as_states(state), [s[0] for s in kind.as_states(last)])
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_near(compiled(joined)[0], expected)
    each = torch.func.vmap(lambda one: layer(one)[0], in_dims=1, out_dims=1)(joined)
    assert_near(each, expected)
    twin = copy.deepcopy(layer)
    assert torch.equal(twin(joined)[0], expected)
    assert twin._cell is layer._cell


def test_from_lstm_starts_as_the_lstm() -> None:
    lstm = nn.LSTM(3, 10, num_layers=2, dtype=torch.float64)
    layer = rotcell.RotLSTM.from_lstm(lstm, rotation_size=4)
    x = torch.randn(5, 2, 3).double()
    assert_near(layer(x)[0], lstm(x)[0])
    assert layer.rotation_size == 4


def test_projections_go_with_it() -> None:
    layer = rotcell.RotLSTM(3, 9, proj_size=2, rotation_size=4, dtype=torch.float64)
    x = torch.randn(5, 4, 3).double()
    with rotcell.use_reference():
        expected, _ = layer(x)
    assert_near(layer(x)[0], expected)


def test_layer_norm_does_not_go_with_it() -> None:
    for module in (rotcell.RotLSTM, rotcell.RotLSTMCell):
        with pytest.raises(ValueError, match="rotation_size must be 2 with layer_norm, got 4"):
            module(3, 8, rotation_size=4, layer_norm=True)


@pytest.mark.parametrize("k", [3, 4, 8])
@kinds
def test_trace_names_the_plane_of_every_angle(kind: Kind, k: int) -> None:
    layer, x = kind.layer(3, 2 * k + 1, rotation_size=k, dtype=torch.float64), torch.randn(5, 2, 3)
    found = rotcell.trace(layer, x.double())[0]
    planes, angles = found.planes, found.angles
    assert isinstance(angles, Tensor)
    assert angles.shape == (5, 2, len(planes))
    assert len(planes) == 2 * angles_per_group(k)
    assert planes[:2] == [(0, 0, (0, 1)), (0, 0, (2, 3)) if k > 3 else (0, 1, (1, 2))]
    assert planes[len(planes) // 2] == (1, 0, (k, k + 1))
    # Turning each plane by its angle, in this order, is the rotation.
    d, after = found.before_rotation, found.after_rotation
    assert isinstance(d, Tensor)
    assert isinstance(after, Tensor)
    turned = d.clone()
    for plane, u in zip(planes, angles.unbind(-1), strict=True):
        a, b = (turned[..., unit].clone() for unit in plane.units)
        turned[..., plane.units[0]] = u.cos() * a - u.sin() * b
        turned[..., plane.units[1]] = u.sin() * a + u.cos() * b
    assert_near(turned, after)


def test_summary_of_a_trace_has_a_row_per_plane() -> None:
    layer, x = rotcell.RotLSTM(3, 7, rotation_size=3).double(), torch.randn(50, 2, 3).double()
    with torch.no_grad():
        layer.gate_rows("rot", "weight_hh_l0").zero_()
        layer.gate_rows("rot", "weight_ih_l0").zero_()
        quarters = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.6, 0.9], dtype=torch.float64)
        layer.gate_rows("rot", "bias_ih_l0").copy_(torch.logit(quarters))
        layer.gate_rows("rot", "bias_hh_l0").zero_()
    trace = rotcell.trace(layer, x)
    rows = trace.summary()
    assert [row.plane for row in rows] == trace[0].planes
    for row, quarter in zip(rows, quarters.tolist(), strict=True):
        assert row.mean_angle == pytest.approx(2 * math.pi * quarter)
        assert row.turn == pytest.approx(2 * math.pi * min(quarter, 1 - quarter))
    before, after = trace[0].flat("previous_state"), trace[0].flat("kept")
    a, b = rows[4].plane.units
    assert (a, b) == (4, 5)
    share = after[:, [a, b]].norm(dim=1).sum() / before[:, [a, b]].norm(dim=1).sum()
    assert rows[4].norm_kept == pytest.approx(share.item())
    assert "l0 group 1, layer 1 (4, 5)" in str(rows)
    assert trace.to_numpy()["angles_l0"].shape == (50, 2, 6)


def test_sizes_without_kernels_have_no_trace() -> None:
    with pytest.raises(RuntimeError, match="the cell is 'rot_lstm_5'"):
        rotcell.trace(rotcell.RotLSTM(3, 8, rotation_size=5), torch.randn(5, 2, 3))


def test_sizes_without_kernels_say_so_once() -> None:
    layer = rotcell.RotLSTM(3, 12, rotation_size=11)
    with pytest.warns(UserWarning, match="no kernels for the cell 'rot_lstm_11'"):
        layer(torch.randn(2, 2, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(torch.randn(2, 2, 3))
