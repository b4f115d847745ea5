"""Lines of routers: published and hand-made figures, all orders of ties, and brute force."""

import itertools

import numpy as np
import pytest
import routed
from hypothesis import given, settings, strategies as st
from places import read_json
from scipy.optimize import linprog

from feval.errors import OutOfRangeError
from feval.estimators.intervals import Clusters, bootstrap_means
from feval.estimators.routing import (
    MEASURES,
    Routes,
    apgr,
    average_improvement,
    best_values,
    call_performance_threshold,
    incremental_benefit,
    line_measures,
    mean_gain,
    mixture_line,
    oracle_line,
    performance_gap_recovered,
    routing_line,
    sent_up,
)


@pytest.fixture(scope="module")
def golden(shared):
    return read_json(shared / "golden" / "routing.json")


@pytest.fixture(scope="module")
def gsm8k(shared):
    """Lengths of prompts, and rightness and costs of the weak and the strong LLM."""
    texts, right = routed.gsm8k(shared)
    costs = np.broadcast_to([[0.0003], [0.01]], right.shape)
    return np.array([len(text) for text in texts]), right, costs


def figures(line):
    return {name: float(measure(line)[0]) for name, measure in MEASURES.items()}


def close(line, expected, names="apgr cpt50 aiq"):
    found = figures(line)
    for name in names.split():
        assert found[name] == pytest.approx(expected[name], abs=1e-12), name


def test_the_longest_questions_of_gsm8k_go_to_the_strong_llm(gsm8k, golden):
    length, right, costs = gsm8k
    line, expected = routing_line(sent_up(length), right, costs), golden["gsm8k"]["length_exact"]
    assert line.share.shape == (1, expected["points"])
    close(line, expected | {"aiq": expected["aiq_usd_0.0003_0.01"]}, "apgr cpt20 cpt50 cpt80 aiq")
    _, low, high = line_measures(sent_up(length), right, costs, names=["apgr"])["apgr"]
    assert (low, high) == pytest.approx(expected["apgr_bootstrap_95"], abs=0.003)
    odd = np.arange(1, len(length), 2)
    tested = routing_line(sent_up(length[odd]), right[:, odd], costs[:, odd])
    close(tested, golden["routers_even_odd"]["gsm8k"]["length"], "apgr cpt50 cpt80 aiq")


def test_one_score_for_all_is_a_router_at_random(gsm8k, golden):
    _, right, costs = gsm8k
    line = routing_line(sent_up(np.zeros(right.shape[1])), right, costs)
    close(line, golden["gsm8k"]["random"])
    assert (figures(line)["ibc"], figures(line)["gain"]) == pytest.approx((0, 0), abs=1e-9)


def test_the_oracle_pays_only_where_the_strong_llm_alone_is_right(gsm8k, golden):
    _, right, costs = gsm8k
    line, expected = oracle_line(right, costs), golden["gsm8k"]["oracle"]
    close(line, expected)
    assert line.share[0, 1] == pytest.approx(expected["needs_strong"])
    assert line.accuracy[0, 1:] == pytest.approx([expected["ceiling"]] * 2)
    assert line.cost[0, 1] == line.cost[0, 2]
    optimal = golden["gsm8k"]["routellm_optimal"]
    assert apgr(line, points=11)[0] == pytest.approx(optimal["apgr_11_points"], abs=1e-12)
    at = np.interp(np.linspace(0, 1, 11), line.share[0], line.accuracy[0])
    assert at == pytest.approx(list(optimal["accuracy_at"].values()))


def by_hand():
    """Shares 0, .25, .5, 1 with accuracies .5, .7, .65, .9; a call costs its share."""
    right = np.array([[0.1, 0.9, 0.5, 0.5], [0.9, 0.7, 1.0, 1.0]])
    return np.array([3, 2, 1, 1]), right, np.array([[0.0] * 4, [1.0] * 4])


def test_the_measures_of_a_line_by_hand():
    line = routing_line(sent_up(by_hand()[0]), *by_hand()[1:])
    assert line.score.tolist() == [np.inf, 3, 2, 1]
    assert line.share.tolist() == line.cost.tolist() == [[0, 0.25, 0.5, 1]]
    assert line.accuracy[0] == pytest.approx([0.5, 0.7, 0.65, 0.9])
    assert performance_gap_recovered(line)[0] == pytest.approx([0, 0.5, 0.375, 1])
    assert apgr(line)[0] == pytest.approx(0.515625)
    assert call_performance_threshold(line, 0.5)[0] == 0.25
    assert call_performance_threshold(line, 0.2)[0] == pytest.approx(0.1)
    assert call_performance_threshold(line, 1.0)[0] == 1
    assert average_improvement(line)[0] == pytest.approx(0.75)
    # where a tenth is sent up 0.08 is gained, the base is 0.4 for all
    ratios = 0.08 / 0.04, 0.19 / 0.12, 0.15 / 0.2, 0.25 / 0.28, 0.35 / 0.36
    assert incremental_benefit(line)[0] == pytest.approx(100 * (np.mean(ratios) - 1))
    # areas of (0, .1, -.05, 0) over 0, .25, .5, 1
    assert mean_gain(line)[0] == pytest.approx(0.25 * 0.05 + 0.25 * 0.025 - 0.5 * 0.025)


