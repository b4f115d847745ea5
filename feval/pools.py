"""Pools: the recorded CoTs of one LLM on many questions, as arrays, with the optional channels that some methods read.

A pool is all that the batch form of a method sees of an LLM. It holds no gold, no question id and no text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from feval.errors import NotRecordedError

if TYPE_CHECKING:
    from feval.recording.scores import Scores

__all__ = ["ArrayChannels", "Channels", "Pool", "Ragged", "TokenLogprobs"]

Integers = npt.NDArray[np.integer[Any]]
Rows = npt.NDArray[np.intp]

_NO_ANSWER = -1


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """A list of numbers for each of Q x S CoTs, end to end.

    Attributes:
        values: [N] all numbers, question by question, CoT by CoT.
        offsets: [Q * S + 1] those of CoT s of question q begin at `offsets[q * S + s]`.
        shape: (Q, S).
    """

    values: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64]
    shape: tuple[int, int]

    def of(self, question: int, sample: int) -> npt.NDArray[Any]:
        """The numbers of one CoT; empty where there are none."""
        place = question * self.shape[1] + sample
        return self.values[self.offsets[place] : self.offsets[place + 1]]

    def lengths(self) -> npt.NDArray[np.int64]:
        """[Q, S] how many numbers each CoT has."""
        return np.diff(self.offsets).reshape(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class TokenLogprobs:
    """What the tokens of each CoT say of its confidence.

    Attributes:
        sequence: [Q, S] float64, sum of the log-probabilities of the sampled tokens; NaN where not kept.
        confidences: per token, minus the mean log-probability of the k most probable tokens (DeepConf); empty where not kept.
        logprobs: per token, the log-probability of the sampled one; empty where not kept.
    """

    sequence: npt.NDArray[np.float64]
    confidences: Ragged
    logprobs: Ragged


class Channels(Protocol):
    """Where the optional channels of a pool come from. Question `row` of the arrays is question `row` of the pool."""

    def scores(self, scorer: str | None) -> Scores:
        """The scores of one scorer, of the only one for `None`.

        Raises:
            NotRecordedError: the pool has no such scores; the message says how to get them.
        """

    def logprobs(self) -> TokenLogprobs:
        """What was kept of the tokens.

        Raises:
            NotRecordedError: nothing was; the message says how to record it.
        """

    def rows(self, rows: Rows) -> Channels:
        """The channels of some of the questions, in the order given."""


class ArrayChannels:
    """Channels held in memory, for pools that come from no recording.

    Args:
        scores: scorer -> scores.
        logprobs: of the tokens, if there are any.
        llm: whose they are, for messages.
    """

    def __init__(
        self,
        scores: Mapping[str, Scores] | None = None,
        logprobs: TokenLogprobs | None = None,
        *,
        llm: str = "The pool",
    ) -> None:
        self._scores, self._logprobs, self._llm = dict(scores or {}), logprobs, llm

    def scores(self, scorer: str | None) -> Scores:
        """See `Channels.scores`."""
        if scorer is None and len(self._scores) == 1:
            return next(iter(self._scores.values()))
        if scorer is None or scorer not in self._scores:
            held = ", ".join(self._scores) or "none"
            raise NotRecordedError(
                f"{self._llm} has no scores by {scorer or 'a single scorer'}; it has those of: {held}. "
                "Add them with `feval score RECORDING --scorer ... --out DIR`."
            )
        return self._scores[scorer]

    def logprobs(self) -> TokenLogprobs:
        """See `Channels.logprobs`."""
        if self._logprobs is None:
            raise NotRecordedError(
                f"{self._llm} has no log-probabilities of tokens. They are kept by `feval record --logprobs K` only; "
                "record the LLM again with it."
            )
        return self._logprobs

    def rows(self, rows: Rows) -> Channels:
        """See `Channels.rows`."""
        logprobs = None if self._logprobs is None else rows_of_logprobs(self._logprobs, rows)
        return ArrayChannels({n: rows_of_scores(s, rows) for n, s in self._scores.items()}, logprobs, llm=self._llm)


def rows_of_scores(scores: Scores, rows: Rows) -> Scores:
    """Those of some of the questions, in the order given."""
    steps = rows_of_ragged(Ragged(scores.step_values, scores.step_offsets, _shape(scores.values)), rows)
    return replace(
        scores,
        values=scores.values[rows],
        scored=scores.scored[rows],
        step_values=steps.values,
        step_offsets=steps.offsets,
        prompt_tokens=scores.prompt_tokens[rows],
        output_tokens=scores.output_tokens[rows],
    )


def _shape(values: npt.NDArray[Any]) -> tuple[int, int]:
    return values.shape[0], values.shape[1]


def rows_of_logprobs(logprobs: TokenLogprobs, rows: Rows) -> TokenLogprobs:
    """Those of some of the questions, in the order given."""
    return TokenLogprobs(
        logprobs.sequence[rows], rows_of_ragged(logprobs.confidences, rows), rows_of_ragged(logprobs.logprobs, rows)
    )


def rows_of_ragged(ragged: Ragged, rows: Rows) -> Ragged:
    """The lists of some of the questions, in the order given."""
    samples = ragged.shape[1]
    starts, ends = ragged.offsets[rows * samples], ragged.offsets[(rows + 1) * samples]
    pieces = [ragged.values[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    values = np.concatenate(pieces) if pieces else ragged.values[:0]
    lengths = ragged.lengths()[rows].ravel()
    return Ragged(values, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), (len(rows), samples))


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The recorded CoTs of one LLM on Q questions, as arrays; S is the largest pool. It holds no gold.

    Attributes:
        llm: name of the LLM.
        codes: [Q, S] which candidate each CoT answers; -1 for no answer, -2 where no CoT was recorded. Codes are per question
            and shared by the LLMs of one `load`; nothing may depend on how they are numbered.
        output_tokens: [Q, S] tokens of each CoT, 0 where absent.
        prompt_tokens: [Q] tokens of the request, -1 where not known.
        sizes: [Q] recorded CoTs of each question.
        candidates: [Q] number of codes in use on each question, by all LLMs together.
        question_keys: [Q] 64-bit keys that tell questions apart, for methods that toss coins; see `draws.uniforms`.
        channels: where scores and log-probabilities come from.
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

    @property
    def finish(self) -> Integers:
        """[Q, S] position of each CoT's finish reason in `feval.schema.FINISH_REASONS`; read when first asked for."""
        return self._finish() if callable(self._finish) else self._finish

    @property
    def smallest(self) -> int:
        """CoTs of the smallest pool: what every question can give."""
        return int(self.sizes.min()) if self.sizes.size else 0

    def scores(self, scorer: str | None = None) -> Scores:
        """The scores of one scorer, of the only one for `None`; see `Channels.scores`."""
        return self.channels.scores(scorer)

    def logprobs(self) -> TokenLogprobs:
        """What the tokens say of each CoT's confidence; see `Channels.logprobs`."""
        return self.channels.logprobs()

    def rows(self, rows: Rows) -> Pool:
        """The pool of some of the questions, in the order given."""
        return Pool(
            self.llm,
            self.codes[rows],
            self.output_tokens[rows],
            self.prompt_tokens[rows],
            self.sizes[rows],
            lambda: self.finish[rows],
            self.candidates[rows],
            None if self.question_keys is None else self.question_keys[rows],
            self.channels.rows(rows),
        )

    def with_no_answer_as_vote(self) -> Pool:
        """The same pool where "no answer" is one more candidate, which votes and is never correct.

        Papers that let a failed extraction vote are reproduced by this view; feval's own rule is that it does not.
        """
        wide = self.codes.astype(np.int32)
        return replace(self, codes=np.where(wide == _NO_ANSWER, self.candidates[:, None], wide))
