"""CPU speed targets: rotcell's time over torch's, at most."""

from __future__ import annotations

from collections.abc import Sequence

from contestants import GEMM, ONNX, ROTCELL, TORCH
from ratios import Row, median, of_medians, operations, rate, ratio
from work import Work

#: The targets for one thread and for two.
_Pair = tuple[float, float]

_ROT_LSTM_H50: dict[str, _Pair] = {"train": (0.70, 0.50), "infer": (0.50, 0.33)}
_ROT_LSTM_LARGE: dict[str, _Pair] = {"train": (1.0, 1.0), "infer": (0.97, 0.95)}
_ROT_LSTM: dict[str, dict[str, _Pair]] = {
    "paper": _ROT_LSTM_H50,
    "long": _ROT_LSTM_H50,
    "h128": {"train": (0.88, 0.70), "infer": (0.78, 0.58)},
    "h256": {"train": (0.90, 0.80), "infer": (0.92, 0.80)},
    "h512": _ROT_LSTM_LARGE,
    "h1024": _ROT_LSTM_LARGE,
    "latency-50": {"train": (0.50, 0.38), "infer": (0.35, 0.35)},
    "latency-256": {"train": (0.85, 0.75), "infer": (0.80, 0.70)},
}
#: Measured, but without a target yet.
WITHOUT_TARGETS = ("short-256",)
_ROT_GRU_H50: dict[str, _Pair] = {"train": (0.35, 0.22), "infer": (0.45, 0.28)}
_ROT_GRU_FROM_H256: _Pair = (0.9, 0.7)
#: rotcell.GRU, for every shape, single steps included; then for sequences of one row.
_GRU, _GRU_ONE_ROW = 0.9, 0.2
#: Packed, bidirectional or several layers, for every cell.
_NOT_SIMPLE: _Pair = (0.9, 0.9)


def target(row: Row) -> float | None:
    """Give the target of a row, if there is one for its sizes and number of threads."""
    work, cell = Work(**row["work"]), row["cell"]
    if cell == "GRU" and row["threads"] <= 2:
        return _GRU_ONE_ROW if work.batch == 1 and work.form != "cell" else _GRU
    if row["threads"] > 2 or work.form == "cell" or work.name in WITHOUT_TARGETS:
        return None
    pair: _Pair | None = None
    if not work.is_simple:
        pair = _NOT_SIMPLE
    elif cell == "RotLSTM":
        pair = _ROT_LSTM.get(work.name, {}).get(row["pass"])
    elif cell == "RotGRU" and work.hidden_size == 50:
        pair = _ROT_GRU_H50[row["pass"]]
    elif cell == "RotGRU" and work.hidden_size >= 256:
        pair = _ROT_GRU_FROM_H256
    return None if pair is None else pair[row["threads"] - 1]


def verdict(row: Row) -> str:
    """Say whether a row reaches its target and by how much; "?" if in the interval."""
    wanted, found = target(row), ratio(row)
    if wanted is None or found is None:
        return ""
    word = "reached" if found.median <= wanted else "missed"
    doubt = " ?" if found.low <= wanted < found.high else ""
    return f"{wanted:.2f} {word} by {abs(found.median - wanted):.2f}{doubt}"


def summary(rows: Sequence[Row]) -> list[str]:
    """Count the targets that are reached and list the missed ones; lines to print."""
    verdicts = [(row, found) for row in rows if (found := verdict(row))]
    missed = [(row, found) for row, found in verdicts if "missed" in found]
    lines = [f"Targets reached: {len(verdicts) - len(missed)} of {len(verdicts)}."]
    fastest = _fastest_rate(rows)
    too_fast = 0
    for row, found in missed:
        needed = _needed_rate(row)
        too_fast += needed > fastest
        mark = "*" if needed > fastest else " "
        lines.append(f"{mark} {_name(row)}: {found}, needs {needed / 1e9:.0f} GFLOP/s per thread")
    if too_fast:
        lines.append(
            f"* exceeds the fastest matmul rate of this run, "
            f"{fastest / 1e9:.0f} GFLOP/s per thread: {too_fast} of those missed."
        )
    over_onnx = [
        (row, over) for row in rows if (over := of_medians(row, ROTCELL, ONNX)) is not None
    ]
    if over_onnx:
        slower = [f"  {_name(row)}: {over:.2f} of its time" for row, over in over_onnx if over >= 1]
        ahead = len(over_onnx) - len(slower)
        lines.append(f"Ahead of onnxruntime: {ahead} of {len(over_onnx)} rows.")
        lines += slower
    return lines


def _needed_rate(row: Row) -> float:
    """Operations per second and thread in the matmuls of a call that just reaches the target."""
    wanted, torchs = target(row), median(row, TORCH)
    assert wanted is not None
    assert torchs is not None
    return operations(row, ROTCELL) / (wanted * torchs) / float(row["threads"])


def _fastest_rate(rows: Sequence[Row]) -> float:
    """Operations per second and thread: the highest rate of rotcell, torch or the square matmul."""
    rates = [(row, rate(row, name)) for row in rows for name in (ROTCELL, TORCH, GEMM)]
    return max((found / row["threads"] for row, found in rates if found is not None), default=0.0)


def _name(row: Row) -> str:
    threads = f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}"
    return f"{row['cell']} {row['pass']}, {Work(**row['work']).label()}, {threads}"
