"""The width x depth surface: votes over n traces, each cut after t output tokens, for many n and t
at once.

A trace that has ended within t tokens votes with its final answer, any other with its last probe at
or before t, and one without such a probe does not vote (truncation, arXiv 2501.19393, "budget
forcing" without the word *Wait*). At one t a trace has one answer and one cost, so that the exact
expectation over all draws of n traces is that of self-consistency on these answers
(`feval.estimators.votes.plurality`): no draw is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from feval.arguments import checked
from feval.cards.billing import billed_prompts, usd
from feval.errors import OutOfRangeError
from feval.estimators.cost import mean_output_tokens
from feval.estimators.counts import distinct_vote_counts
from feval.estimators.inference.frontier import pareto
from feval.estimators.inference.intervals import accuracy_interval
from feval.estimators.per_question import QUESTIONS_AT_ONCE, PerQuestion
from feval.estimators.votes.plurality import LARGEST_POOL, subset_plurality_accuracy
from feval.evaluation.cautions import few_questions, mixed_parties, other_models, probes_for_nothing
from feval.evaluation.clusters import ClusterNames, ClusterSizes, cluster_sizes, question_clusters
from feval.evaluation.question_set import NONE_LEFT_OUT, LeftOut, question_set
from feval.executors.progress import reports
from feval.lazy import Shown
from feval.methods.depth.cuts import Cuts
from feval.replay.pools import without_gaps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from feval.methods.arrays import Floats, Integers
    from feval.replay import LLM, Dataset
    from feval.replay.pools import Pool

MOST_POINTS = 100_000
_MOST_DEPTHS = 200


@dataclass(frozen=True, slots=True)
class SurfacePoint:
    """One width and depth.

    Attributes:
        n: traces per question.
        tokens: output tokens after which a trace is cut; `None` for no limit.
        accuracy: mean over questions of the probability that the vote is right.
        accuracy_low: lower end of the confidence interval; `None` where none was asked for.
        accuracy_high: upper end.
        output_tokens: mean output tokens of a question, without those of probes.
        probe_tokens: mean output tokens of probes, 0 where they were not recorded: each trace that
            is cut is probed once.
        tokens_per_question: mean prompt and output tokens billed, those of probes included; `None`
            without prompt tokens.
        usd_per_question: mean USD, `None` without a price or prompt tokens.
        frontier: whether no other point is as cheap and as good, and better in one of the two. Cost
            is USD where it is known at all points, else output tokens.
    """

    n: int
    tokens: int | None
    accuracy: float
    accuracy_low: float | None
    accuracy_high: float | None
    output_tokens: float
    probe_tokens: float
    tokens_per_question: float | None
    usd_per_question: float | None
    frontier: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Surface(Shown):
    """Exact accuracy and cost of votes over the traces of one LLM on one dataset, over width and
    depth.

    Attributes:
        dataset: id.
        llm: name.
        recording_hashes: hashes of all recordings that were opened together.
        prices: id of the price list, `None` where dollars were switched off.
        billing: how prompts were charged.
        counter: name of the token counter.
        questions: number of questions.
        interval: output tokens between two probes; `None` where they lie at other offsets.
        confidence: of the intervals.
        points: by depth (no limit last), then width.
        left_out: questions that were left out because they have no gold or too few traces.
        cautions: sentences about the recording without which the numbers could mislead.
        clusters: what clusters the questions are, where some belong together.
    """

    dataset: str
    llm: str
    recording_hashes: tuple[str, ...]
    prices: str | None
    billing: str
    counter: str
    questions: int
    interval: int | None
    confidence: float | None
    points: tuple[SurfacePoint, ...]
    left_out: LeftOut = NONE_LEFT_OUT
    cautions: tuple[str, ...] = ()
    clusters: ClusterSizes | None = None

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

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences without which the numbers could mislead."""
        return (*few_questions(self.questions, self.clusters), *self.cautions)

    def to_dict(self) -> dict[str, Any]:
        """Return the surface as JSON values."""
        result = asdict(self) | {
            "recording_hashes": list(self.recording_hashes),
            "points": [asdict(point) for point in self.points],
            "warnings": list(self.warnings),
        }
        del result["left_out"], result["cautions"]
        if self.clusters is None:
            del result["clusters"]
        return result | ({"left_out": self.left_out.to_dict()} if self.left_out else {})


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
    progress: Callable[[int, int], None] = lambda _done, _total: None,
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
    widths = _ascending(range(1, llm.pool.smallest + 1) if n is None else n, "numbers of traces")
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
    for depth, (right, mean_tokens, mean_probe_tokens) in zip(
        depths, _values(pool, gold, widths, depths), strict=True
    ):
        points += _points(
            right, mean_tokens, mean_probe_tokens, llm, pool, widths, depth, confidence, grouped
        )
        progress(len(points) // len(widths), len(depths))
    cut = any(cut is not None and cut < pool.output_tokens.max() for cut in depths)
    free = cut and pool.has_uncounted_probes()
    return Surface(
        dataset=dataset.id,
        llm=llm.name,
        recording_hashes=dataset.recording_hashes,
        prices=llm.prices.id if llm.prices is not None else None,
        billing=llm.billing,
        counter=llm.counter,
        questions=len(questions.rows),
        interval=probes.interval,
        confidence=confidence,
        points=_with_frontier(points),
        left_out=questions.left_out,
        cautions=(
            *probes_for_nothing([llm.name] if free else []),
            *mixed_parties(dataset),
            *other_models([llm]),
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
    chosen: dict[str, Any] = {
        "n": _doublings(range(1, int(sizes.min()) + 1)),
        "tokens": [*_doublings(depths), None],
    }
    return surface(dataset, llm, **chosen, unlabelled="drop", short_pools="drop", confidence=None)


def _doublings(values: Sequence[int]) -> list[int]:
    """Return the first, second, fourth, eighth, ... of some values, and the last."""
    places = {2**k - 1 for k in range(len(values).bit_length())} | (
        {len(values) - 1} if values else set()
    )
    return [values[place] for place in sorted(places)]


def _ascending(values: Sequence[int], noun: str) -> list[int]:
    """Return numbers in ascending order, checked."""
    numbers = [int(value) for value in values]
    if not numbers or min(numbers) < 1 or len(set(numbers)) < len(numbers):
        raise OutOfRangeError(
            f"A surface needs distinct {noun} from 1 up; {numbers[:10]} was asked for."
        )
    return sorted(numbers)


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
        ascending = _ascending(limits, "limits of tokens") if limits or not tokens else []
        return [*ascending, *([None] if None in tokens else [])]
    found = np.unique(offsets)
    if interval is None and len(found) > _MOST_DEPTHS:
        raise OutOfRangeError(
            f"Probes lie at {len(found):,} different offsets, from {found[0]} to {found[-1]}"
            " tokens; name the limits of tokens, such as 500,1000,none."
        )
    return [*map(int, found), None]


def _values(
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
        solved = subset_plurality_accuracy(
            counts.gold, counts.rivals, counts.no_answer, widths
        ).of_questions(rows)
        for place, each in enumerate(cut):
            right = PerQuestion(
                solved.values, solved.rows[place * questions : (place + 1) * questions]
            )
            tokens, probing = (
                float(mean_output_tokens(part, pool.sizes).mean())
                for part in (each.pool.output_tokens, each.probe_tokens)
            )
            yield right, tokens, probing


def _points(
    right: PerQuestion,
    mean_tokens: float,
    mean_probe_tokens: float,
    llm: LLM,
    pool: Pool,
    widths: Sequence[int],
    depth: int | None,
    confidence: float | None,
    clusters: Integers | None,
) -> Iterator[SurfacePoint]:
    accuracy = right.mean().tolist()
    low: list[float | None] = [None] * len(widths)
    high = low
    if confidence is not None:
        ends = accuracy_interval(right, confidence, clusters)
        low, high = ends.low.tolist(), ends.high.tolist()
    known = int(pool.prompt_tokens.min()) >= 0
    prompt = float(pool.prompt_tokens.mean()) if known else 0.0
    for place, n in enumerate(widths):
        output, probing, billed = (
            n * mean_tokens,
            n * mean_probe_tokens,
            prompt * int(billed_prompts(llm.billing, 1, n)),
        )
        dollars = (
            float(usd(llm.price, billed, output + probing))
            if known and llm.price is not None
            else None
        )
        total = billed + output + probing if known else None
        yield SurfacePoint(
            n, depth, accuracy[place], low[place], high[place], output, probing, total, dollars
        )


def _with_frontier(points: Sequence[SurfacePoint]) -> tuple[SurfacePoint, ...]:
    dollars = [point.usd_per_question for point in points]
    costs = [point.output_tokens for point in points] if None in dollars else dollars
    accuracy: Floats = np.array([point.accuracy for point in points])
    best = pareto(np.array(costs, np.float64), accuracy).tolist()
    return tuple(
        replace(point, frontier=on) if on else point for point, on in zip(points, best, strict=True)
    )
