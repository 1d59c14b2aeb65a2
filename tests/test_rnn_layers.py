"""Recurrent layers and cells: layers against cells, compiled, with lengths, dropout and files."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy
import pytest
from slow import check

import gemel
from gemel import autograd, cpu, device, gluon, gpu, init, nd, np, npx
from gemel.errors import ArgumentError, ShapeError, UnknownNameError
from gemel.gluon import nn, rnn

LAYERS = {
    "relu": lambda **settings: rnn.RNN(4, **settings),
    "tanh": lambda **settings: rnn.RNN(4, activation="tanh", **settings),
    "lstm": lambda **settings: rnn.LSTM(4, **settings),
    "projected": lambda **settings: rnn.LSTM(4, projection_size=2, **settings),
    "gru": lambda **settings: rnn.GRU(4, **settings),
}
CELLS = {
    "rnn": lambda: rnn.RNNCell(3),
    "relu": lambda: rnn.RNNCell(3, "relu"),
    "lstm": lambda: rnn.LSTMCell(3),
    "hard": lambda: rnn.LSTMCell(3, activation="softsign", recurrent_activation="sigmoid"),
    "projected": lambda: rnn.LSTMPCell(4, 3),
    "gru": lambda: rnn.GRUCell(3),
    "residual": lambda: rnn.ResidualCell(rnn.GRUCell(3)),
    "zoneout": lambda: rnn.ZoneoutCell(rnn.LSTMCell(3), 0.3, 0.4),
    "variational": lambda: rnn.VariationalDropoutCell(rnn.LSTMCell(3), 0.3, 0.4, 0.5),
    "stack": lambda: stack(rnn.LSTMCell(5), rnn.DropoutCell(0.3), rnn.GRUCell(3)),
    "both ways": lambda: rnn.BidirectionalCell(rnn.GRUCell(3), rnn.LSTMCell(2)),
    "both ways in a stack": lambda: stack(
        rnn.BidirectionalCell(rnn.RNNCell(2), rnn.RNNCell(2)), rnn.RNNCell(3)
    ),
}


def stack(*cells: Any) -> Any:
    found = rnn.HybridSequentialRNNCell()
    found.add(*cells)
    return found


def close(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    numpy.testing.assert_allclose(found.asnumpy(), wanted.asnumpy(), rtol=0, atol=tolerance)


@pytest.fixture(autouse=True)
def seeded() -> None:
    np.random.seed(7)


@pytest.mark.parametrize("layout", ["TNC", "NTC"])
@pytest.mark.parametrize("shape", [(1, False), (2, True)])
@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_is_its_cells(kind: str, shape: tuple[int, bool], layout: str) -> None:
    layer = LAYERS[kind](num_layers=shape[0], bidirectional=shape[1], layout=layout)
    layer.initialize(init.Uniform(0.5))
    x = np.random.normal(size=(5, 3, 2))
    batch, length = (3, 5) if layout == "TNC" else (5, 3)
    states = [np.random.normal(size=s.shape) for s in layer.begin_state(batch)]
    outputs, ends = layer(x, states)
    cells = layer.unfuse()
    begun = [state[n] for n in range(states[0].shape[0]) for state in states]
    found, last = cells.unroll(length, x, begun, layout, merge_outputs=True)
    close(found, outputs)
    for number, state in enumerate(last):
        close(state, ends[number % len(ends)][number // len(ends)])
    layer.hybridize()
    for examples in (x, x[:, :2], x[:4]):  # another batch size, another length
        again = layer(examples)
        layer.hybridize(False)
        close(again, layer(examples))
        layer.hybridize()
    compiled, compiled_ends = layer(x, states)
    close(compiled, outputs)
    for a, b in zip(compiled_ends, ends, strict=True):
        close(a, b)


@pytest.mark.parametrize("kind", LAYERS)
def test_gradients(kind: str) -> None:
    """In float64, for the input and all parameters, against finite differences."""
    layer = LAYERS[kind](input_size=2)
    layer.initialize(init.Uniform(0.5))
    layer.cast("float64")
    places = list(layer.collect_params().values())
    shapes = [tuple(p.shape) for p in places]
    assert all(p.dtype.name == "float64" for p in places)

    def call(x: Any, *values: Any) -> Any:
        outputs = npx.rnn(
            x, list(values), *begin, mode=layer._mode, state_size=4,
            projection_size=layer._projection_size,
        )  # fmt: skip
        return outputs

    order = layer._row()
    begin = [np.zeros((1, 1, n["shape"][2]), dtype="float64") for n in layer.state_info(1)]
    generator = numpy.random.default_rng(3)
    x = generator.standard_normal((3, 2, 2))

    def slow(x: Any, *values: Any) -> Any:
        arrays = [np.array(value, dtype="float64") for value in values]
        return call(np.array(x, dtype="float64"), *arrays).asnumpy()

    check(call, slow, [x, *(a.asnumpy() for a in order)])
    assert len(shapes) == len(order)
    a = np.array(x, dtype="float64")
    close(layer(a), call(a, *order), 1e-14)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_lengths(kind: str) -> None:
    layer = LAYERS[kind](num_layers=2, bidirectional=True)
    layer.initialize(init.Uniform(0.5))
    x, lengths = np.random.normal(size=(5, 3, 2)), np.array([5, 2, 3])
    states = layer.begin_state(3)
    for _ in range(2):
        outputs, ends = layer(x, states, lengths)
        for example, length in enumerate(lengths.tolist()):
            alone, end = layer(x[:length, example : example + 1], layer.begin_state(1))
            close(outputs[:length, example], alone[:, 0])
            assert float(np.abs(outputs[length:, example]).sum()) == 0
            for a, b in zip(ends, end, strict=True):
                close(a[:, example], b[:, 0])
        layer.hybridize()
    cells = layer.unfuse()
    merged, _ = cells.unroll(5, x, layout="TNC", valid_length=lengths)
    close(merged, layer(x, states, lengths)[0])


@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_is_compiled_also_where_its_network_is_not(kind: str, monkeypatch: Any) -> None:
    traced = []
    monkeypatch.setattr(npx, "rnn", lambda *a, rnn=npx.rnn, **k: traced.append(1) or rnn(*a, **k))
    net = nn.Sequential()
    net.add(LAYERS[kind](input_size=3), nn.Dense(2))
    net.initialize()
    net.hybridize(False)
    x = np.random.normal(size=(5, 2, 3))
    found = [net(x * number) for number in range(4)]
    close(net(x * 3), found[3], 0)
    assert len(traced) == 1
    net.hybridize(False)  # it may have been changed
    close(net(x * 3), found[3], 0)
    assert len(traced) == 2


def test_dropout_between_layers_only_while_training() -> None:
    layer = rnn.GRU(16, 2, dropout=0.5)
    layer.initialize()
    x = np.random.normal(size=(3, 2, 4))
    assert layer(x).tolist() == layer(x).tolist()
    with autograd.train_mode():
        assert layer(x).tolist() != layer(x).tolist()
    single = rnn.GRU(16, 1, dropout=0.5)
    single.initialize()
    with autograd.train_mode():
        assert single(x).tolist() == single(x).tolist()


def test_states_are_carried_and_detached() -> None:
    layer = rnn.LSTM(4)
    layer.initialize()
    layer.hybridize()
    x = np.random.normal(size=(6, 2, 3))
    whole = layer(x)
    states = layer.begin_state(batch_size=2)
    for part in (x[:2], x[2:4], x[4:]):
        with autograd.record():
            states = [state.detach() for state in states]
            outputs, states = layer(part, states)
        outputs.backward()
    close(outputs, whole[4:])
    with autograd.record():
        direct, _ = layer(
            x[4:], [state.detach() for state in layer(x[:4], layer.begin_state(2))[1]]
        )
    kept = layer.l0_h2h_weight.grad().copy()
    direct.backward()
    close(layer.l0_h2h_weight.grad(), kept)


@pytest.mark.parametrize("kind", CELLS)
def test_cells_unroll(kind: str) -> None:
    """Lists and arrays, both layouts, with and without lengths; imperative and compiled."""
    cell = CELLS[kind]()
    cell.initialize(init.Uniform(0.5))
    x = np.random.normal(size=(4, 5, 3))  # NTC
    listed, ends = cell.unroll(5, x, merge_outputs=False)
    assert len(listed) == 5
    assert [s.shape for s in ends] == [tuple(i["shape"]) for i in cell.state_info(4)]
    whole, _ = cell.unroll(5, [x[:, t] for t in range(5)], merge_outputs=True)
    close(whole, np.stack(listed, axis=1))
    turned, _ = cell.unroll(5, x.swapaxes(0, 1), layout="TNC", merge_outputs=True)
    close(turned.swapaxes(0, 1), whole)
    lengths = np.array([1, 5, 3, 2])
    cut, last = cell.unroll(5, x, valid_length=lengths)
    for example, length in enumerate(lengths.tolist()):
        alone, end = cell.unroll(length, x[example : example + 1, :length], merge_outputs=True)
        close(cut[example, :length], alone[0])
        assert float(np.abs(cut[example, length:]).sum()) == 0
        for a, b in zip(last, end, strict=True):
            close(a[example], b[0])
    cell.hybridize()
    close(cell.unroll(5, x, merge_outputs=True)[0], whole)
    with autograd.record():
        outputs, _ = cell.unroll(5, x, merge_outputs=True)
    outputs.backward()
    gradients = [p.grad() for p in cell.collect_params().values()]
    assert gradients and all(float(np.abs(g).sum()) > 0 for g in gradients if g.ndim > 1)


class Unrolled(gluon.HybridBlock):
    """A cell over five steps, in one of the ways in which `unroll` can be called."""

    def __init__(self, cell: Any, layout: str, listed: bool, merge: bool | None) -> None:
        super().__init__()
        self.cell, self.layout, self.listed, self.merge = cell, layout, listed, merge

    def forward(self, x: Any, lengths: Any = None) -> Any:
        steps = [x[:, t] if self.layout == "NTC" else x[t] for t in range(5)]
        outputs, ends = self.cell.unroll(
            5, steps if self.listed else x, layout=self.layout, merge_outputs=self.merge,
            valid_length=lengths,
        )  # fmt: skip
        return (*outputs, *ends) if isinstance(outputs, list) else (outputs, *ends)


#: Cells that keep something from step to step, inside of others.
KEPT = {
    "kept around kept": lambda: rnn.ZoneoutCell(
        rnn.VariationalDropoutCell(
            stack(rnn.ZoneoutCell(rnn.GRUCell(4), 0.3), rnn.DropoutCell(0.2), rnn.GRUCell(3)),
            0.2, 0.3, 0.2,
        ), 0.3, 0.2,
    ),
    "zoneout of states": lambda: rnn.ZoneoutCell(rnn.ResidualCell(rnn.GRUCell(3)), 0, 0.3),
    "both ways with masks": lambda: rnn.VariationalDropoutCell(
        rnn.BidirectionalCell(
            rnn.ZoneoutCell(rnn.GRUCell(3), 0.5, 0.5),
            rnn.VariationalDropoutCell(rnn.LSTMCell(2), 0.1, 0.2, 0.3),
        ), 0.3, 0, 0.3,
    ),
}  # fmt: skip
WAYS = [("NTC", False, True), ("TNC", False, None), ("TNC", True, True), ("NTC", True, False)]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("kind", [*CELLS, *KEPT])
def test_programs_unroll_as_cells_do(kind: str, way: tuple[Any, ...]) -> None:
    """In a program, cells run as a loop, also if they keep something; dropout draws the same."""
    net = Unrolled({**CELLS, **KEPT}[kind](), *way)
    net.initialize(init.Uniform(0.5))
    x, lengths = np.random.normal(size=(5, 5, 3)), np.array([1, 5, 3, 2, 0])
    net(x)
    for given, trains in [((x,), False), ((x, lengths), False), ((x,), True), ((x, lengths), True)]:
        found = []
        for compiled in (False, True):
            net.hybridize(compiled)
            np.random.seed(3)
            x.attach_grad()
            with autograd.record(train_mode=trains):
                outputs = net(*given)
                loss = sum((each * each).sum() for each in outputs)
            loss.backward()
            gradients = [p.grad() for p in net.collect_params().values()]
            found.append([*outputs, x.grad, *map(np.copy, gradients)])
        assert len(found[0]) == len(found[1])
        for one, other in zip(*found, strict=True):
            close(one, other, 1e-4)
    graph = net._own.compiled.graph(*given)
    assert graph.count("loop") > 0


class Following(rnn.HybridRecurrentCell):
    """A cell of one's own around one that keeps something, which goes on after `unroll`."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = rnn.VariationalDropoutCell(rnn.ZoneoutCell(rnn.GRUCell(3), 0.5), 0.3, 0, 0.4)

    def forward(self, x: Any, states: Any) -> Any:
        output, states = self.inner(x, states)
        return output + x, states


