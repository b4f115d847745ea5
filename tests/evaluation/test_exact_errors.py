"""How errors come about over all draws. Referee: the enumeration of all orders, by the definition
and the readable forms.
"""

import json
from collections import Counter
from dataclasses import asdict
from fractions import Fraction
from functools import cache
from itertools import permutations

import numpy as np
import pytest
from command_line import said
from hypothesis import given, settings, strategies as st
from real_files import real_codes
from recorded_pools import Recorded, not_asked, pool_of

from feval import compare, evaluate, load
from feval.comparison.plan import Plan
from feval.estimators.stopping_orders import number_of_counts, partitions
from feval.methods import AdaptiveConsistency, EarlyStopping, SelfConsistency, SingleCall
from feval.methods.oracle import Oracle
from feval.methods.protocol import Decisions, Ledger
from feval.methods.vote import split_errors
from feval.receipts.verifying import verify_receipt
from feval.report.tables.tables import evaluation_tables
from recorders.demo import bundled_recording

LLM = "feval/tiny-42k"
POOLS = ("aaabbc", "aabbcc", "aabb--", "-a-ba-", "------", "abcdef", "abbb--")  # tied
CRITERIA = [
    AdaptiveConsistency(criterion, threshold, budget, rule)
    for criterion, threshold in (
        ("beta", None), ("beta", 0.5), ("dirichlet", 0.45), ("entropy", 0.95), ("majority", "0.5"),
        ("majority", "1/3"),
        ("crp", 0.6),
    )
    for budget in (6, 4)
    for rule in ("drop", "vote")
]  # fmt: skip
WINDOWS = [
    EarlyStopping(window, budget, answer)
    for window, budget in ((1, 6), (1, 4), (2, 6), (2, 5), (3, 6), (3, 4), (6, 6), (4, 6))
    for answer in ("all", "window")
]
PLAIN = [
    SingleCall(),
    *(SelfConsistency(n, rule) for n in (1, 2, 4, 6) for rule in ("drop", "vote")),
]


def answers(pool):
    return tuple(None if one == "-" else one for one in pool)


@cache
def orders(pool):
    """Each once: all are equally likely."""
    return sorted(set(permutations(pool)), key=str)


def share(drawn, gold):
    """How far the gold leads."""
    votes = Counter(one for one in drawn if one is not None)
    leaders = [answer for answer, count in votes.items() if count == max(votes.values())]
    return Fraction(1, len(leaders)) if gold in leaders else Fraction(0)


def split(method, pool, gold):
    """Right, no answer, stopped early: the mean over all orders."""
    right = none = 0
    early = Fraction(0)
    budget = method.draws(1)[0]
    for order in orders(pool):
        asked = Recorded(list(order))
        answer = method("", asked)
        right += answer == gold
        none += answer is None
        if answer not in (gold, None) and asked.cots < budget:
            early += share(order[:budget], gold)
    count = len(orders(pool))
    return right / count, none / count, float(early / count)


def exact_split(method, pools, golds):
    pool = pool_of(
        [
            [-2 if c == "." else -1 if c == "-" else ord(c) - ord("a") for c in pool]
            for pool in pools
        ]
    )
    gold = np.array([ord(gold) - ord("a") for gold in golds])
    return split_of(method, pool, gold)


def split_of(method, pool, gold, draw=None):
    right = method.exact(pool, gold).right
    return right, method.exact_errors(pool, gold, right, draw or not_asked)


def seeded(pool, budget, seed=0):
    """Orders of some questions, a hundred replicates at a time."""

    def draw(rows, replicates):
        rng = np.random.default_rng(seed)
        for start in range(0, replicates, 100):
            shape = (min(100, replicates - start), len(rows), pool.codes.shape[1])
            yield np.argsort(rng.random(shape), axis=2)[:, :, :budget].astype(np.uint16)

    return draw


def cases():
    for pool in POOLS:
        for gold in ("a", "b", "z"):
            yield pool, gold


def marked(method):
    """Entropies take seconds: one of their four cases is fast enough."""
    slow = method.criterion == "entropy" and (method.budget, method.no_answer) != (4, "drop")
    return pytest.param(method, marks=pytest.mark.slow) if slow else method


