"""The two-call estimators against reference values, the paper's tables, enumeration, linear programs and random laws."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from itertools import combinations, pairwise, product
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_two_call import CALLS, objective
from hypothesis import given, settings
from hypothesis import strategies as st

from feval.errors import OutOfRangeError, ShortPoolError
from feval.estimators.two_call.completions import ldgp_completion, maxent_completion
from feval.estimators.two_call.mixtures import (
    best_mixture,
    mixture_from_counts,
    mixture_from_probabilities,
    overtaking_pairs,
)
from feval.estimators.two_call.moments import Moments
from feval.estimators.two_call.pair_table import PairTable, pair_table, pair_table_summary
from feval.estimators.two_call.polynomial_minima import least_distances
from feval.estimators.two_call.polynomial_objectives import polynomial_objective_interval
from feval.estimators.two_call.vote_intervals import (
    VoteInterval,
    certified_three_vote_gain,
    infinite_vote_interval,
    one_call_envelope,
    three_vote_interval,
    vote_interval,
)
from feval.estimators.two_call.wald_regions import likelihood_projection, simultaneous_gains, wald_projection
from feval.estimators.vote_polynomials import (
    UnitPolynomial,
    budget_index,
    even_vote_accuracy,
    least_value,
    majority_accuracy,
    majority_polynomial,
)
from feval.estimators.votes.empirical_votes import empirical_vote_accuracy, hypergeometric_majority

PROBABILITY = st.floats(0.0, 1.0)
BUDGETS = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 10, 25, 50, 100, 500])


def table_of_moments(count: int = 400, seed: int = 0) -> Moments:
    """Random moments, with the ends of rho and mu and both neighbourhoods of them."""
    rng = np.random.default_rng(seed)
    mu = [*rng.random(count), 0.0, 0.0, 1.0, 1.0, *np.repeat([0.5, 0.3, 0.97], 6)]
    rho = [*rng.beta(0.4, 0.4, count), 0.0, 1.0, 0.0, 1.0, *np.tile([0.0, 1e-14, 1e-6, 1 - 1e-6, 1 - 1e-14, 1.0], 3)]
    return Moments.from_correlation(mu, rho)


# -- reference values -----------------------------------------------------------------------------------------------


def compare(found: Any, expected: Any, tolerance: float, part: str) -> None:
    if isinstance(expected, dict):
        for name, value in expected.items():
            compare(found[name], value, tolerance, name)
    elif expected is None or isinstance(expected, bool):
        assert found is expected
    elif re.fullmatch(r"[LU]_(atoms|weights)|lam|kap|eta|gamma", part):  # notes of the entries allow them less digits
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-7)
    else:
        assert found == pytest.approx(expected, rel=0.0, abs=tolerance)


def test_every_two_call_function_matches_its_reference_values(shared: Path) -> None:
    entries = json.loads((shared / "golden" / "estimators.json").read_text("utf-8"))["cases"]
    assert set(CALLS) <= {entry["fn"] for entry in entries}
    for entry in entries:
        if entry["fn"] in CALLS:
            compare(CALLS[entry["fn"]](entry["inputs"]), entry["expected"], entry["tol"], entry["id"])


@pytest.fixture(scope="module")
def tables(shared: Path) -> Any:
    return json.loads((shared / "golden" / "paper_tables.json").read_text("utf-8"))


def percent(value: float) -> float:
    return round(100.0 * float(value), 2)


def test_table_1_of_the_paper_is_reproduced_to_the_printed_digit(tables: Any) -> None:
    compared = 0
    for rho, row in tables["table1_percent"].items():
        moments = Moments.from_correlation(tables["table1_mu"], float(rho))
        for name, complete in (("ME", maxent_completion), ("LDGP", ldgp_completion)):
            result = complete(moments, [1, 2])
            curve = {"V1": result.votes[0], "V2": result.votes[1], "Vinf": result.infinite_votes}
            for key, value in curve.items():
                assert percent(value) == row[f"{key}_{name}"], (rho, key, name)
                compared += 1
    assert compared == 24


def test_the_intervals_of_table_3_are_reproduced(tables: Any) -> None:
    assert len(tables["table3"]) == 9
    for row in tables["table3"]:
        pairs = PairTable.of(row["n11"], row["n_disagree"], row["n00"])
        summary = pair_table_summary(pairs)
        assert int(pairs.questions) == tables["N"]
        assert [percent(summary.mu), percent(summary.rho)] == [row["printed"]["mu"], row["printed"]["rho"]]
        for n in (1, 2):
            result = wald_projection(pairs, n)
            assert [float(result.low), float(result.high)] == pytest.approx(row[f"hull{n}"], abs=1e-9)
            assert [percent(result.low), percent(result.high)] == row["printed"][f"hull{n}"]


# Table 3's QQP rows: the only pair table of 8,192 questions that rounds to the printed mu and rho, and the printed intervals.
QQP = [
    ((5112, 481, 2599), [61.60, 69.27], [61.02, 69.62]),
    ((3993, 2198, 2001), [56.90, 70.98], [54.07, 74.85]),
    ((3415, 3025, 1752), [57.33, 68.54], [55.95, 73.17]),
    ((5704, 164, 2324), [68.46, 72.82], [68.36, 72.88]),
    ((5420, 731, 2041), [66.27, 75.69], [65.04, 76.39]),
    ((5307, 1010, 1875), [66.15, 77.17], [64.33, 78.39]),
    ((6615, 67, 1510), [79.70, 82.61], [79.67, 82.63]),
    ((6502, 300, 1390), [78.65, 83.96], [78.24, 84.10]),
    ((6451, 357, 1384), [78.16, 84.00], [77.63, 84.18]),
]


@pytest.mark.parametrize(("cells", "three", "five"), QQP)
def test_the_other_intervals_of_table_3_are_reproduced_as_printed(
    cells: tuple[int, int, int], three: list[float], five: list[float]
) -> None:
    for n, printed in ((1, three), (2, five)):
        result = wald_projection(PairTable.of(*cells), n)
        assert [percent(result.low), percent(result.high)] == printed


# -- vote polynomials and recorded calls ----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_majorities_are_sums_of_binomial_terms(n: int) -> None:
    for q in (Fraction(0), Fraction(3, 10), Fraction(1, 2), Fraction(99, 100), Fraction(1)):
        votes = 2 * n + 1
        expected = sum(comb(votes, k) * q**k * (1 - q) ** (votes - k) for k in range(n + 1, votes + 1))
        assert majority_accuracy(n, float(q)) == pytest.approx(float(expected), abs=2e-16, rel=1e-13)
        assert majority_polynomial(n)(float(q)) == pytest.approx(float(expected), abs=2e-16, rel=1e-13)


@given(votes=st.integers(1, 20).map(lambda k: 2 * k), q=PROBABILITY)
def test_an_even_vote_with_fair_ties_equals_the_odd_one_below(votes: int, q: float) -> None:
    terms = [comb(votes, k) * q**k * (1 - q) ** (votes - k) for k in range(votes + 1)]
    with_ties = sum(terms[votes // 2 + 1 :]) + terms[votes // 2] / 2
    assert even_vote_accuracy(votes, q) == pytest.approx(with_ties, abs=1e-13)


def test_an_even_budget_is_refused_with_the_budget_it_equals() -> None:
    with pytest.raises(OutOfRangeError, match=r"as accurate as 5: ask for 5 votes, n = 2"):
        budget_index(6)
    assert [budget_index(votes) for votes in (1, 3, 1001)] == [0, 1, 500]


@given(coefficients=st.lists(st.integers(-20, 20), min_size=1, max_size=6))
def test_the_least_value_of_a_polynomial_is_enclosed(coefficients: list[int]) -> None:
    polynomial = UnitPolynomial.of_powers(coefficients)
    values = np.polynomial.Polynomial(coefficients)
    inner = [float(root.real) for root in values.deriv().roots() if abs(root.imag) < 1e-7 and 0 < root.real < 1]
    lowest = min(float(values(q)) for q in (0.0, 1.0, *inner))
    bound = float(least_value(polynomial, 1e-9))
    assert lowest - 1e-8 <= bound <= lowest + 1e-8


COEFFICIENT = st.one_of(
    st.floats(-1e6, 1e6),
    st.floats(-1e-9, 1e-9),
    st.sampled_from([0.0, 5e-324, -1e-300, 1e200, -1e200, 1 / 3]),
)


@settings(max_examples=150, deadline=None)
@given(
    quadratics=st.lists(st.tuples(COEFFICIENT, COEFFICIENT, COEFFICIENT), min_size=1, max_size=5),
    coefficients=st.lists(st.integers(-20, 20), min_size=1, max_size=7),
    sign=st.sampled_from([1, -1]),
    slack=st.sampled_from([1e-3, 1e-9, 1e-13]),
)
def test_distances_of_a_table_lie_below_the_exact_minima_by_no_more_than_the_slack(
    quadratics: list[tuple[float, float, float]], coefficients: list[int], sign: int, slack: float
) -> None:
    goal = UnitPolynomial.of_powers(coefficients)
    for own, result in zip(quadratics, least_distances(np.array(quadratics), goal, sign, slack).tolist(), strict=True):
        fine = Fraction(max(20, *map(abs, own))) / 10**14
        bound = least_value(sign * (UnitPolynomial.of_powers(own) - goal), float(fine))
        assert Fraction(result) <= bound + fine
        assert Fraction(result) >= bound - Fraction(slack) - 20 * fine


@pytest.mark.slow
def test_margins_of_thousands_of_entries_are_proven_together_and_a_crossing_shows() -> None:
    rng = np.random.default_rng(3)
    mu = rng.random((50, 40))
    bound = polynomial_objective_interval(
        objective("P_3 - P_1"), Moments.from_correlation(mu, rng.random((50, 40)))
    ).upper
    margins = bound.check().dual_margin
    assert margins.shape == (50, 40)
    assert 0.0 < float(margins.min()) <= float(margins.max()) < 1.0
    for index in ((0, 0), (49, 39), (20, 7)):
        assert float(margins[index]) == pytest.approx(float(bound.proven_margin(index)), abs=1e-13)
    crossing = type(bound)(**{**vars(bound), "quadratic": bound.quadratic - np.array([1e-12, 0.0, 0.0])})
    assert float(crossing.check().dual_margin.max()) <= float(margins.max()) - 9e-13
    assert float(crossing.check().dual_margin.min()) < 0.0


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_hypergeometric_majorities_match_enumeration_with_fair_ties(size: int) -> None:
    for right, votes in product(range(size + 1), range(1, size + 1)):
        bits = [1] * right + [0] * (size - right)
        drawn = [2 * sum(some) - votes for some in combinations(bits, votes)]
        expected = sum((d > 0) + (d == 0) / 2 for d in drawn) / len(drawn)
        assert hypergeometric_majority(right, size, votes) == pytest.approx(expected, abs=1e-15)


def test_large_pools_lose_no_digits() -> None:
    values = hypergeometric_majority(np.arange(2001), 2000, 1001)
    assert values[1000] == pytest.approx(0.5, abs=1e-15)
    np.testing.assert_allclose(values + values[::-1], 1.0, atol=1e-15)


def test_empirical_votes_are_unbiased_for_the_vote_polynomials() -> None:
    size, q = 7, 0.63
    chances = [comb(size, c) * q**c * (1 - q) ** (size - c) for c in range(size + 1)]
    for n in range(4):
        mean = np.dot(chances, hypergeometric_majority(np.arange(size + 1), size, 2 * n + 1))
        assert mean == pytest.approx(float(majority_accuracy(n, q)), abs=1e-14)


def test_more_votes_than_calls_and_strange_bits_are_refused_with_their_place() -> None:
    with pytest.raises(ShortPoolError, match=r"5 votes were asked for, and 3 calls are recorded at index \[1\]"):
        hypergeometric_majority([1, 1], [6, 3], 5)
    with pytest.raises(OutOfRangeError, match=r"4 of 3 calls are right at index \[2\]"):
        hypergeometric_majority([0, 1, 4], 3, 1)
    with pytest.raises(OutOfRangeError, match=r"bits\[0, 1\] is 2"):
        empirical_vote_accuracy([[0, 2, 1]])


# -- moments and pair tables ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mu", "nu", "words"),
    [
        ([0.5, 0.5], [0.3, 0.2], r"nu = 0.2 at index \[1\]: nu < mu\^2"),
        ([0.5], [0.6], r"mu = 0.5 and nu = 0.6 at index \[0\]: nu > mu"),
        ([1.5], [0.6], r"mu is 1\.5 at index \[0\]"),
        ([math.nan], [0.6], r"mu is nan at index \[0\]"),
        (Fraction(1, 2), Fraction(1, 5), r"nu < mu\^2"),
    ],
)
def test_moments_that_no_law_has_are_refused_with_index_and_value(mu: Any, nu: Any, words: str) -> None:
    with pytest.raises(OutOfRangeError, match=words):
        Moments.of(mu, nu)


def test_rounded_moments_on_the_boundary_pass() -> None:
    mu = np.arange(0, 101) / 100
    moments = Moments.of(mu, mu * mu)
    assert (moments.variance == 0).all()
    assert (Moments.of(mu, mu).unsteady == 0).all()
    assert Moments.of(0.7, 0.49).variance == 0
    assert Moments.of(0.4, 0.16).variance == 0


def test_the_pair_table_counts_the_first_two_calls() -> None:
    table = pair_table([[1, 1, 0], [1, 0, 1], [0, 1, 1], [0, 0, 0]])
    assert [int(cell) for cell in (table.both_right, table.disagree, table.both_wrong)] == [1, 2, 1]
    assert bool(table.sparse)


@given(bits=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=30))
def test_the_summary_is_the_sample_covariance_of_the_pairs(bits: list[tuple[bool, bool]]) -> None:
    summary = pair_table_summary(pair_table(np.array(bits)))
    x = np.array([[(a + b) / 2, a * b] for a, b in bits])
    covariance = np.cov(x.T, ddof=1)
    assert [float(summary.mu), float(summary.nu)] == pytest.approx(x.mean(0).tolist(), abs=1e-15)
    result = [float(value) for value in (summary.var_x1, summary.cov_x12, summary.var_x2)]
    assert result == pytest.approx([covariance[0, 0], covariance[0, 1], covariance[1, 1]], abs=1e-14)


def test_counts_that_cannot_be_are_refused_with_their_place() -> None:
    with pytest.raises(OutOfRangeError, match=r"disagree is -2 at index \[1\]"):
        PairTable.of([1, 1], [3, -2], [1, 1])
    with pytest.raises(OutOfRangeError, match="both_right has the type float64"):
        PairTable.of(1.5, 2, 3)
    with pytest.raises(OutOfRangeError, match="0 were found"):
        PairTable.of(0, 0, 0)
    with pytest.raises(OutOfRangeError, match="there is one"):
        pair_table([[1], [0]])


def test_a_table_whose_calls_disagree_too_often_has_no_moments() -> None:
    with pytest.raises(OutOfRangeError, match=r"2/9/1 at index \[1\] has nu < mu\^2"):
        PairTable.of([5, 2], [1, 9], [5, 1]).moments()


def test_moments_of_a_table_are_those_of_its_fractions() -> None:
    table = PairTable.of(5946, 1247, 999)
    exact = Moments.of(Fraction(2 * 5946 + 1247, 2 * 8192), Fraction(5946, 8192))
    for name, value in vars(table.moments()).items():
        assert float(value) == pytest.approx(float(getattr(exact, name)), rel=1e-15)


# -- sharp intervals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 10, 50, 100, 500])
def test_every_interval_brings_certificates_that_hold_on_all_of_the_unit_interval(n: int) -> None:
    interval = vote_interval(n, table_of_moments())
    for bound in (interval.lower, interval.upper):
        check = bound.check()
        assert check.holds(5e-13)  # by which quadratics are moved off the vote polynomial
        assert float(check.moment_error.max()) < 1e-13
        assert float(check.dual_margin.min()) > 0.0
        outside = bound.proven - bound.value if bound.side == "upper" else bound.value - bound.proven
        assert 0.0 < float(outside.min()) <= float(outside.max()) < 1e-12
    assert (interval.low <= interval.high + 1e-15).all()
    assert np.isfinite(interval.upper.atoms).all()


def in_powers(polynomial: UnitPolynomial) -> list[Fraction]:
    """Coefficients of q^k, lowest first."""
    degree, result = polynomial.degree, [Fraction(0)] * (polynomial.degree + 1)
    for at, value in enumerate(polynomial.coefficients):
        for k in range(degree - at + 1):
            result[at + k] += value * comb(degree, at) * comb(degree - at, k) * (-1) ** k
    return result


def value_at(powers: list[Fraction], q: Fraction) -> Fraction:
    return sum((c * q**k for k, c in enumerate(powers)), Fraction(0))


def remainder(dividend: list[Fraction], divisor: list[Fraction]) -> list[Fraction]:
    left = dividend[:]
    while len(left) >= len(divisor):
        factor, shift = left[-1] / divisor[-1], len(left) - len(divisor)
        for k, c in enumerate(divisor):
            left[shift + k] -= factor * c
        left.pop()
    while left and not left[-1]:
        left.pop()
    return left


def is_positive_on_the_unit_interval(powers: list[Fraction]) -> bool:
    """By Sturm's theorem: positive at 0 and no root in (0, 1]. Exact throughout."""
    while powers and not powers[-1]:
        powers = powers[:-1]
    if not powers or value_at(powers, Fraction(0)) <= 0:
        return False
    chain = [powers, [k * c for k, c in enumerate(powers)][1:]]
    while chain[-1]:
        chain.append([-c for c in remainder(chain[-2], chain[-1])])
    changes = []
    for end in (Fraction(0), Fraction(1)):
        signs = [value > 0 for value in (value_at(own, end) for own in chain[:-1]) if value]
        changes.append(sum(a != b for a, b in pairwise(signs)))
    return changes[0] == changes[1]


