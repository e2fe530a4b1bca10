"""The page of a study, from records made up here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rotcell.lab.report.study_page import study_page, write_study
from rotcell.lab.sweep.study import Block, Study, full_key

STEPS = {"lstm": 1000, "rotlstm": 250}
#: Seeds that solve the task.
SOLVED = {"lstm": range(4), "rotlstm": range(10)}


def groups() -> Study:
    arms = [{"cell": "lstm", "size": 8}, {"cell": "rotlstm", "size": 8, "start": "pi"}]
    common = {"task": "groups", "dataset": "mod5", "lr": 0.01}
    block = Block(
        "groups", "core", "mod5, 8 units, lstm, rotlstm", tuple({**common, **a} for a in arms)
    )
    return Study("made-up", "made up", (block,))


def music(cells: tuple[str, ...] = ("lstm", "rotlstm")) -> Study:
    starts = {"lstm": {}, "rotlstm": {"start": "pi"}}
    common = {"task": "music", "dataset": "jsb", "size": 4, "lr": 0.01}
    arms = tuple({**common, "cell": cell, **starts[cell]} for cell in cells)
    return Study(
        "made-up", "made up", (Block("music", "core", "jsb, 4 units, lstm", arms, seeds=4),)
    )


def write(folder: Path, study: Study, outcome, left_out: int = 0) -> None:
    (block,) = study.blocks
    runs = [{**arm, "seed": seed} for seed in range(block.seeds) for arm in block.arms]
    file = folder / block.task / "runs" / "core.jsonl"
    file.parent.mkdir(parents=True)
    lines = []
    for settings in runs[: len(runs) - left_out]:
        plain = json.loads(full_key(block.task, settings))
        record = {"format": "rotcell lab run 1", "settings": plain, "outcome": outcome(settings)}
        record["cpu_seconds"] = 1.0
        lines.append(json.dumps(record))
    file.write_text("\n".join(lines) + "\n")


def tracked(settings):
    solved = settings["seed"] in SOLVED[settings["cell"]]
    steps = STEPS[settings["cell"]]
    return {
        "test": {"solved": float(solved)},
        "steps": 9000,
        "steps_to_target": steps if solved else None,
    }


def row(page: str, start: str) -> list[str]:
    comparisons = page[page.index("## Rotating and plain layers") :]
    (line,) = [line for line in comparisons.splitlines() if line.startswith(f"| {start}")]
    return [entry.strip() for entry in line.strip("|").split("|")]


def test_state_tracking_has_solved_seeds_and_the_ratio_of_steps(tmp_path: Path) -> None:
    write(tmp_path, groups(), tracked)
    entries = row(study_page(groups(), tmp_path), "groups: mod5, 8 units")
    assert entries[1:5] == ["rotlstm 8 pi", "lstm 8", "10 of 10", "4 of 10"]
    assert entries[5] == "solved: p = 0.031"  # six seeds for rotation, none against: 2 / 2**6
    assert entries[6] == "0.25 [0.25, 0.25], n = 4"


@pytest.mark.parametrize(
    ("gain", "verdict"), [(0.2, "helps: -0.200"), (-0.2, "hurts: +0.200"), (0.01, "tie: -0.010")]
)
def test_music_is_judged_by_the_paired_difference(tmp_path: Path, gain, verdict) -> None:
    def outcome(settings):
        gained = gain * (settings["cell"] == "rotlstm")
        noise = 1e-4 * settings["seed"] * (settings["cell"] == "rotlstm")
        return {"test": {"nll": 8.0 + settings["seed"] - gained + noise - 1.5e-4 * (noise > 0)}}

    write(tmp_path, music(), outcome)
    assert row(study_page(music(), tmp_path), "music: jsb")[5].startswith(verdict)


def test_an_unfinished_comparison_has_no_verdict(tmp_path: Path) -> None:
    write(tmp_path, groups(), tracked, left_out=1)
    page = study_page(groups(), tmp_path)
    assert row(page, "groups: mod5, 8 units")[5] == "under way"
    assert "19 runs are finished and 1 are to come" in page


def test_the_overview_has_a_row_per_task_with_the_best_cell_bold(tmp_path: Path) -> None:
    write(tmp_path, groups(), tracked)
    line = next(
        line
        for line in study_page(groups(), tmp_path).splitlines()
        if line.startswith("| groups: mod5, 8 units | ") and "/10" in line
    )
    assert line == "| groups: mod5, 8 units | 4/10, 1,000 | **10/10, 250** |"


def test_the_overview_marks_rows_that_are_under_way(tmp_path: Path) -> None:
    write(tmp_path, groups(), tracked, left_out=1)
    assert "| groups: mod5, 8 units * |" in study_page(groups(), tmp_path)


def test_less_is_better_in_music(tmp_path: Path) -> None:
    def outcome(settings):
        return {"test": {"nll": 8.0 + 0.5 * (settings["cell"] == "lstm") + 0.01 * settings["seed"]}}

    write(tmp_path, music(), outcome)
    assert "| 8.515 [8.494, 8.536] | **8.015 [7.994, 8.036]** |" in study_page(music(), tmp_path)


def test_the_page_has_a_figure_and_the_answer_in_words(tmp_path: Path) -> None:
    write(tmp_path, groups(), tracked)
    (tmp_path / "answer.md").write_text("## The answer\n\nIt depends.\n")
    page = write_study(groups(), tmp_path, tmp_path / "out")
    text = page.read_text()
    assert text.index("It depends.") < text.index("## All tasks at a glance")
    assert "](state-tracking.png)" in text
    assert (page.parent / "state-tracking.png").read_bytes().startswith(b"\x89PNG")
