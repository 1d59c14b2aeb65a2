"""Optimizers compared with their formulas in float64, and what is required of all of them."""

from __future__ import annotations

import pickle
import warnings
from math import sqrt

import numpy
import pytest

from gemel import autograd, cpu, gluon, np, optimizer
from gemel.errors import GemelError, ParameterFileError, ShapeError, UnknownKeywordError
from gemel.gluon import Parameter
from gemel.optimizer import Optimizer

EVERY = sorted(optimizer._BY_NAME)
STEPS = 5
random = numpy.random.RandomState(3)
START = random.randn(6)
GRADS = random.randn(STEPS, 6)
RATE, DECAY, CLIP, RESCALE = 0.05, 0.1, 0.8, 0.7
SETTINGS = {
    "learning_rate": RATE,
    "wd": DECAY,
    "clip_gradient": CLIP,
    "rescale_grad": RESCALE,
}


def clip(x):
    return numpy.clip(x, -CLIP, CLIP)


def norm(x):
    return numpy.sqrt((x * x).sum())


def sgd(momentum=0.0, ahead=False):
    """A formula: a function of (step, weight, gradient, kept states) that gives the new weight."""

    def step(t, w, g, kept):
        g = clip(RESCALE * g) + DECAY * w
        kept["v"] = momentum * kept.get("v", 0) - RATE * g
        return w + (momentum * kept["v"] - RATE * g if ahead else kept["v"])

    return step


def adam(beta1=0.9, beta2=0.999, eps=1e-8, kind="adam"):
    def step(t, w, g, kept):
        rate = RATE * sqrt(1 - beta2**t) / (1 - beta1**t)
        if kind == "adam":
            g = clip(RESCALE * g + DECAY * w)
        else:
            g = clip(RESCALE * g) + (DECAY * w if kind == "adabelief" else 0)
        m = kept["m"] = beta1 * kept.get("m", 0) + (1 - beta1) * g
        wide = g - m if kind == "adabelief" else g
        v = kept["v"] = beta2 * kept.get("v", 0) + (1 - beta2) * wide**2
        if kind == "adabelief":
            v = kept["v"] = v + eps
        return w - rate * (m / (numpy.sqrt(v) + eps) + (DECAY * w if kind == "adamw" else 0))

    return step


def adagrad(t, w, g, kept):
    g = clip(RESCALE * g)
    kept["h"] = kept.get("h", 0) + g * g
    return w - RATE * (g / numpy.sqrt(kept["h"] + 1e-7) + DECAY * w)


def rmsprop(t, w, g, kept):
    g = clip(RESCALE * g + DECAY * w)
    kept["n"] = 0.9 * kept.get("n", 0) + 0.1 * g * g
    return w - RATE * g / numpy.sqrt(kept["n"] + 1e-8)


def nadam(t, w, g, kept):
    def mu(i):
        return 0.9 * (1 - 0.5 * 0.96 ** (i * 0.004))

    g = clip(RESCALE * g + DECAY * w)
    product = numpy.prod([mu(i) for i in range(1, t + 1)])
    m = kept["m"] = 0.9 * kept.get("m", 0) + 0.1 * g
    v = kept["v"] = 0.999 * kept.get("v", 0) + 0.001 * g * g
    bar = (1 - mu(t)) * g / (1 - product) + mu(t + 1) * m / (1 - product * mu(t + 1))
    return w - RATE * bar / (numpy.sqrt(v / (1 - 0.999**t)) + 1e-8)


def dcasgd(t, w, g, kept):
    g, before = clip(RESCALE * g), kept.get("w", w)
    step = -RATE * (g + DECAY * w + 0.04 * g * g * (w - before))
    kept["v"] = 0.9 * kept.get("v", 0) + step
    kept["w"] = w
    return w + kept["v"]


