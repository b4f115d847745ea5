"""Sharp bounds from two moments against exact arithmetic, linear programs and random
distributions.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, zip_longest
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from two_call_cases import PROBABILITY, from_correlation, table_of_moments

from feval.estimators.moments import Moments, PairTable
from feval.estimators.vote_intervals import (
    certified_three_vote_gain,
    infinite_vote_interval,
    mean_range,
    one_call_envelope,
    three_vote_interval,
    vote_interval,
)
from feval.estimators.vote_polynomials import majority_accuracy


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 10, 50, 100, 500])
def test_every_interval_brings_certificates_that_hold_on_all_of_the_unit_interval(n):
    interval = vote_interval(n, table_of_moments())
    for bound in (interval.lower, interval.upper):
        check = bound.check()
        assert check.holds(5e-13)  # by which quadratics are moved off the vote polynomial
        assert float(check.moment_error.max()) < 1e-13
        assert float(check.dual_margin.min()) > 0.0
        outside = (
            bound.proven - bound.value if bound.side == "upper" else bound.value - bound.proven
        )
        assert 0.0 < float(outside.min()) <= float(outside.max()) < 1e-12
    assert (interval.low <= interval.high + 1e-15).all()
    assert np.isfinite(interval.upper.atoms).all()


def vote_powers(n):
    """Coefficients of q^k in P_n, lowest first."""
    votes, result = 2 * n + 1, [Fraction(0)] * (2 * n + 2)
    for right in range(n + 1, votes + 1):
        for k in range(votes - right + 1):
            result[right + k] += comb(votes, right) * comb(votes - right, k) * (-1) ** k
    return result


def value_at(powers, q):
    return sum((c * q**k for k, c in enumerate(powers)), Fraction(0))


def remainder(dividend, divisor):
    left = dividend[:]
    while len(left) >= len(divisor):
        factor, shift = left[-1] / divisor[-1], len(left) - len(divisor)
        for k, c in enumerate(divisor):
            left[shift + k] -= factor * c
        left.pop()
    while left and not left[-1]:
        left.pop()
    return left


def is_positive_on_the_unit_interval(powers):
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
        signs = [
            value > 0 for value in (value_at(polynomial, end) for polynomial in chain[:-1]) if value
        ]
        changes.append(sum(a != b for a, b in pairwise(signs)))
    return changes[0] == changes[1]


def residual_of(bound, index=()):
    sign = 1 if bound.side == "upper" else -1
    quadratic = map(Fraction, bound.quadratic[index].tolist())
    return [
        sign * (mine - votes)
        for mine, votes in zip_longest(quadratic, vote_powers(bound.n), fillvalue=Fraction(0))
    ]


def test_sturms_theorem_tells_touching_and_crossing_from_staying_above():
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
def test_the_returned_quadratics_dominate_in_exact_rational_arithmetic(mu, rho, n):
    moments = from_correlation(mu, rho)
    interval = vote_interval(n, moments)
    for bound in (interval.lower, interval.upper):
        assert is_positive_on_the_unit_interval(residual_of(bound))
        assert bound.proven_margin() > 0
        allowed = sum(
            Fraction(c) * Fraction(float(m))
            for c, m in zip(bound.quadratic.tolist(), (1.0, moments.mu, moments.nu), strict=True)
        )
        outside = Fraction(float(bound.proven)) - allowed
        assert (outside if bound.side == "upper" else -outside) >= 0


@pytest.mark.parametrize("mu", [1e-300, 1e-12, 0.3, 0.49, 0.8721954680])
def test_quadratics_stay_on_their_side_where_the_law_is_all_but_certain(mu):
    """Against the vote polynomial itself on a fine grid of all scales; errors of a double contact
    must not show.
    """
    ends = np.concatenate([np.logspace(-300, -3, 200), np.linspace(0, 1, 20_001)])
    q = np.concatenate([ends, 1 - ends])
    for n in (2, 10, 20, 100, 1000):
        interval = vote_interval(n, from_correlation(mu, [0.0, 1e-300, 1e-12, 1e-6]))
        votes = majority_accuracy(n, q)
        for bound, sign in ((interval.upper, 1.0), (interval.lower, -1.0)):
            for a, b, c in bound.quadratic:
                assert (sign * (a + q * (b + c * q) - votes)).min() > -1e-13, (n, bound.side)


def test_a_certificate_that_was_tampered_with_does_not_pass():
    bound = vote_interval(2, Moments.from_values(0.7, 0.6)).upper
    for field, change in (
        ("quadratic", np.array([0, 0, -1e-6])),
        ("weights", np.array([1e-6, 0, 0])),
        ("value", -1e-6),
    ):
        forged = type(bound)(**{**vars(bound), field: getattr(bound, field) + change})
        assert not forged.check().holds()
    assert bound.check().holds()


@pytest.mark.parametrize(("atoms", "error"), [([0.0, 0.5, 0.7], 0.0), ([0.0, 0.5, 1.1], 0.1)])
def test_negative_weights_and_atoms_outside_the_unit_interval_make_no_law(atoms, error):
    bound = vote_interval(2, Moments.from_values(0.7, 0.6)).upper
    places = np.array(atoms)
    weights = np.linalg.solve(places ** np.arange(3)[:, None], [1.0, 0.7, 0.6])
    forged = type(bound)(**{**vars(bound), "atoms": places, "weights": weights})
    assert float(forged.check().moment_error) == pytest.approx(max(error, -weights.min()))
    assert not forged.check().holds()


def test_three_votes_have_a_closed_form():
    moments = table_of_moments()
    closed, general = three_vote_interval(moments), vote_interval(1, moments)
    np.testing.assert_allclose(closed.low, general.low, atol=1e-15)
    np.testing.assert_allclose(closed.high, general.high, atol=1e-15)
    inner = (moments.mu > 0) & (moments.mu < 1)
    mu, rho = moments.mu[inner], moments.rho[inner]
    np.testing.assert_allclose(
        (closed.high - closed.low)[inner], 2 * mu * (1 - mu) * rho * (1 - rho), atol=1e-15
    )


@pytest.mark.parametrize("n", [1, 2, 7, 500])
def test_intervals_on_the_boundary_are_points(n):
    mu = np.linspace(0, 1, 21)
    homogeneous = vote_interval(n, from_correlation(mu, 0.0))
    for value in (homogeneous.low, homogeneous.high):
        np.testing.assert_allclose(value, majority_accuracy(n, mu), atol=1e-14)
    stuck = vote_interval(n, from_correlation(mu, 1.0))
    for value in (stuck.low, stuck.high):
        np.testing.assert_allclose(value, mu, atol=1e-15)


def test_infinite_votes_enclose_large_budgets_and_jump_at_one_half():
    point = infinite_vote_interval(Moments.from_values(0.5, 0.25))
    assert (float(point.low), float(point.high)) == (0.5, 0.5)
    counted = infinite_vote_interval(
        PairTable.from_counts([250, 251], [500, 500], [250, 251]).moments()
    )
    assert [counted.low[0], counted.high[0]] == [0.5, 0.5]
    assert counted.low[1] < 0.01
    assert counted.high[1] > 0.99
    beside = infinite_vote_interval(from_correlation(0.5, 1e-9))
    assert float(beside.low) < 1e-8
    assert float(beside.high) > 1 - 1e-8
    moments = table_of_moments(50)
    finite, infinite = vote_interval(40_000, moments), infinite_vote_interval(moments)
    apart = np.abs(finite.high - infinite.high)[:50]
    assert np.median(apart) < 0.01


@given(mu=PROBABILITY, rho=PROBABILITY)
def test_a_certified_gain_is_the_lower_end_minus_one_call(mu, rho):
    moments = from_correlation(mu, rho)
    result = certified_three_vote_gain(moments)
    assert float(result.gain) == pytest.approx(
        float(three_vote_interval(moments).low - moments.mu), abs=1e-15
    )
    if result.certified:
        assert mu > 0.5
        assert rho < 1 - 1 / (2 * mu) + 1e-12
        assert result.gain > 0


def test_equality_certifies_nothing():
    edge = [Moments.from_values(0.8, 0.7), from_correlation(0.8, 0.375)]
    assert not any(bool(certified_three_vote_gain(moments).certified) for moments in edge)
    assert bool(certified_three_vote_gain(Moments.from_values(0.8, 0.7 - 1e-12)).certified)


@pytest.mark.parametrize("n", [1, 2, 5, 20])
@pytest.mark.parametrize(("mu", "nu"), [(0.7, 0.595), (0.3, 0.2), (0.9, 0.82), (0.5, 0.26)])
def test_a_linear_program_finds_the_closed_forms(n, mu, nu):
    closed = vote_interval(n, Moments.from_values(mu, nu))
    found = mean_range(lambda q: majority_accuracy(n, q), Moments.from_values([mu], [nu]))
    ends = float(found.lower[0]), float(found.upper[0])
    assert ends == pytest.approx((float(closed.low), float(closed.high)), abs=1e-9)
    assert 0 <= found.gap[0] < 1e-8


def test_one_law_must_serve_both_of_two_votes():
    moments = Moments.from_values(0.7, 0.595)
    gain = mean_range(lambda q: majority_accuracy(3, q) - majority_accuracy(1, q), moments)
    seven, three = (vote_interval(n, moments) for n in (3, 1))
    assert seven.low - three.high < gain.lower <= gain.upper < seven.high - three.low


COEFFICIENT = st.one_of(
    st.floats(-1e6, 1e6),
    st.floats(-1e-9, 1e-9),
    st.sampled_from([0.0, 5e-324, -1e-300, 1e200, -1e200, 1 / 3]),
)


@settings(max_examples=150, deadline=None)
@given(
    quadratic=st.tuples(COEFFICIENT, COEFFICIENT, COEFFICIENT),
    n=st.integers(0, 4),
    side=st.sampled_from(["lower", "upper"]),
)
def test_a_proven_margin_lies_below_the_exact_minimum_by_no_more_than_its_slack(quadratic, n, side):
    bound = vote_interval(n, Moments.from_values(0.6, 0.5)).upper
    forged = replace(bound, side=side, quadratic=np.array(quadratic))
    powers, size = residual_of(forged), max(20, *map(abs, quadratic))
    scaled = [float(c / Fraction(size)) for c in powers]
    slopes = [k * c * (abs(c) > 1e-30) for k, c in enumerate(scaled)][:0:-1]
    places = [Fraction(float(np.clip(root.real, 0, 1))) for root in np.roots(slopes)]
    least = min(value_at(powers, q) for q in (Fraction(0), Fraction(1), *places))
    margin = forged.proven_margin()
    assert least - Fraction(1, 10**13) - 20 * Fraction(size) / 10**14 <= margin <= least


@pytest.mark.parametrize("n", [0, 1, 2, 20])
def test_the_mean_alone_certifies_nothing_and_two_moments_lie_within(n):
    moments = table_of_moments(100)
    alone, both = one_call_envelope(moments.mu, n), vote_interval(n, moments)
    assert (alone.low <= moments.mu + 1e-15).all()
    assert (alone.low <= both.low + 1e-14).all()
    assert (both.high <= alone.high + 1e-14).all()
