"""Pools: the recorded CoTs of one LLM on many questions, as arrays, with the optional channels that
some methods need.

The batch form of a method sees nothing else of an LLM. A pool holds no gold, no question id and no
text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import NotRecordedError
from feval.recording.logprobs import Ragged, TokenLogprobs
from feval.recording.probes import Probes
from feval.recording.scores import Scores
from feval.recording.steps import Steps
from feval.replay.channels import ArrayChannels, Channels
from feval.replay.clock import Clock

__all__ = ["ArrayChannels", "Channels", "Pool", "Ragged", "ScoringTokens", "TokenLogprobs"]

Integers = npt.NDArray[np.integer[Any]]
Rows = npt.NDArray[np.intp]

_NO_ANSWER = -1


def without_gaps(rows: Rows) -> Rows | slice:
    """Return rows that follow each other as a slice, which takes a view of an array instead of a
    copy; else the rows.
    """
    if len(rows) and int(rows[-1]) - int(rows[0]) == len(rows) - 1 and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def _finish_at(finish: Integers | Callable[[], Integers], places: Rows | slice) -> Integers:
    return (finish() if callable(finish) else finish)[places]


@dataclass(frozen=True, slots=True, eq=False)
class ScoringTokens:
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
    """

    llm: str
    codes: Integers
    output_tokens: Integers
    prompt_tokens: Integers
    sizes: Integers
    _finish: Integers | Callable[[], Integers] = field(repr=False)
    candidates: Integers
    question_keys: npt.NDArray[np.uint64] | None = None
    channels: Channels = ArrayChannels()  # noqa: RUF009  it holds nothing, and nothing can be put into it
    clock: Clock | None = None

    def __reduce__(self) -> tuple[type[Pool], tuple[Any, ...]]:
        """Send another process the finish reasons, not how they are read."""
        values = {each.name: getattr(self, each.name) for each in fields(self)} | {
            "_finish": self.finish
        }
        return Pool, tuple(values.values())

    @property
    def finish(self) -> Integers:
        """[Q, S] position of each CoT's finish reason in
        `feval.cards.finish_reasons.FINISH_REASONS`; read on demand.
        """
        return _finish_at(self._finish, slice(None))

    @property
    def at_once(self) -> int | None:
        """How many CoTs of a round are generated side by side; `None` for all of them."""
        return None if self.clock is None else self.clock.at_once

    def clocked(self, at_once: int | None = None) -> Pool:
        """Return the same pool with the clock of its recorded durations; see
        `feval.replay.clock`.
        """
        return replace(
            self,
            clock=Clock.of(
                self.output_tokens, self.channels.durations(), self.channels.first_tokens(), at_once
            ),
        )

    def in_microseconds(self) -> Pool:
        """Return a pool with a clock whose CoTs have a token per microsecond that they took."""
        assert self.clock is not None  # noqa: S101  for the type checker
        return replace(self, output_tokens=self.clock.microseconds)

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

    def aggregated(
        self, scorer: str | None = None, aggregate: str = "score"
    ) -> npt.NDArray[np.float64]:
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

    def extra_prompt_tokens(self, row: int, place: int) -> int:
        """Return the prompt tokens that a turn was sent beyond the request; 0 for no turn, or where
        they are not known.
        """
        prompts = self.steps().turn_prompts if self.channels.has_turns else None
        sent, request = (
            -1 if prompts is None else int(prompts[row, place]),
            int(self.prompt_tokens[row]),
        )
        return max(sent - request, 0) if min(sent, request) >= 0 else 0

    def has_uncounted_probes(self) -> bool:
        """Whether there are probes whose tokens are not known."""
        try:
            return not self.channels.probes().counted
        except NotRecordedError:
            return False

    def sequence_probabilities(self, questions: slice = slice(None)) -> npt.NDArray[np.float64]:
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
        probabilities: npt.NDArray[np.float64] = np.exp(means)
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
        scored, prompts = scores.scored[questions], scores.prompt_tokens[questions].astype(np.int64)
        outputs = scores.output_tokens[questions].astype(np.int64)
        requests = self.prompt_tokens[questions].astype(np.int64)[:, None]
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
            partial(_finish_at, self._finish, places),
            self.candidates[places],
            None if self.question_keys is None else self.question_keys[places],
            self.channels.rows(rows),
            None if self.clock is None else self.clock.rows(places),
        )

    def with_no_answer_as_vote(self) -> Pool:
        """Return the same pool where "no answer" is one more candidate, which votes and is never
        correct.

        This reproduces papers that let a failed extraction vote; feval's own rule is that it does
        not.
        """
        wide = self.codes.astype(np.int32)
        return replace(self, codes=np.where(wide == _NO_ANSWER, self.candidates[:, None], wide))
