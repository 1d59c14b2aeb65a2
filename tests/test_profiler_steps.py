"""What the profiler reports about the inside of compiled programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gemel
from gemel import autograd, gluon, np, npx, profiler


@pytest.fixture(autouse=True)
def _stopped() -> Any:
    yield
    profiler.set_state("stop")


def recorded(function: Any, *inputs: Any) -> profiler.StepReport:
    function(*inputs)  # compile before the recording starts
    npx.waitall()
    profiler.set_state("run")
    function(*inputs)
    npx.waitall()
    profiler.set_state("stop")
    return profiler.steps()


def test_steps_are_told_by_what_they_compute() -> None:
    @gemel.compile
    def layer(x: Any, weight: Any) -> Any:
        return npx.softmax(np.dot(x, weight) + 1)

    rows = recorded(layer, np.ones((5, 7)), np.ones((7, 3)))
    assert {row.program for row in rows} == {"layer"}
    told = " | ".join(row.label for row in rows)
    assert "dot" in told or "matmul" in told
    assert "softmax" in told
    assert "float32[5, 3]" in told
    assert sum(row.share for row in rows) == pytest.approx(1)


def test_steps_lie_within_their_operation() -> None:
    f = gemel.compile(lambda x: (x @ x).sum(axis=0) * 2)
    recorded(f, np.ones((40, 40)))
    trace = profiler.recording()
    known = trace.by_number()
    assert trace.steps
    for step in trace.steps:
        operation = known[step.operation]
        assert operation.started <= step.started <= step.finished <= operation.finished


def test_a_composite_and_its_gradient_keep_their_names() -> None:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(4, 3, in_channels=2), gluon.nn.BatchNorm(in_channels=4))
    net.initialize()
    net.hybridize()
    x = np.random.normal(size=(2, 2, 8, 8))

    def step() -> None:
        with autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()

    step()
    labels = [row.label for row in recorded(step)]
    assert any("convolution" in label and "backward" not in label for label in labels)
    assert any("convolution backward" in label for label in labels)
    assert any("batch_norm backward" in label for label in labels)


def test_parts_of_a_long_reduction_keep_its_name() -> None:
    variance = gemel.compile(lambda x: np.exp(x).var())
    labels = [row.label.split(" -> ")[0] for row in recorded(variance, np.ones((1 << 18) + 1))]
    assert set(labels) == {"exp", "var"}


def test_sizes_are_those_of_the_call() -> None:
    @gemel.compile
    def double(x: Any) -> Any:
        return np.exp(x) * 2

    double(np.ones((4, 7)))
    for rows in (3, 9):
        (row,) = recorded(double, np.ones((rows, 7)))
        assert f"float32[{rows}, 7]" in row.label


def test_rounds_of_a_loop_are_counted() -> None:
    @gemel.compile
    def walk(x: Any) -> Any:
        return npx.foreach(lambda row, state: (row + state, np.tanh(row + state)), x, x[0])[0]

    rows = recorded(walk, np.ones((9, 4)))
    assert max(row.times for row in rows) >= 9


def test_nothing_is_recorded_without_the_profiler() -> None:
    f = gemel.compile(lambda x: x * 2 + 1)
    recorded(f, np.ones(3))
    before = len(profiler.recording().steps)
    f(np.ones(3)).wait_to_read()
    assert len(profiler.recording().steps) == before


def test_a_report_of_nothing_says_so() -> None:
    profiler.set_state("run")
    profiler.set_state("stop")
    assert str(profiler.steps()) == "no program was run"


def test_steps_are_slices_in_the_trace_file(tmp_path: Path) -> None:
    f = gemel.compile(lambda x: np.exp(x) @ x)
    recorded(f, np.ones((8, 8)))
    profiler.set_config(filename=str(tmp_path / "trace.json"))
    events = json.loads(Path(profiler.dump()).read_text())["traceEvents"]
    steps = [event for event in events if event.get("cat") == "step"]
    assert steps
    assert all(event["ph"] == "X" and event["args"]["operation"] for event in steps)


def test_the_table_prints_every_step() -> None:
    rows = recorded(gemel.compile(lambda x: (x @ x) + 1), np.ones((6, 6)))
    lines = str(rows).splitlines()
    assert lines[0].split()[0] == "program"
    assert len(lines) == len(rows) + 1
    assert all(row.label in line for row, line in zip(rows, lines[1:], strict=True))
