"""`Trainer.compile`: one program does what record, backward and step do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, gluon, np, npx, optimizer
from gemel.errors import ArgumentError, GemelError, GradientError, TraceError
from gemel.gluon import nn

ROWS, COLUMNS, CLASSES = 6, 5, 3
LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


def batch(seed: int, rows: int = ROWS) -> tuple[Any, Any]:
    draw = numpy.random.default_rng(seed)
    x = draw.standard_normal((rows, COLUMNS)).astype("float32")
    return np.array(x), np.array(draw.integers(0, CLASSES, rows))


def dense() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Dense(7, activation="relu"), nn.Dense(CLASSES))
    return net


def normalized() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Dense(7), nn.BatchNorm(), nn.Activation("tanh"), nn.LayerNorm(), nn.Dense(CLASSES))
    return net


def dropped() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Dense(9, activation="relu"), nn.Dropout(0.4), nn.Dense(CLASSES))
    return net


class Twice(gluon.HybridBlock):
    """A network with a layer that is used twice, and a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Dense(COLUMNS, activation="tanh")
        self.cell = gluon.rnn.GRU(4, layout="NTC")
        self.out = nn.Dense(CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.inner(self.inner(x))
        return self.out(self.cell(np.stack([x, x * 2], axis=1)))


def begun(make: Callable[[], Any], hybrid: bool = True, dtype: str = "float32") -> Any:
    npx.random.seed(11)
    net = make()
    net.initialize(gemel.init.Xavier())
    if hybrid:
        net.hybridize()
    net(batch(0)[0])
    draw = numpy.random.default_rng(7)
    for parameter in net.collect_params().values():
        if parameter.grad_req != "null":
            value = draw.standard_normal(parameter.shape) * 0.3 + 0.1
            parameter.set_data(np.array(value.astype("float32")))
    net.cast(dtype)
    npx.random.seed(12)
    return net


def trained(net: Any, trainer: Any, way: str, steps: int = 5, **how: Any) -> list[Any]:
    """The losses, then the parameters."""
    found = []
    step = trainer.compile(lambda x, y: LOSS(net(x), y))
    for number in range(steps):
        x, y = batch(number, ROWS - (number == 3))  # one batch is smaller
        x = x.astype(how.get("dtype", "float32"))
        if way == "program":
            loss = step(x, y)
        else:
            with autograd.record():
                loss = LOSS(net(x), y)
            loss.backward()
            trainer.step(len(x))
        found.append(loss.asnumpy())
    return [*found, *(p.data().asnumpy() for p in net.collect_params().values())]


def same(one: list[Any], other: list[Any], rtol: float = 2e-5) -> None:
    for a, b in zip(one, other, strict=True):
        numpy.testing.assert_allclose(
            a.astype("float64"), b.astype("float64"), rtol=rtol, atol=rtol / 10
        )


@pytest.mark.parametrize("hybrid", [True, False])
@pytest.mark.parametrize("make", [dense, normalized, dropped, Twice])
def test_it_does_what_three_calls_do(make: Callable[[], Any], hybrid: bool) -> None:
    ways = []
    for way in ("calls", "program"):
        net = begun(make, hybrid)
        settings = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}
        trainer = gluon.Trainer(net.collect_params(), "sgd", settings)
        ways.append(trained(net, trainer, way))
    same(*ways)


#: Except `sgld`, which draws noise in each call.
OPTIMIZERS = sorted(
    kind.__name__.lower()
    for kind in map(vars(optimizer).get, optimizer.__all__)
    if isinstance(kind, type) and issubclass(kind, optimizer.Optimizer)
    if kind not in (optimizer.Optimizer, optimizer.SGLD)
)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer(name: str) -> None:
    ways = []
    for way in ("calls", "program"):
        net = begun(dense)
        net[0].weight.lr_mult = 0.5
        net[1].bias.wd_mult = 0.0
        rule = optimizer.create(
            name, wd=0.01, lr_scheduler=gemel.lr_scheduler.FactorScheduler(2, 0.7, base_lr=0.05)
        )
        ways.append(trained(net, gluon.Trainer(net.collect_params(), rule), way))
    same(*ways)


