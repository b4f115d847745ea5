"""Two distributions of Q that match mu and nu, and the vote curves V_n and V_inf they imply.

- `maxent_completion`: the distribution of greatest entropy, with density exp(lambda q - kappa q (1
  - q)) on [0, 1] (arXiv 2605.03379, Prop. 5.1).
- `ldgp_completion`: latent difficulty, Gaussian, probit link: Q = Phi(eta - gamma Z), Z standard
  normal (Prop. 5.2).

Both are models, not guarantees: mu and nu do not determine the distribution, and [L_n, U_n] says
how far others may be. Both assume calls that are independent given the question, each right with
the same probability Q.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy

from feval.errors import OutOfRangeError
from feval.estimators.arrays import (
    Bools,
    Floats,
    Numbers,
    Result,
    Texts,
    missing_reasons,
    require_each,
)
from feval.estimators.moments import Moments
from feval.estimators.per_question import gauss_legendre, slices
from feval.estimators.vote_polynomials import check_budget, majority_accuracy, majority_slope

_NO_DENSITY = (
    "No density on [0, 1] has these moments: nu = mu^2 holds only for Q = mu, nu = mu only for a Q"
    " of 0 or 1; the curve is for that."
)
_NO_NUMBERS = (
    "These moments are those of a Q that is 0 or 1 for certain, which only an infinite eta or gamma"
    " has."
)
_NEWTON_STEPS = 200
_NARROW = 1e-18  # least variance
_SPLIT = 1e-13  # least mu - nu of a distribution that sits at 0 and 1
_MATCHED = 1e-9  # largest error of a solution's moments
_NO_PANEL = 1e-18  # smallest width of a panel
_CHUNK = 32  # entries solved at once, with all their nodes
_FEW_VOTES = 60  # largest n computed from differences
_TRAPEZOID = np.linspace(-1.0, 1.0, 81)


_Solved = tuple[Floats, Floats]
"""V_n [T, N]; V_inf and parameters [T, P]."""


class MaxEntCompletion(Result):
    """The distribution of greatest entropy and its vote curve, over a table of moments.

    Attributes:
        budgets, votes: the n of the curve, and [..., len(budgets)] V_n.
        infinite_votes: [...] V_inf, the mass above 1/2.
        lam, kap: [...] lambda and kappa; NaN without a density.
        entropy: [...] -int f ln f; -inf without a density.
        degenerate: [...] nu = mu^2 or nu = mu, where there is no density; the curve is for the only
            distribution: Q = mu, or Q = 1 with probability mu and else 0.
    """

    budgets: tuple[int, ...]
    votes: Floats
    infinite_votes: Floats
    lam: Floats
    kap: Floats
    entropy: Floats
    degenerate: Bools

    @property
    def reasons(self) -> Texts:
        """[...] why lambda and kappa are NaN and the entropy is -inf, or ""."""
        return missing_reasons((self.degenerate, _NO_DENSITY))


class LatentDifficultyCompletion(Result):
    """The latent-difficulty Gaussian-probit distribution and its vote curve, over a table of
    moments.

    Attributes:
        budgets, votes: the n of the curve, and [..., len(budgets)] V_n.
        infinite_votes: [...] V_inf = Phi(eta / gamma).
        eta: [...] ability; infinite with the sign of mu - 1/2 where nu = mu, NaN there at mu = 1/2.
        gamma: [...] spread of difficulty: 0 where nu = mu^2, infinite where nu = mu.
        r: [...] gamma^2 / (1 + gamma^2), the correlation of the latent responses.
        degenerate: [...] nu = mu^2 or nu = mu: Q = mu, or Q is 0 or 1.
    """

    budgets: tuple[int, ...]
    votes: Floats
    infinite_votes: Floats
    eta: Floats
    gamma: Floats
    r: Floats
    degenerate: Bools

    @property
    def reasons(self) -> Texts:
        """[...] why eta or gamma is NaN or infinite, or ""."""
        stuck = self.degenerate & (self.r == 1.0)
        return missing_reasons(
            (stuck | np.isinf(self.eta), _NO_NUMBERS),
            (np.isnan(self.eta), "At mu = 1/2 no sign belongs to the infinite eta."),
        )


def maxent_completion(moments: Moments, budgets: Sequence[int]) -> MaxEntCompletion:
    """Vote curve of the distribution of greatest entropy (arXiv 2605.03379, eqs. (16)-(18)).

    Newton's method on the dual J(lambda, kappa), in statistics centred at mu; Gauss-Legendre panels
    that shrink towards 0, 1, 1/2 and, for narrow laws, mu. Fixed rules fail for rho near 0 or 1.

    Args:
        moments: [...] the table of (mu, nu).
        budgets: N budget indices n.

    Returns:
        Curve and parameters; V_n within about 1e-12. A few milliseconds per entry.

    Raises:
        OutOfRangeError: an n that is not a budget index, or moments so near the edge of the
            feasible set that no density was found.
    """
    checked, degenerate, votes, parameters = _completed(
        moments,
        budgets,
        _maxent,
        lambda edge: [
            *np.full((2, len(edge.mu)), np.nan),
            np.full(len(edge.mu), -np.inf),
            0.0 * edge.mu,
        ],
    )
    infinite, lam, kap, entropy, missed = parameters
    require_each(
        missed <= _MATCHED,
        "The distribution of greatest entropy with mu = {0!r} and nu = {1!r}{at} was not found. For"
        " moments this close to the edge of the feasible set use the bounds of vote_interval.",
        moments.mu,
        moments.nu,
    )
    return MaxEntCompletion(checked, votes, infinite, lam, kap, entropy, degenerate)


def ldgp_completion(moments: Moments, budgets: Sequence[int]) -> LatentDifficultyCompletion:
    """Vote curve of the latent-difficulty Gaussian-probit distribution (arXiv 2605.03379, eq. (19),
    Prop. 5.2).

    With t = Phi^-1(mu) the correlation r = sin(theta) solves

        nu - mu^2 = 1/(2 pi) int_0^theta exp(-t^2 / (1 + sin s)) ds

    (Plackett's formula); gamma^2 = r / (1 - r), eta = t / sqrt(1 - r), V_inf = Phi(t / sqrt r).
    P_n(Phi(w)) is the distribution function of the median W of 2n + 1 standard normals, so V_n =
    Pr{W + gamma Z <= eta}: for small gamma integrated over Z, otherwise over W. Gauss-Hermite in Z
    fails for large gamma, where the integrand is nearly a step.

    Args:
        moments: [...] the table of (mu, nu).
        budgets: N budget indices n.

    Returns:
        Curve and parameters; V_n within about 1e-13 for mu from 1e-12 to 1 - 1e-12.

    Raises:
        OutOfRangeError: an n that is not a budget index.
    """
    checked, degenerate, votes, parameters = _completed(moments, budgets, _ldgp, _ldgp_edge)
    infinite, eta, gamma, r = parameters
    return LatentDifficultyCompletion(checked, votes, infinite, eta, gamma, r, degenerate)


def _completed(
    moments: Moments,
    budgets: Sequence[int],
    solve: Callable[[Moments, tuple[int, ...]], _Solved],
    edge: Callable[[Moments], list[Any]],
) -> tuple[tuple[int, ...], Bools, Floats, Floats]:
    """The budgets, where the moments are on the boundary, V_n [..., N], and V_inf and parameters
    [P, ...]: by `solve` within it; on it, `edge` gives the parameters of the only distribution.
    """
    if isinstance(budgets, int | np.integer):
        raise OutOfRangeError(
            f"Budgets are a list of n, such as [1, 2] for three and five votes; {budgets!r} was"
            " given."
        )
    for n in budgets:
        check_budget(n)
    checked = tuple(int(n) for n in budgets)
    degenerate = np.asarray((moments.variance <= 0) | (moments.unsteady <= 0))
    inner, outer = moments.take(~degenerate), moments.take(degenerate)
    mu, certain = outer.mu, outer.variance <= 0
    infinite = np.where(certain, np.heaviside(mu - 0.5, 0.5), mu)
    limit = np.stack(np.broadcast_arrays(infinite, *edge(outer)), -1)
    votes = np.empty((*moments.shape, len(checked)))
    parameters = np.empty((*moments.shape, limit.shape[1]))
    votes[~degenerate], parameters[~degenerate] = solve(inner, checked)
    votes[degenerate] = _curve(
        checked, mu, lambda n: np.where(certain, majority_accuracy(n, mu), mu)
    )
    parameters[degenerate] = limit
    return checked, degenerate, votes, np.moveaxis(parameters, -1, 0)


def _curve(budgets: tuple[int, ...], entries: Floats, votes: Callable[[int], Floats]) -> Floats:
    """[T, N] the values [T] for each n."""
    curve = np.empty((len(entries), len(budgets)))
    for place, n in enumerate(budgets):
        curve[:, place] = votes(n)
    return curve


def _ldgp(moments: Moments, budgets: tuple[int, ...]) -> _Solved:
    t = _normal_quantile(moments)
    r, rest = _latent_correlation(moments, t)
    scaled, gamma = t / np.sqrt(r), np.sqrt(r / rest)
    votes = _curve(budgets, t, lambda n: _probit_votes(n, moments.mu, scaled, gamma))
    return votes, np.stack([scipy.special.ndtr(scaled), t / np.sqrt(rest), gamma, r], -1)


def _ldgp_edge(edge: Moments) -> list[Any]:
    spread = edge.variance > 0  # nu = mu within (0, 1)
    at = _normal_quantile(edge)
    with np.errstate(invalid="ignore"):  # 0 x infinity at mu = 1/2, documented
        eta = np.where(spread, at * np.inf, at)
    return [eta, np.where(spread, np.inf, 0.0), spread]


def _maxent(moments: Moments, budgets: tuple[int, ...]) -> _Solved:
    """V_inf, lambda, kappa, entropy and by how much the moments are missed. Solves each row for mu
    up to 1/2, since floats are dense near 0, not near 1.
    """
    flipped = moments.mu > moments.wrong
    table = moments.reflected(flipped)
    narrow = table.variance < np.minimum(_NARROW, 0.01 * table.mu**2)
    split = (table.unsteady < _SPLIT) & (table.rho > np.minimum(2.0 * table.mu, 0.5))
    count = table.mu.size
    votes, parameters = np.zeros((count, len(budgets))), np.full((count, 5), np.inf)
    inner = np.flatnonzero(~(narrow | split))  # others are missed
    panels = _panels(table.take(inner), max(budgets, default=0))
    # groups rows with similar numbers of nodes
    inner = inner[np.argsort((np.diff(panels) > 0).sum(1), kind="stable")]
    for block in slices(len(inner), _CHUNK):
        rows = inner[block]
        votes[rows], parameters[rows] = _densities(table.take(rows), budgets)
    votes[flipped] = 1.0 - votes[flipped]
    parameters[flipped, 0] = 1.0 - parameters[flipped, 0]
    parameters[flipped, 1] *= -1.0
    return votes, parameters


def _densities(moments: Moments, budgets: tuple[int, ...]) -> _Solved:
    """Solutions whose density is wide enough for Newton's method."""
    away, weights = _quadrature(moments, max(budgets, default=0))
    tilt, kap, density, log_scale = _newton(moments, away, weights)
    mean, second = _expected(density, away), _expected(density, away * away)
    above = _expected(density, moments.mu[:, None] + away > 0.5)
    lam = tilt + kap * (moments.wrong - moments.mu)
    entropy = log_scale - tilt * mean - kap * second
    missed = np.maximum(np.abs(mean), np.abs(second - moments.variance))
    parameters = np.stack([above, lam, kap, entropy, missed], -1)
    return _expected_votes(moments, away, density, budgets), parameters


def _expected(density: Floats, values: Numbers) -> Floats:
    """[T] means of [T, K] values."""
    result: Floats = np.einsum("tk,tk->t", density, values)
    return result


def _expected_votes(
    moments: Moments, away: Floats, density: Floats, budgets: tuple[int, ...]
) -> Floats:
    """[T, N] E P_n(Q).

    P_n(q) - P_{n-1}(q) = C(2n - 1, n) (2q - 1) (q (1 - q))^n: one run of powers gives all small
    budgets.
    """
    q, rest = (
        np.clip(moments.mu[:, None] + away, 0.0, 1.0),
        np.clip(moments.wrong[:, None] - away, 0.0, 1.0),
    )
    small = [n for n in budgets if n <= _FEW_VOTES]
    # C(2n - 1, n) / 4^n = C(2n, n) / 4^n / 2
    curve, power = [_expected(density, q)], 0.5 * (q - rest) * density
    for n in range(1, max(small, default=0) + 1):
        power *= 4.0 * (1.0 - 0.5 / n) * (q * rest)
        curve.append(curve[-1] + power.sum(1))
    return _curve(
        budgets,
        q,
        lambda n: curve[n] if n <= _FEW_VOTES else _expected(density, majority_accuracy(n, q)),
    )


def _panels(moments: Moments, n: int) -> Floats:
    """[T, E] ascending edges of panels, as distances from mu; panels shrink towards where a density
    may be steep.
    """
    mu, wrong, sd = moments.mu[:, None], moments.wrong[:, None], np.sqrt(moments.variance)[:, None]
    near = np.minimum(0.25, moments.unsteady / 4.0)[:, None] * 2.0 ** np.arange(60)
    near = np.where(near < 0.5, near, 0.0)
    middle = 0.25 * 2.0 ** -np.arange(0, 1 + int(np.ceil(np.log2(1.0 + n**0.5))))
    half = 0.5 * (wrong - mu)  # 1/2 - mu
    steps = np.where(sd < 0.08, sd * np.arange(-12, 13), half)
    edges = np.concatenate(
        [-mu, near - mu, wrong - near, half, half - middle, half + middle, steps, wrong], 1
    )
    edges = np.sort(np.clip(edges, -mu, wrong), 1)
    edges[:, 1:] = np.where(np.diff(edges) <= _NO_PANEL, edges[:, :-1], edges[:, 1:])
    return edges


def _quadrature(moments: Moments, n: int) -> tuple[Floats, Floats]:
    """[T, K] nodes as distances from mu, and weights: 24 per panel; weights of 0 pad rows with
    fewer panels.
    """
    edges = _panels(moments, n)
    width = np.diff(edges)
    wide = width > 0
    order = np.argsort(~wide, 1, kind="stable")[:, : int(wide.sum(1).max(initial=1))]
    used = np.take_along_axis(wide, order, 1)
    order = np.where(used, order, order[:, :1])
    width = np.take_along_axis(width, order, 1)[..., None]
    nodes, weights = gauss_legendre(24)
    away = np.take_along_axis(edges, order, 1)[..., None] + width * nodes
    return away.reshape(len(edges), -1), (np.where(used[..., None], width, 0.0) * weights).reshape(
        len(edges), -1
    )


def _newton(
    moments: Moments, away: Floats, weights: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Tilt and kappa of exp(tilt (q - mu) + kappa (q - mu)^2), its probabilities at the nodes, and
    the log of its integral.

    The second statistic is (q - mu)^2, or q (1 - q) where the distribution sits at 0 and 1 and (q -
    mu)^2 would be a function of q. All rows iterate together until they converge.
    """
    mu, wrong, variance = (part[:, None] for part in (moments.mu, moments.wrong, moments.variance))
    unsteady = moments.unsteady[:, None]
    at_ends = variance > np.minimum(unsteady, 2.0 * np.minimum(mu, wrong) ** 2)
    second = np.where(at_ends, unsteady - (mu + away) * (wrong - away), away * away - variance)
    statistics = np.stack([away, second], 1)
    # (q - mu)^2 = variance + second + (wrong - mu) (q - mu)
    to_second = np.where(at_ends, wrong - mu, 0.0)[:, 0]
    at = _start(moments)
    at[:, 0] += at[:, 1] * to_second
    value, density = _dual(at, statistics, weights)
    active = np.arange(len(at))
    for _ in range(_NEWTON_STEPS):
        step, decrement = _newton_step(statistics[active], density[active])
        going = decrement > 1e-28
        active, step, decrement = active[going], step[going], decrement[going]
        pending, size = np.ones(len(active), bool), 1.0
        while pending.any() and size > 1e-9:
            rows = active[pending]
            trial = at[rows] + size * step[pending]
            after, density_after = _dual(trial, statistics[rows], weights[rows])
            aim = (
                value[rows] - 0.25 * size * decrement[pending] + 1e-15 * (1.0 + np.abs(value[rows]))
            )
            better = after <= aim
            done = rows[better]
            at[done], value[done], density[done] = (
                trial[better],
                after[better],
                density_after[better],
            )
            pending[pending] = ~better
            size *= 0.5
        active = active[~pending]  # the others have converged up to rounding
        if not len(active):
            break
    tilt, kap = at.T
    return tilt - kap * to_second, kap, density, value + kap * moments.variance


def _newton_step(statistics: Floats, density: Floats) -> tuple[Floats, Floats]:
    """[T, 2] steps and [T] decrements, from an orthogonal basis of the two centred statistics (the
    Hessian's square root).
    """
    gradient = np.einsum("tsk,tk->ts", statistics, density)
    spread = (statistics - gradient[..., None]) * np.sqrt(density)[:, None]
    scale = 1.0 / np.sqrt(np.einsum("tsk,tsk->ts", spread, spread))
    spread *= scale[..., None]
    first, rest = spread[:, 0], spread[:, 1]
    shared = np.zeros(len(first))
    for _ in range(2):  # the second time for the digits lost in the first
        more = np.einsum("tk,tk->t", first, rest)
        rest = rest - more[:, None] * first
        shared += more
    apart = np.sqrt(np.einsum("tk,tk->t", rest, rest))
    half = scale[:, 0] * gradient[:, 0]
    other = np.divide(
        scale[:, 1] * gradient[:, 1] - shared * half,
        apart,
        out=np.zeros_like(apart),
        where=apart > 0,
    )
    last = np.divide(other, apart, out=np.zeros_like(apart), where=apart > 0)
    return -scale * np.stack([half - shared * last, last], -1), half * half + other * other


def _start(moments: Moments) -> Floats:
    """[T, 2] starting tilt and kappa: a normal inside, exponentials at the ends for rho near 1,
    otherwise uniform.
    """
    mu, wrong, variance = moments.mu, moments.wrong, moments.variance
    unsteady, rare = moments.unsteady, np.minimum(mu, wrong)
    log_rare = np.log(moments.rho * rare)
    lam, kap = np.zeros_like(mu), np.zeros_like(mu)
    inside = (variance < 0.02) & (rare > 3.0 * np.sqrt(variance))
    # an exponential at one end, rho x rare at the other
    mass = (rare < 0.05) & (variance > 2.0 * rare**2)
    split, slim = ~mass & (moments.rho > 0.9), ~mass & (moments.rho <= 0.9) & (rare < 0.05)
    lam[mass] = np.where(mu < wrong, log_rare, -log_rare)[mass]
    kap[mass] = log_rare[mass] + 1.0 / unsteady[mass]
    lam[split], kap[split] = np.log(mu[split] / wrong[split]), 1.0 / unsteady[split]
    lam[slim] = np.where(mu < wrong, -1.0 / mu, 1.0 / wrong)[slim]  # an exponential
    tilt = np.where(inside, 0.0, lam - kap * (wrong - mu))
    return np.stack([tilt, np.where(inside, -0.5 / variance, kap)], -1)


def _dual(at: Floats, statistics: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """The dual J = log int exp(at . statistics) [T], and the probabilities of the nodes [T, K]."""
    exponent = np.einsum("ts,tsk->tk", at, statistics)
    top = exponent.max(1)
    mass = weights * np.exp(exponent - top[:, None])
    total = mass.sum(1)
    return top + np.log(total), mass / total[:, None]


def _normal_quantile(moments: Moments) -> Floats:
    """Phi^-1(mu) from the smaller of mu and 1 - mu."""
    result: Floats = np.where(
        moments.mu <= moments.wrong,
        scipy.special.ndtri(moments.mu),
        -scipy.special.ndtri(moments.wrong),
    )
    return result


def _latent_correlation(moments: Moments, t: Floats) -> tuple[Floats, Floats]:
    """R and 1 - r without cancellation: the angle is measured from 0 for rho below 1/2 and from
    pi/2 above.
    """
    near = moments.variance <= moments.unsteady
    target = 2.0 * np.pi * np.where(near, moments.variance, moments.unsteady)
    nodes, weights = gauss_legendre(64)

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
        after = np.where(
            (after > low) & (after < high) | (after == angle), after, 0.5 * (low + high)
        )
        done = np.abs(after - angle) <= 2e-16 * angle
        angle = np.where(np.abs(value) <= 1e-16 * target, angle, after)
        if (done | (np.abs(value) <= 1e-16 * target)).all():
            break
    haversine = 2.0 * np.sin(np.where(near, 0.25 * np.pi - 0.5 * angle, 0.5 * angle)) ** 2  # 1 - r
    return np.where(near, np.sin(angle), np.cos(angle)), haversine


def _probit_votes(n: int, mu: Floats, scaled: Floats, gamma: Floats) -> Floats:
    """V_n = Pr{W + gamma Z <= eta}, `scaled` being eta / gamma."""
    if n == 0:
        return mu.copy()
    sd = float(np.sqrt(np.pi / (2.0 * (2 * n + 1))))
    wide = gamma > 0.7 * sd
    votes = np.empty_like(mu)
    w = 10.35 * sd * _TRAPEZOID
    density = majority_slope(n, scipy.special.ndtr(w)) * np.exp(-0.5 * w * w)
    density /= density.sum()
    votes[wide] = scipy.special.ndtr(scaled[wide, None] - w / gamma[wide, None]) @ density
    z = 9.0 * _TRAPEZOID
    normal = np.exp(-0.5 * z * z)
    normal /= normal.sum()
    votes[~wide] = (
        majority_accuracy(n, scipy.special.ndtr(gamma[~wide, None] * (scaled[~wide, None] - z)))
        @ normal
    )
    return votes
