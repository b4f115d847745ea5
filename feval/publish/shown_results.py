"""The page's section on results: the numbers and pictures of each, between two marks behind the owner's own words.

    <!-- feval:results-begin (feval push writes this) -->
    <!-- feval:result my-curve -->
    ...
    <!-- feval:results-end -->

A block stays as it was written for as long as the repository has its files, since results and recording may be pushed apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from feval.cards.prices import PriceList
from feval.errors import ReleaseError
from feval.evaluation.cautions import mixed_counters
from feval.publish.figure_tables import per_thousand, price_table, shown_accuracy
from feval.publish.figures import Accuracy
from feval.publish.markdown import code, folded, plain, table
from feval.publish.owner_section import END
from feval.publish.results import FOLDER
from feval.report.tables.tables import cost_mark
from feval.report.text import counted

_BEGIN = "<!-- feval:results-begin (feval push writes this) -->"
_END = "<!-- feval:results-end -->"
_SECTION = re.compile(rf"\n+{re.escape(_BEGIN)}\n(.*?)^{re.escape(_END)}(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_WORDS_END = re.compile(rf"^{re.escape(END)}(?=\r?\n)", re.MULTILINE)
_BLOCK = re.compile(r"^<!-- feval:result (\S+) -->$", re.MULTILINE)
_MOST_ROWS, _FOLDED_ROWS = 200, 12

_Row = tuple[str, Mapping[str, Any]]


def shown_results(page: str) -> dict[str, str]:
    """Return the blocks of a page by the names of their results."""
    found = _SECTION.match(_after_words(page)[1])
    pieces = _BLOCK.split(found[1])[1:] if found else []
    return {name: block.strip() for name, block in zip(pieces[::2], pieces[1::2], strict=True)}


def with_results(page: str, blocks: Mapping[str, str]) -> str:
    """Return a page with these blocks in place of those it had; one that feval did not write has them at its end."""
    before, after = _after_words(page)
    found = _SECTION.match(after)
    if not blocks and not found:
        return page
    shown = "".join(f"<!-- feval:result {name} -->\n\n{block}\n\n" for name, block in sorted(blocks.items()))
    section = f"\n\n{_BEGIN}\n\n## Results\n\n{shown}{_END}\n" if blocks else "\n"
    rest = after[found.end() if found else 0 :].lstrip("\n")
    return f"{before}{section}" + (f"\n{rest}" if rest else "")


def has_words(page: str) -> bool:
    """Return whether a page has the mark behind the owner's words, as those have that feval wrote."""
    return bool(_WORDS_END.search(page))


def _after_words(page: str) -> tuple[str, str]:
    """Return a page up to where its results are, and the rest."""
    page = page.replace("\r\n", "\n")
    words = _WORDS_END.search(page)
    if words:
        return page[: words.end()], page[words.end() :]
    end = f"{page}\n".rfind(f"\n{_END}\n")
    begin = page[: max(end, 0)].rfind(f"\n{_BEGIN}\n")  # a mark without its other one is the page's own words
    place = len(page) if begin < 0 else begin
    return page[:place].rstrip("\n"), page[place:]


def result_block(name: str, files: Mapping[str, Path | bytes], repo_id: str, prices: PriceList | None) -> str | None:
    """Return what the page shows of a result; `None` where its receipt is not among the files.

    `prices` is the list that the result was priced by, where the page is to show it.
    """
    start = f"{FOLDER}/{name}/"
    content = files.get(f"{start}receipt.json")
    if content is None:
        return None
    receipt = json.loads(content if isinstance(content, bytes) else content.read_bytes())
    kind, numbers = str(receipt["kind"]), receipt["numbers"]
    try:
        subject, rows = _subject(kind, numbers), [*_ROWS[kind](numbers)]
        lines = [[code(label), *_cells(row)] for label, row in rows]
        accuracies = [float(row["accuracy"]) for _, row in rows if row.get("accuracy") is not None]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReleaseError(
            f"The numbers of the results {name} cannot be shown ({error!r:.80}). Write the results again, with --out."
        ) from error
    alt = f"{_DRAWN[kind]}: {subject}"
    if accuracies:
        alt += f". {counted(len(rows), 'point')}, accuracy from {100 * min(accuracies):.1f} % to {100 * max(accuracies):.1f} %"
    pieces = [f"### {plain(name)}", f"`feval {kind}`: {subject}."]
    pieces += [f"![{alt}]({path})" for path in files if path.startswith(start) and path.endswith(".png")]
    counters = list(receipt.get("counters", {}).values())
    pieces.append(_numbers_table(lines, counters))
    pieces += map(plain, mixed_counters(counters))
    if receipt["prices"] is not None:
        named = code(str(receipt["prices"]["id"]))
        llms = sorted(receipt.get("counters", {}))
        pieces.append(f"Priced by {named}." if prices is None else price_table(prices, llms))
    pieces.append(f"`feval verify hf://{repo_id}/{start}receipt.json` computes the numbers again.")
    return "\n\n".join(pieces)


