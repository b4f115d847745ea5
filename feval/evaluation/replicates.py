"""Run methods on draws: recorded or seeded ones, some replicates at a time, in one process or
several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from feval import methods
from feval.errors import OutOfRangeError, UsageError
from feval.evaluation.blocks import block_results
from feval.evaluation.means import ReplicateSums
from feval.evaluation.user_methods import TIME_LIMIT, MethodAnswer, MethodFile, answers
from feval.methods.arrays import Rows
from feval.methods.decisions import LEDGER_FIELDS, Decisions, Ledger
from feval.methods.error_shares import split_errors
from feval.methods.protocol import BatchMethod, in_seconds, searches
from feval.replay import LLM
from feval.replay.draws import MAX_REPLICATES, require_places

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from feval.methods.decisions import Orders
    from feval.replay import Dataset
    from feval.replay.clock import Timing
    from feval.replay.pools import Pool


_CHUNK_CODES = 1 << 21  # of orders at once, two bytes each
# codes of answers that no CoT gave
_OTHER, _UNCOMPARED = np.iinfo(np.int64).max, np.iinfo(np.int64).max - 1


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
            " method has an exact expectation, use that instead (--order exact)."
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
    if searches(method):
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
    if (
        rows is not None
        and len(rows) == len(llms[0].pool.sizes)
        and bool((np.diff(rows) == 1).all())
    ):
        rows = None
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
) -> Iterator[MethodAnswer]:
    """The answers of a plain callable in one replicate, here or in its process; `closely`, with
    what it was handed.

    Raises:
        MethodError: the method failed; the message names it and the question.
    """
    if isinstance(method, MethodFile):
        return method.answers(dataset, llms, rows, replicate, time_limit, closely=closely)
    return answers(
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
    answer = np.empty((1, len(rows)), np.int64)
    ledgers = np.empty((len(llms), len(LEDGER_FIELDS), 1, len(rows)), np.int64)
    outcomes = method_answers(method, dataset, llms, rows, replicate, time_limit)
    for place, (row, outcome) in enumerate(zip(rows.tolist(), outcomes, strict=True)):
        answer[0, place] = _code(outcome.answer, dataset, row)
        ledgers[:, :, 0, place] = outcome.ledgers
    return Decisions(answer, tuple(Ledger(*ledger) for ledger in ledgers))


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


def replicate_sums(
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    *,
    order: str,
    replicates: int,
    time_limit: float | None,
    timing: Timing | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> ReplicateSums:
    """Run a method, with a batch form or any callable, over some questions, here or on an executor,
    and count what happens.

    `timing` asks for seconds of recorded replies, too. `progress` is called with (questions done,
    questions in all).
    """
    work = partial(
        _block_sums, order=order, replicates=replicates, time_limit=time_limit, timing=timing
    )
    if isinstance(method, BatchMethod):
        _needed(method, llms, rows)  # so that the message does not depend on the blocks
        if getattr(method, "whole_set", False):
            return work(method, dataset, llms, rows)
    sums = ReplicateSums.zeros(len(llms), len(rows))
    for block, part in block_results(work, method, dataset, llms, rows, executor):
        sums.put(block, part)
        progress(block.stop, len(rows))
    return sums


def _block_sums(
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    *,
    order: str,
    replicates: int,
    time_limit: float | None,
    timing: Timing | None,
) -> ReplicateSums:
    gold = dataset.gold[rows]
    sums = ReplicateSums.zeros(len(llms), len(rows))
    if not isinstance(method, BatchMethod):
        if timing is not None:
            llms = [llm.clocked(timing.at_once) for llm in llms]
        for replicate in range(replicates) if order == "seeded" else [None]:
            batch = called(method, dataset, llms, rows, replicate, time_limit)
            sums.add(batch, (batch.answer == gold) & (gold >= 0), llms[0].billing)
            sums.uncompared += batch.answer[0] == _UNCOMPARED
        sums.timed = timing is not None
        return sums
    sums.split = not searches(method)
    pools, batches = _pools_and_orders(method, llms, order, replicates, rows)
    clocked = (
        None
        if timing is None
        else [in_seconds(method, pool.clocked(timing.at_once)) for pool in pools]
    )
    for orders in batches:
        batch = method.decide(pools, orders)
        if clocked is not None:
            batch = _with_microseconds(method, batch, method.decide(clocked, orders))
        right = (batch.answer == gold) & (gold >= 0)
        sums.add(batch, right, llms[0].billing)
        if sums.split and any(
            (ledger.cots < order.shape[2]).any()
            for ledger, order in zip(batch.ledgers, orders, strict=True)
        ):
            sums.add_errors(*split_errors(batch, right, gold, pools, orders))
    return sums


def _with_microseconds(method: Any, decisions: Decisions, timed: Decisions) -> Decisions:
    """The decisions with the microseconds that the same decisions took on pools in microseconds."""
    pairs = list(zip(decisions.ledgers, timed.ledgers, strict=True))
    same = all(
        np.array_equal(one.cots, other.cots) and np.array_equal(one.rounds, other.rounds)
        for one, other in pairs
    )
    if not same or not np.array_equal(decisions.answer, timed.answer):
        raise UsageError(
            f"{methods.method_name(method)} decides by how many tokens its CoTs have, so that its"
            " seconds cannot be replayed; model them with a serving profile (--serving)."
        )
    ledgers = (
        replace(one, sequential_microseconds=other.sequential_tokens) for one, other in pairs
    )
    return replace(decisions, ledgers=tuple(ledgers))
