"""A block's own parameters: `block.params`."""

from __future__ import annotations

from _weakref import ref
from typing import TYPE_CHECKING, Any

from gemel.errors import OperandError, ShapeError, unknown_name
from gemel.gluon.parameter import Parameter, ParameterDict
from gemel.gluon.variable import fits


class BlockParameters(ParameterDict):
    """A block's own parameters; those that `get` and `get_constant` create belong to the block.

    A block created in the `scope` of a block that shares another network's parameters shares those
    whose names match.
    """

    __slots__ = ("_block", "_shared_prefix")

    def __init__(self, block: Any, shared: ParameterDict | None = None, scope: Any = None) -> None:
        outer = None if scope is None or shared is not None else scope.params
        super().__init__(shared=shared if outer is None else outer._shared)
        self._block: Any = ref(block)
        #: The prefix of the shared parameters' names; it corresponds to this block's prefix.
        self._shared_prefix: str | None = None
        if outer is not None and outer._shared is not None:
            before = outer._shared.prefix if outer._shared_prefix is None else outer._shared_prefix
            self._shared_prefix = before + block.prefix.removeprefix(scope.prefix)

    @property
    def prefix(self) -> str:
        """The block's prefix."""
        prefix: str = self._block().prefix
        return prefix

    def __reduce__(self) -> tuple[Any, ...]:
        return ParameterDict, (dict(self),)  # a copy belongs to no block

    if TYPE_CHECKING:  # inherited, but here never None

        def get(self, name: str, default: Any = None, **settings: Any) -> Parameter:
            """The parameter, created if necessary."""

    def _found_in(self, shared: ParameterDict, name: str) -> Parameter | None:
        if self._shared_prefix is None:
            return super()._found_in(shared, name)
        return shared._called(self._shared_prefix + name)

    def _add(self, name: str, parameter: Parameter) -> Parameter:
        self._block()._register_parameter(name, parameter)
        return parameter


def sharing(block: Any, shared: Any) -> list[tuple[Any, str, Parameter]]:
    """For each parameter to share, the block inside `block` that gets it, and its name there.

    Raises `OperandError` for what are no parameters, `UnknownNameError` for a place that `block`
    lacks, and `ShapeError` for a parameter of another shape.
    """
    given = shared.items() if isinstance(shared, dict) else [("", shared)]
    found = []
    for place, parameter in given:
        if not isinstance(parameter, Parameter):
            raise OperandError(
                f"share_parameters: {parameter!r} is not a Parameter; give a dictionary of them by "
                "place, as from collect_params()"
            )
        *path, name = place.split(".")
        inner = block
        for step in path:
            inner = inner and inner._children.get(step)
        if inner is None or name not in inner.params:
            raise unknown_name("parameter", place, block.collect_params())
        own, new = inner.params[name].shape, parameter.shape
        if own is not None and new is not None and not fits(own, new):
            raise ShapeError(
                f"share_parameters: {place} has shape {own}; it cannot be {parameter.name} of "
                f"shape {new}"
            )
        found.append((inner, name, parameter))
    return found
