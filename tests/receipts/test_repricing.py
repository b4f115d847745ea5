"""Results at other prices, against evaluations at these prices."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
from command_line import failed, feval, said, told
from places import forge, read_json
from small import pool, write_rows, write_toy

from feval import (
    EarlyStopping,
    PriceList,
    SelfConsistency,
    SingleCall,
    compare,
    evaluate,
    load,
    method_curve,
    reprice,
    self_consistency_curve,
)
from feval.cards.billing import Price
from feval.errors import PriceNotFoundError, UsageError

PROMPTS = [300, 1_100, 2_500]
ANSWERS = [["a", "b", "a", "a"], ["x", "x", None, "y"], ["d", "e", "d", "e"]]
STEPS = ((1_000, Price(3.0, 9.0, 1.0)), (2_000, Price(5.0, 9.0, 1.25)))
NEW = PriceList("new", "2026-11-01", "made up", {"m": Price(7.0, 1.0, 0.7, 8.0), "k": (1.0, 2.0)})
OLD = PriceList("old", "2026-01-01", "made up", {"m": Price(2.0, 8.0, 0.5, 3.0), "k": (3.0, 1.0)})
IN_STEPS = PriceList("steps", "2026-11-02", "made up",
                     {"m": Price(2.0, 8.0, 0.5, 3.0, steps=STEPS), "k": (1.0, 1.0)})  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rows = [pool(i, own, prompt_tokens=PROMPTS[i], extra={"cached_tokens": [0, 128, 0, 256]})
            for i, own in enumerate(ANSWERS)]  # fmt: skip
    others = [pool(i, own[::-1], prompt_tokens=200) for i, own in enumerate(ANSWERS)]
    return write_rows(tmp_path_factory.mktemp("reprice") / "rec", ["a", "x", "d"],
                      ("m", rows), ("k", others))  # fmt: skip


def loaded(folder, prices, *names, **options):
    return load("toy", names or ["m"], folder, prices=prices, **options)


BILLS = [
    {},
    {"billing": "per_round"},
    {"billing": "per_sample", "cache": "recorded"},
    {"billing": "per_round", "cache": "prefix:1024,128"},
]


@pytest.mark.parametrize("bill", BILLS, ids=str)
@pytest.mark.parametrize(("was", "now"), [(OLD, NEW), (IN_STEPS, OLD), (IN_STEPS, IN_STEPS)])
def test_other_prices_give_what_an_evaluation_at_them_does(folder, was, now, bill):
    for method in (SelfConsistency(3), EarlyStopping(window=2, budget=4)):
        for order in ("exact", "seeded"):
            results = [
                evaluate(method, *loaded(folder, prices, **bill), order=order, replicates=3)
                for prices in (was, now)
            ]
            [[curve]] = reprice(results[0], [now])
            [point] = curve.points
            assert point.usd_per_question == pytest.approx(results[1].usd_per_question, rel=1e-12)
            assert point["usd_per_right"] == pytest.approx(results[1].usd_per_right, rel=1e-12)
            assert (point.accuracy, curve.prices) == (results[0].accuracy, now.id)
    curves = [self_consistency_curve(*one_llm(folder, prices, bill), [1, 3, 4])
              for prices in (was, now)]  # fmt: skip
    [[again]] = reprice(curves[0], [now])
    expected = [point.usd_per_question for point in curves[1].points]
    assert [point.usd_per_question for point in again.points] == pytest.approx(expected, rel=1e-12)
    assert [point.n for point in again.points] == [1, 3, 4]


def one_llm(folder, prices, bill):
    dataset, [llm] = loaded(folder, prices, **bill)
    return dataset, llm


def test_a_comparison_and_a_method_curve(folder):
    methods = [
        ("votes", SelfConsistency(3), ["m"]),
        ("calls", SingleCall(), ["k"]),
        ("switch", "model-switch", ["k", "m"], {"samples": [1, 2]}),
    ]
    was, now = (compare(folder, methods, prices=prices, replicates=5) for prices in (OLD, NEW))
    found = reprice(was, [OLD, NEW])
    for curves, result in zip(found, (was, now), strict=True):
        for curve, other in zip(curves, result.curves, strict=True):
            assert (curve.method, curve.llms) == (other.label, tuple(other.entry.llms))
            assert [point.usd_per_question for point in curve.points] == pytest.approx(
                [point.usd_per_question for point in other.points], rel=1e-12
            )
    for curves, result in zip(found, (was, now), strict=True):
        on = {
            (curve.method, point["setting"].rpartition("=")[2])
            for curve in curves
            for point in curve.points
            if point["frontier"]
        }
        assert on == {
            (point.label, {"switch": str(point.point + 1)}.get(point.label, ""))
            for point in result.frontier
        }
    dataset, llms = loaded(folder, OLD, "k", "m")
    curve = method_curve(dataset, llms, "model-switch", "samples", [1, 2], replicates=5)
    [[again]] = reprice(curve, [NEW])
    expected = [point.usd_per_question for point in now.curves[2].points]
    assert [point.usd_per_question for point in again.points] == pytest.approx(expected, rel=1e-12)


def test_what_a_result_cannot_be_priced_at_is_refused(folder, tmp_path):
    result = evaluate(SelfConsistency(3), *loaded(folder, OLD))
    with pytest.raises(UsageError, match=r"changes at 1,000 input tokens.*up to 2,500"):
        reprice(result, [IN_STEPS])
    far = PriceList(
        "far", "2026-11-02", "made up", {"m": Price(2.0, 8.0, steps=((2_500, Price(9, 9)),))}
    )
    assert reprice(result, [far])[0][0].points[0].usd_per_question > 0
    with pytest.raises(PriceNotFoundError, match="no price for the LLM 'm'"):
        reprice(result, [PriceList("other", "2026-11-02", "made up", {"o": (1.0, 1.0)})])
    with pytest.raises(UsageError, match="No price list was named"):
        reprice(result, [])
    unknown = [pool(i, own, prompt_tokens=None) for i, own in enumerate(ANSWERS)]
    bare = write_rows(tmp_path / "bare", ["a", "x", "d"], ("m", unknown))
    with pytest.raises(UsageError, match="are not known"):
        reprice(evaluate(SelfConsistency(3), *loaded(bare, OLD)), [NEW])


def test_what_was_fitted_to_a_budget_says_at_which_prices(folder):
    fields = {"score": "vote-share", "samples": 1}
    cascade = {"name": "cascade", "label": "cascade", "llms": ["k", "m"], "fields": fields,
               "budgets": {"budget": [0.5]}, "train_fraction": 0.5}  # fmt: skip
    result = compare(
        folder, [("votes", SelfConsistency(1), ["m"]), cascade], prices=OLD, replicates=5
    )
    [[votes, cascade]] = reprice(result, [NEW])
    assert "cascade is fitted to budgets in USD: decided at old." in cascade.cautions
    assert any("judged on" in each and "not on the frontier" in each for each in cascade.cautions)
    assert votes.points[0]["frontier"]
    assert not cascade.points[0]["frontier"]
    assert cascade.points[0]["setting"] == "budget=500 USD per 1,000"


def test_a_mean_of_shares_may_be_above_1_by_rounding(folder):
    result = evaluate(SelfConsistency(3), *loaded(folder, OLD))
    certain = replace(result, right=np.full(3, 1 + 2**-52), accuracy_high=1 + 2**-52)
    [[curve]] = reprice(certain, [NEW])
    assert curve.points[0].accuracy == certain.accuracy > 1


def test_a_right_answer_costs_what_retries_cost(folder):
    dataset, [llm] = loaded(folder, OLD)
    result = evaluate(SingleCall(), dataset, llm)
    assert result.right.tolist() == [0.75, 0.5, 0.5]
    shares = result.usd / result.right
    assert result.usd_per_right == pytest.approx(result.usd.mean() / result.accuracy, rel=1e-15)
    assert [*result.cost_of_pass.values()] == pytest.approx([shares.mean(), 0, shares.mean()])
    wrong = evaluate(SelfConsistency(4), dataset, llm)
    assert wrong.right.tolist() == [1.0, 1.0, 0.5]
    never = evaluate(lambda question, own: "nothing", dataset, llm)
    assert never.usd_per_right == math.inf
    assert [*never.cost_of_pass.values()] == [math.inf, 3, None]
    assert never.to_dict()["cost_of_pass"] == {
        "mean": None,
        "never_right": 3,
        "mean_of_others": None,
    }
    assert never.to_dict()["usd_per_right"] is None


def test_receipts_are_priced_again_by_the_command(tmp_path):
    toy = tmp_path / "toy"
    write_toy(toy, {"gpt-3.5-turbo": ANSWERS, "gpt-4o-mini": ANSWERS[::-1]}, ["a", "x", "d"])
    options = ["--recording", toy, "--llm gpt-3.5-turbo --out"]
    said("run self-consistency --set n=2", *options, tmp_path / "run")
    said("curve self-consistency --n 1..3", *options, tmp_path / "curve")
    said("curve self-consistency model-switch --n 1,2 --recording", toy, "--out", tmp_path / "both")
    lists = ["--prices 2025-06-02 --prices", tmp_path / "mine.json"]
    mine = {"gpt-3.5-turbo": [1.0, 0.0], "gpt-4o-mini": [2.0, 0.0]}
    (tmp_path / "mine.json").write_text(
        json.dumps({"id": "mine", "date": "2026-01-01", "source": "x", "prices": mine})
    )
    for name in ("run", "curve", "both"):
        receipt = read_json(tmp_path / name / "receipt.json")["numbers"]
        points = told("reprice", tmp_path / name, *lists)["points"]
        curves = receipt.get("curves", [receipt])
        own = [p["usd_per_question"] for each in curves for p in each.get("points", [each])]
        half = len(points) // 2
        assert [row["usd_per_question"] for row in points[:half]] == pytest.approx(own, rel=1e-12)
        assert [row["prices"] for row in points[half:]] == ["mine"] * half
    shown = said("reprice", tmp_path / "both", *lists, "--all --out", tmp_path / "out")
    assert shown.count("USD per 1,000 right") == 2
    names = ("csv", "json", "parquet", "png", "svg")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        f"reprice.{n}" for n in names
    ]


def test_a_receipt_that_holds_no_bill_is_refused(tmp_path):
    toy = tmp_path / "toy"
    write_toy(toy, {"gpt-3.5-turbo": ANSWERS}, ["a", "x", "d"])
    said("estimate --g 2 --m 1,3 --recording", toy, "--llm gpt-3.5-turbo --out", tmp_path / "e")
    failed(
        feval("reprice", tmp_path / "e", "--prices 2025-06-02"), 2, "a receipt of feval estimate"
    )
    said(
        "run self-consistency --set n=2 --recording",
        toy,
        "--llm gpt-3.5-turbo --out",
        tmp_path / "r",
    )
    path = tmp_path / "r" / "receipt.json"
    for billed in (
        "x",
        [1],
        [{}],
        [{"llm": 3}],
        [{"llm": "gpt-3.5-turbo", "beyond": "x"}],
        {"a": 1},
    ):
        forge(path, "numbers.billed", billed)
        failed(feval("reprice", path, "--prices 2025-06-02"), 2)


PLACES = [
    "curves",
    "questions",
    "curves.0.label",
    "curves.0.llms",
    "curves.0.sweep",
    "curves.0.points",
] + [
    f"curves.0.points.0.{name}"
    for name in [
        "accuracy",
        "accuracy_low",
        "kind",
        "fields",
        "method",
        "questions",
        "billed.0.input",
        "billed.0.llm",
        "billed.0.longest",
    ]
]
HOSTILE = [None, -1, 1e308, 1e-320, True, "x", "\x1b[1m", [], [None], {}, 9**999]


@pytest.mark.slow
@pytest.mark.parametrize("value", HOSTILE)
def test_whatever_a_receipt_says_a_sentence_or_a_result_comes(tmp_path, value):
    toy = tmp_path / "toy"
    write_toy(toy, {"gpt-3.5-turbo": ANSWERS}, ["a", "x", "d"])
    said("curve self-consistency early-stopping --n 2,3 --recording", toy, "--out", tmp_path / "r")
    path = tmp_path / "r" / "receipt.json"
    text = path.read_text("utf-8")
    for place in PLACES:
        path.write_text(text)
        forge(path, f"numbers.{place}", value)
        done = feval("reprice", path, "--prices 2025-06-02 --force --out", tmp_path / "out")
        assert "did not expect" not in done.output, place
        assert done.exit_code == 0 or not (tmp_path / "out").exists(), place
        if done.exit_code == 0:
            assert "nan" not in done.output.lower(), place
            shutil.rmtree(tmp_path / "out")
