"""Differences at equal cost, costs at equal accuracy, p-values, frontiers, areas and rankings,
against brute force and SciPy.
"""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import interpolate, optimize, spatial

from feval.estimators.arrays import pareto
from feval.estimators.comparisons import (
    MAX_STRENGTH,
    accuracy_at,
    bradley_terry,
    cost_to_reach,
    flip_probability,
    holm,
    hull_area,
    pairwise_wins,
    percentiles,
)
from feval.estimators.intervals import bootstrap_interval, bootstrap_means

SHARES = st.integers(0, 20).map(lambda x: x / 20)
POINTS = st.lists(st.tuples(st.integers(1, 12).map(float), SHARES), min_size=1, max_size=8)


@given(
    st.lists(st.integers(1, 1000), min_size=2, max_size=6, unique=True),
    st.floats(0, 1),
    st.integers(0, 9),
)
def test_accuracy_at_is_scipys_interpolation(ticks, share, seed):
    costs = np.sort(np.array(ticks, np.float64))
    accuracy = np.random.default_rng(seed).random((3, len(costs)))
    cost = float(costs[0] * (costs[-1] / costs[0]) ** share)
    referee = interpolate.interp1d(np.log(costs), accuracy, axis=1)(
        np.clip(np.log(cost), *np.log(costs[[0, -1]]))
    )
    np.testing.assert_allclose(accuracy_at(cost, costs, accuracy), referee, atol=1e-9)


def test_a_paired_difference_is_the_interval_of_the_differences_per_question():
    rng = np.random.default_rng(3)
    a, b = rng.random((200, 3)), rng.random((200, 2))
    costs_a, costs_b = np.array([1.0, 3.0, 9.0]), np.array([2.0, 8.0])
    per_question = accuracy_at(4.0, costs_a, a) - accuracy_at(4.0, costs_b, b)
    referee = bootstrap_interval(per_question[:, None], resamples=2000)
    means = bootstrap_means(np.hstack([a, b]), resamples=2000)
    resampled = accuracy_at(4.0, costs_a, means[:, :3]) - accuracy_at(4.0, costs_b, means[:, 3:])
    assert percentiles(resampled, 0.95) == pytest.approx(
        (referee.low[0], referee.high[0]), abs=1e-10
    )


@given(POINTS, SHARES)
def test_cost_to_reach_is_the_first_cost_on_a_fine_grid(points, target):
    points = list({cost: (cost, right) for cost, right in points}.values())
    cost, right = (np.array(column) for column in zip(*points, strict=True))
    result = float(cost_to_reach(target, cost[None], right[None])[0])
    order = np.argsort(cost)
    envelope = np.maximum.accumulate(right[order])
    if envelope[-1] < target:
        assert result == math.inf
        return
    grid = np.union1d(np.geomspace(cost.min(), cost.max(), 2001), cost)
    reached = np.interp(np.log(grid), np.log(cost[order]), envelope) >= target - 1e-9
    first = grid[np.argmax(reached)]
    assert result == pytest.approx(
        first, rel=2 * math.log(max(cost.max() / cost.min(), 1 + 1e-9)) / 2000 + 1e-6
    )


def test_resamples_that_never_reach_it_take_part_as_infinite():
    values = np.array([1.0, 2.0, 3.0, np.inf, np.nan])
    assert percentiles(values, 0.5) == (1.75, math.inf)
    assert percentiles(np.array([5.0, np.inf, np.inf, np.inf]), 0.9) == (math.inf, math.inf)
    assert all(map(math.isnan, percentiles(np.array([np.nan]), 0.9)))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0.01, 0.99))
def test_percentiles_are_numpys(values, confidence):
    tail = (1 - confidence) / 2
    referee = np.quantile(values, [tail, 1 - tail])
    np.testing.assert_allclose(
        percentiles(np.array(values), confidence), referee, rtol=1e-9, atol=1e-6
    )


def test_flips_are_counts():
    resampled = np.array([0.2, 0.1, 0.0, -0.1, 0.3])
    assert flip_probability(0.1, resampled) == pytest.approx(1.5 / 5)
    assert flip_probability(-0.1, resampled) == pytest.approx(3.5 / 5)
    assert flip_probability(0.0, np.zeros(4)) == 0.5


