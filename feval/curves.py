"""Cost-accuracy curves: one method over a budget axis, every point with an interval and a statement of how it was computed.

`exact` points are expectations over all draws without replacement, in closed form; `recorded` takes the CoTs in the order of
the recording; `seeded` averages replicates of `draws-v1`. Ties: exact expectations break them uniformly among the leaders, draws
let the first seen win; in expectation over draws the two agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError, UnknownNameError
from feval.evaluation import ORDERS, drawn_orders
from feval.methods.protocol import drawn

if TYPE_CHECKING:
    from feval.estimators.per_question import PerQuestion
    from feval.replay import LLM, Dataset

__all__ = ["Curve", "CurvePoint", "self_consistency_curve"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One budget on a curve.

    Attributes:
        n: CoTs per question.
        accuracy: mean over questions of the probability that the method is right.
        accuracy_low: lower end of the confidence interval; `None` where none was asked for.
        accuracy_high: upper end.
        usd_per_question: mean USD, `None` without a price or prompt tokens.
        tokens_per_question: mean prompt and output tokens billed, `None` without prompt tokens.
        pass_at_n: mean probability that at least one of the n CoTs is right: no vote can do better.
        kind: "exact", "recorded" or "seeded".
    """

    n: int
    accuracy: float
    accuracy_low: float | None
    accuracy_high: float | None
    usd_per_question: float | None
    tokens_per_question: float | None
    pass_at_n: float
    kind: str


