"""Mixed precision: what is rounded, where it applies, and that training gives the same results."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from mixed_networks import LOW, WIDE, apart, begun, drawn, perceptron, products
from programs import run

import gemel
from gemel import amp, autograd, gluon, nd, np, npx
from gemel.errors import ArgumentError, DTypeError, GemelError, UnknownNameError
from gemel.gluon import Callback, nn
from gemel.gluon.contrib.estimator import Estimator
from gemel.ir import precision
from gemel.ops.rounds import loop

LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


def residual() -> Any:
    return gluon.model_zoo.vision.get_model("resnet18_v1", classes=10, thumbnail=True)


class Encoder(gluon.HybridBlock):
    """An encoder layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Dense(32, flatten=False) for _ in range(4))
        self.first, self.second = nn.LayerNorm(), nn.LayerNorm()
        self.inner = nn.Dense(64, flatten=False, activation="relu")
        self.outer = nn.Dense(32, flatten=False)

    def forward(self, x: Any) -> Any:
        def heads(y: Any) -> Any:
            return y.reshape(*y.shape[:2], 4, -1).transpose(0, 2, 1, 3)

        seen = npx.attention(heads(self.query(x)), heads(self.key(x)), heads(self.value(x)))
        x = self.first(x + self.out(seen.transpose(0, 2, 1, 3).reshape(x.shape)))
        return self.second(x + self.outer(self.inner(x)))


NETWORKS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "perceptron": (perceptron, (6, 8)),
    "residual": (residual, (2, 3, 16, 16)),
    "lstm": (lambda: gluon.rnn.LSTM(12, 2), (7, 3, 8)),
    "encoder": (Encoder, (2, 5, 32)),
}


# --- the numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_as_near_as_the_dtype_allows(name: str, dtype: str) -> None:
    make, shape = NETWORKS[name]
    net, x = begun(make), drawn(shape)
    wanted = net(x)
    with amp.autocast(dtype):
        found = net(x)
        assert products(net._own.compiled.graph(x)) == {(dtype, dtype)}
    assert found.dtype == "float32"
    assert 0 < apart(found, wanted) < (0.03 if dtype == "bfloat16" else 0.004)
    assert net(x).tolist() == wanted.tolist(), "outside the scope nothing is rounded"


@pytest.mark.parametrize("name", ["perceptron", "lstm", "encoder"])
def test_gradients_are_float32_and_near(name: str) -> None:
    make, shape = NETWORKS[name]
    net, x = begun(make), drawn(shape)
    net(x)
    head = drawn(net(x).shape, 2)

    def gradients(dtype: str) -> dict[str, Any]:
        with amp.autocast(dtype), autograd.record():
            y = net(x)
        y.backward(head)
        return {key: p.grad().copy() for key, p in net.collect_params().items()}

    wanted, found = gradients("float32"), gradients("bfloat16")
    assert {str(gradient.dtype) for gradient in found.values()} == {"float32"}
    # The gradient of the keys' biases is 0.
    large = [key for key, gradient in wanted.items() if float(abs(gradient).max()) > 1e-3]
    errors = [apart(found[key], wanted[key]) for key in large]
    assert 0 < max(errors) < 0.1


def test_a_product_is_rounded_once() -> None:
    """The result is a float32 sum of rounded factors plus the bias; nothing else is rounded."""
    net, x = begun(lambda: nn.Dense(8, in_units=64)), drawn((4, 64))
    net.bias.set_data(drawn((8,), 3))
    with amp.autocast():
        found = net(x)
    weight, bias = net.weight.data(), net.bias.data()
    rounded = [a.astype("bfloat16").astype("float32") for a in (x, weight)]
    wanted = np.dot(rounded[0], rounded[1].T) + bias
    numpy.testing.assert_allclose(found.asnumpy(), wanted.asnumpy(), rtol=0, atol=1e-5)


def test_losses_norms_and_sums_are_float32() -> None:
    net, x = begun(lambda: nn.Dense(5, in_units=6)), drawn((3, 6))
    labels = np.array([0, 1, 4])

    def both(x: Any, y: Any) -> Any:
        return LOSS(net(x), y)

    compiled = gemel.compile(both)
    with amp.autocast():
        graph = compiled.graph(x, labels)
    low = [n for n in graph.walk() if any(str(s.dtype) == "bfloat16" for s in n.specs)]
    assert {node.op.name for node in low if node.op is not None} == {"cast", "transpose"}


