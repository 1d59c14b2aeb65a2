"""MXNet's rarer optimizer steps, compared with their papers' formulas written in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

from gemel import nd

W, G = numpy.array([[0.5, -1.5], [2.0, 0.25]]), numpy.array([[0.3, -4.0], [0.0, 1.0]])
A, B, C = (numpy.array([[0.1, 0.2], [0.3, 0.4]]) * n for n in (1.0, 2.0, 0.5))
COMMON = {"wd": 0.05, "rescale_grad": 0.5}
LIMITED = numpy.clip(G * 0.5, -1, 1)
DECAYED = numpy.clip(G * 0.5 + 0.05 * W, -1, 1)


def ftrl(z: Any, n: Any) -> tuple[Any, ...]:
    more = n + LIMITED**2
    z = z + LIMITED - (numpy.sqrt(more) - numpy.sqrt(n)) / 0.1 * W
    step = (numpy.sign(z) * 0.2 - z) / ((1.5 + numpy.sqrt(more)) / 0.1 + 0.05)
    return step * (abs(z) > 0.2), z, more


def ftml(d: Any, v: Any, z: Any) -> tuple[Any, ...]:
    v = 0.9 * v + 0.1 * DECAYED**2
    new = (1 - 0.6**3) / 0.1 * (numpy.sqrt(v / (1 - 0.9**3)) + 1e-3)
    z = 0.6 * z + 0.4 * DECAYED - (new - 0.6 * d) * W
    return -z / new, new, v, z


def centred(n: Any, g: Any, delta: Any) -> tuple[Any, ...]:
    n = 0.8 * n + 0.2 * DECAYED**2
    g = 0.8 * g + 0.2 * DECAYED
    delta = 0.7 * delta - 0.1 * DECAYED / numpy.sqrt(n - g**2 + 1e-2)
    return W + delta, n, g, delta


def lamb(mean: Any, var: Any) -> tuple[Any, ...]:
    mean, var = 0.8 * mean + 0.2 * LIMITED, 0.9 * var + 0.1 * LIMITED**2
    fair = numpy.sqrt(var / (1 - 0.9**2)) + 1e-3
    return mean / (1 - 0.8**2) / fair + 0.05 * W, mean, var


#: By name: states, settings, and the expected weight and states afterwards.
STEPS: dict[str, tuple[tuple[Any, ...], dict[str, Any], Callable[..., tuple[Any, ...]]]] = {
    "ftrl_update": (
        (A, B), {"lr": 0.1, "lamda1": 0.2, "beta": 1.5, "clip_gradient": 1.0}, ftrl
    ),
    "ftml_update": (
        (A, B, C),
        {"lr": 0.1, "beta1": 0.6, "beta2": 0.9, "epsilon": 1e-3, "t": 3, "clip_grad": 1.0},
        ftml,
    ),
    "rmspropalex_update": (
        (B, C, A),
        {"lr": 0.1, "gamma1": 0.8, "gamma2": 0.7, "epsilon": 1e-2, "clip_gradient": 1.0},
        centred,
    ),
    "lamb_update_phase1": (
        (A, B), {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3, "t": 2, "clip_gradient": 1.0}, lamb
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_steps(name: str) -> None:
    states, settings, formula = STEPS[name]
    held = [nd.array(each) for each in states]
    found = getattr(nd, name)(nd.array(W), nd.array(G), *held, **settings, **COMMON)
    for got, wanted in zip([found, *held], formula(*states), strict=True):
        numpy.testing.assert_allclose(got.asnumpy(), wanted, rtol=1e-5, atol=1e-6)


def test_the_length_of_lambs_step() -> None:
    weight, g = nd.array(W), nd.array(G)
    r1, r2 = nd.array([3.0]), nd.array([2.0])
    found = nd.lamb_update_phase2(weight, g, r1, r2, lr=0.1, upper_bound=2.5)
    numpy.testing.assert_allclose(found.asnumpy(), W - 0.1 * 2.5 / 2 * G, rtol=1e-6)
    found = nd.lamb_update_phase2(weight, g, nd.array([0.0]), r2, lr=0.1)
    numpy.testing.assert_allclose(found.asnumpy(), W - 0.1 * G, rtol=1e-6)


@pytest.mark.parametrize("scale", [0.5, 0.0, numpy.inf, numpy.nan])
def test_adamw_leaves_out_what_overflowed(scale: float) -> None:
    weight, mean, var = nd.array(W), nd.array(A), nd.array(B)
    settings = {"lr": 0.1, "eta": 0.5, "beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3, "wd": 0.05}
    nd.contrib.adamw_update(
        weight, nd.array(G), mean, var, nd.array([scale]), out=weight, **settings
    )
    want = W, A, B
    if scale == 0.5:
        m, v = 0.8 * A + 0.2 * G * 0.5, 0.9 * B + 0.1 * (G * 0.5) ** 2
        want = W - 0.5 * (0.1 * m / (numpy.sqrt(v) + 1e-3) + 0.05 * W), m, v
    for got, wanted in zip((weight, mean, var), want, strict=True):
        numpy.testing.assert_allclose(got.asnumpy(), wanted, rtol=1e-5)


def test_one_number_of_history_a_row() -> None:
    weight, history = nd.array(W), nd.array([[1.0], [2.0]])
    found = nd.contrib.group_adagrad_update(weight, nd.array(G), history, lr=0.1)
    want = numpy.array([[1.0], [2.0]]) + (G**2).mean(axis=1, keepdims=True)
    numpy.testing.assert_allclose(history.asnumpy(), want, rtol=1e-6)
    numpy.testing.assert_allclose(found.asnumpy(), W - 0.1 * G / numpy.sqrt(want + 1e-5), rtol=1e-5)


@pytest.mark.parametrize(("name", "states"), [("sgd", 0), ("sgd_mom", 1), ("nag_mom", 1)])
def test_a_copy_in_float32(name: str, states: int) -> None:
    held = [nd.array(A) for _ in range(2 * states)]
    small, copy, plain = nd.array(W, dtype="float16"), nd.array(W), nd.array(W)
    settings = {"lr": 1e-4, **COMMON}
    for _ in range(3):  # steps smaller than float16's precision accumulate
        getattr(nd, f"mp_{name}_update")(
            small, nd.array(G, dtype="float16"), *held[:states], copy, out=small, **settings
        )
        getattr(nd, f"{name}_update")(plain, nd.array(G), *held[states:], out=plain, **settings)
    assert small.dtype == numpy.float16 and copy.dtype == numpy.float32
    numpy.testing.assert_allclose(copy.asnumpy(), plain.asnumpy(), rtol=1e-3)
    numpy.testing.assert_array_equal(small.asnumpy(), copy.asnumpy().astype("float16"))


@pytest.mark.parametrize("name", ["sgd_update", "sgd_mom_update", "mp_sgd_update"])
def test_several_at_once(name: str) -> None:
    weights = [nd.array(W), nd.array(2 * W)]
    extra = [[] if name == "sgd_update" else [nd.array(A)] for _ in weights]
    rates, decays = [0.1, 0.2], [0.05, 0.0]
    want = [
        getattr(nd, name)(
            w, nd.array(G), *(nd.array(each.asnumpy()) for each in more), lr=lr, wd=wd
        ).asnumpy()
        for w, more, lr, wd in zip(weights, extra, rates, decays, strict=True)
    ]
    data = [x for w, more in zip(weights, extra, strict=True) for x in (w, nd.array(G), *more)]
    copies = [nd.array(each.asnumpy()) for each in data]
    found = getattr(nd, f"multi_{name}")(*data, lrs=rates, wds=decays, num_weights=2)
    loaded = getattr(nd, f"preloaded_multi_{name}")(
        *copies, nd.array(rates), nd.array(decays), num_weights=2, out=weights
    )
    assert loaded is weights
    for one, other, wanted in zip(found, weights, want, strict=True):
        numpy.testing.assert_allclose(one.asnumpy(), wanted, rtol=1e-6)
        numpy.testing.assert_allclose(other.asnumpy(), wanted, rtol=1e-6)


def test_rates_of_lars() -> None:
    found = nd.multi_lars(
        nd.array([0.1, 0.2]), nd.array([4.0, 0.0]), nd.array([9.0, 1.0]), nd.array([0.5, 0.1]),
        eta=0.01, eps=1e-3, rescale_grad=2.0,
    )  # fmt: skip
    want = [0.1 * 0.01 * 2 / (3 * 2 + 0.5 * 2 + 1e-3), 0.2]
    numpy.testing.assert_allclose(found.asnumpy(), want, rtol=1e-5)


def test_arrays_asked_and_emptied() -> None:
    arrays = [nd.ones((2, 2)), nd.array([1.0, numpy.inf])]
    assert nd.multi_all_finite(*arrays, num_arrays=2).asnumpy().tolist() == [0.0]
    assert nd.multi_all_finite(arrays[0], num_arrays=1).asnumpy().tolist() == [1.0]
    nd.reset_arrays(*arrays, num_arrays=2)
    assert [each.asnumpy().sum() for each in arrays] == [0.0, 0.0]
