"""Extents: integers, some of which are symbolic.

A `Dim` is a free size of a traced function, or an expression of free sizes. It computes like an
integer; a question whose answer depends on its value records a guard. It is not an `int`: C code
that needs a number has to ask for it (`__index__`), and a guard then holds the answer.
"""

from __future__ import annotations

import operator as arithmetic
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gemel.forms import Atom, Form, combined, compared, form_text, names_of, of_name, of_number

#: A relation, or an operator, and the forms on its sides.
Question = tuple[str, Form, Form]


class Guards(list["Guard"]):
    """What has been asked of some free extents, each question once.

    `tracing`: whether the trace that asks goes on; None without one. What follows from forms alone
    is remembered: a network's sizes are the same few sums, made and compared thousands of times.
    """

    def __init__(self, given: Iterable[Guard] = (), tracing: bool | None = None) -> None:
        super().__init__(given)
        self.tracing = tracing
        #: Answers, and the places of their guards; -1: it is the same for all values.
        self._answers = {g.question(): (g.answer, place) for place, g in enumerate(self)}
        self._combined: dict[Question, Form] = {}

    def ask(self, relation: str, left: int, right: int) -> bool:
        """The answer for the values seen; a guard holds it unless it is the same for all values."""
        question = relation, form_of(left), form_of(right)
        answer, place = self._answers.get(question) or self._found(question, left, right)
        if place < 0 or (place < len(self) and self[place].question() == question):
            return answer
        self._answers[question] = answer, len(self)  # again, if its guard was taken away
        self.append(Guard(left, relation, right, answer))
        return answer

    def _found(self, question: Question, left: int, right: int) -> tuple[bool, int]:
        known = compared(*question)
        if known is None:
            return RELATIONS[question[0]](seen(left), seen(right)), len(self)
        self._answers[question] = known, -1
        return known, -1

    def combined(self, operator: str, left: int, right: int) -> Form:
        """The form of left operator right."""
        key = operator, form_of(left), form_of(right)
        if key not in self._combined:
            self._combined[key] = combined(*key)
        return self._combined[key]


