"""The table from the `fn` of a golden entry of the estimators to the call that computes it.

Numbers of the entries are decimals or fractions as text and are taken exactly.
"""

import math
import re
from fractions import Fraction

import numpy as np
from scipy.stats import binom
from vote_cases import one_question

from feval.estimators.approximations import gaussian_estimate
from feval.estimators.completions import ldgp_completion, maxent_completion
from feval.estimators.coupling import coupled_correctness, gumbel_coupling_joint
from feval.estimators.mixtures import mixture_from_counts
from feval.estimators.moments import Moments, PairTable, pair_table_summary
from feval.estimators.multinomial import plugin_expectation, plurality_accuracy
from feval.estimators.plurality import hypergeometric_majority, subset_plurality_accuracy
from feval.estimators.self_consistency import (
    best_integer_split,
    budget_split,
    multiclass_plugin_expectation,
    self_consistency_bound,
)
from feval.estimators.vote_intervals import (
    certified_three_vote_gain,
    infinite_vote_interval,
    mean_range,
    vote_interval,
)
from feval.estimators.vote_polynomials import majority_accuracy
from feval.estimators.wald_regions import wald_projection
from feval.estimators.winrates import average_winrates, two_token_winrates


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


def envelope(inputs):
    """The widest intervals of all second moments: of Q = mu, and of Q = 0 or 3/4."""
    mu = float(Fraction(inputs["mu"]))
    interval = vote_interval(1, Moments.from_values(mu, [mu * mu, 0.75 * mu]))
    return [float(interval.low[0]), float(interval.high[1])]


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
    """Of the squared mean bias and the variance of a question's min(k, n - k) / n."""
    p, q = numbers(inputs["p"]), numbers(inputs["weights"])
    m, n = integer(inputs["m"]), integer(inputs["n"])
    k = np.arange(n + 1)
    chances, values = q @ binom.pmf(k, n, p[:, None]), np.minimum(k, n - k) / n
    variance = chances @ values**2 - (chances @ values) ** 2
    return float((q @ bias_of_two(p, n)) ** 2 + variance / m)


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
    """Over prompts: the means within, and what lies between them."""
    each = [
        coupled_correctness(p, numbers(prompt["p_prime"]), among(prompt["correct"], len(p)))
        for prompt in inputs["prompts"]
        for p in [numbers(prompt["p"])]
    ]
    first, second, within, coupled, apart = (
        np.array([getattr(one, name) for one in each])
        for name in ("first", "second", "covariance", "variance_coupled", "variance_independent")
    )
    between = np.var(first - second)
    return {
        "var_independent": float(apart.mean() + between),
        "var_coupled": float(coupled.mean() + between),
        "mean_conditional_covariance": float(within.mean()),
        "total_covariance": float(within.mean() + np.cov(first, second, ddof=0)[0, 1]),
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
    """The higher score wins."""
    p, q, score = (numbers(inputs[name]) for name in ("p", "p_prime", "score"))
    order = np.sign(score[:, None] - score)
    laws = {"coupled": gumbel_coupling_joint(p, q), "independent": np.outer(p, q)}
    return {
        name: [float(law[order == sign].sum()) for sign in (1, -1, 0)] for name, law in laws.items()
    }


def empirical(inputs):
    bits = np.array(inputs["bits"])
    calls = bits.shape[1]
    right = bits.sum(axis=1)
    return [float(hypergeometric_majority(right, calls, m).mean()) for m in range(1, calls + 1, 2)]


def known_mixture(inputs):
    """From each policy's probability on each question."""
    q = np.array(fractions(inputs["weights"])) @ np.array(fractions(inputs["q"]))
    votes = {f"V{n}": float(majority_accuracy(n, q).mean()) for n in range(11)}
    return {"mu": float(q.mean()), "nu": float((q * q).mean())} | votes


CALLS = {
    "P_n": lambda e: float(majority_accuracy(e["n"], float(Fraction(e["q"])))),
    "even_vote_accuracy": lambda e: float(
        majority_accuracy(e["votes"] // 2 - 1, float(Fraction(e["q"])))
    ),
    "one_call_envelope": envelope,
    "three_vote_interval": lambda e: ends(vote_interval(1, moments(e))),
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
    "mixture_from_probabilities": known_mixture,
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
    "icc_variance_phat": variance_of_share,
    "self_consistency_mse_exact": mean_squared_error,
    "gumbel_coupling_joint": joint,
    "coupled_correctness": correctness,
    "score_difference_variance": difference,
    "two_token_winrates": two_tokens,
    "average_winrates": averages,
    "scored_winrates": scored,
}
