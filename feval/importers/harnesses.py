"""Logs of evaluation harnesses. Other shapes raise a `SourceError`.

**lm-evaluation-harness** (`--log_samples`): `samples_<task>_<date>.jsonl`, with
`results_<date>.json` beside it. JSON Lines, one line per question and filter: `doc_id`, `doc`,
`target` (gold), `arguments` (request and generation arguments), `resps` (the texts of all repeats),
`filter`, `filtered_resps` (what the filter made of them). Where a task has several filters, a
question has several lines with the same texts. The results name the model; without them the user
does. Verbatim answers are those of the first filter that keeps one answer per repeat; "[invalid]",
the harness's mark for nothing found, is no answer. A filter that changes nothing has extracted
nothing, and answers are extracted from the texts. Finish reasons and token counts are not in these
files.

**lighteval** (`--save-details`): `details/<model>/<date>/details_<task>_<date>.parquet`, one row
per question. The columns `doc` (`query`, `choices`, `gold_index`, `id`, `instruction`) and
`model_response` (`text`, one per sample; `reasonings`, `input`, `input_tokens` and `output_tokens`
where the backend has them). `results/<model>/results_<date>.json` of the same run names the model
and its decoding. Older versions wrote other columns, which are refused. No answers are stored: they
are extracted from the texts. Tokens are the lengths of the stored token ids, where every sample has
some. Backends that generate in batches fill up shorter samples with the end token: of an id
repeated at the end, the id at which most samples end, one is counted. Finish reasons are not
stored.

**inspect-ai**: logs `.eval` (a zip) and `.json`; the epochs of a sample are the CoTs of one
question. A log says: format version (2 is read), `eval` (task, model, dataset), `plan` (decoding)
and the samples with `id`, `epoch`, `input`, `target`, `choices`, `messages`, `output` (choices with
message and stop reason, usage) and `scores` (value and answer by scorer). In an archive these are
`header.json` (while the run is unfinished `_journal/start.json`) and `samples/<id>_epoch_<n>.json`.
Verbatim answers are the `answer` of the first scorer that extracted some: a sample without one has
no answer. A scorer whose answer is the whole text has extracted nothing, and answers are extracted
from the texts. Tokens are the provider's usage.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from feval.cards.tokens import Usage
from feval.errors import ConflictError, SourceError
from feval.importers.columns import (
    finish_reason,
    identifier,
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
from feval.importers.files import opened_parquet, shortest_floats
from feval.importers.reading import ZIP, Archive, Reader, opened_archive, read_bytes, starts_with
from feval.importers.rows import Rows, collected
from feval.importers.source import ImportRequest, Prompt, Row, SourceContent, chat, counted_notes
from feval.values import Pairs, inside


def chat_prompt(messages: Iterable[Any], where: str) -> Prompt:
    """Return a request of several messages, each with a role and a content."""
    here = f"a message of {where}"
    return chat(
        {
            "role": member(message, "role", str, here),
            "content": text_of(message.get("content"), here),
        }
        for message in messages
    )


def text_of(content: object, where: str) -> str:
    """Return the text of a message: its content, or the texts among its parts, with other parts as
    "[image]".

    Reasoning parts are left out: they are not what was said; `reasoning_of` gives them.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        refuse(f"The content of {where}", "text or a list of parts", content)
    here = f"a part of {where}"
    kinds = [(part, member(part, "type", str, here)) for part in content]
    return "\n".join(
        member(part, "text", str, here) if kind == "text" else f"[{kind}]"
        for part, kind in kinds
        if kind != "reasoning"
    )


def reasoning_of(message: Row) -> str | None:
    """Return the reasoning of a message: its reasoning parts (a redacted one has at most a
    summary), or its field `reasoning`.
    """
    content = message.get("content")
    shown = [
        (not part.get("redacted") and part.get("reasoning")) or part.get("summary")
        for part in (content if isinstance(content, list) else ())
        if isinstance(part, dict) and part.get("type") == "reasoning"
    ]
    texts = (*shown, message.get("reasoning"))
    return "\n".join(text for text in texts if isinstance(text, str) and text) or None


