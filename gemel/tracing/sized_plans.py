"""The plans of a graph with free extents.

One plan usually serves all sizes: it has expressions like ``4 * n0_0`` in place of numbers. But
lowering may make decisions that depend on a size (such as the tiling of a matrix product), and then
adds a guard. A later call that breaks this guard gets another plan. `SizedPlans` keeps the plans,
the newest first, and finds the one that fits a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from gemel import _core, config
from gemel.codegen.schedules import Recipe
from gemel.errors import NoKernelError
from gemel.extent import Dim, Guard, Guards
from gemel.ir.graph import Graph
from gemel.ir.text import signature
from gemel.ir.trace import Trace
from gemel.passes import PIPELINE, optimize
from gemel.passes.bind import concrete_graph
from gemel.runtime.backend import Backend, backend_for
from gemel.runtime.image import Image
from gemel.runtime.plans import plan_for, plan_of
from gemel.runtime.relay import Relay

#: The number of plans that a graph keeps.
PLANS = 64


class Unfit(Exception):
    """The sizes of a call break a guard that was added after they were checked."""


class SizedPlans:
    """The plans of one graph with free extents. See `Lowering` for `stable`, `random`, `atomic`.

    `guards` are those of its program, to which passes may add; the trace asked the first `traced`.
    """

    def __init__(
        self,
        graph: Graph,
        passes: tuple[Any, ...],
        guards: list[Guard],
        traced: int,
        recipes: tuple[Recipe, ...] = (),
        stable: Sequence[int] | None = None,
        random: int = 0,
        atomic: bool = True,
    ) -> None:
        self.graph = graph
        self.random, self.atomic = random, atomic
        self.stable = stable
        self.keeper = _core.Keeper()
        self.passes = passes
        self.guards, self.traced = guards, traced
        self.recipes = recipes
        self._backends: dict[Backend, Backend] = {}
        self._optimized: dict[tuple[Any, ...], Graph] = {}
        self._made: list[tuple[Backend, Any]] = []

    def optimized(self, backend: Backend | None = None) -> Graph:
        """The graph after the passes, which may add guards; by default for processors."""
        passes = self.passes if backend is None else backend.passes(self.passes)
        if passes not in self._optimized:
            if backend is not None:
                backend.expect(self.graph)
            self._optimized[passes] = optimize(self.graph, passes)
        return self._optimized[passes]

    def optimized_for(self, values: dict[str, int], backend: Backend | None = None) -> Graph:
        """The same, if it is valid for these extents. Raises `Unfit`."""
        graph = self.optimized(backend)
        if not all(guard.holds(values) for guard in self.guards):
            raise Unfit
        return graph

    def find(self, values: dict[str, int], arrays: Sequence[Any]) -> Any:
        """The plan for these extents, created if there is none. Raises `Unfit`."""
        plain = backend_for(arrays)
        backend = self._backend(plain)
        for known, plan in self._made:
            if known is backend and _fits(plan, arrays):
                return plan
        try:
            plan = plan_for(
                self._text(values), backend, lambda: self.image(values, plain), self.keeper
            )
        except NoKernelError:
            passes, atomic = self._user_passes(), self.atomic
            planned = partial(plan_of, backend=backend, atomic=atomic, passes=passes)
            plan = Relay(concrete_graph(self.graph, values), planned, self.random)
        self._made = [(backend, plan), *self._made[: PLANS - 1]]
        return plan

    def _backend(self, backend: Backend) -> Backend:
        """A device's backend, extended by the recipes."""
        if backend not in self._backends:
            self._backends[backend] = backend.extended(self.recipes)
        return self._backends[backend]

    def _user_passes(self) -> tuple[Any, ...] | None:
        """The passes if the user added some; None for the standard pipeline."""
        if self.passes is PIPELINE or all(step in PIPELINE for step in self.passes):
            return None
        return self.passes

    def _text(self, values: dict[str, int]) -> str | None:
        """A text that identifies the plan for these extents; None if the user added passes."""
        if self._user_passes():
            return None
        text = signature(self.graph)
        passes = [] if self.passes is PIPELINE else [step.__name__ for step in self.passes]
        kept = self.stable, config.KEEP_BYTES.read(), self.random, self.atomic
        # What passes have asked follows from the rest, and is known only where they have run.
        asked = self.guards[: self.traced]
        return text and f"{text}{passes} {values} {asked} {kept}"

    def image(self, values: dict[str, int], backend: Backend) -> Image:
        """The image of the plan for these extents on a device's backend. Raises `Unfit`."""
        with Trace():
            image: Image = self._lowering(values, self._backend(backend)).made()
        return image

    def _lowering(self, values: dict[str, int], backend: Backend) -> Any:
        from gemel.runtime.lower import Lowering  # plans from the cache do not need it

        optimized = self.optimized_for(values, backend)
        guards = Guards(self.guards)
        free = {name: Dim(value, name, guards) for name, value in values.items()}
        graph = concrete_graph(optimized, free)
        stable, random, atomic = self.stable, self.random, self.atomic
        return Lowering(graph, backend, guards=guards, stable=stable, random=random, atomic=atomic)

    def source(self, values: dict[str, int], backend: Backend) -> str:
        """The kernels of the plan for these extents as text. Raises `Unfit`."""
        from gemel.runtime.lower import Lowering  # plans from the cache do not need it
        from gemel.runtime.plan_text import as_c

        def items(graph: Graph) -> list[Any]:
            lowering = Lowering(optimize(graph, backend.passes(self.passes)), backend)
            lowering.run()
            return lowering.emission.items

        try:
            with Trace():
                lowering = self._lowering(values, backend)
                lowering.run()
            steps = lowering.emission.items
        except NoKernelError:
            relay = Relay(concrete_graph(self.graph, values), items, self.random)
            steps = [call for call, _, _ in relay.stages]
        return as_c(self.graph.name, steps, backend.printed)


def _fits(plan: Any, arrays: Sequence[Any]) -> bool:
    try:
        plan.bound(*arrays)
    except TypeError:
        return False
    return True


__all__ = ["SizedPlans", "Unfit"]
