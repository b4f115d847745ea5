"""Sign-flip tests: exact on few questions, valid on many, the same whatever rounds; intervals are the test, inverted."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from feval.estimators.inference import bootstrap
from feval.estimators.inference.sign_flips import STREAM, sign_flip_test

Floats = npt.NDArray[np.float64]
DIFFERENCES = st.lists(st.sampled_from([-1.0, -0.6, -1 / 3, 0.0, 0.1, 0.2, 1 / 3, 0.5, 1.0]), min_size=1, max_size=9)


def p_value(differences: Any, **settings: Any) -> float:
    return float(sign_flip_test(np.asarray(differences, float)[:, None], **settings).p_value[0])


def brute_force(differences: Floats) -> float:
    """Share of all patterns of signs, zeros included, whose sum is as far from 0."""
    signs = np.array(list(product((-1, 1), repeat=len(differences))))
    return float((np.abs(signs @ differences) >= abs(differences.sum()) - 1e-12).mean())


@given(DIFFERENCES)
def test_few_questions_are_tested_over_every_pattern_of_signs(differences: list[float]) -> None:
    assert p_value(differences) == pytest.approx(brute_force(np.array(differences)), abs=1e-12)


@pytest.mark.parametrize("questions", range(1, 17))
def test_a_test_cannot_go_below_what_its_questions_allow(questions: int) -> None:
    assert p_value(np.full(questions, 0.7)) == 2.0 ** (1 - questions)


def test_three_questions_are_never_significant() -> None:
    rng = np.random.default_rng(0)
    test = sign_flip_test(rng.normal(1.0, 0.3, (3, 500)))
    assert test.p_value.min() == 0.25
    assert np.isneginf(test.low).all()
    assert np.isposinf(test.high).all()


@pytest.mark.parametrize(
    ("wins", "losses", "ties"), [(9, 2, 0), (9, 2, 700), (16, 0, 3), (3, 3, 40), (0, 0, 8), (1, 0, 0)]
)
def test_right_and_wrong_answers_get_the_exact_test_of_mcnemar(wins: int, losses: int, ties: int) -> None:
    differences = np.repeat([1.0, -1.0, 0.0], [wins, losses, ties])
    expected = stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert p_value(differences) == pytest.approx(expected, abs=1e-12)


def test_many_questions_agree_with_scipy() -> None:
    differences = np.random.default_rng(1).normal(0.07, 0.5, 200)
    scipy = stats.permutation_test(
        (differences,), np.sum, permutation_type="samples", n_resamples=20_000, rng=np.random.default_rng(2)
    )
    assert p_value(differences, splits=20_000) == pytest.approx(scipy.pvalue, abs=0.01)
    assert p_value(differences) == pytest.approx(stats.ttest_1samp(differences, 0.0).pvalue, abs=0.015)


def test_random_splits_never_give_zero_and_are_the_same_again() -> None:
    differences = np.random.default_rng(3).normal(1.0, 0.1, 40)
    assert p_value(differences, splits=99) == 1 / 100
    unsure = differences - 0.98
    assert p_value(unsure, seed=5) == p_value(unsure, seed=5) != p_value(unsure, seed=6)
    together = sign_flip_test(np.column_stack([differences, unsure]), seed=5)
    assert together.p_value[1] == p_value(unsure, seed=5)


def test_rounding_leaves_ties_as_ties() -> None:
    exact = np.array([1.0, 2.0, 3.0, -3.0, -2.0, 1.0, 1.0])
    noisy = exact / 10 + np.random.default_rng(4).uniform(-1e-13, 1e-13, 7)
    assert p_value(noisy) == p_value(exact) == brute_force(exact)
    many = np.tile(exact, 30)
    jitter = np.random.default_rng(5).uniform(-1e-13, 1e-13, 210)
    assert p_value(many / 10 + jitter) == p_value(many)
    assert p_value([1e-13, -2e-14, 0.0]) == 1.0


@pytest.mark.parametrize("questions", [6, 9, 12])
def test_the_interval_holds_the_shifts_that_are_not_rejected(questions: int) -> None:
    differences = np.random.default_rng(questions).normal(0.2, 0.4, questions)
    test = sign_flip_test(differences[:, None], confidence=0.9)
    for end, out in ((test.low[0], -1e-9), (test.high[0], 1e-9)):
        assert brute_force(differences - end - out) <= 0.1 < brute_force(differences - end + out)


@pytest.mark.parametrize("questions", [4, 8, 15, 40, 300])
def test_interval_and_p_value_say_the_same(questions: int) -> None:
    rng = np.random.default_rng(questions)
    differences = rng.choice([-1.0, -0.5, 0.0, 0.0, 0.5, 1.0], (questions, 200)) + 0.05 * rng.random(200)
    test = sign_flip_test(differences, splits=999)
    assert (((test.low <= 0) & (test.high >= 0)) | (test.p_value <= 0.05)).all()
    assert not ((test.low < 0) & (test.high > 0) & (test.p_value <= 0.05)).any()
    mean = differences.mean(axis=0)
    assert ((test.low <= mean + 1e-9) & (mean - 1e-9 <= test.high)).all()


@pytest.mark.slow
@pytest.mark.parametrize("questions", [3, 7, 16, 17, 60])
@pytest.mark.parametrize("kind", ["right/wrong", "fractional"])
def test_equal_methods_differ_significantly_as_rarely_as_it_says(kind: str, questions: int) -> None:
    rng = np.random.default_rng(questions)
    first, second = rng.beta(0.5, 0.5, (2, questions, 3_000))
    if kind == "right/wrong":
        first, second = (first < 0.6).astype(float), (second < 0.6).astype(float)
    test = sign_flip_test(first - second, splits=499)
    assert (test.p_value <= 0.05).mean() <= 0.06


def test_more_questions_are_flipped_in_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = np.random.default_rng(6).normal(0.02, 0.5, (3_001, 2))
    single = sign_flip_test(differences)
    monkeypatch.setattr(bootstrap, "MOST_QUESTIONS", 3_000)
    monkeypatch.setattr(bootstrap, "CLUSTERS", 700)
    clustered = sign_flip_test(differences)
    assert clustered.p_value == pytest.approx(single.p_value, abs=0.02)
    assert clustered.high - clustered.low == pytest.approx(single.high - single.low, rel=0.1)


def test_sums_made_column_by_column_give_the_same_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "MOST_QUESTIONS", 200)
    monkeypatch.setattr(bootstrap, "CLUSTERS", 70)
    differences = np.random.default_rng(6).normal(0.02, 0.5, (301, 2))
    dealt = bootstrap.Clusters(301, 4, STREAM)
    sums = np.stack([dealt.sums(column, np.arange(301)) for column in differences.T], axis=1)
    whole = sign_flip_test(differences, splits=99, seed=4)
    test = sign_flip_test(sums, splits=99, seed=4, dealt=dealt)
    assert all((getattr(test, name) == getattr(whole, name)).all() for name in ("p_value", "low", "high"))