class Further(gluon.HybridBlock):
    def __init__(self) -> None:
        super().__init__()
        self.cell = Following()

    def forward(self, x: Any) -> Any:
        outputs, states = self.cell.unroll(x.shape[0] - 1, x[:-1], layout="TNC", merge_outputs=True)
        return outputs, self.cell(x[-1], states)[0]


def test_what_cells_keep_lasts_after_a_loop(tmp_path: Path) -> None:
    """A step after `unroll` has its masks and its last output; files take any length."""
    net = Further()
    net.initialize(init.Uniform(0.5))
    for length in (8, 6):
        x, found = np.random.normal(size=(length, 4, 3)), []
        for compiled in (False, True):
            net.hybridize(compiled)
            np.random.seed(3)
            with autograd.train_mode():
                found.append([*net(x), np.random.uniform()])
        for one, other in zip(*found, strict=True):
            close(one, other)
    assert net._own.compiled.graph(x).count("loop") == 1
    close(copy.deepcopy(net)(x)[0], net(x)[0])  # nothing of the trace is copied
    gemel.save(net, tmp_path / "net.gemel")
    loaded = gemel.load(tmp_path / "net.gemel")
    for length in (6, 9, 3):
        x = np.random.normal(size=(length, 2, 3))
        for one, other in zip(loaded(x), net(x), strict=True):
            close(one, other)


