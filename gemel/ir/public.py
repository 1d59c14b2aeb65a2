"""What is public: names in a namespace, methods of arrays, Python's operators.

A declaration says so itself (``public="np", method=True``). The namespaces `gemel.np` and
`gemel.npx`, the methods and operators of arrays and symbols, and the stubs that type checkers read
are filled from here.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

from gemel.errors import unknown_attribute
from gemel.ir.array_methods import ArrayMethods
from gemel.ir.keywords import into
from gemel.ir.late import load
from gemel.ir.methods import call
from gemel.ir.protocols import NAMESPACES

Declared = TypeVar("Declared", bound=Callable[..., Any])
#: What public functions of arrays give: an array, or a symbol in a trace. Stubs say `ndarray`.
Array: TypeAlias = Any
#: The operations behind Python's operators, by the names of their special methods: add, truediv.
OPERATORS: dict[str, Any] = {}
#: Those without a swapped and an in-place form: one operand, and comparisons.
ALONE = frozenset(("neg", "abs", "invert", "copy", "eq", "ne", "lt", "le", "gt", "ge"))

#: Namespaces whose functions all take `out`, those that are written over operations, too.
OUT_NAMESPACES = ("npx", "np.fft")

#: Dunder names a namespace answers; Python asks modules for many others.
ASKED = ("__all__", "__array_namespace_info__")


def publish(
    value: Any, name: str, namespace: str, aliases: tuple[str, ...] = (), before: Any = None
) -> None:
    """Put what users call into a namespace under its names, where `before` or nothing is.

    Raises `ValueError` for a name that is taken.
    """
    held, names = NAMESPACES[namespace], (name, *aliases)
    for taken in (each for each in names if held.get(each, before) is not before):
        raise ValueError(f"{namespace}.{taken} is declared twice")
    held.update(dict.fromkeys(names, value))


def lookup(
    name: str,
    module: str,
    scope: dict[str, Any],
    others: dict[str, Any],
    modules: tuple[str, ...] = (),
    numpys: tuple[str, ...] = (),
) -> Any:
    """What a namespace has under a name that has not been asked for before.

    `scope` is where the module keeps its names, `others` what it holds besides what is declared,
    `modules` those of its modules that are imported late, `numpys` what it has of NumPy's module of
    that name. Raises `AttributeError`, suggesting the nearest name.
    """
    if name.startswith("__") and name not in ASKED:  # what Python asks of modules
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    if name in numpys:
        whole = import_module(module.replace("gemel.np", "numpy"))
        return scope.setdefault(name, getattr(whole, name))
    load()
    inner = {each: scope[each] for each in modules}
    held = {**others, **inner, **NAMESPACES[module.removeprefix("gemel.")]}
    if name == "__all__":
        return sorted((*held, *numpys))
    if name not in held:
        raise unknown_attribute(module, name, (*held, *numpys))
    return scope.setdefault(name, held[name])


def make_method(value: Any, name: str) -> None:
    """Make a function of arrays a method of arrays and symbols."""
    setattr(ArrayMethods, name, value)


class LateMethod:
    """A method of arrays whose operation is imported when it is asked for."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        load()
        if vars(ArrayMethods)[self.name] is self:
            raise AttributeError(f"no family of operations has the method {self.name!r}")
        return getattr(owner if instance is None else instance, self.name)


def late_methods(*names: str) -> None:
    """Methods that families of operations have which are imported later."""
    for name in names:
        make_method(LateMethod(name), name)


def make_operator(op: Any, name: str) -> None:
    """Make an operation what ``a + b`` (for "add") means. Raises `ValueError` for one taken."""
    if name in OPERATORS:
        raise ValueError(f"operator {name!r} is declared twice")
    OPERATORS[name] = op
    setattr(ArrayMethods, f"__{name}__", op)
    if name in ALONE:
        return
    setattr(ArrayMethods, f"__r{name}__", swapped(op))
    setattr(ArrayMethods, f"__i{name}__", in_place(op))


def swapped(op: Any) -> Callable[[Any, Any], Any]:
    """What a + b calls when a is no array: b's method, with a as its argument."""

    def method(self: Any, other: Any) -> Array:
        return op(other, self)

    method.__doc__ = f"{op.name}(other, self)."
    return method


def in_place(op: Any) -> Callable[[Any, Any], Any]:
    """x += y in a trace: what x holds is overwritten, for all that show it."""

    def method(self: Any, other: Any) -> Array:
        return call("overwrite", self, op(self, other))

    method.__doc__ = f"{op.name}(self, other), which self holds from now on."
    return method


class AcceptingOut:
    """A function of arrays as people call it: `out` is what its results are written into."""

    def __init__(self, function: Callable[..., Any], namespace: str) -> None:
        self.__wrapped__ = function
        self.__name__ = self.__qualname__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = f"gemel.{namespace}"  # where pickling finds it

    def __call__(self, *inputs: Any, out: Any = None, **keywords: Any) -> Any:
        found = self.__wrapped__(*inputs, **keywords)
        return found if out is None else into(self.__name__, out, found)

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


def accepting_out(value: Any, namespace: str) -> Any:
    """What a namespace has for a function: where all take `out`, one that does."""
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
    """Declare where a function (or a class) is public that is written over operations."""

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
]
