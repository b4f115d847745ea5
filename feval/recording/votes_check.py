"""Whether the votes of a dataset agree with the Parquet files that they are derived from, one question after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.answers.parties import Verdict, parties_of
from feval.recording.content import Question
from feval.recording.layout.format import file_path
from feval.recording.reader import Recording
from feval.recording.votes import ABSENT, NO_ANSWER, Votes, name_key
from feval.recording.votes_builder import FINISH_CODES


def votes_problems(recording: Recording, dataset: str, llms: Iterable[str] | None = None) -> Iterator[str]:
    """Yield what is wrong with the votes of some LLMs, or of all and with the numbering of answers: at most one thing for each.

    A problem begins with the path of the file.
    """
    check = _VotesCheck(recording, dataset)
    if (what := next(check.questions(), None)) is not None:
        yield check.contradiction(what)
        return
    of_llms = [next(check.llm(llm), None) for llm in (recording.llm_names(dataset) if llms is None else llms)]
    problems = [problem for problem in of_llms if problem is not None]
    yield from problems
    if llms is None and not problems and not check.is_numbered():
        yield check.contradiction("the numbering of answers")


class _VotesCheck:
    """The votes of a dataset beside its Parquet files; `_given[q]` answers of a question were given by the LLMs so far."""

    def __init__(self, recording: Recording, dataset: str) -> None:
        self._recording, self._dataset = recording, dataset
        self._votes = recording.votes(dataset)
        self._given = np.zeros(len(self._votes), np.int32)
        self._in_order = True

    def contradiction(self, what: str) -> str:
        return f"{file_path('votes', self._dataset)}: it contradicts the Parquet files ({what})"

    def questions(self) -> Iterator[str]:
        """Yield how ids, texts, golds and equal answers differ from the questions and the verdicts."""
        verdicts = self._recording.scan_verdicts(self._dataset)
        questions = self._recording.scan_questions(self._dataset)
        following = next(verdicts, None)
        for row, (question, name) in enumerate(zip_longest(questions, self._votes.question_ids)):
            if question is None or question.id != name:
                yield "question ids"
                return
            reached: Sequence[Verdict] = ()
            if following is not None and following[0] == name:
                reached, following = following[1], next(verdicts, None)
            yield from (f"{what} of {name!r:.80}" for what in _differences(self._votes, row, question, reached))
        if following is not None:
            yield f"verdicts on {following[0]!r:.80}"

    def llm(self, llm: str) -> Iterator[str]:
        """Yield the problems of an LLM: answers, tokens, finish reasons, the column `correct`, prompt tokens."""
        sizes, tokens = np.zeros(len(self._votes), np.int64), np.full(len(self._votes), -1, np.int64)
        arrays = self._votes.llms[llm]
        try:
            row_of = self._votes.rows_in_order()
            for question, columns in self._recording.scan("samples", self._dataset, llm):
                row = row_of(question)
                sizes[row] = len(columns["answer"])
                yield from self._pool(llm, row, question, columns)
            row_of = self._votes.rows_in_order()
            for question, columns in self._recording.scan("requests", self._dataset, llm):
                [sent] = columns["prompt_tokens"]
                tokens[row_of(question)] = -1 if sent is None else sent
        except ValueError as error:
            yield self.contradiction(str(error))
        if (sizes != arrays.sizes).any():
            yield self.contradiction(f"numbers of CoTs of {llm}")
        if (tokens != arrays.prompt_tokens).any():
            yield self.contradiction(f"prompt tokens of {llm}")

    def is_numbered(self) -> bool:
        """Whether the answers of each question are numbered as all LLMs gave them, and the gold last if nobody gave it."""
        counts = self._given + (self._votes.gold == self._given)
        return self._in_order and bool((counts == self._votes.candidate_counts()).all())

    def _pool(self, llm: str, row: int, question: str, columns: Mapping[str, list[Any]]) -> Iterator[str]:
        arrays, gold = self._votes.llms[llm], int(self._votes.gold[row])
        code_of = {form: code for code, form in enumerate(self._votes.candidates(row))} | self._votes.aliases(row)
        codes = [NO_ANSWER if form is None else code_of.get(form, ABSENT) for form in columns["answer"]]
        finish = [FINISH_CODES.get(reason, -1) for reason in columns["finish_reason"]]
        agree = (
            _holds(arrays.codes[row], codes, ABSENT)
            and _holds(arrays.output_tokens[row], columns["output_tokens"], 0)
            and arrays.finish[row, : len(finish)].tolist() == finish
        )
        if not agree:
            yield self.contradiction(f"CoTs of {llm} on {question!r:.80}")
        correct = [None if gold < 0 else code == gold for code in codes]
        if columns.get("correct", correct) != correct:
            [path, *_] = self._recording.files("samples", self._dataset, llm)
            yield f"{path}: its column `correct` contradicts answers and golds"
        given = int(self._given[row])
        if max(codes, default=NO_ANSWER) >= given:
            new = [code for code in dict.fromkeys(codes) if code >= given]
            self._in_order &= new == list(range(given, given + len(new)))
            self._given[row] += len(new)


def _holds(stored: npt.NDArray[Any], values: Sequence[int], empty: int) -> bool:
    size = len(values)
    return stored[:size].tolist() == values and bool((stored[size:] == empty).all())


def _differences(votes: Votes, row: int, question: Question, verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield how the votes of a question differ from the question and its verdicts."""
    parties, gold, candidates = parties_of(verdicts, question.answer_key), int(votes.gold[row]), votes.candidates(row)
    code_of = {form: code for code, form in enumerate(candidates)}
    if len(code_of) < len(candidates) or any(parties.key(form) != form for form in candidates):
        yield "candidates"
    if (None if gold < 0 else candidates[gold]) != parties.gold:
        yield "gold"
    if votes.aliases(row) != {form: code_of[key] for form, key in parties.joined.items() if key in code_of}:
        yield "equal answers"
    if int(votes.text_keys[row]) != name_key(question.text):
        yield "text"
    if int(votes.question_keys[row]) != name_key("feval/question", votes.dataset, question.id):
        yield "key"
