"""Traced programs as symbols: gemel's graph expressed in MXNet's operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gemel.errors import ExportError, ShapeError
from gemel.extent import seen
from gemel.ir.graph import Entry, Node, captured, walk
from gemel.ir.methods import call
from gemel.legacy.declare import Inside, Written, wanted
from gemel.npx.serialize import type_flag
from gemel.runtime.prepare import as_entry
from gemel.spec import Spec
from gemel.symbol.node import VARIABLE, Reference, SymbolNode, text_of, unused_name, variables_of
from gemel.symbol.nodes import as_call, number_of
from gemel.symbol.noting import Note, Noting
from gemel.symbol.own import PREFIX, named_extents, numbers_text, parameters_text
from gemel.symbol.parts import by_parts, kept_by_save
from gemel.symbol.sizes import fixed, free, of_batch
from gemel.symbol.traced import Traced
from gemel.tracing.programs import Arguments


class Exported(Traced):
    """A function traced for one kind of arguments, as a symbol.

    `variables` are the arrays it needs besides the arguments, by name: those of `parameters`, and
    arrays it closes over. `given` may contain symbols that stand for the arguments, instead of new
    variables. With `own`, operations that MXNet lacks become nodes of gemel's own, sizes that
    depend on the arguments stay free, and parameters may be overwritten: `updated` are their names,
    and the last of `heads` their new contents. `names` are the names of the arguments: data, or
    data0, data1, ... `held` maps names that are taken, in a file of several programs, to what they
    stand for. `least` is a lower bound of all free extents. `guards` are the comparisons that the
    trace made with free extents; the program is valid for sizes that give the same answers.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Arguments,
        given: Sequence[Reference] = (),
        own: bool = False,
        names: Sequence[str] = (),
        held: dict[str, Any] | None = None,
        least: int = 1,
    ) -> None:
        super().__init__(Noting(own, least), function, arguments, names)
        self.own = own
        #: The batches for which the program is valid, as text for users; empty: all.
        self.limits: list[str] = []
        updates = self.updates
        if updates and not own:
            raise ExportError(
                f"export: forward overwrites {updates[0][0].name} outside of batch_norm, which "
                "MXNet's files cannot express; use gemel.save"
            )
        self.variables: dict[str, Any] = {}
        self.parameters: dict[str, Any] = {}
        self._held = {} if held is None else held
        self._sources: dict[int, Reference] = {}
        self._references: dict[Entry, Reference] = {}
        #: The nodes of the function that others are parts of, for errors.
        self._wholes: dict[Node, Node] = {}
        parameters = self.trace.state.parameters.values()
        self._parameters = {entry: parameter for parameter, entry in parameters}
        for place, number in enumerate(self.numbers):
            if isinstance(number, Entry):
                self._references[number] = SymbolNode(VARIABLE, f"number{place}"), 0
        for position, entry in enumerate(self.entries):
            variable = (SymbolNode(VARIABLE, self.inputs[position]), 0)
            self._references[entry] = given[position] if given else variable
        self._used = set(self.inputs)
        self._results_of_calls = self.trace.notes.results()
        #: While a program inside of a call is written: the serial number of its start, and the
        #: variables for what it reads from outside.
        self._border: tuple[int, dict[Entry, SymbolNode]] | None = None
        self.trace.notes.writes = True
        with self.trace, self.trace.state.as_made():
            self.heads = self._written([*self.outputs, *(entry for _, entry in updates)])
        #: The names of the parameters that are overwritten.
        self.updated = [self._variable_of(p, p.name or "parameter", {})[0].name for p, _ in updates]

    def named(self, text: str) -> str:
        """A text in which free extents are written as in Python."""
        return named_extents(text, self.inputs)

    def held_sizes(self) -> list[str]:
        """The sizes for which alone a file is valid, as text for users, because it holds them as
        numbers; without those that the program takes no other of."""
        settled = {guard.equates()[0] for guard in self.guards}
        dims = self.trace.extents.dims
        names = sorted(name for name in self.trace.notes.held - settled if name in dims)
        return [self.named(f"{name} == {seen(dims[name])}") for name in names]

    def holds_for_one(self, names: Iterable[str]) -> bool:
        """Whether the program is also valid if these extents are 1."""
        sizes = {name: seen(extent) for name, extent in self.trace.extents.dims.items()}
        sizes.update(dict.fromkeys(names, 1))
        return all(guard.holds(sizes) for guard in self.guards)

    # ---- entries to references

    def _written(self, outputs: Iterable[Entry]) -> list[Reference]:
        heads = tuple(outputs)
        calls: dict[Entry, Any] = {}
        stack = list(reversed(heads))
        while stack:
            entry = stack[-1]
            if entry in self._references:
                stack.pop()
                continue
            if entry not in calls:
                calls[entry] = self._call(entry)
            missing = [e for e in _needs(calls[entry]) if e not in self._references]
            if missing:
                stack += reversed(missing)
                continue
            stack.pop()
            self._make(entry, calls[entry])
        return [self._references[entry] for entry in heads]

    def _call(self, entry: Entry) -> Any:
        """How to write an entry: as a note, as equivalent entries, or (None) as a variable."""
        node = entry.node
        if self._border is not None and node.serial < self._border[0] and not node.is_number:
            return None
        held = self.trace.outside.constants(node)
        if held is not None:
            return held
        note = self.trace.notes.made.get(entry)
        if note is not None and not (self.own and free(tuple(note[0].written.settings.values()))):
            return note[0]._replace(written=_of_entries(note[0].written))
        if node.op is None:
            return None
        if self.own:
            settings = {"parameters": parameters_text(node), "outputs": len(node.entries)}
            arrays = tuple(e for e in node.inputs if not e.node.is_number)
            if len(arrays) < len(node.inputs):
                settings["numbers"] = numbers_text(node)
            name = node.name or self.trace.scopes.named(node.op.name)
            return Note(
                Written(f"{PREFIX}{node.op.name}", arrays, settings, len(node.entries)), name
            )
        meaning = as_call(node)
        if meaning is None:
            meaning = self._expanded(node)
        if isinstance(meaning, Written):
            meaning = meaning._replace(inputs=_typed(meaning.inputs))
            return Note(_of_entries(meaning), node.name or self.trace.scopes.named(node.op.name))
        parts = walk(meaning, node.inputs)
        self._wholes.update(dict.fromkeys(parts, self._wholes.get(node, node)))
        return meaning

    def _expanded(self, node: Node) -> tuple[Entry, ...]:
        """The node expressed by other operations. Raises `ExportError`."""
        found = by_parts(node)
        if found is not None:
            return found
        node = self._wholes.get(node, node)
        assert node.op is not None
        where = f" ({node.origin})" if node.origin else ""
        raise ExportError(
            f"export: MXNet has no operation for {node.op.name}{where}; express it by other "
            f"operations{kept_by_save(node.op)}"
        )

    def _make(self, entry: Entry, meaning: Any) -> None:
        node = entry.node
        if meaning is None:
            self._references[entry] = self._variable(entry)
        elif isinstance(meaning, Note):
            self._apply(entry, meaning)
        else:
            for mine, other in zip(node.entries, meaning, strict=False):
                self._references.setdefault(mine, self._references[other])

    def _apply(self, entry: Entry, note: Note) -> None:
        written = note.written
        settings = {
            key: text_of(fixed(value, f"export: {note.name}: {key}"))
            for key, value in written.settings.items()
        }
        inputs = [self._references[source] for source in written.inputs]
        name = self._unique(note.name)
        graphs: list[tuple[Reference, ...]] = []
        if written.inside:
            inputs, graphs, more = self._inside(name, written)
            settings.update(more)
        node = SymbolNode(written.name, name, settings, inputs, _outputs(written), graphs)
        for other, index in self._results_of_calls.get(id(written.settings), ()):
            self._references[other] = (node, index)
        if entry not in self._references:
            for index, further in enumerate(entry.node.entries):
                self._references.setdefault(further, (node, index))

    def _inside(self, name: str, written: Written) -> tuple[Any, Any, dict[str, str]]:
        """The inputs of a call with programs inside, the programs' heads, and the settings that say
        which inputs their variables stand for."""
        inputs = list(written.inputs)
        places: dict[Entry, int] = {}  # only inputs from outside; the others change with each step
        graphs, orders = [], []
        for inside in written.inside:
            heads, sources = self._program(name, inside)
            means = {entry: place for place, entry in enumerate(inside.arguments)}
            order = []
            for source in sources:
                if source not in means and source not in places:
                    places[source] = len(inputs)
                    inputs.append(source)
                order.append(means.get(source, places.get(source, 0)))
            graphs.append(heads)
            orders.append(order)
        assert written.placed is not None
        settings = {key: str(value) for key, value in written.placed(orders).items()}
        settings["num_args"] = str(len(inputs) + len(graphs))
        return self._written(inputs), graphs, settings

    def _program(self, name: str, inside: Inside) -> tuple[tuple[Reference, ...], list[Entry]]:
        """The heads of a program inside of a call, and the entries its variables stand for."""
        kept = self._references, self._border, self._used
        self._used = set()
        stand_ins = {x: SymbolNode(VARIABLE, self._unique(f"{name}_in")) for x in inside.arguments}
        taken: dict[Entry, SymbolNode] = {}
        self._references = {entry: (node, 0) for entry, node in stand_ins.items()}
        self._border = inside.first, taken
        heads = self._written(inside.results)
        if inside.reads_all:
            used = set(map(id, variables_of(heads)))
            unread = [entry for entry, node in stand_ins.items() if id(node) not in used]
            if unread:
                heads[:1] = self._written([_with_nothing_of(unread, inside.results[0])])
        heads = [self._copied(head) for head in heads]
        self._references, self._border, self._used = kept
        sources = {id(node): entry for entry, node in (*stand_ins.items(), *taken.items())}
        return tuple(heads), [sources[id(node)] for node in variables_of(heads)]

    def _copied(self, head: Reference) -> Reference:
        """A head that is not a variable: MXNet's programs must return results of operations."""
        if not head[0].is_variable:
            return head
        return SymbolNode("_np_copy", self._unique(f"{head[0].name}_copy"), {}, [head]), 0

    def _unique(self, name: str) -> str:
        unique = unused_name(name, self._used.__contains__)
        self._used.add(unique)
        return unique

    # ---- variables

    def _variable_of(self, source: Any, name: str, attrs: dict[str, str]) -> Reference:
        """The variable of a parameter or an array, with that name if the name is not taken."""
        if id(source) not in self._sources:
            unique = unused_name(
                name, lambda n: n in self._used or self._held.get(n, source) is not source
            )
            self._used.add(unique)
            self._held[unique] = source
            is_parameter = hasattr(source, "grad_req") and hasattr(source, "array")
            self.variables[unique] = source.gathered() if is_parameter else source
            if is_parameter:
                self.parameters[unique] = source
            self._sources[id(source)] = SymbolNode(VARIABLE, unique, attrs), 0
        return self._sources[id(source)]

    def _variable(self, entry: Entry) -> Reference:
        """The variable, or the number, for an entry that no operation computes."""
        if self._border is not None and not entry.node.is_number:
            variable = SymbolNode(VARIABLE, self._unique(entry.node.name or "outer"))
            self._border[1][entry] = variable
            return variable, 0
        parameter = self._parameters.get(entry)
        if parameter is not None:
            name = parameter.name or "parameter"
            return self._variable_of(parameter, name, _attributes(parameter))
        node = entry.node
        if node.is_number:
            settings = {
                "shape": "()",
                "value": repr(number_of(node)),
                "dtype": entry.dtype.name if entry.dtype.kind != "f" else "float32",
            }
            return SymbolNode("_full", self._unique(self.trace.scopes.named("number")), settings), 0
        if node.is_constant:
            attrs = {"__shape__": text_of(tuple(node.value.shape))}
            return self._variable_of(node.value, self.trace.scopes.named("constant"), attrs)
        raise ExportError(f"export: {node!r} is not an input of the program")


