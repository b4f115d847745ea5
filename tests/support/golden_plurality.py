"""From the golden entries of plurality voting and self-consistency error to calls of the public
functions.
"""

from fractions import Fraction
from typing import Any

import numpy as np

from feval.estimators.approximations import gaussian_estimate
from feval.estimators.multinomial import plugin_expectation, plurality_accuracy
from feval.estimators.plurality import subset_plurality_accuracy
from feval.estimators.self_consistency import (
    best_integer_split,
    budget_split,
    icc_variance_phat,
    multiclass_plugin_expectation,
    self_consistency_bias,
    self_consistency_bound,
    self_consistency_mse_exact,
)

Inputs = dict[str, Any]


def number(text):
    """A decimal or fraction string, or a number."""
    return float(Fraction(text))


def numbers(texts):
    return np.array([number(text) for text in texts], np.float64)


def integer(text):
    value = Fraction(text)
    assert value.denominator == 1, text
    return int(value)


def shares(inputs):
    """Probabilities of one question."""
    rivals = numbers(inputs["p_rivals"])[None, :]
    return numbers([inputs["p_correct"]]), rivals, numbers([inputs.get("p_none", 0)])


def plurality(inputs):
    votes = votes_of(inputs["M"])
    return one_or_all(
        inputs["M"],
        plurality_accuracy(
            *shares(inputs), votes, ties=inputs.get("tie", "uniform")
        ).per_question()[0],
    )


def subset(inputs):
    counts = [
        integer(inputs["count_correct"]),
        [integer(c) for c in inputs["count_rivals"]],
        integer(inputs.get("count_none", 0)),
    ]
    arrays = (
        np.array([counts[0]]),
        np.array([counts[1]], np.int64).reshape(1, -1),
        np.array([counts[2]]),
    )
    size = counts[0] + sum(counts[1]) + counts[2]
    draws = range(1, size + 1) if inputs.get("N") is None else votes_of(inputs.get("N"))
    values = subset_plurality_accuracy(
        *arrays, draws, ties=inputs.get("tie", "uniform")
    ).per_question()[0]
    return values.tolist() if inputs.get("N") is None else one_or_all(inputs.get("N"), values)


def gaussian(inputs):
    correct, rivals, _ = shares(inputs)
    values = gaussian_estimate(
        correct, rivals, votes_of(inputs["M"]), mode=inputs.get("mode", "guarded")
    ).per_question()[0]
    return one_or_all(inputs["M"], values)


def expectation(inputs):
    result = plugin_expectation(
        *shares(inputs),
        integer(inputs["G"]),
        votes_of(inputs["M"]),
        ties=inputs.get("tie", "uniform"),
    )
    return one_or_all(inputs["M"], result.per_question()[0])


def best_split(inputs):
    split = best_integer_split(integer(inputs["B"]), number(inputs.get("icc", 0)))
    return {"m": split.m, "n": split.n, "bound": split.bound}


def real_split(inputs):
    split = budget_split(number(inputs["B"]), number(inputs.get("icc", 0)))
    return [split.m, split.n]


def mean_squared_error(inputs):
    weights = inputs.get("weights")
    m, n = integer(inputs["m"]), integer(inputs["n"])
    return self_consistency_mse_exact(
        numbers(inputs["p"]), None if weights is None else numbers(weights), m, n
    )


def votes_of(value):
    return [integer(v) for v in value] if isinstance(value, list) else [integer(value)]


def one_or_all(numbers_of_votes, values):
    return values.tolist() if isinstance(numbers_of_votes, list) else float(values[0])


CALLS = {
    "plurality_accuracy": plurality,
    "subset_plurality_accuracy": subset,
    "gaussian_estimate": gaussian,
    "plugin_monte_carlo_expectation": expectation,
    "self_consistency_bias": lambda i: float(
        self_consistency_bias(number(i["p"]), integer(i["n"]))
    ),
    "self_consistency_bound": lambda i: float(
        self_consistency_bound(number(i["m"]), number(i["n"]), number(i.get("icc", 0)))
    ),
    "budget_split": real_split,
    "best_integer_split": best_split,
    "multiclass_plugin_expectation": lambda i: float(
        multiclass_plugin_expectation(numbers(i["p"]), integer(i["n"]))
    ),
    "icc_variance_phat": lambda i: float(
        icc_variance_phat(number(i["p"]), integer(i["n"]), number(i["icc"]))
    ),
    "self_consistency_mse_exact": mean_squared_error,
}
