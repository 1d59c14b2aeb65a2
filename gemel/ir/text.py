"""Graphs as text: `print_graph` and `parse_graph` for the round trip, `signature` and `call_text`
for the names of files.
"""

from __future__ import annotations

from typing import Any

from gemel.dtype import DType
from gemel.errors import GemelError
from gemel.extent import NUMBER, Dim
from gemel.ir.graph import Entry, Graph, Node, constant, placeholder
from gemel.ir.op import Op, find
from gemel.spec import Spec

# --- for the round trip ---------------------------------------------------------------------


def print_graph(graph: Graph) -> str:
    """A graph as lines that `parse_graph` reads back."""
    names: dict[Entry, str] = {}
    lines = [f"graph {graph.name}"]
    for number, entry in enumerate(graph.inputs):
        names[entry] = f"%{number}"
        label = f" {entry.node.name!r}" if entry.node.name else ""
        lines.append(f"  input %{number}: {entry.spec}{label}")
    for node in graph.walk():
        if node.op is None and node.entries[0] in names:
            continue
        fresh = [f"%{len(names) + i}" for i in range(len(node.entries))]
        names.update(zip(node.entries, fresh, strict=True))
        lines.append(f"  {', '.join(fresh)} = {_node_text(node, names)}")
    for entry in graph.outputs:
        lines.append(f"  output {names[entry]}")
    for index, entry in graph.updates:
        lines.append(f"  update %{index} = {names[entry]}")
    return "\n".join([*lines, "end"]) + "\n"


def _node_text(node: Node, names: dict[Entry, str]) -> str:
    if node.op is None:
        if not node.is_number:
            raise GemelError(f"print_graph: {node!r} is an array; only numbers can be printed")
        return f"constant {_value_text(node.value)}"
    inputs = [names[entry] for entry in node.inputs]
    parameters = [f"{name}={_value_text(value)}" for name, value in node.params.items()]
    return f"{node.op.name}({', '.join([*inputs, *parameters])})"


