"""Accuracy of M-fold voting from G calls per question: estimated curves of one LLM beside the curve
of its whole pool, so that the error is visible.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from feval import executors
from feval.arguments import checked
from feval.cards.billing import PICODOLLARS, Price, billed_prompts, require_plain, usd
from feval.errors import OutOfRangeError, require_known
from feval.estimators.approximations import gaussian_estimate, monte_carlo_plurality_accuracy
from feval.estimators.arrays import Floats, Integers, Result, UInt64, require_confidence
from feval.estimators.completions import ldgp_completion, maxent_completion
from feval.estimators.intervals import accuracy_interval, bootstrap_means
from feval.estimators.moments import SPARSE_CELL, Moments, PairTable, pair_table
from feval.estimators.multinomial import plugin_plurality_accuracy
from feval.estimators.per_question import MOST_VOTES, PerQuestion
from feval.estimators.plurality import (
    VoteCounts,
    hypergeometric_majority,
    mean_output_tokens,
    subset_plurality_accuracy,
    vote_counts,
)
from feval.estimators.vote_intervals import vote_interval
from feval.estimators.vote_polynomials import budget_index
from feval.estimators.wald_regions import likelihood_projection, wald_projection
from feval.evaluation.cautions import few_questions, judged_by
from feval.evaluation.curves import ascending
from feval.evaluation.questions import NONE_LEFT_OUT, LeftOut, Rows, question_set
from feval.evaluation.replicates import loaded, with_numbers
from feval.executors import UncountedProgress, reports
from feval.lazy import Plottable
from feval.methods.protocol import drawn
from feval.replay import LLM, Dataset, without_gaps
from feval.replay.loading import LoadRecipe
from feval.values import Record, frozen

METHODS = ("unbiased", "plug-in", "monte-carlo", "gaussian", "two-call", "max-entropy", "ldgp")
"""Estimators by name; all but `unbiased` go beyond M = G."""

OF_MAJORITY = ("two-call", "max-entropy", "ldgp")
"""Estimators of a majority of right calls, which see right and wrong only."""

COMPLETIONS = ("max-entropy", "ldgp")
"""Estimators that assume a distribution of the questions' difficulty."""

PLUG_IN = ("plug-in", "monte-carlo", "gaussian")
"""Estimators that use the shares of the calls as the LLM's probabilities: biased."""


@frozen
class EstimatePoint:
    """An estimator's value for one M.

    Attributes:
        m: votes.
        accuracy: the estimate; `None` for bounds, and for `unbiased` beyond M = G.
        bound_low: L, the least accuracy of any distribution with the estimated moments (`two-call`
            only).
        bound_high: U, the greatest.
        low: lower end of the confidence interval.
        high: upper end.
        reason: why an estimate, bounds or an interval are missing; `None` where nothing is missing.
    """

    m: int
    accuracy: float | None
    bound_low: float | None
    bound_high: float | None
    low: float | None
    high: float | None
    reason: str | None = None


@frozen
class EstimatedCurve:
    """An estimator's values for all M.

    Attributes:
        method: one of `METHODS`.
        of: what it estimates: the accuracy of a "plurality" of answers or of a "majority" of right
            calls.
        interval: kind of its intervals: "student" over questions, "bootstrap" of the moments, or
            "wald" or "likelihood" regions of the pair table.
        points: by M.
    """

    method: str
    of: str
    interval: str
    points: tuple[EstimatePoint, ...]


@frozen
class PoolCurves:
    """Curves of the whole pool: exact means over all subsets of M recorded calls, unbiased for M
    fresh calls.

    Attributes:
        size: calls of the smallest pool, the largest M with a value.
        plurality: accuracy per M, ties broken at random; `None` beyond the pool.
        majority: the same for a majority of right calls.
    """

    size: int
    plurality: tuple[float | None, ...]
    majority: tuple[float | None, ...]


