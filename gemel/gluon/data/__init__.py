"""Data: data sets, samplers, and the loader that makes batches of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gemel.elsewhere import module_elsewhere
from gemel.gluon.data.batchify import default_batchify_fn
from gemel.gluon.data.dataset import ArrayDataset, Dataset, RecordFileDataset, SimpleDataset
from gemel.gluon.data.loader import DataLoader
from gemel.gluon.data.sampler import (
    BatchSampler,
    FilterSampler,
    IntervalSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    WorkerBatchSampler,
)

if TYPE_CHECKING:
    from gemel.gluon.data import batchify
    from gemel.gluon.data.crew import WorkerError

__all__ = [
    "ArrayDataset",
    "BatchSampler",
    "DataLoader",
    "Dataset",
    "FilterSampler",
    "IntervalSampler",
    "RandomSampler",
    "RecordFileDataset",
    "Sampler",
    "SequentialSampler",
    "SimpleDataset",
    "WorkerBatchSampler",
    "WorkerError",
    "batchify",
    "default_batchify_fn",
    "vision",
]


def __getattr__(name: str) -> Any:
    if name == "vision":
        return import_module("gemel.gluon.data.vision")
    if name == "WorkerError":
        return globals().setdefault(name, import_module("gemel.gluon.data.crew").WorkerError)
    return module_elsewhere(__name__, name, __all__)
