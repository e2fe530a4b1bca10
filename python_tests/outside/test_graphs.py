"""torch's ways of turning a model into a graph: traced, scripted, by torch.fx, exported."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from helpers import Kind, assert_near
from torch import Tensor, fx, nn
from torch.nn.utils.rnn import pack_padded_sequence

import rotcell


class Model(nn.Module):
    def __init__(self, kind: Kind, **options: Any) -> None:
        super().__init__()
        self.rnn = kind.layer(3, 4, **options)
        self.head = nn.Linear(4 * (2 if options.get("bidirectional") else 1), 2)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.rnn(x)
        return self.head(output)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("under_no_grad", [False, True])
def test_a_trace_runs_and_trains_at_any_shape(kind: Kind, under_no_grad: bool) -> None:
    model = Model(kind, batch_first=True, bidirectional=True, num_layers=2)
    with torch.set_grad_enabled(not under_no_grad):
        traced = torch.jit.trace(model, (torch.randn(2, 5, 3),))
    buffer = io.BytesIO()
    torch.jit.save(traced, buffer)
    buffer.seek(0)
    loaded = torch.jit.load(buffer)
    x = torch.randn(3, 7, 3)
    found, expected = loaded(x), model(x)
    assert_near(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    theirs = dict(loaded.named_parameters())
    for name, parameter in model.named_parameters():
        assert_near(theirs[name].grad, parameter.grad)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("form", ["layer", "cell"])
def test_scripting_names_the_alternatives(kind: Kind, form: str) -> None:
    module = getattr(kind, form)(3, 4)
    for model in (module, nn.Sequential(module)):
        with pytest.raises(NotImplementedError, match=r"jit\.trace.*export.*torch\.compile"):
            torch.jit.script(model)


def test_fx_keeps_layers_and_cells_as_one_node(kind: Kind) -> None:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = kind.layer(3, 4)
            self.cell = kind.cell(4, 4)
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor, hx: Any) -> tuple[Tensor, Any]:
            output, state = self.rnn(x, hx)
            after = self.cell(output[-1])
            return self.head(output), (state, after)

    model = Decoder()
    traced = fx.symbolic_trace(model)
    called = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    assert called == ["rnn", "cell", "head"]
    x, hx = torch.randn(5, 2, 3), kind.as_hx([torch.randn(1, 2, 4)] * kind.num_states)
    found, expected = (torch.utils._pytree.tree_leaves(m(x, hx)) for m in (traced, model))
    assert all(torch.equal(f, e) for f, e in zip(found, expected, strict=True))


def test_compiled_in_one_graph(kind: Kind) -> None:
    model, x = Model(kind), torch.randn(5, 2, 3)
    torch._dynamo.reset()  # other layers were compiled before, and their number is limited
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert_near(compiled(x), model(x))


def test_exported_with_dynamic_length_and_batch(kind: Kind) -> None:
    model = Model(kind)
    any_size = torch.export.Dim.DYNAMIC
    program = torch.export.export(
        model, (torch.randn(5, 2, 3),), dynamic_shapes={"x": {0: any_size, 1: any_size}}
    )
    x = torch.randn(7, 4, 3)
    assert_near(program.module()(x), model(x))


def test_export_of_a_packed_sequence_names_the_alternative() -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = rotcell.RotLSTM(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.rnn(pack_padded_sequence(x, torch.tensor([4, 2])))[0].data

    with pytest.raises(NotImplementedError, match=r"packed sequence.*padded input"):
        torch.export.export(Tagger(), (torch.randn(4, 2, 3),))
