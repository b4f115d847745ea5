"""The engine: everything is asked for once, whatever goes wrong, and every early end says why and
loses nothing.
"""

import asyncio
import signal

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from recording_doubles import FakeBackend, FakeClock, cots, reply, reply_to, request

from feval.cards.billing import Price
from feval.errors import OutOfRangeError, PriceNotFoundError, StorageError
from recorders.asking.engine import Control
from recorders.asking.pace import Limits
from recorders.asking.samples import SamplePlan, estimate_samples, record_samples
from recorders.errors import (
    CostLimitError,
    Fatal,
    InterruptedByUser,
    MissingError,
    RateLimitError,
    RefusalError,
    StoppedError,
    Transient,
    Unreachable,
)
from recorders.journal import Journal
from recorders.request import Completion, Decoding, note_on_number

NOW = "2026-01-01T00:00:00Z"
PRICE = Price(1.0, 10.0)


def plan(questions, samples, decoding=None):
    return SamplePlan([request(i, decoding) for i in range(questions)], samples)


def texts(folder):
    return {(cot["question_id"], cot["sample"]): cot["text"] for cot in cots(folder)}


def go(folder, backend=None, wanted=None, *, mode="new_episodes", clock=None, **options):
    """Record five samples of four questions, or what is wanted."""
    clock, asked = clock or FakeClock(), (wanted or plan(4, 5), backend or FakeBackend())
    with Journal.open(folder, {}, mode=mode) as journal:
        return clock.run(record_samples(*asked, journal, clock=clock, now=lambda: NOW, **options))


def one_by_one(folder, *faults, **options):
    """Record with one request at a time, the first of which have faults."""
    return go(folder, FakeBackend(faults), limits=Limits(1), **options)


EVERYTHING = {(f"toy/{i}", s): reply(i, s).text for i in range(4) for s in range(5)}


def test_everything_is_asked_for_once_with_n(tmp_path):
    backend = FakeBackend()
    outcome = go(tmp_path, backend)
    assert outcome.error is None
    assert (outcome.done, outcome.total, outcome.new, outcome.requests) == (20, 20, 20, 4)
    assert backend.calls == [(f"toy/{i}", (0, 1, 2, 3, 4)) for i in range(4)]
    assert texts(tmp_path) == EVERYTHING
    assert go(tmp_path, again := FakeBackend()).error is None
    assert again.calls == []


def test_more_samples_top_up(tmp_path):
    go(tmp_path, wanted=plan(4, 2))
    go(tmp_path, backend := FakeBackend())
    assert backend.calls == [(f"toy/{i}", (2, 3, 4)) for i in range(4)]
    assert texts(tmp_path) == EVERYTHING


@pytest.mark.parametrize("mode", ["once", "none"])
def test_modes_that_ask_for_nothing_say_what_is_missing(tmp_path, mode):
    go(tmp_path, wanted=plan(4, 2), mode="once")
    assert go(tmp_path, wanted=plan(4, 2), mode=mode).error is None
    backend = FakeBackend()
    with pytest.raises(MissingError, match="lacks 12 of 20 CoTs"):
        go(tmp_path, backend, mode=mode)
    assert backend.calls == []


FAULTS = {
    "429": RateLimitError("busy"),
    "429 with Retry-After": RateLimitError("busy", 30.0),
    "transient": Transient("a 503"),
    "transient with Retry-After": Transient("a 503", retry_after=5.0),
    "one instead of n": lambda replies: replies[:1],
    "fewer": lambda replies: replies[:-1],
    "more": lambda replies: [*replies, replies[0]],
    "nothing": lambda replies: [],
}


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    faults=st.lists(st.sampled_from([None, *FAULTS.values()]), max_size=12),
    per_request=st.sampled_from([None, 1, 2, 3]),
    concurrency=st.integers(1, 6),
    pause=st.integers(0, 3),
)
def test_any_mixture_of_faults_changes_nothing(
    tmp_path_factory, faults, per_request, concurrency, pause
):
    folder = tmp_path_factory.mktemp("j")
    backend = FakeBackend(faults, pause=pause)
    limits = Limits(concurrency, samples_per_request=per_request, retries=20)
    assert go(folder, backend, limits=limits).error is None
    assert texts(folder) == EVERYTHING
    assert backend.most_in_flight <= concurrency
    assert all(count == 1 for count in backend.asked.values())


