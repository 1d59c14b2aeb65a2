"""Free sizes in MXNet's files, which leave the batch size open and hold the others as seen."""

from __future__ import annotations

from typing import Any

from gemel.errors import ExportError
from gemel.extent import Dim, seen
from gemel.forms import names_of
from gemel.ir.current import current_trace


def free(value: Any) -> bool:
    """Whether an extent is free, or any of several."""
    if isinstance(value, tuple):
        return any(map(free, value))
    return isinstance(value, Dim)


def of_batch(name: str) -> bool:
    """Whether a free extent is the first of an argument: the batch size, which files leave open."""
    return name.endswith("_0")


def depends_on_batch(extent: Any) -> bool:
    """Whether an extent is the batch size or computed from it."""
    return isinstance(extent, Dim) and any(map(of_batch, names_of(extent.form)))


def fixed(value: Any, what: str) -> Any:
    """A setting with free extents as they were seen. Raises `ExportError` for the batch size."""
    if isinstance(value, tuple):
        return tuple(fixed(each, what) for each in value)
    if isinstance(value, Dim):
        if depends_on_batch(value):
            raise ExportError(
                f"{what} depends on the batch size ({value!r}), which MXNet's files cannot "
                "express; create it from an array of that size, for example with "
                "np.zeros_like(x)"
            )
        return as_seen(value)
    return value


def as_seen(extent: Any) -> int:
    """An extent that a file holds as the number seen. The trace notes which sizes that fixes."""
    trace = current_trace()
    if trace is not None and isinstance(extent, Dim):
        trace.notes.held |= names_of(extent.form)
    return seen(extent)
