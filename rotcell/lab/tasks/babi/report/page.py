"""Writes what runs have found, for people: Markdown, an HTML page, figures, LaTeX, CSV."""

from __future__ import annotations

import base64
import csv
import html
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rotcell.lab.errors import NotInstalledError
from rotcell.lab.files import write_atomically
from rotcell.lab.lines import is_lines
from rotcell.lab.progress import duration
from rotcell.lab.tasks.babi.cells import CELLS
from rotcell.lab.tasks.babi.report.claims import POOR, SAME, claims_table, does_rotation_help
from rotcell.lab.tasks.babi.report.figures import Picture, convergence, state_size
from rotcell.lab.tasks.babi.report.missing import what_is_missing
from rotcell.lab.tasks.babi.report.summary import Summary, comparable, summarize
from rotcell.lab.tasks.babi.report.tables import (
    MARK,
    Table,
    baseline_table,
    cells_table,
    comparison,
    latex,
    learning_table,
    means_table,
    paper_table,
    sizes_table,
)
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.sweep.results import Result

TITLE = "Rotating memories on bAbI"
NOTES = "notes.md"  # written by people; a report links to it where it is there
COMMITS = "commits.txt"  # of a collection: the commits of its runs, each after its date
INTRODUCTION = (
    "Answering questions about stories: the paper's model with a plain and with a rotating cell, "
    "our runs compared with the paper's numbers."
)
NOTES_LINK = "How we read these numbers, and what may explain where they differ from the paper's"
#: How every table of differences treats chance: interval and p-value are of one test.
CHANCE = (
    "Each row has the 95 % interval and the p-value of one Welch test, not corrected for the other "
    "rows: where nothing differs, about 1 interval in 20 still excludes 0. Bold: p < 0.05 after "
    "Holm's correction over the rows of the column."
)
COMPARISON_LEGEND = (
    "Test accuracy in %, mean ± standard deviation (n - 1) over seeds, at the one of the tested "
    "epochs with the best validation accuracy (the earliest on a tie). The best cell is bold. "
    f"{MARK} our mean differs from the paper's (Welch's test, p < 0.05 after Holm's correction; a "
    "mean without the mark is not thereby shown to be equal). "
    f"Differences: {CHANCE} The last row is of the tasks with at least three runs of each cell (of "
    "all, while there are no two): a Welch test of the means over these tasks, one per seed. A "
    "single run has no spread and no test."
)
PAPER_LEGEND = (
    "Our mean minus the one printed in the paper, in points; Welch's test from the printed mean, "
    f"deviation and 10 runs. {CHANCE}"
)
BASELINE_LEGEND = (
    f"What the change alone does: the same cells, tasks and protocol otherwise. {CHANCE}"
)
CELLS_LEGEND = (
    "Test accuracy in %, mean ± standard deviation (n - 1) over seeds; the best cell is bold, ours "
    "and the paper's. The number of runs is that of each cell where they differ."
)
MEANS_LEGEND = (
    "Test accuracy in %, mean over the 20 tasks, of models with hard gates (assumed: Keras' "
    "default of the paper's time); brackets: 95 % interval of the mean over seeds (Student). Bold: "
    "the best cell."
)
LEARNING_LEGEND = (
    "Epochs: the median over seeds of the first epoch with a validation accuracy of 95 % of the "
    "task's top (the best validation accuracy of a run, its mean over seeds, for the cell that has "
    "more). Train - test: accuracy on training minus that on test questions at the last epoch, in "
    "points, mean ± standard deviation."
)
SIZES_LEGEND = (
    "Mean test accuracy in %, by state size. Sufficient: the smallest size with 95 % of the "
    "task's best mean, of all sizes and cells."
)
CLAIMS_LEGEND = (
    "Differences are rotating minus plain cell, in points, with 95 % intervals (Welch); of two "
    "numbers the first is the rotating cell's; n is the number of runs per cell. Reproduced: the "
    "interval lies above 0 and, where the paper has an amount, contains it. Smaller or larger than "
    "claimed: it lies above 0, but below or above that amount. Not reproduced: it lies at or below "
    "0, or holds 0 and excludes the amount. Undecided: everything else, and fewer than three runs "
    "of a cell on a task. The paper's amount is taken as exact, and each claim is judged by "
    "itself, without correction for their number. Most tasks: two-sided sign test over tasks. "
    "Sooner: medians, exact Mann-Whitney test. Epochs: medians with their 95 % interval (from "
    "ranks; of five runs, the range). State sizes: judged by their ratio, which has no interval. "
    f"Similar, same, poorly: the interval lies within 2.5 points, below +{SAME:.0f}, below "
    f"{POOR:.0f} %; the last two limits are ours. GRU and LSTMs: differences of the means over "
    "tasks, paired by seed. The paper does not name its gate function: hard gates, Keras' default "
    "of its time, are assumed."
)


