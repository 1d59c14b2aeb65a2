"""Optimizers and Trainer, compared with the same formulas in plain Python."""

from __future__ import annotations

import pickle
import re
from math import sqrt

import numpy
import pytest

from gemel import autograd, cpu, gluon, init, lr_scheduler, metric, nd, np, optimizer
from gemel.errors import (
    ArgumentError,
    DeviceError,
    DTypeError,
    GemelError,
    GradientError,
    OperandError,
    ParameterFileError,
    ShapeError,
    UnknownNameError,
)
from gemel.gluon import Parameter

START, DIRECTION = [1.0, -2.0, 0.5], [0.3, -0.1, 2.0]


def parameter(name="weight", value=START, **settings):
    made = Parameter(name, shape=(len(value),), init="zeros", **settings)
    made.initialize()
    made.set_data(np.array(value))
    return made


def run(made, trainer, steps, batch_size=2):
    """Minimise sum(direction * w): the gradient is the direction itself."""
    for _ in range(steps):
        with autograd.record():
            loss = (made.data() * np.array(DIRECTION)).sum()
        loss.backward()
        trainer.step(batch_size)
    return made.data().tolist()


def close(found, expected):
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)


def sgd(weight, gradient, steps, rate, momentum=0.0, decay=0.0):
    running = 0.0
    for _ in range(steps):
        running = momentum * running - rate * (gradient + decay * weight)
        weight += running
    return weight


@pytest.mark.parametrize(("momentum", "wd"), [(0, 0), (0.9, 0), (0, 0.1), (0.9, 0.1)])
def test_sgd(momentum, wd):
    made = parameter()
    trainer = gluon.Trainer([made], "sgd", {"learning_rate": 0.1, "momentum": momentum, "wd": wd})
    found = run(made, trainer, 5)
    close(
        found, [sgd(w, g / 2, 5, 0.1, momentum, wd) for w, g in zip(START, DIRECTION, strict=True)]
    )


def adam(weight, gradient, steps, rate, beta1=0.9, beta2=0.999, epsilon=1e-8):
    mean = variance = 0.0
    for step in range(1, steps + 1):
        mean = beta1 * mean + (1 - beta1) * gradient
        variance = beta2 * variance + (1 - beta2) * gradient * gradient
        corrected = rate * sqrt(1 - beta2**step) / (1 - beta1**step)
        weight -= corrected * mean / (sqrt(variance) + epsilon)
    return weight


def test_adam():
    made = parameter()
    trainer = gluon.Trainer([made], "adam", {"learning_rate": 0.05})
    found = run(made, trainer, 7)
    close(found, [adam(w, g / 2, 7, 0.05) for w, g in zip(START, DIRECTION, strict=True)])


def test_clip_gradient_and_rescale():
    made = parameter()
    settings = {"learning_rate": 1.0, "clip_gradient": 0.2, "rescale_grad": 0.5}
    found = run(made, gluon.Trainer([made], "sgd", settings), 1, batch_size=1)
    clipped = [max(-0.2, min(0.2, g * 0.5)) for g in DIRECTION]
    close(found, [w - g for w, g in zip(START, clipped, strict=True)])


def test_multipliers():
    slow, plain = parameter("slow", lr_mult=0.5), parameter("plain", wd_mult=0.0)
    trainer = gluon.Trainer([slow, plain], "sgd", {"learning_rate": 0.1, "wd": 0.2})
    with autograd.record():
        loss = (slow.data() * np.array(DIRECTION) + plain.data() * np.array(DIRECTION)).sum()
    loss.backward()
    trainer.step(1)
    close(
        slow.data().tolist(),
        [w - 0.05 * (g + 0.2 * w) for w, g in zip(START, DIRECTION, strict=True)],
    )
    close(plain.data().tolist(), [w - 0.1 * g for w, g in zip(START, DIRECTION, strict=True)])


def test_the_update_is_in_place_and_follows_the_learning_rate():
    made = parameter()
    trainer = gluon.Trainer([made], "sgd", {"learning_rate": 0.1})
    array, version = made.data(), made.data().version
    run(made, trainer, 1, batch_size=1)
    assert made.data() is array
    assert array.version > version
    programs = dict(trainer.optimizer._fused.programs)
    trainer.set_learning_rate(0.01)
    assert trainer.learning_rate == 0.01
    found = run(made, trainer, 1, batch_size=1)
    assert trainer.optimizer._fused.programs == programs
    close(found, [w - 0.11 * g for w, g in zip(START, DIRECTION, strict=True)])


