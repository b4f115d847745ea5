"""Forecasts against enumeration and against the draws themselves, and what would mislead."""

import csv
import io
import json
import math
from fractions import Fraction
from itertools import combinations, product

import pytest
from forecasts import NAME, POOLS, accuracies, credit, drawn, majority, mean, toy, warned
from places import read_data
from small import letters, pool, write_rows

from feval import errors
from feval.errors import ShortPoolError, UnlabelledError
from feval.estimators.moments import Moments
from feval.estimators.vote_intervals import vote_interval
from feval.forecast import METHODS, estimate, plan
from feval.replay import load
from feval.report.tables.forecasts import forecast_records, plan_tables
from feval.report.tables.tables import plain, records_csv


@pytest.mark.parametrize("m", [1, 2, 3, 4, 6])
def test_the_pool_is_the_mean_over_all_subsets(loaded, m):
    result = estimate(*loaded, g=2, m=[m], methods=["plug-in"])
    subsets = [
        [mean([rule(part) for part in combinations(p, m)]) for p in POOLS]
        for rule in (credit, majority)
    ]
    assert result.pool.plurality == pytest.approx([float(mean(subsets[0]))], abs=1e-12)
    assert result.pool.majority == pytest.approx([float(mean(subsets[1]))], abs=1e-12)


@pytest.mark.parametrize("replicate", [0, 3])
def test_plug_in_is_the_vote_of_independent_calls_at_the_shares_that_were_drawn(loaded, replicate):
    result = estimate(
        *loaded, g=4, m=[1, 3, 4], methods=["plug-in", "unbiased"], replicate=replicate
    )
    calls = drawn(*loaded, 4, replicate)
    for place, m in enumerate((1, 3, 4)):
        votes = [mean([credit(vote) for vote in product(own, repeat=m)]) for own in calls]
        assert accuracies(result, "plug-in")[place] == pytest.approx(float(mean(votes)), abs=1e-12)
        subsets = [mean([credit(part) for part in combinations(own, m)]) for own in calls]
        assert accuracies(result, "unbiased")[place] == pytest.approx(
            float(mean(subsets)), abs=1e-12
        )


def test_monte_carlo_agrees_with_plug_in_within_its_error(loaded):
    result = estimate(*loaded, g=5, m=[3, 9], methods=["plug-in", "monte-carlo"], simulations=4000)
    assert accuracies(result, "monte-carlo") == pytest.approx(
        accuracies(result, "plug-in"), abs=4 * 0.5 / math.sqrt(4000 * len(POOLS))
    )


def test_two_call_bounds_are_those_of_the_first_two_calls(tmp_path):
    pools = [["a"] * 4] * 30 + [["b"] * 4] * 12 + [["a", "b", "a", "b"]] * 18
    dataset, llm = toy(tmp_path, pools)
    result = estimate(dataset, llm, g=3, m=[1, 3, 4, 5], methods=["two-call"])
    right = [sum(answer == "a" for answer in calls) for calls in drawn(dataset, llm, 2, 0)]
    mu, nu = Fraction(sum(right), 120), Fraction(right.count(2), 60)
    points = result.estimates[0].points
    for point, n in zip(points, (0, 1, 1, 2), strict=True):
        sharp = vote_interval(n, Moments.from_values(mu, nu))
        assert point.accuracy is None
        assert (point.bound_low, point.bound_high) == pytest.approx(
            (float(sharp.low), float(sharp.high)), abs=1e-12
        )
        assert point.low <= point.bound_low <= point.bound_high <= point.high
    assert (result.estimates[0].interval, result.estimates[0].of) == ("wald", "majority")


def test_completions_keep_the_accuracy_of_one_call_and_pair_even_votes_with_odd(loaded):
    result = estimate(*loaded, g=5, m=[1, 2, 3, 4], methods=["max-entropy", "ldgp"])
    share = float(
        mean([mean([Fraction(int(a == "a")) for a in calls]) for calls in drawn(*loaded, 5, 0)])
    )
    for method in ("max-entropy", "ldgp"):
        one, two, three, four = accuracies(result, method)
        assert one == two == pytest.approx(share, abs=1e-9)
        assert three == four


