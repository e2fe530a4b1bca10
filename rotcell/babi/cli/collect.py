"""The command line of collecting: finished runs of sweeps into one file, one a line."""

from __future__ import annotations

import argparse
from pathlib import Path

from rotcell.babi.errors import SettingsError
from rotcell.babi.sweep.collect import collect


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `rotcell-babi collect` understands."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="the --out of a sweep")
    parser.add_argument(
        "into",
        type=Path,
        metavar="EXPERIMENT.jsonl",
        help="new runs of the experiment are added to what it has",
    )


def run(options: argparse.Namespace) -> int:
    """Collect and say how many there are; returns the exit status."""
    if options.into.suffix != ".jsonl":
        raise SettingsError(f"{options.into} must end in .jsonl: it gets one run a line")
    tally = collect(options.folder, options.into)
    print(
        f"{options.into}: {tally.known} runs known before, {tally.new} new, "
        f"{tally.known + tally.new} in all; {tally.failed} failed ones left out"
    )
    return 0
