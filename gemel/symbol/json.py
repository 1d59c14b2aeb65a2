"""MXNet's symbol files: JSON, written as by MXNet 1.9.1, and read from any version since 0.9.

Files may come from anywhere, so every field and index is checked, and an error names the bad one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gemel.errors import ArgumentError, GemelError, SymbolFileError, UnknownKeywordError
from gemel.symbol.node import (
    PLACES,
    VARIABLE,
    Reference,
    SymbolNode,
    nodes_of,
    places_of,
    value_of,
    variables_of,
)
from gemel.symbol.own import operation

#: The version of files that do not say theirs.
UNKNOWN = 800
#: The version of MXNet whose format is written.
VERSION = 10901


# --- writing --------------------------------------------------------------------------------


def written(heads: Sequence[Reference]) -> str:
    """The text of a symbol file."""
    about = '"attrs": {\n    "is_np_shape": ["int", 1], \n    "mxnet_version": '
    return _graph(heads, [f'{about}["int", {VERSION}]\n  }}'])


def _graph(heads: Sequence[Reference], about: Sequence[str] = ()) -> str:
    """The text of a graph; `about` are further fields, which only the outermost graph has."""
    nodes = nodes_of(heads)
    places = {id(node): place for place, node in enumerate(nodes)}
    versions: dict[int, int] = {id(n): 1 for node in nodes for n in node.auxiliary()}
    rows = [0]
    listed = []
    for node in nodes:
        rows.append(rows[-1] + node.outputs)
        fields = [f'"op": {_quoted(node.op)}', f'"name": {_quoted(node.name)}']
        if node.attrs:
            fields.append(f'"attrs": {_attributes(node.attrs)}')
        inputs = [[places[id(n)], index, versions.get(id(n), 0)] for n, index in node.inputs]
        fields.append(f'"inputs": {_wrapped(inputs, 6)}')
        if node.graphs:
            inside = ", \n".join(map(_graph, node.graphs)).replace("\n", "\n        ")
            fields.append(f'"subgraphs": [\n        {inside}\n      ]')
        listed.append("    {\n      " + ", \n      ".join(fields) + "\n    }")
    variables = [place for place, node in enumerate(nodes) if node.is_variable]
    ends = [[places[id(node)], index, 0] for node, index in heads]
    parts = [
        '"nodes": [\n' + ", \n".join(listed) + "\n  ]",
        f'"arg_nodes": {_wrapped(variables)}',
        f'"node_row_ptr": {_wrapped(rows)}',
        f'"heads": {_wrapped(ends)}',
        *about,
    ]
    return "{\n  " + ", \n  ".join(parts) + "\n}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _attributes(attrs: dict[str, str]) -> str:
    pairs = [f"{_quoted(name)}: {_quoted(value)}" for name, value in sorted(attrs.items())]
    if len(pairs) == 1:
        return f"{{{pairs[0]}}}"
    return "{\n        " + ", \n        ".join(pairs) + "\n      }"


def _wrapped(items: Sequence[Any], indent: int = 2) -> str:
    """A list on one line or, with more than ten items, with one item per line."""
    texts = [json.dumps(item) for item in items]
    if len(texts) <= 10:
        return f"[{', '.join(texts)}]"
    inner = " " * (indent + 2)
    return f"[\n{inner}" + f", \n{inner}".join(texts) + f"\n{' ' * indent}]"


# --- reading --------------------------------------------------------------------------------


def read(text: str, source: str = "symbol") -> list[Reference]:
    """The heads of the symbol in a file. Raises `SymbolFileError`."""
    return _Reader(source).graph(text)


def version_of(whole: dict[str, Any]) -> int:
    """The version of MXNet that wrote a file, as 10901 for 1.9.1; the oldest do not say theirs."""
    about = whole.get("attrs")
    said = about.get("mxnet_version") if isinstance(about, dict) else None
    given = isinstance(said, list) and len(said) == 2 and isinstance(said[1], int)
    return said[1] if said and given else UNKNOWN


class _Reader:
    """Reads and checks one file, field by field."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.version = UNKNOWN

    def fail(self, problem: str) -> SymbolFileError:
        return SymbolFileError(f"symbol file {self.source}: {problem}")

    def graph(self, text: str) -> list[Reference]:
        try:
            whole = json.loads(text)
        except json.JSONDecodeError as error:
            at = f"line {error.lineno}, column {error.colno}"
            raise self.fail(f"is not JSON, or is truncated: {error.msg} at {at}") from None
        except (RecursionError, ValueError) as error:
            raise self.fail(
                f"is nested too deeply, or contains a number that is too long: {error}"
            ) from None
        if not isinstance(whole, dict):
            raise self.fail(f"contains a {type(whole).__name__}, not an object with nodes")
        self.version = version_of(whole)
        return self.heads(whole, "")

    def heads(self, whole: dict[str, Any], where: str, depth: int = 0) -> list[Reference]:
        """The heads of a graph, which may be inside of a node."""
        nodes: list[SymbolNode] = []
        for place, raw in enumerate(self.listed(whole, "nodes", where)):
            nodes.append(self.node(place, raw, nodes, where, depth))
        heads = self.listed(whole, "heads", where)
        if not heads:
            raise self.fail(f"{where}'heads' is empty: the symbol has no outputs")
        return [self.entry(each, f"{where}heads[{i}]", nodes) for i, each in enumerate(heads)]

    def inside(self, raw: dict[str, Any], where: str, depth: int) -> list[tuple[Reference, ...]]:
        """The heads of the graphs inside of a node, such as the body of a loop."""
        if depth > DEEPEST:
            raise self.fail(f"{where}subgraphs are nested too deeply")
        found = []
        for place, graph in enumerate(self.listed(raw, "subgraphs", where)):
            here = f"{where}subgraphs[{place}]: "
            if not isinstance(graph, dict):
                raise self.fail(f"{here}is a {type(graph).__name__}, not an object")
            heads = tuple(self.heads(graph, here, depth + 1))
            names = [node.name for node in variables_of(heads)]
            if len(set(names)) < len(names):
                raise self.fail(f"{here}gives one name to two variables")
            found.append(heads)
        return found

    def listed(self, held: dict[str, Any], field: str, where: str) -> list[Any]:
        if field not in held:
            raise self.fail(f"{where}{field!r} is missing")
        found = held[field]
        if not isinstance(found, list):
            raise self.fail(f"{where}{field!r} is a {type(found).__name__}, not a list")
        return found

    def text(self, held: dict[str, Any], field: str, where: str) -> str:
        found = held.get(field)
        if not isinstance(found, str):
            said = "missing" if field not in held else f"{found!r}, not text"
            raise self.fail(f"{where}{field!r} is {said}")
        return found

    def node(
        self, place: int, raw: Any, before: list[SymbolNode], outer: str, depth: int
    ) -> SymbolNode:
        """Read a node, whose inputs are among those `before` it. Raises `SymbolFileError`."""
        where = f"{outer}nodes[{place}]: "
        if not isinstance(raw, dict):
            raise self.fail(f"{where}is a {type(raw).__name__}, not an object")
        op, name = self.text(raw, "op", where), self.text(raw, "name", where)
        where = f"{outer}nodes[{place}] ({name}): "
        attrs = self.attributes(raw, where)
        inputs = [
            self.entry(each, f"{where}inputs[{i}]", before)
            for i, each in enumerate(self.listed(raw, "inputs", where))
        ]
        if bool(raw.get("subgraphs")) is not (op in PLACES):
            has = "lacks its subgraphs" if op in PLACES else "has subgraphs: it holds no programs"
            raise self.fail(f"{where}{op} {has}")
        if op in ("argmax", "argmin") and self.version < 905 and attrs.get("axis") == "-1":
            del attrs["axis"]  # before 0.9.5 it meant all axes
        graphs = self.inside(raw, where, depth) if op in PLACES else ()
        node = SymbolNode(op, name, attrs, inputs, graphs=graphs)
        if op == VARIABLE:
            if inputs:
                raise self.fail(f"{where}is a variable and has {len(inputs)} inputs")
            return node
        self.finish(node, where)
        return node

    def finish(self, node: SymbolNode, where: str) -> None:
        """Check the operation and its settings, and set its number of outputs."""
        if node.is_own:
            node.outputs = self.own_outputs(node, where)
            return
        try:
            legacy = node.legacy
            settings = node.settings()
            legacy.checked(settings)
            node.outputs = legacy.outputs(settings)
            if node.graphs:
                places_of(node)
        except (UnknownKeywordError, ArgumentError) as error:
            raise self.fail(f"{where}{error}") from None
        except GemelError as error:
            raise SymbolFileError(f"symbol file {self.source}: {error}") from None
        except (TypeError, KeyError, ValueError) as error:
            raise self.fail(f"{where}{node.op}: {error}") from None
        if not isinstance(node.outputs, int) or not 0 < node.outputs < MOST_OUTPUTS:
            raise self.fail(f"{where}{node.op} has {node.outputs!r} outputs")
        # Files from before 0.9 leave out the inputs that an operation overwrites.
        missing = len(legacy.inputs) - len(node.inputs)
        if legacy.auxiliary and missing == len(legacy.auxiliary):
            added = [SymbolNode(VARIABLE, f"{node.name}_{each}") for each in legacy.auxiliary]
            node.inputs = (*node.inputs, *((each, 0) for each in added))

    def own_outputs(self, node: SymbolNode, where: str) -> int:
        try:
            operation(node.op)
            found = value_of(node.attrs["outputs"])
        except (GemelError, KeyError) as error:
            raise self.fail(f"{where}{error}") from None
        if not isinstance(found, int) or not 0 < found < MOST_OUTPUTS:
            raise self.fail(f"{where}'outputs' is {found!r}")
        return found

    def attributes(self, raw: dict[str, Any], where: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for field in ("param", "attr", "attrs"):
            held = raw.get(field, {})
            if not isinstance(held, dict):
                raise self.fail(f"{where}{field!r} is a {type(held).__name__}, not an object")
            for name, value in held.items():
                if not isinstance(value, str):
                    raise self.fail(f"{where}{field}[{name!r}] is {value!r}, not text")
                found[name] = value
        return found

    def entry(self, raw: Any, where: str, nodes: list[SymbolNode]) -> Reference:
        whole = isinstance(raw, list) and 2 <= len(raw) <= 3
        if not whole or any(type(number) is not int for number in raw):
            raise self.fail(f"{where} is {str(raw)[:80]}, not [node, output, version]")
        place, index = raw[:2]
        if not 0 <= place < len(nodes):
            raise self.fail(
                f"{where} names node {place}; only the {len(nodes)} before it can be inputs"
            )
        if not 0 <= index < nodes[place].outputs:
            name, count = nodes[place].name, nodes[place].outputs
            raise self.fail(f"{where} names output {index} of {name}, which has {count}")
        return nodes[place], index


MOST_OUTPUTS = 65536
#: The deepest nesting of loops that is read.
DEEPEST = 16

__all__ = ["read", "value_of", "written"]
