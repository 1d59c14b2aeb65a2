"""The states of an optimizer that updates on the servers: how they are sent, read and replaced."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from gemel import np
from gemel.errors import ProtocolError
from gemel.kvstore.server.key import Key, contents
from gemel.kvstore.server.protocol import DTYPES, Kind, Message, array_message

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy

    Values = numpy.ndarray[Any, Any]

#: The bytes at the start of packed states that say how long their description is, the most bytes
#: of a description, and the most bytes of states for each element of their parameter.
LENGTH, MOST_DESCRIPTION, MOST_PER_ELEMENT = 4, 1 << 14, 64


def most_bytes(shape: Sequence[int]) -> int:
    """The most bytes that the states of such a parameter may have as a message."""
    return prod(shape) * MOST_PER_ELEMENT + MOST_DESCRIPTION + LENGTH


def packed(count: int, arrays: Sequence[Any]) -> Values:
    """The number of updates of a parameter and its arrays as bytes: the length of a description,
    the description as JSON, then the elements of each array (little-endian)."""
    import numpy

    described = [[array.dtype.name, list(array.shape)] for array in arrays]
    text = json.dumps({"count": count, "arrays": described}).encode()
    parts = [len(text).to_bytes(LENGTH, "big"), text]
    parts += [array.astype(array.dtype.newbyteorder("<")).tobytes() for array in arrays]
    return numpy.frombuffer(b"".join(parts), "uint8")


def unpacked(given: Values) -> tuple[int, list[Values]]:
    """What `packed` was given. Raises `ProtocolError` for anything else."""
    import numpy

    data = given.tobytes()
    size = int.from_bytes(data[:LENGTH], "big")
    try:
        said = json.loads(data[LENGTH : LENGTH + min(size, MOST_DESCRIPTION)])
        count, described = said["count"], said["arrays"]
        start, arrays = LENGTH + size, []
        if type(count) is not int or not 0 <= count < 1 << 53:
            raise ValueError(f"{count!r} updates")
        for name, shape in described:
            if name not in DTYPES or not all(type(n) is int and n >= 0 for n in shape):
                raise ValueError(f"an array of {name!r} {shape!r}")
            kind = numpy.dtype(name).newbyteorder("<")
            array = numpy.frombuffer(data, kind, prod(shape), start).reshape(shape)
            arrays.append(array.astype(name))
            start += array.nbytes
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"RESTORE: these are no states of an optimizer: {error}") from None
    if start != len(data):
        raise ProtocolError(f"RESTORE: {len(data)} bytes for states of {start}")
    return count, arrays


class RemoteUpdater:
    """An `Updater` whose states are on the servers; keys are updated by pushing them.

    `ask(server, message, name)` sends a message and returns its answer.
    """

    #: Which states have a float32 copy of the weight: the servers know it.
    masters: dict[Any, bool] = {}  # noqa: RUF012

    def __init__(
        self,
        optimizer: Any,
        keys: dict[Any, Key],
        ask: Callable[[int, Message, str], Message],
        took_over: bool,
    ) -> None:
        self.optimizer = optimizer
        self._keys, self._ask, self._took_over = keys, ask, took_over

    def _parameters(self) -> list[tuple[Any, Key]]:
        return [(one, key) for one, key in self._keys.items() if not key.barrier]

    def arrays(self) -> dict[Any, list[Any]]:
        """The arrays of each key's state, after all pushes of this worker and, with rounds, of the
        same step of the others; waits for them."""
        found = {}
        for one, key in self._parameters():
            sequence = _pushed(key)
            parts = []
            for piece in key.pieces:
                message = Message(Kind.STATE, key=key.number(piece), sequence=sequence)
                answer = self._ask(piece.server, message, key.name)
                parts.append(unpacked(answer.array())[1])
            joined = [_joined(key, each) for each in zip(*parts, strict=True)]
            if joined:
                found[one] = [np.array(array, dtype=array.dtype.name) for array in joined]
        return found

    def restore(self, arrays: dict[Any, list[Any]], masters: Any = None) -> None:
        """Replace the states and the numbers of updates, which are those of the optimizer here.

        Without `masters` they are from a file: also if it has none, because nothing was updated.
        A worker that took over from one that died, or from an earlier job, leaves the servers as
        they are until it has pushed: they are further than what its program began with.
        """
        counts, begun = self.optimizer._index_update_count, self.optimizer.begin_num_update
        keys = self._parameters()
        same = all(counts.get(one, n) == n for one, n in self._counts().items())
        if masters is not None and same and not arrays:
            return  # nothing was loaded
        for one, key in keys:
            sequence = _pushed(key)
            count = counts.get(one, 0)
            over = self._took_over and sequence == key.joined
            key.ahead = max(count, begun) - begun - (0 if over else sequence)
            # Without rounds, each worker's pushes are updates of their own.
            updates = count if key.rounds else count * key.workers
            for piece in key.pieces if not over else ():
                parts = [_part(key, piece, contents(array)) for array in arrays.get(one, [])]
                fields = {"key": key.number(piece), "sequence": sequence}
                message = array_message(Kind.RESTORE, packed(updates, parts), **fields)
                self._ask(piece.server, message, key.name)

    def _counts(self) -> dict[Any, int]:
        begun = self.optimizer.begin_num_update
        return {one: begun + key.pushes + key.ahead for one, key in self._parameters()}


def _pushed(key: Key) -> int:
    """How often this worker has pushed a key, once all of these are on their way."""
    with key.order:
        sequence, flag = key.pushes, key.flag
    if flag is not None:
        flag.wait_to_read()
    if key.error is not None:
        raise key.error
    return sequence


def _joined(key: Key, parts: Sequence[Values]) -> Values:
    """An array of a state, from those of the key's pieces."""
    import numpy

    return parts[0] if len(parts) == 1 else numpy.concatenate(parts).reshape(key.shape)


def _part(key: Key, piece: Any, array: Values) -> Values:
    """A piece's part of an array of a state."""
    return array.reshape(-1)[piece.begin : piece.end].reshape(key.extents(piece))


__all__ = ["RemoteUpdater", "most_bytes", "packed", "unpacked"]
