"""Fields of built-in methods that are given in Python have the types they are declared with."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from feval.errors import UsageError
from feval.evaluation.oracle import Oracle
from feval.methods import (
    AdaptiveConsistency,
    BestOfN,
    ConfidenceWeighted,
    MixtureOfThoughts,
    ModelSwitch,
    SelfConsistency,
)

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
