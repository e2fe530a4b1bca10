"""Tables of a summary, in Markdown, HTML and LaTeX."""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from rotcell.lab.report.statistics import (
    Difference,
    Moments,
    compare,
    holm,
    mean_interval,
    welch,
)
from rotcell.lab.tasks.babi.cells import CELLS
from rotcell.lab.tasks.babi.data.catalog import TASK_NAMES
from rotcell.lab.tasks.babi.report.measures import (
    FEWEST,
    gaps,
    mean_test,
    median_epochs,
    sufficient_size,
)
from rotcell.lab.tasks.babi.report.paper import PRINTED, RUNS, printed_mean
from rotcell.lab.tasks.babi.report.summary import Summary

Key = TypeVar("Key", bound=Hashable)

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
    """`cell` minus `plain`, for every task."""
    return {t: compare(summary.values(t, cell), summary.values(t, plain)) for t in summary.tasks}


def from_paper(summary: Summary, cell: str) -> dict[int, Difference | None]:
    """Our mean minus the paper's, for every task."""
    found = {}
    for task in summary.tasks:
        ours = Moments.of(summary.values(task, cell))
        found[task] = None if ours is None else welch(ours, PRINTED[cell][task].moments)
    return found


def significant(family: Mapping[Key, Difference | None]) -> set[Key]:
    """Which differences are significant after Holm's correction over all of them."""
    corrected = holm([None if each is None else each.p for each in family.values()])
    return {
        key for key, p in zip(family, corrected, strict=True) if p is not None and p < SIGNIFICANT
    }


def comparison(summary: Summary) -> Table:
    """One row per task: every cell, ours and the paper's, and what rotation makes of it."""
    header = ["task"]
    for cell in summary.cells:
        header += [CELLS[cell].title] + [f"{CELLS[cell].title}, paper"] * (cell in PRINTED)
    by_pair = [differences(summary, *pair) for pair in summary.pairs]
    bold = [significant(by_task) for by_task in by_pair]
    for plain, cell in summary.pairs:
        header += [f"{CELLS[cell].title} - {CELLS[plain].title}", "p"]
    marked = _marked(summary)
    rows = []
    for task in summary.tasks:
        row = [Entry(f"{task} {TASK_NAMES[task]}")]
        for cell in summary.cells:
            row += entries(summary, task, cell, task in marked[cell])
        for by_task, kept in zip(by_pair, bold, strict=True):
            row += _difference(by_task[task], task in kept)
        rows.append((*row, Entry(_counts(summary, task))))
    return Table((*header, "runs"), (*rows, *_average(summary)))


def _marked(summary: Summary) -> dict[str, set[int]]:
    """The tasks of every cell whose mean differs significantly from the paper's."""
    return {
        cell: significant(from_paper(summary, cell)) if cell in PRINTED else set()
        for cell in summary.cells
    }


def entries(summary: Summary, task: int, cell: str, differs: bool) -> tuple[Entry, ...]:
    """Our result and, where there is one, the paper's; the best of each are bold.

    `differs`: whether our mean is marked as different from the paper's.
    """
    means = {each: mean_test(summary, task, each) for each in summary.cells}
    ours = means[cell]
    entry = Entry(NOTHING)
    if ours is not None:
        rivals = [mean for mean in means.values() if mean is not None]
        best = len(rivals) > 1 and ours == max(rivals)
        entry = Entry(_spread(summary.values(task, cell)), best, differs)
    if cell not in PRINTED:
        return (entry,)
    printed = PRINTED[cell][task]
    best = printed.mean == max(PRINTED[c][task].mean for c in summary.cells if c in PRINTED)
    return entry, Entry(f"{printed.mean:.1f} ± {printed.deviation:.1f}", best)


def _spread(values: Sequence[float]) -> str:
    found = Moments.of(values)
    return f"{values[0]:.1f}" if found is None else f"{found.mean:.1f} ± {found.deviation:.1f}"


def _difference(found: Difference | None, bold: bool) -> tuple[Entry, Entry]:
    if found is None:
        return Entry(NOTHING), Entry(NOTHING)
    return Entry(found.text, bold), Entry(p_text(found.p))


def p_text(p: float) -> str:
    """A p-value as papers print it."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def p_statement(p: float) -> str:
    """A p-value within a sentence."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _counts(summary: Summary, task: int) -> str:
    return _same([len(summary.of(task, cell)) for cell in summary.cells])


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
        found = overall(summary, *pair)
        row += _difference(found, found is not None and found.p < SIGNIFICANT)
    return [(*row, Entry(""))]


def common_tasks(summary: Summary) -> list[int]:
    """The tasks that have results of every cell."""
    return [t for t in summary.tasks if all(summary.of(t, c) for c in summary.cells)]


def averaged_tasks(summary: Summary) -> list[int]:
    """The tasks with enough runs of every cell; while there are no two, those with any."""
    common = common_tasks(summary)
    enough = [t for t in common if all(len(summary.of(t, c)) >= FEWEST for c in summary.cells)]
    return enough if len(enough) > 1 else common


