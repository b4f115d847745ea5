"""Make the votes files of a dataset in a second pass over its Parquet files, question by question;
sealing and verifying use the same code.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Self

import numpy as np

from feval.answers.equality import comparison
from feval.answers.equivalence import (
    AnswerClasses,
    ComparisonBudget,
    classes_from_verdicts,
    classify,
)
from feval.cards import FINISH_REASONS
from feval.errors import DamagedRecordingError
from feval.recording.arrays import message_numbers, unknown_as_minus_one
from feval.recording.content import PoolRows, QuestionTable
from feval.recording.layout.flat import FlatArray, Numbers, UInt8, offsets_of, pack
from feval.recording.layout.format import PROBES, Part, Record
from feval.recording.parts import SparseRows, Verdicts, VerdictTally, has_value
from feval.recording.reader import Recording
from feval.recording.votes import ABSENT, ALIASES, DETAILS, NO_ANSWER

FINISH_CODES: dict[str, int] = {reason: code for code, reason in enumerate(FINISH_REASONS)}

_IN_MEMORY_BYTES, _BLOCK_BYTES, _BLOCK_QUESTIONS = 1 << 20, 1 << 16, 1 << 10
_MOST_NARROW = 32000  # codes of a question that fit into 16 bits

Divide = Callable[[str, list[str], str | None, list[str]], AnswerClasses]
"""From a question's id, the distinct normal forms of its CoTs, its gold and the forms of its probes
to the parties among them.
"""
Arrays = dict[str, FlatArray]


class Scratch:
    """Arrays that, past a megabyte, are mapped from temporary files without a name, in a folder or
    where the system keeps such files. A killed process leaves nothing of them.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._files = ExitStack()
        self._maps: list[mmap.mmap] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def file(self) -> IO[bytes]:
        """A temporary file."""
        return self._files.enter_context(TemporaryFile(dir=self._folder, buffering=0))

    def array(self, dtype: str, shape: tuple[int, ...]) -> Numbers:
        """A new array, of any content."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if size <= _IN_MEMORY_BYTES:
            return np.zeros(shape, dtype)
        file = self.file()
        # Where the disk is full, writing to the map would kill the process.
        os.posix_fallocate(file.fileno(), 0, size)
        return self.mapped(file, size).view(dtype).reshape(shape)

    def mapped(self, file: IO[bytes], size: int) -> UInt8:
        """The bytes of a file."""
        self._maps.append(mmap.mmap(file.fileno(), size))
        return np.frombuffer(self._maps[-1], np.uint8)

    def give_back(self) -> None:
        """Let go of the pages in memory, which count as this process's until then."""
        for data in self._maps:
            data.madvise(mmap.MADV_DONTNEED)


class _NumberFile:
    """Numbers of one type that are appended, end to end."""

    def __init__(self, scratch: Scratch, dtype: str) -> None:
        self._scratch, self._dtype = scratch, dtype
        self._file: IO[bytes] | None = None
        self._waiting, self._written = bytearray(), 0

    def extend(self, values: Sequence[float] | bytes) -> None:
        """Append some, or their bytes."""
        if not isinstance(values, bytes):
            values = np.array(values, self._dtype).tobytes()
        self._waiting += values
        if len(self._waiting) >= _BLOCK_BYTES:
            self._file = self._file or self._scratch.file()
            self._written += self._file.write(self._waiting)
            self._waiting.clear()

    def array(self) -> Numbers:
        """All of them; nothing may be appended afterwards."""
        if self._file is None:
            return np.frombuffer(bytes(self._waiting), self._dtype)
        self._written += self._file.write(self._waiting)
        return self._scratch.mapped(self._file, self._written).view(self._dtype)


