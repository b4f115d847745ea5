"""Choose the questions of an evaluation, a curve, a comparison or a forecast, once for all of its
numbers: which count, which belong together (clusters), and which are for training.

A question without a readable gold answer cannot be answered right, and one with too few CoTs cannot
be asked. Both raise an error, unless the caller drops such questions; their ids then stay with the
result and its receipt.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, overload

import numpy as np

from feval.arguments import checked
from feval.cards.reading import read_regular
from feval.errors import (
    NotRecordedError,
    OutOfRangeError,
    ShortPoolError,
    UnlabelledError,
    UsageError,
    require_known,
)
from feval.estimators.arrays import Integers, Result
from feval.methods.learners import deal_folds
from feval.methods.protocol import Bools, Rows as Rows
from feval.replay import without_gaps
from feval.replay.draws import ABSENT_SAMPLE, uniforms
from feval.values import frozen

if TYPE_CHECKING:
    from feval.replay import LLM, Dataset


_T = TypeVar("_T")

CHOICES = ("refuse", "drop")
"""What to do about questions that cannot be evaluated."""

_SHOWN_IDS = 5


@frozen
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


class ByRow(Sequence[_T]):
    """What some rows of a dataset have, such as their ids, each read when it is looked up."""

    def __init__(self, read: Callable[[int], _T], rows: Rows) -> None:
        self._read, self._rows = read, rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[_T]: ...
    def __getitem__(self, index: int | slice) -> _T | Sequence[_T]:
        if isinstance(index, slice):
            return ByRow(self._read, self._rows[index])
        return self._read(int(self._rows[index]))

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equal to a list, which has none


class QuestionSet(Result):
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
    by_cot: bool = False,
) -> QuestionSet:
    """Return the questions to evaluate, from all or some rows.

    `budgets` are LLMs, each with the most CoTs per question that may be drawn from it. `by_cot`:
    each CoT may be right or wrong by itself, and not all of its party are alike.

    Raises:
        UnlabelledError: questions have no gold, with "refuse", or none has one.
        ShortPoolError: questions have too few CoTs, with "refuse", or all have.
        UnknownNameError: a choice that is neither "refuse" nor "drop".
        UsageError: short pools are to be dropped, and no budget says which are short.
    """
    for option, choice in (("unlabelled", unlabelled), ("short_pools", short_pools)):
        require_known(f"choice for {option}", choice, CHOICES)
    if short_pools == "drop" and not budgets:
        raise UsageError(
            "Which pools are too short is not known: a function does not say how many CoTs it will"
            " ask for. Make a recording without the short ones: feval select RECORDING --min-cots N"
            " --out DIR."
        )
    candidates = np.arange(len(dataset)) if rows is None else np.array(rows, np.intp)
    labelled = dataset.gold[candidates] >= 0
    rest = candidates
    if not labelled.all():
        _check_labelled(dataset, candidates, labelled, unlabelled)
        rest = candidates[labelled]
    if not by_cot:
        _refuse_mixed(dataset, rest)
    enough = _enough(rest, budgets, short_pools)
    # where none is left out, ids are not even read
    left_out = (
        tuple(dataset.question_ids[row] for row in rows.tolist())
        for rows in (candidates[~labelled], rest[~enough])
    )
    return QuestionSet(rest if enough.all() else rest[enough], LeftOut(*left_out))


def _refuse_mixed(dataset: Dataset, rows: Rows) -> None:
    """Raise where what is right is no party of answers."""
    rightness = dataset.rightness
    mixed = int(rightness.is_mixed[rows].sum()) if rightness else 0
    if mixed:
        raise UsageError(
            f"On {mixed} of {len(rows)} questions of {dataset.id} several answers are right, or"
            " CoTs with equal answers are not equally right, and this is computed from counts of"
            " one right answer. `feval run`, `curve` and `compare` take such questions."
        )


def _check_labelled(dataset: Dataset, rows: Rows, labelled: Bools, choice: str) -> None:
    """Raise for questions without golds, unless they are to be dropped and others are left."""
    if choice == "drop" and labelled.any():
        return
    without = rows[~labelled].tolist()
    absent = "gold answer that can be read"
    remedy = "with golds (feval import --questions FILE)"
    if dataset.graders:
        graders = " and ".join(dict.fromkeys(dataset.graders.values()))
        absent = f"gold that can be read, and no verdict of {graders}"
        remedy += " or verdicts"
    elif dataset.right == "gold":
        remedy += (
            "; without --right gold (in Python: right='gold'), verdicts decide where some are"
            " recorded"
        )
    lists: dict[str, list[str]] = {"missing": [], "unreadable": []}
    for entry in map(dataset.__getitem__, without):
        lists["missing" if entry.answer is None else "unreadable"].append(entry.id)
    shown = "; ".join(
        f"{reason}: {', '.join(ids[:_SHOWN_IDS])}{', ...' * (len(ids) > _SHOWN_IDS)}"
        for reason, ids in lists.items()
        if ids
    )
    if not labelled.any():
        raise UnlabelledError(
            f"None of the {len(rows)} questions of {dataset.id} has a {absent} ({shown}), so"
            f" nothing is right or wrong. Import them {remedy}."
        )
    have = "has" if len(without) == 1 else "have"
    raise UnlabelledError(
        f"{len(without)} of {len(rows)} questions of {dataset.id} {have} no {absent} ({shown}), so"
        " nothing is right or wrong there. Leave them out with --drop unlabelled, or import them"
        f" {remedy}."
    )


def _enough(rows: Rows, budgets: Sequence[tuple[LLM, int]], choice: str) -> Bools:
    """Return [Q] whether every LLM has enough CoTs on a question."""
    enough = np.ones(len(rows), np.bool_)
    for llm, most in budgets:
        enough &= llm.pool.sizes[rows] >= most
    if enough.all() or (choice == "drop" and enough.any()):
        return enough
    offer = (
        " --drop short-pools leaves out the"
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


ClusterNames = str | Path | Mapping[str, str]
"""Question id -> cluster, or a CSV file of these."""

_MAX_BYTES = 64 << 20
_HEADER = {"id", "question", "question id", "question_id"}


def read_clusters(given: ClusterNames) -> Mapping[str, str]:
    """Return question id -> cluster from a CSV file of these two columns, with a header or without;
    a mapping as it is.

    Raises:
        UsageError: the file cannot be read or is no such table, or a question is in two clusters.
    """
    if isinstance(given, Mapping):
        return given
    try:
        text = read_regular(Path(given).expanduser(), _MAX_BYTES).decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"The clusters in {given} cannot be read: {reason}.") from error
    named: dict[str, str] = {}
    for number, row in enumerate(rows):
        if len(row) != 2:
            raise UsageError(
                f"Each line of {given} is a question id, a comma and a cluster; there is"
                f" {','.join(row)!r:.80}."
            )
        if number == 0 and row[0].strip().lower() in _HEADER:
            continue
        if not (cluster := row[1].strip()):
            raise UsageError(
                f"{given} names no cluster for the question {row[0]!r}; leave out those that belong"
                " to none."
            )
        if named.setdefault(row[0], cluster) != cluster:
            raise UsageError(
                f"{given} puts the question {row[0]!r} into two clusters, {named[row[0]]!r} and"
                f" {cluster!r}."
            )
    if not named:
        raise UsageError(
            f"{given} names no question; each line is a question id, a comma and a cluster."
        )
    return named


def question_clusters(
    dataset: Dataset, rows: Rows, given: ClusterNames | None = None
) -> Integers | None:
    """[Q] the number of each question's cluster, from 0; `None` where every question is one of its
    own.

    Clusters are numbered by their questions' keys, so that neither their names nor the order of the
    recording makes a difference.

    Args:
        dataset: from `load`.
        rows: the Q questions.
        given: question id -> cluster, or a file of these; a question that it does not name belongs
            to those with its text.

    Raises:
        NotRecordedError: the dataset lacks a question that is named.
        UsageError: see `read_clusters`.
    """
    codes = _equal_texts(dataset, rows)
    if given is None and (codes == np.arange(len(rows))).all():
        return None
    if given is not None:
        named = read_clusters(given)
        row_of = {name: row for row, name in enumerate(dataset.question_ids)}
        if unknown := [name for name in named if name not in row_of]:
            raise NotRecordedError(
                f"{len(unknown)} of the {len(named)} questions that clusters are named for are none"
                f" of {dataset.id}, such as {unknown[0]!r}; its {len(row_of)} ids begin with"
                f" {', '.join(dataset.question_ids[:3])}."
            )
        codes = _joined(codes, [named.get(dataset.question_ids[row]) for row in rows.tolist()])
    by_key = np.argsort(dataset.question_keys[without_gaps(rows)], kind="stable")
    _, first, codes_by_key = np.unique(codes[by_key], return_index=True, return_inverse=True)
    if len(first) == len(rows):
        return None
    codes[by_key] = np.argsort(np.argsort(first))[codes_by_key]
    return codes


@frozen
class ClusterSizes:
    """How many clusters some questions are, and how many questions the largest has."""

    number: int
    largest: int


def cluster_sizes(clusters: Integers | None) -> ClusterSizes | None:
    """The sizes of clusters; `None` where every question is one of its own."""
    if clusters is None:
        return None
    return ClusterSizes(int(clusters.max()) + 1, int(np.bincount(clusters).max()))


def _equal_texts(dataset: Dataset, rows: Rows) -> Integers:
    """[Q] the place of the first question with the same text and choices; an empty text is like no
    other.
    """
    codes, keys = np.arange(len(rows)), dataset.text_keys[without_gaps(rows)]
    ordered = np.sort(keys)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    first: dict[tuple[object, ...], int] = {}
    for place in np.flatnonzero(np.isin(keys, repeated)).tolist() if len(repeated) else ():
        entry = dataset[int(rows[place])]
        if entry.question.strip():
            codes[place] = first.setdefault((entry.question, entry.choices), place)
    return codes


def _joined(codes: Integers, names: list[str | None]) -> Integers:
    """[Q] codes in which questions with one code or one name have one code."""
    joined = list(range(len(codes)))

    def first(place: int) -> int:
        while joined[place] != place:
            joined[place] = place = joined[joined[place]]
        return place

    member: dict[str, int] = {}
    for place, (code, name) in enumerate(zip(codes.tolist(), names, strict=True)):
        others = [code] if name is None else [code, member.setdefault(name, place)]
        for other in others:
            joined[first(place)] = first(other)
    return np.array([first(place) for place in range(len(codes))])


@checked
def train_test_rows(
    dataset: Dataset,
    train_fraction: float,
    split_seed: int = 0,
    rows: Rows | None = None,
    *,
    group: str | None = None,
    clusters: ClusterNames | None = None,
) -> tuple[Rows, Rows]:
    """Split questions at random into training and test questions, each in recorded order.

    Questions are sorted by a hash of their key and the seed, and the first are for training, so
    that the order in which they were recorded makes no difference. Questions with equal texts stay
    on one side, and the share is then met as nearly as their number allows.

    Args:
        dataset: whose questions.
        train_fraction: between 0 and 1; at least one question is on each side.
        split_seed: other seeds give other splits.
        rows: which questions are split; `None` for all.
        group: a feature; questions with the same value of it stay on one side, too.
        clusters: the same for question id -> cluster, or a CSV file of these.

    Returns:
        Rows of training and of test questions.

    Raises:
        OutOfRangeError: a fraction that is not between 0 and 1, or fewer than two groups of
            questions.
        NotRecordedError: a question lacks the feature.
    """
    rows = np.arange(len(dataset)) if rows is None else rows
    [split] = splits(dataset, rows, train_fraction, None, split_seed, group, clusters)
    return split.train, split.test


class Split(NamedTuple):
    """Rows of training and of test questions, and [Q] which training questions stay together."""

    train: Rows
    test: Rows
    groups: Integers


def splits(
    dataset: Dataset,
    rows: Rows,
    train_fraction: float | None,
    folds: int | None,
    split_seed: int,
    group: str | None,
    clusters: ClusterNames | None,
) -> list[Split]:
    """One split, see `train_test_rows`; or one of each fold, in which questions are judged by what
    was learnt from all others; or none.

    Raises:
        UsageError: both a share and folds, or a group and neither.
        OutOfRangeError: a share that is not between 0 and 1; fewer than two folds; or fewer groups
            of questions than two, or than folds.
        NotRecordedError: a question lacks the feature.
    """
    if (train_fraction is not None) + (folds is not None) != 1:
        if train_fraction is None and folds is None and group is None:
            return []
        raise UsageError(
            "Methods learn from a share of the questions (--train-fraction) or from all other folds"
            " (--folds), one of the two, and --group keeps questions together there;"
            f" train_fraction={train_fraction}, folds={folds}, group={group!r} was given."
        )
    if train_fraction is not None and (not 0 < train_fraction < 1 or len(rows) < 2):
        raise OutOfRangeError(
            f"A split takes a share between 0 and 1 of two questions or more; {train_fraction} of"
            f" {len(rows)} was asked for."
        )
    groups = _split_groups(dataset, rows, split_seed, group, clusters)
    ends = np.bincount(groups).cumsum()
    if train_fraction is not None:
        if len(ends) < 2:
            raise OutOfRangeError(
                f"All {len(rows)} questions stay together, as equal texts, clusters and --group"
                " say, so that none is left to be judged."
            )
        parts = [groups > np.abs(ends[:-1] - round(train_fraction * len(rows))).argmin()]
    else:
        if not folds or not 2 <= folds <= len(ends):
            raise OutOfRangeError(
                f"{folds} folds were asked for; 2 or more can be had, and no more than there are"
                f" questions or groups of them that stay together, {len(ends)}."
            )
        dealt, order = np.empty_like(groups), np.argsort(groups, kind="stable")
        dealt[order] = deal_folds(groups[order].tolist(), folds)
        parts = [dealt == fold for fold in range(folds)]
    return [Split(rows[~test], rows[test], groups[~test]) for test in parts]


def _split_groups(
    dataset: Dataset, rows: Rows, seed: int, group: str | None, clusters: ClusterNames | None
) -> Integers:
    """[Q] the number of the group of questions that stay together, from 0, in random order."""
    codes = question_clusters(dataset, rows, clusters)
    codes = np.arange(len(rows)) if codes is None else codes
    if group is not None:
        values = [dataset[row].features.get(group) for row in rows.tolist()]
        if None in values:
            raise NotRecordedError(
                f"{values.count(None)} of {len(rows)} questions of {dataset.id} have no feature"
                f" {group!r}, such as {dataset.question_ids[int(rows[values.index(None)])]!r};"
                " questions are kept together by a feature that all of them have."
            )
        codes = _joined(np.unique(codes, return_index=True)[1][codes], values)
    keys = dataset.question_keys[without_gaps(rows)]
    # A sample that no draw has, so that the coins of methods are not those that chose the test
    # questions.
    absent = np.full((1, len(rows), 1), ABSENT_SAMPLE, np.uint16)
    coins = uniforms(keys, absent, seed)[0, :, 0]
    by_key = np.argsort(keys, kind="stable")  # the coin of a group is that of its least key
    _, first, groups = np.unique(codes[by_key], return_index=True, return_inverse=True)
    numbers = np.empty(len(rows), np.intp)
    numbers[by_key] = np.argsort(np.argsort(coins[by_key][first], kind="stable"))[groups]
    return numbers
