"""Hybridizing: same results, compiled; when programs are dropped; what cannot be compiled."""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stdout
from types import SimpleNamespace

import numpy
import pytest

import gemel
from gemel import autograd, gluon, init, np, npx, sym
from gemel.errors import GradientError, ShapeError
from gemel.gluon import nn
from gemel.gluon.block import BlockError


def mlp(*layers):
    net = nn.HybridSequential()
    net.add(
        *(layers or (nn.Dense(8, activation="relu"), nn.Dense(4, activation="tanh"), nn.Dense(2)))
    )
    return net


def flat(array):
    values = array.tolist()
    while values and isinstance(values[0], list):
        values = [v for row in values for v in row]
    return values


def close(a, b, tolerance=1e-5):
    assert flat(a) == pytest.approx(flat(b), rel=tolerance, abs=tolerance)


def test_same_result_for_any_batch_size():
    net = mlp()
    net.initialize()
    inputs = [np.random.normal(size=(n, 5)) for n in (1, 2, 7, 64)]
    expected = [net(x) for x in inputs]
    net.hybridize()
    for x, y in zip(inputs, expected, strict=True):
        close(net(x), y)
    net.hybridize(False)
    close(net(inputs[1]), expected[1])


def test_first_call_hybridized_initializes_like_an_imperative_one():
    def weights(hybridize):
        np.random.seed(2)
        net = mlp()
        net.initialize()
        if hybridize:
            net.hybridize()
        net(np.ones((3, 5)))
        return [flat(p.data()) for p in net.collect_params().values()]

    assert weights(True) == weights(False)


def test_gradients_agree():
    net = mlp()
    net.initialize()
    x, label = np.random.normal(size=(6, 5)), np.array([0, 1, 1, 0, 1, 0], dtype="int32")
    loss = gluon.loss.SoftmaxCrossEntropyLoss()

    def gradients():
        with autograd.record():
            value = loss(net(x), label)
        value.backward()
        return [p.grad().copy() for p in net.collect_params().values()]

    net(x)
    expected = gradients()
    net.hybridize()
    loss.hybridize()
    for found, wanted in zip(gradients(), expected, strict=True):
        close(found, wanted, 1e-4)


def test_training_agrees():
    def train(hybridize):
        np.random.seed(4)
        net = mlp(nn.Dense(8, activation="relu"), nn.BatchNorm(), nn.Dropout(0.25), nn.Dense(1))
        net.initialize()
        if hybridize:
            net.hybridize()
        x = np.random.normal(size=(16, 3))
        y = x.sum(axis=1)
        net(x)  # deferred parameters draw their values here, before any dropout
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
        loss = gluon.loss.L2Loss()
        for _ in range(5):
            with autograd.record():
                value = loss(net(x), y)
            value.backward()
            trainer.step(16)
        return [flat(p.data()) for p in net.collect_params().values()], flat(net(x))

    imperative, hybrid = train(False), train(True)
    for found, wanted in zip(hybrid[0], imperative[0], strict=True):
        assert found == pytest.approx(wanted, rel=1e-3, abs=1e-5)
    assert hybrid[1] == pytest.approx(imperative[1], rel=1e-3, abs=1e-4)


def test_parameters_are_inputs_not_constants():
    net = mlp(nn.Dense(1, in_units=2, use_bias=False))
    net.initialize("ones")
    net.hybridize()
    x = np.ones((1, 2))
    assert net(x).item() == 2
    net[0].weight.set_data(np.array([[3.0, 4.0]]))
    assert net(x).item() == 7
    net[0].weight.data()[0, 0] = 10
    assert net(x).item() == 14


def test_changes_drop_the_program():
    net = mlp(nn.Dense(3, in_units=2))
    net.initialize()
    net.hybridize()
    x = np.ones((1, 2))
    net(x)
    net.add(nn.Dense(5, in_units=3))
    net[1].initialize()
    assert net(x).shape == (1, 5)
    net.cast("float64")
    assert str(net(x.astype("float64")).dtype) == "float64"
    net.initialize("zeros", force_reinit=True)
    assert net(x.astype("float64")).sum().item() == 0


