"""Bodies: the elementwise operations and reductions of a graph, written into a nest of loops."""

from __future__ import annotations

from typing import Any

from gemel.codegen.lane import Lane, Recorder
from gemel.codegen.nest import Kernel, Nest, Number, Place
from gemel.codegen.program import (
    CONTIGUOUS,
    INPUT,
    OUTER,
    OUTPUT,
    Operand,
    Program,
)
from gemel.dtype import DTYPES, DType, as_number, check_held, float64, int64
from gemel.errors import CompileError
from gemel.ir.graph import Entry, Graph, Node
from gemel.ir.layout import dense_strides
from gemel.ir.op_kinds import Elementwise, Reduction, operand_specs
from gemel.passes.domain import Domain, Placement
from gemel.passes.fuse import cheap


class BodyWriter:
    """Writes the body of a fused node into a nest (or anything that loads and stores like one).

    `given` says where the body's inputs are, a `Place` or a `Number`; `ready` holds values that are
    there already (a product's accumulator).
    """

    def __init__(self, nest: Any, domain: Domain, given: dict[Entry, Any]) -> None:
        self.nest = nest
        self.domain = domain
        self.given = given
        self.values: dict[tuple[Entry, Placement], Any] = {}
        self.ready: dict[Entry, Any] = {}

    def value(self, entry: Entry, placement: Placement) -> Any:
        """The recorded value of an entry whose axes run along these dimensions."""
        if entry in self.ready:
            return self.ready[entry]
        placement = self.domain.placements.get(entry, placement)
        key = (entry, placement)
        if key not in self.values:
            self.values[key] = self._written(entry, placement)
        return self.values[key]

    def strides(self, place: Place, placement: Placement) -> tuple[int, ...]:
        """A place's strides along the domain's dimensions."""
        return spread(place.shape, place.strides, placement, len(self.domain.shape))

    def _written(self, entry: Entry, placement: Placement) -> Any:
        node = entry.node
        if node.is_number:
            return self.nest.scalar(Number(("constant", node.value), entry.dtype))
        if node.op is None:
            where = self.given[entry]
            if isinstance(where, Number):
                return self.nest.scalar(where)
            return self.nest.load(where, self.strides(where, placement))
        if isinstance(node.op, Elementwise):
            results = self._elementwise(node, placement)
            self.values.update(zip(((e, placement) for e in node.entries), results, strict=True))
            return results[entry.index]
        source = node.inputs[0]
        if isinstance(node.op, Reduction):
            value = self.value(source, tuple(range(len(self.domain.shape))))
            return self._reduced(node.op, value, source.dtype).cast(entry.dtype.compute)
        return self.value(source, aligned(placement, source))

    def _reduced(self, op: Reduction, value: Any, dtype: DType) -> Any:
        """A value combined over the reduced dimensions; itself when they all have length 1."""
        value = value.cast(op.accumulator(dtype))
        if self.domain.reduced:
            return self.nest.recorder.reduce(op.combine, value)
        if op.combine.startswith("arg"):
            return Lane(self.nest.recorder).constant(0, int64)
        return value

    def _elementwise(self, node: Node, placement: Placement) -> list[Any]:
        op = node.op
        assert isinstance(op, Elementwise)
        types, _ = op.types(tuple(e.spec for e in node.inputs), node.params)
        weak = node.specs[0].weak
        if weak:
            types = tuple(map(as_number, types))
        pairs = list(zip(node.inputs, types, strict=True))
        for e, d in pairs:
            if e.node.is_number:
                check_held(op.name, e.node.value, d)
        values = [self.value(e, aligned(placement, e)).cast(d.compute) for e, d in pairs]
        lane = self._lane(node.entries[0], placement)
        found = op.body(lane, *values, **node.params)
        results = []
        for each, spec in zip(found if op.outputs > 1 else (found,), node.specs, strict=True):
            result = lane.value(each) if not hasattr(each, "dtype") else each
            # Rounded to what is kept between steps, as separate kernels would.
            to = as_number(spec.dtype) if weak else spec.dtype
            results.append(result.cast(to).cast(to if weak else to.compute))
        return results

    def _lane(self, entry: Entry, placement: Placement) -> Lane:
        shape, ndim = entry.shape, len(self.domain.shape)
        unit = [1] * len(shape)

        def index(axis: int) -> Any:
            one = tuple(1 if a == axis else 0 for a in range(len(shape)))
            return self.nest.running(spread(shape, one, placement, ndim))

        op = entry.node.op
        if op is None or not op.random:
            return Lane(self.nest.recorder, index=index)
        linear = spread(shape, dense_strides(shape) or tuple(unit), placement, ndim)
        call = entry.node.params["call"]

        def random(*stream: Any) -> tuple[Any, ...]:
            if not stream:
                numbers = Number(("seed",), int64), Number(("call", call), int64)
                stream = tuple(map(self.nest.scalar, numbers))
            return (self.nest.running(linear), *stream)

        return Lane(self.nest.recorder, random=random, index=index)


