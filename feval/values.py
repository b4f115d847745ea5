"""What most classes of feval are: frozen values, which nobody changes once they are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[_T]) -> type[_T]:
    """Make a class a frozen dataclass with slots, equal to another where all fields are."""
    return dataclass(frozen=True, slots=True)(cls)
