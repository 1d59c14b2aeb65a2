"""Workers that train together without MPI: what they agree on, and how requests end."""

from __future__ import annotations

import copy
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy
import pytest

from gemel import _core, autograd, gluon, kvstore, np
from gemel.__main__ import main
from gemel.command import launching
from gemel.errors import WorkersError
from gemel.gluon import nn
from gemel.kvstore.agreement import BUCKET_BYTES, Agreement, Request
from gemel.kvstore.local import LocalStore
from gemel.kvstore.world import World
from gemel.runtime.chain import Chain
from gemel.tape import step_plans

# ---- operations whose work is done elsewhere


def issued(desk: Any, *arrays: Any, number: int = 1) -> Any:
    """An errand over arrays; its result has the shape and dtype of the first."""
    (made,) = desk.issue(number, "errand", arrays, [(arrays[0]._code, arrays[0].shape)])
    return made


def test_an_errand_ends_when_its_end_is_reported():
    # engine.md 43
    desk = _core.Desk()
    first = np.arange(6).reshape(2, 3) + 0.0
    result = issued(desk, first[:, 1], number=7)  # not dense, so the errand sees a copy
    later = result * 2
    errand = desk.take(10.0)
    assert errand.number == 7 and errand.failure is None
    assert numpy.asarray(errand.inputs[0]).view("f4").tolist() == [1, 4]
    numpy.asarray(errand.outputs[0]).view("f4")[...] = [5, 6]
    assert desk.take(0.0) is None
    errand.end()
    assert later.tolist() == [10, 12]
    with pytest.raises(RuntimeError, match="has ended before"):
        errand.end()
    assert errand.inputs == ()


def test_errands_that_fail():
    # engine.md 43
    desk = _core.Desk()
    told = issued(desk, np.ones(3))
    desk.take(10.0).end(("WorkersError", "worker 2 is gone"))
    for array in (told, told + 1):
        with pytest.raises(WorkersError, match=r"worker 2 is gone \(issued at .*test_workers"):
            array.wait_to_read()
    dropped = issued(desk, np.ones(3))
    errand = desk.take(10.0)
    del errand
    with pytest.raises(RuntimeError, match="nobody did it"):
        dropped.wait_to_read()
    after = issued(desk, np.ones(3), told, number=9)
    errand = desk.take(10.0)
    assert errand.number == 9 and "worker 2 is gone" in errand.failure
    with pytest.raises(WorkersError, match="worker 2"):
        after.wait_to_read()
    waiting = issued(desk, np.ones(3))
    desk.close("WorkersError", "over")
    for array in (waiting, issued(desk, np.ones(3))):
        with pytest.raises(WorkersError, match="over"):
            array.wait_to_read()
    assert desk.take(10.0) is None


def test_errands_start_when_their_arrays_are_there_and_wait_for_nobody():
    # engine.md 43
    desk, elsewhere = _core.Desk(), _core.Desk()
    slow = issued(elsewhere, np.ones(2))
    held, free = issued(desk, slow, number=1), issued(desk, np.ones(2), number=2)
    first = desk.take(10.0)
    assert first.number == 2
    assert desk.take(0.0) is None
    elsewhere.take(10.0).end()
    second = desk.take(10.0)
    assert second.number == 1
    for errand in (second, first):
        numpy.asarray(errand.outputs[0])[...] = 0
        errand.end()
    assert (held + free).tolist() == [0, 0]
    empty = issued(desk, np.zeros((0, 3)))
    errand = desk.take(10.0)
    assert len(errand.inputs[0]) == len(errand.outputs[0]) == 0
    errand.end()
    assert empty.shape == (0, 3) and empty.tolist() == []


# ---- what workers agree about


def request(name: str, **changes: Any) -> Request:
    found = Request(1, f"key {name!r}", 1, "sum", "float32", (3,), 12, 0, "")
    return found._replace(**changes)


END = request("")._replace(name="the end", kind="end")


