"""Replay: recorded CoTs handed out as if an LLM had just been asked (FEval-TTC, Listing 1).

    dataset, [llm] = load("bigbench_date", ["gpt-3.5-turbo"], recording="my-recording")
    for question_id, entry in dataset:
        response = llm(question_id, n=20)
        print(entry.question, response.cots[0].answer, response.dollar_cost)

Which CoTs are handed out is a pure function of (seed, dataset, question, LLM, replicate); see `feval.replay.draws`. Loading maps one
small file and creates no object per CoT; question texts and CoT texts are read when they are asked for.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast, overload

import numpy as np
import numpy.typing as npt

from feval.answers import canonical
from feval.answers.thoughts import split
from feval.cards import schema
from feval.cards.prices import PriceList, billed_prompts, price_list, usd
from feval.cards.schema import FINISH_REASONS
from feval.errors import (
    ConflictError,
    NotRecordedError,
    OutOfRangeError,
    PriceNotFoundError,
    ShortPoolError,
    UsageError,
)
from feval.hub import is_address, open_place, split_places
from feval.recording.reader import Recording, open_recording
from feval.recording.view import View, open_view
from feval.replay.channels import Channels, RecordedChannels
from feval.replay.draws import orders, pool_key, uniforms
from feval.replay.pools import Pool

if TYPE_CHECKING:
    from feval.cards.prices import Price
    from feval.recording.content import LLMInfo

__all__ = [
    "LLM",
    "CoT",
    "Dataset",
    "Entry",
    "LLMResponse",
    "Metadata",
    "MeteredLLM",
    "Noise",
    "Pool",
    "Request",
    "close_ledger",
    "load",
    "open_recordings",
]

Integers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A question with its gold answer (Listing 2).

    Attributes:
        question: the text.
        answer: the gold as the dataset writes it, `None` where there is none.
        choices: (label, text) of each option.
        id: the question's id.
    """

    question: str
    answer: str | None
    choices: tuple[tuple[str, str], ...]
    id: str


@dataclass(frozen=True, slots=True)
class Request:
    """What was sent for a question (Listing 3).

    Attributes:
        raw_text: the prompt as a JSON array of messages; `None` where it is not known.
        tokens: of the prompt; `None` where not known.
        dollar_cost: USD for sending it once; `None` without a price or token count.
    """

    raw_text: str | None
    tokens: int | None
    dollar_cost: float | None


@dataclass(frozen=True, slots=True)
class Metadata:
    """Cost and end of a CoT (Listing 3).

    Attributes:
        tokens: output tokens.
        dollar_cost: USD of the output tokens, `None` where the LLM has no price.
        finish_reason: OpenAI's word, or "error" or "unknown".
    """

    tokens: int
    dollar_cost: float | None
    finish_reason: str


class Noise(NamedTuple):
    """The random numbers that coupled LLMs share.

    Attributes:
        scheme: how they are made, such as "gumbel-v1".
        seed: of them.
    """

    scheme: str
    seed: int

    def __str__(self) -> str:
        return f"noise {self.scheme} {self.seed}"


@dataclass(frozen=True, slots=True)
class CoT:
    """One recorded chain of thought (Listing 3); its text is read from disk when it is first asked for.

    Attributes:
        sample: place in the recorded order.
        answer: canonical answer, `None` for no answer.
        metadata: tokens, dollars, finish reason.
    """

    sample: int
    answer: str | None
    metadata: Metadata
    _llm: LLM = field(repr=False, compare=False)
    _question: int = field(repr=False, compare=False)

    @property
    def raw_text(self) -> str | None:
        """The reply as the LLM wrote it, without the thoughts before it; `None` where the recording has none."""
        return self._llm.texts(self._question)[self.sample]

    @property
    def reasoning(self) -> str | None:
        """The thoughts before the reply; `None` where none were recorded."""
        thoughts = self._llm.reasoning(self._question)
        return None if thoughts is None else thoughts[self.sample]

    @property
    def tokens(self) -> int:
        """Output tokens."""
        return self.metadata.tokens

    @property
    def dollar_cost(self) -> float | None:
        """USD of the output tokens, `None` where the LLM has no price."""
        return self.metadata.dollar_cost

    @property
    def finish_reason(self) -> str:
        """Why the CoT ended."""
        return self.metadata.finish_reason


