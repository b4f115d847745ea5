"""What a method comes to on questions: its expectation over all draws, or the mean over recorded or
seeded ones, in one process or several.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from feval import evaluation, executors, methods
from feval.cards.billing import PICODOLLARS, billing_rule, usd
from feval.errors import (
    NotARecordingError,
    NotExactError,
    NotRecordedError,
    OutOfRangeError,
    UsageError,
)
from feval.estimators.arrays import Int64, Result
from feval.evaluation import TIME_LIMIT, user_methods
from feval.evaluation.measures import QuestionLedger, payer
from feval.evaluation.user_methods import MethodFile
from feval.executors import Progress, silent
from feval.methods.protocol import (
    LEDGER_FIELDS,
    BatchMethod,
    Bools,
    Decisions,
    ErrorShares,
    Floats,
    Ledger,
    Rows,
    capabilities,
    in_amounts,
    in_seconds,
)
from feval.methods.vote import split_errors
from feval.replay import LLM, without_gaps
from feval.replay.draws import MAX_REPLICATES, require_places
from feval.replay.loading import LoadRecipe
from feval.values import Record

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from feval.evaluation.measures import Columns
    from feval.evaluation.user_methods.calling import MethodAnswer
    from feval.methods.protocol import Expectation, Orders
    from feval.recording import Scores
    from feval.replay import Dataset, Pool, Timing


_MOST_REPLICATES, _LEAST_REPLICATES, _DRAWS = 100, 10, 2_000_000
# the unit of shares of errors as integers, so that 1/m is exact for m up to 16
_WHOLE = math.lcm(*range(1, 17)) << 20
# counts of a ledger that are not known, rather than 0, where a method does not give them
_LATENCY, _TIMED = {"sequential_tokens", "longest_trace_tokens"}, {"sequential_microseconds"}
_AMOUNTS = {"picodollars"}, {"cached_tokens"}

RIGHT = 1 << 60
"""Units of a right answer: sums of partial credit are whole numbers, too."""
_BITS = 32  # of a half
_WIDE = ("picodollars", "scoring_picodollars")  # kept as halves

_CHUNK_CODES = 1 << 21  # of orders at once, two bytes each
# codes of answers that no CoT gave
_OTHER, _UNCOMPARED = np.iinfo(np.int64).max, np.iinfo(np.int64).max - 1


def default_replicates(questions: int) -> int:
    """Draws of every question where nobody says how many: 100, and fewer beyond 20,000 questions,
    at least 10.

    The mean over Q questions and R draws of each has the variance (b + w / R) / Q, with b that of
    the questions' accuracies and w that of one question's draws, at most 1/4. So 2,000,000 draws,
    whatever Q is, add a standard error of sqrt(w / QR) <= 0.035 points; and with ten draws of each,
    the one that the questions have anyway grows by 5 % where w = b.
    """
    return min(_MOST_REPLICATES, max(_LEAST_REPLICATES, _DRAWS // max(questions, 1)))


class Outcome(Result):
    """What a method comes to on Q questions, as a mean over draws.

    Attributes:
        right: [Q] probability that the answer is the gold.
        error_shares: gives how wrong answers came about.
        ledger: what it consumed.
        uncompared: answers, of all draws, that nobody compared with the recorded ones.
    """

    right: Floats
    error_shares: Callable[[], ErrorShares]
    ledger: QuestionLedger
    uncompared: int = 0


def halves(values: Any, axis: Any = 0) -> Int64:
    """Return [2, ...] sums of 64-bit whole numbers, or of how right answers are: of their high
    and low halves, which stay exact however many there are; `joined` gives the sum.
    """
    if values.dtype == np.bool_:
        count: Int64 = values.sum(axis=axis) * (RIGHT >> _BITS)
        return np.stack([count, 0 * count])
    if values.dtype.kind == "f":
        values = np.rint(values * RIGHT).astype(np.int64)
    parts = values >> _BITS, values & ((1 << _BITS) - 1)
    return np.stack([part.sum(axis=axis) for part in parts])


def joined(sums: Int64) -> Floats:
    """Return the sums that `halves` gave; those of how right answers are count in `RIGHT`."""
    total: Floats = sums[0] * float(1 << _BITS) + sums[1]
    return total


class _Sums(dict[str, Int64]):
    """Sums over replicates [..., Q]: whole numbers, so that any order and any number of processes
    gives the same.

    Those of a ledger's fields are [L, Q], and so is `asked`; `right` [2, Q] and those in `_WIDE`
    [L, 2, Q] are of `halves`; `early` and `routed` count units of 1/`_WHOLE`. `unknown` are fields
    that some ledger lacked; `split` is whether errors were split, everywhere.
    """

    def __init__(self, llms: int, questions: int) -> None:
        counts: Record = dict.fromkeys(("asked", *LEDGER_FIELDS), (llms,))
        counts |= {"longest_trace_tokens": (1,), "right": (2,)} | dict.fromkeys(_WIDE, (llms, 2))
        counts |= dict.fromkeys(("none", "early", "routed", "uncompared"), ())
        super().__init__({name: np.zeros((*n, questions), np.int64) for name, n in counts.items()})
        self.unknown: set[str] = set()
        self.split = True

    def put(self, block: slice, part: _Sums) -> None:
        """Take over the sums of a block of questions."""
        for name, sums in self.items():
            sums[..., block] = part[name]
        self.split &= part.split
        self.unknown |= part.unknown

    def add(self, decisions: Decisions, right: Bools | Floats) -> None:
        """Count some replicates, from their decisions and how right these are [R, Q]."""
        self["right"] += halves(right)
        self["none"] += (decisions.answer < 0).sum(axis=0)
        for llm, ledger in enumerate(decisions.ledgers):
            self["asked"][llm] += (ledger.rounds > 0).sum(axis=0)
            for name in LEDGER_FIELDS:
                if (counts := getattr(ledger, name)) is None:
                    self.unknown |= next(
                        (own for own in (_LATENCY, _TIMED, *_AMOUNTS) if name in own), set()
                    )
                elif name in _WIDE:
                    self[name][llm] += halves(counts)
                elif name != "longest_trace_tokens":
                    self[name][llm] += counts.sum(axis=0, dtype=np.int64)
        if self.unknown.isdisjoint(_LATENCY):
            longest: Any = [ledger.longest_trace_tokens for ledger in decisions.ledgers]
            self["longest_trace_tokens"] += np.maximum.reduce(longest).sum(axis=0, dtype=np.int64)

    def outcome(
        self, replicates: int, llms: Sequence[LLM], rows: Rows, timing: Timing | None
    ) -> Outcome:
        """The means over so many replicates."""
        unit = replicates * _WHOLE
        split = (self["early"] / unit, self["routed"] / unit) if self.split else (None, None)
        shares = ErrorShares(_compact(self["none"] / replicates), *map(_compact, split))
        counts: Record = {
            name: None
            if name in self.unknown
            else [_compact(joined(own) if own.ndim > 1 else own) for own in self[name]]
            for name in ("asked", *LEDGER_FIELDS)
        }
        ledger = _ledger(llms, rows, counts, timing, replicates)
        right = joined(self["right"]) / (replicates * RIGHT)
        return Outcome(right, lambda: shares, ledger, int(self["uncompared"].sum()))


def together(outcomes: Sequence[Outcome], places: Rows) -> Outcome:
    """The outcome on all questions from those on parts of them, which say where each is."""
    if len(outcomes) == 1:
        return outcomes[0]
    back, first = np.argsort(places), outcomes[0].ledger

    def whole(parts: Sequence[Any]) -> Any:
        known = all(part is not None for part in parts)
        return np.concatenate(parts, axis=-1)[..., back] if known else None

    def count(name: str) -> Columns | None:
        counted: Columns | None = whole([each.ledger.count(name) for each in outcomes])
        return counted

    def error_shares() -> ErrorShares:
        shares = [each.error_shares() for each in outcomes]
        names = "no_answer", "stopped_early", "routed_wrong"
        return ErrorShares(*(whole([getattr(each, name) for each in shares]) for name in names))

    prompts = whole([each.ledger.prompt_tokens for each in outcomes])
    counts = {name: partial(count, name) for name in first.counts}
    ledger = QuestionLedger(first.payers, prompts, counts, first.draws, first.timing)
    right = whole([each.right for each in outcomes])
    return Outcome(right, error_shares, ledger, sum(each.uncompared for each in outcomes))


def _compact(column: Any) -> Any:
    """The same column; one that is the same everywhere takes the memory of one number."""
    if column is None or not (column == column[0]).all():
        return column
    return np.broadcast_to(column[0].copy(), column.shape)


def _ledger(
    llms: Sequence[LLM], rows: Rows, counts: Any, timing: Timing | None, draws: int = 1
) -> QuestionLedger:
    prompt_tokens = [llm.pool.prompt_tokens[without_gaps(rows)] for llm in llms]
    return QuestionLedger([*map(payer, llms)], prompt_tokens, counts, draws, timing)


def expectation(
    method: Any, dataset: Dataset, llms: Sequence[LLM], rows: Rows, timing: Timing | None = None
) -> Outcome:
    """What a method with an exact form (`feval.methods.protocol.ExactMethod`) comes to over all
    draws; of several LLMs, what the oracle or a router does.

    Recorded seconds are those of rounds whose CoTs are generated all at once.
    """
    draws, several, places = method.draws(len(llms)), len(llms) > 1, without_gaps(rows)
    for llm, n in zip(llms, draws, strict=True) if not capabilities(method).searches else ():
        llm.require(rows, n)
    judges = evaluation.judged(method, dataset, llms, rows) if dataset.rightness else None
    gold, costs = dataset.gold[places], _call_costs(method, dataset, llms, rows) if several else []

    def taken() -> list[Pool]:
        return [llm.pool.rows(rows) for llm in llms]

    def exact(pools: Sequence[Pool]) -> list[Expectation]:
        if several:
            right: Any = judges and judges.right
            right = right or [(own.codes == gold[:, None]) & (gold[:, None] >= 0) for own in pools]
            found: list[Expectation] = method.among(pools, right, costs)
            return found
        [pool] = pools
        return [judges.expectation(method, pool) if judges else method.exact(pool, gold)]

    def latency(pools: Sequence[Pool], found: Sequence[Expectation]) -> Columns | None:
        """[Q] expected sequential tokens, where they are known."""
        tokens = found[0].sequential_tokens
        if tokens is None and capabilities(method).exact_latency and not several:
            tokens = method.exact_sequential_tokens(pools[0])
        return None if tokens is None else [tokens]

    expected = exact(taken())
    right = np.sum([own.right for own in expected], axis=0)

    def draw(places: Rows, replicates: int) -> Iterator[Orders]:
        return drawn_orders(llms[0], "seeded", replicates, draws[0], rows[places])

    # The pool is taken anew below: it would otherwise stay in memory as long as the evaluation.
    @cache
    def error_shares() -> ErrorShares:
        if judges is not None or several or not capabilities(method).exact_errors:
            return ErrorShares()
        shares: ErrorShares = method.exact_errors(*taken(), gold, right, draw)
        return shares

    def microseconds() -> Columns | None:
        if timing is None or timing.at_once is not None or several:
            return None
        pools = [in_seconds(method, pool.clocked()) for pool in taken()]
        known = expected[0].sequential_tokens is not None
        return latency(pools, exact(pools) if known else expected)

    counts: Record = {
        name: [getattr(own, name) for own in expected]
        for name in LEDGER_FIELDS
        if getattr(expected[0], name, None) is not None
    }
    # every method of one LLM asks it at least once, every other one at most once
    counts["asked"] = [_compact(np.minimum(own, 1.0)) for own in counts["rounds"]]
    counts["longest_trace_tokens"] = counts["picodollars"] = counts["cached_tokens"] = None
    counts["sequential_tokens"] = lambda: latency(taken(), expected)
    counts["sequential_microseconds"] = microseconds
    for name, source, pools in _in_units(method, llms, taken()):
        own = exact(pools)
        in_turn = source == "sequential_tokens" and not several
        counts[name] = latency(pools, own) if in_turn else [each.output_tokens for each in own]
    if not several and (first := _first_cots(method, llms)) is not None:
        counts["first_cots"] = [np.broadcast_to(float(own), right.shape) for own in first]
    ledger = _ledger(llms, rows, counts, None if several else timing)
    known = int(ledger.prompt_tokens[0].min()) >= 0 and not several
    if known and billing_rule(llms[0].billing).cache != "none" and ledger.billed() is None:
        raise NotExactError(
            f"No expectation of what a cache holds is known for {methods.method_name(method)}."
        )
    return Outcome(right, error_shares, ledger)


def _call_costs(method: Any, dataset: Dataset, llms: Sequence[LLM], rows: Rows) -> Any:
    """Of each LLM, [Q] what a method's calls cost, in the first unit that is known of all."""
    calls = methods.CallMeasure(method.n)
    alone = [expectation(calls, dataset, [llm], rows).ledger for llm in llms]
    names = "usd", "tokens", "generated_tokens", "samples"
    columns: Any = ([ledger.column(name) for ledger in alone] for name in names)
    return next(each for each in columns if all(own is not None for own in each))


