"""Recurrent layers and connectionist temporal classification, against loops in NumPy."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy
import pytest
from slow import check

import gemel
from gemel import autograd, gluon, np, npx
from gemel.errors import ShapeError, UnknownNameError

Array = numpy.ndarray[Any, Any]
GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


def sigmoid(x: Array) -> Array:
    return numpy.asarray(1 / (1 + numpy.exp(-x)))


def cell(mode: str, x: Array, h: Array, c: Any, w: Any, clip: Any) -> tuple[Array, Any]:
    """One step for one example."""
    a, b = w["i"] @ x + w["bi"], w["h"] @ h + w["bh"]
    if mode.startswith("rnn"):
        return (numpy.maximum(a + b, 0) if mode == "rnn_relu" else numpy.tanh(a + b)), None
    if mode == "gru":
        (r1, z1, n1), (r2, z2, n2) = numpy.split(a, 3), numpy.split(b, 3)
        r, z = sigmoid(r1 + r2), sigmoid(z1 + z2)
        return (1 - z) * numpy.tanh(n1 + r * n2) + z * h, None
    i, f, g, o = numpy.split(a + b, 4)
    c = sigmoid(f) * c + sigmoid(i) * numpy.tanh(g)
    c = numpy.clip(c, -clip, clip) if clip else c
    h = sigmoid(o) * numpy.tanh(c)
    return (w["r"] @ h if "r" in w else h), c


def slow_rnn(
    data: Array, row: Array, state: Array, state_cell: Any = None, *, mode: str, size: int,
    layers: int = 1, directions: int = 1, lengths: Any = None, projection: Any = None,
    clip: Any = None,
) -> list[Array]:  # fmt: skip
    """The layers, computed example by example, step by step."""
    time, batch, inputs = data.shape
    wide, sides = projection or size, []
    place = 0

    def taken(*shape: int) -> Array:
        nonlocal place
        place += int(numpy.prod(shape))
        return row[place - int(numpy.prod(shape)) : place].reshape(shape)

    for layer in range(layers):
        for _ in range(directions):
            n = inputs if layer == 0 else directions * wide
            w = {"i": taken(GATES[mode] * size, n), "h": taken(GATES[mode] * size, wide)}
            if projection:
                w["r"] = taken(projection, size)
            sides.append(w)
    for w in sides:
        w["bi"], w["bh"] = taken(GATES[mode] * size), taken(GATES[mode] * size)
    assert place == row.size
    hs, cs = state.copy(), None if state_cell is None else state_cell.copy()
    x = data
    for layer in range(layers):
        y = numpy.zeros((time, batch, directions * wide))
        for side, n in itertools.product(range(directions), range(batch)):
            which = layer * directions + side
            h, c = hs[which, n], None if cs is None else cs[which, n]
            steps = range(time if lengths is None else lengths[n])
            for t in reversed(steps) if side else steps:
                h, c = cell(mode, x[t, n], h, c, sides[which], clip)
                y[t, n, side * wide : (side + 1) * wide] = h
            hs[which, n] = h
            if cs is not None:
                cs[which, n] = c
        x = y
    return [x, hs] if cs is None else [x, hs, cs]


def inputs_of(
    mode: str, layers: int, directions: int, projection: Any = None, time: int = 4, batch: int = 2
) -> list[Array]:
    generator = numpy.random.default_rng(layers * 7 + directions)
    inputs, size = 3, 3
    wide = projection or size
    count = 0
    for layer in range(layers):
        n = inputs if layer == 0 else directions * wide
        count += directions * (GATES[mode] * size * (n + wide + 2) + wide * size * bool(projection))
    found = [generator.standard_normal((time, batch, inputs)), generator.standard_normal(count) / 2,
             generator.standard_normal((layers * directions, batch, wide)) / 2]  # fmt: skip
    if mode == "lstm":
        found.append(generator.standard_normal((layers * directions, batch, size)) / 2)
    return found


@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("mode", GATES)
def test_outputs_and_gradients(mode: str, layers: int, directions: int) -> None:
    options = {"mode": mode, "state_size": 3, "num_layers": layers}

    def call(*arrays: Any) -> Any:
        return npx.rnn(*arrays, **options, bidirectional=directions == 2)

    def slow(*arrays: Any) -> Any:
        return slow_rnn(*arrays, mode=mode, size=3, layers=layers, directions=directions)[0]

    check(call, slow, inputs_of(mode, layers, directions))


@pytest.mark.parametrize("kind", ["plain", "lengths", "projection"])
@pytest.mark.parametrize("mode", GATES)
def test_calls_that_are_not_recorded_multiply_input_and_state_together(
    mode: str, kind: str
) -> None:
    """The same results as recorded calls', whose products of all inputs are one."""
    if kind == "projection" and mode != "lstm":
        pytest.skip("only an LSTM has one")
    wide = 2 if kind == "projection" else None
    lengths = numpy.array([2, 4, 1, 4, 3]) if kind == "lengths" else None
    inputs = inputs_of(mode, 2, 2, wide, batch=5)
    options = {"mode": mode, "state_size": 3, "num_layers": 2, "bidirectional": True}
    if kind == "projection":
        options["projection_size"] = wide
    if kind == "lengths":
        options |= {"sequence_length": np.array(lengths), "use_sequence_length": True}

    @gemel.compile
    def call(*arrays: Any) -> Any:
        return npx.rnn(*arrays, **options, state_outputs=True)

    how = {"mode": mode, "size": 3, "layers": 2, "directions": 2}
    expected = slow_rnn(*inputs, **how, projection=wide, lengths=lengths)
    arrays = [np.array(x, dtype="float64") for x in inputs]
    arrays[1].attach_grad()
    for recorded in (False, True, False):
        if recorded:
            with autograd.record():
                found = call(*arrays)
            found[0].backward()
        else:
            found = call(*arrays)
        for value, wanted in zip(found, expected, strict=True):
            numpy.testing.assert_allclose(value.asnumpy(), wanted, rtol=1e-11, atol=1e-13)
    assert (arrays[1].grad != 0).any()