def residual_of(bound: Any, index: Any = ()) -> list[Fraction]:
    goal = majority_polynomial(bound.objective) if isinstance(bound.objective, int) else bound.objective
    difference = UnitPolynomial.of_powers(bound.quadratic[index].tolist()) - goal
    return in_powers(difference if bound.side == "upper" else -difference)


def test_sturms_theorem_tells_touching_and_crossing_from_staying_above() -> None:
    square = [Fraction(1, 4), Fraction(-1), Fraction(1)]  # (q - 1/2)^2
    assert not is_positive_on_the_unit_interval(square)
    assert not is_positive_on_the_unit_interval([square[0] - Fraction(1, 10**30), *square[1:]])
    assert is_positive_on_the_unit_interval([square[0] + Fraction(1, 10**30), *square[1:]])


@settings(max_examples=60, deadline=None)
@given(
    mu=st.one_of(PROBABILITY, st.sampled_from([0.0, 1e-300, 1e-9, 0.5, 1 - 1e-9, 1.0])),
    rho=st.one_of(PROBABILITY, st.sampled_from([0.0, 1e-300, 1e-12, 1 - 1e-12, 1.0])),
    n=st.sampled_from([0, 1, 2, 3, 5, 8]),
)
def test_the_returned_quadratics_dominate_in_exact_rational_arithmetic(mu: float, rho: float, n: int) -> None:
    moments = Moments.from_correlation(mu, rho)
    interval = vote_interval(n, moments)
    for bound in (interval.lower, interval.upper):
        assert is_positive_on_the_unit_interval(residual_of(bound))
        allowed = sum(
            Fraction(c) * Fraction(float(m))
            for c, m in zip(bound.quadratic.tolist(), (1.0, moments.mu, moments.nu), strict=True)
        )
        outside = Fraction(float(bound.proven)) - allowed
        assert (outside if bound.side == "upper" else -outside) >= 0


