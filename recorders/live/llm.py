"""Live LLMs: where they are asked, how, and at which price; new CoTs, replies to them, traces that
grow piece by piece, steps.

A trace's piece continues the text so far (`recorders.request.Prefill`), so the server has to
continue a beginning: completions with a template, chat that continues a message, or a local model.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from feval.answers import canonical, extract
from feval.answers.equality import comparison, named_equality
from feval.answers.equivalence import Classifier
from feval.answers.thoughts import Thoughts, reply_behind, split_columns
from feval.cards import UNANSWERED, PriceList, count_words, thoughts_of
from feval.cards.billing import Price, billed_prompts, usd
from feval.errors import NotRecordedError, OutOfRangeError, PriceNotFoundError, UsageError
from feval.recording import Question
from feval.recording.arrays import path_texts
from feval.recording.layout.format import name_key
from feval.replay import MeteredLLM, Pool
from feval.replay.draws import uniforms
from feval.replay.responses import (
    REQUEST,
    LLMRequest,
    MessageList,
    Need,
    ProbeReply,
    Source,
    TraceState,
)
from feval.report.text import duration
from feval.values import Closing
from recorders.asking.pace import Limits, backoff, find_price
from recorders.asking.samples import Probing, prefix, settled
from recorders.asking.trees import Tree, TreePlace, child_seed, root
from recorders.errors import LONGEST_WAIT_S, RateLimitError, StoppedError, Transient
from recorders.request import Backend, Completion, Decoding, Message, Prefill, Request, as_json
from recorders.scoring.scores import Item, Score, Scorer
from recorders.work.seal import confidence_of
from recorders.work.settings import default_cue, default_decoding, default_prices, tree_of

# ruff: noqa: D102  the methods of `Source` are described there


_T = TypeVar("_T")

Ask = Callable[[Sequence[int], Request], Awaitable[list[Completion]]]
"""Asks once, by what the seeds add to the base seed: a completion each, or fewer."""

Numbered = list[tuple[int | None, Completion]]
"""Completions with their numbers in a journal, if there is one."""

Journaled = Callable[[Request, int | None, Sequence[int], Ask], Awaitable[Numbered]]
"""Gives what a journal has of a request behind a turn, and asks for the rest; see `Tape`."""


class Loop:
    """An event loop in its own thread, so that methods can be plain functions."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="live-llm", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run to the end, and return what comes back."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C: nobody waits for the reply any more
            raise

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclass(eq=False, repr=False)
class LiveLLM(Closing):
    """A live LLM; `ask` gives it a question. Use it as a context manager, or call `close`.

    Its fields are what all questions share; see `live`, which makes it.
    """

    name: str
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
    journaled: Journaled | None = None
    loop: Loop = field(default_factory=Loop)

    def ask(
        self,
        question: str,
        choices: Sequence[tuple[str, str]] = (),
        *,
        dataset: str = "",
        question_id: str = "",
    ) -> MeteredLLM:
        """Return the LLM for one question, with a meter: what a method is given.

        Args:
            question: the text that the prompt is made of.
            choices: (label, text) of its options, for reading answers.
            dataset: id of the dataset that it is from.
            question_id: its id; random numbers of `uniform` are then those of a replay in recorded
                order.
        """
        asked = Question(question_id, question, choices=tuple(choices))
        return MeteredLLM(LiveSource(self, asked, dataset))

    def close(self) -> None:
        """Close connections and the thread; do nothing if closed."""
        if self.loop.closed:
            return
        try:
            self.loop.run(self.backend.aclose())
            if self.scorer is not None:
                self.loop.run(self.scorer.aclose())
        finally:
            self.loop.close()


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
    """Return a live LLM with the replay's `sample(k)`, `reply(cot, messages, k)`, `start(k)`,
    `expand(node, k)` and ledger.

    Args:
        backend: asked, and closed with the LLM.
        llm: name, such as "gpt-4o-mini@t=0.8"; the part before "@" finds the price.
        answer_kind: a key of `feval.answers.KINDS` except "verbatim".
        equality: of answers, see `feval.answers.equality.named_equality`; `None`: that of the
            answer kind. An answer is compared with earlier ones to the same question, whichever LLM
            gave them.
        model: as the provider calls it; `None`: the part of `llm` before "@".
        decoding: sampling parameters; `None`: see `recorders.work.settings.default_decoding`.
        messages: returns what is sent for a question; `None`: the question as one user message.
        prices: a price list or its id; "none" for no dollars; `None`: see
            `recorders.work.settings.default_prices`.
        billing: "once", "per_round" or "per_sample".
        retries: after temporary failures, before giving up.
        probe_cue: put behind a trace to make the LLM answer; `None`: see
            `recorders.work.settings.default_cue`.
        probe_tokens: most output tokens of a probe.
        probe_template: see `recorders.request.Prefill`.
        step_stop: text that a step ends at; `None`: as `feval record --tree` has it.
        step_depth: steps of the longest path, whose last one goes on to the end of the solution;
            `None`: likewise.
        step_template: see `recorders.request.Prefill`.
        scorer: of each step's path, as `recorders.scoring.scorers.make_scorer` gives it; closed
            with the LLM, and not charged.
        wait: for tests.

    Raises:
        UnknownNameError: no such answer kind, price list or billing.
        UsageError: an answer kind that is not read from texts.
        OutOfRangeError: negative retries, or a depth below 1.
    """
    canonical(answer_kind, None)
    if answer_kind == "verbatim":
        raise UsageError(
            "Verbatim answers are not read from texts; name another answer kind for a live LLM."
        )
    prices = default_prices(llm) if prices is None else prices
    billed_prompts(billing, 1, 1)
    if retries < 0:
        raise OutOfRangeError(f"The number of retries must be 0 or more; {retries} was given.")
    return LiveLLM(
        llm,
        backend,
        model or llm.split("@", 1)[0],
        answer_kind,
        named_equality(answer_kind, equality),
        thoughts_of(llm),
        decoding or default_decoding(llm),
        lambda question: (
            [Message("user", question.text)] if messages is None else messages(question.text)
        ),
        find_price(prices, llm) if isinstance(prices, str) else prices.find(llm),
        billing,
        retries,
        Probing(
            1, default_cue(llm) if probe_cue is None else probe_cue, probe_tokens, probe_template
        ),
        tree_of(llm, 1, 1, step_depth, step_stop, step_template),
        scorer,
        wait,
    )


