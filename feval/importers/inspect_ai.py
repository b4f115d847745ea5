"""Logs of inspect-ai, `.eval` (a zip) and `.json`: the epochs of a sample are the CoTs of one
question.

A log says: format version (2 is read), `eval` (task, model, dataset), `plan` (decoding) and the
samples with `id`, `epoch`, `input`, `target`, `choices`, `messages`, `output` (choices with message
and stop reason, usage) and `scores` (value and answer by scorer). In an archive these are
`header.json` (while the run is unfinished `_journal/start.json`) and `samples/<id>_epoch_<n>.json`.

Verbatim answers are the `answer` of the first scorer that extracted some: a sample without one has
no answer. A scorer whose answer is the whole text has extracted nothing, and answers are extracted
from the texts. Tokens are the provider's usage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feval.cards.tokens import Usage
from feval.errors import ConflictError, SourceError
from feval.importers.columns import (
    finish_reason,
    identifier,
    json_object,
    member,
    refuse,
    strings,
    whole,
)
from feval.importers.logs import (
    chat_prompt,
    decoding,
    extracted,
    gold_of,
    inside,
    labelled,
    reasoning_of,
    text_of,
)
from feval.importers.reading import ZIP, Archive, Reader, opened_archive, read_bytes, starts_with
from feval.importers.rows import Rows
from feval.importers.source import ImportRequest, Prompt, Row, SourceContent, counted_notes

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
_DECODING = (
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


def read(source: Path, request: ImportRequest) -> SourceContent:
    """Read one log, a zip or JSON. The request may give the LLM another name."""
    reader, noted = Reader(), Counter[str]()
    drafts: dict[str, dict[int, _Epoch]] = {}
    with ExitStack() as stack:
        archive = stack.enter_context(opened_archive(source)) if starts_with(source, ZIP) else None
        if archive is None:
            log, where = reader.json(read_bytes(source), source.name, exact=True), source.name
        else:
            names = archive.names()
            name = _START if _HEADER not in names and _START in names else _HEADER
            log, where = archive.json(name, reader), archive.where(name)
        spec, about, notes = _header(log, where)
        for sample, place in (
            _samples(log, where) if archive is None else _archived(archive, reader)
        ):
            _add(drafts, sample, about["llm"], place, noted)
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
    about |= decoding(values, ["max_tokens"], _DECODING)
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
        name for name in archive.names() if name.startswith("samples/") and name.endswith(".json")
    ]
    archive.check_size(names)
    for name in names:
        yield archive.json(name, reader, exact=True), archive.where(name)


def _samples(log: Any, name: str) -> Iterator[tuple[Any, str]]:
    samples = member(log, "samples", list, name)
    for position, sample in enumerate(samples):
        yield sample, f"sample {position} of {name}"
        samples[position] = None  # its events need not stay in memory


def _add(
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
