"""The estimators behind `estimate`, applied to the drawn calls of one LLM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.approximations import gaussian_estimate, monte_carlo_plurality_accuracy
from feval.estimators.arrays import Floats, Integers, UInt64
from feval.estimators.completions import ldgp_completion, maxent_completion
from feval.estimators.intervals import accuracy_interval, bootstrap_means
from feval.estimators.moments import Moments, PairTable, pair_table
from feval.estimators.multinomial import plugin_plurality_accuracy
from feval.estimators.per_question import PerQuestion, VoteCounts, vote_counts
from feval.estimators.plurality import subset_plurality_accuracy
from feval.estimators.vote_intervals import vote_interval
from feval.estimators.vote_polynomials import budget_index
from feval.estimators.wald_regions import likelihood_projection, wald_projection
from feval.evaluation.questions import Rows
from feval.forecast.forecasts import EstimatedCurve, EstimatePoint
from feval.methods.protocol import drawn
from feval.replay import LLM, Dataset

_MODEL_RESAMPLES = 400  # for completions, which cost milliseconds each


@dataclass(frozen=True, eq=False)
class DrawnCalls:
    """The g drawn calls of each question, and how to estimate from them.

    Attributes:
        counts: their votes.
        pairs: questions by how many of the first two calls were right; not used for g = 1.
        votes: numbers of votes, M.
        keys: [Q] question keys.
        seed: of resamples and simulations.
        simulations: votes simulated per question.
    """

    counts: VoteCounts
    pairs: PairTable
    votes: list[int]
    keys: UInt64
    g: int
    seed: int
    confidence: float
    resamples: int
    simulations: int

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        llm: LLM,
        rows: Rows,
        g: int,
        replicate: int,
        votes: list[int],
        how: tuple[float, int, int],
    ) -> DrawnCalls:
        """Draw g calls per question; `how` is confidence, resamples and simulations."""
        codes, gold = (
            drawn(llm.pool.codes[rows], llm.orders([replicate], g, rows))[0],
            dataset.gold[rows],
        )
        pairs = pair_table(codes[:, [0, min(g, 2) - 1]] == gold[:, None])
        keys = dataset.question_keys[rows]
        return cls(vote_counts(codes, gold), pairs, votes, keys, g, llm.seed % (1 << 64), *how)

    def shares(self) -> tuple[Floats, Floats, Floats]:
        """Shares c / g of the gold answer, of each rival, and of no answer."""
        counts = self.counts
        return counts.gold / self.g, counts.rivals / self.g, counts.no_answer / self.g

    def moments(self) -> SampleMoments:
        """Estimate mu and nu from all pairs of the calls."""
        resamples = min(self.resamples, _MODEL_RESAMPLES)
        return sample_moments(
            self.counts.gold, self.counts.size, resamples=resamples, seed=self.seed
        )

    def with_interval(self, method: str, values: PerQuestion) -> EstimatedCurve:
        """Make the curve of values per question, with their intervals."""
        ends = accuracy_interval(values, self.confidence)
        columns = zip(
            self.votes, values.mean().tolist(), ends.low.tolist(), ends.high.tolist(), strict=False
        )
        points = [
            EstimatePoint(votes, mean, None, None, low, high) for votes, mean, low, high in columns
        ]
        points += [
            EstimatePoint(votes, None, None, None, None, None, _no_unbiased(self.g))
            for votes in self.votes[len(points) :]
        ]
        return EstimatedCurve(method, "plurality", "student", tuple(points))


def exact_values(calls: DrawnCalls) -> PerQuestion:
    """Plurality accuracy of M independent calls at the drawn shares."""
    counts = calls.counts
    return plugin_plurality_accuracy(counts.gold, counts.rivals, counts.no_answer, calls.votes)


def gaussian_values(calls: DrawnCalls) -> PerQuestion:
    """The Gaussian estimate at the drawn shares."""
    correct, rivals, _ = calls.shares()
    return gaussian_estimate(correct, rivals, calls.votes)


def _monte_carlo(calls: DrawnCalls) -> EstimatedCurve:
    simulated = monte_carlo_plurality_accuracy(
        *calls.shares(), calls.votes, replicates=calls.simulations, seed=calls.seed, keys=calls.keys
    )
    return calls.with_interval("monte-carlo", simulated)


def _unbiased(calls: DrawnCalls) -> EstimatedCurve:
    within = [votes for votes in calls.votes if votes <= calls.g]
    if not within:
        nothing = PerQuestion(np.empty((1, 0)), np.zeros(len(calls.keys), np.intp))
        return calls.with_interval("unbiased", nothing)
    counts = calls.counts
    return calls.with_interval(
        "unbiased", subset_plurality_accuracy(counts.gold, counts.rivals, counts.no_answer, within)
    )


def _two_call(calls: DrawnCalls) -> EstimatedCurve:
    table = calls.pairs
    sparse = bool(table.sparse) or int(table.questions) < 2
    project = likelihood_projection if sparse else wald_projection
    moments = table.moments() if _is_feasible(table) else None
    points, values = [], {}
    for votes in calls.votes:
        n = _budget(votes)
        if n not in values:
            region = project(table, n, calls.confidence)
            sharp = vote_interval(n, moments) if moments is not None else None
            ends = (None, None) if sharp is None else (float(sharp.low), float(sharp.high))
            outer = (None, None) if bool(region.empty) else (float(region.low), float(region.high))
            causes = [_NO_BOUNDS if sharp is None else "", str(region.reasons)]
            values[n] = (*ends, *outer, " ".join(filter(None, causes)) or None)
        points.append(EstimatePoint(votes, None, *values[n]))
    return EstimatedCurve("two-call", "majority", "likelihood" if sparse else "wald", tuple(points))


_NO_BOUNDS = (
    "The two calls of a question disagree more often than independent calls would (nu < mu^2),"
    " which happens by chance on few questions: no law has these sample moments, so there are no"
    " bounds, only the region's interval."
)


def _is_feasible(table: PairTable) -> bool:
    """Whether nu >= mu^2 in the sample."""
    both, apart = int(table.both_right), int(table.disagree)
    return 4 * both * int(table.questions) >= (2 * both + apart) ** 2


def _completed(
    method: str, complete: Callable[[Moments, list[int]], Any], calls: DrawnCalls
) -> EstimatedCurve:
    sample, resampled = moments_of(calls.moments())
    budgets = sorted({_budget(votes) for votes in calls.votes})
    tail = (1.0 - calls.confidence) / 2.0
    curve = complete(sample, budgets).votes
    low, high = np.quantile(complete(resampled, budgets).votes, (tail, 1.0 - tail), axis=0)
    points = []
    for votes in calls.votes:
        at = budgets.index(_budget(votes))
        # percentiles of few resamples need not contain the estimate
        ends = min(float(low[at]), float(curve[at])), max(float(high[at]), float(curve[at]))
        points.append(EstimatePoint(votes, float(curve[at]), None, None, *ends))
    return EstimatedCurve(method, "majority", "bootstrap", tuple(points))


def _budget(votes: int) -> int:
    """The n of 2n + 1 votes; with fair ties an even number is as accurate as one vote fewer."""
    return budget_index(votes - 1 + votes % 2)


ESTIMATORS: dict[str, Callable[[DrawnCalls], EstimatedCurve]] = {
    "exact": lambda calls: calls.with_interval("exact", exact_values(calls)),
    "monte-carlo": _monte_carlo,
    "gaussian": lambda calls: calls.with_interval("gaussian", gaussian_values(calls)),
    "two-call": _two_call,
    "max-entropy": partial(_completed, "max-entropy", maxent_completion),
    "ldgp": partial(_completed, "ldgp", ldgp_completion),
    "unbiased": _unbiased,
}


def _no_unbiased(g: int) -> str:
    return (
        f"No unbiased estimate from {g} call{'s' if g > 1 else ''} exists beyond M = {g}, so none"
        " is given there."
    )


_FEWEST_IN_A_CELL = 5  # as `PairTable.sparse` has it

MOST_VOTES = 10_000
"""The largest M of a forecast."""


@dataclass(frozen=True, eq=False)
class SampleMoments:
    """Estimates of mu = E Q and nu = E Q^2, Q the probability that a call on a random question is
    right.

    Attributes:
        mu: mean over questions of c / G, unbiased.
        nu: mean of c (c - 1) / (G (G - 1)), unbiased for independent calls; clipped to [mu^2, mu].
        clipped: whether it was: the calls disagreed more often than independent ones would.
        resampled: [R, 2] (mu, nu) of R resamples of the questions, clipped likewise.
        unclipped: [1 + R, 2] (mu, nu) as estimated, of the sample and then of its resamples.
    """

    mu: float
    nu: float
    clipped: bool
    resampled: Floats
    unclipped: Floats


def checked_votes(m: Any) -> list[int]:
    """Check that numbers of votes are distinct integers from 1 to `MOST_VOTES`, and return them in
    ascending order.
    """
    votes = [int(value) for value in m]
    wrong = next((value for value in votes if not 1 <= value <= MOST_VOTES), None)
    if wrong is not None:
        raise OutOfRangeError(f"A vote has 1 to {MOST_VOTES:,} calls; M = {wrong} was asked for.")
    if not votes or len(set(votes)) < len(votes):
        raise OutOfRangeError(
            f"A forecast takes distinct numbers of votes, such as range(1, 41); {votes[:10]} was"
            " given."
        )
    return sorted(votes)


def ordered_by_key(dataset: Dataset, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """[Q] rows sorted by question key, so that intervals do not depend on the recording's order."""
    return rows[np.argsort(dataset.question_keys[rows], kind="stable")]