def gold_of(value: object, where: str, noted: Counter[str]) -> str | None:
    """Return the gold answer, the first of those accepted; count where there are others."""
    values = value if isinstance(value, list) else [value]
    golds = [scalar_text(each, f"The gold answer of {where}") for each in values]
    several = "Questions with several accepted answers, whose first is the gold answer"
    noted[several] += len(set(golds)) > 1
    return golds[0] if golds else None


def labelled(texts: Sequence[str]) -> Pairs:
    """Return options with the labels A to Z; none where there are more, or where the texts are the
    labels.
    """
    labels = string.ascii_uppercase[: len(texts)]
    if len(labels) != len(texts) or [text.strip().strip("().") for text in texts] == list(labels):
        return ()
    return tuple(zip(labels, texts, strict=True))


def decoding(values: Row, limits: Sequence[str], names: Iterable[str]) -> Row:
    """Return temperature, limit (under one of several names) and other named parameters of the
    decoding that are set: numbers, texts, true or false, and short lists of texts.
    """
    return {
        "temperature": values.get("temperature"),
        "max_tokens": next((values[name] for name in limits if name in values), None),
        "decoding": {
            name: value
            for name in names
            if isinstance(value := values.get(name), str | int | float | bool)
            or (isinstance(value, list) and 0 < len(value) <= 64 and are_texts(value))
        },
    }


def are_texts(values: Any) -> TypeGuard[list[str]]:
    """Return whether a value is a list of texts, at least one."""
    return (
        isinstance(values, list)
        and bool(values)
        and all(isinstance(value, str) for value in values)
    )


def extracted(pairs: Iterable[tuple[str | None, str | None]]) -> bool:
    """Return whether stored answers were extracted: not where each is its whole text, whatever its
    case.
    """
    return any(
        answer is not None and answer.strip().casefold() != (text or "").strip().casefold()
        for answer, text in pairs
    )


_LM_EVAL_NAME = re.compile(
    r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)\.jsonl(?:\.gz)?"
)
_INVALID = "[invalid]"
_QUESTION_MEMBERS = (
    "question", "problem", "query", "input", "prompt", "instruction", "text", "Question", "Problem",
)  # fmt: skip
_LIMITS = ("max_gen_toks", "max_tokens", "max_new_tokens")
_LM_EVAL_DECODING = ("do_sample", "top_p", "top_k", "min_p", "seed", "until")
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


def beside_lm_eval(source: Path) -> tuple[Path, ...]:
    """Return the results of the same run, where they lie beside the samples."""
    named = _LM_EVAL_NAME.fullmatch(source.name)
    results = source.with_name(f"results_{named['date']}.json") if named else None
    return (results,) if results is not None and results.is_file() else ()


def read_lm_eval(source: Path, request: ImportRequest) -> SourceContent:
    """Read the JSON Lines samples of one task. The request names the LLM if there are no results
    beside them.
    """
    reader = Reader()
    docs: dict[int, _Doc] = {}
    for where, line in reader.lines(source):
        _add_line(docs, line, where)
    if not docs:
        raise SourceError(f"{source.name} has no samples; there is nothing to import.")
    model, system_prompt, results_notes = _lm_eval_results(source, reader)
    ordered = [docs[number] for number in sorted(docs)]
    first = ordered[0]
    about: Row = {"llm": model} | decoding(first.arguments, _LIMITS, _LM_EVAL_DECODING)
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


def _add_line(docs: dict[int, _Doc], line: Any, where: str) -> None:
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
    prompt, arguments = _lm_eval_request(line, where)
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
            "choices": _doc_choices(doc),
            "prompt": prompt,
        },
        strings(texts, where),
        arguments,
        noted,
    )


def _lm_eval_request(line: Any, where: str) -> tuple[Prompt, Row]:
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
        return chat(text(sent, here)), how
    # to a chat endpoint: messages, as JSON in a text
    messages = Reader().json(text(sent[0], here).encode("utf-8", "surrogatepass"), here)
    if not isinstance(messages, list):
        refuse(here, "a list of messages", messages)
    return chat_prompt(messages, where), how


