"""Recurrent cells: one step of a recurrent network, and `unroll`, which takes many."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from gemel import np, npx
from gemel.errors import OperandError, ShapeError, unknown_name
from gemel.gluon.block import Block, Tensor
from gemel.gluon.hybrid import HybridBlock, holds_symbols, symbol_block
from gemel.gluon.inputs import of_array, of_input
from gemel.gluon.nn.activations import activation_named
from gemel.ir.current import current_trace
from gemel.ir.graph import Entry
from gemel.ops.rounds import is_whole
from gemel.ranges import counted
from gemel.spec import check_axes
from gemel.tracing.manners import are_nd, as_nd

if TYPE_CHECKING:
    from collections.abc import Callable

    Unroll = TypeVar("Unroll", bound=Callable[..., Any])

LAYOUTS = ("NTC", "TNC")


def takes_symbols(unroll: Unroll) -> Unroll:
    """Decorate `unroll` to return NDArrays for NDArrays, and symbols for MXNet's symbols, whose
    shapes it needs."""

    @wraps(unroll)
    def either(self: Any, length: int, inputs: Any, *arguments: Any, **keywords: Any) -> Any:
        length = counted("unroll", "length", length, 0)

        def steps(inputs: Any, arguments: Any, keywords: Any) -> Any:
            return unroll(self, length, inputs, *arguments, **keywords)

        if holds_symbols(inputs):
            return symbol_block().composed(self, (inputs, arguments, keywords), steps)
        found = steps(inputs, arguments, keywords)
        return as_nd(found) if are_nd(inputs) else found

    return cast("Unroll", either)


class RecurrentCell(Block):
    """Base class of recurrent cells: ``cell(inputs, states)`` returns (output, new states).

    Subclasses define their states in `state_info` and a step in `forward`. `reset` clears anything
    else that they keep between steps.
    """

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shape and layout of each state."""
        found = []
        for cell in self._children.values():
            if isinstance(cell, RecurrentCell):
                found += cell.state_info(batch_size)
        return found

    def begin_state(
        self, batch_size: int = 0, func: Callable[..., Any] = np.zeros, **settings: Any
    ) -> list[Any]:
        """The states before the first step; `func(shape=..., **settings)` makes each."""
        return [func(shape=info["shape"], **settings) for info in self.state_info(batch_size)]

    def _takes_either(self) -> bool:
        """Whether `unroll` does the same for a list of steps as for one array."""
        cells = (cell for cell in self._children.values() if isinstance(cell, RecurrentCell))
        return all(cell._takes_either() for cell in cells)

    def _keeping(self) -> list[Any]:
        """The cells in it, or itself, that keep something from step to step beside the states.

        The first step of a sequence makes it. `_carried` of such a cell lists the arrays of it that
        each step makes anew.
        """
        cells = (cell for cell in self._children.values() if isinstance(cell, RecurrentCell))
        return [each for cell in cells for each in cell._keeping()]

    def reset(self) -> None:
        """Clear what was kept for the current sequence."""
        for cell in self._children.values():
            if isinstance(cell, RecurrentCell):
                cell.reset()

    @takes_symbols
    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: list[Any] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Tensor | None = None,
    ) -> tuple[Any, list[Any]]:
        """Run `length` steps over `inputs`: an array in `layout` ("NTC", "TNC"), or a list.

        Returns the outputs and the final states. The outputs are one array if `merge_outputs`, else
        a list (with `valid_length`, an array). After `valid_length` (batch,) steps, outputs are 0
        and states do not change; a sequence that would be longer has all steps. In a program, the
        steps are one loop, as of `npx.foreach`, unless they differ.
        """
        self.reset()
        rounds = length - 1 if self._keeping() else length
        way = self._by_rounds if in_rounds(rounds) else self._by_steps
        outputs, history, begun, states = way(
            length, inputs, begin_state, layout, valid_length is not None
        )
        if valid_length is None:
            return merged(outputs, layout, bool(merge_outputs)), states
        ends_at = within(valid_length, length)
        # If no step is valid, the results are the states before the first step.
        ends = [
            npx.sequence_last(
                np.concatenate([np.broadcast_to(first, each.shape[1:])[None], each]),
                ends_at + 1,
                True,
            )
            for first, each in zip(begun, history, strict=True)
        ]
        masked = npx.sequence_mask(merged(outputs, "TNC", True), ends_at, True)
        return merged(masked, layout, merge_outputs is not False), ends

    def _by_steps(
        self, length: int, inputs: Any, begin_state: Any, layout: str, keeps: bool
    ) -> tuple[Any, list[Any], list[Any], list[Any]]:
        """All outputs, if `keeps` the states after each step, and the states before the first and
        after the last step."""
        steps = as_list(length, inputs, layout)
        states = begun = self._begun(begin_state, steps[0])
        outputs, history = [], []
        for x in steps:
            output, states = self(x, states)
            outputs.append(output)
            history.append(states)
        kept = [np.stack(each) for each in zip(*history, strict=True)] if keeps else []
        return outputs, kept, begun, states

    def _by_rounds(
        self, length: int, inputs: Any, begin_state: Any, layout: str, keeps: bool
    ) -> tuple[Any, list[Any], list[Any], list[Any]]:
        """The same by one loop of a program, after the first step if this makes what cells keep."""
        keeping = self._keeping()

        def carry(arrays: list[Any]) -> None:
            for cell, own in zip(keeping, arrays, strict=True):
                cell._carried = own

        def step(x: Any, given: list[Any]) -> tuple[list[Any], list[Any]]:
            states, carried = given
            carry(carried)
            output, after = self(x, states)
            found = [output, *(after if keeps else ())]
            return found, [after, [cell._carried for cell in keeping]]

        whole = time_major(length, inputs, layout)
        begun = self._begun(begin_state, whole[0])
        given = [begun, [cell._carried for cell in keeping]]
        if keeping:
            first, given = step(whole[0], given)
            whole = whole[1:]
        found, (states, carried) = npx.foreach(step, whole, given)
        carry(carried)
        if keeping:
            pairs = zip(first, found, strict=True)
            found = [np.concatenate([one[None], others]) for one, others in pairs]
        outputs, *kept = found
        return outputs, kept, begun, states

    def _begun(self, states: list[Any] | None, x: Tensor) -> list[Any]:
        """The given states, or zeros for inputs like `x` (batch, ...)."""
        if states is not None:
            return states
        settings = {"dtype": x.dtype, "device": getattr(x, "device", None)}
        trace = current_trace()
        if trace is None or trace.notes is None:
            return self.begin_state(x.shape[0], **settings)
        # For a symbol file, which cannot know the batch size: the zeros follow the input's batch.
        firsts = (slice(None), *[0] * (len(x.shape) - 1))
        rows = np.zeros_like(x[firsts])
        ones = self.begin_state(1, **settings)
        return [each + rows.reshape(-1, *[1] * (len(each.shape) - 1)) for each in ones]


