"""The interface of key-value stores."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import accumulate
from math import inf
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from gemel import _core
from gemel.device import Device
from gemel.device import topology as topology_of
from gemel.errors import ArgumentError, GemelError, KVStoreError, OperandError, ShapeError
from gemel.kvstore.plugin import KVStoreBase
from gemel.lists import as_list

if TYPE_CHECKING:
    from gemel.links import Topology

#: Workers compare their optimizers after so many steps again, and in steps 1, 2, 4, 8, ... In every
#: step that would be a message for rates that are equal nearly always.
COMPARED = 16
#: The settings that all optimizers have.
SHARED = ("clip_gradient", "lr", "rescale_grad", "wd")

#: Why a store has neither counters nor a choice of ways to sum.
_ONE_WAY = "has one way to sum; only workers of dist_sync without servers choose, and count"


class KVStore(KVStoreBase, ABC):
    """A store with one value per key, which sums the arrays that devices push. Keys are whole
    numbers or strings.

    Every method takes one key with its values, or a list of keys with a list of their values. The
    values of a key are an array, or a list of arrays on several devices.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        #: The number of steps with each optimizer that may be compared with the other workers'.
        self._steps: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        #: Held by the thread that exchanges texts, which takes two messages.
        self._gathering = threading.Lock()

    def __reduce__(self) -> Any:
        raise OperandError(
            f"kvstore {self._name!r}: a store belongs to its process and cannot be copied or "
            "pickled; call kvstore.create there"
        )

    @property
    def type(self) -> str:
        """Its name, as given to `create`."""
        return self._name

    @property
    def rank(self) -> int:
        """The rank of this worker; 0 if there is only one."""
        return 0

    @property
    def num_workers(self) -> int:
        """The number of workers; 1 unless the store is distributed."""
        return 1

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Whether it has a capability: ``"optimizer"`` means `set_optimizer`."""
        return capability == KVStoreBase.OPTIMIZER

    @property
    def keeps_parameters(self) -> bool:
        """Whether the store holds a `Trainer`'s parameters outside this process."""
        return False

    @property
    def updater(self) -> Any:
        """The function that updates the values in this process; None if there is none."""
        return None

    def barrier(self) -> None:
        """Wait until all workers have called this; with one worker return at once."""
        return

    def gathered(self, text: str) -> list[str]:
        """Exchange a text: returns the texts of all workers, by rank. All workers must call it.
        Calls from several threads are made one after the other, in any order. Raises
        `ArgumentError` for what cannot be sent as UTF-8."""
        encoded(text)
        return [text]

    @property
    def step(self) -> int:
        """The number of steps after which a program continues that was restarted: 0, unless the
        values outlive the process."""
        return 0

    @abstractmethod
    def share(self, key: Any) -> int:
        """The number of workers whose pushes are in a key's value; 0 before the first push."""

    def statistics(self) -> dict[str, float]:
        """Counters of what was sent, of ``dist_sync`` over MPI. Raises `KVStoreError`."""
        raise KVStoreError(f"statistics: kvstore {self._name!r} {_ONE_WAY}")

    def set_schedule(self, schedule: str) -> None:
        """Set how to sum, for ``dist_sync`` over MPI. Raises `KVStoreError`."""
        raise KVStoreError(f"set_schedule: kvstore {self._name!r} {_ONE_WAY}")

    def agree(self, optimizer: Any) -> None:
        """Compare the optimizer of this worker's next step with those of the others, in steps 1, 2,
        4, 8 and every 16th; replicas that are updated by different rules would come apart. Does not
        wait: if they differ, sums fail with a `WorkersError`."""
        if self.num_workers == 1:
            return
        count = self._steps[optimizer] = self._steps.get(optimizer, 0) + 1
        if count % COMPARED == 0 or count & (count - 1) == 0:
            self._compare(f"rule {settings_of(optimizer)}")

    def claim(self, key: Any, parameter: Any) -> None:
        """Note that a `Trainer` begins to use a key for a parameter. Raises `KVStoreError` where
        another parameter has it and its values would be mixed up with this one's."""
        return

    def _compare(self, rule: str) -> None:
        """Begin to compare a text about an optimizer with the other workers'."""
        return

    # ---- values

    @abstractmethod
    def init(self, key: Any, value: Any) -> None:
        """Initialize each key with a copy of the (first) array given. A key that the store has
        gets the new value, on parameter servers it keeps its value; in MXNet that is an error."""

    @abstractmethod
    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Sum the arrays of each key. The sum becomes the key's value, or updates it by the
        optimizer.

        Of several ready keys, those with a higher `priority` go first.
        """

    @abstractmethod
    def pull(self, key: Any, out: Any, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Write each key's value into the arrays in `out`."""

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """`push`, then `pull` into `out`; without `out` into the pushed arrays."""
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, then `pull`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def row_sparse_pull(self, *arguments: Any, **settings: Any) -> None:
        """Not supported: values are dense; `pull` returns all rows."""
        raise GemelError("row_sparse_pull: values are dense; use pull")

    @abstractmethod
    def totals(
        self,
        keys: Sequence[Any],
        values: Sequence[Sequence[Any]],
        devices: Sequence[Device],
        blocks: Sequence[Sequence[Sequence[Any]]] = (),
    ) -> list[list[Any]]:
        """All-reduce a `Trainer`'s gradients: for each device, the sums of the arrays of each key,
        which are on these devices.

        `blocks` may have, for each array of each key, the same elements in blocks of rows, of which
        the first are ready earlier; an empty list if there are none.
        """

    def blocks(self, value: Any, later: int = 0) -> int:
        """The number of row blocks in which a gradient like this array is best passed to
        `totals`; `later` is how many bytes of other gradients backward computes after it."""
        return 1

    def explain(self, topology: Topology | str | None = None, sizes: Sequence[int] = ()) -> str:
        """Describe how gradients of `sizes` bytes (by default those of the keys) are summed.

        A table of the schedule that is predicted to be the fastest for each size and why, drawings
        of the rings and trees among them, and which of the keys should travel together. `topology`
        is a `gemel.topology.Topology` or a name of one, such as ``"p3"``; by default the simulated
        GPUs of this machine. Raises `DeviceError` where there are none, and `ArgumentError` for
        something else than a topology or numbers.
        """
        from gemel import topology as planning  # it needs NumPy

        links = topology_of(topology) if topology is None or isinstance(topology, str) else topology
        if not isinstance(links, planning.Topology):
            raise ArgumentError(
                f"explain: {_described(topology)} is not a topology; give a "
                'gemel.topology.Topology or the name of one, such as "p3"'
            )
        planner = planning.Planner(links)
        given = byte_counts(sizes) or self._sizes()
        if not given:
            return planner.explain()
        shown = sorted({float(size) for size in given})
        return f"{planner.explain(shown)}\n\n{planner.together(given)}"

    def _sizes(self) -> list[int]:
        """The size in bytes of each key's value, the last key first, as backward produces them."""
        return []

    # ---- updating

    @abstractmethod
    def set_updater(self, updater: Any) -> None:
        """Update the value of a key by `updater(key, sum, value)`, which changes the value."""

    def _set_updater(self, updater: Any) -> None:
        """Same as `set_updater`; MXNet's tutorials use this name."""
        self.set_updater(updater)

    @abstractmethod
    def set_optimizer(self, optimizer: Any) -> None:
        """Update the value of a key by an optimizer; the pushed sum is the gradient."""

    def scale_gradients(self, scale: float, owner: Any = None) -> None:
        """Say that what is pushed from now on is multiplied by `scale`, as the loss is: errors that
        compression keeps are multiplied as well. They are kept for each `owner` of gradients, such
        as a `Trainer`, separately. Without compression this does nothing."""
        return

    @abstractmethod
    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """Send gradients in fewer bits."""

    @abstractmethod
    def save_optimizer_states(self, fname: Any, dump_optimizer: bool = False) -> None:
        """Write the states of the optimizer that updates the values to a file.

        It also has the numbers of updates and, without a scheduler, the learning rate. Its other
        settings are not written, whatever `dump_optimizer` is, which MXNet's programs pass.
        """

    @abstractmethod
    def load_optimizer_states(self, fname: Any) -> None:
        """Read what `save_optimizer_states` wrote."""


