"""What the estimators say to inputs that cannot be: an error of feval's with place and value, never
NumPy's.
"""

import re
from math import nan

import numpy as np
import pytest

from feval.errors import OutOfRangeError, ShortPoolError, UnknownNameError
from feval.estimators.approximations import gaussian_estimate, monte_carlo_plurality_accuracy
from feval.estimators.comparisons import accuracy_at, bradley_terry, hull_area
from feval.estimators.coupling import (
    coupled_correctness,
    coupled_statistics,
    equal_error_samples,
    estimation_error,
    gumbel_coupling_joint,
    laws_of_counts,
)
from feval.estimators.diagnostics import mass_by_rank
from feval.estimators.intervals import (
    accuracy_interval,
    bootstrap_interval,
    bootstrap_means,
    difference_test,
)
from feval.estimators.mixtures import best_mixture, mixture_from_counts
from feval.estimators.moments import Moments, PairTable, pair_table
from feval.estimators.multinomial import (
    plugin_expectation,
    plugin_plurality_accuracy,
    plurality_accuracy,
)
from feval.estimators.per_question import MOST_VOTES, PerQuestion
from feval.estimators.plurality import (
    g_pass_at_k,
    hypergeometric_majority,
    mean_output_tokens,
    mg_pass_at_k,
    pass_at_k,
    pass_hat_k,
    subset_plurality_accuracy,
    vote_counts,
)
from feval.estimators.self_consistency import (
    best_integer_split,
    budget_split,
    multiclass_plugin_expectation,
    self_consistency_bias,
    self_consistency_bound,
    self_consistency_error,
)
from feval.estimators.vote_intervals import vote_interval
from feval.estimators.vote_polynomials import budget_index
from feval.estimators.wald_regions import simultaneous_gains, wald_projection
from feval.estimators.winrates import average_winrates, sampled_winrates, two_token_winrates

