"""Coupled generation: closed forms against the race itself, statistics of recorded pairs against
enumeration.
"""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from feval.estimators.coupling import (
    coupled_correctness,
    coupled_statistics,
    equal_error_samples,
    estimation_error,
    gumbel_coupling_joint,
    score_difference_variance,
)
from feval.estimators.winrates import (
    average_winrates,
    ranked_winrates,
    ranking_change,
    sampled_winrates,
    scored_winrates,
    two_token_winrates,
)

# Zeros and numbers of very different size are where closed forms go wrong.
WEIGHTS = st.one_of(st.just(0.0), st.floats(1e-300, 1.0), st.floats(0.01, 1.0))


@st.composite
def two_laws(draw, most=6):
    size = draw(st.integers(1, most))
    laws = []
    for _ in range(2):
        weights = np.array(draw(st.lists(WEIGHTS, min_size=size, max_size=size)))
        if weights.sum() < 1e-290:
            weights[draw(st.integers(0, size - 1))] = 1.0
        laws.append(weights / weights.sum())
    return laws[0], laws[1]


def test_drawn_noise_gives_the_joint_law():
    noise = np.random.default_rng(1).exponential(size=(200_000, 4))
    p, q = np.array([0.5, 0.0, 0.3, 0.2]), np.array([0.1, 0.2, 0.0, 0.7])
    with np.errstate(divide="ignore"):
        first, second = (noise / p).argmin(axis=1), (noise / q).argmin(axis=1)
    shares = np.zeros((4, 4))
    np.add.at(shares, (first, second), 1.0 / len(noise))
    assert shares == pytest.approx(gumbel_coupling_joint(p, q), abs=0.006)  # five standard errors


@given(two_laws())
def test_a_coupling_has_its_margins_and_is_stable(laws):
    p, q = laws
    joint = gumbel_coupling_joint(p, q)
    assert joint.sum(axis=1) == pytest.approx(p, abs=1e-14)
    assert joint.sum(axis=0) == pytest.approx(q, abs=1e-14)
    assert (joint >= 0).all()
    assert joint == pytest.approx(gumbel_coupling_joint(q, p).T, abs=1e-14)
    same = np.diag(joint)
    assert (same >= p * q - 1e-15).all()
    assert (same <= np.minimum(p, q) + 1e-15).all()
    for i, j in permutations(range(len(p)), 2):
        if p[i] * q[j] <= p[j] * q[i]:
            assert joint[i, j] <= 1e-16, "counterfactual stability"


@given(two_laws(), st.data())
def test_right_answers_are_never_negatively_correlated(laws, data):
    p, q = laws
    right = np.array(data.draw(st.lists(st.booleans(), min_size=len(p), max_size=len(p))))
    joint = gumbel_coupling_joint(p, q)
    raw = joint[np.ix_(right, right)].sum() - p[right].sum() * q[right].sum()
    assert raw >= -1e-14
    result = coupled_correctness(p, q, right)
    assert result.both == pytest.approx(joint[np.ix_(right, right)].sum(), abs=1e-14)
    assert result.covariance == pytest.approx(raw, abs=1e-14)
    assert result.variance_independent - result.variance_coupled == pytest.approx(
        2 * raw, abs=1e-13
    )
    assert result.variance_coupled >= 0


@given(st.floats(0, 1), st.floats(0, 1))
def test_two_answers_share_what_they_can(a, b):
    result = coupled_correctness([a, 1 - a], [b, 1 - b], [True, False])
    assert result.both == pytest.approx(min(a, b), abs=1e-14)
    rates = two_token_winrates(a, b)
    scored = scored_winrates([a, 1 - a], [b, 1 - b], [1.0, 0.0])
    assert scored.coupled == pytest.approx(rates.coupled, abs=1e-14)
    assert scored.independent == pytest.approx(rates.independent, abs=1e-14)


def test_identical_laws_always_agree_and_many_answers_are_no_trouble():
    law = np.random.default_rng(0).dirichlet(np.ones(500))
    assert np.trace(gumbel_coupling_joint(law, law)) == pytest.approx(1.0, abs=1e-12)
    several = np.random.default_rng(1).dirichlet(np.ones(30), size=(2, 7))
    right = np.zeros((7, 30), bool)
    right[:, 3] = True
    together = coupled_correctness(several[0], several[1], right)
    for question in range(7):
        alone = coupled_correctness(several[0][question], several[1][question], right[question])
        assert together.covariance[question] == pytest.approx(alone.covariance, abs=1e-16)


def test_the_variance_falls_by_twice_the_covariance_within_prompts():
    generator = np.random.default_rng(2)
    p, q = generator.dirichlet(np.ones(4), size=(2, 9))
    right = np.eye(4, dtype=bool)[generator.integers(4, size=9)]
    result = score_difference_variance(p, q, right)
    assert result.independent - result.coupled == pytest.approx(
        2 * result.within_covariance, abs=1e-15
    )
    a, b = (p * right).sum(axis=1), (q * right).sum(axis=1)
    # One Bernoulli each: over prompts and noise.
    mean = (a - b).mean()
    assert result.independent == pytest.approx(
        (a * (1 - b) + b * (1 - a)).mean() - mean**2, abs=1e-14
    )
    assert result.total_covariance == pytest.approx(
        result.within_covariance + np.cov(a, b, ddof=0)[0, 1], abs=1e-15
    )