def lars(t, w, g, kept):
    g = RESCALE * g
    trust = 0.001 * norm(w) / (norm(g) + DECAY * norm(w))
    kept["v"] = 0.9 * kept.get("v", 0) - RATE * trust * (clip(g) + DECAY * w)
    return w + kept["v"]


def lans(t, w, g, kept):
    g = RESCALE * g
    g = clip(g / norm(g))
    m = kept["m"] = 0.9 * kept.get("m", 0) + 0.1 * g
    v = kept["v"] = 0.999 * kept.get("v", 0) + 0.001 * g * g
    below = numpy.sqrt(v / (1 - 0.999**t)) + 1e-6
    new = w
    for share, along in ((0.9, m / (1 - 0.9**t)), (0.1, g)):
        d = along / below + DECAY * w
        new = new - RATE * share * norm(w) / norm(d) * d
    return new


FORMULAS = [
    ("sgd", {}, sgd()),
    ("sgd", {"momentum": 0.9}, sgd(0.9)),
    ("nag", {"momentum": 0.9}, sgd(0.9, ahead=True)),
    ("adam", {}, adam()),
    ("adamw", {}, adam(eps=1e-6, kind="adamw")),
    ("adabelief", {}, adam(eps=1e-6, kind="adabelief")),
    ("nadam", {}, nadam),
    ("adagrad", {}, adagrad),
    ("adagrad", {"epsilon": 1e-7}, adagrad),
    ("rmsprop", {}, rmsprop),
    ("rmsprop", {"rho": 0.9, "momentum": 0.5}, rmsprop),
    ("dcasgd", {"momentum": 0.9}, dcasgd),
    ("lars", {"momentum": 0.9}, lars),
    ("lans", {}, lans),
]


@pytest.mark.parametrize(("name", "settings", "formula"), FORMULAS)
def test_formula(name, settings, formula):
    rule = optimizer.create(name, **SETTINGS, **settings)
    update = optimizer.get_updater(rule)
    weights = [np.array(START, dtype="float64"), np.array(START[:2], dtype="float64")]
    expected, kept = START, {}
    for t, grad in enumerate(GRADS, 1):
        # A second parameter in the same call makes no difference.
        grads = [np.array(grad, dtype="float64"), np.array(grad[:2], dtype="float64")]
        update([0, 1], grads, weights)
        expected = formula(t, expected, grad, kept)
        numpy.testing.assert_allclose(weights[0].asnumpy(), expected, rtol=1e-12)


def test_noise_of_sgld():
    np.random.seed(4)
    rule = optimizer.SGLD(learning_rate=0.04)
    weight, grad = np.zeros(20000), np.ones(20000)
    state = rule.create_state(0, weight)
    rule.update(0, weight, grad, state)
    found = weight.asnumpy()
    assert found.mean() == pytest.approx(-0.02, abs=0.005)
    assert found.std() == pytest.approx(0.2, rel=0.03)
    rule.update(0, weight, grad, state)
    assert abs(numpy.corrcoef(found, weight.asnumpy() - found)[0, 1]) < 0.05, "new noise each time"
    assert len(rule._fused.programs) == 1


def test_a_gradient_of_zeros_is_no_division_by_zero():
    for name in EVERY:
        if name == "sgld":
            continue
        rule = optimizer.create(name)
        weight = np.array([1.0, 2.0])
        optimizer.get_updater(rule)(0, np.zeros(2), weight)
        assert numpy.isfinite(weight.asnumpy()).all(), name


# --- what is asked of all of them --------------------------------------------------------------


def parameter(name="weight", value=START, dtype="float32", **settings):
    made = Parameter(name, shape=(len(value),), init="zeros", dtype=dtype, **settings)
    made.initialize()
    made.set_data(np.array(value, dtype=dtype))
    return made


def train(parameters, trainer, steps=3):
    for _ in range(steps):
        with autograd.record():
            loss = sum((np.square(p.data()) * 0.5).sum() for p in parameters)
        loss.backward()
        trainer.step(1)
    return [p.data().asnumpy() for p in parameters]


