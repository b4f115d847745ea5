"""Pace: no more than was allowed, less when the server says so, and no waiting for the clock on the
wall.
"""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from recording_doubles import FakeClock

from feval.errors import OutOfRangeError
from recorders.asking.pace import Bucket, Limits, Pace, backoff


def send_times(pace, clock, count, *, tokens=0.0, took=0.0):
    """When each of many requests passes the gate, all of them waiting from the start; each takes
    `took` seconds.
    """
    times = []

    async def one():
        await pace.acquire(tokens)
        times.append(clock.now())
        await clock.sleep(took)
        pace.release(tokens, tokens)

    async def everyone():
        await asyncio.gather(*(one() for _ in range(count)))

    clock.run(everyone())
    return times


@pytest.mark.parametrize("limit", [6, 30, 90, 600])
def test_no_minute_has_more_requests_than_allowed(limit):
    clock = FakeClock()
    times = send_times(Pace(Limits(1000, requests_per_minute=limit), clock), clock, 3 * limit)
    burst = max(1, limit / 60)
    for start in times:
        assert sum(start <= t < start + 60 for t in times) <= limit + burst
    assert times[-1] == pytest.approx(60 * (3 * limit - burst) / limit)


def test_tokens_per_minute_hold_requests_back():
    clock = FakeClock()
    times = send_times(Pace(Limits(100, tokens_per_minute=6000), clock), clock, 10, tokens=500)
    assert [b - a for a, b in pairwise(times)] == pytest.approx([5.0] * 9)


def test_tokens_that_were_not_taken_are_given_back():
    clock = FakeClock()
    pace = Pace(Limits(100, tokens_per_minute=6000), clock)

    async def work():
        await pace.acquire(6000)
        pace.release(6000, 100)
        await pace.acquire(100)
        return clock.now()

    assert clock.run(work()) == pytest.approx(1.0)


@given(
    rate=st.floats(0.5, 1e6),
    takes=st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 100)), min_size=1, max_size=30),
)
def test_waiting_as_long_as_the_bucket_says_is_enough(rate, takes):
    now = 0.0
    bucket = Bucket(rate, now)
    for amount, pause in takes:
        now += pause
        wait = bucket.wait(amount, now)
        assert wait >= 0
        now += wait
        assert bucket.wait(amount, now) <= 1e-6 * max(1.0, now)
        bucket.take(amount, now)


def test_concurrency_grows_by_one_per_reply_until_the_first_429_then_slowly():
    clock = FakeClock()
    pace = Pace(Limits(64), clock)

    async def work():
        numbers = [await pace.acquire() for _ in range(16)]
        assert pace.in_flight == 16
        for _ in numbers:
            pace.content()
            pace.release()
        assert pace.window > 16
        grown = pace.window
        numbers = [await pace.acquire() for _ in range(int(grown))]
        pace.limited(numbers[0])
        assert pace.window == grown / 2
        pace.content()
        assert pace.window == pytest.approx(grown / 2 + 2 / grown)

    clock.run(work())


def test_replies_of_one_moment_halve_once():
    clock = FakeClock()
    pace = Pace(Limits(16), clock)

    async def work():
        first = [await pace.acquire() for _ in range(16)]
        for number in first:
            pace.limited(number)
            pace.release()
        assert pace.window == 8
        pace.limited(await pace.acquire())
        assert pace.window == 4
        for _ in range(50):
            pace.release()
            pace.limited(await pace.acquire())
        assert pace.window == 1

    clock.run(work())


def test_the_window_never_passes_its_limit():
    clock = FakeClock()
    pace = Pace(Limits(3), clock)
    times = send_times(pace, clock, 9, took=1.0)
    assert times == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for _ in range(100):
        pace.content()
    assert pace.window <= 3


def test_a_retry_after_holds_everything_back():
    clock = FakeClock()
    pace = Pace(Limits(16), clock)

    async def work():
        await pace.acquire()
        pace.hold(7.5)
        pace.hold(2.0)
        pace.release()
        assert pace.held_for == 7.5
        await pace.acquire()
        return [clock.now(), pace.held_for]

    assert clock.run(work()) == [7.5, 0.0]


def test_backoff_doubles_with_jitter_and_ends_somewhere():
    limits = Limits(backoff_s=1, longest_backoff_s=60)
    for attempt in range(1, 200):
        whole = min(60, 2.0 ** (attempt - 1))
        waits = {backoff(limits, attempt, str(key)) for key in range(50)}
        assert whole / 2 <= min(waits) < max(waits) <= whole
        assert len(waits) == 50
    assert backoff(limits, 3, "a") == backoff(limits, 3, "a")


@pytest.mark.parametrize(
    "wrong",
    [{"concurrency": 0}, {"retries": -1}, {"timeout_s": 0}, {"requests_per_minute": 0},
    {"tokens_per_minute": -5},
     {"samples_per_request": 0}, {"timeout_s": float("nan")}, {"backoff_s": float("nan")}],
)  # fmt: skip
def test_limits_that_cannot_work_are_refused(wrong):
    with pytest.raises(OutOfRangeError, match=next(iter(wrong))):
        Limits(**wrong)  # type: ignore[arg-type]
