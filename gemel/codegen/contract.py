"""Matrix products: from a `Contraction` to machine code, and from sizes to steps.

``out[m, n] = epilogue(sum over k of a[m, k] * b[k, n])`` for float32 and float64, of any size, with
up to two batch axes that may broadcast. Sums run along k in an order fixed by shape and target, so
the result has the same bits however the tiles are spread over cores.
"""

from __future__ import annotations

from collections.abc import Sequence

from gemel.codegen.contract_plan import (
    Choice,
    Several,
    StepPlan,
    cost,
    decided,
    for_several,
    variants,
)
from gemel.codegen.program import INDEX, Contraction
from gemel.codegen.target import Target
from gemel.extent import maximum, minimum

__all__ = ["Choice", "Several", "StepPlan", "compile_contraction", "cost", "steps", "variants"]

#: A packing step's tile copies about this many bytes.
PACKED_TILE = 1 << 18


def compile_contraction(contraction: Contraction, target: Target) -> bytes:
    """Machine code of one kernel: an ELF object with the function ``kernel``.

    Raises `ValueError` for an unknown variant, dtype or epilogue operand.
    """
    from gemel.codegen import contract_dot, contract_gemm, contract_pack
    from gemel.codegen.llvm import emit_object

    dtype = contraction.dtype
    if not dtype.is_floating or dtype.compute is not dtype:
        raise ValueError(f"no kernel multiplies matrices of {dtype}")
    emitters = {"gemm": contract_gemm, "dot": contract_dot, "pack": contract_pack}
    kind = contraction.variant.partition(" ")[0]
    if kind not in emitters:
        raise ValueError(f"contraction variant {contraction.variant!r} is unknown")
    module = emitters[kind].emit(contraction, target)
    return emit_object(str(module), target, contraction.text)


def steps(
    contraction: Contraction,
    target: Target,
    m: int,
    n: int,
    k: int,
    a: Sequence[int],
    b: Sequence[int],
    operands: Sequence[Sequence[int]],
    batch: tuple[int, int] = (1, 1),
    often: bool = False,
    several: Several | None = None,
) -> list[StepPlan]:
    """The steps which compute a product, to be run in order; none for an empty result.

    `a` and `b` are (stride of the axis that is not last, stride of the outer batch axis, stride of
    the inner one), in elements, 0 where the batch broadcasts; `operands` has for every operand of
    the epilogue (row stride, column stride, outer, inner). `often`: b is packed for several
    products. `several`: how b lies, whose first stride says nothing then. `contraction.variant` is
    not looked at.
    """
    if 0 in (m, n, *batch):
        return []
    dtype = contraction.dtype
    sizes = m, n, k, batch[0] * batch[1]
    if several:
        choice = for_several(dtype, contraction.a_last, several, target, *sizes)
    else:
        choice = decided(dtype, contraction.a_last, contraction.b_last, target, *sizes, often)
    plan = _Planner(contraction, choice, (m, n, k), batch)
    a_buffer = plan.pack("a", contraction.a_last == "k", m, choice.rows, tuple(a))
    b_buffer = plan.pack("b", contraction.b_last == "k", n, choice.columns, tuple(b))
    plan.product(a_buffer, b_buffer, operands, several.integers if several else [])
    plan.steps[-1].cost = cost(*sizes, dtype, target.width)
    return plan.steps


class _Planner:
    """Collects the steps of one product and lays out its scratch."""

    def __init__(
        self,
        contraction: Contraction,
        choice: Choice,
        sizes: tuple[int, int, int],
        batch: tuple[int, int],
    ) -> None:
        self.contraction = contraction
        self.choice = choice
        self.m, self.n, self.k = sizes
        self.batch = batch
        self.steps: list[StepPlan] = []
        self.scratch = 0

    def _reserve(self, elements: int) -> int:
        """Offset of `elements` new elements of scratch."""
        offset = self.scratch
        self.scratch += -(-elements * self.contraction.dtype.itemsize // 64) * 64
        return offset

    def pack(
        self, name: str, along_k: bool, lines: int, width: int, strides: tuple[int, ...]
    ) -> tuple[str, int, tuple[int, ...]]:
        """Where the main kernel finds an operand: (role, offset, strides), packed if need be."""
        form = self.choice.a_form if name == "a" else self.choice.b_form
        if form != "packed":
            return name, 0, strides
        stride, outer, inner = strides
        # An axis the operand broadcasts over is packed once.
        first = self.batch[0] if outer else 1
        second = self.batch[1] if inner else 1
        panels = -(-lines // width)
        size = panels * width * self.k
        packed = (second * size if outer else 0, size if inner else 0)
        offset = self._reserve(first * second * size)
        itemsize = self.contraction.dtype.itemsize
        together = maximum(1, PACKED_TILE // maximum(1, width * self.k * itemsize))
        tiles = -(-panels // together)
        base = self.contraction
        variant = f"pack {width} {'turn' if along_k else 'copy'}"
        kernel = Contraction(base.dtype, "k", "k", variant, (), (), ())
        integers = [lines, self.k, second, stride, outer, inner, *packed, together, tiles]
        buffers = [(name, 0), ("scratch", offset)]
        extent = first * second * tiles
        whole = extent * minimum(panels, together) * width * self.k * itemsize
        chunk = maximum(1, extent * PACKED_TILE // maximum(whole, 1))
        step = StepPlan(kernel, buffers, integers, extent, chunk)
        step.packs = name
        step.cost = 100 + whole // 10
        if self.k:
            self.steps.append(step)
        return "scratch", offset, (width * self.k, *packed)

    def product(
        self,
        a: tuple[str, int, tuple[int, ...]],
        b: tuple[str, int, tuple[int, ...]],
        operands: Sequence[Sequence[int]],
        several: list[int],
    ) -> None:
        """The main step."""
        choice, base = self.choice, self.contraction
        m_tiles = -(-self.m // choice.m_block)
        n_tiles = -(-self.n // choice.n_block)
        extent = self.batch[0] * self.batch[1] * m_tiles * n_tiles
        integers = [self.m, self.n, self.k, self.batch[1], *a[2], *b[2]]
        k_block = choice.k_block or maximum(self.k, 1)
        integers += [choice.m_block, choice.n_block, m_tiles, n_tiles, k_block, *several]
        for strides in operands:
            integers += strides
        buffers = [a[:2], b[:2]]
        for number, operand in enumerate(base.operands):
            if operand.role != INDEX:
                buffers.append((f"operand {number}", 0))
        if choice.split:
            partial = extent * choice.m_block * choice.n_block
            buffers.append(("scratch", self._reserve(partial)))
        kernel = Contraction(
            base.dtype,
            base.a_last,
            base.b_last,
            choice.variant,
            base.operands,
            base.scalars,
            base.code,
        )
        step = StepPlan(kernel, buffers, integers, extent, choice.chunk)
        if base.scalars:
            step.scalars = len(integers)
            integers += [0] * len(base.scalars)
        self.steps.append(step)
        for each in self.steps:
            each.scratch = self.scratch
