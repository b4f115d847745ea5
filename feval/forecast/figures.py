"""A figure as numbers: panels with series of points; and the questions and counts that
figures start from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import combinations
from typing import Any, Literal

import numpy as np

from feval.errors import OutOfRangeError, UsageError, require_known
from feval.estimators.arrays import Floats, Integers, Result, require_confidence
from feval.estimators.diagnostics import QUARTERS, Strata, strata_summary
from feval.estimators.mixtures import best_mixture, mixture_from_counts
from feval.estimators.moments import Moments
from feval.estimators.multinomial import plugin_plurality_accuracy
from feval.estimators.plurality import VoteCounts, hypergeometric_majority, vote_counts
from feval.estimators.self_consistency import (
    best_integer_split,
    multiclass_plugin_expectation,
    self_consistency_bound,
)
from feval.estimators.vote_intervals import vote_interval
from feval.estimators.wald_regions import simultaneous_gains
from feval.evaluation.cautions import judged_by
from feval.evaluation.questions import LeftOut, Rows, question_set
from feval.executors import reports
from feval.forecast.forecasts import rare_pairs, sample_moments
from feval.methods.protocol import drawn
from feval.replay import LLM, Dataset
from feval.values import frozen


@frozen
class FigureOptions:
    """Options of figures.

    Attributes:
        calls: G, calls that are estimated from.
        votes: the most votes, an odd number; `None` for each figure's own.
        confidence: of intervals and certificates.
        unlabelled, short_pools: "refuse" or "drop" questions without a gold answer, or with too few
            CoTs.
    """

    calls: int = 5
    votes: int | None = None
    confidence: float = 0.95
    unlabelled: str = "refuse"
    short_pools: str = "refuse"

    def __post_init__(self) -> None:
        require_confidence(self.confidence)
        if self.calls < 1:
            raise OutOfRangeError(f"An estimate takes 1 call or more; {self.calls} were given.")
        if self.votes is not None and (self.votes < 3 or self.votes % 2 == 0):
            raise OutOfRangeError(
                f"A figure of votes takes an odd number of them, from 3; {self.votes} was given."
            )


@frozen
class Series:
    """Points with a name; NaN leaves a gap.

    Attributes:
        label: for the legend.
        x, y: of the points; shares are between 0 and 1.
        low, high, left, right: ends of intervals of y and of x; empty where there are none.
        look: a line with or without markers, a dashed one, single points, or small grey points.
    """

    label: str
    x: Any
    y: Any
    low: Any = ()
    high: Any = ()
    left: Any = ()
    right: Any = ()
    look: Literal["line", "dashed", "points", "cloud"] = "line"

    def __post_init__(self) -> None:
        """Keep numbers as lists, whatever they are given as."""
        for name in ("x", "y", "low", "high", "left", "right"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.float64).tolist())


@frozen
class Panel:
    """Axes with series.

    Attributes:
        x_label, y_label: of the axes.
        series: what is drawn. Those with one label in several panels share their colour.
        percent: which axes show shares as per cent: some of "x" and "y".
        points: whether y has differences of shares, which a picture shows as percentage points.
        log: whether x is logarithmic.
        ticks: x -> its name, where only some have one.
    """

    x_label: str
    y_label: str
    series: tuple[Series, ...]
    percent: str = "y"
    points: bool = False
    log: bool = False
    ticks: Mapping[float, str] = field(default_factory=dict)


@frozen
class Figure:
    """A figure of some LLMs on a dataset.

    Attributes:
        name: its key in `FIGURES`.
        dataset, llms, recording_hashes: what it is of.
        title: for people.
        lines: one or two short sentences about how the numbers were made.
        panels: what is drawn.
        left_out: questions that were left out.
    """

    name: str
    dataset: str
    llms: tuple[str, ...]
    recording_hashes: tuple[str, ...]
    title: str
    lines: tuple[str, ...]
    panels: tuple[Panel, ...]
    left_out: LeftOut


class FirstCalls(Result):
    """The same questions for several LLMs, with the first `calls` CoTs of each.

    Attributes:
        dataset, llms: whose.
        rows: of the questions.
        calls: of each LLM on each question; all of them, where the pools have one size.
        left_out: questions that were left out.
    """

    dataset: Dataset
    llms: Sequence[LLM]
    rows: Rows
    calls: int
    left_out: LeftOut

    @classmethod
    def chosen(
        cls, dataset: Dataset, llms: Sequence[LLM], options: FigureOptions, least: int = 2
    ) -> FirstCalls:
        """Choose the questions with a gold on which each LLM has at least so many CoTs."""
        questions = question_set(
            dataset,
            [(llm, least) for llm in llms],
            unlabelled=options.unlabelled,
            short_pools=options.short_pools,
        )
        return cls.on_rows(dataset, llms, questions.rows, questions.left_out)

    @classmethod
    def on_rows(
        cls, dataset: Dataset, llms: Sequence[LLM], rows: Rows, left_out: LeftOut
    ) -> FirstCalls:
        """The CoTs on some questions."""
        calls = min(int(llm.pool.sizes[rows].min()) for llm in llms)
        return cls(dataset, llms, rows, calls, left_out)

    def codes(self, llm: LLM) -> Integers:
        """[Q, calls] codes of the answers."""
        return llm.pool.codes[self.rows][:, : self.calls]

    def counts(self, llm: LLM) -> VoteCounts:
        """The votes of an LLM's CoTs."""
        return vote_counts(self.codes(llm), self.dataset.gold[self.rows])

    def about(self) -> str:
        """How many questions and CoTs there are, for a line of the figure."""
        return f"{len(self.rows):,} questions of {self.dataset.id}, {self.calls} CoTs each"

    def figure(
        self, name: str, title: str, lines: Sequence[str], panels: Sequence[Panel]
    ) -> Figure:
        """Return a figure of these LLMs."""
        return Figure(
            name=name,
            dataset=self.dataset.id,
            llms=tuple(llm.name for llm in self.llms),
            recording_hashes=tuple(self.dataset.recording_hashes),
            title=title,
            lines=(*lines, *judged_by(self.dataset, self.rows)),
            panels=tuple(panels),
            left_out=self.left_out,
        )


