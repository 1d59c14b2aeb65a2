"""Trainings of several workers: what they tell each other around an epoch's end and a checkpoint.

A job that goes on from a checkpoint may have another number of workers than the one that wrote it.
What belongs to the training is one: parameters, the optimizer's states and counts, the place in
the data (in batches of all workers), the history. What belongs to a worker, its random streams, is
kept for each: worker r goes on with those of worker r. A worker that was not there begins streams
of its own, drawn from worker 0's; those of workers that are no longer there end.
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

#: In place of a file's CRC-32.
NO_FILE = -1


class Job:
    """The workers a trainer trains with, as one of them sees it."""

    def __init__(self, trainer: Trainer) -> None:
        store = trainer._store
        speaks = hasattr(store, "gathered")
        self._trainer = trainer
        self._store = store if speaks else None
        self.workers: int = store.num_workers if speaks else 1
        self.rank: int = store.rank if speaks else 0

    @property
    def alone(self) -> bool:
        """Whether there is one worker only."""
        return self.workers == 1

    def said(self, value: Any) -> list[Any]:
        """What each worker says, by rank: values of JSON, but not None. Waits until all are here.

        It is None for one that was left out.
        """
        if self._store is None or self.alone:
            return [value]
        texts = self._store.gathered(json.dumps(value))
        return [json.loads(text) if text else None for text in texts]

    def mean(self, entry: dict[str, float], count: int) -> dict[str, float]:
        """The mean of all workers' entries, each as often as it has losses: the same for all."""
        if self.alone:
            return entry
        rows = [(int(row[0]), row[1]) for row in self.said([count, entry]) if row is not None]
        total = sum(count for count, _ in rows)
        return {name: sum(n * each[name] for n, each in rows) / total for name in entry}

    def check_keeps(self) -> None:
        """Raise `GemelError` where parameters and states are not the workers' to save."""
        trainer = self._trainer
        if getattr(trainer._store, "keeps_parameters", False) and trainer._wants_store:
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
        found = {rank: each for rank, each in enumerate(self.said(mine)) if each is not None}
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
    """Raise `ParameterFileError` where another number of workers cannot find its place."""
    whole = isinstance(data, dict) and "whole batch" in data
    if before == now or not batch or whole:
        return
    raise ParameterFileError(
        f"checkpoint {path}: {before} workers wrote it in the middle of an epoch, after batch "
        f"{batch}, so {now} workers cannot know which examples are left; use a DataLoader with a "
        "gluon.data.WorkerBatchSampler, or resume from the end of an epoch; nothing was changed"
    )


def begin_streams(rank: int, first: Any) -> None:
    """Begin the streams of a worker that was not there, drawn from worker 0's as text."""
    seed = zlib.crc32(f"{rank} {first}".encode())
    np.random.seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        import numpy

        numpy.random.seed(seed)


__all__ = ["Job", "begin_streams", "check_place"]
