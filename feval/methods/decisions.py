"""The result of a method's batch form: answers, and the requests and tokens that they took."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from feval.methods.arrays import Bools, Integers

Orders = npt.NDArray[np.uint16]
"""[R, Q, draws] recorded places of CoTs, in draw order."""


@dataclass(frozen=True, eq=False)
class Ledger:
    """Requests and tokens of one LLM, for R replicates and Q questions. All billings derive from
    it.

    Attributes:
        rounds: [R, Q] number of `sample` requests; 0 where the LLM was not asked.
        cots: [R, Q] CoTs handed out.
        output_tokens: [R, Q] tokens of those, without what was cut off.
        auxiliary_calls: [R, Q] requests that return no CoT: verifications, self-checks, rankings;
            `None` for none anywhere.
        auxiliary_prompt_tokens: [R, Q] prompt tokens of those; `None` for none.
        auxiliary_output_tokens: [R, Q] output tokens of those; `None` for none.
        sequential_tokens: [R, Q] over rounds, the most tokens that any CoT generated in it, summed,
            without probes and auxiliary calls; `None` where not known.
        longest_trace_tokens: [R, Q] the most tokens that any one CoT generated; `None` where not
            known.
        probe_calls: [R, Q] probes of traces; `None` for none anywhere.
        probe_tokens: [R, Q] output tokens of those; `None` for none.
        sequential_microseconds: [R, Q] that the rounds took, one after the other; `None` where
            nobody asked for seconds.
    """

    rounds: Integers
    cots: Integers
    output_tokens: Integers
    auxiliary_calls: Integers | None = None
    auxiliary_prompt_tokens: Integers | None = None
    auxiliary_output_tokens: Integers | None = None
    sequential_tokens: Integers | None = None
    longest_trace_tokens: Integers | None = None
    probe_calls: Integers | None = None
    probe_tokens: Integers | None = None
    sequential_microseconds: Integers | None = None

    @classmethod
    def one_round(
        cls,
        asked: Bools,
        cots: int | Integers,
        output_tokens: Integers,
        longest: Integers | None = None,
    ) -> Ledger:
        """The ledger of an LLM that gives all its CoTs in one request where it is asked [R, Q].

        `output_tokens` are [R, Q] of all of them, `longest` of the longest; `None` where not known.
        """
        rounds = asked.astype(np.int32)
        latency = None if longest is None else np.where(asked, longest, 0)
        return cls(
            rounds,
            rounds * cots,
            np.where(asked, output_tokens, 0),
            sequential_tokens=latency,
            longest_trace_tokens=latency,
        )


LEDGER_FIELDS: tuple[str, ...] = tuple(field.name for field in fields(Ledger))
"""The numbers of a ledger, in order; a metered LLM has them as attributes."""


@dataclass(frozen=True, eq=False)
class Decisions:
    """The outcome of a method for R replicates and Q questions.

    Attributes:
        answer: [R, Q] code of the answer, per question and shared by the LLMs of a load; -1 for no
            answer.
        ledgers: one per LLM, in the order of the LLMs.
    """

    answer: Integers
    ledgers: tuple[Ledger, ...]
