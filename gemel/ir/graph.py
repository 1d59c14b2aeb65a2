"""Node, Entry and Graph: a program as a directed acyclic graph of operations.

A node applies an operation to entries; an entry is one output of a node, so an edge of the graph.
A graph is given by its inputs and outputs; its nodes are those the outputs need::

    >>> x = placeholder(Spec((3,), "float32"), "x")
    >>> with Trace():
    ...     y = (x + 1) * x
    >>> str(Graph([x], [y]))
    '(x + 1) * x'

Nodes are not changed after they are made: a pass makes a new graph, which shares unchanged nodes.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

from gemel import _core
from gemel.device import Device, as_device, current_device
from gemel.dtype import weak
from gemel.errors import GemelError, ShapeError, TraceError
from gemel.extent import NUMBER
from gemel.ir.array_methods import ArrayMethods
from gemel.ir.current import current_trace
from gemel.ir.formulas import describe
from gemel.ir.methods import call, operate
from gemel.ir.numbers import known_number
from gemel.ir.reference import numpy
from gemel.ir.unavailable import InMemory
from gemel.spec import Spec

if TYPE_CHECKING:
    from gemel.ir.op import Op


_serials = count()


def next_serial() -> int:
    """A new serial number: greater than that of every node so far."""
    return next(_serials)


class Node:
    """One step of a program: an operation on entries, or (without one) an input or a constant.

    `value` is that of a constant: a Python number, or an array that the traced function closes over
    (read anew at every run). `specs` has one Spec per output. `origin` is the traced line of the
    program ("file:line"), or empty; `part` names the composite operation that the node is a part
    of, or the operation whose gradient it belongs to; `precision` is the mixed precision that was
    in force when it was traced, if any. Nodes made later have a greater `serial`.
    """

    __slots__ = (
        "__weakref__",
        "entries",
        "inputs",
        "name",
        "op",
        "origin",
        "params",
        "part",
        "precision",
        "serial",
        "specs",
        "value",
    )

    def __init__(
        self,
        op: Op | None,
        inputs: tuple[Entry, ...],
        params: dict[str, Any],
        specs: tuple[Spec, ...],
        value: Any = None,
        name: str = "",
        origin: str = "",
        part: str = "",
        precision: Any = None,
    ) -> None:
        self.serial = next(_serials)
        self.op = op
        self.origin = origin
        self.part = part
        self.precision = precision
        self.inputs = inputs
        self.params = params
        self.specs = specs
        self.value = value
        self.name = name
        if len(specs) == 1:
            self.entries: tuple[Entry, ...] = (Entry(self, 0),)
        else:
            self.entries = tuple([Entry(self, index) for index in range(len(specs))])

    @property
    def is_input(self) -> bool:
        """Whether its value comes from outside."""
        return self.op is None and self.value is None

    @property
    def is_constant(self) -> bool:
        """Whether it is a number or a closed-over array."""
        return self.op is None and self.value is not None

    @property
    def is_number(self) -> bool:
        """Whether it is a constant Python number."""
        return self.op is None and isinstance(self.value, NUMBER)

    @property
    def has_kernel(self) -> bool:
        """Whether it becomes machine code. NumPy runs the nodes that do not."""
        op = self.op
        if op is None or not op.kernel_for([e.spec for e in self.inputs], self.specs):
            return False
        graphs = [value for value in self.params.values() if isinstance(value, Graph)]
        return all(node.has_kernel for g in graphs for node in g.walk() if node.op is not None)

    @property
    def fails(self) -> bool:
        """Whether it can fail when it runs, depending on the values of its inputs."""
        if self.op is None or not self.op.may_fail(self.inputs):
            return False
        graphs = [value for value in self.params.values() if isinstance(value, Graph)]
        return not graphs or any(node.fails for g in graphs for node in g.walk())

    def __repr__(self) -> str:
        kind = self.op.name if self.op else "constant" if self.is_constant else "input"
        return f"<{kind} {', '.join(map(str, self.specs))}>"


class Entry(InMemory, ArrayMethods):
    """One output of a node. Functions being traced get entries in place of arrays ("symbols").

    It has the methods and operators of an array; each adds a node. As keys, entries are compared
    by identity; `==` is the elementwise operation.
    """

    __slots__ = ("index", "node")

    #: Whether it is an `inputs.Scalar`: a number argument, whose value may be asked while tracing.
    is_run_time_number = False

    def __init__(self, node: Node, index: int) -> None:
        self.node = node
        self.index = index

    @property
    def spec(self) -> Spec:
        """Its shape and dtype."""
        return self.node.specs[self.index]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape; free extents are `Dim`."""
        return self.node.specs[self.index].shape

    @property
    def dtype(self) -> Any:
        """Its dtype."""
        return self.node.specs[self.index].dtype

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self.node.specs[self.index].shape)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return self.spec.size

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        return NotImplemented if is_foreign(other) else operate("equal", self, other)

    def __ne__(self, other: object) -> Any:
        return NotImplemented if is_foreign(other) else operate("not_equal", self, other)

    @property
    def itemsize(self) -> int:
        """How many bytes an element takes."""
        return self.spec.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """How many bytes its elements take."""
        return self.spec.nbytes

    @property
    def device(self) -> Device:
        """The device the program is traced on. It runs on the device of its arguments."""
        return current_device()

    ctx = context = device

    def to_device(self, device: Any) -> Entry:
        """The entry itself: a program runs on one device. Raises `TraceError` for another one."""
        if as_device(device) == self.device:
            return self
        raise TraceError(
            f"to_device: a hybridized function runs on one device, here {self.device}, so it "
            f"cannot move {self.spec} to {device}; move it outside"
        )

    as_in_ctx = as_in_context = to_device

    def copyto(self, other: Any) -> Any:
        """Write its elements into another array or symbol and return that; on a device: a copy."""
        if isinstance(other, Device):
            return self.to_device(other).copy()
        if other.shape != self.shape:
            raise ShapeError(f"copyto: {self.spec} cannot be copied into shape {list(other.shape)}")
        other[...] = self
        return other

    def __repr__(self) -> str:
        name = self.node.name or (self.node.op.name if self.node.op else "constant")
        return f"<_Symbol {name}>"

    def __str__(self) -> str:
        return repr(self)

    def __format__(self, form: str) -> str:
        return format(self.item(), form) if form else repr(self)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of a 0-d symbol")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __pos__(self) -> Any:
        return operate("copy", self)

    def __setitem__(self, key: Any, value: Any) -> None:
        call("setitem", self, key, value)

    def _unknown(self, what: str) -> TraceError:
        line = _core.program_line()
        place = f" at {line}" if line else ""
        return TraceError(
            f"{what}{place} needs the value of {self!r} ({self.spec}), which is known only when "
            "the program runs; use npx.cond for a branch or np.where for a choice per element, "
            "or move this code out of the hybridized function"
        )

    def left_over(self, what: str) -> TraceError:
        """The error for a symbol that `what` was given after its trace has ended."""
        origin = self.node.origin
        place = f", made at {origin}," if origin else ""
        return TraceError(
            f"{what}: {self!r} ({self.spec}){place} stands for a value in one trace of a "
            "hybridized function and has no value outside of that trace; return it from that "
            "function, or pass it to this one as an argument"
        )

    def _value(self, what: str) -> Any:
        if self.node.is_number:
            return self.node.value
        if self.spec.weak and self.node.op is not None:
            return known_number(self, what)
        return self._known(what).item()

    def _known(self, what: str) -> Any:
        """Its value, if only closed-over arrays decide that. Raises `TraceError` otherwise."""
        trace = current_trace()
        if trace is None:
            raise self.left_over(what)
        found = trace.inputs.known(self)
        if found is None:
            raise self._unknown(what)
        return found

    def __bool__(self) -> bool:
        return bool(self._value("bool()"))

    def __int__(self) -> int:
        return int(self._value("int()"))

    def __float__(self) -> float:
        return float(self._value("float()"))

    def __index__(self) -> int:
        return operator.index(self._value("indexing"))

    def asnumpy(self) -> Any:
        """Its elements, if only closed-over arrays decide them. Raises `TraceError` otherwise."""
        return self._known("asnumpy()").asnumpy()

    def item(self, *index: Any) -> Any:
        """Its number, if it is a constant or closed-over arrays decide it. Else `TraceError`."""
        return (self._one(index) if index else self)._value("item()")

    def tolist(self) -> Any:
        """Its elements, if only closed-over arrays decide them. Raises `TraceError` otherwise."""
        return self._known("tolist()").tolist()

    def __array__(self, *given: Any, **named: Any) -> Any:
        what = "conversion to NumPy"
        if self.spec.weak:
            return numpy().asarray(self._value(what)).__array__(*given, **named)
        return self._known(what).__array__(*given, **named)

    def __dlpack__(self, **_: Any) -> Any:
        raise self._unknown("__dlpack__()")

    __dlpack_device__ = __dlpack__


