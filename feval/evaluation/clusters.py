"""Clusters: which questions are one piece of evidence, those with the same text and those that a
file names together.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from feval.cards.reading import read_regular
from feval.errors import NotRecordedError, UsageError
from feval.estimators.arrays import Integers
from feval.methods.protocol import Rows
from feval.replay.pools import without_gaps

if TYPE_CHECKING:
    from feval.replay import Dataset

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


def learnt_from(
    dataset: Dataset, train: Rows, test: Rows, given: ClusterNames | None = None
) -> list[str]:
    """Return a warning where test questions are of the clusters of training questions; nothing
    where none is.
    """
    rows = np.sort(np.concatenate([train, test]))
    codes, learnt = question_clusters(dataset, rows, given), np.isin(rows, train)
    if codes is None or not (seen := int(np.isin(codes[~learnt], codes[learnt]).sum())):
        return []
    sentence = (
        f"{seen:,} of the {len(test):,} questions have the text of a training question or are in a"
        " cluster with one, so what was learnt may be flattered. Leave repeated questions out, or"
        " judge on others."
    )
    return [sentence]


@dataclass(frozen=True)
class ClusterSizes:
    """How many clusters some questions are, and how many questions the largest has."""

    number: int
    largest: int


def cluster_sizes(clusters: Integers | None) -> ClusterSizes | None:
    """The sizes of clusters; `None` where every question is one of its own."""
    return (
        None
        if clusters is None
        else ClusterSizes(int(clusters.max()) + 1, int(np.bincount(clusters).max()))
    )


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
