"""`autograd.grad` in traced functions: the same values as in an imperative one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, gluon, np, npx
from gemel.errors import GradientError, NotInTraceError, ShapeError, TraceError, UnknownNameError
from gemel.gluon import nn


def slope(x: Any, w: Any) -> Any:
    with autograd.record():
        y = (x**3 * w).sum()
    return autograd.grad(y, x)


def two_slopes(x: Any, w: Any) -> Any:
    with autograd.record():
        y = np.tanh(x * w)
    gx, gw = autograd.grad([y], [x, w], [x])
    return gx + 2 * gw


def of_what_is_not_recorded(x: Any, w: Any) -> Any:
    z = x * x
    with autograd.record():
        y = (x * z * w).sum()
    return autograd.grad(y, x)


def past_a_pause(x: Any, w: Any) -> Any:
    with autograd.record():
        y = x * x
        with autograd.pause():
            c = y * x
        z = (y * c * w).sum()
    return autograd.grad(z, x)


def of_another_variable(x: Any, w: Any) -> Any:
    with autograd.record():
        y = (x * x).sum()
    return autograd.grad(y, w)


def total(x: Any, w: Any) -> Any:
    with autograd.record():
        y = x * w
        z = (y * x).sum()
        gy, gx = autograd.grad(z, [y, x], create_graph=True)
        return (gy * gx).sum()


def penalty(x: Any, w: Any) -> Any:
    with autograd.record():
        y = np.sin(x * w).sum()
        g = autograd.grad(y, x, create_graph=True)
        return y + (g * g).sum()


def penalty_between(x: Any, w: Any) -> Any:
    """Of a mixture that is a variable only inside, as in Wasserstein GANs with a penalty."""
    with autograd.record():
        mixed = 0.25 * x + 0.75 * w * x
        mixed.attach_grad()
        score = (np.tanh(mixed) * w).sum()
        g = autograd.grad(score, mixed, create_graph=True)
        return (np.sqrt((g * g).sum()) - 1) ** 2 + score


def of_a_constant_that_becomes_a_variable(x: Any, w: Any) -> Any:
    y = x * 2
    y.attach_grad()
    with autograd.record():
        z = (y * y * w).sum()
        return autograd.grad(z, y, create_graph=True).sum() + z


def third(x: Any, w: Any) -> Any:
    with autograd.record():
        y = (x**4 * w).sum()
        for _ in range(3):
            y = autograd.grad(y, x, create_graph=True).sum()
        return y


def in_a_loop(x: Any, w: Any) -> Any:
    def step(item: Any, state: Any) -> tuple[Any, Any]:
        with autograd.record():
            y = (item * state * w).sum()
        return autograd.grad(y, item), state + item

    return npx.foreach(step, np.stack([x, w]), x)[0]


def written_to(x: Any, w: Any) -> Any:
    x = x * 1
    x[0] = 4
    with autograd.record():
        y = (x**2 * w).sum()
    return autograd.grad(y, x)


FUNCTIONS = [
    slope,
    two_slopes,
    of_what_is_not_recorded,
    past_a_pause,
    of_another_variable,
    total,
    penalty,
    penalty_between,
    of_a_constant_that_becomes_a_variable,
    third,
]
TOTALS = [total, penalty, penalty_between, third]


def variables() -> tuple[Any, Any]:
    found = np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.0, 2.0])
    for x in found:
        x.attach_grad()
    return found


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("recorded", [False, True])
def test_as_imperatively(function: Callable[..., Any], recorded: bool) -> None:
    with autograd._Mode(recorded, None):
        expected = function(*variables())
        found = gemel.compile(function)(*variables())
    numpy.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("function", TOTALS)
def test_gradients_of_gradients(function: Callable[..., Any]) -> None:
    found = []
    for each in (function, gemel.compile(function)):
        x, w = variables()
        with autograd.record():
            y = each(x, w)
        y.backward()
        found.append((x.grad.tolist(), w.grad.tolist()))
    numpy.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_in_loops_and_of_what_has_been_written() -> None:
    x, w = variables()
    y, z = x.asnumpy(), w.asnumpy()
    found = gemel.compile(in_a_loop)(x, w)
    numpy.testing.assert_allclose(found, [y * z, (y + y) * z], rtol=1e-6)
    y[0] = 4
    numpy.testing.assert_allclose(gemel.compile(written_to)(x, w), 2 * y * z, rtol=1e-6)


def test_of_an_array_from_outside() -> None:
    x, w = variables()

    @gemel.compile
    def found(x: Any) -> Any:
        with autograd.record():
            y = (x * x * w).sum()
        return autograd.grad(y, w)

    assert found(x).tolist() == [1, 4, 9]
    w[:] = 0
    assert found(x + 1).tolist() == [4, 9, 16]


class Critic(nn.HybridBlock):
    """A loss with a gradient penalty on its critic: https://arxiv.org/abs/1704.00028."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.HybridSequential()
        self.body.add(nn.Dense(8, activation="tanh"), nn.LayerNorm(), nn.Dense(1))

    def forward(self, x: Any) -> Any:
        with autograd.record():
            y = self.body(x)
            g = autograd.grad(y.sum(), x, create_graph=True)
            length = np.sqrt((g * g).sum(axis=1))
            return y.mean() + 10 * ((length - 1) ** 2).mean()


