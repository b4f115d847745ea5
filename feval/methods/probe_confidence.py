"""Exit by confidence: a trace stops when a probe is sure enough of its answer (as in DEER, Yang et
al., arXiv 2504.15895).
"""

from __future__ import annotations

import numpy as np

from feval import replay
from feval.methods.cuts import CUTS, Cuts, CutTraces
from feval.methods.fields import Count, Share, as_fraction, frozen_method
from feval.methods.protocol import Pool
from feval.methods.vote import plurality


@frozen_method
class ProbeConfidence(CutTraces):
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

    scope, most = "Exit by confidence stops traces of one LLM", "width"
    capabilities = CUTS

    threshold: Share = 0.95  # DEER's
    width: Count = 1

    def __call__(self, question: str, llm: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
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