def means_by_seed(summary: Summary, cell: str) -> dict[int, float]:
    """The mean over the averaged tasks in %, for each seed that has all of them for the cell."""
    tasks = averaged_tasks(summary)
    values: dict[int, list[float]] = {}
    for task in tasks:
        for result in summary.of(task, cell):
            values.setdefault(result.settings.seed, []).append(100 * result.outcome.test)
    return {seed: statistics.fmean(v) for seed, v in values.items() if len(v) == len(tasks)}


def overall(summary: Summary, plain: str, cell: str) -> Difference | None:
    """`cell` minus `plain`, of the means over tasks, one per seed."""
    ours, theirs = (means_by_seed(summary, which) for which in (cell, plain))
    return compare(list(ours.values()), list(theirs.values()))


def baseline_table(summary: Summary, other: Summary) -> Table | None:
    """One row per task and cell that both experiments have; None when no task has two runs in each.

    The difference is that of the first minus the other.
    """
    found = {
        (task, cell): compare(summary.values(task, cell), other.values(task, cell))
        for task in summary.tasks
        for cell in summary.cells
        if other.of(task, cell)
    }
    if not any(found.values()):
        return None
    bold = significant(found)
    rows = []
    for (task, cell), difference in found.items():
        values = [experiment.values(task, cell) for experiment in (summary, other)]
        rows.append(
            (
                Entry(f"{task} {TASK_NAMES[task]}, {CELLS[cell].title}"),
                *(Entry(_spread(v) if v else NOTHING) for v in values),
                *_difference(difference, (task, cell) in bold),
                Entry(" / ".join(str(len(v)) for v in values)),
            )
        )
    names = summary.title, other.title
    return Table(("task, cell", *names, f"{names[0]} - {names[1]}", "p", "runs"), tuple(rows))


def cells_table(summaries: Sequence[Summary]) -> Table:
    """One row per task: the cells of several experiments with one protocol, ours and paper's."""
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
        rows.append((*row, Entry(_same(counts))))
    header = [CELLS[cell].title for cell in where]
    header += [f"{CELLS[cell].title}, paper" for cell in printed]
    return Table(("task", *header, "runs"), tuple(rows))


def means_table(summaries: Sequence[Summary]) -> Table | None:
    """The means over all tasks of every cell, ours and the paper's; None without all tasks."""
    where = {cell: summary for summary in summaries for cell in summary.cells if cell in PRINTED}
    if not where or any(len(averaged_tasks(s)) < len(s.experiment.tasks) for s in where.values()):
        return None
    found = {cell: list(means_by_seed(summary, cell).values()) for cell, summary in where.items()}
    ours = {cell: Moments.of(values) for cell, values in found.items()}
    there = [each for each in ours.values() if each is not None]
    if len(there) < len(ours):
        return None
    entries, best = [], max(each.mean for each in there)
    for each in there:
        low, high = mean_interval(each)
        entries.append(Entry(f"{each.mean:.1f} [{low:.1f}, {high:.1f}]", each.mean == best))
    printed = [printed_mean(cell) for cell in where]
    counts = [len(values) for values in found.values()]
    return Table(
        ("mean of 20 tasks", *(CELLS[cell].title for cell in where), "seeds"),
        (
            (Entry("our runs"), *entries, Entry(_same(counts))),
            (
                Entry("paper"),
                *(Entry(f"{mean:.1f}", mean == max(printed)) for mean in printed),
                Entry(str(RUNS)),
            ),
        ),
    )


def _same(counts: Sequence[int]) -> str:
    """One number if all are equal, otherwise all of them."""
    return str(counts[0]) if len(set(counts)) == 1 else " / ".join(map(str, counts))


def paper_table(summary: Summary) -> Table | None:
    """How far each mean is from the paper's; None without its cells, or a spread of ours."""
    cells = [cell for cell in summary.cells if cell in PRINTED]
    found = {cell: from_paper(summary, cell) for cell in cells}
    if not any(each for by_task in found.values() for each in by_task.values()):
        return None
    bold = {cell: significant(by_task) for cell, by_task in found.items()}
    rows = tuple(
        (
            Entry(f"{task} {TASK_NAMES[task]}"),
            *(
                entry
                for cell in cells
                for entry in _difference(found[cell][task], task in bold[cell])
            ),
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
    """One row per task and cell: mean test accuracy at every state size, and which is enough."""
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
    """The comparison as the paper prints it: tasks from left to right, ten per block."""
    tasks = summary.tasks
    blocks = [tasks[k : k + _LATEX_BLOCK] for k in range(0, len(tasks), _LATEX_BLOCK)]
    width = max((len(block) for block in blocks), default=0)
    marked = _marked(summary)
    lines = [
        "% needs \\usepackage{booktabs}; a dagger: further from the paper than chance explains",
        f"\\begin{{tabular}}{{@{{}}l{'l' * width}@{{}}}}",
        "\\toprule",
    ]
    for number, block in enumerate(blocks):
        lines += ["\\midrule"] * (number > 0)
        lines += [_latex_row("Task:", [Entry(str(task)) for task in block], width), "\\midrule"]
        for cell in summary.cells:
            columns = [entries(summary, task, cell, task in marked[cell]) for task in block]
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