def _numbers_table(lines: list[list[str]], counters: Iterable[str]) -> str:
    costs = [name + cost_mark(name, counters) for name in ("tokens per question", "USD per 1,000 questions")]
    header = ["what", "accuracy, % (interval)", *costs]
    used = [n for n in range(len(header)) if not n or any(line[n] != "-" for line in lines)]
    text = table([header[n] for n in used], ([line[n] for n in used] for line in lines[:_MOST_ROWS]))
    if len(lines) > _MOST_ROWS:
        text += f"\n\nThese are the first {_MOST_ROWS} of {len(lines):,} rows; the files have all."
    return text if len(lines) <= _FOLDED_ROWS else folded(f"The numbers, {counted(len(lines), 'row')}", text)


def _cells(row: Mapping[str, Any]) -> list[str]:
    value, low, high, tokens, usd = (None if row.get(key) is None else float(row[key]) for key in _NUMBERS)
    if value is None:
        accuracy = "-"
    elif low is None or high is None:
        accuracy = f"{100 * value:.1f}"
    else:
        accuracy = shown_accuracy(Accuracy(value, low, high))
    return [accuracy, "-" if tokens is None else f"{tokens:,.1f}", per_thousand(usd)]


_NUMBERS = ("accuracy", "accuracy_low", "accuracy_high", "tokens_per_question", "usd_per_question")


def _subject(kind: str, numbers: Mapping[str, Any]) -> str:
    """Return what was computed, in words that are safe on a page."""
    if kind == "compare":
        what = ", ".join(dict.fromkeys(plain(str(curve["label"])) for curve in numbers["curves"]))
    else:
        llms = numbers.get("llms") or [numbers["llm"]] if kind != "grade" else list(numbers["by_llm"])
        method = f"{plain(str(numbers['method']))} with " if "method" in numbers else ""
        what = method + ", ".join(plain(str(llm)) for llm in llms)
    return f"{what} on {plain(str(numbers['dataset']))}, {counted(int(numbers['questions']), 'question')}"


def _curve_rows(numbers: Mapping[str, Any]) -> Iterator[_Row]:
    field = numbers.get("field") or "n"
    yield from ((f"{field}={point.get(field, point.get('value'))}", point) for point in numbers["points"])


def _comparison_rows(numbers: Mapping[str, Any]) -> Iterator[_Row]:
    for curve in numbers["curves"]:
        sweep = curve.get("sweep")
        for point in curve["points"]:
            value = point["fields"].get(sweep)
            yield f"{curve['label']}, {sweep}={value}" if value is not None else str(curve["label"]), point


def _surface_rows(numbers: Mapping[str, Any]) -> Iterator[_Row]:
    """Yield the points that no cheaper one is as good as."""
    for point in numbers["points"]:
        if point["frontier"]:
            tokens = "all tokens" if point["tokens"] is None else f"{point['tokens']} tokens"
            yield f"{point['n']} traces of {tokens}", point


def _estimate_rows(numbers: Mapping[str, Any]) -> Iterator[_Row]:
    for estimate in numbers["estimates"]:
        for point in estimate["points"]:
            bounds = {"accuracy_low": point.get("low"), "accuracy_high": point.get("high")}
            yield f"{estimate['method']} of {estimate['of']}, m={point['m']}", {**point, **bounds}


def _only_row(numbers: Mapping[str, Any]) -> Iterator[_Row]:
    fields = ", ".join(f"{name}={value}" for name, value in numbers.get("fields", {}).items())
    yield fields or "the run", numbers


_ROWS: Mapping[str, Callable[[Mapping[str, Any]], Iterator[_Row]]] = {
    "run": _only_row,
    "grade": _only_row,
    "curve": _curve_rows,
    "compare": _comparison_rows,
    "surface": _surface_rows,
    "estimate": _estimate_rows,
}
"""Kind of receipt -> the rows that the page shows."""
_DRAWN = {
    "run": "Accuracy and cost",
    "grade": "Accuracy and cost",
    "curve": "Lines of accuracy against mean cost per question",
    "compare": "Lines of accuracy against mean cost per question, one for each method",
    "surface": "A map of accuracy over traces per question and tokens after which each is cut",
    "estimate": "Estimated accuracy of votes against their number of calls",
}
