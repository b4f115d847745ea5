"""A live LLM, asked one question, with a meter: new CoTs, or traces that grow piece by piece."""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar, overload

import numpy as np

from feval.answers import canonical, extract
from feval.answers.equality import comparison, named_equality
from feval.answers.parties import Division
from feval.answers.thoughts import Thoughts, reply_behind, split_columns
from feval.cards.billing import Price, billed_prompts, usd
from feval.cards.cards import thoughts_of
from feval.cards.finish_reasons import UNANSWERED
from feval.cards.prices import PriceList, price_list
from feval.cards.tokens import count_words
from feval.errors import NotRecordedError, OutOfRangeError, PriceNotFoundError, UsageError
from feval.recording import Question
from feval.recording.votes import name_key
from feval.replay import LLMRequest
from feval.replay.draws import uniforms
from recorders.asking.probing import Probing, prefix, settled
from recorders.asking.trees import Tree
from recorders.live.loop import Loop, insist
from recorders.live.nodes import Expanding, LiveNode, Rating
from recorders.live.replies import LiveCoT, LiveResponse
from recorders.live.traces import Growth, LiveTrace, Reply
from recorders.request import Backend, Completion, Decoding, Message, Prefill, Request
from recorders.scoring.scorer import Scorer
from recorders.work.probe_rows import confidence_of
from recorders.work.settings import default_cue, default_decoding, default_prices, tree_of

_T = TypeVar("_T")


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
    probing: Probing
    tree: Tree
    scorer: Scorer | None
    wait: Callable[[float], Coroutine[Any, Any, None]]


@lru_cache(maxsize=1024)
def _division(equality: str, question: str) -> Division:  # noqa: ARG001  one for each question
    """Return the parties of the answers to a question so far, shared by all LLMs so that their votes pool."""
    return Division(comparison(equality))


class LiveLLM:
    """A live LLM; `ask` gives it a question. Use it as a context manager, or call `close`."""

    def __init__(self, name: str, terms: _Terms) -> None:
        self.name = name
        self._terms = terms
        self._loop = Loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(
        self, question: str, choices: Sequence[tuple[str, str]] = (), *, dataset: str = "", question_id: str = ""
    ) -> MeteredLiveLLM:
        """Return the LLM for one question, with a meter: what a method is given.

        Args:
            question: the text that the prompt is made of.
            choices: (label, text) of its options, for reading answers.
            dataset: id of the dataset that it is from.
            question_id: its id; random numbers of `uniform` are then those of a replay in recorded order.
        """
        asked = Question(question_id, question, choices=tuple(choices))
        return MeteredLiveLLM(self.name, self._terms, self._loop, asked, dataset)

    def close(self) -> None:
        """Close connections and the thread; do nothing if closed."""
        if self._loop.closed:
            return
        try:
            self._loop.run(self._terms.backend.aclose())
            if self._terms.scorer is not None:
                self._loop.run(self._terms.scorer.aclose())
        finally:
            self._loop.close()


