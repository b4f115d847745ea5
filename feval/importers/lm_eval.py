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
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from feval.errors import ConflictError, SourceError
from feval.importers.columns import (
    json_object,
    member,
    refuse,
    scalar_text,
    sentence_start,
    strings,
    text,
    whole,
    whole_number,
)
from feval.importers.logs import (
    are_texts,
    chat_prompt,
    decoding,
    extracted,
    gold_of,
    inside,
    labelled,
)
from feval.importers.reading import Reader, read_bytes, read_lines
from feval.importers.rows import collected
from feval.importers.source import ImportRequest, Prompt, Row, SourceContent, chat, counted_notes

_NAME = re.compile(
    r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)\.jsonl(?:\.gz)?"
)
_INVALID = "[invalid]"
_QUESTION_MEMBERS = (
    "question", "problem", "query", "input", "prompt", "instruction", "text", "Question", "Problem",
)  # fmt: skip
_LIMITS = ("max_gen_toks", "max_tokens", "max_new_tokens")
_DECODING = ("do_sample", "top_p", "top_k", "min_p", "seed", "until")
_GSM8K_MARK = "#### "
_WORKED = "Questions whose target is a worked solution, with the gold answer behind '####'"


@dataclass(slots=True)
class _Doc:
    """What the lines of one question say: its columns, the texts of all repeats, the generation
    arguments and what is noted. `filtered`: filter -> answers; `None` where it kept another number
    of them.
    """

    question: Row
    texts: list[str]
    arguments: Row
    noted: Counter[str]
    filtered: dict[str, Sequence[str | None] | None] = field(default_factory=dict)


def beside(source: Path) -> tuple[Path, ...]:
    """Return the results of the same run, where they lie beside the samples."""
    named = _NAME.fullmatch(source.name)
    results = source.with_name(f"results_{named['date']}.json") if named else None
    return (results,) if results is not None and results.is_file() else ()


def read(source: Path, request: ImportRequest) -> SourceContent:
    """Read the JSON Lines samples of one task. The request names the LLM if there are no results
    beside them.
    """
    reader = Reader()
    docs: dict[int, _Doc] = {}
    with closing(read_lines(source)) as lines:
        for number, line in reader.json_lines(lines, source.name):
            _add(docs, line, f"line {number} of {source.name}")
    if not docs:
        raise SourceError(f"{source.name} has no samples; there is nothing to import.")
    model, system_prompt, results_notes = _results(source, reader)
    ordered = [docs[number] for number in sorted(docs)]
    first = ordered[0]
    about: Row = {"llm": model} | decoding(first.arguments, _LIMITS, _DECODING)
    if about["temperature"] is None and first.arguments.get("do_sample") is False:
        about["temperature"] = 0.0
    chosen = next(
        (
            name
            for name in first.filtered
            if all(doc.filtered.get(name) is not None for doc in ordered)
            and extracted(
                pair
                for doc in ordered
                for pair in zip(doc.filtered[name] or (), doc.texts, strict=True)
            )
        ),
        None,
    )
    questions = []
    for number, doc in sorted(docs.items()):
        stored = doc.filtered[chosen] or () if chosen else None
        cots: list[Row] = [
            {"text": reply} | ({} if stored is None else {"answer": stored[repeat]})
            for repeat, reply in enumerate(doc.texts)
        ]
        row = about | doc.question | {"id": request.question_id(number)}
        questions.append((row, cots, f"doc_id {number} of {source.name}"))
    names = ", ".join(repr(name)[:60] for name in list(first.filtered)[:10])
    notes = [
        f"None of the filters ({names}) extracted one answer per repeat."
        if chosen is None
        else f"The stored answers are those of the filter {chosen!r:.60}; the filters are {names}.",
        *counted_notes(*sum((doc.noted for doc in ordered), Counter[str]()).items()),
    ]
    if any(doc.arguments != first.arguments for doc in ordered):
        notes.append(
            "The generation arguments differ between questions; those of the first stand in the"
            " recording."
        )
    imported = collected(source, request, questions, reader, results_notes + notes)
    return replace(imported, system_prompt=system_prompt)


