"""From Parquet tables of optional channels to arrays: scores and log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from feval.recording.content import ScorerInfo
from feval.recording.logprobs import Ragged, TokenLogprobs
from feval.recording.scores import Scores


def scores_of_table(scorer: ScorerInfo, table: Any, question_ids: Sequence[str], shape: tuple[int, ...]) -> Scores:
    """Return the arrays [Q, S] of a table with the columns `SCORE_COLUMNS`; wrong places or order are a `ValueError`."""
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


def _places(table: Any, rows: Mapping[str, int], shape: tuple[int, ...], before: int = -1) -> npt.NDArray[np.int64]:
    """Return the place of each row of a table in a flattened [Q, S]; all lie behind the place `before`."""
    ids = table.column("question_id").combine_chunks().dictionary_encode()
    row_of = np.array([rows.get(question, -1) for question in ids.dictionary.to_pylist()], np.int64)
    samples: npt.NDArray[np.int64] = table.column("sample_index").to_numpy().astype(np.int64)
    if not len(samples):
        return samples
    if (row_of < 0).any() or samples.min() < 0 or samples.max() >= shape[1]:
        raise ValueError("values of CoTs that are not recorded")
    places: npt.NDArray[np.int64] = row_of[ids.indices.to_numpy()] * shape[1] + samples
    if (np.diff(places, prepend=before) <= 0).any():
        raise ValueError("values out of order")
    return places


def logprobs_of_tables(tables: Iterable[Any], question_ids: Sequence[str], shape: tuple[int, int]) -> TokenLogprobs:
    """Return the arrays [Q, S] of tables of log-probabilities, one per row group; wrong places are a `ValueError`."""
    rows = {question: row for row, question in enumerate(question_ids)}
    sequence = np.full(shape[0] * shape[1], np.nan)
    lists = {column: _Lists(shape) for column in ("token_confidences", "token_logprobs")}
    last = -1
    for table in tables:
        places = _places(table, rows, shape, last)
        last = int(places[-1]) if len(places) else last
        sequence[places] = pc.fill_null(table.column("sequence_logprob"), math.nan).to_numpy()
        for column, values in lists.items():
            values.add(table.column(column).combine_chunks(), places)
    return TokenLogprobs(sequence.reshape(shape), lists["token_confidences"].ragged(), lists["token_logprobs"].ragged())


class _Lists:
    """The values of a column of lists, table by table."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self._shape = shape
        self._lengths = np.zeros(shape[0] * shape[1], np.int64)
        self._values: list[npt.NDArray[Any]] = [np.empty(0, np.float32)]

    def add(self, column: Any, places: npt.NDArray[np.int64]) -> None:
        self._lengths[places] = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        self._values.append(pc.list_flatten(column).to_numpy(zero_copy_only=False).astype(np.float32, copy=False))

    def ragged(self) -> Ragged:
        offsets = np.concatenate([[0], np.cumsum(self._lengths)]).astype(np.int64)
        return Ragged(np.concatenate(self._values), offsets, self._shape)
