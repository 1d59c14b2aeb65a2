"""Bodies: the operations of a fused node, written into nests of loops.

A result assembled from parts (by joining, padding or assignment to a part) has one kernel per part.
Each kernel also computes the operations that follow, for its part, and the operations the part is
made from: nothing is stored in between.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from gemel.codegen.language.elements import ElementWriter
from gemel.codegen.language.lane import Lane, Recorder, recorded
from gemel.codegen.language.launch import Launch, Number, Place
from gemel.codegen.language.nest import Nest
from gemel.codegen.language.order import always
from gemel.codegen.language.program import CONTIGUOUS, INPUT, OUTER, OUTPUT, Operand, Program
from gemel.dtype import DTYPES, DType, float64, int64
from gemel.errors import CompileError
from gemel.extent import same_for_all
from gemel.ir.graph import Entry, Graph, Node, walk
from gemel.ir.layout import Layout
from gemel.ir.op_kinds import Elementwise, Reduction, operand_specs
from gemel.ir.position import far, through
from gemel.ops.shape import MOST_INTERLEAVED
from gemel.passes.domain import Domain, Placement, in_pieces, is_mover, is_view
from gemel.passes.fuse import cheap
from gemel.spec import product, same_shape, same_shape_for_all


def aligned(placement: Placement, entry: Entry) -> Placement:
    """The placement of an input, aligned from the right with the placement of its user."""
    lead = len(placement) - entry.ndim
    return placement[lead:] if lead >= 0 else (*[None] * -lead, *placement)


def write_loops(body: Graph, given: dict[Entry, Any], outputs: list[Place]) -> list[Launch]:
    """The launch of a fused body whose operations share loops, or one launch for each part."""
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


def read_across(body: Graph, places: dict[Entry, Any]) -> list[Entry]:
    """The inputs of a body to copy before its loops, if it reduces: those that lie in another order
    than results or inputs of the same shape, or than windows of them. No order of loops suits both,
    and while elementwise loops transpose such inputs in squares, reductions would read them element
    by element."""
    layouts = {e: place.layout for e, place in places.items() if isinstance(place, Place)}
    across = [entry for entry, layout in layouts.items() if layout.lies_across]
    if not across or not any(isinstance(node.op, Reduction) for node in body.walk()):
        return []
    lines = [e for e, layout in layouts.items() if layout.strides and always(layout.strides[-1], 1)]
    shapes = [entry.shape for entry in (*body.outputs, *lines)]
    seen = {node.inputs[0] for node in body.walk() if _makes_windows(node)}
    return [
        entry
        for entry in across
        if entry in seen or any(same_shape_for_all(entry.shape, shape) for shape in shapes)
    ]


def _makes_windows(node: Node) -> bool:
    """Whether an operation reads each element of its only input several times, by a rule."""
    if not is_mover(node) or is_view(node) or len(node.inputs) != 1:
        return False
    return node.specs[0].ndim > node.inputs[0].ndim


def in_loops(body: Graph) -> list[Node]:
    """The operations of a body that have a place in its loops, each after its inputs.

    What a mover reads is not among them: it is computed where it is read. But whatever is reduced
    runs along all loops.
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


# --- results put together of parts ----------------------------------------------------------


def write_pieces(body: Graph, given: dict[Entry, Any], outputs: list[Place]) -> list[Launch]:
    """The launches of a fused body with one operation in pieces; all results have its shape."""
    node = next(n for n in body.walk() if in_pieces(n))
    parts = _parts(node, far(node.specs[0].shape))
    regions = [[layout for layout, _ in _parts(node, place.layout)] for place in outputs]
    shared = _sharing(node, parts)
    nests: list[Nest] = []
    writer: ElementWriter | None = None
    for number, (part, source) in enumerate(parts):
        there = type(source) is int and given.get(node.inputs[source])
        if there and len(outputs) == 1 and _lies(there, outputs[0].at(regions[0][number])):
            continue
        if not (nests and _interleaves(regions[0], number)):
            if shared:
                together = writer and same_shape(nests[-1].shape, part.shape)
            else:
                together = number > 0 and _alike(parts[number - 1], parts[number])
            if not together:
                nests.append(Nest(part.shape))
                writer = None
        nest = nests[-1]
        if writer is None or not shared:
            writer = ElementWriter(nest, Domain(part.shape), given)
        here = writer.placed(part.shape, tuple(range(len(part.shape))))
        writer.ready[node.entries[0]] = _value(writer, node, source, here)
        position = through(part, node.specs[0].ndim, here, writer.nowhere)
        for entry, place, layouts in zip(body.outputs, outputs, regions, strict=True):
            nest.store(place.at(layouts[number]), writer.moved(entry, position))
    return [nest.finish() for nest in nests]


def _alike(before: tuple[Layout, Any], part: tuple[Layout, Any]) -> bool:
    """Whether two parts are filled with the same number and have the same shape for all sizes."""
    (one, number), (other, source) = before, part
    numbers = type(number) is type(source) is float and number == source
    return numbers and same_shape_for_all(one.shape, other.shape)


