"""MXNet 1's functions as programs call them: their names, devices, `out=`, and random numbers."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy
import pytest

import gemel as mx
from gemel import autograd, cpu, gluon, gpu, nd, np, npx, sym
from gemel import d2l as gemel_d2l
from gemel.errors import DeviceError, GemelError
from gemel.legacy import known
from gemel.legacy.draws import NAMES, PARAMETERS

#: A device that is not the current one.
OTHER = cpu(1)


@pytest.mark.parametrize("module", ["gemel.ndarray", "gemel.symbol"])
def test_no_name_hides_pythons_own(module: str) -> None:
    place = import_module(module)
    for name in {*known(), *dir(np), *dir(npx), "random", "contrib", "linalg"}:
        if not name.startswith("__"):
            assert getattr(place, name) is not None or name == "newaxis"
    assert not {name for name in vars(place) if hasattr(builtins, name) and name[0] != "_"}
    assert np.array([0.5]).tolist() == [0.5] and np.array([[1], [2]]).dtype == "int64"
    x = np.arange(6).reshape(2, 3)
    assert x[:, [0, 2]].tolist() == [[0, 2], [3, 5]] and x[0:1, np.array([0, 1])].size == 2
    x[1:, 0] = 9
    assert repr(nd.array([[1.5], [2]])).endswith("<NDArray 2x1 @cpu(0)>") and str(x)
    assert nd.max(nd.array([1, 3])).asscalar() == 3 and nd.max is nd.max
    symbol = sym.slice(sym.var("x"), begin=(0,), end=(1,))
    assert symbol.eval(x=np.arange(3))[0].tolist() == [0]


# --- where arrays lie -----------------------------------------------------------------------

ZEROS = np.zeros((2, 2), ctx=OTHER)
SHARES = np.array([0.5, 0.5], ctx=OTHER)
DRAWN: dict[str, Any] = {
    "normal": lambda: np.random.normal(ZEROS, 1),
    "uniform": lambda: np.random.uniform(0.0, ZEROS + 1),
    "exponential": lambda: np.random.exponential(ZEROS + 1),
    "laplace": lambda: np.random.laplace(ZEROS, 1),
    "gumbel": lambda: np.random.gumbel(ZEROS, 1),
    "poisson": lambda: np.random.poisson(ZEROS + 1),
    "randint": lambda: np.random.randint(np.array([1], ctx=OTHER), 3),
    "choice": lambda: np.random.choice(2, size=3, p=SHARES),
    "choice without": lambda: np.random.choice(2, size=2, replace=False, p=SHARES),
    "choice of": lambda: np.random.choice(SHARES, size=2),
    "multinomial": lambda: np.random.multinomial(3, SHARES),
    "dirichlet": lambda: np.random.dirichlet(SHARES),
    "vectors": lambda: np.random.multivariate_normal(ZEROS[0], np.eye(2, ctx=OTHER)),
    "permutation": lambda: np.random.permutation(ZEROS),
    "uniform_n": lambda: npx.random.uniform_n(ZEROS, 1.0, batch_shape=(3,)),
    "bernoulli": lambda: npx.random.bernoulli(ZEROS),
    "categorical": lambda: npx.categorical(prob=ZEROS + 0.5),
    "out": lambda: np.random.normal(out=np.zeros((2, 2), ctx=OTHER)),
    "sample": lambda: nd.sample_normal(ZEROS, ZEROS + 1),
    "Normal": lambda: gluon.probability.Normal(ZEROS, 1.0).sample(),
    "Beta": lambda: gluon.probability.Beta(1.0, ZEROS + 1).sample(),
    "Bernoulli": lambda: gluon.probability.Bernoulli(prob=ZEROS).sample_n(3),
    "Categorical": lambda: gluon.probability.Categorical(2, ZEROS + 0.5).sample(),
}


@pytest.mark.parametrize("name", DRAWN)
def test_draws_are_made_where_their_parameters_are(name: str) -> None:
    found = DRAWN[name]()
    assert found.ctx == OTHER and np.isfinite(found).all()


@pytest.mark.parametrize("row", [np.linspace, np.logspace, np.geomspace])
def test_rows_between_arrays_are_made_where_these_are(row: Any) -> None:
    assert row(ZEROS + 1, 2, 4).ctx == row(1, SHARES, 4).ctx == OTHER
    assert row(1, 2, 4, ctx=OTHER).ctx == np.vander(SHARES).ctx == OTHER


IMAGE = np.ones((8, 6, 3), ctx=OTHER)
CHANGED: dict[str, Any] = {
    "flip": lambda: npx.image.random_flip_left_right(IMAGE),
    "resize": lambda: npx.image.resize(data=IMAGE, size=4),
    "crop": lambda: npx.image.random_crop(IMAGE, (0, 1), (0, 1), 4, 9),
    "resized crop": lambda: npx.image.random_resized_crop(IMAGE, 4, 4),
    "brightness": lambda: npx.image.random_brightness(IMAGE, 0.5, 1.5),
    "hue": lambda: npx.image.random_hue(IMAGE, 0.5, 1.5),
    "lighting": lambda: npx.image.random_lighting(IMAGE, 0.1),
    "normalize": lambda: npx.image.normalize(IMAGE.transpose(2, 0, 1), [0.5, 0.4, 0.3], 1.0),
    "upsampling": lambda: npx.upsampling(IMAGE[None], 2),
    "bilinear": lambda: npx.bilinear_resize_2d(IMAGE[None], 4, 4),
}


@pytest.mark.parametrize("name", CHANGED)
def test_images_are_changed_where_they_are(name: str) -> None:
    found = CHANGED[name]()
    assert found.ctx == OTHER and np.isfinite(found).all()


def test_random_slopes_where_the_data_is() -> None:
    with mx.autograd.record():
        found = npx.leaky_relu(ZEROS - 1, act_type="rrelu")
    assert found.ctx == OTHER and -0.334 < found.min() <= found.max() <= -0.125


def test_shuffled_where_it_is() -> None:
    x = np.arange(50).to_device(OTHER)
    np.random.shuffle(x)
    assert x.ctx == OTHER and sorted(x.tolist()) == list(range(50)) != x.tolist()


MADE: dict[str, Any] = {
    "zeros": lambda place: nd.zeros((2, 3), place),
    "ones": lambda place: nd.ones((2, 3), ctx=place),
    "empty": lambda place: nd.empty((2, 3), place, "float16"),
    "full": lambda place: nd.full((2, 3), 7, place),
    "arange": lambda place: nd.arange(3, ctx=place),
    "linspace": lambda place: nd.linspace(0, 1, 3, ctx=place),
    "eye": lambda place: nd.eye(2, ctx=place),
    "normal": lambda place: nd.normal(shape=(2,), ctx=place),
    "uniform": lambda place: nd.uniform(0, 1, shape=(2,), ctx=place),
    "random_gamma": lambda place: nd.random_gamma(shape=(2,), ctx=place),
    "random_randint": lambda place: nd.random_randint(0, 5, shape=(2,), ctx=place),
    "random.normal": lambda place: nd.random.normal(0, 1, (2,), "float32", place),
    "random.poisson": lambda place: mx.random.poisson(1, shape=(2,), ctx=place),
    "states": lambda place: gluon.rnn.LSTM(2).begin_state(1, func=nd.zeros, ctx=place)[0],
}


@pytest.mark.parametrize("name", MADE)
def test_made_on_the_device_that_is_named(name: str) -> None:
    assert MADE[name](OTHER).ctx == OTHER
    with pytest.raises(DeviceError, match="gpu"):
        MADE[name](gpu(7))


def test_settings_by_place() -> None:
    assert nd.zeros((2, 3), OTHER, "float16").dtype == "float16"
    assert nd.ones((2, 3), None, "float16").dtype == "float16"
    assert nd.ones((2, 3), "float16").dtype == "float16"
    assert nd.full((2,), 7, None, "int32").tolist() == [7, 7] == nd.full((2,), val=7).tolist()
    assert nd.zeros_like(nd.ones((2,), OTHER)).ctx == OTHER
    pair = [nd.ones((1, 2)), nd.zeros((1, 2))]
    assert nd.concatenate(pair).shape == (2, 2)
    assert nd.concatenate(pair, axis=1, always_copy=False).shape == (1, 4)
    assert nd.concat(*pair).shape == (1, 4)


def test_sums_and_elements_are_joined() -> None:
    x = nd.array([[1, 2], [3, 4]])
    x.attach_grad()
    with autograd.record():
        joined = nd.concat(x.sum(), x[1, 0], x[0], dim=0)
    joined.backward()
    assert joined.tolist() == [10, 3, 1, 2]
    assert x.grad.tolist() == [[2, 2], [2, 1]]
    assert nd.concatenate([x.max(), nd.array([7])]).tolist() == [4, 7]


def test_parts_in_two_ways() -> None:
    x = np.arange(8).reshape(4, 2)
    assert [part.tolist() for part in nd.split_v2(x, 2)] == [x[:2].tolist(), x[2:].tolist()]
    assert [part.shape for part in nd.split_v2(x, (1, 3))] == [(1, 2), (2, 2), (1, 2)]
    assert [part.shape for part in nd.split_v2(x, 2, 1, squeeze_axis=True)] == [(4,), (4,)]
    symbol = sym.load_json(sym.split_v2(sym.var("x"), 2).tojson())
    assert symbol.infer_shape(x=(4, 2))[1] == [(2, 2), (2, 2)]
    assert len(sym.var("x").split_v2((1, 3))) == 3


# --- random numbers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "draw",
    [
        lambda out: nd.random_uniform(0, 1, out=out),
        lambda out: nd.random.uniform(0, 1, out=out),
        lambda out: nd.random.normal(0, 1, shape=(2, 3), out=out),
        lambda out: nd.random.normal(nd.zeros(2), nd.ones(2), out=out),
        lambda out: mx.random.uniform(-1, 1, out=out),
        lambda out: np.random.uniform(out=out),
        lambda out: np.random.randint(0, 1 << 20, out=out),
        lambda out: np.random.choice(1 << 20, out=out),
    ],
)
def test_out_is_filled(draw: Any) -> None:
    out = nd.zeros((2, 3))
    assert draw(out) is out
    assert len(set(out.asnumpy().ravel().tolist())) == 6


MANY = 4000


@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (lambda: nd.random.normal(loc=nd.array([1, 2]), scale=nd.ones(2), shape=MANY), [1, 2]),
        (lambda: nd.random.normal(mu=nd.array([1, 2]), sigma=nd.ones(2), shape=MANY), [1, 2]),
        (lambda: nd.random.normal(nd.array([1, 2]), 1.0, MANY), [1, 2]),
        (lambda: nd.sample_normal(mu=nd.array([1, 2]), sigma=nd.ones(2), shape=MANY), [1, 2]),
        (lambda: nd.random.uniform(low=nd.zeros(2), high=nd.array([2, 4]), shape=MANY), [1, 2]),
        (lambda: nd.random.gamma(alpha=nd.ones(2), beta=nd.array([1, 2]), shape=MANY), [1, 2]),
        (lambda: nd.random.poisson(lam=nd.array([1, 2]), shape=MANY), [1, 2]),
        (lambda: nd.random.exponential(scale=nd.array([1, 2]), shape=MANY), [1, 2]),
        (lambda: nd.random.exponential(lam=nd.array([1, 0.5]), shape=MANY), [1, 2]),
        (lambda: nd.random.exponential(2.0, shape=(2, MANY)), [2, 2]),
        (lambda: nd.random.exponential(lam=0.5, shape=(2, MANY)), [2, 2]),
        (lambda: nd.random.negative_binomial(k=nd.ones(2), p=nd.ones(2) / 2, shape=MANY), [1, 1]),
        (lambda: nd.random.randn(2, MANY, loc=5, scale=0.1), [5, 5]),
        (lambda: nd.random.gamma(2.0, scale=3.0, size=(2, MANY)), [6, 6]),
    ],
)
def test_settings_are_numbers_or_arrays(draw: Any, mean: Any) -> None:
    found = draw()
    assert type(found) is nd.NDArray and found.dtype == "float32"
    assert abs(found.asnumpy().mean(axis=1) - mean).max() < 0.25


def test_shapes_and_dtypes_of_draws() -> None:
    assert nd.random.normal(loc=nd.zeros(2), scale=nd.ones(2)).shape == (2,)
    assert nd.random.uniform().shape == () and nd.random.uniform(0, 1, (2, 3)).shape == (2, 3)
    wide = nd.random.uniform(shape=(9,), dtype="float64").asnumpy()
    assert wide.dtype == "float64" and (wide * 2.0**24 % 1 != 0).any()
    assert nd.random.randint(0, 9, shape=(2,)).dtype == "int32"
    assert nd.random.multinomial(nd.array([0, 1]), shape=3).tolist() == [1, 1, 1]
    assert np.random.normal(size=None, out=np.zeros((2,))).shape == (2,)
    with pytest.raises(TypeError, match="loc is given twice"):
        nd.random.normal(0, 1, mu=0)
    with pytest.raises(TypeError, match="lo"):
        nd.random.uniform(lo=0)


@pytest.mark.parametrize("module", [nd.random, mx.random])
def test_shuffle_gives_a_copy(module: Any) -> None:
    x = nd.arange(50)
    found = module.shuffle(x)
    assert x.tolist() == list(range(50)) == sorted(found.tolist()) != found.tolist()
    assert type(found) is nd.NDArray
    given = list(range(50))
    assert module.shuffle(given) is None and given != list(range(50))


def test_symbols_draw_when_they_are_run() -> None:
    m = sym.var("m")
    symbol = sym.random.normal(0, 1, shape=(3,)) + sym.random.uniform(low=0, high=1, shape=(3,))
    found = [symbol.eval()[0].tolist() for _ in range(2)]
    assert found[0] != found[1]
    assert isinstance(sym.random.poisson(3, shape=(2,)), sym.Symbol)
    of_symbols = sym.load_json(sym.random.exponential(scale=m, shape=2).tojson())
    assert of_symbols.eval(m=nd.ones(3))[0].shape == (3, 2)
    assert sorted(sym.random.shuffle(m).eval(m=nd.arange(3))[0].tolist()) == [0, 1, 2]


# --- positions ------------------------------------------------------------------------------


def test_positions_may_be_floats() -> None:
    x = nd.arange(12).reshape((3, 4))
    rows = nd.array([0, 2])
    assert rows.dtype == "float32" and type(x[rows]) is nd.NDArray
    assert x[rows].tolist() == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert x[rows, nd.array([1, 3])].tolist() == [1, 11]
    x[rows] = 0
    assert x.asnumpy().sum(axis=1).tolist() == [0, 22, 0]
    x[:, rows] = 7
    assert x.asnumpy()[:, 2].tolist() == [7, 7, 7]
    with pytest.raises(IndexError, match="integers"):
        np.arange(3)[np.array([0.0, 2.0])]


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "float32"])
@pytest.mark.parametrize("number", [-1, 3])
def test_numbers_without_a_row(dtype: str, number: int) -> None:
    weight = nd.ones((3, 2))
    numbers = nd.array([0, number], dtype=dtype)
    layer = gluon.nn.Embedding(3, 2)
    layer.initialize()
    compiled = mx.compile(lambda x: npx.embedding(x, weight))
    for way in (
        lambda x: npx.embedding(x, weight),
        lambda x: nd.Embedding(x, weight, input_dim=3, output_dim=2),
        layer,
        compiled,
    ):
        assert way(numbers[:1]).shape == (1, 2)
        with pytest.raises(IndexError, match="out of bounds for axis 0 with size 3"):
            way(numbers).asnumpy()


# --- what there is not ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("mod", "gluon.Trainer"),
        ("contrib.quantization", "contrib.amp"),
        ("nd.sparse", "dense"),
        ("sym.sparse", "dense"),
    ],
)
def test_absent_parts_say_so(name: str, instead: str) -> None:
    *path, last = name.split(".")
    place: Any = getattr(mx, path[0]) if path else mx
    assert not hasattr(place, last)
    with pytest.raises(AttributeError, match=instead) as raised:
        getattr(place, last)
    assert "did you mean" not in str(raised.value)


def test_objects_that_are_not_blocks() -> None:
    for kind in (gluon.nn.Sequential, gluon.nn.HybridSequential):
        with pytest.raises(GemelError, match=f"{kind.__name__}: 3 is not a Block"):
            kind().add(3)
    with pytest.raises(GemelError, match="plain Block"):
        gluon.nn.HybridSequential().add(gluon.nn.Sequential())


def test_d2l_is_not_installed() -> None:
    assert gemel_d2l.Timer
    with pytest.raises(ModuleNotFoundError, match=r"d2l\.mxnet: the package d2l.*not installed"):
        _ = gemel_d2l.mxnet
    with pytest.raises(AttributeError, match="'Tiner'"):
        _ = gemel_d2l.Tiner


def test_updaters_of_stores() -> None:
    store = mx.kv.create("local")
    store.init(3, nd.ones(2))
    store._set_updater(lambda key, pushed, value: value.__iadd__(pushed * key))
    store.push(3, nd.ones(2))
    store.pull(3, out=(found := nd.zeros(2)))
    assert found.tolist() == [4, 4]


def test_a_blocks_full_names() -> None:
    layer = gluon.nn.Dense(2, in_units=2, prefix="fc_")
    for parameters in (layer.collect_params(), layer.params):
        assert "fc_weight" in parameters and "weight" in parameters
        assert parameters.get("fc_weight") is parameters["fc_weight"] is layer.weight
        assert "fc_weigth" not in parameters
    assert layer.collect_params().get("fc_weigth") is None
    assert set(layer.collect_params()) == {"weight", "bias"}


def test_waiting_for_all() -> None:
    mx.waitall()
    assert numpy.asarray(nd.ones(1)).tolist() == [1]


# --- what networks end in -------------------------------------------------------------------

ROWS = numpy.array([[0.3, -0.4, 1.5], [0.25, 1.0, -2.0]], "float32")
CLASSES = numpy.array([1.0, 2.0], "float32")
#: By name: the result of an output layer, and its gradient, which is that of a loss.
ENDS: dict[str, tuple[Any, Any]] = {
    "SoftmaxOutput": (
        lambda x: nd.SoftmaxOutput(x, nd.array(CLASSES)),
        lambda x: _softmax(x) - numpy.eye(3)[CLASSES.astype(int)],
    ),
    "SoftmaxOutput, by parts": (
        lambda x: nd.SoftmaxOutput(x, nd.array(_softmax(ROWS[::-1])), grad_scale=2.0),
        lambda x: 2 * (_softmax(x) - _softmax(ROWS[::-1])),
    ),
    "MakeLoss": (lambda x: nd.MakeLoss(x * 1, grad_scale=3.0), lambda x: numpy.full(x.shape, 3.0)),
    "make_loss": (lambda x: nd.make_loss(x * 1), numpy.ones_like),
    "LinearRegressionOutput": (
        lambda x: nd.LinearRegressionOutput(x, nd.zeros((2, 3))),
        lambda x: x / 3,
    ),
    "SVMOutput": (
        lambda x: nd.SVMOutput(x, nd.array(CLASSES), use_linear=True),
        lambda x: (lambda sign: -sign * (sign * x < 1))(numpy.eye(3)[CLASSES.astype(int)] * 2 - 1),
    ),
}


def _softmax(x: Any) -> Any:
    raised = numpy.exp(x - x.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ENDS)
def test_the_gradient_of_an_end_is_a_losss_whatever_follows(name: str, compiled: bool) -> None:
    end, gradient = ENDS[name]
    x = nd.array(ROWS)
    x.attach_grad()
    function = mx.compile(lambda x: end(x) * 5) if compiled else lambda x: end(x) * 5
    with autograd.record():
        function(x).backward()
    numpy.testing.assert_allclose(x.grad.asnumpy(), gradient(ROWS), rtol=1e-5, atol=1e-6)


def test_elements_after_the_end_count_if_requested() -> None:
    x = nd.array(ROWS)
    x.attach_grad()
    with autograd.record():
        (nd.SoftmaxOutput(x, nd.array(CLASSES), out_grad=True) * 5).backward()
    expected = 5 * ENDS["SoftmaxOutput"][1](ROWS)
    numpy.testing.assert_allclose(x.grad.asnumpy(), expected, rtol=1e-5, atol=1e-6)


def test_the_end_step_replaces_values_that_are_not_finite() -> None:
    x = nd.array([[0.0, 0.0, -numpy.inf]])
    x.attach_grad()
    with autograd.record():
        found = nd.SoftmaxOutput(x, nd.array([1]))
        found.backward()
    assert found.asnumpy().tolist() == [[0.5, 0.5, 0]]
    assert x.grad.asnumpy().tolist() == [[0.5, -0.5, 0]]


#: Values for which x + (f(x) - x) is not f(x), and what the operations give for them.
FAR = numpy.array([1e10, -3e8, 2.3, numpy.inf, -0.7], "float32")
STRAIGHT: dict[str, tuple[Any, Any, float]] = {
    "sign_ste": (nd.contrib.sign_ste, numpy.sign(FAR), 1),
    "round_ste": (nd.contrib.round_ste, numpy.round(FAR), 1),
    "gradientmultiplier": (lambda x: nd.contrib.gradientmultiplier(x, scalar=0.1), FAR, 0.1),
}


@pytest.mark.parametrize("name", STRAIGHT)
def test_another_gradient_does_not_change_the_value(name: str) -> None:
    operation, expected, slope = STRAIGHT[name]
    x = nd.array(FAR)
    x.attach_grad()
    with autograd.record():
        found = operation(x)
        (found * 2).backward()
    assert found.asnumpy().tolist() == expected.tolist()
    numpy.testing.assert_allclose(x.grad.asnumpy(), numpy.full(5, 2 * slope), rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_help_of_draws_has_mxnets_parameters(name: str) -> None:
    for module in (nd.random, sym.random, mx.random):
        text = getattr(module, name).__doc__
        assert text.startswith(f"MXNet 1's random.{name}(")
        assert all(f"{key}={value}" in text for key, value in PARAMETERS.get(name, {}).items())


X, W = nd.ones((2, 3)), nd.ones((4, 3))
LINEAR = sym.FullyConnected(sym.var("data"), num_hidden=3)
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "too many": (lambda: nd.relu(X, X), "relu: 2 arguments by position; it takes at most 1"),
    "too many symbols": (lambda: sym.relu(LINEAR, LINEAR), "relu: 2 arguments by position"),
    "twice": (
        lambda: nd.FullyConnected(X, W, W[:, 0], W, num_hidden=4),
        "num_hidden is given twic",
    ),
    "none": (lambda: nd.add_n(), "add_n: needs at least one array"),
    "no symbols": (lambda: sym.add_n(), "add_n: needs at least one array"),
    "no image": (lambda: nd.UpSampling(scale=2), "UpSampling: needs at least one array"),
    "a text": (lambda: nd.sgd_update(X, X, lr="a"), "sgd_update: lr is 'a'; it must be a number"),
    "keyword": (lambda: nd.relu(X, axes=1), "relu: unknown keyword 'axes'"),
    "shapes": (lambda: LINEAR.infer_shape(dat=(2, 3)), "'dat'; did you mean 'data'"),
    "partial": (lambda: LINEAR.infer_shape_partial(dat=(2, 3)), "'dat'; did you mean 'data'"),
    "dtypes": (lambda: LINEAR.infer_type(dat="int32"), "'dat'; did you mean 'data'"),
    "many shapes": (lambda: LINEAR.infer_shape(*[(2, 3)] * 4), "infer_shape: 4 values for"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_an_operation_does_not_take_is_refused(name: str) -> None:
    call, match = REFUSED[name]
    with pytest.raises(GemelError, match=match):
        call()


def test_numbers_may_be_texts() -> None:
    found = nd.sgd_update(X, X, lr="0.5")
    assert found.asnumpy().tolist() == nd.sgd_update(X, X, lr=0.5).asnumpy().tolist()