def names(requests: list[Request]) -> str:
    return " ".join(one.name.split("'")[1] for one in requests)


def test_requests_start_when_all_workers_have_arrived():
    agreed = Agreement(2, 10.0)
    large = {"bytes": BUCKET_BYTES - 12, "shape": (BUCKET_BYTES // 4 - 3,)}
    for name, changes in [
        ("a", {}), ("b", {"priority": 2}), ("c", {"dtype": "int32"}), ("d", large), ("e", {}),
    ]:  # fmt: skip
        assert agreed.announce(0, request(name, **changes), 0.0) is None
        assert agreed.next() == []
    for name, changes in [("e", {}), ("d", large), ("c", {"dtype": "int32"}), ("a", {})]:
        assert agreed.announce(1, request(name, **changes), 1.0) is None
    assert names(agreed.next()) == "a d"  # e does not fit into the bucket, c has another dtype
    assert agreed.announce(1, request("b", priority=2), 1.0) is None
    assert names(agreed.next()) == "b e"
    assert names(agreed.next()) == "c"
    assert agreed.next() == []


def test_rounds_of_a_key_and_stores_are_distinguished():
    agreed = Agreement(2, 10.0)
    for turn in (1, 2):
        assert agreed.announce(0, request("a", turn=turn), 0.0) is None
    assert agreed.announce(0, request("a", store=2), 0.0) is None
    assert agreed.announce(1, request("a", shape=(3,), turn=1), 0.0) is None
    assert [one.turn for one in agreed.next()] == [1]
    assert agreed.announce(1, request("a", store=2, shape=(3,)), 0.0) is None
    assert [one.store for one in agreed.next()] == [2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shape": (4,), "bytes": 16}, r"worker 1 has a sum of float32 \(4\), worker 0 a sum of"),
        ({"dtype": "int32"}, r"worker 1 has a sum of int32 \(3\)"),
        ({"kind": "gather", "note": "fp16"}, r"worker 1 has a gather of float32 \(3\), fp16"),
    ],
)
def test_disagreements_name_the_worker(changes: dict[str, Any], words: str) -> None:
    agreed = Agreement(3, 10.0)
    assert agreed.announce(0, request("w"), 0.0) is None
    found = agreed.announce(1, request("w", **changes), 0.0)
    assert found is not None and found.startswith("the workers disagree about key 'w'")
    assert re.search(words, found)


def test_a_late_worker_is_named_after_the_limit():
    agreed = Agreement(4, 10.0)
    agreed.announce(0, request("a"), 0.0)
    agreed.announce(2, request("a"), 4.0)
    agreed.announce(3, request("b"), 5.0)
    assert agreed.overdue(10.0) is None
    assert agreed.overdue(10.1) == (
        "workers 1, 3 have not arrived at key 'a' for 10 s; workers 0, 2 have arrived; "
        "worker 3 has arrived at key 'b' instead"
    )
    alone = Agreement(2, 10.0)
    alone.announce(1, END, 0.0)
    assert alone.overdue(1e9) is None  # a worker that has ended may wait forever


def test_a_worker_that_has_ended_is_named_at_once():
    agreed = Agreement(2, 10.0)
    assert agreed.announce(1, END._replace(note="with ValueError"), 0.0) is None
    assert agreed.announce(0, request("a"), 0.0) == (
        "worker 1 has ended (with ValueError) while worker 0 waits for it at key 'a'"
    )


def test_sums_issued_before_the_end_of_a_worker_still_count():
    agreed = Agreement(3, 10.0)
    agreed.announce(1, END._replace(shape=(5,)), 0.0)
    agreed.leave(2, END._replace(shape=(), note="with KeyError"))
    assert agreed.left([0, 1], brought=5) == ""
    assert agreed.left([0, 1], brought=6) == agreed.left([1]) == "worker 1 has ended"
    assert agreed.left([0, 1, 2], brought=5) == "worker 2 has ended (with KeyError)"


# ---- workers in one process, connected by queues


class Queues:
    """A wire between threads of this process."""

    def __init__(self, size: int) -> None:
        self.boxes: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(size)]
        self.meeting = threading.Barrier(size)
        self.rows: list[Any] = [None] * size
        #: Ranks that never come to an exchange.
        self.dead: set[int] = set()