@pytest.mark.parametrize("name", EVERY)
def test_rates_and_schedules_compile_nothing(name):
    made = [parameter("a"), parameter("b", START[:3], lr_mult=0.5)]
    rates = iter([0.1, 0.05, 0.02, 0.01] * 2)
    settings = {"lr_scheduler": lambda step: next(rates), "wd": 0.01}
    if name in ("lamb", "lans", "lars"):
        settings["momentum" if name == "lars" else "beta1"] = 0.8
    trainer = gluon.Trainer(made, name, settings)
    train(made, trainer, 4)
    rule = trainer.optimizer
    assert len(rule._fused.programs) == 1
    (program,) = rule._fused.programs.values()
    assert len(program._plans) == 1


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", EVERY)
def test_states_are_saved_and_loaded(name, dtype, tmp_path):
    settings = {"wd": 0.01, "learning_rate": 0.05, "multi_precision": True}
    settings |= {"momentum": 0.9} if name in ("sgd", "nag", "lars", "dcasgd") else {}
    settings |= {"centered": True} if name == "rmsprop" else {}
    first = parameter(dtype=dtype)
    trainer = gluon.Trainer([first], name, settings)
    train([first], trainer)
    trainer.save_states(tmp_path / "states")
    second = parameter(value=first.data().tolist(), dtype=dtype)
    resumed = gluon.Trainer([second], name, settings)
    resumed.load_states(tmp_path / "states")
    for made, its in ((first, trainer), (second, resumed)):
        np.random.seed(1)
        train([made], its, 2)
    assert first.data().tolist() == second.data().tolist()


@pytest.mark.parametrize("name", ["adam", "ftml", "lamb", "lars", "nadam", "sgld"])
def test_replicas_on_two_devices_stay_the_same(name):
    found = []
    for devices in ([cpu(0)], [cpu(0), cpu(1)]):
        np.random.seed(2)
        made = Parameter("weight", shape=(6,), init="ones")
        made.initialize(ctx=devices)
        trainer = gluon.Trainer([made], name, {"learning_rate": 0.05})
        for _ in range(3):
            with autograd.record():
                sums = [np.square(made.data(d)).sum() / len(devices) for d in devices]
            for one in sums:
                one.backward()
            trainer.step(1)
        found += [made.data(d).tolist() for d in devices]
    assert found[1] == found[2]
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_states_for_other_settings_are_refused(tmp_path):
    made = parameter()
    trainer = gluon.Trainer([made], "sgd", {"momentum": 0.9})
    train([made], trainer, 1)
    trainer.save_states(tmp_path / "states")
    other = gluon.Trainer([made], "sgd")
    other.load_states(tmp_path / "states")
    before = made.data().tolist()
    with pytest.raises(ParameterFileError, match="keeps 0 arrays"):
        train([made], other, 1)
    assert made.data().tolist() == before


@pytest.mark.parametrize(("dtype", "rtol"), [("float16", 3e-3), ("bfloat16", 2e-2)])
@pytest.mark.parametrize("name", [n for n in EVERY if n not in ("sgld", "test")])
def test_narrow_weights_with_float32_masters(name, dtype, rtol):
    settings = {"multi_precision": True, "learning_rate": 0.05, "wd": 0.1}
    half, whole = parameter(dtype=dtype), parameter()
    whole.set_data(half.data().astype("float32"))
    trainer = gluon.Trainer([half], name, settings)
    (found,) = train([half], trainer, 1)
    (expected,) = train([whole], gluon.Trainer([whole], name, settings), 1)
    assert half.data().dtype == dtype
    # The tolerance is the weights', because the gradients were of their dtype, too.
    numpy.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol / 3)
    updater = optimizer.Updater(trainer.optimizer)
    master, _ = updater.state(0, half.data())
    assert master.dtype == "float32" and master.tolist() == half.data().tolist()