def notes(folder):
    with Journal.open(folder, {}) as journal:
        return journal.notes


def test_a_server_that_ignores_n_is_noticed_and_asked_one_by_one(tmp_path):
    backend = FakeBackend([lambda replies: replies[:1]] * 1000)
    assert go(tmp_path, backend, limits=Limits(1)).error is None
    assert notes(tmp_path) == [note_on_number(1, 5)]
    assert [len(samples) for _, samples in backend.calls] == [5, 4, *[1] * 18]


def test_one_short_reply_does_not_give_up_n(tmp_path):
    backend = FakeBackend([lambda replies: replies[:1]])
    go(tmp_path, backend, limits=Limits(1))
    assert [len(samples) for _, samples in backend.calls] == [5, 4, 5, 5, 5]


def test_with_seeds_one_sample_per_reply_is_no_fault(tmp_path):
    backend = FakeBackend([lambda replies: replies[:1]] * 1000, takes_seed=True)
    go(tmp_path, backend, plan(2, 3, Decoding(seed=100)))
    assert notes(tmp_path) == []
    seeds = {(cot["sample"], cot["seed"]) for cot in cots(tmp_path)}
    assert seeds == {(0, 100), (1, 101), (2, 102)}


def test_a_backend_without_seeds_records_none(tmp_path):
    go(tmp_path, wanted=plan(1, 1, Decoding(seed=100)))
    assert ["seed" in cot for cot in cots(tmp_path)] == [False]


def test_a_limit_that_cuts_answers_off_is_said_at_once(tmp_path):
    go(tmp_path, FakeBackend(answer=lambda _, __: Completion("4", "length")))
    [said] = notes(tmp_path)
    assert said == (
        "20 of the first 20 CoTs end at the limit of 2,048 output tokens, so that their answers are"
        " not known. Stop, and record into another folder with a higher limit, such as --max-tokens"
        " 4096."
    )


def test_notes_of_the_backend_reach_the_journal(tmp_path):
    said = []
    backend = FakeBackend([lambda replies: (said.append("It has a cold."), replies)[1]])
    go(tmp_path, backend, backend_notes=said)
    assert notes(tmp_path) == ["It has a cold."]


def test_a_retry_after_is_honoured_by_every_request(tmp_path):
    clock = FakeClock()
    sent = []

    class Watched(FakeBackend):
        async def complete(self, request, samples):
            sent.append(clock.now())
            return await super().complete(request, samples)

    backend = Watched([RateLimitError("busy", 30.0)])
    assert go(tmp_path, backend, clock=clock, limits=Limits(1)).error is None
    assert sent[0] == 0
    assert sent[1] >= 30


@pytest.mark.parametrize(
    "error", [RateLimitError("host said 429", 601.0), Transient("host said 429", 5400.0)]
)
def test_a_retry_after_beyond_ten_minutes_stops_the_run_and_says_so(tmp_path, error):
    outcome = one_by_one(tmp_path, None, error, clock=(clock := FakeClock()))
    assert type(outcome.error) is StoppedError
    wait = "10 min" if isinstance(error, RateLimitError) else "90 min"
    assert (
        str(outcome.error)
        == f"host said 429; it asks to wait {wait}, and feval waits 10 min at most. Recording"
        f" stopped: 5 of 20 CoTs are recorded, in {tmp_path}, and the same command continues"
        " from there. Run it again when the time is over."
    )
    assert clock.now() < 60
    assert go(tmp_path).error is None


def test_a_retry_after_of_ten_minutes_is_waited_for(tmp_path):
    busy = RateLimitError("busy", 600.0)
    assert one_by_one(tmp_path, busy, clock=(clock := FakeClock())).error is None
    assert clock.now() >= 600


def test_a_display_that_fails_ends_the_run_and_loses_nothing(tmp_path):
    def broken(state):
        if state.new >= 5:
            raise OSError(5, "the terminal is gone")

    with pytest.raises(OSError, match="terminal is gone"):
        go(tmp_path, FakeBackend(pause=3), plan(40, 5), progress=broken)
    assert len(texts(tmp_path)) >= 5


