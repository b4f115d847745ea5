"""Make the votes files of a dataset from its pools, block by block; writing and verifying use the
same code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from feval.answers.parties import Parties
from feval.cards.finish_reasons import FINISH_REASONS
from feval.errors import DamagedRecordingError
from feval.recording.content import PoolRows, ProbeRows
from feval.recording.layout.flat import FlatArray, offset_type, offsets_of, pack
from feval.recording.sealing.probe_columns import Coded, ProbeColumns
from feval.recording.sealing.question_table import QuestionTable, row_behind
from feval.recording.sealing.spill import Column, Spill
from feval.recording.steps import message_numbers, unknown_as_minus_one
from feval.recording.votes import ABSENT, ALIASES, DETAILS, NO_ANSWER

FINISH_CODES: dict[str, int] = {reason: code for code, reason in enumerate(FINISH_REASONS)}

_NO_FORMS = b"[]\n"

Divide = Callable[[str, list[str], str | None, list[str]], Parties]
"""From a question's id, the distinct normal forms of its CoTs, its gold and the forms of its probes
to the parties among them.
"""


class VotesBuilder:
    """Collects the pools of a dataset, one LLM after the other, and their probes, and makes its
    votes.

    Codes number a question's distinct answers in order of first appearance (LLMs as added, CoTs as
    recorded, then probes); the gold comes last if nobody gave it. No result depends on this
    numbering. Where different normal forms are equal, a code stands for their party.
    What grows with the CoTs and with the answers lies in temporary files, in `folder` or where the
    system keeps such files.
    """

    def __init__(self, questions: QuestionTable, folder: Path | None = None) -> None:
        self.questions = questions
        self._spill = Spill(folder)
        self._llms: dict[str, _Pools] = {}
        self._probes: dict[str, ProbeColumns] = {}
        self._forms, self._probe_forms = (_Forms(len(questions), folder) for _ in range(2))
        self._numbering: _Numbering | None = None

    def close(self) -> None:
        """Give the temporary files back."""
        for each in (self._spill, self._forms, self._probe_forms):
            each.close()

    def add_llm(self, llm: str) -> None:
        """Begin an LLM, which may have no CoT."""
        self._forms.rewind()
        self._llms[llm] = _Pools(self._spill, len(self.questions))

    def add(self, llm: str, pool: PoolRows) -> None:
        """Add the CoTs on one question of the LLM that was begun last, in the order of the
        questions.

        Raises:
            DamagedRecordingError: no such question, or out of order.
            KeyError: a finish reason that is none of `FINISH_CODES`.
        """
        row = row_behind(self.questions.ids, pool.question_id, self._forms.row - 1)
        if row is None or row < 0:
            problem = f"no question of {self.questions.dataset}" if row is None else "out of order"
            raise DamagedRecordingError(
                f"{llm} was asked {pool.question_id!r:.80}, which is {problem}."
            )
        self._llms[llm].add(row, self._forms.coded(row, pool.answers), pool)

    def add_llm_probes(self, llm: str) -> None:
        """Begin the probes of an LLM, all of whose CoTs were added."""
        self._probe_forms.rewind()
        self._probes[llm] = ProbeColumns(self._spill, self._llms[llm])

    def add_probes(self, llm: str, probes: ProbeRows) -> None:
        """Add the probes on one question of the LLM whose probes were begun last, in the order of
        the questions.
        """
        row = row_behind(self.questions.ids, probes.question_id, self._probe_forms.row - 1)
        if row is None or row < 0:
            raise DamagedRecordingError(
                f"{llm} has probes on {probes.question_id!r:.80}, which is no question or out of"
                " order."
            )
        self._probes[llm].add(row, self._probe_forms.coded(row, probes.answers), probes)

    def sizes(self, llm: str) -> npt.NDArray[np.uint32]:
        """[Q] recorded CoTs of each question."""
        return self._llms[llm].sizes

    def llm_names(self) -> list[str]:
        """The LLMs in the order they were added."""
        return list(self._llms)

    def join(self, divide: Divide) -> None:
        """Let different normal forms of each question vote together; call it once, after all CoTs
        were added.
        """
        self._numbering = self._numbered(divide)

    def correct(self, llm: str) -> Iterator[bool | None]:
        """Whether each CoT of an LLM is correct, in recorded order; `None` where the question has
        no gold. Call `join` first.
        """
        golds, pools = self._numbers.golds, self._llms[llm]
        for rows, codes in zip(pools.blocks(), self._codes(pools, self._numbers.cots), strict=True):
            gold = np.repeat(golds[rows], pools.sizes[rows])
            right = (codes == gold).tolist()
            yield from (
                right
                if (gold >= 0).all()
                else (None if g < 0 else r for g, r in zip(gold, right, strict=True))
            )

    def files(self) -> dict[str, Iterator[bytes]]:
        """The bytes of the whole files, by part, in blocks."""
        votes, details = self._arrays()
        header = {"dataset": self.questions.dataset}
        return {
            "votes": pack(header | {"llms": list(self._llms)}, votes),
            "details": pack(header, details),
        }

    def probe_files(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """LLM and the bytes of the flat file of its probes, in blocks, for each LLM that has
        probes.
        """
        for llm, probes in self._probes.items():
            arrays = probes.arrays(
                self._numbers.code_type, partial(self._codes, probes, self._numbers.probes)
            )
            yield llm, pack({"dataset": self.questions.dataset, "llm": llm}, arrays)

    @property
    def _numbers(self) -> _Numbering:
        if self._numbering is None:
            self._numbering = self._numbered(
                lambda question, forms, gold, of_probes: Parties({}, gold)  # noqa: ARG005  forms alone
            )
        return self._numbering

    def _numbered(self, divide: Divide) -> _Numbering:
        self._forms.rewind()
        self._probe_forms.rewind()
        numbering = _Numbering(self._spill, len(self.questions))
        for row, (forms, of_probes) in enumerate(
            zip(self._forms.rest(), self._probe_forms.rest(), strict=True)
        ):
            parties = divide(self.questions.ids[row], forms, self.questions.gold(row), of_probes)
            numbering.add(row, forms, of_probes, parties)
        return numbering

    def _arrays(self) -> tuple[dict[str, FlatArray], dict[str, FlatArray]]:
        """The arrays of the votes and those of the details."""
        arrays = self._shared_arrays()
        for i, pools in enumerate(self._llms.values()):
            arrays |= {f"{name}.{i}": array for name, array in self._llm_arrays(pools).items()}
        details = {name: arrays.pop(name) for name in list(arrays) if name.split(".")[0] in DETAILS}
        return arrays, details

    def _shared_arrays(self) -> dict[str, FlatArray]:
        numbers, (ids, id_offsets) = self._numbers, self.questions.ids.arrays()
        return {
            "question_ids": FlatArray.of(ids),
            "question_id_offsets": FlatArray.of(id_offsets),
            "question_keys": FlatArray.of(self.questions.keys),
            "text_keys": FlatArray.of(self.questions.text_keys),
            **dict(
                zip(("candidates", "candidate_offsets"), numbers.candidates.arrays(), strict=True)
            ),
            "candidate_starts": FlatArray.of(offsets_of(numbers.counts)),
            "gold": FlatArray.of(numbers.golds.astype(numbers.code_type)),
            **self._alias_arrays(),
        }

    def _alias_arrays(self) -> dict[str, FlatArray]:
        numbers = self._numbers
        if not len(numbers.alias_codes):
            return {}
        codes = FlatArray("int32", (len(numbers.alias_codes),), numbers.alias_codes.blocks)
        arrays = (*numbers.aliases.arrays(), FlatArray.of(offsets_of(numbers.alias_counts)), codes)
        return dict(zip(ALIASES, arrays, strict=True))

    def _llm_arrays(self, pools: _Pools) -> dict[str, FlatArray]:
        return {
            "codes": pools.table(
                self._numbers.code_type, partial(self._codes, pools, self._numbers.cots), ABSENT
            ),
            "output_tokens": pools.token_table(),
            "finish": pools.finish_table(),
            "prompt_tokens": FlatArray.of(pools.prompt_tokens),
            "sizes": FlatArray.of(pools.sizes),
            **pools.step_tables(),
        }

    def _codes(self, values: Coded, forms: _Renumbered) -> Iterator[npt.NDArray[Any]]:
        """Yield the final codes of an LLM's CoTs or probes for each block of questions."""
        counts, blocks = forms.counts, values.blocks()
        tables = forms.codes.cut(int(counts[rows].sum()) for rows in blocks)
        for rows, codes, table in zip(blocks, values.cut(values.codes), tables, strict=True):
            first = np.repeat(
                np.cumsum(counts[rows], dtype=np.int64) - counts[rows], values.sizes[rows]
            )
            renumbered = np.append(table, NO_ANSWER)  # which is -1, the last one
            yield renumbered[np.where(codes < 0, NO_ANSWER, codes + first)]


