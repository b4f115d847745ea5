"""The table from the `fn` of a golden entry of the estimators to the call that computes it.

Numbers of the entries are decimals or fractions as text and are taken exactly.
"""

import math
import re
from fractions import Fraction

import numpy as np
from vote_cases import one_question

from feval.estimators.approximations import gaussian_estimate
from feval.estimators.completions import ldgp_completion, maxent_completion
from feval.estimators.coupling import (
    coupled_correctness,
    gumbel_coupling_joint,
    score_difference_variance,
)
from feval.estimators.mixtures import mixture_from_counts, mixture_from_probabilities
from feval.estimators.moments import Moments, PairTable, pair_table_summary
from feval.estimators.multinomial import plugin_expectation, plurality_accuracy
from feval.estimators.plurality import hypergeometric_majority, subset_plurality_accuracy
from feval.estimators.self_consistency import (
    best_integer_split,
    budget_split,
    icc_variance_phat,
    multiclass_plugin_expectation,
    self_consistency_bound,
    self_consistency_mse_exact,
)
from feval.estimators.vote_intervals import (
    certified_three_vote_gain,
    infinite_vote_interval,
    mean_range,
    one_call_envelope,
    three_vote_interval,
    vote_interval,
)
from feval.estimators.vote_polynomials import even_vote_accuracy, majority_accuracy
from feval.estimators.wald_regions import wald_projection
from feval.estimators.winrates import average_winrates, scored_winrates, two_token_winrates


def moments(inputs):
    mu = Fraction(inputs["mu"])
    nu = inputs["nu"] if "nu" in inputs else mu * mu + Fraction(inputs["rho"]) * mu * (1 - mu)
    return Moments.from_values(float(mu), float(Fraction(nu)))


def gain_interval(inputs):
    """The ends of V_m - V_n, by a linear program."""
    m, n = map(int, re.findall(r"P_(\d+)", inputs["objective"]))

    def gain(q):
        return majority_accuracy(m, q) - majority_accuracy(n, q)

    mu, nu = (float(Fraction(inputs[name])) for name in ("mu", "nu"))
    found = mean_range(gain, Moments.from_values(mu, nu))
    assert found.gap < 1e-9
    return [float(found.lower), float(found.upper)]


def ends(interval):
    return [float(interval.low), float(interval.high)]


def with_law(name, bound):
    atoms, weights = bound.law()
    return {
        name: float(bound.value),
        f"{name}_atoms": atoms.tolist(),
        f"{name}_weights": weights.tolist(),
    }


def interval_with_laws(inputs):
    interval = vote_interval(inputs["n"], moments(inputs))
    return with_law("L", interval.lower) | with_law("U", interval.upper)


def summary(inputs):
    result = pair_table_summary(table(inputs))
    return {name: value_or_none(value) for name, value in vars(result).items()}


def value_or_none(value):
    """Entries write null where there is no value."""
    return None if math.isnan(value) else float(value)


def table(inputs):
    return PairTable.from_counts(inputs["n11"], inputs["n_disagree"], inputs["n00"])


def projection(inputs):
    n = inputs["n"] if isinstance(inputs["n"], int) else math.inf
    result = wald_projection(table(inputs), n, float(Fraction(inputs.get("level", "0.95"))))
    return None if result.empty else ends(result)


def gain(inputs):
    result = certified_three_vote_gain(moments(inputs))
    return {"certified": bool(result.certified), "L1_minus_mu": float(result.gain)}


def completion(complete):
    def call(inputs):
        requested = inputs["n"] if isinstance(inputs["n"], list) else [inputs["n"]]
        result = complete(moments(inputs), requested)
        votes = {str(n): float(v) for n, v in zip(result.budgets, result.votes, strict=True)}
        numbers = {
            name: value_or_none(value)
            for name, value in vars(result).items()
            if name not in ("budgets", "votes")
        }
        return numbers | {"V": votes, "Vinf": float(result.infinite_votes)}

    return call