def test_measures_of_a_weak_and_a_strong_llm_need_the_strong_one_to_be_better():
    score, right, costs = by_hand()
    for worse in (right[::-1], np.stack([right[0]] * 2)):
        found = figures(routing_line(sent_up(score), worse, costs))
        assert all(np.isnan(found[name]) for name in ("apgr", "cpt20", "cpt50", "cpt80", "ibc"))
        assert found["aiq"] >= worse[0].mean()
        assert np.isfinite(found["gain"])
    free = figures(routing_line(sent_up(score), right, costs * 0))
    assert np.isnan([free["aiq"], free["ibc"], free["gain"]]).all()
    assert free["apgr"] == pytest.approx(0.515625)


outcomes = st.sampled_from([0.0, 0.25, 1.0])
questions = st.lists(
    st.tuples(st.integers(0, 2), outcomes, outcomes, st.integers(1, 3), st.integers(3, 9)),
    min_size=1,
    max_size=6,
)


def arrays(drawn):
    score, weak, strong, cheap, dear = np.array(drawn, np.float64).T
    return score, np.stack([weak, strong]), np.stack([cheap, dear])


@settings(max_examples=60, deadline=None)
@given(questions)
def test_equal_scores_enter_as_the_mean_over_all_their_orders(drawn):
    score, right, costs = arrays(drawn)
    line, number = routing_line(sent_up(score), right, costs), len(score)
    orders = [
        order
        for order in map(list, itertools.permutations(range(number)))
        if (np.diff(score[order]) <= 0).all()
    ]
    for values, found in ((right, line.accuracy), (costs, line.cost)):
        sums = [
            [values[1][order[:k]].sum() + values[0][order[k:]].sum() for k in range(number + 1)]
            for order in orders
        ]
        at = np.interp(np.arange(number + 1) / number, line.share[0], found[0])
        np.testing.assert_allclose(at, np.mean(sums, axis=0) / number, atol=1e-12)


def test_aiq_begins_at_the_cheapest_point_where_all_cost_more_than_the_cheapest_llm():
    right, costs = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[1.0, 3.0], [2.0, 9.0]])
    place = np.array([0])
    routes = Routes(np.array([1, 0]), place + 1, place / 1.0, place, place + 1)
    line = routing_line(routes, right, costs)
    assert (line.alone[0].tolist(), line.cost[0].tolist()) == ([2, 5.5], [2.5, 5.5])
    assert average_improvement(line)[0] == pytest.approx(0.75)  # from 0.5 to 1


@settings(max_examples=60, deadline=None)
@given(questions, st.data())
def test_a_resample_is_the_line_of_its_questions(drawn, data):
    score, right, costs = arrays(drawn)
    times = data.draw(st.lists(st.integers(0, 3), min_size=len(score), max_size=len(score)))
    rows = np.repeat(np.arange(len(score)), times)
    if not len(rows):
        return
    weighted = routing_line(sent_up(score), right, costs, np.array([times], np.float64))
    plain = routing_line(sent_up(score[rows]), right[:, rows], costs[:, rows])
    for name, measure in MEASURES.items():
        np.testing.assert_allclose(
            measure(weighted), measure(plain), atol=1e-9, err_msg=name, equal_nan=True
        )


@settings(max_examples=100, deadline=None)
@given(
    st.integers(2, 4).flatmap(
        lambda llms: st.lists(
            st.lists(st.tuples(st.integers(0, 8), st.integers(1, 4)), min_size=llms, max_size=llms),
            min_size=1,
            max_size=5,
        )
    ),
    st.floats(-9, 9).map(lambda bar: round(bar, 3) + 0.00037),
)
def test_a_bar_sends_each_question_to_the_llm_of_the_best_value(drawn, bar):
    quality, costs = np.moveaxis(np.array(drawn, np.float64), (0, 1, 2), (2, 1, 0))
    routes = best_values(quality, costs)
    at = routes.first.copy()
    for place in np.argsort(-routes.score, kind="stable"):
        if routes.score[place] > bar:
            assert at[routes.question[place]] == routes.before[place]
            at[routes.question[place]] = routes.after[place]
    value, rows = quality - bar * costs, np.arange(len(at))
    np.testing.assert_allclose(value[at, rows], value.max(axis=0), atol=1e-9)


