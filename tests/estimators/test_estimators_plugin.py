"""The plug-in's expectation and bias from few calls, and what is unbiased."""

from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feval.estimators.multinomial import (
    plugin_expectation,
    plugin_plurality_accuracy,
    plurality_accuracy,
    unbiased_plurality_accuracy,
)
from feval.estimators.per_question import TIES, compositions
from feval.estimators.plurality import subset_plurality_accuracy

LAWS = st.lists(st.integers(0, 5), min_size=2, max_size=4).filter(sum)


def law(weights):
    """No answer last."""
    shares = np.array(weights) / sum(weights)
    return shares[:1], shares[None, 1:-1], shares[-1:]


@pytest.mark.slow
@given(LAWS, st.integers(1, 4), st.sampled_from([1, 3, 6]), st.sampled_from(TIES))
@settings(max_examples=50, deadline=None)
def test_the_expectation_equals_the_mean_over_all_sequences_of_calls(weights, calls, votes, ties):
    expected = 0.0
    for sequence in product(range(len(weights)), repeat=calls):
        counts = np.bincount(sequence, minlength=len(weights))
        chance = np.prod([weights[i] / sum(weights) for i in sequence])
        estimate = plugin_plurality_accuracy(
            counts[:1], counts[None, 1:-1], counts[-1:], [votes], ties=ties
        )
        expected += chance * estimate.per_question()[0, 0]
    result = plugin_expectation(*law(weights), calls, [votes], ties=ties).per_question()[0, 0]
    assert result == pytest.approx(expected, abs=1e-13)


@pytest.mark.slow
@given(LAWS, st.integers(1, 7))
@settings(max_examples=12, deadline=None)
def test_as_votes_grow_the_plugin_tells_the_accuracy_of_g_votes(weights, calls):
    result = plugin_expectation(*law(weights), calls, [4001]).per_question()[0, 0]
    true = plurality_accuracy(*law(weights), [calls]).per_question()[0, 0]
    assert result == pytest.approx(true, abs=5e-3)


def test_the_example_of_the_docs():
    two = np.array([0.55]), np.array([[0.45]]), np.array([0.0])
    assert plurality_accuracy(*two, [101]).per_question()[0, 0] == pytest.approx(0.844, abs=5e-4)
    assert plugin_expectation(*two, 5, [101]).per_question()[0, 0] == pytest.approx(0.592, abs=5e-4)


@given(LAWS, st.integers(1, 5), st.sampled_from(TIES))
@settings(max_examples=40, deadline=None)
def test_the_corrected_estimate_is_unbiased_up_to_g_votes(weights, calls, ties):
    votes = list(range(1, calls + 1))
    outcomes = np.array(
        [c for c in product(range(calls + 1), repeat=len(weights)) if sum(c) == calls]
    )
    chances = np.array([float(chance(weights, c)) for c in outcomes.tolist()])
    result = unbiased_plurality_accuracy(
        outcomes[:, 0], outcomes[:, 1:-1], outcomes[:, -1], votes, ties=ties
    )
    assert result.reasons == ("",) * calls
    true = plurality_accuracy(*law(weights), votes, ties=ties).per_question()[0]
    assert chances @ result.values.per_question() == pytest.approx(true, abs=1e-12)


def chance(weights, counts):
    total, draws = Fraction(1), 0
    for weight, count in zip(weights, counts, strict=True):
        draws += count
        total *= comb(draws, count) * Fraction(weight, sum(weights)) ** count
    return total


def test_beyond_g_votes_there_is_nan_and_a_reason():
    result = unbiased_plurality_accuracy(
        np.array([3, 2]), np.array([[2], [1]]), np.array([0, 1]), [1, 4, 5, 9]
    )
    values = result.values.per_question()
    assert np.isnan(values).tolist() == [[False, False, False, True], [False, False, True, True]]
    assert result.reasons[:2] == ("", "")
    assert "question 1 has 4" in result.reasons[2]
    assert "question 0 has 5" in result.reasons[3]
    alone = subset_plurality_accuracy(
        np.array([3]), np.array([[2]]), np.array([0]), [1, 4, 5]
    ).per_question()
    assert values[0, :3].tolist() == alone[0].tolist()


def test_many_calls_over_two_answers_are_enumerated():
    two = np.array([0.6]), np.array([[0.4]]), np.array([0.0])
    from scipy.stats import binom

    counts = np.arange(1001)
    estimates = plugin_plurality_accuracy(
        counts, 1000 - counts[:, None], np.zeros(1001, int), [3]
    ).per_question()[:, 0]
    expected = binom.pmf(counts, 1000, 0.6) @ estimates
    assert plugin_expectation(*two, 1000, [3]).per_question()[0, 0] == pytest.approx(
        expected, abs=1e-12
    )


@pytest.mark.parametrize("ties", TIES)
def test_a_table_of_questions_tells_what_each_question_alone_tells(ties):
    rng = np.random.default_rng(7)
    p = rng.dirichlet(np.ones(5), 60)
    p[::3, 4] = 0.0  # some without a rival, an answer, or a chance
    p[1::5, 1] = 0.0
    p[2::7, 0] = 0.0
    p[3] = [1.0, 0.0, 0.0, 0.0, 0.0]
    p[4] = [0.0, 1.0, 0.0, 0.0, 0.0]
    p /= p.sum(axis=1, keepdims=True)
    votes = [1, 2, 7, 40]
    together = plugin_expectation(p[:, 0], p[:, 2:], p[:, 1], 3, votes, ties=ties).per_question()
    for shares, result in zip(p[:8], together, strict=False):
        total = np.zeros(len(votes))
        for calls in product(np.flatnonzero(shares).tolist(), repeat=3):
            counts = np.bincount(calls, minlength=5)[None]
            estimate = plugin_plurality_accuracy(
                counts[:, 0], counts[:, 2:], counts[:, 1], votes, ties=ties
            )
            total += shares[list(calls)].prod() * estimate.per_question()[0]
        assert result == pytest.approx(total, abs=1e-13)


@pytest.mark.parametrize(("total", "parts"), [(0, 1), (0, 3), (5, 1), (1, 4), (6, 3)])
def test_compositions_are_all_of_them_in_order(total, parts):
    result = [ways for ways in product(range(total + 1), repeat=parts) if sum(ways) == total]
    assert compositions(total, parts).tolist() == [list(ways) for ways in result]