def test_an_address_where_nothing_listens_is_given_up_within_seconds(tmp_path):
    clock, gone = FakeClock(), Unreachable("the connection to 10.0.0.1:8000 failed")
    outcome = go(tmp_path, FakeBackend([gone] * 1000), clock=clock)
    assert isinstance(outcome.error, Fatal)
    said = "Nothing answers: the connection to 10.0.0.1:8000 failed. Check the address (`base_url`)"
    assert str(outcome.error).startswith(said)
    assert clock.now() < 4
    silent = Unreachable("10.0.0.1:8000 took no connection within 8 s", 8.0)
    waited = one_by_one(tmp_path, *[silent] * 1000)
    assert (isinstance(waited.error, Fatal), waited.requests) == (True, 1)
    assert one_by_one(tmp_path, None, *[gone] * 5).error is None


def test_a_reply_that_never_comes_is_given_up(tmp_path):
    never = FakeBackend([lambda replies: asyncio.sleep(1000, replies)])
    outcome = go(tmp_path, never, limits=Limits(timeout_s=0.02))
    assert outcome.error is None
    assert outcome.requests == 5


def test_requests_that_keep_failing_are_left_out_and_said(tmp_path):
    def of_question_2(request, sample):
        if request.question_id == "toy/2":
            raise Transient("the reply is cut short")
        return reply_to(request, sample)

    outcome = go(tmp_path, FakeBackend(answer=of_question_2), limits=Limits(retries=3))
    assert (outcome.done, outcome.requests) == (15, 3 + 4)
    assert isinstance(outcome.error, StoppedError)
    assert "1 request failed 4 times each (the reply is cut short): 15 of 20 CoTs" in str(
        outcome.error
    )
    assert go(tmp_path).new == 5


def test_a_server_that_is_down_ends_the_run(tmp_path):
    backend = FakeBackend([Transient("a 503")] * 10_000)
    outcome = go(tmp_path, backend, plan(100, 5), limits=Limits(4, retries=2))
    assert isinstance(outcome.error, Transient)
    assert (
        "3 requests in a row failed 3 times each, the last one because a 503. Recording stopped:"
        " nothing is recorded yet." in str(outcome.error)
    )
    assert len(backend.calls) < 20


def test_a_busy_server_is_waited_for_as_long_as_it_answers_others(tmp_path):
    """Far more 429s than retries, but never without a reply between two of the same request."""
    backend = FakeBackend([fault for _ in range(60) for fault in (RateLimitError("busy"), None)])
    outcome = go(tmp_path, backend, plan(12, 5), limits=Limits(2, retries=2, samples_per_request=1))
    assert outcome.error is None


def test_a_fatal_error_stops_and_keeps_everything(tmp_path):
    outcome = one_by_one(tmp_path, None, None, Fatal("The key is wrong"))
    assert isinstance(outcome.error, Fatal)
    assert (
        str(outcome.error)
        == f"The key is wrong. Recording stopped: 10 of 20 CoTs are recorded, in {tmp_path}, and"
        " the same command continues from there."
    )
    assert outcome.requests == 3
    assert len(texts(tmp_path)) == 10


def test_what_is_in_flight_when_a_fatal_error_comes_is_kept(tmp_path):
    async def late(replies):
        await asyncio.sleep(0.02)
        return replies

    outcome = go(tmp_path, FakeBackend([late, Fatal("no"), late, late]))
    assert outcome.done == 15


def test_a_refused_question_has_cots_without_answers(tmp_path):
    def refuse_1(request, sample):
        if request.question_id == "toy/1":
            raise RefusalError("content policy", "content_filter")
        return reply_to(request, sample)

    backend = FakeBackend(answer=refuse_1)
    outcome = go(tmp_path, backend, limits=Limits(samples_per_request=1, concurrency=1))
    assert outcome.error is None
    assert sum(question == "toy/1" for question, _ in backend.calls) == 1
    refused = [cot for cot in cots(tmp_path) if "refused" in cot]
    with Journal.open(tmp_path, {}) as journal:
        assert journal.totals.replies == 15
    assert [r["sample"] for r in refused] == [0, 1, 2, 3, 4]
    assert {(r["text"], r["finish_reason"], r["refused"]) for r in refused} == {
        ("", "content_filter", "content policy")
    }