def test_a_change_deep_inside_is_noticed():
    inner = mlp(nn.Dense(3, in_units=2))
    net = mlp(inner)
    net.initialize()
    net.hybridize()
    assert net(np.ones((1, 2))).shape == (1, 3)
    inner.add(nn.Dense(4, in_units=3))
    inner[1].initialize()
    assert net(np.ones((1, 2))).shape == (1, 4)


class Scaled(nn.HybridBlock):
    power = 1

    def __init__(self):
        super().__init__()
        self.factor, self.array, self.calls = 2.0, np.ones(3), 0

    def forward(self, x):
        self.kept = x * self.factor  # while it is traced: changes no program
        self.calls += 1
        return self.kept * self.array**self.power


def test_another_value_of_an_attribute_is_noticed():
    inner = Scaled()
    net = mlp(inner)
    net.hybridize()
    x, compiled = np.ones((1, 3)), gemel.compile(lambda x: inner(x))

    def results():
        values = [each(x)[0, 0].item() for each in (net, inner, compiled)]
        assert values == [values[0]] * 3
        return values[0]

    assert results() == results() == 2
    inner.factor = 3.0
    assert results() == 3
    inner.array = np.full(3, 4.0)
    assert results() == 12
    inner.power = 2
    assert results() == 48
    del inner.power
    traces, inner.factor = inner.calls, 3.0
    assert results() == results() == 12
    assert inner.calls == traces + 3


class Printing(nn.HybridBlock):
    def __init__(self, **settings):
        super().__init__(**settings)
        self.hidden = nn.Dense(4)
        self.output = nn.Dense(2)

    def hybrid_forward(self, F, x):
        print("module F:", F)
        x = F.npx.relu(self.hidden(x))
        return self.output(x)


def test_the_hybridized_call_runs_no_python():
    net = Printing()
    net.initialize()
    x = np.ones((1, 3))
    printed = []
    expected = None
    for active in (False, True, True):
        out = io.StringIO()
        with redirect_stdout(out):
            if active and not net._active:
                net.hybridize()
            y = net(x)
        printed.append(out.getvalue())
        if expected is None:
            expected = y
        close(y, expected)
    assert "gemel.ndarray" in printed[0]
    assert "gemel.symbol" in printed[1]
    assert printed[2] == ""


def test_keyword_arguments_and_hooks():
    class Weighted(nn.HybridBlock):
        def forward(self, x, weight):
            return x * weight

    net = Weighted()
    net.hybridize()
    seen = []
    net.register_forward_hook(lambda block, inputs, output: seen.append(output.shape))
    assert net(np.ones(2), weight=np.array([2.0, 3.0])).tolist() == [2, 3]
    assert seen == [(2,)]