@pytest.mark.parametrize("method", [*map(marked, CRITERIA), *WINDOWS, *PLAIN], ids=str)
def test_the_split_is_the_mean_over_all_orders(method):
    pools, golds = zip(*cases(), strict=True)
    right, shares = exact_split(method, pools, golds)
    assert not shares.routed_wrong.any()
    expected = np.array(
        [split(method, answers(pool), gold) for pool, gold in zip(pools, golds, strict=True)]
    ).T
    results = np.array([right, shares.no_answer, shares.stopped_early])
    assert results == pytest.approx(expected, abs=1e-12)


PARTS = st.lists(st.sampled_from("aaabbc-"), min_size=7, max_size=7)
WHOLE = st.lists(st.sampled_from("abcd-"), min_size=6, max_size=6)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from([*CRITERIA, *WINDOWS]), st.data())
def test_all_of_the_recorded_cots_may_be_drawn_or_some(method, data):
    pool = "".join(data.draw(WHOLE if method.draws(1)[0] == 6 else PARTS))
    right, shares = exact_split(method, [pool], ["a"])
    result = right[0], shares.no_answer[0], shares.stopped_early[0]
    assert result == pytest.approx(split(method, answers(pool), "a"), abs=1e-12)


def test_a_tie_of_the_whole_budget_counts_as_a_share_by_hand():
    """aabb: its first CoT stops, and the vote over all is tied; so half of the b that are answered
    were too early.
    """
    method = EarlyStopping(1, 4)
    for order in ([0, 1, 2, 3], [2, 3, 0, 1]):
        pool, orders = pool_of([[0, 0, 1, 1]]), np.array([[order]], np.uint16)
        decided = method.decide([pool], [orders])
        right = decided.answer == 0
        early, routed = split_errors(decided, right, np.array([0]), [pool], [orders])
        assert (early.tolist(), routed.tolist()) == ([[0.5 * (not right)]], [[0]])
    _, shares = exact_split(method, ["aabb"], ["a"])
    assert shares.stopped_early == pytest.approx([0.25], abs=1e-15)


def test_votes_of_several_llms_break_their_ties_by_lots_of_their_own():
    """Gold 0. Asked: 1/2 and 1/3 of their votes; not asked: 1/2, and one that is all drawn and
    tells nothing.
    """
    pools = [
        pool_of([own])
        for own in ([0, 0, 1, 1, -1, -1], [2, 0, 1, -1, -1, -1], [1, 0, 0, 1, 2, -1], [0] * 6)
    ]
    orders = [np.arange(6, dtype=np.uint16)[None, None]] * 4
    none = np.zeros((1, 1), np.int64)
    ledgers = tuple(Ledger(none + 1, none + cots, none) for cots in (2, 5, 0, 6))
    decided = Decisions(none + 1, ledgers)
    early, routed = split_errors(decided, none > 0, np.array([0]), pools, orders)
    assert early == pytest.approx(1 - (1 - 1 / 2) * (1 - 1 / 3))
    assert routed == pytest.approx((1 - 1 / 2) * (1 - 1 / 3) * 1 / 2)
    for answer, gold in ((-1, 0), (0, 0), (1, -1)):  # no answer, right, or without a gold
        decided, right = Decisions(none + answer, ledgers), none + answer == gold
        early, routed = split_errors(decided, right, np.array([gold]), pools, orders)
        assert (early.tolist(), routed.tolist()) == ([[0]], [[0]])


@pytest.mark.parametrize("limit", ["_MOST_STEPS", "_MOST_COUNTS", "_MOST_IN_FRACTIONS"])
def test_too_many_counts_are_estimated_and_that_is_said(limit, monkeypatch):
    """Within 4 of its standard errors of the truth, and together no more than what is wrong."""
    rng = np.random.default_rng(5)
    codes, gold = rng.choice(4, (40, 34), p=[0.4, 0.35, 0.15, 0.1]), rng.integers(0, 3, 40)
    codes[:, -2:], pool = -1, pool_of(codes)
    method = (
        EarlyStopping(2, 30)
        if limit == "_MOST_IN_FRACTIONS"
        else AdaptiveConsistency(threshold=0.8, budget=30)
    )
    monkeypatch.setattr("feval.methods.stops._MOST_IN_FRACTIONS", 1_000_000_000_000)
    right, known = split_of(method, pool, gold)
    assert known.estimate is None
    monkeypatch.setattr(f"feval.methods.stops.{limit}", 1)
    monkeypatch.setattr("feval.methods.stops.MOST_SUBPOOLS", 0)
    _, shares = split_of(method, pool, gold, seeded(pool, method.draws(1)[0]))
    asked = shares.estimate.replicates, shares.estimate.questions
    assert asked == (1000, np.count_nonzero(known.stopped_early))
    off = shares.stopped_early.mean() - known.stopped_early.mean()
    assert 0 < abs(off) < 4 * shares.estimate.standard_error < 0.1 * known.stopped_early.mean()
    assert shares.stopped_early.sum() <= (1 - right - shares.no_answer).sum() + 1e-12
    assert shares.no_answer.tolist() == known.no_answer.tolist()


