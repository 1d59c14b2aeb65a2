"""Optimizers: how a parameter moves along its gradient.

An optimizer's `advance` is a pure function over arrays. It is traced once for all parameters that
are updated together, and runs as one in-place program. Rates that change between steps are run-time
values of that program.
"""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any, TypeVar

from gemel.elsewhere import module_elsewhere
from gemel.errors import check_class, unknown_name
from gemel.optimizer.adam import AdaBelief, Adam, Adamax, AdamW, Nadam
from gemel.optimizer.adaptive import FTML, AdaDelta, AdaGrad, Ftrl, RMSProp
from gemel.optimizer.base import Optimizer
from gemel.optimizer.layerwise import LAMB, LANS, LARS
from gemel.optimizer.sgd import DCASGD, NAG, SGD, SGLD, Signum, Test
from gemel.optimizer.updater import Updater, get_updater

__all__ = [
    "DCASGD",
    "FTML",
    "LAMB",
    "LANS",
    "LARS",
    "NAG",
    "SGD",
    "SGLD",
    "AdaBelief",
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Nadam",
    "Optimizer",
    "RMSProp",
    "Signum",
    "Test",
    "Updater",
    "create",
    "get_updater",
    "register",
]

_Kind = TypeVar("_Kind", bound=type[Optimizer])

_BY_NAME: dict[str, type[Optimizer]] = {
    name.lower(): kind
    for name, kind in list(globals().items())
    if isinstance(kind, type) and issubclass(kind, Optimizer) and kind is not Optimizer
}


def register(klass: _Kind) -> _Kind:
    """Register an optimizer class (a decorator): `create` and `Trainer` find it by its name in
    lower case."""
    check_class("optimizer.register", klass)
    name = klass.__name__.lower()
    if _BY_NAME.get(name, klass).__qualname__ != klass.__qualname__:
        warnings.warn(f"the optimizer {name} is replaced by {klass.__module__}", stacklevel=2)
    _BY_NAME[name] = klass
    return klass


def create(name: str | Optimizer, **settings: Any) -> Optimizer:
    """Create an optimizer by its name, e.g. ``create("sgd", learning_rate=0.1, momentum=0.9)``.

    Raises `UnknownNameError`, which suggests the nearest name.
    """
    if isinstance(name, Optimizer):
        return name
    if not isinstance(name, str) or name.lower() not in _BY_NAME:
        raise unknown_name("optimizer", name, _BY_NAME)
    return _BY_NAME[name.lower()](**settings)


Optimizer.register = staticmethod(register)  # type: ignore[attr-defined] # MXNet's other spellings
Optimizer.create_optimizer = staticmethod(create)  # type: ignore[attr-defined]


def __getattr__(name: str) -> ModuleType:
    return module_elsewhere(__name__, name, __all__)
