"""Requests: one definition of an option for `evaluate`, the command line, comparison files and
receipts.
"""

import inspect

import numpy as np
import pytest
from command_line import said
from places import read_data

from feval import errors, evaluate
from feval.comparison.plan import Plan
from feval.evaluation.replicates import default_replicates
from feval.evaluation.requests import CurveRequest, EvaluationOptions, RunRequest

# Of `evaluate`: set by `load`, chosen by the caller, or without effect on numbers.
OWN = {"seed", "rows", "executor", "progress", "workers", "time_limit", "recording", "right"}


def request(**values):
    return RunRequest(
        **{"method": "self-consistency", "settings": {}, "dataset": "toy", "llms": ["x"]} | values
    )


def test_the_options_of_evaluate_are_those_of_a_request():
    parameters = inspect.signature(evaluate).parameters.values()
    options = {
        own.name: own.default
        for own in parameters
        if own.kind is own.KEYWORD_ONLY and own.name not in OWN
    }
    assert request().arguments() == options


def test_more_questions_need_fewer_replicates():
    """Two million draws in all leave a standard error of 0.035 points at most."""
    asked = [1, 20_000, 20_001, 40_000, 100_000, 200_000, 1_000_000]
    given = [default_replicates(questions) for questions in asked]
    assert given == [100, 100, 99, 50, 20, 10, 10]
    draws = [count * questions for count, questions in zip(given, asked, strict=True)]
    assert all(0.5 / np.sqrt(total) <= 0.00036 for total in draws[1:])
    assert request().with_replicates(40_000).replicates == 50
    assert request(replicates=7).with_replicates(40_000).replicates == 7


def test_every_option_is_on_the_command_line_in_comparison_files_and_in_receipts():
    names = set(EvaluationOptions.model_fields)
    rare = {
        name for name in names if EvaluationOptions.model_fields[name].json_schema_extra["rare"]
    }
    for command, apart in (("run", set()), ("curve", set()), ("compare", {"train_fraction"})):
        shown = said(command, "--help")
        options = {name for name in names if f"--{name.replace('_', '-')} " in shown}
        assert options == names - rare - apart
    assert names <= set(Plan.model_fields)
    # the billing holds the cache and the cost of scores
    assert names - {"prices", "cache", "scorer_cost"} <= set(request().pinned())
    assert request(billing="per_round", cache="recorded").pinned()["billing"] == (
        "per_round, cache recorded"
    )
    given = request(cost="seconds", parallel=2).pinned()
    assert (given["cost"], given["parallel"]) == ("seconds", 2)


def test_a_request_survives_its_receipt():
    made = CurveRequest(
        **request(seed=3, train_fraction=0.5).model_dump(), field="n", values=(1, 2.5)
    )
    assert CurveRequest.parse("It", made.pinned()) == made
    assert made.changed(order="recorded").order == "recorded"


@pytest.mark.parametrize(
    ("values", "kind", "words"), read_data("evaluations.json")["what a request refuses"]
)
def test_what_a_request_refuses(values, kind, words):
    with pytest.raises(getattr(errors, kind), match=words):
        request(**values)
