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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from feval.cards.tokens import Usage
from feval.errors import ConflictError, SourceError
from feval.importers.archive import Archive, is_archive, opened
from feval.importers.harnesses.logs import (
    chat_prompt,
    decoding,
    extracted,
    gold_of,
    labelled,
    limit_of,
    reasoning_of,
    same_texts_note,
    temperature_of,
    text_of,
)
from feval.importers.reading import Reader, read_bytes
from feval.importers.shapes import finish_reason, identifier, member, refuse, strings, whole
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

_VERSION = 2
_HEADER, _START = "header.json", "_journal/start.json"
_NO_ANSWER = frozenset({"invalid_response_format", "no_response"})
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


def read(source: Path, request: ImportRequest) -> Imported:
    """Read one log, a zip or JSON. The request may give the LLM another name."""
    reader = Reader()
    if is_archive(source):
        with opened(source) as archive:
            header, where = _archived_header(archive, reader)
            content = _Content(_Header.of(header, where), _archived_samples(archive, reader))
    else:
        log = reader.json(read_bytes(source), source.name, exact=True)
        header = _Header.of(log, source.name)
        content = _Content(
            header, _listed_samples(member(log, "samples", list, source.name), source.name)
        )
    if not content.drafts:
        raise SourceError(f"{source.name} has no samples; there is nothing to import.")
    llm = request.llm_of(source.name, content.header.llm)
    source_llm = content.llm(llm)
    return Imported(
        [draft.question for draft in content.ordered()],
        [source_llm],
        [*content.notes(), *reader.notes()],
    )


@dataclass(frozen=True, slots=True)
class _Header:
    """What a log says of the whole run."""

    llm: LLMInfo
    scorers: tuple[str, ...]
    ids: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, log: Any, where: str) -> _Header:
        version = member(log, "version", int, where)
        if version > _VERSION:
            raise SourceError(
                f"{where} is an inspect-ai log of format version {version}; feval reads up to"
                f" {_VERSION}. Convert it with the `inspect` program, or take a newer feval."
            )
        spec = member(log, "eval", dict, where)
        plan = log.get("plan") if isinstance(log.get("plan"), dict) else {}
        values: dict[str, Any] = {}
        for config in (plan.get("config"), spec.get("model_generate_config")):
            values |= config if isinstance(config, dict) else {}
        here = f"the decoding in {where}"
        model = spec.get("model")
        llm = LLMInfo(
            model if isinstance(model, str) else "",
            temperature_of(values.get("temperature"), here),
            limit_of(values.get("max_tokens"), here),
            decoding(values, _DECODING),
        )
        data = spec.get("dataset")
        ids = data.get("sample_ids") if isinstance(data, dict) else None
        names = [
            scorer.get("name") for scorer in spec.get("scorers") or () if isinstance(scorer, dict)
        ]
        return cls(
            llm,
            tuple(name for name in names if isinstance(name, str)),
            (
                tuple(str(name) for name in ids if isinstance(name, int | str))
                if isinstance(ids, list)
                else ()
            ),
            tuple(_run_notes(log, spec)),
        )


def _run_notes(log: dict[str, Any], spec: dict[str, Any]) -> list[str]:
    notes = []
    packages = spec.get("packages")
    if isinstance(packages, dict) and isinstance(written := packages.get("inspect_ai"), str):
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
    return notes


def _archived_header(archive: Archive, reader: Reader) -> tuple[Any, str]:
    name = _START if _HEADER not in archive.names() and _START in archive.names() else _HEADER
    return archive.json(name, reader), archive.where(name)


def _archived_samples(archive: Archive, reader: Reader) -> Iterator[tuple[Any, str]]:
    names = [
        name for name in archive.names() if name.startswith("samples/") and name.endswith(".json")
    ]
    archive.check_size(names)
    for name in names:
        yield archive.json(name, reader, exact=True), archive.where(name)