def exported(function: Callable[..., Any], arguments: Arguments, **settings: Any) -> Exported:
    """A function as a symbol, valid for any batch even if the arguments are one example.

    An extent of 1 cannot be free. So a batch of two is traced instead, if the function accepts it
    and does the same for one example. Empty batches are treated alike, except in gemel's own files.
    """
    arrays = arguments.arrays
    few = (1,) if settings.get("own") else (0, 1)
    if arrays and all(x.shape and x.shape[0] in few for x in arrays):
        two = arguments._replace(arrays=[Spec((2, *x.shape[1:]), x.dtype) for x in arrays])
        try:
            program = _exported(function, two, settings)
        except ShapeError:
            return _exported(function, arguments, settings)
        if program.holds_for_one(f"n{position}_0" for position in range(len(arrays))):
            return program
        program = _exported(function, arguments, settings)
        pairs = zip(program.inputs, arrays, strict=True)
        program.limits += [f"{name}.shape[0] == {x.shape[0]}" for name, x in pairs]
        return program
    return _exported(function, arguments, settings)


def _exported(
    function: Callable[..., Any], arguments: Arguments, settings: dict[str, Any]
) -> Exported:
    """The function for these arguments, with the limits of its validity.

    Some sizes can be expressed in MXNet's files only for batches of at least two.
    """
    try:
        program = Exported(function, arguments, **settings)
    except ExportError:
        if settings.get("own"):
            raise
        program = Exported(function, arguments, **settings, least=2)
        sizes = filter(of_batch, program.trace.extents.dims)
        program.limits += [f"2 <= {program.named(size)}" for size in sizes]
    dims, _ = program.trace.extents.unified(program.trace.notes.fits)
    guards = [guard.of(dims) for guard in program.guards if any(map(of_batch, guard.names()))]
    program.limits += [program.named(repr(guard)) for guard in guards if guard]
    return program


