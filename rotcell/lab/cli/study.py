"""The command line of studies: sweeps over several tasks that continue where they stopped."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from rotcell.lab import tasks
from rotcell.lab.cli.options import positive
from rotcell.lab.errors import SettingsError
from rotcell.lab.progress import duration
from rotcell.lab.studies import STUDIES
from rotcell.lab.sweep.local import local_engine
from rotcell.lab.sweep.queue import LabWork, Queue, estimate, run_study


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `rotcell-lab sweep` for a study."""
    parser.add_argument(
        "--data",
        type=data_path,
        action="append",
        default=[],
        metavar="TASK=PATH",
        help="where the data of a task is; may be given several times",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="records are added to DIR/TASK/runs/*.jsonl (default results)",
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="TEXT",
        help="run only the blocks whose descriptions (see --dry-run) contain TEXT; may be given "
        "several times, in the order to run them",
    )
    parser.add_argument(
        "--workers", type=positive, default=2, metavar="N", help="worker processes (default 2)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="count the runs and estimate their time"
    )


def data_path(text: str) -> tuple[str, Path]:
    """A task and the path of its data."""
    task, separator, path = text.partition("=")
    if not separator or task not in tasks.names():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not TASK=PATH with a task of {', '.join(tasks.names())}"
        )
    return task, Path(path)


def run(options: argparse.Namespace) -> int:
    """Run the study, or estimate its time; the exit status is 1 if a run failed."""
    study = STUDIES[options.experiment]
    if options.only:
        study = study.only(options.only)
    data = dict(options.data)
    for task, path in data.items():
        if not path.exists():
            raise SettingsError(f"the data of {task} must be at an existing path, got {path}")
    if options.dry_run:
        return _dry_run(Queue(study, options.out, data), data, options.workers)
    engine = local_engine(options.workers)
    try:
        done, failed = run_study(
            study, options.out, LabWork(data), engine, lambda line: print(line, flush=True)
        )
    except KeyboardInterrupt:
        print("Stopped. The same command continues.", file=sys.stderr)
        raise
    print(f"{done} runs done, {failed} failed")
    return 1 if failed else 0


def _dry_run(queue: Queue, data: dict[str, Path], workers: int) -> int:
    torch.set_num_threads(1)
    total = 0.0
    for block, count, seconds in estimate(queue, data):
        total += seconds
        left = duration(seconds / workers)
        print(f"{count:5} runs {left:>10}  {block.description}", flush=True)
    for block in queue.left_out:
        print(f"left out, there is no data for it (--data {block.task}=PATH): {block.about}")
    print(
        f"About {duration(total / workers)} with {workers} workers, from finished runs and from "
        "steps measured on this machine."
    )
    return 0
