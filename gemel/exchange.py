"""What an array is to other libraries: NumPy's protocols, DLPack, pickling, how it is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel import _core
from gemel.dtype import as_dtype, bool_, float32, int64
from gemel.errors import DTypeError
from gemel.ir.op import numpy
from gemel.ir.public import NAMESPACES

#: DLPack's number of the CPU.
DLPACK_CPU = (1, 0)
#: What NumPy's universal functions are called that reduce.
REDUCTIONS = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}


class Exchange:
    """The methods of an array that other libraries, Python's modules and notebooks call."""

    __slots__ = ()
    __array_priority__ = 1000.0

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

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, out: tuple[Any, ...] = (), **keywords: Any
    ) -> Any:
        """`numpy.exp(x)`, `a += x` for a NumPy array a: gemel's function of that name.

        NumPy computes what gemel has no function for, or not with these keywords; the result is a
        gemel array all the same, unless `out` is NumPy's.
        """
        name: str | None = ufunc.__name__ if method == "__call__" else None
        if method == "reduce":
            name = REDUCTIONS.get(ufunc.__name__)
            keywords.setdefault("axis", 0)
        if out and ("where" in keywords or any(not isinstance(a, _core.Array) for a in out)):
            # What they hold where nothing is computed stays.
            kept = tuple(map(as_numpy, out))
            found = getattr(ufunc, method)(*map(as_numpy, inputs), out=kept, **as_numpy(keywords))
        else:
            found = _called("np", name, getattr(ufunc, method), inputs, keywords)
        return _written(out, found) if out else found

    def __array_function__(
        self, function: Any, types: Any, inputs: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """`numpy.concatenate([x, y])` and the like: gemel's function of that name.

        NumPy computes what gemel has no function for, or not with these arguments; arrays in its
        results are gemel's all the same.
        """
        home = function.__module__.replace("numpy", "np", 1)
        out = keywords.pop("out", None)
        found = _called(home, function.__name__, function, inputs, keywords)
        return found if out is None else _written(out if type(out) is tuple else (out,), found)

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
        if self.dtype not in ((float32, int64, bool_) if self.size else (float32,)):
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


def as_numpy(value: Any) -> Any:
    """A value with NumPy arrays for gemel's, in lists, tuples and dictionaries too."""
    if isinstance(value, _core.Array):
        return value.asnumpy()  # type: ignore[attr-defined]
    if type(value) in (list, tuple):
        return type(value)(map(as_numpy, value))
    return {k: as_numpy(v) for k, v in value.items()} if type(value) is dict else value


def _as_gemel(value: Any) -> Any:
    """What NumPy has computed, with gemel arrays in it where gemel has the dtype."""
    if isinstance(value, tuple):
        found = tuple(map(_as_gemel, value))
        return type(value)(*found) if hasattr(value, "_fields") else found
    if isinstance(value, list):
        return list(map(_as_gemel, value))
    if not isinstance(value, numpy().ndarray):
        return value
    try:
        as_dtype(value.dtype)
    except DTypeError:
        return value
    return NAMESPACES["np"]["from_numpy"](value)


def _called(
    home: str,
    name: str | None,
    numpys: Callable[..., Any],
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
) -> Any:
    """A function of gemel's called as NumPy's of that name, or NumPy's on copies."""
    own = NAMESPACES.get(home, {}).get(name or "")
    if own is not None and _takes(own, inputs, keywords):
        return own(*inputs, **keywords)
    return _as_gemel(numpys(*as_numpy(inputs), **as_numpy(keywords)))


def _takes(function: Callable[..., Any], inputs: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    from inspect import signature

    try:
        signature(function).bind(*inputs, **keywords)
    except TypeError:
        return False
    return True


def _written(out: tuple[Any, ...], found: Any) -> Any:
    """`found` put into arrays that were given, which are the result."""
    for target, value in zip(out, found if isinstance(found, tuple) else (found,), strict=True):
        target[...] = value
    return out if len(out) > 1 else out[0]


__all__ = ["Exchange", "as_numpy"]