def test_stale_gradients_are_refused():
    used, unused = parameter("used"), parameter("unused")
    trainer = gluon.Trainer([used, unused], "sgd", {"learning_rate": 0.1})
    with autograd.record():
        loss = used.data().sum()
    loss.backward()
    for name in ("step", "update"):
        words = rf"^{name}: .*parameter unused.* call {name}\(batch_size, ignore_stale_grad=True\)"
        with pytest.raises(GradientError, match=words):
            getattr(trainer, name)(1)
    assert used.data().tolist() == START
    trainer.step(1, ignore_stale_grad=True)
    close(used.data().tolist(), [w - 0.1 for w in START])
    assert unused.data().tolist() == START
    with pytest.raises(GradientError, match="parameter used"):
        trainer.step(1)


def test_zero_grad_does_not_make_a_gradient_fresh():
    made = parameter(grad_req="add")
    trainer = gluon.Trainer([made], "sgd")
    run(made, trainer, 1)
    made.zero_grad()
    assert made.grad().tolist() == [0, 0, 0]
    with pytest.raises(GradientError):
        trainer.step(1)


def test_writes_of_users_do_not_make_a_gradient_fresh():
    used, unused = parameter("used"), parameter("unused")
    trainer = gluon.Trainer([used, unused], "sgd", {"learning_rate": 0.1})
    with autograd.record():
        loss = used.data().sum() + unused.data().sum()
    loss.backward()
    trainer.step(1)
    before = unused.data().tolist()
    with autograd.record():
        loss = used.data().sum()
    loss.backward()
    gluon.utils.clip_global_norm([used.grad(), unused.grad()], 1.0)
    unused.grad()[...] = 1
    with pytest.raises(GradientError, match="parameter unused"):
        trainer.step(1)
    trainer.step(1, ignore_stale_grad=True)
    assert unused.data().tolist() == before
    close(used.data().tolist(), [w - 0.1 - 0.1 / sqrt(3 + 3) for w in START])


def test_a_gradient_that_was_changed_stays_fresh():
    made = parameter()
    trainer = gluon.Trainer([made], "sgd", {"learning_rate": 0.1})
    with autograd.record():
        loss = made.data().sum()
    loss.backward()
    made.grad()[...] *= 2
    trainer.step(1)
    close(made.data().tolist(), [w - 0.2 for w in START])


def test_marking_a_parameter_again_keeps_what_is_known_of_its_gradient():
    made = parameter()
    trainer = gluon.Trainer([made], "sgd", {"learning_rate": 0.1})
    with autograd.record():
        loss = made.data().sum()
    autograd.mark_variables([made.data()], [made.grad()], "add")
    loss.backward()  # was recorded before the marking, with the same gradient array
    trainer.step(1)
    close(made.data().tolist(), [w - 0.1 for w in START])
    made.data().attach_grad()
    with pytest.raises(GradientError):
        trainer.step(1)


def test_frozen_parameters_stay():
    frozen, free = parameter("frozen", grad_req="null"), parameter("free")
    trainer = gluon.Trainer([frozen, free], "adam")
    with autograd.record():
        loss = (frozen.data() * free.data()).sum()
    loss.backward()
    trainer.step(1)
    assert frozen.data().tolist() == START
    assert free.data().tolist() != START


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: optimizer.create("adem"), "unknown optimizer 'adem'; did you mean 'adam'"),
        (lambda: gluon.Trainer([], "sdg"), "did you mean 'sgd'"),
        (lambda: gluon.Trainer([], "sgd", kvstore="devize"), "did you mean 'device'"),
    ],
)
def test_unknown_names_suggest_the_nearest(make, message):
    with pytest.raises(UnknownNameError, match=message):
        make()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([np.zeros(3)], "sgd"), "ndarray is not a Parameter"),
        ((gluon.nn.Dense(2), "sgd"), "Dense is not a Parameter; pass net.collect_params()"),
        ((None, "sgd"), "NoneType is not a Parameter"),
        ((gluon.Parameter("w"), optimizer.SGD(), {"learning_rate": 1}), "optimizer_params"),
        (([], "sgd", [0.1]), "optimizer_params is [0.1]; give a dictionary"),
        (([], "sgd", 0.1), "optimizer_params is 0.1; give a dictionary"),
        (([], optimizer.SGD, {"learning_rate": 1}), "the class SGD; give its name or an instance"),
    ],
)
def test_trainer_takes_parameters_and_an_optimizer(arguments, message):
    with pytest.raises(GemelError, match=re.escape(message)):
        gluon.Trainer(*arguments)