@dataclass(frozen=True, slots=True)
class LLMResponse:
    """The CoTs drawn for one question (Listing 3), made into objects only when they are looked at.

    Attributes:
        samples: recorded places of the CoTs, in draw order.
    """

    samples: tuple[int, ...]
    _llm: LLM = field(repr=False, compare=False)
    _question: int = field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def num_cots(self) -> int:
        """Number of CoTs."""
        return len(self.samples)

    @property
    def cots(self) -> list[CoT]:
        """The CoTs, in draw order."""
        return [self._llm.cot(self._question, sample) for sample in self.samples]

    @property
    def answers(self) -> list[str | None]:
        """Canonical answers in draw order, `None` for no answer."""
        return self._llm.answers(self._question, self.samples)

    @property
    def request(self) -> Request:
        """What was sent."""
        return self._llm.request(self._question)

    @property
    def tokens(self) -> int:
        """Output tokens of all CoTs."""
        return int(self._llm.pool.output_tokens[self._question, list(self.samples)].sum(dtype=np.int64))

    @property
    def dollar_cost(self) -> float:
        """USD of the request and all CoTs, by eq. (1) of the paper and the LLM's billing.

        Raises:
            PriceNotFoundError: the price list has no such LLM, or the prompt's tokens are not known.
        """
        return self._llm.dollars(self._question, rounds=1, cots=len(self.samples), output_tokens=self.tokens)

    def scores(self, scorer: str | None = None, aggregate: str = "score") -> list[float | None]:
        """What a scorer said of each CoT, in draw order; `None` where it said nothing.

        Args:
            scorer: its name; the only one for `None`.
            aggregate: "score" for its score of the CoT; "last", "min", "prod" or "mean" of its step scores.

        Raises:
            UnknownNameError: no such aggregate.
            NotRecordedError: no such scores were recorded; `feval score` adds some.
        """
        return _known(self._llm.pool.aggregated(scorer, aggregate)[self._question, list(self.samples)])

    def step_scores(self, scorer: str | None = None) -> list[list[float]]:
        """A scorer's scores of the steps of each CoT, in draw order; empty where there are none.

        Raises:
            NotRecordedError: no such scores were recorded; `feval score` adds some.
        """
        scores = self._llm.pool.scores(scorer)
        return [scores.steps(self._question, sample).tolist() for sample in self.samples]

    def scoring_tokens(self, scorer: str | None = None, *, prefix_cached: bool = False) -> list[tuple[int, int] | None]:
        """Prompt and output tokens of a scorer's request for each CoT, in draw order; `None` where there was none.

        Args:
            scorer: its name; the only one for `None`.
            prefix_cached: leave out of the prompts what the LLM had already read and written; see `Pool.scoring_tokens`.

        Raises:
            NotRecordedError: no such scores were recorded, or not their tokens.
        """
        row = slice(self._question, self._question + 1)
        taken = self._llm.pool.scoring_tokens(scorer, prefix_cached=prefix_cached, questions=row)
        columns = (taken.calls, taken.prompt_tokens, taken.output_tokens)
        rows = zip(*(column[0, list(self.samples)].tolist() for column in columns), strict=True)
        return [(prompt, output) if calls else None for calls, prompt, output in rows]

    @property
    def sequence_logprobs(self) -> list[float | None]:
        """Natural logarithm of the probability of each CoT, in draw order; `None` where it was not kept.

        Raises:
            NotRecordedError: no log-probabilities were recorded; `feval record --logprobs K` keeps them.
        """
        return _known(self._llm.pool.logprobs().sequence[self._question, list(self.samples)])

    @property
    def sequence_probabilities(self) -> list[float | None]:
        """Length-normalised probability of each CoT, in draw order; see `Pool.sequence_probabilities`.

        Raises:
            NotRecordedError: as for `sequence_logprobs`.
        """
        row = slice(self._question, self._question + 1)
        return _known(self._llm.pool.sequence_probabilities(row)[0, list(self.samples)])

    @property
    def token_confidences(self) -> list[npt.NDArray[np.floating[Any]] | None]:
        """Minus the mean log-probability of the top k at each token of each CoT, in draw order; `None` where not kept.

        Raises:
            NotRecordedError: as for `sequence_logprobs`.
        """
        kept = self._llm.pool.logprobs().confidences
        found = [kept.of(self._question, sample) for sample in self.samples]
        return [confidences if confidences.size else None for confidences in found]

    def to_model(self) -> schema.LLMResponse:
        """The wire model of Listing 3, texts included."""
        cots = [
            schema.CoT(
                raw_text=cot.raw_text,
                answer=cot.answer,
                metadata=schema.CoTMetadata(
                    dollar_cost=cot.dollar_cost,
                    tokens=cot.tokens,
                    finish_reason=cast("schema.FinishReason", cot.finish_reason),
                ),
            )
            for cot in self.cots
        ]
        sent = self.request
        request = schema.LLMRequest(raw_text=sent.raw_text, dollar_cost=sent.dollar_cost, tokens=sent.tokens)
        return schema.LLMResponse(cots=tuple(cots), request=request, answers=tuple(self.answers))


