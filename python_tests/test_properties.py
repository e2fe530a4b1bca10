"""Laws that hold for every shape: hypothesis looks for one that breaks them."""

from __future__ import annotations

from typing import Any

import torch
from helpers import KINDS, LSTM, Kind, assert_all_near, assert_near, pack, states_for
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import unpack_sequence

from rotcell.reference import rotate

settings.register_profile("rotcell", max_examples=40, deadline=None, derandomize=True)
settings.load_profile("rotcell")

kinds = st.sampled_from(KINDS)
small = st.integers(1, 9)
seeds = st.integers(0, 2**31 - 1)
booleans = st.booleans()
lengths = st.lists(st.integers(1, 7), min_size=1, max_size=6)


@st.composite
def layers(draw: Any, **fixed: Any) -> tuple[Kind, Any]:
    """Any kind of layer, in float64, in evaluation."""
    torch.manual_seed(draw(seeds))
    kind = draw(kinds)
    hidden = draw(small)
    options = {
        "num_layers": draw(st.integers(1, 3)),
        "bias": draw(booleans),
        "bidirectional": draw(booleans),
    }
    if kind.description.can_project and hidden > 1:
        options["proj_size"] = draw(st.integers(0, hidden - 1))
    options |= fixed
    return kind, kind.layer(draw(small), hidden, dtype=torch.float64, **options)


def inputs_for(kind: Kind, layer: Any, steps: int, batch: int) -> tuple[Tensor, tuple[Tensor, ...]]:
    x = torch.randn(steps, batch, layer.input_size, dtype=torch.float64)
    return x, states_for(kind, layer, batch)


@given(layers(), lengths)
def test_packed_result_is_that_of_each_sequence_alone(
    kind_layer: tuple[Kind, Any], lengths: list[int]
) -> None:
    kind, layer = kind_layer
    sequences = [torch.randn(n, layer.input_size, dtype=torch.float64) for n in lengths]
    states = states_for(kind, layer, len(lengths))
    out, hx = layer(pack(sequences), kind.as_hx(states))
    for b, (sequence, packed_out) in enumerate(zip(sequences, unpack_sequence(out), strict=True)):
        alone, last = layer(sequence, kind.as_hx([s[:, b] for s in states]))
        assert_near(packed_out, alone)
        assert_all_near([s[:, b] for s in kind.as_states(hx)], kind.as_states(last))


@given(layers(), st.integers(1, 5), st.integers(2, 6), seeds)
def test_rows_of_a_batch_do_not_see_each_other(
    kind_layer: tuple[Kind, Any], steps: int, batch: int, seed: int
) -> None:
    kind, layer = kind_layer
    x, states = inputs_for(kind, layer, steps, batch)
    order = torch.randperm(batch, generator=torch.Generator().manual_seed(seed))[: batch - 1]
    out, hx = layer(x, kind.as_hx(states))
    some, some_hx = layer(x[:, order], kind.as_hx([s[:, order] for s in states]))
    assert_near(some, out[:, order])
    assert_all_near(kind.as_states(some_hx), [s[:, order] for s in kind.as_states(hx)])


@given(layers(bidirectional=False), st.integers(1, 5), st.integers(1, 5), small)
def test_a_sequence_may_be_cut_anywhere(
    kind_layer: tuple[Kind, Any], before: int, after: int, batch: int
) -> None:
    kind, layer = kind_layer
    x, states = inputs_for(kind, layer, before + after, batch)
    out, hx = layer(x, kind.as_hx(states))
    first, middle = layer(x[:before], kind.as_hx(states))
    second, last = layer(x[before:], middle)
    assert_near(torch.cat([first, second]), out)
    assert_all_near(kind.as_states(last), kind.as_states(hx))


