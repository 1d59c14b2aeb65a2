"""Modules that offer the operations under MXNet's names: `gemel.ndarray` and `gemel.symbol`."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from gemel import np, npx
from gemel.errors import ArgumentError, ShapeError, unknown_attribute
from gemel.legacy.declare import TABLE, find, known, wanted
from gemel.legacy.draws import Draws
from gemel.legacy.ndarray import NDArray, as_nd, giving
from gemel.npx import serialize

#: Submodules, and the prefix of their operations' names.
PARTS = {"contrib": "_contrib_", "linalg": "_linalg_"}


class Part(ModuleType):
    """`contrib` and `linalg`: the operations whose names have one prefix."""

    def __init__(
        self,
        name: str,
        prefix: str,
        made: Callable[[Any], Any],
        other: Callable[[Any], Any],
    ) -> None:
        super().__init__(name, type(self).__doc__)
        self._prefix = prefix
        self._made = made
        self._other = other

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python looks for optional attributes of modules
            raise unknown_attribute(self.__name__, name, ())
        operation = wanted(self._prefix + name)
        if operation is not None:
            return self._made(operation)
        places = (np.linalg, npx) if self._prefix == "_linalg_" else (npx, np.linalg)
        for place in places if not name.startswith("_") else ():
            if hasattr(place, name):
                return self._other(getattr(place, name))
        raise unknown_attribute(self.__name__, name, dir(self))

    def __dir__(self) -> list[str]:
        own = (name for name in known() if name.startswith(self._prefix))
        names = (name.removeprefix(self._prefix) for name in own)
        return sorted({*names, *dir(np.linalg), *dir(npx)})


#: Attributes of the modules with names of Python's builtins, kept out of the modules' globals.
_hiding: dict[str, dict[str, Any]] = {"gemel.ndarray": {}, "gemel.symbol": {}}


def _kept(scope: dict[str, Any], name: str, found: Any) -> Any:
    """Cache an attribute of a module, among the module's globals if that is harmless.

    `max` and `slice` are not harmless: they would hide Python's builtins from the module's code.
    """
    names = _hiding[scope["__name__"]] if hasattr(builtins, name) else scope
    return names.setdefault(name, found)


def attribute(
    name: str,
    module: str,
    scope: dict[str, Any],
    made: Callable[[Any], Any],
    other: Callable[[Any], Any],
    places: tuple[Any, ...] = (npx, np),
) -> Any:
    """An attribute of such a module: `np`, `npx`, `random`, an operation of MXNet, or a function of
    one of `places`. Raises `AttributeError`, with a suggestion.
    """
    if name in _hiding[module]:
        return _hiding[module][name]
    if name.startswith("__"):  # Python looks for optional attributes of modules
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    modules = {"np": np, "npx": npx}
    if name in modules:
        return modules[name]
    if name == "random":
        return _kept(scope, name, Draws(f"{module}.{name}", made, other))
    if name in PARTS:
        return _kept(scope, name, Part(f"{module}.{name}", PARTS[name], made, other))
    operation = wanted(name)
    if operation is not None:
        return _kept(scope, name, made(operation))
    for place in places:
        if hasattr(place, name):
            return getattr(place, name)
    raise unknown_attribute(module, name, (*TABLE, *known()))


def directory(*own: str, places: tuple[Any, ...] = (npx, np)) -> list[str]:
    """The names for `dir` of such a module: its `own`, MXNet's operations, those of `places`."""
    offered = (name for name in known() if not name.startswith("_"))
    others = (name for place in places for name in dir(place))
    return sorted({*own, *PARTS, "np", "npx", "random", *offered, *others})


def array(source_array: Any, ctx: Any = None, dtype: Any = None) -> Any:
    """An array from `source_array`: of `dtype`, or the dtype of a gemel array, or float32."""
    if dtype is None:
        dtype = source_array.dtype if isinstance(source_array, np.ndarray) else "float32"
    return np.array(source_array, dtype=dtype, ctx=ctx)


def save(fname: Any, data: Any) -> None:
    """Write arrays, in a dictionary or list, to an MXNet file. One array is a list of one."""
    npx.save(fname, [data] if isinstance(data, np.ndarray) else data)


def load_frombuffer(buf: bytes) -> Any:
    """The arrays in the bytes of such a file."""
    return as_nd(serialize.read("in memory", buf, None))


def onehot_encode(indices: Any, out: Any) -> Any:
    """Write into `out` (N, classes) a 1 in each row, at the position that `indices` (N,) has for
    it, and 0 elsewhere; returns `out`."""
    if len(out.shape) != 2 or tuple(indices.shape) != tuple(out.shape[:1]):
        raise ShapeError(
            f"onehot_encode: indices {list(indices.shape)} must be (N,), and out "
            f"{list(out.shape)} (N, classes)"
        )
    out[...] = npx.one_hot(indices, out.shape[1], dtype=out.dtype)
    return out


def imdecode(
    str_img: Any,
    clip_rect: tuple[int, int, int, int] = (0, 0, 0, 0),
    out: Any = None,
    index: int = 0,
    channels: int = 3,
    mean: Any = None,
) -> Any:
    """The picture in a file's bytes as float32 (channels, H, W), less `mean`; `image.imdecode` has
    the newer form.

    `clip_rect` (x0, y0, x1, y1) is the part to keep. The result is written into `out`, or into
    ``out[index]`` if that has four axes. Raises `DataFileError` for what is no picture.
    """
    if channels not in (1, 3):
        raise ArgumentError(f"imdecode: channels={channels!r} must be 1 or 3")
    left, top, right, bottom = clip_rect
    picture = import_module("gemel.image").imdecode(str_img, flag=int(channels == 3))
    if right > left or bottom > top:
        picture = npx.image.crop(picture, left, top, right - left, bottom - top)
    found = picture.transpose(2, 0, 1).astype("float32")
    found = found if mean is None else found - mean
    if out is None:
        return as_nd(found)
    (out if len(out.shape) == 3 else out[index : index + 1])[...] = found
    return out


#: Functions that only `gemel.ndarray` has.
OWN = {
    "imdecode": imdecode,
    "load_frombuffer": load_frombuffer,
    "onehot_encode": onehot_encode,
    "save": save,
}


def arrays(name: str, scope: dict[str, Any]) -> Any:
    """An attribute of `gemel.ndarray`."""
    if name in _hiding["gemel.ndarray"]:
        return _hiding["gemel.ndarray"][name]
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
    """An operation of MXNet 1 as a method of an array or symbol, as in `x.slice_axis`."""
    apply = giving(find(name))
    return lambda *inputs, **settings: apply(array, *inputs, **settings)
