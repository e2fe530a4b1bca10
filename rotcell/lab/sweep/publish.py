"""Publishing the records of studies: small, and exact enough to check a repeated run.

Results stay as they are. The curves, nine tenths of a record, are rounded, and those of runs that
only chose settings are left out; a checksum of the exact curve remains.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rotcell.lab import lines
from rotcell.lab.errors import SettingsError
from rotcell.lab.files import SWEEPING, Claims
from rotcell.lab.sweep.store import Store
from rotcell.lab.sweep.study import FIRST_TUNING_SEED, Study, key_of
from rotcell.lab.task import FORMAT, Record

DIGITS: Final = 5
CHECKSUM: Final = "history_sha256"


def checksum(history: Any) -> str:
    """Equal for the same bits of every value."""
    return hashlib.sha256(json.dumps(history, sort_keys=True).encode()).hexdigest()[:16]


def published(record: Record) -> Record:
    """The record as it is published; a published one stays the same."""
    if CHECKSUM in record:
        return record
    history = record["history"]
    is_tuning = record["settings"]["seed"] >= FIRST_TUNING_SEED
    kept = None if is_tuning and record["format"] == FORMAT else _rounded(history)
    return {**record, "history": kept, CHECKSUM: checksum(history)}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value


def publish(study: Study, folder: Path) -> Iterator[str]:
    """Move all records of a study to its .jsonl.gz files; a line for each file."""
    with Claims(folder / ".claims") as claims:
        if not claims.take(SWEEPING):
            raise SettingsError(f"a sweep is writing to {folder}: stop it first")
        for task, file in dict.fromkeys((block.task, block.file) for block in study.blocks):
            path = folder / task / "runs" / f"{file}{lines.PLAIN}"
            store = Store(path)
            if not store.records:
                continue
            by_key = {key_of(record["settings"]): record for record in store.records}
            texts = (
                json.dumps(published(by_key[key]), separators=(",", ":"), allow_nan=False)
                for key in sorted(by_key)
            )
            compressed, _ = lines.both(path)
            lines.write(compressed, "".join(f"{text}\n" for text in texts).encode())
            path.unlink(missing_ok=True)
            lost = f", {store.damaged} half-written lines left out" if store.damaged else ""
            yield f"{compressed}: {len(by_key)} runs{lost}"
