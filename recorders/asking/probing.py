"""Probes as the engine's assignment: CoTs that are complete are cut after every so many tokens, and
made to answer there.

The prefix of a CoT is sent again with a cue behind it, and answered greedily with a few tokens. A
probe sees its prefix alone.
"""

# ruff: noqa: D102  the methods of an `Assignment` are described there

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import accumulate, chain
from typing import Any

import orjson

from feval.answers.thoughts import Thoughts, interruption, written_marks
from feval.cards.billing import Price
from feval.cards.names import UNANSWERED
from feval.cards.tokens import count_words
from feval.errors import OutOfRangeError, UsageError
from recorders.asking.budget import CostEstimate, ProbeEstimate, cost
from recorders.asking.samples import Lack, MissingSamples, SampleBatch, SamplePlan
from recorders.journal import Journal
from recorders.request import Backend, Completion, Decoding, Prefill, require_template

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
        return {name: value for name, value in asdict(self).items() if value is not None}

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
            (len(self._probing.offsets(trace_tokens(record))), len(self._offsets(record)))
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

    def _offsets(self, record: Mapping[str, Any]) -> list[int]:
        return missing_offsets(self._probing, self.journal, record)

    def _lacking(self) -> Iterator[Lack]:
        """The probes that the journal lacked at first, CoT by CoT, so that a server finds a prefix
        in its cache.
        """
        for key, request in self._plan.by_key.items():
            decoding = self._probing.decoding(request.decoding)
            for record in self.journal.cots(key):
                ends = None
                for offset in self._offsets(record):
                    ends = ends or self._ends(record, request.model)
                    beginning, closing = prefix(record, ends(offset), self._thoughts)
                    prefill = replace(
                        beginning,
                        text=f"{beginning.text}{closing}{self._probing.cue}",
                        template=self._probing.template,
                    )
                    asked = replace(request, decoding=decoding, prefill=prefill)
                    yield Lack(asked, key, [record["sample"]], offset)

    def _ends(self, record: Mapping[str, Any], model: str) -> Callable[[int], int]:
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


def missing_offsets(probing: Probing, journal: Journal, record: Mapping[str, Any]) -> list[int]:
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
