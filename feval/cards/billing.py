"""Billing and eq. (1) of the paper: from tokens to US dollars. Nothing here imports pydantic.

    USD = 1e-6 (C_in · prompt tokens billed + C_out · output tokens)

C_in and C_out are USD per million tokens; see `prices`. A price may have more: of tokens that a
cache read or kept, of long prompts, of batches.

Source: FEval-TTC (arXiv 2511.01203), section 2.3, eq. (1), and Appendix A. Every prompt is billed
once there; the other two billings are what papers without a sampling API that returns many CoTs per
request paid.
"""

from __future__ import annotations

import math
import re
from functools import cache as cached
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from feval.cards.reading import shorten
from feval.errors import OutOfRangeError, UsageError, require_known
from feval.values import frozen, without_none

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BILLINGS: tuple[str, ...] = ("once", "per_round", "per_sample")
"""How a prompt is charged: `once` per LLM and question (eq. 1, the default), `per_round` (each
request sends it again, as ESC's windows do), or `per_sample` (each CoT is a request of its own, as
in Adaptive-Consistency).
"""

CACHES: tuple[str, ...] = ("none", "recorded", "prefix")
"""Which prompt tokens cost what a cache's do: `none`; `recorded`, those of which the provider said
so; `prefix:LEAST,BLOCK`, what was sent before for the same question, in whole blocks and from so
many tokens on.
"""
_PREFIX = "1024,128"
_COUNT = re.compile("[0-9]{1,9}")

_Counts = TypeVar("_Counts", int, "NDArray[Any]")
PRICE_FIELDS = (
    "input_usd_per_mtok",
    "output_usd_per_mtok",
    "cached_input_usd_per_mtok",
    "cache_write_usd_per_mtok",
    "cache_write_1h_usd_per_mtok",
)
"""What each kind of tokens costs; every price has the first two."""
# far above any price, and far below where sums of dollars leave floats
MOST_USD_PER_MTOK = 1_000_000_000
MOST_USD = 1_000
"""The most that one CoT may state."""
MOST_USD_OF_QUESTION = 9_000_000
"""The most that its CoTs of one LLM may: whole picodollars of one draw stay below 2**63."""
PICODOLLARS = 1e12
"""Of a USD: recorded amounts are added as whole numbers, so that no sum depends on its order."""


@frozen
class Price:
    """What an LLM costs, in USD per million tokens, 0 to 1e9.

    Attributes:
        input_usd_per_mtok: C_in, of prompt tokens.
        output_usd_per_mtok: C_out, of output tokens.
        cached_input_usd_per_mtok: of prompt tokens that the provider read from its cache; `None`
            where no price is published, and they cost what input costs.
        cache_write_usd_per_mtok: of prompt tokens that it kept for later requests; `None` as for
            those read.
        cache_write_1h_usd_per_mtok: the same, kept for an hour.
        steps: (prompt tokens of a request, price of all its tokens where it has more), from the
            shortest.
        batch: what the same costs in a batch; `None` where no such price is published.

    Raises:
        OutOfRangeError: a price is negative, beyond 1e9, or no number.
        UsageError: steps that do not rise, or a step or batch that has such itself.
    """

    input_usd_per_mtok: float
    output_usd_per_mtok: float
    cached_input_usd_per_mtok: float | None = None
    cache_write_usd_per_mtok: float | None = None
    cache_write_1h_usd_per_mtok: float | None = None
    steps: tuple[tuple[int, Price], ...] = ()
    batch: Price | None = None

    def __post_init__(self) -> None:
        for place, name in enumerate(PRICE_FIELDS):
            value = getattr(self, name)
            if value is None and place > 1:
                continue
            try:
                price = float(value)  # an integer, times an array of small integers, would overflow
            except (OverflowError, TypeError, ValueError):
                price = math.nan
            if not 0 <= price <= MOST_USD_PER_MTOK:  # NaN, too, is refused
                raise OutOfRangeError(
                    f"A price cannot be {shorten(value)} USD per million tokens. Give a number from"
                    f" 0 to {MOST_USD_PER_MTOK:,}."
                )
            object.__setattr__(self, name, price)
        object.__setattr__(self, "steps", tuple(self.steps))
        starts = [start for start, _ in self.steps]
        if starts != sorted({*starts}) or any(
            step.steps or step.batch is not None for _, step in self.steps
        ):
            raise UsageError(
                f"The steps of a price begin at more tokens each, and have no steps and no batch of"
                f" their own; {starts} was given."
            )
        if self.batch is not None and self.batch.batch is not None:
            raise UsageError("A price in a batch has no price in a batch of its own.")

    def at(self, context: float) -> Price:
        """Return the price of a request of so many prompt tokens."""
        return next((step for start, step in reversed(self.steps) if context > start), self)

    def words(self) -> str:
        """All of it in a line, such as "2 in, 8 out, 0.5 cached; in a batch 1 in, 4 out"."""
        rates = zip(
            ("in", "out", "cached", "written", "written for 1 h"), PRICE_FIELDS, strict=True
        )
        named = [(word, getattr(self, field)) for word, field in rates]
        words = [", ".join(f"{rate:.10g} {word}" for word, rate in named if rate is not None)]
        words += [f"beyond {start:,} tokens {step.words()}" for start, step in self.steps]
        words += [] if self.batch is None else [f"in a batch {self.batch.words()}"]
        return "; ".join(words)

    def to_json(self) -> Any:
        """[input, output] where that is all, else a mapping; `PriceList` takes both."""
        rates = {name: getattr(self, name) for name in PRICE_FIELDS}
        more = without_none(rates)
        if self.steps:
            more["steps"] = [[start, step.to_json()] for start, step in self.steps]
        if self.batch is not None:
            more["batch"] = self.batch.to_json()
        return [*rates.values()][:2] if len(more) == 2 else more