def test_an_estimate_for_answers_that_are_rarely_wrong_is_not_too_low(monkeypatch):
    """Most questions are wrong in none of the hundred replicates, and are not taken for never
    stopped early.
    """
    rng = np.random.default_rng(8)
    rows = ([0] * own + [1] * (20 - own) for own in rng.integers(13, 18, 400))
    pool, gold = pool_of(np.array([rng.permutation(row) for row in rows])), np.zeros(400, np.int64)
    method = AdaptiveConsistency(threshold=0.9, budget=12)
    right, known = split_of(method, pool, gold)
    monkeypatch.setattr("feval.methods.stops._MOST_STEPS", 1)
    # a hundred replicates
    monkeypatch.setattr("feval.methods.stops._ESTIMATE_CODES", 1)
    _, shares = split_of(method, pool, gold, seeded(pool, 12))
    assert np.median((1 - right) * 100) < 1
    off = shares.stopped_early.mean() - known.stopped_early.mean()
    assert abs(off) < 3 * shares.estimate.standard_error


def test_an_estimate_in_blocks_of_questions(monkeypatch):
    """Questions with the same counts share what is exact, and have draws of their own for what is
    estimated.
    """
    rng = np.random.default_rng(5)
    codes, gold = rng.choice(3, (12, 14), p=[0.5, 0.35, 0.15]), rng.integers(0, 2, 12)
    pool, gold = pool_of(np.vstack([codes, codes[:, ::-1]])), np.tile(gold, 2)
    method = AdaptiveConsistency(threshold=0.8, budget=8)
    right, known = split_of(method, pool, gold)
    monkeypatch.setattr("feval.methods.stops._MOST_STEPS", 1)
    monkeypatch.setattr("feval.estimators.per_question.QUESTIONS_AT_ONCE", 5)
    # a hundred replicates
    monkeypatch.setattr("feval.methods.stops._ESTIMATE_CODES", 1)
    in_blocks, shares = split_of(method, pool, gold, seeded(pool, 8))
    assert in_blocks == pytest.approx(right, abs=1e-12)
    assert shares.estimate.questions == np.count_nonzero(known.stopped_early)
    off = shares.stopped_early.mean() - known.stopped_early.mean()
    assert 0 < abs(off) < 4 * shares.estimate.standard_error
    assert shares.stopped_early[:12].tolist() != shares.stopped_early[12:].tolist()


def test_an_estimated_split_is_said_everywhere(tmp_path, monkeypatch):
    monkeypatch.setattr("feval.methods.stops._MOST_STEPS", 1)
    with bundled_recording() as folder:
        early = {"name": "early-stopping", "llms": [LLM], "budgets": {"budget": [20, 40]}}
        shared = {"dataset": "tiny_sums", "recordings": [str(folder)], "resamples": 100}
        comparison = compare(Plan.from_dict(shared | {"method": [early]}))
        part, whole = comparison.curves[0].points
        assert whole.errors_estimate is None
        assert sum(part.errors().values()) == pytest.approx(1 - part.accuracy)
        loaded = load("tiny_sums", [LLM], recording=folder)
        points = comparison.to_dict()["curves"][0]["points"]
        estimate = asdict(part.errors_estimate)
        assert points[0]["errors_estimate"] == estimate
        assert "errors_estimate" not in points[1]
        alone = evaluate(EarlyStopping(budget=20), *loaded, confidence=None)
        assert points[0]["errors"] == alone.errors()
        [_, _, note] = evaluation_tables([part, whole])[1].notes
        assert f"{estimate['questions']} questions, from 1,000 seeded draws of each" in note
        receipt = tmp_path / "receipt.json"
        options = "--recording", folder, "--llm", LLM, "--out", tmp_path
        said("run early-stopping --set budget=20", *options)
        assert json.loads(receipt.read_text())["numbers"]["errors_estimate"] == estimate
        assert verify_receipt(receipt).equal


