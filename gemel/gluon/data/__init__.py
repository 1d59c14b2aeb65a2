"""Data: data sets, samplers, and the loader that makes batches of them."""

from __future__ import annotations

from gemel.gluon.data.dataset import ArrayDataset, Dataset, SimpleDataset
from gemel.gluon.data.loader import DataLoader, default_batchify_fn
from gemel.gluon.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

__all__ = [
    "ArrayDataset",
    "BatchSampler",
    "DataLoader",
    "Dataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SimpleDataset",
    "default_batchify_fn",
]
