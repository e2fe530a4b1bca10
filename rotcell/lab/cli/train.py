"""The command line of training and asking."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from rotcell.lab import tasks
from rotcell.lab.cli import train_task
from rotcell.lab.cli.options import (
    TAKEN,
    add_checkpoint_options,
    add_data_options,
    add_protocol_options,
    checkpoint_of,
    device,
    positive,
    protocol_of,
    say_data,
    say_stopped,
    source_of,
    training_data,
)
from rotcell.lab.errors import CheckpointError, NotInstalledError
from rotcell.lab.files import write_atomically
from rotcell.lab.memory import keep_freed_memory
from rotcell.lab.progress import ProgressBar, duration
from rotcell.lab.task import LabTask
from rotcell.lab.tasks.babi.cells import CELLS
from rotcell.lab.tasks.babi.evaluate import HELP, Answerer, converse
from rotcell.lab.tasks.babi.history import History
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.train import Place, train
from rotcell.lab.training.processes import own_device, torchrun_group


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `rotcell-lab train`, for the task in the first argument."""
    parsers = parser.add_subparsers(dest="trained_task", required=True, metavar="TASK")
    for name in tasks.names():
        task = tasks.find(name)
        command = parsers.add_parser(name, help=task.about, description=task.about)
        if isinstance(task, LabTask):
            train_task.add_arguments(command, task)
        else:
            _add_babi_arguments(command)


def _add_babi_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", type=int, default=18, help="bAbI task, 1 to 20 (default 18)")
    parser.add_argument(
        "--cell", choices=tuple(CELLS), default="rotlstm", help="recurrent layer (default rotlstm)"
    )
    parser.add_argument("--state-size", type=positive, default=50, help="hidden units (default 50)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    add_protocol_options(parser)
    add_data_options(parser)
    parser.add_argument(
        "--device", type=device, default="cpu", help="device to train on (default cpu)"
    )
    parser.add_argument("--threads", type=positive, default=1, help="CPU threads (default 1)")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    add_checkpoint_options(parser)
    parser.add_argument(
        "--log", type=Path, metavar="FILE.csv", help="write loss and accuracies of every epoch"
    )
    parser.add_argument(
        "--tensorboard",
        type=Path,
        metavar="DIR",
        help="write loss and accuracies for TensorBoard (must be installed)",
    )


def run_train(options: argparse.Namespace) -> int:
    """Train and show the progress; returns the exit status."""
    settings = RunSettings(
        task=options.task,
        cell=options.cell,
        state_size=options.state_size,
        seed=options.seed,
        **protocol_of(options),
    )
    checkpoint = checkpoint_of(options)
    keep_freed_memory()
    torch.set_num_threads(options.threads)
    source = source_of(options)
    questions = source.load(settings.task)
    say_data([str(questions.data)], source)
    board = None if options.tensorboard is None else tensorboard(options.tensorboard)
    place_device = own_device(options.device)
    with torchrun_group(place_device) as group:
        # The leader may write the file as soon as training begins: look before.
        taken = checkpoint is not None and checkpoint.exists() and not options.resume
        if int(group.total(torch.tensor(int(taken), device=place_device))):
            raise CheckpointError(TAKEN.format(checkpoint))
        place = Place(place_device, options.compile, group)
        bar = ProgressBar()
        try:
            trained = train(
                questions,
                settings,
                place=place,
                checkpoint=checkpoint,
                resume=options.resume,
                on_epoch=lambda history: _show_progress(history, settings, bar, options.log, board),
            )
        except KeyboardInterrupt:
            say_stopped(checkpoint, bar)
            raise
        if group.leads:
            bar.close()
            _conclude(trained.history, trained.seconds, trained.parameters, checkpoint)
    return 0


def _show_progress(
    history: History,
    settings: RunSettings,
    bar: ProgressBar,
    log: Path | None = None,
    board: Any = None,
) -> None:
    epoch = history.epochs
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(log, history.csv())
    if board is not None:
        board.add_scalar("loss", history.loss[-1], epoch)
        board.add_scalar("accuracy/train", history.train[-1], epoch)
        board.add_scalar("accuracy/validation", history.validation[-1], epoch)
        if epoch in history.test:
            board.add_scalar("accuracy/test", history.test[epoch], epoch)
        board.flush()
    test = f"  test {history.test[epoch]:6.1%}" if epoch in history.test else ""
    bar.note(
        f"epoch {epoch:3}  loss {history.loss[-1]:.4f}  train {history.train[-1]:6.1%}  "
        f"validation {history.validation[-1]:6.1%}{test}"
    )
    done = epoch / settings.epochs
    bar.show(done, f"{settings.name}, {bar.left(done)} left")


def _conclude(history: History, seconds: float, parameters: int, saved: Path | None) -> None:
    outcome = history.outcome
    print(
        f"test accuracy {outcome.test:.1%} (epoch {outcome.epoch}, the best of those tested by "
        f"validation: {outcome.validation:.1%}); {parameters} weights; {duration(seconds)}"
    )
    if saved is not None:
        print(f"checkpoint: {saved} (weights of epoch {outcome.epoch} and of {history.epochs})")


def tensorboard(folder: Path) -> Any:
    """A writer for TensorBoard; NotInstalledError without it."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise NotInstalledError("TensorBoard is not installed: pip install tensorboard") from error
    return SummaryWriter(str(folder))


def add_ask_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `rotcell-lab ask`."""
    parser.add_argument("checkpoint", type=Path, help="a file that train --checkpoint wrote")


def add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `rotcell-lab evaluate`."""
    parser.add_argument(
        "checkpoint", type=Path, help="file of `train --checkpoint` or `sweep --keep-models`"
    )
    add_data_options(parser)
    parser.add_argument(
        "--split", choices=("test", "train"), default="test", help="questions to ask (default test)"
    )
    parser.add_argument(
        "--weights",
        choices=("reported", "last"),
        default="reported",
        help="weights of the epoch with the best validation, or of the last one (default reported)",
    )
    parser.add_argument("--answers", type=Path, metavar="FILE.csv", help="write every answer")


def run_evaluate(options: argparse.Namespace) -> int:
    """Test a model without training; returns the exit status."""
    answerer = Answerer.load(options.checkpoint, options.weights)
    source = source_of(options)
    questions = source.load(answerer.settings.task)
    name = questions.data.train if options.split == "train" else questions.data.test
    used = f"{name.name}, {options.split} questions of task {questions.task}"
    say_data([used], source, training_data(answerer.data, questions))
    found = answerer.evaluate(questions.train if options.split == "train" else questions.test)
    if found.unknown:
        print(f"words that the model does not know, left out: {', '.join(found.unknown)}")
    history = answerer.history
    epoch = history.outcome.epoch if options.weights == "reported" else history.epochs
    print(
        f"accuracy {found.accuracy:.1%} ({sum(a.right for a in found.answers)} of "
        f"{len(found.answers)}) with the weights of epoch {epoch}"
    )
    if options.answers is not None:
        options.answers.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(options.answers, found.csv())
        print(f"answers: {options.answers}")
    return 0


def run_ask(options: argparse.Namespace) -> int:
    """Answer what is typed; returns the exit status."""
    answerer = Answerer.load(options.checkpoint)
    typing = sys.stdin.isatty()
    if typing:
        print(f"A {answerer.settings.cell} trained on task {answerer.settings.task}. {HELP}")
    for line in converse(answerer, _typed() if typing else sys.stdin):
        print(line, flush=True)
    return 0


def _typed() -> Iterator[str]:
    while True:
        try:
            yield input("> ")
        except EOFError:
            return
