"""The questions of a report page: gold, recorded CoTs and what every method did, within limits of
size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.evaluation.replicates import drawn_orders
from feval.report.looking.questions import said
from feval.report.page.depth import shown_steps, trace_answers, tree, turn_text

if TYPE_CHECKING:
    from feval.comparison.traces import Traces
    from feval.replay import LLM, Dataset

_ELLIPSIS = " […] "


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits on a page's text: the number of questions, then characters of a question, an answer, a
    CoT and all CoTs together.

    Of a long CoT its beginning and end are shown; beyond `texts`, only each LLM's first CoTs in
    draw order have their text. The first `deep` questions have traces with probes, and trees of
    steps, of each LLM so many.
    """

    questions: int = 5_000
    question: int = 4_000
    answer: int = 120
    cot: int = 600
    texts: int = 8_000_000
    deep: int = 20
    traces: int = 32
    steps: int = 200
    step: int = 240


def question_book(
    dataset: Dataset, llms: Sequence[LLM], traces: Traces, seed: int, caps: Caps
) -> dict[str, Any]:
    """Return the questions of a page, with CoTs and what the methods did in draws of one seed, as
    JSON values.
    """
    rows = traces.rows[: caps.questions].tolist()
    draws = [llm.seeded(seed) for llm in llms]
    trees = [
        list(llm.pool.channels.scorers()) if llm.pool.channels.has_steps else None for llm in draws
    ]
    whole = [llm for llm, scorers in zip(draws, trees, strict=True) if scorers is None]
    orders = [_order(llm, traces.order, np.asarray(rows, np.intp)) for llm in draws]
    texts = _texts_per_pool(whole, rows, caps)
    places = {llm.name: place for place, llm in enumerate(draws)}
    return {
        "llms": [llm.name for llm in draws],
        "trees": trees,
        "turns": [llm.pool.channels.has_turns for llm in draws],
        "methods": [_method(curve, places) for curve in traces.curves],
        "questions": [
            _question(dataset, draws, traces, orders, place, row, texts, caps)
            | (_depth(draws, traces, orders, place, row, caps) if place < caps.deep else {})
            for place, row in enumerate(rows)
        ],
        "lede": _lede(traces, seed),
        "notes": [*_notes(traces, rows, whole, texts, caps), *_depth_notes(draws, caps)],
    }


def _lede(traces: Traces, seed: int) -> str:
    order, more = "in recorded order", ""
    if traces.order == "seeded":
        order = f"in one seeded draw (seed {seed}, replicate 0)"
        more = " The results above are means or expectations over draws; this is one of them."
    return (
        f"What every method did with every question, {order}. Open a question, then choose a"
        " method's answer to see which CoTs it drew and where it stopped, or a CoT to read"
        f" it.{more}"
    )


def _notes(
    traces: Traces, rows: list[int], llms: Sequence[LLM], texts: int, caps: Caps
) -> list[str]:
    notes = [f"{label} is not followed here: {reason}" for label, reason in traces.missing]
    if len(rows) < traces.judged:
        notes.append(
            f"The first {len(rows):,} of {traces.judged:,} questions are shown. The results above"
            " are over all of them; questions.parquet, which `feval compare --out` writes beside"
            " this page, has every method's numbers on each."
        )
    largest = max((int(llm.pool.sizes.max()) for llm in llms), default=0)
    cut = f"Texts longer than {caps.cot} characters are cut in the middle"
    if texts < largest:
        cut += f", and only the first {texts} CoTs that each LLM drew have their text here"
    return [*notes, f"{cut}; the recording holds all of it." if largest else ""]


def _method(curve: Sequence[Any], places: dict[str, int]) -> dict[str, Any]:
    return {
        "label": curve[0].label if curve else "",
        "points": [trace.budget for trace in curve],
        "llms": [[places[name] for name in trace.llms] for trace in curve],
    }