def spread(
    shape: tuple[int, ...], strides: tuple[int, ...], placement: Placement, ndim: int
) -> tuple[int, ...]:
    """Strides by axis as strides by dimension of the domain: 0 where the value does not run."""
    found = [0] * ndim
    for extent, stride, dimension in zip(shape, strides, placement, strict=True):
        if dimension is not None and extent != 1:
            found[dimension] += stride
    return tuple(found)


def aligned(placement: Placement, entry: Entry) -> Placement:
    """The placement of an input, lined up from the right with its user's."""
    lead = len(placement) - entry.ndim
    return placement[lead:] if lead >= 0 else (*[None] * -lead, *placement)


def write_loops(body: Graph, given: dict[Entry, Any], outputs: list[Place]) -> Kernel:
    """The kernel of a fused body of elementwise operations and reductions."""
    results = {entry.node for entry in body.outputs}
    nodes = [n for n in body.walk() if n.op is not None and (not cheap(n) or n in results)]
    domain = Domain.of_all(nodes)
    if domain is None:
        raise CompileError(f"the steps of {body.name} do not fit the same loops:\n{body}")
    nest = Nest(domain.shape, domain.reduced or frozenset())
    writer = BodyWriter(nest, domain, given)
    for entry, place in zip(body.outputs, outputs, strict=True):
        placement = domain.placements[entry]
        nest.store(place, writer.value(entry, placement), writer.strides(place, placement))
    return nest.finish()


def write_elementwise(
    op: Elementwise,
    rank: int,
    operands: tuple[tuple[int, int], ...],
    parameters: dict[str, Any],
    target: tuple[DType, int] | None = None,
) -> tuple[Program, DType, bytes]:
    """The program of one elementwise call as the core makes it: arrays, then the result.

    With it the dtype of the result, and what the core calls the limits of whole numbers.
    """
    specs = operand_specs(rank, operands)
    alone = all(spec.weak for spec in specs)
    types, (dtype,) = op.types(specs, parameters)
    recorder = Recorder()
    described: list[Operand] = []
    scalars: list[DType] = []
    values = []
    for (code, stride), compute in zip(operands, types, strict=True):
        if code < 0:
            passed = float64 if code == -3 else int64
            scalars.append(passed)
            value = recorder.scalar(len(scalars) - 1, passed)
        else:
            described.append(Operand(DTYPES[code], INPUT, stride))
            value = recorder.load(len(described) - 1, DTYPES[code])
        values.append(value.cast(compute.compute))
    lane = Lane(recorder)
    found = op.body(lane, *values, **parameters)
    stored, stride = target or (dtype, CONTIGUOUS)
    described.append(Operand(stored, OUTPUT, stride))
    result = found if hasattr(found, "position") else lane.value(found)
    recorder.store(len(described) - 1, result.cast(dtype).cast(stored))
    program = Program(rank, 0, OUTER, tuple(described), tuple(scalars), 0, tuple(recorder.code))
    return program, stored, limits(operands, (stored,) * len(types) if alone else types)


def limits(operands: tuple[tuple[int, int], ...], types: tuple[DType, ...]) -> bytes:
    """By operand the code of the integer dtype that a whole number must fit; nothing for any."""
    found = bytes(
        d.code if code == -2 and d.kind in "iu" and d is not int64 else 255
        for (code, _), d in zip(operands, types, strict=True)
    )
    return b"" if set(found) <= {255} else found
