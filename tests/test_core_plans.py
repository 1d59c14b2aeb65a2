"""The C++ core from Python: plans, general operations, failures, threads, the end of a process."""

from __future__ import annotations

import gc
import itertools
import os
import struct
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import core_kernels as kernels
import numpy
import pytest
from core_fakes import (
    Fake,
    array,
    check,
    checked_copy,
    image,
    installed,
    loop_step,
    multiply_add,
    plan,
    step,
    vector,
)
from core_kernels import BOOL, FLOAT32, INT64

from gemel import _core
from gemel.extent import Dim, Guard, Guards
from gemel.runtime.image import (
    INPUT,
    OUTPUT,
    WRITTEN,
    Branching,
    Image,
    Input,
    Loop,
    Output,
    Parallel,
    Temporary,
)


@pytest.fixture(autouse=True)
def core() -> Iterator[dict[str, Fake]]:
    """The core with the fakes installed; the previous objects are restored afterwards."""
    yield from installed()


# --- plans -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "chunk"), [(6, None), (1000, 7), (100000, 1000)])
def test_plan_with_workspace_and_view(size: int, chunk: int | None) -> None:
    made = multiply_add(size, chunk)
    x = numpy.arange(size, dtype="float32")
    y = numpy.linspace(0, 1, size, dtype="float32")
    for _ in range(3):
        whole, view = made(array(x), array(y))
        check(whole, 2 * (x * y))
        check(view, (2 * (x * y))[1::2][: size // 2])
        assert view._storage == whole._storage
    assert made.name == "multiply_add"


def test_plan_checks_its_inputs() -> None:
    made = multiply_add(4)
    x = array(numpy.ones(4))
    with pytest.raises(TypeError, match="input 1 has dtype int64, the plan was made for float32"):
        made(x, array(numpy.ones(4), "int64"))
    with pytest.raises(TypeError, match=r"input 0 has shape \(3,\), the plan was made for \(4,\)"):
        made(array(numpy.ones(3)), x)
    with pytest.raises(TypeError, match="device 1"):
        made(x, _core.empty((4,), FLOAT32, 1))
    with pytest.raises(TypeError, match="2 arrays and 0 scalars"):
        made(x)
    with pytest.raises(TypeError, match="not an array"):
        made(x, 1.0)


def test_plan_copies_inputs_to_its_layout(core: Any) -> None:
    made = plan(
        "sum",
        [(FLOAT32, (4,))] * 2,
        [(FLOAT32, (4,))],
        [loop_step(vector("add", 6, 6), [(0, 0, 0), (0, 1, 0), (1, 0, 0)], 4)],
    )
    x = array(numpy.arange(8.0))
    (whole,) = made(x[::2], x[::-2])
    value = numpy.arange(8.0, dtype="float32")
    check(whole, value[::2] + value[::-2])


def test_plan_scalars_and_random_numbers() -> None:
    storing = step(
        _core.load_object(kernels.store_integers(6)),
        [(1, 0, 0)],
        [7, 0, 0, 0, 0, 0],
        1,
        1,
        scalars=[(1, 0, False), (2, 1, True), (3, -1, False), (4, -2, False), (5, -3, False)],
    )
    made = plan("scalars", [], [(INT64, (6,))], [storing], scalars=2, random=2)
    _core.random_seed(11)
    (first,), (second,) = made(5, 2), made(True, 0.5)
    two, half = numpy.array([2.0, 0.5]).view("int64").tolist()
    assert first.tolist() == [7, 5, two, 11, 0, 1]
    assert second.tolist() == [7, 1, half, 11, 2, 3]
    assert _core.random_reserve(3) == (11, 4) and _core.random_state() == (11, 7)
    (other,) = made(1, 1, device=1)
    assert other.device != first.device


def test_plan_writes_its_input_in_place() -> None:
    adding = loop_step(vector("add", 6, 6), [(0, 0, 0), (0, 1, 0), (0, 0, 0)], 3)
    made = plan(
        "update",
        [(FLOAT32, (3,), None, WRITTEN), (FLOAT32, (3,))],
        [(FLOAT32, (3,), (1,), 0, INPUT, 0)],
        [adding],
    )
    weight, gradient = array([1.0, 2, 3]), array([1.0, 1, 1])
    (result,) = made(weight, gradient)
    assert weight.tolist() == [2, 3, 4] and result._storage == weight._storage
    assert weight.version == 1 and gradient.version == 0
    with pytest.raises(TypeError, match="overwritten"):
        made(array(numpy.zeros(6))[::2], gradient)


def test_plan_input_in_the_storage_that_is_written(core: Any) -> None:
    adding = loop_step(vector("add", 6, 6), [(0, 0, 0), (0, 1, 0), (0, 0, 0)], 3)
    made = plan("update", [(FLOAT32, (3,), None, WRITTEN), (FLOAT32, (3,))], [], [adding])
    x = array([1.0, 2, 3, 4])
    assert made(x[1:], x[:-1]) == ()
    assert x.tolist() == [1, 3, 5, 7]


def test_temporaries_alive_in_one_step_lie_apart() -> None:
    """A step reads one of them backwards while it writes the other."""
    size, temporaries = 100, [Temporary(400, 1, 2), Temporary(400, 2, 3), Temporary(400, 3, 4)]
    copy = vector("copy", 6)
    turned = [size, -1, 1]
    made = plan(
        "turned",
        [(FLOAT32, (size,))],
        [(FLOAT32, (size,))],
        [
            loop_step(copy, [(0, 0, 0), (2, 0, 0)], size),
            step(copy, [(2, 0, 396), (2, 1, 0)], turned, size, size),
            step(copy, [(2, 1, 396), (2, 2, 0)], turned, size, size),
            loop_step(copy, [(2, 2, 0), (1, 0, 0)], size),
        ],
        temporaries=temporaries,
    )
    values = numpy.arange(size, dtype="float32")
    check(made(array(values))[0], values)


@pytest.mark.parametrize("count", [1, 3])
def test_a_workspace_beyond_all_memory_is_a_failure(count: int) -> None:
    copy, spec = vector("copy", 6), (FLOAT32, (2,))
    made = plan(
        "huge",
        [spec],
        [spec],
        [loop_step(copy, [(0, 0, 0), (2, 0, 0)], 2), loop_step(copy, [(2, 0, 0), (1, 0, 0)], 2)],
        temporaries=[Temporary(2**63 - 8, 1, 2)] * count,
    )
    (lost,) = made(array([1.0, 2.0]))
    with pytest.raises(MemoryError, match="huge: no memory for a workspace"):
        lost.wait_to_read()


def test_branches_choose_at_run_time() -> None:
    def scaled(by: str) -> Any:
        return [loop_step(vector(by, 6, 6), [(0, 1, 0), (0, 1, 0), (1, 0, 0)], 2)]

    inner = Branching((0, 0, 1), scaled("add"), scaled("subtract"))
    branch = Branching((0, 0, 0), [inner], scaled("multiply"))
    made = plan("branch", [(BOOL, (2,)), (FLOAT32, (2,))], [(FLOAT32, (2,))], [branch])
    x = array([3.0, 4.0])
    assert made(array([True, True], "bool"), x)[0].tolist() == [6, 8]
    assert made(array([True, False], "bool"), x)[0].tolist() == [0, 0]
    assert made(array([False, True], "bool"), x)[0].tolist() == [9, 16]


def test_the_condition_of_a_choice_may_be_a_temporary() -> None:
    """The temporary does not lie at the start of the workspace."""

    def moved(by: str) -> Any:
        return loop_step(vector(by, 6, 6), [(0, 0, 0), (0, 0, 0), (1, 0, 0)], 2)

    copying = _core.load_object(kernels.elementwise("copy", 1, (BOOL,), BOOL))
    condition = loop_step(copying, [(0, 1, 0), (2, 1, 0)], 1)
    made = plan(
        "choice",
        [(FLOAT32, (2,)), (BOOL, (1,))],
        [(FLOAT32, (2,))],
        [condition, Branching((2, 1, 0), [moved("add")], [moved("multiply")])],
        temporaries=[Temporary(640, 0, 9), Temporary(1, 0, 9)],
    )
    x = array([3.0, 4.0])
    assert made(x, array([True], "bool"))[0].tolist() == [6, 8]
    assert made(x, array([False], "bool"))[0].tolist() == [9, 16]


@pytest.mark.parametrize("size", [3, 1 << 18])
def test_lists_side_by_side_do_what_one_after_the_other_does(size: int) -> None:
    kernel = vector("add", 6, 6)
    parts = [
        [
            loop_step(kernel, [(0, 0, 0), (0, 0, 0), (2, i, 0)], size, cost=1 << 20),
            loop_step(kernel, [(2, i, 0), (0, i, 0), (1, i, 0)], size, cost=1 << 20),
        ]
        for i in range(3)
    ]
    spec = (FLOAT32, (size,))
    temporaries = [Temporary(4 * size, 1, 6)] * 3
    made = plan("together", [spec] * 3, [spec] * 3, [Parallel(parts)], temporaries=temporaries)
    inputs = [numpy.arange(size, dtype="float32") + i for i in range(3)]
    for found, x in zip(made(*map(array, inputs)), inputs, strict=True):
        check(found, 2 * inputs[0] + x)


def test_of_parallel_failures_the_first_in_the_program_is_raised() -> None:
    """Each branch skips what follows it; both fail the one result that depends on both."""
    size = 1 << 16
    checking = _core.load_object(kernels.refuses_negative())

    def branch(i: int) -> list[Any]:
        failure = ("IndexError", f"of branch {i}")
        moved = [(0, i, 0), (2, i, 0)]
        return [step(checking, moved, [size], size, size, failure=failure, cost=1 << 20)]

    spec = (FLOAT32, (size,))
    joining = loop_step(vector("add", 6, 6), [(2, 0, 0), (2, 3, 0), (1, 0, 0)], size)
    made = plan(
        "joined",
        [spec] * 4,
        [spec],
        [Parallel([branch(i) for i in range(4)]), joining],
        temporaries=[Temporary(4 * size, 1, 9)] * 4,
        sites=[(i, [4], [0], []) for i in range(4)],
    )
    good, bad = array(numpy.ones(size)), array(numpy.full(size, -1.0))
    check(made(good, good, good, good)[0], numpy.full(size, 2, "float32"))
    for _ in range(50):
        (lost,) = made(good, bad, bad, bad)
        with pytest.raises(IndexError, match="of branch 1"):
            lost.wait_to_read()


def running(size: int, rounds: Any, width: Any, turned: bool = False) -> Any:
    """Running sums of a (rounds, width) array along the first axis, from its end if `turned`."""
    kernel = vector("add", 6, 6)
    row = 4 * width
    first, step_ = ((rounds - 1) * row, -row) if turned else (0, row)
    windows = [
        ((0, 0, first), step_, 0),
        ((2, 0, 0), 64, 2),  # the state a round reads, and the state it leaves
        ((2, 0, 64), -64, 2),
        ((1, 0, first), step_, 0),
    ]
    body = [
        loop_step(kernel, [(4, 0, 0), (4, 1, 0), (4, 2, 0)], width),
        loop_step(kernel, [(4, 2, 0), (0, 1, 0), (4, 3, 0)], width),
    ]
    zeros = loop_step(vector("multiply", 6, 6), [(0, 1, 0), (0, 1, 0), (2, 0, 0)], width)
    return plan(
        "running",
        [(FLOAT32, (rounds, width)), (FLOAT32, (width,))],
        [(FLOAT32, (rounds, width))],
        [zeros, Loop(rounds, windows, body)],
        temporaries=[Temporary(128, 0, 9)],
    )


@pytest.mark.parametrize("turned", [False, True])
def test_loops_of_any_length(turned: bool) -> None:
    rounds, width = Dim(6, "n", Guards()), Dim(3, "m", Guards())
    made = running(3, rounds, width, turned)
    for shape in ((6, 3), (1, 2), (0, 5), (257, 4)):
        x = numpy.random.default_rng(1).integers(0, 9, shape).astype("float32")
        (found,) = made(array(x), array(numpy.zeros(shape[1])))
        check(found, x[::-1].cumsum(axis=0)[::-1] if turned else x.cumsum(axis=0))


@pytest.mark.parametrize("window", [True, False])
@pytest.mark.parametrize("held", [(), (1, 0, 1, 1, 0), (0, 0, 0), (1, 1), (0, 1)], ids=str)
def test_loops_with_a_condition(held: tuple[int, ...], window: bool) -> None:
    """Skipped rounds keep the states; a condition that cannot change ends the loop."""
    rounds, width = Dim(6, "n", Guards()), Dim(3, "m", Guards())
    kernel = vector("add", 6, 6)
    windows = [
        ((0, 0, 0), 4 * width, 0),
        ((2, 0, 0), 64, 2),
        ((2, 0, 64), -64, 2),
        ((1, 1, 0), 4 * width, 0),
        ((0, 2, 0), 1, 0),
    ]
    body = [
        loop_step(kernel, [(4, 0, 0), (4, 1, 0), (4, 2, 0)], width),
        loop_step(kernel, [(4, 2, 0), (0, 1, 0), (4, 3, 0)], width),
    ]
    last = loop_step(kernel, [(4, 1, 0), (0, 1, 0), (1, 0, 0)], width)
    times = vector("multiply", 6, 6)
    zeros = [
        loop_step(times, [(0, 1, 0), (0, 1, 0), (2, 0, 0)], width),
        loop_step(times, [(0, 0, 0), (0, 3, 0), (1, 1, 0)], rounds * width),
    ]
    made = plan(
        "skipping",
        [
            (FLOAT32, (rounds, width)),
            (FLOAT32, (width,)),
            (BOOL, (rounds,)),
            (FLOAT32, (rounds, width)),
        ],
        [(FLOAT32, (width,)), (FLOAT32, (rounds, width))],
        [*zeros, Loop(rounds, windows, body, (4, 4, 0) if window else (0, 2, 0), [last])],
        temporaries=[Temporary(128, 0, 9)],
    )
    x = numpy.random.default_rng(1).integers(1, 9, (len(held), 3)).astype("float32")
    mask = numpy.array(held, "bool")
    done = mask if window else numpy.full(mask.shape, mask[:1].any())
    sums = numpy.where(done[:, None], (x * done[:, None]).cumsum(axis=0), 0).astype("float32")
    end, found = made(array(x), array(numpy.zeros(3)), array(mask, "bool"), array(x * 0))
    check(end, x[done].sum(axis=0, dtype="float32"))
    check(found, sums)


def test_loops_in_loops_side_by_side_and_what_they_cost() -> None:
    """An inner loop's windows lie in the outer loop's; the cost counts all rounds."""
    kernel, n = vector("add", 6, 6), Dim(4, "n", Guards())
    rows = 1 << 14

    def part(i: int) -> list[Any]:
        windows = [((4, 2 * i, 0), 4 * rows, 0), ((4, 2 * i + 1, 0), 4 * rows, 0)]
        inside = [(4, 4 + 2 * i, 0), (4, 4 + 2 * i, 0), (4, 5 + 2 * i, 0)]
        return [Loop(n, windows, [loop_step(kernel, inside, rows, cost=1 << 14)])]

    outer = [((i % 2, i // 2, 0), 4 * rows * n, 0) for i in range(4)]
    spec = (FLOAT32, (n, n, rows))
    item = Loop(n, outer, [Parallel([part(0), part(1)])])
    made = plan("nested", [spec] * 2, [spec] * 2, [item], microseconds=1 << 14)
    x = numpy.random.default_rng(0).random((3, 3, rows)).astype("float32")
    for _ in range(20):
        first, second = made(array(x), array(-x))
        check(first, x + x)
        check(second, -x - x)
    assert made.bound(array(x), array(x))[0] >= 9 * (1 << 14)


def test_a_failure_in_a_loop_ends_it() -> None:
    """The item is the loop; its site says what fails with it and what is skipped."""
    checking = _core.load_object(kernels.refuses_negative())
    failure = ("IndexError", "negative element")
    windows = [((0, 0, 0), 8, 0), ((1, 0, 0), 8, 0)]
    inside = step(checking, [(4, 0, 0), (4, 1, 0)], [2], 2, 1, failure=failure)
    after = loop_step(vector("add", 6, 6), [(1, 0, 0), (1, 0, 0), (1, 1, 0)], 6)
    other = loop_step(vector("add", 6, 6), [(0, 0, 0), (0, 0, 0), (1, 2, 0)], 6)
    spec = (FLOAT32, (6,))
    items = [Loop(3, windows, [inside]), after, other]
    made = plan("fails", [spec], [spec] * 3, items, sites=[(0, [1], [0, 1], [])])
    good = made(array([1.0, 2, 3, 4, 5, 6]))
    assert [x.tolist()[0] for x in good] == [1, 2, 2]
    first, second, third = made(array([1.0, 2, -3, 4, 5, 6]))
    for lost in (first, second):
        with pytest.raises(IndexError, match="negative element"):
            lost.wait_to_read()
    assert third.tolist() == [2, 4, -6, 8, 10, 12]


def test_constants_stay_alive() -> None:
    def make() -> Any:
        constant = array([1.0, 2.0, 3.0])[1:]
        adding = loop_step(vector("add", 6, 6), [(0, 0, 0), (3, 0, 0), (1, 0, 0)], 2)
        spec = (FLOAT32, (2,))
        return plan("c", [spec], [spec], [adding], captured=[constant])

    made = make()
    gc.collect()
    assert made(array([10.0, 20.0]))[0].tolist() == [12, 23]


def test_tiles_are_cut_by_the_chunk() -> None:
    kernel = _core.load_object(kernels.tile_starts())
    made = plan("tiles", [], [(INT64, (10,))], [step(kernel, [(1, 0, 0)], [], 10, 4)])
    assert made()[0].tolist() == [0] * 4 + [4] * 4 + [8] * 2


def test_malformed_plans_are_refused() -> None:
    kernel = _core.load_object(kernels.tile_starts())
    bad: list[dict[str, Any]] = [
        {"items": [step(kernel, [(0, 0, 0)], [], 1, 1)]},
        {"items": [step(kernel, [(5, 0, 0)], [], 1, 1)]},
        {"items": [step(kernel, [(2, 0, 0)], [], 1, 1)]},
        {"items": [step(kernel, [], [1], 1, 1, scalars=[(1, -1, False)])]},
        {"items": [step(kernel, [], [1], 1, 1, scalars=[(0, 0, False)])]},
        {"items": [Branching((3, 0, 0), [], [])]},
        {"items": [step(kernel, [(4, 0, 0)], [], 1, 1)]},
        {"items": [Loop(2, [((4, 0, 0), 1, 0)], [])]},
        {"items": [Loop(2, [((0, 0, 0), 1, 0)], [])]},
        {
            "outputs": [(INT64, (2,))],
            "items": [Loop(2, [((1, 0, 0), 8, 0)], []), step(kernel, [(4, 0, 0)], [], 1, 1)],
        },
        {"outputs": [(INT64, (2,))], "items": [Loop(2, [((1, 0, 0), 8, -1)], [])]},
        {"items": [Loop(2, [], [], (4, 0, 0), [])]},
        {
            "outputs": [(INT64, (2,))],
            "items": [
                Loop(2, [((1, 0, 0), 8, 0)], [], (1, 0, 0), []),
                step(kernel, [(4, 0, 0)], [], 1, 1),
            ],
        },
        {"outputs": [(FLOAT32, (1,), (1,), 0, OUTPUT, 0)]},
        {"outputs": [(99, (1,))]},
        {"inputs": [(FLOAT32, (1,) * 40)]},
    ]
    for options in bad:
        with pytest.raises(ValueError, match="the plan's image is damaged"):
            plan(**{"name": "bad", "inputs": [], "outputs": [], "items": [], **options})
    whole = image("good", [], [(INT64, (1,))], [step(kernel, [(1, 0, 0)], [], 1, 1)])
    with pytest.raises(ValueError, match="more kernels than given"):
        _core.Plan(whole.write())
    data = whole.write()
    for bytes_ in (b"", data[:40], data[:-8], data + b"\0" * 8, b"\0" * len(data)):
        with pytest.raises(ValueError, match="damaged"):
            _core.Plan(bytes_, whole.kernels)
    with pytest.raises(ValueError, match="version 2, this library reads version 3"):
        _core.Plan(data[:8] + struct.pack("<q", 2) + data[16:], whole.kernels)


def test_any_word_of_an_image_may_be_wrong() -> None:
    """Such an image is refused or names only what exists, and no read goes outside of it."""
    size = Dim(6, "n", Guards())
    kernel = vector("add", 6, 6)
    made = image(
        "mutated",
        [(FLOAT32, (size,)), (FLOAT32, (size, 2), (2, Dim(3, "s", Guards())), WRITTEN)],
        [(FLOAT32, (size * 2 + 1,)), (FLOAT32, (2,), (1,), 1, OUTPUT, 0)],
        [
            loop_step(kernel, [(0, 0, 0), (3, 0, 0), (2, 0, 0)], size),
            Branching((2, 0, 0), [loop_step(kernel, [(0, 0, 0), (0, 0, 0), (1, 0, 0)], size)], []),
            Parallel([[loop_step(kernel, [(0, 0, 0), (0, 0, 0), (1, 0, 0)], size)], []]),
            Loop(
                size,
                [((0, 0, 0), 4, 0), ((2, 0, 0), 64, 2)],
                [loop_step(kernel, [(4, 0, 0), (4, 1, 0), (1, 0, 0)], 1)],
            ),
            Loop(
                size,
                [((0, 0, 0), 4, 0)],
                [loop_step(kernel, [(4, 2, 0), (0, 0, 0), (1, 0, 0)], 1)],
                (4, 2, 0),
                [loop_step(kernel, [(4, 2, 0), (0, 0, 0), (1, 0, 0)], 1)],
            ),
        ],
        temporaries=[Temporary(size // 2, 1, 2)],
        captured=[array([1.0])],
        guards=[Guard(2, "<=", size, True)],
        sites=[(0, [1], [0], [1])],
    )
    data = made.write()
    (count,) = struct.unpack_from("<q", data, 16)
    refused = 0
    for at, value in itertools.product(range(count), (-(2**63), -1, 7, 1 << 20, 2**63 - 1)):
        changed = data[: 8 * at] + struct.pack("<q", value) + data[8 * at + 8 :]
        try:
            _core.Plan(changed, made.kernels, made.captured)
        except ValueError:
            refused += 1
    assert refused > count


def test_an_image_with_everything_in_it_needs_nothing_beside_it() -> None:
    size = Dim(6, "n", Guards())
    code = kernels.elementwise("add", 1, (FLOAT32, FLOAT32), FLOAT32)
    made = Image("embedded")
    made.kernel("add", None, lambda: code)
    made.inputs, made.outputs = [Input(FLOAT32, (size,))], [Output(FLOAT32, (size,))]
    made.captured = [array([1.0, 2.0, 3.0])]
    made.items = [loop_step(0, [(0, 0, 0), (3, 0, 0), (1, 0, 0)], size)]
    alone = _core.Plan(made.write(embed=True))
    assert alone(array([10.0, 20.0]))[0].tolist() == [11, 22]
    assert alone(array([10.0, 20.0, 30.0]))[0].tolist() == [11, 22, 33]


# --- sizes -------------------------------------------------------------------------------------


def test_a_plan_serves_the_sizes_its_guards_allow() -> None:
    guards = Guards()
    n = Dim(6, "n", guards)
    assert n > 3
    kernel = vector("add", 6, 6)
    half = n // 2
    made = plan(
        "halves",
        [(FLOAT32, (n,)), (FLOAT32, (n,))],
        [(FLOAT32, (half,)), (FLOAT32, (n - half,), (1,), 0, INPUT, 1)],
        [
            loop_step(kernel, [(0, 0, 0), (0, 1, 4 * (n - half)), (2, 0, 0)], half),
            loop_step(kernel, [(2, 0, 0), (2, 0, 0), (1, 0, 0)], half),
        ],
        temporaries=[Temporary(4 * half, 1, 2)],
        guards=guards,
    )
    for size in (4, 5, 1000):
        x = numpy.arange(size, dtype="float32")
        first, second = made(array(x), array(2 * x))
        middle = size // 2
        check(first, 2 * (x[:middle] + 2 * x[size - middle :]))
        check(second, 2 * x[: size - middle])
        assert made.bound(array(x), array(x))[1] == -(-4 * middle // 64) * 64
    with pytest.raises(TypeError, match="guards"):
        made(array(numpy.ones(3)), array(numpy.ones(3)))
    with pytest.raises(TypeError, match=r"input 1 has shape \(5,\), the plan was made for \(n0,\)"):
        made(array(numpy.ones(4)), array(numpy.ones(5)))


def test_sizes_beyond_63_bits_do_not_fit() -> None:
    n = Dim(6, "n", Guards())
    made = plan("large", [(FLOAT32, (n,))], [(FLOAT32, (n * 2**61,), (0,), 0, INPUT, 0)], [])
    with pytest.raises((TypeError, ValueError), match=r"other sizes|63 bits"):
        made(array(numpy.ones(4)))


# --- general operations ------------------------------------------------------------------------


class General(_core.OpBase):
    """A general operation that doubles vectors or views them."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind, False, ())
        self.kind = kind
        self.prepared = 0
        self.recorded: list[Any] = []

    def _prepare(self, inputs: Any, keywords: Any) -> Any:
        self.prepared += 1
        size = inputs[0].size
        if self.kind == "none":
            return None
        n = Dim(size, "n", Guards())
        if self.kind == "view":
            return plan("half", [(FLOAT32, (n,))], [(FLOAT32, (n // 2,), (2,), 0, INPUT, 0)], [])
        guards = [Guard(2, "<=", n, self.kind != "single")]
        adding = loop_step(vector("add", 6, 6), [(0, 0, 0), (0, 0, 0), (1, 0, 0)], n)
        spec = (FLOAT32, (n,))
        return plan("double", [spec], [spec], [adding], guards=guards)

    def _call(self, inputs: Any, keywords: Any) -> Any:
        return "call"

    def _record(self, inputs: Any, keywords: Any, outputs: Any) -> None:
        self.recorded.append(outputs)


def test_general_operations_are_prepared_once_for_many_sizes(core: Any) -> None:
    double = General("double")
    for size in (2, 3, 2, 1000, 3):
        x = numpy.arange(size, dtype="float32")
        check(double(array(x)), 2 * x)
    assert double.prepared == 1
    single = General("single")
    assert single(array([1.0])).tolist() == [2]
    with pytest.raises(RuntimeError, match="does not fit the call it was made for"):
        single(array([1.0, 2.0]))
    assert single.prepared == 2
    x = array([1.0, 2, 3, 4, 5, 6])
    assert General("none")(x) == "call"
    with pytest.raises(ZeroDivisionError):
        broken = General("double")
        broken._prepare = lambda *_: 1 // 0  # type: ignore[method-assign]
        broken(x)


def test_general_views_are_relative_to_the_input() -> None:
    view = General("view")
    x = array([1.0, 2, 3, 4, 5, 6])
    assert view(x).tolist() == [1, 3, 5]
    assert view(x[2:]).tolist() == [3, 5]
    x._track(1)
    old = _core.set_recording(True)
    y = view(x)
    _core.set_recording(old)
    assert y._history is x._history and view.recorded == []


# --- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("microseconds", [0.1, 1e6])
def test_failures_are_sticky_and_say_where(core: Any, microseconds: float) -> None:
    made = checked_copy(microseconds)
    line = sys._getframe().f_lineno + 1
    (bad,) = made(array([1.0, -1.0]))
    spread = bad + 1
    for x in (bad, spread, bad):
        with pytest.raises(IndexError) as caught:
            x.tolist()
        assert str(caught.value) == f"negative element (issued at {__file__}:{line})"
    core["copy"].into(bad, 3.0)
    assert bad.tolist() == [3.0, 3.0]
    with pytest.raises(IndexError):
        spread.wait_to_read()
    _core.wait_all()


def test_wait_all_raises_what_nobody_has_seen() -> None:
    (bad,) = checked_copy(1e6)(array([1.0, -1.0]))
    with pytest.raises(IndexError, match="negative"):
        _core.wait_all()
    _core.wait_all()
    with pytest.raises(IndexError):
        bad.item() if bad.size == 1 else bad.tolist()


def test_an_update_with_a_failed_input_leaves_its_target() -> None:
    (bad,) = checked_copy(1e6)(array([1.0, -1.0]))
    adding = loop_step(vector("add", 6, 6), [(0, 0, 0), (0, 1, 0), (0, 0, 0)], 2)
    update = plan("update", [(FLOAT32, (2,), None, WRITTEN), (FLOAT32, (2,))], [], [adding])
    weight = array([1.0, 2.0])
    update(weight, bad)
    assert weight.tolist() == [1.0, 2.0]
    update(weight, weight + 1)
    assert weight.tolist() == [3.0, 5.0]
    with pytest.raises(IndexError):
        bad.wait_to_read()


def run_python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    directory = os.path.dirname(__file__)
    path = os.pathsep.join([directory, os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


UNSEEN = """
    from core_fakes import array, checked_copy
    checked_copy(1e6)(array([1.0, -1.0]))
    print("done")
"""


def test_unseen_errors_end_the_process_with_70() -> None:
    ended = run_python(UNSEEN)
    assert ended.returncode == 70, ended.stderr
    assert ended.stdout == "done\n"
    assert "IndexError: negative element (issued at <string>:3)" in ended.stderr
    warned = run_python(UNSEEN, GEMEL_UNSEEN_ERRORS="warn")
    assert warned.returncode == 0 and "IndexError" in warned.stderr


def test_fork_while_work_is_pending() -> None:
    ended = run_python("""
        import os, numpy
        from core_fakes import array, multiply_add
        plan = multiply_add(100000, 1000)
        x = array(numpy.ones(100000))
        for _ in range(20):
            y, _ = plan(x, x)
        child = os.fork()
        z, _ = plan(y, y)
        assert z.tolist()[7] == 8.0
        if child == 0:
            os._exit(17)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    """)
    assert ended.returncode == 0, ended.stderr


def test_interrupt_ends_a_wait() -> None:
    ended = run_python("""
        import os, signal, threading, time, numpy, core_kernels
        from gemel import _core
        _core.configure(workers=1)
        kernel = _core.load_object(core_kernels.slow_copy(1 << 40))
        from core_fakes import plan, step
        copying = step(kernel, [(0, 0, 0), (1, 0, 0)], [8], 8, 8)
        made = plan("forever", [(7, (8,))], [(7, (8,))], [copying], microseconds=1e9)
        x = _core.empty((8,), 7, 0)
        (y,) = made(x)
        time.sleep(0.3)  # a worker has begun it
        try:
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            y.wait_to_read()
        except KeyboardInterrupt:
            os._exit(5)
    """)
    assert ended.returncode == 5, ended.stderr


# --- kernels, threads --------------------------------------------------------------------------


def test_corrupt_objects_are_refused() -> None:
    code = kernels.elementwise("add", 1, (FLOAT32, -2), FLOAT32)
    for bad in (b"", b"text", code[:100], code[: len(code) // 2], b"\0" * len(code)):
        with pytest.raises(ValueError):
            _core.load_object(bad)
    for at in range(0, len(code), 3):
        changed = bytearray(code)
        changed[at] ^= 0xFF
        try:
            _core.load_object(bytes(changed))
        except ValueError:
            continue
    with pytest.raises(ValueError, match="not_in_the_table"):
        _core.load_object(kernels.calls_unknown())
    assert _core.load_object(code).address != 0


def test_a_kernel_that_is_no_elementwise_is_refused(core: Any) -> None:
    core["add"]._kernel = lambda *_: 5
    with pytest.raises(TypeError, match="Elementwise"):
        array([1.0]) + 1
    with pytest.raises(ValueError):
        _core.Elementwise(_core.load_object(kernels.tile_starts()), ())


def test_several_threads_issue(core: Any) -> None:
    core["add"].nanoseconds = 1e6
    made = multiply_add(64, 8)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        x = array(numpy.full(64, seed))
        for _ in range(200):
            x = x + 1
            whole, _ = made(x, x)
        if x.tolist() != [seed + 200.0] * 64 or whole.tolist() != [2.0 * (seed + 200) ** 2] * 64:
            wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_counters_and_configuration() -> None:
    counters = _core.counters()
    assert {"operations", "inline", "queued", "tiles", "allocations", "bytes_in_use"} <= set(
        counters
    )
    assert _core.workers() >= 0
    old = _core.set_training(True)
    assert _core.training() and _core.set_training(old) is True
