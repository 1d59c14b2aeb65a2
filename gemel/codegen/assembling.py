"""Many kernels at a time: this thread prints programs, and others make code of what it has printed.

The other threads are the core's and need no Python lock. Threads of Python would wait for it before
and after each call of LLVM, up to five milliseconds each time, while this thread goes on.
"""

from __future__ import annotations

from gemel._core import Assembler
from gemel.codegen.language.program import Program
from gemel.codegen.llvm.libllvm import library
from gemel.codegen.llvm.objects import Assembly, emit_object, loadable, refused
from gemel.codegen.schedules import assembly_of
from gemel.codegen.target import Target
from gemel.process.forking import awaited


class Assembling:
    """Makes code of programs for a target while others are given.

    To be used in a `with` block: no thread outlives it. Raises `CompileError` as `compile_program`
    does: `give` for a program that is not valid, `results` for one that LLVM refuses.
    """

    def __init__(self, target: Target, threads: int) -> None:
        self.target, self.threads = target, threads
        self._sources: list[Assembly] = []
        self._found: list[tuple[bytes, str]] = []
        self._assembler: Assembler | None = None

    def __enter__(self) -> Assembling:
        awaited.append(self._settle)
        return self

    def __exit__(self, *error: object) -> None:
        awaited.remove(self._settle)
        self._assembler = None

    def give(self, program: Program, length: int = 0) -> None:
        """Give a program; its length only orders it among others."""
        source = assembly_of(program, self.target)
        direct, fields = library(), source.target.fields
        self._sources.append(source)
        if direct is None:
            return
        if self._assembler is None:
            self._assembler = Assembler(direct, self.threads)
        self._assembler.give(source.text, fields, length)

    def results(self) -> list[bytes]:
        """The code of all programs, in order."""
        if library() is None:
            return [emit_object(*source) for source in self._sources]
        self._settle()
        found = []
        for source, (code, message) in zip(self._sources, self._found, strict=True):
            if message:
                raise refused(message, source)
            found.append(loadable(code, source))
        return found

    def _settle(self) -> None:
        """Wait for what has been given: a child of this process has none of its threads."""
        assembler, self._assembler = self._assembler, None
        if assembler is not None:
            self._found += assembler.finish()
