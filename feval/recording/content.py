"""The contents of a recording as plain values: questions, LLMs, pools, scores."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import KW_ONLY, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from feval import answers
from feval.cards.names import base_of
from feval.cards.tokens import Usage
from feval.errors import UsageError
from feval.recording.layout.flat import Integers, Rows, Strings, UInt8, UInt32, UInt64, offsets_of
from feval.recording.layout.format import Record, name_key
from feval.values import Pairs, RecordLike, frozen, inside

if TYPE_CHECKING:
    from feval.answers.thoughts import Mark

CAUTION = "Caution: "
"""Begins a note of a recording that every result repeats."""

MOST_SERVED = 100
"""Names of models that answered as one LLM, which the manifest counts."""


@frozen
class Question:
    """One entry of a dataset.

    Attributes:
        id: unique within the dataset.
        text: the question as the LLM was asked it, without the options.
        answer: the gold answer as the source writes it; `None` where there is none.
        answer_key: normal form of the gold answer; `None` where there is no gold, or none that the
            answer kind can read.
        choices: (label, text) of each option; empty where there are none.
        features: (name, value) of what else is known of it, such as its subject.
    """

    id: str
    text: str
    answer: str | None = None
    answer_key: str | None = None
    choices: Pairs = ()
    features: Pairs = ()


@frozen
class DatasetInfo:
    """A dataset as a recording describes it.

    Attributes:
        id: such as "gsm8k".
        title: for people.
        answer_kind: how answers were made canonical, a key of `feval.answers.KINDS`.
        extractor: version of the extraction that made the answers.
        system_prompt: as sent to the LLMs; `None` where none was, or it is not known.
        licence: of the questions.
        equality: which answers of different normal form are equal, see `feval.answers.equality`.
    """

    id: str
    title: str
    answer_kind: str
    extractor: str
    system_prompt: str | None = None
    licence: str | None = None
    equality: str = answers.NORMAL_FORM


@frozen
class LLMInfo:
    """An LLM: a model under one prompt and decoding.

    Attributes:
        name: the variant's full name, such as "gpt-3.5-turbo@t=0.8"; what stands before "@" is the
            base name.
        temperature: `None` where the source does not say.
        max_tokens: limit on output tokens; `None` where the source does not say.
        decoding: every other decoding parameter (JSON values).
    """

    name: str
    temperature: float | None = None
    max_tokens: int | None = None
    decoding: RecordLike = field(default_factory=dict)

    @property
    def base(self) -> str:
        """The name without the variant: it finds card and price."""
        return base_of(self.name)


@frozen
class PoolColumns:
    """What CoTs may have besides text and answer; `PoolRows` says what each is."""

    _: KW_ONLY
    reasoning: Sequence[str | None] | None = None
    sequence_logprobs: Sequence[float | None] | None = None
    token_logprobs: Sequence[Sequence[float] | None] | None = None
    token_confidences: Sequence[Sequence[float] | None] | None = None
    parents: Sequence[int | None] | None = None
    ends: Sequence[bool] | None = None
    messages: Sequence[str | None] | None = None
    turn_prompt_tokens: Sequence[int | None] | None = None


@frozen
class PoolRows(PoolColumns):
    """The recorded CoTs of one LLM on one question, as columns of equal length, in recorded order.

    Attributes:
        question_id: which question.
        texts: the replies, without the thoughts before them; `None` where the source kept no text.
        raw_answers: as extracted; `None` for no answer.
        answers: normal forms, which vote together where they are equal; `None` for no answer.
        output_tokens: of each CoT, by the recording's token counter.
        finish_reasons: words of `feval.cards.names.FINISH_REASONS`.
        prompt: the request, as a JSON array of messages; `None` where it is not known.
        prompt_tokens: of the request; `None` where it is not known.
        extra: optional columns, names and types in `feval.recording.parts.EXTRA_COLUMNS`.
        reasoning: the thoughts, given by the API in a separate field or split off the text; `None`
            for a CoT, or all, without any.
        reasoning_marks: where the split-off thoughts were in the raw text, which `raw_texts`
            restores; `None` for a CoT, or all, without any.
        sequence_logprobs: natural logarithm of the probability of each CoT; `None` as for
            `reasoning`.
        token_logprobs: the same of each sampled token, in order, kept as 32-bit floats; `None` as
            for `reasoning`.
        token_confidences: minus the mean log-probability of the top k at each token (DeepConf),
            kept as 32-bit floats; `None` as for `reasoning`.
        parents: where the rows are the steps of a tree and no whole CoTs, the place of the step
            before each, `None` for a first step. Steps come behind their parents and in the order
            of these, so that the children of a step follow each other.
        ends: whether each step ends a solution; only such steps have answers. `None` where the rows
            are whole CoTs.
        messages: where steps are turns, the messages that were sent behind the whole conversation
            up to the step before, as a JSON array; `None` for a step that is no turn. A turn goes
            on from a step that ends a solution, and ends one itself.
        turn_prompt_tokens: of each turn, the tokens of all that was sent; known wherever those of
            the request are.
    """

    question_id: str
    texts: Sequence[str | None]
    raw_answers: Sequence[str | None]
    answers: Sequence[str | None]
    output_tokens: Sequence[int]
    finish_reasons: Sequence[str]
    prompt: str | None = None
    prompt_tokens: int | None = None
    extra: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    reasoning_marks: Sequence[Sequence[Mark] | None] | None = None

    def counts_problem(self) -> str | None:
        """Which token counts cannot be; `None` where nothing is wrong."""
        nobody = [None] * len(self.output_tokens)
        # What was sent for a step goes beyond the request.
        prompt = self.prompt_tokens if self.parents is None else None
        counts = (
            self.output_tokens,
            *(self.extra.get(name) or nobody for name in ("reasoning_tokens", "cached_tokens")),
        )
        return next(
            (
                problem
                for each in zip(*counts, strict=True)
                if (problem := Usage(prompt, *each).problem)
            ),
            None,
        )

    def tree_problem(self) -> str | None:
        """What is wrong with the tree that its steps make; `None` where nothing is, or the rows are
        whole CoTs.
        """
        if self.parents is None or self.ends is None:
            return (
                None
                if self.parents is self.ends
                else "steps have both a parent and a word on whether they end"
            )
        try:
            checked_messages(self.messages or ())
        except ValueError as error:
            return str(error)
        before, ends, ended = -1, self.ends, sum(self.ends)
        nothing = [None] * len(ends)
        messages, prompts = self.messages or nothing, self.turn_prompt_tokens or nothing
        for step, parent in enumerate(self.parents):
            place = -1 if parent is None else parent
            if not before <= place < step or (parent is not None and parent < 0):
                return (
                    f"step {step} has the parent {parent!r}; steps come behind their parents, and"
                    " in the order of these"
                )
            before, tokens = place, prompts[step]
            if messages[step] is None:
                if parent is not None and ends[parent]:
                    return f"step {step} goes on from step {parent}, which ends a solution"
            elif parent is None or ended < len(ends):
                return (
                    f"turn {step} has the parent {parent!r} in a tree that ends {ended} times; a"
                    " turn replies to a whole CoT"
                )
            elif (tokens is None and self.prompt_tokens is not None) or not (
                0 <= (tokens or 0) < 2**31
            ):
                return (
                    f"turn {step} has {tokens!r} prompt tokens; those of turns are known where"
                    " those of the request are"
                )
        for step, pair in enumerate(zip(self.raw_answers, self.answers, strict=True)):
            if not ends[step] and pair != (None, None):
                return f"step {step} has the answer {pair[0]!r:.60}, and does not end a solution"
        return None

    def marks_fit(self) -> bool:
        """Whether the marks are consistent with texts and reasoning."""
        if self.reasoning_marks is None:
            return True

        reasoning = self.reasoning or [None] * len(self.texts)
        marks = (each or () for each in self.reasoning_marks)
        return all(map(answers.thoughts.fit, self.texts, reasoning, marks))

    def reasoning_apart(self) -> list[str | None] | None:
        """The thoughts that the API gave in a separate field, without those that were split off the
        text.
        """
        if self.reasoning is None:
            return None
        marks = self.reasoning_marks or [None] * len(self.reasoning)
        return [
            answers.thoughts.apart(thoughts, own) if own and thoughts is not None else thoughts
            for thoughts, own in zip(self.reasoning, marks, strict=True)
        ]

    def raw_texts(self) -> list[str | None]:
        """The texts as the LLM wrote them, with inline thoughts and their marks."""
        if self.reasoning_marks is None:
            return list(self.texts)

        reasoning = self.reasoning or [None] * len(self.texts)
        columns = zip(self.texts, reasoning, self.reasoning_marks, strict=True)
        return [
            answers.thoughts.join(text, thoughts, marks) if marks and text is not None else text
            for text, thoughts, marks in columns
        ]


_CALL = ("name", "arguments")


def calls_as_json(made: object) -> str:
    """Return calls of tools as they are recorded: a JSON array of objects with id (which may be
    empty), name and arguments. `ValueError` if a call, of OpenAI's shape or of this one, lacks one
    of the latter.
    """
    calls = []
    for call in made if isinstance(made, list) else [None]:
        whole = call if isinstance(call, dict) else {}
        own = whole.get("function", whole)
        texts = {name: inside(own, name) for name in _CALL}
        texts = {"id": whole.get("id") or ""} | texts
        if not all(isinstance(each, str) for each in texts.values()):
            raise ValueError("a call has a name and arguments, both as text")
        calls.append(texts)
    return json.dumps(calls, ensure_ascii=False)


def sent_calls(recorded: str) -> list[Record]:
    """Return recorded calls of tools as OpenAI's messages have them."""
    calls: list[Record] = json.loads(recorded)
    return [{"id": own.pop("id"), "type": "function", "function": own} for own in calls]


