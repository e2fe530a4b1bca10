"""The numbers printed in the paper: test accuracy in %, mean and standard deviation per task.

Its second table compares LSTM and RotLSTM, its third GRU and RotGRU, both with state size 50.
"""

from __future__ import annotations

import statistics
from typing import Final, NamedTuple

from rotcell.lab.report.statistics import Moments

RUNS: Final = 10  # trained models behind every mean
ROUNDING: Final = 0.05  # the numbers are printed with one decimal


class Printed(NamedTuple):
    """One cell of a table."""

    mean: float
    deviation: float

    @property
    def moments(self) -> Moments:
        """For comparisons."""
        return Moments(self.mean, self.deviation, RUNS, ROUNDING)


_TEXT: Final = {
    "lstm": """
        49.8 3.3  26.5 3.8  21.1 1.0  63.7 9.4  33.6 6.2
        49.2 0.8  62.7 15.5 68.8 8.3  63.9 0.2  45.2 2.0
        73.6 2.2  74.3 1.7  94.4 0.2  20.7 3.3  21.4 0.5
        48.0 2.2  48.0 0.0  70.3 20.8  8.5 0.6  87.7 4.2
    """,
    "rotlstm": """
        52.3 1.1  27.1 1.3  22.4 1.3  65.8 3.6  55.7 5.5
        50.1 1.9  76.7 3.0  66.1 6.2  61.5 1.9  48.1 1.1
        73.9 1.2  76.5 1.1  94.4 0.0  19.9 2.0  28.8 8.8
        46.7 2.0  54.2 3.1  90.5 0.9   8.9 1.1  89.9 2.4
    """,
    "gru": """
        51.3 0.9  34.6 3.8  21.5 1.4  69.8 1.9  67.1 5.7
        49.9 1.0  79.2 0.5  76.3 1.2  62.6 0.7  48.2 1.1
        77.7 3.3  76.8 0.8  94.4 0.0  31.4 5.6  27.8 6.7
        48.0 1.3  48.9 1.7  91.1 0.5   8.9 0.8  92.3 1.9
    """,
    "rotgru": """
        50.2 1.3  35.7 1.9  21.3 1.1  70.8 1.2  73.4 2.6
        50.1 1.1  78.4 2.6  75.9 2.0  62.8 0.4  48.4 1.0
        79.2 2.6  76.7 0.7  94.3 0.1  29.9 4.7  23.3 4.1
        47.1 3.7  48.6 1.6  90.9 0.8   8.9 1.0  93.6 2.9
    """,
}


def _read(text: str) -> dict[int, Printed]:
    numbers = [float(number) for number in text.split()]
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return {task: Printed(*pair) for task, pair in enumerate(pairs, start=1)}


#: Cell -> task -> what the paper prints; cells that it does not have are not in it.
PRINTED: Final = {cell: _read(text) for cell, text in _TEXT.items()}


def printed_mean(cell: str) -> float:
    """The mean over all tasks of what the paper prints."""
    return statistics.fmean(printed.mean for printed in PRINTED[cell].values())
