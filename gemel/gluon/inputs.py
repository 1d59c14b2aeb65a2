"""The input of a layer: one array, which a list, a number or an array of NumPy becomes."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any, TypeVar

from gemel import _core
from gemel.errors import OperandError
from gemel.ir.graph import Entry
from gemel.ops.shape import operand

if TYPE_CHECKING:
    from collections.abc import Callable

#: A block's `forward`.
Forward = TypeVar("Forward", bound="Callable[..., Any]")


def of_array(forward: Forward) -> Forward:
    """Mark a layer's `forward` whose first argument is one array."""
    vars(forward)["takes_array"] = True
    return forward


def with_array(block: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a block, the first as an array if its `forward` is marked `of_array`.

    Raises `OperandError` for what is none.
    """
    if not arguments or isinstance(arguments[0], (_core.Array, Entry)):
        return arguments
    if not hasattr(block.forward, "takes_array"):
        return arguments
    try:
        return operand(arguments[0]), *arguments[1:]
    except TypeError:
        given = reprlib.repr(arguments[0])
        raise OperandError(
            f"{type(block).__name__}: the input {given} is not an array of numbers; give an array, "
            "or a list of numbers"
        ) from None


__all__ = ["of_array", "with_array"]
