"""What a contender offers: calls to issue, results to wait for, numbers to check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy

from benchmarks.shapes import digest


class Case:
    """A prepared workload. The worker times `issue` and `finish`; the rest is not timed."""

    # How many calls (or batches) one run makes; the worker may raise it for quick ones.
    calls = 1
    adjustable = False

    def reset(self) -> None:
        """Restore the initial state of the case before a timed run."""

    def issue(self) -> Any:
        """Start all calls. Returns their results, which may not be ready."""
        raise NotImplementedError

    def finish(self, pending: Any) -> Any:
        """Wait until every result is ready."""
        return pending

    def values(self, results: Any) -> list[float]:
        """Numbers computed from all results, the same for every contender that is right."""
        raise NotImplementedError


class Calls(Case):
    """Calls `function` on the inputs in turn. Every result is kept, waited for and checked."""

    adjustable = True

    def __init__(
        self,
        function: Callable[[Any], Any],
        inputs: Sequence[Any],
        to_numpy: Callable[[Any], numpy.ndarray],
        wait: Callable[[Any], Any] | None = None,
    ) -> None:
        self.function = function
        self.inputs = list(inputs)
        self.to_numpy = to_numpy
        self.wait = wait
        self.calls = len(self.inputs)

    def issue(self) -> Any:
        function = self.function
        rounds = self.calls // len(self.inputs)
        inputs = self.inputs
        return [function(x) for _ in range(rounds) for x in inputs]

    def finish(self, pending: Any) -> Any:
        if self.wait is not None:
            self.wait(pending)
        return pending

    def values(self, results: Any) -> list[float]:
        if len(results) != self.calls:
            raise AssertionError(f"{len(results)} results of {self.calls} calls")
        arrays = numpy.stack([self.to_numpy(result) for result in results]).astype(numpy.float64)
        by_input = arrays.reshape(-1, len(self.inputs), arrays[0].size)
        return [float(value) for value in by_input.mean(axis=0).ravel()]


class Added(Calls):
    """A fixed number of `x + 1`, without a function call around them."""

    adjustable = False

    def __init__(
        self,
        x: Any,
        count: int,
        to_numpy: Callable[[Any], numpy.ndarray],
        wait: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(lambda x: x + 1, [x], to_numpy, wait)
        self.calls = count

    def issue(self) -> Any:
        x = self.inputs[0]
        return [x + 1 for _ in range(self.calls)]


class Products(Case):
    """Ten times: draw a square matrix of normal numbers, multiply it with itself."""

    def __init__(
        self,
        step: Callable[[], Any],
        count: int,
        to_numpy: Callable[[Any], numpy.ndarray],
        wait: Callable[[Any], Any] | None = None,
    ) -> None:
        self.step = step
        self.calls = count
        self.to_numpy = to_numpy
        self.wait = wait

    def issue(self) -> Any:
        step = self.step
        return [step() for _ in range(self.calls)]

    def finish(self, pending: Any) -> Any:
        if self.wait is not None:
            self.wait(pending)
        return pending

    def values(self, results: Any) -> list[float]:
        """Mean and deviation in units of sqrt(n): near 0 and 1 with any random generator."""
        arrays = [self.to_numpy(result).astype(numpy.float64) for result in results]
        scale = arrays[0].shape[0] ** 0.5
        means = [float(array.mean()) / scale for array in arrays]
        deviations = [float(array.std()) / scale for array in arrays]
        if len({round(value, 12) for value in deviations}) != len(deviations):
            raise AssertionError("the same numbers were drawn twice")
        return [sum(means) / len(means), sum(deviations) / len(deviations)]


class Training(Case):
    """A training loop over fixed batches. `step` returns the loss without waiting for it."""

    def __init__(
        self,
        batches: Sequence[tuple[Any, Any]],
        count: int,
        reset: Callable[[], None],
        step: Callable[[Any, Any], Any],
        to_numpy: Callable[[Any], numpy.ndarray],
        wait: Callable[[Any], Any] | None = None,
    ) -> None:
        self.batches = list(batches)
        self.calls = count
        self._reset = reset
        self.step = step
        self.to_numpy = to_numpy
        self.wait = wait

    def reset(self) -> None:
        self._reset()

    def issue(self) -> Any:
        step = self.step
        batches = self.batches
        return [step(*batches[i % len(batches)]) for i in range(self.calls)]

    def finish(self, pending: Any) -> Any:
        if self.wait is not None:
            self.wait(pending)
        return pending

    def values(self, results: Any) -> list[float]:
        return [float(self.to_numpy(result).astype(numpy.float64).mean()) for result in results]


class Single(Case):
    """One call that waits for its results. Its argument is what `before` returns.

    `before` runs before each call, and its time is not part of the call's.
    """

    def __init__(
        self,
        call: Callable[[Any], Any],
        to_numpy: Callable[[Any], list[numpy.ndarray]],
        before: Callable[[], Any] = lambda: None,
    ) -> None:
        self.call = call
        self.to_numpy = to_numpy
        self.before = before
        self.given: Any = None

    def reset(self) -> None:
        self.given = None  # free the memory before more is allocated
        self.given = self.before()

    def issue(self) -> Any:
        return self.call(self.given)

    def values(self, results: Any) -> list[float]:
        return digest(self.to_numpy(results))
