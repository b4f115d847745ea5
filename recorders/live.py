"""A live LLM with the interface of a replayed one: the same `sample(k)` and the same ledger.

    with live(backend, "gpt-4o-mini", answer_kind="number") as llm:
        metered = llm.ask("What is 12 * 12?")
        answer = method("What is 12 * 12?", metered)      # a method written for the replay, unchanged
        print(answer, metered.cots, metered.dollar_cost)

Nothing is recorded here; use `feval record` for that, and run the same method on the recording.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

from feval.answers import canonical, extract
from feval.answers.equality import comparison, named_equality
from feval.answers.parties import Division
from feval.answers.thoughts import Thoughts, split_columns
from feval.cards.billing import Price, billed_prompts, usd
from feval.cards.cards import thoughts_of
from feval.cards.prices import PriceList, price_list
from feval.cards.tokens import count_words
from feval.errors import NotRecordedError, OutOfRangeError, PriceNotFoundError, UsageError
from feval.replay import CoTMetadata, LLMRequest
from feval.report.text import duration
from recorders.asking.pace import Limits, backoff
from recorders.errors import LONGEST_WAIT_S, RateLimited, StoppedError, Transient
from recorders.request import Backend, Completion, Decoding, Message, Request
from recorders.work.settings import default_decoding, default_prices

_T = TypeVar("_T")
_RECORDED_ONLY = (
    "scores", "step_scores", "scoring_tokens", "sequence_logprobs", "sequence_probabilities", "token_confidences"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LiveCoT:
    """One chain of thought; the attributes are those of a replayed one.

    Attributes:
        raw_text: the reply, without the thoughts before it.
        answer: voting key of the answer; `None` for no answer.
        tokens: output tokens by the provider's count, or 1.365 per word if there is none.
        dollar_cost: USD of the output tokens; `None` without a price.
        finish_reason: a word of `feval.cards.finish_reasons.FINISH_REASONS`.
        sample: index among the CoTs of its question.
        reasoning: the thoughts; `None` if the provider does not show them.
    """

    raw_text: str
    answer: str | None
    tokens: int
    dollar_cost: float | None
    finish_reason: str
    sample: int
    reasoning: str | None = None

    @property
    def metadata(self) -> CoTMetadata:
        """Cost and end, as Listing 3 of FEval-TTC has them."""
        return CoTMetadata(self.tokens, self.dollar_cost, self.finish_reason)


@dataclass(frozen=True, slots=True)
class LiveResponse:
    """The CoTs of one `sample`, in the order of arrival, and the request that was sent."""

    cots: list[LiveCoT]
    request: LLMRequest
    _metered: MeteredLiveLLM = field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.cots)

    @property
    def num_cots(self) -> int:
        """Number of CoTs."""
        return len(self.cots)

    @property
    def answers(self) -> list[str | None]:
        """Canonical answers, `None` for no answer."""
        return [cot.answer for cot in self.cots]

    @property
    def tokens(self) -> int:
        """Output tokens of all CoTs."""
        return sum(cot.tokens for cot in self.cots)

    @property
    def dollar_cost(self) -> float:
        """USD of the request and all CoTs, by eq. (1) of FEval-TTC and the billing.

        Raises:
            PriceNotFoundError: the price list has no such LLM.
        """
        return self._metered.dollars(1, len(self.cots), self.tokens)

    def __getattr__(self, name: str) -> NoReturn:
        """Explain what only a replayed response has."""
        if name in _RECORDED_ONLY:
            raise NotRecordedError(
                f"A live CoT has no {name.replace('_', ' ')}: nobody scored it, and its log-probabilities were not kept. Record "
                "with `feval record --logprobs K`, score with `feval score`, and run the method on the recording."
            )
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")


@dataclass(frozen=True, slots=True)
class _Terms:
    """What all questions to one live LLM share."""

    backend: Backend
    model: str
    answer_kind: str
    equality: str
    thoughts: Thoughts | None
    decoding: Decoding
    messages: Callable[[str], Sequence[Message]]
    price: Price | None
    billing: str
    retries: int
    wait: Callable[[float], Coroutine[Any, Any, None]]


@lru_cache(maxsize=1024)
def _division(equality: str, question: str) -> Division:  # noqa: ARG001  one for each question
    """Return the parties of the answers to a question so far, shared by all LLMs so that their votes pool."""
    return Division(comparison(equality))


class _Loop:
    """An event loop in its own thread, so that methods can be plain functions."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="live-llm", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        return self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C: nobody waits for the reply any more
            raise

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class LiveLLM:
    """A live LLM; `ask` gives it a question. Use it as a context manager, or call `close`."""

    def __init__(self, name: str, terms: _Terms) -> None:
        self.name = name
        self._terms = terms
        self._loop = _Loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, question: str, choices: Sequence[tuple[str, str]] = ()) -> MeteredLiveLLM:
        """Return the LLM for one question, with a meter: what a method is given.

        Args:
            question: the text that the prompt is made of.
            choices: (label, text) of its options, for reading answers.
        """
        return MeteredLiveLLM(self.name, self._terms, self._loop, question, choices)

    def close(self) -> None:
        """Close connections and the thread; do nothing if closed."""
        if self._loop.closed:
            return
        try:
            self._loop.run(self._terms.backend.aclose())
        finally:
            self._loop.close()