@pytest.mark.parametrize("text", ["P_3 - P_1", "P_5 - 2*P_2 + P_1", "q - q^2"])
def test_quadratics_of_other_objectives_dominate_in_exact_rational_arithmetic(text: str) -> None:
    interval = polynomial_objective_interval(objective(text), table_of_moments(6))
    for bound in (interval.lower, interval.upper):
        for index in np.ndindex(bound.value.shape):
            assert is_positive_on_the_unit_interval(residual_of(bound, index)), index


EDGES = Moments.from_correlation(
    np.array(
        [
            0.0,
            1.0,
            0.5,
            0.3,
            0.6884467305709401,
            1e-300,
            *10.0 ** -np.arange(2.0, 16),
            *(1 - 10.0 ** -np.arange(2.0, 16)),
        ]
    )[:, None],
    np.array([0.0, 1.0, 0.3, 0.5, *10.0 ** -np.arange(1.0, 18, 2), *(1 - 10.0 ** -np.arange(1.0, 15, 3))]),
)


@pytest.mark.parametrize("text", ["P_3 - P_1", "P_5 - 2*P_2 + P_1", "q - q^2"])
def test_bounds_of_objectives_are_sharp_and_proven_at_the_edges_of_the_moments(text: str) -> None:
    interval = polynomial_objective_interval(objective(text), EDGES)
    for bound in (interval.lower, interval.upper):
        check = bound.check()
        assert check.holds(1e-11), (float(check.moment_error.max()), float(check.gap.max()))
        assert float(check.dual_margin.min()) > 0.0
    if text == "q - q^2":  # mu - nu, whatever the law
        assert interval.low == pytest.approx(EDGES.unsteady, abs=1e-12)
        assert interval.high == pytest.approx(EDGES.unsteady, abs=1e-12)


