"""Smaller functions of `npx`, and options of larger ones: values, gradients, bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from scipy import special
from slow import check, drawn

import gemel
from gemel import autograd, np, npx
from gemel.errors import DTypeError, GemelError, OperandError, ShapeError, UnknownNameError

Array = numpy.ndarray[Any, Any]


def softmax(x: Array) -> Array:
    raised = numpy.exp(x - x.max(-1, keepdims=True))
    return numpy.asarray(raised / raised.sum(-1, keepdims=True))


# --- special functions ------------------------------------------------------------------------

POINTS = numpy.concatenate([
    numpy.linspace(-4.9, 30, 350) + 0.013, [0.5, 1.0, 2.0, 3.0, 1e-4, -1e-4, 60.0]
])  # fmt: skip


@pytest.mark.parametrize("name", ["gamma", "gammaln", "digamma"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_gamma_family(name: str, dtype: str) -> None:
    x = POINTS.astype(dtype)
    expected = getattr(special, name)(x.astype("float64"))
    found = getattr(npx, name)(np.array(x, dtype=dtype)).asnumpy()
    assert found.dtype == dtype
    finite = abs(expected) < (1e37 if dtype == "float32" else 1e300)
    # Near poles an error in the last digit of x is multiplied by the slope.
    slope = abs(special.polygamma(1, numpy.where(x > 0, x, x + 40).astype("float64"))) + 1
    distance = numpy.minimum(abs(x - numpy.rint(x)), 1) + 1e-9
    near = numpy.where(x < 0.1, 1 / distance, 1) * slope
    eps = numpy.finfo(dtype).eps
    error = abs(found - expected)[finite] / numpy.maximum(abs(expected[finite]), 1)
    assert (error < 60 * eps * near[finite] * numpy.maximum(1, abs(x[finite]))).all()


def test_gradients_of_special_functions() -> None:
    x = numpy.linspace(0.3, 4.2, 12)
    check(npx.gamma, special.gamma, [x])
    check(npx.gammaln, special.gammaln, [x])
    check(npx.digamma, special.digamma, [x])
    check(npx.gammaln, special.gammaln, [-x - 0.05])
    check(npx.erfinv, special.erfinv, [drawn(3, 5) / 2.2])


def test_the_ends_of_special_functions() -> None:
    inf, nan = numpy.inf, numpy.nan
    for name, points, ends in (
        ("gammaln", [0.0, -2.0, inf], [inf, inf, inf]),
        ("gamma", [0.0, -2.0, inf], [nan, nan, inf]),
        ("digamma", [0.0, -2.0], [nan, nan]),
        ("erfinv", [1.0, -1.0, 2.0, 0.0], [inf, -inf, nan, 0.0]),
    ):
        numpy.testing.assert_array_equal(getattr(npx, name)(np.array(points)).asnumpy(), ends)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_erfinv(dtype: str) -> None:
    x = numpy.concatenate([numpy.linspace(-0.99999, 0.99999, 501), [1e-20, 1 - 2e-7]]).astype(dtype)
    found = npx.erfinv(np.array(x, dtype=dtype)).asnumpy()
    near = 1e-6 if dtype == "float32" else 2e-15
    numpy.testing.assert_allclose(found, special.erfinv(x.astype("float64")), rtol=near)


# --- activations ------------------------------------------------------------------------------

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: numpy.maximum(x, 0),
    "sigmoid": special.expit,
    "tanh": numpy.tanh,
    "softrelu": lambda x: numpy.log1p(numpy.exp(x)),
    "softsign": lambda x: x / (1 + abs(x)),
    "log_sigmoid": lambda x: numpy.log(special.expit(x)),
    "mish": lambda x: x * numpy.tanh(numpy.log1p(numpy.exp(x))),
    "hard_sigmoid": lambda x: numpy.clip(0.2 * x + 0.5, 0, 1),
    "gelu": lambda x: x * 0.5 * (1 + special.erf(x / numpy.sqrt(2))),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    check(lambda x: npx.activation(x, name), ACTIVATIONS[name], [drawn(4, 5) * 2])


def test_activations_far_out() -> None:
    x = np.array([-200.0, 200.0])
    assert npx.log_sigmoid(x).tolist() == [-200, 0]
    assert npx.mish(x).tolist() == [0, 200]
    assert npx.hard_sigmoid(x, alpha=0.1, beta=0.2).tolist() == [0, 1]


def test_rrelu() -> None:
    x = np.array(-numpy.ones((50, 40)))
    fixed = npx.leaky_relu(x, act_type="rrelu", lower_bound=0.2, upper_bound=0.4)
    numpy.testing.assert_allclose(fixed.asnumpy(), -0.3, rtol=1e-6)
    x.attach_grad()
    np.random.seed(3)
    with autograd.record():
        y = npx.leaky_relu(x, act_type="rrelu", lower_bound=0.2, upper_bound=0.4)
    y.backward()
    slopes = -y.asnumpy()
    assert slopes.min() >= 0.2 and slopes.max() < 0.4 and len(numpy.unique(slopes)) > 1000
    numpy.testing.assert_allclose(x.grad.asnumpy(), slopes)
    assert npx.leaky_relu(np.ones(2), act_type="rrelu").tolist() == [1, 1]


# --- softmax ----------------------------------------------------------------------------------


def shortened(x: Array, lengths: Array) -> Array:
    found = numpy.zeros_like(x)
    for row in numpy.ndindex(*lengths.shape):
        n = lengths[row]
        if n:
            found[row][:n] = softmax(x[row][:n])
    return found


def test_softmax_up_to_a_length() -> None:
    x, lengths = drawn(2, 3, 4), numpy.array([[1, 4, 0], [2, 3, 4]])

    def call(x: Any) -> Any:
        return npx.softmax(x, length=np.array(lengths), use_length=True, temperature=0.5)

    check(call, lambda x: shortened(x / 0.5, lengths), [x])
    check(
        lambda x: npx.softmax(x, axis=1, length=np.array(lengths), use_length=True),
        lambda x: shortened(x.swapaxes(1, 2), lengths).swapaxes(1, 2),
        [x.swapaxes(1, 2).copy()],
    )
    found = npx.log_softmax(np.array(x), length=np.array(lengths), use_length=True).asnumpy()
    with numpy.errstate(divide="ignore"):
        numpy.testing.assert_allclose(found, numpy.log(shortened(x, lengths)), atol=1e-5)
    with pytest.raises(ShapeError, match="one for each row"):
        npx.softmax(np.array(x), length=np.ones(3), use_length=True)
    with pytest.raises(ShapeError, match="length None"):
        npx.softmax(np.array(x), use_length=True)


def test_softmin_and_dtypes() -> None:
    check(npx.softmin, lambda x: softmax(-x), [drawn(3, 4)])
    x = np.array(drawn(3, 4))
    assert npx.softmax(x, dtype="float64").dtype == "float64"
    assert npx.log_softmax(x, dtype="float16").dtype == "float16"


# --- norms ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_keeps_its_dtype(dtype: str, training: bool) -> None:
    x = np.array(drawn(2, 3, 4), dtype=dtype)
    wide = "float64" if dtype == "float64" else "float32"
    for kept in (dtype, wide):
        ones, zeros = np.ones(3, dtype=kept), np.zeros(3, dtype=kept)
        scope = autograd.train_mode() if training else autograd.predict_mode()
        with scope:
            assert npx.batch_norm(x, ones, zeros, zeros.copy(), ones.copy()).dtype == dtype


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("axis", [1, -1])
def test_batch_norm_of_running_statistics(fixed: bool, axis: int) -> None:
    x, shape = drawn(2, 3, 4, 3), [1, 3, 1, 1] if axis == 1 else [1, 1, 1, 3]
    gamma, beta, mean, var = drawn(3), drawn(3, seed=1), drawn(3, seed=2), drawn(3, seed=3) + 3

    def call(x: Any, g: Any, b: Any) -> Any:
        options = {"eps": 0.1, "axis": axis, "fix_gamma": fixed, "use_global_stats": True}
        return npx.batch_norm(x, g, b, np.array(mean), np.array(var), **options)

    def slow(x: Array, g: Array, b: Array) -> Array:
        centred = (x - mean.astype("float32").reshape(shape)) / numpy.sqrt(
            var.astype("float32").reshape(shape) + 0.1
        )
        return centred * (1 if fixed else g.reshape(shape)) + b.reshape(shape)

    inputs = [np.array(v, dtype="float64") for v in (x, gamma, beta)]
    for function in (call, gemel.compile(call)):
        found = function(*inputs).asnumpy()
        numpy.testing.assert_allclose(found, slow(x, gamma, beta), rtol=1e-5, atol=1e-6)


def test_batch_norm_gives_its_statistics() -> None:
    x = drawn(4, 3, 5)
    mean, var = drawn(3), drawn(3, seed=1) + 3
    arrays = [np.array(v) for v in (x, numpy.ones(3), numpy.zeros(3), mean, var)]
    with autograd.train_mode():
        _, m, i = npx.batch_norm(*arrays, eps=0.1, output_mean_var=True, momentum=0.5)
    numpy.testing.assert_allclose(m.asnumpy(), x.mean((0, 2)), atol=1e-6)
    numpy.testing.assert_allclose(i.asnumpy(), 1 / numpy.sqrt(x.var((0, 2)) + 0.1), rtol=1e-5)
    numpy.testing.assert_allclose(arrays[3].asnumpy(), (mean + x.mean((0, 2))) / 2, atol=1e-6)
    _, m, i = npx.batch_norm(*arrays, eps=0.1, output_mean_var=True)
    assert m.tolist() == arrays[3].tolist()
    numpy.testing.assert_allclose(i.asnumpy(), (arrays[4].asnumpy() + 0.1) ** -0.5, rtol=1e-6)


def test_norm() -> None:
    x = drawn(2, 3, 4)
    check(npx.norm, lambda x: numpy.sqrt((x * x).sum()), [x])
    check(lambda x: npx.norm(x, ord=1, axis=(0, 2), keepdims=True),
          lambda x: abs(x).sum((0, 2), keepdims=True), [x])  # fmt: skip
    assert npx.norm(np.array(x), out_dtype="float64").dtype == "float64"
    with pytest.raises(UnknownNameError, match="ord of norm"):
        npx.norm(np.array(x), ord=3)


def test_group_norm_gives_its_statistics() -> None:
    x = drawn(2, 6, 3)
    _, mean, deviation = npx.group_norm(
        np.array(x), np.ones(6), np.zeros(6), num_groups=3, eps=0.1, output_mean_var=True
    )
    parts = x.reshape(2, 3, 6)
    numpy.testing.assert_allclose(mean.asnumpy(), parts.mean(-1), atol=1e-6)
    numpy.testing.assert_allclose(deviation.asnumpy(), (parts.var(-1) + 0.1) ** 0.5, rtol=1e-5)


# --- elements by position ---------------------------------------------------------------------


def test_pick() -> None:
    x, index = drawn(3, 4), numpy.array([1, -5, 9])
    for mode, places in (("clip", [1, 0, 3]), ("wrap", [1, 3, 1])):
        for keep in (False, True):
            check(
                lambda v, mode=mode, keep=keep: npx.pick(
                    v, np.array(index), mode=mode, keepdims=keep
                ),
                lambda v, places=places, keep=keep: v[range(3), places].reshape(
                    (3, 1) if keep else (3,)
                ),
                [x],
            )
    assert npx.pick(np.array(x), np.array([[1], [0], [2]])).shape == (3,)
    with pytest.raises(UnknownNameError, match="mode of pick"):
        npx.pick(np.array(x), np.array(index), mode="rise")


def test_taking_and_placing() -> None:
    x = drawn(3, 4)
    check(lambda v: npx.batch_take(v, np.array([1, 0, 3])), lambda v: v[range(3), [1, 0, 3]], [x])

    def scattered(v: Array) -> Array:
        found = numpy.zeros((3, 5, 2))
        for value, i, j in zip(v, [0, 2, 0], [4, 1, 4], strict=True):
            found[i, j] += value
        return found

    check(
        lambda v: npx.scatter_nd(v, np.array([[0, 2, 0], [4, 1, 4]]), (3, 5, 2)),
        scattered,
        [drawn(3, 2)],
    )

    def copied(old: Array, new: Array) -> Array:
        found = old.copy()
        found[[2, 0]] = new
        return found

    check(lambda o, n: npx.index_copy(o, np.array([2, 0]), n), copied, [x, drawn(2, 4, seed=1)])
    with pytest.raises(IndexError):
        npx.batch_take(np.array(x), np.array([1, 0, 4])).asnumpy()


def test_shapes_like_others() -> None:
    check(
        npx.broadcast_like,
        lambda a, b: numpy.broadcast_to(a, b.shape) + 0 * b,
        [drawn(3, 1), drawn(2, 3, 4)],
    )
    wide = npx.broadcast_like(
        np.ones((1, 2, 1)), np.ones((5, 7)), lhs_axes=(0, -1), rhs_axes=(1, 0)
    )
    assert wide.shape == (7, 2, 5)
    check(lambda x: npx.slice_axis(x, 1, 1, -1), lambda x: x[:, 1:-1], [drawn(3, 5)])
    check(lambda x: npx.slice_axis(x, -1, 2, None), lambda x: x[:, 2:], [drawn(3, 5)])
    check(lambda x: npx.slice_like(x, np.zeros((2, 3))), lambda x: x[:2, :3], [drawn(3, 5)])
    check(
        lambda x: npx.slice_like(x, np.zeros((2, 3)), axes=(-1,)), lambda x: x[:, :3], [drawn(3, 5)]
    )
    with pytest.raises(ShapeError, match="is smaller than"):
        npx.slice_like(np.zeros((1, 2)), np.zeros((2, 2)))


def test_nonzero_and_checks() -> None:
    assert npx.nonzero(np.array([[1, 0], [0, 2]])).tolist() == [[0, 0], [1, 1]]
    assert npx.nonzero(np.zeros(3)).shape == (0, 1)
    assert npx.constraint_check(np.array([True, True])).tolist() is True
    for check_ in (npx.constraint_check, gemel.compile(npx.constraint_check)):
        with pytest.raises(ValueError, match="Constraint violated"):
            check_(np.array([True, False])).asnumpy()
    program = gemel.compile(lambda x: x * npx.constraint_check(x > 0, "x must be above 0"))
    assert program(np.array([1.0, 2.0])).tolist() == [1, 2]
    with pytest.raises(ValueError, match="x must be above 0"):
        program(np.array([1.0, -2.0])).asnumpy()
    with pytest.raises(DTypeError, match="must be bool"):
        npx.constraint_check(np.array([1.0]))


# --- attention over interleaved projections ---------------------------------------------------


def heads_of(x: Array, heads: int, count: int) -> list[Array]:
    """An array (batch, heads, time, size) for each of the `count` interleaved projections."""
    time, batch, width = x.shape
    each = x.reshape(time, batch, heads, count, width // (heads * count))
    return [each[:, :, :, n].transpose(1, 2, 0, 3) for n in range(count)]


def test_interleaved_attention() -> None:
    heads, x = 2, drawn(3, 2, 2 * 3 * 4)

    def scores(x: Array) -> Array:
        q, k, _ = heads_of(x, heads, 3)
        return (q @ k.swapaxes(-1, -2) / 2).reshape(4, 3, 3)

    def values(x: Array, a: Array) -> Array:
        v = heads_of(x, heads, 3)[2]
        return (a.reshape(2, 2, 3, 3) @ v).transpose(2, 0, 1, 3).reshape(3, 2, 8)

    check(lambda x: npx.interleaved_matmul_selfatt_qk(x, heads), scores, [x])
    check(lambda x, a: npx.interleaved_matmul_selfatt_valatt(x, a, heads), values,
          [x, drawn(4, 3, 3)])  # fmt: skip
    q, kv = drawn(3, 2, 8), drawn(5, 2, 16, seed=1)

    def cross(q: Array, kv: Array) -> Array:
        k, _ = heads_of(kv, heads, 2)
        return (heads_of(q, heads, 1)[0] @ k.swapaxes(-1, -2) / 2).reshape(4, 3, 5)

    def gathered(kv: Array, a: Array) -> Array:
        v = heads_of(kv, heads, 2)[1]
        return (a.reshape(2, 2, 3, 5) @ v).transpose(2, 0, 1, 3).reshape(3, 2, 8)

    check(lambda q, kv: npx.interleaved_matmul_encdec_qk(q, kv, heads), cross, [q, kv])
    check(lambda kv, a: npx.interleaved_matmul_encdec_valatt(kv, a, heads), gathered,
          [kv, drawn(4, 3, 5)])  # fmt: skip
    with pytest.raises(ShapeError, match="5 heads"):
        npx.interleaved_matmul_selfatt_qk(np.array(x), 5)


# --- pooling and dropout ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["max", "avg", "sum"])
def test_pooling_that_keeps_the_size(kind: str) -> None:
    """There are ceil(size / stride) windows; the last one may be cut short."""

    def slow(x: Array) -> Array:
        rows = []
        for begin in range(0, x.shape[2], 2):
            window = x[:, :, begin : begin + 3]
            total = {"max": window.max(2), "sum": window.sum(2), "avg": window.sum(2) / 3}[kind]
            rows.append(total if kind != "avg" or window.shape[2] == 3 else window.mean(2))
        return numpy.stack(rows, axis=2)

    for size in (4, 5, 7):
        x = drawn(2, 2, size)
        check(
            lambda v: npx.pooling(v, kernel=3, stride=2, pool_type=kind, pooling_convention="same"),
            slow,
            [x],
        )


def test_dropout_modes() -> None:
    x = np.ones((200,))
    assert npx.dropout(x, mode="training", cudnn_off=True).tolist() == x.tolist()
    assert 40 < (npx.dropout(x, p=0.5, mode="always") == 0).sum().item() < 160
    with pytest.raises(UnknownNameError, match="mode of dropout"):
        npx.dropout(x, mode="never")


#: Calls with arrays that an operation cannot work with, by the name in the error.
ONE, ROW = numpy.ones((2, 3), "float32"), numpy.ones(3, "float32")
WRONG: dict[str, Callable[[], Any]] = {
    "batch_dot": lambda: npx.batch_dot(np.ones(3), ROW.tolist()),
    "convolution": lambda: npx.convolution(np.array(ONE), ONE.tolist()),
    "deconvolution": lambda: npx.deconvolution(1.0, ONE),
    "deformable_convolution": lambda: npx.deformable_convolution(ONE, ONE, ONE, num_group=0),
    "pooling": lambda: npx.pooling(ROW.tolist()),
    "attention": lambda: npx.attention(np.ones(()), ONE, ROW),
    "interleaved_matmul_selfatt_qk": lambda: npx.interleaved_matmul_selfatt_qk(ROW.tolist(), 1),
    "interleaved_matmul_encdec_qk": lambda: npx.interleaved_matmul_encdec_qk(ONE, ONE, 2),
    "interleaved_matmul_encdec_valatt": lambda: npx.interleaved_matmul_encdec_valatt(
        np.ones((2, 2, 4)), ROW, 2
    ),
    "interleaved_matmul_selfatt_valatt": lambda: npx.interleaved_matmul_selfatt_valatt(
        np.ones((2, 2, 6)), ROW, 0
    ),
    "index_update": lambda: npx.index_update(np.ones((2, 2)), np.array([[5]]), 1.0).asnumpy(),
    "rnn": lambda: npx.rnn(np.ones((2, 1, 3)), ROW, np.ones(()), mode="rnn_tanh"),
    "arange_like": lambda: npx.arange_like(ROW.tolist(), repeat=0),
    "slice_like": lambda: npx.slice_like(np.ones((2, 3)), np.ones(2), axes=(1,)),
    "broadcast_like": lambda: npx.broadcast_like(ONE, ONE, lhs_axes=(0, 1), rhs_axes=(0,)),
    "group_norm": lambda: npx.group_norm(np.ones(2), ONE, np.array([1j, 2])),
    "instance_norm": lambda: npx.instance_norm(np.ones(3), 1j, ONE),
    "softmax": lambda: npx.softmax(np.array([1j, 2]), axis=5),
    "masked_log_softmax": lambda: npx.masked_log_softmax(ROW, np.ones((2, 2))),
    "multibox_detection": lambda: npx.multibox_detection(ONE, ONE, ONE),
    "multibox_prior": lambda: npx.multibox_prior(np.ones((1, 1, 2, 2)), ratios=(0,)),
    "box_decode": lambda: npx.box_decode(np.ones(3), np.ones(4)),
    "box_nms": lambda: npx.box_nms(np.ones((3, 4)), coord_start=-2),
    "roi_pooling": lambda: npx.roi_pooling(np.ones((1, 1, 2, 2)), np.ones((1, 5)), (1, 2, 3), 1.0),
    "sldwin_atten_score": lambda: npx.sldwin_atten_score(ONE, ONE, ROW, 1),
    "sldwin_atten_context": lambda: npx.sldwin_atten_context(ONE, ONE, ROW, 1),
}


@pytest.mark.parametrize("name", WRONG)
def test_arrays_of_wrong_shapes_are_named(name: str) -> None:
    named = "assign" if name == "index_update" else name
    with pytest.raises(GemelError, match=named):
        WRONG[name]()


def test_windows_in_arrays() -> None:
    x = np.ones((1, 1, 4, 4))
    with pytest.raises(ShapeError, match=r"pooling: kernel .* must be whole"):
        npx.pooling(x, kernel=np.array([2, 2]))
    assert npx.pooling(x, kernel=numpy.array([2, 2]), stride=numpy.array([2, 2])).shape[2:] == (
        2,
        2,
    )


@pytest.mark.parametrize(
    ("call", "given"),
    [
        (npx.batch_dot, (numpy.ones((2, 1, 3)), numpy.ones((2, 3, 2)))),
        (npx.attention, (numpy.eye(2), numpy.eye(2), numpy.eye(2))),
        (npx.pooling, (numpy.arange(16.0).reshape(1, 1, 4, 4), (2, 2))),
        (npx.convolution, (numpy.ones((1, 1, 3, 3)), numpy.ones((1, 1, 2, 2)))),
        (npx.layer_norm, (numpy.eye(2), numpy.ones(2), numpy.zeros(2))),
        (npx.index_copy, (numpy.zeros((3, 2)), numpy.array([2, 0]), numpy.ones((2, 2)))),
        (npx.slice_axis, (numpy.eye(2), 1, 0, 1)),
        (npx.arange_like, (numpy.eye(2),)),
    ],
)
def test_lists_are_arrays(call: Any, given: Any) -> None:
    def converted(make: Any) -> list[Any]:
        return [make(each) if isinstance(each, numpy.ndarray) else each for each in given]

    def narrow(each: Any) -> Any:
        return np.array(each.astype("float32" if each.dtype.kind == "f" else "int64"))

    found, want = call(*converted(lambda each: each.tolist())), call(*converted(narrow))
    numpy.testing.assert_allclose(found.asnumpy(), want.asnumpy())


def test_attention_without_features() -> None:
    found = npx.attention(np.ones((2, 0)), np.ones((3, 0)), np.arange(6.0).reshape(3, 2))
    numpy.testing.assert_allclose(found.asnumpy(), [[2.0, 3.0], [2.0, 3.0]], rtol=1e-6)


def test_mxnets_names_of_arguments() -> None:
    """Those of MXNet 1 and 2 where they differ from gemel's."""
    x, w, ones = np.arange(6.0).reshape(2, 3), np.ones((2, 3)), np.ones(3)
    same = [
        (
            npx.fully_connected(data=x, weight=w, num_hidden=2, no_bias=True),
            npx.fully_connected(x, w),
        ),
        (
            npx.batch_dot(lhs=x[None], rhs=w[None], transpose_b=True),
            npx.batch_dot(x[None], w[None], False, True),
        ),
        (
            npx.batch_norm(data=x, gamma=ones, beta=ones, moving_mean=ones, moving_var=ones),
            npx.batch_norm(x, ones, ones, ones, ones),
        ),
    ]
    places, values = np.array([[0, 1], [2, 2]]), np.ones(2)
    for function in (npx.index_add, npx.index_update):
        same.append((function(a=x, ind=places, val=values), function(x, places, values)))
    assert all(a.tolist() == b.tolist() for a, b in same)
    with pytest.raises(OperandError, match="x and data are the same argument"):
        npx.fully_connected(x=x, data=x, weight=w)
    with pytest.raises(TypeError, match="weigth"):
        npx.fully_connected(data=x, weigth=w)
