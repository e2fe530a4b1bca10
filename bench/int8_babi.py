"""What int8 weights cost bAbI models: accuracy on the test questions before and after.

The checkpoints are those of `rotcell-lab train babi --packed --checkpoint FILE`. Results go into a
JSON file.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import machine
import results
import torch

import rotcell
from rotcell.lab.cli.options import add_data_options, source_of
from rotcell.lab.tasks.babi.data.source import Source
from rotcell.lab.tasks.babi.evaluate import Answerer

KIND = "int8_babi"
DEFAULT_OUT = Path(__file__).resolve().parent / "out" / f"{KIND}.json"


def compare(path: Path, source: Source) -> dict[str, Any]:
    """Answer the test questions of a model's task with float32 and with int8 weights."""
    answerer = Answerer.load(path)
    settings = answerer.settings
    questions = source.load(settings.task).test
    before = answerer.evaluate(questions)
    answerer._model = rotcell.quantize_dynamic(answerer._model)
    after = answerer.evaluate(questions)
    changed = sum(a.given != b.given for a, b in zip(before.answers, after.answers, strict=True))
    return {
        "task": settings.task,
        "cell": settings.cell,
        "units": settings.state_size,
        "packed": settings.packed,
        "seed": settings.seed,
        "epochs": settings.epochs,
        "questions": len(questions),
        "float32": before.accuracy,
        "int8": after.accuracy,
        "answers_changed": changed,
    }


def points_lost(rows: Sequence[dict[str, Any]]) -> float:
    """Percentage points lost in the mean over the models."""
    return 100 * sum(row["float32"] - row["int8"] for row in rows) / len(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="FILE", help="trained models")
    add_data_options(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=DEFAULT_OUT,
        metavar="FILE",
        help=f"where the JSON goes (default: bench/out/{KIND}.json)",
    )
    options = parser.parse_args(arguments)
    try:
        results.check_writable(options.out)
        source = source_of(options)
    except ValueError as error:
        parser.error(str(error))
    found: dict[str, Any] = {
        "kind": KIND,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        # No time is measured, so the load of the machine is left out.
        "machine": machine.describe(torch.device("cpu")) | {"cores_used_by_others": 0.0},
        "rows": [],
    }
    for path in options.checkpoints:
        row = compare(path, source)
        found["rows"].append(row)
        print(
            f"task {row['task']}, {row['cell']}: {100 * row['float32']:.1f} %, "
            f"int8 {100 * row['int8']:.1f} %, "
            f"{row['answers_changed']} of {row['questions']} answers differ"
        )
    results.save(options.out, found)
    print(f"lost in the mean over {len(found['rows'])}: {points_lost(found['rows']):.2f} points")


if __name__ == "__main__":
    main()
