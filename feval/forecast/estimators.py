"""The estimators behind `estimate`, applied to the drawn calls of one LLM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from feval.estimators.arrays import Floats, UInt64
from feval.estimators.counts import VoteCounts, vote_counts
from feval.estimators.inference.intervals import accuracy_interval
from feval.estimators.per_question import PerQuestion
from feval.estimators.two_call.completions import ldgp_completion, maxent_completion
from feval.estimators.two_call.moments import Moments
from feval.estimators.two_call.pair_table import PairTable, pair_table
from feval.estimators.two_call.vote_intervals import vote_interval
from feval.estimators.two_call.wald_regions import likelihood_projection, wald_projection
from feval.estimators.vote_polynomials import budget_index
from feval.estimators.votes.gaussian import gaussian_estimate
from feval.estimators.votes.multinomial import plugin_plurality_accuracy
from feval.estimators.votes.plurality import subset_plurality_accuracy
from feval.estimators.votes.sampling import monte_carlo_plurality_accuracy
from feval.evaluation.questions import Rows
from feval.forecast.evidence import SampleMoments, moments_of, sample_moments
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


def _exact(calls: DrawnCalls) -> EstimatedCurve:
    return calls.with_interval("exact", exact_values(calls))


def _gaussian(calls: DrawnCalls) -> EstimatedCurve:
    return calls.with_interval("gaussian", gaussian_values(calls))


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


def _max_entropy(calls: DrawnCalls) -> EstimatedCurve:
    return _completed(
        "max-entropy", calls, lambda moments, budgets: maxent_completion(moments, budgets).votes
    )


def _ldgp(calls: DrawnCalls) -> EstimatedCurve:
    return _completed(
        "ldgp", calls, lambda moments, budgets: ldgp_completion(moments, budgets).votes
    )


def _completed(
    method: str, calls: DrawnCalls, complete: Callable[[Moments, list[int]], Floats]
) -> EstimatedCurve:
    sample, resampled = moments_of(calls.moments())
    budgets = sorted({_budget(votes) for votes in calls.votes})
    tail = (1.0 - calls.confidence) / 2.0
    curve = complete(sample, budgets)
    low, high = np.quantile(complete(resampled, budgets), (tail, 1.0 - tail), axis=0)
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
    "exact": _exact,
    "monte-carlo": _monte_carlo,
    "gaussian": _gaussian,
    "two-call": _two_call,
    "max-entropy": _max_entropy,
    "ldgp": _ldgp,
    "unbiased": _unbiased,
}


def _no_unbiased(g: int) -> str:
    return (
        f"No unbiased estimate from {g} call{'s' if g > 1 else ''} exists beyond M = {g}, so none"
        " is given there."
    )
