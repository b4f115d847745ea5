"""What the estimators say to inputs that cannot be: an error of feval's with place and value, never
NumPy's.
"""

import re
from fractions import Fraction
from math import nan

import numpy as np
import pytest

from feval.errors import OutOfRangeError, ShortPoolError, UnknownNameError
from feval.estimators.approximations import gaussian_estimate, monte_carlo_plurality_accuracy
from feval.estimators.comparisons import accuracy_at, bradley_terry, drift, hull_area
from feval.estimators.coupling import (
    coupled_correctness,
    coupled_statistics,
    equal_error_samples,
    estimation_error,
    gumbel_coupling_joint,
    laws_of_counts,
    score_difference_variance,
)
from feval.estimators.diagnostics import difficulty_strata, mass_by_rank, strata_difference
from feval.estimators.intervals import (
    accuracy_interval,
    bootstrap_interval,
    bootstrap_means,
    difference_test,
)
from feval.estimators.mixtures import best_mixture, mixture_from_counts, mixture_from_probabilities
from feval.estimators.moments import Moments, PairTable, pair_table
from feval.estimators.multinomial import (
    plugin_expectation,
    plugin_plurality_accuracy,
    plurality_accuracy,
)
from feval.estimators.per_question import MOST_VOTES, PerQuestion, mean_output_tokens, vote_counts
from feval.estimators.plurality import (
    empirical_vote_accuracy,
    hypergeometric_majority,
    pass_at_k,
    subset_plurality_accuracy,
)
from feval.estimators.self_consistency import (
    average_error,
    best_integer_split,
    budget_split,
    icc_variance_phat,
    multiclass_plugin_expectation,
    self_consistency_bias,
    self_consistency_bound,
    self_consistency_error,
    self_consistency_mse_exact,
)
from feval.estimators.vote_intervals import vote_interval
from feval.estimators.vote_polynomials import budget_index
from feval.estimators.wald_regions import simultaneous_gains, wald_projection
from feval.estimators.winrates import (
    average_winrates,
    sampled_winrates,
    scored_winrates,
    two_token_winrates,
)

A = np.array
HALF = A([0.5]), A([[0.5]]), A([0.0])
TWO = A([3]), A([[2]]), A([0])  # three samples with the gold answer, two with another one
CELLS = A([[3, 1], [5, 6]])
COSTS, CURVE = A([1.0, 2.0]), A([[0.5, 0.6]])
ZEROS = np.zeros(2, int)


def sampled(correct, rivals, no_answer):
    return plurality_accuracy(A(correct), A(rivals), A(no_answer), [1])


def subsets(gold, rivals, draws, **options):
    gold = A(gold)
    return subset_plurality_accuracy(gold, A(rivals), np.zeros(len(rivals), int), draws, **options)