class _AppendedTexts:
    """Texts that are appended, end to end in UTF-8."""

    def __init__(self, scratch: Scratch, questions: int) -> None:
        self._data, self._lengths = _NumberFile(scratch, "uint8"), _NumberFile(scratch, "uint32")
        self.counts = np.zeros(questions, np.uint32)

    def extend(self, row: int, texts: Sequence[str]) -> None:
        """Append those of a question."""
        encoded = [text.encode() for text in texts]
        self._data.extend(b"".join(encoded))
        self._lengths.extend([*map(len, encoded)])
        self.counts[row] = len(texts)

    def arrays(self) -> tuple[Numbers, ...]:
        """The bytes, where each text starts and the last one ends, and the same of questions."""
        return self._data.array(), offsets_of(self._lengths.array()), offsets_of(self.counts)


class VotesBuilder:
    """The votes of a dataset, made from its Parquet files in a recording.

    Codes number a question's distinct answers in order of first appearance (LLMs as added, CoTs as
    recorded, then probes); the gold comes last if nobody gave it. No result depends on this
    numbering. Where different normal forms are equal, a code stands for their party.

    Args:
        recording: with the files; its manifest counts the CoTs.
        questions: of the dataset.
        scratch: where arrays lie that grow with the CoTs and the answers.
        llms, probed: whose votes, and the votes of whose probes to make; `None` for all.
    """

    def __init__(
        self,
        recording: Recording,
        questions: QuestionTable,
        scratch: Scratch,
        llms: Sequence[str] | None = None,
        probed: Sequence[str] | None = None,
    ) -> None:
        self._questions, self._scratch, count = questions, scratch, len(questions)
        dataset = questions.dataset
        names = recording.llm_names(dataset)
        pairs = recording.manifest.pairs
        shapes = {llm: (count, int(pairs[dataset, llm]["largest_pool"])) for llm in names}
        probed = names if probed is None else probed
        probed = [llm for llm in probed if recording.has_probes(dataset, llm)]
        is_wide = bool(probed) or sum(width for _, width in shapes.values()) > _MOST_NARROW
        code_type = "int32" if is_wide else "int16"
        self.llms = {
            llm: _Pools(code_type, recording, dataset, llm, shapes[llm], scratch)
            for llm in (names if llms is None else llms)
        }
        self.probes = {
            llm: _Probes(recording, dataset, llm, shapes[llm], scratch) for llm in probed
        }
        self.golds = np.full(count, NO_ANSWER, np.int32)
        self._candidates, self._aliases = (_AppendedTexts(scratch, count) for _ in range(2))
        self._alias_codes = _NumberFile(scratch, "int32")

    def build(
        self, divide: Divide | None = None, given: Callable[[int], list[str]] = lambda _: []
    ) -> None:
        """Read the files from end to end.

        Args:
            divide: finds the answers that are equal; by default those of one normal form.
            given: the candidates of a question that are numbered already.

        Raises:
            DamagedRecordingError: the files are not of the questions, in their order.
            ValueError: a pool is larger than the manifest says.
        """
        files: list[_Pools | _Probes] = [*self.llms.values(), *self.probes.values()]
        for row, question in enumerate(self._questions.ids):
            gold = self._questions.gold(row)
            forms = _distinct(own.take(question) for own in self.llms.values())
            of_probes = _distinct(own.take(question) for own in self.probes.values())
            parties = (
                AnswerClasses({}, gold)
                if divide is None
                else divide(question, forms, gold, of_probes)
            )
            keys = {key: code for code, key in enumerate(given(row))}
            codes: dict[str | None, int] = {None: NO_ANSWER}
            for form in chain(forms, of_probes):
                codes[form] = keys.setdefault(parties.key(form), len(keys))
            if parties.gold is not None:
                self.golds[row] = keys.setdefault(parties.gold, len(keys))
            for own in files:
                own.put(row, codes, int(self.golds[row]))
            self._candidates.extend(row, [*keys])
            if aliases := sorted(form for form, key in parties.joined.items() if key in keys):
                self._aliases.extend(row, aliases)
                self._alias_codes.extend([keys[parties.joined[form]] for form in aliases])
            if row % _BLOCK_QUESTIONS == 0:
                self._scratch.give_back()
        for own in files:
            own.finish()

    def correct(self, llm: str) -> Iterator[bool | None]:
        """Whether each CoT of an LLM is correct, in recorded order; `None` where the question has
        no gold.
        """
        pools = self.llms[llm]
        for codes, size, gold in zip(pools.codes, pools.sizes, self.golds.tolist(), strict=True):
            yield from [None] * size if gold < 0 else (codes[:size] == gold).tolist()

    def shared_arrays(self) -> Arrays:
        """The arrays of the questions and answers, as the votes files have them."""
        ids, id_offsets = self._questions.ids.arrays()
        candidates, offsets, starts = self._candidates.arrays()
        arrays = {
            "question_ids": ids,
            "question_id_offsets": id_offsets,
            "question_keys": self._questions.keys,
            "text_keys": self._questions.text_keys,
            "candidates": candidates,
            "candidate_offsets": offsets,
            "candidate_starts": starts,
            "gold": self.golds.astype(self.code_type),
        }
        if self._aliases.counts.any():
            of_aliases = (*self._aliases.arrays(), self._alias_codes.array())
            arrays |= dict(zip(ALIASES, of_aliases, strict=True))
        return {name: FlatArray(own.dtype.name, own) for name, own in arrays.items()}

    def files(self) -> tuple[dict[str, Iterator[bytes]], dict[str, Iterator[bytes]]]:
        """The bytes of the votes files by part, and those of the probes by LLM, in blocks."""
        arrays, dataset = self.shared_arrays(), {"dataset": self._questions.dataset}
        for i, pools in enumerate(self.llms.values()):
            own = pools.arrays(self.code_type)
            finish = own["finish"].array
            if finish.min(initial=255) >= finish.max(initial=0):  # all are equal
                own["finish"] = FlatArray("uint8", finish[:1, :1])
            arrays |= {f"{name}.{i}": flat for name, flat in own.items()}
        details = {name: arrays.pop(name) for name in list(arrays) if name.split(".")[0] in DETAILS}
        votes = {
            "votes": self._packed(dataset | {"llms": list(self.llms)}, arrays),
            "details": self._packed(dataset, details),
        }
        return votes, {
            llm: self._packed(dataset | {"llm": llm}, probes.arrays(self.code_type))
            for llm, probes in self.probes.items()
        }

    def _packed(self, header: Record, arrays: Arrays) -> Iterator[bytes]:
        for block in pack(header, arrays):
            yield block
            self._scratch.give_back()

    @property
    def code_type(self) -> str:
        """The type of codes in the files."""
        most = self._candidates.counts.max(initial=0)
        return "int8" if most < 127 else "int16" if most < 32767 else "int32"


