"""Where an epoch of an `Estimator` is in its data, so that another process can go on from there."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

from gemel import np
from gemel.errors import ParameterFileError
from gemel.gluon.checkpoint import packed, set_streams, streams, unpacked
from gemel.npx import serialize

if TYPE_CHECKING:
    from collections.abc import Iterator


class Position:
    """How many batches of its epoch are done, and what decides which ones the others are: the
    random streams at the epoch's begin, and the state that the data had then, if they have one."""

    def __init__(self) -> None:
        self.done = 0
        self._begun: dict[str, Any] = {}
        self._data: Any = None
        self._read: dict[str, Any] | None = None

    def batches(self, data: Any) -> Iterator[Any]:
        """The batches of an epoch; of one that is resumed, those that were left."""
        read, self._read = self._read, None
        left_out = 0
        if read is not None:
            left_out = read["done"]
            set_streams(read["begun"])
            if read["data"] is not None:
                data.load_state_dict(read["data"])
        self._begun, self.done = streams(), 0
        self._data = data.state_dict() if hasattr(data, "state_dict") else None
        batches = iter(data)
        for _ in range(left_out):
            self.done += next(batches, None) is not None
        if read is not None:
            set_streams(read["now"])
        for batch in batches:
            self.done += 1
            yield batch

    def add_to(self, path: Any) -> None:
        """Add the position to a file of a trainer's states."""
        found = {"done": self.done, "begun": self._begun, "now": streams(), "data": self._data}
        add_to(path, "position", found)

    def resume(self, path: Any) -> bool:
        """Begin the next epoch at the position in a file; returns False if it has none."""
        found = added_to(path, "position")
        if found is None:
            warnings.warn(
                f"Estimator: {path} does not say which batches of the epoch were done; the data "
                "are begun anew",
                stacklevel=2,
            )
            return False
        self._read = found
        return True


def add_to(path: Any, name: str, value: Any) -> None:
    """Add a value to a file of a trainer's states, which does not read it."""
    arrays: dict[str, Any] = {}
    text = json.dumps(packed(value, arrays)).encode()
    arrays = {f"{name}.{each}": array for each, array in arrays.items()}
    arrays[name] = np.array(list(text), dtype="uint8")
    serialize.save(path, {**serialize.load_named(path), **arrays})


def added_to(path: Any, name: str) -> Any:
    """The value that was added to a file; None if there is none."""
    try:
        values = serialize.load_named(path)
    except ParameterFileError:  # a store of another library wrote it
        return None
    text = values.pop(name, None)
    if text is None:
        return None
    arrays = {each.removeprefix(f"{name}."): array for each, array in values.items()}
    return unpacked(json.loads(text.asnumpy().tobytes()), arrays)


__all__ = ["Position", "add_to", "added_to"]