@dataclass(frozen=True)
class Written:
    """A report: its text and its files, the HTML page first."""

    markdown: str
    files: list[Path]


@dataclass(frozen=True)
class Section:
    """An experiment's part of the report, or one about all of them."""

    title: str
    text: list[str]
    tables: list[tuple[Table, str]] = field(default_factory=list)  # each with its legend
    pictures: list[Picture] = field(default_factory=list)
    latex: tuple[str, str] | None = None  # file name, content
    experiment: str | None = None  # its name, of a section about one; also that of its files


def write_report(path: Path, out: Path) -> Written:
    """Report on all experiments at `path` (see `summarize`), finished or not."""
    summaries = summarize(path)
    out.mkdir(parents=True, exist_ok=True)
    notes = out / NOTES if (out / NOTES).exists() else None
    contents = report_files(
        summaries, claims=is_collection(path), notes=notes is not None, dates=read_dates(out)
    )
    for name, content in contents.items():
        write_atomically(out / name, content)
    return Written(contents["README.md"].decode().rstrip("\n"), [out / name for name in contents])


def read_dates(folder: Path) -> dict[str, str]:
    """The dates of commits, where a collection lists them."""
    file = folder / COMMITS
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {commit: date for date, commit, *_ in map(str.split, lines)}


def is_collection(path: Path) -> bool:
    """Whether this is a folder of collected runs, as in results/babi."""
    return any(is_lines(file) for file in (path / "runs").glob("*"))


def report_files(
    summaries: Sequence[Summary],
    *,
    claims: bool,
    notes: bool = False,
    dates: Mapping[str, str] | None = None,
) -> dict[str, bytes]:
    """The files of a report by name; with `claims` also a verdict on each claim of the paper,
    with `notes` a link to them, with `dates` of commits those of the runs under the figures."""
    by_name = {summary.title: summary for summary in summaries}
    sections = [
        _section(summary, by_name.get(summary.experiment.baseline or ""), dates or {})
        for summary in summaries
    ]
    if claims:
        sections = [*_means(by_name), _claims(summaries), *sections, *_all_cells(by_name)]
    link = [f"[{NOTES_LINK}]({NOTES})"] if notes else []
    # With claims the first page holds what is about all experiments, and each has its own page.
    own = [section for section in sections if claims and section.experiment is not None]
    if own:
        link.append(
            "Experiments: " + ", ".join(f"[{s.experiment}]({s.experiment}.md)" for s in own)
        )
    first = [_markdown(section) for section in sections if section not in own]
    markdown = "\n\n".join([f"# {TITLE}", INTRODUCTION, *link, *first])
    contents = {
        "index.html": _page(sections, notes=notes).encode(),
        "README.md": f"{markdown}\n".encode(),
        **{f"{s.experiment}.md": f"{_markdown(s, level=1)}\n".encode() for s in own},
        "runs.csv": tidy_csv([result for summary in summaries for result in summary.results]),
    }
    for section in sections:
        if section.latex is not None:
            name, content = section.latex
            contents[f"{name}.tex"] = content.encode()
        for picture in section.pictures:
            contents[f"{picture.name}.png"] = picture.png
            contents[f"{picture.name}.svg"] = picture.svg
    return contents


