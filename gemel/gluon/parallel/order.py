"""The orders in which the stages of a pipeline do their tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Task(NamedTuple):
    """The forward or backward pass of one micro-batch."""

    forward: bool
    number: int


def gpipe(stage: int, stages: int, micro_batches: int) -> list[Task]:
    """All forward passes, then all backward passes in reverse order."""
    numbers = range(micro_batches)
    return [*(Task(True, i) for i in numbers), *(Task(False, i) for i in reversed(numbers))]


def one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> list[Task]:
    """One forward pass per later stage, then one forward and one backward pass in turn."""
    ahead = min(stages - 1 - stage, micro_batches)
    found = [Task(True, i) for i in range(ahead)]
    for number in range(micro_batches - ahead):
        found += [Task(True, ahead + number), Task(False, number)]
    return [*found, *(Task(False, i) for i in range(micro_batches - ahead, micro_batches))]


ORDERS: dict[str, Callable[[int, int, int], list[Task]]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
}


def kept(order: list[Task]) -> int:
    """The maximum number of micro-batches between their forward and their backward pass."""
    now = most = 0
    for task in order:
        now += 1 if task.forward else -1
        most = max(most, now)
    return most


def merged(orders: list[list[Task]]) -> Iterator[tuple[int, Task]]:
    """The tasks of all stages, each after those it depends on; stages take turns if possible."""
    done: set[tuple[int, Task]] = set()
    places = [0] * len(orders)
    while any(place < len(order) for place, order in zip(places, orders, strict=True)):
        for stage, order in enumerate(orders):
            task = order[places[stage]] if places[stage] < len(order) else None
            if task is None or not _needed(stage, task, len(orders)) <= done:
                continue
            places[stage] += 1
            done.add((stage, task))
            yield stage, task


def _needed(stage: int, task: Task, stages: int) -> set[tuple[int, Task]]:
    """The tasks of other stages that a task depends on."""
    other = stage - 1 if task.forward else stage + 1
    return {(other, task)} if 0 <= other < stages else set()


__all__ = ["ORDERS", "Task", "kept", "merged"]
