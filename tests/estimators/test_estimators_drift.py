"""Drift: both tests against enumeration with SciPy's statistics, their level, their power, and
inputs that cannot be.
"""

import math
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import chi2_contingency, rankdata

from feval.estimators.comparisons import drift, holm


def compared(cots, **options):
    columns = [np.array(column, dtype=np.int64) for column in zip(*cots, strict=True)]
    return drift(columns[0], columns[1], columns[2], columns[3].astype(bool), **options)


def by_question(cots):
    groups = [
        [cot for cot in cots if cot[0] == question] for question in sorted({cot[0] for cot in cots})
    ]
    return [group for group in groups if 0 < sum(cot[3] for cot in group) < len(group)]


def chi_square(group, places_of_new):
    kinds = sorted({cot[1] for cot in group})
    if len(kinds) == 1:
        return 0.0
    table = np.zeros((2, len(kinds)))
    for place, cot in enumerate(group):
        table[int(place in places_of_new), kinds.index(cot[1])] += 1
    return float(chi2_contingency(table, correction=False).statistic)


def van_elteren(group, places_of_new):
    ranks = [Fraction(float(rank)) for rank in rankdata([cot[2] for cot in group])]
    size = len(group)
    return float(
        (
            sum(ranks[place] for place in places_of_new)
            - Fraction(len(places_of_new) * (size + 1), 2)
        )
        / (size + 1)
    )


def brute_force(cots):
    """p of answers and of lengths, and the number of arrangements."""
    groups = by_question(cots)
    observed = [tuple(place for place, cot in enumerate(group) if cot[3]) for group in groups]
    ways = list(
        product(
            *(combinations(range(len(g)), len(o)) for g, o in zip(groups, observed, strict=True))
        )
    )
    answers = [sum(map(chi_square, groups, way)) for way in ways]
    lengths = [abs(sum(map(van_elteren, groups, way))) for way in ways]
    mine = sum(map(chi_square, groups, observed)), abs(sum(map(van_elteren, groups, observed)))
    p_answers = sum(one >= mine[0] - 1e-9 for one in answers) / len(ways)
    return p_answers, sum(one >= mine[1] - 1e-9 for one in lengths) / len(ways), len(ways)


@st.composite
def small_cots(draw):
    """One to three questions of two to four CoTs; at least one has old and new ones."""
    cots = []
    for question in range(draw(st.integers(1, 3))):
        cot = st.tuples(st.just(question), st.integers(-1, 1), st.integers(1, 4), st.booleans())
        cots += draw(st.lists(cot, min_size=2, max_size=4))
    return [*cots, (9, 0, 1, True), (9, draw(st.integers(0, 1)), draw(st.integers(1, 3)), False)]


@settings(max_examples=25, deadline=None)
@given(small_cots(), st.randoms(use_true_random=False))
def test_small_cases_are_enumerated(cots, shuffler):
    shuffler.shuffle(cots)
    result = compared(cots)
    p_answers, p_lengths, ways = brute_force(cots)
    assert (result.exact, result.arrangements) == (True, ways)
    assert result.answers.p_value == pytest.approx(p_answers, rel=1e-12)
    assert result.lengths.p_value == pytest.approx(p_lengths, rel=1e-12)
    groups = by_question(cots)
    observed = [tuple(place for place, cot in enumerate(group) if cot[3]) for group in groups]
    assert result.answers.statistic == pytest.approx(
        sum(map(chi_square, groups, observed)), abs=1e-12
    )
    assert result.lengths.statistic == pytest.approx(
        sum(map(van_elteren, groups, observed)), abs=1e-12
    )
    assert [result.answers.p_holm, result.lengths.p_holm] == holm(
        [result.answers.p_value, result.lengths.p_value]
    ).tolist()


def test_by_hand():
    """Two old CoTs say 1 in 10 tokens, two new ones 2 in 20: of 6 arrangements, this one and its
    mirror are the farthest.
    """
    result = compared([(0, 1, 10, False), (0, 1, 10, False), (0, 2, 20, True), (0, 2, 20, True)])
    # the chi-square of a 2 x 2 table that is all on its diagonal
    assert result.answers.statistic == pytest.approx(4.0)
    assert result.lengths.statistic == pytest.approx((3.5 + 3.5 - 5) / 5)
    assert result.answers.p_value == result.lengths.p_value == pytest.approx(2 / 6)
    assert result.answers.p_holm == pytest.approx(4 / 6)
    assert result.distance == pytest.approx(1.0)
    assert result.expected_distance == pytest.approx(2 / 6)
    assert (result.old_tokens, result.new_tokens, result.questions) == (10, 20, 1)


def many(questions, old, new, seed, *, shifted=0.0, longer=0):
    random = np.random.default_rng(seed)
    cots = []
    for question in range(questions):
        share = random.uniform(0.2, 0.8)
        for place in range(old + new):
            is_new = place >= old
            right = random.random() < share + (shifted if is_new else 0.0)
            tokens = int(random.integers(50, 150)) + (longer if is_new else 0)
            cots.append((question, int(right), tokens, is_new))
    return cots


def test_sampled_arrangements_agree_with_enumerated_ones():
    cots = many(3, 3, 3, 1, longer=20)
    exact, sampled = compared(cots, resamples=8000), compared(cots, resamples=7999)
    assert (exact.exact, exact.arrangements) == (True, 20**3)
    assert (sampled.exact, sampled.arrangements) == (False, 7999)
    for name in ("answers", "lengths"):
        p = getattr(exact, name).p_value
        allowed = 4 * math.sqrt(p * (1 - p) / 7999) + 1 / 8000
        assert abs(getattr(sampled, name).p_value - p) < allowed
        assert getattr(sampled, name).statistic == getattr(exact, name).statistic
    assert sampled.expected_distance == pytest.approx(exact.expected_distance, abs=0.01)


def test_a_change_of_answers_alone_is_seen_in_the_answers():
    result = compared(many(40, 10, 10, 5, shifted=-0.3), resamples=999)
    assert result.answers.p_holm < 0.01 < result.lengths.p_holm
    assert result.distance > result.expected_distance


def test_harder_questions_with_more_new_cots_are_no_drift():
    """Simpson's trap: pooled, the new CoTs are longer and other; within every question they are the
    same.
    """
    easy = [(0, 1, 10 + place % 3, place < 2) for place in range(12)]
    hard = [(1, 2, 100 + place % 3, place >= 2) for place in range(12)]
    result = compared(easy + hard)
    assert result.answers.p_value == 1.0
    assert result.answers.statistic == 0.0
    assert result.lengths.p_value > 0.3


def test_the_same_seed_gives_the_same_numbers():
    cots = many(10, 6, 6, 3)
    assert compared(cots, resamples=499, seed=7) == compared(cots, resamples=499, seed=7)
    assert compared(cots, resamples=499, seed=7) != compared(cots, resamples=499, seed=8)


@pytest.mark.parametrize(
    "cots", [[(0, 1, 5, False), (0, 1, 6, False)], [(0, 1, 5, False), (1, 1, 6, True)]]
)
def test_without_old_and_new_cots_of_one_question_there_is_a_reason(cots):
    result = compared(cots)
    assert math.isnan(result.answers.p_value)
    assert math.isnan(result.lengths.p_holm)
    assert math.isnan(result.distance)
    assert (result.questions, result.arrangements) == (0, 0)
    assert result.reasons == (
        "No question has both old and new CoTs, so there is nothing to compare.",
    )


def test_nothing_at_all_has_a_reason_too():
    empty = np.zeros(0, dtype=np.int64)
    assert drift(empty, empty, empty, empty.astype(bool)).reasons
