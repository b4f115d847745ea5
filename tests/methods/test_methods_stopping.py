"""Methods that stop early: Adaptive-Consistency and ESC. Referees: enumeration of all orders, brute
force, SciPy.
"""

from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from places import read_data
from recorded_pools import Recorded, over_all_orders, pool_of

from feval.errors import OutOfRangeError, UsageError
from feval.estimators.early_stopping import early_plurality, early_stops, expected_samples
from feval.estimators.plurality import VoteCounts
from feval.estimators.stopping_criteria import (
    Criterion,
    beta_confidence,
    crp_confidence,
    dirichlet_confidence,
)
from feval.estimators.stopping_orders import MOST_SUBPOOLS, partitions
from feval.methods import AdaptiveConsistency, EarlyStopping

ROWS = [
    [0, 0, 0, 1, 1, 2],
    [0, 0, 1, 1, 2, 2],
    [-1, 0, 1, 0, -1, 1],
    [-1] * 6,
    [3] * 6,
    [0, 1, 2, 3, 4, 5],
    [0, 0, 1, 1, 1, -1],
]
GOLD = np.array([0, 1, 1, -1, 3, 2, 0])


ADAPTIVE = [
    AdaptiveConsistency(criterion, threshold, budget, rule)
    for criterion in ("beta", "dirichlet", "entropy", "majority", "crp")
    for budget, threshold in ((6, None), (4, 0.7), (5, "0.8"))
    for rule in ("drop", "vote")
]
EARLY = [
    EarlyStopping(window, budget, answer)
    for window, budget in ((1, 6), (2, 6), (2, 5), (3, 6), (3, 4), (6, 6), (4, 6))
    for answer in ("all", "window")
]


@pytest.mark.parametrize("method", [*ADAPTIVE, *EARLY], ids=str)
def test_subpools_and_merged_counts_give_the_mean_over_all_orders(method, monkeypatch):
    pool = pool_of(ROWS)
    right, rounds, cots, tokens, *_ = over_all_orders(method, pool, GOLD)
    monkeypatch.setattr("feval.methods.stops._PARTITIONS_PER_SUBPOOL", 1e-9)
    for most_subpools in (MOST_SUBPOOLS, 0):
        monkeypatch.setattr("feval.methods.stops.MOST_SUBPOOLS", most_subpools)
        exact = method.exact(pool, GOLD)
        assert exact.right == pytest.approx(right, abs=1e-12)
        assert exact.rounds == pytest.approx(rounds, abs=1e-12)
        assert exact.cots == pytest.approx(cots, abs=1e-12)
        assert exact.output_tokens == pytest.approx(tokens, abs=1e-10)


@pytest.mark.parametrize("method", [*ADAPTIVE[::4], *EARLY[::2]], ids=str)
def test_pools_of_different_sizes_do_not_disturb_each_other(method):
    rows = [*ROWS[:6], [0, 0, 1, 1, 1, -1, 2, 1], [1, 0, 0, -1, 0, 1, 0]]
    gold = np.array([*GOLD[:6], 1, 0])
    table = [[*row, *[-2] * (8 - len(row))] for row in rows]
    together = method.exact(pool_of(table), gold)
    for row in range(len(rows)):
        whole = pool_of(table).rows(np.array([row]))
        size = len(rows[row])
        alone = replace(
            whole, codes=whole.codes[:, :size], output_tokens=whole.output_tokens[:, :size]
        )
        own = method.exact(alone, gold[row : row + 1])
        for name in ("right", "rounds", "cots", "output_tokens"):
            assert getattr(together, name)[row] == pytest.approx(
                getattr(own, name)[0], abs=1e-12
            ), (name, row)


def test_beta_is_the_tail_of_the_beta_distribution():
    from scipy.stats import beta

    for first in range(12):
        for second in range(first + 1):
            assert float(beta_confidence((first, second))) == pytest.approx(
                beta.sf(0.5, first + 1, second + 1)
            )


def test_beta_stops_where_the_authors_quadrature_stops():
    least = [
        next(v for v in range(41) if v >= s and beta_confidence((v, s)) >= Fraction(19, 20))
        for s in range(11)
    ]
    assert least == [4, 6, 8, 9, 11, 12, 14, 15, 17, 18, 19]  # Adaptive-Consistency, threshold 0.95


