"""The exceptions users meet: each message names the operation, the specs, the rule, the fix."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any, TypeVar

Called = TypeVar("Called", bound=Callable[..., Any])

#: The names of public functions, by their code; None for methods that call the function `self`.
PUBLIC: dict[CodeType, str | None] = {}


class GemelError(Exception):
    """Base class of gemel's errors.

    `layer` is the layer in which the error occurred (``net.3.dense1``), if any, and `takes` the
    input shape of that layer.
    """

    layer = ""
    takes = ""

    def __str__(self) -> str:
        takes = f", which takes {self.takes}" if self.takes else ""
        return super().__str__() + (f" (in {self.layer}{takes})" if self.layer else "")


class CallError(GemelError):
    """An argument is wrong; the message names the public function that was called with it."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        name = _called(sys._getframe())
        if name:
            name_call(self, name)


def _called(frame: Any) -> str:
    """The public function that was called: the outermost one of the innermost frames of gemel's.

    So functions need not catch the errors of what they are composed of, and calls cost nothing.
    """
    name = ""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("gemel."):
        known = PUBLIC.get(frame.f_code, name)
        name = known if known is not None else _public_name(frame.f_locals["self"]) or name
        frame = frame.f_back
    return name


def _public_name(operation: Any) -> str:
    return operation.__name__ if getattr(operation, "public", True) else ""


def calls_itself(method: Called) -> Called:
    """Declare that a method is how the public function `self` is called."""
    PUBLIC[method.__code__] = None
    return method


def named_as(function: Called, wrapper: Any) -> Called:
    """A wrapper of a function, with code of its own: all those that one decorator makes share
    theirs, and errors would name the last one."""
    wrapper.__code__ = wrapper.__code__.replace(co_name=function.__name__)
    return wrapper  # type: ignore[no-any-return]


class ShapeError(CallError, ValueError):
    """The shapes given to an operation do not fit together."""


class AxisError(ShapeError, IndexError):
    """An axis that an array does not have."""


class ArgumentError(CallError, ValueError):
    """An argument has a value that an operation cannot work with."""


class ArrayIndexError(CallError, IndexError):
    """An index is out of range, or is not a valid index."""


class OperandError(CallError, TypeError):
    """An argument of an operation is not an array, a number or a list of numbers."""


class DTypeError(CallError, TypeError):
    """An operation does not support a dtype, or gemel does not know the dtype."""


class IndexDTypeError(DTypeError, ArrayIndexError):
    """An index has a dtype whose elements cannot be positions."""


#: Python's errors of values that were given, and gemel's of the same kind.
_OWN: dict[type, type[CallError]] = {IndexError: ArrayIndexError, TypeError: OperandError}


def as_own(name: str, error: Exception, of_values: type[CallError] = ArgumentError) -> Exception:
    """What NumPy raised where it computes an operation, as gemel's error that names the operation.

    A `ValueError` becomes one of `of_values`. Errors of other classes, derived ones too, stay: they
    say more than that a value is wrong.
    """
    if type(error).__module__ == "numpy.exceptions" and isinstance(error, IndexError):
        return AxisError(f"{name}: {error}")
    kind = of_values if type(error) is ValueError else _OWN.get(type(error))
    return error if kind is None else kind(f"{name}: {error}")


@contextmanager
def own_errors(name: str, of_values: type[CallError] = ArgumentError) -> Iterator[None]:
    """Raise what NumPy raises meanwhile as gemel's errors (`as_own`)."""
    try:
        yield
    except (IndexError, TypeError, ValueError) as error:
        own = as_own(name, error, of_values)
        if own is error:
            raise
        raise own from None


class DeviceError(CallError, RuntimeError):
    """A device does not exist, or arrays are on different devices."""


class TopologyError(GemelError, ValueError):
    """Invalid links, a place without a route, or a schedule that does not fit the topology."""


class NoRouteError(TopologyError):
    """There is no route between two places that a schedule sends messages between."""


class TraceError(GemelError, RuntimeError):
    """A traced function needs a value that is known only when the program runs."""


class PythonGivenError(TraceError):
    """A program contains an operation that a user wrote in Python; blocks are then compiled in
    parts."""


class ValuesNeededError(PythonGivenError):
    """In a program the shape of a result depends on values; blocks are then compiled in parts."""