A = np.array
HALF = A([0.5]), A([[0.5]]), A([0.0])
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
    (r"mu, nu.*\(3,\).*\(2,\)", Moments.from_values, [0.5, 0.2, 0.3], [0.3, 0.1]),
    ("mu is .*half", Moments.from_values, "half", 0.3),
    ("shapes of mu, nu do not match", Moments.from_values, [0.5, [0.3]], 0.2),
    (r"nu = 0.2 at index \[1\]: nu < mu\^2", Moments.from_values, [0.5, 0.5], [0.3, 0.2]),
    (r"mu = 0.5 and nu = 0.6 at index \[0\]: nu > mu", Moments.from_values, [0.5], [0.6]),
    (r"mu is 1\.5 at index \[0\]", Moments.from_values, [1.5], [0.6]),
    (r"whole number; 2\.5", budget_index, 2.5),
    (r"as accurate as 5: ask for 5 votes, n = 2", budget_index, 6),
    ("whole n from 0", vote_interval, -1, Moments.from_values(0.5, 0.3)),
    ("whole n from 0", vote_interval, True, Moments.from_values(0.5, 0.3)),
    ("both_right, disagree, both_wrong", PairTable.from_counts, [1, 2], [1, 2, 3], 1),
    (r"disagree is -2 at index \[1\]", PairTable.from_counts, [1, 1], [3, -2], [1, 1]),
    ("both_right has the type float64", PairTable.from_counts, 1.5, 2, 3),
    (r"2/9/1 at index \[1\] has nu < mu\^2", PairTable.from_counts([5, 2], [1, 9], [5, 1]).moments),
    ("bits.*inhomogeneous", pair_table, [[0, 1], [1]]),
    ("there is one", pair_table, [[1], [0]]),
    (r"whole number; 1\.5", hypergeometric_majority, [2], [3], 1.5),
    (r"bits is 2 at index \[0, 1\]", pair_table, [[0, 2, 1]]),
    ("right, size", hypergeometric_majority, [1, 2, 3], [5, 5], 3),
    (r"4 of 3 calls are right at index \[2\]", hypergeometric_majority, [0, 1, 4], 3, 1),
    (
        r"between 0 and 1, such as 0\.95; 1\.0",
        wald_projection,
        PairTable.from_counts(3, 3, 3),
        1,
        1.0,
    ),
    ("One question", wald_projection, PairTable.from_counts(1, 0, 0), 1),
    ("question 2 has 9 right of 5 calls", simultaneous_gains, [3, 4, 9], [5, 5, 5], [1], 0.95),
    ("n = -1", mixture_from_counts, [[1, 3]], 3, [0.5, 0.5], [-1]),
    (r"size 3\.5", mixture_from_counts, [[1, 3]], 3.5, [0.5, 0.5]),
    ("weights of one policy", mixture_from_counts, [[1, 3]], 3, 1.0),
    (
        r"weights at index \[1\] sum to 1\.1",
        mixture_from_counts,
        [[1, 3]],
        3,
        [[0.5, 0.5], [0.5, 0.6]],
    ),
    (r"counts is 6 at index \[1, 1\]", mixture_from_counts, CELLS, 5, [0.5, 0.5]),
    ("as accurate as 3", best_mixture, CELLS, 6, 4),
    ("two policies or more", best_mixture, CELLS[:, :1], 6, 5),
    # votes
    ("Answer probabilities are numbers", plurality_accuracy, ["a"], *HALF[1:], [1]),
    ("question 0 sum to 0.7", plurality_accuracy, [0.2], *HALF[1:], [1]),
    (r"question 1 has 1.2 in correct", sampled, [0.5, 1.2], [[0.5], [-0.2]], [0, 0]),
    (r"question 1 has -0.2 in rivals", sampled, [0.5, 0.7], [[0.5], [-0.2]], [0, 0.5]),
    (r"shapes are \(1,\), \(1,\)", sampled, [0.5], [0.5], [0.0]),
    ("0 stands at place 0", plurality_accuracy, *HALF, [0]),
    ("place 1", plurality_accuracy, *HALF, [3, MOST_VOTES + 1]),
    ("not", plurality_accuracy, *HALF, [1.5]),
    ("Question 1 has no samples", plugin_plurality_accuracy, [1, 0], [[1], [0]], ZEROS, [1]),
    ("gold holds float64", plugin_plurality_accuracy, [1.0, 0], [[1], [0]], ZEROS, [1]),
    ("from 1 to 1,000 calls; 0", plugin_expectation, *HALF, 0, [1]),
    (
        "the 10 answers of question 1 have",
        plugin_expectation,
        [0.5, 0.1],
        [[0.5] + [0.0] * 8, [0.1] * 9],
        np.zeros(2),
        20,
        [1],
    ),
    (r"question 1 has -0\.1 in correct", gaussian_estimate, [0.1, -0.1], np.zeros((2, 1)), [1]),
    ("replicates=1.5", lambda: monte_carlo_plurality_accuracy(*HALF, [1], replicates=1.5)),
    ("seed=-1", lambda: monte_carlo_plurality_accuracy(*HALF, [1], seed=-1)),
    ("each of the 1 questions", lambda: monte_carlo_plurality_accuracy(*HALF, [1], keys=[1, 2])),
    ("question 0 has -1 in rivals", subsets, [3], [[-1]], [1]),
    ("gold holds float64", subsets, [0.5], [[1]], [1]),
    ("the shapes are", subsets, [3, 3], [[1]], [1]),
    (r"Question 1 has a pool of 1,001 samples", subsets, [1, 1000], [[1], [1]], [1]),
    ("no questions", subsets(np.zeros(0, int), np.zeros((0, 3), int), [1]).mean),
    ("question 0 has 4 of 3", pass_at_k, [4], [3], [1]),
    ("shapes are", pass_hat_k, [4], [5, 5], [1]),
    ("share of k.*1.5", g_pass_at_k, [1], [3], [1], 1.5),
    ("share of k.*'1/0'", g_pass_at_k, [1], [3], [1], "1/0"),
    ("share of k.*'1E99999999'", g_pass_at_k, [1], [3], [1], "1E99999999"),
    ("even k.* 3 was", mg_pass_at_k, [1], [3], [2, 3]),
    ("Question 0 has no samples", mass_by_rank, [0], [[0]], [0]),
    ("shapes are", vote_counts, np.zeros(3, np.int8), np.zeros(3, np.int8)),
    ("codes are float64", vote_counts, np.zeros((3, 2)), np.zeros(3, np.int8)),
    ("-3 was found", vote_counts, np.full((3, 2), -3), np.zeros(3, np.int8)),
    ("65,536", vote_counts, np.zeros((1, 65_536), np.int8), np.zeros(1, np.int8)),
    ("Question 1 has no samples", mean_output_tokens, np.zeros((2, 3), int), A([3, 0])),
    ("shapes are", mean_output_tokens, np.zeros((2, 3), int), A([3])),
    (
        "4 and for 1",
        PerQuestion(np.ones((1, 1)), [0] * 4).beside,
        PerQuestion(np.ones((1, 1)), [0]),
    ),
    # self-consistency
    (r"p is 1\.2\. Correct", self_consistency_error, 1.2),
    (r"1\.1 at index \[1\]", self_consistency_error, [0.1, 1.1]),
    ("p, n", self_consistency_bias, [0.2, 0.3], [1, 2, 3]),
    (r"n holds float64", self_consistency_bias, 0.5, [2.0]),
    (
        r"those of p at index \[1\] sum to 0\.9",
        multiclass_plugin_expectation,
        [[0.5, 0.5], [0.5, 0.4]],
        2,
    ),
    (r"the shape is \(\)", multiclass_plugin_expectation, np.float64(1.0), 2),
    (r"2\.5 were given", multiclass_plugin_expectation, [0.5, 0.5], 2.5),
    (r"-0\.1 was given", self_consistency_bound, 5, 5, -0.1),
    (r"m holds 0\.5 at index \[1\]", self_consistency_bound, [3.0, 0.5], 2.0),
    ("shapes of m, n", self_consistency_bound, [3.0, 5.0], [1.0, 2.0, 3.0]),
    (r"0 was given", budget_split, 0),
    (r"7\.5 was given", best_integer_split, 7.5),
    # coupled LLMs
    ("shape", gumbel_coupling_joint, [0.5, 0.5], [1.0]),
    (r"\[0, 1\]", gumbel_coupling_joint, [1.5, -0.5], [0.5, 0.5]),
    ("one answer or more", gumbel_coupling_joint, [], []),
    ("booleans", coupled_correctness, [1.0], [1.0], [1]),
    ("are all 0", laws_of_counts, [[1, 0], [0, 0]]),
    ("two calls or more", coupled_statistics, [[1]], [[0]]),
    ("one shape", coupled_statistics, [[1, 0]], [[0]]),
    ("finite", coupled_statistics, [[1, nan]], [[0, 1]]),
    ("1, 0 or -1", estimation_error, [0.5], [1]),
    ("from 1 to the 2", estimation_error, [1, 0], [3]),
    ("no error to match", equal_error_samples, [[1, 0]], [[0, 0]], 1),
    ("same questions", equal_error_samples, [[1, 0]], [[0, 0], [1, 0]], 1),
    ("two or more", sampled_winrates, [[1.0]], [[0.0]], "other"),
    ("two LLMs", average_winrates, [[0.5]]),
    ("shapes of a, b do not match", two_token_winrates, [0.5, 0.5], [0.1, 0.2, 0.3]),
    # intervals, tests, frontiers and rankings
    ("Question 2 holds nan in column 1", bootstrap_interval, [[0.5, 0.5], [0.5, 0.5], [0.5, nan]]),
    (
        "Question 1 holds inf in column 0",
        bootstrap_means,
        PerQuestion(A([[0.0], [np.inf]]), A([0, 1])),
    ),
    ("needs questions", bootstrap_interval, np.zeros((0, 2))),
    (r"shape \(3,\)", bootstrap_interval, np.zeros(3)),
    ("confidence", lambda: bootstrap_interval(CURVE, confidence=1.0)),
    ("resamples=0", lambda: bootstrap_interval(CURVE, resamples=0)),
    ("seed", lambda: bootstrap_interval(CURVE, seed=1 << 128)),
    (r"lie in \[-1, 1\]", difference_test, [[0.5], [-1.5]]),
    (r"lie in \[0, 1\]", accuracy_interval, [[0.5], [-0.5]]),
    ("between its ends", accuracy_at, 0.5, COSTS, CURVE),
    ("has no accuracy", accuracy_at, 0.5, A([0.0, 64.0]), CURVE),
    ("cheapest", hull_area, COSTS, CURVE, 0.5, 2.0),
    ("width", hull_area, COSTS, CURVE, 2.0, 2.0),
    ("two methods", bradley_terry, np.ones((1, 1, 1))),
]

