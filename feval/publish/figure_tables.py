"""The page's tables of figures: accuracies, gaps, and prices."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence

from feval.cards.prices import PriceList
from feval.publish.figures import Accuracy, PairFigures
from feval.publish.markdown import UNBROKEN, code, folded, plain, share, table
from feval.recording import Recording
from feval.report.text import counted, plain_number, visible

_MOST_ROWS = 24


def accuracy_table(figures: Sequence[PairFigures], *, several_datasets: bool) -> str:
    """Return accuracies and dollars of one call and of the full vote; "" without rows."""
    header = [
        "LLM", "CoTs per question", "tokens per CoT", "one call, %", "full vote, %", "USD, one call", "USD, full vote",
    ]  # fmt: skip
    return _by_dataset(figures, header, _accuracy_cells, _best, several_datasets=several_datasets)


def gap_table(figures: Sequence[PairFigures], *, several_datasets: bool) -> str:
    """Return what is missing of each LLM; "" without rows."""
    header = ["LLM", "questions asked", "no answer", "cut off", "withheld or failed"]
    return _by_dataset(figures, header, _gap_cells, _worst, several_datasets=several_datasets)


def price_section(recording: Recording, prices: PriceList | None) -> str:
    """Return the price list of a page, and the one that its recording names, in words and as a table."""
    named = recording.manifest.prices
    about = "The recording has tokens and no dollars: any price list can be applied. It names"
    if prices is None:
        unknown = f" {code(named)}, which the feval that wrote this page does not know."
        return about + (" none." if named == "none" else unknown)
    bases = (str(record.get("base")) for record in recording.manifest.llms.values())
    here = (
        "one." if named == prices.id else f"{'none' if named == 'none' else code(named)}; dollars here are by another."
    )
    return f"{about} {here}\n\n{price_table(prices, bases)}"


def price_table(prices: PriceList, llms: Iterable[str]) -> str:
    """Return what a price list says of some LLMs, with its date and source."""
    rows = []
    for base in dict.fromkeys(llm.split("@", 1)[0] for llm in llms):
        price = prices.find(base)
        pair = () if price is None else (price.input_usd_per_mtok, price.output_usd_per_mtok)
        cells = [f"{usd:,.10g}" for usd in pair] or ["not listed", "not listed"]
        rows.append([code(base), *cells, plain(prices.notes.get(base, ""))])
    columns = 4 if any(row[3] for row in rows) else 3
    about = (
        f"Price list {code(prices.id)} of {plain(prices.date)}, USD per million tokens. Source: {plain(prices.source)}."
    )
    return f"{about}\n\n{table(['LLM', 'input', 'output', 'note'][:columns], (row[:columns] for row in rows))}"


def has_gap(figures: PairFigures) -> bool:
    """Return whether questions were not asked, or CoTs have no answer or did not come to their end."""
    return figures.asked < figures.questions or any((figures.no_answer, figures.truncated, figures.withheld))


def _accuracy_cells(figures: PairFigures) -> list[str]:
    size = (
        f"{figures.smallest:,}"
        if figures.smallest == figures.largest
        else f"{figures.smallest:,} to {figures.largest:,}"
    )
    tokens = "-" if figures.output_tokens is None else f"{figures.output_tokens:,.{int(figures.output_tokens < 100)}f}"
    dollars = map(per_thousand, (figures.usd_single, figures.usd_vote))
    return [size, tokens, shown_accuracy(figures.single), shown_accuracy(figures.vote), *dollars]


def _best(rows: Sequence[PairFigures]) -> str:
    best = max((row for row in rows if row.vote), key=lambda row: row.vote.value if row.vote else 0.0, default=None)
    if best is None or best.vote is None:
        return counted(len(rows), "LLM")
    return f"{counted(len(rows), 'LLM')}, best full vote {100 * best.vote.value:.1f} %"


def _gap_cells(figures: PairFigures) -> list[str]:
    asked = "all" if figures.asked == figures.questions else f"{figures.asked:,} of {figures.questions:,}"
    return [asked, *map(share, (figures.no_answer, figures.truncated, figures.withheld))]


def _worst(rows: Sequence[PairFigures]) -> str:
    most = max(row.no_answer or 0.0 for row in rows)
    return f"{counted(len(rows), 'LLM')}, at most {share(most)} without an answer"


def shown_accuracy(accuracy: Accuracy | None) -> str:
    """Return an accuracy with its interval, in per cent."""
    if accuracy is None:
        return "-"
    interval = f"({100 * accuracy.low:.1f} to {100 * accuracy.high:.1f})"
    return f"{100 * accuracy.value:.1f} {interval}".replace(" ", UNBROKEN)


def per_thousand(usd: float | None) -> str:
    """Return the USD of 1,000 questions."""
    return "-" if usd is None else plain_number(1000 * usd)


def _by_dataset(
    rows: Sequence[PairFigures],
    header: Sequence[str],
    cells: Callable[[PairFigures], list[str]],
    summary: Callable[[Sequence[PairFigures]], str],
    *,
    several_datasets: bool,
) -> str:
    """Return one table, with a column for the dataset where there are several; of many rows, a folded table for each dataset.

    The header begins with the LLM, `cells` gives the others; columns in which nothing is known are left out.
    """
    if not rows:
        return ""
    body = [[code(row.llm), *cells(row)] for row in rows]
    used = [n for n in range(len(header)) if any(line[n] != "-" for line in body)]
    header, body = [header[n] for n in used], [[line[n] for n in used] for line in body]
    if not several_datasets:
        return table(header, body)
    if len(rows) <= _MOST_ROWS:
        return table(["dataset", *header], ([code(row.dataset), *line] for row, line in zip(rows, body, strict=True)))
    tables = []
    for dataset in dict.fromkeys(row.dataset for row in rows):
        pairs = [(row, line) for row, line in zip(rows, body, strict=True) if row.dataset == dataset]
        title = f"{html.escape(visible(dataset))}: {summary([row for row, _ in pairs])}"
        tables.append(folded(title, table(header, (line for _, line in pairs))))
    return "\n\n".join(tables)