class Wire:
    has_sockets = False

    def __init__(self, queues: Queues, rank: int) -> None:
        self.rank, self.machines = rank, (0,) * len(queues.boxes)
        self.queues = queues

    def send(self, rank: int, message: bytes) -> None:
        self.queues.boxes[rank].put((self.rank, message))

    def received(self, patience: float = 0.0) -> list[tuple[int, bytes]]:
        box = self.queues.boxes[self.rank]
        return [box.get() for _ in range(box.qsize())]

    def gathered(self, row: Any) -> Any:
        if self.rank in self.queues.dead:
            time.sleep(60)
        self.queues.rows[self.rank] = row
        self.queues.meeting.wait()
        found = numpy.stack(self.queues.rows)
        self.queues.meeting.wait()
        return found

    def summed(self, row: Any, way: str, lengths: Sequence[int]) -> Any:
        return sum(self.gathered(row))

    def broadcast(self, row: Any) -> Any:
        return self.gathered(row)[0]


@pytest.fixture
def worlds(request: Any) -> Iterator[list[World]]:
    limit = getattr(request, "param", 60.0)
    queues = Queues(3)
    made = [World(Wire(queues, rank), limit) for rank in range(3)]
    yield made
    closing = [threading.Thread(target=world.close) for world in made]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join(30)
        assert not thread.is_alive()


def test_sums_over_workers_whatever_their_order(worlds):
    totals = []
    for world in worlds:
        keys = [1, 2, 3, 4]
        for key in keys[world.rank :] + keys[: world.rank]:
            array = np.full((key, 2), 10.0**world.rank)
            totals.append((key, world.issue(1, f"key {key}", "sum", [array], priority=-key)))
    for key, total in totals:
        assert total.tolist() == [[111, 111]] * key
    done = worlds[1].done
    assert done["requests"] == 4 and done["bytes"] == 8 * (1 + 2 + 3 + 4)


def test_rows_of_all_and_of_the_first(worlds):
    rows = [
        w.issue(1, "r", "gather", [np.array([w.rank], dtype="int8")], (1, (3, 1))) for w in worlds
    ]
    assert [row.tolist() for row in rows] == [[[0], [1], [2]]] * 3
    first = [w.issue(1, "r", "broadcast", [np.array([w.rank + 5])]) for w in worlds]
    assert [one.item() for one in first] == [5, 5, 5]
    here = [world.issue(1, "a barrier", "meet") for world in worlds]
    for one in here:
        one.wait_to_read()
    assert not any(world.broken for world in worlds)


def test_a_request_that_fails_here_fails_everywhere(worlds):
    good = [world.issue(1, "key 'w'", "sum", [np.ones(2)]) for world in worlds[::2]]
    bad = np.take(np.ones(2), np.array([5]), mode="raise")
    own = worlds[1].issue(1, "key 'w'", "sum", [bad])
    with pytest.raises(IndexError):
        own.wait_to_read()
    for array in good:
        with pytest.raises(WorkersError, match=r"kvstore: worker 1: key 'w': .*out of bounds"):
            array.wait_to_read()
    for world in worlds:  # from then on every request fails
        with pytest.raises(WorkersError, match="worker 1: key 'w'"):
            world.issue(1, "key 'v'", "sum", [np.ones(2)]).wait_to_read()


@pytest.mark.parametrize("worlds", [0.5], indirect=True)
def test_a_worker_that_stays_away_is_named(worlds):
    came = [worlds[rank].issue(1, "key 'w'", "sum", [np.ones(2)]) for rank in (0, 2)]
    for array in came:
        with pytest.raises(WorkersError, match=r"worker 1 has not arrived at key 'w' for 0\.5 s"):
            array.wait_to_read()


