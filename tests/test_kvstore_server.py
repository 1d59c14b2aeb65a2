"""Stores on parameter servers: the interface, rounds, wrong use, connections that break."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import numpy
import pytest
from server_jobs import QUICK, SECRET, Link, job

from gemel import _core, autograd, device, kvstore, np, npx, optimizer
from gemel.device import cpu, gpu
from gemel.errors import (
    ArgumentError,
    DTypeError,
    GemelError,
    KeyShapeError,
    KVStoreError,
    LeftOutError,
    PortTakenError,
    RankTakenError,
    SecretError,
    ServerLostError,
    ShapeError,
    UnknownKeyError,
    UnknownNameError,
    WaitLimitError,
    WorkerLostError,
    WorldError,
)
from gemel.kvstore.server import protocol
from gemel.kvstore.server.client import ServerStore
from gemel.kvstore.server.settings import Limits, ServerSettings, WorkerSettings, address
from gemel.kvstore.server.updates import Updates


def test_a_round(tmp_path: Path) -> None:
    with job(3, servers=2) as made:

        def work(rank: int) -> Any:
            store = made.store(rank, piece=4)
            assert (store.rank, store.num_workers, store.type) == (rank, 3, "dist_sync")
            value = np.arange(10.0) if rank == 0 else np.zeros((10,))
            out = np.zeros((10,))
            store.broadcast("w", value, out)
            begun = out.tolist()
            for step in range(1, 4):
                store.push("w", np.ones((10,)) * (rank + 1) * step)
                store.pull("w", out)
            assert store.share("w") in (0, 3)
            return begun, out.tolist(), store.share("w")

        for found in made.each(work):
            assert found == (list(range(10)), [18.0] * 10, 3)


def test_lists_of_keys_and_devices() -> None:
    with job(2) as made:

        def work(rank: int) -> Any:
            store = made.store(rank)
            keys = [3, "three"]
            store.init(keys, [np.zeros((2,)), np.zeros((2, 2))])
            places = [cpu(0), cpu(1)]
            grads = [
                [np.ones((2,), ctx=place) for place in places],
                [np.full((2, 2), 2.0, ctx=place) for place in places],
            ]
            store.pushpull(keys, grads, priority=3)
            return [[array.tolist() for array in arrays] for arrays in grads]

        for found in made.each(work):
            assert found == [[[4.0, 4.0]] * 2, [[[8.0, 8.0], [8.0, 8.0]]] * 2]


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int8", "uint8", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (7, 3)])
def test_dtypes_and_sizes(dtype: str, shape: tuple[int, ...]) -> None:
    with job(1, servers=3) as made:
        store = made.store(0, piece=2)
        out = np.zeros(shape, dtype=dtype)
        store.init(0, out)
        store.push(0, np.full(shape, 3, dtype=dtype))
        store.pull(0, out)
        assert out.dtype == dtype and (out.astype("float32").asnumpy() == 3).all()


def test_an_optimizer_on_the_servers() -> None:
    """The same bits as updates here with the sum in the order of ranks."""
    draw = numpy.random.default_rng(0)
    grads = draw.normal(size=(2, 5, 40)).astype("float32")
    with job(2, servers=2) as made:

        def work(rank: int) -> Any:
            store = made.store(rank, piece=7)
            store.init(0, np.ones((40,)))
            rule = optimizer.create("adam", learning_rate=0.1, wd=0.01, rescale_grad=0.25)
            store.set_optimizer(rule)
            out = np.zeros((40,))
            for step in range(5):
                if step == 3:
                    rule.set_learning_rate(0.01)
                store.pushpull(0, np.array(grads[rank, step]), out)
            return out.asnumpy()

        found = made.each(work)
    here = optimizer.get_updater(
        optimizer.create("adam", learning_rate=0.1, wd=0.01, rescale_grad=0.25)
    )
    weight = np.ones((40,))
    for step in range(5):
        if step == 3:
            here.optimizer.set_learning_rate(0.01)
        here(0, np.array(grads[0, step] + grads[1, step]), weight)
    assert (found[0] == weight.asnumpy()).all() and (found[1] == found[0]).all()


def test_optimizers_that_need_whole_parameters() -> None:
    with job(1, servers=2) as made:
        store = made.store(0, piece=4)
        store.init(0, np.ones((10,)))
        with pytest.raises(WorldError, match="key '0' is cut into 2 pieces"):
            store.set_optimizer(optimizer.create("lamb"))
    with job(1, servers=2) as made:
        store = made.store(0, piece=100)
        store.set_optimizer(optimizer.create("lamb"))
        store.init(0, np.ones((10,)))
        with pytest.raises(WorldError, match="GEMEL_PIECE"):
            store.init(1, np.ones((1000,)))


@pytest.mark.parametrize("name", ["dist_sync", "dist_async"])
def test_an_optimizer_and_whole_numbers(name: str) -> None:
    """They may be kept, but not pushed; other keys go on."""
    with job(1) as made:
        store = made.store(0, name)
        store.init([0, 1], [np.ones((2,), dtype="int32"), np.ones((2,))])
        store.set_optimizer(optimizer.create("sgd", learning_rate=0.5))
        out, whole = np.zeros((2,)), np.zeros((2,), dtype="int32")
        store.pull(0, whole)
        assert whole.tolist() == [1, 1]
        store.push(0, whole)
        store.pull(0, whole)
        with pytest.raises(
            KeyShapeError, match=r"pushes key '0' .*an optimizer cannot update int32"
        ):
            whole.wait_to_read()
        store.pushpull(1, np.ones((2,)), out)
        assert out.tolist() == [0.5, 0.5]
        store.barrier()


def test_a_server_that_cannot_apply_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends, because its state may be half changed, and says why to the worker that sent it."""

    def fail(*given: Any) -> Any:
        raise MemoryError("no room for the state")

    with job(1) as made:
        store = made.store(0)
        store.init(0, np.ones((2,)))
        store.set_optimizer(optimizer.create("sgd"))
        monkeypatch.setattr(Updates, "__call__", fail)
        out = np.ones((2,))
        store.pushpull(0, np.ones((2,)), out)
        with pytest.raises(KVStoreError, match="PUSH of worker 0: MemoryError: no room"):
            out.wait_to_read()
        assert made.servers[0].join(5)
        assert "MemoryError" in str(made.servers[0].error)


