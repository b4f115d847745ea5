"""The logprobs channel as arrays: what was kept of the tokens of each CoT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """A list of numbers for each of Q x S CoTs, end to end; `shape` is (Q, S).

    The numbers of CoT s of question q begin at `offsets[q * S + s]`; there are Q * S + 1 offsets.
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
        sequence: [Q, S] float64, sum of the log-probabilities of the sampled tokens; NaN where not
            kept.
        confidences: per token, minus the mean log-probability of the k most probable tokens
            (DeepConf); empty where not kept.
        logprobs: per token, the log-probability of the sampled one; empty where not kept.
    """

    sequence: npt.NDArray[np.float64]
    confidences: Ragged
    logprobs: Ragged
