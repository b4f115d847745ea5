"""The expectation of a method over all draws without replacement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from feval.estimators.cost import mean_output_tokens
from feval.estimators.per_question import by_blocks
from feval.estimators.votes.best_of_n import subset_largest
from feval.methods.arrays import Floats

if TYPE_CHECKING:
    from feval.replay.pools import Pool


@dataclass(frozen=True, eq=False)
class Expectation:
    """Means over all draws, of a method of one LLM on Q questions.

    Attributes:
        right: [Q] probability that the answer is the gold; leaders that tie win equally often
            unless the method says otherwise.
        rounds: [Q] expected number of requests.
        cots: [Q] expected number of CoTs.
        output_tokens: [Q] expected output tokens of those.
        probe_calls: [Q] expected probes of traces; `None` for none anywhere.
        probe_tokens: [Q] expected output tokens of those; `None` for none.
        auxiliary_prompt_tokens: [Q] expected prompt tokens beyond the question's request; `None`
            for none.
        sequential_tokens: [Q] expected tokens one after the other, where they cost nothing more to
            compute; `None` otherwise, see `protocol.LatencyMethod`.
    """

    right: Floats
    rounds: Floats
    cots: Floats
    output_tokens: Floats
    probe_calls: Floats | None = None
    probe_tokens: Floats | None = None
    auxiliary_prompt_tokens: Floats | None = None
    sequential_tokens: Floats | None = None

    @classmethod
    def of_one_request(cls, right: Floats, cots: int, pool: Pool) -> Expectation:
        """For a method that always draws so many CoTs in one request."""
        tokens = mean_output_tokens(pool.output_tokens, pool.sizes)
        tokens *= cots
        return cls(
            right,
            np.broadcast_to(1.0, right.shape),
            np.broadcast_to(float(cots), right.shape),
            tokens,
        )


def longest_of_draws(pool: Pool, n: int) -> Floats:
    """[Q] expected tokens of the longest of n CoTs."""
    return by_blocks(
        lambda block: subset_largest(pool.output_tokens[block], pool.sizes[block], n),
        len(pool.output_tokens),
    )
