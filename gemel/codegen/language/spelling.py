"""How instructions are spelled in LLVM, C and NumPy: one table.

An instruction that a language lacks is expressed by other instructions (`mathlib.expansion`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gemel.codegen.language.program import Instruction


class Spelling(NamedTuple):
    """An instruction for arguments of one kind; empty where a language lacks it.

    `llvm` is a method of `assembly.Builder`, with its sign, or an intrinsic; `needs` is the feature
    of a target that this requires. `c` is an expression in a, b and c; T is their type, U the
    unsigned type they wrap around in, f the suffix of C's functions. `numpy` is a function.
    """

    llvm: str = ""
    c: str = ""
    numpy: str = ""
    needs: str = ""


def _arithmetic(sign: str, llvm: str, boolean: str, logical: str) -> dict[str, Spelling]:
    numpy = {"+": "add", "-": "subtract", "*": "multiply"}[sign]
    return {
        "f": Spelling(f"f{llvm}", f"{{a}} {sign} {{b}}", numpy),
        "iu": Spelling(llvm, f"({{T}})(({{U}}){{a}} {sign} ({{U}}){{b}})", numpy),
        "b": _boolean(boolean, logical),
    }


def _boolean(sign: str, numpy: str) -> Spelling:
    return Spelling({"&": "and_", "|": "or_", "^": "xor"}[sign], f"{{a}} {sign} {{b}}", numpy)


def _bits(sign: str, numpy: str) -> dict[str, Spelling]:
    bools = _boolean(sign, numpy)
    return {"iu": bools._replace(c=f"({{T}})({bools.c})"), "b": bools}


def _comparison(sign: str, numpy: str) -> dict[str, Spelling]:
    floating = "fcmp_unordered" if sign == "!=" else "fcmp_ordered"
    instructions = {"f": floating, "i": "icmp_signed", "ub": "icmp_unsigned"}
    c = f"{{a}} {sign} {{b}}"
    return {kind: Spelling(f"{name} {sign}", c, numpy) for kind, name in instructions.items()}


def _extreme(sign: str, boolean: str, logical: str) -> dict[str, Spelling]:
    """NaN wins; of two zeros, the second is chosen."""
    return {
        "f": Spelling(c=f"{{a}} {sign} {{b}} || {{a}} != {{a}} ? {{a}} : {{b}}"),
        "iu": Spelling(c=f"{{a}} {sign} {{b}} ? {{a}} : {{b}}"),
        "b": _boolean(boolean, logical),
    }


def _rounding(name: str, llvm: str) -> dict[str, Spelling]:
    return {"f": Spelling(f"llvm.{llvm}", f"{name}{{f}}({{a}})", name, needs="rounds")}


_WRAPPED_NEGATIVE = "({T})(0 - ({U}){a})"
#: C's operators, which `assembly.Builder` takes, too. The names are those of NumPy's functions.
COMPARISONS = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_TABLE = {
    "add": _arithmetic("+", "add", "|", "logical_or"),
    "subtract": _arithmetic("-", "sub", "^", "logical_xor"),
    "multiply": _arithmetic("*", "mul", "&", "multiply"),
    "divide": {"f": Spelling("fdiv", "{a} / {b}", "true_divide")},
    "negative": {
        "f": Spelling("fneg", "-{a}", "negative"),
        "iu": Spelling("", _WRAPPED_NEGATIVE, "negative"),
    },
    "absolute": {
        "f": Spelling("llvm.fabs", "fabs{f}({a})", "absolute"),
        "i": Spelling("", f"{{a}} < 0 ? {_WRAPPED_NEGATIVE} : {{a}}", "absolute"),
        "ub": Spelling("", "{a}", "absolute"),
    },
    "sqrt": {"f": Spelling("llvm.sqrt", "sqrt{f}({a})", "sqrt")},
    "floor": _rounding("floor", "floor"),
    "ceil": _rounding("ceil", "ceil"),
    "rint": _rounding("rint", "roundeven"),
    "trunc": _rounding("trunc", "trunc"),
    "floor_divide": {"fiu": Spelling(numpy="floor_divide")},
    "remainder": {"fiu": Spelling(numpy="remainder")},
    "multiply_add": {"f": Spelling("llvm.fma", "fma{f}({a}, {b}, {c})", needs="fma")},
    "maximum": _extreme(">", "|", "logical_or"),
    "minimum": _extreme("<", "&", "logical_and"),
    "isnan": {"f": Spelling("", "{a} != {a}", "isnan"), "iub": Spelling("", "false", "isnan")},
    **{name: _comparison(sign, name) for name, sign in COMPARISONS.items()},
    "select": {"b": Spelling("select", "{a} ? {b} : {c}", "where")},
    "bit_and": _bits("&", "bitwise_and"),
    "bit_or": _bits("|", "bitwise_or"),
    "bit_xor": _bits("^", "bitwise_xor"),
    "bit_not": {"iu": Spelling("", "({T})~{a}", "invert"), "b": Spelling("", "!{a}", "invert")},
    "shift_left": {"iu": Spelling(numpy="left_shift")},
    "shift_right": {"iu": Spelling(numpy="right_shift")},
    "shift_left_within": {"iu": Spelling("shl", "({T})(({U}){a} << {b})")},
    "shift_right_within": {
        "i": Spelling("ashr", "({T})({a} >> {b})"),
        "u": Spelling("lshr", "({T})({a} >> {b})"),
    },
    "multiply_high": {"u": Spelling("", "(uint32_t)((uint64_t){a} * {b} >> 32)")},
    "quotient": {"iu": Spelling("", "({T})({a} / {b})")},
}
#: Spellings by an instruction's name and the kind of its first argument.
SPELLINGS = {
    (name, kind): spelling
    for name, several in _TABLE.items()
    for kinds, spelling in several.items()
    for kind in kinds
}
_NONE = Spelling()


def spelled(name: str, kind: str) -> Spelling:
    """The spelling of an instruction for arguments of this kind."""
    return SPELLINGS.get((name, kind), _NONE)


def looked_up(step: Instruction, code: Sequence[Instruction]) -> str:
    """The name under which an instruction is looked up: a shift by a constant below the number of
    bits needs no check."""
    if step.name not in ("shift_left", "shift_right"):
        return step.name
    amount = code[step.arguments[1]]
    known = amount.name == "constant" and isinstance(amount.attribute, int)
    within = known and 0 <= amount.attribute < 8 * step.dtype.itemsize  # type: ignore[operator]
    return f"{step.name}_within" if within else step.name
