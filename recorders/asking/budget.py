"""Dollars and tokens: what a run would cost, what it has cost, and whether the next request may still be afforded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from feval.cards.prices import Price, usd
from feval.cards.tokens import count_words
from feval.errors import OutOfRangeError, PriceNotFoundError
from recorders.asking.pace import Limits
from recorders.asking.plan import Job, Plan, characters, missing
from recorders.journal.journal import Journal
from recorders.request import Completion

__all__ = ["Budget", "Estimate", "check_cost_limit", "dollars", "estimate"]

_TOKENS_PER_CHARACTER = 0.5  # more than text of any common language takes; replaced by what the server counts
_OUTPUT_UNKNOWN = 4096


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is still to come, before anything is asked.

    Attributes:
        cots: missing.
        calls: requests that would be sent, if the server honours `n`.
        prompt_tokens: of all of them.
        output_tokens: of all CoTs; `None` where nothing is known of their length.
        usd: of both; `None` without a price, or where the output is not known.
        basis: where the lengths come from, in words for people.
        at_most: whether the output is an upper bound and no expectation.
    """

    cots: int
    calls: int
    prompt_tokens: int
    output_tokens: int | None
    usd: float | None
    basis: str
    at_most: bool


def estimate(
    plan: Plan,
    journal: Journal | None = None,
    *,
    price: Price | None = None,
    limits: Limits | None = None,
    output_tokens_per_cot: float | None = None,
) -> Estimate:
    """What a run would cost, without asking anything.

    Args:
        plan: what is wanted.
        journal: what is there; its CoTs tell how long further ones are likely to be.
        price: of the LLM; `None` for no dollars.
        limits: how many samples go into one request.
        output_tokens_per_cot: mean length from elsewhere, such as a recording; the journal's own comes first.
    """
    per_request = (limits or Limits()).samples_per_request or plan.samples
    cots = calls = words = 0
    for todo in missing(plan, journal):
        requests = -(-len(todo.samples) // per_request)
        cots += len(todo.samples)
        calls += requests
        words += requests * sum(count_words(message.content) for message in todo.request.messages)
    held = journal.totals if journal is not None and journal.totals.replies else None
    counted = held is not None and held.prompt_tokens
    prompt_tokens = round(calls * held.prompt_tokens / held.replies) if held is not None and counted else words
    recorded = None if held is None else held.output_tokens / held.cots
    length, basis, at_most = _expected_length(plan, recorded, output_tokens_per_cot)
    output_tokens = None if length is None else round(cots * length)
    dollars = None if price is None or output_tokens is None else usd(price, prompt_tokens, output_tokens)
    return Estimate(cots, calls, prompt_tokens, output_tokens, dollars, basis, at_most)


def check_cost_limit(limit_usd: float | None, price: Price | None, llm: str, prices: str | None = None) -> None:
    """Refuse a cost limit that cannot be kept.

    Args:
        limit_usd: in USD; `None` for no limit.
        price: of the LLM; `None` where it is not known.
        llm: its name, for the message.
        prices: id of the price list, for the message.

    Raises:
        OutOfRangeError: it is no positive number.
        PriceNotFoundError: there is no price.
    """
    if limit_usd is None:
        return
    if not limit_usd > 0:
        raise OutOfRangeError(f"A cost limit is a number of dollars above 0; {limit_usd} was given.")
    if price is None:
        where = "" if prices in (None, "none") else f" in the price list {prices}"
        raise PriceNotFoundError(
            f"A cost limit was given, but there is no price for {llm}{where}; name a price list that has it."
        )


def dollars(amount: float) -> str:
    """Write dollars for people: four decimals, or as many as two significant digits take."""
    decimals = 4
    while 0 < abs(amount) < 10.0 ** (1 - decimals) and decimals < 12:
        decimals += 1
    return f"{amount:,.{decimals}f}"


class Budget:
    """What was paid, what is expected, and whether a job may still be afforded.

    Args:
        price: of the LLM; `None` for no dollars.
        limit: what the whole journal may cost, in USD; `None` for no limit.
        plan: what is wanted.
        journal: what is there, and was paid for.

    Attributes:
        usd: paid so far; `None` without a price.
    """

    def __init__(self, price: Price | None, limit: float | None, plan: Plan, journal: Journal) -> None:
        totals = journal.totals
        self._price, self._limit = price, limit
        self._cots, self._output = totals.cots, totals.output_tokens
        self.usd = None if price is None else usd(price, totals.prompt_tokens, totals.output_tokens)
        self._reserved = 0.0
        self._longest = 0
        self._density = 0.0
        self._max_tokens = plan.requests[0].decoding.max_tokens if plan.requests else None

    def reserve(self, job: Job) -> bool:
        """Set dollars aside for the worst case; whether there are enough."""
        prompt = self._prompt_tokens(job)
        mean = self._output / self._cots if self._cots else float(self._max_tokens or _OUTPUT_UNKNOWN)
        job.tokens = prompt + mean * len(job.samples)
        if self._price is None or self.usd is None or self._limit is None:
            return True
        worst = float(self._max_tokens or max(self._longest, _OUTPUT_UNKNOWN))
        job.reserved_usd = usd(self._price, prompt, worst * len(job.samples))
        if self.usd + self._reserved + job.reserved_usd > self._limit:
            return False
        self._reserved += job.reserved_usd
        return True

    def free(self, job: Job) -> None:
        """Give back what was set aside."""
        self._reserved -= job.reserved_usd
        job.reserved_usd = 0.0

    def pay(self, job: Job, completions: Sequence[Completion]) -> float:
        """Count a reply; gives the tokens it took."""
        prompt = completions[0].prompt_tokens
        if prompt is None:
            prompt = round(self._prompt_tokens(job))
        else:
            self._density = max(self._density, prompt / max(1, characters(job.todo.request)))
        outputs = [count_words(c.text) if c.output_tokens is None else c.output_tokens for c in completions]
        self._longest = max(self._longest, *outputs)
        self._cots += len(outputs)
        self._output += sum(outputs)
        if self._price is not None and self.usd is not None:
            self.usd += usd(self._price, prompt, sum(outputs))
        return float(prompt + sum(outputs))

    def _prompt_tokens(self, job: Job) -> float:
        return characters(job.todo.request) * (self._density or _TOKENS_PER_CHARACTER)

    def __str__(self) -> str:
        return f"{dollars(self.usd or 0)} of {dollars(self._limit or 0)} USD are spent"


def _expected_length(plan: Plan, recorded: float | None, given: float | None) -> tuple[float | None, str, bool]:
    if recorded is not None:
        return recorded, "the mean length of the CoTs in the journal", False
    if given is not None:
        return given, "the mean length of CoTs recorded before", False
    limit = plan.requests[0].decoding.max_tokens if plan.requests else None
    if limit is not None:
        return float(limit), f"an upper bound: the limit of {limit} output tokens for every CoT", True
    return None, "nothing: no CoT was recorded yet, and there is no limit on output tokens", False
