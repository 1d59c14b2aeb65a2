"""Nodes of symbols: an operation of MXNet's on others, or a variable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from gemel.legacy import Legacy, find
from gemel.symbol.own import PREFIX

#: The operation of variables in files.
VARIABLE = "null"


class SymbolNode:
    """An operation by MXNet's name, its settings as text, and what it is applied to."""

    __slots__ = ("_settings", "attrs", "inputs", "name", "op", "outputs")

    def __init__(
        self,
        op: str,
        name: str,
        attrs: dict[str, str] | None = None,
        inputs: Iterable[Reference] = (),
        outputs: int = 1,
    ) -> None:
        self.op = op
        self.name = name
        self.attrs = attrs or {}
        self.inputs = tuple(inputs)
        self.outputs = outputs
        self._settings: dict[str, Any] | None = None

    @property
    def is_variable(self) -> bool:
        """Whether its value is given."""
        return self.op == VARIABLE

    @property
    def is_own(self) -> bool:
        """Whether it is an operation of gemel's, which MXNet has not."""
        return self.op.startswith(PREFIX)

    @property
    def legacy(self) -> Legacy:
        """What it is run by. Raises `UnknownNameError`."""
        return find(self.op, f"node {self.name!r}: ")

    @property
    def visible(self) -> int:
        """How many of its outputs people get."""
        plain = self.is_variable or self.is_own
        found = None if plain else self.legacy.visible
        return self.outputs if found is None else found

    def settings(self) -> dict[str, Any]:
        """Its settings as values, without what is about the node itself."""
        if self._settings is None:
            kept = ((n, v) for n, v in self.attrs.items() if not n.startswith("__"))
            self._settings = {name: value_of(text) for name, text in kept}
        return self._settings

    def auxiliary(self) -> list[SymbolNode]:
        """The variables it overwrites while training."""
        if self.is_variable or self.is_own:
            return []
        operation = self.legacy
        pairs = zip(operation.inputs, self.inputs, strict=False)
        return [
            node for name, (node, _) in pairs if name in operation.auxiliary and node.is_variable
        ]

    def output_name(self, index: int) -> str:
        """What an output is called: a variable's own name, or the node's and ``_output``."""
        if self.is_variable:
            return self.name
        return f"{self.name}_output{index if self.visible > 1 else ''}"

    def __repr__(self) -> str:
        return f"<{self.op} {self.name}>"


#: An output of a node.
Reference: TypeAlias = tuple[SymbolNode, int]


def nodes_of(heads: Iterable[Reference]) -> list[SymbolNode]:
    """Every node the heads need, each after its inputs, in order of first use."""
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


# --- settings as text -----------------------------------------------------------------------


def text_of(value: Any) -> str:
    """A setting as files have it: ``True``, ``(3, 3)``, ``relu``, ``float32``."""
    if isinstance(value, (list, tuple)):
        inside = ", ".join(map(text_of, value))
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return str(getattr(value, "name", value))


def value_of(text: str) -> Any:
    """What the text of a setting says: a number, a truth, None, a tuple, or the text itself."""
    from ast import literal_eval

    try:
        found = literal_eval(text.strip() if len(text) < LONGEST else "")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return _others(text)
    return tuple(found) if isinstance(found, list) else found


#: How many characters a setting has that is more than text.
LONGEST = 4096


def _others(text: str) -> Any:
    if text in ("inf", "-inf", "nan"):
        return float(text)
    digits = text.replace("L,", ",").replace("L)", ")").replace("L]", "]")  # of Python 2
    return value_of(digits) if digits != text else text