def test_a_penalty_trains_a_hybridized_block_as_it_does_imperatively() -> None:
    losses = []
    for hybridized in (False, True):
        gemel.random.seed(3)
        critic = Critic()
        critic.initialize()
        if hybridized:
            critic.hybridize()
        trainer = gluon.Trainer(critic.collect_params(), "sgd", {"learning_rate": 0.001})
        for batch in (4, 4, 6):
            x = np.linspace(-1, 1, batch * 5).reshape(batch, 5)
            x.attach_grad()
            with autograd.record():
                loss = critic(x)
            loss.backward()
            trainer.step(1)
            losses.append(loss.item())
    numpy.testing.assert_allclose(losses[3:], losses[:3], rtol=1e-4)
    assert losses[1] < losses[0]


def test_wrong_use_says_what_is_wrong() -> None:
    x, _ = variables()

    with pytest.raises(UnknownNameError, match="grad_req in a hybridized function"):
        gemel.compile(lambda x: (x * 2).attach_grad("null"))(x)
    with pytest.raises(GradientError, match="attach_grad: int64"):
        gemel.compile(lambda x: x.astype("int64").attach_grad())(x)

    def unrecorded(x: Any) -> Any:
        return autograd.grad((x * x).sum(), x)

    with pytest.raises(GradientError, match="was not computed from a variable while recording"):
        gemel.compile(unrecorded)(x)

    def misshapen(x: Any) -> Any:
        with autograd.record():
            y = (x * x).sum()
        return autograd.grad(y, x, np.ones(3))

    with pytest.raises(ShapeError, match="needs a gradient of the same shape"):
        gemel.compile(misshapen)(x)

    def backwards(x: Any) -> Any:
        with autograd.record():
            y = (x * x).sum()
        y.backward()
        return x.grad

    with pytest.raises(NotInTraceError, match=r"backward at .*autograd\.grad.*Trainer\.compile"):
        gemel.compile(backwards)(x)

    kept: list[Any] = []
    gemel.compile(lambda x: kept.append(x * x) or x)(x)
    with pytest.raises(TraceError, match="stands for a value in one trace"):
        autograd.grad(kept[0], kept[0])


def test_a_loop_whose_gradient_is_asked_for_runs_once() -> None:
    def loss(x: Any, w: Any) -> Any:
        found, _ = npx.foreach(lambda a, h: (np.tanh(np.exp(a * w) + h),) * 2, x, np.zeros(3))
        return (found * found).sum()

    def step(x: Any, w: Any) -> Any:
        with autograd.record():
            y = loss(x, w)
        return y, autograd.grad(y, w)

    draw = numpy.random.default_rng(0)
    x, w = (np.array(draw.standard_normal(s).astype("float32")) for s in ((5, 3), 3))
    compiled = gemel.compile(step)
    total, slope = compiled(x, w)
    assert compiled.graph(x, w).count("loop") == 2  # forward and backward
    w.attach_grad()
    with autograd.record():
        y = loss(x, w)
    y.backward()
    assert float(total) == pytest.approx(float(y), rel=1e-6)
    numpy.testing.assert_allclose(slope.asnumpy(), w.grad.asnumpy(), rtol=1e-5)


def of_the_first(a: Any, b: Any) -> Any:
    with autograd.record():
        y = (a * a).sum() + (3 * b * b).sum()
    return autograd.grad(y, a)


