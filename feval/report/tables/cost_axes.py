"""How costs are written: their labels and units."""

from __future__ import annotations

AXES = {
    "usd": ("mean USD per question", "USD", "USD / question"),
    "tokens": ("mean tokens per question, prompt + output", "tokens", "tokens / question"),
    "output-tokens": ("mean output tokens per question", "output tokens", "output tokens / question"),
    "sequential-tokens": ("mean sequential tokens per question", "sequential tokens", "sequential tokens / question"),
    "calls": ("mean calls per question", "calls", "calls / question"),
    "samples": ("mean CoTs per question", "CoTs", "CoTs / question"),
}
"""One of `feval.evaluation.costs.COSTS` -> label along the axis, unit, and what follows a number."""

OTHER_COSTS = ("output-tokens", "sequential-tokens")
"""Those that tables of comparisons have only where these count them."""

MORE_COSTS = (*OTHER_COSTS, "calls", "samples")
"""The same of tables of curves."""
