"""The vote estimators from few calls: 5,000 questions, G = 10 calls each.

The exact plurality accuracy of M independent calls, for every M at once, against what it replaces:
NumPy's multinomial with K = 100 simulated votes at the single M = 100, and a Python loop of the
same. Calls are synthetic and seeded: up to six rivals of a geometric kind, 3 % without an answer.
All from counts to the mean accuracy over questions.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.measure import Goal, Workspace, cpu_ms

Counts = npt.NDArray[np.int64]

QUESTIONS = 5000
CALLS = 10
VOTES = 100
LARGE = 1001
REPLICATES = 100


def synthetic_counts(questions: int = QUESTIONS, calls: int = CALLS, seed: int = 0) -> Counts:
    """[questions, 8] calls with the gold answer, with each of six rivals, and without an answer."""
    rng = np.random.default_rng(seed)
    right = rng.beta(2.2, 1.0, (questions, 1)) * 0.97
    rivals = rng.dirichlet(np.full(6, 0.6), questions) * (0.97 - right)
    return rng.multinomial(calls, np.hstack([right, rivals, np.full((questions, 1), 0.03)]))


def simulated(counts: Counts, rng: np.random.Generator) -> float:
    """Monte-Carlo with NumPy: K votes of M calls for all questions, ties shared."""
    votes = rng.multinomial(VOTES, counts / CALLS, size=(REPLICATES, len(counts)))
    top = votes[..., :-1].max(axis=-1)
    leaders = (votes[..., :-1] == top[..., None]).sum(axis=-1)
    return float(np.mean((votes[..., 0] == top) / leaders))


def simulated_in_a_loop(counts: Counts, rng: np.random.Generator) -> float:
    """The same question by question, as the papers' scripts have it."""
    total = 0.0
    for shares in counts / CALLS:
        for votes in rng.multinomial(VOTES, shares, size=REPLICATES).tolist():
            top = max(votes[:-1])
            if top and votes[0] == top:
                total += 1.0 / votes[:-1].count(top)
    return total / len(counts) / REPLICATES


def goals(_: Workspace) -> list[Goal]:
    """Exact curves, the Gaussian estimate and the simulations they replace."""
    from feval.estimators.approximations import gaussian_estimate
    from feval.estimators.multinomial import plugin_plurality_accuracy

    counts = synthetic_counts()
    gold, rivals, no_answer = counts[:, 0], counts[:, 1:-1], counts[:, -1]
    rng = np.random.default_rng(1)

    def exact(votes: range | list[int]) -> npt.NDArray[np.float64]:
        return plugin_plurality_accuracy(gold, rivals, no_answer, votes).mean()

    ms = cpu_ms(
        {
            "curve": lambda: exact(range(1, VOTES + 1)),
            "single": lambda: exact([VOTES]),
            "large": lambda: exact([LARGE]),
            "all": lambda: exact(range(1, LARGE + 1)),
            "numpy": lambda: simulated(counts, rng),
            "loop": lambda: simulated_in_a_loop(counts, rng),
            "gaussian": (
                lambda: gaussian_estimate(gold / CALLS, rivals / CALLS, range(1, VOTES + 1)).mean()
            ),
        }
    )
    assert abs(exact([VOTES])[0] - simulated(counts, rng)) < 1e-3
    numpy_note = f"{ms['curve']:.0f} ms against {ms['numpy']:.0f} ms"
    return [
        Goal(
            "exact, M = 1..100, over NumPy Monte-Carlo of one M",
            ms["numpy"] / ms["curve"],
            1,
            "x",
            True,
            numpy_note,
        ),
        Goal(
            "over a Python loop of it",
            ms["loop"] / ms["curve"],
            10,
            "x",
            True,
            f"the loop: {ms['loop']:.0f} ms",
        ),
        Goal("exact, M = 100 alone", ms["single"], None, "ms"),
        Goal(
            "exact, M = 1001 alone, over the curve to 100",
            ms["large"] / ms["curve"],
            3,
            "x",
            note=f"{ms['large']:.0f} ms",
        ),
        Goal("exact, M = 1..1001", ms["all"], None, "ms"),
        Goal("Gaussian, M = 1..100", ms["gaussian"], 20, "ms"),
    ]
