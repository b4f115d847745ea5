"""How fast to ask, and for how much: concurrency that adapts to the server, limits per minute, when
to retry, and dollars: what is to come, what was paid, what can still be afforded.

Concurrency grows while the server answers and halves on a 429 (additive increase, multiplicative
decrease; before the first 429 it grows by one per reply, which doubles it per round trip). A 429 to
a request that was sent before the last halving does not halve again: it reports the same
congestion. A Retry-After holds back all requests, not only the one it answers.

Source: Jacobson, "Congestion Avoidance and Control" (SIGCOMM 1988), for the window; full jitter as
in Brooker, "Exponential Backoff And Jitter" (2015), with jitter from a hash, so that runs are
reproducible.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from dataclasses import asdict

from feval.cards import price_list
from feval.cards.billing import Price, usd
from feval.errors import OutOfRangeError, PriceNotFoundError
from feval.values import Record, frozen


@frozen
class Limits:
    """How much may be asked of a server.

    Attributes:
        concurrency: most requests in flight.
        requests_per_minute: `None` for no limit.
        tokens_per_minute: prompt and output tokens together, corrected as replies arrive; `None`
            for no limit.
        samples_per_request: most CoTs per request; `None`: all that are missing, if the backend
            takes `n`.
        timeout_s: longest wait for one reply.
        retries: how often a request is sent again after a temporary failure; a 429 does not count
            while other requests are answered.
        backoff_s: longest wait before the first retry; it doubles with each one.
        longest_backoff_s: upper bound of the wait.

    Raises:
        OutOfRangeError: a limit below its minimum.
    """

    concurrency: int = 64
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    samples_per_request: int | None = None
    timeout_s: float = 600.0
    retries: int = 8
    backoff_s: float = 1.0
    longest_backoff_s: float = 60.0

    def __post_init__(self) -> None:
        least = {"concurrency": 1, "samples_per_request": 1}
        least |= dict.fromkeys(("retries", "backoff_s", "longest_backoff_s"), 0)
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and not value >= bound:
                raise OutOfRangeError(
                    f"The limit {name} must be at least {bound}; {value} was given."
                )
        for name in ("requests_per_minute", "tokens_per_minute", "timeout_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise OutOfRangeError(
                    f"The limit {name} must be a number above 0; {value} was given."
                )


class Clock:
    """The real time, which tests replace."""

    def now(self) -> float:
        """Return seconds since some moment; never decreases."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


_UNLIMITED = 1e18  # per minute


class Bucket:
    """A limit per minute: a token bucket that holds one second's worth (at least one) and may be
    overdrawn once.

    In any 60 seconds, at most the limit plus one second's worth (or one piece) passes.
    """

    def __init__(self, per_minute: float, now: float) -> None:
        self._rate = per_minute / 60
        self._room = max(1.0, self._rate)
        self._level = self._room
        self._at = now

    def wait(self, amount: float, now: float) -> float:
        """Return the seconds until `amount` may be taken. An amount that never fits waits for a
        full bucket.
        """
        self._fill(now)
        lacking = min(amount, self._room) - self._level
        # Rounding must not leave a remainder that no sleep is short enough for.
        return 0.0 if lacking <= 1e-9 * self._room else lacking / self._rate

    def take(self, amount: float, now: float) -> None:
        """Take an amount; a negative one returns what was taken too much."""
        self._fill(now)
        self._level = min(self._room, self._level - amount)

    def _fill(self, now: float) -> None:
        self._level = min(self._room, self._level + (now - self._at) * self._rate)
        self._at = now


def backoff(limits: Limits, attempt: int, key: str) -> float:
    """Return the seconds to wait after failure `attempt` (from 1): half to all of an exponential
    wait, by a hash of the key.
    """
    whole: float = min(limits.longest_backoff_s, limits.backoff_s * 2.0 ** min(attempt - 1, 60))
    digest = hashlib.blake2b(f"{attempt}:{key}".encode(), digest_size=8).digest()
    return whole * (0.5 + int.from_bytes(digest) / 2**65)