@pytest.mark.parametrize(
    ("heights", "mu", "rho"),
    [
        ([0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 0], 0.5, 1e-17),
        ([2.04, 4.65, 7.18, -9.81, -6.68, 6.33, 9.72, 1.17], 0.5, 1e-8),
        ([int(c) for c in "110000011001111011010101010001"], 0.9999999, 1e-4),
    ],
)
def test_bounds_are_sharp_where_the_atoms_of_a_law_lie_between_two_points_of_the_grid(
    heights: list[float], mu: float, rho: float
) -> None:
    polynomial = UnitPolynomial(tuple(Fraction(height) for height in heights))
    interval = polynomial_objective_interval(polynomial, Moments.from_correlation(mu, rho))
    for bound in (interval.lower, interval.upper):
        check = bound.check()
        scale = max(abs(height) for height in heights)
        assert float(check.moment_error) < 1e-11
        assert float(check.gap) < 1e-11 * scale
        assert float(bound.proven_margin()) > 0.0


@pytest.mark.parametrize("constant", [Fraction(1, 3), Fraction(0)])
def test_laws_that_attain_a_constant_have_the_moments(constant: Fraction) -> None:
    interval = polynomial_objective_interval(UnitPolynomial((constant,)), EDGES)
    for bound in (interval.lower, interval.upper):
        assert bound.check().holds(1e-11)
        assert bound.value == pytest.approx(np.full(EDGES.shape, float(constant)), abs=1e-12)


@pytest.mark.parametrize("mu", [1e-300, 1e-12, 0.3, 0.49, 0.8721954680])
def test_quadratics_stay_on_their_side_where_the_law_is_all_but_certain(mu: float) -> None:
    """Against the vote polynomial itself on a fine grid of all scales; errors of a double contact must not show."""
    ends = np.concatenate([np.logspace(-300, -3, 200), np.linspace(0, 1, 20_001)])
    q = np.concatenate([ends, 1 - ends])
    for n in (2, 10, 20, 100, 1000):
        interval = vote_interval(n, Moments.from_correlation(mu, [0.0, 1e-300, 1e-12, 1e-6]))
        votes = majority_accuracy(n, q)
        for bound, sign in ((interval.upper, 1.0), (interval.lower, -1.0)):
            for a, b, c in bound.quadratic:
                assert (sign * (a + q * (b + c * q) - votes)).min() > -1e-13, (n, bound.side)


def test_a_certificate_that_was_tampered_with_does_not_pass() -> None:
    bound = vote_interval(2, Moments.of(0.7, 0.6)).upper
    for field, change in (
        ("quadratic", np.array([0, 0, -1e-6])),
        ("weights", np.array([1e-6, 0, 0])),
        ("value", -1e-6),
    ):
        forged = type(bound)(**{**vars(bound), field: getattr(bound, field) + change})
        assert not forged.check().holds()
    assert bound.check().holds()


@pytest.mark.parametrize(("atoms", "error"), [([0.0, 0.5, 0.7], 0.0), ([0.0, 0.5, 1.1], 0.1)])
def test_negative_weights_and_atoms_outside_the_unit_interval_make_no_law(atoms: list[float], error: float) -> None:
    bound = polynomial_objective_interval(majority_polynomial(2), Moments.of(0.7, 0.6)).upper
    places = np.array(atoms)
    weights = np.linalg.solve(places ** np.arange(3)[:, None], [1.0, 0.7, 0.6])
    forged = type(bound)(**{**vars(bound), "atoms": places, "weights": weights})
    assert float(forged.check().moment_error) == pytest.approx(max(error, -weights.min()))
    assert not forged.check().holds()


@settings(max_examples=300, deadline=None)
@given(
    atoms=st.lists(PROBABILITY, min_size=1, max_size=6),
    masses=st.lists(st.floats(0.01, 1.0), min_size=6, max_size=6),
    n=BUDGETS,
)
def test_no_law_has_a_vote_accuracy_outside_its_interval(atoms: list[float], masses: list[float], n: int) -> None:
    q = np.array(atoms)
    weights = np.array(masses[: len(q)]) / sum(masses[: len(q)])
    mu, nu = float(weights @ q), float(weights @ q**2)
    moments = Moments.of(mu, min(max(nu, mu * mu), mu))
    interval = vote_interval(n, moments)
    reached = float(weights @ majority_accuracy(n, q))
    steepness = 1e-14 * (n + 1)  # what rounding of the moments can do to a bound
    assert float(interval.low) - steepness <= reached <= float(interval.high) + steepness
    endless = infinite_vote_interval(moments)
    share = float(weights @ (np.sign(q - 0.5) + 1) / 2)
    if float(moments.variance) > 1e-9:  # below, rounding decides on which side of the discontinuity the moments lie
        assert float(endless.low) - 1e-6 <= share <= float(endless.high) + 1e-6


