"""The inputs of layers and losses: arrays, which lists, numbers and arrays of NumPy become."""

from __future__ import annotations

import reprlib
from functools import wraps
from numbers import Number
from typing import TYPE_CHECKING, Any, TypeVar, cast

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
    return _array(block, "input", arguments[0]), *arguments[1:]


def of_arrays(forward: Forward) -> Forward:
    """Let all arguments of a loss's `forward` be lists, numbers or arrays of NumPy.

    Those with a default may also be None, and stay numbers if they are numbers. Raises
    `OperandError` for anything else.
    """
    code = forward.__code__
    names = code.co_varnames[1 : code.co_argcount]
    needed = names[: len(names) - len(forward.__defaults__ or ())]

    @wraps(forward)
    def on_arrays(block: Any, *arguments: Any, **keywords: Any) -> Any:
        beside = (*arguments, *keywords.values())

        def taken(name: str, value: Any) -> Any:
            if isinstance(value, _core.Array) or (isinstance(value, Entry) and not value.spec.weak):
                return value
            if name not in needed and (value is None or isinstance(value, (Number, Entry))):
                return value
            return _array(block, name, value, beside)

        given = [taken(name, value) for name, value in zip(names, arguments, strict=False)]
        surplus = arguments[len(given) :]
        named = {name: taken(name, value) for name, value in keywords.items()}
        return forward(block, *given, *surplus, **named)

    return cast("Forward", on_arrays)


def of_input(infer_shape: Forward) -> Forward:
    """Mark a layer's `infer_shape`, whose first argument is an input with a shape."""

    @wraps(infer_shape)
    def on_input(block: Any, *inputs: Any, **named: Any) -> None:
        first_input(block, "infer_shape", (*inputs, *named.values()))
        infer_shape(block, *inputs, **named)

    return cast("Forward", on_input)


def first_input(block: Any, name: str, inputs: tuple[Any, ...], needed: str = "shape") -> Any:
    """The first of the inputs given to a block's method. Raises `OperandError` if there is none, or
    if it has no shape (or what else is needed)."""
    if not inputs or not hasattr(inputs[0], needed):
        given = reprlib.repr(inputs[0]) if inputs else "nothing"
        raise OperandError(
            f"{type(block).__name__}.{name}: the input is {given}; give an array with the shape of "
            "the network's input"
        )
    return inputs[0]


def _array(block: Any, name: str, value: Any, beside: tuple[Any, ...] = ()) -> Any:
    try:
        return operand(value, beside)
    except TypeError:
        raise OperandError(
            f"{type(block).__name__}: the {name} {reprlib.repr(value)} is not an array of numbers; "
            "give an array, or a list of numbers"
        ) from None


__all__ = ["first_input", "of_array", "of_arrays", "of_input", "with_array"]