def _distinct(columns: Iterator[Sequence[str | None]]) -> list[str]:
    """Return the answers in some columns, each once."""
    return [form for form in dict.fromkeys(chain.from_iterable(columns)) if form is not None]


_EMPTY = {"codes": ABSENT, "parents": ABSENT, "turns": ABSENT, "turn_prompts": -1}
"""What arrays have where no CoT was recorded; others have 0."""


class _Files:
    """Files of an LLM that are read along with the questions, some of which they may lack."""

    def __init__(
        self, recording: Recording, dataset: str, llm: str, shape: tuple[int, int], scratch: Scratch
    ) -> None:
        self._recording, self._dataset, self._llm = recording, dataset, llm
        self._who = f"{recording.path}: {llm} on {dataset}"
        (self._questions, self._width), self._scratch = shape, scratch
        self._parts: dict[str, SparseRows[dict[str, list[Any]]]] = {}
        self._columns: dict[str, set[str]] = {}
        self._taken: dict[str, dict[str, list[Any]]] = {}

    def _read(self, part: str, *columns: str) -> None:
        rows = self._recording.scan(part, self._dataset, self._llm, ["question_id", *columns])
        self._parts[part] = SparseRows(rows, {})
        self._columns[part] = {*columns} - {"correct"}

    def take(self, question: str) -> list[str | None]:
        """Read the rows of the next question; return its answers."""
        self._question = question
        self._taken = {part: rows.take(question) for part, rows in self._parts.items()}
        for part, columns in self._taken.items():
            if columns and (missing := self._columns[part] - columns.keys()):
                path = self._recording.path / Part(part, self._dataset, self._llm).path
                raise DamagedRecordingError(
                    f"{path} cannot be read (it lacks {min(missing)}); run `feval verify`."
                )
        return next(iter(self._taken.values())).get("answer", [])

    def finish(self) -> None:
        """Check that all rows were taken."""
        for part, rows in self._parts.items():
            if rows.next is not None:
                raise DamagedRecordingError(
                    f"{self._recording.path}: the {part} of {self._llm} have the question"
                    f" {rows.next[0]!r:.80}, which is none of {self._dataset} or comes out of"
                    " order."
                )


