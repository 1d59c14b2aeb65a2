"""Straight-line instructions to LLVM values: one `Printer` for a fixed number of lanes.

Dtypes that are computed in another dtype are only loaded, selected, gathered, cast and stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gemel import dtype as dtypes
from gemel.codegen.functions import halves, mathlib, powers
from gemel.codegen.language.program import WRITES, Instruction
from gemel.codegen.language.spelling import COMPARISONS, looked_up, spelled
from gemel.codegen.llvm.assembly import (
    F32,
    F64,
    HALF,
    I8,
    I16,
    I32,
    Builder,
    Constant,
    Value,
    widened,
)
from gemel.codegen.llvm.registers import constant, register_type, splat
from gemel.codegen.target import PORTABLE, Target
from gemel.dtype import DType

#: Values by instruction position.
Values = dict[int, Value]
#: LLVM's conversions between kinds: to the same or a larger size, and to a smaller size.
_CONVERSIONS = {
    ("f", "f"): ("fpext", "fptrunc"),
    ("f", "i"): ("fptosi", "fptosi"),
    ("i", "f"): ("sitofp", "sitofp"),
    ("u", "f"): ("uitofp", "uitofp"),
    **{("i", kind): ("sext", "trunc") for kind in "iu"},
    **{(kind, to): ("zext", "trunc") for kind in "ub" for to in "iu"},
}
#: Instructions that need their site (memory, run-time scalars, scans), except those that write.
BEYOND = frozenset(("load", "load_where", "scalar", "gather", "scan", "check"))


class Printer:
    """Emits instructions for `lanes` lanes at the builder's position; it makes no loops.

    Where an instruction with several lanes takes a scalar LLVM value, all lanes have that value.
    `target` says which operations are native. The default uses portable forms, which compute the
    same bits.
    """

    def __init__(self, builder: Builder, lanes: int, target: Target = PORTABLE) -> None:
        self.builder = builder
        self.lanes = lanes
        self.target = target
        self._code: Sequence[Instruction] = ()
        self._values: Values = {}

    def emit(
        self,
        instructions: Sequence[Instruction],
        site: Any = None,
        given: Values | None = None,
        only: Iterable[int] | None = None,
    ) -> Values:
        """Values by the position of their instruction: the given ones and those computed.

        An instruction of `BEYOND` calls the method of `site` with its name, passing the
        instruction's attribute (for a scan: its position) and arguments. `load`, `load_where`,
        `scalar` and `gather` return values in register form, with one lane or all, `scan` with all
        lanes; `store`, `scatter_add` and `check` return nothing. `given` holds values known
        beforehand, which are not computed again. `only` names the positions to compute (default:
        all). Writes come last, in program order, so that an output may share the memory of an
        input.
        """
        self._code, values = instructions, dict(given or {})
        self._values, last = values, []
        for position in range(len(instructions)) if only is None else only:
            step = instructions[position]
            if step.name in WRITES:
                last.append(position)
            elif position not in values:
                reaches = step.name in BEYOND
                found = self._asked(site, position) if reaches else self._compute(step)
                if found is not None:
                    values[position] = found
        for position in last:
            self._asked(site, position)
        return values

    def _asked(self, site: Any, position: int) -> Any:
        """The result of the method of `site` for this instruction."""
        step = self._code[position]
        attribute = position if step.name == "scan" else step.attribute
        return getattr(site, step.name)(attribute, *(self._values[a] for a in step.arguments))

    # -- one instruction ------------------------------------------------------------------------

    def _dtype(self, step: Instruction, number: int = 0) -> DType:
        return self._code[step.arguments[number]].dtype

    def _constant(self, dtype: DType, value: Any) -> Value:
        return constant(dtype, value, self.lanes)

    def _compute(self, step: Instruction) -> Value:
        if step.name == "constant":
            return constant(step.dtype, step.attribute)
        arguments = [splat(self.builder, self._values[a], self.lanes) for a in step.arguments]
        source = self._dtype(step) if step.arguments else step.dtype
        name = looked_up(step, self._code)
        spelling = spelled(name, source.kind)
        if spelling.llvm and (not spelling.needs or getattr(self.target, spelling.needs)):
            return self._one(spelling.llvm, arguments)
        method = getattr(self, f"_{name}", None)
        if method is not None:
            found: Value = method(step, *arguments)
            return found
        return self._expanded(step, arguments)

    def _one(self, text: str, arguments: Sequence[Value]) -> Value:
        """One instruction or intrinsic, named as `spelling` does."""
        if text.startswith("llvm."):
            kind = arguments[0].type
            return self.builder.intrinsic(f"{text}.{kind.suffix}", kind, arguments)
        name, *sign = text.split()
        found: Value = getattr(self.builder, name)(*sign, *arguments)
        return found

    def _expanded(self, step: Instruction, arguments: list[Value]) -> Value:
        """A function that `mathlib` expresses in simpler instructions."""
        value = self.expand(step.name, self._dtype(step), *arguments)
        return splat(self.builder, value, self.lanes)

    def _power(self, step: Instruction, a: Value, b: Value) -> Value:
        """Powers that are products or roots are computed as such, wherever the exponent comes
        from. Those of integers are expanded."""
        if step.dtype.kind != "f":
            return self._expanded(step, [a, b])
        exponent = self._values[step.arguments[1]]
        if exponent is not b or self.lanes == 1:
            return self._power_to_one(step, a, b, exponent)
        builder = self.builder
        common = self.expand("power_common", step.dtype, a, b)
        short = self.expand("power_short", step.dtype, b)
        unusual = builder.or_(builder.fcmp_unordered("uno", common, common), short)

        def compute() -> Value:
            found = self._expanded(step, [a, b])
            for condition, name in powers.SHORT:
                short = self.expand(condition, step.dtype, b)
                found = builder.select(short, self.expand(name, step.dtype, a, b), found)
            return found

        return builder.where_any(unusual, [common], lambda: [compute()])[0]

    def _seldom(self, step: Instruction, condition: Value, usual: Value, *given: Value) -> Value:
        """The function named by the attribute, of `given`, where the condition holds; else `usual`.

        The function is called lane by lane, which is slow but takes little code."""
        name, source = str(step.attribute), self._dtype(step, 2)

        def one(builder: Builder, *arguments: Value) -> Value:
            return Printer(builder, 1, self.target).expand(name, source, *arguments)

        def each(builder: Builder, *arguments: Value) -> Value:
            found: Value = Constant(usual.type, "poison")
            for lane in (Constant(I32, number) for number in range(self.lanes)):
                values = [builder.extract_element(a, lane) for a in arguments]
                found = builder.insert_element(found, builder.call(name, values, one), lane)
            return found

        def compute() -> Value:
            found = self.builder.call(name, given, each if self.lanes > 1 else one)
            return self.builder.select(condition, found, usual)

        return self.builder.where_any(condition, [usual], lambda: [compute()])[0]

    def _power_to_one(self, step: Instruction, a: Value, b: Value, exponent: Value) -> Value:
        """Powers if all lanes have the same exponent. Only the case of this exponent is computed,
        so x**2 costs about as much as x * x, not forty times as much."""
        builder = self.builder
        results = []
        after = builder.append_basic_block()
        asking = Printer(builder, 1, self.target)
        for condition, name in powers.SHORT:
            short = asking.expand(condition, step.dtype, exponent)
            chosen, others = builder.append_basic_block(), builder.append_basic_block()
            builder.cbranch(short, chosen, others)
            builder.position_at_end(chosen)
            results.append((self.expand(name, step.dtype, a, b), builder.block))
            builder.branch(after)
            builder.position_at_end(others)
        results.append((self._expanded(step, [a, b]), builder.block))
        builder.branch(after)
        builder.position_at_end(after)
        return builder.phi(a.type, *results)

    def _scaled(self, step: Instruction, x: Value, shifted: Value) -> Value:
        """x * 2**n, given n + `mathlib.EXPONENT`."""
        if not self.target.scales or self.lanes * step.dtype.itemsize != self.target.width:
            return self._expanded(step, [x, shifted])
        magic = self._constant(step.dtype, mathlib.EXPONENT[step.name][step.dtype])
        n = self.builder.fsub(shifted, magic)
        kind, size = ("ps", I16) if step.dtype is dtypes.float32 else ("pd", I8)
        name = f"llvm.x86.avx512.mask.scalef.{kind}.512"
        every, rounding = Constant(size, -1), Constant(I32, 4)  # to nearest, as everywhere
        return self.builder.intrinsic(name, x.type, [x, n, x, every, rounding])

    _scaled_down = _scaled

    def _maximum(self, step: Instruction, a: Value, b: Value) -> Value:
        return extreme(self.builder, step.dtype, "greater", a, b)

    def _minimum(self, step: Instruction, a: Value, b: Value) -> Value:
        return extreme(self.builder, step.dtype, "less", a, b)

    def _isnan(self, step: Instruction, a: Value) -> Value:
        if self._dtype(step).kind != "f":
            return self._expanded(step, [a])
        return self.builder.fcmp_unordered("uno", a, a)

    def _reinterpret(self, step: Instruction, a: Value) -> Value:
        """The same bits as another dtype of the same size. Only in `mathlib`: two bytes as the low
        half of an int32, and back."""
        kind = register_type(step.dtype, self.lanes)
        source, target = self._dtype(step).itemsize, step.dtype.itemsize
        if source != target:
            return (self.builder.zext if source < target else self.builder.trunc)(a, kind)
        return a if a.type is kind else self.builder.bitcast(a, kind)

    def _quotient(self, step: Instruction, a: Value, b: Value) -> Value:
        """a / b for b > 0 or b < -1.

        Vectors have no integer division. Up to 32 bits the truncated floating-point quotient is
        exact, since a / b, unless whole, is at least 1 / |b| away from the next integer."""
        dtype = step.dtype
        signed = dtype.kind == "i"
        builder = self.builder
        if self.lanes == 1 or dtype.itemsize == 8:
            return (builder.sdiv if signed else builder.udiv)(a, b)
        wide = widened(F32 if dtype.itemsize <= 2 else F64, self.lanes)
        convert = builder.sitofp if signed else builder.uitofp
        quotient = builder.fdiv(convert(a, wide), convert(b, wide))
        if dtype.itemsize <= 2:
            return builder.trunc(builder.fptosi(quotient, widened(I32, self.lanes)), a.type)
        return (builder.fptosi if signed else builder.fptoui)(quotient, a.type)

    # -- casts ----------------------------------------------------------------------------------

    def _cast(self, step: Instruction, a: Value) -> Value:
        return self.cast(a, self._dtype(step), step.dtype)

    def cast(self, value: Value, source: DType, target: DType) -> Value:
        """`value` of `source` as `target`, as NumPy's astype: truncation towards zero, wrapping
        integers. Floating-point values that no integer holds give whatever the processor gives."""
        for name, following in halves.casts(source, target):
            if dtypes.float16 in (source, following) and self.target.halves:
                value = self._half(value, following)
            elif name:
                value = self.expand(name, source, value)
            else:
                value = self._converted(value, source, following)
            source = following
        return value

    def _half(self, value: Value, target: DType) -> Value:
        """Converts from or to float16, which is held as its bits."""
        builder, half = self.builder, widened(HALF, self.lanes)
        if target is dtypes.float16:
            return builder.bitcast(builder.fptrunc(value, half), widened(I16, self.lanes))
        return builder.fpext(builder.bitcast(value, half), register_type(target, self.lanes))

    def _converted(self, value: Value, source: DType, target: DType) -> Value:
        """One step of a cast."""
        kind = register_type(target, self.lanes)
        if target.kind == "b":
            unequal = spelled("not_equal", source.kind).llvm
            return self._one(unequal, (value, self._constant(source, 0)))
        if source.kind == "b" and target.kind == "f":
            return self.builder.select(value, self._constant(target, 1), self._constant(target, 0))
        wider, narrower = _CONVERSIONS[source.kind, target.kind]
        name = narrower if target.itemsize < source.itemsize else wider
        found: Value = getattr(self.builder, name)(value, kind)
        return found

    def expand(self, name: str, source: DType, *arguments: Value) -> Value:
        """The function of `mathlib` of this name, of arguments of the dtype `source`."""
        code, result = mathlib.expansion(name, source)  # printed in place, not called
        printer = Printer(self.builder, self.lanes, self.target)
        return printer.emit(code, given=dict(enumerate(arguments)))[result]


def extreme(builder: Builder, dtype: DType, name: str, a: Value, b: Value) -> Value:
    """The greater (or less) of two values of one register type; NaN wins."""
    sign = COMPARISONS[name]
    if dtype.kind == "f":
        # With this order of operands the selection is one instruction; it keeps a NaN of b but not
        # one of a, which the second selection restores.
        better = builder.select(builder.fcmp_ordered(sign, a, b), a, b)
        return builder.select(builder.fcmp_unordered("uno", a, a), a, better)
    compare = builder.icmp_signed if dtype.kind == "i" else builder.icmp_unsigned
    return builder.select(compare(sign, a, b), a, b)
