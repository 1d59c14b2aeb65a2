"""The arrays of `gemel.nd`: MXNet 1's methods, keywords and look."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, image, nd, np
from gemel.errors import ArgumentError, ShapeError
from gemel.gluon import nn

X = numpy.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]], "float32")


@pytest.mark.parametrize(
    ("call", "want"),
    [
        (lambda x: x.norm(), numpy.linalg.norm(X)),
        (lambda x: x.norm(ord=1, axis=1), abs(X).sum(1)),
        (lambda x: x.topk(k=2, ret_typ="value"), -numpy.sort(-X, 1)[:, :2]),
        (lambda x: x.slice_axis(axis=1, begin=1, end=None), X[:, 1:]),
        (lambda x: x.slice(begin=(0, 1), end=(1, 3)), X[:1, 1:]),
        (lambda x: x.expand_dims(axis=1), X[:, None]),
        (lambda x: x.tile((2, 1)), numpy.tile(X, (2, 1))),
        (lambda x: x.pick(nd.array([0, 2])), X[[0, 1], [0, 2]]),
        (lambda x: nd.array([0, 2]).one_hot(3), numpy.eye(3)[[0, 2]]),
        (lambda x: x.sum(axis=0, exclude=True), X.sum(1)),
        (lambda x: x.mean(axis=1, keepdims=True), X.mean(1, keepdims=True)),
        (lambda x: x.max(axis=1), X.max(1)),
        (lambda x: x.argmax(axis=1), X.argmax(1).astype("float32")),
        (lambda x: x.sort(axis=1, is_ascend=False), -numpy.sort(-X, 1)),
        (lambda x: x.argsort(axis=1), X.argsort(1).astype("float32")),
        (lambda x: nd.array([0, 3, 1], dtype="uint8").argsort(is_ascend=False), [1, 2, 0]),
        (lambda x: nd.array([-128, 3, 1], dtype="int8").argsort(is_ascend=False), [1, 2, 0]),
        (lambda x: nd.array([1, numpy.nan, 2, 2]).argsort(is_ascend=False), [1, 2, 3, 0]),
        (lambda x: x.split(num_outputs=3, axis=1)[1], X[:, 1:2]),
        (lambda x: x.reshape((0, -4, 3, -1)), X.reshape(2, 3, 1)),
        (lambda x: x.reshape(3, 2), X.reshape(3, 2)),
        (lambda x: x.expand_dims(0).flatten(), X.reshape(1, 6)),
        (lambda x: x.broadcast_like(nd.ones((2, 3))), X),
        (lambda x: x[:, :1].broadcast_to((2, 3)), X[:, :1] * numpy.ones(3)),
        (lambda x: x.take(nd.array([1, 0])), X[[1, 0]]),
        (lambda x: x.clip(-1, 2), X.clip(-1, 2)),
        (lambda x: x.transpose((1, 0)), X.T),
        (lambda x: x.T, X.T),
        (lambda x: x.swapaxes(0, 1), X.T),
        (lambda x: x.flip(axis=1), X[:, ::-1]),
        (lambda x: x.softmax(axis=0).sum(axis=0), numpy.ones(3)),
        (
            lambda x: (
                x.expand_dims(0).expand_dims(0).pad("edge", (0, 0, 0, 0, 0, 0, 1, 0)).shape[3]
            ),
            4,
        ),
        (lambda x: x > 2, (X > 2).astype("float32")),
        (lambda x: (x == x) + (x > 0), 1 + (X > 0).astype("float32")),
        (lambda x: 2 - x / 2 + x**2 - -x, 2 - X / 2 + X**2 + X),
        (lambda x: x.astype("int32").asnumpy(), X.astype("int32")),
        (lambda x: x.tostype("default").copy().as_in_context(x.context), X),
        (lambda x: nd.random.uniform(low=2, high=2, shape=(3,)), numpy.full(3, 2.0)),
        (lambda x: nd.elemwise_add(x, x, out=nd.zeros((2, 3))), X + X),
        (lambda x: np.exp(x), numpy.exp(X)),
    ],
)
def test_methods(call: Any, want: Any) -> None:
    found = call(nd.array(X))
    numpy.testing.assert_allclose(getattr(found, "asnumpy", lambda: found)(), want, rtol=1e-5)


def test_look_and_kind() -> None:
    x = nd.array([[1, 2, 3], [4, 5, 6]])
    assert repr(x) == "\n[[1. 2. 3.]\n [4. 5. 6.]]\n<NDArray 2x3 @cpu(0)>"
    kinds = [x + 1, 1 + x, x[0], x.sum(axis=0), nd.dot(x, x.T), nd.concat(x, x), x.copy(), x > 1]
    assert {type(each).__name__ for each in kinds} == {"NDArray"}
    plain = np.ones((2, 3))
    assert type(plain + 1) is type(nd.sum(plain)) is np.ndarray, "plain arrays give plain arrays"
    assert isinstance(plain, nd.NDArray) and isinstance(x, np.ndarray)
    assert not isinstance(3, nd.NDArray)
    assert type(x.as_np_ndarray()) is np.ndarray and type(x).__name__ == "NDArray"
    same = x
    x += 1
    x[:, 0] = 0
    assert x is same and x.asnumpy().tolist() == [[0, 3, 4], [0, 6, 7]]
    assert x[0, 1].asscalar() == 3 and x.stype == "default" and hash(x) == hash(same)


def test_gradients() -> None:
    x = nd.array(X)
    x.attach_grad()
    with autograd.record():
        y = (x.slice_axis(axis=1, begin=0, end=2) ** 2).sum()
    y.backward()
    assert "<NDArray 2x3 @cpu(0)>" in repr(x.grad)
    assert x.grad.asnumpy().tolist() == [[2, -4, 0], [8, 10, 0]]


class Old(nn.HybridBlock):
    """A network in the style of MXNet 1."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        left = x.slice_axis(axis=1, begin=0, end=2).expand_dims(axis=0)
        return left.broadcast_like(F.zeros((1, 2, 2))).norm(axis=2) + F.random.uniform(
            low=0, high=0, shape=(1, 2)
        )


