"""From the golden entries of coupled generation to calls of the public functions."""

import numpy as np
from golden_plurality import integer, number, numbers

from feval.estimators.coupling import (
    coupled_correctness,
    gumbel_coupling_joint,
    score_difference_variance,
)
from feval.estimators.winrates import average_winrates, scored_winrates, two_token_winrates


def among(correct, size):
    """The right answers as a mask."""
    right = np.zeros(size, bool)
    right[[integer(index) for index in correct]] = True
    return right


def joint(inputs):
    return gumbel_coupling_joint(numbers(inputs["p"]), numbers(inputs["p_prime"])).tolist()


def correctness(inputs):
    p = numbers(inputs["p"])
    result = coupled_correctness(p, numbers(inputs["p_prime"]), among(inputs["correct"], len(p)))
    return {
        "agreement": float(result.agreement),
        "covariance": float(result.covariance),
        "var_diff_coupled": float(result.variance_coupled),
        "var_diff_independent": float(result.variance_independent),
    }


def difference(inputs):
    """Prompts may differ in the number of their answers: what a prompt lacks is never given."""
    prompts = inputs["prompts"]
    width = max(len(prompt["p"]) for prompt in prompts)

    def padded(values):
        return np.pad(values, (0, width - len(values)))

    result = score_difference_variance(
        np.array([padded(numbers(prompt["p"])) for prompt in prompts]),
        np.array([padded(numbers(prompt["p_prime"])) for prompt in prompts]),
        np.array([padded(among(prompt["correct"], len(prompt["p"]))) for prompt in prompts]),
        numbers(inputs["weights"]) if "weights" in inputs else None,
    )
    return {
        "var_independent": result.independent,
        "var_coupled": result.coupled,
        "mean_conditional_covariance": result.within_covariance,
        "total_covariance": result.total_covariance,
    }


def two_tokens(inputs):
    result = two_token_winrates(number(inputs["a"]), number(inputs["b"]))
    return {"coupled": result.coupled[:2].tolist(), "independent": result.independent[:2].tolist()}


def averages(inputs):
    result = average_winrates(np.array([numbers(row) for row in inputs["table"]]))
    return {
        "independent": result.independent.tolist(),
        "coupled": result.coupled.tolist(),
        "ranking_independent": result.ranking_independent.tolist(),
        "ranking_coupled": result.ranking_coupled.tolist(),
    }


def scored(inputs):
    result = scored_winrates(
        numbers(inputs["p"]), numbers(inputs["p_prime"]), numbers(inputs["score"])
    )
    return {"coupled": result.coupled.tolist(), "independent": result.independent.tolist()}


CALLS = {
    "gumbel_coupling_joint": joint,
    "coupled_correctness": correctness,
    "score_difference_variance": difference,
    "two_token_winrates": two_tokens,
    "average_winrates": averages,
    "scored_winrates": scored,
}
