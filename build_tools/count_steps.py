"""Makes docs/cuda-counts.md of what ptx_counts prints: what a step of the CUDA kernels executes.

run_ptx.py runs it. The counts are those of csrc/ptx, which executes the PTX of the kernels.
"""

import json
from typing import NamedTuple

from sources import ROOT

TABLE = ROOT / "docs/cuda-counts.md"
KINDS = ("global", "shared", "mma", "fma", "float", "special", "integer", "branch")
CLOCKS = {"A100": 1410, "H100": 1980}  # a microsecond, boost
ISSUED_A_CLOCK = 4  # instructions of warps, by a multiprocessor


class Assumptions(NamedTuple):
    """What no data sheet tells; those of bench/predict_cuda.py where it has them."""

    clocks: int  # from one instruction of the busiest warp to its next
    trip: float  # microseconds until L2, or memory, answers
    signal: float  # from the end of a block's part of a step until others see it
    cluster_barrier: float


BEST, WORST = Assumptions(2, 0.15, 1.0, 0.2), Assumptions(4, 0.5, 2.0, 0.5)

HEADER = (
    *("GPU", "kernel", "pass", "blocks of threads", "all blocks", "a block", "busiest warp"),
    *(*KINDS, "trips", "waits for blocks", "block barriers", "cluster barriers", "modelled µs"),
)


def microseconds(row, assumed):
    """A step. A block has a multiprocessor for itself, or is one of equals."""
    clocks = max(row["block"] / ISSUED_A_CLOCK, row["warp"] * assumed.clocks)
    waiting = row["waits"] * assumed.signal + row["cluster_barriers"] * assumed.cluster_barrier
    trips = (row["trips"] - row["waits"]) * assumed.trip
    return clocks / CLOCKS[row["device"]] + trips + waiting


def sequences(architecture):
    """What ptx_counts is to count for today's table."""
    paths = ("cooperative", "cluster") if architecture == "90" else ("cooperative",)
    larger = [f"{path},float16,64,{hidden}" for hidden in (256, 512) for path in paths]
    each = ("resident,float32,32,50", "resident,float16,32,50", *larger)
    return [f"{cell},{rest}" for cell in ("rot_lstm", "rot_gru") for rest in each]


def read(text):
    """The rows that ptx_counts printed."""
    return [json.loads(line) for line in text.splitlines()]


def _line(row):
    kernel = f"{row['cell']}, {row['path']} {row['number']} B {row['batch']} H {row['hidden']}"
    low, high = microseconds(row, BEST), microseconds(row, WORST)
    numbers = ("all", "block", "warp", *KINDS, "trips", "waits", "barriers", "cluster_barriers")
    return [
        *(row["device"], kernel, row["pass"], f"{row['blocks']} of {row['threads']}"),
        *(f"{row[name]:,}" for name in numbers),
        f"{low:.1f} to {high:.1f}",
    ]


def table(rows, release):
    """Markdown."""
    lines = [
        "# What a step of the CUDA kernels executes",
        "",
        f"Counted, not measured: the PTX that nvcc {release} makes of the kernels for 8.0 and 9.0,",
        "executed by [csrc/ptx](../csrc/ptx/README.md) with the launches that an A100 and an H100",
        "would get; made by `.ci/ptx --update`. A figure is what sequences of 3 and of 5 steps",
        "differ by, for each step; forward is in training.",
        "",
        "- Instructions are those of warps: one that a warp issues counts once, for however many",
        "  lanes. They are PTX's: ptxas leaves out moves and loads of parameters, and makes",
        "  several of a division; [its own text](cuda-instructions.md), loop by loop.",
        "- *a block*: the busiest one, as are the kinds behind it; *busiest warp*: of all. Special",
        "  are exp, division and conversions, integer are addresses, comparisons and moves.",
        "- *trips*: to L2 or memory, one after the other, on the longest way through a step, from",
        "  block to block. Loads that do not need each other are one trip, unless a barrier, a",
        "  wait or a round of a loop lies between them. *waits for blocks* are among them: each",
        "  is the load that sees a signal.",
        "- *modelled*: the larger of a block's instructions, 4 a clock, and the busiest warp's,",
        "  one in 2 to 4 clocks; 0.15 to 0.5 µs a trip, 1 to 2 a wait for blocks, 0.2 to 0.5 a",
        "  barrier of a cluster; at boost clock. Nobody has measured it.",
        "",
        f"| {' | '.join(HEADER)} |",
        f"| --- | --- | --- |{' ---: |' * (len(HEADER) - 3)}",
        *(f"| {' | '.join(_line(row))} |" for row in rows),
        "",
        "## Before",
        "",
        "The kernels that these replaced, counted in the same way, before and after each step of",
        "the work: [cuda-history.md](cuda-history.md). The rule for trips was chosen after a",
        "stricter one, which ends a trip at the first use of what was loaded, had given 11 trips",
        "forward and 17 backward for the cooperative kernels.",
    ]
    return "\n".join(lines) + "\n"
