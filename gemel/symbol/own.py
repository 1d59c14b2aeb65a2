"""gemel's own operations as nodes of a symbol, for programs that MXNet lacks operations for.

A node's operation is ``gemel:NAME``, and its setting the operation's parameters as JSON. Extents
that depend on the arguments are sums of products of their names, evaluated when the program runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gemel.dtype import DType, as_dtype
from gemel.errors import ExportError, GemelError, SymbolFileError
from gemel.extent import OPERATORS, RELATIONS, Dim, Guard, form_of, seen
from gemel.forms import Form
from gemel.ir.graph import Entry, Graph, Node, constant, placeholder
from gemel.ir.op import Op, find
from gemel.spec import Spec

PREFIX = "gemel:"
#: The deepest nesting of extents, and of graphs inside of graphs, that is read.
DEEPEST = 32


# --- writing --------------------------------------------------------------------------------


def parameters_text(node: Node) -> str:
    """The parameters of a node, without the numbers of random calls, which each run sets anew."""
    assert node.op is not None
    if not node.op.function.__module__.startswith("gemel."):
        raise ExportError(
            f"save: {node.op.name} is declared outside of gemel, so a file cannot define what it "
            "does"
        )
    kept = {
        name: encoded(value)
        for name, value in node.params.items()
        if not (node.op.random and name == "call")
    }
    return json.dumps(kept)


def numbers_text(node: Node) -> str:
    """The numbers among a node's inputs with their positions; they stay weakly typed."""
    places = [(i, entry.node) for i, entry in enumerate(node.inputs) if entry.node.is_number]
    return json.dumps([[place, encoded(number.value)] for place, number in places])


