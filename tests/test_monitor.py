"""Monitor: statistics of what layers and operations compute, once every few batches."""

from __future__ import annotations

import logging
from typing import Any

import numpy
import pytest

import gemel as mx
from gemel import autograd, nd, np, sym
from gemel.errors import ArgumentError
from gemel.gluon import nn


def network() -> nn.HybridSequential:
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(3, in_units=2, prefix="a_"), nn.Dense(1, in_units=3, prefix="b_"))
    net.initialize("ones")
    return net


def measured(rows: list[Any]) -> dict[str, float]:
    return {name: float(text) for _, name, text in rows}


@pytest.mark.parametrize("hybridized", [False, True])
@pytest.mark.parametrize("array", [np.array, nd.array])
def test_layers_every_second_batch(hybridized: bool, array: Any) -> None:
    net = network()
    net.hybridize(hybridized)
    monitor = mx.mon.Monitor(2, sort=True)
    monitor.install(net)
    x = array([[1.0, 2.0], [3.0, 4.0]])
    found = []
    for _ in range(4):
        monitor.tic()
        with autograd.record():
            y = net(x)
        y.backward()
        found.append(monitor.toc())
    assert [row[0] for row in found[0]] == [1] * 7 and [row[0] for row in found[2]] == [3] * 7
    assert found[1] == found[3] == []
    assert y.asnumpy().tolist() == [[9], [21]]
    values = measured(found[0])
    assert list(values) == [
        *("net_a_bias", "net_a_output", "net_a_weight", "net_b_bias", "net_b_output"),
        *("net_b_weight", "net_output"),
    ]
    assert values["net_b_output"] == pytest.approx(numpy.sqrt((81 + 441) / 2))
    assert values["net_a_weight"] == 1 and values["net_a_bias"] == 0
    assert not any(block._forward_hooks for block in (net, *net)), "every hook is removed"


def test_names_and_statistics(caplog: Any) -> None:
    net = network()
    monitor = mx.monitor.Monitor(
        1, lambda x: [x.min(), x.max()], pattern=".*(put|weight)", monitor_all=True
    )
    monitor.install(net)
    monitor.tic()
    net(np.array([[1.0, 2.0]]))
    with caplog.at_level(logging.INFO):
        monitor.toc_print()
    lines = [" ".join(record.getMessage().split()) for record in caplog.records]
    assert lines == [
        "Batch: 1 net_a_input 1.0 2.0",
        "Batch: 1 net_a_output 3.0 3.0",
        "Batch: 1 net_b_input 3.0 3.0",
        "Batch: 1 net_b_output 9.0 9.0",
        "Batch: 1 net_input 1.0 2.0",
        "Batch: 1 net_output 9.0 9.0",
        "Batch: 1 net_a_weight 1.0 1.0",
        "Batch: 1 net_b_weight 1.0 1.0",
    ]
    assert monitor.toc() == []


def test_executors() -> None:
    fc = sym.FullyConnected(sym.var("data"), num_hidden=2, name="fc")
    net = sym.Activation(fc, act_type="relu", name="act")
    executor = net.simple_bind(data=(1, 2))
    executor.copy_params_from({"fc_weight": nd.array([[1, 0], [0, -1]]), "fc_bias": nd.zeros(2)})
    kinds: list[Any] = []

    def largest(x: Any) -> Any:
        kinds.append(type(x))
        return mx.nd.max(x)

    monitor = mx.mon.Monitor(1, largest)
    monitor.install(executor)
    monitor.tic()
    (y,) = executor.forward(data=nd.array([[3, 4]]))
    assert measured(monitor.toc()) == {
        **{"fc_output": 3, "act_output": 3},
        **{"data": 4, "fc_weight": 1, "fc_bias": 0},
    }
    assert set(kinds) == {nd.NDArray} and type(y) is nd.NDArray
    assert y.asnumpy().tolist() == [[3, 0]]
    assert executor.forward(data=nd.array([[5, 4]]))[0].asnumpy().tolist() == [[5, 0]]
    every: list[str] = []
    executor.set_monitor_callback(lambda name, array: every.append(name), monitor_all=True)
    executor.forward(is_train=True)
    executor.backward()
    assert every == ["data", "fc_weight", "fc_bias", "fc_output", "act_output"]
    assert executor.grad_dict["fc_bias"].asnumpy().tolist() == [1, 0]


@pytest.mark.parametrize("hybridized", [False, True])
@pytest.mark.parametrize("array", [np.array, nd.array])
def test_statistics_are_of_the_class_given(hybridized: bool, array: Any) -> None:
    """This includes results inside layers and parameters; statistics for MXNet 1 rely on it."""
    net, kinds = nn.HybridSequential(), []
    net.add(nn.Dense(2, in_units=2, activation="relu"))
    net.initialize()
    net.hybridize(hybridized)
    monitor = mx.mon.Monitor(1, lambda x: [x.max(), np.array(kinds.append(type(x)) or 0)])
    monitor.install(net)
    monitor.tic()
    x = array([[1.0, 2.0]])
    net(x)
    assert len(monitor.toc()) == len(kinds) == 5
    assert set(kinds) == {type(x)}
    assert type(net[0].weight.data()) is np.ndarray


def test_errors_of_statistics_end_the_batch() -> None:
    net, x = network(), np.ones((1, 2))
    monitor = mx.mon.Monitor(1, lambda x: 1 / 0, pattern=".*weight")
    monitor.install(net)
    monitor.tic()
    net(x)
    with pytest.raises(ZeroDivisionError):
        monitor.toc()
    assert not net._has_hooks and not monitor.activated
    assert monitor.toc() == []


def test_refused() -> None:
    with pytest.raises(ArgumentError, match="stat_func is 5; give a function"):
        mx.mon.Monitor(1, stat_func=5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="interval is 0"):
        mx.mon.Monitor(0)
    for pattern in "(", 5:
        with pytest.raises(ArgumentError, match=r"Monitor: pattern is .*no regular expression"):
            mx.mon.Monitor(1, pattern=pattern)  # type: ignore[arg-type]
    monitor = mx.mon.Monitor(1, lambda x: "large", pattern="net_output")
    with pytest.raises(ArgumentError, match="list is neither a Block nor an Executor"):
        monitor.install([])
    net = network()
    monitor.install(net)
    monitor.tic()
    net(np.ones((1, 2)))
    with pytest.raises(ArgumentError, match="stat_func returned a str for net_output"):
        monitor.toc()
