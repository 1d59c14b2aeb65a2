"""Taking elements by positions along an axis, by choices and by conditions."""

from __future__ import annotations

from typing import Any

from gemel.device import beside_arrays
from gemel.dtype import as_dtype
from gemel.errors import ArrayIndexError, DTypeError, ShapeError, unknown_name
from gemel.ir.above import above
from gemel.ir.declare import composite, op
from gemel.ir.graph import is_number
from gemel.ir.keywords import into, number
from gemel.ir.methods import named
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ir.rules import Emitter
from gemel.ops.arrange import broadcast_arrays
from gemel.ops.assignment import contents
from gemel.ops.elementwise import cast, full, iota, limit, where
from gemel.ops.indexing import gather, nonzero, out_of_range
from gemel.ops.shape import broadcast_to, expand_dims, listed, operand, operands, reshape, stack
from gemel.spec import Spec, broadcast, extents, normalize_axis, promote_specs, same_shape, sequence

# --- elements along an axis -----------------------------------------------------------------


def check_rows(name: str, shape: tuple[int, ...], indices: Spec, axis: int) -> None:
    """Raises unless indices are integers with the extents of `shape` except along `axis`."""
    if indices.dtype.kind not in "iu":
        raise DTypeError(f"{name}: indices {indices} must be integers; use astype('int64')")
    rows = (*shape[:axis], *indices.shape[axis : axis + 1], *shape[axis + 1 :])
    if normalize_axis(name, axis, len(shape)) != axis or not same_shape(rows, indices.shape):
        raise ShapeError(
            f"{name}: indices {indices} must have the shape {list(shape)}, except for axis {axis}"
        )
    if type(shape[axis]) is int and shape[axis] == 0 and 0 not in indices.shape:
        raise ArrayIndexError(f"{name}: {indices} index an empty axis of {list(shape)}")


@op(fails=True, public="np", onnx="GatherElements", moves=1)
def take_along_axis(x: Any, indices: Any, *, axis: int) -> Any:
    """Select from each row along an axis the elements at that row's positions, such as those of
    `argsort`."""
    return numpy().take_along_axis(x, indices.astype("int64"), axis)


@take_along_axis.facade
def _(arr: Any, indices: Any, axis: int | None = -1) -> Array:
    """From each row along an axis the elements at that row's positions, as `argsort` gives them.

    The other axes broadcast; without an axis, of the flattened array. Negative positions count
    from the end; one out of range is an `IndexError`, raised when the result is waited for.
    """
    arr = operand(arr)
    indices = operand(above.index_item(indices, arr))
    if axis is None:
        arr, axis = reshape(arr, shape=(-1,)), 0
    axis = normalize_axis("take_along_axis", axis, arr.ndim)
    arr, indices = _in_rows("take_along_axis", arr, indices, axis)
    return take_along_axis(arr, indices, axis=axis)


def _in_rows(name: str, x: Any, indices: Any, axis: int) -> tuple[Any, Any]:
    """Both arrays, broadcast along all axes except one."""
    if x.ndim != indices.ndim:
        raise ShapeError(
            f"{name}: {x.ndim} and {indices.ndim} dimensions; they must have the same number"
        )
    sides = [(*s[:axis], 1, *s[axis + 1 :]) for s in (x.shape, indices.shape)]
    rows = broadcast(name, *(Spec(side, "bool") for side in sides))
    if same_shape(sides[0], sides[1]):
        return x, indices
    widened = ((*rows[:axis], v.shape[axis], *rows[axis + 1 :]) for v in (x, indices))
    return tuple(
        broadcast_to(v, shape=shape) for v, shape in zip((x, indices), widened, strict=True)
    )


@take_along_axis.spec
def _(x: Spec, indices: Spec, *, axis: int) -> Spec:
    check_rows("take_along_axis", x.shape, indices, axis)
    return Spec(indices.shape, x.dtype)


@take_along_axis.gradient
def _(g: Any, y: Any, x: Any, indices: Any, *, axis: int) -> Any:
    return add_along_axis(g, indices, axis=axis, extent=x.shape[axis]), None


