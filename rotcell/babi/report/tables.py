"""Tables of a summary, in Markdown, HTML and LaTeX."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rotcell.babi.data.catalog import TASK_NAMES
from rotcell.babi.report.paper import PRINTED
from rotcell.babi.report.summary import Sample, Summary
from rotcell.babi.sweep.experiments import PAPER_SIZE
from rotcell.babi.training.cells import CELLS

MARK: Final = "†"
_LATEX_BLOCK: Final = 10  # tasks side by side


class Entry(NamedTuple):
    """One cell of a table."""

    text: str
    bold: bool = False
    marked: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under a header, all of the same length."""

    header: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]

    def markdown(self) -> str:
        """As Markdown."""
        lines = [self.header, ["---"] + ["---:"] * (len(self.header) - 1)]
        lines += [[_markdown(entry) for entry in row] for row in self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def html(self) -> str:
        """As HTML."""
        head = "".join(f"<th>{html.escape(text)}</th>" for text in self.header)
        body = "\n".join(
            f"<tr>{''.join(f'<td>{_html(entry)}</td>' for entry in row)}</tr>" for row in self.rows
        )
        return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _markdown(entry: Entry) -> str:
    text = f"**{entry.text}**" if entry.bold else entry.text
    return f"{text} {MARK}" if entry.marked else text


def _html(entry: Entry) -> str:
    text = html.escape(entry.text)
    text = f"<b>{text}</b>" if entry.bold else text
    return f"{text} <span class=mark>{MARK}</span>" if entry.marked else text


def comparison(summary: Summary) -> Table:
    """A row a task: both cells, ours and the paper's."""
    first, second = summary.experiment.cells
    names = [CELLS[cell].title for cell in (first, second)]
    header = ("task", *(f"{name}{whose}" for name in names for whose in ("", ", paper")))
    rows = [
        (
            Entry(f"{task} {TASK_NAMES[task]}"),
            *entries(summary, task, first),
            *entries(summary, task, second),
            Entry(_counts(summary, task)),
        )
        for task in summary.tasks
    ]
    return Table((*header, "runs"), (*rows, *_average(summary)))


def entries(summary: Summary, task: int, cell: str) -> tuple[Entry, Entry]:
    """Our result and the paper's; the better cell of each is bold."""
    (other,) = set(summary.experiment.cells) - {cell}
    ours = summary.sample(task, cell, PAPER_SIZE)
    rival = summary.sample(task, other, PAPER_SIZE)
    printed = PRINTED[cell][task]
    entry = Entry("-")
    if ours is not None:
        better = rival is not None and ours.mean >= rival.mean
        entry = Entry(_spread(ours.mean, ours.deviation), better, ours.differs(printed))
    best_printed = printed.mean >= PRINTED[other][task].mean
    return entry, Entry(_spread(printed.mean, printed.deviation), best_printed)


def _spread(mean: float, deviation: float | None) -> str:
    return f"{mean:.1f}" if deviation is None else f"{mean:.1f} ± {deviation:.1f}"


def _counts(summary: Summary, task: int) -> str:
    counts = [len(summary.of(task, cell, PAPER_SIZE)) for cell in summary.experiment.cells]
    return str(counts[0]) if len(set(counts)) == 1 else " / ".join(map(str, counts))


def _average(summary: Summary) -> list[tuple[Entry, ...]]:
    """The mean over the tasks that have results of both cells, when there are several."""
    cells = summary.experiment.cells
    samples: dict[str, list[Sample]] = {cell: [] for cell in cells}
    printed: dict[str, list[float]] = {cell: [] for cell in cells}
    for task in summary.tasks:
        both = [summary.sample(task, cell, PAPER_SIZE) for cell in cells]
        for cell, sample in zip(cells, both, strict=True):
            if sample is not None and None not in both:
                samples[cell].append(sample)
                printed[cell].append(PRINTED[cell][task].mean)
    number = len(samples[cells[0]])
    if number < 2:
        return []
    ours = [sum(sample.mean for sample in samples[cell]) / number for cell in cells]
    theirs = [sum(printed[cell]) / number for cell in cells]
    row = [Entry(f"mean of {number} tasks")]
    for mine, their in zip(ours, theirs, strict=True):
        row += [
            Entry(f"{mine:.1f}", mine == max(ours)),
            Entry(f"{their:.1f}", their == max(theirs)),
        ]
    return [(*row, Entry(""))]


def sizes_table(summary: Summary) -> Table:
    """A row a task and cell: mean test accuracy at every state size."""
    rows = []
    for task in summary.tasks:
        for cell in summary.experiment.cells:
            samples = [summary.sample(task, cell, size) for size in summary.sizes]
            numbers = (Entry("-" if each is None else f"{each.mean:.1f}") for each in samples)
            rows.append((Entry(f"{task} {CELLS[cell].title}"), *numbers))
    return Table(("task, cell", *map(str, summary.sizes)), tuple(rows))


def latex(summary: Summary) -> str:
    """The comparison as the paper sets it: tasks from left to right, ten a block."""
    tasks = summary.tasks
    blocks = [tasks[k : k + _LATEX_BLOCK] for k in range(0, len(tasks), _LATEX_BLOCK)]
    width = max((len(block) for block in blocks), default=0)
    lines = [
        "% needs \\usepackage{booktabs}; a dagger: further from the paper than the spread allows",
        f"\\begin{{tabular}}{{@{{}}l{'l' * width}@{{}}}}",
        "\\toprule",
    ]
    for number, block in enumerate(blocks):
        lines += ["\\midrule"] * (number > 0)
        lines += [_latex_row("Task:", [Entry(str(task)) for task in block], width), "\\midrule"]
        for cell in summary.experiment.cells:
            pairs = [entries(summary, task, cell) for task in block]
            name = f"\\textbf{{{CELLS[cell].title}}}"
            lines.append(_latex_row(name, [ours for ours, _ in pairs], width))
            lines.append(_latex_row("\\quad paper", [theirs for _, theirs in pairs], width))
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def _latex_row(name: str, row: Sequence[Entry], width: int) -> str:
    filled = [_latex(entry) for entry in row] + [""] * (width - len(row))
    return f"{' & '.join([name, *filled])} \\\\"


def _latex(entry: Entry) -> str:
    text = entry.text.replace(" ± ", " $\\pm$")
    text = f"\\textbf{{{text}}}" if entry.bold else text
    return f"{text}$^\\dagger$" if entry.marked else text
