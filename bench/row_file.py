"""What scripts that measure row by row share: the command line, the timings, the result file."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import machine
import results
import torch
from timing import Effort, measure
from work import Work, parse

CPU = torch.device("cpu")


def make_parser(kind: str, description: str | None, seconds: float) -> argparse.ArgumentParser:
    """Build a parser with the options of every such script."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=seconds, help="seconds per row (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).resolve().parent / "out" / f"{kind}.json",
        metavar="FILE",
        help=f"where the JSON goes (default: bench/out/{kind}.json)",
    )
    machine.add_options(parser)
    return parser


def add_shapes(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the option with the sizes to measure."""
    parser.add_argument(
        "--shapes",
        type=_shapes,
        default=default,
        metavar="LIST",
        help="comma-separated BATCHxSTEPSxINPUTxHIDDEN (default: %(default)s)",
    )


def _shapes(text: str) -> list[Work]:
    try:
        return [parse(shape) for shape in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def timings(
    functions: Mapping[str, Callable[[], Any]], options: argparse.Namespace
) -> dict[str, Any]:
    """Time all in turns, as the entries `threads` and `timings` of a row."""
    before = torch.get_num_threads()
    torch.set_num_threads(options.threads)
    try:
        found = measure(functions, list(functions), Effort(options.seconds, 5), CPU)
    finally:
        torch.set_num_threads(before)
    return {
        "threads": options.threads,
        "timings": {name: timing.to_json() for name, timing in found.items()},
    }


class RowFile:
    """A result file that is complete after every row. Opening it looks at the machine."""

    def __init__(
        self, kind: str, parser: argparse.ArgumentParser, options: argparse.Namespace
    ) -> None:
        try:
            results.check_writable(options.out)
        except ValueError as error:
            parser.error(str(error))
        self._path = options.out
        self._found: dict[str, Any] = {
            "kind": kind,
            "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "machine": machine.describe_or_refuse(parser, options, CPU),
            "rows": [],
        }
        for fault in machine.faults(self._found["machine"]):
            print(f"Measured {fault}.")
        print(f"{machine.summary(self._found['machine'])}; {options.threads} threads")

    def add(self, row: dict[str, Any]) -> None:
        """Write the file with one more row."""
        self._found["rows"].append(row)
        results.save(self._path, self._found)

    def close(self) -> None:
        """Say where the file is."""
        print(f"\nWrote {self._path}")
