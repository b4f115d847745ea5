"""Probes as arrays: the answers that an LLM gave when it was made to answer after some tokens of a
trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import NotRecordedError


@dataclass(frozen=True, slots=True, eq=False)
class Probes:
    """The probes of one LLM's CoTs on Q questions (S the largest pool), end to end by question,
    sample and offset.

    Attributes:
        interval: output tokens between probes where every trace was probed at interval, 2 x
            interval, ...; `None` otherwise.
        starts: [Q * S + 1] int64; those of CoT s of question q begin at `starts[q * S + s]`.
        offsets: [N] uint32, output tokens of the trace before each probe, rising within a CoT.
        codes: [N] answer codes, of the same table as the final answers of the pool; -1 for no
            answer.
        output_tokens: [N] int16 or int32, tokens of each probe's own reply, -1 where not known;
            `None` where none is known.
        confidences: [N] float32, NaN where there is none; `None` where none was recorded.
        shape: (Q, S).
    """

    interval: int | None
    starts: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.uint32]
    codes: npt.NDArray[np.integer[Any]]
    output_tokens: npt.NDArray[np.integer[Any]] | None
    confidences: npt.NDArray[np.float32] | None
    shape: tuple[int, int]

    @property
    def counted(self) -> bool:
        """Whether the tokens of all probes are known."""
        return not len(self.offsets) or (
            self.output_tokens is not None and bool((self.output_tokens >= 0).all())
        )

    def of(self, question: int, sample: int) -> slice:
        """The places of the probes of one CoT in the arrays."""
        place = question * self.shape[1] + sample
        return slice(int(self.starts[place]), int(self.starts[place + 1]))

    def counts(self) -> npt.NDArray[np.int64]:
        """[Q, S] how many probes each CoT has."""
        return np.diff(self.starts).reshape(self.shape)

    def before(self, tokens: int) -> npt.NDArray[np.int64]:
        """[Q, S] how many probes of each CoT are at or before so many tokens."""
        reached = np.concatenate([[0], np.cumsum(self.offsets <= tokens)])
        return np.diff(reached[self.starts]).reshape(self.shape)

    def recorded_confidences(self, owner: str) -> npt.NDArray[np.float32]:
        """The confidences; `NotRecordedError` where no probe of `owner`, an LLM, has one."""
        if self.confidences is None:
            raise NotRecordedError(
                f"The probes of {owner} carry no confidence. Take a method that looks at answers"
                " alone, such as answer-convergence, or import probes with a confidence each."
            )
        return self.confidences

    def rows(self, rows: npt.NDArray[np.intp]) -> Probes:
        """The probes of some questions, in the order given."""
        width = self.shape[1]
        cots = (np.asarray(rows)[:, None] * width + np.arange(width)).ravel()
        lengths = np.diff(self.starts)[cots]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        places = np.arange(starts[-1]) + np.repeat(self.starts[cots] - starts[:-1], lengths)
        return replace(
            self,
            starts=starts,
            offsets=self.offsets[places],
            codes=self.codes[places],
            output_tokens=None if self.output_tokens is None else self.output_tokens[places],
            confidences=None if self.confidences is None else self.confidences[places],
            shape=(len(rows), width),
        )

    def recoded(self, tables: Sequence[npt.NDArray[np.integer[Any]]]) -> Probes:
        """The probes with other answer codes: per question, the new code of each old one, and at
        the end -1.
        """
        codes = np.empty(len(self.codes), np.int32)
        bounds = (
            self.starts[:: self.shape[1]] if self.shape[1] else np.zeros(len(tables) + 1, np.int64)
        )
        for table, start, stop in zip(
            tables, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True
        ):
            codes[start:stop] = table[self.codes[start:stop]]
        return replace(self, codes=codes)