def _listed_samples(samples: list[Any], name: str) -> Iterator[tuple[Any, str]]:
    for position, sample in enumerate(samples):
        yield sample, f"sample {position} of {name}"
        samples[position] = None  # its events need not stay in memory


@dataclass(slots=True)
class _Epoch:
    """One run of a sample: columns of its choices (usually one), answers by scorer, and what the
    whole run took.
    """

    texts: list[str]
    reasoning: list[str | None]
    reasons: list[str]
    answers: dict[str, str | None]
    without_answer: frozenset[str]
    tokens: int | None
    prompt_tokens: int | None
    prompt: Prompt | None
    failed: bool
    calls: int


@dataclass(slots=True)
class _Draft:
    """A question and its epochs by number."""

    question: SourceQuestion
    other_golds: bool
    epochs: dict[int, _Epoch] = field(default_factory=dict)

    def in_order(self) -> list[_Epoch]:
        return [self.epochs[number] for number in sorted(self.epochs)]


class _Content:
    """The samples of a log, by id."""

    def __init__(self, header: _Header, samples: Iterator[tuple[Any, str]]) -> None:
        self.header = header
        self.drafts: dict[str, _Draft] = {}
        self._notes: list[str] = []
        for sample, where in samples:
            self._add(sample, where)

    def _add(self, sample: Any, where: str) -> None:
        if not isinstance(sample, dict):
            refuse(where, "an object", sample)
        if "id" not in sample:
            member(sample, "id", str, where)
        question, others = _question(sample, identifier(sample["id"], f"'id' of {where}"), where)
        draft = self.drafts.setdefault(question.id, _Draft(question, others))
        if draft.question != question:
            raise ConflictError(
                f"The epochs of sample {question.id!r} are of different questions, targets or"
                f" choices: {_short(draft.question)} before, and {_short(question)} in {where}."
                " Give each question its own id."
            )
        number = member(sample, "epoch", int, where)
        if number in draft.epochs:
            raise ConflictError(
                f"{where} is epoch {number} of sample {question.id!r} a second time; import one run"
                " at a time."
            )
        draft.epochs[number] = _epoch(sample, self.header.llm.name, where)

    def ordered(self) -> list[_Draft]:
        """Return the questions in the order of the dataset; those not listed in the header come
        last, in the log's order.
        """
        places = {name: place for place, name in enumerate(self.header.ids)}
        return sorted(
            self.drafts.values(), key=lambda draft: places.get(draft.question.id, len(places))
        )

    def llm(self, info: LLMInfo) -> SourceLLM:
        """Return the one LLM, with a pool for each question."""
        drafts = self.ordered()
        epochs = [epoch for draft in drafts for epoch in draft.epochs.values()]
        counted = all(epoch.tokens is not None and len(epoch.texts) == 1 for epoch in epochs)
        scorer = self._chosen_scorer(epochs)
        pools = [_pool(draft.in_order(), scorer, counted=counted) for draft in drafts]
        self._notes = [*_scorer_notes(epochs, scorer), *_epoch_notes(drafts, counted=counted)]
        self._notes += [*size_note(pools), *same_texts_note(pools)]
        return SourceLLM(info, pools, counted)

    def _chosen_scorer(self, epochs: Sequence[_Epoch]) -> str | None:
        names = dict.fromkeys(
            [*self.header.scorers, *(name for epoch in epochs for name in epoch.answers)]
        )
        for name in names:
            answers = [([epoch.answers.get(name)], epoch.texts[:1]) for epoch in epochs]
            if extracted(answers) or all(
                name in epoch.without_answer or epoch.failed for epoch in epochs
            ):
                return name
        return None

    def notes(self) -> list[str]:
        """Return what was unusual; complete after `llm`."""
        return [*self.header.notes, *self._notes]


def _short(question: SourceQuestion) -> str:
    return f"{question.text!r:.60} with target {question.gold!r:.30}"