OUT_OF_RANGE = [
    # two calls
    (lambda: Moments.of([0.5, 0.2, 0.3], [0.3, 0.1]), r"mu, nu.*\(3,\).*\(2,\)"),
    (lambda: Moments.of("half", 0.3), "mu is .*half"),
    (lambda: Moments.of([0.5, [0.3]], 0.2), "shapes of mu, nu do not match"),
    (lambda: Moments.of([0.5, 0.5], [0.3, 0.2]), r"nu = 0.2 at index \[1\]: nu < mu\^2"),
    (lambda: Moments.of([0.5], [0.6]), r"mu = 0.5 and nu = 0.6 at index \[0\]: nu > mu"),
    (lambda: Moments.of([1.5], [0.6]), r"mu is 1\.5 at index \[0\]"),
    (lambda: Moments.of(Fraction(1, 2), Fraction(1, 5)), r"nu < mu\^2"),
    (lambda: budget_index(2.5), r"whole number; 2\.5"),
    (lambda: budget_index(6), r"as accurate as 5: ask for 5 votes, n = 2"),
    (lambda: vote_interval(-1, Moments.of(0.5, 0.3)), "whole n from 0"),
    (lambda: vote_interval(True, Moments.of(0.5, 0.3)), "whole n from 0"),
    (lambda: PairTable.of([1, 2], [1, 2, 3], 1), "both_right, disagree, both_wrong"),
    (lambda: PairTable.of([1, 1], [3, -2], [1, 1]), r"disagree is -2 at index \[1\]"),
    (lambda: PairTable.of(1.5, 2, 3), "both_right has the type float64"),
    (
        lambda: PairTable.of([5, 2], [1, 9], [5, 1]).moments(),
        r"2/9/1 at index \[1\] has nu < mu\^2",
    ),
    (lambda: pair_table([[0, 1], [1]]), "bits.*inhomogeneous"),
    (lambda: pair_table([[1], [0]]), "there is one"),
    (lambda: empirical_vote_accuracy([[0, 1, 1]], [1.5]), r"whole number; 1\.5"),
    (lambda: empirical_vote_accuracy([[0, 2, 1]]), r"bits is 2 at index \[0, 1\]"),
    (lambda: hypergeometric_majority([1, 2, 3], [5, 5], 3), "right, size"),
    (lambda: hypergeometric_majority([0, 1, 4], 3, 1), r"4 of 3 calls are right at index \[2\]"),
    (
        lambda: wald_projection(PairTable.of(3, 3, 3), 1, 1.0),
        r"between 0 and 1, such as 0\.95; 1\.0",
    ),
    (lambda: wald_projection(PairTable.of(1, 0, 0), 1), "One question"),
    (
        lambda: simultaneous_gains([3, 4, 9], [5, 5, 5], [1], 0.95),
        "question 2 has 9 right of 5 calls",
    ),
    (lambda: mixture_from_counts([[1, 3]], 3, [0.5, 0.5], [-1]), "n = -1"),
    (lambda: mixture_from_counts([[1, 3]], 3.5, [0.5, 0.5]), r"size 3\.5"),
    (lambda: mixture_from_counts([[1, 3]], 3, 1.0), "one for each policy"),
    (
        lambda: mixture_from_counts([[1, 3]], 3, [[0.5, 0.5], [0.5, 0.6]]),
        r"those at index \[1\] add up to 1\.1",
    ),
    (lambda: mixture_from_counts(CELLS, 5, [0.5, 0.5]), r"counts is 6 at index \[1, 1\]"),
    (
        lambda: mixture_from_probabilities(A([[0.5, 0.5]]), A([0.5, 0.6])),
        r"add up to 1; those add up to 1\.1",
    ),
    (lambda: best_mixture(CELLS, 6, 4), "as accurate as 3"),
    (lambda: best_mixture(CELLS, 6, 5, "speed"), "objective="),
    # votes
    (lambda: plurality_accuracy(A(["a"]), *HALF[1:], [1]), "Answer probabilities are numbers"),
    (lambda: plurality_accuracy(A([0.2]), *HALF[1:], [1]), "question 0 sum to 0.7"),
    (lambda: sampled([0.5, 1.2], [[0.5], [-0.2]], [0, 0]), r"question 1 has 1.2 in correct"),
    (lambda: sampled([0.5, 0.7], [[0.5], [-0.2]], [0, 0.5]), r"question 1 has -0.2 in rivals"),
    (lambda: sampled([0.5], [0.5], [0.0]), r"shapes are \(1,\), \(1,\)"),
    (lambda: plurality_accuracy(*HALF, [0]), "0 stands at place 0"),
    (lambda: plurality_accuracy(*HALF, [3, MOST_VOTES + 1]), "place 1"),
    (lambda: plurality_accuracy(*HALF, [1.5]), "not"),
    (
        lambda: plugin_plurality_accuracy(A([1, 0]), A([[1], [0]]), ZEROS, [1]),
        "Question 1 has no samples",
    ),
    (
        lambda: plugin_plurality_accuracy(A([1.0, 0]), A([[1], [0]]), ZEROS, [1]),
        "gold holds float64",
    ),
    (lambda: plugin_expectation(*HALF, 0, [1]), "from 1 to 1,000 calls; 0"),
    (
        lambda: plugin_expectation(
            A([0.5, 0.1]), A([[0.5] + [0.0] * 8, [0.1] * 9]), np.zeros(2), 20, [1]
        ),
        "the 10 answers of question 1 have",
    ),
    (
        lambda: gaussian_estimate(A([0.1, -0.1]), np.zeros((2, 1)), [1]),
        r"question 1 has -0\.1 in correct",
    ),
    (lambda: monte_carlo_plurality_accuracy(*HALF, [1], replicates=1.5), "replicates=1.5"),
    (lambda: monte_carlo_plurality_accuracy(*HALF, [1], seed=-1), "seed=-1"),
    (lambda: monte_carlo_plurality_accuracy(*HALF, [1], keys=A([1, 2])), "each of the 1 questions"),
    (lambda: subsets([3], [[-1]], [1]), "question 0 has -1 in rivals"),
    (lambda: subsets([0.5], [[1]], [1]), "gold holds float64"),
    (lambda: subsets([3, 3], [[1]], [1]), "the shapes are"),
    (lambda: subsets([1, 1000], [[1], [1]], [1]), r"Question 1 has a pool of 1,001 samples"),
    (lambda: subsets(np.zeros(0, int), np.zeros((0, 3), int), [1]).mean(), "no questions"),
    (lambda: pass_at_k(A([4]), A([3]), [1]), "question 0 has 4 of 3"),
    (lambda: difficulty_strata(A([0.5]), ()), "ascending upper ends"),
    (lambda: difficulty_strata(A([0.5, 1.5])), r"question 1 has 1\.5"),
    (lambda: strata_difference(TWO, (A([3, 1]), A([[2], [1]]), ZEROS)), "they have 1 and 2"),
    (lambda: mass_by_rank(A([0]), A([[0]]), A([0])), "Question 0 has no samples"),
    (lambda: vote_counts(np.zeros(3, np.int8), np.zeros(3, np.int8)), "shapes are"),
    (lambda: vote_counts(np.zeros((3, 2)), np.zeros(3, np.int8)), "codes are float64"),
    (lambda: vote_counts(np.full((3, 2), -3), np.zeros(3, np.int8)), "-3 was found"),
    (lambda: vote_counts(np.zeros((1, 65_536), np.int8), np.zeros(1, np.int8)), "65,536"),
    (lambda: mean_output_tokens(np.zeros((2, 3), int), A([3, 0])), "Question 1 has no samples"),
    (lambda: mean_output_tokens(np.zeros((2, 3), int), A([3])), "shapes are"),
    (
        lambda: PerQuestion(np.ones((1, 1)), A([0] * 4)).beside(
            PerQuestion(np.ones((1, 1)), A([0]))
        ),
        "4 and for 1",
    ),
    # self-consistency
    (lambda: self_consistency_error(1.2), r"p is 1\.2\. Correct"),
    (lambda: self_consistency_error(A([0.1, 1.1])), r"1\.1 at index \[1\]"),
    (lambda: self_consistency_bias(A([0.2, 0.3]), A([1, 2, 3])), "p, n"),
    (lambda: self_consistency_bias(0.5, A([2.0])), r"n holds float64"),
    (
        lambda: multiclass_plugin_expectation(A([[0.5, 0.5], [0.5, 0.4]]), 2),
        r"those of p at index \[1\] sum to 0\.9",
    ),
    (lambda: multiclass_plugin_expectation(np.float64(1.0), 2), r"the shape is \(\)"),
    (lambda: multiclass_plugin_expectation(A([0.5, 0.5]), 2.5), r"2\.5 were given"),
    (lambda: average_error(A([0.1, nan])), "question 1 has nan"),
    (lambda: average_error(np.zeros(0)), r"1 question or more"),
    (lambda: average_error(np.zeros(2), A([1.0, -1.0])), r"question 1 has -1\.0"),
    (lambda: average_error(np.zeros(2), np.zeros(2)), r"all are 0"),
    (lambda: self_consistency_mse_exact(A([0.5]), None, 1.5, 1), r"m=1\.5"),
    (lambda: self_consistency_bound(5, 5, -0.1), r"-0\.1 was given"),
    (lambda: self_consistency_bound(A([3.0, 0.5]), 2.0), r"m holds 0\.5 at index \[1\]"),
    (lambda: self_consistency_bound(A([3.0, 5.0]), A([1.0, 2.0, 3.0])), "shapes of m, n"),
    (lambda: budget_split(0), r"0 was given"),
    (lambda: best_integer_split(7.5), r"7\.5 was given"),
    (lambda: icc_variance_phat(0.2, 2.5, 0.1), r"n=2\.5"),
    # coupled LLMs
    (lambda: gumbel_coupling_joint([0.5, 0.5], [1.0]), "shape"),
    (lambda: gumbel_coupling_joint([1.5, -0.5], [0.5, 0.5]), r"\[0, 1\]"),
    (lambda: gumbel_coupling_joint([], []), "one answer or more"),
    (lambda: coupled_correctness([1.0], [1.0], [1]), "booleans"),
    (lambda: score_difference_variance([1.0], [1.0], [True]), "rows of p"),
    (lambda: score_difference_variance([[1.0]], [[1.0]], [True], [0.5, 0.5]), "one weight each"),
    (lambda: laws_of_counts([[1, 0], [0, 0]]), "are all 0"),
    (lambda: coupled_statistics([[1]], [[0]]), "two calls or more"),
    (lambda: coupled_statistics([[1, 0]], [[0]]), "one shape"),
    (lambda: coupled_statistics([[1, nan]], [[0, 1]]), "finite"),
    (lambda: estimation_error([0.5], [1]), "1, 0 or -1"),
    (lambda: estimation_error([1, 0], [3]), "from 1 to the 2"),
    (lambda: equal_error_samples([[1, 0]], [[0, 0]], 1), "no error to match"),
    (lambda: equal_error_samples([[1, 0]], [[0, 0], [1, 0]], 1), "same questions"),
    (lambda: sampled_winrates([[1.0]], [[0.0]], "other"), "two or more"),
    (lambda: average_winrates([[0.5]]), "two LLMs"),
    (lambda: scored_winrates([1.0], [1.0], [np.inf]), "finite score"),
    (lambda: two_token_winrates([0.5, 0.5], [0.1, 0.2, 0.3]), "shapes of a, b do not match"),
    # intervals, tests, frontiers and rankings
    (
        lambda: bootstrap_interval(A([[0.5, 0.5], [0.5, 0.5], [0.5, nan]])),
        "Question 2 holds nan in column 1",
    ),
    (
        lambda: bootstrap_means(PerQuestion(A([[0.0], [np.inf]]), A([0, 1]))),
        "Question 1 holds inf in column 0",
    ),
    (lambda: bootstrap_interval(np.zeros((0, 2))), "needs questions"),
    (lambda: bootstrap_interval(np.zeros(3)), r"shape \(3,\)"),
    (lambda: bootstrap_interval(CURVE, confidence=1.0), "confidence"),
    (lambda: bootstrap_interval(CURVE, resamples=0), "resamples=0"),
    (lambda: bootstrap_interval(CURVE, seed=1 << 128), "seed"),
    (lambda: difference_test(A([[0.5], [-1.5]])), r"lie in \[-1, 1\]"),
    (lambda: accuracy_interval(A([[0.5], [-0.5]])), r"lie in \[0, 1\]"),
    (
        lambda: drift(ZEROS, ZEROS[:1], ZEROS, ZEROS == 0),
        r"shapes are \(2,\), \(1,\), \(2,\), \(2,\)",
    ),
    (lambda: drift(*(ZEROS[None],) * 3, ZEROS[None] == 0), "one value for each CoT"),
    (lambda: drift(ZEROS, ZEROS, ZEROS / 2, ZEROS == 0), "whole numbers.*float64"),
    (lambda: drift(ZEROS, ZEROS, ZEROS, ZEROS), "true or false.*int64"),
    (lambda: drift(ZEROS, ZEROS, ZEROS, ZEROS == 0, resamples=0), "resamples=0"),
    (lambda: accuracy_at(0.5, COSTS, CURVE), "between its ends"),
    (lambda: accuracy_at(0.5, A([0.0, 64.0]), CURVE), "has no accuracy"),
    (lambda: hull_area(COSTS, CURVE, 0.5, 2.0), "cheapest"),
    (lambda: hull_area(COSTS, CURVE, 2.0, 2.0), "width"),
    (lambda: bradley_terry(np.ones((1, 1, 1))), "two methods"),
]