class _Forms:
    """The distinct normal forms of each question in order of first appearance, as lines of a
    temporary file.

    LLMs share them: each reads the lines of those before it and writes its own, question by
    question. `row` is the next one.
    """

    def __init__(self, questions: int, folder: Path | None) -> None:
        self._questions, self._folder = questions, folder
        self._read, self._file = Spill(folder), Spill(folder)
        self._lines: Iterator[bytes] = repeat(_NO_FORMS, questions)
        self.row = 0

    def rewind(self) -> None:
        """Begin again at the first question."""
        self._copy(self._questions)
        self._read.close()
        self._read, self._file = self._file, Spill(self._folder)
        self._lines, self.row = self._read.lines(), 0

    def close(self) -> None:
        """Give the temporary files back."""
        self._read.close()
        self._file.close()

    def coded(self, row: int, answers: Sequence[str | None]) -> list[int]:
        """Return the codes of some answers to a question behind those before."""
        self._copy(row)
        line = next(self._lines)
        codes = {form: code for code, form in enumerate(orjson.loads(line))}
        known = len(codes)
        coded = [
            NO_ANSWER if answer is None else codes.setdefault(answer, len(codes))
            for answer in answers
        ]
        self._file.write(
            line
            if len(codes) == known
            else orjson.dumps(list(codes), option=orjson.OPT_APPEND_NEWLINE)
        )
        self.row = row + 1
        return coded

    def rest(self) -> Iterator[list[str]]:
        """Yield the forms of each question from the next one on."""
        return map(orjson.loads, self._lines)

    def _copy(self, row: int) -> None:
        """Take over the lines of the questions before a row."""
        for line in islice(self._lines, row - self.row):
            self._file.write(line)
        self.row = row


