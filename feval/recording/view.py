"""One dataset in one recording, or in several that are opened together."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.answers.parties import NORMAL_FORM
from feval.errors import ConflictError, GoldAwareWarning, NotRecordedError, SeparateAnswersWarning
from feval.recording.content import Question
from feval.recording.gold_aware import gold_aware_remark, is_gold_aware
from feval.recording.reader import Recording
from feval.recording.votes import ABSENT, NO_ANSWER, LLMVotes, Votes

Codes = npt.NDArray[np.int32]


def _owner(recordings: Sequence[Recording], dataset: str, llm: str) -> Recording:
    holders = [r for r in recordings if (dataset, llm) in r.manifest.pairs]
    if not holders:
        if len(recordings) == 1:
            recordings[0].require(dataset, llm)
        pairs = sorted({f"{where}: {name}" for r in recordings for where, name in r.manifest.pairs})
        raise NotRecordedError(
            f"None of {len(recordings)} recordings holds {llm!r} on {dataset}. They hold {'; '.join(pairs)}."
        )
    if len({holder.hash for holder in holders}) > 1:
        paths = " and ".join(str(holder.path) for holder in holders)
        raise ConflictError(f"{llm} on {dataset} is in {paths}; open one of them, or merge them.")
    return holders[0]


def open_view(recordings: Sequence[Recording], dataset: str, names: Sequence[str]) -> View:
    """Find some LLMs on a dataset in one or more recordings; contradictions between them are a `ConflictError`."""
    owners = {name: _owner(recordings, dataset, name) for name in names}
    distinct = list({id(owner): owner for owner in owners.values()}.values()) or [recordings[0]]
    for recording in distinct:
        if is_gold_aware(recording, dataset):
            warnings.warn(gold_aware_remark(recording, dataset), GoldAwareWarning, stacklevel=3)
    if len(distinct) == 1:
        return View(distinct[0], distinct[0].votes(dataset))
    return _JoinedView([(owner, [n for n in names if owners[n] is owner]) for owner in distinct], dataset)


class View:
    """One dataset as one recording holds it: the recording, and its votes."""

    def __init__(self, recording: Recording, votes: Votes) -> None:
        self.recording, self.votes = recording, votes
        self._texts: tuple[str, int, list[str | None]] | None = None
        self._reasoning: tuple[str, int, list[str | None] | None] | None = None

    def of(self, llm: str) -> View:  # noqa: ARG002  a view of several recordings uses it
        """The view of the recording that has an LLM."""
        return self

    def all_views(self) -> list[View]:
        """One view per recording."""
        return [self]

    def numbering(self) -> View:
        """The view that numbered the candidates: this one, or the joined view it is a part of."""
        return self

    def numbers_as(self, other: View) -> bool:
        """Whether equal codes mean equal answers in both views: they come from one `load`, or from equal ones."""
        mine, theirs = self.numbering(), other.numbering()
        if mine is theirs:
            return True
        ids = mine.votes.question_ids
        if mine.votes.dataset != theirs.votes.dataset or list(ids) != list(theirs.votes.question_ids):
            return False
        return all(mine.candidates(row) == theirs.candidates(row) for row in range(len(ids)))

    def pool(self, llm: str) -> LLMVotes:
        """The arrays of one LLM."""
        return self.votes.llms[llm]

    def recorded_rows(self) -> npt.NDArray[np.intp] | None:
        """[Q] row of each question in the recording; `None` where the order is the same."""
        return None

    def code_tables(self, llm: str) -> Sequence[Codes] | None:  # noqa: ARG002  a view of several recordings uses it
        """Per question, the code of each of the recording's codes, for an LLM with probes; `None` where they are the same."""
        return None

    def candidates(self, row: int) -> list[str]:
        """The distinct answers of a question by code."""
        return self.votes.candidates(row)

    def key(self, row: int, form: str) -> str:
        """The voting key of a normal form: that of its party if the recording has compared it, else itself."""
        code = self.aliases(row).get(form)
        return form if code is None else self.candidates(row)[code]

    def aliases(self, row: int) -> Mapping[str, int]:
        """Normal forms of a question that vote under the key of another form -> code of that key."""
        return self.votes.aliases(row)

    def candidate_counts(self) -> npt.NDArray[np.integer[Any]]:
        """[Q] number of distinct answers of each question."""
        return self.votes.candidate_counts()

    @cached_property
    def questions(self) -> list[Question]:
        """All questions, with texts and golds."""
        return self.recording.questions(self.votes.dataset)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.votes.question_ids)}

    @cached_property
    def _prompts(self) -> dict[str, dict[str, str | None]]:
        return {}

    def row(self, question: str | int) -> int:
        """Row of a question, by id or row."""
        count = len(self.votes)
        if isinstance(question, str):
            row = self._rows.get(question)
            if row is None:
                examples = ", ".join(self.votes.question_ids[:3])
                raise NotRecordedError(
                    f"{self.votes.dataset} has no question {question!r}; its {count} ids begin with {examples}."
                )
            return row
        if not 0 <= question < count:
            raise NotRecordedError(
                f"{self.votes.dataset} has the question rows 0 to {count - 1}; {question} was asked for."
            )
        return int(question)

    def _recorded_row(self, row: int) -> int:
        return row

    def texts(self, llm: str, row: int) -> list[str | None]:
        """Texts of an LLM's CoTs on a question, in recorded order; the last result is cached."""
        if self._texts is None or self._texts[:2] != (llm, row):
            self._texts = (llm, row, self.recording.texts(self.votes.dataset, llm, self._recorded_row(row)))
        return self._texts[2]

    def reasoning(self, llm: str, row: int) -> list[str | None] | None:
        """Thoughts of an LLM's CoTs on a question, in recorded order; `None` where there are none. The last result is cached."""
        if self._reasoning is None or self._reasoning[:2] != (llm, row):
            thoughts = self.recording.reasoning(self.votes.dataset, llm, self._recorded_row(row))
            self._reasoning = (llm, row, thoughts)
        return self._reasoning[2]

    def reasoning_tokens(self, llm: str) -> dict[str, list[int | None]]:
        """As `Recording.reasoning_tokens`."""
        return self.recording.reasoning_tokens(self.votes.dataset, llm)

    def texts_near(self, llm: str, row: int) -> dict[int, list[str | None]]:
        """Texts of a question and of those read with it, by row; not cached."""
        return self.recording.texts_near(self.votes.dataset, llm, row)

    def prompts(self, llm: str) -> list[str | None]:
        """The requests sent to an LLM, by row; not cached."""
        sent = self.recording.prompts(self.votes.dataset, llm)
        return [sent.get(question) for question in self.votes.question_ids]

    def prompt(self, llm: str, row: int) -> str | None:
        """The request sent to an LLM for a question."""
        if llm not in self._prompts:
            self._prompts[llm] = self.recording.prompts(self.votes.dataset, llm)
        return self._prompts[llm].get(self.votes.question_ids[row])


