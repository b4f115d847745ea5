"""Probes from a journal to a recording and back: their answers and confidences are read when they
are sealed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from feval.answers import extract, normal_forms
from feval.answers.thoughts import reply_behind
from feval.recording import Question, Recording
from feval.recording.content import ProbeRows
from recorders.asking.probing import Probing
from recorders.journal.journal import Journal
from recorders.journal.places import Places
from recorders.request import Completion, Request


def sealed_probes(
    journal: Journal,
    probing: Probing,
    kind: str,
    questions: Sequence[Question],
    requests: Sequence[Request],
) -> Iterator[ProbeRows]:
    """Yield the probes of every question that a journal has, made in this way and at these
    intervals.
    """
    way, places = probing.key(), Places()
    for entry in journal.entries():
        record = entry.record
        if (
            entry.kind == "probe"
            and record["probing"] == way
            and record["offset"] % probing.every == 0
        ):
            places.add((record["key"], record["sample"]), record["offset"], entry.offset)
    for question, request in zip(questions, requests, strict=True):
        key = request.key()
        found = [
            (row, record)
            for row, sample in enumerate(journal.samples(key))
            for record in journal.read_many(places.offsets((key, sample)))
        ]
        if found:
            rows, records = zip(*found, strict=True)
            yield _rows(question, probing.cue, kind, rows, records)


def start_probes(
    recording: Recording,
    journal: Journal,
    probing: Probing,
    llm: tuple[str, str],
    by_question: Mapping[str, Request],
) -> None:
    """Put the probes of a sealed recording of an LLM into a journal, where they were made with the
    same cue.
    """
    if not recording.has_probes(*llm) or recording.probes_record(*llm)["cue"] != probing.cue:
        return
    for probes in recording.probe_rows(*llm):
        request = by_question.get(probes.question_id)
        if request is None:
            continue
        key, unknown = request.key(), [None] * len(probes.offsets)
        samples = journal.samples(key)
        columns = (
            probes.texts or unknown,
            probes.output_tokens or unknown,
            probes.confidences or unknown,
        )
        for row, offset, text, tokens, confidence in zip(
            probes.sample_indices, probes.offsets, *columns, strict=True
        ):
            where = probing.key(), key, samples[row]
            if text is not None and offset not in journal.probed(*where):
                reply = Completion(text, "unknown", output_tokens=tokens)
                journal.add_probe(*where, offset, reply, recorded_at="", confidence=confidence)
        journal.commit()


def _rows(
    question: Question,
    cue: str,
    kind: str,
    rows: Sequence[int],
    records: Sequence[Mapping[str, Any]],
) -> ProbeRows:
    replies = [
        None if "refused" in record else reply_behind(cue, record["text"]) for record in records
    ]
    raw = [None if reply is None else extract(kind, reply, question.choices) for reply in replies]
    confidences = [
        confidence_of(record, answer) for record, answer in zip(records, raw, strict=True)
    ]
    tokens = [record.get("output_tokens") for record in records]
    return ProbeRows(
        question.id,
        rows,
        [record["offset"] for record in records],
        raw,
        normal_forms(kind, raw, question.choices),
        [record["text"] for record in records],
        tokens if any(count is not None for count in tokens) else None,
        confidences if any(confidence is not None for confidence in confidences) else None,
    )


def confidence_of(record: Mapping[str, Any], answer: str | None) -> float | None:
    """Return the probability of the tokens that a probe's answer is made of; `None` where they are
    not known.
    """
    if "confidence" in record:
        return float(record["confidence"])
    logprobs, lengths, text = (
        record.get("token_logprobs"),
        record.get("token_lengths"),
        record["text"],
    )
    start = -1 if answer is None else text.find(answer)
    if logprobs is None or lengths is None or answer is None or start < 0:
        return None
    spans = pairwise(accumulate(lengths, initial=0))
    inside = [
        value
        for value, (first, end) in zip(logprobs, spans, strict=False)
        if first < start + len(answer) and end > start
    ]
    return math.exp(math.fsum(inside)) if inside else None
