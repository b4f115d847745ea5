"""The pair table: how many of N questions with two labelled calls each had both right, one right,
none right.

These three counts are all that two calls say about voting (arXiv 2605.03379, eq. (6)). Counts stay
integers, so that 1 - 2 mu + nu and nu - mu^2 lose no digits. Assumes questions that are independent
draws, and calls that are independent given the question.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Bools, Floats, Int64
from feval.estimators.checks import at_index, broadcast
from feval.estimators.missing import ONE_QUESTION, Texts, missing_reasons
from feval.estimators.two_call.moments import NO_CORRELATION, Moments
from feval.estimators.votes.empirical_votes import checked_bits

SPARSE_CELL = 5
"""Counts below this make normal approximations to the table, such as Wald regions, unreliable."""

_MOST_QUESTIONS = 1_000_000_000  # four times the square of it fits 64 bits


@dataclass(frozen=True, eq=False)
class PairTable:
    """Counts of questions, n11 both right, n10 + n01 disagreeing and n00 both wrong; for one policy
    or a table of them.
    """

    both_right: Int64
    disagree: Int64
    both_wrong: Int64

    @classmethod
    def of(
        cls, both_right: npt.ArrayLike, disagree: npt.ArrayLike, both_wrong: npt.ArrayLike
    ) -> PairTable:
        """Make it from counts [...], broadcast against each other.

        Raises:
            OutOfRangeError: counts that are negative or not integers, no questions, or more than
                10^9.
        """
        cells = broadcast(both_right=both_right, disagree=disagree, both_wrong=both_wrong)
        for name, cell in zip(("both_right", "disagree", "both_wrong"), cells, strict=True):
            if cell.dtype.kind not in "iu":
                raise OutOfRangeError(
                    f"A pair table has integer counts; {name} has the type {cell.dtype}."
                )
            if (cell < 0).any():
                at = tuple(np.argwhere(cell < 0)[0].tolist())
                raise OutOfRangeError(
                    f"A pair table has counts from 0; {name} is {int(cell[at])}{at_index(at)}."
                )
        table = cls(*(cell.astype(np.int64) for cell in cells))
        wrong = np.argwhere((table.questions < 1) | (table.questions > _MOST_QUESTIONS))
        if len(wrong):
            place = tuple(wrong[0].tolist())
            raise OutOfRangeError(
                f"A pair table counts 1 to {_MOST_QUESTIONS:,} questions;"
                f" {int(table.questions[place]):,} were found{at_index(place)}."
            )
        return table

    @property
    def questions(self) -> Int64:
        """[...] N."""
        return self.both_right + self.disagree + self.both_wrong

    @property
    def sparse(self) -> Bools:
        """[...] whether a cell holds fewer than 5 questions, where `likelihood_projection` is
        better than a Wald region.
        """
        cells: Bools = (
            np.minimum(np.minimum(self.both_right, self.disagree), self.both_wrong) < SPARSE_CELL
        )
        return cells

    def moments(self) -> Moments:
        """Sample moments, computed from the integers.

        Raises:
            OutOfRangeError: nu < mu^2 (rho < 0), which no distribution has, though a sample can by
                chance.
        """
        a, d, b, n = self.both_right, self.disagree, self.both_wrong, self.questions
        variance = 4 * a * n - (2 * a + d) ** 2
        if (variance < 0).any():
            at = tuple(np.argwhere(variance < 0)[0].tolist())
            raise OutOfRangeError(
                f"The pair table {int(a[at])}/{int(d[at])}/{int(b[at])}{at_index(at)} has nu <"
                " mu^2: the calls disagree more often than independent calls would, which no"
                " distribution explains. It can happen by chance; use a confidence region"
                " (wald_projection) instead of the sample moments."
            )
        return Moments(
            (2 * a + d) / (2 * n),
            a / n,
            (2 * b + d) / (2 * n),
            b / n,
            d / (2 * n),
            variance / (4.0 * n * n),
        )


@dataclass(frozen=True, eq=False)
class PairSummary:
    """Estimates and their sampling error (arXiv 2605.03379, section 4.4 and appendix B).

    Attributes:
        mu, nu: [...] one-call accuracy, and share with both calls right.
        rho: [...] correlation of the two calls, possibly negative in a sample; NaN where mu is 0 or
            1.
        var_x1, cov_x12, var_x2: [...] sample covariance (ddof 1) of X1 = (B1 + B2) / 2 and X2 = B1
            B2; NaN for a single question.
        se_mu, se_nu: [...] standard errors, such as sqrt(var_x1 / N).
        se_rho: [...] standard error by the delta method; NaN where rho is.
    """

    mu: Floats
    nu: Floats
    rho: Floats
    var_x1: Floats
    cov_x12: Floats
    var_x2: Floats
    se_mu: Floats
    se_nu: Floats
    se_rho: Floats

    @property
    def reasons(self) -> Texts:
        """[...] why rho, variances or errors are NaN, or ""."""
        return missing_reasons(
            (np.isnan(self.rho), NO_CORRELATION), (np.isnan(self.var_x1), ONE_QUESTION)
        )


def pair_table(bits: npt.ArrayLike) -> PairTable:
    """Count the pairs of the first two calls of each question.

    Args:
        bits: [Q, K] whether call k on question i was right, 0 or 1; K at least 2. Further calls are
            ignored.

    Returns:
        The counts.

    Raises:
        OutOfRangeError: fewer than two calls, no questions, or bits that are not 0 or 1.
    """
    recorded = checked_bits(bits)
    if recorded.shape[1] < 2:
        raise OutOfRangeError(
            "A pair table takes two calls per question; there is one. Record a second."
        )
    right = recorded[:, :2].sum(axis=1)
    counts = np.bincount(right, minlength=3)
    return PairTable.of(counts[2], counts[1], counts[0])


def pair_table_summary(table: PairTable) -> PairSummary:
    """mu, nu and rho with standard errors.

    The covariance of X = ((B1 + B2) / 2, B1 B2) is a function of (mu, nu): Var X1 = (mu + nu) / 2 -
    mu^2, Cov = nu (1 - mu), Var X2 = nu (1 - nu), each times N / (N - 1). With D = mu (1 - mu) the
    gradient of rho is (-2 mu / D - (nu - mu^2) (1 - 2 mu) / D^2, 1 / D).

    Section 4.4 and appendix B of arXiv 2605.03379.

    Args:
        table: [...] counts.

    Returns:
        Estimates. Variances and errors of a single question are NaN.
    """
    n = table.questions
    mu, nu = (2 * table.both_right + table.disagree) / (2 * n), table.both_right / n
    wrong = (2 * table.both_wrong + table.disagree) / (2 * n)
    unsteady = table.disagree / (2 * n)
    spread = mu * wrong
    with np.errstate(divide="ignore", invalid="ignore"):  # N = 1, or mu of 0 or 1: documented NaN
        scale = np.where(n > 1, n / (n - 1.0), np.nan)
        var_x1, cov, var_x2 = (
            scale * (spread - unsteady / 2.0),
            scale * nu * wrong,
            scale * nu * (1.0 - nu),
        )
        rho = np.where(spread > 0, (spread - unsteady) / spread, np.nan)
        by_mu = -2.0 * mu / spread - (spread - unsteady) * (wrong - mu) / spread**2
        variance = by_mu**2 * var_x1 + 2.0 * by_mu * cov / spread + var_x2 / spread**2
        se_rho = np.sqrt(np.maximum(variance, 0.0) / n)
    return PairSummary(
        mu,
        nu,
        rho,
        var_x1,
        cov,
        var_x2,
        np.sqrt(np.maximum(var_x1, 0.0) / n),
        np.sqrt(var_x2 / n),
        se_rho,
    )
