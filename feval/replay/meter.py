"""An LLM asked one question, with a meter: what a method is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from feval.arguments import is_whole
from feval.cards.billing import billed_prompts
from feval.errors import NotRecordedError, OutOfRangeError, UsageError
from feval.replay.draws import uniforms
from feval.replay.nodes import Growing, Node
from feval.replay.responses import CoT, LLMResponse, RecordedLLM
from feval.replay.traces import Growth, Trace
from feval.replay.turns import Messages, message_lists


class MeteredLLM:
    """Hands out the CoTs of one draw of one question, and counts them. A method sees this and
    nothing more.

    Args:
        llm: the recorded LLM.
        row: of the question.
        replicate: of the draw; `None` hands the CoTs out in recorded order.
    """

    __slots__ = (
        "_advanced", "_auxiliary", "_closed", "_growing", "_growths", "_llm", "_order", "_probes",
        "_refusal", "_rounds", "_row",
        "_tokens", "_waited",
    )  # fmt: skip

    def __init__(self, llm: RecordedLLM, row: int, replicate: int | None = 0) -> None:
        self._llm, self._row = llm, row
        self._order = (
            tuple(range(int(llm.pool.sizes[row])))
            if replicate is None
            else llm.order(row, replicate)
        )
        self._rounds: list[slice] = []
        self._tokens: list[int] = []
        self._growths: dict[Trace, Growth] = {}
        self._growing: Growing | None = None
        self._advanced = self._waited = 0
        self._probes = (0, 0)
        self._auxiliary = (0, 0, 0)
        self._closed = False
        self._refusal: NotRecordedError | None = None

    def __reduce__(self) -> str:
        """Refuse to be copied: what a copy hands out would be billed to nobody."""
        raise UsageError(
            f"{self.name} is one meter of one question and cannot be copied or sent to another"
            " process."
        )

    def __repr__(self) -> str:
        return f"MeteredLLM({self.name!r}, {self.cots} of {len(self._order)} CoTs handed out)"

    @property
    def name(self) -> str:
        """The LLM's name."""
        return self._llm.name

    @property
    def rounds(self) -> int:
        """Number of requests for CoTs so far: `sample`, `start` and `expand`, and in a `reply` one
        for each CoT replied to.

        A trace is one, however often it is advanced.
        """
        return len(self._rounds)

    @property
    def cots(self) -> int:
        """CoTs handed out so far; of a tree, steps."""
        return len(self._tokens)

    @property
    def remaining(self) -> int:
        """CoTs that can still be handed out."""
        return len(self._order) - len(self._tokens)

    @property
    def tokens_billed(self) -> int:
        """Prompt and output tokens so far, prompts by the LLM's billing.

        Raises:
            PriceNotFoundError: the prompt tokens are not known.
        """
        prompt_tokens = self._llm.known_prompt_tokens(self._row, "the tokens billed are not known")
        prompts = int(billed_prompts(self._llm.billing, self.rounds, self.cots))
        auxiliary = self.auxiliary_prompt_tokens + self.auxiliary_output_tokens + self.probe_tokens
        return prompts * prompt_tokens + self.output_tokens + auxiliary

    @property
    def output_tokens(self) -> int:
        """Tokens of the CoTs handed out so far, less what was cut off."""
        return sum(self._tokens)

    @property
    def sequential_tokens(self) -> int:
        """Tokens generated one after the other: over rounds, the most that any of its CoTs or
        traces generated in it, summed.

        A round is a `sample`, an `advance`, an `expand` or a `reply`. Probes and auxiliary calls
        are left out.
        """
        return self._advanced + sum(
            max(self._tokens[sampled], default=0) for sampled in self._rounds
        )

    @property
    def sequential_microseconds(self) -> int:
        """Microseconds that the rounds took, one after the other; 0 where the LLM has no clock, see
        `LLM.clocked`.
        """
        if (clock := self._llm.pool.clock) is None:
            return 0
        places = self._order if self._growing is None else self._growing.places
        rounds = ((places[sampled], self._tokens[sampled]) for sampled in self._rounds)
        return self._waited + sum(
            clock.wait(self._row, where, [0] * len(tokens), tokens) for where, tokens in rounds
        )

    @property
    def longest_trace_tokens(self) -> int:
        """The most tokens that any one CoT, trace, path of steps or conversation generated."""
        return max(self._tokens, default=0) if self._growing is None else self._growing.longest

    @property
    def probe_calls(self) -> int:
        """Number of probes so far."""
        return self._probes[0]

    @property
    def probe_tokens(self) -> int:
        """Output tokens of the probes; one whose tokens were not recorded counts 0.

        Their prompts, the request and the trace so far, count as a cached prefix and are not
        billed; nor is the cue.
        """
        return self._probes[1]

    @property
    def auxiliary_calls(self) -> int:
        """Number of requests so far that gave no CoT: verifications, self-checks, rankings."""
        return self._auxiliary[0]

    @property
    def auxiliary_prompt_tokens(self) -> int:
        """Prompt tokens of the auxiliary calls, and of replies what was sent beyond the question's
        request.
        """
        return self._auxiliary[1]

    @property
    def auxiliary_output_tokens(self) -> int:
        """Output tokens of the auxiliary calls."""
        return self._auxiliary[2]

    def sample(self, k: int = 1) -> LLMResponse:
        """Return the next k CoTs of the draw; the ledger counts them as one request.

        Of an LLM that was recorded in turns, these are CoTs that reply to no other; see `reply`.

        Raises:
            ShortPoolError: fewer than k are left.
            OutOfRangeError: k is below 1 or not a whole number.
            UsageError: the ledger is closed.
        """
        if self._llm.pool.channels.has_turns:
            self._require_open()
            self._require_number(k)
            return self._handed([self._tree().first(k)])
        self._require(k)
        start = self.cots
        response = LLMResponse(self._order[start : start + k], self._llm, self._row)
        self._tokens += self._llm.pool.output_tokens[self._row, list(response.samples)].tolist()
        self._rounds.append(slice(start, start + k))
        return response

    def start(self, k: int = 1, *, limit: int | None = None) -> list[Trace]:
        """Return the next k CoTs of the draw as traces that have generated nothing yet; see
        `advance`.

        Args:
            k: how many.
            limit: tokens at which each of them is cut, as by a token limit of the API; `None` for
                none.

        Raises:
            NotRecordedError: the CoTs were not probed.
            ShortPoolError, OutOfRangeError, UsageError: as for `sample`.
        """
        self._require(k)
        if limit is not None and (limit < 1 or limit % 1):
            raise OutOfRangeError(
                f"A trace of {self.name} is cut at 1 token or more; limit={limit} was given."
            )
        probes, start = self._llm.pool.probes(), self.cots
        growths = [
            Growth(self._llm, self._row, self._order[i], probes, i, limit)
            for i in range(start, start + k)
        ]
        traces = [Trace(growth, self._bill_probe) for growth in growths]
        self._growths.update(zip(traces, growths, strict=True))
        self._tokens += [0] * k
        self._rounds.append(slice(0))
        return traces

    def advance(self, traces: Trace | Sequence[Trace], tokens: int | None = None) -> None:
        """Let traces grow, all at once: one round.

        Each grows by so many tokens, or to its end or its limit if that is nearer. It can halt
        where it was probed; beyond its last probe it goes on to its end.

        Args:
            traces: one or several that are running; of none nothing happens.
            tokens: how many; `None` for as many as each has up to its next probe.

        Raises:
            NotRecordedError: there is no probe at that place; the message says where there are. It
                ends the method, also where it is caught: where there are probes is known only when
                    a trace comes there.
            OutOfRangeError: tokens below 1.
            UsageError: a trace is not running, comes twice or is another LLM's, or the ledger is
                closed.
        """
        self._require_open()
        chosen = [traces] if isinstance(traces, Trace) else list(traces)
        growths = [
            growth
            for trace in dict.fromkeys(chosen)
            if (growth := self._growths.get(trace)) is not None
        ]
        if len(growths) < len(chosen):
            raise UsageError(
                f"{self.name} advances traces that it started on this question, each once in a"
                f" round; {chosen!r:.200} were given."
            )
        try:
            reached = [growth.after(tokens) for growth in growths]
        except NotRecordedError as error:
            self._refusal = error
            raise
        if (clock := self._llm.pool.clock) is not None:
            before, after = [growth.tokens for growth in growths], [total for total, _ in reached]
            self._waited += clock.wait(
                self._row, [growth.sample for growth in growths], before, after
            )
        grown = 0
        for growth, (total, finished) in zip(growths, reached, strict=True):
            grown = max(grown, total - growth.tokens)
            growth.tokens, growth.finished, growth.stopped = (
                total,
                finished,
                total == growth.limit and not finished,
            )
            self._tokens[growth.index] = total
        self._advanced += grown

    @overload
    def expand(self, nodes: Node | None = None, k: int = 1) -> list[Node]: ...
    @overload
    def expand(self, nodes: Sequence[Node | None], k: int = 1) -> list[list[Node]]: ...
    def expand(
        self, nodes: Node | Sequence[Node | None] | None = None, k: int = 1
    ) -> list[Node] | list[list[Node]]:
        """Return the next k steps after a node, in draw order, or after each of several nodes, all
        at once: one round.

        A step counts its own output tokens, and as one request in the billing "per_sample". What is
        sent before it beyond the question's request, the path so far, counts as a cached prefix and
        is not billed.

        Args:
            nodes: a node that was handed out and does not end a solution, `None` for the request;
                or several of them. One that comes c times gives c x k steps.
            k: how many after each.

        Returns:
            The steps; for several nodes, a list for each.

        Raises:
            NotRecordedError: fewer steps were recorded there, or whole CoTs alone; the message says
                after which step.
            OutOfRangeError: k below 1.
            UsageError: a node that ends a solution, or is of another question; or the ledger is
                closed.
        """
        self._require_open()
        growing = self._tree()
        several = [nodes] if nodes is None or isinstance(nodes, Node) else list(nodes)
        try:
            steps = growing.expand(several, k)
        except NotRecordedError as error:
            self._refusal = error
            raise
        if steps:
            start = self.cots
            self._tokens += [step.tokens for own in steps for step in own]
            self._rounds.append(slice(start, self.cots))
        return steps[0] if nodes is None or isinstance(nodes, Node) else steps

    def reply(
        self,
        cots: CoT | LLMResponse | Sequence[CoT],
        messages: Messages | Sequence[Messages] | None = None,
        k: int = 1,
    ) -> LLMResponse:
        """Return the next k turns, in draw order, that reply to a CoT, or to each of several, all
        at once: one round.

        A turn was recorded with the whole conversation before it: the request, and every CoT and
        turn up to the one replied to with the messages sent behind it. It is looked up by what it
        replies to and by these messages, and can be replied to itself. Each CoT replied to is a
        request of its own; what that sends beyond the question's request counts as auxiliary prompt
        tokens, so every billing of the question's prompt charges it in full, once for all k.

        Args:
            cots: a CoT or turn that was handed out, the response of a request, whose CoTs are all
                replied to, or several CoTs.
            messages: what is sent behind the conversation: the text of one user message, or a list
                of messages; `None` for the only messages that were recorded there. For several CoTs
                also a list with those for each.
            k: how many to each CoT.

        Returns:
            The turns, those that reply to one CoT side by side.

        Raises:
            NotRecordedError: no turn, or fewer, were recorded there with these messages; the
                message says what was. It ends the method, also where it is caught.
            OutOfRangeError: k below 1.
            UsageError: a CoT that was not handed out on this question, messages that are none, or
                the ledger is closed.
        """
        self._require_open()
        self._require_number(k)
        places = self._places(cots)
        sent = message_lists(messages, len(places))
        try:
            self._llm.pool.channels.require_turns()
            turns = self._tree().reply(places, sent, k)
        except NotRecordedError as error:
            self._refusal = error
            raise
        self._rounds += [slice(0)] * (len(places) - 1)
        beyond = sum(self._llm.pool.beyond_request(self._row, own[0].place) for own in turns)
        self._auxiliary = (self._auxiliary[0], self._auxiliary[1] + beyond, self._auxiliary[2])
        return self._handed(turns)

    def _places(self, cots: CoT | LLMResponse | Sequence[CoT]) -> list[int]:
        """Recorded places of CoTs to reply to."""
        one = isinstance(cots, CoT | LLMResponse) or not isinstance(cots, Sequence)
        several: Any = [cots] if one else cots
        known = self._order[: self.cots] if self._growing is None else self._growing
        places: list[int] = []
        for each in several:
            own = (
                each.samples
                if isinstance(each, LLMResponse)
                else [each.sample]
                if isinstance(each, CoT)
                else [-1]
            )
            if not all(place in known for place in own) or not each.is_of(self._llm, self._row):
                raise UsageError(
                    f"{each!r:.80} was not handed out by {self.name} on this question, and cannot"
                    " be replied to."
                )
            places += own
        return places

    def _tree(self) -> Growing:
        if self._growing is None:
            self._growing = Growing(self._llm, self._row, self._order)
        return self._growing

    def _handed(self, nodes: Sequence[Sequence[Node]]) -> LLMResponse:
        """The response of a round of whole CoTs out of a tree, which is billed."""
        flat = [node for own in nodes for node in own]
        if flat:
            start = self.cots
            self._tokens += [node.tokens for node in flat]
            self._rounds.append(slice(start, self.cots))
        return LLMResponse(tuple(node.place for node in flat), self._llm, self._row)

    def _bill_probe(self, place: int) -> None:
        self._require_open()
        tokens = self._llm.pool.probes().output_tokens
        self._probes = (
            self.probe_calls + 1,
            self.probe_tokens + (0 if tokens is None else max(int(tokens[place]), 0)),
        )

    def _require(self, k: int) -> None:
        """Check that k more CoTs can be handed out."""
        self._require_open()
        self._require_number(k)
        self._llm.require(self._row, self.cots + k)

    def _require_number(self, k: int) -> None:
        if not is_whole(k) or k < 1:
            raise OutOfRangeError(
                f"A method asks {self.name} for 1 CoT or more at a time; {k!r} were asked for."
            )

    def _require_open(self) -> None:
        require_recorded(self)
        if self._closed:
            raise UsageError(
                f"This {self.name} was kept from another question or draw, whose ledger is closed;"
                " ask the one that the method was called with."
            )

    def truncate(self, index: int, tokens: int) -> None:
        """Stop a CoT early: only its first tokens are billed. Cutting a recorded CoT does not
        change what came before the cut.

        Args:
            index: which of the CoTs handed out so far, from 0.
            tokens: how many of its tokens were generated before it was stopped; more than it has
                changes nothing.

        Raises:
            OutOfRangeError: no such CoT, or a negative number of tokens.
            UsageError: it is a trace, or a step of a tree.
        """
        if not 0 <= index < self.cots or tokens < 0:
            raise OutOfRangeError(
                f"{self.name} has handed out {self.cots} CoTs, numbered from 0; CoT {index} cannot"
                f" be cut after {tokens} tokens."
            )
        if any(trace.index == index for trace in self._growths):
            raise UsageError(
                f"CoT {index} of {self.name} was started as a trace; end it with its `stop`."
            )
        if self._growing is not None:
            raise UsageError(
                f"{self.name} was recorded as trees of steps, which are replayed whole; step"
                f" {index} cannot be cut."
            )
        self._tokens[index] = min(self._tokens[index], tokens)

    def charge(self, *, calls: int = 1, prompt_tokens: int = 0, output_tokens: int = 0) -> None:
        """Bill requests that give no CoT, such as a recorded verification, at this LLM's price.

        Raises:
            OutOfRangeError: a negative number.
        """
        if min(calls, prompt_tokens, output_tokens) < 0:
            raise OutOfRangeError(
                f"Costs only grow; {calls} calls of {prompt_tokens} and {output_tokens} tokens"
                f" cannot be charged to {self.name}."
            )
        before = self._auxiliary
        self._auxiliary = (before[0] + calls, before[1] + prompt_tokens, before[2] + output_tokens)

    def uniform(self, seed: int = 0) -> float:
        """Return a random number in [0, 1), a function of the question and the CoTs handed out so
        far; see `draws.uniforms`.
        """
        keys = self._llm.question_keys[self._row : self._row + 1]
        samples = np.array(self._order[: max(self.cots, 1)], np.uint16)[None, None, :]
        return float(uniforms(keys, samples, seed)[0, 0, -1])

    @property
    def dollar_cost(self) -> float:
        """USD so far; see `LLM.dollars`."""
        _, prompt_tokens, output_tokens = self._auxiliary
        return self._llm.dollars(
            self._row,
            rounds=self.rounds,
            cots=self.cots,
            output_tokens=self.output_tokens + output_tokens + self.probe_tokens,
            auxiliary_prompt_tokens=prompt_tokens,
        )


def close_ledger(llm: MeteredLLM) -> None:
    """Close a ledger that was read: CoTs handed out from now on would be counted nowhere. Not a
    method, so no user calls it.
    """
    llm._closed = True  # noqa: SLF001  users' methods must not find this among the public attributes


def handed_out(llm: MeteredLLM) -> list[tuple[int, int]]:
    """Return recorded place and tokens so far of the first 4,096 CoTs or steps handed out, in
    order. Not a method, as above.
    """
    growing = llm._growing  # noqa: SLF001  as above
    places = llm._order if growing is None else growing.places  # noqa: SLF001  as above
    return list(zip(places, llm._tokens[:4096], strict=False))  # noqa: SLF001  as above


def require_recorded(llm: MeteredLLM) -> None:
    """Raise what `advance` or `expand` refused: a method that caught it would know what lies
    ahead.
    """
    if llm._refusal is not None:  # noqa: SLF001  as above
        raise llm._refusal  # noqa: SLF001  as above