def pairs(key: Any, value: Any) -> list[tuple[Any, list[Any]]]:
    """Return each key with the list of its arrays.

    Raises `ArgumentError` for something that is not a key or not an array, and `ShapeError` for a
    key without arrays.
    """
    several = isinstance(key, (list, tuple))
    if several and not isinstance(value, (list, tuple)):
        raise ArgumentError(
            f"kvstore: with a list of {len(key)} keys, give a list with the values of each key, "
            f"not {_described(value)}"
        )
    keys, values = (list(key), list(value)) if several else ([key], [value])
    if len(keys) != len(values):
        raise ShapeError(f"kvstore: {len(keys)} keys were given, but values for {len(values)}")
    found = []
    for one, given in zip(map(plain_key, keys), values, strict=True):
        arrays = as_list(given)
        if not arrays:
            raise ShapeError(f"kvstore: no array was given for key {one!r}")
        for array in arrays:
            if not isinstance(array, _core.Array):
                raise ArgumentError(
                    f"kvstore: {_described(array)}, given for key {one!r}, is not a gemel array; "
                    "np.array creates one"
                )
        found.append((one, arrays))
    return found


def plain_key(key: Any) -> int | str:
    """The key in a form that is the same on all workers, whatever integer type they use. Raises
    `ArgumentError` for something that is not a key."""
    if isinstance(key, str):
        return str.__str__(key)
    if not isinstance(key, (bool, _core.Array)):
        with suppress(TypeError, ValueError):  # ValueError: more digits than Python prints
            number = index(key)
            str(number)
            return number
    raise ArgumentError(
        f"kvstore: {_described(key)} is not a key; keys are strings, or whole numbers that can be "
        "printed"
    )


