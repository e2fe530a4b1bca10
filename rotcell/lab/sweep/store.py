"""Records of finished runs, one per line, appended as runs end."""

from __future__ import annotations

import json
import os
from pathlib import Path

from rotcell.lab import lines
from rotcell.lab.task import Record


class Store:
    """A file of records (.jsonl). Several sweeps may append to it, whole lines at a time.

    Records that were published, in the .jsonl.gz of the same name, come first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0  # bytes
        self.records: list[Record] = []
        self.damaged = (
            0  # lines, such as an incomplete one of a sweep that was killed while writing
        )
        published, _ = lines.both(path)
        if published.exists():
            self._parse(lines.read(published))
        self.refresh()

    def refresh(self) -> list[Record]:
        """Read what has been appended since the last look; the new records."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        return self._parse(whole)

    def _parse(self, content: bytes) -> list[Record]:
        found = []
        for line in content.splitlines():
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                record["settings"], record["outcome"]
            except (ValueError, KeyError, TypeError):
                self.damaged += 1
                continue
            found.append(record)
        self.records += found
        return found

    def append(self, record: Record) -> None:
        """Add a record; it is on the disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        with self.path.open("ab") as file:
            # End the half line that a killed sweep left: nothing else is lost with it.
            if self._ends_in_half_a_line():
                line = b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def _ends_in_half_a_line(self) -> bool:
        if self.path.stat().st_size == 0:
            return False
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() != b"\n"