_RANKS = 10
_SHOWN_RANKS = 4
_REPLICATES = 100
_MOST_VOTES = 41
_CALLS = (1, 2, 3, 4, 5, 7, 10, 14, 20, 28, 40, 56, 80, 112, 160, 224, 320, 448, 640)


def answer_mass(dataset: Dataset, llms: Sequence[LLM], options: FigureOptions) -> Figure:
    """Mean share of the r most frequent answers, and entropy by strata of accuracy; over
    temperature, where LLMs differ in it (CEV, Figures 3 and 4).
    """
    recorded = FirstCalls.chosen(dataset, llms, options, 1)
    everything, strata = (
        [strata_summary(*each.parts, upper) for each in map(recorded.counts, llms)]
        for upper in ((1.0,), QUARTERS)
    )
    lines = (
        f"{recorded.about()}; strata of each LLM's own accuracy",
        (
            "shares keep CoTs without an answer in the denominator; entropies count them as one"
            " outcome, and are biased downward"
        ),
    )
    names, entropies = [llm.name for llm in llms], [llm.name for llm in llms]
    masses = [each.cumulative_mass[0] for each in everything]
    if len(llms) == 1:
        entropies = ["entropy"]
        names = ["all questions", *(f"accuracy up to {100 * upper:g} %" for upper in QUARTERS)]
        masses += list(strata[0].cumulative_mass)
    mass = [
        Series(name, range(1, len(row[:_RANKS]) + 1), row[:_RANKS])
        for name, row in zip(names, masses, strict=True)
    ]
    entropy = [
        Series(name, range(1, 5), each.entropy)
        for name, each in zip(entropies, strata, strict=True)
    ]
    panels = [
        Panel("most frequent answers, r", "share of the CoTs", tuple(mass)),
        Panel(
            "accuracy on the question",
            "mean entropy, nats",
            tuple(entropy),
            percent="",
            ticks={
                place: f"\N{LESS-THAN OR EQUAL TO} {100 * upper:g} %"
                for place, upper in enumerate(QUARTERS, 1)
            },
        ),
    ]
    panels += _over_temperature(llms, everything)
    return recorded.figure("answer-mass", "How the answers are spread", lines, panels)