def _sharing(node: Node, parts: list[tuple[Layout, Any]]) -> bool:
    """Whether each part shares computed values with another part, so that one kernel computes them
    for all parts. Not if parts overlap: the later ones must be written last."""
    together = sum([product(layout.shape) for layout, _ in parts])
    if not same_for_all(together, product(node.specs[0].shape)):
        return False
    made: list[set[Node]] = []
    for _, source in parts:
        if type(source) is not int:
            return False
        below = walk([node.inputs[source]])
        made.append({each for each in below if each.op is not None and not is_view(each)})
    counts = Counter(each for nodes in made for each in nodes)
    return len(made) > 1 and all(any(counts[each] > 1 for each in nodes) for nodes in made)


def stays_in_place(body: Graph, inner: set[Entry]) -> bool:
    """Whether a body overwrites parts of an array of `inner` and uses the array for nothing else.

    It may then write into that array itself, since the remaining elements are already there.
    """
    node = body.outputs[0].node
    if len(body.outputs) > 1 or not in_pieces(node) or node.inputs[0] not in inner:
        return False
    parts = _parts(node, far(node.specs[0].shape))
    whole = parts[0][1] == 0 and same_shape(parts[0][0].shape, node.specs[0].shape)
    reads = [entry for each in body.walk() for entry in each.inputs if entry in inner]
    return whole and len(reads) == 1


def _lies(source: Any, part: Place) -> bool:
    """Whether a part of the result is in its place already: the array that is partly
    overwritten."""
    if not isinstance(source, Place) or source.buffer is not part.buffer:
        return False
    axes = zip(part.shape, source.strides, part.strides, strict=True)
    same = same_for_all(source.layout.offset, part.layout.offset)
    return same and all(n == 1 or same_for_all(a, b) for n, a, b in axes)


def _parts(node: Node, layout: Layout) -> list[tuple[Layout, Any]]:
    """Where in the result each part lies, and its source: the number of an input, or a float."""
    assert node.op is not None
    specs = [entry.spec for entry in node.inputs]
    return node.op.parts(layout, specs, node.params)


def _value(writer: ElementWriter, node: Node, source: Any, here: Any) -> Any:
    """The value of a part, rounded to the dtype of the result."""
    dtype = node.specs[0].dtype
    if isinstance(source, float):
        value = writer.nest.scalar(Number(("constant", source), float64))
    else:
        entry = node.inputs[source]
        value = writer.moved(entry, writer.aligned(here, entry))
    return value.cast(dtype)


def _interleaves(parts: list[Layout], number: int) -> bool:
    """Whether a part is interleaved with the parts before it, so that one kernel writes all."""
    part = parts[number]
    along = (s for n, s in zip(reversed(part.shape), reversed(part.strides), strict=True) if n != 1)
    step = next(along, 0)
    if type(step) is not int or not 1 < step <= MOST_INTERLEAVED or number % step == 0:
        return False
    before = parts[number - 1]
    alike = same_shape(before.shape, part.shape) and before.strides == part.strides
    return alike and same_for_all(before.offset + 1, part.offset)


# --- one elementwise call --------------------------------------------------------------------


def write_elementwise(
    op: Elementwise,
    rank: int,
    operands: tuple[tuple[int, int], ...],
    parameters: dict[str, Any],
    target: tuple[DType, int] | None = None,
) -> tuple[Program, tuple[DType, ...], bytes]:
    """The program of one elementwise call as the core makes it; its operands are arrays, then
    results.

    Also returns the dtypes of the results, and what the core calls the limits of whole numbers.
    """
    specs = operand_specs(rank, operands)
    alone = all(spec.weak for spec in specs)
    types, dtypes = op.types(specs, parameters)
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
    results = recorded(op, lane, values, parameters)
    stored, stride = ((target[0],), target[1]) if target else (dtypes, CONTIGUOUS)
    for each, dtype, written in zip(results, dtypes, stored, strict=True):
        described.append(Operand(written, OUTPUT, stride))
        recorder.store(len(described) - 1, each.cast(dtype).cast(written))
    program = Program(rank, 0, OUTER, tuple(described), tuple(scalars), 0, tuple(recorder.code))
    held = (stored[0],) * len(types) if alone else types
    return program, stored, limits(operands, held, checked)


#: Added to the code of a dtype: the number must not be negative. As in `program/elementwise.h`.
NATURAL = 64


def limits(
    operands: tuple[tuple[int, int], ...], types: tuple[DType, ...], checked: int | None
) -> bytes:
    """For each operand, the code of the integer dtype that a Python int must fit; 255 for no limit.

    The `checked` operand must not be negative either. Empty if there are no limits at all.
    """
    found = bytes(
        d.code + NATURAL * (i == checked)
        if code == -2 and d.kind in "iu" and (d is not int64 or i == checked)
        else 255
        for i, ((code, _), d) in enumerate(zip(operands, types, strict=True))
    )
    return b"" if set(found) <= {255} else found
