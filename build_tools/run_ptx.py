"""Runs the CUDA kernels from the PTX that nvcc makes of them, on the CPU, without a GPU.

The executor of PTX itself is tested first. Then the sequences of cuda_driver run for several kinds
of GPU, and with faults planted in the PTX, each of which must be caught. What a step executes is
compared with docs/cuda-counts.md; --update writes that table.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import check_kernels
import count_steps
from cuda_compiler import find_nvcc, nvcc_command, toolkit_of
from sources import ROOT

COMPILER = os.environ.get("CXX", "c++")
CSRC = ROOT / "csrc"
FLAGS = ["-std=c++20", "-pthread", "-DROTCELL_SIMT", "-DROTCELL_PTX"]
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]
# A product and a sum are rounded one after the other, whatever the processor could do.
FAST = ["-O2", "-march=native", "-ffp-contract=off"]
# Of the kernels only the names and launches are needed.
PLAIN = ["-O0"]
# One function asks it whether an address is of an allocation; the test expects that.
ADDRESS = "-fsanitize=address"
ASKING = ("warp.cpp", "ptx_test.cpp")
# All sequences where there are clusters; the others share most of the code.
SOME = ("--quick", "--tensor", "--clusters")
CHECKED = {"75": SOME, "80": SOME, "90": ("",), "120": SOME}
COUNTED = ("80", "90")
KERNEL_FILES = (
    *("resident_forward", "resident_backward", "cooperative_forward", "cooperative_backward"),
    "stepwise",
)


@dataclass
class Fault:
    name: str
    architecture: str
    file: str
    before: str  # a regular expression
    after: str
    sign: str  # of being caught for the right reason
    arguments: tuple[str, ...]  # of the driver


RESIDENT = ("--quick", "--resident")
COOPERATIVE = ("--quick", "--cooperative")
FAULTS = [
    Fault(
        "tensor cores: two registers of A change places",
        *("80", "cooperative_forward"),
        r"(mma\.sync\S+ \{[^}]*\}, \{%r\d+), (%r\d+), (%r\d+)",
        r"\1, \3, \2",
        "FAILED rot_lstm cooperative",
        ("--tensor",),
    ),
    Fault(
        "ldmatrix: rows one further",
        *("80", "cooperative_backward"),
        r"(ldmatrix\S+ \{[^}]*\}, \[%r\d+)\]",
        r"\1+16]",
        "FAILED rot_lstm cooperative",
        ("--tensor",),
    ),
    Fault(
        "a copy is not waited for",
        *("80", "cooperative_forward"),
        r"cp\.async\.wait_group 0",
        "cp.async.wait_group 9",
        "FAILED rot_lstm cooperative",
        COOPERATIVE,
    ),
    Fault(
        "no block signals",
        *("80", "cooperative_forward"),
        r"red\.release\.gpu\.global\.add\.u64 (\[%rd\d+\]), 1",
        r"red.release.gpu.global.add.u64 \1, 0",
        "deadlock",
        COOPERATIVE,
    ),
    Fault(
        "a shuffle from the next lane, whatever the distance",
        *("80", "resident_forward"),
        r"(shfl\.sync\.bfly\.b32\s+%r\d+\|%p\d+, %r\d+), %r\d+",
        r"\1, 1",
        "FAILED rot_lstm resident",
        RESIDENT,
    ),
    Fault(
        "an address of a vector four bytes off",
        *("80", "resident_forward"),
        r"(ld\.shared\.v4\.f32\s+\{[^}]*\}, \[%r\d+)\]",
        r"\1+4]",
        "misaligned address in shared memory",
        RESIDENT,
    ),
    Fault(
        "sums written far beyond",
        *("75", "resident_backward"),
        r"(st\.shared\.f32\s+\[%r\d+)\]",
        r"\1+262144]",
        "beyond shared memory",
        RESIDENT,
    ),
    Fault(
        "results written beyond a tensor",
        *("75", "resident_forward"),
        r"(st\.global\.f32\s+\[%rd\d+)\]",
        r"\1+64]",
        "beyond global memory",
        RESIDENT,
    ),
    Fault(
        "a predicate selects the other number",
        *("75", "resident_forward"),
        r"(selp\.f32\s+%f\d+), (%f\d+), (%f\d+)",
        r"\1, \3, \2",
        "FAILED rot_lstm resident",
        RESIDENT,
    ),
    Fault(
        "all of a cluster writes to its first block",
        *("90", "cooperative_forward"),
        r"(mapa\.shared::cluster\.u32 %r\d+, %r\d+), %r\d+",
        r"\1, 0",
        "FAILED rot_lstm cluster",
        ("--clusters",),
    ),
    Fault(
        "no block waits for its cluster",
        *("90", "cooperative_backward"),
        r"barrier\.cluster\.wait\.acquire;",
        "",
        "before it has waited for the last",
        ("--clusters",),
    ),
]


def host_sources(csrc: Path) -> list[Path]:
    """Of the kernels and what they are compared with. Two files need CUDA and torch."""
    unfit = {csrc / "cuda/device.cu", csrc / "simt/module.cpp"}
    patterns = ("cpu/*.cpp", "cuda/*.cu", "cuda/*.cpp", "simt/*.cpp")
    found = (source for pattern in patterns for source in sorted(csrc.glob(pattern)))
    return [s for s in found if s not in unfit and "_avx" not in s.stem]


def compile_host(csrc: Path, source: Path, flags: list[str], folder: Path) -> Path:
    output = folder / f"{source.parent.name}_{source.stem}.o"
    more = [ADDRESS] if source.name in ASKING else []
    command = [COMPILER, *FLAGS, f"-I{csrc}", *flags, *more, "-x", "c++", "-c", str(source)]
    subprocess.run([*command, "-o", str(output)], check=True)
    return output


def compile_executor(folder: Path, pool: ThreadPoolExecutor) -> list[Path]:
    """Of PTX: what it is made of."""
    sources = sorted(CSRC.glob("ptx/*.cpp"))
    return list(pool.map(lambda s: compile_host(CSRC, s, [*WARNINGS, *FAST], folder), sources))


def link(objects: list[Path], program: Path) -> None:
    subprocess.run([COMPILER, *FLAGS, ADDRESS, *objects, "-o", program], check=True)


def build(work: Path, pool: ThreadPoolExecutor) -> None:
    """The programs cuda_driver, ptx_counts and ptx_test."""

    def compiled(source: Path) -> Path:
        warnings = [] if source.parent.name == "cpu" else WARNINGS
        return compile_host(CSRC, source, [*warnings, *PLAIN], work)

    tests = [CSRC / f"tests/{name}.cpp" for name in ("cuda_driver", "ptx_counts", "ptx_test")]
    jobs = pool.map(compiled, [*host_sources(CSRC), *tests])
    executor = compile_executor(work, pool)
    *objects, driver, counts, test = jobs
    for program in (driver, counts, test):
        link([program, *objects, *executor], work / program.stem.removeprefix("tests_"))


def compile_ptx(
    command: list[str], sources: list[Path], folder: Path, architectures: Iterable[str],
    pool: ThreadPoolExecutor,
) -> None:  # fmt: skip
    """A folder for each architecture."""

    def compiled(architecture: str, source: Path) -> None:
        output = folder / architecture / f"{source.stem}.ptx"
        output.parent.mkdir(parents=True, exist_ok=True)
        options = ["-ptx", f"-arch=compute_{architecture}", str(source), "-o", str(output)]
        subprocess.run([*command, *options], check=True)

    jobs = [pool.submit(compiled, arch, source) for arch in architectures for source in sources]
    for job in jobs:
        job.result()


def run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\n{command} failed.")
    return done.stdout.strip()


def plant(fault: Fault, ptx: Path, work: Path) -> str | None:
    """Run the driver with the fault; what is wrong if it was not caught, or None."""
    with tempfile.TemporaryDirectory(dir=work) as name:
        for file in (ptx / fault.architecture).glob("*.ptx"):
            Path(name, file.name).symlink_to(file)
        faulty = Path(name, f"{fault.file}.ptx")
        text = faulty.read_text(encoding="utf-8")
        changed = re.sub(fault.before, fault.after, text)
        if changed == text:
            return f"there is no such place in {faulty.name}; change the list of faults"
        faulty.unlink()
        faulty.write_text(changed, encoding="utf-8")
        command = [work / "cuda_driver", "--once", "--ptx", name, *fault.arguments]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return "the driver passed"
    if fault.sign not in done.stdout:
        return f"it failed, but without {fault.sign!r}:\n{done.stdout}{done.stderr}"
    return None


def check(work: Path, ptx: Path, pool: ThreadPoolExecutor) -> None:
    print(f"executor of PTX: {run(work / 'ptx_test')}", flush=True)

    def checked(architecture: str, part: str) -> str:
        parts = [part] if part else []
        return run(work / "cuda_driver", "--once", "--ptx", ptx / architecture, *parts)

    runs = [(f"sm_{arch} {part}", arch, part) for arch, parts in CHECKED.items() for part in parts]
    jobs = [(name, pool.submit(checked, arch, part)) for name, arch, part in runs]
    for name, job in jobs:
        print(f"{name.strip()}: {job.result()}", flush=True)
    outcomes = list(pool.map(lambda fault: plant(fault, ptx, work), FAULTS))
    for fault, problem in zip(FAULTS, outcomes, strict=True):
        print(f"{'caught' if problem is None else 'NOT CAUGHT'}: {fault.name}")
        if problem is not None:
            print(f"    {problem}")
    if any(outcomes):
        sys.exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true", help="write docs/cuda-counts.md")
    parser.add_argument("--ptx", type=Path, help="where .ci/cuda_kernels --ptx has put the PTX")
    options = parser.parse_args()
    nvcc = find_nvcc()
    if nvcc is None:
        print("Skipped: no nvcc here.")
        return
    start = time.monotonic()
    jobs = int(os.environ.get("MAX_JOBS") or len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(jobs) as pool:
        work = Path(name)
        ptx = options.ptx or work / "ptx"
        build(work, pool)
        if options.ptx is None:
            kernels = [CSRC / f"cuda/{name}.cu" for name in KERNEL_FILES]
            command = nvcc_command(toolkit_of(nvcc), [COMPILER])
            compile_ptx(command, kernels, ptx, CHECKED, pool)
        print(f"Built in {time.monotonic() - start:.0f} s.", flush=True)
        check(work, ptx, pool)
        counted = pool.map(
            lambda arch: run(work / "ptx_counts", ptx / arch, *count_steps.sequences(arch)), COUNTED
        )
        rows = [row for text in counted for row in count_steps.read(text)]
    made = count_steps.table(rows, toolkit_of(nvcc).release)
    if changes := check_kernels.compare(count_steps.TABLE, made, options.update, ".ci/ptx"):
        sys.exit(changes)
    print(
        f"{len(FAULTS)} faults caught, {len(rows)} rows counted; {time.monotonic() - start:.0f} s."
    )


if __name__ == "__main__":
    main()
