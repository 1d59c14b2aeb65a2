"""What is public: names in namespaces, methods of arrays, Python's operators.

A declaration says itself where it is public (``public="np", method=True``) and calls `publish`,
`make_method` and `make_operator`. From what these collect, the modules `gemel.np` and `gemel.npx`,
the methods and operators of arrays and symbols, and the stubs for type checkers are made.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

from gemel.errors import PUBLIC, OperandError, unknown_attribute
from gemel.ir.array_methods import ArrayMethods
from gemel.ir.keywords import into
from gemel.ir.late import load
from gemel.ir.methods import call
from gemel.ir.protocols import NAMESPACES

Declared = TypeVar("Declared", bound=Callable[..., Any])
#: The result type of public functions: an array, or a symbol in a trace. Stubs say `ndarray`.
Array: TypeAlias = Any
#: The operations behind Python's operators, by the names of the special methods: add, truediv.
OPERATORS: dict[str, Any] = {}
#: Operators without a reflected (`__radd__`) and an in-place (`__iadd__`) form.
ALONE = frozenset(("neg", "abs", "invert", "copy", "eq", "ne", "lt", "le", "gt", "ge"))

#: Namespaces whose functions all take `out`, even those that are composed of operations.
OUT_NAMESPACES = ("npx", "np.fft")

#: Dunder names that a namespace answers. Python asks modules for many others.
ASKED = ("__all__", "__array_namespace_info__")


def publish(
    value: Any, name: str, namespace: str, aliases: tuple[str, ...] = (), before: Any = None
) -> None:
    """Add a function to a namespace under its name and aliases.

    Raises `ValueError` for a name that is taken, unless by `before`, which it replaces.
    """
    held, names = NAMESPACES[namespace], (name, *aliases)
    for taken in (each for each in names if held.get(each, before) is not before):
        raise ValueError(f"{namespace}.{taken} is declared twice")
    held.update(dict.fromkeys(names, value))
    code = getattr(value, "__code__", None)  # operations have none; they name themselves
    if code is not None:
        PUBLIC[code] = name


def lookup(
    name: str,
    module: str,
    scope: dict[str, Any],
    others: dict[str, Any],
    modules: tuple[str, ...] = (),
    numpys: tuple[str, ...] = (),
) -> Any:
    """The `__getattr__` of a namespace: finds a name and stores it in `scope`, its globals.

    Besides its declared names, a namespace has `others`, the submodules `modules`, and the names
    `numpys` of NumPy's module. Raises `AttributeError`, naming another namespace that has the name,
    or the nearest name.
    """
    if name.startswith("__") and name not in ASKED:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    if name in numpys:
        whole = import_module(module.replace("gemel.np", "numpy"))
        return scope.setdefault(name, getattr(whole, name))
    if name in modules:
        return import_module(f"{module}.{name}")
    declared = NAMESPACES[module.removeprefix("gemel.")]
    load(lambda: name in declared or name in others)
    held = {**others, **declared}
    if name == "__all__":
        return sorted((*held, *modules, *numpys))
    if name not in held:
        places = [place for place, names in NAMESPACES.items() if name in names]
        if places:
            use = f"use {places[0]}.{name}"
            raise AttributeError(f"module {module!r} has no attribute {name!r}; {use}")
        raise unknown_attribute(module, name, (*held, *modules, *numpys))
    return scope.setdefault(name, held[name])


def make_method(value: Any, name: str) -> None:
    """Make a function of arrays a method of arrays and symbols."""
    setattr(ArrayMethods, name, value)


class LateMethod:
    """A descriptor for a method whose operation is imported when the method is used."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        load(lambda: vars(ArrayMethods)[self.name] is not self)
        if vars(ArrayMethods)[self.name] is self:
            raise AttributeError(f"no family of operations has the method {self.name!r}")
        return getattr(owner if instance is None else instance, self.name)


def late_methods(*names: str) -> None:
    """Declare methods of operations that are imported lazily (`ir.late`)."""
    for name in names:
        make_method(LateMethod(name), name)