class _JoinedView(View):
    """Several recordings of one dataset opened together; candidates are renumbered so that votes pool across LLMs."""

    def __init__(self, owners: Sequence[tuple[Recording, Sequence[str]]], dataset: str) -> None:
        first = owners[0][0]
        super().__init__(first, first.votes(dataset))
        self._parts = [_Part(recording, names, recording.votes(dataset), self._rows) for recording, names in owners]
        for part in self._parts[1:]:
            self._agree(part)
        self._joined = [_joined_forms(self._parts, row) for row in range(len(self.votes))]
        for sentence in self._apart(owners, dataset):
            warnings.warn(sentence, SeparateAnswersWarning, stacklevel=4)
        self._codes: list[dict[str, int]] = [{} for _ in range(len(self.votes))]
        self._tables: dict[str, list[Codes]] = {}
        self._pools = {name: self._pool(part, name) for part in self._parts for name in part.names}
        self.votes = copy(self.votes)
        self.votes.gold = np.array([self._gold(row) for row in range(len(self.votes))], np.int32)

    def _pool(self, part: _Part, llm: str) -> LLMVotes:
        pool, tables = part.pool(llm, self._codes, self._joined)
        if part.recording.has_probes(self.votes.dataset, llm):
            self._tables[llm] = tables
        return pool

    @staticmethod
    def _apart(owners: Sequence[tuple[Recording, Sequence[str]]], dataset: str) -> Iterator[str]:
        """Yield warnings about equal answers of different recordings that may not vote together."""
        infos = [recording.dataset_info(dataset) for recording, _ in owners]
        if infos[0].equality != NORMAL_FORM:
            yield (
                f"{len(owners)} recordings of {dataset} are opened together: their answers vote together only where their "
                "parties have a normal form in common. `feval merge` compares all of them."
            )
        extractors = {info.extractor: str(recording.path) for info, (recording, _) in zip(infos, owners, strict=True)}
        if len(extractors) > 1:
            read = ", ".join(f"{name} in {path}" for name, path in extractors.items())
            yield (
                f"The answers of {dataset} were extracted by different rules ({read}), so equal ones may not vote together. "
                "`feval extract` reads all by the same."
            )

    def of(self, llm: str) -> View:
        part = next(part for part in self._parts if llm in part.names)
        return _PartView(self, part)

    def all_views(self) -> list[View]:
        return [_PartView(self, part) for part in self._parts]

    def pool(self, llm: str) -> LLMVotes:
        return self._pools[llm]

    def candidates(self, row: int) -> list[str]:
        return list(self._codes[row])

    def aliases(self, row: int) -> Mapping[str, int]:
        codes = self._codes[row]
        return {form: codes[key] for form, key in self._joined[row].items() if key in codes}

    def candidate_counts(self) -> npt.NDArray[np.integer[Any]]:
        return np.array([len(codes) for codes in self._codes], np.int32)

    def _agree(self, part: _Part) -> None:
        mine, theirs = self.votes, part.votes
        here, there = self.recording.path, part.recording.path
        infos = [recording.dataset_info(mine.dataset) for recording in (self.recording, part.recording)]
        for field, noun in (("answer_kind", "answer kind"), ("equality", "equality of answers")):
            ours, other = (getattr(info, field) for info in infos)
            if ours != other:
                raise ConflictError(
                    f"{mine.dataset} has the {noun} {ours!r} in {here} but {other!r} in {there}; votes cannot pool. `feval "
                    "extract` makes both alike."
                )
        if set(mine.question_ids) != set(theirs.question_ids):
            odd = min(set(mine.question_ids) ^ set(theirs.question_ids))
            raise ConflictError(
                f"{here} and {there} have different questions of {mine.dataset} ({odd!r} is in one only); select first."
            )
        differ = np.flatnonzero(theirs.text_keys[part.rows] != mine.text_keys)
        if differ.size:
            raise ConflictError(
                f"Question {mine.question_ids[int(differ[0])]!r} has one text in {here} and another in {there}."
            )

    def _gold(self, row: int) -> int:
        golds = list(dict.fromkeys(gold for part in self._parts if (gold := part.gold(row)) is not None))
        keys = list(dict.fromkeys(self._joined[row].get(gold, gold) for gold in golds))
        if len(keys) > 1 and self._golds_differ(row):
            paths = " and ".join(str(part.recording.path) for part in self._parts)
            raise ConflictError(
                f"Question {self.votes.question_ids[row]!r} has two golds, {sorted(golds)}, in {paths}."
            )
        codes = self._codes[row]
        return codes.setdefault(keys[0], len(codes)) if keys else NO_ANSWER

    def _golds_differ(self, row: int) -> bool:
        """Whether golds with different keys differ; under an equality, the party of one gold may have a key per recording."""
        if self.recording.dataset_info(self.votes.dataset).equality == NORMAL_FORM:
            return True
        golds = (part.recording.questions(self.votes.dataset)[int(part.rows[row])].answer_key for part in self._parts)
        return len({gold for gold in golds if gold is not None}) > 1


