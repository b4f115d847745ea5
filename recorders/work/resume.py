"""Starting from a sealed recording: whether it is already complete, and its CoTs as the start of a
journal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from feval.cards.tokens import SPLIT_USAGE, is_usage
from feval.errors import ConflictError, NotARecordingError, StorageError
from feval.recording import LLMInfo, PoolRows, Question, Recording, open_recording
from feval.recording.layout.locate import recording_around
from feval.recording.verify import open_sound
from recorders.asking.probing import Probing
from recorders.journal.journal import Journal, difference
from recorders.request import Completion, Request
from recorders.work.probe_rows import start_probes

_POOLS_PER_COMMIT = 256


def is_sealed(
    out: Path,
    identity: Mapping[str, Any],
    questions: Sequence[Question],
    samples: int,
    mode: str,
    probing: Probing | None = None,
) -> bool:
    """Return whether a folder is the wanted recording, sealed before.

    A `StorageError` says if something else is there, if it holds less than is wanted or is to be
    recorded again (mode "all"), or if it would be inside another recording.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        holder = recording_around(out.absolute().parent)
        if holder is not None:
            raise StorageError(
                f"{out} would be inside the recording {holder}, which never changes. Name another"
                " folder."
            )
        return False
    try:
        recording = open_recording(out)
    except NotARecordingError as error:
        raise StorageError(
            f"{out} exists already and is not a recording; name another folder."
        ) from error
    differs = _difference(recording, identity)
    if differs is not None:
        raise StorageError(
            f"{out} exists already and is another recording: its {differs}. A recording is never"
            " overwritten; name another folder."
        )
    _require_enough(recording, out, identity, questions, samples, probing)
    if mode == "all":
        raise StorageError(
            f"{out} is sealed, and the mode 'all' records everything again. A sealed recording is"
            " never changed: name another folder."
        )
    return True


def start_from(
    start: str | Path,
    journal: Journal,
    llm: LLMInfo,
    dataset: str,
    requests: Sequence[Request],
    probing: Probing | None = None,
) -> None:
    """Put the CoTs and probes of a sealed recording into a journal, so that only what is missing is
    asked for.

    CoTs that are already in the journal are left alone. What a recording does not keep is lost:
    prompt tokens are counted once per run of CoTs with the same second and response id, and a
    refused request is an empty CoT like any other.
    """
    recording = open_sound(Path(start))
    recording.require(dataset, llm.name)
    if differs := _other_llm(recording.llm_info(llm.name), llm):
        raise ConflictError(
            f"{start} cannot be continued: {differs}. Ask in the same way, or start without it."
        )
    by_question = {request.question_id: request for request in requests}
    counter = recording.counter(dataset, llm.name)
    for number, pool in enumerate(recording.pools(dataset, llm.name), 1):
        request = by_question.get(pool.question_id)
        if request is None or not pool.texts:
            continue
        if pool.prompt != request.prompt():
            raise ConflictError(
                f"{start} cannot be continued: it asked the question {pool.question_id!r} with"
                " other messages. Give the same questions and prompt, or start without it."
            )
        _add(journal, request, pool, counter)
        if number % _POOLS_PER_COMMIT == 0:
            journal.commit()
    journal.commit()
    if probing is not None:
        start_probes(recording, journal, probing, (dataset, llm.name), by_question)
    journal.note(f"It begins with the CoTs of the recording {recording.hash}.")
    journal.commit()


def _other_llm(recorded: LLMInfo, asked: LLMInfo) -> str | None:
    """Return how two descriptions of one LLM differ, in words; `None` where they agree."""
    pairs = [
        (name, getattr(recorded, name), getattr(asked, name))
        for name in ("temperature", "max_tokens")
    ]
    first, second = (json.loads(json.dumps(dict(one.decoding))) for one in (recorded, asked))
    pairs += [
        (name, first.get(name), second.get(name)) for name in dict.fromkeys([*first, *second])
    ]
    for name, its, mine in pairs:
        if its != mine:
            return f"its {name} is {its!r:.80}, and {mine!r:.80} is asked for"
    return None


