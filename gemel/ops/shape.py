"""Operations that only rearrange elements. Most are views, without moving elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemel import _core, device
from gemel.dtype import any_exact, as_number, weak
from gemel.errors import OperandError, ShapeError, unknown_name
from gemel.extent import NUMBER, WHOLE
from gemel.ir.above import above
from gemel.ir.declare import op
from gemel.ir.graph import Entry
from gemel.ir.keywords import converted, into, static
from gemel.ir.layout import Layout, dense_strides
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ops.elementwise import cast, full
from gemel.ops.elementwise import copy as materialized
from gemel.ops.sections import check_span, overlapping, section_lengths, sections_of
from gemel.ops.targets import target_shape
from gemel.spec import (
    Spec,
    extents,
    is_plain,
    is_several,
    normalize_axes,
    normalize_axis,
    promote_specs,
    sequence,
    wholes,
)


def listed(shape: Any) -> tuple[int, ...]:
    """A shape that may be given as one number."""
    if is_plain(shape):
        return shape  # type: ignore[no-any-return]
    return static(tuple(shape) if is_several(shape) else (shape,))  # type: ignore[no-any-return]


def operand(value: Any, beside: Any = ()) -> Any:
    """An array-like argument as an array (or symbol); a number becomes a 0-d array.

    Numbers get the precision of the arrays beside them.
    """
    if isinstance(value, Entry):
        value = value.as_np_ndarray()
        if not value.spec.weak:
            return value
        return cast(value, dtype=as_number(value.dtype) if any_exact(beside) else value.dtype)
    if isinstance(value, _core.Array):
        return value
    found = above.as_array(value, beside)
    if not isinstance(found, NUMBER):
        return found
    dtype = as_number(weak(found)) if any_exact(beside) else weak(found)
    with device.beside(None, beside):
        return full(found, shape=(), dtype=dtype)


def operands(values: Any) -> list[Any]:
    """Several operands; numbers in lists get the precision of the arrays beside them."""
    given = sequence("stack and concatenate", "the arrays", values)
    return [operand(value, given) for value in given]


# --- reshape --------------------------------------------------------------------------------


@op(public="np", onnx="Reshape", mxnet="_npx_reshape", alignment="reshape")
def reshape(x: Any, *, shape: Any) -> Any:
    """The same elements in another shape; one extent may be -1."""
    return numpy().reshape(x, shape)


@reshape.facade
def _(
    a: Any,
    shape: Any = None,
    order: str = "C",
    *,
    newshape: Any = None,
    copy: bool | None = None,
) -> Array:
    """The same elements in another shape, of which one extent may be -1; a view where possible.

    `order` "F" counts the first axis fastest, in the array and in the result. With `copy` the
    elements are copied; with False they never are. Raises `ShapeError` where the sizes differ,
    or where a view was asked for and there is none.

    >>> np.reshape(np.array([1, 2, 3, 4]), (2, 2))
    """
    a, extents = operand(a), newshape if shape is None else shape
    if extents is None:
        raise OperandError("reshape: missing the new shape")
    if order not in (known := ("C", "F", "A", "K")):
        raise unknown_name("order of reshape", order, known)
    if order == "F":
        turned = reshape(transpose(a), shape=listed(extents)[::-1])
        return materialized(transpose(turned)) if copy else transpose(turned)
    target = listed(extents)
    if copy is False and isinstance(a, _core.Array):
        lies = Layout(a.shape, a._element_strides, a.offset)
        if reshaped_strides(lies, target_shape(Spec(a.shape, a.dtype), target)) is None:
            raise ShapeError(f"reshape: {list(a.shape)} to {list(target)} requires a copy")
    return reshape(materialized(a) if copy else a, shape=target)


@reshape.spec
def _(x: Spec, *, shape: Any) -> Spec:
    return Spec(target_shape(x, (shape,) if isinstance(shape, WHOLE) else shape), x.dtype)


@reshape.view
def _(layout: Layout, result: Spec, *, shape: Any) -> Layout | None:
    strides = reshaped_strides(layout, result.shape)
    return None if strides is None else Layout(result.shape, strides, layout.offset)


@reshape.gradient
def _(g: Any, y: Any, x: Any, *, shape: Any) -> Any:
    return (reshape(g, shape=x.shape),)


@reshape.put
def _(x: Any, value: Any, index: int, *, shape: Any) -> Any:
    return reshape(value, shape=x.shape)


def reshaped_strides(layout: Layout, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of a view of another shape, or None where elements would have to move."""
    if layout.contiguous:
        return dense_strides(shape)
    # Runs of old axes without gaps between them may be split and merged freely.
    old = [(n, s) for n, s in zip(layout.shape, layout.strides, strict=True) if n != 1]
    strides: list[int] = [0] * len(shape)
    axis, position = len(shape) - 1, len(old) - 1
    while position >= 0:
        extent, stride = old[position]
        while position > 0 and old[position - 1][1] == stride * extent:
            position -= 1
            extent *= old[position][0]
            # the run keeps the innermost stride
        position -= 1
        filled = 1
        while axis >= 0 and filled < extent:
            strides[axis] = stride * filled
            filled *= shape[axis]
            axis -= 1
        if filled != extent:
            return None
        while axis >= 0 and shape[axis] == 1:
            axis -= 1
    return tuple(strides)


