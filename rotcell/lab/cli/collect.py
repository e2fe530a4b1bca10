"""The command line of collecting: finished runs of sweeps into one file, one per line."""

from __future__ import annotations

import argparse
from pathlib import Path

from rotcell.lab.errors import SettingsError
from rotcell.lab.lines import is_lines
from rotcell.lab.tasks.babi.sweep.collect import collect


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `rotcell-lab collect`."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="the --out of a sweep")
    parser.add_argument(
        "into",
        type=Path,
        metavar="EXPERIMENT.jsonl[.gz]",
        help="file of collected runs that gets the new ones, named after the experiment",
    )


def run(options: argparse.Namespace) -> int:
    """Collect the runs and print their number; returns the exit status."""
    if not is_lines(options.into):
        raise SettingsError(
            f"the file to collect into must end in .jsonl or .jsonl.gz, got {options.into}"
        )
    tally = collect(options.folder, options.into)
    print(
        f"{options.into}: {tally.known} runs known before, {tally.new} new, "
        f"{tally.known + tally.new} in all; {tally.failed} failed ones left out"
    )
    return 0
