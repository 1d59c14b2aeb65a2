"""The program that the workers of tests/test_elastic.py run: elastic_programs.py FOLDER SETTINGS.

It trains with `gluon.fit` on batches that all workers share, and writes a checkpoint. A run may
start from nothing, stop in the middle of an epoch, or resume with another number of workers from
several files.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy

from gemel import gluon, init, kvstore, lr_scheduler, np
from gemel.errors import GemelError
from gemel.gluon import nn
from gemel.gluon.fitting import Run

#: The number of examples, the size of a batch over all workers together, and the epochs.
EXAMPLES, BATCH, EPOCHS = 100, 22, 3
PER_EPOCH = EXAMPLES // BATCH


class Enough(Exception):
    """Ends the program here, like a power cut."""


class Once(gluon.Checkpoint):
    """Writes a checkpoint after `saved` steps, and ends the training after `steps`."""

    def __init__(self, path: Any, settings: dict[str, Any]) -> None:
        super().__init__(path)
        self.saved = settings.get("saved", settings.get("steps"))
        self.steps = settings.get("steps")

    def _look(self, run: Any) -> None:
        if run.step == self.saved:
            self.save(run)
        if run.step == self.steps:
            raise Enough

    def batch_end(self, run: Any) -> None:
        if run.step % PER_EPOCH:
            self._look(run)

    def epoch_end(self, run: Any) -> None:
        if run.step % PER_EPOCH == 0:
            self._look(run)


def trained(store: Any, path: Path, settings: dict[str, Any]) -> tuple[Any, list[Any]]:
    """A run and its final parameters."""
    rank, size = (store.rank, store.num_workers) if store is not None else (0, 1)
    np.random.seed(11 + rank)
    draw = numpy.random.default_rng(5)
    x = draw.normal(size=(EXAMPLES, 6)).astype("float32")
    y = draw.integers(0, 4, EXAMPLES)
    data: Any = gluon.data.ArrayDataset(np.array(x), np.array(y))
    order = gluon.data.WorkerBatchSampler(
        EXAMPLES, BATCH, size, rank, shuffle=True, seed=settings.get("seed", 1)
    )
    batches: Any = gluon.data.DataLoader(data, batch_sampler=order)
    if settings.get("own"):
        batches = gluon.data.DataLoader(data.shard(size, rank), 5, last_batch="discard")
    net = nn.HybridSequential()
    net.add(nn.Dense(12, activation="tanh"))
    if settings.get("dropout"):
        net.add(nn.Dropout(0.5))
    net.add(nn.Dense(4))
    net.initialize(init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(
        net.collect_params(),
        "adam",
        {"learning_rate": 0.02, "lr_scheduler": lr_scheduler.FactorScheduler(3, 0.8, base_lr=0.02)},
        kvstore=store,
        update_on_kvstore=settings.get("on_store", False),
    )
    run = Run(
        net, batches, gluon.loss.SoftmaxCrossEntropyLoss(), trainer, "accuracy",
        [Once(path, settings)], EPOCHS, None, 0,
    )  # fmt: skip
    run.callbacks[0].restore(run)
    with suppress(Enough):
        run.train()
    return run, [p.data().asnumpy() for p in net.collect_params().values()]


def main(folder: Path, settings: dict[str, Any]) -> None:
    store = kvstore.create("dist_sync")
    found: dict[str, Any] = {}
    for name in settings["files"]:
        try:
            run, values = trained(store, folder / name, settings)
        except GemelError as error:
            found[name] = {"error": type(error).__name__, "text": str(error)}
            continue
        found[name] = {
            "steps": run.step,
            "history": run.history,
            "rate": run.trainer.learning_rate,
            "parameters": [value.tobytes().hex() for value in values],
            "drawn": np.random.uniform(size=(2,)).tolist(),
        }
        del run  # its parameters have the keys that the next one needs on servers
    (folder / f"{settings['name']}.{store.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
