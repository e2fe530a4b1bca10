"""Runs the CUDA kernels from the PTX that nvcc makes of them, on the CPU, without a GPU.

The interpreter of PTX itself is tested first. Then the sequences of cuda_driver run for several
architectures, and with the faults of faults/ptx.toml planted, one at a time: each must be caught.
"""

from __future__ import annotations

import argparse
import os
import re
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
    find_source,
    includes,
    is_of_the_cpu,
    not_caught,
    read_faults,
    report,
)

sys.path.append(str(ROOT / "build_tools"))

from cuda_compiler import find_nvcc, nvcc_command, toolkit_of

FLAGS = ["-std=c++20", "-pthread", "-DROTCELL_EMULATOR", "-DROTCELL_PTX", *includes()]
# No contraction: PTX rounds a product and a sum separately.
FAST = ["-O2", "-march=native", "-ffp-contract=off"]
# Only the names and launches of the kernels are needed.
PLAIN = ["-O0"]
# ptx_test expects AddressSanitizer's answer whether an address belongs to an allocation.
ADDRESS = "-fsanitize=address"
ASKING = ("warp.cpp", "ptx_test.cpp")
# The driver's arguments in each run, longest runs first. All sequences run where there are
# clusters; the other architectures share most of the code. What is unrolled takes longest: each
# path has it on one architecture.
SOME = ("--stages", "--tensor", "--quick", "--clusters")
CHECKED = {
    "90": ("", "--unrolled --cluster"),
    "80": ("--unrolled --cooperative", *SOME),
    "75": SOME,
    "120": SOME,
}
KERNEL_FILES = (
    *("resident_forward", "resident_backward", "cooperative_forward", "cooperative_backward"),
    "stepwise",
)


def compile_source(source: Path, flags: list[str], folder: Path) -> Path:
    output = folder / f"{source.parent.name}_{source.stem}.o"
    more = [ADDRESS] if source.name in ASKING else []
    command = [COMPILER, *FLAGS, *flags, *more, "-x", "c++", "-c", str(source), "-o", str(output)]
    subprocess.run(command, check=True)
    return output


def link(objects: list[Path], program: Path) -> None:
    subprocess.run([COMPILER, *FLAGS, ADDRESS, *objects, "-o", program], check=True)


def build(work: Path, pool: ThreadPoolExecutor) -> None:
    """The programs cuda_driver and ptx_test."""
    drivers = [
        pool.submit(compile_source, s, [*([] if is_of_the_cpu(s) else WARNINGS), *PLAIN], work)
        for s in driver_sources()
    ]
    interpreter = [
        pool.submit(compile_source, source, [*WARNINGS, *FAST], work)
        for source in sorted(ROOT.glob("verify/ptx/*.cpp"))
    ]
    test = compile_source(ROOT / "verify/ptx/tests/ptx_test.cpp", [*WARNINGS, *PLAIN], work)
    parts = [job.result() for job in interpreter]
    *host, driver = [job.result() for job in drivers]
    link([driver, *host, *parts], work / "cuda_driver")
    link([test, *host, *parts], work / "ptx_test")


def compile_ptx(folder: Path, pool: ThreadPoolExecutor) -> None:
    """Writes a folder for each architecture."""
    command = nvcc_command(toolkit_of(find_nvcc()), [COMPILER])

    def compiled(architecture: str, source: Path) -> None:
        output = folder / architecture / f"{source.stem}.ptx"
        output.parent.mkdir(parents=True, exist_ok=True)
        options = ["-ptx", f"-arch=compute_{architecture}", str(source), "-o", str(output)]
        subprocess.run([*command, *options], check=True)

    sources = [find_source(f"{name}.cu") for name in KERNEL_FILES]
    for job in [pool.submit(compiled, arch, source) for arch in CHECKED for source in sources]:
        job.result()


def link_ptx(given: Path, folder: Path) -> None:
    """Link the PTX that is checked; check_kernels kept that of every source."""
    for architecture in CHECKED:
        (folder / architecture).mkdir(parents=True)
        for name in KERNEL_FILES:
            file = Path(architecture, f"{name}.ptx")
            (folder / file).symlink_to((given / file).resolve(strict=True))


def run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\n{command} failed.")
    return done.stdout.strip()


