"""Reuse within one lowering: networks repeat their layers, so equal kernels are written once.

Two fused nodes are equal if they have the same operations, and read and write memory in the same
layouts, though in other blocks of memory. The second gets a copy of the first one's launches with
the blocks exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from gemel.codegen.language.body import write_loops
from gemel.codegen.language.launch import Launch, Place
from gemel.ir.graph import Entry, Graph, Node
from gemel.passes import optimize
from gemel.passes.simplify import frozen
from gemel.spec import Spec


class LaunchCache:
    """The loop launches that a lowering has written so far, by what they compute."""

    def __init__(self) -> None:
        # The body is kept, too: the key may contain ids of objects in it.
        self._known: dict[Any, tuple[list[Launch], list[Any], Graph]] = {}

    def loops(self, body: Graph, given: dict[Entry, Any], outputs: list[Place]) -> list[Launch]:
        """The launches of a fused body, see `write_loops`."""
        places = _Places()
        text = body_text(body), *map(places.text, given.values()), *map(places.text, outputs)
        known = self._known.get(text)
        if known is None:
            launches = write_loops(body, given, outputs)
            self._known[text] = launches, list(places.buffers), body
            return launches
        launches, buffers, _ = known
        moved = dict(zip(buffers, places.buffers, strict=True))
        return [_elsewhere(launch, moved) for launch in launches]


class OptimizedCache:
    """The subgraphs (bodies of loops, sides of branches) that a lowering has optimized so far."""

    def __init__(self, passes: Sequence[Any]) -> None:
        self.passes = passes
        self._known: dict[Any, tuple[Graph, Graph]] = {}

    def of(self, graph: Graph) -> Graph:
        """The graph after the passes; an equal graph that was optimized before has the same result.

        Equal graphs also have the same origins, since these are part of error messages.
        """
        origins = tuple([(node.origin, node.part) for node in graph.walk()])
        text = body_text(graph), origins
        if text not in self._known:
            self._known[text] = optimize(graph, self.passes), graph
        return self._known[text][0]


def _elsewhere(launch: Launch, moved: dict[Any, Any]) -> Launch:
    """A copy of a launch on other blocks of memory."""
    places = [Place(moved[place.buffer], place.dtype, place.layout) for place in launch.places]
    placed = copy(launch)
    placed.places, placed.integers = places, list(launch.integers)
    return placed


class _Places:
    """Numbers places, and the blocks of memory they lie in, in order of appearance."""

    def __init__(self) -> None:
        self.buffers: dict[Any, int] = {}
        self._seen: dict[int, int] = {}

    def text(self, where: Any) -> Any:
        """The part of the key for a place or a number."""
        number = self._seen.setdefault(id(where), len(self._seen))
        if not isinstance(where, Place):
            return number, where.dtype.code, frozen(where.source)
        buffer, layout = where.buffer, where.layout
        block = self.buffers.setdefault(buffer, len(self.buffers)), buffer.strided
        lies = sizes(layout.shape), sizes(layout.strides), frozen(layout.offset)
        return number, where.dtype.code, block, lies


def body_text(graph: Graph) -> Any:
    """A key that two graphs share if the same kernels compute them."""
    names: dict[Entry, int] = {}

    def named(node: Node) -> None:
        for entry in node.entries:
            names[entry] = len(names)

    steps: list[Any] = []
    for entry in graph.inputs:
        named(entry.node)
        steps.append(_spec_text(entry.spec))
    for node in graph.walk():
        if node.op is not None:
            inputs = tuple([names[entry] for entry in node.inputs])
            specs = tuple([_spec_text(spec) for spec in node.specs])
            steps.append((node.op, inputs, frozen(node.params), specs))
        elif node.entries[0] in names:
            continue
        else:
            steps.append(frozen(node.value) if node.is_number else id(node))
        named(node)
    results = tuple([names[entry] for entry in graph.results])
    return tuple(steps), results, tuple([index for index, _ in graph.updates])


def _spec_text(spec: Spec) -> Any:
    return spec.dtype.code, spec.weak, sizes(spec.shape)


def sizes(extents: tuple[Any, ...]) -> Any:
    """Extents as a key: the forms of those that are free."""
    return frozen(extents)


__all__ = ["LaunchCache", "OptimizedCache", "body_text"]
