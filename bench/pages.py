"""Write the measured numbers into README.md and docs, from the committed results."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import busy
import compare
import int8
import int8_babi
import machine
import report
import resets
import results
import rotations
import row_cells
from contestants import PEERS, ROTCELL, TORCH
from ratios import Row, of_medians, ratio
from work import CELLS, PASSES, ROTATING, Work

RESULTS = Path(__file__).resolve().parent / "results"
ROOT = RESULTS.parents[1]
README, BENCHMARKS = ROOT / "README.md", ROOT / "docs" / "benchmarks.md"
QUANTIZATION = ROOT / "docs" / "guides" / "quantization.md"
WHICH_CELL = ROOT / "docs" / "cells.md"
NO_BREAK = "\N{NO-BREAK SPACE}"
Found = Mapping[str, Any]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out Markdown."""
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rows))


def layers(found: Found) -> str:
    """Time over torch's: a line per shape, a column per layer and pass."""
    threads = found["settings"]["threads"]
    cells = [cell for cell in CELLS if any(row["cell"] == cell for row in found["rows"])]
    ratios = {_key(row): ratio(row) for row in found["rows"]}

    def entry(work: Work, cell: str, passes: str) -> str:
        values = [ratios.get((work.name, cell, passes, count)) for count in threads]
        shown = ("-" if value is None else f"{value.median:.2f}" for value in values)
        return f"{NO_BREAK}/{NO_BREAK}".join(shown)

    works = {row["work"]["name"]: Work(**row["work"]) for row in found["rows"]}
    counts = " / ".join(map(str, threads))
    unit = "thread" if threads == [1] else "threads"

    def part(cells: Sequence[str]) -> str:
        columns = [(cell, passes) for cell in cells for passes in PASSES]
        head = [f"{counts} {unit}", *(" ".join(column) for column in columns)]
        lines = [[w.label(), *(entry(w, *column) for column in columns)] for w in works.values()]
        return table(head, lines)

    # Entries of several numbers are wide: then a table per layer of torch.
    of_torch: dict[str, list[str]] = {}
    for cell in cells:
        of_torch.setdefault(CELLS[cell].torch if len(threads) > 1 else "", []).append(cell)
    tables = "\n\n".join(part(some) for some in of_torch.values())
    widths = [(value.high - value.low) / value.median for value in ratios.values() if value]
    return (
        f"{tables}\n\n"
        f"{machine.summary(found['machine'])}, {found['settings']['dtype']}. 95 % confidence "
        f"intervals are {100 * statistics.median(widths):.0f} % of the ratio wide at the median, "
        f"{100 * max(widths):.0f} % at most."
    )


def random_shapes(found: Found) -> str:
    """Geometric mean and worst row of every layer, then all rows."""
    drawn = found["settings"]["random_shapes"]
    lines = "\n".join(f"- {line}" for line in report.averages(found["rows"]))
    command = f"`--random-shapes {drawn['count']} --seed {drawn['seed']}`"
    return f"{lines}\n\nDrawn by {command}.\n\n{layers(found)}"


def summary(found: Found) -> str:
    """Range and median of the time over torch's: a sentence for rotating layers, one for plain."""
    ratios: dict[str, list[float]] = {}
    for row in found["rows"]:
        value = ratio(row)
        if value is not None:
            ratios.setdefault(row["cell"], []).append(value.median)

    def shown(cell: str) -> str:
        values = ratios[cell]
        return f"{min(values):.2f} to {max(values):.2f} (median {statistics.median(values):.2f})"

    settings = found["settings"]
    shapes = len({row["work"]["name"] for row in found["rows"]})
    counts = " and ".join(map(str, settings["threads"]))
    threads = f"{counts} thread{'s' * (settings['threads'] != [1])}"
    where = f"{machine.summary(found['machine'])}, {settings['dtype']}"
    sentences = (
        f"A call of `RotLSTM` takes {shown('RotLSTM')} of the time of `nn.LSTM`, "
        f"a call of `RotGRU` {shown('RotGRU')} of the time of `nn.GRU`. "
        "`rotcell.LSTM` and `rotcell.GRU` compute the same as torch's layers "
        f"in {shown('LSTM')} and {shown('GRU')} of their time."
    )
    where += f". {shapes} shapes, training and inference, {threads}"
    return f"{sentences}\n\n{where}."


def _key(row: Row) -> tuple[str, str, str, int]:
    return row["work"]["name"], row["cell"], row["pass"], row["threads"]


def memory(found: Found) -> str:
    """Peak memory over torch's."""
    ratios = [row["bytes"][ROTCELL] / row["bytes"][TORCH] for row in found["memory"]]
    if not ratios:
        return ""
    return (
        f"A training step takes {min(ratios):.2f} to {max(ratios):.2f} of the memory of torch's, "
        f"{statistics.median(ratios):.2f} at the median."
    )


