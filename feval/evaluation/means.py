"""Means per question of what a method does: right or not, CoTs, calls and tokens, over replicates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.cards.billing import billed_prompts
from feval.methods.arrays import Bools, Floats
from feval.methods.decisions import LEDGER_FIELDS
from feval.methods.error_shares import ErrorShares

if TYPE_CHECKING:
    from feval.methods.decisions import Decisions

Int64 = npt.NDArray[np.int64]

_MOST_REPLICATES, _LEAST_REPLICATES, _DRAWS = 100, 10, 2_000_000
_WHOLE = math.lcm(*range(1, 17)) << 20  # one whole share of errors: sixteenths and all larger parts are whole numbers


def default_replicates(questions: int) -> int:
    """Draws of every question where nobody says how many: 100, and fewer beyond 20,000 questions, at least 10.

    The mean over Q questions and R draws of each has the variance (b + w / R) / Q, with b that of the questions' accuracies and
    w that of one question's draws, at most 1/4. So 2,000,000 draws, whatever Q is, add a standard error of
    sqrt(w / QR) <= 0.035 points; and with ten draws of each, the one that the questions have anyway grows by 5 % where w = b.
    """
    return min(_MOST_REPLICATES, max(_LEAST_REPLICATES, _DRAWS // max(questions, 1)))


@dataclass(frozen=True, eq=False)
class QuestionMeans:
    """Means over draws of Q questions. Tokens are those that are billed, [Q] per LLM.

    Attributes:
        right: [Q] probability that the answer is the gold.
        error_shares: gives how wrong answers came about.
        calls: [Q] requests, auxiliary ones included.
        samples: [Q] CoTs.
        prompt_tokens: of each LLM, as its prompts are billed.
        prompt_tokens_per_round: of each LLM, if every request paid its prompt.
        output_tokens: of each LLM, those of auxiliary calls and probes included.
        cot_tokens: [Q] output tokens of CoTs, of all LLMs together.
        sequential_tokens: gives [Q] tokens generated one after the other; `None` where not known.
        longest_trace_tokens: [Q] tokens of the longest CoT; `None` where not known.
        probe_calls, probe_tokens: [Q] probes of traces, and their output tokens.
    """

    right: Floats
    error_shares: Callable[[], ErrorShares]
    calls: Floats
    samples: Floats
    prompt_tokens: list[Floats]
    prompt_tokens_per_round: list[Floats]
    output_tokens: list[Floats]
    cot_tokens: Floats
    sequential_tokens: Callable[[], Floats | None]
    longest_trace_tokens: Floats | None
    probe_calls: Floats
    probe_tokens: Floats


@dataclass(eq=False)
class ReplicateSums:
    """Sums over replicates, per question: integers, so that any order and any number of processes gives the same.

    Attributes:
        right, none: [Q] replicates that are right, and that have no answer.
        early, routed: [Q] replicates that were stopped early, and routed wrong, in units of 1/`_WHOLE`.
        prompts: [L, Q] prompts billed.
        ledgers: [L, F, Q] fields of `Ledger`, in their order.
        longest: [Q] tokens of the longest CoT of any LLM.
        split: whether `early` and `routed` were counted.
        latency: whether every ledger had sequential tokens and a longest CoT.
    """

    right: Int64
    none: Int64
    early: Int64
    routed: Int64
    prompts: Int64
    ledgers: Int64
    longest: Int64
    split: bool = False
    latency: bool = True

    @classmethod
    def zeros(cls, llms: int, questions: int) -> ReplicateSums:
        """Before the first replicate."""
        right, none, early, routed, longest = np.zeros((5, questions), np.int64)
        prompts = np.zeros((llms, questions), np.int64)
        ledgers = np.zeros((llms, len(LEDGER_FIELDS), questions), np.int64)
        return cls(right, none, early, routed, prompts, ledgers, longest)

    def put(self, block: slice, part: ReplicateSums) -> None:
        """Take over the sums of a block of questions."""
        for name in ("right", "none", "early", "routed", "prompts", "ledgers", "longest"):
            getattr(self, name)[..., block] = getattr(part, name)
        self.split, self.latency = part.split, self.latency and part.latency

    def add(self, decisions: Decisions, right: Bools, billing: str) -> None:
        """Count some replicates, from their decisions and a mask [R, Q] of the right ones."""
        self.right += right.sum(axis=0)
        self.none += (decisions.answer < 0).sum(axis=0)
        for llm, ledger in enumerate(decisions.ledgers):
            prompts = np.asarray(billed_prompts(billing, ledger.rounds, ledger.cots))
            self.prompts[llm] += prompts.sum(axis=0, dtype=np.int64)
            for place, name in enumerate(LEDGER_FIELDS):
                if (counts := getattr(ledger, name)) is not None:
                    self.ledgers[llm, place] += counts.sum(axis=0, dtype=np.int64)
        longest = [ledger.longest_trace_tokens for ledger in decisions.ledgers if ledger.sequential_tokens is not None]
        each = [tokens for tokens in longest if tokens is not None]
        self.latency &= len(each) == len(decisions.ledgers)
        if self.latency:
            self.longest += np.maximum.reduce(each).sum(axis=0, dtype=np.int64)

    def add_errors(self, early: Floats, routed: Floats) -> None:
        """Count how some replicates went wrong: [R, Q] parts that were stopped early, and routed wrong."""
        self.early += np.rint(early * _WHOLE).astype(np.int64).sum(axis=0)
        self.routed += np.rint(routed * _WHOLE).astype(np.int64).sum(axis=0)

    def means(self, replicates: int, prompt_tokens: Sequence[npt.NDArray[Any]]) -> QuestionMeans:
        """Divide by the number of replicates; `prompt_tokens` are [Q] of one prompt, per LLM."""
        sums = {name: self.ledgers[:, place] for place, name in enumerate(LEDGER_FIELDS)}
        billed, per_round = (
            [p * t + a for p, t, a in zip(prompts, prompt_tokens, sums["auxiliary_prompt_tokens"], strict=True)]
            for prompts in (self.prompts, sums["rounds"])
        )
        output = sums["output_tokens"] + sums["auxiliary_output_tokens"] + sums["probe_tokens"]
        sequential = sums["sequential_tokens"].sum(axis=0) / replicates if self.latency else None
        unit = replicates * _WHOLE
        split = (self.early / unit, self.routed / unit) if self.split else (None, None)
        shares = ErrorShares(self.none / replicates, *split)
        return QuestionMeans(
            self.right / replicates,
            lambda: shares,
            (sums["rounds"] + sums["auxiliary_calls"] + sums["probe_calls"]).sum(axis=0) / replicates,
            sums["cots"].sum(axis=0) / replicates,
            [tokens / replicates for tokens in billed],
            [tokens / replicates for tokens in per_round],
            [tokens / replicates for tokens in output],
            sums["output_tokens"].sum(axis=0) / replicates,
            lambda: sequential,
            self.longest / replicates if self.latency else None,
            *(sums[name].sum(axis=0) / replicates for name in ("probe_calls", "probe_tokens")),
        )
