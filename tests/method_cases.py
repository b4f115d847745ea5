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
    "self-consistency": [Case({"n": n}) for n in (1, 2, 5, 8)],
    "difficulty-adaptive": [
        Case(
            {
                "ranking": "prompt-length",
                "window": 2,
                "judged": judged,
                "neighbours": 2,
                "budget": 8,
                "preallocate": pre,
            }
        )
        for judged, pre in ((2, True), (2, False), (6, True))
    ],
}
"""Name in METHODS -> cases; the toy recording has two LLMs with eight or more CoTs on each of six questions."""
