"""Draws a graph of operations: time runs down, every device has a column, copies lie between them.

A node's layer is the length of the longest path to it. An arrow that spans several layers gets a
narrow place of its own in each, so that it crosses no node. In each layer, the nodes of a column
are ordered by the nodes they depend on (Sugiyama, Tagawa and Toda, 1981, with barycentres).
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from gemel.profiler.records import Operation, device_name, kibibytes, link_device

if TYPE_CHECKING:
    from gemel.profiler.graph import StepGraph

WIDTH, HEIGHT = 168, 38  # of a node
GAP_X, GAP_Y = 16, 34
BEND = 8  # the width of an arrow's place in a layer it passes
MARGIN, TITLE, LEGEND = 24, 40, 34
SWEEPS = 8
#: Fill and stroke of operations that compute, that copy, and that failed.
COLOURS = {
    "node": ("#eef4fb", "#3b6ea5"),
    "node copy": ("#fdf3e1", "#b9770e"),
    "node failed": ("#fbe9e7", "#b03a2e"),
}
STYLE = """
text { font: 12px sans-serif; fill: #222 }
.specs { font-size: 9.5px; fill: #555 }
.title { font-weight: bold; font-size: 14px }
.device rect { fill: #fafafa; stroke: #ccc }
.edge { fill: none; stroke: #777; stroke-width: 1.2 }
.edge.copied { stroke: #b9770e; stroke-width: 1.6 }
"""


#: A device, and whether this is its column or the strip of copies before it.
Strip = tuple[int, bool]


class Box(NamedTuple):
    """Where a node is drawn."""

    x: float
    y: float


class _Layout:
    """Positions for all nodes of a graph, and for the bends of its arrows (negative numbers)."""

    def __init__(self, graph: StepGraph) -> None:
        self.nodes = graph.nodes
        self.edges = [(e.before, e.after) for e in graph.reduced_edges()]
        self.strips = {node.number: _strip(node) for node in graph.nodes}
        self.names = sorted(
            {node.device for node in graph.nodes} | {d for d, _ in self.strips.values()}
        )
        self.layers = self._layers()
        self.routes = {edge: self._route(*edge) for edge in self.edges}
        self.near = self._near()
        self.cells = self._cells()
        for _ in range(SWEEPS):
            self._sweep()
        self.columns = self._columns()
        self.boxes = self._boxes()

    def _layers(self) -> dict[int, int]:
        """The layer of each node, below everything it depends on."""
        layers = {node.number: 0 for node in self.nodes}
        arriving: dict[int, list[int]] = {}
        for before, after in self.edges:
            arriving.setdefault(after, []).append(before)
        for node in self.nodes:  # in order of issue, so predecessors have been placed
            above = [layers[number] for number in arriving.get(node.number, ())]
            layers[node.number] = max(above, default=-1) + 1
        return layers

    def _route(self, before: int, after: int) -> list[int]:
        """The nodes that an arrow passes: its ends, and a bend in each layer between them."""
        passed = range(self.layers[before] + 1, self.layers[after])
        bends = []
        for layer in passed:
            bends.append(min(0, *self.layers) - 1)
            self.layers[bends[-1]] = layer
            self.strips[bends[-1]] = self.strips[after]
        return [before, *bends, after]

    def _near(self) -> dict[int, list[int]]:
        """The neighbours of each node and bend, in the adjacent layers."""
        near: dict[int, list[int]] = {}
        for route in self.routes.values():
            for above, below in zip(route, route[1:], strict=False):
                near.setdefault(above, []).append(below)
                near.setdefault(below, []).append(above)
        return near

    def _cells(self) -> dict[tuple[Strip, int], list[int]]:
        """The nodes and bends of each strip and layer, from left to right."""
        cells: dict[tuple[Strip, int], list[int]] = {}
        for number, strip in self.strips.items():
            cells.setdefault((strip, self.layers[number]), []).append(number)
        return cells

    def _sweep(self) -> None:
        """Order each cell by its neighbours' mean position; strips further right weigh more."""
        widest = max(map(len, self.cells.values()), default=0)
        order = {strip: i for i, strip in enumerate(sorted(set(self.strips.values())))}
        rank = {
            number: order[strip] * widest + i
            for (strip, _), cell in self.cells.items()
            for i, number in enumerate(cell)
        }

        def middle(number: int) -> float:
            places = [rank[other] for other in self.near.get(number, ())]
            return sum(places) / len(places) if places else rank[number]

        for cell in self.cells.values():
            cell.sort(key=middle)

    def _columns(self) -> dict[Strip, tuple[float, float]]:
        """The left edge and the width of each strip; a device has one even without nodes."""
        columns: dict[Strip, tuple[float, float]] = {}
        left = float(MARGIN)
        for strip in sorted({*self.strips.values(), *((device, True) for device in self.names)}):
            rows = [_width(cell) for (other, _), cell in self.cells.items() if other == strip]
            width = max(rows, default=WIDTH) + 2 * GAP_X
            columns[strip] = left, width
            left += width + GAP_X
        return columns

    def _boxes(self) -> dict[int, Box]:
        boxes = {}
        for (strip, layer), cell in self.cells.items():
            left, width = self.columns[strip]
            x = left + (width - _width(cell)) / 2
            for number in cell:
                boxes[number] = Box(x, MARGIN + TITLE + layer * (HEIGHT + GAP_Y))
                x += _width([number]) + GAP_X
        return boxes

    @property
    def width(self) -> float:
        """The width of the whole drawing."""
        return max((left + width for left, width in self.columns.values()), default=200) + MARGIN

    @property
    def height(self) -> float:
        """The height of the whole drawing, without the legend."""
        depth = max(self.layers.values(), default=0) + 1
        return MARGIN + TITLE + depth * (HEIGHT + GAP_Y)


def draw(graph: StepGraph) -> str:
    """The SVG document."""
    layout = _Layout(graph)
    height = layout.height + LEGEND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{layout.width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {layout.width:.0f} {height:.0f}">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#777"/></marker></defs>',
    ]
    parts += [_column(layout, device) for device in layout.names]
    copies = {node.number for node in graph.nodes if node.copies}
    parts += [_arrow(layout, before, after, copies) for before, after in layout.edges]
    parts += [_node(node, layout.boxes[node.number]) for node in graph.nodes]
    parts += [_legend(layout.height), "</svg>"]
    return "\n".join(parts)


def _column(layout: _Layout, device: int) -> str:
    left, width = layout.columns[device, True]
    return (
        f'<g class="device"><rect x="{left:.1f}" y="{MARGIN}" width="{width:.1f}" '
        f'height="{layout.height - MARGIN:.1f}" rx="8"/>'
        f'<text class="title" x="{left + 12:.1f}" y="{MARGIN + 22}">'
        f"{_text(device_name(device))}</text></g>"
    )


def _kind(node: Operation) -> str:
    return "node failed" if node.failed else "node copy" if node.copies else "node"


def _node(node: Operation, box: Box) -> str:
    kind = _kind(node)
    fill, stroke = COLOURS[kind]
    result = node.detail.rpartition(" -> ")[2] or kibibytes(node.bytes)
    text = f"#{node.number} {node.name}: {node.detail}; {node.duration / 1000:.1f} us; {node.where}"
    text += f"; in {node.label}" if node.label else ""
    middle = box.x + WIDTH / 2
    return (
        f'<g class="{kind}"><title>{_text(text)}</title>'
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{WIDTH}" height="{HEIGHT}" '
        f'rx="{HEIGHT / 2 if node.copies else 5}" fill="{fill}" stroke="{stroke}"/>'
        f'<text x="{middle:.1f}" y="{box.y + 16:.1f}" text-anchor="middle">'
        f"{_short(node.name, 22)}</text>"
        f'<text class="specs" x="{middle:.1f}" y="{box.y + 30:.1f}" text-anchor="middle">'
        f"{_short(result, 30)}</text></g>"
    )


def _arrow(layout: _Layout, before: int, after: int, copies: set[int]) -> str:
    route = layout.routes[before, after]
    x, y = _middle(layout, before), layout.boxes[before].y + HEIGHT
    path = [f"M{x:.1f},{y:.1f}"]
    for number in route[1:]:
        x2, y2 = _middle(layout, number), layout.boxes[number].y
        bend = (y2 - y) / 2
        path.append(f"C{x:.1f},{y + bend:.1f} {x2:.1f},{y2 - bend:.1f} {x2:.1f},{y2:.1f}")
        x, y = x2, y2
        if number < 0:
            y += HEIGHT
            path.append(f"L{x:.1f},{y:.1f}")
    copied = " copied" if before in copies or after in copies else ""
    return f'<path class="edge{copied}" marker-end="url(#tip)" d="{" ".join(path)}"/>'


def _middle(layout: _Layout, number: int) -> float:
    return layout.boxes[number].x + _width([number]) / 2


def _width(cell: list[int]) -> float:
    """The width of nodes and bends side by side."""
    return sum(WIDTH if number > 0 else BEND for number in cell) + (len(cell) - 1) * GAP_X


def _strip(node: Operation) -> Strip:
    """The strip of an operation: its device's column; for a copy, left of the GPU at the link's
    end."""
    if not node.copies:
        return node.device, True
    return (link_device(node.lane) or node.device), False


def _text(text: str) -> str:
    """Make a text valid in XML, which has no place for control characters."""
    return escape("".join(c if c.isprintable() else " " for c in text))


def _short(text: str, length: int) -> str:
    return _text(text if len(text) <= length else text[: length - 1] + "…")


def _legend(top: float) -> str:
    meanings = ("computes", "copies between devices", "failed")
    entries = zip(COLOURS, meanings, strict=True)
    parts, x = ['<g class="legend">'], MARGIN
    for kind, meaning in entries:
        fill, stroke = COLOURS[kind]
        parts.append(
            f'<rect x="{x}" y="{top + 10:.1f}" width="18" height="12" rx="3" fill="{fill}" '
            f'stroke="{stroke}"/><text x="{x + 24}" y="{top + 20:.1f}">{meaning}</text>'
        )
        x += 44 + 7 * len(meaning)
    return "".join([*parts, "</g>"])


__all__ = ["draw"]