SHORT_POOL = [
    (
        lambda: subsets([3, 1], [[2], [2]], [1, 4]),
        r"Question 1 has a pool of 3 samples; draws of 4",
    ),
    (lambda: pass_at_k(A([1]), A([3]), [4]), "Question 0 has a pool of 3"),
    (
        lambda: hypergeometric_majority([1, 1], [6, 3], 5),
        r"5 votes were asked for, and 3 calls are recorded at index \[1\]",
    ),
    (lambda: mixture_from_counts(CELLS, 6, [0.5, 0.5], [3]), "7 votes need"),
]

UNKNOWN_NAME = [
    (lambda: subsets([3], [[2]], [1], ties="last"), "rule for ties 'last'"),
    (lambda: gaussian_estimate(*HALF[:2], [1], mode="exact"), "'exact'"),
]

CASES = [
    pytest.param(error, call, words, id=words)
    for error, cases in (
        (OutOfRangeError, OUT_OF_RANGE),
        (ShortPoolError, SHORT_POOL),
        (UnknownNameError, UNKNOWN_NAME),
    )
    for call, words in cases
]


@pytest.mark.parametrize(("error", "call", "words"), CASES)
def test_bad_input_is_refused_with_its_place_and_value(error, call, words):
    with pytest.raises(error) as caught:
        call()
    assert re.search(words, str(caught.value), re.DOTALL), str(caught.value)
