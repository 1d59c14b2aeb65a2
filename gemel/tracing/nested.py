"""Nested arguments and results (like JAX's pytrees): lists, tuples and dicts of arrays are split
into a hashable structure and its leaves, and put together again.

    f([x, {"scale": 2.0}], 3)  ->  arrays [x], numbers [2.0], and a structure that contains the 3
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gemel.arrays.making import array_like
from gemel.errors import PythonGivenError, TraceError
from gemel.extent import Dim
from gemel.ir.graph import Entry
from gemel.ndarray import ndarray
from gemel.spec import plain


def flatten(value: Any, arrays: list[Any], numbers: list[float]) -> Any:
    """Append the leaves of a nested value to the lists. Returns its structure."""
    if isinstance(value, (list, tuple)):
        return type(value), tuple(flatten(item, arrays, numbers) for item in value)
    if isinstance(value, dict):
        items = value.items()
        return type(value), tuple((name, flatten(item, arrays, numbers)) for name, item in items)
    if isinstance(value, ndarray):
        arrays.append(value)
        return None
    if isinstance(value, Entry):
        if value.is_run_time_number:  # a float argument of the program that is being traced
            numbers.append(value)  # type: ignore[arg-type]
            return ("number",)
        arrays.append(value.as_np_ndarray())
        return None
    if type(value) is float:
        numbers.append(value)
        return ("number",)
    if hasattr(value, "__array__"):
        arrays.append(array_like(value))
        return None
    if type(value) is slice:  # before Python 3.12 it has no hash
        parts = map(plain, (value.start, value.stop, value.step))
        return slice, tuple(flatten(item, arrays, numbers) for item in parts)
    return "static", type(value), value


@contextmanager
def checked(name: str, what: str) -> Iterator[None]:
    """Raises `TraceError` where a nested value is taken apart that holds itself, or is too deep."""
    try:
        yield
    except RecursionError:
        raise TraceError(
            f"{name}: {what} is a list, tuple or dict that contains itself, or is nested too "
            "deeply; use a flat list"
        ) from None


def unhashable(structure: Any) -> str:
    """The type of the first leaf of a structure that has no hash, so that calls with it cannot be
    told from others; empty if there is none."""
    kind, *rest = structure or (None,)
    if kind == "static":
        try:
            hash(rest[1])
        except TypeError:
            return type(rest[1]).__name__
    parts = rest[0] if isinstance(kind, type) else ()
    if isinstance(kind, type) and issubclass(kind, dict):
        parts = [part for _, part in parts]
    return next(filter(None, map(unhashable, parts)), "")


NOTHING: Iterator[Any] = iter(())


def unflatten(structure: Any, arrays: Iterator[Any], numbers: Iterator[Any] = NOTHING) -> Any:
    """The nested value whose leaves come from two iterators.

    Raises `PythonGivenError` for a container that cannot be made from its items.
    """
    if structure is None:
        return next(arrays)
    kind, *rest = structure
    if kind == "number":
        return next(numbers)
    if kind == "static":
        return rest[1]
    if issubclass(kind, dict):
        content = {name: unflatten(item, arrays, numbers) for name, item in rest[0]}
        return content if kind is dict else _made(kind, content)
    items = [unflatten(item, arrays, numbers) for item in rest[0]]
    if kind is slice:
        return slice(*items)
    return items if kind is list else tuple(items) if kind is tuple else _made(kind, items)


def _made(kind: Any, content: Any) -> Any:
    """A container of this kind with this content. Raises `PythonGivenError` if there is none."""
    try:
        built = kind(*content) if hasattr(kind, "_fields") else kind(content)
        if len(built) == len(content) and (isinstance(content, list) or [*built] == [*content]):
            return built
        reason = f"{kind.__name__}(content) holds something else"
    except (TypeError, ValueError) as error:
        reason = str(error)
    raise PythonGivenError(
        f"a {kind.__name__} of arrays cannot be rebuilt from its elements: {reason}; use a list, "
        "a tuple, a NamedTuple, a dict or an OrderedDict"
    )


def form_of(structure: Any, change: Callable[[Any], Any] | None = None) -> Any:
    """A function from the tuple of leaves to the nested value, for the core; None for one leaf.

    `change`, if given, is first applied to the tuple of leaves.
    """
    if change is not None and structure is None:
        return lambda leaves: change(leaves[0])
    if change is not None:
        return lambda leaves: unflatten(structure, iter(change(leaves)))
    if structure is None:
        return None
    if structure[0] is tuple and not any(structure[1]):
        return tuple
    return lambda leaves: unflatten(structure, iter(leaves))


def flatten_results(value: Any, out: list[Any]) -> Any:
    """`flatten` for the results of a function: numbers are leaves, too."""
    if isinstance(value, (list, tuple)):
        return type(value), tuple(flatten_results(item, out) for item in value)
    if isinstance(value, dict):
        # An extent as a key would stand for another number in each call.
        items = ((int(key) if isinstance(key, Dim) else key, item) for key, item in value.items())
        return type(value), tuple((key, flatten_results(item, out)) for key, item in items)
    if value is None:
        return "static", type(None), None
    # Kernels do not compute complex numbers, so such a result becomes an array here.
    out.append(array_like(value) if isinstance(value, complex) else value)
    return None


class Named(dict[str, Any]):
    """The arguments of a call that can be given by name only: the last of those by position."""


def with_named(arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of a call by position, and those that are given by name as the last of them.

    These are sorted, because their order makes no difference.
    """
    return (*arguments, Named(sorted(named.items()))) if named else arguments


def called(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Call a function with arguments of `with_named`."""
    if arguments and type(arguments[-1]) is Named:
        return function(*arguments[:-1], **arguments[-1])
    return function(*arguments)


def by_place(
    name: str, signature: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, with named ones moved to their places, and those without a place.

    Raises `TypeError` for arguments that the function called `name` does not take.
    """
    try:
        bound = signature.bind(*arguments, **named)
    except TypeError as error:  # it does not name the function
        raise TypeError(f"{name}: {error}") from None
    if bound.kwargs:
        bound.apply_defaults()  # arguments before the named ones may have been left out
    return bound.args, {key: value for key, value in bound.kwargs.items() if key in named}


__all__ = [
    "Named",
    "called",
    "checked",
    "flatten",
    "flatten_results",
    "form_of",
    "unflatten",
    "unhashable",
    "with_named",
]
