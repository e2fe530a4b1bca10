"""``rotcell-lab train TASK`` for every task that uses the common training loop."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from rotcell.lab import tasks
from rotcell.lab.cells import CELLS, STARTS
from rotcell.lab.cli.options import (
    TAKEN,
    add_checkpoint_options,
    checkpoint_of,
    positive,
    say_stopped,
)
from rotcell.lab.errors import CheckpointError, SettingsError
from rotcell.lab.files import write_atomically
from rotcell.lab.memory import keep_freed_memory
from rotcell.lab.progress import ProgressBar, duration
from rotcell.lab.task import LabTask


def add_arguments(parser: argparse.ArgumentParser, task: LabTask) -> None:
    """Options of a task."""
    parser.add_argument(
        "--dataset",
        choices=task.datasets,
        default=task.datasets[0],
        help="dataset (default %(default)s)",
    )
    parser.add_argument(
        "--cell", choices=tuple(CELLS), default="rotlstm", help="recurrent layer (default rotlstm)"
    )
    parser.add_argument("--size", type=positive, default=32, help="hidden units (default 32)")
    parser.add_argument(
        "--start", choices=STARTS, help="initial angles (default pi, as in the paper)"
    )
    parser.add_argument("--lr", type=float, default=3e-3, help="learning rate (default 0.003)")
    parser.add_argument(
        "--dropout", type=float, default=0.0, help="dropout probability (default 0)"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    parser.add_argument("--threads", type=positive, default=1, help="CPU threads (default 1)")
    parser.add_argument("--record", type=Path, metavar="FILE.json", help="write the run's record")
    add_checkpoint_options(parser)
    if type(task).has_look is not LabTask.has_look:
        parser.add_argument(
            "--look", type=Path, metavar="FILE.png", help="draw what the model has learned"
        )
    if task.needs_data:
        parser.add_argument(
            "--data", type=Path, required=True, metavar="DIR", help="folder of the task's data"
        )
    parser.set_defaults(run=run, data=None, look=None)


def run(options: argparse.Namespace) -> int:
    """Train, test, and print the measures; returns the exit status."""
    keep_freed_memory()
    torch.set_num_threads(options.threads)
    task = tasks.find(options.trained_task)
    assert isinstance(task, LabTask)
    start = options.start or ("pi" if CELLS[options.cell].rotating else "")
    settings = task.settings(
        {
            "task": task.name,
            "dataset": options.dataset,
            "cell": options.cell,
            "size": options.size,
            "lr": options.lr,
            "seed": options.seed,
            "start": start,
            "dropout": options.dropout,
        }
    )
    if options.look is not None and not task.has_look(settings):
        raise SettingsError(
            f"--look shows nothing of --cell {options.cell} with --dataset {options.dataset}"
        )
    checkpoint = checkpoint_of(options)
    if checkpoint is not None and checkpoint.exists() != options.resume:
        missing = f"{checkpoint} does not exist; leave out --resume to begin a run"
        raise CheckpointError(missing if options.resume else TAKEN.format(checkpoint))
    bar = ProgressBar()
    try:
        record, problem = task.train(
            settings,
            options.data,
            lambda epoch, error: bar.note(f"epoch {epoch:4}  validation error {error:.5f}"),
            checkpoint,
        )
    except KeyboardInterrupt:
        say_stopped(checkpoint, bar)
        raise
    outcome = record["outcome"]
    measures = ", ".join(f"{name} {value:.4f}" for name, value in outcome["test"].items())
    print(
        f"test: {measures} (epoch {outcome['epoch']} of {outcome['epochs']}, the best on "
        f"validation: {outcome['validation']}); {outcome['parameters']} weights; data: "
        f"{record['data']['name']}; {duration(record['seconds'])}"
    )
    if options.look is not None:
        words, picture = task.look(settings, problem)
        print(words)
        write_atomically(options.look, picture)
    if options.record is not None:
        write_atomically(options.record, (json.dumps(record, indent=1) + "\n").encode())
    return 0