def _doc_choices(doc: Row) -> Pairs:
    """Return the options of a question: a list of texts, or `{"text": [...], "label": [...]}`."""
    choices = doc.get("choices")
    labels = inside(choices, "label")
    texts = choices.get("text") if isinstance(choices, dict) else choices
    if not are_texts(texts):
        return ()
    if not are_texts(labels) or len({*labels}) != len(texts) or len(labels) != len(texts):
        return labelled(texts)
    return tuple(zip(labels, texts, strict=True))


def _lm_eval_results(source: Path, reader: Reader) -> tuple[str | None, str | None, list[str]]:
    """Return model, system prompt and notes from the results beside the samples."""
    results: Any = {}
    for path in beside_lm_eval(source):
        results = json_object(reader.json(read_bytes(path), path.name), path.name)
    model, system = (
        value if isinstance(value := results.get(name), str) and value else None
        for name in ("model_name", "system_instruction")
    )
    notes = []
    if isinstance(version := results.get("lm_eval_version"), str):
        notes.append(f"The samples were written by lm-evaluation-harness {version:.40}.")
    named = _LM_EVAL_NAME.fullmatch(source.name)
    effective, original = (
        whole(inside(results, "n-samples", named["task"], name)) if named else None
        for name in ("effective", "original")
    )
    if effective is not None and original is not None and effective < original:
        notes.append(f"The run asked {effective} of the task's {original} questions.")
    return model, system, notes


_DOC_MEMBERS = ("query", "choices", "gold_index", "id", "instruction")
_RESPONSE = ("text", "reasonings", "input", "input_tokens", "output_tokens")
_LIGHTEVAL_DECODING = (
    "top_p", "top_k", "min_p", "seed", "stop_tokens", "repetition_penalty", "frequency_penalty",
    "presence_penalty",
)  # fmt: skip
_ROWS_AT_ONCE = 8
_FILLED = "Samples that batches filled up with their end token, which was counted once"
_NULL = "Samples without a text (null), which were read as empty texts"


def beside_lighteval(source: Path) -> tuple[Path, ...]:
    """Return the results of the same run, where the folders are as lighteval made them."""
    date = source.parent.name
    for folder in source.parents:
        if folder.name == "details":
            model = source.parent.parent.relative_to(folder)
            results = folder.parent / "results" / model / f"results_{date}.json"
            return (results,) if results.is_file() else ()
    return ()


class _Question(NamedTuple):
    """One question with its columns and those of its CoTs, which have as `ids` how many token ids
    there are, the last one, and how often that stands at the end; `None` where that is not known.
    """

    place: int
    about: Row
    cots: list[Row]
    instruction: Any
    where: str


def read_lighteval(source: Path, request: ImportRequest) -> SourceContent:
    """Read the Parquet details of one task. The request names the LLM if the results are not where
    lighteval puts them.
    """
    reader, noted = Reader(), Counter[str]()
    rows = sorted(_rows(source, noted), key=itemgetter(0))
    if not rows:
        raise SourceError(f"{source.name} has no questions; there is nothing to import.")
    cots = [cot for row in rows for cot in row.cots]
    ids = [cot.pop("ids") for cot in cots]
    counted = None not in ids
    ends = Counter(last for _, last, _ in ids) if counted else Counter[Any]()
    usual = max(ends, key=ends.__getitem__, default=None)
    for cot, (count, last, repeats) in zip(cots, ids if counted else (), strict=counted):
        filled = repeats - 1 if last == usual else 0
        noted[_FILLED] += filled > 0
        cot["tokens"] = count - filled
    about = _lighteval_results(source, reader) | ({} if counted else {"prompt_tokens": None})
    questions = (
        (row.about | about | {"id": request.question_id(row.place)}, row.cots, row.where)
        for row in rows
    )
    instructions = {row.instruction for row in rows if isinstance(row.instruction, str)}
    system_prompt = instructions.pop() if len(instructions) == 1 else None
    notes = counted_notes(*noted.items())
    imported = collected(source, request, questions, reader, notes)
    return replace(imported, system_prompt=system_prompt)


