"""Budget plans against arithmetic done by hand."""

import math
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from forecasts import GOLDS, NAME, POOLS, credit, mean, toy, warned
from places import read_data
from small import letters, pool, write_rows, write_toy

from feval import errors
from feval.cards.billing import Price
from feval.cards.prices import PriceList
from feval.errors import OutOfRangeError, PriceNotFoundError, ShortPoolError, UsageError
from feval.estimators.moments import Moments
from feval.estimators.vote_intervals import vote_interval
from feval.estimators.wald_regions import simultaneous_gains
from feval.forecast import PlanBudget, plan
from feval.replay import load
from feval.report.tables.forecasts import plan_tables
from feval.report.tables.tables import plain

CALL = 12.5  # mean of 10, 11, ..., 15 output tokens; prompts have 7


def test_a_plan_costs_what_its_votes_cost(loaded):
    result = plan(*loaded, budget_tokens=200, most_votes=5)
    assert [option.votes for option in result.options] == [1, 3, 5]
    assert [option.tokens_per_question for option in result.options] == pytest.approx(
        [7 + m * CALL for m in (1, 3, 5)]
    )
    assert [option.questions for option in result.options] == [
        200 // (7 + m * CALL) for m in (1, 3, 5)
    ]
    assert [option.affordable for option in result.options] == [True, True, False]
    price = loaded[1].price
    dollars = (7 * price.input_usd_per_mtok + 3 * CALL * price.output_usd_per_mtok) / 1e6
    assert result.options[1].usd_per_question == pytest.approx(dollars)


def test_a_vote_per_prompt_pays_every_prompt(tmp_path):
    path = write_toy(tmp_path / "toy", {NAME: POOLS}, GOLDS)
    dataset, [llm] = load("toy", [NAME], path, billing="per_sample")
    result = plan(dataset, llm, budget_tokens=1000, most_votes=3)
    assert result.options[1].tokens_per_question == pytest.approx(3 * (7 + CALL))


@pytest.mark.parametrize("budget", [30, 77, 1000, 12_345])
def test_the_split_is_the_best_of_all_that_the_budget_pays(loaded, budget):
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


def test_the_purchase_is_the_smallest_of_the_best_that_are_paid(loaded):
    result = plan(*loaded, budget_tokens=4 * (7 + 5 * CALL))
    paid = {option.votes: option.plurality for option in result.options if option.affordable}
    assert max(paid) == 5
    bought = result.purchase
    good = [votes for votes, accuracy in paid.items() if accuracy >= max(paid.values()) - 1e-3]
    assert bought.votes == min(good)
    assert bought.tokens == pytest.approx(4 * (7 + bought.votes * CALL))
    assert bought.tokens <= result.budget.amount + 1e-9


def test_a_budget_for_some_questions_buys_one_call_on_those(loaded):
    result = plan(*loaded, budget_tokens=45, questions=100)
    assert (result.purchase.votes, result.purchase.questions) == (1, 2)
    assert "2 of 100 questions" in result.purchase.why
    assert warned(result, "assumed to be like them")


CLIPPED = (
    "The pilot's calls on a question disagree more often than independent calls would, which"
    " happens by chance on few questions; the bounds assume that all questions are equally hard."
)


def test_votes_are_certified_where_all_questions_are_alike_and_not_where_calls_agree(tmp_path):
    alike = plan(*toy(tmp_path / "one", [[*"aabaa" * 2]] * 20), budget_tokens=10**6, most_votes=5)
    assert [option.certified for option in alike.options] == [False, True, True]
    assert alike.warnings == (
        CLIPPED,
        (
            "Each of the 2 votes is certified alone, at 95 %. Together, none of them is: the"
            " questions show no spread in some direction, so there is no region of mu and nu to"
            " prove it with."
        ),
    )
    assert [option.majority_gain_low_together for option in alike.options] == [None] * 3
    assert alike.options[1].majority_gain_bound == pytest.approx(0.8**3 + 3 * 0.8**2 * 0.2 - 0.8)
    steady = plan(
        *toy(tmp_path / "two", [["a"] * 5] * 16 + [["b"] * 5] * 4),
        budget_tokens=10**6,
        most_votes=5,
    )
    assert not any(option.certified for option in steady.options)
    assert steady.purchase.votes == 1


