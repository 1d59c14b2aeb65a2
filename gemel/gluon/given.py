"""The arguments of a `Trainer`: parameters, an optimizer and the size of a batch, in the forms that
users have."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

from gemel import kvstore as stores  # `kvstore` is also the name of an argument
from gemel import optimizer as optimizers
from gemel.config import RESTARTS
from gemel.errors import ArgumentError, GemelError, WorkersError
from gemel.gluon.parameter import Parameter
from gemel.ranges import check_flag

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


def store_of(kvstore: Any, compression: Any, updates: bool | None) -> Any:
    """The store for a trainer's `kvstore`, which compresses gradients if there are settings for it;
    None for None. `updates` is whether it shall update the parameters."""
    store = stores.create(kvstore) if isinstance(kvstore, str) else kvstore
    if store is not None and (isinstance(store, type) or not hasattr(store, "pushpull")):
        raise GemelError(
            f"Trainer: kvstore is a {type(kvstore).__name__}; it must be a name or a store"
        )
    check_flag("Trainer", "update_on_kvstore", updates)
    if updates and not isinstance(store, stores.KVStore):
        raise GemelError(
            "Trainer: update_on_kvstore=True needs a kvstore of gemel's, such as 'device'"
        )
    if (
        isinstance(store, stores.KVStore)
        and store.keeps_parameters
        and updates is False
        and RESTARTS.read()
    ):
        raise WorkersError(
            f"Trainer: worker {store.rank} replaces one that died, but with "
            "update_on_kvstore=False the servers have no parameters for it, only sums of "
            "gradients; let the servers update the parameters, or start the job again from a "
            "checkpoint"
        )
    if compression is not None:
        if store is None or not hasattr(store, "set_gradient_compression"):
            raise GemelError(
                f"Trainer: compression_params need a store that compresses gradients, but kvstore "
                f"is {'None' if store is None else type(store).__name__}; leave them out, or give "
                "kvstore='device'"
            )
        store.set_gradient_compression(compression)
    return store


def check_step(name: str, batch_size: Any, ignore_stale: Any) -> None:
    """Raise `ArgumentError` for something by which gradients cannot be divided, and `OperandError`
    for an `ignore_stale_grad` that is neither true nor false."""
    check_flag(name, "ignore_stale_grad", ignore_stale)
    known = isinstance(batch_size, Real)
    if not (batch_size > 0 if known else hasattr(batch_size, "__array__")):
        raise ArgumentError(
            f"{name}: batch_size must be a number above 0, not {batch_size!r}, because "
            "gradients are divided by it"
        )


__all__ = ["check_step", "distinct", "optimizer_of", "store_of"]
