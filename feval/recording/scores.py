"""The scores channel: what scorers said of CoTs, as rows on the disk and as arrays for methods.

A scorer (a judge, a reward model, a function) gives a CoT one score, a score for each of its steps, or neither. A CoT that was
never given to it and one that it could not score both have no score; `Scores.scored` tells them apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.errors import ConflictError, NotRecordedError, UnknownNameError, UsageError
from feval.recording.content import ScorerInfo, ScoreRows
from feval.recording.layout.format import LeafHash

if TYPE_CHECKING:
    from feval.recording.reader import Recording

__all__ = [
    "AGGREGATES",
    "SCORE_COLUMNS",
    "ScoreTally",
    "Scores",
    "aggregate_scores",
    "scores_of_table",
    "verdicts_name",
]

AGGREGATES = ("score", "min", "product", "last", "mean", "sum")
"""Which number a CoT is judged by: its one score, or what its step scores become; process-reward papers use each of them."""

SCORE_COLUMNS = ("question_id", "sample_index", "score", "step_scores", "prompt_tokens", "output_tokens")
"""The columns that become arrays: all but the verdicts, which are texts."""

_MAX_TOKENS = 2**31 - 1
_COLUMNS = ("step_scores", "verdict", "prompt_tokens", "output_tokens")


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """One scorer's scores of one LLM on all questions of a dataset (Q questions, S the largest pool).

    Attributes:
        scorer: who gave them.
        values: [Q, S] float64; NaN where there is no score.
        scored: [Q, S] whether the CoT was given to the scorer.
        step_values: [N] float64, the step scores of all CoTs end to end, question by question.
        step_offsets: [Q * S + 1] int64; those of CoT s of question q begin at `step_offsets[q * S + s]`.
        prompt_tokens: [Q, S] int32, of the scorer's request; -1 where not known.
        output_tokens: [Q, S] int32, of the scorer's reply; -1 where not known.
    """

    scorer: ScorerInfo
    values: npt.NDArray[np.float64]
    scored: npt.NDArray[np.bool_]
    step_values: npt.NDArray[np.float64]
    step_offsets: npt.NDArray[np.int64]
    prompt_tokens: npt.NDArray[np.int32]
    output_tokens: npt.NDArray[np.int32]

    def steps(self, question: int, sample: int) -> npt.NDArray[np.float64]:
        """The step scores of one CoT (by the question's row and the sample index), in order; empty where there are none."""
        place = question * self.values.shape[1] + sample
        return self.step_values[self.step_offsets[place] : self.step_offsets[place + 1]]

    def aggregated(self, how: str) -> npt.NDArray[np.float64]:
        """One number per CoT: its score, or one made of its step scores.

        Args:
            how: one of `AGGREGATES`; "score" for the scores themselves, the others for step scores.

        Returns:
            [Q, S] float64; NaN where a CoT has none.

        Raises:
            UnknownNameError: no such aggregate.
        """
        if how not in AGGREGATES:
            raise UnknownNameError.of("way of aggregating step scores", how, AGGREGATES)
        if how == "score":
            return self.values.copy()
        starts, counts = self.step_offsets[:-1], np.diff(self.step_offsets)
        with_steps = counts > 0
        found = np.full(self.values.size, np.nan)
        starts = starts[with_steps]  # empty ones between them take no room, so each runs to the next
        if how == "last":
            found[with_steps] = self.step_values[self.step_offsets[1:][with_steps] - 1]
        elif starts.size:
            reduce = {"min": np.minimum, "product": np.multiply}.get(how, np.add)
            found[with_steps] = reduce.reduceat(self.step_values, starts)
            if how == "mean":
                found[with_steps] /= counts[with_steps]
        return found.reshape(self.values.shape)


def aggregate_scores(
    recording: Recording, dataset: str, llm: str, scorer: str, aggregate: str = "score"
) -> npt.NDArray[np.float64]:
    """One number per CoT of an LLM on a dataset, as a scorer gave it: what best-of-N chooses by.

    Args:
        recording: it holds the scores.
        dataset: its id.
        llm: its name.
        scorer: its name.
        aggregate: one of `AGGREGATES`; all but "score" make one number of a CoT's step scores.

    Returns:
        [Q, S] float64, questions and samples in recorded order, S the largest pool; NaN where a CoT has no such score.

    Raises:
        UnknownNameError: no such aggregate.
        NotRecordedError: no such dataset, LLM or scorer; or the scorer gave only scores where step scores are asked for, or the
            other way round.
        DamagedRecordingError: as for `Recording.scores`.
    """
    found = recording.scores(dataset, llm, scorer)
    values = found.aggregated(aggregate)
    other = found.step_values.size if aggregate == "score" else np.isfinite(found.values).any()
    if other and np.isnan(values).all():
        gave, take = (
            ("step scores", "min") if aggregate == "score" else ("one score per CoT and no step scores", "score")
        )
        raise NotRecordedError(
            f"The aggregate {aggregate!r} was asked of {scorer!r}, which gave {gave} for {llm} on {dataset}; take another "
            f"aggregate, such as {take!r}."
        )
    return values


def scores_of_table(scorer: ScorerInfo, table: Any, question_ids: Sequence[str], shape: tuple[int, ...]) -> Scores:
    """The arrays of a Parquet table of scores.

    Args:
        scorer: who gave them.
        table: as read by pyarrow, with the columns `SCORE_COLUMNS`.
        question_ids: Q ids, in recorded order.
        shape: [Q, S] of the LLM's pools.

    Raises:
        ValueError, IndexError: the table speaks of CoTs that are not there, or is out of order.
    """
    import pyarrow.compute as pc

    places = _places(table, {question: row for row, question in enumerate(question_ids)}, shape)
    size = shape[0] * shape[1]
    steps = table.column("step_scores").combine_chunks()
    lengths = np.zeros(size, np.int64)
    lengths[places] = pc.fill_null(pc.list_value_length(steps), 0).to_numpy()

    def spread(column: str, empty: Any, dtype: Any) -> npt.NDArray[Any]:
        array = np.full(size, empty, dtype)
        array[places] = pc.fill_null(table.column(column), empty).to_numpy()
        return array.reshape(shape)

    scored = np.zeros(size, np.bool_)
    scored[places] = True
    return Scores(
        scorer=scorer,
        values=spread("score", math.nan, np.float64),
        scored=scored.reshape(shape),
        step_values=np.asarray(pc.list_flatten(steps).to_numpy(), np.float64),
        step_offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        prompt_tokens=spread("prompt_tokens", -1, np.int32),
        output_tokens=spread("output_tokens", -1, np.int32),
    )


def _places(table: Any, rows: Mapping[str, int], shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """The place of each row of a table in a flattened [Q, S]."""
    ids = table.column("question_id").combine_chunks().dictionary_encode()
    row_of = np.array([rows.get(question, -1) for question in ids.dictionary.to_pylist()], np.int64)
    samples = table.column("sample_index").to_numpy().astype(np.int64)
    places = row_of[ids.indices.to_numpy()] * shape[1] + samples if len(samples) else samples
    if len(samples) and ((row_of < 0).any() or samples.min() < 0 or samples.max() >= shape[1]):
        raise ValueError("values of CoTs that are not recorded")
    if (np.diff(places) <= 0).any():
        raise ValueError("values out of order")
    found: npt.NDArray[np.int64] = places
    return found


def verdicts_name(judge: str, against: str, shift: int = 0) -> str:
    """Name of the scorer under which the verdicts of a judge on two LLMs' CoTs are kept with the first LLM.

    A verdict is a score: 1 where the CoT was preferred, 0 where the other one was, 0.5 for a tie, none where there is no verdict.

    Args:
        judge: its name, such as "pairwise:gpt-4o-mini".
        against: the second LLM.
        shift: CoT s of the first was compared with CoT s + shift of the second (the first ones follow on the last).
    """
    return f"{judge}:vs={against}" + (f":shift={shift}" if shift else "")


class ScoreTally:
    """Checks one scorer's rows of one LLM on one dataset as they pass; makes their leaf and what the manifest says of them.

    Args:
        scorer: whose they are.
        who: scorer, LLM and dataset, for messages.
        sizes: question id -> recorded CoTs, in the order of the questions.
    """

    def __init__(self, scorer: ScorerInfo, who: str, sizes: Mapping[str, int]) -> None:
        self._scorer, self._who = scorer, who
        self._sizes = sizes
        self._rows = {question: row for row, question in enumerate(sizes)}
        self._last = -1
        self._counts = dict.fromkeys(("cots", "with_score", "with_steps", "prompt_tokens", "output_tokens"), 0)
        self._leaf = LeafHash()
        self._add_line([scorer.name, scorer.kind, dict(scorer.parameters)])

    def add(self, rows: ScoreRows) -> dict[str, Sequence[Any]]:
        """Check and count the rows of one question.

        Returns:
            Column -> values, as they are to be stored.

        Raises:
            ConflictError: a question or CoT that is not recorded, comes twice or out of order.
            UsageError: a value that cannot be stored.
        """
        self._check_keys(rows)
        columns = self._columns(rows)
        kept = {name: columns[name] for name in _COLUMNS if any(value is not None for value in columns[name])}
        self._add_line([rows.question_id, columns["sample_index"], columns["score"], kept])
        self._counts["cots"] += len(rows.sample_indices)
        self._counts["with_score"] += sum(score is not None for score in columns["score"])
        self._counts["with_steps"] += sum(steps is not None for steps in columns["step_scores"])
        for name in ("prompt_tokens", "output_tokens"):
            self._counts[name] += sum(tokens or 0 for tokens in columns[name])
        return {"question_id": [rows.question_id] * len(rows.sample_indices), **columns}

    def leaf(self) -> str:
        """The leaf of what was added."""
        return self._leaf.hexdigest()

    def record(self, dataset: str, llm: str) -> dict[str, Any]:
        """What the manifest says."""
        return {"dataset": dataset, "llm": llm, "scorer": self._scorer.name, **self._counts}

    def _check_keys(self, rows: ScoreRows) -> None:
        row = self._rows.get(rows.question_id)
        if row is None:
            raise ConflictError(f"{self._who}: {rows.question_id!r} is no recorded question.")
        if row <= self._last:
            raise ConflictError(f"{self._who}: the scores of {rows.question_id!r} come twice or out of order.")
        self._last = row
        indices, size = list(rows.sample_indices), self._sizes[rows.question_id]
        if any(not 0 <= index < size for index in indices):
            raise ConflictError(
                f"{self._who}: {rows.question_id!r} has {size} CoTs, and CoT {max(indices, key=abs)} was scored."
            )
        if any(one >= other for one, other in pairwise(indices)):
            raise ConflictError(f"{self._who}: CoTs of {rows.question_id!r} come twice or out of order.")

    def _columns(self, rows: ScoreRows) -> dict[str, Sequence[Any]]:
        size = len(rows.sample_indices)
        given = {
            "step_scores": rows.step_scores,
            "verdict": rows.verdicts,
            "prompt_tokens": rows.prompt_tokens,
            "output_tokens": rows.output_tokens,
        }
        columns: dict[str, Sequence[Any]] = {"sample_index": list(rows.sample_indices), "score": rows.scores}
        columns |= {name: [None] * size if column is None else list(column) for name, column in given.items()}
        if any(len(column) != size for column in columns.values()):
            lengths = [len(column) for column in columns.values()]
            raise UsageError(f"{self._who}, {rows.question_id!r}: the columns have different lengths, {lengths}.")
        columns["score"] = [None if score is None else self._number(score, rows) for score in rows.scores]
        columns["step_scores"] = [
            [self._number(step, rows) for step in steps] if steps else None for steps in columns["step_scores"]
        ]
        for name in ("prompt_tokens", "output_tokens"):
            if any(tokens is not None and not 0 <= tokens <= _MAX_TOKENS for tokens in columns[name]):
                raise UsageError(f"{self._who}, {rows.question_id!r}: {name} should be 0 to {_MAX_TOKENS}.")
            columns[name] = [None if tokens is None else int(tokens) for tokens in columns[name]]
        return columns

    def _number(self, value: float, rows: ScoreRows) -> float:
        if isinstance(value, (bool, str)) or not math.isfinite(value):
            raise UsageError(
                f"{self._who}, {rows.question_id!r}: a score is a finite number or None; {value!r} was given."
            )
        return float(value)

    def _add_line(self, line: list[Any]) -> None:
        try:
            self._leaf.add(line)
        except TypeError as error:
            raise UsageError(
                f"{self._who}: a parameter or verdict cannot be stored ({error}); parameters are JSON values, text is valid "
                "Unicode."
            ) from error