@pytest.mark.parametrize(
    "votes", [(1,), (3, 1), (2, 2), (4, 2, 1), (3, 3, 3), (5, 1, 1, 1), (2, 1, 1, 1, 1, 1)]
)
def test_dirichlet_is_the_integral_of_its_definition(votes):
    from scipy.integrate import quad
    from scipy.stats import gamma

    rivals = votes[1:] or (0,)
    integral = quad(
        lambda x: gamma.pdf(x, votes[0] + 1) * np.prod([gamma.cdf(x, v + 1) for v in rivals]),
        0,
        60,
        epsabs=1e-12,
    )[0]
    assert float(dirichlet_confidence(votes)) == pytest.approx(integral, abs=1e-9)


@cache
def keeps_the_lead(votes, leader, to_come, alpha):
    """The predictive rule written out draw by draw."""
    if not to_come:
        return Fraction(int(votes[leader] == max(votes)))
    total = sum(votes) + alpha
    grown = [(*votes[:i], votes[i] + 1, *votes[i + 1 :]) for i in range(len(votes))]
    return sum(
        (
            v / total * keeps_the_lead(more, leader, to_come - 1, alpha)
            for v, more in zip(votes, grown, strict=True)
        ),
        start=alpha / total * keeps_the_lead((*votes, 1), leader, to_come - 1, alpha),
    )


@pytest.mark.parametrize("votes", [(1,), (2, 1), (2, 2), (3, 1, 1), (1, 1, 1)])
@pytest.mark.parametrize("alpha", [Fraction(1), Fraction(1, 2), Fraction(3)])
def test_the_restaurant_keeps_its_leader_as_often_as_its_rule_says(votes, alpha):
    for to_come in range(6):
        assert crp_confidence(votes, to_come, alpha) == keeps_the_lead(votes, 0, to_come, alpha)


def test_entropy_is_compared_exactly():
    exactly = Criterion("entropy", Fraction(7, 8), 40)
    barely = Criterion("entropy", Fraction(7, 8) - Fraction(1, 10**15), 40)
    assert exactly.stops((4, 2, 1, 1), 8)
    assert not barely.stops((4, 2, 1, 1), 8)
    assert exactly.stop_mask(np.array([[4, 2, 1, 1], [2, 2, 2, 2]]), 8).tolist() == [True, False]
    assert barely.stop_mask(np.array([[4, 2, 1, 1]]), 8).tolist() == [False]


def test_a_lone_answer_has_a_phantom_rival():
    # H of (3, 1) is 0.8113 bits, of (4, 1) 0.7219
    entropy = Criterion("entropy", Fraction(3, 4), 40)
    assert [entropy.stops((n,), n) for n in range(1, 6)] == [False, False, False, True, True]


@pytest.mark.parametrize("name", ["beta", "dirichlet", "entropy", "majority", "crp"])
@pytest.mark.parametrize("threshold", ["0.5", "0.7", "0.75", "0.95"])
def test_floats_decide_as_fractions_do(name, threshold):
    rule = Criterion(name, Fraction(threshold), 12)
    for drawn in range(1, 10 if name == "crp" else 12):
        counts = partitions(np.array([1, *[drawn] * drawn]), drawn)[:, 1:]
        exact = [rule.stops(tuple(row[row > 0].tolist()), drawn) for row in counts]
        assert rule.stop_mask(counts, drawn).tolist() == exact


