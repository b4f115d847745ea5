"""Confidence regions, completions and mixtures from two moments against grids, quadrature and brute
force.
"""

import math
from itertools import pairwise, product
from math import comb

import numpy as np
import pytest
from two_call_cases import from_correlation, table_of_moments

from feval.errors import OutOfRangeError
from feval.estimators.completions import ldgp_completion, maxent_completion
from feval.estimators.mixtures import best_mixture, mixture_from_counts
from feval.estimators.moments import Moments, PairTable, pair_table_summary
from feval.estimators.plurality import hypergeometric_majority
from feval.estimators.vote_intervals import infinite_vote_interval, vote_interval
from feval.estimators.vote_polynomials import majority_accuracy
from feval.estimators.wald_regions import likelihood_projection, simultaneous_gains, wald_projection


def interval_over_grid(n, centre, covariance, radius):
    """The sharp interval at each feasible point of a grid within an ellipse."""
    mu, nu = np.meshgrid(np.linspace(0, 1, 1001), np.linspace(0, 1, 1001))
    away = np.stack([mu - centre[0], nu - centre[1]], -1)
    distance = np.einsum("...i,ij,...j->...", away, np.linalg.inv(covariance), away)
    remaining = (distance <= radius) & (mu * mu <= nu) & (nu <= mu)
    assert remaining.sum() > 50
    return vote_interval(n, Moments.from_values(mu[remaining], nu[remaining]))


@pytest.mark.parametrize(
    "cells", [(5946, 1247, 999), (40, 30, 10), (12, 9, 11), (9, 3, 60), (9, 22, 9)]
)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_projection_is_the_hull_over_the_region(cells, n):
    table = PairTable.from_counts(*cells)
    summary = pair_table_summary(table)
    sigma = np.array(
        [[summary.var_x1, summary.cov_x12], [summary.cov_x12, summary.var_x2]], float
    ) / sum(cells)
    interval = interval_over_grid(n, (summary.mu, summary.nu), sigma, -2 * math.log(0.05))
    result = wald_projection(table, n)
    assert float(result.low) <= interval.low.min() + 1e-12
    assert float(result.high) >= interval.high.max() - 1e-12
    assert float(result.low) == pytest.approx(interval.low.min(), abs=0.02)
    assert float(result.high) == pytest.approx(interval.high.max(), abs=0.02)


def test_empty_cells_give_segments_points_or_nothing():
    result = wald_projection(
        PairTable.from_counts([12, 30, 0, 0, 19, 0], [0, 0, 10, 0, 1, 1], [8, 0, 0, 30, 0, 19]), 2
    )
    assert result.empty.tolist() == [False, False, True, False, False, False]
    assert bool(
        wald_projection(PairTable.from_counts(5, 30, 5), 2).empty
    )  # rho = -1/2, far from any law
    assert result.low[[1, 3, 4, 5]].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert result.high[[1, 3, 4, 5]].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert np.isnan(result.low[2])


def test_the_likelihood_region_is_never_empty_and_never_certain_with_empty_cells():
    table = PairTable.from_counts([12, 30, 0, 0, 19], [0, 0, 10, 0, 1], [8, 0, 0, 30, 0])
    for n in (1, 2, math.inf):
        result = likelihood_projection(table, n)
        assert not result.empty.any()
        assert (result.high - result.low > 0.01).all()


def test_the_likelihood_region_agrees_with_the_wald_region_in_large_samples():
    table = PairTable.from_counts(594_600, 124_700, 99_900)
    for n in (0, 1, 2, math.inf):
        wald, likelihood = wald_projection(table, n), likelihood_projection(table, n)
        assert float(wald.low) == pytest.approx(float(likelihood.low), abs=1e-5)
        assert float(wald.high) == pytest.approx(float(likelihood.high), abs=1e-5)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("law", [(40.0, 12.0), (1.2, 0.6)])
def test_simultaneous_gains_are_the_least_over_one_region(n, law):
    from scipy.stats import f as fisher

    rng = np.random.default_rng(7)
    questions, calls, level = 60, 6, 0.9
    right = rng.binomial(calls, rng.beta(*law, questions))
    values = np.stack([right / calls, right * (right - 1) / (calls * (calls - 1))])
    hotelling = 2 * (questions - 1) / (questions - 2) * fisher.ppf(level, 2, questions - 2)
    interval = interval_over_grid(n, values.mean(1), np.cov(values) / questions, hotelling)
    least = (interval.low - interval.upper.moments.mu).min()
    [result] = simultaneous_gains(right, np.full(questions, calls), [n], level)
    assert (result > 0) == (least > 0) == (law[0] > 10)
    assert result <= least + 1e-12
    assert result == pytest.approx(least, abs=0.01)
    assert simultaneous_gains(right, np.full(questions, calls), [n], 0.99)[0] < result


def test_simultaneous_gains_need_spread():
    assert np.isnan(simultaneous_gains([3] * 20, [3] * 20, [1, 2])).all()