def of_both(a: Any, b: Any) -> Any:
    with autograd.record():
        y = (a * a).sum() + (3 * b * b).sum()
        first, second = autograd.grad(y, [a, b], create_graph=True)
        return first, second, autograd.grad((first * b).sum(), a)


@pytest.mark.parametrize("function", [of_the_first, of_both])
@pytest.mark.parametrize("way", ["an argument twice", "closed over", "in a list", "all of it"])
def test_an_array_is_one_variable_by_whatever_name(function: Callable[..., Any], way: str) -> None:
    x, other = variables()

    def called(a: Any, b: Any) -> Any:
        found = function(a, x if way == "closed over" else b[0] if way == "in a list" else b)
        return np.stack(found) if isinstance(found, tuple) else found

    compiled = gemel.compile(called)
    given = {"in a list": [x], "all of it": x[:]}.get(way, x)
    for a, b in [(x, given), (other, given), (x, given), (other, given), (x, given)]:
        numpy.testing.assert_allclose(compiled(a, b), called(a, b), rtol=1e-6)
    assert compiled.traces == 2


def test_a_parameter_given_as_an_argument_is_the_parameter() -> None:
    net = nn.Dense(2, in_units=3, use_bias=False)
    net.initialize()
    net.hybridize()
    x = np.ones((4, 3))

    def called(w: Any, x: Any) -> Any:
        with autograd.record():
            y = (net(x) ** 2).sum() + (w**3).sum()
        return autograd.grad(y, w)

    weight = net.weight.data()
    compiled = gemel.compile(called)
    expected = 3 * weight * weight
    apart = compiled(weight.copy(), x)
    numpy.testing.assert_allclose(apart, expected, rtol=1e-5)
    for _ in range(2):
        numpy.testing.assert_allclose(compiled(weight, x), called(weight, x), rtol=1e-5)
        numpy.testing.assert_allclose(compiled(weight.copy(), x), expected, rtol=1e-5)


def test_gradients_that_would_go_on_outside_are_refused() -> None:
    x, _ = variables()
    with autograd.record():
        computed = x * 2
    for first, second in [(x, x[:2]), (x[:2], x), (x, x.reshape(3, 1)), (x, computed)]:
        compiled = gemel.compile(of_the_first)
        compiled(np.zeros(first.shape), np.zeros(second.shape))
        with pytest.raises(GradientError, match="of the same array or computed from it"):
            compiled(first, second)
    w = np.arange(6).reshape(3, 2).astype("float32")
    w.attach_grad()
    for first, second in [(x, x.detach()), (x[:2], x[2:]), (computed, x), (w[:, 0], w[:, 1])]:
        expected = (2 * first).tolist()
        assert gemel.compile(of_the_first)(first, second).tolist() == expected


def times_what_it_was(x: Any, y: Any) -> Any:
    with autograd.record():
        z = x * 1
        z *= y
        z[1:] = z[1:] * z[1:]
        total = (z * z).sum()
    return autograd.grad(total, [x, y])


def written_after_it_was_read(x: Any, y: Any) -> Any:
    with autograd.record():
        z = x * 1
        total = z * y
        z *= 5
        return [*autograd.grad(total, [x, y], create_graph=True), z]


def gradient_written_to(x: Any, y: Any) -> Any:
    with autograd.record():
        z = x * 1
        found = autograd.grad(z * y, [z, y], create_graph=True)
        found[0] *= 5
        found += autograd.grad(z + y, [z, y], head_grads=z, create_graph=True)
        found[2] *= 7
    return [*found, z]


@pytest.mark.parametrize(
    "function", [times_what_it_was, written_after_it_was_read, gradient_written_to]
)
def test_gradients_read_what_was_there(function: Callable[..., Any]) -> None:
    x, y = variables()
    expected = function(x, y)
    for found, value in zip(gemel.compile(function)(x, y), expected, strict=True):
        numpy.testing.assert_allclose(found, value, rtol=1e-6)


def test_calls_of_one_function_follow_which_arrays_are_one() -> None:
    """Also when the plan for arrays of these shapes is known."""

    def first(x: Any, y: Any) -> Any:
        with autograd.record():
            total = (x * x * y).sum()
        return autograd.grad(total, [x])[0]

    compiled = gemel.compile(first)
    a, b = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    for _ in range(4):
        assert compiled(a, b).tolist() == [6.0, 16.0]
        assert compiled(a, a).tolist() == [3.0, 12.0]
        assert compiled(b, a).tolist() == [6.0, 16.0]
    assert compiled.traces == 2


