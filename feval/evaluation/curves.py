"""Cost-accuracy curves: one method over a budget axis, each point with an interval and the way it
was computed.

`exact` points are expectations over all draws without replacement, in closed form; `recorded` takes
the CoTs in recorded order; `seeded` averages replicates of `draws-v1`. Exact expectations break
ties uniformly among the leaders, in a draw the first seen wins; in expectation over draws the two
agree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from feval import evaluation, executors, methods
from feval.arguments import checked
from feval.cards.billing import billing_rule, usd
from feval.errors import NotExactError, OutOfRangeError, UsageError, require_known
from feval.estimators.per_question import PerQuestion
from feval.estimators.plurality import (
    distinct_vote_counts,
    mean_output_tokens,
    pass_at_k,
    subset_plurality_accuracy,
)
from feval.estimators.routing import (
    MEASURES as LINE_MEASURES,
    SHARES,
    line_measures,
    mixture_line,
    routing_line,
)
from feval.evaluation.cautions import not_exact, other_models
from feval.evaluation.measures import MEANS, QuestionLedger
from feval.evaluation.questions import (
    ClusterNames,
    cluster_sizes,
    question_clusters,
    question_set,
    splits,
    train_test_rows,
)
from feval.evaluation.replicates import (
    RIGHT,
    block_results,
    default_replicates,
    drawn_orders,
    halves,
    joined,
)
from feval.evaluation.results import DatasetResult, interval_ends, rests_on
from feval.executors import Progress, reports, silent
from feval.lazy import Plottable
from feval.methods.protocol import (
    Floats,
    Integers,
    Predictions,
    Rows,
    capabilities,
    drawn,
    is_exact,
    may_search,
)
from feval.methods.vote import plurality_is_right
from feval.recording.arrays import are_verdicts
from feval.replay import ORDERS, without_gaps
from feval.values import Record, RecordLike

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from feval.evaluation.evaluation import Evaluation
    from feval.replay import LLM, Dataset, Pool


_BUDGET_FIELDS = ("n", "samples", "budget")
_CASCADE_QUESTIONS, _CASCADE_LLMS, _CASCADE_BUDGETS = 40, 3, 6


_LINE_POINTS = 21  # of a router's line, where nobody says which
_ENDS = ("", "_low", "_high")  # of the names of a share and its interval


class CurvePoint(dict[str, Any]):
    """The numbers of one point of a curve or a surface, by name; each is an attribute, too.

    On a curve: `n`, CoTs per question, or the value of another field that varies; `accuracy` with
    `accuracy_low` and `accuracy_high`, the ends of its interval, `None` where none was asked for;
    `kind`, "exact", "recorded" or "seeded"; `pass_at_n`, the mean probability that one of the CoTs
    the method may look at is right, an upper bound of every vote, `None` for several LLMs; means of
    measures, such as `usd_per_question`, `None` where not known; `billed`, the tokens behind them,
    see `QuestionLedger.bill_rows`; `cost`, the one that was asked for; and what k calls reach,
    where the curve has such `measures`, with its interval, such as `point["pass^k"]`,
    `point["pass^k_low"]` and `point["pass^k_high"]`.
    """

    def __getattr__(self, name: str) -> Any:
        """A number; `None` for a measure that is not known."""
        if name in self or name in MEANS:
            return self.get(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


@dataclass(frozen=True, kw_only=True, repr=False)
class Curve(DatasetResult, Plottable):
    """One method on one dataset, over the values of one of its fields, usually its budget.

    Attributes:
        method: its label.
        recording_hash: hash of the recording with the CoTs.
        replicates: draws per question (seeded), 1 (recorded), `None` (exact).
        points: by n.
        field: the method's field that varies over the points.
        settings: the method's other fields that were set.
        measures: what k calls reach, where `method_curve` was asked for it.
        whole: of a router, the measures of its whole line with the ends of their intervals, by
            name, such as "apgr", "apgr_low" and "apgr_high"; `None` where one is not defined. See
            `feval.estimators.routing.MEASURES`.
        beside: of a router, what each LLM alone reaches, by its name, and the "oracle" of them.
    """

    method: str
    recording_hash: str
    replicates: int | None
    points: tuple[CurvePoint, ...]
    field: str = "n"
    settings: RecordLike = dataclasses.field(default_factory=dict)
    measures: tuple[str, ...] = ()
    whole: RecordLike = dataclasses.field(default_factory=dict)
    beside: Mapping[str, CurvePoint] = dataclasses.field(default_factory=dict)

    def by_measure(self) -> list[Curve]:
        """A curve for each of the `measures`, which stands for the method and in place of the
        accuracy.
        """
        return [
            dataclasses.replace(
                self,
                method=measure,
                measures=(measure,),
                points=tuple(
                    CurvePoint(point | {f"accuracy{end}": point[measure + end] for end in _ENDS})
                    for point in self.points
                    if measure in point
                ),
            )
            for measure in self.measures
        ]

    def _paid(self) -> Sequence[tuple[str, Any]]:
        return [(f"{self.method} with {self.field}={point.n}", point) for point in self.points]

    def to_dict(self) -> Record:
        """Return the curve as JSON values."""
        names = "method", "recording_hash", "seed", "replicates", "field"
        own = self._points_dict(*names) | {"settings": dict(self.settings)}
        if self.measures:
            own["measures"] = list(self.measures)
        if self.whole:
            beside = {name: dict(point) for name, point in self.beside.items()}
            own |= {**self.whole, "beside": beside}
        return own if self.cost is None else own | {"cost": self.cost}


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
    progress: Progress = silent,
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
        confidence: of the interval over questions (`feval.estimators.intervals`); `None`
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
    budgets = ascending(n, "curve", "numbers of CoTs")
    require_known("order", order, ORDERS)
    if replicates is not None and replicates < 1:
        raise OutOfRangeError(
            f"Seeded points average 1 replicate or more; {replicates} were asked for."
        )
    dataset.require([llm])
    if billing_rule(llm.billing).cache != "none" or (llm.price is not None and llm.price.steps):
        # what each question costs is no sum then
        return method_curve(
            dataset, [llm], "self-consistency", "n", budgets, order=order, replicates=replicates,
            unlabelled=unlabelled, short_pools=short_pools, clusters=clusters,
            confidence=confidence, workers=workers, executor=executor, progress=progress,
        )  # fmt: skip
    questions = question_set(
        dataset, [(llm, max(budgets))], unlabelled=unlabelled, short_pools=short_pools, by_cot=True
    )
    replicates = default_replicates(len(questions.rows)) if replicates is None else replicates
    rows, pool = questions.rows, llm.pool.rows(questions.rows)
    gold = dataset.gold[without_gaps(rows)]
    judges = _judges(dataset, llm, rows)
    has_partial = judges is not None and judges.is_partial  # no CoT is right or wrong then
    if order == "exact":
        right, any_right, output = exact_values(gold, pool, budgets, judges)
        stated = pool.stating(llm.stated).amounts.get("picodollars", pool.output_tokens)
        paid = _mean_of_draws(stated, pool, budgets)  # looked at where CoTs state USD
    else:
        draws = replicates if order == "seeded" else 1
        work = partial(_drawn_sums, order=order, replicates=replicates, budgets=budgets)
        counts = np.zeros((3, len(rows), len(budgets)), np.int64)
        tokens = 0 * counts[:, 0]
        with executors.opened(workers, given=executor) as opened:
            method = methods.SelfConsistency(max(budgets))
            for block, sums in block_results(work, method, dataset, [llm], rows, opened):
                counts[:, block] = sums[0]
                tokens += sums[1]
                progress(block.stop, len(rows))
        shares = joined(counts[1:]) / (draws * RIGHT), counts[0] / draws
        right, any_right = (PerQuestion(each, np.arange(len(rows))) for each in shares)
        output, paid = (each / (draws * len(rows)) for each in (tokens[0], joined(tokens[1:])))
    grouped = None if confidence is None else question_clusters(dataset, rows, clusters)
    ledger = QuestionLedger.at_mean_question(
        llm, pool, budgets, output_tokens=output, picodollars=paid
    )
    longest = int(pool.prompt_tokens.max())
    columns: Iterator[tuple[Any, ...]] = zip(
        budgets,
        (ledger.bill_rows(place=place, longest=longest) for place in range(len(budgets))),
        interval_columns(right, confidence, grouped),
        any_right.mean().tolist(),
        ledger.each(*ledger.measures("always", "curves").values()),
        strict=True,
    )
    return Curve(
        **rests_on(dataset, [llm], rows),
        method="self-consistency",
        recording_hash=llm.recording_hash,
        replicates={"exact": None, "recorded": 1, "seeded": replicates}[order],
        confidence=confidence,
        points=tuple(
            CurvePoint(
                n=n,
                **ends,
                kind=order,
                pass_at_n=None if has_partial else ceiling,
                billed=billed,
                **own,
            )
            for n, billed, ends, ceiling, own in columns
        ),
        left_out=questions.left_out,
        cautions=tuple(other_models([llm])),
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
    known, kind = evaluation.field_names(method), methods.METHODS.get(method)
    counts = (n for n in _BUDGET_FIELDS if n in known and isinstance(getattr(kind, n, None), int))
    return next(counts, None)


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
    measures: Sequence[str] = (),
    unlabelled: str = "refuse",
    short_pools: str = "refuse",
    cost: str | None = None,
    workers: int = 1,
    executor: Executor | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Curve:
    """Return the curve of any method over the values of one of its fields.

    Args:
        dataset: from `load`.
        llms: from the same `load`, in the order the method wants them.
        method: its name, a key of `METHODS`.
        field: which field varies, such as `budget_field(method)`, or a threshold.
        values: its values, ascending on the curve; of the prices of a router, which is then fitted
            once, none for some that lie along its whole line.
        settings: other fields that differ from their defaults.
        measures: of "single-call" over the field "n" (or "k"), what so many calls of one LLM
            reach, in expectation over all draws: "accuracy", the mean of all; "pass@k", one is
            right; "pass^k", all are; "g-pass@k:0.5", this share of them and at least one;
            "mg-pass@k", the mean of that over shares above one half, for even k.
        unlabelled: as for `evaluate`.
        short_pools: "refuse" or "drop" questions with fewer CoTs of some LLM than any of the values
            may ask for.
        cost: what the points' costs count beside dollars and tokens, one of
            `feval.evaluation.measures.COSTS`. Where the method has no closed form of it, points are
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
        UsageError: measures of another method, or of partial credit.
    """
    budget_field(method)  # refuses a user's method before its file would run
    is_router = (method, field) == ("router", "price")
    if not (values or is_router) or len(set(values)) < len(values):
        raise OutOfRangeError(
            f"A curve needs distinct values of {field}; {list(values)[:10]} was asked for."
        )
    settings, measures = dict(settings or {}), tuple(dict.fromkeys(measures))
    field = "k" if measures and (method, field) == ("single-call", "n") else field
    asked = [method, field, options.get("order") or "exact", *settings]
    if measures and asked != ["single-call", "k", "exact"]:
        raise UsageError(
            "Measures such as pass@k are exact, of single calls, as in `feval curve single-call"
            f" --measure pass@k --n 1..4`; {', '.join(asked)} was asked for."
        )
    measured: Any = methods.CallMeasure  # which checks its numbers
    variants = {
        value: measured(value)
        if measures
        else evaluation.make_method(method, settings | {field: value})
        for value in sorted(values or [0.0])
    }
    dataset.require(llms, steps=all(map(may_search, variants.values())))
    largest = [
        budget for variant in variants.values() for budget in evaluation.budgets(variant, llms)
    ]
    questions = question_set(
        dataset, largest, unlabelled=unlabelled, short_pools=short_pools, by_cot=True
    )
    rows, routed = questions.rows, None
    if is_router:
        router = evaluation.make_method(method, settings)
        routed = _Routed(dataset, llms, router, rows, cost, options)
        rows, variants = routed.rows, routed.variants(values)
    order, inexact = options.pop("order", None), None
    exact = all(is_exact(variant, cost, options.get("parallel")) for variant in variants.values())

    def evaluated(
        order: str | None, executor: Executor | None, variants: Mapping[Any, Any] = variants
    ) -> list[Evaluation]:
        results: list[Evaluation] = []
        for variant in variants.values():
            results.append(
                evaluation.evaluate(
                    variant,
                    dataset,
                    llms,
                    rows=rows,
                    cost=cost,
                    executor=executor,
                    order=order,
                    **options,
                )
            )
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
    points = {
        value: _point(value, each, cost, pass_at_n=_pass_at_n(variant, dataset, llms, each))
        for (value, variant), each in zip(variants.items(), results, strict=True)
    }
    if routed is not None:
        results[-1] = dataclasses.replace(results[-1], learnt=routed.fits)
        routed.complete(points)
    each = results[-1]
    cautions, even = [*each.cautions, *not_exact(inexact)], [k for k in variants if k % 2 == 0]
    cautions += [] if routed is None else routed.cautions
    for measure in measures:
        chosen = {k: measured(k, measure) for k in variants}
        if measure == "mg-pass@k" and 0 < len(even) < len(variants):
            chosen = {k: chosen[k] for k in even}
            cautions.append("mg-pass@k is defined for even k, and left out at odd ones.")
        for k, each in zip(chosen, evaluated(order, None, chosen), strict=True):
            points[k] |= {measure + end: getattr(each, f"accuracy{end}") for end in _ENDS}
    learnt = [f"{sentence[0].upper()}{sentence[1:]}."] if (sentence := each.learnt_text) else []
    if each.train_questions:
        rows = rows[np.isin(dataset.question_keys[without_gaps(rows)], each.question_keys)]
    return Curve(
        **rests_on(dataset, llms, rows),
        method=method,
        recording_hash=llms[0].recording_hash,
        replicates=each.replicates,
        confidence=each.confidence,
        points=tuple(points.values()),
        field=field,
        settings=settings,
        measures=measures,
        left_out=questions.left_out,
        clusters=each.clusters,
        cost=cost,
        timing=each.timing,
        learnt=tuple(fit for each in results for fit in each.learnt),
        whole={} if routed is None else routed.whole,
        beside={} if routed is None else routed.beside,
        cautions=(*learnt, *cautions),
    )


def _point(value: float, each: Evaluation, cost: str | None, **own: Any) -> CurvePoint:
    """What an evaluation comes to, as the point of a curve."""
    ends = {name: getattr(each, name) for name in ("accuracy_low", "accuracy_high", "kind")}
    if cost is not None:
        own["cost"] = float(each.known_costs(cost).mean())
    return CurvePoint(
        n=value,
        accuracy=each.accuracy,
        **ends,
        billed=each.ledger.bill_rows(),
        **each.ledger.averages("always", "curves", cost=cost),
        **own,
    )


class _Routed:
    """A router that is fitted once, as the options of `evaluate` say (which go from them), and the
    whole line of its prices.

    Attributes:
        rows: of the questions that are judged.
        fits: what it has learnt.
        line: of one call of each LLM, the cheapest first.
        whole, beside: see `Curve`.
    """

    def __init__(
        self,
        dataset: Dataset,
        llms: Sequence[LLM],
        router: Any,
        rows: Rows,
        cost: str | None,
        options: Record,
    ) -> None:
        how = {name: options.pop(name, None) for name in ("train_fraction", "folds", "group")}
        seed, clusters = options.pop("split_seed", 0), options.get("clusters")
        split = splits(dataset, rows, **how, split_seed=seed, clusters=clusters)
        self.fits = tuple(evaluation.fits(router, dataset, llms, split, options.get("time_limit")))
        if self.fits:
            said = [each.method.predictions for each in self.fits]
            keys, *values = (
                np.concatenate(own)
                for own in zip(*((each.keys, *each.values.values()) for each in said), strict=True)
            )
            named = dict(zip(said[0].values, values, strict=True))
            router = router.having(predictions=Predictions(keys, named))
            rows = np.sort(np.concatenate([each.rows for each in self.fits]))
        self._router, self.rows = router, rows
        routes = router.routes(dataset.question_keys[without_gaps(rows)])
        confidence = options.get("confidence", 0.95)
        evaluated: Any = partial(
            evaluation.evaluate, rows=rows, cost=cost, clusters=clusters, confidence=confidence
        )
        alone = [evaluated(methods.SingleCall(), dataset, [llm]) for llm in llms]
        oracle = evaluated(methods.Oracle(1), dataset, llms)
        if cost is not None and oracle.mean_cost(cost) is None:
            raise UsageError(
                "The oracle beside a router's line is an expectation over all draws, for which "
                f"{cost} are not known, whatever the order of the points. Choose another cost, "
                "such as --cost output-tokens (in Python: cost='output-tokens')."
            )
        of_line = cost or ("tokens" if any(each.usd is None for each in alone) else "usd")
        costs = np.stack([each.known_costs(of_line) for each in alone])
        order = np.argsort(costs.mean(axis=1), kind="stable")
        ranked = {n: np.argsort(order)[getattr(routes, n)] for n in ("first", "before", "after")}
        routes = dataclasses.replace(routes, **ranked)
        right, costs = np.stack([each.right for each in alone])[order], costs[order]
        found = line_measures(
            routes,
            right,
            costs,
            names=[name for name in LINE_MEASURES if len(llms) == 2 or name not in SHARES],
            confidence=confidence,
            clusters=question_clusters(dataset, rows, clusters),
        )
        self.line = routing_line(routes, right, costs)
        self.whole = {
            name + end: None if np.isnan(value) else value
            for name, values in found.items()
            for end, value in zip(_ENDS, values, strict=True)
        }
        self.beside = {each.llm: _point(1, each, cost) for each in alone}
        self.beside["oracle"] = _point(1, oracle, cost)

    def variants(self, prices: Sequence[float]) -> dict[float, Any]:
        """The router at each price; where none is given, at some along the line."""
        bars = self.line.bars
        along = np.linspace(0, len(bars) - 1, _LINE_POINTS).round().astype(int)
        return {
            price: dataclasses.replace(self._router, price=price).having(
                predictions=self._router.predictions
            )
            for price in sorted(prices or {float(f"{bar:.6g}") for bar in bars[along].tolist()})
        }

    def complete(self, points: Mapping[float, CurvePoint]) -> None:
        """Add to each point its share of calls to the dearest LLM and its gain over the mixture of
        single LLMs of equal cost.
        """
        line = self.line
        gain = line.accuracy - mixture_line(line.cost, line.alone, line.right)
        for price, point in points.items():
            place = np.count_nonzero(line.score > price) - 1
            point |= {"share": float(line.share[0, place]), "gain": float(gain[0, place])}

    @property
    def cautions(self) -> Iterator[str]:
        """Sentences on what the measures leave out."""
        if self.whole.get("apgr", 0) is None:
            yield (
                "APGR, CPT and delta IBC are not defined: the dearer LLM is no more accurate than"
                " the cheaper one on these questions."
            )
        yield "The router was fitted once; what another fit would do is not in the intervals."


def swept_cascade(
    dataset: Dataset,
    llms: Sequence[LLM],
    *,
    train_fraction: float | None = None,
    split_seed: int | None = None,
) -> Record:
    """The cascade that the recordings support, as a comparison file writes it: over six training
    budgets from so many CoTs of its cheapest LLM to as many of its dearest, in USD per question.

    Of more than three LLMs it asks the cheapest, the dearest and the one between, since the orders
    to choose from grow like a factorial.

    Raises:
        UsageError: they support none; the message says why.
        UnlabelledError: no question has a gold.
    """
    scorers = [
        name
        for name in llms[0].pool.channels.scorers()
        if not are_verdicts(name) and all(name in llm.pool.channels.scorers() for llm in llms)
    ]
    samples = 1 if scorers else 5
    fields: Record = {"score": "vote-share", "samples": samples}
    if scorers:
        fields |= {"score": "recorded", "scorer": scorers[0]}
    # of prompts of the usual length
    asked = {llm.name: llm.price.at(llm.pool.prompt_tokens.mean()) for llm in llms if llm.price}
    unpriced = [llm.name for llm in llms if llm.name not in asked]
    uncounted = [llm.name for llm in llms if int(llm.pool.prompt_tokens.min()) < 0]
    short = [llm.name for llm in llms if int(llm.pool.sizes.max()) < samples]
    rows = question_set(dataset, unlabelled="drop", by_cot=True).rows
    rows = rows[np.all([llm.pool.sizes[rows] >= samples for llm in llms], axis=0)]
    by_cot = dataset.rightness
    unlearnt = by_cot and by_cot.is_mixed[rows].any() and (by_cot.is_partial or not scorers)
    reasons = (
        (len(llms) < 2, f"it asks several LLMs, and {llms[0].name} is alone"),
        (short, f"it votes on {samples} CoTs, and there are fewer of {', '.join(short)}"),
        (
            unlearnt,
            (
                "it learns from votes with one right answer, or from scored CoTs that are right or"
                " wrong, such as by --right 'verdict>=0.5' (in Python: right='verdict>=0.5')"
            ),
        ),
        (
            len(rows) < _CASCADE_QUESTIONS,
            f"it learns from some questions and needs {_CASCADE_QUESTIONS}; there are {len(rows)}",
        ),
        (llms[0].states_usd, "its budgets are of prices per token, and recorded USD are of CoTs"),
        (unpriced, f"there is no price of {', '.join(unpriced)}; give a price list with --prices"),
        (uncounted, f"the prompts of {', '.join(uncounted)} are not counted in tokens"),
    )
    if why := next((reason for is_so, reason in reasons if is_so), ""):
        raise UsageError(f"No cascade was swept over budgets: {why}.")
    share = train_fraction or 0.5
    train = train_test_rows(dataset, share, split_seed or 0, rows)[0]
    times = min(int(llm.pool.sizes[train].min()) for llm in llms) // samples
    costs: dict[str, float] = {}
    for llm in llms:
        prompt = llm.pool.prompt_tokens[train].mean()
        # as `Cascade.fit` counts them: each question is asked several times
        output = samples * llm.pool.output_tokens[train, : times * samples].mean()
        costs[llm.name] = float(usd(asked[llm.name], prompt, output))
    names = sorted(costs, key=costs.__getitem__)
    if len(names) > _CASCADE_LLMS:
        names = [names[0], names[len(names) // 2], names[-1]]
    if not (least := costs[names[0]]) > 0:
        raise UsageError(f"No cascade was swept over budgets: {names[0]} costs nothing.")
    # upwards, so that the cheapest LLM stays within the first
    rounded = Context(prec=3, rounding=ROUND_CEILING)
    budgets = [
        float(rounded.create_decimal(repr(cost)))
        for cost in np.geomspace(least * (1 + 1e-9), costs[names[-1]], _CASCADE_BUDGETS).tolist()
    ]
    fields["chains"] = "any"
    return {
        "name": "cascade",
        "llms": names,
        "fields": fields,
        "budgets": {"budget": list(dict.fromkeys(budgets))},
        "train_fraction": share,
    }


def _pass_at_n(
    method: Any, dataset: Dataset, llms: Sequence[LLM], result: Evaluation
) -> float | None:
    """Return pass@n with all the CoTs that the method may look at, on the questions it was
    evaluated on.
    """
    if len(llms) != 1 or capabilities(method).searches:
        return None
    rows = np.flatnonzero(np.isin(dataset.question_keys, result.question_keys))
    oracle: Any = methods.Oracle(*method.draws(1))
    judges = evaluation.judged(oracle, dataset, llms, rows) if dataset.rightness else None
    if judges is not None and judges.is_partial:
        return None
    return evaluation.evaluate(oracle, dataset, llms, rows=rows, confidence=None).accuracy


def ascending(values: Sequence[int], what: str, noun: str) -> list[int]:
    """Return numbers in ascending order, checked; `what` needs them."""
    numbers = [int(value) for value in values]
    if not numbers or min(numbers) < 1 or len(set(numbers)) < len(numbers):
        raise OutOfRangeError(
            f"A {what} needs distinct {noun} from 1 up; {numbers[:10]} was asked for."
        )
    return sorted(numbers)


def exact_values(
    gold: Integers, pool: Pool, budgets: Sequence[int], judges: evaluation.Judged | None = None
) -> tuple[PerQuestion, PerQuestion, Floats]:
    """Return expectations over all draws without replacement: per question the probabilities that
    the vote and that some CoT is right, at each budget, and the mean output tokens.
    """
    counts, rows = distinct_vote_counts(pool.codes, gold)
    any_right = pass_at_k(counts.gold, counts.size, budgets).of_questions(rows)
    if judges is None:
        right = subset_plurality_accuracy(*counts.parts, budgets).of_questions(rows)
    else:
        values = [
            plurality_is_right(pool, party, "drop", budgets).per_question() * share[:, None]
            for party, share in judges.parties(pool)
        ]
        right = PerQuestion(np.sum(values, axis=0), np.arange(len(gold)))
        any_right = pass_at_k((judges.right[0] > 0).sum(axis=1), pool.sizes, budgets)
    return right, any_right, _mean_of_draws(pool.output_tokens, pool, budgets)


def _mean_of_draws(values: Any, pool: Pool, budgets: Sequence[int]) -> Floats:
    """Return the mean over questions and draws of the sum of so many CoTs' values [Q, S]."""
    sums: Floats = np.array(budgets) * mean_output_tokens(values, pool.sizes).mean()
    return sums


