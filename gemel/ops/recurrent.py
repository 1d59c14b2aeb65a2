"""Recurrent layers over whole sequences, and connectionist temporal classification."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from gemel.errors import ShapeError, unknown_name
from gemel.extent import same_for_all
from gemel.ir.current import recording_trace
from gemel.ir.declare import composite
from gemel.ir.public import Array, function
from gemel.ir.trace import kept_whole
from gemel.ops.elementwise import (
    cast,
    exp,
    full,
    iota,
    limit,
    log,
    maximum,
    minimum,
    multiply,
    relu,
    sigmoid,
    stop_gradient,
    subtract,
    tanh,
    where,
)
from gemel.ops.layouts import array_of
from gemel.ops.linalg import matmul
from gemel.ops.logic import logical_and
from gemel.ops.loops import each_of
from gemel.ops.neural import dropout, log_softmax
from gemel.ops.reduction import sum
from gemel.ops.selection import take_along_axis
from gemel.ops.sequences import sequence_reverse
from gemel.ops.shape import (
    broadcast_to,
    concatenate,
    expand_dims,
    operand,
    reshape,
    stack,
    transpose,
)
from gemel.ranges import counted

# --- steps ----------------------------------------------------------------------------------


def _hidden(h: Any, weight: Any, bias: Any) -> Any:
    return matmul(h, transpose(weight)) + bias


def _parts(x: Any, count: int) -> list[Any]:
    """The parts of x for each of `count` gates, which lie side by side."""
    size = x.shape[1] // count
    return [x[:, n * size : (n + 1) * size] for n in range(count)]


@composite()
def rnn_step(x: Any, h: Any, weight: Any, bias: Any, *, mode: str) -> Any:
    """tanh or relu of x + h @ weight.T + bias; x is the input's contribution (Elman, 1988)."""
    return (relu if mode == "rnn_relu" else tanh)(x + _hidden(h, weight, bias))


@composite(outputs=2)
def lstm_step(x: Any, h: Any, c: Any, weight: Any, bias: Any, *, low: Any, high: Any) -> Any:
    """h and c after a step; x is the input's share of the gates (Hochreiter, Schmidhuber 1997).

    The gates lie side by side: input, forget, new, output. c is limited to [low, high].
    """
    into, keep, new, out = _parts(x + _hidden(h, weight, bias), 4)
    c = multiply(sigmoid(keep), c) + multiply(sigmoid(into), tanh(new))
    if low is not None or high is not None:
        c = limit(c, -INFINITY if low is None else low, INFINITY if high is None else high)
    return multiply(sigmoid(out), tanh(c)), c


@composite()
def gru_step(x: Any, h: Any, weight: Any, bias: Any) -> Any:
    """h after a step; x is the input's share of the gates reset, update, new (Cho et al., 2014).

    The reset gate acts on the product, as in cuDNN.
    """
    reset_x, update_x, new_x = _parts(x, 3)
    reset_h, update_h, new_h = _parts(_hidden(h, weight, bias), 3)
    update = sigmoid(update_x + update_h)
    new = tanh(new_x + multiply(sigmoid(reset_x + reset_h), new_h))
    return new + multiply(update, subtract(h, new))


INFINITY = float("inf")
#: The number of gates of each mode.
GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


class _Settings(NamedTuple):
    """The settings that all layers share."""

    mode: str
    size: int
    directions: int
    projection: int | None
    low: float | None
    high: float | None

    @property
    def width(self) -> int:
        """How many elements h has."""
        return self.projection or self.size


class _Weights(NamedTuple):
    """The arrays of one direction of a layer."""

    input: Any
    hidden: Any
    projection: Any
    input_bias: Any
    hidden_bias: Any


def _unpacked(parameters: Any, how: _Settings, layers: int, inputs: Any) -> list[_Weights]:
    """The weights of all layers and directions, cut from `parameters`. Raises `ShapeError`.

    In it, all weights come before all biases.
    """
    rows = GATES[how.mode] * how.size
    kinds: list[list[tuple[Any, ...]]] = []
    for layer in range(layers):
        wide = inputs if layer == 0 else how.directions * how.width
        shapes = [(rows, wide), (rows, how.width)]
        shapes += [(how.projection, how.size)] if how.projection else []
        kinds += [shapes] * how.directions
    biases = [[(rows,), (rows,)]] * len(kinds)
    wanted = [shape for shapes in (*kinds, *biases) for shape in shapes]
    whole = f"{layers} layers of {how.mode} with {how.size} states and {inputs} inputs"
    cut = _listed if isinstance(parameters, (list, tuple)) else _slices
    parts = iter(cut(parameters, wanted, whole))
    weights = [[next(parts) for _ in shapes] for shapes in kinds]
    return [
        _Weights(w[0], w[1], w[2] if how.projection else None, next(parts), next(parts))
        for w in weights
    ]


