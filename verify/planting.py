"""The planted faults, and what the programs that must notice them are built from."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).resolve().parent.parent
COMPILER = os.environ.get("CXX", "c++")
WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-pragmas",
]  # .ci/sanitize: the CPU's
NEED_CUDA_OR_TORCH = ("device.cu", "module.cpp")
Fault = dict[str, Any]


def includes(root: Path = ROOT) -> list[str]:
    return [f"-I{root / part}" for part in ("csrc", "verify")]


def is_of_the_cpu(source: Path) -> bool:
    return "cpu" in source.relative_to(ROOT).parts


def driver_sources() -> list[Path]:
    """The kernels, the emulator, and the CPU kernels that results are compared with."""
    patterns = (
        # The CPU's take longest to compile: first, so that nothing waits for them.
        "csrc/cpu/loops/*.cpp",
        *(f"csrc/cpu/runtime/{name}.cpp" for name in ("barrier", "instruction_set", "partition")),
        *("csrc/cuda/**/*.cu", "csrc/cuda/**/plan.cpp", "verify/emulator/*.cpp"),
        "verify/drivers/cuda_driver.cpp",
    )
    found = (source for pattern in patterns for source in sorted(ROOT.glob(pattern)))
    return [s for s in found if s.name not in NEED_CUDA_OR_TORCH and "_avx" not in s.stem]


def find_source(name: str) -> Path:
    """The one file of this name in csrc or verify."""
    found = [path for part in ("csrc", "verify") for path in (ROOT / part).rglob(name)]
    if len(found) != 1:
        raise SystemExit(f"There are {len(found)} files named {name}: change verify/faults.")
    return found[0]


def read_faults(name: str) -> list[Fault]:
    text = (ROOT / "verify/faults" / name).read_text(encoding="utf-8")
    return tomllib.loads(text)["fault"]


def plant_in_copy(fault: Fault, folder: Path) -> Path:
    """Copies csrc and verify to the folder, with the fault; returns the file to compile there."""
    for part in ("csrc", "verify"):
        shutil.copytree(ROOT / part, folder / part)
    faulty = folder / find_source(fault["file"]).relative_to(ROOT)
    text = faulty.read_text(encoding="utf-8")
    if fault["before"] not in text:
        raise SystemExit(f"{fault['file']} has not the text of {fault['name']!r}")
    faulty.write_text(text.replace(fault["before"], fault["after"], 1), encoding="utf-8")
    compiled = find_source(fault.get("compiled", fault["file"]))
    return folder / compiled.relative_to(ROOT)


def not_caught(fault: Fault, status: int, output: str) -> str | None:
    """Why the fault does not count as caught by a driver that ended so, or None if it does."""
    if status == 0:
        return "the driver passed"
    if fault["expected"] not in output:
        return f"it failed, but without {fault['expected']!r}:\n{output}"
    return None


def report(faults: list[Fault], outcomes: Sequence[str | None]) -> None:
    """Prints which faults were caught, and exits if one was not."""
    for fault, problem in zip(faults, outcomes, strict=True):
        print(f"{'caught' if problem is None else 'NOT CAUGHT'}: {fault['name']}")
        if problem is not None:
            print(f"    {problem}")
    caught = sum(problem is None for problem in outcomes)
    print(f"faults: {caught} caught, {len(faults) - caught} not caught", flush=True)
    if caught < len(faults):
        sys.exit(1)
