"""How costs are written: their labels and units."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from feval.evaluation.measures import COSTS, MEASURES
from feval.report.text import decimals_for

if TYPE_CHECKING:
    from feval.replay.clock import Timing

AXES = {
    cost: (MEASURES[name].label, MEASURES[name].unit, f"{MEASURES[name].unit} / question")
    for cost, name in COSTS.items()
}
"""One of `feval.evaluation.measures.COSTS` -> label along the axis, unit, and what follows a
number.
"""

OTHER_COSTS = tuple(cost for cost, name in COSTS.items() if MEASURES[name].shown != "always")
"""Those that tables have only where these count them."""

MORE_COSTS = (*OTHER_COSTS, "calls", "samples")
"""The same of tables of curves."""


def cost_words(cost: str, timing: Timing | None) -> tuple[str, str, str]:
    """Return the words of `AXES` for a cost; seconds say whether they are modelled or replayed."""
    label, unit, per_question = AXES[cost]
    if cost != "seconds" or timing is None:
        return label, unit, per_question
    return (
        label.replace(unit, f"{timing.word} {unit}"),
        f"{timing.word} {unit}",
        f"{timing.word} {per_question}",
    )


def cost_decimals(cost: str, values: Iterable[float | None]) -> int:
    """Return how many decimals costs have in a column: as many as the smallest needs, and one where
    tokens are counted.
    """
    return decimals_for(value for value in values if value) if MEASURES[COSTS[cost]].small else 1


def usd_scale(amounts: Iterable[float | None]) -> int:
    """Return for how many questions pages write USD: 1,000 where a question may cost less than a
    cent, else 1.
    """
    return 1000 if min((amount for amount in amounts if amount), default=1.0) < 0.01 else 1


def questions_of(scale: int) -> str:
    """Return the name of so many questions, as in "USD / 1,000 questions"."""
    return "question" if scale == 1 else f"{scale:,} questions"
