"""Generic rows become questions and pools: rows must agree about their question, and each LLM has its own CoTs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from feval.errors import ConflictError, SourceError
from feval.importers.columns import COLUMNS, WITHOUT_UNIT, Column, examples, recognised
from feval.importers.shapes import sentence_start
from feval.importers.source import Imported, ImportRequest, Prompt, SourceLLM, SourcePool, SourceQuestion, llm_notes
from feval.recording.content import OPTIONAL_COLUMNS, LLMInfo, ScoreRows

_T = TypeVar("_T")
_Cot = Mapping[str, Any]
_COT_COLUMNS = frozenset(column.name for column in COLUMNS if column.of == "cot")


@dataclass(slots=True)
class _Draft:
    """One LLM on one question so far: the CoTs, each with the place of its row, and the request."""

    cots: list[_Cot] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    prompt: Prompt | None = None
    prompt_tokens: int | None = None


class Rows:
    """Collects the questions of one source, and the CoTs by LLM (`None`: not named) and question."""

    def __init__(self, source: str, request: ImportRequest) -> None:
        self.questions: dict[str, SourceQuestion] = {}
        self._drafts: dict[str | None, dict[str, _Draft]] = {}
        self._decoding: dict[str | None, dict[str, Any]] = {}
        self._source, self._request = source, request
        self._others: dict[str, Any] = {}
        self._without_unit: set[str] = set()
        self._gaps = 0
        self._without_answers: list[str] = []

    def recognised(self, row: Mapping[str, Any], names: Mapping[str, Column], where: str) -> dict[str, Any]:
        """Read the known columns of a row by `feval.importers.columns.recognised`; note unknown members."""
        values, others = recognised(row, names, where)
        for name, value in others.items():
            self._others.setdefault(name, value)
        self._without_unit |= WITHOUT_UNIT & row.keys() & names.keys()
        return values

    def add_question(self, name: str, values: Mapping[str, Any], where: str) -> None:
        """Add the question of a row, which must agree with earlier rows."""
        question = SourceQuestion(name, values.get("question"), values.get("gold"), values.get("choices") or ())
        known = self.questions.setdefault(name, question)
        if known != question:
            self.questions[name] = SourceQuestion(
                name,
                _agreed(known.text, question.text, "two texts", name, where),
                _agreed(known.gold, question.gold, "two gold answers", name, where),
                _agreed(known.choices or None, question.choices or None, "two sets of choices", name, where) or (),
            )

    def add_request(self, name: str, values: Mapping[str, Any], where: str) -> None:
        """Add the request and the LLM of a row."""
        llm = values.get("llm")
        draft = self._drafts.setdefault(llm, {}).setdefault(name, _Draft())
        draft.prompt = _agreed(draft.prompt, values.get("prompt"), "two prompts", name, where)
        tokens = values.get("prompt_tokens")
        draft.prompt_tokens = _agreed(draft.prompt_tokens, tokens, "two prompt token counts", name, where)
        decoding = self._decoding.setdefault(llm, {})
        for key in ("temperature", "max_tokens"):
            value = values.get(key)
            if value is not None and decoding.setdefault(key, value) != value:
                name_of_llm = "the same LLM" if llm is None else f"the LLM {llm!r}"
                raise ConflictError(
                    f"{sentence_start(where)} has {key} {value}, and rows before it have {decoding[key]} for {name_of_llm}. "
                    "CoTs of two decodings are not one pool: give each decoding an LLM name of its own in 'llm', such as "
                    f"'{llm or 'NAME'}@{key[0]}={value}'."
                )

    def add_cot(self, name: str, values: Mapping[str, Any], where: str) -> None:
        """Add a CoT, after its question and its request."""
        draft = self._drafts[values.get("llm")][name]
        draft.cots.append(
            {key: values[key] for key in values.keys() & _COT_COLUMNS if values[key] is not None or key == "answer"}
        )
        draft.places.append(where)

    def imported(self) -> Imported:
        """Return the whole source; raise where only some rows name an LLM or have an answer or a token count."""
        chosen = self._chosen()
        llms = [self._llm(name, info) for name, info in chosen]
        return Imported(list(self.questions.values()), llms, self._notes(chosen), llm_count=len(llms))

    def _chosen(self) -> list[tuple[str | None, LLMInfo]]:
        """Return the LLMs to import: the name in the rows, and name and decoding in the recording."""
        infos = [
            LLMInfo(name or "", decoding.get("temperature"), decoding.get("max_tokens"))
            for name, decoding in self._decoding.items()
        ]
        if list(self._drafts) == [None] or not self._drafts:
            return [(None, self._request.llm_of(self._source, infos[0] if infos else LLMInfo("")))]
        if None in self._drafts:
            without = next(iter(self._drafts[None].values())).places
            raise SourceError(
                f"Some lines of {self._source} name an LLM and others do not{f' ({without[0]})' if without else ''}; name it on "
                "each line, or on none."
            )
        return list(self._request.chosen_llms(self._source, infos))

    def _llm(self, name: str | None, info: LLMInfo) -> SourceLLM:
        drafts = {question: self._ordered(draft, question) for question, draft in self._drafts.get(name, {}).items()}
        stored = self._all_or_none(drafts, "answer", " (an answer of null says that there is no answer)")
        if stored and _only_null(drafts):  # as a table of several LLMs has it, of which only some have answers
            self._without_answers.append(info.name)
            stored = False
        counted = self._all_or_none(drafts, "tokens")
        pools = [
            _pool(question, drafts[question], stored=stored, counted=counted)
            if question in drafts
            else SourcePool([], [], [])
            for question in self.questions
        ]
        return SourceLLM(info, pools, counted)

    def _ordered(self, draft: _Draft, question: str) -> _Draft:
        """Return the CoTs in the order of their numbers, or of the rows where none is numbered."""
        names: list[Any] = [cot.get("sample") for cot in draft.cots]
        if all(name is None for name in names):
            return draft
        kinds = {type(name) for name in names}
        if len(kinds) > 1:
            odd = next(
                place for place, name in zip(draft.places, names, strict=True) if type(name) is not type(names[0])
            )
            raise SourceError(
                f"{sentence_start(odd)} and {draft.places[0]} number the CoTs of question {question!r} in two ways. Give "
                "'sample' as a whole number from 0 on each line, or on none."
            )
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            places = [place for place, name in zip(draft.places, names, strict=True) if name == twice]
            raise ConflictError(
                f"Question {question!r} has a sample number twice: {twice!r} on {places[0]} and on {places[1]}. Remove one of "
                "them, or name their LLMs in 'llm' if they are of two."
            )
        if kinds == {str}:
            return draft
        order = sorted(range(len(names)), key=lambda place: draft.cots[place]["sample"])
        self._gaps += max(names) - min(names) != len(names) - 1
        cots, places = [draft.cots[i] for i in order], [draft.places[i] for i in order]
        return replace(draft, cots=cots, places=places)

    def _all_or_none(self, drafts: Mapping[str, _Draft], name: str, hint: str = "") -> bool:
        """Return whether the CoTs have a value; raise where only some have."""
        have = [
            (name in cot, place)
            for draft in drafts.values()
            for cot, place in zip(draft.cots, draft.places, strict=True)
        ]
        count = sum(has for has, _ in have)
        if 0 < count < len(have):
            lacking = next(place for has, place in have if not has)
            raise SourceError(
                f"{count} of {len(have)} samples in {self._source} have {name!r}, and {lacking} has none; give it to all "
                f"samples of an LLM or to none{hint}."
            )
        return count > 0

    def _notes(self, chosen: Sequence[tuple[str | None, LLMInfo]]) -> list[str]:
        notes = []
        if self._others:
            notes.append(f"Unknown members, which were not imported: {examples(self._others)}.")
        notes += [f"{name!r} names no unit; it was read as seconds." for name in sorted(self._without_unit)]
        notes += [
            f"All answers of {name} are null, so they were read from the texts." for name in self._without_answers
        ]
        notes += llm_notes(list(self._drafts), chosen)
        if self._gaps:
            notes.append(
                f"The sample numbers of {self._gaps} pools have gaps; the samples were renumbered in their order."
            )
        return notes


def _only_null(drafts: Mapping[str, _Draft]) -> bool:
    """Return whether no CoT has an answer, and every one has a text to read it from."""
    cots = [cot for draft in drafts.values() for cot in draft.cots]
    return all(cot.get("answer") is None and "text" in cot for cot in cots)


def _agreed(known: _T | None, value: _T | None, what: str, name: str, where: str) -> _T | None:
    if known is not None and value is not None and known != value:
        before, here = (repr(each.text if isinstance(each, Prompt) else each) for each in (known, value))
        raise ConflictError(
            f"Question {name!r} has {what}: {before:.80} before, and {here:.80} on {where}. "
            "Remove one of them or give each its own id."
        )
    return known if known is not None else value


def _pool(question: str, draft: _Draft, *, stored: bool, counted: bool) -> SourcePool:
    cots = draft.cots
    logprobs = _column(cots, "token_logprobs")
    return SourcePool(
        texts=[cot.get("text") for cot in cots],
        answers=[cot["answer"] for cot in cots] if stored else None,
        tokens=[cot["tokens"] for cot in cots] if counted else None,
        finish_reasons=[cot.get("finish_reason", "unknown") for cot in cots],
        prompt=draft.prompt,
        prompt_tokens=draft.prompt_tokens,
        extra={name: values for name in OPTIONAL_COLUMNS if (values := _column(cots, name)) is not None},
        reasoning=_column(cots, "reasoning"),
        sequence_logprobs=_sequence_logprobs(cots),
        token_logprobs=logprobs,
        token_confidences=_column(cots, "token_confidences"),
        scores=_scores(question, cots),
    )


def _column(cots: Sequence[_Cot], name: str) -> list[Any] | None:
    """Return the values of a column; `None` where no CoT has one."""
    return [cot.get(name) for cot in cots] if any(name in cot for cot in cots) else None


def _sequence_logprobs(cots: Sequence[_Cot]) -> list[float | None] | None:
    """Return the log-probability of each CoT: as given, else the sum of its tokens'."""
    sums = [
        cot["sequence_logprob"]
        if "sequence_logprob" in cot
        else math.fsum(cot["token_logprobs"])
        if "token_logprobs" in cot
        else None
        for cot in cots
    ]
    return sums if any(value is not None for value in sums) else None


def _scores(question: str, cots: Sequence[_Cot]) -> dict[str, ScoreRows]:
    """Return the scores of each scorer."""
    scorers = dict.fromkeys(name for cot in cots for column in ("score", "step_scores") for name in cot.get(column, ()))
    scores = {}
    for scorer in scorers:
        pairs = [(cot.get("score", {}).get(scorer), cot.get("step_scores", {}).get(scorer)) for cot in cots]
        scored = [position for position, pair in enumerate(pairs) if pair != (None, None)]
        scores[scorer] = ScoreRows(question, scored, [pairs[i][0] for i in scored], [pairs[i][1] for i in scored])
    return scores
