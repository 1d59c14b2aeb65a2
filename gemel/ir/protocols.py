"""NumPy's functions called on gemel's arrays: `numpy.exp(x)` runs `gemel.np.exp(x)`.

If gemel has no function of that name, or not with these keywords, NumPy computes on copies and the
result becomes a gemel array. The protocols are NumPy's `__array_ufunc__` and `__array_function__`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from gemel import _core
from gemel.device import beside
from gemel.dtype import as_dtype
from gemel.errors import DTypeError, GradientError, TraceError, own_errors
from gemel.ir.late import load

#: The reduction that `numpy.add.reduce` and the like stand for, by the universal function's name.
REDUCTIONS = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}

#: The versions of the Array API standard that `__array_namespace__` accepts.
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")

#: The public names of each namespace, filled by `gemel.ir.public.publish`.
NAMESPACES: dict[str, dict[str, Any]] = {
    name: {}
    for name in ("np", "np.fft", "np.linalg", "np.random", "npx", "npx.image", "npx.random")
}


class NumpyProtocols:
    """The special methods by which NumPy's functions recognize arrays of other libraries."""

    __slots__ = ()
    __array_priority__ = 1000.0

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """`gemel.np`, which keeps the Array API standard. Raises `ValueError` for later versions.

        https://data-apis.org/array-api/2024.12/
        """
        namespace: Any = sys.modules["gemel.np"]
        if api_version not in (None, *VERSIONS):
            newest = namespace.__array_api_version__
            raise ValueError(
                f"gemel.np implements version {newest} of the standard, not {api_version}"
            )
        return namespace

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, out: tuple[Any, ...] = (), **keywords: Any
    ) -> Any:
        """`numpy.exp(x)`, `a += x` for a NumPy array a: gemel's function of that name.

        If gemel has no such function, or not with these keywords, NumPy computes it. The result is
        a gemel array even then, unless `out` is NumPy's.
        """
        name: str | None = ufunc.__name__ if method == "__call__" else None
        if method == "reduce":
            name = REDUCTIONS.get(ufunc.__name__)
            keywords.setdefault("axis", 0)
        if out and ("where" in keywords or any(not isinstance(a, _core.Array) for a in out)):
            # With `where`, the other elements of `out` keep their values.
            kept = tuple(map(as_numpy, out))
            found = by_numpy(getattr(ufunc, method), inputs, {**keywords, "out": kept})
        else:
            found = _called("np", name, getattr(ufunc, method), inputs, keywords)
        casting = keywords.get("casting", "same_kind")
        return _written(ufunc.__name__, out, found, casting) if out else found

    def __array_function__(
        self, function: Any, types: Any, inputs: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """`numpy.concatenate([x, y])` and the like: gemel's function of that name.

        If gemel has no such function, or not with these arguments, NumPy computes it. Arrays in its
        results are gemel's even then.
        """
        home = function.__module__.replace("numpy", "np", 1)
        name = function.__name__
        out = keywords.pop("out", None)
        found = _called(home, name, function, inputs, keywords)
        if out is None:
            return found
        return _written(name, out if type(out) is tuple else (out,), found, "same_kind")


def as_numpy(value: Any) -> Any:
    """A value with NumPy arrays in place of gemel's, also in lists, tuples and dictionaries."""
    if isinstance(value, NumpyProtocols):  # for a symbol this raises: it has no values yet
        return value.asnumpy()  # type: ignore[attr-defined]
    if type(value) in (list, tuple):
        return type(value)(map(as_numpy, value))
    return {k: as_numpy(v) for k, v in value.items()} if type(value) is dict else value


def _as_gemel(value: Any) -> Any:
    """A result of NumPy with gemel arrays in place of NumPy's, except for dtypes that gemel
    lacks."""
    if isinstance(value, tuple):
        found = tuple(map(_as_gemel, value))
        return type(value)(*found) if hasattr(value, "_fields") else found
    if isinstance(value, list):
        return list(map(_as_gemel, value))
    if type(value).__module__ != "numpy" or not hasattr(value, "strides"):
        return value
    try:
        as_dtype(value.dtype)
    except DTypeError:
        return value
    return NAMESPACES["np"]["from_numpy"](value)


def _called(
    home: str,
    name: str | None,
    numpys: Callable[..., Any],
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
) -> Any:
    """Call gemel's function of a name as NumPy's would be called, or NumPy's on copies.

    NumPy's is also called if gemel's raises `TypeError`: for text, dates or None, of which gemel
    has no arrays.
    """
    ours = own(home, name)
    if ours is None or not _takes(ours, inputs, keywords):
        return by_numpy(numpys, inputs, keywords)
    try:
        return ours(*inputs, **keywords)
    except TypeError as error:
        refused = error
    try:
        return by_numpy(numpys, inputs, keywords)
    except (TraceError, TypeError):
        raise refused from None


def by_numpy(
    function: Callable[..., Any], inputs: tuple[Any, ...], keywords: dict[str, Any]
) -> Any:
    """Call NumPy's function on copies. If it returns None, it wrote into its first argument
    (`numpy.put`), which is written back.

    Raises `GradientError` if a gradient would be lost.
    """
    given = (*inputs, *keywords.values())
    if _core.recording() and any(getattr(value, "_is_tracked", False) for value in _leaves(given)):
        raise GradientError(
            f"numpy.{function.__name__} is computed by NumPy here and has no gradient; use a "
            "function of gemel.np, or detach() its arguments"
        )
    copies = as_numpy(inputs)
    with beside(None, inputs):
        found = function(*copies, **as_numpy(keywords))
        if found is None and inputs and isinstance(inputs[0], _core.Array):
            inputs[0][...] = copies[0]
        return _as_gemel(found)


def computed(
    function: Callable[..., Any], inputs: tuple[Any, ...], keywords: dict[str, Any]
) -> Any:
    """`by_numpy` for a function of gemel's own: what NumPy refuses is an error of gemel's."""
    with own_errors(function.__name__):
        return by_numpy(function, inputs, keywords)


def _leaves(value: Any) -> Iterator[Any]:
    """The items of nested lists and tuples."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def own(home: str, name: str | None) -> Any:
    """gemel's function of a name, also one that is imported lazily; None if there is none."""
    held = NAMESPACES.get(home, {})
    if name is not None and name not in held:
        load(lambda: name in held)
    return held.get(name or "")


def _takes(function: Callable[..., Any], inputs: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    from inspect import signature

    try:
        signature(function).bind(*inputs, **keywords)
    except TypeError:
        return False
    return True


def _written(name: str, out: tuple[Any, ...], found: Any, casting: Any) -> Any:
    """Write results into the arrays given as `out` and return these.

    Raises `DTypeError`, as NumPy does, for a cast that `casting` forbids.
    """
    import numpy

    values = found if isinstance(found, tuple) else (found,)
    pairs = [pair for pair in zip(out, values, strict=True) if pair[0] is not None]
    for target, value in pairs:
        given = getattr(value, "dtype", type(value))
        if not numpy.can_cast(given, target.dtype, casting):
            raise DTypeError(
                f"numpy.{name}: {given} cannot be stored in out of dtype {target.dtype} with "
                f"casting={casting!r}; convert the result with astype"
            )
    for target, value in pairs:
        target[...] = value
    given_back = tuple(value if a is None else a for a, value in zip(out, values, strict=True))
    return given_back if len(out) > 1 else given_back[0]


__all__ = ["NAMESPACES", "NumpyProtocols", "as_numpy", "own"]
