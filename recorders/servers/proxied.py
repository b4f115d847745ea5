"""Recordings made of a proxy's journal: which request is which question, and which LLM was
asked.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from feval.answers import EXTRACTOR_VERSION
from feval.answers.equality import named_equality
from feval.cards.cards import find_dataset_card
from feval.errors import FevalError, StorageError
from feval.recording import DatasetInfo, LLMInfo, Question, merge, open_recording
from feval.recording.layout.destination import scratch_beside
from recorders.errors import JournalError
from recorders.journal.journal import Journal
from recorders.request import Decoding, Message, Request
from recorders.servers.proxy import messages_id
from recorders.work.seal import seal

_Pairs = list[tuple[Question, Request]]


def seal_proxied(
    journal: Journal,
    out: Path,
    *,
    dataset: str,
    answer_kind: str,
    questions: Sequence[Question] = (),
    prices: str = "none",
    counter: str = "usage",
    equality: str | None = None,
) -> Path | None:
    """Make a recording of a proxy's open journal, which stays, to be replayed and continued; `None`
    if it has no CoT.

    A recording is never changed: if `out` has fewer CoTs than the journal, the new one is `out-2`,
    `out-3` and so on. A request asks the question that `match` finds in its last user message;
    others are questions of their own, without gold.

    Raises:
        JournalError: the journal is damaged.
        StorageError: the recording cannot be written.
    """
    if not journal.totals.cots:
        return None
    newest, free = _numbered(out)
    if newest is not None and _cots(newest) == journal.totals.cots:
        return newest
    card = find_dataset_card(dataset)
    title, licence = (card.title, card.licence) if card else (dataset, None)
    info = DatasetInfo(
        dataset,
        title,
        answer_kind,
        EXTRACTOR_VERSION,
        None,
        licence,
        named_equality(answer_kind, equality),
    )
    seal_group = partial(_seal, journal, dataset=info, prices=prices, counter=counter)
    groups = _groups(_requests(journal, dataset), dataset, questions)
    names = _names(list(groups))
    if len(groups) == 1:
        ((llm, group),) = groups.items()
        return seal_group(free, names[llm], group)
    folder, lock = scratch_beside(out, Path.mkdir)
    try:
        parts = [
            seal_group(folder / str(number), names[llm], group)
            for number, (llm, group) in enumerate(groups.items())
        ]
        return merge(parts, free)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def check_place(out: Path) -> None:
    """Check that a recording can be made at a path later; `StorageError` if something else than a
    recording is there.
    """
    newest, _ = _numbered(out)
    if newest is None:
        return
    try:
        open_recording(newest)
    except FevalError as error:
        raise StorageError(
            f"{newest} exists and holds no recording that can be opened. Name another folder to"
            " record into."
        ) from error


def match(text: str, questions: Sequence[Question]) -> Question | None:
    """Return the question whose text stands verbatim in a message: the longest, unless two have the
    same text.
    """
    contained = [question for question in questions if question.text and question.text in text]
    longest = max((len(question.text) for question in contained), default=0)
    best = [question for question in contained if len(question.text) == longest]
    return best[0] if len(best) == 1 else None


def _seal(
    journal: Journal,
    out: Path,
    name: str,
    group: _Pairs,
    *,
    dataset: DatasetInfo,
    prices: str,
    counter: str,
) -> Path:
    requests = [request for _, request in group]
    content = requests[0].decoding.content()
    temperature, max_tokens = content.pop("temperature"), content.pop("max_tokens")
    extra = {key: value for key, value in content.items() if value not in (None, [], {})}
    return seal(
        journal,
        out,
        dataset=dataset,
        questions=[question for question, _ in group],
        requests=requests,
        llm=LLMInfo(
            name, temperature, max_tokens, {"model": requests[0].model, "prompt": "proxied"} | extra
        ),
        operation={"name": "proxy", **journal.identity},
        prices=prices,
        counter=counter,
    )


def _requests(journal: Journal, dataset: str) -> list[Request]:
    """The requests of the journal, in its order."""
    requests = []
    for entry in journal.entries():
        if entry.kind != "request":
            continue
        record = entry.record
        try:
            decoding: dict[str, Any] = {
                **record["decoding"],
                "stop": tuple(record["decoding"]["stop"]),
            }
            messages = tuple(
                Message(message["role"], message["content"]) for message in record["messages"]
            )
            request = Request(
                dataset, record["question_id"], messages, record["model"], Decoding(**decoding)
            )
        except (KeyError, TypeError) as error:
            raise JournalError(
                f"Line {entry.number} of {journal.path} was not written by a proxy."
            ) from error
        if request.key() != record["request"]:
            raise JournalError(
                f"Line {entry.number} of {journal.path} is a request that does not match its key."
            )
        if journal.count(record["request"]):  # else its reply was never written
            requests.append(request)
    return requests


def _groups(
    requests: Sequence[Request], dataset: str, questions: Sequence[Question]
) -> dict[str, _Pairs]:
    """The requests of each LLM (model and decoding) with their questions; of two for one question,
    the first one keeps it.
    """
    groups: defaultdict[str, dict[str, tuple[Question, Request]]] = defaultdict(dict)
    for request in requests:
        llm = json.dumps([request.model, request.decoding.content()], sort_keys=True)
        last = next(
            message.content for message in reversed(request.messages) if message.role == "user"
        )
        question = match(last, questions)
        if question is None or question.id in groups[llm]:
            question = Question(f"{dataset}/{messages_id(request.messages)}", last)
        groups[llm].setdefault(question.id, (question, replace(request, question_id=question.id)))
    return {llm: list(group.values()) for llm, group in groups.items()}


def _names(llms: Sequence[str]) -> dict[str, str]:
    """Each LLM's name: the model, with 8 hex digits of a hash of its decoding if there are
    several.
    """
    models = {llm: str(json.loads(llm)[0]) for llm in llms}
    several = {model for model in models.values() if list(models.values()).count(model) > 1}
    digits = {llm: sha256(llm.encode()).hexdigest()[:8] for llm in llms}
    return {
        llm: f"{model}@{digits[llm]}" if model in several else model
        for llm, model in models.items()
    }


def _numbered(out: Path) -> tuple[Path | None, Path]:
    """The newest of the numbered recordings, and the first free name."""
    newest, free, number = None, out, 1
    while free.exists() and (not free.is_dir() or any(free.iterdir())):
        newest, number = free, number + 1
        free = out.with_name(f"{out.name}-{number}")
    return newest, free


def _cots(recording: Path) -> int:
    return sum(pair["cots"] for pair in open_recording(recording).manifest.pairs.values())