def test_refusals_before_the_first_reply_wait_for_it(tmp_path):
    assert one_by_one(tmp_path, *[RefusalError("too long")] * 2).error is None
    assert sum(text == "" for text in texts(tmp_path).values()) == 10


@pytest.mark.parametrize("questions", [3, 100])
def test_if_everything_is_refused_nothing_is_recorded(tmp_path, questions):
    backend = FakeBackend([RefusalError("no such parameter")] * 1000)
    outcome = go(tmp_path, backend, plan(questions, 5), limits=Limits(2))
    assert isinstance(outcome.error, Fatal)
    assert "refused: no such parameter." in str(outcome.error)
    assert len(backend.calls) <= 10
    assert texts(tmp_path) == {}


def test_a_mistake_in_a_backend_is_not_hidden(tmp_path):
    with pytest.raises(ZeroDivisionError):
        one_by_one(tmp_path, None, ZeroDivisionError())
    assert len(texts(tmp_path)) == 5


def test_a_full_disk_stops_the_run(tmp_path, monkeypatch):
    commits = []
    commit = Journal.commit

    def failing(journal):
        commits.append(1)
        if len(commits) > 2:
            raise StorageError("The disk is full.")
        return commit(journal)

    monkeypatch.setattr(Journal, "commit", failing)
    with pytest.raises(StorageError, match="The disk is full"):
        go(tmp_path, FakeBackend(pause=3), plan(100, 5), limits=Limits(2))
    monkeypatch.undo()
    assert 0 < len(texts(tmp_path)) < 500
    assert go(tmp_path, wanted=plan(100, 5)).error is None


def stop_after(replies, how):
    """A backend during whose call number `replies` somebody presses Ctrl-C; later calls take very
    long.
    """
    control = Control()

    def press(replies):
        how(control)
        return replies

    async def slow(replies):
        await asyncio.sleep(0.05)
        return replies

    return FakeBackend([*[None] * replies, slow, slow, press]), control


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_interrupt_waits_for_what_is_in_flight(tmp_path, number):
    backend, control = stop_after(3, lambda c: c.interrupt(number))
    outcome = go(tmp_path, backend, plan(100, 5), control=control)
    assert isinstance(outcome.error, InterruptedByUser)
    assert number != signal.SIGINT or outcome.error.exit_code == 130
    assert "Recording was interrupted: 80 of 500 CoTs are recorded, in" in str(outcome.error)
    assert outcome.done == len(texts(tmp_path)) == 5 * len(backend.calls) == 80
    again = FakeBackend()
    assert go(tmp_path, again, plan(100, 5)).error is None
    assert max((backend.asked + again.asked).values()) == 1  # no CoT is paid for twice


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_neither_a_second_interrupt_nor_sigterm_waits_forever(tmp_path, monkeypatch, number):
    monkeypatch.setattr("recorders.asking.engine.GRACE_S", 0.01)
    backend, control = stop_after(
        3, lambda c: [c.interrupt(number) for _ in range(1 + (number == signal.SIGINT))]
    )
    outcome = go(tmp_path, backend, plan(100, 5), control=control)
    assert isinstance(outcome.error, InterruptedByUser)
    assert outcome.done == len(texts(tmp_path)) == 5 * (len(backend.calls) - 2)


def test_an_interrupt_ends_a_long_wait(tmp_path):
    control = Control()
    clock = FakeClock()

    async def press():
        await clock.sleep(10)
        control.interrupt()

    async def both(journal):
        recording = record_samples(
            plan(4, 5),
            FakeBackend([RateLimitError("busy", 500.0)]),
            journal,
            clock=clock,
            control=control,
            limits=Limits(1),
        )
        return (await asyncio.gather(recording, press()))[0]

    with Journal.open(tmp_path, {}) as journal:
        outcome = clock.run(both(journal))
    assert isinstance(outcome.error, InterruptedByUser)
    assert clock.now() < 60


def test_a_stop_before_the_start_sends_nothing(tmp_path):
    control, backend = Control(), FakeBackend()
    control.interrupt()
    assert isinstance(go(tmp_path, backend, control=control).error, InterruptedByUser)
    assert backend.calls == []


