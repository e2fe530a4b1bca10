"""The published runs: the page is what they give, and one of them can be had again."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
import torch

from rotcell.babi.data.source import Source
from rotcell.babi.report.page import report_files
from rotcell.babi.report.summary import Summary, summarise
from rotcell.babi.sweep.engine import run_job
from rotcell.babi.sweep.results import Result
from rotcell.babi.training.environment import environment

REPOSITORY = Path(__file__).resolve().parents[2]
PUBLISHED = REPOSITORY / "results" / "babi"
MADE_AGAIN_BY = "rotcell-babi report results/babi"


@pytest.fixture(scope="module")
def summaries() -> list[Summary]:
    return summarise(PUBLISHED)


def without_figures(page: bytes) -> str:
    return re.sub(r"base64,[^\"]*", "", page.decode())


def test_the_page_is_what_the_runs_give(summaries: list[Summary]) -> None:
    pytest.importorskip("matplotlib")
    expected = report_files(summaries, claims=True)
    found = {p.name for p in PUBLISHED.iterdir() if p.is_file() and p.name != "kernels.sha256"}
    assert found == set(expected), f"files are missing or left over: {MADE_AGAIN_BY}"
    for name, content in expected.items():
        # Figures are drawn alike by every matplotlib, but not to the byte.
        if name.endswith((".png", ".svg")):
            continue
        there = (PUBLISHED / name).read_bytes()
        assert without_figures(there) == without_figures(content), f"{name} is old: {MADE_AGAIN_BY}"


def test_published_runs_are_on_official_data_and_say_what_made_them(
    summaries: list[Summary],
) -> None:
    for summary in summaries:
        assert summary.data == "official 1k"
        for result in summary.results:
            assert result.settings.gates == summary.experiment.gates
            assert re.fullmatch("[0-9a-f]{40}", str(result.environment["commit"]))
            assert result.environment["threads"] == 1


def kernel_digest() -> str:
    """Of the sources that decide what a CPU computes.

    Written anew with: python python_tests/babi/test_babi_published.py
    """
    digest = hashlib.sha256()
    for path in sorted(
        p for part in ("cells", "cpu") for p in (REPOSITORY / "csrc" / part).rglob("*")
    ):
        if path.is_file():
            digest.update(path.relative_to(REPOSITORY).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return digest.hexdigest()


def shortest(summaries: list[Summary]) -> Result:
    """The published run that takes least; task 4 has the shortest stories."""
    results = (result for summary in summaries for result in summary.results)
    return min(results, key=lambda result: (result.settings.task != 4, result.seconds))


def test_a_published_run_can_be_had_again(summaries: list[Summary], real_babi: Path) -> None:
    recorded = shortest(summaries)
    if (PUBLISHED / "kernels.sha256").read_text().strip() != kernel_digest():
        pytest.skip("could not compare: the kernels have changed since the runs were made")
    torch.set_num_threads(1)
    here = environment()
    names = ("machine", "instruction_set", "torch_instruction_set", "torch", "threads")
    other = [name for name in names if here[name] != recorded.environment[name]]
    if other:
        pytest.skip(f"could not compare: another {', another '.join(other)}")
    source = Source.at(str(real_babi))
    again = run_job(recorded.settings, lambda: source.load(recorded.settings.task))
    assert again.error is None
    assert again.data == recorded.data
    assert again.history == recorded.history


if __name__ == "__main__":
    (PUBLISHED / "kernels.sha256").write_text(kernel_digest() + "\n")
