"""Reads what ptxas reports for the kernels, and writes it as a table."""

import re
import subprocess
from typing import NamedTuple


class Usage(NamedTuple):
    registers: int = 0
    shared: int = 0  # bytes, static
    stack: int = 0  # bytes of local memory
    spills: int = 0  # bytes stored and loaded


def read(log):
    """{(function, architecture): Usage} from the log of nvcc --resource-usage."""
    found = {}
    kernel = function = architecture = None
    for line in log.splitlines():
        if match := re.search(r"Compiling entry function '(\S+)' for '(\w+)'", line):
            kernel, architecture = match.groups()
        elif match := re.search(r"Function properties for (\S+)", line):
            function = match.group(1)
        elif match := re.search(r"(\d+) bytes stack.* (\d+) bytes.*stores, (\d+) bytes", line):
            stack, stores, loads = map(int, match.groups())
            found[function, architecture] = Usage(stack=stack, spills=stores + loads)
        elif match := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            found[kernel, architecture] = found[kernel, architecture]._replace(
                registers=int(match.group(1)), shared=int(shared.group(1)) if shared else 0
            )
    return found


def demangled(symbols):
    """{symbol: its name as written in C++}."""
    done = subprocess.run(
        ["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True
    )
    return dict(zip(symbols, done.stdout.splitlines(), strict=True))


def readable(name):
    """A C++ name without result, namespaces and parameters, and with the project's type names."""
    name = name.replace("(anonymous namespace)::", "")
    name = re.sub(r"\([\w:]+\)(?=-?\d)", "", name)  # the type of a template's number
    name = re.sub(r"^void ", "", name.split("(")[0])
    name = re.sub(r"> (?=>)", ">", name)
    name = re.sub(r"\b(rotcell|cuda|std)::", "", name)
    name = name.replace("__nv_bfloat16", "bfloat16").replace("__half", "float16")
    return re.sub(r"\bdouble\b", "float64", re.sub(r"\bfloat\b", "float32", name))


def named(usages):
    """The same, by (readable name, architecture); names must still differ from each other."""
    symbols = sorted({symbol for symbol, _ in usages})
    names = {symbol: readable(name) for symbol, name in demangled(symbols).items()}
    if len(set(names.values())) != len(symbols):
        raise SystemExit(f"Two kernels have the same readable name: {sorted(names.values())}")
    return {(names[symbol], arch): usage for (symbol, arch), usage in usages.items()}


def complaints(usages):
    """One line for everything that uses local memory."""
    return [
        f"{name} for {arch}: {usage.stack} bytes of stack, {usage.spills} bytes spilled"
        for (name, arch), usage in sorted(usages.items())
        if usage.stack or usage.spills
    ]


def table(usages, release):
    """Markdown; the text must not depend on the order of compilation."""
    archs = sorted({arch for _, arch in usages}, key=lambda arch: int(arch.removeprefix("sm_")))
    header = ["kernel", "shared", "stack", "spills", *archs]
    lines = [
        "# What the CUDA kernels use",
        "",
        f"According to ptxas of nvcc {release}. For each architecture, the registers per thread;",
        "for all of them, bytes of static shared memory (not what a launch asks for), stack and",
        "spills.",
        "",
        f"| {' | '.join(header)} |",
        f"| --- |{' ---: |' * (len(header) - 1)}",
    ]
    for name in sorted({name for name, _ in usages}):
        row = [usages.get((name, arch)) for arch in archs]
        present = [usage for usage in row if usage]
        cells = [
            f"`{name}`",
            _span(usage.shared for usage in present),
            _span(usage.stack for usage in present),
            _span(usage.spills for usage in present),
            *(str(usage.registers) if usage else "" for usage in row),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _span(values):
    values = sorted(set(values))
    return str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"
