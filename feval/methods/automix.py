"""AutoMix: a small LLM answers and verifies itself; where it doubts, a large one is asked (arXiv
2310.12963).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from feval import replay
from feval.errors import NotRecordedError, UsageError
from feval.methods.fields import Aggregate, Share, as_fraction, frozen_method
from feval.methods.protocol import (
    Capabilities,
    Decisions,
    Floats,
    Integers,
    InTurn,
    PoolOrders,
    Pools,
    with_calls,
)
from feval.methods.vote import reaches


@frozen_method
class AutoMix:
    """The small LLM's answer where its self-verification v reaches the threshold, else the large
    LLM's.

    v is the mean of several few-shot verifications of the same answer, recorded as the scores of a
    scorer. Verification costs one request to the small LLM, whether it helps or not. A CoT without
    an answer is not verified, and one without a score is not trusted: both go to the large LLM.

    This is the paper's threshold rule. Its POMDP router needs a policy fitted to distributions of
    v; the benefit per cost that it reports (IBC) is (P - P_small) / (C - C_small).

    Aggarwal, Madaan et al., "AutoMix: Automatically Mixing Language Models", sections 3 and 4.
    https://arxiv.org/abs/2310.12963

    Attributes:
        threshold: t in [0, 1], compared exactly; the paper tunes it for each dataset and pair of
            LLMs.
        scorer: whose recorded verifications; `None` for the only scorer there is.
        aggregate: "score" where v itself was recorded, "mean" where each verification was recorded
            as a step score; "last", "min" and "prod" as for best-of-N.
        strict: keep the answer only where v > t.
        verification: "recorded" bills the recorded tokens of the verifications; "as-answer" bills
            the request and CoT of the answer a second time; "free" bills nothing.
    """

    capabilities = Capabilities(
        chooses=True,
        bills_scores=True,
        needs="Its scores are verifications of the small LLM's answers, by a judge (judge:MODEL) or"
        " a function that returns several.",
    )

    threshold: Share = 0.5
    scorer: str | None = None
    aggregate: Aggregate = "score"
    # The paper keeps the answer at v = t, its code goes to the large LLM there. It matters: v has
    # only k + 1 levels.
    strict: bool = False
    # The paper sets the cost of verifying to that of answering ("as-answer"). A recording has the
    # real tokens.
    verification: Literal["recorded", "as-answer", "free"] = "recorded"

    def draws(self, llms: int) -> tuple[int, ...]:
        """One CoT of each LLM; of the large one only if it is asked."""
        if llms != 2:
            raise UsageError(
                f"AutoMix asks a small LLM and then a large one; {llms}"
                f" {'was' if llms == 1 else 'were'} given."
            )
        return (1, 1)

    def __call__(
        self,
        question: str,  # noqa: ARG002  a replayed LLM already has its question
        small: replay.MeteredLLM,
        large: replay.MeteredLLM,
    ) -> str | None:
        """The answer to one question; `None` if the large LLM was asked and has none."""
        response = small.sample(1)
        answer, verified = response.answers[0], response.scores(self.scorer, self.aggregate)[0]
        tokens = None
        if answer is not None and self.verification == "as-answer":
            tokens = _known(response.request.tokens), response.tokens
        elif answer is not None and self.verification == "recorded":
            [tokens] = response.scoring_tokens(self.scorer)
        if tokens is not None:
            small.charge(prompt_tokens=tokens[0], output_tokens=tokens[1])
        if answer is not None and verified is not None and self._keeps(verified):
            return answer
        return large.sample(1).answers[0]

    def ratings(self, pools: Pools) -> list[Floats | None]:
        """The verifications of the small LLM's answers; see `feval.methods.protocol`."""
        return [pools[0].aggregated(self.scorer, self.aggregate), None]

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        turn, shape = InTurn(self, pools, orders), orders[0].shape[:2]
        small, large = turn.llms
        samples = small.sample(np.arange(turn.answer.size))
        [cells], [codes] = samples.cells, samples.codes
        verified = pools[0].aggregated(self.scorer, self.aggregate).ravel()[cells]
        turn.answer[:] = codes
        rejected = np.flatnonzero(~((codes >= 0) & self._keeps(verified)))
        [turn.answer[rejected]] = large.sample(rejected).codes
        decisions = turn.decisions()
        if self.verification == "free":
            return decisions
        calls: tuple[Integers, ...]
        if self.verification == "recorded":
            calls = pools[0].scoring_tokens(self.scorer)
        else:
            _known(int(pools[0].prompt_tokens.min(initial=0)))
            prompts = np.broadcast_to(pools[0].prompt_tokens[:, None], pools[0].codes.shape)
            calls = np.ones_like(prompts), prompts, pools[0].output_tokens
        spent = [np.where(codes >= 0, each.ravel()[cells], 0).reshape(shape) for each in calls]
        return with_calls(decisions, spent)

    def _keeps(self, verified: Any) -> Any:
        """Whether a score, or each of an array, reaches the threshold; NaN does not."""
        return reaches(verified, as_fraction(self.threshold), strict=self.strict)


def _known(prompt_tokens: int | None) -> int:
    if prompt_tokens is None or prompt_tokens < 0:
        raise NotRecordedError(
            "The prompt tokens of the small LLM are not known, so a verification cannot be billed"
            " as its answer; use verification='recorded' or 'free'."
        )
    return prompt_tokens
