"""Pools: the recorded CoTs of one LLM on many questions, as arrays; with their channels, what some
methods need besides answers: scores, log-probabilities of tokens, probes, steps, durations.

The batch form of a method sees nothing else of an LLM. A pool holds no gold, no question id and no
text. Channels are read on first use and kept as long as the pool.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

import numpy as np

from feval import replay
from feval.cards.billing import MOST_USD_OF_QUESTION, PICODOLLARS
from feval.errors import NotRecordedError, OutOfRangeError, UsageError, require_known
from feval.recording.arrays import (
    Probes,
    RaggedArray,
    Scores,
    Steps,
    TokenLogprobs,
    direction_question,
    stated_direction,
)
from feval.recording.layout.flat import Floats, Int32, Int64, Integers, Rows, UInt64, starts_of
from feval.values import Record

if TYPE_CHECKING:
    from feval.recording import Recording
    from feval.replay.clock import Clock

__all__ = ["ArrayChannels", "Channels", "Pool", "RaggedArray", "ScoringTokens", "TokenLogprobs"]


AGGREGATES = ("score", "last", "min", "prod", "mean")
"""The number a CoT is judged by: its one score, or an aggregate of its step scores."""

Channel = Literal[
    "scorers",
    "scores",
    "logprobs",
    "probes",
    "steps",
    "duration_s",
    "first_token_s",
    "usd",
    "cached_tokens",
]

_T = TypeVar("_T")


class Channels(ABC):
    """Source of a pool's optional channels, for the LLM `owner`. Question `row` of the arrays is
    question `row` of the pool.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._cache: dict[Hashable, Any] = {}

    @abstractmethod
    def read(self, channel: Channel, *scorer: str) -> Any:
        """Return a channel, "scores" those of one scorer; `None` where nothing was recorded."""

    def _channel(self, channel: Channel, *scorer: str, missing: str = "") -> Any:
        """A channel; where nothing was recorded, an error that says what is missing, if anything
        is said.
        """
        found = self.derived((channel, *scorer), lambda: self.read(channel, *scorer))
        if found is None and missing:
            raise NotRecordedError(f"{self.owner} {missing}")
        return found

    def question(self, row: int) -> str:
        """What messages call a question."""
        return f"the question in row {row}"

    @property
    def has_steps(self) -> bool:
        """Whether the pool consists of steps of trees, and not of whole CoTs."""
        return self._channel("steps") is not None

    @property
    def has_turns(self) -> bool:
        """Whether some of the steps reply to whole CoTs."""
        return self.has_steps and self.steps().turns is not None

    @property
    def has_probes(self) -> bool:
        """Whether CoTs were probed."""
        return self._channel("probes") is not None

    def scorers(self) -> Sequence[str]:
        """Return the names of the scorers."""
        names: Sequence[str] = self._channel("scorers")
        return names

    def require_turns(self) -> None:
        """Raise a `NotRecordedError` if no step replies to a whole CoT."""
        if not self.has_turns:
            raise NotRecordedError(
                f"A method replies to a CoT of {self.owner}, and no turns were recorded. Record"
                " some (`feval record --protocol`), or import them (`feval import jsonl`,"
                " `turns`)."
            )

    def require_trees(self) -> None:
        """Raise a `NotRecordedError` if steps reply to whole CoTs, and so go on from none."""
        if self.has_turns:
            raise NotRecordedError(
                f"{self.owner} was recorded as conversations of several turns, which cannot be"
                " expanded step by step. Reply to them (`llm.reply`, sequential-revision), or"
                " record trees of steps (`feval record --tree`)."
            )

    def steps(self) -> Steps:
        """Return the steps that the pool consists of.

        Raises:
            NotRecordedError: it consists of whole CoTs.
        """
        steps: Steps = self._channel(
            "steps",
            missing="was recorded as whole CoTs, which cannot be expanded step by step or replied"
            " to. Record steps (`feval record --tree`) or turns (`feval record --protocol`), or"
            " import them (`feval import jsonl`, `steps` or `turns`).",
        )
        return steps

    def logprobs(self) -> TokenLogprobs:
        """Return the log-probabilities of the tokens.

        Raises:
            NotRecordedError: none were recorded; the message says how to record them.
        """
        logprobs: TokenLogprobs = self._channel(
            "logprobs",
            missing="has no log-probabilities of tokens. Only `feval record --logprobs K` keeps"
            " them; record the LLM again with it.",
        )
        return logprobs

    def numbers(self, channel: Channel) -> Floats | None:
        """Return [Q, S] numbers of the CoTs, NaN where not known; `None` where none is known.

        Args:
            channel: "duration_s" and "first_token_s", the seconds that each reply, and its first
                token, took; "usd" that each states; "cached_tokens", prompt tokens that each says a
                cache had read.
        """
        return cast("Floats | None", self._channel(channel))

    def probes(self) -> Probes:
        """Return the probes of the CoTs, whose codes are those of the pool.

        Raises:
            NotRecordedError: none were recorded; the message says where they come from.
        """
        probes: Probes = self._channel(
            "probes",
            missing="has no probes: its CoTs can be drawn whole, but not followed token by token."
            " Import traces that were probed (`feval import probed-traces`), or add probes with"
            " `RecordingWriter.add_probes`.",
        )
        return probes

    def scores(self, scorer: str | None) -> Scores:
        """Return the scores of one scorer, of the only one for `None`.

        Raises:
            NotRecordedError: the pool has no such scores; the message says how to get them.
        """
        scores: Scores = self._channel("scores", self._named(scorer))
        return scores

    def _named(self, scorer: str | None) -> str:
        """Return the recorded name of a scorer, of the only one for `None`; see `scores`."""
        names = self.scorers()
        if scorer is None and len(names) > 1:
            raise NotRecordedError(
                f"{self.owner} has scores by several scorers: {', '.join(names)}. Name one of them:"
                f" --set scorer={names[0]} (in Python: scorer={names[0]!r})."
            )
        if scorer is not None and scorer not in names:
            scorer = stated_direction(scorer)[0]
        if not names or (scorer is not None and scorer not in names):
            by = "" if scorer is None else f" by {scorer!r}"
            raise NotRecordedError(
                f"{self.owner} has no"
                f" scores{by}{'; it has scores by ' * bool(names)}{', '.join(names)}. Add some with"
                " `feval score RECORDING --scorer SCORER --out DIR`."
            )
        return names[0] if scorer is None else scorer

    def aggregated(self, scorer: str | None, aggregate: str) -> Floats:
        """Return [Q, S] one number per CoT, by one of `AGGREGATES`, the higher the better; NaN
        where it has none.

        Scores of a scorer that is named, here or in the recording, with ":lower" behind its name
        are negated.

        Raises:
            UsageError: the scorer is named as if lower were better, and nothing says which is; or a
                product of negated scores.
            UnknownNameError: no such aggregate.
            NotRecordedError: no such scores, or the scorer only gave the other kind.
        """
        require_known("aggregate", aggregate, AGGREGATES)
        scores, name = self.scores(scorer), self._named(scorer)
        direction = stated_direction(scorer or name)[1] or stated_direction(name)[1]
        if not direction and (question := direction_question(name)) is not None:
            raise UsageError(question)
        if direction == "lower":
            if aggregate in ("prod", "product"):
                raise UsageError(
                    f"Step scores by {name!r} are negated, and a product of them has no order; take"
                    " 'min' or 'mean'."
                )
            steps = replace(scores.steps, values=-scores.steps.values)
            scores = replace(scores, values=-scores.values, steps=steps)
        return self.derived(
            ("aggregated", name, aggregate, direction), lambda: self._aggregate(scores, aggregate)
        )

    def _aggregate(self, scores: Scores, aggregate: str) -> Floats:
        has_steps, gave = scores.steps.values.size, f"The scorer {scores.scorer.name!r} gave"
        if aggregate in AGGREGATES[2:] and not has_steps:
            raise NotRecordedError(
                f"{gave} {self.owner} no step scores to take {aggregate!r} of; take"
                " aggregate='score', or score again with a scorer of steps."
            )
        if aggregate == "score" and has_steps and np.isnan(scores.values).all():
            raise NotRecordedError(
                f"{gave} {self.owner} step scores and no score of whole CoTs; take an aggregate of"
                f" them: {', '.join(AGGREGATES[1:])}."
            )
        if aggregate == "score" or not has_steps:
            return scores.values  # of a whole CoT, which is its last step
        return scores.aggregated({"prod": "product"}.get(aggregate, aggregate))

    def rows(self, rows: Rows, tables: Sequence[Int32] | None = None) -> Channels:
        """Return the channels of some questions, in the order given, with other answer codes if
        `tables` has some.
        """
        return _ChannelRows(self, rows, tables)

    def derived(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return a value computed from the channels and cached with them; it depends on nothing but
        the channels and its key.
        """
        if key not in self._cache:
            self._cache[key] = make()
        return cast("_T", self._cache[key])


class ArrayChannels(Channels):
    """Channels held in memory, for pools that come from no recording; `llm` is named in
    messages.
    """

    def __init__(
        self,
        scores: Mapping[str, Scores] | None = None,
        logprobs: TokenLogprobs | None = None,
        *,
        probes: Probes | None = None,
        steps: Steps | None = None,
        durations: Floats | None = None,
        llm: str = "The pool",
    ) -> None:
        super().__init__(llm)
        self._scores = scores or {}
        self._held = {
            "scorers": list(self._scores),
            "logprobs": logprobs,
            "probes": probes,
            "steps": steps,
            "duration_s": durations,
        }

    def read(self, channel: Channel, *scorer: str) -> Any:
        """See `Channels.read`."""
        return self._scores[scorer[0]] if scorer else self._held.get(channel)


class RecordedChannels(Channels):
    """Channels of one LLM of a recording, in recorded order."""

    def __init__(self, recording: Recording, dataset: str, llm: str) -> None:
        super().__init__(f"{llm} on {dataset}")
        self._recording: Recording = recording
        self._pair = dataset, llm

    def question(self, row: int) -> str:
        """See `Channels.question`."""
        return f"question {self._recording.votes(self._pair[0]).question_ids[row]!r}"

    def read(self, channel: Channel, *scorer: str) -> Any:
        """See `Channels.read`."""
        recording = self._recording
        if channel == "probes" and not recording.has_probes(*self._pair):
            return None
        readers: dict[Channel, Callable[..., Any]] = {
            "scorers": partial(recording.scorers, graders=False),  # whom methods may ask
            "scores": recording.scores,
            "logprobs": recording.logprobs,
            "probes": recording.probes,
            "steps": recording.steps,
            "duration_s": partial(self._numbers, "samples", "duration_s"),
            "first_token_s": partial(self._numbers, "timings", "first_token_s"),
            "usd": partial(self._numbers, "samples", "usd"),
            "cached_tokens": partial(self._numbers, "samples", "cached_tokens"),
        }
        return readers[channel](*self._pair, *scorer)

    def _numbers(self, part: str, column: str, dataset: str, llm: str) -> Floats | None:
        if part == "timings" and part not in self._recording.channels(dataset, llm):
            return None
        votes = self._recording.votes(dataset)
        found = self._recording.scan(part, dataset, llm, ["question_id", column])
        of_question = {question: values.get(column, []) for question, values in found}
        numbers = np.full(votes.llms[llm].codes.shape, np.nan)
        for row, question in enumerate(votes.question_ids):
            own = of_question.get(question, [])
            numbers[row, : len(own)] = np.array(own, np.float64)  # NaN for a null
        return None if np.isnan(numbers).all() else numbers


class _ChannelRows(Channels):
    """Channels of some questions of other channels."""

    def __init__(self, whole: Channels, rows: Rows, tables: Sequence[Int32] | None) -> None:
        super().__init__(whole.owner)
        self._whole, self._rows, self._tables = whole, rows, tables

    def question(self, row: int) -> str:
        return self._whole.question(int(self._rows[row]))

    def read(self, channel: Channel, *scorer: str) -> Any:
        whole = self._whole._channel(channel, *scorer)  # noqa: SLF001  of its own class
        if channel == "scorers" or whole is None:
            return whole
        if channel == "probes" and self._tables is not None:
            return whole.rows(self._rows).recoded(self._tables)
        return _rows_of(whole, self._rows)


def _rows_of(channel: Any, rows: Rows) -> Any:
    """Return a channel of some questions."""
    if isinstance(channel, np.ndarray):
        return channel[rows]
    if isinstance(channel, RaggedArray):
        pieces = [channel.of_question(row) for row in rows.tolist()]
        values = np.concatenate(pieces) if pieces else channel.values[:0]
        offsets = starts_of(channel.lengths()[rows].ravel())
        return RaggedArray(values, offsets, (len(rows), channel.shape[1]))
    if isinstance(channel, TokenLogprobs):
        arrays = channel.sequence, channel.confidences, channel.logprobs
        return TokenLogprobs(*(_rows_of(array, rows) for array in arrays))
    if isinstance(channel, Scores):
        names = ("values", "scored", "prompt_tokens", "output_tokens")
        own: Record = {name: getattr(channel, name)[rows] for name in names}
        return replace(channel, steps=_rows_of(channel.steps, rows), **own)
    return channel.rows(rows)


def without_gaps(rows: Rows) -> Rows | slice:
    """Return rows that follow each other as a slice, which takes a view of an array instead of a
    copy; else the rows.
    """
    if len(rows) and int(rows[-1]) - int(rows[0]) == len(rows) - 1 and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


class ScoringTokens(NamedTuple):
    """Tokens that scoring CoTs took; arrays of one shape.

    Attributes:
        calls: 1 where a CoT was scored, else 0.
        prompt_tokens: of the scoring request, 0 where there was none.
        output_tokens: of its reply, 0 where there was none.
    """

    calls: Integers
    prompt_tokens: Integers
    output_tokens: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The recorded CoTs of one LLM on Q questions, as arrays; S is the largest pool. It holds no
    gold.

    Attributes:
        llm: the LLM's name.
        codes: [Q, S] code of each CoT's answer; -1 for no answer, -2 where no CoT was recorded.
            Codes are per question and shared by the LLMs of one `load`; nothing may depend on how
            they are numbered.
        output_tokens: [Q, S] tokens of each CoT, 0 where absent.
        prompt_tokens: [Q] tokens of the request, -1 where not known.
        sizes: [Q] recorded CoTs of each question.
        candidates: [Q] number of codes in use on each question, by all LLMs together.
        question_keys: [Q] 64-bit keys that tell questions apart, for methods that toss coins; see
            `draws.uniforms`.
        channels: source of scores, log-probabilities and probes.
        clock: how long its CoTs took, where a method is replayed in seconds; `None` everywhere
            else.
        amounts: [Q, S] what each CoT states, 0 where absent, by name, where a method is replayed
            in it: "picodollars", 1e-12 USD; "cached_tokens", prompt tokens that a cache had read.
    """

    llm: str
    codes: Integers
    output_tokens: Integers
    prompt_tokens: Integers
    sizes: Integers
    _finish: Integers | Callable[[], Integers] = field(repr=False)
    candidates: Integers
    question_keys: UInt64 | None = None
    channels: Channels = ArrayChannels()  # noqa: RUF009  it holds nothing, and nothing can be put into it
    clock: Clock | None = None
    amounts: Mapping[str, Int64] = field(default_factory=dict)

    @property
    def finish(self) -> Integers:
        """[Q, S] position of each CoT's finish reason in
        `feval.cards.names.FINISH_REASONS`; read on demand.
        """
        return self._finish() if callable(self._finish) else self._finish

    @property
    def at_once(self) -> int | None:
        """How many CoTs of a round are generated side by side; `None` for all of them."""
        return None if self.clock is None else self.clock.at_once

    def clocked(self, at_once: int | None = None) -> Pool:
        """Return the same pool with the clock of its recorded durations; see
        `feval.replay.clock`.
        """
        numbers = self.channels.numbers
        seconds, first = numbers("duration_s"), numbers("first_token_s")
        clock = replay.Clock.from_seconds(self.output_tokens, seconds, first, at_once)
        return replace(self, clock=clock)

    def stating(self, names: Sequence[str]) -> Pool:
        """Return the same pool with some `amounts`, which its CoTs state.

        Raises:
            NotRecordedError: some state none; the message counts them.
            OutOfRangeError: those of one question state more than can be added.
        """
        return replace(self, amounts={name: self._amount(name) for name in names})

    def _amount(self, name: str) -> Int64:
        unit, what = (PICODOLLARS, "USD") if name == "picodollars" else (1, "cached tokens")
        recorded, values = self.codes > -2, self._stated(name)
        if missing := int((recorded & np.isnan(values)).sum()):
            raise NotRecordedError(
                f"{missing:,} of {recorded.sum():,} CoTs of {self.llm} state no {what}, so that"
                " their recorded cost is not known, and it is not mixed with computed ones. Import"
                " them; or name a price list, or prices 'none', and no cache 'recorded'."
            )
        values = np.where(recorded, values, 0.0)
        most = values.sum(axis=1).max(initial=0)
        if name == "picodollars" and most > MOST_USD_OF_QUESTION:
            raise OutOfRangeError(
                f"The CoTs of {self.llm} on one question state {most:,.0f} USD; at most"
                f" {MOST_USD_OF_QUESTION:,} can be added. Leave dollars out: prices 'none'."
            )
        return np.rint(values * unit).astype(np.int64)

    def _stated(self, name: str) -> Floats:
        stated = self.channels.numbers("usd" if name == "picodollars" else "cached_tokens")
        return np.full(self.codes.shape, np.nan) if stated is None else stated

    @property
    def smallest(self) -> int:
        """CoTs of the smallest pool: what every question can give."""
        return int(self.sizes.min()) if self.sizes.size else 0

    @property
    def usual(self) -> int:
        """The most frequent number of CoTs of a question that has some, the largest of several; 0
        where none has.
        """
        sizes, counts = np.unique(self.sizes[self.sizes > 0], return_counts=True)
        return int(sizes[counts == counts.max()].max()) if len(sizes) else 0

    def scores(self, scorer: str | None = None) -> Scores:
        """Return the scores of one scorer, of the only one for `None`; see `Channels.scores`."""
        return self.channels.scores(scorer)

    def aggregated(self, scorer: str | None = None, aggregate: str = "score") -> Floats:
        """Return [Q, S] one number per CoT, from its score or step scores; NaN where there is none;
        see `Channels.aggregated`.
        """
        return self.channels.aggregated(scorer, aggregate)

    def logprobs(self) -> TokenLogprobs:
        """Return the log-probabilities of the tokens; see `Channels.logprobs`."""
        return self.channels.logprobs()

    def probes(self) -> Probes:
        """Return the probes of the CoTs; see `Channels.probes`."""
        return self.channels.probes()

    def steps(self) -> Steps:
        """Return the steps that it consists of; see `Channels.steps`."""
        return self.channels.steps()

    def extra_prompt_tokens(self, rows: int | slice = slice(None)) -> Integers:
        """Return [Q, S] the prompt tokens that each turn was sent beyond the request; 0 for no
        turn, or where they are not known.
        """
        sent = self.steps().turn_prompts if self.channels.has_turns else None
        if sent is None:
            return np.zeros(self.codes[rows].shape, np.int64)
        request = self.prompt_tokens[rows, None].astype(np.int64)
        known = (request >= 0) & (sent[rows] >= 0)
        return np.where(known, np.maximum(sent[rows] - request, 0), 0)

    def has_uncounted_probes(self) -> bool:
        """Whether there are probes whose tokens are not known."""
        return self.channels.has_probes and not self.probes().counted

    def sequence_probabilities(self, questions: slice = slice(None)) -> Floats:
        """Return the length-normalised probability of each CoT: exp(log-probability of the CoT /
        its tokens).

        Args:
            questions: which rows.

        Returns:
            [Q, S] in [0, 1]; NaN where no log-probability or no number of tokens is known.

        Raises:
            NotRecordedError: no log-probabilities were recorded.
        """
        logprobs = self.logprobs()
        counts = np.maximum(
            logprobs.logprobs.lengths()[questions], logprobs.confidences.lengths()[questions]
        )
        # A source may have kept the sum alone; the provider's count of output tokens is the next
        # best thing then.
        tokens = self.output_tokens if self.clock is None else self.clock.tokens
        counts = np.where(counts > 0, counts, tokens[questions])
        means = np.full(counts.shape, np.nan)
        np.divide(logprobs.sequence[questions], counts, out=means, where=counts > 0)
        probabilities: Floats = np.exp(means)
        return probabilities

    def scoring_tokens(
        self,
        scorer: str | None = None,
        *,
        prefix_cached: bool = False,
        questions: slice = slice(None),
    ) -> ScoringTokens:
        """Return the tokens that scoring each CoT took, [Q, S].

        Args:
            scorer: name of the scorer; the only one for `None`.
            prefix_cached: leave out the part of the prompt that the LLM had already read or
                written: its request and the CoT.
            questions: which rows.

        Raises:
            NotRecordedError: no such scores, or their tokens are not known.
        """
        scores = self.scores(scorer)
        scored = scores.scored[questions]
        prompts, outputs, requests = (
            each[questions].astype(np.int64)
            for each in (scores.prompt_tokens, scores.output_tokens, self.prompt_tokens[:, None])
        )
        if (scored & ((prompts < 0) | (outputs < 0) | (prefix_cached & (requests < 0)))).any():
            raise NotRecordedError(
                f"The tokens that {scores.scorer.name!r} took to score the CoTs of {self.llm} were"
                " not recorded, so they cannot be billed. Let the method bill them as 'free'"
                " (self_check=free, verification=free), or score again with a scorer whose tokens"
                " are counted."
            )
        if prefix_cached:
            prompts = np.maximum(prompts - requests - self.output_tokens[questions], 0)
        return ScoringTokens(
            scored.astype(np.int64), np.where(scored, prompts, 0), np.where(scored, outputs, 0)
        )

    def rows(self, rows: Rows) -> Pool:
        """Return the pool of some questions, in the order given; the arrays are views where these
        follow each other.
        """
        places = without_gaps(rows)
        if isinstance(places, slice) and len(rows) == len(self.sizes):
            return self
        return Pool(
            self.llm,
            self.codes[places],
            self.output_tokens[places],
            self.prompt_tokens[places],
            self.sizes[places],
            lambda: self.finish[places],
            self.candidates[places],
            None if self.question_keys is None else self.question_keys[places],
            self.channels.rows(rows),
            None if self.clock is None else self.clock.rows(places),
            {name: amount[places] for name, amount in self.amounts.items()},
        )
