"""The tables and cases of the benchmarks: they measure what they claim, with right results."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy
import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent))

from benchmarks import kernels, operations, operations_worker, residual, sweep, turns
from benchmarks.contenders import gemel_kernels, gemel_residual, numpy_kernels
from benchmarks.driver import Result, agree
from benchmarks.machine import Machine
from benchmarks.shapes import KINDS, Shape, digest, shape_from

#: 1 GFLOP/s and 1 GB/s: a floor in us is a thousandth of the operations, or of the bytes.
SLOW = Machine(1, 1, 1, 1, 1, 1, 1)
MOVES = {"stride": 1, "pad": 1, "groups": 1}
STRIDED = {"stride": 2, "pad": 0, "groups": 1}

#: A shape, the sizes of its result, and its floor on the slow machine.
FLOORS = (
    (Shape("matmul", ((2, 3, 4), (2, 4, 5))), (2, 3, 5), 0.376),
    (Shape("matmul", ((100, 100), (100, 100))), (100, 100), 2000),
    (Shape("conv", ((1, 64, 56, 56), (64, 64, 3, 3)), MOVES), (1, 64, 56, 56), 231211.008),
    (Shape("conv", ((2, 3, 9, 9), (4, 3, 3, 3)), STRIDED, True), (2, 4, 4, 4), 13.824),
    (Shape("conv", ((1, 8, 9), (8, 1, 3)), {**MOVES, "groups": 8}), (1, 8, 9), 0.672),
    (Shape("attention", ((2, 8, 4), (2, 6, 4), (2, 6, 5))), (2, 8, 5), 3.648),
    (Shape("softmax", ((10, 20),)), (10, 20), 4.0),
    (Shape("reduce", ((10, 20, 30),), {"how": "sum", "axis": 1}), (10, 30), 25.2),
    (Shape("take", ((1000, 8), (10,))), (10, 8), 0.72),
    (Shape("transpose", ((10, 20),), {"axes": [1, 0]}), (20, 10), 1.6),
    (Shape("encoder", ((1, 2, 4), (12, 4), (12,)), {"heads": 1}), (1, 2, 4), 0.304),
)

#: Shapes whose results and gradients gemel computes like NumPy.
RIGHT = (
    Shape("matmul", ((2, 3, 4), (2, 4, 5))),
    Shape("conv", ((2, 3, 9, 8), (4, 3, 3, 3)), MOVES),
    Shape("conv", ((2, 3, 9, 8), (4, 3, 2, 2)), STRIDED, True),
    Shape("conv", ((2, 3, 9), (4, 3, 3)), MOVES, True),
    Shape("attention", ((2, 2, 5, 4), (2, 2, 6, 4), (2, 2, 6, 4))),
    Shape("softmax", ((5, 7),)),
    *(Shape("reduce", ((4, 5, 6),), {"how": how, "axis": 1}) for how in ("sum", "max", "var")),
    Shape("transpose", ((2, 3, 4),), {"axes": [2, 0, 1]}),
    Shape("take", ((20, 3), (7,))),
    Shape("copy", ((5, 5),)),
    Shape("square", ((9,),)),
)


@pytest.mark.parametrize(("shape", "result", "floor"), FLOORS, ids=str)
def test_a_shape_knows_its_result_and_its_floor(shape: Shape, result: Any, floor: float) -> None:
    assert shape.result == result
    assert shape.floor_us(SLOW, 1) == pytest.approx(floor)
    assert shape_from(json.loads(json.dumps(shape._asdict()))) == shape


def values(module: Any, shape: Shape) -> list[float]:
    case = module.case(shape, 1)
    case.reset()
    found: list[float] = case.values(case.finish(case.issue()))
    return found


@pytest.mark.parametrize("shape", RIGHT, ids=str)
def test_gemel_computes_what_numpy_does(shape: Shape) -> None:
    assert agree(values(gemel_kernels, shape), values(numpy_kernels, shape), 1e-5)


def test_a_digest_tells_of_any_element() -> None:
    x = numpy.random.default_rng(0).standard_normal(100_000).astype("float32")
    before = digest([x])
    for place in (0, 77_777, 99_999):
        x[place] += 1
        assert not agree(digest([x]), before, 2e-3)
        x[place] -= 1
    assert not agree(digest([x[::-1]]), before, 2e-3)
    assert not agree(digest([numpy.where(x > 4, numpy.nan, x)]), before, 2e-3)


def test_the_list_is_of_operations_there_are() -> None:
    rows = kernels.rows()
    assert len({(row.group, row.name, row.shape.gradients) for row in rows}) == len(rows)
    for row in rows:
        assert row.shape.floor_us(SLOW, 1) > 0
        if row.shape.sizes:
            assert min(row.shape.result) > 0 and row.shape.kind in KINDS
            assert hasattr(gemel_kernels, row.shape.kind)
    layers = [row for row in rows if row.group == "resnet18"]
    assert len(layers) == 11 * 2 * 2
    # How often each layer occurs in the network: 1.8e9 multiply-adds in all for batch 1.
    times = [1, 4, 1, 1, 3, 1, 1, 3, 1, 1, 3]
    forward = [row.shape for row in layers if not row.shape.gradients][::2]
    flops = [KINDS["conv"].flops(*shape.sizes, **shape.settings) for shape in forward]
    assert sum(n * each for n, each in zip(times, flops, strict=True)) == pytest.approx(
        3.627e9, 1e-3
    )


def result(name: str, us: float, before: float = 0.0, failure: str = "") -> Result:
    return Result(name, [before], [us], [1.0], failure)


def test_goals_compare_with_the_best_peer_that_is_right() -> None:
    rows = [row for row in kernels.rows() if row.group == "resnet18"][:3:2]
    found = [
        (
            rows[0],
            {r.name: r for r in (result("gemel", 3), result("torch", 2), result("onnxruntime", 4))},
        ),
        (rows[1], {r.name: r for r in (result("gemel", 3, 5), result("torch", 2, 2))}),
    ]
    forward, gradients, whole = kernels.GOALS[:3]
    assert kernels.ratios(forward, found) == [1.5]
    assert kernels.ratios(gradients, found) == [1.5]
    assert kernels.ratios(whole, found) == [2]
    found[0][1]["torch"] = result("torch", 2, failure="wrong")
    assert kernels.ratios(forward, found) == [0.75]
    assert not kernels.failures(found)
    found[0][1]["gemel"] = result("gemel", 2, failure="wrong")
    assert kernels.ratios(forward, found) == []
    assert kernels.failures(found)


@pytest.mark.parametrize("kind", sweep.KINDS, ids=lambda kind: kind.name)
def test_shapes_are_drawn_from_a_seed_within_bounds(kind: sweep.Drawn) -> None:
    shapes = list(islice(sweep.drawn(kind), 50))
    assert shapes == list(islice(sweep.drawn(kind), 50))
    assert len(set(map(str, shapes))) > 45
    for shape in shapes:
        assert min(shape.result) > 0
        assert sweep.LEAST_US <= shape.floor_us(sweep.NOMINAL, 1) <= sweep.MOST_US


def test_the_worst_tenth() -> None:
    shares = [n / 100 for n in range(101)]
    assert [sweep.lowest(shares[::-1], part) for part in (0, 0.1, 0.5)] == [0, 0.1, 0.5]


def test_processes_answer_in_turn_and_go_on_after_a_failure() -> None:
    shapes = [
        Shape("matmul", ((3, 4), (4, 5))),
        Shape("matmul", ((3, 4), (3, 5))),
        Shape("pool", ((1, 1, 4, 4),)),
        Shape("square", ((9,),)),
    ]
    found = turns.measure(shapes, ["numpy"], 1, turns.Effort(1, 2, 1e-6))
    assert [len(each["numpy"].done) if "numpy" in each else None for each in found] == [
        2,
        0,
        None,
        2,
    ]
    assert found[1]["numpy"].failure.startswith("ValueError")


def test_the_residual_network_has_the_products_of_its_paper() -> None:
    products = residual.floor(residual.INFERENCE, 2.0)
    assert products == pytest.approx(1.8e9, rel=0.02)
    training = residual.INFERENCE._replace(kind="resnet_train")
    assert residual.floor(training, 2.0) == 3 * products


@pytest.mark.parametrize("kind", ["resnet", "resnet_train"])
def test_the_residual_network_is_the_same_hybridized(kind: str) -> None:
    workload = residual.TRAINING._replace(kind=kind, sizes=(3, 64, 64), batch=2)
    found = []
    for name in ("gemel", "gemel hybridized"):
        case = getattr(gemel_residual, kind)(name, workload)
        case.reset()
        found.append(case.values(case.finish(case.issue())))
    assert len(found[0]) == (3 if kind == "resnet_train" else 3 * 2 * residual.CLASSES)
    assert agree(found[0], found[1], 1e-3)


def test_operations_beside_torch_are_what_they_say() -> None:
    listed = {each.name: each for each in operations.operations()}
    assert len(listed) > 50 and all(each.ways["torch"] for each in listed.values())
    case = operations_worker.Gemel(listed["matrix by four columns"])
    x, y = (each.asnumpy() for each in case.arrays)
    numpy.testing.assert_allclose(case.forward().asnumpy(), x @ y, rtol=1e-4, atol=1e-4)
    case.prepare()
    head = operations_worker.head_for((x.shape[0], y.shape[1]))
    for found, expected in zip(case.backward(), (head @ y.T, x.T @ head), strict=True):
        numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-4, atol=1e-3)
    indexed = operations_worker.Gemel(listed["rows by index"])
    assert indexed.arrays[1].dtype == "int64" and not listed["sort rows"].with_gradient
