"""Exact surfaces: votes over the traces of one LLM, by how many they are and where they are cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from feval.arguments import checked
from feval.errors import OutOfRangeError
from feval.estimators.arrays import Integers, pareto
from feval.estimators.per_question import QUESTIONS_AT_ONCE, PerQuestion
from feval.estimators.plurality import (
    LARGEST_POOL,
    distinct_vote_counts,
    mean_output_tokens,
    subset_plurality_accuracy,
)
from feval.evaluation.cautions import other_models, probes_for_nothing
from feval.evaluation.curves import CurvePoint, ascending, interval_columns
from feval.evaluation.measures import QuestionLedger
from feval.evaluation.questions import ClusterNames, cluster_sizes, question_clusters, question_set
from feval.evaluation.results import DatasetResult, rests_on
from feval.executors import Progress, reports, silent
from feval.lazy import Plottable
from feval.methods.cuts import Cuts
from feval.replay import without_gaps

if TYPE_CHECKING:
    from feval.replay import LLM, Dataset, Pool


MOST_POINTS = 100_000
_NO_DOLLARS = (
    "There are no dollars: recorded USD are of whole CoTs, and nothing says what a part of one"
    " cost; a price list (prices) does."
)
_MOST_DEPTHS = 200


class SurfacePoint(CurvePoint):
    """The numbers of one width and depth, by name; each is an attribute, too.

    `n`, traces per question; `tokens`, output tokens after which a trace is cut, `None` for no
    limit; `accuracy` with `accuracy_low` and `accuracy_high`, as of a `CurvePoint`;
    `output_tokens`, the mean of a question without those of probes; `probe_tokens`, 0 where they
    were not recorded: each trace that is cut is probed once; means of measures, such as
    `usd_per_question`; and `frontier`, whether no other point is as cheap and as good, and better
    in one of the two. Cost is USD where it is known at all points, else output tokens.
    """


@dataclass(frozen=True, kw_only=True, repr=False)
class Surface(DatasetResult, Plottable):
    """Exact accuracy and cost of votes over the traces of one LLM on one dataset, over width and
    depth.

    Attributes:
        interval: output tokens between two probes; `None` where they lie at other offsets.
        points: by depth (no limit last), then width.
    """

    interval: int | None
    points: tuple[SurfacePoint, ...]

    @property
    def widths(self) -> list[int]:
        """The numbers of traces, ascending."""
        return sorted({point.n for point in self.points})

    @property
    def depths(self) -> list[int | None]:
        """The limits of tokens, ascending; no limit last."""
        return list(dict.fromkeys(point.tokens for point in self.points))

    @property
    def frontier(self) -> list[SurfacePoint]:
        """The points on the Pareto frontier, the cheapest first."""
        points = [point for point in self.points if point.frontier]
        return sorted(points, key=lambda point: (point.accuracy, point.output_tokens, point.n))

    def to_dict(self) -> dict[str, Any]:
        """Return the surface as JSON values."""
        return self._points_dict("interval")


@checked
@reports("surface")
def surface(
    dataset: Dataset,
    llm: LLM,
    *,
    n: Sequence[int] | None = None,
    tokens: Sequence[int | None] | None = None,
    unlabelled: str = "refuse",
    short_pools: str = "refuse",
    clusters: ClusterNames | None = None,
    confidence: float | None = 0.95,
    progress: Progress = silent,
) -> Surface:
    """Return the exact accuracy and cost of votes over n traces cut after t tokens, for all n and
    t.

    Args:
        dataset: from `load`.
        llm: from the same `load`; its recording has probes.
        n: numbers of traces; `None` for 1 to what every question has.
        tokens: limits of output tokens, `None` among them for no limit; `None` for every offset at
            which there are probes, and no limit.
        unlabelled: "refuse" or "drop" questions without a gold answer that can be read.
        short_pools: "refuse" or "drop" questions with fewer traces than the largest n.
        clusters: which questions are one piece of evidence, as for `evaluate`.
        confidence: of the interval over questions; `None` leaves intervals out.
        progress: called with (depths done, depths in all).

    Raises:
        NotRecordedError: the LLM was not probed on this dataset.
        ShortPoolError: some n is above the smallest pool; the message names the question.
        UnlabelledError: questions have no gold answer that can be read.
        OutOfRangeError: no n or limit, one below 1 or given twice, or more than 100,000 points.
        UsageError: the LLM and the dataset come from different calls of `load`.
    """
    dataset.require([llm])
    probes = llm.pool.probes()
    if n is None and short_pools == "drop":
        raise OutOfRangeError(
            "Questions with too few traces are left out for the largest n only if n is given; name"
            " the widths."
        )
    widths = ascending(
        range(1, llm.pool.smallest + 1) if n is None else n, "surface", "numbers of traces"
    )
    depths = _depths(probes.interval, probes.offsets, tokens)
    if len(widths) * len(depths) > MOST_POINTS:
        raise OutOfRangeError(
            f"{len(widths):,} widths and {len(depths):,} depths make {len(widths) * len(depths):,}"
            f" points; {MOST_POINTS:,} is the most. Name fewer."
        )
    questions = question_set(
        dataset, [(llm, max(widths))], unlabelled=unlabelled, short_pools=short_pools
    )
    pool, gold = llm.pool.rows(questions.rows), dataset.gold[without_gaps(questions.rows)]
    grouped = None if confidence is None else question_clusters(dataset, questions.rows, clusters)
    points: list[SurfacePoint] = []
    values = _depth_values(pool, gold, widths, depths)
    for depth, (right, mean_tokens, mean_probe_tokens) in zip(depths, values, strict=True):
        output, probing = np.array([[mean_tokens], [mean_probe_tokens]]) * np.array(widths)
        ledger = QuestionLedger.at_mean_question(
            llm, pool, widths, output_tokens=output, probe_tokens=probing
        )
        columns = (
            widths, interval_columns(right, confidence, grouped), output.tolist(),
            probing.tolist(), ledger.each("tokens", "usd"),
        )  # fmt: skip
        for width, ends, spent, probed, costs in zip(*columns, strict=True):
            counts = {"output_tokens": spent, "probe_tokens": probed}
            points.append(SurfacePoint(n=width, tokens=depth, **ends, **counts, **costs))
        progress(len(points) // len(widths), len(depths))
    dollars = [point.usd_per_question for point in points]
    paid = [point.output_tokens for point in points] if None in dollars else dollars
    best = pareto(np.array(paid, np.float64), np.array([point.accuracy for point in points]))
    for point, on in zip(points, best.tolist(), strict=True):
        point["frontier"] = on
    cut = any(cut is not None and cut < pool.output_tokens.max() for cut in depths)
    free = cut and pool.has_uncounted_probes()
    return Surface(
        **rests_on(dataset, [llm], questions.rows),
        interval=probes.interval,
        confidence=confidence,
        points=tuple(points),
        left_out=questions.left_out,
        cautions=(
            *probes_for_nothing([llm.name] if free else []),
            *other_models([llm]),
            *[_NO_DOLLARS] * llm.states_usd,
        ),
        clusters=cluster_sizes(grouped),
    )


def coarse_surface(dataset: Dataset, llm: LLM) -> Surface | None:
    """Return the surface, without intervals, at doublings of width and depth up to all that every
    question with CoTs has.

    Questions without a gold or CoTs are left out. `None` where nothing was probed, nothing has a
    gold, or pools are too large.
    """
    sizes = llm.pool.sizes[(dataset.gold >= 0) & (llm.pool.sizes > 0)]
    if not llm.pool.channels.has_probes or not len(sizes) or int(sizes.max()) > LARGEST_POOL:
        return None
    depths: list[int] = np.unique(llm.pool.probes().offsets).tolist()
    return surface(
        dataset,
        llm,
        n=_doublings(range(1, int(sizes.min()) + 1)),
        tokens=[*_doublings(depths), None],
        unlabelled="drop",
        short_pools="drop",
        confidence=None,
    )


def _doublings(values: Sequence[int]) -> list[int]:
    """Return the first, second, fourth, eighth, ... of some values, and the last."""
    places = {2**k - 1 for k in range(len(values).bit_length())} | (
        {len(values) - 1} if values else set()
    )
    return [values[place] for place in sorted(places)]


def _depths(
    interval: int | None, offsets: Integers, tokens: Sequence[int | None] | None
) -> list[int | None]:
    """Return the limits of tokens in ascending order; no limit last."""
    if tokens is not None:
        limits = [limit for limit in tokens if limit is not None]
        if tokens.count(None) > 1:
            raise OutOfRangeError(
                "A surface needs distinct limits of tokens; no limit was asked for twice."
            )
        ordered = ascending(limits, "surface", "limits of tokens") if limits or not tokens else []
        return [*ordered, *([None] if None in tokens else [])]
    found = np.unique(offsets)
    if interval is None and len(found) > _MOST_DEPTHS:
        raise OutOfRangeError(
            f"Probes lie at {len(found):,} different offsets, from {found[0]} to {found[-1]}"
            " tokens; name the limits of tokens, such as 500,1000,none."
        )
    return [*map(int, found), None]


def _depth_values(
    pool: Pool, gold: Integers, widths: Sequence[int], depths: Sequence[int | None]
) -> Iterator[tuple[PerQuestion, float, float]]:
    """Yield, for each depth, probabilities of being right [Q, N], and the mean output tokens of a
    trace and of its probe.

    Depths are solved together as far as their questions fill one block.
    """
    questions, longest = len(gold), int(pool.output_tokens.max())
    together = max(1, QUESTIONS_AT_ONCE // questions)
    for start in range(0, len(depths), together):
        cut = [
            Cuts.at_budget(pool, longest if depth is None else depth)
            for depth in depths[start : start + together]
        ]
        codes = np.concatenate([each.pool.codes for each in cut])
        counts, rows = distinct_vote_counts(codes, np.tile(gold, len(cut)))
        solved = subset_plurality_accuracy(*counts.parts, widths).of_questions(rows)
        for place, each in enumerate(cut):
            right = PerQuestion(
                solved.values, solved.rows[place * questions : (place + 1) * questions]
            )
            tokens, probing = (
                float(mean_output_tokens(part, pool.sizes).mean())
                for part in (each.pool.output_tokens, each.probe_tokens)
            )
            yield right, tokens, probing
