"""Dynamic programs for `programs`, as one writes them for torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

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

Call = Callable[[], float]


def _filled(net: nn.Module) -> nn.Module:
    """The network with the same weights as gemel's."""
    for place, parameter in enumerate(net.parameters()):
        parameter.data.copy_(torch.from_numpy(weight(place, tuple(parameter.shape))))
    return net


class Recursive(nn.Module):
    """A binary tree LSTM over words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, UNITS)
        self.gates, self.forget = nn.Linear(2 * UNITS, 3 * UNITS), nn.Linear(2 * UNITS, 2 * UNITS)

    def forward(self, tree: Tree) -> Any:
        """The hidden state and memory of a tree."""
        if isinstance(tree, int):
            return self.words(torch.tensor([tree])), torch.zeros(1, UNITS)
        (left, left_memory), (right, right_memory) = self(tree[0]), self(tree[1])
        both = torch.cat([left, right], 1)
        i, o, u = self.gates(both).chunk(3, 1)
        f, g = torch.sigmoid(self.forget(both)).chunk(2, 1)
        memory = torch.sigmoid(i) * torch.tanh(u) + f * left_memory + g * right_memory
        return torch.sigmoid(o) * torch.tanh(memory), memory


def _epochs(next_trees: Callable[[], list[Tree]]) -> Call:
    net = _filled(Recursive())
    optimizer = torch.optim.SGD(net.parameters(), RATE)

    def call() -> float:
        for tree in next_trees():
            loss = (net(tree)[0] ** 2).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    return call


def trees() -> Call:
    """The same trees in each epoch."""
    return _epochs(same_trees())


def new_trees() -> Call:
    """Other trees in each epoch."""
    return _epochs(other_trees())


class Block(nn.Module):
    """A layer of a transformer that keeps keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.mixed = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.out, self.between = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any, kept: Any) -> Any:
        """The next states, and all keys and values."""
        batch, length, _ = x.shape
        parts = self.mixed(self.before(x)).reshape(batch, length, 3, HEADS, SIDE)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        if kept is not None:
            key, value = torch.cat([kept[0], key], 2), torch.cat([kept[1], value], 2)
        weights = ((query @ key.transpose(-1, -2)) / math.sqrt(SIDE)).softmax(-1)
        x = x + self.out((weights @ value).transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.narrow(F.gelu(self.wide(self.between(x)))), (key, value)


class Transformer(nn.Module):
    """A language model."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(2 * LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, WORDS)

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

    @torch.inference_mode()
    def call() -> float:
        scores, kept = net(torch.arange(8).reshape(1, 8), torch.arange(8), None)
        total = 0.0
        for place in range(8, 8 + LENGTH):
            word = scores[:, -1].argmax(-1)
            total += word.item()
            scores, kept = net(word[:, None], torch.tensor([place]), kept)
        return total

    return call


def learner() -> Call:
    """Q-learning: acting on one state, learning from 32."""
    net = _filled(
        nn.Sequential(
            nn.Linear(4, UNITS), nn.ReLU(), nn.Linear(UNITS, UNITS), nn.ReLU(),
            nn.Linear(UNITS, ACTIONS),
        )
    )  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), RATE)
    drawn = Transitions()
    states = torch.from_numpy(drawn.states)

    def call() -> float:
        total = 0.0
        for step in range(100):
            with torch.no_grad():
                total += net(states[step : step + 1]).argmax(1).item()
            chosen, actions = (torch.from_numpy(each) for each in drawn.batch(step))
            with torch.no_grad():
                wanted = net(states[chosen]).max(1)[0] * 0.99 + 1
            given = net(states[chosen]).gather(1, actions[:, None])[:, 0]
            loss = ((given - wanted) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    return call


__all__ = ["generation", "learner", "new_trees", "trees"]