@pytest.mark.parametrize("scores", [[3.0, 2.0], [3.0, 0.0], [-1e-12, -3.0], [0.0, 0.0]])
def test_the_bar_of_all_steps_is_0_where_it_can_be(scores):
    bar = routing_line(sent_up(np.array(scores)), np.eye(2), np.ones((2, 2))).bars[-1]
    assert bar < min(scores)
    assert (bar == 0) == (min(scores) > 0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), outcomes), min_size=1, max_size=4),
    st.floats(0.5, 12, allow_subnormal=False),
)
def test_the_mixture_line_is_the_best_lottery_within_a_cost(drawn, at):
    costs, right = np.array(drawn, np.float64).T
    bound = max(at, costs.min())
    one = np.ones((1, len(costs)))
    best = linprog(-right, A_ub=[costs], b_ub=[bound], A_eq=one, b_eq=[1])
    found = mixture_line(np.array([[at]]), costs[None], right[None])
    assert found[0, 0] == pytest.approx(-best.fun, abs=1e-9)


@pytest.mark.parametrize("clusters", [None, np.arange(90) // 3])
def test_resamples_are_those_of_other_intervals(clusters):
    rng = np.random.default_rng(5)
    score, right = rng.integers(0, 9, 90), (rng.random((2, 90)) < [[0.4], [0.8]]) * 1.0
    costs = np.broadcast_to([[1.0], [3.0]], right.shape)
    dealt = Clusters(90, 7, clusters)
    weights = np.concatenate(list(dealt.weights(50, 7)))
    columns = np.stack([dealt.sums(own) for own in right], axis=1)
    means = bootstrap_means(columns, resamples=50, seed=7, dealt=dealt)
    lines = routing_line(sent_up(score), right, costs, weights)
    np.testing.assert_allclose(lines.right, means, atol=1e-9)
    value, low, high = line_measures(
        sent_up(score), right, costs, resamples=50, seed=7, clusters=clusters
    )["apgr"]
    each = [apgr(routing_line(sent_up(score), right, costs, own[None]))[0] for own in weights]
    assert (low, high) == pytest.approx(tuple(np.quantile(each, [0.025, 0.975])), abs=1e-9)
    assert low < value < high
    [many] = Clusters(20_000, 1).weights(1, 1)  # in random groups
    assert many.sum() == pytest.approx(20_000, rel=0.05)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("right", 1.5, r"lies in \[0, 1\]; 1\.5 at index \[0, 2\]"),
        ("right", np.nan, r"lies in \[0, 1\]; nan"),
        ("costs", np.nan, "A call has a finite cost; nan"),
        ("score", np.nan, r"A score is a number; nan at index \[2\]"),
    ],
)
def test_bad_outcomes_are_refused(place, value, message):
    score, right, costs = by_hand()
    given = {"score": score * 1.0, "right": right, "costs": costs}
    given[place].reshape(-1)[2] = value
    with pytest.raises(OutOfRangeError, match=message):
        routing_line(sent_up(given["score"]), given["right"], given["costs"])
    with pytest.raises(OutOfRangeError, match="needs a question"):
        line_measures(sent_up([]), np.empty((2, 0)), np.empty((2, 0)))


@pytest.mark.slow
def test_a_router_by_noise_hardly_ever_seems_to_gain():
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(1000):
        right = (rng.random((2, 100)) < [[0.6], [0.8]]) * 1.0
        costs = np.stack([rng.uniform(1, 2, 100), rng.uniform(5, 10, 100)])
        found = line_measures(
            sent_up(rng.permutation(100)), right, costs, names=["gain"], resamples=250
        )
        wrong += found["gain"][1] > 0
    assert wrong <= 60


def test_shares_that_do_not_run_from_none_to_all_have_no_pgr():
    """Which LLM is cheaper depends on the question."""
    paid = np.array([[1.0, 2.0, 1.0], [2.0, 1.0, 5.0]])
    right = np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    line = routing_line(
        best_values(np.array([[0.1, 0.2, 0.3], [0.3, 0.2, 0.9]]), paid), right, paid
    )
    assert not (line.share[0, 0] == 0 and line.share[0, -1] == 1)
    assert np.isnan([apgr(line), call_performance_threshold(line, 0.5)]).all()
    assert np.isfinite(average_improvement(line)).all()
