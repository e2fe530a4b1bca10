"""Compiles every CUDA kernel for every kind of GPU and checks what it uses. No GPU is needed.

Fails if ptxas reports stack or spills. --report writes what each kernel uses.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "build_tools"))

import ptxas_report
from cuda_architectures import parse_list
from cuda_compiler import find_nvcc, nvcc_command, toolkit_of
from sources import ROOT, cuda_sources

ARCHITECTURES = parse_list("7.5 8.0 8.6 8.9 9.0 10.0 12.0")


def compile_all(toolkit, ptx):
    """What ptxas reports for all sources. Keeps their PTX in the folder `ptx`, if given."""
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    options = ["--resource-usage", "-Werror=all-warnings", *(a.gencode for a in ARCHITECTURES)]
    jobs = int(os.environ.get("MAX_JOBS") or len(os.sched_getaffinity(0)))

    def compile_one(source):
        # One call for all architectures: nvcc then does less than in a call for each.
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            output = ["--fatbin", str(source), "-o", str(Path(folder, "kernels.fatbin"))]
            kept = ["--keep", f"--keep-dir={folder}"] if ptx else []
            command = [*nvcc_command(toolkit, compiler), *options, *kept, *output]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            log = done.stdout + done.stderr
            if done.returncode:
                raise SystemExit(f"{source.relative_to(ROOT)} does not compile:\n{log}")
            if ptx:
                keep_ptx(folder, ptx)
        print(f"{source.name}: {time.monotonic() - start:.0f} s", flush=True)
        return ptxas_report.read(log)

    longest_first = sorted(cuda_sources(), key=lambda source: -source.stat().st_size)
    usages = {}
    with ThreadPoolExecutor(jobs) as pool:
        for used in pool.map(compile_one, longest_first):
            usages.update(used)
    return ptxas_report.named(usages)


def keep_ptx(folder, to):
    """Moves what nvcc --keep left to where run_ptx.py looks for it."""
    for kept in Path(folder).glob("*.compute_*.ptx"):
        name, architecture = kept.stem.split(".compute_")
        there = Path(to, architecture)
        there.mkdir(parents=True, exist_ok=True)
        shutil.move(kept, there / f"{name}.ptx")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, help="write what each kernel uses to this file")
    parser.add_argument("--ptx", type=Path, help="keep the PTX in this folder, for .ci/ptx")
    options = parser.parse_args()
    nvcc = find_nvcc()
    if nvcc is None:
        print("Skipped: no nvcc here.")
        return
    if not cuda_sources():
        sys.exit("There are no kernels in csrc/cuda.")
    start = time.monotonic()
    toolkit = toolkit_of(nvcc)
    usages = compile_all(toolkit, options.ptx)
    kernels = len({name for name, _ in usages})
    elapsed = time.monotonic() - start
    print(f"{kernels} kernels for {len(ARCHITECTURES)} architectures in {elapsed:.0f} s.")
    if options.report:
        options.report.write_text(ptxas_report.table(usages, toolkit.release), encoding="utf-8")
    if found := ptxas_report.complaints(usages):
        sys.exit("\n".join(["Kernels must not use local memory:", *found]))


if __name__ == "__main__":
    main()