class PairTally:
    """Counts the CoTs of one LLM on one dataset; `sizes` has the CoTs of each question."""

    def __init__(self, questions: Sized) -> None:
        self.sizes = np.zeros(len(questions), np.uint32)
        self._served, self._counts = Counter[str](), Counter[str]()

    def add(self, row: int, pool: PoolRows) -> None:
        """Count the pool of a question, by its row."""
        self.sizes[row] = len(pool.answers)
        marks = pool.reasoning_marks or [None] * len(pool.answers)
        unclosed = [any(not mark.closing for mark in own or ()) for own in marks]
        unanswered = [
            (text, is_open)
            for text, answer, is_open in zip(pool.texts, pool.answers, unclosed, strict=True)
            if answer is None
        ]
        self._counts.update(
            no_answer=len(unanswered),
            unclosed_thoughts=sum(unclosed),
            empty_replies=sum(
                text is not None and not text.strip() and not is_open
                for text, is_open in unanswered
            ),
            turns=sum(sent is not None for sent in pool.messages or ()),
        )
        self._served.update(name for name in pool.extra.get("served_model", ()) if name is not None)
        if pool.parents:
            depths: list[int] = []
            for parent in pool.parents:
                depths.append(1 if parent is None else depths[parent] + 1)
            most = {"depth": depths, "branching": Counter(pool.parents).values()}
            for name, counts in most.items():
                self._counts[name] = max(self._counts[name], *counts)

    def record(self) -> Record:
        """Return the counts as the manifest states them; of models that answered, those with the
        most CoTs.
        """
        served = dict(self._served.most_common(MOST_SERVED))
        optional: Record = {**self._counts, "served": served}
        return {
            **counts_of_sizes(self.sizes),
            "no_answer": 0,
            **{name: count for name, count in optional.items() if count},
        }