WRITTEN_IN_PRODUCTS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "colours": (lambda x: npx.image.random_hue(x, 1.3, 1.3), (4, 4, 3)),
    "light": (lambda x: npx.image.adjust_lighting(x, (0.3, 0.1, 0.2)), (4, 4, 3)),
    "covariances": (np.cov, (3, 8)),
    "correlations": (np.corrcoef, (3, 8)),
    "regions": (lambda x: npx.roi_align(x, np.array([[0.0, 0, 0, 5, 4]]), 2, 1.0), (1, 2, 6, 6)),
    "means": (lambda x: nd.contrib.AdaptiveAvgPooling2D(x, output_size=(2, 3)), (1, 2, 5, 7)),
    "places": (
        lambda x: nd.GridGenerator(x, transform_type="affine", target_shape=(5, 7)),
        (2, 6),
    ),
    "columns": (lambda x: nd.im2col(x, kernel=(2, 2)), (1, 2, 4, 4)),
    "images": (lambda x: nd.col2im(x, output_size=(3, 3), kernel=(2, 2)), (1, 8, 4)),
}


@pytest.mark.parametrize("name", WRITTEN_IN_PRODUCTS)
def test_operations_only_composed_of_products_stay_float32(name: str) -> None:
    """Colours, positions, means and statistics use products internally, but stay float32."""
    function, shape = WRITTEN_IN_PRODUCTS[name]
    compiled, x = gemel.compile(lambda x: function(x)), drawn(shape)
    wanted = compiled(x).tolist()
    with amp.autocast():
        assert compiled(x).tolist() == wanted
        assert products(compiled.graph(x)) <= WIDE


def test_a_value_rounded_for_a_product_is_kept_once() -> None:
    """A layer and a shortcut read the same sum, and both read it rounded."""
    net = begun(lambda: nn.Dense(6, in_units=6, flatten=False))

    def block(x: Any) -> Any:
        shared = x * 2 + 1
        return net(shared) + shared

    compiled, x = gemel.compile(block), drawn((4, 6))
    with amp.autocast():
        found = compiled(x)
    low = (x * 2 + 1).astype("bfloat16").astype("float32")
    weight = net.weight.data().astype("bfloat16").astype("float32")
    numpy.testing.assert_allclose(
        found.asnumpy(), (np.dot(low, weight.T) + low).asnumpy(), rtol=0, atol=1e-5
    )


def test_softmax_is_not_rounded_for_others() -> None:
    """A value that is float32 on purpose is rounded only for the product that reads it."""

    def weighed(x: Any, values: Any) -> Any:
        weights = npx.softmax(x)
        return np.matmul(weights, values), weights * 2

    compiled, x, values = gemel.compile(weighed), drawn((3, 4)), drawn((4, 2))
    with amp.autocast():
        found = compiled(x, values)[1]
    # The loops differ, so the last digit may too; rounding to bfloat16 would change 4e-3.
    numpy.testing.assert_allclose(found.asnumpy(), compiled(x, values)[1].asnumpy(), rtol=1e-6)


def test_composites_made_of_products_are_opened() -> None:
    compiled = gemel.compile(lambda a, b: np.einsum("ij,jk->ik", np.tensordot(a, b, 1), b))
    a, b = drawn((3, 4)), drawn((4, 4))
    with amp.autocast():
        assert products(compiled.graph(a, b)) == LOW
    assert products(compiled.graph(a, b)) != LOW


def test_branches_and_loops_are_mixed_inside() -> None:
    def chosen(p: Any, x: Any, w: Any) -> Any:
        return npx.cond(p.sum() > 0, lambda: np.dot(x, w), lambda: np.dot(x, w) * 2)

    def repeated(x: Any, w: Any) -> Any:
        def step(i: Any, x: Any) -> Any:
            return [], [i + 1, np.tanh(np.dot(x, w))]

        return npx.while_loop(lambda i, x: i < 5, step, [np.zeros(1), x], max_iterations=8)[1][1]

    x, w = drawn((4, 6)), drawn((6, 6), 2) * 0.2
    for function, given in ((chosen, (np.ones(1), x, w)), (repeated, (x, w))):
        compiled = gemel.compile(function)
        with amp.autocast():
            found = compiled(*given)
            assert products(compiled.graph(*given)) == LOW
        assert 0 < apart(found, compiled(*given)) < 0.03


