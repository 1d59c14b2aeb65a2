"""Traced programs as symbols: gemel's graph, written in MXNet's operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gemel import autograd
from gemel.errors import ExportError, ShapeError
from gemel.extent import Guard, seen
from gemel.ir.graph import Entry, Node, captured, placeholder, walk
from gemel.ir.methods import call
from gemel.ir.op_kinds import Composite, Elementwise
from gemel.legacy.declare import Inside, Written, wanted
from gemel.runtime.prepare import as_entry
from gemel.spec import Spec
from gemel.symbol.node import VARIABLE, Reference, SymbolNode, text_of, variables_of
from gemel.symbol.nodes import as_call, fixed, free, number_of, of_batch
from gemel.symbol.noting import Note, Noting
from gemel.symbol.own import PREFIX, named_extents, numbers_text, parameters_text
from gemel.tracing.nested import flatten_results
from gemel.tracing.programs import Arguments


class Exported:
    """A function traced for one kind of arguments, as a symbol.

    `variables` are the arrays it is given by name: those of `parameters`, and arrays it closes
    over.
    `given` may name symbols that stand for the arguments, instead of new variables. With `own`
    what MXNet has no operation for is a node of gemel's own, sizes that depend on the arguments
    stay free, and parameters may be overwritten: `updates` are their names, the last of `heads`
    what they then hold. `names` are those of the arguments: data, or data0, data1, ...
    `held` is what names stand for already, in a file of several programs, and `least` what no
    free extent is below. `guards` is what was asked of the free extents: the program is that for
    sizes with the same answers.
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
        self.trace = Noting(own, least)
        self.own = own
        #: The axes of arguments that are not free, and how long they are: (argument, axis, length).
        self.fixed = [
            [position, axis, n]
            for position, array in enumerate(arguments.arrays)
            for axis, n in enumerate(array.shape)
            if n <= 1
        ]
        #: For which batches it is the program, for people; empty: for all.
        self.limits: list[str] = []
        count = len(arguments.arrays)
        if len(names) != count:
            names = ["data"] if count == 1 else [f"data{place}" for place in range(count)]
        entries = [self._input(i, x, names[i]) for i, x in enumerate(arguments.arrays)]
        results: list[Any] = []
        with autograd.pause(train_mode=False), self.trace:
            numbers = [self._number(i, value) for i, value in enumerate(arguments.numbers)]
            values = arguments.symbols(entries, numbers)
            with self.trace.watching():
                found = function(*values)
            self.structure = flatten_results(found, results)
            outputs = [self.trace.current(as_entry(value)) for value in results]
        if any(entry in self.trace.contents for entry in entries):
            raise ExportError(
                "export: forward overwrites an argument in place; write to a copy instead"
            )
        updates = list(self.trace.updates.values())
        if updates and not own:
            raise ExportError(
                f"export: forward overwrites {updates[0][0].name} outside of batch_norm, which "
                "MXNet's files cannot express; use gemel.save"
            )
        self.inputs = names
        self.variables: dict[str, Any] = {}
        self.parameters: dict[str, Any] = {}
        self._held = {} if held is None else held
        self._sources: dict[int, Reference] = {}
        self._references: dict[Entry, Reference] = {}
        self._parameters = {entry: parameter for parameter, entry in self.trace.parameters.values()}
        for place, number in enumerate(numbers):
            if isinstance(number, Entry):
                self._references[number] = SymbolNode(VARIABLE, f"number{place}"), 0
        for position, entry in enumerate(entries):
            variable = (SymbolNode(VARIABLE, names[position]), 0)
            self._references[entry] = given[position] if given else variable
        self._used = set(names)
        #: The results of each noted call.
        self._together: dict[int, list[tuple[Entry, int]]] = {}
        for entry, (note, index) in self.trace.notes.items():
            self._together.setdefault(id(note.written.settings), []).append((entry, index))
        #: Of the program inside of a call that is being written: when it began, and what it takes
        #: from outside.
        self._border: tuple[int, dict[Entry, SymbolNode]] | None = None
        self.trace.writes = True
        with self.trace:
            self.heads = self._written([*outputs, *(entry for _, entry in updates)])
        self.updates = [self._variable_of(p, p.name or "parameter", {})[0].name for p, _ in updates]

    @property
    def guards(self) -> list[Guard]:
        """What was asked of the free extents."""
        return self.trace.guards

    def named(self, text: str) -> str:
        """A text in which free extents are called as in Python."""
        return named_extents(text, self.inputs)

    def holds_for_one(self, names: Iterable[str]) -> bool:
        """Whether it is the program also where these extents are 1."""
        sizes = {name: seen(extent) for name, extent in self.trace.dims.items()}
        sizes.update(dict.fromkeys(names, 1))
        return all(guard.holds(sizes) for guard in self.guards)

    def _input(self, position: int, array: Any, name: str) -> Entry:
        """An argument; the batch is free though it was one example."""
        shape = [
            self.trace.free(f"n{position}_{axis}", n) if n > 1 else n
            for axis, n in enumerate(array.shape)
        ]
        found = placeholder(Spec(shape, array.dtype), name)
        self.trace.sources.update({f"n{position}_{i}": (found, i) for i in range(len(shape))})
        return found

    def _number(self, position: int, value: float) -> Any:
        """A number the function is called with: a constant in MXNet's files."""
        return self.trace.number(f"number{position}", value) if self.own else value

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
        """What an entry is: a note, entries it is the same as, or None for a variable."""
        node = entry.node
        if self._border is not None and node.serial < self._border[0] and not node.is_number:
            return None
        note = self.trace.notes.get(entry)
        if note is not None and not (self.own and free(tuple(note[0].written.settings.values()))):
            return note[0]._replace(written=_of_entries(note[0].written))
        if node.op is None:
            return None
        if self.own:
            settings = {"parameters": parameters_text(node), "outputs": len(node.entries)}
            arrays = tuple(e for e in node.inputs if not e.node.is_number)
            if len(arrays) < len(node.inputs):
                settings["numbers"] = numbers_text(node)
            name = node.name or self.trace.named(node.op.name)
            return Note(
                Written(f"{PREFIX}{node.op.name}", arrays, settings, len(node.entries)), name
            )
        found = as_call(node)
        if found is None:
            found = self._expanded(node)
        if isinstance(found, Written):
            found = found._replace(inputs=_typed(found.inputs))
            return Note(_of_entries(found), node.name or self.trace.named(node.op.name))
        return found

    def _expanded(self, node: Node) -> tuple[Entry, ...]:
        """The node by other operations. Raises `ExportError`."""
        op = node.op
        assert op is not None
        if isinstance(op, Composite):
            return op.written_out(node.inputs, node.params)
        if isinstance(op, Elementwise) and not op.random:
            try:
                found = op.body(_ByName(op.name), *node.inputs, **node.params)
                found = found if isinstance(found, tuple) else (found,)
                if all(other.op is not op for other in walk(found, node.inputs)):
                    return found
            except (AttributeError, KeyError, ValueError, TypeError):
                pass
        where = f" ({node.origin})" if node.origin else ""
        raise ExportError(
            f"export: MXNet has no operation for {op.name}{where}; express it by other "
            "operations, or use gemel.save, which supports every operation"
        )

    def _make(self, entry: Entry, found: Any) -> None:
        node = entry.node
        if found is None:
            self._references[entry] = self._variable(entry)
        elif isinstance(found, Note):
            self._apply(entry, found)
        else:
            for mine, other in zip(node.entries, found, strict=False):
                self._references.setdefault(mine, self._references[other])

    def _apply(self, entry: Entry, note: Note) -> None:
        written = note.written
        settings = {
            key: text_of(fixed(value, f"export: {note.name}: {key}"))
            for key, value in written.settings.items()
        }
        inputs = [self._references[each] for each in written.inputs]
        name = self._unique(note.name)
        graphs: list[tuple[Reference, ...]] = []
        if written.inside:
            inputs, graphs, more = self._inside(name, written)
            settings.update(more)
        made = SymbolNode(written.name, name, settings, inputs, _outputs(written), graphs)
        for other, index in self._together.get(id(written.settings), ()):
            self._references[other] = (made, index)
        if entry not in self._references:
            for index, each in enumerate(entry.node.entries):
                self._references.setdefault(each, (made, index))

    def _inside(self, name: str, written: Written) -> tuple[Any, Any, dict[str, str]]:
        """The inputs of a call with programs inside, their heads, and where their variables go."""
        given = list(written.inputs)
        places: dict[Entry, int] = {}  # not those of `given`, which change with each step
        graphs, orders = [], []
        for inside in written.inside:
            heads, sources = self._program(name, inside)
            means = {entry: place for place, entry in enumerate(inside.arguments)}
            order = []
            for source in sources:
                if source not in means and source not in places:
                    places[source] = len(given)
                    given.append(source)
                order.append(means.get(source, places.get(source, 0)))
            graphs.append(heads)
            orders.append(order)
        assert written.placed is not None
        settings = {key: str(value) for key, value in written.placed(orders).items()}
        settings["num_args"] = str(len(given) + len(graphs))
        return self._written(given), graphs, settings

    def _program(self, name: str, inside: Inside) -> tuple[tuple[Reference, ...], list[Entry]]:
        """The heads of a program inside of a call, and what each of its variables stands for."""
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
        """A result that is a variable by an operation: MXNet takes no other ones of programs."""
        if not head[0].is_variable:
            return head
        return SymbolNode("_np_copy", self._unique(f"{head[0].name}_copy"), {}, [head]), 0

    def _unique(self, name: str) -> str:
        found, number = name, 0
        while found in self._used:
            number += 1
            found = f"{name}_{number}"
        self._used.add(found)
        return found

    # ---- variables

    def _variable_of(self, source: Any, name: str, attrs: dict[str, str]) -> Reference:
        """The variable of a parameter or an array, under that name if it stands for no other."""
        if id(source) not in self._sources:
            found, number = name, 0
            while found in self._used or self._held.get(found, source) is not source:
                number += 1
                found = f"{name}_{number}"
            self._used.add(found)
            self._held[found] = source
            is_parameter = hasattr(source, "grad_req") and hasattr(source, "array")
            self.variables[found] = source.gathered() if is_parameter else source
            if is_parameter:
                self.parameters[found] = source
            self._sources[id(source)] = SymbolNode(VARIABLE, found, attrs), 0
        return self._sources[id(source)]

    def _variable(self, entry: Entry) -> Reference:
        if self._border is not None and not entry.node.is_number:
            made = SymbolNode(VARIABLE, self._unique(entry.node.name or "outer"))
            self._border[1][entry] = made
            return made, 0
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
            return SymbolNode("_full", self._unique(self.trace.named("number")), settings), 0
        if node.is_constant:
            attrs = {"__shape__": text_of(tuple(node.value.shape))}
            return self._variable_of(node.value, self.trace.named("constant"), attrs)
        raise ExportError(f"export: {node!r} is not an input of the program")


