"""Sharing memory with other libraries, under MXNet's names."""

from __future__ import annotations

from typing import Any

from gemel import _core
from gemel.arrays.exchange import from_dlpack
from gemel.arrays.making import from_numpy as as_copied
from gemel.errors import ArgumentError
from gemel.ir.public import function, publish
from gemel.ndarray import ndarray

publish(from_dlpack, "from_dlpack", "npx")


@function(public="npx", aliases=("to_dlpack_for_write",))
def to_dlpack_for_read(data: ndarray) -> Any:
    """A DLPack capsule that shares the elements; it can be consumed once. Waits until nothing is
    pending on them.

    >>> npx.from_dlpack(npx.to_dlpack_for_read(np.ones(2)))
    """
    return _core.to_dlpack(data, False)


@function(public="npx")
def from_numpy(ndarray: Any, zero_copy: bool = True) -> Any:
    """An array that shares a NumPy array's memory; with ``zero_copy=False``, a copy of it.

    The NumPy array becomes read-only. A NumPy array that was read-only before is copied. Raises
    `ValueError` for memory that is not C-contiguous, `BufferError` for a dtype gemel lacks.

    >>> import numpy
    >>> npx.from_numpy(numpy.arange(3.0))
    """
    if not zero_copy:
        return as_copied(ndarray)
    if not ndarray.flags.c_contiguous:
        raise ArgumentError(
            "from_numpy: only C-contiguous memory can be shared; use zero_copy=False to copy"
        )
    found = from_dlpack(ndarray)
    ndarray.flags.writeable = False
    return found
