"""Evaluate a method on a dataset: how often it is right, what it consumed, per question and on average.

The method sees pools and orders, or metered LLMs. The gold answers are looked at here, after the method has decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.errors import FevalError, MethodError, OutOfRangeError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from feval.exact import Expectation
    from feval.methods.decisions import Decisions, Ledger
    from feval.methods.protocol import BatchMethod, Method
    from feval.replay import LLM, Dataset

__all__ = ["MAX_REPLICATES", "ORDERS", "Evaluation", "decisions", "drawn_orders", "evaluate"]

Floats = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]

ORDERS = ("exact", "recorded", "seeded")
"""How CoTs are drawn: the expectation over all draws, the order of the recording, or seeded replicates."""

MAX_REPLICATES = 1_000_000
"""Most draws of every question: beyond it nothing is gained, and a slip of the finger would run for days."""

_CHUNK_CODES = 1 << 22


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One method on Q questions of one dataset. Numbers per question are means over its draws.

    Attributes:
        method: name of the method.
        fields: its hyper-parameters.
        dataset: id.
        llms: names, in the order the method was given them.
        kind: "exact", "recorded" or "seeded".
        replicates: draws per question (seeded), 1 (recorded), `None` (exact).
        seed: of the draws and of the interval's resamples.
        prices: id of the price list, `None` where dollars were switched off.
        billing: how prompts were charged.
        counters: who counted the tokens of each LLM.
        recording_hashes: of every recording behind the questions and CoTs.
        question_ids: Q ids.
        question_keys: [Q] what resamples of questions are ordered by.
        right: [Q] probability that the answer is the gold.
        no_answer: [Q] probability that there is no answer; `None` where not known (exact).
        calls: [Q] requests, auxiliary ones included.
        samples: [Q] CoTs.
        tokens: [Q] prompt and output tokens billed, `None` where some prompt's tokens are not known.
        usd: [Q] dollars, `None` without a price or prompt tokens.
        accuracy_low: lower end of the confidence interval, `None` where none was asked for.
        accuracy_high: upper end.
        confidence: of the interval.
        resamples: bootstrap resamples over questions it was made from.
    """

    method: str
    fields: Mapping[str, Any]
    dataset: str
    llms: tuple[str, ...]
    kind: str
    replicates: int | None
    seed: int
    prices: str | None
    billing: str
    counters: tuple[str, ...]
    recording_hashes: tuple[str, ...]
    question_ids: Sequence[str] = field(repr=False)
    question_keys: npt.NDArray[np.uint64] = field(repr=False)
    right: Floats = field(repr=False)
    no_answer: Floats | None = field(repr=False)
    calls: Floats = field(repr=False)
    samples: Floats = field(repr=False)
    tokens: Floats | None = field(repr=False)
    usd: Floats | None = field(repr=False)
    accuracy_low: float | None = None
    accuracy_high: float | None = None
    confidence: float | None = None
    resamples: int | None = None

    @property
    def questions(self) -> int:
        """How many."""
        return len(self.right)

    @property
    def accuracy(self) -> float:
        """Mean over questions of the probability of being right."""
        return float(self.right.mean())

    @property
    def usd_per_question(self) -> float | None:
        """Mean dollars."""
        return None if self.usd is None else float(self.usd.mean())

    @property
    def tokens_per_question(self) -> float | None:
        """Mean tokens billed."""
        return None if self.tokens is None else float(self.tokens.mean())

    def to_dict(self) -> dict[str, Any]:
        """The averages as JSON values: what `feval run --json` prints."""
        result: dict[str, Any] = {
            "method": self.method,
            "fields": dict(self.fields),
            "kind": self.kind,
            "dataset": self.dataset,
            "llms": list(self.llms),
            "questions": self.questions,
            "accuracy": self.accuracy,
            "accuracy_low": self.accuracy_low,
            "accuracy_high": self.accuracy_high,
            "samples_per_question": float(self.samples.mean()),
            "usd_per_question": self.usd_per_question,
            "tokens_per_question": self.tokens_per_question,
            "calls_per_question": float(self.calls.mean()),
            "replicates": self.replicates,
            "seed": self.seed,
            "billing": self.billing,
            "prices": self.prices,
        }
        if self.kind == "recorded":
            result |= {"correct": int(self.right.sum()), "samples": int(self.samples.sum())}
        return result


