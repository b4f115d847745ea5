"""The expectation of a method over all draws without replacement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from feval.estimators.cost import mean_output_tokens
from feval.methods.arrays import Floats

if TYPE_CHECKING:
    from feval.replay.pools import Pool


@dataclass(frozen=True, eq=False)
class Expectation:
    """Means over all draws, of a method of one LLM on Q questions.

    Attributes:
        right: [Q] probability that the answer is the gold; leaders that tie win equally often unless the method says otherwise.
        rounds: [Q] expected number of requests.
        cots: [Q] expected number of CoTs.
        output_tokens: [Q] expected output tokens of those.
    """

    right: Floats
    rounds: Floats
    cots: Floats
    output_tokens: Floats

    @classmethod
    def of_one_request(cls, right: Floats, cots: int, pool: Pool) -> Expectation:
        """For a method that always draws so many CoTs in one request."""
        tokens = mean_output_tokens(pool.output_tokens, pool.sizes)
        tokens *= cots
        return cls(right, np.broadcast_to(1.0, right.shape), np.broadcast_to(float(cots), right.shape), tokens)
