"""The page of a study, from records made up here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import rotcell.lab
from rotcell.lab.report.study_page import study_page, write_study
from rotcell.lab.sweep.study import Block, Study, full_key
from rotcell.lab.tasks import find, names

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
        record["environment"] = {"machine": "made up", "torch": "2.13.0"}
        lines.append(json.dumps(record))
    file.write_text("\n".join(lines) + "\n")


def tracked(settings):
    solved = settings["seed"] in SOLVED[settings["cell"]]
    steps = STEPS[settings["cell"]]
    return {
        "test": {"solved": float(solved), "accuracy_128": 1.0, "accuracy_512": 1.0},
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
    # Six seeds for rotation, none against: 2 / 2**6.
    assert entries[5:8] == ["+6", "0.031 (0.031)", "solves more"]
    assert entries[8:] == ["0.25 [0.25, 0.25], n = 4", "< 0.001 (< 0.001)", "faster"]


@pytest.mark.parametrize(
    ("gain", "difference", "verdict"),
    [
        (0.2, "-0.200", "helps"),
        (-0.2, "+0.200", "hurts"),
        (0.01, "-0.010", "tie"),
        (0, "+0.0", "tie"),
    ],
)
def test_music_is_judged_by_the_paired_difference(
    tmp_path: Path, gain, difference, verdict
) -> None:
    def outcome(settings):
        gained = gain * (settings["cell"] == "rotlstm")
        noise = 1e-4 * settings["seed"] * (settings["cell"] == "rotlstm")
        return {"test": {"nll": 8.0 + settings["seed"] - gained + noise - 1.5e-4 * (noise > 0)}}

    write(tmp_path, music(), outcome)
    entries = row(study_page(music(), tmp_path), "music: jsb")
    assert entries[5].startswith(difference)
    assert entries[7] == verdict


@pytest.mark.parametrize(("noise", "verdict"), [(0.01, "tie"), (0.2, "undecided")])
def test_a_tie_needs_an_interval_inside_the_margin(tmp_path: Path, noise, verdict) -> None:
    """Both differences are far from significant and smaller than the margin of 0.05."""

    def outcome(settings):
        seed, is_rotating = settings["seed"], settings["cell"] == "rotlstm"
        return {"test": {"nll": 8.0 + seed + noise * (-1) ** seed * is_rotating}}

    write(tmp_path, music(), outcome)
    entries = row(study_page(music(), tmp_path), "music: jsb")
    assert entries[5].startswith(("+0.000", "-0.000"))
    assert entries[7] == verdict


def test_the_table_of_bab_i_names_the_layer_that_ran(tmp_path: Path) -> None:
    """bAbI calls the GRU without rotation "gru"; elsewhere that is rotcell.GRU."""
    arms = tuple(
        {"task": task, "cell": cell, "state_size": 10, "epochs": 1}
        for cell in ("gru", "rotgru")
        for task in (1, 2)
    )
    study = Study("made-up", "", (Block("babi", "core", "packed, 10 units, gru", arms, seeds=3),))

    def outcome(settings):
        return {"test": 0.4 + 0.1 * (settings["cell"] == "rotgru") + 0.01 * settings["seed"]}

    write(tmp_path, study, outcome)
    assert row(study_page(study, tmp_path), "babi: packed")[1:3] == ["rotgru 10", "classicgru 10"]


def test_seeds_without_all_parts_of_a_task_do_not_count(tmp_path: Path) -> None:
    arms = tuple(
        {"task": task, "cell": cell, "state_size": 10, "epochs": 1}
        for task in (1, 2)
        for cell in ("lstm", "rotlstm")
    )
    study = Study("made-up", "", (Block("babi", "core", "packed, 10 units", arms, seeds=3),))
    write(tmp_path, study, lambda s: {"test": 0.1 * s["task"] + 0.01 * s["seed"]}, left_out=1)
    cells = next(x for x in study_page(study, tmp_path).splitlines() if "babi: packed" in x)
    # Seeds 0 to 2 of the LSTM, 15 to 17; the last run, of RotLSTM on task 2, is missing: 15 and 16.
    assert cells.startswith("| babi: packed, 10 units * | **16.0 [")
    assert "| 15.5 [" in cells


def test_an_unfinished_comparison_has_no_verdict(tmp_path: Path) -> None:
    write(tmp_path, groups(), tracked, left_out=1)
    page = study_page(groups(), tmp_path)
    assert row(page, "groups: mod5, 8 units")[7] == "under way"
    assert "| groups | - | 2.13.0 | - | - | 19 |" in page
    assert "19 runs are finished and 1 are to come" in page


def test_the_overview_has_a_row_per_task_with_the_best_cell_bold(tmp_path: Path) -> None:
    write(tmp_path, groups(), tracked)
    line = next(
        line
        for line in study_page(groups(), tmp_path).splitlines()
        if line.startswith("| groups: mod5, 8 units | ") and "/10" in line
    )
    assert line == (
        "| groups: mod5, 8 units | 4/10 [0.17, 0.69], 1,000 | **10/10 [0.72, 1.00], 250** |"
    )


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
    assert "the rotating ones. made up; torch 2.13.0.*" in text
    assert (page.parent / "state-tracking.png").read_bytes().startswith(b"\x89PNG")


def tracking_blocks(names: tuple[str, ...]) -> Study:
    """mod5 as `groups()` has it, with more blocks; the plain layer of 9 units is the larger one."""
    blocks = []
    for name in names:
        dataset, size = name.split(", ")
        common = {"task": "groups", "dataset": dataset, "lr": 0.01}
        arms = (
            {"cell": "lstm", "size": int(size)},
            {"cell": "lstm", "size": int(size) + 1},
            *({"cell": "rotlstm", "size": int(size), "start": s} for s in ("pi", "zero")),
        )
        about = f"{name} units, lstm, rotlstm"
        blocks.append(Block("groups", "core", about, tuple({**common, **arm} for arm in arms)))
    return Study("made-up", "made up", tuple(blocks))


def write_all(folder: Path, study: Study, outcome) -> None:
    parts = [Study("part", "", (block,)) for block in study.blocks]
    for number, part in enumerate(parts):
        write(folder / str(number), part, outcome)
    runs = folder / "groups" / "runs"
    runs.mkdir(parents=True)
    files = [folder / str(n) / "groups" / "runs" / "core.jsonl" for n in range(len(parts))]
    (runs / "core.jsonl").write_text("".join(file.read_text() for file in files))


def test_p_values_are_corrected_within_an_item(tmp_path: Path) -> None:
    study = tracking_blocks(("mod5, 8", "mod7, 8", "a5, 8"))
    write_all(tmp_path, study, tracked)
    page = study_page(study, tmp_path)
    raw = 2 / 2**6
    for name, p in (("mod5", 2 * raw), ("mod7", 2 * raw), ("a5", raw)):
        lines = [x for x in page.splitlines() if x.startswith(f"| groups: {name}, 8 units | rotl")]
        same, matched = ([e.strip() for e in line.strip("|").split("|")] for line in lines[:2])
        assert (same[2], same[6:8]) == ("lstm 8", ["", ""])  # smaller than the rotating layer
        verdict = "solves more" if p < 0.05 else "undecided"
        assert (matched[2], matched[6:8]) == ("lstm 9", [f"{raw:.3f} ({p:.3f})", verdict])


def test_small_states_are_judged_together(tmp_path: Path) -> None:
    names = tuple(f"{name}, {size}" for name in ("mod5", "mod7", "s3") for size in (4, 8))
    study = tracking_blocks(names)
    write_all(tmp_path, study, tracked)
    expected = (
        "RotLSTM with 4 and 8 units on mod5, mod7 and s3 together: of 60 seeds, 36 are solved by "
        "it alone and 0 by the plain layer alone (+60 points"
    )
    page = study_page(study, tmp_path)
    assert expected in page
    assert "Rotation helps: the protocol" in page
    fewer = tracking_blocks(names[:-1])
    assert expected[:30] not in study_page(fewer, tmp_path)


def test_starts_are_compared_with_pi(tmp_path: Path) -> None:
    study = tracking_blocks(("mod5, 8",))

    def outcome(settings):
        found = tracked(settings)
        if settings.get("start") == "zero":
            found["steps_to_target"] *= 2
        return found

    write_all(tmp_path, study, outcome)
    page = study_page(study, tmp_path)
    (line,) = [
        x for x in page.splitlines() if x.startswith("| groups: mod5, 8 units | rotlstm 8 z")
    ]
    entries = [entry.strip() for entry in line.strip("|").split("|")]
    assert entries[1:5] == ["rotlstm 8 zero", "rotlstm 8 pi", "10 of 10", "10 of 10"]
    assert entries[8:] == ["2.00 [2.00, 2.00], n = 10", "< 0.001 (< 0.001)", "slower"]


def test_every_layer_is_on_a_page_of_its_own(tmp_path: Path) -> None:
    study = tracking_blocks(("mod5, 8",))
    write_all(tmp_path, study, tracked)
    write_study(study, tmp_path, tmp_path / "out")
    text = (tmp_path / "out" / "layers.md").read_text()
    assert "| lstm 9 |  | 10 | 0 | - | solved 4/10 [0.17, 0.69]," in text


def test_starts_are_one_item_of_the_protocol(tmp_path: Path) -> None:
    study = tracking_blocks(("mod5, 8", "a5, 8"))

    def outcome(settings):
        found = tracked(settings)
        if settings.get("start") == "zero":  # solves 4 seeds, 6 fewer than from pi
            found["test"]["solved"] = float(settings["seed"] < 4)
        return found

    write_all(tmp_path, study, outcome)
    page = study_page(study, tmp_path)
    starts = page[page.index("## Where the angles start") :]
    lines = [x for x in starts.splitlines() if "rotlstm 8 zero" in x]
    # 2 / 2**6 each, doubled by Holm for two tests although one group commutes and one does not.
    assert [line.split("|")[7].strip() for line in lines] == ["0.031 (0.062)"] * 2


def anchored(page: str, task: str) -> list[list[str]]:
    section = page[page.index("## Anchors") : page.index("## Rotating and plain layers")]
    rows = [line for line in section.splitlines() if line.startswith(f"| {task}")]
    return [[entry.strip() for entry in row.strip("|").split("|")] for row in rows]


@pytest.mark.parametrize(
    ("nll", "verdict"),
    [(8.45, "reached"), (8.2, "better than printed"), (8.6, "not reached")],
)
def test_anchors_are_computed_from_the_records(tmp_path: Path, nll, verdict) -> None:
    def outcome(settings):
        return {"test": {"nll": nll + 0.02 * (settings["seed"] % 2) - 0.01}}

    study = music()
    write(tmp_path, study, outcome)
    tuning = {**study.blocks[0].arms[0], "seed": 100}
    record = {
        "settings": json.loads(full_key("music", tuning)),
        "outcome": {"test": {"nll": 99.0}},
        "environment": {},
    }
    with (tmp_path / "music" / "runs" / "core.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")
    page = study_page(study, tmp_path)
    ((task, layer, _, accepted, found, seeds, said),) = anchored(page, "music")
    assert (task, layer, accepted) == ("music: jsb", "LSTM, 4 units", "8.4 to 8.5")
    assert (found.partition(" ")[0], seeds, said) == (f"{nll:.3f}", "4", verdict)
    assert [row[4] for row in anchored(page, "ptb")] == ["not run", "not run"]


def test_printed_numbers_are_lines_in_the_curves(tmp_path: Path) -> None:
    def outcome(settings):
        return {"test": {"nll": 8.4 + 0.01 * settings["seed"]}}

    write(tmp_path, music(), outcome)
    file = tmp_path / "music" / "runs" / "core.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()]
    history = {"validation": [8.6, 8.4]}
    file.write_text("".join(json.dumps({**r, "history": history}) + "\n" for r in records))
    write_study(music(), tmp_path, tmp_path / "with")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(find("music")), "anchors", ())
        write_study(music(), tmp_path, tmp_path / "without")
    one, other = (
        (tmp_path / x / "music-jsb-4-units.png").read_bytes() for x in ("with", "without")
    )
    assert one != other


def test_reports_name_no_task() -> None:
    """A new task is one file: nothing that trains, sweeps or reports may know it."""
    named = re.compile(rf"[\"'](?:{'|'.join(names())})[\"']|lab\.tasks\.")
    root = Path(rotcell.lab.__file__).parent
    files = [f for part in ("report", "sweep", "training") for f in (root / part).glob("*.py")]
    files += [root / name for name in ("task.py", "judged.py", "cells.py", "lines.py", "files.py")]
    assert files
    assert [f.name for f in files if named.search(f.read_text(encoding="utf-8"))] == []
