"""`KVStoreBase`: MXNet 2's interface of stores, which those of other libraries implement."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, TypeVar

from gemel.errors import GemelError, OperandError

Store = TypeVar("Store", bound=type)


class KVStoreBase:
    """What a `Trainer` needs of a store, which other libraries may implement, as Horovod and BytePS
    do for MXNet.

    Such a class has `pushpull`, `broadcast`, `rank` and `num_workers`. A `Trainer` takes an
    instance, or the name of a class that was registered::

        @KVStoreBase.register
        class MyStore(KVStoreBase): ...

        gluon.Trainer(parameters, "sgd", kvstore="mystore")
    """

    #: A capability: the store updates values by an optimizer.
    OPTIMIZER = "optimizer"
    #: The registered classes, by their names in lower case.
    kv_registry: ClassVar[dict[str, Any]] = {}

    @staticmethod
    def register(klass: Store) -> Store:
        """Let `create` and `Trainer` find a class by its name in lower case, instead of any store
        that has this name. Raises `OperandError` for something that is no class of stores."""
        needed = ("pushpull", "broadcast", "rank", "num_workers")
        if not isinstance(klass, type) or not all(hasattr(klass, name) for name in needed):
            raise OperandError(
                f"KVStoreBase.register: {klass!r} is not a class of stores; give a class that has "
                f"{', '.join(needed)}"
            )
        KVStoreBase.kv_registry[klass.__name__.lower()] = klass
        return klass

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Whether it has a capability, such as `OPTIMIZER`."""
        return False

    @property
    def type(self) -> str:
        """Its name."""
        return type(self).__name__.lower()

    @property
    def rank(self) -> int:
        """The rank of this worker, from 0."""
        self._lacks("rank")

    @property
    def num_workers(self) -> int:
        """The number of workers."""
        self._lacks("num_workers")

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Write the array of worker 0 into the arrays in `out`, on all workers."""
        self._lacks("broadcast")

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sum the arrays in `value` over all workers, and write the sum into those in `out`, or
        into the given ones."""
        self._lacks("pushpull")

    def set_optimizer(self, optimizer: Any) -> None:
        """Update the values by an optimizer."""
        self._lacks("set_optimizer")

    def save_optimizer_states(self, fname: Any, dump_optimizer: bool = False) -> None:
        """Write the states of the optimizer that updates the values to a file."""
        self._lacks("save_optimizer_states")

    def load_optimizer_states(self, fname: Any) -> None:
        """Read what `save_optimizer_states` wrote."""
        self._lacks("load_optimizer_states")

    def _lacks(self, name: str) -> NoReturn:
        raise GemelError(f"kvstore: {type(self).__name__} has no {name}; define it in this class")


__all__ = ["KVStoreBase"]
