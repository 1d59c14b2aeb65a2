"""Domains: which axis of each value in a loop nest runs along which loop.

Operations can share a kernel if one loop nest serves all of them. A domain is that nest: its shape,
and the set of dimensions that are reduced. The placement of a value names, for each of its axes,
the dimension it runs along (None for an axis of length 1). In ``(x - x.sum(1, keepdims=True)) * w``
with x of shape (8, 5) and w of shape (5,) the domain is (8, 5), dimension 1 is reduced, and the
placements are x: (0, 1), the sum: (0, None), w: (1,).
"""

from __future__ import annotations

from typing import Any

from gemel.extent import same_for_all, seen
from gemel.ir.graph import Entry, Graph, Node
from gemel.ir.op_kinds import Contraction, Elementwise, Reduction
from gemel.ir.position import At, along, far
from gemel.spec import normalize_axes, product, same_shape, same_shape_for_all

Placement = tuple["int | None", ...]


class Domain:
    """The loops of a group of nodes, and the placement of each value in them."""

    __slots__ = ("placements", "reduced", "shape")

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.reduced: frozenset[int] | None = None
        self.placements: dict[Entry, Placement] = {}

    @staticmethod
    def of(node: Node) -> Domain:
        """The domain a node needs by itself."""
        shape = node.inputs[0].shape if isinstance(node.op, Reduction) else node.specs[0].shape
        domain = Domain(shape)
        if not domain.add(node):
            domain.placements[node.entries[0]] = tuple(range(len(shape)))
        return domain

    @staticmethod
    def of_all(nodes: list[Node]) -> Domain | None:
        """The domain that all nodes of a body share, or None if there is none."""
        shapes = [
            n.inputs[0].shape if isinstance(n.op, Reduction) else n.specs[0].shape for n in nodes
        ]
        domain = Domain(max(shapes, key=lambda shape: (_size(shape), len(shape))))
        return domain if all(domain.add(node) for node in nodes) else None

    @staticmethod
    def is_alignment(node: Node) -> bool:
        """Whether a view only adds or removes axes of length 1, or repeats along axes."""
        if node.op is None or node.op.alignment != "reshape":
            return node.op is not None and node.op.alignment == "repeat"
        before = [n for n in node.inputs[0].shape if not _is_one(n)]
        after = [n for n in node.specs[0].shape if not _is_one(n)]
        return same_shape(tuple(before), tuple(after))

    def add(self, node: Node) -> bool:
        """Place a node's result; False (and no change) when it does not fit these loops."""
        if isinstance(node.op, Elementwise):
            return self._add_elementwise(node)
        if isinstance(node.op, Reduction):
            return self._add_reduction(node)
        if node.op is not None and self.is_alignment(node):
            reshapes = node.op.alignment == "reshape"
            return self._add_reshape(node) if reshapes else self._add_elementwise(node)
        if is_mover(node) and not is_view(node):
            return self._keep(node.entries[0], [None] * node.specs[0].ndim, self.reduced)
        return False

    def _add_elementwise(self, node: Node) -> bool:
        shape = node.specs[0].shape
        known: list[int | None] = [None] * len(shape)
        for entry in node.inputs:
            placement = self.placements.get(entry, ())  # lined up from the right
            for axis, dimension in enumerate(placement, len(shape) - len(placement)):
                if dimension is None:
                    continue
                if known[axis] is None:
                    known[axis] = dimension
                elif known[axis] != dimension:
                    return False
        return all(self._keep(entry, list(known)) for entry in node.entries)

    def _keep(
        self, entry: Entry, known: list[int | None], shut: frozenset[int] | None = None
    ) -> bool:
        """Complete a placement and keep it; False if that is impossible.

        From the last axis on, an axis without a dimension takes the nearest one of its extent that
        is still free and not in `shut`.
        """
        shape = entry.shape
        limit = len(self.shape)
        for axis in range(len(shape) - 1, -1, -1):
            extent, dimension = shape[axis], known[axis]
            if dimension is None:
                if extent == 1:
                    continue
                floor = max([d for d in known[:axis] if d is not None], default=-1)
                for free in range(limit - 1, floor, -1):
                    if not (shut and free in shut) and extent == self.shape[free]:
                        break
                else:
                    return False
                known[axis] = limit = free
            elif dimension < limit and (extent == 1 or extent == self.shape[dimension]):
                limit = dimension
            else:
                return False
        self.placements[entry] = tuple(known)
        return True

    def _add_reduction(self, node: Node) -> bool:
        """Place a reduction; False unless it reduces the loops that others reduce."""
        source = node.inputs[0]
        known = self.placements.get(source)
        placement = self._whole(source) if known is None else known
        if placement is None:
            return False
        axes = normalize_axes(node.op.name if node.op else "", node.params["axis"], source.ndim)
        along = [placement[axis] for axis in axes if not _is_one(source.shape[axis])]
        reduced = frozenset(d for d in along if d is not None)
        wanted = frozenset(d for d in reduced if not _is_one(self.shape[d]))
        if self.reduced is not None and wanted != self.reduced:
            return False
        if not self._varies(source, placement, wanted):
            return False
        keep = node.params["keepdims"]
        self.reduced = wanted
        self.placements[source] = placement
        self.placements[node.entries[0]] = tuple(
            d for axis, d in enumerate(placement) if keep or axis not in axes
        )
        return True

    def _whole(self, entry: Entry) -> Placement | None:
        """The placement of a value that runs along every loop; None if it does not."""
        if same_shape(entry.shape, self.shape):
            return tuple(range(len(self.shape)))
        loops = [d for d, extent in enumerate(self.shape) if not _is_one(extent)]
        axes = [axis for axis, extent in enumerate(entry.shape) if not _is_one(extent)]
        extents = tuple(entry.shape[axis] for axis in axes)
        if not same_shape(extents, tuple(self.shape[d] for d in loops)):
            return None
        along = dict(zip(axes, loops, strict=True))
        return tuple(along.get(axis) for axis in range(entry.ndim))

    def _varies(self, entry: Entry, placement: Placement, reduced: frozenset[int]) -> bool:
        """Whether a value runs along all reduced dimensions (else its elements are added twice)."""
        return reduced <= self._running(entry, placement)

    def running(self, entry: Entry) -> set[int]:
        """The dimensions a placed value runs along."""
        return self._running(entry, self.placements[entry])

    @staticmethod
    def _running(entry: Entry, placement: Placement) -> set[int]:
        pairs = zip(placement, entry.shape, strict=True)
        return {d for d, extent in pairs if d is not None and not _is_one(extent)}

    def writes_once(self, node: Node) -> bool:
        """Whether the nest writes each element of a node's results exactly once.

        They must run along all loops that are not reduced, and along all reduced ones or none.
        Others would be written repeatedly, and not at all if a loop is empty.
        """
        reduced = frozenset(self.reduced or ())
        rows = {d for d, extent in enumerate(self.shape) if not _is_one(extent)} - reduced
        for entry in node.entries:
            running = self.running(entry)
            if not rows <= running or (running & reduced and not reduced <= running):
                return False
        return True

    def _add_reshape(self, node: Node) -> bool:
        placement = self.placements.get(node.inputs[0])
        if placement is None:
            return False
        pairs = zip(placement, node.inputs[0].shape, strict=True)
        dimensions = iter([d for d, extent in pairs if not _is_one(extent)])
        shape = node.specs[0].shape
        self.placements[node.entries[0]] = tuple(
            None if _is_one(n) else next(dimensions) for n in shape
        )
        return True


