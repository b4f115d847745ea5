"""Traces that grow: `start`, `advance`, `probe` and `stop` on a metered LLM."""

import math
import pickle
from copy import copy, deepcopy

import pytest
from dealt import metered
from probed import probed_pool, without_future

from feval.errors import MethodError, NotRecordedError, OutOfRangeError, UsageError
from feval.evaluation.user_methods.calling import call_method
from feval.replay.meter import close_ledger

# Probes every 10 tokens: one trace as it should be, one that lacks its last two probes, one with a
# probe beyond its end, one without any.
TRACES = [(["a", "b", None], 34, "c"), (["a"], 37, "b"), (["b", "b"], 18, "a"), ([], 4, "d")]
POOL = probed_pool([TRACES])


def test_traces_grow_by_rounds_and_answer_where_they_are():
    llm = metered(POOL)
    traces = llm.start(4)
    assert (llm.rounds, llm.cots, llm.remaining, llm.output_tokens) == (1, 4, 0, 0)
    llm.advance(traces, tokens=10)
    assert [trace.tokens for trace in traces] == [10, 10, 10, 4]
    assert [trace.running for trace in traces] == [True, True, True, False]
    assert [trace.probe() for trace in traces] == ["a", "a", "b", "d"]  # the last is a final answer
    llm.advance(traces[:3], tokens=10)
    # beyond its last probe a trace comes to its end
    assert [trace.tokens for trace in traces] == [20, 37, 20, 4]
    assert [trace.probe() for trace in traces] == ["b", "b", "b", "d"]
    llm.advance([traces[0], traces[2]])
    assert [(trace.tokens, trace.finished) for trace in traces] == [
        (30, False),
        (37, True),
        (20, True),
        (4, True),
    ]
    assert [trace.probe() for trace in traces] == [None, "b", "a", "d"]
    assert (llm.output_tokens, llm.longest_trace_tokens) == (30 + 37 + 20 + 4, 37)
    assert llm.sequential_tokens == 10 + 27 + 10
    assert llm.rounds == 1


def test_several_intervals_can_be_one_round():
    llm = metered(POOL)
    traces = llm.start(2)
    llm.advance(traces, tokens=30)
    assert [(trace.tokens, trace.finished) for trace in traces] == [(30, False), (37, True)]
    llm.advance(traces[0], tokens=1000)
    assert (traces[0].tokens, traces[0].probe(), llm.sequential_tokens) == (34, "c", 37 + 4)


def test_unequal_bursts_are_one_round():
    llm = metered(POOL)
    traces = llm.start(3)
    llm.advance(traces, tokens=[20, None, 10])
    assert [trace.tokens for trace in traces] == [20, 10, 10]
    assert (llm.sequential_tokens, llm.rounds) == (20, 1)
    llm.advance(traces[0], tokens=[10])
    assert (traces[0].tokens, llm.sequential_tokens) == (30, 30)
    with pytest.raises(UsageError, match=r"2 traces of .* take as many numbers of tokens.* 1 were"):
        llm.advance(traces[:2], tokens=[10])
    with pytest.raises(OutOfRangeError, match="0 were asked for"):
        llm.advance(traces[:2], tokens=[10, 0])
    assert llm.sequential_tokens == 30


def test_a_stopped_trace_costs_what_it_generated():
    llm = metered(POOL)
    first, second = llm.start(2)
    llm.advance([first, second])
    first.stop()
    llm.advance(second)
    assert (first.tokens, first.running, first.finished, first.probe()) == (10, False, False, "a")
    assert llm.output_tokens == 10 + 37
    with pytest.raises(
        UsageError,
        match="Trace 0 of deep, which has generated 10 tokens, is stopped and cannot be adv",
    ):
        llm.advance(first)
    with pytest.raises(UsageError, match="is finished and cannot be advanced"):
        llm.advance(second)


def test_a_limit_cuts_traces_and_they_answer_with_their_last_probe():
    llm = metered(POOL)
    traces = llm.start(4, limit=25)
    llm.advance(traces, tokens=25)
    assert [trace.tokens for trace in traces] == [25, 25, 18, 4]
    assert [trace.finished for trace in traces] == [False, False, True, True]
    assert not any(trace.running for trace in traces)
    assert [trace.probe() for trace in traces] == ["b", "a", "a", "d"]
    llm = metered(POOL)
    [early] = llm.start(limit=5)
    llm.advance(early)
    assert (early.tokens, early.probe(), llm.probe_calls) == (5, None, 0)


def test_probes_are_billed_once_at_each_place():
    llm = metered(POOL)
    traces = llm.start(3)
    llm.advance(traces)
    for _ in range(2):
        assert [trace.probe() for trace in traces] == ["a", "a", "b"]
    # the same probes
    assert [trace.confidence for trace in traces] == [0, None, pytest.approx(0.1)]
    probes = POOL.probes()
    assert probes.output_tokens is not None
    places = [probes.of(0, sample).start for sample in range(3)]
    assert (llm.probe_calls, llm.probe_tokens) == (
        3,
        sum(max(int(probes.output_tokens[p]), 0) for p in places),
    )
    llm.advance(traces, tokens=1000)
    assert [trace.probe() for trace in traces] == ["c", "b", "a"]
    assert [trace.confidence for trace in traces] == [None] * 3
    assert llm.probe_calls == 3  # final answers come with the traces


