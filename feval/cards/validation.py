"""Turn pydantic's findings into words for error messages. Nothing here imports pydantic."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails


def sentence(error: ValidationError, most: int = 3) -> str:
    """Describe what is wrong, as the predicate of a sentence: "lacks the field 'title'; has 'x' in
    the field 'seed' (...)".

    The caller puts the subject before it and what to do behind it: `f"The price list {path}
    {sentence(error)}. Correct it."`.

    Args:
        error: what pydantic raised. The text of a `ValueError` that a validator of ours raised is
            used as it is.
        most: faults to spell out; the rest is counted.
    """
    faults = [_fault(details) for details in error.errors(include_url=False)]
    rest = len(faults) - most
    more = f"; and {rest} more fault{'s' * (rest > 1)}" if rest > 0 else ""
    return "; ".join(faults[:most]) + more


def _fault(details: ErrorDetails) -> str:
    *path, last = details["loc"] or ("",)
    is_key = last == "[key]"
    field = shorten(".".join(map(str, path[:-1] if is_key else (*path, last))))
    match details["type"]:
        case "missing" | "missing_argument" | "missing_keyword_only_argument":
            return f"lacks the field {field}"
        case "extra_forbidden" | "unexpected_keyword_argument":
            return f"has an unknown field {field}"
        case "json_invalid":
            return f"is not valid JSON ({details['ctx']['error']})"
        case "value_error" | "assertion_error":
            reason = str(details["ctx"]["error"])
        case "is_instance_of" if details["ctx"]["class"] == "Path":
            reason = "input should be a path, written as text"
        case _:
            reason = details["msg"][:1].lower() + details["msg"][1:].replace(
                "a valid string", "text"
            ).replace("dictionary", "mapping")
    if not details["loc"]:
        return f"is not usable: {reason}"
    return f"has {'the key ' * is_key}{shorten(details['input'])} in the field {field} ({reason})"


def shorten(value: object) -> str:
    """Return the `repr` of a value for an error message, cut to 80 characters."""
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."
