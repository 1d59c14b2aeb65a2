"""Kernels by what decides them: in memory, else on disk, else compiled."""

from __future__ import annotations

import sys
from typing import Any

from gemel import _core
from gemel.codegen.program import Contraction, Program
from gemel.codegen.target import Target
from gemel.config import DEBUG
from gemel.forking import compiling
from gemel.runtime import files

_kernels: dict[str, Any] = {}
#: How many kernels were compiled, read from disk and found in memory: what counter tests look at.
counters = {"compiled": 0, "loaded": 0, "found": 0}


def kernel_name(program: Program | Contraction, target: Target) -> str:
    """The name a program's kernel is known by."""
    return files.name_of(program.text, target.text, files.fingerprint("codegen"))


def known_kernel(name: str) -> Any:
    """The kernel of that name from memory or disk; None when it is in neither."""
    kernel = _kernels.get(name)
    if kernel is not None:
        counters["found"] += 1
        return kernel
    kernel = files.load(name, "kernel", _core.load_object)
    if kernel is not None:
        counters["loaded"] += 1
        _kernels[name] = kernel
    return kernel


def kernel_for(program: Program | Contraction, target: Target) -> Any:
    """The loaded kernel of a program."""
    name = kernel_name(program, target)
    kernel = known_kernel(name)
    if kernel is None:
        kernel = _kernels[name] = _compiled(program, name, target)
    return kernel


def compile_program(program: Program | Contraction, target: Target) -> bytes:
    """The object code of a program, by the compiler."""
    if isinstance(program, Contraction):
        from gemel.codegen.contract import compile_contraction

        return compile_contraction(program, target)
    from gemel.codegen.llvm import compile_program as compile_loops

    return compile_loops(program, target)


def object_for(program: Program | Contraction, target: Target) -> bytes:
    """The object code of a program, from disk where it is kept."""
    found = files.load(kernel_name(program, target), "kernel", bytes)
    return compile_program(program, target) if found is None else found


def _compiled(program: Program | Contraction, name: str, target: Target) -> Any:
    counters["compiled"] += 1
    if DEBUG.read():
        shown = f"\n{program.text}" if DEBUG.read() > 1 else " a kernel"
        print(f"gemel: compiling{shown}", file=sys.stderr)
    with compiling:
        code = compile_program(program, target)
    kernel = _core.load_object(code)
    files.store(name, "kernel", code)
    return kernel


def clear() -> None:
    """Forget the kernels in memory (those in use stay alive)."""
    _kernels.clear()