def _rows(source: Path, noted: Counter[str]) -> Iterator[_Question]:
    number = 0
    with opened_parquet(source, partial(_needed, source.name)) as (file, _):
        columns = [f"doc.{name}" for name in _DOC_MEMBERS] + [
            f"model_response.{name}" for name in _RESPONSE
        ]
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False):
            for record in shortest_floats(batch).to_pylist():
                where = f"row {number} of {source.name}"
                doc = member(record, "doc", dict, where)
                response = member(record, "model_response", dict, where)
                yield _detail(doc, response, number, where, noted)
                number += 1


def _detail(doc: Row, response: Row, number: int, where: str, noted: Counter[str]) -> _Question:
    about, name = _about(doc, where, noted), doc.get("id")
    texts = member(response, "text", list, where)
    strings([text for text in texts if text is not None], where)
    noted[_NULL] += texts.count(None)
    none = [None] * len(texts)
    columns = (response.get(column) for column in ("reasonings", "output_tokens"))
    reasoning, ids = (
        column if isinstance(column, list) and len(column) == len(texts) else none
        for column in columns
    )
    if not all(thoughts is None or isinstance(thoughts, str) for thoughts in reasoning):
        refuse(f"'reasonings' of {where}", "texts or null", reasoning)
    query, given = response.get("input"), response.get("input_tokens")
    if isinstance(query, list) and query and isinstance(query[0], dict):
        query = chat_prompt(query, where)
    about["prompt"] = query if isinstance(query, str | Prompt) and query else None
    about["prompt_tokens"] = len(given) if isinstance(given, list) and given else None
    return _Question(
        int(name) if isinstance(name, str) and name.isdecimal() and len(name) < 10 else number,
        about,
        [
            {"text": text or "", "reasoning": thoughts or None, "ids": _ends(own)}
            for text, thoughts, own in zip(texts, reasoning, ids, strict=True)
        ],
        doc.get("instruction"),
        where,
    )


def _ends(ids: Any) -> tuple[int, Any, int] | None:
    if not isinstance(ids, list) or not ids:
        return None
    last = ids[-1]
    repeats = next((n for n, token in enumerate(reversed(ids)) if token != last), len(ids))
    return len(ids), last, repeats


def _about(doc: Row, where: str, noted: Counter[str]) -> Row:
    """Return the columns of the question."""
    text = member(doc, "query", str, where)
    choices = strings(member(doc, "choices", list, where), where)
    gold_index = doc.get("gold_index")
    places = (
        gold_index if isinstance(gold_index, list) else [] if gold_index is None else [gold_index]
    )
    if any(type(place) is not int or not 0 <= place < len(choices) for place in places):
        refuse(
            f"'gold_index' of {where}", f"places among its {len(choices)} choices", str(gold_index)
        )
    # Where every choice is right, they are ways to write one answer and no options.
    options = labelled(choices) if len(set(places)) < len(choices) and len(choices) > 1 else ()
    golds = [options[place][0] if options else choices[place].strip() for place in places]
    return {"question": text, "gold": gold_of(golds, where, noted), "choices": options}


def _needed(name: str, columns: Sequence[str]) -> Sequence[str]:
    needed = ("doc", "model_response")
    missing = [column for column in needed if column not in columns]
    if missing:
        raise SourceError(
            f"{name} has no column {' and no '.join(missing)}, as details of lighteval 0.13 have;"
            f" its columns are {', '.join(columns)!s:.200}. Another version of lighteval wrote it,"
            " or something else."
        )
    return needed


def _lighteval_results(source: Path, reader: Reader) -> Row:
    """Return name and decoding of the model, as the results state them."""
    for path in beside_lighteval(source):
        results = reader.json(read_bytes(path), path.name)
        general = member(results, "config_general", dict, path.name)
        values = inside(general, "model_config", "generation_parameters")
        name = general.get("model_name")
        about = decoding(
            values if isinstance(values, dict) else {}, ["max_new_tokens"], _LIGHTEVAL_DECODING
        )
        return about | {"llm": name if isinstance(name, str) and name else None}
    return {}