def peers(found: Found) -> str:
    """Time of everyone else over rotcell's, for the rotating layers with the most threads.

    Not over torch's: that ratio of rotcell is in the table of layers, and from another run.
    """
    shown = [peer for peer in PEERS if peer in found["settings"]["peers"]]
    lines = []
    for row in found["rows"]:
        work = Work(**row["work"])
        if (
            row["cell"] in ROTATING
            and work.is_simple
            and row["threads"] == max(found["settings"]["threads"])
        ):
            values = [of_medians(row, name, ROTCELL) for name in shown]
            entries = ["-" if value is None else f"{value:.2f}" for value in values]
            lines.append([f"{row['cell']} {row['pass']}, {work.label()}", *entries])
    return table(["", *shown], lines)


def threads(found: Found) -> str:
    """What is around a process, and what more threads cost there."""
    lines = []
    for row in found["rows"]:
        values = [
            ratio(row),
            ratio(row, ROTCELL, busy.of_one(ROTCELL)),
            ratio(row, TORCH, busy.of_one(TORCH)),
        ]
        shown = ["-" if value is None else f"{value.median:.2f}" for value in values]
        lines.append([row["case"]["name"], row["pass"], *shown])
    head = [
        "",
        "pass",
        "of nn.LSTM's time",
        "ratio to its time with one thread",
        "nn.LSTM: ratio to its time with one thread",
    ]
    return table(head, lines)


def episodes(found: Found) -> str:
    """Milliseconds, and time over that of the loops that do the same with nn.LSTM."""
    (row,) = found["rows"]
    others = (resets.LOOP, resets.PIECES, resets.IGNORED)
    lines = []
    for name in (
        *others,
        *(n for layer in resets.LAYERS for n in (resets.with_resets(layer), layer)),
    ):
        values = [ratio(row, name, other) for other in others]
        shown = ["-" if value is None else f"{value.median:.2f}" for value in values]
        lines.append([name, f"{1e3 * row['timings'][name]['median_s']:.0f}", *shown])
    head = ["", "ms", *(f"of {other}" for other in others)]
    return (
        f"{table(head, lines)}\n\n{resets.Rollout(**row['rollout']).label()}; {row['threads']} "
        f"threads; {machine.summary(found['machine'])}. Layers without `resets` are there to show "
        "what these cost."
    )


def cost_table(found: Found) -> str:
    """Time over that of nn.LSTM, and FLOPs over its FLOPs: one line per layer."""
    rows = found["rows"]
    names = [name for name in rotations.LAYERS if any(name in row["timings"] for row in rows)]
    names.remove(rotations.TORCH)
    lines = [[f"`{name}`", *(_time_and_flops(row, name) for row in rows)] for name in names]
    return f"{table(['time (FLOPs)', *map(_of_row, rows)], lines)}\n\n{_measured_on(found)}"


def _time_and_flops(row: Row, name: str) -> str:
    value, counts = ratio(row, name, rotations.TORCH), row["flops_per_token"]
    if value is None:
        return "-"
    return f"{value.median:.2f} ({counts[name] / counts[rotations.TORCH]:.2f})"


def row_cells_table(found: Found) -> str:
    """Ratios of the times of two contestants each: one line per shape and pass.

    Pairs that no row has are left out.
    """
    rows = found["rows"]
    pairs = [pair for pair in row_cells.COMPARED if any(ratio(row, *pair) for row in rows)]
    lines = []
    for row in rows:
        values = [ratio(row, *pair) for pair in pairs]
        lines.append([_of_row(row), *("-" if v is None else f"{v.median:.2f}" for v in values)])
    head = ["", *(f"{name} / {other}" for name, other in pairs)]
    return f"{table(head, lines)}\n\n{_measured_on(found)}"


def row_cells_cost(found: Found) -> str:
    """Time over that of our LSTM, in a sentence for the largest shape."""
    largest = max((row["work"] for row in found["rows"]), key=lambda work: work["hidden_size"])
    rows = [row for row in found["rows"] if row["work"] == largest]
    each = []
    for name in (*row_cells.LAYERS, row_cells.NORMALIZED):
        values = [ratio(row, name, row_cells.LSTM) for row in rows]
        shown = " / ".join("-" if v is None else f"{v.median:.2f}" for v in values)
        each.append(f"{name} {shown}")
    where = f"{Work(**largest).label()}, {' / '.join(row['pass'] for row in rows)}"
    return (
        f"In units of the time of `rotcell.LSTM`, a call takes ({where}): {', '.join(each)}.\n\n"
        f"{_measured_on(found)}"
    )


def int8_table(found: Found) -> str:
    """Time over that of nn.LSTM with int8 weights: one line per shape."""
    names = (*int8.LAYERS, int8.FLOAT)
    lines = []
    for row in found["rows"]:
        values = [ratio(row, name, int8.TORCH) for name in names]
        shown = ["-" if value is None else f"{value.median:.2f}" for value in values]
        lines.append([Work(**row["work"]).label(), *shown])
    return f"{table(['', *names], lines)}\n\n{_measured_on(found)}"


