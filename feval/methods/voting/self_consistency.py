"""Self-consistency: sample n CoTs, answer with the plurality (Wang et al., arXiv 2203.11171, section 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError, UsageError
from feval.methods.decisions import Decisions, Ledger
from feval.methods.fields import require_types
from feval.methods.protocol import Sampler, require_draws
from feval.methods.vote import plurality, plurality_codes, require_no_answer_rule

if TYPE_CHECKING:
    from feval.replay.pools import Pool

__all__ = ["SelfConsistency"]

_BLOCK = 1 << 17


@dataclass(frozen=True)
class SelfConsistency:
    """The plurality of n CoTs of one LLM.

    The paper votes over 40 CoTs at temperature 0.7; FEval-TTC's example, and the default here, takes 20. The answer seen first
    wins a tie.

    Attributes:
        n: CoTs per question.
        no_answer: "drop": a CoT without an answer casts no vote; "vote": no answer is one more answer, which is never right.
    """

    n: int = 20
    # FEval-TTC's self-consistency drops failed extractions, its MoT and the evaluation of Adaptive-Consistency count them. A
    # failure is no opinion, so it is dropped unless a figure made with votes is to be reproduced.
    no_answer: str = "drop"

    def __post_init__(self) -> None:
        require_types(self)
        require_no_answer_rule(self.no_answer)
        if self.n < 1:
            raise OutOfRangeError(f"Self-consistency votes over 1 CoT or more; n={self.n} was asked for.")

    def draws(self, llms: int) -> tuple[int, ...]:
        """CoTs asked of the one LLM."""
        if llms != 1:
            raise UsageError(f"Self-consistency votes over the CoTs of one LLM; {llms} were given.")
        return (self.n,)

    def __call__(self, question: str, llm: Sampler) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question.

        Args:
            question: the text.
            llm: anything with `sample(k)`, recorded or live.

        Returns:
            The canonical answer, `None` if no CoT has one.
        """
        return plurality(llm.sample(self.n).answers, no_answer=self.no_answer)

    def decide(self, pools: Sequence[Pool], orders: Sequence[npt.NDArray[np.uint16]]) -> Decisions:
        """The same for all questions and many replicates.

        Args:
            pools: one, of Q questions.
            orders: one array [R, Q, n or more] of recorded places, in draw order.

        Returns:
            Answers and ledger [R, Q].

        Raises:
            UsageError: not exactly one pool and one order, or orders shorter than n.
            ShortPoolError: a pool with fewer than n CoTs.
        """
        require_draws(self, pools, orders)
        pool, order = pools[0], orders[0][:, :, : self.n]
        answer = np.empty(order.shape[:2], pool.codes.dtype)
        tokens = np.empty(order.shape[:2], np.int64)
        for questions, replicates in _blocks(*order.shape):
            places = order[replicates, questions].astype(np.intp)
            places += np.arange(places.shape[1])[:, None] * pool.codes.shape[1]
            answer[replicates, questions] = plurality_codes(
                pool.codes[questions].take(places), no_answer=self.no_answer
            )
            drawn_tokens = pool.output_tokens[questions].astype(np.int64).take(places)
            tokens[replicates, questions] = np.einsum("rqn->rq", drawn_tokens)
        rounds = np.ones(tokens.shape, np.int32)
        return Decisions(answer, (Ledger(rounds, self.n * rounds, tokens),))


def _blocks(replicates: int, questions: int, draws: int) -> Iterator[tuple[slice, slice]]:
    """Questions and replicates whose draws are looked at together: few enough to stay in a core's own cache."""
    some_questions = max(1, min(questions, _BLOCK // draws))
    some_replicates = max(1, _BLOCK // (some_questions * draws))
    for q in range(0, questions, some_questions):
        for r in range(0, replicates, some_replicates):
            yield slice(q, q + some_questions), slice(r, r + some_replicates)
