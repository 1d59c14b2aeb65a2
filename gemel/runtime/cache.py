"""Kernels by name: found in memory, else on disk, else compiled.

The name of a kernel is a hash of its program's text, the backend, and gemel's sources.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from typing import Any

from gemel._core import cores
from gemel.codegen.language.program import ACROSS, INNER, Program
from gemel.config import DEBUG
from gemel.process.forking import compiling
from gemel.process.urgent import urgent
from gemel.runtime import files
from gemel.runtime.backend import Backend, Compilers

_kernels: dict[str, Any] = {}
#: How many kernels were compiled, read from disk and found in memory, for tests.
counters = {"compiled": 0, "loaded": 0, "found": 0}
#: The sources that decide what code a program becomes: the code generator and all it imports.
SOURCES = (
    *("codegen", "config.py", "dtype.py", "errors.py", "extent.py", "forms.py"),
    *("ir/bases.py", "ir/combiner.py", "ir/philox.py", "process/forking.py"),
)


def kernel_name(program: Program, backend: Backend) -> str:
    """The name of a program's kernel, in memory and on disk."""
    backend = backend.serving(program)
    return files.name_of(program.text, backend.text, files.fingerprint(*SOURCES))


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


class Compilation:
    """The kernels of a plan, compiled by threads on the other cores while it is made.

    To be used in a `with` block; forks and exits wait until it has ended.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._given: dict[str, Backend] = {}
        self._asked: set[str] = set()
        self._compilers: Compilers | None = None
        self._held = ExitStack()

    def __enter__(self) -> Compilation:
        self._held.enter_context(compiling)
        return self

    def __exit__(self, *error: Any) -> None:
        self._held.__exit__(*error)

    def start(self, program: Program) -> None:
        """Start to compile the program's kernel, unless it is known."""
        if program.text in self._asked:
            return
        self._asked.add(program.text)
        program = self.backend.scheduled(program)
        serving = self.backend.serving(program)
        if not serving.on_disk:
            return  # a user's recipe need not be safe for threads
        name = kernel_name(program, serving)
        if name in self._given or known_kernel(name, serving) is not None:
            return
        self._given[name] = serving
        _announce(program)
        if self._compilers is None:
            made = self.backend.plain.compilers(cores() - 1)
            self._compilers = self._held.enter_context(made)
        self._compilers.give(program, work(program))

    def finish(self) -> None:
        """Wait for all of them; from then on `kernel_for` has them."""
        codes = [] if self._compilers is None else self._compilers.results()
        for name, code in zip(self._given, codes, strict=True):
            _kernels[name] = self._given[name].launch(code)
            _keep(name, code, self._given[name])


def work(program: Program) -> int:
    """A rough cost of compiling a program, to start with the longest.

    The tiles of products are unrolled, and so are transposed squares and reductions along vectors.
    """
    length = 8 * len(program.code)
    if program.in_tiles:
        return length + (100 if program.schedule.endswith("copy") else 500)
    transposes = any(operand.stride_class == ACROSS for operand in program.operands)
    return length + 300 * (transposes or program.vectors_along == INNER)


def object_for(program: Program, backend: Backend) -> bytes:
    """The code of a program's kernel: read from disk if it is there, else compiled."""
    code = code_of(kernel_name(program, backend))
    if code is None:
        with compiling:
            code = backend.generate(program, backend.target)
    return code


def _compiled(program: Program, name: str, backend: Backend) -> Any:
    with compiling:
        _announce(program)
        code = backend.generate(program, backend.target)
        _keep(name, code, backend)
        return backend.launch(code)


def _announce(program: Program) -> None:
    """Say under GEMEL_DEBUG that a program is compiled."""
    if DEBUG.read():
        shown = f"\n{program.text}" if DEBUG.read() > 1 else " a kernel"
        print(f"gemel: compiling{shown}", file=sys.stderr)


def _keep(name: str, code: bytes, backend: Backend) -> None:
    """Write the code of a new kernel to disk, once nobody waits for it to run."""
    counters["compiled"] += 1
    if backend.on_disk:
        urgent.afterwards(partial(files.store, name, "kernel", code))


def clear() -> None:
    """Forget the kernels in memory (those in use stay alive)."""
    _kernels.clear()
