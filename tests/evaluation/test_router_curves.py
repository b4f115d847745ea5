"""The whole line of a router on recordings: published figures, one fit, and what is said where
measures are not defined.
"""

import json

import numpy as np
import pytest
import routed
from command_line import said, told
from small import write_toy

from feval import (
    Plan,
    Router,
    compare,
    evaluate,
    from_dataframe,
    load,
    method_curve,
    verify_receipt,
)
from feval.errors import OutOfRangeError, UsageError

BY_LENGTH = {"learner": "score", "feature": "length"}


def recorded(out, rows, usd):
    """A recording of outcomes: (text, features, LLM -> right) of each question, and USD a call."""
    table = [
        {"id": str(place), "question": text, **features, **right}
        for place, (text, features, right) in enumerate(rows)
    ]
    with pytest.warns():
        from_dataframe(
            table,
            dataset="routing",
            outcome=[*usd],
            usd=[f"{llm}={cost}" for llm, cost in usd.items()],
            feature=[*rows[0][1]],
            out=out,
        )
    return out


@pytest.fixture(scope="module")
def gsm8k(shared, tmp_path_factory):
    texts, right = routed.gsm8k(shared)
    rows = [
        (text, {"length": len(text)}, {"weak": int(weak), "strong": int(strong)})
        for text, weak, strong in zip(texts, *right, strict=True)
    ]
    out = tmp_path_factory.mktemp("gsm8k") / "recording"
    return recorded(out, rows, {"weak": 0.0003, "strong": 0.01})


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    rng = np.random.default_rng(2)
    rows = [
        (
            f"question {place} of {'sums' if place % 2 else 'words'}",
            {"length": place % 7},
            {"a": int(rng.random() < 0.5), "b": int(rng.random() < 0.8), "c": place % 3 % 2},
        )
        for place in range(60)
    ]
    return recorded(
        tmp_path_factory.mktemp("small") / "recording", rows, {"a": 0.01, "b": 0.03, "c": 0.05}
    )


def test_gsm8k_by_length_is_the_published_line(gsm8k, shared):
    dataset, llms = load("routing", ["strong", "weak"], gsm8k)
    curve = method_curve(dataset, llms, "router", "price", [], settings=BY_LENGTH, folds=5)
    golden = json.loads((shared / "golden" / "routing.json").read_text("utf-8"))["gsm8k"]
    expected = golden["length_exact"]
    assert curve.points[0].n == 0  # all to the strong LLM
    for name in ("apgr", "cpt20", "cpt50", "cpt80"):
        assert curve.whole[name] == pytest.approx(expected[name], abs=1e-12)
        assert curve.whole[f"{name}_low"] < curve.whole[name] < curve.whole[f"{name}_high"]
    assert curve.whole["aiq"] == pytest.approx(expected["aiq_usd_0.0003_0.01"], abs=1e-12)
    assert curve.beside["oracle"].accuracy == pytest.approx(golden["oracle"]["ceiling"])
    ends = curve.points[0], curve.points[-1]
    assert [point.share for point in ends] == [1, 0]
    assert [point.gain for point in ends] == pytest.approx([0, 0])
    assert [point.accuracy for point in ends] == [
        curve.beside[llm].accuracy for llm in ("strong", "weak")
    ]
    texts = [dataset[row].question for row in range(len(dataset))]
    right = {llm.name: llm_right(dataset, llm) for llm in llms}
    for point in curve.points:
        up = np.array([len(text) > point.n for text in texts])
        assert point.share == pytest.approx(up.mean())
        assert point.accuracy == pytest.approx(np.where(up, right["strong"], right["weak"]).mean())
        assert point.usd_per_question == pytest.approx(np.where(up, 0.01, 0.0003).mean())


def llm_right(dataset, llm):
    return dataset.rightness.of_llm[llm.name][:, 0]


def test_one_fit_for_each_fold_and_points_are_evaluations(small, monkeypatch):
    dataset, llms = load("routing", ["a", "b"], small)
    fits, plain = [], Router.fit
    monkeypatch.setattr(Router, "fit", lambda self, train: fits.append(1) or plain(self, train))
    prices = [-5, 0, 4.5, 20]
    fields = {"learner": "mean", "feature": "length"}
    curve = method_curve(dataset, llms, "router", "price", prices, settings=fields, folds=3)
    assert len(fits) == len(curve.learnt) == 3
    for point in curve.points:
        each = evaluate(Router(**fields, price=point.n), dataset, llms, folds=3)
        assert (point.accuracy, point.usd_per_question) == pytest.approx(
            (each.accuracy, each.usd_per_question)
        )
        assert each.kind == point.kind == "exact"
    seeded = evaluate(Router(**fields), dataset, llms, folds=3, order="seeded", replicates=2)
    assert seeded.accuracy == pytest.approx(curve.points[1].accuracy)  # of one CoT each


