"""The published runs: the page is what they give, and one of them can be had again."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from rotcell.lab.sweep.publish import published
from rotcell.lab.tasks.babi.data.source import Source
from rotcell.lab.tasks.babi.report import figures
from rotcell.lab.tasks.babi.report.page import COMMITS, NOTES, read_dates, report_files
from rotcell.lab.tasks.babi.report.summary import Summary, summarize
from rotcell.lab.tasks.babi.report.tables import means_table
from rotcell.lab.tasks.babi.sweep.job import run_job
from rotcell.lab.training.environment import environment

REPOSITORY = Path(__file__).resolve().parents[2]
PUBLISHED = REPOSITORY / "results" / "babi"
KERNELS = ("csrc/cells", "csrc/cpu")
MADE_AGAIN_BY = "rotcell-lab report results/babi"


@pytest.fixture(scope="module")
def summaries() -> list[Summary]:
    return summarize(PUBLISHED)


def is_committed(name: str) -> bool:
    """Whether git has it; the page for browsers, vector graphics and runs.csv are too large."""
    return name not in ("index.html", "runs.csv") and not name.endswith(".svg")


def test_the_page_matches_the_runs(
    summaries: list[Summary], monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    # Figures of different matplotlib versions differ in their bytes, so they are not compared.
    monkeypatch.setattr(figure.Figure, "savefig", lambda *_, **__: None)
    monkeypatch.setattr(figures, "png", lambda _: b"")
    expected = report_files(
        summaries, claims=True, notes=(PUBLISHED / NOTES).exists(), dates=read_dates(PUBLISHED)
    )
    by_hand = {COMMITS, NOTES}
    published = {name for name in expected if is_committed(name)}
    found = {p.name for p in PUBLISHED.iterdir() if p.is_file() and is_committed(p.name)} - by_hand
    assert found == published, f"files are missing or left over: {MADE_AGAIN_BY}"
    for name in published:
        if not name.endswith(".png"):
            there = (PUBLISHED / name).read_bytes()
            assert there == expected[name], f"{name} is old: {MADE_AGAIN_BY}"


def test_the_readme_has_the_means_of_the_runs(summaries: list[Summary]) -> None:
    table = means_table([s for s in summaries if s.title in ("lstm", "gru")])
    assert table is not None
    text = (REPOSITORY / "README.md").read_text()
    for row in table.rows:
        numbers = " | ".join(entry.text for entry in row[1:-1])
        assert f"| {numbers} |" in text, f"README.md lacks the means {numbers}"


def test_published_runs_use_official_data_and_record_their_environment(
    summaries: list[Summary],
) -> None:
    for summary in summaries:
        assert summary.data == "official 1k"
        for result in summary.results:
            assert result.settings.gates == summary.experiment.gates
            assert re.fullmatch("[0-9a-f]{40}", str(result.environment["commit"]))
            assert result.environment["threads"] == 1


def kernel_digest(files: Iterable[tuple[str, bytes]]) -> str:
    """The digest of the sources that decide what a CPU computes, by name."""
    digest = hashlib.sha256()
    for name, content in sorted(files):
        digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest()


def kernels_here() -> str:
    """The digest of the sources as they are."""
    paths = (p for part in KERNELS for p in (REPOSITORY / part).rglob("*") if p.is_file())
    return kernel_digest((p.relative_to(REPOSITORY).as_posix(), p.read_bytes()) for p in paths)


def git(*arguments: str) -> bytes:
    return subprocess.run(
        ["git", "-C", str(REPOSITORY), *arguments], check=True, capture_output=True
    ).stdout


def date_of(commit: str) -> str:
    return git("show", "--no-patch", "--format=%cs", commit).decode().strip()


def kernels_at(commit: str) -> str:
    """The digest of the sources at a commit."""
    names = git("ls-tree", "-r", "--name-only", commit, *KERNELS).decode().splitlines()
    return kernel_digest((name, git("show", f"{commit}:{name}")) for name in names)


def test_a_published_run_can_be_had_again(summaries: list[Summary], real_babi: Path) -> None:
    here = kernels_here()
    lines = (PUBLISHED / COMMITS).read_text().splitlines()
    same = {commit for _, commit, digest in map(str.split, lines) if digest == here}
    runs = [r for summary in summaries for r in summary.results if r.environment["commit"] in same]
    if not runs:
        pytest.skip("could not compare: the kernels have changed since the runs were made")
    torch.set_num_threads(1)
    now = environment()
    names = ("machine", "instruction_set", "torch_instruction_set", "torch", "threads")
    comparable = [run for run in runs if all(run.environment[name] == now[name] for name in names)]
    if not comparable:
        seen = {tuple(run.environment[name] for name in names) for run in runs}
        pytest.skip(f"could not compare: made with {seen}, here is {[now[name] for name in names]}")
    # Task 4 has the shortest stories.
    recorded = min(comparable, key=lambda run: (run.settings.task != 4, run.seconds))
    source = Source.at(str(real_babi))
    again = run_job(recorded.settings, lambda: source.load(recorded.settings.task))
    assert again.error is None
    assert again.data == recorded.data
    # Studies publish rounded curves.
    exact, rounded = again.plain(), published(again.plain())
    assert recorded.plain()["history"] in (exact["history"], rounded["history"])


if __name__ == "__main__":
    # After new runs were collected: the date of each of their commits, and what kernels it had.
    commits = {str(r.environment["commit"]) for s in summarize(PUBLISHED) for r in s.results}
    known = "".join(f"{date_of(c)}  {c}  {kernels_at(c)}\n" for c in sorted(commits))
    (PUBLISHED / COMMITS).write_text(known)
