"""The program that the workers of tests/test_kvstore_mpi.py run: NAME FOLDER SETTINGS.

Each worker writes its results to a file in the folder, named by its rank.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

from gemel import amp, autograd, cpu, gluon, init, kvstore, np, npx, optimizer
from gemel.errors import GemelError
from gemel.gluon import nn
from gemel.kvstore import agreement, mpi
from gemel.kvstore.courier import BucketSender
from gemel.kvstore.ways import Table
from gemel.kvstore.world import World

#: The number of digits in a batch, and the number of steps.
BATCH, STEPS = 64, 20


def trained(store: Any, devices: list[Any], data: Path, settings: dict[str, Any]) -> list[Any]:
    """The parameters after some steps on batches that all workers and devices share."""
    rank, size = (store.rank, store.num_workers) if isinstance(store, kvstore.KVStore) else (0, 1)
    digits = numpy.load(data)
    images, labels = digits["images"], digits["labels"]
    np.random.seed(settings.get("seed", 7) + rank)  # only the first worker's initial values count
    net = nn.HybridSequential()
    net.add(nn.Dense(48, activation="relu"), nn.Dense(24, activation="tanh"), nn.Dense(10))
    if not settings.get("deferred", True):
        for layer, inputs in zip(net, (64, 48, 24), strict=True):
            layer.weight.shape = (layer.weight.shape[0], inputs)
    net.initialize(init.Xavier(), device=devices)
    if settings.get("hybrid"):
        net.hybridize()
    trainer = gluon.Trainer(
        net.collect_params(),
        settings.get("optimizer", "sgd"),
        {"learning_rate": settings.get("rate", 0.1)},
        kvstore=store,
        update_on_kvstore=settings.get("on_store"),
        compression_params=settings.get("compression"),
    )
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    for step in range(STEPS):
        chosen = slice(step * BATCH, (step + 1) * BATCH)
        mine = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
        parts = [
            gluon.utils.split_and_load(whole[chosen][mine], devices) for whole in (images, labels)
        ]
        with autograd.record():
            losses = [loss(net(x), y) for x, y in zip(*parts, strict=True)]
        for one in losses:
            one.backward()
        trainer.step(BATCH)
    found = []
    for parameter in net.collect_params().values():
        replicas = [array.asnumpy() for array in parameter.list_data()]
        assert all((replica == replicas[0]).all() for replica in replicas)
        found.append(replicas[0])
    return found


def digest(arrays: list[Any]) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def training(store: Any, folder: Path, settings: dict[str, Any]) -> Any:
    devices = [cpu(number) for number in range(settings.get("devices", 1))]
    found = trained(store, devices, Path(settings["data"]), settings)
    if store.rank == 0:
        numpy.savez(folder / "parameters.npz", *found)
    return digest(found)


# ---- what stores do


def values(store: Any, folder: Path, settings: dict[str, Any]) -> Any:
    """Keys, lists of them, dtypes, sizes, several devices, an optimizer and an updater."""
    rank, size = store.rank, store.num_workers
    found: dict[str, Any] = {"type": store.type, "place": [rank, size]}
    out = np.zeros((3,))
    store.broadcast("a", np.full((3,), rank + 5.0), out=out)
    found["from rank 0"] = out.tolist()
    store.push("a", [np.full((3,), rank + 1.0), np.full((3,), 10.0, device=cpu(1))])
    store.pull("a", out)
    found["both devices of all"] = out.tolist()
    store.init([1, 2], [np.zeros((2,)), np.zeros((1, 1))])
    mine = [np.full((2,), float(rank)), np.full((1, 1), 2.0)]
    store.pushpull([1, 2], mine, priority=3)
    found["lists"] = [array.tolist() for array in mine]
    for dtype in ("float16", "bfloat16", "float64", "int32", "int8"):
        store.init(dtype, np.zeros((2,), dtype=dtype))
        result = np.zeros((2,), dtype=dtype)
        store.pushpull(dtype, np.full((2,), rank + 1, dtype=dtype), out=result)
        found[dtype] = [str(result.dtype), result.astype("float64").tolist()]
    # Each worker has another number of devices.
    store.init("bool", np.zeros((2,), dtype="bool"))
    several = [np.array([1, 0], dtype="bool", device=cpu(place)) for place in range(rank + 1)]
    store.pushpull("bool", several)
    found["bool"] = [str(several[0].dtype), several[0].tolist()]
    # As float16 the sum would stay at 2048.
    halves = [np.array([value], dtype="float16") for value in (1.0 if rank else 2048.0, 1.0)]
    store.init("halves", halves[0])
    store.pushpull("halves", [halves[0], halves[1].as_in_ctx(cpu(1))], out=halves[0])
    found["rounded once"] = halves[0].tolist()
    empty = np.zeros((0, 4))
    store.init("empty", empty)
    store.pushpull("empty", empty)
    found["empty"] = list(empty.shape)
    # Pushed in opposite orders, as views, and without waiting in between.
    keys = [f"k{number}" for number in range(5)]
    store.init(keys, [np.zeros((2,)) for _ in keys])
    square = np.arange(20).reshape(2, 10) + 0.0
    for number in range(5) if rank % 2 else reversed(range(5)):
        store.push(keys[number], square[:, number], priority=number)
    results = [np.zeros((2,)) for _ in keys]
    store.pull(keys, results)
    found["orders"] = [result.tolist() for result in results]
    store.set_optimizer(optimizer.SGD(learning_rate=0.5))
    store.init("w", np.ones((2,)))
    store.pushpull("w", np.full((2,), 1.0), out=results[0])
    found["optimizer"] = results[0].tolist()
    store.set_updater(lambda key, total, value: value.__iadd__(total * len(key)))
    store.init("uvw", np.ones((2,)))
    store.pushpull("uvw", np.full((2,), 1.0), out=results[0])
    found["updater"] = results[0].tolist()
    store.barrier()
    # Another store has keys of its own.
    other = kvstore.create("dist_device_sync")
    other.init("a", np.full((3,), rank + 2.0))
    other.pull("a", out)
    found["other"] = out.tolist()
    return found


def order(store: Any, folder: Path, settings: dict[str, Any]) -> Any:
    """Sums of floats equal additions in the order of ranks, bit for bit, at every size."""
    found = {}
    for count in (1, 1000, 100_003, 1_500_001):
        rows = [
            numpy.random.default_rng(count + rank).normal(size=count).astype("float32")
            for rank in range(store.num_workers)
        ]
        expected = rows[0].copy()
        for row in rows[1:]:
            expected += row
        store.init(count, np.zeros((count,)))
        out = np.zeros((count,))
        store.pushpull(count, np.array(rows[store.rank]), out=out)
        found[str(count)] = bool((out.asnumpy() == expected).all())
    return found


def ways(store: Any, folder: Path, settings: dict[str, Any]) -> Any:
    """For every schedule: the bits of sums, alone and with others, and what `explain` says."""
    rank, size = store.rank, store.num_workers
    known, found = store._world.ways.known, {"said": store.explain()}
    counts = (70_001, 3, 0, 513)
    rows = [
        [numpy.random.default_rng([rank, n]).normal(size=n).astype("float32") for n in counts]
        for rank in range(size)
    ]
    outs = [np.zeros((count,)) for count in counts]
    for name, way in known.items():
        store.set_schedule(name)
        digests = []
        for times in range(2):
            for number, count in enumerate(counts):
                key = f"{name} {times} {number}"
                store.init(key, np.zeros((count,)))
                store.pushpull(key, np.array(rows[rank][number]), out=outs[number])
                if times:  # the second time one after another; the first time together
                    outs[number].wait_to_read()
            digests.append(digest([out.asnumpy() for out in outs]))
        exact, near = True, True
        for out, parts in zip(outs, zip(*rows, strict=True), strict=True):
            total = parts[0].copy()
            for part in parts[1:]:
                total += part
            exact &= bool((out.asnumpy() == total).all())
            near &= bool(numpy.allclose(out.asnumpy(), total, atol=1e-5))
        found[name] = [digests[0] == digests[1], exact or not way.in_order, near, digests[0]]
    whole = np.full((5,), 100 + rank, dtype="int8")
    store.init("int8", whole)
    store.pushpull("int8", whole)
    found["int8"] = whole.tolist()
    found["went"] = sorted(name for name in store.statistics() if name.startswith("by "))
    try:
        store.set_schedule("rinf")
    except GemelError as error:
        found["unknown"] = str(error)
    try:
        store.set_schedule("ring" if rank else "gather")
        store.barrier()
    except GemelError as error:
        found["disagreement"] = str(error)
    return found


def lossy(row: Any, kind: str) -> Any:
    """The values that arrive after a row was compressed."""
    if kind == "2bit":
        return 0.5 * ((row >= 0.5).astype("float32") - (row <= -0.5).astype("float32"))
    if kind == "fp16":
        return row.astype("float16").astype("float32")
    bits = row.view("uint32").astype("uint64")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype("uint32").view("float32")


def by_kind(kind: str, threshold: float) -> dict[str, Any]:
    """Settings of gradient compression; only 2 bits take a threshold."""
    return {"type": kind, "threshold": threshold} if kind == "2bit" else {"type": kind}


def compressed(store: Any, folder: Path, settings: dict[str, Any]) -> Any:
    """Sums, and the error each worker keeps, equal those of a reference in NumPy."""
    rank, size, kind = store.rank, store.num_workers, settings["kind"]
    store.set_gradient_compression(by_kind(kind, 0.5))
    store.init("w", np.zeros((7, 3)))
    lost = numpy.zeros((size, 21), "float32")
    out, worst = np.zeros((7, 3)), 0.0
    store.pull("w", out)
    out.wait_to_read()
    before = store.statistics()["bytes"]
    for step in range(6):
        given = numpy.random.default_rng(step).normal(size=(size, 21)).astype("float32")
        sent = lossy(given + lost, kind)
        lost = given + lost - sent
        total = sent[0]
        for row in sent[1:]:
            total = total + row
        store.pushpull("w", np.array(given[rank].reshape(7, 3)), out=out)
        worst = max(worst, float(abs(out.asnumpy().reshape(-1) - total).max()))
    return {"apart": worst, "bytes": (store.statistics()["bytes"] - before) / 6}


def overflowing(store: Any, folder: Path, settings: dict[str, Any]) -> Any:
    """Whether the parameter moved, and the scale, after steps in which one worker overflows."""
    weight = gluon.Parameter("w", shape=(3,))
    weight.initialize(init="ones")
    compression = by_kind(settings["kind"], 2.0**12)
    trainer = gluon.Trainer(
        [weight], "sgd", {"learning_rate": 0.125}, kvstore=store, compression_params=compression
    )
    amp.init_trainer(trainer, "float16")
    found = []
    for step in range(4):
        factor = float("inf") if step == 1 and store.rank == 1 else 0.25
        before = weight.data().asnumpy()
        with autograd.record(), amp.scale_loss((weight.data() * factor).sum(), trainer) as scaled:
            scaled.backward()
        trainer.step(1)
        found.append([bool((weight.data().asnumpy() < before).all()),
                      trainer._amp_loss_scaler.loss_scale])  # fmt: skip
    return found


# ---- blocks of rows

#: Made-up measurements of a slow network, on which these gradients take long.
SLOW = {"gather": [(64.0, 1e-3), (4096.0, 1e-1)]}
SLOW_LINES = {"lines": SLOW["gather"]}


def in_blocks(store: Any, folder: Path, settings: dict[str, Any]) -> Any:
    """The parameters, and the number of sums, for gradients sent whole and in blocks.

    The blocks are agreed on first (`SLOW`), or leave without agreement (`SLOW_LINES`).
    """
    found = []
    for measured in ({}, SLOW, SLOW_LINES):
        mpi.world().ways.table = Table(measured)
        before = store.statistics()["requests"]
        arrays = _few_steps(kvstore.create("dist_sync"), settings)
        store.barrier()  # nothing waits for the comparison of optimizers, which is counted, too
        found.append([digest(arrays), store.statistics()["requests"] - before])
    return found


def _few_steps(store: Any, settings: dict[str, Any]) -> list[Any]:
    """The parameters after some steps; some layers have an odd number of rows, one has one row."""
    rank, how = store.rank, settings["how"]
    places = [cpu(number) for number in range(2 if how == "devices" else 1)]
    np.random.seed(3)
    net = nn.HybridSequential()
    net.add(nn.Dense(37, "tanh", in_units=65), nn.Dense(20, in_units=37), nn.Dense(1, in_units=20))
    net.initialize(device=places)
    if how != "imperative":
        net.hybridize()
    if how == "add":
        net.setattr("grad_req", "add")
    compression = {"type": how} if how in ("fp16", "2bit") else None
    trainer = gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 1e-3}, kvstore=store,
        compression_params=compression, update_on_kvstore=how == "on store",
    )  # fmt: skip
    draw = numpy.random.default_rng(rank)
    for _ in range(4):
        rows = draw.normal(size=(48, 65)).astype("float32")
        with autograd.record():
            losses = [(net(x) ** 2).sum() for x in gluon.utils.split_and_load(rows, places)]
        autograd.backward(losses)
        own = [p.grad(places[0]) for p in net.collect_params().values()]
        if how == "read":
            kept = [g.asnumpy() for g in own]
        if how == "touched" and rank == 0:
            own[0][:] = own[0] * 2
        if how == "shared" and rank == 0:
            numpy.asarray(own[0])[:] *= 2
        if how == "apart":
            trainer.allreduce_grads()
            own[0][:] = own[0].clip(-1, 1)
            trainer.update(48)
        else:
            trainer.step(48)
        if how == "read":
            assert all((a == b.asnumpy()).all() for a, b in zip(kept, own, strict=True))
        if how == "add":
            net.zero_grad()
    return [p.data(places[0]).asnumpy() for p in net.collect_params().values()]


def torn(store: Any, folder: Path, settings: dict[str, Any]) -> Any:
    """Worker 1 dies once the first block is summed, or has left, while others are to come."""
    mpi.world().ways.table = Table(SLOW if settings["agreed"] else SLOW_LINES)
    agreement.BUCKET_BYTES = 1  # each block travels alone
    whole = World._do

    def once(world: World, places: Any, way: str) -> None:
        whole(world, places, way)
        if any("rows" in place[2] for place in places):
            os.kill(os.getpid(), signal.SIGKILL)

    issue = BucketSender.issue

    def only(sender: BucketSender, *arguments: Any) -> None:
        issue(sender, *arguments)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)

    if store.rank == 1 and settings["agreed"]:
        World._do = once  # type: ignore[method-assign]
    elif store.rank == 1:
        BucketSender.issue = only  # type: ignore[method-assign, assignment]
    try:
        _few_steps(kvstore.create("dist_sync"), {"how": "plain"})
        npx.waitall()  # a weight whose sum failed keeps its value, so only this wait raises
    except GemelError as error:
        return {"error": type(error).__name__, "text": str(error)}
    return "done"


# ---- what can go wrong


def wrong(store: Any, folder: Path, settings: dict[str, Any]) -> Any:
    """Steps during which worker 1 does one of the things in `WRONG`."""
    rank, how = store.rank, settings["how"]
    store.init(["a", "b"], [np.zeros((3,)), np.zeros((100_000,))])
    small, large = np.zeros((3,)), np.zeros((100_000,))
    try:
        for step in range(6):
            if rank == 1 and step == 3:
                WRONG[how](store)
            store.pushpull("a", np.ones((3,)), out=small)
            store.pushpull("b", np.ones((100_000,)), out=large)
            small.wait_to_read()
            large.wait_to_read()
        store.barrier()
    except GemelError as error:
        try:
            store.barrier()
            after = "went on"
        except GemelError as again:
            after = type(again).__name__
        return {"error": type(error).__name__, "text": str(error), "after": after}
    return "done"


def _raise(store: Any) -> None:
    raise ValueError("this worker's data are broken")


def _fork(store: Any) -> None:
    """The child is not a worker, and its end affects nobody."""
    child = os.fork()
    if child == 0:
        try:
            store.push("a", np.ones((3,)))
        except GemelError as error:
            os._exit(0 if "forked from worker 1" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


WRONG: dict[str, Callable[[Any], Any]] = {
    "shape": lambda store: store.totals(["a"], [[np.ones((4,))]], [cpu(0)]),
    "dtype": lambda store: store.totals(["a"], [[np.ones((3,), dtype="int32")]], [cpu(0)]),
    "compression": lambda store: store.set_gradient_compression({"type": "bf16"}),
    "key": lambda store: store.barrier(),
    "index": lambda store: store.push("a", np.take(np.ones((3,)), np.array([9] * 3), mode="raise")),
    "exit": lambda store: sys.exit(3),
    "raise": _raise,
    "stop": lambda store: os.kill(os.getpid(), signal.SIGSTOP),
    "kill": lambda store: os.kill(os.getpid(), signal.SIGKILL),
    "fork": _fork,
}  # fmt: skip


def apart(store: Any, folder: Path, settings: dict[str, Any]) -> Any:
    """No step waits for a sum, and worker 1 does something else than the others."""
    other, how = store.rank == 1, settings["how"]
    store.init(["a", "b"], [np.zeros((3,)), np.zeros((4,))])
    step = 0
    try:
        if how == "parameters":
            net = nn.HybridSequential()
            for _ in range(1 + other):
                net.add(nn.Dense(3, in_units=3))
            net.initialize()
            trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore=store)
        for step in range(200):
            if how == "parameters":
                with autograd.record():
                    total = net(np.ones((2, 3))).sum()
                total.backward()
                trainer.step(2)
            elif how == "pull" and step:
                store.pull("a", np.zeros((3,)))
            elif other and how == "pull":
                store.totals(["a"], [[np.ones((4,))]], [cpu(0)])
            elif other and (how == "key" or (how == "barrier" and step == 3)):
                store.push("b", np.ones((4,)))
            else:
                store.push("a", np.ones((3,)))
            if how == "barrier" and step == 5:
                store.barrier()
            time.sleep(0.05)
    except GemelError as error:
        return {"error": type(error).__name__, "text": str(error), "step": step}
    return "done"


def misused(store: Any, folder: Path, settings: dict[str, Any]) -> Any:
    """What worker 1 alone is told about an array of another shape, and about an unknown key."""
    store.init("w", np.ones((2, 3)))
    texts = []
    if store.rank == 1:
        for call in (store.push, store.pull):
            for key, value in (("w", np.ones((3, 2))), ("v", np.ones((2, 3)))):
                try:
                    call(key, value)
                except GemelError as error:
                    texts.append(str(error))
    store.barrier()
    return texts


def optimizers(store: Any, folder: Path, settings: dict[str, Any]) -> Any:
    """A step with the optimizer that this worker's part of `settings` names."""
    value = np.ones((3,))
    store.init("w", value)
    store.set_optimizer(optimizer.create(settings["names"][store.rank], learning_rate=0.5))
    try:
        store.pushpull("w", np.ones((3,)), value)
        store.barrier()
        return value.tolist()
    except GemelError as error:
        return {"error": type(error).__name__, "text": str(error)}


