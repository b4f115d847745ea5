"""Cost-accuracy curves: one method over a budget axis, each point with an interval and the way it
was computed.

`exact` points are expectations over all draws without replacement, in closed form; `recorded` takes
the CoTs in recorded order; `seeded` averages replicates of `draws-v1`. Exact expectations break
ties uniformly among the leaders, in a draw the first seen wins; in expectation over draws the two
agree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from feval import executors
from feval.arguments import checked
from feval.cards.billing import billed_prompts, usd
from feval.errors import NotExactError, OutOfRangeError, UnknownNameError, UsageError
from feval.estimators.cost import mean_output_tokens
from feval.estimators.counts import distinct_vote_counts
from feval.estimators.inference.intervals import accuracy_interval
from feval.estimators.per_question import PerQuestion
from feval.estimators.votes.plurality import pass_at_k, subset_plurality_accuracy
from feval.evaluation.blocks import block_results
from feval.evaluation.cautions import (
    billed_once,
    few_questions,
    mixed_parties,
    not_exact,
    other_models,
)
from feval.evaluation.clusters import ClusterNames, ClusterSizes, cluster_sizes, question_clusters
from feval.evaluation.costs import known_costs
from feval.evaluation.evaluation import budgets, evaluate
from feval.evaluation.means import default_replicates
from feval.evaluation.method_names import field_names, make_method
from feval.evaluation.question_set import NONE_LEFT_OUT, LeftOut, question_set
from feval.evaluation.replicates import drawn_orders
from feval.executors.progress import reports
from feval.lazy import Drawn
from feval.methods.arrays import Floats, Integers, Rows
from feval.methods.oracle import Oracle
from feval.methods.protocol import drawn, is_exact, may_search, searches
from feval.methods.voting.self_consistency import SelfConsistency
from feval.replay.clock import Timing
from feval.replay.draws import ORDERS
from feval.replay.pools import without_gaps

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from feval.evaluation.evaluation import Evaluation
    from feval.replay import LLM, Dataset
    from feval.replay.pools import Pool

_BUDGET_FIELDS = ("n", "samples", "budget")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One budget on a curve.

    Attributes:
        n: CoTs per question; on a curve over another field, its value.
        accuracy: mean over questions of the probability that the method is right.
        accuracy_low: lower end of the confidence interval; `None` where none was asked for.
        accuracy_high: upper end.
        usd_per_question: mean USD, `None` without a price or prompt tokens.
        tokens_per_question: mean prompt and output tokens billed, `None` without prompt tokens.
        pass_at_n: mean probability that one of the CoTs the method may look at is right, an upper
            bound of every vote; `None` for several LLMs.
        kind: "exact", "recorded" or "seeded".
        calls_per_question: mean requests.
        usd_per_question_per_round: mean USD if every request paid its prompt, whatever the billing
            is.
        tokens_per_question_per_round: mean tokens then.
        cost: mean of what the curve counts; `None` where it names no cost.
    """

    n: int | float
    accuracy: float
    accuracy_low: float | None
    accuracy_high: float | None
    usd_per_question: float | None
    tokens_per_question: float | None
    pass_at_n: float | None
    kind: str
    calls_per_question: float | None = None
    usd_per_question_per_round: float | None = None
    tokens_per_question_per_round: float | None = None
    cost: float | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Curve(Drawn):
    """One method on one dataset, over the values of one of its fields, usually its budget.

    Attributes:
        method: its label.
        dataset: id.
        llm: name, or names joined by " > ", in the order given to the method.
        recording_hash: hash of the recording with the CoTs.
        recording_hashes: hashes of all recordings that were opened together, which hold the
            questions and golds.
        prices: id of the price list, `None` where dollars were switched off.
        billing: how prompts were charged.
        counter: name of the token counter; of different ones all, between semicolons.
        questions: number of questions.
        seed: random seed for draws (seeded).
        replicates: draws per question (seeded), 1 (recorded), `None` (exact).
        confidence: of the intervals.
        points: by n.
        field: the method's field that varies over the points.
        settings: the method's other fields that were set.
        left_out: questions that were left out because they have no gold or too few CoTs.
        clusters: what clusters the questions are, where some belong together.
        cost: what the points' costs count, one of `feval.evaluation.costs.COSTS`; `None` for
            dollars and tokens alone.
        timing: where seconds come from; `None` where nobody asked for them.
        cautions: sentences about the recording without which the numbers could mislead.
    """

    method: str
    dataset: str
    llm: str
    recording_hash: str
    recording_hashes: tuple[str, ...]
    prices: str | None
    billing: str
    counter: str
    questions: int
    seed: int
    replicates: int | None
    confidence: float | None
    points: tuple[CurvePoint, ...]
    field: str = "n"
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    left_out: LeftOut = NONE_LEFT_OUT
    clusters: ClusterSizes | None = None
    cost: str | None = None
    timing: Timing | None = None
    cautions: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences without which the numbers could mislead."""
        named = [(f"{self.method} with {self.field}={point.n}", point) for point in self.points]
        return (
            *few_questions(self.questions, self.clusters),
            *billed_once(self.billing, named),
            *self.cautions,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the curve as JSON values."""
        result = asdict(self) | {
            "recording_hashes": list(self.recording_hashes),
            "points": [asdict(point) for point in self.points],
            "warnings": list(self.warnings),
        }
        del result["left_out"], result["timing"], result["cautions"]
        if self.clusters is None:
            del result["clusters"]
        if self.timing is not None:
            result["seconds"] = str(self.timing)
        if self.cost is None:
            for part in (result, *result["points"]):
                del part["cost"]
        return result | ({"left_out": self.left_out.to_dict()} if self.left_out else {})