class _Pools(Coded):
    """The pools of one LLM."""

    def __init__(self, spill: Spill, questions: int) -> None:
        super().__init__(spill, questions)
        self._tokens, self._finish = (Column(spill, typecode) for typecode in "IB")
        self._parents, self._ends, self._turns, self._turn_prompts = (
            Column(spill, typecode) for typecode in "iBii"
        )
        self._has_turns = False
        self.prompt_tokens = np.full(questions, -1, np.int32)

    def add(self, row: int, codes: list[int], pool: PoolRows) -> None:
        """Add the CoTs on a question."""
        self.codes.extend(codes)
        self._tokens.extend(pool.output_tokens)
        self._finish.extend(bytes(map(FINISH_CODES.__getitem__, pool.finish_reasons)))
        self.sizes[row] = len(codes)
        if pool.prompt_tokens is not None:
            self.prompt_tokens[row] = pool.prompt_tokens
        if pool.parents and pool.ends:
            nothing = [None] * len(pool.ends)
            self._parents.extend(unknown_as_minus_one(pool.parents))
            self._ends.extend(bytes(pool.ends))
            self._turns.extend(message_numbers(pool.messages or nothing))
            self._turn_prompts.extend(unknown_as_minus_one(pool.turn_prompt_tokens or nothing))
            self._has_turns |= any(sent is not None for sent in pool.messages or ())

    def token_table(self) -> FlatArray:
        """[Q, S] output tokens."""
        _, most = self._tokens.bounds
        return self.table(
            "uint16" if most < 2**16 else "uint32", partial(self.cut, self._tokens), 0
        )

    def finish_table(self) -> FlatArray:
        """[Q, S] finish reasons, or [1, 1] where all are equal."""
        least, most = self._finish.bounds
        if least == most and (most == 0 or (self.sizes == self.width).all()):
            return FlatArray.of(
                np.full((min(len(self.sizes), 1), min(self.width, 1)), most, np.uint8)
            )
        return self.table("uint8", partial(self.cut, self._finish), 0)

    def step_tables(self) -> dict[str, FlatArray]:
        """[Q, S] arrays of `Steps`, those of turns where there are any; nothing where the pools are
        of whole CoTs.
        """
        if not len(self._ends):
            return {}
        kind = "int16" if self.width < 2**15 else "int32"
        tables = {
            "parents": self.table(kind, partial(self.cut, self._parents), ABSENT),
            "ends": self.table("uint8", partial(self.cut, self._ends), 0),
        }
        if not self._has_turns:
            return tables
        return tables | {
            "turns": self.table(kind, partial(self.cut, self._turns), ABSENT),
            "turn_prompts": self.table("int32", partial(self.cut, self._turn_prompts), -1),
        }