def is_number(value: object) -> bool:
    """Whether it is a Python number, or a symbol for one."""
    return isinstance(value, NUMBER) or (isinstance(value, Entry) and value.spec.weak)


def is_foreign(other: object) -> bool:
    """Whether `==` with this is Python's own instead of elementwise: None and text, as for
    arrays."""
    return other is None or isinstance(other, (str, bytes))


def constant(value: Any) -> Entry:
    """A Python number as a constant: 0-d and weak (it takes the dtype of the other operand)."""
    return Node(None, (), {}, (Spec((), weak(value), weak=True),), value).entries[0]


def captured(array: Any) -> Entry:
    """A closed-over array as a constant: read at every run, never folded."""
    return Node(None, (), {}, (Spec(array.shape, array.dtype),), array).entries[0]


def placeholder(spec: Spec, name: str = "") -> Entry:
    """A new input."""
    return Node(None, (), {}, (spec,), None, name).entries[0]


class Graph:
    """A program: its inputs, its outputs and its updates.

    An update (index, entry) overwrites an input with the value of an entry. The inputs may be
    entries in the middle of a larger program; the nodes that compute them are not in this graph.
    """

    __slots__ = ("_order", "_readers", "inputs", "name", "outputs", "updates")

    def __init__(
        self,
        inputs: Iterable[Entry],
        outputs: Iterable[Entry],
        updates: Iterable[tuple[int, Entry]] = (),
        name: str = "graph",
    ) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.updates = tuple(updates)
        self.name = name
        self._order: tuple[Node, ...] = ()
        self._readers: dict[Entry, list[Node]] = {}

    @property
    def results(self) -> tuple[Entry, ...]:
        """Everything the program must compute: its outputs, then its updates."""
        return self.outputs + tuple(entry for _, entry in self.updates)

    def walk(self) -> tuple[Node, ...]:
        """Every node the results need, each after its inputs."""
        # Passes walk a graph some twenty times, and it does not change: find the order once.
        self._order = self._order or tuple(walk(self.results, self.inputs))
        return self._order

    def readers(self) -> dict[Entry, list[Node]]:
        """The nodes that read each entry, in order; one that reads it twice is listed twice."""
        if not self._readers:
            for node in self.walk():
                for entry in node.inputs:
                    self._readers.setdefault(entry, []).append(node)
        return self._readers

    def uses(self) -> Counter[Entry]:
        """How often each entry is read or is a result."""
        found = Counter({entry: len(nodes) for entry, nodes in self.readers().items()})
        found.update(self.results)
        return found

    def unbound_inputs(self) -> list[Node]:
        """Placeholders the results need that are not among the inputs."""
        given = {entry.node for entry in self.inputs}
        return [node for node in self.walk() if node.is_input and node not in given]

    def count(self, name: str) -> int:
        """How many nodes apply the operation called `name` (``"constant"`` counts constants)."""
        if name == "constant":
            return sum(1 for node in self.walk() if node.is_constant)
        return sum(1 for node in self.walk() if node.op is not None and node.op.name == name)

    def __str__(self) -> str:
        return describe(self)