def tidy_csv(results: Sequence[Result]) -> bytes:
    """One row per run: what it was, on what, with what, and what came out."""
    out = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for result in results:
        assert result.history is not None
        row = {
            **result.settings.plain(),
            "data": str(result.data),
            "epoch": result.outcome.epoch,
            "validation": result.outcome.validation,
            "test": result.outcome.test,
            "test_latest_on_tie": result.history.latest_outcome.test,
            "train_at_end": result.history.train[-1],
            "test_at_end": result.history.test[max(result.history.test)],
            "seconds": round(result.seconds, 3),
            **result.environment,
        }
        if writer is None:
            writer = csv.DictWriter(out, list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow(row)
    return out.getvalue().encode()


def _claims(summaries: Sequence[Summary]) -> Section:
    by_name = {summary.experiment.name: summary for summary in summaries}
    runs = sum(len(summary.results) for summary in summaries)
    seconds = sum(result.seconds for summary in summaries for result in summary.results)
    return Section(
        "Which claims of the paper are reproduced",
        [
            " ".join(does_rotation_help(by_name)),
            f"From {runs} runs, {duration(seconds)} by the clock, added up; machines were shared.",
        ],
        [(claims_table(by_name), CLAIMS_LEGEND)],
    )


def _paper_protocol(by_name: Mapping[str, Summary]) -> list[Summary]:
    """The experiments with the paper's protocol, where there are several that compare."""
    there = [by_name[name] for name in ("lstm", "gru") if name in by_name]
    return there if len(there) > 1 and comparable(*there) else []


def _means(by_name: Mapping[str, Summary]) -> list[Section]:
    """The most important numbers: one per cell."""
    table = means_table(_paper_protocol(by_name))
    return [Section("All cells in one line", [], [(table, MEANS_LEGEND)])] if table else []


def _all_cells(by_name: Mapping[str, Summary]) -> list[Section]:
    """The experiments with the paper's protocol in one table, where there are several."""
    there = _paper_protocol(by_name)
    if not there:
        return []
    titles = [CELLS[cell].title for summary in there for cell in summary.cells]
    gates = {"hard_sigmoid": "hard gates"}.get(there[0].results[0].settings.gates, "sigmoid gates")
    named = f"{', '.join(titles[:-1])} and {titles[-1]}, {gates}"
    return [Section(f"All cells: {named}", [], [(cells_table(there), CELLS_LEGEND)])]


def _when(summary: Summary, dates: Mapping[str, str]) -> str:
    """When the runs were made, as far as it is known."""
    known = sorted({dates.get(str(r.environment.get("commit")), "") for r in summary.results})
    if not known or not known[0]:
        return ""
    return f" Commits of {' to '.join(dict.fromkeys((known[0], known[-1])))}."


def _section(summary: Summary, baseline: Summary | None, dates: Mapping[str, str]) -> Section:
    by_size = summary.experiment.by_size
    text = _state(summary)
    tables: list[tuple[Table, str]] = []
    pictures: list[Picture] = []
    if summary.results:
        try:
            picture = (state_size if by_size else convergence)(summary)
            pictures.append(picture._replace(caption=picture.caption + _when(summary, dates)))
        except NotInstalledError as error:
            text.append(f"No figures: {error}.")
        if by_size:
            tables.append((sizes_table(summary), SIZES_LEGEND))
        else:
            tables.append((comparison(summary), COMPARISON_LEGEND))
            tables.append((learning_table(summary), LEARNING_LEGEND))
            to_paper = paper_table(summary)
            tables += [(to_paper, PAPER_LEGEND)] if to_paper else []
            fits = baseline is not None and comparable(
                summary, baseline, but=("gates", "angle", "batch", "packed")
            )
            change = baseline_table(summary, baseline) if baseline is not None and fits else None
            tables += [(change, BASELINE_LEGEND)] if change else []
    named = summary.title.replace(", ", "-"), latex(summary)
    return Section(
        title=f"{summary.title}: {summary.experiment.about}",
        text=text,
        tables=tables,
        pictures=pictures,
        latex=named if summary.results and not by_size else None,
        experiment=named[0],
    )


def _state(summary: Summary) -> list[str]:
    """The experiment's progress, in sentences."""
    done = summary.results
    took = duration(sum(result.seconds for result in done))
    computed = f" ({took} by the clock, added up)" if done else ""
    sentences = [
        f"{len(done)} of {len(summary.planned)} runs are done{computed}; data: {summary.data}."
    ]
    run = summary.planned[0]
    usual = RunSettings(
        run.task,
        run.cell,
        run.state_size,
        run.seed,
        packed=run.packed,
        gates=summary.experiment.gates,
        angle=summary.experiment.angle,
    )
    if run != usual:
        sentences.append(f"Not the paper's protocol: {run.difference(usual)}.")
    if done:
        sentences.append(_computed_with(summary))
        sentences.append(_ties(done))
    if summary.missing:
        sentences.append(what_is_missing(summary))
    for result in summary.failed:
        sentences.append(f"Failed: {result.settings.name}: {_last_line(result.error)}")
    sentences += [f"Damaged: {problem}" for problem in summary.damaged]
    return sentences


def _computed_with(summary: Summary) -> str:
    """What the runs were computed with, and where they differ in it."""
    differing = summary.environments
    common = ", ".join(
        f"{name.replace('_', ' ')} {_short(name, value)}"
        for name, value in summary.results[0].environment.items()
        if name not in differing
    )
    text = f"Computed with {common}." if common else ""
    for name, counts in differing.items():
        parts = ", ".join(f"{_short(name, value)} ({n} runs)" for value, n in counts.items())
        text += f" The runs differ in {name.replace('_', ' ')}: {parts}."
    return text.strip()


def _short(name: str, value: object) -> str:
    return str(value)[:12] if name == "commit" else str(value)


def _ties(results: Sequence[Result]) -> str:
    """How much it matters which of several best epochs is taken."""
    outcomes = [(r.outcome, r.history.latest_outcome) for r in results if r.history is not None]
    others = sum(one.epoch != other.epoch for one, other in outcomes)
    change = statistics.fmean(100 * (other.test - one.test) for one, other in outcomes)
    return (
        f"Ties: taking the latest instead of the earliest of equally validated epochs would choose "
        f"another epoch in {others} of {len(outcomes)} runs, and change the mean accuracy by "
        f"{change:+.2f} points."
    )


def _last_line(error: str | None) -> str:
    lines = (error or "").strip().splitlines()
    return lines[-1] if lines else "no reason given"


def _markdown(section: Section, level: int = 2) -> str:
    parts = [f"{'#' * level} {section.title}", *section.text]
    for table, legend in section.tables:
        parts += [table.markdown(), legend]
    for picture in section.pictures:
        parts += [f"![{section.title}]({picture.name}.png)", f"*{picture.caption}*"]
    return "\n\n".join(parts)


_CSS = """\
:root { color-scheme: light dark; --ink: #222; --ground: #fff; --line: #ddd; --faint: #555;
        --mark: #b00020; --link: #0b5fa5; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e6e8; --ground: #16191c; --line: #3a4046; --faint: #a4abb2; --mark: #ff8a93;
          --link: #7db9ec; }
  img { background: #fff; border-radius: 4px; }
}
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2rem auto; padding: 0 1rem;
       color: var(--ink); background: var(--ground); overflow-wrap: break-word; }
a { color: var(--link); }
h1, h2 { line-height: 1.2; }  h2 { margin-top: 2.5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid var(--line);
         white-space: nowrap; }
.words th, .words td { text-align: left; white-space: normal; vertical-align: top; }
.wide table { font-size: 13px; }  .wide th, .wide td { padding: .25rem .35rem; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0;
                                 background: var(--ground); }
thead th { border-bottom: 2px solid var(--ink); }
.mark { color: var(--mark); }  .legend, figcaption { color: var(--faint); font-size: 13px; }
figure { margin: 1.5rem 0; }  img { max-width: 100%; }
@media (max-width: 760px) {
  table { font-size: 12px; }  th, td { padding: .25rem .3rem; }  thead th { white-space: normal; }
  .words td, .words th { min-width: 5.5rem; }
}"""
_WIDE = 8  # columns of a table from which on it is set smaller
_PANEL = 160  # pixels; narrower panels cannot be read, and the figure scrolls instead


def _page(sections: Sequence[Section], *, notes: bool) -> str:
    link = f'<p><a href="{NOTES}">{html.escape(NOTES_LINK)}</a></p>\n' if notes else ""
    body = "\n".join(_section_html(section) for section in sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>rotcell on bAbI</title>
<style>
{_CSS}
</style>
</head>
<body>
<h1>{TITLE}</h1>
<p>{html.escape(INTRODUCTION)}</p>
{link}{body}
</body>
</html>
"""


def _section_html(section: Section) -> str:
    parts = [f"<h2>{html.escape(section.title)}</h2>"]
    parts += [f"<p>{html.escape(sentence)}</p>" for sentence in section.text]
    for table, legend in section.tables:
        kind = "scroll wide" if len(table.header) >= _WIDE else "scroll"
        parts.append(f'<div class="{kind}">{table.html()}</div>')
        parts.append(f"<p class=legend>{html.escape(legend)}</p>")
    for picture in section.pictures:
        encoded = base64.b64encode(picture.svg).decode()
        caption = html.escape(picture.caption)
        parts.append(
            f'<figure><div class=scroll><img alt="{caption}" '
            f'style="min-width:{_PANEL * picture.columns}px" '
            f'src="data:image/svg+xml;base64,{encoded}"></div>'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    return "\n".join(parts)
