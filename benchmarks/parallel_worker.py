"""One worker of `python -m benchmarks parallel`.

    parallel_worker.py LIBRARY WORKERS SECONDS

Its rank comes from the environment. Worker 0 prints what it has measured, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

LAYERS = ((512, 256), (256, 128), (128, 2))
#: Examples in the whole batch, steps whose losses are compared, steps timed together.
BATCH, CHECKED, STEPS = 4096, 20, 10
RATE = 0.05


def data(rank: int, size: int) -> tuple[Any, Any]:
    """A worker's part of the whole batch."""
    draw = numpy.random.default_rng(0)
    x = draw.normal(size=(BATCH, 512)).astype("float32")
    y = (x[:, :256].sum(axis=1) > 0).astype("int64")
    mine = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
    return x[mine], y[mine]


def weights() -> list[Any]:
    """The initial weights of each layer, (outputs, inputs)."""
    draw = numpy.random.default_rng(1)
    return [draw.normal(0, i**-0.5, (o, i)).astype("float32") for i, o in LAYERS]


class Ways:
    """A training step, the same without communication, and communication alone.

    Each of these functions issues its work, and `wait` waits for all of it. `meet` is a barrier of
    all workers. `loss` is the mean over this worker's part of the batch.
    """

    step: Callable[[], None]
    compute: Callable[[], None]
    communicate: Callable[[], None]
    wait: Callable[[], None]
    meet: Callable[[], None]
    loss: Callable[[], float]


def gemel_ways(rank: int, size: int) -> Ways:
    """gemel with the store dist_sync."""
    from gemel import autograd, gluon, kvstore, np, npx
    from gemel.gluon import nn

    store: Any = kvstore.create("dist_sync")
    x, y = (np.array(part) for part in data(rank, size))
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    def made(kind: Any) -> tuple[Any, Any]:
        net = nn.HybridSequential()
        for number, (inputs, units) in enumerate(LAYERS):
            net.add(nn.Dense(units, "relu" if number < 2 else None, in_units=inputs))
        net.initialize()
        for layer, weight in zip(net, weights(), strict=True):
            layer.weight.set_data(np.array(weight))
            layer.bias.set_data(np.zeros(weight.shape[0]))
        net.hybridize()
        given = {"learning_rate": RATE}
        return net, gluon.Trainer(net.collect_params(), "sgd", given, kvstore=kind)

    together, alone = made(store), made(None)

    def step(net: Any, trainer: Any) -> None:
        with autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(BATCH)

    ways = Ways()
    ways.step = lambda: step(*together)
    ways.compute = lambda: step(*alone)
    gradients = [np.zeros(p.shape) for p in together[0].collect_params().values()]
    keys = list(range(len(gradients)))

    def communicate() -> None:
        """Wait each time, as a step that hides no communication would."""
        store.totals(keys, [[g] for g in gradients], [gradients[0].ctx])
        npx.waitall()

    ways.communicate = communicate
    ways.wait, ways.meet = npx.waitall, store.barrier
    ways.loss = lambda: float(loss_of(together[0](x), y).mean())
    return ways


