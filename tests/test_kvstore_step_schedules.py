"""Steps that repeat on all workers: what is agreed on, what leaves by itself, and who differs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
from test_kvstore_sockets import connected, on_all

from gemel import autograd, cpu, gluon, np
from gemel.errors import WorkersError
from gemel.gluon import nn
from gemel.kvstore import courier, mpi, step_schedules
from gemel.kvstore.agreement import Request
from gemel.kvstore.courier import state_of
from gemel.kvstore.mpi import MpiStore
from gemel.kvstore.sockets import Connections
from gemel.kvstore.step_schedules import Piece, buckets_of
from gemel.kvstore.ways import COURIER, Table
from gemel.kvstore.world import World


class Wire:
    """A wire that uses sockets only, without MPI."""

    has_sockets = True
    pause = 0.0

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.rank, self.machines = connections.rank, (0,) * connections.size
        self.courier = connections.courier
        self.send, self.received = connections.send, connections.received

    def gathered(self, row: Any) -> Any:
        rows = numpy.empty((len(self.machines), row.size), row.dtype)
        rows[self.rank] = row
        others = [rank for rank in range(len(rows)) if rank != self.rank]
        self._connections.exchange(
            dict.fromkeys(others, row), {rank: rows[rank] for rank in others}
        )
        return rows

    def summed(self, row: Any, way: str, lengths: Any) -> Any:
        return self._connections.summed(row)

    def broadcast(self, row: Any) -> Any:
        return self.gathered(row)[0]


class Job:
    """Workers in one process; `stores` makes one more store for each of them."""

    def __init__(self, size: int, limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.worlds = [World(Wire(each), limit) for each in connected((0,) * size)]

    def stores(self) -> list[MpiStore]:
        found = []
        for one in self.worlds:
            self._patch.setattr(mpi, "world", lambda one=one: one)
            found.append(MpiStore("dist_sync"))
        return found

    def groups(self) -> list[tuple[float, float]]:
        """For each worker, how many groups were agreed on and how many left by themselves."""
        agreed = [one.done["groups"] for one in self.worlds]
        all_of = [one.statistics()["groups"] for one in self.worlds]
        return [(a, b - a) for a, b in zip(agreed, all_of, strict=True)]

    def close(self) -> None:
        on_all(len(self.worlds), lambda rank: self.worlds[rank].close())


@pytest.fixture
def job(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    size, limit = getattr(request, "param", (2, 30.0))
    made = Job(size, limit, monkeypatch)
    yield made
    made.close()


SHAPES = {"a": (3, 2), "b": (70_001,), "c": (), "d": (0, 4)}


def given(names: str, rank: int, turn: int) -> list[Any]:
    draws = [numpy.random.default_rng([ord(name), rank, turn]) for name in names]
    rows = zip(draws, names, strict=True)
    return [draw.normal(size=SHAPES[name]).astype("float32") for draw, name in rows]


def brought(store: Any, names: str, turn: int) -> list[Any]:
    """Issues the sums of some keys, and returns them."""
    arrays = [[np.array(row)] for row in given(names, store.rank, turn)]
    return store.totals(list(names), arrays, [cpu(0)])[0]


def check(found: list[Any], names: str, turn: int, size: int) -> None:
    for number, total in enumerate(found):
        expected = given(names, 0, turn)[number]
        for rank in range(1, size):
            expected = expected + given(names, rank, turn)[number]
        assert total.asnumpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("job", [(2, 30.0), (3, 30.0)], indirect=True)
def test_the_first_step_is_agreed_on_and_the_others_leave(job: Job) -> None:
    stores = job.stores()
    for turn in range(5):
        found = [brought(store, "abcd", turn) for store in stores]
        for totals in found:
            check(totals, "abcd", turn, len(stores))
        if turn == 0:
            before = job.groups()
    agreed = [now[0] - then[0] for now, then in zip(job.groups(), before, strict=True)]
    assert agreed == [0] * len(stores)
    assert all(left > 0 for _, left in job.groups())


def test_other_keys_in_some_steps(job: Job) -> None:
    """The changes are the same on all workers, so each such step is agreed on once."""
    stores = job.stores()
    for turn, names in enumerate(["abc", "abc", "ac", "abc", "ac", "abc", "ac", "b"]):
        found = [brought(store, names, turn) for store in stores]
        for totals in found:
            check(totals, names, turn, 2)
        if turn == 2:
            before = job.groups()
    left = [now[1] - then[1] for now, then in zip(job.groups(), before, strict=True)]
    assert left == [4, 4]


def test_keys_in_another_order_are_agreed_on(job: Job) -> None:
    first, second = job.stores()
    for turn in range(4):
        found = brought(first, "abc", turn), brought(second, "cba", turn)
        check(found[0], "abc", turn, 2)
        check(found[1], "cba", turn, 2)
    assert [left for _, left in job.groups()] == [0, 0]


def test_keys_pushed_together_by_one_worker_and_separately_by_another(job: Job) -> None:
    first, second = job.stores()
    for turn in range(4):
        whole = brought(first, "ab", turn)
        parts = [*brought(second, "a", turn), *brought(second, "b", turn)]
        check(whole, "ab", turn, 2)
        check(parts, "ab", turn, 2)
    assert [left for _, left in job.groups()] == [0, 0]


@pytest.mark.parametrize("job", [(3, 1.0)], indirect=True)
def test_a_key_that_is_missing_on_one_worker(job: Job) -> None:
    """All know the key by then. Waiting fails in time, with the missing worker's name."""
    stores = job.stores()
    for turn in range(3):
        found = [brought(store, "ab", turn) for store in stores]
        for totals in found:
            check(totals, "ab", turn, 3)
    begun = time.monotonic()
    found = [brought(store, "b" if store.rank == 1 else "ab", 9) for store in stores]
    late = "worker 1 has not arrived at key 'b', key 'a'|not arrived at the contents of a step"
    for total in [total for totals in found for total in totals]:
        with pytest.raises(WorkersError, match=late):
            total.wait_to_read()
    assert time.monotonic() - begun < 20
    with pytest.raises(WorkersError, match=late):
        brought(stores[1], "a", 10)  # learns that its step has failed