def evaluate(
    method: BatchMethod | Method,
    dataset: Dataset,
    llms: LLM | Sequence[LLM],
    *,
    order: str | None = None,
    replicates: int = 100,
    seed: int | None = None,
    rows: Sequence[int] | Rows | None = None,
    confidence: float | None = 0.95,
    resamples: int = 10_000,
) -> Evaluation:
    """Run a method over a dataset.

    Args:
        method: a built-in method, or any callable `(question, *llms) -> answer`.
        dataset: from `load`; only evaluation looks at its golds.
        llms: from the same `load`, in the order the method wants them.
        order: "exact" (expectation over all draws; the default where the method has one), "seeded" (the default elsewhere) or
            "recorded".
        replicates: how many draws of every question, for "seeded".
        seed: of the draws; `None` takes that of the load.
        rows: which questions, by row; `None` for all.
        confidence: level of the percentile bootstrap over questions; `None` for no interval.
        resamples: of the bootstrap.

    Raises:
        ShortPoolError: a pool is smaller than what the method may ask for; the message names the question.
        UnknownNameError: no such order.
        UsageError: no LLM, one from another `load`, no question, an exact expectation of a method that has none, or fewer than
            one replicate.
        NotRecordedError: the method needs a channel (scores, log-probabilities) that was not recorded.
        MethodError: a user's method failed; the message names it and the question.
    """
    from feval.replay import LLM

    asked = [llms] if isinstance(llms, LLM) else list(llms)
    if not asked or replicates < 1:
        raise UsageError(f"An evaluation needs an LLM and a replicate; {len(asked)} and {replicates} were given.")
    dataset.require(asked)
    asked = asked if seed is None else [llm.seeded(seed) for llm in asked]
    chosen = np.arange(len(dataset)) if rows is None else np.asarray(rows, np.intp)
    if not len(chosen):
        raise UsageError(f"An evaluation needs a question; {dataset.id} was to be evaluated on none.")
    kind = _kind(method, order)
    means = (
        _expected(method, dataset, asked, chosen)
        if kind == "exact"
        else _drawn(method, dataset, asked, chosen, kind, replicates)
    )
    return _evaluation(method, dataset, asked, chosen, kind, replicates, means, confidence, resamples)


def decisions(
    method: BatchMethod, llms: Sequence[LLM], *, order: str, replicates: int = 1, rows: Rows | None = None
) -> Iterator[Decisions]:
    """What a built-in method decides, some replicates at a time so that memory stays bounded.

    Args:
        method: a method with a batch form.
        llms: of one `load`, in the order the method wants them.
        order: "recorded" (one replicate) or "seeded".
        replicates: how many, for "seeded".
        rows: which questions, by row; `None` for all.

    Yields:
        Answers and ledgers [R', Q]; the R' add up to the replicates.
    """
    needed = method.draws(len(llms))
    for llm, draws in zip(llms, needed, strict=True):
        llm.require(None, draws)
    pools = [llm.pool if rows is None else llm.pool.rows(rows) for llm in llms]
    chunk = _replicates_at_once(len(pools[0].sizes), needed)
    for orders in zip(
        *(
            drawn_orders(llm, order, replicates, draws, rows, chunk=chunk)
            for llm, draws in zip(llms, needed, strict=True)
        ),
        strict=True,
    ):
        yield method.decide(pools, orders)


