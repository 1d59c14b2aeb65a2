"""Traced programs as ONNX graphs: each entry by a rule, its declared ONNX name, or its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

from gemel.arrays.making import from_numpy
from gemel.dtype import DType, bfloat16, bool_, float16, float32, int32, promote
from gemel.errors import ExportError
from gemel.extent import Dim
from gemel.ir.graph import Entry, Node, captured, walk
from gemel.ir.graph import Graph as IrGraph
from gemel.ir.interpret import interpret
from gemel.ir.op_kinds import Elementwise
from gemel.onnx.types import code_of, onnx, twin
from gemel.onnx.write.graph import Graph
from gemel.onnx.write.rules import CALLS, OPERATIONS
from gemel.onnx.write.table import Call, Rule
from gemel.onnx.write.tracing import Program, entries_of
from gemel.spec import Spec
from gemel.symbol.noting import Note
from gemel.symbol.parts import by_parts, kept_by_save
from gemel.symbol.sizes import free
from gemel.symbol.slices import given_slices

#: Operators of elementwise operations that return bools.
TESTS = {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "IsInf", "IsNaN"}


class Writer:
    """Writes the results of a program, and what they need, to a graph."""

    def __init__(self, program: Program, opset: int) -> None:
        self.program = program
        notes = program.trace.notes
        names = dict(zip(program.entries, program.inputs, strict=True))
        sources = {name: (names[entry], axis) for name, (entry, axis) in notes.sources.items()}
        self.graph = Graph(opset, sources)
        self.graph.inlined = self._inlined
        for name in program.inputs:
            self.graph.named(name)
        #: The names of the tensors for entries.
        self.names: dict[Entry, str] = dict(names)
        self._parts: dict[Node, tuple[Entry, ...]] = {}
        parameters = program.trace.state.parameters.values()
        self._parameters = {entry: parameter for parameter, entry in parameters}
        self._held: dict[int, str] = {}
        self._results_of_calls = notes.results()

    def written(self, outputs: Iterable[Entry]) -> list[str]:
        """Write these entries; returns the names of their tensors."""
        outputs = tuple(outputs)
        stack = list(reversed(outputs))
        while stack:
            entry = stack[-1]
            missing = [e for e in self._needs(entry) if e not in self.names]
            if entry in self.names:
                stack.pop()
            elif missing:
                stack += reversed(missing)
            elif self._write(entry):
                stack.pop()
        return [self.names[entry] for entry in outputs]

    def _inlined(self, inner: Any, inputs: Sequence[str]) -> list[str]:
        """Write a graph that an operation has, from these tensors; its entries are of nothing
        else."""
        names, hint = dict(self.names), self.graph.hint
        self.names.update(zip(inner.inputs, inputs, strict=True))
        try:
            return self.written(inner.outputs)
        finally:
            self.names, self.graph.hint = names, hint

    def _needs(self, entry: Entry) -> Sequence[Entry]:
        """The entries that have to be written before this one."""
        if entry in self.names:
            return ()
        held = self.program.trace.outside.constants(entry.node)
        if held is not None:
            self._parts[entry.node] = held
        if entry.node in self._parts:
            return self._parts[entry.node]
        note = self.program.trace.notes.made.get(entry)
        if note is not None:
            return [e for e in entries_of(note[0].written.settings) if not e.node.is_number]
        return [e for e in entry.node.inputs if not e.node.is_number]

    def _write(self, entry: Entry) -> bool:
        """Write an entry whose inputs are written; returns False if its parts have to be written
        first."""
        node = entry.node
        if node in self._parts:
            for mine, other in zip(node.entries, self._parts[node], strict=False):
                self.names[mine] = self._cast(self.names[other], other.dtype, mine.dtype)
            return True
        note = self.program.trace.notes.made.get(entry)
        if note is not None:
            return self._call(note[0])
        if node.op is None:
            self.names[entry] = self._variable(entry)
            return True
        self.graph.hint = node.name or node.op.name
        found = self._elementwise(node) if isinstance(node.op, Elementwise) else self._ruled(node)
        if found is None:
            self._parts[node] = self._by_parts(node)
            return False
        names = (found,) if isinstance(found, str) else found
        self.names.update(zip(node.entries, names, strict=False))
        return True

    # ---- operations

    def _ruled(self, node: Node) -> Any:
        """The results of an operation by its rule; None if there is none."""
        assert node.op is not None
        rule = OPERATIONS.get(node.op.name)
        if rule is None:
            return None
        return self._by_rule(rule, node, tuple(entry.spec for entry in node.inputs))

    def _by_rule(self, rule: Rule, node: Node, specs: Sequence[Spec]) -> Any:
        """The results of an operation by a rule, from inputs of these specs."""
        assert node.op is not None
        name, index = node.op.name, self.program.trace.notes.index_of(node)
        slices = () if index is None else given_slices(index, node.params["key"])
        values = tuple(e.node.value if e.node.is_number else None for e in node.inputs)

        def write(of: Callable[[Spec], Spec]) -> Any:
            given = tuple(map(of, specs))
            call = Call(name, given, tuple(map(of, node.specs)), values, slices)
            names = [self._input(e, s.dtype) for e, s in zip(node.inputs, given, strict=True)]
            return rule(self.graph, call, *names, **node.params)

        whole = not any(isinstance(value, IrGraph) for value in node.params.values())
        return self._fitted(write, node.specs, whole and any(map(_is_low, (*specs, *node.specs))))

    def _elementwise(self, node: Node) -> Any:
        """The same for elementwise operations; their inputs are cast to the dtype of the
        computation."""
        op: Any = node.op
        specs = tuple(entry.spec for entry in node.inputs)
        dtypes, results = op.types(specs, node.params)
        rule = OPERATIONS.get(op.name)
        if rule is not None:
            given = tuple(Spec(s.shape, d, s.weak) for s, d in zip(specs, dtypes, strict=True))
            return self._by_rule(rule, node, given)
        kind: str | None = None if op.random else op.names.get("onnx")
        if kind is None:
            return None
        computed = computed_in(kind, reduce(promote, dtypes), self.graph.opset)
        if computed is None:
            return None
        names = [self._input(entry, computed) for entry in node.inputs]
        found = self.graph.node(kind, *names)
        return self._cast(found, bool_ if kind in TESTS else computed, results[0])

    def _by_parts(self, node: Node) -> tuple[Entry, ...]:
        """The entries that a node consists of. Raises `ExportError`."""
        assert node.op is not None
        if node.op.random:
            raise ExportError(
                f"onnx.export: {node.op.name} draws random numbers, which no file draws as gemel "
                "does; give them as an argument"
            )
        trace = self.program.trace
        with trace, trace.state.as_made():
            found = by_parts(node)
        found = found or self._computed(node)
        if found is None:
            settings = ", ".join(
                f"{key}={'{...}' if isinstance(value, IrGraph) else repr(value)}"
                for key, value in node.params.items()
            )
            where = f" ({node.origin})" if node.origin else ""
            raise ExportError(
                f"onnx.export: ONNX has nothing for {node.op.name}({settings}){where}; write it by "
                f"other operations{kept_by_save(node.op)}"
            )
        return found

    def _computed(self, node: Node) -> tuple[Entry, ...] | None:
        """The results of an operation on constants alone; None for another one."""
        nodes = list(walk(node.entries))
        if any(map(_varies, nodes)):
            return None
        found = interpret(IrGraph((), node.entries))
        return tuple(captured(from_numpy(each)) for each in found)

    # ---- calls

    def _call(self, note: Note) -> bool:
        """Write a noted call by its rule; returns False if its inner calls are to be written
        instead."""
        written = note.written
        self.graph.hint = note.name
        results = self._results_of_calls[id(written.settings)]
        specs = [Spec((), bool_)] * (1 + max(index for _, index in results))
        for entry, index in results:
            specs[index] = entry.spec

        def write(of: Callable[[Spec], Spec]) -> Any:
            call = Call(written.name, (), tuple(map(of, specs)))
            given = self._named(written.settings, of)
            return CALLS[written.name](self.graph, call, **given)

        found = self._fitted(write, specs, any(map(_is_low, specs)))
        if found is None:
            for entry, _ in results:
                self.program.trace.notes.made.pop(entry, None)
            return False
        names = (found,) if isinstance(found, str) else found
        self.names.update({entry: names[index] for entry, index in results})
        return True

    def _named(self, value: Any, of: Callable[[Spec], Spec]) -> Any:
        """The arguments with tensors in place of entries, with the dtypes that `of` gives."""
        if isinstance(value, Entry):
            spec = of(value.spec)
            return Tensor(self._input(value, spec.dtype), spec)
        if isinstance(value, dict):
            return {key: self._named(each, of) for key, each in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._named(each, of) for each in value)
        if hasattr(value, "_fields"):
            return type(value)(*(self._named(each, of) for each in value))
        return value

    # ---- dtypes that operators lack

    def _fitted(
        self, write: Callable[[Callable[[Spec], Spec]], Any], specs: Sequence[Spec], is_low: bool
    ) -> Any:
        """What `write` writes, given a function of specs: in float32, if there is bfloat16 (it
        `is_low`) and one of the operators lacks that. The results have these specs."""
        graph = self.graph
        count, known = len(graph.nodes), dict(graph.known)
        found = write(lambda spec: spec)
        kinds = {node.op_type for node in graph.nodes[count:]}
        if found is None or not is_low or not any(map(self._lacks_bfloat16, kinds)):
            return found
        graph.nodes[count:], graph.known = [], known
        found = write(_widened)
        names = (found,) if isinstance(found, str) else found
        pairs = zip(names, specs, strict=False)
        return tuple(self._cast(name, _widened(s).dtype, s.dtype) for name, s in pairs)

    def _lacks_bfloat16(self, kind: str) -> bool:
        allowed = taken_by(kind, self.graph.opset)
        return tensor_type(float16) in allowed and tensor_type(bfloat16) not in allowed

    # ---- inputs

    def _input(self, entry: Entry, dtype: DType) -> str:
        """The name of an input in this dtype."""
        if entry.node.is_number:
            return self.graph.number(entry.node.value, dtype)
        return self._cast(self.names[entry], entry.dtype, dtype)

    def _cast(self, name: str, source: DType, target: DType) -> str:
        hint, self.graph.hint = self.graph.hint, "cast"
        found = self.graph.cast(name, source, target)
        self.graph.hint = hint
        return found

    def _variable(self, entry: Entry) -> str:
        """The tensor for a parameter, a captured array or a number."""
        node, parameter = entry.node, self._parameters.get(entry)
        if node.is_number:
            return self.graph.number(node.value, entry.dtype)
        if parameter is None and not node.is_constant:
            raise ExportError(f"onnx.export: {node!r} is no input of the program")
        source = node.value if parameter is None else parameter
        if id(source) not in self._held:
            array = source if parameter is None else parameter.gathered()
            name = "constant" if parameter is None else parameter.name or "parameter"
            values = array.asnumpy().astype(twin(array.dtype))
            self._held[id(source)] = self.graph.held(name, values)
        return self._held[id(source)]


def _is_low(spec: Spec) -> bool:
    return spec.dtype is bfloat16


def _widened(spec: Spec) -> Spec:
    """A spec with float32 in place of bfloat16."""
    return Spec(spec.shape, float32, spec.weak) if _is_low(spec) else spec


def _varies(node: Node) -> bool:
    """Whether a node is another one for other inputs, sizes or calls."""
    if node.is_constant:
        return isinstance(node.value, Dim)
    sizes = tuple(entry.shape for entry in node.entries)
    return node.op is None or node.op.random or free((*sizes, *node.params.values()))


class Tensor(str):
    """The name of a tensor that is an argument of a call, together with its spec."""

    __slots__ = ("spec",)

    spec: Spec

    def __new__(cls, name: str, spec: Spec) -> Tensor:
        """Create the name, with its spec."""
        self = super().__new__(cls, name)
        self.spec = spec
        return self


def computed_in(kind: str, dtype: DType, opset: int) -> DType | None:
    """The dtype in which an operator computes for this dtype, a wider one if it lacks this one."""
    allowed = taken_by(kind, opset)
    wider = (
        (float32,) if dtype.is_floating else (int32, DType("int64")) if dtype.kind != "c" else ()
    )
    choices: tuple[DType, ...] = (dtype, *wider)
    for each in choices:
        if tensor_type(each) in allowed or not allowed:
            return each
    return None


def taken_by(kind: str, opset: int) -> set[str]:
    """The types of an operator's first input."""
    schema = onnx("defs").get_schema(kind, opset)
    named = [each.type_str for each in schema.inputs[:1]]
    constraints = (c for c in schema.type_constraints if c.type_param_str in named)
    return {each for constraint in constraints for each in constraint.allowed_type_strs}


def tensor_type(dtype: DType) -> str:
    """The name of a dtype's tensors in schemas."""
    name = onnx().TensorProto.DataType.Name(code_of(dtype)).lower()
    return f"tensor({name})"


__all__ = ["Tensor", "Writer"]