@dataclass
class MeteredLiveLLM:
    """A live LLM for one question: every `sample` asks for new CoTs and counts them.

    Attributes:
        name: the LLM's name.
        rounds: number of `sample` requests so far.
        cots: CoTs so far.
        output_tokens: of all CoTs.
        prompt_tokens: of the request, by the provider's count, or 1.365 per word; 0 before the first `sample`.
        auxiliary_calls: requests without a CoT, counted by `charge`.
        auxiliary_prompt_tokens: their prompt tokens.
        auxiliary_output_tokens: their output tokens.
        sequential_tokens: over all `sample` requests, the most tokens of a CoT, summed.
        longest_trace_tokens: the most tokens of any CoT.
        probe_calls, probe_tokens: 0, since nothing is probed live.
    """

    name: str
    _terms: _Terms = field(repr=False)
    _loop: _Loop = field(repr=False)
    _question: str = field(repr=False)
    _choices: Sequence[tuple[str, str]] = field(repr=False)
    rounds: int = 0
    cots: int = 0
    output_tokens: int = 0
    prompt_tokens: int = 0
    auxiliary_calls: int = 0
    auxiliary_prompt_tokens: int = 0
    auxiliary_output_tokens: int = 0
    sequential_tokens: int = 0
    longest_trace_tokens: int = 0
    probe_calls: int = 0
    probe_tokens: int = 0

    def sample(self, k: int = 1) -> LiveResponse:
        """Ask for k new CoTs.

        Raises:
            OutOfRangeError: k below 1.
            StoppedError: requests failed too often.
            BackendError: no request works, and why.
            UsageError: the LLM was closed.
        """
        if self._loop.closed:
            raise UsageError(f"{self.name} was closed; ask it inside the `with` block, or make another with `live`.")
        if k < 1:
            raise OutOfRangeError(f"A method asks {self.name} for 1 CoT or more at a time; {k} were asked for.")
        completions = self._loop.run(self._ask(range(self.cots, self.cots + k)))
        cots = [self._cot(completion, self.cots + place) for place, completion in enumerate(completions)]
        response = LiveResponse(cots, self._sent(), self)
        self.rounds, self.cots = self.rounds + 1, self.cots + k
        self.output_tokens += response.tokens
        longest = max(cot.tokens for cot in cots)
        self.sequential_tokens += longest
        self.longest_trace_tokens = max(self.longest_trace_tokens, longest)
        return response

    def start(self, k: int = 1, *, limit: int | None = None) -> NoReturn:  # noqa: ARG002  as of the replay
        """Refuse: a live CoT is generated to its end.

        Raises:
            NotRecordedError: always.
        """
        raise NotRecordedError(
            f"CoTs of {self.name} are generated to their ends and cannot be followed as they grow. Methods that do so run on a "
            "recording with probes."
        )

    @property
    def remaining(self) -> int:
        """CoTs that can still be asked for: unlimited."""
        return sys.maxsize

    @property
    def tokens_billed(self) -> int:
        """Prompt and output tokens so far, prompts by the billing."""
        prompts = int(billed_prompts(self._terms.billing, self.rounds, self.cots))
        spent = self.output_tokens + self.auxiliary_prompt_tokens + self.auxiliary_output_tokens
        return prompts * self.prompt_tokens + spent

    def charge(self, *, calls: int = 1, prompt_tokens: int = 0, output_tokens: int = 0) -> None:
        """Count requests that the method made elsewhere, such as a verification, at this LLM's price.

        Raises:
            OutOfRangeError: a negative number.
        """
        if min(calls, prompt_tokens, output_tokens) < 0:
            raise OutOfRangeError(
                f"Costs only grow; {calls} calls of {prompt_tokens} and {output_tokens} tokens cannot be charged to {self.name}."
            )
        self.auxiliary_calls += calls
        self.auxiliary_prompt_tokens += prompt_tokens
        self.auxiliary_output_tokens += output_tokens

    def truncate(self, index: int, tokens: int) -> NoReturn:
        """Refuse: a live CoT was generated to its end and is paid for.

        Raises:
            NotRecordedError: always.
        """
        raise NotRecordedError(
            f"CoT {index} of {self.name} was generated to its end and is paid for; it cannot be cut after {tokens} tokens. "
            "Methods that cut CoTs run on a recording."
        )

    def uniform(self, seed: int = 0) -> float:  # noqa: ARG002  live randomness is not reproducible
        """Return a random number in [0, 1)."""
        return secrets.randbits(53) / 2.0**53

    @property
    def dollar_cost(self) -> float:
        """USD so far, by eq. (1) of FEval-TTC and the billing.

        Raises:
            PriceNotFoundError: the price list has no such LLM.
        """
        sampled = self.dollars(self.rounds, self.cots, self.output_tokens)
        if not self.auxiliary_calls or self._terms.price is None:
            return sampled
        return sampled + float(usd(self._terms.price, self.auxiliary_prompt_tokens, self.auxiliary_output_tokens))

    def dollars(self, rounds: int, cots: int, output_tokens: int) -> float:
        """Return the USD of some requests for this question and the CoTs that came back."""
        if self._terms.price is None:
            raise PriceNotFoundError(f"There is no price for {self.name}; name a price list that has it.")
        prompts = int(billed_prompts(self._terms.billing, rounds, cots))
        return float(usd(self._terms.price, prompts * self.prompt_tokens, output_tokens))

    def _sent(self) -> LLMRequest:
        messages = [{"role": message.role, "content": message.content} for message in self._messages()]
        price = self._terms.price
        dollars = None if price is None else float(usd(price, self.prompt_tokens, 0))
        return LLMRequest(json.dumps(messages, ensure_ascii=False), self.prompt_tokens, dollars)

    def _messages(self) -> tuple[Message, ...]:
        return tuple(self._terms.messages(self._question))

    async def _ask(self, samples: Sequence[int]) -> list[Completion]:
        """Ask until every sample is there; servers that send fewer at a time are asked again."""
        terms = self._terms
        messages = self._messages()
        request = Request("live", "live", messages, terms.model, terms.decoding)
        completions: list[Completion] = []
        failures = 0
        while len(completions) < len(samples):
            try:
                completions += await terms.backend.complete(request, list(samples[len(completions) :]))
                failures = 0
            except (RateLimited, Transient) as error:
                failures += 1
                if failures > terms.retries:
                    raise StoppedError(
                        f"{self.name} failed {failures} times in a row ({error.reason}). Check that the server runs, or allow "
                        "more retries."
                    ) from error
                pause = backoff(Limits(), failures, request.key())
                if (error.retry_after or 0) > LONGEST_WAIT_S:
                    raise StoppedError(
                        f"{self.name} cannot be asked now: {error.reason}, and feval waits {duration(LONGEST_WAIT_S)} at most. "
                        "Ask again later."
                    ) from error
                await terms.wait(pause if error.retry_after is None else error.retry_after)
        counted = next((c.prompt_tokens for c in completions if c.prompt_tokens is not None), None)
        self.prompt_tokens = counted if counted is not None else sum(count_words(m.content) for m in messages)
        return completions[: len(samples)]

    def _cot(self, completion: Completion, sample: int) -> LiveCoT:
        (reply,), reasoning, _, (reason,), (readable,) = split_columns(
            [completion.text], [completion.reasoning], [completion.finish_reason], self._terms.thoughts
        )
        raw = extract(self._terms.answer_kind, reply or "", self._choices) if readable else None
        form = canonical(self._terms.answer_kind, raw, self._choices)
        answer = None if form is None else _division(self._terms.equality, self._question).add(form)
        counted = completion.output_tokens
        tokens = count_words(completion.text) + count_words(completion.reasoning or "") if counted is None else counted
        price = self._terms.price
        dollars = None if price is None else float(usd(price, 0, tokens))
        return LiveCoT(reply or "", answer, tokens, dollars, reason, sample, reasoning[0] if reasoning else None)


