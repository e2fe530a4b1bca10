"""Counts the instructions of the compiled CUDA kernels, loop by loop. No GPU is needed.

`python build_tools/count_instructions.py csrc/cuda/resident_forward.cu` compiles a file and prints
the loop over the steps of each of its kernels, and the innermost loops in it; .ci/cuda_kernels
makes docs/cuda-instructions.md of those of all files.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import ptxas_report
import sass
from cuda_architectures import parse_list
from cuda_compiler import find_nvcc, nvcc_command, toolkit_of
from sources import ROOT

TABLE = ROOT / "docs/cuda-instructions.md"
#: Of the table. A cell of each recurrence, and the types for which GPUs are bought, say it all.
ARCHITECTURES = ("sm_80", "sm_90")
SHOWN = re.compile(r"^\w+<Rot(Lstm|Gru)\b")
LEFT_OUT = re.compile(r"bfloat16|float64|^stage")
SHOWN_KINDS = ("global", "shared", "mma", "fma", "float", "special", "integer", "branch")
HEADER = (
    *("kernel", "GPU", "registers", "all", *SHOWN_KINDS, "barriers", "in flight"),
    *("product loop", "loading loop"),
)


class LoopCounts(NamedTuple):
    """Of the instructions of a loop, each counted once."""

    kinds: dict[str, int]
    barriers: int  # of the block
    in_flight: int  # loads from global memory that are waited for together
    copies: int  # from global to shared memory, past the registers

    @classmethod
    def of(cls, instructions):
        return cls(
            dict(sass.counts(instructions)),
            sass.barriers(instructions),
            sass.loads_in_flight(instructions),
            sum(i.base == "LDGSTS" for i in instructions),
        )

    @property
    def all(self):
        return sum(self.kinds.values())

    @property
    def products(self):
        """What multiplies, an instruction of a tensor core for many."""
        return 1000 * self.kinds.get("mma", 0) + self.kinds.get("fma", 0)

    def __str__(self):
        kinds = [f"{self.kinds[kind]} {kind}" for kind in sass.KINDS if self.kinds.get(kind)]
        return f"{self.all}: {', '.join(kinds)}"


class KernelCounts(NamedTuple):
    registers: int
    steps: LoopCounts
    innermost: list[LoopCounts]
    unrolled: list[LoopCounts]  # runs without a jump that use tensor cores

    @property
    def product_loop(self):
        """The innermost loop, or run for tensor cores, that multiplies most."""
        found = [*self.innermost, *self.unrolled]
        best = max(found, key=lambda loop: loop.products, default=None)
        return best if best is not None and best.products else None

    @property
    def loading_loop(self):
        """The innermost loop that brings numbers into shared memory and does little else."""
        loading = [
            loop
            for loop in self.innermost
            if loop.in_flight and (loop.copies or loop.kinds.get("shared", 0))
        ]
        return max(loading, key=lambda loop: loop.kinds["global"] / loop.all, default=None)


def count(text):
    """{symbol: KernelCounts} of the kernels that have a loop over steps, without registers."""
    found = {}
    for kernel in sass.read(text):
        steps = kernel.steps()
        if steps is not None:
            inner = [LoopCounts.of(kernel.within(loop)) for loop in kernel.innermost(steps)]
            runs = [LoopCounts.of(run) for run in kernel.runs(steps)]
            unrolled = [run for run in runs if run.kinds.get("mma")]
            whole = LoopCounts.of(kernel.within(steps))
            found[kernel.symbol] = KernelCounts(0, whole, inner, unrolled)
    return found


def with_registers(found, usages):
    """Of {(symbol, architecture): ...}, those that ptxas told."""
    return {
        key: counts._replace(registers=usages[key].registers)
        for key, counts in found.items()
        if key in usages
    }


def count_cubins(nvdisasm, folder):
    """{(symbol, architecture): KernelCounts} of what nvcc --keep left in a folder."""
    found = {}
    for cubin in sorted(Path(folder).glob("*.cubin")):
        arch = "sm_" + re.search(r"(?:sm|compute)_(\w+)\.cubin", cubin.name).group(1)
        if arch in ARCHITECTURES:
            for symbol, counts in count(sass.disassemble(nvdisasm, cubin)).items():
                found[symbol, arch] = counts
    return found


def is_shown(name):
    return bool(SHOWN.search(name)) and not LEFT_OUT.search(name)


def _loop_text(loop):
    return str(loop) if loop is not None else ""


def _loading_text(loop):
    return f"{loop}; {loop.in_flight} in flight" if loop is not None else ""


def table(counts, release, disassembler):
    """Markdown of {(readable name, architecture): KernelCounts}."""
    lines = [
        "# What the CUDA kernels execute",
        "",
        f"Instructions of the code that nvcc {release} makes, as nvdisasm {disassembler} shows",
        "them; made by `.ci/cuda_kernels --update`. Counted is the text of the loop over steps,",
        "each instruction once, however often the loops inside it run; what the compiler has moved",
        "out of the loop is not in it. A cell of each recurrence, float32 and float16; the other",
        "cells and types are made from the same source.",
        "",
        "- *global*: loads and stores of global (or generic) memory; *shared*: of shared memory.",
        "- *mma*: tensor cores; *fma*: multiply and add; *float*: other arithmetic of floats and",
        "  halves; *special*: exp, sine, division and conversions; *integer*: addresses,",
        "  comparisons and moves.",
        "- *barriers*: waits of a block for all its threads.",
        "- *in flight*: the most loads from global memory that a thread has issued by the time it",
        "  needs one of them.",
        "- *product loop*: the innermost loop that multiplies most; on tensor cores, whose weights",
        "  are in registers, it is unrolled, and this is the longest part of it without a jump.",
        "  *loading loop*: the one that brings numbers from global into shared memory and does",
        "  little else.",
        "",
        f"| {' | '.join(HEADER)} |",
        f"| --- | --- |{' ---: |' * (len(HEADER) - 4)} --- | --- |",
    ]
    for name, arch in sorted(counts, key=lambda key: (key[0], int(key[1].removeprefix("sm_")))):
        found = counts[name, arch]
        steps = found.steps
        cells = [
            *(f"`{name}`", arch, found.registers, steps.all),
            *(steps.kinds.get(kind, 0) for kind in SHOWN_KINDS),
            *(steps.barriers, steps.in_flight),
            *(_loop_text(found.product_loop), _loading_text(found.loading_loop)),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def version_of(nvdisasm):
    answer = subprocess.run([nvdisasm, "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"V(\d+(?:\.\d+)+)", answer.stdout)
    return match.group(1) if match else "unknown"


def tools_of(text):
    """The compiler and disassembler that a table was made with, as it names them."""
    return re.findall(r"(?:nvcc|nvdisasm) \d+(?:\.\d+)+", text)


def read_table(text):
    """{(kernel, architecture): {column: text}} of a table that this script wrote."""
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.splitlines()
        if line.startswith("| `")
    ]
    return {
        (cells[0].strip("`"), cells[1]): dict(zip(HEADER[2:], cells[2:], strict=True))
        for cells in rows
    }


def read_loop(text):
    """{kind: instructions}, with `all` and, if it says so, `in flight`, of a loop in the table."""
    if not text:
        return {}
    found = {"all": int(text.split(":")[0])}
    pairs = re.findall(r"(\d+) (in flight|[a-z]+)", text.split(":", 1)[1])
    return found | {kind: int(number) for number, kind in pairs}


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
