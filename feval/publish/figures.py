"""The pictures on a recording's page, and for each LLM and dataset what was recorded and what is
missing.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from feval.cards import FINISH_REASONS, UNANSWERED, PriceList, price_ids, price_list
from feval.cards.tokens import NONE
from feval.estimators.plurality import LARGEST_POOL
from feval.evaluation.curves import Curve, self_consistency_curve
from feval.evaluation.surfaces import coarse_surface
from feval.publish.markdown import code, folded, plain, share, table
from feval.recording import Recording
from feval.recording.layout.manifest import named_prices
from feval.replay import LLM, Dataset, load
from feval.report import pictures
from feval.report.text import counted, visible

MOST_COTS = 40
"""CoTs per question at which the curves of the picture end."""

_MOST_SURFACES = 4
_MOST_LINES = 8
_MOST_ROWS = 24
_SEED = 0


class PairFigures(NamedTuple):
    """One LLM on one dataset; what is not known is `None`.

    Attributes:
        dataset: its id.
        llm: its name.
        questions: of the dataset.
        asked: how many of them have at least one CoT.
        smallest: fewest CoTs of a question that was asked.
        largest: most CoTs of a question.
        counter: who counted the tokens.
        no_answer: share of CoTs without an answer.
        truncated: share cut off at the limit on output tokens, of the CoTs whose end is known.
        withheld: share that a content filter stopped or the provider failed on, likewise.
        unknown: share of CoTs whose end is not known.
    """

    dataset: str
    llm: str
    questions: int
    asked: int
    smallest: int
    largest: int
    counter: str
    no_answer: float | None
    truncated: float | None
    withheld: float | None
    unknown: float | None


def page_prices(recording: Recording, own: str | PriceList | None) -> PriceList | None:
    """Return the price list of a page's dollars: one's own, else the recording's; `None` where that
    is not known.
    """
    named = own or named_prices([recording.manifest])
    if isinstance(named, PriceList):
        return named
    if not own and (named not in price_ids() or (named == "recorded" and unpaid_cots(recording))):
        return None
    return price_list(named, recording.manifest.llms)


def unpaid_cots(recording: Recording) -> int | None:
    """Return how many CoTs state no USD; `None` where some LLM states none."""
    found = [
        (recording.unpaid(*key), pair["cots"]) for key, pair in recording.manifest.pairs.items()
    ]
    stated = found and all(unpaid < cots for unpaid, cots in found)
    return sum(unpaid for unpaid, _ in found) if stated else None


def figures_of(recording: Recording) -> list[PairFigures]:
    """Return the figures of every LLM on every dataset, in recorded order."""
    figures = []
    for dataset_id in recording.dataset_ids():
        if names := recording.llm_names(dataset_id):
            dataset, llms = load(dataset_id, names, recording, seed=_SEED, prices="none")
            figures += [_figures(dataset, llm) for llm in llms]
    return figures


def _figures(dataset: Dataset, llm: LLM) -> PairFigures:
    pool = llm.pool
    sizes = pool.sizes[pool.sizes > 0].astype(np.int64)
    cots = int(sizes.sum())
    counts = np.bincount(pool.finish[pool.codes != -2], minlength=len(FINISH_REASONS))
    ends = dict(zip(FINISH_REASONS, counts.tolist(), strict=True))
    known = cots - ends["unknown"]
    return PairFigures(
        dataset.id,
        llm.name,
        questions=len(dataset),
        asked=len(sizes),
        smallest=int(sizes.min()) if cots else 0,
        largest=int(sizes.max(initial=0)),
        counter=llm.counter,
        no_answer=float((pool.codes == -1).sum() / cots)
        if cots and not pool.channels.has_steps
        else None,
        truncated=ends["length"] / known if known else None,
        withheld=sum(ends[reason] for reason in UNANSWERED) / known if known else None,
        unknown=ends["unknown"] / cots if cots else None,
    )


def picture(recording: Recording, prices: PriceList | None) -> tuple[str, bytes] | None:
    """Return what is shown, and a PNG of cost against accuracy of votes, a line for each LLM, a
    panel for each dataset.

    LLMs without CoTs of some question, with more than exact curves take, or that were recorded as
    trees or turn by turn, and datasets without golds are left out; `None` where nothing is left.
    """
    panels = [
        curves
        for dataset in recording.dataset_ids()
        if (curves := list(_curves(recording, dataset, prices)))
    ]
    if not panels:
        return None
    several = len(panels) > 1
    drawn = pictures.curve_panels(panels).png(160) if several else pictures.curves(panels[0]).png()
    return _description([curve for curves in panels for curve in curves], panels=several), drawn


def _description(curves: Sequence[Curve], *, panels: bool) -> str:
    """Return what stands in for a picture: its axes, and the accuracies at the ends of its
    lines.
    """
    most = max(curve.points[-1].n for curve in curves)
    cost = pictures.along(curves)[1].partition(";")[0]
    lines = []
    for curve in curves[:_MOST_LINES]:
        first, last = curve.points[0], curve.points[-1]
        where = f" on {plain(curve.dataset)}" if panels else ""
        line = f"{plain(curve.llm)}{where} {100 * first.accuracy:.1f} % with one"
        lines.append(
            line + (f" and {100 * last.accuracy:.1f} % with {last.n}" if last.n > 1 else "")
        )
    more = f"; and {len(curves) - _MOST_LINES} more lines" if len(curves) > _MOST_LINES else ""
    said = f"Accuracy of the vote of 1 to {most} CoTs against {cost}, a line for each LLM"
    return f"{said}{', a panel for each dataset' if panels else ''}: {'; '.join(lines)}{more}"


def surface_pictures(recording: Recording, prices: PriceList | None) -> Iterator[tuple[str, bytes]]:
    """Yield what is shown, with its range, and a PNG of accuracy over width and depth, for the
    first four LLMs with probes.
    """
    probed = (pair for pair in recording.manifest.pairs if recording.has_probes(*pair))
    for dataset, llm in islice(probed, _MOST_SURFACES):
        questions, [replayed] = load(dataset, [llm], recording, seed=_SEED, prices=prices or "none")
        surface = coarse_surface(questions, replayed)
        if surface is not None:
            shares = [100 * point.accuracy for point in surface.points]
            yield (
                f"{llm} on {dataset}, from {min(shares):.1f} % to {max(shares):.1f} %",
                pictures.surface(surface).png(),
            )


def _curves(recording: Recording, dataset: str, prices: PriceList | None) -> Iterable[Curve]:
    pairs: dict[tuple[str, str], dict[str, Any]] = recording.manifest.pairs
    names = [
        llm
        for llm in recording.llm_names(dataset)
        if pairs[dataset, llm]["smallest_pool"] > 0
        and pairs[dataset, llm]["largest_pool"] <= LARGEST_POOL
        and "depth" not in pairs[dataset, llm]
    ]
    if not names or not recording.manifest.datasets[dataset]["with_gold"]:
        return
    alone = len(recording.dataset_ids()) == 1
    questions, llms = load(dataset, names, recording, seed=_SEED, prices=prices or "none")
    for llm in llms:
        counts = range(1, min(llm.pool.smallest, MOST_COTS) + 1)
        yield self_consistency_curve(
            questions, llm, counts, unlabelled="drop", confidence=0.95 if alone else None
        )


def gap_table(figures: Sequence[PairFigures], *, several_datasets: bool) -> str:
    """Return what is missing of each LLM; "" without rows. Of many LLMs on several datasets, a
    folded table for each dataset.
    """
    header = ["LLM", "questions asked", "no answer", "cut off", "withheld or failed"]
    rows: dict[str, list[list[str]]] = {}
    for each in figures:
        is_all = each.asked == each.questions
        asked = "all" if is_all else f"{each.asked:,} of {each.questions:,}"
        shares = map(share, (each.no_answer, each.truncated, each.withheld))
        rows.setdefault(each.dataset, []).append([code(each.llm), asked, *shares])
    if not several_datasets or not rows:
        return "\n\n".join(table(header, own) for own in rows.values())
    if len(figures) <= _MOST_ROWS:
        cells = ([code(dataset), *row] for dataset, own in rows.items() for row in own)
        return table(["dataset", *header], cells)
    tables = []
    for dataset, own in rows.items():
        most = max(each.no_answer or 0.0 for each in figures if each.dataset == dataset)
        title = (
            f"{html.escape(visible(dataset))}: {counted(len(own), 'LLM')}, at most {share(most)}"
            " without an answer"
        )
        tables.append(folded(title, table(header, own)))
    return "\n\n".join(tables)


def price_section(recording: Recording, prices: PriceList | None) -> str:
    """Return the price list of a page, and the one that its recording names, in words and as a
    table.
    """
    named, unpaid = recording.manifest.prices, unpaid_cots(recording)
    if prices and prices.is_recorded:
        return "Each CoT states what it cost in USD; dollars here are by that."
    but = f", but for {unpaid:,}" if unpaid else ""
    stated = f"CoTs state what they cost in USD (`--prices recorded`){but}."
    if all(pair["counter"] == NONE for pair in recording.manifest.pairs.values()):
        return "The recording has neither tokens nor dollars." if unpaid is None else stated
    about = "The recording has tokens and no dollars: any price list can be applied. It names"
    if unpaid is not None:
        about = f"{stated} Any price list can be applied to the tokens, too. The recording names"
    if prices is None:
        unknown = f" {code(named)}, which the feval that wrote this page does not know."
        return about + (" none." if named == "none" else unknown)
    here = (
        "one."
        if named == prices.id
        else f"{'none' if named == 'none' else code(named)}; dollars here are by another."
    )
    rows = []
    for base in dict.fromkeys(record["base"] for record in recording.manifest.llms.values()):
        price = prices.find(base)
        pair = () if price is None else (price.input_usd_per_mtok, price.output_usd_per_mtok)
        cells = [f"{usd:,.10g}" for usd in pair] or ["not listed", "not listed"]
        more = "" if price is None or isinstance(price.to_json(), list) else price.words()
        note = "; ".join(filter(None, (more, prices.notes.get(base))))
        rows.append([code(base), *cells, plain(note)])
    columns = 4 if any(row[3] for row in rows) else 3
    names = ["LLM", "input", "output", "note"][:columns]
    return (
        f"{about} {here}\n\nPrice list {code(prices.id)} of {plain(prices.date)}, USD per million"
        f" tokens. Source: {plain(prices.source)}.\n\n"
        f"{table(names, (row[:columns] for row in rows))}"
    )