def _listed(parameters: Any, wanted: list[tuple[Any, ...]], whole: str) -> list[Any]:
    """The parameters, given as one array each."""
    arrays = [operand(each) for each in parameters]
    fits = len(arrays) == len(wanted) and all(
        len(a.shape) == len(shape) and all(m == n for m, n in zip(a.shape, shape, strict=True))
        for a, shape in zip(arrays, wanted, strict=True)
    )
    if not fits:
        found = ", ".join(str(list(a.shape)) for a in arrays)
        shapes = ", ".join(str(list(shape)) for shape in wanted)
        raise ShapeError(f"rnn: parameters {found} must be {shapes}, for {whole}")
    return arrays


def _slices(row: Any, wanted: list[tuple[Any, ...]], whole: str) -> list[Any]:
    """The parameters, cut from one row that contains all of them."""
    row = operand(row)
    ends: list[Any] = [0]
    for shape in wanted:
        ends.append(ends[-1] + (shape[0] * shape[1] if len(shape) == 2 else shape[0]))
    if len(row.shape) != 1 or not row.shape[0] == ends[-1]:
        raise ShapeError(
            f"rnn: parameters {list(row.shape)} must be one row of {ends[-1]}, for {whole}"
        )
    places = zip(ends[:-1], ends[1:], wanted, strict=True)
    return [reshape(row[begin:end], shape=shape) for begin, end, shape in places]


def _step(added: Any, states: list[Any], w: _Weights, how: _Settings) -> list[Any]:
    """h (and c of an LSTM) after one more step; `added` is the input's share of the gates."""
    h, *cell = states
    if cell:
        (c,) = cell
        h, c = lstm_step(added, h, c, w.hidden, w.hidden_bias, low=how.low, high=how.high)
        return [h if w.projection is None else matmul(h, transpose(w.projection)), c]
    if how.mode == "gru":
        return [gru_step(added, h, w.hidden, w.hidden_bias)]
    return [rnn_step(added, h, w.hidden, w.hidden_bias, mode=how.mode)]


#: In a loop of a program, the products of the input and of the state are one product if at least
#: this many examples share what is read of the weights, and these have at most so many bytes, which
#: the second-level cache holds at least half of.
SHARING, HELD = 4, 5 << 19


def _is_one_product(x: Any, w: _Weights, how: _Settings) -> bool:
    """Whether each step multiplies input and state together by the weights of both, instead of
    adding to the products of all inputs, which are large and would be written and read again.

    Not where gradients are recorded: there the products of all inputs, and their gradients, are
    faster as one. The new gate of a GRU needs both products apart.
    """
    weights = w.input.shape[0] * (w.input.shape[1] + w.hidden.shape[1])
    if how.mode == "gru" or weights * x.dtype.itemsize > HELD:
        return False  # before a question about recording, which would tie the program to the answer
    trace = recording_trace()
    return trace is not None and not trace.recording.is_on and bool(x.shape[1] >= SHARING)


def _joined_step(w: _Weights, how: _Settings) -> Callable[[Any, list[Any]], list[Any]]:
    """`_step` for the inputs themselves."""
    joined = w._replace(hidden=concatenate(w.input, w.hidden, axis=1))

    def step(x: Any, states: list[Any]) -> list[Any]:
        both = concatenate(x, states[0], axis=1)
        return _step(w.input_bias, [both, *states[1:]], joined, how)

    return step


def _direction(
    x: Any, w: _Weights, how: _Settings, ends: list[Any], lengths: Any, backwards: bool
) -> tuple[Any, list[Any]]:
    """The outputs of one direction of a layer (time, batch, width), and its last states.

    After the end of a sequence its states do not change, and the outputs are 0.
    """

    def turned(values: Any) -> Any:
        return sequence_reverse(values, lengths, True) if backwards else values

    x = x if lengths is None else turned(x)
    time, batch = x.shape[:2]
    if _is_one_product(x, w, how):
        step = _joined_step(w, how)
    else:
        step = partial(_step, w=w, how=how)
        flat = reshape(x, shape=(time * batch, x.shape[2]))
        added = matmul(flat, transpose(w.input)) + w.input_bias
        x = reshape(added, shape=(time, batch, GATES[how.mode] * how.size))

    def body(given: list[Any], states: list[Any]) -> tuple[Any, list[Any]]:
        after = step(given[0], states)
        output = after[0]
        if lengths is not None:
            inside = expand_dims(lengths > given[1], -1)
            output = where(inside, output, 0.0)
            after = [where(inside, a, b) for a, b in zip(after, states, strict=True)]
        return output, after

    places = [] if lengths is None else [iota(shape=(time,), axis=0, dtype="int64")]
    outputs, last = each_of(body, [x, *places], ends, backwards and lengths is None)
    return (outputs if lengths is None else turned(outputs)), last