@dataclass
class MeteredLiveLLM:
    """A live LLM for one question: every `sample` asks for new CoTs and counts them.

    Attributes:
        name: the LLM's name.
        rounds: number of `sample`, `start` and `expand` requests so far.
        cots: CoTs so far, traces and steps included.
        output_tokens: of all CoTs.
        prompt_tokens: of the request, by the provider's count, or 1.365 per word; 0 before the first `sample`.
        auxiliary_calls: requests without a CoT, counted by `charge`.
        auxiliary_prompt_tokens: their prompt tokens.
        auxiliary_output_tokens: their output tokens.
        sequential_tokens: over rounds (`sample`, `advance`, `expand`), the most tokens that any CoT generated in it, summed.
        longest_trace_tokens: the most tokens of any CoT, or path of steps.
        probe_calls: probes so far.
        probe_tokens: output tokens of the probes; their prompts count as a cached prefix and are not billed.
    """

    name: str
    _terms: _Terms = field(repr=False)
    _loop: Loop = field(repr=False)
    _question: Question = field(repr=False)
    _dataset: str = field(repr=False)
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
    _growths: dict[LiveTrace, Growth] = field(default_factory=dict, repr=False)
    _expanding: Expanding | None = field(default=None, repr=False)

    def sample(self, k: int = 1) -> LiveResponse:
        """Ask for k new CoTs.

        Raises:
            OutOfRangeError: k below 1.
            StoppedError: requests failed too often.
            BackendError: no request works, and why.
            UsageError: the LLM was closed.
        """
        self._require(k)
        completions = self._loop.run(self._ask(range(self.cots, self.cots + k)))
        cots = [self._cot(completion, self.cots + place) for place, completion in enumerate(completions)]
        response = LiveResponse(cots, self._sent(), self.dollars)
        tokens = [cot.tokens for cot in cots]
        self._count(tokens, tokens)
        return response

    def _count(self, tokens: Sequence[int], paths: Sequence[int]) -> None:
        """Count a round of CoTs or steps, and the tokens of the paths to them."""
        self.rounds, self.cots = self.rounds + 1, self.cots + len(tokens)
        self.output_tokens += sum(tokens)
        self.sequential_tokens += max(tokens)
        self.longest_trace_tokens = max(self.longest_trace_tokens, *paths)

    def start(self, k: int = 1, *, limit: int | None = None) -> list[LiveTrace]:
        """Return k CoTs as traces that have generated nothing yet; see `feval.replay.MeteredLLM.start`.

        Raises:
            OutOfRangeError: k or the limit is below 1.
            UsageError: the LLM was closed.
        """
        self._require(k)
        if limit is not None and limit < 1:
            raise OutOfRangeError(f"A trace of {self.name} is cut at 1 token or more; limit={limit} was given.")
        most, indices = self._terms.decoding.max_tokens or math.inf, range(self.cots, self.cots + k)
        growths = [Growth(index, most, limit or math.inf) for index in indices]
        traces = [LiveTrace(growth, self.name, self._probe) for growth in growths]
        self._growths.update(zip(traces, growths, strict=True))
        self.rounds, self.cots = self.rounds + 1, self.cots + k
        return traces

    def advance(self, traces: LiveTrace | Sequence[LiveTrace], tokens: int | None = None) -> None:
        """Let traces grow by so many tokens, all at once: one round; see `feval.replay.MeteredLLM.advance`.

        Raises:
            UsageError: no number of tokens, a trace is not running, comes twice or is another LLM's, or the LLM was closed.
            OutOfRangeError: tokens below 1.
            StoppedError, BackendError: as for `sample`.
        """
        chosen = [traces] if isinstance(traces, LiveTrace) else list(traces)
        if tokens is None:
            raise UsageError(
                f"A live trace of {self.name} grows by a number of tokens; give it, since there are no probes yet."
            )
        self._require(tokens)
        growths = [
            growth for trace in set(chosen) if trace.running and (growth := self._growths.get(trace)) is not None
        ]
        if len(growths) < len(chosen):
            raise UsageError(
                f"{self.name} advances running traces that it started on this question, each once in a round; {chosen!r:.200} "
                "were given."
            )
        before = [growth.tokens for growth in growths]
        self._loop.run(self._grow(growths, tokens))
        grown = [growth.tokens - had for growth, had in zip(growths, before, strict=True)]
        self.output_tokens += sum(grown)
        self.sequential_tokens += max(grown, default=0)
        self.longest_trace_tokens = max([self.longest_trace_tokens, *(growth.tokens for growth in growths)])

    @overload
    def expand(self, nodes: LiveNode | None = None, k: int = 1) -> list[LiveNode]: ...
    @overload
    def expand(self, nodes: Sequence[LiveNode | None], k: int = 1) -> list[list[LiveNode]]: ...
    def expand(
        self, nodes: LiveNode | Sequence[LiveNode | None] | None = None, k: int = 1
    ) -> list[LiveNode] | list[list[LiveNode]]:
        """Ask for k more steps after a node, or after each of several: one round; see `feval.replay.MeteredLLM.expand`.

        Raises:
            OutOfRangeError: k below 1.
            UsageError: a node that ends a solution, or is of another question, or the LLM was closed.
            StoppedError, BackendError: as for `sample`; also of the scorer.
        """
        self._require(k)
        if self._expanding is None:
            terms, request = self._terms, self._request(self._terms.decoding)
            rating = (
                None if terms.scorer is None else Rating(terms.scorer, self._question, request.prompt(), self._insist)
            )
            self._expanding = Expanding(
                self.name, terms.tree, request, terms.thoughts, self._asked, self._final, rating
            )
        several = [nodes] if nodes is None or isinstance(nodes, LiveNode) else list(nodes)
        steps = self._loop.run(self._expanding.expand(several, k))
        if made := [step for own in steps for step in own]:
            self._count([step.tokens for step in made], [step.path_tokens for step in made])
        return steps[0] if nodes is None or isinstance(nodes, LiveNode) else steps

    def _asked(self, request: Request, samples: Sequence[int]) -> Awaitable[list[Completion]]:
        return self._ask(samples, request.decoding, request.prefill)

    def _final(self, text: str, finish_reason: str) -> str | None:
        return None if finish_reason in UNANSWERED else self._voting(self._extracted(text))

    async def _grow(self, growths: Sequence[Growth], tokens: int) -> None:
        async def one(growth: Growth) -> None:
            asked = growth.piece(tokens)
            beginning = self._beginning(growth.text)[0] if growth.text else None
            decoding = replace(self._terms.decoding, max_tokens=asked)
            [piece] = await self._ask([growth.index], decoding, beginning)
            if piece.reasoning:
                raise UsageError(
                    f"The server of {self.name} moves thoughts into a field of their own, so that a trace cannot be continued. "
                    "Serve it without a reasoning parser."
                )
            growth.grow(piece.text, _tokens(piece), asked, ended=piece.finish_reason != "length")

        await asyncio.gather(*map(one, growths))

    def _beginning(self, text: str) -> tuple[Prefill, str]:
        """Return a text as the beginning of a reply, and what ends the thought that it is in."""
        beginning, closing = prefix({"text": text}, len(text), self._terms.thoughts)
        return replace(beginning, template=self._terms.probing.template), closing

    def _probe(self, growth: Growth) -> Reply:
        """Make the LLM answer, or return the answer it ended with."""
        if growth.finished:
            return Reply(self._cot(Completion(growth.text, "unknown"), growth.index).answer, None)
        self._require(1)
        probing, (beginning, closing) = self._terms.probing, self._beginning(growth.text)
        decoding = probing.decoding(self._terms.decoding)
        beginning = replace(beginning, text=f"{beginning.text}{closing}{probing.cue}")
        [completion] = self._loop.run(self._ask([0], decoding, beginning))
        completion = settled(completion, self._terms.backend, self._terms.model)
        self.probe_calls += 1
        self.probe_tokens += _tokens(completion)
        reply = reply_behind(probing.cue, completion.text)
        raw = None if reply is None else self._extracted(reply)
        return Reply(self._voting(raw), confidence_of(asdict(completion), raw))

    def _require(self, k: int) -> None:
        if self._loop.closed:
            raise UsageError(f"{self.name} was closed; ask it inside the `with` block, or make another with `live`.")
        if k < 1 or k % 1:
            raise OutOfRangeError(
                f"A method asks {self.name} for 1 CoT or token or more at a time; {k} were asked for."
            )

    @property
    def remaining(self) -> int:
        """CoTs that can still be asked for: unlimited."""
        return sys.maxsize

    @property
    def tokens_billed(self) -> int:
        """Prompt and output tokens so far, prompts by the billing."""
        prompts = int(billed_prompts(self._terms.billing, self.rounds, self.cots))
        spent = self.output_tokens + self.auxiliary_prompt_tokens + self.auxiliary_output_tokens + self.probe_tokens
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

    def uniform(self, seed: int = 0) -> float:
        """Return a random number in [0, 1); of a question with an id, that of a replay in recorded order."""
        if not self._question.id:
            return secrets.randbits(53) / 2.0**53
        key = np.array([name_key("feval/question", self._dataset, self._question.id)], np.uint64)
        return float(uniforms(key, np.arange(max(self.cots, 1))[None, None], seed)[0, 0, -1])

    @property
    def dollar_cost(self) -> float:
        """USD so far, by eq. (1) of FEval-TTC and the billing.

        Raises:
            PriceNotFoundError: the price list has no such LLM.
        """
        sampled = self.dollars(self.rounds, self.cots, self.output_tokens + self.probe_tokens)
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
        sent = self._request(self._terms.decoding).messages
        messages = [{"role": message.role, "content": message.content} for message in sent]
        price = self._terms.price
        dollars = None if price is None else float(usd(price, self.prompt_tokens, 0))
        return LLMRequest(json.dumps(messages, ensure_ascii=False), self.prompt_tokens, dollars)

    def _request(self, decoding: Decoding, prefill: Prefill | None = None) -> Request:
        messages = tuple(self._terms.messages(self._question.text))
        return Request(
            self._dataset or "live", self._question.id or "live", messages, self._terms.model, decoding, prefill
        )

    async def _ask(
        self, samples: Sequence[int], decoding: Decoding | None = None, prefill: Prefill | None = None
    ) -> list[Completion]:
        """Ask until every sample is there; servers that send fewer at a time are asked again."""
        request = self._request(decoding or self._terms.decoding, prefill)
        completions: list[Completion] = []
        while len(completions) < len(samples):
            rest = list(samples[len(completions) :])
            completions += await self._insist(partial(self._terms.backend.complete, request, rest), request.key())
        if prefill is not None:
            return completions[: len(samples)]
        counted = next((c.prompt_tokens for c in completions if c.prompt_tokens is not None), None)
        self.prompt_tokens = counted if counted is not None else sum(count_words(m.content) for m in request.messages)
        return completions[: len(samples)]

    def _insist(self, attempt: Callable[[], Awaitable[_T]], key: str) -> Awaitable[_T]:
        return insist(attempt, key, self.name, self._terms.retries, self._terms.wait)

    def _cot(self, completion: Completion, sample: int) -> LiveCoT:
        (reply,), reasoning, _, (reason,), (readable,) = split_columns(
            [completion.text], [completion.reasoning], [completion.finish_reason], self._terms.thoughts
        )
        raw = self._extracted(reply or "") if readable else None
        answer, tokens = self._voting(raw), _tokens(completion)
        price = self._terms.price
        dollars = None if price is None else float(usd(price, 0, tokens))
        return LiveCoT(reply or "", answer, tokens, dollars, reason, sample, reasoning[0] if reasoning else None)

    def _extracted(self, reply: str) -> str | None:
        return extract(self._terms.answer_kind, reply, self._question.choices)

    def _voting(self, raw: str | None) -> str | None:
        form = canonical(self._terms.answer_kind, raw, self._question.choices)
        return None if form is None else _division(self._terms.equality, self._question.text).add(form)


