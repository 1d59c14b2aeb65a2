"""Which parameters of trainers have the keys of a worker, and whether a program wrote to them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any
from weakref import ref

from gemel.errors import KVStoreError


class Owners:
    """The parameters of trainers by their keys, and the arrays that values were pulled into."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        #: They may have ended.
        self._parameters: dict[Any, ref[Any]] = {}
        #: A parameter's first array, and its version, after the last pull.
        self._pulled: dict[Any, tuple[Callable[[], Any], int]] = {}

    def claim(self, key: Any, parameter: Any) -> None:
        """Note that a parameter has a key. Raises `KVStoreError` if another one has it."""
        known = self._parameters.get(key)
        if known is not None and known() not in (None, parameter):
            gc.collect()  # a network that the program does not use any more is part of cycles
        other = parameter if known is None else known()
        if other is not None and other is not parameter:
            raise KVStoreError(
                f"kvstore: worker {self._rank}: parameter {parameter.name} would get the values of "
                f"parameter {other.name} of another Trainer, which have the same key {key!r} on "
                "the servers; create one Trainer for all parameters"
            )
        self._parameters[key] = ref(parameter)

    def pulled(self, key: Any, array: Any) -> None:
        """Note that an array has a key's value."""
        parameter = self.parameter(key)
        if parameter is not None and array is parameter._arrays[0]:
            self._pulled[key] = ref(array), array.version

    def written(self, key: Any, array: Any) -> bool:
        """Whether something else than a pull wrote last to an array of the key's parameter."""
        known = self._pulled.get(key)
        return known is not None and known[0]() is array and bool(array.version != known[1])

    def check(self, key: Any, array: Any) -> None:
        """Raise `KVStoreError` if a program wrote to this array, which the next pull would undo."""
        if self.written(key, array):
            parameter = self.parameter(key)
            raise KVStoreError(
                f"kvstore: worker {self._rank}: the program wrote to parameter "
                f"{key if parameter is None else parameter.name}, but its values are on the "
                "servers, which would undo that; load and set values before the Trainer is "
                "created, or create it with update_on_kvstore=False"
            )

    def parameter(self, key: Any) -> Any:
        """The parameter that has a key; None if there is none, or no longer."""
        known = self._parameters.get(key)
        return None if known is None else known()


__all__ = ["Owners"]
