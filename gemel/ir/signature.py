"""How operations are declared: their functions, options and signatures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gemel.errors import ArgumentError, ShapeError, unknown_keyword
from gemel.spec import Spec, extents

if TYPE_CHECKING:
    from gemel.ir.op import Op

#: The arity of an operation on any number of arrays.
VARIADIC = -1
#: Where else an operation may have a name.
ELSEWHERE = {"onnx", "mxnet"}


def signature_of(op: Op) -> Any:
    """The signature of an operation: arrays first, then its parameters and common keywords."""
    from inspect import Parameter, Signature, signature

    common = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation="Any")
        for name, default in op.common.items()
    ]
    if op.rules.extended is not None:
        found = signature(op.rules.extended)
        return found.replace(parameters=[*found.parameters.values(), *common])
    lead = 1 if op.elementwise else 0
    code, notes = op.function.__code__, op.function.__annotations__
    names = code.co_varnames[lead : code.co_argcount]
    spare = (Parameter.empty,) * op.required + (None,) * (len(names) - op.required)
    listed = [
        Parameter(name, Parameter.POSITIONAL_ONLY, default=default, annotation="Any")
        for name, default in zip(names, spare, strict=True)
    ]
    many = op.arity == VARIADIC
    if many:
        arrays = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
        listed.append(Parameter(arrays, Parameter.VAR_POSITIONAL, annotation="Any"))
    kind = Parameter.KEYWORD_ONLY if many else Parameter.POSITIONAL_OR_KEYWORD
    for name in op.parameters:
        default = op.defaults.get(name, Parameter.empty)
        note = notes.get(name, "Any")
        listed.append(Parameter(name, kind, default=default, annotation=note))
    result = "Array" if op.outputs == 1 else "tuple[Array, ...]"
    return Signature([*listed, *common], return_annotation=result)


def code_of(function: Any, lead: int) -> Any:
    """The code of the function that declares an operation; its first `lead` arguments are no
    arrays."""
    code = getattr(function, "__code__", None)
    if code is None:
        raise TypeError(f"an operation is declared by a function in Python, not {function!r}")
    if code.co_argcount < lead:
        raise TypeError(f"{function.__name__}: the first argument of a formula must be xp")
    return code


def check_declared(kind: type, name: str, outputs: Any, names: Mapping[str, str]) -> None:
    """Raise `UnknownKeywordError` or `ArgumentError` for options that no operation has."""
    for keyword in names.keys() - ELSEWHERE:
        raise unknown_keyword(kind, keyword)
    if type(outputs) is not int or outputs < 1:
        raise ArgumentError(f"{name}: outputs={outputs!r} must be a whole number, at least 1")


def check_specs(name: str, found: Any) -> None:
    """Raise `ShapeError` for what a spec rule must not return: anything but specs of arrays that
    there may be."""
    results = found if isinstance(found, (tuple, list)) else (found,)
    for spec in results:
        if not isinstance(spec, Spec):
            raise ShapeError(
                f"{name}: its spec rule returned {found!r}; it must return a Spec, or a tuple of "
                "them"
            )
        extents(name, spec.shape)


__all__ = ["VARIADIC", "check_declared", "check_specs", "code_of", "signature_of"]