def _over_temperature(llms: Sequence[LLM], everything: Sequence[Strata]) -> list[Panel]:
    """The share of each rank over the temperature; nothing where LLMs do not differ in a known
    one.
    """
    known = [
        (llm.info.temperature, each.mass[0]) for llm, each in zip(llms, everything, strict=True)
    ]
    temperatures = [temperature for temperature, _ in known if temperature is not None]
    if len(set(temperatures)) < max(2, len(llms)):
        return []
    ordered = sorted(known, key=lambda pair: pair[0] or 0.0)
    series = tuple(
        Series(
            f"answer of rank {rank + 1}",
            [temperature or 0.0 for temperature, _ in ordered],
            [mass[rank] if rank < len(mass) else 0.0 for _, mass in ordered],
        )
        for rank in range(min(_SHOWN_RANKS, max(len(mass) for _, mass in ordered)))
    )
    return [Panel("temperature", "share of the CoTs", series)]


def approximation_error(dataset: Dataset, llms: Sequence[LLM], options: FigureOptions) -> Figure:
    """Error of plug-in vote accuracies from G calls against those from all calls, over the number
    of votes (CEV, Figure 5).
    """
    votes = list(range(1, (options.votes or _MOST_VOTES) + 1, 2))
    recorded = FirstCalls.chosen(dataset, llms, options, options.calls + 1)
    errors, biases = [], []
    for llm in llms:
        counts = recorded.counts(llm)
        truth = plugin_plurality_accuracy(*counts.parts, votes).mean()
        difference = _estimates(recorded, llm, options.calls, votes) - truth
        error, bias = np.abs(difference).mean(axis=0), difference.mean(axis=0)
        errors.append(Series(llm.name, votes, error))
        biases.append(Series(llm.name, votes, bias))
    lines = (
        f"{recorded.about()}; G = {options.calls} of them drawn, {_REPLICATES} times",
        (
            "reference: the plug-in of all CoTs, which saturates at their own vote and is no truth"
            " beyond it"
        ),
    )
    panels = (
        Panel("votes M", "mean absolute error", tuple(errors), percent="", points=True),
        Panel("votes M", "mean error (bias)", tuple(biases), percent="", points=True),
    )
    title = f"Vote accuracy estimated from {options.calls} calls"
    return recorded.figure("approximation-error", title, lines, panels)


def _estimates(recorded: FirstCalls, llm: LLM, calls: int, votes: Sequence[int]) -> Floats:
    """[R, M] the plug-in's mean accuracy from so many drawn calls, for each replicate."""
    rows = recorded.rows
    codes = drawn(llm.pool.codes[rows], llm.orders(range(_REPLICATES), calls, rows))
    counts = vote_counts(
        codes.reshape(-1, calls), np.tile(recorded.dataset.gold[rows], _REPLICATES)
    )
    values = plugin_plurality_accuracy(*counts.parts, votes)
    means: Floats = values.per_question().reshape(_REPLICATES, len(rows), len(votes)).mean(axis=1)
    return means


