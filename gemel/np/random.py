"""`np.random`: random arrays. `seed` makes a whole run repeatable."""

from __future__ import annotations

from typing import Any

from gemel import _core
from gemel.device import as_device
from gemel.dtype import as_dtype, check_held, float64
from gemel.extent import WHOLE
from gemel.ir.methods import call
from gemel.manners import default_float
from gemel.ops import random as _ops

_normal = _ops.normal
_randint = _ops.randint
_uniform = _ops.uniform


def seed(value: int) -> None:
    """Start the stream again: the same seed and the same calls give the same numbers."""
    _core.random_seed(int(value))
    _initialized[0] = 0


#: How many calls initial values have taken since `seed`.
_initialized = [0]
#: What makes their stream another one than the program's own.
INITIALIZATION = 0x5EED_1417_0F5E_ED00


class initialization:  # noqa: N801 -- used as a function
    """A block of code that draws from the stream of initial values.

    When a parameter is made depends on when its shape is known; drawing from a stream of its own,
    it changes nothing for dropout, and a network starts the same imperatively and hybridized.
    """

    def __enter__(self) -> None:
        self._program = _core.random_state()
        _core.set_random_state(self._program[0] ^ INITIALIZATION, _initialized[0])

    def __exit__(self, *error: object) -> None:
        _initialized[0] = _core.random_state()[1]
        _core.set_random_state(*self._program)


def _shape(size: Any, *parameters: Any) -> tuple[int, ...]:
    if size is None:
        for parameter in parameters:
            if getattr(parameter, "ndim", 0):
                return tuple(parameter.shape)
        return ()
    return (size,) if isinstance(size, WHOLE) else tuple(size)


def uniform(
    low: Any = 0.0,
    high: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Any:
    """Numbers spread evenly over [low, high)."""
    shape = _shape(size, low, high)
    with as_device(device or ctx):
        return _uniform(low, high, shape=shape, dtype=as_dtype(dtype or default_float()))


def normal(
    loc: Any = 0.0,
    scale: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Any:
    """Normally distributed numbers with mean `loc` and standard deviation `scale`."""
    shape = _shape(size, loc, scale)
    with as_device(device or ctx):
        return _normal(loc, scale, shape=shape, dtype=as_dtype(dtype or default_float()))


def randint(
    low: int,
    high: int | None = None,
    size: Any = None,
    dtype: Any = "int64",
    device: Any = None,
    ctx: Any = None,
) -> Any:
    """Whole numbers from low (0 when only one bound is given) up to and without high.

    Raises `ValueError` for bounds that enclose nothing, or that the dtype cannot hold.
    """
    if high is None:
        low, high = 0, low
    if not isinstance(low, WHOLE) or not isinstance(high, WHOLE) or high <= low:
        raise ValueError(f"randint: low {low} must be a whole number below high {high}")
    chosen = as_dtype(dtype)
    try:
        for bound in (low, high - 1):
            check_held("randint", bound, chosen)
    except OverflowError as error:
        raise ValueError(str(error)) from None
    with as_device(device or ctx):
        return _randint(low, high, shape=_shape(size), dtype=chosen)


def rand(*shape: int) -> Any:
    """Numbers spread evenly over [0, 1), in the shape given."""
    return uniform(size=shape)


def randn(*shape: int) -> Any:
    """Standard normal numbers, in the shape given."""
    return normal(size=shape)


def permutation(x: Any) -> Any:
    """The numbers 0 to x - 1 in random order, or an array's rows in random order."""
    count = x if isinstance(x, WHOLE) else x.shape[0]
    order = call("argsort", _uniform(0.0, 1.0, shape=(count,), dtype=float64))
    return order if isinstance(x, WHOLE) else x.take(order, axis=0)


def shuffle(x: Any) -> None:
    """Put an array's rows in random order, in place."""
    x[...] = permutation(x)


__all__ = ["normal", "permutation", "rand", "randint", "randn", "seed", "shuffle", "uniform"]