def test_probes_whose_tokens_are_not_known_count_nothing():
    llm = metered(probed_pool([TRACES], tokens=False, confidences=False))
    [trace] = llm.start()
    llm.advance(trace)
    assert (trace.probe(), llm.probe_calls, llm.probe_tokens) == ("a", 1, 0)
    with pytest.raises(
        NotRecordedError, match=r"The probes of deep carry no confidence. Take a method that"
    ):
        _ = trace.confidence


def test_traces_and_whole_cots_share_one_draw_and_one_ledger():
    llm = metered(POOL, order=[3, 1, 0, 2])
    assert llm.sample(2).answers == ["d", "b"]
    [third] = llm.start()
    llm.advance(third)
    assert third.probe() == "a"
    assert llm.sample().answers == ["a"]
    assert (llm.rounds, llm.cots, llm.output_tokens) == (3, 4, 4 + 37 + 10 + 18)
    assert llm.sequential_tokens == 37 + 10 + 18
    assert repr(third) == "Trace(2 of 'deep', 10 tokens, running)"
    with pytest.raises(UsageError, match="CoT 2 of deep was started as a trace"):
        llm.truncate(2, 5)


def test_offsets_of_any_kind_are_reached_one_after_the_other_or_exactly():
    pool = probed_pool([[(["a", "b", "c"], 60, "d"), (["b"], 9, "b")]], None, [[[7, 8, 40], [3]]])
    llm = metered(pool)
    first, second = llm.start(2)
    llm.advance([first, second])
    assert (first.tokens, second.tokens) == (7, 3)
    llm.advance(first, tokens=33)
    assert (first.tokens, first.probe()) == (40, "c")
    llm.advance([first, second], tokens=20)
    assert (first.tokens, first.finished, second.tokens, second.finished) == (60, True, 9, True)
    assert llm.sequential_tokens == 7 + 33 + 20
    llm = metered(pool)
    with pytest.raises(
        NotRecordedError,
        match=r"cannot be advanced by 10: no probe was recorded there. Advance it to its",
    ):
        llm.advance(llm.start(), tokens=10)


def test_what_was_not_recorded_or_makes_no_sense_is_refused():
    llm = metered(POOL)
    [trace] = llm.start()
    with pytest.raises(
        UsageError, match="which has generated 0 tokens, cannot be probed: advance it first"
    ):
        trace.probe()
    with pytest.raises(
        NotRecordedError,
        match=r"cannot be advanced by 15: it was probed every 10 tokens. Advance by a mul",
    ):
        llm.advance(trace, tokens=15)
    llm = metered(POOL)
    [trace] = llm.start()
    with pytest.raises(OutOfRangeError, match="for 1 token or more at a time; 0 were asked for"):
        llm.advance(trace, tokens=0)
    with pytest.raises(UsageError, match="each once in a round"):
        llm.advance([trace, trace])
    with pytest.raises(UsageError, match="advances traces that it started on this question"):
        metered(POOL).advance(trace)
    for limit in (0, 15.5, math.nan):
        with pytest.raises(OutOfRangeError, match=f"limit={limit}"):
            llm.start(limit=limit)
    llm.advance([])
    assert (llm.output_tokens, llm.probe_calls, trace.running) == (0, 0, True)
    close_ledger(llm)
    for late in (lambda: llm.advance(trace), llm.start):
        with pytest.raises(UsageError, match="was kept from another question"):
            late()


def test_a_refused_advance_is_the_end_of_a_method():
    """One that went on would know where a trace has probes and ends, without a token of it."""
    llm = metered(probed_pool([[("ab", 30, "a")] * 2], None, [[[5, 20], [5, 25]]]))

    def looking_ahead(_, llm):
        traces = llm.start(2)
        with pytest.raises(NotRecordedError):
            llm.advance(traces, tokens=20)
        with pytest.raises(NotRecordedError, match="cannot be advanced by 20"):
            llm.advance(traces[0])
        with pytest.raises(NotRecordedError, match="cannot be advanced by 20"):
            llm.sample()
        return "a"

    with pytest.raises(
        MethodError, match=r"The method failed: Trace 1 of deep.* cannot be advanced by 20"
    ):
        call_method(looking_ahead, "The method", "?", [llm])


def test_nothing_of_the_future_is_seen():
    """Whatever a trace will show after some tokens, it makes no difference before."""
    for tokens in (10, 20):
        seen = []
        for pool in (POOL, without_future(POOL, 0, 0, tokens)):
            llm = metered(pool)
            [trace] = llm.start()
            while trace.tokens < tokens:
                llm.advance(trace)
                seen.append(
                    (
                        trace.tokens,
                        trace.running,
                        trace.probe(),
                        trace.confidence,
                        repr(trace),
                        repr(llm),
                    )
                )
                seen.append(
                    (llm.output_tokens, llm.sequential_tokens, llm.probe_calls, llm.probe_tokens)
                )
        assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]


def test_a_meter_cannot_be_copied():
    for duplicate in (copy, deepcopy, pickle.dumps):
        with pytest.raises(
            UsageError, match="deep is one meter of one question and cannot be copied"
        ):
            duplicate(metered(POOL))
