"""MXNet 1's optimizer steps as operations, compared with what MXNet 1.9.1 computed."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from gemel import nd
from gemel.errors import ArgumentError

WEIGHT, GRADIENT = [0.5, -1.5, 2.0], [0.3, -4.0, 0.0]
FIRST, SECOND = [0.1, 0.2, 0.3], [0.5, 0.1, 0.2]
SETTINGS = {"lr": 0.1, "wd": 0.05, "rescale_grad": 0.5, "clip_gradient": 1.0}
#: By name: states, settings, the expected weight and states.
STEPS: dict[str, tuple[list[Any], dict[str, float], list[list[float]]]] = {
    "sgd_update": ([], {}, [[0.4825, -1.3925, 1.99]]),
    "sgd_mom_update": (
        [FIRST], {"momentum": 0.9}, [[0.5725, -1.2125, 2.26], [0.0725, 0.2875, 0.26]]
    ),
    # MXNet computes the state from a weight that is already overwritten, so it is not compared.
    "nag_mom_update": ([FIRST], {"momentum": 0.9}, [[0.54775, -1.13375, 2.224]]),
    "adam_update": (
        [FIRST, SECOND], {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3},
        [[0.4829402, -1.4908444, 1.9390303], [0.115, -0.04, 0.26], [0.4530625, 0.19, 0.181]],
    ),
    "rmsprop_update": (
        [SECOND], {"gamma1": 0.8, "epsilon": 1e-3, "clip_weights": 1.2},
        [[0.47257325, -1.2, 1.2], [0.406125, 0.28, 0.162]],
    ),
    "signsgd_update": ([], {}, [[0.3975, -1.3925, 1.99]]),
    "signum_update": (
        [FIRST], {"momentum": 0.9, "wd_lh": 0.1},
        [[0.595, -1.385, 2.08], [0.0725, 0.2875, 0.26]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_steps(name: str) -> None:
    states, settings, expected = STEPS[name]
    weight, held = nd.array(WEIGHT), [nd.array(each) for each in states]
    found = getattr(nd, name)(weight, nd.array(GRADIENT), *held, out=weight, **SETTINGS, **settings)
    assert found is weight
    for got, wanted in zip([weight, *held], expected, strict=False):
        numpy.testing.assert_allclose(got.asnumpy(), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("arrays", "rates", "decays"), [(3, 2, 2), (4, 1, 2), (4, 2, 1), (2, 2, 2), (0, 1, 1)]
)
def test_each_of_several_weights_has_a_gradient_a_rate_and_a_decay(
    arrays: int, rates: int, decays: int
) -> None:
    data, settings = [nd.ones(2)] * arrays, {"lrs": (0.1,) * rates, "wds": (0.0,) * decays}
    message = f"multi_sgd_update: {arrays} arrays, {rates} rates and {decays} decays"
    with pytest.raises(ArgumentError, match=message):
        nd.multi_sgd_update(*data, num_weights=2, **settings)
    with pytest.raises(ArgumentError, match=message):
        nd.preloaded_multi_sgd_update(*data, nd.ones(rates), nd.zeros(decays), num_weights=2)
