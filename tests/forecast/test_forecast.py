"""Forecasts and budget plans against enumeration, against the draws themselves, and against arithmetic done by hand."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, permutations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT
from small import pool, question, write_toy
from typer.testing import CliRunner, Result

from feval.cards.prices import Price, PriceList
from feval.cli import app
from feval.errors import (
    OutOfRangeError,
    PriceNotFoundError,
    ShortPoolError,
    UnknownNameError,
    UnlabelledError,
    UsageError,
)
from feval.estimators.two_call.moments import Moments
from feval.estimators.two_call.vote_intervals import vote_interval
from feval.estimators.two_call.wald_regions import simultaneous_gains
from feval.forecast import METHODS, Forecast, PlanBudget, estimate, plan
from feval.recording import DatasetInfo, LLMInfo, RecordingWriter
from feval.replay import LLM, Dataset, load
from feval.report.pictures.forecast import _figure, forecast_png
from feval.report.tables.forecasts import FORECAST_COLUMNS, forecast_csv, forecast_tables, plan_tables
from feval.report.tables.tables import plain

NAME = "gpt-3.5-turbo"
POOLS = [
    ["a", "b", "a", None, "c", "a"],
    ["b", "a", "b", "b", "c", "a"],
    ["a", "a", "a", "a", "a", "a"],
    ["c", "b", None, "b", "d", "a"],
]
GOLDS = ["a", "a", "a", "a"]


def toy(
    folder: Path,
    pools: Sequence[Sequence[str | None]] = POOLS,
    golds: Sequence[str | None] | None = None,
    llm: str = NAME,
) -> tuple[Dataset, LLM]:
    golds = ["a"] * len(pools) if golds is None else golds
    dataset, [loaded] = load("toy", [llm], write_toy(folder / "toy", {llm: pools}, golds))
    return dataset, loaded


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, LLM]:
    return toy(tmp_path_factory.mktemp("forecast"))


def credit(answers: Sequence[str | None], gold: str = "a") -> Fraction:
    """What a plurality with ties by lot is worth."""
    votes = Counter(answer for answer in answers if answer is not None)
    top = max(votes.values(), default=0)
    leaders = [answer for answer, count in votes.items() if count == top]
    return Fraction(1, len(leaders)) if gold in leaders else Fraction(0)


def majority(answers: Sequence[str | None], gold: str = "a") -> Fraction:
    right = sum(answer == gold for answer in answers)
    return Fraction(1, 2) if 2 * right == len(answers) else Fraction(int(2 * right > len(answers)))


def mean(values: Sequence[Fraction]) -> Fraction:
    return sum(values, Fraction()) / len(values)


def drawn(dataset: Dataset, llm: LLM, g: int, replicate: int) -> list[list[str | None]]:
    return [llm(question, n=g, replicate=replicate).answers for question, _ in dataset]


def accuracies(forecast: Forecast, method: str) -> list[float | None]:
    [own] = [one for one in forecast.estimates if one.method == method]
    return [point.accuracy for point in own.points]


@pytest.mark.parametrize("m", [1, 2, 3, 4, 6])
def test_the_pool_is_the_mean_over_all_subsets(loaded: tuple[Dataset, LLM], m: int) -> None:
    result = estimate(*loaded, g=2, m=[m], methods=["exact"])
    subsets = [[mean([rule(part) for part in combinations(p, m)]) for p in POOLS] for rule in (credit, majority)]
    assert result.pool.plurality == pytest.approx([float(mean(subsets[0]))], abs=1e-12)
    assert result.pool.majority == pytest.approx([float(mean(subsets[1]))], abs=1e-12)


@pytest.mark.parametrize("replicate", [0, 3])
def test_exact_is_the_vote_of_independent_calls_at_the_shares_that_were_drawn(
    loaded: tuple[Dataset, LLM], replicate: int
) -> None:
    result = estimate(*loaded, g=4, m=[1, 3, 4], methods=["exact", "unbiased"], replicate=replicate)
    calls = drawn(*loaded, 4, replicate)
    for place, m in enumerate((1, 3, 4)):
        votes = [mean([credit(vote) for vote in product(own, repeat=m)]) for own in calls]
        assert accuracies(result, "exact")[place] == pytest.approx(float(mean(votes)), abs=1e-12)
        subsets = [mean([credit(part) for part in combinations(own, m)]) for own in calls]
        assert accuracies(result, "unbiased")[place] == pytest.approx(float(mean(subsets)), abs=1e-12)


def test_unbiased_from_the_whole_pool_is_the_pool(loaded: tuple[Dataset, LLM]) -> None:
    result = estimate(*loaded, g=6, m=range(1, 7), methods=["unbiased"])
    assert result.errors(result.estimates[0]) == pytest.approx([0.0] * 6, abs=1e-12)
    [warnings] = result.warnings
    assert warnings.startswith(f"Only {result.questions} questions: below 10")


def test_monte_carlo_agrees_with_exact_within_its_error(loaded: tuple[Dataset, LLM]) -> None:
    result = estimate(*loaded, g=5, m=[3, 9], methods=["exact", "monte-carlo"], simulations=4000)
    for true, simulated in zip(accuracies(result, "exact"), accuracies(result, "monte-carlo"), strict=True):
        assert simulated == pytest.approx(true, abs=4 * 0.5 / math.sqrt(4000 * len(POOLS)))


def test_two_call_bounds_are_those_of_the_first_two_calls(tmp_path: Path) -> None:
    pools = [["a"] * 4] * 30 + [["b"] * 4] * 12 + [["a", "b", "a", "b"]] * 18
    dataset, llm = toy(tmp_path, pools)
    result = estimate(dataset, llm, g=3, m=[1, 3, 4, 5], methods=["two-call"])
    right = [sum(answer == "a" for answer in calls) for calls in drawn(dataset, llm, 2, 0)]
    mu, nu = Fraction(sum(right), 120), Fraction(right.count(2), 60)
    points = result.estimates[0].points
    for point, n in zip(points, (0, 1, 1, 2), strict=True):
        sharp = vote_interval(n, Moments.of(mu, nu))
        assert point.accuracy is None
        assert (point.bound_low, point.bound_high) == pytest.approx((float(sharp.low), float(sharp.high)), abs=1e-12)
        assert point.low is not None
        assert point.high is not None
        assert point.low <= point.bound_low <= point.bound_high <= point.high
    assert (result.estimates[0].interval, result.estimates[0].of) == ("wald", "majority")


def test_completions_keep_the_accuracy_of_one_call_and_pair_even_votes_with_odd(loaded: tuple[Dataset, LLM]) -> None:
    result = estimate(*loaded, g=5, m=[1, 2, 3, 4], methods=["max-entropy", "ldgp"])
    share = float(mean([mean([Fraction(int(a == "a")) for a in calls]) for calls in drawn(*loaded, 5, 0)]))
    for method in ("max-entropy", "ldgp"):
        one, two, three, four = accuracies(result, method)
        assert one == two == pytest.approx(share, abs=1e-9)
        assert three == four


def test_intervals_hold_their_estimates(loaded: tuple[Dataset, LLM]) -> None:
    result = estimate(*loaded, g=5, m=[1, 3, 8], methods=METHODS[1:], resamples=500)
    for own in result.estimates:
        for point in own.points:
            assert point.low is not None
            assert point.high is not None
            assert 0 <= point.low <= (point.bound_low if point.accuracy is None else point.accuracy) + 1e-9
            assert (point.bound_high if point.accuracy is None else point.accuracy) - 1e-9 <= point.high <= 1


def test_questions_in_another_order_give_the_same_forecast_and_plan(tmp_path: Path) -> None:
    result = []
    for folder, places in (("forth", [0, 1, 2, 3]), ("back", [2, 3, 1, 0])):
        with RecordingWriter(tmp_path / folder, operation={"name": "test"}, prices="2025-06-02") as writer:
            writer.add_dataset(
                DatasetInfo("toy", "Toy questions", "verbatim", "test-1"), [question(i, "a") for i in places]
            )
            writer.add_pools("toy", LLMInfo(NAME), "words", (pool(i, POOLS[i]) for i in places))
        dataset, [llm] = load("toy", [NAME], tmp_path / folder)
        result.append((estimate(dataset, llm, g=4, m=[1, 5]).estimates, plan(dataset, llm, budget_tokens=500).options))
    assert result[0] == result[1]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=6))
def test_with_two_answers_plurality_and_majority_are_one(
    tmp_path_factory: pytest.TempPathFactory, right: list[int]
) -> None:
    pools = [["a"] * c + ["b"] * (7 - c) for c in right]
    result = estimate(*toy(tmp_path_factory.mktemp("two"), pools), g=2, m=[1, 3, 5, 7], methods=["exact"])
    assert result.pool.plurality == pytest.approx(result.pool.majority, abs=1e-12)


def test_a_forecast_is_json_with_its_errors(loaded: tuple[Dataset, LLM]) -> None:
    result = estimate(*loaded, g=3, m=[1, 3, 9])
    written = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert written["scheme"] == "draws-v1"
    assert written["pool"]["plurality"][2] is None
    [exact] = [own["points"] for own in written["estimates"] if own["method"] == "exact"]
    assert exact[1]["error"] == pytest.approx(exact[1]["accuracy"] - written["pool"]["plurality"][1])
    assert exact[2]["error"] is None


def warned(forecast: Forecast, *pieces: str) -> bool:
    return any(all(piece in sentence for piece in pieces) for sentence in forecast.warnings)


def test_a_plug_in_beyond_its_calls_is_warned_of(loaded: tuple[Dataset, LLM]) -> None:
    assert warned(estimate(*loaded, g=3, m=[1, 4], methods=["exact", "gaussian"]), "exact, gaussian", "Beyond M = 3")
    assert not warned(estimate(*loaded, g=3, m=[1], methods=["exact"]), "exact")


def test_a_plug_in_is_said_to_be_biased_where_an_unbiased_estimate_exists(loaded: tuple[Dataset, LLM]) -> None:
    assert warned(estimate(*loaded, g=3, m=[1, 3], methods=["exact"]), "exact: biased", "Up to M = 3", "use unbiased")
    assert not warned(estimate(*loaded, g=3, m=[1, 3], methods=["unbiased", "two-call"]), "biased for")


def test_the_unbiased_estimate_is_there_by_default_wherever_one_exists(tmp_path: Path) -> None:
    result = estimate(*toy(tmp_path, [["a", "a", "b"], ["a", "b", "b"]]), g=3, m=[1, 2, 3, 4])
    own = result.estimates[0]
    assert own.method == "unbiased"
    # By hand: one call a third or two of three; two calls a pair of equals or a tie by lot; three calls their majority.
    assert [point.accuracy for point in own.points] == [pytest.approx(0.5), pytest.approx(0.5), 0.5, None]
    [exact] = [other for other in result.estimates if other.method == "exact"]
    # Plug-in of 2 of 3: 3 p^2 (1 - p) + p^3 = 20/27 at p = 2/3, 7/27 at 1/3.
    assert exact.points[2].accuracy == pytest.approx((20 + 7) / 54)


def test_an_empty_cell_is_warned_of_and_the_likelihood_takes_over(tmp_path: Path) -> None:
    result = estimate(*toy(tmp_path, [["a"] * 3] * 30), g=2, m=[1, 3], methods=["two-call"])
    assert warned(result, "is empty", "one right 0", "both wrong 0")
    assert result.estimates[0].interval == "likelihood"
    last = result.estimates[0].points[-1]
    assert last.bound_low == last.bound_high == 1.0
    assert last.low is not None
    assert last.low < 0.95  # thirty pairs do not prove certainty


def test_calls_that_disagree_too_often_have_no_bounds_but_a_region(tmp_path: Path) -> None:
    result = estimate(*toy(tmp_path, [["a", "b"]] * 20), g=2, m=[3], methods=["two-call", "ldgp"])
    [point] = result.estimates[0].points
    assert point.bound_low is None
    assert point.low is not None
    assert warned(result, "disagree more often")
    assert accuracies(result, "ldgp") == pytest.approx([0.5])


def test_pairs_of_a_kind_on_few_questions_are_a_warning_about_the_completions(tmp_path: Path) -> None:
    result = estimate(*toy(tmp_path, [["a", "a", "b", "a"]] * 8), g=4, m=[1, 3], methods=["ldgp"])
    assert warned(result, "ldgp: a cell of the pair table", "(both wrong 0)", "too narrow")
    enough = estimate(*toy(tmp_path / "enough", [["a", "a", "b", "b"]] * 5), g=4, m=[1, 3], methods=["ldgp"])
    assert not warned(enough, "too narrow")


def test_a_missing_number_says_why_in_words_json_and_csv(tmp_path: Path) -> None:
    result = estimate(*toy(tmp_path, [["a", "b"]] * 20), g=2, m=[2, 3], methods=["two-call", "unbiased"])
    two_call, unbiased = (own.points[-1] for own in result.estimates)
    assert "disagree more often" in (two_call.reason or "")
    assert "beyond M = 2" in (unbiased.reason or "")
    assert result.estimates[1].points[0].reason is None
    assert warned(result, "two-call: The two calls")
    assert warned(result, "unbiased: No unbiased")
    rows = list(csv.DictReader(io.StringIO(forecast_csv(result))))
    assert [bool(row["reason"]) for row in rows] == [True, True, False, True]
    assert "The pool has 2 calls per question." in rows[1]["reason"]
    sure = plan(*toy(tmp_path / "sure", [["a", "a", "a"]] * 4), budget_tokens=1000)
    assert sure.rho is None
    assert "undefined" in plain(plan_tables(sure)[0])


def test_an_even_vote_says_what_it_equals_where_a_majority_is_asked(loaded: tuple[Dataset, LLM]) -> None:
    assert warned(estimate(*loaded, g=3, m=[1, 6], methods=["two-call"]), "M = 6 equals M = 5")
    assert not warned(estimate(*loaded, g=3, m=[1, 3], methods=["two-call"]), "even M")


def test_one_call_is_not_sent_to_bounds_that_need_two(loaded: tuple[Dataset, LLM]) -> None:
    [_, warnings] = estimate(*loaded, g=1, m=[1, 3], methods=["exact"]).warnings
    assert "record more calls." in warnings
    assert "two-call" not in warnings


def test_many_rivals_are_a_warning_about_the_gaussian(tmp_path: Path) -> None:
    result = estimate(*toy(tmp_path, [["a", "a", "b", "c", "d", "e"]] * 4), g=6, m=[1, 3], methods=["gaussian"])
    assert warned(result, "100 % of the questions have 3 or more")
    few = estimate(*toy(tmp_path / "few", [["a", "b", "a", "b", "a"]] * 4), g=5, m=[1, 3], methods=["gaussian"])
    assert not warned(few, "different wrong answers")


def test_what_lies_beyond_the_pool_is_said(loaded: tuple[Dataset, LLM]) -> None:
    result = estimate(*loaded, g=6, m=[6, 7], methods=["unbiased"])
    assert warned(result, "6 calls per question", "beyond M = 6")
    assert result.pool.plurality[1] is None
    assert accuracies(result, "unbiased")[1] is None


@pytest.mark.parametrize(
    ("asked", "error", "piece"),
    [
        ({"g": 7}, ShortPoolError, "6 recorded CoTs"),
        ({"g": 0}, OutOfRangeError, "g = 0 was asked for"),
        ({"g": 1}, OutOfRangeError, "two-call looks at pairs"),
        ({"m": [0, 3]}, OutOfRangeError, "M = 0"),
        ({"m": [10_001]}, OutOfRangeError, "M = 10001"),
        ({"m": []}, OutOfRangeError, "distinct numbers of votes"),
        ({"m": [3, 3]}, OutOfRangeError, "distinct numbers of votes"),
        ({"methods": ["exakt"]}, UnknownNameError, "exakt"),
        ({"methods": []}, OutOfRangeError, "distinct estimators"),
        ({"confidence": 1.0}, OutOfRangeError, "between 0 and 1"),
    ],
)
def test_what_cannot_be_estimated_is_refused(
    loaded: tuple[Dataset, LLM], asked: dict[str, object], error: type[Exception], piece: str
) -> None:
    with pytest.raises(error, match=piece):
        estimate(*loaded, **({"g": 3, "m": [1, 3]} | asked))  # type: ignore[arg-type]


def test_a_question_without_a_gold_is_named_or_left_out(tmp_path: Path) -> None:
    loaded = toy(tmp_path, POOLS, ["a", "a", None, "a"])
    others = toy(tmp_path / "others", [POOLS[row] for row in (0, 1, 3)], ["a", "a", "a"])
    with pytest.raises(UnlabelledError, match=r"1 of 4 questions of toy has no gold .*missing: toy/2"):
        estimate(*loaded, g=3, m=[1])
    with pytest.raises(UnlabelledError, match="toy/2"):
        plan(*loaded, budget_tokens=1000)
    result, alone = estimate(*loaded, g=3, m=[1, 3], unlabelled="drop"), estimate(*others, g=3, m=[1, 3])
    assert (result.left_out.unlabelled, result.questions) == (("toy/2",), 3)
    assert result.pool == alone.pool
    bought, without = plan(*loaded, budget_tokens=1000, unlabelled="drop"), plan(*others, budget_tokens=1000)
    assert (bought.mu, bought.nu, bought.output_tokens) == (without.mu, without.nu, without.output_tokens)
    assert (bought.pilot_questions, bought.to_dict()["left_out"]["unlabelled"]) == (3, ["toy/2"])


def test_questions_with_fewer_than_g_calls_are_refused_or_left_out(tmp_path: Path) -> None:
    pools: list[list[str | None]] = [["a", "b", "a"], ["a"], [], ["b", "a", "a"]]
    loaded = toy(tmp_path, pools)
    with pytest.raises(ShortPoolError, match=r"'toy/2' of toy; 2 were asked for.*leaves out the 2 of 4 questions"):
        estimate(*loaded, g=2, m=[1])
    result = estimate(*loaded, g=2, m=[1, 3], short_pools="drop")
    assert (result.left_out.short_pools, result.questions) == (("toy/1", "toy/2"), 2)
    assert result.pool.plurality == pytest.approx((2 / 3, 1.0))  # two of three are right; so is their vote
    assert plan(*loaded, budget_tokens=1000, short_pools="drop").pilot_questions == 2


CALL = 12.5  # mean of 10, 11, ..., 15 output tokens; prompts have 7


def test_a_plan_costs_what_its_votes_cost(loaded: tuple[Dataset, LLM]) -> None:
    result = plan(*loaded, budget_tokens=200, most_votes=5)
    assert [option.votes for option in result.options] == [1, 3, 5]
    assert [option.tokens_per_question for option in result.options] == pytest.approx([7 + m * CALL for m in (1, 3, 5)])
    assert [option.questions for option in result.options] == [200 // (7 + m * CALL) for m in (1, 3, 5)]
    assert [option.affordable for option in result.options] == [True, True, False]
    price = loaded[1].price
    assert price is not None
    dollars = (7 * price.input_usd_per_mtok + 3 * CALL * price.output_usd_per_mtok) / 1e6
    assert result.options[1].usd_per_question == pytest.approx(dollars)


def test_a_vote_per_prompt_pays_every_prompt(tmp_path: Path) -> None:
    path = write_toy(tmp_path / "toy", {NAME: POOLS}, GOLDS)
    dataset, [llm] = load("toy", [NAME], path, billing="per_sample")
    result = plan(dataset, llm, budget_tokens=1000, most_votes=3)
    assert result.options[1].tokens_per_question == pytest.approx(3 * (7 + CALL))


@pytest.mark.parametrize("budget", [30, 77, 1000, 12_345])
def test_the_split_is_the_best_of_all_that_the_budget_pays(loaded: tuple[Dataset, LLM], budget: int) -> None:
    result = plan(*loaded, budget_tokens=budget).estimating
    values = min(
        1 / (8 * m) + 1 / (math.pi * n) + 1 / (2 * n * m)
        for n in range(1, budget)
        for m in [int(budget // (7 + n * CALL))]
        if m
    )
    assert result.bound == pytest.approx(values, rel=1e-12)
    assert result.cost == pytest.approx(result.questions * (7 + result.calls * CALL))
    assert result.cost <= budget


def test_the_purchase_is_the_smallest_of_the_best_that_are_paid(loaded: tuple[Dataset, LLM]) -> None:
    result = plan(*loaded, budget_tokens=4 * (7 + 5 * CALL))
    paid = {option.votes: option.plurality for option in result.options if option.affordable}
    assert max(paid) == 5
    bought = result.purchase
    assert bought.plurality >= max(paid.values()) - 1e-3
    assert all(accuracy < max(paid.values()) - 1e-3 for votes, accuracy in paid.items() if votes < bought.votes)
    assert bought.tokens == pytest.approx(4 * (7 + bought.votes * CALL))
    assert bought.tokens <= result.budget.amount + 1e-9


def test_a_budget_for_some_questions_buys_one_call_on_those(loaded: tuple[Dataset, LLM]) -> None:
    result = plan(*loaded, budget_tokens=45, questions=100)
    assert (result.purchase.votes, result.purchase.questions) == (1, 2)
    assert "2 of 100 questions" in result.purchase.why
    assert any("assumed to be like them" in sentence for sentence in result.warnings)


CLIPPED = (
    "The pilot's calls on a question disagree more often than independent calls would, which happens by chance on few "
    "questions; the bounds assume that all questions are equally hard."
)


def test_votes_are_certified_where_all_questions_are_alike_and_not_where_calls_agree(tmp_path: Path) -> None:
    alike = plan(*toy(tmp_path / "one", [[*"aabaa" * 2]] * 20), budget_tokens=10**6, most_votes=5)
    assert [option.certified for option in alike.options] == [False, True, True]
    assert alike.warnings == (
        CLIPPED,
        (
            "Each of the 2 votes is certified alone, at 95 %. Together, none of them is: the questions show no "
            "spread in some direction, so there is no region of mu and nu to prove it with."
        ),
    )
    assert [option.majority_gain_low_together for option in alike.options] == [None] * 3
    assert alike.options[1].majority_gain_bound == pytest.approx(0.8**3 + 3 * 0.8**2 * 0.2 - 0.8)
    steady = plan(*toy(tmp_path / "two", [["a"] * 5] * 16 + [["b"] * 5] * 4), budget_tokens=10**6, most_votes=5)
    assert not any(option.certified for option in steady.options)
    assert steady.purchase.votes == 1


def test_certificates_hold_together_by_one_region_and_over_a_family_by_a_wider_one(tmp_path: Path) -> None:
    shares = (6, 7, 7, 8, 8, 8, 9, 9, 10)
    pilot = toy(tmp_path, [["a"] * c + ["b"] * (10 - c) for c in shares for _ in range(12)])
    result = plan(*pilot, budget_tokens=10**6, most_votes=7)
    many = plan(*pilot, budget_tokens=10**6, most_votes=7, family=1000)
    right = [c for c in shares for _ in range(12)]
    for own, level in ((result, 0.95), (many, 1 - 0.05 / 1000)):
        gains = [option.majority_gain_low_together for option in own.options]
        assert gains == pytest.approx(
            simultaneous_gains(right, [10] * len(right), [0, 1, 2, 3], level).tolist(), abs=1e-12
        )
        assert [option.certified_together for option in own.options] == [gain > 1e-12 for gain in gains]
    assert all(option.certified_together for option in result.options[1:])
    assert "all of them are: by one region" in result.warnings[-1]
    assert "in all 1000 plans of the family" in many.warnings[-1]
    assert "all at once" in plain(plan_tables(result)[0])
    assert "over a family of 1000 plans" in plain(plan_tables(many)[1])
    with pytest.raises(OutOfRangeError, match="A family has 1 plan or more"):
        plan(*pilot, budget_tokens=10**6, family=0)


@pytest.mark.parametrize(
    ("pools", "pieces"),
    [
        ([["a", "a", "b", "a", "a"]] * 2, ("has 2 questions", "both right 2, one right 2, both wrong 0")),
        ([["a", "a", "b", "a", "a"]] * 30, ("has 30 questions", "(both wrong 0)")),
        ([[*"aabaa" * 2]] * 19, ("has 19 questions: resampling",)),
        ([["b", "b"]], ("has 1 question, and a cell", "both right 0, one right 0, both wrong 1")),
    ],
)
def test_too_few_questions_certify_nothing_and_say_so(
    tmp_path: Path, pools: list[list[str | None]], pieces: tuple[str, ...]
) -> None:
    result = plan(*toy(tmp_path, pools), budget_tokens=10**6, most_votes=5)
    assert not any(option.certified for option in result.options)
    [warnings] = [sentence for sentence in result.warnings if "no vote is certified" in sentence]
    assert all(piece in warnings for piece in pieces), warnings


def test_a_price_list_is_named_only_where_it_prices(loaded: tuple[Dataset, LLM], tmp_path: Path) -> None:
    assert plan(*loaded, budget_tokens=1000, most_votes=1).prices == "2025-06-02"
    assert plan(*toy(tmp_path, llm="nobody-sells-this"), budget_tokens=1000, most_votes=1).prices is None


def test_the_column_of_pluralities_holds_pluralities_up_to_the_pool_and_beyond_it(tmp_path: Path) -> None:
    pools = [["a", "a", "b", "c"], ["a", "b", "b", "c"], ["a", "a", "a", None]]
    result = plan(*toy(tmp_path, pools), budget_tokens=10**6, most_votes=5)
    assert [option.plurality_kind for option in result.options] == ["subsets", "subsets", "plug-in"]
    for option in result.options:
        drawn = permutations if option.plurality_kind == "subsets" else _with_replacement
        votes = [mean([credit(vote) for vote in drawn(own, option.votes)]) for own in pools]
        assert option.plurality == pytest.approx(float(mean(votes)), abs=1e-12)
        assert option.plurality_low <= option.plurality <= option.plurality_high
    assert result.purchase.votes <= 3


def _with_replacement(pool: list[str | None], votes: int) -> Iterable[tuple[str | None, ...]]:
    return product(pool, repeat=votes)


def test_pluralities_beyond_the_pool_are_warned_of_with_what_they_miss_where_it_can_be_seen(tmp_path: Path) -> None:
    pools = [["a", "a", "b", "c"], ["a", "b", "b", "c"], ["a", "a", "a", None]]
    result = plan(*toy(tmp_path, pools), budget_tokens=10**6, most_votes=5)
    measured = mean([mean([credit(vote) for vote in permutations(own, 3)]) for own in pools])
    shares = mean([mean([credit(vote) for vote in product(own, repeat=3)]) for own in pools])
    [warnings] = [sentence for sentence in result.warnings if sentence.startswith("Beyond M = 4, the pilot's pool")]
    assert "level off at the 4-call vote" in warnings
    assert f"At M = 3 the pilot measures {100 * float(measured):.2f} %" in warnings
    assert f"the shares predict {100 * float(shares):.2f} %" in warnings
    assert not any(
        "Beyond M" in warnings
        for warnings in plan(*toy(tmp_path / "b", pools), budget_tokens=500, most_votes=3).warnings
    )


def test_the_warning_of_pools_of_several_sizes_names_the_smallest_and_no_vote_that_not_all_level_off_at(
    tmp_path: Path,
) -> None:
    pools = [["a", "a", "b", "c"], ["a", "b", "b", "c", "b", "a"], ["a", "a", "a", None, "b"]]
    result = plan(*toy(tmp_path, pools), budget_tokens=10**6, most_votes=5)
    shares = mean([mean([credit(vote) for vote in product(own, repeat=5)]) for own in pools])
    assert result.options[-1].plurality == pytest.approx(float(shares), abs=1e-12)
    [warnings] = [
        sentence for sentence in result.warnings if sentence.startswith("Beyond M = 4, the pilot's smallest pool")
    ]
    assert "level off at the vote of all calls that a question has" in warnings


def test_what_is_sure_of_a_majority_holds_its_bounds_and_is_missing_where_nothing_can_be_certified(
    tmp_path: Path,
) -> None:
    few = plan(*toy(tmp_path / "few", [["a", "a", "b", "c"]] * 3), budget_tokens=10**6, most_votes=5)
    assert [(option.majority_low, option.majority_high) for option in few.options] == [(None, None)] * 3
    pools = [["a"] * c + ["b"] * (10 - c) for c in (4, 6, 7, 8, 9, 10) for _ in range(6)]
    result = plan(*toy(tmp_path / "many", pools), budget_tokens=10**6, most_votes=7)
    right = np.array([pool.count("a") for pool in pools])
    moments = Moments.of(float((right / 10).mean()), float((right * (right - 1) / 90).mean()))
    for option in result.options:
        sharp = vote_interval(option.votes // 2, moments)
        ends = option.majority_bound_low, option.majority_bound_high
        assert ends == pytest.approx((float(sharp.low), float(sharp.high)), abs=1e-12)
        assert option.majority_low is not None
        assert option.majority_high is not None
        assert option.majority_low < ends[0] <= ends[1] < option.majority_high
        assert option.majority_gain_bound == pytest.approx(ends[0] - float(moments.mu), abs=1e-12)


def test_a_vote_beyond_the_pool_is_bought_only_where_its_majority_is_sure_to_beat_what_was_measured(
    tmp_path: Path,
) -> None:
    pools = [["a"] * c + ["b"] * (10 - c) for c in (5, 8) for _ in range(100)]
    result = plan(*toy(tmp_path, pools), budget_tokens=10**9, most_votes=51)
    best = max(option.plurality for option in result.options if option.plurality_kind == "subsets")
    sure = [option for option in result.options if option.votes > 10 and (option.majority_low or 0.0) > best]
    bought = result.purchase
    assert (bought.votes, bought.plurality_kind) == (sure[0].votes, "plug-in")
    assert bought.plurality == sure[0].plurality
    assert f"reaches at least {100 * (sure[0].majority_low or 0.0):.2f} %" in bought.why
    assert any(
        f"At M = {sure[0].votes} even the lower bound of a majority exceeds them" in warnings
        for warnings in result.warnings
    )
    within = plan(*toy(tmp_path / "within", pools), budget_tokens=10**9, most_votes=9)
    assert (within.purchase.votes, within.purchase.plurality_kind) == (
        5,
        "subsets",
    )  # two wrong of ten never lead there


@pytest.mark.parametrize(
    ("asked", "error", "piece"),
    [
        ({}, UsageError, "one budget"),
        ({"budget_usd": 1.0, "budget_tokens": 5}, UsageError, "one budget"),
        ({"budget_tokens": 0}, OutOfRangeError, "more than 0"),
        ({"budget_tokens": 19}, OutOfRangeError, "does not pay a single call"),
        ({"budget_tokens": 100, "questions": 0}, OutOfRangeError, "0 questions"),
        ({"budget_tokens": 100, "most_votes": 2000}, OutOfRangeError, "2000 votes"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    loaded: tuple[Dataset, LLM], asked: dict[str, float], error: type[Exception], piece: str
) -> None:
    with pytest.raises(error, match=piece):
        plan(*loaded, **asked)  # type: ignore[arg-type]


def test_dollars_need_a_price_and_tokens_do_not(tmp_path: Path) -> None:
    dataset, llm = toy(tmp_path, llm="nobody-sells-this")
    with pytest.raises(PriceNotFoundError, match="nobody-sells-this"):
        plan(dataset, llm, budget_usd=1.0)
    result = plan(dataset, llm, budget_tokens=1000)
    assert result.purchase.usd is None
    assert result.options[0].usd_per_question is None


def test_a_free_llm_needs_a_budget_in_tokens(tmp_path: Path) -> None:
    free = PriceList("free", "2026-01-01", "made up", {NAME: Price(0, 0)}, {})
    path = write_toy(tmp_path / "toy", {NAME: POOLS}, GOLDS)
    dataset, [llm] = load("toy", [NAME], path, prices=free)
    with pytest.raises(OutOfRangeError, match="cost nothing in usd"):
        plan(dataset, llm, budget_usd=1.0)
    assert plan(dataset, llm, budget_tokens=1000).purchase.usd == 0.0


def test_a_pilot_of_single_calls_is_too_small(tmp_path: Path) -> None:
    with pytest.raises(ShortPoolError, match="2 were asked for"):
        plan(*toy(tmp_path, [["a"], ["b"]]), budget_tokens=100)


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        ("20usd", 20, "usd"),
        ("0.5 USD", 0.5, "usd"),
        ("500000tokens", 5e5, "tokens"),
        ("1,000_000 tokens", 1e6, "tokens"),
    ],
)
def test_budgets_are_read(text: str, amount: float, unit: str) -> None:
    assert PlanBudget.parse(text) == PlanBudget(amount, unit)


@pytest.mark.parametrize("text", ["", "20", "usd", "20eur", "-3usd", "1e3usd", "20usd usd", "nanusd", "²usd"])
def test_other_budgets_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"above 0, written in digits, .* 20usd or 500000tokens"):
        PlanBudget.parse(text)


def test_tables_csv_and_picture_show_every_estimator(loaded: tuple[Dataset, LLM]) -> None:
    result = estimate(*loaded, g=3, m=[1, 3, 9], methods=METHODS, resamples=200)
    output = "".join(map(plain, forecast_tables(result)))
    assert all(method in output for method in METHODS)
    rows = list(csv.reader(io.StringIO(forecast_csv(result))))
    assert tuple(rows[0]) == FORECAST_COLUMNS
    assert len(rows) == 1 + len(METHODS) * 3
    assert float(rows[1][3]) == accuracies(result, "exact")[0]
    picture = forecast_png(result, dpi=60)
    assert picture.startswith(b"\x89PNG")
    assert picture == forecast_png(result, dpi=60)


def test_one_number_of_votes_is_drawn_too(loaded: tuple[Dataset, LLM]) -> None:
    result = estimate(*loaded, g=2, m=[5], methods=["exact", "two-call", "unbiased"], resamples=200)
    assert forecast_png(result, dpi=60).startswith(b"\x89PNG")
    assert "5" in plain(forecast_tables(result)[0])


def test_the_bounds_of_one_number_of_votes_have_a_bar_and_two_marks(loaded: tuple[Dataset, LLM]) -> None:
    result = estimate(*loaded, g=2, m=[5], methods=["two-call"], resamples=200)
    [axes] = _figure(result, 6.8).axes
    [bar] = axes.collections
    low, high = (float(y) for _, y in bar.get_segments()[0])
    [point] = result.estimates[0].points
    assert (low, high) == pytest.approx((100 * (point.low or 0), 100 * (point.high or 0)))
    assert sum(line.get_marker() == "_" for line in axes.lines) == 2


def test_a_picture_says_what_is_extrapolated_and_lists_only_what_is_drawn(loaded: tuple[Dataset, LLM]) -> None:
    for votes, warnings in (([1, 3], ""), ([2, 5], "right of the dotted line"), ([5, 6], "all M are above G = 3")):
        [axes] = _figure(estimate(*loaded, g=3, m=votes, methods=["exact"], resamples=200), 6.8).axes
        result = [text.get_text() for text in axes.texts if text.get_text().startswith("from ")]
        assert len(result) == 1
        assert warnings in result[0]
        assert ("extrapolated" in result[0]) is bool(warnings)
    nothing = estimate(*loaded, g=3, m=[9], methods=["unbiased"], resamples=200)
    assert _figure(nothing, 6.8).legends == []
    assert "largest M" in plain(forecast_tables(nothing)[1])


def test_the_plan_is_shown_with_its_cost(loaded: tuple[Dataset, LLM]) -> None:
    result = plan(*loaded, budget_usd=1.0, most_votes=9)
    output = "".join(map(plain, plan_tables(result)))
    assert "certified to help" in output
    assert "plurality %" in output
    assert "majority, surely %" in output
    nine = next(line for line in output.splitlines() if line.strip().startswith("9 "))
    assert f"{100 * result.options[-1].plurality:.2f} *" in nine
    assert "*: beyond M = 6, at the pilot's shares" in output
    few = "".join(map(plain, plan_tables(plan(*loaded, budget_usd=1.0, most_votes=5))))
    assert "*" not in few
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["budget"] == {"amount": 1.0, "unit": "usd"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy(tmp_path_factory.mktemp("command") / "toy", {NAME: POOLS, "unsold": POOLS}, GOLDS)


def feval(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), prog_name="feval")


def test_estimate_prints_tables_and_warnings_and_writes_files(folder: Path, tmp_path: Path) -> None:
    requested = ("estimate", "--recording", folder, "--llm", NAME, "--g", "3", "--m", "1..9", "--out", tmp_path / "out")
    done = feval(*requested, "--method", "exact,two-call")
    assert done.exit_code == 0, done.output
    assert "Error against the whole pool" in done.stdout
    assert "note: exact: made from 3 calls per question and extended to M = 9." in done.stderr
    assert "note: two-call: a cell of the pair table (4 questions) is" in done.stderr
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["estimate.csv", "estimate.json", "estimate.png", "receipt.json"]
    result = estimate(*_open(folder), g=3, m=range(1, 10), methods=["exact", "two-call"])
    assert json.loads((tmp_path / "out" / "estimate.json").read_text()) == json.loads(json.dumps(result.to_dict()))
    assert feval(*requested, "--method", "exact,two-call", "--quiet").output == ""
    again = feval(*requested, "--method", "exact")
    assert (again.exit_code, "--force" in again.stderr) == (1, True)


def _open(folder: Path) -> tuple[Dataset, LLM]:
    dataset, [llm] = load("toy", [NAME], folder)
    return dataset, llm


def test_estimate_and_plan_print_one_json_object(folder: Path) -> None:
    result = feval("estimate", "--recording", folder, "--llm", NAME, "--g", "2", "--m", "3", "--seed", "5", "--json")
    assert (json.loads(result.stdout)["seed"], json.loads(result.stdout)["m"]) == (5, [3])
    planned = feval("plan", "--budget", "300tokens", "--recording", folder, "--llm", "unsold", "--json")
    assert json.loads(planned.stdout)["purchase"]["usd"] is None


def test_plan_says_what_to_buy(folder: Path) -> None:
    done = feval("plan", "--budget", "1usd", "--recording", folder, "--llm", NAME, "--questions", "50")
    assert done.exit_code == 0, done.output
    assert "1 USD for 50 questions" in done.stdout
    assert "note: The intervals are for the pilot's 4 questions;" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "piece"),
    [
        (("estimate", "--llm", NAME, "--g", "7"), 1, "6 recorded CoTs"),
        (("estimate", "--llm", NAME, "--m", "0..3"), 2, "--m counts up from 1 vote"),
        (("estimate", "--llm", NAME, "--m", "many"), 2, "--m takes numbers of votes"),
        (("estimate", "--llm", NAME, "--method", "exact,guess"), 2, "guess"),
        (("estimate", "--g", "2"), 2, "choose one with --llm"),
        (("plan", "--llm", NAME, "--budget", "plenty"), 2, "'plenty' was given"),
        (("plan", "--llm", NAME, "--budget", "0usd"), 2, "more than 0"),
        (("plan", "--llm", NAME, "--budget", "1tokens"), 2, "does not pay a single call"),
        (("plan", "--llm", "unsold", "--budget", "1usd"), 1, "unsold"),
        (("plan", "--llm", NAME, "--budget", "1usd", "--prices", "none"), 1, "without a price list"),
    ],
)
def test_wrong_usage_is_one_sentence(folder: Path, arguments: tuple[str, ...], code: int, piece: str) -> None:
    done = feval(*arguments, "--recording", folder)
    assert (done.exit_code, done.stdout) == (code, ""), done.output
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert piece in done.stderr


@pytest.mark.slow
def test_the_calibration_study_runs_on_the_bundled_recording() -> None:
    root = ROOT
    command = [sys.executable, "-W", "error", "examples/calibration_study.py", "recorders/tiny/recording"]
    requested = ["--replicates", "1", "--draws", "4", "--calls", "2,3", "--methods", "exact,ldgp,unbiased"]
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run(
        [*command, *requested], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("200 questions, pools of 40") == 3
    assert done.stdout.count("Two-call intervals") == 3


def test_unknown_prompt_tokens_name_llm_and_question(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "mute", operation={"name": "test"}, prices="2025-06-02") as writer:
        writer.add_dataset(
            DatasetInfo("toy", "Toy questions", "verbatim", "test-1"), [question(i, "a") for i in (0, 1)]
        )
        pools = [pool(0, POOLS[0]), replace(pool(1, POOLS[1]), prompt_tokens=None)]
        writer.add_pools("toy", LLMInfo(NAME), "words", iter(pools))
    dataset, [llm] = load("toy", [NAME], tmp_path / "mute")
    with pytest.raises(
        PriceNotFoundError, match=rf"{NAME} have on 1 of 2 questions of toy, '{dataset.question_ids[1]}' first"
    ):
        plan(dataset, llm, budget_tokens=500)