# --- writes while recording is off ------------------------------------------------------------


def _whole(z: Any, x: Any) -> None:
    z *= 2


def _part(z: Any, x: Any) -> None:
    z[0] = 5


def _view(z: Any, x: Any) -> None:
    part = z[1:]
    part *= 3


def _recorded_value(z: Any, x: Any) -> None:
    z[:] = x


def _twice(z: Any, x: Any) -> None:
    z += 1
    z[1:] = 7


@pytest.mark.parametrize("write", [_whole, _part, _view, _recorded_value, _twice])
@pytest.mark.parametrize("target", ["computed", "argument", "constant"])
def test_writes_while_recording_is_off_change_values_only(write: Any, target: str) -> None:
    """Gradients arrive at what was there before: imperative and compiled, whole and inside."""

    def function(x: Any, w: Any) -> Any:
        z = {"computed": x * 3, "argument": x, "constant": np.ones(3)}[target]
        with autograd.pause():
            write(z, x)
        return z * w

    found = []
    for way in (function, gemel.compile(function)):
        x, w = variables()
        with autograd.record():
            y = way(x, w)
        y.backward()
        found.append([a.asnumpy().tolist() for a in (y, x.grad, w.grad)])
    assert found[0] == found[1]

    def inside(x: Any, w: Any) -> Any:
        with autograd.record():
            y = function(x, w)
        return autograd.grad(y, [x, w])

    if target != "argument":
        x, w = variables()
        slopes = gemel.compile(inside)(x, w)
        assert [a.asnumpy().tolist() for a in slopes] == found[0][1:]


def _after_its_use(x: Any) -> Any:
    with autograd.record():
        y = (x * 3).sum()
        with autograd.pause():
            x *= 5
    return autograd.grad(y, [x])


def _outside_of_the_recording(x: Any) -> Any:
    with autograd.record():
        y = (x * 3).sum()
    x[0] = 5
    return autograd.grad(y, [x])


def _between_its_uses(x: Any) -> Any:
    with autograd.record():
        z = x * 1
        y = (z * 2).sum()
        z *= 2  # another variable from here on
        y = y + (z * 7).sum()
        with autograd.pause():
            z[0] = 5
            z += 1
        y = y + (z * 1.5).sum()
    return autograd.grad(y, [z, x])


@pytest.mark.parametrize("function", [_after_its_use, _outside_of_the_recording, _between_its_uses])
def test_variables_that_were_overwritten_while_recording_is_off(function: Any) -> None:
    """They are the same variables as before: all their uses count."""
    expected, found = function(variables()[0]), gemel.compile(function)(variables()[0])
    for one, other in zip(found, expected, strict=True):
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("recorded", [False, True])
def test_gradients_of_heads_that_have_been_overwritten(whole: bool, recorded: bool) -> None:
    def function(x: Any) -> Any:
        with autograd.record():
            z = x * 1
            y, g = z * 2, x * 1
            part = g if whole else g[1:]
            with autograd.record() if recorded else autograd.pause():
                g *= 3
            y = y if whole else y[1:]
        return autograd.grad(y, z, head_grads=part)

    x, _ = variables()
    assert gemel.compile(function)(x).tolist() == [6.0 if whole else 0.0, 12.0, 18.0]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_steps_whose_function_overwrites_a_parameter_that_it_has_used(optimizer: str) -> None:
    def trained(compiled: bool) -> Any:
        net = nn.Dense(1, in_units=2, use_bias=False)
        net.initialize()
        net.weight.set_data(np.array([[1.0, 2.0]]))
        settings = {"learning_rate": 0.125}
        trainer = gluon.Trainer(net.collect_params(), optimizer, settings, kvstore=None)

        def loss(x: Any) -> Any:
            y = net(x).sum()
            with autograd.pause():
                net.weight.data()[:] = net.weight.data() * 0.5
            return y

        x = np.ones((1, 2))
        if compiled:
            trainer.compile(loss)(x, batch_size=1)
        else:
            with autograd.record():
                y = loss(x)
            y.backward()
            trainer.step(1)
        return net.weight.data()

    expected = trained(False)
    assert expected[0, 0] < 0.45
    numpy.testing.assert_allclose(trained(True), expected, rtol=1e-6)