@dataclass(frozen=True, eq=False)
class _Part:
    """One of several recordings; `rows[q]` is its row of the first recording's question q."""

    recording: Recording
    names: Sequence[str]
    votes: Votes
    order: Mapping[str, int]

    @cached_property
    def rows(self) -> npt.NDArray[np.intp]:
        rows = {name: row for row, name in enumerate(self.votes.question_ids)}
        return np.array([rows.get(name, 0) for name in self.order], np.intp)

    def pool(
        self, llm: str, codes: Sequence[dict[str, int]], joined: Sequence[Mapping[str, str]]
    ) -> tuple[LLMVotes, list[Codes]]:
        """The arrays of one LLM in the joined numbering, and the joined code of each of the recording's, by question."""
        votes, tables = self.votes.llms[llm], []
        probed = self.recording.has_probes(self.votes.dataset, llm)
        renumbered = votes.codes[self.rows].astype(np.int32)
        for row, place in enumerate(self.rows.tolist()):
            candidates = [joined[row].get(key, key) for key in self.votes.candidates(place)]
            known = codes[row]
            # An answer takes its place in the shared table only if this LLM gave it, perhaps in a probe.
            present = {code for code in renumbered[row].tolist() if code >= 0}
            table = [
                known.setdefault(c, len(known)) if probed or i in present else NO_ANSWER
                for i, c in enumerate(candidates)
            ]
            tables.append(np.array([*table, ABSENT, NO_ANSWER], np.int32))
            renumbered[row] = tables[-1][renumbered[row]]
        rows = self.rows
        pool = LLMVotes(
            renumbered,
            votes.output_tokens[rows],
            votes.prompt_tokens[rows],
            votes.sizes[rows],
            lambda: votes.finish[rows],
        )
        return pool, tables

    def gold(self, row: int) -> str | None:
        place = int(self.rows[row])
        code = int(self.votes.gold[place])
        return None if code < 0 else self.votes.candidates(place)[code]


