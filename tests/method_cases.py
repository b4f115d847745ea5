"""Settings of every method that the contract test runs in both forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """Fields of a method, and how many LLMs it is given."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    llms: int = 1

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.settings.items()) or "defaults"


CASES: dict[str, list[Case]] = {
    "single-call": [Case()],
    "self-consistency": [
        *(Case({"n": n}) for n in (1, 2, 5, 8)),
        *(Case({"n": n, "no_answer": "vote"}) for n in (1, 3, 8)),
    ],
    "adaptive-consistency": [
        *(
            Case({"criterion": criterion, "budget": 8, "no_answer": rule})
            for criterion in ("beta", "dirichlet", "entropy", "majority", "random", "crp")
            for rule in ("drop", "vote")
        ),
        Case({"threshold": "0.8", "budget": 8}),
        Case({"criterion": "beta", "threshold": 0.5, "budget": 5}),
        Case({"criterion": "dirichlet", "threshold": 0.7, "top": 2, "budget": 8}),
        Case({"criterion": "entropy", "threshold": 1, "budget": 8}),
        Case({"criterion": "majority", "threshold": "2/3", "budget": 7}),
        Case({"criterion": "random", "threshold": 0.4, "budget": 8, "seed": 3}),
        Case({"criterion": "crp", "threshold": 0.6, "concentration": "0.5", "budget": 8}),
        Case({"budget": 1}),
    ],
    "early-stopping": [
        Case({"window": window, "budget": budget, "answer": answer})
        for window, budget in ((1, 8), (2, 8), (3, 8), (5, 8), (8, 8))
        for answer in ("all", "window")
    ],
}
"""Name in METHODS -> cases; the toy recording has two LLMs with eight or more CoTs on each of six questions."""