class HybridRecurrentCell(RecurrentCell, HybridBlock):
    """A recurrent cell whose step can be compiled."""


def check_cells(block: Block, *cells: Any) -> None:
    """Raise `OperandError` unless all are recurrent cells."""
    for cell in cells:
        if not isinstance(cell, RecurrentCell):
            raise OperandError(
                f"{type(block).__name__}: {cell!r} is not a recurrent cell, such as rnn.LSTMCell(8)"
            )


def as_list(length: int, inputs: Any, layout: str) -> list[Any]:
    """The steps of a sequence, which is an array in `layout` or already a list."""
    if layout not in LAYOUTS:
        raise unknown_name("layout of unroll", layout, LAYOUTS)
    if isinstance(inputs, (list, tuple)):
        steps = [_as_array(each) for each in inputs]
    else:
        inputs, axis = _as_array(inputs), layout.index("T")
        check_axes("unroll", "the input", inputs, "batch, time, ...")
        count = int(inputs.shape[axis])
        steps = [inputs[:, t] if axis else inputs[t] for t in range(count)]
    _check_length(len(steps), length)
    return steps


def time_major(length: int, inputs: Any, layout: str) -> Any:
    """The same as one array (time, batch, ...)."""
    if layout not in LAYOUTS or isinstance(inputs, (list, tuple)):
        return np.stack(as_list(length, inputs, layout))
    whole = _as_array(inputs)
    check_axes("unroll", "the input", whole, "batch, time, ...")
    whole = whole if layout == "TNC" else whole.swapaxes(0, 1)
    _check_length(whole.shape[0], length)
    return whole


