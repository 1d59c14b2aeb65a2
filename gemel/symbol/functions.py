"""`sym.np` and `sym.npx`: the functions of `np` and `npx`, which accept symbols here."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from types import ModuleType
from typing import Any

from gemel.errors import OperandError
from gemel.legacy.declare import WRITERS, Legacy, wanted
from gemel.legacy.derived import Derived
from gemel.ops.loops import leaves
from gemel.symbol.scopes import named
from gemel.symbol.symbol import Symbol, compose

#: Prefixes of the names of MXNet 2's operations in files; the function's name follows.
PREFIXES = {"np": ("_npi_", "_np_", "_npx_"), "npx": ("_npx_", "_npi_", "_np_")}
#: Operations that are not commutative, so that a number as first operand needs another operation.
TURNED = ("subtract", "true_divide", "mod", "power")
NAMES = {"remainder": "mod", "divide": "true_divide", "round": "around"}


class Functions:
    """A module whose functions also accept symbols; its other attributes are unchanged."""

    def __init__(self, module: ModuleType, kind: str) -> None:
        self._module, self._kind = module, kind

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if isinstance(found, ModuleType):
            return Functions(found, self._kind)
        if name.startswith("_") or isinstance(found, type) or not hasattr(found, "__name__"):
            return found
        return self.__dict__.setdefault(name, _for_symbols(found, self._kind))

    def __dir__(self) -> list[str]:
        return dir(self._module)

    def __repr__(self) -> str:
        return f"<module 'gemel.symbol.{self._kind}'>"


def _for_symbols(function: Callable[..., Any], kind: str) -> Callable[..., Any]:
    """A function that returns a symbol if an argument is a symbol."""

    def call(*inputs: Any, **keywords: Any) -> Any:
        given = leaves([*inputs, *keywords.values()])
        if not any(isinstance(each, Symbol) for each in given):
            return function(*inputs, **keywords)
        return _composed(function, kind, inputs, keywords)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return call


def _composed(
    function: Callable[..., Any], kind: str, inputs: tuple[Any, ...], keywords: dict[str, Any]
) -> Symbol:
    """The symbol of a call of a function of `np` or `npx`, by the operation that MXNet has."""
    bare = NAMES.get(function.__name__, function.__name__)
    name = named(keywords.pop("name", None), bare)
    number = next((each for each in inputs if type(each) in (int, float)), None)
    of_two = all(p.default is p.empty for p in [*signature(function).parameters.values()][:2])
    if of_two and len(inputs) == 2 and not keywords and number is not None:
        symbol = inputs[inputs[0] is number]
        turned = "r" if inputs[0] is number and bare in TURNED else ""
        scalar = wanted(f"_npi_{turned}{bare}_scalar") if isinstance(symbol, Symbol) else None
        if scalar is not None:
            settings = {"scalar": number, "is_int": type(number) is int, "name": name}
            return compose(scalar, (symbol,), settings)
    given = signature(function).bind_partial(*inputs, **keywords).arguments
    symbols = {key: value for key, value in given.items() if _is_symbol(value)}
    settings = {key: value for key, value in given.items() if key not in symbols}
    declared = [each for p in PREFIXES[kind] if (each := wanted(p + bare)) is not None]
    if not declared:
        raise OperandError(f"{bare} does not accept symbols; a hybridized function may call it")
    several = [each for each in declared if callable(each._outputs) and bare in WRITERS]
    if several:  # the settings in the file say how many results there are
        written: Any = WRITERS[bare](**{**_defaults(function), **given})
        return compose(several[0], written.inputs, {**written.settings, "name": name})
    fits = (each for each in declared if _fits(each, function, kind, settings))
    operation = next(fits, None)
    if operation is None:
        return compose(declared[0], inputs, {**keywords, "name": name})
    named_inputs = {key: value for key, value in symbols.items() if key in operation.inputs}
    others: list[Any] = []
    for key, value in symbols.items():
        if key not in named_inputs:
            others += value if isinstance(value, (list, tuple)) else [value]
    return compose(operation, tuple(others), {**named_inputs, **settings, "name": name})


def _is_symbol(value: Any) -> bool:
    """Whether it is a symbol or a list of symbols."""
    several = value if isinstance(value, (list, tuple)) else (value,)
    return bool(several) and all(isinstance(each, Symbol) for each in several)


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _fits(
    operation: Legacy, function: Callable[..., Any], kind: str, settings: dict[str, Any]
) -> bool:
    """Whether an MXNet operation is this function: its settings must agree with the parameters."""
    if isinstance(operation, Derived):
        return True
    parameters = signature(function).parameters
    if any(key not in operation.settings for key in settings):
        return False
    if kind == "np" and not operation.variadic and set(operation.settings) - set(parameters):
        return False
    left_out = operation.defaults.keys() - settings.keys() - {*operation.inputs}
    return all(
        operation.defaults[key] == parameters[key].default for key in left_out & {*parameters}
    )


__all__ = ["Functions"]
