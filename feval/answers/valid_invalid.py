"""Valid or invalid: "valid", "Invalid.", "the argument is not valid" (BIG-Bench-Hard formal fallacies).

The labels are "valid" and "invalid"; a negated "valid" is invalid, a negated "invalid" valid. Rules: `feval.answers.closed`.
"""

from __future__ import annotations

from feval.answers.closed import closed_set

__all__ = ["canonical", "extract"]

_NOT = r"(?:not|isn't|cannot be|can't be)(?: \w{1,12}){0,2}? "

_VALID_INVALID = closed_set(
    {
        "valid": rf"(?:{_NOT})invalid|(?<!not )valid",
        "invalid": rf"(?:{_NOT})valid|invalid",
    }
)

extract = _VALID_INVALID.extract
canonical = _VALID_INVALID.canonical
