"""What is taken from a row's largest element: less to compute for the same numbers.

Of a - max(a) an exponential needs no upper bound. And where a NaN of `a` reaches all that is
written in another way (through the sum of the exponentials, in softmax), the largest need not look
for it: its result is wanted only where there is none.
"""

from __future__ import annotations

from gemel.codegen.program import FUNCTIONS, ROOTS, Instruction, Program

#: Instructions of floating values whose result is NaN where an argument is.
CARRIES = frozenset(("add", "subtract", "multiply", "divide", "negative", *FUNCTIONS))
#: Reductions that are NaN where a value is, and stay as they are.
COLLECTS = ("sum", "prod")


def spared(program: Program) -> Program:
    """The same program with `exp_falling` for `exp` and `most` for `max` where these give the
    same; it is only printed, its key is the other's."""
    code = list(program.code)
    for position, step in enumerate(code):
        if step.name != "reduce" or step.attribute != "max" or step.dtype.kind != "f":
            continue
        for later in range(position + 1, len(code)):
            if code[later].name == "exp" and _falls(code, code[later].arguments[0], position):
                code[later] = code[later]._replace(name="exp_falling")
        if _finds_nan(code, position):
            code[position] = step._replace(attribute="most")
    return program._replace(code=tuple(code)) if code != list(program.code) else program


def _falls(code: list[Instruction], position: int, largest: int) -> bool:
    """Whether this is what was reduced less its largest."""
    step = code[position]
    return step.name == "subtract" and step.arguments == (*code[largest].arguments, largest)


def _finds_nan(code: list[Instruction], largest: int) -> bool:
    """Whether all that is written is NaN if one of the values is, whatever their largest is."""
    (source,) = code[largest].arguments
    #: What is NaN where the source is, and what is NaN at all places if it is so anywhere.
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
