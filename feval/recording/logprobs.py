"""The logprobs channel as arrays: what was kept of the tokens of each CoT."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Ragged", "TokenLogprobs", "logprobs_of_tables"]


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """A list of numbers for each of Q x S CoTs, end to end.

    Attributes:
        values: [N] all numbers, question by question, CoT by CoT.
        offsets: [Q * S + 1] those of CoT s of question q begin at `offsets[q * S + s]`.
        shape: (Q, S).
    """

    values: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64]
    shape: tuple[int, int]

    def of(self, question: int, sample: int) -> npt.NDArray[Any]:
        """The numbers of one CoT; empty where there are none."""
        place = question * self.shape[1] + sample
        return self.values[self.offsets[place] : self.offsets[place + 1]]

    def of_question(self, question: int) -> npt.NDArray[Any]:
        """The numbers of all CoTs of a question, end to end."""
        first = question * self.shape[1]
        return self.values[self.offsets[first] : self.offsets[first + self.shape[1]]]

    def lengths(self) -> npt.NDArray[np.int64]:
        """[Q, S] how many numbers each CoT has."""
        return np.diff(self.offsets).reshape(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class TokenLogprobs:
    """What the tokens of each CoT say of its confidence.

    Attributes:
        sequence: [Q, S] float64, sum of the log-probabilities of the sampled tokens; NaN where not kept.
        confidences: per token, minus the mean log-probability of the k most probable tokens (DeepConf); empty where not kept.
        logprobs: per token, the log-probability of the sampled one; empty where not kept.
    """

    sequence: npt.NDArray[np.float64]
    confidences: Ragged
    logprobs: Ragged


def logprobs_of_tables(tables: Iterable[Any], question_ids: Sequence[str], shape: tuple[int, int]) -> TokenLogprobs:
    """The arrays of Parquet tables of log-probabilities.

    Args:
        tables: as read by pyarrow, one row group after the other.
        question_ids: Q ids, in recorded order.
        shape: (Q, S) of the LLM's pools.

    Raises:
        ValueError: the tables speak of CoTs that are not there, or are out of order.
    """
    import pyarrow.compute as pc

    rows = {question: row for row, question in enumerate(question_ids)}
    sequence = np.full(shape[0] * shape[1], np.nan)
    lists = {column: _Lists(shape) for column in ("token_confidences", "token_logprobs")}
    last = -1
    for table in tables:
        ids = table.column("question_id").combine_chunks().dictionary_encode()
        row_of = np.array([rows.get(question, -1) for question in ids.dictionary.to_pylist()], np.int64)
        samples = table.column("sample_index").to_numpy().astype(np.int64)
        places = row_of[ids.indices.to_numpy()] * shape[1] + samples
        if (row_of < 0).any() or (samples < 0).any() or (samples >= shape[1]).any():
            raise ValueError("log-probabilities of CoTs that are not recorded")
        if (np.diff(places, prepend=last) <= 0).any():
            raise ValueError("log-probabilities out of order")
        last = places[-1] if len(places) else last
        sequence[places] = pc.fill_null(table.column("sequence_logprob"), math.nan).to_numpy()
        for column, kept in lists.items():
            kept.add(table.column(column).combine_chunks(), places)
    return TokenLogprobs(sequence.reshape(shape), lists["token_confidences"].ragged(), lists["token_logprobs"].ragged())


class _Lists:
    """A column of lists, gathered."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self._shape = shape
        self._lengths = np.zeros(shape[0] * shape[1], np.int64)
        self._values: list[npt.NDArray[Any]] = [np.empty(0, np.float32)]

    def add(self, column: Any, places: npt.NDArray[np.int64]) -> None:
        import pyarrow.compute as pc

        self._lengths[places] = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        self._values.append(pc.list_flatten(column).to_numpy(zero_copy_only=False).astype(np.float32, copy=False))

    def ragged(self) -> Ragged:
        offsets = np.concatenate([[0], np.cumsum(self._lengths)]).astype(np.int64)
        return Ragged(np.concatenate(self._values), offsets, self._shape)