_VERSION = 2
_HEADER, _START = "header.json", "_journal/start.json"
_FAILED = "Samples that ended in an error, with no answer and the finish reason 'error'"
_CALLS = "Samples of several calls, with the text of the last and the tokens of all"
_CHOICES = "Samples with several choices, each of them a CoT"
_UNEVEN = (
    "Questions whose epochs differ in their input tokens, of which those of the first were taken"
)
_NO_ANSWER = ("invalid_response_format", "no_response")
_ATTACHMENT = "attachment://"
_USAGE = {
    "prompt": "input_tokens", "output": "output_tokens", "total": "total_tokens",
    "reasoning": "reasoning_tokens",
    "cache_read": "input_tokens_cache_read", "cache_write": "input_tokens_cache_write",
}  # fmt: skip
_INSPECT_DECODING = (
    "top_p", "top_k", "seed", "stop_seqs", "frequency_penalty", "presence_penalty",
    "reasoning_effort", "reasoning_tokens",
    "num_choices", "system_message",
)  # fmt: skip


@dataclass(slots=True)
class _Epoch:
    """One run of a sample: its question, the CoTs of its choices (usually one), answers by scorer,
    the scorers that say they found none, and what the whole run took.
    """

    where: str
    question: Row
    cots: list[Row]
    answers: dict[str, str | None]
    without_answer: frozenset[str]
    tokens: int | None
    prompt_tokens: int | None
    prompt: Prompt | None
    failed: bool


def read_inspect_ai(source: Path, request: ImportRequest) -> SourceContent:
    """Read one log, a zip or JSON. The request may give the LLM another name."""
    reader, noted = Reader(), Counter[str]()
    drafts: dict[str, dict[int, _Epoch]] = {}
    with ExitStack() as stack:
        archive = stack.enter_context(opened_archive(source)) if starts_with(source, ZIP) else None
        if archive is None:
            log, where = reader.json(read_bytes(source), source.name, exact=True), source.name
        else:
            names = archive.zip.namelist()
            name = _START if _HEADER not in names and _START in names else _HEADER
            log, where = archive.json(name, reader), archive.where(name)
        spec, about, notes = _header(log, where)
        for sample, place in (
            _samples(log, where) if archive is None else _archived(archive, reader)
        ):
            _add_epoch(drafts, sample, about["llm"], place, noted)
    if not drafts:
        raise SourceError(f"{source.name} has no samples; there is nothing to import.")
    ids = inside(spec, "dataset", "sample_ids")
    places = {str(name): place for place, name in enumerate(ids if isinstance(ids, list) else ())}
    # those not listed in the header come last, in the log's order
    names = sorted(drafts, key=lambda name: places.get(name, len(places)))
    ordered = [[drafts[name][number] for number in sorted(drafts[name])] for name in names]
    epochs = [epoch for draft in ordered for epoch in draft]
    single = all(len(epoch.cots) == 1 for epoch in epochs)
    counted = single and all(epoch.tokens is not None for epoch in epochs)
    scorer, note = _chosen_scorer(spec, epochs)
    rows = Rows(source.name, request, null_stays=True)
    for draft in ordered:
        shared = about | {"prompt": draft[0].prompt}
        if counted:
            counts = [epoch.prompt_tokens for epoch in draft if epoch.prompt_tokens is not None]
            shared["prompt_tokens"] = next(iter(counts), None)
            noted[_UNEVEN] += len({*counts} - {0}) > 1
        for epoch in draft:
            row = shared | epoch.question
            if counted:
                row["tokens"] = epoch.tokens
            if scorer is not None and single:
                row["answer"] = epoch.answers.get(scorer)
            for cot in epoch.cots:
                rows.add(row | cot, epoch.where)
    return rows.imported(reader, notes=[*notes, note, *counted_notes(*noted.items())])


