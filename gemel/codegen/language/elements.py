"""Elements: the value at a position of the loops, written into a nest.

A value that has a place in the loops is computed there once. If it is read at another position
(through a view, or where an operation's `element` rule says), it is computed again for that
position: its elementwise operations are repeated, down to what is stored in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any

from gemel.codegen.language.carry import of_one, reduced
from gemel.codegen.language.lane import Lane, naming, recorded
from gemel.codegen.language.launch import Number, Place
from gemel.dtype import DType, as_number, check_held, int64
from gemel.errors import AxisError, CompileError, FormulaError
from gemel.ir.combiner import Combiner
from gemel.ir.graph import Entry, Node
from gemel.ir.layout import Layout, dense_strides
from gemel.ir.op_kinds import Elementwise, Reduction
from gemel.ir.position import At, along, seen_through
from gemel.passes.domain import Domain, Placement, is_mover
from gemel.spec import Spec

#: A position along each axis of a value.
Position = tuple[At, ...]


class Source:
    """An input of an operation, as its `element` rule reads it."""

    __slots__ = ("_entry", "_writer", "dtype", "shape")

    def __init__(self, writer: ElementWriter, entry: Entry) -> None:
        self.shape = entry.shape
        self.dtype = entry.dtype
        self._writer = writer
        self._entry = entry

    def at(self, *position: Any) -> Any:
        """The element at a position: an `At` or a computed number for each axis."""
        return self._writer.moved(self._entry, self._places(position))

    def at_or(self, number: float, *position: Any) -> Any:
        """The element at a position, as `at`, but a number where the array has no such position."""
        return self._writer.moved_within(self._entry, self._places(position), number)

    def _places(self, position: tuple[Any, ...]) -> Position:
        if len(position) != len(self.shape):
            raise FormulaError(
                f"at() of its input {self._entry.spec} takes {len(self.shape)} positions, one for "
                f"each axis, not {len(position)}"
            )
        steps = self._writer.nowhere.steps
        return tuple(
            at if isinstance(at, At) else At(steps, 0, ((whole(at), 1),)) for at in position
        )


def _all(conditions: Sequence[Any]) -> Any:
    """Whether all of these hold."""
    return reduce(and_, conditions)


def whole(position: Any) -> Any:
    """A computed position as an int64. Raises `FormulaError` for what is none."""
    if not hasattr(position, "cast"):
        raise FormulaError(
            f"{position!r} is no position: use those that the rule is given, loop.number of them, "
            "or loop.constant"
        )
    return position.cast(int64)


class ElementWriter:
    """Writes the values of a fused node's body into a nest (or into an object with its interface).

    `given` says where the body's inputs are: a `Place` or a `Number` for each. `ready` holds values
    that exist already (the sum of a product).
    """

    def __init__(self, nest: Any, domain: Domain, given: dict[Entry, Any]) -> None:
        self.nest = nest
        self.domain = domain
        self.given = given
        self.ready: dict[Entry, Any] = {}
        self.nowhere = along(None, len(domain.shape))
        #: What must hold where arrays are read.
        self._conditions: tuple[Any, ...] = ()
        self._values: dict[tuple[Any, ...], Any] = {}
        self._places: dict[tuple[int, str], Place] = {}

    def value(self, entry: Entry, placement: Placement) -> Any:
        """The recorded value of an entry whose axes run along these dimensions."""
        return self._found(entry, self.placed(entry.shape, placement), False)

    def moved(self, entry: Entry, position: Position) -> Any:
        """The recorded value of an entry at any position; axes of length 1 have only one
        position."""
        pairs = zip(position, entry.shape, strict=True)
        return self._found(entry, tuple(self.nowhere if n == 1 else at for at, n in pairs), True)

    def moved_within(self, entry: Entry, position: Position, number: float) -> Any:
        """The recorded value of an entry at a position, or a number if it has no such position."""
        nest, before = self.nest, self._conditions
        inside = [
            nest.inside(nest.number(at), extent)
            for at, extent in zip(position, entry.shape, strict=True)
            if at.loop is None and at is not self.nowhere
        ]
        self._conditions = (*before, *inside)
        value = self.moved(entry, position)
        self._conditions = before
        chosen = nest.recorder.code[value.position].name == "load_where"
        if not inside or (chosen and number == 0):
            return value
        return Lane(nest.recorder).where(_all(inside), value, number)

    def placed(self, shape: tuple[int, ...], placement: Placement) -> Position:
        """The position that a placement stands for."""
        loops = len(self.domain.shape)
        pairs = zip(shape, placement, strict=True)
        return tuple(along(None if n == 1 else d, loops) for n, d in pairs)

    def strides(self, place: Place, placement: Placement) -> tuple[int, ...]:
        """A place's strides along the domain's dimensions."""
        return self._along(place.strides, self.placed(place.shape, placement)).steps

    def _found(self, entry: Entry, position: Position, moved: bool) -> Any:
        """The recorded value of an entry at a position. With `moved`, another value reads the entry
        at this position, which may differ from the position of the loops. It is then computed for
        this position, even if the domain has a placement for the entry."""
        if entry in self.ready:
            return self.ready[entry]
        if not moved and entry in self.domain.placements:
            position = self.placed(entry.shape, self.domain.placements[entry])
        key = (entry, moved, position, *(each.position for each in self._conditions))
        if key not in self._values:
            self._values[key] = self._written(entry, position, moved)
        return self._values[key]

    def _written(self, entry: Entry, position: Position, moved: bool) -> Any:
        node = entry.node
        if node.is_number:
            return self.nest.scalar(Number(("constant", node.value), entry.dtype))
        if node.op is None:
            where = self.given[entry]
            numbered = isinstance(where, Number)
            return self.nest.scalar(where) if numbered else self._loaded(where, position)
        if isinstance(node.op, Elementwise):
            return self._elementwise(node, position, moved)[entry.index]
        if isinstance(node.op, Reduction):
            return self._reduced(node, entry, position, moved)
        if node.op.rules.element is not None:
            found = self._by_rule(node, position)
            if self.nest.failure is None and self.nest.has("check"):
                self.nest.failure = ("IndexError", f"{node.op.name}: an index is out of bounds")
            return found
        source = node.inputs[0]
        if is_mover(node):
            places = seen_through(node, entry.index, position, self.nowhere)
            return self.moved(source, places)
        if node.op.alignment == "reshape":  # only adds or removes axes of length 1
            return self._found(source, self._regrouped(position, node.specs[0], source), moved)
        return self._found(source, self.aligned(position, source), moved)

    def _by_rule(self, node: Node, position: Position) -> Any:
        """What an operation's `element` rule says is at a position. Raises `FormulaError`, see
        `naming`."""
        op = node.op
        assert op is not None and op.rules.element is not None
        sources = [Source(self, each) for each in node.inputs]
        with naming(op.name, Source, At):
            found = op.rules.element(self.nest, position, *sources, **node.params)
            if hasattr(found, "cast"):
                return found
            return Lane(self.nest.recorder).cast(found, node.specs[0].dtype.compute)

    def aligned(self, position: Position, entry: Entry) -> Position:
        """The position of an input, aligned from the right with its user's position."""
        lead = len(position) - entry.ndim
        places = position[lead:] if lead >= 0 else (*[self.nowhere] * -lead, *position)
        pairs = zip(places, entry.shape, strict=True)
        return tuple(self.nowhere if n == 1 else at for at, n in pairs)

    def _regrouped(self, position: Position, result: Spec, entry: Entry) -> Position:
        """The position of an input, where axes of length 1 were added or removed."""
        pairs = zip(position, result.shape, strict=True)
        moving = iter([at for at, n in pairs if n != 1])
        return tuple(self.nowhere if n == 1 else next(moving) for n in entry.shape)

    # --- reading memory ---------------------------------------------------------------------

    def _along(self, strides: tuple[int, ...], position: Position) -> At:
        """The offset in memory of a position, in elements."""
        steps, offset = [0] * len(self.domain.shape), 0
        values: tuple[tuple[Any, Any], ...] = ()
        for stride, at in zip(strides, position, strict=True):
            if at.loop is not None:
                steps[at.loop] += stride
            elif at is not self.nowhere:
                far = at * stride
                steps = [a + b for a, b in zip(steps, far.steps, strict=True)]
                offset, values = offset + far.offset, values + far.values
        return At(tuple(steps), offset, values)

    def _loaded(self, place: Place, position: Position) -> Any:
        used = [n != 1 for n in place.shape]
        strides = tuple(s for s, many in zip(place.strides, used, strict=True) if many)
        at = self._along(strides, tuple(p for p, many in zip(position, used, strict=True) if many))
        if at.values and self._conditions:  # everything is part of the index: it must be valid
            index = Lane(self.nest.recorder).where(_all(self._conditions), self.nest.number(at), 0)
            return self.nest.gather(self.nest.operand(place, self.nowhere.steps), index, 1)
        place = self._shifted(place, at.offset)
        if self._conditions:
            return self.nest.load_where(place, at.steps, self._conditions)
        if not at.values:
            return self.nest.load(place, at.steps)
        operand = self.nest.operand(place, at.steps)
        (first, stride), *more = at.values
        if more:
            first, stride = self.nest.sum(at.values), 1
        return self.nest.gather(operand, first, stride)

    def _shifted(self, place: Place, offset: Any) -> Place:
        """A place that begins `offset` elements later; equal arguments give the same object."""
        if type(offset) is int and offset == 0:
            return place
        key = (id(place), repr(offset))
        if key not in self._places:
            layout = place.layout
            whole = Layout(layout.shape, layout.strides, layout.offset + offset)
            self._places[key] = place.at(whole)
        return self._places[key]

    # --- computing --------------------------------------------------------------------------

    def _reduced(self, node: Node, entry: Entry, position: Position, moved: bool) -> Any:
        """A value combined over the reduced dimensions; the value itself if all have length 1."""
        op, source = node.op, node.inputs[0]
        assert isinstance(op, Reduction)
        if moved:
            own = self.placed(entry.shape, self.domain.placements[entry])
            if own != position:
                raise CompileError(f"{op.name} is read where the loops are not: {node}")
            return self._found(entry, own, False)
        everywhere = self.placed(self.domain.shape, tuple(range(len(self.domain.shape))))
        value = self._found(source, everywhere, False).cast(op.accumulator(source.dtype))
        if self.domain.reduced:
            value = self._combined(op, value)
        elif isinstance(op.combine, Combiner):
            value = of_one(self.nest.recorder, op.combine, value, op.name)
        return value.cast(entry.dtype.compute)

    def _combined(self, op: Reduction, value: Any) -> Any:
        if isinstance(op.combine, Combiner):
            return reduced(self.nest.recorder, op.combine, value, op.name)
        return self.nest.recorder.reduce(op.combine, value)

    def _elementwise(self, node: Node, position: Position, moved: bool) -> list[Any]:
        op = node.op
        assert isinstance(op, Elementwise)
        types, _ = op.types(tuple(e.spec for e in node.inputs), node.params)
        weak = node.specs[0].weak
        if weak:
            types = tuple(map(as_number, types))
        values = []
        for entry, dtype in zip(node.inputs, types, strict=True):
            if entry.node.is_number:
                check_held(op.name, entry.node.value, dtype)
            value = self._found(entry, self.aligned(position, entry), moved)
            values.append(value.cast(dtype.compute))
        lane = self._lane(node, position)
        checked = op.checked([e.spec for e in node.inputs]) if node.fails else None
        if checked is not None:
            self.nest.recorder.check(values[checked] >= 0)
            self.nest.failure = op.failure
        results = []
        for result, spec in zip(recorded(op, lane, values, node.params), node.specs, strict=True):
            # Rounded to the dtype of the result, as if each step stored it in a separate kernel.
            to: DType = as_number(spec.dtype) if weak else spec.dtype
            results.append(result.cast(to).cast(to if weak else to.compute))
        return results

    def _lane(self, node: Node, position: Position) -> Lane:
        shape, op = node.specs[0].shape, node.op
        assert op is not None

        def index(axis: int) -> Any:
            if not -len(shape) <= axis < len(shape):
                rule = f"its result, {node.specs[0]}, has no such axis"
                raise AxisError(f"{op.name}: xp.index({axis}): {rule}")
            return self.nest.number(position[axis])

        at = index if op.positional else None
        if not op.random:
            return Lane(self.nest.recorder, index=at)
        call = node.params["call"]

        def random(*stream: Any) -> tuple[Any, ...]:
            if not stream:
                numbers = Number(("seed",), int64), Number(("call", call), int64)
                stream = tuple(map(self.nest.scalar, numbers))
            return (self.nest.number(self._along(dense_strides(shape), position)), *stream)

        return Lane(self.nest.recorder, random=random, index=at)
