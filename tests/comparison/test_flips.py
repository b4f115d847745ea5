"""The price at which the cheaper method changes, against evaluations at other prices."""

import numpy as np
import pytest
from command_line import failed, feval, said
from small import letters, write_toy

from feval import EarlyStopping, ModelSwitch, PriceList, SelfConsistency, compare, evaluate, load
from feval.comparison.flips import VariedPrice, price_map
from feval.errors import UnknownNameError, UsageError
from feval.estimators.intervals import bootstrap_means

LIST = "2025-06-02"
SMALL, LARGE = "gpt-3.5-turbo", "gpt-4o-mini"
POOLS = {
    SMALL: letters("aaba", "xy-y", "bbcb", "cdce"),
    LARGE: letters("aaaa", "yyyx", "bcbb", "ddcd"),
}
METHODS = {
    "small": (SelfConsistency(4), [SMALL]),
    "large": (SelfConsistency(1), [LARGE]),
    "stops": (EarlyStopping(window=2, budget=4), [LARGE]),
    "switch": (ModelSwitch(2), [SMALL, LARGE]),
    "again": (SelfConsistency(4), [SMALL]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flips") / "toy"
    write_toy(folder, POOLS, ["a", "y", "b", "d"])
    return folder


def compared(folder, vary, names=METHODS, **options):
    methods = [(name, *METHODS[name]) for name in names]
    return compare(folder, methods, vary=vary, prices=LIST, order="seeded", replicates=4, **options)


def usd(folder, name, price, **options):
    """USD per question of a method, with an output price of the larger LLM."""
    method, llms = METHODS[name]
    prices = f"{LIST} with {LARGE}=0.15,{price!r}"
    dataset, used = load("toy", llms, folder, prices=prices, **options)
    return evaluate(method, dataset, used, order="seeded", replicates=4).usd


def test_at_the_flip_price_both_cost_the_same_and_around_it_as_it_says(folder):
    found = compared(folder, f"{LARGE}=output")
    by_pair = {(row.a, row.b): row for row in found.flips}
    assert len(by_pair) == 10
    for (a, b), row in by_pair.items():
        assert row.point_a == row.point_b == 0
        at = 1.0 if row.price is None else row.price
        below, equal, above = (
            usd(folder, a, at * f).mean() - usd(folder, b, at * f).mean() for f in (0.5, 1, 1.5)
        )
        if row.price is not None:
            assert equal == pytest.approx(0, abs=1e-15)
            assert (below < 0) == (row.cheaper == a)
            assert below * above < 0
        elif row.cheaper is not None:
            assert below * above > 0
            assert (below < 0) == (row.cheaper == a)
        else:
            assert below == above == equal == 0
    kinds = {(row.price is None, row.cheaper is None) for row in found.flips}
    assert kinds == {(False, False), (True, False), (True, True)}
    assert by_pair["small", "again"].cheaper is None


def test_the_interval_is_that_of_resampled_evaluations_at_two_prices(folder):
    options = {"resamples": 500, "seed": 5}
    [row] = compared(folder, f"{LARGE}=output", ("small", "switch"), **options).flips
    dataset, _ = load("toy", [SMALL], folder)
    order = np.argsort(dataset.question_keys)
    columns = [usd(folder, name, p, seed=5)[order] for p in (1.0, 3.0) for name in (row.a, row.b)]
    means = bootstrap_means(np.stack(columns, axis=1), resamples=500, seed=5)
    gaps = means[:, 0] - means[:, 1], means[:, 2] - means[:, 3]
    roots = 1.0 - gaps[0] * 2.0 / (gaps[1] - gaps[0])  # the line through both
    known = roots[np.isfinite(roots) & (roots > 0)]
    low, high = np.quantile(known, [0.025, 0.975])
    assert (row.low, row.high) == pytest.approx((low, high), rel=1e-9)
    assert row.no_flip == pytest.approx(1 - len(known) / 500)


def test_methods_that_use_an_llm_alike_flip_at_no_price(folder):
    prices = PriceList("dear", "2026-01-01", "made up", {SMALL: (150.0, 600.0), LARGE: (0.9, 4.0)})
    methods = [(name, ModelSwitch(n), [SMALL, LARGE]) for name, n in (("one", 2), ("two", 3))]
    methods += [("small", *METHODS["small"]), ("more", SelfConsistency(3), [SMALL])]
    found = compare(folder, methods, vary=f"{LARGE}=input", prices=prices, replicates=4)
    [row] = [row for row in found.flips if (row.a, row.b) == ("small", "more")]
    assert (row.price, row.low, row.high, row.no_flip) == (None, None, None, 1.0)
    assert all(row.high is None or row.high < 1e7 for row in found.flips)


def test_input_and_steps_vary_by_themselves(folder):
    steps = {"id": "mine", "date": "2026-01-01", "source": "made up"}
    price = {"input_usd_per_mtok": 1.0, "output_usd_per_mtok": 2.0, "steps": [[4, [3.0, 5.0]]]}
    prices = PriceList(**steps, prices={SMALL: [1.0, 2.0], LARGE: price})
    methods = [(name, *METHODS[name]) for name in ("small", "large")]
    options = {"prices": prices, "order": "exact"}
    with pytest.raises(UsageError, match="Nothing is billed at the price that varies"):
        compare(folder, methods, vary=f"{LARGE}=input", **options)  # all prompts are beyond
    found = compare(folder, methods, vary=f"{LARGE}=input:4", **options)
    [row], [a, b] = found.flips, [curve.points[0] for curve in found.curves]
    prompts = load("toy", [LARGE], folder)[1][0].pool.prompt_tokens
    assert (prompts > 4).all()
    # the vote pays every prompt once, at the price that varies
    each = 1e-6 * prompts.mean()
    expected = (a.usd.mean() - (b.usd.mean() - 3 * each)) / each
    assert row.price == (pytest.approx(expected) if expected > 0 else None)


def test_a_map_shows_the_best_method_within_each_budget(folder):
    names = ("small", "large", "switch")
    found = compared(folder, f"{LARGE}=output", names)
    points = {curve.label: curve.points for curve in found.curves}
    shown = price_map(points, VariedPrice.parse(f"{LARGE}=output"))
    rights = [curve.points[0].accuracy for curve in found.curves]
    for place in (0, 80, 160):
        costs = [usd(folder, name, float(shown.prices[place])).mean() for name in names]
        for row in (0, 40, 90, 120):
            within = [
                (-rights[i], costs[i], i)
                for i in range(3)
                if costs[i] <= shown.budgets[row] * (1 + 1e-9)
            ]
            assert shown.best[row, place] == (min(within)[2] if within else -1)
    assert shown.prices[[0, 80, 160]] / shown.prices[80] == pytest.approx([0.1, 1, 10])
    picture = found.to_frame("flips")
    assert list(picture["varied"]) == [f"{LARGE}=output"] * 3


@pytest.mark.parametrize(
    ("vary", "error", "message"),
    [
        ("gpt-4o-mini", UsageError, "is LLM=RATE"),
        ("gpt-4o-mini=output:x", UsageError, "is LLM=RATE"),
        ("gpt-4o-mini=outptu", UnknownNameError, "'output'"),
        ("gpt-4o=output", UnknownNameError, "LLM of the comparison"),
        ("gpt-4o-mini=cached", UsageError, "no cached price"),
        ("gpt-4o-mini=output:7", UsageError, "no step at 7"),
    ],
)
def test_a_price_that_cannot_vary_is_refused(folder, vary, error, message):
    with pytest.raises(error, match=message):
        compared(folder, vary, ("small", "large"))


def test_the_command_writes_the_map_and_its_receipt_is_verified(folder, tmp_path):
    said("compare", tmp_path / "plan.toml", "--init --recording", folder)
    options = f"--vary {LARGE}=output --replicates 3 --out"
    done = said("compare", tmp_path / "plan.toml", options, tmp_path / "out")
    assert f"Where the cheaper method changes as {LARGE}=output varies" in done
    assert (tmp_path / "out" / "price-map.png").stat().st_size > 10_000
    assert "as gpt-4o-mini=output varies" in (tmp_path / "out" / "report.html").read_text("utf-8")
    said("verify", tmp_path / "out" / "receipt.json")
    failed(feval("compare", tmp_path / "plan.toml", f"--prices none --vary {LARGE}=output"), 2)