def _value_text(value: Any) -> str:
    if isinstance(value, Graph):
        return "{\n" + print_graph(value) + "}"
    if isinstance(value, Dim):
        raise GemelError(f"print_graph: the extent {value!r} is free; give it a value first")
    if isinstance(value, tuple):
        inside = ", ".join(_value_text(item) for item in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return repr(value.name if hasattr(value, "itemsize") else value)


# --- for the disk cache ---------------------------------------------------------------------


def signature(graph: Graph) -> str | None:
    """A text that two graphs share only if one plan serves both, apart from guards on sizes.

    None for a graph without such a text: with closed-over arrays, or operations declared elsewhere.
    """
    try:
        return repr(_key_words(graph))
    except GemelError:
        return None


def _key_words(graph: Graph) -> list[Any]:
    """A graph as a list whose `repr` differs from that of every other graph.

    Entries are numbered in order of appearance. The origin of a node that can fail is part of the
    list, because it is part of the error message. The list is flat, with counts before its parts,
    because the `repr` of nested lists is slow; defaults are left out.
    """
    numbers: dict[Entry, int] = {}
    found: list[Any] = [graph.name, len(graph.inputs)]
    for entry in graph.inputs:
        numbers[entry] = len(numbers)
        spec = entry.node.specs[entry.index]
        found += (spec.dtype.name, len(spec.shape), *spec.shape)
        if spec.weak:
            found.append("weak")
    for node in graph.walk():
        op = node.op
        if op is not None:
            if not op.is_own:
                raise _not_own(op)
            origin = node.origin if node.fails else ""
            found += (op.name, len(node.inputs))
            for entry in node.inputs:
                found.append(numbers[entry])
            if node.params or origin:
                found += ("with", origin, len(node.params))
                for name, value in node.params.items():
                    found += (name, _plain(value))
        elif node.entries[0] in numbers:
            continue
        elif node.is_number:
            found.append(node.value)
        else:
            raise GemelError(f"{node!r} is an array; only numbers can be printed")
        for entry in node.entries:
            numbers[entry] = len(numbers)
    found += ("outputs", [numbers[entry] for entry in graph.outputs])
    found += ("updates", [(index, numbers[entry]) for index, entry in graph.updates])
    return found


def call_text(op: Op, call: tuple[Any, ...], parameters: dict[str, Any]) -> str | None:
    """The same for a call of one operation; `call` holds the specs and strides of its inputs."""
    try:
        if not op.is_own:
            raise _not_own(op)
        return f"{op.name} {call} {_plain(tuple(parameters.items()))}"
    except GemelError:
        return None


def _not_own(op: Op) -> GemelError:
    return GemelError(
        f"{op.name} is declared outside of gemel, so its text does not define what it does"
    )


def _plain(value: Any) -> Any:
    """A parameter as a value whose `repr` is unique to it. Raises `GemelError` if there is none."""
    if value is None or isinstance(value, (*NUMBER, str, DType)):
        return value
    if isinstance(value, tuple):
        return tuple([_plain(item) for item in value])
    if isinstance(value, Graph):
        return _key_words(value)
    raise GemelError(f"{value!r} cannot be printed")


def parse_graph(text: str) -> Graph:
    """The graph that `print_graph` wrote. Raises `GemelError` naming the line it cannot read."""
    return _Parser(text.splitlines()).graph()


class _Parser:
    """Reads lines; a subgraph between braces is read by recursion."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.position = 0

    def graph(self) -> Graph:
        """Read a graph up to its line `end`."""
        name = self._next().split(" ", 1)[1]
        values: dict[str, Entry] = {}
        inputs: list[Entry] = []
        outputs: list[Entry] = []
        updates: list[tuple[int, Entry]] = []
        while (line := self._next().strip()) != "end":
            if line.startswith("input "):
                label, _, rest = line[6:].partition(": ")
                spec, bracket, more = rest.partition("]")
                weak, _, quoted = more.partition(" ")
                name_of_input = _literal(quoted, {}) if quoted else ""
                entry = placeholder(_parse_spec(spec + bracket + weak), name_of_input)
                values[label] = entry
                inputs.append(entry)
            elif line.startswith("output "):
                outputs.append(values[line[7:]])
            elif line.startswith("update "):
                index, _, value = line[8:].partition(" = ")
                updates.append((int(index), values[value]))
            else:
                self._step(line, values)
        return Graph(inputs, outputs, updates, name)

    def _next(self) -> str:
        if self.position >= len(self.lines):
            raise GemelError("parse_graph: the text ends inside a graph")
        self.position += 1
        return self.lines[self.position - 1]

    def _step(self, line: str, values: dict[str, Entry]) -> None:
        """Read the line of a constant or an operation, and the graphs among its parameters."""
        left, _, right = line.partition(" = ")
        if right.startswith("constant "):
            values[left] = constant(_literal(right[9:], {}))
            return
        name, _, arguments = right.partition("(")
        if not left.startswith("%") or not arguments:
            raise GemelError(f"parse_graph: cannot read {line!r}")
        subgraphs: dict[str, Graph] = {}
        while arguments.endswith("{"):
            label = f"_graph{len(subgraphs)}"
            subgraphs[label] = self.graph()
            arguments = arguments[:-1] + label + self._next().strip()[1:]
        inputs, parameters = _arguments(arguments[:-1], values, subgraphs)
        op = find(name)
        specs = op.infer(*(entry.spec for entry in inputs), **parameters)
        node = Node(op, inputs, parameters, specs)
        values.update(zip(left.split(", "), node.entries, strict=True))


def _arguments(
    text: str, values: dict[str, Entry], subgraphs: dict[str, Graph]
) -> tuple[tuple[Entry, ...], dict[str, Any]]:
    """The inputs and parameters between an operation's parentheses."""
    import ast

    call = ast.parse(f"f({text.replace('%', 'v_')})", mode="eval").body
    assert isinstance(call, ast.Call)
    inputs = tuple(
        values["%" + argument.id[2:]] for argument in call.args if isinstance(argument, ast.Name)
    )
    parameters = {
        str(keyword.arg): _literal(ast.unparse(keyword.value), subgraphs)
        for keyword in call.keywords
    }
    return inputs, parameters


def _literal(text: str, subgraphs: dict[str, Graph]) -> Any:
    if text in subgraphs:
        return subgraphs[text]
    if text in ("inf", "-inf", "nan"):
        return float(text)
    import ast

    return ast.literal_eval(text)


def _parse_spec(text: str) -> Spec:
    dtype, _, extents = text.rstrip("~").rstrip("]").partition("[")
    shape = tuple(int(n) for n in extents.split(", ") if n)
    return Spec(shape, dtype, weak=text.endswith("~"))
