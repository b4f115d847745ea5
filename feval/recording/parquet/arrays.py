"""From Parquet tables of optional channels to arrays: scores and log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from feval.recording.content import ScorerInfo
from feval.recording.logprobs import Ragged, TokenLogprobs
from feval.recording.scores import Scores


def scores_of_tables(
    scorer: ScorerInfo, tables: Iterable[Any], question_ids: Sequence[str], shape: tuple[int, int]
) -> Scores:
    """Return the arrays [Q, S] of tables with the columns `SCORE_COLUMNS`, one per row group; wrong
    places are a `ValueError`.
    """
    size = shape[0] * shape[1]
    columns = {"score": np.full(size, math.nan), "prompt_tokens": np.full(size, -1, np.int32)}
    columns["output_tokens"] = columns["prompt_tokens"].copy()
    scored, steps = np.zeros(size, np.bool_), _Lists(shape, np.float64)
    for places, table in _placed(tables, question_ids, shape):
        for name, values in columns.items():
            values[places] = pc.fill_null(
                table.column(name), values.dtype.type(math.nan if name == "score" else -1)
            ).to_numpy()
        scored[places] = True
        steps.add(table.column("step_scores").combine_chunks(), places)
    ragged = steps.ragged()
    return Scores(
        scorer=scorer,
        values=columns["score"].reshape(shape),
        scored=scored.reshape(shape),
        step_values=ragged.values,
        step_offsets=ragged.offsets,
        prompt_tokens=columns["prompt_tokens"].reshape(shape),
        output_tokens=columns["output_tokens"].reshape(shape),
    )


def _placed(
    tables: Iterable[Any], question_ids: Sequence[str], shape: tuple[int, ...]
) -> Iterator[tuple[npt.NDArray[np.int64], Any]]:
    """Yield tables with the places of their rows, each behind the last."""
    rows, last = {question: row for row, question in enumerate(question_ids)}, -1
    for table in tables:
        places = _places(table, rows, shape, last)
        last = int(places[-1]) if len(places) else last
        yield places, table


def _places(
    table: Any, rows: Mapping[str, int], shape: tuple[int, ...], before: int
) -> npt.NDArray[np.int64]:
    """Return the place of each row of a table in a flattened [Q, S]; all lie behind the place
    `before`.
    """
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


def logprobs_of_tables(
    tables: Iterable[Any], question_ids: Sequence[str], shape: tuple[int, int]
) -> TokenLogprobs:
    """Return the arrays [Q, S] of tables of log-probabilities, one per row group; wrong places are
    a `ValueError`.
    """
    sequence = np.full(shape[0] * shape[1], np.nan)
    lists = {
        column: _Lists(shape, np.float32) for column in ("token_confidences", "token_logprobs")
    }
    for places, table in _placed(tables, question_ids, shape):
        sequence[places] = pc.fill_null(table.column("sequence_logprob"), math.nan).to_numpy()
        for column, values in lists.items():
            values.add(table.column(column).combine_chunks(), places)
    return TokenLogprobs(
        sequence.reshape(shape),
        lists["token_confidences"].ragged(),
        lists["token_logprobs"].ragged(),
    )


class _Lists:
    """The values of a column of lists, table by table."""

    def __init__(self, shape: tuple[int, int], dtype: type[np.floating[Any]]) -> None:
        self._shape = shape
        self._lengths = np.zeros(shape[0] * shape[1], np.int64)
        self._values: list[npt.NDArray[Any]] = [np.empty(0, dtype)]

    def add(self, column: Any, places: npt.NDArray[np.int64]) -> None:
        self._lengths[places] = pc.fill_null(pc.list_value_length(column), 0).to_numpy(
            zero_copy_only=False
        )
        self._values.append(
            pc.list_flatten(column)
            .to_numpy(zero_copy_only=False)
            .astype(self._values[0].dtype, copy=False)
        )

    def ragged(self) -> Ragged:
        offsets = np.concatenate([[0], np.cumsum(self._lengths)]).astype(np.int64)
        return Ragged(np.concatenate(self._values), offsets, self._shape)
