"""Matrix products for tests: a sum of products, its epilogue, and the steps that compute it."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy

from gemel.codegen.contract import planner
from gemel.codegen.contract.planner import ProductStep
from gemel.codegen.contract.task import WindowAxes
from gemel.codegen.language.order import stride_class
from gemel.codegen.language.program import INPUT, OUTER, Instruction, Operand, Program
from gemel.codegen.target import Target
from gemel.dtype import DType, bfloat16


class Described(NamedTuple):
    """The epilogue of a product: operands, scalars and code; instruction 0 stands for the sum.

    `lasts` are the axes along which a and b have stride 1; `kept` the dtypes they are stored in.
    """

    dtype: DType
    lasts: tuple[str, str]
    operands: tuple[Operand, ...]
    scalars: tuple[DType, ...]
    code: tuple[Instruction, ...]
    kept: tuple[DType, DType] | None = None


def code_of(product: Described) -> tuple[Instruction, ...]:
    """All instructions: loads, products, the sum and the epilogue."""
    dtype, factors = product.dtype, []
    found: list[Instruction] = []
    for number, kept in enumerate(product.kept or (dtype, dtype)):
        found.append(Instruction("load", kept, (), number))
        if kept is not dtype:
            found.append(Instruction("cast", dtype, (len(found) - 1,)))
        factors.append(len(found) - 1)
    found.append(Instruction("multiply", dtype, tuple(factors)))
    found.append(Instruction("reduce", dtype, (len(found) - 1,), "sum"))
    first = len(found) - 1
    for step in product.code[1:]:
        arguments = tuple(position + first for position in step.arguments)
        attribute: Any = step.attribute
        moved = attribute + 2 if step.name in ("load", "store") else attribute
        found.append(Instruction(step.name, step.dtype, arguments, moved))
    return tuple(found)


def in_loops(
    product: Described,
    sizes: tuple[int, int, int],
    a: Sequence[int],
    b: Sequence[int],
    operands: Sequence[Sequence[int]],
    batch: tuple[int, int] = (1, 1),
    windows: WindowAxes | None = None,
) -> tuple[Program, list[int]]:
    """A product written as loops, and its run-time integers.

    `a` and `b` are (stride of the axis whose stride is not 1, outer batch stride, inner one). Each
    of `operands` has a row stride, a column stride, and an outer and an inner batch stride.
    """
    m, n, k = sizes
    n_axes = windows.n if windows else [(n, b[0] if product.lasts[1] == "k" else 1)]
    k_axes = windows.k if windows else [(k, b[0] if product.lasts[1] == "n" else 1)]
    lengths = [extent for extent, _ in n_axes], [extent for extent, _ in k_axes]

    def spread(stride: int, axis: int) -> list[int]:
        return [stride * prod(lengths[axis][i + 1 :]) for i in range(len(lengths[axis]))]

    row, along = (a[0], 1) if product.lasts[0] == "k" else (1, a[0])
    none = [0] * len(n_axes), [0] * len(k_axes)
    strides = [
        [*a[1:], row, *none[0], *spread(along, 1)],
        [*b[1:], 0, *(stride for _, stride in n_axes), *(stride for _, stride in k_axes)],
    ]
    for own_row, column, outer, inner in operands:
        strides.append([outer, inner, own_row, *spread(column, 0), *none[1]])
    kinds = (0, stride_class(n_axes[-1][1]))
    kept = product.kept or (product.dtype,) * 2
    own = [Operand(d, INPUT, kind, True) for d, kind in zip(kept, kinds, strict=True)]
    program = Program(
        3 + len(n_axes),
        len(k_axes),
        OUTER,
        (*own, *product.operands),
        product.scalars,
        0,
        code_of(product),
    )
    integers = [*batch, m, *lengths[0], *lengths[1], *(s for each in strides for s in each)]
    return program, integers


def steps(
    product: Described,
    target: Target,
    m: int,
    n: int,
    k: int,
    a: Sequence[int],
    b: Sequence[int],
    operands: Sequence[Sequence[int]],
    batch: tuple[int, int] = (1, 1),
    often: bool = False,
    windows: WindowAxes | None = None,
) -> list[ProductStep]:
    """The steps that compute a product; the arguments are those of `in_loops`."""
    program, integers = in_loops(product, (m, n, k), a, b, operands, batch, windows)
    return planner.steps(program, integers, product.lasts, target, often, windows)


def at_the_end(elements: int, dtype: DType) -> Any:
    """An array that ends before an unreadable page: a read past it would end the program."""
    size = elements * dtype.itemsize
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + mmap.PAGESIZE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(base + pages), mmap.PAGESIZE, 0) == 0
    kind = "uint16" if dtype is bfloat16 else dtype.name
    return numpy.frombuffer(memory, kind, elements, pages - size)
