"""The command: ``python -m rotcell --check-gpu``."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rotcell import _libraries

from . import timings
from .checks import all_checks
from .collect import Result, collect, worker_command
from .summary import summary, verdict

FORMAT = 1
DEFAULT_OUTPUT = Path("rotcell-gpu-check.json")
DEFAULT_SECONDS = 300.0
#: The share of the time limit that each size of the timings gets after warm-up.
SHARE_OF_A_TIMING = 1 / 400

RIGHT, FAILED, CANNOT, INTERRUPTED = 0, 1, 2, 130


def obstacle() -> str | None:
    """Why there is nothing to check here."""
    if torch.version.cuda is None:
        return (
            f"torch {torch.__version__} is a CPU build; install one with CUDA, then rotcell again"
        )
    if not torch.cuda.is_available():
        return "torch sees no GPU here"
    if not _libraries.has_cuda():
        return (
            "rotcell was built without CUDA kernels, or they were not loaded: `python -m rotcell`"
        )
    return None


class _Report:
    """What is written to the file, and shown."""

    def __init__(self, output: Path, names: Sequence[str]) -> None:
        self.output, self.names = output, names
        self.begun = time.monotonic()
        self.checks: dict[str, Result] = {}

    def to_json(self) -> dict[str, Any]:
        measured = [c for c in self.checks.values() if "microseconds_per_step" in c]
        return {
            "kind": "rotcell --check-gpu",
            "format": FORMAT,
            "seconds": round(time.monotonic() - self.begun, 1),
            "facts": self.checks.get("facts", {}),
            "checks": {name: found for name, found in self.checks.items() if name != "facts"},
            "choices": timings.choices(measured),
            "not_made": [name for name in self.names if name not in self.checks],
        }

    def add(self, name: str, result: Result) -> None:
        self.checks[name] = result
        shown = result.get("name", "?") if name == "facts" and result["ok"] else verdict(result)
        print(f"[{len(self.checks):3}/{len(self.names)}] {name}: {shown}", flush=True)
        self.write()

    def write(self) -> None:
        """Write the file atomically: people send it."""
        unfinished = self.output.with_name(self.output.name + ".part")
        unfinished.write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")
        os.replace(unfinished, self.output)


def check_gpu(output: Path, seconds: float, names: Sequence[str], command: Sequence[str]) -> int:
    """Run these checks in workers started by `command`, the first alone; the exit status."""
    report = _Report(output, names)
    try:
        report.write()
    except OSError as error:
        print(f"--output: {output} cannot be written: {error}", file=sys.stderr)
        return CANNOT
    end = time.monotonic() + seconds
    interrupted = False
    try:
        # Only a worker asks the device: this process leaves no context on it.
        collect(names[:1], command, seconds, report.add)
        if report.checks.get("facts", {}).get("has_code") is False:
            print("No GPU was checked: rotcell's kernels were not built for this one; `python -m "
                  "rotcell` lists the architectures.", file=sys.stderr)  # fmt: skip
            return CANNOT
        collect(names[1:], command, end - time.monotonic(), report.add)
    except KeyboardInterrupt:
        interrupted = True  # what was found so far is still worth sending
        print("Interrupted.", file=sys.stderr)
    report.write()
    found = report.to_json()
    print(summary(found))
    print(f"\nPlease send us {output}: everything above is in it, and nothing about your data.")
    if interrupted:
        return INTERRUPTED
    failed = any(result["ok"] is False for result in report.checks.values())
    return FAILED if failed or not report.checks else RIGHT


def main(output: Path, seconds: float) -> int:
    """Run --check-gpu; returns the exit status."""
    if reason := obstacle():
        print(f"No GPU was checked: {reason}.", file=sys.stderr)
        return CANNOT
    print(f"Checks and timings, {seconds:g} s at most; what is found goes to {output}.")
    return check_gpu(
        output, seconds, list(all_checks()), worker_command(seconds * SHARE_OF_A_TIMING)
    )
