"""Two moments of the accuracy of single calls, which two labelled calls per question estimate.

Let Q be the probability that a call on a random question is right. Then mu = E Q is one-call
accuracy, nu = E Q^2 the probability that two calls on one question are both right, and rho = (nu -
mu^2) / (mu (1 - mu)) their correlation (arXiv 2605.03379, section 3). A distribution of Q exists
exactly if 0 <= mu <= 1 and mu^2 <= nu <= mu (Proposition 3.1).

The pair table: how many of N questions with two labelled calls each had both right, one right,
none right.

These three counts are all that two calls say about voting (arXiv 2605.03379, eq. (6)). Counts stay
integers, so that 1 - 2 mu + nu and nu - mu^2 lose no digits. Assumes questions that are independent
draws, and calls that are independent given the question.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.arrays import (
    ONE_QUESTION,
    Bools,
    Floats,
    Int64,
    Result,
    Texts,
    broadcast,
    checked_probabilities,
    missing_reasons,
    require_each,
)

NO_CORRELATION = "All calls are right, or all are wrong, so their correlation rho is undefined."
"""Why a correlation is NaN."""

# of mu x mu and of decimal inputs: 0.7 x 0.7 is not 0.49
_ROUNDING = 8 * float(np.finfo(np.float64).eps)


class Moments(Result):
    """A table of feasible (mu, nu), with differences that would lose digits if computed from
    floats.

    Make it with `from_values` or `PairTable.moments`.

    Attributes:
        mu: [...] E Q.
        nu: [...] E Q^2, probability that two calls are both right.
        wrong: [...] 1 - mu.
        both_wrong: [...] 1 - 2 mu + nu.
        unsteady: [...] mu - nu = E Q (1 - Q), half the probability that two calls disagree.
        variance: [...] nu - mu^2.
    """

    mu: Floats
    nu: Floats
    wrong: Floats
    both_wrong: Floats
    unsteady: Floats
    variance: Floats

    @classmethod
    def from_values(cls, mu: npt.ArrayLike, nu: npt.ArrayLike) -> Moments:
        """Make it from mu and nu, which count as rounded: values within about 1e-15 of the
        boundary are on it.

        Args:
            mu: [...] E Q.
            nu: [...] E Q^2; broadcast against mu.

        Raises:
            OutOfRangeError: a pair that no distribution has, with its index and values.
        """
        first, second = broadcast(mu=mu, nu=nu)
        first, second = checked_probabilities(first, "mu"), checked_probabilities(second, "nu")
        unsteady, variance = first - second, second - first * first
        room = _ROUNDING * first
        for outside, what in (
            (variance < -room, "nu < mu^2, a negative variance"),
            (unsteady < -room, "nu > mu, though Q^2 <= Q on [0, 1]"),
        ):
            require_each(
                ~outside,
                f"No distribution on [0, 1] has mu = {{0!r}} and nu = {{1!r}}{{at}}: {what}. Sample"
                " moments can fall outside by chance; then use a confidence region of the pair"
                " table (wald_projection).",
                first,
                second,
            )
        variance = np.where(np.abs(variance) <= room, 0.0, variance)
        unsteady = np.where(np.abs(unsteady) <= room, 0.0, unsteady)
        wrong = 1.0 - first
        parts = first, second, wrong, wrong * wrong + variance, unsteady, variance
        return cls(*(np.maximum(part, 0.0) for part in parts))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the table."""
        return self.mu.shape

    @property
    def rho(self) -> Floats:
        """[...] correlation of two calls on one question; NaN where mu is 0 or 1."""
        spread = self.mu * self.wrong
        result: Floats = np.divide(
            self.variance, spread, out=np.full(self.shape, np.nan), where=spread > 0
        )
        return result

    @property
    def reasons(self) -> Texts:
        """[...] why rho is NaN, or ""."""
        return missing_reasons((self.mu * self.wrong <= 0, NO_CORRELATION))

    def reflected(self, where: Bools | bool = True) -> Moments:
        """The moments of 1 - Q (right and wrong exchanged), for the entries [...] to change."""
        other = self.wrong, self.both_wrong, self.mu, self.nu, self.unsteady, self.variance
        return Moments(
            *(np.where(where, *pair) for pair in zip(other, vars(self).values(), strict=True))
        )

    def flat(self) -> Moments:
        """The table in one row."""
        return Moments(*(part.ravel() for part in vars(self).values()))


SPARSE_CELL = 5
"""Counts below this make normal approximations to the table, such as Wald regions, unreliable."""

_MOST_QUESTIONS = 1_000_000_000  # four times the square of it fits 64 bits


class PairTable(Result):
    """Counts of questions, n11 both right, n10 + n01 disagreeing and n00 both wrong; for one policy
    or a table of them.
    """

    both_right: Int64
    disagree: Int64
    both_wrong: Int64

    @classmethod
    def from_counts(
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
            require_each(cell >= 0, f"A pair table has counts from 0; {name} is {{0}}{{at}}.", cell)
        table = cls(*(cell.astype(np.int64) for cell in cells))
        require_each(
            (table.questions >= 1) & (table.questions <= _MOST_QUESTIONS),
            f"A pair table counts 1 to {_MOST_QUESTIONS:,} questions; {{0:,}} were found{{at}}.",
            table.questions,
        )
        return table

    @property
    def cells(self) -> Int64:
        """[..., 3] the three counts."""
        return np.stack([self.both_right, self.disagree, self.both_wrong], -1)

    @property
    def questions(self) -> Int64:
        """[...] N."""
        return self.both_right + self.disagree + self.both_wrong

    @property
    def sparse(self) -> Bools:
        """[...] whether a cell holds fewer than 5 questions, where `likelihood_projection` is
        better than a Wald region.
        """
        return np.asarray(self.cells.min(-1) < SPARSE_CELL)

    def moments(self) -> Moments:
        """Sample moments, computed from the integers.

        Raises:
            OutOfRangeError: nu < mu^2 (rho < 0), which no distribution has, though a sample can by
                chance.
        """
        a, d, b, n = self.both_right, self.disagree, self.both_wrong, self.questions
        variance = 4 * a * n - (2 * a + d) ** 2
        require_each(
            variance >= 0,
            "The pair table {0}/{1}/{2}{at} has nu < mu^2: the calls disagree more often than"
            " independent calls would, which no distribution explains. It can happen by chance; use"
            " a confidence region (wald_projection) instead of the sample moments.",
            a,
            d,
            b,
        )
        return Moments(*self.shares, variance / (4.0 * n * n))

    @property
    def shares(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """[...] estimates of the attributes of `Moments`, all but the variance, in their order."""
        a, d, b, n = self.both_right, self.disagree, self.both_wrong, self.questions
        return (2 * a + d) / (2 * n), a / n, (2 * b + d) / (2 * n), b / n, d / (2 * n)


class PairSummary(Result):
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
    [recorded] = broadcast(bits=bits)
    if recorded.ndim != 2 or recorded.shape[1] < 2:
        raise OutOfRangeError(
            "A pair table takes bits [questions, calls], two calls per question or more; the"
            f" shape is {recorded.shape}. Record a second."
        )
    require_each(
        (recorded == 0) | (recorded == 1),
        "A call is right (1) or wrong (0); bits is {0!r}{at}.",
        recorded,
    )
    right = recorded[:, :2].sum(axis=1, dtype=np.int64)
    counts = np.bincount(right, minlength=3)
    return PairTable.from_counts(counts[2], counts[1], counts[0])


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
    mu, nu, wrong, _, unsteady = table.shares
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
