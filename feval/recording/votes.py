"""The votes files: everything that voting needs from one dataset, as flat arrays that are mapped, not parsed.

There are two: the numbers that votes are counted from, and the details (question ids, answers as text, finish reasons), which
are read and checked when the first of them is asked for. Format 1 has all of it in one file. Both are derived from the Parquet
files by `VotesBuilder` (the writer and `verify` use the same one) and are what daily work opens: no pyarrow, no object per CoT,
a hash check over a few hundred kilobytes. Layout (all integers little-endian):

    b"FEVALVT1" | uint64 length of the header | header (JSON) | zeros to a multiple of 64 | arrays, each at a multiple of 64

The header names each array with its dtype, shape and offset from the start of the file. `docs/recording-format.md` lists them.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.errors import DamagedRecordingError
from feval.recording.content import PoolRows, Question
from feval.recording.layout.format import open_regular

if TYPE_CHECKING:  # opening a recording reads no answers
    from feval.answers.parties import Parties

__all__ = ["ABSENT", "NO_ANSWER", "LLMVotes", "Strings", "Votes", "VotesBuilder", "name_key", "open_votes"]

MAGIC = b"FEVALVT1"
NO_ANSWER = -1
"""Code of a CoT without an answer."""
ABSENT = -2
"""Code of a place in the table where no CoT was recorded (pools may be ragged)."""

_ALIGN = 64
_DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
}
_ALIASES = ("aliases", "alias_offsets", "alias_starts", "alias_codes")
_DETAILS = frozenset(
    ("question_ids", "question_id_offsets", "text_keys", "candidates", "candidate_offsets", "finish", *_ALIASES)
)
"""Arrays of the file of details; of "finish" there is one for each LLM."""


def name_key(*names: str) -> int:
    """64-bit key of some names: the first eight bytes, little-endian, of SHA-256 over the names joined by newlines."""
    return int.from_bytes(hashlib.sha256("\n".join(names).encode(errors="surrogatepass")).digest()[:8], "little")


class Strings(Sequence[str]):
    """An immutable list of strings in one buffer; each is decoded when it is asked for."""

    def __init__(self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.unsignedinteger[Any]]) -> None:
        self._data, self._offsets = data, offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        try:
            return self._data[int(self._offsets[index]) : int(self._offsets[index + 1])].tobytes().decode()
        except UnicodeDecodeError as error:
            raise DamagedRecordingError(
                f"A name or answer in a votes file is not UTF-8 ({error}); verify it."
            ) from error


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
    """An opened votes file. What lies in the file of details is read when it is first asked for.

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
        details: tuple[Path, Mapping[str, Any] | None],
    ) -> None:
        self.dataset: str = header["dataset"]
        self.question_keys: npt.NDArray[np.uint64] = arrays["question_keys"]
        self.gold: npt.NDArray[np.signedinteger[Any]] = arrays["gold"]
        self._starts: npt.NDArray[np.unsignedinteger[Any]] = arrays["candidate_starts"]
        shapes = [arrays[f"codes.{i}"].shape for i in range(len(header["llms"]))]
        self._details = _Details(*details, self.dataset, self._starts, shapes)
        if "question_ids" in arrays:
            self._details.take(arrays)
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
        found: list[str] = self._candidates[int(self._starts[question]) : int(self._starts[question + 1])]
        return found

    def aliases(self, question: int) -> dict[str, int]:
        """The normal forms of a question that vote under another one's key, with the code of that key."""
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
        """How many CoTs of an LLM vote with the gold."""
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
    """What lies in the file of details. It knows no `Votes`: a cycle would keep the mapped files until the next collection."""

    def __init__(
        self,
        path: Path,
        record: Mapping[str, Any] | None,
        dataset: str,
        starts: npt.NDArray[np.unsignedinteger[Any]],
        shapes: Sequence[tuple[int, ...]],
    ) -> None:
        self._path, self._record, self._dataset = path, record, dataset
        self._starts, self._shapes = starts, shapes

    @cached_property
    def arrays(self) -> Mapping[str, npt.NDArray[Any]]:
        """All arrays, read when they are first asked for.

        Raises:
            DamagedRecordingError: the file is missing, truncated, changed, malformed or of other questions.
        """
        if self._record is None:
            raise DamagedRecordingError(f"manifest.json does not list {self._path}; fetch the recording again.")
        data = _mapped(self._path, self._record)
        with _shape(self._path):
            header, arrays = _unpack(data)
            if header["dataset"] != self._dataset:
                raise ValueError(f"it is of {header['dataset']!r:.80}, not of {self._dataset}")
            self._check(arrays)
            return arrays

    def take(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take the arrays from a votes file that has them all.

        Raises:
            ValueError: they are not of these questions, candidates and CoTs.
        """
        self._check(arrays)
        self.arrays = arrays

    def finish(self, llm: int) -> npt.NDArray[np.uint8]:
        """[Q, S] finish reasons of an LLM by its place."""
        return np.broadcast_to(self.arrays[f"finish.{llm}"], self._shapes[llm])

    def _check(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        expected = len(self._starts) - 1, len(self._starts) - 1, int(self._starts[-1])
        ids, answers = arrays["question_id_offsets"], arrays["candidate_offsets"]
        found = len(ids) - 1, len(arrays["text_keys"]), len(answers) - 1
        for texts, ends in (("question_ids", ids), ("candidates", answers)):
            if int(ends[-1]) != len(arrays[texts]):
                raise ValueError(f"{texts} should have {int(ends[-1])} bytes, found {len(arrays[texts])}")
        if found != expected:
            raise ValueError(f"ids, texts and answers should be {expected}, found {found}")
        if "aliases" in arrays and not (
            len(arrays["alias_starts"]) - 1 == expected[0]
            and int(arrays["alias_starts"][-1]) == len(arrays["alias_codes"]) == len(arrays["alias_offsets"]) - 1
        ):
            raise ValueError("its aliases are not of these questions")
        for llm, shape in enumerate(self._shapes):
            np.broadcast_to(arrays[f"finish.{llm}"], shape)


def open_votes(path: Path, record: Mapping[str, Any], details: tuple[Path, Mapping[str, Any] | None]) -> Votes:
    """Map a votes file, check its bytes against the manifest, and hand out its arrays.

    Args:
        path: the file.
        record: "sha256" and "bytes" as the manifest states them.
        details: the file of details and what the manifest states of it; `None` in format 1, which has none.

    Raises:
        DamagedRecordingError: the file is missing, truncated, changed or malformed.
    """
    data = _mapped(path, record)
    with _shape(path):
        votes = Votes(*_unpack(data), details)
        votes.check_shapes()
        return votes


def _mapped(path: Path, record: Mapping[str, Any]) -> mmap.mmap:
    """The bytes of a file, found to be those of the manifest."""
    size, sha256 = record["bytes"], record["sha256"]
    try:
        with open_regular(path) as file:
            found = os.fstat(file.fileno()).st_size
            if found != size or size < 16:
                raise DamagedRecordingError(
                    f"{path} should have {size} bytes, found {found}; fetch the recording again."
                )
            data = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    except OSError as error:
        raise DamagedRecordingError(
            f"{path} cannot be opened ({error.strerror}); `feval verify` lists what is left."
        ) from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != sha256:
        raise DamagedRecordingError(f"{path} should have SHA-256 {sha256}, found {digest}; fetch the recording again.")
    return data


@contextmanager
def _shape(path: Path) -> Iterator[None]:
    """Whatever a wrong shape raises means one thing: the file is not what its name says."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError, IndexError) as error:
        raise DamagedRecordingError(f"{path} is not a votes file of this format: {error}.") from error


def _unpack(data: mmap.mmap) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Header and arrays; whoever wrote the bytes, no array reaches outside of them."""
    if data[:8] != MAGIC:
        raise ValueError(f"it should begin with {MAGIC!r}, found {data[:8]!r}")
    header = json.loads(data[16 : 16 + int.from_bytes(data[8:16], "little")])
    arrays = {}
    for name, (dtype, shape, offset) in header["arrays"].items():
        if dtype not in _DTYPES:
            raise ValueError(f"array {name} has the unknown type {dtype!r:.40}")
        arrays[name] = np.ndarray(shape, _DTYPES[dtype], data, offset)
    return header, arrays


class VotesBuilder:
    """Collects one dataset's pools and writes its votes file.

    Codes number a question's distinct answers in order of first appearance (LLMs as added, CoTs as recorded); the gold comes
    last if nobody gave it. No result depends on this numbering. Where normal forms that differ are equal, a code stands for their
    party, and the candidate is its representative.
    """

    def __init__(self, dataset: str, questions: Sequence[Question]) -> None:
        self._dataset = dataset
        self._questions = questions
        self._index = {question.id: row for row, question in enumerate(questions)}
        self._codes: list[dict[str, int]] = [{} for _ in questions]
        self._llms: dict[str, dict[int, tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], int]]] = {}
        self._gold = [question.answer_key for question in questions]
        self._aliases: list[dict[str, int]] = [{} for _ in questions]

    def forms(self) -> Iterator[tuple[str, list[str], str | None]]:
        """Of each question its id, the distinct normal forms of all LLMs, and that of its gold."""
        for question, codes in zip(self._questions, self._codes, strict=True):
            yield question.id, list(codes), question.answer_key

    def join(self, question: str, parties: Parties) -> None:
        """Let normal forms of a question vote as one; after all CoTs were added, once."""
        row = self._index[question]
        self._gold[row] = parties.gold
        if not parties.joined:
            return
        keys: dict[str, int] = {}
        table = [keys.setdefault(parties.key(form), len(keys)) for form in self._codes[row]]
        if parties.gold is not None:
            keys.setdefault(parties.gold, len(keys))
        self._codes[row] = keys
        self._aliases[row] = {form: keys[key] for form, key in sorted(parties.joined.items()) if key in keys}
        renumbered = np.array([*table, NO_ANSWER], np.int32)  # NO_ANSWER is -1, the last one
        for pools in self._llms.values():
            if row in pools:
                pools[row] = (renumbered[pools[row][0]], *pools[row][1:])

    def add(self, llm: str, pool: PoolRows, finish: Sequence[int]) -> None:
        """Add one LLM's CoTs on one question; `finish` holds positions in FINISH_REASONS."""
        row = self._index[pool.question_id]
        codes = self._codes[row]
        coded = [NO_ANSWER if a is None else codes.setdefault(a, len(codes)) for a in pool.answers]
        prompt_tokens = -1 if pool.prompt_tokens is None else pool.prompt_tokens
        self._llms.setdefault(llm, {})[row] = (
            np.array(coded, np.int32),
            np.array(pool.output_tokens, np.uint32),
            np.array(finish, np.uint8),
            prompt_tokens,
        )

    def llm_names(self) -> list[str]:
        """The LLMs, in the order in which they were added."""
        return list(self._llms)

    def correct(self, llm: str) -> list[bool | None]:
        """Whether each CoT of an LLM is right, in recorded order; `None` where the question has no gold. For after `join`."""
        flat: list[bool | None] = []
        for row, (codes, *_) in sorted(self._llms[llm].items()):
            gold = self._gold[row]
            code = None if gold is None else self._codes[row].get(gold, ABSENT)
            flat += [None] * len(codes) if code is None else (codes == code).tolist()
        return flat

    def add_llm(self, llm: str) -> None:
        """Make room for an LLM, also one without any CoT."""
        self._llms.setdefault(llm, {})

    def to_bytes(self) -> dict[str, bytes]:
        """The whole files: "votes" and "details"."""
        arrays = self._arrays()
        details = {name: arrays.pop(name) for name in list(arrays) if name.split(".")[0] in _DETAILS}
        return {
            "votes": _pack({"dataset": self._dataset, "llms": list(self._llms)}, arrays),
            "details": _pack({"dataset": self._dataset}, details),
        }

    def to_bytes_together(self) -> bytes:
        """The one file of format 1, to compare with."""
        return _pack({"dataset": self._dataset, "llms": list(self._llms)}, self._arrays())

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays = self._shared_arrays()
        for i, pools in enumerate(self._llms.values()):
            arrays |= {f"{name}.{i}": array for name, array in self._llm_arrays(pools).items()}
        return arrays

    def _shared_arrays(self) -> dict[str, npt.NDArray[Any]]:
        gold = [
            NO_ANSWER if key is None else codes.setdefault(key, len(codes))
            for key, codes in zip(self._gold, self._codes, strict=True)
        ]
        ids, id_offsets = _pack_strings([q.id for q in self._questions])
        candidates, offsets = _pack_strings([answer for codes in self._codes for answer in codes])
        keys = [name_key("feval/question", self._dataset, q.id) for q in self._questions]
        return {
            "question_ids": ids,
            "question_id_offsets": id_offsets,
            "question_keys": np.array(keys, np.uint64),
            "text_keys": np.array([name_key(q.text) for q in self._questions], np.uint64),
            "candidates": candidates,
            "candidate_offsets": offsets,
            "candidate_starts": _offsets([len(codes) for codes in self._codes]),
            "gold": np.array(gold, self._code_type()),
            **self._alias_arrays(),
        }

    def _alias_arrays(self) -> dict[str, npt.NDArray[Any]]:
        if not any(self._aliases):
            return {}
        forms, offsets = _pack_strings([form for own in self._aliases for form in own])
        codes = [code for own in self._aliases for code in own.values()]
        starts = _offsets([len(own) for own in self._aliases])
        arrays = (forms, offsets, starts, np.array(codes, np.int32))
        return dict(zip(_ALIASES, arrays, strict=True))

    def _code_type(self) -> type[np.signedinteger[Any]]:
        most = max((len(codes) for codes in self._codes), default=0)
        return np.int8 if most < 127 else np.int16 if most < 32767 else np.int32

    def _llm_arrays(
        self, pools: Mapping[int, tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], int]]
    ) -> dict[str, npt.NDArray[Any]]:
        count = len(self._questions)
        sizes = np.zeros(count, np.uint32)
        prompt_tokens = np.full(count, -1, np.int32)
        width = max((len(codes) for codes, _, _, _ in pools.values()), default=0)
        most = max((int(tokens.max(initial=0)) for _, tokens, _, _ in pools.values()), default=0)
        table = np.full((count, width), ABSENT, self._code_type())
        output_tokens = np.zeros((count, width), np.uint16 if most < 2**16 else np.uint32)
        finish = np.zeros((count, width), np.uint8)
        for row, (codes, tokens, reasons, prompt) in pools.items():
            size = len(codes)
            sizes[row], prompt_tokens[row] = size, prompt
            table[row, :size], output_tokens[row, :size], finish[row, :size] = codes, tokens, reasons
        return {
            "codes": table,
            "output_tokens": output_tokens,
            "finish": finish if (finish != finish[:1, :1]).any() else finish[:1, :1],
            "prompt_tokens": prompt_tokens,
            "sizes": sizes,
        }


