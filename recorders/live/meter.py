"""A live LLM, asked one question, with a meter: new CoTs, replies to them, traces that grow piece
by piece, steps.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, NoReturn, TypeVar, overload

import numpy as np

from feval.answers import canonical, extract
from feval.answers.equality import comparison
from feval.answers.parties import Division
from feval.answers.thoughts import Thoughts, reply_behind, split_columns
from feval.cards.billing import Price, billed_prompts, usd
from feval.cards.finish_reasons import UNANSWERED
from feval.cards.tokens import count_words
from feval.errors import NotRecordedError, OutOfRangeError, PriceNotFoundError, UsageError
from feval.recording import Question
from feval.recording.votes import name_key
from feval.replay import LLMRequest
from feval.replay.draws import uniforms
from feval.replay.turns import Messages
from recorders.asking.probing import Probing, prefix, settled
from recorders.asking.trees import Tree
from recorders.live.loop import Loop, insist
from recorders.live.nodes import Expanding, LiveNode, Rating
from recorders.live.replies import LiveCoT, LiveResponse
from recorders.live.tape import Tape
from recorders.live.traces import Growth, LiveTrace, Reply
from recorders.live.turns import Asked, Conversations
from recorders.request import Backend, Completion, Decoding, Message, Prefill, Request
from recorders.scoring.scores import Scorer
from recorders.work.seal import confidence_of

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Terms:
    """What all questions to one live LLM share."""

    backend: Backend
    model: str
    answer_kind: str
    equality: str
    thoughts: Thoughts | None
    decoding: Decoding
    messages: Callable[[Question], Sequence[Message]]
    price: Price | None
    billing: str
    retries: int
    probing: Probing
    tree: Tree
    scorer: Scorer | None
    wait: Callable[[float], Coroutine[Any, Any, None]]
    tape: Tape | None = None


@lru_cache(maxsize=1024)
def _division(equality: str, question: str) -> Division:  # noqa: ARG001  one for each question
    """Return the parties of the answers to a question so far, shared by all LLMs so that their
    votes pool.
    """
    return Division(comparison(equality))


@dataclass
class MeteredLiveLLM:
    """A live LLM for one question: every `sample` asks for new CoTs and counts them.

    Attributes:
        name: the LLM's name.
        rounds: number of `sample`, `start` and `expand` requests so far, and of CoTs that `reply`
            replied to.
        cots: CoTs so far, turns, traces and steps included.
        output_tokens: of all CoTs.
        prompt_tokens: of the request, by the provider's count, or 1.365 per word; 0 before the
            first `sample`.
        auxiliary_calls: requests without a CoT, counted by `charge`.
        auxiliary_prompt_tokens: their prompt tokens, and what replies were sent beyond the
            question's request.
        auxiliary_output_tokens: their output tokens.
        sequential_tokens: over rounds (`sample`, `reply`, `advance`, `expand`), the most tokens
            that any CoT generated in it.
        longest_trace_tokens: the most tokens of any CoT, or path of turns or steps.
        probe_calls: probes so far.
        probe_tokens: output tokens of the probes; their prompts count as a cached prefix and are
            not billed.
    """

    name: str
    _terms: Terms = field(repr=False)
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
    _talking: Conversations | None = field(default=None, repr=False)

    def sample(self, k: int = 1) -> LiveResponse:
        """Ask for k new CoTs.

        Raises:
            OutOfRangeError: k below 1.
            StoppedError: requests failed too often.
            BackendError: no request works, and why.
            UsageError: the LLM was closed.
        """
        self._require(k)
        talking = self._conversations()
        return self._spoken([talking.asked(talking.start, (), k)])

    def reply(
        self,
        cots: LiveCoT | LiveResponse | Sequence[LiveCoT],
        messages: Messages | Sequence[Messages] | None = None,
        k: int = 1,
    ) -> LiveResponse:
        """Ask for k replies to a CoT, or to each of several, all at once: one round; see
        `feval.replay.MeteredLLM.reply`.

        The whole conversation is sent again, each CoT without its thoughts.

        Raises:
            OutOfRangeError: k below 1.
            UsageError: a CoT that was not handed out on this question, no messages, or the LLM was
                closed.
            StoppedError, BackendError: as for `sample`.
        """
        self._require(k)
        return self._spoken(self._conversations().replies(cots, messages, k))

    def _conversations(self) -> Conversations:
        if self._talking is None:
            self._talking = Conversations(self.name, self._request(self._terms.decoding))
        return self._talking

    def _spoken(self, asked: Sequence[Asked]) -> LiveResponse:
        """Ask for CoTs or for replies to some, hand them out and count them: one round."""
        before, talking = self.cots, self._conversations()
        replies = self._loop.run(self._all_said(asked))
        cots, paths, beyond = list[LiveCoT](), list[int](), list[int]()
        for one, completions in zip(asked, replies, strict=True):
            if one.request.conversation:
                beyond.append(max(_prompt_tokens(completions, one.request) - self.prompt_tokens, 0))
            for number, completion in zip(one.numbers, completions, strict=True):
                cots.append(self._cot(completion, before + len(cots)))
                paths.append(talking.add(one, number, cots[-1]))
        if cots:
            self.rounds += len(asked) - 1
            self._count([cot.tokens for cot in cots], paths)
        self.auxiliary_prompt_tokens += sum(beyond)
        request, first = (
            (asked[0].request if asked else self._request(self._terms.decoding)),
            sum(beyond[:1]),
        )
        return LiveResponse(cots, self._sent(request, first), partial(self.dollars, beyond=first))

    async def _all_said(self, asked: Sequence[Asked]) -> list[list[Completion]]:
        tape = self._terms.tape
        if tape is None:
            return await asyncio.gather(*(self._ask(one.seeds, one.request) for one in asked))
        replies = await asyncio.gather(*(tape.replies(one, self._once) for one in asked))
        for one, completions in zip(asked, replies, strict=True):
            self._note_prompt(completions, one.request)
        return replies

    def _count(self, tokens: Sequence[int], paths: Sequence[int]) -> None:
        """Count a round of CoTs or steps, and the tokens of the paths to them."""
        self.rounds, self.cots = self.rounds + 1, self.cots + len(tokens)
        self.output_tokens += sum(tokens)
        self.sequential_tokens += max(tokens)
        self.longest_trace_tokens = max(self.longest_trace_tokens, *paths)

    def start(self, k: int = 1, *, limit: int | None = None) -> list[LiveTrace]:
        """Return k CoTs as traces that have generated nothing yet; see
        `feval.replay.MeteredLLM.start`.

        Raises:
            OutOfRangeError: k or the limit is below 1.
            UsageError: the LLM was closed.
        """
        self._require(k)
        self._require_untaped("traces")
        if limit is not None and limit < 1:
            raise OutOfRangeError(
                f"A trace of {self.name} is cut at 1 token or more; limit={limit} was given."
            )
        most, indices = self._terms.decoding.max_tokens or math.inf, range(self.cots, self.cots + k)
        growths = [Growth(index, most, limit or math.inf) for index in indices]
        traces = [LiveTrace(growth, self.name, self._probe) for growth in growths]
        self._growths.update(zip(traces, growths, strict=True))
        self.rounds, self.cots = self.rounds + 1, self.cots + k
        self._conversations().start.replies = self.cots  # a later `sample` has other seeds
        return traces

    def advance(self, traces: LiveTrace | Sequence[LiveTrace], tokens: int | None = None) -> None:
        """Let traces grow by so many tokens, all at once: one round; see
        `feval.replay.MeteredLLM.advance`.

        Raises:
            UsageError: no number of tokens, a trace is not running, comes twice or is another
                LLM's, or the LLM was closed.
            OutOfRangeError: tokens below 1.
            StoppedError, BackendError: as for `sample`.
        """
        chosen = [traces] if isinstance(traces, LiveTrace) else list(traces)
        if tokens is None:
            raise UsageError(
                f"A live trace of {self.name} grows by a number of tokens; give it, since there are"
                " no probes yet."
            )
        self._require(tokens)
        growths = [
            growth
            for trace in set(chosen)
            if trace.running and (growth := self._growths.get(trace)) is not None
        ]
        if len(growths) < len(chosen):
            raise UsageError(
                f"{self.name} advances running traces that it started on this question, each once"
                f" in a round; {chosen!r:.200} were given."
            )
        before = [growth.tokens for growth in growths]
        self._loop.run(self._grow(growths, tokens))
        grown = [growth.tokens - had for growth, had in zip(growths, before, strict=True)]
        self.output_tokens += sum(grown)
        self.sequential_tokens += max(grown, default=0)
        self.longest_trace_tokens = max(
            [self.longest_trace_tokens, *(growth.tokens for growth in growths)]
        )

    @overload
    def expand(self, nodes: LiveNode | None = None, k: int = 1) -> list[LiveNode]: ...
    @overload
    def expand(self, nodes: Sequence[LiveNode | None], k: int = 1) -> list[list[LiveNode]]: ...
    def expand(
        self, nodes: LiveNode | Sequence[LiveNode | None] | None = None, k: int = 1
    ) -> list[LiveNode] | list[list[LiveNode]]:
        """Ask for k more steps after a node, or after each of several: one round; see
        `feval.replay.MeteredLLM.expand`.

        Raises:
            OutOfRangeError: k below 1.
            UsageError: a node that ends a solution, or is of another question, or the LLM was
                closed.
            StoppedError, BackendError: as for `sample`; also of the scorer.
        """
        self._require(k)
        self._require_untaped("steps")
        if self._expanding is None:
            terms, request = self._terms, self._request(self._terms.decoding)
            rating = (
                None
                if terms.scorer is None
                else Rating(terms.scorer, self._question, request.prompt(), self._insist)
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
        return self._ask(samples, request)

    def _final(self, text: str, finish_reason: str) -> str | None:
        return None if finish_reason in UNANSWERED else self._voting(self._extracted(text))

    async def _grow(self, growths: Sequence[Growth], tokens: int) -> None:
        async def one(growth: Growth) -> None:
            asked = growth.piece(tokens)
            beginning = self._beginning(growth.text)[0] if growth.text else None
            decoding = replace(self._terms.decoding, max_tokens=asked)
            [piece] = await self._ask([growth.index], self._request(decoding, beginning))
            if piece.reasoning:
                raise UsageError(
                    f"The server of {self.name} moves thoughts into a field of their own, so that a"
                    " trace cannot be continued. Serve it without a reasoning parser."
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
        [completion] = self._loop.run(self._ask([0], self._request(decoding, beginning)))
        completion = settled(completion, self._terms.backend, self._terms.model)
        self.probe_calls += 1
        self.probe_tokens += _tokens(completion)
        reply = reply_behind(probing.cue, completion.text)
        raw = None if reply is None else self._extracted(reply)
        return Reply(self._voting(raw), confidence_of(asdict(completion), raw))

    def _require_untaped(self, what: str) -> None:
        if self._terms.tape is not None:
            raise UsageError(
                f"While a method is recorded, it asks {self.name} for CoTs and replies alone;"
                f" {what} were asked for. Record these with `feval record --probe-every` or"
                " `--tree`."
            )

    def _require(self, k: int) -> None:
        if self._loop.closed:
            raise UsageError(
                f"{self.name} was closed; ask it inside the `with` block, or make another with"
                " `live`."
            )
        if k < 1 or k % 1:
            raise OutOfRangeError(
                f"A method asks {self.name} for 1 CoT or token or more at a time; {k} were asked"
                " for."
            )

    @property
    def remaining(self) -> int:
        """CoTs that can still be asked for: unlimited."""
        return sys.maxsize

    @property
    def tokens_billed(self) -> int:
        """Prompt and output tokens so far, prompts by the billing."""
        prompts = int(billed_prompts(self._terms.billing, self.rounds, self.cots))
        spent = (
            self.output_tokens
            + self.auxiliary_prompt_tokens
            + self.auxiliary_output_tokens
            + self.probe_tokens
        )
        return prompts * self.prompt_tokens + spent

    def charge(self, *, calls: int = 1, prompt_tokens: int = 0, output_tokens: int = 0) -> None:
        """Count requests that the method made elsewhere, such as a verification, at this LLM's
        price.

        Raises:
            OutOfRangeError: a negative number.
        """
        if min(calls, prompt_tokens, output_tokens) < 0:
            raise OutOfRangeError(
                f"Costs only grow; {calls} calls of {prompt_tokens} and {output_tokens} tokens"
                f" cannot be charged to {self.name}."
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
            f"CoT {index} of {self.name} was generated to its end and is paid for; it cannot be cut"
            f" after {tokens} tokens. Methods that cut CoTs run on a recording."
        )

    def uniform(self, seed: int = 0) -> float:
        """Return a random number in [0, 1); of a question with an id, that of a replay in recorded
        order.
        """
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
        if self._terms.price is None:
            return sampled
        return sampled + float(
            usd(self._terms.price, self.auxiliary_prompt_tokens, self.auxiliary_output_tokens)
        )

    def dollars(self, rounds: int, cots: int, output_tokens: int, beyond: int = 0) -> float:
        """Return the USD of some requests for this question, what was sent beyond it, and the CoTs
        that came back.
        """
        if self._terms.price is None:
            raise PriceNotFoundError(
                f"There is no price for {self.name}; name a price list that has it."
            )
        prompts = int(billed_prompts(self._terms.billing, rounds, cots))
        return float(usd(self._terms.price, prompts * self.prompt_tokens + beyond, output_tokens))

    def _sent(self, request: Request, beyond: int) -> LLMRequest:
        messages = [{"role": message.role, "content": message.content} for message in request.sent]
        price, tokens = self._terms.price, self.prompt_tokens + beyond
        dollars = None if price is None else float(usd(price, tokens, 0))
        return LLMRequest(json.dumps(messages, ensure_ascii=False), tokens, dollars)

    def _request(self, decoding: Decoding, prefill: Prefill | None = None) -> Request:
        messages = tuple(self._terms.messages(self._question))
        return Request(
            self._dataset or "live",
            self._question.id or "live",
            messages,
            self._terms.model,
            decoding,
            prefill,
        )

    async def _ask(self, samples: Sequence[int], request: Request) -> list[Completion]:
        """Ask until every sample is there; servers that send fewer at a time are asked again."""
        completions: list[Completion] = []
        while len(completions) < len(samples):
            completions += await self._once(samples[len(completions) :], request)
        self._note_prompt(completions, request)
        return completions

    async def _once(self, samples: Sequence[int], request: Request) -> list[Completion]:
        """Return what one request brings: a completion per sample, or fewer."""
        completions = await self._insist(
            partial(self._terms.backend.complete, request, list(samples)), request.key()
        )
        return completions[: len(samples)]

    def _note_prompt(self, completions: Sequence[Completion], request: Request) -> None:
        if request.prefill is None and not request.conversation:
            self.prompt_tokens = _prompt_tokens(completions, request)

    def _insist(self, attempt: Callable[[], Awaitable[_T]], key: str) -> Awaitable[_T]:
        return insist(attempt, key, self.name, self._terms.retries, self._terms.wait)

    def _cot(self, completion: Completion, sample: int) -> LiveCoT:
        (reply,), reasoning, _, (reason,), (readable,) = split_columns(
            [completion.text],
            [completion.reasoning],
            [completion.finish_reason],
            self._terms.thoughts,
        )
        raw = self._extracted(reply or "") if readable else None
        answer, tokens = self._voting(raw), _tokens(completion)
        price = self._terms.price
        dollars = None if price is None else float(usd(price, 0, tokens))
        return LiveCoT(
            reply or "",
            answer,
            tokens,
            dollars,
            reason,
            sample,
            reasoning[0] if reasoning else None,
        )

    def _extracted(self, reply: str) -> str | None:
        return extract(self._terms.answer_kind, reply, self._question.choices)

    def _voting(self, raw: str | None) -> str | None:
        form = canonical(self._terms.answer_kind, raw, self._question.choices)
        return (
            None if form is None else _division(self._terms.equality, self._question.text).add(form)
        )


def _prompt_tokens(completions: Sequence[Completion], request: Request) -> int:
    counted = next((c.prompt_tokens for c in completions if c.prompt_tokens is not None), None)
    return (
        counted
        if counted is not None
        else sum(count_words(message.content) for message in request.sent)
    )


def _tokens(completion: Completion) -> int:
    counted = completion.output_tokens
    return (
        count_words(completion.text) + count_words(completion.reasoning or "")
        if counted is None
        else counted
    )