@take_along_axis.element
def _(loop: Any, at: Any, x: Any, indices: Any, *, axis: int) -> Any:
    loop.failure = out_of_range("take_along_axis", (axis, x.shape[axis]))
    position = loop.checked(indices.at(*at), x.shape[axis])
    return x.at(*at[:axis], position, *at[axis + 1 :])


@op(fails=True)
def add_along_axis(g: Any, indices: Any, *, axis: int, extent: int) -> Any:
    """Zeros with each element of g added at its row's position along an axis of `extent`.

    Sums are accumulated as `sum` does: float16 in float32. The sum of bools is whether any is true.
    """
    np = numpy()
    shape = (*g.shape[:axis], extent, *g.shape[axis + 1 :])
    result = np.zeros(shape, as_dtype(g.dtype).accumulate.name)
    places = list(np.meshgrid(*map(np.arange, g.shape), indexing="ij", sparse=True))
    places[axis] = indices.astype("int64")
    np.add.at(result, tuple(places), g)
    return result.astype(g.dtype)


@add_along_axis.spec
def _(g: Spec, indices: Spec, *, axis: int, extent: int) -> Spec:
    shape = (*g.shape[:axis], extent, *g.shape[axis + 1 :])
    check_rows("add_along_axis", extents("add_along_axis", shape), indices, axis)
    if not same_shape(g.shape, indices.shape):
        raise ShapeError(f"add_along_axis: {g} and indices {indices} must have the same shape")
    return Spec(shape, g.dtype)


@add_along_axis.holomorphic
def _(g: Any, y: Any, x: Any, indices: Any, *, axis: int, extent: int) -> Any:
    return take_along_axis(g, indices, axis=axis), None


@add_along_axis.lower
def _(emit: Emitter, outputs: Any, inputs: Any, *, axis: int, extent: int) -> None:
    (result,), (g, indices) = outputs, inputs
    wide = result.dtype.accumulate
    total = result if wide is result.dtype else emit.temporary(wide, result.shape)
    emit.fill(total, 0)
    failure = out_of_range("take_along_axis", (axis, extent))
    # Not in parallel and not in vectors: two elements may be added to the same place.
    loop = emit.loop(g.shape, failure=failure, parallel=False)
    target = loop.target(total, (*total.strides[:axis], 0, *total.strides[axis + 1 :]))
    position = loop.checked(loop.load(indices), extent)
    loop.scatter_add(target, position, loop.cast(loop.load(g), total.dtype), total.strides[axis])
    loop.finish()
    if total is not result:
        emit.copy(total, result)


@op(fails=True)
def with_rows_put(x: Any, indices: Any, values: Any, *, axis: int) -> Any:
    """x with the values of each row written at the positions of that row, along an axis."""
    found = numpy().array(x)
    numpy().put_along_axis(found, indices.astype("int64"), values, axis)
    return found


@with_rows_put.spec
def _(x: Spec, indices: Spec, values: Spec, *, axis: int) -> Spec:
    check_rows("put_along_axis", x.shape, indices, axis)
    if not same_shape(broadcast("put_along_axis", values, indices), indices.shape):
        raise ShapeError(f"put_along_axis: {values} does not broadcast to {indices}")
    return Spec(x.shape, x.dtype)


@with_rows_put.gradient
def _(g: Any, y: Any, x: Any, indices: Any, values: Any, *, axis: int) -> Any:
    zero = full(0, shape=indices.shape, dtype=g.dtype)
    # Of several values written to one position, only the last remains and gets the gradient.
    order = iota(shape=indices.shape, axis=axis, dtype="int64")
    nobody = full(-1, shape=x.shape, dtype="int64")
    last = take_along_axis(with_rows_put(nobody, indices, order, axis=axis), indices, axis=axis)
    taken = where(last == order, take_along_axis(g, indices, axis=axis), zero)
    return with_rows_put(g, indices, zero, axis=axis), None, taken


