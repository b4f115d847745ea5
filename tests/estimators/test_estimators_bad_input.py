"""What the estimators say to inputs that cannot be: an error of feval's with place and value, never
NumPy's.
"""

import re
from functools import partial
from pkgutil import resolve_name

import numpy as np
import pytest
from places import read_data

from feval import errors
from feval.estimators.intervals import bootstrap_interval, bootstrap_means
from feval.estimators.mixtures import mixture_from_counts
from feval.estimators.moments import Moments, PairTable, pair_table
from feval.estimators.per_question import PerQuestion
from feval.estimators.plurality import subset_plurality_accuracy, vote_counts
from feval.estimators.vote_intervals import vote_interval
from feval.estimators.wald_regions import wald_projection

MOMENTS = Moments.from_values(0.5, 0.3)
ONE = np.ones((1, 1))
NO_QUESTIONS = np.zeros(0, int), np.zeros((0, 3), int), np.zeros(0, int), [1]


def ask(name, arguments, options=None):
    """Call an estimator; lists of JSON are arrays."""
    arrays = [np.array(each) if isinstance(each, list) else each for each in arguments]
    return resolve_name(f"feval.estimators.{name}")(*arrays, **(options or {}))


OF_PYTHON = [
    # two calls
    (lambda: Moments.from_values([0.5, [0.3]], 0.2), "shapes of mu, nu do not match"),
    (lambda: vote_interval(-1, MOMENTS), "whole n from 0"),
    (lambda: vote_interval(True, MOMENTS), "whole n from 0"),
    (PairTable.from_counts([5, 2], [1, 9], [5, 1]).moments, r"2/9/1 at index \[1\] has nu < mu\^2"),
    (lambda: pair_table([[0, 1], [1]]), "bits.*inhomogeneous"),
    (
        lambda: wald_projection(PairTable.from_counts(3, 3, 3), 1, 1.0),
        r"between 0 and 1, such as 0\.95; 1\.0",
    ),
    (lambda: wald_projection(PairTable.from_counts(1, 0, 0), 1), "One question"),
    (lambda: mixture_from_counts([[1, 3]], 3, [0.5, 0.5], [-1]), "n = -1"),
    # votes
    (subset_plurality_accuracy(*NO_QUESTIONS).mean, "no questions"),
    (lambda: vote_counts(np.zeros((1, 65_536), np.int8), np.zeros(1, np.int8)), "65,536"),
    (lambda: PerQuestion(ONE, [0] * 4).beside(PerQuestion(ONE, [0])), "4 and for 1"),
    # intervals
    (
        lambda: bootstrap_means(PerQuestion(np.array([[0.0], [np.inf]]), np.array([0, 1]))),
        "Question 1 holds inf in column 0",
    ),
    (lambda: bootstrap_interval(np.zeros((0, 2))), "needs questions"),
]


@pytest.mark.parametrize(
    ("error", "call", "words"),
    [
        *(("OutOfRangeError", *case) for case in OF_PYTHON),
        *(
            (error, partial(ask, *asked), words)
            for error, cases in read_data("estimators.json")["bad input"].items()
            for *asked, words in cases
        ),
    ],
)
def test_bad_input_is_refused_with_its_place_and_value(error, call, words):
    with pytest.raises(getattr(errors, error)) as caught:
        call()
    assert re.search(words, str(caught.value), re.DOTALL), str(caught.value)
