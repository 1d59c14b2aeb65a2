"""Gradients in blocks of rows, and results that are ready before their plan ends."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy
import pytest

from gemel import _core, autograd, gluon, np, npx
from gemel.gluon import nn
from gemel.ir.graph import Graph, placeholder
from gemel.ir.trace import Trace
from gemel.kvstore.ways import CHEAP, Table, Ways
from gemel.ops.elementwise import add, multiply
from gemel.ops.indexing import take
from gemel.ops.linalg import matmul
from gemel.ops.reduction import sum as total
from gemel.ops.shape import reshape, transpose
from gemel.passes.rows import bounds_of, in_rows
from gemel.runtime.backend import backend_for
from gemel.runtime.plans import plan_of
from gemel.spec import Spec
from gemel.tape.recording import blocks_of, let_travel

# ---- the pass


def test_blocks_are_about_as_large_and_never_empty():
    for rows in range(1, 40):
        for blocks in range(1, 12):
            bounds = bounds_of(rows, blocks)
            sizes = [b - a for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
            half = max(1, rows // min(rows, blocks) // 2)
            assert sum(sizes) == rows and min(sizes) > 0 and max(sizes) - min(sizes) <= 2 * half
            assert len(sizes) == min(rows, blocks)


def test_large_blocks_are_whole_and_the_first_is_not_the_largest():
    for rows in (256, 300, 1000, 4096, 32000):
        for blocks in range(2, 9):
            bounds = bounds_of(rows, blocks)
            sizes = [b - a for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
            unit = min(32, 1 << ((rows // blocks // 2).bit_length() - 1))
            assert all(bound % unit == 0 for bound in bounds[:-1])
            assert sizes[0] == min(sizes[:-1]) and max(sizes) - min(sizes) <= 2 * unit


def product(x: Any, w: Any, c: Any) -> Any:
    return matmul(x, w)


def weight_gradient(x: Any, w: Any, c: Any) -> Any:
    return add(transpose(matmul(transpose(w), transpose(x))), multiply(c, 2.0))


def reshaped(x: Any, w: Any, c: Any) -> Any:
    return reshape(matmul(x, w), shape=(13, 4, 2))


def both_ways(x: Any, w: Any, c: Any) -> Any:
    square = matmul(x, transpose(x))
    return add(matmul(square, c), reshape(total(c, axis=0), shape=(1, 8)))


@pytest.mark.parametrize("made", [product, weight_gradient, reshaped, both_ways])
@pytest.mark.parametrize("blocks", [2, 5, 13])
def test_blocks_are_the_rows_of_the_whole(made, blocks):
    specs = [Spec((13, 9), "float32"), Spec((9, 8), "float32"), Spec((13, 8), "float32")]
    inputs = [placeholder(spec) for spec in specs]
    with Trace():
        graph = Graph(inputs, (made(*inputs),))
    cut = in_rows(graph, bounds_of(13, blocks))
    assert cut is not None and len(cut.outputs) == blocks
    np.random.seed(0)
    given = [np.random.normal(size=spec.shape) for spec in specs]
    backend = backend_for(given)
    (whole,) = plan_of(graph, backend)(*given)
    parts = plan_of(cut, backend, early=range(blocks))(*given)
    assert (numpy.concatenate([part.asnumpy() for part in parts]) == whole.asnumpy()).all()


FACTORS = {
    "x @ w": lambda x, w: matmul(x, w),
    "x.T @ w": lambda x, w: matmul(transpose(x), w),
    "x.T @ w.T": lambda x, w: matmul(transpose(x), transpose(w)),
    "(w.T @ x).T": lambda x, w: transpose(matmul(transpose(w), x)),
    "x @ w.T": lambda x, w: matmul(x, transpose(w)),
    "(w @ x.T).T": lambda x, w: transpose(matmul(w, transpose(x))),
}


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize(("m", "n", "k"), [(37, 50, 2048), (256, 64, 3000), (16, 16, 200)])
def test_rows_have_the_same_bits_however_factors_lie(name, m, n, k):
    """Products whose blocks could differ stay whole: both factors run along the inner axis."""
    shapes = {"x": (m, k), "x.T": (k, m), "w": (k, n), "w.T": (n, k)}
    if name.startswith("("):
        shapes["x"], shapes["x.T"] = shapes["x.T"], shapes["x"]
        shapes["w"], shapes["w.T"] = shapes["w.T"], shapes["w"]
    given = [np.random.normal(size=shapes[f"{one}.T" if f"{one}.T" in name else one])
             for one in "xw"]  # fmt: skip
    inputs = [placeholder(Spec(array.shape, "float32")) for array in given]
    with Trace():
        graph = Graph(inputs, (FACTORS[name](*inputs),))
    backend = backend_for(given)
    whole = plan_of(graph, backend)(*given)[0].asnumpy()
    assert whole.shape == (m, n)
    for blocks in (2, 5, m):
        cut = in_rows(graph, bounds_of(m, blocks))
        assert (cut is None) == (name in ("x @ w.T", "(w @ x.T).T"))
        if cut is not None:
            parts = [part.asnumpy() for part in plan_of(cut, backend, early=range(blocks))(*given)]
            assert (numpy.concatenate(parts) == whole).all()


def test_operands_of_a_product_are_computed_once():
    x, w = placeholder(Spec((8, 8), "float32")), placeholder(Spec((8, 8), "float32"))
    with Trace():
        graph = Graph((x, w), (matmul(matmul(x, w), w),))
    cut = in_rows(graph, bounds_of(8, 4))
    assert cut is not None and cut.count("matmul") == 1 + 4


def test_gradients_without_a_product_stay_whole():
    x, w = placeholder(Spec((8, 8), "float32")), placeholder(Spec((8,), "float32"))
    with Trace():
        for result in (add(x, w), x, matmul(x, w), total(matmul(x, x), axis=0)):
            assert in_rows(Graph((x, w), (result,)), bounds_of(8, 4)) is None


# ---- early results

# engine.md 44


def test_a_result_is_there_before_the_end_of_its_plan():
    """Readers of the first result can begin while the plan goes on."""
    if not _core.workers():
        pytest.skip("nobody is there to begin it")
    a, b = placeholder(Spec((4, 4), "float32")), placeholder(Spec((1500, 1500), "float32"))
    with Trace():
        long = matmul(matmul(matmul(b, b), b), b)
        graph = Graph((a, b), (matmul(a, a), long), (), "two")
    given = [np.ones((4, 4)), np.ones((1500, 1500))]
    plan = plan_of(graph, backend_for(given), early=[0])
    began, times = threading.Event(), {}
    desk = _core.Desk()

    def take() -> None:
        began.set()
        errand = desk.take(60.0)
        times["reader"] = time.perf_counter()
        times["value"] = float(numpy.asarray(errand.inputs[0]).view("float32")[0])
        errand.end()

    thread = threading.Thread(target=take)
    thread.start()
    began.wait()
    npx.waitall()
    start = time.perf_counter()
    small, large = plan(*given)
    desk.issue(1, "reader", [small], [(small._code, (4, 4))])
    large.wait_to_read()
    end = time.perf_counter()
    thread.join()
    assert times["value"] == 4.0
    assert times["reader"] - start < 0.7 * (end - start)


def test_a_result_that_is_there_does_not_fail_with_the_plan():
    a, i = placeholder(Spec((4, 4), "float32")), placeholder(Spec((2,), "int64"))
    with Trace():
        graph = Graph((a, i), (matmul(a, a), take(a, i, axis=0, mode="raise")), (), "two")
    given = [np.ones((4, 4)), np.array([1, 9], dtype="int64")]
    first, second = plan_of(graph, backend_for(given), early=[0])(*given)
    assert (first.asnumpy() == 4).all()
    with pytest.raises(IndexError):
        second.wait_to_read()
    npx.waitall()


# ---- gradients


def gradients(shape: tuple[int, int], request: str, bias: bool, blocks: int) -> list[Any]:
    """The gradients after two backwards; checks that the blocks are parts of them."""
    rows, inputs = shape
    np.random.seed(1)
    net = nn.HybridSequential()
    net.add(nn.Dense(rows, "tanh", in_units=inputs, use_bias=bias), nn.Dense(3, in_units=rows))
    net.initialize()
    net.hybridize()
    parameters = list(net.collect_params().values())
    for parameter in parameters:
        parameter.grad_req = request
        if blocks:
            let_travel(parameter.data(), blocks)
    x = np.random.normal(size=(30, inputs))
    for _ in range(2):
        with autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()
    found = [parameter.grad().asnumpy() for parameter in parameters]
    for parameter, gradient in zip(parameters, found, strict=True):
        parts = blocks_of(parameter.data())
        if parameter.name.endswith("weight") and min(blocks, parameter.shape[0]) > 1:
            assert len(parts) == min(blocks, parameter.shape[0])
        if parts:
            assert (numpy.concatenate([part.asnumpy() for part in parts]) == gradient).all()
        assert not blocks_of(parameter.data())  # blocks are handed out only once
    return found


@pytest.mark.parametrize("shape", [(37, 13), (1, 40), (6, 5), (128, 64)])
@pytest.mark.parametrize("request_", ["write", "add"])
@pytest.mark.parametrize("bias", [True, False])
def test_gradients_have_the_same_bits_in_blocks(shape, request_, bias):
    whole = gradients(shape, request_, bias, 0)
    for blocks in (1, 4, 8):
        for one, other in zip(whole, gradients(shape, request_, bias, blocks), strict=True):
            assert (one == other).all()


def test_blocks_of_a_gradient_that_has_changed_are_forgotten():
    def variable() -> Any:
        w = np.random.normal(size=(8, 6))
        w.attach_grad()
        let_travel(w, 4)
        for _ in range(2):
            with autograd.record():
                loss = np.dot(np.ones((5, 8)), w).sum()
            loss.backward()
        return w

    assert len(blocks_of(variable())) == 4
    w = variable()
    w.grad[0] = 1
    assert not blocks_of(w)
    w = variable()
    shared = numpy.asarray(w.grad)
    assert not blocks_of(w)
    del shared


def test_a_gradient_that_stays_is_not_cut():
    net = nn.Dense(64, in_units=64)
    net.initialize()
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    for _ in range(2):
        with autograd.record():
            loss = net(np.ones((4, 64))).sum()
        loss.backward()
        assert not blocks_of(net.weight.data())
        trainer.step(4)


# ---- how many


def test_the_number_of_blocks_follows_from_what_was_measured():
    ways = Ways((0, 1))
    assert ways.blocks("ranks", 1 << 20) == 1  # nothing has been measured
    ways.table = Table({"gather": [(4096.0, 3e-4), (float(1 << 20), 3e-4 * 16)]})
    assert ways.blocks("ranks", 1 << 20) == 4
    assert ways.blocks("ranks", 1 << 30) == 8
    assert ways.blocks("ranks", 4096) == 1
    assert ways.blocks("gather", 1 << 20) == 1  # another split could change the bits
    assert "blocks of rows" in ways.explain("ranks", [1 << 20])
    # Time that occupies the core cannot be hidden.
    ways.table = Table(ways.table.measured, {"gather": [(4096.0, 0.0), (float(1 << 20), 3e-4 * 9)]})
    assert ways.blocks("ranks", 1 << 20) == 3
    # Nor can latency, which small messages have, too, on a machine that others use.
    ways.table = Table({"gather": [(4096.0, 2e-2), (float(1 << 20), 2e-2)]})
    assert ways.blocks("ranks", 1 << 20) == ways.blocks("ranks", 12) == 1
    ways.table = Table({"gather": [(4096.0, CHEAP / 1e3), (float(1 << 20), CHEAP / 2)]})
    assert ways.blocks("ranks", 1 << 20) == 1  # too little to gain
