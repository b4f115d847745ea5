"""What two calls say about voting, and mixtures of LLMs: figures of arXiv 2605.03379."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from feval.errors import ShortPoolError, UsageError
from feval.estimators.arrays import Floats
from feval.estimators.two_call.mixtures import (
    Overtaking,
    best_mixture,
    mixture_from_counts,
    overtaking_pairs,
)
from feval.estimators.two_call.moments import Moments
from feval.estimators.two_call.vote_intervals import certified_three_vote_gain, vote_interval
from feval.estimators.two_call.wald_regions import simultaneous_gains
from feval.estimators.votes.empirical_votes import hypergeometric_majority
from feval.forecast.evidence import rare_pairs, sample_moments
from feval.forecast.figures.panels import (
    Figure,
    FigureOptions,
    Panel,
    Recorded,
    Row,
    Series,
    number,
)
from feval.replay import LLM, Dataset

_RESAMPLES = 2000
_FEWEST_QUESTIONS = 3
_STEPS = 20
_MOST_TICKS = 12


def two_call_plane(dataset: Dataset, llms: Sequence[LLM], options: FigureOptions) -> Figure:
    """Accuracy mu of one call against the correlation rho of being right in two, with the boundary
    of certified gains.
    """
    recorded = Recorded.of(dataset, llms, options)
    tails = [(1.0 - options.confidence) / 2.0, (1.0 + options.confidence) / 2.0]
    series, rows = [], []
    for llm in llms:
        counts = recorded.counts(llm)
        sample = sample_moments(
            counts.gold, counts.size, resamples=_RESAMPLES, seed=llm.seed % (1 << 64)
        )
        three = certified_three_vote_gain(Moments.of(sample.mu, sample.nu))
        mus, nus = sample.unclipped.T
        rho, *resampled = _rho(mus, nus).tolist()
        rhos = [each for each in resampled if not np.isnan(each)]
        low, high = np.quantile(rhos, tails).tolist() if rhos else (np.nan, np.nan)
        left, right = np.quantile(mus[1:], tails).tolist()
        series.append(
            Series(llm.name, [sample.mu], [rho], [low], [high], [left], [right], look="points")
        )
        rows.append(
            {
                "llm": llm.name,
                "temperature": llm.info.temperature,
                "mu": sample.mu,
                "mu_low": left,
                "mu_high": right,
                "nu": float(nus[0]),
                "rho": number(rho),
                "rho_low": number(low),
                "rho_high": number(high),
                "least_gain_of_3_votes": float(three.gain),
                "gains_at_the_estimate": bool(three.certified),
            }
        )
    mu = np.linspace(0.5, 1.0, 101)
    boundary = Series(
        "certified below: rho < 1 - 1 / (2 mu)",
        mu.tolist(),
        (1.0 - 1.0 / (2.0 * mu)).tolist(),
        look="dashed",
    )
    lines = (
        (
            f"{recorded.about()}, all pairs of calls; intervals: {100 * options.confidence:g} %,"
            " over questions"
        ),
        (
            "below the dashed line three votes beat one for every spread of difficulty (arXiv"
            " 2605.03379)"
        ),
    )
    panel = Panel(
        "accuracy of one call, mu",
        "correlation of two calls, rho",
        (*series, boundary),
        percent="x",
    )
    return recorded.figure(
        "two-call-plane", "The two-call plane", lines, (panel,), {"Moments of two calls": rows}
    )


def certified_gains(dataset: Dataset, llms: Sequence[LLM], options: FigureOptions) -> Figure:
    """Gains of majorities over one call: recorded ones, those that two calls allow, and the least
    that are certified together.
    """
    recorded = Recorded.of(dataset, llms, options, options.votes or 3)
    votes = list(range(3, min(options.votes or 9, recorded.calls) + 1, 2))
    level = 1.0 - (1.0 - options.confidence) / len(llms)
    series, rows = [], []
    for llm in llms:
        counts = recorded.counts(llm)
        gold, size = counts.gold.astype(np.int64), counts.size.astype(np.int64)
        sample = sample_moments(gold, size, resamples=1, seed=0)
        moments, rare = Moments.of(sample.mu, sample.nu), rare_pairs(gold, size)
        intervals = [vote_interval(m // 2, moments) for m in votes]
        gains = [hypergeometric_majority(gold, size, m) - gold / size for m in votes]
        least = np.full(len(votes), np.nan)
        if rare is None and len(gold) >= _FEWEST_QUESTIONS:
            least = simultaneous_gains(gold, size, [m // 2 for m in votes], level)
        ends = [
            [float(getattr(each, end)) - sample.mu for each in intervals] for end in ("low", "high")
        ]
        low_ends, high_ends = ends if len(llms) == 1 else ([], [])
        series.append(
            Series(llm.name, votes, [float(gain.mean()) for gain in gains], low_ends, high_ends)
        )
        certified = [gain if gain > 0.0 else np.nan for gain in least.tolist()]
        if not np.isnan(certified).all():
            series.append(Series(f"{llm.name}, certified", votes, certified, look="dashed"))
        for m, gain, low, high, limit in zip(votes, gains, *ends, least.tolist(), strict=True):
            rows.append(
                {
                    "llm": llm.name,
                    "votes": m,
                    "gain": float(gain.mean()),
                    "gain_se": (
                        float(gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else None
                    ),
                    "possible_from": low,
                    "possible_to": high,
                    "least_gain": number(limit),
                    "certified": bool(limit > 1e-12),
                }
            )
    lines = (
        f"{recorded.about()}; a majority of right calls against one call",
        f"certified: the least gain over a {100 * options.confidence:g} % region of (mu, nu), for"
        " all votes" + (" and LLMs" if len(llms) > 1 else "; band: what these mu and nu allow"),
    )
    every = -(-len(votes) // _MOST_TICKS)
    ticks = {float(m): str(m) for m in votes[::every]}
    panel = Panel(
        "votes", "gain over one call", tuple(series), percent="", points=True, ticks=ticks
    )
    return recorded.figure(
        "certified-gains", "Gains of votes over one call", lines, (panel,), {"Gains": rows}
    )


def mixtures(dataset: Dataset, llms: Sequence[LLM], options: FigureOptions) -> Figure:
    """Votes over calls that pick an LLM at random: accuracy over the weight, the two-call plane,
    and who overtakes whom.
    """
    votes = options.votes or 5
    if len(llms) < 2:
        raise UsageError(
            f"A mixture takes two LLMs or more; {llms[0].name} alone was given. Name others, --llm"
            " NAME."
        )
    recorded = Recorded.of(dataset, llms, options, votes)
    size, names = recorded.calls, [llm.name for llm in llms]
    if size < votes:
        raise ShortPoolError(
            f"{votes} votes need as many CoTs of each question; {size} are recorded. Ask for fewer"
            " votes."
        )
    counts = np.stack([recorded.right(llm) for llm in llms], axis=1).astype(np.int64)
    best = best_mixture(counts, size, votes)
    alone = mixture_from_counts(counts, size, np.eye(len(llms)), [0, votes // 2])
    pair = (
        best.policies
        if len(best.policies) == 2
        else tuple(np.argsort(-alone.votes[:, 1], kind="stable")[:2].tolist())
    )
    shares = np.linspace(0.0, 1.0, _STEPS + 1)
    curve = mixture_from_counts(counts, size, _weights(pair, shares, len(llms)), [0, votes // 2])
    first, second = (names[policy] for policy in pair)
    over_weight = [
        Series("one call", shares.tolist(), curve.mu.tolist(), look="dashed"),
        Series(f"{votes} votes", shares.tolist(), curve.votes[:, 1].tolist()),
    ]
    if len(best.policies) == 2:
        over_weight.append(
            Series("best mixture", [float(best.weights[0])], [best.votes], look="points")
        )
    pairs = combinations(range(len(llms)), 2)
    clouds = [
        mixture_from_counts(counts, size, _weights(two, shares, len(llms)), [0]) for two in pairs
    ]
    mu, nu = (np.concatenate([getattr(cloud, name) for cloud in clouds]) for name in ("mu", "nu"))
    plane = [Series("mixtures of two", mu.tolist(), _rho(mu, nu).tolist(), look="cloud")]
    plane += [
        Series(name, [float(x)], [float(y)], look="points")
        for name, x, y in zip(names, alone.mu, _rho(alone.mu, alone.nu), strict=True)
    ]
    slopes = [
        Series(name, [1, votes], ends)
        for name, ends in zip(names, alone.votes.tolist(), strict=True)
    ]
    parts = zip(best.policies, best.weights.tolist(), strict=True)
    mixed = " + ".join(f"{weight:.2f} {names[policy]}" for policy, weight in parts)
    lines = (
        f"{recorded.about()}; a majority of {votes} right calls, without replacement",
        (
            f"best of {best.tried:,} mixtures: {mixed}, {100 * best.votes:.2f} %; optimistic: test"
            " it on other questions"
        ),
    )
    panels = (
        Panel(f"share of {first}, else {second}", "accuracy", tuple(over_weight), percent="xy"),
        Panel(
            "accuracy of one call, mu", "correlation of two calls, rho", tuple(plane), percent="x"
        ),
        Panel("votes", "accuracy", tuple(slopes), ticks={1.0: "1", float(votes): str(votes)}),
    )
    tables: dict[str, Any] = {
        "LLMs alone": [
            {"llm": name, "one_call": one, f"{votes}_votes": many, "rho": number(rho)}
            for name, (one, many), rho in zip(
                names, alone.votes.tolist(), _rho(alone.mu, alone.nu), strict=True
            )
        ],
        "Best mixture": [
            {"mixture": mixed, f"{votes}_votes": best.votes, "gain": best.gain, "one_call": best.mu}
        ],
        "Overtaking by voting": _overtaking(overtaking_pairs(counts, size, votes), names, votes),
    }
    return recorded.figure("mixtures", "Mixtures of LLMs, and overtaking", lines, panels, tables)


def _overtaking(overtaking: Overtaking, names: Sequence[str], votes: int) -> list[Row]:
    numbers = (overtaking.before, overtaking.se_before, overtaking.after, overtaking.se_after)
    heads = (
        "lead_of_one_call",
        "lead_of_one_call_se",
        f"lead_of_{votes}_votes",
        f"lead_of_{votes}_votes_se",
    )
    return [
        {
            "overtaking": names[a],
            "overtaken": names[b],
            **dict(zip(heads, map(number, row), strict=True)),
        }
        for (a, b), *row in zip(overtaking.pairs.tolist(), *numbers, strict=True)
    ]


def _weights(pair: Sequence[int], shares: Floats, policies: int) -> Floats:
    weights = np.zeros((len(shares), policies))
    weights[:, pair[0]], weights[:, pair[1]] = shares, 1.0 - shares
    return weights


def _rho(mu: Floats, nu: Floats) -> Floats:
    """The correlation as the paper estimates it, which chance may make negative where it is
    small.
    """
    spread = mu * (1.0 - mu)
    return np.divide(nu - mu * mu, spread, out=np.full_like(mu, np.nan), where=spread > 0)
