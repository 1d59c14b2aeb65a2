"""Kernels by what decides them: in memory, else on disk, else compiled."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from gemel._core import cores
from gemel.codegen.program import Program
from gemel.config import DEBUG
from gemel.forking import compiling, on_threads
from gemel.runtime import files
from gemel.runtime.backend import Backend

_kernels: dict[str, Any] = {}
#: How many kernels were compiled, read from disk and found in memory: what counter tests look at.
counters = {"compiled": 0, "loaded": 0, "found": 0}


def kernel_name(program: Program, backend: Backend) -> str:
    """The name a program's kernel is known by."""
    backend = backend.serving(program)
    return files.name_of(program.text, backend.text, files.fingerprint("codegen"))


def known_kernel(name: str, backend: Backend) -> Any:
    """The kernel of that name from memory or disk; None when it is in neither."""
    kernel = _kernels.get(name)
    if kernel is not None:
        counters["found"] += 1
        return kernel
    kernel = files.load(name, "kernel", backend.launch) if backend.on_disk else None
    if kernel is not None:
        counters["loaded"] += 1
        _kernels[name] = kernel
    return kernel


def code_of(name: str) -> bytes | None:
    """The code of the kernel of that name, from disk."""
    return files.load(name, "kernel", bytes)


def loaded_kernel(name: str, code: bytes, backend: Backend) -> Any:
    """The kernel of that name from memory, else of this code."""
    if name not in _kernels:
        counters["loaded"] += 1
        _kernels[name] = backend.launch(code)
    return _kernels[name]


def kernel_for(program: Program, backend: Backend) -> Any:
    """The loaded kernel of a program."""
    backend = backend.serving(program)
    name = kernel_name(program, backend)
    kernel = known_kernel(name, backend)
    if kernel is None:
        kernel = _kernels[name] = _compiled(program, name, backend)
    return kernel


def compile_together(programs: Iterable[Program], backend: Backend) -> None:
    """Compiles those of these programs whose kernels are not known, on all cores."""
    missing: dict[str, tuple[Program, Backend]] = {}
    for program in map(backend.scheduled, programs):
        serving = backend.serving(program)
        name = kernel_name(program, serving)
        if name in _kernels or name in missing or not serving.on_disk:
            continue  # a recipe from elsewhere need not stand several threads
        if known_kernel(name, serving) is None:
            missing[name] = program, serving
    if len(missing) < 2 or cores() < 2:
        return  # `kernel_for` compiles it

    def compiled(name: str) -> bytes:
        program, serving = missing[name]
        return _code(program, serving)

    # Those in tiles take longest: they go first, so that no core is left with one at the end.
    order = sorted(missing, key=lambda name: not missing[name][0].in_tiles)
    with compiling:
        for name, code in zip(order, on_threads(compiled, order, cores()), strict=True):
            _kernels[name] = _loaded(name, code, missing[name][1])


def object_for(program: Program, backend: Backend) -> bytes:
    """The code of a program's kernel, from disk where it is kept."""
    found = code_of(kernel_name(program, backend))
    return backend.printer(program, backend.target) if found is None else found


def _compiled(program: Program, name: str, backend: Backend) -> Any:
    with compiling:
        return _loaded(name, _code(program, backend), backend)


def _code(program: Program, backend: Backend) -> bytes:
    """The code of a program, told where that is wanted."""
    if DEBUG.read():
        shown = f"\n{program.text}" if DEBUG.read() > 1 else " a kernel"
        print(f"gemel: compiling{shown}", file=sys.stderr)
    return backend.printer(program, backend.target)


def _loaded(name: str, code: bytes, backend: Backend) -> Any:
    """The kernel of new code, which is kept."""
    counters["compiled"] += 1
    kernel = backend.launch(code)
    if backend.on_disk:
        files.store(name, "kernel", code)
    return kernel


def clear() -> None:
    """Forget the kernels in memory (those in use stay alive)."""
    _kernels.clear()