# --- axes -----------------------------------------------------------------------------------


def check_axis(name: str, axis: int, ndim: int) -> None:
    """Raises `ShapeError` unless 0 <= axis < ndim. For operations that only gemel itself calls."""
    if normalize_axis(name, axis, ndim) != axis:
        raise ShapeError(f"{name}: axis {axis} must be counted from the front")


def axis_order(ndim: int, axes: Any) -> tuple[int, ...]:
    """The axes of a transpose, reversed by default. Raises `ShapeError`."""
    if axes is None:
        return tuple(range(ndim - 1, -1, -1))
    order = tuple(
        normalize_axis("transpose", axis, ndim) for axis in wholes("transpose", "axes", axes)
    )
    if sorted(order) != list(range(ndim)):
        raise ShapeError(f"transpose: axes {axes!r} must name each of the {ndim} axes once")
    return order


@op(public="np", aliases=("permute_dims",), onnx="Transpose", mxnet="_npi_transpose")
def transpose(x: Any, *, axes: Any = None) -> Any:
    """Permute the axes; by default reverse them."""
    return numpy().transpose(x, axes)


@transpose.facade
def _(a: Any, axes: Any = None) -> Array:
    """The axes in another order, reversed by default: as a view. A number has none.

    Raises `ShapeError` where `axes` does not name each axis once.

    >>> np.transpose(np.array([[1, 2], [3, 4]]))
    """
    return transpose(operand(a), axes=axes)


@transpose.spec
def _(x: Spec, *, axes: Any) -> Spec:
    if axes is None:
        return Spec(x.shape[::-1], x.dtype)
    return Spec([x.shape[axis] for axis in axis_order(x.ndim, axes)], x.dtype)


@transpose.view
def _(layout: Layout, result: Spec, *, axes: Any) -> Layout:
    return layout.ordered(axis_order(len(layout.shape), axes))


@transpose.gradient
def _(g: Any, y: Any, x: Any, *, axes: Any) -> Any:
    return (_turned_back(g, axes),)


@transpose.put
def _(x: Any, value: Any, index: int, *, axes: Any) -> Any:
    return _turned_back(value, axes)


def _turned_back(x: Any, axes: Any) -> Any:
    order = axis_order(x.ndim, axes)
    return transpose(x, axes=tuple(sorted(range(len(order)), key=order.__getitem__)))


@function(public="np", method=True)
def swapaxes(a: Any, axis1: int, axis2: int) -> Array:
    """Exchange two axes."""
    a = operand(a)
    order = list(range(a.ndim))
    first, second = (normalize_axis("swapaxes", axis, a.ndim) for axis in (axis1, axis2))
    order[first], order[second] = second, first
    return transpose(a, axes=tuple(order))


@function(public="np", method=True)
def expand_dims(a: Any, axis: Any = 0) -> Array:
    """Add an axis (or several) of length 1."""
    a = operand(a)
    added = wholes("expand_dims", "axis", axis)
    total = len(a.shape) + len(added)
    places = normalize_axes("expand_dims", added, total)
    extents = iter(a.shape)
    return reshape(a, shape=tuple(1 if i in places else next(extents) for i in range(total)))


@function(public="np", method=True)
def squeeze(a: Any, axis: Any = None) -> Array:
    """Remove the given axes of length 1, or all of them. Raises `ShapeError` for an axis of another
    length."""
    shape = (a := operand(a)).shape
    if axis is None:
        return reshape(a, shape=tuple(n for n in shape if not n == 1))
    axes = normalize_axes("squeeze", axis, len(shape))
    long = [a for a in axes if not shape[a] == 1]
    if long:
        raise ShapeError(
            f"squeeze: axis {long[0]} of shape {list(shape)} has length {shape[long[0]]}, not 1"
        )
    return reshape(a, shape=tuple(n for i, n in enumerate(shape) if i not in axes))


@op(public="np", method=True, onnx="Expand", mxnet="_npi_broadcast_to", alignment="repeat")
def broadcast_to(x: Any, *, shape: Any) -> Any:
    """Broadcast to a shape, along new axes and axes of length 1."""
    return numpy().broadcast_to(x, shape)