def _check_length(count: int, length: int) -> None:
    if count != length or not count:
        raise ShapeError(f"unroll: inputs have {int(count)} steps, but length is {length}")


def in_rounds(length: int) -> bool:
    """Whether a program is traced that runs this many steps as one loop."""
    trace = current_trace()
    return trace is not None and is_whole(trace, length)


def _as_array(value: Any) -> Any:
    return value if isinstance(value, (np.ndarray, Entry)) else np.asarray(value)


def within(valid_length: Any, length: int) -> Any:
    """How many of `length` steps each sequence has: 0 to all of them."""
    return np.clip(np.asarray(valid_length), 0, length)


def merged(outputs: Any, layout: str, merge: bool) -> Any:
    """The outputs, a list or an array (time, batch, ...), as one array in `layout` if `merge`, else
    as a list."""
    if isinstance(outputs, list):
        return np.stack(outputs, axis=layout.index("T")) if merge else outputs
    if not merge:
        return as_list(outputs.shape[0], outputs, "TNC")
    return outputs if layout == "TNC" else outputs.swapaxes(0, 1)


class GatedCell(HybridRecurrentCell):
    """Cells with weights: `i2h_weight` (gates * hidden_size, input_size), `h2h_weight`, biases."""

    _gates = 1
    _states = 1

    def __init__(
        self,
        hidden_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        activation: str = "tanh",
        recurrent_activation: str = "sigmoid",
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self._hidden_size = counted(type(self).__name__, "hidden_size", hidden_size)
        self._activation = activation_named(activation)
        self._recurrent_activation = activation_named(recurrent_activation)
        rows, get = self._gates * hidden_size, self.params.get
        self.i2h_weight = get("i2h_weight", shape=(rows, input_size), init=i2h_weight_initializer)
        self.h2h_weight = get("h2h_weight", shape=(rows, self._width), init=h2h_weight_initializer)
        self.i2h_bias = get("i2h_bias", shape=(rows,), init=i2h_bias_initializer)
        self.h2h_bias = get("h2h_bias", shape=(rows,), init=h2h_bias_initializer)

    def _alias(self) -> str:
        return super()._alias().removesuffix("cell")

    @property
    def _width(self) -> int:
        """The number of elements of h."""
        return self._hidden_size

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """The shapes (batch, width) of h, and (batch, hidden_size) of c if there is one."""
        widths = [self._width, self._hidden_size][: self._states]
        return [{"shape": (batch_size, width), "__layout__": "NC"} for width in widths]

    @of_input
    def infer_shape(self, x: Tensor, *others: Any) -> None:
        """The input weight has as many columns as an input has values."""
        check_axes(type(self).__name__, "the input", x, "..., inputs")
        self.i2h_weight.shape = (self._gates * self._hidden_size, int(x.shape[-1]))

    def _added(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """The contributions of the input and of h to all gates, which are concatenated."""
        return (
            npx.fully_connected(x, self.i2h_weight.data(), self.i2h_bias.data(), flatten=False),
            npx.fully_connected(h, self.h2h_weight.data(), self.h2h_bias.data(), flatten=False),
        )

    def _given(self, states: Any) -> list[Any]:
        """Check the states. Raises `ShapeError` for a single array, whose rows could pass for
        states."""
        if not isinstance(states, (list, tuple)) or len(states) != self._states:
            given = len(states) if isinstance(states, (list, tuple)) else type(states).__name__
            raise ShapeError(
                f"{self.name}: states must be a list of {self._states} arrays, as from "
                f"begin_state, not {given}"
            )
        return list(states)

    def _gate(self, gates: Tensor, number: int) -> Tensor:
        size = self._hidden_size
        return gates[:, number * size : (number + 1) * size]

    def _sigmoid(self, x: Tensor) -> Tensor:
        return npx.activation(x, act_type=self._recurrent_activation)

    def _tanh(self, x: Tensor) -> Tensor:
        return npx.activation(x, act_type=self._activation)

    def __repr__(self) -> str:
        outputs, inputs = self.i2h_weight.shape or (self._hidden_size, -1)
        return f"{type(self).__name__}({inputs} -> {outputs})"


class RNNCell(GatedCell):
    """h = activation(x @ i2h.T + h @ h2h.T + biases) (Elman, 1988)."""

    def __init__(self, hidden_size: int, activation: str = "tanh", **settings: Any) -> None:
        super().__init__(hidden_size, activation=activation, **settings)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {self._activation})"

    @of_array
    def forward(self, inputs: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
        """(batch, inputs) -> (batch, hidden_size), which is the new state, too."""
        (h,) = self._given(states)
        a, b = self._added(inputs, h)
        h = self._tanh(a + b)
        return h, [h]


class LSTMCell(GatedCell):
    """Long short-term memory; the gates are in the order input, forget, new, output.

    Hochreiter and Schmidhuber, Long short-term memory, Neural computation 9, 1997.
    """

    _gates = 4
    _states = 2

    @of_array
    def forward(self, inputs: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
        """(batch, inputs) -> (batch, hidden_size); the states are h and c."""
        h, c = self._given(states)
        a, b = self._added(inputs, h)
        into, keep, new, out = (self._gate(a + b, number) for number in range(4))
        c = self._sigmoid(keep) * c + self._sigmoid(into) * self._tanh(new)
        h = self._projected(self._sigmoid(out) * self._tanh(c))
        return h, [h, c]

    def _projected(self, h: Tensor) -> Tensor:
        return h


class LSTMPCell(LSTMCell):
    """An LSTM whose h is projected to `projection_size` elements by `h2r_weight`.

    Sak et al., Long short-term memory based recurrent neural network architectures for large
    vocabulary speech recognition, 2014.
    """

    def __init__(
        self,
        hidden_size: int,
        projection_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        h2r_weight_initializer: Any = None,
        **settings: Any,
    ) -> None:
        name = type(self).__name__
        self._projection_size = counted(name, "projection_size", projection_size)
        super().__init__(hidden_size, i2h_weight_initializer, h2h_weight_initializer, **settings)
        shape = projection_size, hidden_size
        self.h2r_weight = self.params.get("h2r_weight", shape=shape, init=h2r_weight_initializer)

    @property
    def _width(self) -> int:
        return self._projection_size

    def _projected(self, h: Tensor) -> Tensor:
        return npx.fully_connected(h, self.h2r_weight.data(), None, flatten=False)


class GRUCell(GatedCell):
    """Gated recurrent unit; the gates are in the order reset, update, new.

    The reset gate acts on the product of h and its weight, as cuDNN has it (Cho et al., 2014).
    """

    _gates = 3

    @of_array
    def forward(self, inputs: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
        """(batch, inputs) -> (batch, hidden_size), which is the new state, too."""
        (h,) = self._given(states)
        a, b = self._added(inputs, h)
        reset = self._sigmoid(self._gate(a, 0) + self._gate(b, 0))
        update = self._sigmoid(self._gate(a, 1) + self._gate(b, 1))
        new = self._tanh(self._gate(a, 2) + reset * self._gate(b, 2))
        h = (1 - update) * new + update * h
        return h, [h]


__all__ = ["GRUCell", "HybridRecurrentCell", "LSTMCell", "LSTMPCell", "RNNCell", "RecurrentCell"]
