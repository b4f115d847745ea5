"""The page's section on results: the pictures and the receipt of each, between two marks behind the
owner's own words.

    <!-- feval:results-begin (feval push writes this) -->
    <!-- feval:result my-curve -->
    ...
    <!-- feval:results-end -->

A block stays as it was written for as long as the repository has its files, since results and
recording may be pushed apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feval.cards.prices import PriceList
from feval.errors import ConflictError, ReleaseError
from feval.evaluation.cautions import mixed_counters
from feval.publish.markdown import code, plain
from feval.publish.owner_section import END
from feval.publish.results import FOLDER
from feval.report.text import counted

_BEGIN = "<!-- feval:results-begin (feval push writes this) -->"
_END = "<!-- feval:results-end -->"
_SECTION = re.compile(
    rf"\n+{re.escape(_BEGIN)}\n(.*?)^{re.escape(_END)}(?:\n|\Z)", re.DOTALL | re.MULTILINE
)
_WORDS_END = re.compile(rf"^{re.escape(END)}(?=\r?\n)", re.MULTILINE)
_BLOCK = re.compile(r"^<!-- feval:result (\S+) -->$", re.MULTILINE)


def shown_results(page: str) -> dict[str, str]:
    """Return the blocks of a page by the names of their results."""
    found = _SECTION.match(_after_words(page)[1])
    pieces = _BLOCK.split(found[1])[1:] if found else []
    return {name: block.strip() for name, block in zip(pieces[::2], pieces[1::2], strict=True)}


def with_results(page: str, blocks: Mapping[str, str]) -> str:
    """Return a page with these blocks in place of those it had; one that feval did not write has
    them at its end.
    """
    before, after = _after_words(page)
    found = _SECTION.match(after)
    if not blocks and not found:
        return page
    shown = "".join(
        f"<!-- feval:result {name} -->\n\n{block}\n\n" for name, block in sorted(blocks.items())
    )
    section = f"\n\n{_BEGIN}\n\n## Results\n\n{shown}{_END}\n" if blocks else "\n"
    rest = after[found.end() if found else 0 :].lstrip("\n")
    return f"{before}{section}" + (f"\n{rest}" if rest else "")


def has_words(page: str) -> bool:
    """Return whether a page has the mark behind the owner's words, as those have that feval
    wrote.
    """
    return bool(_WORDS_END.search(page))


def _after_words(page: str) -> tuple[str, str]:
    """Return a page up to where its results are, and the rest."""
    page = page.replace("\r\n", "\n")
    words = _WORDS_END.search(page)
    if words:
        return page[: words.end()], page[words.end() :]
    end = f"{page}\n".rfind(f"\n{_END}\n")
    # a mark without its other one is the page's own words
    begin = page[: max(end, 0)].rfind(f"\n{_BEGIN}\n")
    place = len(page) if begin < 0 else begin
    return page[:place].rstrip("\n"), page[place:]


def result_block(
    name: str, files: Mapping[str, Path | bytes], repo_id: str, shown: PriceList | None
) -> str | None:
    """Return what the page shows of a result; `None` where its receipt is not among the files.

    `shown` is the price list that the page has; one of the same name with other prices is a
    `ConflictError`.
    """
    start = f"{FOLDER}/{name}/"
    content = files.get(f"{start}receipt.json")
    if content is None:
        return None
    receipt = json.loads(content if isinstance(content, bytes) else content.read_bytes())
    kind, prices = str(receipt["kind"]), receipt["prices"]
    try:
        subject = _subject(kind, receipt["numbers"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReleaseError(
            f"The numbers of the results {name} cannot be shown ({error!r:.80}). Write the results"
            " again, with --out."
        ) from error
    if (
        prices is not None
        and shown is not None
        and prices["id"] == shown.id
        and prices["digest"] != shown.digest
    ):
        raise ConflictError(
            f"The results {name} were priced by another version of the list {shown.id!r} (digest"
            f" {prices['digest'][:12]}, here {shown.digest[:12]}). Give that one with --prices, or"
            " write the results again."
        )
    alt = f"{_DRAWN[kind]}: {subject}"
    pieces = [f"### {plain(name)}", f"`feval {kind}`: {subject}."]
    pieces += [
        f"![{alt}]({path})" for path in files if path.startswith(start) and path.endswith(".png")
    ]
    pieces += map(plain, mixed_counters(receipt.get("counters", {}).values()))
    pieces += [] if prices is None else [f"Priced by {code(str(prices['id']))}."]
    receipt_path = f"{start}receipt.json"
    pieces.append(
        f"Numbers: [receipt]({receipt_path}). `feval verify hf://{repo_id}/{receipt_path}` computes"
        " them again."
    )
    return "\n\n".join(pieces)


def _subject(kind: str, numbers: Mapping[str, Any]) -> str:
    """Return what was computed, in words that are safe on a page."""
    if kind == "compare":
        what = ", ".join(dict.fromkeys(plain(str(curve["label"])) for curve in numbers["curves"]))
    else:
        llms = (
            numbers.get("llms") or [numbers["llm"]] if kind != "grade" else list(numbers["by_llm"])
        )
        method = f"{plain(str(numbers['method']))} with " if "method" in numbers else ""
        what = method + ", ".join(plain(str(llm)) for llm in llms)
    return (
        f"{what} on {plain(str(numbers['dataset']))},"
        f" {counted(int(numbers['questions']), 'question')}"
    )


_DRAWN = {
    "run": "Accuracy and cost",
    "grade": "Accuracy and cost",
    "curve": "Lines of accuracy against mean cost per question",
    "compare": "Lines of accuracy against mean cost per question, one for each method",
    "surface": "A map of accuracy over traces per question and tokens after which each is cut",
    "estimate": "Estimated accuracy of votes against their number of calls",
}
