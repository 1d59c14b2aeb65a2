"""`sym.np` and `sym.npx`: functions of symbols compute what the functions do, from files, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

from gemel import nd, np, npx, sym

X = np.array([[1.0, 2, 3], [4, 5, 6]])
Y = np.array([[0.5, 1, 2], [3, 1, 1]])
x, y = sym.var("x"), sym.var("y")

CALLS: dict[str, Callable[..., Any]] = {
    "tanh": lambda n, q, x, y: n.tanh(x),
    "sum": lambda n, q, x, y: n.sum(x, axis=1),
    "sum by position": lambda n, q, x, y: n.sum(x, 1),
    "add": lambda n, q, x, y: n.add(x, y),
    "a number added": lambda n, q, x, y: n.add(x, 2),
    "subtracted from a number": lambda n, q, x, y: n.subtract(2, x),
    "a number divided": lambda n, q, x, y: n.divide(2.5, x),
    "power": lambda n, q, x, y: n.power(x, 2),
    "power of a number": lambda n, q, x, y: n.power(2, x),
    "mod": lambda n, q, x, y: n.mod(x, 2),
    "maximum of a number": lambda n, q, x, y: n.maximum(3, x),
    "concatenate": lambda n, q, x, y: n.concatenate([x, y], axis=1),
    "concatenate by position": lambda n, q, x, y: n.concatenate([x, y], 1),
    "stack": lambda n, q, x, y: n.stack([x, y], axis=1),
    "where": lambda n, q, x, y: n.where(n.greater(x, 2), x, y),
    "reshape": lambda n, q, x, y: n.reshape(x, (3, 2)),
    "reshape flat": lambda n, q, x, y: n.reshape(x, -1),
    "transpose": lambda n, q, x, y: n.transpose(x),
    "transpose axes": lambda n, q, x, y: n.transpose(x, (1, 0)),
    "dot": lambda n, q, x, y: n.dot(x, n.transpose(y)),
    "mean": lambda n, q, x, y: n.mean(x, axis=0, keepdims=True),
    "clip": lambda n, q, x, y: n.clip(x, 2, 4),
    "squeeze": lambda n, q, x, y: n.squeeze(n.expand_dims(x, 0)),
    "expand_dims": lambda n, q, x, y: n.expand_dims(x, axis=1),
    "argmax": lambda n, q, x, y: n.argmax(x, axis=1),
    "einsum": lambda n, q, x, y: n.einsum("ij,ij->i", x, y),
    "std": lambda n, q, x, y: n.std(x),
    "swapaxes": lambda n, q, x, y: n.swapaxes(x, 0, 1),
    "tile": lambda n, q, x, y: n.tile(x, (2, 1)),
    "repeat": lambda n, q, x, y: n.repeat(x, 2, axis=1),
    "broadcast_to": lambda n, q, x, y: n.broadcast_to(x, (2, 2, 3)),
    "split": lambda n, q, x, y: n.split(x, 3, axis=1)[1],
    "cumsum": lambda n, q, x, y: n.cumsum(x, axis=1),
    "norm": lambda n, q, x, y: n.linalg.norm(x),
    "flip": lambda n, q, x, y: n.flip(x, 0),
    "sort": lambda n, q, x, y: n.sort(x),
    "vstack": lambda n, q, x, y: n.vstack([x, y]),
    "outer": lambda n, q, x, y: n.outer(x, y),
    "tensordot": lambda n, q, x, y: n.tensordot(x, n.transpose(y), 1),
    "round": lambda n, q, x, y: n.round(x, 1),
    "exp": lambda n, q, x, y: n.exp(x) * 2 + 1,
    "log": lambda n, q, x, y: n.log(x),
    "matmul": lambda n, q, x, y: n.matmul(x, n.swapaxes(y, 0, 1)),
    "minimum": lambda n, q, x, y: n.minimum(x, y),
    "logical_not": lambda n, q, x, y: n.logical_not(n.equal(x, y)),
    "dstack": lambda n, q, x, y: n.dstack([x, y]),
    "pad": lambda n, q, x, y: n.pad(x, ((1, 1), (0, 0))),
    "diff": lambda n, q, x, y: n.diff(x),
    "moveaxis": lambda n, q, x, y: n.moveaxis(x, 0, 1),
    "roll": lambda n, q, x, y: n.roll(x, 1),
    "prod": lambda n, q, x, y: n.prod(x),
    "var": lambda n, q, x, y: n.var(x, axis=0),
    "relu": lambda n, q, x, y: q.relu(x - 3),
    "softmax": lambda n, q, x, y: q.softmax(x, axis=0),
    "log_softmax": lambda n, q, x, y: q.log_softmax(x),
    "sigmoid": lambda n, q, x, y: q.sigmoid(x),
    "npx.reshape": lambda n, q, x, y: q.reshape(x, (-2, -1)),
    "one_hot": lambda n, q, x, y: q.one_hot(x, 7),
    "pick": lambda n, q, x, y: q.pick(x, n.argmax(y, axis=1)),
    "fully_connected": lambda n, q, x, y: q.fully_connected(x, y, no_bias=True, num_hidden=2),
    "batch_flatten": lambda n, q, x, y: q.batch_flatten(x),
    "activation": lambda n, q, x, y: q.activation(x, act_type="tanh"),
    "gelu": lambda n, q, x, y: q.gelu(x),
    "smooth_l1": lambda n, q, x, y: q.smooth_l1(x, scalar=1.0),
    "erf": lambda n, q, x, y: q.erf(x),
    "arange_like": lambda n, q, x, y: q.arange_like(x, axis=1),
    "batch_dot": lambda n, q, x, y: q.batch_dot(
        n.expand_dims(x, 0), n.expand_dims(y, 0), transpose_b=True
    ),
    "leaky_relu": lambda n, q, x, y: q.leaky_relu(x, act_type="elu"),
    "sequence_mask": lambda n, q, x, y: q.sequence_mask(x),
    "zeros_like": lambda n, q, x, y: n.zeros_like(x) + x,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_function(name: str) -> None:
    wanted = CALLS[name](np, npx, X, Y)
    symbol = CALLS[name](sym.np, sym.npx, x, y)
    for each in (symbol, sym.load_json(symbol.tojson())):
        names = each.list_inputs()
        found = each.eval(**{n: v for n, v in (("x", X), ("y", Y)) if n in names})[0]
        assert found.dtype == wanted.dtype
        numpy.testing.assert_allclose(found.asnumpy(), wanted.asnumpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("slice_axis", {"axis": 1, "begin": 1, "end": None}),
        ("slice_axis", {"axis": 1, "begin": None, "end": -1}),
        ("topk", {"axis": None, "k": 2}),
        ("sort", {"axis": None}),
        ("argsort", {"axis": None, "is_ascend": False}),
        ("flip", {"axis": None}),
        ("sum", {"axis": None}),  # None is the default
        ("cumsum", {"axis": 1}),  # no operation of MXNet 1, but a function of np
    ],
)
def test_settings_that_are_none(name: str, settings: dict[str, Any]) -> None:
    """None means the same for symbols as for arrays, also where it is not the default."""
    data = nd.array(X * [[1, -1, 1], [-1, 1, -1]])
    wanted = getattr(nd, name)(data, **settings)
    symbol = getattr(sym, name)(x, **settings)
    for each in (symbol, sym.load_json(symbol.tojson())):
        (found,) = each.eval(x=data)
        assert found.shape == wanted.shape and found.tolist() == wanted.tolist()


def test_layers_make_their_own_variables() -> None:
    made = sym.npx.fully_connected(x, num_hidden=2, name="fc")
    assert made.list_arguments() == ["x", "fc_weight", "fc_bias"]
    values = {"fc_weight": np.ones((2, 3)), "fc_bias": np.array([1.0, 2.0])}
    assert made.eval(x=X, **values)[0].tolist() == [[7, 8], [16, 17]]
    given = sym.npx.fully_connected(x, sym.var("w"), sym.var("b"), num_hidden=2)
    assert given.list_arguments() == ["x", "w", "b"]
    (found,) = sym.np.sum(sym.np.tanh(x)).bind(None, {"x": X}).forward()
    assert found.item() == pytest.approx(np.tanh(X).sum().item())


def test_names_and_what_is_no_function() -> None:
    made = sym.np.tanh(sym.np.tanh(x), name="top")
    assert made.name == "top" and made.get_children().name.startswith("tanh")
    assert sym.np.pi == np.pi and sym.np.float32 is np.float32
    assert sym.np.ones((2,)).tolist() == [1, 1] and sym.npx.relu(X).tolist() == X.tolist()
    (x_shape,), (out,), _ = sym.np.sum(x, axis=1).infer_shape(x=(4, 3))
    assert (x_shape, out) == ((4, 3), (4,))
    with pytest.raises(TypeError, match="rfft does not accept symbols"):
        sym.np.fft.rfft(x)
    with pytest.raises(AttributeError, match="no attribute 'tahn'"):
        sym.np.tahn  # noqa: B018


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        ((slice(None), 1), TypeError, "<Symbol x>.*for elements use slice, slice_axis or take"),
        (1.5, TypeError, r"\[1.5\]: an index is an output's number or name"),
        (1, IndexError, "<Symbol x> has 1 outputs, and none at 1"),
        (-2, IndexError, "none at -2"),
    ],
)
def test_an_index_selects_outputs(key: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        x[key]
    assert x[0].name == x[-1].name == x[:1].name == "x"