def encoded(value: Any) -> Any:
    """A parameter as JSON. Raises `ExportError` unless it is a number, name, dtype or graph."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if isinstance(value, Dim):
        return {"extent": _form(value.form)}
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, (tuple, list)):
        return [encoded(each) for each in value]
    if isinstance(value, Graph):
        return {"graph": _graph(value)}
    raise ExportError(f"save: {value!r} cannot be written into a file")


def _form(form: Form) -> list[Any]:
    return [
        [
            [
                [atom.operator, _form(atom.left), _form(atom.right)] if atom.operator else str(atom)
                for atom in product
            ],
            count,
        ]
        for product, count in form
    ]


def encoded_guard(guard: Guard) -> list[Any]:
    """A comparison of extents that the trace relied on, and its text for users."""
    sides = _form(form_of(guard.left)), _form(form_of(guard.right))
    return [sides[0], guard.relation, sides[1], guard.answer, repr(guard)]


def named_extents(text: str, names: Sequence[str]) -> str:
    """A comparison with its extents written as in Python: ``data.shape[0]`` for ``n0_0``."""

    def of_argument(found: re.Match[str]) -> str:
        position, axis = map(int, found.groups())
        return f"{names[position]}.shape[{axis}]" if position < len(names) else found[0]

    return re.sub(r"\bn(\d+)_(\d+)\b", of_argument, text)


def _spec(spec: Spec) -> list[Any]:
    return [encoded(tuple(spec.shape)), spec.dtype.name, spec.weak]


def _graph(graph: Graph) -> dict[str, Any]:
    """A graph inside of a node as values of JSON; `_graph_of` reads them."""
    names: dict[Entry, list[int]] = {entry: [-1, i] for i, entry in enumerate(graph.inputs)}
    nodes: list[Any] = []
    for node in graph.walk():
        if node.op is None and node.entries[0] in names:
            continue
        for index, entry in enumerate(node.entries):
            names[entry] = [len(nodes), index]
        if node.op is None:
            if not node.is_number:
                raise ExportError(
                    "save: npx.cond, foreach or while_loop uses an array from outside; pass it "
                    "in as an argument"
                )
            nodes.append(["number", encoded(node.value)])
        else:
            inputs = [names[entry] for entry in node.inputs]
            nodes.append([node.op.name, json.loads(parameters_text(node)), inputs])
    return {
        "inputs": [_spec(entry.spec) for entry in graph.inputs],
        "nodes": nodes,
        "outputs": [names[entry] for entry in graph.outputs],
        "updates": [[index, names[entry]] for index, entry in graph.updates],
        "name": graph.name,
    }


# --- reading --------------------------------------------------------------------------------


def decoded(value: Any, extents: Mapping[str, Any], depth: int = 0) -> Any:
    """The inverse of `encoded`, with extents evaluated. Raises `SymbolFileError`."""
    if depth > DEEPEST:
        raise SymbolFileError("parameters are nested too deeply")
    if isinstance(value, list):
        return tuple(decoded(each, extents, depth + 1) for each in value)
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise SymbolFileError(f"{str(value)[:80]} is not a parameter")
    ((kind, held),) = value.items()
    try:
        if kind == "float":
            return float.fromhex(held)
        if kind == "complex":
            return complex(float.fromhex(held[0]), float.fromhex(held[1]))
        if kind == "extent":
            return extent_of(held, extents, depth)
        if kind == "dtype":
            return as_dtype(held)
        if kind == "graph":
            return _graph_of(held, extents, depth)
    except (TypeError, ValueError, KeyError, IndexError) as error:
        if isinstance(error, GemelError):
            raise
        raise SymbolFileError(f"{kind} {str(held)[:80]} cannot be read: {error}") from None
    raise SymbolFileError(f"{kind!r} is not a kind of parameter")


def extent_of(form: Any, extents: Mapping[str, Any], depth: int = 0) -> Any:
    """The value of a sum of products of extents."""
    if depth > DEEPEST:
        raise SymbolFileError("extents are nested too deeply")
    total: Any = 0
    for product, count in form:
        term = int(count)
        for atom in product:
            if isinstance(atom, str):
                term = term * extents[atom]
                continue
            operator, left, right = atom
            sides = (extent_of(side, extents, depth + 1) for side in (left, right))
            a, b = sides
            term = term * (0 if operator in "//%" and seen(b) == 0 else OPERATORS[operator](a, b))
        total = total + term
    return total


def holds(guard: Any, extents: Mapping[str, Any], every: bool = True) -> bool:
    """Whether a comparison has the same answer as when the program was traced.

    Without `every`, a guard that an extent is not 1 need not hold. It is for files that do not
    distinguish guards of operations, which decide again what to broadcast, from the program's own.
    """
    left, relation, right, answer = guard[:4]
    if not every and relation == "==" and answer is False and right == [[[], 1]]:
        return True
    sides = extent_of(left, extents), extent_of(right, extents)
    return RELATIONS[relation](*sides) is answer


def _graph_of(held: Any, extents: Mapping[str, Any], depth: int) -> Graph:
    """The graph that `_graph` has described. Raises `SymbolFileError`."""

    def entry(place: Any) -> Entry:
        node, index = map(int, place)
        if not -1 <= node < len(results):
            raise SymbolFileError(f"a graph refers to node {node} before it is defined")
        of_node: Sequence[Entry] = inputs if node == -1 else results[node]
        return of_node[index]

    inputs = [
        placeholder(Spec(decoded(shape, extents, depth + 1), as_dtype(dtype), weak=bool(weak)))
        for shape, dtype, weak in held["inputs"]
    ]
    results: list[tuple[Entry, ...]] = []
    for name, *rest in held["nodes"]:
        if name == "number":
            results.append((constant(decoded(rest[0], extents, depth + 1)),))
            continue
        op = operation(name)
        parameters = {k: decoded(v, extents, depth + 1) for k, v in rest[0].items()}
        node = op.node(tuple(entry(place) for place in rest[1]), op.complete(parameters))
        results.append(node.entries)
    outputs = [entry(place) for place in held["outputs"]]
    updates = [(int(index), entry(place)) for index, place in held["updates"]]
    return Graph(inputs, outputs, updates, str(held["name"]))


def operation(name: str) -> Op:
    """gemel's operation of that name. Raises `UnknownNameError`, with a suggestion."""
    return find(name.removeprefix(PREFIX))


def apply(attrs: Mapping[str, str], op: Op, inputs: list[Any], extents: Mapping[str, Any]) -> Any:
    """An operation with the parameters of a file."""
    parameters, numbers = json.loads(attrs["parameters"]), json.loads(attrs.get("numbers", "[]"))
    if not isinstance(parameters, dict) or not isinstance(numbers, list):
        raise SymbolFileError(f"{op.name}: parameters are {str(parameters)[:80]}, not an object")
    given = list(inputs)
    for place, number in numbers:
        given.insert(place, decoded(number, extents))
    return op(*given, **{name: decoded(value, extents) for name, value in parameters.items()})
