"""What the inputs of a traced program stand for: arguments, parameters, arrays from outside.

Of this program the inputs are x and scale, the layer's parameters, and w, which it closes over
(`ir.closed`)::

    w = np.ones(3)

    @gemel.compile
    def f(x, scale):
        return layer(x) * w * scale

If the function asks for a value, the program is valid for that value only: `specialized` has the
floats it asked for, `closed` the contents of arrays.
"""

from __future__ import annotations

from typing import Any

from gemel.dtype import weak
from gemel.ir.closed import ClosedOver
from gemel.ir.current import suspended
from gemel.ir.graph import Entry, captured, placeholder
from gemel.ir.layout import Layout
from gemel.ir.state import State
from gemel.spec import Spec


class Scalar(Entry):
    """A float argument: an input of the program, unless the function asks for its value.

    The function then gets the value of this call, and the program is specialized for that value.
    """

    __slots__ = ("owner", "seen")

    owner: Inputs
    seen: float
    is_run_time_number = True

    def _value(self, what: str) -> float:
        self.owner.specialized[self] = self.seen
        return self.seen

    def __str__(self) -> str:
        return str(self._value("str()"))

    def __format__(self, how: str) -> str:
        return format(self._value("format()"), how)


class Inputs:
    """The inputs of one trace. Without `closed` it takes no arrays: operations on them run at
    once."""

    __slots__ = ("_state", "arguments", "closed", "specialized")

    def __init__(self, closed: ClosedOver | None, state: State) -> None:
        #: The arrays it closes over.
        self.closed = closed
        self._state = state
        #: The arguments' arrays, by the inputs that stand for them.
        self.arguments: dict[Entry, Any] = {}
        #: The float arguments whose values were asked for.
        self.specialized: dict[Scalar, float] = {}

    def number(self, name: str, value: float) -> Scalar:
        """An input for a float argument whose value is `value` in this call."""
        node = placeholder(Spec((), weak(value), weak=True), name).node
        scalar = Scalar(node, 0)
        scalar.owner, scalar.seen = self, value
        node.entries = (scalar,)
        return scalar

    def arrays(self) -> dict[Entry, Any]:
        """The arrays that its inputs stand for: arguments, parameters and closed-over arrays."""
        device = next((array.device for array in self.arguments.values()), None)
        arrays = dict(self.arguments)
        with suspended():
            for parameter, entry in self._state.parameters.values():
                arrays[entry] = parameter.data() if device is None else parameter.array(device)
            for entry, closed in self.closed.inputs.items() if self.closed is not None else ():
                arrays[entry] = closed.on(device)
        return arrays

    def captured(self, array: Any, moves: bool = False) -> Entry:
        """The entry that stands for an array from outside, see `ClosedOver.entry_of`."""
        if self.closed is None:
            return captured(array)
        entry = self.closed.entry_of(array, moves)
        if not array._is_contiguous:
            self._state.layouts[entry] = Layout(array.shape, array._element_strides)
        return self._state.current(entry)

    def known(self, entry: Entry) -> Any:
        """The value of an entry if only closed-over arrays decide it, else None."""
        if self.closed is None:
            return None
        with suspended():
            return self.closed.known(self._state.current(entry))

    def asked(self, array: Any, what: str) -> Any:
        """The present contents of a closed-over `array`, which `what` asks for, as an array.

        Raises `TraceError` if the function has written values to it that depend on its arguments.
        """
        assert self.closed is not None
        entry = self.closed.entry_of(array)
        now = self._state.current(entry)
        if now is entry:
            with suspended():
                self.closed.ask(array)
            return array
        value = self.known(now)
        if value is None:
            raise now._unknown(what)
        return value


__all__ = ["Inputs", "Scalar"]
