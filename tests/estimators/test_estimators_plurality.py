"""The exact accuracy equals enumeration, exact fractions, hypergeometric tails and the reference
values.
"""

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from real_files import golden, real_codes
from vote_cases import credit, one_question, questions

from feval.estimators.per_question import TIES
from feval.estimators.plurality import (
    g_pass_at_k,
    mg_pass_at_k,
    pass_at_k,
    pass_hat_k,
    subset_plurality_accuracy,
    vote_counts,
)

SMALL_POOLS = st.tuples(
    st.integers(0, 5), st.lists(st.integers(0, 4), max_size=3), st.integers(0, 3)
).filter(lambda pool: 1 <= pool[0] + sum(pool[1]) + pool[2] <= 8)


def accuracies(gold, rivals, no_answer, ties="uniform"):
    """The estimate for one question, every n."""
    size = gold + sum(rivals) + no_answer
    counts = one_question(gold, rivals, no_answer)
    return list(subset_plurality_accuracy(*counts, range(1, size + 1), ties=ties).per_question()[0])


def enumerated(gold, rivals, no_answer, n, ties):
    """Every subset of n samples."""
    pool = [1] * gold + [j + 2 for j, c in enumerate(rivals) for _ in range(c)] + [0] * no_answer
    return sum(credit(subset, ties) for subset in combinations(pool, n)) / comb(len(pool), n)


def in_fractions(gold, rivals, no_answer):
    """The generating function of the module's docstring, unabridged: every k, every tie, in
    integers.
    """
    size = gold + sum(rivals) + no_answer
    total = [Fraction(0)] * (size + 1)
    for k in range(1, gold + 1):
        # ties[t][d]: t rivals at exactly k, d samples
        ties = [[comb(no_answer, i) for i in range(size + 1)]]
        for c in rivals:
            longer = [[0] * (size + 1) for _ in range(len(ties) + 1)]
            for t, polynomial in enumerate(ties):
                for d, ways in enumerate(polynomial):
                    if ways:
                        for i in range(min(k, c, size - d) + 1):
                            longer[t + (i == k)][d + i] += ways * comb(c, i)
            ties = longer
        for t, polynomial in enumerate(ties):
            for d in range(size + 1 - k):
                total[d + k] += Fraction(comb(gold, k) * polynomial[d], t + 1)
    return [total[n] / comb(size, n) for n in range(1, size + 1)]


@given(SMALL_POOLS, st.sampled_from(TIES))
@example((1, [1, 1, 1], 0), "uniform")
@example((2, [2, 2, 2], 0), "strict")
@example((1, [1, 1], 2), "lenient")
@example((0, [], 4), "uniform")
@example((4, [], 4), "uniform")
@example((3, [3], 2), "uniform")
@settings(max_examples=200, deadline=None)
def test_equals_enumeration_of_all_subsets(pool, ties):
    exact = [enumerated(*pool, n, ties) for n in range(1, pool[0] + sum(pool[1]) + pool[2] + 1)]
    assert accuracies(*pool, ties) == pytest.approx([float(p) for p in exact], abs=1e-14)


@pytest.mark.parametrize(
    ("gold", "rivals", "no_answer"),
    [
        (20, [12, 5], 3),
        (10, [10, 10, 10], 0),
        (13, [13, 13], 1),
        (9, [8, 7, 6, 5, 3, 1, 1], 0),
        (5, [5] * 7, 0),
        (4, [4] * 5 + [3] * 5, 1),
        (2, [2] * 19, 0),
        (1, [1] * 45, 4),
        (3, [2] * 10 + [1] * 27, 0),
        (30, [29], 1),
        (40, [], 0),
        (1, [39], 0),
        (25, [24, 20, 9, 2], 20),
        (90, [60, 40], 10),
        (70, [66, 50, 14], 0),
        (12, [9] * 12, 0),
    ],
)
def test_equals_exact_fractions(gold, rivals, no_answer):
    exact = in_fractions(gold, rivals, no_answer)
    assert accuracies(gold, rivals, no_answer) == pytest.approx(
        [float(p) for p in exact], rel=1e-12, abs=1e-13
    )


def test_certain_outcomes_are_exact():
    assert accuracies(40, [], 0) == [1.0] * 40
    assert accuracies(0, [25, 15], 0) == [0.0] * 40
    assert accuracies(0, [], 40) == [0.0] * 40
    assert accuracies(21, [19], 0)[-1] == 1.0
    assert accuracies(19, [21], 0)[-1] == 0.0
    assert accuracies(20, [20], 0)[-1] == 0.5
    assert accuracies(10, [10, 10, 10], 0)[-1] == pytest.approx(0.25, rel=1e-15)
    assert accuracies(1, [], 0) == [1.0]
    assert accuracies(0, [1], 0) == [0.0]