class Guard:
    """A comparison of free extents that a trace relied on: it must have the same answer later."""

    __slots__ = ("answer", "left", "relation", "right")

    def __init__(self, left: int, relation: str, right: int, answer: bool) -> None:
        self.left = left
        self.relation = relation
        self.right = right
        self.answer = answer

    def forms(self) -> tuple[Form, Form]:
        """Both sides as sums."""
        return form_of(self.left), form_of(self.right)

    def question(self) -> Question:
        """Its relation and both sides as sums."""
        return self.relation, *self.forms()

    def names(self) -> set[str]:
        """The names of the free extents in it."""
        left, right = self.forms()
        return names_of(left) | names_of(right)

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether the comparison has the same answer for these extents."""
        left, right = evaluate(self.left, values), evaluate(self.right, values)
        return RELATIONS[self.relation](left, right) is self.answer

    def equates(self) -> tuple[str, int]:
        """The name of a size, and what it equals by this guard; ("", 0) if there is none."""
        if self.answer and self.relation == "==":
            for side, other in ((self.left, self.right), (self.right, self.left)):
                if name_of(side) and (name_of(other) or not isinstance(other, Dim)):
                    return name_of(side), other
        return "", 0

    def of(self, sizes: Mapping[str, int]) -> Guard | None:
        """The guard for such sizes; None if it holds for all values."""
        left, right = evaluate(self.left, sizes), evaluate(self.right, sizes)
        if compared(self.relation, form_of(left), form_of(right)) is self.answer:
            return None
        return Guard(left, self.relation, right, self.answer)

    def __repr__(self) -> str:
        return f"{'' if self.answer else 'not '}{self.left!r} {self.relation} {self.right!r}"


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


if TYPE_CHECKING:
    Integer = int  # it computes like one
else:
    Integer = object


class Dim(Integer):
    """A symbolic extent: remembers how it was made, and the value seen while tracing.

    Sums, products, quotients and integer powers of dims are dims again. Comparisons answer for the
    value seen and add a `Guard` to the trace's list, unless they hold for all values (n == n;
    n > 1, since only extents above 1 are free). Anything without a symbolic form (range(n),
    float(n), n / 2, [0] * n) is computed for the value seen, and a guard holds that value.
    """

    __slots__ = ("form", "guards", "value")

    form: Form
    guards: Guards
    value: int

    def __new__(cls, value: int, made: str | Form, guards: Guards, least: int | None = 2) -> Dim:
        """A dim with the present value `value`: a free size with a name and a minimum, or a sum."""
        self = object.__new__(cls)
        self.form = of_name(made, least) if isinstance(made, str) else made
        self.guards = guards
        self.value = value
        return self

    def _join(self, operator: str, other: Any, swap: bool = False) -> Any:
        if not isinstance(other, WHOLE):
            return self._number(OPERATORS[operator], other, swap)
        left, right = (other, self) if swap else (self, other)
        return combine(operator, left, right, self.guards)

    def _number(self, operation: Callable[[Any, Any], Any], other: Any, swap: bool) -> Any:
        """An operation on the value seen, which a guard then holds."""
        if not isinstance(other, (int, float, Dim)):
            return NotImplemented
        mine, others = int(self), int(other) if isinstance(other, Dim) else other
        return operation(others, mine) if swap else operation(mine, others)

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

    def __pos__(self, memo: Any = None) -> Any:  # `memo`: it is also its own deep copy
        return self

    def __invert__(self) -> Any:
        return -1 - self

    def __abs__(self) -> Any:
        return maximum(self, -self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def _ask(self, relation: str, left: Any, right: Any) -> bool:
        left, right = _of_one_trace(left, right)
        guards: Guards = left.guards if isinstance(left, Dim) else right.guards
        return guards.ask(relation, left, right)

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        if modulo is not None:
            return pow(int(self), int(other), int(modulo))
        if isinstance(other, int) and other >= 0:
            return _repeated(self, other)
        return self._number(arithmetic.pow, other, swap=False)

    def __lshift__(self, other: Any) -> Any:
        return self * 2**other if isinstance(other, int) and other >= 0 else int(self) << other

    def __rshift__(self, other: Any) -> Any:
        return self // 2**other if isinstance(other, int) and other >= 0 else int(self) >> other

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        if isinstance(other, float):
            return int(self) == other
        return isinstance(other, WHOLE) and self._ask("==", self, other)

    def __reduce__(self) -> Any:  # elsewhere it is the number that it was
        return int, (int(self),)

    def __lt__(self, other: Any) -> Any:
        return self._compare("<", self, other)

    def __le__(self, other: Any) -> Any:
        return self._compare("<=", self, other)

    def __gt__(self, other: Any) -> Any:
        return self._compare("<", other, self)

    def __ge__(self, other: Any) -> Any:
        return self._compare("<=", other, self)

    def _compare(self, relation: str, left: Any, right: Any) -> Any:
        """left relation right; one of them is this dim."""
        other = right if left is self else left
        if isinstance(other, WHOLE):
            return self._ask(relation, left, right)
        if not isinstance(other, float):
            return NotImplemented
        sides = (int(side) if side is self else side for side in (left, right))
        return bool(RELATIONS[relation](*sides))

    def __bool__(self) -> bool:
        return not self == 0

    def __hash__(self) -> int:
        # A failed lookup is followed by no comparison that would leave a guard, so this leaves it.
        return hash(int(self) if _is_open(self) else self.value)

    def __int__(self) -> int:
        self._ask("==", self, self.value)
        return self.value

    __index__ = __int__

    def __float__(self) -> float:
        return float(int(self))

    def __complex__(self) -> complex:
        return complex(int(self))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        import numpy

        return numpy.array(int(self), dtype=dtype)

    def __round__(self, digits: Any = None) -> Any:
        return self if digits is None or digits >= 0 else round(int(self), digits)

    __trunc__ = __floor__ = __ceil__ = __copy__ = __deepcopy__ = __pos__

    def __str__(self) -> str:
        return str(int(self))

    def __format__(self, how: str) -> str:
        return format(int(self), how)

    def __repr__(self) -> str:
        return form_text(self.form)

    def __getattr__(self, name: str) -> Any:
        # Further attributes of int, for the value seen.
        if name.startswith("_") or not hasattr(int, name):
            raise AttributeError(f"an extent has no {name!r}")
        return getattr(int(self), name)


#: Types of integers, and of Python numbers, for isinstance.
WHOLE = (int, Dim)
NUMBER = (bool, int, float, complex, Dim)


def name_of(extent: int) -> str:
    """The name of an extent that is a single free size; else ""."""
    if not isinstance(extent, Dim) or len(extent.form) != 1:
        return ""
    ((product, count),) = extent.form
    if count != 1 or len(product) != 1 or product[0].operator:
        return ""
    return str(product[0])


def _repeated(base: Any, exponent: int) -> Any:
    found: Any = 1
    for _ in range(exponent):
        found = base * found
    return found


def _held(operation: Callable[[Any, Any], Any], swap: bool) -> Callable[[Dim, Any], Any]:
    """The method for an operation without a symbolic form."""

    def method(self: Dim, other: Any) -> Any:
        return self._number(operation, other, swap)

    return method


for _name, _operation in {
    "truediv": arithmetic.truediv,
    "and": arithmetic.and_,
    "or": arithmetic.or_,
    "xor": arithmetic.xor,
    "pow": arithmetic.pow,
    "lshift": arithmetic.lshift,
    "rshift": arithmetic.rshift,
}.items():
    if f"__{_name}__" not in vars(Dim):
        setattr(Dim, f"__{_name}__", _held(_operation, swap=False))
    setattr(Dim, f"__r{_name}__", _held(_operation, swap=True))


def seen(extent: int) -> int:
    """The number with which an extent was traced; leaves no guard."""
    return extent.value if isinstance(extent, Dim) else extent


# --- sums -----------------------------------------------------------------------------------


def form_of(extent: int) -> Form:
    """An extent as a sum."""
    if isinstance(extent, Dim):
        return extent.form
    return of_number(extent)


def combine(operator: str, left: int, right: int, guards: Guards) -> int:
    """left operator right; a plain number if it is the same for all values."""
    left, right = _of_one_trace(left, right)
    if isinstance(left, Dim):
        guards = left.guards
    elif isinstance(right, Dim):
        guards = right.guards
    value = OPERATORS[operator](seen(left), seen(right))
    form = guards.combined(operator, left, right)
    return Dim(value, form, guards) if any(product for product, _ in form) else value


def _of_one_trace(left: int, right: int) -> tuple[int, int]:
    """Two extents; of two traces one that has ended becomes a number, since equal names are
    different sizes there."""
    if isinstance(left, Dim) and isinstance(right, Dim) and left.guards is not right.guards:
        if _is_open(left) and not _is_open(right):
            return left, right.value
        if _is_open(right) and not _is_open(left):
            return left.value, right
        if is_left_over(left) and is_left_over(right):
            return left, right.value
    return left, right


def _is_open(extent: Dim) -> bool:
    return extent.guards.tracing is True


def is_left_over(extent: Dim) -> bool:
    """Whether the trace of an extent has ended."""
    return extent.guards.tracing is False


def minimum(a: int, b: int) -> int:
    """The smaller of two extents; leaves no guard."""
    guards = _guards_of(a, b)
    return min(a, b) if guards is None else combine("minimum", a, b, guards)


def maximum(a: int, b: int) -> int:
    """The larger of two extents; leaves no guard."""
    guards = _guards_of(a, b)
    return max(a, b) if guards is None else combine("maximum", a, b, guards)


def _guards_of(*extents: int) -> Guards | None:
    return next((extent.guards for extent in extents if isinstance(extent, Dim)), None)


# --- with numbers ---------------------------------------------------------------------------


def evaluate(extent: int, values: Mapping[str, int]) -> int:
    """An extent with its names replaced by numbers, or by other dims."""
    return _evaluated(extent.form, values) if isinstance(extent, Dim) else extent


class Sizes(dict[str, int]):
    """The values of names; it remembers the forms that were evaluated with it."""

    def __init__(self, values: Mapping[str, int]) -> None:
        super().__init__(values)
        self.found: dict[Form, int] = {}
        #: Whether a divisor was 0, which makes the quotient 0.
        self.by_zero = False
        #: If every name stands for a dim of the same name: the present numbers of these.
        self.numbers: Sizes | None = None
        self.guards = _guards_of(*self.values())
        if self.guards is not None and all(name_of(dim) == name for name, dim in self.items()):
            self.numbers = Sizes({name: seen(dim) for name, dim in self.items()})

    def of(self, form: Form) -> int:
        """A form, evaluated. If all names stay, it has the same form again, with another number."""
        if self.numbers is not None and self.guards is not None:
            number = _evaluated(form, self.numbers)
            if not self.numbers.by_zero:
                return Dim(number, form, self.guards)
        return _summed(form, self)


def _evaluated(form: Form, values: Mapping[str, int]) -> int:
    if not isinstance(values, Sizes):
        return _summed(form, values)
    found = values.found.get(form)
    if found is None:
        found = values.found[form] = values.of(form)
    return found


def _summed(form: Form, values: Mapping[str, int]) -> int:
    if len(form) == 1 and form[0][1] == 1 and len(form[0][0]) == 1:
        ((atom,), _) = form[0]
        return _of_atom(atom, values) if atom.operator else values[atom]
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
        if isinstance(values, Sizes):
            values.by_zero = True
        return 0
    found: int = OPERATORS[atom.operator](left, right)
    return found


def concrete(value: Any, values: Mapping[str, int]) -> Any:
    """An extent, or a tuple or list with extents in it, with every name replaced."""
    if isinstance(value, Dim):
        return evaluate(value, values)
    if isinstance(value, tuple):
        for item in value:
            if type(item) is not int:
                return tuple([n if type(n) is int else concrete(n, values) for n in value])
        return value
    if isinstance(value, list):
        return [concrete(item, values) for item in value]
    return value


def hold(extent: int, above: int, most: int) -> None:
    """Record the guards above < extent <= most, which the value seen must meet."""
    if not (extent > above and extent <= most):
        raise ValueError(f"{seen(extent)} is not in ({above}, {most}]")


def same_for_all(a: int, b: int) -> bool:
    """Whether two extents are equal for all values of their names; leaves no guard."""
    return form_of(a) == form_of(b)
