"""The benchmark on GPUs, as far as it goes without one: its list, checks, turns and table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent))

import gemel
from benchmarks import gpu, gpu_libraries
from benchmarks.gpu_libraries import Gemel, Library, drawn
from benchmarks.gpu_worker import WARM_UP, Contest
from benchmarks.workloads import parameters

LISTED = {each.name: each for each in gpu.workloads()}
CLASSES = {kind.name: kind for kind in Library.__subclasses__()}
#: CuPy's expressions are NumPy's.
BY_NUMPY = [each for each in LISTED.values() if each.inputs and "cupy" in each.ways]


def test_the_list_is_of_what_libraries_can_do() -> None:
    assert len(LISTED) == len(gpu.workloads()) and set(CLASSES) == set(gpu.LIBRARIES)
    for workload in LISTED.values():
        assert {"gemel", "torch"} <= set(workload.ways) <= set(CLASSES)
        if not workload.inputs:
            assert all(callable(getattr(CLASSES[n], way)) for n, way in workload.ways.items())
            assert not workload.bytes and not workload.flops
    first, *_ = LISTED.values()
    assert first.name.startswith("copy") and first.bytes == 2 * 256 << 20
    assert LISTED["product 4096"].flops == 2 * 4096**3
    assert LISTED["sum"].bytes == 4 * 4096**2
    for workload in LISTED.values():
        if workload.name.startswith("product"):
            (m, k), *rest = workload.inputs.values()
            n = rest[0][1] if rest else m
            assert workload.flops == 2 * m * n * k


@pytest.mark.parametrize("workload", BY_NUMPY, ids=lambda each: each.name)
def test_gemel_and_numpy_compute_the_same(workload: gpu.Workload) -> None:
    shapes = {name: tuple(min(n, 6) for n in shape) for name, shape in workload.inputs.items()}
    small = workload._replace(inputs=shapes)
    ours = Gemel(gemel.cpu())
    found = ours.numbers(ours.call(small)())
    scope = {"np": numpy, "reduce": ours.scope["reduce"]}
    function = eval(f"lambda {', '.join(shapes)}: {workload.ways['cupy']}", scope)
    expected = function(*(drawn(shape, seed) for seed, shape in enumerate(shapes.values())))
    numpy.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_gemels_training_step_is_the_step_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    small = gpu_libraries.TRAINING._replace(sizes=(6, 5, 3), batch=8)
    monkeypatch.setattr(gpu_libraries, "TRAINING", small)
    ours = Gemel(gemel.cpu())
    step = ours.training_step()
    found = [float(ours.numbers(step())) for _ in range(3)]
    (v, a), (w, b) = parameters(small)
    x, y = gpu_libraries.examples()
    for loss in found:
        hidden = numpy.maximum(x @ v.T + a, 0)
        raised = numpy.exp(hidden @ w.T + b)
        chances = raised / raised.sum(axis=1, keepdims=True)
        assert loss == pytest.approx(-numpy.log(chances[numpy.arange(8), y]).mean(), rel=1e-5)
        scores = (chances - numpy.eye(3)[y]) / 8
        below = scores @ w * (hidden > 0)
        w, b = w - gpu_libraries.RATE * scores.T @ hidden, b - gpu_libraries.RATE * scores.sum(0)
        v, a = v - gpu_libraries.RATE * below.T @ x, a - gpu_libraries.RATE * below.sum(0)


class Counting(Library):
    """NumPy in place of a library; it counts its calls, and is wrong by `error`."""

    def __init__(self, name: str, turns: list[str], error: float = 0.0) -> None:
        super().__init__(None, {"np": numpy, "error": error, "count": turns.append, "name": name})
        self.name = name

    def array(self, values: numpy.ndarray) -> Any:
        return values

    def numbers(self, result: Any) -> numpy.ndarray:
        return numpy.asarray(result)

    def wait(self, result: Any) -> None:
        pass


def test_libraries_take_turns_and_those_that_differ_are_not_timed() -> None:
    turns: list[str] = []
    ways = dict.fromkeys(("gemel", "torch", "cupy"), "(x * 2 + error, count(name))[0]")
    workload = gpu.Workload("double", {"x": (3, 4)}, {**ways, "jax": "x @ x"})
    right = [Counting(name, turns) for name in ("gemel", "torch")]
    others = [Counting("cupy", turns, error=0.1), Counting("jax", turns)]
    contest = Contest(workload, [*right, *others, Counting("absent", turns)])
    contest.prepare()
    assert turns == ["gemel"] * WARM_UP + ["torch"] * WARM_UP + ["cupy"] * WARM_UP
    assert contest.failures["cupy"] == "results differ from the others'"
    assert contest.failures["jax"].startswith("ValueError") and len(contest.failures) == 2
    turns.clear()
    us = contest.measure(3, 0.0)
    assert {name: len(found) for name, found in us.items()} == {"gemel": 3, "torch": 3}
    assert turns == ["gemel", "torch"] * 4  # one call each is enough for no time, found beforehand


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    copied = LISTED["copy, 256 MiB"]
    us = copied.bytes / 1e6  # 1000 GB/s
    found = [
        gpu.Measured(copied.name, {"gemel": [us] * 3, "torch": [2 * us, us, 3 * us]}, {}),
        gpu.Measured("product 4096", {"gemel": [1e4], "torch": [5e3]}, {"jax": "wrong"}),
        gpu.Measured("sum", {"torch": [200.0]}, {"gemel": "MemoryError: no"}),
    ]
    assert not gpu.report(found[:2], ["gemel", "torch", "jax"])
    assert gpu.report(found, ["gemel", "torch", "jax"])
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("|")
    ][-3:]
    assert rows[0] == [copied.name, f"{us:.4g}", f"{2 * us:.4g}", "", "0.50", "1.00", "0.50"]
    product = ["1e+04", "5000", "FAILED", "2.00", "13.7 TFLOP/s", "27.5 TFLOP/s"]
    assert rows[1] == ["product 4096", *product]
    assert rows[2] == ["sum", "FAILED", "200", "", "", "", "0.34"]


def test_without_a_gpu_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GEMEL_CUDA", "0")
    assert not gpu.run(1, 0.001, None)
    said = capsys.readouterr().out
    assert said == "gpu: there is no GPU that CUDA can use, so nothing is measured\n"
