"""How well a router chooses between LLMs, over all shares of calls that it may send to the dearer
one.

A router scores questions, and those of the highest scores go up first. Its line has a point for
each distinct score, so that questions of equal scores enter together; between two points it is
straight, which is the mean over the orders in which these may enter. Measures are those of RouteLLM
(https://arxiv.org/abs/2406.18665), RouterBench (https://arxiv.org/abs/2403.12031) and AutoMix
(https://arxiv.org/abs/2310.12963); ties, intervals and the gain over the mixture line feval's own.

Assumes questions, or clusters of them, that are independent draws, and takes what the router has
learnt as given: intervals do not hold what another fit would do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from feval.errors import OutOfRangeError
from feval.estimators.arrays import (
    TIED,
    Floats,
    Integers,
    Numbers,
    Result,
    Rows,
    leading_bits,
    require_each,
)
from feval.estimators.comparisons import first_reached, hull_area, percentiles
from feval.estimators.intervals import Clusters


class Routes(Result):
    """Which LLM each of Q questions goes to: first one, and from some score on another.

    Attributes:
        first: [Q] the LLM before any step.
        question: [N] whose step it is.
        score: [N] the step is taken where the router's bar is below; steps of one question fall.
        before: [N] the LLM that is left.
        after: [N] the LLM that is gone to.
    """

    first: Rows
    question: Rows
    score: Floats
    before: Rows
    after: Rows


class RoutingLine(Result):
    """The line of a router over P points, for R resamples of the questions; one for the questions
    as they are.

    Attributes:
        score: [P] the lowest score that has entered; infinite before any has.
        share: [R, P] of questions that go to the last LLM.
        accuracy: [R, P].
        cost: [R, P] mean cost of a question.
        right: [R, L] accuracy of each LLM alone.
        alone: [R, L] its mean cost.
    """

    score: Floats
    share: Floats
    accuracy: Floats
    cost: Floats
    right: Floats
    alone: Floats

    @property
    def bars(self) -> Floats:
        """[P] a bar for each point, at which just the steps up to it are taken: just above the next
        score; for all steps 0, or just below the last score where that is no larger.
        """
        last = self.score[-1] if np.isfinite(self.score[-1]) else 0.0
        bars: Floats = self.score[1:] + 1e-9 * np.abs(self.score[1:])  # scores were rounded
        return np.append(bars, 0.0 if last > 0 else last - max(1e-3 * abs(last), 1e-9))


def sent_up(score: Numbers) -> Routes:
    """Return the routes from a weak LLM, the first, to a strong one, the second.

    Args:
        score: [Q] the highest go up first.
    """
    every = np.arange(len(score))
    none = np.zeros(len(score), np.intp)
    return Routes(none, every, np.asarray(score, np.float64), none, none + 1)


def best_values(quality: Floats, costs: Floats) -> Routes:
    """Return the routes to the LLM of the largest quality - bar x cost, for every bar from infinity
    down.

    argmax_i q_i(x) - lambda c_i(x), eq. (3) of Dekoninck et al. (2024), A Unified Approach to
    Routing and Cascading for LLMs, https://arxiv.org/abs/2410.10347. As lambda falls, a question
    goes along the upper hull of its (cost, quality), from its cheapest LLM to its dearest; below 0
    dearer ones are preferred.

    Args:
        quality: [L, Q] predicted.
        costs: [L, Q] predicted.
    """
    rows = np.arange(quality.shape[1])
    cheapest = np.where(costs == costs.min(axis=0), quality, -np.inf).argmax(axis=0)
    at, steps = cheapest, []
    while len(rows):
        run, rise = (each[:, rows] - each[at, rows] for each in (costs, quality))
        slopes = np.where(run > 0, rise / np.where(run > 0, run, 1.0), -np.inf)
        to, slope = slopes.argmax(axis=0), slopes.max(axis=0)
        goes = np.isfinite(slope)
        rows, before, at = rows[goes], at[goes], to[goes]
        steps.append((rows, slope[goes], before, at))
    return Routes(cheapest, *(np.concatenate(each) for each in zip(*steps, strict=True)))


def routing_line(
    routes: Routes, right: Floats, costs: Floats, weights: Floats | None = None
) -> RoutingLine:
    """Return the line of a router.

    Args:
        routes: of Q questions.
        right: [L, Q] from 0 to 1 how right each LLM is, such as its mean over CoTs.
        costs: [L, Q] of one call each.
        weights: [R, Q] how often a resample has each question; `None`: each once.

    Raises:
        OutOfRangeError: right outside [0, 1], a missing cost, or a score that is NaN.
    """
    require_each(
        (right >= 0) & (right <= 1), "How right an answer is lies in [0, 1]; {0}{at}.", right
    )
    require_each(np.isfinite(costs), "A call has a finite cost; {0}{at}.", costs)
    require_each(~np.isnan(routes.score), "A score is a number; {0}{at}.", routes.score)
    every = np.arange(right.shape[1])
    each = np.ones((1, len(every))) if weights is None else weights
    scores, total = leading_bits(routes.score), each.sum(axis=1, keepdims=True)
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.diff(scores[order], prepend=np.inf, append=-np.inf))
    is_last = np.zeros(right.shape)
    is_last[-1] = 1
    asked = routes.question[order]
    lines = []
    for values in (is_last, right, costs):
        change = values[routes.after[order], asked] - values[routes.before[order], asked]
        start = (each * values[routes.first, every]).sum(axis=1, keepdims=True)
        along = np.concatenate([start, each[:, asked] * change], axis=1).cumsum(axis=1)
        lines.append(along[:, ends] / total)
    alone = [np.stack([(each * own).sum(axis=1) for own in v], 1) / total for v in (right, costs)]
    return RoutingLine(np.append(np.inf, scores[order])[ends], *lines, *alone)


def oracle_line(right: Floats, costs: Floats, weights: Floats | None = None) -> RoutingLine:
    """Return the line of a router of two LLMs that knows the golds: it pays for the strong one only
    where that alone is right, and so never falls; it is flat after its last gain.

    Where rightness is partial, the largest gains come first.

    Args:
        right, costs, weights: as for `routing_line`, of two LLMs.
    """
    gain = np.maximum(right[1] - right[0], 0.0)
    best = np.stack([right[0], right[0] + gain])
    paid = np.stack([costs[0], np.where(gain > 0, costs[1], costs[0])])
    line = routing_line(sent_up(gain), best, paid, weights)
    alone = routing_line(sent_up(gain), right, costs, weights)
    return replace(line, right=alone.right, alone=alone.alone)


def performance_gap_recovered(line: RoutingLine) -> Floats:
    """Return [R, P] PGR = (a - a_W) / (a_S - a_W); NaN unless a_S > a_W, and unless the share of
    strong calls runs from 0 to 1: where which LLM is cheaper depends on the question, it does not.

    a_W and a_S are the accuracies of the weak LLM, the first of two, and of the strong one (Ong et
    al. 2024, RouteLLM, https://arxiv.org/abs/2406.18665, eq. 3).

    Args:
        line: of two LLMs.
    """
    weak, strong = line.right[:, :1], line.right[:, -1:]
    whole = (line.share[:, :1] <= TIED) & (line.share[:, -1:] >= 1 - TIED)
    gap = np.where(whole & (strong > weak + TIED), strong - weak, np.nan)
    return (line.accuracy - weak) / gap


def apgr(line: RoutingLine, points: int | None = None) -> Floats:
    """Return [R] the mean of PGR over the share of strong calls, from 0 to 1; NaN unless a_S > a_W.

    Args:
        line: of two LLMs.
        points: at so many equally spaced shares, by the trapezoid rule, as RouteLLM's code does
            (11); `None` for the whole line.
    """
    recovered, share = performance_gap_recovered(line), line.share
    if points is not None:
        share = np.linspace(0.0, 1.0, points)[None]
        recovered = _at(share[0], line, recovered)
    return np.asarray(np.trapezoid(recovered, share, axis=1))


def call_performance_threshold(line: RoutingLine, level: float) -> Floats:
    """Return [R] CPT: the least share of strong calls whose PGR is `level` or more (RouteLLM,
    section 2).

    NaN unless a_S > a_W, and where no share reaches it.

    Args:
        line: of two LLMs.
        level: such as 0.5.
    """
    return first_reached(level, line.share, performance_gap_recovered(line), TIED)


def average_improvement(line: RoutingLine) -> Floats:
    """Return [R] AIQ: 1/(C - c) times the integral from c to C of the non-decreasing concave hull
    of (cost, accuracy), which is flat behind its end; NaN unless C > c.

    c and C are the mean costs of the cheapest and the dearest LLM (Hu et al. 2024, RouterBench,
    https://arxiv.org/abs/2403.12031, section 3; see `hull_area`); c that of the cheapest point
    where all cost more.

    Args:
        line: of any number of LLMs.
    """
    # The definition divides by C - c; RouterBench's code by C, which is the mean over a range that
    # begins at 0, where there is no hull.
    low = np.maximum(line.alone.min(axis=1), line.cost.min(axis=1))
    high = line.alone.max(axis=1)
    found, rows = np.full(len(low), np.nan), np.flatnonzero(high > low * (1 + TIED))
    if len(rows):
        found[rows] = hull_area(line.cost[rows], line.accuracy[rows], low[rows], high[rows])
    return found


_SHARES = np.array([0.1, 0.3, 0.5, 0.7, 0.9])


def incremental_benefit(line: RoutingLine) -> Floats:
    """Return [R] delta IBC in per cent, the mean where 10, 30, 50, 70 and 90 % of calls go to the
    strong LLM: 100 (b - B) / B, where b = (a - a_W) / (c - c_W) there, and B that of the strong LLM
    alone.

    Aggarwal, Madaan et al. (AutoMix, https://arxiv.org/abs/2310.12963), section 4. NaN unless a_S >
    a_W and c_S > c_W, and where nothing is paid beyond the weak LLM.

    Args:
        line: of two LLMs.
    """
    # The paper has one operating point, and averages over ranges of cost; the largest value of a
    # line would be that of its first few questions, which are noise.
    accuracy, cost = (_at(_SHARES, line, values) for values in (line.accuracy, line.cost))
    weak, strong = line.alone[:, :1], line.alone[:, -1:]
    part = (cost - weak) / np.where(strong > weak * (1 + TIED), strong - weak, np.nan)
    recovered = performance_gap_recovered(replace(line, accuracy=accuracy))
    ratios = recovered / np.where(part > TIED, part, np.nan)
    means: Floats = 100 * (ratios.mean(axis=1) - 1)
    return means


def _at(shares: Floats, line: RoutingLine, values: Floats) -> Floats:
    """[R, N] values [R, P] along a line, at N shares of strong calls."""
    return np.stack([np.interp(shares, *own) for own in zip(line.share, values, strict=True)])


def mixture_line(at: Floats, costs: Floats, right: Floats) -> Floats:
    """Return [R, P] the accuracy of the best mixture of single LLMs that costs no more: each
    question goes to an LLM at random.

    It is the non-decreasing concave hull of the LLMs' (cost, accuracy); below the cheapest LLM,
    where there is no mixture, the cheapest LLM's.

    Args:
        at: [R, P] costs.
        costs: [R, L] of each LLM.
        right: [R, L] accuracy of each LLM.
    """
    at = np.maximum(at, costs.min(axis=1, keepdims=True))
    best = np.full(at.shape, -np.inf)
    for pair in product(range(costs.shape[1]), repeat=2):
        (low, high), (height, top) = ([own[:, k, None] for k in pair] for own in (costs, right))
        part = np.minimum((at - low) / np.where(high > low, high - low, np.inf), 1.0)
        here = height + part * np.maximum(top - height, 0.0)
        best = np.where(low <= at * (1 + TIED), np.maximum(best, here), best)
    return best


def mean_gain(line: RoutingLine) -> Floats:
    """Return [R] the mean over costs, from the line's first to its last, of accuracy minus
    `mixture_line` at equal cost; NaN where all points cost the same.

    Args:
        line: of any number of LLMs.
    """
    gain = line.accuracy - mixture_line(line.cost, line.alone, line.right)
    run = line.cost[:, -1] - line.cost[:, 0]
    area = np.trapezoid(gain, line.cost, axis=1)
    return np.asarray(area / np.where(np.abs(run) > 0, run, np.nan))


MEASURES: Mapping[str, Callable[[RoutingLine], Floats]] = {
    "apgr": apgr,
    "cpt20": partial(call_performance_threshold, level=0.2),
    "cpt50": partial(call_performance_threshold, level=0.5),
    "cpt80": partial(call_performance_threshold, level=0.8),
    "aiq": average_improvement,
    "ibc": incremental_benefit,
    "gain": mean_gain,
}
"""Name -> [R] a measure of a whole line."""

SHARES = ("apgr", "cpt20", "cpt50", "cpt80", "ibc")
"""Those that take a weak and a strong LLM: two in all."""

RESAMPLES = 1000
"""Of the questions, for the intervals of a whole line, which is worked out for each."""


def line_measures(
    routes: Routes,
    right: Floats,
    costs: Floats,
    *,
    names: Sequence[str] = tuple(MEASURES),
    confidence: float | None = 0.95,
    resamples: int = RESAMPLES,
    clusters: Integers | None = None,
    seed: int = 0,
) -> dict[str, tuple[float, float, float]]:
    """Measures of a line with the ends of their intervals: percentiles over resampled questions,
    which all measures and all LLMs share.

    Args:
        routes, right, costs: as for `routing_line`.
        names: keys of `MEASURES`.
        confidence: between 0 and 1; `None` for no intervals.
        resamples: at least 1.
        clusters: [Q] which questions belong together, see `intervals.Clusters`.
        seed: of the resamples.

    Returns:
        Name -> (value, low, high), NaN where it is not defined; an end where it is not defined in
        any resample. In resamples where it is not defined, it is left out.

    Raises:
        OutOfRangeError: as for `routing_line`; no question.
    """
    if not right.shape[1]:
        raise OutOfRangeError("A routing line needs a question, and there is none.")
    whole = routing_line(routes, right, costs)
    values = {name: float(MEASURES[name](whole)[0]) for name in names}
    if confidence is None:
        return {name: (value, np.nan, np.nan) for name, value in values.items()}
    found: dict[str, list[Floats]] = {name: [] for name in names}
    for weights in Clusters(right.shape[1], seed, clusters).weights(resamples, seed):
        drawn = routing_line(routes, right, costs, weights)
        for name in names:
            found[name].append(MEASURES[name](drawn))
    return {
        name: (values[name], *percentiles(np.concatenate(own), confidence))
        for name, own in found.items()
    }
