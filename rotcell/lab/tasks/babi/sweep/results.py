"""The outcome of a run, as a JSON file or as one line of a file of runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rotcell.lab import lines
from rotcell.lab.errors import ResultError
from rotcell.lab.files import write_atomically
from rotcell.lab.tasks.babi.data.source import DataName
from rotcell.lab.tasks.babi.history import History, Outcome
from rotcell.lab.tasks.babi.settings import FIXED_PROTOCOL, RunSettings

FORMAT: Final = "rotcell bAbI run 2"


@dataclass(frozen=True)
class Result:
    """A run that ended: with a history, or with an error."""

    settings: RunSettings
    data: DataName | None  # None when that could not be read
    history: History | None
    error: str | None
    seconds: float
    environment: Mapping[str, str | int]
    protocol: Mapping[str, str] | None = None  # what the settings do not say; None: as it is now

    @property
    def failed(self) -> bool:
        return self.history is None

    @property
    def outcome(self) -> Outcome:
        """The number that counts, of a run that did not fail."""
        assert self.history is not None
        return self.history.outcome

    def plain(self) -> dict[str, Any]:
        """As written in the file."""
        return {
            "format": FORMAT,
            "settings": self.settings.plain(),
            "data": None if self.data is None else self.data.plain(),
            "protocol": dict(self.protocol or FIXED_PROTOCOL),
            "environment": dict(self.environment),
            "outcome": None if self.history is None else self.outcome._asdict(),
            "error": self.error,
            "history": None if self.history is None else self.history.plain(),
            "seconds": round(self.seconds, 3),
        }

    @classmethod
    def from_plain(cls, plain: Any) -> Result:
        """The inverse of `plain`; ResultError when that cannot be."""
        if not isinstance(plain, dict) or plain.get("format") != FORMAT:
            raise ResultError("not the result of a run")
        try:
            history = None if plain["history"] is None else History.from_plain(plain["history"])
            result = cls(
                RunSettings.from_plain(plain["settings"]),
                None if plain["data"] is None else DataName.from_plain(plain["data"]),
                history,
                plain["error"],
                float(plain["seconds"]),
                dict(plain["environment"]),
                dict(plain["protocol"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ResultError(f"an incomplete result: {error}") from None
        if history is None and result.error is None:
            raise ResultError("an incomplete result: neither history nor error")
        if history is not None and (
            history.epochs != result.settings.epochs
            or set(history.test) != set(result.settings.test_epochs)
            or result.data is None
        ):
            raise ResultError("an incomplete result: epochs are missing")
        return result

    def save(self, path: Path) -> None:
        """Write to `path`, atomically."""
        write_atomically(path, (json.dumps(self.plain(), indent=1) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> Result:
        """Read a result; ResultError names the file when it is not one."""
        try:
            return cls.from_plain(json.loads(path.read_bytes()))
        except ValueError as error:
            raise ResultError(f"{path}: {error}") from None


def load_lines(path: Path) -> list[Result]:
    """The results in a file with one per line; ResultError names file and line."""
    results = []
    for number, line in enumerate(lines.read(path).splitlines(), start=1):
        try:
            results.append(Result.from_plain(json.loads(line)))
        except ValueError as error:
            raise ResultError(f"{path}:{number}: {error}") from None
    return results


def save_lines(path: Path, results: Iterable[Result]) -> None:
    """Write results one per line, in the order of their settings, atomically."""
    ordered = sorted(results, key=lambda result: result.settings.order)
    texts = (json.dumps(result.plain(), separators=(",", ":")) for result in ordered)
    lines.write(path, "".join(f"{text}\n" for text in texts).encode())
