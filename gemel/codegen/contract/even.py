"""Windows over an image with an odd number of channels, read as if it had one more, of zeros.

Where pairs of bfloat16 are multiplied, two channels share a lane (`tiles.windows`). A network's
first layer has three. Its image and its weights are copied to memory with room for a fourth.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gemel.codegen.contract.task import WindowAxes
from gemel.codegen.language.launch import Launch, Number, Place
from gemel.codegen.language.nest import Nest
from gemel.dtype import float64
from gemel.extent import same_for_all
from gemel.ir.layout import Layout, MixedStride, dense_strides
from gemel.spec import product

if TYPE_CHECKING:
    from gemel.codegen.contract.product import Axes, Workspace

#: From so many channels on, pairs save more than one more channel costs.
LEAST_CHANNELS = 3


def suits(windows: WindowAxes, axes: Axes) -> bool:
    """Whether the image has an odd number of channels that follow each other as planes, so that it
    can be copied plane by plane."""
    (channels, apart), *inside = windows.k
    if windows.paired or channels % 2 == 0:
        return False
    stride, loops = axes.strides[0][-1], (*inside, *windows.n)
    if channels < LEAST_CHANNELS or any(step < 0 for _, step in loops):
        return False
    alike = not isinstance(stride, MixedStride) or same_for_all(stride.axes[0][0], channels)
    return bool(alike and apart >= _span(loops))


def _span(loops: Iterable[tuple[Any, Any]]) -> Any:
    """How many elements lie between the first and the last that loops reach, with both."""
    return 1 + sum((extent - 1) * stride for extent, stride in loops)


def evened(axes: Axes, sources: list[Place], workspace: Workspace) -> list[Launch]:
    """Copies both factors with one more channel; changes `axes` and `sources` accordingly. The
    pairs of the weights then lie side by side."""
    return [*_image(axes, sources, workspace), *_weights(axes, sources, workspace)]


def _zero(nest: Nest) -> Any:
    return nest.scalar(Number(("constant", 0.0), float64))


def _image(axes: Axes, sources: list[Place], workspace: Workspace) -> list[Launch]:
    columns, ((channels, apart), *inside) = axes.factor_axes()
    span, source = _span((*inside, *columns)), sources[1]
    *lead, _, across, _ = axes.strides[1]
    batch = [n if stride else 1 for n, stride in zip(axes.batch, lead, strict=True)]
    shape = (*batch, channels + 1, span)
    *steps, plane, one = dense_strides(shape)
    room = workspace.reserve(product(shape) * source.dtype.itemsize)
    made = Place(room, source.dtype, Layout(shape, (*steps, plane, one)))
    copy = Nest((*batch, channels, span))
    copy.store(made, copy.load(source, (*lead, apart, 1)), (*steps, plane, one))
    rest, last = Nest((*batch, span)), made.narrow(len(batch), channels, 1)
    rest.store(last, _zero(rest), (*steps, one))
    steps = [step if stride else 0 for step, stride in zip(steps, lead, strict=True)]
    axes.strides[1] = [*steps, 0, across, MixedStride([(channels + 1, span), *inside])]
    sources[1] = made
    return [copy.finish(), rest.finish()]


def _weights(axes: Axes, sources: list[Place], workspace: Workspace) -> list[Launch]:
    """Weights in the order of pairs of channels, then the other axes of k, then the two channels of
    a pair."""
    _, ((channels, _), *inside) = axes.factor_axes()  # with the channel of zeros
    source, inner = sources[0], product(extent for extent, _ in inside)
    layout = axes.layout(0, source)
    (*lead, _), (*rows, _) = layout.shape, layout.strides
    (_, apart), *own = axes.weights(channels, inner)
    extents, steps = [extent for extent, _ in own], [step for _, step in own]
    pairs = channels // 2
    *to, pair, _, _ = dense_strides((*lead, pairs, inner, 2))
    there = [2 * step for step in dense_strides(tuple(extents))]
    room = workspace.reserve(product(lead) * channels * inner * source.dtype.itemsize)
    made = Place(room, source.dtype, Layout((), ()))
    copy = Nest((*lead, pairs - 1, *extents, 2))
    copy.store(made, copy.load(source, (*rows, 2 * apart, *steps, apart)), (*to, pair, *there, 1))
    last, offset = Nest((*lead, *extents)), layout.offset + (channels - 2) * apart
    found = last.load(source.at(Layout((), (), offset)), (*rows, *steps))
    for place, value in enumerate((found, _zero(last)), (pairs - 1) * pair):
        last.store(made.at(Layout((), (), place)), value, (*to, *there))
    sources[0] = made
    axes.k = channels * inner
    axes.made_dense(0)
    return [copy.finish(), last.finish()]