def exported(function: Callable[..., Any], arguments: Arguments, **settings: Any) -> Exported:
    """A function as a symbol; for any batch also where the arguments are one example.

    An extent of 1 cannot be free, so that two are traced then, if the function takes two and does
    the same for one. So it is with an empty batch, which only gemel's own files tell from others.
    """
    arrays = arguments.arrays
    few = (1,) if settings.get("own") else (0, 1)
    if arrays and all(x.shape and x.shape[0] in few for x in arrays):
        two = arguments._replace(arrays=[Spec((2, *x.shape[1:]), x.dtype) for x in arrays])
        try:
            found = _exported(function, two, settings)
        except ShapeError:
            return _exported(function, arguments, settings)
        if found.holds_for_one(f"n{position}_0" for position in range(len(arrays))):
            return found
        found = _exported(function, arguments, settings)
        pairs = zip(found.inputs, arrays, strict=True)
        found.limits += [f"{name}.shape[0] == {x.shape[0]}" for name, x in pairs]
        return found
    return _exported(function, arguments, settings)


def _exported(
    function: Callable[..., Any], arguments: Arguments, settings: dict[str, Any]
) -> Exported:
    """The function for these arguments, and what it holds for.

    In MXNet's files some sizes can be said only of two and more.
    """
    try:
        found = Exported(function, arguments, **settings)
    except ExportError:
        if settings.get("own"):
            raise
        found = Exported(function, arguments, **settings, least=2)
        found.limits += [f"2 <= {found.named(size)}" for size in found.trace.dims if of_batch(size)]
    found.limits += [
        found.named(repr(guard)) for guard in found.guards if any(map(of_batch, guard.names()))
    ]
    return found


