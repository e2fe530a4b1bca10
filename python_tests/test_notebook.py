"""The notebook runs from top to bottom, and its outputs are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "from_nn_lstm.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]


def source(cell: dict[str, Any]) -> str:
    text: str | list[str] = cell["source"]
    return text if isinstance(text, str) else "".join(text)


def test_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    names: dict[str, object] = {"__name__": "notebook"}
    with torch.random.fork_rng():
        for cell in CODE:
            exec(source(cell).replace("steps=800", "steps=20"), names)
    assert "l0 0" in capsys.readouterr().out


def test_outputs_are_kept() -> None:
    for cell in CODE:
        assert cell["execution_count"]
    kinds = [output["output_type"] for cell in CODE for output in cell["outputs"]]
    assert kinds.count("display_data") == 2
    assert "error" not in kinds