@pytest.mark.parametrize("compiled", [False, True])
def test_modifiers_around_both_ways(compiled: bool) -> None:
    """Modifiers that need no single steps work around a bidirectional cell, too."""
    inner = rnn.BidirectionalCell(rnn.LSTMCell(2), rnn.LSTMCell(2))
    x, lengths = np.random.normal(size=(3, 5, 4)), np.array([5, 1, 3])
    outer = rnn.ResidualCell(inner), rnn.VariationalDropoutCell(inner, 0.3, drop_outputs=0.3)
    inner.initialize()
    for cell, added in zip(outer, (x, 0 * x), strict=True):
        if compiled:
            cell.hybridize()
        wanted = inner.unroll(5, x, merge_outputs=True)[0] + added
        close(cell.unroll(5, x, merge_outputs=True)[0], wanted)
        close(np.stack(cell.unroll(5, x, merge_outputs=False)[0], axis=1), wanted)
        cut, _ = cell.unroll(5, x, valid_length=lengths)
        kept = inner.unroll(5, x, valid_length=lengths)[0] + added
        close(cut, npx.sequence_mask(kept, lengths, True, axis=1))
    with autograd.train_mode():
        dropped, _ = outer[1].unroll(5, x)
    zeros = dropped == 0
    assert zeros.any() and (zeros == zeros[:, :1]).all()
    with pytest.raises(NotImplementedError, match="around the inner cells"):
        rnn.ZoneoutCell(inner, 0.5).unroll(5, x)