@function(public="np")
@beside_arrays
def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None = -1) -> None:
    """Write `values` into each row along an axis at that row's positions.

    >>> x = np.zeros((2, 3))
    >>> np.put_along_axis(x, np.array([[2], [0]], "int64"), 1, 1)
    >>> x
    """
    indices = operand(above.index_item(indices, arr))
    if axis is None:
        flat = reshape(arr, shape=(-1,))
        found = with_rows_put(flat, indices, contents("put_along_axis", values, arr), axis=0)
        arr[...] = reshape(found, shape=arr.shape)
        return
    axis = normalize_axis("put_along_axis", axis, arr.ndim)
    _, indices = _in_rows("put_along_axis", arr, indices, axis)
    values = contents("put_along_axis", values, arr)
    arr[...] = with_rows_put(arr, indices, values, axis=axis)


# --- choosing between arrays ----------------------------------------------------------------


@function(public="np", method=True)
@beside_arrays
def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Array:
    """At each position, the element of the choice with the number in `a`; all arrays broadcast.

    `mode` is ``"raise"``, ``"clip"`` or ``"wrap"`` for numbers out of range.

    >>> np.choose(np.array([0, 1, 0], "int64"), [np.array([1, 2, 3]), np.array([4, 5, 6])])
    """
    a = above.index_item(a, None)
    index, *found = broadcast_arrays(a, *sequence("choose", "the choices", choices))
    if mode not in ("raise", "clip", "wrap"):
        raise unknown_name("mode", mode, ("raise", "clip", "wrap"))
    index = cast(index, dtype="int64") if index.dtype == "bool" else index
    if mode == "clip":
        index = limit(index, 0, len(found) - 1)
    elif mode == "wrap":
        index = index % len(found)
    elif index.dtype.kind == "i":  # negative numbers are out of range, not counted from the end
        index = where(index < 0, len(found), cast(index, dtype="int64"))
    chosen = take_along_axis(stack(found), expand_dims(index, 0), axis=0)
    return into("choose", out, reshape(chosen, shape=index.shape))


@function(public="np")
@beside_arrays
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Array:
    """At each position, the element of the first choice whose condition holds, else `default`.

    >>> np.select([np.array([True, False])], [np.array([1, 2])], 0)
    """
    condlist = sequence("select", "the conditions", condlist)
    choicelist = sequence("select", "the choices", choicelist)
    if len(condlist) != len(choicelist) or not condlist:
        raise ShapeError(
            f"select: {len(condlist)} conditions and {len(choicelist)} choices; give the same "
            "number of both, at least one"
        )
    *choicelist, found = operands((*choicelist, default))
    given = [Spec((), x.dtype) for x in choicelist]
    number = is_number(default) and Spec((), found.dtype, weak=True)
    dtype = promote_specs(*given, number or Spec((), found.dtype))
    choicelist, found = [cast(x, dtype=dtype) for x in choicelist], cast(found, dtype=dtype)
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        found = where(condition, choice, found)
    return found


# --- conditions -----------------------------------------------------------------------------


@function(public="np")
def flatnonzero(a: Any) -> Array:
    """The positions in the flattened array of elements that are not zero. Waits for it."""
    found = nonzero(reshape(operand(a), shape=(-1,)))
    return found[0] if isinstance(found, tuple) else found


@function(public="np")
def argwhere(a: Any) -> Array:
    """The positions of elements that are not zero, one row each. Waits for it."""
    a = operand(a)
    if a.ndim == 0:
        return full(0, shape=(int(bool(a)), 0), dtype="int64")
    found = nonzero(a)
    return stack(found if isinstance(found, tuple) else (found,), 1)


@function(public="np")
@beside_arrays
@named
def compress(condition: Any, a: Any, axis: int | None = None, out: Any = None) -> Array:
    """The slices along an axis where the 1-d condition holds, which may be shorter."""
    a = operand(a)
    if axis is None:
        a, axis = reshape(a, shape=(-1,)), 0
    found = gather(a, flatnonzero(condition), axis=normalize_axis("compress", axis, a.ndim))
    return into("compress", out, found)


