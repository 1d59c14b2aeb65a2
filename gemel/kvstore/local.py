"""The store of one process: adds up the gradients of its devices.

Calls return at once: the sum of a key begins when its gradients are ready, while the rest of the
backward pass continues.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from gemel import autograd, npx
from gemel import optimizer as optimizers  # `optimizer` is also the name of an argument
from gemel.device import CPUS, Device, simulated_topology
from gemel.errors import (
    ArgumentError,
    DTypeError,
    GemelError,
    ShapeError,
    UnknownNameError,
    unknown_name,
)
from gemel.ir.graph import Graph, placeholder
from gemel.ir.interpret import spec_of
from gemel.ir.trace import Trace
from gemel.kvstore import compression, states
from gemel.kvstore.base import KVStore, alike_key, bytes_before, pairs, plain_key
from gemel.kvstore.traffic import Traffic
from gemel.runtime.backend import backend_of
from gemel.runtime.plans import plan_of

#: Dtypes that NumPy cannot add, or not accurately; they are summed as float32 and rounded once.
NARROW = ("float16", "bfloat16")


class LocalStore(KVStore):
    """A store in this process; it sums on the arrays' devices, or on the CPU."""

    def __init__(self, name: str, on_devices: bool) -> None:
        super().__init__(name)
        self._on_devices = on_devices
        self._values: dict[Any, Any] = {}
        #: The keys that have been pushed, or summed for a `Trainer`.
        self._pushed: set[Any] = set()
        self._updater: Any = None
        #: Held by the thread that updates, so that counts and states match the order of the
        #: updates.
        self._updating = threading.RLock()
        self._compression: compression.Compression | None = None
        self._sums = _Sums()
        self._traffic: Traffic | None = None

    def share(self, key: Any) -> int:
        """The number of workers whose pushes are in a key's value: all of them, or 0 before the
        first push. Raises `UnknownNameError`."""
        one = plain_key(key)
        if one in self._pushed:
            return self.num_workers
        self._stored(one)
        return 0

    # ---- values

    def init(self, key: Any, value: Any) -> None:
        """Initialize each key with a copy of the (first) array given. A key that the store has
        gets the new value."""
        for one, values in pairs(key, value):
            with autograd.pause():
                self._values[one] = values[0].copyto(self._place(values, 0))

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Sum the arrays of each key. The sum becomes the key's value, or updates it by the
        optimizer.

        Of several ready keys, those with a higher `priority` go first.
        """
        given = [(one, values, self._stored(one)) for one, values in pairs(key, value)]
        for one, values, stored in given:  # before the first of them changes its value
            check_alike(one, values)
            if self._updater is None or hasattr(self._updater, "optimizer"):
                self._fits(one, values[0], stored)
        for one, values, stored in given:
            with npx.priority(priority), autograd.pause():
                total = self._total(one, values, stored.device, priority)
                if self._updater is None:
                    total.copyto(stored)
                else:
                    with self._updating:
                        self._updater(one, total, stored)
                self._pushed.add(one)

    def pull(self, key: Any, out: Any, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Write each key's value into the arrays in `out`."""
        given = [(one, targets, self._stored(one)) for one, targets in pairs(key, out)]
        for one, targets, stored in given:
            for target in targets:
                self._fits(one, target, stored)
        with npx.priority(priority), autograd.pause():
            for _, targets, stored in given:
                for target in targets:
                    stored.copyto(target)

    def _sizes(self) -> list[int]:
        return [value.nbytes for value in reversed(self._values.values())]

    def totals(
        self,
        keys: Sequence[Any],
        values: Sequence[Sequence[Any]],
        devices: Sequence[Device],
        blocks: Sequence[Sequence[Sequence[Any]]] = (),
    ) -> list[list[Any]]:
        """All-reduce a `Trainer`'s gradients: for each device, the sums of the arrays of each key.

        CPU devices share their memory, so each sums everything for itself, as one program.
        Otherwise each key is summed in one place and copied on: last keys first, because their
        gradients are ready first. Of several ready keys the first go first, because the next
        forward starts with them. All devices sum in the same order, so they get the same bits. The
        GPUs of a simulated topology sum over its links, by the schedule that its planner chooses.
        All get the same bits, which are those of that schedule's order of additions.
        """
        self._pushed.update(keys)
        linked = any(device.linked for device in devices)
        apart = linked or any(_apart(arrays[0]) for arrays in values)
        if self._compression is None and not apart:
            with autograd.pause():
                return [self._sums(values, device) for device in devices]
        return self._one_by_one(keys, values, devices)

    def _one_by_one(
        self,
        keys: Sequence[Any],
        values: Sequence[Sequence[Any]],
        devices: Sequence[Device],
        blocks: Sequence[Sequence[Sequence[Any]]] = (),
    ) -> list[list[Any]]:
        """The sums of `totals`, for each key in one place, or over a topology's links."""
        found: list[list[Any]] = [[None] * len(keys) for _ in devices]
        later = bytes_before(values)
        for position in reversed(range(len(keys))):
            place = self._place(values[position], position)
            with npx.priority(-position), autograd.pause():
                traffic = self._traffic_of(values[position], devices)
                if traffic is not None:
                    check_alike(keys[position], values[position])
                    name = f"key {keys[position]!r}"
                    sums = traffic.sums(name, values[position], -position)
                    for row, total in zip(found, sums, strict=True):
                        row[position] = total
                    continue
                parts = blocks[position] if blocks else ()
                given = keys[position], values[position], place, -position
                total = self._total(*given, parts, later[position])
                for row, device in zip(found, devices, strict=True):
                    row[position] = total.as_in_ctx(device)
        return found

    def _traffic_of(self, values: Sequence[Any], devices: Sequence[Device]) -> Traffic | None:
        """The `Traffic` for these arrays, if they lie on the GPUs of a simulated topology."""
        links = simulated_topology()
        homes = [value.device for value in values]
        if links is None or self._compression is not None or homes != list(devices):
            return None
        if len(set(homes)) < 2 or not all(device.linked for device in homes):
            return None
        known = self._traffic
        if known is None or known.links is not links or known.process != os.getpid():
            known = self._traffic = Traffic(links, hosted=not self._on_devices)
        return known

    def carried(self) -> dict[tuple[str, str], float]:
        """The bytes of gradients that each link of the simulated topology has carried.

        A link is named by its two ends, in one direction: ``("gpu0", "pcie0")``. Empty if each GPU
        has only its own link, or nothing has been summed yet.
        """
        return {} if self._traffic is None else self._traffic.carried()

    def _place(self, values: Sequence[Any], number: int) -> Device:
        """The device that sums a key: devices take turns, to spread the load over the links."""
        place: Device = values[number % len(values)].device
        return place if self._on_devices or not place.linked else CPUS[0]

    def _total(
        self,
        key: Any,
        values: Sequence[Any],
        place: Device,
        priority: int,
        blocks: Sequence[Sequence[Any]] = (),
        later: int = 0,
    ) -> Any:
        """Sum the arrays of a key at a place; `priority` is that of its operations.

        `later` is how many bytes of other gradients backward computes after this one.
        """
        check_alike(key, values)
        if self._compression is None or not compression.shortens(values[0]):
            return self._sum(values, place)
        arrived = self._compression.sent(key, values, place)
        return self._sum(arrived, place).astype(values[0].dtype, copy=False)

    def _sum(self, values: Sequence[Any], place: Device) -> Any:
        if not (place.linked or any(map(_apart, values))):
            return self._sums([values], place)[0]
        return _added([value.as_in_ctx(place) for value in values])

    def _stored(self, key: Any) -> Any:
        if key not in self._values:
            if hint := alike_key(key, self._values):
                raise UnknownNameError(f"kvstore: {self._here}there is no key {key!r}{hint}")
            error = unknown_name("key (call init first)", key, map(str, self._values))
            raise UnknownNameError(f"{self._here}{error}")
        return self._values[key]

    @property
    def _here(self) -> str:
        """For errors that only one of several workers may have: which one."""
        return f"worker {self.rank}: " if self.num_workers > 1 else ""

    def _fits(self, key: Any, given: Any, stored: Any) -> None:
        """Raise `ShapeError` unless an array has the shape of a key's value."""
        if given.shape != stored.shape:
            raise ShapeError(
                f"kvstore: {self._here}key {key!r} has a value of "
                f"{stored.dtype.name}{list(stored.shape)}, but "
                f"{given.dtype.name}{list(given.shape)} was given"
            )

    # ---- updating

    @property
    def updater(self) -> Any:
        """The function that updates the values, or None."""
        return self._updater

    def set_updater(self, updater: Any) -> None:
        """Update the value of a key by `updater(key, sum, value)`, which changes the value."""
        if not callable(updater):
            raise ArgumentError(
                f"set_updater: {updater!r} is not callable; give a function of a key, the pushed "
                "sum and the value"
            )
        self._updater = updater

    def set_optimizer(self, optimizer: Any) -> None:
        """Update the value of a key by an optimizer; the pushed sum is the gradient."""
        if not isinstance(optimizer, optimizers.Optimizer):
            raise ArgumentError(
                f"set_optimizer: {optimizer!r} is not an optimizer; gemel.optimizer.create makes "
                "one from a name"
            )
        self.set_updater(optimizers.get_updater(optimizer))

    def scale_gradients(self, scale: float, owner: Any = None) -> None:
        """Say that what is pushed from now on is multiplied by `scale`, and whose it is."""
        if self._compression is not None:
            self._compression.begin(scale, owner)

    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """Send gradients in fewer bits: ``{"type": "2bit", "threshold": 0.5}``.

        What compression loses is added to what is sent next. Elements that are infinite or NaN stay
        so (with 2 bits they become NaN) and lose nothing. Only for the store ``"device"``.
        `gemel.kvstore.compression` describes what is sent.
        """
        made = compression.create(compression_params)
        if not self._on_devices:
            raise GemelError(f"kvstore {self._name!r} cannot compress gradients; use 'device'")
        self._compression = made

    def save_optimizer_states(self, fname: Any, dump_optimizer: bool = False) -> None:
        """Write the states of the optimizer that updates the values to a file, with its numbers of
        updates and, without a scheduler, its learning rate; `dump_optimizer` changes nothing."""
        states.save_states(fname, self._needed_updater(), self._ordered())

    def load_optimizer_states(self, fname: Any) -> None:
        """Read what `save_optimizer_states` wrote for a store with the same keys."""
        keys = self._ordered()
        shapes = [tuple(self._values[key].shape) for key in keys]
        states.load_states(fname, [self._needed_updater()], keys, shapes)

    def _ordered(self) -> list[Any]:
        """The keys in the order of files of states, whichever was initialized first: numbers, then
        strings."""
        return sorted(self._values, key=lambda key: (isinstance(key, str), key))

    def _needed_updater(self) -> Any:
        if not hasattr(self._updater, "optimizer"):
            raise GemelError("kvstore: there are no optimizer states; call set_optimizer first")
        return self._updater


