"""Statistics compared with tables and with counting by hand."""

from __future__ import annotations

import math
import random
import statistics
from itertools import combinations

import pytest

from rotcell.lab.report.statistics import (
    Moments,
    compare,
    compare_pairs,
    holm,
    incomplete_beta,
    mean_interval,
    median_interval,
    permutation_p,
    rank_test,
    sign_test,
    signed,
    t_cdf,
    t_quantile,
    welch,
    wilson,
)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    # Two-sided 95 % points of Student's distribution, from printed tables.
    [(1, 12.706), (2, 4.303), (5, 2.571), (10, 2.228), (30, 2.042), (1e7, 1.960)],
)
def test_students_distribution_matches_printed_tables(freedom: float, quantile: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(quantile, abs=5e-4)
    assert t_cdf(quantile, freedom) == pytest.approx(0.975, abs=1e-4)
    assert t_cdf(-quantile, freedom) == pytest.approx(0.025, abs=1e-4)
    assert t_cdf(0.0, freedom) == pytest.approx(0.5)


def test_incomplete_beta_of_whole_numbers_is_a_binomial_tail() -> None:
    for a, b, x in ((2, 3, 0.4), (5, 1, 0.9), (1, 7, 0.05), (4, 4, 0.5)):
        n = a + b - 1
        tail = sum(math.comb(n, k) * x**k * (1 - x) ** (n - k) for k in range(a, n + 1))
        assert incomplete_beta(a, b, x) == pytest.approx(tail, rel=1e-12)


def test_welchs_test_matches_students_and_respects_rounding() -> None:
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


def test_the_interval_has_its_nominal_coverage() -> None:
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


def test_the_interval_excludes_zero_where_p_is_small() -> None:
    rng = random.Random(1)
    seen = set()
    for _ in range(200):
        found = compare([rng.gauss(1.0, 1.0) for _ in range(5)], [rng.gauss(0, 1) for _ in "12345"])
        assert found is not None
        assert (found.low > 0 or found.high < 0) == (found.p < 0.05)
        seen.add(found.p < 0.05)
    assert seen == {True, False}


def test_pairs_and_single_means_are_students() -> None:
    # 2.776: the two-sided 95 % point with four degrees of freedom.
    ours, theirs = [3.0, 5.0, 4.0, 8.0, 5.0], [1.0, 4.0, 1.0, 4.0, 0.0]
    differences = [2.0, 1.0, 3.0, 4.0, 5.0]
    reach = 2.776 * statistics.stdev(differences) / math.sqrt(5)
    found = compare_pairs(ours, theirs)
    assert found is not None
    assert (found.mean, found.low, found.high) == pytest.approx((3, 3 - reach, 3 + reach), abs=1e-3)
    moments = Moments.of(differences)
    assert moments is not None
    assert mean_interval(moments) == (found.low, found.high)


def test_the_sign_test_matches_printed_tables() -> None:
    # Printed tables of the sign test: of 20 signs, 5 and 15 are significant at 5 %, 6 and 14 not.
    assert sign_test(15, 5) == sign_test(5, 15) == pytest.approx(0.0414, abs=5e-5)
    assert sign_test(14, 6) == pytest.approx(0.1153, abs=5e-5)
    assert sign_test(13, 7) == pytest.approx(0.2632, abs=5e-5)
    assert sign_test(10, 10) == 1.0


def test_the_rank_test_counts_arrangements() -> None:
    # Of the 252 ways to deal out ten ranks two are as extreme; inf is just the last rank.
    assert rank_test([1, 2, 3, 4, 5], [6, 7, 8, 9, math.inf]) == pytest.approx(2 / 252)
    # U = 2 of 5 and 5: in the table, 4 of 126 are as far on each side.
    assert rank_test([1, 2, 3, 4, 7], [5, 6, 8, 9, 10]) == pytest.approx(8 / 252)
    assert rank_test([math.inf, math.inf], [math.inf, math.inf]) == 1.0


@pytest.mark.parametrize(("number", "rank"), [(3, 1), (5, 1), (6, 1), (9, 2), (10, 2), (12, 3)])
def test_interval_of_the_median(number: int, rank: int) -> None:
    values = random.Random(number).sample(range(1, number + 1), number)
    assert median_interval(values) == (rank, number + 1 - rank)


def test_holms_correction_counts_known_values_only() -> None:
    assert holm([0.01, 0.04, 0.03, None]) == pytest.approx([0.03, 0.06, 0.06, None])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_too_few_values_give_no_statistics() -> None:
    assert compare([1.0], [2.0, 3.0]) is None
    assert Moments.of([1.0]) is None
    assert [signed(x) for x in (-0.04, 0.0, 2.06, -3.0)] == ["0.0", "0.0", "+2.1", "-3.0"]


def test_wilsons_interval_solves_its_equation() -> None:
    assert wilson(9, 10) == pytest.approx((0.59585, 0.98212), abs=1e-5)  # SciPy 1.15
    for successes, number in ((0, 10), (1, 5), (30, 60), (10, 10)):
        low, high = wilson(successes, number)
        assert 0 <= low < high <= 1
        for bound in (low, high):  # 1.96 standard errors, of the bound, from the share
            distance = abs(successes / number - bound)
            assert distance**2 == pytest.approx(
                1.959964**2 * bound * (1 - bound) / number, abs=1e-6
            )
