"""Pictures: data sets and transforms."""

from __future__ import annotations

from gemel.gluon.data.vision import datasets, transforms
from gemel.gluon.data.vision.datasets import (
    CIFAR10,
    CIFAR100,
    MNIST,
    FashionMNIST,
    ImageFolderDataset,
    ImageListDataset,
    ImageRecordDataset,
    MNIST5k,
)

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "FashionMNIST",
    "ImageFolderDataset",
    "ImageListDataset",
    "ImageRecordDataset",
    "MNIST5k",
    "datasets",
    "transforms",
]
