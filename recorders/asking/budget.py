"""Dollars: what is to come, what was paid, and whether the next request can still be afforded."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from feval.cards.billing import Price, usd
from feval.cards.prices import price_list
from feval.errors import OutOfRangeError, PriceNotFoundError

# more than text in any common language takes; replaced by what the server counts
_TOKENS_PER_CHARACTER = 0.5


@dataclass(frozen=True, slots=True)
class ProbeEstimate:
    """What the probes of CoTs are still to come to.

    Attributes:
        probes: that are missing, one request each; of CoTs to come, by their expected length.
        prompt_tokens: of all requests: question, prefix and cue.
        uncached_prompt_tokens: of these, what a server with a prefix cache reads anew: the cues.
        output_tokens: at most.
        usd: of prompts and output; `None` without a price.
        usd_cached: the same where a cached prefix costs nothing.
    """

    probes: int
    prompt_tokens: int
    uncached_prompt_tokens: int
    output_tokens: int
    usd: float | None
    usd_cached: float | None


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What is still to come, before anything is asked.

    Attributes:
        cots: CoTs (or comparisons) that are missing.
        calls: requests that would be sent; for CoTs, if the server honours `n`.
        prompt_tokens: of all requests; `None` if nothing is known of them.
        output_tokens: of all replies; `None` if nothing is known of their length.
        usd: of both; `None` without a price, or where the tokens are not known.
        basis: where the lengths come from, in words.
        at_most: whether the output is an upper bound rather than an expectation.
        probes: what comes on top for probes; `None` where there are none.
        uncached_prompt_tokens: for turns, which send their conversation again: what a server with a
            prefix cache reads anew.
        usd_cached: for turns, `usd` where a cached prefix costs nothing.
    """

    cots: int
    calls: int
    prompt_tokens: int | None
    output_tokens: int | None
    usd: float | None
    basis: str
    at_most: bool
    probes: ProbeEstimate | None = None
    uncached_prompt_tokens: int | None = None
    usd_cached: float | None = None

    def account(self) -> dict[str, Any]:
        """Return its values; those of probes and turns only where there are any."""
        later = {"probes", "uncached_prompt_tokens", "usd_cached"}
        return {
            name: value
            for name, value in asdict(self).items()
            if name not in later or value is not None
        }


def check_cost_limit(
    limit_usd: float | None, price: Price | None, llm: str, prices: str | None = None
) -> None:
    """Refuse a cost limit that is not a positive number, or that cannot be kept because there is no
    price.
    """
    if limit_usd is None:
        return
    if not limit_usd > 0:
        raise OutOfRangeError(
            f"A cost limit is a number of dollars above 0; {limit_usd} was given."
        )
    if price is None:
        where = "" if prices in (None, "none") else f" in the price list {prices}"
        raise PriceNotFoundError(
            f"A cost limit was given, but there is no price for {llm}{where}; name a price list"
            " that has it, or leave the limit out."
        )


def find_price(prices: str, llm: str) -> Price | None:
    """Return the price of an LLM in a list, by its id; `None` in the list "none"."""
    return None if prices == "none" else price_list(prices).find(llm)


def cost(price: Price | None, prompt: float | None, output: float | None) -> float | None:
    """Return the dollars of tokens; `None` without a price, or where one number is not known."""
    if price is None or prompt is None or output is None:
        return None
    return usd(price, prompt, output)


def dollars(amount: float) -> str:
    """Format dollars: four decimals, or as many as two significant digits take."""
    decimals = 4
    while 0 < abs(amount) < 10.0 ** (1 - decimals) and decimals < 12:
        decimals += 1
    return f"{amount:,.{decimals}f}"


class Budget:
    """What was paid (`usd`, earlier runs included), what is set aside, and whether the next request
    can still be afforded.
    """

    def __init__(self, price: Price | None, limit_usd: float | None = None) -> None:
        self._price, self._limit = price, limit_usd
        self.is_limited = limit_usd is not None
        self.usd = None if price is None else 0.0
        self._reserved = 0.0
        self._tokens_per_character = 0.0

    def reserve(self, prompt_tokens: float, output_tokens: float) -> float | None:
        """Set dollars aside for a request's worst case; return how many, or `None` if there are not
        enough.
        """
        if self._price is None or self.usd is None or self._limit is None:
            return 0.0
        amount = usd(self._price, prompt_tokens, output_tokens)
        if self.usd + self._reserved + amount > self._limit:
            return None
        self._reserved += amount
        return amount

    def free(self, amount: float) -> None:
        """Release what was set aside."""
        self._reserved -= amount

    def pay(self, prompt_tokens: float, output_tokens: float) -> None:
        """Count tokens as paid."""
        if self._price is not None and self.usd is not None:
            self.usd += usd(self._price, prompt_tokens, output_tokens)

    def learn(self, characters: int, prompt_tokens: int) -> None:
        """Note how many tokens a server counted for a prompt of so many characters."""
        self._tokens_per_character = max(
            self._tokens_per_character, prompt_tokens / max(1, characters)
        )

    def prompt_tokens(self, characters: int) -> float:
        """Return the most tokens that a prompt of so many characters should take."""
        return characters * (self._tokens_per_character or _TOKENS_PER_CHARACTER)

    def __str__(self) -> str:
        return f"{dollars(self.usd or 0)} of {dollars(self._limit or 0)} USD are spent"
