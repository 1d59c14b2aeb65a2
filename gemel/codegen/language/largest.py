"""Simplifications where a row's maximum is subtracted from it: less work for the same numbers.

The exponential of a - max(a) needs no upper bound, nor does that of -abs(a). And if a NaN of `a`
reaches everything that is written by another path (in softmax, through the sum of the
exponentials), the maximum need not propagate NaN: its result matters only if there is no NaN.
"""

from __future__ import annotations

from gemel.codegen.language.program import FUNCTIONS, ROOTS, Instruction, Program

#: Floating-point instructions whose result is NaN if an argument is.
CARRIES = frozenset(("add", "subtract", "multiply", "divide", "negative", *FUNCTIONS))
#: Reductions that are NaN if a value is; these keep their NaN checks.
COLLECTS = ("sum", "prod")


def spared(program: Program) -> Program:
    """The same program with `exp_falling` for `exp` and `most` for `max` where the results are the
    same. Only the printed code changes; the cache key remains that of the original program."""
    code = list(program.code)
    for position, step in enumerate(code):
        if step.name == "exp" and _falls(code, step.arguments[0]):
            code[position] = step._replace(name="exp_falling")
    for position, step in enumerate(code):
        if _is_largest(step) and _finds_nan(code, position):
            code[position] = step._replace(attribute="most")
    return program._replace(code=tuple(code)) if code != list(program.code) else program


def _is_largest(step: Instruction) -> bool:
    return step.name == "reduce" and step.attribute == "max" and step.dtype.kind == "f"


def _falls(code: list[Instruction], position: int) -> bool:
    """Whether this is at most 0: it subtracts the maximum from the values that it is the maximum
    of, or an absolute value from nothing."""
    step = code[position]
    given = [code[argument] for argument in step.arguments]
    if step.name == "negative":
        return given[0].name == "absolute"
    if step.name != "subtract" or not _is_largest(given[1]):
        return False
    return given[1].arguments == step.arguments[:1]


def _finds_nan(code: list[Instruction], largest: int) -> bool:
    """Whether everything written is NaN if one of the values is, whatever their maximum is."""
    (source,) = code[largest].arguments
    #: Instructions that are NaN wherever the source is, and those NaN everywhere if it is anywhere.
    there, everywhere = {source}, set[int]()
    for position, step in enumerate(code):
        reached = [a for a in step.arguments if a in there or a in everywhere]
        if position in (source, largest) or not reached:
            continue
        if step.name == "reduce" and step.attribute in COLLECTS:
            everywhere.add(position)
        elif step.name in CARRIES or step.name == "exp_falling":
            found = there if everywhere.isdisjoint(reached) else everywhere
            found.add(position)
    roots = [step for step in code if step.name in ROOTS]
    return all(step.name == "store" and step.arguments[0] in everywhere for step in roots)
