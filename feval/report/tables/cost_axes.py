"""How costs are written: their labels and units."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from feval.report.text import decimals_for

if TYPE_CHECKING:
    from feval.replay.clock import Timing

AXES = {
    "usd": ("mean USD per question", "USD", "USD / question"),
    "tokens": ("mean tokens per question, prompt + output", "tokens", "tokens / question"),
    "output-tokens": (
        "mean output tokens per question",
        "output tokens",
        "output tokens / question",
    ),
    "sequential-tokens": (
        "mean sequential tokens per question",
        "sequential tokens",
        "sequential tokens / question",
    ),
    "seconds": ("mean seconds per question", "seconds", "seconds / question"),
    "calls": ("mean calls per question", "calls", "calls / question"),
    "samples": ("mean CoTs per question", "CoTs", "CoTs / question"),
}
"""One of `feval.evaluation.costs.COSTS` -> label along the axis, unit, and what follows a
number.
"""

OTHER_COSTS = ("output-tokens", "sequential-tokens", "seconds")
"""Those that tables of comparisons have only where these count them."""

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
    return decimals_for(value for value in values if value) if cost in ("usd", "seconds") else 1


def usd_scale(amounts: Iterable[float | None]) -> int:
    """Return for how many questions pages write USD: 1,000 where a question may cost less than a
    cent, else 1.
    """
    return 1000 if min((amount for amount in amounts if amount), default=1.0) < 0.01 else 1


def questions_of(scale: int) -> str:
    """Return the name of so many questions, as in "USD / 1,000 questions"."""
    return "question" if scale == 1 else f"{scale:,} questions"
