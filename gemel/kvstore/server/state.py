"""The state of a parameter server, as a machine that only messages change.

The same messages in the same order give the same bits, so a restarted server that reads its journal
has the old state again. This module knows nothing about sockets, files or clocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel.errors import KVStoreError, LeftOutError, ProtocolError, UnknownKeyError, WorldError
from gemel.kvstore.server.entries import Entry, declared
from gemel.kvstore.server.optimizer_states import packed, unpacked
from gemel.kvstore.server.protocol import Kind, Message, array_message
from gemel.kvstore.server.updates import Updates

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy

    from gemel.kvstore.server.protocol import Numbers

    Values = numpy.ndarray[Any, Any]

#: The most keys of one server.
MOST_KEYS = 1 << 20
#: The most comparisons of optimizers that are kept for the workers that come later.
MOST_RULES = 1 << 10


class State:
    """Values by key, the open rounds, and the participants: at the start, `workers` ranks."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        #: Which server this is of how many, as the first worker has said: its keys depend on it.
        self.place: tuple[int, int] | None = None
        self.entries: dict[int, Entry] = {}
        #: Ranks that have finished or were left out.
        self.gone: set[int] = set()
        self.finished: set[int] = set()
        self.updates: Updates | None = None
        #: For each comparison of optimizers, by the round at which the workers began and its number
        #: since then: one of the workers, and its text. These are not saved: if a server is started
        #: again, comparisons that are under way are left out.
        self.rules: dict[tuple[int, int], tuple[int, str]] = {}

    @property
    def live(self) -> list[int]:
        """The ranks that take part."""
        return [rank for rank in range(self.workers) if rank not in self.gone]

    def take_place(self, rank: int, place: Any) -> bool:
        """Learn from a worker which server this is of how many; returns whether that is new.

        A key's server depends on both, so a worker with another list of servers would look for keys
        where the others do not push them, or where they have never been. Raises `WorldError`.
        """
        whole = [one for one in place if type(one) is int] if isinstance(place, list) else []
        if len(whole) != 2 or not 0 <= whole[0] < whole[1]:
            raise ProtocolError(f"HELLO: {place!r} is not the place of a server")
        number, count = whole
        if self.place not in (None, (number, count)):
            known, of = self.place
            raise WorldError(
                f"kvstore: for worker {rank} this is server {number} of {count} (GEMEL_SERVERS), "
                f"but it has the keys of server {known} of {of}; all workers, and all jobs with "
                "the same --folder, need the same servers in the same order"
            )
        new = self.place is None
        self.place = number, count
        return new

    def begin_anew(self, workers: int) -> None:
        """Let another job, with this many workers, continue from the values.

        All its ranks count as having done the rounds that have ended. Pushes of a round that has
        not ended are dropped, because the new workers repeat it.
        """
        self.workers = workers
        self.gone, self.finished = set(), set()
        for entry in self.entries.values():
            entry.begin_anew(workers)

    def apply(self, rank: int, message: Message) -> bool:
        """Apply a message; returns whether it changed anything.

        If the message is refused, raises a `KVStoreError` and changes nothing.
        """
        handle = _HANDLERS.get(message.kind)
        if handle is None:
            raise ProtocolError(f"{message.kind.name} is not a message to a server")
        return handle(self, rank, message)

    def entry(self, rank: int, number: int) -> Entry:
        """The entry of a key. Raises `UnknownKeyError`."""
        if number not in self.entries:
            raise UnknownKeyError(
                f"kvstore: worker {rank} asks for a key (number {number:016x}) that this server "
                "does not have; call init first"
            )
        return self.entries[number]

    def _takes_part(self, rank: int) -> None:
        if rank in self.gone:
            raise LeftOutError(
                f"kvstore: worker {rank} was left out: it was silent for too long, and the "
                "others continued; restart it to join"
            )

    # ---- messages

    def _declare(self, rank: int, message: Message) -> bool:
        values = message.values()
        found = declared(message.key, values)
        known = self.entries.get(message.key)
        if known is not None:
            known.agree(rank, found)
            return False
        if len(self.entries) >= MOST_KEYS:
            raise ProtocolError(f"DECLARE: a server has at most {MOST_KEYS} keys")
        self.entries[message.key] = found
        return True

    def _init(self, rank: int, message: Message) -> bool:
        entry = self.entry(rank, message.key)
        entry.fits(rank, message)
        if entry.value is not None or rank not in (0, min(self.live, default=0)):
            return False
        entry.value = message.array().astype(message.dtype)
        self._finish(message.key, entry)
        return True

    def _push(self, rank: int, message: Message) -> bool:
        """Take a worker's push; False for one that was taken before. Raises `WorldError`."""
        self._takes_part(rank)
        entry = self.entry(rank, message.key)
        entry.fits(rank, message)
        if self.updates is not None:
            entry.takes_steps(rank)
        if not entry.follows(rank, message.sequence):
            return False
        if entry.rounds:
            others = entry.pending.get(message.sequence, {})
            for other, (_, numbers) in others.items():
                if numbers != message.numbers:
                    raise WorldError(
                        f"kvstore: worker {rank} pushes {entry} with (learning rate, scale, "
                        f"decay) {message.numbers}, worker {other} with {numbers}; all workers "
                        "must use the same learning rate and the same batch size, that of all "
                        "workers together"
                    )
            entry.pending.setdefault(message.sequence, {})[rank] = message.array(), message.numbers
            entry.last[rank] = message.sequence
            self._finish(message.key, entry)
        else:
            self._move(message.key, entry, message.array(), message.numbers)
            entry.last[rank] = message.sequence
        return True

    def _optimizer(self, rank: int, message: Message) -> bool:
        description = message.values()
        if self.updates is not None and self.updates.description != description:
            raise WorldError(
                f"kvstore: worker {rank} sets the optimizer {description.get('name')} "
                f"{description.get('settings')}; the servers have "
                f"{self.updates.description['name']} {self.updates.description['settings']}"
            )
        if self.updates is not None:
            return False
        self.updates = Updates(description)
        return True

    def _compare(self, rank: int, message: Message) -> bool:
        """Compare an optimizer that a worker has for itself with those of the other workers that
        began at the same round; at another round it may have another learning rate."""
        values = message.values()
        rule, turn = values.get("rule"), values.get("turn")
        if not isinstance(rule, str) or isinstance(turn, bool) or not isinstance(turn, int):
            raise ProtocolError(f"COMPARE: rule {turn!r} has no number, or is not a text")
        place = message.sequence, turn
        other, known = self.rules.get(place, (rank, rule))
        if rule != known and other != rank:
            raise WorldError(
                f"kvstore: the workers disagree about the optimizer: worker {rank} has a {rule}, "
                f"worker {other} a {known}"
            )
        self.rules[place] = rank if rule != known else other, rule
        if len(self.rules) > MOST_RULES:
            del self.rules[next(iter(self.rules))]
        return False

    def _activate(self, rank: int, message: Message) -> bool:
        """Let a rank take part after a round.

        The rank may take part already, because it was not silent for long enough to be left out
        here, or because it asks again for a later round after another server had ended the one it
        asked for first. Earlier rounds do not wait for it any more.
        """
        if self.newest() > message.sequence:
            return False
        others = [other for other in self.live if other != rank]
        self.gone.discard(rank)
        self.finished.discard(rank)
        for number, entry in self.entries.items():
            entry.join(rank, message.sequence, others)
            self._finish(number, entry)
        return True

    def _leave(self, rank: int, message: Message) -> bool:
        if rank in self.gone:
            return False
        self.gone.add(rank)
        if message.kind == Kind.LEAVE:
            self.finished.add(rank)
        for number, entry in self.entries.items():
            self._finish(number, entry)
        return True

    def _restore(self, rank: int, message: Message) -> bool:
        """Replace the state of a key's optimizer, unless the worker has pushed since, or others
        have ended a later round: then a message comes twice."""
        self._takes_part(rank)
        entry, updates = self.entry(rank, message.key), self._updating(rank)
        later = entry.version if entry.rounds else entry.last.get(rank, 0)
        if later > message.sequence or entry.value is None:
            return False
        updates.replace(message.key, entry.value, *unpacked(message.array()))
        return True

    def _updating(self, rank: int) -> Updates:
        if self.updates is None:
            raise KVStoreError(
                f"kvstore: worker {rank} asks for optimizer states, but the servers have no "
                "optimizer; call set_optimizer first"
            )
        return self.updates

    # ---- rounds

    def _finish(self, number: int, entry: Entry) -> None:
        """End the rounds of a key that can end, one after the other."""
        while entry.rounds and entry.value is not None:
            came = entry.pending.get(entry.version + 1, {})
            needed = entry.needed(entry.version + 1, self.workers, self.gone)
            if not came or any(rank not in came for rank in needed):
                return
            pushes = [came[rank] for rank in sorted(came)]
            del entry.pending[entry.version + 1]
            entry.previous_share, entry.share = entry.share, len(pushes)
            rate, scale, decay = pushes[0][1]
            total = _sum([array for array, _ in pushes])
            missing = self.workers / len(pushes)
            if self.updates is None and missing != 1 and not entry.barrier:
                total = (total * missing).astype(total.dtype)
            self._move(number, entry, total, (rate, scale * missing, decay))

    def _move(self, number: int, entry: Entry, total: Values, numbers: Numbers) -> None:
        entry.previous = entry.value
        if self.updates is None or entry.barrier:
            entry.value = total.astype(entry.dtype)
        else:
            entry.value = self.updates(number, total, entry.value, numbers)
        entry.version += 1

    # ---- answers

    def answer(self, rank: int, message: Message) -> Message | None:
        """The value that a worker asks for; None while the worker has to wait.

        With rounds, this is the value after the round that the worker pushed last, `sequence`, even
        if the next round has ended. Without rounds it is the present value, once the worker's own
        pushes are in it and no worker is more than `staleness` pushes behind.
        """
        self._takes_part(rank)
        entry = self.entry(rank, message.key)
        fields: dict[str, Any] = {"tag": message.tag, "key": message.key}
        if message.kind == Kind.STATE:
            updates, known = self._updating(rank), entry.last.get(rank, 0)
            if (entry.version if entry.rounds else known) < message.sequence:
                return None
            return array_message(Kind.VALUE, packed(*updates.state(message.key)), **fields)
        if entry.value is None:
            return None
        value, share, version = entry.value, entry.share, entry.version
        if not entry.rounds:
            slowest = min((entry.last.get(other, 0) for other in self.live), default=0)
            own = entry.last.get(rank, 0)
            if own < message.sequence or slowest < message.sequence - entry.staleness:
                return None
        elif message.sequence > version:
            return None
        elif message.sequence + 1 == version and entry.previous is not None:
            value, share, version = entry.previous, entry.previous_share, version - 1
        elif message.sequence != version:
            raise WorldError(
                f"kvstore: worker {rank} asks for round {message.sequence} of {entry}, which is in "
                f"round {version}"
            )
        numbers = float(share), float(self.workers), 0.0
        return array_message(Kind.VALUE, value, numbers=numbers, sequence=version, **fields)

    def missing(self, number: int, sequence: int) -> list[int]:
        """The ranks that a worker waits for when it asks for round `sequence` of a key."""
        entry = self.entries.get(number)
        if entry is None:
            return []
        if entry.value is None:
            return [0]
        if not entry.rounds:
            oldest = sequence - entry.staleness
            return [rank for rank in self.live if entry.last.get(rank, 0) < oldest]
        came = entry.pending.get(entry.version + 1, {})
        needed = entry.needed(entry.version + 1, self.workers, self.gone)
        return [rank for rank in needed if rank not in came]

    def pushed(self, rank: int) -> tuple[int, int] | None:
        """The fewest and the most pushes of a rank, among the keys.

        After the first step, keys that nobody has ever pushed, such as those of running statistics,
        do not count.
        """
        entries = [entry for entry in self.entries.values() if not entry.barrier]
        counts = [entry.last.get(rank, 0) for entry in entries]
        if max(counts, default=0) > 1:
            counts = [entry.last.get(rank, 0) for entry in entries if any(entry.last.values())]
        return (min(counts), max(counts)) if counts else None

    def newest(self) -> int:
        """The last round that the furthest key has ended."""
        versions = [e.version for e in self.entries.values() if e.rounds and not e.barrier]
        return max(versions, default=0)


def _sum(arrays: list[Values]) -> Values:
    """The sum in the order of ranks; float16 is summed in float32."""
    first = arrays[0]
    if first.dtype.name == "float16":
        return _sum([array.astype("float32") for array in arrays])
    total = first.astype(first.dtype.newbyteorder("="))
    for array in arrays[1:]:
        total = total + array
    return total


_HANDLERS: dict[Kind, Callable[[State, int, Message], bool]] = {
    Kind.DECLARE: State._declare,
    Kind.INIT: State._init,
    Kind.PUSH: State._push,
    Kind.OPTIMIZER: State._optimizer,
    Kind.COMPARE: State._compare,
    Kind.ACTIVATE: State._activate,
    Kind.RESTORE: State._restore,
    Kind.LEAVE: State._leave,
    Kind.LEFT_OUT: State._leave,
}

__all__ = ["State"]
