"""Other views of the same memory: with another dtype, or detached from the gradient."""

from __future__ import annotations

import builtins
from functools import partial
from typing import Any

from gemel import _core
from gemel.dtype import DType, as_dtype
from gemel.errors import DTypeError, GradientError, ShapeError
from gemel.ir.declare import op
from gemel.ir.layout import Layout
from gemel.ir.op import Op
from gemel.ir.public import Array, function
from gemel.spec import Spec


def _seen(x: Spec, dtype: DType) -> tuple[int, ...]:
    """The shape of x viewed as another dtype. Raises `ShapeError`."""
    if x.dtype.itemsize == dtype.itemsize:
        return tuple(x.shape)
    if not x.ndim:
        raise ShapeError(
            f"view: {x} without axes can only be viewed as a dtype of the same size, not {dtype}"
        )
    size = x.shape[-1] * x.dtype.itemsize
    if size % dtype.itemsize != 0:
        raise ShapeError(
            f"view: {x} as {dtype}: {size} bytes along the last axis are not a multiple of "
            f"{dtype.itemsize}"
        )
    return (*x.shape[:-1], size // dtype.itemsize)


class _Cutting(Op):
    """An operation whose result shares its input's memory, but not its history."""

    def __call__(self, *inputs: Any, **parameters: Any) -> Any:
        """The result; an array is detached, as the tape would otherwise follow it as a view."""
        found = super().__call__(*inputs, **parameters)
        return found._detached() if isinstance(found, _core.Array) else found


@partial(_Cutting, complex=True, moves=1, recorded=False, mxnet="BlockGrad")
def detached(x: Any) -> Any:
    """x itself without its history. Memory is shared, so writes to one show in the other."""
    return x


@detached.spec
def _(x: Spec) -> Spec:
    return x


@detached.view
def _(layout: Layout, result: Spec) -> Layout:
    return layout


@detached.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (None,)


@detached.put
def _(x: Any, value: Any, index: int) -> Any:
    return value


@op(complex=True)
def viewed(x: Any, *, dtype: Any) -> Any:
    """The bytes of x as numbers of another dtype."""
    return x.view(as_dtype(dtype).name)


@viewed.spec
def _(x: Spec, *, dtype: Any) -> Spec:
    found = as_dtype(dtype)
    if x.dtype.twin is not x.dtype or found.twin is not found:
        raise DTypeError(
            f"view: {x} as {found}: in a program or on the tape, NumPy must support both dtypes"
        )
    return Spec(_seen(x, found), found)


@viewed.gradient
def _(g: Any, y: Any, x: Any, *, dtype: Any) -> Any:
    if y.dtype.is_inexact:
        raise GradientError("view: a change of dtype has no gradient; use detach() first")
    return (None,)


@viewed.put
def _(x: Any, value: Any, index: int, *, dtype: Any) -> Any:
    return viewed(value, dtype=x.dtype)


@function(method=True)
def view(x: Any, dtype: Any = None, type: Any = None) -> Array:
    """The same memory as an array of another dtype, as NumPy's: writes of one are the other's.

    Along the last axis, whose elements must lie side by side, there are more elements of a smaller
    dtype or fewer of a larger one. Without a dtype it is another array of the same elements. No
    gradient passes from dtype to dtype: of what has one recorded it is a copy. Raises `ShapeError`
    (a `ValueError`) where the bytes do not fit.
    """
    same = dtype is None or isinstance(dtype, builtins.type) and issubclass(dtype, _core.Array)
    found = x.dtype if same else as_dtype(dtype)
    if found is x.dtype:
        return x[...]
    if not isinstance(x, _core.Array) or (_core.recording() and x._is_tracked):
        return viewed(x, dtype=found)
    spec = Spec(x.shape, x.dtype)
    shape = _seen(spec, found)
    have, want = x.dtype.itemsize, found.itemsize
    strides, offset = list(x.strides), x.offset * have
    if have != want:
        if x.size and x.shape[-1] != 1 and x.strides[-1] != have:
            raise ShapeError(
                f"view: {spec} as {found}: the elements of the last axis are not contiguous; "
                "copy() the array first"
            )
        strides[-1] = want
    if any(far % want for far in (offset, *strides)):
        raise ShapeError(
            f"view: {spec} as {found}: rows do not start at multiples of {want} bytes; copy() "
            "the array first"
        )
    return x._as_strided(shape, [stride // want for stride in strides], offset // want, found.code)


__all__ = ["view", "viewed"]