def test_a_barrier() -> None:
    with job(3) as made:
        came: list[int] = []

        def work(rank: int) -> int:
            store = made.store(rank)
            for _ in range(3):
                time.sleep(0.03 * rank)
                came.append(rank)
                store.barrier()
                assert len(came) % 3 == 0
                store.barrier()
            return len(came)

        assert made.each(work) == [9, 9, 9]


def test_pushes_leave_while_backward_runs() -> None:
    """Issuing does not wait, and a pushed value may be computed later."""
    with job(1) as made:
        store = made.store(0)
        store.init(0, np.zeros((1,)))
        desk = _core.Desk()
        (slow,) = desk.issue(1, "backward", [], [(np.zeros((1,))._code, (1,))])
        out = np.zeros((1,))
        store.pushpull(0, slow * 5, out)
        later = out + 1
        errand = desk.take(5)
        assert errand is not None
        numpy.frombuffer(errand.outputs[0], "float32")[:] = 1
        errand.end()
        assert later.tolist() == [6.0]


def test_a_gradient_that_failed() -> None:
    def fail() -> Any:
        raise ValueError("no batch today")

    with job(1) as made:
        store = made.store(0)
        store.init([0, 1], [np.zeros((1,)), np.zeros((1,))])
        out, other = np.zeros((1,)), np.zeros((1,))
        store.pushpull(0, npx.callback(fail, outputs=((1,), "float32")), out)
        store.pushpull(1, np.ones((1,)), other)
        with pytest.raises(Exception, match="no batch today"):
            out.wait_to_read()
        assert other.tolist() == [1.0]