def _question(sample: dict[str, Any], name: str, where: str) -> tuple[SourceQuestion, bool]:
    gold, others = gold_of(sample.get("target"), where)
    choices = sample.get("choices")
    options = (
        labelled(strings(member(sample, "choices", list, where), where))
        if choices is not None
        else ()
    )
    return SourceQuestion(name, _input_text(sample, where), gold or None, options), others


def _input_text(sample: dict[str, Any], where: str) -> str:
    """Return the question: the input's text, or the last user message of a conversation."""
    content = sample.get("input")
    if isinstance(content, str):
        return _attached(content, sample)
    users = [
        message
        for message in member(sample, "input", list, where)
        if _role(message, where) == "user"
    ]
    if not users:
        raise SourceError(
            f"The input of {where} has no user message; there is no question to import."
        )
    return _attached(text_of(users[-1].get("content"), f"the input of {where}"), sample)


def _attached(text: str, sample: dict[str, Any]) -> str:
    """Return a text; long ones are kept among the attachments, under their hash."""
    attachments = sample.get("attachments")
    if text.startswith(_ATTACHMENT) and isinstance(attachments, dict):
        attachment = attachments.get(text.removeprefix(_ATTACHMENT))
        return attachment if isinstance(attachment, str) else text
    return text


def _role(message: Any, where: str) -> str:
    return member(message, "role", str, f"a message of {where}")


def _epoch(sample: dict[str, Any], model: str, where: str) -> _Epoch:
    output = sample.get("output") if sample.get("output") is not None else {}
    if not isinstance(output, dict):
        refuse(f"'output' of {where}", "an object", output)
    choices = output.get("choices") or []
    if not isinstance(choices, list):
        refuse(f"'choices' of the output of {where}", "a list", choices)
    failed = sample.get("error") is not None
    messages = sample.get("messages") if isinstance(sample.get("messages"), list) else []
    calls = [_role(message, where) for message in messages or ()].count("assistant")
    usage = _usage(sample, output, model, several=calls > 1)
    tokens, prompt_tokens = _tokens(usage, where)
    if tokens is None and not choices:
        tokens = 0  # nothing came, so nothing was generated
    return _Epoch(
        [_attached(_said(choice, where), sample) for choice in choices] or [""],
        [_thoughts(choice, sample) for choice in choices] or [None],
        [_reason(choice, where, failed=failed) for choice in choices] or ["error"],
        {} if failed else _answers(sample, where),
        _without_answer(sample),
        tokens,
        prompt_tokens,
        _prompt(messages or [], sample, where),
        failed,
        calls,
    )


def _said(choice: Any, where: str) -> str:
    message = member(choice, "message", dict, f"a choice of {where}")
    return text_of(message.get("content"), f"a choice of {where}")


def _thoughts(choice: dict[str, Any], sample: dict[str, Any]) -> str | None:
    thoughts = reasoning_of(choice["message"])
    return None if thoughts is None else _attached(thoughts, sample)


def _reason(choice: dict[str, Any], where: str, *, failed: bool) -> str:
    return (
        "error"
        if failed
        else finish_reason(choice.get("stop_reason"), f"The finish reason of a choice of {where}")
    )


def _usage(sample: dict[str, Any], output: dict[str, Any], model: str, *, several: bool) -> Any:
    """Return the usage of the last call or, where the solver made several, of all calls to the
    model.
    """
    models = sample.get("model_usage")
    every = models.get(model) if isinstance(models, dict) else None
    return every if several and every is not None else output.get("usage")


def _tokens(usage: Any, where: str) -> tuple[int | None, int | None]:
    """Output and input tokens; what came from the provider's cache was input, too."""
    if usage is None:
        return None, None
    member(usage, "output_tokens", int, f"the usage of {where}")
    counts = {name: whole(usage[key]) for name, key in _USAGE.items() if usage.get(key) is not None}
    # Inspect counts what came from a cache beside the input, and Gemini's thoughts beside the
    # output; its total tells.
    settled = Usage.of(**{"prompt": 0, "output": None, "cache_read": 0} | counts)
    if None in counts.values() or whole(settled.output) is None or whole(settled.prompt) is None:
        refuse(f"The usage of {where}", "whole numbers from 0", usage)
    if settled.problem is not None:
        refuse(f"The usage of {where}", f"without {settled.problem}", usage)
    return settled.output, settled.prompt


