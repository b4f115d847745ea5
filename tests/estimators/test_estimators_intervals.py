"""Intervals of accuracies: Wilson's for right/wrong values, a score interval for probabilities; they cover what they should."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import stdtrit

from feval.estimators.inference.intervals import accuracy_interval, wilson_interval
from feval.estimators.per_question import PerQuestion

Floats = npt.NDArray[np.float64]

# The laws of `python -m benchmarks intervals`.
LAWS = (
    (0.1, 0.9), (0.9, 0.1), (0.2, 0.2), (0.5, 0.5), (1.0, 1.0), (1.0, 3.0), (5.0, 1.0), (2.0, 8.0), (8.0, 8.0), (20.0, 20.0),
)  # fmt: skip


def covered(values: Floats, truth: float) -> float:
    """Share of the columns whose interval holds the truth."""
    ends = accuracy_interval(values)
    return float(((ends.low <= truth) & (truth <= ends.high)).mean())


@pytest.mark.parametrize("questions", [5, 10, 17, 30])
@pytest.mark.parametrize("law", LAWS)
def test_the_interval_covers_the_mean_of_every_law_from_five_questions_on(
    law: tuple[float, float], questions: int
) -> None:
    a, b = law
    values = np.random.default_rng(1).beta(a, b, (questions, 4_000))
    assert covered(values, a / (a + b)) >= 0.92 - 0.01  # two standard errors of 4,000 runs are 0.008


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999, 0.9999, 1 - 1e-9])
def test_the_quantile_is_students_in_thin_tails_too(confidence: float) -> None:
    values = np.linspace(0.1, 0.9, 200)[:, None]
    [low] = accuracy_interval(values, confidence).low.tolist()
    mean = values.mean()
    shrunk = (values.var() * 200 / (mean * (1 - mean)) + 2) / 202
    t = (mean - low) / np.sqrt(low * (1 - low) * shrunk / 200)
    assert t == pytest.approx(-stdtrit(199, (1 - confidence) / 2), rel=1e-11)


@pytest.mark.parametrize("questions", [50, pytest.param(300, marks=pytest.mark.slow)])
def test_from_fifty_questions_on_it_covers_as_often_as_it_says(questions: int) -> None:
    rng = np.random.default_rng(2)
    rates = [covered(rng.beta(a, b, (questions, 4_000)), a / (a + b)) for a, b in LAWS]
    assert 0.94 <= np.mean(rates) <= 0.97


@pytest.mark.parametrize("questions", [5, 7, 10, 20, 50])
def test_subsets_of_many_questions_cover_the_accuracy_of_all(questions: int) -> None:
    rng = np.random.default_rng(3)
    pools = rng.binomial(40, rng.beta(0.6, 0.4, 3_000)) / 40  # of forty recorded calls, as recordings have them
    right = (pools > 0.5).astype(float)
    for everyone in (pools, right):
        subsets = np.stack([rng.choice(everyone, questions, replace=False) for _ in range(3_000)], axis=1)
        assert covered(subsets, float(everyone.mean())) >= 0.92


def test_the_formula_is_that_of_the_page() -> None:
    from scipy.optimize import brentq
    from scipy.stats import t

    values = np.array([0.1, 0.4, 0.9, 1.0, 0.75])
    mean, questions = values.mean(), 5
    share = values.var() / (mean * (1 - mean))
    shrunk = (questions * share + 2) / (questions + 2)

    def beyond(m: float) -> float:
        return float((mean - m) ** 2 - t.ppf(0.975, questions - 1) ** 2 * shrunk * m * (1 - m) / questions)

    interval = accuracy_interval(values[:, None])
    assert interval.low[0] == pytest.approx(brentq(beyond, 0, mean), abs=1e-10)
    assert interval.high[0] == pytest.approx(brentq(beyond, mean, 1), abs=1e-10)


def test_right_and_wrong_keep_wilsons_interval() -> None:
    values = np.column_stack([np.ones(100), np.zeros(100), np.arange(100) % 2, np.ones(100) - 1e-15])
    interval = accuracy_interval(values)
    wilson = wilson_interval(np.array([100.0, 0.0, 50.0, 100.0]), 100)
    assert interval.low.tolist() == pytest.approx(wilson.low.tolist(), abs=1e-14)
    assert interval.high.tolist() == pytest.approx(wilson.high.tolist(), abs=1e-14)


def test_no_interval_is_a_point_and_none_leaves_what_is_possible() -> None:
    single = accuracy_interval(np.array([[1.0, 0.0, 0.3]]))
    assert (single.high - single.low > 0.7).all()
    assert (single.low[2], single.high[2]) == (0.0, 1.0)
    tied = accuracy_interval(np.full((400, 1), 0.5))
    assert tied.low[0] < 0.499 < 0.501 < tied.high[0]
    rng = np.random.default_rng(4)
    many = accuracy_interval(rng.beta(0.05, 0.05, (4, 500)))
    assert ((many.low >= 0) & (many.high <= 1) & (many.low < many.high)).all()


def test_equal_questions_may_be_stored_once() -> None:
    values = PerQuestion(np.random.default_rng(5).random((5, 3)), np.arange(200) % 5)
    once, written = accuracy_interval(values), accuracy_interval(values.per_question())
    assert once.low == pytest.approx(written.low, abs=1e-14)
    assert once.high == pytest.approx(written.high, abs=1e-14)


def test_rows_that_no_question_has_make_no_difference() -> None:
    values = PerQuestion(np.array([[1.0], [0.0], [0.5]]), np.array([0, 1, 1, 0]))
    assert accuracy_interval(values).low[0] == wilson_interval(2.0, 4).low[0]


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_wilson_equals_scipy(confidence: float) -> None:
    from scipy.stats import binomtest

    for successes, trials in ((0, 1), (1, 1), (0, 40), (40, 40), (13, 40), (700, 1319)):
        expected = binomtest(successes, trials).proportion_ci(confidence, method="wilson")
        interval = wilson_interval(float(successes), trials, confidence)
        assert interval.low[0] == pytest.approx(expected.low, abs=1e-12)
        assert interval.high[0] == pytest.approx(expected.high, abs=1e-12)


@pytest.mark.parametrize("trials", [1, 7, 30, 200, 1626])
def test_wilson_stays_in_range_and_around_the_share_whatever_rounds(trials: int) -> None:
    shares = np.array([0.0, 5e-324, 1e-17, 3e-13, 1e-9, 0.07, 0.5, 1 - 1e-9, 1 - 3e-16, 1 - 1.2e-16, 1.0])
    for confidence in (1e-17, 0.5, 0.95, 0.999999, 1 - 2.0**-53):
        interval = wilson_interval(shares * trials, trials, confidence)
        rounded = shares * trials / trials
        assert (
            (interval.low >= 0) & (interval.low <= rounded) & (rounded <= interval.high) & (interval.high <= 1)
        ).all()