@settings(max_examples=200, deadline=None)
@given(mu=PROBABILITY, rho=st.one_of(PROBABILITY, st.floats(0.0, 1e-6), st.floats(1 - 1e-6, 1.0)), n=BUDGETS)
def test_certificates_hold_wherever_moments_are(mu: float, rho: float, n: int) -> None:
    interval = vote_interval(n, Moments.from_correlation(mu, rho))
    assert interval.lower.check().holds(1e-12)
    assert interval.upper.check().holds(1e-12)


def linear_program(n: int, mu: float, nu: float, sign: float) -> float:
    """The bound over laws on a fine grid, from SciPy: inside the true interval, by little."""
    from scipy.optimize import linprog

    grid = np.unique(np.concatenate([np.linspace(0, 1, 1501), np.linspace(0.35, 0.65, 601)]))
    done = linprog(
        -sign * majority_accuracy(n, grid),
        A_eq=np.stack([np.ones_like(grid), grid, grid**2]),
        b_eq=[1.0, mu, nu],
        method="highs",
    )
    assert done.status == 0
    return float(-sign * done.fun)


@pytest.mark.parametrize(("mu", "rho"), [(0.7, 0.5), (0.35, 0.1), (0.1, 0.7), (0.55, 0.05), (0.9, 0.3)])
@pytest.mark.parametrize("n", [1, 2, 3, 10, 50])
def test_linear_programs_agree(n: int, mu: float, rho: float) -> None:
    moments = Moments.from_correlation(mu, rho)
    interval = vote_interval(n, moments)
    inner = [linear_program(n, mu, float(moments.nu), sign) for sign in (-1.0, 1.0)]
    room = 2e-6 * (n + 1)  # second order in the spacing of the grid
    assert float(interval.low) - 1e-9 <= inner[0] <= float(interval.low) + room
    assert float(interval.high) - room <= inner[1] <= float(interval.high) + 1e-9


def test_three_votes_have_a_closed_form() -> None:
    moments = table_of_moments()
    closed, general = three_vote_interval(moments), vote_interval(1, moments)
    np.testing.assert_allclose(closed.low, general.low, atol=1e-15)
    np.testing.assert_allclose(closed.high, general.high, atol=1e-15)
    inner = (moments.mu > 0) & (moments.mu < 1)
    mu, rho = moments.mu[inner], moments.rho[inner]
    np.testing.assert_allclose((closed.high - closed.low)[inner], 2 * mu * (1 - mu) * rho * (1 - rho), atol=1e-15)


@pytest.mark.parametrize("n", [1, 2, 7, 500])
def test_intervals_on_the_boundary_are_points(n: int) -> None:
    mu = np.linspace(0, 1, 21)
    homogeneous = vote_interval(n, Moments.from_correlation(mu, 0.0))
    for value in (homogeneous.low, homogeneous.high):
        np.testing.assert_allclose(value, majority_accuracy(n, mu), atol=1e-14)
    stuck = vote_interval(n, Moments.from_correlation(mu, 1.0))
    for value in (stuck.low, stuck.high):
        np.testing.assert_allclose(value, mu, atol=1e-15)


def test_infinite_votes_enclose_large_budgets_and_jump_at_one_half() -> None:
    point = infinite_vote_interval(Moments.of(Fraction(1, 2), Fraction(1, 4)))
    assert (float(point.low), float(point.high)) == (0.5, 0.5)
    counted = infinite_vote_interval(PairTable.of([250, 251], [500, 500], [250, 251]).moments())
    assert [counted.low[0], counted.high[0]] == [0.5, 0.5]
    assert counted.low[1] < 0.01
    assert counted.high[1] > 0.99
    beside = infinite_vote_interval(Moments.from_correlation(0.5, 1e-9))
    assert float(beside.low) < 1e-8
    assert float(beside.high) > 1 - 1e-8
    moments = table_of_moments(50)
    finite, infinite = vote_interval(40_000, moments), infinite_vote_interval(moments)
    apart = np.abs(finite.high - infinite.high)[:50]
    assert np.median(apart) < 0.01


@given(mu=PROBABILITY, rho=PROBABILITY)
def test_a_certified_gain_is_the_lower_end_minus_one_call(mu: float, rho: float) -> None:
    moments = Moments.from_correlation(mu, rho)
    result = certified_three_vote_gain(moments)
    assert float(result.gain) == pytest.approx(float(three_vote_interval(moments).low - moments.mu), abs=1e-15)
    if result.certified:
        assert mu > 0.5
        assert rho < 1 - 1 / (2 * mu) + 1e-12
        assert result.gain > 0


def test_equality_certifies_nothing() -> None:
    edge = [Moments.of(0.8, 0.7), Moments.from_correlation(0.8, 0.375), Moments.of(Fraction(4, 5), Fraction(7, 10))]
    assert not any(bool(certified_three_vote_gain(moments).certified) for moments in edge)
    assert bool(certified_three_vote_gain(Moments.of(0.8, 0.7 - 1e-12)).certified)


@pytest.mark.parametrize("n", [0, 1, 2, 20])
def test_the_mean_alone_certifies_nothing_and_two_moments_lie_within(n: int) -> None:
    moments = table_of_moments(100)
    alone, both = one_call_envelope(moments.mu, n), vote_interval(n, moments)
    assert (alone.low <= moments.mu + 1e-15).all()
    assert (alone.low <= both.low + 1e-14).all()
    assert (both.high <= alone.high + 1e-14).all()


def test_an_n_that_is_no_budget_is_refused() -> None:
    for n in (-1, 1.5, True, 50_001):
        with pytest.raises(OutOfRangeError, match="whole n from 0"):
            vote_interval(n, Moments.of(0.5, 0.3))  # type: ignore[arg-type]


# -- polynomial objectives ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_the_general_program_finds_the_closed_forms(n: int) -> None:
    moments = table_of_moments(100)
    general, closed = polynomial_objective_interval(majority_polynomial(n), moments), vote_interval(n, moments)
    np.testing.assert_allclose(general.low, closed.low, atol=2e-12)
    np.testing.assert_allclose(general.high, closed.high, atol=2e-12)