def ending(store: Any, folder: Path, settings: dict[str, Any]) -> Any:
    """All workers issue the same sums of what takes half a second to compute. Those except rank 0
    do not wait for anything: their programs end at once."""
    slow = np.ones((500, 500))
    for _ in range(60):
        slow = (slow @ slow) / 500
    sums = [store.totals(["a"], [[slow[turn]]], [cpu(0)]) for turn in range(4)]
    return "ended" if store.rank else [float(found[0][0][0]) for found in sums]


def interrupted(store: Any, folder: Path, settings: dict[str, Any]) -> Any:
    """The program of worker 1 ends first and is interrupted while it waits for worker 0."""

    def interrupt() -> None:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGINT)

    if store.rank == 1:
        threading.Thread(target=interrupt, daemon=True).start()
    else:
        time.sleep(3)
    return "over"


def busy(store: Any, folder: Path, settings: dict[str, Any]) -> Any:
    """A thread of each worker issues sums for ever."""

    def sums() -> None:
        while True:
            store.totals(["a"], [[np.ones((3,))]], [cpu(0)])

    threading.Thread(target=sums, daemon=True).start()
    time.sleep(0.5)
    return "over"


CASES = {
    "training": training,
    "ending": ending,
    "interrupted": interrupted,
    "busy": busy,
    "values": values,
    "order": order,
    "ways": ways,
    "compressed": compressed,
    "overflowing": overflowing,
    "in_blocks": in_blocks,
    "apart": apart,
    "misused": misused,
    "optimizers": optimizers,
    "torn": torn,
    "wrong": wrong,
}


def main(name: str, folder: Path, settings: dict[str, Any]) -> None:
    if "schedules" in settings:
        rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
        os.environ["GEMEL_SCHEDULE"] = settings["schedules"][rank]
    store = kvstore.create("dist_sync")
    found = CASES[name](store, folder, settings)
    (folder / f"{store.rank}.json").write_text(json.dumps(found))
    if isinstance(found, dict) and "error" in found:
        # MPI ends the others as soon as one ends so; here each of them is to tell what it was told.
        for _ in range(100 if name == "apart" else 0):
            if len(list(folder.glob("[0-9].json"))) == store.num_workers:
                break
            time.sleep(0.1)
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