@pytest.mark.slow
def test_certificates_hold_together_by_one_region_and_over_a_family_by_a_wider_one(tmp_path):
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
        assert [option.certified_together for option in own.options] == [
            gain > 1e-12 for gain in gains
        ]
    assert all(option.certified_together for option in result.options[1:])
    assert "all of them are: by one region" in result.warnings[-1]
    assert "in all 1000 plans of the family" in many.warnings[-1]
    shown = plain(plan_tables(result)[0])
    assert "to help, by the pilot's calls and pairs of calls at 95 %: 3 to 7 votes; all" in shown
    assert "over a family of 1000 plans" in plain(plan_tables(many)[0])
    with pytest.raises(OutOfRangeError, match="A family has 1 plan or more"):
        plan(*pilot, budget_tokens=10**6, family=0)


@pytest.mark.parametrize(
    ("pools", "pieces"),
    [
        (
            [["a", "a", "b", "a", "a"]] * 2,
            ("has 2 questions", "both right 2, one right 2, both wrong 0"),
        ),
        ([["a", "a", "b", "a", "a"]] * 30, ("has 30 questions", "(both wrong 0)")),
        ([[*"aabaa" * 2]] * 19, ("has 19 questions: resampling",)),
        ([["b", "b"]], ("has 1 question, and a cell", "both right 0, one right 0, both wrong 1")),
    ],
)
def test_too_few_questions_certify_nothing_and_say_so(tmp_path, pools, pieces):
    result = plan(*toy(tmp_path, pools), budget_tokens=10**6, most_votes=5)
    assert not any(option.certified for option in result.options)
    assert warned(result, "no vote is certified", *pieces), result.warnings


def test_a_price_list_is_named_only_where_it_prices(loaded, tmp_path):
    unsold = toy(tmp_path, llm="nobody-sells-this")
    plans = [plan(*each, budget_tokens=1000, most_votes=1) for each in (loaded, unsold)]
    assert [each.prices for each in plans] == ["2025-06-02", None]


ABC = letters("aabc", "abbc", "aaa-")


def enumerated(ways, votes, pools=ABC):
    """Mean accuracy of votes that are drawn in these ways."""
    return float(mean([mean([credit(vote) for vote in ways(own, votes)]) for own in pools]))


def with_replacement(pool, votes):
    return product(pool, repeat=votes)


def test_pluralities_up_to_the_pool_and_beyond_it(tmp_path):
    result = plan(*toy(tmp_path, ABC), budget_tokens=10**6, most_votes=5)
    assert [option.plurality_kind for option in result.options] == ["subsets", "subsets", "plug-in"]
    for option, ways in zip(result.options, (permutations,) * 2 + (with_replacement,), strict=True):
        assert option.plurality == pytest.approx(enumerated(ways, option.votes), abs=1e-12)
        assert option.plurality_low <= option.plurality <= option.plurality_high
    assert result.purchase.votes <= 3
    # beyond it they are warned of, with what they miss where that can be seen
    assert warned(
        result,
        "Beyond M = 4, the pilot's pool",
        "level off at the 4-call vote",
        f"At M = 3 the pilot measures {100 * enumerated(permutations, 3):.2f} %",
        f"the shares predict {100 * enumerated(with_replacement, 3):.2f} %",
    )
    within = plan(*toy(tmp_path / "b", ABC), budget_tokens=500, most_votes=3)
    assert not warned(within, "Beyond M")


def test_the_smallest_of_pools_of_several_sizes_is_named(tmp_path):
    pools = letters("aabc", "abbcba", "aaa-b")
    result = plan(*toy(tmp_path, pools), budget_tokens=10**6, most_votes=5)
    last = enumerated(with_replacement, 5, pools)
    assert result.options[-1].plurality == pytest.approx(last, abs=1e-12)
    assert warned(
        result,
        "Beyond M = 4, the pilot's smallest pool",
        "level off at the vote of all calls that a question has",
    )


