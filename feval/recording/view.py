"""One dataset in one recording, or in several that are opened together."""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TypeVar

import numpy as np

from feval import answers
from feval.arguments import is_whole
from feval.errors import ConflictError, NotRecordedError, SeparateAnswersWarning, UsageError
from feval.recording.content import Question, Texts, rows_of_keys
from feval.recording.layout.flat import Int32, Integers, Rows, Strings
from feval.recording.reader import Recording
from feval.recording.votes import ABSENT, NO_ANSWER, Votes

_BLOCK, _BLOCKS = 1 << 12, 16
"""Questions that are read at once, and how many such blocks are kept."""

_T = TypeVar("_T")


def _owner(recordings: Sequence[Recording], dataset: str, llm: str) -> Recording:
    holders = [r for r in recordings if (dataset, llm) in r.manifest.pairs]
    if not holders:
        if len(recordings) == 1:
            recordings[0].require(dataset, llm)
        pairs = sorted({f"{where}: {name}" for r in recordings for where, name in r.manifest.pairs})
        raise NotRecordedError(
            f"None of {len(recordings)} recordings holds {llm!r} on {dataset}. They hold"
            f" {'; '.join(pairs)}."
        )
    if len({holder.hash for holder in holders}) > 1:
        paths = " and ".join(str(holder.path) for holder in holders)
        raise ConflictError(f"{llm} on {dataset} is in {paths}; open one of them, or merge them.")
    return holders[0]


def open_view(recordings: Sequence[Recording], dataset: str, names: Sequence[str]) -> DatasetView:
    """Find some LLMs on a dataset in one or more recordings; contradictions between them are a
    `ConflictError`.
    """
    owners = {name: _owner(recordings, dataset, name) for name in names}
    distinct = list({id(owner): owner for owner in owners.values()}.values()) or [recordings[0]]
    first = distinct[0].votes(dataset)
    if len(distinct) == 1:
        return DatasetView(distinct[0], first)
    parts = [
        _Holder(owner, [n for n in names if owners[n] is owner], owner.votes(dataset), first)
        for owner in distinct
    ]
    for part in parts[1:]:
        _check_agreement(parts[0], part)
    for sentence in _warnings(parts, dataset):
        warnings.warn_explicit(sentence, SeparateAnswersWarning, "feval.load", 1)
    votes, of_llm = _JoinedVotes(parts), dict[str, DatasetView]()
    for part in parts:
        own = DatasetView(part.recording, votes, part.rows, votes.tables)
        of_llm |= dict.fromkeys(part.names, own)
    return DatasetView(distinct[0], votes, of_llm=of_llm)


class DatasetView:
    """One dataset as a recording holds it.

    Attributes:
        recording: that recording; where several are opened together, the first.
        votes: of all recordings that are opened together.
        rows: [Q] row of each question in the recording; `None` where the order is the same.
        code_tables: for LLMs with probes, per question the code of each of the recording's codes;
            empty where they are the same.
        texts, reasoning, marks, messages, tool_calls: from LLM and row as `Recording` has them; the
            last result is kept.
    """

    def __init__(
        self,
        recording: Recording,
        votes: Votes,
        rows: Rows | None = None,
        code_tables: Mapping[str, Sequence[Int32]] | None = None,
        of_llm: Mapping[str, DatasetView] | None = None,
    ) -> None:
        self.recording, self.votes, self.rows = recording, votes, rows
        self.code_tables, self._of_llm = code_tables or {}, of_llm or {}
        self.texts, self.reasoning = self._kept(recording.texts), self._kept(recording.reasoning)
        self.marks, self.messages = self._kept(recording.marks), self._kept(recording.messages)
        self.tool_calls = self._kept(recording.tool_calls)
        self._questions = lru_cache(_BLOCKS)(partial(_questions, recording, votes.dataset))
        self._prompts = lru_cache(_BLOCKS)(partial(_prompts, recording, votes.dataset))

    def _kept(self, read: Callable[[str, str, int], _T]) -> Callable[[str, int], _T]:
        dataset, rows = self.votes.dataset, self.rows  # not of `self`: no cycle keeps files mapped

        @lru_cache(1)
        def last(llm: str, row: int) -> _T:
            return read(dataset, llm, row if rows is None else int(rows[row]))

        return last

    def of(self, llm: str) -> DatasetView:
        """The view of the recording that has an LLM."""
        return self._of_llm.get(llm, self)

    def all_views(self) -> list[DatasetView]:
        """One view per recording."""
        return list(dict.fromkeys(self._of_llm.values())) or [self]

    def numbers_as(self, other: DatasetView) -> bool:
        """Whether equal codes mean equal answers in both views: they come from one `load`, or from
        equal ones.
        """
        mine, theirs = self.votes, other.votes
        return mine is theirs or (
            mine.dataset == theirs.dataset
            and list(mine.question_ids) == list(theirs.question_ids)
            and all(mine.candidates(row) == theirs.candidates(row) for row in range(len(mine)))
        )

    def key(self, row: int, form: str) -> str:
        """The voting key of a normal form: that of its party if the recording has compared it, else
        itself.
        """
        code = self.votes.aliases(row).get(form)
        return form if code is None else self.votes.candidates(row)[code]

    def question(self, row: int) -> Question:
        """A question, with its text and gold; it is read with its neighbours, and the last blocks
        that were read are kept.
        """
        block, place = divmod(self._recorded_row(row), _BLOCK)
        return self._questions(block)[place]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.votes.question_ids)}

    def row(self, question: str | int) -> int:
        """Row of a question, by id or row."""
        count = len(self.votes)
        if isinstance(question, str):
            row = self._places.get(question)
            if row is None:
                examples = ", ".join(self.votes.question_ids[:3])
                raise NotRecordedError(
                    f"{self.votes.dataset} has no question {question!r}; its {count} ids begin with"
                    f" {examples}."
                )
            return row
        if not is_whole(question):
            raise UsageError(
                f"A question is named by its id or row; {question!r:.80}"
                f" ({type(question).__name__}) was given."
            )
        if not 0 <= question < count:
            raise NotRecordedError(
                f"{self.votes.dataset} has the question rows 0 to {count - 1}; {question} was asked"
                " for."
            )
        return int(question)

    def _recorded_row(self, row: int) -> int:
        return row if self.rows is None else int(self.rows[row])

    def texts_near(self, llm: str, row: int) -> dict[int, list[str | None]]:
        """Texts of a question and of those read with it, by row; not cached."""
        near = self.recording.texts_near(self.votes.dataset, llm, self._recorded_row(row))
        if self.rows is None:
            return near
        joined = np.flatnonzero(np.isin(self.rows, list(near))).tolist()
        return {each: near[self._recorded_row(each)] for each in joined}

    def prompts(self, llm: str) -> list[str | None]:
        """The requests sent to an LLM, by row; not cached."""
        sent = dict(self.recording.scan_prompts(self.votes.dataset, llm))
        return [sent.get(question) for question in self.votes.question_ids]

    def prompt(self, llm: str, row: int) -> str | None:
        """The request sent to an LLM for a question; read with all others, or with its neighbours
        where that would be many.
        """
        block = None if len(self.votes) <= _BLOCK * _BLOCKS else self._recorded_row(row) // _BLOCK
        return self._prompts(llm, block).get(self.votes.question_ids[row])


