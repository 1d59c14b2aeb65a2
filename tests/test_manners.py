"""MXNet's behaviour where it differs from NumPy's, and NumPy's everyday array methods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, nd, np, npx
from gemel.errors import DeviceError, DTypeError, GradientError, OperandError, ShapeError


@pytest.fixture
def mxnet() -> Iterator[None]:
    npx.set_np()
    yield
    npx.reset_np()


@pytest.fixture
def numpys() -> Iterator[None]:
    npx.set_np(dtype=True)
    yield
    npx.reset_np()


# --- after set_np ---------------------------------------------------------------------------


@pytest.mark.usefixtures("mxnet")
def test_lists_and_floating_arrays_are_positions() -> None:
    x = np.arange(12).reshape(3, 4)
    assert x.dtype == "float32"
    for way in (
        lambda v: v[[0, 2]], lambda v: v[np.array([0, 2])], lambda v: v[:, [1, 0]],
        lambda v: v[np.array([0, 2]), np.array([1, 3])], lambda v: np.take(v, np.array([0, 2]), 0),
        lambda v: v.take([0, 2], axis=0), lambda v: np.take_along_axis(v, v[:, :1] * 0, 1),
        lambda v: v[v[0, 1:2]],
    ):  # fmt: skip
        expected = way(x)
        assert gemel.compile(way)(x).tolist() == expected.tolist()
    assert x[[0, 2]].tolist() == x.asnumpy()[[0, 2]].tolist()
    assert x[np.array([0, 2]), np.array([1, 3])].tolist() == [1, 11]
    x[np.array([1.0])] = 7
    assert x[1].tolist() == [7] * 4
    x[[0, 2], [0, 0]] = np.array([5, 6])
    assert x[:, 0].tolist() == [5, 7, 6]
    with pytest.raises(IndexError):
        x[np.array([3.0])].wait_to_read()


@pytest.mark.usefixtures("mxnet")
def test_positions_of_functions_may_be_floating() -> None:
    x, one = np.arange(4), np.array([1])
    assert np.delete(x, one).tolist() == [0, 2, 3]
    assert np.insert(x, one, 9).tolist() == [0, 9, 1, 2, 3]
    assert np.repeat(x[:2], np.array([1, 2])).tolist() == [0, 1, 1]
    for places in ([0, 2], np.array([0, 2])):
        assert np.choose(places, [x[:2], x[2:], x[1:3]]).tolist() == [0, 2]
        assert np.add.reduceat(x, places).tolist() == [1, 5]
        assert np.ravel_multi_index((places, places), (3, 4)).tolist() == [0, 10]
        assert np.bincount(places).tolist() == [1, 0, 1]
        assert np.bincount(places, np.array([0.5, 2])).tolist() == [0.5, 0, 2]
    np.put_along_axis(x, one, 7, 0)
    assert x.tolist() == [0, 7, 2, 3]
    assert [n.tolist() for n in np.unravel_index(one * 3, (2, 2))] == [[1], [1]]
    assert np.array(range(3)).dtype == "float32"
    assert x[range(2),].tolist() == x[[0, 1]].tolist() == [0, 7]


@pytest.mark.usefixtures("mxnet")
@pytest.mark.parametrize("interp", [0, 1, 2, 3, 4])
def test_pictures_are_resized_in_the_same_way(interp: int) -> None:
    picture = numpy.arange(8 * 6 * 3).reshape(8, 6, 3).astype("uint8")
    found = gemel.image.imresize(np.array(picture), 4, 3, interp=interp)
    npx.reset_np()
    assert found.tolist() == gemel.image.imresize(np.array(picture), 4, 3, interp=interp).tolist()


@pytest.mark.usefixtures("mxnet")
def test_attention_within_a_sliding_window() -> None:
    query = np.ones((1, 4, 1, 3))
    score = npx.sldwin_atten_score(query, query, np.array([1]), w=1)
    mask = npx.sldwin_atten_mask_like(score, np.array([1]), np.array([3]), w=1)
    assert mask[0, :, 0].tolist() == [[0, 1, 1], [1, 1, 1], [1, 1, 0], [0, 0, 0]]


@pytest.mark.usefixtures("mxnet")
def test_large_positions_in_lists_are_exact() -> None:
    x = np.zeros((2**24 + 2,), dtype="int8")
    x[2**24 + 1] = 1
    assert x[[2**24 + 1]].item() == 1


def test_without_it_positions_are_integers() -> None:
    with pytest.raises(DTypeError, match="must be integers"):
        np.arange(3)[np.array([0.0])]


@pytest.mark.usefixtures("numpys")
def test_numpys_default_dtypes() -> None:
    assert npx.is_np_default_dtype()
    for made in (
        np.array([1.5]), np.array(1.5), np.zeros(2), np.ones((2, 2)), np.empty(1), np.eye(2),
        np.linspace(0, 1, 3), np.arange(0.0, 2.0), np.identity(2), np.logspace(0, 1, 3),
        np.full((2,), 1.5), np.random.uniform(size=2), np.random.normal(size=2), np.array([]),
        np.random.rand(2), np.random.gamma(2.0, size=3), np.random.dirichlet([1.0, 2.0]),
    ):  # fmt: skip
        assert made.dtype == "float64"
    for made in (np.array([1, 2]), np.arange(3), np.array(1), np.full((2,), 3)):
        assert made.dtype == "int64"


#: Functions of integers whose results are fractional.
OF_INTEGERS = {
    "sqrt": np.sqrt, "exp": np.exp, "atan2": lambda x: np.atan2(x, x), "divide": lambda x: x / 2,
    "times": lambda x: x * 0.5, "power": lambda x: x**-0.5, "mean": np.mean, "std": np.std,
    "norm": np.linalg.norm, "inv": np.linalg.inv, "quantile": lambda x: np.quantile(x, 0.3),
    "average": np.average, "trapezoid": np.trapezoid, "i0": np.i0, "softmax": npx.softmax,
    "cov": np.cov, "number": lambda x: np.sqrt(2) + x, "where": lambda x: np.where(x > 1, 0.5, x),
    "edges": lambda x: np.histogram(x, 3)[1], "diff": lambda x: np.diff(x, prepend=0.5),
    "average2": lambda x: (x + x.mean()).sum(), "log": lambda x: x.astype("int8").log(),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_INTEGERS)
def test_functions_of_integers_follow_the_mode(name: str) -> None:
    function, x = OF_INTEGERS[name], np.array([[4, 1], [2, 7]])
    compiled = gemel.compile(function)
    for dtype, mode in (("float32", False), ("float64", True), ("float32", False)):
        npx.set_np(dtype=mode)
        try:
            found = [function(x), compiled(x), compiled(x)]
            exact = function(x.astype("float64")).tolist()
        finally:
            npx.reset_np()
        for each in found:
            assert each.dtype == dtype
            assert numpy.allclose(each.tolist(), exact, 1e-14 if mode else 1e-5, 1e-14)


@pytest.mark.usefixtures("numpys")
def test_floating_arrays_keep_their_dtype_beside_numbers() -> None:
    for dtype in ("float16", "bfloat16", "float32"):
        x = np.ones((3,), dtype=dtype)
        for way in (
            lambda x: x * 0.5, lambda x: np.where(x > 2, 0.5, x), np.mean, npx.softmax, np.exp2,
            lambda x: x + np.arange(3), lambda x: np.clip(x, 0.5, 0.7),
        ):  # fmt: skip
            assert (way(x).dtype, gemel.compile(way)(x).dtype) == (dtype, dtype)
    assert (x.astype(float).dtype, x.astype("float").dtype) == ("float64", "float64")
    info = np.__array_namespace_info__().default_dtypes()
    assert (info["real floating"], info["complex floating"]) == ("float64", "complex128")
    assert np.fft.fft(np.array([1, 2])).dtype == "complex128"
    for made in (np.hanning(4), np.tri(3), np.fft.fftfreq(4), np.sqrt(2), np.add(1.5, 2)):
        assert made.dtype == "float64"


def test_modes_end() -> None:
    npx.set_np(dtype=True)
    npx.reset_np()
    assert (np.array([1.5]).dtype, np.array([1]).dtype) == ("float32", "int64")
    assert not npx.is_np_default_dtype()
    assert not npx.is_np_array()
    assert not npx.is_np_shape()
    npx.set_np(array=False)
    assert npx.is_np_shape() and not npx.is_np_array()
    assert gemel.util.set_np_shape(False)
    assert not gemel.util.set_np_shape(True)
    with gemel.util.np_array(), gemel.util.np_shape(False):
        assert npx.is_np_array() and not npx.is_np_shape()
    assert npx.is_np_shape() and not npx.is_np_array()
    with gemel.util.np_default_dtype():
        assert npx.is_np_array()
    assert not npx.is_np_array()
    npx.set_np()
    assert npx.is_np_array() and npx.is_np_shape()
    npx.reset_np()

    @npx.use_np
    class Net: ...

    assert isinstance(Net(), Net)


# --- assignment and dtypes ------------------------------------------------------------------


def test_values_may_have_more_axes_of_length_one() -> None:
    def written(a: Any, value: Any) -> Any:
        a = a.copy()
        a[0, 0] = value
        a[1] = np.reshape(value, (1, 1, 1))
        a[np.array([1]), np.array([1])] = value * 2
        return a

    a, value = np.zeros((2, 2)), np.ones((1, 1))
    expected = [[1, 0], [1, 2]]
    assert written(a, value).tolist() == expected
    assert gemel.compile(written)(a, value).tolist() == expected
    with autograd.record():
        value.attach_grad()
        total = (written(a, value) * np.array([[1.0, 1.0], [2.0, 3.0]])).sum()
    total.backward()
    assert value.grad.tolist() == [[1 + 2 + 6]]
    with pytest.raises(ShapeError, match="does not broadcast"):
        a[0, 0] = np.ones((1, 2))


def test_dtypes_read_text_as_numpys_do() -> None:
    assert np.float32("1.5").item() == 1.5
    assert np.int32("7").item() == 7
    with pytest.raises(ValueError, match="abc"):
        np.float32("abc")


def test_refusals_give_the_reason() -> None:
    with pytest.raises(GradientError, match=r"int32.*not have a floating dtype"):
        np.zeros(3, "int32").attach_grad()
    with pytest.raises(ValueError, match="stype"):
        np.zeros(3).attach_grad(stype="csr")
    with pytest.raises(DeviceError, match="'x' is not a device"):
        np.from_numpy(numpy.ones(2), "x")
    for wrong in (None, 3, "ab"):
        for join in (np.stack, np.concatenate, np.vstack, np.hstack):
            with pytest.raises(TypeError, match=r"must be a list|is not an array"):
                join(wrong)
    for call in (np.squeeze, np.sum, npx.softmax, npx.batch_flatten):
        for value in (None, "text"):
            with pytest.raises(TypeError, match="is not an array, number or list of numbers"):
                call(value)
    with pytest.raises(TypeError, match="is not an array"):
        npx.fully_connected(None, None, num_hidden=2)


@pytest.mark.parametrize("name", ["np.exp", "np.add", "npx.relu", "npx.softmax", "npx.pick",
    "npx.batch_flatten", "nd.exp", "nd.sum", "nd.LRN", "nd.SoftmaxOutput", "nd.topk",
    "nd.broadcast_add", "nd.L2Normalization"])  # fmt: skip
def test_operands_of_another_kind_name_the_function(name: str) -> None:
    module, own = name.split(".")
    function = getattr({"np": np, "npx": npx, "nd": nd}[module], own)
    others = [np.ones((2, 2))] * (own in ("add", "pick", "broadcast_add"))
    settings = {"nsize": 3} if own == "LRN" else {}
    with pytest.raises(OperandError, match=rf"^{own}: str 'text' is not an array"):
        function("text", *others, **settings)


@pytest.mark.parametrize("name", [
    "sum", "mean", "squeeze", "sort", "cumsum", "flip", "transpose", "median", "unique", "diff",
    "ravel", "argmax", "var", "exp", "tril", "trace", "atleast_3d", "isnan",
])  # fmt: skip
def test_functions_take_lists(name: str) -> None:
    given = [[3.0, 1.0], [2.0, 5.0]]
    found = getattr(np, name)(given)
    numpy.testing.assert_allclose(found.asnumpy(), getattr(numpy, name)(given), rtol=1e-6)


# --- traces ---------------------------------------------------------------------------------


def test_symbols_say_where_they_are() -> None:
    def forward(x: Any) -> Any:
        assert x.ctx == x.context == x.device == gemel.cpu()
        return np.ones(x.shape, ctx=x.ctx) + x.as_in_ctx(x.device)

    assert gemel.compile(forward)(np.ones((2, 2))).tolist() == [[2, 2], [2, 2]]


# --- shapes ---------------------------------------------------------------------------------

CODES: list[tuple[Any, Any, bool, Any]] = [
    ((2, 3, 8), (-2, -2, 2, -1), False, (2, 3, 2, 4)),
    ((8, 3, 3, 3, 4, 4), (-6, 2, -1, -4), False, (2, 4, 3, 3, 3, 4, 4)),
    ((8, 3, 3, 3, 4, 4), (-5, -4), False, (24, 3, 3, 4, 4)),
    ((8, 3, 3, 3, 8), (-4, -1, 2, -6), True, (8, 3, 3, 3, 4, 2)),
    ((1, 1, 3), (-3, -3, -1), False, (3,)),
    ((8, 3, 3, 3, 4, 4), (-4, -5), True, (8, 3, 3, 3, 16)),
    ((2, 3, 4), (-1,), False, (24,)),
    ((2, 3, 4), (4, -1), False, (4, 6)),
    ((10, 5, 4), (-1, 0), False, None),
    ((2, 6), (-2, -1, 3, -6), True, (2, 2, 3)),
    ((0, 3), (-2, 3), False, (0, 3)),
    ((0, 4, 9), (-2, -1, 2, 9), False, (0, 2, 2, 9)),
    ((0, 1, 6), (-2, -1), False, (0, 6)),
    ((6, 2, 0), (-1, -2), True, (12, 0)),
    ((0, 6), (-2, 4, -1), False, None),
    ((2, 3), (-3, -1), False, None),
    ((2, 3), (-7,), False, None),
    ((2, 3), (-2, -2, -2), False, None),
    ((2, 7), (-2, -6, 2, -1), False, None),
]


@pytest.mark.parametrize(("shape", "codes", "reverse", "expected"), CODES)
def test_codes_of_reshape(shape: Any, codes: Any, reverse: bool, expected: Any) -> None:
    x = np.arange(int(numpy.prod(shape))).reshape(shape)
    if expected is None:
        with pytest.raises(ShapeError):
            npx.reshape(x, codes, reverse)
        return
    found = npx.reshape(x, codes, reverse)
    assert found.shape == expected
    assert found.ravel().tolist() == x.ravel().tolist()


def test_codes_follow_other_sizes_in_a_program() -> None:
    compiled = gemel.compile(lambda x: (npx.reshape(x, (-5, -1)), npx.shape_array(x)))
    for batch in (2, 5):
        merged, shape = compiled(np.ones((batch, 3, 4)))
        assert merged.shape == (3 * batch, 4)
        assert shape.tolist() == [batch, 3, 4]


def test_slices_as_mxnet_says_them() -> None:
    x = np.arange(24).reshape(2, 3, 4)
    plain = x.asnumpy()
    assert npx.slice(x, (0, 1), (None, 3)).tolist() == plain[0:, 1:3].tolist()
    assert npx.slice(x, (None, -1), (None, None), (-1, -2)).tolist() == plain[::-1, -1::-2].tolist()
    with pytest.raises(ShapeError, match="must have the same length"):
        npx.slice(x, (0, 1), (1,))


# --- methods --------------------------------------------------------------------------------


def test_elements_one_by_one() -> None:
    x = np.arange(6.0).reshape(2, 3)
    assert [x.item(4), x.item(1, 0), x.item((0, 2)), x.item(-1)] == [4, 3, 2, 5]
    x.itemset((0, 1), 9)
    x.itemset(5, 7)
    assert x.tolist() == [[0, 9, 2], [3, 4, 7]]
    assert np.array([[3]]).item() == 3
    for wrong in ((6,), (2, 0), (0, 0, 0)):
        with pytest.raises(IndexError if len(wrong) < 3 else ShapeError):
            x.item(*wrong)
    with pytest.raises(ValueError, match="one element"):
        x.item()


def test_flat_reads_and_writes() -> None:
    x = np.arange(6.0).reshape(2, 3)
    for each in (x, x.T, x[:, ::-1]):
        each.flat[1] = 9
        assert each.flat[1].item() == 9
        assert [float(n) for n in each.flat] == each.asnumpy().ravel().tolist()
        assert len(each.flat) == 6
    x.flat = [1, 2, 3, 4, 5, 6]
    x.T.flat[2:4] = 0
    assert x.tolist() == [[1, 0, 3], [4, 0, 6]]


def test_methods_that_write() -> None:
    x = np.array([3.0, 1.0, 2.0])
    x.partition(1)
    assert x.tolist() == [1, 2, 3]
    x.fill(4)
    assert x.tolist() == [4, 4, 4]
    x.put([0, -1], [7, 8])
    assert x.tolist() == [7, 4, 8]
    assert x.compress([True, False, True]).tolist() == [7, 8]
    x.attach_grad()
    x.drop_grad()
    assert x.grad is None


def test_memory_as_numpy_names_it() -> None:
    x = np.arange(6, dtype="int16").reshape(2, 3)
    assert x.tobytes() == x.asnumpy().tobytes()
    assert x.tobytes("F") == x.asnumpy().tobytes("F")
    for y in (x, x.T, x[:, 1], x[:1], np.zeros((0, 2)), np.ones(())):
        theirs = numpy.lib.stride_tricks.as_strided(numpy.zeros(6, y.dtype), y.shape, y.strides)
        assert y.flags.c_contiguous == theirs.flags.c_contiguous
        assert y.flags["F_CONTIGUOUS"] == y.flags["F"] == theirs.flags.f_contiguous
        assert y.flags["WRITEABLE"]
    assert (x.flags.f_contiguous, x.T.flags.f_contiguous) == (False, True)
    n = x.asnumpy()
    for ours, same in ((x, n), (x.T, n.T), (x[:, 1], n[:, 1]), (x[::-1, ::2], n[::-1, ::2])):
        assert ours.strides == same.strides, "strides are in bytes"


def test_tofile(tmp_path: Any) -> None:
    np.arange(3, dtype="int32").tofile(tmp_path / "raw")
    assert numpy.fromfile(tmp_path / "raw", "int32").tolist() == [0, 1, 2]


def test_clip_takes_both_names() -> None:
    x = np.arange(5.0)
    for found in (x.clip(1, 3), x.clip(min=1, max=3), x.clip(a_min=1, a_max=3), np.clip(x, 1, 3)):
        assert found.tolist() == [1, 1, 2, 3, 3]
    with pytest.raises(TypeError, match="given twice"):
        x.clip(1, a_min=1)


def test_choice_among_as_many_as_numpys_integers_say() -> None:
    for count in (numpy.int64(5), numpy.array(5), np.array(5)):
        assert np.random.choice(count, 3).shape == (3,)