@frozen
class MeanCosts:
    """Means over some questions, in tokens (`None` where not all were counted), and how they are
    billed; `price` is `None` where it is not known, `stated_usd` where CoTs state no USD.
    """

    billing: str
    prompt_tokens: float | None
    output_tokens: float | None
    price: Price | None
    stated_usd: float | None

    @classmethod
    def from_pool(cls, llm: LLM, rows: Rows, *more: Any) -> Self:
        """Take the means over the recorded calls of some questions."""
        require_plain(llm.billing, llm.price)
        pool = llm.pool.rows(rows).stating(llm.stated)

        def mean(values: Any) -> float:
            return float(mean_output_tokens(values, pool.sizes).mean())

        tokens: tuple[float | None, float | None] = None, None
        if llm.is_counted and (pool.prompt_tokens >= 0).all():
            tokens = float(pool.prompt_tokens.mean()), mean(pool.output_tokens)
        paid = pool.amounts.get("picodollars")
        stated = None if paid is None else mean(paid) / PICODOLLARS
        return cls(llm.billing, *tokens, llm.price, stated, *more)

    def tokens(self, calls: int) -> float | None:
        """Mean tokens of a question with so many calls in one request."""
        billed = self._billed(calls)
        return billed and sum(billed)

    def usd(self, calls: int) -> float | None:
        """Mean USD; `None` without a price."""
        if self.stated_usd is not None:
            return calls * self.stated_usd
        billed = self._billed(calls)
        return None if billed is None or self.price is None else usd(self.price, *billed)

    def _billed(self, calls: int) -> tuple[float, float] | None:
        """Prompt and output tokens."""
        if self.prompt_tokens is None or self.output_tokens is None:
            return None
        prompts = billed_prompts(self.billing, 1, calls)
        return self.prompt_tokens * prompts, calls * self.output_tokens


