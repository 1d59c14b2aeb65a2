"""The ONNX graph being written: nodes, constants, and sizes computed from the inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gemel.dtype import DType, int64
from gemel.extent import Dim, same_for_all
from gemel.forms import Atom, Form, at_least, least_of
from gemel.ir.reference import numpy
from gemel.onnx.types import code_of, onnx, twin
from gemel.spec import Spec
from gemel.symbol.node import unused_name

#: The end of ONNX's backward slices that include the first element.
BEFORE_ALL = -(2**63) + 1
#: The end of forward ones that include the last element.
AFTER_ALL = 2**63 - 1
#: Operators of extents by gemel's names; `//` and `%` are handled in `_of_atom`.
EXTREMES = {"minimum": "Min", "maximum": "Max"}


class Graph:
    """The nodes and constants of a graph, by the names of tensors.

    `sources` has the input and axis from which each free extent is taken.
    """

    def __init__(self, opset: int, sources: dict[str, tuple[str, int]]) -> None:
        self.opset = opset
        self.nodes: list[Any] = []
        #: The constants by name: arrays of the package onnx's dtypes.
        self.constants: dict[str, Any] = {}
        self._sources = sources
        self._used: set[str] = set()
        #: The tensors of constants and sizes, which are written once.
        self.known: dict[Any, str] = {}
        #: A prefix for the names of nodes written now.
        self.hint = ""
        #: Writes one of gemel's graphs among the nodes, from tensors: the names of its results.
        self.inlined: Callable[[Any, Sequence[str]], list[str]]

    def named(self, hint: str) -> str:
        """A name that no tensor has yet."""
        found = unused_name(hint, self._used.__contains__)
        self._used.add(found)
        return found

    def rename(self, old: str, new: str) -> str:
        """Rename a tensor that a node computes, to `new` if that is free; returns the name."""
        new = self.named(new)
        for node in all_nodes(self.nodes):
            for names in (node.input, node.output):
                for place, name in enumerate(names):
                    if name == old:
                        names[place] = new
        return new

    # ---- bodies

    @contextmanager
    def inside(self) -> Iterator[list[Any]]:
        """Nodes that are added meanwhile form the body of another node, which reads all tensors
        there are so far. Those of the body are in nothing else."""
        nodes, known = self.nodes, dict(self.known)
        self.nodes = []
        try:
            yield self.nodes
        finally:
            self.nodes, self.known = nodes, known

    def body(
        self, nodes: list[Any], inputs: Iterable[tuple[str, Spec]], outputs: Sequence[Any]
    ) -> Any:
        """Nodes as a body, with (name, spec) of its inputs and outputs."""
        helper = onnx("helper")
        given, found = (
            [helper.make_tensor_value_info(name, code_of(spec.dtype), _known_sizes(spec))
             for name, spec in each]
            for each in (inputs, outputs)
        )  # fmt: skip
        return helper.make_graph(nodes, self.named("body"), given, found)

    # ---- nodes

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one result; returns the result's name. Attributes that are None are
        omitted."""
        return self.several(kind, 1, *inputs, **attributes)[0]

    def several(self, kind: str, count: int, *inputs: str, **attributes: Any) -> tuple[str, ...]:
        """Add a node with several results."""
        name = self.named(self.hint or kind.lower())
        results = (name,) if count == 1 else tuple(self.named(f"{name}_{i}") for i in range(count))
        given = {key: value for key, value in attributes.items() if value is not None}
        made = onnx("helper").make_node(
            kind, list(map(str, inputs)), list(results), name=name, **given
        )
        self.nodes.append(made)
        return results

    def cast(self, x: str, source: DType, target: Any) -> str:
        """Convert a tensor to another dtype."""
        target = DType(target)
        return x if source is target else self.node("Cast", x, to=code_of(target))

    # ---- constants

    def constant(self, values: Any, dtype: Any = "int64", hint: str = "constant") -> str:
        """A constant tensor; equal ones are written once."""
        array = numpy().asarray(values).astype(twin(dtype))
        key = (array.tobytes(), array.shape, DType(dtype).name)
        if key not in self.known:
            self.known[key] = self.held(hint, array)
        return self.known[key]

    def held(self, hint: str, array: Any) -> str:
        """A tensor with a name of its own: a parameter."""
        name = self.named(hint)
        self.constants[name] = array
        return name

    # ---- sizes

    def sizes(self, shape: Iterable[int]) -> str:
        """A shape, or other integers, as a tensor: a constant, or computed from the inputs."""
        parts: list[str] = []
        known: list[int] = []
        for extent in shape:
            if not isinstance(extent, Dim):
                known.append(extent)
                continue
            if known:
                parts.append(self.constant(known))
                known = []
            parts.append(self._of_form(extent.form))
        if known or not parts:
            parts.append(self.constant(known))
        return parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=0)

    def number(self, value: Any, dtype: Any = "int64") -> str:
        """A number as a tensor without axes: a constant, or computed from the inputs if it is a
        free extent."""
        if not isinstance(value, Dim):
            return self.constant(value, dtype)
        key = ("number", value.form, DType(dtype).name)
        if key not in self.known:
            hint, self.hint = self.hint, "size"
            size = self.node("Squeeze", self.sizes((value,)), self.constant([0]))
            self.known[key] = self.cast(size, int64, dtype)
            self.hint = hint
        return self.known[key]

    def _of_form(self, form: Form) -> str:
        """A sum of extents as a tensor of one element."""
        if not form:
            return self.constant([0])
        key = ("extent", form)
        if key not in self.known:
            hint, self.hint = self.hint, "size"
            terms = [self._of_product(product, count) for product, count in form]
            self.known[key] = self._joined("Add", terms)
            self.hint = hint
        return self.known[key]

    def _of_product(self, product: tuple[Atom, ...], count: int) -> str:
        factors = [self._of_atom(atom) for atom in product]
        if count != 1 or not factors:
            factors.append(self.constant([count]))
        return self._joined("Mul", factors)

    def _joined(self, kind: str, parts: Sequence[str]) -> str:
        found = parts[0]
        for other in parts[1:]:
            found = self.node(kind, found, other)
        return found

    def _of_atom(self, atom: Atom) -> str:
        if not atom.operator:
            source, axis = self._sources[str(atom)]
            key = ("axis", source, axis)
            if key not in self.known:
                self.known[key] = self.node("Shape", source, start=axis, end=axis + 1)
            return self.known[key]
        left, right = self._of_form(atom.left), self._of_form(atom.right)
        if atom.operator in EXTREMES:
            return self.node(EXTREMES[atom.operator], left, right)
        if atom.operator == "%":
            return self.node("Mod", left, right)
        if not (at_least(atom.left, 0) and at_least(atom.right, 1)):  # ONNX rounds towards zero
            left = self.node("Sub", left, self.node("Mod", left, right))
        return self.node("Div", left, right)

    # ---- shapes

    def reshape(self, x: str, source: Sequence[int], target: Sequence[int]) -> str:
        """Reshape a tensor, if possible without computing sizes.

        In ONNX, 0 stands for the extent of x on the same axis, and -1 for the remaining extent.
        """
        shape: list[int] = []
        for axis, n in enumerate(target):
            same = axis < len(source) and same_for_all(n, source[axis])
            shape.append(0 if isinstance(n, Dim) and same else n)
        free = [axis for axis, n in enumerate(shape) if isinstance(n, Dim)]
        empty = [axis for axis, n in enumerate(target) if may_be_empty(n)]
        known = any(type(n) is int and n == 0 for n in target)
        if len(free) > 1 or known or (free and not set(empty) <= set(free)):
            # All sizes are given: here 0 is an empty axis, beside which -1 has no meaning.
            return self.node("Reshape", x, self.sizes(target), allowzero=int(bool(empty)) or None)
        if free:
            shape[free[0]] = -1
        return self.node("Reshape", x, self.constant(shape))

    def expand(self, x: str, source: Sequence[int], target: Sequence[int]) -> str:
        """Broadcast a tensor to a shape."""
        lead = len(target) - len(source)
        wanted = [
            1 if axis >= lead and same_for_all(n, source[axis - lead]) else n
            for axis, n in enumerate(target)
        ]
        if not lead and all(type(n) is int and n == 1 for n in wanted):
            return x
        return self.node("Expand", x, self.sizes(wanted))

    def padded(self, x: str, before: Sequence[int], after: Sequence[int], value: str) -> str:
        """Pad a tensor before and after each axis with one value."""
        if all(type(n) is int and n == 0 for n in (*before, *after)):
            return x
        return self.node("Pad", x, self.sizes((*before, *after)), value)


def all_nodes(nodes: Iterable[Any]) -> Iterator[Any]:
    """Nodes, and those of the bodies that they have."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_nodes(attribute.g.node)


def _known_sizes(spec: Spec) -> list[int | None]:
    return [None if isinstance(n, Dim) else n for n in spec.shape]


def may_be_empty(extent: int) -> bool:
    """Whether a size is 0, or comes out as 0 for some sizes of the inputs."""
    least = least_of(extent.form) if isinstance(extent, Dim) else extent
    return least is None or least < 1


__all__ = ["AFTER_ALL", "BEFORE_ALL", "Graph", "all_nodes", "may_be_empty"]
