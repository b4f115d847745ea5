"""CISC and DeepConf against their definitions, written out as loops."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import chain

import numpy as np
import pytest
from dealt import (
    answers_of,
    assert_both_forms_agree,
    in_recorded_order,
    letters_of,
    pools_of,
    ragged,
    scores_of,
)
from hypothesis import given, strategies as st

from feval.errors import NotRecordedError, UsageError
from feval.estimators.trace_confidence import (
    known_percentiles,
    low_groups,
    tokens_until_below,
    trace_confidences,
)
from feval.methods import ConfidenceWeighted, DeepConfidence
from feval.methods.confidence_weighted import TEMPERATURES
from feval.methods.protocol import Training
from feval.replay.pools import ArrayChannels, TokenLogprobs


def named(answers):
    return [None if a == "-" else a for a in answers]


def sure(answers, confidences, tokens=30):
    """Questions with self-checks by "p-true" of so many tokens."""
    values = np.array([[math.nan if c is None else c for c in own] for own in confidences])
    [pool] = pools_of(
        [named(own) for own in answers],
        channels=[ArrayChannels({"p-true": scores_of(values, tokens=tokens)})],
    )
    return pool


def answered(method, pool):
    return answers_of(method, [pool])


def cisc(**fields):
    return ConfidenceWeighted(**({"confidence": "p-true", "temperature": 1.0} | fields))


@given(
    st.lists(
        st.tuples(st.sampled_from("abc-"), st.one_of(st.none(), st.integers(0, 8))),
        min_size=1,
        max_size=8,
    )
)
def test_the_limits_of_temperature(votes):
    pool = sure(["".join(a for a, _ in votes)], [[None if c is None else c / 8 for _, c in votes]])
    valid = [(a, c) for a, c in votes if a != "-" and c is not None]
    most = max((c for _, c in valid), default=0)
    for temperature, voters in ((math.inf, valid), (1e-9, [(a, c) for a, c in valid if c == most])):
        # in draw order, which decides ties
        counts = {a: sum(a == b for b, _ in voters) for a, _ in valid}
        expected = max(counts, key=lambda a: counts[a]) if counts else None
        orders = np.arange(len(votes), dtype=np.uint16)[None, None, :]
        result = assert_both_forms_agree(
            cisc(n=len(votes), temperature=temperature), [pool], [orders]
        )
        assert letters_of(result.answer[0]) == [expected]


def test_self_checks_are_billed_as_recorded():
    pool = sure(["ab-"], [[0.9, 0.5, 0.5]], tokens=30)
    requests, cots = int(pool.prompt_tokens[0]), pool.output_tokens[0].tolist()
    whole, cached, free = (
        in_recorded_order(cisc(n=3, self_check=how), [pool]).ledgers[0]
        for how in ("whole", "cached", "free")
    )
    assert [int(whole.auxiliary_calls[0, 0]), int(whole.auxiliary_prompt_tokens[0, 0])] == [3, 90]
    assert int(whole.auxiliary_output_tokens[0, 0]) == 90
    assert int(cached.auxiliary_prompt_tokens[0, 0]) == sum(30 - requests - cot for cot in cots)
    assert free.auxiliary_calls is None
    assert int(whole.output_tokens[0, 0]) == int(free.output_tokens[0, 0]) == sum(cots)


def test_a_temperature_is_learnt_from_training_questions_only():
    # One confident CoT is right, two doubtful ones agree on something else; elsewhere confidence
    # says nothing.
    training = sure(["abb"] * 10, [[0.9, 0.5, 0.5]] * 10)
    untrained = ConfidenceWeighted(3, "p-true")
    with pytest.raises(UsageError, match="needs a temperature"):
        answered(untrained, training)
    with pytest.raises(UsageError, match="there is none"):
        untrained.fit(Training([training.rows(np.array([], np.intp))], np.array([], int)))
    gold = np.zeros(10, int)
    fitted = untrained.fit(Training([training], gold))
    assert fitted == replace(untrained, temperature=fitted.temperature)
    # "a" wins from exp(0.4 / T) > 2 on: the largest such value is taken, and no larger one would
    # do.
    limit = 0.4 / math.log(2)
    assert fitted.temperature == max(t for t in TEMPERATURES if t < limit)
    assert answered(fitted, training) == ["a"] * 10
    assert untrained.fit(Training([training], gold + 1)).temperature == TEMPERATURES[-1]
    assert untrained.fit(Training([replace(training, question_keys=None)], gold)) == fitted
    # no gold: nothing is ever right
    assert untrained.fit(Training([training], gold - 1)).temperature == TEMPERATURES[-1]
    assert len(TEMPERATURES) == len(set(TEMPERATURES)) == 80


def test_cisc_says_which_channels_are_missing():
    [bare] = pools_of([["a", "b"]])
    with pytest.raises(NotRecordedError, match="feval record --logprobs K"):
        answered(ConfidenceWeighted(2, temperature=1.0), bare)
    with pytest.raises(NotRecordedError, match="feval score"):
        answered(cisc(n=2), bare)
    with pytest.raises(NotRecordedError, match="were not recorded, so they cannot be billed"):
        answered(cisc(n=2), sure(["ab"], [[0.5, 0.5]], tokens=-1))
    assert answered(cisc(n=2, self_check="free"), sure(["ab"], [[0.5, 0.5]], tokens=-1)) == ["a"]


def traced(answers, traces):
    """Questions with token confidences; each CoT has as many tokens as it has confidences, and 9
    where there are none.
    """
    shape = (len(answers), len(answers[0]))
    lists = {(q, s): np.array(t) for q, own in enumerate(traces) for s, t in enumerate(own) if t}
    kept = TokenLogprobs(np.full(shape, np.nan), ragged(lists, shape), ragged({}, shape))
    tokens = [[[len(t) if t else 9 for t in own] for own in traces]]
    [pool] = pools_of(
        [named(own) for own in answers], tokens=tokens, channels=[ArrayChannels(logprobs=kept)]
    )
    return pool


def groups_of(trace, group):
    if len(trace) < group:
        return [sum(trace) / len(trace)]
    return [sum(trace[i : i + group]) / group for i in range(len(trace) - group + 1)]


def by_hand(trace, measure, group, tail):
    groups = sorted(groups_of(trace, group))
    worst = groups[: max(1, int(0.1 * len(groups)))]
    ends = trace[-tail:]
    return {
        "mean": sum(trace) / len(trace),
        "tail": sum(ends) / len(ends),
        "lowest-group": groups[0],
        "bottom-10%": sum(worst) / len(worst),
    }[measure]


def end_to_end(traces):
    return np.array(list(chain.from_iterable(traces)))


TRACES = st.lists(st.lists(st.integers(0, 12), max_size=45), min_size=1, max_size=6)


@given(
    TRACES,
    st.sampled_from(["mean", "tail", "lowest-group", "bottom-10%"]),
    st.integers(1, 12),
    st.integers(1, 12),
)
def test_measures_of_traces(traces, measure, group, tail):
    values = [[c / 4 for c in own] for own in traces]
    lengths = np.array([len(own) for own in values])
    result = trace_confidences(end_to_end(values), lengths, measure, group, tail)
    expected = [by_hand(own, measure, group, tail) if own else math.nan for own in values]
    assert result == pytest.approx(expected, nan_ok=True)


@given(TRACES, st.integers(1, 12), st.integers(0, 48))
def test_the_first_group_below_a_bar(traces, group, bar):
    values = [[c / 4 for c in own] for own in traces]
    low = low_groups([(end_to_end(values), np.array([len(own) for own in values]))], group)
    result = tokens_until_below(low, np.arange(len(values)), np.full(len(values), bar / 16))
    for own, tokens in zip(traces, result.tolist(), strict=True):
        starts = range(len(own) - group + 1)
        ends = [
            i + group
            for i in starts
            if Fraction(sum(own[i : i + group]), 4 * group) < Fraction(bar, 16)
        ]
        assert tokens == (ends[0] if ends else 1 << 62)


@given(
    st.lists(
        st.lists(st.one_of(st.just(math.nan), st.floats(0, 20)), min_size=5, max_size=5),
        min_size=1,
        max_size=4,
    ),
    st.floats(0, 100),
)
def test_percentiles_are_those_of_numpy(rows, percent):
    result = known_percentiles(np.array(rows), percent)
    for row, value in zip(rows, result.tolist(), strict=True):
        known = [v for v in row if not math.isnan(v)]
        assert value == (np.percentile(known, percent) if known else -math.inf)


def test_offline_keeps_the_best_of_those_that_answered():
    # Means 1, 2, 3, 4 and an unanswered 9: the 10th percentile of four is 1.3, so the first trace
    # is left out.
    pool = traced(["abac-"], [[[1.0], [2.0, 2.0], [3.0], [4.0], [9.0]]])
    assert answered(DeepConfidence(5, keep="high"), pool) == ["c"]  # 4 against 3 and 2
    # 1 + 3 and 4: a tie, the first drawn
    assert answered(DeepConfidence(5, keep=100), pool) == ["a"]
    assert answered(DeepConfidence(5, keep="low"), pool) == ["c"]
    assert answered(DeepConfidence(5, keep="high", vote="plain"), pool) == ["b"]
    assert answered(DeepConfidence(2), traced(["ab"], [[None, [1.0]]])) == ["b"]
    assert answered(DeepConfidence(2), traced(["a-"], [[None, [1.0]]])) == [None]


def test_log_probabilities_that_were_not_negated_are_no_weights():
    with pytest.raises(
        UsageError, match=r"the least of a trace of .* is -1\. .*import them negated"
    ):
        answered(DeepConfidence(4), traced(["aaab"], [[[-1.0]] * 4]))  # their sums would elect b
    assert answered(DeepConfidence(2), traced(["ab"], [[[-1e-7], [1.0]]])) == ["b"]


def test_online_cuts_at_the_first_full_group_below_the_bar():
    traces = [
        [4.0, 4.0], [2.0, 2.0],  # warm-up: lowest groups 4 and 2, the bar at 50 percent is 3
        [5.0, 3.0, 3.0, 2.0, 1.0],  # groups 4, 3, 2.5: cut after its fourth token
        [6.0, 4.0, 4.0],  # stays above
        [1.0],  # shorter than a group: never cut, but below the bar
        None,  # not known: not cut, no vote
    ]  # fmt: skip
    pool = traced(["abbcbb"], [traces])
    decided = in_recorded_order(DeepConfidence(6, "online", keep=50, group=2, warm_up=2), [pool])
    assert letters_of(decided.answer[0]) == ["a"]  # 4 against 4
    [ledger] = decided.ledgers
    assert int(ledger.output_tokens[0, 0]) == 2 + 2 + 4 + 3 + 1 + 9
    assert [int(ledger.rounds[0, 0]), int(ledger.cots[0, 0])] == [2, 6]


def test_consensus_stops_asking():
    pool = traced(["aabaa"], [[[4.0, 4.0], [4.0, 4.0], [4.0, 4.0], [4.0, 4.0], [4.0, 4.0]]])
    for share, warm_up, cots in (
        (1, 2, 2),
        ("2/3", 3, 3),
        (0.75, 3, 4),
        ("0.75", 2, 2),
        (0.8, 3, 5),
        (1, 3, 5),
    ):
        method = DeepConfidence(5, "online", group=2, warm_up=warm_up, consensus=share)
        [ledger] = in_recorded_order(method, [pool]).ledgers
        assert [int(ledger.cots[0, 0]), int(ledger.rounds[0, 0])] == [cots, 1 + cots - warm_up]
        assert int(ledger.output_tokens[0, 0]) == 2 * cots


def test_deepconf_says_which_channels_are_missing():
    [bare] = pools_of([["a", "b"]])
    with pytest.raises(NotRecordedError, match="feval record --logprobs K"):
        answered(DeepConfidence(2), bare)
    empty = traced(["ab"], [[[1.0], [1.0]]]).rows(np.array([], np.intp))
    assert answered(DeepConfidence(2, "online", warm_up=1), empty) == []
