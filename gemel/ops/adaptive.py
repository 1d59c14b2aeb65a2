"""Adaptive pooling: images of any size in a given number of parts.

Of an axis of n elements in m parts, part i has the elements from floor(i n / m) to before
ceil((i + 1) n / m), so neighbours may share elements, and parts may repeat them if m > n. The other
way around, element p is in the parts from floor(p m / n) to before ceil((p + 1) m / n): gradients
are the same sums with n and m exchanged.
"""

from __future__ import annotations

from typing import Any

from gemel.errors import ShapeError, unknown_name
from gemel.extent import Dim, same_for_all
from gemel.ir.declare import composite
from gemel.ir.keywords import static
from gemel.ir.public import Array
from gemel.ops.elementwise import cast, divide, floor_divide, iota, minimum, where
from gemel.ops.indexing import gather_inside
from gemel.ops.layouts import channels_first, channels_last, is_channels_last
from gemel.ops.peaks import peak
from gemel.ops.pooling import pooling
from gemel.ops.reduction import floating, min, sum, widened
from gemel.ops.shape import expand_dims, operand, reshape
from gemel.spec import Spec

KINDS = ("avg", "max")
NAN = float("nan")


@composite(public="npx")
def adaptive_pooling(x: Any, *, sizes: tuple[int, ...], kind: str) -> Any:
    """The average or the largest element of each of `sizes` parts of images (N, C, *space)."""
    kernel = even_parts(x.shape[2:], sizes)
    if kernel is not None:
        how: dict[str, Any] = {"pad": (0,) * len(kernel), "convention": "valid"}
        return pooling(x, kernel=kernel, stride=kernel, kind=kind, padded=True, p=2, **how)
    divided = [(axis, m) for axis, m in enumerate(sizes, 2) if not same_for_all(x.shape[axis], m)]
    if kind == "max":
        for axis, parts in divided:
            x = part_peaks(x, axis=axis, parts=parts)
        return x
    x = floating(x)
    found = widened(x)
    for axis, parts in divided:
        begin, end = edges(x.shape[axis], parts)
        length = reshape(end - begin, shape=(parts, *[1] * (x.ndim - axis - 1)))
        found = divide(part_sums(found, axis=axis, parts=parts), length)
    return cast(found, dtype=x.dtype)