def check_alike(key: Any, values: Sequence[Any]) -> None:
    """Raise unless all arrays of a key have the same shape (`ShapeError`) and dtype
    (`DTypeError`)."""
    if len({value.shape for value in values}) > 1:
        shapes = ", ".join(str(value.shape) for value in values)
        raise ShapeError(f"kvstore: the arrays of key {key!r} have different shapes: {shapes}")
    if len({value._code for value in values}) > 1:
        dtypes = ", ".join(value.dtype.name for value in values)
        raise DTypeError(
            f"kvstore: the arrays of key {key!r} have different dtypes: {dtypes}; use astype on "
            "some of them"
        )


def widened(value: Any) -> Any:
    """The array in the dtype in which it is summed."""
    return value.astype("float32") if value.dtype.name in NARROW else value


def _added(values: Sequence[Any]) -> Any:
    """The sum of arrays on one device, from the first to the last, in their dtype."""
    if len(values) == 1:
        return values[0]
    total, *others = map(widened, values)
    for other in others:
        total = total + other
    return total.astype(values[0].dtype, copy=False)


def _apart(value: Any) -> bool:
    """Whether an array must be summed by itself: it is behind a link, or its dtype has no
    kernels."""
    return bool(value.device.linked or value.dtype.kind == "c")


class _Sums:
    """Sums arrays of CPU devices, group by group, as one program, which runs on any of them."""

    def __init__(self) -> None:
        self._plans: dict[Any, Any] = {}

    def __call__(self, groups: Sequence[Sequence[Any]], device: Device) -> list[Any]:
        key = tuple([(len(group), group[0].shape, group[0]._code) for group in groups])
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._plan(groups, device)
        return list(plan(*[value for group in groups for value in group], device=device.code))

    def _plan(self, groups: Sequence[Sequence[Any]], device: Device) -> Any:
        entries = [[placeholder(spec_of(value)) for value in group] for group in groups]
        with Trace():
            totals = [_added(group) if len(group) > 1 else group[0].copy() for group in entries]
        inputs = [entry for group in entries for entry in group]
        return plan_of(Graph(inputs, totals, (), "sum of gradients"), backend_of(device))


__all__ = ["NARROW", "LocalStore", "check_alike", "widened"]