@pytest.mark.parametrize("worlds", [0.5], indirect=True)
def test_a_worker_that_dies_during_an_exchange(worlds):
    worlds[0]._wire.queues.dead = {1}
    came = [world.issue(1, "key 'w'", "sum", [np.ones(2)]) for world in worlds]
    for array in came:
        with pytest.raises(WorkersError, match=r"key 'w': all workers had come, but for 0\.5 s"):
            array.wait_to_read()


# ---- a Trainer over several workers


class Two(LocalStore):
    """A store that believes in another worker, which never sends anything."""

    num_workers = 2

    def __init__(self) -> None:
        super().__init__("two", on_devices=True)
        self.begun: list[int] = []

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        self.begun.append(key)
        (value * 0 + 0.5).copyto(out[0])


def test_parameters_begin_alike_when_they_are_made():
    store, net = Two(), nn.HybridSequential()
    net.add(nn.Dense(3, in_units=2), nn.Dense(2), nn.BatchNorm())
    net.initialize()
    net.hybridize()
    gluon.Trainer(net.collect_params(), "sgd", kvstore=store)  # nobody keeps this trainer
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore=store)
    assert sorted(store.begun) == [0, 0, 1, 1, 3, 3]
    assert (net[0].weight.data() == 0.5).all()
    out = net(np.ones((4, 2)))  # creates the others, and fills them before they are read
    assert sorted(store.begun[6:]) == [2, 4, 5, 6, 7]
    expected = (0.5 * 2 + 0.5) * 3 * 0.5 + 0.5
    assert numpy.allclose(out.asnumpy(), (expected - 0.5) / (0.5 + 1e-5) ** 0.5 * 0.5 + 0.5)
    net.initialize(force_reinit=True)
    assert len(store.begun) == 19 and (net[1].bias.data() == 0.5).all()
    assert trainer.learning_rate == 0.01
    again = copy.deepcopy(net)
    again.initialize(force_reinit=True)
    assert len(store.begun) == 19  # a copy has no trainer


def test_gradients_that_leave_do_so_one_by_one(monkeypatch):
    chains = []

    def chain(*given: Any, **settings: Any) -> Chain:
        chains.append(Chain(*given, **settings))
        return chains[-1]

    monkeypatch.setattr(step_plans, "Chain", chain)
    for store, pieces in ((Two(), 3), ("device", 0)):
        chains.clear()
        net = nn.HybridSequential()
        net.add(*(nn.Dense(5, activation="tanh", in_units=5) for _ in range(3)))
        net.initialize()
        net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore=store)
        for _ in range(3):
            with autograd.record():
                loss = net(np.ones((7, 5))).sum()
            loss.backward()
            trainer.step(7)
        assert sum(len(chain.stages) for chain in chains) >= pieces
        assert bool(chains) == bool(pieces)


# ---- joining, and starting


def test_no_mpi_is_an_error_that_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    for name in ("dist_sync", "dist_device_sync", "dist"):
        with pytest.raises(WorkersError, match=r"pip install 'gemel\[mpi\]'"):
            kvstore.create(name)
    with pytest.raises(WorkersError, match=r"gemel\[mpi\]"):
        gluon.Trainer([], "sgd", kvstore="dist_sync")


@pytest.fixture
def starter(tmp_path, monkeypatch):
    """A process starter that only records how it was called; it prints the version it is given."""
    monkeypatch.setattr(launching, "find_spec", lambda name: name)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    def made(version: str, status: int = 0) -> None:
        (tmp_path / "mpiexec").write_text(
            f"""#!/bin/sh
[ "$1" = --version ] && {{ echo "{version}"; exit 0; }}
printf '%s ' "$@" "[$GEMEL_WORKERS_TIMEOUT]" > {tmp_path}/said
exit {status}
"""
        )
        (tmp_path / "mpiexec").chmod(0o755)

    (tmp_path / "train.py").write_text("")
    return made


def started(folder: Any, *arguments: str) -> str:
    """The arguments that `python -m gemel launch` gave the starter."""
    main(["launch", *arguments])
    return str((folder / "said").read_text().strip())


