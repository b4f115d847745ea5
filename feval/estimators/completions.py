"""One curve instead of an interval: two laws of Q that match mu and nu, and the vote accuracies V_n and V_inf they imply.

- `maxent_completion`: the law of greatest entropy, a density exp(lambda q - kappa q (1 - q)) on [0, 1] (arXiv 2605.03379,
  Prop. 5.1).
- `ldgp_completion`: latent difficulty, Gaussian, probit link: Q = Phi(eta - gamma Z), Z standard normal (Prop. 5.2).

Both are models, not guarantees: the data that give mu and nu cannot tell them from other laws, and [L_n, U_n] says how far others
may be. Both assume calls that are independent given the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.estimators.moments import Moments
from feval.estimators.vote_polynomials import check_budget, majority_accuracy, majority_slope

__all__ = ["LatentDifficultyCompletion", "MaxEntCompletion", "ldgp_completion", "maxent_completion"]

Floats = npt.NDArray[np.float64]

_NEWTON_STEPS = 200
_NARROW = 1e-18  # variance: P_n is a straight line across the law
_SPLIT = 1e-13  # mu - nu: the law sits at 0 and 1
_MATCHED = 1e-9  # by which a solution may miss its moments
_TRAPEZOID = np.linspace(-1.0, 1.0, 81)


@dataclass(frozen=True, eq=False)
class MaxEntCompletion:
    """The law of greatest entropy and its vote curve, over a table of moments.

    Attributes:
        budgets: the n of the curve.
        votes: [..., len(budgets)] V_n.
        infinite_votes: [...] V_inf, the mass above 1/2.
        lam: [...] lambda. NaN where there is no density.
        kap: [...] kappa. NaN where there is no density.
        entropy: [...] -int f ln f; -inf where there is no density.
        degenerate: [...] nu = mu^2 or nu = mu, where no density has these moments; the curve is that of the limit,
            the only law: Q = mu for certain, or Q = 1 with probability mu and else 0.
    """

    budgets: tuple[int, ...]
    votes: Floats
    infinite_votes: Floats
    lam: Floats
    kap: Floats
    entropy: Floats
    degenerate: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class LatentDifficultyCompletion:
    """The latent-difficulty Gaussian-probit law and its vote curve, over a table of moments.

    Attributes:
        budgets: the n of the curve.
        votes: [..., len(budgets)] V_n.
        infinite_votes: [...] V_inf = Phi(eta / gamma).
        eta: [...] ability; infinite with the sign of mu - 1/2 where nu = mu, NaN there at mu = 1/2.
        gamma: [...] spread of difficulty: 0 where nu = mu^2, infinite where nu = mu.
        r: [...] gamma^2 / (1 + gamma^2), the correlation of the latent responses.
        degenerate: [...] nu = mu^2 or nu = mu: the law is Q = mu for certain, or Q is 0 or 1.
    """

    budgets: tuple[int, ...]
    votes: Floats
    infinite_votes: Floats
    eta: Floats
    gamma: Floats
    r: Floats
    degenerate: npt.NDArray[np.bool_]


def maxent_completion(moments: Moments, budgets: Sequence[int]) -> MaxEntCompletion:
    """Vote curve of the law of greatest entropy (arXiv 2605.03379, eqs. (16)-(18)).

    Newton's method on the dual J(lambda, kappa), in statistics centred at mu; Gauss-Legendre panels that shrink towards 0, 1,
    1/2 and, for narrow laws, mu. A fixed rule of any size fails for rho near 0 or 1.

    Assumes calls that are independent given the question, each right with the same probability Q.

    Args:
        moments: [...] the table of (mu, nu).
        budgets: N values of n.

    Returns:
        Curve and parameters; V_n within some 1e-12, parameters for mu from 1e-12 to 1 - 1e-12. A few milliseconds per entry.

    Raises:
        OutOfRangeError: an n that is no budget, or moments so near the edge of the feasible set that no density was found.
    """
    checked = _budgets(budgets)
    shape = moments.shape
    votes, parameters = np.empty((*shape, len(checked))), np.empty((*shape, 4))
    degenerate = _degenerate(moments)
    for at in np.ndindex(shape):
        if degenerate[at]:
            continue
        own = moments.take(at)
        votes[at], parameters[at] = _maxent(own, checked)
    votes[degenerate], limit = _limits(moments, degenerate, checked)
    parameters[degenerate] = np.stack([limit, *np.full((2, len(limit)), np.nan), np.full(len(limit), -np.inf)], -1)
    infinite, lam, kap, entropy = np.moveaxis(parameters, -1, 0)
    return MaxEntCompletion(checked, votes, infinite, lam, kap, entropy, degenerate)


def ldgp_completion(moments: Moments, budgets: Sequence[int]) -> LatentDifficultyCompletion:
    """Vote curve of the latent-difficulty Gaussian-probit law (arXiv 2605.03379, eq. (19), Prop. 5.2).

    With t = Phi^-1(mu) the correlation r = sin(theta) solves

        nu - mu^2 = 1/(2 pi) int_0^theta exp(-t^2 / (1 + sin s)) ds

    (Plackett's formula); gamma^2 = r / (1 - r), eta = t / sqrt(1 - r), V_inf = Phi(t / sqrt r). P_n(Phi(w)) is the
    distribution function of the median W of 2n + 1 standard normals, so V_n = Pr{W + gamma Z <= eta}: for small gamma
    integrated over Z, otherwise over W. Gauss-Hermite in Z, an obvious choice, fails for large gamma, where the integrand is
    nearly a step.

    Assumes calls that are independent given the question, each right with the same probability Q.

    Args:
        moments: [...] the table of (mu, nu).
        budgets: N values of n.

    Returns:
        Curve and parameters; V_n within some 1e-13 for mu from 1e-12 to 1 - 1e-12.

    Raises:
        OutOfRangeError: an n that is no budget.
    """
    from scipy.special import ndtr

    checked = _budgets(budgets)
    degenerate = _degenerate(moments)
    inner = moments.take(~degenerate)
    t = _normal_quantile(inner)
    r, rest = _latent_correlation(inner, t)
    shape = moments.shape
    votes, parameters = np.empty((*shape, len(checked))), np.empty((*shape, 4))
    scaled, gamma = t / np.sqrt(r), np.sqrt(r / rest)
    curve = np.array([_probit_votes(n, inner.mu, scaled, gamma) for n in checked])
    votes[~degenerate] = curve.reshape(len(checked), inner.mu.size).T
    parameters[~degenerate] = np.stack([ndtr(scaled), t / np.sqrt(rest), gamma, r], -1)
    votes[degenerate], limit = _limits(moments, degenerate, checked)
    edge = moments.take(degenerate)
    spread = edge.variance > 0  # nu = mu within (0, 1)
    at = _normal_quantile(edge)
    with np.errstate(invalid="ignore"):  # 0 x infinity at mu = 1/2, documented
        eta = np.where(spread, at * np.inf, at)
    parameters[degenerate] = np.stack([limit, eta, np.where(spread, np.inf, 0.0), spread.astype(float)], -1)
    infinite, eta, gamma, r = np.moveaxis(parameters, -1, 0)
    return LatentDifficultyCompletion(checked, votes, infinite, eta, gamma, r, degenerate)


def _budgets(budgets: Sequence[int]) -> tuple[int, ...]:
    if isinstance(budgets, int | np.integer):
        raise OutOfRangeError(
            f"Budgets are a list of n, such as [1, 2] for three and five votes; {budgets!r} was given."
        )
    for n in budgets:
        check_budget(n)
    return tuple(int(n) for n in budgets)


def _degenerate(moments: Moments) -> npt.NDArray[np.bool_]:
    edge: npt.NDArray[np.bool_] = np.asarray((moments.variance <= 0) | (moments.unsteady <= 0))
    return edge


def _limits(moments: Moments, where: npt.NDArray[np.bool_], budgets: tuple[int, ...]) -> tuple[Floats, Floats]:
    """V_n [D, N] and V_inf [D] of the only laws on the boundary."""
    mu, certain = moments.mu[where], moments.variance[where] <= 0
    votes = np.array([np.where(certain, majority_accuracy(n, mu), mu) for n in budgets])
    return votes.reshape(len(budgets), mu.size).T, np.where(certain, np.heaviside(mu - 0.5, 0.5), mu)


# -- maximum entropy ------------------------------------------------------------------------------------------------


def _maxent(moments: Moments, budgets: tuple[int, ...]) -> tuple[Floats, Floats]:
    """V_n [N]; and V_inf, lambda, kappa, entropy. Solved for mu up to 1/2: floats are dense near 0, not near 1."""
    if moments.mu > moments.wrong:
        votes, (above, lam, kap, entropy) = _maxent(moments.reflected(), budgets)
        return 1.0 - votes, np.array([1.0 - above, -lam, kap, entropy])
    if moments.variance < min(_NARROW, 0.01 * float(moments.mu) ** 2):
        return _narrow_limit(moments, budgets)
    if moments.unsteady < _SPLIT and moments.rho > min(2.0 * float(moments.mu), 0.5):
        return _split_limit(moments, budgets)
    away, weights = _quadrature(moments, max(budgets, default=0))
    tilt, kap, density, log_scale = _newton(moments, away, weights)
    _require_matched(moments, away, density)
    q = np.clip(float(moments.mu) + away, 0.0, 1.0)
    votes = np.array([density @ majority_accuracy(n, q) for n in budgets])
    above = float(density[float(moments.mu) + away > 0.5].sum())
    lam = tilt + kap * float(moments.wrong - moments.mu)
    entropy = log_scale - tilt * float(density @ away) - kap * float(density @ (away * away))
    return votes, np.array([above, lam, kap, entropy])


def _require_matched(moments: Moments, away: Floats, density: Floats) -> None:
    mean, second = float(density @ away), float(density @ (away * away))
    off = max(abs(mean), abs(second - float(moments.variance)))
    if not off <= _MATCHED:
        raise OutOfRangeError(
            f"The law of greatest entropy with mu = {float(moments.mu)!r} and nu = {float(moments.nu)!r} was not found: its "
            f"moments are off by {off:.1e}. Moments this close to the edge of the feasible set have bounds; see vote_interval."
        )


def _narrow_limit(moments: Moments, budgets: tuple[int, ...]) -> tuple[Floats, Floats]:
    """A normal law about mu, ten or more deviations of at most 1e-9 away from 0: its cut ends hold 1e-23."""
    from scipy.special import ndtr

    mu, sd = float(moments.mu), float(np.sqrt(moments.variance))
    away = float(moments.mu - moments.wrong)  # 2 mu - 1
    with np.errstate(over="ignore"):  # variances next to the smallest double
        kap = -0.5 / moments.variance
        lam = -away * kap if away else 0.0
    above = float(ndtr(0.5 * away / sd))
    votes = np.array([float(majority_accuracy(n, mu)) for n in budgets])
    return votes, np.array([above, lam, kap, 0.5 * np.log(2.0 * np.pi * np.e) + np.log(sd)])


def _split_limit(moments: Moments, budgets: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Two exponential laws with one mean e, at 0 and 1: mu = e + right (1 - 2e), mu - nu = e - 2 e^2, e below 1e-13."""
    mu, wrong, u = float(moments.mu), float(moments.wrong), float(moments.unsteady)
    mean = u + 2.0 * u * u
    right = (mu * (float(moments.rho) * wrong + mu) - 2.0 * u * u) / (1.0 - 2.0 * mean)  # mu - u without cancellation
    votes = np.array([mu if n == 0 else right for n in budgets])
    with np.errstate(over="ignore"):  # mu - nu next to the smallest double
        kap = float(np.divide(1.0, mean))
    entropy = 1.0 + np.log(mean) - right * np.log(right) - (1.0 - right) * np.log1p(-right)
    return votes, np.array([right, np.log(right) - np.log1p(-right), kap, entropy])


def _quadrature(moments: Moments, n: int) -> tuple[Floats, Floats]:
    """Nodes as distances from mu, and weights: 24 per panel; panels shrink towards where a density may be steep."""
    mu, wrong = float(moments.mu), float(moments.wrong)
    sd = float(np.sqrt(moments.variance))
    near = min(0.25, float(moments.unsteady) / 4.0) * 2.0 ** np.arange(60)
    near = near[near < 0.5]
    middle = 0.25 * 2.0 ** -np.arange(0, 1 + int(np.ceil(np.log2(1.0 + n**0.5))))
    half = 0.5 * (wrong - mu)  # 1/2 - mu
    edges = [-mu, *(near - mu), *(wrong - near), half, *(half - middle), *(half + middle), wrong]
    if sd < 0.08:
        edges += (sd * np.arange(-12, 13)).tolist()
    kept = np.unique(np.clip(edges, -mu, wrong))
    kept = kept[np.diff(kept, prepend=-np.inf) > 1e-18]
    nodes, weights = _gauss(24)
    width = np.diff(kept)[:, None]
    return (kept[:-1, None] + width * nodes).ravel(), (width * weights).ravel()


@cache
def _gauss(count: int) -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return 0.5 * (nodes + 1.0), 0.5 * weights


def _newton(moments: Moments, away: Floats, weights: Floats) -> tuple[float, float, Floats, float]:
    """Tilt and kappa of exp(tilt (q - mu) + kappa (q - mu)^2), its probabilities at the nodes, and the log of its integral.

    The second statistic is (q - mu)^2, or q (1 - q) where the law sits at 0 and 1 and (q - mu)^2 would be a function of q.
    """
    mu, wrong, variance = float(moments.mu), float(moments.wrong), float(moments.variance)
    at_ends = variance > min(float(moments.unsteady), 2.0 * min(mu, wrong) ** 2)
    second = float(moments.unsteady) - (mu + away) * (wrong - away) if at_ends else away * away - variance
    statistics = np.stack([away, second])
    to_second = wrong - mu if at_ends else 0.0  # (q - mu)^2 = variance + second + (wrong - mu) (q - mu)
    at = _start(moments)
    at[0] += at[1] * to_second
    value, density = _dual(at, statistics, weights)
    for _ in range(_NEWTON_STEPS):
        gradient = statistics @ density
        spread = (statistics - gradient[:, None]) * np.sqrt(density)
        scale = 1.0 / np.sqrt((spread**2).sum(1))
        triangle: Floats = np.linalg.qr((spread * scale[:, None]).T, mode="r")  # type: ignore[assignment]
        half = np.array([scale[0] * gradient[0] / triangle[0, 0], 0.0])
        half[1] = (scale[1] * gradient[1] - triangle[0, 1] * half[0]) / triangle[1, 1]
        last = half[1] / triangle[1, 1]
        step = -scale * np.array([(half[0] - triangle[0, 1] * last) / triangle[0, 0], last])
        decrement = float(half @ half)
        if not decrement > 1e-28:
            break
        size = 1.0
        while size > 1e-9:
            trial = at + size * step
            after, density_after = _dual(trial, statistics, weights)
            if after <= value - 0.25 * size * decrement + 1e-15 * (1.0 + abs(value)):
                break
            size *= 0.5
        else:
            break  # no descent left but rounding
        at, value, density = trial, after, density_after
    tilt, kap = float(at[0]), float(at[1])
    return tilt - kap * to_second, kap, density, value + kap * variance


def _start(moments: Moments) -> Floats:
    """Tilt and kappa: a normal law inside, exponentials at the ends for rho near 1, otherwise the uniform law."""
    mu, wrong, variance = float(moments.mu), float(moments.wrong), float(moments.variance)
    if variance < 0.02 and min(mu, wrong) > 3.0 * variance**0.5:
        return np.array([0.0, -0.5 / variance])
    rare = min(mu, wrong)
    if rare < 0.05 and variance > 2.0 * rare**2:  # an exponential law at one end, rho x rare at the other
        log_rare = np.log(float(moments.rho) * rare)
        lam, kap = (log_rare if mu < wrong else -log_rare), log_rare + 1.0 / float(moments.unsteady)
    elif moments.rho > 0.9:
        lam, kap = np.log(mu / wrong), 1.0 / float(moments.unsteady)
    elif rare < 0.05:  # an exponential law
        lam, kap = (-1.0 / mu if mu < wrong else 1.0 / wrong), 0.0
    else:
        lam, kap = 0.0, 0.0
    return np.array([lam - kap * (wrong - mu), kap])


def _dual(at: Floats, statistics: Floats, weights: Floats) -> tuple[float, Floats]:
    """The dual J = log int exp(at . statistics), and the probabilities of the nodes."""
    exponent = at @ statistics
    top = float(exponent.max())
    mass = weights * np.exp(exponent - top)
    total = float(mass.sum())
    return top + float(np.log(total)), mass / total


# -- latent difficulty ----------------------------------------------------------------------------------------------


def _normal_quantile(moments: Moments) -> Floats:
    """Phi^-1(mu) from the smaller of mu and 1 - mu."""
    from scipy.special import ndtri

    t: Floats = np.where(moments.mu <= moments.wrong, ndtri(moments.mu), -ndtri(moments.wrong))
    return t


def _latent_correlation(moments: Moments, t: Floats) -> tuple[Floats, Floats]:
    """Give r and 1 - r, each without cancellation: the angle is solved for from 0 for rho below 1/2 and from pi/2 above."""
    near = moments.variance <= moments.unsteady
    target = 2.0 * np.pi * np.where(near, moments.variance, moments.unsteady)
    nodes, weights = _gauss(64)

    def bell(angle: Floats) -> Floats:
        """exp(-t^2 / (1 + sin s)), s measured from either end."""
        row, side = (t[:, None], near[:, None]) if angle.ndim == 2 else (t, near)
        density: Floats = np.exp(-row * row / (1.0 + np.where(side, np.sin(angle), np.cos(angle))))
        np.maximum(density, 1e-300, out=density)  # it is divided by
        return density

    low, high = np.zeros_like(t), np.full_like(t, 0.5 * np.pi)
    angle = np.clip(target / bell(low), 0.0, 0.25 * np.pi)
    for _ in range(200):
        value = angle * (bell(angle[:, None] * nodes) @ weights) - target
        low, high = np.where(value < 0, angle, low), np.where(value < 0, high, angle)
        after = angle - value / bell(angle)
        after = np.where((after > low) & (after < high) | (after == angle), after, 0.5 * (low + high))
        done = np.abs(after - angle) <= 2e-16 * angle
        angle = np.where(np.abs(value) <= 1e-16 * target, angle, after)
        if (done | (np.abs(value) <= 1e-16 * target)).all():
            break
    haversine = 2.0 * np.sin(np.where(near, 0.25 * np.pi - 0.5 * angle, 0.5 * angle)) ** 2  # 1 - r
    return np.where(near, np.sin(angle), np.cos(angle)), haversine


def _probit_votes(n: int, mu: Floats, scaled: Floats, gamma: Floats) -> Floats:
    """V_n = Pr{W + gamma Z <= eta}, `scaled` being eta / gamma."""
    from scipy.special import ndtr

    if n == 0:
        return mu.copy()
    sd = float(np.sqrt(np.pi / (2.0 * (2 * n + 1))))
    wide = gamma > 0.7 * sd
    votes = np.empty_like(mu)
    w = 10.35 * sd * _TRAPEZOID
    density = majority_slope(n, ndtr(w)) * np.exp(-0.5 * w * w)
    density /= density.sum()
    votes[wide] = ndtr(scaled[wide, None] - w / gamma[wide, None]) @ density
    z = 9.0 * _TRAPEZOID
    normal = np.exp(-0.5 * z * z)
    normal /= normal.sum()
    votes[~wide] = majority_accuracy(n, ndtr(gamma[~wide, None] * (scaled[~wide, None] - z))) @ normal
    return votes