class Masked(nn.HybridBlock):
    """A layer whose `forward` has arguments that can be given by name only."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(2, in_units=2)

    def forward(self, x, *, mask=None, scale=1.0, mode="sum"):
        y = self.dense(x) * scale
        y = y if mask is None else y * mask
        return y.sum() if mode == "sum" else y


class Around(nn.HybridBlock):
    """It passes on what it gets by name."""

    def __init__(self):
        super().__init__()
        self.inner = Masked()

    def forward(self, x, **named):
        return self.inner(x, **named)


@pytest.mark.parametrize("kind", [Masked, Around])
def test_arguments_by_name_only(kind):
    """A hybridized block takes them as one that is not; their order makes no other program."""
    net, x, mask = kind(), np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([2.0, 0.5])
    net.initialize()
    given = [
        {}, {"mask": mask}, {"scale": 2.0}, {"scale": 3.0, "mask": mask},
        {"mask": mask, "scale": 4.0}, {"mode": "all"}, {"mask": mask, "mode": "all"},
    ]  # fmt: skip

    def results():
        return [net(x, **each).tolist() for each in given]

    def gradients():
        for array in (x, mask):
            array.attach_grad()
        with autograd.record():
            y = net(x, mask=mask, scale=2.0)
        y.backward()
        return [array.grad.tolist() for array in (x, mask)]

    expected, slopes = results(), gradients()
    net.hybridize()
    assert results() == results() == expected
    assert net._own.compiled.traces == 6
    numpy.testing.assert_allclose(numpy.array(gradients()[0]), slopes[0], rtol=1e-6)
    numpy.testing.assert_allclose(numpy.array(gradients()[1]), slopes[1], rtol=1e-6)
    seen = []
    hook = net.register_forward_hook(lambda block, inputs, output: seen.append(len(inputs)))
    assert results() == expected and seen == [1] * len(given)
    hook.detach()
    with pytest.raises(TypeError, match="another"):
        net(x, another=1.0)


def test_arguments_by_name_only_in_files_and_on_symbols(tmp_path):
    net, x, mask = Masked(), np.ones((3, 2)), np.array([2.0, 0.5])
    net.initialize()
    expected = net(x, mask=mask).item()
    net.hybridize()
    assert net(x, mask=mask).item() == expected
    gemel.save(net, tmp_path / "net.gemel")
    loaded = gemel.load(tmp_path / "net.gemel")
    assert loaded(x, mask=mask).item() == expected
    with pytest.raises(ShapeError, match="was saved for"):
        loaded(x)
    names = net.export(tmp_path / "net")
    read = gluon.SymbolBlock.imports(names[0], ["data0", "data1"], names[1])
    assert read(x, mask).item() == expected
    composed = net(sym.var("x"), mask=sym.var("m"))
    assert {"x", "m"} < set(composed.list_arguments())


def test_keyword_arguments_of_hybrid_forward():
    class Sum(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.weight = self.params.get("weight", shape=(1,), init="ones")

        def hybrid_forward(self, F, x, y=None, z=2.0, weight=None, *, only=0.0):
            return (x if y is None else x + y) * z * weight + only

    net = Sum()
    net.initialize()
    one = np.ones(1)
    calls = [{}, {"y": one}, {"z": one}, {"z": one, "y": one}, {"only": 1.0, "y": one}]
    expected = [net(one, **given).item() for given in calls]
    assert expected == [2, 4, 1, 2, 5]
    net.hybridize()
    assert [net(one, **given).item() for given in calls] == expected
    with pytest.raises(TypeError, match="another"):
        net(one, another=1.0)


#: Uses of a block's second parameter, and whether a gradient reaches it.
USES = {
    "nothing": (lambda a, b: a, False),
    "a result nobody uses": (lambda a, b: a + 0 * (b * 2).shape[0], False),
    "detached": (lambda a, b: a * b.detach(), False),
    "within pause": (lambda a, b: a * paused(b), False),
    "whole numbers": (lambda a, b: a + b.astype("int32"), False),
    "a condition": (lambda a, b: np.where(b > 0, a, -a), False),
    "a view within pause": (lambda a, b: a * paused(b, lambda x: x[:1]), True),
    "times 0": (lambda a, b: a + b * 0, True),
    "stopped": (lambda a, b: a * npx.stop_gradient(b), True),
}


def paused(x, function=lambda x: x * 2):
    with autograd.pause():
        return function(x)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("name", USES)
def test_a_parameter_no_result_depends_on_has_no_new_gradient(name, hybrid):
    use, reached = USES[name]

    class Net(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.a, self.b = (self.params.get(n, shape=(1,), init="ones") for n in "ab")

        def forward(self, x):
            return x * use(self.a.data(), self.b.data())

    net = Net()
    net.initialize()
    net.hybridize(hybrid)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "wd": 0.5})
    unused = np.ones(1)
    unused.attach_grad()
    unused.grad[...] = 7
    for _ in range(2):
        with autograd.record():
            loss = net(np.ones(1))
        loss.backward()
        if reached:
            trainer.step(1)
            continue
        with pytest.raises(GradientError, match="_b since the last step"):
            trainer.step(1)
        trainer.step(1, ignore_stale_grad=True)
    assert (net.b.data().item() == 1) is not reached
    assert net.a.data().item() < 1


def test_an_argument_no_result_depends_on_keeps_its_gradient():
    f = gemel.compile(lambda x, y: x * 2 if y.shape else y)
    x, y = np.ones(2), np.ones(2)
    x.attach_grad()
    y.attach_grad()
    y.grad[...] = 7
    with autograd.record():
        found = f(x, y)
    found.backward()
    assert x.grad.tolist() == [2, 2] and y.grad.tolist() == [7, 7]
    with autograd.record():
        found = f(x.detach(), y)
    with pytest.raises(GradientError, match="not computed from a variable"):
        found.backward()


@pytest.mark.parametrize("shape", [(0, 2, 3), (4, 2, 0), (0, 2)])
@pytest.mark.parametrize("hybrid", [False, True])
def test_an_empty_batch_leaves_the_running_statistics(hybrid, shape):
    net = nn.BatchNorm(in_channels=2)
    net.initialize()
    net.hybridize(hybrid)
    with autograd.record():
        net(np.array([[1.0, 2.0], [3.0, 5.0]]))
    before = [p.data().tolist() for p in (net.running_mean, net.running_var)]
    assert before[0] != [0, 0]
    for _ in range(2):
        with autograd.record():
            loss = net(np.ones(shape))
        loss.backward()
    assert [p.data().tolist() for p in (net.running_mean, net.running_var)] == before
    assert net.gamma.grad().tolist() == [0, 0]


def test_dropout_and_batch_norm_hybridized():
    net = mlp(nn.BatchNorm(momentum=0.5), nn.Dropout(0.5))
    net.initialize()
    net.hybridize()
    x = np.array([[1.0, 10.0], [3.0, 30.0]])
    with autograd.record():
        net(x)
    assert net[0].running_mean.data().tolist() == pytest.approx([1.0, 10.0])
    before = net[0].running_mean.data().tolist()
    first = net(x)
    assert first.tolist() == net(x).tolist()
    assert net[0].running_mean.data().tolist() == before


def test_plain_blocks_are_named():
    class Plain(nn.Block):
        def forward(self, x):
            return x * 2

    net = nn.Sequential()
    net.add(nn.Dense(2), Plain())
    with pytest.warns(UserWarning, match=r"1 \(Plain\).*because only HybridBlocks can") as all_:
        net.hybridize()
    assert len(all_) == 1
    assert net[0]._active
    net.initialize()
    assert net(np.ones((1, 2))).shape == (1, 2)
    with pytest.raises(BlockError, match=r"HybridSequential.*plain\d+ is a Plain"):
        mlp(nn.Dense(2), Plain())


def test_hybrid_sequential_alone_warns_of_nothing():
    net = nn.Sequential()
    net.add(mlp(), nn.Sequential())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.hybridize()


def test_hybridized_children_of_a_plain_block_compile_on_their_own():
    net = nn.Sequential()
    net.add(mlp(nn.Dense(3)), nn.Lambda(npx.relu))
    net.initialize()
    x = np.random.normal(size=(2, 4))
    expected = net(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.hybridize()
    close(net(x), expected)
    assert net[0]._own.compiled is not None


class Outputs(gluon.HybridBlock):
    """Outputs that depend on different parameters; log(0) has no finite gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.both = gluon.Parameter("both", shape=(2,))
        self.first = gluon.Parameter("first", shape=(2,))
        self.second = gluon.Parameter("second", shape=(2,))
        self.initialize(init.One())

    def forward(self, x):
        both, second = self.both.data(), self.second.data()
        return x * both * self.first.data(), np.log(both * 0) + np.log(second * 0) * x, x * second


