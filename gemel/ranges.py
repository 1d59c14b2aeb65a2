"""Checks of settings that are numbers: counts, probabilities, numbers in a range."""

from __future__ import annotations

import operator
from math import inf, isfinite
from numbers import Real
from types import MethodType
from typing import Any, ClassVar

from gemel.errors import ArgumentError, OperandError, check_arguments
from gemel.extent import Dim


def counted(name: str, what: str, value: Any, least: int = 1) -> int:
    """Check a setting that is a count. Raises `ArgumentError` unless it is a whole number of at
    least `least`. A size that is free while a function is traced is only known to be whole.

    >>> counted("Dense", "units", 8)
    8
    """
    if isinstance(value, Dim):
        return value
    whole = hasattr(value, "__index__") and not getattr(value, "ndim", 0)
    whole = whole and getattr(getattr(value, "dtype", None), "kind", "i") in "iu"
    if not whole or operator.index(value) < least:
        raise ArgumentError(
            f"{name}: {what} must be a whole number of at least {least}, not {value!r}"
        )
    return operator.index(value)


def check_number(name: str, what: str, value: Any, least: float = -inf, most: float = inf) -> None:
    """Raises `ArgumentError` unless `value` is a finite number from `least` to `most`.

    >>> check_number("RandomGray", "p", 0.5, 0, 1)
    """
    if is_finite(value) and least <= float(value) <= most:
        return
    rule = "a finite number"
    if least > -inf:
        rule += f" of at least {least:g}" if most == inf else f" from {least:g} to {most:g}"
    raise ArgumentError(f"{name}: {what} is {value!r}; it must be {rule}")


def check_flag(name: str, what: str, value: Any) -> None:
    """Raises `OperandError` for what is neither true nor false by itself, such as a text or a list,
    which would be true by its length.

    >>> check_flag("sort", "descending", True)
    """
    if value is not None and not hasattr(value, "__bool__"):
        raise OperandError(f"{name}: {what} is {value!r}; it must be True or False")


class _InitSignature:
    """The signature of a class is that of its `__init__`; a `__new__` would hide it."""

    def __get__(self, made: object, kind: Any) -> Any:
        from inspect import Signature, signature

        if made is not None:  # an instance has that of its `__call__`
            return None
        if kind.__init__ is object.__init__:
            return Signature()
        return signature(MethodType(kind.__init__, kind))


class FlagsChecked:
    """A base class whose constructors refuse flags that are neither true nor false: arguments that
    gemel's own `__init__` methods annotate as bool. Keywords that they do not have, and missing
    arguments, are errors that name the class."""

    __slots__ = ()
    #: By class, when first made: see `_flags_of`. Subclasses may have a `_flags` of their own.
    __flags: ClassVar[dict[str, int]]

    def __new__(cls, *arguments: Any, **named: Any) -> Any:  # noqa: D102
        if "_FlagsChecked__flags" not in vars(cls):
            # Not by `cls.__flags = `: the metaclass of a user may refuse that.
            type.__setattr__(cls, "_FlagsChecked__flags", _flags_of(cls))
        given = dict(named)
        for name, place in cls.__flags.items():
            if 0 <= place < len(arguments):
                given[name] = arguments[place]
            if name in given:
                check_flag(cls.__name__, name, given[name])
        # `copy` and `pickle` give none, and a user's `__new__` or metaclass may give others than
        # those that `__init__` gets.
        usual = type(cls).__call__ is type.__call__ and cls.__new__.__module__.startswith("gemel.")
        if usual and (arguments or named):
            check_arguments(cls, arguments, named)
        made = super().__new__
        if made is not object.__new__:
            return made(cls, *arguments, **named)
        # Python asks this only of classes without a `__new__`.
        if cls.__init__ is object.__init__ and (arguments or named):
            raise TypeError(f"{cls.__name__}() takes no arguments")
        return made(cls)

    __signature__ = _InitSignature()


def _flags_of(kind: type) -> dict[str, int]:
    """The flags among the arguments of a class, and those that it hands on by name: each with its
    place among the arguments, or -1. What a user's class takes itself is its own, whatever gemel's
    classes call so."""
    found: dict[str, int] = {}
    taken: set[str] = set()
    ahead = True  # whether the places are those of the call
    for base in kind.__mro__:
        made: Any = vars(base).get("__init__")
        while hasattr(made, "__wrapped__"):
            made = made.__wrapped__
        code = getattr(made, "__code__", None)
        if code is None:  # none, or no function
            ahead = ahead and made is None
            continue
        names = code.co_varnames[1 : code.co_argcount]
        ours = base.__module__.startswith("gemel.")
        for name, said in made.__annotations__.items() if ours else ():
            if name not in taken and isinstance(said, str) and said in _FLAGS:
                found[name] = names.index(name) if ahead and name in names else -1
        taken.update(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        # A constructor of gemel's that takes all places as a tuple hands them on as they are.
        ahead = ahead and ours and not names and bool(code.co_flags & _TAKES_A_TUPLE)
    return found


#: A flag of Python's code objects: the function has an argument like `*arguments`.
_TAKES_A_TUPLE = 4
#: How flags are annotated.
_FLAGS = ("bool", "bool | None")


def check_below_one(name: str, what: str, value: Any, kind: str = "number") -> None:
    """Raises `ArgumentError` unless `value` is from 0 to below 1."""
    if not (is_finite(value) and 0 <= float(value) < 1):
        raise ArgumentError(f"{name}: {what} is {value!r}; it must be a {kind} from 0 to below 1")


def check_probability(name: str, what: str, value: Any) -> None:
    """Raises `ArgumentError` unless `value`, the share that a layer drops, is from 0 to below 1."""
    check_below_one(name, what, value, "probability")


def check_ends(name: str, what: str, ends: Any, most: float = inf) -> None:
    """Raises `ArgumentError` unless `ends` are two positive numbers up to `most`, the smaller
    first."""
    pair = tuple(ends) if hasattr(ends, "__iter__") else ()
    if not (len(pair) == 2 and all(map(is_finite, pair)) and 0 < pair[0] <= pair[1] <= most):
        limit = "" if most == inf else f" and at most {most:g}"
        raise ArgumentError(
            f"{name}: {what} is {ends!r}; it must be two numbers above 0{limit}, the smaller first"
        )


def is_finite(value: Any) -> bool:
    """Whether this is a finite number, or an array of one."""
    number = isinstance(value, Real) or (hasattr(value, "item") and value.size == 1)
    return number and isfinite(float(value))


__all__ = [
    "FlagsChecked",
    "check_below_one",
    "check_ends",
    "check_flag",
    "check_number",
    "check_probability",
    "counted",
    "is_finite",
]