@lru_cache(maxsize=1024)
def _classifier(equality: str, question: str) -> Classifier:  # noqa: ARG001  one for each question
    """Return the classes of the answers to a question so far, shared by all LLMs so that their
    votes pool.
    """
    return Classifier(comparison(equality))


@dataclass(slots=True)
class _Said:
    """A CoT or step that was handed out, or the request.

    Attributes:
        behind: what comes behind it: the conversation or path so far.
        path: the number of each CoT up to it among its siblings.
        number: its own in a journal.
        text: without the thoughts; of a trace, as it is so far.
        extra: prompt tokens beyond the question's request.
        replies: to it that were asked for.
    """

    behind: TreePlace
    path: tuple[int, ...] = ()
    number: int | None = None
    text: str = ""
    answer: str | None = None
    tokens: int = 0
    finish_reason: str = "unknown"
    reasoning: str | None = None
    extra: int = 0
    ends: bool = False
    score: Score | None = None
    parent: int = REQUEST
    replies: int = 0


class LiveSource(Source):
    """A question to a live LLM; see `Source` for its methods.

    Places number the CoTs in the order in which they were handed out.
    """

    def __init__(self, llm: LiveLLM, question: Question, dataset: str) -> None:
        self.name, self.billing, self._loop = llm.name, llm.billing, llm.loop
        self._llm, self._question, self._dataset = llm, question, dataset
        self._request = Request(
            dataset or "live",
            question.id or "live",
            tuple(llm.messages(question)),
            llm.model,
            llm.decoding,
        )
        self._said = {REQUEST: _Said(root(self._request))}
        self._prompt_tokens = 0

    def require(self, need: Need) -> None:
        if need == "cuts":
            raise NotRecordedError(
                f"The CoTs of {self.name} were generated to their ends and are paid for; they"
                " cannot be cut. Methods that cut CoTs run on a recording."
            )
        if self._loop.closed:
            raise UsageError(
                f"{self.name} was closed; ask it inside the `with` block, or make another with"
                " `live`."
            )
        if self._llm.journaled is not None and need in {"traces", "steps"}:
            raise UsageError(
                f"While a method is recorded, it asks {self.name} for CoTs and replies alone;"
                f" {need} were asked for. Record these with `feval record --probe-every` or"
                " `--tree`."
            )

    @property
    def remaining(self) -> int:
        return sys.maxsize

    @property
    def price(self) -> Price | None:
        return self._llm.price

    def known_price(self) -> Price:
        if self.price is None:
            raise PriceNotFoundError(
                f"There is no price for {self.name}; name a price list that has it."
            )
        return self.price

    def known_prompt_tokens(self, otherwise: str) -> int:  # noqa: ARG002  they are known
        return self._prompt_tokens

    def uniform(self, cots: int, seed: int) -> float:
        if not self._question.id:
            return secrets.randbits(53) / 2.0**53
        key = np.array([name_key("feval/question", self._dataset, self._question.id)], np.uint64)
        return float(uniforms(key, np.arange(cots)[None, None], seed)[0, 0, -1])

    def tokens(self, places: Sequence[int]) -> list[int]:
        return [self._said[place].tokens for place in places]

    def answers(self, places: Sequence[int]) -> list[str | None]:
        return [self._said[place].answer for place in places]

    def text(self, place: int) -> str | None:
        return self._said[place].text

    def reasoning(self, place: int) -> str | None:
        return self._said[place].reasoning

    def finish_reason(self, place: int) -> str:
        return self._said[place].finish_reason

    def ends(self, place: int) -> bool:
        return self._said[place].ends

    def extra_prompt_tokens(self, place: int) -> int:
        return self._said[place].extra

    def recorded(self, what: str) -> tuple[Pool, int]:
        raise NotRecordedError(
            f"A live CoT has no {what}: nobody scored it, and its log-probabilities were not kept."
            " Record with `feval record --logprobs K`, score with `feval score`, and run the method"
            " on the recording."
        )

    def scores(self, places: Sequence[int], scorer: str | None) -> list[float]:
        name = None if self._llm.scorer is None else self._llm.scorer.info.name
        if name is None or scorer not in {None, name}:
            by, found = (
                "" if scorer is None else f" by {scorer!r}",
                f"it is scored by {name!r}" if name else "it has none",
            )
            raise NotRecordedError(
                f"A search asks for scores{by} of the steps of the live {self.name}, and {found}."
                " Name that scorer, or give `live` another, such as"
                " scorer=make_scorer('python:my_scorers:steps_so_far')."
            )
        scores = [self._said[place].score or Score() for place in places]
        if any(each.score is None and each.step_scores is not None for each in scores):
            raise NotRecordedError(
                f"The scorer {name!r} gave step scores, and a path of {self.name} needs one; take"
                " a scorer of whole texts."
            )
        return [math.nan if each.score is None else each.score for each in scores]

    def request(self, place: int | None) -> LLMRequest:
        said = self._said[REQUEST if place is None else place]
        conversation = said.behind.conversation[:-1]
        messages = as_json((*self._request.messages, *conversation))
        tokens = self._prompt_tokens + said.extra
        dollars = None if self.price is None else float(usd(self.price, tokens, 0))
        return LLMRequest(json.dumps(messages, ensure_ascii=False), tokens, dollars)

    def sample(self, k: int) -> Sequence[int]:
        return self._turns([REQUEST], [[]], k)[0]

    def reply(
        self, places: Sequence[int], messages: Sequence[MessageList | None], k: int
    ) -> list[list[int]]:
        if None in messages:
            raise UsageError(
                f"A live {self.name} is replied to with a text or messages; none were given."
            )
        said = [[Message(**each) for each in own or ()] for own in messages]
        texts = [text for own in said for each in own for text in (each.role, each.content)]
        if not all(isinstance(text, str) for text in texts):
            raise UsageError(
                f"A live {self.name} is replied to with messages of text; {messages!r:.80} was"
                " given."
            )
        return self._turns(places, said, k)

    def _turns(
        self, places: Sequence[int], said: Sequence[Sequence[Message]], k: int
    ) -> list[list[int]]:
        """Return k more replies to each of several CoTs, after something was said."""
        requests = [
            replace(self._request, conversation=(*self._said[place].behind.conversation, *own))
            for place, own in zip(places, said, strict=True)
        ]
        asked = zip(places, requests, strict=True)
        rounds = self._loop.run(self._send_all([(*each, k) for each in asked]))
        turns = []
        for request, replies in zip(requests, rounds, strict=True):
            sent = self._prompt_tokens
            if request.conversation:
                sent = _prompt_tokens([reply for _, reply in replies], request)
            for turn, completion in replies:
                self._read(turn, completion)
                conversation = (*request.conversation, Message("assistant", turn.text))
                turn.behind = turn.behind._replace(conversation=conversation)
                turn.extra = max(sent - self._prompt_tokens, 0)
            turns.append(self._add([turn for turn, _ in replies]))
        return turns

    def _add(self, said: Sequence[_Said]) -> list[int]:
        first = len(self._said) - 1
        self._said.update(enumerate(said, first))
        return list(range(first, first + len(said)))

    def expand(self, places: Sequence[int], k: int) -> list[list[int]]:
        tree, thoughts = self._llm.tree, self._llm.thoughts
        counts = {place: k * times for place, times in Counter(places).items()}
        asked = [
            (place, tree.continued(self._request, self._said[place].behind, thoughts), count)
            for place, count in counts.items()
        ]
        rounds = dict(zip(counts, self._loop.run(self._send_all(asked)), strict=True))
        for place, replies in rounds.items():
            before = self._said[place].behind
            is_last = before.level + 1 == tree.depth
            tree.require_continuable([reply for _, reply in replies], is_last=is_last)
            for step, reply in replies:
                record = asdict(reply) | {"sample": 0}
                step.behind, step.ends = tree.behind(before, record, thoughts)
                step.text, step.tokens = tree.text(record), _tokens(reply)
                if step.ends and reply.finish_reason not in UNANSWERED:
                    step.answer = self._key(self._extracted(step.text))
        waiting = {place: iter(replies) for place, replies in rounds.items()}
        steps = [[next(waiting[place])[0] for _ in range(k)] for place in places]
        if self._llm.scorer is not None:
            self._loop.run(self._rate(self._llm.scorer, [*chain.from_iterable(steps)]))
        return [self._add(own) for own in steps]

    async def _rate(self, scorer: Scorer, steps: Sequence[_Said]) -> None:
        """Give each step the score of the path to it, which `feval score` has as one text, too."""
        items = []
        for step in steps:
            texts, place = [step.text], step.parent
            while place != REQUEST:
                texts, place = [self._said[place].text, *texts], self._said[place].parent
            *_, text = path_texts(texts, [None, *range(len(texts) - 1)], self._llm.tree.stop)
            items.append(Item(self._question, text or "", step.answer, self._request.prompt()))
        batches = [
            items[start : start + scorer.batch] for start in range(0, len(items), scorer.batch)
        ]
        turn = asyncio.Semaphore(scorer.concurrency or len(batches) or 1)

        async def one(batch: Sequence[Item]) -> list[Score]:
            async with turn:
                return await self._retry(lambda: scorer.score(batch), scorer.info.name)

        scores = chain.from_iterable(await asyncio.gather(*map(one, batches)))
        for step, score in zip(steps, scores, strict=True):
            step.score = score

    def start(self, k: int) -> Sequence[int]:
        traces = [_Said(self._said[REQUEST].behind, seeds) for seeds in self._paths(REQUEST, k)]
        return self._add(traces)

    def advance(self, states: Sequence[TraceState], tokens: Sequence[int | None]) -> None:
        known = [burst for burst in tokens if burst is not None]
        if len(known) < len(tokens):
            raise UsageError(
                f"A live trace of {self.name} grows by a number of tokens; give it, since there are"
                " no probes yet."
            )
        self._loop.run(self._grow_all(states, known))

    async def _grow_all(self, states: Sequence[TraceState], tokens: Sequence[int]) -> None:
        most = self._llm.decoding.max_tokens or math.inf

        async def grow(state: TraceState, tokens: int) -> None:
            said = self._said[state.place]
            asked = int(min(tokens, most - state.tokens, (state.limit or math.inf) - state.tokens))
            beginning = self._beginning(said.text)[0] if said.text else None
            decoding = replace(self._llm.decoding, max_tokens=asked)
            request = replace(self._request, decoding=decoding, prefill=beginning)
            [(_, piece)] = await self._ask(request, None, said.path)
            if piece.reasoning:
                raise UsageError(
                    f"The server of {self.name} moves thoughts into a field of their own, so that a"
                    " trace cannot be continued. Serve it without a reasoning parser."
                )
            said.text += piece.text
            grown = _tokens(piece)
            ended = piece.finish_reason != "length" or grown < asked
            state.grow(state.tokens + grown, finished=ended or state.tokens + grown >= most)
            if state.finished:
                said.answer = self._read(_Said(said.behind), Completion(said.text, "unknown"))

        await asyncio.gather(*map(grow, states, tokens))

    def _beginning(self, text: str) -> tuple[Prefill, str]:
        """Return a text as the beginning of a reply, and what ends the thought that it is in."""
        beginning, closing = prefix({"text": text}, len(text), self._llm.thoughts)
        return replace(beginning, template=self._llm.probing.template), closing

    def probe(self, state: TraceState) -> ProbeReply:
        if state.reply.place == state.tokens:
            return state.reply
        probing = self._llm.probing
        beginning, closing = self._beginning(self._said[state.place].text)
        beginning = replace(beginning, text=f"{beginning.text}{closing}{probing.cue}")
        decoding = probing.decoding(self._llm.decoding)
        request = replace(self._request, decoding=decoding, prefill=beginning)
        [(_, completion)] = self._loop.run(self._ask(request, None, [0]))
        completion = settled(completion, self._llm.backend, self._llm.model)
        reply = reply_behind(probing.cue, completion.text)
        raw = None if reply is None else self._extracted(reply)
        sure = confidence_of(asdict(completion), raw)
        return ProbeReply(state.tokens, self._key(raw), sure, _tokens(completion))

    def _paths(self, place: int, k: int) -> list[tuple[int, ...]]:
        """Number the next k replies to a CoT, and return their paths."""
        said = self._said[place]
        said.replies += k
        return [(*said.path, number) for number in range(said.replies - k, said.replies)]

    async def _send_all(
        self, asked: Sequence[tuple[int, Request, int]]
    ) -> list[list[tuple[_Said, Completion]]]:
        """Send requests for k replies to each of several CoTs, all at once."""

        async def send(
            place: int, request: Request, paths: list[tuple[int, ...]]
        ) -> list[tuple[_Said, Completion]]:
            parent, seeds = self._said[place], [child_seed(path[:-1], path[-1]) for path in paths]
            replies = zip(await self._ask(request, parent.number, seeds), paths, strict=True)
            return [
                (_Said(parent.behind, path, number, parent=place), completion)
                for (number, completion), path in replies
            ]

        numbered = [(place, request, self._paths(place, k)) for place, request, k in asked]
        return await asyncio.gather(*(send(*each) for each in numbered))

    async def _ask(self, request: Request, parent: int | None, seeds: Sequence[int]) -> Numbered:
        """Ask until every sample is there; servers that send fewer at a time are asked again."""
        replies: Numbered = []
        if self._llm.journaled is not None:
            replies = await self._llm.journaled(request, parent, seeds, self._ask_once)
        while len(replies) < len(seeds):
            fresh = await self._ask_once(seeds[len(replies) :], request)
            replies += [(None, completion) for completion in fresh]
        if request.prefill is None and not request.conversation:
            self._prompt_tokens = _prompt_tokens([reply for _, reply in replies], request)
        return replies

    async def _ask_once(self, samples: Sequence[int], request: Request) -> list[Completion]:
        attempt = partial(self._llm.backend.complete, request, list(samples))
        completions = await self._retry(attempt, request.key())
        return completions[: len(samples)]

    async def _retry(self, attempt: Callable[[], Awaitable[_T]], key: str) -> _T:
        """Attempt a request until it works, or fails too often."""
        failures = 0
        while True:
            try:
                return await attempt()
            except (RateLimitError, Transient) as error:
                failures += 1
                if failures > self._llm.retries:
                    raise StoppedError(
                        f"{self.name} failed {failures} times in a row ({error.reason}). Check that"
                        " the server runs, or allow more retries."
                    ) from error
                wait = error.retry_after
                if (wait or 0) > LONGEST_WAIT_S:
                    raise StoppedError(
                        f"{self.name} cannot be asked now: {error.reason}, and feval waits"
                        f" {duration(LONGEST_WAIT_S)} at most. Ask again later."
                    ) from error
                await self._llm.wait(backoff(Limits(), failures, key) if wait is None else wait)

    def _read(self, said: _Said, completion: Completion) -> str | None:
        """Fill in what a whole reply says; return its answer."""
        (reply,), reasoning, _, (said.finish_reason,), (readable,) = split_columns(
            [completion.text],
            [completion.reasoning],
            [completion.finish_reason],
            self._llm.thoughts,
        )
        said.text, said.tokens = reply or "", _tokens(completion)
        said.reasoning = reasoning[0] if reasoning else None
        said.answer = self._key(self._extracted(said.text) if readable else None)
        return said.answer

    def _extracted(self, reply: str) -> str | None:
        return extract(self._llm.answer_kind, reply, self._question.choices)

    def _key(self, raw: str | None) -> str | None:
        """Return what a raw answer votes with."""
        form = canonical(self._llm.answer_kind, raw, self._question.choices)
        if form is None:
            return None
        return _classifier(self._llm.equality, self._question.text).add(form)


def _prompt_tokens(completions: Sequence[Completion], request: Request) -> int:
    counted = next((c.prompt_tokens for c in completions if c.prompt_tokens is not None), None)
    if counted is not None:
        return counted
    return sum(count_words(message.content) for message in request.sent)


def _tokens(completion: Completion) -> int:
    if completion.output_tokens is not None:
        return completion.output_tokens
    return count_words(completion.text) + count_words(completion.reasoning or "")
