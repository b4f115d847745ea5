"""What most of feval consists of: frozen values, which nobody changes once they are made, and
records, which have values by name; and what is closed at the end of a `with` block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar, dataclass_transform

Record = dict[str, Any]
"""What a JSON object, a row of a table or a set of options has, by name."""
RecordLike = Mapping[str, Any]
"""A record that is only read."""
Pairs = tuple[tuple[str, str], ...]
"""Pairs of texts, such as the label and the text of each option of a question."""

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[_T]) -> type[_T]:
    """Make a class a frozen dataclass with slots, equal to another where all fields are."""
    return dataclass(frozen=True, slots=True)(cls)


def without_none(values: Mapping[str, _T | None]) -> dict[str, _T]:
    """Return a record without what is `None`."""
    return {name: value for name, value in values.items() if value is not None}


def inside(value: Any, *path: str) -> Any:
    """Return a nested member of a JSON object; `None` where there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


class Closing:
    """What is closed at the end of a `with` block."""

    def close(self) -> None:
        """Release what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