def test_weights_of_two_bytes_with_a_copy_of_four() -> None:
    ways = []
    for way in ("calls", "program"):
        net = begun(dense, dtype="float16")
        settings = {"learning_rate": 0.1, "momentum": 0.9, "multi_precision": True}
        trainer = gluon.Trainer(net.collect_params(), "sgd", settings)
        ways.append(trained(net, trainer, way, dtype="float16"))
    same(*ways, rtol=2e-3)


def test_shapes_that_only_a_forward_tells_and_what_is_given_besides_the_loss() -> None:
    net = dense()
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "adam")

    def forward(x: Any, y: Any) -> Any:
        out = net(x)
        return LOSS(out, y), {"out": out}

    step = trainer.compile(forward)
    before = None
    for number in range(3):
        x, y = batch(number)
        with autograd.pause(train_mode=False):
            wanted = net(x).asnumpy() if before is not None else None
        loss, others = step(x, y)
        assert loss.shape == (ROWS,)
        assert others["out"].shape == (ROWS, CLASSES)
        if wanted is not None:  # computed with the parameters before this step
            numpy.testing.assert_allclose(others["out"].asnumpy(), wanted, rtol=1e-5)
        before = loss


def test_both_ways_take_turns_and_states_go_to_files(tmp_path: Path) -> None:
    ways = []
    for way in ("calls", "program"):
        net = begun(dense)
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.05})
        found = trained(net, trainer, way, 2)
        trainer.save_states(tmp_path / "states")
        trainer.load_states(tmp_path / "states")  # replaces the arrays
        found += trained(net, trainer, "calls", 2)
        net[0].weight.set_data(net[0].weight.data() * 0.5)
        trainer.set_learning_rate(0.2)
        found += trained(net, trainer, way, 2)
        net.load_dict({name: p.data() * 2 for name, p in net.collect_params().items()})
        ways.append([*found, *trained(net, trainer, way, 2)])
    same(*ways)


def test_arguments_by_name() -> None:
    ways = []
    for way in ("by place", "by name"):
        net = begun(dense)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})

        def forward(x: Any, y: Any, weight: Any = 1.0, scale: float = 2.0, net: Any = net) -> Any:
            return LOSS(net(x), y) * weight * scale

        step = trainer.compile(forward)
        weights = np.arange(ROWS).astype("float32")
        found = []
        for number in range(3):
            x, y = batch(number)
            if way == "by place":
                found += [step(x, y), step(x, y, weights), step(x, y, weights, 3.0, batch_size=2)]
            else:
                found += [step(x, y=y), step(weight=weights, x=x, y=y)]
                found += [step(x, y, scale=3.0, weight=weights, batch_size=2)]
        ways.append([loss.asnumpy() for loss in found])
    same(*ways, rtol=0)
    with pytest.raises(TypeError, match="another"):
        step(x, y, another=1)


def test_arguments_that_are_given_by_name_only() -> None:
    ways = []
    for by_name in (False, True):
        net = dense()
        net.initialize(gemel.init.Constant(0.1))  # shapes are found in the first step
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})

        def forward(x: Any, *, y: Any, scale: Any = 2.0, mode: str = "a", net: Any = net) -> Any:
            return LOSS(net(x), y["one"]) * scale * (1 if mode == "a" else 2)

        step = trainer.compile(
            forward if by_name else lambda *values: forward(*values[:-1], **values[-1])
        )
        found = []
        for number in range(2):
            x, y = batch(number)
            for named in ({}, {"scale": 3.0}, {"mode": "b"}):
                named["y"] = {"one": y}
                found.append(step(x, **named) if by_name else step(x, named))
        ways.append([loss.asnumpy() for loss in found])
        weight = next(iter(net.collect_params().values())).data()
        with pytest.raises(ArgumentError, match="argument y shares memory" if by_name else "t 1 s"):
            step(x, y=weight) if by_name else step(x, {"y": weight})
    same(*ways, rtol=0)
    with pytest.raises(TypeError, match="another"):
        step(x, y={"one": y}, another=1)
    with pytest.raises(TypeError, match="'y'"):
        step(x)