class NotInTraceError(TraceError, AttributeError):
    """A traced function uses something that only arrays in memory have: `strides`, `attach_grad`,
    ..."""


class SymbolGivenError(TraceError):
    """A `gemel.symbol.Symbol`, which has no elements, where an array is needed."""


class GradientError(GemelError, RuntimeError):
    """`backward` or `grad` cannot compute a gradient."""


class UninitializedError(GemelError, RuntimeError):
    """A parameter was used before `initialize()`."""


class DeferredInitializationError(UninitializedError):
    """A parameter's shape is not known before the first forward."""


class ParameterFileError(GemelError, ValueError):
    """A parameter file is damaged, truncated or in another format."""


class NothingLeftError(ParameterFileError, EOFError):
    """An open file has been read to its end: there is no other array in it."""


class SymbolFileError(ParameterFileError):
    """A symbol file or program file is damaged, truncated or in another format."""


class ExportError(GemelError, ValueError):
    """A network cannot be exported in the requested format."""


class ExportWarning(UserWarning):
    """The exported network is right only for some sizes; the message says which."""


class UnknownOperatorsError(SymbolFileError):
    """A file of a program uses operators that are not there; the message lists all of them."""


class MissingPackageError(GemelError, ImportError):
    """An optional package is not installed; the message says how to install it."""


class RenderingError(GemelError, RuntimeError):
    """A drawing cannot be rendered on this machine."""


class DataFileError(GemelError, ValueError):
    """A data file is damaged, truncated or in another format; the message has the file and
    offset."""


class MissingFileError(GemelError, FileNotFoundError):
    """A file or folder does not exist, and cannot be downloaded or created."""


class CompileError(GemelError, RuntimeError):
    """A program could not be turned into machine code."""


class FormulaError(CompileError, TypeError):
    """The formula or the body of an operation does what cannot be recorded, or returns no
    values."""


class NoKernelError(CompileError):
    """An operation that NumPy computes cannot be turned into machine code."""


class WorkersError(GemelError, RuntimeError):
    """Workers cannot train together: one is gone, they disagree, or they cannot be joined."""


class UnknownNameError(CallError, ValueError):
    """An unknown name; the message suggests the nearest known one."""


class UnknownKeywordError(GemelError, TypeError):
    """A keyword that a layer or another class does not accept."""


class KVStoreError(WorkersError):
    """Workers and servers cannot continue; the message names the rank, the server and the key."""


class ProtocolError(KVStoreError):
    """Bytes from the network that are not a valid message, or a message that is refused."""


class SecretError(KVStoreError):
    """The other end does not know the secret of this job."""


class PortTakenError(KVStoreError):
    """A server's port is in use."""


class WorldError(KVStoreError):
    """Workers and servers disagree on the members or settings of the job."""


class RankTakenError(WorldError):
    """Another worker has this rank."""


class ServerLostError(KVStoreError, ConnectionError):
    """A server could not be reached within the time limit."""


class WorkerLostError(KVStoreError):
    """A worker was silent and was not replaced within the time limit."""


class LeftOutError(KVStoreError):
    """The job continued without this worker; if restarted, it joins with the current parameters."""


class WaitLimitError(KVStoreError, TimeoutError):
    """An answer did not come within the time limit."""


class JournalError(KVStoreError):
    """A server's files are damaged, or of another job."""


class KeyShapeError(KVStoreError, ShapeError):
    """A key has another shape or dtype on one worker than on the others."""


class UnknownKeyError(KVStoreError, UnknownNameError):
    """A key that has not been initialized."""


#: What other frameworks call it.
OTHERS_NAMES = {
    **{"lr": "learning_rate", "weight_decay": "wd", "eps": "epsilon"},
    **{"num_features": "in_channels", "out_features": "units", "in_features": "in_units"},
    **{"out_channels": "channels", "kernel": "kernel_size", "stride": "strides"},
    **{"dim": "axis", "keepdim": "keepdims", "bias": "use_bias", "groups": "num_group"},
}


