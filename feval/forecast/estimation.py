"""Accuracy of M-fold voting from G calls per question, beside what the whole pool says, so that the
error is visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from feval import executors
from feval.arguments import checked
from feval.errors import OutOfRangeError, UnknownNameError
from feval.estimators.arrays import require_confidence
from feval.estimators.per_question import vote_counts
from feval.estimators.plurality import hypergeometric_majority, subset_plurality_accuracy
from feval.estimators.probabilities import MOST_VOTES
from feval.evaluation.cautions import few_questions, mixed_parties
from feval.evaluation.curves import ascending
from feval.evaluation.questions import Rows, question_set
from feval.evaluation.replicates import loaded, with_numbers
from feval.executors.progress import reports
from feval.forecast.estimators import (
    DrawnCalls,
    estimated_curve,
    exact_values,
    gaussian_values,
    ordered_by_key,
    rare_pairs,
)
from feval.forecast.forecasts import (
    COMPLETIONS,
    METHODS,
    OF_MAJORITY,
    PLUG_IN,
    EstimatedCurve,
    Forecast,
    PoolCurves,
)
from feval.replay.loading import LoadRecipe
from feval.replay.pools import without_gaps

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from feval.estimators.moments import PairTable
    from feval.replay import LLM, Dataset


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
    progress: Callable[[int, int | None], None] | None = None,
) -> Forecast:
    """Forecast the accuracy of M-fold voting from g calls per question.

    - `unbiased`: the mean over all subsets of M of the g calls, for M up to g, where an unbiased
      estimate exists.
    - `exact`: the plurality accuracy of M independent calls at the shares c / g (the Monte-Carlo
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
        pool=pool,
        estimates=estimates,
        warnings=(
            *forecast_warnings(calls, methods, estimates, pool.size),
            *mixed_parties(dataset),
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
        if name not in METHODS:
            raise UnknownNameError.of("estimator", name, METHODS)
    if not methods or len(set(methods)) < len(methods):
        raise OutOfRangeError(
            f"A forecast takes distinct estimators, such as exact,two-call; {list(methods)} was"
            " given."
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
    plurality = subset_plurality_accuracy(
        counts.gold, counts.rivals, counts.no_answer, within
    ).mean()
    right, size_of = counts.gold.astype(np.int64), counts.size.astype(np.int64)
    majority = [float(hypergeometric_majority(right, size_of, m).mean()) for m in within]
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
    g, most = calls.g, calls.votes[-1]
    if any(1 < votes <= g for votes in calls.votes):
        yield (
            f"{names}: biased for every M above 1, since shares of {g} calls replace the LLM's"
            f" probabilities. Up to M = {g} an unbiased estimate exists: use unbiased there."
        )
    if most > g:
        few, bounds = ("s", ", or use the two-call bounds") if g > 1 else ("", "")
        yield (
            f"{names}: made from {g} call{few} per question and extended to M = {most}. Beyond M ="
            f" {g} it levels off at the accuracy of a {g}-call vote, whatever more votes would do;"
            f" record more calls{bounds}."
        )


def _rivals(calls: DrawnCalls) -> Iterator[str]:
    many = float((np.count_nonzero(calls.counts.rivals, axis=1) >= _MANY_RIVALS).mean())
    if many >= _SHARE_OF_QUESTIONS:
        gap = gaussian_values(calls).mean() - exact_values(calls).mean()
        worst = int(np.abs(gap).argmax())
        yield (
            f"gaussian: {100 * many:.0f} % of the questions have {_MANY_RIVALS} or more different"
            f" wrong answers among their {calls.g} calls. It treats rivals as independent, and at M"
            f" = {calls.votes[worst]} it is {100 * gap[worst]:+.1f} points off the exact value at"
            " the same shares; use exact."
        )


def _cells(table: PairTable) -> str:
    cells = {
        "both right": table.both_right,
        "one right": table.disagree,
        "both wrong": table.both_wrong,
    }
    few = [f"{name} {int(count)}" for name, count in cells.items() if count < 5]
    total = int(table.questions)
    what = "is empty" if 0 in map(int, cells.values()) else "is nearly empty"
    return (
        f"two-call: a cell of the pair table ({total} question{'s' if total > 1 else ''}) {what}"
        f" ({', '.join(few)}). A Wald region would be too narrow, so the interval is from the"
        " likelihood; record more questions."
    )
