"""Exit by confidence: a trace stops when a probe is sure enough of its answer (as in DEER, Yang et
al., arXiv 2504.15895).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from feval.methods.arrays import Floats, Integers
from feval.methods.decisions import Decisions, Orders
from feval.methods.depth.cuts import Cuts
from feval.methods.error_shares import ErrorShares
from feval.methods.expectation import Expectation
from feval.methods.fields import Count, Share, as_fraction, frozen_method
from feval.methods.protocol import DrawOrders, one_llm, require_draws, require_pool
from feval.methods.vote import plurality

if TYPE_CHECKING:
    from feval.replay.meter import MeteredLLM
    from feval.replay.pools import Pool


@frozen_method
class ProbeConfidence:
    """The plurality of traces of one LLM, each of which is probed as it grows, and stopped once a
    probe is confident enough.

    A trace stops at its first probe that has an answer with at least this confidence, votes with
    that answer, and costs what it had generated; without such a probe it votes with its final
    answer. Confidences are those that were recorded with the probes; DEER takes the geometric mean
    of the probabilities of the answer's tokens. Of tied answers the one seen first wins.

    Attributes:
        threshold: least confidence.
        width: traces per question.
    """

    cuts_cots: ClassVar[Literal[True]] = True

    threshold: Share = 0.95  # DEER's
    width: Count = 1

    def draws(self, llms: int) -> tuple[int, ...]:
        """Traces drawn from the one LLM."""
        return one_llm(self.width, llms, "Exit by confidence stops traces of one LLM")

    def __call__(self, question: str, llm: MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no trace has one."""
        traces, bar = llm.start(self.width), self._bar
        while running := [trace for trace in traces if trace.running]:
            llm.advance(running)
            for trace in running:
                confidence = trace.confidence
                if trace.probe() is not None and confidence is not None and confidence >= bar:
                    trace.stop()
        return plurality([trace.probe() for trace in traces])

    def cuts(self, pool: Pool) -> Cuts:
        """Where each recorded CoT is stopped."""
        probes = pool.probes()
        sure = (probes.recorded_confidences(pool.llm) >= self._bar) & (probes.codes >= 0)
        return Cuts.at_first(
            pool, np.insert(sure, probes.starts[1:], np.zeros(pool.codes.size, np.bool_))
        )

    @property
    def _bar(self) -> float:
        """The threshold as the 32-bit number that is nearest, since confidences are 32-bit numbers,
        too.
        """
        return float(np.float32(float(as_fraction(self.threshold))))

    def decide(self, pools: Sequence[Pool], orders: Sequence[Orders]) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        require_draws(self, pools, orders)
        return self.cuts(pools[0]).decide(self.width, orders[0])

    def exact(self, pool: Pool, gold: Integers) -> Expectation:
        """The expectation over all draws; see `ExactMethod.exact`."""
        require_pool(self, pool, self.width)
        return self.cuts(pool).expectation(self.width, gold)

    def exact_sequential_tokens(self, pool: Pool) -> Floats:
        """Expected sequential tokens; see `LatencyMethod.exact_sequential_tokens`."""
        return self.cuts(pool).sequential_tokens(self.width)

    def exact_errors(
        self,
        pool: Pool,
        gold: Integers,
        right: Floats,
        draw: DrawOrders,  # noqa: ARG002  as the protocol has it
    ) -> ErrorShares:
        """How wrong answers come about over all draws; see `ExactErrorsMethod.exact_errors`."""
        return self.cuts(pool).error_shares(self.width, gold, right)
