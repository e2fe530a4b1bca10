"""The command line of publishing: the records of a study in compressed files."""

from __future__ import annotations

import argparse
from pathlib import Path

from rotcell.lab.errors import SettingsError
from rotcell.lab.studies import STUDIES
from rotcell.lab.sweep.publish import publish


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `rotcell-lab publish`."""
    parser.add_argument(
        "folder",
        type=Path,
        metavar="DIR",
        help="the --out of the study; DIR/TASK/runs/*.jsonl are moved to *.jsonl.gz",
    )
    parser.add_argument(
        "--study", choices=tuple(STUDIES), default="all", help="(default: %(default)s)"
    )


def run(options: argparse.Namespace) -> int:
    """Publish and print a line per file; returns the exit status."""
    if not options.folder.is_dir():
        raise SettingsError(f"there is no folder {options.folder}")
    for line in publish(STUDIES[options.study], options.folder):
        print(line)
    return 0
