"""What caches, steps of prices, batches and scorers make of a bill, against sums made by hand."""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from command_line import said
from small import letters, pool, write_rows

from feval import evaluate, load, method_curve, self_consistency_curve
from feval.cards.billing import BillingRule, Price, billing_rule
from feval.cards.prices import PriceList
from feval.errors import NotRecordedError, UnknownNameError, UsageError
from feval.evaluation.measures import Bill, Payer
from feval.evaluation.method_names import make_method
from feval.forecast import estimate
from feval.methods import BestOfN, Cascade, SelfConsistency
from feval.recording.content import ProbeRows, ScorerInfo, ScoreRows
from feval.replay.meter import handed_out

PROMPTS = [300, 1_100, 2_500]
CACHED = [[0, 128, 256, 256], [0, 1_024, 1_024, 0], [128, 128, 2_432, 2_432]]
TOKENS = [[11, 7, 13, 17], [5, 3, 2, 9], [19, 23, 29, 31]]
ANSWERS = letters("abaa", "xx-y", "dede")
JUDGED = [[(50, 2)] * 4, [(60, 3), (61, 1), (62, 9), (63, 4)], [(70, 5)] * 4]
SCORES = [[0.1, 0.9, 0.3, 0.2], [0.5, 0.4, 0.8, 0.6], [0.7, 0.2, 0.6, 0.1]]
STEP = Price(5.0, 9.0, 1.25)
PRICES = PriceList(
    "mine", "2026-11-01", "made up",
    {"m": Price(2.0, 8.0, 0.5, 3.0, steps=((2_000, STEP),)), "judge": Price(1.0, 4.0)},
)  # fmt: skip
RULE = "prefix:1024,128"
of_every_bill = pytest.mark.parametrize(
    ("billing", "cache"), [*product(["per_round", "per_sample"], ["none", "recorded", RULE])]
)
METHODS_OF = {
    "single-call": ({}, [1]),
    "self-consistency": ({"n": 3}, [3]),
    "early-stopping": ({"window": 2, "budget": 4}, [2, 2]),
    "adaptive-consistency": ({"threshold": 0.8, "budget": 4}, [1, 1, 1, 1]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rows = [
        pool(i, own, tokens=TOKENS[i], prompt_tokens=PROMPTS[i], extra={"cached_tokens": CACHED[i]})
        for i, own in enumerate(ANSWERS)
    ]
    bare = [pool(i, own, prompt_tokens=PROMPTS[i]) for i, own in enumerate(ANSWERS)]
    scored = [
        ScoreRows(f"toy/{i}", range(4), own, None, None, *map(list, zip(*JUDGED[i], strict=True)))
        for i, own in enumerate(SCORES)
    ]
    judge = ScorerInfo("judge:judge", "judge", {"model": "judge"})
    return write_rows(
        tmp_path_factory.mktemp("bills") / "rec", ["a", "x", "d"], ("m", rows), ("bare", bare),
        scores={"m": scored}, scorer=judge,
    )  # fmt: skip


def opened(folder, llm="m", **options):
    dataset, [used] = load("toy", [llm], folder, prices=PRICES, seed=3, **options)
    return dataset, used


def paid(row, requests, cache, billing, alone=True):
    """USD of one draw: what its requests [places of CoTs] send, read, keep and generate."""
    price = STEP if PROMPTS[row] > 2_000 else PRICES.prices["m"]
    kept_price = price.cache_write_usd_per_mtok
    kept_price = price.input_usd_per_mtok if kept_price is None else kept_price
    blocks = PROMPTS[row] // 128 * 128 if PROMPTS[row] >= 1_024 else 0
    usd, is_first = 0.0, True
    for places in requests:
        sent = [[place] for place in places] if billing == "per_sample" else [places]
        for at, own in enumerate(sent):
            read = kept = 0
            if cache == "recorded":
                read = max(CACHED[row][place] for place in own)
            elif cache == RULE:
                read, kept = (0, blocks * (at == 0)) if is_first else (blocks, 0)
            usd += price.cached_input_usd_per_mtok * read + kept_price * kept
            usd += price.input_usd_per_mtok * (PROMPTS[row] - read - kept)
        usd += price.output_usd_per_mtok * sum(TOKENS[row][place] for place in places)
        is_first = False
    return usd / 1e6


def requests_of(method, dataset, llm, row, replicate, sizes):
    metered = llm.ask(row, replicate)
    method(dataset[row].question, metered)
    places = iter([place for place, _ in handed_out(metered)])
    found = [[own for _, own in zip(range(size), places, strict=False)] for size in sizes]
    return [own for own in found if own]


@of_every_bill
@pytest.mark.parametrize("name", METHODS_OF)
def test_a_draw_costs_what_its_requests_send_read_and_keep(folder, name, cache, billing):
    settings, sizes = METHODS_OF[name]
    method = make_method(name, settings)
    dataset, llm = opened(folder, billing=billing, cache=cache)
    result = evaluate(method, dataset, llm, order="seeded", replicates=6)
    for row in range(3):
        draws = [requests_of(method, dataset, llm, row, each, sizes) for each in range(6)]
        expected = np.mean([paid(row, draw, cache, billing) for draw in draws])
        assert result.usd[row] == pytest.approx(expected, rel=1e-12)
    plain = evaluate(lambda question, own: method(question, own), dataset, llm, replicates=6)
    assert plain.usd.tolist() == pytest.approx(result.usd.tolist(), rel=1e-12)
    assert result.to_dict()["billing"].startswith(billing + f", cache {cache}" * (cache != "none"))


@of_every_bill
def test_an_expectation_is_the_mean_over_all_orders(folder, cache, billing):
    dataset, llm = opened(folder, billing=billing, cache=cache)
    exact = evaluate(SelfConsistency(3), dataset, llm, cost="usd")
    orders = list(permutations(range(4)))
    expected = [
        np.mean([paid(row, [order[:3]], cache, billing) for order in orders]) for row in range(3)
    ]
    assert (exact.kind, exact.usd.tolist()) == ("exact", pytest.approx(expected, rel=1e-12))
    [point] = self_consistency_curve(dataset, llm, [3]).points
    assert point.usd_per_question == pytest.approx(np.mean(expected), rel=1e-12)


@pytest.mark.parametrize("cost", [None, "recorded", "none", 0.002])
def test_scores_that_are_read_are_paid_for(folder, cost):
    dataset, llm = opened(folder, scorer_cost=cost)
    exact = evaluate(BestOfN(2), dataset, llm)
    free = evaluate(SelfConsistency(2), dataset, llm)
    for row in range(3):
        each = [(prompt + 4 * output) / 1e6 for prompt, output in JUDGED[row]]
        more = {"none": 0.0, 0.002: 0.004}.get(cost, 2 * np.mean(each))
        assert exact.usd[row] - free.usd[row] == pytest.approx(more, abs=1e-12)
    seeded = evaluate(BestOfN(2), dataset, llm, order="seeded", replicates=500)
    assert seeded.usd == pytest.approx(exact.usd, rel=0.05)
    assert "cost nothing" not in " ".join((*exact.warnings, *free.warnings))


def test_scores_of_training_questions_are_paid_for(folder):
    prices, costs = replace(PRICES, prices={**PRICES.prices, "bare": Price(1.0, 1.0)}), []
    for cost in (None, "none"):
        dataset, llms = load("toy", ["m", "bare"], folder, prices=prices, scorer_cost=cost)
        [fit] = evaluate(Cascade(), dataset, llms, train_fraction=0.6, replicates=1).learnt
        costs.append(fit.cost)
    paid = [JUDGED[row] for row in range(3) if row not in fit.rows]
    expected = sum(prompt + 4 * output for own in paid for prompt, output in own) / 1e6
    assert costs[0] - costs[1] == pytest.approx(expected, rel=1e-9)


def test_scores_that_cost_nothing_since_nobody_said_what_they_cost_are_named(folder):
    dataset, [llm] = load("toy", ["m"], folder, prices=replace(PRICES, prices={"m": Price(1, 4)}))
    curve = method_curve(dataset, [llm], "best-of-n", "n", [1, 2])
    for result in (evaluate(BestOfN(2), dataset, llm), curve):
        [said] = [each for each in result.warnings if "cost nothing" in each]
        assert said.startswith("Scores by judge:judge cost nothing here: what they cost")
    unpriced = load("toy", ["m"], folder, prices="none"), opened(folder, scorer_cost="none")
    for dataset, llms in unpriced:
        assert "cost nothing" not in " ".join(evaluate(BestOfN(2), dataset, llms).warnings)


def test_a_price_in_steps_or_a_cache_is_refused_where_only_sums_are_known(folder):
    dataset, llm = opened(folder)
    with pytest.raises(UsageError, match="need the tokens of each question"):
        estimate(dataset, llm, g=2, m=[3])
    dataset, cached = opened(folder, billing="per_round", cache=RULE)
    assert cached(0, n=1).cots[0].answer is not None
    with pytest.raises(UsageError, match="need the tokens of each question"):
        _ = cached(0, n=1).dollar_cost


def test_cached_tokens_that_nobody_recorded_are_refused(folder):
    dataset, bare = opened(folder, "bare", billing="per_sample", cache="recorded")
    with pytest.raises(NotRecordedError, match="12 of 12 CoTs of bare state no cached tokens"):
        evaluate(SelfConsistency(2), dataset, bare)


def test_a_billing_says_its_cache_and_who_pays_for_scores():
    assert billing_rule("per_round, cache prefix:100,10, scorers 0.5") == BillingRule(
        "per_round", "prefix", 100, 10, "0.5"
    )
    assert billing_rule("once") == BillingRule("once")
    for text, error, message in [
        ("twice", UnknownNameError, "billing"),
        ("once, cache recorded", UsageError, "no prompt is sent twice"),
        ("per_round, cache prefix:9", UsageError, "prefix:1024,128"),
        ("per_round, cache prefix:1,0", UsageError, "prefix:1024,128"),
        ("per_round, cache none:1,1", UsageError, "prefix:1024,128"),
        ("once, scorers -1", UsageError, "recorded, none or a number"),
        ("once, scorers nan", UsageError, "recorded, none or a number"),
        ("once, taxes 1", UnknownNameError, "part of a billing"),
    ]:
        with pytest.raises(error, match=message):
            billing_rule(text)


def test_scores_of_which_some_cost_is_known_are_an_error(folder):
    dataset, llm = opened(folder, scorer_cost="recorded")
    cheap = replace(PRICES, prices={"m": PRICES.prices["m"]})
    other, [unpriced] = load("toy", ["m"], folder, prices=cheap, scorer_cost="recorded")
    with pytest.raises(NotRecordedError, match="Say what a score costs, in USD"):
        evaluate(BestOfN(2), other, unpriced)
    assert evaluate(BestOfN(2), dataset, llm).usd_per_question > 0


def test_the_command_line_names_the_rule(folder):
    options = "--llm m --price m=2,8,0.5 --price judge=1,4 --recording"
    shown = said("run early-stopping --set budget=4 --set window=2 --billing per_round"
                 f" --cache {RULE}", options, folder)  # fmt: skip
    assert "billing per_round, cache prefix:1024,128" in shown
    assert "billing once, scorers none" in said("run best-of-n --set n=2 --scorer-cost none",
                                                options, folder)  # fmt: skip


@of_every_bill
def test_traces_are_requests_as_whole_cots_are(tmp_path, cache, billing):
    rows = [
        pool(i, ["a", "b", "a"], prompt_tokens=1_200, extra={"cached_tokens": [0, 1_024, 1_024]})
        for i in range(2)
    ]
    probes = [
        ProbeRows(f"toy/{i}", [0, 1, 2], [3] * 3, ["a."] * 3, ["a"] * 3, output_tokens=[1] * 3)
        for i in range(2)
    ]
    place = write_rows(tmp_path / "rec", ["a", "b"], ("m", rows), probes={"m": probes}, cue="So:")
    dataset, llm = opened(place, billing=billing, cache=cache)

    def grown(question, own):
        own.advance(own.start(3), tokens=99)
        return "a"

    traced = evaluate(grown, dataset, llm, order="recorded")
    whole = evaluate(SelfConsistency(3), dataset, llm, order="recorded")
    assert traced.usd.tolist() == pytest.approx(whole.usd.tolist(), rel=1e-12)
    assert traced.sequential_tokens.tolist() == whole.sequential_tokens.tolist()


def test_without_a_closed_form_of_a_cache_draws_are_taken(folder):
    dataset, llm = opened(folder, billing="per_round", cache="recorded")
    method = make_method("early-stopping", {"window": 2, "budget": 4})
    result = evaluate(method, dataset, llm)
    assert (result.kind, result.usd is None) == ("seeded", False)
    assert any("what a cache holds" in caution for caution in result.cautions)


def test_other_calls_may_be_shorter_than_a_step():
    payer = Payer("m", PRICES.prices["m"], "once", False, True)
    alone, beside = (
        Bill(payer, np.array([2_500.0]), np.array([1.0]), np.array([2_500]), beyond)
        for beyond in (np.array([0]), np.array([50]))
    )
    assert alone.usd == pytest.approx(2_500 * 5e-6 + 9e-6)
    assert beside.usd is None
