"""Which questions an evaluation, a curve, a comparison or a forecast is over: decided here, once for all of its numbers.

A question without a gold answer that can be read cannot be answered right, and one with too few CoTs cannot be asked. Both are
refused, unless the caller leaves such questions out; then the ids of those left out stay with the result and its receipt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from feval.errors import ShortPoolError, UnknownNameError, UnlabelledError, UsageError

if TYPE_CHECKING:
    from feval.replay import LLM, Dataset

__all__ = ["CHOICES", "NONE_LEFT_OUT", "LeftOut", "QuestionSet", "question_set"]

CHOICES = ("refuse", "drop")
"""What is done about questions that cannot be evaluated."""

_SHOWN_IDS = 5

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class LeftOut:
    """Ids of the questions that were left out because the caller asked for it; false where there are none.

    Attributes:
        unlabelled: without a gold answer, or with one that the answer kind cannot read.
        short_pools: with fewer CoTs of some LLM than the largest budget.
    """

    unlabelled: tuple[str, ...] = ()
    short_pools: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.unlabelled or self.short_pools)

    def to_dict(self) -> dict[str, list[str]]:
        """The ids as JSON values."""
        return {"unlabelled": list(self.unlabelled), "short_pools": list(self.short_pools)}


NONE_LEFT_OUT = LeftOut()


@dataclass(frozen=True, eq=False)
class QuestionSet:
    """The questions that numbers are over.

    Attributes:
        rows: [Q] rows of the dataset.
        left_out: the others, where the caller asked to leave them out.
    """

    rows: Rows
    left_out: LeftOut


def question_set(
    dataset: Dataset,
    budgets: Sequence[tuple[LLM, int]] = (),
    *,
    rows: Sequence[int] | Rows | None = None,
    unlabelled: str = "refuse",
    short_pools: str = "refuse",
) -> QuestionSet:
    """Decide which questions are evaluated.

    Args:
        dataset: from `load`.
        budgets: LLMs of the same `load`, each with the most CoTs per question that it may be asked for.
        rows: candidates, by row; `None` for all questions.
        unlabelled: "refuse" or "drop" questions without a gold answer that can be read.
        short_pools: "refuse" or "drop" questions with fewer CoTs of some LLM than its budget.

    Raises:
        UnlabelledError: questions without a gold, with "refuse", or nothing but such questions.
        ShortPoolError: questions with too few CoTs, with "refuse", or nothing but such questions.
        UnknownNameError: a choice that is neither "refuse" nor "drop".
        UsageError: short pools are to be dropped and no budget says which are short.
    """
    for option, choice in (("unlabelled", unlabelled), ("short_pools", short_pools)):
        if choice not in CHOICES:
            raise UnknownNameError.of(f"choice for {option}", choice, CHOICES)
    if short_pools == "drop" and not budgets:
        raise UsageError(
            "Which pools are too short is not known: a method that is a function does not say how many CoTs it will ask for. "
            "Derive a recording without the short ones: feval select RECORDING --min-cots N --out DIR."
        )
    candidates = np.arange(len(dataset)) if rows is None else np.asarray(rows, np.intp)
    labelled = dataset.gold[candidates] >= 0
    if not labelled.all():
        _check_labelled(dataset, candidates, labelled, unlabelled)
    enough = _enough(candidates[labelled], budgets, short_pools)
    ids = dataset.question_ids

    def named(some: Rows) -> tuple[str, ...]:
        return tuple(ids[row] for row in some.tolist())

    kept = candidates[labelled]
    return QuestionSet(kept[enough], LeftOut(named(candidates[~labelled]), named(kept[~enough])))


def _check_labelled(dataset: Dataset, rows: Rows, labelled: npt.NDArray[np.bool_], choice: str) -> None:
    """Refuse questions without golds, unless they are to be dropped and some others are left."""
    if choice == "drop" and labelled.any():
        return
    without = rows[~labelled].tolist()
    lists = {
        "missing": [dataset.question_ids[row] for row in without if dataset[row].answer is None],
        "unreadable": [dataset.question_ids[row] for row in without if dataset[row].answer is not None],
    }
    shown = "; ".join(f"{reason}: {_first(ids)}" for reason, ids in lists.items() if ids)
    if not labelled.any():
        raise UnlabelledError(
            f"None of the {len(rows)} questions of {dataset.id} has a gold answer that can be read ({shown}), so nothing is "
            "right or wrong. Import or record them with golds (feval import --questions FILE)."
        )
    have = "has" if len(without) == 1 else "have"
    raise UnlabelledError(
        f"{len(without)} of {len(rows)} questions of {dataset.id} {have} no gold answer that can be read ({shown}), so nothing "
        "is right or wrong there. Leave them out with --unlabelled drop "
        '(unlabelled="drop" in Python), or add their golds (feval import --questions FILE).'
    )


def _first(ids: Sequence[str]) -> str:
    return ", ".join(ids[:_SHOWN_IDS]) + (", ..." if len(ids) > _SHOWN_IDS else "")


def _enough(rows: Rows, budgets: Sequence[tuple[LLM, int]], choice: str) -> npt.NDArray[np.bool_]:
    """[Q] whether every LLM has as many CoTs on a question as it may be asked for."""
    enough = np.ones(len(rows), np.bool_)
    for llm, most in budgets:
        enough &= llm.pool.sizes[rows] >= most
    if enough.all() or (choice == "drop" and enough.any()):
        return enough
    offer = (
        f' --short-pools drop (short_pools="drop" in Python) leaves out the {np.count_nonzero(~enough)} of {len(rows)} questions '
        "with fewer."
        if enough.any()
        else ""
    )
    for llm, most in budgets:
        try:
            llm.require(rows, most)
        except ShortPoolError as error:
            raise ShortPoolError(f"{error}{offer}") from error
    raise ShortPoolError("Every question has too few CoTs of one LLM or another; ask for fewer, or for fewer LLMs.")