@pytest.mark.parametrize("text", ["P_3 - P_1", "P_5 - 2*P_2 + P_1", "q - q^2", "P_2 - P_1", "q^3"])
def test_polynomial_objectives_are_certified(text: str) -> None:
    interval: VoteInterval = polynomial_objective_interval(objective(text), table_of_moments(12))
    for bound in (interval.lower, interval.upper):
        assert bound.check().holds(1e-11)


@settings(max_examples=25, deadline=None)
@given(
    powers=st.lists(st.integers(-9, 9), min_size=4, max_size=8),
    atoms=st.lists(PROBABILITY, min_size=3, max_size=5, unique=True),
)
def test_no_law_passes_the_bounds_of_a_polynomial(powers: list[int], atoms: list[float]) -> None:
    q = np.array(atoms)
    mu, nu = float(q.mean()), float((q**2).mean())
    moments = Moments.of(mu, min(max(nu, mu * mu), mu))
    polynomial = UnitPolynomial.of_powers(powers)
    interval = polynomial_objective_interval(polynomial, moments)
    reached = float(np.polynomial.Polynomial(powers)(q).mean())
    assert float(interval.low) - 1e-10 <= reached <= float(interval.high) + 1e-10
    for bound in (interval.lower, interval.upper):
        check = bound.check()
        assert float(check.dual_margin) > -1e-10
        assert float(check.moment_error) < 1e-10


def test_a_gain_of_votes_is_bounded_more_tightly_than_by_two_intervals() -> None:
    moments = Moments.of(0.7, 0.595)
    joint = polynomial_objective_interval(majority_polynomial(3) - majority_polynomial(1), moments)
    seven, three = vote_interval(3, moments), vote_interval(1, moments)
    assert seven.low - three.high < joint.low < joint.high < seven.high - three.low


# -- confidence regions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cells", [(5946, 1247, 999), (40, 30, 10), (12, 9, 11), (9, 3, 60), (9, 22, 9)])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_projection_is_the_hull_over_the_region(cells: tuple[int, int, int], n: int) -> None:
    table = PairTable.of(*cells)
    summary = pair_table_summary(table)
    sigma = np.array([[summary.var_x1, summary.cov_x12], [summary.cov_x12, summary.var_x2]], float) / sum(cells)
    mu, nu = np.meshgrid(np.linspace(0, 1, 801), np.linspace(0, 1, 801))
    away = np.stack([mu - float(summary.mu), nu - float(summary.nu)], -1)
    within = np.einsum("...i,ij,...j->...", away, np.linalg.inv(sigma), away) <= -2 * math.log(0.05)
    remaining = within & (mu * mu <= nu) & (nu <= mu)
    result = wald_projection(table, n)
    assert remaining.sum() > 50
    interval = vote_interval(n, Moments.of(mu[remaining], nu[remaining]))
    assert float(result.low) <= interval.low.min() + 1e-12
    assert float(result.high) >= interval.high.max() - 1e-12
    assert float(result.low) == pytest.approx(interval.low.min(), abs=0.02)
    assert float(result.high) == pytest.approx(interval.high.max(), abs=0.02)


def test_empty_cells_give_segments_points_or_nothing() -> None:
    result = wald_projection(PairTable.of([12, 30, 0, 0, 19, 0], [0, 0, 10, 0, 1, 1], [8, 0, 0, 30, 0, 19]), 2)
    assert result.empty.tolist() == [False, False, True, False, False, False]
    assert bool(wald_projection(PairTable.of(5, 30, 5), 2).empty)  # rho = -1/2, far from any law
    assert result.low[[1, 3, 4, 5]].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert result.high[[1, 3, 4, 5]].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert np.isnan(result.low[2])


def test_the_likelihood_region_is_never_empty_and_never_certain_with_empty_cells() -> None:
    table = PairTable.of([12, 30, 0, 0, 19], [0, 0, 10, 0, 1], [8, 0, 0, 30, 0])
    for n in (1, 2, math.inf):
        result = likelihood_projection(table, n)
        assert not result.empty.any()
        assert (result.high - result.low > 0.01).all()


def test_the_likelihood_region_agrees_with_the_wald_region_in_large_samples() -> None:
    table = PairTable.of(594_600, 124_700, 99_900)
    for n in (0, 1, 2, math.inf):
        wald, likelihood = wald_projection(table, n), likelihood_projection(table, n)
        assert float(wald.low) == pytest.approx(float(likelihood.low), abs=1e-5)
        assert float(wald.high) == pytest.approx(float(likelihood.high), abs=1e-5)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("law", [(40.0, 12.0), (1.2, 0.6)])
def test_simultaneous_gains_are_the_least_over_one_region(n: int, law: tuple[float, float]) -> None:
    from scipy.stats import f as fisher

    rng = np.random.default_rng(7)
    questions, calls, level = 60, 6, 0.9
    right = rng.binomial(calls, rng.beta(*law, questions))
    values = np.stack([right / calls, right * (right - 1) / (calls * (calls - 1))])
    centre, covariance = values.mean(1), np.cov(values) / questions
    mu, nu = np.meshgrid(np.linspace(0, 1, 1501), np.linspace(0, 1, 1501))
    away = np.stack([mu - centre[0], nu - centre[1]], -1)
    distance = np.einsum("...i,ij,...j->...", away, np.linalg.inv(covariance), away)
    hotelling = 2 * (questions - 1) / (questions - 2) * fisher.ppf(level, 2, questions - 2)
    remaining = (distance <= hotelling) & (mu * mu <= nu) & (nu <= mu)
    assert remaining.sum() > 100
    least = (vote_interval(n, Moments.of(mu[remaining], nu[remaining])).low - mu[remaining]).min()
    [result] = simultaneous_gains(right, np.full(questions, calls), [n], level)
    assert (result > 0) == (least > 0) == (law[0] > 10)
    assert result <= least + 1e-12
    assert result == pytest.approx(least, abs=0.01)
    assert simultaneous_gains(right, np.full(questions, calls), [n], 0.99)[0] < result


def test_simultaneous_gains_need_spread_and_questions() -> None:
    assert np.isnan(simultaneous_gains([3] * 20, [3] * 20, [1, 2])).all()
    with pytest.raises(OutOfRangeError, match="3 questions or more"):
        simultaneous_gains([3, 1], [3, 3], [1])


def test_regions_ask_for_two_questions_and_a_level() -> None:
    with pytest.raises(OutOfRangeError, match="One question"):
        wald_projection(PairTable.of(1, 0, 0), 1)
    with pytest.raises(OutOfRangeError, match="between 0 and 1"):
        wald_projection(PairTable.of(3, 4, 5), 1, 1.0)


