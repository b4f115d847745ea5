"""What a recording holds beside texts, as arrays: probes, steps, scores, log-probabilities of
tokens, and the conversations that turns belong to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from feval.errors import NotRecordedError, require_known
from feval.recording.content import ScorerInfo, sent_calls
from feval.recording.layout.flat import (
    Bools,
    Float32,
    Floats,
    Int32,
    Int64,
    Integers,
    Numbers,
    Rows,
    UInt8,
    UInt32,
    starts_of,
)
from feval.values import Record


@dataclass(frozen=True, slots=True, eq=False)
class Probes:
    """The probes of one LLM's CoTs on Q questions (S the largest pool), end to end by question,
    sample and offset.

    Attributes:
        interval: output tokens between probes where every trace was probed at interval, 2 x
            interval, ...; `None` otherwise.
        starts: [Q * S + 1] int64; those of CoT s of question q begin at `starts[q * S + s]`.
        offsets: [N] uint32, output tokens of the trace before each probe, rising within a CoT.
        codes: [N] answer codes, of the same table as the final answers of the pool; -1 for no
            answer.
        output_tokens: [N] int16 or int32, tokens of each probe's own reply, -1 where not known;
            `None` where none is known.
        confidences: [N] float32, NaN where there is none; `None` where none was recorded.
        shape: (Q, S).
    """

    interval: int | None
    starts: Int64
    offsets: UInt32
    codes: Integers
    output_tokens: Integers | None
    confidences: Float32 | None
    shape: tuple[int, int]

    @property
    def counted(self) -> bool:
        """Whether the tokens of all probes are known."""
        return not len(self.offsets) or (
            self.output_tokens is not None and bool((self.output_tokens >= 0).all())
        )

    def of(self, question: int, sample: int) -> slice:
        """The places of the probes of one CoT in the arrays."""
        place = question * self.shape[1] + sample
        return slice(int(self.starts[place]), int(self.starts[place + 1]))

    def counts(self) -> Int64:
        """[Q, S] how many probes each CoT has."""
        return np.diff(self.starts).reshape(self.shape)

    def before(self, tokens: int) -> Int64:
        """[Q, S] how many probes of each CoT are at or before so many tokens."""
        reached = starts_of(self.offsets <= tokens)
        return np.diff(reached[self.starts]).reshape(self.shape)

    def recorded_confidences(self, owner: str) -> Float32:
        """The confidences; `NotRecordedError` where no probe of `owner`, an LLM, has one."""
        if self.confidences is None:
            raise NotRecordedError(
                f"The probes of {owner} carry no confidence. Take a method that looks at answers"
                " alone, such as answer-convergence, or import probes with a confidence each."
            )
        return self.confidences

    def rows(self, rows: Rows) -> Probes:
        """The probes of some questions, in the order given."""
        width = self.shape[1]
        cots = (np.asarray(rows)[:, None] * width + np.arange(width)).ravel()
        lengths = np.diff(self.starts)[cots]
        starts = starts_of(lengths)
        places = np.arange(starts[-1]) + np.repeat(self.starts[cots] - starts[:-1], lengths)
        return replace(
            self,
            starts=starts,
            offsets=self.offsets[places],
            codes=self.codes[places],
            output_tokens=None if self.output_tokens is None else self.output_tokens[places],
            confidences=None if self.confidences is None else self.confidences[places],
            shape=(len(rows), width),
        )

    def recoded(self, tables: Sequence[Integers]) -> Probes:
        """The probes with other answer codes: per question, the new code of each old one, and at
        the end -1.
        """
        codes = np.empty(len(self.codes), np.int32)
        bounds = (
            self.starts[:: self.shape[1]] if self.shape[1] else np.zeros(len(tables) + 1, np.int64)
        )
        for table, start, stop in zip(
            tables, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True
        ):
            codes[start:stop] = table[self.codes[start:stop]]
        return replace(self, codes=codes)


def path_texts(
    texts: Sequence[str | None], parents: Sequence[int | None], stop: str = ""
) -> Iterator[str | None]:
    """Yield the text of the path to each step of a tree; `None` where a step of it has none.

    Where a step does not end with the stop text, that text joins it to the next one, its last
    blanks only where neither has any.
    """
    kept = stop.rstrip(" ")
    paths: list[str | None] = []
    for text, parent in zip(texts, parents, strict=True):
        before = "" if parent is None else paths[parent]
        if before and text is not None:
            before += "" if before.rstrip(" ").endswith(kept) else kept
            before += "" if before.endswith(" ") or text.startswith(" ") else stop[len(kept) :]
        paths.append(None if before is None or text is None else before + text)
        yield paths[-1]


def conversation(
    place: int,
    parents: Sequence[int | None],
    texts: Sequence[str | None],
    messages: Sequence[str | None] | None,
    calls: Sequence[str | None] | None,
    request: str | None,
) -> str | None:
    """Return all that was sent for a CoT or turn, as a JSON array of messages; `None` where some of
    it is not known.

    Args:
        place: of the CoT or turn.
        parents: place of the CoT that each turn replies to; `None`, or below 0, where there is
            none.
        texts: of the CoTs and turns.
        messages: what each turn replies to, as JSON.
        calls: of tools, by the CoTs and turns, as `Recording.tool_calls` has them.
        request: what was sent for the question, as JSON.
    """
    behind: list[Any] = []
    while (parent := parents[place]) is not None and parent >= 0:
        own, text = None if messages is None else messages[place], texts[parent]
        if own is None or text is None:
            return None
        said: Record = {"role": "assistant", "content": text}
        if calls and (called := calls[parent]):
            said["tool_calls"] = sent_calls(called)
        behind[:0] = [said, *json.loads(own)]
        place = parent
    if not behind or request is None:
        return request
    return json.dumps([*json.loads(request), *behind], ensure_ascii=False)


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The trees of one LLM on Q questions (S steps the largest): the columns of its pools are
    steps, not whole CoTs.

    Attributes:
        parents: [Q, S] place of the step before each one, -1 for a first step, -2 where there is no
            step. It rises, so that the children of a step follow each other.
        ends: [Q, S] 1 where a step ends a solution, else 0.
        turns: [Q, S] which messages a turn replies to, as a number among those of its question; -1
            for a step that is no turn, -2 where there is no step. `None` where no step is a turn.
        turn_prompts: [Q, S] tokens of all that was sent for a turn, -1 where there is none or they
            are not known; `None` as `turns`.
    """

    parents: Integers
    ends: UInt8
    turns: Integers | None = None
    turn_prompts: Int32 | None = None

    def rows(self, rows: Any) -> Steps:
        """The steps of some questions, in the order given."""
        return Steps(*(None if array is None else array[rows] for array in self.arrays()))  # type: ignore[arg-type]  # as many as its fields

    def arrays(self) -> tuple[Numbers | None, ...]:
        """The arrays, in the order of the attributes."""
        return self.parents, self.ends, self.turns, self.turn_prompts

    def children(self, row: int, step: int) -> range:
        """The places of the steps recorded after a step of a question, or of its first steps
        (-1).
        """
        recorded = self.parents[row][self.parents[row] > -2]
        return range(int(recorded.searchsorted(step)), int(recorded.searchsorted(step, "right")))

    def check(self, codes: Integers, sizes: Integers) -> None:
        """Check that the steps are trees of the pools with these codes [Q, S] and sizes [Q]; others
        are a `ValueError`.
        """
        width = codes.shape[1]
        if any(array is not None and array.shape != codes.shape for array in self.arrays()):
            raise ValueError("its steps have another shape than the answers")
        present = np.arange(width) < sizes[:, None]
        parents = np.where(present, self.parents, width)
        if (
            (self.parents[~present] != -2).any()
            or (parents < -1).any()
            or (np.diff(parents, axis=1) < 0).any()
        ):
            raise ValueError("its steps should come in the order of their parents")
        if (present & (parents >= np.arange(width))).any() or (self.ends > present).any():
            raise ValueError("its steps should come behind their parents")
        follows = present & (parents >= 0)
        before = np.take_along_axis(
            self.ends, np.where(follows, parents, 0).astype(np.intp), axis=1
        )
        turns = (
            np.full(codes.shape, -1) if self.turns is None else np.where(present, self.turns, -1)
        )
        if (follows & (before > 0) & (turns < 0)).any() or ((codes >= 0) & (self.ends == 0)).any():
            raise ValueError(
                "a step goes on from the end of a solution, or has an answer and is no end"
            )
        replies = turns >= 0
        if (
            (replies & ~(follows & (before > 0) & (self.ends > 0))).any()
            or (turns < -1).any()
            or (turns >= width).any()
        ):
            raise ValueError("its turns should reply to whole CoTs and be such")
        if self.turns is not None and (
            (self.turns[~present] != -2).any() or (self.turn_prompts is None)
        ):
            raise ValueError("its turns should be steps, with prompt tokens")


