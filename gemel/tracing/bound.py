"""A program bound to the sizes of its arguments: its plans, and their calls on the tape."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from gemel import _core
from gemel.errors import GradientError
from gemel.ir.graph import Entry, inline, placeholder
from gemel.ir.interpret import spec_of
from gemel.ir.trace import Trace
from gemel.passes import gradient
from gemel.passes.bind import concrete_graph
from gemel.passes.gradient import with_heads
from gemel.process.urgent import urgent
from gemel.runtime.backend import Backend, backend_for
from gemel.runtime.image import Image
from gemel.runtime.relay import on_current_device
from gemel.tape import recording as tape
from gemel.tape.kinds import Kind, Port, without_updates
from gemel.tracing.manners import made_nd
from gemel.tracing.nested import unflatten
from gemel.tracing.programs import Arguments, Program


class Bound:
    """A program for arguments of known sizes."""

    def __init__(self, program: Program, values: dict[str, int]) -> None:
        self.program = program
        self.values = values
        self.plan: Any = None
        self.writing: Any = None
        self.training: dict[Any, BoundHalves] = {}
        self.structure = program.structure

    def inference(self, leaves: Sequence[Any], own: Sequence[Any] | None = None) -> Any:
        """The plan that computes the results, for arrays like these.

        `own` are the program's own arrays (`Program.own`), if the caller knows them already.
        """
        if self.plan is None:
            arrays = (*leaves, *(self.program.own(leaves) if own is None else own))
            with urgent:
                self.plan = self.program.inference().find(self.values, arrays)
        return self.plan

    def in_place(self, leaves: Sequence[Any], own: Sequence[Any]) -> Any:
        """The plan that overwrites arguments in place, for arrays like these, if there is one."""
        if self.writing is None:
            plans = self.program.in_place()
            with urgent:
                self.writing = plans is not None and plans.find(self.values, (*leaves, *own))
        if not self.writing:
            return None
        dense = all(leaves[position]._is_contiguous for position in self.program.written)
        return self.writing if dense else None

    def image(self, backend: Backend) -> Image:
        """The image of the inference plan, lowered again, with closed-over arrays inside."""
        return self.program.embedded().image(self.values, backend)

    def source(self, arguments: Arguments) -> str:
        """The kernels of the inference plan as text. Raises `Unfit`."""
        arrays = (*arguments.arrays, *self.program.own(arguments.arrays))
        return self.program.inference().source(self.values, backend_for(arrays))

    def summary(self, arguments: Arguments) -> str:
        """The number of the plan's kernels, and its memory besides the results. Raises `Unfit`."""
        leaves = arguments.arrays
        arrays = (*leaves, *self.program.own(leaves))
        _, workspace = self.inference(leaves).bound(*arrays)
        count = self.image(backend_for(arrays)).count()
        several = "" if count == 1 else "s"
        return f"{count} kernel{several}, {workspace} bytes of workspace"

    def run(self, arguments: Arguments, own: tuple[Any, ...]) -> Any:
        """The function's results on these arguments and the program's own arrays."""
        arrays = (*arguments.arrays, *own)
        written = self.program.written
        self.program.check_apart(arrays)
        self.program.inner_gradients.check(self.program.name, arrays)
        wanted = self._wanted(arrays) if _core.recording() else ()
        plan = self.in_place(arguments.arrays, own) if written and not _core.recording() else None
        if True in wanted:
            results = self._recorded(arrays, arguments.numbers, wanted)
        elif plan is not None:
            results, written = plan(*arrays, *arguments.numbers), []
        elif arrays:
            # The first time, what can wait is done while the plan runs.
            with nullcontext() if self.plan else urgent:
                results = self.inference(arguments.arrays, own)(*arrays, *arguments.numbers)
        else:
            results = on_current_device(self.inference((), ()), *arguments.numbers)
        for position, value in zip(written, results[len(results) - len(written) :], strict=True):
            tape.overwrite(arrays[position], value)
        if self.program.is_nd:
            results = made_nd(results)
        return results[0] if self.structure is None else unflatten(self.structure, iter(results))

    def _wanted(self, arrays: tuple[Any, ...]) -> tuple[bool, ...]:
        """For each array, whether its gradient is wanted: it is tracked and a result reads it."""
        pairs = zip(self.program.reached, arrays, strict=False)
        return tuple([bool(reached and array._is_tracked) for reached, array in pairs])

    def _recorded(
        self, arrays: tuple[Any, ...], numbers: list[float], wanted: tuple[bool, ...]
    ) -> tuple[Any, ...]:
        halves = self.training.get(wanted)
        if halves is None:
            with urgent:
                halves = BoundHalves(self.program, wanted, self.values, arrays)
            self.training[wanted] = halves
        return halves.run((*arrays, *numbers))