@pytest.mark.parametrize("name", ["sgd", "adam", "lamb"])
@pytest.mark.parametrize("grad", [(2,), (3, 2), (1, 2), (), (1000, 2)])
def test_a_gradient_has_the_shape_of_its_weight(name, grad):
    """A larger one was written over the weight, row by row; a smaller one was broadcast."""
    weight = np.ones((4,) if grad == (2,) else (2,))
    update = optimizer.get_updater(optimizer.create(name))
    with pytest.raises(ShapeError, match=f"(?i){name}: a gradient of shape .* for a weight of"):
        update(0, np.ones(grad), weight)
    assert weight.tolist() == [1.0] * len(weight)
    update(0, np.ones_like(weight), weight)


def test_what_an_updater_cannot_update():
    class Wider(optimizer.SGD):
        def advance(self, weight, grad, states, rates, decay):
            return weight - rates[0] * np.ones((5, 2)), []

    with pytest.raises(ShapeError, match=r"has shape \(5, 2\); it must have the same"):
        optimizer.get_updater(Wider())(0, np.ones(2), np.ones(2))
    update = optimizer.get_updater(optimizer.SGD())
    with pytest.raises(DTypeError, match="SGD: a weight of int32"):
        update(0, np.ones(2, dtype="int32"), np.ones(2, dtype="int32"))
    for weight, grad in ((numpy.ones(2), np.ones(2)), (np.ones(2), numpy.ones(2))):
        with pytest.raises(OperandError, match=r"Updater: the (weight|gradient) is of <class"):
            update(0, grad, weight)
    with pytest.raises(DeviceError, match=r"gradient is on .*, the weight on cpu\(1\)"):
        update(0, np.ones(2), np.ones(2, device=cpu(1)))
    two = [np.ones(2), np.ones(2)]
    for other in (numpy.ones(2), np.ones(2, device=cpu(1))):
        for weights, grads in (([np.ones(2), other], two), (two, [np.ones(2), other])):
            with pytest.raises((OperandError, DeviceError), match=r"the (weight|gradient) is"):
                update([0, 1], grads, weights)
    dumps = pickle.dumps
    for wrong in (b"", b"junk", None, dumps(5), dumps(None), dumps((1, 2)), dumps(({}, 2, 3))):
        with pytest.raises(ParameterFileError, match="set_states"):
            update.set_states(wrong)


@pytest.mark.parametrize("name", [*optimizer._BY_NAME])
def test_states_are_those_of_create_state(name):
    """More arrays than the rule keeps were updated with those of the next weight."""
    rule, weights = optimizer.create(name), [np.ones(2), np.ones((2, 2))]
    wanted = len(rule.create_states(weights[0]))
    least = hasattr(rule, "momentum")  # momentum without a running step is none
    for count in {0, 1, 4} - {wanted, *range(least)} if wanted else {4}:
        states = [tuple(np.zeros_like(w) for _ in range(count)) for w in weights]
        with pytest.raises(ArgumentError, match="the state of a weight consists of"):
            rule.update([0, 1], weights, weights, states)


def test_states_of_lists_and_of_narrow_weights():
    rule, weight = optimizer.Adam(multi_precision=True), np.ones(2, dtype="float16")
    for state in (None, np.ones(2), (np.ones(2),)):
        with pytest.raises(ArgumentError, match="Adam: with multi_precision the state"):
            rule.update_multi_precision(0, weight, weight, state)
    for state in (None, [], weight):
        with pytest.raises(ArgumentError, match="update: with a list of 1 indices"):
            rule.update([0], [weight], [weight], state)


