"""What dynamic programs of `programs` have in common: sizes, first weights, trees, transitions."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from math import prod
from typing import Any

import numpy

WORDS, UNITS, ACTIONS, RATE = 100, 64, 2, 1e-3
WIDTH, HEADS, LAYERS, LENGTH = 128, 4, 4, 64
SIDE = WIDTH // HEADS

#: A word, or two trees.
Tree = Any


def weight(place: int, shape: tuple[int, ...]) -> Any:
    """The first value of the parameter at this place, the same for all libraries."""
    values = numpy.random.default_rng(place).standard_normal(shape, "float32")
    return values / numpy.float32(prod(shape[1:]) ** 0.5)


def forest(seed: int) -> list[Tree]:
    """Twenty trees of 4 to 11 words."""
    draw = random.Random(seed)
    return [_grown(draw, draw.randrange(4, 12)) for _ in range(20)]


def same_trees() -> Callable[[], list[Tree]]:
    """What gives the same trees in each epoch."""
    known = forest(0)
    return lambda: known


def other_trees() -> Callable[[], list[Tree]]:
    """What gives other trees in each epoch."""
    seeds = count(1)
    return lambda: forest(next(seeds))


def _grown(draw: random.Random, words: int) -> Tree:
    if words == 1:
        return draw.randrange(WORDS)
    left = draw.randrange(1, words)
    return _grown(draw, left), _grown(draw, words - left)


class Transitions:
    """States of an environment, and the batches that a learner draws from them."""

    def __init__(self) -> None:
        self._draw = numpy.random.default_rng(0)
        self.states = self._draw.standard_normal((1000, 4), "float32")

    def batch(self, step: int) -> tuple[Any, Any]:
        """32 positions of states, and what was done there."""
        draw = numpy.random.default_rng(step)
        return draw.integers(0, 1000, 32), draw.integers(0, ACTIONS, 32)


__all__ = ["Transitions", "Tree", "other_trees", "same_trees", "weight"]