@pytest.mark.parametrize("lengths", [[9, -1, 3], np.array([9.0, -1, 3])])
def test_sequences_end_with_the_inputs(lengths: Any) -> None:
    """Lengths out of range are those of all steps, or of none, in cells and in layers."""
    x, fits = np.random.normal(size=(3, 5, 4)), np.array([5, 0, 3])
    for two in (False, True):
        layer = rnn.GRU(2, layout="NTC", bidirectional=two)
        layer.initialize()
        cells, begun = layer.unfuse(), layer.begin_state(3)
        found = cells.unroll(5, x, valid_length=lengths)
        wanted = cells.unroll(5, x, valid_length=fits)
        for one, other in zip((found[0], *found[1]), (wanted[0], *wanted[1]), strict=True):
            close(one, other, 0)
        outputs, (end,) = layer(x, begun, np.array(lengths))
        close(outputs, wanted[0])
        close(end, np.stack(wanted[1]))


@pytest.mark.parametrize("make", [
    lambda: rnn.LSTMCell(2), lambda: rnn.DropoutCell(0.5),
    lambda: rnn.ResidualCell(rnn.GRUCell(4)), lambda: rnn.VariationalDropoutCell(rnn.GRUCell(2)),
    lambda: rnn.BidirectionalCell(rnn.RNNCell(2), rnn.RNNCell(2)),
])  # fmt: skip
def test_numpys_arrays_are_unrolled(make: Any) -> None:
    cell, x = make(), numpy.random.default_rng(0).normal(size=(3, 5, 4)).astype("float32")
    cell.initialize()
    wanted, _ = cell.unroll(5, np.array(x), merge_outputs=True)
    by_steps = [x[:, step] for step in range(5)]
    for given in (x, by_steps, [step.tolist() for step in by_steps]):
        close(cell.unroll(5, given, merge_outputs=True)[0], wanted)


