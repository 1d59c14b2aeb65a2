"""Calls from operations up to the layers above: dependency injection, since imports point down.

An operation applied to arrays has to run kernels, and its gradient rule builds graphs, but both
live in layers that import this one. So this module declares the functions it needs (`Above`), and
`gemel.ndarray` calls `install` with an object that has them when it is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from gemel.device import Device
    from gemel.ir.graph import Entry
    from gemel.ir.op import Op
    from gemel.ir.op_kinds import Elementwise


class Above(Protocol):
    """The functions operations need from above. `gemel.ndarray` provides them."""

    def run(
        self, op: Op, inputs: tuple[Any, ...], parameters: dict[str, Any], /
    ) -> tuple[Any, ...]:
        """Run a call the C++ core leaves to Python: creation, conversion, NumPy, errors."""

    def prepare(self, op: Op, inputs: tuple[Any, ...], parameters: dict[str, Any], /) -> Any:
        """The plan for calls with such inputs (after a miss of the core's cache); None without
        one."""

    def elementwise_kernel(
        self,
        op: Elementwise,
        rank: int,
        operands: tuple[tuple[int, int], ...],
        parameters: dict[str, Any],
        device: int,
        /,
        out: int | None = None,
        stride: int = 1,
    ) -> Any:
        """The kernel of an elementwise call, for one combination of dtypes and strides."""

    def record(
        self,
        op: Op,
        inputs: tuple[Any, ...],
        parameters: dict[str, Any],
        outputs: tuple[Any, ...],
        /,
    ) -> Any:
        """Put a call on the tape. Returns what the core needs to record such calls by itself."""

    def as_array(self, value: Any, beside: Iterable[Any] = (), /) -> Any:
        """An argument as an operation takes it: an array, or a Python number unchanged."""

    def as_entry(self, value: Any, beside: Iterable[Any] = (), /) -> Entry:
        """An argument as a node of the trace in progress takes it: an entry."""

    def from_numpy(self, value: Any, device: Device | None = None, /) -> Any:
        """A new array with a copy of a NumPy array's elements."""

    def index_item(self, item: Any, x: Any, /) -> Any:
        """One item of an index of x: lists become arrays, NumPy's integers become Python's."""

    def gradient(
        self, outputs: Sequence[Entry], heads: Sequence[Entry], inputs: Sequence[Entry], /
    ) -> Any:
        """The gradients of `inputs` as entries, given those of `outputs` (`heads`)."""


class Unloaded:
    """Stands for `Above` until `install` is called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by Python, for example `__wrapped__` by inspect
            raise AttributeError(name)
        raise RuntimeError(f"{name} belongs to a layer above gemel.ir that is not loaded")


above = cast(Above, Unloaded())


def install(layers: Above) -> None:
    """Make `above` call these functions."""
    for name in (name for name in vars(Above) if not name.startswith("_")):
        setattr(above, name, getattr(layers, name))


__all__ = ["Above", "above", "install"]
