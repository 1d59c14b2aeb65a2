"""Plan images for today's core. Goes when its `Plan` takes an image."""

from __future__ import annotations

from typing import Any

from gemel import _core
from gemel.runtime.image import FAILS, READ, TEMPORARY, WRITTEN, Choice, Image, Item, Step, Together
from gemel.runtime.plan_images import Bound, Read


class Plan:
    """A plan for many sizes: one of today's for each."""

    def __init__(self, image: bytes, kernels: Any, captured: Any) -> None:
        self.image = Read(image)
        self.kernels, self.captured = kernels, captured
        self.name = self.image.name
        self._plans: dict[Any, Any] = {}

    def at(self, values: Any) -> Any:
        arrays = values[: len(self.image.inputs)]
        layouts = tuple((a.shape, a.strides) for a in arrays)
        if layouts not in self._plans:
            bound = self.image.bind(layouts)
            if bound is None:
                raise TypeError(f"{self.name} does not fit {layouts}")
            self._plans[layouts] = translated(self, bound)
        return self._plans[layouts]

    def __call__(self, *values: Any, **options: Any) -> Any:
        plan = self.at(values)
        if isinstance(plan, _core.View):
            source = values[0]
            offset = source.offset + plan.offset
            return (source._as_strided(plan.shape, plan.strides, offset),)
        return plan(*values, **options)


def make_plan(image: Image) -> Any:
    return Plan(image.write(), image.kernels, image.captured)


def translated(plan: Plan, bound: Bound) -> Any:
    if not bound.items and bound.outputs and all(o.strides is not None for o in bound.outputs):
        (view,) = bound.outputs
        return _core.View(view.shape, view.strides, view.offset)

    def address(given: Any) -> Any:
        space, index, offset = given
        return (space, 0, bound.offsets[index] + offset) if space == TEMPORARY else tuple(given)

    def steps(items: Any) -> list[Any]:
        return [made for item in items for made in step(item)]

    def step(item: Item) -> list[Any]:
        if isinstance(item, Choice):
            sides = steps(item.then), steps(item.otherwise)
            return [_core.Branch(address(item.condition), *sides)]
        if isinstance(item, Together):
            return steps([one for part in item.parts for one in part])
        assert isinstance(item, Step)
        return [
            _core.Step(
                plan.kernels[item.kernel],
                [address(a) for a in item.buffers],
                list(item.integers),
                item.extent,
                max(item.chunk, 1),
                [(p, s, bool(f)) for p, s, f in item.scalars],
                item.failure,
            )
        ]

    flags = [given.flags for given in bound.inputs]
    written = [i for i, flag in enumerate(flags) if flag & WRITTEN]
    failing = [i for i, flag in enumerate(flags) if flag & FAILS]
    outputs: list[Any] = [
        ("new", o.dtype, o.shape)
        if o.strides is None
        else ("view", o.space, o.source, o.shape, o.strides, o.offset)
        for o in bound.outputs
    ]
    return _core.Plan(
        plan.name,
        [(i.dtype, i.shape, i.strides) for i in bound.inputs],
        outputs,
        steps(bound.items),
        bound.workspace,
        plan.captured,
        plan.image.scalars,
        plan.image.random,
        written,
        bound.cost / 1000,
        plan.image.sites,
        [i for i in failing if not flags[i] & READ],
        [i for i in failing if flags[i] & READ],
    )