def consistency_error(dataset: Dataset, llms: Sequence[LLM], _: FigureOptions) -> Figure:
    """1 - max_c p_c, what n calls would show of it, and Theorem 1's bound over the splits of the
    recording's calls (arXiv 2509.19489).
    """
    for llm in llms:
        llm.require(None, 2)
    recorded = FirstCalls.on_rows(dataset, llms, np.arange(len(dataset)), LeftOut())
    if recorded.calls > _CALLS[-1]:
        raise OutOfRangeError(
            f"This figure takes up to {_CALLS[-1]} CoTs of a question; {recorded.calls} are"
            " recorded. Select fewer: feval select."
        )
    questions, n = len(recorded.rows), recorded.calls
    calls = [each for each in _CALLS if each < n] + [n]
    budget, nobody = questions * n, np.full(questions, -1)
    best, series = best_integer_split(budget), []
    for llm in llms:
        counts = vote_counts(recorded.codes(llm), nobody)
        outcomes = np.column_stack([counts.rivals, counts.no_answer])
        shares = outcomes / n
        expected = [multiclass_plugin_expectation(shares, k).mean() for k in calls]
        series.append(Series(llm.name, calls, expected))
    splits = np.unique(np.geomspace(1, budget, 200).astype(np.int64))
    bound = np.sqrt(self_consistency_bound(budget / splits, splits.astype(np.float64)))
    recorded_bound = np.sqrt(self_consistency_bound(questions, n))
    marks = (
        Series("bound", splits, bound, look="dashed"),
        Series(
            f"best: {best.m:,.0f} questions x {best.n:,.0f} calls",
            [best.n],
            [np.sqrt(best.bound)],
            look="points",
        ),
        Series(f"recorded: {questions:,} x {n}", [n], [recorded_bound], look="points"),
    )
    lines = (
        f"{recorded.about()}; no gold answers are used; no answer is one outcome",
        (
            "left: what n calls would show if the recorded shares were the law; right: arXiv"
            " 2509.19489, Theorem 1, for two answers"
        ),
    )
    panels = (
        Panel(
            "calls per question, n", "mean of 1 - share of the favourite", tuple(series), log=True
        ),
        Panel(
            f"calls per question, n, of {budget:,} in all",
            "bound on the error (RMSE)",
            marks,
            log=True,
        ),
    )
    title = "Self-consistency error, and splits of the budget"
    return recorded.figure("self-consistency-error", title, lines, panels)


_RESAMPLES = 2000
_FEWEST_QUESTIONS = 3
_STEPS = 20
_MOST_TICKS = 12


