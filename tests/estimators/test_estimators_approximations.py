"""The Gaussian estimator: the printed formula, its ends, and how far it is from the exact value;
simulated votes.
"""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from feval.estimators.approximations import (
    MODES,
    gaussian_estimate,
    monte_carlo_plurality_accuracy,
    plurality_credit,
)
from feval.estimators.multinomial import plurality_accuracy
from feval.estimators.per_question import TIES

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


ONE = np.array([0.5]), np.array([[0.3, 0.1]]), np.array([0.1])


@pytest.mark.parametrize("ties", TIES)
def test_credits_by_hand(ties):
    gold = np.array([3, 2, 1, 0, 0, 2])
    rivals = np.array([[1, 1], [2, 0], [1, 1], [0, 0], [4, 0], [3, 2]])
    tie = {"uniform": [0.5, 1 / 3], "strict": [0.0, 0.0], "lenient": [1.0, 1.0]}[ties]
    assert plurality_credit(gold, rivals, ties=ties).tolist() == [1.0, *tie, 0.0, 0.0, 0.0]
    assert plurality_credit(np.array([1, 0]), np.zeros((2, 0), int), ties=ties).tolist() == [
        1.0,
        0.0,
    ]


def test_simulated_votes_of_a_certain_answer_are_certain():
    law = np.array([1.0, 0.0, 0.0]), np.array([[0.0], [1.0], [0.0]]), np.array([0.0, 0.0, 1.0])
    result = monte_carlo_plurality_accuracy(*law, [1, 7], replicates=50).per_question()
    assert result.tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]


def test_simulated_votes_depend_on_seed_and_key_only():
    two = [np.repeat(array, 2, axis=0) for array in ONE]
    both = monte_carlo_plurality_accuracy(
        *two, [3, 9], seed=5, keys=np.array([70, 8])
    ).per_question()
    alone = monte_carlo_plurality_accuracy(*ONE, [9, 3], seed=5, keys=np.array([8])).per_question()
    assert both[1].tolist() == alone[0, ::-1].tolist()
    assert both[0].tolist() != both[1].tolist()
    other = monte_carlo_plurality_accuracy(*ONE, [9, 3], seed=6, keys=np.array([8])).per_question()
    assert other.tolist() != alone.tolist()


def test_the_first_replicates_and_votes_of_more_are_those_of_fewer():
    shorter = monte_carlo_plurality_accuracy(*ONE, [2], replicates=1, seed=3).per_question()[0, 0]
    longer = monte_carlo_plurality_accuracy(*ONE, [2, 30], replicates=1, seed=3).per_question()[
        0, 0
    ]
    assert shorter == longer