class LLM:
    """A recorded LLM on one dataset. Call it with a question id to get CoTs.

    Attributes:
        name: full name of the variant.
        dataset: id of the dataset.
        seed: what the draws are made from.
        billing: how prompts are charged, one of `feval.cards.prices.BILLINGS`.
        counter: who counted the tokens.
        pool: the arrays.
    """

    def __init__(self, view: View, pool: Pool, *, seed: int, prices: PriceList | _Prices | None, billing: str) -> None:
        self._view, self._prices = view, prices
        self.name, self.pool, self.seed, self.billing = pool.llm, pool, seed, billing
        self.dataset = view.votes.dataset
        self.counter: str = view.recording.manifest.pairs[self.dataset, self.name]["counter"]
        self.recording_hash = view.recording.hash
        self._noise = _noise(view.recording.manifest.llms[self.name].get("decoding"))  # `info` would import pyarrow

    def __repr__(self) -> str:
        return (
            f"LLM({self.name!r} on {self.dataset}, {len(self.pool.sizes)} questions, {self.pool.smallest}+ CoTs each)"
        )

    @cached_property
    def prices(self) -> PriceList | None:
        """The price list in force; `None` where dollars were switched off."""
        return self._prices.get() if isinstance(self._prices, _Prices) else self._prices

    @property
    def price(self) -> Price | None:
        """USD per million tokens; `None` where the price list has no such LLM, or dollars were switched off."""
        return self.prices.find(self.name) if self.prices is not None else None

    def __call__(
        self,
        question_id: str | int,
        n: int | None = None,
        *,
        replicate: int = 0,
        N: int | None = None,  # noqa: N803  as the paper's Listing 1 prints it
    ) -> LLMResponse:
        """Draw n CoTs of a question, without replacement.

        The same call gives the same CoTs for ever; the first five of a draw of twenty are the draw of five.

        Args:
            question_id: an id, or the row of the question.
            n: how many; all recorded ones if left out.
            replicate: 0, 1, 2, ...: independent draws.
            N: the same as `n`, as the paper's Listing 1 prints it.

        Raises:
            NotRecordedError: no such question.
            ShortPoolError: fewer CoTs were recorded.
            OutOfRangeError: n below 1, or a negative replicate.
        """
        if n is not None and N is not None and n != N:
            raise UsageError(f"n and N are the same thing; n={n} and N={N} were given.")
        row = self._view.row(question_id)
        wanted = n if n is not None else N if N is not None else int(self.pool.sizes[row])
        self.require(row, wanted)
        return LLMResponse(self.order(row, replicate)[:wanted], self, row)

    def ask(self, question_id: str | int, replicate: int | None = 0) -> MeteredLLM:
        """The LLM in front of one question, with a meter: what a method written against `sample(k)` is given.

        Args:
            question_id: an id, or the row of the question.
            replicate: 0, 1, 2, ...: independent draws; `None` hands the CoTs out in recorded order.
        """
        return MeteredLLM(self, self._view.row(question_id), replicate)

    def seeded(self, seed: int) -> LLM:
        """The same LLM with draws made from another seed."""
        other = copy(self)
        other.seed = seed
        return other

    @property
    def noise(self) -> Noise | None:
        """The noise its CoTs were drawn with, where other LLMs may share it; `None`: noise of its own.

        Sample i of two LLMs with equal noise was drawn with the same random numbers (`feval record --coupled`).
        """
        return self._noise

    @property
    def _key(self) -> int:
        """Of its draws: LLMs that share noise share their draws, so that what was drawn together is handed out together."""
        return pool_key(self.seed, self.dataset, self.name if self.noise is None else str(self.noise))

    @property
    def question_keys(self) -> npt.NDArray[np.uint64]:
        """[Q] what draws are made from, see `feval.replay.draws`."""
        return self._view.votes.question_keys

    def order(self, row: int, replicate: int) -> tuple[int, ...]:
        """The whole draw of a question (by its row): recorded places, in the order in which they are handed out."""
        size = self.pool.sizes[row : row + 1]
        drawn = orders(self._key, self._view.votes.question_keys[row : row + 1], size, [replicate], int(size[0]))
        return tuple(drawn[0, 0].tolist())

    def orders(
        self, replicates: Sequence[int], draws: int, rows: npt.NDArray[np.intp] | None = None
    ) -> npt.NDArray[np.uint16]:
        """[R, Q, draws] recorded places for many replicates and all questions (or those in some rows); see `draws.orders`."""
        keys, sizes = self.question_keys, self.pool.sizes
        if rows is not None:
            keys, sizes = keys[rows], sizes[rows]
        return orders(self._key, keys, sizes, replicates, draws)

    def require(self, rows: int | npt.NDArray[np.intp] | None, n: int) -> None:
        """Make sure that n CoTs were recorded, for one question (by its row), for some, or for all (`None`).

        Raises:
            ShortPoolError: a pool is smaller; the message names the question and both numbers.
            OutOfRangeError: n below 1.
        """
        if n < 1:
            raise OutOfRangeError(f"{self.name} gives 1 CoT or more; n={n} was asked for.")
        row = rows if isinstance(rows, int) else self._smallest_pool(rows)
        size = int(self.pool.sizes[row])
        if n > size:
            name = self._view.votes.question_ids[row]
            advice = f"Ask for {size} or fewer, or record more" if size else "Select the other questions, or record it"
            cots = f"{size} recorded CoT{'' if size == 1 else 's'}"
            raise ShortPoolError(
                f"{self.name} has {cots} on question {name!r} of {self.dataset}; {n} were asked for. {advice}."
            )

    def _smallest_pool(self, rows: npt.NDArray[np.intp] | None) -> int:
        """Row of the question with the fewest CoTs."""
        if rows is None:
            return int(self.pool.sizes.argmin())
        return int(rows[self.pool.sizes[rows].argmin()])

    def numbered_as(self, view: View) -> bool:
        """Whether this LLM's answer codes mean the same as those of a view, see `Dataset.require`."""
        return self._view.numbers_as(view)

    def answers(self, row: int, samples: Sequence[int]) -> list[str | None]:
        """Canonical answers of some recorded CoTs of a question (by its row)."""
        candidates = self._view.candidates(row)
        return [None if code < 0 else candidates[code] for code in self.pool.codes[row, list(samples)].tolist()]

    def cot(self, row: int, sample: int) -> CoT:
        """One recorded CoT of a question (by its row)."""
        tokens = int(self.pool.output_tokens[row, sample])
        price = self.price
        dollars = None if price is None else _usd(price, 0, tokens)
        reason = FINISH_REASONS[int(self.pool.finish[row, sample])]
        return CoT(sample, self.answers(row, [sample])[0], Metadata(tokens, dollars, reason), self, row)

    def request(self, row: int) -> Request:
        """What was sent for a question (by its row)."""
        tokens = int(self.pool.prompt_tokens[row])
        known = None if tokens < 0 else tokens
        price = self.price
        dollars = None if price is None or known is None else _usd(price, known, 0)
        return Request(self._view.prompt(self.name, row), known, dollars)

    def texts(self, row: int) -> list[str | None]:
        """Texts of all recorded CoTs of a question (by its row), in recorded order."""
        return self._view.texts(self.name, row)

    def reasoning(self, row: int) -> list[str | None] | None:
        """Thoughts of all recorded CoTs of a question (by its row), in recorded order; `None` where none were kept."""
        return self._view.reasoning(self.name, row)

    @cached_property
    def reasoning_tokens(self) -> dict[str, list[int | None]]:
        """Question id -> how many of each CoT's output tokens were thoughts, of the questions on which the provider said so."""
        return self._view.reasoning_tokens(self.name)

    def known_prompt_tokens(self, row: int, otherwise: str) -> int:
        """The tokens of a question's prompt.

        Args:
            row: of the question.
            otherwise: what follows if they are not known, for the message.

        Raises:
            PriceNotFoundError: they were not recorded; the message names the question.
        """
        tokens = int(self.pool.prompt_tokens[row])
        if tokens < 0:
            name = self._view.votes.question_ids[row]
            raise PriceNotFoundError(f"The prompt tokens of {self.name} on {name!r} were not recorded: {otherwise}.")
        return tokens

    def texts_near(self, row: int) -> dict[int, list[str | None]]:
        """Texts of a question (by its row) and of those that are read with it, by row: for who keeps texts himself."""
        return self._view.texts_near(self.name, row)

    def prompts(self) -> list[str | None]:
        """What was sent for each question, by row: JSON arrays of messages, `None` where not known. Read anew at each call."""
        return self._view.prompts(self.name)

    @cached_property
    def info(self) -> LLMInfo:
        """What its recording says of it: temperature, limit on tokens, decoding."""
        return self.recording.llm_info(self.name)

    @property
    def recording(self) -> Recording:
        """Where the CoTs are."""
        return self._view.recording

    @property
    def question_ids(self) -> Sequence[str]:
        """Ids of the questions, by row."""
        return self._view.votes.question_ids

    def dollars(
        self, row: int, *, rounds: int, cots: int, output_tokens: int, auxiliary_prompt_tokens: int = 0
    ) -> float:
        """USD of what was consumed on a question (by its row): eq. (1) under this LLM's billing.

        Raises:
            PriceNotFoundError: the price list has no such LLM, or the prompt's tokens are not known.
        """
        if self.prices is None:
            raise PriceNotFoundError(
                f"{self.name} was loaded with prices='none'; load it with a price list to get dollars."
            )
        prompt_tokens = self.known_prompt_tokens(row, "no dollars")
        prompts = int(billed_prompts(self.billing, rounds, cots))
        return float(
            usd(self.prices.price(self.name), prompts * prompt_tokens + auxiliary_prompt_tokens, output_tokens)
        )


