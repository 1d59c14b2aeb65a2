"""Trainer: one step of an optimizer over all parameters, as one program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import np
from gemel import optimizer as optimizers
from gemel.errors import GemelError, GradientError, ParameterFileError, unknown_name
from gemel.gluon.parameter import Parameter
from gemel.npx import serialize

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gemel.np import ndarray
    from gemel.optimizer import Optimizer

_STORES = ("device", "local")


class Trainer:
    """Updates `params` with an optimizer.

    `params` are a network's `collect_params()` or a list; `optimizer` is a name or an `Optimizer`,
    `optimizer_params` its settings. `kvstore` says how gradients of several devices meet; with one
    device ("device", "local" or None) they need not.
    """

    def __init__(
        self,
        params: Any,
        optimizer: str | Optimizer,
        optimizer_params: dict[str, Any] | None = None,
        kvstore: Any = "device",
        compression_params: dict[str, Any] | None = None,
        update_on_kvstore: bool | None = None,
    ) -> None:
        self._params = _distinct(params)
        if kvstore is not None and kvstore not in _STORES:
            raise unknown_name("kvstore", kvstore, _STORES)
        self._optimizer = _optimizer(optimizer, optimizer_params)
        self._optimizer.param_dict = dict(enumerate(self._params))
        self._scale = self._optimizer.rescale_grad
        self._updater = optimizers.get_updater(self._optimizer)

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer."""
        return self._optimizer

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return self._optimizer.learning_rate

    def set_learning_rate(self, learning_rate: float) -> None:
        """Change the learning rate; nothing is compiled again."""
        self._optimizer.set_learning_rate(learning_rate)

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Bring the gradients together and update every parameter, gradients over `batch_size`.

        Raises `GradientError` for a parameter whose gradient backward has not written since the
        last step; `ignore_stale_grad` leaves such parameters as they are.
        """
        self.allreduce_grads()
        self.update(batch_size, ignore_stale_grad)

    def allreduce_grads(self) -> None:
        """Sum the gradients over devices. On one device there is nothing to do."""

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """The second half of `step`: update every parameter from its gradient."""
        chosen = self._chosen(ignore_stale_grad)
        if not chosen:
            return
        parameters = [self._params[position] for position in chosen]
        weights = [parameter.array() for parameter in parameters]
        self._optimizer.rescale_grad = self._scale / batch_size
        self._updater(chosen, [weight.grad for weight in weights], weights)
        for parameter in parameters:
            parameter._mark_used()

    def _chosen(self, ignore_stale: bool) -> tuple[int, ...]:
        """The positions of the parameters to update."""
        chosen = []
        for position, parameter in enumerate(self._params):
            if parameter.grad_req == "null":
                continue
            if parameter.has_fresh_grad:
                chosen.append(position)
            elif not ignore_stale:
                parameter.array()  # raises, saying what to do, if there is none
                raise GradientError(
                    f"step: backward has not written the gradient of parameter {parameter.name} "
                    "since the last step, so it had no part in the loss; if that is meant, call "
                    "step(batch_size, ignore_stale_grad=True) or set its grad_req to 'null'"
                )
        return tuple(chosen)

    def save_states(self, filename: Any) -> None:
        """Write the optimizer's states and step counts to `filename`."""
        counts = self._optimizer._index_update_count
        known = [counts.get(position, 0) for position in range(len(self._params))]
        arrays: dict[str, ndarray] = {self._kind: np.array(known, dtype="int64")}
        for position, kept in self._updater.arrays().items():
            arrays.update({f"{position}.{number}": state for number, state in enumerate(kept)})
        serialize.save(filename, arrays)

    def load_states(self, filename: Any) -> None:
        """Read what `save_states` wrote. Raises `ParameterFileError`, changing nothing, if it
        belongs to another optimizer or other parameters.
        """
        arrays = serialize.load_named(filename)
        counts = arrays.pop(self._kind, None)
        if counts is None or counts.shape != (len(self._params),):
            raise ParameterFileError(
                f"{filename} does not hold the states of {self._kind.removeprefix('optimizer.')} "
                f"over {len(self._params)} parameters; no state was changed"
            )
        states: dict[int, list[ndarray]] = {}
        for name, array in arrays.items():
            states.setdefault(self._position(filename, name, array), []).append(array)
        self._updater.restore(states)
        known = [int(count) for count in counts.tolist()]
        self._optimizer._index_update_count.update(enumerate(known))
        self._optimizer.num_update = max(known, default=0)

    @property
    def _kind(self) -> str:
        return f"optimizer.{type(self._optimizer).__name__.lower()}"

    def _position(self, filename: Any, name: str, array: ndarray) -> int:
        """Which parameter a saved state belongs to."""
        place, _, number = name.partition(".")
        if place.isdecimal() and number.isdecimal() and int(place) < len(self._params):
            parameter = self._params[int(place)]
            if not parameter.is_shape_known or tuple(array.shape) == parameter.shape:
                return int(place)
        raise ParameterFileError(
            f"{filename}: state {name} of shape {tuple(array.shape)} belongs to no parameter here; "
            "no state was changed"
        )


def _distinct(params: Any) -> list[Parameter]:
    """The parameters in a dictionary or list, each once."""
    values: Iterable[Any] = params.values() if isinstance(params, dict) else params
    found: dict[int, Parameter] = {}
    for value in values:
        if not isinstance(value, Parameter):
            raise GemelError(
                f"Trainer: {type(value).__name__} is no Parameter; pass net.collect_params() or a "
                "list of parameters"
            )
        found[id(value)] = value
    return list(found.values())


def _optimizer(given: str | Optimizer, settings: dict[str, Any] | None) -> Optimizer:
    if settings and not isinstance(given, str):
        raise GemelError(
            "Trainer: optimizer_params go with an optimizer's name; the optimizer given already "
            "has its settings"
        )
    return optimizers.create(given, **(settings or {}))