def is_product(node: Node) -> bool:
    """Whether a node is a matrix product with a kernel."""
    return isinstance(node.op, Contraction) and node.has_kernel


def in_pieces(node: Node) -> bool:
    """Whether a result consists of parts that are each written by a kernel: a concatenation."""
    rules = None if node.op is None else node.op.rules
    return rules is not None and rules.pieces is not None and rules.lower is None


def gathers(node: Node) -> bool:
    """Whether the inputs of an operation can be computed in their places within its result.

    Its `pieces` rule says where they lie, its `lower` rule moves those that were made elsewhere.
    """
    rules = None if node.op is None else node.op.rules
    return rules is not None and rules.pieces is not None and rules.lower is not None


def joins(node: Node) -> bool:
    """Whether a fused node is a mere concatenation of its inputs."""
    body = node.params.get("body")
    if not isinstance(body, Graph) or len(body.outputs) != 1:
        return False
    (only, *more) = [each for each in body.walk() if each.op is not None]
    same = [a is b for a, b in zip(only.inputs, body.inputs, strict=False)]
    if more or not in_pieces(only) or not all(same) or len(only.inputs) != len(body.inputs):
        return False
    specs, whole = [entry.spec for entry in only.inputs], only.specs[0].shape
    assert only.op is not None
    parts = only.op.parts(far(whole), specs, only.params)
    if [source for _, source in parts] != list(range(len(specs))):
        return False
    # Not if an input is broadcast to its part, or parts overlap or leave gaps.
    pairs = zip(parts, specs, strict=True)
    fits = all(same_shape_for_all(layout.shape, spec.shape) for (layout, _), spec in pairs)
    return fits and same_for_all(sum([product(x.shape) for x, _ in parts]), product(whole))


