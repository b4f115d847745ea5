"""How often intervals hold the truth and how often tests find a difference where there is none, by simulation.

Intervals of accuracies: 20,000 sets of Q questions from each of ten Beta laws of the probability of being right, and right/wrong
answers at eleven accuracies. Tests: 20,000 pairs of methods that are equally good. Everything is seeded; docs/comparing.md shows
the table.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from benchmarks.measure import Goal, Workspace

Floats = npt.NDArray[np.float64]
Null = Callable[[np.random.Generator, tuple[int, int]], tuple[Floats, Floats]]

RUNS = 20_000
BOOTSTRAP_RUNS = 2_000
QUESTIONS = (3, 5, 7, 10, 15, 20, 30, 50, 100, 300)
LEAST_COVERED = 5  # questions from which on coverage has a goal
AVERAGED = 50  # questions from which on the average coverage has goals, too
LAWS = (
    (0.1, 0.9), (0.9, 0.1), (0.2, 0.2), (0.5, 0.5), (1.0, 1.0), (1.0, 3.0), (5.0, 1.0), (2.0, 8.0), (8.0, 8.0), (20.0, 20.0),
)  # fmt: skip
"""(a, b) of the laws; means from 0.1 to 0.9, from nearly right or wrong to nearly the same on all questions."""

_ACCURACIES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_SPLITS = 999
_BATCH = 1_000  # pairs tested with the same random splits
_GAINING = 0.5184  # share of questions on which five votes gain, so that they gain as much as they lose on the others


def five_votes(right: Floats) -> Floats:
    """Probability that three of five independent calls or more are right."""
    from scipy.special import betainc

    return np.asarray(betainc(3, 3, right), np.float64)


def _beta(a: float, b: float, c: float, d: float) -> Null:
    return lambda rng, shape: (rng.beta(a, b, shape), rng.beta(c, d, shape))


def _coins(a: float, b: float) -> Null:
    """Right/wrong answers of two methods on questions whose difficulty they share."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Floats, Floats]:
        share = rng.beta(a, b, shape)
        return tuple((rng.random(shape) < share).astype(np.float64) for _ in range(2))

    return draw


def _votes(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Floats, Floats]:
    """One call against five votes, which gain on easy questions what they lose on hard ones."""
    easy = rng.random(shape) < _GAINING
    right = np.where(easy, rng.beta(8, 4, shape), rng.beta(2, 6, shape))
    return right, five_votes(right)


NULLS: dict[str, Null] = {
    "right/wrong, Beta(0.5, 0.5)": _coins(0.5, 0.5),
    "right/wrong, Beta(8, 8)": _coins(8, 8),
    "right/wrong, Beta(0.1, 0.9)": _coins(0.1, 0.9),
    "Beta(0.5, 0.5) twice": _beta(0.5, 0.5, 0.5, 0.5),
    "Beta(0.1, 0.9) twice": _beta(0.1, 0.9, 0.1, 0.9),
    "Beta(5, 1) twice": _beta(5, 1, 5, 1),
    "one call, five votes": _votes,
}
"""Pairs of methods with the same accuracy, for which false positives have a goal."""

SKEWED = {"Beta(0.5, 4.5), Beta(2, 18)": _beta(0.5, 4.5, 2, 18)}
"""Equally good, but with differences far from symmetric: shown without a goal."""


def coverage(questions: int) -> tuple[list[float], list[float], list[float]]:
    """Share of intervals that hold the truth: of ten laws, of right/wrong answers, of the laws by the bootstrap."""
    from feval.estimators.inference.bootstrap import bootstrap_interval
    from feval.estimators.inference.intervals import accuracy_interval

    rng = np.random.default_rng(questions)
    laws, coins, resampled = [], [], []
    for a, b in LAWS:
        values, truth = rng.beta(a, b, (questions, RUNS)), a / (a + b)
        for ends, into in (
            (accuracy_interval(values), laws),
            (bootstrap_interval(values[:, :BOOTSTRAP_RUNS], resamples=1_000), resampled),
        ):
            into.append(float(((ends.low <= truth) & (truth <= ends.high)).mean()))
    for truth in _ACCURACIES:
        ends = accuracy_interval((rng.random((questions, RUNS)) < truth).astype(np.float64))
        coins.append(float(((ends.low <= truth) & (truth <= ends.high)).mean()))
    return laws, coins, resampled


def false_positives(null: Null, questions: int) -> float:
    """Share of pairs whose difference has a p-value of 0.05 at most."""
    from feval.estimators.inference.sign_flips import sign_flip_test

    rng, positive = np.random.default_rng(questions), 0
    for batch in range(RUNS // _BATCH):
        first, second = null(rng, (questions, _BATCH))
        tested = sign_flip_test(first - second, splits=_SPLITS, seed=batch)
        positive += int((tested.p_value <= 0.05).sum())
    return positive / RUNS


def _covered(questions: int) -> list[Goal]:
    laws, coins, resampled = coverage(questions)
    note = f"average {np.mean(laws):.3f}; percentile bootstrap {min(resampled):.3f}"
    least = 0.92 if questions >= LEAST_COVERED else None
    rows = [
        Goal(f"coverage at {questions} questions, worst of ten Beta laws", min(laws), least, "", True, note),
        Goal(f"coverage at {questions} questions, right/wrong, average", float(np.mean(coins)), None, ""),
    ]
    if questions >= AVERAGED:
        name, average = f"coverage at {questions} questions, average", float(np.mean(laws))
        rows += [Goal(name, average, 0.94, "", True), Goal(name, average, 0.97, "")]
    return rows


def _tested(questions: int) -> list[Goal]:
    rates = {name: false_positives(null, questions) for name, null in NULLS.items()}
    worst = max(rates, key=lambda name: rates[name])
    name = f"false positives at {questions} questions, worst of {len(rates)} nulls"
    rows = [Goal(name, rates[worst], 0.06, "", note=worst)]
    skewed = ((pair, false_positives(null, questions)) for pair, null in SKEWED.items())
    return rows + [Goal(f"false positives at {questions}, {pair}", rate, None, "") for pair, rate in skewed]


def goals(workspace: Workspace) -> list[Goal]:  # noqa: ARG001  it needs no files
    """Coverage of intervals of accuracies; false positives of comparisons."""
    return [row for measured in (_covered, _tested) for questions in QUESTIONS for row in measured(questions)]
