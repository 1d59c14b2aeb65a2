"""Modules that offer the operations under MXNet's names: `gemel.ndarray` and `gemel.symbol`."""

from __future__ import annotations

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


#: What MXNet 1 calls the settings of random numbers.
DRAWN = {"shape": "size", "alpha": "shape", "beta": "scale", "k": "n"}


class Draws:
    """`random`: the functions of `np.random`, also with the keywords MXNet 1's have."""

    def __init__(self, made: Callable[[Any], Any]) -> None:
        self._made = made

    def __getattr__(self, name: str) -> Any:
        from gemel import np

        plain, sample = wanted(f"_random_{name}"), wanted(f"_sample_{name}")
        function = getattr(np.random, name, plain) if plain else getattr(np.random, name)

        def draw(*inputs: Any, **keywords: Any) -> Any:
            arrays = any(isinstance(each, np.ndarray) for each in (*inputs, *keywords.values()))
            if sample is not None and arrays and "size" not in keywords:
                return sample(*inputs, **keywords)
            if plain is function:  # what NumPy does not have
                return plain(*inputs, **keywords)
            if "size" not in keywords:
                keywords = {DRAWN.get(key, key): value for key, value in keywords.items()}
            return function(*inputs, **keywords)

        draw.__name__, draw.__doc__ = name, function.__doc__
        return self._made(draw)


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
    from gemel import np, npx

    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    modules = {"np": np, "npx": npx}
    if name in modules:
        return modules[name]
    if name == "random":
        return scope.setdefault(name, Draws(other))
    if name in PARTS:
        return scope.setdefault(name, Part(f"{module}.{name}", PARTS[name], made, other))
    operation = wanted(name)
    if operation is not None:
        return scope.setdefault(name, made(operation))
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


def arrays(name: str, scope: dict[str, Any]) -> Any:
    """What `gemel.ndarray` has under a name."""
    from gemel.legacy.ndarray import NDArray, as_nd, giving

    if name == "NDArray":
        return scope.setdefault(name, NDArray)
    if name == "array":
        return scope.setdefault(name, lambda *given, **keywords: as_nd(array(*given, **keywords)))
    found = attribute(name, "gemel.ndarray", scope, giving, giving)
    if name in scope or isinstance(found, (type, ModuleType)) or not callable(found):
        return found
    return scope.setdefault(name, giving(found))


def method(array: Any, name: str) -> Any:
    """The method of arrays and symbols that an operation of MXNet 1's is, as in `x.slice_axis`."""
    from gemel.legacy.ndarray import giving

    apply = giving(find(name))
    return lambda *inputs, **settings: apply(array, *inputs, **settings)
