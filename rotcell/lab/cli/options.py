"""Options that several subcommands share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from rotcell.lab.errors import CheckpointError, DataError, SettingsError
from rotcell.lab.progress import ProgressBar
from rotcell.lab.tasks.babi.cells import CELLS, GATES
from rotcell.lab.tasks.babi.data.catalog import parse_task_list
from rotcell.lab.tasks.babi.data.download import cache_folder, download, downloaded
from rotcell.lab.tasks.babi.data.source import DataName, Source, TaskQuestions


def tasks(text: str) -> tuple[int, ...]:
    """A list of tasks such as 1,6,15-18."""
    try:
        return parse_task_list(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive(text: str) -> int:
    """An integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def cells(text: str) -> tuple[str, ...]:
    """A list of cells such as lstm,rotlstm."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for cell in found:
        if cell not in CELLS:
            raise argparse.ArgumentTypeError(
                f"there is no cell {cell!r}: choose from {', '.join(CELLS)}"
            )
    return found


def device(text: str) -> torch.device:
    """An available device."""
    try:
        found = torch.device(text)
    except RuntimeError:
        raise argparse.ArgumentTypeError(f"there is no device {text!r}") from None
    if found.type not in ("cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a device to train on: cpu or cuda")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError("there is no CUDA device, or torch cannot use it")
    return found


def add_checkpoint_options(parser: argparse.ArgumentParser) -> None:
    """Options to continue an interrupted run."""
    parser.add_argument(
        "--checkpoint", type=Path, metavar="FILE", help="write the model here after every epoch"
    )
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint")


#: The error if a checkpoint exists and is not to be continued.
TAKEN: Final = "{} exists; add --resume to continue from it"


def checkpoint_of(options: argparse.Namespace) -> Path | None:
    """The checkpoint's file, in a folder that exists."""
    checkpoint: Path | None = options.checkpoint
    if checkpoint is not None:
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
    elif options.resume:
        raise CheckpointError("--resume needs --checkpoint, the file to continue from")
    return checkpoint


def say_stopped(checkpoint: Path | None, bar: ProgressBar) -> None:
    """How to continue an interrupted run, if it can be."""
    if checkpoint is not None and checkpoint.exists():
        bar.note(f"Stopped. To continue, add: --checkpoint {checkpoint} --resume")


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Where the questions come from."""
    parser.add_argument(
        "--data",
        metavar="PATH",
        help="'official' files (of `data --download`), a folder or a .tar.gz (default: generate)",
    )
    parser.add_argument(
        "--test-data",
        metavar="PATH",
        help="separate test files, given as for --data, or 'generated'",
    )
    parser.add_argument(
        "--size", choices=("1k", "10k"), help="size of the official files (default 1k)"
    )


def source_of(options: argparse.Namespace) -> Source:
    """The source that the options name."""
    test = options.data if options.test_data is None else options.test_data
    train_path, test_path = _path(options.data), _path(test)
    if options.size and train_path is None and test_path is None:
        raise SettingsError("--size is for official files: it needs --data or --test-data")
    return Source(train_path, test_path, options.size or "1k")


def _path(named: str | None) -> str | None:
    """The place of data that was named; None is the generator."""
    if named is None or named == "generated":
        return None
    return str(official_folder()) if named == "official" else named


def official_folder() -> Path:
    """Where the official files are; fetches them if there is someone to ask and they agree."""
    folder = downloaded()
    if folder is not None:
        return folder
    missing = "the official files are not here yet: rotcell-lab data --download fetches them"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise DataError(missing)
    print(f"The official files are not here yet. Fetch them into {cache_folder()}? [y/N] ", end="")
    if input().strip().lower() not in ("y", "yes"):
        raise DataError(missing)
    return download()


def say_data(names: Sequence[str], source: Source, trained_on: str | None = None) -> None:
    """Print one line: the data in use, whether the model was trained on other data, and whether the
    official data is available."""
    text = f"data: {' and '.join(names) or 'none'}"
    if trained_on is not None:
        text += f"; the model was trained on other data: {trained_on}"
    if source.train_path is None and downloaded() is not None:
        text += " (the official files are downloaded: use --data official)"
    print(text, file=sys.stderr, flush=True)


def training_data(model: DataName, used: TaskQuestions) -> str | None:
    """What a model was trained on, where that is not the data that is used now."""
    return None if model.train == used.data.train else model.train.name


def add_protocol_options(parser: argparse.ArgumentParser) -> None:
    """What may be changed about the paper's protocol."""
    parser.add_argument("--epochs", type=positive, default=40, help="training epochs (default 40)")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate (default 0.001)")
    parser.add_argument(
        "--batch", type=positive, help="questions per step (default 32; 64 in the sweep batch-64)"
    )
    parser.add_argument(
        "--packed", action="store_true", help="pack the stories instead of padding them in front"
    )
    parser.add_argument(
        "--gates",
        choices=GATES,
        help="gate activation (default hard_sigmoid: assumed, Keras' default of the paper's "
        "time; the paper does not name it)",
    )
    parser.add_argument("--angle", choices=GATES, help="angle activation (default sigmoid)")
    parser.add_argument(
        "--amp", action="store_true", help="use automatic mixed precision (bfloat16)"
    )


def protocol_of(options: argparse.Namespace) -> dict[str, Any]:
    """These options as arguments of `RunSettings`."""
    names = ("epochs", "lr", "batch", "packed", "amp", "gates", "angle")
    chosen = {name: getattr(options, name) for name in names}
    return {name: value for name, value in chosen.items() if value is not None}