def test_methods_in_networks() -> None:
    for x in (nd.array(X), np.array(X)):
        net = Old()
        want = net(x).asnumpy()
        net.hybridize()
        numpy.testing.assert_allclose(net(x).asnumpy(), want, rtol=1e-6)
        numpy.testing.assert_allclose(want, numpy.linalg.norm(X[:, :2], axis=1)[None], rtol=1e-6)


def test_unknown_methods() -> None:
    for made in ("np.ones(2)", "nd.ones(2)"):
        program = f"from gemel import nd, np\n{made}.slice_axs(axis=0)"
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert ended.returncode == 1
        # Python itself suggests the nearest of the names that `dir` lists.
        assert "Did you mean: 'slice_axis'?" in ended.stderr
    for x in (nd.ones(2), np.ones(2)):
        assert not hasattr(x, "_nothing") and not hasattr(x, "__array_nothing__")
    with pytest.raises(ValueError, match="dense"):
        nd.ones(2).tostype("csr")
    with pytest.raises(TypeError, match="axs"):
        nd.ones(2).norm(axs=1)
    assert gemel.nd.NDArray.__name__ == "NDArray"


#: Operations declared with MXNet's names: a call with one input, and the axes of that.
WITH_AXES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: nd.LRN(x, nsize=3), "LRN: data.* (N, C, ...)"),
    (lambda x: nd.UpSampling(x, scale=2), "UpSampling: data.* (N, C, height, width)"),
    (lambda x: nd.Crop(x, h_w=(2, 2)), "Crop: data.* (N, C, height, width)"),
    (lambda x: nd.im2col(x, kernel=(2, 2)), "im2col: data.* (N, C, height, width)"),
    (lambda x: nd.space_to_depth(x, block_size=1), "space_to_depth: data.* (N, C, height, width)"),
    (lambda x: nd.BilinearSampler(x, IMAGES), "BilinearSampler: data.* (N, C, height, width)"),
    (lambda x: nd.BilinearSampler(IMAGES, x), "BilinearSampler: grid.* (N, 2, height, width)"),
    (lambda x: nd.GridGenerator(x, transform_type="affine"), "GridGenerator: data.* (N, 6)"),
    (lambda x: nd.SpatialTransformer(IMAGES, x), "SpatialTransformer: loc.* (N, 6)"),
    (lambda x: nd.Correlation(IMAGES, x), "Correlation: data2.* (N, C, height, width)"),
    (lambda x: nd.khatri_rao(nd.ones((2, 2)), x), "khatri_rao: data.* (rows, columns)"),
    (lambda x: nd.linalg_gemm2(nd.ones((2, 2)), x), "_gemm2: B.* (..., rows, columns)"),
]
IMAGES = nd.ones((1, 2, 4, 4))