def _replicates_at_once(questions: int, draws: Sequence[int]) -> int:
    return max(1, _CHUNK_CODES // max(questions * max(draws), 1))


def drawn_orders(
    llm: LLM, order: str, replicates: int, draws: int, rows: Rows | None = None, *, chunk: int | None = None
) -> Iterator[npt.NDArray[np.uint16]]:
    """The draws of an LLM, some replicates at a time so that memory stays bounded.

    Args:
        llm: a recorded LLM.
        order: "recorded" (one replicate) or "seeded".
        replicates: how many, for "seeded".
        draws: CoTs per draw, at most the smallest pool.
        rows: which questions, by row; `None` for all.
        chunk: how many replicates at a time; `None` for as many as fit some megabytes.

    Yields:
        [R, Q, draws] recorded places.

    Raises:
        OutOfRangeError: more than `MAX_REPLICATES`.
    """
    questions = len(llm.pool.sizes) if rows is None else len(rows)
    if order == "recorded":
        yield np.broadcast_to(np.arange(draws, dtype=np.uint16), (1, questions, draws))
        return
    if replicates > MAX_REPLICATES:
        raise OutOfRangeError(
            f"{replicates:,} replicates were asked for; {MAX_REPLICATES:,} is the most. Where a method has an exact expectation, "
            "take that instead (--order exact)."
        )
    size = chunk or _replicates_at_once(questions, [draws])
    for start in range(0, replicates, size):
        yield llm.orders(range(start, min(start + size, replicates)), draws, rows)


# -- means per question -----------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Consumed:
    """Sums over replicates of what one LLM gave on each question: integers, so that they add up the same in any order."""

    rounds: Int64
    cots: Int64
    prompts: Int64
    output_tokens: Int64
    auxiliary_calls: Int64
    auxiliary_prompt_tokens: Int64
    auxiliary_output_tokens: Int64

    @classmethod
    def nothing(cls, questions: int) -> _Consumed:
        return cls(*np.zeros((7, questions), np.int64))

    def add(self, ledger: Ledger, billing: str) -> None:
        from feval.prices import billed_prompts

        self.rounds += ledger.rounds.sum(axis=0, dtype=np.int64)
        self.cots += ledger.cots.sum(axis=0, dtype=np.int64)
        self.prompts += np.asarray(billed_prompts(billing, ledger.rounds, ledger.cots)).sum(axis=0, dtype=np.int64)
        self.output_tokens += ledger.output_tokens.sum(axis=0, dtype=np.int64)
        for name in ("auxiliary_calls", "auxiliary_prompt_tokens", "auxiliary_output_tokens"):
            if (consumed := getattr(ledger, name)) is not None:
                getattr(self, name).__iadd__(consumed.sum(axis=0, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class _Means:
    """Per question, over draws; per LLM the tokens that are billed."""

    right: Floats
    no_answer: Floats | None
    calls: Floats
    samples: Floats
    prompt_tokens: list[Floats]
    output_tokens: list[Floats]


def _kind(method: object, order: str | None) -> str:
    from feval.exact import has_exact_form

    exact = has_exact_form(method)
    if order is None:
        return "exact" if exact else "seeded"
    if order not in ORDERS:
        raise UnknownNameError.of("order", order, ORDERS)
    if order == "exact" and not exact:
        raise UsageError(
            f"No exact expectation over all draws is known for {_name(method)}; evaluate it with order 'seeded' or 'recorded'."
        )
    return order


def _drawn(method: Any, dataset: Dataset, llms: Sequence[LLM], rows: Rows, order: str, replicates: int) -> _Means:
    gold = dataset.gold[rows]
    right, none = np.zeros((2, len(rows)), np.int64)
    consumed = [_Consumed.nothing(len(rows)) for _ in llms]
    count = 0
    for decided in _decided(method, dataset, llms, rows, order, replicates):
        right += ((decided.answer == gold) & (gold >= 0)).sum(axis=0)
        none += (decided.answer < 0).sum(axis=0)
        count += len(decided.answer)
        for total, ledger, llm in zip(consumed, decided.ledgers, llms, strict=True):
            total.add(ledger, llm.billing)
    return _Means(
        right / count,
        none / count,
        sum((c.rounds + c.auxiliary_calls for c in consumed), np.zeros(len(rows), np.int64)) / count,
        sum((c.cots for c in consumed), np.zeros(len(rows), np.int64)) / count,
        [
            (c.prompts * llm.pool.prompt_tokens[rows] + c.auxiliary_prompt_tokens) / count
            for c, llm in zip(consumed, llms, strict=True)
        ],
        [(c.output_tokens + c.auxiliary_output_tokens) / count for c in consumed],
    )


def _decided(
    method: Any, dataset: Dataset, llms: Sequence[LLM], rows: Rows, order: str, replicates: int
) -> Iterator[Decisions]:
    """What a method decides, by its batch form or, where it has none, question by question."""
    from feval.methods.protocol import BatchMethod

    if isinstance(method, BatchMethod):
        everyone = len(rows) == len(dataset) and bool((rows == np.arange(len(rows))).all())
        yield from decisions(method, llms, order=order, replicates=replicates, rows=None if everyone else rows)
        return
    for replicate in range(replicates) if order == "seeded" else [None]:
        yield _called(method, dataset, llms, rows, replicate)


def _called(method: Any, dataset: Dataset, llms: Sequence[LLM], rows: Rows, replicate: int | None) -> Decisions:
    """One replicate of a method that is a plain callable."""
    from feval.methods.decisions import Decisions, Ledger

    answer = np.empty((1, len(rows)), np.int64)
    consumed = np.empty((len(llms), 6, 1, len(rows)), np.int64)
    for place, row in enumerate(rows.tolist()):
        metered = [llm.ask(row, replicate) for llm in llms]
        question_id = dataset.question_ids[row]
        try:
            given = method(dataset[row].question, *metered)
        except FevalError:
            raise
        except Exception as error:
            raise MethodError(
                f"The method {_name(method)} failed on question {question_id!r}: {type(error).__name__}: {error}"
            ) from error
        answer[0, place] = _code(given, dataset, row, method)
        for llm, taken in zip(metered, consumed, strict=True):
            taken[:, 0, place] = (
                llm.rounds,
                llm.cots,
                llm.output_tokens,
                llm.auxiliary_calls,
                llm.auxiliary_prompt_tokens,
                llm.auxiliary_output_tokens,
            )
    return Decisions(answer, tuple(Ledger(*taken) for taken in consumed))


def _code(given: object, dataset: Dataset, row: int, method: object) -> int:
    """The code of an answer; an answer nobody gave gets a code of its own, which is never right."""
    if given is None:
        return -1
    if not isinstance(given, str):
        raise MethodError(
            f"The method {_name(method)} answered question {dataset.question_ids[row]!r} with {given!r:.80}, which is "
            f"{type(given).__name__}. A method returns an answer as text, or None."
        )
    candidates = dataset.candidates(row)
    return candidates.index(given) if given in candidates else len(candidates)


def _expected(method: Any, dataset: Dataset, llms: Sequence[LLM], rows: Rows) -> _Means:
    from feval.exact import exact_expectation

    for llm, draws in zip(llms, method.draws(len(llms)), strict=True):
        llm.require(None, draws)
    expected = exact_expectation(method, [llm.pool.rows(rows) for llm in llms], dataset.gold[rows])
    prompts = _expected_prompts(llms[0].billing, expected)
    return _Means(
        expected.right,
        None,
        expected.rounds,
        expected.cots,
        [prompts * llms[0].pool.prompt_tokens[rows]],
        [expected.output_tokens],
    )


def _expected_prompts(billing: str, expected: Expectation) -> Floats:
    """Billing is linear in what it counts, and every method of one LLM asks it at least once."""
    return {"once": np.ones_like(expected.rounds), "per_round": expected.rounds, "per_sample": expected.cots}[billing]


def _evaluation(
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    kind: str,
    replicates: int,
    means: _Means,
    confidence: float | None,
    resamples: int,
) -> Evaluation:
    from feval.prices import usd

    known = all(int(llm.pool.prompt_tokens[rows].min()) >= 0 for llm in llms)
    prices = [llm.price for llm in llms]
    tokens = sum(means.prompt_tokens + means.output_tokens, np.zeros(len(rows))) if known else None
    dollars = None
    if known and all(price is not None for price in prices):
        costs = zip(prices, means.prompt_tokens, means.output_tokens, strict=True)
        dollars = sum((np.asarray(usd(price, i, o)) for price, i, o in costs if price), np.zeros(len(rows)))
    keys = dataset.question_keys[rows]
    low, high = _interval(means.right, keys, confidence, resamples, llms[0].seed)
    return Evaluation(
        method=_name(method),
        fields=asdict(method) if is_dataclass(method) and not isinstance(method, type) else {},
        dataset=dataset.id,
        llms=tuple(llm.name for llm in llms),
        kind=kind,
        replicates={"exact": None, "recorded": 1, "seeded": replicates}[kind],
        seed=llms[0].seed,
        prices=llms[0].prices.id if llms[0].prices is not None else None,
        billing=llms[0].billing,
        counters=tuple(llm.counter for llm in llms),
        recording_hashes=dataset.recording_hashes,
        question_ids=[dataset.question_ids[row] for row in rows.tolist()],
        question_keys=keys,
        right=means.right,
        no_answer=means.no_answer,
        calls=means.calls,
        samples=means.samples,
        tokens=tokens,
        usd=dollars,
        accuracy_low=low,
        accuracy_high=high,
        confidence=confidence,
        resamples=None if confidence is None else resamples,
    )


def _interval(
    right: Floats, keys: npt.NDArray[np.uint64], confidence: float | None, resamples: int, seed: int
) -> tuple[float | None, float | None]:
    """Questions are resampled in the order of their keys, so that their order in the recording makes no difference."""
    if confidence is None:
        return None, None
    from feval.estimators.bootstrap import bootstrap_interval

    in_order = right[np.argsort(keys, kind="stable"), None]
    interval = bootstrap_interval(in_order, confidence=confidence, resamples=resamples, seed=seed % (1 << 64))
    return float(interval.low[0]), float(interval.high[0])


def _name(method: object) -> str:
    from feval.methods import method_name

    return method_name(method)
