"""Reads compiled kernels as nvdisasm prints them: kinds of instructions, loops, loads in flight.

What it counts is text: each instruction once, however often it runs. A loop is what lies between a
jump backwards and where it goes; code that the compiler has moved out of there is not seen.
"""

import re
import shutil
import subprocess
import sysconfig
from collections import Counter
from pathlib import Path
from typing import NamedTuple

#: Kinds of instructions, and the beginnings of the opcodes that belong to them; what is left is
#: "integer": address arithmetic, comparisons, moves.
OPCODES = {
    "global": ("LDG", "STG", "LD", "ST", "ATOM", "ATOMG", "RED", "REDG", "LDGSTS", "UBLKCP"),
    "shared": ("LDS", "STS", "LDSM", "STSM", "ATOMS"),
    "local": ("LDL", "STL"),
    "mma": ("HMMA", "IMMA", "DMMA", "BMMA", "HGMMA", "IGMMA", "QGMMA", "OMMA", "QMMA"),
    "fma": ("FFMA", "FFMA2", "DFMA", "HFMA2"),
    "float": (
        *("FMUL", "FADD", "FMNMX", "FSEL", "FSETP", "FMUL2", "FADD2", "DMUL", "DADD", "DSETP"),
        *("HMUL2", "HADD2", "HMNMX2", "HSETP2"),
    ),
    "special": ("MUFU", "F2F", "F2I", "I2F", "F2FP", "I2FP", "FRND", "F2IP"),
    "barrier": (
        *("BAR", "BARRIER", "MEMBAR", "ERRBAR", "CCTL", "DEPBAR", "LDGDEPBAR", "SYNCS"),
        *("UCGABAR_ARV", "UCGABAR_WAIT", "FENCE", "WARPSYNC"),
    ),
    "branch": ("BRA", "BRX", "BSSY", "BSYNC", "BREAK", "EXIT", "CALL", "RET", "JMP", "YIELD"),
}
INTEGER = "integer"
KINDS = (*OPCODES, INTEGER)
_KIND_OF = {opcode: kind for kind, opcodes in OPCODES.items() for opcode in opcodes}
_WIDTHS = {"64": 2, "128": 4}


class Instruction(NamedTuple):
    address: int
    opcode: str  # with its suffixes, such as LDG.E.64
    operands: str
    target: int | None = None  # of a jump

    @property
    def base(self):
        return self.opcode.split(".")[0]

    @property
    def kind(self):
        # Uniform instructions do for a warp what ordinary ones do for a thread.
        return _KIND_OF.get(self.base, INTEGER)

    @property
    def waits_for_block(self):
        return self.opcode.startswith(("BAR.SYNC", "BAR.RED", "BARRIER.SYNC"))

    @property
    def loads_global(self):
        return self.base in ("LDG", "LD", "LDGSTS")


class Loop(NamedTuple):
    first: int  # addresses of its instructions
    last: int

    def contains(self, other):
        return self != other and self.first <= other.first and other.last <= self.last


class Kernel(NamedTuple):
    symbol: str
    instructions: list[Instruction]

    def within(self, loop):
        return [i for i in self.instructions if loop.first <= i.address <= loop.last]

    def loops(self):
        """Outer before inner ones. Jumps to themselves, which pad the end of a kernel, are none."""
        ends = {}
        for i in self.instructions:
            if i.target is not None and i.target < i.address and i.base in ("BRA", "BRX"):
                ends[i.target] = max(i.address, ends.get(i.target, 0))
        return [Loop(first, last) for first, last in sorted(ends.items())]

    def innermost(self, outer):
        loops = [loop for loop in self.loops() if outer.contains(loop)]
        return [a for a in loops if not any(a.contains(b) for b in loops)]

    def steps(self):
        """The loop over the steps: the longest one with a barrier. None without."""
        with_barrier = [
            loop for loop in self.loops() if any(i.waits_for_block for i in self.within(loop))
        ]
        return max(with_barrier, key=lambda loop: loop.last - loop.first, default=None)


def _section_name(line):
    match = re.match(r"\.text\.(\S+):$", line)
    return match and match.group(1)


_INSTRUCTION = re.compile(
    r"\s*/\*([0-9a-f]{4,})\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?)\s*(?:\}\s*)?;"
)


def read(text):
    """All kernels in what `nvdisasm --print-code` prints."""
    kernels, labels, waiting, rows, symbol = [], {}, [], [], None

    def finish():
        if symbol is None:
            return
        instructions = []
        for address, opcode, operands in rows:
            jump = (
                re.search(r"`\(([^)]+)\)", operands) if opcode.startswith(("BRA", "BRX")) else None
            )
            target = labels.get(jump.group(1)) if jump else None
            instructions.append(Instruction(address, opcode, operands, target))
        kernels.append(Kernel(symbol, instructions))

    for line in text.splitlines():
        if name := _section_name(line):
            finish()
            symbol, rows, labels, waiting = name, [], {}, []
        elif label := re.match(r"(\.L\w+):", line):
            waiting.append(label.group(1))
        elif match := _INSTRUCTION.match(line):
            address = int(match.group(1), 16)
            labels.update(dict.fromkeys(waiting, address))
            waiting = []
            rows.append((address, match.group(2), match.group(3)))
    finish()
    return kernels


def counts(instructions):
    """Instructions by kind."""
    return Counter(i.kind for i in instructions)


def _registers(text):
    return {int(number) for number in re.findall(r"\bR(\d+)\b", text)}


def _destinations(load):
    """Registers that a load fills; none for a copy to shared memory."""
    if load.base == "LDGSTS":
        return set()
    first = re.match(r"R(\d+)\b", load.operands.split(",")[0].strip())
    if first is None:
        return set()
    width = next((_WIDTHS[s] for s in load.opcode.split(".") if s in _WIDTHS), 1)
    return set(range(int(first.group(1)), int(first.group(1)) + width))


def loads_in_flight(instructions):
    """The most loads from global memory that a thread has issued when it needs one of them.

    Jumps are taken as if they were not there. What a load filled is needed by what reads or
    overwrites it; copies to shared memory are waited for by name.
    """
    waiting, most = [], 0  # registers of each load, oldest first; None for a copy
    for i in instructions:
        needed = _registers(i.operands)
        waits_for_copies = i.base == "DEPBAR"
        used = [
            k
            for k, filled in enumerate(waiting)
            if (waits_for_copies if filled is None else filled & needed)
        ]
        if used:
            most = max(most, len(waiting))
            waiting = waiting[used[-1] + 1 :]  # older ones are there by then
        if i.loads_global:
            filled = _destinations(i)
            waiting.append(filled or None)
    return max(most, len(waiting))


def find_nvdisasm(nvcc=None, packages=None):
    """nvdisasm of the toolkit, on the PATH, or of nvidia-cuda-nvdisasm; None if there is none."""
    folders = [Path(nvcc).resolve().parent] if nvcc else []
    installed = [Path(p) for p in (packages, sysconfig.get_path("purelib")) if p]
    folders += [folder for root in installed for folder in sorted(root.glob("nvidia/*/bin"))]
    for folder in (None, *folders):
        if found := shutil.which("nvdisasm", path=folder):
            return found
    return None


def disassemble(nvdisasm, cubin):
    done = subprocess.run(
        [nvdisasm, "--print-code", str(cubin)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"nvdisasm {cubin} failed:\n{done.stderr}")
    return done.stdout
