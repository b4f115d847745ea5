"""The Gaussian estimator: the printed formula, its ends, and how far it is from the exact value."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feval.estimators.approximations import MODES, gaussian_estimate
from feval.estimators.multinomial import plurality_accuracy

PHI = NormalDist().cdf


def estimate(correct, rivals, votes, mode="guarded"):
    array = np.array([rivals], np.float64).reshape(1, -1)
    return float(
        gaussian_estimate(np.array([correct]), array, [votes], mode=mode).per_question()[0, 0]
    )


def printed(correct, rivals, votes, mode):
    """Eqs. (8) to (10), rival by rival."""
    if mode == "guarded":
        rivals = [p for p in rivals if p > 0]
        if correct == 0:
            return 0.0
    value = 1.0 if rivals or correct else 0.0
    for p in rivals:
        variance = (
            correct * (1 - correct) + p * (1 - p) + (2 * correct * p if mode == "paircov" else 0)
        )
        value *= (
            PHI(math.sqrt(votes) * (correct - p) / math.sqrt(variance))
            if variance
            else float(correct > p)
        )
    return value


@given(
    st.integers(0, 6),
    st.lists(st.integers(0, 4), max_size=4),
    st.integers(0, 3),
    st.integers(1, 200),
    st.sampled_from(MODES),
)
@settings(max_examples=200, deadline=None)
def test_equals_the_printed_formula(gold, others, none, votes, mode):
    size = max(gold + sum(others) + none, 1)
    rivals = [c / size for c in others]
    assert estimate(gold / size, rivals, votes, mode) == pytest.approx(
        printed(gold / size, rivals, votes, mode), abs=1e-13
    )


@pytest.mark.parametrize("mode", MODES)
def test_zero_variance_is_certainty(mode):
    assert estimate(1.0, [0.0], 3, mode) == 1.0
    assert estimate(0.0, [1.0], 3, mode) == 0.0
    assert estimate(0.0, [0.0], 3, mode) == 0.0
    assert estimate(0.0, [], 3, mode) == 0.0
    assert estimate(1.0, [], 3, mode) == 1.0


def test_listed_rivals_that_nobody_answered_change_the_literal_value_only():
    assert estimate(0.6, [0.4, 0.0], 5, "guarded") == estimate(0.6, [0.4], 5, "literal")
    assert (
        estimate(0.6, [0.4, *[0.0] * 98], 5, "literal")
        < 0.5 * estimate(0.6, [0.4], 5, "literal") + 0.4
    )
    assert estimate(0.0, [0.5, 0.5], 1, "literal") > 0.02
    assert estimate(0.0, [0.5, 0.5], 1, "guarded") == 0.0


def test_it_is_exact_where_voting_is_a_coin_and_fails_with_many_rivals():
    assert estimate(0.5, [0.5], 9) == 0.5
    assert estimate(0.2, [0.1] * 8, 10) == pytest.approx(0.087, abs=5e-4)
    law = np.array([0.2]), np.array([[0.1] * 8]), np.array([0.0])
    assert plurality_accuracy(*law, [10]).per_question()[0, 0] == pytest.approx(0.329, abs=5e-4)
