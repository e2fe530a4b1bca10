"""``rotcell-babi demo``: LSTM against RotLSTM on two tasks, with data made on the spot."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from rotcell.babi.cli.options import positive
from rotcell.babi.data.catalog import TASK_NAMES
from rotcell.babi.data.source import Source
from rotcell.babi.errors import NotInstalledError
from rotcell.babi.files import write_atomically
from rotcell.babi.report.figures import convergence
from rotcell.babi.report.measures import mean_test
from rotcell.babi.report.summary import Summary, summarise
from rotcell.babi.sweep.experiments import EXPERIMENTS, PAPER_SIZE, make_plan
from rotcell.babi.sweep.local import local_engine
from rotcell.babi.sweep.runner import Folder, sweep
from rotcell.babi.training.cells import CELLS
from rotcell.babi.training.look import Reader, look_at_question

TASKS: Final = (1, 18)
EXPERIMENT: Final = EXPERIMENTS["lstm"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `rotcell-babi demo` understands."""
    parser.add_argument("--epochs", type=positive, default=40, help="default 40")
    parser.add_argument("--seeds", type=positive, default=1, help="runs a model (default 1)")
    parser.add_argument(
        "--questions",
        type=positive,
        default=1000,
        help="to train on, and to test on (default 1000)",
    )
    parser.add_argument("--workers", type=positive, metavar="N", help="processes (default: cores)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("rotcell-babi-demo"),
        metavar="DIR",
        help="default rotcell-babi-demo",
    )


def run(options: argparse.Namespace) -> int:
    """Train, print a table, draw a plot; returns the exit status."""
    source = Source(questions=options.questions)
    plan = make_plan(
        EXPERIMENT,
        tasks=TASKS,
        seeds=options.seeds,
        data=source.names(TASKS),
        epochs=options.epochs,
    )
    print(
        f"An LSTM and a RotLSTM of {PAPER_SIZE} units learn to answer questions about stories: "
        f"bAbI tasks {' and '.join(f'{task} ({TASK_NAMES[task]})' for task in TASKS)}, "
        f"{options.questions} generated questions each, {options.epochs} epochs.",
        flush=True,
    )
    workers = options.workers or len(os.sched_getaffinity(0))
    # Other options make other runs, which do not belong into one table.
    out = options.out / f"{options.epochs}-epochs-{options.questions}-questions"
    models = out / "models"
    tally = sweep(plan, Folder(out), source, local_engine(workers, models=models))
    (summary,) = summarise(out)
    print(f"\n{_table(summary)}\n")
    print(
        "Test accuracy at the epoch that validation chose, "
        f"{'one seed' if options.seeds == 1 else f'mean of {options.seeds} seeds'}: "
        "other seeds give other numbers."
    )
    if summary.results:
        print(_plot(summary, out))
    print(_look(source, models, out))
    return 1 if tally.failed else 0


def _table(summary: Summary) -> str:
    lines = [f"{'task':26}" + "".join(f"{CELLS[cell].title:>14}" for cell in EXPERIMENT.cells)]
    for task in TASKS:
        means = [mean_test(summary, task, cell) for cell in EXPERIMENT.cells]
        numbers = ("-" if mean is None else f"{mean:.1f} %" for mean in means)
        lines.append(f"{task:2} {TASK_NAMES[task]:23}" + "".join(f"{n:>14}" for n in numbers))
    times = [
        sum(result.seconds for task in TASKS for result in summary.of(task, cell))
        for cell in EXPERIMENT.cells
    ]
    lines.append(
        f"{'training time':26}" + "".join(f"{f'{seconds:.0f} s':>14}" for seconds in times)
    )
    return "\n".join(lines)


def _look(source: Source, models: Path, folder: Path) -> str:
    """Write a page of a RotLSTM that reads a story of the last task; says where, or why not."""
    (path, *_) = [*sorted(models.glob(f"task{TASKS[-1]}-rotlstm-*.pt")), None]
    if path is None:
        return "No page of a story: its model was not kept (a demo of an earlier version?)"
    question = source.load(TASKS[-1]).test[0]
    seen = look_at_question(
        Reader.load(path), question.story_tokens, question.question, question.answer
    )
    page = seen.save(
        folder / "look.html", f"A story of bAbI task {TASKS[-1]}, read by a {seen.trace.cell}"
    )
    return f"A RotLSTM from inside, to open in a browser: {page.resolve()}"


def _plot(summary: Summary, folder: Path) -> str:
    """Draw how the models learn; says where, or why not."""
    try:
        picture = convergence(summary)
    except NotInstalledError as error:
        return f"No plot: {error}"
    path = folder / "convergence.png"
    write_atomically(path, picture.png)
    return f"How they learn: {path.resolve()}"
