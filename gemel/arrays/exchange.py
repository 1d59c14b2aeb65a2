"""Arrays as seen by other libraries: NumPy's protocols, DLPack, pickling, display."""

from __future__ import annotations

from typing import Any

from gemel import _core
from gemel.device import CPUS, Device, as_device
from gemel.dtype import bool_, default_float, int64
from gemel.errors import ArgumentError, OperandError, TraceError
from gemel.ir.current import current_trace
from gemel.ir.public import function
from gemel.ir.reference import numpy

#: DLPack's device type and number of the CPU.
DLPACK_CPU = (1, 0)


def _empty_like(array: Any) -> Any:
    """An empty NumPy array. An array that failed for want of memory raises its own failure, and not
    that NumPy has no memory either."""
    try:
        return numpy().empty(array.shape, array.dtype.name)
    except MemoryError:
        pass
    array.wait_to_read()
    return numpy().empty(array.shape, array.dtype.name)


class Exchange:
    """The methods of arrays that other libraries, Python's modules and notebooks call."""

    __slots__ = ()

    # --- NumPy ------------------------------------------------------------------------------

    def asnumpy(self: Any) -> Any:
        """Copy the elements into a NumPy array; bfloat16 becomes float32. Waits for them."""
        source = self.astype(self.dtype.twin, copy=False)
        found = _empty_like(source)
        _core.read_into(source, found)
        return found

    def __array__(self: Any, dtype: Any = None, copy: Any = None) -> Any:
        """What NumPy's functions make of it: a copy, or with copy=False the memory itself.

        Raises `ValueError` where the elements would have to be converted, but not copied.
        """
        if copy is not False:
            found = self.asnumpy()
            return found if dtype is None else found.astype(dtype, copy=False)
        wanted = self.dtype.twin if dtype is None else dtype
        if wanted != self.dtype or self.device.linked:
            raise ArgumentError(
                f"__array__: {self.dtype} on {self.device} can become NumPy's {wanted} only by "
                "copying; leave out copy=False"
            )
        return numpy().asarray(memoryview(self))

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
        for another device than the CPU, and for what was computed inside `autograd.record()`.
        """
        if dl_device is not None and tuple(dl_device) != DLPACK_CPU:
            raise BufferError(f"__dlpack__: an array on {self.device} cannot go to {dl_device}")
        if stream is not None:
            raise BufferError(
                f"__dlpack__: the CPU has no streams, so stream must be None, not {stream}"
            )
        source = self.copy() if copy else self
        versioned = max_version is not None and max_version[0] >= 1
        return _core.to_dlpack(source, versioned, bool(copy))

    def __dlpack_device__(self: Any) -> tuple[int, int]:
        """DLPack's number of the device."""
        if self.device.linked:
            raise BufferError(f"the array is on {self.device}; copy it to cpu() first")
        return DLPACK_CPU

    # --- traces -----------------------------------------------------------------------------

    def _asked(self: Any) -> Any:
        """The array to read from in a trace that closes over this one."""
        trace = current_trace()
        assert trace is not None
        return trace.inputs.asked(self, "reading")

    def _lent(self: Any) -> None:
        """Check that such a trace may share its memory: the array must not have been written to."""
        if self._asked() is not self:
            raise TraceError(
                f"{self.spec} has been written to in this trace, so its memory cannot be shared: "
                "share it before the write, or outside of the compiled function"
            )

    # --- Python -----------------------------------------------------------------------------

    def __complex__(self: Any) -> complex:
        """The element of an array of one. Waits for it."""
        if self.size != 1:
            raise TypeError(
                f"only an array with one element can become a number; this one has {self.size}"
            )
        return complex(self.item())

    # --- shown ------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return shown(self)

    def __str__(self: Any) -> str:
        return str(self.asnumpy())

    def __format__(self: Any, form: str) -> str:
        """A number of an array without dimensions, else the text of the array."""
        if not self.ndim:
            return format(self.item(), form)
        if form:
            raise TypeError(
                f"format: {form!r} formats one number, not an array of shape {self.shape}; use "
                "np.array2string"
            )
        return str(self)

    def _repr_html_(self: Any) -> str:
        """For notebooks: shape, dtype and device above the elements."""
        from html import escape

        about = " x ".join(map(str, self.shape)) or "0-d"
        head = f"{about}, {self.dtype}, {self.device}"
        return f"<div><small>{escape(head)}</small><pre>{escape(str(self))}</pre></div>"


