#!/usr/bin/env python3
"""Runs the CUDA kernels on the CPU, in the emulator.

First every kernel as it is, and the kernels of one cell per recurrence under AddressSanitizer with
UndefinedBehaviorSanitizer and under ThreadSanitizer. Then with each fault of faults/source.toml
planted: it must be caught.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from planting import (
    COMPILER,
    ROOT,
    WARNINGS,
    Fault,
    driver_sources,
    includes,
    is_of_the_cpu,
    not_caught,
    plant_in_copy,
    read_faults,
    report,
)

FLAGS = ["-std=c++20", "-DROTCELL_EMULATOR"]
# Sanitizers and planted faults test the templates: one cell per recurrence is enough.
FEW_CELLS = "-DROTCELL_FEW_CELLS"
# ASan detects null pointers and most misaligned ones anyway; these checks take long to compile.
UNDEFINED = "-fno-sanitize=null,alignment"
SANITIZERS = {
    "address": [
        *["-O1", "-g1", FEW_CELLS, "-fsanitize=address,undefined", UNDEFINED],
        "-fno-sanitize-recover=all",
    ],
    "threads": ["-O1", "-g1", FEW_CELLS, "-fsanitize=thread"],
}
BUILDS = {**SANITIZERS, "all-cells": ["-O1"], "results": ["-O1", FEW_CELLS]}
ENVIRONMENT = {
    **os.environ,
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}


def compiled_for(source: Path, build: str) -> str:
    """The build whose object file is linked: .ci/sanitize runs sanitizers on the CPU kernels."""
    return "results" if is_of_the_cpu(source) and build in SANITIZERS else build


def object_file(source: Path, build: str, work: Path) -> Path:
    return work / compiled_for(source, build) / f"{source.parent.name}_{source.stem}.o"


def compile_source(source: Path, root: Path, build: str, output: Path) -> None:
    warnings = [] if "cpu" in source.relative_to(root).parts else WARNINGS
    flags = [*FLAGS, *warnings, *BUILDS[build], *includes(root)]
    command = [COMPILER, *flags, "-x", "c++", "-c", str(source), "-o", str(output)]
    subprocess.run(command, check=True)


def link(objects: list[Path], build: str, folder: Path) -> None:
    names = [str(name) for name in objects]
    command = [COMPILER, "-pthread", *BUILDS[build], *names, "-o", str(folder / "driver")]
    subprocess.run(command, check=True)


def build_drivers(work: Path, pool: ThreadPoolExecutor) -> None:
    for build in BUILDS:
        (work / build).mkdir()
    jobs = [
        pool.submit(compile_source, source, ROOT, build, object_file(source, build, work))
        for build in BUILDS
        for source in driver_sources()
        if compiled_for(source, build) == build
    ]
    for job in jobs:
        job.result()
    for build in BUILDS:
        link([object_file(source, build, work) for source in driver_sources()], build, work / build)


def run_driver(folder: Path, *arguments: str) -> None:
    start = time.monotonic()
    done = subprocess.run(
        [folder / "driver", *arguments], env=ENVIRONMENT, capture_output=True, text=True
    )
    print(f"{folder.name}: {done.stdout.strip()} ({time.monotonic() - start:.0f} s)", flush=True)
    if done.returncode:
        sys.exit(f"{done.stderr}\nThe driver failed in the build {folder.name}.")


def plant(fault: Fault, work: Path) -> str | None:
    """Builds and runs the driver with the fault. Why it was not caught, or None."""
    folder = Path(tempfile.mkdtemp(dir=work))
    source, build = plant_in_copy(fault, folder), fault["build"]
    compile_source(source, folder, build, folder / "faulty.o")
    compiled = ROOT / source.relative_to(folder)
    objects = [object_file(s, build, work) for s in driver_sources() if s != compiled]
    link([*objects, folder / "faulty.o"], build, folder)
    command = [folder / "driver", *fault["arguments"]]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    shutil.rmtree(folder)
    return not_caught(fault, done.returncode, done.stdout + done.stderr)


def main() -> None:
    faults = read_faults("source.toml")
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(os.cpu_count()) as pool:
        work = Path(name)
        build_drivers(work, pool)
        runs = [
            # Sanitizers see a fault in any order of the threads.
            pool.submit(run_driver, work / "threads", "--clusters", "--once"),
            pool.submit(run_driver, work / "address", "--once"),
            pool.submit(run_driver, work / "threads", "--quick", "--once"),
            pool.submit(run_driver, work / "all-cells"),
        ]
        plants = [pool.submit(plant, fault, work) for fault in faults]
        try:
            for run in runs:
                run.result()
        except SystemExit:
            pool.shutdown(cancel_futures=True)
            raise
        report(faults, [planted.result() for planted in plants])


if __name__ == "__main__":
    main()
