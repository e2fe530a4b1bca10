"""Makes docs/cuda-history.md of bench/results/cuda-history.json; count_history.py runs it."""

import json

import count_steps
from sources import ROOT

COUNTS = ROOT / "bench/results/cuda-history.json"
PAGE = ROOT / "docs/cuda-history.md"

# What each commit that was counted stands for. Those without "after" are the first parent of the
# next one, where other work lay between.
COMMITS = {
    "ff84f6b": "before",
    "2c8e029": "after: one frame for any cell and gate function",
    "40ff154": "after: blocks own units of a tile of the batch, and wait for their own tile only",
    "b340c52": "after: h comes by asynchronous copies of 16 bytes",
    "ce024e4": "after: resident, each gate's thread adds it up and activates it",
    "3f497da": "plan, resets and other options",
    "b610906": "after: mma.sync, weights in registers",
    "7a204de": "after: half types keep gates and memory in the half type",
    "6d4415f": "launches of clusters, which no kernel uses yet",
    "edaa41a": "after: clusters",
    "9dfb1e2": "CUDA graphs, and others",
    "5006b21": "after: half types are converted behind the wait for other blocks",
}

# a block, busiest warp, trips, modelled µs
OF_THE_ISSUE = {
    ("resident", 50, "forward"): (2887, 745, None, "1.2 to 1.7"),
    ("cooperative", 256, "forward"): (15890, 3486, 16, "8 to 12"),
    ("cooperative", 512, "forward"): (27523, 4735, 32, "11 to 16"),
    ("cooperative", 256, "backward"): (59247, 8093, 72, "13 to 18"),
    ("cooperative", 512, "backward"): (105068, 13821, 144, "25 to 32"),
}

HEADER = (
    *("", "commit", "blocks of threads", "all blocks", "a block", "busiest warp", "trips"),
    *("waits for blocks", "block barriers", "cluster barriers", "modelled µs"),
)


def stored():
    """What was counted, by commit."""
    return json.loads(COUNTS.read_text(encoding="utf-8")) if COUNTS.exists() else {}


def _key(row):
    return row["path"], row["hidden"], row["pass"]


def _name(row):
    size = f"B {row['batch']} H {row['hidden']}"
    return f"{row['path']} {row['number']} {size}, {row['pass']}"


def _modelled(row):
    best, worst = count_steps.BEST, count_steps.WORST
    low, high = count_steps.microseconds(row, best), count_steps.microseconds(row, worst)
    return f"{low:.1f} to {high:.1f}"


def _table(header, lines, texts):
    """Markdown; the first columns are text."""
    marks = ["---"] * texts + ["---:"] * (len(header) - texts)
    return [f"| {' | '.join(line)} |" for line in (header, marks, *lines)]


def _of_kernel(counts, device, paths, hidden, direction):
    lines = []
    for commit, counted in counts.items():
        for row in counted["rows"]:
            if row["device"] != device or _key(row) not in {(p, hidden, direction) for p in paths}:
                continue
            path = f"{row['path']}, " if len(paths) > 1 else ""
            numbers = ("all", "block", "warp", "trips", "waits", "barriers", "cluster_barriers")
            lines.append(
                [
                    *(f"{path}{COMMITS[commit]}", commit, f"{row['blocks']} of {row['threads']}"),
                    *(f"{row[name]:,}" for name in numbers),
                    _modelled(row),
                ]
            )
    return _table(HEADER, lines, 2)


def _at_a_glance(counts):
    """The kernels of the issue, and resident backward, at each commit."""
    lines = []
    for key in (*OF_THE_ISSUE, ("resident", 50, "backward")):
        rows = [r for c in counts.values() for r in c["rows"]
                if r["device"] == "A100" and _key(r) == key]  # fmt: skip
        cells = [f"{r['block']:,} ({r['warp']:,}) {r['trips']}" for r in rows]
        lines.append([_name(rows[0]), *cells])
    return _table(("", *counts), lines, 1)