def torch_ways(rank: int, size: int) -> Ways:
    """torch with DistributedDataParallel over gloo."""
    import torch
    import torch.distributed as together
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    together.init_process_group("gloo", rank=rank, world_size=size)
    x, y = (torch.from_numpy(part) for part in data(rank, size))

    def made(parallel: bool) -> tuple[Any, Any]:
        modules: list[Any] = []
        for weight in weights():
            layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
            with torch.no_grad():
                layer.weight.copy_(torch.from_numpy(weight))
                layer.bias.zero_()
            modules += [layer, torch.nn.ReLU()]
        net: Any = torch.nn.Sequential(*modules[:-1])
        net = DistributedDataParallel(net) if parallel else net
        return net, torch.optim.SGD(net.parameters(), lr=RATE)

    first, alone = made(size > 1), made(False)

    def step(net: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()

    gradients = [torch.zeros_like(p) for p in alone[0].parameters()]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    ways = Ways()
    ways.step = lambda: step(*first)
    ways.compute = lambda: step(*alone)
    ways.communicate = lambda: together.all_reduce(flat)
    ways.wait, ways.meet = (lambda: None), together.barrier
    ways.loss = lambda: float(torch.nn.functional.cross_entropy(first[0](x), y))
    return ways


def jax_ways(rank: int, size: int) -> Ways:
    """JAX: one process with `size` CPU devices, and the batch sharded over them."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(numpy.array(jax.devices()[:size]), ("workers",))
    over, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("workers",), ()))
    x, y = (jax.device_put(part, over) for part in data(0, 1))
    state = [jax.device_put([w, numpy.zeros(len(w), "float32")], whole) for w in weights()]

    def loss_of(layers: Any) -> Any:
        value = x
        for number, (weight, bias) in enumerate(layers):
            value = value @ weight.T + bias
            value = jnp.maximum(value, 0) if number < 2 else value
        chosen = jnp.take_along_axis(jax.nn.log_softmax(value), y[:, None], axis=1)
        return -chosen.mean()

    @jax.jit
    def stepped(layers: Any) -> Any:
        gradients = jax.grad(loss_of)(layers)
        return jax.tree_util.tree_map(lambda value, g: value - RATE * g, layers, gradients)

    box = [state]

    def step() -> None:
        box[0] = stepped(box[0])

    ways = Ways()
    ways.step = ways.compute = step
    ways.communicate = ways.meet = lambda: None
    ways.wait = lambda: jax.block_until_ready(box[0])
    ways.loss = lambda: float(loss_of(box[0]))
    return ways


WAYS = {"gemel": gemel_ways, "torch": torch_ways, "jax": jax_ways}


def timed(ways: Ways, seconds: float) -> dict[str, float]:
    """The time of each kind of call in milliseconds: medians over runs that take turns.

    All workers start each run together. Entries that begin with "processor" are the processor time
    of this process. They show what communication costs it, without the time it waits for others.
    """
    kinds = {"step": ways.step, "compute": ways.compute, "communicate": ways.communicate}
    runs: dict[str, list[float]] = {}
    for _ in range(max(3, int(seconds * 12))):  # the same number on all workers
        for name, what in kinds.items():
            ways.wait()
            ways.meet()
            begun, worked = time.perf_counter(), time.process_time()
            for _ in range(STEPS):
                what()
            ways.wait()
            took = time.perf_counter() - begun, time.process_time() - worked
            for key, value in zip((name, f"processor {name}"), took, strict=True):
                runs.setdefault(key, []).append(value * 1e3 / STEPS)
    return {key: float(numpy.median(values)) for key, values in runs.items()}


def main(library: str, rank: int, size: int, seconds: float) -> None:
    """Train, and print losses and times."""
    ways = WAYS[library](rank, size)
    losses = []
    for _ in range(CHECKED):
        ways.step()
        losses.append(ways.loss())
    times = timed(ways, seconds)
    if rank == 0:
        print(json.dumps({**times, "losses": losses}))


if __name__ == "__main__":
    root = str(Path(__file__).resolve().parent.parent)
    # Prefer an installed gemel to the source tree, whose core may not be compiled.
    sys.path[:] = [e for e in sys.path if e not in ("", root, f"{root}/benchmarks")] + [root]
    name, count = sys.argv[1], int(sys.argv[2])
    place = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK") or
                os.environ.get("RANK") or 0)  # fmt: skip
    cores = sorted(os.sched_getaffinity(0))
    if name != "jax":
        os.sched_setaffinity(0, {cores[place % len(cores)]})
    else:
        os.sched_setaffinity(0, set(cores[:count]))
    main(name, place, count, float(sys.argv[3]))
