"""Export to ONNX, run by onnxruntime, compared with the layer itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import KINDS, Kind, states_for
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import rotcell.onnx

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

DYNAMIC = torch.export.Dim.DYNAMIC


def export(model: nn.Module, args: tuple[Any, ...], **options: Any) -> Any:
    return torch.onnx.export(
        model.eval(),
        args,
        dynamo=True,
        verbose=False,
        custom_translation_table=rotcell.onnx.translations(),
        **options,
    )


def session_of(program: Any, folder: Path) -> Any:
    program.save(folder / "model.onnx")
    onnx.checker.check_model(folder / "model.onnx", full_check=True)
    return onnxruntime.InferenceSession(folder / "model.onnx")


def assert_same(session: Any, model: nn.Module, inputs: Sequence[Tensor], tolerance: float) -> None:
    names = [i.name for i in session.get_inputs()]
    found = session.run(None, {n: t.numpy() for n, t in zip(names, inputs, strict=True)})
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(model(*inputs))
    assert len(found) == len(expected)
    for f, e in zip(found, expected, strict=True):
        assert f.shape == e.shape
        torch.testing.assert_close(torch.from_numpy(f), e, rtol=0, atol=tolerance)


class WithStates(nn.Module):
    """A layer whose states are inputs, as a streaming program has them."""

    def __init__(self, kind: Kind, **options: Any) -> None:
        super().__init__()
        self.kind = kind
        self.layer = kind.layer(3, 5, **options)

    def forward(self, x: Tensor, *states: Tensor) -> Any:
        return self.layer(x, self.kind.as_hx(states))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_any_length_and_batch_both_directions_and_states(kind: Kind, tmp_path: Path) -> None:
    options: dict[str, Any] = {"proj_size": 2} if kind.description.can_project else {}
    if kind.description.rotates:
        options["angle_activation"] = "hard_sigmoid"
    model = WithStates(kind, bidirectional=True, num_layers=2, **options)
    x, states = torch.randn(4, 3, 3), states_for(kind, model.layer, 3)
    dynamic = ({0: DYNAMIC, 1: DYNAMIC}, tuple({1: DYNAMIC} for _ in states))
    session = session_of(export(model, (x, *states), dynamic_shapes=dynamic), tmp_path)
    for steps, batch in ((4, 3), (9, 2), (1, 1), (200, 1)):
        inputs = (torch.randn(steps, batch, 3), *states_for(kind, model.layer, batch))
        assert_same(session, model, inputs, 1e-5)


class Several(nn.Module):
    """Layers and a cell, without states given."""

    def __init__(self) -> None:
        super().__init__()
        options = {"bias": False, "gate_activation": "hard_sigmoid"}
        self.layers = nn.ModuleList(
            [
                rotcell.RotLSTM(96, 96, batch_first=True, **options),
                rotcell.RotGRU(96, 96, **options),
            ]
        )
        self.cell = rotcell.RotGRUCell(96, 96, **options)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for layer in self.layers:
            x, _ = layer(x)
        return x, self.cell(x[:, -1])


def test_several_cells_in_one_model_at_the_oldest_opset(tmp_path: Path) -> None:
    model, x = Several(), torch.randn(3, 4, 96)
    program = export(model, (x,), opset_version=18)
    assert program.model.opset_imports == {"": 18}
    assert {node.domain for node in program.model.graph.all_nodes()} == {""}, "standard ops only"
    assert_same(session_of(program, tmp_path), model, (x,), 1e-5)
    # Weights are big enough here for torch not to fold their slices into constants: what is the
    # same at every step must be outside of the Scan nevertheless.
    scans = [node for node in program.model.graph if node.op_type == "Scan"]
    assert len(scans) == 3
    for scan in scans:
        body = scan.attributes["body"].value
        changing = set(body.inputs)
        for node in body:
            assert changing & set(node.inputs), node
            changing.update(node.outputs)


@pytest.mark.parametrize("form", ["lengths", "batch_sizes"])
def test_packed_sequences_are_refused_with_what_to_do_instead(form: str) -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = rotcell.RotLSTM(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            if form == "lengths":
                packed = pack_padded_sequence(x, torch.tensor([4, 2]))
            else:
                packed = PackedSequence(x.flatten(0, 1), torch.tensor([2, 2, 2, 2]))
            return self.layer(packed)[0].data

    with pytest.raises(Exception, match=r"packed sequence.*padded input"):
        export(Tagger(), (torch.randn(4, 2, 3),))


class WithResets(nn.Module):
    """Episodes end inside the sequences, and everything that can be is returned."""

    def __init__(self, kind: Kind, **options: Any) -> None:
        super().__init__()
        self.layer = kind.layer(3, 5, **options)
        self.extra = {"return_cells": True} if kind.num_states == 2 else {}

    def forward(self, x: Tensor, resets: Tensor) -> Any:
        return self.layer(x, resets=resets, **self.extra)


def test_resets_zoneout_and_cells(kind: Kind, tmp_path: Path) -> None:
    model = WithResets(kind, bidirectional=True, zoneout=0.2, recurrent_dropout=0.3)
    steps_and_batch = {0: DYNAMIC, 1: DYNAMIC}
    resets = torch.rand(6, 4) < 0.4
    args = (torch.randn(6, 4, 3), resets)
    program = export(model, args, dynamic_shapes=(steps_and_batch, steps_and_batch))
    session = session_of(program, tmp_path)
    assert_same(session, model, args, 1e-5)
    assert_same(session, model, (torch.randn(3, 2, 3), torch.rand(3, 2) < 0.4), 1e-5)


def test_masks_of_training_are_refused(kind: Kind) -> None:
    class InTraining(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind.layer(3, 5, zoneout=0.2)

        def forward(self, x: Tensor) -> Any:
            return self.layer.train()(x)[0]

    with pytest.raises(Exception, match="export the layer in evaluation mode"):
        export(InTraining(), (torch.randn(4, 2, 3),))
