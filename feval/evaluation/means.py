"""Means per question of what a method does: right or not, CoTs, calls and tokens, over
replicates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.cards.billing import billed_prompts, usd
from feval.estimators.arrays import Integers
from feval.estimators.inference.intervals import accuracy_interval
from feval.estimators.per_question import question_blocks
from feval.methods.arrays import Bools, Floats
from feval.methods.decisions import LEDGER_FIELDS
from feval.methods.error_shares import ErrorShares

if TYPE_CHECKING:
    from feval.methods.decisions import Decisions
    from feval.replay import LLM
    from feval.replay.clock import Timing

Int64 = npt.NDArray[np.int64]

_MOST_REPLICATES, _LEAST_REPLICATES, _DRAWS = 100, 10, 2_000_000
# one whole share of errors: sixteenths and all larger parts are whole numbers
_WHOLE = math.lcm(*range(1, 17)) << 20


def default_replicates(questions: int) -> int:
    """Draws of every question where nobody says how many: 100, and fewer beyond 20,000 questions,
    at least 10.

    The mean over Q questions and R draws of each has the variance (b + w / R) / Q, with b that of
    the questions' accuracies and w that of one question's draws, at most 1/4. So 2,000,000 draws,
    whatever Q is, add a standard error of sqrt(w / QR) <= 0.035 points; and with ten draws of each,
    the one that the questions have anyway grows by 5 % where w = b.
    """
    return min(_MOST_REPLICATES, max(_LEAST_REPLICATES, _DRAWS // max(questions, 1)))


def billed(
    llms: Sequence[LLM], prompts: list[Floats], outputs: list[Floats]
) -> tuple[Floats, Floats | None]:
    """[Q] tokens, and dollars where every LLM has a price."""
    prices = [llm.price for llm in llms]
    tokens, dollars = (
        np.zeros(len(prompts[0])),
        (None if None in prices else np.zeros(len(prompts[0]))),
    )
    for block in question_blocks(len(tokens)):
        for price, prompt_tokens, output_tokens in zip(prices, prompts, outputs, strict=True):
            tokens[block] += prompt_tokens[block]
            tokens[block] += output_tokens[block]
            if dollars is not None and price is not None:
                dollars[block] += usd(price, prompt_tokens[block], output_tokens[block])
    return tokens, dollars


def interval_ends(
    right: Floats, confidence: float | None, clusters: Integers | None = None
) -> tuple[float | None, float | None]:
    """The ends of the confidence interval of an accuracy, from [Q] probabilities of being right;
    `None` twice without a level.
    """
    if confidence is None:
        return None, None
    interval = accuracy_interval(right[:, None], confidence, clusters)
    return float(interval.low[0]), float(interval.high[0])


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
        rounds: of each LLM, requests for CoTs.
        sequential_by_llm: gives the sequential tokens of each LLM; `None` where not known.
        seconds: gives [Q] seconds of recorded replies; `None` where not known, or not asked for.
        uncompared: answers, of all draws, that nobody compared with the recorded ones.
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
    rounds: list[Floats]
    sequential_by_llm: Callable[[], list[Floats] | None]
    seconds: Callable[[], Floats | None]
    uncompared: int = 0

    def seconds_of(self, timing: Timing, llms: Sequence[LLM]) -> Floats | None:
        """[Q] seconds, replayed or modelled: waits for first tokens, and sequential tokens after
        them; `None` where not known.
        """
        if timing.profile is None:
            return self.seconds()
        speeds = [timing.profile.speed(llm.name) for llm in llms]
        sequential = self.sequential_by_llm()
        if sequential is None:
            return None
        parts = zip(speeds, self.rounds, sequential, strict=True)
        seconds: Floats = reduce(
            np.add,
            (s.seconds_to_first_token * n + each / s.tokens_per_second for s, n, each in parts),
        )
        return seconds


@dataclass(eq=False)
class ReplicateSums:
    """Sums over replicates, per question: integers, so that any order and any number of processes
    gives the same.

    Attributes:
        right, none: [Q] replicates that are right, and that have no answer.
        early, routed: [Q] replicates that were stopped early, and routed wrong, in units of
            1/`_WHOLE`.
        prompts: [L, Q] prompts billed.
        ledgers: [L, F, Q] fields of `Ledger`, in their order.
        longest: [Q] tokens of the longest CoT of any LLM.
        uncompared: [Q] replicates with an answer that nobody compared with the recorded ones.
        split: whether `early` and `routed` were counted.
        latency: whether every ledger had sequential tokens and a longest CoT.
        timed: whether every ledger had microseconds.
    """

    right: Int64
    none: Int64
    early: Int64
    routed: Int64
    prompts: Int64
    ledgers: Int64
    longest: Int64
    uncompared: Int64
    split: bool = False
    latency: bool = True
    timed: bool = True

    @classmethod
    def zeros(cls, llms: int, questions: int) -> ReplicateSums:
        """Before the first replicate."""
        right, none, early, routed, longest, uncompared = np.zeros((6, questions), np.int64)
        prompts = np.zeros((llms, questions), np.int64)
        ledgers = np.zeros((llms, len(LEDGER_FIELDS), questions), np.int64)
        return cls(right, none, early, routed, prompts, ledgers, longest, uncompared)

    def put(self, block: slice, part: ReplicateSums) -> None:
        """Take over the sums of a block of questions."""
        for name in (
            "right",
            "none",
            "early",
            "routed",
            "prompts",
            "ledgers",
            "longest",
            "uncompared",
        ):
            getattr(self, name)[..., block] = getattr(part, name)
        self.split, self.latency, self.timed = (
            part.split,
            self.latency and part.latency,
            self.timed and part.timed,
        )

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
        longest = [
            ledger.longest_trace_tokens
            for ledger in decisions.ledgers
            if ledger.sequential_tokens is not None
        ]
        each = [tokens for tokens in longest if tokens is not None]
        self.latency &= len(each) == len(decisions.ledgers)
        self.timed &= all(
            ledger.sequential_microseconds is not None for ledger in decisions.ledgers
        )
        if self.latency:
            self.longest += np.maximum.reduce(each).sum(axis=0, dtype=np.int64)

    def add_errors(self, early: Floats, routed: Floats) -> None:
        """Count how some replicates went wrong: [R, Q] parts that were stopped early, and routed
        wrong.
        """
        self.early += np.rint(early * _WHOLE).astype(np.int64).sum(axis=0)
        self.routed += np.rint(routed * _WHOLE).astype(np.int64).sum(axis=0)

    def means(self, replicates: int, prompt_tokens: Sequence[npt.NDArray[Any]]) -> QuestionMeans:
        """Divide by the number of replicates; `prompt_tokens` are [Q] of one prompt, per LLM."""
        sums = {name: self.ledgers[:, place] for place, name in enumerate(LEDGER_FIELDS)}
        billed, per_round = (
            [
                p * t + a
                for p, t, a in zip(
                    prompts, prompt_tokens, sums["auxiliary_prompt_tokens"], strict=True
                )
            ]
            for prompts in (self.prompts, sums["rounds"])
        )
        output = sums["output_tokens"] + sums["auxiliary_output_tokens"] + sums["probe_tokens"]
        sequential = sums["sequential_tokens"].sum(axis=0) / replicates if self.latency else None
        seconds = (
            sums["sequential_microseconds"].sum(axis=0) / (replicates * 1e6) if self.timed else None
        )
        by_llm = (
            [tokens / replicates for tokens in sums["sequential_tokens"]] if self.latency else None
        )
        unit = replicates * _WHOLE
        split = (self.early / unit, self.routed / unit) if self.split else (None, None)
        shares = ErrorShares(self.none / replicates, *split)
        return QuestionMeans(
            self.right / replicates,
            lambda: shares,
            (sums["rounds"] + sums["auxiliary_calls"] + sums["probe_calls"]).sum(axis=0)
            / replicates,
            sums["cots"].sum(axis=0) / replicates,
            [tokens / replicates for tokens in billed],
            [tokens / replicates for tokens in per_round],
            [tokens / replicates for tokens in output],
            sums["output_tokens"].sum(axis=0) / replicates,
            lambda: sequential,
            self.longest / replicates if self.latency else None,
            sums["probe_calls"].sum(axis=0) / replicates,
            sums["probe_tokens"].sum(axis=0) / replicates,
            [rounds / replicates for rounds in sums["rounds"]],
            lambda: by_llm,
            lambda: seconds,
            int(self.uncompared.sum()),
        )