SHORT_POOL = [
    (r"Question 1 has a pool of 3 samples; draws of 4", subsets, [3, 1], [[2], [2]], [1, 4]),
    ("Question 0 has a pool of 3", pass_at_k, [1], [3], [4]),
    ("Question 1 has a pool of 3 .* draws of 4", mg_pass_at_k, [1, 1], [4, 3], [4]),
    (
        r"5 votes were asked for, and 3 calls are recorded at index \[1\]",
        hypergeometric_majority,
        [1, 1],
        [6, 3],
        5,
    ),
    ("7 votes need", mixture_from_counts, CELLS, 6, [0.5, 0.5], [3]),
]

UNKNOWN_NAME = [
    ("rule for ties 'last'", lambda: subsets([3], [[2]], [1], ties="last")),
    ("'exact'", lambda: gaussian_estimate(*HALF[:2], [1], mode="exact")),
]

CASES = [
    pytest.param(error, call, arguments, words, id=words)
    for error, cases in (
        (OutOfRangeError, OUT_OF_RANGE),
        (ShortPoolError, SHORT_POOL),
        (UnknownNameError, UNKNOWN_NAME),
    )
    for words, call, *arguments in cases
]


@pytest.mark.parametrize(("error", "call", "arguments", "words"), CASES)
def test_bad_input_is_refused_with_its_place_and_value(error, call, arguments, words):
    with pytest.raises(error) as caught:
        call(*arguments)
    assert re.search(words, str(caught.value), re.DOTALL), str(caught.value)
