"""Examples of README.md and the user guides run, and links between files have a target."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import rotcell
from rotcell import reference

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES += [
    page
    for part in ("docs", "examples", "results", "verify")
    for page in sorted((ROOT / part).rglob("*.md"))
]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES if "_build" not in page.parts]
RUN = ["README.md", "docs/getting-started.md", "docs/guides/reinforcement-learning.md"]
RUN += ["docs/guides/regularization.md", "docs/guides/looking-inside.md", "docs/guides/onnx.md"]


@pytest.mark.parametrize("name", RUN)
def test_examples_run(name: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
    assert blocks
    code = "\n".join(blocks)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_links_have_a_target(name: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / name).read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\((?![a-z]+:|#)([^)\s#]+)", text):
        assert (ROOT / name).parent.joinpath(link).exists(), f"{name} links to {link}"


def test_the_api_page_has_every_class_with_its_forward() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    for name in rotcell.__all__:
        if isinstance(getattr(rotcell, name), type):
            assert re.search(rf"autoclass:: {name}\n   :members: forward", text), name


def test_the_readme_can_be_read() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


def row_of(page: str, *start: str) -> list[str]:
    """The one row of a page's tables that begins with these entries, without bold."""
    beginning = f"| {' | '.join(start)} |"
    lines = (ROOT / page).read_text().replace("**", "").splitlines()
    (line,) = [line for line in lines if line.startswith(beginning)]
    return [entry.strip() for entry in line.strip("|").split("|")]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("our runs, 10 seeds [95 % interval]", "our runs"), ("paper", "paper")],
)
def test_the_readme_has_the_means_of_the_results_page(ours: str, theirs: str) -> None:
    assert row_of("README.md", ours)[1:5] == row_of("results/babi/README.md", theirs)[1:5]


@pytest.mark.parametrize(
    "page", ["README.md", "docs/cells.md", "docs/results/index.md", "results/answer.md"]
)
def test_pages_quote_the_gain_of_small_states_alike(page: str) -> None:
    task = "babi: packed, the paper's epochs and rate, 10 units"
    entry = row_of("results/README.md", task, "rotlstm 10", "lstm 10")[5]
    mean, low, high = (float(number) for number in re.findall(r"[-+][\d.]+", entry))
    quoted = re.sub(r"[\s+*]+", " ", (ROOT / page).read_text())
    found = re.findall(r"([\d.]+) points \[([\d.]+), ([\d.]+)\]", quoted)
    assert (f"{mean:.1f}", f"{low:.1f}", f"{high:.1f}") in found


# docs/internals/add-a-cell.md: its code is a cell that works


def code_of(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_cell_of_the_worked_example_is_an_lstm_with_coupled_gates() -> None:
    """With weights of i that are those of f negated, i = 1 - f: a plain LSTM is the same cell."""
    (block,) = code_of("docs/internals/add-a-cell.md", "python")
    names = dict(vars(reference))
    exec(block, names)
    coupled = reference.Cell("coupled_lstm", names["COUPLED_LSTM"], reference.NONE)
    x, h, c = (torch.randn(2, size, dtype=torch.float64) for size in (3, 4, 4))
    weights = [torch.randn(12, *size, dtype=torch.float64) for size in ((3,), (4,), (), ())]
    both = [torch.cat([-w[:4], w]) for w in weights]
    ours = coupled.step(x, (h, c), reference.Weights(*weights))
    theirs = reference.CELLS["lstm"].step(x, (h, c), reference.Weights(*both))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler")
def test_the_header_of_the_worked_example_compiles(tmp_path: Path) -> None:
    header, entry = code_of("docs/internals/add-a-cell.md", "cpp")
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "coupled_lstm.h").write_text(header)
    source = tmp_path / "cell.cpp"
    source.write_text(
        f'#include "cells/coupled_lstm.h"\nnamespace rotcell {{\n{entry}'
        "static_assert(check_cell<PlainCoupledLstm>());\n"
        "static_assert(check_cell<CoupledLstm<PairRotation>>());\n}\n"
    )
    command = ["c++", "-std=c++20", "-fsyntax-only", "-I", str(ROOT / "csrc"), "-I", str(tmp_path)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
