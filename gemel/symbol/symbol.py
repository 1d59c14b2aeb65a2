"""Symbol: MXNet 1's symbolic programs, composed by name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from gemel.arrays.archives import appear, contents
from gemel.errors import (
    ArgumentError,
    ArrayIndexError,
    OperandError,
    SymbolFileError,
    SymbolGivenError,
    unknown_attribute,
    unknown_name,
)
from gemel.legacy import Legacy, known, wanted
from gemel.npx.serialize import type_flag
from gemel.symbol import json, run
from gemel.symbol.node import VARIABLE, Reference, SymbolNode, nodes_of, text_of
from gemel.symbol.scopes import attributed, named
from gemel.tracing.manners import are_nd, as_nd


class Symbol:
    """A symbolic expression: variables and operations on them, by MXNet's names.

    Symbols are created by `var`, by the operations of `gemel.symbol`, by `load`, and by calling a
    hybrid block on symbols. Nothing is computed before `eval` or a `gluon.SymbolBlock`.
    """

    def __init__(self, heads: Iterable[Reference]) -> None:
        self._heads = tuple(heads)

    # ---- names and attributes

    @property
    def name(self) -> str | None:
        """The name of its node; None for a group."""
        return self._heads[0][0].name if len({id(node) for node, _ in self._heads}) == 1 else None

    def _variables(self) -> list[SymbolNode]:
        return [node for node in nodes_of(self._heads) if node.is_variable]

    def _auxiliary(self) -> set[int]:
        return {id(inner) for node in nodes_of(self._heads) for inner in node.auxiliary()}

    def list_arguments(self) -> list[str]:
        """The names of the variables that are given, in order of use."""
        overwritten = self._auxiliary()
        return [node.name for node in self._variables() if id(node) not in overwritten]

    def list_auxiliary_states(self) -> list[str]:
        """The names of the variables that training overwrites, such as running statistics."""
        overwritten = self._auxiliary()
        return [node.name for node in self._variables() if id(node) in overwritten]

    def list_inputs(self) -> list[str]:
        """The names of all variables."""
        return [node.name for node in self._variables()]

    def list_outputs(self) -> list[str]:
        """The names of its outputs."""
        return [node.output_name(index) for node, index in self._heads]

    def get_internals(self) -> Symbol:
        """All outputs of all nodes inside, which are found by name."""
        nodes = nodes_of(self._heads)
        return Symbol((node, index) for node in nodes for index in range(node.visible))

    def get_children(self) -> Symbol | None:
        """The inputs of its nodes; None for a variable."""
        inputs = [each for node, _ in self._heads for each in node.inputs]
        return Symbol(inputs) if inputs else None

    def attr(self, key: str) -> str | None:
        """An attribute of its node, as text."""
        return self._heads[0][0].attrs.get(key)

    def list_attr(self) -> dict[str, str]:
        """The attributes of its node."""
        return dict(self._heads[0][0].attrs)

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """The attributes of every node that has some, by its name."""
        return {node.name: dict(node.attrs) for node in nodes_of(self._heads) if node.attrs}

    # ---- outputs

    def __len__(self) -> int:
        return len(self._heads)

    def __iter__(self) -> Iterator[Symbol]:
        return (Symbol((head,)) for head in self._heads)

    def __getitem__(self, key: Any) -> Symbol:
        if isinstance(key, str):
            names = self.list_outputs()
            if key not in names:
                raise unknown_name("output", key, names)
            return Symbol((self._heads[names.index(key)],))
        if isinstance(key, slice):
            return Symbol(self._heads[key])
        if not hasattr(key, "__index__"):
            raise OperandError(
                f"{self!r}[{key!r}]: an index is an output's number or name, or a slice; "
                "for elements use slice, slice_axis or take"
            )
        if not -len(self._heads) <= key < len(self._heads):
            raise ArrayIndexError(f"{self!r} has {len(self._heads)} outputs, and none at {key}")
        return Symbol((self._heads[key],))

    def __repr__(self) -> str:
        if self.name is not None:
            return f"<{type(self).__name__} {self.name}>"
        return f"<{type(self).__name__} group [{', '.join(node.name for node, _ in self._heads)}]>"

    # ---- inference of shapes and types

    def infer_shape(self, *shapes: Any, **named: Any) -> tuple[Any, Any, Any]:
        """The shapes of arguments, outputs and auxiliary states, from those of some arguments.

        Raises `ShapeError` if they do not match and `UnknownNameError` for an argument that the
        symbol lacks; returns three None if they do not determine the others.
        """
        found = self.infer_shape_partial(*shapes, **named)
        return found if all(None not in part for part in found) else (None, None, None)

    def infer_shape_partial(self, *shapes: Any, **named: Any) -> tuple[Any, Any, Any]:
        """As `infer_shape`; None for each shape that is not known."""
        given = self._by_name("infer_shape", shapes, named)
        known, heads = run.infer(self._heads, {n: s for n, s in given.items() if s is not None})
        return (
            [known.get(name) for name in self.list_arguments()],
            [None if spec is None else tuple(spec.shape) for spec in heads],
            [known.get(name) for name in self.list_auxiliary_states()],
        )

    def infer_type(self, *dtypes: Any, **named: Any) -> tuple[Any, Any, Any]:
        """The dtypes of arguments, outputs and auxiliary states, from those of some arguments.

        The others have the first one's, or what their attributes say, or float32.
        """
        given = self._by_name("infer_type", dtypes, named)
        known = {n: d for n, d in given.items() if d is not None}
        return run.infer_types(self._heads, self.list_arguments(), known)

    infer_type_partial = infer_type

    def _by_name(
        self, function: str, values: tuple[Any, ...], named: dict[str, Any]
    ) -> dict[str, Any]:
        """What is given for arguments, in their order or by name."""
        names = self.list_arguments()
        if len(values) > len(names):
            raise ArgumentError(f"{function}: {len(values)} values for the arguments {names}")
        known = {*names, *self.list_auxiliary_states()}
        for name in named:
            if name not in known:
                raise unknown_name(f"argument of {function}", name, known)
        return {**dict(zip(names, values, strict=False)), **named}

    # ---- running

    def bind(
        self,
        ctx: Any = None,
        args: Any = None,
        args_grad: Any = None,
        grad_req: Any = "write",
        aux_states: Any = None,
        **_: Any,
    ) -> Any:
        """Create an `Executor` on these arrays, which are lists in the order of the names, or
        dictionaries.

        Gradients are stored in `args_grad`, or in new arrays if `grad_req` asks for them.
        """
        from gemel.symbol.executor import Executor  # it imports this module

        return Executor(self, ctx, args, args_grad, grad_req, aux_states)

    def simple_bind(
        self, ctx: Any = None, grad_req: Any = "write", type_dict: Any = None, **shapes: Any
    ) -> Any:
        """Create an `Executor` on new arrays of zeros, with shapes and dtypes inferred from those
        given."""
        from gemel.symbol.executor import bound  # it imports this module

        return bound(self, ctx, grad_req, type_dict or {}, shapes)

    _bind = bind
    _simple_bind = simple_bind

    def debug_str(self) -> str:
        """Its nodes, one a line."""
        from gemel.symbol.executor import described  # it imports this module

        return described(self._heads)

    def eval(self, ctx: Any = None, device: Any = None, **values: Any) -> list[Any]:
        """Compute its outputs, for arrays by the names of its variables. Raises
        `UnknownNameError`."""
        names = self.list_inputs()
        for name in values:
            if name not in names:
                raise unknown_name("variable", name, names)
        missing = [name for name in names if name not in values]
        if missing:
            raise unknown_name("value for the variable", missing[0], values)
        found = run.run(self._heads, values)
        return as_nd(found) if are_nd(values) else found

    # ---- files

    def tojson(self, remove_amp_cast: bool = True) -> str:
        """The text of its symbol file."""
        return json.written(self._heads)

    def save(self, fname: Any, remove_amp_cast: bool = True) -> None:
        """Write its symbol file; the file appears complete or not at all."""
        appear(os.fspath(fname), [self.tojson().encode()])

    # ---- composition

    def __call__(self, *symbols: Symbol, **named: Any) -> Symbol:
        """The symbol with others in place of its variables: in order, or by name."""
        named.pop("name", None)
        others = {**dict(zip(self.list_inputs(), symbols, strict=False)), **named}
        for name in others:
            if name not in self.list_inputs():
                raise unknown_name("variable", name, self.list_inputs())
        new: dict[int, Symbol] = {}
        for node in nodes_of(self._heads):
            if node.is_variable and node.name in others:
                new[id(node)] = others[node.name]
            elif node.is_variable:
                new[id(node)] = Symbol(((node, 0),))
            else:
                inputs = [new[id(inner)]._heads[index] for inner, index in node.inputs]
                made = SymbolNode(node.op, node.name, node.attrs, inputs, node.outputs, node.graphs)
                new[id(node)] = Symbol((made, index) for index in range(node.outputs))
        return Symbol(new[id(node)]._heads[index] for node, index in self._heads)

    def as_np_ndarray(self) -> Symbol:
        """The symbol itself, which is of both kinds."""
        return self

    as_nd_ndarray = as_np_ndarray

    def astype(self, dtype: Any) -> Symbol:
        """Its elements in another dtype."""
        return self._with("Cast", dtype=dtype)

    def __getattr__(self, name: str) -> Any:
        operation = None if name.startswith("_") else wanted(name)
        if operation is None:
            raise unknown_attribute("Symbol", name, known())
        return lambda *inputs, **settings: compose(operation, (self, *inputs), settings)

    @property
    def __array__(self) -> Any:
        raise SymbolGivenError(
            f"{self!r} has no elements; use eval() with values for its variables"
        )

    def __neg__(self) -> Symbol:
        return self._with("negative")

    def __abs__(self) -> Symbol:
        return self._with("abs")

    def _with(self, name: str, *others: Any, **settings: Any) -> Symbol:
        operation = wanted(name)
        assert operation is not None
        return compose(operation, (self, *others), settings)

    __hash__ = object.__hash__


def _operator(pair: str, scalar: str, reverse: str = "") -> tuple[Any, Any]:
    def method(self: Symbol, other: Any) -> Any:
        if isinstance(other, Symbol):
            return self._with(pair, other)
        return self._with(scalar, other) if isinstance(other, (int, float)) else NotImplemented

    def reflected(self: Symbol, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        return self._with(reverse or scalar, other)

    return method, reflected


for _name, _kind, _short in (
    ("add", "add", "plus"),
    ("sub", "sub", "minus"),
    ("mul", "mul", "mul"),
    ("truediv", "div", "div"),
    ("pow", "power", "power"),
    ("mod", "mod", "mod"),
):
    _reverse = "" if _short in ("plus", "mul") else f"_r{_short}_scalar"
    _pair = f"broadcast_{_kind}" if _kind in ("power", "mod") else f"elemwise_{_kind}"
    _method, _reflected = _operator(_pair, f"_{_short}_scalar", _reverse)
    setattr(Symbol, f"__{_name}__", _method)
    setattr(Symbol, f"__r{_name}__", _reflected)
for _name, _kind in (
    ("eq", "equal"),
    ("ne", "not_equal"),
    ("gt", "greater"),
    ("ge", "greater_equal"),
    ("lt", "lesser"),
    ("le", "lesser_equal"),
):
    setattr(Symbol, f"__{_name}__", _operator(f"broadcast_{_kind}", f"_{_kind}_scalar")[0])


# --- creating symbols -----------------------------------------------------------------------


def var(
    name: str,
    attr: dict[str, str] | None = None,
    shape: Any = None,
    dtype: Any = None,
    lr_mult: float | None = None,
    wd_mult: float | None = None,
    init: Any = None,
    stype: Any = None,
    **kwargs: str,
) -> Symbol:
    """A variable: a symbol whose value is given when it is run."""
    if not isinstance(name, str):
        raise OperandError(f"var: name is {name!r}; it must be a string")
    attrs = attributed({**(attr or {}), **kwargs})
    for key, value in (("shape", shape), ("lr_mult", lr_mult), ("wd_mult", wd_mult)):
        if value is not None:
            attrs[f"__{key}__"] = text_of(value)
    if dtype is not None:
        attrs["__dtype__"] = str(type_flag(dtype))
    if init is not None:
        attrs["__init__"] = init if isinstance(init, str) else str(init)
    return Symbol(((SymbolNode(VARIABLE, name, attrs), 0),))


def group(symbols: Iterable[Symbol]) -> Symbol:
    """Several symbols as one with all their outputs."""
    return Symbol(head for each in symbols for head in each._heads)


def compose(operation: Legacy, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Symbol:
    """An operation on symbols. Inputs that are not given become variables named after it.

    Raises `TypeError` for unknown keywords.
    """
    name = keywords.pop("name", None)
    attributes = attributed(dict(keywords.pop("attr", None) or {}))
    hint = operation.names[0].lower()
    keywords.pop("out", None)
    if operation.variadic:
        data = keywords.pop("data", ())
        whole = inputs[0] if len(inputs) == 1 and isinstance(inputs[0], (list, tuple)) else inputs
        given = [*whole, *data]
        operation.check_any(given)
        settings = operation.checked(keywords)
    else:
        found, settings = _by_input(operation, inputs, keywords)
        wanted_inputs = operation.wanted(settings)
        if not any(isinstance(each, (int, float)) for each in found.values()):
            name, hint = named(name, hint), ""
        given = [
            var(f"{name}_{key}") if found.get(key) is None else found[key]
            for key in operation.inputs
            if found.get(key) is not None or key in wanted_inputs or key == operation.unread
        ]
    numbers = [isinstance(each, (int, float)) for each in given]
    if operation.numbers is not None and numbers.count(True) == 1:
        with_number = wanted(operation.numbers[numbers[0]])
        assert with_number is not None
        number, other = given if numbers[0] else given[::-1]
        return compose(with_number, (other,), {"scalar": number, "name": name, "attr": attributes})
    name = named(name, hint) if hint else name
    for each in given:
        if not isinstance(each, Symbol):
            raise OperandError(
                f"{operation.name}: {each!r} is not a Symbol; create a variable with sym.var"
            )
    references = [head for each in given for head in each._heads]
    text = _texts(operation, settings)
    if operation.variadic:
        text["num_args"] = str(len(references))
    full = {**text, **{key: str(value) for key, value in attributes.items()}}
    node = SymbolNode(operation.name, name, full, references, operation.outputs(settings))
    return Symbol((node, index) for index in range(node.visible))


def _by_input(
    operation: Legacy, inputs: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a call gives for the inputs of an operation, by their names, and its settings."""
    first, extra = operation.apart(inputs, keywords)
    positional = dict(zip(operation.inputs, first, strict=False))
    by_name = {key: keywords.pop(key) for key in operation.inputs if key in keywords}
    return {**positional, **by_name}, operation.checked({**extra, **keywords})


def _texts(operation: Legacy, settings: dict[str, Any]) -> dict[str, str]:
    """Settings as a file has them, without those that are None by default."""
    default = operation.defaults.get
    return {
        key: text_of(value)
        for key, value in settings.items()
        if value is not None or default(key, ...) is not None
    }


def load_json(text: str) -> Symbol:
    """The symbol whose file holds this text. Raises `SymbolFileError`."""
    return Symbol(json.read(text))


def load(fname: Any) -> Symbol:
    """The symbol in a file of MXNet's or gemel's. Raises `SymbolFileError`, `MissingFileError`."""
    path = os.fspath(fname)
    content = contents("sym.load", path)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise SymbolFileError(f"symbol file {path}: is not text at byte {error.start}") from None
    return Symbol(json.read(text, path))