def _order(llm: LLM, order: str, rows: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
    """[Q, smallest pool] indices of the CoTs in the order in which they are drawn."""
    draws = int(llm.pool.sizes[rows].min()) if len(rows) and not llm.pool.channels.has_steps else 0
    if not draws:
        return np.zeros((len(rows), 0), np.uint16)
    return np.asarray(next(drawn_orders(llm, order, 1, draws, rows))[0])


def _texts_per_pool(llms: Sequence[LLM], rows: list[int], caps: Caps) -> int:
    """Number of CoTs per pool that have their text in the page, from the lengths on a sample of the
    questions.
    """
    sampled = rows[:: max(1, len(rows) // 16)]
    lengths = [
        min(len(text or ""), caps.cot) for llm in llms for row in sampled for text in llm.texts(row)
    ]
    if not lengths:
        return 0
    each = max(1.0, sum(lengths) / len(lengths)) * len(rows) * len(llms)
    return min(int(caps.texts / each), max(int(llm.pool.sizes.max()) for llm in llms))


def _question(
    dataset: Dataset,
    llms: Sequence[LLM],
    traces: Traces,
    orders: Sequence[npt.NDArray[Any]],
    place: int,
    row: int,
    texts: int,
    caps: Caps,
) -> dict[str, Any]:
    entry = dataset[row]
    return {
        "i": cut(entry.id, caps.answer),
        "q": cut(entry.question, caps.question),
        "g": None if entry.answer is None else cut(entry.answer, caps.answer),
        "c": [[cut(label, caps.answer), cut(text, caps.cot)] for label, text in entry.choices],
        "a": [cut(answer, caps.answer) for answer in dataset.candidates(row)],
        "k": int(dataset.gold[row]),
        "d": [
            _pool(llm, order[place].tolist(), row, texts, caps)
            for llm, order in zip(llms, orders, strict=True)
        ],
        "m": [
            [[int(t.answer[place]), *t.cots[:, place].tolist()] for t in curve]
            for curve in traces.curves
        ],
    }


def _pool(llm: LLM, places: list[int], row: int, texts: int, caps: Caps) -> list[Any]:
    """Codes, output tokens and texts of a pool in draw order, then the CoTs beyond the smallest
    pool.
    """
    if llm.pool.channels.has_steps:
        return []
    size = int(llm.pool.sizes[row])
    reached = set(places)
    order = [*places, *(place for place in range(size) if place not in reached)]
    written = llm.texts(row) if texts else []
    shown = [written[place] for place in islice(order, texts)]
    return [
        llm.pool.codes[row, order].tolist(),
        llm.pool.output_tokens[row, order].tolist(),
        [None if text is None else cut(text, caps.cot, ends=True) for text in shown],
        len(places),
    ]


def _depth(
    llms: Sequence[LLM],
    traces: Traces,
    orders: Sequence[npt.NDArray[Any]],
    place: int,
    row: int,
    caps: Caps,
) -> dict[str, Any]:
    """By LLM, its traces with their probes or its tree; by method, point and LLM, tokens of each
    trace or the steps taken.
    """
    if not any(llm.pool.channels.has_probes or llm.pool.channels.has_steps for llm in llms):
        return {}
    grown = [
        [
            (
                dict(zip(trace.llms, trace.grown[place], strict=True))
                if place < len(trace.grown)
                else {}
            )
            for trace in curve
        ]
        for curve in traces.curves
    ]
    content: list[Any] = []
    steps: list[dict[int, int] | None] = []
    for llm, order in zip(llms, orders, strict=True):
        if not llm.pool.channels.has_steps:
            steps.append(None)
            own = order[place, : caps.traces].tolist()
            content.append(trace_answers(llm, row, own) if llm.pool.channels.has_probes else None)
            continue
        taken = {step for curve in grown for each in curve for step, _ in each.get(llm.name, ())}
        places, texts = shown_steps(llm, row, taken, caps.steps), llm.texts(row)
        sent = llm.messages(row) or [None] * len(texts)
        words = [
            turn_text(
                said(sent[step]),
                None if (text := texts[step]) is None else cut(text, caps.step, ends=True),
            )
            for step in places
        ]
        steps.append({step: number for number, step in enumerate(places)})
        content.append(tree(llm, row, places, words))

    def shown(
        own: Sequence[tuple[int, int]] | None, numbers: dict[int, int] | None
    ) -> list[int] | None:
        if own is None:
            return None
        if numbers is None:
            return [tokens for _, tokens in own[: caps.traces]]
        return [numbers[step] for step, _ in own if step in numbers]

    reached = [
        [
            [shown(each.get(llm.name), own) for llm, own in zip(llms, steps, strict=True)]
            for each in curve
        ]
        for curve in grown
    ]
    return {"t": content, "r": reached}


def _depth_notes(llms: Sequence[LLM], caps: Caps) -> list[str]:
    notes = []
    if any(llm.pool.channels.has_probes for llm in llms):
        notes.append(
            f"The first {caps.deep} questions show the first {caps.traces} traces of each LLM with"
            " their probes, and where methods stopped them."
        )
    if any(llm.pool.channels.has_steps for llm in llms):
        notes.append(
            f"The first {caps.deep} questions show {caps.steps} steps of a tree, first those that"
            f" methods took; texts longer than {caps.step} characters are cut in the middle."
        )
    return notes


def cut(text: str, most: int, *, ends: bool = False) -> str:
    """Cut a text to so many characters; `ends` keeps its end too, where a CoT has its answer."""
    if len(text) <= most:
        return text
    tail = (most - len(_ELLIPSIS)) // 3 if ends else 0
    head = most - len(_ELLIPSIS) - tail
    return text[:head] + _ELLIPSIS + (text[-tail:] if tail else "")