def test_loops_that_run_as_often_as_values_say() -> None:
    """NumPy runs these loops, and it has no bfloat16."""
    a, weight = drawn((2, 4)), drawn((4, 4))
    weight.attach_grad()

    @gemel.compile(script=True)
    def grown(x: Any) -> Any:
        while abs(x @ weight).sum() < 50:
            x = x + abs(x @ weight)
        return x

    def found(dtype: str) -> tuple[Any, Any]:
        with amp.autocast(dtype), autograd.record():
            y = grown(a)
        y.backward()
        return y, weight.grad.copy()

    wanted, mixed = found("float32"), found("bfloat16")
    assert all(0 < apart(x, y) < 0.03 for x, y in zip(mixed, wanted, strict=True))
    numbers = gemel.compile(script=True)(_rounded_up)
    x = np.array([1.0, 1.00390625, 1.01171875, -1 / 3])
    assert numbers(x).tolist() == x.astype("bfloat16").astype("float32").tolist()


def _rounded_up(x: Any) -> Any:
    times = np.zeros(())
    while times < 1:
        x = x.astype("bfloat16").astype("float32")
        times = times + 1
    return x


def test_gradients_a_function_takes_itself() -> None:
    layer = begun(lambda: nn.Conv2D(4, 3, padding=1, in_channels=4, activation="tanh"))

    def function(x: Any) -> Any:
        with autograd.record():
            total = layer(x).sum()
        return autograd.grad(total, [layer.weight.data()])[0]

    compiled, x = gemel.compile(function), drawn((2, 4, 8, 8))
    with amp.autocast():
        found = compiled(x)
    assert 0 < apart(found, compiled(x)) < 0.03


def test_other_dtypes_stay() -> None:
    compiled = gemel.compile(np.matmul)
    a = drawn((3, 3))
    with amp.autocast():
        assert products(compiled.graph(a.astype("float64"), a)) == {("float64", "float32")}
        whole = np.array([[1, 2], [3, 4]])
        assert compiled(whole, whole).tolist() == [[7, 10], [15, 22]]


def test_weights_of_loops_are_rounded_before_them() -> None:
    """So no round saves a rounded weight, and the gradients are products over all rounds."""
    net, x = begun(lambda: gluon.rnn.LSTM(8)), drawn((9, 2, 8))
    with amp.autocast():
        with autograd.record():
            y = net(x)
        graph = net._own.compiled.graph(x)
    y.backward()
    (step,) = (node.params["step"] for node in graph.walk() if node.op is loop)
    matrices = [str(e.dtype) for e in step.inputs if e.ndim == 2 and e.shape[0] == 32]
    assert matrices == ["bfloat16"]
    programs = [p for each in net._own.compiled._programs.values() for p in each]
    (halves,) = (half for program in programs for half in program._halves.values())
    assert not [entry for entry in halves.kept if entry.ndim == 3 and entry.shape[1] == 32]


# --- where it is in force -------------------------------------------------------------------


def low(net: Any, x: Any) -> bool:
    return products(net._own.compiled.graph(x)) == LOW


def test_a_scope_is_one_threads() -> None:
    net, x = begun(perceptron), drawn((6, 8))
    wanted, others = net(x).tolist(), []
    with amp.autocast():
        mixed = net(x).tolist()
        for _ in range(3):  # the fast path of a call too
            thread = threading.Thread(target=lambda: others.append(net(x).tolist()))
            thread.start()
            thread.join()
            assert net(x).tolist() == mixed
    assert others == [wanted] * 3
    assert mixed != wanted
    assert precision.current() is None


def test_scopes_nest_and_traces_are_told_apart() -> None:
    net, x = begun(perceptron), drawn((6, 8))
    seen = []
    with amp.autocast("bfloat16"):
        seen.append(net(x).tolist())
        with amp.autocast("float16"):
            seen.append(net(x).tolist())
            with amp.autocast("float32"):
                seen.append(net(x).tolist())
        seen.append(net(x).tolist())
    seen.append(net(x).tolist())
    assert seen[0] == seen[3]
    assert seen[2] == seen[4]
    assert len({str(each) for each in seen}) == 3
    assert net._own.compiled.traces == 3


