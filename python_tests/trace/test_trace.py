"""`rotcell.trace` against plain loops over single rows, written out here once more."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import rotcell
from rotcell import LSTM, ClassicGRU, RotGRU, RotLSTM
from rotcell.tracing.summary import turn

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6}


def turned(d, u):
    """Pairs of d turned by u; a last unit without a partner stays."""
    found = d.clone()
    for k in range(len(u)):
        cos, sin = math.cos(u[k]), math.sin(u[k])
        found[2 * k] = cos * d[2 * k] - sin * d[2 * k + 1]
        found[2 * k + 1] = sin * d[2 * k] + cos * d[2 * k + 1]
    return found


def parts_of(stacked, count, hidden):
    """The gates, then the angles."""
    return [*stacked[: count * hidden].split(hidden), stacked[count * hidden :]]


def hard_sigmoid(a):
    return (0.2 * a + 0.5).clamp(0, 1)


ACTIVATIONS = {"sigmoid": torch.sigmoid, "hard_sigmoid": hard_sigmoid}


def lstm_row(x, h, c, w_ih, w_hh, b_ih, b_hh, w_hr, gate_activation, angle_activation):
    """All that happens to one row; arrays by name, [T, ...]."""
    steps = []
    for x_t in x:
        a = w_ih @ x_t + b_ih + w_hh @ h + b_hh
        i, f, g, o, rot = parts_of(a, 4, len(c))
        i, f, o, g, u = (
            gate_activation(i),
            gate_activation(f),
            gate_activation(o),
            g.tanh(),
            2 * math.pi * angle_activation(rot),
        )
        kept, previous = f * c, c
        d = kept + i * g
        c = turned(d, u)
        h = o * c.tanh()
        h = h if w_hr is None else w_hr @ h
        steps.append(
            {"angles": u, "i": i, "f": f, "g": g, "o": o, "before_rotation": d, "state": c,
             "after_rotation": c, "output": h, "kept": kept, "previous_state": previous}
        )  # fmt: skip
    return steps


def gru_row(x, h, w_ih, w_hh, b_ih, b_hh, gate_activation, angle_activation):
    """As `lstm_row`."""
    hidden = len(h)
    steps = []
    for x_t in x:
        from_x, from_h = (
            parts_of(w_ih @ x_t + b_ih, 3, hidden),
            parts_of(w_hh @ h + b_hh, 3, hidden),
        )
        r, z = (gate_activation(from_x[k] + from_h[k]) for k in (0, 1))
        u = 2 * math.pi * angle_activation(from_x[3] + from_h[3])
        previous, d = h, r * h
        n_rows = slice(2 * hidden, 3 * hidden)
        n = (from_x[2] + w_hh[n_rows] @ turned(d, u) + b_hh[n_rows]).tanh()
        h = (1 - z) * h + z * n
        steps.append(
            {"angles": u, "r": r, "z": z, "n": n, "before_rotation": d, "state": h,
             "after_rotation": turned(d, u), "output": h, "kept": d, "previous_state": previous}
        )  # fmt: skip
    return steps


def expected_of(layer, x, states):
    """Per direction, what happens to one row x [T, input]: arrays by name."""
    directions = 2 if layer.bidirectional else 1
    names = layer.gate_activation, getattr(layer, "angle_activation", "sigmoid")
    activations = [ACTIVATIONS[name] for name in names]
    found = []
    for number in range(layer.num_layers):
        outputs = []
        for reverse in range(directions):
            k = number * directions + reverse
            suffix = f"l{number}{'_reverse' if reverse else ''}"
            rows = layer.weight_hh_l0.shape[0]
            weights = [
                getattr(layer, f"{kind}_{suffix}", torch.zeros(rows, dtype=x.dtype)).detach()
                for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            ]
            read = x.flip(0) if reverse else x
            if isinstance(layer, (RotGRU, ClassicGRU)):
                steps = gru_row(read, states[0][k], *weights, *activations)
            else:
                w_hr = getattr(layer, f"weight_hr_{suffix}", None)
                w_hr = None if w_hr is None else w_hr.detach()
                steps = lstm_row(read, states[0][k], states[1][k], *weights, w_hr, *activations)
            arrays = {name: torch.stack([s[name] for s in steps]).detach() for name in steps[0]}
            arrays = {name: a.flip(0) if reverse else a for name, a in arrays.items()}
            found.append(arrays)
            outputs.append(arrays["output"])
        x = torch.cat(outputs, dim=-1)
    return found


LAYERS = {
    "lstm": lambda **o: RotLSTM(3, 5, **o),
    "lstm, two layers, two directions": lambda **o: RotLSTM(3, 4, 2, bidirectional=True, **o),
    "lstm, projection": lambda **o: RotLSTM(3, 6, 2, bidirectional=True, proj_size=2, **o),
    "lstm, no biases": lambda **o: RotLSTM(3, 4, bias=False, **o),
    "lstm, hard gates": lambda **o: RotLSTM(3, 5, gate_activation="hard_sigmoid", **o),
    "lstm, hard angles": lambda **o: RotLSTM(3, 5, angle_activation="hard_sigmoid", **o),
    "lstm without rotation": lambda **o: LSTM(3, 5, 2, bidirectional=True, **o),
    "gru": lambda **o: RotGRU(3, 5, **o),
    "gru, hard gates": lambda **o: RotGRU(3, 5, gate_activation="hard_sigmoid", **o),
    "gru without rotation": lambda **o: ClassicGRU(3, 5, **o),
    "gru, two layers, two directions": lambda **o: RotGRU(3, 4, 2, bidirectional=True, **o),
}


def random_states(layer, batch):
    """As the layer takes them, and as a tuple."""
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    sizes = [layer.proj_size or layer.hidden_size, layer.hidden_size]
    is_gru = isinstance(layer, (RotGRU, ClassicGRU))
    sizes = sizes[:1] if is_gru else sizes
    dtype = layer.weight_ih_l0.dtype
    states = tuple(torch.randn(count, batch, size, dtype=dtype) for size in sizes)
    return (states[0] if is_gru else states), states


def assert_row_equals(trace, row, expected, dtype):
    for direction, arrays in zip(trace, expected, strict=True):
        for name, array in arrays.items():
            if name == "angles" and not direction.rotates:
                assert array.shape[-1] == 0
                continue
            torch.testing.assert_close(
                direction.row(name, row), array, rtol=0, atol=TOLERANCE[dtype], msg=name
            )


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_equals_a_plain_loop(make, dtype):
    layer = make(dtype=dtype)
    x = torch.randn(7, 3, 3, dtype=dtype)
    given, states = random_states(layer, 3)
    trace = rotcell.trace(layer, x, given)
    for row in range(3):
        expected = expected_of(layer, x[:, row], [s[:, row] for s in states])
        assert_row_equals(trace, row, expected, dtype)


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_packed_rows_are_in_the_callers_order(make):
    layer = make(dtype=torch.float64)
    rows = [torch.randn(length, 3, dtype=torch.float64) for length in (2, 6, 1, 6, 4)]
    packed = pack_sequence(rows, enforce_sorted=False)
    given, states = random_states(layer, len(rows))
    trace = rotcell.trace(layer, packed, given)
    for row, x in enumerate(rows):
        assert trace.layout.length(row) == len(x)
        expected = expected_of(layer, x, [s[:, row] for s in states])
        assert_row_equals(trace, row, expected, torch.float64)
    own, _ = layer(packed, given)
    assert isinstance(trace[0].state, PackedSequence)
    assert torch.equal(trace.output.data, own.data)
    assert torch.equal(trace.output.unsorted_indices, own.unsorted_indices)
    arrays = trace.to_numpy()
    assert arrays["output_l0"].shape[:2] == (6, 5)
    assert np.isnan(arrays["output_l0"][2:, 0]).all()
    assert np.array_equal(arrays["output_l0"][:2, 0], trace[0].row("output", 0).numpy())


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_same_bits_and_layout_as_the_layer(make, batch_first):
    layer = make(batch_first=batch_first)
    x = torch.randn(4, 6, 3)
    output, state = layer(x)
    trace = rotcell.trace(layer, x)
    assert torch.equal(trace.output, output)
    last = state if isinstance(state, tuple) else (state,)
    mine = trace.state if isinstance(trace.state, tuple) else (trace.state,)
    assert all(torch.equal(a, b) for a, b in zip(mine, last, strict=True))
    top = trace[-2:] if layer.bidirectional else trace[-1:]
    assert torch.equal(torch.cat([d.output for d in top], dim=-1), output)
    for direction in trace:
        for name in direction.names:
            assert direction[name].shape[:2] == (4, 6), name


def test_unbatched_input_is_traced_without_a_batch_dimension():
    layer, x = RotLSTM(3, 4), torch.randn(5, 3)
    trace = rotcell.trace(layer, x)
    assert trace[0].angles.shape == (5, 2)
    assert torch.equal(trace.output, layer(x)[0])


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_episodes_are_traced_as_if_alone(make):
    layer = make().double().eval()
    begins = [0, 3, 4, 9]
    x = torch.randn(9, 1, layer.input_size, dtype=torch.float64)
    resets = torch.zeros(9, 1, dtype=torch.bool)
    resets[begins[1:-1]] = True
    if layer.batch_first:
        x, resets = x.transpose(0, 1), resets.transpose(0, 1)
    time = 1 if layer.batch_first else 0
    whole = rotcell.trace(layer, x, resets=resets)
    parts = [
        rotcell.trace(layer, x.narrow(time, begin, end - begin))
        for begin, end in itertools.pairwise(begins)
    ]
    for k, direction in enumerate(whole):
        for name in (*direction.names, "previous_state", "kept"):
            alone = torch.cat([part[k].flat(name) for part in parts])
            torch.testing.assert_close(direction.flat(name), alone, rtol=0, atol=1e-14)
    torch.testing.assert_close(whole.output, layer(x, resets=resets)[0], rtol=0, atol=0)


@pytest.mark.parametrize("bias", [True, False])
def test_an_lstm_of_torch_has_no_angles(bias):
    lstm = nn.LSTM(3, 5, 2, bias=bias, bidirectional=True, batch_first=True)
    x = torch.randn(2, 6, 3)
    trace = rotcell.trace(lstm, x)
    torch.testing.assert_close(trace.output, lstm(x)[0].detach())
    assert trace.cell == "LSTM"
    assert trace[0].angles is None
    assert "angles" not in trace[0].names
    assert torch.equal(trace[0].before_rotation, trace[0].after_rotation)
    for last, direction in zip(lstm(x)[1][1].detach(), trace, strict=True):
        step = 0 if direction.reverse else -1
        torch.testing.assert_close(direction.state[:, step], last)
    assert math.isnan(trace.summary()[0].mean_angle)
    assert "nan" not in str(trace.summary())
    assert 0 < trace.summary()[0].norm_kept < 1


def test_leaves_the_layer_as_it_was():
    layer, x = RotLSTM(3, 4, 2, dropout=0.5), torch.randn(5, 2, 3)
    before = dict(layer.__dict__)
    rotcell.trace(layer, x)
    assert layer.__dict__.keys() == before.keys()
    torch.manual_seed(1)
    output, _ = layer(x)
    torch.manual_seed(1)
    assert torch.equal(rotcell.trace(layer, x).output, output.detach())
    assert output.requires_grad
    assert not rotcell.trace(layer, x).output.requires_grad


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_traced_in_the_kernels_dtype(dtype):
    layer, x = RotLSTM(3, 4, dtype=dtype), torch.randn(5, 2, 3, dtype=dtype)
    trace = rotcell.trace(layer, x)
    assert trace[0].angles.dtype == torch.float32
    assert torch.equal(trace.output, layer(x)[0].detach())
    assert trace.to_numpy()["output_l0"].shape == (5, 2, 4)


def test_autocast_acts_as_in_the_layer():
    layer, x = RotLSTM(3, 4, 2), torch.randn(5, 2, 3)
    with torch.autocast("cpu", torch.bfloat16):
        trace, (output, _) = rotcell.trace(layer, x), layer(x)
    assert output.dtype == torch.bfloat16
    assert torch.equal(trace.output, output.detach())
    assert trace[1].angles.dtype == torch.float32


def test_summary_counts_saturated_steps_and_averages_round_the_circle():
    layer = RotLSTM(1, 4)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.bias_ih_l0[16] = -20.0  # pair 0 never turns
        # Pair 1 turns by 0.2 at one token and by 2 pi - 0.2 at the next: by nothing on average.
        share = 0.2 / (2 * math.pi)
        layer.weight_ih_l0[17, 0] = math.log(share / (1 - share))
        layer.bias_ih_l0[4:8] = 20.0  # nothing is forgotten
        layer.bias_ih_l0[8:12] = 1.0
    x = torch.tensor([1.0, -1.0] * 10)[:, None, None]
    first, second = rotcell.trace(layer, x).summary()
    assert first.saturated == 1
    assert first.turn == pytest.approx(0, abs=1e-6)
    assert second.saturated == 0
    assert second.turn == pytest.approx(0.2, abs=1e-5)
    assert math.cos(second.mean_angle) == pytest.approx(1, abs=1e-6)
    assert second.spread == pytest.approx(math.sqrt(-2 * math.log(math.cos(0.2))), abs=1e-4)
    assert first.norm_kept == pytest.approx(1, abs=1e-6)
    assert "saturated" in str(rotcell.trace(layer, x).summary())


def test_turn_is_the_signed_distance_to_the_nearest_whole_turn():
    angles = torch.tensor([0.0, 0.1, math.pi, 2 * math.pi - 0.1])
    torch.testing.assert_close(turn(angles), torch.tensor([0.0, 0.1, math.pi, 0.1]))


def test_directions_are_found_by_name_and_others_refused():
    trace = rotcell.trace(RotLSTM(3, 4, 2, bidirectional=True), torch.randn(2, 1, 3))
    assert [d.name for d in trace] == ["l0", "l0_reverse", "l1", "l1_reverse"]
    assert trace["l1_reverse"] is trace[3]
    with pytest.raises(KeyError, match="l0, l0_reverse"):
        trace["l7"]
    with pytest.raises(KeyError, match="angles"):
        trace[0]["q"]


def test_untraceable_layers_are_refused_with_a_reason():
    x = torch.randn(2, 1, 3)
    with pytest.raises(TypeError, match=r"got nn\.GRU: load .* into a rotcell\.GRU"):
        rotcell.trace(nn.GRU(3, 4), x)
    with pytest.raises(TypeError, match=r"got nn\.Linear"):
        rotcell.trace(nn.Linear(3, 4), x)
    with pytest.raises(TypeError, match="x must be"):
        rotcell.trace(RotLSTM(3, 4), [1, 2])
    with pytest.raises(RuntimeError, match="input_size=3"):
        rotcell.trace(RotLSTM(3, 4), torch.randn(2, 1, 5))
    with rotcell.use_reference(), pytest.raises(RuntimeError, match="kernels save"):
        rotcell.trace(RotLSTM(3, 4), x)
