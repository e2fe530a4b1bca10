"""State hooks (resets, recurrent dropout, zoneout), and the cell states of every step.

Each is compared with code that does not implement it: separate runs of the parts of a sequence,
nn.LSTM with masked weights, single steps of the cells. Then the kernels are compared with
the reference.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import (
    CLASSIC_GRU,
    KINDS,
    PLAIN_LSTM,
    TORCH_GRU,
    Kind,
    assert_all_near,
    assert_near,
    gradients,
    pack,
    states_for,
)
from kernel_cases import Case, output_gradients, run
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import rotcell
from rotcell import ops
from rotcell.reference import StateHooks

WITH_CELL_STATE = tuple(kind for kind in KINDS if kind.num_states == 2)

#: Sets of hooks, by letters: resets, dropout, zoneout of h and of c, zoneout by probabilities.
HOOKS = ["r", "d", "h", "c", "s", "rdhc", "rdsc"]


def draw(case: Case, tokens: int, letters: str, dtype: torch.dtype = torch.float64) -> StateHooks:
    """Random hooks; leaves out those that the case cannot have."""
    torch.manual_seed(3)
    width = case.outputs or case.hidden
    resets = torch.rand(tokens) < 0.3 if "r" in letters else None
    dropout = zoneout_h = zoneout_c = None
    if "d" in letters:
        dropout = ((torch.rand(case.batch, width) < 0.6) / 0.6).to(dtype)
    if "h" in letters and not case.outputs:
        zoneout_h = (torch.rand(tokens, width) < 0.4).to(dtype)
    if "s" in letters and not case.outputs:
        zoneout_h = torch.rand(1, width).to(dtype)
    if "c" in letters and not case.outputs and case.kind.num_states == 2:
        zoneout_c = (torch.rand(tokens, case.hidden) < 0.4).to(dtype)
    return StateHooks(resets, dropout, zoneout_h, zoneout_c)


def cases() -> Iterator[Case]:
    sizes = [(3, 4, 4, 6), (9, 3, 3, 17)]
    for kind in KINDS:
        for batch, steps, inputs, hidden in sizes:
            for packed, reverse in ((False, False), (True, True)):
                yield Case(kind, batch, steps, inputs, hidden, packed=packed, reverse=reverse)
        yield Case(kind, 2, 1, 3, 5)
        if kind.description.can_project:
            yield Case(kind, 3, 4, 4, 6, outputs=2, packed=True)


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_kernels_match_the_reference(case: Case) -> None:
    tensors, batch_sizes = case.arguments()
    kind = case.kind
    has_cells = kind.num_states == 2
    for letters in HOOKS:
        hooks = draw(case, len(tensors[0]), letters)

        def kernel(*arguments: Any, hooks: StateHooks = hooks) -> tuple[Tensor, ...]:
            given = kind._split(arguments)
            return ops.sequence(kind.description, *given, False, hooks, has_cells)

        def reference(*arguments: Any, hooks: StateHooks = hooks) -> tuple[Tensor, ...]:
            return kind.description.sequence(*kind._split(arguments), hooks, has_cells)

        found, grads = run(kernel, tensors, batch_sizes, *case.options)
        expected, expected_grads = run(reference, tensors, batch_sizes, *case.options)
        names = [f"{letters} {k}" for k in range(len(found) + len(grads))]
        assert_all_near(found + grads, expected + expected_grads, names)
        with torch.no_grad():
            inferred = kernel(*tensors, batch_sizes, *case.options)
        assert_all_near(inferred, expected, names[: len(found)])


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_that_share_units_agree(kind: Kind, threads: int) -> None:
    """One row and many units: the layer is shared out, if there are threads to share it."""
    case = Case(kind, 1, 6, 8, 400)
    tensors, _ = case.arguments()
    hooks = draw(case, 6, "rdhc")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = run(
            lambda *a: ops.sequence(kind.description, *kind._split(a), False, hooks),
            tensors,
            None,
            *case.options,
        )
    finally:
        torch.set_num_threads(before)
    expected = run(
        lambda *a: kind.description.sequence(*kind._split(a), hooks),
        tensors,
        None,
        *case.options,
    )
    assert_all_near(found[0] + found[1], expected[0] + expected[1])


def extras(kind: Kind, hooks: dict[str, Any], return_cells: bool = False) -> list[Any]:
    """Further arguments of the extended overload, hooks by name."""
    found = [hooks.get(name) for name in StateHooks._fields[: 2 + kind.num_states]]
    return [*found, return_cells] if kind in WITH_CELL_STATE else found


# Resets


def episodes(reset_mask: Tensor) -> list[slice]:
    """The pieces into which resets cut one row."""
    cuts = [t for t in range(1, len(reset_mask)) if reset_mask[t]]
    return [slice(a, b) for a, b in zip([0, *cuts], [*cuts, len(reset_mask)], strict=True)]


def run_episodes(
    kind: Kind, layer: Any, x: Tensor, reset_mask: Tensor, states: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """One row [T, I], each episode alone; states are without a batch."""
    directions = 2 if layer.bidirectional else 1
    pieces = episodes(reset_mask)
    outs, lasts = [], []
    for k, piece in enumerate(pieces):
        begins = []
        for state in states:
            state = state.clone().unflatten(0, (-1, directions))
            keep = torch.ones(1, directions, 1, dtype=state.dtype)
            keep[:, 0] = k == 0 and not reset_mask[0]
            if directions == 2:
                keep[:, 1] = k == len(pieces) - 1
            begins.append((state * keep).flatten(0, 1))
        out, last = layer(x[piece], kind.as_hx(begins))
        outs.append(out)
        lasts.append([s.unflatten(0, (-1, directions)) for s in kind.as_states(last)])
    # Forwards the last episode is the last to be run, in reverse the first one is.
    ends = [
        torch.cat([last[:, :1], first[:, 1:]], dim=1).flatten(0, 1)
        for last, first in zip(lasts[-1], lasts[0], strict=True)
    ]
    return torch.cat(outs), ends


@pytest.mark.parametrize(
    "options",
    [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True}],
    ids=["default", "deep_bidirectional", "batch_first"],
)
@pytest.mark.parametrize("packed", [False, True])
def test_every_episode_is_as_if_it_were_alone(
    kind: Kind, options: dict[str, Any], packed: bool
) -> None:
    layer = kind.layer(3, 6, dtype=torch.float64, **options)
    lengths = [4, 7, 6] if packed else [7, 7, 7]
    x = torch.randn(7, 3, 3, dtype=torch.float64)
    reset_mask = torch.rand(7, 3) < 0.35
    reset_mask[0] = torch.tensor([False, True, False])
    reset_mask[3, 0] = True  # the last step of the shortest row
    states = [s.requires_grad_() for s in states_for(kind, layer, 3)]
    inputs = [*states, *layer.parameters()]

    expected = [
        run_episodes(kind, layer, x[:n, b], reset_mask[:n, b], [s[:, b] for s in states])
        for b, n in enumerate(lengths)
    ]
    ends = [torch.stack(parts, dim=1) for parts in zip(*(e for _, e in expected), strict=True)]
    wanted = [*(out for out, _ in expected), *ends]

    given, resets = (t.transpose(0, 1) if layer.batch_first else t for t in (x, reset_mask))
    if packed:
        given, resets = (
            pack_padded_sequence(t, lengths, layer.batch_first, enforce_sorted=False)
            for t in (given, resets)
        )
    out, last = layer(given, kind.as_hx(states), resets=resets)
    if packed:
        out, _ = pad_packed_sequence(out, layer.batch_first)
    rows = out.unbind(0 if layer.batch_first else 1)
    found = [*(row[:n] for row, n in zip(rows, lengths, strict=True)), *kind.as_states(last)]

    weights = output_gradients(wanted)
    grads = [gradients(results, inputs, weights) for results in (found, wanted)]
    assert_all_near([*found, *grads[0]], [*wanted, *grads[1]])
    if not layer.bidirectional:
        # The initial state of a row that is reset at its first step is not read.
        for grad in grads[0][: kind.num_states]:
            assert not grad[:, 1].any()
            assert grad[:, 0].any()


def test_a_reset_leaves_nothing_of_a_state_that_is_not_finite(kind: Kind) -> None:
    layer = kind.layer(3, 4)
    x, states = torch.randn(2, 1, 3), [s.fill_(torch.inf) for s in states_for(kind, layer, 1)]
    out, _ = layer(x, kind.as_hx(states), resets=torch.tensor([[True], [False]]))
    assert torch.equal(out, layer(x, resets=torch.tensor([[True], [False]]))[0])
    assert_near(out, layer(x)[0])


def test_unbatched_resets_are_a_batch_of_one(kind: Kind) -> None:
    layer = kind.layer(3, 4, bidirectional=True)
    x, resets = torch.randn(5, 3), torch.tensor([False, False, True, False, True])
    out, _ = layer(x, resets=resets)
    expected = torch.cat([layer(x[:2])[0], layer(x[2:4])[0], layer(x[4:])[0]])
    assert_near(out, expected)


@pytest.mark.parametrize(
    ("resets", "error", "text"),
    [
        (torch.zeros(5, 2), ValueError, "resets must be a bool tensor, got torch.float32"),
        (torch.zeros(2, 5).bool(), RuntimeError, r"resets must have shape \(5, 2\)"),
        (torch.zeros(5, 2, 1).bool(), RuntimeError, r"resets must have shape \(5, 2\)"),
        (torch.zeros(5, 2, device="meta").bool(), RuntimeError, "resets are on meta"),
        ([[False] * 2] * 5, TypeError, "resets must be a Tensor, as the input is, got list"),
        (pack([torch.zeros(5).bool()] * 2), TypeError, "resets must be a Tensor"),
    ],
)
def test_resets_that_do_not_fit(kind: Kind, resets: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        kind.layer(3, 4)(torch.randn(5, 2, 3), resets=resets)


def test_resets_must_be_packed_with_the_lengths_of_the_input(kind: Kind) -> None:
    layer, x = kind.layer(3, 4), pack([torch.randn(n, 3) for n in (2, 5)])
    with pytest.raises(TypeError, match="resets must be a PackedSequence, as the input is"):
        layer(x, resets=torch.zeros(7).bool())
    for lengths in ((3, 4), (5, 2)):  # other sizes; the same sizes in another order
        resets = pack([torch.zeros(n).bool() for n in lengths])
        with pytest.raises(RuntimeError, match="resets must be packed with the same lengths"):
            layer(x, resets=resets)


# The cell states of every step


@pytest.mark.parametrize("kind", WITH_CELL_STATE, ids=str)
@pytest.mark.parametrize(
    "options",
    [{}, {"batch_first": True, "num_layers": 2}, {"proj_size": 2}],
    ids=["default", "batch_first", "projection"],
)
def test_cells_are_the_cell_state_of_every_prefix(kind: Kind, options: dict[str, Any]) -> None:
    layer = kind.layer(3, 5, dtype=torch.float64, **options)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    time_first = x.transpose(0, 1) if layer.batch_first else x
    out, (h_n, c_n), cells = layer(x, return_cells=True)
    steps = time_first.shape[0]
    expected = []
    for t in range(steps):
        prefix = time_first[: t + 1]
        expected.append(layer(prefix.transpose(0, 1) if layer.batch_first else prefix)[1][1][-1])
    wanted = torch.stack(expected, dim=1 if layer.batch_first else 0)
    inputs = list(layer.parameters())
    weights = output_gradients([wanted, out])
    found = gradients([cells, out], inputs, weights)
    assert_near(cells, wanted)
    assert_all_near(found, gradients([wanted, layer(x)[0]], inputs, weights))
    with torch.no_grad():
        *others, inferred = layer(x, return_cells=True)
    assert_near(inferred, wanted)
    assert_all_near([others[0], *others[1]], [out, h_n, c_n])


@pytest.mark.parametrize("kind", WITH_CELL_STATE, ids=str)
def test_cells_of_both_directions_packed(kind: Kind) -> None:
    layer = kind.layer(3, 4, bidirectional=True, dtype=torch.float64)
    sequences = [torch.randn(n, 3, dtype=torch.float64) for n in (2, 4)]
    _, _, cells = layer(pack(sequences), return_cells=True)
    assert isinstance(cells, PackedSequence)
    padded, lengths = pad_packed_sequence(cells)
    for row, (x, n) in enumerate(zip(sequences, lengths, strict=True)):
        _, (_, c_n), alone = layer(x, return_cells=True)
        assert alone.shape == (n, 8)
        assert_near(padded[:n, row], alone)
        assert_near(alone[-1, :4], c_n[0])
        assert_near(alone[0, 4:], c_n[1])


def test_only_layers_with_a_cell_state_return_it(kind: Kind) -> None:
    if kind not in WITH_CELL_STATE:
        with pytest.raises(TypeError, match="return_cells"):
            kind.layer(3, 4)(torch.randn(2, 1, 3), return_cells=True)


# Recurrent dropout


def test_recurrent_dropout_is_an_lstm_with_masked_weights() -> None:
    """One row, whose mask is then one of the columns of the recurrent weights."""
    layer = PLAIN_LSTM.layer(3, 8, bidirectional=True, recurrent_dropout=0.4, dtype=torch.float64)
    x = torch.randn(6, 1, 3, dtype=torch.float64)
    torch.manual_seed(5)
    out, (h_n, c_n) = layer(x)
    torch.manual_seed(5)
    masks = [F.dropout(x.new_ones(1, 8), 0.4) for _ in range(2)]
    assert not torch.equal(*masks)
    twin = nn.LSTM(3, 8, bidirectional=True, dtype=torch.float64)
    twin.load_state_dict(layer.state_dict())
    with torch.no_grad():
        twin.weight_hh_l0 *= masks[0]
        twin.weight_hh_l0_reverse *= masks[1]
    expected, states = twin(x)
    assert_all_near([out, h_n, c_n], [expected, *states])


def test_recurrent_dropout_of_a_gru_leaves_what_it_carries_on() -> None:
    layer = CLASSIC_GRU.layer(2, 6, recurrent_dropout=0.5, dtype=torch.float64)
    x = torch.randn(4, 3, 2, dtype=torch.float64)
    torch.manual_seed(6)
    out, _ = layer(x)
    torch.manual_seed(6)
    mask = F.dropout(x.new_ones(3, 6), 0.5)
    h, outs = x.new_zeros(3, 6), []
    parts = [layer.gate_rows(g, "weight_hh_l0") for g in "rzn"]
    for x_t in x:
        from_x = F.linear(x_t, layer.weight_ih_l0, layer.bias_ih_l0 + layer.bias_hh_l0).chunk(3, 1)
        seen = h * mask
        r, z = (torch.sigmoid(f + seen @ w.T) for f, w in zip(from_x[:2], parts[:2], strict=True))
        n = torch.tanh(from_x[2] + (seen * r) @ parts[2].T)
        h = (1 - z) * h + z * n
        outs.append(h)
    assert_near(out, torch.stack(outs))


# Zoneout


def steps_with_zoneout(
    kind: Kind, layer: Any, x: Tensor, shares: Sequence[Tensor]
) -> tuple[Tensor, Sequence[Tensor]]:
    """Single steps of the cell, mixed with the states before, by shares [T or 1, B, H] of each."""
    cell = kind.cell(x.shape[-1], layer.hidden_size, dtype=x.dtype)
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in layer.state_dict().items()})
    states = [x.new_zeros(x.shape[1], layer.hidden_size) for _ in kind.description.states]
    outs = []
    for t, x_t in enumerate(x):
        new = kind.as_states(cell(x_t, kind.as_hx(states)))
        share = [s[t if len(s) > 1 else 0] for s in shares]
        states = [s * o + (1 - s) * n for s, o, n in zip(share, states, new, strict=True)]
        outs.append(states[0])
    return torch.stack(outs), states


def test_zoneout_takes_the_expected_mixture_in_evaluation(kind: Kind) -> None:
    pair = kind.num_states == 2
    layer = kind.layer(3, 5, zoneout=(0.3, 0.1) if pair else 0.3, dtype=torch.float64).eval()
    x = torch.randn(6, 2, 3, dtype=torch.float64)
    shares = [x.new_full((1, 2, 5), p) for p in (0.3, 0.1)[: kind.num_states]]
    out, last = layer(x)
    expected, states = steps_with_zoneout(kind, layer, x, shares)
    assert_all_near([out, *kind.as_states(last)], [expected, *(s[None] for s in states)])


def test_zoneout_keeps_units_as_they_were_in_training(kind: Kind) -> None:
    layer = kind.layer(3, 5, zoneout=0.4, dtype=torch.float64)
    x = torch.randn(6, 2, 3, dtype=torch.float64)
    torch.manual_seed(7)
    out, last = layer(x)
    torch.manual_seed(7)
    shares = [
        torch.bernoulli(x.new_full((12, 5), 0.4)).view(6, 2, 5) for _ in kind.description.states
    ]
    expected, states = steps_with_zoneout(kind, layer, x, shares)
    assert_all_near([out, *kind.as_states(last)], [expected, *(s[None] for s in states)])
    kept = out[1:] == out[:-1]
    assert torch.equal(kept, shares[0][1:].bool())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"recurrent_dropout": 1.5}, "recurrent_dropout must be a probability between 0 and 1"),
        ({"recurrent_dropout": True}, "recurrent_dropout must be a probability"),
        ({"zoneout": -0.1}, "zoneout must be a probability between 0 and 1, got -0.1"),
        ({"zoneout": "0.1"}, "zoneout must be a probability"),
        ({"zoneout": (0.1, 0.2, 0.3)}, "zoneout must be a float"),
        ({"zoneout": (0.1, 2)}, "zoneout"),
    ],
)
def test_options_that_are_no_probability(kind: Kind, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        kind.layer(3, 4, **options)


@pytest.mark.parametrize("kind", WITH_CELL_STATE, ids=str)
def test_zoneout_of_a_projection_is_refused(kind: Kind) -> None:
    with pytest.raises(ValueError, match=r"zoneout must be 0 with proj_size=2.*got 0.1"):
        kind.layer(3, 4, proj_size=2, zoneout=0.1)


# All of it together, as a module


OPTIONS = {"recurrent_dropout": 0.3, "zoneout": 0.2, "num_layers": 2, "bidirectional": True}


def run_with_all(kind: Kind, layer: Any, x: Any, resets: Any, seed: int = 11) -> list[Tensor]:
    torch.manual_seed(seed)
    extra = {"return_cells": True} if kind in WITH_CELL_STATE else {}
    out, last, *cells = layer(x, resets=resets, **extra)
    tensors = [out, *cells]
    tensors = [t.data if isinstance(t, PackedSequence) else t for t in tensors]
    return [*tensors, *kind.as_states(last)]


@pytest.mark.parametrize("packed", [False, True])
def test_everything_at_once_is_as_in_the_reference(kind: Kind, packed: bool) -> None:
    layer = kind.layer(3, 5, dtype=torch.float64, **OPTIONS)
    x, resets = torch.randn(4, 3, 3, dtype=torch.float64), torch.rand(4, 3) < 0.3
    if packed:
        x, resets = (pack_padded_sequence(t, [2, 4, 3], enforce_sorted=False) for t in (x, resets))
    inputs = list(layer.parameters())
    found = run_with_all(kind, layer, x, resets)
    grads = gradients(found, inputs, output_gradients(found))
    with rotcell.use_reference():
        expected = run_with_all(kind, layer, x, resets)
    assert_all_near(found, expected)
    assert_all_near(grads, gradients(expected, inputs, output_gradients(expected)))
    again = run_with_all(kind, layer, x, resets)
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))
    other = run_with_all(kind, layer, x, resets, seed=12)
    assert not torch.equal(found[0], other[0])


@pytest.mark.parametrize("sizes", [None, [2, 2, 1]], ids=["padded", "packed"])
def test_first_and_second_derivatives(kind: Kind, sizes: list[int] | None) -> None:
    tokens = 6 if sizes is None else sum(sizes)
    case = Case(kind, 2, 3, 2, 3, packed=sizes is not None, reverse=sizes is not None)
    tensors, _ = case.arguments()
    tensors[0] = tensors[0].new_empty(tokens, 2).normal_()
    hooks = draw(case, tokens, "rdhc")
    batch_sizes = None if sizes is None else torch.tensor(sizes)

    def function(*arguments: Tensor) -> tuple[Tensor, ...]:
        given = [*arguments, *[None] * (len(tensors) - len(arguments))]
        given = kind._split([*given, batch_sizes, *case.options])
        return ops.sequence(kind.description, *given, False, hooks, kind in WITH_CELL_STATE)

    inputs = [t.requires_grad_() for t in tensors if t is not None]
    assert gradcheck(function, inputs, fast_mode=True)
    assert gradgradcheck(function, inputs, fast_mode=True)


def test_what_is_not_used_changes_no_bit(kind: Kind) -> None:
    """The plain overload of the op, which knows nothing of it."""
    for batch in (1, 16):  # both layouts of the kernels
        layer = kind.layer(3, 8)
        plain_x = torch.randn(8, batch, 3)
        out, _ = layer(plain_x)
        weights = [*layer.parameters(), *([None] if kind.description.can_project else [])]
        states = [torch.zeros(batch, 8)] * kind.num_states
        old = (plain_x.flatten(0, 1), *states, *weights, None, False, 0, 0)
        plain = kind.op.default(*old, True)[0]
        assert torch.equal(out.flatten(0, 1), plain)
        nothing = extras(kind, {})
        assert torch.equal(kind.op.extended(*old, True, *nothing)[0], plain)
        with torch.no_grad():
            inferred = layer(plain_x)[0]
            unused = kind.layer(3, 8, recurrent_dropout=0.5).eval()
            unused.load_state_dict(layer.state_dict())
            assert torch.equal(unused(plain_x, resets=None)[0], inferred)
        if kind in WITH_CELL_STATE:
            assert torch.equal(layer(plain_x, return_cells=True)[0], out)
            (grad,) = torch.autograd.grad(layer(plain_x)[0].sum(), layer.weight_hh_l0)
            out_too, _, _ = layer(plain_x, return_cells=True)
            (same,) = torch.autograd.grad(out_too.sum(), layer.weight_hh_l0)
            assert torch.equal(grad, same)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_errors_are_within_rounding(kind: Kind, dtype: torch.dtype) -> None:
    case = Case(kind, 3, 4, 4, 6, packed=True)
    exact, batch_sizes = case.arguments()
    rounded = [None if t is None else t.to(dtype) for t in exact]
    hooks = draw(case, len(exact[0]), "rdhc", dtype)
    wide = StateHooks(*(t if t is None or t.dtype == torch.bool else t.double() for t in hooks))
    has_cells = kind in WITH_CELL_STATE
    found = run(
        lambda *a: ops.sequence(kind.description, *kind._split(a), False, hooks, has_cells),
        rounded, batch_sizes, *case.options,
    )  # fmt: skip
    expected = run(
        lambda *a: kind.description.sequence(*kind._split(a), wide, has_cells),
        [None if t is None else t.double() for t in rounded], batch_sizes, *case.options,
    )  # fmt: skip
    tolerance = 4 * torch.finfo(dtype).eps
    assert_all_near(found[0] + found[1], expected[0] + expected[1], tolerance=tolerance)


def test_autocast_takes_the_masks_along(kind: Kind) -> None:
    # One layer: masks of a second one would be drawn in another dtype and differ.
    layer = kind.layer(3, 5, recurrent_dropout=0.3, zoneout=0.2)
    x, resets = torch.randn(4, 2, 3), torch.rand(4, 2) < 0.3
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = run_with_all(kind, layer, x, resets)
    assert all(t.dtype == torch.bfloat16 for t in found)
    assert_all_near(found, run_with_all(kind, layer, x, resets), tolerance=0.05)


def test_ops_pass_opcheck_with_all_of_it(kind: Kind) -> None:
    case = Case(kind, 3, 4, 5, 6)
    tensors, _ = case.arguments()
    tensors = [None if t is None else t.requires_grad_() for t in tensors]
    hooks = extras(kind, draw(case, 12, "rdhc")._asdict(), return_cells=True)
    for save in (False, True):
        torch.library.opcheck(kind.op.extended, (*tensors, None, True, 0, 0, save, *hooks))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("resets", torch.zeros(12), "expected resets of type Bool, got Float"),
        ("resets", torch.zeros(3).bool(), r"expected resets of shape \[12\], got \[3\]"),
        ("recurrent_dropout", torch.ones(3, 5).double(), r"expected recurrent_dropout of shape"),
        ("recurrent_dropout", torch.ones(3, 6), "expected recurrent_dropout of type Double"),
        ("zoneout_h", torch.ones(3, 6).double(), r"expected zoneout_h of shape \[12, 6\]"),
        ("zoneout_h", torch.ones(6).double(), r"expected zoneout_h of shape \[12, 6\]"),
    ],
)
def test_ops_refuse_masks_that_do_not_fit(kind: Kind, name: str, value: Any, text: str) -> None:
    tensors, _ = Case(kind, 3, 4, 5, 6).arguments()
    with pytest.raises(RuntimeError, match=text):
        kind.op.extended(*tensors, None, False, 0, 0, False, *extras(kind, {name: value}))


@pytest.mark.parametrize("packed", [False, True])
def test_compiled_without_a_break(kind: Kind, packed: bool) -> None:
    """Random masks are drawn otherwise there, so what is random is left out of the comparison."""
    layer = kind.layer(3, 5, zoneout=0.2).eval()
    x, resets = torch.randn(4, 2, 3), torch.rand(4, 2) < 0.3
    if packed:
        x, resets = (pack_padded_sequence(t, [4, 3]) for t in (x, resets))
    extra = {"return_cells": True} if kind in WITH_CELL_STATE else {}

    def loss(module: Any) -> tuple[Tensor, Tensor]:
        out, _, *cells = module(x, resets=resets, **extra)
        tensors = [t.data if packed else t for t in (out, *cells)]
        total = sum(t.sin().sum() for t in tensors)
        return total, torch.autograd.grad(total, layer.weight_hh_l0)[0]

    torch._dynamo.reset()  # other layers were compiled before, and their number is limited
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_all_near(loss(compiled), loss(layer))


def test_compiled_training_is_deterministic_under_a_seed(kind: Kind) -> None:
    layer = kind.layer(3, 5, recurrent_dropout=0.5, zoneout=0.2)
    torch._dynamo.reset()  # other layers were compiled before, and their number is limited
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(4, 2, 3)
    outs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        outs.append(compiled(x)[0])
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])


def test_exported_with_resets(kind: Kind) -> None:
    layer = kind.layer(3, 5, bidirectional=True).eval()
    x, resets = torch.randn(4, 2, 3), torch.rand(4, 2) < 0.3
    program = torch.export.export(layer, (x,), {"resets": resets})
    assert_near(program.module()(x, resets=resets)[0], layer(x, resets=resets)[0])


def test_options_show_and_stay(kind: Kind) -> None:
    zoneout = (0.25, 0.5) if kind in WITH_CELL_STATE else 0.25
    layer = kind.layer(3, 4, recurrent_dropout=0.5, zoneout=zoneout)
    assert f"recurrent_dropout=0.5, zoneout={zoneout}" in repr(layer)
    assert "dropout" not in repr(kind.layer(3, 4))
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert repr(twin) == repr(layer)


def test_from_lstm_takes_the_options_along() -> None:
    source = rotcell.LSTM(3, 4, recurrent_dropout=0.5, zoneout=(0.25, 0.125))
    layer = rotcell.RotLSTM.from_lstm(source)
    assert (layer.recurrent_dropout, layer.zoneout) == (0.5, (0.25, 0.125))
    x = torch.randn(4, 2, 3)
    torch.manual_seed(0)
    expected = source(x)[0]
    torch.manual_seed(0)
    assert_near(layer(x)[0], expected)


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_shows_what_was_done(kind: Kind, packed: bool) -> None:
    """Its rotated state gives, by the cell's equations, the state and output that it shows."""
    layer = kind.layer(3, 4, recurrent_dropout=0.5, zoneout=0.3, dtype=torch.float64)
    x: Any = torch.randn(4, 2, 3, dtype=torch.float64)
    if packed:
        x = pack_padded_sequence(x, [4, 3])
    torch.manual_seed(0)
    out, _ = layer(x)
    torch.manual_seed(0)
    found = rotcell.trace(layer, x)
    direction = found[0]
    tokens = out.data if packed else out.flatten(0, 1)
    assert torch.equal(direction.flat("output"), tokens)
    # The masks once more, in the order in which the layer draws them.
    torch.manual_seed(0)
    mask = F.dropout(tokens.new_ones(2, 4), 0.5)
    stays = torch.bernoulli(tokens.new_full(tokens.shape, 0.3)).bool()
    after = direction.flat("after_rotation")
    if kind in WITH_CELL_STATE:
        fresh = direction.flat("o") * torch.tanh(after)
        assert_near(tokens[~stays], fresh[~stays])
    else:
        rows = torch.cat([mask[:n] for n in x.batch_sizes]) if packed else mask.repeat(4, 1)
        w = layer.gate_rows("n", "weight_hh_l0")
        x_tokens = x.data if packed else x.flatten(0, 1)
        b_x, b_h = (layer.gate_rows("n", name) for name in ("bias_ih_l0", "bias_hh_l0"))
        from_x = F.linear(x_tokens, layer.gate_rows("n", "weight_ih_l0"), b_x)
        if kind is TORCH_GRU:  # resets after the matmul
            r = direction.flat("r")
            from_h = r * F.linear(after / r, w, b_h)
        else:
            from_h = F.linear(after, w, b_h)
        assert_near(direction.flat("n"), torch.tanh(from_x + from_h))
        assert not direction.flat("before_rotation")[rows == 0].any()