def test_what_is_sure_of_a_majority_holds_its_bounds_and_is_missing_where_nothing_can_be_certified(
    tmp_path,
):
    few = plan(
        *toy(tmp_path / "few", [["a", "a", "b", "c"]] * 3), budget_tokens=10**6, most_votes=5
    )
    assert {(option.majority_low, option.majority_high) for option in few.options} == {(None, None)}
    pools = [["a"] * c + ["b"] * (10 - c) for c in (4, 6, 7, 8, 9, 10) for _ in range(6)]
    result = plan(*toy(tmp_path / "many", pools), budget_tokens=10**6, most_votes=7)
    right = np.array([pool.count("a") for pool in pools])
    moments = Moments.from_values(
        float((right / 10).mean()), float((right * (right - 1) / 90).mean())
    )
    for option in result.options:
        sharp = vote_interval(option.votes // 2, moments)
        ends = option.majority_bound_low, option.majority_bound_high
        assert ends == pytest.approx((float(sharp.low), float(sharp.high)), abs=1e-12)
        assert option.majority_low < ends[0] <= ends[1] < option.majority_high
        assert option.majority_gain_bound == pytest.approx(ends[0] - float(moments.mu), abs=1e-12)


def test_a_vote_beyond_the_pool_is_bought_only_where_its_majority_is_sure_to_beat_what_was_measured(
    tmp_path,
):
    pools = [["a"] * c + ["b"] * (10 - c) for c in (5, 8) for _ in range(100)]
    result = plan(*toy(tmp_path, pools), budget_tokens=10**9, most_votes=51)
    best = max(option.plurality for option in result.options if option.plurality_kind == "subsets")
    sure = [each for each in result.options if each.votes > 10 and each.majority_low > best]
    bought = result.purchase
    assert (bought.votes, bought.plurality_kind) == (sure[0].votes, "plug-in")
    assert bought.plurality == sure[0].plurality
    assert f"reaches at least {100 * sure[0].majority_low:.2f} %" in bought.why
    assert warned(result, f"At M = {sure[0].votes} even the lower bound of a majority exceeds them")
    within = plan(*toy(tmp_path / "within", pools), budget_tokens=10**9, most_votes=9)
    # two wrong of ten never lead there
    assert (within.purchase.votes, within.purchase.plurality_kind) == (5, "subsets")


@pytest.mark.parametrize(
    ("asked", "error", "piece"), read_data("forecasts.json")["what cannot be planned"]
)
def test_what_cannot_be_planned_is_refused(loaded, asked, error, piece):
    with pytest.raises(getattr(errors, error), match=piece):
        plan(*loaded, **asked)


def test_dollars_need_a_price_and_tokens_do_not(tmp_path):
    dataset, llm = toy(tmp_path, llm="nobody-sells-this")
    with pytest.raises(PriceNotFoundError, match="nobody-sells-this"):
        plan(dataset, llm, budget_usd=1.0)
    result = plan(dataset, llm, budget_tokens=1000)
    assert result.purchase.usd is None
    assert result.options[0].usd_per_question is None


def test_a_free_llm_needs_a_budget_in_tokens(tmp_path):
    free = PriceList("free", "2026-01-01", "made up", {NAME: Price(0, 0)}, {})
    path = write_toy(tmp_path / "toy", {NAME: POOLS}, GOLDS)
    dataset, [llm] = load("toy", [NAME], path, prices=free)
    with pytest.raises(OutOfRangeError, match="cost nothing in usd"):
        plan(dataset, llm, budget_usd=1.0)
    assert plan(dataset, llm, budget_tokens=1000).purchase.usd == 0.0


def test_a_pilot_of_single_calls_is_too_small(tmp_path):
    with pytest.raises(ShortPoolError, match="2 were asked for"):
        plan(*toy(tmp_path, [["a"], ["b"]]), budget_tokens=100)


def test_budgets_are_read():
    read = [PlanBudget.parse(text) for text in ("20usd", "0.5 USD", "1,000_000 tokens")]
    assert read == [PlanBudget(20, "usd"), PlanBudget(0.5, "usd"), PlanBudget(1e6, "tokens")]


@pytest.mark.parametrize(
    "text", ["", "20", "usd", "20eur", "-3usd", "1e3usd", "20usd usd", "nanusd", "²usd"]
)
def test_other_budgets_are_refused(text):
    with pytest.raises(UsageError, match=r"above 0, written in digits, .* 20usd or 500000tokens"):
        PlanBudget.parse(text)


def test_unknown_prompt_tokens_name_llm_and_question(tmp_path):
    pools = [pool(0, POOLS[0]), replace(pool(1, POOLS[1]), prompt_tokens=None)]
    dataset, [llm] = load("toy", [NAME], write_rows(tmp_path / "mute", ["a", "a"], (NAME, pools)))
    with pytest.raises(
        PriceNotFoundError,
        match=rf"{NAME} have on 1 of 2 questions of toy, '{dataset.question_ids[1]}' first",
    ):
        plan(dataset, llm, budget_tokens=500)
