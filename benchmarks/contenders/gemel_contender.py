"""gemel, imperative and hybridized."""

from __future__ import annotations

from typing import Any

import numpy

from benchmarks.cases import Added, Calls, Case, Products, Training
from benchmarks.workloads import Workload, gates, inputs, parameters, steps_of
from gemel import autograd, gluon, np, npx


def network(name: str, workload: Workload) -> Any:
    """The MLP with the workload's parameters."""
    net = gluon.nn.HybridSequential()
    for index, (inputs_, outputs) in enumerate(workload.layers):
        last = index == len(workload.layers) - 1
        activation = None if last else "relu"
        net.add(gluon.nn.Dense(outputs, activation=activation, in_units=inputs_))
    net.initialize()
    fill(net, workload)
    if name == "gemel hybridized":
        net.hybridize()
    return net


def fill(net: Any, workload: Workload) -> None:
    """Put the workload's parameters into `net`."""
    for layer, (weight, bias) in zip(net, parameters(workload), strict=True):
        layer.weight.set_data(np.array(weight))
        layer.bias.set_data(np.array(bias))


def to_numpy(result: Any) -> numpy.ndarray:
    array: numpy.ndarray = result.asnumpy()
    return array


def wait(results: Any) -> None:
    npx.waitall()
    results[-1].wait_to_read()  # in case waitall() returned too early


def mlp(name: str, workload: Workload) -> Case:
    """`name` chooses imperative or hybridized."""
    net = network(name, workload)
    return Calls(net, [np.array(x) for x in inputs(workload)], to_numpy, wait)


def add(name: str, workload: Workload) -> Case:
    """`y = x + 1`."""
    return Added(np.ones(workload.sizes), workload.count, to_numpy, wait)


def dot(name: str, workload: Workload) -> Case:
    """`np.random.normal` and `np.dot`."""

    def step() -> Any:
        a = np.random.normal(size=workload.sizes)
        return np.dot(a, a)

    return Products(step, workload.count, to_numpy, wait)


def train(name: str, workload: Workload) -> Case:
    """A training loop of record, backward and step, which does not wait after each batch."""
    net = network(name, workload)
    loss_of = gluon.loss.L2Loss()
    if name == "gemel hybridized":
        loss_of.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    compiled = trainer.compile(lambda x, y: loss_of(net(x), y))

    def calls(x: Any, y: Any) -> Any:
        with autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(workload.batch)
        return loss

    step = compiled if name == "gemel step compiled" else calls
    target = np.ones((workload.batch,))
    batches = [(np.array(x), target) for x in inputs(workload)]
    return Training(batches, workload.count, lambda: fill(net, workload), step, to_numpy, wait)


def recurrent(name: str, workload: Workload) -> Any:
    """The LSTM with the workload's weights."""
    inputs_, states = workload.sizes
    net = gluon.rnn.LSTM(states, input_size=inputs_)
    net.initialize()
    fill_gates(net, workload)
    if name == "gemel hybridized":
        net.hybridize()
    return net


def fill_gates(net: Any, workload: Workload) -> None:
    """Put the workload's weights into `net`."""
    names = ("l0_i2h_weight", "l0_h2h_weight", "l0_i2h_bias", "l0_h2h_bias")
    for parameter, value in zip(names, gates(workload), strict=True):
        getattr(net, parameter).set_data(np.array(value))


def lstm(name: str, workload: Workload) -> Case:
    """Inference over whole sequences."""
    net = recurrent(name, workload)
    return Calls(net, list(map(np.array, steps_of(workload))), to_numpy, wait)


def lstm_train(name: str, workload: Workload) -> Case:
    """Forward, backward and SGD."""
    net = recurrent(name, workload)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

    def loss_of(x: Any, y: Any) -> Any:
        return ((net(x) - y) ** 2).mean()

    def calls(x: Any, y: Any) -> Any:
        with autograd.record():
            loss = loss_of(x, y)
        loss.backward()
        trainer.step(1)
        return loss

    compiled = trainer.compile(loss_of)

    def program(x: Any, y: Any) -> Any:
        return compiled(x, y, batch_size=1)

    step = program if name == "gemel step compiled" else calls
    batches = [(np.array(x), np.array(x)) for x in steps_of(workload)]
    return Training(batches, len(batches), lambda: fill_gates(net, workload), step, to_numpy, wait)
