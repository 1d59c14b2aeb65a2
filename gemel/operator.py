"""MXNet's way to write operations in Python: `CustomOp`, its `CustomOpProp`, and `register`.

`nd.Custom(x, op_type=name)` runs them on arrays at once, with their own gradient, and `sym.Custom`
makes a node of them. A hybridized block that contains one is compiled in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gemel import np
from gemel.autograd import Function, is_training
from gemel.dtype import as_dtype
from gemel.errors import ArgumentError, OperandError, PythonGivenError, check_class, unknown_name
from gemel.ir.current import current_trace
from gemel.legacy.declare import TABLE, Legacy, known
from gemel.spec import Spec
from gemel.symbol.node import SymbolNode, text_of
from gemel.symbol.scopes import attributed, named
from gemel.symbol.symbol import Symbol, var
from gemel.tracing.manners import are_nd, as_nd

#: The property classes of operations, by the names under which they were registered.
_registered: dict[str, Callable[..., CustomOpProp]] = {}


class CustomOp:
    """An operation: `forward` writes into `out_data`, `backward` into `in_grad`, by `assign`."""

    def forward(
        self, is_train: bool, req: list[str], in_data: Any, out_data: Any, aux: Any
    ) -> None:
        """Compute the outputs."""
        raise NotImplementedError(f"{type(self).__name__} needs a method forward")

    def backward(
        self, req: list[str], out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any
    ) -> None:
        """Compute the gradients of the inputs."""
        raise NotImplementedError(f"{type(self).__name__} needs a method backward")

    def assign(self, dst: Any, req: str, src: Any) -> None:
        """Write `src` to an array, add it, or leave the array unchanged, as `req` says."""
        if req in ("write", "inplace"):
            dst[...] = src
        elif req == "add":
            dst[...] += src


class CustomOpProp:
    """The properties of an operation: its arguments and outputs, and their shapes and dtypes."""

    def __init__(self, need_top_grad: bool = True) -> None:
        self.need_top_grad_ = need_top_grad

    def list_arguments(self) -> list[str]:
        """The names of its inputs."""
        return ["data"]

    def list_outputs(self) -> list[str]:
        """The names of its outputs."""
        return ["output"]

    def list_auxiliary_states(self) -> list[str]:
        """The names of the arrays for its state, which are passed after the inputs."""
        return []

    def infer_shape(self, in_shape: list[Any]) -> Any:
        """The shapes of inputs, outputs and auxiliary states: by default all as the first input."""
        return in_shape, [in_shape[0]] * len(self.list_outputs()), []

    def infer_type(self, in_type: list[Any]) -> Any:
        """The dtypes of inputs, outputs and auxiliary states: by default all as the first input."""
        return in_type, [in_type[0]] * len(self.list_outputs()), []

    def create_operator(self, ctx: Any, in_shapes: Any, in_dtypes: Any) -> CustomOp:
        """The operation for inputs like these."""
        raise NotImplementedError(f"{type(self).__name__} needs a method create_operator")


def register(reg_name: str) -> Callable[[Any], Any]:
    """A decorator that registers a class of properties under this name. Raises `OperandError` for
    what is no name."""
    if not isinstance(reg_name, str):
        raise OperandError(
            f"operator.register: {reg_name!r} is no name; write @operator.register('my_op')"
        )

    def decorate(prop: Any) -> Any:
        check_class("operator.register(name)", prop)
        _registered[reg_name] = prop
        return prop

    return decorate


def get_all_registered_operators() -> list[str]:
    """The names of MXNet's operations that exist here, and of the registered ones."""
    return [*known(), *_registered]


class _Call(Function):
    """One call of an operation on arrays."""

    def __init__(self, prop: CustomOpProp) -> None:
        self.prop = prop

    def forward(self, *arrays: Any) -> Any:
        count = len(self.prop.list_arguments())
        self.inputs, self.states = list(arrays[:count]), list(arrays[count:])
        shapes = [list(x.shape) for x in self.inputs]
        outputs = _of_outputs(self.prop, self.prop.infer_shape, shapes)
        dtypes = [x.dtype for x in self.inputs]
        kinds = _of_outputs(self.prop, self.prop.infer_type, dtypes)
        device = self.inputs[0].device
        pairs = zip(outputs, kinds, strict=True)
        self.outputs = self._like_inputs(
            [np.zeros(tuple(s), dtype=kind, device=device) for s, kind in pairs]
        )
        self.operator = self.prop.create_operator(device, shapes, dtypes)
        if not isinstance(self.operator, CustomOp):
            raise ArgumentError(
                f"{type(self.prop).__name__}.create_operator gave a "
                f"{type(self.operator).__name__}; it must give a CustomOp"
            )
        requests = ["write"] * len(self.outputs)
        training = is_training()
        self.operator.forward(training, requests, self.inputs, self.outputs, self.states)
        return tuple(self.outputs) if len(self.outputs) > 1 else self.outputs[0]

    def _like_inputs(self, arrays: list[Any]) -> list[Any]:
        """The arrays that the operation writes to, as NDArrays if its inputs are NDArrays."""
        return as_nd(arrays) if are_nd(self.inputs) else arrays

    def backward(self, *gradients: Any) -> Any:
        found = self._like_inputs([np.zeros_like(x) for x in self.inputs])
        requests = ["write"] * len(found)
        given = list(gradients), self.inputs, self.outputs
        self.operator.backward(requests, *given, found, self.states)
        return (*found, *[None] * len(self.states))