def test_a_scope_within_a_function() -> None:
    net = begun(perceptron)

    def function(x: Any) -> Any:
        with amp.autocast():
            first = net[0](x)
        return net[1](first)

    graph = gemel.compile(function).graph(drawn((6, 8)))
    assert products(graph) == LOW | WIDE
    with amp.autocast(), pytest.raises(ZeroDivisionError):
        _ = 1 / 0
    assert precision.current() is None


def test_a_decorated_function() -> None:
    compiled, a = gemel.compile(np.matmul), drawn((4, 4))
    decorated = amp.autocast()(lambda: compiled(a, a))
    assert decorated().tolist() != compiled(a, a).tolist()


def test_a_scope_that_two_threads_are_in() -> None:
    """A scope entered in one thread does not change the trace of another thread."""
    left_out, a, found = amp.autocast("float32"), drawn((4, 4)), []
    inside, entered = threading.Event(), threading.Event()

    def function(x: Any) -> Any:
        with left_out:
            first = x @ x
            inside.set()
            assert entered.wait(30)
        return first @ x

    def trace() -> None:
        with amp.autocast():
            found.extend(products(gemel.compile(function).graph(a)))

    thread = threading.Thread(target=trace)
    thread.start()
    assert inside.wait(30)
    with left_out:
        entered.set()
        thread.join()
    assert set(found) == LOW | WIDE


def test_init_is_for_all_threads() -> None:
    net, x = begun(perceptron), drawn((6, 8))
    wanted, found = net(x).tolist(), []
    amp.init("bfloat16")
    try:
        thread = threading.Thread(target=lambda: found.append(net(x).tolist()))
        thread.start()
        thread.join()
        assert net(x).tolist() == found[0] != wanted
        with amp.autocast("float32"):
            assert net(x).tolist() == wanted
    finally:
        amp.init("float32")
    assert net(x).tolist() == wanted


def test_operations_outside_of_programs_are_as_they_are_written() -> None:
    a = drawn((4, 4))
    with amp.autocast():
        assert np.matmul(a, a).tolist() == np.matmul(a, a).tolist()
        found = np.matmul(a, a)
    assert found.tolist() == np.matmul(a, a).tolist()


# --- what is named --------------------------------------------------------------------------


def test_operations_by_name() -> None:
    net, x = begun(perceptron), drawn((6, 8))
    with amp.autocast(fp32_ops=["matmul"]):
        assert products(net._own.compiled.graph(x) if net(x) is not None else None) == WIDE
    with amp.autocast(fp32_ops=["_npi_matmul"]):
        assert not low(net, x)
    image, conv = drawn((1, 2, 4, 4)), begun(lambda: nn.Conv2D(2, 3, in_channels=2))
    with amp.autocast(fp32_ops=["Convolution", "exp", "BatchNorm", "softmax"]):
        conv(image)
        assert products(conv._own.compiled.graph(image)) == WIDE
    with pytest.raises(UnknownNameError, match=r"composed of several.*matmul for FullyConnected"):
        amp.autocast(fp32_ops=["FullyConnected"])
    with amp.autocast(target_precision_ops=["tanh"]):
        net(x)
        nodes = [n for n in net._own.compiled.graph(x).walk() if n.op is not None]
    assert [str(n.specs[0].dtype) for n in nodes if n.op.name == "tanh"] == ["bfloat16"]


def test_operations_by_a_parameter() -> None:
    compiled, x = gemel.compile(lambda x: npx.softmax(x, axis=0) + npx.softmax(x)), drawn((3, 3))
    named = {"target_precision_ops": ["softmax"]}
    with amp.autocast(**named, conditional_fp32_ops=[("softmax", "axis", [0])]):
        nodes = [n for n in compiled.graph(x).walk() if n.op is not None and n.op.name == "softmax"]
        assert amp.list_conditional_fp32_ops() == [("softmax", "axis", ["0"])]
    assert {n.params["axis"]: str(n.specs[0].dtype) for n in nodes} == {
        0: "float32",
        -1: "bfloat16",
    }


