"""The estimators behind `estimate`, applied to the drawn calls of one LLM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from feval.estimators.approximations import gaussian_estimate, monte_carlo_plurality_accuracy
from feval.estimators.arrays import Floats, UInt64
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
        keys: [Q] question keys.
        seed: of resamples and simulations.
        votes: numbers of votes, M.
        simulations: votes simulated per question.
    """

    counts: VoteCounts
    pairs: PairTable
    keys: UInt64
    g: int
    seed: int
    votes: list[int]
    confidence: float
    resamples: int
    simulations: int

    @classmethod
    def from_pool(
        cls, dataset: Dataset, llm: LLM, rows: Rows, g: int, replicate: int, *how: Any
    ) -> DrawnCalls:
        """Draw g calls per question; `how` is votes, confidence, resamples and simulations."""
        codes, gold = (
            drawn(llm.pool.codes[rows], llm.orders([replicate], g, rows))[0],
            dataset.gold[rows],
        )
        pairs = pair_table(codes[:, [0, min(g, 2) - 1]] == gold[:, None])
        keys = dataset.question_keys[rows]
        return cls(vote_counts(codes, gold), pairs, keys, g, llm.seed % (1 << 64), *how)

    def shares(self) -> tuple[Floats, Floats, Floats]:
        """Shares c / g of the gold answer, of each rival, and of no answer."""
        counts = self.counts
        return counts.gold / self.g, counts.rivals / self.g, counts.no_answer / self.g

    def moments(self) -> SampleMoments:
        """Estimate mu and nu from all pairs of the calls."""
        resamples = min(self.resamples, _MODEL_RESAMPLES)
        return sample_moments(self.counts, resamples=resamples, seed=self.seed)

    def with_interval(self, method: str, values: PerQuestion) -> EstimatedCurve:
        """Make the curve of values per question, with their intervals."""
        ends = accuracy_interval(values, self.confidence)
        rows = np.stack([values.mean(), ends.low, ends.high], axis=1).tolist()
        points = [
            EstimatePoint(votes, mean, None, None, *interval)
            for votes, (mean, *interval) in zip(self.votes, rows, strict=False)
        ]
        why = (
            f"No unbiased estimate from {self.g} call{'s' if self.g > 1 else ''} exists beyond M ="
            f" {self.g}, so none is given there."
        )
        points += [
            EstimatePoint(votes, None, None, None, None, None, why)
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


def _simulated_values(calls: DrawnCalls) -> PerQuestion:
    return monte_carlo_plurality_accuracy(
        *calls.shares(), calls.votes, replicates=calls.simulations, seed=calls.seed, keys=calls.keys
    )


def _unbiased_values(calls: DrawnCalls) -> PerQuestion:
    within = [votes for votes in calls.votes if votes <= calls.g]
    if not within:
        return PerQuestion(np.empty((1, 0)), np.zeros(len(calls.keys), np.intp))
    counts = calls.counts
    return subset_plurality_accuracy(counts.gold, counts.rivals, counts.no_answer, within)


def _two_call(calls: DrawnCalls) -> EstimatedCurve:
    table = calls.pairs
    sparse = bool(table.sparse) or int(table.questions) < 2
    project = likelihood_projection if sparse else wald_projection
    both, apart = int(table.both_right), int(table.disagree)
    # nu >= mu^2 in the sample
    is_feasible = 4 * both * int(table.questions) >= (2 * both + apart) ** 2
    moments = table.moments() if is_feasible else None
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


def _completed(method: str, calls: DrawnCalls) -> EstimatedCurve:
    complete: Callable[[Moments, list[int]], Any] = (
        ldgp_completion if method == "ldgp" else maxent_completion
    )
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


_VALUES: dict[str, Callable[[DrawnCalls], PerQuestion]] = {
    "unbiased": _unbiased_values,
    "exact": exact_values,
    "monte-carlo": _simulated_values,
    "gaussian": gaussian_values,
}


def estimated_curve(method: str, calls: DrawnCalls) -> EstimatedCurve:
    """The values of one of `feval.forecast.METHODS`."""
    if method in _VALUES:
        return calls.with_interval(method, _VALUES[method](calls))
    return _two_call(calls) if method == "two-call" else _completed(method, calls)


_FEWEST_IN_A_CELL = 5  # as `PairTable.sparse` has it


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


def ordered_by_key(dataset: Dataset, rows: Rows) -> Rows:
    """[Q] rows sorted by question key, so that intervals do not depend on the recording's order."""
    return rows[np.argsort(dataset.question_keys[rows], kind="stable")]


def sample_moments(counts: VoteCounts, *, resamples: int, seed: int) -> SampleMoments:
    """Estimate mu and nu from the right calls among two or more of each question, with resamples
    over questions.
    """
    c, g = counts.gold.astype(np.float64), counts.size.astype(np.float64)
    columns = np.stack([c / g, c * (c - 1.0) / (g * (g - 1.0))], axis=1)
    mu, nu = columns.mean(axis=0).tolist()
    resampled = bootstrap_means(columns, resamples=resamples, seed=seed)
    resampled[:, 0] = np.clip(resampled[:, 0], 0.0, 1.0)
    unclipped = np.vstack([[mu, nu], resampled])
    resampled[:, 1] = np.clip(resampled[:, 1], resampled[:, 0] ** 2, resampled[:, 0])
    return SampleMoments(mu, float(np.clip(nu, mu * mu, mu)), nu < mu * mu, resampled, unclipped)


def rare_pairs(counts: VoteCounts) -> str | None:
    """Name the kinds of pairs of calls that fewer than 5 questions show, such as "both wrong 0";
    `None` if there are none.

    Resamples never show a kind that the questions lack, so their moments then look more certain
    than they are.
    """
    right, wrong = counts.gold, counts.size - counts.gold
    kinds = {
        "both right": right >= 2,
        "one right": (right >= 1) & (wrong >= 1),
        "both wrong": wrong >= 2,
    }
    numbers = {kind: int(np.count_nonzero(questions)) for kind, questions in kinds.items()}
    rare = [f"{kind} {number}" for kind, number in numbers.items() if number < _FEWEST_IN_A_CELL]
    return ", ".join(rare) or None


def moments_of(sample: SampleMoments) -> tuple[Moments, Moments]:
    """The moments of the sample (a scalar table) and of its resamples [R]."""
    return Moments.of(sample.mu, sample.nu), Moments.of(
        sample.resampled[:, 0], sample.resampled[:, 1]
    )