def test_centered_rmsprop_of_constant_gradients_is_finite():
    """The mean square minus the squared mean is rounded to less than 0 for some of them."""
    gradients = np.array(numpy.linspace(1, 100, 500, dtype="float32"))
    weights, rule = np.zeros(500), optimizer.RMSProp(1e-3, gamma1=0.5, centered=True)
    update, old = optimizer.get_updater(rule), [nd.zeros(500) for _ in range(4)]
    for _ in range(100):
        update(0, gradients, weights)
        nd.rmspropalex_update(
            old[0], nd.array(gradients), *old[1:], lr=1e-3, gamma1=0.5, out=old[0]
        )
    assert numpy.isfinite(weights.asnumpy()).all()
    assert numpy.isfinite(old[0].asnumpy()).all()


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("sgd", "begin_num_update", 1.5),
        ("sgd", "begin_num_update", -1),
        ("lamb", "lower_bound", "a"),
        ("lans", "upper_bound", "a"),
        ("nadam", "schedule_decay", "a"),
        ("rmsprop", "clip_weights", "a"),
        ("signum", "wd_lh", float("nan")),
        ("dcasgd", "lamda", "a"),
    ],
)
def test_settings_are_numbers(name, setting, value):
    with pytest.raises(ArgumentError, match=f"(?i){name}: {setting} .*must be"):
        optimizer.create(name, **{setting: value})


def test_bounds_and_rates_are_checked():
    with pytest.raises(ArgumentError, match="LAMB: lower_bound=5 is above upper_bound=1"):
        optimizer.LAMB(lower_bound=5, upper_bound=1)
    with pytest.raises(ArgumentError, match="set_learning_rate: lr is 'a'"):
        optimizer.SGD().set_learning_rate("a")


@pytest.mark.parametrize("name", ["lr", "wd", "rescale_grad", "clip_gradient"])
def test_settings_stay_numbers(name):
    rule = optimizer.SGD()
    with pytest.raises(OperandError, match=r"SGD: \w+ must be a number, not 'a'"):
        setattr(rule, name, "a")
    with pytest.raises(ArgumentError, match="which would make all parameters NaN"):
        setattr(rule, name, float("nan"))
    setattr(rule, name, np.array(0.5))
    setattr(rule, name, 0.25)
    assert getattr(rule, name) == 0.25


def test_a_scheduler_that_is_set_later():
    rule = optimizer.SGD()
    with pytest.raises(OperandError, match="SGD: lr_scheduler must be a function"):
        rule.lr_scheduler = 5
    rule.lr_scheduler = lambda number: 0.5
    assert rule.learning_rate == 0.5


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (optimizer.SGD, "param_dict"),
        (optimizer.SGD, "param_idx2name"),
        (optimizer.SGD, "multi_precision"),
        (optimizer.AdamW, "correct_bias"),
        (optimizer.RMSProp, "centered"),
        (optimizer.LAMB, "bias_correction"),
        (optimizer.LARS, "momentum_correction"),
    ],
)
def test_settings_of_another_kind(kind, name):
    with pytest.raises(OperandError, match=f"{kind.__name__}: {name} is"):
        kind(**{name: "a"})


@pytest.mark.parametrize("wrong", [{"param_dict": 5}, {"begin_num_update": -1}, {"wd": "a"}])
def test_refused_settings_leave_the_scheduler_as_it_was(wrong):
    scheduler = lr_scheduler.FactorScheduler(2, base_lr=0.5)
    with pytest.raises(GemelError):
        optimizer.SGD(0.1, lr_scheduler=scheduler, **wrong)
    assert scheduler.base_lr == 0.5


@pytest.mark.parametrize("size", [0, -1, float("nan"), numpy.int64(0), "2", None])
@pytest.mark.parametrize("name", ["step", "update"])
def test_a_batch_size_divides(name, size):
    made = parameter(value=[1.0, 1.0])
    trainer = gluon.Trainer([made], "sgd", {"learning_rate": 1.0})
    with autograd.record():
        loss = made.data().sum()
    loss.backward()
    with pytest.raises(ArgumentError, match=f"{name}: batch_size must be a number above 0"):
        getattr(trainer, name)(size)
    getattr(trainer, name)(numpy.float32(2))
    assert made.data().tolist() == [0.5, 0.5]


