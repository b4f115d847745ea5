"""Fields of built-in methods that are given in Python have the types they are declared with."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast, get_args, get_type_hints

import numpy as np
import pytest

from feval.errors import OutOfRangeError, UnknownNameError, UsageError
from feval.estimators.stopping.traces import MEASURES
from feval.evaluation.oracle import Oracle
from feval.methods import (
    AdaptiveConsistency,
    AutoMix,
    BestOfN,
    Cascade,
    ConfidenceWeighted,
    DeepConfidence,
    MixtureOfThoughts,
    ModelSwitch,
    SelfConsistency,
)
from feval.methods.fields import Aggregate
from feval.replay.channels import AGGREGATES

WRONG: Any = {"temperature": "0.5", "budget": "5", "n": 5.0, "weights": ("1", 2.0), "oracle": "2", "best": True}
COUNT: Any = np.int64(3)
FRACTION: Any = Fraction(2, 3)
LIST: Any = [1, 2]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: ConfidenceWeighted(temperature=WRONG["temperature"]),
            "'temperature' of confidence-weighted takes a number above 0 or none; temperature='0.5' was given",
        ),
        (
            lambda: AdaptiveConsistency(budget=WRONG["budget"]),
            "'budget' of adaptive-consistency takes a whole number, 1 or more; budget='5' was given",
        ),
        (
            lambda: SelfConsistency(WRONG["n"]),
            "'n' of self-consistency takes a whole number, 1 or more; n=5.0 was given",
        ),
        (
            lambda: ModelSwitch(weights=WRONG["weights"]),
            "'weights' of model-switch takes a list such as 1,2 or none; weights=('1', 2.0) was given",
        ),
        (lambda: BestOfN(WRONG["best"]), "'n' of best-of-n takes a whole number, 1 or more; n=True was given"),
        (lambda: Oracle(WRONG["oracle"]), "'n' of oracle takes a whole number, 1 or more; n='2' was given"),
    ],
)
def test_a_field_of_another_type_given_in_python(make: Callable[[], object], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert words in str(caught.value)


def test_numbers_of_other_libraries_are_numbers() -> None:
    assert SelfConsistency(COUNT).n == 3
    assert MixtureOfThoughts(FRACTION).threshold == Fraction(2, 3)
    assert ConfidenceWeighted(temperature=1).temperature == 1
    assert ModelSwitch(LIST).samples == (1, 2)
    assert AdaptiveConsistency(seed=COUNT, top=COUNT) == AdaptiveConsistency(seed=3, top=3)
    assert Cascade(prices=[[1, 2], [0.5, 1]], order=[COUNT, 0]) == Cascade(
        prices=((1.0, 2.0), (0.5, 1.0)), order=(3, 0)
    )


def test_values_keep_what_they_mean() -> None:
    method = replace(AdaptiveConsistency(threshold="11/20"), budget=7)
    assert (method.threshold, method.rule.threshold) == ("11/20", Fraction(11, 20))
    assert AdaptiveConsistency(threshold=0.55).rule.threshold == method.rule.threshold
    assert pickle.loads(pickle.dumps(method)) == method  # noqa: S301  made here
    assert get_args(Aggregate) == AGGREGATES
    assert get_args(get_type_hints(DeepConfidence)["measure"]) == MEASURES


def test_fields_that_there_are_not_are_refused() -> None:
    values: dict[str, Any] = {"m": 3}
    with pytest.raises(UnknownNameError, match=r"There is no field 'm'.* These are the fields of self-consistency"):
        SelfConsistency(**values)
    with pytest.raises(UsageError, match="self-consistency has 2 fields; 3 values were given"):
        SelfConsistency(*[1, "drop", 7])
    with pytest.raises(UnknownNameError, match="Did you mean 'vote'"):
        SelfConsistency(no_answer=cast("Any", "votes"))
    with pytest.raises(
        OutOfRangeError, match=r"'threshold' of auto-mix takes .* at least 0 and at most 1; threshold=2"
    ):
        AutoMix(2)