def test_options_passed_to_mpirun(starter, tmp_path, monkeypatch):
    monkeypatch.setenv("GEMEL_NOTE", "x")
    script = str(tmp_path / "train.py")
    starter("mpiexec (Open MPI) 5.0.11")
    said = started(tmp_path, "-n", "3", script, "--epochs", "2")
    assert said.startswith("-n 3 --oversubscribe --bind-to none")
    assert said.endswith(f"{tmp_path}/python {script} --epochs 2 []")
    said = started(tmp_path, "-n", "3", "--hosts", "a,b", "--timeout", "5", script)
    assert "--host a:2,b:1" in said and "-x GEMEL_NOTE" in said and said.endswith("[5.0]")
    assert "-n 2 " in started(tmp_path, "--hosts", "a,b", script)
    starter("HYDRA build details:")
    said = started(tmp_path, "-n", "2", "--hosts", "a,b", script)
    assert said == f"-n 2 -hosts a,b {tmp_path}/python {script} []"


def test_the_end_of_a_job_is_reported(starter, tmp_path, capsys):
    starter("HYDRA", status=3)
    assert main(["launch", "-n", "2", str(tmp_path / "train.py")]) == 3
    assert "the job of 2 workers ended with status 3" in capsys.readouterr().err


def test_the_first_worker_reads_standard_input_to_its_end(tmp_path):
    """The starter is like Open MPI's: its workers' input never ends."""
    (tmp_path / "train.py").write_text(
        "import os, sys\nif os.environ['OMPI_COMM_WORLD_RANK'] == '0': print(sys.stdin.read())\n"
    )
    (tmp_path / "mpiexec").write_text(
        f"""#!/bin/sh
[ "$1" = --version ] && {{ echo "mpiexec (Open MPI) 5.0.11"; exit 0; }}
while [ "$1" != /bin/sh ]; do shift; done
mkfifo {tmp_path}/endless
exec 3<>{tmp_path}/endless
for rank in 1 0; do OMPI_COMM_WORLD_RANK=$rank "$@" <&3 || exit 5; done
"""
    )
    (tmp_path / "mpiexec").chmod(0o755)
    program = (
        "import sys\nfrom gemel.__main__ import main\n"
        "from gemel.command import launching\n"
        f"launching._starter = lambda: {str(tmp_path / 'mpiexec')!r}\n"
        f"sys.exit(main(['launch', '-n', '2', {str(tmp_path / 'train.py')!r}]))"
    )
    for given in ("a line\n" * 20_000, ""):
        (tmp_path / "endless").unlink(missing_ok=True)
        job = subprocess.run(
            [sys.executable, "-c", program], input=given, capture_output=True, text=True, timeout=60
        )
        assert (job.returncode, job.stdout) == (0, f"{given}\n"), job.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-n", "2", "missing.py"], "there is no file missing.py"),
        (["-n", "0", "train.py"], "launch: 0 workers"),
        (["train.py"], "say how many workers"),
    ],
)
def test_what_launch_refuses(arguments, words, starter, capsys):
    starter("HYDRA")
    try:
        assert main(["launch", *arguments]) == 2
    except SystemExit as ended:
        assert ended.code == 2
    assert words in capsys.readouterr().err


def test_launch_without_mpi(tmp_path, monkeypatch, capsys):
    (tmp_path / "train.py").write_text("")
    script = str(tmp_path / "train.py")
    monkeypatch.setattr(launching, "find_spec", lambda name: None)
    assert main(["launch", "-n", "2", script]) == 2
    assert "pip install 'gemel[mpi]'" in capsys.readouterr().err
    monkeypatch.setattr(launching, "find_spec", lambda name: name)
    monkeypatch.setattr(launching.shutil, "which", lambda name, path: None)
    assert main(["launch", "-n", "2", script]) == 2
    assert "found no mpiexec or mpirun next to" in capsys.readouterr().err
