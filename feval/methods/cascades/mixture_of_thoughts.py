"""The MoT cascade: a weak LLM whose samples agree answers, else a strong one does (Yue et al., arXiv 2310.03094)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError, UnknownNameError, UsageError
from feval.methods.decisions import Decisions
from feval.methods.fields import exact_threshold, per_llm, require_cots, require_types, tuples_of_lists
from feval.methods.protocol import Orders, Sampler, require_draws
from feval.methods.taken import Takings, blocks
from feval.methods.vote import plurality, plurality_codes, require_no_answer_rule

if TYPE_CHECKING:
    from feval.replay.pools import Pool

__all__ = ["RULES", "MixtureOfThoughts"]

RULES = ("vote", "verify")

# The paper's budgets: 20 samples of one prompt; of two prompts 7 each, since the second prompt costs what 6 samples do.
_SAMPLES = {1: 20, 2: 7}

Integers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class MixtureOfThoughts:
    """A cascade that trusts a weak LLM as far as its samples, over one or several prompts, agree.

    The last LLM is the strong one; the others are the weak LLM under its prompts, each recorded as a variant. All their samples
    vote, and the answer A_w has the share s of *all* samples, those without an answer included (eq. 2):

        vote    accept A_w where s >= threshold
        verify  accept where the pluralities of the two prompts are one and the same answer

    Elsewhere the strong LLM is asked, and the plurality of its samples is the answer. Which of the paper's methods this is, the
    variants decide:

        CoT-1D, PoT-1D   one weak variant: chain-of-thought, or program-of-thought with its executed results
        CoT-2D, PoT-2D   two variants of one kind, with different demonstrations in the prompt
        MoT-1D           a CoT and a PoT variant with the same demonstrations
        MoT-2D           a CoT and a PoT variant with different demonstrations

    What FEval-TTC calls MoT is CoT-1D-Vote. Each prompt is billed once, the strong LLM where it is asked. Votes tie in favour of
    the answer seen first, prompt by prompt.

    Yue, Zhao, Zhang, Du, Yao, "Large Language Model Cascades with Mixture of Thoughts Representations for Cost-efficient
    Reasoning", sections 2.2 to 2.4. https://arxiv.org/abs/2310.03094

    Attributes:
        threshold: tau, compared exactly; a number, or text such as "0.55" or "2/3". The paper finds 0.5 to 0.6 useful.
        rule: "vote" or "verify".
        samples: of each weak variant, or one number per variant; `None` for the paper's 20 of one variant, 7 of each of two.
        strong_samples: CoTs of the strong LLM.
        strict: accept only where s > threshold.
        no_answer: "drop" or "vote", see `SelfConsistency`; in the votes of weak and strong LLM.
    """

    threshold: str | float = 0.6
    rule: str = "vote"
    samples: int | tuple[int, ...] | None = None
    strong_samples: int = 3
    # Paper and repository accept s = tau; FEval-TTC's example asks for s > tau, so that at tau = 1 it accepts nothing at all.
    strict: bool = False
    # The authors' code drops failed samples from the vote (not from the share). FEval-TTC's example counts them as an answer:
    # they can win, and the method then answers nothing.
    no_answer: str = "drop"

    def __post_init__(self) -> None:
        require_types(self)
        tuples_of_lists(self, "samples")
        exact_threshold("threshold", self.threshold, 0, 1)
        require_cots("samples", self.samples)
        require_no_answer_rule(self.no_answer)
        if type(self.strong_samples) is not int or self.strong_samples < 1:
            raise OutOfRangeError(
                f"The strong LLM gives 1 CoT or more; strong_samples={self.strong_samples!r} was given."
            )
        if self.rule not in RULES:
            raise UnknownNameError.of("rule", self.rule, RULES)

    def draws(self, llms: int) -> tuple[int, ...]:
        """CoTs of each weak variant, then of the strong LLM, if it is asked."""
        weak = llms - 1
        if weak < 1 or (self.rule == "verify" and weak != 2):
            wanted = "two weak variants" if self.rule == "verify" else "one weak variant or more"
            raise UsageError(
                f"The MoT cascade takes {wanted} and then the strong LLM; {llms} {'was' if llms == 1 else 'were'} given. "
                "A variant is the weak LLM recorded under another prompt and name, such as "
                "`feval record --llm gpt-3.5-turbo@pot --prompt CARD`; `feval merge` brings the recordings together."
            )
        if self.samples is None and weak not in _SAMPLES:
            raise UsageError(
                f"The paper says how many samples to take of one or two weak variants, not of {weak}; give samples."
            )
        given = _SAMPLES[weak] if self.samples is None else self.samples
        return (*per_llm("samples", given, weak), self.strong_samples)

    def __call__(self, question: str, *llms: Sampler) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question, from the weak variants and the strong LLM; `None` if the votes have no answer."""
        *samples, strong_samples = self.draws(len(llms))
        *weak, strong = llms
        answers = [list(llm.sample(n).answers) for llm, n in zip(weak, samples, strict=True)]
        if self.rule == "verify":
            one, other = (plurality(own, no_answer=self.no_answer) for own in answers)
            if one is not None and one == other:
                return one
        else:
            votes = [answer for own in answers for answer in own]
            leader = plurality(votes, no_answer=self.no_answer)
            if self._may_win(leader is not None) and votes.count(leader) >= self._votes_needed(len(votes)):
                return leader
        return plurality(strong.sample(strong_samples).answers, no_answer=self.no_answer)

    def decide(self, pools: Sequence[Pool], orders: Sequence[Orders]) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        needed = require_draws(self, pools, orders)
        shape = orders[0].shape[:2]
        *weak, strong = (Takings(*drawn) for drawn in zip(pools, orders, needed, strict=True))
        answer = np.empty(shape[0] * shape[1], np.result_type(*(pool.codes.dtype for pool in pools)))
        for places in blocks(answer.size, sum(needed)):
            codes = [llm.take(places).codes for llm in weak]
            accepted, answer[places] = self._verified(codes) if self.rule == "verify" else self._voted(codes)
            rejected = places[~accepted]
            answer[rejected] = plurality_codes(strong.take(rejected).codes.T, no_answer=self.no_answer)
        return Decisions(answer.reshape(shape), tuple(llm.ledger() for llm in (*weak, strong)))

    def _verified(self, codes: Sequence[Integers]) -> tuple[npt.NDArray[np.bool_], Integers]:
        """[N] whether the pluralities of [n, N] are one, and that of the first."""
        one, other = (plurality_codes(own.T, no_answer=self.no_answer) for own in codes)
        return (one == other) & (one >= 0), one

    def _voted(self, codes: Sequence[Integers]) -> tuple[npt.NDArray[np.bool_], Integers]:
        """[N] whether the leader of all votes has enough of them, and the leader."""
        votes = np.concatenate(codes)
        leader = plurality_codes(votes.T, no_answer=self.no_answer)
        enough = (votes == leader).sum(axis=0) >= self._votes_needed(len(votes))
        return enough & self._may_win(leader >= 0), leader

    def _may_win(self, answered: Any) -> Any:
        """Nobody's answer is accepted only where no answer has a vote."""
        return answered | (self.no_answer == "vote")

    def _votes_needed(self, votes: int) -> int:
        """The fewest votes whose share passes the threshold, in exact arithmetic."""
        share = exact_threshold("threshold", self.threshold) * votes
        return floor(share) + 1 if self.strict else ceil(share)
