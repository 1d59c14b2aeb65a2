"""Operations that apply a given function: along an axis, over several axes, to each element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gemel.device import beside_arrays
from gemel.errors import ArgumentError, ShapeError
from gemel.extent import NUMBER
from gemel.ir.protocols import by_numpy
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ops.arrange import moveaxis
from gemel.ops.assignment import contents
from gemel.ops.elementwise import cast, full, where
from gemel.ops.elementwise import copy as materialized
from gemel.ops.shape import concatenate, expand_dims, operand, reshape, stack
from gemel.spec import normalize_axis, plain, product


@function(public="np")
@beside_arrays
def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any
) -> Array:
    """Replace each row along an axis by the result of a function.

    The function is called once per row with a 1-d array, and returns a number or an array, always
    of the same shape.

    >>> np.apply_along_axis(lambda row: row.max() - row.min(), 0, np.array([[1, 2], [5, 3]]))
    """
    arr = operand(arr)
    axis = normalize_axis("apply_along_axis", axis, arr.ndim)
    turned = moveaxis(arr, axis, -1)
    others = tuple(turned.shape[:-1])
    if product(others) == 0:
        raise ShapeError(f"apply_along_axis: {list(arr.shape)} has no elements along axis {axis}")
    rows = reshape(turned, shape=(product(others), turned.shape[-1]))
    found = stack([operand(func1d(row, *args, **kwargs)) for row in rows])
    inner = tuple(found.shape[1:])
    shaped = reshape(found, shape=(*others, *inner))
    for place in range(len(inner)):
        shaped = moveaxis(shaped, len(others) + place, axis + place)
    return shaped


@function(public="np")
@beside_arrays
def apply_over_axes(func: Callable[..., Any], a: Any, axes: Any) -> Array:
    """Apply a function of (array, axis) over several axes in turn; each axis is kept.

    >>> np.apply_over_axes(np.sum, np.ones((2, 3, 4)), [0, 2]).shape
    """
    a, axes = operand(a), plain(axes)
    for axis in (axes,) if isinstance(axes, int) else axes:
        place = normalize_axis("apply_over_axes", axis, a.ndim)
        found = operand(func(a, place))
        a = expand_dims(found, place) if found.ndim == a.ndim - 1 else found
    return a


@function(public="np")
@beside_arrays
def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Array:
    """At each position, the result of the function for the last condition that holds, else 0.

    A function may be a number. An extra function applies where no condition holds. Each is called
    with all of x.

    >>> np.piecewise(np.array([-1.0, 2.0]), [np.array([True, False])], [lambda v: -v, 0.5])
    """
    x = operand(x)
    several = (
        isinstance(condlist, (list, tuple))
        and condlist
        and (not x.ndim or getattr(condlist[0], "ndim", isinstance(condlist[0], (list, tuple))))
    )
    conditions = [operand(each) for each in (condlist if several else [condlist])]
    functions = list(funclist)
    if len(functions) not in (len(conditions), len(conditions) + 1):
        raise ArgumentError(
            f"piecewise: {len(conditions)} conditions need as many functions, or one more, not "
            f"{len(functions)}"
        )

    def values(each: Any) -> Any:
        return contents("piecewise", each(x, *args, **kw) if callable(each) else each, x)

    more = len(functions) > len(conditions)
    found = values(functions.pop()) if more else full(0, shape=(), dtype=x.dtype)
    for condition, each in zip(conditions, functions, strict=True):
        found = where(cast(condition, dtype="bool"), values(each), found)
    return found


@function(public="np")
class vectorize:  # noqa: N801 -- NumPy's name
    """A Python function of numbers as one of arrays: called for each element, by NumPy.

    Calls wait for their arguments, and have no gradient.

    >>> np.vectorize(lambda a, b: a if a > b else b)(np.array([1, 5]), 3)
    """

    def __init__(
        self,
        pyfunc: Callable[..., Any],
        otypes: Any = None,
        doc: str | None = None,
        excluded: Any = None,
        cache: bool = False,
        signature: str | None = None,
    ) -> None:
        self.pyfunc = pyfunc
        self.__doc__ = doc or pyfunc.__doc__
        self.__name__ = getattr(pyfunc, "__name__", "vectorize")
        self._call = numpy().vectorize(pyfunc, otypes, doc, excluded, cache, signature)
        self._call.__name__ = self.__name__

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The function at each element; arguments broadcast."""
        return by_numpy(self._call, arguments, keywords)


@function(public="np")
@beside_arrays
def block(arrays: Any) -> Array:
    """Join arrays in nested lists: the innermost lists along the last axis, outer ones along
    earlier axes.

    >>> np.block([[np.ones((1, 1)), np.zeros((1, 2))], [np.zeros((1, 3))]])
    """
    depth, ndim = _depth(arrays), _most(arrays)
    found = _joined(arrays, depth, max(ndim, depth))
    return found if depth else materialized(found)


def _depth(arrays: Any) -> int:
    if not isinstance(arrays, list):
        return 0
    if not arrays:
        raise ArgumentError("block: a list is empty")
    depths = {_depth(each) for each in arrays}
    if len(depths) != 1:
        raise ArgumentError("block: all lists must be nested to the same depth")
    return 1 + depths.pop()


def _most(arrays: Any) -> int:
    if isinstance(arrays, list):
        return max(map(_most, arrays))
    return 0 if isinstance(arrays, NUMBER) else int(operand(arrays).ndim)


def _joined(arrays: Any, depth: int, ndim: int) -> Any:
    if depth == 0:
        x = operand(arrays)
        return reshape(x, shape=(*[1] * (ndim - x.ndim), *x.shape))
    parts = [_joined(each, depth - 1, ndim) for each in arrays]
    return concatenate(*parts, axis=ndim - depth)


__all__ = ["apply_along_axis", "apply_over_axes", "block", "piecewise", "vectorize"]
