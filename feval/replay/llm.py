"""A recorded LLM on one dataset: draws, answers, texts, dollars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from feval import replay
from feval.cards.billing import PICODOLLARS, billing_rule, usd
from feval.cards.tokens import NONE
from feval.errors import OutOfRangeError, PriceNotFoundError, ShortPoolError, UsageError
from feval.estimators.plurality import vote_counts
from feval.lazy import Plottable
from feval.recording.arrays import conversation
from feval.recording.layout.flat import Floats, Rows, UInt64
from feval.replay.draws import Orders, orders, pool_key, uniforms
from feval.values import inside

if TYPE_CHECKING:
    from feval.cards import Price, PriceList
    from feval.recording import LLMInfo, Recording
    from feval.recording.view import DatasetView
    from feval.replay.meter import MeteredLLM
    from feval.replay.pools import Pool
    from feval.replay.responses import LLMRequest, LLMResponse

LazyPrices = Callable[[], "PriceList | None"]
"""Gives the price list when dollars are first asked for; `None` where they were switched off."""


class SharedNoise(NamedTuple):
    """The random numbers that coupled LLMs share: how they are made, such as "gumbel-v1", and their
    random seed.
    """

    scheme: str
    seed: int

    def __str__(self) -> str:
        return f"noise {self.scheme} {self.seed}"


class LLM(Plottable):
    """A recorded LLM on one dataset. Call it with a question id to get CoTs.

    Attributes:
        name: full name of the variant.
        dataset: id of the dataset.
        seed: random seed for draws.
        billing: how prompts are charged, one of `feval.cards.billing.BILLINGS`.
        counter: name of the token counter.
        pool: its recorded CoTs as arrays.
        cautions: what its recording says that every result must, see `Manifest.cautions`.
        served: which models answered, where replies state another name than was asked; else `None`.
        noise: the random numbers its CoTs were drawn with, where other LLMs may share them; `None`
            where they are its own. Sample i of two LLMs with equal noise was drawn with the same
            random numbers (`feval record --set coupled=true`).
        texts: of all recorded CoTs of a question (by its row), in recorded order.
        texts_near: of a question (by its row) and of those read with it, by row: for callers with
            their own cache.
        reasoning: the thoughts of all recorded CoTs of a question (by its row); `None` where none
            were kept.
        marks: where these thoughts were in the raw texts.
        tool_calls: of all recorded CoTs of a question (by its row), see `Recording.tool_calls`.
        messages: what each turn of a question (by its row) replies to, as JSON; `None` for what is
            no turn.
        prompts: what was sent for each question, by row: JSON arrays of messages, `None` where not
            known. Not cached.
    """

    name: str
    _last_candidates: tuple[int, Sequence[str]] = (-1, ())
    """Row and answers of the question that was asked last: a method probes one question many
    times.
    """

    def __init__(
        self, view: DatasetView, pool: Pool, *, seed: int, prices: LazyPrices, billing: str
    ) -> None:
        self._prices, self._orders = prices, orders
        self.name, self.pool, self.seed, self.billing = pool.llm, pool, seed, billing
        self._read_from(view)
        self.marks, self.prompts = partial(view.marks, self.name), partial(view.prompts, self.name)
        self.texts_near = partial(view.texts_near, self.name)
        self.dataset = view.votes.dataset
        pair = self.dataset, self.name
        self.counter: str = view.recording.manifest.pairs[pair]["counter"]
        self.recording_hash = view.recording.hash
        self.cautions = view.recording.manifest.cautions
        found = view.recording.manifest.served_models()
        self.served = next((one for one in found if (one.dataset, one.llm) == pair), None)
        # `info` would import pyarrow.
        self.noise = _shared_noise(view.recording.manifest.llms[self.name]["decoding"])

    def _read_from(self, view: DatasetView) -> None:
        self._view, name = view, self.name
        self.texts, self.reasoning = partial(view.texts, name), partial(view.reasoning, name)
        self.messages, self.tool_calls = (
            partial(view.messages, name),
            partial(view.tool_calls, name),
        )

    def __repr__(self) -> str:
        return (
            f"LLM({self.name!r} on {self.dataset}, {len(self.pool.sizes)} questions,"
            f" {self.pool.smallest}+ CoTs each)"
        )

    @cached_property
    def prices(self) -> PriceList | None:
        """The price list in force; `None` where dollars were switched off."""
        return self._prices()

    @property
    def price(self) -> Price | None:
        """USD per million tokens; `None` where the price list has no such LLM, or dollars were
        switched off.
        """
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

        The same call always gives the same CoTs; the first five of a draw of twenty are the draw of
        five.

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
        draws = n if n is not None else N if N is not None else int(self.pool.sizes[row])
        self.require(row, draws)
        order = self.order(row, replicate)
        return replay.LLMResponse(order[:draws], replay.RecordedSource(self, row, order))

    def ask(self, question_id: str | int, replicate: int | None = 0) -> MeteredLLM:
        """Return the LLM for one question, with a meter: what a method written against `sample(k)`
        is given.

        Args:
            question_id: an id, or the row of the question.
            replicate: 0, 1, 2, ...: independent draws; `None` hands the CoTs out in recorded order.
        """
        row = self._view.row(question_id)
        size = int(self.pool.sizes[row])
        order = range(size) if replicate is None else self.order(row, replicate)
        return replay.MeteredLLM(replay.RecordedSource(self, row, order))

    def _with(self, **changes: Any) -> LLM:
        other = copy(self)
        vars(other).update(changes)
        return other

    def seeded(self, seed: int) -> LLM:
        """Return the same LLM with draws from another seed."""
        return self._with(seed=seed)

    def clocked(self, at_once: int | None = None) -> LLM:
        """Return the same LLM with a clock, so that meters count microseconds; see
        `Pool.clocked`.
        """
        return self._with(pool=self.pool.clocked(at_once))

    @property
    def states_usd(self) -> bool:
        """Whether what it costs is the USD that its CoTs state (prices="recorded")."""
        return self.prices is not None and self.prices.is_recorded

    @property
    def unpaid(self) -> int | None:
        """How many of its CoTs state no USD; `None` for all of them, or where that is to fetch."""
        own = self._view.of(self.name).recording
        unpaid = None if own.address else own.unpaid(self.dataset, self.name)
        return None if unpaid == self.pool.sizes.sum() else unpaid

    @property
    def is_counted(self) -> bool:
        """Whether its tokens were recorded; where not, they are stored as 0."""
        return self.counter != NONE

    @property
    def stated(self) -> tuple[str, ...]:
        """Which `Pool.amounts` its costs rest on."""
        names = {
            "picodollars": self.states_usd,
            "cached_tokens": billing_rule(self.billing).cache == "recorded",
        }
        return tuple(name for name, is_needed in names.items() if is_needed)

    def stating(self) -> LLM:
        """Return the same LLM with what its CoTs state, so that meters count it; see
        `Pool.stating`.
        """
        return self._with(pool=self.pool.stating(self.stated))

    @cached_property
    def stated_usd(self) -> Floats:
        """[Q, S] the USD that each CoT states, 0 where absent; see `Pool.stating`."""
        names = ["picodollars"]
        return self.pool.stating(names).amounts[names[0]] / PICODOLLARS

    def drawing(self, function: Callable[..., Orders]) -> LLM:
        """Return the same LLM with its orders from a function that gives what `draws.orders` does;
        see `SharedDraws`.
        """
        return self._with(_orders=function)

    @property
    def _key(self) -> int:
        """Pool key of its draws. LLMs that share noise share their draws: CoTs drawn together are
        handed out together.
        """
        return pool_key(
            self.seed, self.dataset, self.name if self.noise is None else str(self.noise)
        )

    @property
    def question_keys(self) -> UInt64:
        """[Q] the keys that draws are made from, see `feval.replay.draws`."""
        return self._view.votes.question_keys

    def order(self, row: int, replicate: int) -> tuple[int, ...]:
        """Return the whole draw of a question (by its row): recorded places, in the order in which
        they are handed out.
        """
        order = self.orders([replicate], int(self.pool.sizes[row]), np.array([row]))
        return tuple(order[0, 0].tolist())

    def orders(self, replicates: Sequence[int], draws: int, rows: Rows | None = None) -> Orders:
        """Return [R, Q, draws] recorded places, for all questions or those in some rows; see
        `draws.orders`.
        """
        keys, sizes = self.question_keys, self.pool.sizes
        if rows is not None:
            keys, sizes = keys[rows], sizes[rows]
        return self._orders(self._key, keys, sizes, replicates, draws)

    def require(self, rows: int | Rows | None, n: int) -> None:
        """Check that n CoTs were recorded, for one question (by its row), for several, or for all
        (`None`).

        Raises:
            ShortPoolError: a pool is smaller; the message names the question and both numbers.
            OutOfRangeError: n below 1.
            UsageError: it was recorded as trees of steps.
        """
        self.require_whole_cots()
        if n < 1:
            raise OutOfRangeError(f"{self.name} gives 1 CoT or more; n={n} was asked for.")
        sizes = self.pool.sizes
        if rows is None:
            row = int(sizes.argmin())
        else:
            row = rows if isinstance(rows, int) else int(rows[sizes[rows].argmin()])
        size = int(sizes[row])
        if n > size:
            name = self._view.votes.question_ids[row]
            advice = (
                f"Ask for {size} or fewer, or record more"
                if size
                else "Select the other questions, or record it"
            )
            cots = f"{size} recorded CoT{'' if size == 1 else 's'}"
            raise ShortPoolError(
                f"{self.name} has {cots} on question {name!r} of {self.dataset}; {n} were asked"
                f" for. {advice}."
            )

    def require_whole_cots(self) -> None:
        """Raise a `UsageError` if the LLM was recorded as trees of steps: a step is no sample of an
        answer.
        """
        if self.pool.channels.has_steps:
            shape, verbs = "trees of steps", "Search them by `llm.expand`"
            if self.pool.channels.has_turns:
                shape, verbs = (
                    "conversations of several turns",
                    "Follow them by `llm.sample` and `llm.reply`",
                )
            raise UsageError(
                f"{self.name} was recorded on {self.dataset} as {shape}, which are no whole CoTs."
                f" {verbs}, or name an LLM whose CoTs were recorded whole."
            )

    def numbered_as(self, view: DatasetView) -> bool:
        """Return whether this LLM's answer codes mean the same as those of a view, see
        `Dataset.require`.
        """
        return self._view.numbers_as(view)

    def answers(self, row: int, samples: Sequence[int]) -> list[str | None]:
        """Return the canonical answers of some recorded CoTs of a question (by its row)."""
        return self.answer_texts(row, self.pool.codes[row, list(samples)].tolist())

    def answer_texts(self, row: int, codes: Sequence[int]) -> list[str | None]:
        """Return the canonical answers that have some codes on a question (by its row); `None` for
        -1.
        """
        last, candidates = self._last_candidates
        if last != row:
            candidates = self._view.votes.candidates(row)
            self._last_candidates = row, candidates
        return [None if code < 0 else candidates[code] for code in codes]

    def request(self, row: int, sample: int | None = None) -> LLMRequest:
        """Return what was sent for a question (by its row); the whole conversation where `sample`
        is the place of a turn.
        """
        count, text = int(self.pool.prompt_tokens[row]), self._view.prompt(self.name, row)
        if sample is not None and self.pool.channels.has_turns:
            count += int(self.pool.extra_prompt_tokens(row)[sample])
            parents = self.pool.steps().parents[row].tolist()
            said = self.texts(row), self.messages(row), self.tool_calls(row)
            text = conversation(sample, parents, *said, text)
        tokens = None if count < 0 else count
        dollars = (
            None if self.price is None or tokens is None else float(usd(self.price, tokens, 0))
        )
        return replay.LLMRequest(text, tokens, dollars)

    @cached_property
    def reasoning_tokens(self) -> dict[str, list[int | None]]:
        """Question id -> how many of each CoT's output tokens were thoughts, where the provider
        said so.
        """
        return self._view.recording.reasoning_tokens(self.dataset, self.name)

    def per_question(self) -> dict[str, Any]:
        """Columns of a row per question; it looks at no gold.

        `question` (id), `cots`, `no_answer` (share of the CoTs), `answers` (distinct), `agreement`
        (share of the most frequent answer among all CoTs), `prompt_tokens`, `output_tokens` (mean
        of a CoT). NaN where there are no CoTs, or tokens are not known.
        """
        pool, nobody = self.pool, np.full(len(self.pool.sizes), -1)
        counts = vote_counts(pool.codes, nobody)
        cots, prompts = np.where(pool.sizes > 0, pool.sizes, np.nan), pool.prompt_tokens
        return {
            "question": list(self.question_ids),
            "cots": pool.sizes,
            "no_answer": counts.no_answer / cots,
            "answers": np.count_nonzero(counts.rivals, axis=1),
            "agreement": counts.rivals.max(axis=1, initial=0) / cots,
            "prompt_tokens": np.where(prompts < 0, np.nan, prompts),
            "output_tokens": (
                pool.output_tokens.sum(axis=1, dtype=np.int64)
                / (cots if self.is_counted else np.nan)
            ),
        }

    def known_prompt_tokens(self, row: int, otherwise: str) -> int:
        """Return the prompt tokens of a question (by its row).

        Raises:
            PriceNotFoundError: they were not recorded; the message says what follows from that
                (`otherwise`).
        """
        tokens = int(self.pool.prompt_tokens[row])
        if tokens < 0:
            name = self._view.votes.question_ids[row]
            raise PriceNotFoundError(
                f"The prompt tokens of {self.name} on {name!r} were not recorded: {otherwise}."
            )
        return tokens

    @cached_property
    def info(self) -> LLMInfo:
        """What the recording says of the LLM: temperature, token limit, decoding."""
        return self.recording.llm_info(self.name)

    @property
    def recording(self) -> Recording:
        """The recording that holds the CoTs."""
        return self._view.recording

    @property
    def question_ids(self) -> Sequence[str]:
        """Ids of the questions, by row."""
        return self._view.votes.question_ids

    def known_price(self) -> Price:
        """Return the USD per million tokens.

        Raises:
            PriceNotFoundError: the price list has no such LLM, or dollars were switched off.
        """
        if self.prices is None:
            raise PriceNotFoundError(
                f"{self.name} was loaded with prices='none'; load it with a price list to get"
                " dollars."
            )
        return self.prices.price(self.name)

    def uniform(self, row: int, places: Sequence[int], seed: int) -> float:
        """Return the random number of `draws.uniforms` after some places of a question."""
        keys, samples = self.question_keys[row : row + 1], np.array(places, np.uint16)
        return float(uniforms(keys, samples[None, None], seed)[0, 0, -1])


def _shared_noise(decoding: object) -> SharedNoise | None:
    """Return the shared noise that the decoding of an LLM names."""
    noise = inside(decoding, "noise")
    match noise:
        case {"scheme": str(scheme), "seed": int(seed)} if not isinstance(seed, bool):
            return SharedNoise(scheme, seed)
    return None
