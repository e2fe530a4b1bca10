"""Runs checks one after the other and reports each as a line of JSON.

It is a separate process because a faulty kernel may crash it or corrupt the GPU's context.
`collect` then starts another for the remaining checks.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, TextIO

from .checks import Check, all_checks
from .machine import Gpu

#: Exit status of a worker after which the device did not answer any more.
CONTEXT_LOST = 3


def say(message: dict[str, Any], lines: TextIO) -> None:
    """Write a line for the process that collects the results."""
    print(json.dumps(message), file=lines, flush=True)


def run(check: Check, machine: Gpu, seconds: float) -> dict[str, Any]:
    """What a check found, or the error that it ended with."""
    try:
        return check(machine, seconds)
    except Exception as error:  # any error is a finding
        text = f"{type(error).__name__}: {error}"
        return {"ok": False, "error": text, "traceback": traceback.format_exc()}


def work(
    machine: Gpu, checks: dict[str, Check], names: Sequence[str], seconds: float, lines: TextIO
) -> int:
    """Run these checks and report the results in `lines`; returns the exit status."""
    for name in names:
        say({"start": name}, lines)
        result = run(checks[name], machine, seconds)
        try:
            machine.force_path(None)
            machine.synchronize()
        except Exception as error:
            result |= {"ok": False, "device_lost": str(error)}
            say({"done": name, "result": result}, lines)
            return CONTEXT_LOST
        say({"done": name, "result": result}, lines)
    return 0


def main(arguments: Sequence[str]) -> int:
    """``worker SECONDS_A_TIMING``, with the names of the checks in lines on standard input."""
    names = sys.stdin.read().splitlines()
    # Redirect standard output, so that prints of other code do not mix with the lines of JSON.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as lines:
        os.dup2(2, 1)
        return work(Gpu(), all_checks(), names, float(arguments[0]), lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