def _with_nothing_of(unread: list[Entry], result: Entry) -> Entry:
    """The same result, but depending on all of `unread`: MXNet's loops must read all inputs."""
    for entry in unread:
        nothing = call("sum", call("cast", call("less", entry, entry), dtype=result.dtype))
        result = call("add", result, call("cast", nothing, dtype=result.dtype))
    return result


def _of_entries(written: Written) -> Written:
    """The call with its arrays as entries."""
    if all(isinstance(value, Entry) for value in written.inputs):
        return written
    inputs = tuple(
        value
        if isinstance(value, Entry)
        else captured(value)
        if hasattr(value, "spec")
        else as_entry(value)
        for value in written.inputs
    )
    return written._replace(inputs=inputs)


def _typed(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numbers next to arrays as arrays of their dtype: MXNet does not type numbers weakly."""
    dtypes = [entry.dtype for entry in inputs if not entry.node.is_number]
    if not dtypes or len(dtypes) == len(inputs):
        return inputs
    return tuple(
        call("full", e.node.value, shape=(), dtype=dtypes[-1]) if e.node.is_number else e
        for e in inputs
    )


def _needs(meaning: Any) -> Sequence[Entry]:
    if meaning is None:
        return ()
    return meaning.written.inputs if isinstance(meaning, Note) else meaning


def _outputs(written: Written) -> int:
    if written.outputs > 1 or written.name.startswith(PREFIX):
        return written.outputs
    operation = wanted(written.name)
    return operation.outputs(written.settings) if operation else written.outputs


def _attributes(parameter: Any) -> dict[str, str]:
    """The attributes of a parameter's variable, as in MXNet."""
    attrs = {
        "__dtype__": str(type_flag(parameter.dtype)),
        "__lr_mult__": text_of(float(parameter.lr_mult)),
        "__shape__": text_of(tuple(parameter.shape)),
        "__storage_type__": "0",
        "__wd_mult__": text_of(float(parameter.wd_mult)),
    }
    initializer = getattr(parameter, "init", None)
    if isinstance(initializer, str):
        attrs["__init__"] = initializer
    return attrs