def counts_of_sizes(sizes: UInt32) -> Record:
    """Return what the manifest states of the sizes of pools."""
    return {
        "cots": int(sizes.sum()),
        "smallest_pool": int(sizes.min()) if len(sizes) else 0,
        "largest_pool": int(sizes.max(initial=0)),
    }


VERDICT = "verdict"
"""The kind of a scorer that says how right CoTs are: a grader."""


@frozen
class ScorerInfo:
    """A scorer: a model under one prompt, or a function; or a grader, who saw what methods may not.

    Scores of a grader (kind `VERDICT`) are how right each CoT is, from 0 to 1; a CoT without one is
    not right. Evaluation reads them as it does golds, and no method sees them.

    Attributes:
        name: unique within a recording; methods ask for scores by it.
        kind: such as "judge" or "python".
        parameters: everything that determines the scores, such as model and prompt version (JSON
            values, no secrets).
    """

    name: str
    kind: str
    parameters: RecordLike = field(default_factory=dict)


@frozen
class ScoreRows:
    """One scorer's scores of some CoTs of one LLM on one question, as columns of equal length.

    A CoT that is left out was not scored; one that the scorer could not score has neither score nor
    step scores.

    Attributes:
        question_id: which question.
        sample_indices: which CoTs, ascending.
        scores: finite numbers, the higher the better; `None` where there is none.
        step_scores: a score for each step of a CoT, in order; `None` where there are none, of a CoT
            or of all.
        verdicts: the scorer's reply as text; `None` as for `step_scores`.
        prompt_tokens: of the scorer's request, for billing; `None` as for `step_scores`.
        output_tokens: of the scorer's reply, for billing; `None` as for `step_scores`.
    """

    question_id: str
    sample_indices: Sequence[int]
    scores: Sequence[float | None]
    step_scores: Sequence[Sequence[float] | None] | None = None
    verdicts: Sequence[str | None] | None = None
    prompt_tokens: Sequence[int | None] | None = None
    output_tokens: Sequence[int | None] | None = None