@given(st.lists(SMALL_POOLS, min_size=1, max_size=6), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_a_question_is_estimated_alone_whatever_stands_beside_it(pools, rng):
    smallest = min(gold + sum(rivals) + none for gold, rivals, none in pools)
    draws = list(range(smallest, 0, -1))
    together = subset_plurality_accuracy(*questions(pools, rng), draws)
    alone = [accuracies(*pool)[:smallest][::-1] for pool in pools]
    assert together.per_question() == pytest.approx(np.array(alone), abs=1e-14)
    assert together.mean() == pytest.approx(np.mean(alone, axis=0), abs=1e-14)


def test_no_question_gives_no_values():
    none = subset_plurality_accuracy(
        np.zeros(0, int), np.zeros((0, 3), int), np.zeros(0, int), [1, 2]
    )
    assert none.per_question().shape == (0, 2)
    assert pass_at_k(np.zeros(0, int), np.zeros(0, int), [1]).per_question().shape == (0, 1)


def test_small_integer_types_do_not_overflow():
    counts = np.array([200], np.uint8), np.array([[199, 180]], np.uint8), np.array([21], np.uint8)
    wide = subset_plurality_accuracy(*(c.astype(int) for c in counts), [1, 300, 600]).per_question()
    assert subset_plurality_accuracy(*counts, [1, 300, 600]).per_question() == pytest.approx(
        wide, rel=1e-15
    )


def mean_accuracy(shared, name, n, *, no_answer_votes=False):
    counts = vote_counts(*real_codes(shared, name))
    rivals, no_answer = counts.rivals, counts.no_answer
    if no_answer_votes:
        rivals, no_answer = np.column_stack([rivals, no_answer]), np.zeros_like(no_answer)
    return float(subset_plurality_accuracy(counts.gold, rivals, no_answer, [n]).mean()[0])


def test_reference_values_of_the_exact_accuracy(shared):
    entries = golden(shared, "sc.exact.")
    assert len(entries) == 6
    for name, entry in entries.items():
        [source] = entry["inputs"]
        accuracy = mean_accuracy(shared, source, entry["params"]["N"])
        assert accuracy == pytest.approx(entry["expected"]["accuracy"], abs=1e-9), name
        assert accuracy == pytest.approx(float(Fraction(entry["expected"]["exact"])), abs=1e-12), (
            name
        )


def test_reference_values_with_and_without_votes_of_no_answers(shared):
    entries = golden(shared, "sc.none.")
    assert len(entries) == 5
    for name, entry in entries.items():
        n = entry["params"]["N"]
        assert mean_accuracy(shared, "date_pot1", n) == pytest.approx(
            entry["expected"]["drop"], abs=1e-9
        ), name
        voting = mean_accuracy(shared, "date_pot1", n, no_answer_votes=True)
        assert voting == pytest.approx(entry["expected"]["vote"], abs=1e-9), name


@given(st.integers(0, 12), st.integers(1, 12))
def test_pass_at_k_counts_the_subsets_with_a_gold_answer(gold, size):
    gold = min(gold, size)
    exact = [1 - Fraction(comb(size - gold, n), comb(size, n)) for n in range(1, size + 1)]
    values = pass_at_k(np.array([gold]), np.array([size]), range(1, size + 1)).per_question()[0]
    assert values == pytest.approx([float(p) for p in exact], abs=1e-15)


def test_pass_at_k_is_stable_in_large_pools():
    values = pass_at_k(
        np.array([1, 5000, 10_000]), np.array([10_000] * 3), [1, 100, 9999, 10_000]
    ).per_question()
    assert values[0] == pytest.approx([1e-4, 1e-2, 0.9999, 1.0], rel=1e-9)
    assert values[1, 0] == 0.5
    assert values[2].tolist() == [1.0] * 4


@st.composite
def pools_of_calls(draw):
    size = draw(st.integers(1, 8))
    return draw(st.integers(0, size)), size, draw(st.integers(1, size))


def all_draws(right, size, k, worth):
    """The mean of what a number of right calls is worth, over every draw of k."""
    drawn = [sum(calls) for calls in combinations([1] * right + [0] * (size - right), k)]
    return float(sum(Fraction(worth(number)) for number in drawn) / len(drawn))


@given(pools_of_calls(), st.fractions(0, 1, max_denominator=12))
def test_measures_of_calls_are_means_over_all_draws(pool, threshold):
    right, size, k = pool

    def measured(estimator, *more):
        return estimator(np.array([right]), np.array([size]), [k], *more).mean()[0]

    def expected(worth):
        return pytest.approx(all_draws(right, size, k, worth), abs=1e-14)

    def reaches(share):
        return lambda number: number >= 1 and Fraction(number, k) >= share

    assert measured(pass_hat_k) == expected(lambda number: number == k)
    assert measured(g_pass_at_k, threshold) == expected(reaches(threshold))
    assert measured(g_pass_at_k, 0) == pytest.approx(measured(pass_at_k), abs=1e-14)
    assert measured(g_pass_at_k, "1") == measured(pass_hat_k)
    if k % 2 == 0:
        shares = [Fraction(i, k) for i in range(k // 2 + 1, k + 1)]
        mean = 2 * sum(measured(g_pass_at_k, share) for share in shares) / k
        assert measured(mg_pass_at_k) == pytest.approx(mean, abs=1e-14)


def test_a_threshold_counts_as_it_is_written():
    # as floats 0.1 x 30 is above 3, and 0.7 x 10 is 7
    three_of_thirty = np.array([3]), np.array([30])
    for threshold in (0.1, "0.1", "1/10", np.float64(0.1), Fraction(1, 10)):
        reached = g_pass_at_k(*three_of_thirty, [30], threshold).mean()
        assert reached == pytest.approx([1.0], abs=1e-14)
    assert g_pass_at_k(*three_of_thirty, [30], "0.1001").mean() == [0.0]


def test_measures_of_calls_take_large_pools_and_any_order_of_ks():
    right, size = np.array([9000, 5, 9000]), np.array([10_000, 10_000, 10_000])
    exact = [float(Fraction(comb(9000, k), comb(10_000, k))) for k in (500, 1)]
    values = pass_hat_k(right, size, [500, 1]).per_question()
    assert values[0] == pytest.approx(exact, rel=1e-11)
    assert values[1, 0] == 0.0
    assert values[2].tolist() == values[0].tolist()