@function(public="np")
def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """A gemel array that shares the memory of another library's array: writes to either are visible
    in both. Operations on it finish before their call returns.

    The data is copied if it is read-only, not aligned or goes to a GPU, and with ``copy=True``. `x`
    may be a DLPack capsule. Raises `BufferError` for data that is not in the CPU's memory, of a
    dtype gemel lacks, or that ``copy=False`` keeps from being copied.

    >>> import numpy
    >>> np.from_dlpack(numpy.arange(3.0))
    """
    ours = isinstance(x, _core.Array)
    own: Device = x.device if ours else CPUS[0]
    place = own if device is None else as_device(device)
    moved = place.linked or ours
    if copy is False and place != own and moved:
        raise BufferError(f"from_dlpack: moving data to {place} copies it; leave out copy=False")
    if ours:
        return x.copy() if copy and place == own else x.to_device(place)
    found = _core.from_dlpack(_capsule(x), 0 if moved else place.code, copy)
    return found.to_device(place) if moved else found


def _capsule(x: Any) -> Any:
    """The DLPack capsule of another library's array."""
    if type(x).__name__ == "PyCapsule":
        return x
    if not hasattr(x, "__dlpack__"):
        raise OperandError(
            f"from_dlpack: {type(x).__name__} is not an array that libraries can share (it lacks "
            "__dlpack__)"
        )
    kind = x.__dlpack_device__()[0]
    if kind != DLPACK_CPU[0]:
        raise BufferError(f"from_dlpack: the data is on a device of type {kind}, not on the CPU")
    try:
        found = x.__dlpack__(max_version=(1, 0))
    except TypeError:  # a library from before DLPack 1.0
        found = x.__dlpack__()
    if type(found).__name__ != "PyCapsule":
        raise OperandError(
            f"from_dlpack: __dlpack__ of {type(x).__name__} returned {type(found).__name__}; it "
            "must return a DLPack capsule"
        )
    return found


def shown(
    x: Any, line: int | None = None, precision: int | None = None, small: bool | None = None
) -> str:
    """The `repr` of an array: NumPy's text, plus what it does not show.

    That is the shape if elements are left out, the dtype if the elements do not show it, and the
    device if it is not the first CPU. NumPy's print options apply if the width of a line, the
    precision, or `small` (whether small numbers are shown as zero) is not given.
    """
    options: Any = numpy().get_printoptions()
    if (special := options.get("override_repr")) is not None:
        return str(special(x))
    line = options["linewidth"] if line is None else line
    text = numpy().array2string(
        x.asnumpy(), line, precision, small, ", ", prefix="array(", suffix=")"
    )
    notes = []
    if x.size > options["threshold"] or not x.size and x.shape != (0,):
        notes.append(f"shape={x.shape}")
    floats = default_float()  # default dtypes are not named, because the elements show them
    if x.dtype not in (floats, floats.complex, int64, bool_) or not x.size:
        notes.append(f"dtype={x.dtype}")
    if x.device.code != 0:
        notes.append(f"device={x.device}")
    if not notes:
        return f"array({text})"
    start, end = f"array({text},", ", ".join(notes) + ")"
    last = len(start) - (start.rfind("\n") + 1)
    return start + ("\n      " if last + len(end) + 1 > line else " ") + end


__all__ = ["DLPACK_CPU", "Exchange", "shown"]