@pytest.mark.parametrize("chosen", [[0], [1], [2], [0, 2], [1, 2], [0, 1, 2]])
@pytest.mark.parametrize("before", [False, True])
def test_outputs_backward_is_not_called_on_lead_to_no_gradient(chosen, before):
    found = []
    for hybridized in (False, True):
        net = Outputs()
        net.hybridize(hybridized)
        parameters = list(net.collect_params().values())
        x = np.array([1.0, 2.0])
        x.attach_grad()
        unused = np.array([3.0, 3.0])
        unused.attach_grad()
        for _ in range(3):
            for parameter in parameters:
                parameter.grad()[...] = 7
                parameter._mark_used()
            with autograd.record():
                outputs = net(x * unused if before else x)
            autograd.backward([outputs[index] for index in chosen])
        gradients = [p.grad().asnumpy() for p in parameters] + [x.grad.asnumpy()]
        found.append((gradients, [p.fresh_grads()[1] for p in parameters]))
    numpy.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_paths_to_other_outputs_stay_on_the_tape():
    @gemel.compile
    def pair(x, y):
        return x * 2, y * 3

    x, y = np.array([1.0]), np.array([2.0])
    x.attach_grad()
    y.attach_grad()
    with autograd.record():
        squared = y * y
        first, second = pair(x, squared)
    second.attach_grad()
    second.grad[...] = 5
    first.backward()
    assert (x.grad, y.grad, second.grad) == (2, 0, 5)
    squared.backward()
    assert y.grad == 4