def _difference(recording: Recording, identity: Mapping[str, Any]) -> str | None:
    """Return where a recording's own description differs from an identity; `None` if nowhere."""
    operation = recording.manifest.raw["operation"]
    if operation.get("name") != "record":
        return f"operation is {operation.get('name')!r}, not 'record'"
    return difference({name: operation.get(name) for name in identity}, identity)


def _require_enough(
    recording: Recording,
    out: Path,
    identity: Mapping[str, Any],
    questions: Sequence[Question],
    samples: int,
    probing: Probing | None,
) -> None:
    more = (
        "A sealed recording is never changed: record into another folder that begins with its"
        f" CoTs, --out NEW --from {out}, and only what is missing is asked for."
    )
    recorded = {question.id: question for question in recording.questions(identity["dataset"])}
    lacking = [question.id for question in questions if question.id not in recorded]
    if lacking:
        raise StorageError(
            f"{out} is sealed with {len(recorded)} questions, and {len(lacking)} others were asked"
            f" for, such as {lacking[0]!r:.80}. {more}"
        )
    for question in questions:
        known = recorded[question.id]
        if (known.text, known.answer, known.choices) != (
            question.text,
            question.answer,
            question.choices,
        ):
            raise StorageError(
                f"{out} exists already and is another recording: its question {question.id!r:.80}"
                " has another text, gold or options. A recording is never overwritten; name"
                " another folder."
            )
    smallest = min(
        (pair.get("smallest_pool", 0) for pair in recording.manifest.pairs.values()), default=0
    )
    if smallest < samples:
        raise StorageError(
            f"{out} is sealed with {smallest} CoTs per question, and {samples} were asked for."
            f" {more}"
        )
    stated = recording.manifest.raw["operation"].get("probes")
    if probing is not None and stated != probing.content():
        found = (
            "without probes" if stated is None else f"with probes made in another way ({stated})"
        )
        raise StorageError(
            f"{out} is sealed {found}, and probes every {probing.every} tokens were asked for."
            f" {more}"
        )


def _add(journal: Journal, request: Request, pool: PoolRows, counter: str) -> None:
    """Add one pool as the replies it came in, as far as that can be told."""
    key = request.key()
    records = [
        (sample, record)
        for sample, record in _records(request, pool)
        if not journal.has(key, sample)
    ]
    for _, reply in groupby(
        records, lambda each: (each[1].get("recorded_at"), each[1].get("response_id"))
    ):
        samples, columns = zip(*reply, strict=True)
        completions = [
            _completion(
                record, pool.prompt_tokens if is_usage(counter) and place == 0 else None, counter
            )
            for place, record in enumerate(columns)
        ]
        seeds = [record.get("seed") for record in columns]
        recorded_at = columns[0].get("recorded_at") or ""
        journal.add(request, key, samples, completions, recorded_at=recorded_at, seeds=seeds)


def _records(request: Request, pool: PoolRows) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (sample index, fields) of each CoT. Pools are numbered without gaps; seeds, if any,
    tell the index.
    """
    columns: dict[str, Sequence[Any] | None] = {
        "text": pool.raw_texts(),
        "finish_reason": pool.finish_reasons,
        "output_tokens": pool.output_tokens,
        "reasoning": pool.reasoning_apart(),
        "token_logprobs": pool.token_logprobs,
        "token_confidences": pool.token_confidences,
        "sequence_logprob": pool.sequence_logprobs,
        **pool.extra,
    }
    base = request.decoding.seed
    for row in range(len(pool.texts)):
        record = {name: values[row] for name, values in columns.items() if values is not None}
        seed = record.get("seed")
        yield (row if base is None or seed is None else seed - base), record


def _completion(record: Mapping[str, Any], prompt_tokens: int | None, counter: str) -> Completion:
    names = (
        "reasoning_tokens",
        "cached_tokens",
        "response_id",
        "served_model",
        "system_fingerprint",
        "duration_s",
    )
    return Completion(
        record["text"] or "",
        record["finish_reason"],
        reasoning=record.get("reasoning"),
        output_tokens=record["output_tokens"] if is_usage(counter) else None,
        prompt_tokens=prompt_tokens,
        token_logprobs=record.get("token_logprobs"),
        token_confidences=record.get("token_confidences"),
        sequence_logprob=record.get("sequence_logprob"),
        tokens_split=counter == SPLIT_USAGE or None,
        **{name: record.get(name) for name in names},
    )
