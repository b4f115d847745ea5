"""The probes of an LLM while its recording is written: what their flat file holds, in temporary
files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.recording.content import ProbeRows
from feval.recording.layout.flat import FlatArray
from feval.recording.sealing.spill import Column, Spill

_BLOCK_CELLS = 1 << 16


class Coded:
    """Values of each question, end to end, with the codes of their answers; `sizes` has how many
    there are.
    """

    def __init__(self, spill: Spill, questions: int) -> None:
        self.codes = Column(spill, "i")
        self.sizes = np.zeros(questions, np.uint32)

    @property
    def width(self) -> int:
        """The most values of a question."""
        return int(self.sizes.max(initial=0))

    def blocks(self) -> list[slice]:
        """Return blocks of questions, with few cells of a table each."""
        rows = max(1, _BLOCK_CELLS // max(1, self.width))
        return [slice(start, start + rows) for start in range(0, len(self.sizes), rows)]

    def cut(self, column: Column) -> Iterator[npt.NDArray[Any]]:
        """Yield the values of a column for each block of questions."""
        return column.cut(int(self.sizes[rows].sum()) for rows in self.blocks())

    def table(
        self, dtype: str, blocks: Callable[[], Iterable[npt.NDArray[Any]]], absent: int
    ) -> FlatArray:
        """Return a table of all questions from the values for each block of them."""

        def tables() -> Iterator[npt.NDArray[Any]]:
            for rows, values in zip(self.blocks(), blocks(), strict=True):
                present = np.arange(self.width) < self.sizes[rows, None]
                table = np.full(present.shape, absent, dtype)
                table[present] = values
                yield table

        return FlatArray(dtype, (len(self.sizes), self.width), tables)


class ProbeColumns(Coded):
    """The probes of the CoTs of one LLM, whose pools are complete."""

    def __init__(self, spill: Spill, pools: Coded) -> None:
        super().__init__(spill, len(pools.sizes))
        self._pools = pools
        self._firsts = np.cumsum(pools.sizes, dtype=np.int64) - pools.sizes
        self._counts, self._offsets = Column(spill, "I"), Column(spill, "I")
        self._tokens, self._confidences = Column(spill, "i"), Column(spill, "f")
        self._has_tokens = self._has_confidences = False

    def add(self, row: int, codes: Sequence[int], probes: ProbeRows) -> None:
        """Add the probes on a question behind those before."""
        self._skip_to(int(self._firsts[row]))
        self._counts.extend(
            np.bincount(
                np.array(probes.sample_indices, np.int64), minlength=int(self._pools.sizes[row])
            )
        )
        self.codes.extend(codes)
        self._offsets.extend(probes.offsets)
        unknown = [None] * len(codes)
        self._has_tokens |= probes.output_tokens is not None
        self._tokens.extend(
            [-1 if tokens is None else tokens for tokens in probes.output_tokens or unknown]
        )
        self._has_confidences |= probes.confidences is not None
        self._confidences.extend(
            [np.nan if value is None else value for value in probes.confidences or unknown]
        )
        self.sizes[row] = len(codes)

    def arrays(
        self, code_type: str, codes: Callable[[], Iterable[npt.NDArray[Any]]]
    ) -> dict[str, FlatArray]:
        """The arrays of the flat file; `codes` are the final ones, in blocks."""
        self._skip_to(int(self._pools.sizes.sum(dtype=np.int64)))
        count, (_, most) = len(self._offsets), self._tokens.bounds
        cots = len(self._pools.sizes) * self._pools.width
        return {
            "starts": FlatArray("int64", (cots + 1,), self._starts),
            "offsets": FlatArray("uint32", (count,), self._offsets.blocks),
            "codes": FlatArray(code_type, (count,), codes),
            **(
                {
                    "output_tokens": FlatArray(
                        "int16" if most < 2**15 else "int32", (count,), self._tokens.blocks
                    )
                }
                if self._has_tokens
                else {}
            ),
            **(
                {"confidences": FlatArray("float32", (count,), self._confidences.blocks)}
                if self._has_confidences
                else {}
            ),
        }

    def _skip_to(self, cot: int) -> None:
        """Note that the CoTs up to one have no probes."""
        self._counts.extend(np.zeros(cot - len(self._counts), np.uint32).tobytes())

    def _starts(self) -> Iterator[npt.NDArray[Any]]:
        end = np.zeros(1, np.int64)
        yield end
        for counts in self._pools.table(
            "int64", partial(self._pools.cut, self._counts), 0
        ).blocks():
            if counts.size:
                end = end[-1] + np.cumsum(counts)
                yield end
