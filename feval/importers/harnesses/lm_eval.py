"""Samples of lm-evaluation-harness (`--log_samples`): `samples_<task>_<date>.jsonl`, with
`results_<date>.json` beside it.

JSON Lines, one line per question and filter: `doc_id`, `doc`, `target` (gold), `arguments` (request
and generation arguments), `resps` (the texts of all repeats), `filter`, `filtered_resps` (what the
filter made of them). Where a task has several filters, a question has several lines with the same
texts. The results name the model; without them the user does.

Verbatim answers are those of the first filter that keeps one answer per repeat; "[invalid]", the
harness's mark for nothing found, is no answer. A filter that changes nothing has extracted nothing,
and answers are extracted from the texts. Finish reasons and token counts are not in these files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from feval.errors import ConflictError, SourceError
from feval.importers.harnesses.logs import (
    SEVERAL_GOLDS,
    chat_prompt,
    decoding,
    extracted,
    gold_of,
    labelled,
    limit_of,
    same_texts_note,
    temperature_of,
)
from feval.importers.questions import without_duplicates
from feval.importers.reading import Reader, read_bytes, read_lines
from feval.importers.shapes import answer_texts, member, refuse, sentence_start, strings, whole
from feval.importers.source import (
    Imported,
    ImportRequest,
    Prompt,
    SourceLLM,
    SourcePool,
    SourceQuestion,
    counted_notes,
    size_note,
)
from feval.recording.content import LLMInfo

_NAME = re.compile(
    r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)\.jsonl(?:\.gz)?"
)
_INVALID = "[invalid]"
_QUESTION_MEMBERS = (
    "question",
    "problem",
    "query",
    "input",
    "prompt",
    "instruction",
    "text",
    "Question",
    "Problem",
)
_DECODING = ("do_sample", "top_p", "top_k", "min_p", "seed", "until")
_GSM8K_MARK = "#### "


def beside(source: Path) -> tuple[Path, ...]:
    """Return the results of the same run, where they lie beside the samples."""
    named = _NAME.fullmatch(source.name)
    results = source.with_name(f"results_{named['date']}.json") if named else None
    return (results,) if results is not None and results.is_file() else ()


def read(source: Path, request: ImportRequest) -> Imported:
    """Read the JSON Lines samples of one task. The request names the LLM if there are no results
    beside them.
    """
    reader = Reader()
    docs: dict[int, _Doc] = {}
    with closing(read_lines(source)) as lines:
        for number, line in reader.json_lines(lines, source.name):
            _add(docs, line, f"line {number} of {source.name}")
    results = _Results.of(source, reader)
    ordered = [docs[number] for number in sorted(docs)]
    chosen = _chosen_filter(ordered)
    pools = [
        SourcePool(doc.texts, doc.filtered[chosen] if chosen else None, prompt=doc.prompt)
        for doc in ordered
    ]
    questions = [
        SourceQuestion(request.question_id(doc.number), doc.question, doc.gold, doc.choices)
        for doc in ordered
    ]
    questions = without_duplicates(questions, source.name)
    llm = request.llm_of(source.name, _info(ordered[0], results.model, source.name))
    notes = [*results.notes, *_filter_notes(ordered, chosen), *_doc_notes(ordered)]
    notes += [*size_note(pools), *same_texts_note(pools), *reader.notes()]
    return Imported(questions, [SourceLLM(llm, pools)], notes, results.system_prompt)


@dataclass(slots=True)
class _Doc:
    """What the lines of one question say. `filtered`: filter -> answers; `None` where it kept
    another number of them.
    """

    number: int
    question: str
    gold: str | None
    other_golds: bool
    shortened_gold: bool
    choices: tuple[tuple[str, str], ...]
    texts: list[str]
    prompt: Prompt
    arguments: dict[str, Any]
    filtered: dict[str, Sequence[str | None] | None] = field(default_factory=dict)


def _add(docs: dict[int, _Doc], line: Any, where: str) -> None:
    number = member(line, "doc_id", int, where)
    if number < 0:
        refuse(f"'doc_id' of {where}", "0 or more", number)
    doc = _doc(line, number, where)
    known = docs.setdefault(number, doc)
    if (known.question, known.gold, known.texts) != (doc.question, doc.gold, doc.texts):
        raise ConflictError(
            f"{sentence_start(where)} has another question, target or other texts for doc_id"
            f" {number} than a line before: {doc.question!r:.60} and {known.question!r:.60}. Import"
            " one run at a time."
        )
    name = member(line, "filter", str, where)
    if name in known.filtered:
        raise ConflictError(
            f"{sentence_start(where)} has doc_id {number} a second time for the filter"
            f" {name!r:.60}. Import one run at a time."
        )
    known.filtered[name] = _filtered(
        member(line, "filtered_resps", list, where), len(known.texts), where
    )


def _doc(line: Any, number: int, where: str) -> _Doc:
    doc = member(line, "doc", dict, where)
    prompt, arguments = _request(line, where)
    if "target" not in line:
        member(line, "target", str, where)
    gold, others = gold_of(line["target"], where)
    last = gold.rpartition(_GSM8K_MARK)[2] if gold is not None else None
    short = gold if last is None or "\n" in last.strip() else last  # a heading closes nothing
    text = next(
        (doc[name] for name in _QUESTION_MEMBERS if isinstance(doc.get(name), str) and doc[name]),
        prompt.text,
    )
    return _Doc(
        number,
        text,
        short,
        others,
        short != gold,
        _choices(doc),
        _texts(line, where),
        prompt,
        arguments,
    )


def _texts(line: Any, where: str) -> list[str]:
    """Return the texts of all repeats. Each request of a question has a list of them; a generated
    answer is one request.
    """
    requests = member(line, "resps", list, where)
    if (
        len(requests) != 1
        or not isinstance(requests[0], list)
        or any(isinstance(text, list) for text in requests[0])
    ):
        raise SourceError(
            f"'resps' of {where} holds {len(requests)} requests or their log-likelihoods; only"
            " tasks that generate one text per repeat (output_type generate_until) have CoTs to"
            " import."
        )
    return strings(requests[0], where)


def _filtered(values: list[Any], repeats: int, where: str) -> list[str | None] | None:
    answers = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    if len(answers) != repeats or any(isinstance(value, list | dict) for value in answers):
        return None
    return [None if answer == _INVALID else answer for answer in answer_texts(answers, where)]


def _request(line: Any, where: str) -> tuple[Prompt, dict[str, Any]]:
    """Return request and generation arguments: `{"gen_args_0": {"arg_0", "arg_1"}}`, formerly
    `[[request, arguments]]`.
    """
    arguments = line.get("arguments")
    if isinstance(arguments, dict):
        first = member(arguments, "gen_args_0", dict, f"the arguments of {where}")
        sent, how = first.get("arg_0"), first.get("arg_1")
    elif (
        isinstance(arguments, list)
        and arguments
        and isinstance(arguments[0], list)
        and len(arguments[0]) > 1
    ):
        sent, how = arguments[0][:2]
    else:
        refuse(
            f"'arguments' of {where}", "an object with gen_args_0, or a list of requests", arguments
        )
    if isinstance(sent, list) and len(sent) == 1:
        return _chat(sent[0], where), how if isinstance(how, dict) else {}
    if not isinstance(sent, str):
        refuse(f"The request of {where}", "text", sent)
    return Prompt.of(sent), how if isinstance(how, dict) else {}


def _chat(sent: Any, where: str) -> Prompt:
    """Return a request to a chat endpoint, whose messages are JSON in a text."""
    if not isinstance(sent, str):
        refuse(f"The request of {where}", "text", sent)
    messages = Reader().json(sent.encode("utf-8", "surrogatepass"), f"The request of {where}")
    if not isinstance(messages, list):
        refuse(f"The request of {where}", "a list of messages", messages)
    return chat_prompt(messages, where)


def _choices(doc: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the options of a question: a list of texts, or `{"text": [...], "label": [...]}`."""
    choices = doc.get("choices")
    labels = choices.get("label") if isinstance(choices, dict) else None
    texts = choices.get("text") if isinstance(choices, dict) else choices
    if not _are_texts(texts):
        return ()
    if not _are_texts(labels) or len(set(labels)) != len(texts) or len(labels) != len(texts):
        return labelled(texts)
    return tuple(zip(labels, texts, strict=True))


