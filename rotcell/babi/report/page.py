"""Writes what a sweep has found, as files for people."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rotcell.babi.errors import NotInstalledError
from rotcell.babi.files import write_atomically
from rotcell.babi.progress import duration
from rotcell.babi.report.figures import Picture, convergence, state_size
from rotcell.babi.report.missing import what_is_missing
from rotcell.babi.report.summary import Summary, summarise
from rotcell.babi.report.tables import MARK, Table, comparison, latex, sizes_table
from rotcell.babi.training.settings import RunSettings

LEGEND = (
    "Test accuracy in %, mean ± standard deviation (n - 1) over seeds, at the one of the tested "
    "epochs with the best validation accuracy. The better cell is bold. "
    f"{MARK} our mean and the paper's are further apart than the joint spread allows: more than "
    "2 · sqrt(s₁²/n₁ + s₂²/n₂), with the paper's n₂ = 10, and 0.05 for rounding in print. "
    "A single run has no spread and is never marked."
)
INTRODUCTION = (
    "Answering questions about stories: the paper's model with a plain and with a rotating cell, "
    "our runs beside the paper's numbers."
)


@dataclass(frozen=True)
class Written:
    """A report: its text and its files, the HTML page first."""

    markdown: str
    files: list[Path]


@dataclass(frozen=True)
class Section:
    """An experiment's part of the report."""

    title: str
    state: list[str]  # what is there, missing, failed or damaged
    table: Table | None
    legend: str
    pictures: list[Picture]
    latex: str | None
    file_name: str


def write_report(folder: Path, out: Path) -> Written:
    """Report on all experiments in `folder`, finished or not."""
    sections = [_section(summary) for summary in summarise(folder)]
    out.mkdir(parents=True, exist_ok=True)
    markdown = "\n\n".join(_markdown(section) for section in sections)
    contents = {
        "index.html": _page(sections).encode(),
        "report.md": f"{markdown}\n".encode(),
    }
    for section in sections:
        if section.latex is not None:
            contents[f"{section.file_name}.tex"] = section.latex.encode()
        for picture in section.pictures:
            contents[f"{picture.name}.png"] = picture.png
            contents[f"{picture.name}.svg"] = picture.svg
    for name, content in contents.items():
        write_atomically(out / name, content)
    return Written(markdown, [out / name for name in contents])


def _section(summary: Summary) -> Section:
    by_size = summary.experiment.name == "state-size"
    there = bool(summary.results)
    state = _state(summary)
    pictures = []
    if there:
        try:
            pictures.append((state_size if by_size else convergence)(summary))
        except NotInstalledError as error:
            state.append(f"No figures: {error}.")
    return Section(
        title=f"{summary.title}: {summary.experiment.about}",
        state=state,
        table=(sizes_table if by_size else comparison)(summary) if there else None,
        legend="Mean test accuracy in %, by state size." if by_size else LEGEND,
        pictures=pictures,
        latex=latex(summary) if there and not by_size else None,
        file_name=summary.title.replace(", ", "-"),
    )


def _state(summary: Summary) -> list[str]:
    """Where the experiment stands, in sentences."""
    done = summary.results
    took = duration(sum(result.seconds for result in done))
    computed = f" ({took} of computing)" if done else ""
    said = [
        f"{len(done)} of {len(summary.planned)} runs are done{computed}; data: {summary.source}."
    ]
    run = summary.planned[0]
    paper = RunSettings(run.task, run.cell, run.state_size, run.seed, packed=run.packed)
    if run != paper:
        said.append(f"Not the paper's protocol: {run.difference(paper)}.")
    if summary.missing:
        said.append(what_is_missing(summary))
    for result in summary.failed:
        said.append(f"Failed: {result.settings.name}: {_last_line(result.error)}")
    said += [f"Damaged: {problem}" for problem in summary.damaged]
    return said


def _last_line(error: str | None) -> str:
    lines = (error or "").strip().splitlines()
    return lines[-1] if lines else "no reason given"


def _markdown(section: Section) -> str:
    parts = [f"## {section.title}", *section.state]
    if section.table is not None:
        parts += [section.table.markdown(), section.legend]
    parts += [f"![{picture.caption}]({picture.name}.png)" for picture in section.pictures]
    return "\n\n".join(parts)


_CSS = """\
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; overflow-wrap: break-word; }
h1, h2 { line-height: 1.2; }  h2 { margin-top: 2.5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #ddd;
         white-space: nowrap; }
.wide table { font-size: 13px; }  .wide th, .wide td { padding: .25rem .35rem; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
thead th { border-bottom: 2px solid #222; }
.mark { color: #b00020; }  .legend, figcaption { color: #555; font-size: 13px; }
figure { margin: 1.5rem 0; }  img { max-width: 100%; }
@media (max-width: 760px) {
  table { font-size: 12px; }  th, td { padding: .25rem .3rem; }  thead th { white-space: normal; }
}"""
_WIDE = 10  # columns of a table from which on it is set smaller
_PANEL = 160  # pixels; narrower panels cannot be read, and the figure scrolls instead


def _page(sections: Sequence[Section]) -> str:
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
<h1>Rotating memories on bAbI</h1>
<p>{html.escape(INTRODUCTION)}</p>
{body}
</body>
</html>
"""


def _section_html(section: Section) -> str:
    parts = [f"<h2>{html.escape(section.title)}</h2>"]
    parts += [f"<p>{html.escape(sentence)}</p>" for sentence in section.state]
    if section.table is not None:
        kind = "scroll wide" if len(section.table.header) >= _WIDE else "scroll"
        parts.append(f'<div class="{kind}">{section.table.html()}</div>')
        parts.append(f"<p class=legend>{html.escape(section.legend)}</p>")
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