class _Pools(_Files):
    """The pools of one LLM: their arrays, and whether the column `correct` is stale."""

    def __init__(self, code_type: str, *own: Any) -> None:
        super().__init__(*own)
        self._read("samples", "answer", "output_tokens", "finish_reason", "correct")
        self._read("requests", "prompt_tokens")
        kind = "int16" if self._width < 2**15 else "int32"
        kinds = {"codes": code_type, "output_tokens": "uint32", "finish": "uint8"}
        channels = self._recording.channels(self._dataset, self._llm)
        if "steps" in channels:
            self._read("steps", "parent", "ends")
            kinds |= {"parents": kind, "ends": "uint8"}
        if "turns" in channels:
            self._read("turns", "messages", "prompt_tokens")
            kinds |= {"turns": kind, "turn_prompts": "int32"}
        shape = self._questions, self._width
        self._tables = {name: self._scratch.array(kind, shape) for name, kind in kinds.items()}
        self.codes = self._tables["codes"]
        self._prompt_tokens = np.full(self._questions, -1, np.int32)
        self.sizes = np.zeros(self._questions, np.uint32)
        self._most_tokens = 0
        self.is_stale = False

    def put(self, row: int, codes: Mapping[str | None, int], gold: int) -> None:
        """Write the CoTs of the question that was taken into the arrays."""
        own, request = self._taken["samples"], self._taken["requests"]
        if request:
            [sent] = request["prompt_tokens"]
            self._prompt_tokens[row] = -1 if sent is None else sent
        answers = own.get("answer", [])
        size, nothing = len(answers), [None] * len(answers)
        if size > self._width:
            raise ValueError(f"{self._llm} has more CoTs on a question than the manifest counts")
        self.sizes[row] = size
        rows = {
            "codes": [codes[answer] for answer in answers],
            "output_tokens": own.get("output_tokens", []),
        }
        self._most_tokens = max(self._most_tokens, *rows["output_tokens"], 0)
        try:
            rows["finish"] = [FINISH_CODES[reason] for reason in own.get("finish_reason", ())]
        except KeyError as error:
            raise DamagedRecordingError(
                f"{self._who} has the unknown finish reason {error}."
            ) from error
        self.is_stale |= own.get("correct", []) != [
            None if gold < 0 else code == gold for code in rows["codes"]
        ]
        if "steps" in self._taken:
            steps, turns = self._taken["steps"], self._taken.get("turns", {})
            parents, ends = steps.get("parent"), steps.get("ends")
            sent, prompts = turns.get("messages"), turns.get("prompt_tokens")
            pool = PoolRows(
                "",
                nothing,
                nothing,
                answers,
                [],
                [],
                parents=parents,
                ends=ends,
                messages=sent,
                turn_prompt_tokens=prompts,
            )
            if problem := pool.tree_problem():
                raise DamagedRecordingError(
                    f"{self._who}, question {self._question!r}: {problem}; fetch or make the"
                    " recording again."
                )
            rows |= {
                "parents": unknown_as_minus_one(parents or nothing),
                "ends": list(map(int, ends or [0] * size)),
                "turns": message_numbers(sent or nothing),
                "turn_prompts": unknown_as_minus_one(prompts or nothing),
            }
        for name, table in self._tables.items():
            table[row] = rows[name] + [_EMPTY.get(name, 0)] * (self._width - size)

    def arrays(self, code_type: str) -> Arrays:
        """The arrays of the votes files."""
        narrow = "uint16" if self._most_tokens < 2**16 else "uint32"
        kinds = {"codes": code_type, "output_tokens": narrow}
        arrays = self._tables | {"prompt_tokens": self._prompt_tokens, "sizes": self.sizes}
        return {
            name: FlatArray(kinds.get(name, own.dtype.name), own) for name, own in arrays.items()
        }


