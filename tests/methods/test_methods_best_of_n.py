"""Best-of-N against its definition, written out as a loop."""

import math
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from dealt import answers_of, assert_both_forms_agree, letters_of, pools_of, scores_of
from hypothesis import given, strategies as st
from places import read_data

from feval.errors import NotRecordedError, UsageError
from feval.estimators.plurality import subset_best_accuracy
from feval.methods import BestOfN, WeightedBestOfN
from feval.replay.pools import ArrayChannels

METHODS = [BestOfN, WeightedBestOfN]


def scored(answers, scores, steps=None):
    """One question; "-" is no answer."""
    values = np.array([[math.nan if s is None else s for s in scores]])
    lists = {(0, i): np.array(own) for i, own in enumerate(steps or []) if own}
    [pool] = pools_of(
        [[None if a == "-" else a for a in answers]],
        channels=[ArrayChannels({"prm": scores_of(values, lists)})],
    )
    return pool


def answer(method, pool):
    return answers_of(method, [pool])[0]


def test_negative_scores_are_no_weights_until_they_are_transformed():
    pool = scored("aaab", [-1.0] * 4)  # their sums are -3 and -1
    with pytest.raises(
        UsageError, match=r"the least by synthetic is -1\. .* transform=exp, sigmoid or rank"
    ):
        answer(WeightedBestOfN(4, aggregate="score"), pool)
    for transform in ("exp", "sigmoid", "rank"):
        assert answer(WeightedBestOfN(4, aggregate="score", transform=transform), pool) == "a"
    assert (
        answer(
            WeightedBestOfN(4, aggregate="score", transform="exp"),
            scored("aaab", [-9e3, -9e3, -9e3, -8e3]),
        )
        == "b"
    )


def weight_by_definition(transform, score, scores):
    if transform == "rank":  # the mean of the places of its equals, from 1
        return float(
            sum(s < score for s in scores) + Fraction(sum(s == score for s in scores) + 1, 2)
        )
    return math.exp(score) / (1 + math.exp(score)) if transform == "sigmoid" else math.exp(score)


@pytest.mark.parametrize(("name", "asks"), read_data("figures.json")["names of losses"])
def test_a_score_named_like_a_loss_asks_for_its_direction(name, asks):
    channels = ArrayChannels({name: scores_of(np.array([[0.1, 0.9, 0.8]]), {})})
    [pool] = pools_of([["a", "b", "b"]], channels=[channels])
    for method in METHODS:
        if asks:
            with pytest.raises(
                UsageError,
                match=rf"{name}.*lower were better.*scorer='{name}:lower'.*scorer='{name}:higher'",
            ):
                answer(method(3, aggregate="score"), pool)
            assert answer(method(3, f"{name}:higher", aggregate="score"), pool) == "b"
        else:
            assert answer(method(3, aggregate="score"), pool) == "b"
    assert answer(BestOfN(3, f"{name}:lower", aggregate="score"), pool) == "a"
    for stated, best in (("ppl:lower", "a"), ("ppl:higher", "b")):  # said when it was imported
        [pool] = pools_of(
            [["a", "b", "b"]], channels=[ArrayChannels({stated: channels.scores(None)})]
        )
        assert answer(BestOfN(3, aggregate="score"), pool) == best


def test_aggregates_of_steps():
    pool = scored("abcd", [None] * 4, [[0.9, 0.9, 0.1], [0.4, 0.4], [0.1, 0.8], []])
    assert [answer(BestOfN(4, aggregate=a), pool) for a in ("last", "min", "prod", "mean")] == [
        "c",
        "b",
        "b",
        "a",
    ]


POOLS = st.integers(1, 7).flatmap(
    lambda n: st.tuples(
        st.text("abc-", min_size=n, max_size=n),
        st.lists(st.one_of(st.none(), st.integers(-3, 3)), min_size=n, max_size=n),
        st.permutations(range(n)),
    )
)


@given(POOLS)
def test_any_pool_in_any_order(case):
    answers, scores, order = case
    pool = scored(answers, [None if s is None else s / 10 for s in scores])
    drawn = [(answers[i], scores[i]) for i in order]
    valid = [(a, Fraction(s, 10)) for a, s in drawn if a != "-" and s is not None]
    best = max(valid, key=lambda pair: pair[1])[0] if valid else None
    expected = [(BestOfN(len(order), aggregate="score"), best)]
    for transform in ("none", "exp", "sigmoid", "rank"):
        if transform == "none" and any(score < 0 for _, score in valid):
            continue
        weigh = {
            s: (
                s
                if transform == "none"
                else weight_by_definition(transform, s, [v for _, v in valid])
            )
            for _, s in valid
        }
        sums = {a: round(math.fsum(weigh[s] for b, s in valid if b == a), 9) for a, _ in valid}
        method = WeightedBestOfN(len(order), aggregate="score", transform=transform)
        expected.append((method, max(sums, key=lambda a: sums[a]) if sums else None))
    orders = np.array([[order]], np.uint16)
    for method, right in expected:
        result = assert_both_forms_agree(method, [pool], [orders])
        assert letters_of(result.answer[0]) == [right]


def test_a_table_of_questions_with_ties_gaps_and_pools_of_any_size_is_the_mean_over_all_draws():
    rng = np.random.default_rng(5)
    sizes = rng.integers(2, 6, 40)
    scores = np.where(np.arange(5) < sizes[:, None], rng.integers(0, 3, (40, 5)), np.nan)
    scores[rng.random((40, 5)) < 0.2] = np.nan
    scores[0, :2] = np.inf
    right = rng.random((40, 5)) < 0.5
    for n in (1, 2):
        accuracy = subset_best_accuracy(scores, right, sizes, n)
        for row, size in enumerate(sizes.tolist()):
            wins = []
            for drawn in permutations(range(size), n):
                known = [k for k in drawn if not math.isnan(scores[row, k])]
                best = max(known, key=lambda k: scores[row, k], default=None)  # the first of equals
                wins.append(best is not None and bool(right[row, best]))
            assert accuracy[row] == pytest.approx(sum(wins) / len(wins), abs=1e-14)


@pytest.mark.parametrize("method", METHODS)
def test_missing_scores(method):
    [bare] = pools_of([["a", "b"]])
    with pytest.raises(NotRecordedError, match="feval score"):
        answer(method(2), bare)
    with pytest.raises(NotRecordedError, match="no step scores to take 'min' of"):
        answer(method(2, aggregate="min"), scored("ab", [0.5, 0.1]))


@pytest.mark.parametrize("method", METHODS)
def test_the_default_takes_the_scores_of_whole_cots_where_steps_have_none(method):
    pool = scored("ab", [0.1, 0.5])
    assert answer(method(2), pool) == answer(method(2, aggregate="score"), pool) == "b"