def test_products_of_a_step() -> None:
    """One where gradients are not recorded and four or more examples share the weights."""

    def products(mode: str, batch: int, size: int = 3) -> list[str]:
        net = gluon.rnn.LSTM(size) if mode == "lstm" else gluon.rnn.GRU(size)
        net.initialize()
        net.hybridize()
        x = np.ones((7, batch, 3))
        net(x).wait_to_read()
        return re.findall(r"matmul.*, from", net.source(x).split("*/")[0])

    assert len(products("lstm", 3)) > len(products("lstm", 4))
    assert len(products("gru", 3)) == len(products("gru", 4))
    assert len(products("lstm", 3, 600)) == len(products("lstm", 4, 600))  # 5.8 MB of weights


@pytest.mark.parametrize(("mode", "traces"), [("gru", 1), ("lstm", 2)])
def test_only_what_depends_on_recording_is_traced_for_both(mode: str, traces: int) -> None:
    inputs = [np.array(x) for x in inputs_of(mode, 1, 1, batch=5)]
    inputs[1].attach_grad()
    program = gemel.compile(lambda *arrays: npx.rnn(*arrays, mode=mode, state_size=3))
    program(*inputs)
    with autograd.record(train_mode=False):
        program(*inputs)
    assert program.traces == traces


@pytest.mark.parametrize("mode", GATES)
def test_last_states(mode: str) -> None:
    inputs = inputs_of(mode, 2, 2)
    options = {"mode": mode, "state_size": 3, "num_layers": 2, "bidirectional": True}

    def call(*arrays: Any) -> Any:
        return npx.rnn(*arrays, **options, state_outputs=True)

    expected = slow_rnn(*inputs, mode=mode, size=3, layers=2, directions=2)
    for function in (call, gemel.compile(call)):
        found = function(*(np.array(x, dtype="float64") for x in inputs))
        assert len(found) == len(expected)
        for value, wanted in zip(found, expected, strict=True):
            numpy.testing.assert_allclose(value.asnumpy(), wanted, rtol=1e-11)

    def states(*arrays: Any) -> Any:
        return np.concatenate([each.reshape(-1) for each in call(*arrays)[1:]])

    def slow(*arrays: Any) -> Any:
        ends = slow_rnn(*arrays, mode=mode, size=3, layers=2, directions=2)[1:]
        return numpy.concatenate([each.reshape(-1) for each in ends])

    check(states, slow, inputs)


