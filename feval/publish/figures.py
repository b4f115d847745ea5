"""The numbers on a recording's page: for each LLM and dataset, what was recorded, how accurate it is, what is missing.

Accuracy is computed as `feval curve` does: one call is the curve's first point, the vote of all recorded CoTs its last one where
every question has as many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.cards.billing import usd
from feval.cards.cards import price_ids
from feval.cards.finish_reasons import FINISH_REASONS, UNANSWERED
from feval.cards.prices import PriceList, price_list
from feval.estimators.counts import vote_counts
from feval.estimators.inference.intervals import accuracy_interval
from feval.estimators.votes.plurality import LARGEST_POOL
from feval.evaluation.clusters import question_clusters
from feval.evaluation.curves import Curve, self_consistency_curve
from feval.evaluation.surface import coarse_surface
from feval.recording import Recording
from feval.replay import LLM, Dataset
from feval.replay.loading import load
from feval.report import pictures

MOST_COTS = 40
"""CoTs per question at which the curves of the picture end."""

_MOST_SURFACES = 4
_SEED = 0
_UNKNOWN = FINISH_REASONS.index("unknown")

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A mean over questions with its 95 % interval, see `feval.estimators.inference.intervals`."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PairFigures:
    """One LLM on one dataset; what is not known is `None`.

    Attributes:
        dataset: its id.
        llm: its name.
        questions: of the dataset.
        asked: how many of them have at least one CoT; dollars are means over these, accuracies over those with a gold.
        smallest: fewest CoTs of a question that was asked.
        largest: most CoTs of a question.
        counter: who counted the tokens.
        output_tokens: mean per CoT.
        no_answer: share of CoTs without an answer.
        truncated: share cut off at the limit on output tokens, of the CoTs whose end is known.
        withheld: share that a content filter stopped or the provider failed on, likewise.
        unknown: share of CoTs whose end is not known.
        single: accuracy of one call; `None` of an LLM that was recorded as trees or turn by turn, as are the next three.
        vote: accuracy of the plurality of all recorded CoTs, ties broken by lot.
        usd_single: mean USD per question of one call.
        usd_vote: of the full vote, each prompt paid once.
    """

    dataset: str
    llm: str
    questions: int
    asked: int
    smallest: int
    largest: int
    counter: str
    output_tokens: float | None
    no_answer: float | None
    truncated: float | None
    withheld: float | None
    unknown: float | None
    single: Accuracy | None
    vote: Accuracy | None
    usd_single: float | None
    usd_vote: float | None


def page_prices(recording: Recording, own: PriceList | None) -> PriceList | None:
    """Return the price list of a page's dollars: one's own, else the recording's; `None` where that is not known."""
    named = recording.manifest.prices
    return own or (price_list(named) if named in price_ids() else None)


def figures_of(recording: Recording, prices: PriceList | None) -> list[PairFigures]:
    """Return the figures of every LLM on every dataset, in recorded order."""
    figures = []
    for dataset_id in recording.dataset_ids():
        if names := recording.llm_names(dataset_id):
            dataset, llms = load(dataset_id, names, recording, seed=_SEED, prices=prices or "none")
            figures += [_figures(dataset, llm) for llm in llms]
    return figures


def _figures(dataset: Dataset, llm: LLM) -> PairFigures:
    pool = llm.pool
    asked = np.flatnonzero(pool.sizes)
    sizes = pool.sizes[asked].astype(np.int64)
    cots = int(sizes.sum())
    single = vote = usd_single = usd_vote = None
    steps = llm.pool.channels.has_steps  # which are no calls; nor are turns, which saw other answers
    if not steps:
        single, vote = _accuracies(dataset, llm, asked)
        usd_single, usd_vote = _dollars(llm, asked)
    truncated, withheld, unknown = _ends(llm)
    return PairFigures(
        dataset.id,
        llm.name,
        len(dataset),
        len(asked),
        int(sizes.min()) if cots else 0,
        int(sizes.max(initial=0)),
        llm.counter,
        float(pool.output_tokens[asked].sum(dtype=np.int64) / cots) if cots else None,
        float((pool.codes[asked] == -1).sum() / cots) if cots and not steps else None,
        truncated,
        withheld,
        unknown,
        single,
        vote,
        usd_single,
        usd_vote,
    )


