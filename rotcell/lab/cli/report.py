"""The command line of reports."""

from __future__ import annotations

import argparse
from pathlib import Path

from rotcell.lab.errors import SettingsError
from rotcell.lab.report.study_page import study_page, write_study
from rotcell.lab.studies import STUDIES
from rotcell.lab.tasks.babi.report.page import is_collection, write_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `rotcell-lab report`."""
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="the --out of a sweep, or collected runs"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder of the report (default: DIR/report, or DIR itself for collected runs)",
    )
    parser.add_argument(
        "--study",
        choices=tuple(STUDIES),
        help="the page of a study, from its records in DIR; printed, or written to --out",
    )


def run(options: argparse.Namespace) -> int:
    """Write the report and print its path; returns the exit status."""
    if options.study is not None:
        if not options.folder.is_dir():
            raise SettingsError(f"there is no folder {options.folder}")
        study = STUDIES[options.study]
        if options.out is None:
            print(study_page(study, options.folder))
        else:
            print(write_study(study, options.folder, options.out))
        return 0
    default = options.folder if is_collection(options.folder) else options.folder / "report"
    written = write_report(options.folder, options.out or default)
    print(written.markdown, end="\n\n")
    for path in written.files:
        print(path)
    return 0