class Pace:
    """The gate every request passes: `await acquire`, send, then `release` and one of `content` and
    `limited`.
    """

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        now = clock.now()
        self._requests = Bucket(limits.requests_per_minute or _UNLIMITED, now)
        self._tokens = Bucket(limits.tokens_per_minute or _UNLIMITED, now)
        self.window = float(min(limits.concurrency, 16))
        self.in_flight = 0
        self._threshold = math.inf
        self._sent = 0
        self._halved_at = 0
        self._held_until = -math.inf
        self._gate = asyncio.Lock()
        self._freed = asyncio.Event()

    @property
    def held_for(self) -> float:
        """Seconds until the server's Retry-After is over; 0 if there is none."""
        return max(0.0, self._held_until - self._clock.now())

    async def acquire(self, tokens: float = 0.0) -> int:
        """Wait until a request of so many expected tokens may be sent, count it as sent, and return
        its number.
        """
        async with self._gate:  # one waits for the server, the others for their turn
            while True:
                wait = self._wait(tokens)
                if self.in_flight >= int(self.window):
                    self._freed.clear()
                    await self._freed.wait()
                elif wait > 0:
                    await self._clock.sleep(wait)
                else:
                    break
            now = self._clock.now()
            self._requests.take(1, now)
            self._tokens.take(tokens, now)
            self.in_flight += 1
            self._sent += 1
            return self._sent

    def release(self, expected_tokens: float = 0.0, tokens: float = 0.0) -> None:
        """Count a request as answered, with the tokens that `acquire` was given and those that it
        took.
        """
        self.in_flight -= 1
        self._tokens.take(tokens - expected_tokens, self._clock.now())
        self._freed.set()

    def content(self) -> None:
        """The server answered: allow a little more, if the window is used up."""
        if self.in_flight + 1 >= int(self.window):
            step = 1.0 if self.window < self._threshold else 1.0 / self.window
            self.window = min(float(self._limits.concurrency), self.window + step)
            self._freed.set()

    def limited(self, number: int) -> None:
        """The server said 429 to the request with this number."""
        if number > self._halved_at:
            self.window = max(1.0, self.window / 2)
            self._threshold = self.window
            self._halved_at = self._sent

    def hold(self, seconds: float | None) -> None:
        """Send nothing for some seconds, as a Retry-After demands."""
        if seconds is not None and seconds > 0:
            self._held_until = max(self._held_until, self._clock.now() + seconds)

    def _wait(self, tokens: float) -> float:
        now = self._clock.now()
        waits = self._requests.wait(1, now), self._tokens.wait(tokens, now)
        return max(self._held_until - now, *waits)


# more than text in any common language takes; replaced by what the server counts
_TOKENS_PER_CHARACTER = 0.5


@frozen
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


@frozen
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
        usd_batch: of single CoTs, in batches; `None` where no such price is published.
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
    usd_batch: float | None = None

    def account(self) -> Record:
        """Return its values; those of probes, turns and batches only where there are any."""
        later = {"probes", "uncached_prompt_tokens", "usd_cached", "usd_batch"}
        return {
            name: value
            for name, value in asdict(self).items()
            if name not in later or value is not None
        }


def check_cost_limit(
    limit_usd: float | None, price: Price | str | None, llm: str, prices: str | None = None
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
    return None if prices == "none" else price_list(prices, [llm]).find(llm)


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
        self.usd = None if price is None and limit_usd is None else 0.0
        self._reserved = 0.0
        self._tokens_per_character = 0.0

    def reserve(
        self, prompt_tokens: float, output_tokens: float, price: Price | None = None
    ) -> float | None:
        """Set dollars aside for a request's worst case, at the price of its LLM if there are
        several; return how many, or `None` if there are not enough.
        """
        price = price or self._price
        if price is None or self.usd is None or self._limit is None:
            return 0.0
        amount = usd(price, prompt_tokens, output_tokens)
        if self.usd + self._reserved + amount > self._limit:
            return None
        self._reserved += amount
        return amount

    def free(self, amount: float) -> None:
        """Release what was set aside."""
        self._reserved -= amount

    def pay(self, prompt_tokens: float, output_tokens: float, price: Price | None = None) -> None:
        """Count tokens as paid, at the price of their LLM if there are several."""
        price = price or self._price
        if price is not None and self.usd is not None:
            self.usd += usd(price, prompt_tokens, output_tokens)

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
