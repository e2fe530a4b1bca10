"""Studies: what is chosen, what comes next, what is kept."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from collections.abc import Generator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from training_helpers import wait_until

from rotcell.lab import cli
from rotcell.lab.cells import CELLS, matched_size
from rotcell.lab.errors import SettingsError
from rotcell.lab.studies import CORE, STUDIES
from rotcell.lab.sweep.engine import Ended, Event
from rotcell.lab.sweep.queue import LabWork, Outcome, Queue, run_study
from rotcell.lab.sweep.store import Store
from rotcell.lab.sweep.study import Block, Plain, Run, Study, full_key
from rotcell.lab.tasks import find
from rotcell.lab.tasks.babi.data.generate import write_dataset
from rotcell.lab.tasks.babi.sweep.results import load_lines

ARMS = tuple(
    {"task": "groups", "dataset": "parity", "cell": cell, "size": 4} for cell in ("lstm", "gru")
)
BLOCK = Block("groups", "made-up", "parity", ARMS, {"lr": (1e-3, 3e-3)}, tuning_seeds=2, seeds=3)
STUDY = Study("made-up", "for tests", (BLOCK,))


def record(settings: Plain, error: float, steps: int | None = None) -> dict[str, Any]:
    test = {"solved": 1.0, "accuracy_128": 1.0, "accuracy_512": 0.5}
    outcome = {"validation": error, "steps_to_target": steps, "test": test}
    full = json.loads(full_key("groups", settings))
    return {
        "format": "rotcell lab run 1",
        "settings": full,
        "outcome": outcome,
        "seconds": 1.0,
        "cpu_seconds": 2.0,
        "environment": {"machine": "made up", "torch": "2.13.0"},
    }


class Made(LabWork):
    """Records without training: LSTM is best at the higher rate, GRU at the lower one."""

    def compute(self, run: Run, *_: Any) -> Outcome:
        best = 3e-3 if run.settings["cell"] == "lstm" else 1e-3
        return Outcome(run, record(run.settings, abs(run.settings["lr"] - best)))


def engine(runs: Iterable[Run], work: Any) -> Generator[Event, None, None]:
    for run in runs:
        yield Ended(work.compute(run, 1, None, lambda _: None))


def test_rates_are_chosen_with_separate_seeds_and_widened_at_an_edge(tmp_path: Path) -> None:
    done, failed = run_study(STUDY, tmp_path, Made(), engine, lambda _: None)
    found = Store(tmp_path / "groups" / "runs" / "made-up.jsonl").records
    assert (done, failed) == (len(found), 0)
    runs = {cell: set() for cell in ("lstm", "gru")}
    for each in found:
        settings = each["settings"]
        runs[settings["cell"]].add((settings["lr"], settings["seed"]))
    tuning = {(lr, seed) for lr in (1e-3, 3e-3) for seed in (100, 101)}
    assert runs["lstm"] == {*tuning, (1e-2, 100), (1e-2, 101), (3e-3, 0), (3e-3, 1), (3e-3, 2)}
    assert runs["gru"] == {*tuning, (3e-4, 100), (3e-4, 101), (1e-3, 0), (1e-3, 1), (1e-3, 2)}
    assert run_study(STUDY, tmp_path, Made(), engine, lambda _: None) == (0, 0)


def test_equal_errors_are_decided_by_speed() -> None:
    known = {}
    for lr, steps in ((1e-3, 500), (3e-3, 200), (1e-2, None)):
        for seed in (100, 101):
            settings = {**ARMS[0], "lr": lr, "seed": seed}
            known[full_key("groups", settings)] = record(settings, 0.0, steps)
    block = Block("groups", "f", "", ARMS[:1], {"lr": (1e-3, 3e-3, 1e-2)})
    assert block.choice(ARMS[0], known) == {"lr": 3e-3}


def test_a_killed_sweep_loses_at_most_its_half_line(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "x.jsonl"
    store = Store(path)
    store.append(record({**ARMS[0], "lr": 1e-3, "seed": 0}, 0.1))
    with path.open("ab") as file:
        file.write(b'{"settings": {"ta')
    again = Store(path)
    assert len(again.records) == 1
    again.append(record({**ARMS[0], "lr": 1e-3, "seed": 1}, 0.2))
    assert [r["settings"]["seed"] for r in Store(path).records] == [0, 1]
    assert [r["settings"]["seed"] for r in again.refresh()] == [1]
    assert [r["settings"]["seed"] for r in store.refresh()] == [0, 1]


def test_published_records_are_not_computed_again(tmp_path: Path) -> None:
    run_study(STUDY, tmp_path, Made(), engine, lambda _: None)
    path = tmp_path / "groups" / "runs" / "made-up.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.with_name("made-up.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[:-1])))
    path.unlink()
    assert run_study(STUDY, tmp_path, Made(), engine, lambda _: None) == (1, 0)
    assert path.read_bytes() == lines[-1]
    assert len(Store(path).records) == len(lines)


def test_records_of_other_data_are_not_mixed(tmp_path: Path) -> None:
    class On(Made):
        def __init__(self, md5: str) -> None:
            super().__init__()
            object.__setattr__(self, "md5", md5)

        def compute(self, run: Run, *rest: Any) -> Outcome:
            found = super().compute(run, *rest)
            found.record["data"] = {"name": "made up", "md5": self.md5}
            return found

    fewer = Study("fewer", "", (replace(BLOCK, seeds=1),))
    run_study(fewer, tmp_path, On("a"), engine, lambda _: None)
    before = (tmp_path / "groups" / "runs" / "made-up.jsonl").read_bytes()
    with pytest.raises(SettingsError, match="use that data or another --out"):
        run_study(STUDY, tmp_path, On("b"), engine, lambda _: None)
    assert (tmp_path / "groups" / "runs" / "made-up.jsonl").read_bytes() == before
    assert run_study(STUDY, tmp_path, On("a"), engine, lambda _: None) == (4, 0)


def test_failures_are_reported_and_tried_again_by_the_next_sweep(tmp_path: Path) -> None:
    class Failing(Made):
        def compute(self, run: Run, *rest: Any) -> Outcome:
            if run.settings["cell"] == "gru":
                return Outcome(run, None, "Traceback ...\nValueError: no")
            return super().compute(run, *rest)

    lines: list[str] = []
    done, failed = run_study(STUDY, tmp_path, Failing(), engine, lines.append)
    assert (done, failed) == (9, 4)
    assert sum("FAILED" in line and line.endswith("ValueError: no") for line in lines) == 4
    assert run_study(STUDY, tmp_path, Made(), engine, lambda _: None) == (9, 0)


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_studies_are_made_of_runs_that_exist(study: Study) -> None:
    for block in study.blocks:
        runs = list(block.all({}))
        assert len({full_key(block.task, run) for run in runs}) == len(runs)
        assert find(block.task).settings(runs[0]).plain().items() >= runs[0].items()
        plain = {arm["cell"] for arm in block.arms if not CELLS[arm["cell"]].rotating}
        assert plain, "nothing to compare with"


def test_a_grid_of_one_rate_is_not_widened() -> None:
    settings = {**ARMS[0], "lr": 1.0, "seed": 100}
    known = {full_key("groups", settings): record(settings, 0.1)}
    block = Block("groups", "f", "", ARMS[:1], {"lr": (1.0,)}, tuning_seeds=1)
    assert block.choice(ARMS[0], known) == {"lr": 1.0}


def test_a_plain_layer_is_matched_to_the_rotating_layer_of_its_block() -> None:
    block = STUDIES["larger"].blocks[0]
    sizes = [arm["size"] for arm in block.arms if arm["cell"] == "lstm"]
    assert sizes == [8, matched_size("lstm", 6, 6, 8, "rotlstm3")]


def test_the_core_study_leaves_out_what_has_no_data() -> None:
    queue = Queue(CORE, Path("nowhere"), {})
    assert {block.task for block in queue.left_out} == {"babi", "music", "text"}
    assert next(queue).settings["dataset"] == "mod5"


def test_a_dry_run_counts_runs_and_names_missing_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STUDIES, "core", STUDY)
    assert cli.main(["sweep", "core", "--dry-run", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "   14 runs" in out
    assert "with 2 workers" in out
    assert cli.main(["sweep", "core", "--data", f"music={tmp_path / 'no'}"]) == 1
    assert "the data of music must be at an existing path" in capsys.readouterr().err


def test_only_some_blocks_in_the_order_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", "core", "--dry-run", "--out", str(tmp_path)]
    assert cli.main([*words, "--only", "s3, 8 units, classic", "--only", "copying:"]) == 1
    assert "no block of core contains 's3, 8 units, classic':" in (error := capsys.readouterr().err)
    assert all(f"\n  {block.description}\n" in error for block in CORE.blocks)
    found = CORE.only(["groups: s3, 8 units", "mod5, 8", "s3, 8 units, lstm"])
    assert [block.about for block in found.blocks] == [
        "s3, 8 units, lstm, rotlstm, classicgru, rotgru",
        "s3, 8 units, gru",
        "mod5, 8 units, lstm, rotlstm, classicgru, rotgru",
        "mod5, 8 units, gru",
    ]
    assert cli.main([*words, "--only", "s3, 8 units, gru"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.endswith("groups: s3, 8 units, gru")
    assert last.startswith("About ")


def test_a_killed_study_continues(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rotcell.lab", "sweep", "core", "--workers", "1"]
    with subprocess.Popen([*command, "--out", str(tmp_path)], stdout=subprocess.DEVNULL) as process:
        path = tmp_path / "groups" / "runs" / "core.jsonl"
        try:
            wait_until(lambda: path.exists() and bool(Store(path).records))
        finally:
            process.send_signal(signal.SIGKILL)
    again = next(Queue(CORE, tmp_path, {})).settings
    assert full_key("groups", again) not in {
        full_key("groups", r["settings"]) for r in Store(path).records
    }


def test_train_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "record.json"
    options = ["--dataset", "parity", "--size", "4", "--lr", "0.01", "--record", str(file)]
    assert cli.main(["train", "groups", *options]) == 0
    assert "accuracy_128" in capsys.readouterr().out
    assert json.loads(file.read_text())["settings"]["start"] == "pi"


def test_a_run_of_babi_is_known_by_its_record(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", tasks=(1,), questions=60)
    arm = {"task": 1, "cell": "rotlstm", "state_size": 4, "packed": True, "epochs": 1}
    study = Study("s", "", (Block("babi", "packed", "", (arm,), seeds=2),))
    work = LabWork({"babi": tmp_path / "data"})
    lines: list[str] = []
    assert run_study(study, tmp_path, work, engine, lines.append) == (2, 0), lines
    (*_, last) = load_lines(tmp_path / "babi" / "runs" / "packed.jsonl")
    assert last.settings.packed
    assert run_study(study, tmp_path, work, engine, lines.append) == (0, 0)


def test_tables_are_of_final_seeds_with_the_chosen_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STUDIES, "core", STUDY)
    report = ["report", str(tmp_path), "--study", "core"]
    assert cli.main(report) == 0
    assert "No final run" in capsys.readouterr().out
    run_study(STUDY, tmp_path, Made(), engine, lambda _: None)
    assert cli.main(report) == 0
    assert "18 runs are finished and 0 are to come" in capsys.readouterr().out
    assert cli.main([*report, "--out", str(tmp_path / "page")]) == 0
    layers = (tmp_path / "page" / "layers.md").read_text()
    assert "| lstm 4 | lr 0.003 | 3 | 0 | - | solved 3/3 [0.44, 1.00], accuracy_128 " in layers
    assert "| gru 4 | lr 0.001 | 3 |" in layers


def test_wrong_paths_are_one_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "input.txt").touch()
    nowhere = tmp_path / "nowhere"
    for words, error in (
        (["train", "text", "--data", str(tmp_path)], f"error: {tmp_path / 'input.txt'} is empty"),
        (["publish", str(nowhere)], f"error: there is no folder {nowhere}"),
        (["report", str(nowhere), "--study", "core"], f"error: there is no folder {nowhere}"),
    ):
        assert cli.main(words) == 1
        assert capsys.readouterr().err.strip() == error
    assert not nowhere.exists()