def test_names_and_dtypes_are_checked() -> None:
    with pytest.raises(UnknownNameError, match=r"matmull.*'matmul'"):
        amp.autocast(fp32_ops=["matmull"])
    with pytest.raises(UnknownNameError, match=r"parameter of softmax 'axes'.*'axis'"):
        amp.autocast(conditional_fp32_ops=[("softmax", "axes", [0])])
    with pytest.raises(DTypeError, match="autocast: target_dtype is int8"):
        amp.autocast("int8")
    with pytest.raises(DTypeError, match=r"^autocast: 'zz' is not a dtype"):
        amp.autocast("zz")
    with pytest.raises(DTypeError, match="init: target_dtype is float64"):
        amp.init("float64")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: amp.autocast(fp32_ops="matmul"), "autocast: 'matmul' is a string; give a list"),
        (
            lambda: amp.convert_hybrid_block(perceptron(), excluded_sym_names="dense0"),
            "convert_hybrid_block: 'dense0' is a string",
        ),
        (lambda: amp.init(target_precision_ops=3), "init: 3 is not a list of names"),
        (lambda: amp.LossScaler(-1), "LossScaler: init_scale is -1; it must be .* at least 1"),
        (
            lambda: amp.init(conditional_fp32_ops=[("softmax", "axis")]),
            "must be a triple: an operation, one",
        ),
        (
            lambda: amp.init_trainer(perceptron(), "float16"),
            "HybridSequential is not a gluon.Trainer",
        ),
    ],
    ids=["names", "excluded", "number", "scale", "condition", "trainer"],
)
def test_arguments_are_checked(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()


def test_amp_is_where_mxnet_1_has_it() -> None:
    assert gemel.contrib.amp is amp
    assert gemel.contrib.nd is gemel.nd.contrib
    program = """
    import gemel.as_mxnet
    from mxnet.contrib import amp
    amp.init(target_dtype="float16")
    tell(module=amp.__name__)
    """
    assert run(program)["module"] == "gemel.amp"


def test_lists() -> None:
    lists = [amp.list_lp16_ops(), amp.list_fp32_ops(), amp.list_widest_type_cast()]
    for mine, name in zip(lists, ("convolution", "softmax", "add"), strict=True):
        assert [name in each for each in lists] == [each is mine for each in lists]
    assert "winograd" in lists[1]
    assert amp.list_conditional_fp32_ops() == []


# --- training -------------------------------------------------------------------------------


def trained(way: str, dtype: str) -> tuple[list[Any], Any]:
    net = begun(perceptron)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    step, losses = trainer.compile(lambda x, y: LOSS(net(x), y)), []
    with amp.autocast(dtype):
        for number in range(3):
            x, y = drawn((6, 8), number), np.array([0, 1, 2, 3, 0, 1])
            if way == "step":
                losses.append(step(x, y).tolist())
                continue
            with autograd.record():
                loss = LOSS(net(x), y)
            loss.backward()
            trainer.step(6)
            losses.append(loss.tolist())
    return losses, [p.data().tolist() for p in net.collect_params().values()]


def test_a_compiled_step_does_what_three_calls_do() -> None:
    calls, step = trained("calls", "bfloat16"), trained("step", "bfloat16")
    numpy.testing.assert_allclose(step[0], calls[0], rtol=1e-6)
    for one, other in zip(step[1], calls[1], strict=True):
        numpy.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
    assert step[0] != trained("step", "float32")[0]


def test_a_compiled_step_keeps_statistics() -> None:
    """The statistics that layers write are computed once, with the rest of the program."""

    def normalized() -> Any:
        net = nn.HybridSequential()
        net.add(nn.Conv2D(4, 3, in_channels=2, use_bias=False), nn.BatchNorm(in_channels=4))
        net.add(nn.Dense(3, in_units=64))
        return net

    x, y = drawn((5, 2, 6, 6)), np.array([0, 1, 2, 0, 1])
    means = []
    for way in ("step", "calls"):
        net = begun(normalized)
        trainer = gluon.Trainer(net.collect_params(), "sgd")
        step = trainer.compile(lambda x, y, net=net: LOSS(net(x), y))
        with amp.autocast():
            if way == "step":
                step(x, y)
            else:
                with autograd.record():
                    loss = LOSS(net(x), y)
                loss.backward()
                trainer.step(5)
        means.append(net[1].running_mean.data().tolist())
    numpy.testing.assert_allclose(means[0], means[1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("dtype", "scaled"), [("bfloat16", False), ("float16", True)])
def test_digits_are_learnt_as_well(dtype: str, scaled: bool) -> None:
    data = pytest.importorskip("sklearn.datasets").load_digits()
    order = numpy.random.default_rng(0).permutation(len(data.target))
    images = (data.data / 16).astype("float32").reshape(-1, 1, 8, 8)[order]
    labels = data.target[order].astype("int64")

    def network() -> Any:
        net = nn.HybridSequential()
        net.add(nn.Conv2D(8, 3, padding=1, activation="relu"), nn.MaxPool2D())
        net.add(nn.Dense(32, activation="relu"), nn.Dense(10))
        return net

    def accuracy(dtype: str, scaled: bool) -> float:
        net = begun(network)
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.005})
        with amp.autocast(dtype):
            if scaled:
                amp.init_trainer(trainer)
            for start in [*range(0, 1500, 50)] * 4:
                x, y = (np.array(a[start : start + 50]) for a in (images, labels))
                with autograd.record():
                    loss = LOSS(net(x), y)
                    if scaled:
                        with amp.scale_loss(loss, trainer) as larger:
                            autograd.backward(larger)
                if not scaled:
                    loss.backward()
                trainer.step(50)
            found = net(np.array(images[1500:])).asnumpy().argmax(axis=1)
        return float((found == labels[1500:]).mean())

    assert accuracy(dtype, scaled) > accuracy("float32", False) - 0.02 > 0.9


