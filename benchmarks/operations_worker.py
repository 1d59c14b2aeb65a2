"""Measures one library on all of operations.txt; prints one line of JSON.

`python -m benchmarks.operations_worker LIBRARY THREADS SECONDS PROCESSOR`
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).resolve().parent.parent)
# Prefer an installed gemel to the source tree, whose core may not be compiled.
sys.path[:] = [entry for entry in sys.path if entry not in ("", ROOT)] + [ROOT]

import numpy  # noqa: E402

from benchmarks.operations import Input, Operation, operations  # noqa: E402
from benchmarks.shapes import digest  # noqa: E402

#: The quantile that is reported: a quarter of the calls are at least as fast.
QUICK = 0.25
HEAD_SEED = 99


def drawn(given: Input, seed: int) -> Any:
    """The numbers of an input, the same for all libraries."""
    generator = numpy.random.default_rng(seed)
    if given.limit:
        return generator.integers(0, given.limit, given.shape)
    return numpy.asarray(generator.standard_normal(given.shape, "float32"))


def head_for(shape: tuple[int, ...]) -> Any:
    """The gradient with respect to a result of this shape, the same for all libraries."""
    return drawn(Input("head", tuple(shape), 0), HEAD_SEED)


class Gemel:
    """gemel: compiled calls that wait for their results."""

    def __init__(self, operation: Operation) -> None:
        import gemel
        from gemel import np, npx

        def conv(x: Any, w: Any, groups: int = 1, **how: int) -> Any:
            return npx.convolution(
                x, w, no_bias=True, num_filter=w.shape[0], num_group=groups, **how
            )

        names = ", ".join(each.name for each in operation.inputs)
        scope = {"np": np, "npx": npx, "conv": conv}
        self.call = gemel.compile(eval(f"lambda {names}: {operation.ways['gemel']}", scope))
        self.arrays = [np.array(drawn(e, i)) for i, e in enumerate(operation.inputs)]
        self.variables = [a for a in self.arrays if a.dtype == "float32"]

    def forward(self) -> Any:
        from gemel import autograd

        with autograd.train_mode():
            found = self.call(*self.arrays)
        found.wait_to_read()
        return found

    def prepare(self) -> None:
        from gemel import np

        for each in self.variables:
            each.attach_grad()
        self.head = np.array(head_for(self.forward().shape))

    def backward(self) -> Any:
        from gemel import autograd

        with autograd.record():
            found = self.call(*self.arrays)
        found.wait_to_read()  # a result that nothing reads would not be computed
        found.backward(self.head)
        for each in self.variables:
            each.grad.wait_to_read()
        return [each.grad for each in self.variables]


class Torch:
    """torch: eager calls."""

    def __init__(self, operation: Operation) -> None:
        import torch
        import torch.nn.functional

        names = ", ".join(each.name for each in operation.inputs)
        scope = {"torch": torch, "F": torch.nn.functional}
        self.torch = torch
        self.call = eval(f"lambda {names}: {operation.ways['torch']}", scope)
        self.arrays = [torch.from_numpy(drawn(e, i)) for i, e in enumerate(operation.inputs)]
        self.variables = [a for a in self.arrays if a.is_floating_point()]

    def forward(self) -> Any:
        with self.torch.no_grad():
            return self.call(*self.arrays)

    def prepare(self) -> None:
        for each in self.variables:
            each.requires_grad_(True)
        self.head = self.torch.from_numpy(head_for(self.forward().shape))

    def backward(self) -> Any:
        for each in self.variables:
            each.grad = None
        self.call(*self.arrays).backward(self.head)
        return [each.grad for each in self.variables]


def timed(call: Callable[[], Any], seconds: float, clock: Callable[[], float]) -> list[float]:
    """The time of a call in microseconds, at the quantile `QUICK`, and a digest of its results."""
    for _ in range(3):
        result = call()
    found: list[float] = []
    while sum(found) < seconds or len(found) < 5:
        begin = clock()
        result = call()
        found.append(clock() - begin)
    values = result if isinstance(result, list) else [result]
    quick = sorted(found)[int(QUICK * len(found))]
    return [quick * 1e6, *digest([numpy.asarray(each) for each in values])]


def main() -> None:
    """Measure what the arguments name."""
    name, threads, seconds, processor = sys.argv[1:]
    clock = time.process_time if int(processor) else time.perf_counter
    if name == "torch":
        import torch

        torch.set_num_threads(int(threads))
    kind: type[Gemel | Torch] = {"gemel": Gemel, "torch": Torch}[name]
    answer = {}
    for operation in operations():
        case = kind(operation)
        found = [timed(case.forward, float(seconds), clock)]
        if operation.with_gradient:
            case.prepare()
            found.append(timed(case.backward, float(seconds), clock))
        answer[operation.name] = found
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