class _Probes(_Files):
    """The probes of one LLM's CoTs."""

    def __init__(self, *own: Any) -> None:
        super().__init__(*own)
        self._read(PROBES, "sample_index", "offset", "answer", "output_tokens", "confidence")
        self._starts = self._scratch.array("int64", (self._questions * self._width + 1,))
        self._offsets, self._codes, self._tokens, self._confidences = (
            _NumberFile(self._scratch, kind) for kind in ("uint32", "int32", "int32", "float32")
        )
        self._most_tokens, self.count = -1, 0
        self._has_confidences = False

    def put(self, row: int, codes: Mapping[str | None, int], _: int) -> None:
        """Write the probes on the question that was taken into the arrays."""
        own, first = self._taken[PROBES], row * self._width
        counts = np.bincount(np.array(own.get("sample_index", ()), np.int64), minlength=self._width)
        self._starts[first + 1 : first + self._width + 1] = self._starts[first] + np.cumsum(counts)
        if not own:
            return
        self.count += len(own["offset"])
        self._offsets.extend(own["offset"])
        self._codes.extend([codes[answer] for answer in own["answer"]])
        tokens = unknown_as_minus_one(own["output_tokens"])
        self._tokens.extend(tokens)
        self._most_tokens = max(self._most_tokens, *tokens)
        confidences = [np.nan if value is None else value for value in own["confidence"]]
        self._confidences.extend(confidences)
        self._has_confidences |= has_value(own["confidence"])

    def arrays(self, code_type: str) -> Arrays:
        """The arrays of the flat file."""
        narrow = "int16" if self._most_tokens < 2**15 else "int32"
        arrays = {
            "starts": FlatArray("int64", self._starts),
            "offsets": FlatArray("uint32", self._offsets.array()),
            "codes": FlatArray(code_type, self._codes.array()),
        }
        if self._most_tokens >= 0:
            arrays["output_tokens"] = FlatArray(narrow, self._tokens.array())
        if self._has_confidences:
            arrays["confidences"] = FlatArray("float32", self._confidences.array())
        return arrays


def merge_equal_answers(
    votes: VotesBuilder,
    add: Callable[[str, dict[str, list[Any]]], None],
    name: str,
    known: Verdicts,
    budget: ComparisonBudget,
    not_asked: int | None = None,
) -> tuple[str, dict[str, int]]:
    """Build the votes so that equal answers vote together.

    Args:
        votes: of the dataset.
        add: writes the verdicts on a question.
        name: of the equality.
        known: verdicts that were reached before.
        budget: what is left of the comparisons.
        not_asked: where nothing is compared again, how many pairs the known verdicts leave out.

    Returns:
        The leaf of the verdicts, and the counts of `VerdictTally`.
    """
    how = None if not_asked is not None else comparison(name)
    tally, left_out = VerdictTally(name), not_asked or 0

    def classes(
        question: str, forms: list[str], gold: str | None, of_probes: list[str]
    ) -> AnswerClasses:
        nonlocal left_out
        reached = known.get(question, ())
        if not_asked is not None:
            found = classes_from_verdicts(reached, gold)
        else:
            budget.next_question()
            found, division = classify(forms, gold, how, budget, reached, of_probes)
            reached, left_out = division.verdicts, left_out + division.not_asked
        if reached:
            add(question, tally.add(question, reached))
        return found

    votes.build(classes)
    return tally.leaf.hexdigest(), tally.counts(left_out)
