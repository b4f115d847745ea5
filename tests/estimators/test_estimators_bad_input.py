"""What the vote estimators say to inputs that cannot be: an error of feval's with place and value, never NumPy's."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from feval.errors import FevalError
from feval.estimators.self_consistency_bounds import (
    best_integer_split,
    high_probability_bound,
    icc_variance_phat,
    self_consistency_bound,
)
from feval.estimators.self_consistency_error import (
    average_error,
    multiclass_plugin_expectation,
    plugin_error,
    self_consistency_bias,
    self_consistency_error,
    self_consistency_mse_exact,
)
from feval.estimators.two_call.mixtures import mixture_from_counts, mixture_from_probabilities
from feval.estimators.two_call.moments import Moments
from feval.estimators.two_call.pair_table import PairTable, pair_table
from feval.estimators.two_call.wald_regions import simultaneous_gains, wald_projection
from feval.estimators.vote_polynomials import budget_index
from feval.estimators.votes.empirical_votes import empirical_vote_accuracy, hypergeometric_majority
from feval.estimators.votes.gaussian import gaussian_estimate
from feval.estimators.votes.multinomial import plurality_accuracy
from feval.estimators.votes.plugin import plugin_expectation
from feval.estimators.votes.sampling import monte_carlo_plurality_accuracy

A = np.array
HALF = A([0.5]), A([[0.5]]), A([0.0])

CASES: dict[str, tuple[Callable[[], object], str]] = {
    "moments in shapes that do not fit": (lambda: Moments.of([0.5, 0.2, 0.3], [0.3, 0.1]), r"mu, nu.*\(3,\).*\(2,\)"),
    "rho likewise": (lambda: Moments.from_correlation([0.5, 0.2, 0.3], [0.3, 0.1]), r"mu, rho.*\(3,\).*\(2,\)"),
    "words for moments": (lambda: Moments.of("half", 0.3), "mu is .*half"),
    "nu below mu^2": (lambda: Moments.of([0.5, 0.7], [0.3, 0.4]), r"0\.7 and nu = 0\.4 at index \[1\]"),
    "nu above mu": (lambda: Moments.of([0.5, 0.3], [0.3, 0.4]), r"0\.3 and nu = 0\.4 at index \[1\]"),
    "half a vote": (lambda: budget_index(2.5), r"whole number; 2\.5"),  # type: ignore[arg-type]
    "an even vote": (lambda: budget_index(4), "as accurate as 3"),
    "tables in shapes that do not fit": (
        lambda: PairTable.of([1, 2], [1, 2, 3], 1),
        "both_right, disagree, both_wrong",
    ),
    "ragged bits": (lambda: pair_table([[0, 1], [1]]), "bits.*inhomogeneous"),
    "a third of a vote of bits": (lambda: empirical_vote_accuracy([[0, 1, 1]], [1.5]), r"whole number; 1\.5"),  # type: ignore[list-item]
    "counts and pools that do not fit": (lambda: hypergeometric_majority([1, 2, 3], [5, 5], 3), "right, size"),
    "a level of 1": (lambda: wald_projection(PairTable.of(3, 3, 3), 1, 1.0), r"between 0 and 1, such as 0\.95; 1\.0"),
    "a mixture's negative n": (lambda: mixture_from_counts([[1, 3]], 3, [0.5, 0.5], [-1]), "n = -1"),
    "a mixture's broken n": (lambda: mixture_from_counts([[1, 3]], 3, [0.5, 0.5], [0.5]), r"n = 0\.5"),  # type: ignore[list-item]
    "a mixture's broken K": (lambda: mixture_from_counts([[1, 3]], 3.5, [0.5, 0.5]), r"size 3\.5"),  # type: ignore[arg-type]
    "one weight for two policies": (lambda: mixture_from_counts([[1, 3]], 3, 1.0), "one for each policy"),
    "weights of 1.1": (
        lambda: mixture_from_counts([[1, 3]], 3, [[0.5, 0.5], [0.5, 0.6]]),
        r"those at index \[1\] add up to 1\.1",
    ),
    "words for shares": (lambda: plurality_accuracy(A(["a"]), *HALF[1:], [1]), "Answer probabilities are numbers"),
    "a sum of 0.7": (lambda: plurality_accuracy(A([0.2]), *HALF[1:], [1]), "question 0 sum to 0.7"),
    "half a replicate": (lambda: monte_carlo_plurality_accuracy(*HALF, [1], replicates=1.5), "replicates=1.5"),  # type: ignore[arg-type]
    "half a call": (lambda: plugin_expectation(*HALF, 2.5, [1]), r"calls; 2\.5"),  # type: ignore[arg-type]
    "a Gaussian sum of 1.1": (
        lambda: gaussian_estimate(A([0.5, 0.8]), A([[0.5], [0.3]]), [1]),
        "question 1 sum to 1.1",
    ),
    "an unknown error": (lambda: average_error(A([0.1, np.nan])), "question 1 has nan"),
    "k and n that do not fit": (lambda: plugin_error(A([1, 2, 3]), A([5, 5])), "positive, calls"),
    "p and n that do not fit": (lambda: self_consistency_bias(A([0.2, 0.3]), A([1, 2, 3])), "p, n"),
    "half a call of many answers": (lambda: multiclass_plugin_expectation(A([0.5, 0.5]), 2.5), r"2\.5 were given"),  # type: ignore[arg-type]
    "half a question": (lambda: self_consistency_mse_exact(A([0.5]), None, 1.5, 1), r"m=1\.5"),  # type: ignore[arg-type]
    "a budget in words": (lambda: best_integer_split("5"), "'5' was given"),  # type: ignore[arg-type]
    "half a call in a bound": (lambda: high_probability_bound(5, 5.5), r"n=5\.5"),  # type: ignore[arg-type]
    "ragged moments": (lambda: Moments.of([0.5, [0.3]], 0.2), "shapes of mu, nu do not match"),  # type: ignore[list-item]
    "no question in a bound": (lambda: self_consistency_bound(A([3.0, 0.5]), 2.0), r"m holds 0\.5 at index \[1\]"),
    "m and n that do not fit": (lambda: self_consistency_bound(A([3.0, 5.0]), A([1.0, 2.0, 3.0])), "shapes of m, n"),
    "a single probability of 1.2": (lambda: self_consistency_error(1.2), r"p is 1\.2\. Correct"),
    "more right than calls": (
        lambda: simultaneous_gains([3, 4, 9], [5, 5, 5], [1], 0.95),
        "question 2 has 9 right of 5 calls",
    ),
    "a single mixture of 1.1": (
        lambda: mixture_from_probabilities(A([[0.5, 0.5]]), A([0.5, 0.6])),
        r"add up to 1; those add up to 1\.1",
    ),
    "half a call in a share": (lambda: icc_variance_phat(0.2, 2.5, 0.1), r"n=2\.5"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_with_its_place_and_value(case: str) -> None:
    call, words = CASES[case]
    with pytest.raises(FevalError) as caught:
        call()
    assert re.search(words, str(caught.value), re.DOTALL), str(caught.value)