@given(st.integers(2, 4), st.integers(2, 5), st.randoms(use_true_random=False))
def test_coupled_statistics_are_sample_covariances(questions, calls, random):
    x, y = (
        np.array([[random.randint(0, 1) for _ in range(calls)] for _ in range(questions)])
        for _ in range(2)
    )
    result = coupled_statistics(x, y)
    for q in range(questions):
        [[one, cov], [_, two]] = np.cov(x[q], y[q])
        assert result.covariance[q] == pytest.approx(cov, abs=1e-15)
        assert result.variance_independent[q] == pytest.approx(one + two, abs=1e-15)
        assert result.variance_coupled[q] == pytest.approx(np.var(x[q] - y[q], ddof=1), abs=1e-15)


@given(st.lists(st.integers(-1, 1), min_size=1, max_size=9), st.data())
def test_the_estimation_error_is_the_mean_over_all_choices(differences, data):
    size = data.draw(st.integers(1, len(differences)))
    whole = np.mean(differences)
    expected = np.mean([abs(np.mean(subset) - whole) for subset in combinations(differences, size)])
    assert estimation_error(differences, [size])[0] == pytest.approx(expected, abs=1e-12)


def test_equal_error_finds_the_crossing():
    generator = np.random.default_rng(4)
    x = generator.random((60, 10))
    shared = (x < 0.6).astype(int) - (x < 0.5).astype(int)
    apart = (generator.random((60, 10)) < 0.6).astype(int) - (
        generator.random((60, 10)) < 0.5
    ).astype(int)
    result = equal_error_samples(shared, apart, 100)
    errors = estimation_error(shared, range(1, 601))
    assert result.coupled == 1 + int(np.argmax(errors <= result.error))
    assert result.coupled - 1 <= result.ratio * 100 <= result.coupled
    assert result.low < result.ratio < result.high < 1
    level = equal_error_samples(apart, apart, 100)
    assert level.ratio == pytest.approx(1.0, abs=1e-9)
    assert (level.low, level.high) == pytest.approx((1.0, 1.0))


def test_level_llms_keep_their_order():
    result = average_winrates([[0.5, 0.5, 0.5]])
    assert result.ranking_coupled.tolist() == result.ranking_independent.tolist() == [0, 1, 2]


@given(two_laws(4), st.data())
def test_outcomes_are_a_law(laws, data):
    p, q = laws
    score = data.draw(st.lists(st.integers(0, 2), min_size=len(p), max_size=len(p)))
    result = scored_winrates(p, q, score)
    swapped = scored_winrates(q, p, score)
    for mine, yours in (
        (result.coupled, swapped.coupled),
        (result.independent, swapped.independent),
    ):
        assert mine.sum() == pytest.approx(1.0, abs=1e-13)
        assert mine == pytest.approx(yours[[1, 0, 2]], abs=1e-13)


def test_sampled_winrates_compare_the_calls_they_say():
    x, y = np.array([[1.0, 0.0, 2.0]]), np.array([[1.0, 1.0, 0.0]])
    assert sampled_winrates(x, y, "same")[0] == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    every = [np.sign(a - b) for a in x[0] for b in y[0]]
    assert sampled_winrates(x, y, "all")[0] == pytest.approx(
        [np.mean(np.equal(every, s)) for s in (1, -1, 0)]
    )
    other = [np.sign(x[0, s] - y[0, t]) for s in range(3) for t in range(3) if s != t]
    assert sampled_winrates(x, y, "other")[0] == pytest.approx(
        [np.mean(np.equal(other, s)) for s in (1, -1, 0)]
    )


def test_llms_that_cannot_be_told_apart_share_a_rank():
    generator = np.random.default_rng(5)
    noise = generator.random((400, 1)) * 0.2
    wins = np.hstack([0.5 + noise, 0.51 + noise, 0.2 + noise])
    result = ranked_winrates(wins)
    assert result.rank.tolist() == [1, 1, 3]
    assert result.worst_rank.tolist() == [2, 2, 3]
    alike = ranked_winrates(np.full((5, 3), 0.25))
    assert (alike.rank.tolist(), alike.worst_rank.tolist()) == ([1, 1, 1], [3, 3, 3])


def test_few_questions_are_certain_of_nothing():
    one = ranked_winrates([[1.0, 0.0]])
    assert one.rank.tolist() == [1, 1]
    for questions in (1, 2, 3):
        change = ranking_change([[1.0, 0.0]] * questions, [[0.0, 1.0]] * questions)
        assert change.p_values[0] > 0.1
    result = equal_error_samples([[1, 0, 0, -1]], [[1, 1, 0, -1]], 2)
    assert np.isnan([result.low, result.high]).all()
    assert 0 < result.ratio <= 1


def test_a_change_of_ranking_is_found_only_where_both_orders_are_certain():
    generator = np.random.default_rng(6)
    shift = 0.1 + 0.02 * generator.standard_normal((300, 1))
    one = np.hstack([0.5 + shift, np.full((300, 1), 0.5)])
    other = np.hstack([np.full((300, 1), 0.5), 0.5 + shift])
    assert ranking_change(one, other).p_values[0] < 0.001
    assert ranking_change(one, one).p_values[0] == 1.0
    unsure = np.hstack([0.5 + generator.standard_normal((300, 1)) * 0.1, np.full((300, 1), 0.5)])
    assert ranking_change(one, unsure).p_values[0] > 0.01
