"""Arguments that are NumPy's arrays: a program gets copies of them, and what it writes to a copy is
written back.

    @gemel.compile
    def f(a):
        a[0] = 1

    a = numpy.zeros(3)
    f(a)                    # a[0] is 1, as if f were not compiled
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gemel.errors import TraceError
from gemel.ir.graph import Entry
from gemel.ndarray import ndarray
from gemel.spec import plain


def written(
    name: str, arguments: tuple[Any, ...], arrays: Sequence[Any], positions: Sequence[int]
) -> list[tuple[Any, Any]]:
    """The arguments of NumPy's at these positions, which the function writes to, each with its
    copy among `arrays`.

    Raises `TraceError` for one that cannot be written, or whose memory another argument shares.
    """
    if not any(position < len(arrays) for position in positions):
        return []  # which most programs are
    import numpy

    given = list(as_given(arguments))
    pairs = []
    for position in positions:
        if position >= len(arrays) or given[position] is arrays[position]:
            continue
        own = given[position]
        if not isinstance(own, numpy.ndarray) or not own.flags.writeable:
            what = f"an argument of the type {type(own).__name__}"
            what = "a read-only array of NumPy's" if isinstance(own, numpy.ndarray) else what
            raise TraceError(
                f"{name}: it writes to {what}; pass gemel.np.array of it, which is then written to"
            )
        for other, array in enumerate(given):
            shared = isinstance(array, numpy.ndarray) and numpy.may_share_memory(own, array)
            if other != position and shared:
                raise TraceError(
                    f"{name}: {own.dtype}{list(own.shape)}, which the function writes to, shares "
                    f"memory with {array.dtype}{list(array.shape)}, another of its inputs; pass "
                    "only one of them, and take views inside the function"
                )
        pairs.append((own, arrays[position]))
    return pairs


def as_given(value: Any) -> Iterator[Any]:
    """The arrays in nested arguments as they were given, in the order of `nested.flatten`."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from as_given(item)
    elif isinstance(value, dict):
        yield from as_given(tuple(value.values()))
    elif type(value) is slice:
        yield from as_given(tuple(map(plain, (value.start, value.stop, value.step))))
    elif isinstance(value, Entry):
        if not value.is_run_time_number:
            yield value
    elif isinstance(value, ndarray) or hasattr(value, "__array__"):
        yield value


__all__ = ["as_given", "written"]
