"""Optimizers: how a parameter moves along its gradient.

An optimizer's `update` is a pure function over arrays. `Trainer` traces it once over all
parameters and runs it as one program in place; rates that change between steps are run-time
values of that program.
"""

from __future__ import annotations

from typing import Any

from gemel.errors import unknown_name
from gemel.optimizer.adam import Adam
from gemel.optimizer.base import Optimizer
from gemel.optimizer.sgd import NAG, SGD
from gemel.optimizer.updater import Updater, get_updater

__all__ = ["NAG", "SGD", "Adam", "Optimizer", "Updater", "create", "get_updater"]

_BY_NAME: dict[str, type[Optimizer]] = {"sgd": SGD, "nag": NAG, "adam": Adam}


def create(name: str | Optimizer, **settings: Any) -> Optimizer:
    """The optimizer of that name, e.g. ``create("sgd", learning_rate=0.1, momentum=0.9)``.

    Raises `UnknownNameError`, which suggests the nearest name.
    """
    if isinstance(name, Optimizer):
        return name
    if not isinstance(name, str) or name.lower() not in _BY_NAME:
        raise unknown_name("optimizer", name, _BY_NAME)
    kind = _BY_NAME[name.lower()]
    for setting in settings:
        known = _settings(kind)
        if setting not in known:
            raise unknown_name(f"setting of {name}", setting, known)
    return kind(**settings)


def _settings(kind: type[Optimizer]) -> list[str]:
    """The keywords an optimizer and its base take."""
    names: list[str] = []
    for cls in (kind, Optimizer):
        code = cls.__init__.__code__
        names += code.co_varnames[1 : code.co_argcount]
    return names
