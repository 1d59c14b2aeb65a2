"""ONNX graphs in the form that gemel runs: nodes with plain attributes, in topological order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from os.path import dirname
from typing import Any

from gemel.dtype import DType
from gemel.errors import (
    DTypeError,
    ShapeError,
    SymbolFileError,
    TraceError,
    UnknownOperatorsError,
    ValuesNeededError,
)
from gemel.onnx.read.known import Known
from gemel.onnx.read.rules import INSIDE, OPERATORS
from gemel.onnx.types import dtype_of, onnx

#: The oldest version of ONNX's operators that is read.
OLDEST = 7
#: The deepest nesting of graphs that is accepted.
DEEPEST = 16
#: The domain of ONNX's own operators, in both spellings.
OWN = ("", "ai.onnx")


class Node:
    """One node: its operator, its inputs and outputs by name, and its attributes."""

    def __init__(self, made: Any, opset: int, whose: str, attributes: dict[str, Any]) -> None:
        self.kind: str = made.op_type
        self.opset = opset
        self.inputs: list[str] = list(made.input)
        self.outputs: list[str] = list(made.output)
        self.attributes = attributes
        #: Its name in messages.
        self.where = whose

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an attribute."""
        return self.attributes.get(name, default)

    def has(self, place: int) -> bool:
        """Whether the node has this output."""
        return place < len(self.outputs) and self.outputs[place] != ""

    def numbers(self, x: Any, name: str = "") -> list[Any] | None:
        """The elements, flat, of an input that must be known, or of an attribute if the input is
        None.

        Waits for the elements of a computed array; in a trace, these raise `ValuesNeededError`.
        """
        if x is None:
            found = self.attributes.get(name)
            return list(found) if isinstance(found, (list, tuple)) else found
        return self.known(x).list()

    def known(self, x: Any) -> Known:
        """An input as known elements. In a trace, only values that closed-over arrays decide are
        known; others raise `ValuesNeededError`, and the network is then compiled in parts."""
        if isinstance(x, Known):
            return x
        try:
            return Known.of(x.asnumpy(), x.dtype)
        except TraceError as error:
            raise ValuesNeededError(
                f"an input of {self.kind} has to be known while the network is compiled, but is "
                f"computed from the network's inputs: {error}"
            ) from None

    def number(self, x: Any, name: str = "", default: Any = None) -> Any:
        """The single element of an input that must be known, or an attribute if the input is
        None."""
        if x is None:
            return self.attributes.get(name, default)
        return self.known(x).item()

    def refuse(self, what: str) -> ShapeError:
        """The error for a variant of an operator that gemel does not support."""
        return ShapeError(what)


class Graph:
    """A graph of a file: names of inputs and outputs, constants, nodes."""

    def __init__(self, made: Any, reader: Reader, depth: int = 0) -> None:
        self.name: str = made.name
        self.constants = {each.name: reader.tensor(each) for each in made.initializer}
        self.inputs = [each for each in made.input if each.name not in self.constants]
        self.outputs = [each.name for each in made.output]
        self.nodes = [reader.node(each, depth) for each in made.node]
        #: For each tensor, the last node that reads it.
        self.last = {name: place for place, node in enumerate(self.nodes) for name in reads(node)}


def reads(node: Node) -> Iterator[str]:
    """The tensors that a node reads, including those read by its inner graphs."""
    yield from filter(None, node.inputs)
    for value in node.attributes.values():
        if isinstance(value, Graph):
            yield from value.outputs
            for inner in value.nodes:
                yield from reads(inner)


