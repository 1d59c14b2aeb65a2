"""PyTorch: eager, TorchScript and torch.compile."""

from __future__ import annotations

from typing import Any

import numpy
import torch

from benchmarks.cases import Added, Calls, Case, Products, Training
from benchmarks.workloads import Workload, gates, inputs, parameters, steps_of


def network(workload: Workload) -> torch.nn.Sequential:
    """The MLP with the workload's parameters."""
    modules: list[torch.nn.Module] = []
    for inputs_, outputs in workload.layers:
        modules += [torch.nn.Linear(inputs_, outputs), torch.nn.ReLU()]
    net = torch.nn.Sequential(*modules[:-1])
    fill(net, workload)
    return net


def fill(net: torch.nn.Sequential, workload: Workload) -> None:
    """Put the workload's parameters into `net`."""
    linear = [module for module in net if isinstance(module, torch.nn.Linear)]
    with torch.no_grad():
        for module, (weight, bias) in zip(linear, parameters(workload), strict=True):
            module.weight.copy_(torch.from_numpy(weight))
            module.bias.copy_(torch.from_numpy(bias))


def to_numpy(result: torch.Tensor) -> numpy.ndarray:
    return result.detach().numpy()


def mlp(name: str, workload: Workload) -> Case:
    """Inference mode; `name` chooses eager, script or compile."""
    torch.set_num_threads(workload.threads)
    net: Any = network(workload).eval()
    if name == "torch script":
        net = torch.jit.freeze(torch.jit.script(net))
    elif name == "torch compile":
        net = torch.compile(net)

    class Inference(Calls):
        def issue(self) -> Any:
            with torch.inference_mode():
                return super().issue()

    return Inference(net, [torch.from_numpy(x) for x in inputs(workload)], to_numpy)


def add(name: str, workload: Workload) -> Case:
    """`y = x + 1`."""
    torch.set_num_threads(workload.threads)
    return Added(torch.ones(workload.sizes), workload.count, to_numpy)


def dot(name: str, workload: Workload) -> Case:
    """`torch.randn` and a product."""
    torch.set_num_threads(workload.threads)

    def step() -> torch.Tensor:
        a = torch.randn(workload.sizes)
        return torch.mm(a, a)

    return Products(step, workload.count, to_numpy)


def train(name: str, workload: Workload) -> Case:
    """The usual loop. "torch compile" compiles network and loss as one function."""
    torch.set_num_threads(workload.threads)
    net = network(workload)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 0.5 * torch.nn.functional.mse_loss(net(x).reshape(-1), y)

    forward = torch.compile(loss_of) if name == "torch compile" else loss_of

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = forward(x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    target = torch.ones(workload.batch)
    batches = [(torch.from_numpy(x), target) for x in inputs(workload)]
    return Training(batches, workload.count, lambda: fill(net, workload), step, to_numpy)


def recurrent(workload: Workload) -> torch.nn.LSTM:
    """The LSTM with the workload's weights."""
    net = torch.nn.LSTM(*workload.sizes)
    fill_gates(net, workload)
    return net


def fill_gates(net: torch.nn.LSTM, workload: Workload) -> None:
    """Put the workload's weights into `net`."""
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), gates(workload), strict=True):
            parameter.copy_(torch.from_numpy(value))


def lstm(name: str, workload: Workload) -> Case:
    """Inference over whole sequences."""
    torch.set_num_threads(workload.threads)
    net = recurrent(workload).eval()

    class Inference(Calls):
        def issue(self) -> Any:
            with torch.inference_mode():
                return super().issue()

    return Inference(lambda x: net(x)[0], list(map(torch.from_numpy, steps_of(workload))), to_numpy)


def lstm_train(name: str, workload: Workload) -> Case:
    """Forward, backward and SGD."""
    torch.set_num_threads(workload.threads)
    net = recurrent(workload)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = ((net(x)[0] - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    batches = [(torch.from_numpy(x), torch.from_numpy(x)) for x in steps_of(workload)]
    return Training(batches, len(batches), lambda: fill_gates(net, workload), step, to_numpy)