def is_view(node: Node) -> bool:
    """Whether the results of a node are views of its first input."""
    return node.op is not None and node.op.rules.view is not None


def seen_by(entry: Entry) -> Entry:
    """The array behind views: what a view shows; for any other entry the entry itself."""
    while is_view(entry.node):
        entry = entry.node.inputs[0]
    return entry


def is_mover(node: Node) -> bool:
    """Whether a node reads elements at other positions than that of the element it computes."""
    if is_view(node):
        return not node.op.alignment  # type: ignore[union-attr]
    return in_pieces(node) or _has_element(node)


def _has_element(node: Node) -> bool:
    """Whether the operation has an `element` rule."""
    return node.op is not None and node.op.rules.element is not None


def reads_rows(node: Node, domain: Domain) -> bool:
    """Whether a mover can be computed after the reduced loops of each row.

    It can if it reads values of this nest only in its own row: along the dimensions that are not
    reduced at its own position, along reduced ones anywhere, since the whole row is known by then.
    """
    placed = Domain(domain.shape)
    placed.reduced = domain.reduced
    if not domain.reduced or not _has_element(node) or not placed.add(node):
        return False
    own = placed.placements[node.entries[0]]
    for entry, position in positions(node):
        placement = domain.placements.get(entry)
        if placement is None:
            continue
        for at, extent, dimension in zip(position, entry.shape, placement, strict=True):
            along_row = at is not None and at.loop is not None and own[at.loop] == dimension
            if not (_is_one(extent) or along_row or dimension in domain.reduced):
                return False
    return True


class _Unknown:
    """Stands for any number an `element` rule computes, while `positions` runs the rule."""

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self

    def __add__(self, other: Any) -> _Unknown:
        return self

    __sub__ = __mul__ = __floordiv__ = __mod__ = __lt__ = __ge__ = __add__


class _Probe:
    """An input of an `element` rule that notes at which positions it is read."""

    def __init__(self, entry: Entry, found: list[tuple[Entry, tuple[At | None, ...]]]) -> None:
        self.shape, self.dtype = entry.shape, entry.dtype
        self._entry = entry
        self._found = found

    def at(self, *position: Any) -> _Unknown:
        places = tuple(at if isinstance(at, At) else None for at in position)
        self._found.append((self._entry, places))
        return _Unknown()


def positions(node: Node) -> list[tuple[Entry, tuple[At | None, ...]]]:
    """The positions at which a mover reads its inputs; None for a position computed from data."""
    found: list[tuple[Entry, tuple[At | None, ...]]] = []
    ndim = node.specs[0].ndim
    at = tuple(along(axis, ndim) for axis in range(ndim))
    sources = [_Probe(entry, found) for entry in node.inputs]
    assert node.op is not None and node.op.rules.element is not None
    node.op.rules.element(_Unknown(), at, *sources, **node.params)
    return found


def _is_one(extent: int) -> bool:
    return extent == 1


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        # An empty axis counts as 2: the shape must be larger than the shape with that axis reduced.
        size *= seen(extent) or 2
    return size
