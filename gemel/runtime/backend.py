"""Backends: the target a kernel is compiled for, and how its code is printed and loaded.

A plan and its kernels are made for one backend, that of the device they will run on. The backend is
passed down to all code that names, prints, loads or lowers kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol

from gemel import _core
from gemel.codegen.language.program import Program
from gemel.codegen.schedules import Recipe, compile_program
from gemel.codegen.target import EXTENSIONS, Target, cuda, has_extension, host
from gemel.device import Device, current_device, gpu_capability
from gemel.process.forking import Helpers

if TYPE_CHECKING:
    from gemel.ir.graph import Graph

#: With so many nodes, a graph needs kernels that are not known yet, and takes long to optimize.
MANY = 20

#: From a program to the code of its kernel.
CodeGenerator = Callable[[Program, Target], bytes]


class Compilers(Protocol):
    """Makes the code of programs while others are given; no thread outlives the `with` block."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *error: Any) -> None: ...

    def give(self, program: Program, length: int) -> None:
        """Give a program; its length only orders it among others."""

    def results(self) -> list[bytes]:
        """The code of all programs, in order."""


class Backend:
    """One way to get from a program to a kernel.

    `target` is the processor programs are compiled for; `generate` turns a program into code, and
    `several` makes what does so for many; `launch` turns the code into a kernel the core can start.
    `text` identifies the backend in the keys of kernels and plans. `recipes` are a user's schedules
    for loops.
    """

    __slots__ = ("generate", "launch", "on_disk", "plain", "recipes", "several", "target", "text")

    def __init__(
        self,
        target: Target,
        generate: CodeGenerator,
        launch: Callable[[bytes], Any],
        several: Callable[[Target, int], Compilers] | None = None,
    ) -> None:
        self.target = target
        self.generate = generate
        self.launch = launch
        self.several = several
        self.recipes: tuple[Recipe, ...] = ()
        #: The same backend without recipes.
        self.plain = self
        #: Whether kernels and plans made for it may be kept on disk.
        self.on_disk = True
        # Instructions some products are planned for, which the vector level alone does not imply.
        there = (name for name in EXTENSIONS if has_extension(target, name))
        self.text = " ".join([target.text, *there])

    def extended(self, recipes: Sequence[Recipe]) -> Backend:
        """This backend with recipes; for each loop the first that suits is used. Recipes write code
        for processors, so a GPU's backend has none."""
        if not recipes or self.target.grid:
            return self
        extended = Backend(self.target, partial(compile_program, recipes=recipes), self.launch)
        extended.recipes, extended.plain = tuple(recipes), self
        extended.on_disk = False  # what a user's recipe depends on is not known
        numbers = (_recipes.setdefault(recipe, len(_recipes)) for recipe in recipes)
        extended.text = f"{self.text} recipes {list(numbers)}"
        return extended

    def compilers(self, threads: int) -> Compilers:
        """What makes the code of several programs, on so many threads besides this one."""
        if self.several is not None:
            return self.several(self.target, threads)
        return Helpers(lambda program: self.generate(program, self.target), threads)

    def expect(self, graph: Graph) -> None:
        """Prepare for the kernels of a graph that is about to be optimized."""
        if self.several is not None and len(graph.walk()) >= MANY:
            from gemel.codegen.llvm.libllvm import open_soon

            open_soon()

    @property
    def printed(self) -> Callable[[Sequence[Program]], str]:
        """How programs are printed for readers: as CUDA C++ for a GPU, else as C."""
        if self.target.grid:
            from gemel.codegen import cuda

            return cuda.source
        from gemel.codegen import c

        return c.source

    def passes(self, chosen: Sequence[Any] | None = None) -> tuple[Any, ...]:
        """The passes for a graph: the pipeline or `chosen` ones, as this kind of device needs
        them."""
        from gemel.passes import FOR_GPUS, NOT_FOR_GPUS, PIPELINE

        steps = tuple(PIPELINE if chosen is None else chosen)
        if not self.target.grid:
            return steps
        return (*FOR_GPUS, *(step for step in steps if step not in NOT_FOR_GPUS))

    def serving(self, program: Program) -> Backend:
        """The backend whose kernel of a program is used: the plain one if no recipe applies."""
        by_recipe = not program.in_tiles and " " in program.schedule
        return self if by_recipe else self.plain

    def needs(self, program: Program) -> Target:
        """The target that can run the program's kernel: this one, perhaps with an extension."""
        return self.target.with_extension(program.parsed_schedule.extension)

    def scheduled(self, program: Program) -> Program:
        """The program as changed by the first recipe that suits, or unchanged."""
        ways = (recipe.chosen(program) for recipe in self.recipes)
        return next((way for way in ways if way is not program), program)


#: The object code of a program, by LLVM.
native_code: CodeGenerator = compile_program


def _assembling(target: Target, threads: int) -> Compilers:
    from gemel.codegen.assembling import Assembling

    return Assembling(target, threads)


def gpu_code(program: Program, target: Target) -> bytes:
    """The code of a program for a GPU, after what its launch depends on. By NVIDIA's compiler."""
    from gemel.codegen.cuda import form, nvrtc, source

    return form(program) + nvrtc.machine_code(source([program]), target.cpu)


_native: list[Backend] = []
#: The recipes this process has met, numbered.
_recipes: dict[Recipe, int] = {}


def backend_of(device: Device) -> Backend:
    """The backend of a device. CPUs and simulated GPUs run on this machine's cores."""
    if device.linked and not device.simulated:
        return _gpu_backend(gpu_capability(device.device_id))
    if not _native:  # finding the host's target reads a file
        _native.append(Backend(host(), native_code, _core.load_object, _assembling))
    return _native[0]


@cache
def _gpu_backend(capability: int) -> Backend:
    return Backend(cuda(capability), gpu_code, _core.load_gpu_kernel)


def backend_for(values: Iterable[Any]) -> Backend:
    """The backend of the device these arrays are on; of the current one if there are no arrays."""
    device = next((value.device for value in values if hasattr(value, "device")), None)
    return backend_of(device or current_device())


__all__ = ["Backend", "backend_for", "backend_of", "native_code"]
