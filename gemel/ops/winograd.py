"""Winograd's scheme: convolution with 3 x 3 kernels and strides of one in 16 products, not 36.

Lavin and Gray, Fast algorithms for convolutional neural networks, CVPR 2016: F(2 x 2, 3 x 3). The
result is cut into tiles of 2 x 2, each of which sees 4 x 4 elements d of a channel. With a kernel
g, the tile is A' ((G g G') * (B' d B)) A. The product in the middle is elementwise and summed over
the channels: 16 matrix products of (tiles, channels) with (channels, filters). An array that holds
one of these 16 elements for all tiles is called a plane here.

Channels are contiguous throughout. So transforms work on whole vectors, and the planes are operands
of the products as they are.

The gradient of the weights is the transpose of all this in g: G' ((B' d B) (A r A')) G, for the
gradient r of a tile, summed over the tiles of all images. The sums are again 16 products, of
(filters, tiles) with (tiles, channels).

A volume is an image whose elements are the channels of all its planes, those of a plane side by
side. The transforms are those of images. As many planes as the kernel sees at a time lie side by
side, too: in the products, they are channels (`multiplied`).

The transpose of such a convolution is one with the channels exchanged and the kernels reversed. As
the transform G treats both ends of a kernel alike, reversing only exchanges planes (`REVERSED`). So
the planes of the weights serve both directions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from gemel.dtype import float32
from gemel.errors import ShapeError
from gemel.ir.declare import op
from gemel.ir.layout import Layout
from gemel.ir.reference import numpy
from gemel.ir.rules import Emitter
from gemel.ops.elementwise import cast, copy, full
from gemel.ops.linalg import matmul
from gemel.ops.rounds import repeated
from gemel.ops.shape import reshape, swapaxes, transpose
from gemel.ops.windows import Moves, bordered_last, taking_turns, windows, within
from gemel.ops.winograd_costs import KERNEL, MOST_PLACES, SEEN, TILE, Sizes
from gemel.spec import Spec, product, promote_specs, same_shape

#: Where the elements of a transformed kernel are in that of the reversed kernel, along an axis.
REVERSED = (3, 1, 2, 0)
#: When to use the scheme: where it pays off, never, or wherever it is possible.
AUTO, NEVER, ALWAYS = "auto", "never", "always"

Rows = list[Any]


def possible(moves: Any, groups: int, x: Any, weight: Any) -> bool:
    """Whether a convolution has a 3 x 3 kernel, of several planes or for images, strides of one,
    one group, and float32."""
    alike = x.dtype is weight.dtype is float32 and groups == 1
    ones = moves.stride == moves.dilate == moves.ones
    places = moves.kernel[:-2]
    deep = len(places) == 1 and 1 < places[0] <= MOST_PLACES and 0 not in (*x.shape, *weight.shape)
    return alike and ones and (deep or not places) and moves.kernel[-2:] == (KERNEL, KERNEL)


def by_tiles(x: Any, weight: Any, pad: tuple[int, ...], turned: bool) -> Any:
    """The convolution of images (N, C, H, W) with weights (K, C, 3, 3), bordered by `pad` zeros; of
    volumes (N, C, D, H, W) with weights (K, C, places, 3, 3).

    If `turned`, the channels of the weights (C, K, 3, 3) are exchanged, and their kernels reversed.
    """
    sizes = sizes_of(x, weight.shape, pad, turned)
    factors, count = factors_of(weight, turned), sizes.together
    if count == sizes.images:
        return of_images(x, factors, sizes, pad)
    parts = reshape(x, shape=(sizes.images // count, count, *x.shape[1:]))
    each = sizes._replace(images=count)
    found = in_rounds(lambda part, given: of_images(part, given[0], each, pad), parts, [factors])
    return reshape(found, shape=(sizes.images, *found.shape[2:]))


def sizes_of(x: Any, shape: Any, pad: tuple[int, ...], turned: bool = False) -> Sizes:
    """The sizes of a convolution with weights of this shape: a kernel of 3 x 3, or of 3 x 3 in
    several planes."""
    images, taken, *space = map(int, x.shape)
    *deep, rows, columns = (n + 2 * p for n, p in zip(space, pad, strict=True))
    given, rest = int(shape[1 if turned else 0]), KERNEL - 1
    found = Sizes(images, taken, given, rows - rest, columns - rest, turned)
    return found._replace(deep=deep[0], places=int(shape[2])) if deep else found


def factors_of(weight: Any, turned: bool) -> Any:
    """The planes of the weights as the second factor: (16, [places] * C, K)."""
    if weight.ndim == 4:
        planes = of_weights(weight)
    elif turned:
        planes = of_weights(joined(weight[:, :, ::-1], (2, 0, 1, 3, 4), 0))
    else:
        planes = of_weights(joined(weight, (0, 2, 1, 3, 4), 1))
    return planes if turned else transpose(planes, axes=(0, 2, 1))


def joined(x: Any, axes: tuple[int, ...], axis: int) -> Any:
    """x with its axes in this order, of which `axis` and the next then become one."""
    shape = [x.shape[each] for each in axes]
    shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
    return reshape(transpose(x, axes=axes), shape=tuple(shape))


def in_rounds(body: Callable[[Any, Rows], Any], data: Any, factors: Rows) -> Any:
    """The results of `body` for each element of the first axis, in a loop, stacked."""
    (found,), _ = repeated(
        lambda parts, _, given: ([body(parts[0], given)], []), [data], (), factors
    )
    return found


def of_images(x: Any, factors: Any, sizes: Sizes, pad: tuple[int, ...]) -> Any:
    """`by_tiles` for the images of one round, with the planes of the weights: (16, C, K)."""
    tiles = tuple((n + 1) // TILE for n in (sizes.rows, sizes.columns))
    found = in_strips(with_border(x, pad, tiles), factors, sizes, tiles)
    found = within(found, (0, 0, 0), (sizes.rows, sizes.columns, sizes.lines * sizes.given))
    if x.ndim == 4:
        return copy(transpose(found, axes=(0, 3, 1, 2)))
    found = reshape(found, shape=(*found.shape[:3], sizes.lines, sizes.given))
    return copy(transpose(found, axes=(0, 4, 3, 1, 2)))


def with_border(x: Any, pad: tuple[int, ...], tiles: tuple[int, ...]) -> Any:
    """Images with `pad` zeros before, and after as many as whole tiles see: (N, H, W, C). Channels
    must be contiguous for the transforms, with or without a border. Of volumes, the channels of
    all planes: (N, H, W, D * C).
    """
    *deep, high, wide = pad
    spans = zip(tiles, map(int, x.shape[-2:]), (high, wide), strict=True)
    after = [TILE * t + KERNEL - 1 - n - p for t, n, p in spans]
    most = [p + TILE - 1 for p in (high, wide)]
    return planes_last(x, (high, wide, *deep), (*after, *deep), (*most, *deep))


def planes_last(x: Any, before: Any, after: Any, most: Any) -> Any:
    """`bordered_last`; of volumes (N, C, D, H, W), whose border is given for (H, W, D), with the
    channels of all planes as one axis: (N, H, W, D * C)."""
    if x.ndim == 4:
        return bordered_last(x, before, after, most)
    found = bordered_last(transpose(x, axes=(0, 1, 3, 4, 2)), before, after, most)
    return reshape(found, shape=(*found.shape[:3], found.shape[3] * found.shape[4]))


def in_strips(x: Any, factors: Any, sizes: Sizes, tiles: tuple[int, ...]) -> Any:
    """`of_tiles` strip by strip. Each strip reads two rows more than it computes."""
    if sizes.strips == 1:
        return of_tiles(x, factors, sizes, tiles)
    high = tiles[0] // sizes.strips
    seen, shape = strips_of(x, high), (high, tiles[1])
    found = in_rounds(lambda part, given: of_tiles(part, given[0], sizes, shape), seen, [factors])
    return reshape(found, shape=(1, TILE * tiles[0], *found.shape[3:]))


def strips_of(x: Any, high: int) -> Any:
    """An image (1, H, W, C) in strips of `high` rows of tiles: a view (strips, 1, rows, W, C)."""
    moves = Moves((TILE * high + KERNEL - 1,), (TILE * high,), (1,))
    seen = windows(transpose(x, axes=(0, 2, 3, 1)), **moves._asdict())
    return transpose(seen, axes=(4, 0, 3, 1, 2))


def of_tiles(x: Any, factors: Any, sizes: Sizes, tiles: tuple[int, ...]) -> Any:
    """The result (N, *places, K) of all tiles of images (N, H, W, C) with borders."""
    planes = ordered(twice(of_tile, elements(x, tiles, SEEN)), sizes)
    found = multiplied(side_by_side(planes), factors, sizes)
    found = reshape(found, shape=(SEEN, SEEN, sizes.images, *tiles, found.shape[2]))
    products = [[found[i, j] for j in range(SEEN)] for i in range(SEEN)]
    ends = twice(of_products, ordered(products, sizes))
    parts: dict[tuple[int, ...], Any] = {
        (i, j, 0): ends[i][j] for i in range(TILE) for j in range(TILE)
    }
    return taking_turns(parts, (TILE, TILE, 1))


def multiplied(planes: Any, factors: Any, sizes: Sizes) -> Any:
    """The planes (16, tiles, C) times those of the weights: (16, tiles, K).

    The planes of a volume are lines of D elements with C channels each. As many neighbours as the
    kernel has places lie side by side, so they are the rows of the first factor. Those that begin
    in one line and end in the next give nothing of use.
    """
    if sizes.places == 1:
        return matmul(planes, factors)
    found = matmul(overlapping(planes, sizes.places * sizes.taken, sizes.taken), factors)
    return overlapping(found, sizes.lines * sizes.given, sizes.deep * sizes.given)


def overlapping(x: Any, length: int, step: int) -> Any:
    """Arrays (16, ...) as rows of `length` elements, which begin every `step`: a view."""
    flat = reshape(x, shape=(x.shape[0], product(x.shape[1:])))
    return swapaxes(windows(flat, kernel=(length,), stride=(step,), dilate=(1,)), 1, 2)


def elements(x: Any, tiles: tuple[int, ...], count: int) -> list[Rows]:
    """Element (i, j) of all tiles of images (N, H, W, C), for i and j below `count`, as views."""
    rows, columns = ([slice(i, i + TILE * t - 1, TILE) for i in range(count)] for t in tiles)
    return [[x[:, a, b] for b in columns] for a in rows]


def side_by_side(planes: list[Rows]) -> Any:
    """Planes (N, *tiles, C) as the operand of a product: (16, N * tiles, C)."""
    together = planes_of(*itertools.chain(*planes))
    shape = together.shape
    return reshape(together, shape=(SEEN * SEEN, product(shape[1:-1]), shape[-1]))


def ordered(planes: list[Rows], sizes: Sizes) -> list[Rows]:
    """Planes by rows and columns in the order of the weights' planes, or these put back in order:
    exchanging twice changes nothing.
    """
    return [[planes[i][j] for j in REVERSED] for i in REVERSED] if sizes.turned else planes


def of_weights(weight: Any) -> Any:
    """The planes of weights (K, C, 3, 3), by rows: (16, K, C)."""
    # Copied once, as each element is read several times.
    taps = copy(transpose(weight, axes=(2, 3, 0, 1)))
    planes = twice(of_kernel, [[taps[i, j] for j in range(KERNEL)] for i in range(KERNEL)])
    return planes_of(*itertools.chain(*planes))


# --- the gradient of the weights ------------------------------------------------------------


def weights_by_tiles(x: Any, y: Any, pad: tuple[int, ...]) -> Any:
    """The gradient of the weights (K, C, 3, 3): of images (N, C, H, W) bordered by `pad` zeros, and
    for the gradient y (N, K, *S) of the result. Of volumes, (K, C, places, 3, 3).
    """
    sizes = sizes_of(x, shape_of_weights(x, y, pad), pad)
    count = sizes.together
    start = SEEN * SEEN, sizes.given, sizes.places * sizes.taken
    total = full(0, shape=start, dtype=x.dtype.accumulate.name)
    if count == sizes.images:
        total = with_images(total, x, y, sizes, pad)
    else:
        each, lead = sizes._replace(images=count), (sizes.images // count, count)
        x, y = (reshape(part, shape=(*lead, *part.shape[1:])) for part in (x, y))
        total = summed(lambda total, x, y: with_images(total, x, y, each, pad), total, x, y)
    planes = [[total[SEEN * i + j] for j in range(SEEN)] for i in range(SEEN)]
    taps = planes_of(*itertools.chain(*twice(to_kernel, planes)))
    taps = copy(transpose(cast(taps, dtype=x.dtype), axes=(1, 2, 0)))
    if len(pad) == 2:
        return reshape(taps, shape=(sizes.given, sizes.taken, KERNEL, KERNEL))
    taps = reshape(taps, shape=(sizes.given, sizes.places, sizes.taken, KERNEL, KERNEL))
    return swapaxes(taps, 1, 2)


def shape_of_weights(x: Any, y: Any, pad: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the weights that make a result like y of images like x."""
    spans = zip(x.shape[2:], pad, y.shape[2:], strict=True)
    places = [KERNEL] * len(pad)
    places[:-2] = [n + 2 * p - count + 1 for n, p, count in spans][:-2]
    return (y.shape[1], x.shape[1], *places)


