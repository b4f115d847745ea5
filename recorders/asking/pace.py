"""How fast to ask: concurrency that adapts to the server, limits per minute, and when to retry.

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
from dataclasses import dataclass
from typing import Protocol

from feval.errors import OutOfRangeError


@dataclass(frozen=True, slots=True)
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
        least = {
            "concurrency": 1,
            "samples_per_request": 1,
            "retries": 0,
            "backoff_s": 0,
            "longest_backoff_s": 0,
        }
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and not value >= bound:
                raise OutOfRangeError(
                    f"The limit {name} must be at least {bound}; {value} was given."
                )
        for name in ("requests_per_minute", "tokens_per_minute", "timeout_s"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise OutOfRangeError(
                    f"The limit {name} must be a number above 0; {value} was given."
                )


class Clock(Protocol):
    """Time, which tests replace."""

    def now(self) -> float:
        """Return seconds since some moment; never decreases."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class LoopClock:
    """The real time."""

    def now(self) -> float:
        """Return seconds since some moment."""
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

    def __init__(self, limits: Limits, clock: Clock | None = None) -> None:
        self._limits = limits
        self._clock = clock or LoopClock()
        now = self._clock.now()
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
