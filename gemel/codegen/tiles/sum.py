"""What a product sums, read from its list of instructions: the factors, and their terms.

A factor is computed from an element of one operand only (for example, two bytes converted to
float32); a term is computed from two factors. The code for tiles knows where factors lie and which
of them meet. Only this module knows that they are multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence

from gemel.codegen.contract.task import FOURS, PAIRS
from gemel.codegen.language.program import Program
from gemel.codegen.llvm.assembly import BF16, I16, I32, Constant, Value, splat_constant, widened
from gemel.codegen.loops.frame import i64
from gemel.codegen.tiles.emit import Elements, Reader, TiledKernel, sum_position
from gemel.dtype import DType, bfloat16, int8, uint8
from gemel.errors import CompileError

#: The intrinsic that multiplies pairs of 16 bits and adds the products, by bytes per vector.
WORDS_BY_PAIRS = {64: "avx512.pmaddw.d.512", 32: "avx2.pmadd.wd", 16: "sse2.pmadd.wd"}
#: The highest bit of each of four bytes.
SIGNS = -0x7F7F7F80


class Sum:
    """The sum of a program in tiles; `factors` are the positions of the terms' two arguments."""

    #: Further values that each column's factors are multiplied with, besides the rows of a tile.
    more: Sequence[Value] = ()
    #: How many k of a line share a lane of a panel.
    together = 1
    #: The instruction that multiplies tile registers, if there is one.
    in_tiles = ""

    def __init__(self, kernel: TiledKernel, factors: tuple[int, int], terms: list[int]) -> None:
        self.kernel = kernel
        self.factors = factors
        self.terms = terms
        self.code = kernel.program.code
        self.dtype: DType = self.code[terms[-1]].dtype

    @property
    def is_of_products(self) -> bool:
        """Whether terms are products, so that factors of zero add nothing."""
        return [self.code[p].name for p in self.terms] == ["multiply"]

    def reader(self, number: int) -> Elements:
        """A reader of the factors of an operand, or of groups of them."""
        return self.lying(number)

    def lying(self, number: int) -> Reader:
        """A reader of an operand where it lies, before it is copied to panels."""
        return Reader(self.kernel, number, self.factors[number])

    def depth(self, k: Value) -> Value:
        """The number of steps for this many k."""
        return k

    def row(self, factor: Value) -> Value:
        """The factor of a row, in every lane."""
        return self.kernel.splat(factor)

    def added(self, total: Value, left: Value, right: Value) -> Value:
        """The total plus, lane by lane, the term of two factors."""
        kernel, floating = self.kernel, self.dtype.kind == "f"
        if floating and self.is_of_products:
            return kernel.multiply_add(left, right, total)
        given = {**kernel.fixed, **dict(zip(self.factors, (left, right), strict=True))}
        printer = kernel.access.printer(kernel.lanes)
        term = printer.emit(self.code, given=given, only=self.terms)[self.terms[-1]]
        return (kernel.builder.fadd if floating else kernel.builder.add)(total, term)

    def settled(self, totals: list[Value], vectors: int) -> list[Value]:
        """The sums of a tile's rows, `vectors` each, from the totals of the rows and of `more`."""
        return totals


class Grouped(Sum):
    """A sum in which `together` k of a line lie side by side in one lane of 32 bits."""

    def reader(self, number: int) -> Elements:
        return self.kernel

    def depth(self, k: Value) -> Value:
        builder = self.kernel.builder
        return builder.udiv(builder.add(k, i64(self.together - 1)), i64(self.together))


class Pairs(Grouped):
    """Products of bfloat16 in float32; `vdpbf16ps` multiplies two pairs and adds them to a lane.

    It rounds after each of the two additions and treats subnormal numbers of float32 as 0. So does
    `tdpbf16ps`, which adds the products at even and at odd places of 16 lanes apart.
    """

    together = PAIRS
    in_tiles = "tdpbf16ps"

    def __init__(self, kernel: TiledKernel, factors: tuple[int, int], terms: list[int]) -> None:
        super().__init__(kernel, factors, terms)
        kinds = [operand.dtype for operand in kernel.program.operands[:2]]
        schedule = kernel.program.parsed_schedule
        native = schedule.bf16 or schedule.kind == "amx"
        if not self.is_of_products or kinds != [bfloat16] * 2 or not native:
            raise CompileError(f"only bfloat16 lies in pairs\n{kernel.program.text}")

    def lying(self, number: int) -> Reader:
        return Reader(self.kernel, number, None)

    def added(self, total: Value, left: Value, right: Value) -> Value:
        kernel = self.kernel
        pairs = widened(BF16, 2 * kernel.lanes)
        factors = (kernel.builder.bitcast(value, pairs) for value in (left, right))
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * kernel.lanes}"
        return kernel.builder.intrinsic(name, kernel.vector, [total, *factors])


