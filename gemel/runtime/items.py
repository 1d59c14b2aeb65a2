"""The items of a lowering converted to those of an image: kernels get numbers, places addresses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gemel.codegen.language.launch import Launch, Place
from gemel.codegen.language.program import Program
from gemel.dtype import float64
from gemel.runtime.backend import Backend
from gemel.runtime.cache import kernel_for, kernel_name, object_for
from gemel.runtime.concurrent import Branch, Concurrent
from gemel.runtime.image import Address, Branching, Image, Item, Loop, Parallel, Step
from gemel.runtime.rounds import Repeat
from gemel.runtime.sites import label_of, located


class Items:
    """Converts the items of one image. Kernels may be compiled meanwhile; `load` fetches them."""

    def __init__(self, image: Image, backend: Backend) -> None:
        self.image, self.backend = image, backend
        self._windows = 0
        self._kernels: dict[str, int] = {}  # by the text of their programs
        self._loads: list[Callable[[], Any]] = []

    def of(self, items: list[Any]) -> list[Item]:
        """These items of a lowering as items of the image."""
        return [self._item(item) for item in items]

    def _item(self, item: Any) -> Item:
        if isinstance(item, Concurrent):
            return Parallel([self.of(part) for part in item.parts])
        if isinstance(item, Branch):
            return Branching(_address(item.place), self.of(item.then), self.of(item.otherwise))
        if isinstance(item, Repeat):
            self._windows = item.numbered(self._windows)
            windows = [(_address(w.of, w.offset), w.step, item.period_of(w)) for w in item.windows]
            items, after = self.of(item.items), self.of(item.after)
            condition = None if item.condition is None else _address(item.condition)
            return Loop(item.length, windows, items, condition, after)
        return self._step(item)

    def _step(self, item: Launch) -> Step:
        """A launch as a step of the image, with constant numbers among the integers."""
        integers = list(item.integers)
        scalars = []
        for position, number in item.scalars:
            if number.source[0] == "constant":
                integers[position] = number.bits
            else:
                scalars.append((position, number.run_time_source, number.passed is float64))
        return Step(
            self._kernel(item.program),
            [_address(place) for place in item.places],
            integers,
            item.extent,
            item.chunk,
            scalars,
            item.nanoseconds,
            located(item.failure, item.node),
            label_of(item.node),
        )

    def _kernel(self, program: Program) -> int:
        """The number of a program's kernel in the image."""
        number = self._kernels.get(program.text)
        if number is None:
            meant = self.backend.scheduled(program), self.backend
            needed = self.backend.needs(program)
            if needed is not self.backend.target:  # it has one more feature
                self.image.target = needed.text
            known = kernel_name(*meant), None, partial(object_for, *meant)
            number = self._kernels[program.text] = self.image.kernel(*known)
            if number == len(self._loads):
                self._loads.append(partial(kernel_for, *meant))
        return number

    def load(self) -> None:
        """Put the loaded kernels into the image; those that are not known yet are compiled."""
        self.image.kernels[:] = [load() for load in self._loads]


def _address(place: Any, offset: int = 0) -> Address:
    buffer = place.buffer if isinstance(place, Place) else place
    within = place.layout.offset * place.dtype.itemsize if isinstance(place, Place) else 0
    return buffer.space, buffer.index, offset + within


__all__ = ["Items"]