# --- scaling --------------------------------------------------------------------------------


def scaled_trainer(dtype: str = "float16") -> tuple[Any, Any]:
    net = begun(lambda: nn.Dense(1, use_bias=False, in_units=2))
    net.weight.set_data(np.array([[1.0, 2.0]]))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
    amp.init_trainer(trainer, dtype)
    return net, trainer


def backward(net: Any, trainer: Any, x: Any) -> None:
    with autograd.record():
        loss = net(x)
        with amp.scale_loss([loss], trainer) as scaled:
            autograd.backward(scaled)


def test_the_step_divides_by_the_scale() -> None:
    net, trainer = scaled_trainer()
    backward(net, trainer, np.array([[1.0, -1.0]]))
    assert net.weight.grad().tolist() == [[65536, -65536]]
    trainer.step(1)
    assert net.weight.data().tolist() == [[0.5, 2.5]]


def test_unscaled_gradients_are_not_divided_again() -> None:
    net, trainer = scaled_trainer()
    backward(net, trainer, np.array([[1.0, -1.0]]))
    amp.unscale(trainer)
    amp.unscale(trainer)
    assert net.weight.grad().tolist() == [[1, -1]]
    trainer.step(1)
    assert net.weight.data().tolist() == [[0.5, 2.5]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_trainer_may_be_prepared_again(dtype: str) -> None:
    net, trainer = scaled_trainer()
    for wanted in ([0.5, 2.5], [0, 3]):
        backward(net, trainer, np.array([[1.0, -1.0]]))
        trainer.step(1)
        assert net.weight.data().tolist() == [wanted]
        amp.init_trainer(trainer, dtype)
    amp.init_trainer(trainer, "bfloat16")
    trainer.compile(lambda x: net(x))(np.array([[1.0, -1.0]]))
    assert net.weight.data().tolist() == [[-0.5, 3.5]]


@pytest.mark.parametrize("way", ["step", "update"])
def test_a_step_that_overflows_is_left_out(way: str) -> None:
    net, trainer = scaled_trainer()
    backward(net, trainer, np.array([[1e36, 1.0]]))
    getattr(trainer, way)(1)
    assert net.weight.data().tolist() == [[1, 2]]
    assert trainer._amp_loss_scaler.loss_scale == 2.0**15
    with pytest.raises(GemelError, match="backward has not written"):
        trainer.step(1)
    backward(net, trainer, np.array([[1.0, -1.0]]))
    getattr(trainer, way)(1)
    assert net.weight.data().tolist() == [[0.5, 2.5]]


def test_the_scale_grows() -> None:
    scaler = amp.LossScaler(8, scale_window=2)
    seen = []
    for overflowed in (False, False, False, True, False, False):
        scaler.update_scale(overflowed)
        seen.append(scaler.loss_scale)
    assert seen == [8, 16, 16, 8, 8, 16]


def test_bfloat16_needs_no_scale() -> None:
    net, trainer = scaled_trainer("bfloat16")
    backward(net, trainer, np.array([[1.0, -1.0]]))
    assert net.weight.grad().tolist() == [[1, -1]]
    assert not trainer._amp_loss_scaler.has_overflow(trainer._params)
    net.weight.grad()[...] = float("inf")
    assert trainer._amp_loss_scaler.has_overflow(trainer._params)


class Never(Callback):
    """Hears of gradients, so that `fit` shows them to callbacks."""

    def gradients_ready(self, run: Any) -> None:
        assert float(np.abs(run.net.weight.grad()).max()) < 1e-5


@pytest.mark.parametrize("way", ["fit", "callbacks", "estimator"])
def test_training_by_fit_scales_losses(way: str, tmp_path: Path) -> None:
    """Gradients that float16 has no numbers for."""
    net = begun(lambda: nn.Dense(1, in_units=2))
    net.weight.set_data(np.array([[1.0, 2.0]]))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1e8})
    amp.init_trainer(trainer, "float16")
    data = gluon.data.DataLoader(gluon.data.ArrayDataset(np.ones((8, 2)), np.ones((8, 1))), 4)
    tiny = gluon.loss.L1Loss(weight=1e-9)
    with amp.autocast("float16"):
        if way == "estimator":
            Estimator(net, tiny, trainer=trainer, context=gemel.cpu()).fit(data, epochs=1)
        else:
            settings: dict[str, Any] = {"progress": False, "checkpoint": tmp_path / "point"}
            callbacks = [Never()] if way == "callbacks" else []
            gluon.fit(net, data, tiny, trainer, callbacks=callbacks, **settings)
    assert net.weight.data().reshape(-1).tolist() == pytest.approx([0.8, 1.8], rel=1e-3)
    if way != "estimator":
        known = vars(trainer._amp_loss_scaler)
        amp.init_trainer(trainer, "float16")
        gluon.fit(net, data, tiny, trainer, epochs=1, **settings)  # all epochs are done
        assert vars(trainer._amp_loss_scaler) == known and known["_unskipped"] == 2


