"""What the samples of a row of compare.py come to."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from contestants import GEMM, ROTCELL, TORCH, gemm_flops
from timing import median_interval
from work import CELLS, Work

from rotcell import reference

Row = Mapping[str, Any]

#: Rows of the weights of torch's layers, in units of H.
_GATES_OF_TORCH = {"LSTM": 4, "GRU": 3}


class Ratio(NamedTuple):
    """A ratio of times: below 1 the first is faster."""

    median: float
    #: Confidence interval of the median.
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def ratio(row: Row, first: str = ROTCELL, second: str = TORCH) -> Ratio | None:
    """Give the median of the ratios of two that ran in every round, if both were measured.

    Taken round by round, so that a pace of the machine that lasts longer than a round cancels. The
    interval takes rounds to be independent of each other.
    """
    samples = [row["timings"].get(name, {}).get("samples_s") for name in (first, second)]
    if not all(samples):
        return None
    ratios = [own / other for own, other in zip(*samples, strict=True)]
    return Ratio(statistics.median(ratios), *median_interval(ratios))


def geometric_mean(rows: Sequence[Row]) -> float | None:
    """Average the ratios of rotcell's time to torch's, over the rows that have one."""
    values = [found.median for row in rows if (found := ratio(row))]
    return statistics.geometric_mean(values) if values else None


def worst(rows: Sequence[Row]) -> tuple[Row, Ratio] | None:
    """Find the row in which rotcell is slowest compared with torch."""
    found = [(row, value) for row in rows if (value := ratio(row))]
    return max(found, key=lambda pair: pair[1].median, default=None)


def median(row: Row, name: str) -> float | None:
    """Seconds per call of one contestant, if it was measured."""
    value: float | None = row["timings"].get(name, {}).get("median_s")
    return value


def of_medians(row: Row, first: str, second: str = TORCH) -> float | None:
    """Ratio of the medians, for peers, which may sit out rounds."""
    own, other = median(row, first), median(row, second)
    return None if own is None or other is None else own / other


def operations(row: Row, name: str) -> int:
    """Count those in the matmuls of a call of rotcell's layer or of torch's."""
    work, cell = Work(**row["work"]), CELLS[row["cell"]]
    rows = _GATES_OF_TORCH[cell.torch] * work.hidden_size
    if name == ROTCELL:
        rows = reference.CELLS[cell.reference].rows(work.hidden_size)
    return work.flops(rows, row["pass"])


def rate(row: Row, name: str) -> float | None:
    """Operations per second in matmuls, if it was measured."""
    seconds = median(row, name)
    if seconds is None:
        return None
    return (gemm_flops() if name == GEMM else operations(row, name)) / seconds


def gemm_fraction(row: Row, name: str) -> float | None:
    """Operations per second in the matmuls, over those of the square matmul."""
    own, gemm = rate(row, name), rate(row, GEMM)
    return None if own is None or gemm is None else own / gemm
