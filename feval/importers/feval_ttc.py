"""The archive of the FEval-TTC reference package (https://arxiv.org/abs/2511.01203): a zip of JSON
texts.

For a dataset D: `dataset_D.txt` (questions, golds, system prompt), `dataset_D_models.txt` (the LLMs
recorded) and `LLM_<id>_dataset_D.txt` for each (config, and per question the request and its CoTs).
D is the package's own name, which stands on our dataset's card; an id without a card is looked up
as it is. Nothing is unpacked to disk.

Verbatim answers are the stored ones. The stored token counts are the package's own, 1.365 per word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from feval.cards.cards import find_dataset_card, our_dataset_id
from feval.errors import SourceError, require_known
from feval.importers.columns import LARGEST, finish_reason, member, refuse, strings, whole_number
from feval.importers.reading import Archive, Reader, opened_archive
from feval.importers.source import (
    ImportRequest,
    SourceContent,
    SourceLLM,
    SourcePool,
    SourceQuestion,
    chat,
)
from feval.recording import LLMInfo


def read(source: Path, request: ImportRequest) -> SourceContent:
    """Read one dataset of an archive, with all its LLMs or those that the request names, one at a
    time.
    """
    reader = Reader()
    with opened_archive(source) as archive:
        name = _reference_name(archive, request.dataset)
        recorded = _recorded(archive, name, reader)
        for llm in request.llms:
            require_known(f"LLM recorded on {name} in {source.name},", llm, recorded)
        questions, system_prompt = _questions(archive, name, request, reader)
    llms = request.llms or recorded
    notes = ["The token counts are those stored in the archive; its package counts 1.365 per word."]
    return SourceContent(
        questions,
        _llms(source, name, llms, request, len(questions), reader, notes),
        notes,
        system_prompt,
        len(llms),
    )


def recorded_llms(source: Path, dataset: str) -> tuple[str, ...]:
    """Return names of the LLMs that an archive lists for a dataset."""
    with opened_archive(source) as archive:
        return _recorded(archive, _reference_name(archive, dataset), Reader())


def _llms(
    source: Path,
    dataset: str,
    names: tuple[str, ...],
    request: ImportRequest,
    count: int,
    reader: Reader,
    notes: list[str],
) -> Iterator[SourceLLM]:
    for name in names:
        with opened_archive(source) as archive:
            member_name = f"LLM_{name}_dataset_{dataset}.txt"
            record, where = archive.json(member_name, reader), archive.where(member_name)
        responses = member(record, "responses", list, where)
        if len(responses) != count:
            raise SourceError(
                f"{where} has {len(responses)} responses to {count} questions; there should be one"
                " for each."
            )
        yield SourceLLM(
            _info(member(record, "config", dict, where), name, request, where),
            _pools(responses, where),
            True,
        )
        del record, responses
    notes += reader.notes()


def _info(config: dict[str, Any], name: str, request: ImportRequest, where: str) -> LLMInfo:
    if member(config, "name", str, f"the config of {where}") != name:
        raise SourceError(f"{where} is named for {name!r}, and its config for {config['name']!r}.")
    stored = {key: config.get(key) for key in ("temperature", "max_tokens")}
    for key, value in stored.items():
        if value is not None and (type(value) not in (int, float) or not 0 <= value <= LARGEST):
            refuse(f"{key!r} of the config of {where}", f"a number from 0 to {LARGEST}", value)
    limit = stored["max_tokens"]
    info = LLMInfo(name, stored["temperature"], None if limit is None else int(limit))
    return replace(request, llms=()).llm_of(where, info)


def _pools(responses: list[Any], where: str) -> Iterator[SourcePool]:
    for row, response in enumerate(responses):
        yield _pool(response, f"response {row} of {where}")
        responses[row] = None  # what is written need not stay in memory


def _pool(response: Any, where: str) -> SourcePool:
    request = member(response, "request", dict, where)
    text = member(request, "raw_text", str, f"the request of {where}")
    tokens = whole_number(request.get("token_cost"), f"'token_cost' of the request of {where}")
    cots = member(response, "cots", list, where)
    columns = zip(*(_cot(cot, place, where) for place, cot in enumerate(cots)), strict=True)
    texts, answers, counts, reasons = map(list, columns) if cots else ([], [], [], [])
    prompt = chat([{"role": "user", "content": text}])
    return SourcePool(texts, answers, counts, reasons, prompt, tokens)


def _cot(cot: Any, place: int, where: str) -> tuple[str, str | None, int, str]:
    """Return text, answer, tokens and finish reason."""
    here = f"CoT {place} of {where}"
    text = member(cot, "raw_text", str, here)
    if not isinstance(answer := cot.get("answer"), str | None):
        refuse(f"Answer {place} of {where}", "text or null", answer)
    metadata, about = member(cot, "metadata", dict, here), f"the metadata of {here}"
    tokens = member(metadata, "token_cost", object, about)
    reason = member(metadata, "finish_reason", str, about)
    return (
        text,
        answer,
        whole_number(tokens, f"The token count of sample {place} of {where}"),
        finish_reason(reason, f"The finish reason of {here}"),
    )


def _recorded(archive: Archive, dataset: str, reader: Reader) -> tuple[str, ...]:
    """Return the LLMs that the archive lists for a dataset."""
    name = f"dataset_{dataset}_models.txt"
    llms = strings(
        member(archive.json(name, reader), "llms", list, archive.where(name)), archive.where(name)
    )
    if not llms or len(set(llms)) != len(llms):
        raise SourceError(
            f"{archive.where(name)} should list each LLM once; it lists {llms!r:.200}."
        )
    return tuple(llms)


def _questions(
    archive: Archive, dataset: str, request: ImportRequest, reader: Reader
) -> tuple[list[SourceQuestion], str | None]:
    """Return the questions and the system prompt."""
    name = f"dataset_{dataset}.txt"
    record, where = archive.json(name, reader), archive.where(name)
    system_prompt = record.get("system_prompt") if isinstance(record, dict) else None
    if system_prompt is not None and not isinstance(system_prompt, str):
        refuse(f"'system_prompt' of {where}", "text or null", system_prompt)
    entries = member(record, "data", list, where)
    if not entries:
        raise SourceError(f"{where} has no questions; there is nothing to import.")
    questions = [
        SourceQuestion(
            request.question_id(row),
            member(entry, "question", str, f"entry {row} of {where}"),
            member(entry, "answer", str, f"entry {row} of {where}"),
        )
        for row, entry in enumerate(entries)
    ]
    return questions, system_prompt


def _reference_name(archive: Archive, dataset: str) -> str:
    """Return the archive's name of a dataset."""
    card = find_dataset_card(dataset)
    name = (card and card.reference_name) or dataset
    names = archive.names()
    if f"dataset_{name}.txt" not in names:
        datasets = [
            entry[8:-11]
            for entry in names
            if entry.startswith("dataset_") and entry.endswith("_models.txt")
        ]
        raise SourceError(
            f"{archive.path.name} has no dataset {dataset!r} (as {name!r}); "
            f"it has {', '.join(map(our_dataset_id, datasets)) or 'none':.600}."
        )
    return name