def _judges(dataset: Dataset, llm: LLM, rows: Rows) -> evaluation.Judged | None:
    """How right the CoTs are that vote; `None` where the gold says it all."""
    if dataset.rightness is None:  # a method is not even made
        return None
    return evaluation.judged(methods.SelfConsistency(), dataset, [llm], rows)


def _drawn_sums(
    _: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    *,
    order: str,
    replicates: int,
    budgets: Sequence[int],
) -> tuple[Integers, Integers]:
    """Count over the draws of some questions: [3, Q, D] votes with a right CoT and `halves` of how
    right they are, and [3, D] output tokens and halves of picodollars, 0 where nobody asked.
    """
    [llm] = llms
    gold, pool = dataset.gold[rows], llm.pool.rows(rows)
    judges = _judges(dataset, llm, rows)
    hit = pool.codes == gold[:, None] if judges is None else judges.right[0] > 0
    counts = np.zeros((3, len(rows), len(budgets)), np.int64)
    tokens = 0 * counts[:, 0]
    paid = pool.stating(llm.stated).amounts.get("picodollars")
    for orders in drawn_orders(llm, order, replicates, max(budgets), rows):
        hits = np.logical_or.accumulate(drawn(hit, orders), axis=-1)
        for place, budget in enumerate(budgets):
            method, first = methods.SelfConsistency(budget), [orders[..., :budget]]
            decisions = method.decide([pool], first)
            own = (
                decisions.answer == gold
                if judges is None
                else judges.of_decisions(method, decisions, [pool], first)
            )
            counts[0, :, place] += hits[..., budget - 1].sum(axis=0)
            counts[1:, :, place] += halves(own)
            tokens[0, place] += decisions.ledgers[0].output_tokens.sum(dtype=np.int64)
            if paid is not None:
                tokens[1:, place] += halves(drawn(paid, first[0]), None)
    return counts, tokens


def interval_columns(
    right: PerQuestion, confidence: float | None, clusters: Integers | None
) -> Iterator[dict[str, float | None]]:
    """Yield the accuracy of each column with the ends of its interval; `None` without a level."""
    ends = interval_ends(right, confidence, clusters)
    for accuracy, (low, high) in zip(right.mean().tolist(), ends, strict=False):
        yield {"accuracy": accuracy, "accuracy_low": low, "accuracy_high": high}
