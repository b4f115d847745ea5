"""Best-of-N: sample n CoTs, answer with the one that a scorer likes best, or with the answer that it likes best in sum.

Cobbe et al. 2021, arXiv 2110.14168 (a verifier ranks the samples); Uesato et al. 2022, arXiv 2211.14275, section 3 (weighted:
scores of equal answers are added up); Wang et al. 2023 (Math-Shepherd), arXiv 2312.08935, section 3.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from feval.errors import OutOfRangeError, UnknownNameError, UsageError
from feval.methods.batches import batches
from feval.methods.decisions import Decisions, Ledger
from feval.methods.fields import require_types
from feval.methods.protocol import Orders, RecordedSampler, require_draws
from feval.methods.vote import weighted_plurality, weighted_plurality_codes
from feval.replay.channels import AGGREGATES

if TYPE_CHECKING:
    from feval.replay.pools import Pool

__all__ = ["BestOfN", "WeightedBestOfN"]


@dataclass(frozen=True)
class BestOfN:
    """The answer of the best-scored of n CoTs of one LLM: argmax over CoTs of the aggregated step scores.

    CoTs without an answer, or without a score, are dropped. Of several best CoTs the first drawn wins. The scorer costs nothing
    here, as in FEval-TTC: it is another model, and often a local one, whose price is not that of the LLM.

    Attributes:
        n: CoTs per question.
        scorer: whose recorded scores; `None` for the only scorer there is.
        aggregate: what becomes of the step scores: "last" (FEval-TTC and search-and-learn, the default), "min" (as the Math-
            Shepherd paper is remembered), "prod" or "mean"; "score" for scorers that give a CoT one score.
    """

    needs: ClassVar[str] = (
        "Its scores are those of a reward model, such as transformers:FOLDER, or of a judge (judge:MODEL)."
    )
    """What to record, for the sentence that says it is missing."""

    n: int = 20
    scorer: str | None = None
    # The published implementations take the last step's score, so that figures are comparable with theirs by default. A report
    # should name the aggregate: it moves the result more than the tie rule does.
    aggregate: str = "last"

    def __post_init__(self) -> None:
        _check(self)

    def draws(self, llms: int) -> tuple[int, ...]:
        """CoTs asked of the one LLM."""
        return _draws(self, llms)

    def __call__(self, question: str, llm: RecordedSampler) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question.

        Args:
            question: the text.
            llm: a recorded LLM: its responses have `scores`.
        """
        response = llm.sample(self.n)
        scores = response.scores(self.scorer, self.aggregate)
        scored = [(s, a) for s, a in zip(scores, response.answers, strict=True) if s is not None and a is not None]
        return max(scored, key=lambda pair: pair[0])[1] if scored else None

    def decide(self, pools: Sequence[Pool], orders: Sequence[Orders]) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        return _decide(self, pools, orders)


@dataclass(frozen=True)
class WeightedBestOfN:
    """The answer whose CoTs have the largest sum of scores among n CoTs of one LLM: argmax_a of the sum over CoTs that say a.

    CoTs without an answer, or without a score, are dropped. Scores are summed in draw order; sums within 1e-12 of the largest are
    equal, and of several answers the first drawn wins. With all scores equal this is self-consistency. Scorers are free, see
    `BestOfN`.

    Attributes:
        n: CoTs per question.
        scorer: whose recorded scores; `None` for the only scorer there is.
        aggregate: what becomes of the step scores, see `BestOfN`.
    """

    needs: ClassVar[str] = (
        "Its scores are those of a reward model, such as transformers:FOLDER, or of a judge (judge:MODEL)."
    )
    """What to record, for the sentence that says it is missing."""

    n: int = 20
    scorer: str | None = None
    aggregate: str = "last"

    def __post_init__(self) -> None:
        _check(self)

    def draws(self, llms: int) -> tuple[int, ...]:
        """CoTs asked of the one LLM."""
        return _draws(self, llms)

    def __call__(self, question: str, llm: RecordedSampler) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question.

        Args:
            question: the text.
            llm: a recorded LLM: its responses have `scores`.
        """
        response = llm.sample(self.n)
        scores = response.scores(self.scorer, self.aggregate)
        answers = [None if score is None else a for score, a in zip(scores, response.answers, strict=True)]
        return weighted_plurality(answers, [score or 0.0 for score in scores])

    def decide(self, pools: Sequence[Pool], orders: Sequence[Orders]) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        return _decide(self, pools, orders)


def _check(method: BestOfN | WeightedBestOfN) -> None:
    require_types(method)
    if method.n < 1:
        raise OutOfRangeError(f"Best-of-N chooses among 1 CoT or more; n={method.n} was asked for.")
    if method.aggregate not in AGGREGATES:
        raise UnknownNameError.of("aggregate", method.aggregate, AGGREGATES)


def _draws(method: BestOfN | WeightedBestOfN, llms: int) -> tuple[int, ...]:
    if llms != 1:
        raise UsageError(f"Best-of-N chooses among the CoTs of one LLM; {llms} were given.")
    return (method.n,)


def _decide(method: BestOfN | WeightedBestOfN, pools: Sequence[Pool], orders: Sequence[Orders]) -> Decisions:
    require_draws(method, pools, orders)
    [pool], [order] = pools, orders
    # What was judged and answered at all; everything else is as if it had no answer.
    scores = pool.aggregated(method.scorer, method.aggregate)
    codes = np.where(np.isnan(scores), -1, np.maximum(pool.codes, -1))
    scores = np.where(codes < 0, -np.inf if isinstance(method, BestOfN) else 0.0, scores)
    answer = np.empty(order.shape[:2], codes.dtype)
    tokens = np.empty(order.shape[:2], np.int64)
    for batch in batches(order, method.n, codes.shape[1]):
        drawn, weights = batch.drawn(codes), batch.drawn(scores)
        if isinstance(method, BestOfN):
            best = weights.argmax(axis=2)[:, :, None]
            answer[batch.where] = np.take_along_axis(drawn, best, axis=2)[:, :, 0]
        else:
            answer[batch.where] = weighted_plurality_codes(drawn, weights)
        tokens[batch.where] = batch.drawn(pool.output_tokens).sum(axis=2, dtype=np.int64)
    rounds = np.ones(answer.shape, np.int32)
    return Decisions(answer, (Ledger(rounds, method.n * rounds, tokens),))