@function(public="npx")
def rnn(
    data: Any,
    parameters: Any,
    state: Any,
    state_cell: Any = None,
    sequence_length: Any = None,
    mode: str = "lstm",
    state_size: int | None = None,
    num_layers: int = 1,
    bidirectional: bool = False,
    state_outputs: bool = False,
    p: float = 0.0,
    use_sequence_length: bool = False,
    projection_size: int | None = None,
    lstm_state_clip_min: float | None = None,
    lstm_state_clip_max: float | None = None,
    lstm_state_clip_nan: bool = False,
) -> Array | tuple[Any, ...]:
    """Layers of a recurrent network ("rnn_relu", "rnn_tanh", "lstm", "gru") over data (time, batch,
    inputs): (time, batch, directions * state_size).

    `parameters` is one row: for each layer and direction the weights of the input and of the state
    (and of the projection), then for each their biases; or the list of those arrays. `state`, and
    `state_cell` of an "lstm", are (layers * directions, batch, state_size). In training, values
    passed from one layer to the next are dropped with probability p. `projection_size` is that of
    an lstm's h (Sak et al., 2014), the two clips limit its c. With `use_sequence_length` each
    sequence ends at its `sequence_length`, or with the data; later elements become 0. With
    `state_outputs` the result is a list: also the last states.

    In a trace time is a loop of the program, of any length (see `foreach`).

    >>> weights = np.ones((2 * 3 + 2 * 2 + 2 + 2,)) * 0.1
    >>> npx.rnn(np.ones((2, 1, 3)), weights, np.zeros((1, 1, 2)), mode="rnn_tanh", state_size=2)
    """
    if mode not in GATES:
        raise unknown_name("mode of rnn", mode, GATES)
    data, directions = operand(data), 2 if bidirectional else 1
    state = array_of("rnn", "state", state, "layers * directions, batch, state_size", (data,))
    num_layers = counted("rnn", "num_layers", num_layers)
    size = int(state.shape[-1]) if state_size is None else state_size
    if len(data.shape) != 3 or not data.shape[0] > 0:
        raise ShapeError(
            f"rnn: data {list(data.shape)} must be (time, batch, inputs), with at least one time "
            "step"
        )
    if projection_size is not None and mode != "lstm":
        raise ShapeError(f"rnn: projection_size is for mode 'lstm', not {mode!r}")
    if (state_cell is None) == (mode == "lstm"):
        raise ShapeError(
            "rnn: state_cell is required for mode 'lstm' and not allowed for other modes"
        )
    low, high = lstm_state_clip_min, lstm_state_clip_max
    how = _Settings(mode, size, directions, projection_size, low, high)
    given = [(state, how.width), (state_cell, size)][: 2 if mode == "lstm" else 1]
    states = [_states(each, width, how, num_layers, data.shape[1]) for each, width in given]
    lengths = None
    if use_sequence_length:
        lengths = array_of("rnn", "sequence_length", sequence_length, "batch")
        lengths = cast(lengths, dtype="int64")
    weights = _unpacked(parameters, how, num_layers, data.shape[2])
    whole = kept_whole("rnn")
    if whole is not None:
        return whole(data, weights, states, lengths, how, state_outputs)
    if lengths is not None:
        lengths = minimum(lengths, data.shape[0])
    x, last = data, []
    for layer in range(num_layers):
        sides = []
        for number in range(layer * directions, (layer + 1) * directions):
            begin, backwards = [each[number] for each in states], number % directions == 1
            found, ends = _direction(x, weights[number], how, begin, lengths, backwards)
            sides.append(found)
            last.append(ends)
        x = concatenate(*sides, axis=2) if bidirectional else sides[0]
        if p and layer < num_layers - 1:
            x = dropout.face(x, p)
    if not state_outputs:
        return x
    return [x, *(stack([ends[i] for ends in last]) for i in range(len(states)))]


