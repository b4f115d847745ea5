"""What costs are counted in: tokens that one waits for and tokens generated, exact or seeded, and
what is not known.
"""

import csv
from itertools import combinations

import numpy as np
import pytest
from command_line import feval
from compared import GOLDS, STRONG, WEAK
from places import read_json
from small import write_toy

from feval import Plan, compare, load, method_curve
from feval.receipts.verifying import verify_receipt

SC = {"name": "self-consistency", "llms": ["weak"], "budgets": {"n": [1, 4]}}
ADAPTIVE = SC | {"name": "adaptive-consistency", "budgets": {"budget": [2, 4]}}
WINDOWS = SC | {"name": "early-stopping", "fields": {"budget": 6}, "budgets": {"window": [2, 3]}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("costs")
    write_toy(folder / "rec", {"weak": WEAK * 3, "strong": STRONG * 3}, GOLDS * 3)
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
    sequential = {"cost": "sequential-tokens"}
    for methods, cost, kind in (
        ((SC, ADAPTIVE, WINDOWS), {"cost": "calls"}, "exact"),
        ((SC, ADAPTIVE), sequential, "exact"),
        ((SC, WINDOWS), sequential, "seeded"),
    ):
        assert compare(plan(*methods, **cost), base=folder).kinds == (kind,)
    mixed = compare(plan(SC, WINDOWS, **sequential, order="mixed"), base=folder)
    assert [curve.points[0].kind for curve in mixed.curves] == ["exact", "seeded"]
    costs = [point.cost for point in mixed.frontier]
    assert costs == sorted(costs)
    exact = compare(plan(SC, WINDOWS, **sequential, order="exact"), base=folder)
    assert [curve.label for curve in exact.curves] == ["self-consistency"]
    [reason] = {one.reason for one in exact.missing}
    assert (
        "sequential-tokens per question are not known (no closed form of them is known; order"
        " seeded" in reason
    )
    assert reason.endswith("cost='tokens', or one of output-tokens, calls, samples.")


def test_the_command_line_takes_a_cost(folder, tmp_path):
    (folder / "plan.toml").write_text(plan(SC, WINDOWS).to_toml())
    compared, curve = tmp_path / "compared", tmp_path / "c"
    options = "--cost sequential-tokens --out"
    done = feval("compare", folder / "plan.toml", options, compared)
    assert "sequential tokens/question" in done.stdout
    name = "sequential_tokens_per_question"
    with (compared / "results.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["role"] == "method"]
    assert all(float(row[name]) > 0 for row in rows)
    page = (compared / "report.html").read_text().replace(" ", "")
    assert '"axis":"sequential-tokens"' in page
    feval("curve self-consistency --llm weak --n 1,4 --recording", folder / "rec", options, curve)
    points = read_json(curve / "curve.json")["points"]
    with (curve / "curve.csv").open() as file:
        written = [float(row[name]) for row in csv.DictReader(file)]
    assert written == [point["cost"] for point in points]
    for place in (compared, curve):
        assert not verify_receipt(place / "receipt.json").differences