def test_default_outputs_of_unroll() -> None:
    """As in MXNet: a list, also of bidirectional cells; but a dropout cell keeps an array."""
    x = np.random.normal(size=(3, 5, 4))
    both = rnn.BidirectionalCell(rnn.GRUCell(2), rnn.GRUCell(2))
    both.initialize()
    outputs, _ = both.unroll(5, x)
    assert isinstance(outputs, list) and outputs[0].shape == (3, 4)
    assert both.unroll(5, x, valid_length=np.array([1, 2, 3]))[0].shape == (3, 5, 4)
    cell = rnn.DropoutCell(0.5, axes=(1,))
    assert cell.unroll(5, x)[0].shape == (3, 5, 4)
    assert [len(cell.unroll(5, x, merge_outputs=False)[0]), len(cell.unroll(3, list(x))[0])] == [
        5,
        3,
    ]
    with autograd.train_mode():
        zeros = cell.unroll(5, x)[0] == 0
    assert zeros.any() and (zeros == zeros[:, :1]).all()  # the same mask for all steps


def test_cells_say_their_settings() -> None:
    zoneout = rnn.ZoneoutCell(rnn.RNNCell(2, "relu", input_size=3), 0.1, 0.2)
    assert repr(zoneout) == "ZoneoutCell(p_out=0.1, p_state=0.2, RNNCell(3 -> 2, relu))"
    assert repr(rnn.DropoutCell(0.3)) == "DropoutCell(rate=0.3, axes=())"
    gru = rnn.GRUCell(1, input_size=3)
    said = "BidirectionalCell(forward=GRUCell(3 -> 3), backward=GRUCell(3 -> 3))"
    assert repr(rnn.BidirectionalCell(gru, gru)) == said
    said = "VariationalDropoutCell(p_inputs=0.5, p_states=0.0, p_outputs=0.0, GRUCell(3 -> 3))"
    assert repr(rnn.VariationalDropoutCell(gru, 0.5)) == said


def test_cells_inside_a_hybrid_block() -> None:
    class Net(nn.HybridSequential):
        def __init__(self) -> None:
            super().__init__()
            self.cell = rnn.ZoneoutCell(rnn.GRUCell(4), 0.5)

        def forward(self, x: Any) -> Any:
            return self.cell.unroll(3, x, merge_outputs=True)[0]

    net = Net()
    net.initialize()
    x = np.random.normal(size=(2, 3, 4))
    expected = net(x)
    net.hybridize()
    close(net(x), expected)
    close(net(x[:1]), expected[:1])
    net.cell(x[:, 0], net.cell.begin_state(2))  # the trace left nothing behind in the cell


def test_zoneout_keeps_what_was() -> None:
    cell = rnn.ZoneoutCell(rnn.RNNCell(50), zoneout_states=0.5)
    cell.initialize()
    x, before = np.ones((20, 3)), np.full((20, 50), 5.0)
    with autograd.train_mode():
        _, (after,) = cell(x, [before])
    kept = float((after == 5).mean())
    assert 0.4 < kept < 0.6
    assert float((cell(x, [before])[1][0] == 5).sum()) == 0


def test_variational_masks_last_until_reset() -> None:
    cell = rnn.VariationalDropoutCell(rnn.RNNCell(40), drop_outputs=0.5)
    cell.initialize()
    x = np.ones((2, 3))
    with autograd.train_mode():
        first, state = cell(x, cell.begin_state(2))
        second, _ = cell(x, state)
        assert ((first == 0) == (second == 0)).all()
        cell.reset()
        third, _ = cell(x, state)
    assert not ((first == 0) == (third == 0)).all()


def test_parameter_files_of_mxnet_1(tmp_path: Any) -> None:
    """MXNet 1 writes a layer's parameters under the names of the cells it replaces."""
    net = nn.Sequential()
    net.add(nn.Dense(2, flatten=False), rnn.LSTM(4, 2), rnn.GRU(3, bidirectional=True))
    net.initialize()
    x = np.ones((2, 1, 5))
    expected = net(x)
    names = {}
    for name, parameter in net.collect_params().items():
        place, _, rest = name.rpartition(".")
        if rest[0] in "lr" and place == "1":
            rest = f"_unfused.{rest[1]}.{rest[3:]}"
        elif rest[0] in "lr":
            rest = f"_unfused.{rest[1]}.{rest[0]}_cell.{rest[3:]}"
        names[f"{place}.{rest}"] = parameter.data()
    npx.save(tmp_path / "old.params", names)
    net.initialize(force_reinit=True)
    net.load_parameters(tmp_path / "old.params")
    close(net(x), expected, 0)
    net.save_parameters(tmp_path / "new.params")
    assert "1.l0_i2h_weight" in npx.load(tmp_path / "new.params")


