"""Random programs with views and in-place writes, compared bit for bit with a serial replay.

Several threads issue actions, which are logged in the order of issue. The replay runs the log on
NumPy arrays, one action after another.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest

from gemel import _core, cpu, np, npx

SMALL, LARGE = 6, 160
SLOTS = 8


class World:
    """Arrays in slots, some of them views of others, and actions on them; `xp` is the namespace."""

    def __init__(self, xp: Any, side: int) -> None:
        self.xp = xp
        self.side = side
        self.slots = [self.fresh(seed) for seed in range(SLOTS)]

    def fresh(self, seed: int) -> Any:
        values = numpy.random.default_rng(seed).integers(-9, 9, (self.side, self.side))
        return values if self.xp is numpy else np.array(values)

    # Every action takes slot numbers and a number; all keep the shape (side, side).

    def replace(self, a: int, b: int, n: int) -> None:
        self.slots[a] = self.fresh(n)

    def compute(self, a: int, b: int, n: int) -> None:
        self.slots[a] = self.slots[a] * 3 + self.slots[b] - n

    def alias(self, a: int, b: int, n: int) -> None:
        x = self.slots[b]
        self.slots[a] = (x.T, x[::-1], x[:, ::-1], x)[n % 4]

    def in_place(self, a: int, b: int, n: int) -> None:
        x = self.slots[a]
        x += self.slots[b]

    def shifted(self, a: int, b: int, n: int) -> None:
        x = self.slots[a]
        if n % 3 == 0:
            x[1:] += x[:-1]
        elif n % 3 == 1:
            x[:, :-1] = x[:, 1:]
        else:
            x[::2] = self.slots[b][1::2]

    def transposed(self, a: int, b: int, n: int) -> None:
        x = self.slots[a]
        x += x.T

    def product(self, a: int, b: int, n: int) -> None:
        self.slots[a] = self.slots[a] @ self.slots[b] % 1000

    def scatter(self, a: int, b: int, n: int) -> None:
        rows = numpy.array([n % self.side, (n * 7 + 1) % self.side])
        if rows[0] == rows[1]:
            return
        index = rows if self.xp is numpy else np.array(rows)
        self.slots[a][index] = self.slots[b][:2]

    def callback(self, a: int, b: int, n: int) -> None:
        x, y = self.slots[a], self.slots[b]
        if self.xp is numpy:
            self.slots[a] = x - y * n
        else:
            spec = ((self.side, self.side), "int64")
            self.slots[a] = npx.callback(lambda v, w: v - w * n, x, y, outputs=spec)

    def travel(self, a: int, b: int, n: int) -> None:
        if self.xp is numpy:
            self.slots[a] = self.slots[b].copy()
        else:
            self.slots[a] = self.slots[b].copyto(cpu(1)).copyto(cpu(0))

    def look(self, a: int, b: int, n: int) -> None:
        self.slots[a][n % self.side, n % self.side].item()


ACTIONS = ["compute", "in_place", "shifted", "alias"] * 3 + [
    "replace",
    "transposed",
    "product",
    "scatter",
    "callback",
    "travel",
    "look",
]


def run(seed: int, side: int, threads: int, steps: int) -> tuple[World, list[tuple[Any, ...]]]:
    """A random program on the engine, and the log of its actions."""
    world, log, lock = World(np, side), [], threading.Lock()

    def work(own: random.Random) -> None:
        for _ in range(steps):
            action = own.choice(ACTIONS), own.randrange(SLOTS), own.randrange(SLOTS)
            number = own.randrange(100)
            with lock:
                log.append((*action, number))
                getattr(world, action[0])(action[1], action[2], number)

    started = [
        threading.Thread(target=work, args=(random.Random(seed * 100 + t),)) for t in range(threads)
    ]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(100)
    return world, log


def check(seed: int, side: int, threads: int, steps: int) -> None:
    """Run a program and its replay; they must agree in every bit."""
    world, log = run(seed, side, threads, steps)
    replay = World(numpy, side)
    for action, a, b, number in log:
        getattr(replay, action)(a, b, number)
    for slot, (found, expected) in enumerate(zip(world.slots, replay.slots, strict=True)):
        assert (found.asnumpy() == expected).all(), f"seed {seed}: slot {slot} differs"


@pytest.fixture(autouse=True)
def restored():
    yield
    _core.configure(workers=-1, queue_operations=1024, serial=False)


SETTINGS: dict[str, Callable[[], None]] = {
    "no worker": lambda: _core.configure(workers=0),
    "one worker": lambda: _core.configure(workers=1),
    "two workers": lambda: _core.configure(workers=2),
    "a queue of one": lambda: _core.configure(workers=2, queue_operations=1),
    "serial": lambda: _core.configure(serial=True),
}
#: How many programs of each kind.
PROGRAMS = int(os.environ.get("GEMEL_TEST_PROGRAMS", "6"))


# engine.md 1, 2
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("setting", SETTINGS)
def test_programs_equal_their_replay(setting, threads):
    SETTINGS[setting]()
    for seed in range(PROGRAMS):
        check(seed, SMALL, threads, 60)
        check(seed + 1000, LARGE, threads, 40)
