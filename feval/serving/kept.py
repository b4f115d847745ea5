"""What was made once and is worth keeping, within bounds."""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

__all__ = ["Kept"]

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class Kept(Generic[_Key, _Value]):
    """A bounded store that forgets what was not asked for lately.

    It has two generations: when the young one is half of what may be kept, the old one is forgotten and the young one grows old.
    What is found among the old is young again. So looking up what is there takes no lock and moves nothing.

    Args:
        most_bytes: how much may be kept, by the sizes that `put` is told.
    """

    def __init__(self, most_bytes: int) -> None:
        self._half = most_bytes // 2
        self._young: dict[_Key, tuple[_Value, int]] = {}
        self._old: dict[_Key, tuple[_Value, int]] = {}
        self._bytes = 0
        self._lock = Lock()

    def __len__(self) -> int:
        with self._lock:
            return len(self._young.keys() | self._old.keys())

    def get(self, key: _Key) -> _Value | None:
        """Return what is kept under a key; `None` where nothing is."""
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is None:
                return None
            self.put(key, *found)
        return found[0]

    def put(self, key: _Key, value: _Value, size: int) -> None:
        """Keep a value; one that is larger than a generation is not kept.

        Args:
            key: what finds it.
            value: what is kept; not `None`.
            size: about how many bytes it takes, with its key.
        """
        if size > self._half:
            return
        with self._lock:
            if key in self._young:
                return
            if self._bytes + size > self._half:
                self._old, self._young, self._bytes = self._young, {}, 0
            self._young[key] = (value, size)
            self._bytes += size
