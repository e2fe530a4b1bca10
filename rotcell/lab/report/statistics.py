"""Comparing means of few runs: intervals, tests, and correction for many comparisons."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LEVEL: Final = 0.95
_UNITS: Final = 1_000_000  # values are compared as whole numbers of this fraction of a unit


@dataclass(frozen=True)
class Moments:
    """Mean, standard deviation (n - 1) and number of some values; or of what a paper printed."""

    mean: float
    deviation: float
    number: int
    rounding: float = 0.0  # half of the last digit printed

    @classmethod
    def of(cls, values: Sequence[float]) -> Moments | None:
        """None for less than two values, which have no deviation."""
        if len(values) < 2:
            return None
        return cls(statistics.fmean(values), statistics.stdev(values), len(values))

    @property
    def variance_of_mean(self) -> float:
        # A rounded number lies anywhere within its rounding.
        return self.deviation**2 / self.number + self.rounding**2 / 3


@dataclass(frozen=True)
class Difference:
    """A difference of means with its 95 % interval and p-value, both of the same test.

    So the interval excludes 0 exactly where p < 0.05. Neither is corrected for other comparisons.
    """

    mean: float
    low: float
    high: float
    p: float

    @property
    def text(self) -> str:
        """Such as +2.1 [-0.3, 4.5]."""
        return f"{signed(self.mean)} [{signed(self.low)}, {signed(self.high)}]"


def signed(value: float) -> str:
    """With one decimal and a sign; zero has none."""
    text = f"{value:+.1f}"
    return "0.0" if float(text) == 0 else text


def welch(one: Moments, other: Moments) -> Difference:
    """one - other: Welch's interval, and the p-value of Welch's test."""
    difference = one.mean - other.mean
    variances = one.variance_of_mean, other.variance_of_mean
    total = sum(variances)
    if total == 0:
        return Difference(difference, difference, difference, 1.0 if difference == 0 else 0.0)
    freedom = total**2 / sum(
        variance**2 / (each.number - 1)
        for variance, each in zip(variances, (one, other), strict=True)
    )
    error = math.sqrt(total)
    reach = t_quantile((1 + LEVEL) / 2, freedom) * error
    p = 2 * (1 - t_cdf(abs(difference) / error, freedom))
    return Difference(difference, difference - reach, difference + reach, p)


def compare(one: Sequence[float], other: Sequence[float]) -> Difference | None:
    """one - other by Welch's test; None with fewer than two values on a side."""
    mine, yours = Moments.of(one), Moments.of(other)
    return None if mine is None or yours is None else welch(mine, yours)


def compare_pairs(one: Sequence[float], other: Sequence[float]) -> Difference | None:
    """one - other by the paired t-test; None with fewer than two pairs."""
    differences = Moments.of([a - b for a, b in zip(one, other, strict=True)])
    # Against a constant, which has no variance, Welch's test is Student's.
    return None if differences is None else welch(differences, Moments(0.0, 0.0, 2))


def mean_interval(found: Moments) -> tuple[float, float]:
    """Student's 95 % interval of a mean."""
    interval = welch(found, Moments(0.0, 0.0, 2))
    return interval.low, interval.high


def wilson(successes: float, number: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z = statistics.NormalDist().inv_cdf((1 + LEVEL) / 2)
    share, weight = successes / number, z * z / number
    center = (share + weight / 2) / (1 + weight)
    reach = math.sqrt(weight * (share * (1 - share) + weight / 4)) / (1 + weight)
    return max(0.0, center - reach), min(1.0, center + reach)


def sign_test(higher: int, lower: int) -> float:
    """The two-sided p-value of so many positive and negative signs, if both are equally likely."""
    number = higher + lower
    tail = sum(math.comb(number, k) for k in range(min(higher, lower) + 1))
    return min(1.0, 2 * tail / float(2**number))


def rank_test(one: Sequence[float], other: Sequence[float]) -> float:
    """The exact two-sided p-value of the Mann-Whitney test; ties share ranks, inf is last."""
    both = sorted((*one, *other))
    rank = {value: both.index(value) + (both.count(value) - 1) / 2 for value in both}
    return permutation_p([rank[value] for value in one], [rank[value] for value in other])


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """A 95 % interval of the median, from ranks; of fewer than 6 values, their range."""
    ordered = sorted(values)
    outside = 0  # ranks left out on each side
    while sign_test(outside + 1, len(ordered) - outside - 1) <= 1 - LEVEL:
        outside += 1
    return ordered[outside], ordered[-1 - outside]


def permutation_p(one: Sequence[float], other: Sequence[float]) -> float:
    """The share of all ways to deal out the values whose means are as far apart, or further.

    Exact and two-sided. Ways are not listed but counted by the sum that they give to the first.
    """
    values = [round(value * _UNITS) for value in (*one, *other)]
    size, number = len(one), len(values)
    ways: list[dict[int, int]] = [{0: 1}] + [{} for _ in range(size)]  # by how many, by sum
    for value in values:
        for chosen in range(size, 0, -1):
            into = ways[chosen]
            for total, count in ways[chosen - 1].items():
                into[total + value] = into.get(total + value, 0) + count
    everything = sum(values)

    def apart(total: int) -> int:
        # The difference of means, times size * (number - size), without a division.
        return abs(total * number - everything * size)

    seen = apart(sum(values[:size]))
    extreme = sum(count for total, count in ways[size].items() if apart(total) >= seen)
    return extreme / math.comb(number, size)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Corrected for their number by Holm's method; None stays None and does not count."""
    order = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(order):
        largest = max(largest, min(1.0, p * (len(order) - rank)))
        corrected[index] = largest
    return corrected


def t_cdf(t: float, freedom: float) -> float:
    """Student's distribution function."""
    tail = incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2
    return 1 - tail if t > 0 else tail


def t_quantile(p: float, freedom: float) -> float:
    """The inverse of `t_cdf`, for p from 0.5 on."""
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < p:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, freedom) < p else (low, middle)
    return (low + high) / 2


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function, by its continued fraction (Lentz's method)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on one side only
        return 1 - incomplete_beta(b, a, 1 - x)
    front = math.exp(
        a * math.log(x)
        + b * math.log1p(-x)
        - (math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b))
    )
    tiny = 1e-300
    fraction, c, d = 1.0, 1.0, 0.0
    for step in range(500):
        half = step // 2
        if step == 0:
            numerator = 1.0
        elif step % 2 == 0:
            numerator = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        else:
            numerator = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        d = 1 / (1 + numerator * d or tiny)
        c = 1 + numerator / c or tiny
        fraction *= c * d
        if abs(c * d - 1) < 1e-15 and step > 1:
            break
    return front * (fraction - 1) / a
