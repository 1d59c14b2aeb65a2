"""Splitting between the layers: each device has some of the layers, and processes the batch in
parts.

The engine copies activations forward and gradients backward, so that the devices work at the same
time on different parts of the batch, the micro-batches. The tasks of each device and their order
are decided beforehand. The engine keeps the order, and the program does not wait.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

from gemel import autograd
from gemel.errors import ArgumentError, unknown_name
from gemel.gluon.nn import HybridSequential, Sequential
from gemel.gluon.parallel.order import ORDERS, kept, merged
from gemel.gluon.parallel.split import Split, SplitError, apart, as_array, as_batch, joined, loss_of
from gemel.gluon.parallel.stages import balanced, costs, lies_apart, parameters_of, unset_like
from gemel.gluon.utils import split_data
from gemel.lists import as_list
from gemel.ranges import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gemel.device import Device
    from gemel.gluon.parallel.order import Task
    from gemel.np import ndarray


class Stage(NamedTuple):
    """Consecutive layers, and the device that has them."""

    block: Any
    device: Device


class Pipeline(Split):
    """Splits the layers of `net`, a (Hybrid)Sequential, into stages, one per device in order.

    A batch is processed in `micro_batches` parts that differ by at most one example (in fewer parts
    if there are fewer examples); their gradients are summed. `cut` decides where stages end:
    "parameters" and "flops" balance these over the devices; a list has the first layer of each
    stage except the first. Layers that are added or replaced later are divided at the next batch.

    `order` is "gpipe": all forwards, then all backwards in reverse; a stage keeps the activations
    of all micro-batches (Huang et al., GPipe: efficient training of giant neural networks using
    pipeline parallelism, NeurIPS 2019). Or "1f1b": one forward and one backward in turn; stage s of
    p keeps those of at most p - s micro-batches (Narayanan et al., PipeDream, SOSP 2019; with a
    flush after each batch, Memory-efficient pipeline-parallel DNN training, ICML 2021). Both leave
    each device idle for (p - 1) / (m + p - 1) of the time when all stages take equally long.

    `BatchNorm` uses the statistics of each micro-batch, and updates its running statistics once for
    each. `Dropout` draws a mask for each, in the order of issue: the same seed, stages, order and
    number of micro-batches give the same bits. Raises `SplitError` for a net that is not a
    sequence, more devices than layers, cuts that leave a stage without layers, or layers of two
    stages that share a parameter.
    """

    def __init__(
        self,
        net: Any,
        devices: Sequence[Device],
        micro_batches: int = 4,
        order: str = "1f1b",
        cut: str | Sequence[int] = "parameters",
    ) -> None:
        super().__init__(net, devices)
        self.net: Any = net
        if type(net).forward not in (Sequential.forward, HybridSequential.forward):
            raise SplitError(
                f"Pipeline: {type(net).__name__} is not a Sequential or HybridSequential; only "
                "these can be divided into stages"
            )
        try:
            self.micro_batches = counted("Pipeline", "micro_batches", micro_batches)
        except ArgumentError as error:
            raise SplitError(str(error)) from None
        if not isinstance(order, str) or order not in ORDERS:
            raise unknown_name("order of a pipeline", order, ORDERS)
        if len(net) < len(self.devices):
            raise SplitError(
                f"Pipeline: {len(net)} layers cannot form {len(self.devices)} stages; each "
                "device needs at least one layer"
            )
        self.order = order
        self._cut = cut
        self._stages: list[Stage] = []
        if isinstance(cut, str):
            if cut not in ("parameters", "flops"):
                raise unknown_name("cut of a pipeline", cut, ("parameters", "flops"))
        elif isinstance(cut, (list, tuple)) and all(hasattr(each, "__index__") for each in cut):
            self._cut = list(map(index, cut))
            self._divide([0, *self._cut, len(net)])
        else:
            raise SplitError(
                f'Pipeline: cut is {cut!r}; it must be "parameters", "flops", or a list with the '
                "position of the first layer of each stage but the first"
            )

    @property
    def stages(self) -> list[Stage]:
        """The stages; empty until the cuts are known (this may need the first batch)."""
        return list(self._stages)

    def in_flight(self, micro_batches: int | None = None) -> list[int]:
        """The maximum number of micro-batches whose activations each stage keeps. Raises
        `ArgumentError` for a number below 1."""
        count, stages = self.micro_batches, len(self.devices)
        if micro_batches is not None:
            count = counted("in_flight", "micro_batches", micro_batches)
        return [kept(ORDERS[self.order](stage, stages, count)) for stage in range(stages)]

    def hybridize(self, active: bool = True) -> None:
        """Compile each stage as one program."""
        self.net.hybridize(active)
        for stage in self._stages:
            stage.block.hybridize(active)

    # ---- stages

    def _divide(self, ends: list[int]) -> None:
        """Make stages from these boundaries, and move the parameters to their devices."""
        layers, pairs = list(self.net), list(zip(ends, ends[1:], strict=False))
        if len(pairs) != len(self.devices) or any(begin >= end for begin, end in pairs):
            raise SplitError(
                f"Pipeline: stages that begin at the layers {ends[:-1]} of {len(layers)} do not "
                f"give {len(self.devices)} stages with at least one layer each"
            )
        kind = HybridSequential if isinstance(self.net, HybridSequential) else Sequential
        stages = [
            Stage(kind(*layers[begin:end], prefix=f"{self.net.prefix}stage{place}_"), device)
            for place, ((begin, end), device) in enumerate(zip(pairs, self.devices, strict=True))
        ]
        owners: dict[int, Stage] = {}
        for stage in stages:
            for name, parameter in stage.block.collect_params().distinct():
                if owners.setdefault(id(parameter), stage) is not stage:
                    raise SplitError(
                        f"Pipeline: parameter {parameter.name} ({name}) belongs to layers of two "
                        "stages; put these layers into one stage (cut=[...])"
                    )
        self._stages = stages
        if getattr(self.net, "_active", False):
            for stage in stages:
                stage.block.hybridize()
        self._place()

    def _place(self) -> None:
        for stage in self._stages:
            stage.block.reset_device(stage.device)

    def _prepare(self, x: Any) -> None:
        """Make the stages and parameters, using the first batch if necessary."""
        parameters = [p for _, p in self.net.collect_params().distinct()]
        layers = list(self.net)
        if list(map(id, layers)) != [id(layer) for stage in self._stages for layer in stage.block]:
            self._stages = []  # layers were added, replaced or removed
        if self._stages and all(p._arrays for p in parameters):
            return
        known = all(p.is_shape_known for p in parameters)
        flops = [] if known and self._cut != "flops" else costs(layers, x)
        if not self._stages and not isinstance(self._cut, str):
            self._divide([0, *self._cut, len(layers)])
        elif not self._stages:
            sizes = flops if self._cut == "flops" else list(map(parameters_of, layers))
            self._divide([*balanced(sizes, len(self.devices)), len(layers)])
        for parameter in parameters:
            parameter.arrays()

    # ---- running

    def __call__(self, x: Any) -> ndarray:
        """The network's results, computed in micro-batches, on the last device."""
        parts = _parts(x, self.micro_batches)
        self._prepare(parts[0])
        found = []
        for part in parts:
            for block, device in self._stages:
                given = part if isinstance(part, (tuple, list)) else (part,)
                part = block(*(each.to_device(device) for each in given))
            found.append(part)
        whole: ndarray = joined(found, self.devices[-1])
        return whole

    def backward(self, x: Any, y: Any, loss: Callable[..., Any]) -> ndarray:
        """Compute the gradients of all micro-batches; returns the losses on the last device.

        See `Split.backward`. A gradient is written or accumulated, by its parameter's `grad_req`.
        """
        pair = as_batch(type(self).__name__, x, y)
        given, labels = (_parts(each, self.micro_batches) for each in pair)
        self._prepare(given[0])
        stages, order = len(self._stages), ORDERS[self.order]
        orders = [order(stage, stages, len(given)) for stage in range(stages)]
        batch = _Batch(self._stages, orders, given, labels, loss)
        with autograd.pause():
            try:
                for stage, task in merged(orders):
                    batch.issue(stage, task)
            finally:
                batch.end()
        found: ndarray = apart(batch.losses, self.devices[-1])
        return found


