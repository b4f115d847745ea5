"""Simulated votes: the Monte-Carlo estimator of voting accuracy."""

import numpy as np
import pytest

from feval.estimators.approximations import monte_carlo_plurality_accuracy, plurality_credit
from feval.estimators.per_question import TIES

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
