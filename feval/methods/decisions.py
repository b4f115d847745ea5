"""What the batch form of a method returns: answers, and what was consumed to get them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Decisions", "Ledger"]

Integers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Ledger:
    """What was consumed of one LLM, for R replicates and Q questions. All billings derive from it.

    Attributes:
        rounds: [R, Q] number of `sample` requests; 0 where the LLM was not asked.
        cots: [R, Q] CoTs handed out.
        output_tokens: [R, Q] tokens of those.
    """

    rounds: Integers
    cots: Integers
    output_tokens: Integers


@dataclass(frozen=True, eq=False)
class Decisions:
    """The outcome of a method for R replicates and Q questions.

    Attributes:
        answer: [R, Q] code of the answer, per question and shared by the LLMs of a load; -1 for no answer.
        ledgers: one per LLM, in the order of the LLMs.
    """

    answer: Integers
    ledgers: tuple[Ledger, ...]
