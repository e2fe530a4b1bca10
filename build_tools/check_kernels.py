"""Compiles every CUDA kernel for every kind of GPU and checks what it uses. No GPU is needed."""

import argparse
import difflib
import os
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ptxas_report
from cuda_architectures import parse_list
from cuda_compiler import find_nvcc, nvcc_command, toolkit_of
from sources import ROOT, cuda_sources

ARCHITECTURES = parse_list("7.5 8.0 8.6 8.9 9.0 10.0 12.0")
TABLE = ROOT / "docs/cuda-kernels.md"


def compile_all(toolkit):
    """What ptxas says of all sources."""
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    options = ["--resource-usage", "-Werror=all-warnings", *(a.gencode for a in ARCHITECTURES)]
    jobs = int(os.environ.get("MAX_JOBS") or len(os.sched_getaffinity(0)))

    def compile_one(source):
        # One call for all architectures: nvcc then does less than in a call for each.
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            output = ["--fatbin", str(source), "-o", str(Path(folder, "kernels.fatbin"))]
            command = [*nvcc_command(toolkit, compiler), *options, *output]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        log = done.stdout + done.stderr
        if done.returncode:
            raise SystemExit(f"{source.relative_to(ROOT)} does not compile:\n{log}")
        print(f"{source.name}: {time.monotonic() - start:.0f} s", flush=True)
        return ptxas_report.read(log)

    longest_first = sorted(cuda_sources(), key=lambda source: -source.stat().st_size)
    usages = {}
    with ThreadPoolExecutor(jobs) as pool:
        for found in pool.map(compile_one, longest_first):
            usages.update(found)
    return ptxas_report.named(usages)


def difference(committed, made):
    """What CI shows when the table is not the committed one; empty if it is."""
    lines = [text.splitlines(keepends=True) for text in (committed, made)]
    return "".join(difflib.unified_diff(*lines, "committed", "now", n=0))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true", help=f"write {TABLE.relative_to(ROOT)}")
    options = parser.parse_args()
    nvcc = find_nvcc()
    if nvcc is None:
        print("Skipped: no nvcc here.")
        return
    if not cuda_sources():
        sys.exit("There are no kernels in csrc/cuda.")
    start = time.monotonic()
    toolkit = toolkit_of(nvcc)
    usages = compile_all(toolkit)
    kernels = len({name for name, _ in usages})
    elapsed = time.monotonic() - start
    print(f"{kernels} kernels for {len(ARCHITECTURES)} architectures in {elapsed:.0f} s.")

    made = ptxas_report.table(usages, toolkit.release)
    committed = TABLE.read_text(encoding="utf-8") if TABLE.exists() else ""
    if options.update:
        TABLE.write_text(made, encoding="utf-8")
    elif committed and ptxas_report.release_of(committed) != toolkit.release:
        print(f"{TABLE.name} is of another nvcc than {toolkit.release}: not compared.")
    elif changes := difference(committed, made):
        sys.exit(f"{changes}\n{TABLE.name} differs: run .ci/cuda_kernels --update and commit it.")
    if found := ptxas_report.complaints(usages):
        sys.exit("\n".join(["Kernels must not use local memory:", *found]))


if __name__ == "__main__":
    main()