def replaced(text: str, fault: Fault) -> str:
    """The PTX with the fault: everywhere, or in one place of each kernel."""
    before, after, which = fault["before"], fault["after"], fault.get("occurrence")
    if which is None:
        return re.sub(before, after, text)

    def in_kernel(kernel: str) -> str:
        places = list(re.finditer(before, kernel))
        if not -len(places) <= which < len(places):
            return kernel
        place = places[which]
        return kernel[: place.start()] + place.expand(after) + kernel[place.end() :]

    head, *kernels = re.split(r"(?=\.entry )", text)
    return head + "".join(map(in_kernel, kernels))


def plant(fault: Fault, ptx: Path, work: Path) -> str | None:
    """Runs the driver with the fault. Why it was not caught, or None."""
    with tempfile.TemporaryDirectory(dir=work) as name:
        for file in (ptx / fault["architecture"]).glob("*.ptx"):
            Path(name, file.name).symlink_to(file)
        faulty = Path(name, fault["file"]).with_suffix(".ptx")
        text = faulty.read_text(encoding="utf-8")
        changed = replaced(text, fault)
        if changed == text:
            return f"{faulty.name} has no such text: change verify/faults/ptx.toml"
        faulty.unlink()
        faulty.write_text(changed, encoding="utf-8")
        command = [work / "cuda_driver", "--once", "--stop", "--ptx", name, *fault["arguments"]]
        done = subprocess.run(command, capture_output=True, text=True)
    return not_caught(fault, done.returncode, done.stdout)


def executed_share(files: list[Path]) -> str:
    """The share of instructions, and of mma, executed in these runs (ptx::write_coverage)."""
    executed, known = set(), set()
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            symbol, _, letters = line.partition(" ")
            for index, letter in enumerate(letters):
                place = (symbol, index, letter in "mo")
                known.add(place)
                if letter in "mx":
                    executed.add(place)

    def share(places: str, is_mma: bool | None) -> str:
        done, all_ = (
            sum(is_mma is None or place[2] == is_mma for place in found)
            for found in (executed, known)
        )
        return f"{done} of {all_} {places} ({100 * done / max(all_, 1):.0f} %)"

    return f"executed {share('instructions', None)}, {share('mma', True)}"


def check(work: Path, ptx: Path, pool: ThreadPoolExecutor) -> None:
    print(f"interpreter of PTX: {run(work / 'ptx_test')}", flush=True)

    def coverage(architecture: str, part: str) -> Path:
        return work / f"coverage-{architecture} {part}"

    def checked(architecture: str, part: str) -> str:
        options = ["--once", "--coverage", coverage(architecture, part), *part.split()]
        start = time.monotonic()
        output = run(work / "cuda_driver", "--ptx", ptx / architecture, *options)
        return f"{output} ({time.monotonic() - start:.0f} s)"

    runs = [(f"sm_{arch} {part}", arch, part) for arch, parts in CHECKED.items() for part in parts]
    jobs = [(name, pool.submit(checked, arch, part)) for name, arch, part in runs]
    faults = sorted(
        read_faults("ptx.toml"), key=lambda fault: "--unrolled" not in fault["arguments"]
    )
    plants = [pool.submit(plant, fault, ptx, work) for fault in faults]
    try:
        for name, job in jobs:
            print(f"{name.strip()}: {job.result()}", flush=True)
    except SystemExit:
        pool.shutdown(cancel_futures=True)
        raise
    for architecture, parts in CHECKED.items():
        share = executed_share([coverage(architecture, part) for part in parts])
        print(f"sm_{architecture}: {share}", flush=True)
    report(faults, [planted.result() for planted in plants])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ptx", type=Path, help="where .ci/cuda_kernels --ptx has put the PTX")
    options = parser.parse_args()
    if find_nvcc() is None:
        print("Skipped: no nvcc here.")
        return
    start = time.monotonic()
    jobs = int(os.environ.get("MAX_JOBS") or len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(jobs) as pool:
        work = Path(name)
        ptx = work / "ptx"
        build(work, pool)
        if options.ptx is None:
            compile_ptx(ptx, pool)
        else:
            link_ptx(options.ptx, ptx)
        print(f"Built in {time.monotonic() - start:.0f} s.", flush=True)
        check(work, ptx, pool)
    print(f"PTX checked in {time.monotonic() - start:.0f} s.")


if __name__ == "__main__":
    main()
