"""Operators that read and write elements at positions."""

from __future__ import annotations

from typing import Any

from gemel import np, npx
from gemel.onnx.read.table import imports
from gemel.spec import product


def _counted(places: Any, extent: Any) -> Any:
    """Positions as int64; negative ones count from the end."""
    places = places.astype("int64")
    return np.where(places < 0, places + extent, places)


@imports("Gather")
def _(node: Any, x: Any, indices: Any) -> Any:
    return np.take(x, indices.astype("int64"), axis=node.get("axis", 0))


@imports("GatherElements")
def _(node: Any, x: Any, indices: Any) -> Any:
    axis = node.get("axis", 0) % x.ndim
    key = tuple(slice(0, n) if i != axis else slice(None) for i, n in enumerate(indices.shape))
    return np.take_along_axis(x[key], indices.astype("int64"), axis)


def _lined(count: Any, axis: int, ndim: int) -> Any:
    """0, 1, ... along one axis of an array with `ndim` axes."""
    shape = [1] * ndim
    shape[axis] = count
    return np.reshape(np.arange(count, dtype="int64"), tuple(shape))


@imports("GatherND")
def _(node: Any, x: Any, indices: Any) -> Any:
    batch, depth = node.get("batch_dims", 0), int(indices.shape[-1])
    lead = indices.shape[:-1]
    places = [np.broadcast_to(_lined(x.shape[a], a, len(lead)), lead) for a in range(batch)]
    places += [_counted(indices[..., i], x.shape[batch + i]) for i in range(depth)]
    return npx.gather_nd(x, np.stack(places))


#: How written values combine with existing ones; those in COMBINED are written one at a time.
REDUCTIONS = {"none": npx.index_update, "add": npx.index_add}
COMBINED = {"mul": "multiply", "max": "maximum", "min": "minimum"}


@imports("ScatterND")
def _(node: Any, x: Any, indices: Any, updates: Any) -> Any:
    depth = int(indices.shape[-1])
    rows = np.reshape(indices, (product(indices.shape[:-1]), depth))
    places = np.stack([_counted(rows[:, i], x.shape[i]) for i in range(depth)])
    values = np.reshape(updates, (product(indices.shape[:-1]), *x.shape[depth:]))
    return _written(node, x, places, values)


@imports("ScatterElements", "Scatter")
def _(node: Any, x: Any, indices: Any, updates: Any) -> Any:
    axis, shape = node.get("axis", 0) % x.ndim, indices.shape
    grid = [np.broadcast_to(_lined(n, a, x.ndim), shape) for a, n in enumerate(shape)]
    grid[axis] = _counted(indices, x.shape[axis])
    places = np.stack([np.reshape(each, (product(shape),)) for each in grid])
    return _written(node, x, places, np.reshape(updates, (product(shape),)))


def _written(node: Any, x: Any, places: Any, values: Any) -> Any:
    """x with values written at positions (axes, n)."""
    how = node.get("reduction", "none")
    if how in REDUCTIONS:
        return REDUCTIONS[how](x, places, values)
    found = x.copy()
    getattr(np, COMBINED[how]).at(found, tuple(places), values)
    return found


@imports("TopK", known=(1,))
def _(node: Any, x: Any, k: Any = None) -> Any:
    count, axis = int(node.number(k, "k")), node.get("axis", -1)
    if count == 0:
        key = [slice(None)] * x.ndim
        key[axis] = slice(0, 0)
        return x[tuple(key)], x[tuple(key)].astype("int64")
    return tuple(npx.topk(x, count, axis, "both", is_ascend=not node.get("largest", 1)))


@imports("NonZero")
def _(node: Any, x: Any) -> Any:
    return np.stack(np.nonzero(x)) if x.ndim else np.stack(np.nonzero(np.reshape(x, (1,))))[:0]


@imports("Compress")
def _(node: Any, x: Any, condition: Any) -> Any:
    return np.compress(condition, x, node.get("axis"))


@imports("Unique")
def _(node: Any, x: Any) -> Any:
    found = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=node.get("axis")
    )
    values, first, inverse, counts = found
    if node.get("sorted", 1):
        return values, first, np.reshape(inverse, (-1,)), counts
    order = np.argsort(first)
    rank = np.argsort(order)
    axis = node.get("axis") or 0
    values = np.take(values, order, axis=axis)
    return values, first[order], rank[np.reshape(inverse, (-1,))], counts[order]


@imports("GridSample")
def _(node: Any, x: Any, grid: Any) -> Any:
    """Bilinear or nearest samples of images at positions from -1 to 1 (Jaderberg et al., 2015)."""
    mode, around = node.get("mode", "linear"), node.get("padding_mode", "zeros")
    if x.ndim != 4 or mode not in ("linear", "bilinear", "nearest"):
        raise node.refuse(f"mode {mode!r} over {x.ndim - 2} axes")
    aligned = node.get("align_corners", 0)
    extents = x.shape[3], x.shape[2]

    def unscaled(place: Any, extent: Any) -> Any:
        return (place + 1) / 2 * (extent - 1) if aligned else ((place + 1) * extent - 1) / 2

    across, down = (unscaled(grid[..., i], n) for i, n in enumerate(extents))
    if around == "reflection":
        across, down = (
            _reflected(place, n, aligned) for place, n in zip((across, down), extents, strict=True)
        )
    if around in ("border", "reflection"):
        across, down = np.clip(across, 0, extents[0] - 1), np.clip(down, 0, extents[1] - 1)
    if mode == "nearest":
        return _sampled(x, np.rint(down), np.rint(across))
    left, top = np.floor(across), np.floor(down)
    right, low = np.expand_dims(across - left, 1), np.expand_dims(down - top, 1)
    rows = [
        _sampled(x, top + i, left) * (1 - right) + _sampled(x, top + i, left + 1) * right
        for i in (0, 1)
    ]
    return rows[0] * (1 - low) + rows[1] * low


def _reflected(place: Any, extent: Any, aligned: bool) -> Any:
    """Positions mirrored at the ends of an axis until they are between them. The ends are the
    centres of the first and last pixels if `aligned`, else their outer edges."""
    first, length = (0, extent - 1) if aligned else (-0.5, extent)
    if aligned and extent == 1:
        return place * 0
    return first + length - abs((place - first) % (2 * length) - length)


def _sampled(x: Any, down: Any, across: Any) -> Any:
    """The elements of images (N, C, H, W) at positions (N, h, w); 0 outside."""
    n, c, height, width = x.shape
    inside = (down >= 0) & (down < height) & (across >= 0) & (across < width)
    rows, columns = (np.where(inside, each, 0).astype("int64") for each in (down, across))
    flat = np.reshape(x, (n, c, height * width))
    places = np.reshape(rows * width + columns, (n, 1, product(down.shape[1:])))
    found = np.take_along_axis(flat, np.broadcast_to(places, (n, c, places.shape[2])), 2)
    found = np.reshape(found, (n, c, *down.shape[1:]))
    return np.where(np.expand_dims(inside, 1), found, 0)