@pytest.mark.filterwarnings("ignore:.*states in float16")
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("dtypes", [("float16", "float32"), ("float32", "float16")])
@pytest.mark.parametrize("name", [n for n in EVERY if n not in ("sgld", "test")])
def test_states_go_on_when_the_weights_are_cast(name, dtypes, moved):
    settings = {"multi_precision": True, "learning_rate": 0.05}
    settings |= {"momentum": 0.9} if name in ("sgd", "nag", "lars", "dcasgd") else {}
    found, whole = parameter(dtype=dtypes[0]), parameter()
    whole.set_data(found.data().astype("float32"))
    trainer, other = (gluon.Trainer([made], name, settings) for made in (found, whole))
    for dtype in (*dtypes, dtypes[0]):
        found.cast(dtype)
        if moved:  # the states are created again on each new device
            found.reset_ctx(cpu(1) if found.homes == [cpu(0)] else cpu(0))
        for made, its in ((found, trainer), (whole, other)):
            with autograd.record():
                loss = (made.data() * np.array(GRADS[0], dtype=made.dtype, ctx=made.homes[0])).sum()
            loss.backward()
            its.step(1)
    numpy.testing.assert_allclose(found.data().asnumpy(), whole.data().asnumpy(), rtol=3e-3)


def test_a_saved_state_fits_the_weight_it_is_loaded_for(tmp_path):
    settings = {"multi_precision": True, "momentum": 0.9}
    made = parameter(dtype="float16")
    trainer = gluon.Trainer([made], "sgd", settings)
    train([made], trainer, 1)
    trainer.save_states(tmp_path / "states")
    trainer.load_states(tmp_path / "states")
    made.cast("float32")
    with pytest.raises(ParameterFileError, match="keeps 1 arrays"):
        train([made], trainer, 1)
    made.cast("float16")
    train([made], trainer, 1)


@pytest.mark.parametrize(("dtype", "rate"), [("float16", 1e-5), ("bfloat16", 2e-4)])
def test_small_steps_are_not_lost_with_a_master(dtype, rate):
    rule = optimizer.SGD(learning_rate=rate, multi_precision=True)
    update, weight = optimizer.get_updater(rule), np.ones(1, dtype=dtype)
    for _ in range(100):
        update(0, np.ones(1, dtype=dtype), weight)
    assert weight.item() == pytest.approx(1 - 100 * rate, abs=50 * rate)
    with pytest.warns(UserWarning, match=f"states in {dtype} .* multi_precision=True"):
        optimizer.get_updater(optimizer.SGD())(0, np.ones(1, dtype=dtype), weight)


@pytest.mark.parametrize("name", [n for n in EVERY if n not in ("adadelta", "test")])
def test_nothing_moves_at_a_learning_rate_of_0(name):
    made, rates = parameter(), [0.1, 0.0, 0.0, 0.1]
    trainer = gluon.Trainer([made], name, {"lr_scheduler": lambda update: rates[update - 1]})
    first, second, third, last = (train([made], trainer, 1)[0].tolist() for _ in rates)
    assert first == second == third != last and numpy.isfinite(last).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [n for n in EVERY if n != "test"])
def test_states_end_at_0_where_gradients_stay_0(name, dtype):
    """Not among the numbers that are too small to be normal, which are slow to multiply."""
    momentum = {"momentum": 0.5} if name in ("sgd", "nag", "signum", "lars", "dcasgd") else {}
    update = optimizer.get_updater(optimizer.create(name, wd=0.0, **momentum))
    weight, grad = np.ones(3, dtype=dtype), np.array([1e-3, -1e-9, 0.0], dtype=dtype)
    update(0, grad, weight)
    tiny = numpy.finfo(dtype).tiny
    for _ in range(1100):
        update(0, grad * 0, weight)
        states = update.states[0]
        for state in states if isinstance(states, (list, tuple)) else [states]:
            if state is not None:
                sizes = numpy.abs(state.asnumpy())
                assert ((sizes == 0) | (sizes >= tiny)).all()
    assert numpy.isfinite(weight.asnumpy()).all()