class _Renumbered:
    """The final code of each form as CoTs or probes had numbered it, question by question; `counts`
    has how many there are.
    """

    def __init__(self, spill: Spill, questions: int) -> None:
        self.codes, self.counts = Column(spill, "i"), np.zeros(questions, np.uint32)

    def add(self, row: int, codes: list[int]) -> None:
        """Add those of a question."""
        self.codes.extend(codes)
        self.counts[row] = len(codes)


class _Numbering:
    """The candidates of all questions: one for each party of normal forms, then the gold where it
    is in none.

    Attributes:
        golds: [Q] code of the gold, -1 for none.
        counts: [Q] candidates.
        cots: what became of the forms of CoTs when parties joined.
        probes: the same of the forms of probes.
    """

    def __init__(self, spill: Spill, questions: int) -> None:
        self.golds = np.full(questions, NO_ANSWER, np.int32)
        self.counts, self.alias_counts = (np.zeros(questions, np.uint32) for _ in range(2))
        self.candidates, self.aliases = _TextColumn(spill), _TextColumn(spill)
        self.cots, self.probes = (_Renumbered(spill, questions) for _ in range(2))
        self.alias_codes = Column(spill, "i")

    def add(self, row: int, forms: list[str], of_probes: list[str], parties: Parties) -> None:
        """Add the candidates of a question."""
        keys: dict[str, int] = {}
        self.cots.add(row, [keys.setdefault(parties.key(form), len(keys)) for form in forms])
        self.probes.add(row, [keys.setdefault(parties.key(form), len(keys)) for form in of_probes])
        if parties.gold is not None:
            self.golds[row] = keys.setdefault(parties.gold, len(keys))
        self.candidates.extend(keys)
        self.counts[row] = len(keys)
        if aliases := sorted(form for form, key in parties.joined.items() if key in keys):
            self.aliases.extend(aliases)
            self.alias_codes.extend([keys[parties.joined[form]] for form in aliases])
            self.alias_counts[row] = len(aliases)

    @property
    def code_type(self) -> str:
        """The type of codes."""
        most = self.counts.max(initial=0)
        return "int8" if most < 127 else "int16" if most < 32767 else "int32"


class _TextColumn:
    """Strings that are appended, end to end in UTF-8."""

    def __init__(self, spill: Spill) -> None:
        self._data, self._lengths = Column(spill, "B"), Column(spill, "I")

    def extend(self, texts: Collection[str]) -> None:
        """Append some."""
        encoded = [text.encode() for text in texts]
        self._data.extend(b"".join(encoded))
        self._lengths.extend(map(len, encoded))

    def arrays(self) -> tuple[FlatArray, FlatArray]:
        """Return the strings, and where each starts and the last one ends."""
        offsets = FlatArray(offset_type(len(self._data)), (len(self._lengths) + 1,), self._offsets)
        return FlatArray("uint8", (len(self._data),), self._data.blocks), offsets

    def _offsets(self) -> Iterator[npt.NDArray[Any]]:
        end = np.zeros(1, np.int64)
        yield end
        for lengths in self._lengths.blocks():
            ends = end[-1] + np.cumsum(lengths, dtype=np.int64)
            yield ends
            end = ends
