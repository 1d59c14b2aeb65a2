"""`nd.random` and `sym.random`: MXNet 1's random numbers from numbers, arrays and symbols.

A call with `size=` goes to `np.random`, and so does everything MXNet's module does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from gemel import _core, np
from gemel.errors import OperandError, unknown_attribute
from gemel.ir.graph import Entry
from gemel.legacy.declare import wanted

#: The distributions of MXNet's module: their parameters in MXNet's order, with defaults.
PARAMETERS: dict[str, dict[str, float]] = {
    "uniform": {"low": 0.0, "high": 1.0},
    "normal": {"loc": 0.0, "scale": 1.0},
    "exponential": {"scale": 1.0},
    "gamma": {"alpha": 1.0, "beta": 1.0},
    "poisson": {"lam": 1.0},
    "negative_binomial": {"k": 1, "p": 1.0},
    "generalized_negative_binomial": {"mu": 1.0, "alpha": 1.0},
}
#: Other names of these parameters, from MXNet's operations on arrays.
ALIASES = {"normal": {"mu": "loc", "sigma": "scale"}, "exponential": {"lam": "scale"}}
#: The arguments that follow the parameters; `name` is for symbols.
COMMON = ("shape", "dtype", "ctx", "out", "device", "name")
#: The other functions, with the names of their arguments in MXNet's order.
OTHERS = {
    "randint": ("low", "high", *COMMON),
    "multinomial": ("data", "shape", "get_prob", "out", "dtype", "name"),
    "shuffle": ("data", "out", "name"),
}
OPERATIONS = {
    "randint": "_random_randint",
    "multinomial": "_sample_multinomial",
    "shuffle": "_shuffle",
}
#: All random functions of MXNet's module.
NAMES = (*PARAMETERS, *OTHERS, "randn")

#: Makes the module's version of an MXNet operation or of a function of `np.random`.
Offer = Callable[[Any], Any]


class Draws(ModuleType):
    """`random`: MXNet's functions and those of `np.random`."""

    def __init__(self, name: str, operation: Offer, function: Offer) -> None:
        super().__init__(name, type(self).__doc__)
        self._operation, self._function = operation, function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python looks for optional attributes of modules
            raise unknown_attribute(self.__name__, name, ())
        if name in PARAMETERS:
            draw = _distribution(name, self._operation)
        elif name == "randn":
            draw = _standard(self.normal)
        elif name in OTHERS:
            draw = _other(name, self._operation)
        else:
            own = None if hasattr(np.random, name) else wanted(f"_random_{name}")
            if own is None and not hasattr(np.random, name):
                raise unknown_attribute(self.__name__, name, dir(self))
            return self._operation(own) if own else self._function(getattr(np.random, name))
        numpys = getattr(np.random, name, None)
        found = draw if numpys is None else _either(draw, self._function(numpys), name)
        found.__name__ = found.__qualname__ = name
        found.__doc__ = _described(name, numpys is not None)
        return self.__dict__.setdefault(name, found)

    def __dir__(self) -> list[str]:
        return sorted({*NAMES, *dir(np.random)})


def _either(mxnets: Any, numpys: Any, name: str) -> Any:
    """MXNet's function, or NumPy's if a call's keywords or arguments fit only that."""
    known = {*PARAMETERS.get(name, ()), *ALIASES.get(name, ()), *OTHERS.get(name, COMMON)}

    def draw(*inputs: Any, **keywords: Any) -> Any:
        theirs = "size" in keywords or (name in PARAMETERS and not known.issuperset(keywords))
        if name in OTHERS and inputs:
            theirs = theirs or _is_several(inputs[0]) is (name == "randint")
        return (numpys if theirs else mxnets)(*inputs, **keywords)

    return draw


def _described(name: str, is_numpys: bool) -> str:
    """The documentation of a function of MXNet's module."""
    if name == "randn":
        listed = "*shape, loc=0.0, scale=1.0, dtype=None, ..."
    else:
        settings = [f"{key}={default!r}" for key, default in PARAMETERS.get(name, {}).items()]
        listed = ", ".join([*settings, *OTHERS.get(name, COMMON)])
    text = f"MXNet 1's random.{name}({listed})."
    if name in PARAMETERS:
        text += "\n\nThe parameters are numbers, or arrays with a draw of `shape` for each element."
    if is_numpys and name != "randn":
        text += f"\n\nCalls with arguments that only NumPy's has (size=) go to np.random.{name}."
    return text


def _is_several(value: Any) -> bool:
    """Whether it is an array, an entry of a trace, or a symbol."""
    return isinstance(value, (_core.Array, Entry)) or hasattr(type(value), "list_arguments")


def _bound(
    name: str, names: tuple[str, ...], inputs: tuple[Any, ...], keywords: dict[str, Any]
) -> dict[str, Any]:
    """The arguments by name, without those that are None. Raises `OperandError`."""
    aliases = ALIASES.get(name, {})
    if len(inputs) > len(names):
        raise OperandError(f"{name}: takes {len(names)} arguments, got {len(inputs)}")
    found = dict(zip(names, inputs, strict=False))
    for key, value in keywords.items():
        key = aliases.get(key, key)
        if key in found:
            raise OperandError(f"{name}: {key} is given twice")
        found[key] = value
    return {key: value for key, value in found.items() if value is not None}


def _distribution(name: str, offer: Offer) -> Any:
    """The function of a distribution, which draws by one operation for numbers or for arrays."""
    defaults = PARAMETERS[name]

    def draw(*inputs: Any, **keywords: Any) -> Any:
        rate = "lam" in keywords and name == "exponential"
        given = _bound(name, (*defaults, *COMMON), inputs, keywords)
        values = [given.pop(key, default) for key, default in defaults.items()]
        if name == "exponential" and not rate:  # the operation takes the rate, not the scale
            values = [1.0 / values[0]]
        arrays = [value for value in values if _is_several(value)]
        operation: Any = wanted(f"_sample_{name}" if arrays else f"_random_{name}")
        if not arrays:
            if "out" not in given:
                given.setdefault("shape", ())
            return offer(operation)(**dict(zip(operation.settings, values, strict=False)), **given)
        spread = [v if _is_several(v) else arrays[0] * 0 + v for v in values]
        if "out" in given:
            given.setdefault("shape", tuple(given["out"].shape)[arrays[0].ndim :])
        return offer(operation)(*spread, **given)

    return draw


def _standard(normal: Any) -> Any:
    def randn(*shape: int, **keywords: Any) -> Any:
        return normal(shape=shape, **keywords)

    return randn


def _other(name: str, offer: Offer) -> Any:
    operation: Any = wanted(OPERATIONS[name])
    data = operation.inputs

    def draw(*inputs: Any, **keywords: Any) -> Any:
        given = _bound(name, OTHERS[name], inputs, keywords)
        inputs = tuple(given.pop(key) for key in data if key in given)
        return offer(operation)(*inputs, **given)

    return draw


__all__ = ["NAMES", "Draws"]
