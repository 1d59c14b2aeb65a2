"""A cache of bounded size that forgets what has not been used lately."""

from __future__ import annotations

import threading
from typing import Any


class ClockCache(dict[Any, Any]):
    """A dictionary of at most `limit` values, evicted by the CLOCK (second-chance) rule.

    When it is full the oldest value goes. One that `find` has given since the last eviction passed
    it is moved to the end instead, once. Values have a writable attribute `used` for that mark.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self._lock = threading.Lock()

    def find(self, key: Any) -> Any:
        """The value of a key, now marked as used; None if there is none."""
        found = self.get(key)
        if found is not None:
            found.used = True
        return found

    def keep(self, key: Any, value: Any) -> Any:
        """Store a value, evicting others if the cache is full. Returns the value."""
        with self._lock:
            while len(self) >= self.limit:
                oldest = next(iter(self))
                candidate = self.pop(oldest)
                if candidate.used:
                    candidate.used = False
                    self[oldest] = candidate
            self[key] = value
        return value


__all__ = ["ClockCache"]
