"""What was found, for people to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .timings import TORCH

Result = dict[str, Any]
#: A choice that costs no more than this is as good as the fastest.
GOOD_ENOUGH = 1.05


def verdict(result: Result) -> str:
    """A few words for one check."""
    if "error" in result:
        return f"FAILED: {next(iter(result['error'].splitlines()), '')}"
    if result["ok"] is None:
        return f"not possible here: {result['reason']}"
    found = "right" if result["ok"] else "WRONG"
    if "largest_error" in result:
        found += f", error {result['largest_error']:.2g} (of {result['tolerance']:.2g} allowed)"
    if result.get("same_bits_twice") is False:
        found += ", not the same bits twice"
    if "microseconds_per_step" in result:
        found = "; ".join(
            f"{pass_name} " + ", ".join(f"{name} {value:.2f}" for name, value in times.items())
            for pass_name, times in result["microseconds_per_step"].items()
        )
    return found


def _table(rows: Iterable[Sequence[str]]) -> list[str]:
    rows = [list(row) for row in rows]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def choices_table(choices: Sequence[Result]) -> list[str]:
    """Microseconds per step and path, with the plan's choice and the fastest."""
    if not choices:
        return ["  no timings"]
    names = sorted({name for row in choices for name in row["microseconds_per_step"]} - {TORCH})
    header = ["cell", "type", "B", "T", "H", "pass", *names, "cuDNN", "chosen", "fastest", ""]
    rows = [header]
    for row in choices:
        times = row["microseconds_per_step"]
        slower = row["chosen_over_fastest"]
        remark = f"{slower:.2f} x the fastest" if slower and slower > GOOD_ENOUGH else ""
        rows.append([
            row["cell"], row["dtype_name"], str(row["batch"]), str(row["steps"]),
            str(row["hidden"]), row["pass"],
            *(f"{times[name]:.2f}" if name in times else "-" for name in (*names, TORCH)),
            row["chosen"], row["fastest"], remark,
        ])  # fmt: skip
    return _table(rows)


def summary(report: Result) -> str:
    """The whole report in a page."""
    facts, checks = report["facts"], report["checks"]
    failed = {name: result for name, result in checks.items() if result["ok"] is False}
    lines = ["", "What was found", ""]
    if "name" in facts:
        lines.append(
            f"{facts['name']}, driver {facts['driver']}, torch's CUDA {facts['cuda_of_torch']}, "
            f"cuDNN {facts['cudnn']}"
        )
    right = sum(result["ok"] is True for result in checks.values())
    missing = len(report["not_made"])
    lines.append(
        f"{right} checks passed, {len(failed)} failed"
        + (f", {missing} not run for lack of time" if missing else "")
    )
    lines += [f"  {name}: {verdict(result)}" for name, result in failed.items()]
    lines += ["", "Microseconds per step, and the plan's choice", ""]
    lines += choices_table(report["choices"])
    return "\n".join(lines)
