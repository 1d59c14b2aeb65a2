"""Sums by couriers, each with its own sockets and thread; all ranks are in one process here."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy
import pytest

from gemel import _core, np, npx
from gemel.errors import WorkersError
from gemel.kvstore.courier import state_of

MAGIC = 0x67656D656C733031


def pair() -> tuple[socket.socket, socket.socket]:
    listener = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
    listener.close()
    return near, far


def couriers(size: int) -> list[Any]:
    ends = [[-1] * size for _ in range(size)]
    for low, high in itertools.combinations(range(size), 2):
        near, far = pair()
        ends[low][high], ends[high][low] = near.detach(), far.detach()
    return [_core.Courier(rank, row) for rank, row in enumerate(ends)]


@pytest.fixture
def some(request: pytest.FixtureRequest) -> Any:
    made = couriers(request.param)
    yield made
    for one in made:
        one.close("WorkersError", "the test is over")
    # A test need not wait for every rank's sums; those that fail now must not reach later tests.
    with contextlib.suppress(WorkersError):
        npx.waitall()


def issued(courier: Any, tag: int, arrays: Sequence[Any], priority: int = 0) -> Any:
    specs = [(array._code, array.shape) for array in arrays]
    item = arrays[0].dtype.itemsize
    number = courier.number(tag, f"sum {tag}", item, priority)
    return courier.desk.issue(number, f"sum {tag}", arrays, specs)


def until(wanted: Any) -> Any:
    """The value of `wanted()` once it is true."""
    end = time.monotonic() + 20
    while not (found := wanted()):
        assert time.monotonic() < end
        time.sleep(0.005)
    return found


SIZES = [[0], [1], [3, 0, 5], [1000, 7], [70_001, 1, 200_000], [1_500_000]]


@pytest.mark.parametrize("some", [1, 2, 3, 5], indirect=True)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_elements_are_added_in_the_order_of_ranks(some: list[Any], dtype: str) -> None:
    """Several arrays at once, some empty, and more bytes than the buffers in between hold."""
    draw = numpy.random.default_rng(0)
    for tag, sizes in enumerate(SIZES):
        rows = [[draw.normal(size=size).astype(dtype) for size in sizes] for _ in some]
        totals = [
            issued(courier, tag, [np.array(row, dtype=dtype) for row in mine])
            for courier, mine in reversed(list(zip(some, rows, strict=True)))
        ]
        expected = [row.copy() for row in rows[0]]
        for mine in rows[1:]:
            for total, row in zip(expected, mine, strict=True):
                total += row
        for found in totals:
            assert [one.asnumpy().tobytes() for one in found] == [e.tobytes() for e in expected]
    until(lambda: all(state_of(courier).sums == len(SIZES) for courier in some))


@pytest.mark.parametrize("some", [2, 4], indirect=True)
def test_sums_that_start_in_another_order_on_each_rank(some: list[Any]) -> None:
    totals = []
    for rank, courier in enumerate(some):
        order = list(range(6))
        order = order[rank:] + order[:rank]
        for tag in order if rank % 2 else reversed(order):
            array = np.full((40_000 + tag,), 10.0**rank)
            totals.append((tag, *issued(courier, tag, [array], priority=-tag)))
    expected = sum(10.0**rank for rank in range(len(some)))
    for tag, total in totals:
        assert total.shape == (40_000 + tag,) and (total.asnumpy() == expected).all()


@pytest.mark.parametrize("some", [2, 3], indirect=True)
def test_a_rank_many_rounds_ahead(some: list[Any]) -> None:
    turns = range(30)
    ahead = [issued(some[0], 7, [np.full((30_000,), float(turn))])[0] for turn in turns]
    time.sleep(0.1)
    assert state_of(some[0]).open == len(turns) and state_of(some[0]).name == "sum 7"
    for courier in some[1:]:
        for turn in turns:
            issued(courier, 7, [np.full((30_000,), float(turn))])
    for turn, total in zip(turns, ahead, strict=True):
        assert (total.asnumpy() == turn * len(some)).all()
    until(lambda: state_of(some[0]).open == 0)


@pytest.mark.parametrize("some", [2], indirect=True)
def test_a_waiting_worker_learns_who_is_late_and_leaves_the_core_free(some: list[Any]) -> None:
    total = issued(some[0], 7, [np.ones((200_000,))])[0]
    state = until(lambda: s if (s := state_of(some[0])).waiting > 0.2 else None)
    assert state.name == "sum 7" and state.missing == [1] and state.worked < 0.1
    issued(some[1], 7, [np.ones((200_000,))])
    assert total.asnumpy()[-1] == 2


@pytest.mark.parametrize("some", [3], indirect=True)
def test_several_threads_issue(some: list[Any]) -> None:
    totals: dict[tuple[int, int], list[Any]] = {}

    def work(rank: int, tag: int) -> None:
        made = [issued(some[rank], tag, [np.full((999,), tag + turn)]) for turn in range(20)]
        totals[rank, tag] = [total.asnumpy()[-1] for (total,) in made]

    places = itertools.product(range(3), range(4))
    threads = [threading.Thread(target=work, args=place) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(totals) == 12
    for (_, tag), found in totals.items():
        assert found == [3 * (tag + turn) for turn in range(20)]


# ---- what can go wrong


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("some", [2, 3], indirect=True)
def test_sums_of_other_sizes_are_no_sums(some: list[Any], early: bool) -> None:
    """The other worker's part may come before the sum has started here, or after."""
    first, second = (some[1], some[0]) if early else (some[0], some[1])
    totals = [issued(first, 7, [np.ones((10 if early else 20,))])[0]]
    time.sleep(0.1)
    totals.append(issued(second, 7, [np.ones((20 if early else 10,))])[0])
    problem = until(lambda: state_of(some[0]).problem)
    assert "the workers disagree about sum 7: worker 1 sends" in problem
    for courier in some:
        courier.close("WorkersError", problem)
    for total in totals:
        with pytest.raises(WorkersError, match="disagree"):
            total.wait_to_read()
    with pytest.raises(WorkersError, match="disagree"):
        issued(some[0], 8, [np.ones((2,))])[0].wait_to_read()


