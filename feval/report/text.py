"""Text from files and LLMs made safe to show, and numbers made readable."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feval.evaluation.questions import LeftOut
    from feval.replay import Judges

_NO_DIFFERENCE = 1e-11  # rounding error of a difference of zero, as in `paired`

# Control, format (bidirectional overrides, zero-width), surrogate, line and paragraph separator:
# each can move the cursor, colour the terminal, reorder a line or forge a second one.
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def visible(text: str) -> str:
    r"""Return text on one line with every character that could steer a terminal escaped, such as
    `\x1b`.

    Names, ids and answers in a recording are untrusted; everything printed goes through here.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape").decode("ascii")
        if unicodedata.category(c) in _UNSAFE_CATEGORIES
        else c
        for c in text
    )


def shortened(text: str, length: int) -> str:
    """Return a text on one line, safe to show, cut to a length."""
    text = visible(" ".join(text.split()))
    return text if len(text) <= length else f"{text[: length - 1]}…"


def counted(number: int, noun: str) -> str:
    """Write a number with its noun, such as "1 request" or "2,000 requests"; the plural ends in
    s.
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def counted_questions(number: int, left_out: LeftOut, judges: Judges | None = None) -> str:
    """Write how many questions there are, how many were left out and why, and what says which CoTs
    are right.
    """
    without = "readable gold" if judges is None else judges.absent
    reasons = ((left_out.unlabelled, f"no {without}"), (left_out.short_pools, "too few CoTs"))
    parts = ", ".join(f"{len(ids):,} with {reason}" for ids, reason in reasons if ids)
    said = counted(number, "question") + (f" (left out: {parts})" if parts else "")
    return said if judges is None else f"{said}, {judges}"


def size(number: float) -> str:
    """Write a number of bytes with its unit and three digits, such as "1.5 MB"."""
    for unit in ("bytes", "kB", "MB"):
        if number < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.3g} GB"


def duration(seconds: float) -> str:
    """Write a time with its unit, such as "40 s", "12 min" or "3.5 h"."""
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{round(seconds / length, 1):,g} {unit}"
    return f"{seconds:.3g} s"


def percents(low: float | None, high: float | None) -> str:
    """Write an interval of shares in per cent, such as "61.20 to 68.93"; an unknown one is a
    dash.
    """
    return "-" if low is None or high is None else f"{percent(low)} to {percent(high)}"


def interval_name(confidence: float | None) -> str:
    """Return the header of a column of intervals."""
    return "interval" if confidence is None else f"{100 * confidence:g} % interval"


def percent(share: float | None) -> str:
    """Write a share between 0 and 1 as a percentage with two decimals and no sign, such as 65.07;
    an unknown one is a dash.
    """
    # rounded twice, so that equal shares computed in different ways look equal
    return "-" if share is None else f"{round(100 * share, 9):.2f}"


def signed_points(difference: float, *, small: bool = True) -> str:
    """Write a difference of two shares in percentage points, with its sign and two decimals, such
    as +7.70.

    A `small` one gets the decimals that its first digit needs, such as -0.0009; rounding error
    counts as 0.
    """
    points = 100 * difference if abs(difference) > _NO_DIFFERENCE else 0.0
    return f"{points:+.{decimals_for(points, 1) if small and 0 < abs(points) < 0.005 else 2}f}"


def three_digits(value: float) -> str:
    """Write a number with three significant digits and no exponent, such as 0.0120 or 2,500."""
    rounded = float(f"{value:.2e}")
    return f"{rounded:,.{decimals_for(rounded)}f}" if rounded else "0"


def plain_number(value: float) -> str:
    """Write it without zeros at the end, such as 0.012, for sentences and axes."""
    text = three_digits(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def p_value(share: float) -> str:
    """Write a p-value; what is below 0.001 has no digits, since tails that thin rest on the
    differences being normal.
    """
    return "< 0.001" if share < 0.001 else f"{share:.3f}"


def usd_per_1000(usd_per_question: float) -> str:
    """Write what a method costs, in USD per 1,000 questions, such as "0.01" or "120"."""
    return plain_number(1000 * usd_per_question)


def price_words(prices: str | None, usd: Iterable[float | None]) -> str:
    """Write which price list amounts are by, or that there are none."""
    if not prices:
        return "no prices"
    if prices == "recorded":
        return "USD as each CoT states them"
    return (
        f"prices {prices}" if any(amount is not None for amount in usd) else f"no price by {prices}"
    )


def decimals_for(value: float, significant: int = 3) -> int:
    """Return how many decimals show a value with so many significant digits."""
    exponent = int(f"{value:e}".partition("e")[2])
    return min(max(significant - 1 - exponent, 0), 18)


def fixed(value: float | None, decimals: int) -> str:
    """Write a number with so many decimals, so that a column lines up; an unknown one is a dash."""
    # rounded twice, as in `percent`
    return "-" if value is None else f"{round(value, decimals + 9):,.{decimals}f}"