def test_simulated_gpus() -> None:
    with job(1) as made:
        store = made.store(0)
        try:
            place = gpu(0)
            value = np.ones((4,), ctx=place)
        except GemelError:
            pytest.skip("there is no simulated GPU here")
        store.init(0, value)
        store.pushpull(0, value * 2, value)
        assert value.device == place and value.tolist() == [2.0] * 4


def test_a_processor_and_a_simulated_gpu_push_together() -> None:
    device.simulate(1)
    try:
        with job(1) as made:
            store, out = made.store(0), np.zeros((2,))
            store.init(0, out)
            for places in ([gpu(0), cpu(0)], [cpu(0), gpu(0)]):
                store.pushpull(0, [np.ones((2,), device=place) for place in places], out=out)
                assert out.tolist() == [2.0] * 2
    finally:
        device.simulate(0)


def test_recording_leaves_no_trace() -> None:
    with job(1) as made:
        store = made.store(0)
        x = np.ones((3,))
        x.attach_grad()
        store.init(0, x)
        with autograd.record():
            y = x * 2
            store.pushpull(0, y, np.zeros((3,)))
        y.backward()
        assert x.grad.tolist() == [2.0] * 3


# ---- asynchronous


def test_staleness_is_bounded() -> None:
    with job(2) as made:
        fast = made.store(0, "dist_async", staleness=2)
        slow = made.store(1, "dist_async", staleness=2)
        out = np.zeros((1,))
        for store in (fast, slow):
            store.init(0, np.zeros((1,)))
        for number in (1, 2):
            fast.push(0, np.full((1,), float(number)))
            fast.pull(0, out)
            assert out.tolist() == [number]
        fast.push(0, np.full((1,), 3.0))
        fast.pull(0, out)
        time.sleep(0.3)
        slow.push(0, np.full((1,), 9.0))
        assert out.tolist() == [9.0], "it must not wait for the other"


# ---- wrong use


def test_wrong_use_is_refused_where_it_happens() -> None:
    with job(2) as made:
        store, other = made.store(0), made.store(1)
        store.init("w", np.zeros((3,)))
        with pytest.raises(KeyShapeError, match=r"worker 1 has float32\[4\] for key 'w'"):
            other.init("w", np.zeros((4,)))
        with pytest.raises(KeyShapeError, match="float64"):
            other.init("w", np.zeros((3,), dtype="float64"))
        with pytest.raises(UnknownKeyError, match="worker 1: there is no key 'v'"):
            other.push("v", np.zeros((3,)))
        with pytest.raises(UnknownNameError, match="call init first"):
            other.pull("v", np.zeros((3,)))
        store.init("3", np.zeros((1,)))
        with pytest.raises(UnknownKeyError, match="there is a key '3', but '3' and 3 are"):
            store.push(3, np.zeros((1,)))
        with pytest.raises(ShapeError, match=r"worker 0: key 'w' is float32\[3\]"):
            store.push("w", np.zeros((3, 1)))
        with pytest.raises(ShapeError, match="2 keys were given, but values for 1"):
            store.push(["w", "v"], [np.zeros((3,))])
        with pytest.raises(KVStoreError, match="code, which is not sent"):
            store.set_updater(lambda *arrays: None)
        with pytest.raises(GemelError, match="compressed"):
            store.set_gradient_compression({"type": "2bit"})
        for given in (["2bit"], None):
            with pytest.raises(ArgumentError, match="not a dictionary"):
                store.set_gradient_compression(given)
        with pytest.raises(UnknownNameError, match="'kind'"):
            store.set_gradient_compression({"kind": "none"})
        with pytest.raises(DTypeError, match=r"'b' is bool\[3\]"):
            store.init("b", np.zeros((3,), dtype="bool"))
        with pytest.raises(ArgumentError, match="key of type str cannot be sent"):
            store.init("\ud800", np.zeros((3,)))


