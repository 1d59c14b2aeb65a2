"""Sockets between workers: sums and messages, who is admitted, and workers that go away."""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pytest

from gemel.errors import WorkersError
from gemel.kvstore import sockets
from gemel.kvstore.sockets import Connections, opened


class Meeting:
    """What MPI would do, for ranks that are threads."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size)
        self._rows: list[Any] = [None] * size

    def gathered(self, rank: int, row: Any) -> Any:
        self._rows[rank] = row
        self._barrier.wait(30)
        found = numpy.stack(self._rows)
        self._barrier.wait(30)
        return found


def on_all(size: int, work: Callable[[int], Any]) -> list[Any]:
    """The result of each rank's thread; raises the error of the first that failed."""
    found: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            found[rank] = work(rank)
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


def connected(machines: Sequence[int], *told: str) -> list[Connections | None]:
    meeting = Meeting(len(machines))

    def join(rank: int) -> Connections | None:
        def gathered(row: Any) -> Any:
            return meeting.gathered(rank, row)

        some = told[rank : rank + 1]
        return opened(machines, rank, gathered, lambda row: gathered(row)[0], *some)

    return on_all(len(machines), join)


@pytest.fixture
def some(request: pytest.FixtureRequest) -> Any:
    made = connected(request.param)
    yield made
    for one in made:
        one.close()


SIZES = [0, 1, 3, 1000, 70_001, 3_000_000]


@pytest.mark.parametrize("some", [(0, 0), (0, 0, 0), (0,) * 5], indirect=True)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_rows_are_added_in_the_order_of_ranks(some: list[Connections], dtype: str) -> None:
    """The largest rows do not fit into the buffers in between."""
    draw = numpy.random.default_rng(0)
    for count in SIZES:
        rows = [(draw.normal(size=count) * 100).astype(dtype) for _ in some]
        expected = rows[0].copy()
        for row in rows[1:]:
            expected += row
        given = [row.copy() for row in rows]
        totals = on_all(len(some), lambda rank, given=given: some[rank].summed(given[rank]))
        for total in totals:
            assert total.dtype == dtype and total.tobytes() == expected.tobytes()


@pytest.mark.parametrize("some", [(0, 0, 0)], indirect=True)
def test_messages_of_any_length_and_number(some: list[Connections]) -> None:
    sent = [b"", b"x", b"y" * 300_000] + [bytes([n]) * n for n in range(200)]
    for message in sent:
        some[2].send(0, message)
        some[0].send(1, message)
    for receiver, sender in ((0, 2), (1, 0)):
        found: list[Any] = []
        until = time.monotonic() + 20
        while len(found) < len(sent) and time.monotonic() < until:
            found += some[receiver].received(0.01)
            some[sender].received()  # sends the rest
        assert found == [(sender, message) for message in sent]
    assert some[0].received() == []


@pytest.mark.parametrize("some", [(0, 0)], indirect=True)
def test_a_worker_waiting_for_a_message_sleeps_and_is_woken(some: list[Connections]) -> None:
    begun = time.monotonic()
    assert some[0].received(0.05) == [] and time.monotonic() - begun > 0.04
    threading.Timer(0.1, some[1].send, (0, b"now")).start()
    worked = time.thread_time()
    assert some[0].received(20.0) == [(1, b"now")]
    assert time.monotonic() - begun < 10 and time.thread_time() - worked < 0.05


@pytest.mark.parametrize("some", [(0, 0)], indirect=True)
def test_a_worker_waiting_for_contents_leaves_the_core_free(some: list[Connections]) -> None:
    row = numpy.ones(100_000, "float32")

    def work(rank: int) -> float:
        time.sleep(0.3 * rank)
        worked = time.thread_time()
        some[rank].summed(row.copy())
        return time.thread_time() - worked

    assert on_all(2, work)[0] < 0.1


