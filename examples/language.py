"""Shared by the examples on language models: a text as numbers, windows of it, and a baseline.

This module uses NumPy only, so that the same models in torch (`benchmarks/language_torch.py`) get
the same data in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy

TEXT = Path(__file__).parent / "data" / "computational_performance.txt"
#: Characters in a window, windows in a batch, batches in an epoch.
LENGTH, BATCH, STEPS = 64, 32, 50


class Text(NamedTuple):
    """A text as numbers below `count`, one per character; the last tenth is held out."""

    count: int
    train: numpy.ndarray
    held_out: numpy.ndarray


def load(path: Path | str = TEXT) -> Text:
    """Read a file and number its characters."""
    characters = Path(path).read_text(encoding="utf-8")
    symbols = {symbol: number for number, symbol in enumerate(sorted(set(characters)))}
    numbers = numpy.array([symbols[symbol] for symbol in characters], dtype="int32")
    end = len(numbers) * 9 // 10
    return Text(len(symbols), numbers[:end], numbers[end:])


class Windows:
    """Batches of windows at random places of a text, with the character that follows each one.

    Both arrays of a batch have the shape (BATCH, LENGTH). The places are drawn from NumPy's global
    random stream. So `numpy.random.seed` repeats them, and a checkpoint of `gluon.fit` includes the
    state of the stream.
    """

    def __init__(self, numbers: numpy.ndarray, steps: int = STEPS) -> None:
        self.numbers = numbers
        self.steps = steps

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[tuple[numpy.ndarray, numpy.ndarray]]:
        for _ in range(self.steps):
            places = numpy.random.randint(0, len(self.numbers) - LENGTH, BATCH)
            found = numpy.stack([self.numbers[place : place + LENGTH + 1] for place in places])
            yield found[:, :-1], found[:, 1:]


def held_out(text: Text) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Adjacent windows over the held-out text, with the character that follows each one."""
    count = (len(text.held_out) - 1) // LENGTH
    inputs = text.held_out[: count * LENGTH].reshape(count, LENGTH)
    return inputs, text.held_out[1 : count * LENGTH + 1].reshape(count, LENGTH)


def bigram_perplexity(text: Text, extra: float = 0.1) -> float:
    """The perplexity of a bigram model on the held-out text.

    It predicts each character from the one before, by how often the pair occurs in the training
    text. `extra` is added to the count of every pair.
    """
    counts = numpy.full((text.count, text.count), extra)
    numpy.add.at(counts, (text.train[:-1], text.train[1:]), 1)
    shares = counts / counts.sum(axis=1, keepdims=True)
    inputs, labels = held_out(text)
    return math.exp(-numpy.log(shares[inputs, labels]).mean())


class Rate:
    """A learning rate that rises during a tenth of the steps, then falls along a cosine."""

    def __init__(self, base: float, steps: int) -> None:
        self.base = base
        self.steps = steps

    def __call__(self, step: int) -> float:
        """The rate after `step` steps."""
        warm = max(self.steps // 10, 1)
        if step < warm:
            return self.base * (step + 1) / warm
        return self.base * 0.5 * (1 + math.cos(math.pi * min(step / self.steps, 1)))