# -- completions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("complete", [maxent_completion, ldgp_completion])
def test_completed_curves_lie_in_the_sharp_intervals(complete: Any) -> None:
    moments = table_of_moments(80)
    result = complete(moments, [0, 1, 2, 10, 50, 500])
    np.testing.assert_allclose(result.votes[:, 0], moments.mu, atol=2e-13)
    for column, n in enumerate(result.budgets):
        interval = vote_interval(n, moments)
        assert (result.votes[:, column] >= interval.low - 1e-12).all()
        assert (result.votes[:, column] <= interval.high + 1e-12).all()
    endless = infinite_vote_interval(moments)
    assert (result.infinite_votes >= endless.low - 1e-12).all()
    assert (result.infinite_votes <= endless.high + 1e-12).all()


@pytest.mark.parametrize(("mu", "rho"), [(0.7, 0.3), (0.9, 0.05), (0.2, 0.8), (0.6, 0.97)])
def test_completions_match_adaptive_quadrature(mu: float, rho: float) -> None:
    from scipy.integrate import quad
    from scipy.special import ndtr

    moments = Moments.from_correlation(mu, rho)
    entropic, latent = maxent_completion(moments, [1, 7]), ldgp_completion(moments, [1, 7])

    def density(q: float) -> float:
        return math.exp(float(entropic.lam) * (q - mu) - float(entropic.kap) * (q * (1 - q) - float(moments.unsteady)))

    def normal_mean(z: float, n: int, eta: float, gamma: float) -> float:
        return math.exp(-z * z / 2) / math.sqrt(2 * math.pi) * float(majority_accuracy(n, ndtr(eta - gamma * z)))

    def mean(of: Any) -> float:
        edges = [0.0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0]
        return sum(quad(of, a, b, epsabs=1e-14, epsrel=1e-13)[0] for a, b in pairwise(edges))

    total = mean(density)
    for column, n in enumerate(entropic.budgets):
        expected = mean(lambda q, n=n: density(q) * float(majority_accuracy(n, q))) / total
        assert entropic.votes[column] == pytest.approx(expected, abs=1e-11)
        eta, gamma = float(latent.eta), float(latent.gamma)
        centre = eta / gamma
        edges = sorted({-9.0, 9.0, *(float(np.clip(centre + d / gamma, -9, 9)) for d in (-3, -1, -0.3, 0, 0.3, 1, 3))})
        expected = sum(
            quad(normal_mean, a, b, (n, eta, gamma), epsabs=1e-14, epsrel=1e-13)[0] for a, b in pairwise(edges)
        )
        assert latent.votes[column] == pytest.approx(expected, abs=1e-11)


NEAR_AN_END = [1e-300, 1e-20, 1e-12, 1e-9, 1e-6, 1e-3, 0.5, 1 - 1e-3, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12]


@pytest.mark.parametrize("complete", [maxent_completion, ldgp_completion])
@pytest.mark.parametrize("mu", [1e-12, 1e-6, 0.01, 0.5, 0.7, 1 - 1e-6, 1 - 1e-12])
def test_completions_hold_at_every_end_of_both_moments(complete: Any, mu: float) -> None:
    moments = Moments.from_correlation(mu, NEAR_AN_END)
    result = complete(moments, [0, 1, 2, 50])
    np.testing.assert_allclose(result.votes[:, 0], mu, atol=1e-12)
    for column, n in enumerate(result.budgets):
        interval = vote_interval(n, moments)
        assert (result.votes[:, column] >= interval.low - 1e-12).all(), n
        assert (result.votes[:, column] <= interval.high + 1e-12).all(), n
    mirrored = complete(moments.reflected(), [0, 1, 2, 50])
    np.testing.assert_allclose(result.votes + mirrored.votes, 1.0, atol=1e-12)
    np.testing.assert_allclose(result.infinite_votes + mirrored.infinite_votes, 1.0, atol=1e-12)


def test_maximum_entropy_passes_smoothly_into_its_limit_laws() -> None:
    """On both sides of where Newton's method gives way to a closed form, parameters follow the moments' small change."""
    for mu in (1e-6, 0.3, 0.49, 0.7):
        narrow = np.array([0.99e-18, 1.01e-18]) if mu > 0.1 else 0.01 * mu * mu * np.array([0.99, 1.01])
        split = np.array([0.99e-13, 1.01e-13])
        for rho, scale in ((narrow, narrow), (None, split)):
            spread = mu * (1 - mu)
            result = maxent_completion(
                Moments.from_correlation(mu, 1 - split / spread if rho is None else rho / spread), [1, 50]
            )
            np.testing.assert_allclose(result.votes[0], result.votes[1], atol=1e-13)
            assert result.kap[0] / result.kap[1] == pytest.approx(scale[1] / scale[0], rel=2e-3)
            by_scale = 0.5 if rho is not None else 1.0
            change = by_scale * math.log(scale[0] / scale[1])
            assert result.entropy[0] - result.entropy[1] == pytest.approx(change, abs=1e-3)


def test_maximum_entropy_of_rare_successes_keeps_relative_digits_of_the_mass_at_one() -> None:
    for rho in (0.01, 0.3, 0.9):
        mu = np.array([0.99e-13, 1.01e-13]) / (1 - rho)  # closed form below 1e-13, Newton's method above
        result = maxent_completion(Moments.from_correlation(mu, rho), [2])
        np.testing.assert_allclose(result.infinite_votes, rho * mu, rtol=1e-5)
        np.testing.assert_allclose(result.votes[:, 0], rho * mu, rtol=1e-5)


def test_completions_say_where_no_density_exists() -> None:
    moments = Moments.from_correlation([0.6, 0.6, 0.5, 0.0], [0.0, 1.0, 0.0, 0.3])
    for complete in (maxent_completion, ldgp_completion):
        result = complete(moments, [2])
        assert result.degenerate.all()
        np.testing.assert_allclose(result.votes[:, 0], [float(majority_accuracy(2, 0.6)), 0.6, 0.5, 0.0], atol=1e-15)
        assert result.infinite_votes.tolist() == [1.0, 0.6, 0.5, 0.0]


def test_entropy_is_the_greatest_among_laws_with_these_moments() -> None:
    """Against Beta laws, whose entropy SciPy knows."""
    from scipy.stats import beta

    for a, b in ((2.0, 5.0), (0.5, 0.5), (8.0, 3.0)):
        law = beta(a, b)
        result = maxent_completion(Moments.of(law.mean(), law.var() + law.mean() ** 2), [1])
        assert float(result.entropy) > law.entropy()


# -- mixtures -------------------------------------------------------------------------------------------------------


