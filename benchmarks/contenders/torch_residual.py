"""PyTorch's ResNet-18: eager, as TorchScript, and with torch.compile."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.cases import Calls, Case, Training
from benchmarks.contenders.torch_contender import to_numpy
from benchmarks.residual import RATE, Block, blocks, labels, pictures, weights
from benchmarks.workloads import Workload


def conv(inputs: int, outputs: int, size: int, stride: int) -> list[nn.Module]:
    """A convolution, padded to keep the extents up to its stride, and batch normalisation."""
    step = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return [step, nn.BatchNorm2d(outputs)]


class Residual(nn.Module):
    """A residual block."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        first = conv(block.inputs, block.outputs, 3, block.stride)
        self.body = nn.Sequential(*first, nn.ReLU(), *conv(block.outputs, block.outputs, 3, 1))
        turn = conv(block.inputs, block.outputs, 1, block.stride) if block.turned else []
        self.beside = nn.Sequential(*turn)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.beside(x))


def network() -> nn.Sequential:
    """The network with the benchmark's weights."""
    first = [*conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
    net = nn.Sequential(*first, *map(Residual, blocks()), *last)
    fill(net)
    return net


def fill(net: nn.Sequential) -> None:
    """Put the weights into `net`, and reset biases and batch normalisation."""
    kernels = [each for each in net.parameters() if each.dim() > 1]
    with torch.no_grad():
        for parameter, value in zip(kernels, weights(), strict=True):
            parameter.copy_(torch.from_numpy(value))
        net[-1].bias.zero_()
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.reset_parameters()


def resnet(name: str, workload: Workload) -> Case:
    """Inference mode; `name` chooses eager, script or compile."""
    torch.set_num_threads(workload.threads)
    net: Any = network().eval()
    if name == "torch script":
        net = torch.jit.freeze(torch.jit.script(net))
    elif name == "torch compile":
        net = torch.compile(net)

    class Inference(Calls):
        def issue(self) -> Any:
            with torch.inference_mode():
                return super().issue()

    return Inference(net, list(map(torch.from_numpy, pictures(workload))), to_numpy)


def resnet_train(name: str, workload: Workload) -> Case:
    """Forward, backward and SGD. "torch compile" compiles the network."""
    torch.set_num_threads(workload.threads)
    net = network().train()
    forward: Any = torch.compile(net) if name == "torch compile" else net
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(forward(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    pairs = zip(pictures(workload), labels(workload), strict=True)
    batches = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in pairs]
    return Training(batches, workload.count, lambda: fill(net), step, to_numpy)
