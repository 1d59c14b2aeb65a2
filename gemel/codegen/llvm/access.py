"""Printing instructions at a site of a loop nest: how they read and write the operands there."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

from gemel.codegen.analysis import Sweep
from gemel.codegen.language.program import (
    ACROSS,
    BROADCAST,
    CONTIGUOUS,
    INDEX,
    INTERLEAVED,
    PAIRED,
    REVERSED,
    Program,
)
from gemel.codegen.llvm import memory
from gemel.codegen.llvm.assembly import I32, I64, Builder, Constant, Value, zeros
from gemel.codegen.llvm.expression import Printer, Values
from gemel.codegen.llvm.registers import register_type, splat
from gemel.codegen.target import Target

__all__ = ["Access", "Bases", "Masked", "Site", "Values"]

#: By operand: its address, or the value of an index operand; None where it is not used.
Bases = list[Any]


class Access:
    """The operands of one kernel. `strides` (by operand and dimension) and `extra` hold the
    run-time integers, once the kernel has loaded them."""

    def __init__(self, program: Program, target: Target, builder: Builder) -> None:
        self.program = program
        self.target = target
        self.builder = builder
        self.strides: dict[tuple[int, int], Value] = {}
        self.extra: list[Value] = []
        #: The address of the status that checks set.
        self.status: Any = None
        #: Vectors of interleaved outputs, held until there is one for each output.
        self.interleaved: dict[int, Value] = {}
        #: Vectors of interleaved inputs, by where they have been read.
        self.separated: dict[tuple[Any, ...], list[Value]] = {}

    def printer(self, lanes: int) -> Printer:
        """A printer of instructions on this many lanes."""
        return Printer(self.builder, lanes, self.target)

    def watch(self) -> None:
        """Reserves memory for the status of checks and clears it."""
        self.status = self.builder.alloca(I32)
        self.builder.store(Constant(I32, 0), self.status, 4)

    def result(self) -> Value:
        """The status that the kernel returns."""
        if self.status is None:
            return Constant(I32, 0)
        return self.builder.load(self.status, I32, 4)

    def print(self, positions: list[int], site: Site, given: Values) -> Values:
        """Prints the instructions at `positions`; returns `given` together with their values."""
        return self.printer(site.lanes).emit(self.program.code, site, given, positions)

    def print_sweep(self, sweep: Sweep, site: Site, given: Values) -> Values:
        """Prints the varying instructions of a sweep."""
        if sweep.reloads is not None:
            position, number = sweep.reloads
            given = {**given, position: site.load(number)}
        return self.print(sweep.varying, site, given)

    def spill(self, sweep: Sweep, site: Site, found: Values) -> None:
        """Stores the value that this sweep spills, for the last sweep to reload."""
        if sweep.spills is not None:
            position, number = sweep.spills
            site.store(number, found[position])


class Masked(NamedTuple):
    """The lanes in which an operand is read, and the masks of the loads of every other element."""

    mask: Value
    pairs: tuple[Value, Value] | None = None


class Site:
    """Where instructions are printed: the operands' bases, the index along the vector, the mask,
    and `scan`, which makes the next value of a scan from its position and its argument.

    Its methods are the instructions that access memory (see `Printer.emit`).
    """

    __slots__ = ("access", "bases", "builder", "index", "lanes", "mask", "operands", "scan")

    def __init__(
        self,
        access: Access,
        bases: Bases,
        index: Any = None,
        lanes: int = 1,
        mask: memory.Mask = None,
        scan: Callable[[int, Value], Value] | None = None,
    ) -> None:
        self.access, self.builder = access, access.builder
        self.operands = access.program.operands
        self.bases = bases
        self.index = index
        self.lanes = lanes
        self.mask = mask
        self.scan = scan

    def _splat(self, value: Value) -> Value:
        return splat(self.builder, value, self.lanes)

    def _still(self, number: int) -> bool:
        """Whether all lanes read the same element of an operand."""
        return self.index is None or self.operands[number].stride_class == BROADCAST

    def _offsets(self, number: int) -> Value:
        """The offset of each lane along the vector, in elements of this operand."""
        builder, lanes = self.builder, self.lanes
        stride = self.access.strides.get((number, self.access.program.vector_dimension))
        first: Value = self.index if stride is None else builder.mul(self.index, stride)
        if lanes == 1:
            return first
        steps = memory.lane_numbers(lanes)
        if stride is not None:
            steps = builder.mul(steps, self._splat(stride))
        return builder.add(self._splat(first), steps)

    def _element(self, number: int, offset: Value) -> Value:
        """The address of an operand's element."""
        dtype = self.operands[number].dtype
        return memory.element(self.builder, self.bases[number], offset, dtype)

    def _last(self, number: int) -> Value:
        """The address of the last lane's element of an operand whose stride is -1."""
        last = self.builder.add(self.index, Constant(I64, self.lanes - 1))
        return self._element(number, self.builder.sub(Constant(I64, 0), last))

    def _needed(self, number: int) -> Value | None:
        """The mask for contiguous accesses. Strips (operands of the class ACROSS) are accessed
        without one: they have room for whole vectors, and a load cannot be forwarded from a masked
        store, so it would have to wait until the data is in the cache."""
        return None if self.operands[number].stride_class == ACROSS else self.mask

    def _scattered(self, number: int, offsets: Value) -> memory.Scattered:
        """Access to an operand's elements at any offsets."""
        dtype, native = self.operands[number].dtype, self.access.target.masks
        return memory.Scattered(self.builder, self.bases[number], offsets, dtype, self.mask, native)

    def load(self, number: int) -> Value:
        """Reads the operand's elements."""
        operand, base = self.operands[number], self.bases[number]
        builder, lanes, mask = self.builder, self.lanes, self.mask
        if operand.role == INDEX:
            first: Value = base
            if self._still(number):
                return first
            return builder.add(self._splat(first), self._offsets(number))
        if self._still(number):
            return memory.load(builder, base, operand.dtype, 1)
        if operand.stride_class in (CONTIGUOUS, ACROSS):
            pointer = self._element(number, self.index)
            return memory.load(builder, pointer, operand.dtype, lanes, self._needed(number))
        if operand.stride_class == PAIRED and lanes > 1:
            pairs = None if mask is None else memory.masks_of_pairs(builder, mask)
            return self._load_along(number, None if mask is None else Masked(mask, pairs))
        if operand.stride_class == INTERLEAVED and lanes > 1:
            return self._load_interleaved(number)
        if operand.stride_class == REVERSED and lanes > 1:
            return memory.load_backwards(builder, self._last(number), operand.dtype, lanes, mask)
        return self._scattered(number, self._offsets(number)).load()

    def load_where(self, number: int, *conditions: Value) -> Value:
        """Reads the operand's elements where all conditions hold; elsewhere they are 0."""
        builder = self.builder
        alone = [each for each in conditions if each.type.lanes == 1]
        masks = [each for each in conditions if each.type.lanes > 1]
        mask = reduce(builder.and_, masks) if masks else None
        if not alone:
            return self._load_under(number, mask)
        before = self.builder.block
        with builder.if_then(reduce(builder.and_, alone)):
            found, inside = self._load_under(number, mask), builder.block
        return builder.phi(found.type, (zeros(found.type), before), (found, inside))

    def _load_under(self, number: int, mask: Value | None) -> Value:
        """Reads the operand's elements in the lanes of a mask; in the others they are 0."""
        if mask is None:
            return self.load(number)
        builder, operand = self.builder, self.operands[number]
        if not self._still(number):
            return self.load_masked(number, self.masked(number, mask))
        none = [zeros(register_type(operand.dtype, 1))]
        (found,) = builder.where_any(mask, none, lambda: [self.load(number)])
        alike = self._splat(found)
        return builder.select(mask, alike, zeros(alike.type))

    def masked(self, number: int, mask: Value) -> Masked:
        """What `load_masked` needs to read an operand only in the lanes of a mask, which is the
        same wherever this vector is read."""
        builder = self.builder
        mask = mask if self.mask is None else builder.and_(mask, self.mask)
        paired = self.operands[number].stride_class == PAIRED
        return Masked(mask, memory.masks_of_pairs(builder, mask) if paired else None)

    def load_masked(self, number: int, masked: Masked) -> Value:
        """Reads the operand's elements in the lanes of a mask; in the others they are 0."""
        builder, operand = self.builder, self.operands[number]
        if operand.stride_class not in (CONTIGUOUS, PAIRED):
            site = Site(self.access, self.bases, self.index, self.lanes, masked.mask)
            return site._scattered(number, self._offsets(number)).load()
        if self.access.target.has_masks_for([operand.dtype]):
            return self._load_along(number, masked)
        # Lane by lane only where that is necessary: at the borders of an image.
        some = builder.any(builder.xor(masked.mask, memory.full_mask(self.lanes)))
        with builder.if_else(some) as (borders, elsewhere):
            with borders:
                first = self._load_along(number, masked), builder.block
            with elsewhere:
                second = self._load_along(number), builder.block
        return builder.phi(first[0].type, first, second)

    def _load_along(self, number: int, masked: Masked | None = None) -> Value:
        """Reads elements that lie side by side, or every other one."""
        builder, dtype, lanes = self.builder, self.operands[number].dtype, self.lanes
        if self.operands[number].stride_class != PAIRED:
            pointer = self._element(number, self.index)
            return memory.load(builder, pointer, dtype, lanes, masked.mask if masked else None)
        pointer = self._element(number, builder.mul(self.index, Constant(I64, 2)))
        pairs = masked.pairs if masked else None
        return memory.load_every_other(builder, pointer, dtype, lanes, pairs or (None, None))

    def store(self, number: int, value: Value) -> None:
        """Writes the operand's elements."""
        operand, base = self.operands[number], self.bases[number]
        builder, lanes = self.builder, self.lanes
        value = self._splat(value)
        if self._still(number):
            if lanes > 1:
                value = builder.extract_element(value, Constant(I64, 0))
            memory.store(builder, value, base, operand.dtype, 1)
        elif operand.stride_class in (CONTIGUOUS, ACROSS):
            pointer = self._element(number, self.index)
            memory.store(builder, value, pointer, operand.dtype, lanes, self._needed(number))
        elif operand.stride_class == REVERSED and lanes > 1:
            pointer = self._last(number)
            memory.store_backwards(builder, value, pointer, operand.dtype, lanes, self.mask)
        elif operand.stride_class == INTERLEAVED and lanes > 1:
            self._store_interleaved(number, value)
        else:
            self._scattered(number, self._offsets(number)).store(value)

    def _load_interleaved(self, number: int) -> Value:
        """Reads all interleaved inputs together, unless this block has done so already."""
        builder, dtype, lanes = self.builder, self.operands[number].dtype, self.lanes
        turn, count = self.operands[number].interleaved or (0, 1)
        together = self.access.program.turns(number)
        # Those that are not needed have no base.
        base = next(self.bases[i] for i in together if self.bases[i] is not None)
        masked = self.mask.text if self.mask is not None else ""
        key = builder.block, together[0], base.text, self.index.text, masked, lanes
        there = self.access.separated
        if key not in there:
            own = self._element(number, builder.mul(self.index, Constant(I64, count)))
            first = memory.element(builder, own, Constant(I64, -turn), dtype)
            masks = memory.interleaved_mask(builder, self.mask, count)
            starts = [Constant(I64, i * lanes) for i in range(count)]
            pointers = [memory.element(builder, first, start, dtype) for start in starts]
            pairs = zip(pointers, masks, strict=True)
            vectors = [memory.load(builder, at, dtype, lanes, mask) for at, mask in pairs]
            there[key] = memory.separated(builder, vectors)
        return there[key][turn]

    def _store_interleaved(self, number: int, value: Value) -> None:
        """Holds a vector until there is one for each output, then writes all of them
        interleaved."""
        there = self.access.interleaved
        there[number] = value
        _, count = self.operands[number].interleaved or (0, 1)
        if len(there) < count:
            return
        first = min(there)
        dtype, builder = self.operands[first].dtype, self.builder
        vectors = [vector for _, vector in sorted(there.items())]
        start = builder.mul(self.index, Constant(I64, count))
        masks = memory.interleaved_mask(builder, self.mask, count)
        whole = memory.interleaved(builder, vectors)
        for i, (vector, mask) in enumerate(zip(whole, masks, strict=True)):
            pointer = self._element(first, builder.add(start, Constant(I64, i * self.lanes)))
            memory.store(builder, vector, pointer, dtype, self.lanes, mask)
        there.clear()

    def _chosen(self, number: int, extra: int, index: Value) -> Value:
        """The offsets of the elements that an index chooses."""
        factor = self._splat(self.access.extra[extra])
        offsets = self.builder.mul(self._splat(index), factor)
        if self._still(number):
            return offsets
        return self.builder.add(offsets, self._offsets(number))

    def gather(self, chosen: tuple[int, int], index: Value) -> Value:
        """Reads the elements of an operand that an index chooses."""
        number, extra = chosen
        dtype, builder = self.operands[number].dtype, self.builder
        together = self.operands[number].stride_class == CONTIGUOUS and self.index is not None
        if together and index.type.lanes == 1:
            # All lanes have the same index, so the elements they read are contiguous.
            offset = builder.add(builder.mul(index, self.access.extra[extra]), self.index)
            pointer = self._element(number, offset)
            return memory.load(builder, pointer, dtype, self.lanes, self.mask)
        return self._scattered(number, self._chosen(number, extra, index)).load()

    def scatter_add(self, chosen: tuple[int, int], index: Value, value: Value) -> None:
        """Adds to the element of an operand that an index chooses."""
        number, extra = chosen
        builder, dtype = self.builder, self.operands[number].dtype
        pointer = self._element(number, self._chosen(number, extra, index))
        old = memory.load(builder, pointer, dtype, 1)
        add = builder.fadd if dtype.kind == "f" else builder.add
        memory.store(builder, add(old, self._splat(value)), pointer, dtype, 1)

    def check(self, _: object, value: Value) -> None:
        """Sets the status to 1 if any lane of `value` is false."""
        builder, lanes, pointer = self.builder, self.lanes, self.access.status
        bad = builder.xor(self._splat(value), memory.full_mask(lanes))
        if self.mask is not None:
            bad = builder.and_(bad, self.mask)
        if lanes > 1:
            bad = builder.any(bad)
        status = builder.load(pointer, I32, 4)
        builder.store(builder.or_(status, builder.zext(bad, I32)), pointer, 4)