class MeteredLLM:
    """An LLM in front of one question: hands out the CoTs of one draw and counts them. A method sees this, and no more.

    Args:
        llm: the recorded LLM.
        row: of the question.
        replicate: of the draw; `None` hands the CoTs out in recorded order.
    """

    __slots__ = ("_auxiliary", "_closed", "_llm", "_order", "_rounds", "_row", "_tokens")

    def __init__(self, llm: LLM, row: int, replicate: int | None = 0) -> None:
        self._llm, self._row = llm, row
        self._order = tuple(range(int(llm.pool.sizes[row]))) if replicate is None else llm.order(row, replicate)
        self._rounds = 0
        self._tokens: list[int] = []
        self._auxiliary = (0, 0, 0)
        self._closed = False

    def __repr__(self) -> str:
        return f"MeteredLLM({self.name!r}, {self.cots} of {len(self._order)} CoTs handed out)"

    @property
    def name(self) -> str:
        """Of the LLM."""
        return self._llm.name

    @property
    def rounds(self) -> int:
        """Number of `sample` requests so far."""
        return self._rounds

    @property
    def cots(self) -> int:
        """CoTs handed out so far."""
        return len(self._tokens)

    @property
    def remaining(self) -> int:
        """CoTs that can still be handed out."""
        return len(self._order) - len(self._tokens)

    @property
    def tokens_billed(self) -> int:
        """Prompt and output tokens so far, prompts by the LLM's billing.

        Raises:
            PriceNotFoundError: the prompt's tokens are not known.
        """
        own = self._llm.known_prompt_tokens(self._row, "its tokens are not known")
        prompts = int(billed_prompts(self._llm.billing, self.rounds, self.cots))
        return prompts * own + self.auxiliary_prompt_tokens + self.output_tokens + self.auxiliary_output_tokens

    @property
    def output_tokens(self) -> int:
        """Tokens of the CoTs handed out so far, less what was cut off."""
        return sum(self._tokens)

    @property
    def auxiliary_calls(self) -> int:
        """Requests so far that gave no CoT: verifications, self-checks, rankings."""
        return self._auxiliary[0]

    @property
    def auxiliary_prompt_tokens(self) -> int:
        """Prompt tokens of those."""
        return self._auxiliary[1]

    @property
    def auxiliary_output_tokens(self) -> int:
        """Output tokens of those."""
        return self._auxiliary[2]

    def sample(self, k: int = 1) -> LLMResponse:
        """The next k CoTs of the draw, written to the ledger as one request.

        Raises:
            ShortPoolError: fewer than k are left.
            OutOfRangeError: k below 1, or no whole number.
            UsageError: the ledger is closed.
        """
        if self._closed:
            raise UsageError(
                f"This {self.name} was kept from another question or draw, whose ledger is closed; ask the one that the method "
                "was called with."
            )
        if k < 1 or k % 1:
            raise OutOfRangeError(f"A method asks {self.name} for 1 CoT or more at a time; {k!r} were asked for.")
        self._llm.require(self._row, self.cots + k)
        response = LLMResponse(self._order[self.cots : self.cots + k], self._llm, self._row)
        self._rounds += 1
        self._tokens += self._llm.pool.output_tokens[self._row, list(response.samples)].tolist()
        return response

    def truncate(self, index: int, tokens: int) -> None:
        """Stop a CoT early: only its first tokens are billed. Cutting a recorded CoT does not change what came before the cut.

        Args:
            index: which of the CoTs handed out so far, from 0.
            tokens: how many of its tokens were generated before it was stopped; more than it has changes nothing.

        Raises:
            OutOfRangeError: no such CoT, or a negative number of tokens.
        """
        if not 0 <= index < self.cots or tokens < 0:
            raise OutOfRangeError(
                f"{self.name} has handed out {self.cots} CoTs, numbered from 0; CoT {index} cannot be cut after {tokens} tokens."
            )
        self._tokens[index] = min(self._tokens[index], tokens)

    def charge(self, *, calls: int = 1, prompt_tokens: int = 0, output_tokens: int = 0) -> None:
        """Write requests to the ledger that give no CoT, such as a recorded verification: billed at this LLM's price.

        Raises:
            OutOfRangeError: a negative number.
        """
        if min(calls, prompt_tokens, output_tokens) < 0:
            raise OutOfRangeError(
                f"Costs only grow; {calls} calls of {prompt_tokens} and {output_tokens} tokens cannot be charged to {self.name}."
            )
        before = self._auxiliary
        self._auxiliary = (before[0] + calls, before[1] + prompt_tokens, before[2] + output_tokens)

    def uniform(self, seed: int = 0) -> float:
        """A random number in [0, 1) that depends on the question and the CoTs handed out so far alone; see `draws.uniforms`."""
        keys = self._llm.question_keys[self._row : self._row + 1]
        drawn = np.array(self._order[: max(self.cots, 1)], np.uint16)[None, None, :]
        return float(uniforms(keys, drawn, seed)[0, 0, -1])

    @property
    def dollar_cost(self) -> float:
        """USD so far; see `LLM.dollars`."""
        _, prompt_tokens, output_tokens = self._auxiliary
        return self._llm.dollars(
            self._row,
            rounds=self.rounds,
            cots=self.cots,
            output_tokens=self.output_tokens + output_tokens,
            auxiliary_prompt_tokens=prompt_tokens,
        )