def test_intervals_hold_their_estimates(loaded):
    result = estimate(*loaded, g=5, m=[1, 3, 8], methods=METHODS[1:], resamples=500)
    for own in result.estimates:
        for point in own.points:
            low, high = (
                (point.bound_low, point.bound_high)
                if point.accuracy is None
                else [point.accuracy] * 2
            )
            assert 0 <= point.low <= low + 1e-9
            assert high - 1e-9 <= point.high <= 1


def test_questions_in_another_order_give_the_same_forecast_and_plan(tmp_path):
    results = []
    for folder, places in (("forth", [0, 1, 2, 3]), ("back", [2, 3, 1, 0])):
        pools = NAME, (pool(i, POOLS[i]) for i in places)
        write_rows(tmp_path / folder, dict.fromkeys(places, "a"), pools)
        dataset, [llm] = load("toy", [NAME], tmp_path / folder)
        forecast = estimate(dataset, llm, g=4, m=[1, 5])
        results.append((forecast.estimates, plan(dataset, llm, budget_tokens=500).options))
    assert results[0] == results[1]


def test_a_forecast_is_json_with_its_errors(loaded):
    result = estimate(*loaded, g=3, m=[1, 3, 9])
    written = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert written["scheme"] == "draws-v1"
    assert written["pool"]["plurality"][2] is None
    [plug_in] = [own["points"] for own in written["estimates"] if own["method"] == "plug-in"]
    assert plug_in[1]["error"] == pytest.approx(
        plug_in[1]["accuracy"] - written["pool"]["plurality"][1]
    )
    assert plug_in[2]["error"] is None


@pytest.mark.parametrize(
    ("g", "m", "methods", "pieces", "not_said"), read_data("figures.json")["warnings of estimates"]
)
def test_what_would_mislead_is_warned_of(loaded, g, m, methods, pieces, not_said):
    result = estimate(*loaded, g=g, m=m, methods=methods.split())
    assert warned(result, *pieces)
    assert not warned(result, not_said)


def test_the_unbiased_estimate_is_there_by_default_wherever_one_exists(tmp_path):
    result = estimate(*toy(tmp_path, letters("aab", "abb")), g=3, m=[1, 2, 3, 4])
    own = result.estimates[0]
    assert own.method == "unbiased"
    # By hand: one call a third or two of three; two calls a pair of equals or a tie by lot; three
    # calls their majority.
    assert [point.accuracy for point in own.points] == [pytest.approx(0.5)] * 3 + [None]
    [plug_in] = [other for other in result.estimates if other.method == "plug-in"]
    # Plug-in of 2 of 3: 3 p^2 (1 - p) + p^3 = 20/27 at p = 2/3, 7/27 at 1/3.
    assert plug_in.points[2].accuracy == pytest.approx((20 + 7) / 54)


def test_an_empty_cell_is_warned_of_and_the_likelihood_takes_over(tmp_path):
    result = estimate(*toy(tmp_path, [["a"] * 3] * 30), g=2, m=[1, 3], methods=["two-call"])
    assert warned(result, "is empty", "one right 0", "both wrong 0")
    assert result.estimates[0].interval == "likelihood"
    last = result.estimates[0].points[-1]
    assert last.bound_low == last.bound_high == 1.0
    assert last.low < 0.95  # thirty pairs do not prove certainty


def test_calls_that_disagree_too_often_have_no_bounds_but_a_region(tmp_path):
    result = estimate(*toy(tmp_path, [["a", "b"]] * 20), g=2, m=[3], methods=["two-call", "ldgp"])
    [point] = result.estimates[0].points
    assert (point.bound_low, point.low is None) == (None, False)
    assert warned(result, "disagree more often")
    assert accuracies(result, "ldgp") == pytest.approx([0.5])