def drawn_orders(
    llm: LLM,
    order: str,
    replicates: int,
    draws: int,
    rows: Rows | None = None,
    *,
    chunk: int | None = None,
) -> Iterator[Orders]:
    """Yield the draws [R, Q, draws] of an LLM, some replicates (`chunk`) at a time so that memory
    stays bounded.

    The order is "recorded" (one replicate) or "seeded"; `OutOfRangeError` for more than
    `MAX_REPLICATES`.
    """
    questions = len(llm.pool.sizes) if rows is None else len(rows)
    if order == "recorded":
        require_places(draws)
        yield np.broadcast_to(np.arange(draws, dtype=np.uint16), (1, questions, draws))
        return
    if replicates > MAX_REPLICATES:
        raise OutOfRangeError(
            f"{replicates:,} replicates were asked for; {MAX_REPLICATES:,} is the most. Where a"
            " method has an exact expectation, use that instead: --order exact."
        )
    size = chunk or _replicates_at_once(questions, [draws])
    for start in range(0, replicates, size):
        yield llm.orders(range(start, min(start + size, replicates)), draws, rows)


def _replicates_at_once(questions: int, draws: Sequence[int]) -> int:
    return max(1, _CHUNK_CODES // max(questions * max(draws), 1))


def _needed(method: BatchMethod, llms: Sequence[LLM], rows: Rows | None) -> Sequence[int]:
    """How many draws of each LLM a method is handed; there are as many CoTs. A search is handed all
    steps.
    """
    if capabilities(method).searches:
        return [llm.pool.steps().parents.shape[1] for llm in llms]
    needed = method.draws(len(llms))
    for llm, draws in zip(llms, needed, strict=True):
        llm.require(rows, draws)
    return needed


def _pools_and_orders(
    method: BatchMethod, llms: Sequence[LLM], order: str, replicates: int, rows: Rows | None
) -> tuple[list[Pool], Iterator[tuple[Orders, ...]]]:
    """The pools of some questions, and the orders of some replicates at a time."""
    needed = _needed(method, llms, rows)
    pools = [llm.pool if rows is None else llm.pool.rows(rows) for llm in llms]
    chunk = _replicates_at_once(len(pools[0].sizes), needed)
    each = (
        drawn_orders(llm, order, replicates, n, rows, chunk=chunk)
        for llm, n in zip(llms, needed, strict=True)
    )
    return pools, zip(*each, strict=True)


def decisions(
    method: BatchMethod,
    llms: Sequence[LLM],
    *,
    order: str,
    replicates: int = 1,
    rows: Rows | None = None,
) -> Iterator[Decisions]:
    """Yield the decisions [R', Q] of a method with a batch form, some replicates at a time; see
    `drawn_orders`.
    """
    pools, batches = _pools_and_orders(method, llms, order, replicates, rows)
    for orders in batches:
        yield method.decide(pools, orders)


def method_answers(
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    replicate: int | None,
    time_limit: float | None = TIME_LIMIT,
    *,
    closely: bool = False,
) -> Iterable[MethodAnswer]:
    """The answers of a plain callable in one replicate, here or in its process; `closely`, with
    what it was handed.

    Raises:
        MethodError: the method failed; the message names it and the question.
    """
    if isinstance(method, MethodFile):
        return method.host.answers(dataset, llms, rows, replicate, time_limit, closely=closely)
    return user_methods.answers(
        method, methods.method_name(method), dataset, llms, rows, replicate, closely=closely
    )


def called(
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    replicate: int | None,
    time_limit: float | None = TIME_LIMIT,
) -> Decisions:
    """The decisions [1, Q] of a plain callable in one replicate; an answer that no CoT gave has a
    code beyond all candidates.

    Raises:
        MethodError: the method failed; the message names it and the question.
    """
    answer, said = np.empty((1, len(rows)), np.int64), []
    ledgers = np.empty((len(llms), len(LEDGER_FIELDS), 1, len(rows)), np.int64)
    outcomes = method_answers(method, dataset, llms, rows, replicate, time_limit)
    for place, (row, outcome) in enumerate(zip(rows.tolist(), outcomes, strict=True)):
        answer[0, place] = _code(outcome.answer, dataset, row)
        said.append(outcome.answer)
        ledgers[:, :, 0, place] = outcome.ledgers
    return Decisions(answer, tuple(Ledger(*ledger) for ledger in ledgers), said=said)


def _code(answer: str | None, dataset: Dataset, row: int) -> int:
    """The code of a method's answer, in whatever spelling; an answer that no CoT gave has its own
    code, which is never right.
    """
    key = dataset.answer_key(row, answer)
    if key is None:
        return -1
    candidates = dataset.candidates(row)
    if key in candidates:
        return candidates.index(key)
    return _UNCOMPARED if dataset.is_uncompared(row, key) else _OTHER


class Drawing(NamedTuple):
    """Which draws a method decides on: the order, "seeded" or "recorded", and the number of
    replicates; seconds for a question of a method from a file; and `timing`, which asks for
    seconds.
    """

    order: str
    replicates: int
    time_limit: float | None = TIME_LIMIT
    timing: Timing | None = None


def replicated(
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    drawing: Drawing,
    executor: Executor | None = None,
    progress: Progress = silent,
) -> Outcome:
    """What a method, with a batch form or any callable, comes to on some questions, here or on an
    executor.

    `progress` is called with (questions done, questions in all).
    """
    timing, whole = drawing.timing, False
    replayed = None if timing is None or timing.profile is not None else timing
    work = partial(_block_sums, drawing=drawing._replace(timing=replayed))
    if isinstance(method, BatchMethod):
        _needed(method, llms, rows)  # so that the message does not depend on the blocks
        whole = capabilities(method).whole_set
    if whole:
        sums = work(method, dataset, llms, rows)
    else:
        sums = _Sums(len(llms), len(rows))
        for block, part in block_results(work, method, dataset, llms, rows, executor):
            sums.put(block, part)
            progress(block.stop, len(rows))
    draws = 1 if drawing.order == "recorded" else drawing.replicates
    return sums.outcome(draws, llms, rows, timing)


def _block_sums(
    method: Any, dataset: Dataset, llms: Sequence[LLM], rows: Rows, drawing: Drawing
) -> _Sums:
    gold = dataset.gold[rows]
    sums = _Sums(len(llms), len(rows))
    is_batch = isinstance(method, BatchMethod)
    plain = not dataset.rightness or evaluation.judged(method, dataset, llms, rows) is None
    sums.split = is_batch and plain and not capabilities(method).searches
    first = _first_cots(method, llms) if is_batch else [0]
    if first is None:
        sums.unknown.add("first_cots")
    if not is_batch:
        # a meter without a clock counts 0
        sums.unknown |= _TIMED if drawing.timing is None else set()
        sums.unknown |= set.union(*_AMOUNTS) - {*llms[0].stated}
    for batch, right, pools, orders in judged_batches(method, dataset, llms, rows, drawing):
        sums.add(batch, right)
        sums["uncompared"] += (batch.answer == _UNCOMPARED).sum(axis=0)
        if sums.split and any(
            (ledger.cots < own.shape[2]).any()
            for ledger, own in zip(batch.ledgers, orders, strict=True)
        ):
            for name, part in zip(
                ("early", "routed"), split_errors(batch, right, gold, pools, orders), strict=True
            ):
                sums[name] += np.rint(part * _WHOLE).astype(np.int64).sum(axis=0)
    if is_batch and first is not None:
        sums["first_cots"] += sums["asked"] * np.array(first)[:, None]
    return sums


class Batch(NamedTuple):
    """Decisions of some replicates, how right they are [R, Q], and the pools and orders that they
    were made on; none for a callable.
    """

    decisions: Decisions
    right: Any
    pools: Sequence[Pool] = ()
    orders: Sequence[Orders] = ()


def judged_batches(
    method: Any, dataset: Dataset, llms: Sequence[LLM], rows: Rows, drawing: Drawing
) -> Iterator[Batch]:
    """Yield what a method decides on some questions, some replicates at a time."""
    order, replicates, time_limit, timing = drawing
    gold = dataset.gold[rows]
    judges = evaluation.judged(method, dataset, llms, rows) if dataset.rightness else None
    if not isinstance(method, BatchMethod):
        if timing is not None:
            llms = [llm.clocked(timing.at_once) for llm in llms]
        if llms[0].stated:
            llms = [llm.stating() for llm in llms]
        for replicate in range(replicates) if order == "seeded" else [None]:
            batch = called(method, dataset, llms, rows, replicate, time_limit)
            right: Bools | Floats = (batch.answer == gold) & (gold >= 0)
            if judges is not None:
                most = max(int(ledger.cots.max(initial=1)) for ledger in batch.ledgers)
                taken = [
                    next(drawn_orders(llm, order, 1, most, rows))
                    if replicate is None
                    else llm.orders(range(replicate, replicate + 1), most, rows)
                    for llm in llms
                ]
                pools = [llm.pool.rows(rows) for llm in llms]
                if any(pool.channels.has_steps for pool in pools):
                    # which steps a callable took is not known: its answer is as right as its party
                    nobody = np.full((1, len(rows), 1), -1)
                    batch = replace(batch, members=nobody)
                right = judges.of_decisions(method, batch, pools, taken)
            yield Batch(batch, right)
        return
    pools, batches = _pools_and_orders(method, llms, order, replicates, rows)
    if judges is not None and capabilities(method).chooses:
        pools = judges.apart(pools)
    others = list(_in_units(method, llms, pools))
    if timing is not None:
        clocked = [in_seconds(method, pool.clocked(timing.at_once)) for pool in pools]
        others.append(("sequential_microseconds", "sequential_tokens", clocked))
    for orders in batches:
        batch = method.decide(pools, orders)
        for name, source, others_pools in others:
            replay = method.decide(others_pools, orders)
            batch = _replayed(method, batch, name, source, replay)
        right = (batch.answer == gold) & (gold >= 0)
        if judges is not None:
            right = judges.of_decisions(method, batch, pools, orders)
        yield Batch(batch, right, pools, orders)


class Draws(Result):
    """What a method answered, draw by draw.

    Attributes:
        answer: [R, Q] texts: canonical, but as it gave them where the method is a callable; `None`
            for no answer.
        right: [R, Q] how right they are, from 0 to 1.
    """

    answer: np.ndarray[Any, Any]
    right: Floats


def draws(
    method: Any, dataset: Dataset, llms: Sequence[LLM], rows: Rows, drawing: Drawing
) -> Draws:
    """What a method answered to some questions."""
    answers, right = [], []
    for batch in judged_batches(method, dataset, llms, rows, drawing):
        codes, said = batch.decisions.answer, batch.decisions.said
        answer = np.array([said], object) if said else np.empty(codes.shape, object)
        own = [llm.pool.rows(rows).codes for llm in llms]
        if batch.pools and not np.array_equal(batch.pools[0].codes, own[0]):  # of CoTs set apart
            every = np.concatenate(own, axis=1)
            codes = np.where(codes < 0, -1, every[np.arange(len(rows)), np.maximum(codes, 0)])
        for place, row in enumerate(rows.tolist() if not said else ()):
            answer[:, place] = llms[0].answer_texts(row, codes[:, place].tolist())
        answers.append(answer)
        right.append(batch.right.astype(np.float64))
    return Draws(np.concatenate(answers), np.concatenate(right))


def _in_units(
    method: Any, llms: Sequence[LLM], pools: Sequence[Pool]
) -> Iterator[tuple[str, str, list[Pool]]]:
    """Yield each count beside tokens that costs rest on, the field that has it where the same is
    decided on other pools, and these pools.
    """
    per_round = billing_rule(llms[0].billing).prompts == "per_round"
    for name in llms[0].stated:
        # of a request, the most that one of its replies states
        at_once = name == "cached_tokens" and per_round
        source = "sequential_tokens" if at_once else "output_tokens"
        yield name, source, [in_amounts(method, pool, name) for pool in pools]
    costs = scoring_costs(method, llms, pools)
    if costs is not None:
        scored = [replace(pool, output_tokens=own) for pool, own in zip(pools, costs, strict=True)]
        yield "scoring_picodollars", "output_tokens", scored


def _first_cots(method: Any, llms: Sequence[LLM]) -> Sequence[int] | None:
    """CoTs of the first request to each LLM that is asked; `None` where they differ."""
    if capabilities(method).searches:
        return None
    first: Sequence[int] | None = getattr(method, "first_request", method.draws)(len(llms))
    return first


def scores_read(method: Any, pools: Sequence[Pool]) -> list[Scores | None]:
    """The scores of each LLM that a method reads, `None` for none; empty where it bills them."""
    reads_scores = hasattr(method, "ratings") and hasattr(method, "scorer")
    if not reads_scores or capabilities(method).bills_scores:
        return []
    return [
        None if ratings is None else pool.scores(method.scorer)
        for pool, ratings in zip(pools, method.ratings(pools), strict=True)
    ]


def scoring_costs(method: Any, llms: Sequence[LLM], pools: Sequence[Pool]) -> list[Int64] | None:
    """[Q, S] of each LLM what scoring its CoTs took, in 1e-12 USD, where a method reads the scores;
    `None` where nobody pays for them, or nobody knows.

    Raises:
        NotRecordedError: recorded costs were asked for, and some are not known; or the costs of
            some scores are, and not of others.
    """
    rule = billing_rule(llms[0].billing).scorers
    read = [] if rule == "none" else scores_read(method, pools)
    if all(scores is None for scores in read):
        return None
    costs = []
    for llm, pool, scores in zip(llms, pools, read, strict=True):
        if scores is None:
            costs.append(np.zeros(pool.codes.shape, np.int64))
            continue
        model, known = str(scores.scorer.parameters.get("model")), scores.scored
        price = None if llm.prices is None else llm.prices.find(model)
        if rule in {"", "recorded"}:
            tokens = scores.prompt_tokens, scores.output_tokens
            known = known & (tokens[0] >= 0) & (tokens[1] >= 0) & (price is not None)
        if (scores.scored & ~known).any():
            if rule or known.any():
                raise NotRecordedError(
                    f"What {(scores.scored & ~known).sum():,} of {scores.scored.sum():,} scores of"
                    f" {pool.llm} by {scores.scorer.name!r} cost is not known: no tokens were"
                    " recorded, or the price list has no price of its model"
                    f" ({model}). Say what a score costs, in USD: --scorer-cost 0.001, or none."
                )
            return None
        each = float(rule) if price is None or rule not in {"", "recorded"} else usd(price, *tokens)
        costs.append(np.rint(np.where(known, each, 0.0) * PICODOLLARS).astype(np.int64))
    return costs


def _replayed(
    method: Any, decisions: Decisions, name: str, source: str, replay: Decisions
) -> Decisions:
    """The decisions with a field of their ledgers, from the field that has it where the same is
    decided on pools in its unit.
    """
    pairs = list(zip(decisions.ledgers, replay.ledgers, strict=True))
    same = all(
        np.array_equal(one.cots, other.cots) and np.array_equal(one.rounds, other.rounds)
        for one, other in pairs
    )
    if not same or not np.array_equal(decisions.answer, replay.answer):
        raise UsageError(
            f"{methods.method_name(method)} decides by how many tokens its CoTs have, so that its"
            " seconds, recorded USD, cached tokens and costs of scores cannot be replayed; take a"
            " serving profile (`serving`), a price list (`prices`) or scorer_cost='none'."
        )
    ledgers = (replace(one, **{name: getattr(other, source)}) for one, other in pairs)
    return replace(decisions, ledgers=tuple(ledgers))


_T = TypeVar("_T")
Work = Callable[[Any, "Dataset", Sequence["LLM"], Rows], _T]
"""(method, dataset, LLMs, rows) -> a result for these questions, which must not depend on the
others.
"""

_QUESTIONS = 1 << 12  # worked on at once
_TASK_SECONDS = 0.5  # the least; an empty task of a cluster takes a few milliseconds
_TRIAL_SECONDS = 0.1  # in this process, to see how long a question takes
# a worker may have several threads, and loading hides warnings from all of them
_LOADING = threading.Lock()


def block_results(
    work: Work[_T],
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    executor: Executor | None = None,
) -> Iterator[tuple[slice, _T]]:
    """Yield results for blocks of questions with the places of their rows, in order.

    A method that is not a batch method gets all its questions at once in this process: its batches
    do not grow.

    Raises:
        UsageError: the method cannot be sent to another process: one defined inside a function, for
            example.
    """
    if executor is not None:
        yield from _shared(work, method, dataset, llms, rows, executor)
        return
    for block in _cut(
        0, len(rows), _QUESTIONS if isinstance(method, BatchMethod) else max(len(rows), 1)
    ):
        yield block, work(method, dataset, llms, rows[block])


def _cut(start: int, stop: int, size: int) -> Iterator[slice]:
    return (slice(place, min(place + size, stop)) for place in range(start, stop, size))


def _shared(
    work: Work[_T],
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    executor: Executor,
) -> Iterator[tuple[slice, _T]]:
    """Work on a few questions here, ever more until that takes a while, and share the others in
    tasks of half a second.
    """
    executors.require_portable(method)
    block, seconds = slice(0, 0), 0.0
    while block.stop < len(rows) and seconds < _TRIAL_SECONDS:
        size = min(4 * (block.stop - block.start) or 1, _QUESTIONS, len(rows) - block.stop)
        block = slice(block.stop, block.stop + size)
        began = time.perf_counter()
        result = work(method, dataset, llms, rows[block])
        seconds = time.perf_counter() - began
        yield block, result
    questions = math.ceil(_TASK_SECONDS / max(seconds, 1e-9) * (block.stop - block.start))
    recipe, cuts = LoadRecipe.from_loaded(dataset, llms), [*_cut(block.stop, len(rows), questions)]
    tasks = ((work, method, recipe, without_gaps(rows[cut])) for cut in cuts)
    for cut, results in zip(cuts, executors.results(question_block, tasks, executor), strict=True):
        for part, result in results:
            yield slice(cut.start + part.start, cut.start + part.stop), result


def question_block(
    work: Work[_T], method: Any, recipe: LoadRecipe, rows: Rows | slice
) -> list[tuple[slice, _T]]:
    """Work on a block of questions in a process that opens the recordings itself: a task."""
    dataset, llms = loaded(recipe)
    return list(block_results(work, _running(method), dataset, llms, with_numbers(rows)))


def with_numbers(rows: Rows | slice) -> Rows:
    """Return the rows that `without_gaps` made a slice of, which is sent in a few bytes."""
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def loaded(recipe: LoadRecipe) -> tuple[Dataset, list[LLM]]:
    """Return what a recipe loads in this process, once for the tasks of a run."""
    with _LOADING:
        return _loaded(recipe)


@lru_cache(maxsize=4)
def _loaded(recipe: LoadRecipe) -> tuple[Dataset, list[LLM]]:
    try:
        return recipe.load()
    except NotARecordingError as error:
        raise NotARecordingError(
            f"A worker cannot open the recording: {error} Workers read it from the same path, or"
            " from the Hub (hf://)."
        ) from error


_files = threading.local()  # method: the last MethodFile of this thread


def _running(method: Any) -> Any:
    """Return the equal method whose process runs already in this thread, if there is one."""
    if not isinstance(method, MethodFile):
        return method
    last: MethodFile | None = getattr(_files, "method", None)
    if last is None or (last, last.source) != (method, method.source):
        _files.method = method
    return _files.method
