"""What a comparison will take, before it starts: measured on a clock of the test's own."""

from itertools import count

import pytest
from command_line import failed, feval, said, told
from small import letters, write_toy

from feval.comparison.plan import Plan
from feval.comparison.runner import MethodDuration, _extrapolated, durations

LLM = "gpt-3.5-turbo"


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A second passes from each look at the clock to the next, so that every trial takes one."""
    ticks = count()
    monkeypatch.setattr("feval.comparison.runner.time.process_time", lambda: float(next(ticks)))


@pytest.fixture
def file(tmp_path):
    write_toy(tmp_path / "rec", {LLM: letters("aba", "x-y") * 20}, ["a", "y"] * 20)
    votes = {"name": "self-consistency", "llms": [LLM]}
    fields = {"budget": 3, "window": 1, "answer": "window"}
    methods = [
        votes | {"label": "votes", "budgets": {"n": [1, 3]}},
        votes | {"name": "early-stopping", "fields": fields},
        votes | {"label": "too many", "budgets": {"n": [2, 7]}},
        votes | {"label": "nobody", "llms": ["nobody"]},
    ]
    plan = Plan.from_dict(
        {"dataset": "toy", "recordings": ["rec"], "order": "seeded", "method": methods}
    )
    (tmp_path / "plan.toml").write_text(plan.to_toml())
    return tmp_path / "plan.toml"


def test_the_second_trial_is_scaled_to_all_questions(file):
    planned = durations(Plan.read(file), base=file.parent)
    second = {"kinds": ("seeded",), "measured_questions": 16, "seconds": 1.0 * 40 / 16}
    assert planned.methods == (
        MethodDuration("votes", points=2, **second),
        MethodDuration("early-stopping", points=1, **second),
        MethodDuration("too many", points=1, **second),
    )
    assert (planned.questions, planned.plan.replicates) == (40, 100)
    assert [one.label for one in planned.missing] == ["nobody", "too many, n=7"]
    assert planned.seconds() == 7.5
    assert planned.seconds(workers=2) == 3.75


def test_exact_methods_stay_in_one_process(file):
    planned = durations(Plan.read(file).changed(order="exact"), base=file.parent)
    assert {one.kinds for one in planned.methods} == {("exact",)}
    assert planned.seconds(workers=2) == planned.seconds() == 7.5


def test_a_method_that_no_trial_stops_is_measured_on_all(file, monkeypatch):
    monkeypatch.setattr("feval.comparison.runner._LONG_SECONDS", 2.0)
    planned = durations(Plan.read(file), base=file.parent)
    assert {(one.measured_questions, one.seconds) for one in planned.methods} == {(40, 1.0)}


def test_exact_methods_grow_by_a_power_of_the_questions():
    trials = [(4, 9.0), (16, 1.0), (64, 2.0)]  # twice the time for four times the questions
    assert _extrapolated(trials, 6400, exact=True) == pytest.approx(20.0)
    assert _extrapolated(trials, 6400, exact=False) == pytest.approx(2 / 3 + 6400 / 48)
    trials[1:] = [(16, 2.0), (64, 1.0)]
    assert _extrapolated(trials, 6400, exact=False) == pytest.approx(100.0)
    assert _extrapolated(trials, 6400, exact=True) == 1.0  # never less than was measured


def test_a_dry_run_prints_times_and_compares_nothing(file, monkeypatch):
    monkeypatch.setattr(
        "feval.cli.compare.compare_methods", lambda *_, **__: pytest.fail("compared")
    )
    shown = said("compare", file, "--dry-run")
    assert "too many             1  seeded  2.5 s" in shown
    assert "missing: too many, n=7: " in shown
    assert "About 7.5 s with 1 worker" in shown
    numbers = told("compare", file, "--dry-run", "--workers", 2)
    expected = {"seconds": 3.75, "workers": 2, "questions": 40, "replicates": 100}
    assert numbers | expected == numbers
    assert [one["seconds"] for one in numbers["methods"]] == [2.5] * 3
    failed(
        feval("compare", file, "--dry-run", "--out", file.parent / "out"),
        2,
        "--dry-run computes nothing",
    )