def test_workers_that_disagree_about_the_rate() -> None:
    """The second worker gets the error, at the value it waits for."""
    with job(2) as made:
        stores = [made.store(rank) for rank in range(2)]
        outs = [np.zeros((1,)) for _ in stores]
        for rank, store in enumerate(stores):
            store.init(0, outs[0])
            rule = optimizer.create("sgd", learning_rate=0.1)
            store.set_optimizer(rule)
            rule.set_learning_rate(0.1 + rank)
        stores[0].push(0, np.ones((1,)))
        time.sleep(0.2)
        stores[1].pushpull(0, np.ones((1,)), outs[1])
        with pytest.raises(WorldError, match=r"worker 1 pushes key '0'.*worker 0 with"):
            outs[1].wait_to_read()


def test_another_secret() -> None:
    with job(1) as made:
        started = time.monotonic()
        with pytest.raises(SecretError, match="does not know the secret"):
            made.store(0, secret=b"another secret")
        assert time.monotonic() - started < 3
        with pytest.raises(WorldError, match="at least 8 bytes"):
            made.settings(0, secret=b"short")


def test_a_server_that_does_not_know_the_secret() -> None:
    """A stranger that listens at a server's port cannot pretend to be the server."""
    listener = socket.create_server(("127.0.0.1", 0))
    kept: list[socket.socket] = []

    def pretend() -> None:
        channel, _ = listener.accept()
        kept.append(channel)
        for message in (
            protocol.text_message(protocol.Kind.CHALLENGE, {"challenge": "x"}),
            protocol.text_message(protocol.Kind.WELCOME, {"proof": "0" * 64}),
        ):
            channel.sendall(b"".join(map(bytes, protocol.encode(message))))

    threading.Thread(target=pretend, daemon=True).start()
    settings = WorkerSettings((listener.getsockname(),), 0, 1, SECRET, QUICK)
    with pytest.raises(SecretError, match=r"server 0 .* does not know the secret"):
        ServerStore("dist_sync", settings)
    for channel in (listener, *kept):
        channel.close()


def test_a_port_that_is_taken() -> None:
    with job(1) as made, pytest.raises(PortTakenError, match="is taken by another process"):
        from server_jobs import ServerThread

        ServerThread(ServerSettings(1, SECRET, port=made.servers[0].settings.port))


def test_worlds_that_disagree() -> None:
    with job(2) as made:
        with pytest.raises(WorldError, match="worker 0 of 3 connected to a server of a job with 2"):
            made.store(0, workers=3)
        with pytest.raises(WorldError, match="rank 2 of 2 workers"):
            made.store(2)
        made.store(0)
        quick = Limits(silent=30, replace=30, reach=0.5)
        for server in made.servers:
            server.server.settings = ServerSettings(2, SECRET, limits=quick)  # type: ignore[union-attr]
        with pytest.raises(RankTakenError, match=r"already a worker 0.*one store in each process"):
            made.store(0, limits=quick)


def test_other_servers_on_one_worker_or_in_the_next_job(tmp_path: Path) -> None:
    """Each key would be looked for where it is not."""
    with job(3, servers=2, folder=tmp_path) as made:
        made.store(0)
        words = "for worker 1 this is server 0 of 2 .*, but it has the keys of server 1 of 2"
        with pytest.raises(WorldError, match=words):
            made.store(1, servers=made.addresses[::-1])
        with pytest.raises(WorldError, match=r"worker 2 this is server 0 of 1 .* server 0 of 2"):
            made.store(2, servers=made.addresses[:1])
        made.store(1)
    words = "for worker 0 this is server 0 of 3 .*, but it has the keys of server 0 of 2"
    with job(1, servers=3, folder=tmp_path) as made, pytest.raises(WorldError, match=words):
        made.store(0)


def test_a_worker_that_has_finished_is_not_called_silent() -> None:
    with job(2) as made:
        stores = [made.store(rank) for rank in range(2)]
        stores[0].close()
        stores[1].init("v", np.ones((2,)))
        out = np.zeros((2,))
        stores[1].pull("v", out)
        words = "worker 0 is missing in round 0 of key 'v' .*: its program has ended"
        with pytest.raises(WorkerLostError, match=words):
            out.wait_to_read()


