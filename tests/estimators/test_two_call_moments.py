"""Two-call estimators against reference values and the paper's tables; vote polynomials, moments
and pair tables.
"""

from fractions import Fraction
from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from hypothesis import given, strategies as st
from places import read_data, read_json
from two_call_cases import PROBABILITY, from_correlation

from feval.estimators.completions import ldgp_completion, maxent_completion
from feval.estimators.mixtures import mixture_from_counts
from feval.estimators.moments import Moments, PairTable, pair_table, pair_table_summary
from feval.estimators.plurality import hypergeometric_majority
from feval.estimators.vote_polynomials import budget_index, even_vote_accuracy, majority_accuracy
from feval.estimators.wald_regions import wald_projection


@pytest.fixture(scope="module")
def tables(shared):
    return read_json(shared / "golden" / "paper_tables.json")


def percent(value):
    return round(100.0 * float(value), 2)


def test_table_1_of_the_paper_is_reproduced_to_the_printed_digit(tables):
    compared = 0
    for rho, row in tables["table1_percent"].items():
        moments = from_correlation(tables["table1_mu"], float(rho))
        for name, complete in (("ME", maxent_completion), ("LDGP", ldgp_completion)):
            result = complete(moments, [1, 2])
            curve = {"V1": result.votes[0], "V2": result.votes[1], "Vinf": result.infinite_votes}
            for key, value in curve.items():
                assert percent(value) == row[f"{key}_{name}"], (rho, key, name)
                compared += 1
    assert compared == 24


def test_the_intervals_of_table_3_are_reproduced(tables):
    assert len(tables["table3"]) == 9
    for row in tables["table3"]:
        pairs = PairTable.from_counts(row["n11"], row["n_disagree"], row["n00"])
        summary = pair_table_summary(pairs)
        assert int(pairs.questions) == tables["N"]
        assert [percent(summary.mu), percent(summary.rho)] == [
            row["printed"]["mu"],
            row["printed"]["rho"],
        ]
        for n in (1, 2):
            result = wald_projection(pairs, n)
            assert [float(result.low), float(result.high)] == pytest.approx(
                row[f"hull{n}"], abs=1e-9
            )
            assert [percent(result.low), percent(result.high)] == row["printed"][f"hull{n}"]


# Table 3's QQP rows: the only pair table of 8,192 questions that rounds to the printed mu and rho,
# and the printed intervals.
@pytest.mark.parametrize(
    ("cells", "three", "five"), read_data("figures.json")["intervals of table 3"]
)
def test_the_other_intervals_of_table_3_are_reproduced_as_printed(cells, three, five):
    for n, printed in ((1, three), (2, five)):
        result = wald_projection(PairTable.from_counts(*cells), n)
        assert [percent(result.low), percent(result.high)] == printed


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_majorities_are_sums_of_binomial_terms(n):
    for q in (Fraction(0), Fraction(3, 10), Fraction(1, 2), Fraction(99, 100), Fraction(1)):
        votes = 2 * n + 1
        expected = sum(
            comb(votes, k) * q**k * (1 - q) ** (votes - k) for k in range(n + 1, votes + 1)
        )
        assert majority_accuracy(n, float(q)) == pytest.approx(
            float(expected), abs=2e-16, rel=1e-13
        )


