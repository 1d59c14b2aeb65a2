"""Files of optimizer states, by the position of the parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemel import np
from gemel.errors import ParameterFileError
from gemel.npx import serialize

#: What an estimator adds to the same file: its position in the data, and its best value so far.
ADDED = ("position", "best")


def save_states(filename: Any, updater: Any, keys: Sequence[Any], scaler: Any = None) -> None:
    """Write an updater's states, how often each key was updated, the learning rate, and the state
    of a `LossScaler`."""
    rule = updater.optimizer
    counts = [rule._index_update_count.get(key, 0) for key in keys]
    arrays: dict[str, Any] = {_kind(rule): np.array(counts, dtype="int64")}
    if rule.lr_scheduler is None:
        arrays["learning_rate"] = np.array(rule.lr, dtype="float64")
    if scaler is not None and scaler.dynamic:
        arrays["loss_scale"] = np.array(scaler.state(), dtype="float64")
    places = {key: position for position, key in enumerate(keys)}
    for key, states in updater.arrays().items():
        arrays.update({f"{places[key]}.{number}": s for number, s in enumerate(states)})
    serialize.save(filename, arrays)


def load_states(
    filename: Any,
    updaters: Sequence[Any],
    keys: Sequence[Any],
    shapes: Sequence[Any],
    scaler: Any = None,
) -> None:
    """Read what `save_states` wrote into one updater, or one for each device, and into a scaler
    that adapts itself.

    Raises `ParameterFileError`, without changing anything, if the states are of another optimizer
    or do not fit the values' shapes (None: not known yet).
    """
    rule = updaters[0].optimizer
    found = serialize.load_named(filename)
    arrays = {n: array for n, array in found.items() if n.partition(".")[0] not in ADDED}
    counts = arrays.pop(_kind(rule), None)
    rate = arrays.pop("learning_rate", None)
    scale = arrays.pop("loss_scale", None)
    if counts is None or counts.shape != (len(keys),):
        raise ParameterFileError(
            f"{filename} does not hold the states of {type(rule).__name__.lower()} over "
            f"{len(keys)} parameters; no state was changed"
        )
    updates = counts.tolist()
    if any(type(n) is not int or n < 0 for n in updates):
        raise ParameterFileError(
            f"{filename}: {updates} are no numbers of updates; no state was changed"
        )
    states: dict[Any, list[Any]] = {}
    for name, array in arrays.items():
        place, _, number = name.partition(".")
        fits = place.isdecimal() and number.isdecimal() and int(place) < len(keys)
        if not (fits and shapes[int(place)] in (None, tuple(array.shape))):
            raise ParameterFileError(
                f"{filename}: state {name} of shape {tuple(array.shape)} does not belong to any "
                "parameter here; no state was changed"
            )
        states.setdefault(keys[int(place)], []).append(array)
    for updater in updaters:
        updater.restore({key: [array.copy() for array in each] for key, each in states.items()})
    known = {key: n for key, n in zip(keys, updates, strict=True) if n}
    for counted in rule._all_index_update_counts.values():
        counted.clear()
        counted.update(known)
    rule.num_update = max(known.values(), default=rule.begin_num_update)
    if rate is not None and rule.lr_scheduler is None:
        rule.lr = rate.item()
    if scaler is not None and scaler.dynamic and scale is not None:
        scaler.set_state(scale.tolist())


def _kind(rule: Any) -> str:
    return f"optimizer.{type(rule).__name__.lower()}"


__all__ = ["load_states", "save_states"]
