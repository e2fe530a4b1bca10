"""The command line of reports."""

from __future__ import annotations

import argparse
from pathlib import Path

from rotcell.babi.report.page import is_collection, write_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `rotcell-babi report` understands."""
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="the --out of a sweep, or collected runs"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="default: report/ in that folder; for collected runs the folder itself",
    )


def run(options: argparse.Namespace) -> int:
    """Write the report and say where it is; returns the exit status."""
    default = options.folder if is_collection(options.folder) else options.folder / "report"
    written = write_report(options.folder, options.out or default)
    print(written.markdown, end="\n\n")
    for path in written.files:
        print(path)
    return 0