def even_parts(extents: Any, sizes: tuple[Any, ...]) -> tuple[int, ...] | None:
    """The kernel of the pooling that these parts are, () for whole images; None if parts differ, or
    if the kernel would be an axis whose size is free."""
    whole = [same_for_all(m, 1) for m in sizes]
    if all(whole):
        return ()
    pairs = list(zip(extents, sizes, strict=True))
    if any(one and isinstance(n, Dim) for one, (n, _) in zip(whole, pairs, strict=True)):
        return None
    return tuple(int(n // m) for n, m in pairs) if all(n % m == 0 for n, m in pairs) else None


@adaptive_pooling.spec
def _(x: Spec, *, sizes: tuple[int, ...], kind: str) -> Spec:
    if any(same_for_all(n, 0) for n in x.shape[2:]):
        raise ShapeError(f"adaptive_pooling: {x}: an image is empty, so it has no parts")
    return Spec((*x.shape[:2], *sizes), x.dtype if kind == "max" else x.dtype.floating)


def edges(extent: Any, parts: Any) -> tuple[Any, Any]:
    """Where each part begins, and where it ends: (parts, 1) each."""
    place = iota(shape=(parts, 1), axis=0, dtype="int64")
    return floor_divide(place * extent, parts), floor_divide(
        (place + 1) * extent + parts - 1, parts
    )


def members(extent: Any, parts: Any) -> tuple[Any, Any]:
    """The positions of the elements of each part, (parts, the most elements that one may have), and
    which of these there are: a shorter part has its last one again."""
    begin, end = edges(extent, parts)
    most = (extent - 2) // parts + 2
    place = begin + iota(shape=(1, most), axis=1, dtype="int64")
    return minimum(place, end - 1), place < end


def seen(x: Any, axis: int, parts: Any) -> tuple[Any, Any]:
    """The elements of each part, (*before, parts, most, *after), and which of these there are."""
    place, there = members(x.shape[axis], parts)
    return gather_inside(x, place, axis=axis), beside(there, x.ndim - axis - 1)


def beside(x: Any, axes: int) -> Any:
    """x with further axes at its end."""
    return reshape(x, shape=(*x.shape, *[1] * axes))


@composite()
def part_sums(x: Any, *, axis: int, parts: Any) -> Any:
    """The sum of each part of an axis."""
    elements, there = seen(x, axis, parts)
    return sum(where(there, elements, 0), axis=axis + 1)


@part_sums.spec
def _(x: Spec, *, axis: int, parts: Any) -> Spec:
    return Spec((*x.shape[:axis], parts, *x.shape[axis + 1 :]), x.dtype)


@part_sums.gradient
def _(g: Any, y: Any, x: Any, *, axis: int, parts: Any) -> Any:
    return (part_sums(g, axis=axis, parts=x.shape[axis]),)


@composite()
def part_peaks(x: Any, *, axis: int, parts: Any) -> Any:
    """The largest element of each part of an axis; NaN wins. The gradient goes to the first of
    equal ones; where the largest is NaN, it is NaN for all elements of the part."""
    elements, _ = seen(x, axis, parts)
    return peak(elements, axes=(axis + 1,), keepdims=False)


@part_peaks.spec
def _(x: Spec, *, axis: int, parts: Any) -> Spec:
    return Spec((*x.shape[:axis], parts, *x.shape[axis + 1 :]), x.dtype)


@part_peaks.gradient
def _(g: Any, y: Any, x: Any, *, axis: int, parts: Any) -> Any:
    after, extent = x.ndim - axis - 1, x.shape[axis]
    elements, there = seen(x, axis, parts)
    place = beside(members(extent, parts)[0], after)
    largest = there & (elements == expand_dims(y, axis + 1))
    place = cast(place, dtype="int32")
    first = min(where(largest, place, extent), axis=axis + 1)  # the extent: none, as NaN is largest
    (firsts, there), (shares, _) = seen(first, axis, extent), seen(g, axis, extent)
    own = beside(iota(shape=(extent, 1), axis=0, dtype="int32"), after)
    shares = where(firsts == own, shares, where(firsts == extent, NAN, 0.0))
    return (cast(sum(where(there, shares, 0), axis=axis + 1), dtype=x.dtype),)


def parts_per_axis(name: str, wanted: Any, axes: int) -> tuple[Any, ...]:
    """The number of parts of each axis, or None: one for all, or one each. Raises `ShapeError`."""
    given = static(wanted, name, "output_size")
    found = given if isinstance(given, tuple) else (given,) * axes
    if len(found) != axes or not all(map(_counts, found)):
        raise ShapeError(
            f"{name}: output_size {given!r} must be a positive whole number, or None for an axis "
            f"as it is, or {axes} of them"
        )
    return found


def _counts(parts: Any) -> bool:
    """Whether this is a number of parts, or None."""
    return parts is None or (
        isinstance(parts, (int, Dim)) and not isinstance(parts, bool) and parts >= 1
    )


@adaptive_pooling.facade
def _(data: Any, output_size: Any, pool_type: str = "avg", layout: str | None = None) -> Array:
    """The average or the largest element ("max") of each part of data (N, C, *space).

    `output_size` is the number of parts of each spatial axis, or a number for all of them; None
    leaves an axis as it is. Of n elements in m parts, part i has the elements from floor(i n / m)
    to before ceil((i + 1) n / m). With a `layout` like ``"NHWC"`` the channels are the last axis of
    data and result. The gradient of the largest goes to one of equal elements.

    >>> npx.adaptive_pooling(np.arange(25.0).reshape(1, 1, 5, 5), 2)
    """
    data = operand(data)
    axes = len(data.shape) - 2
    if axes not in (1, 2, 3):
        raise ShapeError(
            f"adaptive_pooling: {list(data.shape)} must have 3 to 5 axes: N, C, and the spatial "
            "axes"
        )
    if pool_type not in KINDS:
        raise unknown_name("pool_type of adaptive_pooling", pool_type, KINDS)
    last = is_channels_last("adaptive_pooling", layout, axes)
    wanted = parts_per_axis(f"adaptive_pooling: {list(data.shape)}", output_size, axes)
    data = channels_first(data, last)
    sizes = tuple(n if m is None else m for n, m in zip(data.shape[2:], wanted, strict=True))
    return channels_last(adaptive_pooling(data, sizes=sizes, kind=pool_type), last)


__all__ = ["adaptive_pooling"]
