"""Dynamic programs for `programs`, as one writes them for gemel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from benchmarks.programs_shared import (
    ACTIONS,
    HEADS,
    LAYERS,
    LENGTH,
    RATE,
    SIDE,
    UNITS,
    WIDTH,
    WORDS,
    Transitions,
    Tree,
    other_trees,
    same_trees,
    weight,
)
from gemel import autograd, gluon, np, npx
from gemel.gluon import nn

Call = Callable[[], float]


def _filled(net: nn.Block) -> nn.Block:
    """The network with the same weights as torch's."""
    net.initialize()
    for place, parameter in enumerate(net.collect_params().values()):
        parameter.set_data(np.array(weight(place, parameter.shape)))
    return net


def _dense(units: int, given: int, **settings: Any) -> nn.Dense:
    return nn.Dense(units, in_units=given, flatten=False, **settings)


class Recursive(nn.Block):
    """A binary tree LSTM over words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, UNITS)
        self.gates, self.forget = _dense(3 * UNITS, 2 * UNITS), _dense(2 * UNITS, 2 * UNITS)

    def forward(self, tree: Tree) -> Any:
        """The hidden state and memory of a tree."""
        if isinstance(tree, int):
            return self.words(np.array([tree])), np.zeros((1, UNITS))
        (left, left_memory), (right, right_memory) = self(tree[0]), self(tree[1])
        both = np.concatenate([left, right], axis=1)
        i, o, u = np.split(self.gates(both), 3, axis=1)
        f, g = np.split(npx.sigmoid(self.forget(both)), 2, axis=1)
        memory = npx.sigmoid(i) * np.tanh(u) + f * left_memory + g * right_memory
        return npx.sigmoid(o) * np.tanh(memory), memory


def _epochs(next_trees: Callable[[], list[Tree]]) -> Call:
    net = _filled(Recursive())
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": RATE})

    def call() -> float:
        for tree in next_trees():
            with autograd.record():
                loss = (net(tree)[0] ** 2).sum()
            loss.backward()
            trainer.step(1)
        return loss.item()  # type: ignore[no-any-return]

    return call


def trees() -> Call:
    """The same trees in each epoch."""
    return _epochs(same_trees())


def new_trees() -> Call:
    """Other trees in each epoch."""
    return _epochs(other_trees())


class Layer(nn.HybridBlock):
    """A layer of a transformer that keeps keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.mixed = nn.LayerNorm(in_channels=WIDTH), _dense(3 * WIDTH, WIDTH)
        self.out, self.between = _dense(WIDTH, WIDTH), nn.LayerNorm(in_channels=WIDTH)
        self.wide, self.narrow = _dense(4 * WIDTH, WIDTH), _dense(WIDTH, 4 * WIDTH)

    def forward(self, x: Any, kept: Any) -> Any:
        """The next states, and all keys and values."""
        batch, length, _ = x.shape
        parts = self.mixed(self.before(x)).reshape(batch, length, 3, HEADS, SIDE)
        query, key, value = parts.transpose(2, 0, 3, 1, 4)
        if kept is not None:
            key = np.concatenate([kept[0], key], axis=2)
            value = np.concatenate([kept[1], value], axis=2)
        weights = npx.softmax(query @ key.swapaxes(-1, -2) / math.sqrt(SIDE))
        x = x + self.out((weights @ value).swapaxes(1, 2).reshape(batch, length, WIDTH))
        return x + self.narrow(npx.gelu(self.wide(self.between(x)))), (key, value)


class Transformer(nn.HybridBlock):
    """A language model."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(2 * LENGTH, WIDTH)
        self.blocks = nn.HybridSequential()
        self.blocks.add(*[Layer() for _ in range(LAYERS)])
        self.head = _dense(WORDS, WIDTH)

    def forward(self, words: Any, places: Any, kept: Any) -> Any:
        """The scores of the next words, and what is kept."""
        x, found = self.words(words) + self.places(places), []
        for block, before in zip(self.blocks, kept or [None] * LAYERS, strict=True):
            x, after = block(x, before)
            found.append(after)
        return self.head(x), found


def generation() -> Call:
    """Words one after another, each the most likely one."""
    net = _filled(Transformer())
    net.hybridize()

    def call() -> float:
        scores, kept = net(np.arange(8).reshape(1, 8), np.arange(8), None)
        total = 0.0
        for place in range(8, 8 + LENGTH):
            word = scores[:, -1].argmax(axis=-1)
            total += word.item()
            scores, kept = net(word[:, None], np.array([place]), kept)
        return total

    return call


def learner() -> Call:
    """Q-learning: acting on one state, learning from 32."""
    net = nn.HybridSequential()
    net.add(_dense(UNITS, 4, activation="relu"), _dense(UNITS, UNITS, activation="relu"))
    net.add(_dense(ACTIONS, UNITS))
    _filled(net)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": RATE})
    drawn = Transitions()
    states = np.array(drawn.states)

    def call() -> float:
        total = 0.0
        for step in range(100):
            total += net(states[step : step + 1]).argmax(axis=1).item()
            chosen, actions = (np.array(each) for each in drawn.batch(step))
            wanted = net(states[chosen]).max(axis=1) * 0.99 + 1
            with autograd.record():
                loss = ((npx.pick(net(states[chosen]), actions) - wanted) ** 2).mean()
            loss.backward()
            trainer.step(1)
        return loss.item()  # type: ignore[no-any-return]

    return call


__all__ = ["generation", "learner", "new_trees", "trees"]