@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh"])
def test_sequences_of_different_lengths(mode: str) -> None:
    inputs, lengths = inputs_of(mode, 2, 2), numpy.array([2, 4])

    def call(*arrays: Any) -> Any:
        found = npx.rnn(
            *arrays, *([None] if mode != "lstm" else []), np.array(lengths), mode, 3, 2, True,
            state_outputs=True, use_sequence_length=True,
        )  # fmt: skip
        return np.concatenate([each.reshape(-1) for each in found])

    def slow(*arrays: Any) -> Any:
        found = slow_rnn(*arrays, mode=mode, size=3, layers=2, directions=2, lengths=lengths)
        return numpy.concatenate([each.reshape(-1) for each in found])

    check(call, slow, inputs)


def test_projection_and_clipping() -> None:
    inputs = inputs_of("lstm", 2, 2, projection=2)
    options = {"mode": "lstm", "state_size": 3, "num_layers": 2, "bidirectional": True}

    def call(*arrays: Any) -> Any:
        limits = {"lstm_state_clip_min": -0.2, "lstm_state_clip_max": 0.2}
        return npx.rnn(*arrays, **options, projection_size=2, **limits)

    def slow(*arrays: Any) -> Any:
        how = {"mode": "lstm", "size": 3, "layers": 2, "directions": 2}
        return slow_rnn(*arrays, **how, projection=2, clip=0.2)[0]

    check(call, slow, inputs)


def test_dropout_between_layers() -> None:
    inputs = [np.array(x) for x in inputs_of("gru", 2, 1)]
    options = {"mode": "gru", "state_size": 3, "num_layers": 2, "state_outputs": True, "p": 0.5}
    plain = npx.rnn(*inputs, **options)
    same = npx.rnn(*inputs, **{**options, "p": 0.0})
    assert plain[0].tolist() == same[0].tolist()
    with autograd.train_mode():
        dropped = npx.rnn(*inputs, **options)
    assert dropped[1][0].tolist() == same[1][0].tolist()  # dropout leaves the first layer as it is
    assert dropped[0].tolist() != same[0].tolist()
    single = [np.array(x) for x in inputs_of("gru", 1, 1)]
    with autograd.train_mode():
        assert (
            npx.rnn(*single, mode="gru", state_size=3, p=0.9).tolist()
            == npx.rnn(*single, mode="gru", state_size=3).tolist()
        )


def test_other_batch_sizes_and_states_of_one() -> None:
    program = gemel.compile(lambda x, w, h: npx.rnn(x, w, h, mode="gru", state_size=3))
    data, row, state = inputs_of("gru", 1, 1)
    for batch in (1, 2, 5):
        x = numpy.repeat(data[:, :1], batch, axis=1)
        one = numpy.repeat(state[:, :1], batch, axis=1)
        expected = slow_rnn(x, row, one, mode="gru", size=3)[0]
        found = program(np.array(x), np.array(row), np.array(state[:, :1]))
        numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes_stay(dtype: str) -> None:
    arrays = [np.array(x, dtype=dtype) for x in inputs_of("lstm", 2, 2)]
    found = npx.rnn(*arrays, mode="lstm", num_layers=2, bidirectional=True, state_outputs=True)
    assert [each.dtype for each in found] == [dtype] * 3