def test_learns_to_count() -> None:
    """A GRU learns to say after each step whether it has seen an odd number of ones."""
    bits = np.random.randint(0, 2, (12, 64))
    labels = bits.cumsum(axis=0) % 2
    net = nn.HybridSequential()
    net.add(rnn.GRU(16), nn.Dense(2, flatten=False))
    net.initialize(init.Xavier())
    net.hybridize()
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.02})
    for _ in range(200):
        with autograd.record():
            value = loss(net(np.expand_dims(bits.astype("float32"), 2)), labels)
        value.backward()
        trainer.step(12)
    assert float(value.mean()) < 0.05


def test_begin_state() -> None:
    layer = rnn.LSTM(4, 2, bidirectional=True, projection_size=3)
    h, c = layer.begin_state(5, func=np.ones, ctx=cpu(0), dtype="float64")
    assert h.shape == (4, 5, 3) and c.shape == (4, 5, 4) and float(h.sum()) == 60
    assert h.dtype.name == "float64"
    assert layer.state_info(5)[0] == {"shape": (4, 5, 3), "__layout__": "LNC"}
    assert rnn.LSTMPCell(4, 3).state_info(2)[0]["shape"] == (2, 3)


def test_begin_state_calls_its_function_by_keywords() -> None:
    for block in (rnn.GRU(4), rnn.GRUCell(4)):
        (h,) = block.begin_state(3, func=nd.random.uniform, low=2, high=3)
        assert h.shape[-2:] == (3, 4) and float(h.min()) >= 2


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_begin_state_has_the_dtype_of_a_layer(dtype: str) -> None:
    layer = rnn.LSTM(4)
    layer.cast(dtype)
    layer.initialize()
    outputs, states = layer(np.ones((3, 2, 5), dtype=dtype), layer.begin_state(2))
    assert {each.dtype.name for each in (outputs, *states)} == {dtype}
    assert layer.begin_state(2, dtype="float32")[0].dtype.name == "float32"


def test_on_another_device_and_in_float16() -> None:
    device.simulate(1)
    try:
        layer = rnn.LSTM(4, 2)
        layer.initialize(ctx=gpu(0))
        layer.cast("float16")
        x = np.random.normal(size=(3, 2, 5), ctx=gpu(0)).astype("float16")
        for _ in range(2):
            outputs, states = layer(x, layer.begin_state(2, ctx=gpu(0), dtype="float16"))
            assert outputs.ctx == layer(x).ctx == states[1].ctx == gpu(0)
            assert outputs.dtype.name == layer(x).dtype.name == "float16"
            assert (outputs == layer(x)).all()
            layer.hybridize()
        assert layer(x[:, :0]).shape == (3, 0, 4)
        assert gluon.contrib.rnn.LSTMPCell is rnn.LSTMPCell
    finally:
        npx.waitall()
        device.simulate(0)


def test_bad_input() -> None:
    layer = rnn.GRU(4)
    layer.initialize()
    x = np.ones((3, 2, 5))
    cases: list[tuple[type[Exception], str, Any]] = [
        (UnknownNameError, "TNC", lambda: rnn.GRU(4, layout="TCN")),
        (UnknownNameError, "tanh", lambda: rnn.RNN(4, activation="tan")),
        (ValueError, "probability", lambda: rnn.LSTM(4, dropout=1.5)),
        (ShapeError, "three axes", lambda: layer(np.ones((3, 5)))),
        (ShapeError, "must be", lambda: layer(x, [np.ones((1, 3, 4))])),
        (ShapeError, "1 states are required, not 2", lambda: layer(x, [np.ones((1, 2, 4))] * 2)),
        (ShapeError, "length is 4", lambda: rnn.GRUCell(4).unroll(4, [x[0]] * 3)),
        (NotImplementedError, "unroll", lambda: CELLS["both ways"]()(x[0], [])),
    ]
    for kind, message, call in cases:
        with pytest.raises(kind, match=message):
            call()
    layer(x)
    with pytest.raises(ShapeError):
        layer(np.ones((3, 2, 6)))
    close(layer(x), layer(x))


