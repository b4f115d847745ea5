"""The MoT cascade: a weak LLM whose samples agree answers, else a strong one does (Yue et al.,
arXiv 2310.03094).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import Literal

import numpy as np

from feval import replay
from feval.cards.names import base_of
from feval.errors import UsageError
from feval.methods.fields import Count, CountPerLLM, Share, as_fraction, frozen_method, per_llm
from feval.methods.protocol import Decisions, InTurn, PoolOrders, Pools
from feval.methods.vote import NoAnswerRule, plurality, plurality_codes, votes_needed

# The paper's budgets: 20 samples of one prompt; of two prompts 7 each, since the second prompt
# costs what 6 samples do.
_SAMPLES = {1: 20, 2: 7}


@frozen_method
class MixtureOfThoughts:
    """A cascade that trusts a weak LLM as far as its samples, over one or several prompts, agree.

    The last LLM is the strong one; the others are the weak LLM under its prompts, each recorded as
    a variant. All their samples vote, and the answer A_w has the share s of *all* samples, those
    without an answer included (eq. 2):

        vote    accept A_w where s >= threshold
        verify  accept where the pluralities of the two prompts are one and the same answer

    Elsewhere the strong LLM is asked, and the plurality of its samples is the answer. The variants
    decide which of the paper's methods this is:

        CoT-1D, PoT-1D   one weak variant: chain-of-thought, or program-of-thought, executed
        CoT-2D, PoT-2D   two variants of one kind, with different demonstrations in the prompt
        MoT-1D           a CoT and a PoT variant with the same demonstrations
        MoT-2D           a CoT and a PoT variant with different demonstrations

    FEval-TTC's MoT is CoT-1D-Vote. Each prompt is billed once, and the strong LLM where it is
    asked. Ties go to the answer seen first, prompt by prompt.

    Yue, Zhao, Zhang, Du, Yao, "Large Language Model Cascades with Mixture of Thoughts
    Representations for Cost-efficient Reasoning", sections 2.2 to 2.4.
    https://arxiv.org/abs/2310.03094

    Attributes:
        threshold: tau, compared exactly; a number, or text such as "0.55" or "2/3". The paper finds
            0.5 to 0.6 useful.
        rule: "vote" or "verify".
        samples: CoTs of each weak variant, or one number per variant; `None` for the paper's 20 of
            one variant, 7 of each of two.
        strong_samples: CoTs of the strong LLM.
        strict: accept only where s > threshold.
        no_answer: "drop" or "vote", see `SelfConsistency`; in the votes of weak and strong LLM.
    """

    threshold: Share = 0.6
    rule: Literal["vote", "verify"] = "vote"
    samples: CountPerLLM | None = None
    strong_samples: Count = 3
    # Paper and repository accept s = tau; FEval-TTC's example asks for s > tau, so that at tau = 1
    # it accepts nothing at all.
    strict: bool = False
    # The authors' code drops failed samples from the vote (not from the share). FEval-TTC's example
    # counts them as an answer: they can win, and the method then answers nothing.
    no_answer: NoAnswerRule = "drop"

    def draws(self, llms: int) -> tuple[int, ...]:
        """CoTs of each weak variant, then of the strong LLM, if it is asked."""
        weak = llms - 1
        if weak < 1 or (self.rule == "verify" and weak != 2):
            variants = "two weak variants" if self.rule == "verify" else "one weak variant or more"
            raise UsageError(
                f"The MoT cascade takes {variants} and then the strong LLM; {llms}"
                f" {'was' if llms == 1 else 'were'} given. A variant is the weak LLM recorded under"
                " another prompt and name, such as `feval record --llm gpt-3.5-turbo@pot "
                " --set prompt=CARD`; `feval merge` brings the recordings together."
            )
        if self.samples is None and weak not in _SAMPLES:
            raise UsageError(
                "The paper says how many samples to take of one or two weak variants, not of"
                f" {weak}; give samples."
            )
        samples = _SAMPLES[weak] if self.samples is None else self.samples
        return (*per_llm("samples", samples, weak), self.strong_samples)

    def __call__(self, question: str, *llms: replay.MeteredLLM) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question, from the weak variants and the strong LLM; `None` if the vote
        has none.
        """
        *samples, strong_samples = self.draws(len(llms))
        *weak, strong = llms
        answers = [list(llm.sample(n).answers) for llm, n in zip(weak, samples, strict=True)]
        if self.rule == "verify":
            one, other = (plurality(prompt, no_answer=self.no_answer) for prompt in answers)
            if one is not None and one == other:
                return one
        else:
            votes = [answer for prompt in answers for answer in prompt]
            leader = plurality(votes, no_answer=self.no_answer)
            # no answer may win only if it votes
            may_win = leader is not None or self.no_answer == "vote"
            if may_win and votes.count(leader) >= self._needed(votes):
                return leader
        return plurality(strong.sample(strong_samples).answers, no_answer=self.no_answer)

    def cautions(self, llms: Sequence[str]) -> Iterator[str]:
        """Yield a warning where the weak LLM is several, by name, which the paper's is not."""
        weak = dict.fromkeys(base_of(name) for name in llms[:-1])
        if len(weak) > 1:
            yield (
                f"{' and '.join(weak)} vote together before {llms[-1]} is asked; in the paper that"
                " mixture-of-thoughts is from, one weak LLM votes, under one or two prompts. Name"
                " it and the strong one with --llm (in Python: llms)."
            )

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        turn = InTurn(self, pools, orders)
        *weak, strong = turn.llms
        for places in turn.blocks():
            codes = [llm.sample(places).codes for llm in weak]
            if self.rule == "verify":
                leader, other = (
                    plurality_codes(each.T, no_answer=self.no_answer) for each in codes
                )
                accepted = (leader == other) & (leader >= 0)
            else:
                votes = np.concatenate(codes)
                leader = plurality_codes(votes.T, no_answer=self.no_answer)
                enough = (votes == leader).sum(axis=0) >= self._needed(votes)
                accepted = enough & ((leader >= 0) | (self.no_answer == "vote"))
            turn.answer[places] = leader
            rejected = places[~accepted]
            turn.answered_by[rejected] = len(weak)
            turn.answer[rejected] = plurality_codes(
                strong.sample(rejected).codes.T, no_answer=self.no_answer
            )
        return turn.decisions()

    def _needed(self, votes: Sized) -> int:
        """The fewest of the votes that are accepted."""
        return votes_needed(as_fraction(self.threshold), len(votes), strict=self.strict)
