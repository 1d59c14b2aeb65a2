"""How LLVM's assembly, C and NumPy spell the instructions they have words for: one table."""

from __future__ import annotations

from typing import NamedTuple


class Spelling(NamedTuple):
    """C's operator, and LLVM's instructions of floating values, of whole numbers and of bools."""

    sign: str
    floating: str = ""
    whole: str = ""
    boolean: str = ""


ARITHMETIC = {
    "add": Spelling("+", "fadd", "add", "or"),
    "subtract": Spelling("-", "fsub", "sub", "xor"),
    "multiply": Spelling("*", "fmul", "mul", "and"),
    "bit_and": Spelling("&", "", "and", "and"),
    "bit_or": Spelling("|", "", "or", "or"),
    "bit_xor": Spelling("^", "", "xor", "xor"),
}
#: The operators of bools that two numbers have no operator for.
EXTREMES = {"maximum": "bit_or", "minimum": "bit_and"}
#: C's operators, which `assembly.Builder` takes, too; NumPy's functions have these names.
COMPARISONS = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
#: Functions of <math.h> and of NumPy that are exact, and what LLVM calls them.
ROUNDING = {"floor": "floor", "ceil": "ceil", "rint": "roundeven", "trunc": "trunc"}
EXACT = {"sqrt": "sqrt", **ROUNDING}
#: What NumPy calls other instructions.
NUMPY = {
    **{name: name for name in (*COMPARISONS, "multiply", "absolute", "negative", "sqrt")},
    **{"floor_divide": "floor_divide", "remainder": "remainder", "select": "where"},
    **{"bit_and": "bitwise_and", "bit_or": "bitwise_or", "bit_xor": "bitwise_xor"},
    **{"bit_not": "invert", "shift_left": "left_shift", "shift_right": "right_shift"},
}