def close_ledger(llm: MeteredLLM) -> None:
    """Close a ledger that has been read: a CoT handed out from now on would be counted nowhere. No method can do it."""
    llm._closed = True  # noqa: SLF001  the class is of this module, but methods see what it makes public


class Dataset:
    """The questions of a dataset. Iterating gives (question id, entry), as in Listing 1.

    Attributes:
        id: of the dataset.
        gold: [Q] code of the gold answer, -1 where there is none. Only evaluation may look at it.
        question_keys: [Q] what draws are made from: tell questions apart wherever they stand, see `feval.replay.draws`.
        recording_hashes: of every recording behind the questions and CoTs.
        recording_paths: folders of those.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self.id = view.votes.dataset
        self.gold: Integers = view.votes.gold
        self.question_keys = view.votes.question_keys
        self.recording_hashes = tuple(dict.fromkeys(s.recording.hash for s in view.all_views()))
        self.recording_paths = tuple(dict.fromkeys(s.recording.path for s in view.all_views()))

    def __repr__(self) -> str:
        return f"Dataset({self.id!r}, {len(self)} questions)"

    def __len__(self) -> int:
        return len(self.gold)

    def __iter__(self) -> Iterator[tuple[str, Entry]]:
        for question in self._view.questions:
            yield question.id, Entry(question.text, question.answer, question.choices, question.id)

    @overload
    def __getitem__(self, question: str) -> Entry: ...
    @overload
    def __getitem__(self, question: int) -> Entry: ...
    def __getitem__(self, question: str | int) -> Entry:
        """The entry of a question, by id or row."""
        found = self._view.questions[self._view.row(question)]
        return Entry(found.text, found.answer, found.choices, found.id)

    def require(self, llms: Sequence[LLM]) -> None:
        """Make sure that the answer codes of some LLMs are numbered as the golds are.

        Raises:
            UsageError: an LLM is from another `load`, whose codes mean other answers.
        """
        for llm in llms:
            if not llm.numbered_as(self._view):
                raise UsageError(
                    f"{llm!r} and {self!r} come from different calls of `load`, which number questions or answers "
                    "differently; open them together: load(dataset, [LLM, ...], [recording, ...])."
                )

    @property
    def question_ids(self) -> Sequence[str]:
        """Ids in recorded order."""
        return self._view.votes.question_ids

    def is_right(self, question: str | int, answer: str | None) -> bool:
        """Whether an answer votes with the gold, see `answer_key`.

        Args:
            question: its id or row.
            answer: as somebody wrote it, or as `sample` gives it; `None`, no answer, is never right.

        Raises:
            NotRecordedError: no such question, or one without a gold.
        """
        row = self._view.row(question)
        if self.gold[row] < 0:
            raise NotRecordedError(
                f"Question {self.question_ids[row]!r} of {self.id} has no gold answer, so nothing can be right or wrong; "
                "leave it out."
            )
        return answer is not None and self.answer_key(row, answer) == self._view.candidates(row)[int(self.gold[row])]

    def answer_key(self, question: str | int, answer: str | None) -> str | None:
        """The key that an answer votes with: its normal form, or that of the party that it was found equal to.

        Thoughts in it are not read, unless the kind is verbatim. Verdicts are those of the recording, so an answer that nobody
        recorded is equal to another only in its normal form.

        Args:
            question: its id or row.
            answer: as somebody wrote it, or as `sample` gives it; `None` for no answer.

        Returns:
            The key, one of `candidates` where the answer is equal to one; `None` for no answer, for thoughts without a reply, and
            for an answer that the kind cannot read.

        Raises:
            NotRecordedError: no such question.
        """
        row = self._view.row(question)
        if answer is None or answer in self._view.candidates(row):
            return answer

        kind = self._view.recording.dataset_info(self.id).answer_kind
        if kind != "verbatim":
            found = split(answer)
            answer = found.reply if found.answers else None
        form = canonical(kind, answer, self._view.questions[row].choices if kind == "choice" else ())
        return None if form is None else self._view.key(row, form)

    def candidates(self, question: str | int) -> list[str]:
        """The distinct answers of a question by code, the gold among them if there is one."""
        return self._view.candidates(self._view.row(question))


def load(
    dataset: str | Path,
    llms: str | Sequence[str] | None = None,
    recording: str | Path | Recording | Sequence[str | Path | Recording] | None = None,
    *,
    seed: int = 0,
    prices: str | Path | PriceList | None = None,
    billing: str = "once",
) -> tuple[Dataset, list[LLM]]:
    """Open recorded LLMs on a dataset, ready to vote (Listing 1).

    Args:
        dataset: id of the dataset, such as "gsm8k" or `DatasetType.GSM8K`; or, without `recording`, the address of a recording of
            one dataset on the Hugging Face Hub, `hf://namespace/name@commit`.
        llms: names of the LLMs; `None` opens all that were recorded.
        recording: a recording's folder or its address on the Hub, or several. `None` takes those in the environment variable
            FEVAL_RECORDING. Of a recording on the Hub only what is needed is fetched, once; the rest when it is asked for.
        seed: what every draw is made from.
        prices: id or file of a price list, or the list itself; "none" switches dollars off; `None` takes the list that the
            recording names. An LLM without a price votes all the same; only asking for its dollars is an error.
        billing: "once" (eq. 1 of the paper), "per_round" or "per_sample".

    Returns:
        The dataset and the LLMs, in the order asked for.

    Raises:
        NotRecordedError: the recordings lack the dataset or an LLM; the message lists what they hold.
        ConflictError: several recordings have the LLM, or contradict each other.
        UnknownNameError: no such price list or billing.
        RecordingError: a recording cannot be read.
        HubError: a recording cannot be fetched.
    """
    _check_billing(billing)
    if recording is None and _is_on_the_hub(dataset):
        [opened_there] = recordings = open_recordings(dataset)
        dataset = _only_dataset(opened_there)
    else:
        recordings = open_recordings(recording)
    names = _names(recordings, str(dataset), llms)
    for each in recordings:
        each.prepare(str(dataset), [name for name in names if (str(dataset), name) in each.manifest.pairs])
    view = open_view(recordings, str(dataset), names)
    lists = _Prices(prices, recordings) if not _is_price_list(prices) else cast("PriceList", prices)
    chosen: PriceList | _Prices | None = None if prices == "none" else lists
    opened = [
        LLM(view.of(name), _pool(name, view), seed=seed, prices=_none_if_unpriced(chosen), billing=billing)
        for name in names
    ]
    return Dataset(view), opened


def _known(values: npt.NDArray[np.float64]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def _noise(decoding: object) -> Noise | None:
    """What the decoding of an LLM says of shared noise."""
    told = decoding.get("noise") if isinstance(decoding, dict) else None
    if not isinstance(told, dict) or not isinstance(told.get("scheme"), str) or type(told.get("seed")) is not int:
        return None
    return Noise(told["scheme"], told["seed"])


def _pool(llm: str, view: View) -> Pool:
    votes = view.pool(llm)
    own = view.of(llm)
    channels: Channels = RecordedChannels(own.recording, view.votes.dataset, llm)
    if (rows := own.recorded_rows()) is not None:
        channels = channels.rows(rows)
    counts = view.candidate_counts()
    return Pool(
        llm,
        votes.codes,
        votes.output_tokens,
        votes.prompt_tokens,
        votes.sizes,
        votes.read_finish,
        counts,
        view.votes.question_keys,
        channels,
    )


def _is_price_list(prices: object) -> bool:
    if prices is None or isinstance(prices, (str, Path)):
        return False

    if not isinstance(prices, PriceList):
        raise UsageError(
            f"Prices are the id of a price list, a path or a PriceList(id, date, source, prices); {prices!r:.80} was given."
        )
    return True


def _none_if_unpriced(prices: PriceList | _Prices | None) -> PriceList | _Prices | None:
    return None if isinstance(prices, _Prices) and prices.name == "none" else prices


def _check_billing(billing: str) -> None:
    if billing != "once":
        billed_prompts(billing, 1, 1)


class _Prices:
    """A price list that is read when dollars are first asked for."""

    def __init__(self, given: str | Path | PriceList | None, recordings: Sequence[Recording]) -> None:
        named = list(dict.fromkeys(r.manifest.prices for r in recordings))
        if given is None and len(named) > 1:
            raise ConflictError(
                f"The recordings name different price lists ({', '.join(named)}); choose one with prices=."
            )
        self.name = cast("str | Path", named[0] if given is None else given)
        self._list: PriceList | None = None
        if given is not None and given != "none":
            self.get()

    def get(self) -> PriceList:
        if self._list is None:
            self._list = price_list(self.name)
        return self._list


def _usd(price: Price, prompt_tokens: int, output_tokens: int) -> float:

    return float(usd(price, prompt_tokens, output_tokens))


def open_recordings(given: str | Path | Recording | Sequence[str | Path | Recording] | None) -> list[Recording]:
    """Open what `load` takes as its recording.

    Args:
        given: a recording's folder, or several; `None` takes the folders in the environment variable FEVAL_RECORDING.

    Raises:
        UsageError: none was named.
        RecordingError: one cannot be read.
    """
    if given is None:
        folders: Sequence[str | Path | Recording] = split_places(os.environ.get("FEVAL_RECORDING", ""))
        if not folders:
            raise UsageError("No recording was named: give recording=FOLDER, or set FEVAL_RECORDING to its folder.")
    else:
        folders = [given] if isinstance(given, (str, Path, Recording)) else list(given)
        if not folders:
            raise UsageError("No recording was named: the list of recordings is empty.")
    return [folder if isinstance(folder, Recording) else _opened(folder) for folder in folders]


def _opened(place: str | Path) -> Recording:
    if not _is_on_the_hub(place):
        return open_recording(place)

    return open_place(place)


def _is_on_the_hub(place: str | Path) -> bool:
    if ":" not in str(place):  # a plain folder does not pay for an import
        return False

    return is_address(place)


def _only_dataset(recording: Recording) -> str:
    held = recording.dataset_ids()
    if len(held) != 1:
        where = recording.address or recording.path
        raise UsageError(
            f"{where} holds {len(held)} datasets ({', '.join(held) or 'none'}); name one and give the address as the recording: "
            f"load({(held or ['gsm8k'])[0]!r}, recording={str(where)!r})."
        )
    return held[0]


def _names(recordings: Sequence[Recording], dataset: str, llms: str | Sequence[str] | None) -> list[str]:
    """The LLMs asked for, as plain strings; all of the dataset if none was named."""
    if llms is None:
        found = [llm for recording in recordings for llm in recording.llm_names(dataset)]
        if not found:
            recordings[0].require(dataset)
            raise NotRecordedError(f"{recordings[0].path} has the questions of {dataset}, but no LLM's CoTs on them.")
        return list(dict.fromkeys(found))
    names = [str(llms)] if isinstance(llms, str) else [str(llm) for llm in llms]
    if len(set(names)) < len(names):
        raise UsageError(f"The same LLM was asked for twice: {', '.join(names)}.")
    return names
