"""Independent branches of a plan run in parallel, and nothing else does."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from plan_images import Read, closed_over
from random_graphs import random_graph
from test_graphs import drawn, same

import gemel
from gemel import _core, gluon, np, npx
from gemel.extent import seen
from gemel.ir.interpret import interpret
from gemel.passes import optimize
from gemel.runtime import concurrent
from gemel.runtime.backend import backend_of
from gemel.runtime.concurrent import Concurrent
from gemel.runtime.image import Image, Parallel
from gemel.runtime.lower import Lowering


def image_of(function: Any) -> Image:
    """The image of a compiled function's only plan."""
    (program,) = next(iter(function._programs.values()))
    sizes = {name: seen(extent) for name, extent in program.trace.extents.dims.items()}
    found: Image = program.inference().image(sizes, backend_of(gemel.cpu()))
    return found


def together(image: Image) -> list[list[int]]:
    """For each group, the lengths of its lists."""
    return [
        [len(part) for part in item.parts] for item in image.items if isinstance(item, Parallel)
    ]


WEIGHTS = [np.random.normal(0, 0.05, (256, 256)) for _ in range(16)]


def branches(x: Any) -> list[Any]:
    x = np.tanh(x)
    pairs = zip(WEIGHTS[::2], WEIGHTS[1::2], strict=True)
    return [np.matmul(npx.relu(np.matmul(x, v)), w) for v, w in pairs]


@pytest.mark.parametrize("join", [list, lambda found: np.concatenate(found, axis=1)])
def test_eight_branches_run_side_by_side(join: Any) -> None:
    function = gemel.compile(lambda x: join(branches(x)))
    x = np.random.normal(0, 1, (64, 256))
    for _ in range(3):
        found, wanted = function(x), join(branches(x))
        pairs = zip(found, wanted, strict=True) if join is list else [(found, wanted)]
        for value, expected in pairs:
            numpy.testing.assert_allclose(value.asnumpy(), expected.asnumpy(), 1e-4, 1e-5)
    ((*lengths,),) = together(image_of(function))
    assert len(lengths) == 8 and min(lengths) >= 2


def test_parallel_branches_share_no_memory() -> None:
    function = gemel.compile(branches)
    function(np.ones((64, 256)))
    image = image_of(function)
    read = Read(image.write())
    (program,) = next(iter(function._programs.values()))
    bound = read.bind([((64, 256), (256, 1)), *closed_over(program)])
    assert bound is not None
    (group,) = (item for item in bound.items if isinstance(item, Parallel))
    spans = [{b[1] for step in part for b in step.buffers if b[0] == 2} for part in group.parts]
    used = [
        [(bound.offsets[t], bound.offsets[t] + bound.temporaries[t].size) for t in own]
        for own in spans
    ]
    shared = set.intersection(*spans)
    for own, others in ((a, b) for a in used for b in used if a is not b):
        for start, end in own:
            for first, last in others:
                apart = end <= first or last <= start
                assert apart or any(bound.offsets[t] == start for t in shared)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: npx.softmax(npx.softmax(x, axis=0).sum(axis=1, keepdims=True) * x, axis=0),
        lambda x: [x + i for i in range(8)],
        lambda x: [np.matmul(x[:2, :2], x[:2, :2]), np.matmul(x[2:4, :2], x[2:4, :2])],
    ],
)
def test_chains_and_trifles_stay_in_line(function: Any) -> None:
    compiled = gemel.compile(function)
    compiled(np.ones((64, 256)))
    assert together(image_of(compiled)) == []


def test_a_failure_in_one_branch_reaches_its_own_results() -> None:
    index = np.zeros((64,), dtype="int64")

    def forward(x: Any, at: Any) -> Any:
        rows = np.take(x, at, axis=0)
        return np.matmul(np.matmul(rows, WEIGHTS[0]), WEIGHTS[1]), np.matmul(
            np.matmul(x, WEIGHTS[2]), WEIGHTS[3]
        )

    function = gemel.compile(forward)
    x = np.ones((64, 256))
    for value in function(x, index):
        value.wait_to_read()
    assert together(image_of(function))
    index[3] = 64
    lost, kept = function(x, index)
    with pytest.raises(IndexError, match="axis 0 with size 64"):
        lost.wait_to_read()
    assert numpy.isfinite(kept.asnumpy()).all()


def test_parallel_lists_do_not_touch_what_one_overwrites() -> None:
    class Net(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.total = gluon.Parameter("total", shape=(256, 256), grad_req="null", init="zeros")

        def forward(self, x: Any) -> Any:
            old = self.total.data()
            first = np.matmul(old, WEIGHTS[1])
            self.total.set_data(old + np.matmul(np.matmul(x.T, x), WEIGHTS[0]))
            return first, self.total.data() * 2

    net = Net()
    net.initialize()
    x = np.ones((256, 256))
    plain = [net(x) for _ in range(2)]
    again = Net()
    again.initialize()
    again.hybridize()
    compiled = [again(x) for _ in range(2)]
    for wanted, found in zip(plain, compiled, strict=True):
        for a, b in zip(wanted, found, strict=True):
            numpy.testing.assert_allclose(b.asnumpy(), a.asnumpy(), 1e-4, 1e-4)


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_with_all_that_can_be_side_by_side(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrent, "WORTH", 1)
    graph = random_graph(seed)
    inputs = drawn(graph, seed)
    np.random.seed(seed)
    stream = _core.random_state()
    wanted = interpret(graph, *inputs, stream=(stream[0], stream[1]))
    lowering = Lowering(optimize(graph), backend_of(gemel.cpu()))
    lowering.run()
    for item in lowering.emission.side_by_side(lowering.emission.items):
        if isinstance(item, Concurrent):
            check_apart(item)
    arrays = [np.array(x, dtype=str(x.dtype)) for x in inputs]
    found = [y.asnumpy() for y in lowering.image().plan()(*arrays)]
    found += [arrays[index].asnumpy() for index, _ in graph.updates]
    same(found, wanted)


def check_apart(group: Concurrent) -> None:
    touched = [[t for item in part for t in item.touches()] for part in group.parts]
    assert len(touched) > 1
    for one in touched:
        written = {id(buffer) for buffer, writes in one if writes}
        for other in touched:
            if other is not one:
                assert not written & {id(buffer) for buffer, _ in other}
