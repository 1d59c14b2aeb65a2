"""The engine's switches, Python functions as its operations, and MXNet's NumPy mode."""

from __future__ import annotations

from operator import index
from typing import Any

from gemel import _core
from gemel.device import as_device
from gemel.dtype import MANNERS, DType, as_dtype, float32, float64, int64
from gemel.errors import ArgumentError
from gemel.ir.public import function
from gemel.ndarray import array_like
from gemel.runtime import callback as runtime_callback
from gemel.spec import Spec

#: The highest level of `priority`.
MOST_LEVEL = 2**31 - 1


@function(public="npx")
def waitall() -> None:
    """Wait until everything issued has been computed; raises the first error nobody has seen."""
    _core.wait_all()


@function(public="npx")
def synchronize(device: Any = None) -> None:
    """Wait until everything issued to a device has been computed, copies to it included.

    Without a device it is `waitall`. With one, failures stay with the arrays that carry them.
    """
    if device is None:
        _core.wait_all()
    else:
        _core.wait_device(as_device(device).code)


@function(public="npx")
class priority:  # noqa: N801 -- used as a function
    """A block whose operations go before others that are ready: `with npx.priority(1): ...`.

    Higher levels first, 0 without a block; what somebody waits for goes before them all. Raises
    `ArgumentError` for a level that is no whole number of 32 bits.
    """

    def __init__(self, level: int) -> None:
        try:
            self._level = index(level)
        except TypeError:
            self._level = MOST_LEVEL + 1
        if not -MOST_LEVEL <= self._level <= MOST_LEVEL:
            raise ArgumentError(
                f"priority: {level!r} is not a valid level; levels are whole numbers from "
                f"{-MOST_LEVEL} to {MOST_LEVEL}"
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
    runs when its inputs are there: at once, or on a thread that waits, or on the Python lane's
    thread; the call does not wait for it. What it raises is raised where a result is read. It may
    wait for other arrays. It has no gradient: see `autograd.Function`.

    >>> npx.callback(lambda x: x * 2, np.array([1.0, 2.0]), outputs=((2,), "float32"))
    """
    single = len(outputs) == 2 and not isinstance(outputs[1], tuple | list)
    pairs = [outputs] if single else outputs
    specs = [Spec(tuple(shape), as_dtype(dtype)) for shape, dtype in pairs]
    inputs = [array_like(array) for array in arrays]
    label = name or str(getattr(function, "__name__", "callback"))
    found = runtime_callback.issue(label, runtime_callback.copying(function), inputs, specs)
    return found[0] if single else list(found)


# --- MXNet's NumPy mode ---------------------------------------------------------------------

#: What programs that ask for the mode are told.
NUMPYS = {"shape": True, "array": True}


@function(public="npx")
def set_np(shape: bool = True, array: bool = True, dtype: bool = False) -> None:
    """MXNet's NumPy mode: Python integers become float32 arrays, which are positions, too.

    With `dtype` they become int64 and Python floats float64, as NumPy has it, and so do functions
    of integers (roots, quotients, means). Arrays are NumPy's in any mode: `shape` and `array` say
    what `is_np_shape` and `is_np_array` give.

    >>> npx.set_np()
    >>> x = np.array([1, 2, 3])
    >>> x[np.array([0, 2])]
    >>> npx.reset_np()
    """
    floats = float64 if dtype else float32
    integers = int64 if dtype else float32
    _behave(integers, floats, True)
    NUMPYS.update(shape=shape, array=array)


@function(public="npx")
def reset_np() -> None:
    """Back to gemel's own: Python integers become int64 arrays, floats float32.

    Programs are taken for MXNet 1's from then on: data loaders and iterators give NDArrays.
    """
    _behave(int64, float32, False)
    NUMPYS.update(shape=False, array=False)


def _behave(integers: DType, floats: DType, positions: bool) -> None:
    """What numbers become. Kernels of calls on integers are for one dtype of results."""
    changed = MANNERS["floats"] is not floats
    MANNERS.update({"integers": integers, "floats": floats, "floating positions": positions})
    if changed:
        _core.clear_tables()
        _core.forget_call_sites()


@function(public="npx")
def is_np_default_dtype() -> bool:
    """Whether floats become float64 where no dtype is given: after ``npx.set_np(dtype=True)``."""
    return MANNERS["floats"] is float64


@function(public="npx")
def is_np_array() -> bool:
    """Whether programs are to take arrays for NumPy's, as they are: not after `npx.reset_np()`."""
    return NUMPYS["array"]


@function(public="npx")
def is_np_shape() -> bool:
    """Whether programs are to take shapes for NumPy's, as they are: not after `npx.reset_np()`."""
    return NUMPYS["shape"]


@function(public="npx", aliases=("use_np_array", "use_np_shape"))
def use_np(func: Any) -> Any:
    """The function or class itself: MXNet's decorator for what uses NumPy's arrays.

    >>> npx.use_np(abs)(-1)
    """
    return func
