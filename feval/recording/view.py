"""One dataset in one recording, or in several that are opened together."""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.answers.parties import NORMAL_FORM
from feval.answers.thoughts import Mark
from feval.arguments import is_whole
from feval.errors import ConflictError, NotRecordedError, SeparateAnswersWarning, UsageError
from feval.recording.content import Question, Texts
from feval.recording.layout.flat import Strings
from feval.recording.reader import Recording
from feval.recording.votes import ABSENT, NO_ANSWER, LLMVotes, Votes

_BLOCK, _BLOCKS = 1 << 12, 16
"""Questions that are read at once, and how many such blocks are kept."""

Codes = npt.NDArray[np.int32]


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


def _rows(recording: Recording, dataset: str, block: int) -> range:
    return range(block * _BLOCK, min((block + 1) * _BLOCK, len(recording.votes(dataset))))


def _question_block(recording: Recording, dataset: str, block: int) -> list[Question]:
    return list(recording.scan_questions(dataset, _rows(recording, dataset, block)))


def _prompt_block(
    recording: Recording, dataset: str, llm: str, block: int | None
) -> dict[str, str | None]:
    return dict(
        recording.scan_prompts(
            dataset, llm, None if block is None else _rows(recording, dataset, block)
        )
    )


def open_view(recordings: Sequence[Recording], dataset: str, names: Sequence[str]) -> View:
    """Find some LLMs on a dataset in one or more recordings; contradictions between them are a
    `ConflictError`.
    """
    owners = {name: _owner(recordings, dataset, name) for name in names}
    distinct = list({id(owner): owner for owner in owners.values()}.values()) or [recordings[0]]
    if len(distinct) == 1:
        return View(distinct[0], distinct[0].votes(dataset))
    return _JoinedView(
        [(owner, [n for n in names if owners[n] is owner]) for owner in distinct], dataset
    )


