"""The exact plurality accuracy of independent calls equals enumeration, integer arithmetic,
binomial tails and simulation.
"""

from collections import Counter
from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from feval.estimators.multinomial import circles, plugin_plurality_accuracy, plurality_accuracy
from feval.estimators.per_question import MOST_VOTES, TIES

POOLS = st.tuples(
    st.integers(0, 6), st.lists(st.integers(0, 6), max_size=3), st.integers(0, 4)
).filter(lambda pool: pool[0] + sum(pool[1]) + pool[2] >= 1)


def estimates(gold, rivals, no_answer, votes, ties="uniform"):
    """The plug-in for one question."""
    counts = np.array([gold]), np.array([rivals], np.int64).reshape(1, -1), np.array([no_answer])
    return plugin_plurality_accuracy(*counts, votes, ties=ties).per_question()[0].tolist()


def credit(leaders, ties):
    return {
        "uniform": Fraction(1, leaders),
        "strict": Fraction(leaders == 1),
        "lenient": Fraction(1),
    }[ties]


def enumerated(gold, rivals, no_answer, votes, ties):
    """Every sequence of calls."""
    weights = [no_answer, gold, *rivals]
    total = Fraction(0)
    for calls in product(range(len(weights)), repeat=votes):
        counts = Counter(call for call in calls if call)
        top = max(counts.values(), default=0)
        if top and counts[1] == top:
            weight = 1
            for call in calls:
                weight *= weights[call]
            total += weight * credit(sum(count == top for count in counts.values()), ties)
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
        total += sum(orders * row[room] * credit(t + 1, ties) for t, row in enumerate(ways))
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
    ("gold", "rivals", "no_answer"),
    [
        (4, [3, 2], 1),
        (1, [9], 0),
        (9, [1], 0),
        (5, [5], 0),
        (2, [2, 2, 2], 2),
        (3, [1] * 7, 0),
        (1, [1] * 11, 0),
        (7, [6, 6, 1], 40),
        (999, [1], 0),
    ],
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
    padded = [rng.sample(rivals + [0] * (4 - len(rivals)), 4) for _, rivals, _ in pools]
    votes = [60, 1, 17, 17, 200]
    together = plugin_plurality_accuracy(
        np.array([g for g, _, _ in pools]),
        np.array(padded),
        np.array([z for _, _, z in pools]),
        votes,
        ties=ties,
    )
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