def one_direction(kind: Kind, layer: Any, number: int, suffix: str) -> Any:
    """A separate layer with the weights of one layer and direction."""
    weights = {
        name.split("_l")[0] + "_l0": p
        for name, p in layer.state_dict().items()
        if name.endswith(f"_l{number}{suffix}")
    }
    options = {"bias": layer.bias} | ({"proj_size": layer.proj_size} if layer.proj_size else {})
    width = weights["weight_ih_l0"].shape[1]
    single = kind.layer(width, layer.hidden_size, dtype=torch.float64, **options)
    single.load_state_dict(weights)
    return single


@given(layers(num_layers=1, bidirectional=True), st.integers(1, 6), small)
def test_bidirectional_is_a_forward_and_a_reverse_run(
    kind_layer: tuple[Kind, Any], steps: int, batch: int
) -> None:
    kind, layer = kind_layer
    x, states = inputs_for(kind, layer, steps, batch)
    out, hx = layer(x, kind.as_hx(states))
    ahead, ahead_hx = one_direction(kind, layer, 0, "")(x, kind.as_hx([s[:1] for s in states]))
    back, back_hx = one_direction(kind, layer, 0, "_reverse")(
        x.flip(0), kind.as_hx([s[1:] for s in states])
    )
    assert_near(out, torch.cat([ahead, back.flip(0)], dim=-1))
    both = zip(kind.as_states(ahead_hx), kind.as_states(back_hx), strict=True)
    assert_all_near(kind.as_states(hx), [torch.cat(pair) for pair in both])


@given(layers(bidirectional=False), st.integers(1, 6), small)
def test_stacked_layers_are_layers_one_after_the_other(
    kind_layer: tuple[Kind, Any], steps: int, batch: int
) -> None:
    kind, layer = kind_layer
    x, states = inputs_for(kind, layer, steps, batch)
    out, hx = layer(x, kind.as_hx(states))
    last = []
    for number in range(layer.num_layers):
        single = one_direction(kind, layer, number, "")
        x, single_hx = single(x, kind.as_hx([s[number : number + 1] for s in states]))
        last.append(kind.as_states(single_hx))
    assert_near(out, x)
    assert_all_near(kind.as_states(hx), [torch.cat(parts) for parts in zip(*last, strict=True)])


@given(st.integers(0, 12), st.integers(0, 5), seeds)
def test_rotation_preserves_length_pair_by_pair(size: int, batch: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    d = torch.randn(batch, size, dtype=torch.float64, generator=generator)
    u = 20 * torch.randn(batch, size // 2, dtype=torch.float64, generator=generator)
    c, paired = rotate(d, u), size // 2 * 2
    assert_near(c.norm(dim=-1), d.norm(dim=-1))
    pairs, rotated = (t[:, :paired].reshape(batch, size // 2, 2) for t in (d, c))
    assert_near(rotated.norm(dim=-1), pairs.norm(dim=-1))
    assert torch.equal(c[:, paired:], d[:, paired:])


@given(small, small, st.integers(1, 6), seeds)
def test_cell_state_keeps_its_length_when_only_rotated(
    hidden: int, batch: int, steps: int, seed: int
) -> None:
    """Forget gate open, input gate shut: whatever the angles, |c_t| = |c_0|."""
    torch.manual_seed(seed)
    layer = LSTM.layer(3, hidden, dtype=torch.float64)
    with torch.no_grad():
        layer.bias_ih_l0[:hidden] = -1e4
        layer.bias_ih_l0[hidden : 2 * hidden] = 1e4
    x, (h, c) = inputs_for(LSTM, layer, steps, batch)
    _, (_, c_n) = layer(x, (h, c))
    assert_near(c_n.norm(dim=-1), c.norm(dim=-1))


@given(layers(), st.integers(1, 6), small)
def test_outputs_stay_between_minus_and_plus_one(
    kind_layer: tuple[Kind, Any], steps: int, batch: int
) -> None:
    """o tanh(c) always; for the GRU when it starts there, being a mean of h and tanh."""
    kind, layer = kind_layer
    if layer.proj_size:
        return
    x, states = inputs_for(kind, layer, steps, batch)
    out, _ = layer(100 * x, kind.as_hx([s.tanh() for s in states]))
    assert out.abs().max() <= 1