def settings_of(optimizer: Any) -> str:
    """An optimizer's class, the number of its parameters, the numbers by which it divides and
    multiplies gradients, and the settings of gemel's own classes; others may have attributes that
    differ between workers."""
    kind = type(optimizer)
    known = vars(optimizer) if kind.__module__.startswith("gemel.") else SHARED
    found = {name: getattr(optimizer, name) for name in sorted(known) if name[0] != "_"}
    found.update(lr=optimizer.learning_rate, num_update=None)
    if parameters := getattr(optimizer, "param_dict", None):
        found["parameters"] = len(parameters)
    numbers = [f"{name}={value}" for name, value in found.items() if isinstance(value, Real)]
    return f"{kind.__name__}({', '.join(numbers)})"


def encoded(text: Any) -> bytes:
    """The bytes of a text that workers exchange. Raises `ArgumentError` if it has none."""
    with suppress(ValueError):  # half of a surrogate pair
        if isinstance(text, str):
            return text.encode()
    raise ArgumentError(
        f"gathered: {_described(text)} cannot be sent; give a string without halves of surrogate "
        "pairs, such as json.dumps makes of other values"
    )


def byte_counts(sizes: Any) -> list[Any]:
    """Numbers of bytes as a list. Raises `ArgumentError` for anything but a list of finite numbers
    from 0."""
    with suppress(TypeError):
        found = list(sizes)
        numbers = (isinstance(size, Real) or getattr(size, "ndim", None) == 0 for size in found)
        if all(numbers) and all(0 <= size < inf for size in found):
            return found
    raise ArgumentError(
        f"explain: {_described(sizes)}, given as sizes, is not a list of numbers of bytes, finite "
        "and not below 0, such as [4096, 65536]"
    )


def bytes_before(values: Sequence[Sequence[Any]]) -> list[int]:
    """For each key, the bytes of the keys before it: the gradients that backward computes later."""
    sizes = (arrays[0].nbytes for arrays in values)
    return list(accumulate(sizes, initial=0))[:-1]


def alike_key(key: Any, known: Iterable[Any]) -> str:
    """For an error about an unknown key: that there is one with the same text, but another type."""
    for other in known:
        if str(other) == str(key):
            return f"; there is a key {other!r}, but {other!r} and {key!r} are different keys"
    return ""


def _described(value: Any) -> str:
    name = type(value).__name__
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{name} of shape {tuple(shape)}"
    try:
        return f"{name} {value!r:.60}"
    except ValueError:
        return f"{name} with more digits than Python prints"


__all__ = [
    "KVStore",
    "KVStoreBase",
    "alike_key",
    "byte_counts",
    "bytes_before",
    "encoded",
    "pairs",
    "plain_key",
    "settings_of",
]
