"""How often intervals hold the truth and how often tests find a difference where there is none, by
simulation and enumeration.

Simulated: 20,000 sets of Q questions, or of Q clusters of questions, from each of several laws;
pairs of methods that are equally good. Enumerated: laws of two values, each number of questions
with the rarer one weighed by its probability, at the rate where coverage is worst. Everything is
seeded; docs/comparing.md shows the table.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from benchmarks.measure import Goal, Workspace

Floats = npt.NDArray[np.float64]
Law = Callable[[np.random.Generator, tuple[int, int]], Floats]

RUNS = 20_000
BOOTSTRAP_RUNS = 2_000
QUESTIONS = (3, 5, 7, 10, 15, 20, 30, 50, 100, 300)
LEAST_COVERED = 5  # questions from which on coverage has a goal
COVERED = 0.93 - 2 * (0.93 * 0.07 / RUNS) ** 0.5
FOUND = 0.065
BETAS = (
    (0.1, 0.9), (0.9, 0.1), (0.2, 0.2), (0.5, 0.5), (1.0, 1.0), (1.0, 3.0), (5.0, 1.0), (2.0, 8.0),
    (8.0, 8.0), (20.0, 20.0),
)  # fmt: skip
"""(a, b) of the laws; means from 0.1 to 0.9, from nearly right or wrong to nearly the same on all
questions.
"""

TWO_VALUES = (
    (0.99, 0.0, 0.03),
    (0.01, 0.9, 0.04),
    (0.97, 0.05, 0.1),
    (1.0, 0.0, 0.05),
    (1.0, 0.0, 0.2),
    (1.0, 0.0, 0.5),
)
"""Usual value, rare value, and its rate."""

ACCURACIES = (
    (0.0, 1.0),
    (0.0, 0.99),
    (0.05, 0.97),
    (0.01, 0.9),
    (0.0, 0.63),
    (0.0, 0.72),
    (0.5, 1.0),
    (0.0, 0.2),
)
DIFFERENCES = (
    (-1.0, 1.0),
    (-1.0, 0.5),
    (-1.0, 0.1),
    (-1.0, 0.0),
    (-0.5, 0.5),
    (-0.25, 0.05),
    (-0.1, 0.9),
)
"""Two values of a law, at every rate."""

_NULL_RATES = np.concatenate([np.geomspace(0.003, 0.1, 60), np.linspace(0.11, 0.9, 80)])
# share of questions on which five votes gain, so that they gain as much as they lose on the others
_GAINING = 0.5184


def beta(a: float, b: float) -> Law:
    """Probabilities of being right."""
    return lambda rng, shape: rng.beta(a, b, shape)


def two_values(usual: float, rare: float, rate: float) -> Law:
    """One of two probabilities."""
    return lambda rng, shape: np.where(rng.random(shape) < rate, rare, usual)


def votes(right: Floats, calls: int) -> Floats:
    """Probability that a majority of independent calls is right."""
    from scipy.special import betainc

    return np.asarray(betainc((calls + 1) / 2, (calls + 1) / 2, right), np.float64)


def _twice(law: Law) -> Law:
    return lambda rng, shape: law(rng, shape) - law(rng, shape)


def _coins(a: float, b: float) -> Law:
    """Right/wrong answers of two methods on questions whose difficulty they share."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        share = rng.beta(a, b, shape)
        return (rng.random(shape) < share).astype(np.float64) - (rng.random(shape) < share)

    return draw


