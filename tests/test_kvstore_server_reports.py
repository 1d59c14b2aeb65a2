"""What stores on servers tell: which server keeps what, optimizer states as files, lost workers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy
import pytest
from server_jobs import QUICK, Job, job
from test_kvstore_server_training import BATCH, batches, network, parameters, rule

from gemel import autograd, np, npx, optimizer
from gemel.errors import KVStoreError, ParameterFileError, ProtocolError, WorldError
from gemel.gluon import Trainer, loss
from gemel.kvstore.server.optimizer_states import packed, unpacked
from gemel.kvstore.server.protocol import Kind, array_message
from gemel.kvstore.server.settings import Limits
from gemel.kvstore.server.updates import Updates, describe


def test_which_server_keeps_what() -> None:
    with job(2, servers=2) as made:

        def work(rank: int) -> tuple[str, str]:
            store = made.store(rank, piece=8)
            store.init(["w", 3], [np.zeros((5, 4)), np.zeros((2,), dtype="float16")])
            store.barrier()
            before = store.explain()
            store.set_optimizer(optimizer.create("adam"))
            return before, store.explain(None, [4, 1e6])

        (before, after), other = made.each(work)
    assert other == (before, after)
    assert before.startswith("dist_sync: 2 workers, 2 servers\na round of a key ends when all")
    assert "the workers update" in before and "the servers update by Adam" in after
    for line in ("'w'  float32[5, 4]  elements 0 to 9", "'w'  float32[5, 4]  elements 10 to 19"):
        assert sum(line in row and row.endswith("40 B") for row in before.splitlines()) == 1
    assert "3    float16[2]     all" in before and "barrier" not in before
    assert "127.0.0.1" in before and "float32 array of 1 MB: 2 of 2 servers" in after
    with job(1) as made:
        text = made.store(0, "dist_async").explain()
        assert "1 worker, 1 server\n" in text and "more than 8 pushes behind" in text


def steps(net: Any, trainer: Any, rank: int, which: slice) -> list[Any]:
    objective = loss.SoftmaxCrossEntropyLoss()
    for x, y in batches()[which]:
        with autograd.record():
            error = objective(net(np.array(x[rank::2])), np.array(y[rank::2])).sum()
        error.backward()
        trainer.step(BATCH)
        parameters(net)  # the servers share this process's queue and need room in it
    return parameters(net)


@pytest.mark.parametrize("name", ["sgd", "adam", "adagrad"])
@pytest.mark.parametrize("early", [True, False])
def test_states_of_servers_are_saved_and_loaded(name: str, early: bool, tmp_path: Path) -> None:
    """Another job that loads them trains on with the same bits, whether it loads them before its
    first step or after others; the files are those of one process."""
    nets = [network(1) for _ in range(2)]

    def trainer_of(made: Job, rank: int) -> Trainer:
        store, found = made.store(rank, piece=20), nets[rank].collect_params()
        return Trainer(found, name, rule(name), kvstore=store)

    with job(2, servers=2) as made:

        def first(rank: int) -> list[Any]:
            trainer = trainer_of(made, rank)
            steps(nets[rank], trainer, rank, slice(5))
            trainer.save_states(tmp_path / f"states{rank}")
            nets[rank].save_parameters(tmp_path / f"parameters{rank}")
            return steps(nets[rank], trainer, rank, slice(5, None))

        whole = made.each(first)[0]
    assert (tmp_path / "states0").read_bytes() == (tmp_path / "states1").read_bytes()
    nets = [network(1) for _ in range(2)]
    with job(2, servers=2) as made:

        def second(rank: int) -> list[Any]:
            nets[rank].load_parameters(tmp_path / "parameters0")
            trainer = trainer_of(made, rank)
            if not early:
                with autograd.record():
                    zero = (nets[rank](np.zeros((2, 5))) * 0).sum()
                zero.backward()
                trainer._optimizer.wd, kept = 0.0, trainer._optimizer.wd
                trainer.step(BATCH)  # changes states and counts, but no parameter
                trainer._optimizer.wd = kept
            trainer.load_states(tmp_path / "states0")
            return steps(nets[rank], trainer, rank, slice(5, None))

        again = made.each(second)[0]
    for one, other in zip(whole, again, strict=True):
        assert (one == other).all()
    net = network(1)
    alone = Trainer(net.collect_params(), name, rule(name), kvstore=None)
    alone.load_states(tmp_path / "states0")
    net.load_parameters(tmp_path / "parameters0")
    for x, y in batches()[5:]:
        with autograd.record():
            error = loss.SoftmaxCrossEntropyLoss()(net(np.array(x)), np.array(y)).sum()
        error.backward()
        alone.step(BATCH)
    for one, other in zip(whole, parameters(net), strict=True):
        numpy.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("servers", [0, 2])
def test_states_from_before_the_first_step(servers: int, tmp_path: Path) -> None:
    """Such a file has none: to load it drops what there is, in one process and on servers."""
    net = network(1)
    with job(1, servers=servers or 1) as made:
        store = made.store(0, piece=20) if servers else None
        trainer = Trainer(net.collect_params(), "adam", {"learning_rate": 0.1}, kvstore=store)
        trainer.save_states(tmp_path / "begin")
        steps(net, trainer, 0, slice(2))
        trainer.load_states(tmp_path / "begin")
        trainer.save_states(tmp_path / "again")
        assert sorted(npx.load(tmp_path / "again")) == ["learning_rate", "optimizer.adam"]
        assert (tmp_path / "again").read_bytes() == (tmp_path / "begin").read_bytes()
        steps(net, trainer, 0, slice(2))
        trainer.save_states(tmp_path / "later")
        assert npx.load(tmp_path / "later")["optimizer.adam"].tolist() == [2] * 4


def test_trainers_of_the_same_parameters_take_turns() -> None:
    """Each step has the rate of its own trainer."""
    net = network(1)
    with job(1) as made:
        found, store = net.collect_params(), made.store(0)
        rates = (0.5, 0.0)
        trainers = [Trainer(found, "sgd", {"learning_rate": r}, kvstore=store) for r in rates]
        changed = []
        for turn in (0, 1, 0, 1):
            before = parameters(net)
            steps(net, trainers[turn], 0, slice(1))
            pairs = zip(before, parameters(net), strict=True)
            changed.append(any((one != other).any() for one, other in pairs))
        assert changed == [True, False, True, False]


def test_a_worker_that_took_over_leaves_the_states(tmp_path: Path) -> None:
    """Its program loads the file again, but the servers are further."""
    with job(1, servers=2) as made:

        def begun() -> Any:
            store = made.store(0, piece=3)
            store.init("w", np.ones((8,)))
            store.set_optimizer(optimizer.create("sgd", learning_rate=0.5, momentum=0.5))
            return store

        def kept(name: str) -> Any:
            return npx.load(tmp_path / name)["0.0"].tolist()

        store, out = begun(), np.zeros((8,))
        store.pushpull("w", np.ones((8,)), out)
        store.save_optimizer_states(tmp_path / "states")
        for _ in range(2):
            store.pushpull("w", np.ones((8,)), out)
        out.wait_to_read()
        store.save_optimizer_states(tmp_path / "later")
        store.close(finished=False)
        again = begun()
        again.load_optimizer_states(tmp_path / "states")
        again.save_optimizer_states(tmp_path / "left")
        assert kept("left") == kept("later")
        again.pushpull("w", np.ones((8,)), out)
        again.load_optimizer_states(tmp_path / "states")  # it has pushed: now it counts
        again.save_optimizer_states(tmp_path / "taken")
        assert kept("taken") == kept("states")


def test_states_without_rounds(tmp_path: Path) -> None:
    """The file has one worker's pushes, and each worker's pushes are updates on the servers."""

    def work(made: Job, rank: int, file: Path | None) -> None:
        store, out = made.store(rank, "dist_async", piece=2), np.zeros((5,))
        store.init("w", np.zeros((5,)))
        store.set_optimizer(optimizer.create("adam"))
        if file is not None and rank == 0:
            store.load_optimizer_states(file)
        store.barrier()
        for _ in range(0 if file is not None else 3):
            store.pushpull("w", np.ones((5,)), out)
        store.barrier()
        if rank == 0:
            store.save_optimizer_states(tmp_path / f"from {file is not None}")

    counts = []
    for file in (None, tmp_path / "from False"):
        with job(2, servers=2) as made:
            made.each(lambda rank, made=made, file=file: work(made, rank, file))
            servers = [each.server for each in made.servers]
            found = [one.state.updates.states()[0] for one in servers if one and one.state.updates]
            counts.append([count for each in found for count in each.values()])
    assert counts == [[6] * 2] * 2
    first, second = (npx.load(tmp_path / f"from {loaded}") for loaded in (False, True))
    assert first["optimizer.adam"].tolist() == second["optimizer.adam"].tolist() == [3]
    assert all((first[name] == second[name]).all() for name in ("0.0", "0.1"))


def test_states_of_servers_survive_a_restart(tmp_path: Path) -> None:
    with job(1, folder=tmp_path / "journal") as made:
        store, out = made.store(0), np.zeros((3,))
        store.init("w", np.zeros((3,)))
        with pytest.raises(KVStoreError, match="call set_optimizer first"):
            store.save_optimizer_states(tmp_path / "states")
        store.set_optimizer(optimizer.create("adam"))
        for _ in range(3):
            store.pushpull("w", np.ones((3,)), out)
        store.save_optimizer_states(tmp_path / "states")
        store.pushpull("w", np.ones((3,)), out)
        store.load_optimizer_states(tmp_path / "states")
        made.servers[0].stop()
        made.servers[0].start()
        store.save_optimizer_states(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "states").read_bytes()
        with pytest.raises(ParameterFileError, match="does not hold the states of adam"):
            npx.save(tmp_path / "other", {"optimizer.sgd": np.zeros((1,), dtype="int64")})
            store.load_optimizer_states(tmp_path / "other")


def test_states_that_do_not_fit_are_refused() -> None:
    rows = [numpy.arange(6, dtype="float32").reshape(2, 3), numpy.ones((), "float64")]
    count, found = unpacked(packed(7, rows))
    assert count == 7 and [(a.dtype, a.shape) for a in found] == [(a.dtype, a.shape) for a in rows]
    good = packed(7, rows).tobytes()
    bad = (b"", good[:-1], good + b"x", b"\xff" * 9, good.replace(b"float32", b"object_"))
    for data in (*bad, good.replace(b"[2, 3]", b"[2,-3]"), good.replace(b": 7", b": []")):
        with pytest.raises(ProtocolError, match="RESTORE: "):
            unpacked(numpy.frombuffer(data, "uint8"))
    updates = Updates(describe(optimizer.create("adam")))
    value = numpy.ones(3, "float32")
    with pytest.raises(WorldError, match="Adam keeps states of shapes"):
        updates.replace(1, value, 3, [numpy.ones(4, "float32")] * 2)
    with job(1) as made:
        store = made.store(0)
        store.init("w", np.zeros((3,)))
        store.set_optimizer(optimizer.create("adam"))
        key = store._keys["w"]
        number = key.number(key.pieces[0])
        huge = array_message(Kind.RESTORE, numpy.zeros(1 << 20, "uint8"), key=number)
        with pytest.raises(KVStoreError, match="RESTORE: 1048576 bytes of states for key 'w'"):
            store._ask(store._connections[0], huge)


@pytest.mark.parametrize("again", [True, False])
def test_a_lost_worker_is_told_at_once(again: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """Long before the others fail."""
    with job(3, limits=Limits(silent=5.0, replace=40.0, wait=60.0, reach=4.0)) as made:
        stores = made.each(made.store)
        begin = time.monotonic()
        stores[1].close(finished=False)
        said = ""
        while "worker 1 is lost" not in said and time.monotonic() < begin + 20:
            time.sleep(0.05)
            said += capfd.readouterr().err
        assert said.count("worker 1 is lost: its connection has ended; waiting up to 45 s") == 1
        if again:
            made.store(1)
        else:
            stores[2].close(finished=True)
        time.sleep(1.0)
        said = capfd.readouterr().err
        assert ("worker 1 is here again" in said) is again
        assert "worker 2" not in said


def test_a_worker_that_connects_again_is_not_called_lost(capfd: pytest.CaptureFixture[str]) -> None:
    with job(2, limits=QUICK) as made:
        stores = made.each(made.store)
        server = made.servers[0].server
        assert server is not None
        made.servers[0]._loop.call_soon_threadsafe(server._connections[1].close)
        time.sleep(1.2)
        stores[0].init("w", np.zeros((2,)))
        assert "lost" not in capfd.readouterr().err