def _joined_forms(parts: Sequence[_Part], row: int) -> dict[str, str]:
    """Return normal form -> key of its party, where they differ; parties of several recordings with a form in common are one.

    All parties of all recordings count, whichever LLMs are opened.
    """
    if not any(part.votes.has_aliases for part in parts):
        return {}
    parents: dict[str, str] = {}

    def root(form: str) -> str:
        while (parent := parents.setdefault(form, form)) != form:
            form = parent
        return form

    for part in parts:
        place = int(part.rows[row])
        candidates = part.votes.candidates(place)
        for form, code in part.votes.aliases(place).items():
            first, second = sorted((root(form), root(candidates[code])))
            parents[second] = first
    return {form: key for form in parents if (key := root(form)) != form}


class _PartView(View):
    """One recording of a joined view, with the joined numbering of questions and candidates."""

    def __init__(self, joined: _JoinedView, part: _Part) -> None:
        super().__init__(part.recording, joined.votes)
        self._joined, self._part = joined, part

    def numbering(self) -> View:
        return self._joined

    def candidates(self, row: int) -> list[str]:
        return self._joined.candidates(row)

    def aliases(self, row: int) -> Mapping[str, int]:
        return self._joined.aliases(row)

    def recorded_rows(self) -> npt.NDArray[np.intp] | None:
        return self._part.rows

    def code_tables(self, llm: str) -> Sequence[Codes] | None:
        return self._joined._tables.get(llm)  # noqa: SLF001  two halves of one view

    def _recorded_row(self, row: int) -> int:
        return int(self._part.rows[row])

    def texts_near(self, llm: str, row: int) -> dict[int, list[str | None]]:
        near = self._part.recording.texts_near(self.votes.dataset, llm, int(self._part.rows[row]))
        rows = {int(place): joined for joined, place in enumerate(self._part.rows.tolist()) if place in near}
        return {rows[place]: texts for place, texts in near.items()}