def test_a_restarted_worker_without_rounds_continues_where_it_was() -> None:
    with job(2) as made:
        stores = [made.store(rank, "dist_async") for rank in range(2)]
        out = np.zeros((2,))
        for store in stores:
            store.init(["a", "b"], [out, out])
        for _ in range(3):
            stores[1].pushpull(["a", "b"], [np.ones((2,))] * 2, [out, np.zeros((2,))])
            out.wait_to_read()
        stores[1].push("a", np.ones((2,)))
        stores[1].close(finished=False)  # in the middle of a step, as if killed
        again = made.store(1, "dist_async")
        assert stores[1].step == 0 and again.step == 3


def test_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started = time.monotonic()
    settings = WorkerSettings((("127.0.0.1", port),), 0, 1, SECRET, Limits(reach=0.5))
    with pytest.raises(ServerLostError, match=rf"worker 0: server 0 \(127.0.0.1:{port}\)"):
        ServerStore("dist_sync", settings)
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("text", ["", "host", "host:", ":9", "host:70000", "host:0", "host:x"])
def test_addresses(text: str) -> None:
    with pytest.raises(WorldError, match="not an address"):
        address(text)


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GEMEL_SERVERS", "GEMEL_RANK", "GEMEL_NUM_WORKERS", "GEMEL_SECRET"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(WorldError, match="GEMEL_SERVERS is not set"):
        kvstore.create("dist_async")
    with job(1) as made:
        monkeypatch.setenv("GEMEL_SERVERS", ",".join(f"{h}:{p}" for h, p in made.addresses))
        monkeypatch.setenv("GEMEL_RANK", "0")
        with pytest.raises(WorldError, match="GEMEL_NUM_WORKERS is not set"):
            kvstore.create("dist_async")
        monkeypatch.setenv("GEMEL_NUM_WORKERS", "1")
        monkeypatch.setenv("GEMEL_SECRET", SECRET.decode())
        monkeypatch.setenv("GEMEL_WAIT_SECONDS", "3.5")
        for name in ("dist_async", "dist_sync_server"):
            store = kvstore.create(name)
            assert isinstance(store, ServerStore)
            assert store.settings.limits.wait == 3.5 and store.type == name
            store.close(finished=False)


# ---- strangers


def test_unauthorised_connections_do_no_harm() -> None:
    """Random bytes, silence, incomplete greetings, many connections: the job goes on."""
    with job(1) as made:
        store = made.store(0)
        store.init(0, np.zeros((1,)))
        draw = numpy.random.default_rng(0)
        channels = []
        for number in range(60):
            channel = socket.create_connection(made.addresses[0], 5)
            channel.sendall(draw.bytes(number * 7))
            channels.append(channel)
        hello = protocol.text_message(protocol.Kind.HELLO, {"rank": 0, "proof": 3})
        data = b"".join(map(bytes, protocol.encode(hello)))
        for length in range(0, len(data), 5):
            channel = socket.create_connection(made.addresses[0], 5)
            channel.sendall(data[:length])
            channels.append(channel)
        push = protocol.array_message(protocol.Kind.PUSH, numpy.ones(1, "float32"))
        with socket.create_connection(made.addresses[0], 5) as channel:
            channel.sendall(b"".join(map(bytes, protocol.encode(push))))
            channel.settimeout(5)
            received = b""
            while part := channel.recv(4096):
                received += part
            assert b"ProtocolError" in received and b"PUSH arrived before HELLO" in received
        out = np.zeros((1,))
        store.pushpull(0, np.ones((1,)), out)
        assert out.tolist() == [1.0]
        for channel in channels:
            channel.close()


# ---- what breaks


