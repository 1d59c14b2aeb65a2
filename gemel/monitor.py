"""Monitor: statistics of the results of layers and operations, in MXNet 1's form."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from typing import Any

from gemel import autograd, np
from gemel.errors import ArgumentError
from gemel.lists import as_list
from gemel.ranges import FlagsChecked
from gemel.tracing.manners import are_nd


def size_of_elements(x: Any) -> Any:
    """The root of the mean square of an array's elements: MXNet's ``norm(x) / sqrt(x.size)``."""
    return np.linalg.norm(x.astype("float32")) / math.sqrt(max(x.size, 1))


class Monitor(FlagsChecked):
    r"""Statistics of arrays whose names match `pattern`, in each `interval`-th batch.

    Call ``tic()`` before a batch and ``toc()`` after it. For a block, the results of its layers are
    measured and, in `toc`, its parameters. For an executor, the outputs of all operations are
    measured and, in `toc`, arguments and states. With `monitor_all` the inputs of layers or
    operations are measured too. `stat_func` maps an array to an array or a list of arrays (by
    default `size_of_elements`); it gets NDArrays if the block is called on NDArrays, also for
    parameters. The results of `toc` are in the order of computation, or by name if `sort`. In other
    batches nothing is measured, and hybridized blocks run as one program.

    >>> from gemel import gluon
    >>> net = gluon.nn.Dense(2, in_units=2, prefix="dense_")
    >>> net.initialize("ones")
    >>> monitor = Monitor(1, pattern=".*output")
    >>> monitor.install(net)
    >>> monitor.tic()
    >>> _ = net(np.ones((1, 2)))
    >>> monitor.toc()
    [(1, 'dense_output', '2.0\t')]
    """

    def __init__(
        self,
        interval: int,
        stat_func: Callable[[Any], Any] | None = None,
        pattern: str = ".*",
        sort: bool = False,
        monitor_all: bool = False,
    ) -> None:
        if isinstance(interval, bool) or not isinstance(interval, int) or interval < 1:
            raise ArgumentError(
                f"Monitor: interval is {interval!r}; give a number of batches, at least 1"
            )
        if not (stat_func is None or callable(stat_func)):
            raise ArgumentError(f"Monitor: stat_func is {stat_func!r}; give a function of an array")
        self.interval = interval
        self.stat_func = size_of_elements if stat_func is None else stat_func
        try:
            self.re_prog = re.compile(pattern)
        except (TypeError, re.error) as error:
            raise ArgumentError(
                f"Monitor: pattern is {pattern!r}, which is no regular expression: {error}"
            ) from None
        self.sort = sort
        self.monitor_all = monitor_all
        self.activated = False
        #: The number of batches so far; the measurements in this one: batch, name, statistic.
        self.step = 0
        self.queue: list[tuple[int, str, Any]] = []
        self._installed: list[Any] = []
        #: For each installed block, by id, whether it was called on NDArrays.
        self._of_nd: dict[int, bool] = {}
        self._handles: list[Any] = []

    def install(self, block: Any) -> None:
        """Add a block with everything inside it, or an executor. Raises `ArgumentError`."""
        if not (hasattr(block, "set_monitor_callback") or hasattr(block, "collect_params")):
            raise ArgumentError(
                f"Monitor: {type(block).__name__} is neither a Block nor an Executor (from "
                "Symbol.bind)"
            )
        self._installed.append(block)

    def tic(self) -> None:
        """Start a batch, which is measured if it is an `interval`-th one."""
        if self.step % self.interval == 0:
            self.queue, self.activated = [], True
            self._release()
            for each in self._installed:
                self._watch(each)
        self.step += 1

    def toc(self) -> list[tuple[int, str, str]]:
        """End a batch and return, for each array, the batch number, its name and its statistic as
        text.

        Waits for the arrays. Returns an empty list for batches that are not measured. Raises
        `ArgumentError` if `stat_func` does not return arrays.
        """
        if not self.activated:
            return []
        try:
            for each in self._installed:
                for name, array in _held(each):
                    self._measure(name, array, self._of_nd.get(id(each), False))
        finally:  # an error of stat_func also ends the batch
            self._release()
            self.activated = False
        queue, self.queue = self.queue, []
        if self.sort:
            queue.sort(key=lambda measured: measured[1])
        return [(step, name, self._text(name, found)) for step, name, found in queue]

    def toc_print(self) -> None:
        """Log the results of `toc`, one line per array."""
        for step, name, text in self.toc():
            logging.info("Batch: %7d %-30s %s", step, name, text)

    def _watch(self, each: Any) -> None:
        """Measure the results of a block and of all blocks inside, or of an executor."""
        if hasattr(each, "set_monitor_callback"):
            each.set_monitor_callback(self._measure, self.monitor_all)
            return
        inside: dict[int, Any] = {}
        each.apply(lambda block: inside.setdefault(id(block), block))

        def look(block: Any, given: Any) -> None:
            self._of_nd[id(each)] = are_nd(given)

        def measure(block: Any, given: Any, found: Any) -> None:
            of_nd = self._of_nd.get(id(each), False)  # inner layers compute with plain arrays
            for what, values in (("input", given), ("output", found)):
                if what == "output" or self.monitor_all:
                    arrays = _arrays(values)
                    for number, array in enumerate(arrays):
                        place = number if len(arrays) > 1 else ""
                        self._measure(f"{block.name}_{what}{place}", array, of_nd)

        self._handles.append(each.register_forward_pre_hook(look))
        self._handles += [block.register_forward_hook(measure) for block in inside.values()]

    def _release(self) -> None:
        for handle in self._handles:
            handle.detach()
        self._handles = []
        for each in self._installed:
            if hasattr(each, "set_monitor_callback"):
                each.set_monitor_callback(None)

    def _measure(self, name: str, array: Any, of_nd: bool = False) -> None:
        if self.activated and self.re_prog.match(name):
            array = array.as_nd_ndarray() if of_nd else array
            with autograd.pause(train_mode=autograd.is_training()):
                self.queue.append((self.step, name, self.stat_func(array)))

    def _text(self, name: str, found: Any) -> str:
        """Format numbers and arrays as text, with a tab after each."""
        text = ""
        for each in as_list(found):
            if not isinstance(each, np.ndarray):
                raise ArgumentError(
                    f"Monitor: stat_func returned a {type(each).__name__} for {name}; it must "
                    "return an array or a list of arrays"
                )
            text += f"{each.item() if each.size == 1 else each.asnumpy()}\t"
        return text


def _arrays(values: Any) -> list[Any]:
    """The arrays in nested lists and dictionaries."""
    if isinstance(values, np.ndarray):
        return [values]
    if isinstance(values, dict):
        values = list(values.values())
    if not isinstance(values, (list, tuple)):
        return []
    return [array for each in values for array in _arrays(each)]


def _held(each: Any) -> list[tuple[str, Any]]:
    """Names and arrays of a block's parameters, or an executor's arguments and states."""
    if hasattr(each, "set_monitor_callback"):
        return [*each.arg_dict.items(), *each.aux_dict.items()]
    parameters = {id(p): p for p in each.collect_params().values()}.values()
    return [(p.name, p.data()) for p in parameters if p._arrays]


__all__ = ["Monitor", "size_of_elements"]