def int8_accuracy(found: Found) -> str:
    """What int8 weights changed in bAbI models, in a few sentences."""
    rows = found["rows"]
    before = [100 * row["float32"] for row in rows]
    largest = max(100 * (row["float32"] - row["int8"]) for row in rows)
    changed, asked = (sum(row[name] for row in rows) for name in ("answers_changed", "questions"))
    tasks = len({row["task"] for row in rows})
    (units,), (seeds,) = {row["units"] for row in rows}, {row["seed"] for row in rows}
    return (
        f"bAbI models with a RotLSTM of {units} units, trained in float32 on packed stories, one "
        f"per task ({tasks} tasks, seed {seeds}), answer {statistics.mean(before):.1f} % of the "
        f"test questions. With int8 weights they lose {int8_babi.points_lost(rows):.2f} points in "
        f"the mean, at most {largest:.1f} on a task. {changed} of {asked:,} answers differ.\n\n"
        f"{machine.summary(found['machine'])}."
    )


def _of_row(row: Row) -> str:
    return f"{Work(**row['work']).label()}, {row['pass']}"


def _measured_on(found: Found) -> str:
    threads = sorted({row["threads"] for row in found["rows"]})
    count = " / ".join(map(str, threads))
    return f"{count} thread{'s' if threads != [1] else ''}; {machine.summary(found['machine'])}."


def provenance(found: Found) -> str:
    """When a result was measured, at which commit, and how busy the machine was."""
    described, day = found["machine"], found["started"][:10]
    wrong = machine.faults(described)
    if wrong:
        return f"**Measured on {day} {' and '.join(wrong)}; to be measured again.**"
    others = described["cores_used_by_others"]
    load = f"other processes used {others:g} of {described['cores']} cores"
    return f"Measured on {day} at commit {described['commit']}; {load}."


def with_provenance(text: str, found: Found) -> str:
    """Append it to the last paragraph, or below a table that ends the text."""
    space = "\n\n" if text.splitlines()[-1].startswith("|") else " "
    return f"{text}{space}{provenance(found)}"


#: Name of a mark: the result file, its kind, and what is made of it.
Parts = dict[str, tuple[str, str, Callable[[Found], str]]]
README_PARTS: Parts = {"speed": ("cpu.json", compare.KIND, summary)}
BENCHMARKS_PARTS: Parts = {
    "layers": ("cpu.json", compare.KIND, layers),
    "layers with AVX2": ("cpu-avx2.json", compare.KIND, layers),
    "layers in bfloat16": ("cpu-bfloat16.json", compare.KIND, layers),
    "random shapes": ("cpu-random.json", compare.KIND, random_shapes),
    "memory": ("cpu.json", compare.KIND, memory),
    "peers": ("cpu-peers.json", compare.KIND, peers),
    "threads": ("busy.json", busy.KIND, threads),
    "resets": ("resets.json", resets.KIND, episodes),
    "row cells": ("row_cells.json", row_cells.KIND, row_cells_table),
    "int8": ("int8.json", int8.KIND, int8_table),
}
QUANTIZATION_PARTS: Parts = {
    "int8 on bAbI": ("int8-babi.json", int8_babi.KIND, int8_accuracy),
}

CELLS_PARTS: Parts = {
    "cost": ("rotations.json", rotations.KIND, cost_table),
    "cost of row cells": ("row_cells.json", row_cells.KIND, row_cells_cost),
}

PAGES = {
    README: README_PARTS,
    BENCHMARKS: BENCHMARKS_PARTS,
    QUANTIZATION: QUANTIZATION_PARTS,
    WHICH_CELL: CELLS_PARTS,
}


def fill(text: str, parts: Parts, folder: Path) -> str:
    """Put each part between its marks; one whose result file is absent stays as it is.

    Raises:
        ValueError: if the text lacks a mark, or if a result file is not what it should be.
    """
    for name, (file, kind, make) in parts.items():
        begin, end = f"<!-- {name}: bench/results/{file} -->\n", f"<!-- end of {name} -->\n"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"the page must have the marks {begin.strip()} and {end.strip()}")
        if (folder / file).exists():
            before, rest = text.split(begin)
            after = rest.split(end)[1]
            found = results.load(folder / file, kind)
            text = f"{before}{begin}\n{with_provenance(make(found), found)}\n\n{end}{after}"
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a page is out of date"
    )
    options = parser.parse_args(arguments)
    status = 0
    for page, parts in PAGES.items():
        old = page.read_text()
        try:
            new = fill(old, parts, RESULTS)
        except ValueError as error:
            parser.error(f"{page.name}: {error}")
        if not options.check:
            page.write_text(new)
        elif new != old:
            print(f"{page.name} does not match the results; run python bench/pages.py")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