def _header(log: Any, where: str) -> tuple[Row, Row, list[str]]:
    """Return the run's own description, its LLM and decoding as columns, and notes."""
    version = member(log, "version", int, where)
    if version > _VERSION:
        raise SourceError(
            f"{where} is an inspect-ai log of format version {version}; feval reads up to"
            f" {_VERSION}. Convert it with the `inspect` program, or take a newer feval."
        )
    spec = member(log, "eval", dict, where)
    values: Row = {}
    for config in (inside(log, "plan", "config"), spec.get("model_generate_config")):
        values |= config if isinstance(config, dict) else {}
    model = spec.get("model")
    about = {"llm": model if isinstance(model, str) and model else None}
    about |= decoding(values, ["max_tokens"], _INSPECT_DECODING)
    notes = []
    if isinstance(written := inside(spec, "packages", "inspect_ai"), str):
        notes.append(f"The log was written by inspect-ai {written:.40}.")
    status = log.get("status")
    if status != "success":
        notes.append(
            f"The run did not end well (status {status!r:.40}); only the samples that it finished"
            " are there."
        )
    if log.get("invalidated") is True:
        notes.append(
            "Its authors have marked samples of the log as invalid; they were imported all the"
            " same."
        )
    return spec, about, notes


def _archived(archive: Archive, reader: Reader) -> Iterator[tuple[Any, str]]:
    names = [
        name
        for name in archive.zip.namelist()
        if name.startswith("samples/") and name.endswith(".json")
    ]
    archive.check_size(names)
    for name in names:
        yield archive.json(name, reader, exact=True), archive.where(name)


def _samples(log: Any, name: str) -> Iterator[tuple[Any, str]]:
    samples = member(log, "samples", list, name)
    for position, sample in enumerate(samples):
        yield sample, f"sample {position} of {name}"
        samples[position] = None  # its events need not stay in memory


def _add_epoch(
    drafts: dict[str, dict[int, _Epoch]], sample: Any, model: str, where: str, noted: Counter[str]
) -> None:
    name = identifier(member(sample, "id", object, where), f"'id' of {where}")
    epochs, number = drafts.setdefault(name, {}), member(sample, "epoch", int, where)
    if number in epochs:
        raise ConflictError(
            f"{where} is epoch {number} of sample {name!r} a second time; import one run at a time."
        )
    question: Row = {
        "id": name,
        "question": _input_text(sample, where),
        "gold": gold_of(sample.get("target"), where, Counter() if epochs else noted) or None,
        "choices": (),
    }
    if sample.get("choices") is not None:
        question["choices"] = labelled(strings(member(sample, "choices", list, where), where))
    epochs[number] = _epoch(sample, question, model, where, noted)
    first = next(iter(epochs.values())).question
    if first != question:
        raise ConflictError(
            f"The epochs of sample {name!r} are of different questions, targets or choices:"
            f" {_short(first)} before, and {_short(question)} in {where}. Give each question its"
            " own id."
        )


def _short(question: Row) -> str:
    return f"{question['question']!r:.60} with target {question['gold']!r:.30}"


def _input_text(sample: Row, where: str) -> str:
    """Return the question: the input's text, or the last user message of a conversation."""
    content = sample.get("input")
    if isinstance(content, str):
        return _attached(content, sample)
    messages = member(sample, "input", list, where)
    users = [message for message in messages if _role(message, where) == "user"]
    if not users:
        raise SourceError(
            f"The input of {where} has no user message; there is no question to import."
        )
    return _attached(text_of(users[-1].get("content"), f"the input of {where}"), sample)


def _attached(text: str, sample: Row) -> str:
    """Return a text; long ones are kept among the attachments, under their hash."""
    if text.startswith(_ATTACHMENT):
        attachment = inside(sample, "attachments", text.removeprefix(_ATTACHMENT))
        return attachment if isinstance(attachment, str) else text
    return text


def _role(message: Any, where: str) -> str:
    return member(message, "role", str, f"a message of {where}")


