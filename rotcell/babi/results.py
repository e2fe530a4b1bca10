"""The outcome of a run as a JSON file, one a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rotcell.babi.atomic import write_atomically
from rotcell.babi.history import History, Outcome
from rotcell.babi.settings import RunSettings

FORMAT: Final = "rotcell bAbI run 1"


class ResultError(ValueError):
    """A file that is no result, or is damaged."""


@dataclass(frozen=True)
class Result:
    """A run that ended: with a history, or with an error."""

    settings: RunSettings
    digest: str  # of the data; empty when that could not be read
    history: History | None
    error: str | None
    seconds: float
    versions: Mapping[str, str]

    @property
    def failed(self) -> bool:
        return self.history is None

    @property
    def outcome(self) -> Outcome:
        """The number that counts, of a run that did not fail."""
        assert self.history is not None
        return self.history.outcome

    def plain(self) -> dict[str, Any]:
        """As it stands in the file."""
        return {
            "format": FORMAT,
            "settings": self.settings.plain(),
            "data": self.digest,
            "outcome": None if self.history is None else self.outcome._asdict(),
            "error": self.error,
            "history": None if self.history is None else self.history.plain(),
            "seconds": round(self.seconds, 3),
            "versions": dict(self.versions),
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
                str(plain["data"]),
                history,
                plain["error"],
                float(plain["seconds"]),
                dict(plain["versions"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ResultError(f"an incomplete result: {error}") from None
        if history is None and result.error is None:
            raise ResultError("an incomplete result: neither history nor error")
        if history is not None and (
            history.epochs != result.settings.epochs
            or set(history.test) != set(result.settings.test_epochs)
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
