"""The votes files: everything that voting needs from one dataset, as flat arrays that are mapped, not parsed.

There are two: the numbers that votes are counted from, and the details (question ids, answers as text, finish reasons), which
are read and checked on first use. Format 1 has both in one file. `feval.recording.votes_builder` makes them from the Parquet
files; daily work opens them: no pyarrow, no object per CoT, a hash check over a few hundred kilobytes.
`docs/recording-format.md` lists the arrays, `feval.recording.layout.flat` describes the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.recording.layout.flat import Strings, mapped, unpack, well_formed

NO_ANSWER = -1
"""Code of a CoT without an answer."""
ABSENT = -2
"""Code of a place in the table where no CoT was recorded (pools may be ragged)."""

ALIASES = ("aliases", "alias_offsets", "alias_starts", "alias_codes")
DETAILS = frozenset(
    ("question_ids", "question_id_offsets", "text_keys", "candidates", "candidate_offsets", "finish", *ALIASES)
)
"""Arrays of the file of details; of "finish" there is one for each LLM."""


def name_key(*names: str) -> int:
    """64-bit key of some names: the first eight bytes, little-endian, of SHA-256 over the names joined by newlines."""
    return int.from_bytes(hashlib.sha256("\n".join(names).encode(errors="surrogatepass")).digest()[:8], "little")


@dataclass(frozen=True, slots=True)
class LLMVotes:
    """One LLM on all questions of a dataset (Q questions, S the largest pool).

    Attributes:
        codes: [Q, S] index into the question's candidates, `NO_ANSWER` or `ABSENT`.
        output_tokens: [Q, S] tokens of each CoT, 0 where absent.
        prompt_tokens: [Q] tokens of the request, -1 where not known.
        sizes: [Q] recorded CoTs of each question.
        read_finish: gives `finish`.
    """

    codes: npt.NDArray[np.signedinteger[Any]]
    output_tokens: npt.NDArray[np.unsignedinteger[Any]]
    prompt_tokens: npt.NDArray[np.int32]
    sizes: npt.NDArray[np.uint32]
    read_finish: Callable[[], npt.NDArray[np.uint8]]

    @property
    def finish(self) -> npt.NDArray[np.uint8]:
        """[Q, S] position in `feval.cards.schema.FINISH_REASONS`, 0 where absent."""
        return self.read_finish()


class Votes:
    """The opened votes files of a dataset. The file of details is read on first use.

    Attributes:
        dataset: id of the dataset.
        question_keys: [Q] uint64, `name_key("feval/question", dataset, id)`: what draws are made from.
        gold: [Q] code of the gold answer among the question's candidates, -1 where there is none.
        llms: LLM name -> its arrays.
    """

    def __init__(
        self,
        header: Mapping[str, Any],
        arrays: Mapping[str, npt.NDArray[Any]],
        details: tuple[Path, Mapping[str, Any]],
    ) -> None:
        self.dataset: str = header["dataset"]
        self.question_keys: npt.NDArray[np.uint64] = arrays["question_keys"]
        self.gold: npt.NDArray[np.signedinteger[Any]] = arrays["gold"]
        self._starts: npt.NDArray[np.unsignedinteger[Any]] = arrays["candidate_starts"]
        shapes = [arrays[f"codes.{i}"].shape for i in range(len(header["llms"]))]
        self._details = _Details(*details, self.dataset, self._starts, shapes)
        self.llms = {
            name: LLMVotes(
                arrays[f"codes.{i}"],
                arrays[f"output_tokens.{i}"],
                arrays[f"prompt_tokens.{i}"],
                arrays[f"sizes.{i}"],
                partial(self._details.finish, i),
            )
            for i, name in enumerate(header["llms"])
        }

    @cached_property
    def question_ids(self) -> Sequence[str]:
        """Q ids, in recorded order."""
        return Strings(self._details.arrays["question_ids"], self._details.arrays["question_id_offsets"])

    @property
    def text_keys(self) -> npt.NDArray[np.uint64]:
        """[Q] `name_key(text)`: tells two questions of one id apart."""
        return self._details.arrays["text_keys"]

    @cached_property
    def _candidates(self) -> Strings:
        return Strings(self._details.arrays["candidates"], self._details.arrays["candidate_offsets"])

    def __len__(self) -> int:
        """Number of questions."""
        return len(self.gold)

    def candidates(self, question: int) -> list[str]:
        """The distinct answers of a question (and its gold), by code."""
        candidates: list[str] = self._candidates[int(self._starts[question]) : int(self._starts[question + 1])]
        return candidates

    def aliases(self, question: int) -> dict[str, int]:
        """Normal forms of a question that vote under the key of another form -> code of that key."""
        arrays = self._details.arrays
        if "aliases" not in arrays:
            return {}
        rows = slice(int(arrays["alias_starts"][question]), int(arrays["alias_starts"][question + 1]))
        forms = Strings(arrays["aliases"], arrays["alias_offsets"])[rows]
        return dict(zip(forms, arrays["alias_codes"][rows].tolist(), strict=True))

    @property
    def has_aliases(self) -> bool:
        """Whether normal forms that differ vote together on any question."""
        return "aliases" in self._details.arrays

    def right(self, llm: str) -> int:
        """Number of an LLM's CoTs that vote with the gold."""
        return int(((self.llms[llm].codes == self.gold[:, None]) & (self.gold >= 0)[:, None]).sum())

    def check_shapes(self) -> None:
        """Make sure that all arrays but the details speak of the same questions.

        Raises:
            ValueError: they do not.
        """
        questions = len(self.gold)
        per_question = [self.question_keys, self._starts[1:], self.gold]
        for llm in self.llms.values():
            per_question += [llm.codes, llm.output_tokens, llm.prompt_tokens, llm.sizes]
            if llm.codes.ndim != 2 or llm.codes.shape != llm.output_tokens.shape:
                raise ValueError(f"codes of shape {llm.codes.shape}, tokens of shape {llm.output_tokens.shape}")
        if any(len(array) != questions for array in per_question):
            raise ValueError("its arrays have different numbers of questions")

    def candidate_counts(self) -> npt.NDArray[np.int32]:
        """[Q] number of distinct answers of each question, its gold included."""
        return (self._starts[1:] - self._starts[:-1]).astype(np.int32)


