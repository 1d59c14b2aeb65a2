"""Networks and functions as ONNX files, compared with what onnx's own evaluator computes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import numpy
import pytest
from onnx_networks import NETWORKS, drawn, leaves, lenet, prepared
from onnx_networks import given as inputs_of

import gemel
from gemel import autograd, np, npx
from gemel.errors import ExportError, ExportWarning, MissingPackageError, ShapeError
from gemel.gluon import nn

onnx = pytest.importorskip("onnx", reason="pip install gemel[onnx]")
from onnx.reference import ReferenceEvaluator  # noqa: E402

F, D, I = drawn(3, 4), drawn(3, 4, dtype="float64"), drawn(3, 4, dtype="int64")  # noqa: E741
B, P, ROW, EMPTY = drawn(3, 4, dtype="bool"), drawn(3, 4, low=0.1), drawn(1, 4), drawn(3, 0)
N = np.abs(I) + 1
IMAGE = drawn(2, 4, 7, 6)
#: Functions and their inputs, by name.
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}


def case(name: str, function: Callable[..., Any], *inputs: Any) -> None:
    assert name not in CASES
    CASES[name] = function, inputs


def each(name: str, functions: str, *inputs: Any, module: Any = np, **settings: Any) -> None:
    """Add a case of several functions of the same inputs, whose results are returned by name."""

    def every(*given: Any) -> Any:
        return {f: getattr(module, f)(*given, **settings) for f in functions.split()}

    case(name, every, *inputs)


each(
    "functions",
    """negative absolute sign sin cos tan arctan sinh cosh tanh arcsinh exp expm1 exp2 floor ceil
    rint trunc square cbrt degrees radians isnan isinf isfinite isposinf isneginf logical_not sinc
    signbit""",
    F,
)
each("functions within 1", "arcsin arccos arctanh", drawn(3, 4, low=-0.9, high=0.9))
each("functions of positive numbers", "sqrt log log2 log10 log1p reciprocal", P)
case("arccosh", np.arccosh, P + 1)
each("activations", "relu sigmoid softplus softsign erf gelu selu hard_sigmoid", F, module=npx)
each(
    "functions of two",
    """add subtract multiply divide maximum minimum equal not_equal less less_equal greater
    greater_equal logical_and logical_or logical_xor remainder floor_divide fmod arctan2 hypot
    logaddexp fmax fmin copysign heaviside""",
    P,
    ROW,
)
case("power", np.power, P, ROW)
each(
    "functions of two of int64",
    "add subtract multiply maximum floor_divide remainder equal less bitwise_and bitwise_or "
    "bitwise_xor",
    I,
    N,
)
case("power of int64", lambda x, n: (x**2, n**n, np.invert(x)), I, N)
each(
    "functions of two of bool",
    "add multiply maximum minimum bitwise_and bitwise_or bitwise_xor equal",
    B,
    ~B,
)
case("invert of bool", np.invert, B)
case("shift left", np.left_shift, drawn(4, dtype="uint32"), np.array([1, 2, 3, 0], dtype="uint32"))
case("shift right", np.right_shift, drawn(4, dtype="uint8"), np.array([1, 2, 3, 0], dtype="uint8"))
_SMALL = np.array([1, 7, 0], dtype="uint8"), np.array([2, 3, 0], dtype="uint8")
for _kind in ("int8", "int32", "int64"):
    case(
        f"shifts of {_kind}",
        lambda x, n: (x << n, x >> n),
        np.array([5, -5, 127, -128, 0, -1], dtype=_kind),
        np.array([1, 2, 3, 0, 7, 6], dtype=_kind),
    )
each("functions of bool", "abs count_nonzero logical_not iscomplex square signbit", B)
each("functions of two of bool by numbers", "logaddexp isclose not_equal greater less", B, ~B)
case("clip of bool", lambda x, y: (np.clip(x, y, y), np.clip(x, False, True)), B, ~B)
each("functions of two of uint8", "logaddexp logaddexp2 isclose", *_SMALL)
each("functions of int64", "gamma gammaln erf", N, module=npx)
case("bool and numbers", lambda x: (x != 0, x == 1, x > 0), B)
case("ranks", lambda x: (np.median(x), np.median(x, axis=1), np.quantile(x, 0.3, axis=0)), F)
case(
    "triangles between diagonals", lambda x: (np.tril(x, 0.3), np.triu(x, 0.3), np.triu(x, -1.5)), F
)
case("mixed dtypes", lambda a, b, c: (a + b) * c, I, D, F)
case("numbers", lambda x: (2 - x) / 3 + 1e-3 * x**2, F)
case("a number and integers", lambda x: x / 2 + (x > 1), I)
case("halves", lambda x: np.tanh(x) * 2 + 1, drawn(5, dtype="float16"))
case("small integers", lambda x: np.maximum(x, 2) * 2, drawn(5, dtype="uint8"))
case("near zero", lambda x: np.log1p(x) + np.expm1(x), np.array([1e-8, -3e-7, 0.0, 1.0]))
case("large", lambda x: (np.log1p(x), np.expm1(-x)), np.array([1e30, 200.0, 3.0]))
case(
    "remainders with signs", np.remainder, np.array([-5.0, 5, -5, 5.5]), np.array([3.0, -3, -3, 2])
)
case("quotients with signs", np.floor_divide, np.array([-5, 5, -6, 7]), np.array([3, -3, -3, 2]))
case("quotients by zero", lambda n: (2.5 // n, np.divmod(-1.5, n)[0]), np.array([0.0, 2.0, -0.0]))
INFINITE = np.array([inf, -inf, inf, -inf, 2.0])
case(
    "quotients by infinity",
    lambda x, y: (x // y, 3.0 // y, y // x, x // inf, x // -inf, np.divmod(x, y)[1]),
    np.array([5.0, 5.0, -5.0, -5.0, -inf]),
    INFINITE,
)
case(
    "tiny remainders",
    lambda x, y: np.remainder(x, y) * 1e30,
    np.array([-1.0, 3.5]),
    np.array([1e-30, -1e-30]),
)
case("clip", lambda x: np.clip(x, -0.5, 0.5), F)
case("clip of int64", lambda x: np.clip(x, -1, 2), I)
case("clip by arrays", lambda x, y: np.clip(x, -y, y), F, np.abs(ROW))
case("where", lambda c, x: np.where(c, x, 0), B, F)
case("where of bools", lambda c, x, y: (np.where(c, x, y), np.where(c, x, True)), B, ~B, B[:1])
case("where broadcast", lambda c, x, y: np.where(c, x, y), B[:, :1], ROW, D)
case("leaky_relu", lambda x: npx.leaky_relu(x, slope=0.1), F)
case("prelu", lambda x, g: npx.leaky_relu(x, g, act_type="prelu"), F, drawn(4))
case("elu", lambda x: npx.leaky_relu(x, act_type="elu", slope=0.7), F)
case("round", lambda x: np.round(x, 1), F)
case("cast", lambda x: (x.astype("int32"), x.astype("bool"), x.astype("float64")), F)
case("nan_to_num", np.nan_to_num, np.array([1.0, float("nan"), float("inf")]))

REDUCED = "sum prod max min mean std var any all argmax argmin count_nonzero"
for _kind, _x in (("", F), (" of int64", I)):
    each(f"reductions{_kind}", f"{REDUCED} ptp", _x)
    each(f"reductions{_kind} along an axis", f"{REDUCED} ptp", _x, axis=-1)
    each(f"reductions{_kind} that keep the axis", REDUCED, _x, axis=0, keepdims=True)
case("sums of bool", lambda x: (x.sum(), x.max(axis=1), x.min(axis=1), x.mean()), B)
case(
    "sums of nothing",
    lambda x: (x.sum(axis=1), x.prod(axis=1), x.any(axis=1), x.all(axis=1)),
    EMPTY,
)
case("sum of several axes", lambda x: x.sum(axis=(0, -1)), IMAGE)
case("sum of one number", lambda x: x.sum(), np.array(3.0))
case("logsumexp", lambda x: npx.logsumexp(x, axis=1), F * 100)
case("cumsum", lambda x: (np.cumsum(x, axis=-1), np.cumsum(x)), F)
case("cumsum of bool", lambda x: np.cumsum(x, axis=0), B)

case("matmul", np.matmul, F, drawn(4, 5))
case("matmul of batches", np.matmul, drawn(2, 1, 3, 4), drawn(5, 4, 2))
case("matmul of vectors", lambda a, b: (np.matmul(a, b), np.dot(b, b)), F, drawn(4))
case("matmul of int64", np.matmul, I, I.T)
case("matmul of nothing", np.matmul, EMPTY, drawn(0, 2))
case("einsum", lambda a, b: np.einsum("bij,bkj->bik", a, b), drawn(2, 3, 4), drawn(2, 5, 4))
case("tensordot", lambda a, b: np.tensordot(a, b, axes=([1], [0])), F, drawn(4, 2, 3))
case(
    "batch_dot", lambda a, b: npx.batch_dot(a, b, transpose_b=True), drawn(2, 3, 4), drawn(2, 5, 4)
)
case("outer", np.outer, drawn(3), drawn(4))

case("reshape", lambda x: (x.reshape(-1), x.reshape(x.shape[0], 2, -1), x.reshape(2, -1)), F)
case("transpose", lambda x: (x.transpose(), x.transpose(2, 0, 1, 3), x.T), IMAGE)
case("axes", lambda x: (np.expand_dims(x, -1), np.squeeze(x[:1], 0), np.swapaxes(x, 0, 1)), F)
case("concatenate", lambda a, b: np.concatenate([a, b, a], axis=-1), F, D)
case("stack", lambda a: np.stack([a, a * 2], axis=1), F)
case("split", lambda x: np.split(x, 2, axis=-1), F)
case("split between", lambda x: np.split(x, [1, 3], axis=1), F)
case("split at places that go back", lambda x: np.split(x, [3, 1], axis=1), F)
case(
    "slices", lambda x: (x[1:], x[:, ::2], x[::-1], x[0], x[..., -1], x[:, None, 1:3], x[-1, 1:]), F
)
case("backwards by steps", lambda x: (x[:, ::-2], x[2:0:-1], x[1:1]), F)
case("flip", lambda x: np.flip(x, (0, 1)), F)
case("roll", lambda x: np.roll(x, 1, axis=1), F)
case("tile", lambda x: np.tile(x, (2, 3)), F)
case("repeat", lambda x: np.repeat(x, 3, axis=1), F)
case("broadcast_to", lambda x: np.broadcast_to(x, (5, 3, 4)), F)
case("pad", lambda x: np.pad(x, ((1, 0), (2, 1)), constant_values=3.0), F)
case("pad with zeros", lambda x: np.pad(x, 1), I)
case("pad by edges", lambda x: np.pad(x, 1, mode="edge"), F)
case("pad by mirrors", lambda x: np.pad(x, 1, mode="reflect"), F)
case("triangles", lambda x: (np.tril(x), np.triu(x, 1), np.tril(x, -1)), F)
case("diagonal", lambda x: np.diagonal(x), F)
case("meshgrid", lambda x, y: np.meshgrid(x, y), drawn(3), drawn(4))
case(
    "made",
    lambda x: (
        np.zeros_like(x),
        np.ones((2, 3)),
        np.full((2,), 7),
        np.arange(5) * x[0, 0],
        np.eye(3),
    ),
    F,
)
case("positions", lambda x: np.arange(x.shape[0], dtype="float32") + x.shape[1], F)


def overwritten(x: Any) -> Any:
    y = x * 1
    y[1:, 2] = 7.0
    y[0] += x[1]
    return y


case("overwritten", overwritten, F)
case("take", lambda x, i: np.take(x, i, axis=1), F, np.array([[0, 3], [-1, 2]]))
case(
    "take clipped",
    lambda x, i: np.take(x, i, axis=0, mode="clip"),
    F,
    np.array([7, -9, 1], dtype="int32"),
)
case("indexed by an array", lambda x, i: x[i], F, np.array([2, 0, 0]))
case("take_along_axis", lambda x, i: np.take_along_axis(x, i, 1), F, np.array([[0], [3], [1]]))
case("pick", lambda x, i: npx.pick(x, i), F, np.array([0, 9, 2]))
case("one_hot", lambda i: npx.one_hot(i, 4), np.array([0, 3, -1, 9]))
case("embedding", lambda i, w: npx.embedding(i, w), np.array([1, 0, 2], dtype="int32"), F)
case("det", lambda x: np.linalg.det(x), drawn(2, 3, 3))


def put(x: Any, indices: Any, values: Any) -> Any:
    found = x.copy()
    np.put_along_axis(found, indices, values, 1)
    return found


case("written at positions", put, F, np.array([[0, 2], [1, 3], [3, 0]]), drawn(3, 2))


def combined(x: Any, i: Any, values: Any) -> list[Any]:
    found = []
    for name in "add", "subtract", "multiply", "maximum", "minimum":
        for each in values, 2:
            found.append(x.copy())
            getattr(np, name).at(found[-1], i, each)
    return found


case("combined at positions", combined, F, np.array([0, 2, -1, 2]), drawn(4, 4))
case("combined at positions, of int64", combined, I, np.array([1, 0, 1]), I)
case("added at positions", lambda x, i: npx.scatter_nd(x, i, (5, 4)), F, np.array([[4, 0, 4]]))
case("sort", lambda x: (np.sort(x, axis=0), np.argsort(x), np.flip(np.sort(x), -1)), F)
case("sort of bool", lambda x: (np.sort(x), np.argsort(x), npx.topk(x, 2, ret_typ="value")), B)
case("topk", lambda x: (npx.topk(x, 2), npx.topk(x, 2, ret_typ="value", is_ascend=True)), F)
case(
    "sequence_mask", lambda x, n: npx.sequence_mask(x, n, True), drawn(4, 3, 2), np.array([1, 4, 2])
)

case(
    "softmax",
    lambda x: (npx.softmax(x), npx.log_softmax(x, axis=0), npx.softmax(x, temperature=2.0)),
    F,
)
case("masked_softmax", npx.masked_softmax, F, B)
case("attention", lambda q, k: npx.attention(q, k, k, causal=True), drawn(2, 5, 4), drawn(2, 5, 4))
case("layer_norm", npx.layer_norm, F, drawn(4), drawn(4))
case(
    "layer_norm of another axis",
    lambda x, g: npx.layer_norm(x, g, g, axis=1),
    drawn(2, 3, 4),
    drawn(3),
)
case("group_norm", lambda x, g: npx.group_norm(x, g, g, num_groups=2), IMAGE, drawn(4))
case("instance_norm", npx.instance_norm, IMAGE, drawn(4), drawn(4))
case(
    "batch_norm", lambda x, *w: npx.batch_norm(x, *w), IMAGE, *[drawn(4, low=0.5) for _ in range(4)]
)
case(
    "batch_norm, scaled",
    lambda x, *w: npx.batch_norm(x, *w, fix_gamma=False, axis=-1),
    F,
    *[drawn(4, low=0.5) for _ in range(4)],
)
case("l2_normalization", npx.l2_normalization, F)
case("dropout", lambda x: npx.dropout(x, 0.5), F)
case(
    "fully_connected",
    lambda x, w, b: npx.fully_connected(x, w, b),
    drawn(2, 3, 4),
    drawn(5, 12),
    drawn(5),
)
case(
    "fully_connected, last axis",
    lambda x, w: npx.fully_connected(x, w, no_bias=True, flatten=False),
    drawn(2, 3, 4),
    drawn(5, 4),
)
case(
    "convolution",
    lambda x, w, b: npx.convolution(x, w, b, stride=2, pad=1, dilate=(1, 2)),
    IMAGE,
    drawn(6, 4, 3, 2),
    drawn(6),
)
case(
    "convolution in groups",
    lambda x, w: npx.convolution(x, w, num_group=2),
    IMAGE,
    drawn(6, 2, 3, 3),
)
case(
    "convolution over time",
    lambda x, w: npx.convolution(x, w, pad=2),
    drawn(2, 3, 9),
    drawn(4, 3, 5),
)
case(
    "convolution, channels last",
    lambda x, w: npx.convolution(x, w, layout="NHWC"),
    drawn(2, 7, 6, 4),
    drawn(5, 3, 3, 4),
)
case(
    "deconvolution",
    lambda x, w: npx.deconvolution(x, w, stride=2, pad=1, adj=1),
    IMAGE,
    drawn(4, 3, 3, 3),
)
for _kind in ("max", "avg", "sum"):
    case(
        f"{_kind} pooling",
        lambda x, k=_kind: npx.pooling(x, (3, 2), k, stride=2, pad=(1, 0)),
        IMAGE,
    )
    case(
        f"global {_kind} pooling",
        lambda x, k=_kind: npx.pooling(x, pool_type=k, global_pool=True),
        IMAGE,
    )
for _kind in ("max", "avg", "sum", "lp"):
    case(
        f"{_kind} pooling, rounded up",
        lambda x, k=_kind: npx.pooling(x, (3, 3), k, stride=2, pad=1, pooling_convention="full"),
        IMAGE,
    )
for _kind in ("max", "avg"):
    case(
        f"adaptive {_kind} pooling",
        lambda x, k=_kind: [npx.adaptive_pooling(x, m, k) for m in ((3, 4), (9, 2), 5)],
        drawn(2, 3, 8, 7),
    )
case(
    "avg pooling without padding",
    lambda x: npx.pooling(x, (3, 3), "avg", stride=2, pad=1, count_include_pad=False),
    IMAGE,
)
for _k, _s in ((2, 2), (2, 3), (3, 2)):
    case(
        f"avg pooling of {_k} in steps of {_s}, rounded up, with padding",
        lambda *images, k=_k, s=_s: [
            npx.pooling(x, (k, k), "avg", stride=s, pad=1, pooling_convention="full")
            for x in images
        ],
        drawn(1, 2, 5, 7),
        drawn(1, 2, 6, 5),
    )
case("lp pooling", lambda x: npx.pooling(x, (2, 2), "lp", stride=2), IMAGE)
case("resized", lambda x: npx.bilinear_resize_2d(x, 9, 5), IMAGE)
case("nested results", lambda x: {"a": x + 1, "b": (x, [x * 2])}, F)
case("results that are one", lambda x: (x + 1, x, [x, x + 0]), F)
case("a result twice", lambda x: [x * 2] * 2, F)
case("a constant result", lambda x: np.ones((2,)), F)
case("an array closed over", lambda x: x + ROW, F)


def run(path: str, *inputs: Any) -> list[Any]:
    session = ReferenceEvaluator(path)
    given = zip(session.input_names, inputs, strict=True)
    return session.run(None, {name: x.asnumpy() for name, x in given})


def check(path: str, net: Any, *inputs: Any, tolerance: float = 2e-5) -> None:
    pairs = zip(leaves(net(*inputs)), run(path, *inputs), strict=True)
    for (name, mine), other in pairs:
        assert (name, other.dtype, other.shape) == (name, mine.dtype.name, tuple(mine.shape))
        numpy.testing.assert_allclose(other, mine.asnumpy(), tolerance, tolerance, err_msg=name)


TABLE = drawn(3, 4)


def grown(count: Any, x: Any) -> Any:
    more = lambda i, y: (y.sum(), (i + 1, y * 1.5))  # noqa: E731
    begin = np.zeros((), dtype="int64"), x
    return npx.while_loop(lambda i, y: i < count, more, begin, max_iterations=5)


def nested(x: Any, s: Any) -> Any:
    inner = lambda d, c: npx.foreach(lambda e, t: (e * t, t + e), d, c)  # noqa: E731
    return npx.foreach(inner, x, s)


def slopes(x: Any, s: Any) -> Any:
    """The gradients of a loop are another one, from the last round to the first."""
    with autograd.record():
        outputs, last = npx.foreach(lambda e, t: (np.tanh(e * t), t * np.cos(e)), x, s)
        loss = (outputs * outputs).sum() + last.sum()
    return autograd.grad(loss, [x, s])


def only_numbers(x: Any) -> Any:
    return npx.foreach(lambda e, s: ([e * s, e + 1], s + e), x, np.zeros(()))


case("a loop with a condition", grown, np.array(3), drawn(2, 3))
case("a loop that is never run", grown, np.array(0), drawn(2, 3))
case("loops inside of a loop", nested, drawn(5, 6), np.array(1.0))
case("a loop back", slopes, drawn(5, 3), drawn(3))
case("a loop over numbers", only_numbers, drawn(6))


def of_a_table(x: Any) -> Any:
    y = TABLE * 2
    np.fill_diagonal(y, 3)
    y -= x
    return y, np.sort(TABLE) + x


case("results of a closed-over array, written to", of_a_table, F)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::gemel.errors.ExportWarning")
@pytest.mark.parametrize("name", CASES)
def test_operations(name: str, tmp_path: Path) -> None:
    function, inputs = CASES[name]
    program = gemel.compile(function)
    program(*inputs)
    path = gemel.onnx.export(program, tmp_path / "f.onnx")
    tolerance = 2e-3 if any(x.dtype == "float16" for x in inputs) else 2e-5
    check(path, program, *inputs, tolerance=tolerance)


SLICES: dict[str, Callable[[Any], Any]] = {
    ":-2": lambda x: x[:-2],
    ":5": lambda x: x[:5] * 1,
    "-3:-1": lambda x: x[-3:-1],
    "-1:-3:-1": lambda x: x[-1:-3:-1],
    "-2::-2": lambda x: x[-2::-2],
    ":-5:-1": lambda x: x[:-5:-1],
    "beside others": lambda x: x[2:0:-1, None, 1, :-1],
}


@pytest.mark.parametrize("seen", [1, 2, 6])
@pytest.mark.parametrize("name", SLICES)
def test_slices_of_other_sizes(name: str, seen: int, tmp_path: Path) -> None:
    program = gemel.compile(SLICES[name])
    program(drawn(seen, 3, 4))
    path = gemel.onnx.export(program, tmp_path / "f.onnx")
    for rows in range(1, 9):
        check(path, program, drawn(rows, 3, 4))


# --- networks -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_for_other_sizes(name: str, tmp_path: Path) -> None:
    make, *_, free = NETWORKS[name]
    inputs, others = inputs_of(name)
    net = prepared(make(), inputs)
    path = gemel.onnx.export(net, tmp_path / "net.onnx")
    (given,) = onnx.load(path).graph.input
    named = [str(axis) for axis, n in enumerate(given.type.tensor_type.shape.dim) if n.dim_param]
    assert named == free.split()
    check(path, net, others, tolerance=1e-4)


def test_parameters_keep_their_names(tmp_path: Path) -> None:
    net = prepared(lenet(), drawn(1, 1, 28, 28))
    model = onnx.load(gemel.onnx.export(net, tmp_path / "net.onnx"))
    tensors = {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer
    }
    for parameter in net.collect_params().values():
        assert (tensors[parameter.name] == parameter.data().asnumpy()).all()
    kinds = [node.op_type for node in model.graph.node]
    assert kinds == ["Conv", "Sigmoid", "AveragePool", "Conv", "Tanh", "MaxPool", "Reshape", "Gemm"]


def test_sizes_are_held_where_asked_for(tmp_path: Path) -> None:
    def dims(**settings: Any) -> list[Any]:
        model = onnx.load(gemel.onnx.export(net, tmp_path / "net.onnx", **settings))
        return [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]

    net = prepared(nn.Conv2D(2, 3), drawn(2, 3, 8, 9))
    assert dims() == ["data_0", 3, "data_2", "data_3"]
    assert dims(dynamic=False) == [2, 3, 8, 9]
    assert dims(dynamic=[(None, 3, 8, 9)]) == ["data_0", 3, 8, 9]
    net(drawn(5, 3, 8, 9))  # is not traced anew
    assert dims(dynamic=[(5, 3, None, 16)]) == [5, 3, "data_2", 16]
    for wrong in [(None, 3, 8)], [(None, 3, 8, 9)] * 2, [(-1, 3, 8, 9)], [(2, 3, 8.0, 9)]:
        with pytest.raises(ShapeError, match="are not shapes for inputs like"):
            dims(dynamic=wrong)
    with pytest.raises(ShapeError, match="convolution"):
        dims(dynamic=[(2, 4, 8, 9)])
    net = gemel.compile(lambda x: x.sum(axis=0) if x.shape[0] > 2 else x)
    net(F)
    with pytest.warns(ExportWarning, match=r"where 2 < data.shape\[0\]"):
        assert dims() == ["data_0", "data_1"]
    net = gemel.compile(lambda x: x * len(x))
    net(F)
    assert dims() == [3, "data_1"]


def test_one_example_is_as_good_as_several_if_the_function_says_so(tmp_path: Path) -> None:
    one = drawn(1, 4)
    for function, free in (
        (lambda x: x * 2, True),
        (lambda x: x * 2 if x.shape[0] == 1 else x * 3, False),
    ):
        program = gemel.compile(function)
        program(one)
        path = gemel.onnx.export(program, tmp_path / "f.onnx")
        dim = onnx.load(path).graph.input[0].type.tensor_type.shape.dim[0]
        assert bool(dim.dim_param) is free
        check(path, program, one)


def test_sizes_that_have_to_be_equal_have_one_name(tmp_path: Path) -> None:
    program = gemel.compile(lambda a, b: np.matmul(a, b) + 1)
    program(F, drawn(4, 5))
    model = onnx.load(gemel.onnx.export(program, tmp_path / "f.onnx"))
    found = [[d.dim_param for d in x.type.tensor_type.shape.dim] for x in model.graph.input]
    assert found == [["data0_0", "data0_1"], ["data0_1", "data1_1"]]


def test_newer_operators(tmp_path: Path) -> None:
    program = gemel.compile(lambda x: npx.gelu(x))
    program(F)
    for opset, kinds in ((18, {"Mul", "Erf", "Add"}), (20, {"Gelu"})):
        path = gemel.onnx.export(program, tmp_path / "f.onnx", opset=opset)
        assert {node.op_type for node in onnx.load(path).graph.node} == kinds
        check(path, program, F)


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    def error(function: Any, *inputs: Any, **settings: Any) -> str:
        program = gemel.compile(function)
        program(*inputs)
        with pytest.raises(ExportError) as found:
            gemel.onnx.export(program, tmp_path / "f.onnx", **settings)
        assert not (tmp_path / "f.onnx").exists()
        return str(found.value)

    square = drawn(3, 3)
    message = error(lambda x: np.linalg.inv(x), square)
    assert "nothing for inv()" in message and f"{Path(__file__).name}:" in message
    assert "unpack" not in message and "gemel.save" in message
    assert "random numbers" in error(lambda x: x + np.random.uniform(size=(3,)), square)
    assert "between 18 and" in error(lambda x: x, square, opset=11)


def test_what_is_no_program(tmp_path: Path) -> None:
    for wrong, message in (
        (nn.Dense(2), "has not been called"),
        (nn.Sequential(), "derive it from HybridBlock"),
        (len, "gemel.compile gives one"),
    ):
        with pytest.raises(ExportError, match=message):
            gemel.onnx.export(wrong, tmp_path / "f.onnx")

    class Counting(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.count = gemel.gluon.Parameter("count", shape=(1,), init="zeros", grad_req="null")

        def forward(self, x: Any) -> Any:
            self.count.data()[...] += 1
            return x + self.count.data()

    with pytest.raises(ExportError, match="forward overwrites count"):
        gemel.onnx.export(prepared(Counting(), F), tmp_path / "f.onnx")


def test_without_the_package(monkeypatch: Any, tmp_path: Path) -> None:
    program = gemel.compile(lambda x: x)
    program(F)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackageError, match=r"pip install gemel\[onnx\]"):
        gemel.onnx.export(program, tmp_path / "f.onnx")
