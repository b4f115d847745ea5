"""Accuracy of M-fold voting from G calls per question, beside what the whole pool says, so that the error is visible."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError, UnknownNameError
from feval.estimators.counts import vote_counts
from feval.estimators.inference.intervals import accuracy_interval
from feval.estimators.per_question import PerQuestion
from feval.estimators.two_call.completions import ldgp_completion, maxent_completion
from feval.estimators.two_call.pair_table import pair_table
from feval.estimators.two_call.vote_intervals import vote_interval
from feval.estimators.two_call.wald_regions import likelihood_projection, wald_projection
from feval.estimators.vote_polynomials import budget_index
from feval.estimators.votes.empirical_votes import hypergeometric_majority
from feval.estimators.votes.gaussian import gaussian_estimate
from feval.estimators.votes.multinomial import plugin_plurality_accuracy
from feval.estimators.votes.plurality import subset_plurality_accuracy
from feval.estimators.votes.sampling import monte_carlo_plurality_accuracy
from feval.evaluation.cautions import few_questions
from feval.evaluation.question_set import NONE_LEFT_OUT, LeftOut, Rows, question_set
from feval.forecast.evidence import checked_votes, moments_of, ordered_by_key, rare_pairs, sample_moments
from feval.methods.protocol import drawn

if TYPE_CHECKING:
    from feval.estimators.counts import VoteCounts
    from feval.estimators.two_call.moments import Moments
    from feval.estimators.two_call.pair_table import PairTable
    from feval.forecast.evidence import SampleMoments
    from feval.replay.loading import LLM, Dataset

__all__ = [
    "COMPLETIONS",
    "METHODS",
    "OF_MAJORITY",
    "PLUG_IN",
    "Estimate",
    "EstimatePoint",
    "Forecast",
    "Reference",
    "estimate",
]

Integers = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float64]

METHODS = ("unbiased", "exact", "monte-carlo", "gaussian", "two-call", "max-entropy", "ldgp")
"""The estimators by name. `unbiased` says nothing beyond M = G; the others do."""

OF_MAJORITY = ("two-call", "max-entropy", "ldgp")
"""Those that look at right and wrong only: a vote is right where most of its calls are."""

COMPLETIONS = ("max-entropy", "ldgp")
"""Those that assume a law of the questions' difficulty."""

PLUG_IN = ("exact", "monte-carlo", "gaussian")
"""Those that take the shares of the calls for the LLM's: biased."""

_MODEL_RESAMPLES = 400  # of the completions, which cost milliseconds each
_MANY_RIVALS = 3
_SHARE_OF_QUESTIONS = 0.05


