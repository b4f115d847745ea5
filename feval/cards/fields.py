"""Field types that several kinds of cards share."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict


def _iso_date(text: str) -> str:
    try:
        # fromisoformat takes 20250602 and week dates, too
        is_day = date.fromisoformat(text).isoformat() == text
    except ValueError:
        is_day = False
    if not is_day:
        raise ValueError("write the date as YYYY-MM-DD")
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("it cannot be blank")
    return text


Text = Annotated[str, AfterValidator(_not_blank)]
"""Text that is not blank."""
Day = Annotated[str, AfterValidator(_iso_date)]
"""A day, YYYY-MM-DD."""


class Card(BaseModel):
    """The facts of a card. A card that says questions: "250" is corrected by its author, not by
    us.
    """

    # Built on first use: most commands read one kind of card of four, or none.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Choice(BaseModel):
    """One option of a multiple-choice question."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    label: str
    text: str