def _pack_strings(
    strings: Iterable[str],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.unsignedinteger[Any]]]:
    encoded = [string.encode() for string in strings]
    return np.frombuffer(b"".join(encoded), np.uint8), _offsets([len(piece) for piece in encoded])


def _offsets(lengths: Sequence[int]) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Where each of some consecutive pieces starts, and where the last one ends."""
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return ends.astype(np.uint32 if ends[-1] < 2**32 else np.uint64)


def _pack(header: dict[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Lay the arrays out behind a header that is padded with blanks, so that offsets do not depend on its length."""
    little = {name: np.ascontiguousarray(a, a.dtype.newbyteorder("<")) for name, a in arrays.items()}
    room = _round_up(16 + len(json.dumps(header, ensure_ascii=False).encode()) + 96 * (len(little) + 1))
    offset, places = room, {}
    for name, array in little.items():
        places[name] = [array.dtype.name, list(array.shape), offset]
        offset = _round_up(offset + array.nbytes)
    text = json.dumps(header | {"arrays": places}, ensure_ascii=False, separators=(",", ":")).encode()
    pieces = [MAGIC, (room - 16).to_bytes(8, "little"), text.ljust(room - 16)]
    for array in little.values():
        pieces += [array.tobytes(), bytes(_round_up(array.nbytes) - array.nbytes)]
    return b"".join(pieces)


def _round_up(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