@dataclass(frozen=True, slots=True, repr=False)
class Forecast(Plottable):
    """Estimated vote curves of one LLM on one dataset.

    Attributes:
        g: calls per question used by the estimates.
        replicate: which draw of `draws-v1`.
        seed: of the draw and of the resamples.
        simulations: votes simulated per question (`monte-carlo`).
        m: numbers of votes.
        billing: how prompts are paid.
        prices: id of the price list; `None` without one, or where it has no price for the LLM.
        tokens_per_question: mean prompt and output tokens per M; `None` where prompts were not
            counted.
        usd_per_question: mean per M; `None` where that or the price is not known.
        pool: the curves of the whole pool.
        estimates: one per method, in the order asked for.
        warnings: what a reader must know in order not to be misled.
        left_out: questions left out because they have no gold or fewer than g calls.
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
    billing: str
    prices: str | None
    tokens_per_question: tuple[float | None, ...]
    usd_per_question: tuple[float | None, ...]
    pool: PoolCurves
    estimates: tuple[EstimatedCurve, ...]
    warnings: tuple[str, ...]
    left_out: LeftOut = NONE_LEFT_OUT

    @property
    def recommended(self) -> EstimatedCurve | None:
        """The curve to quote: the unbiased one. `None` where nobody asked for it, or M is above
        G.
        """
        return next(
            (each for each in self.estimates if each.method == METHODS[0] and self.m[0] <= self.g),
            None,
        )

    def errors(self, estimate: EstimatedCurve) -> tuple[float | None, ...]:
        """Estimate minus pool for each M, `None` where either is missing; for bounds, how far the
        pool lies outside them.
        """
        truth = self.pool.plurality if estimate.of == "plurality" else self.pool.majority
        return tuple(
            _error(point, true) for point, true in zip(estimate.points, truth, strict=True)
        )

    def to_dict(self) -> Record:
        """The forecast as JSON values, with the error of each point."""
        values = dataclasses.asdict(self)
        for json_curve, curve in zip(values["estimates"], self.estimates, strict=True):
            for point, error in zip(json_curve["points"], self.errors(curve), strict=True):
                point["error"] = error
        del values["left_out"]
        return (
            values
            | {"scheme": "draws-v1"}
            | ({"left_out": self.left_out.to_dict()} if self.left_out else {})
        )


def _error(point: EstimatePoint, true: float | None) -> float | None:
    if true is None:
        return None
    if point.accuracy is not None:
        return point.accuracy - true
    if point.bound_low is None or point.bound_high is None:
        return None
    return max(point.bound_low - true, 0.0) or min(point.bound_high - true, 0.0)


_MODEL_RESAMPLES = 400  # for completions, which cost milliseconds each


class DrawnCalls(Result):
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
        gold, rivals, no_answer = self.counts.parts
        return gold / self.g, rivals / self.g, no_answer / self.g

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


def plug_in_values(calls: DrawnCalls) -> PerQuestion:
    """Plurality accuracy of M independent calls at the drawn shares."""
    return plugin_plurality_accuracy(*calls.counts.parts, calls.votes)


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
    return subset_plurality_accuracy(*calls.counts.parts, within)


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
    "plug-in": plug_in_values,
    "monte-carlo": _simulated_values,
    "gaussian": gaussian_values,
}


def estimated_curve(method: str, calls: DrawnCalls) -> EstimatedCurve:
    """The values of one of `feval.forecast.METHODS`."""
    if method in _VALUES:
        return calls.with_interval(method, _VALUES[method](calls))
    return _two_call(calls) if method == "two-call" else _completed(method, calls)


class SampleMoments(Result):
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
    showing = np.stack([right >= 2, (right >= 1) & (wrong >= 1), wrong >= 2])
    return _rare_cells(np.count_nonzero(showing, axis=1)) or None


def _rare_cells(cells: Integers) -> str:
    kinds = zip(("both right", "one right", "both wrong"), cells.tolist(), strict=True)
    return ", ".join(f"{kind} {count}" for kind, count in kinds if count < SPARSE_CELL)


def moments_of(sample: SampleMoments) -> tuple[Moments, Moments]:
    """The moments of the sample (a scalar table) and of its resamples [R]."""
    return Moments.from_values(sample.mu, sample.nu), Moments.from_values(
        sample.resampled[:, 0], sample.resampled[:, 1]
    )


@checked
@reports("estimating")
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
    workers: int = 1,
    executor: Executor | None = None,
    progress: UncountedProgress | None = None,
) -> Forecast:
    """Forecast the accuracy of M-fold voting from g calls per question.

    - `unbiased`: the mean over all subsets of M of the g calls, for M up to g, where an unbiased
      estimate exists.
    - `plug-in`: the plurality accuracy of M independent calls at the shares c / g (the Monte-Carlo
      estimator without simulation); `monte-carlo`: the same, simulated; `gaussian`: eq. (9),
      guarded ("Compute-efficient evaluation of LLM voting accuracy"). Biased for every M above 1.
    - `two-call` (arXiv 2605.03379, Theorem 4.1): sharp bounds from the first two calls of each
      question, with a projected Wald region for sampling error, or a likelihood region where a cell
      holds fewer than 5 questions.
    - `max-entropy`, `ldgp` (Props. 5.1, 5.2): curves of distributions with mu and nu, estimated
      from all pairs of the g calls.

    The last three estimate a majority of right calls, which a plurality among several wrong answers
    exceeds; each estimate is compared with the pool's curve of its kind. All assume that calls are
    independent given the question. Intervals cover the choice of questions and of calls, but
    neither an estimator's bias nor a model's error. Completions use at most 400 resamples.

    Args:
        dataset: from `load`.
        llm: from the same `load`; its seed determines draws and resamples.
        g: calls per question, from 1 (2 for the last three) to the smallest pool.
        m: distinct numbers of votes, 1 to 10,000.
        methods: names from `METHODS`.
        replicate: which draw of g calls, from 0.
        unlabelled: "refuse" or "drop" questions without a gold answer that can be read.
        short_pools: "refuse" or "drop" questions with fewer than g calls.
        confidence: of the intervals.
        resamples: of the bootstrap over questions.
        simulations: votes per question of `monte-carlo`.
        workers: processes that share the estimators; the numbers are the same for any number.
        executor: takes their place, see `feval.evaluate`.
        progress: called with (estimators done, estimators in all).

    Raises:
        ShortPoolError: g above a pool; the message names the question.
        UnlabelledError: questions have no gold answer that can be read.
        OutOfRangeError: an M below 1, g too small, no method or one twice, or a confidence outside
            (0, 1).
        UnknownNameError: an unknown method.
        UsageError: dataset and LLM from different loads.
    """
    votes = ascending(m, "forecast", "numbers of votes")
    if votes[-1] > MOST_VOTES:
        raise OutOfRangeError(
            f"A vote has 1 to {MOST_VOTES:,} calls; M = {votes[-1]} was asked for."
        )
    _check(g, methods, confidence)
    dataset.require([llm])
    questions = question_set(dataset, [(llm, g)], unlabelled=unlabelled, short_pools=short_pools)
    rows = ordered_by_key(dataset, questions.rows)
    how = g, replicate, votes, confidence, resamples, simulations
    calls = DrawnCalls.from_pool(dataset, llm, rows, *how)
    pool = _reference(dataset, llm, questions.rows, votes)
    costs = MeanCosts.from_pool(llm, rows)
    work: Any = estimated_curve
    tasks: list[tuple[Any, ...]] = [(name, calls) for name in methods]
    with executors.opened(workers, given=executor) as opened:
        if opened is not None:
            recipe, chosen = LoadRecipe.from_loaded(dataset, [llm]), without_gaps(questions.rows)
            work, tasks = _estimated_there, [(name, recipe, chosen, how) for name in methods]
        estimates = tuple(executors.results(work, tasks, opened, progress))
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
        billing=llm.billing,
        prices=llm.prices.id if llm.prices and (llm.price or llm.states_usd) else None,
        tokens_per_question=tuple(map(costs.tokens, votes)),
        usd_per_question=tuple(map(costs.usd, votes)),
        pool=pool,
        estimates=estimates,
        warnings=(
            *forecast_warnings(calls, methods, estimates, pool.size),
            *judged_by(dataset, questions.rows),
        ),
        left_out=questions.left_out,
    )


def _estimated_there(
    name: str, recipe: LoadRecipe, rows: Rows | slice, how: tuple[Any, ...]
) -> EstimatedCurve:
    """Estimate in a process that draws the calls itself: a task."""
    dataset, [llm] = loaded(recipe)
    calls = DrawnCalls.from_pool(dataset, llm, ordered_by_key(dataset, with_numbers(rows)), *how)
    return estimated_curve(name, calls)


def _check(g: int, methods: Sequence[str], confidence: float) -> None:
    for name in methods:
        require_known("estimator", name, METHODS)
    if not methods or len(set(methods)) < len(methods):
        raise OutOfRangeError(
            f"A forecast takes distinct estimators, such as plug-in,two-call; {list(methods)}"
            " was given."
        )
    if g < 1:
        raise OutOfRangeError(
            f"An estimate is made from 1 call per question or more, and g = {g} was asked for; ask"
            " for 1 or more."
        )
    paired = next((name for name in methods if name in OF_MAJORITY), None)
    if g < 2 and paired is not None:
        raise OutOfRangeError(
            f"{paired} looks at pairs of calls, and g = {g} was asked for; ask for 2 or more, or"
            " for another estimator."
        )
    require_confidence(confidence)


def _reference(dataset: Dataset, llm: LLM, rows: Rows, votes: list[int]) -> PoolCurves:
    size = int(llm.pool.sizes[rows].min())
    within = [m for m in votes if m <= size]
    beyond: tuple[None, ...] = (None,) * (len(votes) - len(within))
    if not within:
        return PoolCurves(size, beyond, beyond)
    counts = vote_counts(llm.pool.codes[rows], dataset.gold[rows])
    plurality = subset_plurality_accuracy(*counts.parts, within).mean()
    majority = [float(hypergeometric_majority(counts.gold, counts.size, m).mean()) for m in within]
    return PoolCurves(size, (*plurality.tolist(), *beyond), (*majority, *beyond))


_MANY_RIVALS = 3
_SHARE_OF_QUESTIONS = 0.05


def forecast_warnings(
    calls: DrawnCalls, methods: Sequence[str], estimates: Sequence[EstimatedCurve], pool: int
) -> Iterator[str]:
    """Yield the warnings of a forecast; `pool` is the size of the smallest pool."""
    most = calls.votes[-1]
    plug_in, completions, of_majority = (
        ", ".join(name for name in methods if name in group)
        for group in (PLUG_IN, COMPLETIONS, OF_MAJORITY)
    )
    yield from few_questions(len(calls.keys))
    if plug_in:
        yield from _plug_in(calls, plug_in)
    for curve in estimates:
        reasons = dict.fromkeys(point.reason for point in curve.points if point.reason)
        yield from (f"{curve.method}: {reason}" for reason in reasons)
    if "gaussian" in methods:
        yield from _rivals(calls)
    if "two-call" in methods and bool(calls.pairs.sparse):
        yield _cells(calls.pairs)
    if completions and calls.moments().clipped:
        yield (
            f"{completions}: the calls on a question disagree more often than independent calls"
            " would, which happens by chance on few questions. The curve assumes that all questions"
            " are equally hard."
        )
    if completions and (rare := rare_pairs(calls.counts)):
        yield (
            f"{completions}: a cell of the pair table holds fewer than 5 questions ({rare}). The"
            " intervals resample questions and are too narrow; record more questions."
        )
    if of_majority:
        even = [votes for votes in calls.votes if votes % 2 == 0]
        equals = " An even M equals M - 1 (ties broken at random): M = {} equals M = {}."
        equals = equals.format(even[0], even[0] - 1) if even else ""
        yield (
            f"{of_majority}: estimates of a majority of right calls. A plurality needs fewer right"
            " calls where wrong answers differ, so these are compared with the pool's majority"
            f" curve.{equals}"
        )
    if most > pool:
        yield f"The pool has {pool} calls per question: beyond M = {pool} the error is unknown."


def _plug_in(calls: DrawnCalls, names: str) -> Iterator[str]:
    """Say what is wrong with estimators that take shares for probabilities."""
    g = calls.g
    within, beyond = any(1 < votes <= g for votes in calls.votes), calls.votes[-1] > g
    if not (within or beyond):
        return
    few, bounds = ("s", ", or use the two-call bounds") if g > 1 else ("", "")
    yield (
        f"{names}: shares of {g} call{few} per question replace the LLM's probabilities."
        + f" That biases every M above 1: up to M = {g}, use unbiased." * within
        + (
            f" Beyond M = {g} it levels off at the accuracy of a {g}-call vote, whatever more votes"
            f" would do: record more calls{bounds}."
        )
        * beyond
    )


def _rivals(calls: DrawnCalls) -> Iterator[str]:
    many = float((np.count_nonzero(calls.counts.rivals, axis=1) >= _MANY_RIVALS).mean())
    if many >= _SHARE_OF_QUESTIONS:
        gap = gaussian_values(calls).mean() - plug_in_values(calls).mean()
        worst = int(np.abs(gap).argmax())
        yield (
            f"gaussian: {100 * many:.0f} % of the questions have {_MANY_RIVALS} or more different"
            f" wrong answers among their {calls.g} calls. It treats rivals as independent, and at M"
            f" = {calls.votes[worst]} it is {100 * gap[worst]:+.1f} points off the exact value at"
            " the same shares; use plug-in."
        )


def _cells(table: PairTable) -> str:
    total = int(table.questions)
    what = "is nearly empty" if table.cells.all() else "is empty"
    return (
        f"two-call: a cell of the pair table ({total} question{'s' if total > 1 else ''}) {what}"
        f" ({_rare_cells(table.cells)}). A Wald region would be too narrow, so the interval is"
        " from the likelihood; record more questions."
    )
