"""The votes files: everything that voting needs from one dataset, as arrays that are mapped, not parsed.

`docs/recording-format.md` lists the arrays. The details (ids, answers as text, finish reasons) are read on first use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
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


Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class LLMVotes:
    """One LLM on all questions of a dataset (Q questions, S the largest pool).

    Attributes:
        codes: [Q, S] index into the question's candidates, `NO_ANSWER` or `ABSENT`.
        output_tokens: [Q, S] tokens of each CoT, 0 where absent.
        prompt_tokens: [Q] tokens of the request, -1 where not known.
        sizes: [Q] recorded CoTs of each question.
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
    """The votes of a dataset; `details` gives the arrays of the file of details.

    Attributes:
        dataset: id of the dataset.
        question_keys: [Q] uint64, `name_key("feval/question", dataset, id)`: what draws are made from.
        gold: [Q] code of the gold answer among the question's candidates, -1 where there is none.
        llms: LLM name -> its arrays.
    """

    def __init__(self, header: Mapping[str, Any], arrays: Arrays, details: Callable[[], Arrays]) -> None:
        self.dataset: str = header["dataset"]
        self.question_keys: npt.NDArray[np.uint64] = arrays["question_keys"]
        self.gold: npt.NDArray[np.signedinteger[Any]] = arrays["gold"]
        self._starts: npt.NDArray[np.unsignedinteger[Any]] = arrays["candidate_starts"]
        self._details = details
        self.llms = {
            name: LLMVotes(
                arrays[f"codes.{i}"],
                arrays[f"output_tokens.{i}"],
                arrays[f"prompt_tokens.{i}"],
                arrays[f"sizes.{i}"],
                partial(_finish, details, i, arrays[f"codes.{i}"].shape),  # not of `self`: no cycle keeps files mapped
            )
            for i, name in enumerate(header["llms"])
        }
        self._check_shapes()

    @cached_property
    def question_ids(self) -> Sequence[str]:
        """Q ids, in recorded order."""
        return Strings(self._details()["question_ids"], self._details()["question_id_offsets"])

    @property
    def text_keys(self) -> npt.NDArray[np.uint64]:
        """[Q] `name_key(text)`: tells two questions of one id apart."""
        return self._details()["text_keys"]

    @cached_property
    def _candidates(self) -> Strings:
        return Strings(self._details()["candidates"], self._details()["candidate_offsets"])

    def __len__(self) -> int:
        """Number of questions."""
        return len(self.gold)

    def candidates(self, question: int) -> list[str]:
        """The distinct answers of a question (and its gold), by code."""
        candidates: list[str] = self._candidates[int(self._starts[question]) : int(self._starts[question + 1])]
        return candidates

    def aliases(self, question: int) -> dict[str, int]:
        """Normal forms of a question that vote under the key of another form -> code of that key."""
        if not self.has_aliases:
            return {}
        forms, offsets, starts, codes = (self._details()[name] for name in ALIASES)
        rows = slice(int(starts[question]), int(starts[question + 1]))
        return dict(zip(Strings(forms, offsets)[rows], codes[rows].tolist(), strict=True))

    @property
    def has_aliases(self) -> bool:
        """Whether normal forms that differ vote together on any question."""
        return "aliases" in self._details()

    def right(self, llm: str) -> int:
        """Number of an LLM's CoTs that vote with the gold."""
        return int(((self.llms[llm].codes == self.gold[:, None]) & (self.gold >= 0)[:, None]).sum())

    def candidate_counts(self) -> npt.NDArray[np.int32]:
        """[Q] number of distinct answers of each question, its gold included."""
        return (self._starts[1:] - self._starts[:-1]).astype(np.int32)

    def _check_shapes(self) -> None:
        per_question: list[npt.NDArray[Any]] = [self.question_keys, self._starts[1:]]
        for llm in self.llms.values():
            per_question += [llm.codes, llm.output_tokens, llm.prompt_tokens, llm.sizes]
            if llm.codes.ndim != 2 or llm.codes.shape != llm.output_tokens.shape:
                raise ValueError(f"codes of shape {llm.codes.shape}, tokens of shape {llm.output_tokens.shape}")
        if any(len(array) != len(self.gold) for array in per_question):
            raise ValueError("its arrays have different numbers of questions")


def _finish(details: Callable[[], Arrays], llm: int, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    return np.broadcast_to(details()[f"finish.{llm}"], shape)


def _read_details(path: Path, record: Mapping[str, Any], header: Mapping[str, Any], votes: Arrays) -> Arrays:
    data = mapped(path, record)
    with well_formed(path):
        own_header, details = unpack(data)
        if own_header["dataset"] != header["dataset"]:
            raise ValueError(f"it is of {own_header['dataset']!r:.80}, not of {header['dataset']}")
        _check_details(details, votes)
        for llm in range(len(header["llms"])):
            np.broadcast_to(details[f"finish.{llm}"], votes[f"codes.{llm}"].shape)
        return details


def _check_details(details: Arrays, votes: Arrays) -> None:
    starts = votes["candidate_starts"]
    expected = len(starts) - 1, len(starts) - 1, int(starts[-1])
    ids, answers = details["question_id_offsets"], details["candidate_offsets"]
    counts = len(ids) - 1, len(details["text_keys"]), len(answers) - 1
    for texts, ends in (("question_ids", ids), ("candidates", answers)):
        if int(ends[-1]) != len(details[texts]):
            raise ValueError(f"{texts} should have {int(ends[-1])} bytes, found {len(details[texts])}")
    if counts != expected:
        raise ValueError(f"ids, texts and answers should be {expected}, found {counts}")
    if "aliases" in details:
        _, offsets, alias_starts, codes = (details[name] for name in ALIASES)
        if len(alias_starts) != len(starts) or not int(alias_starts[-1]) == len(codes) == len(offsets) - 1:
            raise ValueError("its aliases are not of these questions")


def open_votes(path: Path, record: Mapping[str, Any], details: tuple[Path, Mapping[str, Any]]) -> Votes:
    """Map a votes file after checking it against its record in the manifest; `details` is that file with its record."""
    data = mapped(path, record)
    with well_formed(path):
        header, arrays = unpack(data)
        return Votes(header, arrays, cache(partial(_read_details, *details, header, arrays)))
