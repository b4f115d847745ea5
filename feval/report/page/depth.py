"""Traces with their probes and trees of steps, of one question of a report page, as JSON values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from feval.replay import LLM

NOT_SHOWN = -2
"""Stands for the answer where a page shows none: of steps that end nothing, and of traces beyond a
number of changes.
"""

_MOST_CHANGES = 240


def trace_answers(llm: LLM, row: int, places: Sequence[int]) -> list[list[list[int]]]:
    """Return, for each CoT, the token after which each new answer was probed, and the answer's
    code.
    """
    probes, answers = llm.pool.probes(), []
    for place in places:
        own = probes.of(row, place)
        codes = probes.codes[own].astype(np.int64)
        changes = np.flatnonzero(np.diff(codes, prepend=NOT_SHOWN))
        codes[changes[_MOST_CHANGES:]] = NOT_SHOWN
        changes = changes[: _MOST_CHANGES + 1]
        answers.append(np.column_stack([probes.offsets[own][changes], codes[changes]]).tolist())
    return answers


def turn_text(said: str | None, text: str | None) -> str | None:
    """Return the text of a step behind what a turn was sent; `said` is `None` for what is no
    turn.
    """
    return text if said is None else f"> {said}\n\n{text or ''}"


def shown_steps(llm: LLM, row: int, visited: Collection[int], most: int) -> list[int]:
    """Return the places of the steps of a tree that a page has: visited ones before others. They
    rise, so parents come first.
    """
    steps = range(int(llm.pool.sizes[row]))
    return sorted(sorted(steps, key=lambda place: (place not in visited, place))[:most])


def tree(llm: LLM, row: int, places: Sequence[int], texts: Sequence[str | None]) -> list[list[Any]]:
    """Return, for each step at some places, number of its parent among them, tokens, answer's code,
    scores and text.
    """
    steps, pool = llm.pool.steps(), llm.pool
    number = {place: i for i, place in enumerate(places)}
    scores = [pool.scores(name).values[row] for name in pool.channels.scorers()]
    return [
        [
            number.get(int(steps.parents[row, place]), -1),
            int(pool.output_tokens[row, place]),
            int(pool.codes[row, place]) if steps.ends[row, place] else NOT_SHOWN,
            [None if np.isnan(each[place]) else round(float(each[place]), 4) for each in scores],
            text,
        ]
        for place, text in zip(places, texts, strict=True)
    ]