# --- users' own --------------------------------------------------------------------------------


class Halving(Optimizer):
    """An optimizer in gemel's style."""

    def __init__(self, part=0.5, **settings):
        super().__init__(**settings)
        self.part = part

    def create_states(self, weight):
        return [np.zeros_like(weight)]

    def advance(self, weight, grad, states, rates, decay):
        return weight - rates[0] * self.part * grad, [states[0] + 1]


class ByHand(Optimizer):
    """An optimizer in MXNet 1's style."""

    def __init__(self, part=0.5, **settings):
        super().__init__(**settings)
        self.part = part

    def create_state(self, index, weight):
        return (np.zeros_like(weight), None)

    def update(self, index, weight, grad, state):
        self._update_count(index)
        rate = self._get_lr(index)
        weight[:] -= rate * self.part * self.rescale_grad * grad + self._get_wd(index) * weight
        state[0][:] += 1


class ByStep(ByHand):
    """An optimizer in MXNet 2's style."""

    update = Optimizer.update

    def step(self, indices, weights, grads, states):
        for index, weight, grad, state in zip(indices, weights, grads, states, strict=True):
            ByHand.update(self, index, weight, grad, state)


@pytest.mark.parametrize("kind", [Halving, ByHand, ByStep])
def test_optimizers_of_users(kind, tmp_path):
    optimizer.register(kind)
    made = parameter(lr_mult=0.5)
    trainer = gluon.Trainer([made], kind.__name__, {"learning_rate": 0.2, "part": 0.25})
    (found,) = train([made], trainer, 2)
    numpy.testing.assert_allclose(found, START * (1 - 0.2 * 0.5 * 0.25) ** 2, rtol=1e-6)
    trainer.save_states(tmp_path / "states")
    other = gluon.Trainer([made], kind(learning_rate=0.2, part=0.25))
    other.load_states(tmp_path / "states")
    train([made], other, 1)
    other.save_states(tmp_path / "more")
    assert other.optimizer.num_update == 3
    with pytest.raises(UnknownKeywordError, match="did you mean 'part'"):
        kind(parts=1)


def test_a_subclass_may_change_one_thing():
    class Louder(optimizer.SGD):
        def update(self, index, weight, grad, state):
            super().update(index, weight, grad * 2, state)

    half = parameter(dtype="float16")
    trainer = gluon.Trainer([half], Louder(learning_rate=0.1, multi_precision=True))
    (found,) = train([half], trainer, 1)
    numpy.testing.assert_allclose(found, START * 0.8, rtol=2e-3)


def test_multipliers_by_name_and_index():
    names = {0: "a_weight", 1: "a_bias"}
    rule = optimizer.SGD(learning_rate=1.0, wd=0.5, param_idx2name=names)
    assert [rule._get_wd(i) for i in (0, 1)] == [0.5, 0.0]
    rule.set_lr_mult({"a_weight": 0.1})
    rule.set_wd_mult({1: 2.0})
    assert rule._get_lrs([0, 1]) == [0.1, 1.0]
    assert rule._get_wds([0, 1]) == [0.5, 1.0]


def test_a_setting_that_changes_is_another_program():
    rule, weight = optimizer.SGD(learning_rate=1.0, momentum=numpy.float32(0.5)), np.zeros(1)
    update = optimizer.get_updater(rule)
    update(0, np.ones(1), weight)
    rule.momentum = numpy.float32(0.25)
    update(0, np.ones(1), weight)
    assert weight.item() == -1 - 1.25
    assert len(rule._fused.programs) == 2


def test_views_are_updated_where_they_are():
    whole, rows = np.ones((3, 4)), np.ones((4, 2))
    for weight, grad in ((whole[:, 1:3], np.ones((2, 3)).T), (rows[1:], np.ones((3, 2)))):
        optimizer.get_updater(optimizer.SGD(learning_rate=0.5))(0, grad, weight)
    assert whole.tolist() == [[1.0, 0.5, 0.5, 1.0]] * 3
    assert rows.tolist() == [[1.0, 1.0]] + [[0.5, 0.5]] * 3


