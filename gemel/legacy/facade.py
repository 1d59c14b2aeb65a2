"""Modules that offer the operations under MXNet's names: `gemel.ndarray` and `gemel.symbol`."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from types import ModuleType
from typing import Any

from gemel.errors import unknown_attribute
from gemel.legacy.declare import TABLE, find, known, wanted

#: Parts of the modules, and what names of the operations in them begin with.
PARTS = {"contrib": "_contrib_", "linalg": "_linalg_"}


class Part:
    """`contrib` and `linalg`: operations whose names begin alike."""

    def __init__(
        self,
        name: str,
        prefix: str,
        made: Callable[[Any], Any],
        other: Callable[[Any], Any],
    ) -> None:
        self._name = name
        self._prefix = prefix
        self._made = made
        self._other = other

    def __getattr__(self, name: str) -> Any:
        from gemel import np, npx

        operation = wanted(self._prefix + name)
        if operation is not None:
            return self._made(operation)
        places = (np.linalg, npx) if self._prefix == "_linalg_" else (npx, np.linalg)
        for place in places if not name.startswith("_") else ():
            if hasattr(place, name):
                return self._other(getattr(place, name))
        raise unknown_attribute(self._name, name, (*dir(np.linalg), *dir(npx)))

    def __repr__(self) -> str:
        return f"<module '{self._name}'>"


#: What modules have under names that are Python's own, which their code must not lose.
_hiding: dict[str, dict[str, Any]] = {"gemel.ndarray": {}, "gemel.symbol": {}}


def _kept(scope: dict[str, Any], name: str, found: Any) -> Any:
    """Keep what a module has under a name for the next time, among its globals if that is harmless.

    `max` and `slice` are not: code of the module's would find them in place of Python's.
    """
    names = _hiding[scope["__name__"]] if hasattr(builtins, name) else scope
    return names.setdefault(name, found)


def attribute(
    name: str,
    module: str,
    scope: dict[str, Any],
    made: Callable[[Any], Any],
    other: Callable[[Any], Any],
) -> Any:
    """What such a module has under a name: `np`, `npx`, `random`, an operation of MXNet's, or a
    function of `npx` or `np`. Raises `AttributeError`, suggesting the nearest.
    """
    if name in _hiding[module]:
        return _hiding[module][name]
    if name.startswith("__"):  # what Python asks of modules
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    from gemel import np, npx

    modules = {"np": np, "npx": npx}
    if name in modules:
        return modules[name]
    if name == "random":
        from gemel.legacy.draws import Draws

        return _kept(scope, name, Draws(made, other))
    if name in PARTS:
        return _kept(scope, name, Part(f"{module}.{name}", PARTS[name], made, other))
    operation = wanted(name)
    if operation is not None:
        return _kept(scope, name, made(operation))
    for place in (npx, np):
        if hasattr(place, name):
            return getattr(place, name)
    raise unknown_attribute(module, name, (*TABLE, *known()))


def array(source_array: Any, ctx: Any = None, dtype: Any = None) -> Any:
    """An array of what is given: of float32 unless that is an array of gemel's, or `dtype` says."""
    from gemel import np

    if dtype is None:
        dtype = source_array.dtype if isinstance(source_array, np.ndarray) else "float32"
    return np.array(source_array, dtype=dtype, ctx=ctx)


def save(fname: Any, data: Any) -> None:
    """Write arrays, in a dictionary or a list, to a file of MXNet's. One alone is a list of one."""
    from gemel import np, npx

    npx.save(fname, [data] if isinstance(data, np.ndarray) else data)


def load_frombuffer(buf: bytes) -> Any:
    """What is in the bytes of such a file."""
    from gemel.legacy.ndarray import as_nd
    from gemel.npx import serialize

    return as_nd(serialize.read("in memory", buf, None))


#: Functions of `gemel.ndarray` that are its own.
OWN = {"save": save, "load_frombuffer": load_frombuffer}


def arrays(name: str, scope: dict[str, Any]) -> Any:
    """What `gemel.ndarray` has under a name."""
    if name in _hiding["gemel.ndarray"]:
        return _hiding["gemel.ndarray"][name]
    from gemel.legacy.ndarray import NDArray, as_nd, giving

    if name == "NDArray":
        return _kept(scope, name, NDArray)
    if name == "array":
        return _kept(scope, name, lambda *given, **keywords: as_nd(array(*given, **keywords)))
    if name in OWN:
        return _kept(scope, name, OWN[name])
    found = attribute(name, "gemel.ndarray", scope, giving, giving)
    kept = name in scope or name in _hiding["gemel.ndarray"]
    if kept or isinstance(found, (type, ModuleType)) or not callable(found):
        return found
    return _kept(scope, name, giving(found))


def method(array: Any, name: str) -> Any:
    """The method of arrays and symbols that an operation of MXNet 1's is, as in `x.slice_axis`."""
    from gemel.legacy.ndarray import giving

    apply = giving(find(name))
    return lambda *inputs, **settings: apply(array, *inputs, **settings)
