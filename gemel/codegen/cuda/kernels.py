"""Kernels as CUDA C++, for GPUs: loops on a grid of threads, products by tiles of their results.

As in `c.kernels`, functions such as exp have the same bits as in machine code for processors, with
``-fmad=false``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from gemel.codegen.c.kernels import printed
from gemel.codegen.c.values import Functions
from gemel.codegen.cuda.grid import ATOMIC, GridText
from gemel.codegen.cuda.groups import GroupText
from gemel.codegen.cuda.places import HEAD as PLACES_HEAD
from gemel.codegen.cuda.shared import THREADS
from gemel.codegen.cuda.tensor import TensorText
from gemel.codegen.cuda.tiles import TileText
from gemel.codegen.cuda.turned import TurnedText, turned_loads
from gemel.codegen.language.program import INDEX, INNER, Program

HEAD = """\
#ifndef GEMEL_HOST
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define INT8_MIN (-128)
#define INT16_MIN (-32768)
#define INT32_MIN (-2147483647 - 1)
#define INT64_MIN (-9223372036854775807LL - 1)
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)
#define roundeven rint
#define roundevenf rintf
#endif
"""


def source(programs: Sequence[Program], name: str = "kernel") -> str:
    """CUDA C++ with a kernel per program: `name`, or `name`0, `name`1, ... for several."""
    return printed(programs, name, Functions("static __device__"), _kind_of, HEAD + PLACES_HEAD)


def _kind_of(program: Program) -> type[GridText]:
    """The way a program is printed."""
    if not program.in_tiles:
        return TurnedText if turned_loads(program) else GridText
    schedule = program.parsed_schedule
    if schedule.groups:
        return GroupText
    return TensorText if schedule.tensor else TileText


def form(program: Program) -> bytes:
    """What the launch of a program's kernel depends on: the struct `Form` of src/cuda/grid.h."""
    text = _kind_of(program)(Functions(), program, "")
    names = {step.name for step in program.code}
    added = [step.operand or 0 for step in program.code if step.name == "scatter_add"]
    schedule = program.parsed_schedule
    tile = (schedule.rows, schedule.columns, THREADS) if program.in_tiles else (0, 0, 0)
    return struct.pack(
        "<14i",
        sum(operand.role != INDEX for operand in program.operands),
        program.first_scalar + len(program.scalars),
        program.outer,
        program.inner,
        program.vectors_along == INNER,
        "scan" in names,
        any(program.operands[number].dtype.name not in ATOMIC for number in added),
        text.partial_bytes,
        "check" in names,
        bool(turned_loads(program)),
        *tile,
        text.shared_bytes,
    )


__all__ = ["form", "source"]