def _epoch(sample: Row, question: Row, model: str, where: str, noted: Counter[str]) -> _Epoch:
    output = sample.get("output")
    output = {} if output is None else json_object(output, f"'output' of {where}")
    choices = output.get("choices") or []
    if not isinstance(choices, list):
        refuse(f"'choices' of the output of {where}", "a list", choices)
    failed = sample.get("error") is not None
    messages = sample.get("messages")
    messages = messages if isinstance(messages, list) else []
    roles = [_role(message, where) for message in messages]
    calls, usage = roles.count("assistant"), output.get("usage")
    # Where the solver made several calls, that is of the last.
    if calls > 1 and (of_all := inside(sample, "model_usage", model)) is not None:
        usage = of_all
    tokens, prompt_tokens = _tokens(usage, where)
    if tokens is None and not choices:
        tokens = 0  # nothing came, so nothing was generated
    sent = [
        {
            "role": role,
            "content": _attached(text_of(message.get("content"), f"a message of {where}"), sample),
        }
        for message, role in zip(
            messages, roles[: roles.index("assistant")] if calls else roles, strict=False
        )
    ]
    scores = member(sample, "scores", dict, where) if sample.get("scores") is not None else {}
    by_scorer = {name: score if isinstance(score, dict) else {} for name, score in scores.items()}
    for name, score in by_scorer.items():
        if not isinstance(score.get("answer"), str | None):
            refuse(f"The answer of scorer {name!r:.40} in {where}", "text or null", score["answer"])
    noted[_FAILED] += failed
    noted[_CALLS] += calls > 1
    noted[_CHOICES] += len(choices) > 1
    return _Epoch(
        where,
        question,
        [_cot(choice, sample, where, failed=failed) for choice in choices]
        or [{"text": "", "finish_reason": "error"}],
        {} if failed else {name: score.get("answer") for name, score in by_scorer.items()},
        frozenset(name for name, score in by_scorer.items() if score.get("reason") in _NO_ANSWER),
        tokens,
        prompt_tokens,
        chat_prompt(sent, where) if sent else None,
        failed,
    )


def _cot(choice: Any, sample: Row, where: str, *, failed: bool) -> Row:
    message = member(choice, "message", dict, f"a choice of {where}")
    thoughts, here = reasoning_of(message), f"The finish reason of a choice of {where}"
    return {
        "text": _attached(text_of(message.get("content"), f"a choice of {where}"), sample),
        "reasoning": None if thoughts is None else _attached(thoughts, sample),
        "finish_reason": "error" if failed else finish_reason(choice.get("stop_reason"), here),
    }


def _tokens(usage: Any, where: str) -> tuple[int | None, int | None]:
    """Output and input tokens; what came from the provider's cache was input, too."""
    if usage is None:
        return None, None
    member(usage, "output_tokens", int, f"the usage of {where}")
    counts = {name: whole(usage[key]) for name, key in _USAGE.items() if usage.get(key) is not None}
    # Inspect counts what came from a cache beside the input, and Gemini's thoughts beside the
    # output; its total tells.
    settled = Usage.from_reply(**{"prompt": 0, "output": None, "cache_read": 0} | counts)
    if None in (*counts.values(), whole(settled.output), whole(settled.prompt)):
        refuse(f"The usage of {where}", "whole numbers from 0", usage)
    if settled.problem is not None:
        refuse(f"The usage of {where}", f"without {settled.problem}", usage)
    return settled.output, settled.prompt


def _chosen_scorer(spec: Row, epochs: Sequence[_Epoch]) -> tuple[str | None, str]:
    """Return the scorer whose answers are taken, and a note that says so."""
    listed = [each.get("name") for each in spec.get("scorers") or () if isinstance(each, dict)]
    stated = list(dict.fromkeys(name for epoch in epochs for name in epoch.answers))
    names = ", ".join(repr(name)[:60] for name in stated[:10])
    for name in dict.fromkeys([*(name for name in listed if isinstance(name, str)), *stated]):
        if extracted((epoch.answers.get(name), epoch.cots[0]["text"]) for epoch in epochs) or all(
            name in epoch.without_answer or epoch.failed for epoch in epochs
        ):
            note = (
                f"The stored answers are those of the scorer {name!r:.60}; the scorers are {names}."
            )
            return name, note
    return (
        None,
        f"None of the scorers ({names or 'there are none'}) says which answer it extracted.",
    )
