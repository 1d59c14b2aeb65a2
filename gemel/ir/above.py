"""What operations ask of the layers above theirs: one object, put here when those are loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from gemel.device import Device
    from gemel.ir.graph import Entry
    from gemel.ir.op import Op
    from gemel.ir.op_kinds import Elementwise


class Above(Protocol):
    """Calls on arrays, and what arrays are made of. `gemel.ndarray` gives them."""

    def run(
        self, op: Op, inputs: tuple[Any, ...], parameters: dict[str, Any], /
    ) -> tuple[Any, ...]:
        """The results of a call the core does not do itself."""

    def prepare(self, op: Op, inputs: tuple[Any, ...], parameters: dict[str, Any], /) -> Any:
        """The plan of calls on arrays and numbers like these; None when there is none."""

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
        """Put a call on the tape; how the core does so with calls like it."""

    def as_array(self, value: Any, beside: Iterable[Any] = (), /) -> Any:
        """What an operation takes for an argument: an array, or a Python number as it is."""

    def as_entry(self, value: Any, beside: Iterable[Any] = (), /) -> Entry:
        """The same in a trace."""

    def from_numpy(self, value: Any, device: Device | None = None, /) -> Any:
        """An array with a copy of a NumPy array's elements."""

    def index_item(self, item: Any, x: Any, /) -> Any:
        """One item of an index of x: lists become arrays, NumPy's integers Python's."""

    def gradient(
        self, outputs: Sequence[Entry], heads: Sequence[Entry], inputs: Sequence[Entry], /
    ) -> Any:
        """The gradients of inputs, as entries, from those of the outputs."""


class Unloaded:
    """`Above`, until the layers above are loaded and `install` fills it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python's own question, such as inspect's for __wrapped__
            raise AttributeError(name)
        raise RuntimeError(f"{name} is asked of the layers above, which are not loaded")


above = cast(Above, Unloaded())


def install(layers: Above) -> None:
    """Let operations ask these layers."""
    for name in (name for name in vars(Above) if not name.startswith("_")):
        setattr(above, name, getattr(layers, name))


__all__ = ["Above", "above", "install"]
