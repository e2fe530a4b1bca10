"""The command line of the data: download, generate, check, compare."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from rotcell.babi.catalog import ALL_TASKS
from rotcell.babi.check import Report, check_data
from rotcell.babi.download import download
from rotcell.babi.fidelity import compare
from rotcell.babi.generate import DEFAULT_QUESTIONS, write_dataset
from rotcell.babi.options import positive, tasks
from rotcell.babi.stories import DataError

_FINDINGS_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `rotcell-babi data` understands."""
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
        "--compare", metavar="REAL", help="print a table of the data at REAL against generated data"
    )
    parser.add_argument("--tasks", type=tasks, metavar="LIST", help="such as 1,6,15-18")
    parser.add_argument(
        "--questions",
        type=positive,
        default=DEFAULT_QUESTIONS,
        metavar="N",
        help="questions to generate for train and for test, each (default %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the generator (default 0)")
    parser.add_argument("--size", choices=("1k", "10k"), default="1k", help="of the official data")


def run(args: argparse.Namespace) -> int:
    """Do what was asked; returns the exit status."""
    try:
        if args.download is not None:
            print(download(args.download or None))
        elif args.generate is not None:
            wanted = args.tasks or ALL_TASKS
            files = write_dataset(args.generate, wanted, args.questions, args.seed)
            print(f"{len(files)} files written to {args.generate}")
        elif args.check is not None:
            return _print_reports(check_data(args.check, args.tasks, size=args.size))
        else:
            table = compare(
                args.compare,
                tasks=args.tasks,
                questions=args.questions,
                seed=args.seed,
                size=args.size,
            )
            print(table, end="")
    except (DataError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
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