def walk(results: Iterable[Entry], given: Iterable[Entry] = ()) -> list[Node]:
    """Every node these entries need, each after its inputs (depth first, in order of first use).

    The walk stops at `given` entries: the nodes that compute them are left out.
    """
    order: list[Node] = []
    seen = {entry.node for entry in given if entry.node.op is not None}
    stack: list[Node | None] = [entry.node for entry in reversed(tuple(results))]
    while stack:
        node = stack.pop()
        if node is None:  # a mark: all inputs of the node below it have been listed
            order.append(stack.pop())  # type: ignore[arg-type]
        elif node not in seen:
            seen.add(node)
            inputs = node.inputs
            if not inputs:
                order.append(node)
                continue
            stack += (node, None)
            for entry in reversed(inputs):
                if entry.node not in seen:
                    stack.append(entry.node)
    return order


Rule = Callable[[Node, tuple[Entry, ...]], "tuple[Entry, ...] | None"]


def rewrite(graph: Graph, rule: Rule) -> Graph:
    """A graph in which each operation is replaced by what `rule` returns for it.

    ``rule(node, inputs)`` gets the node and its already rewritten inputs, and returns the new
    entries. None keeps the node (as a copy if its inputs changed). Most passes are one `rewrite`.
    Raises `GemelError` if the rule returns anything else.
    """
    replaced: dict[Entry, Entry] = {}
    for node in graph.walk():
        if node.op is None:
            continue
        inputs = node.inputs
        changed = any(map(replaced.__contains__, inputs))
        if changed:
            inputs = tuple([replaced.get(entry, entry) for entry in inputs])
        new = rule(node, inputs)
        if new is None and changed:
            new = copy_node(node, inputs).entries
        if new is not None and new is not node.entries:
            if not isinstance(new, (tuple, list)) or len(new) != len(node.entries):
                raise GemelError(
                    f"rewrite: the rule returned {new!r} for {node!r}; it must return None, or a "
                    f"tuple or list with an entry for each of its {len(node.entries)} results"
                )
            replaced.update(zip(node.entries, new, strict=True))
    return substitute_results(graph, replaced) if replaced else graph