@frozen
class ProbeRows:
    """The probes of one LLM's CoTs on one question, as columns of equal length, by sample and then
    offset.

    A probe is the answer that the LLM gave when it was made to answer after some tokens of a CoT.
    One that came behind the end of its CoT is allowed: published stores have some.

    Attributes:
        question_id: which question.
        sample_indices: of which CoT each probe is, ascending.
        offsets: output tokens of the CoT before the probe, 1 or more and rising within a CoT.
        raw_answers: as extracted; `None` for no answer.
        answers: normal forms, which vote with each other and with the answers of CoTs; `None` for
            no answer.
        texts: what the LLM wrote behind the cue; `None` for a probe, or all, of which the source
            kept no text.
        output_tokens: of each probe's own text; `None` as for `texts`.
        confidences: finite numbers, kept as 32-bit floats; `None` as for `texts`.
    """

    question_id: str
    sample_indices: Sequence[int]
    offsets: Sequence[int]
    raw_answers: Sequence[str | None]
    answers: Sequence[str | None]
    texts: Sequence[str | None] | None = None
    output_tokens: Sequence[int | None] | None = None
    confidences: Sequence[float | None] | None = None


def checked_messages(sent: Sequence[str | None]) -> Sequence[str | None]:
    """Return what turns reply to; a `ValueError` as for `read_messages`."""
    for text in {each for each in sent if each is not None}:
        read_messages(text)
    return sent


_MESSAGE = {"tool_calls": list}
"""Types of what messages have beside texts."""


def read_messages(text: str) -> list[Record]:
    """Return the messages in a JSON array; anything else is a `ValueError`."""
    # refuses broken Unicode and deep nesting; a user's method in its process does without it
    import orjson

    try:
        messages = orjson.loads(text)
    except orjson.JSONDecodeError:
        messages = None
    if not isinstance(messages, list) or any(
        not isinstance(each, dict)
        or not {"role", "content"} <= each.keys()
        or not all(isinstance(own, _MESSAGE.get(name, str)) for name, own in each.items())
        for each in messages
    ):
        raise ValueError(
            f"{text!r:.80} is not a list of messages, each with role and content as text"
        )
    return messages


def utc_time(text: str) -> datetime:
    """Read an ISO 8601 time such as "2026-11-22T14:31:41Z"; one without an offset is in UTC,
    anything else a `UsageError`.
    """
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"A time should be ISO 8601, such as 2026-11-22T14:31:41Z; found {text!r:.60}."
        ) from error


def utc_text(time: datetime) -> str:
    """Return a time as it is written in leaves: UTC, microseconds only if not 0, "Z" at the end."""
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


class Texts(Strings):
    """A list of strings that only grows, end to end in UTF-8."""

    def __init__(self) -> None:
        self._data, self._offsets = bytearray(), array("Q", [0])

    def append(self, text: str) -> None:
        """Add one."""
        self._data += text.encode()
        self._offsets.append(len(self._data))

    def arrays(self) -> tuple[UInt8, Integers]:
        """Return the strings end to end, and where each starts and the last one ends."""
        lengths = np.diff(np.array(self._offsets))
        return np.frombuffer(bytes(self._data), np.uint8), offsets_of(lengths)


def rows_of_keys(keys: UInt64, wanted: UInt64) -> Rows:
    """Return the row of each wanted key; any row for one that is not there."""
    order = np.argsort(keys, kind="stable")
    return order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]


class QuestionTable:
    """Ids, golds and keys of a dataset's questions, in their order.

    Attributes:
        dataset: id of the dataset.
        ids: the questions' ids.
        with_gold: how many have a gold answer that could be read.
    """

    def __init__(self, dataset: str, questions: Iterable[Question] = ()) -> None:
        self.dataset = dataset
        self.ids = Texts()
        self.with_gold = 0
        self._golds, self._has_gold = Texts(), bytearray()
        self._keys, self._text_keys = array("Q"), array("Q")
        for question in questions:
            self.add(question)

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, question: Question) -> None:
        """Add the next question."""
        self.ids.append(question.id)
        self._golds.append(question.answer_key or "")
        self._has_gold.append(question.answer_key is not None)
        self.with_gold += question.answer_key is not None
        self._keys.append(name_key("feval/question", self.dataset, question.id))
        self._text_keys.append(name_key(question.text))

    def gold(self, row: int) -> str | None:
        """Return the normal form of a question's gold answer, if it has any."""
        gold: str = self._golds[row]
        return gold if self._has_gold[row] else None

    @property
    def keys(self) -> UInt64:
        """[Q] what draws are made from."""
        return np.array(self._keys, np.uint64)

    @property
    def text_keys(self) -> UInt64:
        """[Q] what tells two questions of one id apart."""
        return np.array(self._text_keys, np.uint64)

    def repeated_id(self) -> str | None:
        """Return an id that two questions have, if there is any."""
        order = np.argsort(self.keys)
        twice = order[np.flatnonzero(np.diff(self.keys[order]) == 0)]
        return str(self.ids[int(twice[0])]) if len(twice) else None
