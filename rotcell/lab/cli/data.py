"""The command line of the data: download, generate, check, compare."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import Final

from rotcell.lab.cli.options import positive, tasks
from rotcell.lab.errors import SettingsError
from rotcell.lab.tasks.babi.data.catalog import ALL_TASKS
from rotcell.lab.tasks.babi.data.check import Report, check_data
from rotcell.lab.tasks.babi.data.compare import compare
from rotcell.lab.tasks.babi.data.download import download
from rotcell.lab.tasks.babi.data.generate import DEFAULT_QUESTIONS, write_dataset
from rotcell.lab.tasks.babi.data.reader import Size

_FINDINGS_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `rotcell-lab data`."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--download",
        metavar="DIR",
        nargs="?",
        const="",
        help="fetch the official archive (into the user's cache folder, or DIR)",
    )
    what.add_argument("--generate", metavar="DIR", help="write generated task files to DIR")
    what.add_argument(
        "--check", metavar="PATH", help="replay the stories at PATH and report contradictions"
    )
    what.add_argument(
        "--compare",
        metavar="REAL",
        help="compare statistics of the data at REAL with generated data",
    )
    parser.add_argument(
        "--tasks", type=tasks, metavar="LIST", help="tasks, such as 1,6,15-18 (default: all)"
    )
    parser.add_argument(
        "--questions",
        type=positive,
        metavar="N",
        help=f"questions to generate per split (default {DEFAULT_QUESTIONS})",
    )
    parser.add_argument("--seed", type=int, help="seed of the generator (default 0)")
    parser.add_argument(
        "--size", choices=("1k", "10k"), help="size of the official files (default 1k)"
    )


# The options that apply to each action.
_FURTHER: Final = {
    "download": (),
    "generate": ("tasks", "questions", "seed"),
    "check": ("tasks", "size"),
    "compare": ("tasks", "questions", "seed", "size"),
}


def run(args: argparse.Namespace) -> int:
    """Do what was asked; returns the exit status."""
    (what,) = (name for name in _FURTHER if getattr(args, name) is not None)
    for name in ("tasks", "questions", "seed", "size"):
        if getattr(args, name) is not None and name not in _FURTHER[what]:
            raise SettingsError(f"--{name} has no meaning for --{what}")
    questions = args.questions or DEFAULT_QUESTIONS
    seed = args.seed or 0
    size: Size = args.size or "1k"
    if what == "download":
        folder = download(args.download or None)
        named = folder if args.download else "official"
        print(f"The official files are there; use them with --data {named}", file=sys.stderr)
        print(folder)
    elif what == "generate":
        files = write_dataset(args.generate, args.tasks or ALL_TASKS, questions, seed)
        print(f"{len(files)} files written to {args.generate}")
    elif what == "check":
        return _print_reports(check_data(args.check, args.tasks, size=size))
    else:
        table = compare(args.compare, tasks=args.tasks, questions=questions, seed=seed, size=size)
        print(table, end="")
    return 0


def _print_reports(reports: Iterable[Report]) -> int:
    """Print what was found; 1 when a story contradicts itself."""
    files = serious = 0
    for report in reports:
        files += 1
        serious += report.serious
        remarks = len(report.findings) - report.serious
        print(
            f"{report.source}: {report.questions} questions, "
            f"{report.serious} contradictions, {remarks} remarks"
        )
        worst_first = sorted(report.findings, key=lambda finding: not finding.serious)
        for finding in worst_first[:_FINDINGS_SHOWN]:
            print(f"  {finding}")
        if len(worst_first) > _FINDINGS_SHOWN:
            print(f"  and {len(worst_first) - _FINDINGS_SHOWN} more")
    if not files:
        print("error: no files of these tasks", file=sys.stderr)
        return 1
    return 1 if serious else 0
