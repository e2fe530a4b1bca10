"""Counts the instructions of the compiled CUDA kernels, loop by loop. No GPU is needed.

`python verify/reports/count_instructions.py csrc/cuda/kernels/resident_forward.cu` compiles a
file and prints the loop over the steps of each of its kernels, and the innermost loops in it.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[2] / "build_tools"))

import ptxas_report
import sass
from cuda_architectures import parse_list
from cuda_compiler import find_nvcc, nvcc_command, toolkit_of


class LoopCounts(NamedTuple):
    """The instructions of a loop, each counted once."""

    kinds: dict[str, int]
    in_flight: int  # loads from global memory that are waited for together

    @classmethod
    def of(cls, instructions):
        return cls(dict(sass.counts(instructions)), sass.loads_in_flight(instructions))

    @property
    def all(self):
        return sum(self.kinds.values())

    def __str__(self):
        kinds = [f"{self.kinds[kind]} {kind}" for kind in sass.KINDS if self.kinds.get(kind)]
        return f"{self.all}: {', '.join(kinds)}"


class KernelCounts(NamedTuple):
    steps: LoopCounts
    innermost: list[LoopCounts]


def count(text):
    """{symbol: KernelCounts} of the kernels that have a loop over steps."""
    found = {}
    for kernel in sass.read(text):
        steps = kernel.steps()
        if steps is not None:
            inner = [LoopCounts.of(kernel.within(loop)) for loop in kernel.innermost(steps)]
            found[kernel.symbol] = KernelCounts(LoopCounts.of(kernel.within(steps)), inner)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="a file of csrc/cuda")
    parser.add_argument("--arch", default="8.0", help="as in TORCH_CUDA_ARCH_LIST (default: 8.0)")
    parser.add_argument("--kernel", default="", help="only those whose names have this in them")
    options = parser.parse_args()
    nvcc = find_nvcc()
    nvdisasm = sass.find_nvdisasm(nvcc)
    if nvcc is None or nvdisasm is None:
        missing = "nvcc" if nvcc is None else "nvdisasm (package nvidia-cuda-nvdisasm)"
        sys.exit(f"This needs {missing}, which was not found.")
    (architecture,) = parse_list(options.arch)
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernels.cubin")
        output = ["--cubin", str(options.source), "-o", str(cubin)]
        command = nvcc_command(toolkit_of(nvcc), compiler)
        subprocess.run([*command, f"-arch=sm_{architecture.number}", *output], check=True)
        found = count(sass.disassemble(nvdisasm, cubin))
    names = ptxas_report.demangled(sorted(found))
    for symbol, counts in sorted(found.items(), key=lambda item: names[item[0]]):
        name = ptxas_report.readable(names[symbol])
        if options.kernel not in name:
            continue
        print(f"{name}\n  steps  {counts.steps}, {counts.steps.in_flight} in flight")
        for loop in counts.innermost:
            print(f"    loop {loop}, {loop.in_flight} in flight")


if __name__ == "__main__":
    main()
