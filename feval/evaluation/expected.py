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
from feval.methods.protocol import has_exact_errors

if TYPE_CHECKING:
    from feval.methods.decisions import Orders
    from feval.methods.expectation import Expectation
    from feval.replay import LLM, Dataset


def exact_means(method: Any, dataset: Dataset, llms: Sequence[LLM], rows: Rows) -> QuestionMeans:
    """The means over all draws, of a method with an exact form (`feval.methods.protocol.ExactMethod`)."""
    [draws] = method.draws(len(llms))
    [llm] = llms
    llm.require(rows, draws)
    pool, gold = llm.pool.rows(rows), dataset.gold[rows]
    expected = method.exact(pool, gold)
    prompts = _expected_prompts(llm.billing, expected)

    def draw(places: Rows, replicates: int) -> Iterator[Orders]:
        return drawn_orders(llm, "seeded", replicates, draws, rows[places])

    @cache
    def error_shares() -> ErrorShares:
        if not has_exact_errors(method):
            return ErrorShares()
        shares: ErrorShares = method.exact_errors(pool, gold, expected.right, draw)
        return shares

    return QuestionMeans(
        expected.right,
        error_shares,
        expected.rounds,
        expected.cots,
        [prompts * llm.pool.prompt_tokens[rows]],
        [expected.rounds * llm.pool.prompt_tokens[rows]],
        [expected.output_tokens],
    )


def _expected_prompts(billing: str, expected: Expectation) -> Floats:
    """[Q] expected prompts: billing is linear, and every method of one LLM asks it at least once."""
    return {"once": np.ones_like(expected.rounds), "per_round": expected.rounds, "per_sample": expected.cots}[billing]