def mixture(result):
    curve = {f"V{n}": float(v) for n, v in zip(result.budgets, result.votes, strict=True)}
    return {"mu": float(result.mu), "nu": float(result.nu)} | curve


def fractions(values):
    return (
        [fractions(value) for value in values]
        if isinstance(values, list)
        else float(Fraction(values))
    )


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
    size = counts[0] + sum(counts[1]) + counts[2]
    draws = range(1, size + 1) if inputs.get("N") is None else votes_of(inputs.get("N"))
    values = subset_plurality_accuracy(
        *one_question(*counts), draws, ties=inputs.get("tie", "uniform")
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


def bias_of_two(p, n):
    """How much the plug-in of two answers underestimates."""
    laws = np.stack([p, 1 - p], axis=-1)
    return laws.min(axis=-1) - multiclass_plugin_expectation(laws, n)


def mean_squared_error(inputs):
    weights = inputs.get("weights")
    m, n = integer(inputs["m"]), integer(inputs["n"])
    return self_consistency_mse_exact(
        numbers(inputs["p"]), None if weights is None else numbers(weights), m, n
    )


def variance_of_share(inputs):
    """By the design effect, the factor of the third term of the bound."""
    p, n, icc = number(inputs["p"]), integer(inputs["n"]), number(inputs["icc"])
    extra = self_consistency_bound(1, n, icc) - self_consistency_bound(1, n)
    return float(p * (1 - p) / n * (1 + 2 * n * extra))


def votes_of(value):
    return [integer(v) for v in value] if isinstance(value, list) else [integer(value)]


def one_or_all(numbers_of_votes, values):
    return values.tolist() if isinstance(numbers_of_votes, list) else float(values[0])


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


def empirical(inputs):
    bits = np.array(inputs["bits"])
    calls, right = bits.shape[1], bits.sum(axis=1)
    return [float(hypergeometric_majority(right, calls, m).mean()) for m in range(1, calls + 1, 2)]


CALLS = {
    "P_n": lambda e: float(majority_accuracy(e["n"], float(Fraction(e["q"])))),
    "even_vote_accuracy": lambda e: float(even_vote_accuracy(e["votes"], float(Fraction(e["q"])))),
    "one_call_envelope": lambda e: ends(one_call_envelope(float(Fraction(e["mu"])), e.get("n", 1))),
    "three_vote_interval": lambda e: ends(three_vote_interval(moments(e))),
    "vote_interval": interval_with_laws,
    "infinite_vote_interval": lambda e: ends(infinite_vote_interval(moments(e))),
    "polynomial_objective_interval": gain_interval,
    "certified_three_vote_gain": gain,
    "pair_table_summary": summary,
    "wald_projection": projection,
    "maxent_completion": completion(maxent_completion),
    "ldgp_completion": completion(ldgp_completion),
    "empirical_V": empirical,
    "hypergeometric_majority": lambda e: float(hypergeometric_majority(e["c"], e["K"], e["m"])),
    "mixture_from_probabilities": lambda e: mixture(
        mixture_from_probabilities(fractions(e["q"]), fractions(e["weights"]), range(11))
    ),
    "mixture_from_counts": lambda e: mixture(
        mixture_from_counts(np.array(e["counts"]), e["K"], fractions(e["weights"]))
    ),
    "plurality_accuracy": plurality,
    "subset_plurality_accuracy": subset,
    "gaussian_estimate": gaussian,
    "plugin_monte_carlo_expectation": expectation,
    "self_consistency_bias": lambda i: float(
        bias_of_two(np.float64(number(i["p"])), integer(i["n"]))
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
    "gumbel_coupling_joint": joint,
    "coupled_correctness": correctness,
    "score_difference_variance": difference,
    "two_token_winrates": two_tokens,
    "average_winrates": averages,
    "scored_winrates": scored,
}