class Fours(Grouped):
    """Products of bytes in int32.

    One instruction multiplies four pairs and adds them to a lane (`vpdpbusd` of AVX-512's VNNI, for
    unsigned times signed bytes). On other targets bytes are widened to 16 bits and multiplied in
    pairs, or to 32 bits. Sums wrap as int32 does, so their order does not matter.
    """

    together = FOURS

    def __init__(self, kernel: TiledKernel, factors: tuple[int, int], terms: list[int]) -> None:
        super().__init__(kernel, factors, terms)
        kinds = [operand.dtype for operand in kernel.program.operands[:2]]
        if not self.is_of_products or any(kind not in (int8, uint8) for kind in kinds):
            raise CompileError(f"only bytes lie in groups of four\n{kernel.program.text}")
        self.signed = [kind is int8 for kind in kinds]
        self.in_tiles = f"tdpb{''.join('us'[signed] for signed in self.signed)}d"
        self.is_native = kernel.program.parsed_schedule.vnni
        # If both are signed, 128 is added to the bytes of rows to make them unsigned. What that
        # adds to the sums is computed by `more` and subtracted in the end.
        if self.is_native and all(self.signed):
            self.more = [self._splat(SIGNS)]

    def row(self, factor: Value) -> Value:
        if self.more:
            factor = self.kernel.builder.xor(factor, Constant(I32, SIGNS))
        return self.kernel.splat(factor)

    def settled(self, totals: list[Value], vectors: int) -> list[Value]:
        if not self.more:
            return totals
        rows, added = totals[:-vectors], totals[-vectors:]
        return [self.kernel.builder.sub(t, added[i % vectors]) for i, t in enumerate(rows)]

    def _splat(self, number: int) -> Value:
        return splat_constant(Constant(I32, number), self.kernel.lanes)

    def added(self, total: Value, left: Value, right: Value) -> Value:
        kernel, target = self.kernel, self.kernel.target
        if self.is_native:
            pair = (right, left) if self.signed == [True, False] else (left, right)
            name = f"llvm.x86.avx512.vpdpbusd.{8 * target.width}"
            return kernel.builder.intrinsic(name, kernel.vector, [total, *pair])
        if target.triple.startswith("x86_64"):
            return self._by_pairs(total, left, right)
        return self._by_four(total, left, right)

    def _by_pairs(self, total: Value, *factors: Value) -> Value:
        """Bytes widened to 16 bits: first those at even places, then those at odd ones."""
        kernel, builder = self.kernel, self.kernel.builder
        kind = widened(I16, 2 * kernel.lanes)
        eight = splat_constant(Constant(I16, 8), kind.lanes)
        for odd in (False, True):
            halves = []
            for value, signed in zip(factors, self.signed, strict=True):
                part = builder.bitcast(value, kind)
                part = part if odd else builder.shl(part, eight)
                halves.append((builder.ashr if signed else builder.lshr)(part, eight))
            name = f"llvm.x86.{WORDS_BY_PAIRS[kernel.target.width]}"
            total = builder.add(total, builder.intrinsic(name, kernel.vector, halves))
        return total

    def _by_four(self, total: Value, *factors: Value) -> Value:
        """Bytes widened to 32 bits, one of the four after another."""
        builder = self.kernel.builder
        for byte in range(self.together):
            wide = []
            for value, signed in zip(factors, self.signed, strict=True):
                high = builder.shl(value, self._splat(24 - 8 * byte))
                wide.append((builder.ashr if signed else builder.lshr)(high, self._splat(24)))
            total = builder.add(total, builder.mul(*wide))
        return total


#: Kinds of sums by how many k lie side by side.
KINDS: dict[int, type[Sum]] = {1: Sum, **{kind.together: kind for kind in (Pairs, Fours)}}


def _together(program: Program) -> int:
    """How many k of a line share a lane. Tile registers also load factors that lie in no panels."""
    first = program.operands[0]
    if program.parsed_schedule.kind != "amx":
        return first.together
    return PAIRS if first.dtype is bfloat16 else FOURS


def sum_of(kernel: TiledKernel) -> Sum:
    """The sum of a kernel. Raises `CompileError` if its terms do not have two factors each."""
    program, analysis = kernel.program, kernel.analysis
    (made,) = program.code[sum_position(program)].arguments
    inside = sorted(analysis.closure([made]))
    reads: dict[int, set[int]] = {}
    for position in inside:
        step = program.code[position]
        reads[position] = set().union(*(reads[a] for a in step.arguments))
        if step.name == "load" and step.operand is not None:
            reads[position].add(step.operand)
    terms = [p for p in inside if len(reads[p]) > 1]
    used = {a for p in terms for a in program.code[p].arguments if len(reads[a]) == 1}
    factors = sorted(used, key=lambda p: sorted(reads[p]))
    if [reads[p] for p in factors] != [{0}, {1}]:
        raise CompileError(f"no sum of terms of two factors is done in tiles\n{program.text}")
    kind = KINDS[_together(program)]
    return kind(kernel, (factors[0], factors[1]), terms)