@pytest.mark.parametrize("some", [2, 3], indirect=True)
def test_a_rank_that_goes(some: list[Any]) -> None:
    total = issued(some[0], 7, [np.ones((1000,))])[0]
    some.pop(1)
    gc.collect()
    assert until(lambda: state_of(some[0]).problem) == "sum 7: worker 1 is gone"
    some[0].close("WorkersError", "it is over")
    with pytest.raises(WorkersError, match="it is over"):
        total.wait_to_read()


def _header(tag: int, turn: int, phase: int, size: int, magic: int = MAGIC) -> bytes:
    return struct.pack("=5Q", magic, tag, turn, phase, size)


@pytest.mark.parametrize("started", [False, True])
def test_a_rank_that_dies_in_the_middle_of_a_bucket(started: bool) -> None:
    near, far = pair()
    courier = _core.Courier(0, [-1, near.detach()])
    total = issued(courier, 7, [np.ones((1000,))])[0] if started else None
    far.sendall(_header(7, 0, 0, 4000) + bytes(1999))
    time.sleep(0.05)
    far.close()
    time.sleep(0.05)
    if total is None:
        assert not state_of(courier).problem  # no sum waits for it
        total = issued(courier, 7, [np.ones((1000,))])[0]
    assert until(lambda: state_of(courier).problem) == "sum 7: worker 1 is gone"
    courier.close("WorkersError", "kvstore: worker 1 is gone")
    with pytest.raises(WorkersError, match="worker 1 is gone"):
        total.wait_to_read()


STRANGE = [
    b"GET / HTTP/1.0\r\nHost: nobody of this job at all\r\n\r\n",
    _header(7, 0, 0, 4000, MAGIC + 1),
    _header(7, 0, 2, 4000),
    _header(7, 5, 1, 4000),
    _header(7, 0, 0, 4000) + bytes(4000) + _header(7, 0, 0, 4000),
]


@pytest.mark.parametrize("said", STRANGE)
def test_invalid_messages_are_refused(said: bytes) -> None:
    near, far = pair()
    courier = _core.Courier(0, [-1, near.detach()])
    far.setblocking(False)
    hold = np.ones((1000,))
    totals = issued(courier, 7, [hold]) if said != STRANGE[-1] else ()
    far.sendall(said)
    if said == STRANGE[-1]:
        time.sleep(0.05)
        totals = issued(courier, 9, [hold])  # makes it read what has arrived
    assert until(lambda: state_of(courier).problem) == "what worker 1 sends makes no sense"
    courier.close("WorkersError", "over")
    far.close()
    with pytest.raises(WorkersError, match="over"):
        totals[0].wait_to_read()


@pytest.mark.parametrize("some", [2], indirect=True)
def test_earlier_failures_are_named(some: list[Any]) -> None:
    broken = np.take(np.ones((3,)), np.array([9] * 3), mode="raise")
    total = issued(some[0], 7, [np.ones((2,)), broken])[0]
    problem = until(lambda: state_of(some[0]).problem)
    assert problem.startswith("worker 0: sum 7: take: an index is out of bounds")
    with pytest.raises(Exception, match="out of bounds"):
        total.wait_to_read()


@pytest.mark.parametrize("some", [2], indirect=True)
def test_a_fork_leaves_the_sockets_alone(some: list[Any]) -> None:
    child = os.fork()
    if child == 0:
        some.clear()
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    totals = [issued(courier, 7, [np.ones((100_000,))])[0] for courier in some]
    assert [total.asnumpy()[-1] for total in totals] == [2, 2]


def test_items_of_other_sizes_are_refused() -> None:
    courier = _core.Courier(0, [-1])
    with pytest.raises(ValueError, match="4 or 8 bytes"):
        courier.number(1, "sum", 2, 0)
    courier.close("WorkersError", "over")