class _Details:
    """The arrays of the file of details. It holds no `Votes`: a cycle would keep the mapped files until the next collection."""

    def __init__(
        self,
        path: Path,
        record: Mapping[str, Any],
        dataset: str,
        starts: npt.NDArray[np.unsignedinteger[Any]],
        shapes: Sequence[tuple[int, ...]],
    ) -> None:
        self._path, self._record, self._dataset = path, record, dataset
        self._starts, self._shapes = starts, shapes

    @cached_property
    def arrays(self) -> Mapping[str, npt.NDArray[Any]]:
        """All arrays, read on first use.

        Raises:
            DamagedRecordingError: the file is missing, truncated, changed, malformed or of other questions.
        """
        data = mapped(self._path, self._record)
        with well_formed(self._path):
            header, arrays = unpack(data)
            if header["dataset"] != self._dataset:
                raise ValueError(f"it is of {header['dataset']!r:.80}, not of {self._dataset}")
            self._check(arrays)
            return arrays

    def finish(self, llm: int) -> npt.NDArray[np.uint8]:
        """[Q, S] finish reasons of an LLM by its place."""
        return np.broadcast_to(self.arrays[f"finish.{llm}"], self._shapes[llm])

    def _check(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        expected = len(self._starts) - 1, len(self._starts) - 1, int(self._starts[-1])
        ids, answers = arrays["question_id_offsets"], arrays["candidate_offsets"]
        counts = len(ids) - 1, len(arrays["text_keys"]), len(answers) - 1
        for texts, ends in (("question_ids", ids), ("candidates", answers)):
            if int(ends[-1]) != len(arrays[texts]):
                raise ValueError(f"{texts} should have {int(ends[-1])} bytes, found {len(arrays[texts])}")
        if counts != expected:
            raise ValueError(f"ids, texts and answers should be {expected}, found {counts}")
        if "aliases" in arrays and not (
            len(arrays["alias_starts"]) - 1 == expected[0]
            and int(arrays["alias_starts"][-1]) == len(arrays["alias_codes"]) == len(arrays["alias_offsets"]) - 1
        ):
            raise ValueError("its aliases are not of these questions")
        for llm, shape in enumerate(self._shapes):
            np.broadcast_to(arrays[f"finish.{llm}"], shape)


def open_votes(path: Path, record: Mapping[str, Any], details: tuple[Path, Mapping[str, Any]]) -> Votes:
    """Map a votes file and check its bytes against the manifest.

    Args:
        path: the file.
        record: "sha256" and "bytes" as the manifest states them.
        details: the file of details and its record; in format 1, those of the votes file again.

    Raises:
        DamagedRecordingError: the file is missing, truncated, changed or malformed.
    """
    data = mapped(path, record)
    with well_formed(path):
        votes = Votes(*unpack(data), details)
        votes.check_shapes()
        return votes