def _are_texts(values: Any) -> TypeGuard[list[str]]:
    return (
        isinstance(values, list)
        and bool(values)
        and all(isinstance(value, str) for value in values)
    )


def _info(doc: _Doc, model: str, name: str) -> LLMInfo:
    arguments, where = doc.arguments, f"the generation arguments in {name}"
    temperature = temperature_of(arguments.get("temperature"), where)
    if temperature is None and arguments.get("do_sample") is False:
        temperature = 0.0
    limit = next(
        (
            arguments[key]
            for key in ("max_gen_toks", "max_tokens", "max_new_tokens")
            if key in arguments
        ),
        None,
    )
    return LLMInfo(model, temperature, limit_of(limit, where), decoding(arguments, _DECODING))


def _chosen_filter(docs: Sequence[_Doc]) -> str | None:
    """Return the first filter that kept one answer per repeat of every question and did not keep
    the whole texts.
    """
    for name in docs[0].filtered if docs else ():
        answers = [
            (answer, doc.texts) for doc in docs if (answer := doc.filtered.get(name)) is not None
        ]
        if len(answers) == len(docs) and extracted(answers):
            return name
    return None


def _filter_notes(docs: Sequence[_Doc], chosen: str | None) -> list[str]:
    names = ", ".join(repr(name)[:60] for name in list(docs[0].filtered)[:10])
    if chosen is None:
        return [f"None of the filters ({names}) extracted one answer per repeat."]
    return [f"The stored answers are those of the filter {chosen!r:.60}; the filters are {names}."]


