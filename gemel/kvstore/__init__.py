"""Key-value stores: where the gradients of several devices and machines meet.

A store keeps a value for each key. `push` adds up what several devices have for a key, `pull` gives
every device the value; `pushpull` does both. Everything is issued and nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gemel.errors import GemelError, unknown_name
from gemel.kvstore.base import KVStore
from gemel.kvstore.local import LocalStore
from gemel.kvstore.mpi import MpiStore
from gemel.kvstore.states import load_states, save_states


def _missing(name: str) -> KVStore:
    raise GemelError(
        f"kvstore {name!r}: asynchronous training needs a parameter server, which is not there "
        "yet; use 'dist_sync', or on one machine 'device' or 'local'"
    )


#: What makes the store of each name; it is given the name.
KINDS: dict[str, Callable[[str], KVStore]] = {
    "local": partial(LocalStore, on_devices=False),
    "local_allreduce_cpu": partial(LocalStore, on_devices=False),
    "device": partial(LocalStore, on_devices=True),
    "local_allreduce_device": partial(LocalStore, on_devices=True),
    "dist": MpiStore,
    "dist_sync": MpiStore,
    "dist_device_sync": MpiStore,
    "dist_sync_device": MpiStore,
    "dist_async": _missing,
}


def create(name: str = "local") -> KVStore:
    """A store: ``"device"`` adds values up on their devices, ``"local"`` on the CPU.

    ``"dist_sync"`` adds up over all workers of an MPI job, too. Raises `UnknownNameError`,
    `WorkersError` where workers cannot be joined, and `GemelError` for stores not there yet.
    """
    if name not in KINDS:
        raise unknown_name("kvstore", name, KINDS)
    return KINDS[name](name)


__all__ = ["KVStore", "create", "load_states", "save_states"]
