"""Extract again: read the answers of a recording from its texts once more, as a derived recording.

Thoughts inside texts are split off: the texts of an LLM that has some are written again. What does
not change is linked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from feval import answers
from feval.answers.equality import named_equality
from feval.answers.thoughts import Thoughts, opened_by_template, reply_behind, split, split_columns
from feval.cards import thoughts_of
from feval.errors import AnswerError, UsageError, require_known
from feval.executors import Progress, reports, results
from feval.recording.content import DatasetInfo, PoolRows, ProbeRows, Question
from feval.recording.derived.rewriting import (
    Block,
    blocks,
    carried_notes,
    derived_writer,
    with_questions,
)
from feval.recording.layout.format import PROBES
from feval.recording.reader import Recording, open_recording
from feval.recording.verify import StepCounter, open_sound
from feval.recording.writer import RecordingWriter
from feval.values import Record, frozen

ANSWERS = ("text", "stored")
"""Where raw answers come from: the texts (or the stored answer, where there is no text), or always
the stored ones.
"""

_EXAMPLES = 5
_CARRIED = "Before answers were extracted again: "
"""Marks the notes of the parent, which may be about the old answers."""


@frozen
class AnswerChange:
    """One CoT whose answer changed; `before` and `after` are normal forms, `None` for no answer."""

    question_id: str
    sample_index: int
    before: str | None
    after: str | None
    raw_before: str | None
    raw_after: str | None


@frozen
class GoldChange:
    """One question whose gold has another key than before; `answer` is the gold as the dataset
    writes it.
    """

    question_id: str
    answer: str | None
    before: str | None
    after: str | None


@frozen
class LLMChanges:
    """How the answers of one LLM on one dataset changed, as numbers of CoTs.

    Attributes:
        gained: had no answer and have one now.
        lost: had an answer and have none now.
        changed: have another normal form than before.
        right_before: voted with the gold.
        right_after: vote with the gold.
        probes_changed: probes whose answer has another normal form than before.
        split: whose thoughts were split off their texts, and were not before.
        without_reply: end in their thoughts, and have no answer.
        examples: the first CoTs gained, lost and changed, a few of each.
    """

    llm: str
    cots: int = 0
    gained: int = 0
    lost: int = 0
    changed: int = 0
    without_text: int = 0
    split: int = 0
    without_reply: int = 0
    examples: tuple[AnswerChange, ...] = ()
    right_before: int = 0
    right_after: int = 0
    probes_changed: int = 0


@frozen
class DatasetChanges:
    """How the answers and golds of one dataset changed; `gold_examples` are the first of
    `golds_changed`.
    """

    dataset: str
    answer_kind_before: str
    answer_kind: str
    extractor_before: str
    extractor: str
    golds_changed: int
    gold_examples: tuple[GoldChange, ...]
    llms: tuple[LLMChanges, ...]


@frozen
class Extraction:
    """The result of extracting the answers of a recording again.

    Attributes:
        path: the new recording.
        recording_hash: its hash; equal to the parent's where nothing changed, the extractor's
            version included.
        parent_hash: of the recording it was made from.
        datasets: what changed, for each dataset.
        notes: sentences about what was unusual.
    """

    path: Path
    recording_hash: str
    parent_hash: str
    datasets: tuple[DatasetChanges, ...]
    notes: tuple[str, ...]


@reports("extracting")
def extract(
    recording: str | Path,
    out: str | Path,
    *,
    answer_kind: str | None = None,
    source: str = "text",
    equality: str | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Extraction:
    """Read every answer of a recording again and write a new recording.

    What stays the same is linked, not written again. The keys of golds are made again, too.

    Args:
        recording: the folder to read; it stays as it is.
        out: the folder to make.
        answer_kind: a key of `feval.answers.KINDS`; `None` keeps the kind of each dataset.
        source: one of `ANSWERS`: "text" extracts from the texts; "stored" keeps the raw answers and
            makes their keys anew.
        equality: between normal forms, see `feval.answers.equality.named_equality`; `None` takes
            that of the answer kind.
        progress: called with (pools done, pools in all).
        executor: extracts the answers, see `feval.executors`; its processes read the recording at
            the same path. `None` for this process. The result is the same.

    Raises:
        UnknownNameError: an answer kind or source that does not exist.
        AnswerError: the answer kind cannot be extracted from texts, or math-verify is needed and
            cannot be started.
        UsageError: one answer kind for datasets of different kinds, or an equality that a kind does
            not have.
        RecordingError: the recording cannot be read.
        StorageError: `out` is there already, or cannot be written.
    """
    require_known("place to take answers from", source, ANSWERS)
    parent = open_sound(recording)
    infos = [
        _new_info(parent, dataset, answer_kind, source, equality)
        for dataset in parent.dataset_ids()
    ]
    kinds = {parent.dataset_info(info.id).answer_kind for info in infos}
    if answer_kind is not None and len(kinds) > 1:
        raise UsageError(
            f"{parent.path} holds datasets of the answer kinds {', '.join(sorted(kinds))};"
            f" {answer_kind!r} cannot suit them all. Select one dataset first (`feval select`)."
        )
    steps = StepCounter(
        sum(parent.manifest.datasets[dataset]["questions"] for dataset, _ in parent.manifest.pairs),
        progress,
    )
    operation: Record = {
        "name": "extract",
        "answers": source,
        "extractors": {info.id: info.extractor for info in infos},
    }
    operation |= {} if answer_kind is None else {"answer_kind": answer_kind}
    with derived_writer([parent], out, operation, carried_notes(parent, _CARRIED)) as writer:
        changes = tuple(_dataset(writer, parent, info, source, steps, executor) for info in infos)
        notes = tuple(_notes(parent, changes, source))
        for sentence in notes:
            writer.note(sentence)
    derived = open_recording(out)
    compared = []
    for each in changes:  # what is right is known once equal answers vote together
        before, after = parent.votes(each.dataset), derived.votes(each.dataset)
        llms = [
            replace(llm, right_before=before.right(llm.llm), right_after=after.right(llm.llm))
            for llm in each.llms
        ]
        compared.append(replace(each, llms=tuple(llms)))
    return Extraction(derived.path, derived.hash, parent.hash, tuple(compared), notes)


def _new_info(
    parent: Recording, dataset: str, kind: str | None, source: str, equality: str | None
) -> DatasetInfo:
    info = parent.dataset_info(dataset)
    kind = answers.answer_kind(info.answer_kind if kind is None else kind).name
    if kind == "verbatim" and source == "text":
        raise AnswerError(
            f"{dataset} would have the answer kind 'verbatim', which keeps the answers a source"
            " stored and reads none in a text. Choose another answer kind (`feval ls"
            " answer-kinds`), or keep the stored answers (`--answers stored`)."
        )
    return replace(
        info,
        answer_kind=kind,
        extractor=answers.EXTRACTOR_VERSION,
        equality=named_equality(kind, equality),
    )


def _notes(parent: Recording, datasets: Sequence[DatasetChanges], source: str) -> Iterator[str]:
    for changes in datasets:
        for llm in changes.llms:
            if llm.split:
                ends = (
                    "1 CoT ends in its"
                    if llm.without_reply == 1
                    else f"{llm.without_reply:,} CoTs end in their"
                )
                yield (
                    f"{changes.dataset}: the thoughts of {llm.llm} were split off {llm.split:,} of"
                    f" {llm.cots:,} texts; {ends} thoughts, which is no answer."
                )
        without = sum(llm.without_text for llm in changes.llms)
        if without and source == "text":
            cots = (
                "1 CoT has no text; its" if without == 1 else f"{without} CoTs have no text; their"
            )
            yield f"{changes.dataset}: {cots} raw answers are those of the parent."
        for llm in changes.llms:
            if llm.probes_changed:
                yield (
                    f"{changes.dataset}: {llm.probes_changed:,} probes of {llm.llm} have another"
                    " answer than in the parent."
                )
            if llm.gained + llm.lost + llm.changed and (
                scorers := parent.scorers(changes.dataset, llm.llm)
            ):
                names = ", ".join(scorers)
                yield (
                    f"{changes.dataset}: {names} scored the CoTs of {llm.llm} with the answers of"
                    " the parent."
                )


def _dataset(
    writer: RecordingWriter,
    parent: Recording,
    info: DatasetInfo,
    source: str,
    steps: StepCounter,
    executor: Executor | None,
) -> DatasetChanges:
    before, old, new = parent.dataset_info(info.id), parent.questions(info.id), []
    for question in old:
        gold = question.answer_key if question.answer is None else question.answer
        key = answers.canonical_gold(info.answer_kind, gold, question.choices)
        new.append(replace(question, answer_key=key))
    known = parent.verdicts(info.id) if before.equality == info.equality else None
    writer.add_dataset(info, new, parent=parent, verdicts=known)
    llms = []
    for llm in parent.llm_names(info.id):
        tally = _Tally(llm)
        rewritten, opens = _rewritten(parent, info.id, llm, source, executor)
        reading = _Reading(info.answer_kind, source, len(rewritten) > 1, opens)
        pools = _pools(parent, info.id, llm, new, reading, tally, steps, executor)
        counter = parent.counter(info.id, llm)
        rewritten = (*rewritten, PROBES)
        writer.add_pools(
            info.id, parent.llm_info(llm), counter, pools, parents=[parent], rewritten=rewritten
        )
        if parent.has_probes(info.id, llm):
            cue = parent.probes_record(info.id, llm)["cue"]
            rows = with_questions(new, parent.probe_rows(info.id, llm))
            probes = (_probes(*each, cue, reading, tally) for each in rows)
            writer.add_rows(info.id, llm, cue, probes, parent)
        llms.append(tally.changes())
    golds = [
        GoldChange(was.id, was.answer, was.answer_key, now.answer_key)
        for was, now in zip(old, new, strict=True)
        if was.answer_key != now.answer_key
    ]
    return DatasetChanges(
        info.id,
        before.answer_kind,
        info.answer_kind,
        before.extractor,
        info.extractor,
        len(golds),
        tuple(golds[:_EXAMPLES]),
        tuple(llms),
    )


class _Reading(NamedTuple):
    """How answers are read: as which kind, from where (one of `ANSWERS`), and whether thoughts are
    split off texts before.

    `opens`: the LLM's chat template opens its thoughts, as in `split_columns`.
    """

    kind: str
    source: str
    split: bool
    opens: bool


_Answers = tuple[list[str | None], list[str | None]]
"""The raw answers of one pool, and their normal forms."""


def _pools(
    parent: Recording,
    dataset: str,
    llm: str,
    questions: Sequence[Question],
    reading: _Reading,
    tally: _Tally,
    steps: StepCounter,
    executor: Executor | None,
) -> Iterator[PoolRows]:
    """Yield the pools with the answers as they are read now, in this process or by tasks."""
    thoughts = thoughts_of(llm)
    tasks = ((block, reading) for block in blocks(parent, dataset, llm))
    read = (
        None
        if executor is None
        else chain.from_iterable(results(_answers_of_block, tasks, executor))
    )
    for question, pool in with_questions(questions, parent.pools(dataset, llm)):
        replies, readable = _replies(pool, thoughts, reading)
        raw, keys = next(read) if read else _pool_answers(question, replies, readable, reading)
        changed = replace(replies, raw_answers=raw, answers=keys)
        tally.add(pool, changed, readable if pool.ends is None else [])
        yield changed
        steps.step()


def _answers_of_block(block: Block, reading: _Reading) -> list[_Answers]:
    """Read the answers of a block of questions: a task."""
    thoughts = thoughts_of(block.llm)
    return [
        _pool_answers(question, *_replies(pool, thoughts, reading), reading)
        for question, pool in block.pools()
    ]


def _pool_answers(
    question: Question, pool: PoolRows, readable: list[bool], reading: _Reading
) -> _Answers:
    texts = [
        text if text is None or is_reply else ""
        for text, is_reply in zip(pool.texts, readable, strict=True)
    ]
    return _answers(texts, pool.raw_answers, question.choices, reading)


def _rewritten(
    parent: Recording, dataset: str, llm: str, source: str, executor: Executor | None
) -> tuple[tuple[str, ...], bool]:
    """Return the parts of an LLM to write again, and whether its chat template opens its thoughts.

    The texts are written again if they hold thoughts, or thoughts were split off before.
    """
    channels = parent.channels(dataset, llm)
    if source == "text" and ("steps" not in channels or "turns" in channels):
        tasks = ((block, parent.has_marks(dataset, llm)) for block in blocks(parent, dataset, llm))
        found = list(results(_thoughts_in, tasks, executor))
        if any(holds for holds, _ in found):
            return ("samples", "texts", "reasoning"), any(opens for _, opens in found)
    return ("samples",), False


def _thoughts_in(block: Block, has_marks: bool) -> tuple[bool, bool]:
    """Return whether any text of a block holds thoughts, and whether one closes a thought that it
    does not open: a task.
    """
    thoughts, holds = thoughts_of(block.llm), has_marks
    for texts in (pool.raw_texts() for _, pool in block.pools()) if has_marks else block.texts():
        if any(opened_by_template(text, thoughts) for text in texts):
            return True, True
        holds = holds or any(text is not None and split(text, thoughts).marks for text in texts)
    return holds, False


def _replies(
    pool: PoolRows, thoughts: Thoughts | None, reading: _Reading
) -> tuple[PoolRows, list[bool]]:
    """Return a pool with thoughts split off its raw texts, where they are, and whether each CoT has
    a reply to read.
    """
    if not reading.split:
        return pool, list(pool.ends or [True] * len(pool.texts))
    columns = split_columns(
        pool.raw_texts(), pool.reasoning_apart(), pool.finish_reasons, thoughts, opens=reading.opens
    )
    changed = replace(
        pool,
        texts=columns.texts,
        reasoning=columns.reasoning,
        reasoning_marks=columns.marks,
        finish_reasons=columns.finish_reasons,
    )
    return changed, columns.readable


def _answers(
    texts: Sequence[str | None],
    stored: Sequence[str | None],
    choices: Sequence[tuple[str, str]],
    reading: _Reading,
) -> _Answers:
    """Read texts, of which an empty one has no answer; where there is none, the stored answer."""
    raw = list(stored)
    if reading.source == "text":
        # Equal texts are common where replies are short.
        answer_of = {
            text: answers.extract(reading.kind, text, choices) if text else None
            for text in {*texts}
        }
        raw = [
            own if text is None else answer_of[text] for text, own in zip(texts, raw, strict=True)
        ]
    return raw, answers.normal_forms(reading.kind, raw, choices)


def _probes(
    question: Question, probes: ProbeRows, cue: str | None, reading: _Reading, tally: _Tally
) -> ProbeRows:
    """Return probes with the answers as they are read now: in the cue with the text behind it, else
    in the stored answer.
    """
    replies = [
        text if text is None else reply_behind(cue, text) or ""
        for text in probes.texts or [None] * len(probes.answers)
    ]
    raw, keys = _answers(replies, probes.raw_answers, question.choices, reading)
    tally.counts["probes_changed"] += sum(
        before != after for before, after in zip(probes.answers, keys, strict=True)
    )
    return replace(probes, raw_answers=raw, answers=keys)


class _Tally:
    """Compares pools before and after, one by one."""

    def __init__(self, llm: str) -> None:
        self._llm, self.counts = llm, Counter[str]()
        self._examples: dict[str, list[AnswerChange]] = {"gained": [], "lost": [], "changed": []}

    def add(self, old: PoolRows, new: PoolRows, readable: Sequence[bool]) -> None:
        """Count one pool; `readable` is false for the CoTs without a reply."""
        self.counts.update(
            cots=len(new.answers),
            without_text=old.texts.count(None),
            split=sum(was != now for was, now in zip(old.texts, new.texts, strict=True)),
            without_reply=readable.count(False),
        )
        for sample, (before, after) in enumerate(zip(old.answers, new.answers, strict=True)):
            if before != after:
                what = "gained" if before is None else "lost" if after is None else "changed"
                self.counts[what] += 1
                if len(self._examples[what]) < _EXAMPLES:
                    raw = old.raw_answers[sample], new.raw_answers[sample]
                    self._examples[what].append(
                        AnswerChange(old.question_id, sample, before, after, *raw)
                    )

    def changes(self) -> LLMChanges:
        """The counts."""
        examples = tuple(chain.from_iterable(self._examples.values()))
        return LLMChanges(self._llm, examples=examples, **self.counts)
