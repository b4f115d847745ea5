"""What a journal lacks, as the engine's assignment: in which requests it is asked for, and what it
costs; and whether the replies as a whole show that the server does what it was asked.

A server that ignores a parameter does not say so; it shows in the replies. The checks see every CoT
once, keep a few numbers per question, and return sentences.

CoTs that are complete are probed after every so many tokens: the prefix of a CoT is sent again with
a cue behind it, and answered greedily with a few tokens. A probe sees its prefix alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from itertools import accumulate, chain
from typing import Any

import orjson

from feval.answers.thoughts import Thoughts, interruption, split, written_marks
from feval.cards import UNANSWERED, Price, count_words
from feval.errors import OutOfRangeError, UsageError
from feval.values import Record, RecordLike, frozen, without_none
from recorders.asking.engine import Assignment, Progress, TokenEstimate, ask
from recorders.asking.pace import (
    Budget,
    CostEstimate,
    Limits,
    ProbeEstimate,
    check_cost_limit,
    cost,
)
from recorders.errors import MissingError, RefusalError, Transient
from recorders.journal import MOST_SAMPLES, Journal, utc_now
from recorders.request import (
    Backend,
    Completion,
    Decoding,
    Prefill,
    Request,
    note_on_number,
    require_template,
)

# ruff: noqa: D102  the methods of an `Assignment` are described there


_OUTPUT_UNKNOWN = 4096


@frozen
class SamplePlan:
    """What a recording should hold in the end: CoTs of each request; questions with equal messages
    share theirs.
    """

    requests: Sequence[Request]
    samples: int
    by_key: dict[str, Request] = field(init=False, repr=False)
    """The first request of each key."""

    def __post_init__(self) -> None:
        if not 1 <= self.samples <= MOST_SAMPLES:
            raise OutOfRangeError(
                f"A recording has 1 to {MOST_SAMPLES:,} CoTs per question; {self.samples:,} were"
                " asked for."
            )
        by_key: dict[str, Request] = {}
        for request in self.requests:
            by_key.setdefault(request.key(), request)
        object.__setattr__(self, "by_key", by_key)

    @property
    def total(self) -> int:
        """CoTs in all; equal requests count once."""
        return len(self.by_key) * self.samples

    @property
    def decoding(self) -> Decoding:
        """The decoding of all requests."""
        return self.requests[0].decoding if self.requests else Decoding()

    def missing(self, key: str, journal: Journal | None) -> list[int]:
        """Return the samples of a request that a journal lacks; without one, all of them."""
        return list(range(self.samples)) if journal is None else journal.missing(key, self.samples)


@dataclass(slots=True)
class Lack:
    """The samples of one request that are not asked for yet; steps behind a `place`
    (`recorders.asking.trees.Place`); or one probe of a sample, at an offset.
    """

    request: Request
    key: str
    samples: list[int]
    offset: int | None = None
    place: Any = None


@dataclass(slots=True)
class SampleBatch:
    """The samples of one request that are asked for together."""

    lack: Lack
    samples: list[int]

    @property
    def request(self) -> Request:
        return self.lack.request


class MissingSamples(Assignment[SampleBatch, list[Completion]]):
    """The samples of a plan that a journal lacks; steps and probes are subclasses."""

    ACTIVITY, DONE = "Recording", "recorded"

    journal: Journal

    def __init__(
        self,
        plan: SamplePlan,
        backend: Backend,
        journal: Journal,
        budget: Budget,
        limits: Limits,
        backend_notes: MutableSequence[str] | None,
        now: Callable[[], str],
        thoughts: Thoughts | None,
    ) -> None:
        self._backend, self.journal, self.budget, self._now = backend, journal, budget, now
        self._backend_notes = backend_notes if backend_notes is not None else []
        self._plan, self._thoughts, self.timeout_s = plan, thoughts, limits.timeout_s
        totals = journal.totals
        budget.pay(totals.prompt_tokens, totals.output_tokens)
        budget.pay(totals.probe_prompt_tokens, totals.probe_output_tokens)
        self._replies = self._output_tokens = self._longest = 0
        self._waiting: deque[Lack] = deque()
        self.total, missing = self._find()
        self._elsewhere = self._recorded - (self.total - missing)  # of other requests or samples
        self._per_request = limits.samples_per_request or plan.samples
        self._honours_n = False
        self._short_replies = 0
        self._watch = LimitWatch(plan.decoding, thoughts, missing)

    def _find(self) -> tuple[int, int]:
        """Queue what is missing; return how many are wanted, and how many of them are missing."""
        totals = self.journal.totals
        self._replies, self._output_tokens = totals.cots, totals.output_tokens
        self.has_replies = totals.replies > 0
        lacks = [
            Lack(request, key, self._plan.missing(key, self.journal))
            for key, request in self._plan.by_key.items()
        ]
        self._lacks = iter(lacks)
        return self._plan.total, sum(len(lack.samples) for lack in lacks)

    @property
    def _recorded(self) -> int:
        return self.journal.totals.cots

    @property
    def done(self) -> int:
        return self._recorded - self._elsewhere

    def next_batch(self) -> SampleBatch | None:
        while not (self._waiting and self._waiting[0].samples):
            if self._waiting:
                self._waiting.popleft()
            elif (lack := next(self._lacks, None)) is not None:
                self._waiting.append(lack)
            else:
                return None
        lack = self._waiting[0]
        batch = SampleBatch(lack, lack.samples[: self._per_request])
        del lack.samples[: self._per_request]
        return batch

    def put_back(self, batch: SampleBatch) -> None:
        self._return(batch, batch.samples)

    def _return(self, batch: SampleBatch, samples: list[int]) -> None:
        batch.lack.samples[:0] = samples
        if samples and not (self._waiting and self._waiting[0] is batch.lack):
            self._waiting.appendleft(batch.lack)

    def withdraw(self, batch: SampleBatch) -> None:
        batch.samples += batch.lack.samples
        batch.lack.samples = []

    def label(self, batch: SampleBatch) -> str:
        offset = "" if batch.lack.offset is None else f":{batch.lack.offset}"
        return f"{batch.lack.key}:{batch.samples[0]}{offset}"

    def estimate(self, batch: SampleBatch) -> TokenEstimate:
        limit, number = batch.request.decoding.max_tokens, len(batch.samples)
        longest = float(limit or max(self._longest, _OUTPUT_UNKNOWN))
        mean = self._output_tokens / self._replies if self._replies else longest
        prompt = self.budget.prompt_tokens(batch.request.characters)
        return TokenEstimate(prompt, min(mean, longest) * number, longest * number)

    async def send(self, batch: SampleBatch) -> list[Completion]:
        replies = await self._backend.complete(
            batch.request, self._numbers(batch.lack, batch.samples)
        )
        if not replies:
            raise Transient("the server sent no choice")
        return replies

    def _numbers(self, lack: Lack, samples: Sequence[int]) -> Sequence[int]:  # noqa: ARG002  of steps alone
        """Return what the seeds of some samples add to the base seed."""
        return samples

    def pay(self, batch: SampleBatch, reply: list[Completion]) -> float:
        outputs = [
            count_words(c.text) if c.output_tokens is None else c.output_tokens for c in reply
        ]
        self._longest = max(self._longest, *outputs)
        self._replies += len(outputs)
        self._output_tokens += sum(outputs)
        prompt, characters = reply[0].prompt_tokens, batch.request.characters
        if prompt is None:  # the server did not count it
            prompt = round(self.budget.prompt_tokens(characters))
        else:
            self.budget.learn(characters, prompt)
        self.budget.pay(prompt, sum(outputs))
        return float(prompt + sum(outputs))

    def accept(self, batch: SampleBatch, reply: list[Completion]) -> None:
        self._learn(len(batch.samples), len(reply), batch.request)
        samples = batch.samples[: len(reply)]
        self._write(batch.lack, samples, reply[: len(samples)])
        self._return(batch, batch.samples[len(samples) :])

    def refuse(self, batch: SampleBatch, error: RefusalError) -> None:
        reply = Completion("", error.finish_reason, output_tokens=0)
        self._write(batch.lack, batch.samples, [reply] * len(batch.samples), error.reason)

    def before_commit(self) -> None:
        while self._backend_notes:
            self.journal.note(self._backend_notes.pop(0))

    def _learn(self, asked: int, got: int, request: Request) -> None:
        """Notice what a server makes of n. With seeds a request has one sample, and no server
        ignored anything.
        """
        one_each = self._backend.takes_seed and request.decoding.seed is not None
        if (note := note_on_number(got, asked)) and not (one_each and got < asked):
            self.journal.note(note)
        if got >= asked:
            self._honours_n |= asked > 1
            self._short_replies = 0
            return
        self._short_replies += 1
        # one short reply may be a hiccup
        if (one_each or self._short_replies > 1) and not self._honours_n:
            self._per_request = min(self._per_request, got)

    def _write(
        self,
        lack: Lack,
        samples: list[int],
        completions: list[Completion],
        refused: str | None = None,
    ) -> None:
        base = lack.request.decoding.seed if self._backend.takes_seed else None
        self.journal.add(
            lack.request,
            lack.key,
            samples,
            completions,
            recorded_at=self._now(),
            seeds=base if base is None else [base + n for n in self._numbers(lack, samples)],
            refused=refused,
        )
        for completion in completions if refused is None else ():
            if sentence := self._watch.see(completion):
                # Said at once, before more is paid for; the recording keeps it.
                self.warning = sentence
                self.journal.note(sentence)


async def record_samples(
    plan: SamplePlan,
    backend: Backend,
    journal: Journal,
    *,
    limits: Limits | None = None,
    price: Price | None = None,
    cost_limit_usd: float | None = None,
    backend_notes: MutableSequence[str] | None = None,
    now: Callable[[], str] = utc_now,
    thoughts: Thoughts | None = None,
    missing: Callable[..., MissingSamples] = MissingSamples,
    **options: Any,
) -> Progress:
    """Ask the backend, which stays open, for every sample that the journal lacks.

    Nothing is sent that could pass `cost_limit_usd`, which covers earlier runs, if every CoT in
    flight took `max_tokens`; without `max_tokens`, the longest CoT so far stands in. The backend
    appends sentences to `backend_notes`; they go into the journal. `missing` makes another
    assignment: of steps, turns or probes. The options are those of `ask`.
    """
    check_cost_limit(cost_limit_usd, price, "this LLM")
    limits = limits or Limits()
    budget = Budget(price, cost_limit_usd)
    samples = missing(plan, backend, journal, budget, limits, backend_notes, now, thoughts)
    if samples.done < samples.total and not journal.may_ask:
        raise MissingError(
            f"{journal.folder} lacks {samples.total - samples.done} of {samples.total}"
            f" {samples.unit}, and the mode {journal.mode!r} asks for nothing. Record with the mode"
            " 'new_episodes' to get them."
        )
    return await ask(samples, limits=limits, **options)


def estimate_samples(
    plan: SamplePlan,
    journal: Journal | None = None,
    *,
    price: Price | None = None,
    limits: Limits | None = None,
) -> CostEstimate:
    """Return what `record_samples` would cost, without asking anything.

    The length of further CoTs is judged by the journal's, else by `max_tokens`.
    """
    per_request = (limits or Limits()).samples_per_request or plan.samples
    cots = calls = prompt = 0
    for key, request in plan.by_key.items():
        lacking = len(plan.missing(key, journal))
        requests = -(-lacking // per_request)
        cots, calls, prompt = cots + lacking, calls + requests, prompt + requests * request.words
    totals = journal.totals if journal is not None and journal.totals.replies else None
    if totals and totals.prompt_tokens:
        prompt = round(calls * totals.prompt_tokens / totals.replies)
    length: float | None = plan.decoding.max_tokens
    basis = f"an upper bound: the limit of {length} output tokens for every CoT"
    if totals is not None:
        length = totals.output_tokens / totals.cots
        basis = "the mean length of the CoTs in the journal"
    elif length is None:
        basis = "nothing: no CoT was recorded yet, and there is no limit on output tokens"
    output = None if length is None else round(cots * length)
    at_most = totals is None and output is not None
    usd, batch = cost(price, prompt, output), cost(price and price.batch, prompt, output)
    return CostEstimate(cots, calls, prompt, output, usd, basis, at_most, usd_batch=batch)


_LOOKS = (20, 100)  # after so many CoTs, check whether too many end at the limit
_MOST_AT_LIMIT = 0.05
_ROOM_TO_THINK = 32_768


class LimitWatch:
    """Warns early if more than 5 % of the first replies end at the limit on output tokens."""

    def __init__(self, decoding: Decoding, thoughts: Thoughts | None, total: int) -> None:
        self._limit, self._thoughts = decoding.max_tokens, thoughts
        self._looks = {min(look, total) for look in _LOOKS}
        self._seen = self._at_limit = self._thinking = 0

    def see(self, completion: Completion) -> str | None:
        """Look at one CoT; return a warning if it is time for one."""
        if not self._looks:
            return None
        parts = split(completion.text, self._thoughts)
        thinking = not parts.closed or (bool(completion.reasoning) and not completion.text.strip())
        at_limit = completion.finish_reason == "length" or (
            completion.finish_reason == "unknown" and not parts.closed
        )
        self._seen += 1
        self._at_limit += at_limit
        self._thinking += at_limit and thinking
        if self._seen not in self._looks:
            return None
        self._looks.remove(self._seen)
        if self._at_limit <= _MOST_AT_LIMIT * self._seen:
            return None
        self._looks.clear()
        return self._sentence()

    def _sentence(self) -> str:
        limit, more = "the provider's limit on", _ROOM_TO_THINK
        if self._limit is not None:
            limit = f"the limit of {self._limit:,}"
            more = max(2 * self._limit, _ROOM_TO_THINK if self._thinking else 0)
        inside = f", {self._thinking} of them inside a thought" if self._thinking else ""
        return (
            f"{self._at_limit} of the first {self._seen} CoTs end at {limit} output tokens{inside},"
            " so that their answers are not known. Stop, and record into another folder with a"
            f" higher limit, such as --max-tokens {more}."
        )


# ruff: noqa: D102  the methods of an `Assignment` are described there


_CUT_BY_TEXT = (
    "Nothing says which tokens some CoTs are made of, so their prefixes for probes were cut by"
    " length of text, and the offsets of those probes are estimates. With --logprobs 0 servers"
    " return the tokens."
)


@frozen
class Probing:
    """How CoTs are probed.

    Attributes:
        every: output tokens between two probes of a CoT.
        cue: put behind each prefix to make the LLM answer.
        max_tokens: most output tokens of a probe.
        template: see `recorders.request.Prefill`.

    Raises:
        OutOfRangeError: an interval or a number of tokens below 1.
        UsageError: an empty cue, or a template without "{prompt}".
    """

    every: int
    cue: str
    max_tokens: int = 20
    template: str | None = None

    def __post_init__(self) -> None:
        for name, value in (("every", self.every), ("tokens", self.max_tokens)):
            if not 1 <= value < 1 << 31:
                raise OutOfRangeError(
                    f"The setting probe_{name} is a number of tokens, 1 or more; {value} was given."
                )
        if not self.cue.strip():
            raise UsageError(
                "The cue of the probes is empty, and makes no LLM answer; give one, or leave it"
                " out."
            )
        require_template("probe_template", self.template)

    def content(self) -> Record:
        """Return what a recording says about its probes, as JSON values."""
        return without_none(asdict(self))

    def key(self) -> str:
        """Return a hash of all but the interval: two probes of one prefix with equal keys are the
        same request.
        """
        return sha256(orjson.dumps([self.cue, self.max_tokens, self.template])).hexdigest()[:16]

    def offsets(self, tokens: int) -> range:
        """Return the offsets at which a CoT of so many tokens is probed; its end is no prefix."""
        return range(self.every, tokens, self.every)

    def decoding(self, decoding: Decoding) -> Decoding:
        """Return how a probe is decoded, of a CoT that was decoded in a way."""
        return Decoding(0.0, max_tokens=self.max_tokens, logprobs=0, extra_body=decoding.extra_body)


def prefix(record: RecordLike, characters: int, thoughts: Thoughts | None) -> tuple[Prefill, str]:
    """Return the first characters of a CoT (thoughts that came separately, then text), and what
    ends the thought they are in.
    """
    text, apart = record["text"], record.get("reasoning")
    if not apart:
        opening, closing = interruption(text, characters, thoughts)
        return Prefill(text[:characters], opening), closing
    opening, closing = written_marks(thoughts or "think")
    if characters < len(apart):
        return Prefill(apart[:characters], f"{opening}\n"), f"\n{closing}"
    return Prefill(f"{apart}\n{closing}\n\n{text[: characters - len(apart)]}", f"{opening}\n"), ""


def trace_tokens(record: RecordLike) -> int:
    """Return how many output tokens a CoT has; 0 where there is nothing to probe."""
    if "refused" in record or record["finish_reason"] in UNANSWERED:
        return 0
    counted, lengths = record.get("output_tokens"), record.get("token_lengths")
    if counted is not None:
        return int(counted)
    return (
        len(lengths)
        if lengths is not None
        else count_words(record["text"]) + count_words(record.get("reasoning") or "")
    )


def settled(reply: Completion, backend: Backend, model: str) -> Completion:
    """Return the reply to a probe as text, with the lengths of its tokens where they can be
    known.
    """
    # some servers take what follows no closing mark of its own for a thought
    if not reply.text and reply.reasoning:
        reply = replace(reply, text=reply.reasoning, reasoning=None)
    if reply.token_logprobs is None or reply.token_lengths is not None:
        return reply
    return replace(reply, token_lengths=backend.token_lengths(model, reply.text))


class MissingProbes(MissingSamples):
    """The probes of the CoTs of a plan that a journal lacks."""

    ACTIVITY, unit = "Probing", "probes"

    def __init__(self, probing: Probing, plan: SamplePlan, *arguments: Any) -> None:
        self._probing, self._way = probing, probing.key()
        super().__init__(plan, *arguments)

    def _find(self) -> tuple[int, int]:
        self.has_replies = self.journal.totals.probes > 0
        self._lacks = self._lacking()
        counts = [
            (
                len(self._probing.offsets(trace_tokens(record))),
                len(missing_offsets(self._probing, self.journal, record)),
            )
            for record in chain.from_iterable(map(self.journal.cots, self._plan.by_key))
        ]
        return sum(wanted for wanted, _ in counts), sum(missing for _, missing in counts)

    @property
    def _recorded(self) -> int:
        return self.journal.totals.probes

    def accept(self, batch: SampleBatch, reply: list[Completion]) -> None:
        answer = settled(reply[0], self._backend, batch.request.model)
        self._write(batch.lack, batch.samples, [answer])

    async def send(self, batch: SampleBatch) -> list[Completion]:
        return (await super().send(batch))[:1]

    def _numbers(self, lack: Lack, samples: Sequence[int]) -> list[int]:  # noqa: ARG002  the same for all that is missing
        return [0]  # answered greedily, whatever CoT it is of

    def _write(
        self,
        lack: Lack,
        samples: list[int],
        completions: list[Completion],
        refused: str | None = None,
    ) -> None:
        where = self._way, lack.key, samples[0], lack.offset or 0
        self.journal.add_probe(*where, completions[0], recorded_at=self._now(), refused=refused)

    def _lacking(self) -> Iterator[Lack]:
        """The probes that the journal lacked at first, CoT by CoT, so that a server finds a prefix
        in its cache.
        """
        for key, request in self._plan.by_key.items():
            decoding = self._probing.decoding(request.decoding)
            for record in self.journal.cots(key):
                ends = None
                for offset in missing_offsets(self._probing, self.journal, record):
                    ends = ends or self._ends(record, request.model)
                    beginning, closing = prefix(record, ends(offset), self._thoughts)
                    prefill = replace(
                        beginning,
                        text=f"{beginning.text}{closing}{self._probing.cue}",
                        template=self._probing.template,
                    )
                    asked = replace(request, decoding=decoding, prefill=prefill)
                    yield Lack(asked, key, [record["sample"]], offset)

    def _ends(self, record: RecordLike, model: str) -> Callable[[int], int]:
        """Return where in a CoT so many of its tokens end, in characters: by its tokens if they are
        known, else by its length.
        """
        lengths: Sequence[int] | None = record.get("token_lengths")
        apart = record.get("reasoning") or ""
        if lengths is None and not apart:
            lengths = self._backend.token_lengths(model, record["text"])
        if lengths is not None:
            ends = list(accumulate(lengths, initial=0))
            return lambda offset: ends[min(offset, len(ends) - 1)]
        self.journal.note(_CUT_BY_TEXT)
        size, tokens = len(record["text"]) + len(apart), trace_tokens(record)
        return lambda offset: size * offset // tokens


def missing_offsets(probing: Probing, journal: Journal, record: RecordLike) -> list[int]:
    """Return the offsets at which a journal lacks probes of a CoT."""
    probed = journal.probed(probing.key(), record["key"], record["sample"])
    return [offset for offset in probing.offsets(trace_tokens(record)) if offset not in probed]


def estimate_probes(
    probing: Probing,
    plan: SamplePlan,
    cots: CostEstimate,
    journal: Journal | None,
    price: Price | None,
) -> ProbeEstimate | None:
    """Return what the probes of a plan would cost, if missing CoTs are as long as `cots` expects;
    `None` if it does not.
    """
    if cots.cots and cots.output_tokens is None:
        return None
    words = sum(request.words for request in plan.requests) / len(plan.requests)
    length = round((cots.output_tokens or 0) / (cots.cots or 1))
    offsets = [*probing.offsets(length)]
    probes, before = cots.cots * len(offsets), cots.cots * sum(offsets)
    if journal is not None:
        for record in chain.from_iterable(map(journal.cots, plan.by_key)):
            offsets = missing_offsets(probing, journal, record)
            probes, before = probes + len(offsets), before + sum(offsets)
    cues, output = probes * count_words(probing.cue), probes * probing.max_tokens
    prompt = round(before + probes * words) + cues
    costs = [cost(price, tokens, output) for tokens in (prompt, cues)]
    return ProbeEstimate(probes, prompt, cues, output, *costs)
