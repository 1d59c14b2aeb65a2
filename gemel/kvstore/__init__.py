"""Key-value stores: the collective communication behind `Trainer`, with MXNet's interface.

A store keeps one value per key. `push` sums the arrays that several devices have for a key, `pull`
copies the value to every device, and `pushpull` does both (an all-reduce). Calls return at once.

`plugin`
    The smaller interface that stores of other libraries implement.
`base`, `local`, `compression`, `states`, `traffic`
    The interface, and the store for the devices of one process, perhaps over simulated links.
`mpi`, `world`, `agreement`, `tally`, `ways`, `measuring`, `passing`
    ``dist_sync``: one thread per worker talks to the others (`world`); rank 0 decides the order of
    sums (`agreement`) and their algorithm (`ways`), from measured costs; `passing` runs it. At a
    barrier workers compare what they have pushed (`tally`).
`step_schedules`, `courier`
    Sums that repeat in every step: agreed on once, then sent without asking.
`wire`, `sockets`, `waiting`
    The connections: MPI and sockets, and how to wait for them without keeping a core busy.
`server/`
    Parameter servers: ``dist_async`` and ``dist_sync_server``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType

from gemel import config
from gemel.elsewhere import module_elsewhere
from gemel.errors import unknown_name
from gemel.kvstore.base import KVStore, KVStoreBase
from gemel.kvstore.local import LocalStore
from gemel.kvstore.mpi import MpiStore
from gemel.kvstore.states import load_states, save_states


def _by_servers(name: str) -> KVStore:
    """Create a store whose values are on the parameter servers that the environment names."""
    from gemel.kvstore.server.client import ServerStore  # few programs need it

    return ServerStore(name)


def _together(name: str) -> KVStore:
    """Create a store of several workers: on parameter servers if there are some, otherwise over
    MPI."""
    return _by_servers(name) if config.SERVERS.read() else MpiStore(name)


#: The function that makes the store of each name; it is called with the name.
KINDS: dict[str, Callable[[str], KVStore]] = {
    "local": partial(LocalStore, on_devices=False),
    "local_allreduce_cpu": partial(LocalStore, on_devices=False),
    "device": partial(LocalStore, on_devices=True),
    "local_allreduce_device": partial(LocalStore, on_devices=True),
    "dist": _together,
    "dist_sync": _together,
    "dist_device_sync": _together,
    "dist_sync_device": _together,
    "dist_sync_server": _by_servers,
    "dist_async": _by_servers,
}


def create(name: str = "local") -> KVStore:
    """Create a store: ``"device"`` sums values on their devices, ``"local"`` on the CPU.

    ``"dist_sync"`` also sums over all workers of an MPI job or, if GEMEL_SERVERS is set, over
    parameter servers, which ``"dist_async"`` and ``"dist_sync_server"`` need. The name of a class
    that was registered with `KVStoreBase.register` creates one of these. Raises
    `UnknownNameError`, and `WorkersError` if workers or servers cannot be joined.
    """
    if isinstance(name, str):
        if name.lower() in KVStoreBase.kv_registry:
            made: KVStore = KVStoreBase.kv_registry[name.lower()]()  # or has some of its methods
            return made
        if name in KINDS:
            return KINDS[name](name)
    raise unknown_name("kvstore", name, [*KINDS, *KVStoreBase.kv_registry])


__all__ = ["KVStore", "KVStoreBase", "create", "load_states", "save_states"]


def __getattr__(name: str) -> ModuleType:
    return module_elsewhere(__name__, name, __all__)