def live(
    backend: Backend,
    llm: str,
    *,
    answer_kind: str,
    equality: str | None = None,
    model: str | None = None,
    decoding: Decoding | None = None,
    messages: Callable[[str], Sequence[Message]] | None = None,
    prices: str | PriceList | None = None,
    billing: str = "once",
    retries: int = 5,
    wait: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
) -> LiveLLM:
    """Return a live LLM with the replay's `sample(k)` and ledger.

    Args:
        backend: asked, and closed with the LLM.
        llm: name, such as "gpt-4o-mini@t=0.8"; the part before "@" finds the price.
        answer_kind: a key of `feval.answers.KINDS` except "verbatim".
        equality: of answers, see `feval.answers.equality.named_equality`; `None`: that of the answer kind. An answer is compared
            with earlier ones to the same question, whichever LLM gave them.
        model: as the provider calls it; `None`: the part of `llm` before "@".
        decoding: sampling parameters; `None`: see `recorders.work.settings.default_decoding`.
        messages: returns what is sent for a question; `None`: the question as one user message.
        prices: a price list or its id; "none" for no dollars; `None`: see `recorders.work.settings.default_prices`.
        billing: "once", "per_round" or "per_sample".
        retries: after temporary failures, before giving up.
        wait: for tests.

    Raises:
        UnknownNameError: no such answer kind, price list or billing.
        UsageError: an answer kind that is not read from texts.
        OutOfRangeError: negative retries.
    """
    canonical(answer_kind, None)
    if answer_kind == "verbatim":
        raise UsageError("Verbatim answers are not read from texts; name another answer kind for a live LLM.")
    prices = default_prices(llm) if prices is None else prices
    billed_prompts(billing, 1, 1)
    if retries < 0:
        raise OutOfRangeError(f"The number of retries must be 0 or more; {retries} was given.")
    listed = None if prices == "none" else price_list(prices) if isinstance(prices, str) else prices
    terms = _Terms(
        backend,
        model or llm.split("@", 1)[0],
        answer_kind,
        named_equality(answer_kind, equality),
        thoughts_of(llm),
        decoding or default_decoding(llm),
        messages or _as_asked,
        None if listed is None else listed.find(llm),
        billing,
        retries,
        wait,
    )
    return LiveLLM(llm, terms)


def _as_asked(question: str) -> Sequence[Message]:
    return [Message("user", question)]
