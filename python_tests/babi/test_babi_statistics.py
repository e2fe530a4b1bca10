"""Statistics beside numbers from tables, and beside counting by hand."""

from __future__ import annotations

import math
import random
import statistics
from itertools import combinations

import pytest

from rotcell.babi.report.statistics import (
    Moments,
    compare,
    holm,
    incomplete_beta,
    permutation_p,
    signed,
    t_cdf,
    t_quantile,
    welch,
)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    # Two-sided 95 % points of Student's distribution, from printed tables.
    [(1, 12.706), (2, 4.303), (5, 2.571), (10, 2.228), (30, 2.042), (1e7, 1.960)],
)
def test_students_distribution(freedom: float, quantile: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(quantile, abs=5e-4)
    assert t_cdf(quantile, freedom) == pytest.approx(0.975, abs=1e-4)
    assert t_cdf(-quantile, freedom) == pytest.approx(0.025, abs=1e-4)
    assert t_cdf(0.0, freedom) == pytest.approx(0.5)


def test_incomplete_beta_of_whole_numbers_is_a_binomial_tail() -> None:
    for a, b, x in ((2, 3, 0.4), (5, 1, 0.9), (1, 7, 0.05), (4, 4, 0.5)):
        n = a + b - 1
        tail = sum(math.comb(n, k) * x**k * (1 - x) ** (n - k) for k in range(a, n + 1))
        assert incomplete_beta(a, b, x) == pytest.approx(tail, rel=1e-12)


def test_welch() -> None:
    # Equal numbers and deviations are Student's test with 2n - 2 degrees of freedom.
    one, other = Moments(5.0, 2.0, 6), Moments(3.0, 2.0, 6)
    found = welch(one, other)
    reach = 2.228 * 2.0 * math.sqrt(2 / 6)
    assert (found.low, found.high) == pytest.approx((2 - reach, 2 + reach), abs=1e-3)
    same = Moments(94.4, 0.0, 10)
    assert welch(same, same).p == 1.0
    assert welch(same, Moments(94.5, 0.0, 10)).p == 0.0
    # What was printed may be off by its rounding.
    assert welch(same, Moments(94.42, 0.0, 10, rounding=0.05)).p > 0.05


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = random.Random(0)
    covered = 0
    for _ in range(400):
        one = [rng.gauss(1.0, 1.0) for _ in range(5)]
        other = [rng.gauss(0.0, 3.0) for _ in range(8)]
        found = compare(one, other)
        assert found is not None
        covered += found.low <= 1.0 <= found.high
    assert 0.92 <= covered / 400 <= 0.98


@pytest.mark.parametrize("seed", range(5))
def test_permutations_are_counted_as_if_listed(seed: int) -> None:
    rng = random.Random(seed)
    values = [rng.randint(0, 6) / 10 for _ in range(9)]
    one, other = values[:4], values[4:]

    def apart(first: tuple[int, ...]) -> float:
        rest = [values[k] for k in range(9) if k not in first]
        return abs(statistics.fmean(values[k] for k in first) - statistics.fmean(rest))

    ways = list(combinations(range(9), 4))
    extreme = sum(apart(way) >= apart((0, 1, 2, 3)) - 1e-12 for way in ways)
    assert permutation_p(one, other) == extreme / len(ways)


def test_the_smallest_p_of_ten_and_ten() -> None:
    assert permutation_p(range(10), range(20, 30)) == 2 / math.comb(20, 10)


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03, None]) == pytest.approx([0.03, 0.06, 0.06, None])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_few_values() -> None:
    assert compare([1.0], [2.0, 3.0]) is None
    assert Moments.of([1.0]) is None
    assert [signed(x) for x in (-0.04, 0.0, 2.06, -3.0)] == ["0.0", "0.0", "+2.1", "-3.0"]