@function(public="np")
@beside_arrays
def extract(condition: Any, arr: Any) -> Array:
    """The elements where the condition holds, as a 1-d array. Waits for the condition."""
    return gather(reshape(operand(arr), shape=(-1,)), flatnonzero(condition), axis=0)


# --- positions in flattened arrays ----------------------------------------------------------


@op(fails=True, public="np", mxnet="_npi_unravel_index")
def unravel_index(indices: Any, *, shape: Any, order: str) -> Any:
    """Convert positions in the flattened array into positions along each axis."""
    return tuple(numpy().unravel_index(indices, shape, order))


@unravel_index.spec
def _(indices: Spec, *, shape: Any, order: str) -> tuple[Spec, ...]:
    if indices.dtype.kind not in "iu":
        raise DTypeError(f"unravel_index: indices {indices} must be integers")
    return tuple(Spec(indices.shape, "int64") for _ in shape)


@unravel_index.facade
def _(indices: Any, shape: Any, order: str = "C") -> tuple[Any, ...]:
    """Positions along each axis of what stands at positions in the flattened array.

    A position out of range is a `ValueError`, raised when the result is waited for.
    """
    indices, extents = operand(above.index_item(indices, None)), tuple(listed(shape))
    if not extents:  # without axes there is no result, but an operation has at least one
        if indices.ndim:
            raise ShapeError(
                f"unravel_index: {indices.shape}: a shape without axes has only one position"
            )
        return ()
    found = unravel_index(indices, shape=extents, order=order)
    return found if isinstance(found, tuple) else (found,)


@op(fails=True, public="np")
def ravel_multi_index(*positions: Any, dims: Any, mode: Any, order: str) -> Any:
    """Convert positions along each axis into positions in the flattened array."""
    return numpy().ravel_multi_index(positions, dims, mode, order)


@ravel_multi_index.spec
def _(*positions: Spec, dims: Any, mode: Any, order: str) -> Spec:
    if len(positions) != len(dims):
        raise ShapeError(f"ravel_multi_index: {len(positions)} positions for {len(dims)} axes")
    if any(p.dtype.kind not in "iu" for p in positions):
        raise DTypeError(f"ravel_multi_index: {promote_specs(*positions)} must be integers")
    return Spec(broadcast("ravel_multi_index", *positions), "int64")


@ravel_multi_index.facade
def _(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Array:
    """Positions in the flattened array of what stands at positions along each axis.

    A position out of range is a `ValueError`, raised when the result is waited for, or what
    `mode` says: "clip" or "wrap", one for all or for each axis.

    >>> np.ravel_multi_index(np.array([[1, 0], [2, 1]], "int64"), (2, 3))
    """
    given = sequence("ravel_multi_index", "the positions", multi_index)
    positions = [operand(above.index_item(each, None)) for each in given]
    mode = mode if isinstance(mode, str) else tuple(mode)
    return ravel_multi_index(*positions, dims=tuple(listed(dims)), mode=mode, order=order)


@composite(public="npx", onnx="OneHot", mxnet="_npx_one_hot")
def one_hot(
    x: Any, *, depth: int, on_value: float = 1.0, off_value: float = 0.0, dtype: Any = "float32"
) -> Any:
    """Add a last axis of length `depth`: `on_value` at the index in x, `off_value` elsewhere."""
    lanes = iota(shape=(depth,), axis=0, dtype="int64")
    chosen = expand_dims(cast(x, dtype="int64"), -1) == lanes
    given = number("one_hot", "on_value", on_value), number("one_hot", "off_value", off_value)
    on, off = (full(value, shape=(), dtype=dtype) for value in given)
    return where(chosen, on, off)


@one_hot.gradient
def _(g: Any, y: Any, x: Any, **_: Any) -> Any:
    return (None,)


@one_hot.spec
def _(x: Spec, *, depth: int, on_value: float, off_value: float, dtype: Any) -> Spec:
    return Spec((*x.shape, depth), dtype)