class View:
    """One dataset as one recording holds it: the recording, and its votes."""

    def __init__(self, recording: Recording, votes: Votes) -> None:
        self.recording, self.votes = recording, votes
        self._last: dict[str, tuple[str, int, Any]] = {}

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
        """Whether equal codes mean equal answers in both views: they come from one `load`, or from
        equal ones.
        """
        mine, theirs = self.numbering(), other.numbering()
        if mine is theirs:
            return True
        ids = mine.votes.question_ids
        if mine.votes.dataset != theirs.votes.dataset or list(ids) != list(
            theirs.votes.question_ids
        ):
            return False
        return all(mine.candidates(row) == theirs.candidates(row) for row in range(len(ids)))

    def pool(self, llm: str) -> LLMVotes:
        """The arrays of one LLM."""
        return self.votes.llms[llm]

    def recorded_rows(self) -> npt.NDArray[np.intp] | None:
        """[Q] row of each question in the recording; `None` where the order is the same."""
        return None

    def code_tables(self, llm: str) -> Sequence[Codes] | None:  # noqa: ARG002  a view of several recordings uses it
        """Per question, the code of each of the recording's codes, for an LLM with probes; `None`
        where they are the same.
        """
        return None

    def candidates(self, row: int) -> list[str]:
        """The distinct answers of a question by code."""
        return self.votes.candidates(row)

    def key(self, row: int, form: str) -> str:
        """The voting key of a normal form: that of its party if the recording has compared it, else
        itself.
        """
        code = self.aliases(row).get(form)
        return form if code is None else self.candidates(row)[code]

    def aliases(self, row: int) -> Mapping[str, int]:
        """Normal forms of a question that vote under the key of another form -> code of that
        key.
        """
        return self.votes.aliases(row)

    def candidate_counts(self) -> npt.NDArray[np.integer[Any]]:
        """[Q] number of distinct answers of each question."""
        return self.votes.candidate_counts()

    def question(self, row: int) -> Question:
        """A question, with its text and gold; it is read with its neighbours, and the last blocks
        that were read are kept.
        """
        block, place = divmod(row, _BLOCK)
        return self._questions(block)[place]

    @cached_property
    def _questions(self) -> Callable[[int], list[Question]]:
        return lru_cache(_BLOCKS)(partial(_question_block, self.recording, self.votes.dataset))

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.votes.question_ids)}

    @cached_property
    def _prompts(self) -> Callable[[str, int | None], dict[str, str | None]]:
        return lru_cache(_BLOCKS)(partial(_prompt_block, self.recording, self.votes.dataset))

    def row(self, question: str | int) -> int:
        """Row of a question, by id or row."""
        count = len(self.votes)
        if isinstance(question, str):
            row = self._rows.get(question)
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
        return row

    def texts(self, llm: str, row: int) -> list[str | None]:
        """Texts of an LLM's CoTs on a question, in recorded order; the last result is cached."""
        texts: list[str | None] = self._once("texts", llm, row)
        return texts

    def reasoning(self, llm: str, row: int) -> list[str | None] | None:
        """Thoughts of an LLM's CoTs on a question, in recorded order; `None` where there are none.
        The last result is cached.
        """
        thoughts: list[str | None] | None = self._once("reasoning", llm, row)
        return thoughts

    def marks(self, llm: str, row: int) -> list[tuple[Mark, ...] | None] | None:
        """Where the thoughts of an LLM on a question were in the raw texts, as `Recording.marks`;
        the last result is cached.
        """
        marks: list[tuple[Mark, ...] | None] | None = self._once("marks", llm, row)
        return marks

    def messages(self, llm: str, row: int) -> list[str | None] | None:
        """What an LLM's turns on a question reply to, as `Recording.messages`; the last result is
        cached.
        """
        messages: list[str | None] | None = self._once("messages", llm, row)
        return messages

    def _once(self, part: str, llm: str, row: int) -> Any:
        if self._last.get(part, ("", -1))[:2] != (llm, row):
            values = getattr(self.recording, part)(self.votes.dataset, llm, self._recorded_row(row))
            self._last[part] = (llm, row, values)
        return self._last[part][2]

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
        """The request sent to an LLM for a question; read with all others, or with its neighbours
        where that would be many.
        """
        block = None if len(self.votes) <= _BLOCK * _BLOCKS else self._recorded_row(row) // _BLOCK
        return self._prompts(llm, block).get(self.votes.question_ids[row])


