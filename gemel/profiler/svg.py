"""Draws a graph of operations: time runs down, every device has a column, copies lie between.

Layers are the longest paths from the start; in each layer the nodes of a column are put in the
order of what they depend on (Sugiyama, Tagawa and Toda, 1981, with barycentres).
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from gemel.profiler.records import Operation, device_name, kibibytes

if TYPE_CHECKING:
    from gemel.profiler.graph import StepGraph

WIDTH, HEIGHT = 168, 38  # of a node
GAP_X, GAP_Y = 16, 34
MARGIN, TITLE, LEGEND = 24, 40, 34
SWEEPS = 8
#: Fill, stroke: what computes, what copies, what failed.
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


class Box(NamedTuple):
    """Where a node is drawn."""

    x: float
    y: float


class _Layout:
    """Places for all nodes of a graph."""

    def __init__(self, graph: StepGraph) -> None:
        self.nodes = graph.nodes
        self.edges = [(e.before, e.after) for e in graph.reduced_edges()]
        self.names = sorted({node.device for node in graph.nodes})
        self.layers = self._layers()
        self.cells = self._cells()
        for _ in range(SWEEPS):
            self._sweep()
        self.columns = self._columns()
        self.boxes = self._boxes()

    def _layers(self) -> dict[int, int]:
        """Each node below everything it depends on."""
        layers = {node.number: 0 for node in self.nodes}
        arriving: dict[int, list[int]] = {}
        for before, after in self.edges:
            arriving.setdefault(after, []).append(before)
        for node in self.nodes:  # in order of issue: those before have been placed
            above = [layers[number] for number in arriving.get(node.number, ())]
            layers[node.number] = max(above, default=-1) + 1
        return layers

    def _cells(self) -> dict[tuple[int, int], list[int]]:
        """The nodes of each device and layer, left to right."""
        cells: dict[tuple[int, int], list[int]] = {}
        for node in self.nodes:
            cells.setdefault((node.device, self.layers[node.number]), []).append(node.number)
        return cells

    def _sweep(self) -> None:
        """Order each cell by the mean place of its neighbours."""
        rank = {number: i for cell in self.cells.values() for i, number in enumerate(cell)}
        near: dict[int, list[int]] = {}
        for before, after in self.edges:
            near.setdefault(before, []).append(after)
            near.setdefault(after, []).append(before)

        def middle(number: int) -> float:
            places = [rank[other] for other in near.get(number, ())]
            return sum(places) / len(places) if places else rank[number]

        for cell in self.cells.values():
            cell.sort(key=middle)

    def _columns(self) -> dict[int, tuple[float, float]]:
        """The left side and the width of each device's column."""
        columns: dict[int, tuple[float, float]] = {}
        left = float(MARGIN)
        for device in self.names:
            widest = max(len(cell) for (d, _), cell in self.cells.items() if d == device)
            width = widest * (WIDTH + GAP_X) + GAP_X
            columns[device] = left, width
            left += width + 2 * GAP_X
        return columns

    def _boxes(self) -> dict[int, Box]:
        boxes = {}
        for (device, layer), cell in self.cells.items():
            left, width = self.columns[device]
            free = width - len(cell) * (WIDTH + GAP_X) + GAP_X
            for place, number in enumerate(cell):
                x = left + free / 2 + place * (WIDTH + GAP_X)
                boxes[number] = Box(x, MARGIN + TITLE + layer * (HEIGHT + GAP_Y))
        return boxes

    @property
    def width(self) -> float:
        """Of the whole drawing."""
        return max((left + width for left, width in self.columns.values()), default=200) + MARGIN

    @property
    def height(self) -> float:
        """Of the whole drawing, without the legend."""
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
    left, width = layout.columns[device]
    return (
        f'<g class="device"><rect x="{left:.1f}" y="{MARGIN}" width="{width:.1f}" '
        f'height="{layout.height - MARGIN:.1f}" rx="8"/>'
        f'<text class="title" x="{left + 12:.1f}" y="{MARGIN + 22}">'
        f"{escape(device_name(device))}</text></g>"
    )


def _kind(node: Operation) -> str:
    return "node failed" if node.failed else "node copy" if node.copies else "node"


def _node(node: Operation, box: Box) -> str:
    kind = _kind(node)
    fill, stroke = COLOURS[kind]
    result = node.detail.rpartition(" -> ")[2] or kibibytes(node.bytes)
    shown = result if len(result) <= 30 else result[:29] + "…"
    told = f"#{node.number} {node.name}: {node.detail}; {node.duration / 1000:.1f} us; {node.where}"
    middle = box.x + WIDTH / 2
    return (
        f'<g class="{kind}"><title>{escape(told)}</title>'
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{WIDTH}" height="{HEIGHT}" '
        f'rx="{HEIGHT / 2 if node.copies else 5}" fill="{fill}" stroke="{stroke}"/>'
        f'<text x="{middle:.1f}" y="{box.y + 16:.1f}" text-anchor="middle">'
        f"{escape(node.name)}</text>"
        f'<text class="specs" x="{middle:.1f}" y="{box.y + 30:.1f}" text-anchor="middle">'
        f"{escape(shown)}</text></g>"
    )


def _arrow(layout: _Layout, before: int, after: int, copies: set[int]) -> str:
    start, end = layout.boxes[before], layout.boxes[after]
    x1, y1 = start.x + WIDTH / 2, start.y + HEIGHT
    x2, y2 = end.x + WIDTH / 2, end.y
    bend = max((y2 - y1) / 2, GAP_Y / 2)
    copied = " copied" if before in copies or after in copies else ""
    return (
        f'<path class="edge{copied}" marker-end="url(#tip)" d="M{x1:.1f},{y1:.1f} '
        f'C{x1:.1f},{y1 + bend:.1f} {x2:.1f},{y2 - bend:.1f} {x2:.1f},{y2:.1f}"/>'
    )


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
