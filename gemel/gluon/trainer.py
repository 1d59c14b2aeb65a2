"""Trainer: one step of an optimizer over all parameters, as one program on each device."""

from __future__ import annotations

from functools import partial
from itertools import compress
from operator import is_
from typing import TYPE_CHECKING, Any
from weakref import ref

from gemel import _core, autograd, np
from gemel import kvstore as stores  # `kvstore` is also the name of an argument
from gemel import optimizer as optimizers
from gemel.errors import DeviceError, GemelError, GradientError, OperandError
from gemel.gluon.given import check_step, distinct, optimizer_of, store_of
from gemel.gluon.parameter import Parameter
from gemel.gluon.scaling import Chosen, Group, LossScaler, usable
from gemel.gluon.stepping import CompiledStep
from gemel.gluon.utils import split_data
from gemel.tape.recording import blocks_of, let_travel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gemel.device import Device
    from gemel.optimizer import Optimizer


class Trainer:
    """Updates `params` with an optimizer.

    `params` are a network's `collect_params()` or a list; `optimizer` is a name or an `Optimizer`,
    `optimizer_params` its settings. If the parameters are on several devices, each computes the
    gradients of its part of the batch, and `kvstore` decides where these are summed: ``"device"``,
    ``"local"`` (on the CPU) or a `KVStore`; None does not sum. With ``"dist_sync"`` several
    processes train together, each on its part of the batch: all start with the values of worker 0,
    and gradients are summed over all devices of all workers. `compression_params` are those of
    `KVStore.set_gradient_compression`. Each device then updates its own replica by the same sum, to
    the same bits. With `update_on_kvstore` the store updates its own copy, and every device gets
    that; parameter servers do so unless it is False. Different parameters may be on different
    devices, as with stages (`gluon.parallel`): each device updates the parameters it has.
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
        self._params = distinct(params)
        self._optimizer = optimizer_of(optimizer, optimizer_params)
        self._optimizer.param_dict = dict(enumerate(self._params))
        self._scale = self._amp_original_scale = self._optimizer.rescale_grad
        self._amp_loss_scaler: LossScaler | None = None
        #: The size of the first batch, and by how much that of the last step was larger.
        self._first_batch: Any = None
        self._batch_ratio = 1.0
        self._store = store_of(kvstore, compression_params, update_on_kvstore)
        # By default servers do, so that a replacement worker finds the parameters there.
        keeps = getattr(self._store, "keeps_parameters", False)
        self._wants_store = keeps if update_on_kvstore is None else update_on_kvstore
        #: Whether other processes train too.
        self._has_others = keeps or getattr(self._store, "num_workers", 1) > 1
        #: Whether the store updates the parameters; with a single replica it does not.
        self._on_store = False
        #: The parameters on the same devices, as groups; each device belongs to one group.
        self._groups: list[Group] = []
        #: The updaters by device; None: for parameters that are on no device yet.
        self._updaters: dict[Device | None, Any] = {None: optimizers.get_updater(self._optimizer)}
        #: The parameters' arrays when the groups were last computed; None for frozen ones.
        self._seen: list[tuple[Any, ...] | None] = []
        #: The versions of the first replicas after the last pull from the store.
        self._pulled: dict[int, int] = {}
        if self._has_others:
            self._join_workers()

    def _join_workers(self) -> None:
        """Give all parameters, now or once they are filled, the values of the first worker."""
        for parameter in self._params:
            if parameter.cut_axis is not None:
                self._refuse_parts(parameter.name)
        for position, parameter in enumerate(self._params):
            if parameter._arrays:
                self._begin_as_first_worker(position, parameter)
            parameter._followers.append(partial(_filled_again, ref(self), position))

    def __reduce__(self) -> Any:
        raise OperandError(
            "Trainer: it belongs to its parameters and is not copied or pickled; create one for "
            "the copied network, and transfer its states with save_states and load_states"
        )

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
        """Sum the gradients of all devices, divide by `batch_size`, and update every parameter.

        `batch_size` is the size of the whole batch: as in MXNet, it must include the parts of all
        devices and all workers. Nothing waits. The gradients on the devices do not change; see
        `allreduce_grads`. Raises `GradientError` for a parameter whose gradient backward has not
        written since the last step, on all its devices; `ignore_stale_grad` leaves out such
        gradients; parameters with no other gradient keep their values.
        """
        self._divide("step", batch_size, ignore_stale_grad)
        self._batch_ratio = batch_size / self._first_batch
        self._find_groups()
        chosen = self._fresh_gradients(ignore_stale_grad)
        if not chosen:
            return
        self._agree(chosen)
        if self._on_store:
            self._update_in_store(chosen)
        else:
            self._update(chosen, self._totals)

    def compile(self, forward: Callable[..., Any]) -> CompiledStep:
        """Compile a training step: `forward`, its gradients and the update as one program.

        `forward` takes arrays and returns the loss, or a tuple that begins with the loss. Each call
        of the result is one training step, equivalent to `record`, `backward` on the loss and
        `step(batch_size)`; `batch_size` is the length of the first argument unless given by name.
        Gradients are not stored. If a batch fails (an index out of range), parameters keep their
        values. All parameters must be on one device, in one process; otherwise the call raises
        `GemelError`. `forward` runs once for each kind of arguments, and again when blocks or
        parameters are added or replaced; values other than arrays (a number, a layer's rate) are
        fixed at that time.

        >>> net, loss = gluon.nn.Dense(1), gluon.loss.L2Loss()
        >>> net.initialize()
        >>> trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        >>> step = trainer.compile(lambda x, y: loss(net(x), y))
        >>> losses = step(np.ones((4, 2)), np.ones((4, 1)))
        >>> losses.shape
        (4,)
        """
        return CompiledStep(self, forward)

    def allreduce_grads(self) -> None:
        """Replace the gradients on each device by the sum over all devices; then call `update`.

        In between you can change the gradients, for example clip them. On one device this does
        nothing. What compression keeps follows the batch size of `step` only. Raises `GemelError`
        if the store updates the parameters.
        """
        self._find_groups()
        self._refuse_on_store("allreduce_grads")
        if self._store is None:
            return
        for devices, part in self._parts(self._fresh_gradients(ignore_stale=True)):
            if self._needs_no_sums(devices):
                continue
            totals = self._totals(part, devices)
            with autograd.pause():
                for row, own in zip(totals, _own_gradients(part, devices), strict=True):
                    for total, gradient in zip(row, own, strict=True):
                        if total is not gradient:
                            total.copyto(gradient)
            for position in part:
                self._params[position]._mark_used(False)

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """The second half of `step`: update every parameter from its gradient on each device."""
        self._divide("update", batch_size, ignore_stale_grad)
        self._find_groups()
        self._refuse_on_store("update")
        chosen = self._fresh_gradients(ignore_stale_grad, "update")
        self._agree(chosen)
        self._update(chosen, _own_gradients)

    def _update(self, chosen: Chosen, gradients: Callable[..., list[list[Any]]]) -> None:
        if len(self._groups) > 1:  # their counts may differ
            self._optimizer._begin_step(chosen)
        parts = ((part, devices, gradients(part, devices)) for devices, part in self._parts(chosen))
        for part in usable(self._amp_loss_scaler, parts, self._params):
            self._apply(*part)

    def _divide(self, name: str, batch_size: float, ignore_stale: bool = False) -> None:
        """Divide gradients by the batch size, after a check of what `step` was given."""
        check_step(name, batch_size, ignore_stale)
        self._optimizer.rescale_grad = self._scale / batch_size
        self._first_batch = batch_size if self._first_batch is None else self._first_batch

    def _begin_pushes(self) -> None:
        """Tell the store that this trainer's gradients follow, and what multiplies them compared
        with those of its first step: the scale of the loss and the size of the batch."""
        if isinstance(self._store, stores.KVStore):
            loss = self._amp_original_scale / self._scale if self._scale else 1.0
            self._store.scale_gradients(loss * self._batch_ratio, self)

    def _agree(self, chosen: Chosen) -> None:
        """Compare the optimizer of a step that all workers do with theirs."""
        if chosen and self._has_others and isinstance(self._store, stores.KVStore):
            self._store.agree(self._optimizer)

    def _needs_no_sums(self, devices: list[Device]) -> bool:
        """Whether no gradients have to be summed for parameters on these devices."""
        return self._store is None or (len(devices) == 1 and not self._has_others)

    def _begin_as_first_worker(self, position: int, parameter: Parameter) -> None:
        """All workers begin with the first one's values; this one's gradients go to all."""
        if ours := isinstance(self._store, stores.KVStore):
            self._store.claim(position, parameter)
        before = (p for p in self._params[:position] if p._arrays and p.grad_req != "null")
        later = sum(p._arrays[0].nbytes for p in before)
        for array in parameter._arrays:
            let_travel(array, self._store.blocks(array, later) if ours else 1)
        self._store.broadcast(position, parameter._arrays[0], out=list(parameter._arrays))

    def _refuse_on_store(self, name: str) -> None:
        if self._on_store:
            raise GemelError(
                f"{name}: with update_on_kvstore=True the store sums the gradients and updates "
                "the parameters; create the Trainer with update_on_kvstore=False"
            )

    def _fresh_gradients(self, ignore_stale: bool, asked: str = "step") -> Chosen:
        """The gradients that backward has written. Raises `GradientError` for others."""
        chosen = {}
        for position, parameter in enumerate(self._params):
            if parameter._grad_req == "null":
                continue
            grads, fresh = parameter.fresh_grads()
            if True in fresh and (ignore_stale or False not in fresh):
                chosen[position] = grads, fresh
            elif not ignore_stale:
                parameter.arrays()  # raises an error with advice if there are none
                place = f" on {parameter.homes[fresh.index(False)]}" if len(fresh) > 1 else ""
                raise GradientError(
                    f"{asked}: backward has not written the gradient of parameter "
                    f"{parameter.name}{place} since the last step, so it did not contribute to "
                    f"the loss; if that is intended, call {asked}(batch_size, "
                    "ignore_stale_grad=True) or set its grad_req to 'null'"
                )
        return chosen

    def _parts(self, chosen: Chosen) -> Iterator[tuple[list[Device], Chosen]]:
        """The devices of each group, and the group's part of the chosen parameters."""
        if len(self._groups) == 1:
            if chosen:
                yield self._groups[0].devices, chosen
            return
        for devices, positions in self._groups:
            part = {position: chosen[position] for position in positions if position in chosen}
            if part:
                yield devices, part

    def _totals(self, chosen: Chosen, devices: list[Device]) -> list[list[Any]]:
        """For each device, the sums of the gradients over all devices with fresh ones.

        A part of a split parameter is on one device only, so its gradient needs no sum.
        """
        cut = [position for position in chosen if self._params[position].cut_axis is not None]
        whole = {position: chosen[position] for position in chosen if position not in cut}
        if not whole or self._needs_no_sums(devices):
            return _own_gradients(chosen, devices)
        self._begin_pushes()
        values = [list(compress(grads, fresh)) for grads, fresh in whole.values()]
        if isinstance(self._store, stores.KVStore):
            totals = self._store.totals(list(whole), values, devices, self._blocks(whole))
        else:
            totals = self._totals_of_plugin(list(whole), values, devices)
        if not cut:
            return totals
        rows = [dict(zip(whole, row, strict=True)) for row in totals]
        return [
            [row[position] if position in whole else chosen[position][0][place]
             for position in chosen]
            for place, row in enumerate(rows)
        ]  # fmt: skip

    def _blocks(self, chosen: Chosen) -> list[list[Any]]:
        """The gradients in blocks of rows, if backward has computed these for other workers."""
        if not self._has_others:
            return []
        return [
            [blocks_of(array) for array in compress(self._params[position]._arrays, fresh)]
            for position, (_, fresh) in chosen.items()
        ]

    def _totals_of_plugin(
        self, positions: list[int], values: list[list[Any]], devices: list[Device]
    ) -> list[list[Any]]:
        """`_totals` with a store of another library."""
        for position, gradients in zip(positions, values, strict=True):
            self._store.pushpull(position, gradients, out=gradients, priority=-position)
        return [
            [gradients[0].as_in_ctx(device) if len(gradients) <= place else gradients[place]
             for gradients in values]
            for place, device in enumerate(devices)
        ]  # fmt: skip

    def _apply(self, chosen: Chosen, devices: list[Device], gradients: list[list[Any]]) -> None:
        """Update the parameters on each of the devices with the gradients there."""
        parameters = [self._params[position] for position in chosen]
        state = _core.random_state()
        for place, device in enumerate(devices):
            if place and _core.random_state() != state:
                _core.set_random_state(*state)  # all replicas use the same random numbers
            weights = [parameter._arrays[place] for parameter in parameters]
            self._updaters[device](list(chosen), gradients[place], weights)
        for parameter in parameters:
            parameter._mark_used()

    def _update_in_store(self, chosen: Chosen) -> None:
        """Let the store update its values, and pull them."""
        self._optimizer._begin_step(chosen)
        self._begin_pushes()
        if self._updaters.get(None) is not self._store.updater:  # that of another trainer
            self._store.set_updater(self._updaters.get(None))
            self._pulled.clear()
        for position in reversed(chosen):
            parameter = self._params[position]
            if self._pulled.get(position) != parameter._arrays[0].version:
                self._store.init(position, parameter._arrays[0])  # new, or written by the program
            grads, fresh = chosen[position]
            self._store.push(position, list(compress(grads, fresh)), priority=-position)
            self._store.pull(position, list(parameter._arrays), priority=-position)
            self._pulled[position] = parameter._arrays[0].version
            parameter._mark_used()

    # ---- devices and the store

    def _find_groups(self) -> None:
        """Find who is on which devices. Raises `DeviceError` for devices that overlap partly."""
        # Freezing a parameter changes the groups, except with workers: servers hear of groups once.
        left_out = "" if self._has_others else "null"
        now = [None if p._grad_req == left_out else p._arrays for p in self._params]
        if len(now) == len(self._seen) and all(map(is_, now, self._seen)):
            return
        groups: list[Group] = []
        for position, parameter in enumerate(self._params):
            if not parameter._arrays or parameter.grad_req == "null":
                continue
            homes = parameter.homes
            group = next((g for g in groups if not set(homes).isdisjoint(g.devices)), None)
            if group is None:
                groups.append(Group(homes, [position]))
            elif homes == group.devices:
                group.positions.append(position)
            else:
                here, there = (", ".join(map(str, each)) for each in (group.devices, homes))
                raise DeviceError(
                    f"Trainer: parameter {self._params[group.positions[0]].name} is on {here}, "
                    f"but {parameter.name} is on {there}; initialize all parameters on the same "
                    "devices, or move them with reset_ctx"
                )
        if groups and groups != self._groups:
            self._take_groups(groups)
        self._pulled.clear()
        self._seen = now

    def _take_groups(self, groups: list[Group]) -> None:
        """Choose who updates these groups, and make states and counts for each device."""
        for devices, positions in groups:
            cut = [self._params[p].name for p in positions if self._params[p].cut_axis is not None]
            if cut and len(devices) > 1:
                self._refuse_parts(cut[0])
        lasting = self._on_store and getattr(self._store, "keeps_parameters", False)
        kept = {} if lasting else self._joined_states()
        masters = {key: on for one in self._updaters.values() for key, on in one.masters.items()}
        self._groups = groups
        several = self._has_others or any(len(group.devices) > 1 for group in groups)
        self._on_store = self._wants_store and several
        if self._on_store:
            self._store.set_optimizer(self._optimizer)
            updater = self._store.updater
            self._updaters = {} if updater is None else {None: updater}
        else:
            places = [None, *(device for group in groups for device in group.devices)]
            self._updaters = {device: optimizers.get_updater(self._optimizer) for device in places}
        self._give_states(kept, masters)
        for device in self._updaters:
            if device is not None:
                self._optimizer._set_current_context(device.code)
        self._equalize_counts()

    def _refuse_parts(self, name: str) -> None:
        """Raise `GemelError` if a parameter cannot be updated in parts."""
        reason = ""
        if self._wants_store:
            reason = "no store can update them; leave out update_on_kvstore=True"
        elif self._optimizer.needs_whole:
            kind = type(self._optimizer).__name__
            reason = f"{kind} reads the norm of the whole; choose another optimizer"
        elif self._has_others:
            reason = "several workers have whole parameters only; take one process, or cut nothing"
        if reason:
            raise GemelError(f"Trainer: parameter {name} is split over several devices: {reason}")

    # ---- states

    def _equalize_counts(self) -> None:
        """Make the update counts of each parameter equal on all devices."""
        found: dict[Any, int] = {}
        devices = self._optimizer._all_index_update_counts.values()
        for counts in devices:
            found.update({key: max(n, found.get(key, 0)) for key, n in counts.items()})
        for counts in devices:
            counts.update(found)

    def _joined_states(self) -> dict[Any, list[Any]]:
        """The arrays of each parameter's state; those of a split parameter are joined."""
        pieces: dict[Any, list[list[Any]]] = {}
        for updater in self._updaters.values():
            for position, arrays in updater.arrays().items():
                pieces.setdefault(position, []).append(arrays)
        found = {}
        for position, rows in pieces.items():
            axis = self._params[position].cut_axis
            found[position] = rows[0]
            if axis is not None and len(rows) > 1:
                place = rows[0][0].device if rows[0] else None
                found[position] = [
                    np.concatenate([part.as_in_ctx(place) for part in parts], axis=axis)
                    for parts in zip(*rows, strict=True)
                ]
        return found

    def _give_states(
        self, kept: dict[Any, list[Any]], masters: dict[Any, bool] | None = None
    ) -> None:
        """Give each device the states of its parameters, see `Updater.restore`."""
        if self._on_store:
            for updater in self._updaters.values():
                updater.restore({key: _copies(arrays) for key, arrays in kept.items()}, masters)
            return
        left = dict(kept)
        for devices, positions in self._groups:
            here = {position: left.pop(position) for position in positions if position in left}
            for place, device in enumerate(devices):
                found = {}
                for position, arrays in here.items():
                    axis = self._params[position].cut_axis
                    if axis is not None:
                        arrays = [split_data(a, len(devices), axis)[place] for a in arrays]
                    found[position] = _copies(arrays)
                self._updaters[device].restore(found, masters)
        self._updaters[None].restore(left, masters)

    # ---- files

    def save_states(self, fname: Any) -> None:
        """Write the optimizer's states, step counts, learning rate and loss scale to a file.

        The states of all devices are equal and written once. Those of a split parameter are joined:
        the file is the same as for one device.
        """
        if not self._updaters:
            self._store.save_optimizer_states(fname)
            return
        self._equalize_counts()
        whole = optimizers.get_updater(self._optimizer)
        whole.restore(self._joined_states())
        stores.save_states(fname, whole, range(len(self._params)), self._amp_loss_scaler)

    def load_states(self, fname: Any) -> None:
        """Read a file of `save_states`, for any number of devices. A fixed loss scale stays.

        Raises `ParameterFileError` and changes nothing if the file belongs to another optimizer or
        other parameters.
        """
        if not self._updaters:
            self._store.load_optimizer_states(fname)
            return
        shapes = [p.shape if p.is_shape_known else None for p in self._params]
        whole, keys = optimizers.get_updater(self._optimizer), range(len(self._params))
        stores.load_states(fname, [whole], keys, shapes, self._amp_loss_scaler)
        self._give_states(whole.arrays())


def _own_gradients(chosen: Chosen, devices: list[Device]) -> list[list[Any]]:
    """For each device, its own gradients."""
    return [[grads[place] for grads, _ in chosen.values()] for place in range(len(devices))]


def _copies(arrays: list[Any]) -> list[Any]:
    return [array.copy() for array in arrays]


def _filled_again(trainer: ref[Trainer], position: int, parameter: Parameter) -> None:
    """After a parameter was filled (again), all workers take the first worker's values."""
    if (found := trainer()) is not None:
        found._begin_as_first_worker(position, parameter)