class _Batch:
    """A batch in progress. Entries by stage and micro-batch exist until they are used."""

    def __init__(
        self,
        stages: list[Stage],
        orders: list[list[Task]],
        given: list[Any],
        labels: list[Any],
        loss: Callable[..., Any],
    ) -> None:
        self.stages = stages
        self.given = given
        self.labels = labels
        self.loss = loss
        self.losses: list[Any] = [None] * len(given)
        self.inputs: dict[tuple[int, int], list[Any]] = {}
        self.outputs: dict[tuple[int, int], list[Any]] = {}
        #: The first elements of the arrays that the last two tasks of each stage wrote.
        self.marks: list[list[list[Any]]] = [[[], []] for _ in stages]
        #: The micro-batch whose gradients come first: it overwrites the old ones, the others add.
        self.first = [next(t.number for t in order if not t.forward) for order in orders]
        self.writing = [True] * len(stages)
        self.parameters = [
            [p for _, p in s.block.collect_params().distinct() if p.grad_req != "null"]
            for s in stages
        ]

    def issue(self, stage: int, task: Task) -> None:
        """Issue a task of a stage, to run after the previous task of the stage."""
        written = self._forward if task.forward else self._backward
        marks = [array.reshape(-1)[:1] for array in written(stage, task.number) if array.size]
        self.marks[stage] = [self.marks[stage][1], marks]

    def end(self) -> None:
        """Let the next backward overwrite the gradients again."""
        for stage in range(len(self.stages)):
            self._request(stage, True)

    def _arrived(self, stage: int, array: Any, from_host: bool = False) -> Any:
        """Copy an array to a stage's device, to be usable when the stage's last task has ended.

        The engine orders operations on the same memory. So elements that the last task wrote are
        copied to the memory after the array. Arrays from the host also wait for the task before
        that one before they are copied, because otherwise they would all be copied at once.
        """
        before, last = self.marks[stage]
        held, part = lies_apart(array, self.stages[stage].device, len(before) + len(last))
        early = before if from_host else []
        for place, mark in enumerate(early, array.size):
            held[place : place + 1] = mark
        array.copyto(part)
        for place, mark in enumerate(last, array.size + len(before)):
            held[place : place + 1] = mark
        return part

    def _forward(self, stage: int, number: int) -> list[Any]:
        source = [self.given[number]] if stage == 0 else self.outputs[stage - 1, number]
        inputs = [self._arrived(stage, array, stage == 0) for array in source]
        wanted = [array for array in inputs if stage and array.dtype.is_inexact]
        autograd.mark_variables(wanted, [unset_like(array) for array in wanted])
        self._request(stage, number == self.first[stage])
        block, device = self.stages[stage]
        last = stage == len(self.stages) - 1
        label = self.labels[number].to_device(device) if last else None
        with autograd.record():
            found = block(*inputs)
            if last:
                found = self.losses[number] = loss_of(self.loss, found, label)
        outputs = as_list(found)
        self.inputs[stage, number], self.outputs[stage, number] = inputs, outputs
        return outputs

    def _backward(self, stage: int, number: int) -> list[Any]:
        outputs = self.outputs.pop((stage, number))
        inputs = self.inputs[stage, number] if stage else self.inputs.pop((stage, number))
        following = self.inputs.pop((stage + 1, number), None)
        heads, grads = [], []
        for place, array in enumerate(outputs):
            g = None if following is None else following[place].grad
            if array._is_tracked and (following is None or g is not None):
                heads.append(array)
                grads.append(None if g is None else self._arrived(stage, g))
        written = [array.grad for array in inputs if array.grad is not None]
        before = [g.version for g in written]
        if heads:
            autograd.backward(heads, grads)
        for g, version in zip(written, before, strict=True):
            if g.version == version:  # the stage does not use this input
                g[...] = 0
        return written + [p._arrays[0].grad for p in self.parameters[stage][:1]]

    def _request(self, stage: int, writes: bool) -> None:
        """Set whether `backward` overwrites gradients, for the operations recorded from now on."""
        if self.writing[stage] == writes:
            return
        self.writing[stage] = writes
        arrays = [p._arrays[0] for p in self.parameters[stage] if p.grad_req == "write"]
        kept = [array.grad for array in arrays]
        autograd.mark_variables(arrays, kept, "write" if writes else "add")


def _parts(batch: Any, count: int) -> list[Any]:
    return split_data(as_array(batch), count, even_split=False)


__all__ = ["Pipeline", "Stage"]