@broadcast_to.facade
def _(array: Any, shape: Any, subok: bool = False) -> Array:
    """Repeated along new axes and axes of length 1, until it has the given shape: as a view."""
    return broadcast_to(operand(array), shape=listed(shape))


@broadcast_to.spec
def _(x: Spec, *, shape: Any) -> Spec:
    shape = extents("broadcast_to", shape)
    lead = len(shape) - x.ndim
    fits = lead >= 0 and all(m == n or m == 1 for m, n in zip(x.shape, shape[lead:], strict=True))
    if not fits:
        raise ShapeError(f"broadcast_to: {x} does not broadcast to {list(shape)}")
    return Spec(shape, x.dtype)


@broadcast_to.view
def _(layout: Layout, result: Spec, *, shape: Any) -> Layout:
    lead = len(result.shape) - len(layout.shape)
    pairs = zip(layout.shape, layout.strides, result.shape[lead:], strict=True)
    strides = (0 if m == 1 and n != 1 else s for m, s, n in pairs)
    return Layout(result.shape, (*[0] * lead, *strides), layout.offset)


@broadcast_to.gradient
def _(g: Any, y: Any, x: Any, *, shape: Any) -> Any:
    return (g,)  # the gradient pass sums over the repeated axes


# --- joining and splitting ------------------------------------------------------------------


@op(public="np", aliases=("concat",), onnx="Concat", mxnet="_npi_concatenate", moves=-1)
def concatenate(*arrays: Any, axis: int = 0) -> Any:
    """Concatenate arrays along an axis."""
    dtype = promote_specs(*(Spec(array.shape, array.dtype) for array in arrays))
    return numpy().concatenate([array.astype(dtype.name) for array in arrays], axis)


@concatenate.facade
def _(
    arrays: Any,
    axis: int | None = 0,
    out: Any = None,
    *,
    dtype: Any = None,
    casting: str = "same_kind",
) -> Array:
    """The arrays one after another along an axis; None flattens them first.

    With `dtype` each is converted to it, as `casting` allows.
    """
    if axis is None:
        parts: Any = [reshape(x, shape=(-1,)) for x in operands(arrays)]
    else:
        parts = sequence("concatenate", "the arrays", arrays)
    if dtype is not None:
        parts = _converted("concatenate", parts, dtype, casting)
    found = _joined(parts, axis)
    return found if out is None else into("concatenate", out, found, casting)


def _converted(name: str, parts: Any, dtype: Any, casting: str) -> list[Any]:
    return [converted(name, operand(x, parts), dtype, casting) for x in parts]


def _joined(parts: Any, axis: int | None) -> Any:
    first = axis is None or (type(axis) is int and axis == 0)
    return concatenate(*parts) if first else concatenate(*parts, axis=axis)  # the faster call


@concatenate.spec
def _(*specs: Spec, axis: int) -> Spec:
    if not specs:
        raise ShapeError("concatenate: needs at least one array")
    first = specs[0]
    place = normalize_axis("concatenate", axis, first.ndim)
    total = first.shape[place]
    for spec in specs[1:]:
        others = zip(first.shape, spec.shape, strict=False)
        if spec.ndim != first.ndim or not all(
            m == n for i, (m, n) in enumerate(others) if i != place
        ):
            raise ShapeError(
                f"concatenate: {first} and {spec} must have equal shapes except along axis {place}"
            )
        total = total + spec.shape[place]
    return Spec((*first.shape[:place], total, *first.shape[place + 1 :]), promote_specs(*specs))


@concatenate.gradient
def _(g: Any, y: Any, *arrays: Any, axis: int) -> Any:
    place = normalize_axis("concatenate", axis, g.ndim)
    parts, start = [], 0
    for array in arrays:
        extent = array.shape[place]
        parts.append(narrow(g, axis=place, start=start, length=extent))
        start = start + extent
    return tuple(parts)


#: More arrays than this are copied one after the other.
MOST_INTERLEAVED = 8


@concatenate.pieces
def _(layout: Layout, *arrays: Spec, axis: int) -> Iterator[tuple[Layout, int]]:
    place = axis % len(layout.shape)
    start = 0
    for number, part in enumerate(arrays):
        length = part.shape[place]
        yield narrowed(layout, place, start, length), number
        start = start + length


def narrowed(layout: Layout, axis: int, start: int, length: int) -> Layout:
    """The part of a layout from `start` on along an axis."""
    shape = (*layout.shape[:axis], length, *layout.shape[axis + 1 :])
    return Layout(shape, layout.strides, layout.offset + start * layout.strides[axis])