def assert_within_the_sharp_intervals(result, moments):
    for column, n in enumerate(result.budgets):
        interval = vote_interval(n, moments)
        assert (result.votes[:, column] >= interval.low - 1e-12).all(), n
        assert (result.votes[:, column] <= interval.high + 1e-12).all(), n


def completed(complete, moments):
    """Those of some moments that it completes: all, or, for the greatest entropy, those with a
    density that is not too narrow.
    """
    if complete is ldgp_completion:
        return moments
    narrow, split = moments.variance <= 1e-18, moments.unsteady <= 1e-13
    return moments.take(~(narrow | split) | (moments.variance == 0) | (moments.unsteady == 0))


@pytest.mark.parametrize("complete", [maxent_completion, ldgp_completion])
def test_completed_curves_lie_in_the_sharp_intervals(complete):
    moments = completed(complete, table_of_moments(80))
    result = complete(moments, [0, 1, 2, 10, 50, 500])
    np.testing.assert_allclose(result.votes[:, 0], moments.mu, atol=2e-13)
    assert_within_the_sharp_intervals(result, moments)
    endless = infinite_vote_interval(moments)
    assert (result.infinite_votes >= endless.low - 1e-12).all()
    assert (result.infinite_votes <= endless.high + 1e-12).all()


@pytest.mark.parametrize(("mu", "rho"), [(0.7, 0.3), (0.9, 0.05), (0.2, 0.8), (0.6, 0.97)])
def test_completions_match_adaptive_quadrature(mu, rho):
    from scipy.integrate import quad
    from scipy.special import ndtr

    moments = from_correlation(mu, rho)
    entropic, latent = maxent_completion(moments, [1, 7]), ldgp_completion(moments, [1, 7])

    def density(q):
        return math.exp(
            float(entropic.lam) * (q - mu)
            - float(entropic.kap) * (q * (1 - q) - float(moments.unsteady))
        )

    def normal_mean(z, n, eta, gamma):
        return (
            math.exp(-z * z / 2)
            / math.sqrt(2 * math.pi)
            * float(majority_accuracy(n, ndtr(eta - gamma * z)))
        )

    def mean(of):
        edges = [0.0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0]
        return sum(quad(of, a, b, epsabs=1e-14, epsrel=1e-13)[0] for a, b in pairwise(edges))

    total = mean(density)
    for column, n in enumerate(entropic.budgets):
        expected = mean(lambda q, n=n: density(q) * float(majority_accuracy(n, q))) / total
        assert entropic.votes[column] == pytest.approx(expected, abs=1e-11)
        eta, gamma = float(latent.eta), float(latent.gamma)
        centre = eta / gamma
        edges = sorted(
            {
                -9.0,
                9.0,
                *(float(np.clip(centre + d / gamma, -9, 9)) for d in (-3, -1, -0.3, 0, 0.3, 1, 3)),
            }
        )
        expected = sum(
            quad(normal_mean, a, b, (n, eta, gamma), epsabs=1e-14, epsrel=1e-13)[0]
            for a, b in pairwise(edges)
        )
        assert latent.votes[column] == pytest.approx(expected, abs=1e-11)


NEAR_AN_END = [1e-300, 1e-20, 1e-12, 1e-9, 1e-6, 1e-3, 0.5, 1 - 1e-3, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12]


@pytest.mark.parametrize("complete", [maxent_completion, ldgp_completion])
@pytest.mark.parametrize("mu", [1e-12, 1e-6, 0.01, 0.5, 0.7, 1 - 1e-6, 1 - 1e-12])
def test_completions_hold_at_every_end_of_both_moments(complete, mu):
    moments = completed(complete, from_correlation(mu, NEAR_AN_END))
    result = complete(moments, [0, 1, 2, 50])
    np.testing.assert_allclose(result.votes[:, 0], moments.mu, atol=1e-12)
    assert_within_the_sharp_intervals(result, moments)
    mirrored = complete(moments.reflected(), [0, 1, 2, 50])
    np.testing.assert_allclose(result.votes + mirrored.votes, 1.0, atol=1e-12)
    np.testing.assert_allclose(result.infinite_votes + mirrored.infinite_votes, 1.0, atol=1e-12)


@pytest.mark.parametrize(("mu", "rho"), [(0.5, 1e-20), (0.7, 1 - 1e-13), (1e-6, 1 - 1e-8)])
def test_maximum_entropy_refuses_moments_too_near_the_edge(mu, rho):
    with pytest.raises(OutOfRangeError, match="use the bounds of vote_interval"):
        maxent_completion(from_correlation(mu, rho), [1])


