"""MXNet's operations that move elements: shapes, parts, indexing, sorting."""

from __future__ import annotations

from typing import Any

from gemel import np, npx
from gemel.extent import Dim
from gemel.legacy.declare import IMAGES, Legacy, Written, legacy, same, written
from gemel.ops.padding import per_side
from gemel.spec import wholes


def codes(shape: Any, target: Any, reverse: bool = False) -> tuple[Any, ...]:
    """The shape that MXNet's Reshape codes stand for: 0 keeps an extent, -1 is inferred, -2 keeps
    all remaining extents, -3 joins two, and -4 splits one into the two numbers that follow.
    """
    if reverse:
        return codes(shape[::-1], target[::-1])[::-1]
    found: list[Any] = []
    place, position = 0, 0
    while position < len(target):
        code = target[position]
        position += 1
        if code == 0:
            found.append(shape[place])
        elif code == -2:
            found += shape[place:]
            place = len(shape)
        elif code == -3:
            found.append(shape[place] * shape[place + 1])
            place += 1
        elif code == -4:
            first, second = target[position : position + 2]
            position += 2
            whole = shape[place]
            found.append(whole // second if first == -1 else first)
            found.append(whole // first if second == -1 else second)
        else:
            found.append(code)
        place += 1
    return tuple(found)


@legacy("Reshape", "reshape")
def reshape(data: Any, *, shape: Any = (), reverse: bool = False, **_: Any) -> Any:
    """The same elements in another shape, in which 0, -2, -3 and -4 stand for extents of data's."""
    wanted = (shape,) if isinstance(shape, int) else tuple(shape)
    return np.reshape(data, codes(tuple(data.shape), wanted, reverse))


@legacy("_npx_reshape", "_npi_reshape", "_np_reshape")
def npx_reshape(a: Any, *, newshape: Any, reverse: bool = False, order: str = "C") -> Any:
    """The same elements in another shape, in which negative numbers stand for extents of a's."""
    return npx.reshape(a, newshape, reverse, order)


@written("reshape")
def _(**given: Any) -> Written | None:
    """Only for `npx.reshape`; a call of `np.reshape` is exported as the node it creates."""
    if "reverse" not in given:
        return None
    shape = given["newshape"]
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    settings = {"newshape": shape, "reverse": given["reverse"], "order": given["order"]}
    return Written("_npx_reshape", (given["a"],), settings)


@legacy("Flatten", "flatten", "_npx_batch_flatten", "_npi_batch_flatten")
def flatten(data: Any) -> Any:
    """Each example flattened to one row."""
    return npx.batch_flatten(data)


@written("batch_flatten")
def _(data: Any) -> Written:
    return Written("Flatten", (data,), {})


@legacy("transpose", "_np_transpose", "_npi_transpose")
def transpose(data: Any, *, axes: Any = None) -> Any:
    """The axes in another order, reversed by default."""
    return np.transpose(data, axes if axes else None)


@legacy("SwapAxis", "swapaxes", "_npi_swapaxes")
def swap_axis(data: Any, *, dim1: int = 0, dim2: int = 0) -> Any:
    """Two axes exchanged."""
    return np.swapaxes(data, dim1, dim2)


@written("swapaxes")
def _(a: Any, axis1: int, axis2: int) -> Written:
    return Written("SwapAxis", (a,), {"dim1": axis1, "dim2": axis2})


@legacy("expand_dims", "_npi_expand_dims")
def expand_dims(data: Any, *, axis: int) -> Any:
    """An additional axis of length 1."""
    return np.expand_dims(data, axis)


@written("expand_dims")
def _(**given: Any) -> Written | None:
    x, axis = given.values()
    return Written("expand_dims", (x,), {"axis": axis}) if isinstance(axis, int) else None


@legacy("squeeze", "_np_squeeze", "_npi_squeeze")
def squeeze(data: Any, *, axis: Any = None) -> Any:
    """The array without axes of length 1."""
    return np.squeeze(data, axis)


@written("squeeze")
def _(a: Any, axis: Any) -> Written:
    return Written("_np_squeeze", (a,), {} if axis is None else {"axis": axis})


def _with_an_axis(data: tuple[Any, ...]) -> list[Any]:
    # MXNet 1's sums and single elements have one axis, gemel's have none; programs join them.
    return [x if getattr(x, "ndim", 1) else x.reshape((1,)) for x in data]


@legacy("Concat", "concat")
def concat(*data: Any, dim: int = 1, axis: int | None = None) -> Any:
    """Arrays joined along an axis; a 0-d array counts as one element."""
    return np.concatenate(_with_an_axis(data), axis=dim if axis is None else axis)


@legacy("_npi_concatenate", "concatenate")
def npi_concatenate(*data: Any, axis: int | None = 0, dim: int | None = None) -> Any:
    """Arrays joined along an axis."""
    return np.concatenate(_with_an_axis(data), axis=axis if dim is None else dim)


@legacy("stack", "_npi_stack")
def stack(*data: Any, axis: int = 0) -> Any:
    """Arrays stacked along a new axis."""
    return np.stack(list(data), axis=axis)


@written("stack")
def _(arrays: Any, axis: int, **_: Any) -> Written:
    return Written("_npi_stack", tuple(arrays), {"axis": axis, "num_args": len(arrays)})


@legacy("SliceChannel", "split", inputs=1, outputs=lambda settings: settings["num_outputs"])
def slice_channel(data: Any, num_outputs: int, axis: int = 1, squeeze_axis: bool = False) -> Any:
    """`num_outputs` equal parts along an axis: a list, or the part itself if there is only one."""
    parts = np.split(data, num_outputs, axis=axis)
    found = [np.squeeze(part, axis) for part in parts] if squeeze_axis else list(parts)
    return found if len(found) > 1 else found[0]


def _parts(settings: dict[str, Any]) -> int:
    indices = settings["indices"]
    inside = indices[1:] if indices and indices[0] == 0 else indices
    return settings.get("sections") or len(inside) + 1


@legacy("_split_v2", "_npi_split", inputs=1, outputs=_parts)
def split_v2(
    data: Any, indices: Any = (), axis: int = 1, squeeze_axis: bool = False, sections: int = 0
) -> Any:
    """Parts along an axis: `sections` equal ones, or those that begin at `indices`."""
    where = sections or [place for i, place in enumerate(indices) if place or i]
    parts = np.split(data, where, axis=axis)
    return [np.squeeze(part, axis) for part in parts] if squeeze_axis else list(parts)


class _Split(Legacy):
    """`split_v2` as programs call it: along axis 0, with one setting for cuts or a number."""

    def checked(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The settings of `_split_v2`."""
        found = {"axis": 0, **super().checked(settings)}
        where = found.pop("indices_or_sections", None)
        if isinstance(where, int):
            found.update(indices=(), sections=where)
        elif where is not None:
            found.update(indices=(0, *where))
        return found


_split = _Split(split_v2.function, ("split_v2",), inputs=1, outputs=_parts)
_split.name, _split.inputs = "_split_v2", ("ary",)
_split.settings = ("indices_or_sections", "axis", "squeeze_axis", "indices", "sections")


@written("split")
def _(ary: Any, indices_or_sections: Any, axis: int) -> Written | None:
    if isinstance(indices_or_sections, Dim):
        return None  # a free extent: the operations that make the parts are exported instead
    if isinstance(indices_or_sections, int):
        count, indices = indices_or_sections, ()
    else:
        indices = tuple(indices_or_sections)
        count = len(indices) + 1
    settings = {
        "indices": (0, *indices),
        "axis": axis,
        "sections": 0 if indices else count,
        "squeeze_axis": False,
    }
    return Written("_split_v2", (ary,), settings, count)


@legacy("slice", "crop", "_npx_slice", "_npi_slice")
def slice(data: Any, *, begin: Any, end: Any, step: Any = ()) -> Any:
    """data[begin:end:step], axis by axis."""
    return npx.slice(data, begin, end, step or None)


@legacy("slice_axis", "_npx_slice_axis")
def slice_axis(data: Any, *, axis: int, begin: int, end: int | None) -> Any:
    """data[begin:end] along one axis."""
    return npx.slice_axis(data, axis, begin, end)


@written("slice_axis")
def _(data: Any, axis: int, begin: int, end: int | None) -> Written:
    return Written("slice_axis", (data,), {"axis": axis, "begin": begin, "end": end})


same(npx.slice_like, "slice_like", inputs=2)
same(npx.reshape_like, "reshape_like", "_npx_reshape_like", inputs=2)
same(npx.broadcast_like, "broadcast_like", "_npx_broadcast_like", inputs=2)
same(npx.gather_nd, "gather_nd", "_npx_gather_nd", "_npi_gather_nd")
same(npx.scatter_nd, "scatter_nd", inputs=2)
same(npx.pick, "pick", "_npx_pick", "choose_element_0index", inputs=2)
same(npx.arange_like, "_contrib_arange_like", "_npx_arange_like", inputs=1)
same(npx.shape_array, "shape_array", "_npx_shape_array")
same(np.tile, "tile", "_npi_tile", inputs=1)
same(np.repeat, "repeat", "_np_repeat", "_npi_repeat", inputs=1)
same(npx.batch_take, "batch_take")


@written("tile")
def _(A: Any, reps: Any) -> Written:  # noqa: N803 -- NumPy's name
    return Written("tile", (A,), {"reps": (reps,) if isinstance(reps, (int, Dim)) else tuple(reps)})


@legacy("broadcast_to")
def broadcast_to(data: Any, *, shape: Any) -> Any:
    """data broadcast to a shape, in which 0 keeps an extent."""
    return np.broadcast_to(data, codes(tuple(data.shape), tuple(shape)))


@legacy("_npi_broadcast_to")
def npi_broadcast_to(array: Any, *, shape: Any) -> Any:
    """array broadcast to a shape, in which -2 keeps an extent."""
    lead = len(shape) - len(array.shape)
    kept = [array.shape[i - lead] if n == -2 else n for i, n in enumerate(shape)]
    return np.broadcast_to(array, tuple(kept))


@legacy("broadcast_axis", "broadcast_axes")
def broadcast_axis(data: Any, *, axis: Any = (), size: Any = ()) -> Any:
    """data broadcast along axes of length 1."""
    axes = (axis,) if isinstance(axis, int) else axis
    sizes = (size,) if isinstance(size, int) else size
    wanted = dict(zip(axes, sizes, strict=True))
    return np.broadcast_to(data, tuple(wanted.get(i, n) for i, n in enumerate(data.shape)))


@legacy("Pad", "pad")
def pad(data: Any, *, mode: str, pad_width: Any, constant_value: float = 0.0) -> Any:
    """data with a border; `pad_width` has two numbers for each axis."""
    ends = wholes("Pad", "pad_width", pad_width)
    pairs = [ends[i : i + 2] for i in range(0, len(ends), 2)]
    return _padded(data, pairs, mode, constant_value)


def _padded(data: Any, pairs: Any, mode: str, value: float) -> Any:
    if mode == "constant":
        return np.pad(data, pairs, mode, constant_values=value)
    return np.pad(data, pairs, mode)


@legacy("_npi_pad")
def npi_pad(
    data: Any,
    *,
    pad_width: Any,
    mode: str = "constant",
    constant_value: float = 0.0,
    reflect_type: str = "even",
) -> Any:
    """data with a border; `pad_width` has a pair for each axis."""
    return _padded(data, [tuple(pair) for pair in pad_width], mode, constant_value)


@written("pad")
def _(array: Any, pad_width: Any, mode: Any, constant_values: Any, **_: Any) -> Written | None:
    pairs = per_side("pad", "pad_width", pad_width, len(array.shape))
    if mode not in ("constant", "edge", "reflect") or not isinstance(constant_values, (int, float)):
        return None
    settings: dict[str, Any] = {"pad_width": pairs, "mode": mode}
    if mode == "constant":
        settings["constant_value"] = constant_values
    return Written("_npi_pad", (array,), settings)


@legacy("reverse", "flip", "_npi_flip")
def reverse(data: Any, *, axis: Any) -> Any:
    """The elements in reverse order along axes."""
    return np.flip(data, axis)


@written("flip")
def _(m: Any, axis: Any) -> Written:
    every = tuple(range(len(m.shape)))
    axes = every if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    return Written("_npi_flip", (m,), {"axis": axes})


@written("pick")
def _(data: Any, index: Any, axis: int, mode: str, keepdims: bool) -> Written:
    settings = {"axis": axis, "mode": "clip" if mode == "raise" else mode, "keepdims": keepdims}
    return Written("pick", (data, index), settings)


@legacy("take", "_npi_take", axes={"indices": "..."})
def take(a: Any, indices: Any, *, axis: int = 0, mode: str = "clip") -> Any:
    """The parts of a at these indices along an axis."""
    found = np.take(a, _whole(indices), axis=axis, mode=mode)
    return found


def _whole(indices: Any) -> Any:
    """Indices as integers; MXNet's files may have floating ones."""
    return indices.astype("int64") if indices.dtype.is_floating else indices


@written("take")
def _(a: Any, indices: Any, axis: Any, mode: str, **_: Any) -> Written | None:
    if axis is None or not hasattr(indices, "shape"):
        return None
    return Written(
        "take", (a, indices), {"axis": axis, "mode": "wrap" if mode == "raise" else mode}
    )


@legacy("one_hot", "_npx_one_hot")
def one_hot(
    indices: Any,
    *,
    depth: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    dtype: Any = "float32",
) -> Any:
    """For each number a row that has `on_value` at its position and `off_value` elsewhere."""
    return npx.one_hot(indices, depth, on_value, off_value, dtype)


@written("one_hot")
def _(**given: Any) -> Written:
    indices = next(iter(given.values()))
    settings = {name: given[name] for name in ("depth", "on_value", "off_value", "dtype")}
    return Written("one_hot", (indices,), settings)


@legacy("where", axes={"condition": "...", "x": "..."})
def where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y; each element of a condition vector chooses a row."""
    if len(condition.shape) == 1 < len(x.shape):
        condition = condition.reshape(-1, *[1] * (len(x.shape) - 1))
    return np.where(condition, x, y)


@legacy("_npi_where")
def np_where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y; shapes broadcast."""
    return np.where(condition, x, y)


@legacy("topk", "_npx_topk", inputs=1, outputs=lambda settings: 1 + (settings["ret_typ"] == "both"))
def topk(
    data: Any,
    axis: int | None = -1,
    k: int = 1,
    ret_typ: str = "indices",
    is_ascend: bool = False,
    dtype: Any = "float32",
) -> Any:
    """The k largest elements along an axis, or their positions."""
    return npx.topk(data, k, axis, ret_typ, is_ascend, dtype)


@written("topk")
def _(data: Any, **given: Any) -> Written:
    return Written("topk", (data,), given, 2 if given["ret_typ"] == "both" else 1)


@legacy("sort", "_npi_sort", outputs=2, visible=1)
def sort(data: Any, *, axis: int | None = -1, is_ascend: bool = True) -> Any:
    """The elements sorted along an axis."""
    found = np.sort(data, axis)
    return found if is_ascend else np.flip(found, -1 if axis is None else axis)


@legacy("argsort", "_npi_argsort")
def argsort(
    data: Any, *, axis: int | None = -1, is_ascend: bool = True, dtype: Any = "float32"
) -> Any:
    """The positions that sort the elements along an axis."""
    return np.argsort(data, axis=axis, descending=not is_ascend).astype(dtype)


@legacy("depth_to_space", axes={"data": IMAGES})
def depth_to_space(data: Any, *, block_size: int) -> Any:
    """Channels moved into spatial blocks: (N, C, H, W) -> (N, C / b**2, H * b, W * b)."""
    n, c, h, w = data.shape
    b = block_size
    x = np.transpose(np.reshape(data, (n, b, b, c // (b * b), h, w)), (0, 3, 4, 1, 5, 2))
    return np.reshape(x, (n, c // (b * b), h * b, w * b))


@legacy("space_to_depth", axes={"data": IMAGES})
def space_to_depth(data: Any, *, block_size: int) -> Any:
    """Spatial blocks moved into channels, the inverse of `depth_to_space`."""
    n, c, h, w = data.shape
    b = block_size
    x = np.transpose(np.reshape(data, (n, c, h // b, b, w // b, b)), (0, 3, 5, 1, 2, 4))
    return np.reshape(x, (n, c * b * b, h // b, w // b))
