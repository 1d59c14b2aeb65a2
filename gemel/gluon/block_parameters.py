"""A block's own parameters: `block.params`."""

from __future__ import annotations

from _weakref import ref
from typing import Any

from gemel.gluon.parameter import Constant, Parameter, ParameterDict


class BlockParameters(ParameterDict):
    """A block's own parameters; `get` makes the ones that are not there yet."""

    __slots__ = ("_block", "_shared")

    def __init__(self, block: Any, shared: ParameterDict | None = None) -> None:
        super().__init__()
        self._block: Any = ref(block)
        self._shared = shared

    def get(self, name: str, default: Any = None, **settings: Any) -> Parameter:
        """The parameter `name`: the block's, else the shared one, else made with `settings`."""
        if name not in self:
            block = self._block()
            if self._shared is not None and name in self._shared:
                parameter = self._shared[name]
            else:
                settings.setdefault("name", block.prefix + name)
                parameter = Parameter(**settings)
            block._register_parameter(name, parameter)
        parameter = self[name]
        if settings.get("shape") is not None:
            parameter.shape = settings["shape"]
        return parameter

    def get_constant(self, name: str, value: Any = None) -> Parameter:
        """The constant `name`, made from `value` if the block has none."""
        if name not in self:
            block = self._block()
            block._register_parameter(name, Constant(value, block.prefix + name))
        return self[name]