def test_hooks_inside_are_called_with_arrays():
    net = nn.HybridSequential()
    net.add(nn.Dense(3, activation="relu"), nn.HybridSequential())
    net[1].add(nn.Dense(2), nn.Dense(2))
    net.initialize()
    net.hybridize()
    x = np.ones((4, 5))
    expected = net(x)
    program = net._own.compiled
    seen = []
    hook = net[1][0].register_forward_hook(lambda block, inputs, y: seen.append(y.tolist()))
    before = net[1][1].register_forward_pre_hook(lambda block, inputs: seen.append(inputs))
    for _ in range(2):
        close(net(x), expected)
    assert seen[0] == seen[1][0].tolist() == seen[2]
    assert len(seen) == 4
    hook.detach()
    before.detach()
    close(net(x), expected)
    assert len(seen) == 4
    assert net._own.compiled is program
    assert program.traces == 1  # no second compilation
    net[1].register_op_hook(lambda name, operation, array: seen.append(operation))
    net(x)
    assert len(seen) > 4


def test_hooks_in_compiled_functions_are_called_when_those_are_traced():
    net = nn.Dense(2)
    net.initialize()
    function, seen = gemel.compile(lambda x: net(x)), []
    x = np.ones((4, 5))
    expected = function(x)
    with net.register_forward_hook(lambda block, inputs, y: seen.append(y.shape)):
        for _ in range(3):
            close(function(x), expected)
    assert seen == [(4, 2)]
    close(function(x), expected)
    assert len(seen) == 1


def test_a_block_that_gives_what_is_no_result_of_a_program_runs_in_parts():
    class Named(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.inner = nn.Dense(2)

        def forward(self, x):
            return SimpleNamespace(y=self.inner(x))

    net = Named()
    net.initialize()
    x = np.ones((3, 2))
    expected = net(x).y
    net.hybridize()
    with pytest.warns(UserWarning, match="it returned a SimpleNamespace"):
        close(net(x).y, expected)
    close(net(x).y, expected)


def test_an_attribute_that_changes_in_every_step_warns_once() -> None:
    net = nn.Dense(2, in_units=2)
    net.initialize()
    net.hybridize()
    x = np.ones((1, 2))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for step in range(20):
            net.count = step
            net(x)
    (only,) = found
    assert "the attribute count" in str(only.message)
    assert only.filename == __file__
