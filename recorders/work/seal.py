"""From a journal to a recording: sort, extract answers, count tokens, write in one step, verify.

The journal is read twice: once for where each CoT is, then question by question, with the texts of one question in memory at a
time. Sealing asks nobody for anything; it can be repeated with another extractor or counter while the journal exists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from feval.answers import canonical_gold, extract, normal_forms
from feval.answers.thoughts import SplitColumns, Thoughts, split_columns
from feval.cards.cards import thoughts_of
from feval.cards.finish_reasons import UNANSWERED
from feval.cards.tokens import SPLIT_USAGE, USAGE, is_usage, token_counter
from feval.recording import DatasetInfo, LLMInfo, PoolRows, Question, RecordingWriter, verify_recording
from feval.recording.content import OPTIONAL_COLUMNS
from feval.report.text import counted
from recorders.asking.checks import ReplyChecks
from recorders.asking.probing import Probing
from recorders.asking.trees import Levels, Place, Tree
from recorders.asking.turns import Turns
from recorders.errors import JournalError
from recorders.journal.journal import Journal
from recorders.journal.places import Places
from recorders.request import Completion, Decoding, Request
from recorders.work.probe_rows import sealed_probes

_COMPLETION_FIELDS = tuple(field.name for field in fields(Completion))


def seal(
    journal: Journal,
    out: str | Path,
    *,
    dataset: DatasetInfo,
    questions: Sequence[Question],
    requests: Sequence[Request],
    llm: LLMInfo,
    operation: Mapping[str, Any],
    prices: str = "none",
    counter: str = "usage",
    other_counter: str = "words",
    notes: Sequence[str] = (),
    progress: Callable[[int], None] | None = None,
    probing: Probing | None = None,
    tree: Levels | None = None,
) -> Path:
    """Make a recording of everything that is committed to a journal, and verify it. The journal stays as it is.

    The counter is "usage", for the provider's token counts, or a name that `feval.cards.tokens.token_counter` knows. If any CoT
    came without usage, `other_counter` counts all: counts by different counters do not compare. Probes made as `probing` says
    are sealed, too; with a `tree`, the samples are its steps or turns.
    """
    contents = _Contents(journal)
    used = contents.counter(other_counter) if counter == USAGE else counter
    decoding = requests[0].decoding if requests else Decoding()
    sealing = _Sealing(journal, contents, dataset.answer_kind, decoding, used, thoughts_of(llm.name), tree)
    golds = [replace(q, answer_key=canonical_gold(dataset.answer_kind, q.answer, q.choices)) for q in questions]
    licences = {"questions": dataset.licence}
    with RecordingWriter(out, operation=operation, prices=prices, notes=notes, licences=licences) as writer:
        writer.add_dataset(dataset, golds)
        writer.add_pools(dataset.id, llm, used, sealing.pools(golds, requests), progress)
        if probing is not None:
            probes = sealed_probes(journal, probing, dataset.answer_kind, golds, requests)
            writer.add_probes(dataset.id, llm.name, probes, cue=probing.cue)
        for note in [*journal.notes, *sealing.notes(counter)]:
            writer.note(note)
    verification = verify_recording(out)
    if not verification.ok:
        raise JournalError(
            f"The recording {out} does not verify after sealing: {verification.problems[0]} The journal {journal.folder} is "
            "kept; remove the recording and seal again."
        )
    return Path(out)


def _sequence_logprob(record: Mapping[str, Any]) -> float | None:
    stated, tokens = record.get("sequence_logprob"), record.get("token_logprobs")
    return stated if stated is not None or tokens is None else math.fsum(tokens)


class _Contents:
    """Where each CoT of a journal is, whether all were counted by the provider, and whether some by shares."""

    def __init__(self, journal: Journal) -> None:
        self._places = Places()
        priced: set[int] = set()
        unpriced: set[int] = set()
        unpriced_turns: set[int] = set()  # each is a prompt of its own
        self._uncounted, self._cots, self.split = 0, 0, False
        for entry in journal.entries():
            if entry.kind != "cot":
                continue
            record = entry.record
            number = self._places.add(record["key"], record["sample"], entry.offset)
            if "refused" not in record:
                self._cots += 1
                self._uncounted += record.get("output_tokens") is None
                self.split |= bool(record.get("tokens_split"))
                if record.get("prompt_tokens") is None:
                    (unpriced_turns if "messages" in record else unpriced).add(number)
                elif "messages" not in record:
                    priced.add(number)
        self._unpriced = len(unpriced - priced | unpriced_turns)
        self.offsets = self._places.offsets

    def counter(self, other: str) -> str:
        """Return the name of the provider's counter; `other` if its counts are not complete."""
        if self._uncounted or self._unpriced:
            return other
        return SPLIT_USAGE if self.split else USAGE

    def why_not_usage(self) -> str:
        """Return what the provider did not count, in words."""
        prompts = f"the prompts of {self._unpriced} of {counted(len(self._places.numbers), 'request')}"
        cots = f"the output of {self._uncounted} of {counted(self._cots, 'CoT')}"
        return " and ".join([*[cots] * bool(self._uncounted), *[prompts] * bool(self._unpriced)])


