"""Answer convergence: a trace stops when its answer has been the same at several probes in a row.

For one trace, early exit by agreement of probes (Certaindex, Fu et al. 2024, arXiv 2412.20993); for
several that vote, baseline "SC + SAC" of Parallel-Probe (Zheng et al. 2026).
"""

from __future__ import annotations

import numpy as np

from feval import replay
from feval.methods.cuts import CUTS, Cuts, CutTraces, revealed
from feval.methods.fields import Count, frozen_method
from feval.methods.protocol import Pool
from feval.methods.vote import plurality


@frozen_method
class AnswerConvergence(CutTraces):
    """The plurality of traces of one LLM, each of which is probed as it grows, and stopped once its
    answer has settled.

    A trace has settled when so many consecutive answers are the same, its final one included. It
    votes with that answer and costs what it had generated; a trace that never settles votes with
    its final answer. No answer interrupts a run. Of tied answers the one seen first wins.

    Attributes:
        streak: equal answers in a row that settle a trace.
        width: traces per question.
    """

    scope, most = "Answer convergence stops traces of one LLM", "width"
    capabilities = CUTS

    streak: Count = 14
    width: Count = 1

    def __call__(self, question: str, llm: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no trace has one."""
        traces = llm.start(self.width)
        answers: list[str | None] = [None] * self.width
        runs = [0] * self.width
        while running := [i for i, trace in enumerate(traces) if trace.running]:
            llm.advance([traces[i] for i in running])
            for i in running:
                answer = traces[i].probe()
                runs[i] = 0 if answer is None else runs[i] + 1 if answer == answers[i] else 1
                answers[i] = answer
                if runs[i] >= self.streak:
                    traces[i].stop()
        return plurality(answers)

    def cuts(self, pool: Pool) -> Cuts:
        """Where each recorded CoT is stopped."""
        shown, place = revealed(pool), np.arange(pool.probes().codes.size + pool.codes.size)
        opens = np.ones(len(shown), np.bool_)
        opens[1:] = (shown[1:] != shown[:-1]) | (shown[1:] < 0)
        starts = pool.probes().starts
        opens[starts[:-1] + np.arange(len(starts) - 1)] = True
        run = place - np.maximum.accumulate(np.where(opens, place, 0)) + 1
        return Cuts.at_first(pool, (run >= self.streak) & (shown >= 0))