class Reader:
    """Checks and parses one model. `source` is its name in messages."""

    def __init__(self, model: Any, source: str) -> None:
        self.source = source
        versions = {each.domain: each.version for each in model.opset_import}
        self.opset = next((versions[domain] for domain in OWN if domain in versions), 0)
        latest = onnx("defs").onnx_opset_version()
        if not OLDEST <= self.opset <= latest:
            raise self.fail(
                f"is for version {self.opset} of ONNX's operators; {OLDEST} to {latest} are read"
            )
        self.model = self.written_out(model)
        self.check_operators()
        self.check_order(self.model.graph, set(), "")

    def fail(self, problem: str) -> SymbolFileError:
        """The error for an invalid file."""
        return SymbolFileError(f"ONNX file {self.source}: {problem}")

    def graph(self) -> Graph:
        """The model's graph."""
        return Graph(self.model.graph, self)

    def written_out(self, model: Any) -> Any:
        """Replace calls of functions by their nodes: the model's functions, and ONNX's own."""
        inliner, inference = onnx("inliner"), onnx("shape_inference")
        try:
            if model.functions:
                model = inliner.inline_local_functions(model)
            unknown = [node for node in _every_node(model.graph) if not _is_known(node)]
            if unknown and all(_is_function(node, self.opset) for node in unknown):
                model = inference.infer_shapes(model)  # the nodes may depend on shapes
                known = [("", kind) for kind in (*OPERATORS, *INSIDE)]
                model = inliner.inline_selected_functions(model, known, True, True)
        except (RuntimeError, ValueError, inference.InferenceError) as error:
            raise self.fail(f"its functions cannot be written out: {error}") from None
        return model

    def check_operators(self) -> None:
        """Raises `UnknownOperatorsError`, which lists all operators that gemel does not have."""
        unknown: Counter[str] = Counter()
        whose: dict[str, str] = {}
        for node in _every_node(self.model.graph):
            if not _is_known(node):
                kind = f"{node.domain}.{node.op_type}" if node.domain not in OWN else node.op_type
                unknown[kind] += 1
                whose.setdefault(kind, node.name or ", ".join(node.output))
        if not unknown:
            return
        listed = "; ".join(f"{kind} ({n}, as {whose[kind]!r})" for kind, n in unknown.items())
        raise UnknownOperatorsError(
            f"ONNX file {self.source}: there is nothing in gemel for {listed}; it reads "
            f"{len(OPERATORS) + len(INSIDE)} operators of ONNX's own domain, see docs/onnx.md"
        )

    def check_order(self, graph: Any, outer: set[str], where: str) -> None:
        """Raises `SymbolFileError` if a node reads a tensor that no earlier node writes, as in a
        cycle, or if a name is used twice."""
        there = {*outer, *(x.name for x in graph.input), *(x.name for x in graph.initializer)}
        made = {name for node in graph.node for name in node.output}
        for place, node in enumerate(graph.node):
            here = f"{where}node {place} ({node.name or node.op_type})"
            for name in node.input:
                if name and name not in there:
                    later = "a later node, or itself: a cycle" if name in made else "nothing"
                    raise self.fail(f"{here} reads {name!r}, which {later} gives")
            for attribute in node.attribute:
                for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    self.check_order(inner, there, f"{here}: {attribute.name}: ")
            for name in filter(None, node.output):
                if name in there:
                    raise self.fail(f"{here} gives {name!r}, which is given already")
                there.add(name)
        for output in graph.output:
            if output.name not in there:
                raise self.fail(f"{where}output {output.name!r}: nothing gives it")

    # ---- parts

    def node(self, made: Any, depth: int) -> Node:
        """Convert a node; its attributes become plain values."""
        whose = f"node {made.name or ', '.join(made.output)!r} ({made.op_type})"
        attributes = {each.name: self._attribute(each, whose, depth) for each in made.attribute}
        return Node(made, self.opset, whose, attributes)

    def _attribute(self, made: Any, whose: str, depth: int) -> Any:
        kinds = made.AttributeType
        if made.type == kinds.GRAPH:
            if depth > DEEPEST:
                raise self.fail(f"{whose}: graphs are nested too deeply")
            return Graph(made.g, self, depth + 1)
        if made.type == kinds.TENSOR:
            return self.tensor(made.t)
        if made.type not in (
            kinds.FLOAT, kinds.INT, kinds.STRING, kinds.FLOATS, kinds.INTS, kinds.STRINGS
        ):  # fmt: skip
            raise self.fail(f"{whose}: attribute {made.name!r} is a {kinds.Name(made.type)}")
        value = onnx("helper").get_attribute_value(made)
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if made.type == kinds.STRINGS:
            return [each.decode(errors="replace") for each in value]
        return list(value) if made.type in (kinds.FLOATS, kinds.INTS) else value

    def tensor(self, made: Any) -> Known:
        """A constant of the file."""
        dtype = self.dtype(made.data_type, f"tensor {made.name!r}")
        try:
            array = onnx("numpy_helper").to_array(made, self._folder)
        except (ValueError, TypeError, OSError, RuntimeError) as error:
            raise self.fail(f"tensor {made.name!r} cannot be read: {error}") from None
        return Known.of(array.astype(dtype.dtype), dtype)

    def dtype(self, code: int, whose: str) -> DType:
        """The dtype for a code in the file."""
        try:
            return dtype_of(code, whose)
        except DTypeError as error:
            raise self.fail(str(error)) from None

    @property
    def _folder(self) -> str:
        return dirname(self.source)


def _is_known(node: Any) -> bool:
    return node.domain in OWN and (node.op_type in OPERATORS or node.op_type in INSIDE)


def _is_function(node: Any, opset: int) -> bool:
    """Whether ONNX defines an operator by other operators."""
    defs = onnx("defs")
    try:
        schema = defs.get_schema(node.op_type, opset, "")
    except (defs.SchemaError, TypeError):  # there is no schema, or the name is not a string
        return False
    defined = schema.has_function or schema.has_context_dependent_function
    return bool(defined) and node.domain in OWN


def _every_node(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _every_node(inner)


__all__ = ["Graph", "Node", "Reader", "reads"]