@pytest.mark.slow
def test_a_small_sample_says_how_far_it_may_be_off(monkeypatch):
    """Over many seeds the estimate has the truth as its mean, and its standard errors as its
    spread.
    """
    rng = np.random.default_rng(6)
    codes, gold = rng.choice(3, (20, 12), p=[0.45, 0.35, 0.2]), np.zeros(20, np.int64)
    pool, method = pool_of(codes), AdaptiveConsistency(threshold=0.8, budget=10)
    _, known = split_of(method, pool, gold)
    monkeypatch.setattr("feval.methods.stops._MOST_STEPS", 1)
    monkeypatch.setattr("feval.methods.stops._ESTIMATE_CODES", 1)
    result = [split_of(method, pool, gold, seeded(pool, 10, seed))[1] for seed in range(200)]
    means = np.array([shares.stopped_early.mean() for shares in result])
    errors = np.array([shares.estimate.standard_error for shares in result])
    assert {shares.estimate.replicates for shares in result} == {100}
    assert abs(means.mean() - known.stopped_early.mean()) < 4 * means.std() / np.sqrt(200)
    assert 0.8 < means.std() / errors.mean() < 1.25


def test_counts_are_counted_without_being_written_down():
    for bounds in ([0, 5, 3, 2], [2, 4, 4], [9, 0], [3, 1, 1, 1, 1]):
        for drawn in range(7):
            listed = partitions(np.array(bounds), drawn)
            assert number_of_counts(np.array(bounds), drawn) == len(listed), (bounds, drawn)


@pytest.mark.parametrize("no_answer", ["drop", "vote"])
def test_a_coin_is_a_mixture_over_where_it_stops(no_answer):
    method, golds = AdaptiveConsistency("random", 0.3, 5, no_answer), "ab"
    for pool in ("aabbc", "aabbcc", "-a-ba-"):
        for gold in golds:
            none = early = 0.0
            count = len(orders(answers(pool)))
            for order in orders(answers(pool)):
                for n, chance in enumerate((0.3, 0.3 * 0.7, 0.3 * 0.7**2, 0.3 * 0.7**3, 0.7**4), 1):
                    votes = Counter(
                        one for one in order[:n] if one is not None or no_answer == "vote"
                    )
                    answer = max(votes, key=votes.__getitem__) if votes else None
                    none += chance * (answer is None)
                    if answer not in (gold, None) and n < 5:
                        early += chance * share(order[:5], gold)
            _, shares = exact_split(method, [pool], [gold])
            assert shares.no_answer == pytest.approx([none / count], abs=1e-12)
            assert shares.stopped_early == pytest.approx([early / count], abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_an_oracle_fails_for_want_of_answers_or_of_the_right_one(n):
    for pool, gold in cases():
        right, shares = exact_split(Oracle(n), [pool], [gold])
        drawn = [order[:n] for order in orders(answers(pool))]
        assert right == pytest.approx([np.mean([gold in own for own in drawn])], abs=1e-12)
        none = np.mean([set(own) == {None} for own in drawn])
        assert shares.no_answer == pytest.approx([none], abs=1e-12)
        assert shares.stopped_early == pytest.approx([0])
        assert shares.routed_wrong == pytest.approx([0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["date_cot1_40", "last_letters_gpt35"])
@pytest.mark.parametrize(
    "method",
    [AdaptiveConsistency(budget=20), AdaptiveConsistency(budget=40), EarlyStopping(5, 40)],
    ids=str,
)
def test_seeded_replicates_tend_to_the_split(method, name, shared):
    """On a real recording, within 4 standard errors of what replicates count."""
    codes, gold = real_codes(shared, name)
    pool, runs = pool_of(codes), 400
    budget = method.draws(1)[0]
    _, shares = split_of(method, pool, gold)
    counted = []
    for orders in seeded(pool, budget, 20)(np.arange(len(gold)), runs):
        decided = method.decide([pool], [orders])
        right = (decided.answer == gold) & (gold >= 0)
        early, routed = split_errors(decided, right, gold, [pool], [orders])
        assert not routed.any()
        counted += zip((decided.answer < 0).mean(axis=1), early.mean(axis=1), strict=True)
    mean, spread = np.mean(counted, axis=0), np.std(counted, axis=0, ddof=1) / np.sqrt(runs)
    result = np.array([shares.no_answer.mean(), shares.stopped_early.mean()])
    assert (np.abs(mean - result) <= 4 * spread + 1e-9).all()
    assert result[1] > 0
