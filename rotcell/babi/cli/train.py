"""The command line of training and asking."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from rotcell.babi.cli.options import (
    add_data_options,
    add_protocol_options,
    device,
    positive,
    protocol_of,
    source_of,
)
from rotcell.babi.errors import CheckpointError
from rotcell.babi.progress import ProgressBar, duration
from rotcell.babi.training.ask import HELP, Answerer, converse
from rotcell.babi.training.cells import CELLS
from rotcell.babi.training.history import History
from rotcell.babi.training.processes import own_device, team_of_torchrun
from rotcell.babi.training.settings import RunSettings
from rotcell.babi.training.train import Place, train


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """What `rotcell-babi train` understands."""
    parser.add_argument("--task", type=int, default=18, help="1 to 20 (default 18)")
    parser.add_argument("--cell", choices=tuple(CELLS), default="rotlstm", help="default rotlstm")
    parser.add_argument("--state-size", type=positive, default=50, help="default 50")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    add_protocol_options(parser)
    add_data_options(parser)
    parser.add_argument("--device", type=device, default="cpu", help="default cpu")
    parser.add_argument("--threads", type=positive, default=1, help="of the CPU (default 1)")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    parser.add_argument(
        "--checkpoint", type=Path, metavar="FILE", help="write the model here after every epoch"
    )
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")


def run_train(options: argparse.Namespace) -> int:
    """Train, telling how it goes; returns the exit status."""
    settings = RunSettings(
        task=options.task,
        cell=options.cell,
        state_size=options.state_size,
        seed=options.seed,
        **protocol_of(options),
    )
    checkpoint: Path | None = options.checkpoint
    if options.resume and checkpoint is None:
        raise CheckpointError("--resume needs --checkpoint, the file to go on from")
    torch.set_num_threads(options.threads)
    questions = source_of(options).load(settings.task)
    print(f"data: {questions.data}", file=sys.stderr, flush=True)
    place_device = own_device(options.device)
    if checkpoint is not None:
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
    with team_of_torchrun(place_device) as team:
        # The leader may write the file as soon as training begins: look before.
        taken = checkpoint is not None and checkpoint.exists() and not options.resume
        if int(team.total(torch.tensor(int(taken), device=place_device))):
            raise CheckpointError(f"{checkpoint} is there already: --resume goes on from it")
        place = Place(place_device, options.compile, team)
        bar = ProgressBar()
        try:
            trained = train(
                questions,
                settings,
                place=place,
                checkpoint=checkpoint,
                resume=options.resume,
                on_epoch=lambda history: _tell(history, settings, bar),
            )
        except KeyboardInterrupt:
            if checkpoint is not None and checkpoint.exists():
                bar.note(f"Stopped. To go on, add: --checkpoint {checkpoint} --resume")
            raise
        if team.leads:
            bar.close()
            _conclude(trained.history, trained.seconds, trained.parameters, checkpoint)
    return 0


def _tell(history: History, settings: RunSettings, bar: ProgressBar) -> None:
    epoch = history.epochs
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
        print(f"checkpoint: {saved}")


def add_ask_arguments(parser: argparse.ArgumentParser) -> None:
    """What `rotcell-babi ask` understands."""
    parser.add_argument("checkpoint", type=Path, help="a file that train --checkpoint wrote")


def run_ask(options: argparse.Namespace) -> int:
    """Answer what is typed; returns the exit status."""
    answerer = Answerer(options.checkpoint)
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
