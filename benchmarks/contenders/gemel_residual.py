"""gemel's ResNet-18, from its model zoo."""

from __future__ import annotations

from typing import Any

from benchmarks.cases import Calls, Case, Training
from benchmarks.contenders.gemel_contender import to_numpy, wait
from benchmarks.residual import RATE, labels, pictures, weights
from benchmarks.workloads import Workload
from gemel import autograd, gluon, np
from gemel.gluon.model_zoo import vision


def network(name: str, workload: Workload) -> Any:
    """The network with the workload's weights."""
    net = vision.resnet18_v1()
    net.initialize()
    net.infer_shape(np.zeros((1, *workload.sizes)))
    fill(net)
    if name == "gemel hybridized":
        net.hybridize()
    return net


def fill(net: Any) -> None:
    """Put the weights into `net`, and reset biases and batch normalisation."""
    parameters = net.collect_params().values()
    kernels = [each for each in parameters if len(each.shape) > 1]
    for parameter, value in zip(kernels, weights(), strict=True):
        parameter.set_data(np.array(value))
    for each in parameters:
        if len(each.shape) == 1:
            each.set_data(
                (np.ones if each.name.endswith(("gamma", "var")) else np.zeros)(each.shape)
            )


def resnet(name: str, workload: Workload) -> Case:
    """Inference."""
    return Calls(network(name, workload), list(map(np.array, pictures(workload))), to_numpy, wait)


def resnet_train(name: str, workload: Workload) -> Case:
    """Forward, backward and SGD."""
    net = network(name, workload)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    if name == "gemel hybridized":
        loss_of.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": RATE})

    def step(x: Any, y: Any) -> Any:
        with autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(workload.batch)
        return loss

    pairs = zip(pictures(workload), labels(workload), strict=True)
    batches = [(np.array(x), np.array(y)) for x, y in pairs]
    return Training(batches, workload.count, lambda: fill(net), step, to_numpy, wait)