def summed(body: Callable[[Any, Any, Any], Any], total: Any, x: Any, y: Any) -> Any:
    """The total after `body` has added to it, for each element of the first axes, in a loop."""
    _, (found,) = repeated(
        lambda pair, sums, _: ([], [body(sums[0], pair[0], pair[1])]), [x, y], [total]
    )
    return found


def with_images(total: Any, x: Any, y: Any, sizes: Sizes, pad: tuple[int, ...]) -> Any:
    """The total with the sums over the tiles of the images of one round: (16, K, C)."""
    high, wide = ((n + 1) // TILE for n in (sizes.rows, sizes.columns))
    x, y = of_pair(x, y, pad, (high, wide), sizes.places - 1)
    if sizes.strips == 1:
        return total + sums_of(x, y, (high, wide), sizes)
    high //= sizes.strips
    x, y = strips_of(x, high), reshape(y, shape=(sizes.strips, 1, TILE * high, *y.shape[2:]))
    return summed(lambda total, x, y: total + sums_of(x, y, (high, wide), sizes), total, x, y)


def of_pair(
    x: Any, y: Any, pad: tuple[int, ...], tiles: tuple[int, ...], more: int
) -> tuple[Any, Any]:
    """Images with their borders, and the result's gradient in whole tiles: (N, H, W, channels). The
    gradient of volumes has so many `more` planes of zeros, so both have equally many."""
    rest = [TILE * t - n for t, n in zip(tiles, map(int, y.shape[-2:]), strict=True)]
    before, deep = (0,) * len(pad), [more] * (len(pad) - 2)
    most = (TILE - 1, TILE - 1, *deep)
    return with_border(x, pad, tiles), planes_last(y, before, (*rest, *deep), most)


def sums_of(x: Any, y: Any, tiles: tuple[int, ...], sizes: Sizes) -> Any:
    """The sums over all tiles of the results of `of_pair`: (16, K, [places] * C)."""
    seen = side_by_side(twice(of_tile, elements(x, tiles, SEEN)))
    spread = side_by_side(twice(from_products, elements(y, tiles, TILE)))
    if sizes.places > 1:
        seen = overlapping(seen, sizes.places * sizes.taken, sizes.taken)
        spread = overlapping(spread, sizes.given, sizes.given)[:, : seen.shape[1]]
    return matmul(swapaxes(spread, -1, -2), seen)


# --- weights of the transpose ---------------------------------------------------------------


def exchanged(weight: Any) -> Any:
    """Weights (K, C, 3, 3) as those of the transposed convolution: (C, K, 3, 3), as a view."""
    axes = weight.ndim - 2
    key = (..., *[slice(None, None, -1)] * axes)
    turned = weight[key]
    return transpose(turned, axes=(1, 0, *range(2, 2 + axes)))


# --- stacking planes ------------------------------------------------------------------------


@op(moves=-1)
def planes_of(*parts: Any) -> Any:
    """Arrays of one shape stacked along a new first axis: the batch of a product.

    A plan computes each directly in its place in the result.
    """
    return numpy().stack(parts)


@planes_of.spec
def _(*parts: Spec) -> Spec:
    if not parts or any(not same_shape(part.shape, parts[0].shape) for part in parts):
        raise ShapeError(f"planes_of: {list(parts)} must be arrays of the same shape")
    return Spec((len(parts), *parts[0].shape), promote_specs(*parts))


@planes_of.pieces
def _(layout: Layout, *parts: Spec) -> Iterator[tuple[Layout, int]]:
    for number in range(len(parts)):
        offset = layout.offset + number * layout.strides[0]
        yield Layout(layout.shape[1:], layout.strides[1:], offset), number


@planes_of.lower
def _(emit: Emitter, outputs: Any, inputs: Any) -> None:
    emit.gather(outputs[0], inputs)


@planes_of.holomorphic
def _(g: Any, y: Any, *parts: Any) -> Any:
    return [g[number] for number in range(len(parts))]


# --- the transforms, along one axis ---------------------------------------------------------


def of_tile(d: Rows) -> Rows:
    """B' d."""
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def of_kernel(g: Rows) -> Rows:
    """G g."""
    ends = g[0] + g[2]
    return [g[0], (ends + g[1]) * 0.5, (ends - g[1]) * 0.5, g[2]]


def of_products(m: Rows) -> Rows:
    """A' m."""
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def from_products(r: Rows) -> Rows:
    """A r."""
    return [r[0], r[0] + r[1], r[0] - r[1], -r[1]]


def to_kernel(m: Rows) -> Rows:
    """G' m."""
    ends, middle = (m[1] + m[2]) * 0.5, (m[1] - m[2]) * 0.5
    return [m[0] + ends, middle, m[3] + ends]


def twice(transform: Callable[[Rows], Rows], rows: list[Rows]) -> list[Rows]:
    """A transform of the columns, then of the rows of the result."""
    columns = [transform(list(column)) for column in zip(*rows, strict=True)]
    return [transform(list(row)) for row in zip(*columns, strict=True)]
