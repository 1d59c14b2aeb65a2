"""The table of a network's layers for `Block.summary`."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

from gemel import autograd
from gemel.errors import OperandError, TraceError
from gemel.gluon.shapes import run_with_symbols
from gemel.ir.graph import Entry, Graph, Node, placeholder, walk
from gemel.ops.linalg import matmul
from gemel.passes import expand
from gemel.spec import Spec, product
from gemel.tracing.nested import flatten

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gemel.gluon.block import Block


class Row:
    """One call of a block: its place in the network, the shape of its result, and its nodes."""

    def __init__(self, place: str, block: Block) -> None:
        self.place = place
        self.block = block
        self.shape: Any = None
        self.outputs: list[Any] = []
        self.begin = _now()
        self.end = 0
        self.operations = 0
        #: The parameters that no earlier row has.
        self.parameters: list[Any] = []

    def finish(self, result: Any, counted: set[int]) -> None:
        """Record the results."""
        self.end = _now()
        results: list[Any] = []
        flatten(result, results, [])
        shapes = [tuple(int(n) for n in array.shape) for array in results]
        self.shape = shapes[0] if len(shapes) == 1 else shapes
        # Results that an earlier row has belong to that row.
        self.outputs = [array for array in results if id(array) not in counted]
        self.parameters = [p for p in self.block.params.values() if id(p) not in counted]
        counted.update(map(id, (*self.outputs, *self.parameters)))

    @property
    def count(self) -> int:
        """The number of elements in its parameters."""
        return sum(size_of(p) for p in self.parameters)

    @property
    def result_bytes(self) -> int:
        """The bytes of its results."""
        return sum(int(product(each.shape)) * each.dtype.itemsize for each in self.outputs)


def size_of(parameter: Any) -> int:
    """The number of elements of a parameter; 0 while it is not known."""
    return product(parameter.shape) if parameter.is_shape_known else 0


def bytes_of(parameters: Iterable[Any]) -> int:
    """The total bytes of parameters."""
    return sum(size_of(p) * p.dtype.itemsize for p in parameters)


def _now() -> int:
    """The number of nodes created so far."""
    return placeholder(Spec((), "float32")).node.serial


def summary(block: Block, arguments: tuple[Any, ...]) -> str:
    """The table of the layers that run on these arguments."""
    _check_arguments(block, arguments)
    rows: list[Row] = []
    open_rows: list[Row] = []
    counted: set[int] = set()
    handles = []

    def before(each: Block, _: Any) -> None:
        open_rows.append(Row(places[id(each)], each))

    def after(each: Block, _: Any, result: Any) -> None:
        row = open_rows.pop()
        row.finish(result, counted)
        rows.append(row)

    places = dict(_places(block, block.name, {}))
    for each in _blocks(block, {}).values():
        handles += [each.register_forward_pre_hook(before), each.register_forward_hook(after)]
    try:
        try:
            results = run_with_symbols(block, arguments)
        except TraceError:  # a layer reads values
            for noted in (rows, open_rows, counted):
                noted.clear()
            with autograd.pause():
                block(*arguments)
            results = None
    finally:
        for handle in handles:
            handle.detach()
    if results is not None:
        _share_out(rows, results)
    return _table(block, rows, arguments, results is not None)


def _check_arguments(block: Block, arguments: tuple[Any, ...]) -> None:
    """Raise `OperandError` unless the block's forward takes so many arguments."""
    try:
        signature(block.forward).bind(*arguments)
    except TypeError as error:
        raise OperandError(
            f"summary: {error}; give the arguments with which {block.name} is called"
        ) from None


def _blocks(block: Block, found: dict[int, Block]) -> dict[int, Block]:
    """The block and all blocks inside it, without repetitions."""
    if id(block) not in found:
        found[id(block)] = block
        for child in block._children.values():
            _blocks(child, found)
    return found


def _places(block: Block, place: str, found: dict[int, str]) -> dict[int, str]:
    """The first path to each block."""
    if id(block) not in found:
        found[id(block)] = place
        for name, child in block._children.items():
            _places(child, name if found[id(block)] == block.name else f"{place}.{name}", found)
    return found


def _share_out(rows: list[Row], results: list[Entry]) -> None:
    """Give each row the operations of its nodes, without those of the rows inside it."""
    for node in walk(results):
        within = [row for row in rows if row.begin < node.serial < row.end]
        if within:
            innermost = min(within, key=lambda row: row.end - row.begin)
            innermost.operations += operations(node)


def operations(node: Node) -> int:
    """The number of floating-point additions, multiplications and other functions of a node."""
    if node.op is None:
        return 0
    inside = [value for value in node.params.values() if isinstance(value, Graph)]
    if inside:  # for example one of two branches
        return max(sum(map(operations, graph.walk())) for graph in inside)
    written = expand(Graph(node.inputs, node.entries))
    return sum(map(_cost, walk(written.outputs, node.inputs)))


def _cost(node: Node) -> int:
    op = node.op
    if op is None or not node.specs[0].dtype.is_inexact:
        return 0
    elements = product(node.specs[0].shape)
    if op is matmul:
        return int(2 * elements * node.inputs[0].shape[-1])
    if op.elementwise:
        return 0 if op.moves else int(elements)
    return int(product(node.inputs[0].shape)) if op.combine else 0


def _table(block: Block, rows: list[Row], arguments: tuple[Any, ...], counted: bool) -> str:
    """The table as text: a line for each layer that computes or has parameters, then the totals."""
    inputs: list[Any] = []
    flatten(arguments, inputs, [])
    shapes = ", ".join(str(tuple(x.shape)) for x in inputs)
    lines = [("Layer (type)", "Output shape", "Parameters", "FLOPs", "Bytes")]
    lines.append(("Input", shapes, "0", "0", f"{sum(x.nbytes for x in inputs):,}"))
    for row in rows:
        if row.block._children and not (row.operations or row.parameters or row.outputs):
            continue  # its children are counted
        name = f"{row.place} ({type(row.block).__name__})"
        done = f"{row.operations:,}" if counted else "?"
        memory = f"{bytes_of(row.parameters) + row.result_bytes:,}"
        lines.append((name, str(row.shape), f"{row.count:,}", done, memory))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = [
        "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    rule = "-" * len(texts[0])
    return "\n".join([rule, texts[0], rule, *texts[1:], rule, *_totals(block, rows, counted), rule])


def _totals(block: Block, rows: list[Row], counted: bool) -> list[str]:
    unique = {id(p): p for p in block.collect_params().values()}.values()
    trained = sum(size_of(p) for p in unique if p.grad_req != "null")
    every = sum(map(size_of, unique))
    done = f"{sum(row.operations for row in rows):,}" if counted else "not known"
    return [
        f"Parameters: {every:,}, shared ones once ({trained:,} trained, {every - trained:,} not)",
        f"FLOPs: {done}",
        f"Bytes: {bytes_of(unique):,} of parameters, "
        f"{sum(row.result_bytes for row in rows):,} of results",
    ]