@dataclass(frozen=True, slots=True)
class Curve:
    """One method of one LLM on one dataset, over budgets.

    Attributes:
        method: its label.
        dataset: id.
        llm: name.
        recording_hash: of the recording the CoTs are from.
        recording_hashes: of every recording that was opened together; questions and golds are theirs.
        prices: id of the price list, `None` where dollars were switched off.
        billing: how prompts were charged.
        counter: who counted the tokens.
        questions: number of questions.
        seed: of draws (seeded) and of the interval's resamples.
        replicates: draws per question (seeded), 1 (recorded), `None` (exact).
        confidence: of the intervals; resamples: how many they were made from.
        resamples: bootstrap resamples over questions.
        points: by n.
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
    resamples: int
    points: tuple[CurvePoint, ...]

    def to_dict(self) -> dict[str, Any]:
        """The curve as JSON values."""
        return asdict(self) | {
            "recording_hashes": list(self.recording_hashes),
            "points": [asdict(point) for point in self.points],
        }


def self_consistency_curve(
    dataset: Dataset,
    llm: LLM,
    n: Sequence[int],
    *,
    order: str = "exact",
    replicates: int = 100,
    confidence: float | None = 0.95,
    resamples: int = 10_000,
) -> Curve:
    """Self-consistency (plurality of n answers, Wang et al. 2203.11171) over n.

    Args:
        dataset: from `load`.
        llm: from the same `load`.
        n: CoTs per question, such as `range(1, 41)`.
        order: "exact" (default), "recorded" or "seeded".
        replicates: draws of every question, for "seeded".
        confidence: level of the percentile bootstrap over questions; `None` leaves intervals out.
        resamples: of the bootstrap; its seed is the LLM's, modulo 2^64, and questions are resampled in the order of their
            keys (`Dataset.question_keys`), so that their order in the recording makes no difference.

    Raises:
        ShortPoolError: some n is above the smallest pool; the message names the question.
        OutOfRangeError: no n, one below 1, or one that comes twice.
        UnknownNameError: no such order.
        UsageError: the LLM is from another `load` than the dataset, which numbers answers differently.
    """
    budgets = _budgets(n)
    if order not in ORDERS:
        raise UnknownNameError.of("order", order, ORDERS)
    if replicates < 1:
        raise OutOfRangeError(f"Seeded points average 1 replicate or more; {replicates} were asked for.")
    dataset.require([llm])
    llm.require(None, max(budgets))
    values = _exact(dataset, llm, budgets) if order == "exact" else _drawn(dataset, llm, budgets, order, replicates)
    points = _points(values, llm, budgets, order)
    if confidence is not None:
        right = _by_key(values.right, dataset)
        points = _with_intervals(points, right, confidence, resamples, llm.seed)
    return Curve(
        method="self-consistency",
        dataset=dataset.id,
        llm=llm.name,
        recording_hash=llm.recording_hash,
        recording_hashes=dataset.recording_hashes,
        prices=llm.prices.id if llm.prices is not None else None,
        billing=llm.billing,
        counter=llm.counter,
        questions=len(dataset),
        seed=llm.seed,
        replicates={"exact": None, "recorded": 1, "seeded": replicates}[order],
        confidence=confidence,
        resamples=resamples,
        points=tuple(points),
    )


@dataclass(frozen=True, eq=False)
class _Values:
    """What a curve is made from: D budgets, Q questions."""

    right: PerQuestion
    any_right: PerQuestion
    output_tokens: Floats


def _budgets(n: Sequence[int]) -> list[int]:
    budgets = [int(budget) for budget in n]
    if not budgets or min(budgets) < 1 or len(set(budgets)) < len(budgets):
        raise OutOfRangeError(f"A curve needs distinct numbers of CoTs from 1 up; {budgets[:10]} was asked for.")
    return sorted(budgets)


def _exact(dataset: Dataset, llm: LLM, budgets: Sequence[int]) -> _Values:
    """Expectations over all draws without replacement."""
    from feval.estimators.cost import mean_output_tokens
    from feval.estimators.counts import vote_counts
    from feval.estimators.plurality import pass_at_k, subset_plurality_accuracy

    counts = vote_counts(llm.pool.codes, dataset.gold)
    right = subset_plurality_accuracy(counts.gold, counts.rivals, counts.no_answer, budgets)
    any_right = pass_at_k(counts.gold, counts.size, budgets)
    tokens = mean_output_tokens(llm.pool.output_tokens, llm.pool.sizes).mean()
    return _Values(right, any_right, np.array(budgets) * tokens)


def _drawn(dataset: Dataset, llm: LLM, budgets: Sequence[int], order: str, replicates: int) -> _Values:
    """Means over the draws of every question: one in recorded order, or seeded replicates."""
    from feval.estimators.per_question import PerQuestion
    from feval.methods.self_consistency import SelfConsistency

    right, any_right = np.zeros((2, len(dataset), len(budgets)))
    tokens = np.zeros(len(budgets))
    count = 0
    for orders in drawn_orders(llm, order, replicates, max(budgets)):
        hits = np.logical_or.accumulate(drawn(llm.pool.codes, orders) == dataset.gold[:, None], axis=-1)
        hits &= (dataset.gold >= 0)[:, None]
        for place, budget in enumerate(budgets):
            decisions = SelfConsistency(budget).decide([llm.pool], [orders[..., :budget]])
            right[:, place] += ((decisions.answer == dataset.gold) & (decisions.answer >= 0)).sum(axis=0)
            any_right[:, place] += hits[..., budget - 1].sum(axis=0)
            tokens[place] += decisions.ledgers[0].output_tokens.sum(dtype=np.int64)
        count += len(orders)
    everyone = np.arange(len(dataset))
    return _Values(
        PerQuestion(right / count, everyone),
        PerQuestion(any_right / count, everyone),
        tokens / (count * len(dataset)),
    )


def _points(values: _Values, llm: LLM, budgets: Sequence[int], kind: str) -> list[CurvePoint]:
    accuracy, ceiling = values.right.mean(), values.any_right.mean()
    points = []
    for i, n in enumerate(budgets):
        usd, tokens = _mean_cost(llm, n, float(values.output_tokens[i]))
        points.append(CurvePoint(n, float(accuracy[i]), None, None, usd, tokens, float(ceiling[i]), kind))
    return points


def _mean_cost(llm: LLM, n: int, output_tokens: float) -> tuple[float | None, float | None]:
    """Mean USD and tokens of one question: eq. (1) is linear, so means of tokens are enough."""
    from feval.prices import billed_prompts, usd

    if int(llm.pool.prompt_tokens.min()) < 0:
        return None, None
    prompt_tokens = float(llm.pool.prompt_tokens.mean()) * int(billed_prompts(llm.billing, 1, n))
    dollars = None if llm.price is None else float(usd(llm.price, prompt_tokens, output_tokens))
    return dollars, prompt_tokens + output_tokens


def _by_key(values: PerQuestion, dataset: Dataset) -> PerQuestion:
    """The questions in an order that does not depend on the recording, nor on what was opened beside it."""
    return replace(values, rows=values.rows[np.argsort(dataset.question_keys, kind="stable")])


def _with_intervals(
    points: Sequence[CurvePoint], right: PerQuestion, confidence: float, resamples: int, seed: int
) -> list[CurvePoint]:
    from feval.estimators.bootstrap import bootstrap_interval

    interval = bootstrap_interval(right, confidence=confidence, resamples=resamples, seed=seed % (1 << 64))
    ends = zip(points, interval.low.tolist(), interval.high.tolist(), strict=True)
    return [replace(point, accuracy_low=low, accuracy_high=high) for point, low, high in ends]