#: The kinds in `references/rnn_mxnet.py`.
REFERENCES = {
    "relu": lambda: rnn.RNN(3),
    "tanh": lambda: rnn.RNN(3, 2, "tanh", bidirectional=True),
    "lstm": lambda: rnn.LSTM(3, 2),
    "lstm_both": lambda: rnn.LSTM(3, 2, bidirectional=True, layout="NTC"),
    "gru": lambda: rnn.GRU(3, 2),
    "gru_both": lambda: rnn.GRU(3, 1, "NTC", 0, True),
    "cell_rnn": lambda: rnn.RNNCell(3),
    "cell_lstm": lambda: rnn.LSTMCell(3),
    "cell_gru": lambda: rnn.GRUCell(3),
    "cell_residual": lambda: rnn.ResidualCell(rnn.GRUCell(2)),
    "cell_both": lambda: rnn.BidirectionalCell(rnn.LSTMCell(3), rnn.GRUCell(3)),
    "cell_conv1d_rnn": lambda: rnn.Conv1DRNNCell((2, 6), 3, 2, 3, activation="relu"),
    "cell_conv1d_lstm": lambda: rnn.Conv1DLSTMCell((2, 6), 3, 3, 3, i2h_pad=(1,)),
    "cell_conv2d_lstm": lambda: rnn.Conv2DLSTMCell(
        (2, 5, 4), 2, (2, 3), (3, 1), i2h_pad=(1, 1), i2h_dilate=(2, 1), h2h_dilate=2
    ),
    "cell_conv2d_gru": lambda: rnn.Conv2DGRUCell((2, 5, 4), 2, 3, 3, activation="relu"),
    "cell_conv3d_gru": lambda: rnn.Conv3DGRUCell((1, 3, 4, 3), 2, (1, 2, 3), 1),
}


@pytest.mark.parametrize("kind", REFERENCES)
def test_as_mxnet_gives(kind: str, tmp_path: Any) -> None:
    """With the parameter file MXNet 1.9.1 wrote: outputs, states and a gradient agree."""
    found = numpy.load(Path(__file__).parent / "references" / "rnn.npz")
    (tmp_path / "net.params").write_bytes(found[f"{kind}.file"].tobytes())
    net, x = REFERENCES[kind](), np.array(found.get(f"{kind}.x", found["x"]))
    net.load_parameters(tmp_path / "net.params")
    for _ in range(2):
        with autograd.record():
            if kind.startswith("cell"):
                outputs, states = net.unroll(4, x, layout="TNC", merge_outputs=True)
            else:
                batch = 4 if "both" in kind else 3
                outputs, states = net(x, [np.ones_like(s) for s in net.begin_state(batch)])
            total = (outputs * outputs).sum()
        total.backward()
        results = {"whole": [outputs, *states]}
        if kind.startswith("cell"):
            cut, ends = net.unroll(
                4, x, layout="TNC", merge_outputs=True, valid_length=np.array([2, 4, 1])
            )
            results["cut"] = [cut, *ends]
        for name, arrays in results.items():
            assert f"{kind}.{name}.{len(arrays)}" not in found
            for number, array in enumerate(arrays):
                close(array, np.array(found[f"{kind}.{name}.{number}"]), 2e-6)
        biases = [p for n, p in net.collect_params().items() if n.endswith("i2h_bias")]
        close(biases[0].grad(), np.array(found[f"{kind}.bias_gradient"]), 2e-5)
        net.hybridize()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kind", [rnn.Conv2DRNNCell, rnn.Conv2DLSTMCell, rnn.Conv2DGRUCell])