class _JoinedView(View):
    """Several recordings of one dataset opened together; candidates are renumbered so that votes
    pool across LLMs.
    """

    def __init__(self, owners: Sequence[tuple[Recording, Sequence[str]]], dataset: str) -> None:
        first = owners[0][0]
        super().__init__(first, first.votes(dataset))
        self._parts = [
            _Part(recording, names, recording.votes(dataset), self.votes)
            for recording, names in owners
        ]
        for part in self._parts[1:]:
            self._agree(part)
        for sentence in self._apart(owners, dataset):
            warnings.warn(sentence, SeparateAnswersWarning, stacklevel=4)
        self._tables: dict[str, list[Codes]] = {}
        self.votes = copy(self.votes)
        codes = self._number()
        self._pools = {
            name: part.pool(name, codes[name]) for part in self._parts for name in part.names
        }

    def _number(self) -> dict[str, npt.NDArray[np.signedinteger[Any]]]:
        """Number the answers of each question anew: those of the LLMs in their order, then the
        gold. Return [Q, S] by LLM.
        """
        keys, starts, gold = Texts(), array("Q", [0]), np.empty(len(self.votes), np.int32)
        blocks: dict[str, list[npt.NDArray[Any]]] = {
            name: [] for part in self._parts for name in part.names
        }
        for start in range(0, len(self.votes), _BLOCK):
            rows = range(start, min(start + _BLOCK, len(self.votes)))
            codes = [part.codes(slice(rows.start, rows.stop)) for part in self._parts]
            for place, row in enumerate(rows):
                joined, known = _joined_forms(self._parts, row), dict[str, int]()
                for part, own in zip(self._parts, codes, strict=True):
                    tables = part.renumber(
                        row, {name: table[place] for name, table in own.items()}, joined, known
                    )
                    for name in part.probed:
                        self._tables.setdefault(name, []).append(tables[name])
                gold[row] = self._gold(row, joined, known)
                for key in known:
                    keys.append(key)
                starts.append(len(keys))
            for own in codes:
                for name, table in own.items():
                    blocks[name].append(
                        table.astype(np.min_scalar_type(-1 - int(table.max(initial=0))))
                    )
        self.votes.gold = gold
        self._keys, self._starts = Strings(*keys.arrays()), np.array(starts)
        return {name: np.concatenate(pieces) for name, pieces in blocks.items()}

    @staticmethod
    def _apart(owners: Sequence[tuple[Recording, Sequence[str]]], dataset: str) -> Iterator[str]:
        """Yield warnings about equal answers of different recordings that may not vote together."""
        infos = [recording.dataset_info(dataset) for recording, _ in owners]
        if infos[0].equality != NORMAL_FORM:
            yield (
                f"{len(owners)} recordings of {dataset} are opened together: their answers vote"
                " together only where their parties have a normal form in common. `feval merge`"
                " compares all of them."
            )
        extractors = {
            info.extractor: str(recording.path)
            for info, (recording, _) in zip(infos, owners, strict=True)
        }
        if len(extractors) > 1:
            read = ", ".join(f"{name} in {path}" for name, path in extractors.items())
            yield (
                f"The answers of {dataset} were extracted by different rules ({read}), so equal"
                " ones may not vote together. `feval extract` reads all by the same."
            )

    def of(self, llm: str) -> View:
        part = next(part for part in self._parts if llm in part.names)
        return _PartView(self, part)

    def all_views(self) -> list[View]:
        return [_PartView(self, part) for part in self._parts]

    def pool(self, llm: str) -> LLMVotes:
        return self._pools[llm]

    def candidates(self, row: int) -> list[str]:
        keys: list[str] = self._keys[int(self._starts[row]) : int(self._starts[row + 1])]
        return keys

    def aliases(self, row: int) -> Mapping[str, int]:
        joined = _joined_forms(self._parts, row)
        codes = {key: code for code, key in enumerate(self.candidates(row))} if joined else {}
        return {form: codes[key] for form, key in joined.items() if key in codes}

    def candidate_counts(self) -> npt.NDArray[np.integer[Any]]:
        return np.diff(self._starts).astype(np.int32)

    def _agree(self, part: _Part) -> None:
        mine, theirs = self.votes, part.votes
        here, there = self.recording.path, part.recording.path
        infos = [
            recording.dataset_info(mine.dataset) for recording in (self.recording, part.recording)
        ]
        for field, noun in (("answer_kind", "answer kind"), ("equality", "equality of answers")):
            ours, other = (getattr(info, field) for info in infos)
            if ours != other:
                raise ConflictError(
                    f"{mine.dataset} has the {noun} {ours!r} in {here} but {other!r} in {there};"
                    " votes cannot pool. `feval extract` makes both alike."
                )
        if (
            len(mine) != len(theirs)
            or (theirs.question_keys[part.rows] != mine.question_keys).any()
        ):
            odd = min(
                set(mine.question_ids) ^ set(theirs.question_ids), default=mine.question_ids[0]
            )
            raise ConflictError(
                f"{here} and {there} have different questions of {mine.dataset} ({odd!r} is in one"
                " only); select first."
            )
        differ = np.flatnonzero(theirs.text_keys[part.rows] != mine.text_keys)
        if differ.size:
            raise ConflictError(
                f"Question {mine.question_ids[int(differ[0])]!r} has one text in {here} and another"
                f" in {there}."
            )

    def _gold(self, row: int, joined: Mapping[str, str], known: dict[str, int]) -> int:
        golds = list(
            dict.fromkeys(gold for part in self._parts if (gold := part.gold(row)) is not None)
        )
        keys = list(dict.fromkeys(joined.get(gold, gold) for gold in golds))
        if len(keys) > 1 and self._golds_differ(row):
            paths = " and ".join(str(part.recording.path) for part in self._parts)
            raise ConflictError(
                f"Question {self.votes.question_ids[row]!r} has two golds, {sorted(golds)}, in"
                f" {paths}."
            )
        return known.setdefault(keys[0], len(known)) if keys else NO_ANSWER

    def _golds_differ(self, row: int) -> bool:
        """Whether golds with different keys differ; under an equality, the party of one gold may
        have a key per recording.
        """
        if self.recording.dataset_info(self.votes.dataset).equality == NORMAL_FORM:
            return True
        golds = (
            part.recording.questions(self.votes.dataset)[int(part.rows[row])].answer_key
            for part in self._parts
        )
        return len({gold for gold in golds if gold is not None}) > 1