def test_a_file_of_states_has_the_scale(tmp_path: Path) -> None:
    net, trainer = scaled_trainer()
    for value in (1e36, 1.0):
        backward(net, trainer, np.array([[value, 1.0]]))
        trainer.step(1)
    trainer.save_states(tmp_path / "states")
    scalers = []
    for dtype in ("float16", "bfloat16", None):
        other = gluon.Trainer(net.collect_params(), "sgd")
        if dtype is not None:
            amp.init_trainer(other, dtype)
        other.load_states(tmp_path / "states")
        scalers.append(other._amp_loss_scaler)
    assert vars(scalers[0]) == vars(trainer._amp_loss_scaler)
    assert scalers[0].loss_scale == 2.0**15
    assert scalers[1].loss_scale == 1 and scalers[2] is None


def test_trainers_whose_losses_cannot_be_scaled() -> None:
    net, trainer = scaled_trainer()
    with pytest.raises(GemelError, match="losses are scaled"):
        trainer.compile(lambda x: net(x))(np.ones((1, 2)))
    plain = gluon.Trainer(net.collect_params(), "sgd")
    with (
        pytest.raises(GemelError, match=r"scale_loss: .*call amp\.init_trainer"),
        amp.scale_loss(np.ones(1), plain),
    ):
        pass
    with pytest.raises(GemelError, match="no mixed precision is active"):
        amp.init_trainer(plain)
    stored = gluon.Trainer(net.collect_params(), "sgd", update_on_kvstore=True)
    with pytest.raises(GemelError, match="update_on_kvstore=False"):
        amp.init_trainer(stored, "float16")


def test_two_devices_skip_together() -> None:
    net = nn.Dense(1, use_bias=False, in_units=2)
    net.initialize(gemel.init.One(), ctx=[gemel.cpu(0), gemel.cpu(1)])
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
    amp.init_trainer(trainer, "float16")
    for value, wanted in ((1e36, [1, 1]), (1.0, [0, 0])):
        parts = [np.full((1, 2), n, device=gemel.cpu(i)) for i, n in enumerate((1.0, value))]
        with autograd.record(), amp.scale_loss([net(x) for x in parts], trainer) as scaled:
            autograd.backward(scaled)
        trainer.step(1)
        assert [a.tolist() for a in net.weight.list_data()] == [[wanted]] * 2
