"""Backends: what a program is compiled for, what prints its code, and what makes that startable.

A plan and its kernels are made for one backend, that of the device they are to run on. It is
handed down from there to whatever names, prints, loads or lowers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from gemel import _core
from gemel.codegen.program import Program
from gemel.codegen.schedules import Recipe, compile_program
from gemel.codegen.target import INSTRUCTIONS, Target, has_instruction, host
from gemel.device import Device, current_device

#: From a program to the code of its kernel.
Printer = Callable[[Program, Target], bytes]


class Backend:
    """One way to get from a program to a kernel.

    `target` is what programs are compiled for; `printer` writes a kernel's code; `launch` gives of
    the code what the core's devices can start. `text` is what all of it depends on: part of every
    key under which a kernel or a plan is kept. `recipes` are other ways to do loops.
    """

    __slots__ = ("launch", "on_disk", "plain", "printer", "recipes", "target", "text")

    def __init__(self, target: Target, printer: Printer, launch: Callable[[bytes], Any]) -> None:
        self.target = target
        self.printer = printer
        self.launch = launch
        self.recipes: tuple[Recipe, ...] = ()
        #: The one without recipes.
        self.plain = self
        #: Whether kernels and plans made for it are kept on disk: all that decides them is known.
        self.on_disk = True
        # The level does not say whether there are these, which products are planned for.
        there = (name for name in INSTRUCTIONS if has_instruction(target, name))
        self.text = " ".join([target.text, *there])

    def extended(self, recipes: Sequence[Recipe]) -> Backend:
        """The same with other ways to do loops, the first that suits before the others."""
        if not recipes:
            return self
        found = Backend(self.target, partial(compile_program, recipes=recipes), self.launch)
        found.recipes, found.plain = tuple(recipes), self
        found.on_disk = False  # nobody knows what a recipe from elsewhere looks at
        numbers = (_recipes.setdefault(recipe, len(_recipes)) for recipe in recipes)
        found.text = f"{self.text} recipes {list(numbers)}"
        return found

    def serving(self, program: Program) -> Backend:
        """The one whose kernel of a program is used: the plain one's, if no recipe prints it."""
        by_recipe = not program.in_tiles and " " in program.schedule
        return self if by_recipe else self.plain

    def needs(self, program: Program) -> Target:
        """What a machine must be to run the program's kernel."""
        return self.target.with_instruction(program.way.instruction)

    def scheduled(self, program: Program) -> Program:
        """The program by the first recipe that suits, or as it is."""
        ways = (recipe.chosen(program) for recipe in self.recipes)
        return next((found for found in ways if found is not program), program)


#: The object code of a program, by LLVM.
native_code: Printer = compile_program


_native: list[Backend] = []
#: The recipes this process has met, numbered.
_recipes: dict[Recipe, int] = {}


def backend_of(device: Device) -> Backend:
    """The backend of a device. All there are, simulated GPUs too, run on this machine's cores."""
    if not _native:  # finding the host's target reads a file
        _native.append(Backend(host(), native_code, _core.load_object))
    return _native[0]


def backend_for(values: Iterable[Any]) -> Backend:
    """The backend of the device these arrays lie on; of the current one where there are none."""
    device = next((value.device for value in values if hasattr(value, "device")), None)
    return backend_of(device or current_device())


__all__ = ["Backend", "backend_for", "backend_of", "native_code"]
