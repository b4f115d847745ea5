"""Choose the questions of an evaluation, a curve, a comparison or a forecast, once for all of its
numbers.

A question without a readable gold answer cannot be answered right, and one with too few CoTs cannot
be asked. Both raise an error, unless the caller drops such questions; their ids then stay with the
result and its receipt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np

from feval.errors import ShortPoolError, UnknownNameError, UnlabelledError, UsageError
from feval.methods.protocol import Bools
from feval.methods.protocol import Rows as Rows

if TYPE_CHECKING:
    from feval.replay import LLM, Dataset

CHOICES = ("refuse", "drop")
"""What to do about questions that cannot be evaluated."""

_SHOWN_IDS = 5


@dataclass(frozen=True)
class LeftOut:
    """Ids of the questions that the caller chose to leave out; false where there are none.

    Attributes:
        unlabelled: those without a gold answer, or with one that the answer kind cannot read.
        short_pools: those with fewer CoTs of some LLM than the largest budget.
    """

    unlabelled: tuple[str, ...] = ()
    short_pools: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.unlabelled or self.short_pools)

    def to_dict(self) -> dict[str, list[str]]:
        """Return the ids as JSON values."""
        return {"unlabelled": list(self.unlabelled), "short_pools": list(self.short_pools)}


NONE_LEFT_OUT = LeftOut()


class QuestionIds(Sequence[str]):
    """The ids of some rows of a dataset, each read when it is looked up."""

    def __init__(self, dataset: Dataset, rows: Rows) -> None:
        self._dataset, self._rows = dataset, rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return QuestionIds(self._dataset, self._rows[index])
        return self._dataset.question_ids[int(self._rows[index])]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equal to a list, which has none


@dataclass(frozen=True, eq=False)
class QuestionSet:
    """The questions that numbers are computed over: their rows [Q], and the ids of those that were
    dropped.
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
    """Return the questions to evaluate, from all or some rows.

    `budgets` are LLMs, each with the most CoTs per question that may be drawn from it.

    Raises:
        UnlabelledError: questions have no gold, with "refuse", or none has one.
        ShortPoolError: questions have too few CoTs, with "refuse", or all have.
        UnknownNameError: a choice that is neither "refuse" nor "drop".
        UsageError: short pools are to be dropped, and no budget says which are short.
    """
    for option, choice in (("unlabelled", unlabelled), ("short_pools", short_pools)):
        if choice not in CHOICES:
            raise UnknownNameError.of(f"choice for {option}", choice, CHOICES)
    if short_pools == "drop" and not budgets:
        raise UsageError(
            "Which pools are too short is not known: a function does not say how many CoTs it will"
            " ask for. Make a recording without the short ones: feval select RECORDING --min-cots N"
            " --out DIR."
        )
    candidates = np.arange(len(dataset)) if rows is None else np.array(rows, np.intp)
    labelled = dataset.gold[candidates] >= 0
    if not labelled.all():
        _check_labelled(dataset, candidates, labelled, unlabelled)
    rest = candidates if labelled.all() else candidates[labelled]
    enough = _enough(rest, budgets, short_pools)

    def names(left_out: Rows) -> tuple[str, ...]:
        # where none is, ids are not even read
        return tuple(dataset.question_ids[row] for row in left_out.tolist())

    return QuestionSet(
        rest if enough.all() else rest[enough],
        LeftOut(names(candidates[~labelled]), names(rest[~enough])),
    )


def _check_labelled(dataset: Dataset, rows: Rows, labelled: Bools, choice: str) -> None:
    """Raise for questions without golds, unless they are to be dropped and others are left."""
    if choice == "drop" and labelled.any():
        return
    without = rows[~labelled].tolist()
    lists = {
        "missing": [dataset.question_ids[row] for row in without if dataset[row].answer is None],
        "unreadable": [
            dataset.question_ids[row] for row in without if dataset[row].answer is not None
        ],
    }
    shown = "; ".join(f"{reason}: {_first(ids)}" for reason, ids in lists.items() if ids)
    if not labelled.any():
        raise UnlabelledError(
            f"None of the {len(rows)} questions of {dataset.id} has a gold answer that can be read"
            f" ({shown}), so nothing is right or wrong. Import or record them with golds (feval"
            " import --questions FILE)."
        )
    have = "has" if len(without) == 1 else "have"
    raise UnlabelledError(
        f"{len(without)} of {len(rows)} questions of {dataset.id} {have} no gold answer that can be"
        f" read ({shown}), so nothing is right or wrong there. Leave them out with --unlabelled"
        ' drop (unlabelled="drop" in Python), or add their golds (feval import --questions FILE).'
    )


def _first(ids: Sequence[str]) -> str:
    return ", ".join(ids[:_SHOWN_IDS]) + (", ..." if len(ids) > _SHOWN_IDS else "")


def _enough(rows: Rows, budgets: Sequence[tuple[LLM, int]], choice: str) -> Bools:
    """Return [Q] whether every LLM has enough CoTs on a question."""
    enough = np.ones(len(rows), np.bool_)
    for llm, most in budgets:
        enough &= llm.pool.sizes[rows] >= most
    if enough.all() or (choice == "drop" and enough.any()):
        return enough
    offer = (
        ' --short-pools drop (short_pools="drop" in Python) leaves out the'
        f" {np.count_nonzero(~enough)} of {len(rows)} questions with fewer."
        if enough.any()
        else ""
    )
    for llm, most in budgets:
        try:
            llm.require(rows, most)
        except ShortPoolError as error:
            raise ShortPoolError(f"{error}{offer}") from error
    raise ShortPoolError(
        "Every question has too few CoTs of one LLM or another; ask for fewer, or for fewer LLMs."
    )