def test_cells_over_pictures(kind: Any, layout: str, tmp_path: Path) -> None:
    """Channels last or first, compiled, in float64, from a file, with gradients."""
    pictures = np.random.normal(size=(3, 4, 2, 5, 4))
    net = kind((2, 5, 4), 3, (2, 3), (3, 1), (1, 0))
    net.initialize(init.Uniform(0.5))
    wanted, ends = net.unroll(4, pictures, merge_outputs=True)
    if layout == "NHWC":
        last = kind((5, 4, 2), 3, (2, 3), (3, 1), (1, 0), conv_layout=layout)
        last.initialize()
        parameters = net.collect_params().values(), last.collect_params().values()
        for one, other in zip(*parameters, strict=True):
            values = one.data()
            other.set_data(values.transpose(0, 2, 3, 1) if values.ndim == 4 else values)
        net, pictures = last, pictures.transpose(0, 1, 3, 4, 2)
        wanted, ends = wanted.transpose(0, 1, 3, 4, 2), [e.transpose(0, 2, 3, 1) for e in ends]
    for hybrid in (False, True):
        net.hybridize(hybrid)
        found, states = net.unroll(4, pictures, merge_outputs=True)
        for a, b in zip((found, *states), (wanted, *ends), strict=True):
            close(a, b)
        smaller, _ = net.unroll(4, pictures[:1], merge_outputs=True)
        close(smaller, wanted[:1])
    net.cast("float64")
    x = pictures[:1, 0].astype("float64")
    states = [np.random.normal(size=s["shape"], dtype="float64") for s in net.state_info(1)]
    check(lambda x, *states: net(x, list(states))[0], lambda x, *states: net(
        np.array(x, dtype="float64"), [np.array(s, dtype="float64") for s in states]
    )[0].asnumpy(), [x.asnumpy(), *(s.asnumpy() for s in states)])  # fmt: skip
    with pytest.raises(ShapeError, match=r"h2h_kernel .* must be odd"):
        kind((2, 5, 4), 3, 3, 2)
    with pytest.raises(ShapeError, match=r"input_shape .* must have 3 axes"):
        kind((5, 4), 3, 3, 3)


def test_how_they_are_shown():
    shown = [
        rnn.LSTM(3),
        rnn.LSTM(3, 2, input_size=4),
        rnn.GRUCell(3),
        rnn.LSTMCell(3, input_size=2),
        rnn.Conv2DLSTMCell((2, 5, 4), 3, 3, 3),
    ]
    assert list(map(str, shown)) == [
        "LSTM(-1 -> 3, TNC)", "LSTM(4 -> 3, TNC, num_layers=2)", "GRUCell(-1 -> 9)",
        "LSTMCell(2 -> 12)", "Conv2DLSTMCell(2 -> 12, tanh, NCHW)",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [rnn.RNNCell, rnn.LSTMCell, rnn.GRUCell])
@pytest.mark.parametrize("hybridized", [False, True])
def test_unroll_keeps_the_first_states_where_nothing_is_valid(kind, hybridized):
    cell = kind(3, input_size=4)
    cell.initialize()
    cell.hybridize(hybridized)
    x = np.random.normal(size=(2, 5, 4))
    begun = [np.random.normal(size=(2, 3)) for _ in cell.state_info()]
    outputs, ends = cell.unroll(5, x, begun, merge_outputs=True, valid_length=np.array([0, 4]))
    _, others = cell.unroll(4, x[:, :4], begun)
    assert (outputs[0] == 0).all() and (outputs[1, 4:] == 0).all()
    for first, end, other in zip(begun, ends, others, strict=True):
        assert (end[0] == first[0]).all() and np.allclose(end[1], other[1])


@pytest.mark.parametrize("kind", [rnn.RNNCell, rnn.LSTMCell, rnn.GRUCell])
@pytest.mark.parametrize("hybridized", [False, True])
def test_cells_take_a_list_of_their_states(kind, hybridized):
    cell = kind(3, input_size=4, prefix="cell0_")
    cell.initialize()
    cell.hybridize(hybridized)
    x, count = np.ones((2, 4)), len(cell.state_info())
    for states in ([], [np.ones((2, 3))] * (count + 1), np.ones((2, 3))):
        with pytest.raises(
            ShapeError, match=f"cell0: states must be a list of {count} arrays, as from begin"
        ):
            cell(x, states)
    cell(x, tuple(cell.begin_state(2)))


@pytest.mark.parametrize("kind", ["lstm", "zoneout", "variational", "residual"])
@pytest.mark.parametrize("hybridized", [False, True])
def test_unroll_says_what_is_wrong(kind: str, hybridized: bool) -> None:
    """Rows of one array do not pass for states, and a length is a whole number."""
    cell = CELLS[kind]()
    cell.initialize()
    x, count = np.ones((2, 5, 3)), len(cell.state_info())
    function = lambda x, states, length=5: cell.unroll(length, x, states, merge_outputs=True)[0]  # noqa: E731
    call = gemel.compile(function) if hybridized else function
    call(x, cell.begin_state(2))
    with pytest.raises(ShapeError, match=f"must be a list of {count} arrays, as from begin_state"):
        call(x[:count], np.ones((count, 3)))
    for length in ("5", None, -1, 5.5):
        with pytest.raises(ArgumentError, match="unroll: length must be a whole number"):
            call(x, cell.begin_state(2), length)
