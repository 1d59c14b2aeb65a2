"""When Winograd's scheme pays for a convolution, and in how many rounds: from sizes alone.

Measured for images and, as the second number of pairs, for volumes.
"""

from __future__ import annotations

from typing import NamedTuple

from gemel.config import explain
from gemel.dtype import float32
from gemel.extent import seen

#: Elements of a kernel, elements of a tile, and elements that a tile sees, along an axis.
KERNEL, TILE, SEEN = 3, 2, 4
#: A product with fewer columns than this takes as long.
COLUMNS = 32, 16
#: What a weight of a kernel costs, in multiply-adds, and the columns that direct gradients of
#: weights take as much time for besides their own.
WEIGHT, FEW = (30, 60), (20, 6)
#: The most planes of a kernel for volumes, and the tenths by which sums of convolutions take longer
#: than one of the same size.
MOST_PLACES, SUMMED = 7, 14
#: Bytes of planes that fit in the caches besides other data.
PLANES = 4 << 20


class Sizes(NamedTuple):
    """The sizes of a convolution: images, input and output channels, and the size of the result.
    `turned` says that it uses the weights of its transpose.

    A volume is an image whose elements are the channels of all its planes. It has `deep` planes,
    including the border, and the kernel sees `places` planes at a time.
    """

    images: int
    taken: int
    given: int
    rows: int
    columns: int
    turned: bool = False
    deep: int = 1
    places: int = 1

    @property
    def tiles(self) -> int:
        """How many tiles a plane has."""
        return ((self.rows + 1) // TILE) * ((self.columns + 1) // TILE)

    @property
    def lines(self) -> int:
        """How many planes a result has."""
        return self.deep - self.places + 1

    @property
    def direct(self) -> int:
        """The cost of the direct convolution, in multiply-adds; one of volumes is a sum."""
        places = self.images * self.lines * self.rows * self.columns
        alone = KERNEL * KERNEL * self.places * self.taken * self.given * places
        return alone if self.places == 1 else alone * SUMMED // 10

    @property
    def by_tiles(self) -> int:
        """The cost of the scheme, in multiply-adds that take the same time.

        Its products are shorter than one product of windows, and their columns fill whole vectors.
        Computing and reading an element of a plane costs as much as 11 multiply-adds, moving an
        element between layouts 16. A weight, spread over 16 planes, costs 50 (100 of volumes), or
        nothing if the planes are kept between calls; the estimate is in between.
        """
        images, channels = self.images * self.deep, self.taken + self.given
        tiles, weights = images * self.tiles, self.places * self.taken
        columns = COLUMNS[self.places > 1]
        filters = -(-self.given // columns) * columns
        products = SEEN * SEEN * weights * filters * tiles * 23 // 20
        moved = 16 * images * self.rows * self.columns + 11 * SEEN * SEEN * tiles
        weights *= WEIGHT[self.places > 1] * KERNEL * KERNEL * self.given
        return products + moved * channels + weights

    @property
    def direct_weights(self) -> int:
        """The cost of the direct gradient of the weights, whose products have few columns."""
        places = self.images * self.lines * self.rows * self.columns
        columns = self.places * (self.taken + FEW[self.places > 1])
        return KERNEL * KERNEL * columns * self.given * places

    @property
    def tiled_weights(self) -> int:
        """The cost of their gradient by the scheme. An element of a plane costs 16 multiply-adds, a
        sum 20 in each further round, and 32 on the way to the weights.
        """
        tiles, rounds = self.images * self.deep * self.tiles, self.images // self.together
        rounds *= self._replace(images=self.together).strips
        taken = self.places * self.taken
        columns = -(-taken // COLUMNS[0]) * COLUMNS[0]
        products = self.given * columns * tiles
        planes = 16 * tiles * (self.taken + self.given)
        sums = (20 * rounds + 12) * taken * self.given
        return SEEN * SEEN * (products + planes + sums)

    @property
    def weights_pay(self) -> bool:
        """Whether `AUTO` chooses the scheme for the gradient of the weights."""
        return 10 * self.tiled_weights < 9 * self.direct_weights

    @property
    def planes(self) -> int:
        """Bytes of the planes of one image."""
        channels = self.deep * (self.taken + self.given)
        return SEEN * SEEN * self.tiles * channels * float32.itemsize

    @property
    def pays(self) -> bool:
        """Whether `AUTO` chooses the scheme: if this estimate saves a tenth."""
        explain(self._estimates)
        return 10 * self.by_tiles < 9 * self.direct

    def _estimates(self) -> str:
        """What `pays` compares, for people to read."""
        names = ("images", "taken", "given", "rows", "columns", "direct", "by_tiles")
        images, taken, given, high, wide, direct, tiled = (seen(getattr(self, n)) for n in names)
        of = f"{images} x {taken} channels to {given} of {high} x {wide}"
        return f"3 x 3 windows, {of}: {direct} multiply-adds directly, as long as {tiled} in tiles"

    @property
    def most(self) -> int:
        """Bytes of planes in a round: as many as fit in the caches, or, since each round reads all
        weights, as many as the weights have.
        """
        weights = self.places * self.taken * self.given
        return max(PLANES, SEEN * SEEN * weights * float32.itemsize)

    @property
    def together(self) -> int:
        """How many images a round handles: a divisor of all."""
        most = min(max(self.most // max(self.planes, 1), 1), self.images)
        return max((n for n in range(1, most + 1) if self.images % n == 0), default=1)

    @property
    def strips(self) -> int:
        """The number of strips into which a single image is cut; it divides the rows of tiles."""
        high = (self.rows + 1) // TILE
        found = (n for n in range(1, high) if high % n == 0 and self.planes <= n * self.most)
        return next(found, high) if self.images == 1 else 1


__all__ = ["KERNEL", "MOST_PLACES", "PLANES", "SEEN", "TILE", "Sizes"]
