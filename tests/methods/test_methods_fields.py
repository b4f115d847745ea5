"""Fields of built-in methods that are given in Python have the types they are declared with."""

import pickle
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from places import read_data

from feval import errors
from feval.errors import OutOfRangeError, UnknownNameError, UsageError
from feval.estimators.trace_confidence import MEASURES
from feval.methods import (
    METHODS,
    AdaptiveConsistency,
    AutoMix,
    BestOfN,
    Cascade,
    ConfidenceWeighted,
    DeepConfidence,
    DifficultyAdaptive,
    EarlyStopping,
    MixtureOfThoughts,
    ModelSwitch,
    SelfConsistency,
    SingleCall,
    WeightedBestOfN,
)
from feval.methods.fields import Aggregate
from feval.methods.oracle import Oracle
from feval.replay.pools import AGGREGATES

COUNT = np.int64(3)
FRACTION = Fraction(2, 3)
LIST = [1, 2]
INF, NAN = float("inf"), float("nan")

OF_ONE_LLM = [
    SingleCall, SelfConsistency, BestOfN, WeightedBestOfN, ConfidenceWeighted, DeepConfidence,
    AdaptiveConsistency, EarlyStopping,
    DifficultyAdaptive,
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "field", "values"),
    [
        *read_data("methods.json")["numbers outside their range"],
        ("cascade", "thresholds", [("high",)]),
        ("model-switch", "samples", [0, (), (5, 0)]),
        ("model-switch", "weights", [(1.0, -1.0), (NAN,)]),
    ],
)
def test_a_number_outside_its_range_is_refused(name, field, values):
    for value in values:
        with pytest.raises(OutOfRangeError) as caught:
            METHODS[name](**{field: value})
        assert f"The field {field!r} of " in str(caught.value)
        assert str(caught.value).endswith(f"; {field}={value!r} was given.")


@pytest.mark.parametrize("kind", METHODS.values())
def test_a_word_that_there_is_not_is_refused_with_those_that_there_are(kind):
    for name, hint in get_type_hints(kind).items():
        if get_origin(hint) is Literal:
            word = f"{getattr(kind(), name)}s"
            with pytest.raises(
                UnknownNameError, match=f"{name!r} of .* takes .*{name}='{word}' was given"
            ):
                kind(**{name: word})


@pytest.mark.parametrize(
    ("kind", "field", "value", "takes"),
    [
        (
            ConfidenceWeighted,
            "temperature",
            "0.5",
            "of confidence-weighted takes a number above 0 or none",
        ),
        (
            AdaptiveConsistency,
            "budget",
            "5",
            "of adaptive-consistency takes a whole number, 1 or more",
        ),
        (SelfConsistency, "n", 5.0, "of self-consistency takes a whole number, 1 or more"),
        (ModelSwitch, "weights", ("1", 2.0), "of model-switch takes a list such as 1,2 or none"),
        (
            ModelSwitch,
            "samples",
            2.5,
            "of model-switch takes a whole number, 1 or more or a list such as 1,2",
        ),
        (BestOfN, "n", True, "of best-of-n takes a whole number, 1 or more"),
        (Oracle, "n", "2", "of oracle takes a whole number, 1 or more"),
    ],
)
def test_a_value_of_another_type_is_refused(kind, field, value, takes):
    with pytest.raises(UsageError) as caught:
        kind(**{field: value})
    assert str(caught.value) == f"The field {field!r} {takes}; {field}={value!r} was given."


@pytest.mark.parametrize(
    ("name", "fields", "error", "words"),
    read_data("methods.json")["fields that do not fit together"],
)
def test_fields_must_fit_together(name, fields, error, words):
    with pytest.raises(getattr(errors, error), match=words):
        METHODS[name](**fields)


@pytest.mark.parametrize("kind", OF_ONE_LLM)
@pytest.mark.parametrize("llms", [0, 2])
def test_a_method_of_one_llm_takes_one(kind, llms):
    with pytest.raises(UsageError, match=f"one LLM; {llms} were given"):
        kind().draws(llms)


@dataclass(frozen=True)
class Mine(SelfConsistency):
    """A subclass made by the standard library."""

    note: object = None


def test_a_standard_dataclass_that_subclasses_a_method_checks_the_fields_of_that_method():
    assert Mine(COUNT, note=[1]) == Mine(3, note=[1])
    assert type(Mine(COUNT).n) is int
    with pytest.raises(
        UsageError, match="'n' of self-consistency takes a whole number, 1 or more; n='3' was given"
    ):
        Mine(n=cast("Any", "3"))


def test_numbers_of_other_libraries_are_numbers():
    assert SelfConsistency(COUNT).n == 3
    assert MixtureOfThoughts(FRACTION).threshold == Fraction(2, 3)
    assert ConfidenceWeighted(temperature=1).temperature == 1
    assert ModelSwitch(LIST).samples == (1, 2)
    assert AdaptiveConsistency(seed=COUNT, top=COUNT) == AdaptiveConsistency(seed=3, top=3)
    assert Cascade(order=[COUNT, 0]) == Cascade(order=(3, 0))


def test_values_keep_what_they_mean():
    method = replace(AdaptiveConsistency(threshold="11/20"), budget=7)
    assert (method.threshold, method.rule.threshold) == ("11/20", Fraction(11, 20))
    assert AdaptiveConsistency(threshold=0.55).rule.threshold == method.rule.threshold
    assert pickle.loads(pickle.dumps(method)) == method  # noqa: S301  made here
    assert get_args(Aggregate) == AGGREGATES
    assert get_args(get_type_hints(DeepConfidence)["measure"]) == MEASURES


def test_fields_that_there_are_not_are_refused():
    values = {"m": 3}
    with pytest.raises(
        UnknownNameError, match=r"There is no field 'm'.* These are the fields of self-consistency"
    ):
        SelfConsistency(**values)
    with pytest.raises(UsageError, match="self-consistency has 2 fields; 3 values were given"):
        SelfConsistency(*[1, "drop", 7])
    with pytest.raises(UnknownNameError, match="Did you mean 'vote'"):
        SelfConsistency(no_answer=cast("Any", "votes"))
    with pytest.raises(
        OutOfRangeError,
        match=r"'threshold' of auto-mix takes .* at least 0 and at most 1 or none; threshold=2",
    ):
        AutoMix(2)