def message_numbers(messages: Sequence[str | None]) -> list[int]:
    """Return which messages each step of a question replies to, numbered by first appearance; -1
    for no turn.
    """
    numbers: dict[str, int] = {}
    return [-1 if sent is None else numbers.setdefault(sent, len(numbers)) for sent in messages]


def unknown_as_minus_one(values: Sequence[int | None]) -> list[int]:
    """Return whole numbers with -1 for `None`."""
    return [-1 if value is None else value for value in values]


@dataclass(frozen=True, slots=True, eq=False)
class RaggedArray:
    """A list of numbers for each of Q x S CoTs, end to end; `shape` is (Q, S).

    The numbers of CoT s of question q begin at `offsets[q * S + s]`; there are Q * S + 1 offsets.
    """

    values: Numbers
    offsets: Int64
    shape: tuple[int, int]

    def of(self, question: int, sample: int) -> Numbers:
        """The numbers of one CoT; empty where there are none."""
        place = question * self.shape[1] + sample
        return self.values[self.offsets[place] : self.offsets[place + 1]]

    def of_question(self, question: int) -> Numbers:
        """The numbers of all CoTs of a question, end to end."""
        first = question * self.shape[1]
        return self.values[self.offsets[first] : self.offsets[first + self.shape[1]]]

    def lengths(self) -> Int64:
        """[Q, S] how many numbers each CoT has."""
        return np.diff(self.offsets).reshape(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class TokenLogprobs:
    """What the tokens of each CoT say of its confidence.

    Attributes:
        sequence: [Q, S] float64, sum of the log-probabilities of the sampled tokens; NaN where not
            kept.
        confidences: per token, minus the mean log-probability of the k most probable tokens
            (DeepConf); empty where not kept.
        logprobs: per token, the log-probability of the sampled one; empty where not kept.
    """

    sequence: Floats
    confidences: RaggedArray
    logprobs: RaggedArray


AGGREGATES = ("score", "min", "product", "last", "mean", "sum")
"""The number that a CoT is ranked by: its one score, or a summary of its step scores;
process-reward papers use each of these.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """One scorer's scores of one LLM on all questions of a dataset (Q questions, S the largest
    pool).

    Attributes:
        scorer: who gave them.
        values: [Q, S] float64; NaN where there is no score.
        scored: [Q, S] whether the CoT was given to the scorer.
        steps: of each CoT, its step scores in order; empty where there are none.
        prompt_tokens: [Q, S] int32, of the scorer's request; -1 where not known.
        output_tokens: [Q, S] int32, of the scorer's reply; -1 where not known.
    """

    scorer: ScorerInfo
    values: Floats
    scored: Bools
    steps: RaggedArray
    prompt_tokens: Int32
    output_tokens: Int32

    def aggregated(self, how: str) -> Floats:
        """Return one number per CoT, [Q, S], NaN where it has none: its score ("score"), or a
        summary of its step scores.

        Raises:
            UnknownNameError: `how` is not one of `AGGREGATES`.
        """
        require_known("way of aggregating step scores", how, AGGREGATES)
        if how == "score":
            return self.values.copy()
        steps, offsets, counts = self.steps.values, self.steps.offsets, self.steps.lengths().ravel()
        with_steps = counts > 0
        values = np.full(self.values.size, np.nan)
        # empty ones between them take no room, so each runs to the next
        starts = offsets[:-1][with_steps]
        if how == "last":
            values[with_steps] = steps[offsets[1:][with_steps] - 1]
        elif starts.size:
            reduce = {"min": np.minimum, "product": np.multiply}.get(how, np.add)
            values[with_steps] = reduce.reduceat(steps, starts)
            if how == "mean":
                values[with_steps] /= counts[with_steps]
        return values.reshape(self.values.shape)


_STATED = re.compile(r"(.+):(lower|higher)", re.DOTALL)
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_LOWER_IS_BETTER = frozenset((
    "bpb", "cer", "crossentropy", "distance", "divergence", "energy", "entropy", "err", "error",
    "errors", "logloss", "loss",
    "losses", "mae", "mse", "nll", "penalty", "perplexities", "perplexity", "ppl", "rmse",
    "surprisal", "wer",
))  # fmt: skip
_MINUS = frozenset(("inv", "inverse", "minus", "neg", "negative"))


def stated_direction(scorer: str) -> tuple[str, str]:
    """Return the name of a scorer without ":lower" or ":higher" behind it, and which of the two is
    better; "" if unsaid.
    """
    found = _STATED.fullmatch(scorer)
    return (found[1], found[2]) if found else (scorer, "")


def direction_question(scorer: str) -> str | None:
    """Return what to ask about scores that are named as if lower were better, such as a loss;
    `None` where nothing is unclear.
    """
    words = {word.lower() for word in _WORDS.findall(scorer)}
    negated = not words.isdisjoint(_MINUS)
    minus_log = negated and any(word.startswith("log") for word in words)
    if stated_direction(scorer)[1] or not (
        minus_log or (not negated and not words.isdisjoint(_LOWER_IS_BETTER))
    ):
        return None
    return (
        f"The scores by {scorer!r} are named as if lower were better, and methods take the highest."
        f" Say which is better: scorer={f'{scorer}:lower'!r}, which takes them negated, or"
        f" scorer={f'{scorer}:higher'!r}."
    )


_AGAINST = ":vs="


def verdicts_name(judge: str, against: str, shift: int = 0) -> str:
    """Return the name of the scorer under which a judge's verdicts on the CoTs of two LLMs are
    stored with the first LLM.

    A verdict is a score: 1 where the CoT was preferred, 0 where that of `against` was, 0.5 for a
    tie, missing where there is none. CoT s was compared with CoT s + `shift` of the other LLM (the
    first ones follow on the last).
    """
    return f"{judge}{_AGAINST}{against}" + (f":shift={shift}" if shift else "")


def are_verdicts(scorer: str) -> bool:
    """Return whether scores are a judge's verdicts on the CoTs of two LLMs, by the name of the
    scorer.
    """
    return _AGAINST in scorer