def _questions(recording: Recording, dataset: str, block: int) -> list[Question]:
    return list(recording.scan_questions(dataset, _rows(recording, dataset, block)))


def _prompts(
    recording: Recording, dataset: str, llm: str, block: int | None
) -> dict[str, str | None]:
    rows = None if block is None else _rows(recording, dataset, block)
    return dict(recording.scan_prompts(dataset, llm, rows))


def _rows(recording: Recording, dataset: str, block: int) -> range:
    return range(block * _BLOCK, min((block + 1) * _BLOCK, len(recording.votes(dataset))))


@dataclass(frozen=True, eq=False)
class _Holder:
    """One of several recordings, with some of its LLMs; `first` has the questions in the joined
    order.
    """

    recording: Recording
    names: Sequence[str]
    votes: Votes
    first: Votes

    @cached_property
    def rows(self) -> Rows:
        """[Q] row of each question in this recording; any row for one that it lacks."""
        mine, joined = self.votes.question_keys, self.first.question_keys
        if np.array_equal(mine, joined):
            return np.arange(len(mine))
        return rows_of_keys(mine, joined)

    def candidates(self, row: int) -> list[str]:
        return self.votes.candidates(int(self.rows[row]))


class _JoinedVotes(Votes):
    """The votes of several recordings, in the order of the first. The answers of each question are
    numbered anew, so that votes pool: those of the LLMs in their order, then the gold.

    `tables` has, for an LLM with probes and each question, the code of each of the recording's
    codes.
    """

    def __init__(self, parts: Sequence[_Holder]) -> None:
        vars(self).update(vars(parts[0].votes))
        self._parts = parts
        self.tables: dict[str, list[Int32]] = {
            name: []
            for part in parts
            for name in part.names
            if part.recording.has_probes(self.dataset, name)
        }
        keys, starts, golds = Texts(), array("Q", [0]), np.empty(len(self), np.int32)
        codes: dict[str, list[Integers]] = {}
        for start in range(0, len(self), _BLOCK):
            rows = range(start, min(start + _BLOCK, len(self)))
            blocks = [
                {
                    name: part.votes.llms[name].codes[part.rows[rows]].astype(np.int32)
                    for name in part.names
                }
                for part in parts
            ]
            for place, row in enumerate(rows):
                forms, known = self._forms(row), dict[str, int]()
                for part, tables in zip(parts, blocks, strict=True):
                    candidates = [forms.get(key, key) for key in part.candidates(row)]
                    for name, table in tables.items():
                        self._renumber(name, table[place], candidates, known)
                golds[row] = self._gold(row, forms, known)
                for key in known:
                    keys.append(key)
                starts.append(len(keys))
            for name, table in (each for tables in blocks for each in tables.items()):
                narrow = np.min_scalar_type(-1 - int(table.max(initial=0)))
                codes.setdefault(name, []).append(table.astype(narrow))
        self.gold = golds
        self._candidates, self._starts = Strings(*keys.arrays()), np.array(starts)
        self.llms = {
            name: part.votes.llms[name].rows(part.rows, np.concatenate(codes[name]))
            for part in parts
            for name in part.names
        }

    def _renumber(
        self, name: str, codes: Int32, candidates: Sequence[str], known: dict[str, int]
    ) -> None:
        """Change an LLM's codes of a question to those in `known`, where new answers get the next
        ones.
        """
        # An answer takes its place in the shared table only if this LLM gave it, perhaps in a
        # probe.
        present = range(len(candidates)) if name in self.tables else set(codes.tolist())
        table = [
            known.setdefault(key, len(known)) if code in present else NO_ANSWER
            for code, key in enumerate(candidates)
        ]
        new = np.array([*table, ABSENT, NO_ANSWER], np.int32)
        codes[:] = new[codes]
        if name in self.tables:
            self.tables[name].append(new)

    @property
    def has_aliases(self) -> bool:
        return any(part.votes.has_aliases for part in self._parts)

    def aliases(self, question: int) -> dict[str, int]:
        forms = self._forms(question)
        codes = {key: code for code, key in enumerate(self.candidates(question))} if forms else {}
        return {form: codes[key] for form, key in forms.items() if key in codes}

    def _forms(self, row: int) -> dict[str, str]:
        """Return normal form -> key of its party, where they differ; parties of several recordings
        with a form in common are one.

        All parties of all recordings count, whichever LLMs are opened.
        """
        parents: dict[str, str] = {}

        def root(form: str) -> str:
            while (parent := parents.setdefault(form, form)) != form:
                form = parent
            return form

        for part in self._parts:
            if aliases := part.votes.aliases(int(part.rows[row])):
                candidates = part.candidates(row)
                for form, code in aliases.items():
                    first, second = sorted((root(form), root(candidates[code])))
                    parents[second] = first
        return {form: key for form in parents if (key := root(form)) != form}

    def _gold(self, row: int, forms: Mapping[str, str], known: dict[str, int]) -> int:
        codes = [(part, int(part.votes.gold[part.rows[row]])) for part in self._parts]
        golds = dict.fromkeys(part.candidates(row)[code] for part, code in codes if code >= 0)
        keys = list(dict.fromkeys(forms.get(gold, gold) for gold in golds))
        if len(keys) > 1 and self._golds_differ(row):
            paths = " and ".join(str(part.recording.path) for part in self._parts)
            raise ConflictError(
                f"Question {self.question_ids[row]!r} has two golds, {sorted(golds)}, in {paths}."
            )
        return known.setdefault(keys[0], len(known)) if keys else NO_ANSWER

    def _golds_differ(self, row: int) -> bool:
        """Whether golds with different keys differ; under an equality, the party of one gold may
        have a key per recording.
        """
        if self._parts[0].recording.dataset_info(self.dataset).equality == answers.NORMAL_FORM:
            return True
        golds = {
            part.recording.questions(self.dataset)[int(part.rows[row])].answer_key
            for part in self._parts
        }
        return len(golds - {None}) > 1


