"""Evaluate a method on a dataset: per replicate and question, what it answered, whether that is right, what it consumed.

The method sees pools and orders. The gold answers are looked at here, after the method has decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from feval.methods.decisions import Decisions, Ledger
    from feval.replay import LLM, Dataset, Pool

__all__ = ["MAX_REPLICATES", "ORDERS", "BatchMethod", "Evaluation", "drawn_codes", "drawn_orders", "evaluate"]

ORDERS = ("exact", "recorded", "seeded")
"""How CoTs are drawn: the expectation over all draws, the order of the recording, or seeded replicates."""

MAX_REPLICATES = 1_000_000
"""Most draws of every question: beyond it nothing is gained, and a slip of the finger would run for days."""

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
        UsageError: no LLM, one from another `load`, or fewer than one replicate.
    """
    if order not in ORDERS:
        raise UnknownNameError.of("order", order, ORDERS)
    if order == "exact":
        raise UsageError("Seeded and recorded evaluations draw CoTs; an exact expectation comes from `feval.curves`.")
    if not llms or replicates < 1:
        raise UsageError(f"An evaluation needs an LLM and a replicate; {len(llms)} and {replicates} were given.")
    dataset.require(llms)
    for llm in llms:
        llm.require(None, method.draws)
    parts = [
        method.decide([llm.pool for llm in llms], orders)
        for orders in zip(*(drawn_orders(llm, order, replicates, method.draws) for llm in llms), strict=True)
    ]
    return _joined(order, parts, dataset)


def drawn_orders(llm: LLM, order: str, replicates: int, draws: int) -> Iterator[npt.NDArray[np.uint16]]:
    """The draws of an LLM, some replicates at a time so that memory stays bounded.

    Args:
        llm: a recorded LLM.
        order: "recorded" (one replicate) or "seeded".
        replicates: how many, for "seeded".
        draws: CoTs per draw, at most the smallest pool.

    Yields:
        [R, Q, draws] recorded places.

    Raises:
        OutOfRangeError: more than `MAX_REPLICATES`.
    """
    questions = len(llm.pool.sizes)
    if order == "recorded":
        yield np.broadcast_to(np.arange(draws, dtype=np.uint16), (1, questions, draws))
        return
    if replicates > MAX_REPLICATES:
        raise OutOfRangeError(
            f"{replicates:,} replicates were asked for; {MAX_REPLICATES:,} is the most. Where a method has an exact expectation, "
            "take that instead (--order exact)."
        )
    size = max(1, _CHUNK_CODES // max(questions * draws, 1))
    for start in range(0, replicates, size):
        yield llm.orders(range(start, min(start + size, replicates)), draws)


def drawn_codes(pool: Pool, orders: npt.NDArray[np.uint16]) -> npt.NDArray[np.integer[Any]]:
    """[R, Q, draws] answer codes in the order of the draws."""
    rows = np.arange(len(pool.sizes), dtype=np.intp) * pool.codes.shape[1]
    codes: npt.NDArray[np.integer[Any]] = pool.codes.ravel().take(orders + rows[:, None])
    return codes


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