def test_bad_input() -> None:
    x, w, h = (np.array(each) for each in inputs_of("gru", 1, 1))
    with pytest.raises(UnknownNameError, match="mode of rnn"):
        npx.rnn(x, w, h, mode="elman")
    with pytest.raises(ShapeError, match="parameters"):
        npx.rnn(x, w[1:], h, mode="gru", state_size=3)
    with pytest.raises(ShapeError, match="states"):
        npx.rnn(x, w, h[:, :, :2], mode="gru", state_size=3)
    with pytest.raises(ShapeError, match="state_cell"):
        npx.rnn(x, w, h, mode="lstm", state_size=3)
    with pytest.raises(ShapeError, match="state_cell"):
        npx.rnn(x, w, h, h, mode="gru", state_size=3)
    with pytest.raises(ShapeError, match="projection_size"):
        npx.rnn(x, w, h, mode="gru", projection_size=2)
    with pytest.raises(ShapeError, match="time"):
        npx.rnn(x[:0], w, h, mode="gru")


# --- connectionist temporal classification --------------------------------------------------


def slow_ctc(data: Array, labels: Any, lengths: Any, blank: int) -> Array:
    """The loss, by enumerating all paths."""
    _, batch, classes = data.shape
    chance = numpy.exp(data - data.max(2, keepdims=True))
    chance = chance / chance.sum(2, keepdims=True)
    found = numpy.zeros(batch)
    for n in range(batch):
        for path in itertools.product(range(classes), repeat=lengths[n]):
            short = [k for k, _ in itertools.groupby(path) if k != blank]
            if short == labels[n]:
                found[n] += numpy.prod([chance[t, n, k] for t, k in enumerate(path)])
    with numpy.errstate(divide="ignore"):
        return numpy.asarray(-numpy.log(found))


CTC = numpy.random.default_rng(3).standard_normal((4, 3, 3))


def test_ctc_loss() -> None:
    rows = numpy.array([[1, 2], [1, 1], [2, 0]])
    labels = [[1, 2], [1, 1], [2]]
    check(
        lambda x: npx.ctc_loss(x, np.array(rows)), lambda x: slow_ctc(x, labels, [4] * 3, 0), [CTC]
    )


def test_ctc_loss_with_the_last_class_as_blank() -> None:
    rows, labels = numpy.array([[0, 1], [0, 0], [-1, -1]]), [[0, 1], [0, 0], []]
    check(
        lambda x: npx.ctc_loss(x, np.array(rows), blank_label="last"),
        lambda x: slow_ctc(x, labels, [4] * 3, 2),
        [CTC],
    )


def test_ctc_loss_with_lengths() -> None:
    rows, labels = numpy.array([[1, 2], [1, 1], [2, 1]]), [[1, 2], [1], [2]]
    lengths = [3, 4, 2]

    def call(x: Any) -> Any:
        sizes = np.array(lengths), np.array([2, 1, 1])
        return npx.ctc_loss(x, np.array(rows), *sizes, True, True)

    check(call, lambda x: slow_ctc(x, labels, lengths, 0), [CTC])


def test_labels_that_cannot_fit_have_infinite_loss() -> None:
    x = np.array(CTC[:2, :1])
    x.attach_grad()
    with autograd.record():
        loss = npx.ctc_loss(x, np.array([[1, 1]]))
    loss.backward()
    assert loss.tolist() == [numpy.inf]
    assert not np.isnan(x.grad).any().item()
    with pytest.raises(ShapeError, match="ctc_loss"):
        npx.ctc_loss(np.ones((3, 2, 4)), np.ones((3, 2)))
    with pytest.raises(IndexError):
        npx.ctc_loss(np.ones((3, 1, 4)), np.array([[7]])).asnumpy()
