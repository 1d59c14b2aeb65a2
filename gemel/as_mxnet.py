"""`import gemel.as_mxnet`: from here on `import mxnet` and all its modules mean gemel.

They are the same modules under a second name: `mxnet.gluon.nn` is `gemel.gluon.nn`. An installed
MXNet is ignored. If it has been imported already, that is an error, because a program cannot use
arrays of both. Processes started by `multiprocessing` know the name too.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import gemel
from gemel.elsewhere import ELSEWHERE
from gemel.errors import nearest

NAME = "mxnet"
#: The module of matplotlib that converts plotted values to arrays.
PLOTS = "matplotlib.cbook"
#: Put on the path for spawned processes, which inherit nothing else from this process.
STANDINS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "standins")


def resolve(name: str) -> ModuleType:
    """The gemel module for a name `mxnet...`. Raises `ModuleNotFoundError`."""
    parent, _, last = name.rpartition(".")
    if not parent:
        return gemel
    place = ELSEWHERE.get(name.removeprefix(f"{NAME}."))
    if place is not None:
        return import_module(f"gemel.{place}")
    holder = resolve(parent)
    found = getattr(holder, last, None)
    if isinstance(found, ModuleType):
        return sys.modules.setdefault(found.__name__, found)
    inner = f"{holder.__name__}.{last}"
    try:
        return import_module(inner)
    except ModuleNotFoundError as error:
        if error.name not in (inner, holder.__name__, name):
            raise
    raise _missing(name, holder)


def _missing(name: str, holder: ModuleType) -> ModuleNotFoundError:
    last = name.rpartition(".")[2]
    known = {*dir(holder), *getattr(holder, "__all__", ())}
    hint = nearest(holder.__name__, last, (each for each in known if not each.startswith("_")))
    return ModuleNotFoundError(f"gemel has no module or name {name!r}{hint}", name=name)


class SameModule(Loader):
    """Returns a module that is already loaded, and does not change it."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.spec, self.loader = module.__spec__, module.__loader__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself."""
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec and loader, which the import system has overwritten."""
        module.__spec__, module.__loader__ = self.spec, self.loader


class Finder(MetaPathFinder):
    """Finds `mxnet` and its submodules."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        """A spec for the gemel module of this name; None for other names."""
        if name == PLOTS:
            plot_lists_of_arrays()
        if name != NAME and not name.startswith(NAME + "."):
            return None
        return ModuleSpec(name, SameModule(resolve(name)), is_package=True)


class Missing(MetaPathFinder):
    """The last finder: reports a name that `from mxnet import name` has not found, with the nearest
    one.

    In this case Python looks for a module ``gemel.name``, because the parent module is called
    gemel. If the book's library is not installed, `d2l` is gemel's version of it.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        """Raise for names in gemel, return `gemel.d2l` for `d2l`, and None for others."""
        if name == "d2l":
            return ModuleSpec(name, SameModule(import_module("gemel.d2l")))
        parent, _, last = name.rpartition(".")
        if parent == "gemel" or parent.startswith("gemel."):
            holder = sys.modules.get(parent)
            if holder is not None and not last.startswith("_"):
                raise _missing(NAME + name.removeprefix("gemel"), holder)
        return None


def plot_lists_of_arrays() -> None:
    """Let matplotlib accept lists that mix numbers and arrays of one element, as NumPy did before
    1.24.

    Programs written for MXNet do plot ``[-5, array([0.3])]``, which newer NumPy rejects as
    inhomogeneous. Matplotlib converts lists with `numpy.atleast_1d`; its other calls do not change.
    """
    import numpy

    original = numpy.atleast_1d

    def number(value: Any) -> Any:
        return value.item() if isinstance(value, gemel.np.ndarray) and value.size == 1 else value

    def atleast_1d(*arrays: Any) -> Any:
        try:
            return original(*arrays)
        except ValueError:
            lists = (list, tuple)
            return original(*([*map(number, x)] if isinstance(x, lists) else x for x in arrays))

    numpy.atleast_1d = functools.wraps(original)(atleast_1d)


def install() -> None:
    """Make `mxnet` mean gemel. Raises `ImportError` if MXNet itself has been imported."""
    other = sys.modules.get(NAME)
    if other is gemel:
        return
    if other is not None and getattr(other, "__file__", None) != os.path.join(
        STANDINS, f"{NAME}.py"
    ):
        raise ImportError(
            f"gemel.as_mxnet: MXNet is already imported, from {getattr(other, '__file__', '?')}; "
            "import gemel.as_mxnet first"
        )
    sys.modules[NAME] = gemel
    if PLOTS in sys.modules:
        plot_lists_of_arrays()
    sys.meta_path.insert(0, Finder())
    sys.meta_path.append(Missing())
    if STANDINS not in sys.path:
        sys.path.insert(1, STANDINS)  # before an installed MXNet


install()
