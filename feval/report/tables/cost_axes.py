"""Cost axes of comparisons: their labels and units, and the cost of an evaluation on one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feval.evaluation.evaluation import Evaluation

AXES = {
    "usd": ("mean USD per question", "USD", "USD / question"),
    "tokens": ("mean tokens per question, prompt + output", "tokens", "tokens / question"),
    "calls": ("mean calls per question", "calls", "calls / question"),
    "samples": ("mean CoTs per question", "CoTs", "CoTs / question"),
}
"""Cost axes: name -> label along the axis, unit, and what follows a number."""


def cost(evaluation: Evaluation, axis: str) -> float | None:
    """Return the mean cost per question on an axis; `None` where it is not known."""
    mean: float | None = getattr(evaluation, f"{axis}_per_question")
    return mean
