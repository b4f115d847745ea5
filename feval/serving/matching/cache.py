"""A bounded cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class BoundedCache(Generic[_Key, _Value]):
    """A cache that drops the least recently used values once their sizes exceed `max_bytes`. Safe
    to use from many threads.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: _Key) -> _Value | None:
        """Return a value; `None` if it is not in the cache."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: _Key, value: _Value, size: int) -> None:
        """Store a value, which is not `None`, and about how many bytes it and its key take; too
        large a one is not stored.
        """
        with self._lock:
            _, old_size = self._entries.pop(key, (None, 0))
            self._bytes -= old_size
            if size > self._max_bytes:
                return
            self._entries[key] = (value, size)
            self._bytes += size
            while self._bytes > self._max_bytes:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._bytes -= dropped