def _column(records: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    return [record.get(name) for record in records]


class _Sealing:
    """Makes the pools, question by question, and notes what is unusual."""

    def __init__(
        self,
        journal: Journal,
        contents: _Contents,
        kind: str,
        decoding: Decoding,
        counter: str,
        thoughts: Thoughts | None,
        tree: Levels | None,
    ) -> None:
        self._thoughts, self._tree = thoughts, tree
        self._journal, self._contents, self._kind, self._counter = journal, contents, kind, counter
        self._count = None if is_usage(counter) else token_counter(counter)
        self._checks = ReplyChecks(decoding)
        self._repeated_ids = self._shared = self._with_thoughts = self._without_reply = 0
        self._keys: set[str] = set()

    def pools(self, questions: Sequence[Question], requests: Sequence[Request]) -> Iterator[PoolRows]:
        """Yield one pool per question, in order."""
        for question, request in zip(questions, requests, strict=True):
            key = request.key()
            records = self._journal.read_many(self._contents.offsets(key))
            self._notice(key, records)
            yield self._pool(question, request, records)

    def notes(self, counter: str) -> list[str]:
        """Return what was unusual, in sentences."""
        sentences = self._checks.notes()
        if counter == USAGE and not is_usage(self._counter):
            sentences.append(
                f"All tokens were counted by {self._counter!r}, because the provider gave no usable count of "
                f"{self._contents.why_not_usage()}."
            )
        if self._with_thoughts:
            sentences.append(f"Texts that held thoughts, which were split off: {self._with_thoughts}.")
        if self._without_reply:
            sentences.append(
                f"CoTs that end in their thoughts, without a reply, which is no answer: {self._without_reply}."
            )
        if self._shared:
            sentences.append(
                f"Questions with the same request as an earlier one, whose CoTs they share: {self._shared}."
            )
        if self._repeated_ids:
            sentences.append(
                "Replies with a response id that an earlier reply to the same question had: "
                f"{self._repeated_ids}; a cache may have answered."
            )
        return sentences

    def _notice(self, key: str, records: Sequence[Mapping[str, Any]]) -> None:
        if key in self._keys:
            self._shared += 1
            return
        self._keys.add(key)
        for record in records:
            completion = Completion(**{name: record[name] for name in _COMPLETION_FIELDS if name in record})
            self._checks.see(key, completion, refused="refused" in record)
        ids = [r["response_id"] for r in records if r.get("first_of_reply") and r.get("response_id") is not None]
        self._repeated_ids += len(ids) - len(set(ids))

    def _pool(self, question: Question, request: Request, records: Sequence[Mapping[str, Any]]) -> PoolRows:
        column = partial(_column, records)
        parents = ends = messages = prompts = None
        steps = [*self._tree.places(request, records, self._thoughts)] if self._tree is not None else []
        if self._tree is not None:
            rows = {record["sample"]: row for row, record in enumerate(records)}
            parents = [rows.get(self._tree.parent(sample)) for sample in rows]
        if isinstance(self._tree, Tree):
            texts: list[str | None] = [self._tree.text(record) for record in records]
            ends = [ended for *_, ended in steps]
            columns = SplitColumns(texts, None, None, column("finish_reason"), ends)
        else:
            columns = split_columns(column("text"), column("reasoning"), column("finish_reason"), self._thoughts)
            self._without_reply += columns.readable.count(False)
        if isinstance(self._tree, Turns):
            ends = [True] * len(records)
            messages = [said and orjson.dumps(said).decode() for said in column("messages")]
            prompts = [self._turn_prompt(request, record, place) for record, place, _ in steps]
        self._with_thoughts += sum(bool(marks) for marks in columns.marks or ())
        raw = self._raw_answers(question, columns)
        return PoolRows(
            question.id,
            columns.texts,
            raw,
            normal_forms(self._kind, raw, question.choices),
            self._output_tokens(records),
            columns.finish_reasons,
            request.prompt(),
            self._prompt_tokens(request, records),
            {name: column(name) for name in OPTIONAL_COLUMNS},
            reasoning=columns.reasoning,
            reasoning_marks=columns.marks,
            sequence_logprobs=[_sequence_logprob(record) for record in records],
            token_logprobs=column("token_logprobs"),
            token_confidences=column("token_confidences"),
            parents=parents,
            ends=ends,
            messages=messages,
            turn_prompt_tokens=prompts,
        )

    def _raw_answers(self, question: Question, columns: SplitColumns) -> list[str | None]:
        return [
            None if reason in UNANSWERED or not readable else extract(self._kind, reply or "", question.choices)
            for reply, reason, readable in zip(columns.texts, columns.finish_reasons, columns.readable, strict=True)
        ]

    def _output_tokens(self, records: Sequence[Mapping[str, Any]]) -> list[int]:
        if self._count is None:
            return [record["output_tokens"] for record in records]
        # Thoughts that come apart from the text are sampled and billed like it.
        return [self._count(record["text"]) + self._count(record.get("reasoning") or "") for record in records]

    def _turn_prompt(self, request: Request, record: Mapping[str, Any], place: Place) -> int | None:
        """Return the prompt tokens of a turn, `None` of a first CoT; a turn that was refused was not billed."""
        if "messages" not in record:
            return None
        if self._count is None:
            return 0 if "refused" in record else record.get("prompt_tokens")
        return sum(self._count(message.content) for message in (*request.messages, *place.conversation[:-1]))

    def _prompt_tokens(self, request: Request, records: Sequence[Mapping[str, Any]]) -> int | None:
        if self._count is not None:
            return sum(self._count(message.content) for message in request.messages)
        first = (record for record in records if "messages" not in record)
        stated = (record["prompt_tokens"] for record in first if record.get("prompt_tokens") is not None)
        # A request that was refused was not billed.
        return next(stated, 0 if records else None)