def suggestion(name: object, known: Iterable[str]) -> str:
    """The known name that may have been meant: "; did you mean 'sum'?", or an empty text."""
    from difflib import get_close_matches

    choices = list(known)
    other = OTHERS_NAMES.get(str(name))
    near = [other] if other in choices else get_close_matches(str(name), choices, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that is not among `known`, suggesting the nearest one."""
    choices = sorted(known)
    hint = suggestion(name, choices)
    return UnknownNameError(f"unknown {kind} {name!r}{hint} (known: {', '.join(choices)})")


def name_call(error: GemelError, name: str) -> None:
    """Begin an error's message with the function that was called, if it names only another one.

    `vander` is composed of `power`, `cumprod`, ...; an error of one of these is about `vander`.
    """
    message, *others = error.args or ("",)
    if isinstance(message, str) and name not in message.replace(":", " ").split():
        error.args = (f"{name}: {message}", *others)


def unknown_keyword(kind: type, keyword: str) -> UnknownKeywordError:
    """The error for a keyword that no constructor of a class has, suggesting the nearest one."""
    known = _keywords(kind)[0]
    hint = suggestion(keyword, known)
    return UnknownKeywordError(
        f"{kind.__name__} takes no keyword {keyword!r}{hint} (it takes {', '.join(known)})"
    )


def check_keywords(kind: type, given: Iterable[str]) -> None:
    """Raise `UnknownKeywordError` for keywords that no constructor of a class has."""
    known, others = _keywords(kind)
    for keyword in given:
        if keyword not in known and not others:
            raise unknown_keyword(kind, keyword)


def check_arguments(kind: Any, arguments: Sequence[Any], named: Iterable[str]) -> None:
    """Raise `UnknownKeywordError` or `OperandError` for what the constructor of a class refuses in
    Python's words, which name the base that it is inherited from."""
    code = getattr(kind.__init__, "__code__", None)
    if code is None:
        return
    needed = code.co_argcount - len(kind.__init__.__defaults__ or ())
    given = {*code.co_varnames[1 : 1 + len(arguments)], *named}
    missing = [name for name in code.co_varnames[1:needed] if name not in given]
    if missing or not code.co_flags & _TAKES_OTHERS:
        known = _keywords(kind)[0]
        unknown = next((name for name in named if name not in known), None)
        if unknown is not None:
            raise unknown_keyword(kind, unknown)
    if missing:
        raise OperandError(f"{kind.__name__}: missing argument {missing[0]!r}")


def _keywords(kind: type) -> tuple[list[str], bool]:
    """The keywords of a class and, as far as its constructor passes others on, of its bases; and
    whether it takes any others."""
    known: list[str] = []
    others = True
    for each in kind.__mro__:
        code = getattr(each.__dict__.get("__init__"), "__code__", None)
        if code is not None and others:
            names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
            known += [name for name in names if name not in known]
            others = bool(code.co_flags & _TAKES_OTHERS)
    return known, others


#: The flag of functions with a parameter like ``**settings`` (`inspect.CO_VARKEYWORDS`).
_TAKES_OTHERS = 0x08


def check_class(name: str, value: object) -> None:
    """Raise `OperandError` unless a decorator was given a class."""
    if not isinstance(value, type):
        raise OperandError(f"{name} is for a class, not for {value!r}; write it as @{name}")


def check_function(name: str, value: object) -> None:
    """Raise `OperandError` for what cannot be called."""
    if not callable(value):
        raise OperandError(f"{name}: {value!r} is not a function")


#: Large parts of MXNet that gemel lacks, by their names, and what to use instead.
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
        ("gemel.contrib.quantization", "gemel.contrib.tensorboard"),
        "there are contrib.amp, contrib.onnx, contrib.text, nd.contrib, sym.contrib and "
        "gluon.contrib only",
    ),
    "gemel.rnn": "cells are in gluon.rnn",
    "gemel.rtc": "there is no CUDA; operations in Python are npx.callback and operator.CustomOp",
}


def nearest(module: str, name: str, known: Iterable[str]) -> str:
    """What to use for a name that a module lacks: gemel's replacement, or the nearest name."""
    absent = ABSENT.get(f"{module}.{name}")
    return suggestion(name, known) if absent is None else f"; {absent}"


def unknown_attribute(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that a module lacks. Names with underscores, which tools ask for, get no
    suggestion."""
    hint = "" if name.startswith("_") else nearest(module, name, known)
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}")
