"""Norms, embedding and activations as layers, against the functions they are made of."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy
import pytest

from gemel import autograd, gluon, np, npx
from gemel.errors import ArgumentError, OperandError, ShapeError, UnknownNameError
from gemel.gluon import nn, rnn


def standardized(x: Any, axes: Any) -> Any:
    centred = x - x.mean(axes, keepdims=True)
    return centred / numpy.sqrt(x.var(axes, keepdims=True) + 1e-5)


def grouped(x: Any) -> Any:
    return standardized(x.reshape(2, 2, -1), 2).reshape(x.shape)


#: Layer, shape of the input, length of gamma and beta, expected result, repr.
NORMS: list[tuple[Any, tuple[int, ...], int, Any, str]] = [
    (nn.LayerNorm, (2, 4, 3), 3, lambda x: standardized(x, 2),
     "LayerNorm(eps=1e-05, axis=-1, center=True, scale=True, in_channels=3)"),
    (lambda: nn.LayerNorm(axis=1, center=False), (2, 4, 3), 4, lambda x: standardized(x, 1),
     "LayerNorm(eps=1e-05, axis=1, center=False, scale=True, in_channels=4)"),
    (lambda: nn.GroupNorm(2), (2, 4, 3), 4, grouped,
     "GroupNorm(eps=1e-05, num_groups=2, center=True, scale=True, in_channels=4)"),
    (nn.InstanceNorm, (2, 4, 3, 2), 4, lambda x: standardized(x, (2, 3)),
     "InstanceNorm(eps=1e-05, axis=1, center=True, scale=False, in_channels=4)"),
    (lambda: nn.InstanceNorm(axis=-1), (2, 4, 3, 2), 2, lambda x: standardized(x, (1, 2)),
     "InstanceNorm(eps=1e-05, axis=-1, center=True, scale=False, in_channels=2)"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "given", "count", "slow", "shown"), NORMS, ids=lambda v: "")
def test_norms(make: Any, given: Any, count: int, slow: Any, shown: str) -> None:
    net = make()
    net.initialize()
    x = numpy.random.default_rng(0).standard_normal(given).astype("float32")
    with autograd.record():
        found = net(np.array(x))
    assert net.gamma.shape == net.beta.shape == (count,)
    assert repr(net) == shown
    numpy.testing.assert_allclose(found.asnumpy(), slow(x), rtol=1e-4, atol=1e-5)
    found.backward()
    trained = [p for p in net.collect_params().values() if p.grad_req != "null"]
    assert len(trained) == shown.count("=True")
    net.hybridize()
    numpy.testing.assert_allclose(net(np.array(x)).asnumpy(), slow(x), rtol=1e-4, atol=1e-5)


def test_embedding_trains_the_rows_it_gives() -> None:
    net = nn.Embedding(5, 3)
    net.initialize()
    before = net.weight.data().asnumpy()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    x = np.array([[1, 3], [3, 4]], dtype="float32")
    with autograd.record():
        y = net(x)
    y.backward()
    trainer.step(1)
    assert y.shape == (2, 2, 3)
    numpy.testing.assert_array_equal(y.asnumpy(), before[[[1, 3], [3, 4]]])
    moved = (before - net.weight.data().asnumpy()).round(5).mean(1)
    assert moved.tolist() == [0, 1, 0, 2, 1]
    assert repr(net) == "Embedding(5 -> 3, float32)"
    with pytest.raises(IndexError, match="out of bounds"):
        net(np.array([5])).asnumpy()


VALUES = numpy.array([[-2.0, -0.5], [0.5, 3.0]], "float32")
TANH = 0.7978845608028654 * (VALUES + 0.044715 * VALUES**3)
ACTIVATIONS: list[tuple[Any, Any]] = [
    (nn.PReLU, numpy.where(VALUES > 0, VALUES, 0.25 * VALUES)),
    (lambda: nn.PReLU(in_channels=2), numpy.where(VALUES > 0, VALUES, 0.25 * VALUES)),
    (lambda: nn.ELU(0.5), numpy.where(VALUES > 0, VALUES, 0.5 * numpy.expm1(VALUES))),
    (nn.SELU, 1.0507009873554805 * numpy.where(
        VALUES > 0, VALUES, 1.6732632423543772 * numpy.expm1(VALUES))),
    (nn.GELU, npx.gelu(np.array(VALUES)).asnumpy()),
    (lambda: nn.GELU("tanh"), 0.5 * VALUES * (1 + numpy.tanh(TANH))),
    (nn.SiLU, VALUES / (1 + numpy.exp(-VALUES))),
    (lambda: nn.Swish(2.0), VALUES / (1 + numpy.exp(-2 * VALUES))),
    (lambda: nn.Activation("silu"), VALUES / (1 + numpy.exp(-VALUES))),
]  # fmt: skip


@pytest.mark.parametrize(("make", "expected"), ACTIVATIONS, ids=lambda v: "")
def test_activations(make: Any, expected: Any) -> None:
    net = make()
    net.initialize()
    for _ in range(2):
        found = net(np.array(VALUES)).asnumpy()
        numpy.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        net.hybridize()


def test_prelu_learns_its_slope() -> None:
    net = nn.PReLU(in_channels=2)
    net.initialize()
    with autograd.record():
        y = net(np.array(VALUES))
    y.backward()
    assert net.alpha.grad().tolist() == [-2, -0.5]


def test_what_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="tanh"):
        nn.GELU("tan")
    net = nn.LayerNorm(in_channels=3)
    net.initialize()
    with pytest.raises(ShapeError, match="gamma"):
        net(np.ones((2, 4)))


class Attention(nn.HybridBlock):
    """A self-attention block, as in a transformer."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm()
        self.query, self.key, self.value = (nn.Dense(units, flatten=False) for _ in range(3))

    def forward(self, x: Any, lengths: Any) -> Any:
        """(batch, time, units) -> the same shape; each step attends to itself and earlier steps."""
        y = self.norm(x)
        found = npx.attention(self.query(y), self.key(y), self.value(y), causal=True)
        return npx.sequence_mask(x + found, lengths, True, axis=1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: nn.Dense(0), "Dense: units must be a whole number of at least 1, not 0"),
        (lambda: nn.Dense(-3), "not -3"),
        (lambda: nn.Dense(2.5), r"not 2\.5"),
        (lambda: nn.Conv1D(0, 3), "Conv1D: channels must be .* not 0"),
        (lambda: nn.Conv2D(4, 3, groups=0), "Conv2D: groups must be .* not 0"),
        (lambda: nn.Conv2D(5, 3, groups=2), "Conv2D: channels=5 .* groups=2"),
        (lambda: nn.Conv3D(4, 3, groups=2, in_channels=3), "Conv3D: in_channels=3 .* groups=2"),
        (lambda: nn.Conv2DTranspose(5, 3, groups=2), "Conv2DTranspose: channels=5 .* groups=2"),
        (lambda: gluon.utils.clip_global_norm([], 1.0), "clip_global_norm: .* at least one array"),
        (lambda: rnn.LSTM(0), "LSTM: hidden_size must be .* not 0"),
        (lambda: rnn.GRU(3, 0), "GRU: num_layers must be .* not 0"),
        (lambda: rnn.RNN(3, dropout=1), "RNN: dropout is 1; it must be a probability"),
        (lambda: rnn.RNNCell(-2), "RNNCell: hidden_size must be .* not -2"),
        (lambda: rnn.LSTMPCell(2, 0), "LSTMPCell: projection_size must be .* not 0"),
        (lambda: rnn.Conv1DGRUCell((2, 5), 0, 3, 3), "Conv1DGRUCell: hidden_channels must be"),
        (lambda: nn.Dropout("a"), "Dropout: rate is 'a'; it must be a probability"),
        (lambda: rnn.DropoutCell(2.0), r"DropoutCell: rate is 2\.0; it must be a probability"),
        (lambda: rnn.ZoneoutCell(rnn.RNNCell(2), 0, 1), "ZoneoutCell: zoneout_states is 1"),
        (lambda: rnn.VariationalDropoutCell(rnn.RNNCell(2), -1), "drop_inputs is -1"),
    ],
)
def test_counts_that_cannot_be_are_refused_where_they_are_given(make: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        make()


def test_cells_know_their_activations() -> None:
    for make in (rnn.RNNCell, lambda n, **act: rnn.Conv1DRNNCell((1, 3), n, 1, 1, **act)):
        with pytest.raises(UnknownNameError, match="activation 'thanh'; did you mean 'tanh'"):
            make(2, activation="thanh")


def test_counts_are_whole_numbers_of_any_kind() -> None:
    assert nn.Dense(numpy.int64(3), in_units=2).weight.shape == (3, 2)
    assert nn.Conv2D(numpy.int32(4), 3, groups=numpy.int64(2)).bias.shape == (4,)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("size", [2, 0])
def test_numpy_arrays_and_lists_are_inputs(size: int, hybrid: bool) -> None:
    given = [[1.0, 2.0], [3.0, 4.0]]
    for x in (numpy.array(given, "float32"), given, tuple(map(tuple, given))):
        for net in (nn.Dense(2, in_units=size), nn.LayerNorm(in_channels=size)):
            net.initialize()
            net.hybridize(hybrid)
            found = net(x)
            numpy.testing.assert_allclose(found, net(np.array(given)), rtol=1e-6)


def test_lists_of_inputs_stay_lists_for_infer_shape() -> None:
    class Joined(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.weight = self.params.get("weight", shape=(-1,), init="ones")

        def infer_shape(self, parts: Any, count: Any) -> None:
            assert isinstance(parts, list) and count == [2]
            self.weight.shape = (sum(part.shape[0] for part in parts),)

        def forward(self, parts: Any, count: Any) -> Any:
            return np.concatenate(parts) * self.weight.data()

    net = Joined()
    net.initialize()
    assert net([np.ones(2), np.ones(3)], [2]).shape == (5,)


def test_attention_of_several_sizes_through_one_program() -> None:
    net = Attention(4)
    net.initialize()
    inputs = [
        (np.random.normal(size=(batch, time, 4)), np.array(range(1, batch + 1)))
        for batch, time in ((2, 5), (3, 5), (3, 7))
    ]
    expected = [net(*given).asnumpy() for given in inputs]
    net.hybridize()
    for given, wanted in zip(inputs, expected, strict=True):
        numpy.testing.assert_allclose(net(*given).asnumpy(), wanted, rtol=1e-4, atol=1e-5)


def test_steps_of_a_hybridized_stack_remember_what_was() -> None:
    cell = rnn.HybridSequentialRNNCell()
    cell.add(rnn.VariationalDropoutCell(rnn.RNNCell(40), drop_outputs=0.5))
    cell.initialize()
    cell.hybridize()
    x = np.ones((2, 3))
    assert (cell(x, cell.begin_state(2))[0] != 0).all()  # a program, as nothing is dropped
    with autograd.train_mode(), pytest.warns(UserWarning, match="call unroll, or reset"):
        cell.reset()
        first, state = cell(x, cell.begin_state(2))
        second, _ = cell(x, state)
    assert ((first == 0) == (second == 0)).all() and (first == 0).any()
    copy.deepcopy(cell)(x, state)


def test_sequences_by_hand_inside_a_hybrid_block() -> None:
    class Net(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.cell = rnn.VariationalDropoutCell(rnn.RNNCell(40), drop_outputs=0.5)

        def forward(self, x: Any) -> Any:
            self.cell.reset()
            state, outputs = self.cell.begin_state(2), []
            for _ in range(3):
                output, state = self.cell(x, state)
                outputs.append(output == 0)
            return np.stack(outputs)

    net = Net()
    net.initialize()
    net.hybridize()
    x = np.ones((2, 3))
    with autograd.train_mode():
        for _ in range(2):
            dropped = net(x)
            assert dropped.any() and (dropped == dropped[:1]).all()
        assert (net.cell(x, net.cell.begin_state(2))[0] == 0).any()  # the trace left nothing behind


#: Layers whose forward looks at the shape of its input, and an input.
LAYERS: list[tuple[Callable[[], Any], tuple[int, ...]]] = [
    (lambda: nn.Dense(2), (2, 3)),
    (lambda: nn.Conv2D(2, 1), (1, 2, 2, 2)),
    (lambda: nn.DeformableConvolution(2, (1, 1)), (1, 2, 2, 2)),
    (nn.BatchNorm, (2, 3)),
    (lambda: nn.GroupNorm(1), (2, 3)),
    (nn.InstanceNorm, (2, 3, 2)),
    (nn.MaxPool2D, (1, 2, 2, 2)),
    (nn.GlobalAvgPool1D, (1, 2, 3)),
    (lambda: nn.PixelShuffle1D(2), (1, 2, 3)),
    (lambda: nn.Activation("relu"), (3,)),
    (lambda: rnn.LSTM(2), (2, 1, 3)),
]


@pytest.mark.parametrize(("make", "shape"), LAYERS)
@pytest.mark.parametrize("hybrid", [False, True])
def test_the_input_of_a_layer_is_an_array(make: Any, shape: Any, hybrid: bool) -> None:
    net, x = make(), numpy.random.default_rng(1).normal(size=shape).astype("float32")
    net.initialize()
    net.hybridize(hybrid)
    wanted = net(np.array(x)).tolist()
    for given in (x.tolist(), x):
        numpy.testing.assert_allclose(net(given).tolist(), wanted, rtol=1e-5, atol=1e-6)
    fresh = make()
    fresh.initialize()
    fresh.hybridize(hybrid)
    for wrong in (None, "abc", [None]):
        with pytest.raises(OperandError, match=f"{type(net).__name__}: the input .* is not an"):
            fresh(wrong)
    assert fresh(np.array(x)).shape == net(np.array(x)).shape


def test_the_input_of_a_cell_has_an_axis() -> None:
    cell = rnn.LSTMCell(2)
    cell.initialize()
    with pytest.raises(ShapeError, match=r"LSTMCell: the input float32\[\] must have the axes"):
        cell(1.0, cell.begin_state(1))
