"""MXNet 1's random numbers: from parameters, from arrays of parameters, shaped like an array."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from gemel import nd, np
from gemel.legacy.drawn import DRAWN

#: By MXNet's names: parameters, and the mean and variance of the numbers drawn.
MOMENTS: dict[str, tuple[dict[str, float], float, float]] = {
    "uniform": ({"low": 1.0, "high": 3.0}, 2.0, 1 / 3),
    "normal": ({"loc": 2.0, "scale": 0.5}, 2.0, 0.25),
    "exponential": ({"lam": 2.0}, 0.5, 0.25),
    "gamma": ({"alpha": 2.0, "beta": 3.0}, 6.0, 18.0),
    "poisson": ({"lam": 3.0}, 3.0, 3.0),
    "negative_binomial": ({"k": 3, "p": 0.5}, 3.0, 6.0),
    "generalized_negative_binomial": ({"mu": 2.0, "alpha": 0.5}, 2.0, 4.0),
}


def test_all_are_tried() -> None:
    assert set(MOMENTS) == set(DRAWN)


@pytest.mark.parametrize("name", MOMENTS)
def test_moments(name: str) -> None:
    np.random.seed(5)
    settings, mean, variance = MOMENTS[name]
    count = 20_000
    arrays = [nd.array([value] * 2) for value in settings.values()]
    drawn = {
        "settings": getattr(nd, f"random_{name}")(**settings, shape=(2, count)),
        "arrays": getattr(nd, f"sample_{name}")(*arrays, shape=(count,)),
        "like": getattr(nd.random, f"{name}_like")(nd.zeros((2, count)), **settings),
    }
    if name != "exponential":  # which takes `scale` there instead
        drawn["arrays by random"] = getattr(nd.random, name)(*arrays, shape=count)
    for way, found in drawn.items():
        assert found.shape == (2, count) and found.dtype == "float32", way
        values = found.asnumpy()
        error = 5 * numpy.sqrt(variance / count)
        assert abs(values.mean(axis=1) - mean).max() < error, way
        assert abs(values.var() / variance - 1) < 0.15, way


def test_shapes_and_dtypes() -> None:
    assert nd.random_uniform().shape == (1,)
    assert nd.random_normal(shape=3, dtype="float64").dtype == "float64"
    whole = nd.random_randint(low=2, high=5, shape=(100,))
    assert whole.dtype == "int32" and set(whole.asnumpy().tolist()) == {2, 3, 4}
    assert nd.random.generalized_negative_binomial(3.0, 0.5, shape=(2,)).shape == (2,)


def test_multinomial() -> None:
    chances = nd.array([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]])
    found, logarithms = nd.sample_multinomial(chances, shape=(400,), get_prob=True)
    assert found.dtype == "int32" and found.shape == logarithms.shape == (2, 400)
    counts = [numpy.bincount(row, minlength=3).tolist() for row in found.asnumpy()]
    assert counts[0][1] == 0 and min(counts[0][0], counts[0][2]) > 120 and counts[1] == [0, 400, 0]
    numpy.testing.assert_allclose(logarithms.asnumpy()[0], numpy.log(0.5), rtol=1e-6)
    assert nd.sample_multinomial(chances).shape == (2,)
    assert nd.sample_multinomial(chances[0], shape=(2, 2)).shape == (2, 2)


def test_shuffle() -> None:
    rows = nd.array([[1, 1], [2, 2], [3, 3]])
    shuffled: Any = nd.shuffle(rows).asnumpy()
    assert sorted(shuffled.tolist()) == rows.asnumpy().tolist()
