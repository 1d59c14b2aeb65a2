"""What a store on servers tells of itself: which server keeps what, and the optimizer's states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gemel.errors import KVStoreError
from gemel.kvstore import states
from gemel.kvstore.base import KVStore, byte_counts
from gemel.kvstore.server.optimizer_states import RemoteUpdater
from gemel.kvstore.server.split import pieces_of
from gemel.optimizer import get_updater

if TYPE_CHECKING:
    from gemel.kvstore.server.connection import Connection
    from gemel.kvstore.server.key import Key
    from gemel.kvstore.server.protocol import Message
    from gemel.kvstore.server.settings import WorkerSettings
    from gemel.links import Topology


class Reports(KVStore):
    """The part of `ServerStore` that sends no gradients."""

    settings: WorkerSettings
    _connections: list[Connection]
    _keys: dict[Any, Key]
    _rounds: bool
    _updater: RemoteUpdater | None = None

    def _ask(self, connection: Connection, message: Message, key: str = "") -> Message:
        raise NotImplementedError

    def _asked(self, server: int, message: Message, key: str) -> Message:
        return self._ask(self._connections[server], message, key)

    def explain(self, topology: Topology | str | None = None, sizes: Sequence[int] = ()) -> str:
        """Say which server keeps which keys, or parts of them, when pushes are summed, and who
        updates; the same text on all workers, which need not call it together.

        With `sizes`, also into how many parts float32 arrays of so many bytes are cut. With a
        `topology`, explain how to sum gradients over its links, as other stores do.
        """
        if topology is not None:
            return super().explain(topology, sizes)
        from gemel.topology.explaining import table  # they need NumPy
        from gemel.topology.units import show_bytes

        parts = sorted(row for one in self._parameters() for row in self._rows(one))
        keys: list[tuple[str, ...]] = [("server", "key", "array", "part", "bytes")]
        keys += [(str(n), name, *texts, show_bytes(size)) for n, name, *texts, size in parts]
        servers = [("server", "address", "keys or parts", "bytes")]
        for number, connection in enumerate(self._connections):
            own = [row[-1] for row in parts if row[0] == number]
            where = ":".join(map(str, connection.address))
            servers.append((str(number), where, str(len(own)), show_bytes(sum(own))))
        said = [self._summary(), table(servers), *([table(keys)] if parts else [])]
        count = len(self._connections)
        for size in byte_counts(sizes):
            cut = len(pieces_of("", int(size) // 4, count, self.settings.piece))
            said.append(f"a float32 array of {show_bytes(size)}: {cut} of {count} servers")
        return "\n\n".join(said)

    def _rows(self, one: Any) -> Iterator[tuple[int, str, str, str, int]]:
        """For each piece of a key: its server, the key, its array, which part, and the bytes."""
        key = self._keys[one]
        for piece in key.pieces:
            whole = len(key.pieces) == 1
            which = "all" if whole else f"elements {piece.begin} to {piece.end - 1}"
            nbytes = (piece.end - piece.begin) * key.itemsize
            yield piece.server, repr(one), f"{key.dtype}{list(key.shape)}", which, nbytes

    def _summary(self) -> str:
        """The rules of this store in three lines."""
        count = len(self._connections)
        when = (
            "a round of a key ends when all workers have pushed it, and sums in the order of ranks"
            if self._rounds
            else "each push updates at once; a worker waits while another one is more than "
            f"{self.settings.staleness} pushes behind (GEMEL_STALENESS)"
        )
        who = "no optimizer is on the servers: they keep what is pushed"
        if self._updater is not None:
            who = f"the servers update by {type(self._updater.optimizer).__name__}"
        elif self._rounds:
            who = "no optimizer is on the servers: they keep sums, and the workers update"
        job = f"{self.num_workers} worker{'s'[: self.num_workers != 1]}"
        return f"{self.type}: {job}, {count} server{'s'[: count != 1]}\n{when}\n{who}"

    # ---- states

    @property
    def updater(self) -> Any:
        """The optimizer's states, if the servers update the values."""
        return self._updater

    def set_updater(self, updater: Any) -> None:
        """Not supported, except for one that this store had: a function cannot be sent."""
        if isinstance(updater, RemoteUpdater):
            self.set_optimizer(updater.optimizer)
            self._updater = updater
            return
        raise KVStoreError(
            "kvstore: an updater is code, which is not sent to servers; use set_optimizer"
        )

    def save_optimizer_states(self, fname: Any, dump_optimizer: bool = False) -> None:
        """Write the states, which the servers have, to a file, after this worker's pushes."""
        states.save_states(fname, self._needed_updater(), self._parameters())

    def load_optimizer_states(self, fname: Any) -> None:
        """Replace the states on the servers, which are those after this worker's pushes."""
        updater, keys = self._needed_updater(), self._parameters()
        whole = get_updater(updater.optimizer)
        states.load_states(fname, [whole], keys, [self._keys[key].shape for key in keys])
        updater.restore(whole.arrays())

    def _needed_updater(self) -> RemoteUpdater:
        if self._updater is None:
            raise KVStoreError("kvstore: there are no optimizer states; call set_optimizer first")
        return self._updater

    def _parameters(self) -> list[Any]:
        """The keys in the order of files of states."""
        known = [one for one, key in self._keys.items() if not key.barrier]
        return sorted(known, key=lambda key: (isinstance(key, str), key))


__all__ = ["Reports"]