class BillingRule(NamedTuple):
    """A billing, as its text says it: "per_round", "per_sample, cache prefix:1024,128" or "once,
    scorers 0.002".

    Attributes:
        prompts: how a prompt is charged, one of `BILLINGS`.
        cache: one of `CACHES`.
        least: tokens of the shortest prompt that a prefix cache keeps.
        block: it keeps whole blocks of so many tokens.
        scorers: who pays for the scores that a method reads: "recorded" or "none", or USD per
            score; empty for what was recorded, where all of it was.
    """

    prompts: str
    cache: str = "none"
    least: int = 0
    block: int = 1
    scorers: str = ""

    def shared(self, prompt_tokens: Any) -> Any:
        """Return how many tokens of a prompt a prefix cache keeps; a number, or an array."""
        return prompt_tokens // self.block * self.block * (prompt_tokens >= self.least)


@cached
def billing_rule(text: str) -> BillingRule:
    """Return what the text of a billing says.

    Raises:
        UnknownNameError: no such billing or cache.
        UsageError: a cache with "once", where no prompt is sent twice; a prefix or a cost per score
            that is no number.
    """
    prompts, *more = text.split(", ")
    require_known("billing", prompts, BILLINGS)
    parts = {name: value for name, _, value in (each.partition(" ") for each in more)}
    for name in parts:
        require_known("part of a billing", name, ("cache", "scorers"))
    if len(parts) < len(more):
        raise UsageError(f"A billing names its cache and its scorers once; {text!r:.80} was given.")
    cache, _, sizes = parts.get("cache", "none").partition(":")
    require_known("cache", cache, CACHES)
    least, _, block = (sizes or _PREFIX).partition(",")
    scorers = parts.get("scorers", "")
    if cache != "none" and prompts == "once":
        raise UsageError(
            f"Billed once, no prompt is sent twice, and a cache ({cache}) saves nothing. Bill"
            " per_round or per_sample: --billing per_round (in Python: billing='per_round')."
        )
    are_counts = all(map(_COUNT.fullmatch, (least, block))) and int(block) > 0
    if (sizes and cache != "prefix") or not are_counts:
        raise UsageError(
            f"A prefix cache is named with the least tokens that it keeps and the tokens of a"
            f" block, such as prefix:{_PREFIX}; {parts['cache']!r:.40} was given."
        )
    if "scorers" in parts and scorers not in ("recorded", "none") and not _is_price(scorers):
        raise UsageError(
            f"What a score costs is recorded, none or a number of USD from 0 to {MOST_USD:,};"
            f" {scorers!r:.40} was given."
        )
    if cache != "prefix":
        return BillingRule(prompts, cache, scorers=scorers)
    return BillingRule(prompts, cache, int(least), int(block), scorers)


