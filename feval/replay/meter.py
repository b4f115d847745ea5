"""An LLM asked one question, with a meter: what a method is given, be it recorded or live.

The meter checks what is asked, counts it, and hands out CoTs, traces and steps; its `Source` says
which come next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import count
from typing import Any, TypeVar, overload

from feval.arguments import is_whole
from feval.cards.billing import billed_prompts, billing_rule
from feval.errors import NotRecordedError, OutOfRangeError, UsageError, require_known
from feval.replay.responses import (
    REQUEST,
    CoT,
    LLMResponse,
    MessageList,
    Need,
    ProbeReply,
    Source,
    TraceState,
)

Messages = str | Sequence[Mapping[str, Any]]
"""What is sent behind a conversation: the text of one user message, or a list of messages."""

PATH_AGGREGATES = ("last", "min", "prod", "mean")
"""The number that a path is judged by: an aggregate of the scores of its steps."""

# `sum` of Python 3.12 and later rounds otherwise than adding one after the other, as the batch
# forms do.
_COMBINED: Mapping[str, Callable[[float, float], float]] = {
    "prod": float.__mul__,
    "mean": float.__add__,
}

_T = TypeVar("_T")


class Trace:
    """A CoT that grows by `MeteredLLM.advance`, answers before it is finished, and stops where a
    method says so. What comes behind its tokens so far decides nothing that is seen.
    """

    __slots__ = ("_probe", "_source", "_state")

    def __init__(
        self, state: TraceState, source: Source, probe: Callable[[TraceState], ProbeReply]
    ) -> None:
        self._state, self._source, self._probe = state, source, probe

    def __repr__(self) -> str:
        state = "running" if self.running else "finished" if self.finished else "stopped"
        return f"Trace({self.index} of {self._state.owner!r}, {self.tokens} tokens, {state})"

    @property
    def index(self) -> int:
        """Its number among the CoTs handed out, from 0."""
        return self._state.index

    @property
    def tokens(self) -> int:
        """Output tokens generated so far."""
        return self._state.tokens

    @property
    def finished(self) -> bool:
        """Whether it has come to its own end."""
        return self._state.finished

    @property
    def running(self) -> bool:
        """Whether it can be advanced: it is not finished, was not stopped, and is below its
        limit.
        """
        return not (self._state.finished or self._state.stopped)

    def stop(self) -> None:
        """Abandon it: it costs what it has generated so far."""
        self._state.stopped = True

    def probe(self) -> str | None:
        """Return the answer that the LLM gives when it is made to answer now; of a finished trace,
        its final answer.

        A probe costs a call and the tokens of its reply, once at each place, and is not fed back
        into the trace; a final answer costs nothing. Of a recorded trace that was cut between two
        probes it is the earlier one, and `None` if there is none.

        Raises:
            UsageError: nothing was generated yet.
        """
        return self._probe(self._state).answer

    @property
    def confidence(self) -> float | None:
        """The LLM's confidence in the answer of the probe here, which is billed as by `probe`;
        `None` where it has none.

        Raises:
            NotRecordedError: no probe has a confidence.
            UsageError: nothing was generated yet.
        """
        self._source.require("confidences")
        return self._probe(self._state).confidence


class Node:
    """A step that was handed out by `MeteredLLM.expand`, with the path of steps to it.

    Attributes:
        parent: the node of the step before; `None` for a first step.
        place: of the step in its source.
        index: its number among the steps handed out, from 0.
        depth: steps of the path to it, itself included.
        tokens: output tokens of the step.
        path_tokens: output tokens of the path.
        ends: whether it ends a solution.
    """

    __slots__ = (
        "_source", "depth", "ends", "index", "parent", "path_tokens", "place", "tokens",
    )  # fmt: skip

    def __init__(self, source: Source, place: int, parent: Node | None, index: int) -> None:
        self._source, self.place, self.parent, self.index = source, place, parent, index
        [self.tokens] = source.tokens([place])
        self.ends = source.ends(place)
        self.depth: int = 1 if parent is None else parent.depth + 1
        self.path_tokens: int = self.tokens + (0 if parent is None else parent.path_tokens)

    def __repr__(self) -> str:
        ends = ", ends" if self.ends else ""
        return (
            f"Node({self.index} of {self._source.name!r}, depth {self.depth}, {self.path_tokens}"
            f" tokens{ends})"
        )

    @property
    def path(self) -> list[Node]:
        """The nodes from the first step to this one."""
        nodes = [self]
        while (parent := nodes[-1].parent) is not None:
            nodes.append(parent)
        return nodes[::-1]

    @property
    def answer(self) -> str | None:
        """The canonical answer of the solution that it ends; `None` for no answer."""
        return self._source.answers([self.place])[0]

    @property
    def text(self) -> str | None:
        """The step as the LLM wrote it; `None` where the recording has no text."""
        return self._source.text(self.place)

    def score(self, scorer: str | None = None, aggregate: str = "last") -> float | None:
        """Return the score of the path; `None` where a step that it takes has none.

        Args:
            scorer: name of the scorer; the only one for `None`.
            aggregate: "last" for the score of this step; "min", "prod" or "mean" of those of all
                steps of the path.

        Raises:
            UnknownNameError: no such aggregate.
            NotRecordedError: there are no such scores.
        """
        require_known("aggregate", aggregate, PATH_AGGREGATES)
        nodes = [self] if aggregate == "last" else self.path
        values = self._source.scores([node.place for node in nodes], scorer)
        if any(value != value for value in values):
            return None
        combined = reduce(_COMBINED.get(aggregate, min), values)
        return combined / len(values) if aggregate == "mean" else combined


class MeteredLLM:
    """Hands out the CoTs of one question, and counts them. A method sees this and nothing more.

    Args:
        source: gives them; it has no other meter.
    """

    __slots__ = (
        "_advanced", "_auxiliary", "_before", "_closed", "_nodes", "_places", "_probes", "_refusal",
        "_rounds", "_source", "_tokens", "_traced", "_traces", "_waited",
    )  # fmt: skip

    def __init__(self, source: Source) -> None:
        self._source = source
        self._rounds: list[slice] = []
        self._traced: list[slice] = []  # those whose CoTs `advance` counts as they grow
        self._places: list[int] = []
        self._tokens: list[int] = []
        self._before: dict[int, int] = {}  # number of a step or turn -> tokens of the path to it
        self._traces: dict[Trace, TraceState] = {}
        self._nodes: set[Node] = set()
        self._advanced = self._waited = 0
        self._probes, self._auxiliary = [0, 0], [0, 0, 0]
        self._closed = False
        self._refusal: NotRecordedError | None = None

    def __reduce__(self) -> str:
        """Refuse to be copied: what a copy hands out would be billed to nobody."""
        raise UsageError(
            f"{self.name} is one meter of one question and cannot be copied or sent to another"
            " process."
        )

    def __repr__(self) -> str:
        return f"MeteredLLM({self.name!r}, {self.cots} CoTs handed out)"

    @property
    def name(self) -> str:
        """The LLM's name."""
        return self._source.name

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
        """CoTs that can still be handed out; of a live LLM without a limit."""
        return self._source.remaining

    @property
    def tokens_billed(self) -> int:
        """Prompt and output tokens so far, prompts by the LLM's billing.

        Raises:
            PriceNotFoundError: the prompt tokens are not known.
        """
        prompt_tokens = self._source.known_prompt_tokens("the tokens billed are not known")
        prompts = int(billed_prompts(self._source.billing, self.rounds, self.cots))
        _, extra, auxiliary = self._auxiliary
        return prompts * prompt_tokens + self.output_tokens + extra + auxiliary + self.probe_tokens

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
        return self._advanced + sum(max(self._tokens[own], default=0) for own in self._whole())

    def _whole(self) -> Iterator[slice]:
        return (own for own in self._rounds if own not in self._traced)

    @property
    def sequential_microseconds(self) -> int:
        """Microseconds that the rounds took, one after the other; 0 where the LLM has no clock, see
        `LLM.clocked`.
        """
        rounds = ((self._places[own], self._tokens[own]) for own in self._whole())
        return self._waited + sum(
            self._source.wait(places, [0] * len(places), tokens) for places, tokens in rounds
        )

    @property
    def picodollars(self) -> int:
        """1e-12 USD that the CoTs handed out state; 0 where nobody asked for recorded USD, see
        `LLM.stating`.
        """
        return sum(self._source.amounts("picodollars", self._places, self._tokens))

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that a cache had read: of each CoT, or of each round the most that one of
        its CoTs states; 0 where nobody asked for them.
        """
        alone = billing_rule(self._source.billing).prompts == "per_sample"
        stated = self._source.amounts("cached_tokens", self._places, self._tokens)
        return sum(stated) if alone else sum(max(stated[own], default=0) for own in self._rounds)

    @property
    def first_cots(self) -> int:
        """CoTs of the first round."""
        return len(self._places[self._rounds[0]]) if self._rounds else 0

    @property
    def scoring_picodollars(self) -> int:
        """What the scores cost that it read: a function's are not counted."""
        return 0

    @property
    def longest_trace_tokens(self) -> int:
        """The most tokens that any one CoT, trace, path of steps or conversation generated."""
        paths = map(self._path_tokens, range(self.cots)) if self._before else self._tokens
        return max(paths, default=0)

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

    @property
    def dollar_cost(self) -> float:
        """USD so far, by eq. (1) of FEval-TTC and the LLM's billing.

        Raises:
            PriceNotFoundError: there is no price, or the prompt tokens are not known.
        """
        _, extra, auxiliary = self._auxiliary
        output_tokens = self.output_tokens + auxiliary + self.probe_tokens
        return self._source.dollars(self.rounds, self.cots, output_tokens, extra)

    def sample(self, k: int = 1) -> LLMResponse:
        """Return the next k CoTs of the draw; the ledger counts them as one request.

        Of an LLM that was recorded in turns, these are CoTs that reply to no other; see `reply`.

        Raises:
            ShortPoolError: fewer than k are left.
            OutOfRangeError: k is below 1 or not a whole number.
            UsageError: the ledger is closed.
        """
        self._require("CoTs", k)
        return self._response(self._source.sample(k))

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
        self._require("traces", k)
        if limit is not None and (limit < 1 or limit % 1):
            raise OutOfRangeError(
                f"A trace of {self.name} is cut at 1 token or more; limit={limit} was given."
            )
        places = self._source.start(k)
        states = [
            TraceState(self.name, index, place, limit)
            for index, place in enumerate(places, self.cots)
        ]
        traces = [Trace(state, self._source, self._probe) for state in states]
        self._traces.update(zip(traces, states, strict=True))
        self._hand(places, [0] * k)
        self._traced.append(self._rounds[-1])
        return traces

    def advance(
        self, traces: Trace | Sequence[Trace], tokens: int | Sequence[int | None] | None = None
    ) -> None:
        """Let traces grow, all at once: one round.

        Each grows by so many tokens, or to its end or its limit if that is nearer. Replayed, it can
        halt where it was probed; beyond its last probe it goes on to its end.

        Args:
            traces: one or several that are running; of none nothing happens.
            tokens: how many, for all or one number per trace; `None` for as many as each has up to
                its next probe, which a live one does not have.

        Raises:
            NotRecordedError: there is no probe at that place; the message says where there are. It
                ends the method, also where it is caught: where there are probes is known only when
                    a trace comes there.
            OutOfRangeError: tokens below 1.
            UsageError: a trace is not running, comes twice or is another LLM's, there is not one
                number for each, or the ledger is closed.
        """
        chosen = [traces] if isinstance(traces, Trace) else list(traces)
        bursts = [*tokens] if isinstance(tokens, Sequence) else [tokens] * len(chosen)
        for burst in bursts or [None]:
            self._require("traces", 1 if burst is None else burst, "token")
        if len(bursts) != len(chosen):
            raise UsageError(
                f"{len(chosen)} traces of {self.name} take as many numbers of tokens, or one for"
                f" all; {len(bursts)} were given."
            )
        states = [self._traces[each] for each in dict.fromkeys(chosen) if each in self._traces]
        if len(states) < len(chosen):
            raise UsageError(
                f"{self.name} advances traces that it started on this question, each once in a"
                f" round; {chosen!r:.200} were given."
            )
        for state in states:
            if state.finished or state.stopped:
                raise UsageError(
                    f"{state} is {'finished' if state.finished else 'stopped'} and cannot be"
                    " advanced."
                )
        before = [state.tokens for state in states]
        self._refusing(lambda: self._source.advance(states, bursts))
        after = [state.tokens for state in states]
        for state in states:
            self._tokens[state.index] = state.tokens
        self._advanced += max((b - a for a, b in zip(before, after, strict=True)), default=0)
        self._waited += self._source.wait([state.place for state in states], before, after)

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
        self._require("steps", k, "step")
        several = [nodes] if nodes is None or isinstance(nodes, Node) else list(nodes)
        for node in several:
            if node is not None and node not in self._nodes:
                raise UsageError(
                    f"{node!r} was not handed out by {self.name} on this question, and cannot be"
                    " expanded."
                )
            if node is not None and node.ends:
                raise UsageError(f"{node!r} ends a solution and cannot be expanded.")
        places = [REQUEST if node is None else node.place for node in several]
        found = self._refusing(lambda: self._source.expand(places, k))
        index = count(self.cots)
        steps = [
            [Node(self._source, place, node, next(index)) for place in own]
            for node, own in zip(several, found, strict=True)
        ]
        flat = [step for own in steps for step in own]
        self._nodes.update(flat)
        self._hand(
            [step.place for step in flat],
            [step.tokens for step in flat],
            [step.path_tokens - step.tokens for step in flat],
        )
        return steps[0] if nodes is None or isinstance(nodes, Node) else steps

    def reply(
        self,
        cots: CoT | LLMResponse | Sequence[CoT],
        messages: Messages | Sequence[Messages] | None = None,
        k: int = 1,
    ) -> LLMResponse:
        """Return the next k turns, in draw order, that reply to a CoT, or to each of several, all
        at once: one round.

        A turn comes with the whole conversation before it: the request, and every CoT and turn up
        to the one replied to with the messages sent behind it. A recorded one is looked up by what
        it replies to and by these messages. It can be replied to itself. Each CoT replied to is a
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
        self._require("replies", k)
        places = self._handed_places(cots)
        sent = _message_lists(messages, len(places))
        turns = self._refusing(lambda: self._source.reply(places, sent, k))
        self._rounds += [slice(0)] * (len(places) - 1)
        self._auxiliary[1] += sum(self._source.extra_prompt_tokens(own[0]) for own in turns)
        before = [
            self._path_tokens(self._places.index(place)) for place in places for _ in range(k)
        ]
        return self._response([place for own in turns for place in own], before)

    def truncate(self, index: int, tokens: int) -> None:
        """Stop a recorded CoT early: only its first tokens are billed. Cutting it does not change
        what came before the cut.

        Args:
            index: which of the CoTs handed out so far, from 0.
            tokens: how many of its tokens were generated before it was stopped; more than it has
                changes nothing.

        Raises:
            OutOfRangeError: no such CoT, or a negative number of tokens.
            UsageError: it is a trace, or a step of a tree.
            NotRecordedError: the LLM is live, so the CoT was generated to its end.
        """
        if not 0 <= index < self.cots or tokens < 0:
            raise OutOfRangeError(
                f"{self.name} has handed out {self.cots} CoTs, numbered from 0; CoT {index} cannot"
                f" be cut after {tokens} tokens."
            )
        if any(state.index == index for state in self._traces.values()):
            raise UsageError(
                f"CoT {index} of {self.name} was started as a trace; end it with its `stop`."
            )
        self._source.require("cuts")
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
        for place, more in enumerate((calls, prompt_tokens, output_tokens)):
            self._auxiliary[place] += more

    def uniform(self, seed: int = 0) -> float:
        """Return a random number in [0, 1), a function of the question and the CoTs handed out so
        far; see `draws.uniforms`. Of a live LLM, it is that of a replay in recorded order where the
        question has an id, and else any.
        """
        return self._source.uniform(max(self.cots, 1), seed)

    def _require(self, need: Need, number: int = 1, unit: str = "CoT") -> None:
        """Check that the ledger is open, and what is asked for a number and there at all."""
        require_recorded(self)
        if self._closed:
            raise UsageError(
                f"This {self.name} was kept from another question or draw, whose ledger is closed;"
                " ask the one that the method was called with."
            )
        if not is_whole(number) or number < 1:
            raise OutOfRangeError(
                f"A method asks {self.name} for 1 {unit} or more at a time; {number!r} were asked"
                " for."
            )
        self._source.require(need)

    def _refusing(self, ask: Callable[[], _T]) -> _T:
        """Ask the source, and remember what it refused."""
        try:
            return ask()
        except NotRecordedError as error:
            self._refusal = error
            raise

    def _hand(
        self, places: Sequence[int], tokens: Sequence[int], before: Sequence[int] = ()
    ) -> None:
        """Count a round; `before` are the tokens of the paths to its CoTs."""
        if places:
            start = self.cots
            self._places += places
            self._tokens += tokens
            if before:
                self._before.update(enumerate(before, start))
            self._rounds.append(slice(start, self.cots))

    def _response(self, places: Sequence[int], before: Sequence[int] = ()) -> LLMResponse:
        self._hand(places, self._source.tokens(places), before)
        return LLMResponse(tuple(places), self._source)

    def _path_tokens(self, index: int) -> int:
        return self._tokens[index] + self._before.get(index, 0)

    def _handed_places(self, cots: CoT | LLMResponse | Sequence[CoT]) -> list[int]:
        several: Any = cots if isinstance(cots, Sequence) else [cots]
        places: list[int] = []
        for each in several:
            own = each.samples if isinstance(each, LLMResponse) else [getattr(each, "sample", -1)]
            given = getattr(each, "_source", None) is self._source
            if not given or not all(place in self._places for place in own):
                raise UsageError(
                    f"{each!r:.80} was not handed out by {self.name} on this question, and cannot"
                    " be replied to."
                )
            places += own
        return places

    def _probe(self, state: TraceState) -> ProbeReply:
        if state.finished:
            return ProbeReply(answer=self._source.answers([state.place])[0])
        if not state.tokens:
            raise UsageError(f"{state} cannot be probed: advance it first.")
        self._require("traces")
        reply = self._source.probe(state)
        if reply is not state.reply:
            state.reply = reply
            self._probes[0] += 1
            self._probes[1] += reply.tokens
        return reply


def _message_lists(messages: Any, parents: int) -> list[MessageList | None]:
    """Return what is sent to each of some CoTs, which may be the same for all."""
    is_list = isinstance(messages, Sequence) and not isinstance(messages, str)
    if not is_list or all(isinstance(each, Mapping) for each in messages):
        return [_message_list(messages)] * parents
    if len(messages) != parents:
        raise UsageError(
            f"{parents} CoTs are replied to, with messages for {len(messages)}; give as many, or"
            " the same for all."
        )
    return [_message_list(each) for each in messages]


def _message_list(messages: Any) -> MessageList | None:
    if messages is None:
        return None
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if not (
        isinstance(messages, Sequence)
        and messages
        and all(
            isinstance(each, Mapping) and {"role", "content"} <= each.keys() for each in messages
        )
    ):
        raise UsageError(
            "A CoT is replied to with a text, or with a list of messages {'role': ..., 'content':"
            f" ...}}; {messages!r:.80} was given."
        )
    return [dict(each) for each in messages]


def close_ledger(llm: MeteredLLM) -> None:
    """Close a ledger that was read: CoTs handed out from now on would be counted nowhere. Not a
    method, so no user calls it.
    """
    llm._closed = True  # noqa: SLF001  users' methods must not find this among the public attributes


def handed_out(llm: MeteredLLM) -> list[tuple[int, int]]:
    """Return place and tokens so far of the first 4,096 CoTs or steps handed out, in order. Not a
    method, as above.
    """
    return list(zip(llm._places, llm._tokens[:4096], strict=False))  # noqa: SLF001  as above


def require_recorded(llm: MeteredLLM) -> None:
    """Raise what `advance`, `expand` or `reply` refused: a method that caught it would know what
    lies ahead.
    """
    if llm._refusal is not None:  # noqa: SLF001  as above
        raise llm._refusal  # noqa: SLF001  as above
