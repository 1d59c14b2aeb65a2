"""The few exceptions users meet: each message names the operation, the specs, the rule, the fix."""

from __future__ import annotations

from collections.abc import Iterable


class GemelError(Exception):
    """Anything gemel itself refuses to do.

    `layer` is where in a network it was refused (``net.3.dense1``), if it was inside of one, and
    `takes` the shape of what that layer takes.
    """

    layer = ""
    takes = ""

    def __str__(self) -> str:
        takes = f", which takes {self.takes}" if self.takes else ""
        return super().__str__() + (f" (in {self.layer}{takes})" if self.layer else "")


class ShapeError(GemelError, ValueError):
    """The shapes given to an operation do not fit together."""


class AxisError(ShapeError, IndexError):
    """An axis an array does not have."""


class ArgumentError(GemelError, ValueError):
    """An argument has a value that an operation cannot work with."""


class ArrayIndexError(GemelError, IndexError):
    """An index names an element that an array does not have, or is none at all."""


class DTypeError(GemelError, TypeError):
    """The dtype given to an operation is not one it works on, or not one gemel knows."""


class IndexDTypeError(DTypeError, ArrayIndexError):
    """What is given as an index has a dtype whose elements are no positions."""


class DeviceError(GemelError, RuntimeError):
    """A device that does not exist, or arrays that live on different ones."""


class TopologyError(GemelError, ValueError):
    """Links no machine can have, a place no route leads to, or a schedule that does not fit."""


class TraceError(GemelError, RuntimeError):
    """A traced function asked for a value that is only known when the program runs."""


class PythonGivenError(TraceError):
    """An operation a user wrote in Python, in a program; blocks are then compiled in parts."""


class ValuesNeededError(PythonGivenError):
    """The shape of a result depends on values, in a program; blocks are then compiled in parts."""


class NotInTraceError(TraceError, AttributeError):
    """A traced function asked for what only arrays in memory have, as `strides`, `attach_grad`."""


class SymbolGivenError(TraceError):
    """A `gemel.symbol.Symbol`, which has no elements, where an array is needed."""


class GradientError(GemelError, RuntimeError):
    """`backward` or `grad` cannot give what was asked for."""


class UninitializedError(GemelError, RuntimeError):
    """A parameter was used before `initialize()`."""


class DeferredInitializationError(UninitializedError):
    """A parameter's shape is not known before the first forward."""


class ParameterFileError(GemelError, ValueError):
    """A parameter file is damaged, truncated or not one."""


class SymbolFileError(ParameterFileError):
    """A symbol file, or a file of a program, is damaged, truncated or not one."""


class ExportError(GemelError, ValueError):
    """A network cannot be written down in the format asked for."""


class ExportWarning(UserWarning):
    """What is written is the network for some sizes only; the message says which."""


class UnknownOperatorsError(SymbolFileError):
    """A file of a program uses operators that are not there; the message lists all of them."""


class MissingPackageError(GemelError, ImportError):
    """An optional package is not installed; the message says how to install it."""


class RenderingError(GemelError, RuntimeError):
    """A drawing cannot be made a picture here."""


class DataFileError(GemelError, ValueError):
    """A file of data is damaged, truncated or not one; the message names it and the offset."""


class MissingFileError(GemelError, FileNotFoundError):
    """A file or folder is not there, and cannot be downloaded or made."""


class CompileError(GemelError, RuntimeError):
    """A program could not be turned into machine code."""


class NoKernelError(CompileError):
    """An operation that NumPy does cannot be turned into machine code."""


class WorkersError(GemelError, RuntimeError):
    """Processes that train together do not: one is gone, or they disagree, or cannot be joined."""


class UnknownNameError(GemelError, ValueError):
    """A name that stands for nothing here; the message suggests the nearest one."""


class KVStoreError(WorkersError):
    """Workers and servers cannot go on; the message names the rank, the server and the key."""


class ProtocolError(KVStoreError):
    """Bytes from the network that are no message, or one that is refused."""


class SecretError(KVStoreError):
    """The other end does not know the secret of this job."""


class PortTakenError(KVStoreError):
    """A server's port is in use."""


class WorldError(KVStoreError):
    """Workers and servers disagree on who takes part, or on how."""


class RankTakenError(WorldError):
    """Another worker has this rank."""


class ServerLostError(KVStoreError, ConnectionError):
    """A server could not be reached within the time limit."""


class WorkerLostError(KVStoreError):
    """A worker was silent, and nobody took its place within the time limit."""


class LeftOutError(KVStoreError):
    """The job went on without this worker; started again, it joins with the current parameters."""


class WaitLimitError(KVStoreError, TimeoutError):
    """An answer did not come within the time limit."""


class JournalError(KVStoreError):
    """A server's files are damaged, or of another job."""


class KeyShapeError(KVStoreError, ShapeError):
    """A key has another shape or dtype on one worker than on the others."""


class UnknownKeyError(KVStoreError, UnknownNameError):
    """A key nobody has given a first value."""


def suggestion(name: object, known: Iterable[str]) -> str:
    """Which of the known names may have been meant: "; did you mean 'sum'?", or nothing."""
    from difflib import get_close_matches

    near = get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that is none of `known`, suggesting the nearest."""
    choices = sorted(known)
    hint = suggestion(name, choices)
    return UnknownNameError(f"unknown {kind} {name!r}{hint} (known: {', '.join(choices)})")


class UnknownKeywordError(GemelError, TypeError):
    """A keyword that a layer, or another class, does not take."""


def unknown_keyword(kind: type, keyword: str) -> UnknownKeywordError:
    """The error for a keyword none of a class's constructors has, suggesting the nearest."""
    known: list[str] = []
    for each in kind.__mro__:
        code = getattr(each.__dict__.get("__init__"), "__code__", None)
        names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount] if code else ()
        known += [name for name in names if name not in known]
    hint = suggestion(keyword, known)
    return UnknownKeywordError(
        f"{kind.__name__} takes no keyword {keyword!r}{hint} (it takes {', '.join(known)})"
    )


#: Large parts of MXNet's that are not here, by what they would be called, and what there is.
ABSENT = {
    **dict.fromkeys(
        ("gemel.mod", "gemel.module"),
        "there is no Module; train with gluon.Trainer, or bind a symbol: Symbol.simple_bind",
    ),
    **dict.fromkeys(
        ("gemel.ndarray.sparse", "gemel.symbol.sparse"),
        "there are no sparse arrays; those of nd and np are dense",
    ),
    **dict.fromkeys(
        ("gemel.contrib.quantization", "gemel.contrib.text", "gemel.contrib.tensorboard"),
        "there are contrib.amp, contrib.onnx, nd.contrib, sym.contrib and gluon.contrib only",
    ),
    "gemel.rnn": "cells are in gluon.rnn",
    "gemel.rtc": "there is no CUDA; operations in Python are npx.callback and operator.CustomOp",
}


def nearest(module: str, name: str, known: Iterable[str]) -> str:
    """What to use for a name that a module lacks: what there is of it here, or the nearest name."""
    absent = ABSENT.get(f"{module}.{name}")
    return suggestion(name, known) if absent is None else f"; {absent}"


def unknown_attribute(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name a module lacks. Names with underscores are asked for by machines."""
    hint = "" if name.startswith("_") else nearest(module, name, known)
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}")