def _is_price(text: str) -> bool:
    try:
        return 0 <= float(text) <= MOST_USD
    except ValueError:
        return False


def billing_text(billing: str, cache: str | None = None, scorers: str | float | None = None) -> str:
    """Return the text of a billing with a cache and a cost of scores, checked; see
    `BillingRule`.
    """
    cached, scored = cache not in (None, "none"), scorers is not None
    text = billing + f", cache {cache}" * cached + f", scorers {scorers}" * scored
    billing_rule(text)
    return text


def require_plain(billing: str, price: Price | None, steps: bool = True) -> None:
    """Raise a `UsageError` where a cache, or steps of a price, ask for more than sums of tokens."""
    if billing_rule(billing).cache != "none" or (steps and price is not None and price.steps):
        raise UsageError(
            "A cache, and prices that change with the length of a prompt, need the tokens of each"
            " question, and sums over questions or requests were to be paid. `evaluate`, `curve`"
            " and `compare` have them (feval run, curve, compare)."
        )


def billed_prompts(billing: str, rounds: _Counts, cots: _Counts) -> _Counts:
    """Return how many times the prompt of a question is paid.

    Args:
        billing: the text of a `BillingRule`.
        rounds: requests made to one LLM for one question, at least 0: an integer, or an array of
            any shape.
        cots: CoTs received, of the same shape.

    Returns:
        Integers of the same shape: 1 wherever anything was asked (`once`), `rounds` (`per_round`),
        or `cots` (`per_sample`); 0 wherever nothing was asked.

    Raises:
        UnknownNameError: no such billing.
    """
    times: Any = {"once": 1, "per_round": rounds, "per_sample": cots}[billing_rule(billing).prompts]
    billed: _Counts = times * (rounds > 0)
    return billed


@overload
def usd(price: Price, prompt_tokens: float, output_tokens: float) -> float: ...
@overload
def usd(
    price: Price,
    prompt_tokens: Any,
    output_tokens: Any,
    *,
    cached_tokens: Any = None,
    written_tokens: Any = None,
    context: Any = None,
) -> NDArray[np.float64]: ...
def usd(
    price: Price,
    prompt_tokens: Any,
    output_tokens: Any,
    *,
    cached_tokens: Any = None,
    written_tokens: Any = None,
    context: Any = None,
) -> Any:
    """Return the cost in USD by eq. (1), with what a cache changes of it.

    Args:
        price: of the LLM.
        prompt_tokens: input tokens billed: those of the prompt as often as it is paid, without
            those that a cache read or kept; a number, or an array of any shape.
        output_tokens: of all CoTs paid for; of a shape that broadcasts with it.
        cached_tokens: input tokens that a cache read, likewise; `None` for none.
        written_tokens: input tokens that a cache kept for minutes; `None` for none.
        context: input tokens of one request, which decide on the step of the price; `None` where
            `prompt_tokens` are those of one request.

    Returns:
        USD: a float, or a float64 array. Unknown token counts (negative in a pool) are the caller's
        to leave out.
    """

    def at(own: Price) -> Any:
        tokens = own.input_usd_per_mtok * prompt_tokens + own.output_usd_per_mtok * output_tokens
        for counts, rate in (
            (cached_tokens, own.cached_input_usd_per_mtok),
            (written_tokens, own.cache_write_usd_per_mtok),
        ):
            if counts is not None:
                tokens = tokens + (own.input_usd_per_mtok if rate is None else rate) * counts
        return 1e-6 * tokens

    amount, length = at(price), prompt_tokens if context is None else context
    for start, step in price.steps:
        amount = (length > start) * at(step) + (length <= start) * amount
    return amount
