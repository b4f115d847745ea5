"""Probes as the engine's assignment: CoTs that are complete are cut after every so many tokens, and
made to answer there.

The prefix of a CoT is sent again with a cue behind it, and answered greedily with a few tokens. A
probe sees its prefix alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate
from typing import Any, NamedTuple

import orjson

from feval.answers.thoughts import Thoughts, interruption, written_marks
from feval.cards.billing import Price, usd
from feval.cards.finish_reasons import UNANSWERED
from feval.cards.tokens import count_words
from feval.errors import OutOfRangeError, UsageError
from recorders.asking.budget import Budget, CostEstimate, ProbeEstimate
from recorders.asking.engine import Control, Outcome, Progress, TokenEstimate, ask
from recorders.asking.pace import Limits
from recorders.asking.samples import JournalledReplies, SamplePlan
from recorders.errors import Refused
from recorders.journal.journal import Journal, utc_now
from recorders.journal.places import Places
from recorders.request import Backend, Completion, Decoding, Prefill, Request, require_template

_CUT_BY_TEXT = (
    "Nothing says which tokens some CoTs are made of, so their prefixes for probes were cut by"
    " length of text, and the offsets of those probes are estimates. With --logprobs 0 servers"
    " return the tokens."
)


@dataclass(frozen=True, slots=True)
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

    def content(self) -> dict[str, Any]:
        """Return what a recording says about its probes, as JSON values."""
        values = {
            "every": self.every,
            "cue": self.cue,
            "max_tokens": self.max_tokens,
            "template": self.template,
        }
        return {name: value for name, value in values.items() if value is not None}

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


def prefix(
    record: Mapping[str, Any], characters: int, thoughts: Thoughts | None
) -> tuple[Prefill, str]:
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


def trace_tokens(record: Mapping[str, Any]) -> int:
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


class _Probe(NamedTuple):
    """One probe that is missing, and its request."""

    request: Request
    key: str
    sample: int
    offset: int


async def record_probes(
    probing: Probing,
    plan: SamplePlan,
    backend: Backend,
    journal: Journal,
    *,
    limits: Limits,
    price: Price | None = None,
    cost_limit_usd: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    backend_notes: MutableSequence[str] | None = None,
    control: Control | None = None,
    now: Callable[[], str] = utc_now,
    thoughts: Thoughts | None = None,
) -> Outcome:
    """Ask the backend, which stays open, for every probe that the journal's CoTs of a plan lack;
    see `record_samples`.
    """
    budget = Budget(price, cost_limit_usd)
    probes = _MissingProbes(
        probing, plan, backend, journal, budget, limits, backend_notes, now, thoughts
    )
    probes.require_may_ask()
    return await ask(probes, limits=limits, progress=progress, control=control)


class _MissingProbes(JournalledReplies[_Probe, Completion]):
    """The probes of a plan that a journal lacks."""

    ACTIVITY, DONE, unit = "Probing", "recorded", "probes"

    def __init__(
        self,
        probing: Probing,
        plan: SamplePlan,
        backend: Backend,
        journal: Journal,
        budget: Budget,
        limits: Limits,
        backend_notes: MutableSequence[str] | None,
        now: Callable[[], str],
        thoughts: Thoughts | None,
    ) -> None:
        super().__init__(backend, journal, budget, limits, backend_notes, now)
        self._probing, self._way, self._thoughts = probing, probing.key(), thoughts
        totals = journal.totals
        budget.pay(totals.probe_prompt_tokens, totals.probe_output_tokens)
        self.has_replies = totals.probes > 0
        self._requests = dict(zip(plan.keys, plan.requests, strict=True))
        self._places = Places()
        self.total = missing = 0
        for entry in journal.entries():
            record = entry.record
            if entry.kind != "cot" or record["key"] not in self._requests:
                continue
            offsets = probing.offsets(trace_tokens(record))
            probed = journal.probed(self._way, record["key"], record["sample"])
            self.total += len(offsets)
            if lacking := sum(offset not in probed for offset in offsets):
                missing += lacking
                self._places.add(record["key"], record["sample"], entry.offset)
        # probes of other ways, offsets or requests
        self._before = totals.probes - (self.total - missing)
        self._returned: deque[_Probe] = deque()
        self._queue = self._lacking()

    @property
    def done(self) -> int:
        return self.journal.totals.probes - self._before

    def next_batch(self) -> _Probe | None:
        return self._returned.popleft() if self._returned else next(self._queue, None)

    def put_back(self, batch: _Probe) -> None:
        self._returned.appendleft(batch)

    def label(self, batch: _Probe) -> str:
        return f"{batch.key}:{batch.sample}:{batch.offset}"

    def estimate(self, batch: _Probe) -> TokenEstimate:
        most = float(self._probing.max_tokens)
        return TokenEstimate(self.budget.prompt_tokens(batch.request.characters), most, most)

    async def send(self, batch: _Probe) -> Completion:
        return (await self._completions(batch.request, [0]))[0]

    def pay(self, batch: _Probe, reply: Completion) -> float:
        output = count_words(reply.text) if reply.output_tokens is None else reply.output_tokens
        return self._charge(batch.request, reply.prompt_tokens, output)

    def accept(self, batch: _Probe, reply: Completion) -> None:
        self._write(batch, settled(reply, self._backend, batch.request.model))

    def refuse(self, batch: _Probe, error: Refused) -> None:
        self._write(batch, Completion("", error.finish_reason, output_tokens=0), error.reason)

    def _write(self, batch: _Probe, reply: Completion, refused: str | None = None) -> None:
        where = self._way, batch.key, batch.sample, batch.offset
        self.journal.add_probe(*where, reply, recorded_at=self._now(), refused=refused)

    def _lacking(self) -> Iterator[_Probe]:
        """The probes that the journal lacked at first, CoT by CoT, so that a server finds a prefix
        in its cache.
        """
        for key, request in self._requests.items():
            decoding = self._probing.decoding(request.decoding)
            for record in self.journal.read_many(self._places.offsets(key)):
                sample, ends = record["sample"], self._ends(record, request.model)
                probed = tuple(self.journal.probed(self._way, key, sample))
                for offset in self._probing.offsets(trace_tokens(record)):
                    if offset not in probed:
                        prefill = self._prefill(record, ends(offset))
                        yield _Probe(
                            replace(request, decoding=decoding, prefill=prefill),
                            key,
                            sample,
                            offset,
                        )

    def _prefill(self, record: Mapping[str, Any], characters: int) -> Prefill:
        beginning, closing = prefix(record, characters, self._thoughts)
        text = f"{beginning.text}{closing}{self._probing.cue}"
        return replace(beginning, text=text, template=self._probing.template)

    def _ends(self, record: Mapping[str, Any], model: str) -> Callable[[int], int]:
        """Return where in a CoT so many of its tokens end, in characters: by its tokens if they are
        known, else by its length.
        """
        lengths: Sequence[int] | None = record.get("token_lengths")
        if lengths is None and not record.get("reasoning"):
            lengths = self._backend.token_lengths(model, record["text"])
        if lengths is not None:
            ends = list(accumulate(lengths, initial=0))
            return lambda offset: ends[min(offset, len(ends) - 1)]
        self.journal.note(_CUT_BY_TEXT)
        size, tokens = (
            len(record["text"]) + len(record.get("reasoning") or ""),
            trace_tokens(record),
        )
        return lambda offset: size * offset // tokens


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
    words = sum(
        sum(count_words(m.content) for m in request.messages) for request in plan.requests
    ) / len(plan.requests)
    length = round((cots.output_tokens or 0) / (cots.cots or 1))
    lacking = [(cots.cots, list(probing.offsets(length)))]
    for entry in () if journal is None else journal.entries():
        record = entry.record
        if entry.kind == "cot" and record["key"] in plan.keys:
            probed = (
                journal.probed(probing.key(), record["key"], record["sample"]) if journal else ()
            )
            lacking.append(
                (
                    1,
                    [
                        offset
                        for offset in probing.offsets(trace_tokens(record))
                        if offset not in probed
                    ],
                )
            )
    probes = sum(number * len(offsets) for number, offsets in lacking)
    cues = probes * count_words(probing.cue)
    prompt = (
        round(sum(number * sum(offsets) for number, offsets in lacking) + probes * words) + cues
    )
    output = probes * probing.max_tokens
    costs = [None if price is None else usd(price, tokens, output) for tokens in (prompt, cues)]
    return ProbeEstimate(probes, prompt, cues, output, *costs)
