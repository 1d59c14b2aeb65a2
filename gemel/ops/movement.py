"""How a kernel moves over an image: convolutions and their gradients as matrix products."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from gemel.dtype import DType, promote
from gemel.errors import DTypeError
from gemel.ir.declare import composite
from gemel.ops.along_channels import go_along_channels, weights_along_channels
from gemel.ops.channels import channels_alone, weights_alone
from gemel.ops.elementwise import cast, copy, full
from gemel.ops.few_places import are_few_places, of_few_places
from gemel.ops.linalg import is_rounded, matmul, wide_matmul
from gemel.ops.movement_costs import SMALL, few, gives_few, in_phases, together
from gemel.ops.phases import phases, spaced
from gemel.ops.reduction import in_dtype, sum
from gemel.ops.rounds import repeated
from gemel.ops.shape import reshape, stack, swapaxes, transpose
from gemel.ops.volumes import are_planes, of_planes, weights_of_planes
from gemel.ops.windows import PLACES, Moves, added, bordered, windows, within
from gemel.ops.winograd import (
    ALWAYS,
    NEVER,
    by_tiles,
    exchanged,
    in_rounds,
    possible,
    shape_of_weights,
    sizes_of,
    weights_by_tiles,
)
from gemel.ops.winograd_costs import KERNEL
from gemel.spec import Spec, extents, product, promote_specs

#: A whole axis, and from its end to its start.
FORWARDS, BACKWARDS = slice(None), slice(None, None, -1)


class Movement(NamedTuple):
    """How a kernel moves over an image: the windows, the padding on either side, the groups."""

    moves: Moves
    pad: tuple[int, ...]
    groups: int
    #: Whether to use Winograd's scheme: where that pays off, never, or always.
    scheme: str = NEVER
    #: Whether the result stays in the dtype of sums, so that a bias can be added.
    wide: bool = False

    @property
    def product(self) -> Any:
        """The matrix product to use."""
        return wide_matmul if self.wide else matmul

    def unrounded(self, dtype: DType) -> Movement:
        """The same, but products of this dtype, which are added up, are not rounded before."""
        return self._replace(wide=is_rounded(dtype))

    @property
    def split(self) -> tuple[int, ...]:
        """The axis of groups, if there are several."""
        return (self.groups,) if self.groups > 1 else ()

    def under(self, x: Any) -> Any:
        """The windows the kernel sees at each position, as a view: (N, C, *kernel, *places)."""
        return windows(bordered(x, self.pad, self.pad, most=self.pad), **self.moves._asdict())

    def seen(self, x: Any, turned: bool = False) -> Any:
        """(N, C, *S) -> the windows: (N, [groups], C / groups, *kernel, *places), as a view.

        If `turned`, each window is reversed: it begins with its last element.
        """
        found = self.under(x)
        if turned:
            key = (..., *[BACKWARDS] * len(self.pad), *[FORWARDS] * len(self.pad))
            found = found[key]
        lead = (x.shape[0], *self.split, x.shape[1] // self.groups)
        return reshape(found, shape=(*lead, *found.shape[2:]))

    def times(self, weight: Any, x: Any, turned: bool = False) -> Any:
        """Weights times the windows of x; if `turned`, as in the transpose of a convolution."""
        if self.in_tiles(weight, x, turned):
            return winograd(x, weight, pad=self.pad, scheme=self.scheme, turned=turned)
        if are_planes(self):
            return of_planes(self, weight, x, turned)
        if self.alone(weight.shape, x.dtype):
            return channels_alone(self, weight, x, turned)
        if not turned and are_few_places(self, weight, x):
            return of_few_places(self, weight, x)
        matrix = self.turned(weight) if turned else self.matrix(weight)
        return self.of_product(matrix, x, turned)

    def of_product(self, matrix: Any, x: Any, turned: bool, kernel_first: bool = False) -> Any:
        """A matrix of weights times the windows of x, which are `columns`."""
        counts, images = self.counts(x.shape[2:]), x.shape[0]
        result = (images, self.groups * matrix.shape[-2], *counts)
        places = product(counts)
        together = few(places, images, len(counts))
        found = self.product(matrix, self.columns(x, together, turned, kernel_first))
        if not together:
            return reshape(found, shape=result)
        # The positions of one image would fill vectors badly, so one product covers all images.
        groups = len(self.split)
        found = reshape(found, shape=(*found.shape[:-1], images, places))
        found = transpose(found, axes=(groups + 1, *range(groups + 1), groups + 2))
        return reshape(found, shape=result)

    def columns(
        self, x: Any, together: bool, turned: bool = False, kernel_first: bool = False
    ) -> Any:
        """The windows of x as (N, [groups], C / groups * kernel, places); with all images
        `together` as ([groups], C / groups * kernel, N * places). With `kernel_first`, for
        strides of one, channels come after the kernel."""
        seen, counts = self.seen(x, turned), self.counts(x.shape[2:])
        last, places = len(seen.shape) - len(counts), product(counts)
        if kernel_first:
            axes, own = range(len(seen.shape)), 1 + len(self.split)
            seen = transpose(seen, axes=(*axes[:own], *axes[own + 1 : last], own, *axes[last:]))
        lead = (x.shape[0], *self.split)
        if together:
            order = (*range(1, last), 0, *range(last, len(seen.shape)))
            seen, lead, places = transpose(seen, axes=order), self.split, x.shape[0] * places
            last -= 1
        depth = product(seen.shape[len(lead) : last])
        # Copied before the reshape, which would itself copy where strides cannot express it.
        seen = self.copied(seen, last - 1) if self.written(x) else seen
        return reshape(seen, shape=(*lead, depth, places))

    def copied(self, seen: Any, axis: int) -> Any:
        """The windows in memory of their own; `axis` is that of the elements in a window's row.

        If windows do not overlap, they look like an array with its axes in another order, which
        would be transposed a few elements at a time. So these are copied one after another.
        """
        elements = self.moves.kernel[-1]
        if elements > self.moves.stride[-1] or not 1 < elements < FEW_ELEMENTS:
            return copy(seen)
        keys = [(*[slice(None)] * axis, place) for place in range(elements)]
        return stack([seen[key] for key in keys], axis=axis)

    def written(self, x: Any) -> bool:
        """Whether to copy the windows before a product, if the copy fits in the caches. With longer
        strides few windows overlap, and products gather them for each block of rows.
        """
        return self.overlap_little and bool(self.bytes_of(x.shape, x.dtype) <= WRITTEN)

    @property
    def overlap_little(self) -> bool:
        """Whether strides are longer than one and few windows have an element in common."""
        stride = product(self.moves.stride)
        return stride > 1 and product(self.moves.kernel) <= OVERLAP * stride

    def bytes_of(self, shape: Any, dtype: DType) -> Any:
        """The bytes of all windows of images."""
        counts = self.counts(shape[2:])
        return product((*shape[:2], *self.moves.kernel, *counts)) * dtype.itemsize

    def alone(self, shape: Any, dtype: DType) -> bool:
        """Whether weights of this shape are depthwise: a product would have only one row."""
        single = shape[1] == 1 and shape[0] == self.groups > 1
        return bool(single and dtype.compute is dtype)

    def in_tiles(self, weight: Any, x: Any, turned: bool) -> bool:
        """Whether `times` uses Winograd's scheme. Only sizes and dtypes decide."""
        if self.scheme == NEVER or not possible(self.moves, self.groups, x, weight):
            return False
        return self.scheme == ALWAYS or sizes_of(x, weight.shape, self.pad, turned).pays

    def has_weights_in_tiles(self, x: Any, y: Any) -> bool:
        """Whether `weights` uses Winograd's scheme. Only sizes and dtypes decide."""
        if self.scheme == NEVER or not possible(self.moves, self.groups, x, y):
            return False
        shape = shape_of_weights(x, y, self.pad)
        return self.scheme == ALWAYS or sizes_of(x, shape, self.pad).weights_pay

    def each(self, x: Any, turned: bool = False) -> Iterator[Any]:
        """The elements under each element of the kernel in turn: (N, C, *places)."""
        seen = self.under(x)
        for place in itertools.product(*map(range, self.moves.kernel)):
            where = (n - 1 - i for i, n in zip(place, self.moves.kernel, strict=True))
            key = (slice(None), slice(None), *(where if turned else place))
            yield seen[key]

    def rows(self, x: Any, together: bool = False) -> Any:
        """(N, C, *S) -> (N, [groups], C / groups, places); with all images `together` as
        ([groups], C / groups, N * places)."""
        lead = (*self.split, x.shape[1] // self.groups)
        found = reshape(x, shape=(x.shape[0], *lead, product(x.shape[2:])))
        if not together:
            return found
        last = 1 + len(lead)
        found = transpose(found, axes=(*range(1, last), 0, last))
        return reshape(found, shape=(*lead, found.shape[-2] * found.shape[-1]))

    def matrix(self, weight: Any) -> Any:
        """The weights as ([groups], channels out / groups, channels in / groups * kernel)."""
        lead = (*self.split, weight.shape[0] // self.groups)
        return reshape(weight, shape=(*lead, product(weight.shape[1:])))

    def counts(self, space: Any) -> tuple[int, ...]:
        """The number of positions of the kernel in an image of this size."""
        return self.moves.counts(n + 2 * p for n, p in zip(space, self.pad, strict=True))

    def shrunk(self, x: Any, weight: Any) -> Any:
        """Convolution: each position of the kernel gives one element."""
        return self.times(weight, x)

    def grown(self, y: Any, weight: Any, space: tuple[int, ...]) -> Any:
        """The transpose: each element becomes a window of an image of the size `space`."""
        if self.is_of_points:
            return spaced(self, y, weight, space)
        if self.moves.stride == self.moves.ones and min(self.rest) >= 0:
            how = self.backwards
            if how.in_tiles(weight, y, turned=True) or not gives_few(self, y, weight, space):
                return how.times(weight, y, turned=True)
        elif in_phases(self, y, weight, space):
            return phases(self, y, weight, space)
        settings = {"pad": self.pad, "groups": self.groups, "wide": self.wide}
        settings["space"] = tuple(space)
        return summed_windows(y, weight, **self.moves._asdict(), **settings)

    @property
    def is_of_points(self) -> bool:
        """Whether the kernel has one element, with strides and without padding."""
        alone = self.moves.kernel == self.moves.ones != self.moves.stride
        return alone and not any(self.pad)

    def windows_of(self, y: Any, weight: Any) -> Any:
        """The window that each element of y adds to the transpose: (N, C, *kernel, *places)."""
        axes = len(self.pad)
        rows, matrix = self.rows(y), swapaxes(self.matrix(weight), -1, -2)
        if matrix.shape[-2] <= READ and not few(rows.shape[-1], y.shape[0], axes):
            found = self.product(matrix, rows)
            lead = (y.shape[0], weight.shape[1] * self.groups)
            return reshape(found, shape=(*lead, *self.moves.kernel, *y.shape[2:]))
        found = self.product(matrix, self.rows(y, together=True))
        lead = (weight.shape[1] * self.groups, *self.moves.kernel)
        found = reshape(found, shape=(*lead, y.shape[0], *y.shape[2:]))
        last = len(lead)
        return transpose(found, axes=(last, *range(last), *range(last + 1, last + 1 + axes)))

    @property
    def rest(self) -> tuple[int, ...]:
        """How far windows reach beyond the padding, from their first element."""
        reach = self.moves.reach(self.moves.ones)
        return tuple(n - 1 - p for n, p in zip(reach, self.pad, strict=True))

    @property
    def backwards(self) -> Movement:
        """For strides of one, the convolution that has the shapes of this one's transpose."""
        return self._replace(pad=self.rest)

    def turned(self, weight: Any) -> Any:
        """The weights as ([groups], channels in / groups, channels out / groups * kernel)."""
        inside, outside = weight.shape[1], weight.shape[0] // self.groups
        found = reshape(weight, shape=(*self.split, outside, inside, *weight.shape[2:]))
        first = len(self.split)
        order = (*range(first), first + 1, first, *range(first + 2, len(found.shape)))
        found = transpose(found, axes=order)
        return reshape(found, shape=(*self.split, inside, outside * product(weight.shape[2:])))

    def weights(self, x: Any, y: Any, shape: tuple[int, ...]) -> Any:
        """The gradient of weights of this shape, from the image x and the gradient y of the result.

        One product for each image, added up. But if the results would be larger than the columns,
        one product covers all images side by side.
        """
        if self.has_weights_in_tiles(x, y):
            return winograd_weights(x, y, pad=self.pad, scheme=self.scheme)
        if are_planes(self):
            return weights_of_planes(self, x, y, shape)
        if self.alone(shape, x.dtype) and product(self.moves.kernel) <= PLACES:
            return weights_alone(self, x, y, shape)
        if go_along_channels(self, x, y):
            return weights_along_channels(self, x, y, shape)
        if self.overlap_little and not self.written(x):
            return weights_in_rounds(x, y, **self.moves._asdict(), pad=self.pad, groups=self.groups)
        return in_dtype(self.product_of_windows(x, y, shape), promote(x.dtype, y.dtype))

    def product_of_windows(self, x: Any, y: Any, shape: Any) -> Any:
        """`weights`, for all images at once, in the dtype of sums."""
        multiply = self.unrounded(promote(x.dtype, y.dtype)).product
        together = bool(y.shape[1] // self.groups > product(y.shape[2:]))
        few = self.are_few(x, shape)
        columns = self.columns(x, together) if few else self.places(x, together)
        rows = self.rows(y, together)
        found = multiply(columns, swapaxes(rows, -1, -2)) if few else multiply(rows, columns)
        found = found if together else sum(found, axis=0)
        if few:
            first = len(self.split)
            found = reshape(found, shape=(*self.split, *shape[1:], shape[0] // self.groups))
            last = len(found.shape) - 1
            found = transpose(found, axes=(*range(first), last, *range(first, last)))
        return reshape(found, shape=shape)

    def are_few(self, x: Any, shape: Any) -> bool:
        """Whether a filter has few weights, and fewer than there are filters. The weights are then
        the product's rows, so that the longer operand is read in place.
        """
        each = product(shape[1:])
        return bool(each <= FEW and each * self.groups < shape[0])

    def places(self, x: Any, together: bool) -> Any:
        """The windows of x as (N, [groups], places, C / groups * kernel); with all images
        `together` as ([groups], N * places, C / groups * kernel).
        """
        seen, counts = self.seen(x), self.counts(x.shape[2:])
        long = product((x.shape[0], *counts)) >= SMALL or counts[-1] >= LONG
        if self.written(x) and long:
            return swapaxes(self.columns(x, together), -1, -2)
        first, last = 1 + len(self.split), len(seen.shape) - len(counts)
        order = (*range(1, first), 0) if together else range(first)
        axes = (*order, *range(last, len(seen.shape)), *range(first, last))
        every = (x.shape[0] * product(counts),) if together else (product(counts),)
        lead = self.split if together else (x.shape[0], *self.split)
        depth = product(seen.shape[first:last])
        return reshape(transpose(seen, axes=axes), shape=(*lead, *every, depth))


# --- convolution in tiles -------------------------------------------------------------------


@composite(contracts=True, precision="wide")  # two-byte dtypes have too few digits for it
def winograd(x: Any, weight: Any, *, pad: Any, scheme: str, turned: bool = False) -> Any:
    """Convolution of images (N, C, H, W) with weights (K, C, 3, 3), or of volumes (N, C, D, H, W)
    with weights (K, C, places, 3, 3), by Winograd's scheme in each plane; if `turned`, with weights
    (C, K, 3, 3) as in the transpose of a convolution.

    A pass for a device on which that never pays (`passes.direct`) sets the scheme to `NEVER`.
    """
    if scheme == NEVER:
        return tiled(pad, scheme, weight.shape).times(weight, x, turned)
    return by_tiles(x, weight, pad, turned)


@winograd.spec
def _(x: Spec, weight: Spec, *, pad: Any, scheme: str, turned: bool = False) -> Spec:
    if x.dtype is not weight.dtype or not x.dtype.is_floating:
        raise DTypeError(f"winograd: {x} and weight {weight} must have the same floating dtype")
    counts = tiled(pad, scheme, weight.shape).counts(x.shape[2:])
    return Spec((x.shape[0], weight.shape[1 if turned else 0], *counts), x.dtype)


@winograd.gradient
def _(g: Any, y: Any, x: Any, weight: Any, *, pad: Any, scheme: str, turned: bool) -> Any:
    how = tiled(pad, scheme, weight.shape)
    if not turned:
        return how.grown(g, weight, tuple(x.shape[2:])), how.weights(x, g, weight.shape)
    back = how.backwards
    return back.times(weight, g), exchanged(how.weights(x, g, exchanged(weight).shape))


@composite(contracts=True, precision="wide")
def winograd_weights(x: Any, y: Any, *, pad: Any, scheme: str) -> Any:
    """The gradient of `winograd`'s weights, from images and the result's gradient."""
    if scheme == NEVER:
        shape = shape_of_weights(x, y, pad)
        return tiled(pad, scheme, shape).weights(x, y, shape)
    return weights_by_tiles(x, y, pad)


@winograd_weights.spec
def _(x: Spec, y: Spec, *, pad: Any, scheme: str) -> Spec:
    if x.dtype is not y.dtype or not x.dtype.is_floating:
        raise DTypeError(f"winograd_weights: {x} and {y} must have the same floating dtype")
    return Spec(shape_of_weights(x, y, pad), x.dtype)


@winograd_weights.gradient
def _(g: Any, w: Any, x: Any, y: Any, *, pad: Any, scheme: str) -> Any:
    how = tiled(pad, scheme, w.shape)
    return how.grown(y, g, tuple(x.shape[2:])), how.times(g, x)


def tiled(pad: tuple[int, ...], scheme: str, shape: tuple[int, ...]) -> Movement:
    """How the kernel of weights of this shape moves, with strides of one."""
    ones, kernel = (1,) * len(pad), (*map(int, shape[2:-2]), KERNEL, KERNEL)
    return Movement(Moves(kernel, ones, ones), tuple(pad), 1, scheme)


# --- sums of windows ------------------------------------------------------------------------


@composite(contracts=True)
def summed_windows(
    y: Any,
    weight: Any,
    *,
    kernel: Any,
    stride: Any,
    dilate: Any,
    pad: Any,
    groups: int,
    space: Any,
    wide: bool = False,
) -> Any:
    """The transpose of a convolution: each element becomes a window, and the windows are added at
    their places in an image of the size `space`."""
    dtype = promote(y.dtype, weight.dtype)
    how = Movement(Moves(kernel, stride, dilate), pad, groups).unrounded(dtype)
    whole = tuple(n + 2 * p for n, p in zip(space, pad, strict=True))

    def image(part: Any, factors: Any) -> Any:
        found = within(added(how.windows_of(part, factors), how.moves, whole), pad, space)
        return in_dtype(found, dtype.accumulate if wide else dtype)

    count = together(how, y, weight)
    if count is None:
        return image(y, weight)
    parts = reshape(y, shape=(y.shape[0] // count, count, *y.shape[1:]))
    found = in_rounds(lambda part, given: image(part, given[0]), parts, [weight])
    return reshape(found, shape=(y.shape[0], *found.shape[2:]))


@summed_windows.spec
def _(y: Spec, weight: Spec, *, groups: int, space: Any, wide: bool = False, **moves: Any) -> Spec:
    dtype = floating("summed_windows", y, weight)
    dtype = dtype.accumulate if wide else dtype
    shape = (y.shape[0], weight.shape[1] * groups, *extents("summed_windows", space))
    return Spec(shape, dtype)


@summed_windows.gradient
def _(
    g: Any,
    x: Any,
    y: Any,
    weight: Any,
    *,
    kernel: Any,
    stride: Any,
    dilate: Any,
    pad: Any,
    groups: int,
    space: Any,
    wide: bool = False,
) -> Any:
    how = Movement(Moves(kernel, stride, dilate), pad, groups)
    g = cast(g, dtype=promote(y.dtype, weight.dtype)) if wide else g  # the result is rounded later
    return how.shrunk(g, weight), how.weights(g, y, weight.shape)


# --- gradients of weights, some images at a time --------------------------------------------


@composite(contracts=True)
def weights_in_rounds(
    x: Any, y: Any, *, kernel: Any, stride: Any, dilate: Any, pad: Any, groups: int
) -> Any:
    """The gradient of weights, from as many images at a time as have windows that fit in caches."""
    how = Movement(Moves(kernel, stride, dilate), pad, groups)
    shape = (y.shape[1], x.shape[1] // groups, *kernel)
    images = int(x.shape[0])
    most = images * ROUND // max(int(how.bytes_of(x.shape, x.dtype)), 1)
    count = max(n for n in range(1, max(most, 1) + 1) if images % n == 0)
    pairs = [reshape(part, shape=(images // count, count, *part.shape[1:])) for part in (x, y)]

    def further(parts: Any, sums: Any, _: Any) -> Any:
        own = how.product_of_windows(parts[0], parts[1], shape)
        return [], [sums[0] + cast(own, dtype=sums[0].dtype)]

    wide = promote(x.dtype, y.dtype)
    start = full(0, shape=shape, dtype=wide.accumulate.name)
    _, (found,) = repeated(further, pairs, [start])
    return cast(found, dtype=wide)


@weights_in_rounds.spec
def _(x: Spec, y: Spec, *, kernel: Any, stride: Any, dilate: Any, pad: Any, groups: int) -> Spec:
    dtype = floating("weights_in_rounds", x, y)
    return Spec((y.shape[1], x.shape[1] // groups, *kernel), dtype)


@weights_in_rounds.gradient
def _(
    g: Any, w: Any, x: Any, y: Any, *, kernel: Any, stride: Any, dilate: Any, pad: Any, groups: int
) -> Any:
    how = Movement(Moves(kernel, stride, dilate), pad, groups)
    return how.grown(y, g, tuple(x.shape[2:])), how.shrunk(x, g)


def floating(name: str, x: Spec, y: Spec) -> DType:
    """The common dtype of x and y. Raises `DTypeError` unless it is floating."""
    dtype = promote_specs(x, y)
    if not dtype.is_floating:
        raise DTypeError(f"{name}: {x} and {y} must be floating; use astype('float32')")
    return dtype


#: Weights of a filter that may be a product's rows, and rows for which columns are read in place,
#: at most.
FEW, READ = 16, 32
#: Positions in a row that fill a vector, and elements in a row of a window that do by no means.
LONG, FEW_ELEMENTS = 16, 4
#: How many windows may share an element if the windows are copied; bytes of windows that fit in
#: the caches; and bytes of windows in one round if they do not.
OVERLAP, WRITTEN, ROUND = 3, 8 << 20, 2 << 20