def _answers(sample: dict[str, Any], where: str) -> dict[str, str | None]:
    """Return the answer by scorer; `None` where a scorer found none."""
    scores = sample.get("scores")
    if scores is None:
        return {}
    answers: dict[str, str | None] = {}
    for name, score in member(sample, "scores", dict, where).items():
        answer = score.get("answer") if isinstance(score, dict) else None
        if answer is not None and not isinstance(answer, str):
            refuse(f"The answer of scorer {name!r:.40} in {where}", "text or null", answer)
        answers[name] = answer
    return answers


def _without_answer(sample: dict[str, Any]) -> frozenset[str]:
    """Return the scorers that say they found no answer, rather than not saying which."""
    scores = sample.get("scores")
    by_scorer = scores if isinstance(scores, dict) else {}
    reasons = {
        name: score.get("reason") for name, score in by_scorer.items() if isinstance(score, dict)
    }
    return frozenset(
        name for name, reason in reasons.items() if isinstance(reason, str) and reason in _NO_ANSWER
    )


def _prompt(messages: list[Any], sample: dict[str, Any], where: str) -> Prompt | None:
    """Return what was sent: the messages before the first reply."""
    request = []
    for message in messages:
        if _role(message, where) == "assistant":
            break
        text = _attached(text_of(message.get("content"), f"a message of {where}"), sample)
        request.append({"role": message["role"], "content": text})
    return chat_prompt(request, where) if request else None


def _pool(epochs: Sequence[_Epoch], scorer: str | None, *, counted: bool) -> SourcePool:
    answers = (
        [epoch.answers.get(scorer) for epoch in epochs for _ in epoch.texts]
        if scorer is not None
        else None
    )
    return SourcePool(
        [text for epoch in epochs for text in epoch.texts],
        answers if all(len(epoch.texts) == 1 for epoch in epochs) else None,
        [epoch.tokens or 0 for epoch in epochs] if counted else None,
        [reason for epoch in epochs for reason in epoch.reasons],
        epochs[0].prompt,
        (
            next((epoch.prompt_tokens for epoch in epochs if epoch.prompt_tokens is not None), None)
            if counted
            else None
        ),
        reasoning=[thoughts for epoch in epochs for thoughts in epoch.reasoning],
    )


def _scorer_notes(epochs: Sequence[_Epoch], chosen: str | None) -> list[str]:
    names = ", ".join(
        repr(name)[:60]
        for name in list(dict.fromkeys(name for e in epochs for name in e.answers))[:10]
    )
    if chosen is None:
        return [
            f"None of the scorers ({names or 'there are none'}) says which answer it extracted."
        ]
    return [f"The stored answers are those of the scorer {chosen!r:.60}; the scorers are {names}."]


def _epoch_notes(drafts: Sequence[_Draft], *, counted: bool) -> list[str]:
    epochs = [epoch for draft in drafts for epoch in draft.epochs.values()]
    uneven = sum(
        len({epoch.prompt_tokens for epoch in draft.epochs.values() if epoch.prompt_tokens}) > 1
        for draft in drafts
    )
    return counted_notes(
        (
            "Questions with several accepted targets, whose first is the gold answer",
            sum(draft.other_golds for draft in drafts),
        ),
        (
            "Samples that ended in an error, with no answer and the finish reason 'error'",
            sum(e.failed for e in epochs),
        ),
        (
            "Samples of several calls, with the text of the last and the tokens of all",
            sum(e.calls > 1 for e in epochs),
        ),
        ("Samples with several choices, each of them a CoT", sum(len(e.texts) > 1 for e in epochs)),
        (
            (
                "Questions whose epochs differ in their input tokens, of which those of the first"
                " were taken"
            ),
            uneven if counted else 0,
        ),
    )