def _tokens(completion: Completion) -> int:
    counted = completion.output_tokens
    return count_words(completion.text) + count_words(completion.reasoning or "") if counted is None else counted


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
    probe_cue: str | None = None,
    probe_tokens: int = 20,
    probe_template: str | None = None,
    step_stop: str | None = None,
    step_depth: int | None = None,
    step_template: str | None = None,
    scorer: Scorer | None = None,
    wait: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
) -> LiveLLM:
    """Return a live LLM with the replay's `sample(k)`, `start(k)`, `expand(node, k)` and ledger.

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
        probe_cue: put behind a trace to make the LLM answer; `None`: see `recorders.work.settings.default_cue`.
        probe_tokens: most output tokens of a probe.
        probe_template: see `recorders.request.Prefill`.
        step_stop: text that a step ends at; `None`: as `feval record --tree` has it.
        step_depth: steps of the longest path, whose last one goes on to the end of the solution; `None`: likewise.
        step_template: see `recorders.request.Prefill`.
        scorer: of each step's path, as `recorders.scoring.scorers.make_scorer` gives it; closed with the LLM, and not charged.
        wait: for tests.

    Raises:
        UnknownNameError: no such answer kind, price list or billing.
        UsageError: an answer kind that is not read from texts.
        OutOfRangeError: negative retries, or a depth below 1.
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
        Probing(1, default_cue(llm) if probe_cue is None else probe_cue, probe_tokens, probe_template),
        tree_of(llm, 1, 1, step_depth, step_stop, step_template),
        scorer,
        wait,
    )
    return LiveLLM(llm, terms)


def _as_asked(question: str) -> Sequence[Message]:
    return [Message("user", question)]
