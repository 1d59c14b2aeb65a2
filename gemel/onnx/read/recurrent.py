"""LSTM, GRU and RNN."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from gemel import np, npx
from gemel.onnx.read.table import imports

#: Activations by name: which of alpha and beta they take, and functions of x and these.
ACTIVATIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "affine": ("ab", lambda x, a=1.0, b=0.0: a * x + b),
    "elu": ("a", lambda x, a=1.0: npx.leaky_relu(x, act_type="elu", slope=a)),
    "hardsigmoid": ("ab", lambda x, a=0.2, b=0.5: np.clip(a * x + b, 0, 1)),
    "leakyrelu": ("a", lambda x, a=0.01: npx.leaky_relu(x, slope=a)),
    "relu": ("", npx.relu),
    "scaledtanh": ("ab", lambda x, a=1.0, b=1.0: a * np.tanh(b * x)),
    "sigmoid": ("", npx.sigmoid),
    "softplus": ("", npx.softplus),
    "softsign": ("", npx.softsign),
    "tanh": ("", np.tanh),
    "thresholdedrelu": ("a", lambda x, a=1.0: np.where(x > a, x, 0)),
}
USUAL = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
#: gemel's order of the gates, as positions in ONNX's order.
ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}


class Weights(NamedTuple):
    """The arrays of one direction."""

    input: Any
    hidden: Any
    bias: Any
    peepholes: Any


@imports("LSTM", "GRU", "RNN")
def _(
    node: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    h: Any = None,
    c: Any = None,
    p: Any = None,
) -> Any:
    batch_first = node.get("layout", 0)
    if batch_first:
        x = np.swapaxes(x, 0, 1)
        h, c = (None if each is None else np.swapaxes(each, 0, 1) for each in (h, c))
    count = int(w.shape[0])
    outputs, ends = [], []
    for place in range(count):
        own = Weights(*(None if each is None else each[place] for each in (w, r, b, p)))
        begin = [None if each is None else each[place] for each in (h, c)]
        backwards = place == 1 or node.get("direction", "forward") == "reverse"
        found, *last = _direction(node, x, own, lengths, begin, place, backwards)
        outputs.append(found)
        ends.append(last)
    y = np.stack(outputs, axis=1)
    last = [np.stack([each[i] for each in ends]) for i in range(len(ends[0]))]
    if batch_first:
        y = np.transpose(y, (2, 0, 1, 3))
        last = [np.swapaxes(each, 0, 1) for each in last]
    return y, *last


def _direction(
    node: Any, x: Any, w: Weights, lengths: Any, begin: list[Any], place: int, backwards: bool
) -> list[Any]:
    """The outputs (time, batch, size) of one direction, and its last states (batch, size)."""
    size, batch = int(w.hidden.shape[1]), x.shape[1]
    cells = 2 if node.kind == "LSTM" else 1
    states = [
        np.zeros((batch, size), dtype=x.dtype) if each is None else each for each in begin[:cells]
    ]
    names = [name.lower() for name in node.get("activations") or []]
    names = names[place * len(USUAL[node.kind]) :][: len(USUAL[node.kind])]
    usual = names in ([], [name.lower() for name in USUAL[node.kind]])
    plain = w.peepholes is None and not node.get("clip") and not node.get("input_forget", 0)
    if node.kind == "GRU":
        plain = plain and bool(node.get("linear_before_reset", 0))
    x = npx.sequence_reverse(x, lengths, lengths is not None) if backwards else x
    if plain and (usual or (node.kind == "RNN" and names == ["relu"])):
        found = _by_layer(node, x, w, lengths, states, size, "relu" in names)
    else:
        found = _by_steps(node, x, w, lengths, states, _functions(node, names, place))
    outputs, *last = found
    if backwards:
        outputs = npx.sequence_reverse(outputs, lengths, lengths is not None)
    return [outputs, *last]


def _by_layer(
    node: Any, x: Any, w: Weights, lengths: Any, states: list[Any], size: int, relu: bool
) -> list[Any]:
    """Compute with `npx.rnn`."""
    mode = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn_relu" if relu else "rnn_tanh"}[node.kind]
    order = ORDER[node.kind]
    rows = len(order) * size
    bias = np.zeros((2 * rows,), dtype=x.dtype) if w.bias is None else w.bias
    parts = [_ordered(each, order, size) for each in (w.input, w.hidden, bias[:rows], bias[rows:])]
    given = [np.expand_dims(each, 0) for each in states]
    outputs, *last = npx.rnn(
        x,
        parts,
        given[0],
        given[1] if len(given) == 2 else None,
        lengths,
        mode=mode,
        state_size=size,
        state_outputs=True,
        use_sequence_length=lengths is not None,
    )
    return [outputs, *(each[0] for each in last)]


def _ordered(weight: Any, order: tuple[int, ...], size: int) -> Any:
    """A weight with its gates in another order."""
    if len(order) == 1:
        return weight
    return np.concatenate([weight[gate * size : (gate + 1) * size] for gate in order], axis=0)


def _functions(node: Any, names: list[str], place: int) -> list[Callable[[Any], Any]]:
    """The activation functions of a direction. The alphas and betas of a node are for those that
    take them, in order, over both directions."""
    usual = [name.lower() for name in USUAL[node.kind]]
    before = [name.lower() for name in node.get("activations") or ()][: place * len(usual)]
    values = {
        "a": iter(node.get("activation_alpha") or ()),
        "b": iter(node.get("activation_beta") or ()),
    }
    found: list[Callable[[Any], Any]] = []
    for name in (*before, *(names or usual)):
        if name not in ACTIVATIONS:
            raise node.refuse(f"activation {name!r} is none of {', '.join(ACTIVATIONS)}")
        takes, function = ACTIVATIONS[name]
        settings = {key: value for key in takes for value in islice(values[key], 1)}
        found.append(partial(function, **settings))
    return found[len(before) :]


def _by_steps(
    node: Any, x: Any, w: Weights, lengths: Any, states: list[Any], functions: list[Any]
) -> list[Any]:
    """Compute with a loop over time, for variants that `npx.rnn` does not have."""
    rows = w.input.shape[0]
    limit = node.get("clip")
    into, again = (None, None) if w.bias is None else (w.bias[:rows], w.bias[rows:])
    time, batch, wide = x.shape
    added = np.matmul(np.reshape(x, (time * batch, wide)), w.input.T)
    added = np.reshape(added if into is None else added + into, (time, batch, rows))

    def limited(value: Any) -> Any:
        return value if not limit else np.clip(value, -limit, limit)

    step = STEPS[node.kind]
    hidden = w.hidden.T, (np.zeros((rows,), dtype=x.dtype) if again is None else again)

    def body(given: Any, before: Any) -> Any:
        at, place = given
        after = step(node, at, before, hidden, w.peepholes, functions, limited)
        output = after[0]
        if lengths is not None:
            inside = np.expand_dims(lengths > place, -1)
            output = np.where(inside, output, 0)
            after = [np.where(inside, a, b) for a, b in zip(after, before, strict=True)]
        return output, after

    places = np.arange(time, dtype="int64")
    outputs, last = npx.foreach(body, [added, places], states)
    return [outputs, *last]


def _gates(x: Any, count: int) -> list[Any]:
    size = int(x.shape[-1]) // count
    return [x[..., i * size : (i + 1) * size] for i in range(count)]


def _lstm(node: Any, at: Any, states: Any, hidden: Any, p: Any, f: Any, limited: Any) -> list[Any]:
    h, c = states
    into, out, keep, new = _gates(at + np.matmul(h, hidden[0]) + hidden[1], 4)
    of_in, of_out, of_keep = _gates(p, 3) if p is not None else (None, None, None)
    into = f[0](limited(into if of_in is None else into + of_in * c))
    keep = (
        1 - into
        if node.get("input_forget", 0)
        else (f[0](limited(keep if of_keep is None else keep + of_keep * c)))
    )
    c = keep * c + into * f[1](limited(new))
    out = f[0](limited(out if of_out is None else out + of_out * c))
    return [out * f[2](c), c]


def _gru(node: Any, at: Any, states: Any, hidden: Any, p: Any, f: Any, limited: Any) -> list[Any]:
    (h,) = states
    size = int(h.shape[-1])
    update, reset, new = _gates(at, 3)
    weight, bias = hidden
    both = np.matmul(h, weight[:, : 2 * size]) + bias[: 2 * size]
    update = f[0](limited(update + both[:, :size]))
    reset = f[0](limited(reset + both[:, size:]))
    if node.get("linear_before_reset", 0):
        inner = reset * (np.matmul(h, weight[:, 2 * size :]) + bias[2 * size :])
    else:
        inner = np.matmul(reset * h, weight[:, 2 * size :]) + bias[2 * size :]
    new = f[1](limited(new + inner))
    return [(1 - update) * new + update * h]


def _rnn(node: Any, at: Any, states: Any, hidden: Any, p: Any, f: Any, limited: Any) -> list[Any]:
    (h,) = states
    return [f[0](limited(at + np.matmul(h, hidden[0]) + hidden[1]))]


STEPS = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}