def _accuracies(dataset: Dataset, llm: LLM, asked: npt.NDArray[np.intp]) -> tuple[Accuracy | None, Accuracy | None]:
    """Return the accuracies of one call and of the full vote, over the questions that have a gold."""
    rows = asked[dataset.gold[asked] >= 0]
    if not len(rows):
        return None, None
    counts = vote_counts(llm.pool.codes[rows], dataset.gold[rows])
    gold, rivals = counts.gold.astype(np.int64), counts.rivals.astype(np.int64)
    right = np.column_stack([gold / counts.size, _lead_share(gold, rivals)])
    means, interval = right.mean(axis=0), accuracy_interval(right, clusters=question_clusters(dataset, rows))
    single, vote = (
        Accuracy(float(means[column]), float(interval.low[column]), float(interval.high[column])) for column in (0, 1)
    )
    return single, vote


def _lead_share(gold: npt.NDArray[np.int64], rivals: npt.NDArray[np.int64]) -> Floats:
    """Return [Q] probability that the plurality of the whole pool is the gold: its share of the lead."""
    most = np.maximum(gold, rivals.max(axis=1, initial=0))
    leaders = 1 + (rivals == most[:, None]).sum(axis=1)
    share: Floats = np.where((gold == most) & (most > 0), 1.0 / leaders, 0.0)
    return share


def _dollars(llm: LLM, asked: npt.NDArray[np.intp]) -> tuple[float | None, float | None]:
    prompts = llm.pool.prompt_tokens[asked]
    if llm.price is None or not len(asked) or int(prompts.min()) < 0:
        return None, None
    tokens = llm.pool.output_tokens[asked].sum(axis=1, dtype=np.int64)
    prompt = float(prompts.mean())
    one, every = float((tokens / llm.pool.sizes[asked]).mean()), float(tokens.mean())
    return float(usd(llm.price, prompt, one)), float(usd(llm.price, prompt, every))


def _ends(llm: LLM) -> tuple[float | None, float | None, float | None]:
    """Return shares cut off, and withheld or failed, of CoTs whose end is known; and the share of unknown ends."""
    finish = llm.pool.finish[llm.pool.codes != -2]
    counts = np.bincount(finish, minlength=len(FINISH_REASONS))
    known = int(counts.sum() - counts[_UNKNOWN])
    unknown = float(counts[_UNKNOWN] / counts.sum()) if len(finish) else None
    if not known:
        return None, None, unknown
    withheld = sum(int(counts[FINISH_REASONS.index(reason)]) for reason in UNANSWERED)
    return float(counts[FINISH_REASONS.index("length")] / known), float(withheld / known), unknown


def picture(recording: Recording, prices: PriceList | None) -> bytes | None:
    """Return a PNG of cost against accuracy of votes, a line for each LLM, a panel for each dataset.

    LLMs without CoTs of some question, with more than exact curves take, or that were recorded as trees or turn by turn, and
    datasets without golds are left out; `None` where nothing is left.
    """
    panels = [curves for dataset in recording.dataset_ids() if (curves := list(_curves(recording, dataset, prices)))]
    if not panels:
        return None
    if len(panels) == 1:
        return pictures.curves_png(panels[0])
    return pictures.curve_panels_png(panels)


def surface_pictures(recording: Recording, prices: PriceList | None) -> Iterator[tuple[str, bytes]]:
    """Yield what is shown, with its range, and a PNG of accuracy over width and depth, for the first four LLMs with probes."""
    probed = (pair for pair in recording.manifest.pairs if recording.has_probes(*pair))
    for dataset, llm in islice(probed, _MOST_SURFACES):
        questions, [replayed] = load(dataset, [llm], recording, seed=_SEED, prices=prices or "none")
        surface = coarse_surface(questions, replayed)
        if surface is not None:
            shares = [100 * point.accuracy for point in surface.points]
            yield f"{llm} on {dataset}, from {min(shares):.1f} % to {max(shares):.1f} %", pictures.surface_png(surface)


def _curves(recording: Recording, dataset: str, prices: PriceList | None) -> Iterable[Curve]:
    pairs: dict[tuple[str, str], dict[str, Any]] = recording.manifest.pairs
    names = [llm for llm in recording.llm_names(dataset) if _has_curve(pairs[dataset, llm])]
    if not names or not recording.manifest.datasets[dataset].get("with_gold"):
        return
    alone = len(recording.dataset_ids()) == 1
    questions, llms = load(dataset, names, recording, seed=_SEED, prices=prices or "none")
    for llm in llms:
        counts = range(1, min(llm.pool.smallest, MOST_COTS) + 1)
        yield self_consistency_curve(questions, llm, counts, unlabelled="drop", confidence=0.95 if alone else None)


def _has_curve(pair: Mapping[str, Any]) -> bool:
    return bool(pair["smallest_pool"] > 0 and pair["largest_pool"] <= LARGEST_POOL and "depth" not in pair)
