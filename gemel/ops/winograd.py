"""Winograd's scheme: convolution with kernels of 3 x 3 by steps of one in 16 products, not 36.

Lavin and Gray, Fast algorithms for convolutional neural networks, CVPR 2016: F(2 x 2, 3 x 3). The
places of a result are cut into tiles of 2 x 2, each of which sees 4 x 4 elements d of a channel.
With g a kernel, the tile is A' ((G g G') * (B' d B)) A, where the product in the middle, element by
element, is summed over the channels: 16 matrix products, of tiles by channels with channels by
filters. Arrays of one such element for all tiles are called planes here.

Channels lie side by side in all of this: transforms then work on whole vectors, and the planes are
operands of the products as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from gemel.dtype import float32
from gemel.ir.graph import Graph, placeholder
from gemel.ops.elementwise import copy
from gemel.ops.linalg import matmul
from gemel.ops.rounds import loop
from gemel.ops.shape import reshape, transpose
from gemel.ops.windows import bordered, taking_turns, within
from gemel.spec import Spec

#: Elements of a kernel, places of a tile and elements it sees, along an axis.
KERNEL, TILE, SEEN = 3, 2, 4
#: A convolution may be done so: where it pays, never, or wherever it is possible.
AUTO, NEVER, ALWAYS = "auto", "never", "always"
#: Columns of a product that take as long as fewer do.
COLUMNS = 32
#: Bytes of planes that the caches hold beside other things.
PLANES = 4 << 20

Rows = list[Any]


class Sizes(NamedTuple):
    """The sizes of a convolution: images, channels taken and given, and the result's space."""

    images: int
    taken: int
    given: int
    rows: int
    columns: int

    @property
    def tiles(self) -> int:
        """How many tiles an image has."""
        return ((self.rows + 1) // TILE) * ((self.columns + 1) // TILE)

    @property
    def direct(self) -> int:
        """What convolution itself takes, in multiply-adds."""
        places = self.images * self.rows * self.columns
        return KERNEL * KERNEL * self.taken * self.given * places

    @property
    def by_tiles(self) -> int:
        """What the scheme takes, in as many multiply-adds as take that time.

        Its products are shorter than one product of windows, and whole vectors wide. An element of
        a plane, made and read, takes as long as 11 multiply-adds, and as 22 where those of one
        image outgrow the cache; one that is moved between layouts as 16, one of the weights, spread
        over 16 planes, as 50.
        """
        tiles, channels = self.images * self.tiles, self.taken + self.given
        filters = -(-self.given // COLUMNS) * COLUMNS
        products = SEEN * SEEN * self.taken * filters * tiles * 23 // 20
        planes = (11 if self.planes <= 2 * PLANES else 22) * SEEN * SEEN * tiles * channels
        moved = 16 * self.images * self.rows * self.columns * channels
        return products + planes + moved + 50 * KERNEL * KERNEL * self.taken * self.given

    @property
    def planes(self) -> int:
        """Bytes of the planes of one image."""
        return SEEN * SEEN * self.tiles * (self.taken + self.given) * float32.itemsize

    @property
    def pays(self) -> bool:
        """Whether the scheme is chosen by itself: where it saves a tenth by this reckoning."""
        return 10 * self.by_tiles < 9 * self.direct

    @property
    def together(self) -> int:
        """How many images a round takes, a divisor of all: as many as the caches hold the planes
        of, or, as each round reads all weights, as many as have no fewer planes than these.
        """
        weights = SEEN * SEEN * self.taken * self.given * float32.itemsize
        most = max(PLANES, weights) // max(self.planes, 1)
        return max(n for n in range(1, max(most, 1) + 1) if self.images % n == 0)


def possible(moves: Any, groups: int, x: Any, weight: Any) -> bool:
    """Whether a convolution is one of 3 x 3 by steps of one, of float32."""
    alike = x.dtype is weight.dtype is float32 and groups == 1
    ones = moves.stride == moves.dilate == (1, 1)
    return alike and ones and moves.kernel == (KERNEL, KERNEL)


def by_tiles(x: Any, weight: Any, pad: tuple[int, ...]) -> Any:
    """The convolution of images (N, C, H, W) with weights (K, C, 3, 3), bordered by `pad` zeros."""
    shape = tuple(map(int, x.shape))
    rows, columns = (n + 2 * p - (KERNEL - 1) for n, p in zip(shape[2:], pad, strict=True))
    sizes = Sizes(shape[0], shape[1], int(weight.shape[0]), rows, columns)
    factors = of_weights(weight)
    count = sizes.together
    if count == sizes.images:
        return of_images(x, factors, sizes, pad)
    rounds = sizes.images // count
    parts = reshape(x, shape=(rounds, count, *shape[1:]))
    stands = [placeholder(Spec(each.shape, each.dtype)) for each in (parts, *factors)]
    part = placeholder(Spec((count, *shape[1:]), x.dtype))
    found = of_images(part, stands[1:], sizes._replace(images=count), pad)
    step = Graph((part, *stands[1:]), (found,), name="step")
    settings = {"length": rounds, "data": 1, "states": 0, "reverse": False}
    (found,) = loop.apply((parts, *factors), {"step": step, **settings})
    return reshape(found, shape=(sizes.images, sizes.given, rows, columns))


def of_images(x: Any, factors: Rows, sizes: Sizes, pad: tuple[int, ...]) -> Any:
    """The same for images whose planes are all kept, with what `of_weights` gives."""
    space = (sizes.rows, sizes.columns)
    tiles = tuple((n + 1) // TILE for n in space)
    spans = zip(tiles, x.shape[2:], pad, strict=True)
    after = (TILE * t + KERNEL - 1 - n - p for t, n, p in spans)
    x = bordered(transpose(x, axes=(0, 2, 3, 1)), (*pad, 0), (*after, 0))
    # Element i, j of all tiles.
    every = [slice(i, i + TILE * t - 1, TILE) for t in tiles[:1] for i in range(SEEN)]
    each = [slice(i, i + TILE * t - 1, TILE) for t in tiles[1:] for i in range(SEEN)]
    planes = twice(of_tile, [[x[:, a, b] for b in each] for a in every])
    shape = (sizes.images * sizes.tiles, sizes.taken)
    lines = (sizes.images, *tiles, sizes.given)
    products = [
        reshape(matmul(reshape(plane, shape=shape), factor), shape=lines)
        for plane, factor in zip(itertools.chain(*planes), factors, strict=True)
    ]
    ends = twice(of_products, [products[i : i + SEEN] for i in range(0, len(products), SEEN)])
    parts: dict[tuple[int, ...], Any] = {
        (i, j, 0): ends[i][j] for i in range(TILE) for j in range(TILE)
    }
    found = taking_turns(parts, (TILE, TILE, 1))
    found = within(found, (0, 0, 0), (*space, sizes.given))
    return copy(transpose(found, axes=(0, 3, 1, 2)))


def of_weights(weight: Any) -> Rows:
    """The planes of weights (K, C, 3, 3), by rows: 16 of (C, K), as views."""
    # Moved once, as each element is read several times.
    taps = copy(transpose(weight, axes=(2, 3, 0, 1)))
    planes = twice(of_kernel, [[taps[i, j] for j in range(KERNEL)] for i in range(KERNEL)])
    return [transpose(plane, axes=(1, 0)) for plane in itertools.chain(*planes)]


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


def twice(transform: Callable[[Rows], Rows], rows: list[Rows]) -> list[Rows]:
    """A transform of the columns, then of the rows of what it gives."""
    columns = [transform(list(column)) for column in zip(*rows, strict=True)]
    return [transform(list(row)) for row in zip(*columns, strict=True)]
