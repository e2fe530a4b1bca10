"""``rotcell-lab``: data, training, experiments and reports on the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from rotcell._closed_pipe import quiet_on_closed_pipe
from rotcell.lab.cli import collect, data, demo, look, publish, report, sweep, train
from rotcell.lab.errors import EXPECTED

_COMMANDS: dict[
    str,
    tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]],
] = {
    "demo": ("LSTM against RotLSTM on two generated tasks", demo.add_arguments, demo.run),
    "data": ("download, generate, check or compare data", data.add_arguments, data.run),
    "train": ("train one model", train.add_train_arguments, train.run_train),
    "evaluate": (
        "test a trained model",
        train.add_evaluate_arguments,
        train.run_evaluate,
    ),
    "ask": ("ask a trained model", train.add_ask_arguments, train.run_ask),
    "look": ("see inside a model that reads a story", look.add_arguments, look.run),
    "sweep": ("run a study or an experiment", sweep.add_arguments, sweep.run),
    "collect": ("gather finished runs in one file", collect.add_arguments, collect.run),
    "publish": ("compress the records of a study", publish.add_arguments, publish.run),
    "report": ("tables and figures of a sweep", report.add_arguments, report.run),
}


def make_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    parser = argparse.ArgumentParser(
        prog="rotcell-lab",
        description="Tasks that compare rotating and plain recurrent layers.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (about, add_arguments, run) in _COMMANDS.items():
        command = commands.add_parser(name, help=about, description=about[0].upper() + about[1:])
        add_arguments(command)
        command.set_defaults(run=run)
    return parser


@quiet_on_closed_pipe
def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    options = make_parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # an OSError, but not one to report
        raise
    except EXPECTED as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return status
