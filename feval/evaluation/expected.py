"""Means per question over all draws, from a method's own expectation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from feval.evaluation.means import QuestionMeans
from feval.evaluation.replicates import drawn_orders
from feval.methods.arrays import Floats, Rows
from feval.methods.error_shares import ErrorShares
from feval.methods.protocol import has_exact_errors, has_exact_latency, in_seconds, searches
from feval.replay.pools import without_gaps

if TYPE_CHECKING:
    from feval.methods.decisions import Orders
    from feval.methods.expectation import Expectation
    from feval.replay import LLM, Dataset
    from feval.replay.pools import Pool


def exact_means(
    method: Any, dataset: Dataset, llms: Sequence[LLM], rows: Rows, *, timed: bool = False
) -> QuestionMeans:
    """The means over all draws, of a method with an exact form
    (`feval.methods.protocol.ExactMethod`).

    `timed` gives seconds, too, from recorded durations with all CoTs of a round at once.
    """
    [draws] = method.draws(len(llms))
    [llm] = llms
    if not searches(method):
        llm.require(rows, draws)
    places = without_gaps(rows)
    expected = method.exact(llm.pool.rows(rows), dataset.gold[places])
    right, rounds = expected.right, expected.rounds
    prompts = _expected_prompts(llm.billing, expected)
    beyond = 0 if expected.auxiliary_prompt_tokens is None else expected.auxiliary_prompt_tokens
    billed = per_round = [prompts * llm.pool.prompt_tokens[places] + beyond]
    if not np.array_equal(prompts, rounds):
        per_round = [rounds * llm.pool.prompt_tokens[places] + beyond]

    def draw(places: Rows, replicates: int) -> Iterator[Orders]:
        return drawn_orders(llm, "seeded", replicates, draws, rows[places])

    @cache
    def error_shares() -> ErrorShares:
        if not has_exact_errors(method):
            return ErrorShares()
        # The pool is taken anew: it would otherwise stay in memory as long as the evaluation.
        shares: ErrorShares = method.exact_errors(
            llm.pool.rows(rows), dataset.gold[places], right, draw
        )
        return shares

    @cache
    def sequential_tokens() -> Floats | None:
        return _latency(method, llm.pool.rows(rows), expected)

    def by_llm() -> list[Floats] | None:
        tokens = sequential_tokens()
        return None if tokens is None else [tokens]

    @cache
    def seconds() -> Floats | None:
        if not timed:
            return None
        pool = in_seconds(method, llm.pool.rows(rows).clocked())
        known = expected.sequential_tokens is not None
        microseconds = _latency(
            method, pool, method.exact(pool, dataset.gold[places]) if known else expected
        )
        return None if microseconds is None else microseconds / 1e6

    none = np.broadcast_to(0.0, rounds.shape)
    calls, tokens = (
        none if part is None else part for part in (expected.probe_calls, expected.probe_tokens)
    )
    return QuestionMeans(
        right,
        error_shares,
        rounds if expected.probe_calls is None else rounds + calls,
        expected.cots,
        billed,
        per_round,
        [
            (
                expected.output_tokens
                if expected.probe_tokens is None
                else expected.output_tokens + tokens
            )
        ],
        expected.output_tokens,
        sequential_tokens,
        None,
        calls,
        tokens,
        [rounds],
        by_llm,
        seconds,
    )


def _latency(method: Any, pool: Pool, expected: Expectation) -> Floats | None:
    """[Q] expected sequential tokens, where they are known."""
    if expected.sequential_tokens is not None or not has_exact_latency(method):
        return expected.sequential_tokens
    tokens: Floats = method.exact_sequential_tokens(pool)
    return tokens


def _expected_prompts(billing: str, expected: Expectation) -> Floats:
    """[Q] expected prompts: billing is linear, and every method of one LLM asks it at least
    once.
    """
    once = np.broadcast_to(1.0, expected.rounds.shape)
    return {"once": once, "per_round": expected.rounds, "per_sample": expected.cots}[billing]