@dataclass(frozen=True, eq=False)
class _Part:
    """One of several recordings, with some of its LLMs; `first` has the questions in the joined
    order.
    """

    recording: Recording
    names: Sequence[str]
    votes: Votes
    first: Votes

    @cached_property
    def rows(self) -> npt.NDArray[np.intp]:
        """[Q] row of each question in this recording; any row for one that it lacks."""
        mine, joined = self.votes.question_keys, self.first.question_keys
        if np.array_equal(mine, joined):
            return np.arange(len(mine))
        order = np.argsort(mine, kind="stable")
        return order[np.minimum(np.searchsorted(mine, joined, sorter=order), len(mine) - 1)]

    @cached_property
    def probed(self) -> list[str]:
        """The LLMs with probes."""
        return [name for name in self.names if self.recording.has_probes(self.votes.dataset, name)]

    def codes(self, questions: slice) -> dict[str, npt.NDArray[np.int32]]:
        """The codes of each LLM on some questions, as they are numbered here; copies."""
        return {
            name: self.votes.llms[name].codes[self.rows[questions]].astype(np.int32)
            for name in self.names
        }

    def renumber(
        self,
        row: int,
        codes: Mapping[str, npt.NDArray[np.int32]],
        joined: Mapping[str, str],
        known: dict[str, int],
    ) -> dict[str, Codes]:
        """Change the codes of a question, by LLM, to those in `known`, where new answers get the
        next ones.

        Returns, by LLM, the new code of each of the recording's.
        """
        candidates = [joined.get(key, key) for key in self.votes.candidates(int(self.rows[row]))]
        tables = {}
        for name, own in codes.items():
            # An answer takes its place in the shared table only if this LLM gave it, perhaps in a
            # probe.
            present = (
                range(len(candidates))
                if name in self.probed
                else {code for code in own.tolist() if code >= 0}
            )
            table = [
                known.setdefault(c, len(known)) if i in present else NO_ANSWER
                for i, c in enumerate(candidates)
            ]
            tables[name] = np.array([*table, ABSENT, NO_ANSWER], np.int32)
            own[:] = tables[name][own]
        return tables

    def pool(self, llm: str, codes: npt.NDArray[np.signedinteger[Any]]) -> LLMVotes:
        """The arrays of an LLM in the joined order, with its new codes."""
        votes, rows = self.votes.llms[llm], self.rows
        return LLMVotes(
            codes,
            votes.output_tokens[rows],
            votes.prompt_tokens[rows],
            votes.sizes[rows],
            lambda: votes.finish[rows],
        )

    def gold(self, row: int) -> str | None:
        place = int(self.rows[row])
        code = int(self.votes.gold[place])
        return None if code < 0 else self.votes.candidates(place)[code]


def _joined_forms(parts: Sequence[_Part], row: int) -> dict[str, str]:
    """Return normal form -> key of its party, where they differ; parties of several recordings with
    a form in common are one.

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
        joined = np.flatnonzero(np.isin(self._part.rows, list(near)))
        return {int(each): near[int(self._part.rows[each])] for each in joined}