def test_states_are_saved_and_loaded(tmp_path):
    file = tmp_path / "states"
    first = parameter()
    trainer = gluon.Trainer([first], "adam", {"learning_rate": 0.05})
    run(first, trainer, 3)
    trainer.save_states(file)
    second = parameter(value=first.data().tolist())
    resumed = gluon.Trainer([second], "adam", {"learning_rate": 0.05})
    resumed.load_states(file)
    close(run(second, resumed, 4), run(first, trainer, 4))
    for other in (gluon.Trainer([second], "sgd"), gluon.Trainer([second, first], "adam")):
        with pytest.raises(ParameterFileError):
            other.load_states(file)


def test_states_before_the_first_step_are_at_the_beginning_of_the_count(tmp_path):
    def begun():
        settings = {"begin_num_update": 10, "lr_scheduler": lambda step: step / 100}
        return gluon.Trainer([parameter()], "sgd", settings)

    begun().save_states(tmp_path / "states")
    trainer = begun()
    trainer.load_states(tmp_path / "states")
    assert trainer.learning_rate == 0.1


@pytest.mark.parametrize("rate", [None, "0.1"])
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_schedule_returns_numbers(name, rate):
    trainer = gluon.Trainer([parameter()], name, {"lr_scheduler": lambda step: rate})
    with pytest.raises(OperandError, match=f"lr_scheduler returned {rate!r} for update 0"):
        _ = trainer.learning_rate


@pytest.mark.parametrize("kind", [optimizer, init, metric])
def test_register_is_for_classes(kind):
    with pytest.raises(OperandError, match=r"register is for a class, not for 5; write it as @"):
        kind.register(5)


def test_a_schedule_decides_the_rate():
    made = parameter()
    rule = optimizer.SGD(lr_scheduler=lambda step: 0.1 / (1 + step))
    trainer = gluon.Trainer([made], rule)
    found = run(made, trainer, 3, batch_size=1)
    total = 0.1 / 2 + 0.1 / 3 + 0.1 / 4  # first called with 1, as in MXNet
    close(found, [w - total * g for w, g in zip(START, DIRECTION, strict=True)])
    with pytest.raises(ValueError, match="lr_scheduler"):
        trainer.set_learning_rate(1)


class Stateless(optimizer.Optimizer):
    """Keeps no state, as written for MXNet 2."""

    def create_state(self, index, weight):
        return None

    def step(self, indices, weights, grads, states):
        self._update_count(indices)
        for weight, grad, state in zip(weights, grads, states, strict=True):
            assert state is None
            weight -= self.learning_rate * self.rescale_grad * grad


@pytest.mark.parametrize("rule", ["sgd", "signum", "sgld", "stateless"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_states_of_optimizers_without_any(tmp_path, rule, dtype):
    """They are saved, loaded, moved to another device, and refused by other optimizers."""
    optimizer.register(Stateless)
    settings = {"momentum": 0.0} if rule == "signum" else {}
    settings["multi_precision"] = dtype == "float16"

    def made(rule, **settings):
        net = gluon.nn.Dense(2, in_units=3)
        net.initialize("ones")
        net.cast(dtype)
        return net, gluon.Trainer(net.collect_params(), rule, settings)

    def step(net, trainer):
        np.random.seed(1)
        with autograd.record():
            loss = net(np.ones((2, 3), dtype=dtype, device=net.weight.list_ctx()[0])).sum()
        loss.backward()
        trainer.step(4)

    path = tmp_path / "states"
    one, trainer = made(rule, **settings)
    step(one, trainer)
    trainer.save_states(path)
    other, second = made(rule, **settings)
    other.load_dict({name: p.data() for name, p in one.collect_params().items()})
    second.load_states(path)
    assert second.optimizer.num_update == 1
    other.reset_device(cpu(1))
    for net, each in ((one, trainer), (other, second)):
        step(net, each)
    assert other.weight.data().tolist() == one.weight.data().tolist()
    assert second.optimizer.num_update == 2
    for wrong in ("adam", "nag", "adagrad"):
        _, refusing = made(wrong)
        with pytest.raises(ParameterFileError, match=f"not hold the states of {wrong}"):
            refusing.load_states(path)
    update = optimizer.get_updater(optimizer.create(rule, **settings))
    weight = np.ones(3, dtype=dtype)
    update(0, weight, weight.copy())
    again = optimizer.get_updater(optimizer.create("adam"))
    again.set_states(update.get_states(dump_optimizer=True))
    again(0, weight, weight.copy())
    assert type(again.optimizer) is type(update.optimizer)
