"""Published records: small, and exact enough to check a repeated run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rotcell.lab import cli
from rotcell.lab.errors import SettingsError
from rotcell.lab.files import SWEEPING, Claims
from rotcell.lab.studies import STUDIES
from rotcell.lab.sweep.publish import checksum, publish, published
from rotcell.lab.sweep.store import Store
from rotcell.lab.sweep.study import Study
from rotcell.lab.tasks.babi.sweep.results import Result

CURVE = {"loss": [1.61165771484375, 0.1234567], "validation": [0.25, 1e-9]}
REPOSITORY = Path(__file__).resolve().parents[2]


def record(seed: int, **changes: Any) -> dict[str, Any]:
    settings = {"task": "groups", "dataset": "mod5", "cell": "lstm", "size": 8, "seed": seed}
    return {
        "format": "rotcell lab run 1",
        "settings": settings,
        "outcome": {"validation": 0.123456789012345},
        "history": CURVE,
        **changes,
    }


def parity() -> Study:
    return STUDIES["core"]


def test_curves_are_rounded_and_outcomes_are_not() -> None:
    found = published(record(0))
    assert found["history"] == {"loss": [1.6117, 0.12346], "validation": [0.25, 1e-9]}
    assert found["outcome"] == record(0)["outcome"]


def test_the_checksum_is_of_the_exact_curve() -> None:
    found = published(record(0))["history_sha256"]
    assert found == checksum(CURVE)
    other = {**CURVE, "loss": [1.61165771484375, 0.12345670000000001]}
    assert found != checksum(other)


def test_curves_of_tuning_runs_are_dropped() -> None:
    found = published(record(100))
    assert found["history"] is None
    assert found["history_sha256"] == checksum(CURVE)


def test_a_published_record_stays_as_it_is() -> None:
    once = published(record(0))
    assert published(once) == once


def test_all_records_are_in_the_compressed_file_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "groups" / "runs" / "core.jsonl"
    for seed in (1, 100, 0):
        Store(path).append(record(seed))
    (line,) = publish(parity(), tmp_path)
    assert line == f"{path}.gz: 3 runs"
    assert not path.exists()
    Store(path).append(record(2))
    with path.open("ab") as file:
        file.write(b'{"settings": {"ta\n')
    (line,) = publish(parity(), tmp_path)
    assert line == f"{path}.gz: 4 runs, 1 half-written lines left out"
    found = Store(path).records
    assert sorted(each["settings"]["seed"] for each in found) == [0, 1, 2, 100]
    assert found == [published(record(each["settings"]["seed"])) for each in found]


def test_publishing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "groups" / "runs" / "core.jsonl"
    for seed in (1, 0):
        Store(path).append(record(seed))
    list(publish(parity(), tmp_path))
    once = path.with_name("core.jsonl.gz").read_bytes()
    list(publish(parity(), tmp_path))
    assert path.with_name("core.jsonl.gz").read_bytes() == once


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_nothing_is_published_while_a_sweep_writes(tmp_path: Path) -> None:

    code = (
        "import sys; from pathlib import Path; from rotcell.lab.files import SWEEPING, Claims\n"
        f"claims = Claims(Path({str(tmp_path / '.claims')!r})); assert claims.share(SWEEPING)\n"
        "print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as sweep:
        assert sweep.stdin is not None
        assert sweep.stdout is not None
        sweep.stdout.readline()
        with Claims(tmp_path / ".claims") as claims:
            assert claims.share(SWEEPING)  # two sweeps may run
        with pytest.raises(SettingsError, match="a sweep is writing"):
            list(publish(parity(), tmp_path))
        sweep.stdin.close()


def test_the_command_prints_a_line_per_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Store(tmp_path / "groups" / "runs" / "core.jsonl").append(record(0))
    assert cli.main(["publish", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("core.jsonl.gz: 1 runs\n")


def test_rounding_changes_no_published_babi_outcome() -> None:
    """A bAbI outcome is derived from the curve; the record has the exact one next to it."""
    records = Store(REPOSITORY / "results" / "babi" / "runs" / "packed-sizes.jsonl").records
    assert records
    for each in records:
        assert "history_sha256" in each
        assert json.loads(json.dumps(Result.from_plain(each).outcome._asdict())) == each["outcome"]