def test_bad_input():
    rule, weight = optimizer.SGD(momentum=0.9), np.ones(3)
    update = optimizer.get_updater(rule)
    with pytest.raises(ShapeError, match=r"shape \(4,\) for a weight of shape \(3,\)"):
        update(0, np.ones(4), weight)
    assert weight.tolist() == [1.0] * 3 and rule.num_update == 0
    with pytest.raises(GemelError, match="2 indices, 1 gradients"):
        update([0, 1], [np.ones(3)], [weight])
    for settings in ({"learning_rate": "fast"}, {"wd": None}, {"lr_scheduler": 0.1}):
        with pytest.raises(TypeError, match=f"SGD: {next(iter(settings))} must be"):
            optimizer.create("sgd", **settings)


def test_lars_leaves_biases_alone():
    rule = optimizer.LARS(learning_rate=0.1, eta=0.01, param_idx2name={0: "weight", 1: "bias"})
    weights = [np.ones(4), np.ones(4)]
    optimizer.get_updater(rule)([0, 1], [np.ones(4), np.ones(4)], weights)
    numpy.testing.assert_allclose(weights[0].asnumpy(), 1 - 0.1 * 0.01, rtol=1e-6)
    numpy.testing.assert_allclose(weights[1].asnumpy(), 0.9, rtol=1e-6)


def test_a_learning_rate_replaces_that_of_the_scheduler():
    from gemel import lr_scheduler

    scheduler = lr_scheduler.FactorScheduler(step=10, factor=0.5, base_lr=0.4)
    assert optimizer.SGD(lr_scheduler=scheduler).learning_rate == 0.4
    with pytest.warns(UserWarning, match="replaced"):
        rule = optimizer.SGD(learning_rate=0.1, lr_scheduler=scheduler)
    assert rule.learning_rate == scheduler.base_lr == 0.1
    scheduler.base_lr = 0.5
    parameter = gluon.Parameter("w", shape=(2,), dtype="float16")
    parameter.initialize()
    with pytest.warns(UserWarning) as warned:
        trainer = gluon.Trainer([parameter], "nadam", {"lr_scheduler": scheduler})
        with autograd.record():
            parameter.data().sum().backward()
        trainer.step(1)
    texts = [str(each.message) for each in warned]
    assert "0.5, is replaced by the learning_rate of Nadam, 0.001" in texts[0]
    assert "float16" in texts[1]
    assert {each.filename for each in warned} == {__file__}


def test_updaters_and_optimizers_are_pickled():
    rule = optimizer.Adam(learning_rate=0.1)
    first, weight = optimizer.get_updater(rule), np.array(START)
    first(0, np.ones(6), weight)
    second, copy = optimizer.get_updater(optimizer.Adam()), weight.copy()
    second.set_states(first.get_states(dump_optimizer=True))
    first(0, np.ones(6), weight)
    second(0, np.ones(6), copy)
    assert weight.tolist() == copy.tolist()
    assert pickle.loads(pickle.dumps(rule)).num_update == 2


def test_unknown_settings_suggest_the_nearest():
    with pytest.raises(UnknownKeywordError, match="did you mean 'momentum'"):
        optimizer.create("sgd", momentun=0.9)
    with pytest.raises(UnknownKeywordError, match="did you mean 'rescale_grad'"):
        gluon.Trainer([], "adam", {"rescale_grads": 0.9})


def test_accepted_for_old_code():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in EVERY:
            rule = optimizer.create(name, aggregate_num=4, use_fused_step=True, sym=None)
            assert name in repr(rule).lower()
    assert isinstance(Optimizer.create_optimizer("sgd", lazy_update=False), optimizer.SGD)
