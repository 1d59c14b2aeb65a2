"""Extents: whole numbers, some of which have names.

A `Dim` is the free batch size of a traced function, or what is computed from one. It computes like
an integer; asking something of it that depends on its value records a guard.
"""

from __future__ import annotations

import operator as arithmetic
from collections.abc import Callable, Mapping
from typing import Any

#: An extent as a sum of products of atoms, each with its factor. Equal extents have equal sums.
Form = tuple[tuple[tuple["Atom", ...], int], ...]


class Atom(str):
    """What sums are made of: a name, or a quotient, remainder or extreme of two sums.

    Its text tells it from others. `least` is a number it is never below, None where none is known.
    """

    __slots__ = ("least", "left", "operator", "right")

    operator: str
    left: Form
    right: Form
    least: int | None


def _atom(text: str, least: int | None, operator: str, left: Form, right: Form) -> Atom:
    atom = Atom(text)
    atom.least, atom.operator, atom.left, atom.right = least, operator, left, right
    return atom


class Guard:
    """A comparison of free extents a trace relied on: other values must answer it alike."""

    __slots__ = ("answer", "left", "relation", "right")

    def __init__(self, left: int, relation: str, right: int, answer: bool) -> None:
        self.left = left
        self.relation = relation
        self.right = right
        self.answer = answer

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether the comparison comes out the same for these extents."""
        left, right = evaluate(self.left, values), evaluate(self.right, values)
        return RELATIONS[self.relation](left, right) is self.answer

    def asks(self, left: int, relation: str, right: int) -> bool:
        """Whether it is this comparison."""
        same = self.relation == relation and form_of(self.left) == form_of(left)
        return same and form_of(self.right) == form_of(right)

    def __repr__(self) -> str:
        return f"{'' if self.answer else 'not '}{self.left} {self.relation} {self.right}"


RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": arithmetic.eq,
    "<": arithmetic.lt,
    "<=": arithmetic.le,
}

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": arithmetic.add,
    "-": arithmetic.sub,
    "*": arithmetic.mul,
    "//": arithmetic.floordiv,
    "%": arithmetic.mod,
    "minimum": lambda a, b: minimum(a, b),
    "maximum": lambda a, b: maximum(a, b),
}


class Dim(int):
    """A symbolic extent: an int (the value seen while tracing) that remembers how it was made.

    Sums, products and quotients of dims are dims again. Comparisons answer for the value seen and
    add a `Guard` to the trace's list, unless they hold for every value (n == n; n > 1, since only
    extents above 1 are free). What has no symbolic form (float(n), n / 2) is computed for the
    value seen, and a guard holds on to it. C code sees an int and asks nothing: range(n), [0] * n
    and 1.0 / n go by the value seen.
    """

    form: Form
    guards: list[Guard]

    def __new__(
        cls, value: int, made: str | Form, guards: list[Guard], least: int | None = 2
    ) -> Dim:
        """A dim now `value`: a free size with a name and least value, or a sum."""
        self = int.__new__(cls, value)
        name = isinstance(made, str)
        self.form = (((_atom(made, least, "", (), ()),), 1),) if name else made  # type: ignore[assignment,arg-type]
        self.guards = guards
        return self

    def _join(self, operator: str, other: Any, swap: bool = False) -> Any:
        if isinstance(other, float):
            values = (other, int(self)) if swap else (int(self), other)
            return OPERATORS[operator](*values)
        if not isinstance(other, int):
            return NotImplemented
        left, right = (other, self) if swap else (self, other)
        return combine(operator, left, right, self.guards)

    def __add__(self, other: Any) -> Any:
        return self._join("+", other)

    def __sub__(self, other: Any) -> Any:
        return self._join("-", other)

    def __rsub__(self, other: Any) -> Any:
        return self._join("-", other, swap=True)

    def __mul__(self, other: Any) -> Any:
        return self._join("*", other)

    def __floordiv__(self, other: Any) -> Any:
        return self._join("//", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._join("//", other, swap=True)

    def __mod__(self, other: Any) -> Any:
        return self._join("%", other)

    def __rmod__(self, other: Any) -> Any:
        return self._join("%", other, swap=True)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return 0 - self

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return maximum(self, -self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def _ask(self, relation: str, left: Any, right: Any) -> bool:
        known = compared(relation, left, right)
        if known is not None:
            return known
        answer = RELATIONS[relation](seen(left), seen(right))
        if not any(guard.asks(left, relation, right) for guard in self.guards):
            self.guards.append(Guard(left, relation, right, answer))
        return answer

    def __eq__(self, other: object) -> bool:
        if isinstance(other, float):
            return int(self) == other
        return isinstance(other, int) and self._ask("==", self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        return self._ask("<", self, other) if isinstance(other, int) else int(self) < other

    def __le__(self, other: Any) -> bool:
        return self._ask("<=", self, other) if isinstance(other, int) else int(self) <= other

    def __gt__(self, other: Any) -> bool:
        return self._ask("<", other, self) if isinstance(other, int) else int(self) > other

    def __ge__(self, other: Any) -> bool:
        return self._ask("<=", other, self) if isinstance(other, int) else int(self) >= other

    def __bool__(self) -> bool:
        return not self == 0

    def __hash__(self) -> int:
        return int.__hash__(self)

    def __int__(self) -> int:
        value = seen(self)
        self._ask("==", self, value)
        return value

    def __float__(self) -> float:
        return float(int(self))

    def __round__(self, digits: Any = None) -> Any:
        return self if digits is None or digits >= 0 else round(int(self), digits)

    __trunc__ = __floor__ = __ceil__ = __pos__

    def __repr__(self) -> str:
        return form_text(self.form)

    __str__ = __repr__


def _held(name: str) -> Callable[[Dim, Any], Any]:
    """A method of int that gives up the name."""

    def method(self: Dim, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        number = int(other) if isinstance(other, Dim) else other
        found = getattr(int(self), name)(number)
        return getattr(float(int(self)), name)(number) if found is NotImplemented else found

    return method


for _name in ("truediv", "pow", "lshift", "rshift", "and", "or", "xor"):
    setattr(Dim, f"__{_name}__", _held(f"__{_name}__"))
    setattr(Dim, f"__r{_name}__", _held(f"__r{_name}__"))


def seen(extent: int) -> int:
    """The number an extent was traced with; no guard holds on to it."""
    return int.__int__(extent)


# --- sums -----------------------------------------------------------------------------------


def form_of(extent: int) -> Form:
    """An extent as a sum."""
    if isinstance(extent, Dim):
        return extent.form
    return (((), int(extent)),) if extent else ()


def _added(left: Form, right: Form, factor: int = 1) -> Form:
    terms = dict(left)
    for product, count in right:
        terms[product] = terms.get(product, 0) + factor * count
    return tuple(sorted((product, count) for product, count in terms.items() if count))


def _multiplied(left: Form, right: Form) -> Form:
    found: Form = ()
    for a, m in left:
        found = _added(found, tuple((tuple(sorted((*a, *b))), m * n) for b, n in right))
    return found


def _divided(left: Form, right: Form) -> tuple[Form, Form]:
    """What of a sum a positive product divides without remainder, and the rest."""
    ((divisor, factor),) = right
    quotient, rest = [], []
    for product, count in left:
        others = _without(product, divisor)
        if others is None or product and count % factor:
            rest.append((product, count))
            continue
        whole, over = divmod(count, factor)
        quotient += [(others, whole)] * bool(whole)
        rest += [(product, over)] * bool(over)
    return tuple(sorted(quotient)), tuple(rest)


def _without(product: tuple[Atom, ...], divisor: tuple[Atom, ...]) -> tuple[Atom, ...] | None:
    left = list(product)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _at_least(form: Form, bound: int) -> bool:
    found = least_of(form)
    return found is not None and found >= bound


def least_of(form: Form) -> int | None:
    """A number a sum is never below, where one is known."""
    total = 0
    for product, count in form:
        bound = count
        for atom in product:
            if count < 0 or atom.least is None or atom.least < 0:
                return None
            bound *= atom.least
        total += bound
    return total


def compared(relation: str, left: int, right: int) -> bool | None:
    """The answer of a comparison when it is the same for every value."""
    difference = _added(form_of(right), form_of(left), -1)
    if not difference:
        return relation != "<"
    if _at_least(difference, 0 if relation == "<=" else 1):
        return relation != "=="
    if _at_least(_added((), difference, -1), 0 if relation == "<" else 1):
        return False
    return None


def combine(operator: str, left: int, right: int, guards: list[Guard]) -> int:
    """left operator right, a plain number when it is the same for every value."""
    value = OPERATORS[operator](seen(left), seen(right))
    form = _combined(operator, form_of(left), form_of(right))
    return Dim(value, form, guards) if any(product for product, _ in form) else value


def _combined(operator: str, left: Form, right: Form) -> Form:
    if operator in ("+", "-"):
        return _added(left, right, 1 if operator == "+" else -1)
    if operator == "*":
        return _multiplied(left, right)
    if operator in ("minimum", "maximum"):
        return _extreme(operator, left, right)
    quotient, rest = (
        _divided(left, right) if len(right) == 1 and _at_least(right, 1) else ((), left)
    )
    if _at_least(rest, 0) and _at_least(_added(right, rest, -1), 1):
        return quotient if operator == "//" else rest
    if operator == "//":
        return _added(quotient, _single(operator, rest, right))
    return _single(operator, rest, right)


def _extreme(operator: str, left: Form, right: Form) -> Form:
    if _at_least(_added(left, right, -1), 0):
        return left if operator == "maximum" else right
    if _at_least(_added(right, left, -1), 0):
        return right if operator == "maximum" else left
    return _single(operator, *sorted((left, right)))


def _single(operator: str, left: Form, right: Form) -> Form:
    """An atom as a sum."""
    first, second = least_of(left), least_of(right)
    least = None
    if operator == "maximum":
        least = max((bound for bound in (first, second) if bound is not None), default=None)
    elif operator == "minimum" or operator == "//":
        if first is not None and second is not None and first >= 0 and second >= 0:
            least = min(first, second) if operator == "minimum" else 0
    elif second is not None and second > 0:
        least = 0
    a, b = form_text(left), form_text(right)
    text = (
        f"{operator}({a}, {b})" if operator in ("minimum", "maximum") else f"({a} {operator} {b})"
    )
    return (((_atom(text, least, operator, left, right),), 1),)


def minimum(a: int, b: int) -> int:
    """The smaller of two extents; no guard."""
    return _chosen("minimum", a, b) if isinstance(a, Dim) or isinstance(b, Dim) else min(a, b)


def maximum(a: int, b: int) -> int:
    """The larger of two extents; no guard."""
    return _chosen("maximum", a, b) if isinstance(a, Dim) or isinstance(b, Dim) else max(a, b)


def _chosen(operator: str, a: int, b: int) -> int:
    dim = a if isinstance(a, Dim) else b
    return combine(operator, a, b, dim.guards)  # type: ignore[attr-defined]


def form_text(form: Form) -> str:
    """A sum as text: ``n``, ``4 * n + 1``."""
    text = ""
    for product, count in sorted(form, key=lambda term: not term[0]):
        factors = [*([str(abs(count))] if abs(count) != 1 or not product else []), *product]
        sign = " - " if count < 0 else " + "
        text += (sign if text else sign.strip(" +")) + " * ".join(factors)
    return text or "0"


# --- with numbers ---------------------------------------------------------------------------


def evaluate(extent: int, values: Mapping[str, int]) -> int:
    """An extent with its names replaced: by numbers, or by other dims."""
    return _evaluated(extent.form, values) if isinstance(extent, Dim) else extent


def _evaluated(form: Form, values: Mapping[str, int]) -> int:
    total = 0
    for product, count in form:
        term = count
        for atom in product:
            term = term * (_of_atom(atom, values) if atom.operator else values[atom])
        total = total + term
    return total


def _of_atom(atom: Atom, values: Mapping[str, int]) -> int:
    left, right = _evaluated(atom.left, values), _evaluated(atom.right, values)
    if atom.operator in ("//", "%") and seen(right) == 0:
        return 0
    found: int = OPERATORS[atom.operator](left, right)
    return found


def concrete(value: Any, values: Mapping[str, int]) -> Any:
    """`value` (an extent, or a tuple or list with extents in it) with every name replaced."""
    if isinstance(value, Dim):
        return evaluate(value, values)
    if isinstance(value, tuple):
        return tuple(concrete(item, values) for item in value)
    if isinstance(value, list):
        return [concrete(item, values) for item in value]
    return value


def hold(extent: int, above: int, most: int) -> None:
    """Record the guards above < extent <= most, which the value seen must meet."""
    if not (extent > above and extent <= most):
        raise ValueError(f"{seen(extent)} is not in ({above}, {most}]")


def same_for_all(a: int, b: int) -> bool:
    """Whether two extents are equal for every value of their names; asks nothing."""
    return form_of(a) == form_of(b)
