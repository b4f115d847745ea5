"""What costs are counted in: tokens that one waits for and tokens generated, exact or seeded, and
what is not known.
"""

import csv
import json
from itertools import combinations

import numpy as np
import pytest
from invoked import said
from small import write_toy

from feval import Plan, compare, evaluate, load, method_curve
from feval.evaluation.measures import COSTS
from feval.methods import SelfConsistency
from feval.receipts.verifying import verify_receipt

WEAK = [["a", "b", "a", "c", "b", "a"], ["x", "y", None, "y", "y", "x"], ["d"] * 6]
STRONG = [["a"] * 5 + ["b"], ["y", "x", "y", "y", None, "y"], ["e", "d", "e", "e", "d", "d"]]
SC = {"name": "self-consistency", "llms": ["weak"], "budgets": {"n": [1, 4]}}
ADAPTIVE = {"name": "adaptive-consistency", "llms": ["weak"], "budgets": {"budget": [2, 4]}}
WINDOWS = {
    "name": "early-stopping",
    "llms": ["weak"],
    "fields": {"budget": 6},
    "budgets": {"window": [2, 3]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("costs")
    write_toy(folder / "rec", {"weak": WEAK * 4, "strong": STRONG * 4}, ["a", "y", "d"] * 4)
    return folder


def plan(*methods, **settings):
    content = {
        "dataset": "toy",
        "recordings": ["rec"],
        "resamples": 50,
        "replicates": 4,
        "prices": "none",
    }
    return Plan.from_dict(content | {"method": list(methods)} | settings)


def test_every_cost_is_that_of_the_evaluation(folder):
    dataset, [weak, _] = load("toy", ["weak", "strong"], folder / "rec")
    one = evaluate(SelfConsistency(3), dataset, weak, order="seeded", replicates=2)
    for cost in COSTS:
        costs = getattr(one, COSTS[cost])
        assert one.mean_cost(cost) == (None if costs is None else pytest.approx(costs.mean()))
    assert one.usd is None
    assert one.generated_tokens == pytest.approx(one.output_tokens)
    assert one.known_costs("sequential-tokens") == pytest.approx(one.sequential_tokens)


def test_sequential_tokens_of_a_vote_are_those_of_its_longest_cot(folder):
    dataset, [weak, _] = load("toy", ["weak", "strong"], folder / "rec")
    curve = method_curve(
        dataset, [weak], "self-consistency", "n", [1, 2, 5], cost="sequential-tokens"
    )
    for point in curve.points:
        longest = [
            np.mean([max(draw) for draw in combinations(tokens, int(point.n))])
            for tokens in weak.pool.output_tokens.tolist()
        ]
        assert (point.kind, point.cost) == ("exact", pytest.approx(np.mean(longest)))
    plain = method_curve(dataset, [weak], "self-consistency", "n", [1, 2, 5])
    assert "cost" not in plain.to_dict().keys() | plain.to_dict()["points"][0].keys()
    assert [point.accuracy for point in plain.points] == [point.accuracy for point in curve.points]


def test_a_method_without_a_closed_form_runs_seeded_and_is_marked(folder):
    by_calls = compare(plan(SC, ADAPTIVE, WINDOWS, cost="calls"), base=folder)
    assert by_calls.kinds == ("exact",)
    waited = compare(plan(SC, ADAPTIVE, cost="sequential-tokens"), base=folder)
    assert waited.kinds == ("exact",)
    seeded = compare(plan(SC, WINDOWS, cost="sequential-tokens"), base=folder)
    assert seeded.kinds == ("seeded",)
    mixed = compare(plan(SC, WINDOWS, cost="sequential-tokens", order="mixed"), base=folder)
    assert [curve.points[0].kind for curve in mixed.curves] == ["exact", "seeded"]
    assert [point.cost for point in mixed.frontier] == sorted(
        point.cost for point in mixed.frontier
    )
    exact = compare(plan(SC, WINDOWS, cost="sequential-tokens", order="exact"), base=folder)
    assert [curve.label for curve in exact.curves] == ["self-consistency"]
    [reason] = {one.reason for one in exact.missing}
    assert (
        "sequential-tokens per question are not known (no closed form of them is known; order"
        " seeded" in reason
    )
    assert reason.endswith("choose another cost: tokens, output-tokens, calls, samples.")


def test_the_command_line_takes_a_cost(folder, tmp_path):
    (folder / "plan.toml").write_text(plan(SC, WINDOWS).to_toml())

    options = ("--cost", "sequential-tokens", "--out")
    assert "sequential tokens/question" in said(
        "compare", folder / "plan.toml", *options, tmp_path / "compared"
    )
    with (tmp_path / "compared" / "results.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["role"] == "method"]
    assert all(float(row["sequential_tokens_per_question"]) > 0 for row in rows)
    assert '"axis":"sequential-tokens"' in (
        tmp_path / "compared" / "report.html"
    ).read_text().replace(" ", "")
    said(
        "curve",
        "self-consistency",
        "--recording",
        folder / "rec",
        "--llm",
        "weak",
        "--n",
        "1,4",
        *options,
        tmp_path / "c",
    )
    points = json.loads((tmp_path / "c" / "curve.json").read_text())["points"]
    with (tmp_path / "c" / "curve.csv").open() as file:
        written = [float(row["sequential_tokens_per_question"]) for row in csv.DictReader(file)]
    assert written == [point["cost"] for point in points]
    for place in ("compared", "c"):
        assert not verify_receipt(tmp_path / place / "receipt.json").differences
