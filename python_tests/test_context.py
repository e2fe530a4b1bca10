"""A context equals the same features appended to every step's input."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import KINDS, TORCH_GRU, Kind, assert_all_near, assert_near
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import rotcell
from rotcell import ops
from rotcell.layers.layer import DirectionCall

WIDTH, FEATURES = 3, 4  # of the context, and of the input

#: Sizes and options that take each way through the kernels: batch-vectorized, with a block that is
#: not full; unit-vectorized with matmuls by step; by chunk; on unpacked weights.
WAYS: dict[str, dict[str, Any]] = {
    "rows_in_lanes": {"batch": 30, "steps": 5, "hidden": 7},
    "rows_in_lanes_even": {"batch": 32, "steps": 6, "hidden": 6},
    "by_step": {"batch": 9, "steps": 3, "hidden": 5},
    "by_chunk": {"batch": 2, "steps": 9, "hidden": 5},
    "unpacked": {"batch": 2, "steps": 3, "hidden": 5},
    "one_row": {"batch": 1, "steps": 20, "hidden": 6},
    "batch_first": {"batch": 30, "steps": 5, "hidden": 6, "batch_first": True},
    "no_bias": {"batch": 30, "steps": 5, "hidden": 6, "bias": False},
    "deep_bidirectional": {
        "batch": 30, "steps": 5, "hidden": 6, "num_layers": 2, "bidirectional": True,
    },
    "hard": {"batch": 30, "steps": 5, "hidden": 6, "gate_activation": "hard_sigmoid"},
}  # fmt: skip


def make(kind: Kind, batch: int, steps: int, hidden: int, **options: Any) -> tuple[Any, ...]:
    """A layer, its input without the context, the context."""
    torch.manual_seed(4)
    layer = kind.layer(FEATURES + WIDTH, hidden, dtype=torch.float64, **options)
    shape = (batch, steps) if layer.batch_first else (steps, batch)
    x = torch.randn(*shape, FEATURES, dtype=torch.float64, requires_grad=True)
    context = torch.randn(batch, WIDTH, dtype=torch.float64, requires_grad=True)
    return layer, x, context


def appended(x: Tensor, context: Tensor, batch_first: bool = False) -> Tensor:
    steps = x.shape[1 if batch_first else 0]
    every = context.unsqueeze(1 if batch_first else 0)
    shape = (-1, steps, -1) if batch_first else (steps, -1, -1)
    return torch.cat([x, every.expand(*shape)], dim=-1)


def flat(results: tuple[Any, ...]) -> list[Tensor]:
    """Output and last states of a layer."""
    output, states = results
    return [
        output.data if isinstance(output, PackedSequence) else output,
        *(states if isinstance(states, tuple) else (states,)),
    ]


def assert_same(found: Any, expected: Any, inputs: list[Tensor]) -> None:
    """Equal results, and equal gradients of the inputs."""
    found, expected = flat(found), flat(expected)
    assert_all_near(found, expected)
    torch.manual_seed(5)
    grads = [torch.randn_like(each) for each in expected]
    assert_all_near(
        torch.autograd.grad(found, inputs, grads),
        torch.autograd.grad(expected, inputs, grads),
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_is_input_at_every_step(kind: Kind, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x, context = make(kind, **WAYS[way])
    calls = []
    run = ops.sequence_with_row_bias
    monkeypatch.setattr(ops, "sequence_with_row_bias", lambda *a: calls.append(len(a)) or run(*a))
    found = layer(x, context=context)
    # nn.GRU has separate biases for x and h: the context is appended to every token.
    assert len(calls) == (0 if kind is TORCH_GRU else (2 if layer.bidirectional else 1))
    expected = layer(appended(x, context, layer.batch_first))
    assert_same(found, expected, [x, context, *layer.parameters()])
    with torch.no_grad():
        assert_all_near(flat(layer(x, context=context)), flat(expected))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_with_initial_states_and_without_a_batch(kind: Kind) -> None:
    layer, x, context = make(kind, batch=17, steps=6, hidden=6)
    hx = kind.as_hx([torch.randn(1, 17, 6, dtype=torch.float64) for _ in range(kind.num_states)])
    found, expected = layer(x, hx, context=context), layer(appended(x, context), hx)
    assert_same(found, expected, [x, context, *layer.parameters()])
    row = 3
    alone = layer(x[:, row], context=context[row])
    assert_same(alone, layer(appended(x, context)[:, row]), [x, context])


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_packed_input_takes_contexts_in_the_callers_order(kind: Kind, enforce_sorted: bool) -> None:
    layer, x, context = make(kind, batch=10, steps=6, hidden=6, bidirectional=True)
    lengths = torch.tensor([6, 6, 5, 5, 3, 3, 2, 2, 1, 1])
    if not enforce_sorted:
        lengths = lengths[torch.randperm(10)]
    packed, wide = (
        pack_padded_sequence(each, lengths, enforce_sorted=enforce_sorted)
        for each in (x, appended(x, context))
    )
    assert_same(layer(packed, context=context), layer(wide), [x, context, *layer.parameters()])


def test_with_a_projection() -> None:
    for kind in KINDS:
        if kind.description.can_project:
            layer, x, context = make(kind, batch=9, steps=5, hidden=6, proj_size=4)
            assert_same(
                layer(x, context=context),
                layer(appended(x, context)),
                [x, context, *layer.parameters()],
            )


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_differentiated_twice(kind: Kind) -> None:
    layer, x, context = make(kind, batch=2, steps=2, hidden=3)
    names, weights = zip(*layer.named_parameters(), strict=True)

    def run(x: Tensor, context: Tensor, *weights: Tensor) -> Tensor:
        named = dict(zip(names, weights, strict=True))
        output, _ = torch.func.functional_call(layer, named, (x,), {"context": context})
        return output

    assert gradcheck(run, (x, context, *weights), fast_mode=True)
    assert gradgradcheck(run, (x, context, *weights), fast_mode=True)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_packed_input_differentiated_twice(kind: Kind) -> None:
    layer, x, context = make(kind, batch=3, steps=3, hidden=3)

    def run(x: Tensor, context: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, torch.tensor([3, 2, 1]))
        return layer(packed, context=context)[0].data

    assert gradgradcheck(run, (x, context), fast_mode=True)


def test_with_every_other_option() -> None:
    """Options that run elsewhere: the context is appended to the input there."""
    kind = KINDS[0]
    layer, x, context = make(kind, batch=16, steps=5, hidden=6, zoneout=0.2)
    layer.eval()
    resets = torch.rand(5, 16) < 0.3
    *found, cells = layer(x, resets=resets, return_cells=True, context=context)
    *expected, expected_cells = layer(appended(x, context), resets=resets, return_cells=True)
    assert_same(found, expected, [x, context, *layer.parameters()])
    assert torch.equal(cells, expected_cells)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_loses_nothing_by_it(dtype: torch.dtype) -> None:
    layer, x, context = make(KINDS[0], batch=16, steps=5, hidden=6)
    layer, x, context = layer.to(dtype), x.to(dtype), context.to(dtype)
    assert torch.equal(layer(x, context=context)[0], layer(appended(x, context))[0])


def test_autocast_takes_the_context_along() -> None:
    layer, x, context = make(KINDS[0], batch=16, steps=5, hidden=6)
    layer, x, context = layer.float(), x.float(), context.float()
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = layer(x, context=context)[0], layer(appended(x, context))[0]
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, expected)


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = KINDS[0].layer(FEATURES + WIDTH, 6)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        output: Tensor = self.layer(x, context=context)[0]
        return output


def test_compiled_and_exported_layers_take_it() -> None:
    model = Reader()
    x, context = torch.randn(5, 16, FEATURES), torch.randn(16, WIDTH)
    expected = model(x, context)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    exported = torch.export.export(model, (x, context)).module()
    traced = torch.fx.symbolic_trace(model)
    for graph in (compiled, exported, traced):
        assert torch.allclose(graph(x, context), expected, atol=1e-6)
    per_row = torch.func.vmap(model, in_dims=(1, 0), out_dims=1)
    assert torch.allclose(per_row(x, context), expected, atol=1e-6)


def test_packed_input_in_one_graph() -> None:
    layer, x, context = make(KINDS[0], batch=3, steps=4, hidden=6)
    packed = pack_padded_sequence(x, torch.tensor([4, 2, 1]))
    compiled = torch.compile(
        lambda packed, context: layer(packed, context=context)[0].data,
        fullgraph=True,
        backend="aot_eager",
    )
    assert_all_near([compiled(packed, context)], [layer(packed, context=context)[0].data])


@pytest.mark.parametrize(
    ("context", "message"),
    [
        (torch.zeros(2, WIDTH), r"context must have shape \(3, features\).*got \(2, 3\)"),
        (torch.zeros(5, 3, WIDTH), r"context must have shape \(3, features\), without timesteps"),
        (torch.zeros(3, WIDTH + 1), "input_size=7 features, got 4 and 4 of context"),
        (torch.zeros(3, WIDTH, dtype=torch.float64), "context is torch.float64 but the input"),
        ([0.0], "context must be a Tensor, got list"),
    ],
)
def test_bad_input_is_named(context: Any, message: str) -> None:
    layer = KINDS[0].layer(FEATURES + WIDTH, 6)
    with pytest.raises((RuntimeError, TypeError), match=message):
        layer(torch.zeros(5, 3, FEATURES), context=context)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_op_by_itself_refuses_to_be_differentiated(kind: Kind) -> None:
    layer, x, _ = make(kind, batch=2, steps=1, hidden=4)
    tokens = x.flatten(0, 1)
    states = [torch.zeros(2, 4, dtype=torch.float64) for _ in range(kind.num_states)]
    w_ih, w_hh = layer.weight_ih_l0[:, :FEATURES], layer.weight_hh_l0
    none = [None] * (kind.num_weights - 2)
    row_bias = torch.zeros(2, kind.description.saved_rows(4), dtype=torch.float64)
    arguments = (*[tokens, *states, w_ih, w_hh, *none], None, False, 0, 0, True, row_bias)
    out = kind.op.row_bias(*arguments)[0]
    with pytest.raises(RuntimeError, match="pass a context to a layer"):
        out.sum().backward()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_trace_takes_it_too(kind: Kind) -> None:
    layer, x, context = make(kind, batch=16, steps=5, hidden=6)
    found, expected = (
        rotcell.trace(layer, x, context=context),
        rotcell.trace(layer, appended(x, context)),
    )
    assert torch.equal(found.output, expected.output)
    for name, gate in expected[0].gates.items():
        assert torch.equal(found[0].gates[name], gate)


def test_a_direction_runner_sees_the_context_as_input(kind: Kind) -> None:
    """So that what runs a layer's directions need not know of contexts."""
    layer = kind.layer(7, 5, 2, bidirectional=True)
    x, context = torch.randn(6, 2, 4), torch.randn(2, 3)
    expected, _ = layer(x, context=context)
    calls: list[DirectionCall] = []

    def run(call: DirectionCall) -> Any:
        calls.append(call)
        return call.run()

    layer.direction_runner = run
    found, _ = layer(x, context=context)
    assert_near(found, expected)
    assert [call.reverse for call in calls] == [False, True, False, True]
    assert torch.equal(calls[0].x, torch.cat([x, context.expand(6, 2, 3)], dim=-1))
    layer.direction_runner = None
    assert torch.equal(layer(x, context=context)[0], expected)
    assert len(calls) == 4