@pytest.mark.parametrize("job", [(2, 30.0), (3, 30.0)], indirect=True)
def test_two_stores_in_another_order_on_each_worker(job: Job) -> None:
    one, other = job.stores(), job.stores()
    for turn in range(6):
        found = []
        for first, second in zip(one, other, strict=True):
            for store in (first, second) if first.rank % 2 else (second, first):
                found.append(brought(store, "ab", turn + 100 * (store is second)))
        for number, totals in enumerate(found):
            odd = number // 2 % 2
            second = number % 2 == odd
            check(totals, "ab", turn + 100 * second, len(one))
    assert all(left >= 5 for _, left in job.groups())


def test_compressed_sums_are_agreed_on(job: Job) -> None:
    stores = job.stores()
    for store in stores:
        store.set_gradient_compression({"type": "bf16"})
    for turn in range(3):
        found = [brought(store, "ab", turn) for store in stores]
        assert (found[0][1].asnumpy() == found[1][1].asnumpy()).all()
    assert [left for _, left in job.groups()] == [0, 0]


def test_another_schedule_ends_what_was_agreed_on(job: Job) -> None:
    stores = job.stores()
    for turn in range(3):
        found = [brought(store, "ab", turn) for store in stores]
        check(found[1], "ab", turn, 2)
    before = [left for _, left in job.groups()]
    assert before[0] > 0
    on_all(2, lambda rank: stores[rank].set_schedule("gather"))
    for turn in range(3):
        found = [brought(store, "ab", turn) for store in stores]
        check(found[0], "ab", turn, 2)
    assert [left for _, left in job.groups()] == before


def test_the_number_of_steps_with_a_schedule_is_limited(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_schedules, "MOST_SCHEDULES", 2)
    stores = job.stores()
    for turn in range(2):
        for names in ("a", "b", "ab", "bc"):
            found = [brought(store, names, turn) for store in stores]
            for totals in found:
                check(totals, names, turn, 2)
    assert [left for _, left in job.groups()] == [2, 2]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32"])
def test_other_dtypes(job: Job, dtype: str) -> None:
    stores = job.stores()
    for turn in range(3):
        arrays = [np.full((5,), 1 + store.rank + turn, dtype=dtype) for store in stores]
        found = [
            store.totals(["x"], [[array]], [cpu(0)])[0][0]
            for store, array in zip(stores, arrays, strict=True)
        ]
        for total in found:
            assert total.dtype == np.dtype(dtype)
            assert total.astype("float64").tolist() == [3 + 2 * turn] * 5
    assert all((left > 0) == (dtype != "int32") for _, left in job.groups())