def make_operator(op: Any, name: str) -> None:
    """Make an operation the meaning of ``a + b`` (for "add"). `ValueError` if it has one
    already."""
    if name in OPERATORS:
        raise ValueError(f"operator {name!r} is declared twice")
    OPERATORS[name] = op
    setattr(ArrayMethods, f"__{name}__", forwards(op))
    if name in ALONE:
        return
    setattr(ArrayMethods, f"__r{name}__", reflected(op))
    setattr(ArrayMethods, f"__i{name}__", in_place(op))


def forwards(op: Any) -> Callable[..., Any]:
    """The method a.__add__(b), which Python calls for a + b."""

    def method(self: Any, *others: Any) -> Array:
        return op.operated(self, *others)

    method.__doc__ = op.__doc__
    method.__wrapped__ = op  # type: ignore[attr-defined] # its signature is the operation's
    return method


def reflected(op: Any) -> Callable[[Any, Any], Any]:
    """The method b.__radd__(a), which Python calls for a + b if a is not an array."""

    def method(self: Any, other: Any) -> Array:
        return op.operated(other, self)

    method.__doc__ = f"{op.name}(other, self)."
    return method


def in_place(op: Any) -> Callable[[Any, Any], Any]:
    """The method for x += y in a trace: it overwrites x, which is visible through all views of
    x."""

    def method(self: Any, other: Any) -> Array:
        return call("overwrite", self, op.operated(self, other))

    method.__doc__ = f"self[...] = {op.name}(self, other)."
    return method


class AcceptingOut:
    """A function of arrays with the keyword `out`, into which its results are written."""

    def __init__(self, function: Callable[..., Any], namespace: str) -> None:
        self.__wrapped__ = function
        self.__name__ = self.__qualname__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = f"gemel.{namespace}"  # where pickling finds it
        self._spelled: dict[str, str] = getattr(function, "spelled", {})

    def __call__(self, *inputs: Any, out: Any = None, **keywords: Any) -> Any:
        if keywords and self._spelled:
            keywords = self._own(keywords)
        found = self.__wrapped__(*inputs, **keywords)
        return found if out is None else into(self.__name__, out, found)

    def _own(self, keywords: dict[str, Any]) -> dict[str, Any]:
        """Keywords under the function's own names. Raises `OperandError` for one given twice."""
        found: dict[str, Any] = {}
        for name, value in keywords.items():
            own = self._spelled.get(name, name)
            if own in found:
                other = next(each for each in keywords if self._spelled.get(each, each) == own)
                raise OperandError(
                    f"{self.__name__}: {other} and {name} are the same argument; give one of them"
                )
            found[own] = value
        return found

    @property
    def __signature__(self) -> Any:
        from inspect import Parameter, signature

        found = signature(self.__wrapped__)
        out = Parameter("out", Parameter.KEYWORD_ONLY, default=None, annotation="Any")
        return found.replace(parameters=[*found.parameters.values(), out])

    @property
    def __code__(self) -> Any:
        return self.__wrapped__.__code__

    def __reduce__(self) -> str:
        return self.__name__


def spelled(**names: str) -> Callable[[Declared], Declared]:
    """Declare further names of arguments, which MXNet 1 or 2 has: ``@spelled(data="x")``.

    For functions with `out` only, see `accepting_out`.
    """

    def declare(value: Declared) -> Declared:
        value.spelled = names  # type: ignore[attr-defined]
        return value

    return declare


def accepting_out(value: Any, namespace: str) -> Any:
    """A function as its namespace shows it: with `out` if all functions of the namespace take
    it."""
    if namespace not in OUT_NAMESPACES or isinstance(value, type):
        return value
    code = value.__code__
    given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    gives = str(value.__annotations__.get("return"))
    return (
        AcceptingOut(value, namespace)
        if gives.startswith("Array") and "out" not in given
        else value
    )


def function(
    *, public: str = "", aliases: tuple[str, ...] = (), method: bool = False
) -> Callable[[Declared], Declared]:
    """Declare where a function (or class) that is composed of operations is public."""

    def declare(value: Declared) -> Declared:
        if public:
            publish(accepting_out(value, public), value.__name__, public, aliases)
        if method:
            make_method(value, value.__name__)
        return value

    return declare


__all__ = [
    "NAMESPACES",
    "OPERATORS",
    "Array",
    "function",
    "late_methods",
    "lookup",
    "make_method",
    "make_operator",
    "publish",
    "spelled",
]