def _five_votes(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """One call against five votes, which gain on easy questions what they lose on hard ones."""
    easy = rng.random(shape) < _GAINING
    right = np.where(easy, rng.beta(8, 4, shape), rng.beta(2, 6, shape))
    return right - votes(right, 5)


def _fifteen_votes(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """One call against 15 votes, which gain little on many questions what they lose on few: p is
    0.95 or 0.3.
    """
    high, low = votes(np.array([0.95, 0.3]), 15) - [0.95, 0.3]
    right = np.where(rng.random(shape) < -low / (high - low), 0.95, 0.3)
    return right - votes(right, 15)


NULLS: dict[str, Law] = {
    "right/wrong, Beta(0.5, 0.5)": _coins(0.5, 0.5),
    "right/wrong, Beta(8, 8)": _coins(8, 8),
    "right/wrong, Beta(0.1, 0.9)": _coins(0.1, 0.9),
    "Beta(0.5, 0.5) twice": _twice(beta(0.5, 0.5)),
    "Beta(0.1, 0.9) twice": _twice(beta(0.1, 0.9)),
    "Beta(5, 1) twice": _twice(beta(5, 1)),
    "Beta(0.5, 4.5), Beta(2, 18)": (
        lambda rng, shape: rng.beta(0.5, 4.5, shape) - rng.beta(2, 18, shape)
    ),
    "one call, five votes": _five_votes,
    "one call, 15 votes": _fifteen_votes,
}
"""Differences of two methods with the same accuracy."""


def coverage(questions: int) -> tuple[dict[str, float], float]:
    """Share of intervals that hold the truth, of every law; and of the Beta laws by the bootstrap,
    the worst.
    """
    from feval.estimators.intervals import accuracy_interval, bootstrap_interval

    rng, resampled = np.random.default_rng(questions), []
    laws = {f"Beta({a:g}, {b:g})": (beta(a, b), a / (a + b)) for a, b in BETAS}
    pairs = (*TWO_VALUES, (0.63, 0.0, min(2.69 / questions, 1.0)))
    laws |= {
        f"{u:g}, {r:.2g} at {100 * q:.2g} %": (two_values(u, r, q), u + q * (r - u))
        for u, r, q in pairs
    }
    shares = {}
    for name, (law, truth) in laws.items():
        values = law(rng, (questions, RUNS))
        ends = accuracy_interval(values)
        shares[name] = float(((ends.low <= truth) & (truth <= ends.high)).mean())
        if len(resampled) < len(BETAS):
            ends = bootstrap_interval(values[:, :BOOTSTRAP_RUNS], resamples=1_000)
            resampled.append(float(((ends.low <= truth) & (truth <= ends.high)).mean()))
    return shares, min(resampled)


def clustered(clusters: int) -> tuple[dict[str, float], dict[str, float]]:
    """Share of intervals that hold the truth where questions belong together, and of tests that
    find equal methods different.

    Half of the clusters have one question and half nine, or one in ten has 20 and the others one.
    """
    from feval.estimators.intervals import accuracy_interval, difference_test

    covered, found = {}, {}
    laws = {
        "alike": (beta(1, 1), beta(1, 1), 0.5, 0.5),
        "large ones easier": (beta(1, 3), beta(3, 1), 0.25, 0.75),
        "nearly all right": (beta(5, 1), beta(5, 1), 5 / 6, 5 / 6),
        "few all wrong": (*[two_values(1.0, 0.0, 0.05)] * 2, 0.95, 0.95),
        "all right or wrong": (*[two_values(1.0, 0.0, 0.5)] * 2, 0.5, 0.5),
    }
    for rate, most in ((0.5, 9), (0.1, 20)):
        sizes = f"{100 * rate:g} % of {most}"
        for name, (small, large, *means) in laws.items():
            rng, held, different = np.random.default_rng(clusters), 0, 0
            truth = np.average(means, weights=[1 - rate, rate * most])
            for _ in range(RUNS // 100):
                is_large = rng.random(clusters) < rate
                members = np.repeat(np.arange(clusters), np.where(is_large, most, 1))
                level = np.where(
                    is_large[:, None], large(rng, (clusters, 100)), small(rng, (clusters, 100))
                )
                right = (rng.random((len(members), 100)) < level[members]).astype(np.float64)
                ends = accuracy_interval(right, clusters=members)
                held += int(((ends.low <= truth) & (truth <= ends.high)).sum())
                equal = two_values(0.1, -1.0, 1 / 11)(rng, (clusters, 100))[members] * (
                    right if name == "alike" else 1.0
                )
                different += int((difference_test(equal, clusters=members).p_value <= 0.05).sum())
            covered[f"{name}, {sizes}"], found[f"{name}, {sizes}"] = held / RUNS, different / RUNS
    return covered, found


def least_coverage(
    ends: Callable[[Floats], tuple[Floats, Floats]], questions: int, low: float, high: float
) -> float:
    """Coverage of the mean of a law of two values at the rate of the lower one where it is least,
    but for rounding.

    It falls only where the mean leaves the interval of some number of lower values: just outside
    every end.
    """
    from scipy.stats import binom

    counts = np.arange(questions + 1)
    lows, highs = ends(np.where(np.arange(questions)[:, None] < counts, low, high))
    truths = np.concatenate([lows - 1e-9, highs + 1e-9])
    truths = truths[(truths > low) & (truths < high)]
    chances = binom.pmf(counts, questions, (high - truths[:, None]) / (high - low))
    held = (lows <= truths[:, None]) & (truths[:, None] <= highs)
    return float((chances * held).sum(axis=1).min(initial=1.0))


def accuracy_ends(values: Floats) -> tuple[Floats, Floats]:
    """Ends of the intervals of accuracies."""
    from feval.estimators.intervals import accuracy_interval

    ends = accuracy_interval(values)
    return ends.low, ends.high


def difference_ends(values: Floats) -> tuple[Floats, Floats]:
    """Ends of the intervals of differences."""
    from feval.estimators.intervals import difference_test

    test = difference_test(values)
    return test.low, test.high


def false_positives(null: Law, questions: int) -> float:
    """Share of pairs whose difference has a p-value of 0.05 at most."""
    from feval.estimators.intervals import difference_test

    rng = np.random.default_rng(questions)
    return float((difference_test(null(rng, (questions, RUNS))).p_value <= 0.05).mean())


def enumerated_false_positives(questions: int, level: float = 0.05) -> tuple[float, str]:
    """The greatest probability of a p-value of `level` at most under a law of two values with mean
    0, and the law.
    """
    from scipy.stats import binom

    from feval.estimators.intervals import difference_test

    counts, worst = np.arange(questions + 1), (0.0, "")
    for worse in (-1.0, -0.5, -0.25):
        for rate in _NULL_RATES[-worse * _NULL_RATES / (1 - _NULL_RATES) <= 1.0]:
            usual = -worse * rate / (1 - rate)
            test = difference_test(np.where(np.arange(questions)[:, None] < counts, worse, usual))
            found = float(binom.pmf(counts, questions, rate) @ (test.p_value <= level))
            worst = max(worst, (found, f"{worse:g} at {100 * rate:.2g} %, else {usual:.2g}"))
    return worst


def power(questions: int) -> float:
    """Share of differences with mean 0.1 and standard deviation 0.3 that are found."""
    return false_positives(
        lambda rng, shape: np.clip(rng.normal(0.1, 0.3, shape), -1, 1), questions
    )


def _covered(questions: int) -> list[Goal]:
    shares, resampled = coverage(questions)
    worst = min(shares, key=lambda name: shares[name])
    goal = COVERED if questions >= LEAST_COVERED else None
    note = (
        f"{worst}; average {np.mean(list(shares.values())):.3f}; percentile bootstrap"
        f" {resampled:.3f}"
    )
    rows = [
        Goal(
            f"coverage at {questions} questions, worst of {len(shares)} laws",
            min(shares.values()),
            goal,
            "",
            True,
            note,
        )
    ]
    for name, pairs, ends in (
        ("accuracies", ACCURACIES, accuracy_ends),
        ("differences", DIFFERENCES, difference_ends),
    ):
        least = {pair: least_coverage(ends, questions, *pair) for pair in pairs}
        pair = min(least, key=lambda pair: least[pair])
        note = f"{pair[0]:g} or {pair[1]:g}"
        rows.append(
            Goal(
                f"least coverage at {questions}, {name} of two values",
                least[pair],
                goal,
                "",
                True,
                note,
            )
        )
    return rows


def _clustered(clusters: int) -> list[Goal]:
    shares, found = clustered(clusters)
    unseen = shares.pop("large ones easier, 10 % of 20")  # a set without a large one cannot know
    worst, most = (
        min(shares, key=lambda name: shares[name]),
        max(found, key=lambda name: found[name]),
    )
    goal = COVERED if clusters >= LEAST_COVERED else None
    return [
        Goal(
            f"coverage at {clusters} unequal clusters, worst of {len(shares)}",
            shares[worst],
            goal,
            "",
            True,
            worst,
        ),
        Goal(
            f"coverage at {clusters} clusters, large ones easier and rare", unseen, None, "", True
        ),
        Goal(
            f"false positives at {clusters} unequal clusters, worst of {len(found)}",
            found[most],
            FOUND,
            "",
            note=most,
        ),
    ]


def _tested(questions: int) -> list[Goal]:
    rates = {name: false_positives(null, questions) for name, null in NULLS.items()}
    worst = max(rates, key=lambda name: rates[name])
    found, law = enumerated_false_positives(questions)
    thin, _ = enumerated_false_positives(questions, 0.001)
    return [
        Goal(
            f"false positives at {questions} questions, worst of {len(rates)} nulls",
            rates[worst],
            FOUND,
            "",
            note=worst,
        ),
        Goal(f"false positives at {questions} questions, two values", found, FOUND, "", note=law),
        Goal(f"false positives at {questions} at the level 0.001", thin, None, ""),
        Goal(f"power at {questions} questions, 0.1 +- 0.3", power(questions), None, "", True),
    ]


def goals(workspace: Workspace) -> list[Goal]:  # noqa: ARG001  it needs no files
    """Coverage of intervals of accuracies and differences; false positives of comparisons."""
    parts: tuple[Callable[[int], list[Goal]], ...] = (_covered, _clustered, _tested)
    return [row for measured in parts for questions in QUESTIONS for row in measured(questions)]
