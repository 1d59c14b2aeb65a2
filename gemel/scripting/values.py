"""The values of a scripted function's variables: arrays, numbers, nested lists, or none yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gemel.dtype import bool_
from gemel.errors import TraceError
from gemel.ir.graph import Entry, placeholder
from gemel.ir.methods import call
from gemel.ndarray import ndarray
from gemel.runtime.prepare import as_entry

#: The place of a value: a variable's name, then positions and keys in nested lists and dicts.
Path = tuple[Any, ...]
Values = dict[str, Any]
Action = Callable[..., Any]


class Undefined:
    """The value of a variable before it is assigned, or if only some paths assigned it."""

    def __init__(self, why: str = "") -> None:
        self.why = why


UNDEFINED = Undefined()
#: The prefix of variables that the rewriting adds, such as the one for the function's result.
HIDDEN = "_gemel_"


def array_of(value: Any) -> Any:
    """The array or symbol that a value is or holds; None for other values, numbers included."""
    holder = getattr(type(value), "__flow__", None)
    value = holder(value) if holder is not None else value
    if isinstance(value, Entry):
        return None if value.spec.weak else value
    return value if isinstance(value, ndarray) else None


def like(value: Any, entry: Any) -> Any:
    """The entry, wrapped in the way `value` holds its array."""
    maker = getattr(type(value), "__flow_with__", None)
    return entry if maker is None else maker(value, entry)


def leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """The leaves of a variable's value, with lists, tuples and dicts taken apart."""
    if type(value) in (list, tuple):
        yield (*path, type(value), len(value)), None
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    elif type(value) is dict:
        yield (*path, dict, *value), None
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    else:
        yield path, value


def rebuilt(value: Any, path: Path, change: dict[Path, Any]) -> Any:
    """The nested value with the leaves in `change` replaced."""
    if type(value) in (list, tuple):
        return type(value)(rebuilt(item, (*path, i), change) for i, item in enumerate(value))
    if type(value) is dict:
        return {key: rebuilt(item, (*path, key), change) for key, item in value.items()}
    return change.get(path, value)


def known(test: Any) -> bool | None:
    """Whether a condition holds; None if only the running program knows."""
    held = getattr(type(test), "__flow__", None)
    test = test if held is None else held(test)
    if not isinstance(test, Entry):
        return bool(test)
    try:
        return bool(test)
    except TraceError:
        return None


def condition(test: Any) -> Entry:
    """A condition as a symbol of dtype bool."""
    held = getattr(type(test), "__flow__", None)
    entry = as_entry(test if held is None else held(test))
    found: Entry = entry if entry.dtype is bool_ else call("not_equal", entry, 0)
    return found


def same(a: Any, b: Any) -> bool:
    """Whether two values other than arrays are the same."""
    if a is b:
        return True
    if isinstance(a, Entry) or isinstance(b, Entry) or type(a) is not type(b):
        return False
    try:
        return bool(a == b)
    except Exception:
        return False


class Objects:
    """The arrays among values, each once, even if several variables hold it."""

    def __init__(self, values: dict[Path, Any]) -> None:
        self.own: list[Any] = []  # the arrays themselves
        self.at: dict[Path, int] = {}
        for path, value in values.items():
            array = array_of(value)
            if array is not None:
                found = next((i for i, x in enumerate(self.own) if x is array), len(self.own))
                self.own[found:] = self.own[found:] or [array]
                self.at[path] = found
        self.stands = [placeholder(as_entry(x).spec) for x in self.own]

    def fresh(self, values: dict[Path, Any]) -> tuple[list[Entry], dict[Path, Any]]:
        """Copies of the placeholders, which may be written to, and the leaves that hold them."""
        local = [call("copy", entry) for entry in self.stands]
        return local, {path: like(values[path], local[i]) for path, i in self.at.items()}


def strong(entry: Entry) -> Entry:
    """The entry as an array, also if it is a number."""
    found: Entry = call("cast", entry, dtype=entry.dtype) if entry.spec.weak else entry
    return found


def bare(value: Any) -> Any:
    """The array that a value holds; the value itself if it holds none."""
    array = array_of(value)
    return value if array is None else array


def described(value: Any) -> str:
    """A value as text for a message; for an array, its spec."""
    array = array_of(value)
    return repr(value) if array is None else str(as_entry(array).spec)
