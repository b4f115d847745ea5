"""Cost-accuracy curves: one method over a budget axis, each point with an interval and the way it
was computed.

`exact` points are expectations over all draws without replacement, in closed form; `recorded` takes
the CoTs in recorded order; `seeded` averages replicates of `draws-v1`. Exact expectations break
ties uniformly among the leaders, in a draw the first seen wins; in expectation over draws the two
agree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from feval import executors
from feval.arguments import checked
from feval.errors import NotExactError, OutOfRangeError, UnknownNameError, UsageError
from feval.estimators.comparisons import pareto
from feval.estimators.per_question import (
    QUESTIONS_AT_ONCE,
    PerQuestion,
    distinct_vote_counts,
    mean_output_tokens,
)
from feval.estimators.plurality import LARGEST_POOL, pass_at_k, subset_plurality_accuracy
from feval.evaluation.cautions import mixed_parties, not_exact, other_models, probes_for_nothing
from feval.evaluation.evaluation import DatasetResult, budgets, evaluate, interval_ends, rests_on
from feval.evaluation.ledger import QuestionLedger
from feval.evaluation.measures import MEANS
from feval.evaluation.method_names import field_names, make_method
from feval.evaluation.questions import ClusterNames, cluster_sizes, question_clusters, question_set
from feval.evaluation.replicates import block_results, default_replicates, drawn_orders
from feval.executors.progress import reports
from feval.lazy import Displayable, Plottable
from feval.methods.cuts import Cuts
from feval.methods.oracle import Oracle
from feval.methods.protocol import Floats, Integers, Rows, capabilities, drawn, is_exact, may_search
from feval.methods.self_consistency import SelfConsistency
from feval.replay.draws import ORDERS
from feval.replay.pools import without_gaps

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from feval.evaluation.evaluation import Evaluation
    from feval.replay import LLM, Dataset
    from feval.replay.pools import Pool


_BUDGET_FIELDS = ("n", "samples", "budget")


class CurvePoint(dict[str, Any]):
    """The numbers of one point of a curve or a surface, by name; each is an attribute, too.

    On a curve: `n`, CoTs per question, or the value of another field that varies; `accuracy` with
    `accuracy_low` and `accuracy_high`, the ends of its interval, `None` where none was asked for;
    `kind`, "exact", "recorded" or "seeded"; `pass_at_n`, the mean probability that one of the CoTs
    the method may look at is right, an upper bound of every vote, `None` for several LLMs; means of
    measures, such as `usd_per_question`, `None` where not known; and `cost`, the one that was asked
    for.
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
    """

    method: str
    recording_hash: str
    replicates: int | None
    points: tuple[CurvePoint, ...]
    field: str = "n"
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def _paid(self) -> Sequence[tuple[str, Any]]:
        return [(f"{self.method} with {self.field}={point.n}", point) for point in self.points]

    def to_dict(self) -> dict[str, Any]:
        """Return the curve as JSON values."""
        names = "method", "recording_hash", "seed", "replicates", "field"
        own = self._points_dict(*names) | {"settings": dict(self.settings)}
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
    if order not in ORDERS:
        raise UnknownNameError.among("order", order, ORDERS)
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
        right, any_right, output = exact_values(gold, pool, budgets)
    else:
        draws = replicates if order == "seeded" else 1
        work = partial(_drawn_sums, order=order, replicates=replicates, budgets=budgets)
        totals = np.zeros((2, len(rows), len(budgets)))
        tokens = np.zeros(len(budgets), np.int64)
        with executors.opened(workers, given=executor) as opened:
            method = SelfConsistency(max(budgets))
            for block, sums in block_results(work, method, dataset, [llm], rows, opened):
                totals[0, block], totals[1, block], block_tokens = sums
                tokens += block_tokens
                progress(block.stop, len(rows))
        totals /= draws
        right, any_right = (PerQuestion(each, np.arange(len(rows))) for each in totals)
        output = tokens / (draws * len(rows))
    grouped = None if confidence is None else question_clusters(dataset, rows, clusters)
    ledger = QuestionLedger.at_mean_question(llm, pool, budgets, output_tokens=output)
    columns: Iterator[tuple[Any, ...]] = zip(
        budgets,
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
            CurvePoint(n=n, **ends, kind=order, pass_at_n=ceiling, **own)
            for n, ends, ceiling, own in columns
        ),
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
            results.append(
                evaluate(
                    variant,
                    dataset,
                    llms,
                    rows=questions.rows,
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
    points = []
    for (value, variant), each in zip(variants.items(), results, strict=True):
        ends = {name: getattr(each, name) for name in ("accuracy_low", "accuracy_high", "kind")}
        own = {} if cost is None else {"cost": float(each.known_costs(cost).mean())}
        points.append(
            CurvePoint(
                n=value,
                accuracy=each.accuracy,
                **ends,
                pass_at_n=_pass_at_n(variant, dataset, llms, each),
                **each.ledger.averages("always", "curves", cost=cost),
                **own,
            )
        )
    return Curve(
        **rests_on(dataset, llms, questions.rows),
        method=method,
        recording_hash=llms[0].recording_hash,
        replicates=each.replicates,
        confidence=each.confidence,
        points=tuple(points),
        field=field,
        settings=settings,
        left_out=questions.left_out,
        clusters=each.clusters,
        cost=cost,
        timing=each.timing,
        cautions=(*each.cautions, *not_exact(inexact)),
    )


def _pass_at_n(
    method: Any, dataset: Dataset, llms: Sequence[LLM], evaluation: Evaluation
) -> float | None:
    """Return pass@n with all the CoTs that the method may look at, on the questions it was
    evaluated on.
    """
    if len(llms) != 1 or capabilities(method).searches:
        return None
    rows = np.flatnonzero(np.isin(dataset.question_keys, evaluation.question_keys))
    return evaluate(Oracle(*method.draws(1)), dataset, llms, rows=rows, confidence=None).accuracy


def ascending(values: Sequence[int], what: str, noun: str) -> list[int]:
    """Return numbers in ascending order, checked; `what` needs them."""
    numbers = [int(value) for value in values]
    if not numbers or min(numbers) < 1 or len(set(numbers)) < len(numbers):
        raise OutOfRangeError(
            f"A {what} needs distinct {noun} from 1 up; {numbers[:10]} was asked for."
        )
    return sorted(numbers)


def exact_values(
    gold: Integers, pool: Pool, budgets: Sequence[int]
) -> tuple[PerQuestion, PerQuestion, Floats]:
    """Return expectations over all draws without replacement: per question the probabilities that
    the vote and that some CoT is right, at each budget, and the mean output tokens.
    """
    counts, rows = distinct_vote_counts(pool.codes, gold)
    right = subset_plurality_accuracy(
        counts.gold, counts.rivals, counts.no_answer, budgets
    ).of_questions(rows)
    any_right = pass_at_k(counts.gold, counts.size, budgets).of_questions(rows)
    tokens = mean_output_tokens(pool.output_tokens, pool.sizes).mean()
    return right, any_right, np.array(budgets) * tokens


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


def interval_columns(
    right: PerQuestion, confidence: float | None, clusters: Integers | None
) -> Iterator[dict[str, float | None]]:
    """Yield the accuracy of each column with the ends of its interval; `None` without a level."""
    ends = interval_ends(right, confidence, clusters)
    for accuracy, (low, high) in zip(right.mean().tolist(), ends, strict=False):
        yield {"accuracy": accuracy, "accuracy_low": low, "accuracy_high": high}


MOST_POINTS = 100_000
_MOST_DEPTHS = 200


class SurfacePoint(CurvePoint):
    """The numbers of one width and depth, by name; each is an attribute, too.

    `n`, traces per question; `tokens`, output tokens after which a trace is cut, `None` for no
    limit; `accuracy` with `accuracy_low` and `accuracy_high`, as of a `CurvePoint`;
    `output_tokens`, the mean of a question without those of probes; `probe_tokens`, 0 where they
    were not recorded: each trace that is cut is probed once; means of measures, such as
    `usd_per_question`; and `frontier`, whether no other point is as cheap and as good, and better
    in one of the two. Cost is USD where it is known at all points, else output tokens.
    """


@dataclass(frozen=True, kw_only=True, repr=False)
class Surface(DatasetResult, Displayable):
    """Exact accuracy and cost of votes over the traces of one LLM on one dataset, over width and
    depth.

    Attributes:
        interval: output tokens between two probes; `None` where they lie at other offsets.
        points: by depth (no limit last), then width.
    """

    interval: int | None
    points: tuple[SurfacePoint, ...]

    @property
    def widths(self) -> list[int]:
        """The numbers of traces, ascending."""
        return sorted({point.n for point in self.points})

    @property
    def depths(self) -> list[int | None]:
        """The limits of tokens, ascending; no limit last."""
        return list(dict.fromkeys(point.tokens for point in self.points))

    @property
    def frontier(self) -> list[SurfacePoint]:
        """The points on the Pareto frontier, the cheapest first."""
        points = [point for point in self.points if point.frontier]
        return sorted(points, key=lambda point: (point.accuracy, point.output_tokens, point.n))

    def to_dict(self) -> dict[str, Any]:
        """Return the surface as JSON values."""
        return self._points_dict("interval")


@checked
@reports("surface")
def surface(
    dataset: Dataset,
    llm: LLM,
    *,
    n: Sequence[int] | None = None,
    tokens: Sequence[int | None] | None = None,
    unlabelled: str = "refuse",
    short_pools: str = "refuse",
    clusters: ClusterNames | None = None,
    confidence: float | None = 0.95,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Surface:
    """Return the exact accuracy and cost of votes over n traces cut after t tokens, for all n and
    t.

    Args:
        dataset: from `load`.
        llm: from the same `load`; its recording has probes.
        n: numbers of traces; `None` for 1 to what every question has.
        tokens: limits of output tokens, `None` among them for no limit; `None` for every offset at
            which there are probes, and no limit.
        unlabelled: "refuse" or "drop" questions without a gold answer that can be read.
        short_pools: "refuse" or "drop" questions with fewer traces than the largest n.
        clusters: which questions are one piece of evidence, as for `evaluate`.
        confidence: of the interval over questions; `None` leaves intervals out.
        progress: called with (depths done, depths in all).

    Raises:
        NotRecordedError: the LLM was not probed on this dataset.
        ShortPoolError: some n is above the smallest pool; the message names the question.
        UnlabelledError: questions have no gold answer that can be read.
        OutOfRangeError: no n or limit, one below 1 or given twice, or more than 100,000 points.
        UsageError: the LLM and the dataset come from different calls of `load`.
    """
    dataset.require([llm])
    probes = llm.pool.probes()
    if n is None and short_pools == "drop":
        raise OutOfRangeError(
            "Questions with too few traces are left out for the largest n only if n is given; name"
            " the widths."
        )
    widths = ascending(
        range(1, llm.pool.smallest + 1) if n is None else n, "surface", "numbers of traces"
    )
    depths = _depths(probes.interval, probes.offsets, tokens)
    if len(widths) * len(depths) > MOST_POINTS:
        raise OutOfRangeError(
            f"{len(widths):,} widths and {len(depths):,} depths make {len(widths) * len(depths):,}"
            f" points; {MOST_POINTS:,} is the most. Name fewer."
        )
    questions = question_set(
        dataset, [(llm, max(widths))], unlabelled=unlabelled, short_pools=short_pools
    )
    pool, gold = llm.pool.rows(questions.rows), dataset.gold[without_gaps(questions.rows)]
    grouped = None if confidence is None else question_clusters(dataset, questions.rows, clusters)
    points: list[SurfacePoint] = []
    values = _depth_values(pool, gold, widths, depths)
    for depth, (right, mean_tokens, mean_probe_tokens) in zip(depths, values, strict=True):
        output, probing = np.array([[mean_tokens], [mean_probe_tokens]]) * np.array(widths)
        ledger = QuestionLedger.at_mean_question(
            llm, pool, widths, output_tokens=output, probe_tokens=probing
        )
        columns = (
            widths, interval_columns(right, confidence, grouped), output.tolist(),
            probing.tolist(), ledger.each("tokens", "usd"),
        )  # fmt: skip
        for width, ends, spent, probed, costs in zip(*columns, strict=True):
            counts = {"output_tokens": spent, "probe_tokens": probed}
            points.append(SurfacePoint(n=width, tokens=depth, **ends, **counts, **costs))
        progress(len(points) // len(widths), len(depths))
    dollars = [point.usd_per_question for point in points]
    paid = [point.output_tokens for point in points] if None in dollars else dollars
    best = pareto(np.array(paid, np.float64), np.array([point.accuracy for point in points]))
    for point, on in zip(points, best.tolist(), strict=True):
        point["frontier"] = on
    cut = any(cut is not None and cut < pool.output_tokens.max() for cut in depths)
    free = cut and pool.has_uncounted_probes()
    return Surface(
        **rests_on(dataset, [llm], questions.rows),
        interval=probes.interval,
        confidence=confidence,
        points=tuple(points),
        left_out=questions.left_out,
        cautions=(
            *probes_for_nothing([llm.name] if free else []),
            *mixed_parties(dataset),
            *other_models([llm]),
        ),
        clusters=cluster_sizes(grouped),
    )


def coarse_surface(dataset: Dataset, llm: LLM) -> Surface | None:
    """Return the surface, without intervals, at doublings of width and depth up to all that every
    question with CoTs has.

    Questions without a gold or CoTs are left out. `None` where nothing was probed, nothing has a
    gold, or pools are too large.
    """
    sizes = llm.pool.sizes[(dataset.gold >= 0) & (llm.pool.sizes > 0)]
    if not llm.pool.channels.has_probes or not len(sizes) or int(sizes.max()) > LARGEST_POOL:
        return None
    depths: list[int] = np.unique(llm.pool.probes().offsets).tolist()
    return surface(
        dataset,
        llm,
        n=_doublings(range(1, int(sizes.min()) + 1)),
        tokens=[*_doublings(depths), None],
        unlabelled="drop",
        short_pools="drop",
        confidence=None,
    )


def _doublings(values: Sequence[int]) -> list[int]:
    """Return the first, second, fourth, eighth, ... of some values, and the last."""
    places = {2**k - 1 for k in range(len(values).bit_length())} | (
        {len(values) - 1} if values else set()
    )
    return [values[place] for place in sorted(places)]


def _depths(
    interval: int | None, offsets: Integers, tokens: Sequence[int | None] | None
) -> list[int | None]:
    """Return the limits of tokens in ascending order; no limit last."""
    if tokens is not None:
        limits = [limit for limit in tokens if limit is not None]
        if tokens.count(None) > 1:
            raise OutOfRangeError(
                "A surface needs distinct limits of tokens; no limit was asked for twice."
            )
        ordered = ascending(limits, "surface", "limits of tokens") if limits or not tokens else []
        return [*ordered, *([None] if None in tokens else [])]
    found = np.unique(offsets)
    if interval is None and len(found) > _MOST_DEPTHS:
        raise OutOfRangeError(
            f"Probes lie at {len(found):,} different offsets, from {found[0]} to {found[-1]}"
            " tokens; name the limits of tokens, such as 500,1000,none."
        )
    return [*map(int, found), None]


def _depth_values(
    pool: Pool, gold: Integers, widths: Sequence[int], depths: Sequence[int | None]
) -> Iterator[tuple[PerQuestion, float, float]]:
    """Yield, for each depth, probabilities of being right [Q, N], and the mean output tokens of a
    trace and of its probe.

    Depths are solved together as far as their questions fill one block.
    """
    questions, longest = len(gold), int(pool.output_tokens.max())
    together = max(1, QUESTIONS_AT_ONCE // questions)
    for start in range(0, len(depths), together):
        cut = [
            Cuts.at_budget(pool, longest if depth is None else depth)
            for depth in depths[start : start + together]
        ]
        codes = np.concatenate([each.pool.codes for each in cut])
        counts, rows = distinct_vote_counts(codes, np.tile(gold, len(cut)))
        solved = subset_plurality_accuracy(
            counts.gold, counts.rivals, counts.no_answer, widths
        ).of_questions(rows)
        for place, each in enumerate(cut):
            right = PerQuestion(
                solved.values, solved.rows[place * questions : (place + 1) * questions]
            )
            tokens, probing = (
                float(mean_output_tokens(part, pool.sizes).mean())
                for part in (each.pool.output_tokens, each.probe_tokens)
            )
            yield right, tokens, probing
