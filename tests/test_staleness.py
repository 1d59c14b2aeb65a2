"""A hybridized network always computes with the current parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

from gemel import autograd, gluon, np
from gemel.gluon import nn

X = numpy.random.default_rng(3).normal(size=(9, 20)).astype("float32")


class Pair:
    """Two equal networks, one of them hybridized; every change is made to both."""

    def __init__(self, units: int) -> None:
        self.nets = [self.net(units), self.net(units)]
        self.x = np.array(X)
        values = [p.data().copy() for p in self.nets[0].collect_params().values()]
        for parameter, value in zip(self.nets[1].collect_params().values(), values, strict=True):
            parameter.set_data(value)
        self.nets[1].hybridize()
        self.trainers = [
            gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
            for net in self.nets
        ]
        self.last: list[float] = []

    @staticmethod
    def net(units: int) -> Any:
        net = nn.HybridSequential()
        net.add(nn.Dense(units, activation="relu"), nn.BatchNorm(), nn.Dense(units), nn.Dense(3))
        net.initialize()
        net(np.array(X))
        return net

    def change(self, change: Callable[[Any], None]) -> None:
        for net in self.nets:
            change(net)

    def train(self) -> None:
        for net, trainer in zip(self.nets, self.trainers, strict=True):
            with autograd.record():
                loss = (net(self.x) ** 2).mean()
            loss.backward()
            trainer.step(1)

    def infer(self, changed: bool = True) -> None:
        imperative, hybridized = (net(self.x).asnumpy() for net in self.nets)
        numpy.testing.assert_allclose(hybridized, imperative, rtol=1e-4, atol=1e-5)
        values = hybridized.reshape(-1).tolist()
        assert (values != self.last) == changed
        self.last = values


@pytest.mark.parametrize("units", [4, 64])
def test_every_way_to_change_a_parameter_is_seen(units: int) -> None:
    pair = Pair(units)
    pair.infer()
    pair.infer(changed=False)
    pair.train()
    pair.infer()
    pair.train()
    pair.train()
    pair.infer()
    pair.change(lambda net: net[0].weight.set_data(np.full((units, 20), 0.05)))
    pair.infer()
    pair.change(lambda net: net[2].weight.data().__setitem__(slice(None, None, 2), 0.3))
    pair.infer()

    def through_a_view(net: Any) -> None:
        column = net[2].weight.data().T[1]
        column += 0.5

    pair.change(through_a_view)
    pair.infer()

    def through_numpy(net: Any) -> None:
        memoryview(net[3].bias.data()).cast("B").cast("f")[0] = 7.0

    pair.change(through_numpy)
    pair.infer()
    pair.change(lambda net: net[0].weight.data().__imul__(1.5))
    pair.infer()
    pair.change(lambda net: net[3].initialize("zeros", force_reinit=True))
    pair.infer()
    pair.train()
    pair.infer()


def test_loading_parameters_is_seen(tmp_path: Any) -> None:
    pair, other = Pair(8), Pair(8)
    pair.infer()
    other.nets[0].save_parameters(str(tmp_path / "p"))
    pair.change(lambda net: net.load_parameters(str(tmp_path / "p")))
    pair.infer()
    numpy.testing.assert_allclose(
        pair.nets[1](pair.x).asnumpy(), other.nets[0](pair.x).asnumpy(), rtol=1e-4, atol=1e-5
    )


def test_running_statistics_are_seen() -> None:
    pair = Pair(8)
    pair.infer()
    with autograd.train_mode():
        for net in pair.nets:
            net(pair.x * 3)
    pair.infer()
    pair.change(lambda net: net[1].running_mean.set_data(np.ones(8)))
    pair.infer()


def test_results_are_not_overwritten_by_later_calls() -> None:
    pair = Pair(8)
    net = pair.nets[1]
    first = net(pair.x)
    kept = first.tolist()
    for scale in (2, 3):
        net(pair.x * scale)
    pair.train()
    assert first.tolist() == kept


def test_saved_values_of_a_hybridized_call_are_guarded() -> None:
    net = nn.Dense(3)
    net.initialize()
    net.hybridize()
    x = np.ones((2, 4))
    x.attach_grad()
    with autograd.record():
        loss = (net(x) ** 2).sum()
    net.weight.data()[0] = 5
    with pytest.raises(Exception, match="overwritten in place"):
        loss.backward()