@pytest.mark.parametrize("count", [0, 2, 4, 5])
@pytest.mark.parametrize("offset", [0, -1])
def test_rows_that_fill_no_triangle(count: int, offset: int) -> None:
    with pytest.raises(ShapeError, match=r"that of a . x . matrix has . elements"):
        nd.linalg_maketrian(nd.ones((2, count)), offset=offset)


@pytest.mark.parametrize(("call", "axes"), WITH_AXES)
@pytest.mark.parametrize("given", [[1.0, 2.0], 2.0, nd.ones(3), numpy.ones(3, "float32")])
def test_inputs_must_have_the_axes(call: Any, axes: str, given: Any) -> None:
    with pytest.raises(ShapeError, match=re.escape(axes).replace(r"\.\*", ".*")):
        call(given)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: nd.SoftmaxActivation(x),
        lambda x: nd.LinearRegressionOutput(x, X),
        lambda x: nd.MakeLoss(x),
        lambda x: nd.SoftmaxOutput(x, nd.array([0, 1])),
        lambda x: nd.LeakyReLU(x, [0.5, 0.25, 2.0], act_type="prelu"),
        lambda x: nd.batch_take(x, [0, 2]),
        lambda x: nd.max(x, axis=1),
        lambda x: nd.dot(x, X, transpose_b=True),
        lambda x: nd.add_n(x, X),
    ],
)
def test_inputs_may_be_lists(call: Callable[[Any], Any]) -> None:
    wanted = call(nd.array(X)).asnumpy()
    for given in (X.tolist(), X):
        with autograd.train_mode():
            found = call(given)
        assert type(found) is nd.NDArray
        numpy.testing.assert_array_equal(found.asnumpy(), wanted)


def test_onehot_encode() -> None:
    out = nd.ones((3, 4), dtype="int32")
    assert nd.onehot_encode(nd.array([0, 2, 3]), out) is out
    assert out.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]] and out.dtype == "int32"
    for shape in ((2, 4), (3,)):
        with pytest.raises(ShapeError, match=r"onehot_encode: indices \[3\] must be \(N,\)"):
            nd.onehot_encode(nd.array([0, 2, 3]), nd.ones(shape))


def test_imdecode() -> None:
    pytest.importorskip("PIL")
    pixels = numpy.arange(36, dtype="uint8").reshape(3, 4, 3)
    data, wanted = image.encoded(pixels, 9, ".png"), pixels.transpose(2, 0, 1)
    found = nd.imdecode(data)
    assert type(found) is nd.NDArray and found.dtype == "float32"
    numpy.testing.assert_array_equal(found.asnumpy(), wanted)
    assert nd.imdecode(data, channels=1).shape == (1, 3, 4)
    part = nd.imdecode(data, (1, 0, 3, 2), mean=nd.ones((3, 1, 1)))
    numpy.testing.assert_array_equal(part.asnumpy(), wanted[:, :2, 1:3] - 1.0)
    out = nd.zeros((2, 3, 3, 4))
    assert nd.imdecode(data, out=out, index=1) is out
    assert out[0].sum().item() == 0
    numpy.testing.assert_array_equal(out[1].asnumpy(), wanted)
    with pytest.raises(ArgumentError, match="channels=2 must be 1 or 3"):
        nd.imdecode(data, channels=2)
    with pytest.raises(ShapeError, match="9 x 9"):
        nd.imdecode(data, (0, 0, 9, 9))


@pytest.mark.parametrize("module", [nd, gemel.sym])
def test_dir_lists_what_users_call(module: Any) -> None:
    names = {name for name in dir(module) if not name.startswith("_")}
    assert {"FullyConnected", "concat", "random", "linalg", "np"} <= names
    assert not {"Any", "install", "castable", "present", "Layers", "attribute"} & names
    assert all(hasattr(module, name) for name in names)


def test_internals_hide_no_function() -> None:
    assert nd.gradient(nd.array([1.0, 2.0, 4.0])).asnumpy().tolist() == [1.0, 1.5, 2.0]
    assert callable(nd.callback)
