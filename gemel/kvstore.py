"""Key-value stores: where the gradients of several devices meet.

A store keeps a value for each key. `push` adds up what several devices have for a key, `pull` gives
every device the value; `pushpull` does both. Everything is issued and nothing waits: each key's sum
begins when its gradients are there, while the rest of backward goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gemel import autograd, compiled, np, npx, optimizer
from gemel.device import CPUS, Device
from gemel.errors import GemelError, ParameterFileError, ShapeError, unknown_name
from gemel.ir.graph import Graph, placeholder
from gemel.ir.trace import Trace
from gemel.npx import serialize
from gemel.runtime.backend import backend_of
from gemel.runtime.plans import plan_of
from gemel.runtime.prepare import spec_of

#: The kinds there are: whether values meet on their devices (or on the CPU).
KINDS = {
    "local": False,
    "local_allreduce_cpu": False,
    "device": True,
    "local_allreduce_device": True,
}


def create(name: str = "local") -> KVStore:
    """A store: ``"device"`` adds values up on their devices, ``"local"`` on the CPU.

    Raises `UnknownNameError`, and `GemelError` for the stores of several machines.
    """
    return KVStore(name)


class KVStore:
    """A value for each key, and the sums of what devices push. Keys are numbers or strings.

    Every method takes one key, or a list of keys with a list of what belongs to each. What belongs
    to a key is an array, or a list of arrays on several devices.
    """

    def __init__(self, name: str = "local") -> None:
        if isinstance(name, str) and name.startswith(("dist", "p3", "horovod", "byteps")):
            raise GemelError(
                f"kvstore {name!r}: training on several machines is not there yet; on one machine "
                "use 'device' or 'local'"
            )
        if name not in KINDS:
            raise unknown_name("kvstore", name, KINDS)
        self._name = name
        self._values: dict[Any, Any] = {}
        self._updater: Any = None
        self._compression: _TwoBits | None = None
        self._sums = _Sums()

    @property
    def type(self) -> str:
        """Its name, as given to `create`."""
        return self._name

    @property
    def rank(self) -> int:
        """Which of the workers this process is: 0, as long as there is one machine."""
        return 0

    @property
    def num_workers(self) -> int:
        """How many processes train together: 1."""
        return 1

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Whether it can do something: ``"optimizer"`` means `set_optimizer`."""
        return capability == "optimizer"

    # ---- values

    def init(self, key: Any, value: Any) -> None:
        """Give each key its first value, a copy of the (first) array given."""
        for one, values in _pairs(key, value):
            with autograd.pause():
                self._values[one] = values[0].copyto(self._place(values, 0))

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Add up the arrays of each key: the sum becomes its value, or updates it by the optimizer.

        Keys with a higher `priority` go first where several could.
        """
        for one, values in _pairs(key, value):
            stored = self._stored(one)
            with npx.priority(priority), autograd.pause():
                total = self._total(one, values, stored.device)
                if self._updater is None:
                    total.copyto(stored)
                else:
                    self._updater(one, total, stored)

    def pull(self, key: Any, out: Any, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Write each key's value into the arrays in `out`."""
        for one, targets in _pairs(key, out):
            stored = self._stored(one)
            with npx.priority(priority), autograd.pause():
                for target in targets:
                    stored.copyto(target)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """`push`, then `pull` into `out`, or where there is none into the arrays pushed."""
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, then `pull`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def row_sparse_pull(self, *arguments: Any, **settings: Any) -> None:
        """Refused: values are dense, `pull` gives all rows."""
        raise GemelError("row_sparse_pull: values are dense; use pull")

    def totals(
        self, keys: Sequence[Any], values: Sequence[Sequence[Any]], devices: Sequence[Device]
    ) -> list[list[Any]]:
        """For each device the sums of the arrays of each key: a `Trainer`'s gradients meet.

        CPU devices share their memory, so each adds up everything for itself, as one program.
        Otherwise each key's sum is made in one place, last keys first, as their gradients are there
        first, and travels on; where several could, first keys go first: the next forward begins
        with them. All add up in the same order, so they get the same bits.
        """
        linked = any(device.linked for device in devices)
        with autograd.pause():
            if self._compression is None and not linked:
                return [self._sums(values, device) for device in devices]
            found: list[list[Any]] = [[None] * len(keys) for _ in devices]
            for position in reversed(range(len(keys))):
                place = self._place(values[position], position)
                with npx.priority(-position):
                    total = self._total(keys[position], values[position], place)
                    for row, device in zip(found, devices, strict=True):
                        row[position] = total.as_in_ctx(device)
        return found

    def _place(self, values: Sequence[Any], number: int) -> Device:
        """Where the sum of a key is made: the devices take turns, so that no link has it all."""
        place: Device = values[number % len(values)].device
        return place if KINDS[self._name] or not place.linked else CPUS[0]

    def _total(self, key: Any, values: Sequence[Any], place: Device) -> Any:
        if len({tuple(value.shape) for value in values}) > 1:
            shapes = ", ".join(str(value.shape) for value in values)
            raise ShapeError(f"kvstore: the arrays of key {key!r} have different shapes: {shapes}")
        if self._compression is not None:
            values = self._compression.sent(key, values, place)
        elif not (place.linked or any(value.device.linked for value in values)):
            return self._sums([values], place)[0]
        arrived = [value.as_in_ctx(place) for value in values]
        total = arrived[0]
        for other in arrived[1:]:
            total = total + other
        return total

    def _stored(self, key: Any) -> Any:
        if key not in self._values:
            raise unknown_name("key (call init first)", key, map(str, self._values))
        return self._values[key]

    # ---- updating

    def set_optimizer(self, optimizer: Any) -> None:
        """Update the value of a key by an optimizer, the sum that is pushed being its gradient."""
        self._updater = optimizer_module.get_updater(optimizer)

    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """Send gradients in 2 bits: ``{"type": "2bit", "threshold": 0.5}``.

        Of each element, threshold, -threshold or 0 is sent; what is lost is added to the next one.
        Only for values that meet on their devices. Seide et al., 1-bit stochastic gradient descent,
        Interspeech 2014, and MXNet's variant with two bits.
        """
        settings = {"type": "none", "threshold": 0.5, **compression_params}
        for name in settings:
            if name not in ("type", "threshold"):
                raise unknown_name("setting of gradient compression", name, ("type", "threshold"))
        if settings["type"] not in ("none", "2bit"):
            raise unknown_name("gradient compression", settings["type"], ("none", "2bit"))
        if not KINDS[self._name]:
            raise GemelError(f"kvstore {self._name!r} cannot compress gradients; use 'device'")
        if not float(settings["threshold"]) > 0:
            raise ValueError(f"gradient compression: threshold {settings['threshold']} is not > 0")
        none = settings["type"] == "none"
        self._compression = None if none else _TwoBits(float(settings["threshold"]))

    def save_optimizer_states(self, fname: Any, dump_optimizer: bool = False) -> None:
        """Write the states of the optimizer that updates the values to a file."""
        save_states(fname, self._needed_updater(), list(self._values))

    def load_optimizer_states(self, fname: Any) -> None:
        """Read what `save_optimizer_states` wrote."""
        shapes = [tuple(value.shape) for value in self._values.values()]
        load_states(fname, [self._needed_updater()], list(self._values), shapes)

    def _needed_updater(self) -> Any:
        if self._updater is None:
            raise GemelError("kvstore: there are no optimizer states; call set_optimizer first")
        return self._updater


