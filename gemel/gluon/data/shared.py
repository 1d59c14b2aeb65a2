"""Batches in memory shared by processes: arrays as bytes, preceded by the rest, pickled.

The memory has no name (`memfd_create`). So it is released whatever happens to the processes, and a
container's limit on /dev/shm does not apply.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import sys
from typing import Any

from gemel import _core, np
from gemel.tracing.manners import made_nd

#: Arrays begin at multiples of this, the size of a cache line.
ALIGNMENT = 64
#: The memory grows in multiples of this.
STEP = 1 << 16


class Slot:
    """Memory for one task and then for its batch; it is created before the workers."""

    def __init__(self) -> None:
        self._file = os.memfd_create("gemel-batch")
        self._memory: mmap.mmap | None = None

    def memory(self, size: int) -> mmap.mmap:
        """At least `size` bytes of the memory."""
        if self._memory is None or len(self._memory) < size:
            needed = max(-(-size // STEP) * STEP, os.fstat(self._file).st_size)
            os.ftruncate(self._file, needed)
            self._memory = mmap.mmap(self._file, needed)
        return self._memory

    def close(self) -> None:
        """Release the memory held by this process."""
        if self._file >= 0:
            os.close(self._file)
        self._file, self._memory = -1, None


class _Packer(pickle.Pickler):
    """Pickles everything but arrays, which it replaces by their description and place."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, protocol=5)
        self.arrays: list[tuple[int, Any]] = []
        self.size = 0

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, np.ndarray):
            return self._placed(obj, obj._code, obj.device.code, obj.shape, obj._is_nd)
        numpy = sys.modules.get("numpy")
        if numpy is None or type(obj) is not numpy.ndarray or obj.dtype.hasobject:
            return None
        return self._placed(obj, obj.dtype, None, obj.shape, False)

    def _placed(self, array: Any, *about: Any) -> Any:
        offset = self.size
        self.arrays.append((offset, array))
        self.size = _aligned(offset + array.nbytes)
        return offset, array.nbytes, *about


class _Unpacker(pickle.Unpickler):
    """Creates new arrays from the places that a `_Packer` has recorded."""

    def __init__(self, file: Any, data: memoryview) -> None:
        super().__init__(file)
        self._data = data

    def persistent_load(self, pid: Any) -> Any:
        offset, size, kind, device, shape, of_nd = pid
        with self._data[offset : offset + size] as part:
            if device is not None:
                found = _core.from_buffer(part, kind, shape, device)
                return made_nd(found) if of_nd else found
            import numpy

            return numpy.ndarray(shape, kind, bytearray(part))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def put(slot: Slot, value: Any) -> tuple[int, int]:
    """Write a value; returns the number of bytes of the pickled part, and of everything."""
    text = io.BytesIO()
    packer = _Packer(text)
    packer.dump(value)
    head = text.tell()
    begin = _aligned(head)
    memory = slot.memory(begin + packer.size)
    memory[:head] = text.getvalue()
    with memoryview(memory) as whole:
        for offset, array in packer.arrays:
            place = begin + offset
            with whole[place : place + array.nbytes] as part:
                if isinstance(array, np.ndarray):
                    _core.read_into(array, part)
                else:
                    part[:] = memoryview(array.tobytes())
    return head, begin + packer.size


def get(slot: Slot, head: int, size: int) -> Any:
    """Read what `put` has written, as objects that share no memory with the slot."""
    with memoryview(slot.memory(size)) as whole, whole[:head] as text:
        begin = _aligned(head)
        with whole[begin:size] as data:
            return _Unpacker(io.BytesIO(text), data).load()


__all__ = ["Slot", "get", "put"]
