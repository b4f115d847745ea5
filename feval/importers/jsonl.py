"""feval's generic JSON Lines, for recordings of any other origin; `docs/importing.md` describes it with examples.

One line per question: `id`, `question`, `answer` (gold), `choices`, `prompt`, `prompt_tokens`, `llm` and `samples`, each with
`text`, `reasoning`, `answer`, `tokens` and `finish_reason`. Or one line per CoT: `id`, `question`, `gold`, `choices`, `prompt`,
`prompt_tokens`, `llm`, `sample`, `text`, `reasoning`, `answer`, `tokens` and `finish_reason`.

Verbatim answers are the stored ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import orjson

from feval.errors import ConflictError, SourceError, UnknownNameError
from feval.importers.questions import choices_of, identifier
from feval.importers.reading import Reader, read_bytes
from feval.importers.shapes import answer_texts, finish_reason, gold_text, member, refuse, whole, whole_numbers
from feval.importers.source import Imported, ImportRequest, Prompt, SourceLLM, SourcePool, SourceQuestion
from feval.recording.content import LLMInfo

__all__ = ["read"]

_T = TypeVar("_T")
_SAMPLE_KEYS = frozenset({"text", "reasoning", "answer", "tokens", "finish_reason"})
_SHARED_KEYS = frozenset({"id", "question", "choices", "prompt", "prompt_tokens", "llm"})
_QUESTION_KEYS = _SHARED_KEYS | {"answer", "samples"}
_COT_KEYS = _SHARED_KEYS | _SAMPLE_KEYS | {"question_id", "gold", "sample"}


def read(source: Path, request: ImportRequest) -> Imported:
    """Read one file.

    Args:
        source: JSON Lines, may be compressed by gzip.
        request: names the LLM where the lines do not; where they do, it may choose among them.

    Raises:
        SourceError: broken, empty, or of another shape.
        ConflictError: two lines contradict each other.
        UnknownNameError: an LLM was named that the lines do not name.
        UsageError: neither the lines nor the user names the LLM.
    """
    reader = Reader()
    content = _Content(request)
    for number, line in reader.json_lines(read_bytes(source), source.name):
        content.add(line, f"line {number} of {source.name}")
    llms = [_llm(content, key, info, source.name) for key, info in _chosen(content, request, source.name)]
    return Imported(list(content.questions.values()), llms, content.notes() + reader.notes(), llm_count=len(llms))


@dataclass(slots=True)
class _Draft:
    """What the lines read so far say of one LLM on one question."""

    samples: list[dict[str, Any]] = field(default_factory=list)
    numbers: list[object] = field(default_factory=list)
    prompt: Prompt | None = None
    prompt_tokens: int | None = None


class _Content:
    """Collects the lines of one file: the questions, and by LLM (`None`: not named) and question the samples."""

    def __init__(self, request: ImportRequest) -> None:
        self.questions: dict[str, SourceQuestion] = {}
        self.drafts: dict[str | None, dict[str, _Draft]] = {}
        self._request = request
        self._by_question: bool | None = None
        self._lines = 0
        self._ignored: set[str] = set()
        self._gaps = 0

    def notes(self) -> list[str]:
        """What was unusual."""
        notes = []
        if self._ignored:
            names = ", ".join(sorted(self._ignored)[:20])
            notes.append(f"The lines also have members that are not imported: {names:.400}.")
        if self._gaps:
            notes.append(
                f"The sample numbers of {self._gaps} pools have gaps; the samples were numbered anew, in their order."
            )
        return notes

    def add(self, line: Any, where: str) -> None:
        """Take in one line; the first decides which of the two layouts the file has."""
        if not isinstance(line, dict):
            refuse(_sentence(where), "an object", line)
        by_question = "samples" in line
        if self._by_question is None:
            self._by_question = by_question
        if by_question != self._by_question:
            here, before = ("a question", "CoTs") if by_question else ("a CoT", "questions with their samples")
            raise SourceError(
                f"{_sentence(where)} is {here}, and the lines before are {before}; a file has one layout."
            )
        (self._add_question if by_question else self._add_cot)(line, where)
        self._lines += 1

    def _add_question(self, line: dict[str, Any], where: str) -> None:
        self._ignored.update(line.keys() - _QUESTION_KEYS)
        name = identifier(line["id"], where) if "id" in line else self._request.question_id(self._lines)
        self._merge_question(line, name, "answer", where)
        draft, is_new = self._draft(line, name, where)
        if not is_new:
            raise ConflictError(
                f"{_sentence(where)} has the question id {name!r} a second time. Give each question its own id, or write "
                "one line per CoT."
            )
        draft.samples = member(line, "samples", list, where)
        draft.numbers = [None] * len(draft.samples)
        for position, sample in enumerate(draft.samples):
            if not isinstance(sample, dict):
                refuse(f"Sample {position} of {where}", "an object", sample)
            self._ignored.update(sample.keys() - _SAMPLE_KEYS)

    def _add_cot(self, line: dict[str, Any], where: str) -> None:
        self._ignored.update(line.keys() - _COT_KEYS)
        if "question_id" not in line and "id" not in line:
            raise SourceError(f"{_sentence(where)} has neither 'samples' nor an 'id'; a CoT names its question.")
        name = identifier(line.get("question_id", line.get("id")), where)
        self._merge_question(line, name, "gold", where)
        draft, _ = self._draft(line, name, where)
        draft.samples.append(line)
        draft.numbers.append(line.get("sample"))

    def _merge_question(self, line: dict[str, Any], name: str, gold_member: str, where: str) -> None:
        """Add what a line says of its question; what two lines say must agree."""
        text = None if line.get("question") is None else member(line, "question", str, where)
        found = SourceQuestion(name, text, gold_text(line.get(gold_member), where), choices_of(line, where))
        known = self.questions.setdefault(name, found)
        if known == found:
            return
        self.questions[name] = SourceQuestion(
            name,
            _agreed(known.text, found.text, "two texts", name, where),
            _agreed(known.gold, found.gold, "two gold answers", name, where),
            _agreed(known.choices or None, found.choices or None, "two sets of choices", name, where) or (),
        )

    def _draft(self, line: dict[str, Any], name: str, where: str) -> tuple[_Draft, bool]:
        llm = None if line.get("llm") is None else member(line, "llm", str, where)
        pools = self.drafts.setdefault(llm, {})
        is_new = name not in pools
        draft = pools.setdefault(name, _Draft())
        draft.prompt = _agreed(draft.prompt, _prompt(line.get("prompt"), where), "two prompts", name, where)
        tokens = whole(line.get("prompt_tokens"))
        if tokens is None and line.get("prompt_tokens") is not None:
            refuse(f"'prompt_tokens' of {where}", "a whole number from 0", line["prompt_tokens"])
        draft.prompt_tokens = _agreed(draft.prompt_tokens, tokens, "two prompt token counts", name, where)
        return draft, is_new

    def ordered(self, draft: _Draft, where: str) -> list[dict[str, Any]]:
        """The samples in the order of their numbers, or of the lines where none is numbered."""
        if all(number is None for number in draft.numbers):
            return draft.samples
        numbers = [number for found in draft.numbers if (number := whole(found)) is not None]
        if len(numbers) != len(draft.numbers):
            wrong = next(found for found in draft.numbers if whole(found) is None)
            refuse(f"'sample' of {where}", "a whole number from 0 on each line, or on none", wrong)
        if len(set(numbers)) != len(numbers):
            raise ConflictError(f"{_sentence(where)} has a sample number twice: {sorted(numbers)!r:.80}.")
        order = sorted(range(len(numbers)), key=numbers.__getitem__)
        self._gaps += numbers[order[-1]] != len(numbers) - 1
        return [draft.samples[position] for position in order]


def _sentence(where: str) -> str:
    return where[0].upper() + where[1:]


def _agreed(known: _T | None, found: _T | None, what: str, name: str, where: str) -> _T | None:
    if known is not None and found is not None and known != found:
        raise ConflictError(
            f"Question {name!r} has {what}: {_short(known)} before, and {_short(found)} on {where}. "
            "Remove one of them or give each its own id."
        )
    return known if known is not None else found


def _short(value: object) -> str:
    return f"{value.text if isinstance(value, Prompt) else value!r:.80}"


def _prompt(prompt: Any, where: str) -> Prompt | None:
    """A prompt: one text, or a list of messages with role and content."""
    if prompt is None:
        return None
    if isinstance(prompt, str):
        return Prompt.of(prompt)
    if not isinstance(prompt, list):
        refuse(f"'prompt' of {where}", "text or a list of messages", prompt)
    messages = [
        {key: member(message, key, str, f"a message of the prompt of {where}") for key in ("role", "content")}
        for message in prompt
    ]
    return Prompt(orjson.dumps(messages).decode(), "\n".join(message["content"] for message in messages))


def _chosen(content: _Content, request: ImportRequest, source: str) -> list[tuple[str | None, LLMInfo]]:
    """The LLMs to import: as the lines name them, with the name each gets in the recording."""
    named = [name for name in content.drafts if name is not None]
    if not named:
        return [(None, request.the_llm(source))]
    if None in content.drafts:
        raise SourceError(f"Some lines of {source} name an LLM and others do not; name it on each line, or on none.")
    for name in request.llms:
        if name not in named:
            raise UnknownNameError.of(f"LLM in {source},", name, named)
    return [(name, request.llm_info(name)) for name in request.llms or named]


def _llm(content: _Content, key: str | None, info: LLMInfo, source: str) -> SourceLLM:
    drafts = content.drafts.get(key, {})
    where = {name: f"question {name!r} of {source}" for name in drafts}
    samples = {name: content.ordered(draft, where[name]) for name, draft in drafts.items()}
    stored = _all_or_none(samples, "answer", source)
    counted = _all_or_none(samples, "tokens", source)
    pools = [
        _pool(drafts[name], samples[name], where[name], stored=stored, counted=counted)
        if name in drafts
        else SourcePool([], [], [])
        for name in content.questions
    ]
    return SourceLLM(info, pools, counted)


def _all_or_none(samples: dict[str, list[dict[str, Any]]], name: str, source: str) -> bool:
    """Whether the samples have a member; a file in which only some have it is ambiguous."""
    have = [name in sample for pool in samples.values() for sample in pool]
    if any(have) and not all(have):
        raise SourceError(
            f"{sum(have)} of {len(have)} samples in {source} have {name!r}; give it to all of them or to none "
            "(an answer of null says that there is no answer)."
        )
    return any(have)


def _pool(draft: _Draft, samples: list[dict[str, Any]], where: str, *, stored: bool, counted: bool) -> SourcePool:
    return SourcePool(
        texts=[_text(sample, "text", position, where) for position, sample in enumerate(samples)],
        answers=answer_texts([sample["answer"] for sample in samples], where) if stored else None,
        tokens=whole_numbers([sample["tokens"] for sample in samples], where) if counted else None,
        finish_reasons=[finish_reason(sample.get("finish_reason"), f"a sample of {where}") for sample in samples],
        prompt=draft.prompt,
        prompt_tokens=draft.prompt_tokens,
        reasoning=[_text(sample, "reasoning", position, where) for position, sample in enumerate(samples)],
    )


def _text(sample: dict[str, Any], name: str, position: int, where: str) -> str | None:
    return None if sample.get(name) is None else member(sample, name, str, f"sample {position} of {where}")
