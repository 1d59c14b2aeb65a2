"""The engine's switches, Python functions as engine operations, and MXNet's NumPy mode."""

from __future__ import annotations

from operator import index
from typing import Any

from gemel import _core
from gemel.arrays.making import array_like
from gemel.device import as_device
from gemel.dtype import MANNERS, DType, as_dtype, float32, float64, int64
from gemel.errors import ArgumentError, PythonGivenError, check_function
from gemel.ir.current import current_trace
from gemel.ir.public import function
from gemel.ranges import check_flag
from gemel.runtime import callback as runtime_callback
from gemel.spec import Spec, extents, is_several

#: The highest level of `priority`.
HIGHEST_LEVEL = 2**31 - 1


@function(public="npx")
def waitall() -> None:
    """Wait until everything issued has been computed, and raise the first unseen error."""
    _core.wait_all()


@function(public="npx")
def synchronize(device: Any = None) -> None:
    """Wait until everything issued to a device has been computed, including copies to it.

    Without a device it is `waitall`. With one, failures stay with the arrays that carry them.
    """
    if device is None:
        _core.wait_all()
    else:
        _core.wait_device(as_device(device).code)


@function(public="npx")
class priority:  # noqa: N801 -- used as a function
    """Give operations a priority over others that are ready: `with npx.priority(1): ...`.

    Higher levels run first; the default level is 0. Operations that a thread waits for come before
    all of them. Raises `ArgumentError` for a level that is not a whole number of 32 bits.
    """

    def __init__(self, level: int) -> None:
        try:
            self._level = index(level)
        except TypeError:
            self._level = HIGHEST_LEVEL + 1
        if not -HIGHEST_LEVEL <= self._level <= HIGHEST_LEVEL:
            raise ArgumentError(
                f"priority: {level!r} is not a valid level; levels are whole numbers from "
                f"{-HIGHEST_LEVEL} to {HIGHEST_LEVEL}"
            )
        self._before: list[int] = []

    def __enter__(self) -> None:
        self._before.append(_core.set_priority(self._level))

    def __exit__(self, *error: object) -> None:
        _core.set_priority(self._before.pop())


@function(public="npx")
def callback(function: Any, *arrays: Any, outputs: Any, name: str | None = None) -> Any:
    """Issue a Python function of NumPy arrays as an operation of the engine.

    `function` gets a NumPy array (a copy) for each of `arrays` and returns a NumPy array for each
    of `outputs`, which are (shape, dtype) pairs; one pair instead of a list gives one array. It
    runs when its inputs are ready: at once, or on a waiting thread, or on the thread of the Python
    lane. The call does not wait for it. An exception is raised where a result is read. It may wait
    for other arrays. It has no gradient: see `autograd.Function`.

    >>> npx.callback(lambda x: x * 2, np.array([1.0, 2.0]), outputs=((2,), "float32"))
    """
    check_function("callback", function)
    single = _is_pair(outputs)
    pairs = [outputs] if single else outputs
    if not (isinstance(pairs, tuple | list) and all(map(_is_pair, pairs))):
        raise ArgumentError(
            f"callback: outputs must be a pair (shape, dtype) or a list of them, not {outputs!r}"
        )
    specs = [Spec(extents("callback", shape), as_dtype(dtype)) for shape, dtype in pairs]
    label = name or str(getattr(function, "__name__", "callback"))
    if current_trace() is not None:
        raise PythonGivenError(
            f"callback: {label} is run in Python, which a compiled program cannot contain; call it "
            "outside"
        )
    inputs = [array_like(array) for array in arrays]
    found = runtime_callback.issue(label, runtime_callback.copying(function), inputs, specs)
    return found[0] if single else list(found)


def _is_pair(value: Any) -> bool:
    """Whether it looks like the shape and the dtype of one array."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        return False
    return is_several(value[0]) and not isinstance(value[1], tuple | list | int)


# --- MXNet's NumPy mode ---------------------------------------------------------------------

#: What `is_np_shape` and `is_np_array` answer.
NUMPY_MODE = {"shape": True, "array": True}


@function(public="npx")
def set_np(shape: bool = True, array: bool = True, dtype: bool = False) -> None:
    """Switch to MXNet's NumPy mode: Python integers become float32 arrays, and floating arrays can
    be indices.

    With `dtype` Python integers become int64 and floats float64, as in NumPy; functions of integers
    (roots, quotients, means) then give float64. Arrays behave like NumPy's in any mode; `shape` and
    `array` only set the results of `is_np_shape` and `is_np_array`.

    >>> npx.set_np()
    >>> x = np.array([1, 2, 3])
    >>> x[np.array([0, 2])]
    >>> npx.reset_np()
    """
    for name, value in (("shape", shape), ("array", array), ("dtype", dtype)):
        check_flag("set_np", name, value)
    floats = float64 if dtype else float32
    integers = int64 if dtype else float32
    _behave(integers, floats, True)
    NUMPY_MODE.update(shape=shape, array=array)


@function(public="npx")
def reset_np() -> None:
    """Return to gemel's defaults: Python integers become int64 arrays, floats float32.

    From then on programs count as written for MXNet 1: data loaders and iterators give NDArrays.
    """
    _behave(int64, float32, False)
    NUMPY_MODE.update(shape=False, array=False)


def _behave(integers: DType, floats: DType, positions: bool) -> None:
    """Set the dtypes of Python numbers, and drop kernels that are cached for other dtypes."""
    changed = MANNERS["floats"] is not floats
    MANNERS.update({"integers": integers, "floats": floats, "floating positions": positions})
    if changed:
        _core.clear_tables()
        _core.forget_call_sites()


@function(public="npx")
def is_np_default_dtype() -> bool:
    """Whether the default floating dtype is float64, as after ``npx.set_np(dtype=True)``."""
    return MANNERS["floats"] is float64


@function(public="npx")
def is_np_array() -> bool:
    """Whether arrays count as NumPy's in MXNet's sense: True, except after `npx.reset_np()`."""
    return NUMPY_MODE["array"]


@function(public="npx")
def is_np_shape() -> bool:
    """Whether shapes count as NumPy's in MXNet's sense: True, except after `npx.reset_np()`."""
    return NUMPY_MODE["shape"]


@function(public="npx", aliases=("use_np_array", "use_np_shape"))
def use_np(func: Any) -> Any:
    """Return the function or class unchanged: MXNet's decorator for code that uses NumPy arrays.

    >>> npx.use_np(abs)(-1)
    """
    return func