def test_cancellation_from_outside_keeps_what_came(tmp_path):
    async def work(journal):
        task = asyncio.ensure_future(
            record_samples(
                plan(4, 5),
                FakeBackend([None, lambda f: asyncio.sleep(9, f)]),
                journal,
                limits=Limits(2),
            )
        )
        while not journal.totals.cots:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with Journal.open(tmp_path, {}) as journal:
        asyncio.run(work(journal))
    assert len(texts(tmp_path)) >= 5


def test_nothing_is_sent_that_could_pass_the_cost_limit(tmp_path):
    """20 prompt and 10 output tokens at 1 and 10 USD per million: 120 micro-dollars per reply of
    one CoT.
    """
    backend = FakeBackend(pause=3)
    options = {"price": PRICE, "limits": Limits(8, samples_per_request=1)}
    options["wanted"] = plan(10, 10, Decoding(max_tokens=10))
    outcome = go(tmp_path, backend, cost_limit_usd=0.0024, **options)
    assert isinstance(outcome.error, CostLimitError)
    assert outcome.usd is not None
    assert outcome.usd <= 0.0024
    assert outcome.done == round(outcome.usd / 120e-6) >= 15
    assert "of 0.0024 USD are spent), so nothing more was sent" in str(outcome.error)
    again = go(tmp_path, cost_limit_usd=0.0024, **options)
    assert again.done <= 20, "earlier runs count"
    assert go(tmp_path, cost_limit_usd=1.0, **options).error is None


def test_a_cost_limit_needs_a_price_and_a_number(tmp_path):
    with pytest.raises(PriceNotFoundError, match="no price for this LLM"):
        go(tmp_path, cost_limit_usd=1.0)
    with pytest.raises(OutOfRangeError, match="above 0"):
        go(tmp_path, cost_limit_usd=0.0, price=PRICE)
    with pytest.raises(OutOfRangeError, match="has 1 to 1,048,576 CoTs"):
        plan(1, 0)


def test_prompts_are_paid_once_per_reply(tmp_path):
    assert go(tmp_path, price=PRICE).usd == pytest.approx(1e-6 * 4 * (20 + 5 * 10 * 10))
    other = tmp_path / "single"
    outcome = go(other, price=PRICE, limits=Limits(samples_per_request=1))
    assert outcome.usd == pytest.approx(1e-6 * 20 * (20 + 10 * 10))


def test_progress_ends_with_everything_done(tmp_path):
    seen = []
    acknowledged = []
    go(tmp_path, price=PRICE, progress=seen.append, acknowledged=acknowledged.extend)
    assert (seen[-1].done, seen[-1].total, seen[-1].new, seen[-1].in_flight) == (20, 20, 20, 0)
    assert seen[-1].usd == pytest.approx(0.00208)
    assert len(set(acknowledged)) == len(acknowledged) == 20


def test_an_estimate_before_anything_is_an_upper_bound():
    estimate = estimate_samples(plan(4, 5, Decoding(max_tokens=100)), price=PRICE)
    known = estimate.cots, estimate.calls, estimate.output_tokens, estimate.at_most
    assert known == (20, 4, 2000, True)
    assert estimate.usd == pytest.approx(1e-6 * (estimate.prompt_tokens + 20_000))
    assert "an upper bound" in estimate.basis
    unknown = estimate_samples(plan(4, 5, Decoding(max_tokens=None)), price=PRICE)
    assert (unknown.output_tokens, unknown.usd, unknown.at_most) == (None, None, False)
    assert estimate_samples(plan(4, 5), limits=Limits(samples_per_request=2)).calls == 12


def test_an_estimate_after_some_is_what_they_were_like(tmp_path):
    go(tmp_path, wanted=plan(4, 2))
    with Journal.open(tmp_path, {}) as journal:
        estimate = estimate_samples(plan(4, 5), journal, price=PRICE)
    known = estimate.cots, estimate.calls, estimate.prompt_tokens, estimate.output_tokens
    assert known == (12, 4, 80, 120)
    assert estimate.usd == pytest.approx(1e-6 * (80 + 1200))
    assert not estimate.at_most
