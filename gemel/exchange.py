"""What an array is to other libraries: NumPy's protocols, DLPack, pickling, how it is shown."""

from __future__ import annotations

from typing import Any

from gemel import _core
from gemel.dtype import bool_, complex64, float32, int64
from gemel.ir.op import numpy

#: DLPack's number of the CPU.
DLPACK_CPU = (1, 0)


class Exchange:
    """The methods of an array that other libraries, Python's modules and notebooks call."""

    __slots__ = ()

    # --- NumPy ------------------------------------------------------------------------------

    def asnumpy(self: Any) -> Any:
        """A NumPy array with a copy of the elements; float32 for bfloat16. Waits for them."""
        source = self.astype(self.dtype.twin, copy=False)
        found: Any = numpy().empty(source.shape, source.dtype.name)
        _core.read_into(source, found)
        return found

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        found = self.asnumpy()
        return found if dtype is None else found.astype(dtype, copy=False)

    # --- DLPack -----------------------------------------------------------------------------

    def __dlpack__(
        self: Any,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule other libraries read and write the elements through (DLPack 1.0).

        Waits until nothing is pending on the array. While the other library holds it, operations
        on the array finish before their call returns. Raises `BufferError` for an array on a GPU,
        or for another device than the CPU.
        """
        if dl_device is not None and tuple(dl_device) != DLPACK_CPU:
            raise BufferError(f"__dlpack__: an array on {self.device} cannot go to {dl_device}")
        source = self.copy() if copy else self
        return _core.to_dlpack(source, max_version is not None and max_version[0] >= 1)

    def __dlpack_device__(self: Any) -> tuple[int, int]:
        """DLPack's number of the device."""
        if self.device.linked:
            raise BufferError(f"the array is on {self.device}; copy it to cpu() first")
        return DLPACK_CPU

    # --- Python -----------------------------------------------------------------------------

    def __complex__(self: Any) -> complex:
        """The element of an array of one. Waits for it."""
        return complex(self.item())

    def __deepcopy__(self: Any, memo: Any) -> Any:
        return self.copy()

    def __contains__(self: Any, value: Any) -> bool:
        """Whether any element equals `value`. Waits for them."""
        return bool((self == value).any())

    # --- shown ------------------------------------------------------------------------------

    def __repr__(self: Any) -> str:
        """As NumPy's, naming the dtype where it is none of those creation gives by itself."""
        parts = [numpy().array2string(self.asnumpy(), separator=", ", prefix="array(")]
        if not self.size and self.shape != (0,):
            parts.append(f"shape={self.shape}")
        if self.dtype not in ((float32, int64, bool_, complex64) if self.size else (float32,)):
            parts.append(f"dtype={self.dtype}")
        if self.device.code != 0:
            parts.append(f"device={self.device}")
        return f"array({', '.join(parts)})"

    def __str__(self) -> str:
        return str(self.asnumpy())

    def __format__(self: Any, form: str) -> str:
        return format(self.item() if self.ndim == 0 else self.asnumpy(), form)

    def _repr_html_(self: Any) -> str:
        """For notebooks: shape, dtype and device above the elements."""
        from html import escape

        about = " x ".join(map(str, self.shape)) or "0-d"
        head = f"{about}, {self.dtype}, {self.device}"
        return f"<div><small>{escape(head)}</small><pre>{escape(str(self))}</pre></div>"


__all__ = ["DLPACK_CPU", "Exchange"]