@pytest.mark.parametrize(
    ("answers", "cots", "whole", "of_window"), read_data("methods.json")["windows that agree"]
)
def test_stops_when_the_first_window_agrees(answers, cots, whole, of_window):
    """Answers that tie, as in "ababcc", give the one seen first, and the window says otherwise."""
    given = [None if a == "-" else a for a in answers]
    for answer, expected in (("all", whole), ("window", of_window)):
        llm = Recorded(given)
        assert EarlyStopping(2, 7, answer)("?", llm) == expected
        assert (llm.cots, llm.rounds) == (cots, cots // 2)


def test_what_is_left_of_the_budget_is_not_drawn():
    assert EarlyStopping(3, 40).draws(1) == (39,)
    assert EarlyStopping(40, 40).windows == 1


@pytest.mark.parametrize("answer", ["all", "window"])
@pytest.mark.parametrize(("window", "budget"), [(2, 10), (3, 9), (4, 8), (2, 40)])
def test_the_walk_takes_over_where_rounding_would_show(answer, window, budget, monkeypatch):
    few = [
        [0] * 4 + [1] * 3 + [2] * 3 + [-1] * 2,
        [0] * 6 + [1] * 3 + [2] * 2 + [3],
        [0] * 9 + [-1] * 3,
    ]
    many = [[0] * 33 + [1] * 7 + [-1] * 2, [0] * 5 + [1] * 33 + [2] * 4, [0] * 40 + [-1] * 2]
    pool, gold = pool_of(few if budget < 40 else many), np.array([0, 1, 0])
    method = EarlyStopping(window, budget, answer)
    closed = method.exact(pool, gold).right
    monkeypatch.setattr("feval.methods.early_stopping._TOLERANCE", -1.0)
    assert closed == pytest.approx(method.exact(pool, gold).right, abs=1e-12)
    assert (closed > 0.02).all()


@pytest.mark.parametrize(("window", "windows"), [(2, 20), (3, 14), (1, 30), (4, 8)])
def test_stops_are_the_same_in_fractions(window, windows, monkeypatch):
    counts = np.array(  # of the gold, and two rivals
        [
            [45, 0, 0],
            [44, 1, 0],
            [3, 37, 5],
            [30, 9, 2],
            [17, 21, 4],
            [14, 15, 15],
            [0, 9, 9],
            [0, 0, 0],
        ]
    )
    silent = 45 - counts.sum(axis=1)
    pools = VoteCounts(counts[:, 0], counts[:, 1:], silent)
    tokens = VoteCounts(90 * counts[:, 0], counts[:, 1:] * np.array([310, 150]), 200 * silent)

    def result():
        return early_stops(pools, tokens, window=window, windows=windows)

    fast = result()
    monkeypatch.setattr("feval.estimators.early_stopping._TOLERANCE", -1.0)
    exact = result()
    assert fast.gold_window == pytest.approx(exact.gold_window, abs=1e-12)
    assert fast.no_stop == pytest.approx(exact.no_stop, abs=1e-12)
    assert fast.windows == pytest.approx(exact.windows, abs=1e-11)
    assert fast.output_tokens == pytest.approx(exact.output_tokens, rel=1e-12, abs=1e-8)


def test_numbers_that_do_not_fit_are_not_returned():
    none = np.zeros((1, 0), int)
    too_many = VoteCounts(np.array([1001]), none, np.array([0]))
    assert early_plurality(too_many, window=5, windows=8).error[0] == np.inf
    result = early_plurality(
        VoteCounts(np.array([99]), none, np.array([101])), window=1, windows=90
    )
    assert result.error[0] > 1e-10


def test_the_control_scheme_by_hand():
    first = np.array([[2, 0], [1, 1]])  # q = 1, and q = 1/2
    assert expected_samples(first, window=2, budget=7).tolist() == [
        2.0,
        2 * (0.5 * 1 + 0.25 * 2 + 0.25 * 3),
    ]


def test_partitions_are_all_of_them_once():
    result = partitions(np.array([2, 3, 3, 2]), 5)
    brute = [
        (w, a, b, c)
        for w in range(3) for a in range(4) for b in range(4) for c in range(3)
        if w + a + b + c == 5 and a >= b >= c
    ]  # fmt: skip
    assert sorted(map(tuple, result.tolist())) == sorted(brute)
    pools = VoteCounts(np.array([2]), np.array([[0, 3, 1]]), np.array([1])).ordered()
    assert pools.bounds().tolist() == [1, 3, 2, 1]


def test_a_first_window_without_answers_predicts_nothing():
    with pytest.raises(OutOfRangeError, match="one answer or more"):
        expected_samples(np.array([[0, 0]]), window=2, budget=4)


def test_too_large_a_budget_is_refused_with_a_way_out():
    pool = pool_of(np.zeros((1, 400), np.int16))
    with pytest.raises(UsageError, match="seeded"):
        AdaptiveConsistency(budget=350).exact(pool, np.array([0]))


def test_too_many_different_answers_are_refused_at_once():
    pool = pool_of([[answer for answer in range(20) for _ in range(3 * answer + 5)]])
    with pytest.raises(UsageError, match=r"would visit more than .* counts of answers.*order="):
        AdaptiveConsistency(budget=200).exact(pool, np.array([0]))
