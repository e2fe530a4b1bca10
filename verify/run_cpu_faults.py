#!/usr/bin/env python3
"""Runs the CPU kernels with each fault of faults/cpu.toml planted: it must be caught.

These are faults of low precision in the portable kernels, which emulate the instructions, so that
every machine can run them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from planting import (
    COMPILER,
    ROOT,
    Fault,
    includes,
    not_caught,
    plant_in_copy,
    read_faults,
    report,
)

FLAGS = ["-std=c++20", "-O1", "-ffp-contract=off", "-pthread", "-DROTCELL_FEW_CELLS"]


def sources() -> list[Path]:
    runtime = ("barrier", "instruction_set", "partition")
    found = [s for part in ("loops", "matmul") for s in (ROOT / "csrc/cpu" / part).glob("*.cpp")]
    found += [ROOT / f"csrc/cpu/runtime/{name}.cpp" for name in runtime]
    return [s for s in found if "_avx" not in s.stem] + [ROOT / "verify/drivers/cpu_driver.cpp"]


def compile_source(source: Path, root: Path, output: Path) -> None:
    command = [COMPILER, *FLAGS, *includes(root), "-c", str(source), "-o", str(output)]
    subprocess.run(command, check=True)


def run_driver(objects: list[Path], folder: Path) -> tuple[int, str]:
    subprocess.run([COMPILER, "-pthread", *map(str, objects), "-o", folder / "driver"], check=True)
    environment = {**os.environ, "ROTCELL_ISA": "generic_bf16"}
    done = subprocess.run([folder / "driver"], env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def plant(fault: Fault, work: Path) -> str | None:
    """Builds and runs the driver with the fault. Why it was not caught, or None."""
    folder = Path(tempfile.mkdtemp(dir=work))
    source = plant_in_copy(fault, folder)
    compile_source(source, folder, folder / "faulty.o")
    objects = [work / f"{s.stem}.o" for s in sources() if s.stem != source.stem]
    problem = not_caught(fault, *run_driver([*objects, folder / "faulty.o"], folder))
    shutil.rmtree(folder)
    return problem


def main() -> None:
    faults = read_faults("cpu.toml")
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(os.cpu_count()) as pool:
        work = Path(name)
        list(pool.map(lambda s: compile_source(s, ROOT, work / f"{s.stem}.o"), sources()))
        status, output = run_driver([work / f"{s.stem}.o" for s in sources()], work)
        if status != 0:
            raise SystemExit(f"The driver failed without a fault:\n{output}")
        report(faults, list(pool.map(lambda fault: plant(fault, work), faults)))


if __name__ == "__main__":
    main()
