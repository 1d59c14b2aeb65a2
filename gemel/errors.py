"""The few exceptions users meet: each message names the operation, the specs, the rule, the fix."""

from __future__ import annotations

from collections.abc import Iterable


class GemelError(Exception):
    """Anything gemel itself refuses to do."""


class ShapeError(GemelError, ValueError):
    """The shapes given to an operation do not fit together."""


class DTypeError(GemelError, TypeError):
    """The dtype given to an operation is not one it works on, or not one gemel knows."""


class DeviceError(GemelError, RuntimeError):
    """A device that does not exist, or arrays that live on different ones."""


class TraceError(GemelError, RuntimeError):
    """A traced function asked for a value that is only known when the program runs."""


class GradientError(GemelError, RuntimeError):
    """`backward` or `grad` cannot give what was asked for."""


class UninitializedError(GemelError, RuntimeError):
    """A parameter was used before `initialize()`."""


class DeferredInitializationError(UninitializedError):
    """A parameter's shape is not known before the first forward."""


class ParameterFileError(GemelError, ValueError):
    """A parameter file is damaged, truncated or not one."""


class CompileError(GemelError, RuntimeError):
    """A program could not be turned into machine code."""


class NoKernelError(CompileError):
    """An operation that NumPy does cannot be turned into machine code."""


class UnknownNameError(GemelError, ValueError):
    """A name that stands for nothing here; the message suggests the nearest one."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that is none of `known`, suggesting the nearest."""
    import difflib

    choices = sorted(known)
    near = difflib.get_close_matches(str(name), choices, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return UnknownNameError(f"unknown {kind} {name!r}{hint} (known: {', '.join(choices)})")