def _add(docs: dict[int, _Doc], line: Any, where: str) -> None:
    number = whole_number(member(line, "doc_id", int, where), f"'doc_id' of {where}")
    doc = _doc(line, where)
    known = docs.setdefault(number, doc)
    if (known.question, known.texts) != (doc.question, doc.texts):
        before, here = (each.question["question"] for each in (known, doc))
        raise ConflictError(
            f"{sentence_start(where)} has another question, target, request or other texts for"
            f" doc_id {number} than a line before: {here!r:.60} and {before!r:.60}. Import one run"
            " at a time."
        )
    name = member(line, "filter", str, where)
    if name in known.filtered:
        raise ConflictError(
            f"{sentence_start(where)} has doc_id {number} a second time for the filter"
            f" {name!r:.60}. Import one run at a time."
        )
    values = member(line, "filtered_resps", list, where)
    answers = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    is_extraction = len(answers) == len(doc.texts) and not any(
        isinstance(value, list | dict) for value in answers
    )
    known.filtered[name] = (
        [
            None if value == _INVALID else scalar_text(value, f"Answer {position} of {where}")
            for position, value in enumerate(answers)
        ]
        if is_extraction
        else None
    )


def _doc(line: Any, where: str) -> _Doc:
    doc = member(line, "doc", dict, where)
    prompt, arguments = _request(line, where)
    noted = Counter[str]()
    gold = gold_of(member(line, "target", object, where), where, noted)
    last = gold.rpartition(_GSM8K_MARK)[2] if gold is not None else None
    short = gold if last is None or "\n" in last.strip() else last  # a heading closes nothing
    noted[_WORKED] += short != gold
    named = (
        doc[name] for name in _QUESTION_MEMBERS if isinstance(doc.get(name), str) and doc[name]
    )
    requests = member(line, "resps", list, where)
    # Each request of a question has a list of texts; a generated answer is one request.
    texts = requests[0] if len(requests) == 1 else None
    if not isinstance(texts, list) or any(isinstance(each, list) for each in texts):
        raise SourceError(
            f"'resps' of {where} holds {len(requests)} requests or their log-likelihoods; only"
            " tasks that generate one text per repeat (output_type generate_until) have CoTs to"
            " import."
        )
    return _Doc(
        {
            "question": next(named, prompt.text),
            "gold": short,
            "choices": _choices(doc),
            "prompt": prompt,
        },
        strings(texts, where),
        arguments,
        noted,
    )


def _request(line: Any, where: str) -> tuple[Prompt, Row]:
    """Return request and generation arguments: `{"gen_args_0": {"arg_0", "arg_1"}}`, formerly
    `[[request, arguments]]`.
    """
    arguments, here = line.get("arguments"), f"The request of {where}"
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
    how = how if isinstance(how, dict) else {}
    if not (isinstance(sent, list) and len(sent) == 1):
        return chat([{"role": "user", "content": text(sent, here)}]), how
    # to a chat endpoint: messages, as JSON in a text
    messages = Reader().json(text(sent[0], here).encode("utf-8", "surrogatepass"), here)
    if not isinstance(messages, list):
        refuse(here, "a list of messages", messages)
    return chat_prompt(messages, where), how


def _choices(doc: Row) -> tuple[tuple[str, str], ...]:
    """Return the options of a question: a list of texts, or `{"text": [...], "label": [...]}`."""
    choices = doc.get("choices")
    labels = inside(choices, "label")
    texts = choices.get("text") if isinstance(choices, dict) else choices
    if not are_texts(texts):
        return ()
    if not are_texts(labels) or len({*labels}) != len(texts) or len(labels) != len(texts):
        return labelled(texts)
    return tuple(zip(labels, texts, strict=True))


def _results(source: Path, reader: Reader) -> tuple[str | None, str | None, list[str]]:
    """Return model, system prompt and notes from the results beside the samples."""
    results: Any = {}
    for path in beside(source):
        results = json_object(reader.json(read_bytes(path), path.name), path.name)
    model, system = (
        value if isinstance(value := results.get(name), str) and value else None
        for name in ("model_name", "system_instruction")
    )
    notes = []
    if isinstance(version := results.get("lm_eval_version"), str):
        notes.append(f"The samples were written by lm-evaluation-harness {version:.40}.")
    named = _NAME.fullmatch(source.name)
    effective, original = (
        whole(inside(results, "n-samples", named["task"], name)) if named else None
        for name in ("effective", "original")
    )
    if effective is not None and original is not None and effective < original:
        notes.append(f"The run asked {effective} of the task's {original} questions.")
    return model, system, notes