def substitute_results(graph: Graph, replaced: dict[Entry, Entry]) -> Graph:
    """The graph with its outputs and updates looked up in `replaced`."""
    return Graph(
        graph.inputs,
        (replaced.get(entry, entry) for entry in graph.outputs),
        ((index, replaced.get(entry, entry)) for index, entry in graph.updates),
        graph.name,
    )


def copy_node(node: Node, inputs: tuple[Entry, ...]) -> Node:
    """A node of the same operation on other inputs, which must have the same specs."""
    own = node.params, node.specs, node.value, node.name, node.origin, node.part, node.precision
    return Node(node.op, inputs, *own)


def copy_into(replaced: dict[Entry, Entry], node: Node) -> None:
    """Copy a node, with its inputs looked up in `replaced`, and add its new results to that."""
    new = copy_node(node, tuple(replaced.get(entry, entry) for entry in node.inputs))
    replaced.update(zip(node.entries, new.entries, strict=True))


def inline(graph: Graph, arguments: Iterable[Entry]) -> tuple[Entry, ...]:
    """The outputs of a graph applied to arguments: its nodes copied, its inputs replaced."""
    replaced = dict(zip(graph.inputs, arguments, strict=True))
    for node in graph.walk():
        if node.op is None:
            continue
        copy_into(replaced, node)
    return tuple(replaced.get(entry, entry) for entry in graph.outputs)