@pytest.mark.parametrize(
    ("pools", "others", "method", "pieces"),
    [
        (
            [["a", "a", "b", "a"]] * 8,
            [["a", "a", "b", "b"]] * 5,
            "ldgp",
            ("ldgp: a cell of the pair table", "(both wrong 0)", "too narrow"),
        ),
        (
            [["a", "a", "b", "c", "d", "e"]] * 4,
            [["a", "b", "a", "b", "a"]] * 4,
            "gaussian",
            ("100 % of the questions have 3 or more", "different wrong answers"),
        ),
    ],
)
def test_few_pairs_of_a_kind_and_many_rivals_are_warned_of(tmp_path, pools, others, method, pieces):
    seen, unseen = (
        estimate(*toy(tmp_path / name, each), g=len(each[0]), m=[1, 3], methods=[method])
        for name, each in (("seen", pools), ("unseen", others))
    )
    assert warned(seen, *pieces)
    assert not warned(unseen, pieces[-1])


def test_a_missing_number_says_why_in_words_json_and_csv(tmp_path):
    result = estimate(
        *toy(tmp_path, [["a", "b"]] * 20), g=2, m=[2, 3], methods=["two-call", "unbiased"]
    )
    two_call, unbiased = (own.points[-1] for own in result.estimates)
    assert "disagree more often" in two_call.reason
    assert "beyond M = 2" in unbiased.reason
    assert result.estimates[1].points[0].reason is None
    assert warned(result, "two-call: The two calls")
    assert warned(result, "unbiased: No unbiased")
    rows = list(csv.DictReader(io.StringIO(records_csv(forecast_records(result)))))
    assert [bool(row["reason"]) for row in rows] == [True, True, False, True]
    assert "The pool has 2 calls per question." in rows[1]["reason"]
    sure = plan(*toy(tmp_path / "sure", [["a", "a", "a"]] * 4), budget_tokens=1000)
    assert sure.rho is None
    assert "undefined" in plain(plan_tables(sure)[0])


@pytest.mark.parametrize(
    ("asked", "error", "piece"), read_data("forecasts.json")["what cannot be estimated"]
)
def test_what_cannot_be_estimated_is_refused(loaded, asked, error, piece):
    with pytest.raises(getattr(errors, error), match=piece):
        estimate(*loaded, **({"g": 3, "m": [1, 3]} | asked))


def test_a_question_without_a_gold_is_named_or_left_out(tmp_path):
    loaded = toy(tmp_path, POOLS, ["a", "a", None, "a"])
    others = toy(tmp_path / "others", [POOLS[row] for row in (0, 1, 3)], ["a", "a", "a"])
    with pytest.raises(
        UnlabelledError, match=r"1 of 4 questions of toy has no gold .*missing: toy/2"
    ):
        estimate(*loaded, g=3, m=[1])
    with pytest.raises(UnlabelledError, match="toy/2"):
        plan(*loaded, budget_tokens=1000)
    result, alone = (estimate(*each, g=3, m=[1, 3], unlabelled="drop") for each in (loaded, others))
    assert (result.left_out.unlabelled, result.questions) == (("toy/2",), 3)
    assert result.pool == alone.pool
    bought, without = (
        plan(*each, budget_tokens=1000, unlabelled="drop") for each in (loaded, others)
    )
    assert bought.options == without.options
    assert (bought.pilot_questions, bought.to_dict()["left_out"]["unlabelled"]) == (3, ["toy/2"])


def test_questions_with_fewer_than_g_calls_are_refused_or_left_out(tmp_path):
    pools = letters("aba", "a", "", "baa")
    loaded = toy(tmp_path, pools)
    with pytest.raises(
        ShortPoolError, match=r"'toy/2' of toy; 2 were asked for.*leaves out the 2 of 4 questions"
    ):
        estimate(*loaded, g=2, m=[1])
    result = estimate(*loaded, g=2, m=[1, 3], short_pools="drop")
    assert (result.left_out.short_pools, result.questions) == (("toy/1", "toy/2"), 2)
    # two of three are right; so is their vote
    assert result.pool.plurality == pytest.approx((2 / 3, 1.0))
    assert plan(*loaded, budget_tokens=1000, short_pools="drop").pilot_questions == 2