@dataclass(frozen=True, slots=True)
class EstimatePoint:
    """What one estimator says of one M.

    Attributes:
        m: votes.
        accuracy: the estimate; `None` where there is none: of the bounds, or beyond M = G of `unbiased`.
        bound_low: L, the least accuracy of any law with the estimated moments (`two-call`), else `None`.
        bound_high: U, the greatest.
        low: lower end of the confidence interval.
        high: upper end.
        reason: why there is no estimate, no bounds or no interval; `None` where nothing is missing.
    """

    m: int
    accuracy: float | None
    bound_low: float | None
    bound_high: float | None
    low: float | None
    high: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """One estimator over all M.

    Attributes:
        method: one of `METHODS`.
        of: what it estimates: the accuracy of a "plurality" of answers, or of a "majority" of right calls.
        interval: how its intervals are made: "score" over questions, "bootstrap" of the moments, or "wald" or "likelihood"
            regions of the pair table.
        points: by M.
    """

    method: str
    of: str
    interval: str
    points: tuple[EstimatePoint, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """The whole pool: exact means over all subsets of M recorded calls, unbiased for the accuracy of M fresh ones.

    Attributes:
        size: calls of the smallest pool: nothing is known beyond M = size.
        plurality: one accuracy per M, ties by lot; `None` beyond the pool.
        majority: the same for a majority of right calls.
    """

    size: int
    plurality: tuple[float | None, ...]
    majority: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Forecast:
    """Estimated vote curves of one LLM on one dataset.

    Attributes:
        dataset: id.
        llm: name.
        recording_hashes: of the recordings the calls are from.
        questions: number of questions.
        g: calls per question that the estimates are made from.
        replicate: which draw of `draws-v1`.
        seed: of the draw and of the resamples.
        confidence: of the intervals.
        resamples: of the bootstrap.
        simulations: votes simulated per question (`monte-carlo`).
        m: numbers of votes.
        pool: the curves of the whole pool.
        estimates: one per method, in the order asked for.
        warnings: sentences that a reader needs in order not to be misled.
        left_out: questions that were left out because they have no gold or fewer than g calls.
    """

    dataset: str
    llm: str
    recording_hashes: tuple[str, ...]
    questions: int
    g: int
    replicate: int
    seed: int
    confidence: float
    resamples: int
    simulations: int
    m: tuple[int, ...]
    pool: Reference
    estimates: tuple[Estimate, ...]
    warnings: tuple[str, ...]
    left_out: LeftOut = NONE_LEFT_OUT

    def errors(self, estimate: Estimate) -> tuple[float | None, ...]:
        """Estimate minus pool for each M; `None` where either is missing. Bounds: how far the pool lies outside, 0 within.

        Args:
            estimate: one of `estimates`.
        """
        truth = self.pool.plurality if estimate.of == "plurality" else self.pool.majority
        return tuple(_error(point, true) for point, true in zip(estimate.points, truth, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """The forecast as JSON values, the error of each point beside it."""
        told = dataclasses.asdict(self)
        for written, own in zip(told["estimates"], self.estimates, strict=True):
            for point, error in zip(written["points"], self.errors(own), strict=True):
                point["error"] = error
        del told["left_out"]
        return told | {"scheme": "draws-v1"} | ({"left_out": self.left_out.to_dict()} if self.left_out else {})


def _error(point: EstimatePoint, true: float | None) -> float | None:
    if true is None:
        return None
    if point.accuracy is not None:
        return point.accuracy - true
    if point.bound_low is None or point.bound_high is None:
        return None
    return max(point.bound_low - true, 0.0) or min(point.bound_high - true, 0.0)


def estimate(
    dataset: Dataset,
    llm: LLM,
    *,
    g: int,
    m: Sequence[int],
    methods: Sequence[str] = METHODS,
    replicate: int = 0,
    unlabelled: str = "refuse",
    short_pools: str = "refuse",
    confidence: float = 0.95,
    resamples: int = 10_000,
    simulations: int = 100,
) -> Forecast:
    """Forecast the accuracy of M-fold voting from g calls per question.

    - `unbiased`: the mean over all subsets of M of the g calls, for M up to g: wherever an unbiased estimate exists.
    - `exact`: the plurality accuracy of M independent calls at the shares c / g (the Monte-Carlo estimator without simulation);
      `monte-carlo`: the same, simulated; `gaussian`: eq. (9), guarded ("Compute-efficient evaluation of LLM voting accuracy").
      Biased for every M above 1.
    - `two-call` (arXiv 2605.03379, Theorem 4.1): sharp bounds from the first two calls of each question, and the projected region
      that contains sampling error; Wald's, or the likelihood's where a cell holds fewer than 5 questions.
    - `max-entropy`, `ldgp` (Props. 5.1, 5.2): curves of laws that match mu and nu, estimated from all pairs of the g calls.

    The last three speak of a majority of right calls, which a plurality among several wrong answers exceeds; each estimate is
    compared with the pool's curve of its own kind. All assume that calls on a question are independent given the question.
    Intervals cover the luck of the questions and of the calls drawn; they cover neither an estimator's bias nor a model's error.
    Those of the completions come from 400 resamples at most.

    Args:
        dataset: from `load`.
        llm: from the same `load`; its seed makes the draws and the resamples.
        g: calls per question, from 1 (2 for the last three) to the smallest pool.
        m: distinct numbers of votes, 1 to 10,000.
        methods: names from `METHODS`.
        replicate: which draw of g calls, from 0.
        unlabelled: "refuse" or "drop" questions without a gold answer that can be read.
        short_pools: "refuse" or "drop" questions with fewer than g calls.
        confidence: of the intervals.
        resamples: over questions.
        simulations: K of `monte-carlo`.

    Raises:
        ShortPoolError: g above a pool; the message names the question.
        UnlabelledError: questions have no gold answer that can be read.
        OutOfRangeError: an M below 1, g too small, no method or one twice, or a confidence outside (0, 1).
        UnknownNameError: a method that nobody knows.
        UsageError: dataset and LLM from different loads.
    """
    votes = checked_votes(m)
    _check(g, methods, confidence)
    dataset.require([llm])
    questions = question_set(dataset, [(llm, g)], unlabelled=unlabelled, short_pools=short_pools)
    rows = ordered_by_key(dataset, questions.rows)
    calls = _Calls.of(dataset, llm, rows, g, replicate, votes, (confidence, resamples, simulations))
    pool = _reference(dataset, llm, questions.rows, votes)
    estimates = tuple(_ESTIMATORS[name](calls) for name in methods)
    return Forecast(
        dataset=dataset.id,
        llm=llm.name,
        recording_hashes=dataset.recording_hashes,
        questions=len(rows),
        g=g,
        replicate=replicate,
        seed=llm.seed,
        confidence=confidence,
        resamples=resamples,
        simulations=simulations,
        m=tuple(votes),
        pool=pool,
        estimates=estimates,
        warnings=tuple(_warnings(calls, methods, estimates, pool.size)),
        left_out=questions.left_out,
    )


def _check(g: int, methods: Sequence[str], confidence: float) -> None:
    for name in methods:
        if name not in METHODS:
            raise UnknownNameError.of("estimator", name, METHODS)
    if not methods or len(set(methods)) < len(methods):
        raise OutOfRangeError(
            f"A forecast takes distinct estimators, such as exact,two-call; {list(methods)} was given."
        )
    if g < 1:
        raise OutOfRangeError(
            f"An estimate is made from 1 call per question or more, and g = {g} was asked for; ask for 1 or more."
        )
    paired = next((name for name in methods if name in OF_MAJORITY), None)
    if g < 2 and paired is not None:
        raise OutOfRangeError(
            f"{paired} looks at pairs of calls, and g = {g} was asked for; ask for 2 or more, or for another estimator."
        )
    if not 0.0 < confidence < 1.0:
        raise OutOfRangeError(f"A confidence lies between 0 and 1, such as 0.95; {confidence} was given.")


# -- the calls that are looked at -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Calls:
    """The g drawn calls of each question, questions by key.

    Attributes:
        counts: their votes.
        pairs: questions by how many of the first two calls were right; for g = 1, of the same call twice, which nobody reads.
        votes: numbers of votes.
        keys: [Q] of the questions.
        g: calls per question.
        seed: of resamples and simulations.
        confidence: of intervals.
        resamples: over questions.
        simulations: K.
    """

    counts: VoteCounts
    pairs: PairTable
    votes: list[int]
    keys: npt.NDArray[np.uint64]
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
    ) -> _Calls:

        codes, gold = drawn(llm.pool.codes[rows], llm.orders([replicate], g, rows))[0], dataset.gold[rows]
        pairs = pair_table(codes[:, [0, min(g, 2) - 1]] == gold[:, None])
        keys = dataset.question_keys[rows]
        return cls(vote_counts(codes, gold), pairs, votes, keys, g, llm.seed % (1 << 64), *how)

    def shares(self) -> tuple[Floats, Floats, Floats]:
        """Shares c / g of the gold, of each rival, and of no answer."""
        counts = self.counts
        return counts.gold / self.g, counts.rivals / self.g, counts.no_answer / self.g

    def moments(self) -> SampleMoments:
        """Of all pairs of the calls: mu and nu."""
        some = min(self.resamples, _MODEL_RESAMPLES)
        return sample_moments(self.counts.gold, self.counts.size, resamples=some, seed=self.seed)

    def with_interval(self, method: str, values: PerQuestion) -> Estimate:
        """The estimate of values per question, with their score intervals."""
        ends = accuracy_interval(values, self.confidence)
        columns = zip(self.votes, values.mean().tolist(), ends.low.tolist(), ends.high.tolist(), strict=False)
        points = [EstimatePoint(votes, mean, None, None, low, high) for votes, mean, low, high in columns]
        points += [
            EstimatePoint(votes, None, None, None, None, None, _no_unbiased(self.g))
            for votes in self.votes[len(points) :]
        ]
        return Estimate(method, "plurality", "score", tuple(points))


# -- the estimators -------------------------------------------------------------------------------------------------


def _exact_values(calls: _Calls) -> PerQuestion:

    counts = calls.counts
    return plugin_plurality_accuracy(counts.gold, counts.rivals, counts.no_answer, calls.votes)


def _gaussian_values(calls: _Calls) -> PerQuestion:

    correct, rivals, _ = calls.shares()
    return gaussian_estimate(correct, rivals, calls.votes)


def _exact(calls: _Calls) -> Estimate:
    return calls.with_interval("exact", _exact_values(calls))


def _gaussian(calls: _Calls) -> Estimate:
    return calls.with_interval("gaussian", _gaussian_values(calls))


def _monte_carlo(calls: _Calls) -> Estimate:

    simulated = monte_carlo_plurality_accuracy(
        *calls.shares(), calls.votes, replicates=calls.simulations, seed=calls.seed, keys=calls.keys
    )
    return calls.with_interval("monte-carlo", simulated)


def _unbiased(calls: _Calls) -> Estimate:

    within = [votes for votes in calls.votes if votes <= calls.g]
    if not within:
        nothing = PerQuestion(np.empty((1, 0)), np.zeros(len(calls.keys), np.intp))
        return calls.with_interval("unbiased", nothing)
    counts = calls.counts
    return calls.with_interval(
        "unbiased", subset_plurality_accuracy(counts.gold, counts.rivals, counts.no_answer, within)
    )


def _two_call(calls: _Calls) -> Estimate:

    table = calls.pairs
    sparse = bool(table.sparse) or int(table.questions) < 2
    project = likelihood_projection if sparse else wald_projection
    moments = table.moments() if _is_feasible(table) else None
    points, found = [], {}
    for votes in calls.votes:
        n = _budget(votes)
        if n not in found:
            region = project(table, n, calls.confidence)
            sharp = vote_interval(n, moments) if moments is not None else None
            ends = (None, None) if sharp is None else (float(sharp.low), float(sharp.high))
            outer = (None, None) if bool(region.empty) else (float(region.low), float(region.high))
            causes = [_NO_BOUNDS if sharp is None else "", str(region.reasons)]
            found[n] = (*ends, *outer, " ".join(filter(None, causes)) or None)
        points.append(EstimatePoint(votes, None, *found[n]))
    return Estimate("two-call", "majority", "likelihood" if sparse else "wald", tuple(points))


_NO_BOUNDS = (
    "The two calls of a question disagree more often than independent calls would (nu < mu^2), which happens by chance on few "
    "questions: no law has these sample moments, so there are no bounds, only the region's interval."
)


def _is_feasible(table: PairTable) -> bool:
    """Whether nu >= mu^2 in the sample."""
    both, apart = int(table.both_right), int(table.disagree)
    return 4 * both * int(table.questions) >= (2 * both + apart) ** 2


def _max_entropy(calls: _Calls) -> Estimate:

    return _completed("max-entropy", calls, lambda moments, budgets: maxent_completion(moments, budgets).votes)


def _ldgp(calls: _Calls) -> Estimate:

    return _completed("ldgp", calls, lambda moments, budgets: ldgp_completion(moments, budgets).votes)


def _completed(method: str, calls: _Calls, complete: Callable[[Moments, list[int]], Floats]) -> Estimate:
    sample, resampled = moments_of(calls.moments())
    budgets = sorted({_budget(votes) for votes in calls.votes})
    tail = (1.0 - calls.confidence) / 2.0
    curve = complete(sample, budgets)
    low, high = np.quantile(complete(resampled, budgets), (tail, 1.0 - tail), axis=0)
    points = []
    for votes in calls.votes:
        at = budgets.index(_budget(votes))
        # the percentiles of few resamples need not hold the estimate
        ends = min(float(low[at]), float(curve[at])), max(float(high[at]), float(curve[at]))
        points.append(EstimatePoint(votes, float(curve[at]), None, None, *ends))
    return Estimate(method, "majority", "bootstrap", tuple(points))


def _budget(votes: int) -> int:
    """The n of 2n + 1 votes; with fair ties an even number is as accurate as one vote fewer."""
    return budget_index(votes - 1 + votes % 2)


_ESTIMATORS: dict[str, Callable[[_Calls], Estimate]] = {
    "exact": _exact,
    "monte-carlo": _monte_carlo,
    "gaussian": _gaussian,
    "two-call": _two_call,
    "max-entropy": _max_entropy,
    "ldgp": _ldgp,
    "unbiased": _unbiased,
}


def _reference(dataset: Dataset, llm: LLM, rows: Rows, votes: list[int]) -> Reference:

    size = int(llm.pool.sizes[rows].min())
    within = [m for m in votes if m <= size]
    beyond: tuple[None, ...] = (None,) * (len(votes) - len(within))
    if not within:
        return Reference(size, beyond, beyond)
    counts = vote_counts(llm.pool.codes[rows], dataset.gold[rows])
    plurality = subset_plurality_accuracy(counts.gold, counts.rivals, counts.no_answer, within).mean()
    majority = [
        float(hypergeometric_majority(counts.gold.astype(np.int64), counts.size.astype(np.int64), m).mean())
        for m in within
    ]
    return Reference(size, (*plurality.tolist(), *beyond), (*majority, *beyond))


# -- what a reader must know ----------------------------------------------------------------------------------------


def _warnings(calls: _Calls, methods: Sequence[str], estimates: Sequence[Estimate], pool: int) -> list[str]:
    said = [
        *few_questions(len(calls.keys)),
        _biased(calls, [name for name in methods if name in PLUG_IN]),
        _saturation(calls, [name for name in methods if name in PLUG_IN]),
        *_missing(estimates),
        _rivals(calls) if "gaussian" in methods else None,
        _cells(calls) if "two-call" in methods else None,
        *_completions(calls, [name for name in methods if name in COMPLETIONS]),
        _majority(calls, [name for name in methods if name in OF_MAJORITY]),
        _reach(calls.votes, pool),
    ]
    return [sentence for sentence in said if sentence is not None]


def _biased(calls: _Calls, names: Sequence[str]) -> str | None:
    within = [votes for votes in calls.votes if 1 < votes <= calls.g]
    if not within or not names:
        return None
    return (
        f"{', '.join(names)}: biased for every M above 1, as shares of {calls.g} calls stand for the LLM's own. Up to M = "
        f"{calls.g} an unbiased estimate exists: read unbiased there."
    )


def _saturation(calls: _Calls, names: Sequence[str]) -> str | None:
    g, most = calls.g, calls.votes[-1]
    if most <= g or not names:
        return None
    few = f"{g} call{'s' if g > 1 else ''}"
    instead = "record more calls, or read the two-call bounds" if g > 1 else "record more calls"
    return (
        f"{', '.join(names)}: made from {few} per question, drawn to M = {most}. Beyond M = {g} it levels off at the "
        f"accuracy of a {g}-call vote, whatever more votes would do; {instead}."
    )


def _missing(estimates: Sequence[Estimate]) -> list[str]:
    """Why values are missing, once for each estimator and cause."""
    told = {own.method: [point.reason for point in own.points if point.reason] for own in estimates}
    return [f"{method}: {reason}" for method, reasons in told.items() for reason in dict.fromkeys(reasons)]


def _no_unbiased(g: int) -> str:
    return f"No unbiased estimate from {g} call{'s' if g > 1 else ''} exists beyond M = {g}, so none is given there."


def _rivals(calls: _Calls) -> str | None:
    many = float((np.count_nonzero(calls.counts.rivals, axis=1) >= _MANY_RIVALS).mean())
    if many < _SHARE_OF_QUESTIONS:
        return None
    gap = _gaussian_values(calls).mean() - _exact_values(calls).mean()
    worst = int(np.abs(gap).argmax())
    return (
        f"gaussian: {100 * many:.0f} % of the questions have {_MANY_RIVALS} or more different wrong answers among their "
        f"{calls.g} calls. It takes rivals for independent, and at M = {calls.votes[worst]} it is {100 * gap[worst]:+.1f} points "
        "off the exact value at the same shares; use exact."
    )


def _cells(calls: _Calls) -> str | None:
    table = calls.pairs
    if not bool(table.sparse):
        return None
    cells = {"both right": table.both_right, "one right": table.disagree, "both wrong": table.both_wrong}
    few = [f"{name} {int(count)}" for name, count in cells.items() if count < 5]
    total = int(table.questions)
    questions = f"{total} question{'s' if total > 1 else ''}"
    what = "is empty" if 0 in map(int, cells.values()) else "is nearly empty"
    return (
        f"two-call: a cell of the pair table ({questions}) {what} ({', '.join(few)}). Wald's region would "
        "claim too much, so the interval is that of the likelihood; record more questions."
    )


def _completions(calls: _Calls, names: Sequence[str]) -> list[str | None]:
    if not names:
        return []
    rare = rare_pairs(calls.counts.gold, calls.counts.size)
    narrow = (
        f"{', '.join(names)}: a cell of the pair table holds fewer than 5 questions ({rare}). The intervals resample questions "
        "and are too narrow; record more questions."
    )
    return [_clipped(calls, names), None if rare is None else narrow]


def _clipped(calls: _Calls, names: Sequence[str]) -> str | None:
    if not calls.moments().clipped:
        return None
    return (
        f"{', '.join(names)}: the calls on a question disagree more often than independent calls would, which happens by chance "
        "on few questions. The curve is that of calls that are all equally hard."
    )


def _majority(calls: _Calls, names: Sequence[str]) -> str | None:
    if not names:
        return None
    even = next((votes for votes in calls.votes if votes % 2 == 0), None)
    equals = (
        ""
        if even is None
        else f" At an even M they equal those of M - 1 (ties by lot): M = {even} is as M = {even - 1}."
    )
    return (
        f"{', '.join(names)}: of a majority of right calls. A plurality wins with fewer where wrong answers differ, so these "
        f"are compared with the pool's majority curve.{equals}"
    )


def _reach(votes: list[int], pool: int) -> str | None:
    if votes[-1] <= pool:
        return None
    return f"The pool has {pool} calls per question: beyond M = {pool} no error can be told."