def brute_force_mixture(counts: list[list[int]], size: int, weights: list[float], votes: int) -> float:
    """Every choice of policies for the votes, every set of distinct recorded calls."""
    total = 0.0
    for question in counts:
        for chosen in product(range(len(weights)), repeat=votes):
            chance, hits = math.prod(weights[j] for j in chosen), {0: 1.0}
            for j, c in enumerate(question):
                k, after = chosen.count(j), {}
                for before, p in hits.items():
                    for r in range(k + 1):
                        share = comb(c, r) * comb(size - c, k - r) / comb(size, k)
                        after[before + r] = after.get(before + r, 0.0) + p * share
                hits = after
            total += chance * sum(p for r, p in hits.items() if 2 * r > votes)
    return total / len(counts)


@pytest.mark.parametrize(("weights", "votes"), [([0.25, 0.75], 3), ([0.2, 0.3, 0.5], 3), ([0.6, 0.4], 5)])
def test_mixtures_match_brute_force(weights: list[float], votes: int) -> None:
    counts = [[3, 1, 5], [5, 4, 0], [0, 2, 2], [1, 5, 4]]
    counts = [row[: len(weights)] for row in counts]
    result = mixture_from_counts(np.array(counts), 5, weights)
    assert result.votes[(votes - 1) // 2] == pytest.approx(brute_force_mixture(counts, 5, weights, votes), abs=1e-13)
    assert result.votes[0] == pytest.approx(float(result.mu), abs=1e-15)


def test_a_mixture_of_one_policy_is_that_policy() -> None:
    bits = np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]])
    counts = bits.sum(1)[:, None]
    result = mixture_from_counts(counts, 5, [1.0])
    np.testing.assert_allclose(result.votes, empirical_vote_accuracy(bits).mean(), atol=1e-15)
    table = mixture_from_counts(np.hstack([counts, 5 - counts]), 5, [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    assert table.votes.shape == (3, 3)
    np.testing.assert_allclose(table.votes[0], result.votes, atol=1e-15)


def test_counts_are_unbiased_for_known_probabilities() -> None:
    size, q, weights = 3, [0.8, 0.4], [0.7, 0.3]
    mean, moment = np.zeros(2), 0.0
    for c in product(range(size + 1), repeat=2):
        chance = math.prod(comb(size, k) * p**k * (1 - p) ** (size - k) for k, p in zip(c, q, strict=True))
        result = mixture_from_counts(np.array([c]), size, weights)
        mean += chance * result.votes
        moment += chance * float(result.nu)
    known = mixture_from_probabilities(np.array(q)[:, None], weights, [0, 1])
    np.testing.assert_allclose(mean, known.votes, atol=1e-14)
    assert moment == pytest.approx(float(known.nu), abs=1e-14)


def test_the_best_mixture_beats_a_fine_grid_and_every_policy() -> None:
    rng = np.random.default_rng(3)
    counts = rng.binomial(5, rng.beta(1.2, 0.8, (300, 3)))
    grid = np.array([[i, j, 40 - i - j] for i in range(41) for j in range(41 - i)]) / 40
    curve = mixture_from_counts(counts, 5, grid)
    best = best_mixture(counts, 5, 5, components=3)
    assert best.votes >= curve.votes[:, 2].max() - 1e-12
    gain = best_mixture(counts, 5, 5, "gain", components=3)
    assert gain.gain >= (curve.votes[:, 2] - curve.mu).max() - 1e-12
    shares = np.zeros(3)
    shares[list(best.policies)] = best.weights
    assert best.votes == pytest.approx(float(mixture_from_counts(counts, 5, shares).votes[2]), abs=1e-12)


def test_overtaking_is_found_with_paired_errors() -> None:
    # Policy 0 is right on six of ten questions always; policy 1 has 3 of 5 right everywhere but on one question it never has.
    counts = np.array([[5, 3]] * 6 + [[0, 3]] * 3 + [[0, 0]])
    result = overtaking_pairs(counts, 5, 5)
    assert result.pairs.tolist() == [[1, 0]]
    assert result.before.tolist() == pytest.approx([-0.06])
    assert result.after.tolist() == pytest.approx([0.3])
    differences = np.array([0] * 6 + [1] * 3 + [0])
    assert result.se_after.tolist() == pytest.approx([differences.std(ddof=1) / math.sqrt(10)])


def test_mixtures_refuse_what_does_not_fit() -> None:
    counts = np.array([[3, 1], [5, 6]])
    with pytest.raises(OutOfRangeError, match=r"counts\[1, 1\] is 6"):
        mixture_from_counts(counts, 5, [0.5, 0.5])
    with pytest.raises(OutOfRangeError, match="add up to 1"):
        mixture_from_counts(counts, 6, [0.5, 0.6])
    with pytest.raises(ShortPoolError, match="7 votes need"):
        mixture_from_counts(counts, 6, [0.5, 0.5], [3])
    with pytest.raises(OutOfRangeError, match="as accurate as 3"):
        best_mixture(counts, 6, 4)
    with pytest.raises(OutOfRangeError, match="objective="):
        best_mixture(counts, 6, 5, "speed")  # type: ignore[arg-type]


# -- reasons --------------------------------------------------------------------------------------------------------


def test_every_missing_value_has_its_reason_and_no_other_value_has_one() -> None:
    regions = wald_projection(PairTable.of([5, 12], [30, 9], [5, 11]), 2)
    assert "disagree more often" in regions.reasons[0]
    assert regions.reasons[1] == ""
    moments = Moments.from_correlation([0.6, 0.6, 0.5, 0.0, 0.7], [0.0, 1.0, 1.0, 0.3, 0.3])
    assert [text != "" for text in moments.reasons] == np.isnan(moments.rho).tolist()
    entropic, latent = maxent_completion(moments, [1]), ldgp_completion(moments, [1])
    assert [text != "" for text in entropic.reasons] == np.isnan(entropic.lam).tolist()
    assert [text != "" for text in latent.reasons] == (~np.isfinite(latent.eta) | ~np.isfinite(latent.gamma)).tolist()
    assert "mu = 1/2" in latent.reasons[2]
    summary = pair_table_summary(PairTable.of([1, 4], [0, 3], [0, 3]))
    assert "undefined" in summary.reasons[0]
    assert "single question" in summary.reasons[0]
    assert summary.reasons[1] == ""
    assert str(pair_table_summary(PairTable.of(4, 3, 3)).reasons) == ""
    assert str(mixture_from_counts(np.array([[1], [0]]), 1, [1.0]).reasons).startswith("One call per question")
