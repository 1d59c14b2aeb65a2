"""What is public: names in a namespace, methods of arrays, Python's operators.

A declaration says so itself (``public="np", method=True``). The namespaces `gemel.np` and
`gemel.npx`, the methods and operators of arrays and symbols, and the stubs that type checkers read
are filled from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from gemel.errors import unknown_attribute
from gemel.ir.array_methods import ArrayMethods
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

#: What is asked of namespaces with the underscores of Python's own names.
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


def asked(
    name: str,
    module: str,
    scope: dict[str, Any],
    others: dict[str, Any],
    modules: tuple[str, ...] = (),
) -> Any:
    """What a namespace has under a name that has not been asked for before.

    `scope` is where the module keeps its names, `others` what it holds besides what is declared,
    `modules` those of its modules that are imported late. Raises `AttributeError`, suggesting the
    nearest name.
    """
    if name.startswith("__") and name not in ASKED:  # what Python asks of modules
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    load()
    inner = {each: scope[each] for each in modules}
    held = {**others, **inner, **NAMESPACES[module.removeprefix("gemel.")]}
    if name == "__all__":
        return sorted(held)
    if name not in held:
        raise unknown_attribute(module, name, held)
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


def function(
    *, public: str = "", aliases: tuple[str, ...] = (), method: bool = False
) -> Callable[[Declared], Declared]:
    """Declare where a function (or a class) is public that is written over operations."""

    def declare(value: Declared) -> Declared:
        if public:
            publish(value, value.__name__, public, aliases)
        if method:
            make_method(value, value.__name__)
        return value

    return declare


__all__ = [
    "NAMESPACES",
    "OPERATORS",
    "Array",
    "asked",
    "function",
    "late_methods",
    "make_method",
    "make_operator",
    "publish",
]
