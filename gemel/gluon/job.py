"""Training with several workers: their communication around the end of an epoch and a checkpoint.

A job that resumes from a checkpoint may have another number of workers than the one that wrote it.
Some state is common: parameters, the optimizer's states and counts, the position in the data (in
batches of all workers), and the history. Random streams are saved for each worker, and worker r
continues those of worker r. A new worker starts its own streams, which are drawn from worker 0's;
those of workers that no longer exist are dropped.
"""

from __future__ import annotations

import json
import os
import random
import sys
import zlib
from typing import TYPE_CHECKING, Any

from gemel import np
from gemel.errors import GemelError, ParameterFileError, WorkersError

if TYPE_CHECKING:
    from gemel.gluon.trainer import Trainer

#: Stands for the CRC-32 of a missing file.
NO_FILE = -1


class Job:
    """The workers that a trainer trains with, from the view of one of them."""

    def __init__(self, trainer: Trainer) -> None:
        store = trainer._store
        speaks = hasattr(store, "gathered")
        if not speaks and getattr(store, "num_workers", 1) > 1:
            raise GemelError(
                f"fit: {type(store).__name__} has {store.num_workers} workers, but no `gathered`, "
                "by which they exchange the sizes of their batches; define it as in "
                "kvstore.KVStore, or train with Trainer.step"
            )
        self._trainer = trainer
        self._store = store if speaks else None
        self.workers: int = store.num_workers if speaks else 1
        self.rank: int = store.rank if speaks else 0

    @property
    def alone(self) -> bool:
        """Whether there is only one worker."""
        return self.workers == 1

    def exchanged(self, value: Any) -> list[Any]:
        """Exchange a value: returns those of all workers, by rank. They are JSON values other than
        None. Waits for all workers; None stands for one that was left out."""
        if self._store is None or self.alone:
            return [value]
        texts = self._store.gathered(json.dumps(value))
        return [json.loads(text) if text else None for text in texts]

    def _exchanged_at(self, moment: str, value: Any) -> list[Any]:
        """The values of all workers that were not left out. Raises `WorkersError` unless all are at
        the same moment."""
        given = [(rank, row) for rank, row in enumerate(self.exchanged([moment, value])) if row]
        rank, (first, _) = given[0]
        for other, (there, _) in given[1:]:
            if there != first:
                raise WorkersError(
                    f"fit: worker {other} is at {there}, worker {rank} at {first}; all workers "
                    "must have the same number of batches in an epoch"
                )
        return [found for _, (_, found) in given]

    def mean(self, entry: dict[str, float], count: int) -> dict[str, float]:
        """The mean of all workers' entries, weighted by their numbers of losses: the same on all.
        Raises `WorkersError` if one of them has another batch."""
        if self.alone:
            return entry
        rows = self._exchanged_at("the end of an epoch", [count, entry])
        total = sum(count for count, _ in rows)
        return {name: sum(n * each[name] for n, each in rows) / total for name in entry}

    def whole(self, batch: int, own: int) -> int:
        """The number of losses over all workers in batch number `batch`, where this worker has
        `own`.

        Workers with replicas of the parameters exchange their numbers, because they must all divide
        by the same. Servers refuse different numbers themselves. Raises `WorkersError` if a worker
        has no such batch.
        """
        if self._on_servers:
            return own * self.workers
        counts: list[int] = self._exchanged_at(f"batch {batch + 1}", own)
        return round(sum(counts) * self.workers / len(counts))

    @property
    def _on_servers(self) -> bool:
        """Whether the parameters and the optimizer's states are on servers."""
        trainer = self._trainer
        return bool(getattr(trainer._store, "keeps_parameters", False) and trainer._wants_store)

    def check_keeps(self) -> None:
        """Raise `GemelError` if the workers are not the ones that save parameters and states."""
        if self._on_servers:
            raise GemelError(
                "Checkpoint: the parameters and the optimizer's states are on the servers; "
                "resume from the servers' --folder, with any number of workers, or let the "
                "workers update the parameters: Trainer(..., update_on_kvstore=False)"
            )

    def has_file(self, path: str) -> bool:
        """Whether there is a checkpoint. Raises `WorkersError` unless all workers have the same."""
        mine = NO_FILE
        if os.path.exists(path):
            with open(path, "rb") as file:
                mine = zlib.crc32(file.read())
        found = {rank: each for rank, each in enumerate(self.exchanged(mine)) if each is not None}
        first = min(found)
        for rank, other in found.items():
            if other != found[first]:
                raise WorkersError(
                    f"checkpoint {path}: worker {rank} has {_words(other)}, worker {first} "
                    f"{_words(found[first])}; all workers must resume from the same file, so "
                    "keep it where all of them can read it"
                )
        return mine != NO_FILE


def _words(check: int) -> str:
    return "no file" if check == NO_FILE else f"a file with CRC-32 {check:08x}"


def check_place(path: str, before: int, now: int, batch: int, data: Any) -> None:
    """Raise `ParameterFileError` if another number of workers cannot find its position in the
    data."""
    whole = isinstance(data, dict) and "whole batch" in data
    if before == now or not batch or whole:
        return
    raise ParameterFileError(
        f"checkpoint {path}: {before} workers wrote it in the middle of an epoch, after batch "
        f"{batch}, so {now} workers cannot know which examples are left; use a DataLoader with a "
        "gluon.data.WorkerBatchSampler, or resume from the end of an epoch; nothing was changed"
    )


def begin_streams(rank: int, first: Any) -> None:
    """Start the streams of a new worker, drawn from a text of worker 0's."""
    seed = zlib.crc32(f"{rank} {first}".encode())
    np.random.seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        import numpy

        numpy.random.seed(seed)


__all__ = ["Job", "begin_streams", "check_place"]