@given(st.lists(st.integers(1, 1000).map(lambda x: x / 1000), min_size=0, max_size=7))
def test_holm_is_the_closed_test_of_bonferroni(p_values):
    """Adjusted p of i: the largest Bonferroni p of any set of hypotheses that holds i."""
    m = len(p_values)
    referee = [
        max(
            min(1.0, len(subset) * min(p_values[j] for j in subset))
            for size in range(1, m + 1)
            for subset in combinations(range(m), size)
            if i in subset
        )
        for i in range(m)
    ]
    np.testing.assert_allclose(holm(p_values), referee)


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=5, max_size=5),
        min_size=1,
        max_size=4,
    )
)
def test_the_frontier_is_what_nothing_dominates(rows):
    costs, accuracy = np.array(rows, np.float64)[:, :, 0], np.array(rows, np.float64)[:, :, 1]
    referee = [
        [
            not any((c <= cost and a >= right) and (c < cost or a > right) for c, a in row)
            for cost, right in row
        ]
        for row in rows
    ]
    np.testing.assert_array_equal(pareto(costs, accuracy), referee)


def test_equal_costs_computed_in_two_ways_are_equal():
    third = 0.1 + 0.2
    assert third != 0.3
    assert pareto(np.array([third, 0.3, 0.4]), np.array([0.5, 0.5, 0.5])).tolist() == [
        True,
        True,
        False,
    ]
    assert pareto(np.array([third, 0.3]), np.array([0.6, 0.5])).tolist() == [True, False]


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=2, max_size=8, unique=True),
    st.integers(0, 99),
    st.integers(0, 5),
)
def test_the_hull_is_qhulls(ticks, seed, extra):
    costs = np.array(ticks, np.float64)
    accuracy = np.random.default_rng(seed).random((3, len(costs)))
    low, high = float(costs.min()), float(costs.max()) + extra
    # a box below, so that what Qhull has on top is the hull from above
    corners = [[low, -1.0], [high + 1, -1.0]]

    def top(row, at):
        points = np.vstack([np.column_stack([costs, row]), [high + 1, row.max()], corners])
        vertices = points[spatial.ConvexHull(points).vertices]
        vertices = vertices[vertices[:, 1] >= 0]
        order = np.lexsort((vertices[:, 1], vertices[:, 0]))
        return np.interp(at, vertices[order, 0], vertices[order, 1])

    nodes = np.unique(np.concatenate([costs, [high]]))
    referee = [np.trapezoid(top(row, nodes), nodes) / (high - low) for row in accuracy]
    np.testing.assert_allclose(hull_area(costs, accuracy, low, high), referee, atol=1e-9)


def test_wins_count_ties_half_however_two_methods_depend_on_each_other():
    first, second = [1, 1, 0, 0, 1], [1, 0, 0, 1, 0]
    wins = (
        sum(Fraction(a > b) + Fraction(a == b, 2) for a, b in zip(first, second, strict=True)) / 5
    )
    result = pairwise_wins(np.array([[np.mean(first), np.mean(second)]]))[0]
    assert result[0, 1] == pytest.approx(float(wins))
    assert result[0, 1] + result[1, 0] == pytest.approx(1)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 6), st.integers(0, 1000))
def test_strengths_are_the_maximum_of_the_likelihood(count, seed):
    wins = np.random.default_rng(seed).integers(1, 20, (count, count)).astype(np.float64)
    np.fill_diagonal(wins, 7.0)  # nothing may look at it

    def loss(free):
        s = np.append(free, 0.0)
        return float(
            sum(
                wins[i, j] * np.log1p(np.exp(s[j] - s[i]))
                for i in range(count)
                for j in range(count)
                if i != j
            )
        )

    s = np.append(
        optimize.minimize(loss, np.zeros(count - 1), method="BFGS", options={"gtol": 1e-9}).x, 0.0
    )
    np.testing.assert_allclose(bradley_terry(wins[None])[0], s - s.mean(), atol=1e-4)


def test_somebody_who_never_lost_ends_at_the_limit():
    strengths = bradley_terry(np.array([[[0.0, 5.0], [0.0, 0.0]]]))[0]
    assert strengths[0] - strengths[1] == pytest.approx(MAX_STRENGTH)


def test_resamples_are_ranked_one_by_one():
    wins = np.random.default_rng(1).integers(1, 9, (4, 3, 3)).astype(np.float64)
    together = bradley_terry(wins)
    for row, table in zip(together, wins, strict=True):
        np.testing.assert_allclose(row, bradley_terry(table[None])[0], atol=1e-7)
