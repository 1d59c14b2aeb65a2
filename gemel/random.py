"""MXNet's `random`: the functions of `nd.random`, with `shape=` and MXNet 1's parameter names.

A call with `size=` goes to `np.random`, and so do names that MXNet's module does not have.

>>> import gemel
>>> gemel.random.seed(1)
>>> gemel.random.uniform(0, 1, shape=(2, 3)).shape
(2, 3)
"""

from __future__ import annotations

import functools
from typing import Any

from gemel import ndarray, np
from gemel.errors import unknown_attribute
from gemel.legacy.draws import NAMES


def _drawing(name: str) -> Any:
    old = getattr(ndarray.random, name)

    @functools.wraps(old)
    def draw(*settings: Any, **keywords: Any) -> Any:
        chosen = getattr(np.random, name) if "size" in keywords else old
        return chosen(*settings, **keywords)

    return draw


def __getattr__(name: str) -> Any:
    if name in NAMES:
        return globals().setdefault(name, _drawing(name))
    if name.startswith("_") or not hasattr(np.random, name):
        raise unknown_attribute(__name__, name, __dir__())
    return getattr(np.random, name)


def __dir__() -> list[str]:
    return sorted({*NAMES, *dir(np.random)})
