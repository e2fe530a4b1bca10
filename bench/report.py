"""The results of compare.py as a table to read."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import speed_targets
from contestants import GEMM, GEMM_SIZE, PEERS, ROTCELL, TORCH, gemm_flops
from ratios import Row, gemm_fraction, geometric_mean, median, of_medians, ratio, worst
from timing import CONFIDENCE
from work import CELLS, PASSES, Work


def _milliseconds(row: Row, name: str) -> str:
    timing = row["timings"].get(name, {})
    if "median_s" not in timing:
        return "failed" if "error" in timing else ""
    values = [_digits(1e3 * timing[key]) for key in ("median_s", "q1_s", "q3_s")]
    return "{} ({}-{})".format(*values)


def _digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 4
    return f"{value:.{decimals}f}"


def _peer_ratio_text(row: Row, peer: str) -> str:
    value = of_medians(row, peer)
    timing = row["timings"].get(peer, {})
    if value is None:
        return "failed" if "error" in timing else ""
    text = _digits(value) if value >= 1 else f"{value:.2f}"
    if peer == "compiled":
        text += f" ({timing['first_call_s']:.0f} s)"
    return text


def _fractions(row: Row) -> str:
    gemm = median(row, GEMM)
    if gemm is None:
        return ""
    values = [gemm_fraction(row, name) for name in (ROTCELL, TORCH)]
    shown = " / ".join("-" if value is None else f"{value:.0%}" for value in values)
    return f"{shown} of {gemm_flops() / gemm / 1e9:.0f}"


class Table:
    """Columns of fixed width, so that a row can be printed as soon as it is measured."""

    def __init__(self, works: Sequence[Work], peers: Sequence[str], cuda: bool, targets: bool):
        widest = max((len(work.label()) for work in works), default=0)
        columns = [("threads", 7), ("work", widest), ("cell", max(map(len, CELLS))), ("pass", 5)]
        columns += [("rotcell ms (quartiles)", 22), ("torch ms (quartiles)", 22)]
        columns += [("rotcell/torch", 16)]
        columns += [("target", 22)] if targets else []
        columns += (
            [("of gemm, GFLOP/s", 18)] if any(work.hidden_size >= 256 for work in works) else []
        )
        widths = {"reference": 9, "compiled": 14, "jax": 5, "onnxruntime": 11}
        columns += [(peer, widths[peer]) for peer in PEERS if peer in peers]
        columns += [("cuDNN runs", 10)] if cuda else []
        self._columns = columns

    def header(self) -> str:
        """Give the line above the rows."""
        return self._line({name: name for name, _ in self._columns})

    def row(self, row: Row) -> str:
        """Give the line of one row."""
        cells = {
            "threads": str(row["threads"]),
            "work": Work(**row["work"]).label(),
            "cell": row["cell"],
            "pass": row["pass"],
            "rotcell ms (quartiles)": _milliseconds(row, ROTCELL),
            "torch ms (quartiles)": _milliseconds(row, TORCH),
            "rotcell/torch": str(ratio(row) or ""),
            "target": speed_targets.verdict(row),
            "of gemm, GFLOP/s": _fractions(row),
            "cuDNN runs": row.get("cudnn") or "",
        }
        cells |= {peer: _peer_ratio_text(row, peer) for peer in PEERS}
        return self._line(cells)

    def _line(self, cells: Mapping[str, str]) -> str:
        return "  ".join(f"{cells[name]:{width}}" for name, width in self._columns).rstrip()


def legend(gemm: bool, peers: Sequence[str], targets: bool) -> str:
    """Explain the columns that need it."""
    lines = [
        "torch is nn.LSTM or nn.GRU (cells: nn.LSTMCell, nn.GRUCell). ms: median of the rounds.",
        f"rotcell/torch: median of the rounds' ratios ({100 * CONFIDENCE:.0f} % confidence "
        "interval of that median); below 1, rotcell is faster.",
    ]
    if targets:
        lines.append(
            "target: the most that rotcell/torch should be; ? means that the interval contains it."
        )
    if peers:
        note = " (seconds to compile)" if "compiled" in peers else ""
        lines.append(f"{', '.join(peers)}: time over torch's{note}.")
    if gemm:
        lines.append(
            "of gemm: matmul rate of rotcell / of torch, as a fraction of the rate of "
            f"a square matmul of size {GEMM_SIZE}."
        )
    return "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def averages(rows: Sequence[Row]) -> list[str]:
    """Give the geometric mean of rotcell/torch and the worst row, per layer and thread count."""
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["cell"], row["threads"]), []).append(row)
    lines = []
    for (cell, threads), group in groups.items():
        found = worst(group)
        if found is None:
            continue
        means = {"all": geometric_mean(group)} | {
            passes: geometric_mean([row for row in group if row["pass"] == passes])
            for passes in PASSES
        }
        shown = {name: "-" if mean is None else f"{mean:.2f}" for name, mean in means.items()}
        row, value = found
        lines.append(
            f"{cell}, {_count(threads, 'thread')}: geometric mean {shown['all']} "
            f"({', '.join(f'{passes} {shown[passes]}' for passes in PASSES)}) of "
            f"{_count(len(group), 'row')}; "
            f"worst {value}: {row['pass']}, {Work(**row['work']).label()}"
        )
    return lines


def failures(rows: Sequence[Row]) -> list[str]:
    """Say who could not run a row, and why."""
    return [
        f"{name}, {Work(**row['work']).label()}, {row['cell']} {row['pass']}, "
        f"{row['threads']} threads: {timing['error']}"
        for row in rows
        for name, timing in row["timings"].items()
        if "error" in timing
    ]


def memory_line(row: Row) -> str:
    """Give the line of one memory measurement."""
    own, peer = (row["bytes"][name] / 2**20 for name in (ROTCELL, TORCH))
    quotient = f"{own / peer:.2f}" if peer else "-"
    label = Work(**row["work"]).label()
    return (
        f"{row['threads']:7}  {label:40}  {row['cell']:10}  "
        f"rotcell {own:8.1f} MiB  torch {peer:8.1f} MiB  rotcell/torch {quotient}"
    )


class Progress:
    """A bar on a terminal, kept below the printed lines; nothing elsewhere."""

    WIDTH = 24

    def __init__(self, total: int) -> None:
        self._total = total
        self._live = sys.stdout.isatty()

    def show(self, done: int, doing: str) -> None:
        """Redraw the bar."""
        if self._live:
            filled = self.WIDTH * done // max(self._total, 1)
            bar = "#" * filled + "-" * (self.WIDTH - filled)
            sys.stdout.write(f"\r\x1b[K[{bar}] {done}/{self._total} {doing}")
            sys.stdout.flush()

    def print(self, line: str) -> None:
        """Print a line in the place of the bar."""
        if self._live:
            sys.stdout.write("\r\x1b[K")
        print(line, flush=True)