def _warnings(parts: Sequence[_Holder], dataset: str) -> Iterator[str]:
    """Yield warnings about equal answers of different recordings that may not vote together."""
    infos = [part.recording.dataset_info(dataset) for part in parts]
    if infos[0].equality != answers.NORMAL_FORM:
        yield (
            f"{len(parts)} recordings of {dataset} are opened together: their answers vote together"
            " only where their parties have a normal form in common. `feval merge` compares all of"
            " them."
        )
    extractors = {
        info.extractor: part.recording.path for info, part in zip(infos, parts, strict=True)
    }
    if len(extractors) > 1:
        read = ", ".join(f"{name} in {path}" for name, path in extractors.items())
        yield (
            f"The answers of {dataset} were extracted by different rules ({read}), so equal ones"
            " may not vote together. `feval extract` reads all by the same."
        )


def _check_agreement(first: _Holder, part: _Holder) -> None:
    mine, theirs = first.votes, part.votes
    here, there = first.recording, part.recording
    infos = [recording.dataset_info(mine.dataset) for recording in (here, there)]
    for field, noun in (("answer_kind", "answer kind"), ("equality", "equality of answers")):
        ours, other = (getattr(info, field) for info in infos)
        if ours != other:
            raise ConflictError(
                f"{mine.dataset} has the {noun} {ours!r} in {here.path} but {other!r} in"
                f" {there.path}; votes cannot pool. `feval extract` makes both alike."
            )
    if len(mine) != len(theirs) or (theirs.question_keys[part.rows] != mine.question_keys).any():
        odd = min(set(mine.question_ids) ^ set(theirs.question_ids), default=mine.question_ids[0])
        raise ConflictError(
            f"{here.path} and {there.path} have different questions of {mine.dataset} ({odd!r} is"
            " in one only); select first."
        )
    differ = np.flatnonzero(theirs.text_keys[part.rows] != mine.text_keys)
    if differ.size:
        raise ConflictError(
            f"Question {mine.question_ids[int(differ[0])]!r} has one text in {here.path} and"
            f" another in {there.path}."
        )