@op(public="np", onnx="Split", mxnet="_npi_split")
def split(x: Any, *, sections: Any, axis: int = 0) -> Any:
    """Split along an axis into equal parts, or at positions; the parts are views."""
    parts = section_lengths("split", x.shape[axis], sections)
    cuts = [start for start, _ in parts[1:]]
    return tuple(numpy().split(x, cuts, axis))


@split.facade
def _(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Parts of an array along an axis, as views: equal ones, or between positions."""
    return parted(operand(ary), sections_of("split", indices_or_sections), axis)


def parted(x: Any, sections: Any, axis: int) -> list[Any]:
    """Parts of an array along an axis, as views."""
    place = normalize_axis("split", axis, x.ndim)
    if spans := overlapping("split", x.shape[place], sections):
        return [narrow(x, axis=place, start=start, length=length) for start, length in spans]
    found = split(x, sections=sections, axis=axis)
    return list(found) if isinstance(found, tuple) else [found]


@split.spec
def _(x: Spec, *, sections: Any, axis: int) -> tuple[Spec, ...]:
    place = normalize_axis("split", axis, x.ndim)
    parts = section_lengths("split", x.shape[place], sections)
    shapes = ((*x.shape[:place], length, *x.shape[place + 1 :]) for _, length in parts)
    return tuple(Spec(shape, x.dtype) for shape in shapes)


@split.view
def _(layout: Layout, *results: Spec, sections: Any, axis: int) -> tuple[Layout, ...]:
    place = normalize_axis("split", axis, len(layout.shape))
    spans = section_lengths("split", layout.shape[place], sections)
    return tuple([narrowed(layout, place, start, length) for start, length in spans])


@split.put
def _(x: Any, value: Any, index: int, *, sections: Any, axis: int) -> Any:
    place = normalize_axis("split", axis, x.ndim)
    start, length = section_lengths("split", x.shape[place], sections)[index]
    return _between(x, value, place, start, length)


def _between(x: Any, value: Any, axis: int, start: Any, length: Any) -> Any:
    """x with `value` in place of the `length` elements from `start` on along an axis."""
    end = start + length
    rest = narrow(x, axis=axis, start=end, length=x.shape[axis] - end)
    return concatenate(narrow(x, axis=axis, start=0, length=start), value, rest, axis=axis)


@split.gradient
def _(g: Any, y: Any, x: Any, *, sections: Any, axis: int) -> Any:
    if not isinstance(y, tuple):  # a single part, which is all of x
        return (g,)
    pairs = zip(g, y, strict=True)
    parts = [full(0, shape=part.shape, dtype=part.dtype) if d is None else d for d, part in pairs]
    return (concatenate(*parts, axis=axis),)


@op(mxnet="_npx_slice_axis")
def narrow(x: Any, *, axis: int, start: int, length: int) -> Any:
    """The elements start to start + length along an axis, as a view."""
    return x[(slice(None),) * axis + (slice(start, start + length),)]


@narrow.spec
def _(x: Spec, *, axis: int, start: int, length: int) -> Spec:
    check_axis("narrow", axis, x.ndim)
    check_span("narrow", axis, x.shape[axis], start, length)
    return Spec((*x.shape[:axis], length, *x.shape[axis + 1 :]), x.dtype)


@narrow.view
def _(layout: Layout, result: Spec, *, axis: int, start: int, length: int) -> Layout:
    return Layout(result.shape, layout.strides, layout.offset + start * layout.strides[axis])


@narrow.put
def _(x: Any, value: Any, index: int, *, axis: int, start: int, length: int) -> Any:
    return _between(x, value, axis, start, length)


@narrow.gradient
def _(g: Any, y: Any, x: Any, *, axis: int, start: int, length: int) -> Any:
    def zeros(count: int) -> Any:
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        return full(0, shape=shape, dtype=g.dtype)

    return (concatenate(zeros(start), g, zeros(x.shape[axis] - start - length), axis=axis),)


@function(public="np")
def stack(
    arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Array:
    """Stack arrays along a new axis. `dtype` and `casting` as in `concatenate`."""
    parts = operands(arrays)
    if not parts:
        raise ShapeError("stack: needs at least one array")
    shapes = [x.shape for x in parts]
    shape = shapes[0]
    if shapes.count(shape) != len(shapes):
        raise ShapeError(f"stack: shapes {shapes} must be equal")
    place = normalize_axis("stack", axis, len(shape) + 1)
    if place == len(shape):
        parts = [reshape(x, shape=(*shape, 1)) for x in parts]
    if dtype is not None:
        parts = _converted("stack", parts, dtype, casting)
    found = _joined(parts, place)
    found = reshape(found, shape=(*shape[:place], len(parts), *shape[place:]))
    return found if out is None else into("stack", out, found, casting)
