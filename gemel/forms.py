"""Normal forms: integers as sums of products, for which equality can be decided.

A form consists of names, and of quotients, remainders and extremes of other forms. If lower bounds
of its names are known, so is a lower bound of the form, which decides many comparisons.
"""

from __future__ import annotations

#: An extent as a sum of products of atoms, each with its factor. Equal extents have equal forms.
Form = tuple[tuple[tuple["Atom", ...], int], ...]


class Atom(str):
    """A part of forms: a name, or a quotient, remainder or extreme of two forms.

    Its text identifies it. `least` is a lower bound, or None if none is known.
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


def of_number(number: int) -> Form:
    """A number as a form."""
    return (((), number),) if number else ()


def of_name(text: str, least: int | None) -> Form:
    """A name as a form; `least` is its lower bound."""
    return (((_atom(text, least, "", (), ()),), 1),)


def names_of(form: Form) -> set[str]:
    """The names that a form depends on, including those in quotients, remainders and extremes."""
    found: set[str] = set()
    for product, _ in form:
        for atom in product:
            found |= names_of(atom.left) | names_of(atom.right) if atom.operator else {str(atom)}
    return found


def added(left: Form, right: Form, factor: int = 1) -> Form:
    """left + factor * right."""
    if not right:
        return left
    if not left and factor == 1:
        return right
    terms = dict(left)
    for product, count in right:
        terms[product] = terms.get(product, 0) + factor * count
    return _ordered(terms)


def _multiplied(left: Form, right: Form) -> Form:
    if len(left) == 1 and not left[0][0]:
        left, right = right, left
    if len(right) == 1 and not right[0][0]:  # a number
        number = right[0][1]
        return left if number == 1 else tuple([(product, m * number) for product, m in left])
    terms: dict[tuple[Atom, ...], int] = {}  # sums of thousands of sizes are joined once
    for a, m in left:
        for b, n in right:
            product = tuple(sorted((*a, *b)))
            terms[product] = terms.get(product, 0) + m * n
    return _ordered(terms)


def _ordered(terms: dict[tuple[Atom, ...], int]) -> Form:
    return tuple(sorted((product, count) for product, count in terms.items() if count))


def _divided(left: Form, right: Form) -> tuple[Form, Form]:
    """The quotient of a form by a positive product as far as it is exact, and the rest."""
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


def at_least(form: Form, bound: int) -> bool:
    """Whether a form is known to be at least a number."""
    found = least_of(form)
    return found is not None and found >= bound


def least_of(form: Form, depth: int = 4) -> int | None:
    """A lower bound of a form; None if none is known. At most `depth` extremes are resolved, since
    the work doubles with each."""
    total = 0
    for product, count in form:
        bound = count
        for atom in product:
            if count < 0 or atom.least is None or atom.least < 0:
                return _least_of_sides(form, depth) if depth else None
            bound *= atom.least
        total += bound
    return total


def _least_of_sides(form: Form, depth: int) -> int | None:
    """A lower bound of a form with an extreme, from both sides of it: n - maximum(0, n - 3) is n
    or 3."""
    for product, count in form:
        if len(product) == 1 and product[0].operator in ("minimum", "maximum"):
            (atom,) = product
            rest = tuple(term for term in form if term != (product, count))
            sides = added(rest, atom.left, count), added(rest, atom.right, count)
            bounds = [least_of(side, depth - 1) for side in sides]
            known = [bound for bound in bounds if bound is not None]
            if (atom.operator == "minimum") is (count > 0):  # the smaller of both
                return min(known) if len(known) == 2 else None
            return max(known, default=None)
    return None


def compared(relation: str, left: Form, right: Form) -> bool | None:
    """The answer of a comparison (``==``, ``<`` or ``<=``) if it is the same for all values."""
    if not right or (len(right) == 1 and not right[0][0]):  # a number
        least = least_of(left)
        if least is not None and least > (right[0][1] if right else 0):
            return False
    difference = added(right, left, -1)
    if not difference:
        return relation != "<"
    if at_least(difference, 0 if relation == "<=" else 1):
        return relation != "=="
    if at_least(added((), difference, -1), 0 if relation == "<" else 1):
        return False
    return None


def combined(operator: str, left: Form, right: Form) -> Form:
    """left operator right."""
    if operator in ("+", "-"):
        return added(left, right, 1 if operator == "+" else -1)
    if operator == "*":
        return _multiplied(left, right)
    if operator in ("minimum", "maximum"):
        return _extreme(operator, left, right)
    quotient, rest = _divided(left, right) if len(right) == 1 and at_least(right, 1) else ((), left)
    if at_least(rest, 0) and at_least(added(right, rest, -1), 1):
        return quotient if operator == "//" else rest
    if operator == "//":
        return added(quotient, _single(operator, rest, right))
    return _single(operator, rest, right)


def _extreme(operator: str, left: Form, right: Form) -> Form:
    if at_least(added(left, right, -1), 0):
        return left if operator == "maximum" else right
    if at_least(added(right, left, -1), 0):
        return right if operator == "maximum" else left
    return _single(operator, *sorted((left, right)))


def _single(operator: str, left: Form, right: Form) -> Form:
    """An atom as a form."""
    first, second = least_of(left), least_of(right)
    least = None
    if operator == "maximum":
        least = max((bound for bound in (first, second) if bound is not None), default=None)
    elif operator == "minimum" or operator == "//":
        if first is not None and second is not None and first >= 0 and second >= 0:
            least = min(first, second) if operator == "minimum" else 0
    elif second is not None and second > 0:
        least = 0
    if operator in ("minimum", "maximum"):
        text = f"{operator}({form_text(left)}, {form_text(right)})"
    else:
        text = f"({_operand(left)} {operator} {_operand(right, alone=True)})"
    return (((_atom(text, least, operator, left, right),), 1),)


def _operand(form: Form, alone: bool = False) -> str:
    """A form as text beside an operator: a sum in parentheses, and a product too if `alone`."""
    text = form_text(form)
    single = len(form) < 2 and not (alone and form and len(form[0][0]) + (form[0][1] != 1) > 1)
    return text if single else f"({text})"


def form_text(form: Form) -> str:
    """A form as text: ``n``, ``4 * n + 1``."""
    text = ""
    for product, count in sorted(form, key=lambda term: not term[0]):
        factors = [*([str(abs(count))] if abs(count) != 1 or not product else []), *product]
        sign = " - " if count < 0 else " + "
        text += (sign if text else sign.strip(" +")) + " * ".join(factors)
    return text or "0"
