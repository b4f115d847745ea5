"""From a journal to a recording: sort, extract answers, count tokens, write in one step, verify.

The journal is read twice: once for where each CoT is, then question by question, with the texts of
one question in memory at a time. Sealing asks nobody for anything; it can be repeated with another
extractor or counter while the journal exists.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import orjson

from feval.answers import canonical_gold, extract, normal_forms
from feval.answers.thoughts import SplitColumns, opened_by_template, reply_behind, split_columns
from feval.cards import UNANSWERED, price_list, thoughts_of
from feval.cards.tokens import SPLIT_USAGE, USAGE, is_usage, token_counter
from feval.recording import (
    DatasetInfo,
    LLMInfo,
    PoolRows,
    ProbeRows,
    Question,
    Recording,
    RecordingWriter,
    verify_recording,
)
from feval.recording.parts import EXTRA_COLUMNS
from feval.report.text import counted
from feval.values import RecordLike, frozen
from recorders.asking.samples import Probing
from recorders.asking.trees import Levels, LiveTurns, Tree, places, reply_of
from recorders.errors import JournalError
from recorders.journal import Journal
from recorders.request import Completion, Decoding, Request

_ENOUGH_REPEATS = 3
_PROVIDERS_COUNTS = ("reasoning_tokens", "cached_tokens")


@frozen
class JournaledLLM:
    """An LLM on a dataset, whose replies are in a journal.

    The counter is "usage", for the provider's token counts, or a name that
    `feval.cards.tokens.token_counter` knows. If any CoT came without usage, `other_counter` counts
    all: counts by different counters do not compare. With a `tree`, the samples are its steps or
    turns.
    """

    journal: Journal
    dataset: DatasetInfo
    questions: Sequence[Question]
    requests: Sequence[Request]
    llm: LLMInfo
    counter: str = USAGE
    other_counter: str = "words"
    tree: Levels | LiveTurns | None = None


def seal(
    replies: Sequence[JournaledLLM],
    out: str | Path,
    *,
    operation: RecordLike,
    prices: str = "none",
    notes: Sequence[str] = (),
    progress: Callable[[int], None] | None = None,
    probing: Probing | None = None,
) -> Path:
    """Make a recording of everything that is committed to the journals of LLMs on one dataset, and
    verify it. The journals stay as they are.

    `prices` is the id of a price list. Probes made as `probing` says are sealed, too.

    Raises:
        JournalError: the recording does not verify.
    """
    first = replies[0]
    dataset, names = first.dataset, [each.llm.name for each in replies]
    listed = prices if prices == "none" else price_list(prices, names)
    golds = [
        replace(q, answer_key=canonical_gold(dataset.answer_kind, q.answer, q.choices))
        for q in first.questions
    ]
    licences = {"questions": dataset.licence}
    with RecordingWriter(
        out, operation=operation, prices=listed, notes=notes, licences=licences
    ) as writer:
        writer.add_dataset(dataset, golds)
        for each in replies:
            sealing = _Sealing(each)
            writer.add_pools(dataset.id, each.llm, sealing.counter, sealing.pools(), progress)
            for note in [*each.journal.notes, *sealing.notes()]:
                writer.note(note)
            if probing is not None:
                probes = sealed_probes(each, probing)
                writer.add_rows(dataset.id, each.llm.name, probing.cue, probes)
    verification = verify_recording(out)
    if not verification.ok:
        raise JournalError(
            f"The recording {out} does not verify after sealing: {verification.problems[0]} The"
            f" journal {first.journal.folder} is kept; remove the recording and seal again."
        )
    return Path(out)


def _column(records: Sequence[RecordLike], name: str) -> list[Any]:
    return [record.get(name) for record in records]


class _Sealing:
    """Makes the pools, question by question, and notes what is unusual."""

    def __init__(self, replies: JournaledLLM) -> None:
        self._replies, self._journal = replies, replies.journal
        self._kind = replies.dataset.answer_kind
        self._thoughts = thoughts_of(replies.llm.name)
        keys, priced, unpriced = set[str](), set[str](), set[str]()
        unpriced_turns = set[str]()  # each is a prompt of its own
        has_turns = is_split = False
        cots = uncounted = 0
        # Whether some CoT closes a thought that it does not open, as in `split_columns`.
        self._opens = False
        for _, _, kind, record in self._journal.entries():
            if kind != "cot":
                continue
            key, is_turn = record["key"], "messages" in record
            keys.add(key)
            has_turns |= is_turn
            self._opens = self._opens or opened_by_template(record["text"], self._thoughts)
            if "refused" not in record:
                cots += 1
                uncounted += "output_tokens" not in record
                is_split |= "tokens_split" in record
                if "prompt_tokens" not in record:
                    (unpriced_turns if is_turn else unpriced).add(key)
                elif not is_turn:
                    priced.add(key)
        # What the provider did not count, in words.
        self._lacking: list[str] = []
        if uncounted:
            self._lacking.append(f"the output of {uncounted} of {counted(cots, 'CoT')}")
        if prompts := len(unpriced - priced | unpriced_turns):
            self._lacking.append(f"the prompts of {prompts} of {counted(len(keys), 'request')}")
        self.counter = replies.counter
        if self.counter == USAGE:
            usage = SPLIT_USAGE if is_split else USAGE
            self.counter = replies.other_counter if self._lacking else usage
        # Where nothing was replied to, turns are CoTs like others.
        is_tree = isinstance(replies.tree, Tree) or has_turns
        self._tree = replies.tree if is_tree else None
        self._count = None if is_usage(self.counter) else token_counter(self.counter)
        self._seen, self._doubts = Counter[str](), Counter[str]()
        self._keys: set[str] = set()

    def pools(self) -> Iterator[PoolRows]:
        """Yield one pool per question, in order."""
        replies = self._replies
        for question, request in zip(replies.questions, replies.requests, strict=True):
            key = request.key()
            records = self._journal.cots(key)
            self._notice(key, records)
            yield self._pool(question, request, records)

    def notes(self) -> list[str]:
        """Return what was unusual, in sentences."""
        seen, requests = self._seen, self._replies.requests
        have = "CoT has" if seen["refused"] == 1 else "CoTs have"
        of = f"of {seen['cots']} CoTs"
        facts = {
            "refused": f"{have} no text because the server refused the request, which counts as no"
            " answer.",
            "length": f"{of} were cut off at the limit on output tokens.",
            "content_filter": f"{of} were stopped by a content filter; they count as no answer.",
            "refusal": f"{of} are refusals of the LLM; they count as no answer.",
            "error": f"{of} ended in an error of the server; they count as no answer.",
            "unknown": f"{of} came without a finish reason.",
            "empty": f"{of} are empty.",
            "without usage": f"{of} came without a count of their tokens.",
        }
        doubtful = f"{of} came with a count of tokens that cannot be, and was not taken"
        numbered = [(seen[name], sentence) for name, sentence in facts.items()]
        numbered += [(n, f"{doubtful}: {doubt}.") for doubt, n in sorted(self._doubts.items())]
        decoding = requests[0].decoding if requests else Decoding()
        if decoding.logprobs is not None:
            lacking = f"{of} came without the log-probabilities that were asked for."
            numbered.append((seen["without logprobs"], lacking))
        sentences = [f"{number} {sentence}" for number, sentence in numbered if number]
        if (
            decoding.temperature != 0
            and seen["repeats"] >= _ENOUGH_REPEATS
            and 2 * seen["equal"] >= seen["several"]
        ):
            requested = "the provider's default temperature"
            if decoding.temperature is not None:
                requested = f"the temperature {decoding.temperature:g}"
            sentences.append(
                f"On {seen['equal']} of {seen['several']} questions all CoTs are equal word for"
                f" word, though {requested} was asked for; the server may ignore the temperature,"
                " or a cache may answer."
            )
        if self._replies.counter == USAGE and not is_usage(self.counter):
            sentences.append(
                f"All tokens were counted by {self.counter!r}, because the provider gave no usable"
                f" count of {' and '.join(self._lacking)}."
            )
        others = {
            "uncounted": "The provider's counts of reasoning and cached tokens were left out, as"
            f" {self.counter!r} counted all tokens.",
            "with thoughts": "Texts that held thoughts, which were split off:"
            f" {seen['with thoughts']}.",
            "without reply": "CoTs that end in their thoughts, without a reply, which is no answer:"
            f" {seen['without reply']}.",
            "shared": "Questions with the same request as an earlier one, whose CoTs they share:"
            f" {seen['shared']}.",
            "repeated ids": "Replies with a response id that an earlier reply to the same question"
            f" had: {seen['repeated ids']}; a cache may have answered.",
        }
        return sentences + [text for name, text in others.items() if seen[name]]

    def _notice(self, key: str, records: Sequence[RecordLike]) -> None:
        seen = self._seen
        if key in self._keys:
            seen["shared"] += 1
            return
        self._keys.add(key)
        answered = [record for record in records if "refused" not in record]
        seen["refused"] += len(records) - len(answered)
        seen["cots"] += len(answered)
        for record in answered:
            seen[record["finish_reason"]] += 1
            seen["empty"] += not (record["text"] or record.get("tool_calls"))
            if "usage_doubt" in record:
                self._doubts[record["usage_doubt"]] += 1
            else:
                seen["without usage"] += "output_tokens" not in record
            seen["without logprobs"] += "token_logprobs" not in record
        if len(answered) > 1:
            seen["several"] += 1
            seen["equal"] += len({record["text"] for record in answered}) == 1
            seen["repeats"] += len(answered) - 1
        ids = [
            r["response_id"]
            for r in records
            if r.get("first_of_reply") and r.get("response_id") is not None
        ]
        seen["repeated ids"] += len(ids) - len(set(ids))

    def _pool(
        self, question: Question, request: Request, records: Sequence[RecordLike]
    ) -> PoolRows:
        parents = ends = messages = prompts = None
        if self._tree is not None:
            records, parents = self._tree.arranged(records)
        column = partial(_column, records)
        if isinstance(self._tree, Tree):
            texts: list[str | None] = [self._tree.text(record) for record in records]
            ends = [ended for *_, ended in places(self._tree, request, records, self._thoughts)]
            columns = SplitColumns(texts, None, None, column("finish_reason"), ends)
        else:
            columns = split_columns(
                column("text"),
                column("reasoning"),
                column("finish_reason"),
                self._thoughts,
                opens=self._opens,
            )
            self._seen["without reply"] += columns.readable.count(False)
        if parents is not None and ends is None:
            ends = [True] * len(records)
            messages = [said and orjson.dumps(said).decode() for said in column("messages")]
            prompts = self._turn_prompts(request, records, parents)
        self._seen["with thoughts"] += sum(bool(marks) for marks in columns.marks or ())
        raw = [
            None
            if reason in UNANSWERED or not readable
            else extract(self._kind, reply or "", question.choices)
            for reply, reason, readable in zip(
                columns.texts, columns.finish_reasons, columns.readable, strict=True
            )
        ]
        # What the provider counted is no part of what another counter counts.
        others = () if self._count is None else _PROVIDERS_COUNTS
        self._seen["uncounted"] += any(record.get(name) for name in others for record in records)
        return PoolRows(
            question.id,
            columns.texts,
            raw,
            normal_forms(self._kind, raw, question.choices),
            self._output_tokens(records),
            columns.finish_reasons,
            request.prompt(),
            self._prompt_tokens(request, records),
            {name: column(name) for name in EXTRA_COLUMNS if name not in others},
            reasoning=columns.reasoning,
            reasoning_marks=columns.marks,
            sequence_logprobs=[
                math.fsum(tokens) if stated is None and tokens is not None else stated
                for stated, tokens in zip(
                    column("sequence_logprob"), column("token_logprobs"), strict=True
                )
            ],
            token_logprobs=column("token_logprobs"),
            token_confidences=column("token_confidences"),
            parents=parents,
            ends=ends,
            messages=messages,
            turn_prompt_tokens=prompts,
        )

    def _output_tokens(self, records: Sequence[RecordLike]) -> list[int]:
        if self._count is None:
            return [record["output_tokens"] for record in records]
        # Thoughts that come apart from the text are sampled and billed like it.
        return [
            self._count(record["text"])
            + self._count(record.get("reasoning") or "")
            + self._count(record.get("tool_calls") or "")
            for record in records
        ]

    def _turn_prompts(
        self, request: Request, records: Sequence[RecordLike], parents: Sequence[int | None]
    ) -> list[int | None]:
        """Return the prompt tokens of each turn, `None` of a first CoT; a turn that was refused was
        not billed.
        """
        if self._count is None:
            return [
                (0 if "refused" in record else record.get("prompt_tokens"))
                if "messages" in record
                else None
                for record in records
            ]
        first = sum(self._count(message.content + message.tools) for message in request.messages)
        prompts, behind = list[int | None](), list[int]()
        for record, parent in zip(records, parents, strict=True):
            said = sum(self._count(message["content"]) for message in record.get("messages", ()))
            sent = said + (first if parent is None else behind[parent])
            prompts.append(sent if "messages" in record else None)
            behind.append(sent + self._count(reply_of(record, self._thoughts)))
        return prompts

    def _prompt_tokens(self, request: Request, records: Sequence[RecordLike]) -> int | None:
        if self._count is not None:
            return sum(self._count(message.content + message.tools) for message in request.messages)
        first = (record for record in records if "messages" not in record)
        stated = (record["prompt_tokens"] for record in first if "prompt_tokens" in record)
        # A request that was refused was not billed.
        return next(stated, 0 if records else None)


def sealed_probes(replies: JournaledLLM, probing: Probing) -> Iterator[ProbeRows]:
    """Yield the probes of every question that a journal has, made in this way and at these
    intervals.
    """
    journal, cue, kind = replies.journal, probing.cue, replies.dataset.answer_kind
    for question, request in zip(replies.questions, replies.requests, strict=True):
        key = request.key()
        found = [
            (row, record)
            for row, sample in enumerate(journal.samples(key))
            for record in journal.probes(probing.key(), key, sample)
            if record["offset"] % probing.every == 0
        ]
        if not found:
            continue
        rows, records = zip(*found, strict=True)
        said = [None if "refused" in each else reply_behind(cue, each["text"]) for each in records]
        raw = [None if reply is None else extract(kind, reply, question.choices) for reply in said]
        sure = [*map(confidence_of, records, raw)]
        tokens = _column(records, "output_tokens")
        yield ProbeRows(
            question.id,
            rows,
            _column(records, "offset"),
            raw,
            normal_forms(kind, raw, question.choices),
            _column(records, "text"),
            tokens if any(count is not None for count in tokens) else None,
            sure if any(confidence is not None for confidence in sure) else None,
        )


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
        told = (probes.texts, probes.output_tokens, probes.confidences)
        columns = (column or unknown for column in told)
        for row, offset, text, tokens, confidence in zip(
            probes.sample_indices, probes.offsets, *columns, strict=True
        ):
            where = probing.key(), key, samples[row]
            if text is not None and offset not in journal.probed(*where):
                reply = Completion(text, "unknown", output_tokens=tokens)
                journal.add_probe(*where, offset, reply, recorded_at="", confidence=confidence)
        journal.commit()


def confidence_of(record: RecordLike, answer: str | None) -> float | None:
    """Return the probability of the tokens that a probe's answer is made of; `None` where they are
    not known.
    """
    if "confidence" in record:
        return float(record["confidence"])
    logprobs, lengths = record.get("token_logprobs"), record.get("token_lengths")
    text = record["text"]
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
