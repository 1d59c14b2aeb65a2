"""Blocks and cells called on MXNet's symbols: what they are composed of computes the same."""

from __future__ import annotations

import numpy
import pytest

from gemel import gluon, np, sym
from gemel.errors import ExportError
from gemel.gluon import nn

CELLS = {
    "LSTMCell": lambda: gluon.rnn.LSTMCell(5),
    "GRUCell": lambda: gluon.rnn.GRUCell(5),
    "stacked": lambda: _stacked(gluon.rnn.RNNCell(5), gluon.rnn.DropoutCell(0.5)),
    "residual": lambda: gluon.rnn.ResidualCell(gluon.rnn.GRUCell(4)),
    "zoneout": lambda: gluon.rnn.ZoneoutCell(gluon.rnn.RNNCell(5), 0.5, 0.5),
    "both ways": lambda: gluon.rnn.BidirectionalCell(gluon.rnn.LSTMCell(2), gluon.rnn.GRUCell(3)),
}


def _stacked(*cells):
    found = gluon.rnn.HybridSequentialRNNCell()
    for cell in cells:
        found.add(cell)
    return found


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("hybridized", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_unroll_takes_symbols(name, hybridized, listed):
    cell = CELLS[name]()
    cell.initialize()
    if hybridized:
        cell.hybridize()
    x = np.random.normal(size=(2, 3, 4))
    arrays = {f"x{t}": x[:, t] for t in range(3)} if listed else {"x": x}
    variables = [sym.var(name, shape=each.shape) for name, each in arrays.items()]
    whole, states = cell.unroll(3, variables if listed else variables[0], merge_outputs=True)
    values = {p.name: p.data() for p in cell.collect_params().values()}
    found = sym.Group([whole, *states]).eval(**arrays, **values)
    expected, ends = cell.unroll(3, x, merge_outputs=True)
    assert len(found) == 1 + len(ends)
    for one, other in zip(found, [expected, *ends], strict=True):
        numpy.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-5, atol=1e-6)


def test_a_cell_called_on_symbols_gives_its_states_as_a_list():
    cell = gluon.rnn.LSTMCell(5, input_size=4)
    cell.initialize()
    shapes = {"x": (2, 4), "h": (2, 5), "c": (2, 5)}
    x, h, c = (sym.var(name, shape=shape) for name, shape in shapes.items())
    output, states = cell(x, [h, c])
    arrays = {name: np.random.normal(size=shape) for name, shape in shapes.items()}
    values = {p.name: p.data() for p in cell.collect_params().values()}
    found = sym.Group([output, *states]).eval(**arrays, **values)
    expected, ends = cell(arrays["x"], [arrays["h"], arrays["c"]])
    for one, other in zip(found, [expected, *ends], strict=True):
        numpy.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-5, atol=1e-6)


def test_blocks_on_symbols_of_known_shapes():
    embedding = nn.Embedding(6, 3)
    embedding.initialize()
    words = sym.var("words", shape=(2, 5), dtype="int32")
    assert embedding(words).infer_shape()[1] == [(2, 5, 3)]
    first, second = nn.Dense(4, in_units=3), nn.Dense(2, in_units=4)
    for net in (first, second):
        net.initialize()
        net.hybridize()
    assert second(first(sym.var("x", shape=(7, 3)))).infer_shape()[1] == [(7, 2)]

    class Named(gluon.HybridBlock):
        def forward(self, a, b):
            return a - b

    a, b = (sym.var(name, shape=(2,)) for name in "ab")
    assert Named()(b=b, a=a).list_arguments() == ["a", "b"]
    with pytest.raises(ExportError, match="named0: an input is a symbol with 2 outputs"):
        Named(prefix="named0_")(sym.Group([a, b]), b)
    with pytest.raises(ExportError, match=r"rnn0: the shapes of x are not known.*shape=\.\.\.\)$"):
        gluon.rnn.RNNCell(3, prefix="rnn0_").unroll(3, sym.var("x"))
