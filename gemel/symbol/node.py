"""Nodes of symbols: an operation of MXNet on other nodes, or a variable."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from gemel.errors import SymbolFileError
from gemel.legacy import Legacy, find
from gemel.symbol.own import PREFIX

#: The operation name of variables in files.
VARIABLE = "null"


def unused_name(name: str, is_taken: Callable[[str], bool]) -> str:
    """The first of ``name``, ``name_1``, ``name_2``, ... that is not taken."""
    unused, number = name, 0
    while is_taken(unused):
        number += 1
        unused = f"{name}_{number}"
    return unused


class SymbolNode:
    """An operation under MXNet's name, its settings as text, and its inputs."""

    __slots__ = ("_settings", "attrs", "graphs", "inputs", "name", "op", "outputs")

    def __init__(
        self,
        op: str,
        name: str,
        attrs: dict[str, str] | None = None,
        inputs: Iterable[Reference] = (),
        outputs: int = 1,
        graphs: Iterable[tuple[Reference, ...]] = (),
    ) -> None:
        self.op = op
        self.name = name
        self.attrs = attrs or {}
        self.inputs = tuple(inputs)
        self.outputs = outputs
        #: The heads of the programs inside of it, such as the body of a loop.
        self.graphs = tuple(graphs)
        self._settings: dict[str, Any] | None = None

    @property
    def is_variable(self) -> bool:
        """Whether it is a variable, whose value is given from outside."""
        return self.op == VARIABLE

    @property
    def is_own(self) -> bool:
        """Whether it is an operation of gemel that MXNet does not have."""
        return self.op.startswith(PREFIX)

    @property
    def legacy(self) -> Legacy:
        """The operation that runs it. Raises `UnknownNameError`."""
        return find(self.op, f"node {self.name!r}: ")

    @property
    def visible(self) -> int:
        """How many of its outputs users get."""
        plain = self.is_variable or self.is_own
        found = None if plain else self.legacy.visible
        return self.outputs if found is None else found

    def settings(self) -> dict[str, Any]:
        """Its settings as values, without attributes about the node itself."""
        if self._settings is None:
            kept = ((n, v) for n, v in self.attrs.items() if not n.startswith("__"))
            self._settings = {name: value_of(text) for name, text in kept}
        return self._settings

    def auxiliary(self) -> list[SymbolNode]:
        """The variables it overwrites while training."""
        if self.is_variable or self.is_own:
            return []
        if self.graphs:
            inside = {id(inner) for heads in self.graphs for inner in overwritten(heads)}
            places = places_of(self)
            return [
                self.inputs[places[position, index]][0]
                for position, heads in enumerate(self.graphs)
                for index, inner in enumerate(variables_of(heads))
                if id(inner) in inside
            ]
        operation = self.legacy
        pairs = zip(operation.inputs, self.inputs, strict=False)
        return [
            node for name, (node, _) in pairs if name in operation.auxiliary and node.is_variable
        ]

    def output_name(self, index: int) -> str:
        """The name of an output: a variable's own name, or the node's name and ``_output``."""
        if self.is_variable:
            return self.name
        return f"{self.name}_output{index if self.visible > 1 else ''}"

    def __repr__(self) -> str:
        return f"<{self.op} {self.name}>"


#: An output of a node.
Reference: TypeAlias = tuple[SymbolNode, int]


def nodes_of(heads: Iterable[Reference]) -> list[SymbolNode]:
    """All nodes the heads depend on, each after its inputs, in order of first use."""
    order: list[SymbolNode] = []
    seen: set[int] = set()
    stack: list[tuple[SymbolNode, bool]] = [(node, False) for node, _ in reversed(tuple(heads))]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack += [(inner, False) for inner, _ in reversed(node.inputs)]
    return order


def variables_of(heads: Iterable[Reference]) -> list[SymbolNode]:
    """The variables the heads depend on, in order of first use."""
    return [node for node in nodes_of(heads) if node.is_variable]


def overwritten(heads: Iterable[Reference]) -> list[SymbolNode]:
    """The variables that training overwrites."""
    return [inner for node in nodes_of(heads) for inner in node.auxiliary()]


# --- programs inside nodes ------------------------------------------------------------------


#: The settings that connect inputs with the variables of the programs inside. For `_foreach`, with
#: one program, they say for each input its variable; for the others, for each variable its input.
PLACES = {
    "_foreach": ("in_data_locs", "in_state_locs", "remain_locs"),
    "_while_loop": ("cond_input_locs", "func_input_locs"),
    "_cond": ("cond_input_locs", "then_input_locs", "else_input_locs"),
}


def places_of(node: SymbolNode) -> dict[tuple[int, int], int]:
    """The input for each variable of the programs inside: (program, variable) -> input.

    Raises `SymbolFileError` for a variable without an input.
    """
    said: list[Any] = [node.settings().get(name) for name in PLACES.get(node.op, ())]
    if not all(isinstance(each, tuple) and all(type(n) is int for n in each) for each in said):
        raise SymbolFileError(f"node {node.name!r}: its places are {said}, not numbers")
    if node.op == "_foreach":
        said = [_turned([place for each in said for place in each])]
    if len(said) != len(node.graphs):
        raise SymbolFileError(
            f"node {node.name!r}: {node.op} has {len(node.graphs)} programs, not {len(said)}"
        )
    found = {}
    for position, (places, heads) in enumerate(zip(said, node.graphs, strict=True)):
        count = len(variables_of(heads))
        if len(places) != count or not all(0 <= n < len(node.inputs) for n in places):
            raise SymbolFileError(
                f"node {node.name!r}: program {position} has {count} variables and the places "
                f"{places} among {len(node.inputs)} inputs"
            )
        found.update({(position, index): place for index, place in enumerate(places)})
    return found


def _turned(places: list[int]) -> tuple[int, ...]:
    """The inverse permutation: the input of each variable, from the variable of each input."""
    if sorted(places) != list(range(len(places))):
        return (-1,)
    return tuple(places.index(place) for place in range(len(places)))


# --- settings as text -----------------------------------------------------------------------


def text_of(value: Any) -> str:
    """A setting as text, as in files: ``True``, ``(3, 3)``, ``relu``, ``float32``."""
    if isinstance(value, (list, tuple)):
        inside = ", ".join(map(text_of, value))
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return str(getattr(value, "name", value))


def value_of(text: str) -> Any:
    """The value of a setting's text: a number, a bool, None, a tuple, or the text itself."""
    try:
        found = literal_eval(text.strip() if len(text) < LONGEST else "")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return _others(text)
    return tuple(found) if isinstance(found, list) else found


#: Longer settings are not parsed; they are text.
LONGEST = 4096


def _others(text: str) -> Any:
    if text in ("inf", "-inf", "nan"):
        return float(text)
    digits = text.replace("L,", ",").replace("L)", ")").replace("L]", "]")  # Python 2's longs
    return value_of(digits) if digits != text else text
