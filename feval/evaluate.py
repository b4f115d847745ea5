"""Evaluate a method on a dataset: per replicate and question, what it answered, whether that is right, what it consumed.

The method sees pools and orders. The gold answers are looked at here, after the method has decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from feval.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from feval.methods.decisions import Decisions, Ledger
    from feval.replay import LLM, Dataset, Pool

__all__ = ["ORDERS", "BatchMethod", "Evaluation", "evaluate", "recorded_orders"]

ORDERS = ("exact", "recorded", "seeded")
"""How CoTs are drawn: the expectation over all draws, the order of the recording, or seeded replicates."""

_CHUNK_CODES = 1 << 22


class BatchMethod(Protocol):
    """What `evaluate` needs of a method: the batch form, and how many CoTs of each LLM it may look at."""

    @property
    def draws(self) -> int:
        """Most CoTs it can ask of each LLM on one question."""

    def decide(self, pools: Sequence[Pool], orders: Sequence[npt.NDArray[np.uint16]]) -> Decisions:
        """Answers and ledgers for [R, Q, draws] orders, one per pool."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One method on one dataset: R replicates, Q questions.

    Attributes:
        kind: "recorded" (R = 1) or "seeded".
        answer: [R, Q] code of the answer, -1 for no answer.
        correct: [R, Q] whether it equals the gold.
        ledgers: what was consumed, [R, Q] per LLM.
    """

    kind: str
    answer: npt.NDArray[np.integer[Any]]
    correct: npt.NDArray[np.bool_]
    ledgers: tuple[Ledger, ...]

    @property
    def accuracy(self) -> float:
        """Mean over questions of the share of replicates that are right."""
        return float(self.correct.mean())


def evaluate(
    method: BatchMethod, dataset: Dataset, llms: Sequence[LLM], *, order: str = "seeded", replicates: int = 100
) -> Evaluation:
    """Run a method's batch form over a whole dataset.

    Args:
        method: a built-in method.
        dataset: from `load`; only this function looks at its golds.
        llms: from the same `load`, in the order the method wants them.
        order: "recorded" or "seeded"; expectations over all draws are taken where a method has them, see `feval.curves`.
        replicates: how many draws of every question, for "seeded".

    Raises:
        ShortPoolError: a pool is smaller than what the method may ask for; the message names the question.
        UnknownNameError: no such order.
        UsageError: no LLM, or fewer than one replicate.
    """
    if order not in ORDERS:
        raise UnknownNameError.of("order", order, ORDERS)
    if order == "exact":
        raise UsageError("Seeded and recorded evaluations draw CoTs; an exact expectation comes from `feval.curves`.")
    if not llms or replicates < 1:
        raise UsageError(f"An evaluation needs an LLM and a replicate; {len(llms)} and {replicates} were given.")
    for llm in llms:
        llm.require(None, method.draws)
    if order == "recorded":
        parts = [method.decide([llm.pool for llm in llms], [recorded_orders(llm.pool, method.draws) for llm in llms])]
    else:
        parts = [_decide(method, llms, block) for block in _blocks(replicates, len(dataset) * method.draws)]
    return _joined(order, parts, dataset)


def recorded_orders(pool: Pool, draws: int) -> npt.NDArray[np.uint16]:
    """[1, Q, draws]: the first CoTs in the order of the recording."""
    order = np.arange(draws, dtype=np.uint16)
    return np.broadcast_to(order, (1, len(pool.sizes), draws))


def _blocks(replicates: int, codes_each: int) -> list[range]:
    """Replicates in chunks that keep the arrays of one chunk small."""
    size = max(1, _CHUNK_CODES // max(codes_each, 1))
    return [range(start, min(start + size, replicates)) for start in range(0, replicates, size)]


def _decide(method: BatchMethod, llms: Sequence[LLM], replicates: range) -> Decisions:
    return method.decide([llm.pool for llm in llms], [llm.orders(replicates, method.draws) for llm in llms])


def _joined(kind: str, parts: Sequence[Decisions], dataset: Dataset) -> Evaluation:
    from feval.methods.decisions import Ledger

    answer = np.concatenate([part.answer for part in parts])
    ledgers = tuple(
        Ledger(
            rounds=np.concatenate([part.ledgers[i].rounds for part in parts]),
            cots=np.concatenate([part.ledgers[i].cots for part in parts]),
            output_tokens=np.concatenate([part.ledgers[i].output_tokens for part in parts]),
        )
        for i in range(len(parts[0].ledgers))
    )
    return Evaluation(kind, answer, (answer == dataset.gold) & (answer >= 0), ledgers)