def test_it_is_traced_once() -> None:
    net = begun(dense)
    calls = []

    def forward(x: Any, y: Any) -> Any:
        calls.append(x)
        return LOSS(net(x), y)

    step = gluon.Trainer(net.collect_params(), "adam").compile(forward)
    for number in range(6):
        step(*batch(number, 4 + number))
    assert len(calls) == 1


def test_programs_for_many_settings_are_kept() -> None:
    net = begun(dense)
    calls = []

    def forward(x: Any, y: Any) -> Any:
        calls.append(x)
        return LOSS(net(x), y)

    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    step = trainer.compile(forward)
    for _ in range(2):
        for clip in range(1, 13):
            trainer.optimizer.clip_gradient = clip
            step(*batch(clip))
    assert len(calls) == 12


def test_a_batch_that_fails_leaves_everything_as_it_was() -> None:
    net = begun(dense)
    table = np.arange(4.0)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1})
    step = trainer.compile(lambda x, y: (net(x) ** 2).sum(axis=1) * table[y])
    step(*batch(1))
    before = [p.data().asnumpy() for p in net.collect_params().values()]
    x, y = batch(2)
    y[1] = 9
    with pytest.raises(IndexError, match="out of bounds"):
        step(x, y).wait_to_read()
    same(before, [p.data().asnumpy() for p in net.collect_params().values()], 0)
    assert step(*batch(3)).shape == (ROWS,)


def test_an_error_of_the_function_counts_no_step() -> None:
    net = begun(dense)
    trainer = gluon.Trainer(net.collect_params(), "adam")
    step = trainer.compile(lambda x, y: LOSS(net(x), y))
    step(*batch(1))
    before = trainer.optimizer.num_update
    with pytest.raises(gemel.errors.GemelError):
        step(np.ones((ROWS, COLUMNS + 2)), batch(1)[1])
    assert trainer.optimizer.num_update == before == 1


def test_frozen_parameters_and_those_without_a_part() -> None:
    net = begun(dense)
    net[0].weight.grad_req = "null"
    step = gluon.Trainer(net.collect_params(), "sgd").compile(lambda x, y: LOSS(net(x), y))
    before = net[0].weight.data().asnumpy()
    step(*batch(1))
    assert (net[0].weight.data().asnumpy() == before).all()
    net[0].weight.grad_req = "write"
    net[1].weight.grad_req = "null"
    thawed, frozen = net[0].weight.data().asnumpy(), net[1].weight.data().asnumpy()
    step(*batch(2))
    assert (net[0].weight.data().asnumpy() != thawed).any()
    assert (net[1].weight.data().asnumpy() == frozen).all()
    net = begun(dense)
    other = begun(dense)
    both = {**net.collect_params(), **{f"other.{k}": v for k, v in other.collect_params().items()}}
    step = gluon.Trainer(both, "sgd").compile(lambda x, y: LOSS(net(x), y))
    with pytest.raises(GradientError, match="does not contribute to the loss"):
        step(*batch(1))


@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize("requests", [["write", "null", "null", "write"], ["null", "write"]])
def test_parameters_frozen_between_steps_do_not_change(requests: list[str], name: str) -> None:
    ways = []
    for way in ("calls", "program"):
        net = begun(dense)
        trainer = gluon.Trainer(net.collect_params(), name, {"learning_rate": 0.05})
        step = trainer.compile(lambda x, y, net=net: LOSS(net(x), y))
        for number, request in enumerate(requests):
            net[0].weight.grad_req = net[1].bias.grad_req = request
            x, y = batch(number)
            if way == "program":
                step(x, y)
                continue
            with autograd.record():
                loss = LOSS(net(x), y)
            loss.backward()
            trainer.step(ROWS)
        ways.append([p.data().asnumpy() for p in net.collect_params().values()])
    same(*ways)


def test_frozen_parameters_on_another_device_are_trained_again() -> None:
    parameters = [gluon.Parameter(f"p{i}", shape=(2,), init="ones") for i in range(2)]
    for number, parameter in enumerate(parameters):
        parameter.initialize(device=gemel.cpu(number))
    trainer = gluon.Trainer(parameters, "sgd", {"learning_rate": 0.5})
    parameters[1].grad_req = "null"
    for request in ("null", "write"):
        parameters[1].grad_req = request
        with autograd.record():
            losses = [p.data() * 1 for p in parameters if p.grad_req != "null"]
        autograd.backward(losses)
        trainer.step(1)
    assert (parameters[1].data().asnumpy() == 0.5).all()