def two_call_plane(dataset: Dataset, llms: Sequence[LLM], options: FigureOptions) -> Figure:
    """Accuracy mu of one call against the correlation rho of being right in two, with the boundary
    of certified gains (arXiv 2605.03379, Figure 2).
    """
    recorded = FirstCalls.chosen(dataset, llms, options)
    tails = [(1.0 - options.confidence) / 2.0, (1.0 + options.confidence) / 2.0]
    series = []
    for llm in llms:
        sample = sample_moments(
            recorded.counts(llm), resamples=_RESAMPLES, seed=llm.seed % (1 << 64)
        )
        mus, nus = sample.unclipped.T
        rho, *resampled = _rho(mus, nus).tolist()
        rhos = [each for each in resampled if not np.isnan(each)]
        low, high = np.quantile(rhos, tails).tolist() if rhos else (np.nan, np.nan)
        left, right = np.quantile(mus[1:], tails).tolist()
        series.append(
            Series(llm.name, [sample.mu], [rho], [low], [high], [left], [right], look="points")
        )
    mu = np.linspace(0.5, 1.0, 101)
    boundary = Series(
        "certified below: rho < 1 - 1 / (2 mu)", mu, 1.0 - 1.0 / (2.0 * mu), look="dashed"
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
    return recorded.figure("two-call-plane", "The two-call plane", lines, (panel,))


def certified_gains(dataset: Dataset, llms: Sequence[LLM], options: FigureOptions) -> Figure:
    """Gains of majorities over one call: recorded ones, those that two calls allow, and the least
    that are certified together (arXiv 2605.03379, Theorem 4.1).
    """
    recorded = FirstCalls.chosen(dataset, llms, options, options.votes or 3)
    votes = list(range(3, min(options.votes or 9, recorded.calls) + 1, 2))
    level = 1.0 - (1.0 - options.confidence) / len(llms)
    series = []
    for llm in llms:
        counts = recorded.counts(llm)
        gold, size = counts.gold, counts.size
        sample = sample_moments(counts, resamples=1, seed=0)
        moments, rare = Moments.from_values(sample.mu, sample.nu), rare_pairs(counts)
        intervals = [vote_interval(m // 2, moments) for m in votes]
        gains = [hypergeometric_majority(gold, size, m) - gold / size for m in votes]
        least = np.full(len(votes), np.nan)
        if rare is None and len(gold) >= _FEWEST_QUESTIONS:
            least = simultaneous_gains(gold, size, [m // 2 for m in votes], level)
        ends = [[getattr(each, end) - sample.mu for each in intervals] for end in ("low", "high")]
        low_ends, high_ends = ends if len(llms) == 1 else ([], [])
        series.append(Series(llm.name, votes, [gain.mean() for gain in gains], low_ends, high_ends))
        certified = np.where(least > 0.0, least, np.nan)
        if not np.isnan(certified).all():
            series.append(Series(f"{llm.name}, certified", votes, certified, look="dashed"))
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
    return recorded.figure("certified-gains", "Gains of votes over one call", lines, (panel,))


def mixtures(dataset: Dataset, llms: Sequence[LLM], options: FigureOptions) -> Figure:
    """Votes over calls that pick an LLM at random: accuracy over the weight, the two-call plane,
    and who overtakes whom (arXiv 2605.03379, appendix E).
    """
    votes = options.votes or 5
    if len(llms) < 2:
        raise UsageError(
            f"A mixture takes two LLMs or more; {llms[0].name} alone was given. Name others, --llm"
            " NAME."
        )
    recorded = FirstCalls.chosen(dataset, llms, options, votes)
    size, names = recorded.calls, [llm.name for llm in llms]
    counts = np.stack([recorded.counts(llm).gold for llm in llms], axis=1)
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
        Series("one call", shares, curve.mu, look="dashed"),
        Series(f"{votes} votes", shares, curve.votes[:, 1]),
    ]
    if len(best.policies) == 2:
        over_weight.append(Series("best mixture", [best.weights[0]], [best.votes], look="points"))
    pairs = combinations(range(len(llms)), 2)
    clouds = [
        mixture_from_counts(counts, size, _weights(two, shares, len(llms)), [0]) for two in pairs
    ]
    mu, nu = (np.concatenate([getattr(cloud, name) for cloud in clouds]) for name in ("mu", "nu"))
    plane = [Series("mixtures of two", mu, _rho(mu, nu), look="cloud")]
    plane += [
        Series(name, [x], [y], look="points")
        for name, x, y in zip(names, alone.mu, _rho(alone.mu, alone.nu), strict=True)
    ]
    slopes = [Series(name, [1, votes], ends) for name, ends in zip(names, alone.votes, strict=True)]
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
    return recorded.figure("mixtures", "Mixtures of LLMs, and overtaking", lines, panels)


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


FIGURES: Mapping[str, Callable[[Dataset, Sequence[LLM], FigureOptions], Figure]] = {
    "answer-mass": answer_mass,
    "approximation-error": approximation_error,
    "self-consistency-error": consistency_error,
    "two-call-plane": two_call_plane,
    "certified-gains": certified_gains,
    "mixtures": mixtures,
}
"""The figures by name. CEV is "Compute-efficient evaluation of LLM voting accuracy"."""


@reports("drawing")
def make_figure(
    name: str, dataset: Dataset, llms: Sequence[LLM], options: FigureOptions | None = None
) -> Figure:
    """Make a figure of some LLMs on a dataset.

    Args:
        name: a key of `FIGURES`.
        dataset: the questions, from `load`.
        llms: from the same `load`; one or more.
        options: `None` for the defaults of `FigureOptions`.

    Raises:
        UnknownNameError: no such figure.
        UsageError: too few LLMs for it, or dataset and LLMs from different loads.
        UnlabelledError, ShortPoolError: questions have no gold answer, or too few CoTs.
        OutOfRangeError: a number out of range.
    """
    require_known("figure", name, FIGURES)
    dataset.require(llms)
    return FIGURES[name](dataset, llms, options or FigureOptions())
