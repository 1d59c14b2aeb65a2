"""Schedules: the code that turns a program into LLVM assembly, by the first word of its schedule.

A way to compute loops from outside of gemel is a `Recipe`, see docs/extending.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from gemel.codegen.language.program import Program
from gemel.codegen.target import Target
from gemel.errors import ArgumentError, CompileError, OperandError, unknown_name

if TYPE_CHECKING:
    from gemel.codegen.llvm.objects import Assembly

#: The modules with `emit(program, target)`; they are imported when something is compiled.
EMITTERS = {
    "outer": "gemel.codegen.loops.either",
    "inner": "gemel.codegen.loops.either",
    "gemm": "gemel.codegen.tiles.gemm",
    "amx": "gemel.codegen.tiles.amx",
    "dot": "gemel.codegen.tiles.dot",
    "pack": "gemel.codegen.tiles.pack",
}

#: How a module defines the function that is called.
KERNEL = re.compile(r"^\s*define\b.*@\"?kernel\"?\s*\(", re.MULTILINE)


class Recipe(NamedTuple):
    """Another way to compute programs in loops, for those that `suits` accepts.

    `emit(program, target)` returns an LLVM module with the function ``kernel``, which takes the
    same arguments and computes the same as the program's own schedule. The name, one word, is
    appended to the schedule's text.
    """

    name: str
    suits: Callable[[Program], bool]
    emit: Callable[[Program, Target], Any]

    def chosen(self, program: Program) -> Program:
        """The program with this recipe, if it suits."""
        if program.in_tiles or not self.suits(program):
            return program
        return program._replace(schedule=f"{program.schedule} {self.name}")


def checked(recipes: Sequence[Recipe]) -> tuple[Recipe, ...]:
    """Recipes with distinct names.

    Raises `OperandError` for what is not a list of recipes with functions, and `ArgumentError` for
    a name that is not one word or not unique.
    """
    alone = isinstance(recipes, Recipe) or not isinstance(recipes, (list, tuple))
    if alone or not all(isinstance(each, Recipe) for each in recipes):
        raise OperandError("compile: recipes= must be a list of codegen.schedules.Recipe")
    names = [recipe.name for recipe in recipes]
    for name, suits, emit in recipes:
        if not callable(suits) or not callable(emit):
            raise OperandError(f"compile: suits and emit of the recipe {name!r} must be functions")
        if not isinstance(name, str) or not name.isidentifier() or names.count(name) > 1:
            raise ArgumentError(
                f"compile: a recipe is named {name!r}; its name must be one word that no other "
                "recipe has"
            )
    return tuple(recipes)


def compile_program(program: Program, target: Target, recipes: Sequence[Recipe] = ()) -> bytes:
    """The machine code of a program: an ELF object with the one function ``kernel``.

    Raises `CompileError` if the program is not valid, if its code needs an outside symbol or has no
    function ``kernel``, and `UnknownNameError` if no known code emits its schedule.
    """
    from gemel.codegen.llvm.objects import emit_object

    recipe = program.parsed_schedule.recipe
    named = {recipe.name: recipe.emit for recipe in recipes}
    if recipe:
        if recipe not in named:
            raise unknown_name("schedule", recipe, named)
        return _by_recipe(recipe, named[recipe](program, target), program, target)
    return emit_object(*assembly_of(program, target))


def assembly_of(program: Program, target: Target) -> Assembly:
    """The LLVM assembly of a program without a recipe. Raises `CompileError` if it is not valid."""
    from gemel.codegen.llvm.objects import Assembly

    schedule = program.parsed_schedule
    target = target.with_extension(schedule.extension)
    code = import_module(EMITTERS[schedule.kind]).emit(program, target)
    return Assembly(str(code), target, program.text)


def _by_recipe(name: str, code: Any, program: Program, target: Target) -> bytes:
    """The machine code of what a recipe returned. Raises `CompileError`, which names the recipe."""
    from gemel.codegen.llvm.objects import emit_object

    if not KERNEL.search(str(code)):
        raise CompileError(
            f"compile: the recipe {name!r} returned {code!r}, which is not an LLVM module with the "
            "function kernel"
        )
    try:
        return emit_object(str(code), target, program.text)
    except CompileError as error:
        raise CompileError(f"compile: the recipe {name!r}: {error}") from None


__all__ = ["Recipe", "assembly_of", "checked", "compile_program"]
