"""The arguments of a `Trainer`: parameters and an optimizer, in the forms that users have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gemel import optimizer as optimizers
from gemel.errors import GemelError
from gemel.gluon.parameter import Parameter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gemel.optimizer import Optimizer


def distinct(params: Any) -> list[Parameter]:
    """The parameters in a dictionary or list, without repetitions."""
    values: Iterable[Any] = params.values() if isinstance(params, dict) else params
    if isinstance(values, Parameter) or not hasattr(values, "__iter__"):
        values = [params]
    found: dict[int, Parameter] = {}
    for value in values:
        if not isinstance(value, Parameter):
            raise GemelError(
                f"Trainer: {type(value).__name__} is not a Parameter; pass net.collect_params() "
                "or a list of parameters"
            )
        found[id(value)] = value
    return list(found.values())


def optimizer_of(given: str | Optimizer, settings: dict[str, Any] | None) -> Optimizer:
    """The given optimizer, or a new one of this name with these settings."""
    if isinstance(given, type) and issubclass(given, optimizers.Optimizer):
        raise GemelError(
            f"Trainer: the optimizer is the class {given.__name__}; give its name or an "
            f"instance, for example {given.__name__}(learning_rate=0.1)"
        )
    if settings and not isinstance(given, str):
        raise GemelError(
            "Trainer: optimizer_params are only for an optimizer given by name; this optimizer "
            "already has its settings"
        )
    if not isinstance(settings or {}, Mapping):
        raise GemelError(
            f"Trainer: optimizer_params is {settings!r}; give a dictionary of the optimizer's "
            "settings, for example {'learning_rate': 0.1}"
        )
    return optimizers.create(given, **(settings or {}))


__all__ = ["distinct", "optimizer_of"]
