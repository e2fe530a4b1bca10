"""Progress on a terminal, and in a log."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO


def duration(seconds: float) -> str:
    """Seconds in readable form: 42 s, 3:05 min, 2:10 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"


class ProgressBar:
    """A line that is redrawn on a terminal; elsewhere only `note` leaves anything behind."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self.live = self._stream.isatty()
        self._began = time.monotonic()

    def show(self, done: float, text: str) -> None:
        """Draw the bar with `done` from 0 to 1."""
        if self.live:
            filled = round(done * 24)
            line = f"[{'#' * filled}{'.' * (24 - filled)}] {done:4.0%}  {text}"
            width = shutil.get_terminal_size().columns - 1
            self._write(f"\r{line[:width]}\033[K")

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self._write(f"\r{text}\033[K\n" if self.live else f"{text}\n")

    def close(self) -> None:
        """Leave the line of the bar empty."""
        if self.live:
            self._write("\r\033[K")

    def left(self, done: float) -> str:
        """How much longer it takes, at the rate since the bar was made."""
        if done <= 0:
            return "?"
        return duration((time.monotonic() - self._began) * (1 - done) / done)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
