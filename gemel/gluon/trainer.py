"""Trainer: one step of an optimizer over all parameters, as one program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import autograd, compiled, np, optimizer
from gemel.errors import GemelError, GradientError, ParameterFileError, unknown_name
from gemel.gluon.parameter import Parameter
from gemel.npx import serialize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
        self._states: list[list[ndarray] | None] = [None] * len(self._params)
        self._counts = [0] * len(self._params)
        #: The traced programs, by everything that is fixed in them.
        self._programs: dict[tuple[Any, ...], Any] = {}

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
        self._optimizer.num_update = max(self._counts)
        groups, scalars = self._groups(chosen)
        rescale = self._optimizer.rescale_grad / batch_size
        program = self._program(chosen, groups, [decay != 0 for decay in scalars[1::2]])
        weights = [parameter.array() for parameter in parameters]
        arrays = weights + [state for p in chosen for state in self._state(p)]
        program(arrays + [weight.grad for weight in weights], [rescale, *scalars])
        for position, parameter in zip(chosen, parameters, strict=True):
            self._counts[position] += 1
            parameter._mark_used()
        self._optimizer.num_update = max(self._counts)

    def _chosen(self, ignore_stale: bool) -> tuple[int, ...]:
        """The positions of the parameters to update."""
        chosen = []
        for position, parameter in enumerate(self._params):
            if parameter.grad_req == "null":
                continue
            if parameter.has_fresh_grad:
                chosen.append(position)
            elif not ignore_stale:
                parameter.arrays()  # raises, saying what to do, if there is none
                raise GradientError(
                    f"step: backward has not written the gradient of parameter {parameter.name} "
                    "since the last step, so it had no part in the loss; if that is meant, call "
                    "step(batch_size, ignore_stale_grad=True) or set its grad_req to 'null'"
                )
        return tuple(chosen)

    def _groups(self, chosen: tuple[int, ...]) -> tuple[tuple[int, ...], list[float]]:
        """Which parameters share their rates, and for each group the step size and weight decay."""
        rule = self._optimizer
        rate = rule.learning_rate
        groups: dict[tuple[float, float, int], int] = {}
        members = []
        for position in chosen:
            parameter = self._params[position]
            key = (parameter.lr_mult, parameter.wd_mult, self._counts[position])
            members.append(groups.setdefault(key, len(groups)))
        scalars: list[float] = []
        for lr_mult, wd_mult, count in groups:
            scalars += [float(rule.rate(rate * lr_mult, count + 1)), float(rule.wd * wd_mult)]
        return tuple(members), scalars

    def _state(self, position: int) -> list[ndarray]:
        states = self._states[position]
        if states is None:
            with autograd.pause():
                states = self._optimizer.create_states(self._params[position].array())
            self._states[position] = states
        return states

    def _program(self, chosen: tuple[int, ...], groups: tuple[int, ...], decays: list[bool]) -> Any:
        """The program that updates the chosen parameters, traced the first time it is needed."""
        sizes = tuple(len(self._state(position)) for position in chosen)
        key = (chosen, groups, tuple(decays), sizes, self._optimizer.constants())
        program = self._programs.get(key)
        if program is None:
            function = _step_function(self._optimizer, groups, decays, sizes)
            program = self._programs[key] = compiled.Update(function)
        return program

    def save_states(self, filename: Any) -> None:
        """Write the optimizer's states and step counts to `filename`."""
        arrays: dict[str, ndarray] = {self._kind: np.array(self._counts, dtype="int64")}
        for position, states in enumerate(self._states):
            for number, state in enumerate(states or ()):
                arrays[f"{position}.{number}"] = state
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
        states: list[list[ndarray] | None] = [None] * len(self._params)
        for name, array in arrays.items():
            position = self._position(filename, name, array)
            states[position] = [*(states[position] or ()), array]
        self._states = states
        self._counts = [int(count) for count in counts.tolist()]
        self._optimizer.num_update = max(self._counts, default=0)

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


def _step_function(
    rule: Optimizer, groups: tuple[int, ...], decays: list[bool], sizes: tuple[int, ...]
) -> Callable[[list[Any], list[Any]], list[Any]]:
    """One step over many parameters: weights, states, gradients -> new weights, new states.

    The scalars are the gradients' factor, then each group's step size and weight decay.
    """
    count = len(groups)

    def step(arrays: list[Any], scalars: list[Any]) -> list[Any]:
        states = iter(arrays[count : count + sum(sizes)])
        gradients = arrays[count + sum(sizes) :]
        weights, kept = [], []
        for position, group in enumerate(groups):
            weight, new = rule.update(
                arrays[position],
                gradients[position],
                [next(states) for _ in range(sizes[position])],
                learning_rate=scalars[1 + 2 * group],
                weight_decay=scalars[2 + 2 * group] if decays[group] else None,
                rescale=scalars[0],
            )
            weights.append(weight)
            kept += new
        return weights + kept

    return step


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
    return optimizer.create(given, **(settings or {}))
