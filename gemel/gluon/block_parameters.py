"""A block's own parameters: `block.params`."""

from __future__ import annotations

from _weakref import ref
from typing import TYPE_CHECKING, Any

from gemel.gluon.parameter import Parameter, ParameterDict


class BlockParameters(ParameterDict):
    """A block's own parameters; what `get` and `get_constant` make belongs to the block."""

    __slots__ = ("_block", "_shared")

    def __init__(self, block: Any, shared: ParameterDict | None = None) -> None:
        super().__init__(shared=shared)
        self._block: Any = ref(block)

    @property
    def prefix(self) -> str:
        """The block's."""
        prefix: str = self._block().prefix
        return prefix

    def __reduce__(self) -> tuple[Any, ...]:
        return ParameterDict, (dict(self),)  # a copy belongs to no block

    if TYPE_CHECKING:  # there is always one

        def get(self, name: str, default: Any = None, **settings: Any) -> Parameter:
            """The parameter, made if need be."""

    def _add(self, name: str, parameter: Parameter) -> Parameter:
        self._block()._register_parameter(name, parameter)
        return parameter
