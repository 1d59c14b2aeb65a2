"""Optimizers on servers: described by a name and numbers, never sent as code."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from gemel import autograd, np, optimizer
from gemel.errors import ProtocolError, UnknownNameError, WorldError
from gemel.tracing.nested import flatten

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy

    from gemel.kvstore.server.protocol import Numbers

#: Optimizers that servers refuse: they draw random numbers, which a restart could not repeat.
RANDOM = ("sgld",)
#: Settings that are sent with every push, or that only a worker needs.
_ELSEWHERE = {
    *("lr", "wd", "rescale_grad", "num_update", "lr_scheduler", "idx2name"),
    *("param_dict", "lr_mult", "wd_mult"),
}


def describe(rule: Any) -> dict[str, Any]:
    """The name and settings of an optimizer. Raises `WorldError` if servers cannot have it."""
    name = type(rule).__name__.lower()
    if optimizer._BY_NAME.get(name) is not type(rule) or not type(rule).__module__.startswith(
        "gemel."
    ):
        raise WorldError(
            f"kvstore: {type(rule).__name__} is not an optimizer of gemel.optimizer, and code is "
            "not sent to servers; use one of gemel's optimizers, or update on the workers "
            "(update_on_kvstore=False)"
        )
    if name in RANDOM:
        raise WorldError(
            f"kvstore: {name} draws random numbers, which a restarted server could not repeat; "
            "update on the workers (update_on_kvstore=False)"
        )
    settings = {}
    for setting, value in vars(rule).items():
        if setting[0] == "_" or setting in _ELSEWHERE:
            continue
        if not (value is None or isinstance(value, (bool, int, float, str))):
            raise WorldError(f"kvstore: {name}'s setting {setting}={value!r} is not a number")
        if isinstance(value, float) and not isfinite(value):
            raise WorldError(
                f"kvstore: {name}'s setting {setting}={value!r} is not finite, but servers "
                "accept only finite numbers"
            )
        settings[setting] = value
    return {"name": name, "settings": settings}


def build(description: Mapping[str, Any]) -> Any:
    """Build the described optimizer; raises `ProtocolError` for unknown names or invalid
    numbers."""
    name, settings = description.get("name"), description.get("settings")
    if not isinstance(name, str) or not isinstance(settings, dict) or len(settings) > 64:
        raise ProtocolError("OPTIMIZER: the message must have a name and settings")
    try:
        rule = optimizer.create(name)
    except UnknownNameError as error:
        raise ProtocolError(f"OPTIMIZER: {error}") from None
    for setting, value in settings.items():
        simple = value is None or isinstance(value, (bool, int, float, str))
        known = setting[:1] != "_" and setting in vars(rule) and setting not in _ELSEWHERE
        if not (simple and known) or (isinstance(value, float) and not isfinite(value)):
            raise ProtocolError(f"OPTIMIZER: {name} has no setting {setting!r} with such a value")
        setattr(rule, setting, value)
    return rule


def count_up(rule: Any, key: Any, count: int) -> None:
    """Note how many updates a key has had, as if they were done here: a `Trainer` begins each step
    with the counts of all keys, so that all get the rate of the same step."""
    number = rule._index_update_count[key] = rule.begin_num_update + count
    rule.num_update = max(rule.num_update, number)


def numbers_for(rule: Any, key: Any, count: int) -> Numbers:
    """Learning rate, gradient scale and weight decay for a key's update number `count`."""
    if rule is None:
        return 0.0, 1.0, 0.0
    count_up(rule, key, count)
    rate, decay = rule._mults(key)
    return float(rule.learning_rate * rate), float(rule.rescale_grad), float(rule.wd * decay)


class Updates:
    """An optimizer and the states of all keys of one server."""

    def __init__(self, description: dict[str, Any]) -> None:
        self.description = description
        self._rule = build(description)
        self._updater = optimizer.get_updater(self._rule)

    def __call__(
        self, key: int, gradient: numpy.ndarray[Any, Any], value: Any, numbers: Numbers
    ) -> numpy.ndarray[Any, Any]:
        """The new value of a key."""
        self._rule.lr, self._rule.rescale_grad, self._rule.wd = numbers
        with autograd.pause():
            weight = np.array(value, dtype=value.dtype.name)
            self._updater(key, np.array(gradient, dtype=gradient.dtype.name), weight)
            found: numpy.ndarray[Any, Any] = weight.asnumpy()
        return found

    def states(self) -> tuple[dict[int, int], dict[int, list[Any]]]:
        """The number of updates of each key, and the arrays of its state."""
        arrays = {
            key: [array.asnumpy() for array in found]
            for key, found in self._updater.arrays().items()
        }
        return dict(self._rule._all_index_update_counts[0]), arrays

    def state(self, key: int) -> tuple[int, list[Any]]:
        """The number of updates of a key, and the arrays of its state."""
        counts = self._rule._all_index_update_counts[0]
        found = list(self._updater.waiting.get(key, []))
        flatten(self._updater.states.get(key), found, [])
        return counts.get(key, 0), [array.asnumpy() for array in found]

    def replace(self, key: int, value: Any, count: int, arrays: list[Any]) -> None:
        """Replace the state of a key. Raises `WorldError` if its arrays are not those of a state
        for this value."""
        made: list[Any] = []
        weight = np.array(value, dtype=value.dtype.name)
        flatten(self._rule.create_state_multi_precision(key, weight), made, [])
        wanted = [tuple(array.shape) for array in made]
        given = [array.shape for array in arrays]
        if given not in (wanted, []) or (wanted and count and not given):
            raise WorldError(
                f"kvstore: {type(self._rule).__name__} keeps states of shapes {wanted} for a value "
                f"of shape {value.shape}, but those of shapes {given} were loaded"
            )
        kept, counts = self._updater, self._rule._all_index_update_counts[0]
        for known in (kept.states, kept.waiting, kept.masters, counts):
            known.pop(key, None)
        if given:
            kept.waiting[key] = [np.array(array, dtype=array.dtype.name) for array in arrays]
        if count:
            counts[key] = count
        self._rule.num_update = max(counts.values(), default=self._rule.begin_num_update)

    def restore(self, counts: dict[int, int], arrays: dict[int, list[Any]]) -> None:
        """Restore the result of `states`."""
        self._updater.restore(
            {
                key: [np.array(array, dtype=array.dtype.name) for array in found]
                for key, found in arrays.items()
            }
        )
        begun = self._rule._all_index_update_counts[0]
        begun.clear()
        begun.update(counts)
        self._rule.num_update = max(counts.values(), default=self._rule.begin_num_update)


__all__ = ["RANDOM", "Updates", "build", "count_up", "describe", "numbers_for"]
