"""gemel.torch: what users of PyTorch type, on gemel's arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gemel
from gemel import torch
from gemel.errors import DeviceError
from gemel.torch import nn

#: Expressions, and what PyTorch prints for them.
PRINTED = {
    "torch.tensor([1, 2, 3])": "tensor([1, 2, 3])",
    "torch.tensor([True, False])": "tensor([ True, False])",
    "torch.tensor(2.5)": "tensor(2.5000)",
    "torch.tensor([[1.5, 1e-6]])": "tensor([[1.5000e+00, 1.0000e-06]])",
    "torch.tensor([1e9, 1.0])": "tensor([1.0000e+09, 1.0000e+00])",
    "torch.tensor([0.0, 1.5, float('nan')])": "tensor([0.0000, 1.5000,    nan])",
    "torch.tensor([-1.0, 20.0, float('inf')])": "tensor([-1., 20., inf])",
    "torch.zeros(3)": "tensor([0., 0., 0.])",
    "torch.ones(2, dtype=torch.float64)": "tensor([1., 1.], dtype=torch.float64)",
    "torch.tensor([])": "tensor([])",
    "torch.ones((1, 2)) * torch.ones((1, 2)) + 2": "tensor([[3., 3.]])",
    "torch.tensor([1.0], requires_grad=True)": "tensor([1.], requires_grad=True)",
    "torch.tensor([1.0], requires_grad=True) * 2": "tensor([2.], grad_fn=<MulBackward0>)",
    "torch.mm(torch.ones(2, 3), torch.ones(3, 1))": "tensor([[3.],\n        [3.]])",
    "torch.arange(20)": "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, "
    "16, 17,\n        18, 19])",
    "torch.ones(40, 40)": "tensor([" + (
        "[1., 1., 1.,  ..., 1., 1., 1.],\n        " * 3 + "...,\n        "
        + "[1., 1., 1.,  ..., 1., 1., 1.],\n        " * 3
    )[: -len(",\n        ")] + "])",
    "nn.Sequential(nn.Linear(4, 2), nn.ReLU())": "Sequential(\n  (0): Linear(in_features=4, "
    "out_features=2, bias=True)\n  (1): ReLU()\n)",
}  # fmt: skip


@pytest.mark.parametrize("text", PRINTED)
def test_printed_as_pytorch_does(text: str) -> None:
    assert repr(eval(text, {"torch": torch, "nn": nn})) == PRINTED[text]


def test_gradients_add_up() -> None:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    assert x.grad is None and x.requires_grad
    for times in (1, 2):
        y = (x * x).sum()
        assert repr(y).endswith("grad_fn=<SumBackward0>)")
        y.backward()
        assert x.grad.tolist() == [2.0 * times, 4.0 * times, 6.0 * times]
    with torch.no_grad():
        y = x * 2
        x -= 1
    assert not y.requires_grad and x.tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(RuntimeError, match="no_grad"):
        x -= 1
    assert not torch.no_grad()(lambda: x * 2)().requires_grad


def test_calls_as_pytorch_has_them() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert x.sum(dim=1).tolist() == torch.sum(x, dim=1).tolist() == [3.0, 7.0]
    assert x.mean(dim=0, keepdim=True).shape == (1, 2) and x.size() == (2, 2) and x.size(1) == 2
    assert x.view(4, 1).shape == x.reshape((4, 1)).shape == (4, 1) and x.t()[0].tolist() == [1, 3]
    assert torch.cat([x, x], dim=1).shape == (2, 4) and torch.randn(size=(2, 3)).shape == (2, 3)
    assert (x @ x).tolist() == torch.matmul(x, x).tolist() == torch.mm(x, x).tolist()
    assert f"{x.sum():.1f}" == "10.0" and (1 - x)[0, 0].item() == 0 and len(x) == 2
    assert x.to(torch.float64).dtype is torch.float64 and x.to("cpu").device == gemel.cpu()
    assert torch.cuda.device_count() == gemel.num_gpus()
    assert torch.cuda.is_available() == (gemel.num_gpus() > 0)
    torch.cuda.synchronize(torch.device("cpu"))
    with pytest.raises(DeviceError):
        torch.ones(2, device=torch.device("cuda:7"))
    with pytest.raises(AttributeError, match="conv9d"):
        _ = torch.conv9d


class Branching(nn.Module):
    """A module with control flow that depends on values, used inside another module."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            x = self.lin(x)
        else:
            x = -x
        while x.abs().sum() < 50:
            x = x * 2
        return x


def test_scripted_is_the_module(tmp_path: Path) -> None:
    gemel.np.random.seed(3)
    net = nn.Sequential(Branching(), nn.ReLU(), nn.Linear(4, 2))
    scripted = torch.jit.script(net)
    assert torch.jit.script(scripted) is scripted
    for value in (1.0, -1.0, 2.0):
        for rows in (1, 3):
            x = torch.ones(rows, 4) * value
            for mine, theirs in zip(scripted(x).tolist(), net(x).tolist(), strict=True):
                assert mine == pytest.approx(theirs, rel=1e-5)
    x = torch.ones(2, 4)
    gradients = []
    for each in (net, scripted):
        for parameter in net.parameters():
            parameter.requires_grad_()
        each(x).sum().backward()
        gradients.append([parameter.grad.tolist() for parameter in net.parameters()])
    for mine, theirs in zip(*gradients, strict=True):
        assert gemel.np.allclose(gemel.np.array(mine), gemel.np.array(theirs), rtol=1e-4)
    assert list(scripted.state_dict()) == list(net.state_dict())
    assert repr(scripted(x)).endswith("grad_fn=<AddmmBackward0>)")


def test_scripted_functions() -> None:
    @torch.jit.script
    def clipped(x: Any) -> Any:
        return x * 2 if x.sum() < 3 else x

    for size in (1, 2, 5):
        assert clipped(torch.ones(size)).tolist() == [2.0 if size < 3 else 1.0] * size


def test_modes_and_places() -> None:
    inner = nn.Tanh()
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(inner))
    assert not (net.eval() and inner.training) and net.train() and inner.training
    scripted, x = torch.jit.script(net), torch.ones(1, 2)
    before = scripted(x).tolist()
    net.to("cpu").to(torch.float64)
    assert scripted(x.to(torch.float64)).tolist()[0] == pytest.approx(before[0])
    with torch.no_grad():
        for parameter in net.parameters():
            parameter *= 0
    assert scripted(x.to(torch.float64)).tolist() == [[0.0, 0.0]]


@pytest.mark.skipif(not hasattr(gemel, "save"), reason="gemel.save is not there yet")
def test_saved_and_loaded(tmp_path: Path) -> None:
    net = torch.jit.script(nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)))
    x = torch.randn(1, 8)
    y = net(x)
    net.save(tmp_path / "net")
    again = torch.jit.load(tmp_path / "net")
    assert again(x).tolist() == y.tolist() and again(torch.randn(3, 8)).shape == (3, 2)
    assert list(again.state_dict()) == list(net.state_dict())
    again(x).sum().backward()
    assert all(parameter.grad is not None for parameter in again.parameters())


def test_it_is_small() -> None:
    files = (Path(gemel.__file__).parent / "torch").glob("*.py")
    assert sum(len(path.read_text().splitlines()) for path in files) <= 400
