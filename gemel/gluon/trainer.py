"""Trainer: one step of an optimizer over all parameters, as one program on each device."""

from __future__ import annotations

from functools import partial
from itertools import compress
from operator import is_
from typing import TYPE_CHECKING, Any
from weakref import ref

from gemel import _core, autograd, kvstore
from gemel import optimizer as optimizers
from gemel.errors import DeviceError, GemelError, GradientError
from gemel.gluon.parameter import Parameter
from gemel.tape import let_travel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gemel.device import Device
    from gemel.optimizer import Optimizer

#: The positions of the parameters to update: their gradients on each device, which are fresh.
Chosen = dict[int, tuple[list[Any], list[bool]]]

# `kvstore` is an argument's name, as users write it; this is the module.
stores = kvstore


class Trainer:
    """Updates `params` with an optimizer.

    `params` are a network's `collect_params()` or a list; `optimizer` is a name or an `Optimizer`,
    `optimizer_params` its settings. Where the parameters live on several devices, each computes
    the gradients of its part of the batch; `kvstore` says where these are added up: ``"device"``,
    ``"local"`` (on the CPU) or a `KVStore`; None leaves every device to itself.
    With ``"dist_sync"`` several processes train together, each with its part of the batch: all
    begin with the values of worker 0, and gradients are added up over all devices of all workers.
    `compression_params` are those of `KVStore.set_gradient_compression`. Each device then updates
    its own replica, by the same sum to the same bits; with `update_on_kvstore` the store updates a
    value of its own, and every device gets that; parameter servers do so unless it is False.
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
        self._optimizer = _optimizer(optimizer, optimizer_params)
        self._optimizer.param_dict = dict(enumerate(self._params))
        self._scale = self._optimizer.rescale_grad
        self._store = stores.create(kvstore) if isinstance(kvstore, str) else kvstore
        if self._store is not None and not hasattr(self._store, "pushpull"):
            raise GemelError(
                f"Trainer: kvstore is a {type(kvstore).__name__}, no name and no store"
            )
        if compression_params is not None and self._store is not None:
            self._store.set_gradient_compression(compression_params)
        if update_on_kvstore and not isinstance(self._store, stores.KVStore):
            raise GemelError("Trainer: update_on_kvstore=True needs a kvstore, such as 'device'")
        #: Whether the store keeps the parameters, as servers do.
        self._kept = getattr(self._store, "keeps_parameters", False)
        self._wants_store = self._kept if update_on_kvstore is None else update_on_kvstore
        #: Whether other processes train, too.
        self._together = self._kept or getattr(self._store, "num_workers", 1) > 1
        #: Whether the store updates the parameters: with one replica there is nothing to gain.
        self._on_store = False
        self._devices: list[Device] = []
        self._updaters = [optimizers.get_updater(self._optimizer)]
        #: The parameters' arrays when their devices were last looked at.
        self._seen: list[tuple[Any, ...]] = []
        #: Versions of the first replicas when the store last gave them its values.
        self._pulled: dict[int, int] = {}
        if self._together:
            for position, parameter in enumerate(self._params):
                if parameter._arrays:
                    self._begin_alike(position, parameter)
                parameter._followers.append(partial(_made, ref(self), position))

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer."""
        return self._optimizer

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return self._optimizer.learning_rate

    def set_learning_rate(self, lr: float) -> None:
        """Change the learning rate; nothing is compiled again."""
        self._optimizer.set_learning_rate(lr)

    # ---- a step

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Bring the gradients together and update every parameter, gradients over `batch_size`.

        That is what the sum of all gradients is divided by, so the size of the whole batch: the
        parts of all devices and, as in MXNet, of all workers are to be counted by the caller.
        Everything is issued, nothing waits. The gradients of the devices stay as they are; see
        `allreduce_grads`. Raises `GradientError` for a parameter whose gradient backward has not
        written since the last step, on all its devices; `ignore_stale_grad` leaves such gradients
        out, and parameters that have no other as they are.
        """
        self._look()
        chosen = self._chosen(ignore_stale_grad)
        if not chosen:
            return
        if self._on_store:
            self._by_store(chosen, batch_size)
            return
        if self._alone:
            self._apply(chosen, batch_size, self._own_gradients(chosen))
        else:
            self._apply(chosen, batch_size, self._totals(chosen))

    def allreduce_grads(self) -> None:
        """Replace the gradients on each device by the sum over all; `update` comes after this.

        In between gradients can be changed, clipped for example. On one device there is nothing to
        do. Raises `GemelError` where the store updates the parameters.
        """
        self._look()
        self._refuse_on_store("allreduce_grads")
        if self._alone:
            return
        chosen = self._chosen(ignore_stale=True)
        totals = self._totals(chosen)
        with autograd.pause():
            for row, own in zip(totals, self._own_gradients(chosen), strict=True):
                for total, gradient in zip(row, own, strict=True):
                    if total is not gradient:
                        total.copyto(gradient)

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """The second half of `step`: update every parameter from its gradient on each device."""
        self._look()
        self._refuse_on_store("update")
        chosen = self._chosen(ignore_stale_grad)
        if chosen:
            self._apply(chosen, batch_size, self._own_gradients(chosen))

    @property
    def _alone(self) -> bool:
        """Whether there is nobody to add gradients up with."""
        return self._store is None or (len(self._devices) == 1 and not self._together)

    def _begin_alike(self, position: int, parameter: Parameter) -> None:
        """All workers begin with the values of the first; its gradients go to all of them."""
        for array in parameter._arrays:
            let_travel(array)
        self._store.broadcast(position, parameter._arrays[0], out=list(parameter._arrays))

    def _refuse_on_store(self, name: str) -> None:
        if self._on_store:
            raise GemelError(
                f"{name}: with update_on_kvstore=True gradients meet in the store, which updates "
                "the parameters; create the Trainer with update_on_kvstore=False"
            )

    def _chosen(self, ignore_stale: bool) -> Chosen:
        chosen = {}
        for position, parameter in enumerate(self._params):
            if parameter._grad_req == "null":
                continue
            grads, fresh = parameter.fresh_grads()
            if True in fresh and (ignore_stale or False not in fresh):
                chosen[position] = grads, fresh
            elif not ignore_stale:
                parameter.arrays()  # raises, saying what to do, if there are none
                place = f" on {self._devices[fresh.index(False)]}" if len(fresh) > 1 else ""
                raise GradientError(
                    f"step: backward has not written the gradient of parameter {parameter.name}"
                    f"{place} since the last step, so it had no part in the loss; if that is "
                    "meant, call step(batch_size, ignore_stale_grad=True) or set its grad_req to "
                    "'null'"
                )
        return chosen

    def _own_gradients(self, chosen: Chosen) -> list[list[Any]]:
        """For each device its own gradients."""
        rows = [grads for grads, _ in chosen.values()]
        return [[grads[place] for grads in rows] for place in range(len(self._devices))]

    def _totals(self, chosen: Chosen) -> list[list[Any]]:
        """For each device the sums of the gradients over all devices that have fresh ones."""
        values = [list(compress(grads, fresh)) for grads, fresh in chosen.values()]
        if isinstance(self._store, stores.KVStore):
            return self._store.totals(list(chosen), values, self._devices)
        for position, gradients in zip(chosen, values, strict=True):
            self._store.pushpull(position, gradients, out=gradients, priority=-position)
        return [
            [gradients[0].as_in_ctx(device) if len(gradients) <= place else gradients[place]
             for gradients in values]
            for place, device in enumerate(self._devices)
        ]  # fmt: skip

    def _apply(self, chosen: Chosen, batch_size: float, gradients: list[list[Any]]) -> None:
        """Update the replicas on each device by the gradients there."""
        self._optimizer.rescale_grad = self._scale / batch_size
        parameters = [self._params[position] for position in chosen]
        state = _core.random_state()
        for place, updater in enumerate(self._updaters):
            if place and _core.random_state() != state:
                _core.set_random_state(*state)  # every replica gets the same random numbers
            weights = [parameter._arrays[place] for parameter in parameters]
            updater(list(chosen), gradients[place], weights)
        for parameter, (grads, _) in zip(parameters, chosen.values(), strict=True):
            parameter._mark_used(grads)

    def _by_store(self, chosen: Chosen, batch_size: float) -> None:
        """Have the store update its values, and take them over."""
        self._optimizer.rescale_grad = self._scale / batch_size
        for position in reversed(chosen):
            parameter = self._params[position]
            if self._pulled.get(position) != parameter._arrays[0].version:
                self._store.init(position, parameter._arrays[0])  # new, or written by somebody
            grads, fresh = chosen[position]
            self._store.push(position, list(compress(grads, fresh)), priority=-position)
            self._store.pull(position, list(parameter._arrays), priority=-position)
            self._pulled[position] = parameter._arrays[0].version
            parameter._mark_used(grads)

    # ---- where the parameters live

    def _look(self) -> None:
        """Find the devices the parameters live on. Raises `DeviceError` where they disagree."""
        now = [parameter._arrays for parameter in self._params]
        if len(now) == len(self._seen) and all(map(is_, now, self._seen)):
            return
        living = [p for p in self._params if p._arrays and p.grad_req != "null"]
        for parameter in living[1:]:
            if parameter.homes != living[0].homes:
                here, there = (", ".join(map(str, p.homes)) for p in (living[0], parameter))
                raise DeviceError(
                    f"Trainer: parameter {living[0].name} lives on {here}, but {parameter.name} on "
                    f"{there}; initialize all on the same devices, or move them with reset_ctx"
                )
        devices = living[0].homes if living else self._devices
        if devices != self._devices:
            self._settle(devices)
        self._pulled.clear()
        self._seen = now

    def _settle(self, devices: list[Device]) -> None:
        """Have states and counts for each device."""
        self._devices = devices
        self._on_store = self._wants_store and (len(devices) > 1 or self._together)
        kept = self._updaters[0].arrays() if self._updaters else {}
        if self._on_store:
            self._store.set_optimizer(self._optimizer)
            self._updaters = [] if self._store.updater is None else [self._store.updater]
        else:
            self._updaters = [optimizers.get_updater(self._optimizer) for _ in devices]
        for updater in self._updaters:
            updater.restore({key: [a.copy() for a in arrays] for key, arrays in kept.items()})
        counts = dict(self._optimizer._index_update_count)
        for device in devices:
            self._optimizer._set_current_context(device.code)
            self._optimizer._index_update_count.update(counts)

    # ---- files

    def save_states(self, fname: Any) -> None:
        """Write the optimizer's states, step counts and learning rate to a file.

        The states of all devices are the same; they are written once.
        """
        if not self._updaters:
            self._store.save_optimizer_states(fname)
            return
        stores.save_states(fname, self._updaters[0], range(len(self._params)))

    def load_states(self, fname: Any) -> None:
        """Read what `save_states` wrote, for as many devices as there are now.

        Raises `ParameterFileError`, changing nothing, if it belongs to another optimizer or other
        parameters.
        """
        if not self._updaters:
            self._store.load_optimizer_states(fname)
            return
        shapes = [p.shape if p.is_shape_known else None for p in self._params]
        stores.load_states(fname, self._updaters, range(len(self._params)), shapes)


def _made(trainer: ref[Trainer], position: int, parameter: Parameter) -> None:
    """A parameter has been filled (again): all workers of its trainer take the first's values."""
    found = trainer()
    if found is not None:
        found._begin_alike(position, parameter)


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