def _with_nothing_of(unread: list[Entry], result: Entry) -> Entry:
    """A result that needs all of these too, and is the same: MXNet's loops have no other inputs."""
    for entry in unread:
        nothing = call("sum", call("cast", call("less", entry, entry), dtype=result.dtype))
        result = call("add", result, call("cast", nothing, dtype=result.dtype))
    return result


class _ByName:
    """Operations on entries by their names: what an elementwise operation is written in."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name == self._name:  # it is no composition of others
            raise AttributeError(name)
        return lambda *inputs, **parameters: call(name, *inputs, **parameters)


def _of_entries(written: Written) -> Written:
    """The call with arrays it was given as entries."""
    if all(isinstance(each, Entry) for each in written.inputs):
        return written
    held = tuple(
        each
        if isinstance(each, Entry)
        else captured(each)
        if hasattr(each, "spec")
        else as_entry(each)
        for each in written.inputs
    )
    return written._replace(inputs=held)


def _typed(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numbers among arrays as arrays of their dtype: in MXNet they do not give way."""
    dtypes = [each.dtype for each in inputs if not each.node.is_number]
    if not dtypes or len(dtypes) == len(inputs):
        return inputs
    return tuple(
        call("full", each.node.value, shape=(), dtype=dtypes[-1]) if each.node.is_number else each
        for each in inputs
    )


def _needs(found: Any) -> Sequence[Entry]:
    if found is None:
        return ()
    return found.written.inputs if isinstance(found, Note) else found


def _outputs(written: Written) -> int:
    if written.outputs > 1 or written.name.startswith(PREFIX):
        return written.outputs
    operation = wanted(written.name)
    return operation.outputs(written.settings) if operation else written.outputs


def _attributes(parameter: Any) -> dict[str, str]:
    """What a variable says of a parameter, as MXNet does."""
    from gemel.npx.serialize import type_flag

    found = {
        "__dtype__": str(type_flag(parameter.dtype)),
        "__lr_mult__": text_of(float(parameter.lr_mult)),
        "__shape__": text_of(tuple(parameter.shape)),
        "__storage_type__": "0",
        "__wd_mult__": text_of(float(parameter.wd_mult)),
    }
    initializer = getattr(parameter, "init", None)
    if isinstance(initializer, str):
        found["__init__"] = initializer
    return found
