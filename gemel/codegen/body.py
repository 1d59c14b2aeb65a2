"""Bodies: the operations of a fused node, written into a nest of loops."""

from __future__ import annotations

from typing import Any

from gemel.codegen.elements import ElementWriter
from gemel.codegen.lane import Lane, Recorder
from gemel.codegen.nest import Kernel, Nest, Place
from gemel.codegen.pieces import write_pieces
from gemel.codegen.program import CONTIGUOUS, INPUT, OUTER, OUTPUT, Operand, Program
from gemel.dtype import DTYPES, DType, float64, int64
from gemel.errors import CompileError
from gemel.ir.graph import Entry, Graph, Node
from gemel.ir.op_kinds import Elementwise, Reduction, operand_specs
from gemel.passes.domain import Domain, Placement, in_pieces, is_mover, is_view
from gemel.passes.fuse import cheap


def aligned(placement: Placement, entry: Entry) -> Placement:
    """The placement of an input, lined up from the right with its user's."""
    lead = len(placement) - entry.ndim
    return placement[lead:] if lead >= 0 else (*[None] * -lead, *placement)


def write_loops(body: Graph, given: dict[Entry, Any], outputs: list[Place]) -> list[Kernel]:
    """The kernel of a fused body of operations that share loops; or one for each of its parts."""
    if any(map(in_pieces, body.walk())):
        return write_pieces(body, given, outputs)
    domain = Domain.of_all(in_loops(body))
    if domain is None:
        raise CompileError(f"the steps of {body.name} do not fit the same loops:\n{body}")
    nest = Nest(domain.shape, domain.reduced or frozenset())
    writer = ElementWriter(nest, domain, given)
    for entry, place in zip(body.outputs, outputs, strict=True):
        placement = domain.placements[entry]
        nest.store(place, writer.value(entry, placement), writer.strides(place, placement))
    return [nest.finish()]


def in_loops(body: Graph) -> list[Node]:
    """The operations of a body that have a place in its loops, each after its inputs.

    What a mover reads is computed where it is read instead; but what is reduced runs along all
    loops.
    """
    nodes = [n for n in body.walk() if n.op is not None]
    pending = [entry.node for entry in body.outputs]
    pending += [n.inputs[0].node for n in nodes if isinstance(n.op, Reduction)]
    pending += [n for n in nodes if isinstance(n.op, Reduction)]
    results = {entry.node for entry in body.outputs}
    found: set[Node] = set()
    while pending:
        node = pending.pop()
        if node.op is None or node in found or (cheap(node) and node not in results):
            continue
        found.add(node)
        if not is_mover(node):
            pending += [entry.node for entry in node.inputs]
    return [n for n in nodes if n in found and not (is_mover(n) and is_view(n))]


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
    checked = op.checked(specs)
    if checked is not None and not specs[checked].weak:
        recorder.check(values[checked] >= 0)
    found = op.body(lane, *values, **parameters)
    stored, stride = target or (dtype, CONTIGUOUS)
    described.append(Operand(stored, OUTPUT, stride))
    result = found if hasattr(found, "position") else lane.value(found)
    recorder.store(len(described) - 1, result.cast(dtype).cast(stored))
    program = Program(rank, 0, OUTER, tuple(described), tuple(scalars), 0, tuple(recorder.code))
    return program, stored, limits(operands, (stored,) * len(types) if alone else types, checked)


#: Added to the code of a dtype: no number below 0, either. As in `program/elementwise.h`.
NATURAL = 64


def limits(
    operands: tuple[tuple[int, int], ...], types: tuple[DType, ...], checked: int | None
) -> bytes:
    """By operand the code of the integer dtype that a whole number must fit; nothing for any.

    That of the `checked` one must not be below 0.
    """
    found = bytes(
        d.code + NATURAL * (i == checked)
        if code == -2 and d.kind in "iu" and (d is not int64 or i == checked)
        else 255
        for i, ((code, _), d) in enumerate(zip(operands, types, strict=True))
    )
    return b"" if set(found) <= {255} else found
