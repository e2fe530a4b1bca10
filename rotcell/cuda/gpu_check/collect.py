"""Starts workers, gathers their results, and continues after one that crashes or hangs."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

#: Time limits in seconds: per check, and for a worker to begin its first check.
LONGEST_CHECK = 60.0
START = 60.0
#: How much of a crashed worker's standard error is kept.
KEPT_CHARACTERS = 4000
#: Time limit for reading it: a child process that is still alive keeps the pipe open.
READING_ERRORS = 5.0

Result = dict[str, Any]
Progress = Callable[[str, Result], None]


@dataclass
class _Worker:
    process: subprocess.Popen[str]
    lines: queue.Queue[str | None]
    errors: list[str]
    reading_errors: threading.Thread

    @classmethod
    def start(cls, command: Sequence[str], names: Sequence[str]) -> _Worker:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        assert process.stdin is not None
        assert process.stderr is not None
        errors: list[str] = []
        reading_errors = threading.Thread(target=errors.extend, args=(process.stderr,), daemon=True)
        reading_errors.start()
        worker = cls(process, queue.Queue(), errors, reading_errors)
        threading.Thread(target=worker._read_lines, args=(process.stdout,), daemon=True).start()
        try:
            process.stdin.write("\n".join(names))
            process.stdin.close()
        except BrokenPipeError:
            pass  # the worker has ended; message() will notice
        return worker

    def _read_lines(self, stream: IO[str]) -> None:
        for line in stream:
            self.lines.put(line)
        self.lines.put(None)

    def message(self, seconds: float) -> dict[str, Any] | None:
        """The next message; None after the last. queue.Empty if none comes in time."""
        line = self.lines.get(timeout=max(seconds, 0.01))
        if line is None:
            return None
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def last_words(self) -> str:
        self.reading_errors.join(READING_ERRORS)
        return "".join(self.errors)[-KEPT_CHARACTERS:]


def collect(
    names: Sequence[str],
    command: Sequence[str],
    seconds: float,
    progress: Progress,
    longest_check: float = LONGEST_CHECK,
) -> dict[str, Result]:
    """The results of these checks by name, within about so many seconds.

    A check fails if its worker ends or reports nothing; the remaining checks still run. Checks that
    there was no time for are missing.
    """
    deadline = time.monotonic() + seconds
    results: dict[str, Result] = {}
    left = list(names)

    def note(name: str, result: Result) -> None:
        results[name] = result
        progress(name, result)

    while left and time.monotonic() < deadline:
        worker = _Worker.start(command, left)
        running: str | None = None
        begun = time.monotonic()
        limit = START
        try:
            while True:
                limit = min(limit, deadline - time.monotonic() + 1)
                message = worker.message(limit)
                if message is None:
                    break
                limit = longest_check
                if "start" in message:
                    running, begun = message["start"], time.monotonic()
                else:
                    seconds_taken = round(time.monotonic() - begun, 2)
                    note(message["done"], message["result"] | {"seconds": seconds_taken})
                    left.remove(message["done"])
                    running = None
        except queue.Empty:
            worker.end()
            if time.monotonic() >= deadline:
                break
            note(running or left[0], {"ok": False, "error": f"no answer within {limit:.0f} s"})
            left.remove(running or left[0])
            continue
        status = worker.process.wait()
        if running is not None or (left and status not in (0, 3)):
            name = running or left[0]
            error = f"the process ended with status {status}"
            note(name, {"ok": False, "error": error, "stderr": worker.last_words()})
            left.remove(name)
    return results


def worker_command(seconds_a_timing: float) -> list[str]:
    """How a worker is started."""
    return [sys.executable, "-m", "rotcell.cuda.gpu_check.worker", f"{seconds_a_timing:g}"]