@given(votes=st.integers(1, 20).map(lambda k: 2 * k), q=PROBABILITY)
def test_an_even_vote_with_fair_ties_equals_the_odd_one_below(votes, q):
    terms = [comb(votes, k) * q**k * (1 - q) ** (votes - k) for k in range(votes + 1)]
    with_ties = sum(terms[votes // 2 + 1 :]) + terms[votes // 2] / 2
    assert even_vote_accuracy(votes, q) == pytest.approx(with_ties, abs=1e-13)


def test_odd_budgets_have_an_index():
    assert [budget_index(votes) for votes in (1, 3, 1001)] == [0, 1, 500]


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_hypergeometric_majorities_match_enumeration_with_fair_ties(size):
    for right, votes in product(range(size + 1), range(1, size + 1)):
        bits = [1] * right + [0] * (size - right)
        margins = [2 * sum(subset) - votes for subset in combinations(bits, votes)]
        expected = sum((d > 0) + (d == 0) / 2 for d in margins) / len(margins)
        assert hypergeometric_majority(right, size, votes) == pytest.approx(expected, abs=1e-15)


def test_large_pools_lose_no_digits():
    values = hypergeometric_majority(np.arange(2001), 2000, 1001)
    assert values[1000] == pytest.approx(0.5, abs=1e-15)
    np.testing.assert_allclose(values + values[::-1], 1.0, atol=1e-15)


def test_empirical_votes_are_unbiased_for_the_vote_polynomials():
    size, q = 7, 0.63
    chances = [comb(size, c) * q**c * (1 - q) ** (size - c) for c in range(size + 1)]
    for n in range(4):
        mean = np.dot(chances, hypergeometric_majority(np.arange(size + 1), size, 2 * n + 1))
        assert mean == pytest.approx(float(majority_accuracy(n, q)), abs=1e-14)


def test_rounded_moments_on_the_boundary_pass():
    mu = np.arange(0, 101) / 100
    moments = Moments.from_values(mu, mu * mu)
    assert (moments.variance == 0).all()
    assert (Moments.from_values(mu, mu).unsteady == 0).all()
    assert Moments.from_values(0.7, 0.49).variance == 0
    assert Moments.from_values(0.4, 0.16).variance == 0


def test_the_pair_table_counts_the_first_two_calls():
    table = pair_table([[1, 1, 0], [1, 0, 1], [0, 1, 1], [0, 0, 0]])
    assert [int(cell) for cell in (table.both_right, table.disagree, table.both_wrong)] == [1, 2, 1]
    assert bool(table.sparse)


@given(bits=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=30))
def test_the_summary_is_the_sample_covariance_of_the_pairs(bits):
    summary = pair_table_summary(pair_table(np.array(bits)))
    x = np.array([[(a + b) / 2, a * b] for a, b in bits])
    covariance = np.cov(x.T, ddof=1)
    assert [float(summary.mu), float(summary.nu)] == pytest.approx(x.mean(0).tolist(), abs=1e-15)
    result = [float(value) for value in (summary.var_x1, summary.cov_x12, summary.var_x2)]
    assert result == pytest.approx(
        [covariance[0, 0], covariance[0, 1], covariance[1, 1]], abs=1e-14
    )


def test_moments_of_a_table_are_those_of_its_fractions():
    table = PairTable.from_counts(5946, 1247, 999)
    exact = Moments.from_values(Fraction(2 * 5946 + 1247, 2 * 8192), Fraction(5946, 8192))
    for name, value in vars(table.moments()).items():
        assert float(value) == pytest.approx(float(getattr(exact, name)), rel=1e-15)


def test_every_missing_value_has_its_reason_and_no_other_value_has_one():
    regions = wald_projection(PairTable.from_counts([5, 12], [30, 9], [5, 11]), 2)
    assert "disagree more often" in regions.reasons[0]
    assert regions.reasons[1] == ""
    moments = from_correlation([0.6, 0.6, 0.5, 0.0, 0.7], [0.0, 1.0, 1.0, 0.3, 0.3])
    assert [text != "" for text in moments.reasons] == np.isnan(moments.rho).tolist()
    entropic, latent = maxent_completion(moments, [1]), ldgp_completion(moments, [1])
    assert [text != "" for text in entropic.reasons] == np.isnan(entropic.lam).tolist()
    assert [text != "" for text in latent.reasons] == (
        ~np.isfinite(latent.eta) | ~np.isfinite(latent.gamma)
    ).tolist()
    assert "mu = 1/2" in latent.reasons[2]
    summary = pair_table_summary(PairTable.from_counts([1, 4], [0, 3], [0, 3]))
    assert "undefined" in summary.reasons[0]
    assert "single question" in summary.reasons[0]
    assert summary.reasons[1] == ""
    assert str(pair_table_summary(PairTable.from_counts(4, 3, 3)).reasons) == ""
    assert str(mixture_from_counts(np.array([[1], [0]]), 1, [1.0]).reasons).startswith(
        "One call per question"
    )