def test_the_array_of_a_parameter_is_the_parameter() -> None:
    ways = []
    for way in ("calls", "program"):
        net = begun(dense)
        weight = net[0].weight.data()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

        def forward(x: Any, y: Any, net: Any = net, weight: Any = weight) -> Any:
            return LOSS(net(x), y) + (weight**2).sum()

        step = trainer.compile(forward)
        for number in range(3):
            if way == "program":
                step(*batch(number))
                continue
            with autograd.record():
                loss = forward(*batch(number))
            loss.backward()
            trainer.step(ROWS)
        ways.append([p.data().asnumpy() for p in net.collect_params().values()])
    same(*ways)


def test_arrays_that_show_parameters_are_refused() -> None:
    net = begun(dense)
    weight = net[0].weight.data()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9})
    step = trainer.compile(lambda x, y, others: LOSS(net(x), y) + others[0].sum())
    for shown in (weight, weight[:1], weight.reshape(-1)):
        with pytest.raises(ArgumentError, match="argument 2 shares memory with a parameter"):
            step(*batch(1), [shown])
    part = weight[:1]
    step = trainer.compile(lambda x, y: LOSS(net(x), y) + part.sum())
    with pytest.raises(ArgumentError, match="reads a view of a parameter"):
        step(*batch(1))


def test_running_statistics() -> None:
    """They are updated when passed as arguments; those of a block are refused as arguments."""
    ways = []
    for way in ("calls", "program"):
        net = begun(dense)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        statistics = np.zeros(CLASSES), np.ones(CLASSES)

        def forward(x: Any, y: Any, mean: Any, var: Any, net: Any = net) -> Any:
            ones = np.ones(CLASSES)
            return LOSS(npx.batch_norm(net(x), ones, ones, mean, var, momentum=0.5), y)

        step = trainer.compile(forward)
        for number in range(3):
            x, y = batch(number)
            if way == "program":
                step(x, y, *statistics)
                continue
            with autograd.record():
                loss = forward(x, y, *statistics)
            loss.backward()
            trainer.step(ROWS)
        ways.append([a.asnumpy() for a in (*statistics, net[0].weight.data())])
    same(*ways)
    net = begun(normalized)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    mean = net[1].running_mean.data()
    step = trainer.compile(lambda x, y, m: (LOSS(net(x), y), m * 1))
    for error in (TraceError, ArgumentError):
        with pytest.raises(error, match=r"overwrites|writes to"):
            step(*batch(1), mean)
        step(*batch(1), mean.copy())


def test_invalid_losses_are_named() -> None:
    net = begun(dense)
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    for wrong in (lambda x: {"loss": net(x)}, lambda x: 1.0, lambda x: None, lambda x: ()):
        with pytest.raises(ArgumentError, match="the function must return the loss"):
            trainer.compile(wrong)(batch(1)[0])
    step = trainer.compile(lambda x, y: LOSS(net(x), y))
    with pytest.raises(GemelError, match="call it outside of other compiled programs"):
        gemel.compile(lambda x, y: step(x, y))(*batch(1))
    net.setattr("grad_req", "null")
    with pytest.raises(GemelError, match="nothing can be trained"):
        step(*batch(1))


class ByHand(optimizer.Optimizer):
    """An optimizer as users of MXNet write it."""

    def create_state(self, index: Any, weight: Any) -> Any:
        return None

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        for w, g in zip(weight, grad, strict=True):
            w -= 0.1 * g


def test_steps_that_cannot_be_programs_are_refused() -> None:
    def step_of(net: Any, rule: Any = "sgd", **how: Any) -> Any:
        return gluon.Trainer(net.collect_params(), rule, **how).compile(
            lambda x, y: LOSS(net(x), y)
        )

    net = begun(dense)
    with pytest.raises(GemelError, match=r"Trainer.compile: ByHand updates arrays in Python"):
        step_of(net, ByHand())(*batch(1))
    with pytest.raises(ArgumentError, match="give batch_size="):
        step_of(net)(np.array(1.0))
    net[0].weight.grad_req = "add"
    with pytest.raises(GemelError, match="accumulates gradients"):
        step_of(net)(*batch(1))
    net[0].weight.grad_req = "write"
    net.register_op_hook(lambda *_: None)
    with pytest.raises(GemelError, match="has a hook on operations"):
        step_of(net)(*batch(1))
    net = dense()
    net.initialize(device=[gemel.cpu(0), gemel.cpu(1)])
    net(batch(0)[0])
    with pytest.raises(GemelError, match="are not all on one device"):
        step_of(net)(*batch(1))