def test_of_three_llms_there_are_no_shares(small):
    dataset, llms = load("routing", ["a", "b", "c"], small)
    fields = {"learner": "mean", "feature": "length"}
    curve = method_curve(dataset, llms, "router", "price", [], settings=fields, train_fraction=0.5)
    assert set(curve.whole) == {
        name + end for name in ("aiq", "gain") for end in ("", "_low", "_high")
    }
    assert [*curve.beside] == ["a", "b", "c", "oracle"]
    assert curve.questions == 30


def test_measures_of_a_dearer_llm_that_is_no_better_are_not_defined(small):
    dataset, llms = load("routing", ["b", "c"], small)
    curve = method_curve(
        dataset, llms, "router", "price", [], settings=BY_LENGTH, folds=5, confidence=None
    )
    assert curve.whole["apgr"] is curve.whole["cpt50"] is curve.whole["ibc"] is None
    assert curve.whole["aiq"] >= curve.beside["b"].accuracy - 1e-12
    assert curve.whole["aiq_low"] is None
    assert any("is no more accurate than the cheaper one" in each for each in curve.warnings)


def test_what_a_router_cannot_learn_is_refused(small):
    dataset, llms = load("routing", ["a", "b"], small)
    with pytest.raises(UsageError, match="`train_fraction` or `folds`"):
        method_curve(dataset, llms, "router", "price", [])
    with pytest.raises(OutOfRangeError, match=r"within 0\.001 USD per question.* takes 0\.01"):
        evaluate(Router(budget=0.001), dataset, llms, folds=2)
    spent = evaluate(Router("mean", "length", budget=0.02), dataset, llms, train_fraction=0.5)
    assert 0.01 <= spent.usd_per_question <= 0.03


@pytest.mark.parametrize("order", [None, "seeded"])
def test_a_line_has_no_cost_that_its_oracle_does_not_know(tmp_path, order):
    answers = {llm: [["4", "6"], ["6", "6"]] * 4 for llm in ("large", "small")}
    dataset, llms = load("toy", recording=write_toy(tmp_path / "toy", answers, ["4"] * 8))
    with pytest.raises(UsageError, match=r"oracle beside .* sequential-tokens are not known"):
        method_curve(
            dataset, llms, "router", "price", [], folds=2, cost="sequential-tokens", order=order
        )


def test_the_command_shows_draws_and_verifies_the_line(small, tmp_path):
    command = "curve router --llm a --llm b --set learner=score --set feature=length --recording"
    out = tmp_path / "out"
    numbers = told(command, small, "--out", out)
    assert {"apgr", "cpt20", "cpt50", "cpt80", "aiq", "ibc", "apgr_low"} <= {*numbers}
    assert "mixtures of single LLMs" in (out / "curve.svg").read_text("utf-8")
    shown = said(command, small)
    assert "APGR" in shown
    assert "what another fit would do is not in the intervals" in shown
    assert "oracle" in shown
    assert verify_receipt(out / "receipt.json")


LEARNER = """
from pathlib import Path

import numpy as np

Path(__file__).with_suffix(".ran").touch()

class Mean:
    def fit(self, texts, features, right):
        self.mean = right.mean()
    def predict_proba(self, texts, features):
        return np.full(len(texts), self.mean)
"""


def test_a_receipt_runs_no_learner_that_is_not_named(small, tmp_path):
    learner = f"{tmp_path / 'mine.py'}:Mean"
    (tmp_path / "mine.py").write_text(LEARNER)
    command = f"run router --llm a --llm b --folds 2 --set learner={learner} --recording"
    said(command, small, "--out", tmp_path / "out")
    ran = tmp_path / "mine.ran"
    ran.unlink()
    receipt = tmp_path / "out" / "receipt.json"
    assert verify_receipt(receipt).equal
    with pytest.raises(UsageError, match="runs only where you name it"):
        verify_receipt(receipt, refit=True)
    assert not ran.exists()
    assert verify_receipt(receipt, refit=True, methods=[learner]).equal
    assert ran.exists()
    plan = tmp_path / "plan.toml"
    lines = [
        'dataset = "routing"',
        "folds = 2",
        f'recordings = ["{small}"]',
        "[[method]]",
        'name = "router"',
        'llms = ["a", "b"]',
        f'fields = {{learner = "{learner}"}}',
    ]
    plan.write_text("\n".join(lines))
    with pytest.raises(UsageError, match="runs no code by itself"):
        compare(Plan.read(plan))
    said("compare", plan, "--method", learner, "--workers 2")
    said("verify", receipt, "--refit --method", learner)