@pytest.mark.parametrize("name", ["dist_sync", "dist_async"])
def test_a_worker_that_is_late_beyond_the_limit_is_named(name: str) -> None:
    """They are connected, so nobody counts as lost; but they never push."""
    limits = Limits(silent=5.0, replace=5.0, wait=1.5, reach=4.0)
    with job(3, limits=limits) as made:
        stores = [made.store(rank, name) for rank in range(3)]
        out = np.zeros((2,))
        made.each(lambda rank: stores[rank].init("w", np.zeros((2,))))
        if name == "dist_sync":
            stores[0].push("w", np.ones((2,)))
            stores[0].pull("w", out)
            with pytest.raises(
                WaitLimitError,
                match=r"worker 0: pull of key 'w': server 0 .* did not answer within 1.5 s "
                r"\(GEMEL_WAIT_SECONDS\), since workers 1, 2 have not arrived; every rank",
            ):
                out.asnumpy()

        def meet(rank: int) -> str:
            if rank == 2:
                time.sleep(2.5)
                return ""
            with pytest.raises(WaitLimitError, match="since worker 2 has not arrived") as told:
                stores[rank].barrier()
            return str(told.value)

        found = made.each(meet)
        assert "pull of key 'barrier'" in found[0] and "worker 1: pull" in found[1]
        for store in stores:
            store.close(finished=False)


def test_a_link_that_is_cut_for_a_while() -> None:
    with job(2) as made:
        links = [Link(made.addresses[0]) for _ in range(2)]
        try:

            def work(rank: int) -> Any:
                store = made.store(rank, servers=(links[rank].address,))
                out = np.zeros((2,))
                store.init(0, out)
                for step in range(12):
                    if rank == 1 and step == 5:
                        links[1].cut(1.0)
                    store.pushpull(0, np.ones((2,)) * (step + rank), out)
                    assert out.tolist() == [2.0 * step + 1] * 2
                return True

            assert made.each(work) == [True, True]
        finally:
            for link in links:
                link.close()


def test_a_link_that_is_cut_for_ever() -> None:
    """Both sides end within their limits, each with an error that names the missing side."""
    with job(2) as made:
        link = Link(made.addresses[0])
        first = made.store(0)
        second = made.store(
            1, servers=(link.address,), limits=Limits(silent=0.5, wait=3.0, reach=1.0)
        )
        out, cut_off = np.zeros((1,)), np.zeros((1,))
        for store in (first, second):
            store.init(0, out)
        link.cut()
        started = time.monotonic()
        first.pushpull(0, np.ones((1,)), out)
        second.pushpull(0, np.ones((1,)), cut_off)
        with pytest.raises(ServerLostError, match=r"worker 1: .*server 0"):
            cut_off.wait_to_read()
        with pytest.raises(WorkerLostError, match="worker 1 is missing in round 1 of key '0'"):
            out.wait_to_read()
        assert time.monotonic() - started < 15
        link.close()


def test_a_worker_that_is_left_out_and_joins() -> None:
    with job(2, rule="leave_out") as made:
        first, second = made.store(0), made.store(1)
        out = np.zeros((1,))
        for store in (first, second):
            store.init(0, out)
        second.close(finished=False)  # as if killed: it does not report that it has finished
        for step in range(3):
            first.pushpull(0, np.full((1,), 1.0 + step), out)
            assert out.tolist() == [2.0 * (1 + step)] and first.share(0) == 1
        third = made.store(1)
        assert third.step == 3
        current = np.zeros((1,))
        third.broadcast(0, current, current)
        assert current.tolist() == [6.0]
        third.pushpull(0, np.ones((1,)), current)
        first.pushpull(0, np.ones((1,)), out)
        assert out.tolist() == current.tolist() == [2.0] and first.share(0) == 2


def test_a_worker_that_was_cut_off_and_left_out() -> None:
    with job(2, rule="leave_out") as made:
        link = Link(made.addresses[0])
        first, second = made.store(0), made.store(1, servers=(link.address,))
        out, late = np.zeros((1,)), np.zeros((1,))
        for store in (first, second):
            store.init(0, out)
        link.cut(2.0)
        first.pushpull(0, np.ones((1,)), out)
        assert out.tolist() == [2.0] and first.share(0) == 1
        second.pushpull(0, np.ones((1,)), late)
        with pytest.raises(LeftOutError, match="worker 1 was left out"):
            late.wait_to_read()
        link.close()


