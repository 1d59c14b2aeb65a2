"""MXNet's operations that are functions of `np` or `npx`, found by the functions' names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel import np, npx
from gemel.ir.late import load
from gemel.ir.methods import REGISTRY
from gemel.ir.op import Op
from gemel.legacy.declare import DEVICES, TABLE, Legacy

PREFIXES = ("_npi_", "_np_", "_npx_")
#: Names in files that differ from the functions' names.
OTHERS = {"mod": "remainder", "abs": "absolute", "around": "round", "true_divide": "divide"}
PLACES = (np, npx, np.linalg, np.random)


class Derived(Legacy):
    """An operation whose keywords are those of the function."""

    def checked(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The settings without those that have no meaning here; None counts as not given."""
        # Beside a number `is_int` says whether 2.0 is one of Python's ints, and -0.0 is none.
        unread = ("num_args", *DEVICES, *(() if self.name.endswith("_scalar") else ("is_int",)))
        return {
            name: value
            for name, value in settings.items()
            if value is not None and name not in unread
        }


def operations() -> dict[str, Op]:
    """gemel's operations by the MXNet names that they declare."""
    load()
    ops = (op for op in REGISTRY.values() if isinstance(op, Op))
    return {op.names["mxnet"]: op for op in ops if "mxnet" in op.names}


def _function(name: str) -> Callable[..., Any] | None:
    prefix = next((each for each in PREFIXES if name.startswith(each)), None)
    found = operations().get(name)
    if found is not None:
        return found.face if found.public else found
    if prefix is None:
        return None
    bare = name.removeprefix(prefix)
    if bare.endswith("_scalar"):
        return _scalar(bare.removesuffix("_scalar"))
    bare = OTHERS.get(bare, bare)
    held = (getattr(place, bare, None) for place in PLACES)
    return next((each for each in held if callable(each)), None)


def _scalar(name: str) -> Callable[..., Any] | None:
    """The function for add_scalar, or for rsubtract_scalar, where the number comes first."""
    name = OTHERS.get(name, name)
    function = getattr(np, name, None)
    if function is not None:
        plain: Callable[..., Any] = function
        return lambda data, scalar=1.0, is_int=True: plain(data, _number(scalar, is_int))
    turned = OTHERS.get(name[1:], name[1:])
    function = getattr(np, turned, None) if name.startswith("r") else None
    if function is None:
        return None
    return lambda data, scalar=1.0, is_int=True: function(_number(scalar, is_int), data)


def _number(value: float, is_int: bool) -> float:
    return int(value) if is_int and float(value).is_integer() else float(value)


def derived(name: str) -> Legacy | None:
    """The operation for a function of `np` or `npx`, created on first use."""
    function = _function(name)
    if function is None:
        return None

    meant: Callable[..., Any] = function

    def operation(*data: Any, **settings: Any) -> Any:
        return meant(*data, **settings)

    operation.__doc__ = function.__doc__
    declared = operations().get(name)
    found = Derived(operation, (name,), outputs=1 if declared is None else declared.outputs)
    TABLE[name] = found
    return found