@checked
@reports("curve")
def self_consistency_curve(
    dataset: Dataset,
    llm: LLM,
    n: Sequence[int],
    *,
    order: str = "exact",
    replicates: int | None = None,
    unlabelled: str = "refuse",
    short_pools: str = "refuse",
    clusters: ClusterNames | None = None,
    confidence: float | None = 0.95,
    workers: int = 1,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Curve:
    """Return the curve of self-consistency (plurality of n answers, Wang et al. 2203.11171) over n.

    Args:
        dataset: from `load`.
        llm: from the same `load`.
        n: CoTs per question, such as `range(1, 41)`.
        order: "exact" (default), "recorded" or "seeded".
        replicates: draws of every question, for "seeded"; `None` as for `evaluate`.
        unlabelled: "refuse" or "drop" questions without a gold answer that can be read.
        short_pools: "refuse" or "drop" questions with fewer CoTs than the largest n.
        clusters: which questions are one piece of evidence, as for `evaluate`.
        confidence: of the interval over questions (`feval.estimators.inference.intervals`); `None`
            leaves intervals out.
        workers: processes that share the questions, for "seeded"; the numbers are the same for any
            number.
        executor: takes their place, see `evaluate`.
        progress: called with (questions done, questions in all), for "seeded".

    Raises:
        ShortPoolError: some n is above the smallest pool; the message names the question.
        UnlabelledError: questions have no gold answer that can be read.
        OutOfRangeError: no n, one below 1, or one that comes twice.
        UnknownNameError: no such order.
        UsageError: the LLM and the dataset come from different calls of `load`.
    """
    budgets = _budgets(n)
    if order not in ORDERS:
        raise UnknownNameError.of("order", order, ORDERS)
    if replicates is not None and replicates < 1:
        raise OutOfRangeError(
            f"Seeded points average 1 replicate or more; {replicates} were asked for."
        )
    dataset.require([llm])
    questions = question_set(
        dataset, [(llm, max(budgets))], unlabelled=unlabelled, short_pools=short_pools
    )
    replicates = default_replicates(len(questions.rows)) if replicates is None else replicates
    rows, pool = questions.rows, llm.pool.rows(questions.rows)
    gold = dataset.gold[without_gaps(rows)]
    if order == "exact":
        values = exact_values(gold, pool, budgets)
    else:
        with executors.opened(workers, given=executor) as opened:
            work = partial(_drawn_sums, order=order, replicates=replicates, budgets=budgets)
            blocks = block_results(
                work, SelfConsistency(max(budgets)), dataset, [llm], rows, opened
            )
            values = _drawn(
                blocks, len(rows), replicates if order == "seeded" else 1, len(budgets), progress
            )
    grouped = None if confidence is None else question_clusters(dataset, rows, clusters)
    return Curve(
        method="self-consistency",
        dataset=dataset.id,
        llm=llm.name,
        recording_hash=llm.recording_hash,
        recording_hashes=dataset.recording_hashes,
        prices=llm.prices.id if llm.prices is not None else None,
        billing=llm.billing,
        counter=llm.counter,
        questions=len(rows),
        seed=llm.seed,
        replicates={"exact": None, "recorded": 1, "seeded": replicates}[order],
        confidence=confidence,
        points=tuple(_points(values, llm, pool, budgets, order, confidence, grouped)),
        left_out=questions.left_out,
        cautions=(*mixed_parties(dataset), *other_models([llm])),
        clusters=cluster_sizes(grouped),
    )


def budget_field(method: str) -> str | None:
    """Return the field that sets how many CoTs a method takes: `n`, `samples` or `budget`; `None`
    where it has none of these.
    """
    if ":" in method:
        raise UsageError(
            f"A curve varies a field, and {method}, a user's method, has none; evaluate it with"
            " `feval run`."
        )
    return next((name for name in _BUDGET_FIELDS if name in field_names(method)), None)


@checked
@reports("curve")
def method_curve(
    dataset: Dataset,
    llms: Sequence[LLM],
    method: str,
    field: str,
    values: Sequence[int | float],
    *,
    settings: Mapping[str, Any] | None = None,
    unlabelled: str = "refuse",
    short_pools: str = "refuse",
    cost: str | None = None,
    workers: int = 1,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    **options: Any,
) -> Curve:
    """Return the curve of any method over the values of one of its fields.

    Args:
        dataset: from `load`.
        llms: from the same `load`, in the order the method wants them.
        method: its name, a key of `METHODS`.
        field: which field varies, such as `budget_field(method)`, or a threshold.
        values: its values, ascending on the curve.
        settings: other fields that differ from their defaults.
        unlabelled: as for `evaluate`.
        short_pools: "refuse" or "drop" questions with fewer CoTs of some LLM than any of the values
            may ask for.
        cost: what the points' costs count beside dollars and tokens, one of
            `feval.evaluation.costs.COSTS`. Where the method has no closed form of it, points are
            seeded unless `order` says otherwise.
        workers: processes for all points together, as for `evaluate`.
        executor: takes their place, see `evaluate`.
        progress: called with (points done, points in all).
        options: other arguments of `evaluate`, which computes each point, such as `order` and
            `replicates`.

    Raises:
        UnknownNameError: no such method, field or order.
        OutOfRangeError: no value, one that comes twice, or one that the method refuses.
        ShortPoolError: a value asks for more CoTs than were recorded.
        UnlabelledError: questions have no gold answer that can be read.
    """
    if not values or len(set(values)) < len(values):
        raise OutOfRangeError(
            f"A curve needs distinct values of {field}; {list(values)[:10]} was asked for."
        )
    settings = dict(settings or {})
    variants = {value: make_method(method, settings | {field: value}) for value in sorted(values)}
    dataset.require(llms, steps=all(map(may_search, variants.values())))
    largest = [budget for variant in variants.values() for budget in budgets(variant, llms)]
    questions = question_set(dataset, largest, unlabelled=unlabelled, short_pools=short_pools)
    order, inexact = options.pop("order", None), None
    exact = all(is_exact(variant, cost, options.get("parallel")) for variant in variants.values())

    def evaluated(order: str | None, executor: Executor | None) -> list[Evaluation]:
        results: list[Evaluation] = []
        for variant in variants.values():
            given: dict[str, Any] = {
                "rows": questions.rows,
                "cost": cost,
                "executor": executor,
                "order": order,
            }
            results.append(evaluate(variant, dataset, llms, **given, **options))
            progress(len(results), len(variants))
        return results

    with executors.opened(workers, given=executor) as opened:
        try:
            results = evaluated("exact" if order is None and exact else order, opened)
        except NotExactError as error:
            if order is not None:
                raise
            # all of them: a curve is of one kind
            results, inexact = evaluated("seeded", opened), error.reason
    points = []
    for (value, variant), result in zip(variants.items(), results, strict=True):
        point = _point(value, result, _pass_at_n(variant, dataset, llms, result))
        points.append(
            point if cost is None else replace(point, cost=float(known_costs(result, cost).mean()))
        )
    return Curve(
        method=method,
        dataset=dataset.id,
        llm=" > ".join(result.llms),
        recording_hash=llms[0].recording_hash,
        recording_hashes=dataset.recording_hashes,
        prices=result.prices,
        billing=result.billing,
        counter="; ".join(dict.fromkeys(result.counters)),
        questions=result.questions,
        seed=result.seed,
        replicates=result.replicates,
        confidence=result.confidence,
        points=tuple(points),
        field=field,
        settings=settings,
        left_out=questions.left_out,
        clusters=result.clusters,
        cost=cost,
        timing=result.timing,
        cautions=(*result.cautions, *not_exact(inexact)),
    )


def _point(value: float, evaluation: Evaluation, ceiling: float | None) -> CurvePoint:
    return CurvePoint(
        value,
        evaluation.accuracy,
        evaluation.accuracy_low,
        evaluation.accuracy_high,
        evaluation.usd_per_question,
        evaluation.tokens_per_question,
        ceiling,
        evaluation.kind,
        float(evaluation.calls.mean()),
        evaluation.usd_per_question_per_round,
        evaluation.tokens_per_question_per_round,
    )


def _pass_at_n(
    method: Any, dataset: Dataset, llms: Sequence[LLM], evaluation: Evaluation
) -> float | None:
    """Return pass@n with all the CoTs that the method may look at, on the questions it was
    evaluated on.
    """
    if len(llms) != 1 or searches(method):
        return None
    rows = np.flatnonzero(np.isin(dataset.question_keys, evaluation.question_keys))
    return evaluate(Oracle(*method.draws(1)), dataset, llms, rows=rows, confidence=None).accuracy


@dataclass(frozen=True, eq=False)
class CurveValues:
    """Values per question at D budgets, and mean output tokens."""

    right: PerQuestion
    any_right: PerQuestion
    output_tokens: Floats


def _budgets(n: Sequence[int]) -> list[int]:
    budgets = [int(budget) for budget in n]
    if not budgets or min(budgets) < 1 or len(set(budgets)) < len(budgets):
        raise OutOfRangeError(
            f"A curve needs distinct numbers of CoTs from 1 up; {budgets[:10]} was asked for."
        )
    return sorted(budgets)


def exact_values(gold: Integers, pool: Pool, budgets: Sequence[int]) -> CurveValues:
    """Return expectations over all draws without replacement."""
    counts, rows = distinct_vote_counts(pool.codes, gold)
    right = subset_plurality_accuracy(
        counts.gold, counts.rivals, counts.no_answer, budgets
    ).of_questions(rows)
    any_right = pass_at_k(counts.gold, counts.size, budgets).of_questions(rows)
    tokens = mean_output_tokens(pool.output_tokens, pool.sizes).mean()
    return CurveValues(right, any_right, np.array(budgets) * tokens)


def _drawn(
    blocks: Iterable[tuple[slice, tuple[Integers, Integers, Integers]]],
    questions: int,
    replicates: int,
    budgets: int,
    progress: Callable[[int, int], None],
) -> CurveValues:
    """Return means over the draws of every question: one in recorded order, or seeded
    replicates.
    """
    right, any_right = np.empty((2, questions, budgets))
    tokens = np.zeros(budgets, np.int64)
    for block, (block_right, block_any, block_tokens) in blocks:
        right[block], any_right[block] = block_right / replicates, block_any / replicates
        tokens += block_tokens
        progress(block.stop, questions)
    everyone = np.arange(questions)
    return CurveValues(
        PerQuestion(right, everyone),
        PerQuestion(any_right, everyone),
        tokens / (replicates * questions),
    )


def _drawn_sums(
    _: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    *,
    order: str,
    replicates: int,
    budgets: Sequence[int],
) -> tuple[Integers, Integers, Integers]:
    """Count over the draws of some questions: [Q, D] votes that are right, and with a right CoT,
    and [D] output tokens.
    """
    [llm] = llms
    gold, pool = dataset.gold[rows], llm.pool.rows(rows)
    right, any_right = np.zeros((2, len(rows), len(budgets)), np.int64)
    tokens = np.zeros(len(budgets), np.int64)
    for orders in drawn_orders(llm, order, replicates, max(budgets), rows):
        hits = np.logical_or.accumulate(drawn(pool.codes, orders) == gold[:, None], axis=-1)
        for place, budget in enumerate(budgets):
            decisions = SelfConsistency(budget).decide([pool], [orders[..., :budget]])
            right[:, place] += (decisions.answer == gold).sum(axis=0)
            any_right[:, place] += hits[..., budget - 1].sum(axis=0)
            tokens[place] += decisions.ledgers[0].output_tokens.sum(dtype=np.int64)
    return right, any_right, tokens


def _points(
    values: CurveValues,
    llm: LLM,
    pool: Pool,
    budgets: Sequence[int],
    kind: str,
    confidence: float | None,
    clusters: Integers | None,
) -> Iterator[CurvePoint]:
    accuracy, ceiling = values.right.mean().tolist(), values.any_right.mean().tolist()
    low: list[float | None] = [None] * len(budgets)
    high = low
    if confidence is not None:
        interval = accuracy_interval(values.right, confidence, clusters)
        low, high = interval.low.tolist(), interval.high.tolist()
    for i, n in enumerate(budgets):
        output = float(values.output_tokens[i])
        costs, per_round = (
            _mean_cost(llm, pool, billing, n, output) for billing in (llm.billing, "per_round")
        )
        yield CurvePoint(n, accuracy[i], low[i], high[i], *costs, ceiling[i], kind, 1.0, *per_round)


def _mean_cost(
    llm: LLM, pool: Pool, billing: str, n: int, output_tokens: float
) -> tuple[float | None, float | None]:
    """Return mean USD and tokens of one question; eq. (1) is linear, so means of tokens are
    enough.
    """
    if int(pool.prompt_tokens.min()) < 0:
        return None, None
    prompt_tokens = float(pool.prompt_tokens.mean()) * int(billed_prompts(billing, 1, n))
    dollars = None if llm.price is None else float(usd(llm.price, prompt_tokens, output_tokens))
    return dollars, prompt_tokens + output_tokens