def test_the_batch_size_is_what_gradients_are_divided_by() -> None:
    found = []
    for size in (None, ROWS, 2 * ROWS):
        net = begun(dense)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
        before = net[1].bias.data().asnumpy()
        trainer.compile(lambda x, y, net=net: LOSS(net(x), y))(*batch(1), batch_size=size)
        found.append(net[1].bias.data().asnumpy() - before)
    numpy.testing.assert_allclose(found[0], found[1])
    numpy.testing.assert_allclose(found[0], found[2] * 2, rtol=1e-4)


def _added(net: Any) -> None:
    net.add(nn.Activation("tanh"))


def _replaced(net: Any) -> None:
    net[0].act = nn.Activation("tanh")


def _constant(net: Any) -> None:
    net.scale = gluon.Constant(np.array([3.0, 1.0, 1.0]))
    net.scale.initialize()


def _removed(net: Any) -> None:
    del net._children["1"]


CHANGES = [_added, _replaced, _constant, _removed]


class Scaled(nn.HybridSequential):
    def __init__(self) -> None:
        super().__init__()
        self.add(nn.Dense(3, activation="relu"), nn.Activation("sigmoid"), nn.Dense(CLASSES))
        self.scale = gluon.Constant(np.array([1.0, 2.0, 3.0]))

    def forward(self, x: Any) -> Any:
        for layer in self:
            x = layer(x) * self.scale.data()
        return x


@pytest.mark.parametrize("hybrid", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_networks_that_change_between_steps(change: Callable[[Any], None], hybrid: bool) -> None:
    ways = []
    for way in ("calls", "program"):
        net = begun(Scaled, hybrid)
        layers, trainer = [net], gluon.Trainer(net.collect_params(), "sgd")

        def forward(x: Any, y: Any, layers: Any = layers) -> Any:
            return LOSS(layers[0](x), y)  # no parameter leads to the network

        step = trainer.compile(forward)
        found = []
        for number in range(4):
            if number == 2:
                change(net)
            x, y = batch(number)
            if way == "program":
                loss = step(x, y)
            else:
                with autograd.record():
                    loss = forward(x, y)
                loss.backward()
                trainer.step(ROWS)
            found.append(loss.asnumpy())
        ways.append(found)
    same(*ways)


def test_removed_layers_do_not_contribute_to_the_loss() -> None:
    net = begun(dense)
    step = gluon.Trainer(net.collect_params(), "sgd").compile(lambda x, y: LOSS(net(x), y))
    step(*batch(1))
    net[0].share_parameters({"weight": begun(dense)[0].weight})
    with pytest.raises(GradientError, match="does not contribute to the loss"):
        step(*batch(1))


def test_networks_that_change_between_calls_of_a_function() -> None:
    net = begun(dense)
    inner = nn.Sequential()
    inner.add(net)
    function = gemel.compile(lambda x: inner(x) * 2)
    x, _ = batch(1)
    for change in (lambda: None, lambda: net.add(nn.Activation("relu")), lambda: inner.add(net[2])):
        change()
        for _ in range(2):
            numpy.testing.assert_allclose(function(x), (inner(x) * 2).asnumpy(), rtol=1e-5)
    assert function.traces == 3


def test_a_learning_rate_that_is_not_a_number_is_refused() -> None:
    nan = float("nan")
    for setting in ("learning_rate", "wd", "clip_gradient"):
        with pytest.raises(ArgumentError, match=f"SGD: {setting} is nan"):
            optimizer.SGD(**{setting: nan})
    trainer = gluon.Trainer(begun(dense).collect_params(), "sgd")
    with pytest.raises(ArgumentError, match="lr is nan"):
        trainer.set_learning_rate(nan)
