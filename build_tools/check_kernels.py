"""Compiles every CUDA kernel for every kind of GPU and checks what it uses. No GPU is needed.

What ptxas says of it is compared with docs/cuda-kernels.md and, where there is an nvdisasm, the
instructions with docs/cuda-instructions.md.
"""

import argparse
import difflib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import count_instructions
import ptxas_report
import sass
from cuda_architectures import parse_list
from cuda_compiler import find_nvcc, nvcc_command, toolkit_of
from sources import ROOT, cuda_sources

ARCHITECTURES = parse_list("7.5 8.0 8.6 8.9 9.0 10.0 12.0")
TABLE = ROOT / "docs/cuda-kernels.md"


def compile_all(toolkit, nvdisasm, ptx):
    """What ptxas says of all sources; and the instructions of their kernels, with an nvdisasm.

    Their PTX goes into that folder, if there is one.
    """
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    options = ["--resource-usage", "-Werror=all-warnings", *(a.gencode for a in ARCHITECTURES)]
    jobs = int(os.environ.get("MAX_JOBS") or len(os.sched_getaffinity(0)))

    def compile_one(source):
        # One call for all architectures: nvcc then does less than in a call for each.
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            output = ["--fatbin", str(source), "-o", str(Path(folder, "kernels.fatbin"))]
            kept = ["--keep", f"--keep-dir={folder}"] if nvdisasm or ptx else []
            command = [*nvcc_command(toolkit, compiler), *options, *kept, *output]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            log = done.stdout + done.stderr
            if done.returncode:
                raise SystemExit(f"{source.relative_to(ROOT)} does not compile:\n{log}")
            counts = count_instructions.count_cubins(nvdisasm, folder) if nvdisasm else {}
            if ptx:
                keep_ptx(folder, ptx)
        print(f"{source.name}: {time.monotonic() - start:.0f} s", flush=True)
        usages = ptxas_report.read(log)
        return usages, count_instructions.with_registers(counts, usages)

    longest_first = sorted(cuda_sources(), key=lambda source: -source.stat().st_size)
    usages, counts = {}, {}
    with ThreadPoolExecutor(jobs) as pool:
        for used, counted in pool.map(compile_one, longest_first):
            usages.update(used)
            counts.update(counted)
    counts = ptxas_report.named(counts)
    shown = {key: found for key, found in counts.items() if count_instructions.is_shown(key[0])}
    return ptxas_report.named(usages), shown


def keep_ptx(folder, to):
    """Moves what nvcc --keep left to where count_steps.py looks for it."""
    for kept in Path(folder).glob("*.compute_*.ptx"):
        name, architecture = kept.stem.split(".compute_")
        there = Path(to, architecture)
        there.mkdir(parents=True, exist_ok=True)
        shutil.move(kept, there / f"{name}.ptx")


def difference(committed, made):
    """What CI shows when the table is not the committed one; empty if it is."""
    lines = [text.splitlines(keepends=True) for text in (committed, made)]
    return "".join(difflib.unified_diff(*lines, "committed", "now", n=0))


def compare(path, made, update, command=".ci/cuda_kernels"):
    """Write a table, or say how it differs from the committed one; empty if it does not."""
    committed = path.read_text(encoding="utf-8") if path.exists() else ""
    tools, tools_of_committed = map(count_instructions.tools_of, (made, committed))
    if update:
        path.write_text(made, encoding="utf-8")
    elif committed and tools != tools_of_committed:
        print(f"{path.name} is not of {' and '.join(tools)}: not compared.")
    elif changes := difference(committed, made):
        return f"{changes}\n{path.name} differs: run {command} --update and commit it."
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true", help="write both tables")
    parser.add_argument("--ptx", type=Path, help="keep the PTX in this folder, for .ci/ptx")
    options = parser.parse_args()
    nvcc = find_nvcc()
    if nvcc is None:
        print("Skipped: no nvcc here.")
        return
    if not cuda_sources():
        sys.exit("There are no kernels in csrc/cuda.")
    nvdisasm = sass.find_nvdisasm(nvcc)
    if nvdisasm is None:
        print("Instructions are not counted: no nvdisasm here (package nvidia-cuda-nvdisasm).")
    start = time.monotonic()
    toolkit = toolkit_of(nvcc)
    usages, counts = compile_all(toolkit, nvdisasm, options.ptx)
    kernels = len({name for name, _ in usages})
    elapsed = time.monotonic() - start
    print(f"{kernels} kernels for {len(ARCHITECTURES)} architectures in {elapsed:.0f} s.")

    tables = {TABLE: ptxas_report.table(usages, toolkit.release)}
    if nvdisasm is not None:
        version = count_instructions.version_of(nvdisasm)
        tables[count_instructions.TABLE] = count_instructions.table(
            counts, toolkit.release, version
        )
    changes = [compare(path, made, options.update) for path, made in tables.items()]
    if any(changes):
        sys.exit("\n".join(filter(None, changes)))
    if found := ptxas_report.complaints(usages):
        sys.exit("\n".join(["Kernels must not use local memory:", *found]))


if __name__ == "__main__":
    main()
