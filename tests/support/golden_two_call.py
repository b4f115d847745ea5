"""The two-call part of the table from the `fn` of a golden entry to the call that computes it.

Numbers of the entries are decimals or fractions as text and are taken exactly. An objective is
written as in "P_3 - P_1" or "2*P_5 - 1/3*q^2".
"""

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np

from feval.estimators.completions import ldgp_completion, maxent_completion
from feval.estimators.mixtures import mixture_from_counts, mixture_from_probabilities
from feval.estimators.moments import Moments, PairTable, pair_table_summary
from feval.estimators.plurality import empirical_vote_accuracy, hypergeometric_majority
from feval.estimators.polynomial_objectives import polynomial_objective_interval
from feval.estimators.vote_intervals import (
    certified_three_vote_gain,
    infinite_vote_interval,
    one_call_envelope,
    three_vote_interval,
    vote_interval,
)
from feval.estimators.vote_polynomials import (
    UnitPolynomial,
    even_vote_accuracy,
    majority_accuracy,
    majority_polynomial,
)
from feval.estimators.wald_regions import wald_projection

Inputs = dict[str, Any]

TERM = re.compile(
    r"([+-]?)\s*(?:([\d./]+)\s*\*?\s*)?(?:P_(\d+)|(q)(?:\^(\d+))?)|([+-]?)\s*(\d[\d./]*)"
)


def moments(inputs):
    if "nu" in inputs:
        return Moments.of(Fraction(inputs["mu"]), Fraction(inputs["nu"]))
    return Moments.from_correlation(Fraction(inputs["mu"]), Fraction(inputs["rho"]))


def objective(text):
    assert not TERM.sub("", text).strip(), f"an objective of another form: {text}"
    total = UnitPolynomial((Fraction(0),))
    for sign, factor, budget, q, power, plain_sign, constant in TERM.findall(text):
        degree = int(power or 1) if q else 0
        term = (
            majority_polynomial(int(budget))
            if budget
            else UnitPolynomial.of_powers([0] * degree + [1])
        )
        total += term * Fraction(f"{sign or plain_sign}{factor or constant or 1}")
    return total


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
    return PairTable.of(inputs["n11"], inputs["n_disagree"], inputs["n00"])


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


CALLS = {
    "P_n": lambda e: float(majority_accuracy(e["n"], float(Fraction(e["q"])))),
    "even_vote_accuracy": lambda e: float(even_vote_accuracy(e["votes"], float(Fraction(e["q"])))),
    "one_call_envelope": lambda e: ends(one_call_envelope(float(Fraction(e["mu"])), e.get("n", 1))),
    "three_vote_interval": lambda e: ends(three_vote_interval(moments(e))),
    "vote_interval": interval_with_laws,
    "infinite_vote_interval": lambda e: ends(infinite_vote_interval(moments(e))),
    "polynomial_objective_interval": lambda e: ends(
        polynomial_objective_interval(objective(e["objective"]), moments(e))
    ),
    "certified_three_vote_gain": gain,
    "pair_table_summary": summary,
    "wald_projection": projection,
    "maxent_completion": completion(maxent_completion),
    "ldgp_completion": completion(ldgp_completion),
    "empirical_V": lambda e: empirical_vote_accuracy(np.array(e["bits"])).mean().tolist(),
    "hypergeometric_majority": lambda e: float(hypergeometric_majority(e["c"], e["K"], e["m"])),
    "mixture_from_probabilities": lambda e: mixture(
        mixture_from_probabilities(fractions(e["q"]), fractions(e["weights"]), range(11))
    ),
    "mixture_from_counts": lambda e: mixture(
        mixture_from_counts(np.array(e["counts"]), e["K"], fractions(e["weights"]))
    ),
}
