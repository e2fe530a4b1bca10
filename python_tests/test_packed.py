"""PackedSequence in and out: every sequence as if it ran separately, at the cost of its length."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import (
    OPTIONS,
    Kind,
    assert_all_near,
    double_parameters,
    gradients,
    kinds_and_options,
    leaves,
    pack,
    random_sequences,
    run_sequences_alone,
    states_for,
)
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    unpack_sequence,
)

LENGTHS = {
    "sorted": [5, 3, 3, 1],
    "unsorted": [2, 5, 1, 4],
    "equal": [3, 3, 3],
    "one": [4],
    "all_of_length_one": [1, 1],
    "one_long": [1, 9, 1],
}


# Every option with one set of lengths, and all lengths with no option: neither knows of the other.
CASES = [
    (kind, name, lengths)
    for kind, name in kinds_and_options()
    for lengths in (LENGTHS if name == "default" else ["unsorted"])
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("kind", "name", "lengths"), CASES, ids=str)
def test_results_and_gradients_are_those_of_each_sequence_alone(
    kind: Kind, name: str, lengths: str, dtype: torch.dtype
) -> None:
    number = len(LENGTHS[lengths])
    layer = kind.layer(3, 5, dtype=dtype, **OPTIONS[name])
    sequences = leaves(random_sequences(LENGTHS[lengths], 3), dtype)
    states = leaves(states_for(kind, layer, number))
    packed_out, hx = layer(pack(sequences), kind.as_hx(states))
    results = [*unpack_sequence(packed_out), *kind.as_states(hx)]
    cotangents = [torch.randn_like(r, dtype=torch.float64) for r in results]
    actual = gradients(results, [*sequences, *states, *layer.parameters()], cotangents)

    sequences64, states64 = leaves(sequences, torch.float64), leaves(states, torch.float64)
    parameters = double_parameters(layer)
    outputs, last = run_sequences_alone(kind, layer, parameters, sequences64, states64)
    expected = gradients(
        [*outputs, *last], [*sequences64, *states64, *parameters.values()], cotangents
    )
    assert_all_near(results, [*outputs, *last])
    assert_all_near(actual, expected)


def test_missing_initial_state_is_zeros(kind: Kind) -> None:
    layer = kind.layer(3, 4, 2, bidirectional=True)
    packed = pack(random_sequences([2, 4], 3, torch.float32))
    zeros = kind.as_hx([torch.zeros_like(s) for s in states_for(kind, layer, 2)])
    out, hx = layer(packed)
    expected, expected_hx = layer(packed, zeros)
    assert torch.equal(out.data, expected.data)
    assert all(map(torch.equal, kind.as_states(hx), kind.as_states(expected_hx)))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(
    ("lengths", "enforce_sorted"), [([5, 3, 1], True), ([5, 3, 1], False), ([1, 5, 3], False)]
)
def test_output_is_packed_like_the_input(
    kind: Kind, lengths: list[int], enforce_sorted: bool, batch_first: bool
) -> None:
    layer = kind.layer(2, 4, batch_first=batch_first, bidirectional=True)
    plain = kind.plain_layer(2, 4, batch_first=batch_first, bidirectional=True)
    x = torch.randn((3, 5, 2) if batch_first else (5, 3, 2))
    packed = pack_padded_sequence(x, lengths, batch_first, enforce_sorted)
    (out, hx), (plain_out, plain_hx) = layer(packed), plain(packed)
    assert isinstance(out, PackedSequence)
    assert out.data.shape == plain_out.data.shape
    for name in ("batch_sizes", "sorted_indices", "unsorted_indices"):
        ours, theirs = getattr(out, name), getattr(plain_out, name)
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)
    assert [s.shape for s in kind.as_states(hx)] == [s.shape for s in kind.as_states(plain_hx)]


def test_equal_lengths_give_the_padded_result(kind_and_options: tuple[Kind, str]) -> None:
    kind, name = kind_and_options
    layer = kind.layer(3, 5, **OPTIONS[name]).double()
    x, hx = torch.randn(4, 3, 3).double(), kind.as_hx(states_for(kind, layer, 3))
    packed_out, packed_hx = layer(pack_padded_sequence(x, [4, 4, 4]), hx)
    out, last = layer(x, hx)
    assert_all_near(
        [pad_packed_sequence(packed_out)[0], *kind.as_states(packed_hx)],
        [out, *kind.as_states(last)],
    )


def test_padding_is_never_read(kind: Kind) -> None:
    layer = kind.layer(3, 5, 2, bidirectional=True)
    lengths = [2, 5, 3]
    x = torch.randn(5, 3, 3)
    expected, expected_hx = layer(pack_padded_sequence(x, lengths, enforce_sorted=False))
    for b, length in enumerate(lengths):
        x[length:, b] = float("nan")
    out, hx = layer(pack_padded_sequence(x, lengths, enforce_sorted=False))
    assert torch.equal(out.data, expected.data)
    assert all(map(torch.equal, kind.as_states(hx), kind.as_states(expected_hx)))


def test_states_follow_the_callers_order(kind: Kind) -> None:
    """Handing the last state in again continues each sequence, whatever the order of lengths."""
    layer = kind.layer(3, 5, 2).double()
    sequences = random_sequences([4, 8, 6], 3)
    whole, expected = layer(pack(sequences))
    _, hx = layer(pack([s[: k + 1] for k, s in enumerate(sequences)]))
    rest, last = layer(pack([s[k + 1 :] for k, s in enumerate(sequences)]), hx)
    assert_all_near(kind.as_states(last), kind.as_states(expected))
    tails = [s[k + 1 :] for k, s in enumerate(unpack_sequence(whole))]
    assert_all_near(unpack_sequence(rest), tails)


def test_dropout_acts_between_layers_of_packed_input(kind: Kind) -> None:
    layer = kind.layer(3, 8, 2, dropout=0.5)
    packed = pack_sequence(random_sequences([4, 2], 3, torch.float32))
    torch.manual_seed(1)
    first = layer(packed)[0].data
    torch.manual_seed(1)
    assert torch.equal(layer(packed)[0].data, first)
    assert not torch.equal(layer(packed)[0].data, first)
    layer.eval()
    assert torch.equal(layer(packed)[0].data, layer(packed)[0].data)


def test_type_of_output_follows_type_of_input(kind: Kind) -> None:
    layer: Any = kind.layer(3, 4)
    assert isinstance(layer(torch.randn(2, 1, 3))[0], torch.Tensor)
    assert isinstance(layer(pack_sequence([torch.randn(2, 3)]))[0], PackedSequence)
