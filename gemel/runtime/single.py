"""Lowering of one operation, for imperative calls: an elementwise kernel, or a plan's image."""

from __future__ import annotations

import struct
from typing import Any

from gemel.codegen.language.body import write_elementwise
from gemel.codegen.language.nest import estimate
from gemel.dtype import DTYPES
from gemel.extent import Dim, Guard, Guards
from gemel.ir.graph import Graph, placeholder
from gemel.ir.layout import Layout, dense
from gemel.ir.op import Op
from gemel.ir.op_kinds import Elementwise
from gemel.ir.trace import Trace
from gemel.passes import optimize
from gemel.runtime.backend import Backend
from gemel.runtime.cache import kernel_for, kernel_name
from gemel.runtime.image import Image, Input, Output, free_sizes
from gemel.runtime.lower import Lowering
from gemel.runtime.plans import ELEMENTWISE, Prepared
from gemel.spec import Spec


def elementwise_call(
    op: Elementwise,
    rank: int,
    operands: tuple[tuple[int, int], ...],
    parameters: dict[str, Any],
    out: tuple[int, int] | None,
    backend: Backend,
) -> Prepared:
    """Compile the kernel of an elementwise call; return its name and what the core must know."""
    target = None if out is None else (DTYPES[out[0]], out[1])
    program, dtypes, limits = write_elementwise(op, rank, operands, parameters, target)
    kernel_for(program, backend)
    nanoseconds = (estimate(program, 1000) - estimate(program, 0)) / 1000
    codes = bytes(dtype.code for dtype in dtypes)
    content = struct.pack(ELEMENTWISE, len(codes), nanoseconds) + codes + limits
    return Prepared((kernel_name(program, backend),), content)


class FreeSizes:
    """The sizes of a call as free extents, so that one plan serves other sizes, too.

    Equal extents get one name, on the assumption that they will be equal in later calls, and so do
    equal strides. 0 and 1 stay numbers, since they decide how a call is computed.
    """

    def __init__(self, specs: tuple[Spec, ...]) -> None:
        self.guards = Guards()
        self._known: dict[tuple[str, int], int] = {}
        self.specs = tuple(
            spec if spec.weak else Spec((self._named("n", n, 2) for n in spec.shape), spec.dtype)
            for spec in specs
        )

    def _named(self, kind: str, value: int, least: int | None) -> int:
        if value in (0, 1):
            return value
        dim = Dim(value, f"{kind}{len(self._known)}", self.guards, least)
        return self._known.setdefault((kind, value), dim)

    def layouts(self, strides: dict[int, tuple[int, ...]]) -> dict[int, Layout]:
        """The layouts of arrays that are not dense, from their strides, by position."""
        layouts = {}
        for position, axes in strides.items():
            shape = self.specs[position].shape
            # An axis of length 1 may have any stride.
            pairs = zip(shape, axes, strict=True)
            layouts[position] = Layout(
                shape, (0 if n == 1 else self._named("s", s, None) for n, s in pairs), 0
            )
        return layouts


def call_image(
    op: Op,
    specs: tuple[Spec, ...],
    strides: dict[int, tuple[int, ...]],
    parameters: dict[str, Any],
    backend: Backend,
) -> Image:
    """The image for calls on such arrays and numbers, also of other sizes."""
    sizes = FreeSizes(specs)
    layouts = sizes.layouts(strides)
    return single_image(op, sizes.specs, parameters, backend, layouts, sizes.guards)


def created_image(
    op: Op,
    specs: tuple[Spec, ...],
    parameters: dict[str, Any],
    backend: Backend,
    sizes: Spec,
) -> Image:
    """The image for calls on such numbers, also with other shapes.

    Its first input is an array whose extents are those of `shape` beyond 1, with strides of 0.
    """
    free = FreeSizes((sizes,))
    named = iter(free.specs[0].shape)
    shape = tuple(n if n < 2 else next(named) for n in parameters["shape"])
    layouts = free.layouts({0: (0,) * sizes.ndim})
    given = {**parameters, "shape": shape}
    return single_image(op, specs, given, backend, layouts, free.guards, free.specs)


def single_image(
    op: Op,
    specs: tuple[Spec, ...],
    parameters: dict[str, Any],
    backend: Backend,
    layouts: dict[int, Layout],
    guards: list[Guard],
    unread: tuple[Spec, ...] = (),
) -> Image:
    """The image of one operation: of a view without kernels, or of a graph with one node.

    Inputs of the specs `unread` come before those of the operation.
    """
    results = op.infer(*specs, **parameters)
    if op.rules.view is not None:
        views = op.layouts(layouts.get(0) or dense(specs[0].shape), results, parameters)
        if views is not None:
            return view_image(op.name, specs[0], layouts.get(0), views, guards)
    with Trace():
        entries = tuple(placeholder(spec) for spec in specs)
        computed = op.node(entries, parameters).entries
    hidden = set(op.updates.values())
    outputs = [entry for index, entry in enumerate(computed) if index not in hidden]
    updates = [(position, computed[index]) for position, index in op.updates.items()]
    inputs = (*map(placeholder, unread), *entries)
    graph = optimize(Graph(inputs, outputs, updates, op.name), backend.passes())
    return Lowering(graph, backend, layouts, guards).made()


def view_image(
    name: str, source: Spec, layout: Layout | None, views: tuple[Layout, ...], guards: list[Guard]
) -> Image:
    """The image of an operation whose results are views of its only array."""
    image = Image(name)
    image.guards = [*free_sizes([source.shape]), *guards]
    code = source.dtype.code
    image.inputs = [Input(code, source.shape, None if layout is None else layout.strides)]
    image.outputs = [Output(code, view.shape, view.strides, view.offset) for view in views]
    return image