def sample_moments(right: Integers, size: Integers, *, resamples: int, seed: int) -> SampleMoments:
    """Estimate mu and nu from [Q] right calls out of [Q] sizes of at least 2, with resamples over
    questions.
    """
    c, g = right.astype(np.float64), size.astype(np.float64)
    columns = np.stack([c / g, c * (c - 1.0) / (g * (g - 1.0))], axis=1)
    mu, nu = columns.mean(axis=0).tolist()
    resampled = bootstrap_means(columns, resamples=resamples, seed=seed)
    resampled[:, 0] = np.clip(resampled[:, 0], 0.0, 1.0)
    unclipped = np.vstack([[mu, nu], resampled])
    resampled[:, 1] = np.clip(resampled[:, 1], resampled[:, 0] ** 2, resampled[:, 0])
    return SampleMoments(mu, float(np.clip(nu, mu * mu, mu)), nu < mu * mu, resampled, unclipped)


def rare_pairs(right: Integers, size: Integers) -> str | None:
    """Name the kinds of pairs of calls that fewer than 5 questions show, such as "both wrong 0";
    `None` if there are none.

    Resamples never show a kind that the questions lack, so their moments then look more certain
    than they are.
    """
    wrong = size - right
    kinds = {
        "both right": right >= 2,
        "one right": (right >= 1) & (wrong >= 1),
        "both wrong": wrong >= 2,
    }
    counts = {kind: int(np.count_nonzero(questions)) for kind, questions in kinds.items()}
    return (
        ", ".join(f"{kind} {count}" for kind, count in counts.items() if count < _FEWEST_IN_A_CELL)
        or None
    )


def moments_of(sample: SampleMoments) -> tuple[Moments, Moments]:
    """The moments of the sample (a scalar table) and of its resamples [R]."""
    return Moments.of(sample.mu, sample.nu), Moments.of(
        sample.resampled[:, 0], sample.resampled[:, 1]
    )