def _beside_issue(counts):
    first, last = (
        {_key(row): row for row in counted["rows"] if row["device"] == "A100"}
        for counted in (next(iter(counts.values())), list(counts.values())[-1])
    )
    header = (
        *("", "a block, issue 14", "counted here", "after all", "busiest warp, issue 14"),
        *("counted here", "after all", "trips, issue 14", "counted here", "after all"),
        *("modelled µs, issue 14", "modelled here", "after all"),
    )
    lines = []
    for key, (block, warp, trips, time) in OF_THE_ISSUE.items():
        before, now = first[key], last[key]
        more = [f"{before[n]:,} ({before[n] / of - 1:+.1%})" for n, of in
                (("block", block), ("warp", warp))]  # fmt: skip
        lines.append(
            [
                *(_name(before), f"{block:,}", more[0], f"{now['block']:,}"),
                *(f"{warp:,}", more[1], f"{now['warp']:,}"),
                *("" if trips is None else str(trips), str(before["trips"]), str(now["trips"])),
                *(time, _modelled(before), _modelled(now)),
            ]
        )
    return _table(header, lines, 1)


INTRODUCTION = """\
# What each step of the work on the CUDA kernels changed

Counted, not measured, for RotLSTM: the PTX that nvcc {} makes of the kernels as they were
at each commit, executed by today's [csrc/ptx](../csrc/ptx/README.md). What the columns mean, and
how times are modelled, stands in [the count of today's kernels](cuda-counts.md). Nobody has
measured any of it.

Made by `python build_tools/count_history.py`, which needs nvcc and the whole history. It takes the
kernels, the plan and the driver of each commit, and changes nothing in them but where a launch
goes. The results of every sequence that was counted agreed with those of the CPU kernels of the
same commit, in double, within the limits of the driver.

A commit that came *after* a step is compared with the line above it: the step's first parent, or a
commit with the same kernels. For other commits no step is claimed; they stand here because other
work lay between two steps. The frame for any cell is 0dbc9d3. nvcc compiles neither that nor its
parent; 2c8e029 has its kernels, and ff84f6b those before it.

Not every step made every kernel shorter. The frame for any cell costs resident kernels 14 to 18 %.
With ce024e4 H 512 backward executes half as much again; with the plan of 3f497da it no longer does.
Gates in the half type are 2 to 4 % more instructions: what they save is memory. By the conversions
behind the wait, 1 to 2 % more instructions save a trip.

On an A100, instructions of a block, those of its busiest warp in brackets, and trips to L2:
"""

COMPARISON = """\
## Beside issue 14

Issue 14 had counted such kernels outside the project, on an A100. *Counted here* is ff84f6b.

{}

- These must be the kernels that the issue counted: instructions differ by less than 0.1 % of a
  block, and by less than 0.3 % of the busiest warp. So the issue's instructions are those of one
  block; all blocks together execute 16 to 86 times as many.
- The trips of the issue are as many as the rounds of the loop that brings h, or the gradients of
  the gates, on chip: 4 loads a thread, which are 64 columns of a tile of 16 rows, for each of 4
  tiles. By our rule the cell of each tile is one trip more, and the barrier of the grid another:
  16 + 4 + 1, 32 + 4 + 1, 72 + 4 + 1 and 144 + 4 + 1.
- The wait for blocks in ff84f6b and 2c8e029 is a barrier of the whole grid: an addition in L2 for
  each block, and a load that sees the last. It is modelled as any wait for blocks, 1 to 2 µs, which
  is also what `bench/predict_cuda.py` assumed of it at 2c8e029.
- Times of the issue are of another model. They are not to be compared with ours.
"""

KERNELS = (
    ("A100", ("resident",), 50),
    ("A100", ("cooperative",), 256),
    ("A100", ("cooperative",), 512),
    ("H100", ("cooperative", "cluster"), 256),
    ("H100", ("cooperative", "cluster"), 512),
)


def page(counts):
    """Markdown."""
    releases = sorted({counted["nvcc"] for counted in counts.values()})
    lines = [
        INTRODUCTION.format(" and ".join(releases)),
        *(*_at_a_glance(counts), ""),
        COMPARISON.format("\n".join(_beside_issue(counts))).rstrip(),
    ]
    for device, paths, hidden in KERNELS:
        for direction in ("forward", "backward"):
            what = f"{' and '.join(paths)} H {hidden}, {direction}"
            table = _of_kernel(counts, device, paths, hidden, direction)
            lines += ["", f"## {device}: {what}", "", *table]
    return "\n".join(lines) + "\n"


def write():
    PAGE.write_text(page(stored()), encoding="utf-8")