def test_a_worker_that_is_gone_is_named(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sockets of its courier close in the middle of a step."""
    stores = job.stores()
    for turn in range(2):
        for totals in [brought(store, "ab", turn) for store in stores]:
            check(totals, "ab", turn, 2)
    waiting = brought(stores[0], "ab", 2)
    time.sleep(0.1)
    gone = job.worlds[1]
    assert gone.sender is not None
    gone.sender.close("over")
    wire, sender = gone._wire, gone.sender
    gone.sender = None
    wire.courier = wire._connections.courier = sender._courier = sender._desk = None  # type: ignore[assignment]
    for total in waiting:
        with pytest.raises(WorkersError, match="worker 1 is gone"):
            total.wait_to_read()
    for issue in (lambda: brought(stores[0], "ab", 3), lambda: stores[0].barrier()):
        with pytest.raises(WorkersError, match="worker 1 is gone"):
            issue()  # although nothing waits


@pytest.mark.parametrize("job", [(2, 30.0), (3, 30.0)], indirect=True)
@pytest.mark.parametrize("ends", [0, 1])
def test_all_hear_that_a_worker_has_ended(job: Job, ends: int) -> None:
    """Also if the first worker has ended, and if no sum of the step needs an agreement."""
    stores = job.stores()
    for turn in range(2):
        for totals in [brought(store, "ab", turn) for store in stores]:
            check(totals, "ab", turn, len(stores))
    leaves = threading.Thread(target=job.worlds[ends].close)
    leaves.start()
    begin = time.monotonic()
    for total in brought(stores[1 - ends], "ab", 2):
        with pytest.raises(WorkersError, match=f"worker {ends} has ended while worker {1 - ends}"):
            total.wait_to_read()
    assert time.monotonic() - begin < 10
    leaves.join(10)


def test_the_last_sums_of_a_worker_that_has_ended_arrive(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another socket brings the news of the end, perhaps before the sums arrive."""
    stores = job.stores()
    for turn in range(2):
        for totals in [brought(store, "ab", turn) for store in stores]:
            check(totals, "ab", turn, 2)
    near = job.worlds[0]
    assert near.sender is not None
    late = state_of(near.sender._courier)._replace(name="key 'a'", open=1, missing=[1])
    end = Request(0, "the end", 1, "end", "uint8", (near.sender.brought,), 0, 0, "")
    near._agreement.leave(1, end)
    with monkeypatch.context() as patch:
        patch.setattr(courier, "state_of", lambda courier: late)
        assert near.sender.trouble(time.monotonic(), near._agreement.left) is None


# ---- what it takes


@pytest.mark.parametrize("job", [(2, 30.0), (3, 30.0)], indirect=True)
def test_the_courier_is_measured(job: Job) -> None:
    """The measurement is not a step of a store, and does not count as one."""
    before = [one.statistics() for one in job.worlds]
    for one in [one.issue(0, "the measurement", "measure") for one in job.worlds]:
        one.wait_to_read()
    for one, counts in zip(job.worlds, before, strict=True):
        table = one.ways.table
        assert table.measured == job.worlds[0].ways.table.measured
        assert one.sender is not None and one.sender.worked() > 0
        sums = state_of(one.sender._courier).sums
        assert sums == 4 * len(table.measured[COURIER]) > 0
        (size, seconds), *_ = table.measured[COURIER]
        assert 0 <= (table.waiting(COURIER, size) or 0.0) <= seconds
        assert "courier" in one.ways.explain("ranks")
        after = one.statistics()
        assert after["groups"] == counts["groups"] + 1 and "by lines" not in after
        assert after["processor seconds"] < 0.01
    stores = job.stores()
    for turn in range(2):
        for totals in [brought(store, "abcd", turn) for store in stores]:
            check(totals, "abcd", turn, len(stores))


@pytest.mark.parametrize("job", [(2, 8.0)], indirect=True)  # the limit of the other worker
def test_a_worker_that_is_gone_while_all_measure(job: Job, monkeypatch: Any) -> None:
    """The thread that would notice it waits for the courier, so another thread looks."""
    near, far = job.worlds
    assert near.sender is not None
    over = threading.Event()
    gone = courier.Trouble("worker 1 is gone")
    monkeypatch.setattr(near.sender, "trouble", lambda now, left: gone)
    monkeypatch.setattr(far.sender, "summed", lambda row: over.wait(20) and row)
    begin = time.monotonic()
    asked = [one.issue(0, "the measurement", "measure") for one in job.worlds]
    with pytest.raises(WorkersError, match="worker 1 is gone"):
        asked[0].wait_to_read()
    assert time.monotonic() - begin < 5
    over.set()
    with pytest.raises(WorkersError):
        asked[1].wait_to_read()


# ---- trainers


def trained(job: Job, blocks: bool) -> list[bytes]:
    """The parameters after steps of two trainers, with changing batches and parameters."""
    stores = list(zip(job.stores(), job.stores(), strict=True))
    table = Table({"lines": [(64.0, 1e-3), (4096.0, 1e-1)]} if blocks else {})
    for one in job.worlds:
        one.ways.table = table
    workers = []
    for rank, pair in enumerate(stores):
        np.random.seed(5 + rank)
        nets = []
        for store in pair:
            net = nn.HybridSequential()
            net.add(nn.Dense(37, "tanh", in_units=9), nn.Dense(5, in_units=37))
            net.add(nn.Dense(3, in_units=5))  # unused in some steps
            net.initialize()
            net.hybridize()
            net[1].bias.grad_req = "null"
            trainer = gluon.Trainer(net.collect_params(), "adam", kvstore=store)
            nets.append((net, trainer))
        workers.append(nets)
    for turn, size in enumerate([8, 8, 8, 3, 8, 1, 8]):
        for rank, nets in enumerate(workers):
            for net, trainer in nets:
                draw = numpy.random.default_rng([rank, turn])
                x = np.array(draw.normal(size=(size, 9)).astype("float32"))
                with autograd.record():
                    middle = net[1](net[0](x))
                    loss = (middle if turn % 3 == 2 else net[2](middle)) ** 2
                loss.backward()
                trainer.step(2 * size, ignore_stale_grad=True)
    found = []
    for nets in workers:
        parameters = [p for net, _ in nets for p in net.collect_params().values()]
        found.append(b"".join(p.data().asnumpy().tobytes() for p in parameters))
    return found


@pytest.mark.parametrize("blocks", [False, True])
def test_trainers_have_the_bits_of_sums_that_are_agreed_on(
    job: Job, blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at once; some gradients are never wanted, or missing in some steps; batches change."""
    found = trained(job, blocks)
    assert found[0] == found[1]
    left = [left for _, left in job.groups()]
    assert left[0] == left[1] > (20 if blocks else 8)
    monkeypatch.setattr(step_schedules.StepSchedules, "unknown", lambda self, key: False)
    assert trained(job, blocks) == found
    assert [left for _, left in job.groups()] == left


def test_only_gradients_at_the_end_of_backward_are_sent_in_blocks(job: Job) -> None:
    """The others overlap with what backward computes later, and need no blocks for that."""
    for one in job.worlds:
        one.ways.table = Table({"lines": [(64.0, 1e-3), (4096.0, 1e-1)]})
    early, late, other = (np.ones(shape) for shape in [(64, 16), (64, 8), (4,)])
    for store in job.stores():
        assert store.blocks(early) == store.blocks(early, early.nbytes - 1) > 1
        assert store.blocks(early, early.nbytes) == 1
        keys, values = [0, 1, 2], [[early], [late], [other]]
        pieces = store._pieces(keys, values)
        assert [piece.name for piece in pieces if "rows" not in piece.name] == ["key 2", "key 1"]
        assert sum(piece.name.startswith("key 0, rows") for piece in pieces) == store.blocks(early)


# ---- buckets


def sizes(pieces: list[int], most: float, dtypes: str = "") -> list[list[int]]:
    kinds = [{"f": "float32", "d": "float64"}[kind] for kind in dtypes or "f" * len(pieces)]
    rows = [Piece(f"k{n}", kinds[n], (size,), size, -n) for n, size in enumerate(pieces)]
    found = buckets_of(b"x", rows, most)
    assert len({bucket.tag for bucket in found}) == len(found)
    assert [b.start for b in found] == [0, *(b.end for b in found)][: len(found)]
    return [pieces[bucket.start : bucket.end] for bucket in found]


def test_which_arrays_share_a_bucket() -> None:
    inf = float("inf")
    assert sizes([5, 0, 7], inf) == [[5, 0, 7]]
    assert sizes([5, 0, 7], inf, "ffd") == [[5, 0], [7]]
    assert sizes([1, 1, 60, 60, 1, 60, 60], 100) == [[1, 1, 60], [60], [1, 60], [60]]
    assert sizes([20, 60, 20, 20], 100) == [[20], [60], [20], [20]]  # the last array does not fit
    assert sizes([20, 5, 5], 100) == [[20, 5], [5]]
    assert sizes([1, 5], 100) == [[1, 5]]
    assert sizes([20, 20, 20, 20], 100) == [[20, 20, 20], [20]]
    assert sizes([500], 100) == [[500]]
