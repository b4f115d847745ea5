"""The self-consistency error: bias, mean squared error, Theorem 1, splits of a budget and the
extensions.
"""

import math
from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest
from golden_estimators import bias_of_two
from hypothesis import given, settings, strategies as st

from feval.estimators.self_consistency import (
    best_integer_split,
    budget_split,
    icc_variance_phat,
    multiclass_plugin_expectation,
    self_consistency_bound,
    self_consistency_mse_exact,
)

SHARES = st.fractions(0, 1, max_denominator=60)


def moments(p, n):
    """Mean and mean square of min(k, n - k) / n."""
    mass = [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    values = [Fraction(min(k, n - k), n) for k in range(n + 1)]
    return (
        sum((m * v for m, v in zip(mass, values, strict=True)), Fraction(0)),
        sum((m * v * v for m, v in zip(mass, values, strict=True)), Fraction(0)),
    )


@given(SHARES, st.integers(1, 40))
@settings(deadline=None)
def test_the_bias_is_exact(p, n):
    exact = min(p, 1 - p) - moments(p, n)[0]
    assert float(bias_of_two(np.float64(p), n)) == pytest.approx(float(exact), abs=1e-13)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 9, 100, 1001, 10_000])
def test_the_bias_at_one_half_has_a_closed_form_for_any_number_of_calls(n):
    half = n // 2
    log = math.lgamma(2 * half + 1) - 2 * math.lgamma(half + 1) - (2 * half + 1) * math.log(2)
    assert bias_of_two(np.float64(0.5), n) == pytest.approx(math.exp(log), abs=1e-12)


def test_the_step_of_the_proof_fails_for_every_odd_number_of_calls_and_holds_for_every_even_one():
    for n in range(1, 200):
        fails = bias_of_two(np.float64(0.5), n) > 1 / math.sqrt(2 * math.pi * n)
        assert fails == (n % 2 == 1)


@given(
    st.lists(st.tuples(SHARES, st.integers(1, 5)), min_size=1, max_size=4),
    st.integers(1, 9),
    st.integers(1, 12),
)
@settings(max_examples=60, deadline=None)
def test_the_mean_squared_error_is_exact_and_theorem_1_holds(population, m, n):
    total = sum(w for _, w in population)
    q = [Fraction(w, total) for _, w in population]
    both = [moments(p, n) for p, _ in population]
    first = sum(w * a for w, (a, _) in zip(q, both, strict=True))
    second = sum(w * b for w, (_, b) in zip(q, both, strict=True))
    bias = sum(w * min(p, 1 - p) for w, (p, _) in zip(q, population, strict=True)) - first
    exact = float(bias**2 + (second - first**2) / m)
    shares = np.array([float(p) for p, _ in population])
    weights = np.array([float(w) for _, w in population])
    assert self_consistency_mse_exact(shares, weights, m, n) == pytest.approx(exact, abs=1e-13)
    assert exact <= float(self_consistency_bound(m, n))


def test_the_mean_squared_error_of_many_calls():
    assert self_consistency_mse_exact(np.array([0.0, 1.0]), None, 3, 100_000) == 0.0
    result = self_consistency_mse_exact(np.array([0.2]), None, 7, 100_000)
    assert result == pytest.approx(0.2 * 0.8 / 700_000, rel=1e-9)


@given(st.integers(1, 400), st.sampled_from([0.0, 0.05, 0.5, 1.0]))
@settings(deadline=None)
def test_the_best_integer_split_is_the_best_of_all(budget, icc):
    m, n = (
        grid.ravel() for grid in np.meshgrid(np.arange(1, budget + 1), np.arange(1, budget + 1))
    )
    every = self_consistency_bound(m[m * n <= budget], n[m * n <= budget], icc)
    split = best_integer_split(budget, icc)
    assert split.bound == pytest.approx(every.min(), rel=1e-14)
    assert split.m * split.n <= budget
    assert split.bound == pytest.approx(
        float(self_consistency_bound(split.m, split.n, icc)), rel=1e-15
    )


def test_rounding_the_split_exceeds_the_budget_or_is_not_the_best():
    seven, fifty = budget_split(7), budget_split(50)
    assert round(seven.m) * round(seven.n) == 8
    assert (round(fifty.m), round(fifty.n)) == (4, 11)
    best = best_integer_split(50)
    assert (best.m, best.n) == (5, 10)


def test_large_budgets_split_near_the_real_optimum():
    for budget in (10_000, 1_234_567, 10**12):
        real, best = budget_split(budget), best_integer_split(budget)
        assert best.m * best.n <= budget
        assert best.m == pytest.approx(real.m, rel=0.05)
        assert real.bound <= best.bound * (1 + 1e-12)
        assert best.bound <= real.bound * (1 + 4 / real.n)


def test_the_split_is_the_minimum_of_the_bound():
    for icc in (0.0, 0.3, 1.0):
        split = budget_split(800, icc)
        assert split.m * split.n == pytest.approx(800)
        for factor in (0.9, 0.99, 1.01, 1.1):
            assert self_consistency_bound(split.m * factor, split.n / factor, icc) > split.bound


def multiclass_by_enumeration(p, n):
    total = Fraction(0)
    for calls in product(range(len(p)), repeat=n):
        chance = math.prod((p[c] for c in calls), start=Fraction(1))
        total += chance * (1 - Fraction(max(calls.count(c) for c in range(len(p))), n))
    return total


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(sum), st.integers(1, 6))
@settings(max_examples=80, deadline=None)
def test_the_multiclass_expectation_equals_enumeration(weights, n):
    p = [Fraction(w, sum(weights)) for w in weights]
    result = multiclass_plugin_expectation(np.array([float(x) for x in p]), n)
    assert float(result) == pytest.approx(float(multiclass_by_enumeration(p, n)), abs=1e-13)


def test_a_table_of_laws_in_any_shape_tells_what_each_law_alone_tells():
    rng = np.random.default_rng(11)
    p = rng.dirichlet(np.full(6, 0.4), (30, 20))
    p[3, 4], p[5, 6] = np.eye(6)[2], np.full(6, 1 / 6)
    p[:, 7, 3:] = 0.0
    p /= p.sum(axis=-1, keepdims=True)
    together = multiclass_plugin_expectation(p, 90)  # in several blocks
    assert together.shape == (30, 20)
    for place in ((0, 0), (3, 4), (5, 6), (29, 19), (12, 7)):
        assert together[place] == pytest.approx(
            multiclass_plugin_expectation(p[place], 90), abs=1e-14
        )
    assert together[3, 4] == 0.0


def test_correlated_calls_vary_as_the_beta_binomial_does():
    from scipy.stats import betabinom

    a, b, n = 1.2, 2.8, 10
    icc = 1 / (a + b + 1)
    assert float(icc_variance_phat(a / (a + b), n, icc)) == pytest.approx(
        betabinom.var(n, a, b) / n**2, rel=1e-12
    )
    assert float(icc_variance_phat(0.3, 10, 1.0)) == pytest.approx(0.21)
    assert float(icc_variance_phat(0.3, 10, 0.0)) == pytest.approx(0.021)