def test_maximum_entropy_of_rare_successes_keeps_relative_digits_of_the_mass_at_one():
    for rho in (0.01, 0.3, 0.9):
        mu = np.array([1.01e-13, 1e-12]) / (1 - rho)
        result = maxent_completion(from_correlation(mu, rho), [2])
        np.testing.assert_allclose(result.infinite_votes, rho * mu, rtol=1e-5)
        np.testing.assert_allclose(result.votes[:, 0], rho * mu, rtol=1e-5)


def test_completions_say_where_no_density_exists():
    moments = from_correlation([0.6, 0.6, 0.5, 0.0], [0.0, 1.0, 0.0, 0.3])
    for complete in (maxent_completion, ldgp_completion):
        result = complete(moments, [2])
        assert result.degenerate.all()
        np.testing.assert_allclose(
            result.votes[:, 0], [float(majority_accuracy(2, 0.6)), 0.6, 0.5, 0.0], atol=1e-15
        )
        assert result.infinite_votes.tolist() == [1.0, 0.6, 0.5, 0.0]


def test_entropy_is_the_greatest_among_laws_with_these_moments():
    """Against Beta laws, whose entropy SciPy knows."""
    from scipy.stats import beta

    for a, b in ((2.0, 5.0), (0.5, 0.5), (8.0, 3.0)):
        law = beta(a, b)
        result = maxent_completion(
            Moments.from_values(law.mean(), law.var() + law.mean() ** 2), [1]
        )
        assert float(result.entropy) > law.entropy()


def brute_force_mixture(counts, size, weights, votes):
    """Every choice of policies for the votes, every set of distinct recorded calls."""
    total = 0.0
    for question in counts:
        for policies in product(range(len(weights)), repeat=votes):
            chance, hits = math.prod(weights[j] for j in policies), {0: 1.0}
            for j, c in enumerate(question):
                k, after = policies.count(j), {}
                for before, p in hits.items():
                    for r in range(k + 1):
                        share = comb(c, r) * comb(size - c, k - r) / comb(size, k)
                        after[before + r] = after.get(before + r, 0.0) + p * share
                hits = after
            total += chance * sum(p for r, p in hits.items() if 2 * r > votes)
    return total / len(counts)


@pytest.mark.parametrize(
    ("weights", "votes"), [([0.25, 0.75], 3), ([0.2, 0.3, 0.5], 3), ([0.6, 0.4], 5)]
)
def test_mixtures_match_brute_force(weights, votes):
    counts = [[3, 1, 5], [5, 4, 0], [0, 2, 2], [1, 5, 4]]
    counts = [row[: len(weights)] for row in counts]
    result = mixture_from_counts(np.array(counts), 5, weights)
    assert result.votes[(votes - 1) // 2] == pytest.approx(
        brute_force_mixture(counts, 5, weights, votes), abs=1e-13
    )
    assert result.votes[0] == pytest.approx(float(result.mu), abs=1e-15)


def test_a_mixture_of_one_policy_is_that_policy():
    bits = np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]])
    counts = bits.sum(1)[:, None]
    result = mixture_from_counts(counts, 5, [1.0])
    alone = [hypergeometric_majority(bits.sum(1), 5, votes).mean() for votes in (1, 3, 5)]
    np.testing.assert_allclose(result.votes, alone, atol=1e-15)
    table = mixture_from_counts(
        np.hstack([counts, 5 - counts]), 5, [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
    )
    assert table.votes.shape == (3, 3)
    np.testing.assert_allclose(table.votes[0], result.votes, atol=1e-15)


def test_counts_are_unbiased_for_known_probabilities():
    size, q, weights = 3, [0.8, 0.4], [0.7, 0.3]
    mean, moment = np.zeros(2), 0.0
    for c in product(range(size + 1), repeat=2):
        chance = math.prod(
            comb(size, k) * p**k * (1 - p) ** (size - k) for k, p in zip(c, q, strict=True)
        )
        result = mixture_from_counts(np.array([c]), size, weights)
        mean += chance * result.votes
        moment += chance * float(result.nu)
    chance = np.dot(weights, q)
    known = [float(majority_accuracy(n, chance)) for n in (0, 1)]
    np.testing.assert_allclose(mean, known, atol=1e-14)
    assert moment == pytest.approx(chance**2, abs=1e-14)


def test_the_best_mixture_beats_a_fine_grid_of_every_two_policies():
    rng = np.random.default_rng(3)
    counts = rng.binomial(5, rng.beta(1.2, 0.8, (300, 3)))
    shares = np.arange(41)[:, None] / 40
    grid = [
        shares * np.eye(3)[i] + (1 - shares) * np.eye(3)[j] for i in range(3) for j in range(i + 1)
    ]
    curve = mixture_from_counts(counts, 5, np.concatenate(grid))
    best = best_mixture(counts, 5, 5)
    assert best.votes >= curve.votes[:, 2].max() - 1e-12
    shares = np.zeros(3)
    shares[list(best.policies)] = best.weights
    assert best.votes == pytest.approx(
        float(mixture_from_counts(counts, 5, shares).votes[2]), abs=1e-12
    )
