"""Workers that issue rounds long before others reach them, or from several threads."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from server_jobs import QUICK, Link, ServerThread, job

from gemel import np
from gemel.errors import WaitLimitError
from gemel.kvstore.server import client
from gemel.kvstore.server.entries import MOST_AHEAD
from gemel.kvstore.server.errands import Turns
from gemel.kvstore.server.protocol import Kind, Message
from gemel.kvstore.server.requests import Requests

MANY = 2 * MOST_AHEAD + 20


def is_ahead(thread: ServerThread) -> bool:
    """Whether a server has as many pushes of the first two workers as it accepts in advance."""
    assert thread.server is not None
    entries = [e for e in thread.server.state.entries.values() if not e.barrier]
    return all(min(entry.last.get(rank, 0) for rank in (0, 1)) == MOST_AHEAD for entry in entries)


@pytest.mark.parametrize("rule", ["replace", "leave_out"])
@pytest.mark.parametrize("comes", [True, False])
def test_a_worker_that_is_many_rounds_ahead(rule: str, comes: bool) -> None:
    """Its pushes wait for the other workers, which join the rounds or finish before them."""
    with job(3, servers=2, rule=rule) as made:
        issued = threading.Barrier(3)

        def work(rank: int) -> Any:
            store = made.store(rank)
            outs = np.zeros((3,)), np.zeros((1,))
            store.init(["a", "b"], list(outs))
            store.barrier()
            if rank == 2:
                issued.wait(20)
                until = time.monotonic() + 20
                while time.monotonic() < until and not all(map(is_ahead, made.servers)):
                    time.sleep(0.01)
                if not comes:
                    store.close()
                    return None
            for step in range(MANY):
                store.push(["a", "b"], [np.ones((3,)) * step, np.ones((1,))])
            if rank < 2:
                store._errands.finish(time.monotonic() + 20)
                issued.wait(20)
            store.pull(["a", "b"], list(outs))
            return [out.tolist() for out in outs]

        expected = [[3.0 * (MANY - 1)] * 3, [3.0]]
        assert made.each(work) == [expected, expected, expected if comes else None]


@pytest.mark.parametrize("comes", [True, False])
def test_a_push_without_rounds_before_the_value_is_given(comes: bool) -> None:
    """It waits for worker 0's value, and a pull after it has the push in it."""
    with job(2, limits=replace(QUICK, wait=2.0)) as made:
        stores = [made.store(rank, "dist_async") for rank in range(2)]
        out = np.zeros((3,))
        stores[1].init("w", out)
        stores[1].push("w", np.full((3,), 7.0))
        stores[1].pull("w", out)
        until = time.monotonic() + 10
        thread = made.servers[0]
        while time.monotonic() < until and not (thread.server and thread.server._early):
            time.sleep(0.01)
        if not comes:
            with pytest.raises(WaitLimitError, match="since worker 0 has not arrived"):
                out.wait_to_read()
            return
        stores[0].init("w", np.ones((3,)))
        assert out.tolist() == [7, 7, 7]


def test_pushes_wait_for_values_that_servers_do_not_keep_for_long() -> None:
    """Values are kept for two rounds, so the third's last push waits for the first's value."""
    requests = Requests(1 << 20)
    for key in (1, 2):
        for step in range(1, 5):
            for kind in (Kind.PUSH, Kind.PULL):
                requests.add(Message(kind, key=key, sequence=step), print, "", 2 - key, 60)

    def sent() -> list[tuple[str, int, int]]:
        found = []
        while (request := requests.next()) is not None:
            message = request.message
            tags[message.kind, message.key, message.sequence] = message.tag
            found.append((message.kind.name.lower(), message.key, message.sequence))
        return found

    def rounds(*steps: int, key: int) -> list[tuple[str, int, int]]:
        return [(kind, key, step) for step in steps for kind in ("push", "pull")]

    tags: dict[tuple[Kind, int, int], int] = {}
    assert sent() == rounds(1, 2, key=1) + rounds(1, 2, key=2)
    requests.answered(tags[Kind.PUSH, 1, 1])
    requests.answered(tags[Kind.PULL, 2, 2])
    assert sent() == []
    requests.answered(tags[Kind.PULL, 1, 1])
    assert sent() == rounds(3, key=1)
    requests.again()  # over a new connection, in the original order
    assert sent() == [*rounds(2, 3, key=1), *rounds(1, key=2), ("push", 2, 2)]
    requests.answered(tags[Kind.PULL, 1, 2])
    requests.answered(tags[Kind.PULL, 2, 1])
    assert sent() == rounds(4, key=1) + rounds(3, 4, key=2)
    assert len(requests.drain()) == 11 and len(requests) == 0 and sent() == []


def test_a_value_asked_for_late_is_not_held_behind_the_push_that_waits_for_it() -> None:
    requests = Requests(1 << 20)
    for kind, step in ((Kind.PULL, 1), (Kind.PUSH, 3), (Kind.PULL, 2), (Kind.PULL, 3)):
        requests.add(Message(kind, key=1, sequence=step), print, "", 0, 60)
    sent = []
    while (request := requests.next()) is not None:
        sent.append((request.message.kind, request.message.sequence))
    assert sent == [(Kind.PULL, 1), (Kind.PULL, 2)]


def test_a_key_s_errands_begin_as_they_were_issued() -> None:
    turns = Turns()
    begun: list[int] = []
    begins = [turns.next(begun.append) for _ in range(4)]
    for number in (1, 3, 0, 2):
        begins[number](number)
    assert begun == [0, 1, 2, 3]


def test_values_asked_for_before_a_link_is_cut() -> None:
    with job(2) as made:
        links = [Link(made.addresses[0]) for _ in range(2)]
        try:

            def work(rank: int) -> Any:
                store = made.store(rank, servers=(links[rank].address,))
                outs = [np.zeros((2,)) for _ in range(MANY)]
                store.init(0, outs[0])
                store.barrier()
                for step, out in enumerate(outs):
                    store.pushpull(0, np.ones((2,)) * step, out)
                    if step == MANY // 2 and rank == 0:
                        links[0].cut(1.0)
                return [out.tolist() for out in outs]

            expected = [[2.0 * step] * 2 for step in range(MANY)]
            assert made.each(work) == [expected, expected]
        finally:
            for link in links:
                link.close()


@pytest.mark.parametrize("name", ["dist_sync", "dist_async"])
def test_one_key_from_several_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each push counts once, whichever thread counts it; one thread creates the key."""
    counted = client.numbers_for

    def slowly(*given: Any) -> Any:
        time.sleep(0.002)  # lets the other threads run
        return counted(*given)

    monkeypatch.setattr(client, "numbers_for", slowly)
    with job(1, servers=2) as made:
        store = made.store(0, name)
        errors: list[BaseException] = []

        def work() -> None:
            try:
                store.init(["a", "b"], [np.zeros((2,)), np.zeros((2,))])
                out = np.zeros((2,))
                for _ in range(10):
                    store.push("a", np.ones((2,)))
                    store.pushpull("b", np.ones((2,)), out)
                    assert out.tolist() == [1, 1]
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not errors and not any(thread.is_alive() for thread in threads)
        assert [store._known(key).pushes for key in "ab"] == [40, 40]
        out = np.zeros((2,))
        store.pull("a", out)
        assert out.tolist() == [1, 1]
