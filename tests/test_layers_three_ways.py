"""One network in several ways: imperative, hybridized, exported, saved; the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from layer_table import LAYERS, LayerCase

import gemel
from gemel import autograd, gluon, init

#: Batch sizes: each example's result must not depend on the others.
BATCHES = (3, 1, 5)


def listed(found: Any) -> list[Any]:
    return [x.asnumpy() for x in found] if isinstance(found, (list, tuple)) else [found.asnumpy()]


def made(case: LayerCase) -> Any:
    """The network with values for all parameters, running statistics included."""
    net = case.make()
    net.initialize(init.Normal(0.5))
    inputs = case.inputs(BATCHES[0])
    with autograd.record():
        net(*inputs)
    return net


def names(case: LayerCase) -> list[str]:
    count = len(case.shapes)
    return ["data"] if count == 1 else [f"data{place}" for place in range(count)]


@pytest.mark.parametrize("case", LAYERS, ids=str)
def test_all_ways_agree(case: LayerCase, tmp_path: Path) -> None:
    gemel.np.random.seed(3)
    net = made(case)
    inputs = [case.inputs(batch) for batch in BATCHES]
    expected = [listed(net(*each)) for each in inputs]
    net.hybridize()
    ways: dict[str, Any] = {"hybridized": net}
    net(*inputs[0])
    files = net.export(tmp_path / "files" / "net", epoch=3)
    assert files[1].endswith("net-0003.params")
    exported = gluon.SymbolBlock.imports(files[0], names(case), files[1])
    again = gluon.SymbolBlock.imports(files[0], names(case), files[1])
    again.hybridize()
    gemel.save(net, tmp_path / "net.gemel")
    ways.update(exported=exported, again=again, saved=gemel.load(tmp_path / "net.gemel"))
    for batch, want in zip(inputs, expected, strict=True):
        for way, network in ways.items():
            for a, b in zip(listed(network(*batch)), want, strict=True):
                assert a.shape == b.shape and a.dtype == b.dtype, way
                numpy.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5, err_msg=way)


@pytest.mark.parametrize("name", ["Conv2D", "BatchNorm", "shared parameters", "LSTM", "Several"])
def test_loaded_networks_can_be_trained_and_saved_again(name: str, tmp_path: Path) -> None:
    """Their gradients equal the original network's, and files written from them read the same."""
    case = next(c for c in LAYERS if c.name.lower().startswith(name.lower()))
    net = made(case)
    net.hybridize()
    inputs = case.inputs(4)
    net(*inputs)
    files = net.export(tmp_path / "first")
    gemel.save(net, tmp_path / "net.gemel")
    read = gluon.SymbolBlock.imports(files[0], names(case), files[1])
    read.hybridize()
    read(*inputs)
    second = read.export(tmp_path / "second")
    third = gluon.SymbolBlock.imports(second[0], names(case), second[1])
    nets = [net, read, third, gemel.load(tmp_path / "net.gemel")]
    grads, after = [], []
    for each in nets:
        with autograd.record():
            found = each(*inputs)
            loss = sum(
                (y * y).sum() for y in (found if isinstance(found, (list, tuple)) else [found])
            )
        loss.backward()
        held = {p.name: p for p in each.collect_params().values()}
        grads.append({n: p.grad().asnumpy() for n, p in held.items() if p.grad_req != "null"})
        after.append({n: p.data().asnumpy() for n, p in held.items() if p.grad_req == "null"})
    for found, kept in zip(grads[1:], after[1:], strict=True):
        assert found.keys() == grads[0].keys()
        for key, value in found.items():
            numpy.testing.assert_allclose(value, grads[0][key], rtol=1e-3, atol=1e-4)
        for key, value in kept.items():  # running statistics
            numpy.testing.assert_allclose(value, after[0][key], rtol=1e-4, atol=1e-5)


def test_another_dtype_and_another_device(tmp_path: Path) -> None:
    case = next(c for c in LAYERS if c.name == "Conv2D")
    net = made(case)
    net.cast("float64")
    net.hybridize()
    x = case.inputs(2)[0].astype("float64")
    want = net(x).asnumpy()
    files = net.export(tmp_path / "net")
    read = gluon.SymbolBlock.imports(files[0], "data", files[1], device=gemel.cpu(0))
    assert {p.dtype.name for p in read.collect_params().values()} == {"float64"}
    numpy.testing.assert_allclose(read(x).asnumpy(), want)
    read.cast("float32")
    numpy.testing.assert_allclose(read(x.astype("float32")).asnumpy(), want, rtol=1e-4, atol=1e-5)
