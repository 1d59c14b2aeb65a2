"""Methods of elementwise functions: `np.add.reduce`, `np.maximum.at`, `np.multiply.outer`.

NumPy calls such functions universal. The methods are implemented in `gemel.ops.combining`, which
is imported when one of them is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel.ir.methods import call
from gemel.ir.op_kinds import Elementwise
from gemel.ir.public import Array


def method(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a method of all elementwise operations."""
    setattr(Elementwise, function.__name__, function)
    return function


@method
def reduce(
    self: Elementwise,
    array: Any,
    axis: Any = 0,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Array:
    """All elements along axes (None: all of them) combined to one, from the first to the last.

    >>> np.add.reduce(np.array([[1, 2], [3, 4]]))
    """
    options = {"dtype": dtype, "out": out, "initial": initial, "where": where}
    return call("combined", self, array, axis, keepdims, **options)


@method
def accumulate(
    self: Elementwise, array: Any, axis: int = 0, dtype: Any = None, out: Any = None
) -> Array:
    """What `reduce` gives of the elements up to each one.

    >>> np.maximum.accumulate(np.array([1, 3, 2]))
    """
    return call("combined_so_far", self, array, axis, dtype, out)


@method
def reduceat(
    self: Elementwise,
    array: Any,
    indices: Any,
    axis: int = 0,
    dtype: Any = None,
    out: Any = None,
) -> Array:
    """`reduce` of the slices that begin at positions, each up to the next position.

    A position that is not below the next one gives the element there.

    >>> np.add.reduceat(np.arange(6), [0, 2, 4])
    """
    return call("combined_slices", self, array, indices, axis, dtype, out)


@method
def outer(self: Elementwise, a: Any, b: Any, /, **keywords: Any) -> Array:
    """The function of each element of a with each of b: of shape a.shape + b.shape.

    >>> np.multiply.outer(np.array([1, 2]), np.array([3, 4]))
    """
    return call("of_all_pairs", self, a, b, **keywords)


@method
def at(self: Elementwise, a: Any, indices: Any, b: Any = None, /) -> None:
    """a[indices] = function(a[indices], b), in place, once for each time a position is named.

    Additions and subtractions are differentiable. Raises `DTypeError` where a cannot hold the
    result, `ShapeError` where b does not broadcast to what the indices select.

    >>> x = np.zeros(3)
    >>> np.add.at(x, [0, 0, 2], 1)
    >>> x
    """
    call("combine_at", self, a, indices, b)


__all__ = ["accumulate", "at", "method", "outer", "reduce", "reduceat"]
