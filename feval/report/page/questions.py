"""The questions of a report page: gold, recorded CoTs and what every method did, small enough to open at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.evaluation.replicates import drawn_orders

if TYPE_CHECKING:
    from feval.comparison.traces import Traces
    from feval.replay import LLM, Dataset

__all__ = ["Caps", "question_book"]

_ELLIPSIS = " […] "


@dataclass(frozen=True, slots=True)
class Caps:
    """How much text a page holds, in characters.

    Attributes:
        questions: most questions.
        question: of one question's text.
        answer: of one answer.
        cot: of one CoT's text; its beginning and its end are kept.
        texts: of all CoTs' texts together; where they are more, each LLM's first ones in draw order are kept.
    """

    questions: int = 5_000
    question: int = 4_000
    answer: int = 120
    cot: int = 600
    texts: int = 8_000_000


def question_book(dataset: Dataset, llms: Sequence[LLM], told: Traces, seed: int, caps: Caps) -> dict[str, Any]:
    """What a page says of each question, as JSON values.

    Args:
        dataset: whose questions.
        llms: whose CoTs are shown.
        told: what the methods did.
        seed: of the draws.
        caps: how much text there may be.
    """
    rows = told.rows[: caps.questions].tolist()
    own = [llm.seeded(seed) for llm in llms]
    orders = [_order(llm, told.order, np.asarray(rows, np.intp)) for llm in own]
    texts = _texts_per_pool(own, rows, caps)
    places = {llm.name: place for place, llm in enumerate(own)}
    return {
        "llms": [llm.name for llm in own],
        "methods": [_method(traces, places) for traces in told.curves],
        "questions": [_question(dataset, own, told, orders, place, row, texts, caps) for place, row in enumerate(rows)],
        "lede": _lede(told, seed),
        "notes": _notes(told, rows, own, texts, caps),
    }


def _lede(told: Traces, seed: int) -> str:
    drawn, more = "in recorded order", ""
    if told.order == "seeded":
        drawn = f"in one seeded draw (seed {seed}, replicate 0)"
        more = " The results above are means or expectations over draws; this is one of them."
    return (
        f"What every method did with every question, {drawn}. Open a question, then choose a method's answer to see which CoTs "
        f"it drew and where it stopped, or a CoT to read it.{more}"
    )


def _notes(told: Traces, rows: list[int], llms: Sequence[LLM], texts: int, caps: Caps) -> list[str]:
    notes = [f"{label} is not followed here: {reason}" for label, reason in told.missing]
    if len(rows) < len(told.rows):
        notes.append(f"The first {len(rows):,} of {len(told.rows):,} questions are shown.")
    largest = max((int(llm.pool.sizes.max()) for llm in llms), default=0)
    cut = f"Texts longer than {caps.cot} characters are cut in the middle"
    if texts < largest:
        cut += f", and only the first {texts} CoTs that each LLM drew have their text here"
    return [*notes, f"{cut}; the recording holds all of it." if largest else ""]


def _method(traces: Sequence[Any], places: dict[str, int]) -> dict[str, Any]:
    return {
        "label": traces[0].label if traces else "",
        "points": [trace.budget for trace in traces],
        "llms": [[places[name] for name in trace.llms] for trace in traces],
    }


def _order(llm: LLM, order: str, rows: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
    """[Q, smallest pool] recorded places of the CoTs in the order in which they are handed out."""
    draws = int(llm.pool.sizes[rows].min()) if len(rows) else 0
    if not draws:
        return np.zeros((len(rows), 0), np.uint16)
    return np.asarray(next(drawn_orders(llm, order, 1, draws, rows))[0])


def _texts_per_pool(llms: Sequence[LLM], rows: list[int], caps: Caps) -> int:
    """How many CoTs of each pool have their text in the page: all, where a look at a few questions says that they fit."""
    looked = rows[:: max(1, len(rows) // 16)]
    lengths = [min(len(text or ""), caps.cot) for llm in llms for row in looked for text in llm.texts(row)]
    if not lengths:
        return 0
    each = max(1.0, sum(lengths) / len(lengths)) * len(rows) * len(llms)
    return min(int(caps.texts / each), max(int(llm.pool.sizes.max()) for llm in llms))


def _question(
    dataset: Dataset,
    llms: Sequence[LLM],
    told: Traces,
    orders: Sequence[npt.NDArray[Any]],
    place: int,
    row: int,
    texts: int,
    caps: Caps,
) -> dict[str, Any]:
    entry = dataset[row]
    return {
        "i": _cut(entry.id, caps.answer),
        "q": _cut(entry.question, caps.question),
        "g": None if entry.answer is None else _cut(entry.answer, caps.answer),
        "c": [[_cut(label, caps.answer), _cut(text, caps.cot)] for label, text in entry.choices],
        "a": [_cut(answer, caps.answer) for answer in dataset.candidates(row)],
        "k": int(dataset.gold[row]),
        "d": [_pool(llm, order[place].tolist(), row, texts, caps) for llm, order in zip(llms, orders, strict=True)],
        "m": [[[int(t.answer[place]), *t.cots[:, place].tolist()] for t in curve] for curve in told.curves],
    }


def _pool(llm: LLM, drawn: list[int], row: int, texts: int, caps: Caps) -> list[Any]:
    """Codes, output tokens and texts of a pool: first in the order of the draw, then what is beyond the smallest pool."""
    size = int(llm.pool.sizes[row])
    reached = set(drawn)
    order = [*drawn, *(place for place in range(size) if place not in reached)]
    written = llm.texts(row) if texts else []
    kept = [written[place] for place in islice(order, texts)]
    return [
        llm.pool.codes[row, order].tolist(),
        llm.pool.output_tokens[row, order].tolist(),
        [None if text is None else _cut(text, caps.cot, ends=True) for text in kept],
        len(drawn),
    ]


def _cut(text: str, most: int, *, ends: bool = False) -> str:
    """Text of at most so many characters; of a CoT both ends are kept, since the answer stands at the last."""
    if len(text) <= most:
        return text
    tail = (most - len(_ELLIPSIS)) // 3 if ends else 0
    head = most - len(_ELLIPSIS) - tail
    return text[:head] + _ELLIPSIS + (text[-tail:] if tail else "")
