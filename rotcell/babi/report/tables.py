"""Tables of a summary, in Markdown, HTML and LaTeX."""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from rotcell.babi.data.catalog import TASK_NAMES
from rotcell.babi.report.measures import (
    FEWEST,
    gaps,
    mean_test,
    median_epochs,
    sufficient_size,
)
from rotcell.babi.report.paper import PRINTED
from rotcell.babi.report.statistics import Difference, Moments, compare, holm, welch
from rotcell.babi.report.summary import Summary
from rotcell.babi.training.cells import CELLS

MARK: Final = "†"
SIGNIFICANT: Final = 0.05
NOTHING: Final = "-"
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
    words: bool = False  # whether the columns are text, to be read from the left

    def markdown(self) -> str:
        """As Markdown."""
        lines = [self.header, ["---"] + [":---" if self.words else "---:"] * (len(self.header) - 1)]
        lines += [[_markdown(entry) for entry in row] for row in self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def html(self) -> str:
        """As HTML."""
        head = "".join(f"<th>{html.escape(text)}</th>" for text in self.header)
        body = "\n".join(
            f"<tr>{''.join(f'<td>{_html(entry)}</td>' for entry in row)}</tr>" for row in self.rows
        )
        kind = " class=words" if self.words else ""
        return f"<table{kind}>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _markdown(entry: Entry) -> str:
    text = f"**{entry.text}**" if entry.bold else entry.text
    return f"{text} {MARK}" if entry.marked else text


def _html(entry: Entry) -> str:
    text = html.escape(entry.text)
    text = f"<b>{text}</b>" if entry.bold else text
    return f"{text} <span class=mark>{MARK}</span>" if entry.marked else text


def differences(summary: Summary, plain: str, cell: str) -> dict[int, Difference | None]:
    """Of every task: `cell` minus `plain`, with p-values corrected over the tasks."""
    found = [compare(summary.values(t, cell), summary.values(t, plain)) for t in summary.tasks]
    return _corrected(summary.tasks, found)


def from_paper(summary: Summary, cell: str) -> dict[int, Difference | None]:
    """Of every task: our mean minus the paper's, with p-values corrected over the tasks."""
    found = []
    for task in summary.tasks:
        ours = Moments.of(summary.values(task, cell))
        found.append(None if ours is None else welch(ours, PRINTED[cell][task].moments))
    return _corrected(summary.tasks, found)


def _corrected(
    tasks: Sequence[int], found: Sequence[Difference | None]
) -> dict[int, Difference | None]:
    corrected = holm([None if each is None else each.p for each in found])
    return {
        task: None if each is None or p is None else Difference(each.mean, each.low, each.high, p)
        for task, each, p in zip(tasks, found, corrected, strict=True)
    }


def comparison(summary: Summary) -> Table:
    """A row a task: every cell, ours and the paper's, and what rotation makes of it."""
    header = ["task"]
    for cell in summary.cells:
        header += [CELLS[cell].title] + [f"{CELLS[cell].title}, paper"] * (cell in PRINTED)
    by_pair = [differences(summary, *pair) for pair in summary.pairs]
    for plain, cell in summary.pairs:
        header += [f"{CELLS[cell].title} - {CELLS[plain].title}", "p"]
    marked = {cell: from_paper(summary, cell) for cell in summary.cells if cell in PRINTED}
    rows = []
    for task in summary.tasks:
        row = [Entry(f"{task} {TASK_NAMES[task]}")]
        for cell in summary.cells:
            row += entries(summary, task, cell, marked.get(cell, {}).get(task))
        for by_task in by_pair:
            row += _difference(by_task[task])
        rows.append((*row, Entry(_counts(summary, task))))
    return Table((*header, "runs"), (*rows, *_average(summary)))


def entries(
    summary: Summary, task: int, cell: str, to_paper: Difference | None
) -> tuple[Entry, ...]:
    """Our result and, where there is one, the paper's; the best of each are bold."""
    means = {each: mean_test(summary, task, each) for each in summary.cells}
    ours = means[cell]
    entry = Entry(NOTHING)
    if ours is not None:
        rivals = [mean for mean in means.values() if mean is not None]
        best = len(rivals) > 1 and ours == max(rivals)
        differs = to_paper is not None and to_paper.p < SIGNIFICANT
        entry = Entry(_spread(summary.values(task, cell)), best, differs)
    if cell not in PRINTED:
        return (entry,)
    printed = PRINTED[cell][task]
    best = printed.mean == max(PRINTED[c][task].mean for c in summary.cells if c in PRINTED)
    return entry, Entry(f"{printed.mean:.1f} ± {printed.deviation:.1f}", best)


def _spread(values: Sequence[float]) -> str:
    found = Moments.of(values)
    return f"{values[0]:.1f}" if found is None else f"{found.mean:.1f} ± {found.deviation:.1f}"


def _difference(found: Difference | None) -> tuple[Entry, Entry]:
    if found is None:
        return Entry(NOTHING), Entry(NOTHING)
    return Entry(found.text, found.p < SIGNIFICANT), Entry(p_text(found.p))


def p_text(p: float) -> str:
    """A p-value as papers print it."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _counts(summary: Summary, task: int) -> str:
    counts = [len(summary.of(task, cell)) for cell in summary.cells]
    return str(counts[0]) if len(set(counts)) == 1 else " / ".join(map(str, counts))


def _average(summary: Summary) -> list[tuple[Entry, ...]]:
    """The mean over the tasks that can be averaged, when there are several."""
    tasks = averaged_tasks(summary)
    if len(tasks) < 2:
        return []
    ours = {
        c: statistics.fmean(mean_test(summary, t, c) or 0.0 for t in tasks) for c in summary.cells
    }
    theirs = {
        c: statistics.fmean(PRINTED[c][task].mean for task in tasks)
        for c in summary.cells
        if c in PRINTED
    }
    row = [Entry(f"mean of {len(tasks)} tasks")]
    for cell in summary.cells:
        row.append(Entry(f"{ours[cell]:.1f}", ours[cell] == max(ours.values())))
        if cell in theirs:
            row.append(Entry(f"{theirs[cell]:.1f}", theirs[cell] == max(theirs.values())))
    for pair in summary.pairs:
        row += _difference(overall(summary, *pair))
    return [(*row, Entry(""))]


def common_tasks(summary: Summary) -> list[int]:
    """The tasks that have results of every cell."""
    return [t for t in summary.tasks if all(summary.of(t, c) for c in summary.cells)]


def averaged_tasks(summary: Summary) -> list[int]:
    """The tasks with enough runs of every cell; while there are no two, those with any."""
    common = common_tasks(summary)
    enough = [t for t in common if all(len(summary.of(t, c)) >= FEWEST for c in summary.cells)]
    return enough if len(enough) > 1 else common


def overall(summary: Summary, plain: str, cell: str) -> Difference | None:
    """`cell` minus `plain` over the averaged tasks: of the means over tasks, one a seed.

    Only seeds count that have all these tasks of that cell.
    """
    tasks = averaged_tasks(summary)

    def by_seed(which: str) -> list[float]:
        values: dict[int, list[float]] = {}
        for task in tasks:
            for result in summary.of(task, which):
                values.setdefault(result.settings.seed, []).append(100 * result.outcome.test)
        return [statistics.fmean(v) for v in values.values() if len(v) == len(tasks)]

    return compare(by_seed(cell), by_seed(plain))


def beside_table(summary: Summary, other: Summary) -> Table | None:
    """A row a task and cell that both experiments have; None when no task has two runs in each.

    The difference is that of the first minus the other.
    """
    pairs = [(t, c) for t in summary.tasks for c in summary.cells if other.of(t, c)]
    found = [compare(summary.values(t, c), other.values(t, c)) for t, c in pairs]
    if not any(found):
        return None
    corrected = holm([None if each is None else each.p for each in found])
    rows = []
    for (task, cell), each, p in zip(pairs, found, corrected, strict=True):
        values = [experiment.values(task, cell) for experiment in (summary, other)]
        difference = None if each is None or p is None else replace(each, p=p)
        rows.append(
            (
                Entry(f"{task} {TASK_NAMES[task]}, {CELLS[cell].title}"),
                *(Entry(_spread(v) if v else NOTHING) for v in values),
                *_difference(difference),
                Entry(" / ".join(str(len(v)) for v in values)),
            )
        )
    names = summary.title, other.title
    return Table(("task, cell", *names, f"{names[0]} - {names[1]}", "p", "runs"), tuple(rows))


def cells_table(summaries: Sequence[Summary]) -> Table:
    """A row a task: the cells of several experiments with one protocol, ours and the paper's."""
    where = {cell: summary for summary in summaries for cell in summary.cells}
    printed = [cell for cell in where if cell in PRINTED]
    rows = []
    for task in sorted({task for summary in summaries for task in summary.tasks}):
        means = {cell: mean_test(summary, task, cell) for cell, summary in where.items()}
        ours = [mean for mean in means.values() if mean is not None]
        best = max(ours) if len(ours) > 1 else None
        theirs = max((PRINTED[cell][task].mean for cell in printed), default=None)
        row = [Entry(f"{task} {TASK_NAMES[task]}")]
        for cell, summary in where.items():
            values = summary.values(task, cell)
            row.append(
                Entry(_spread(values) if values else NOTHING, means[cell] == best and bool(values))
            )
        for cell in printed:
            number = PRINTED[cell][task]
            row.append(Entry(f"{number.mean:.1f} ± {number.deviation:.1f}", number.mean == theirs))
        counts = [len(summary.of(task, cell)) for cell, summary in where.items()]
        same = len(set(counts)) == 1
        rows.append((*row, Entry(str(counts[0]) if same else " / ".join(map(str, counts)))))
    header = [CELLS[cell].title for cell in where]
    header += [f"{CELLS[cell].title}, paper" for cell in printed]
    return Table(("task", *header, "runs"), tuple(rows))


def paper_table(summary: Summary) -> Table | None:
    """How far each mean is from the paper's; None without its cells, or a spread of ours."""
    cells = [cell for cell in summary.cells if cell in PRINTED]
    found = {cell: from_paper(summary, cell) for cell in cells}
    if not any(each for by_task in found.values() for each in by_task.values()):
        return None
    rows = tuple(
        (
            Entry(f"{task} {TASK_NAMES[task]}"),
            *(entry for cell in cells for entry in _difference(found[cell][task])),
        )
        for task in summary.tasks
    )
    header = [part for cell in cells for part in (f"{CELLS[cell].title} - paper's", "p")]
    return Table(("task", *header), rows)


def learning_table(summary: Summary) -> Table:
    """How soon the cells learn, and how much they overfit."""
    header = ["task"]
    for what in ("epochs", "train - test"):
        header += [f"{CELLS[cell].title}, {what}" for cell in summary.cells]
    rows = []
    for task in summary.tasks:
        row = [Entry(f"{task} {TASK_NAMES[task]}")]
        for cell in summary.cells:
            epochs = median_epochs(summary, task, cell)
            row.append(Entry(NOTHING if epochs is None else epochs_text(epochs)))
        for cell in summary.cells:
            found = gaps(summary, task, cell)
            row.append(Entry(_spread(found) if found else NOTHING))
        rows.append(tuple(row))
    return Table(tuple(header), tuple(rows))


def epochs_text(epochs: float) -> str:
    """A number of epochs, or that it was not reached."""
    return "never" if math.isinf(epochs) else f"{epochs:.0f}"


def sizes_table(summary: Summary) -> Table:
    """A row a task and cell: mean test accuracy at every state size, and which is enough."""
    rows = []
    for task in summary.tasks:
        for cell in summary.cells:
            means = [mean_test(summary, task, cell, size) for size in summary.sizes]
            numbers = (Entry(NOTHING if mean is None else f"{mean:.1f}") for mean in means)
            enough = sufficient_size(summary, task, cell)
            least = Entry(NOTHING if enough is None else str(enough))
            rows.append((Entry(f"{task} {CELLS[cell].title}"), *numbers, least))
    return Table(("task, cell", *map(str, summary.sizes), "sufficient"), tuple(rows))


def latex(summary: Summary) -> str:
    """The comparison as the paper sets it: tasks from left to right, ten a block."""
    tasks = summary.tasks
    blocks = [tasks[k : k + _LATEX_BLOCK] for k in range(0, len(tasks), _LATEX_BLOCK)]
    width = max((len(block) for block in blocks), default=0)
    marked = {cell: from_paper(summary, cell) for cell in summary.cells if cell in PRINTED}
    lines = [
        "% needs \\usepackage{booktabs}; a dagger: further from the paper than chance explains",
        f"\\begin{{tabular}}{{@{{}}l{'l' * width}@{{}}}}",
        "\\toprule",
    ]
    for number, block in enumerate(blocks):
        lines += ["\\midrule"] * (number > 0)
        lines += [_latex_row("Task:", [Entry(str(task)) for task in block], width), "\\midrule"]
        for cell in summary.cells:
            columns = [
                entries(summary, task, cell, marked.get(cell, {}).get(task)) for task in block
            ]
            name = f"\\textbf{{{CELLS[cell].title}}}"
            lines.append(_latex_row(name, [column[0] for column in columns], width))
            if cell in PRINTED:
                lines.append(_latex_row("\\quad paper", [column[1] for column in columns], width))
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def _latex_row(name: str, row: Sequence[Entry], width: int) -> str:
    filled = [_latex(entry) for entry in row] + [""] * (width - len(row))
    return f"{' & '.join([name, *filled])} \\\\"


def _latex(entry: Entry) -> str:
    text = entry.text.replace(" ± ", " $\\pm$")
    text = f"\\textbf{{{text}}}" if entry.bold else text
    return f"{text}$^\\dagger$" if entry.marked else text