def test_a_server_that_is_started_again(tmp_path: Path) -> None:
    """The server restarts several times within rounds; the values equal those without restarts."""
    with job(2, servers=2, folder=tmp_path, log_bytes=2000) as made:
        rule = optimizer.create("adam", learning_rate=0.1)

        def work(rank: int) -> Any:
            store = made.store(rank, piece=8)
            out = np.ones((20,))
            store.init(0, out)
            store.set_optimizer(optimizer.create("adam", learning_rate=0.1))
            for step in range(30):
                if rank == 0 and step in (5, 11, 20):
                    server = made.servers[step % 2]
                    server.stop()
                    server.start()
                store.pushpull(0, out * (rank + 1), out)
                out.wait_to_read()
            return out.asnumpy()

        found = made.each(work)
    weight, here = np.ones((20,)), optimizer.get_updater(rule)
    for _ in range(30):
        here(0, weight * 1 + weight * 2, weight)
    assert (found[0] == weight.asnumpy()).all() and (found[1] == found[0]).all()


def test_a_server_that_does_not_come_again() -> None:
    with job(1) as made:
        store = made.store(0, limits=Limits(silent=0.5, wait=9.0, reach=1.0))
        out = np.zeros((1,))
        store.init(0, out)
        made.servers[0].stop()
        store.pushpull(0, np.ones((1,)), out)
        with pytest.raises(ServerLostError, match=r"worker 0: .*server 0 .*could not be reached"):
            out.wait_to_read()
        with pytest.raises(ServerLostError):
            store.barrier()


def test_a_slow_worker_is_waited_for() -> None:
    """It sends signs of life, and that is enough."""
    with job(2) as made:

        def work(rank: int) -> Any:
            store = made.store(rank)
            out = np.zeros((1,))
            store.init(0, out)
            if rank == 1:
                time.sleep(QUICK.silent + QUICK.replace + 0.5)
            store.pushpull(0, np.ones((1,)), out)
            return out.tolist()

        assert made.each(work) == [[2.0], [2.0]]


# ---- edges


def test_a_full_queue_makes_pushes_wait() -> None:
    with job(1) as made:
        link = Link(made.addresses[0])
        limits = Limits(silent=5, wait=10, room=1 << 16)
        store = made.store(0, "dist_async", servers=(link.address,), limits=limits)
        store.init(0, np.zeros((1 << 14,)))
        link.cut(0.5)
        out = np.zeros((1 << 14,))
        for number in range(20):
            store.push(0, np.full((1 << 14,), float(number)))
        store.pull(0, out)
        assert float(out[7]) == 19.0
        link.close()


def test_issuing_from_several_threads() -> None:
    with job(1, servers=2) as made:
        store = made.store(0)
        store.init(list(range(8)), [np.zeros((3,)) for _ in range(8)])
        outs = [np.zeros((3,)) for _ in range(8)]

        def run(key: int) -> None:
            for step in range(20):
                store.pushpull(key, np.full((3,), float(step * key)), outs[key])

        threads = [threading.Thread(target=run, args=(key,)) for key in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [out.tolist() for out in outs] == [[19.0 * key] * 3 for key in range(8)]


def test_a_fork() -> None:
    with job(1) as made:
        store = made.store(0)
        store.init(0, np.zeros((1,)))
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                store.push(0, np.ones((1,)))
                os.write(write, b"it was pushed")
            except KVStoreError as error:
                os.write(write, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert b"was forked from a worker" in os.read(read, 1000)
        out = np.zeros((1,))
        store.pushpull(0, np.ones((1,)), out)
        assert out.tolist() == [1.0]


def test_nothing_is_left_behind() -> None:
    before = threading.active_count()
    with job(2, servers=2) as made:
        for rank in range(2):
            store = made.store(rank)
            store.init(0, np.zeros((1,)))
        assert threading.active_count() > before
    gc.collect()
    until = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.05)
    assert threading.active_count() <= before


def test_servers_end_with_the_job() -> None:
    with job(2, servers=2) as made:
        for rank in range(2):
            made.store(rank).close()
        assert all(server.join(5) for server in made.servers)
