"""The page of a study: rotating layers against plain ones, as results/PROTOCOL.md plans it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

from rotcell.lab.files import write_atomically
from rotcell.lab.report.anchors import anchors
from rotcell.lab.report.comparisons import (
    HEAD,
    comparisons,
    comparisons_of_starts,
    headlines,
    table,
)
from rotcell.lab.report.overview import overview, rows_of
from rotcell.lab.report.study_figures import study_figures
from rotcell.lab.report.study_table import layers_page
from rotcell.lab.sweep.queue import Queue
from rotcell.lab.sweep.study import Study
from rotcell.lab.tasks import names

#: What was found, in words: written by hand, in the folder of the records.
ANSWER: Final = "answer.md"
STARTS_HEAD: Final = ("task", "start", "pi", "start: result", "pi: result", *HEAD[5:])
PAGE: Final = """# What is rotation for?

Study `{study}`: {about}. {done:,} runs are finished and {left:,} are to come.
[The protocol](PROTOCOL.md) was written before the first of them. This page is made by
`rotcell-lab report results --study {study} --out results`.

{answer}## All tasks at a glance

{overview}

{figures}## Anchors

Results that others printed. The plain layer must reach them before other numbers of the task are
believed, or the difference must be explained. Final seeds only, with the settings chosen on
validation.

{anchors}

## Rotating and plain layers

The comparisons that [the protocol](PROTOCOL.md) plans. A rotating layer has the start of the angles
that was best on validation. A comparison has a verdict if the plain layer has at least as many
weights as the rotating one, or the same size where the study has no such layer. The layer of the
same size is shown as well. Each row has the 95 % interval and the p-value of one test; in
parentheses is the p-value corrected by Holm's method within an item of the protocol, over the
comparisons that have ended. Verdicts are by the corrected value, so a row can be undecided although
its own interval excludes zero (of a ratio: one).

- Where seeds are counted: how many solve the task, with McNemar's exact test. Steps: the ratio of
  the steps to the target over the seeds where both layers solve it. Below 1 the rotating layer is
  faster.
- Elsewhere: the paired difference. It is a tie if it is significant but below the protocol's
  margin, or if its interval lies within the margin.

{small}{comparisons}

## Where the angles start

Each start against pi, the paper's, for the same layer and size, by the same rules. All starts are
one item.

{starts}

[Every layer, size and start](layers.md), with the settings that were chosen.

## Repeating a run

The same settings, commit, torch and instruction set give the same bits: the outcome of a record,
and its curve, by a checksum. Another instruction set rounds differently: the curve
becomes another one, and the outcome may. `ROTCELL_ISA` and torch's
`ATEN_CPU_CAPABILITY` choose an instruction set that the processor has. Every record names its own:

{made_with}
"""


def write_study(study: Study, folder: Path, out: Path) -> Path:
    """Write the page and its figures; returns where the page is."""
    queue = Queue(study, folder, dict.fromkeys(names(), folder))
    figures = list(study_figures(rows_of(queue)))
    out.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        write_atomically(out / f"{figure.name}.png", figure.png)
    shown = "".join(f"![{f.caption}]({f.name}.png)\n\n*{f.caption}*\n\n" for f in figures)
    page = out / "README.md"
    page.write_text(study_page(study, folder, shown), encoding="utf-8")
    layers = "\n\n".join(layers_page(queue)) + "\n"
    (out / "layers.md").write_text(layers, encoding="utf-8")
    return page


def study_page(study: Study, folder: Path, figures: str = "") -> str:
    """Markdown: all tasks at a glance, then the comparisons that were planned."""
    queue = Queue(study, folder, dict.fromkeys(names(), folder))
    files = {(block.task, block.file): block for block in queue.blocks}
    done = sum(len(queue.known(block)) for block in files.values())
    left = sum(len(queue.pending(block)) for block in queue.blocks)
    found = comparisons(queue)
    small = "".join(f"- {sentence}\n" for sentence in headlines(found))
    answer = folder / ANSWER
    return PAGE.format(
        study=study.name,
        about=study.about,
        done=done,
        left=left,
        answer=answer.read_text(encoding="utf-8").strip() + "\n\n" if answer.is_file() else "",
        overview=overview(queue),
        figures=figures,
        anchors=anchors(folder),
        small=f"{small}\n" if small else "",
        comparisons=table(found),
        made_with=made_with(queue),
        starts=table(comparisons_of_starts(queue), STARTS_HEAD),
    )


def made_with(queue: Queue) -> str:
    """Markdown: how many runs were made with each commit, torch and instruction set."""
    files = {(block.task, block.file): block for block in queue.blocks}
    names = ("commit", "torch", "instruction_set", "torch_instruction_set")
    counts = Counter(
        (block.task, *(str(record["environment"].get(name) or "-") for name in names))
        for block in files.values()
        for record in queue.known(block).values()
    )
    head = ("task", "commit", "torch", "ROTCELL_ISA", "ATEN_CPU_CAPABILITY", "runs")
    rows: list[tuple[str, ...]] = [head, ("---",) * len(head)]
    for (task, commit, torch, own, torchs), number in sorted(counts.items()):
        rows.append((task, commit[:8], torch, own, torchs.lower(), str(number)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
