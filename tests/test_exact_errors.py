"""How errors come about over all draws. Referee: the enumeration of all orders, by the definition and the readable forms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_files import real_codes
from test_methods_stopping import Recorded, pool_of

from feval.estimators.orders import number_of_counts, partitions
from feval.exact import Oracle, exact_expectation
from feval.exact_errors import ErrorShares, exact_errors
from feval.methods import AdaptiveConsistency, EarlyStopping, SelfConsistency, SingleCall
from feval.methods.vote import share_of_lead
from feval.pools import Pool

Answers = tuple[str | None, ...]

POOLS = (
    "aaabbc",
    "aabbcc",  # tied
    "aabb--",
    "-a-ba-",
    "------",
    "abcdef",
    "abbb--",
)
CRITERIA: list[Any] = [
    AdaptiveConsistency(criterion, threshold, budget, rule)
    for criterion, threshold in (
        ("beta", None), ("beta", 0.5), ("dirichlet", 0.45), ("entropy", 0.95), ("majority", "0.5"), ("majority", "1/3"),
        ("crp", 0.6),
    )
    for budget in (6, 4)
    for rule in ("drop", "vote")
]  # fmt: skip
WINDOWS: list[Any] = [
    EarlyStopping(window, budget, answer)
    for window, budget in ((1, 6), (1, 4), (2, 6), (2, 5), (3, 6), (3, 4), (6, 6), (4, 6))
    for answer in ("all", "window")
]
PLAIN = [SingleCall(), *(SelfConsistency(n, rule) for n in (1, 2, 4, 6) for rule in ("drop", "vote"))]


def answers(pool: str) -> Answers:
    return tuple(None if one == "-" else one for one in pool)


@cache
def orders(pool: Answers) -> list[Answers]:
    """Each once: all are equally likely."""
    return sorted(set(permutations(pool)), key=str)


def share(drawn: Sequence[str | None], gold: str) -> Fraction:
    """How far the gold leads."""
    votes = Counter(one for one in drawn if one is not None)
    leaders = [answer for answer, count in votes.items() if count == max(votes.values())]
    return Fraction(1, len(leaders)) if gold in leaders else Fraction(0)


def split(method: Any, pool: Answers, gold: str) -> tuple[float, float, float]:
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


def told(method: Any, pools: Sequence[str], golds: Sequence[str]) -> tuple[np.ndarray, ErrorShares]:
    pool = pool_of([[-2 if c == "." else -1 if c == "-" else ord(c) - ord("a") for c in pool] for pool in pools])
    gold = np.array([ord(gold) - ord("a") for gold in golds])
    right = exact_expectation(method, [pool], gold).right
    return right, exact_errors(method, pool, gold, right, not_asked)


def not_asked(rows: Any, replicates: int) -> Any:
    raise AssertionError("replicates were asked for")


def seeded(pool: Pool, budget: int, seed: int = 0) -> Callable[[Any, int], Iterator[np.ndarray]]:
    """Orders of some questions, a hundred replicates at a time."""

    def draw(rows: Any, replicates: int) -> Iterator[np.ndarray]:
        rng = np.random.default_rng(seed)
        for start in range(0, replicates, 100):
            shape = (min(100, replicates - start), len(rows), pool.codes.shape[1])
            yield np.argsort(rng.random(shape), axis=2)[:, :, :budget].astype(np.uint16)

    return draw


def cases() -> Iterator[tuple[str, str]]:
    for pool in POOLS:
        for gold in ("a", "b", "z"):
            yield pool, gold


@pytest.mark.parametrize("method", [*CRITERIA, *WINDOWS, *PLAIN], ids=str)
def test_the_split_is_the_mean_over_all_orders(method: Any) -> None:
    pools, golds = zip(*cases(), strict=True)
    right, shares = told(method, pools, golds)
    assert shares.no_answer is not None
    assert shares.stopped_early is not None
    assert shares.routed_wrong is not None
    assert not shares.routed_wrong.any()
    expected = np.array([split(method, answers(pool), gold) for pool, gold in zip(pools, golds, strict=True)]).T
    for found, wanted in zip((right, shares.no_answer, shares.stopped_early), expected, strict=True):
        assert found == pytest.approx(wanted, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from("aaabbc-"), min_size=7, max_size=7),
    st.sampled_from([m for m in [*CRITERIA, *WINDOWS] if m.draws(1)[0] < 6]),
)
def test_some_of_the_recorded_cots_are_enough(pool: list[str], method: Any) -> None:
    _, shares = told(method, ["".join(pool)], ["a"])
    expected = split(method, answers("".join(pool)), "a")
    assert shares.stopped_early == pytest.approx([expected[2]], abs=1e-12)
    assert shares.no_answer == pytest.approx([expected[1]], abs=1e-12)


def test_counts_are_counted_without_being_written_down() -> None:
    for bounds in ([0, 5, 3, 2], [2, 4, 4], [9, 0], [3, 1, 1, 1, 1]):
        for drawn in range(7):
            assert number_of_counts(np.array(bounds), drawn) == len(partitions(np.array(bounds), drawn)), (
                bounds,
                drawn,
            )


@pytest.mark.parametrize("no_answer", ["drop", "vote"])
def test_a_coin_is_a_mixture_over_where_it_stops(no_answer: str) -> None:
    method, golds = AdaptiveConsistency("random", 0.3, 5, no_answer), "ab"
    for pool in ("aabbc", "aabbcc", "-a-ba-"):
        for gold in golds:
            none = early = 0.0
            count = len(orders(answers(pool)))
            for order in orders(answers(pool)):
                for n, chance in enumerate((0.3, 0.3 * 0.7, 0.3 * 0.7**2, 0.3 * 0.7**3, 0.7**4), 1):
                    votes = Counter(one for one in order[:n] if one is not None or no_answer == "vote")
                    answer = max(votes, key=votes.__getitem__) if votes else None
                    none += chance * (answer is None)
                    early += chance * (answer not in (gold, None) and n < 5) * share(order[:5], gold)
            _, shares = told(method, [pool], [gold])
            assert shares.no_answer == pytest.approx([none / count], abs=1e-12)
            assert shares.stopped_early == pytest.approx([early / count], abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_an_oracle_fails_for_want_of_answers_or_of_the_right_one(n: int) -> None:
    for pool, gold in cases():
        right, shares = told(Oracle(n), [pool], [gold])
        drawn = [order[:n] for order in orders(answers(pool))]
        assert right == pytest.approx([np.mean([gold in own for own in drawn])], abs=1e-12)
        assert shares.no_answer == pytest.approx([np.mean([set(own) == {None} for own in drawn])], abs=1e-12)
        assert shares.stopped_early == pytest.approx([0])
        assert shares.routed_wrong == pytest.approx([0])


@pytest.mark.parametrize("name", ["date_cot1_40", "last_letters_gpt35"])
@pytest.mark.parametrize(
    "method", [AdaptiveConsistency(budget=20), AdaptiveConsistency(budget=40), EarlyStopping(5, 40)], ids=str
)
def test_seeded_replicates_tend_to_the_split(method: Any, name: str, shared: Path) -> None:
    """On a real recording, within 4 standard errors of what replicates count."""
    codes, gold = real_codes(shared, name)
    pool, runs = pool_of(codes), 400
    budget = method.draws(1)[0]
    right = exact_expectation(method, [pool], gold).right
    shares = exact_errors(method, pool, gold, right, not_asked)
    assert shares.no_answer is not None
    assert shares.stopped_early is not None
    rng = np.random.default_rng(20)
    counted = []
    for _ in range(runs):
        order = np.argsort(rng.random(codes.shape), axis=1)[:, :budget].astype(np.uint16)[None]
        decided = method.decide([pool], [order])
        answer, cots = decided.answer[0], decided.ledgers[0].cots[0]
        whole = np.take_along_axis(codes, order[0].astype(np.intp), axis=1)
        early = ((answer >= 0) & (answer != gold) & (cots < budget) & (gold >= 0)) * share_of_lead(whole, gold)
        counted.append([(answer < 0).mean(), early.mean()])
    mean, spread = np.mean(counted, axis=0), np.std(counted, axis=0, ddof=1) / np.sqrt(runs)
    found = np.array([shares.no_answer.mean(), shares.stopped_early.mean()])
    assert (np.abs(mean - found) <= 4 * spread + 1e-9).all()
    assert found[1] > 0
