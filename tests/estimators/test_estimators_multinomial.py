"""The exact plurality accuracy of independent calls equals enumeration, integer arithmetic,
binomial tails and simulation; the plug-in's expectation from few calls, and what is unbiased.
"""

from fractions import Fraction
from itertools import product
from math import comb, prod

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from places import read_data
from vote_cases import SHARES, credit, one_question, questions

from feval.estimators.multinomial import (
    circles,
    plugin_expectation,
    plugin_plurality_accuracy,
    plurality_accuracy,
    unbiased_plurality_accuracy,
)
from feval.estimators.per_question import MOST_VOTES, TIES, compositions
from feval.estimators.plurality import subset_plurality_accuracy

POOLS = st.tuples(
    st.integers(0, 6), st.lists(st.integers(0, 6), max_size=3), st.integers(0, 4)
).filter(lambda pool: pool[0] + sum(pool[1]) + pool[2] >= 1)


def estimates(gold, rivals, no_answer, votes, ties="uniform"):
    """The plug-in for one question."""
    counts = one_question(gold, rivals, no_answer)
    return plugin_plurality_accuracy(*counts, votes, ties=ties).per_question()[0].tolist()


def enumerated(gold, rivals, no_answer, votes, ties):
    """Every sequence of calls."""
    weights = [no_answer, gold, *rivals]
    total = sum(
        credit(calls, ties) * prod(weights[call] for call in calls)
        for calls in product(range(len(weights)), repeat=votes)
    )
    return total / sum(weights) ** votes


def in_integers(gold, rivals, no_answer, votes, ties="uniform"):
    """Sequences counted answer by answer: ways[t][n] of n calls in which t rivals have exactly k
    votes and none has more.
    """
    total = Fraction(0)
    for k in range(1, votes + 1):
        room = votes - k
        ways = [[no_answer**n for n in range(room + 1)]]
        for c in rivals:
            longer = [[0] * (room + 1) for _ in range(len(ways) + 1)]
            for t, row in enumerate(ways):
                for n, count in enumerate(row):
                    for i in range(min(k, room - n) + 1) if count else ():
                        longer[t + (i == k)][n + i] += count * comb(n + i, i) * c**i
            ways = longer
        orders = comb(votes, k) * gold**k
        total += sum(orders * row[room] * SHARES[ties](t + 1) for t, row in enumerate(ways))
    return total / (gold + sum(rivals) + no_answer) ** votes


@given(POOLS, st.integers(1, 6), st.sampled_from(TIES))
@example((1, [1, 1, 1], 0), 6, "uniform")
@example((0, [], 3), 4, "uniform")
@example((3, [], 0), 4, "strict")
@example((0, [2], 0), 4, "lenient")
@settings(max_examples=120, deadline=None)
def test_equals_enumeration_of_all_sequences(pool, votes, ties):
    exact = float(enumerated(*pool, votes, ties))
    assert estimates(*pool, [votes], ties)[0] == pytest.approx(exact, abs=1e-14)
    assert estimates(*pool, range(1, 101), ties)[votes - 1] == pytest.approx(exact, abs=1e-13)


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize(
    ("gold", "rivals", "no_answer"), read_data("estimators.json")["pools in integers"]
)
def test_equals_integer_arithmetic(gold, rivals, no_answer, ties):
    curve = estimates(gold, rivals, no_answer, range(1, 41), ties)
    for votes in (1, 2, 3, 7, 12, 13, 14, 25, 39, 40):
        exact = float(in_integers(gold, rivals, no_answer, votes, ties))
        assert curve[votes - 1] == pytest.approx(exact, abs=1e-13)
        assert estimates(gold, rivals, no_answer, [votes], ties)[0] == pytest.approx(
            exact, abs=1e-13
        )


@pytest.mark.parametrize(
    ("gold", "rivals", "no_answer"), [(4, [3, 2], 1), (1, [2], 7), (3, [3, 3], 1)]
)
def test_equals_integer_arithmetic_for_many_votes(gold, rivals, no_answer):
    curve = estimates(gold, rivals, no_answer, range(1, 121))
    for votes in (70, 100, 119):
        assert curve[votes - 1] == pytest.approx(
            float(in_integers(gold, rivals, no_answer, votes)), abs=1e-13
        )


def test_a_hundred_candidates():
    rivals = [1] * 60 + [2] * 39
    curve = estimates(2, rivals, 3, range(1, 101))
    for votes in (3, 9):
        assert curve[votes - 1] == pytest.approx(float(in_integers(2, rivals, 3, votes)), abs=1e-14)
    assert estimates(1, [1] * 99, 0, [1, 2, 10, 100, 1001]) == pytest.approx([0.01] * 5, abs=1e-14)