def _doc_notes(docs: Sequence[_Doc]) -> list[str]:
    notes = counted_notes(
        (SEVERAL_GOLDS, sum(doc.other_golds for doc in docs)),
        (
            "Questions whose target is a worked solution, with the gold answer behind '####'",
            sum(doc.shortened_gold for doc in docs),
        ),
    )
    if any(doc.arguments != docs[0].arguments for doc in docs):
        notes.append(
            "The generation arguments differ between questions; those of the first stand in the"
            " recording."
        )
    return notes


@dataclass(frozen=True, slots=True)
class _Results:
    """What the results beside the samples say; nothing where there are none."""

    model: str = ""
    system_prompt: str | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, source: Path, reader: Reader) -> _Results:
        for path in beside(source):
            results = reader.json(read_bytes(path), path.name)
            if not isinstance(results, dict):
                refuse(path.name, "an object", results)
            model, system = results.get("model_name"), results.get("system_instruction")
            return cls(
                model if isinstance(model, str) else "",
                system if isinstance(system, str) and system else None,
                tuple(_results_notes(results, source)),
            )
        return cls()


def _results_notes(results: dict[str, Any], source: Path) -> list[str]:
    notes = []
    if isinstance(version := results.get("lm_eval_version"), str):
        notes.append(f"The samples were written by lm-evaluation-harness {version:.40}.")
    named = _NAME.fullmatch(source.name)
    counts = results.get("n-samples")
    count = counts.get(named["task"]) if named and isinstance(counts, dict) else None
    if isinstance(count, dict):
        effective, original = whole(count.get("effective")), whole(count.get("original"))
        if effective is not None and original is not None and effective < original:
            notes.append(f"The run asked {effective} of the task's {original} questions.")
    return notes
