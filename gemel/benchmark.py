"""Measuring time, as the book does: `Timer`, and `Benchmark` around a block of code."""

from __future__ import annotations

from time import perf_counter

from gemel.errors import ArgumentError


class Timer:
    """A stopwatch that keeps every time it measured, in seconds. It runs from the start."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.start()

    def start(self) -> None:
        """Start (again) from zero."""
        self._begun = perf_counter()

    def stop(self) -> float:
        """Keep the time since `start` and return it; the watch runs on."""
        self.times.append(perf_counter() - self._begun)
        return self.times[-1]

    def avg(self) -> float:
        """The mean of the kept times. Raises `ArgumentError` if there are none."""
        if not self.times:
            raise ArgumentError("Timer: no time has been kept, so there is no mean; call stop()")
        return sum(self.times) / len(self.times)

    def sum(self) -> float:
        """The sum of the kept times."""
        return sum(self.times)

    def cumsum(self) -> list[float]:
        """The running sums of the kept times."""
        total = 0.0
        sums = []
        for time in self.times:
            total += time
            sums.append(total)
        return sums


class Benchmark:
    """Print how long the block took: ``with Benchmark('Done'):`` prints ``Done: 0.0900 sec``.

    Work still queued when the block ends is not counted: wait for it inside, with
    `npx.waitall()` or an array's `wait_to_read()`.
    """

    def __init__(self, description: str = "Done") -> None:
        self.description = description

    def __enter__(self) -> Benchmark:
        self.timer = Timer()
        return self

    def __exit__(self, *error: object) -> None:
        print(f"{self.description}: {self.timer.stop():.4f} sec")