@pytest.mark.parametrize("p", [0.0, 1e-9, 0.1, 0.3, 0.499, 0.5, 0.501, 0.7, 1 - 1e-9, 1.0])
def test_two_candidates_follow_the_binomial_distribution(p):
    from scipy.stats import binom

    votes = np.array([1, 2, 3, 4, 11, 50, 100, 101, 500, 1000, 1001])
    mass = binom.pmf(votes // 2, votes, p) * (votes % 2 == 0)
    strict = binom.sf(votes // 2, votes, p)
    worth = {"uniform": 0.5, "strict": 0.0, "lenient": 1.0}
    for ties, share in worth.items():
        values = plurality_accuracy(
            np.array([p]), np.array([[1 - p]]), np.array([0.0]), votes, ties=ties
        ).per_question()
        assert values[0] == pytest.approx(strict + share * mass, abs=2e-12), ties


@pytest.mark.parametrize("top", [100, 1001])
def test_the_chances_of_all_candidates_and_of_no_vote_sum_to_one(top):
    pool, no_answer = np.array([40, 30, 15, 5, 5, 1, 1]), 3
    others = np.array([np.delete(pool, i) for i in range(len(pool))])
    votes = np.unique(np.linspace(1, top, 60).astype(int))
    wins = plugin_plurality_accuracy(
        pool, others, np.full(len(pool), no_answer), votes
    ).per_question()
    assert wins.sum(axis=0) + (no_answer / 100) ** votes == pytest.approx(
        np.ones(len(votes)), abs=1e-12
    )


def test_the_largest_number_of_votes_is_exact_too():
    from scipy.stats import binom

    values = estimates(505, [495], 0, [MOST_VOTES - 1, MOST_VOTES])
    assert values == pytest.approx(
        [binom.sf(MOST_VOTES // 2 - 1, MOST_VOTES - 1, 0.505)] * 2, abs=1e-11
    )


@given(
    st.lists(POOLS, min_size=1, max_size=6),
    st.sampled_from(TIES),
    st.randoms(use_true_random=False),
)
@settings(max_examples=12, deadline=None)
def test_a_question_is_estimated_alone_whatever_stands_beside_it(pools, ties, rng):
    votes = [60, 1, 17, 17, 200]
    together = plugin_plurality_accuracy(*questions(pools, rng), votes, ties=ties)
    alone = np.array([estimates(*pool, votes, ties) for pool in pools])
    assert together.per_question() == pytest.approx(alone, abs=1e-13)
    assert together.mean() == pytest.approx(alone.mean(axis=0), abs=1e-13)


def test_windows_of_votes_join_without_a_seam():
    votes = np.arange(1, 1002)
    windows = circles(votes)
    assert np.concatenate([w.votes for w in windows]).tolist() == votes.tolist()
    assert len(windows) <= 12
    curve = np.array(estimates(6, [5, 3], 2, votes.tolist()))
    edges = [w.high for w in windows[:-1]]
    alone = [estimates(6, [5, 3], 2, [m])[0] for m in edges]
    assert curve[np.array(edges) - 1] == pytest.approx(alone, abs=1e-13)


def test_no_question_gives_no_values():
    none = plugin_plurality_accuracy(
        np.zeros(0, int), np.zeros((0, 3), int), np.zeros(0, int), [1, 2]
    )
    assert none.per_question().shape == (0, 2)
    none = plurality_accuracy(np.zeros(0), np.zeros((0, 3)), np.zeros(0), [1, 2])
    assert none.per_question().shape == (0, 2)


TINY = st.sampled_from([0.0, 5e-324, 1e-300, 1e-16, 1e-9, 1e-3, 0.25])


@pytest.mark.slow
@given(st.lists(TINY, min_size=1, max_size=5), st.booleans(), st.sampled_from(TIES))
@example([5e-324, 0.25], True, "uniform")
@settings(max_examples=40, deadline=None)
def test_probabilities_next_to_zero_and_one_lose_nothing(shares, answers, ties):
    if sum(shares) > 1:
        shares = [p / sum(shares) for p in shares]
    rest = max(0.0, 1.0 - sum(shares))
    if answers:
        shares, rest = [*shares, rest], 0.0
    votes = np.array([1, 2, 3, 10, 31, 100, 1001])
    others = [np.array([shares[:i] + shares[i + 1 :]]).reshape(1, -1) for i in range(len(shares))]
    laws = [
        (np.array([p]), rivals, np.array([rest])) for p, rivals in zip(shares, others, strict=True)
    ]
    wins = np.array([plurality_accuracy(*law, votes, ties=ties).per_question()[0] for law in laws])
    assert (wins >= 0).all()
    assert (wins <= 1).all()
    if ties == "uniform":
        assert wins.sum(axis=0) == pytest.approx(1 - rest**votes, abs=1e-12)


LAWS = st.lists(st.integers(0, 5), min_size=2, max_size=4).filter(sum)


def law(weights):
    """No answer last."""
    shares = np.array(weights) / sum(weights)
    return shares[:1], shares[None, 1:-1], shares[-1:]


@pytest.mark.slow
@given(LAWS, st.integers(1, 7))
@settings(max_examples=12, deadline=None)
def test_as_votes_grow_the_plugin_tells_the_accuracy_of_g_votes(weights, calls):
    result = plugin_expectation(*law(weights), calls, [4001]).per_question()[0, 0]
    true = plurality_accuracy(*law(weights), [calls]).per_question()[0, 0]
    assert result == pytest.approx(true, abs=5e-3)


def test_the_example_of_the_docs():
    two = law([55, 45, 0])
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
    alone = subset_plurality_accuracy(*one_question(3, [2], 0), [1, 4, 5]).per_question()
    assert values[0, :3].tolist() == alone[0].tolist()


def test_many_calls_over_two_answers_are_enumerated():
    two = law([6, 4, 0])
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