def custom(*inputs: Any, op_type: str, name: str | None = None, **keywords: Any) -> Any:
    """Call an operation registered as `op_type`, on arrays or symbols.

    Keywords that are called like its arguments are inputs, others go to its properties, as text.
    Raises `UnknownNameError`, and `ArgumentError` for inputs that are too many, missing, or neither
    arrays nor symbols.
    """
    arrays = {k: v for k, v in keywords.items() if isinstance(v, (np.ndarray, Symbol))}
    settings = {k: text_of(v) for k, v in keywords.items() if k not in arrays and v is not None}
    prop = _properties(op_type, **settings)
    names = [*_names(prop, "list_arguments"), *_names(prop, "list_auxiliary_states")]
    given = _given(op_type, names, inputs, arrays)
    if not any(isinstance(each, Symbol) for each in given.values()):
        if current_trace() is not None:
            raise PythonGivenError(
                f"{op_type} runs Python code, which a compiled program cannot contain; call it "
                "outside"
            )
        _check(op_type, names, given)
        return _Call(prop)(*(given[each] for each in names))
    return _symbol(prop, names, given, named(name, "custom"), {"op_type": op_type, **settings})


def _given(
    op_type: str, names: list[str], inputs: tuple[Any, ...], arrays: dict[str, Any]
) -> dict[str, Any]:
    """The inputs of a call by name."""
    for each in arrays:
        if each not in names:
            raise unknown_name(f"input of {op_type}", each, names)
    taken = [name for name in names[: len(inputs)] if name in arrays]
    if len(inputs) > len(names) or taken:
        raise ArgumentError(
            f"{op_type}: {len(inputs)} inputs by position"
            f"{' and also by name ' + ', '.join(taken) if taken else ''}; its inputs are {names}"
        )
    return {**dict(zip(names, inputs, strict=False)), **arrays}


def _check(op_type: str, names: list[str], given: dict[str, Any]) -> None:
    """Check that all inputs of a call are there, and arrays."""
    missing = [each for each in names if each not in given]
    if missing:
        raise ArgumentError(f"{op_type}: {', '.join(missing)} missing; its inputs are {names}")
    for name, value in given.items():
        if not isinstance(value, np.ndarray):
            kind = f"{type(value).__module__}.{type(value).__name__}"
            raise ArgumentError(f"{op_type}: {name} is a {kind}; give an array of gemel")


def _names(prop: CustomOpProp, method: str) -> list[str]:
    """The names that `list_arguments`, `list_outputs` or `list_auxiliary_states` returns. Raises
    `ArgumentError` for anything else."""
    found = getattr(prop, method)()
    if not isinstance(found, (list, tuple)) or not all(isinstance(each, str) for each in found):
        raise ArgumentError(
            f"{type(prop).__name__}.{method} gave {found!r}; it must give a list of names"
        )
    return list(found)


def _of_outputs(prop: CustomOpProp, infer: Callable[[Any], Any], given: list[Any]) -> list[Any]:
    """The shapes or dtypes of the outputs, from `infer_shape` or `infer_type`. Raises
    `ArgumentError`."""
    count, found = len(_names(prop, "list_outputs")), infer(given)
    if not isinstance(found, (list, tuple)) or len(found) < 2 or len(found[1]) != count:
        raise ArgumentError(
            f"{type(prop).__name__}.{infer.__name__} gave {found!r}; it must give a list for the "
            f"inputs, one for the {count} outputs, and may give one for the auxiliary states"
        )
    return list(found[1])


def _properties(op_type: str, **settings: Any) -> CustomOpProp:
    if op_type not in _registered:
        raise unknown_name("operation", op_type, _registered)
    return _registered[op_type](**{name: text_of(value) for name, value in settings.items()})


def _symbol(
    prop: CustomOpProp, names: Sequence[str], given: Any, name: str, settings: dict[str, str]
) -> Symbol:
    inputs = [given[each] if each in given else var(f"{name}_{each}") for each in names]
    heads = [head for each in inputs for head in each._heads]
    count = len(_names(prop, "list_outputs"))
    node = SymbolNode("Custom", name, attributed(settings), heads, count)
    return Symbol((node, index) for index in range(count))


class _Custom(Legacy):
    """`Custom` as a node of a symbol."""

    takes_symbols = True

    def checked(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the settings unchanged; the properties check them."""
        return settings

    def outputs(self, settings: dict[str, Any]) -> int:
        """The number of outputs that the properties name."""
        return len(_names(_properties(**settings), "list_outputs"))

    def follows(
        self, inputs: list[tuple[int, ...] | None], settings: dict[str, Any]
    ) -> list[tuple[int, ...] | None]:
        """The shapes of a node's inputs; the properties derive some of them from the first
        one's."""
        if not inputs or inputs[0] is None:
            return inputs
        arguments, _, *states = _properties(**settings).infer_shape([list(s or ()) for s in inputs])
        found = [tuple(shape) for shapes in (arguments, *states) for shape in shapes]
        return [mine or said for mine, said in zip(inputs, found, strict=False)]

    def told(self, inputs: list[Spec], settings: dict[str, Any]) -> list[Spec] | None:
        """The specs of the outputs according to the properties; a trace cannot look inside."""
        prop = _properties(**settings)
        count = len(prop.list_arguments())
        shapes = _of_outputs(prop, prop.infer_shape, [list(spec.shape) for spec in inputs[:count]])
        dtypes = _of_outputs(prop, prop.infer_type, [spec.dtype for spec in inputs[:count]])
        pairs = zip(shapes, dtypes, strict=True)
        return [Spec(tuple(shape), as_dtype(dtype)) for shape, dtype in pairs]

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """See `custom`."""
        return custom(*inputs, **keywords)


def _run(*data: Any, **settings: Any) -> Any:
    """An operation that a user has registered: see `gemel.operator`."""
    return custom(*data, **settings)


TABLE["Custom"] = Custom = _Custom(_run, ("Custom",))

__all__ = ["Custom", "CustomOp", "CustomOpProp", "get_all_registered_operators", "register"]