class BoundHalves(Kind):
    """The forward and backward half of a program for known sizes, as a kind of recorded call."""

    compiled = True

    def __init__(
        self,
        program: Program,
        wanted: tuple[bool, ...],
        values: dict[str, int],
        arrays: tuple[Any, ...],
    ) -> None:
        wanted = (*wanted, *[False] * len(program.numbers))
        halves = program.split(wanted)
        with Trace():
            self.plan = halves.plans.find(values, arrays)
            self.backward = concrete_graph(halves.backward, values)
            self.forward = concrete_graph(program.graph, values)
        outputs = tuple(entry.spec for entry in self.forward.outputs)
        super().__init__(program.name, tuple(e.spec for e in self.forward.inputs), outputs)
        self.wanted = wanted
        self.numbers = len(program.numbers)
        self.reached = program.reached if len(outputs) > 1 else None
        bits = 0
        for reached, want in zip(program.reached, wanted, strict=False):
            bits |= reached if want else 0
        #: The indices of floating outputs that depend on an input whose gradient is wanted.
        self.tracked_outputs = {
            i for i, floating in enumerate(self.floating) if floating and bits >> i & 1
        }
        results = enumerate((*halves.outputs, *halves.kept))
        ports: dict[Entry, Port] = {entry: ("output", i) for i, entry in results}
        ports |= {entry: ("input", i) for i, entry in enumerate(program.graph.inputs)}
        #: Where each saved value comes from: an input of the call, or a result of the plan.
        self.saved: list[Port] = [ports[entry] for entry in halves.saved]

    def stand_ins(self, create_graph: bool) -> dict[Port, Entry]:
        """Placeholders for what was saved; with `create_graph` for all inputs and outputs."""
        if create_graph:
            return super().stand_ins(create_graph)
        return {
            port: placeholder(entry.spec)
            for port, entry in zip(self.saved, self.backward.inputs, strict=False)
        }

    def gradients(
        self, gs: tuple[Entry | None, ...], given: dict[Port, Entry], create_graph: bool
    ) -> Sequence[Entry | None]:
        """The gradients by the backward half; with `create_graph` the whole program's gradient."""
        if create_graph:
            return self._gradients_again(gs, given)
        saved = [given[port] for port in self.saved]
        heads = [g for g, floating in zip(gs, self.floating, strict=True) if floating]
        entries = self.backward.inputs[len(saved) :]
        gradients = iter(with_heads(self.backward, [*saved, *heads], entries))
        return [next(gradients) if want else None for want in self.wanted]

    def _gradients_again(
        self, gs: tuple[Entry | None, ...], given: dict[Port, Entry]
    ) -> Sequence[Entry | None]:
        if any(node.op is not None and node.op.random for node in self.forward.walk()):
            raise GradientError(
                f"grad: create_graph=True through {self.name}, a compiled function with random "
                "numbers, which would be drawn again; call the uncompiled function"
            )
        inputs = [given["input", i] for i in range(len(self.inputs))]
        pairs = zip(inline(without_updates(self.forward), inputs), gs, strict=True)
        ends, heads = zip(*((y, g) for y, g in pairs if g is not None), strict=True)
        chosen = [x for x, want in zip(inputs, self.wanted, strict=True) if want]
        gradients = iter(gradient(ends, heads, chosen))
        return [next(gradients) if want else None for want in self.wanted]

    def run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run the forward plan and put the call on the tape."""
        values: tuple[Any, ...] = self.plan(*inputs)
        outputs = values[: len(self.outputs)]
        pairs = zip(inputs, self.wanted, strict=True)
        call = BoundCall(self, tuple(tape.current_source(a) if w else None for a, w in pairs))
        call.inputs = inputs
        call.versions = [a.version for a in inputs[: len(inputs) - self.numbers]]
        for index, value in enumerate(outputs):
            # A view of an input or of another result shares its history, and so has its source.
            alone = value._history is None or not self._shows(value, inputs)
            if index in self.tracked_outputs and alone:
                value._track((call, index))
        call.keep(inputs, values)
        return outputs

    @staticmethod
    def _shows(result: Any, inputs: tuple[Any, ...]) -> bool:
        """Whether a result is a view of an input or of another result."""
        history = result._history
        return not result._is_base or any(
            history is x._history for x in inputs if isinstance(x, _core.Array)
        )


class BoundCall(tape.Call):
    """A compiled call on the tape."""

    __slots__ = ("inputs", "versions")

    inputs: tuple[Any, ...]
    versions: list[int]  # the versions of the arrays among the inputs

    @property
    def reached(self) -> Sequence[int] | None:  # type: ignore[override]
        """For each input, a bit set of the outputs whose gradients reach it; None means all."""
        return self.kind.reached  # type: ignore[no-any-return]

    def kept(self, port: Port) -> Any:
        """A saved value, or a number among the inputs."""
        return super().kept(port) if port in self.reads else self.inputs[port[1]]

    def tracked(self, port: Port) -> Any:
        """An input of the call, connected to the tape so that it can be differentiated through."""
        index = port[1]
        array, source = self.inputs[index], self.sources[index]
        if array.version != self.versions[index]:
            raise GradientError(
                f"grad: create_graph=True: an argument of {self.kind.name} ({spec_of(array)}) was "
                "overwritten in place after the call; write to a new array instead"
            )
        array = array._detached()
        if source is not None:
            array._track(source)
        return array

    def free(self) -> None:
        """Release what was saved and the calls before it."""
        super().free()
        self.inputs = ()


__all__ = ["Bound", "BoundCall", "BoundHalves"]
