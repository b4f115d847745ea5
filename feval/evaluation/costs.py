"""What a budget is counted in, per question, and what an evaluation costs there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.errors import UsageError
from feval.methods.protocol import SEQUENTIAL
from feval.replay.clock import SECONDS

if TYPE_CHECKING:
    from feval.evaluation.evaluation import Evaluation
    from feval.methods.arrays import Floats

COSTS = ("usd", "tokens", "output-tokens", SEQUENTIAL, SECONDS, "calls", "samples")
"""Dollars, tokens billed, tokens generated, those generated one after the other (what one waits
for), the seconds of these, requests, CoTs.
"""


def costs_of(evaluation: Evaluation, cost: str) -> Floats | None:
    """[Q] costs of an evaluation in one of `COSTS`; `None` where they are not known."""
    if cost == SEQUENTIAL:
        return evaluation.sequential()
    if cost == "output-tokens":
        return evaluation.generated_tokens
    costs: Floats | None = getattr(evaluation, cost)
    return costs


def known_costs(evaluation: Evaluation, cost: str) -> Floats:
    """[Q] costs as of `costs_of`; a `UsageError` that names the costs that are known where these
    are not.
    """
    costs = costs_of(evaluation, cost)
    if costs is not None:
        return costs
    others = ", ".join(name for name in COSTS if costs_of(evaluation, name) is not None)
    why = {
        SEQUENTIAL: "no closed form of them is known; order seeded counts them",
        SECONDS: "no closed form of them is known; order seeded counts them",
        "usd": "no price for an LLM, or no prompt tokens recorded",
    }.get(cost, "no prompt tokens recorded")
    raise UsageError(
        f"Its {cost} per question are not known ({why}); choose another cost: {others}."
    )


def mean_cost(evaluation: Evaluation, cost: str) -> float | None:
    """The mean of `costs_of`."""
    if cost == "output-tokens":
        return float(evaluation.generated_tokens.mean())
    mean: float | None = getattr(evaluation, f"{cost.replace('-', '_')}_per_question")
    return mean