def _states(x: Any, width: int, how: _Settings, layers: int, batch: Any) -> Any:
    """States (layers * directions, batch, width); those of one example serve the whole batch."""
    x = operand(x)
    shape = (layers * how.directions, batch, width)
    fits = len(x.shape) == 3 and x.shape[0] == shape[0] and x.shape[2] == width
    if fits and same_for_all(x.shape[1], batch):
        return x
    if not fits or not (x.shape[1] == 1 or x.shape[1] == batch):
        raise ShapeError(f"rnn: states {list(x.shape)} must be {list(shape)}")
    return broadcast_to(x, shape=shape)


# --- connectionist temporal classification --------------------------------------------------

#: The logarithm of probability 0: finite, so that the difference of two is not NaN.
NEVER = -1e30


@composite()
def ctc_step(alpha: Any, emitted: Any, skips: Any) -> Any:
    """The log probabilities of the labels so far, after one more time step."""
    before = full(NEVER, shape=(alpha.shape[0], 2), dtype=alpha.dtype)
    wide = concatenate(before, alpha, axis=1)
    count = alpha.shape[1]
    one, two = wide[:, 1 : count + 1], where(skips, wide[:, :count], NEVER)
    top = stop_gradient(maximum(maximum(alpha, one), two))
    total = exp(alpha - top) + exp(one - top) + exp(two - top)
    return maximum(top + log(total) + emitted, NEVER)


@function(public="npx")
def ctc_loss(
    data: Any,
    label: Any,
    data_lengths: Any = None,
    label_lengths: Any = None,
    use_data_lengths: bool = False,
    use_label_lengths: bool = False,
    blank_label: str = "first",
) -> Array:
    """The CTC loss: -log of the probability of labels (batch, labels) given data (time, batch,
    classes) before softmax; one number per example, inf if a label is too long.

    The blank is class 0 and labels end at a 0 ("first"), or the blank is the last class and labels
    end at a -1 ("last"), unless lengths are given. Graves et al., Connectionist temporal
    classification, ICML 2006.

    In a trace the steps are unrolled, and the length of time is fixed.

    >>> npx.ctc_loss(np.zeros((4, 1, 3)), np.array([[1, 2]]))
    """
    if blank_label not in ("first", "last"):
        raise unknown_name("blank_label of ctc_loss", blank_label, ("first", "last"))
    data, label = operand(data), cast(operand(label), dtype="int64")
    if len(data.shape) != 3 or len(label.shape) != 2 or not label.shape[0] == data.shape[1]:
        raise ShapeError(
            f"ctc_loss: data {list(data.shape)} must be (time, batch, classes) and label "
            f"{list(label.shape)} (batch, labels)"
        )
    time, batch, count = int(data.shape[0]), data.shape[1], label.shape[1]
    blank = 0 if blank_label == "first" else data.shape[2] - 1
    lengths = cast(operand(label_lengths), dtype="int64") if use_label_lengths else None
    if lengths is None:
        ended = label == (0 if blank_label == "first" else -1)
        place = iota(shape=(count,), axis=0, dtype="int64")
        lengths = where(ended, place, count).min(axis=1, initial=count)
    inside = iota(shape=(count,), axis=0, dtype="int64") < expand_dims(lengths, -1)
    label = where(inside, label, blank)
    blanks = full(blank, shape=(batch, count), dtype="int64")
    between = reshape(stack([blanks, label], axis=2), shape=(batch, 2 * count))
    symbols = concatenate(between, full(blank, shape=(batch, 1), dtype="int64"), axis=1)
    wide = log_softmax(cast(data, dtype=data.dtype.floating.accumulate))
    emitted = take_along_axis(
        wide, broadcast_to(symbols, shape=(time, batch, 2 * count + 1)), axis=2
    )
    two_before = concatenate(full(-1, shape=(batch, 2), dtype="int64"), symbols[:, :-2], axis=1)
    skips = logical_and(symbols != blank, symbols != two_before[:, : 2 * count + 1])
    number = iota(shape=(2 * count + 1,), axis=0, dtype="int64")
    alpha = where(number < 2, emitted[0], NEVER)
    for step in range(1, time):
        found = ctc_step(alpha, emitted[step], skips)
        if use_data_lengths:
            found = where(expand_dims(operand(data_lengths) > step, -1), found, alpha)
        alpha = found
    ends = expand_dims(2 * lengths, -1)
    final = where(logical_and(number <= ends, number >= ends - 1), alpha, NEVER)
    top = stop_gradient(final.max(axis=1, keepdims=True))
    loss = -(top[:, 0] + log(sum(exp(final - top), axis=1)))
    return where(loss > -0.5 * NEVER, INFINITY, loss)