@pytest.mark.parametrize("some", [(0, 0)], indirect=True)
def test_a_system_that_waits_for_more_bytes_than_arrive(
    some: list[Connections], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like a system whose buffers never hold as many bytes as the low-water mark asks for."""
    wanted = Connections._wanted

    def more(self: Connections, rank: int, outward: Any, inward: Any) -> int:
        found = wanted(self, rank, outward, inward)
        self._contents[rank].setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 50_000)
        return found

    monkeypatch.setattr(Connections, "_wanted", more)

    def work(rank: int) -> Any:
        time.sleep(0.2 * rank)
        return some[rank].summed(numpy.ones(100))

    assert [total.tolist() for total in on_all(2, work)] == [[2.0] * 100] * 2


@pytest.mark.parametrize("some", [(0, 0, 0)], indirect=True)
def test_a_worker_that_goes_is_named(some: list[Connections]) -> None:
    some[1].close()
    with pytest.raises(WorkersError, match="worker 1 is gone"):
        some[0].exchange({}, {1: numpy.empty(10)})
    large = numpy.zeros(5_000_000)
    with pytest.raises(WorkersError, match="worker 1 is gone"):
        for _ in range(3):
            some[2].exchange({1: large}, {})
    for _ in range(3):
        some[0].send(1, b"lost")
        assert some[0].received() == []


@pytest.mark.parametrize("some", [(0, 0)], indirect=True)
def test_a_length_that_cannot_occur_is_refused(some: list[Connections]) -> None:
    some[1]._messages[0].send(struct.pack(">I", 0xFFFFFFFF))
    with pytest.raises(WorkersError, match="4294967295 bytes"):
        some[0].received(5.0)


# ---- opening


def test_if_one_worker_cannot_listen_no_worker_uses_sockets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listen, refused = sockets._listener, []

    def once(backlog: int) -> Any:
        if not refused:
            refused.append(backlog)
            return None
        return listen(backlog)

    monkeypatch.setattr(sockets, "_listener", once)
    monkeypatch.setattr(sockets, "OPENING", 0.5)
    assert connected((0, 0, 0)) == [None] * 3


def test_a_worker_without_sockets_delays_nobody() -> None:
    begun = time.monotonic()
    assert connected((0, 0, 0), "all", "none", "all") == [None] * 3
    assert time.monotonic() - begun < sockets.OPENING / 2


@pytest.mark.skipif(sys.platform != "linux", reason="interfaces are asked for by Linux's words")
def test_sockets_over_one_interface_only() -> None:
    assert sockets._addresses("lo") == ["127.0.0.1"]
    made = connected((0, 0), "lo", "lo")
    rows = [numpy.full(3, 1.0), numpy.full(3, 2.0)]
    assert on_all(2, lambda rank: made[rank].summed(rows[rank]).tolist()) == [[3.0] * 3] * 2
    for one in made:
        one.close()
    with pytest.raises(WorkersError, match=r"GEMEL_SOCKETS=nosuch0.*use one of .*lo.*, or all"):
        sockets._addresses("nosuch0")


def test_if_no_address_is_reachable_no_worker_uses_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_addresses", lambda interface: ["127.0.0.1"])
    monkeypatch.setattr(sockets, "OPENING", 0.5)
    begun = time.monotonic()
    assert connected((0, 1)) == [None] * 2  # 127.0.0.1 of another machine is not tried
    assert time.monotonic() - begun < 10


def _silent(port: int) -> Any:
    return socket.create_connection(("127.0.0.1", port))


def _noisy(port: int) -> Any:
    channel = _silent(port)
    channel.sendall(struct.pack(">I", 20) + b"GET / HTTP/1.0\r\n\r\n..")
    return channel


def _forged(port: int) -> Any:
    """A client that does not know the secret."""
    channel = _silent(port)
    sockets._heard(channel)
    sockets._say(channel, {"from": 1, "to": 0, "use": "contents", "proof": "0" * 64})
    return channel


@pytest.mark.parametrize("stranger", [_silent, _noisy, _forged])
def test_strangers_are_not_let_in(
    stranger: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    listen, channels, knocked = sockets._listener, [], threading.Event()

    def watched(backlog: int) -> Any:
        made = listen(backlog)
        assert made is not None

        def knock() -> None:
            channels.append(stranger(made.getsockname()[1]))

        if threading.current_thread().name == "first":
            threading.Thread(target=knock, daemon=True).start()
            knocked.set()
        else:  # connects after the stranger
            assert knocked.wait(10)
            time.sleep(0.1)
        return made

    monkeypatch.setattr(sockets, "_listener", watched)
    monkeypatch.setattr(sockets, "TRY", 0.5)
    meeting = Meeting(2)

    def join(rank: int) -> Any:
        if rank == 0:
            threading.current_thread().name = "first"

        def gathered(row: Any) -> Any:
            return meeting.gathered(rank, row)

        return opened((0, 0), rank, gathered, lambda row: gathered(row)[0])

    made = on_all(2, join)
    rows = [numpy.full(5, 1.0), numpy.full(5, 2.0)]
    assert [t.tolist() for t in on_all(2, lambda rank: made[rank].summed(rows[rank]))] == [
        [3.0] * 5
    ] * 2
    for one in (*made, *channels):
        one.close()


@pytest.mark.parametrize("said", [b"{}", b"[]", b"7", b'{"challenge": 5}', b"no words at all"])
def test_answers_of_other_programs_are_ignored(said: bytes) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        channel, _ = listener.accept()
        channel.sendall(sockets.LENGTH.pack(len(said)) + said)
        channel.close()

    answering = threading.Thread(target=answer)
    answering.start()
    row = struct.pack(">H", listener.getsockname()[1]) + socket.inet_aton("127.0.0.1")
    door = sockets._Door((0, 0), 1, b"secret", time.monotonic() + 5)
    with pytest.raises(ConnectionError, match="worker 0 cannot be reached"):
        door._connected(0, row, "contents")
    answering.join()
    listener.close()