#: `optimizer` is an argument's name, as users write it; this is the module.
optimizer_module = optimizer


def _pairs(key: Any, value: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Each key and the arrays that belong to it."""
    several = isinstance(key, (list, tuple))
    keys, values = (list(key), list(value)) if several else ([key], [value])
    if len(keys) != len(values):
        raise ShapeError(f"kvstore: {len(keys)} keys were given with the values of {len(values)}")
    for one, found in zip(keys, values, strict=True):
        arrays = list(found) if isinstance(found, (list, tuple)) else [found]
        if not arrays:
            raise ShapeError(f"kvstore: no array was given for key {one!r}")
        yield one, arrays


class _Sums:
    """Adds up arrays of CPU devices, group by group; one program, which runs on any of them."""

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
            totals = [sum(rest, first + 0) for first, *rest in entries]
        inputs = [entry for group in entries for entry in group]
        return plan_of(Graph(inputs, totals, (), "sum of gradients"), backend_of(device))


# ---- compression


class _TwoBits:
    """Sends gradients in 2 bits per element, keeping for the next time what was lost."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._lost: dict[Any, Any] = {}
        self._pack = compiled.compile(_packed)
        self._unpack = compiled.compile(_unpacked)

    def sent(self, key: Any, values: Sequence[Any], place: Device) -> list[Any]:
        """What arrives at `place` of the arrays of a key."""
        found = []
        for number, value in enumerate(values):
            lost = self._lost.get((key, number))
            if lost is None or lost.shape != value.shape or lost.device != value.device:
                lost = np.zeros_like(value)
            flat = (value.reshape(-1), lost.reshape(-1))
            codes, left = self._pack(*flat, self._threshold)
            self._lost[key, number] = left.reshape(value.shape)
            arrived = self._unpack(codes.as_in_ctx(place), self._threshold)[: value.size]
            found.append(arrived.reshape(value.shape).astype(value.dtype))
        return found


def _packed(gradient: Any, lost: Any, threshold: float) -> Any:
    """Codes of elements (0: none, 1: threshold, 2: -threshold), four in a byte; what they lose."""
    wanted = gradient + lost
    up, down = wanted >= threshold, wanted <= -threshold
    codes = up.astype("uint8") + 2 * down.astype("uint8")
    codes = np.pad(codes, ((0, -codes.shape[0] % 4),)).reshape(-1, 4)
    bytes_ = codes[:, 0] + 4 * codes[:, 1] + 16 * codes[:, 2] + 64 * codes[:, 3]
    return bytes_, wanted - threshold * (up.astype(wanted.dtype) - down.astype(wanted.dtype))


def _unpacked(codes: Any, threshold: float) -> Any:
    columns = [(codes // place) % 4 for place in (1, 4, 16, 64)]
    found = np.stack(columns, axis=1).reshape(-1)
    return threshold * ((found == 1).astype("float32") - (found == 2).astype("float32"))


# ---- files


def save_states(filename: Any, updater: Any, keys: Sequence[Any]) -> None:
    """Write an updater's states, how often each key was updated, and the learning rate."""
    rule = updater.optimizer
    counts = [rule._index_update_count.get(key, 0) for key in keys]
    arrays: dict[str, Any] = {_kind(rule): np.array(counts, dtype="int64")}
    if rule.lr_scheduler is None:
        arrays["learning_rate"] = np.array(rule.lr, dtype="float64")
    places = {key: position for position, key in enumerate(keys)}
    for key, states in updater.arrays().items():
        arrays.update({f"{places[key]}.{number}": s for number, s in enumerate(states)})
    serialize.save(filename, arrays)


def load_states(
    filename: Any, updaters: Sequence[Any], keys: Sequence[Any], shapes: Sequence[Any]
) -> None:
    """Read what `save_states` wrote into one updater, or one for each device.

    Raises `ParameterFileError`, changing nothing, for states of another optimizer, or that do not
    fit the values' shapes (None: not known yet).
    """
    rule = updaters[0].optimizer
    arrays = serialize.load_named(filename)
    counts = arrays.pop(_kind(rule), None)
    rate = arrays.pop("learning_rate", None)
    if counts is None or counts.shape != (len(keys),):
        raise ParameterFileError(
            f"{filename} does not hold the states of {type(rule).__name__.lower()} over "
            f"{len(keys)} parameters; no state was changed"
        )
    states: dict[Any, list[Any]] = {}
    for name, array in arrays.items():
        place, _, number = name.partition(".")
        fits = place.isdecimal() and number.isdecimal() and int(place) < len(keys)
        if not (fits and shapes[int(place)] in (None, tuple(array.shape))):
            raise ParameterFileError(
                f"{filename}: state {name} of shape {tuple(array.shape)} belongs to no parameter "
                "here; no state was changed"
            )
        states.setdefault(keys[int(place)], []).append(array)
    for updater in updaters:
        updater.restore({key: [array.copy() for array in found] for key, found in states.items()})
    known = {key: int(n) for key, n in zip(keys, counts.tolist(), strict=True) if n}
    for counted in rule._all_index_update_counts.values():
        counted.clear()
        counted.update(known)
    rule.num_update = max(known.values(), default=0)
    if rate is not None and rule.lr_scheduler is None:
        rule.lr = rate.item()


def _kind(rule: Any) -> str:
    return f"optimizer.{type(rule).__name__.lower()}"


__all__ = ["KVStore", "create"]
