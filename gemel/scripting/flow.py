"""The control flow of scripted functions: their rewritten source calls these methods.

If a condition is a Python value, Python branches. If it is a symbol, the sides of a branch
(`branch`) or the step of a loop (`iterate`) are traced with placeholders for the function's
variables, and the values that they assign become results of one operation.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from typing import Any

from gemel.errors import TraceError
from gemel.ir.graph import Entry
from gemel.ir.methods import call
from gemel.ops.control import choose, closed
from gemel.runtime.prepare import as_entry
from gemel.scripting.choices import Merge, kept
from gemel.scripting.loops import Loop
from gemel.scripting.values import (
    HIDDEN,
    UNDEFINED,
    Action,
    Objects,
    Undefined,
    Values,
    array_of,
    bare,
    condition,
    known,
    leaves,
    like,
    rebuilt,
)


class _Depth(threading.local):
    inside = 0


_depth = _Depth()


class State:
    """Reads and writes a function's variables."""

    def __init__(self, get: Callable[[], Values], put: Callable[[Values], None]) -> None:
        self.get, self.put = get, put


class Flow:
    """The control flow of one scripted function, whose source is in `file`."""

    def __init__(self, file: str, function: str) -> None:
        self.file, self.function = file, function

    undefined = UNDEFINED
    state = State

    def error(self, line: int, text: str) -> TraceError:
        """The error for something that a program cannot do, with its place."""
        return TraceError(f"{self.function}: {self.file}:{line}: {text}")

    def read(self, value: Any, name: str, line: int) -> Any:
        """A variable's value. Raises an error that says why it has none."""
        if not isinstance(value, Undefined):
            return value
        if value.why:
            what = "the result" if name.startswith(HIDDEN) else repr(name)
            raise self.error(line, f"{what} {value.why}")
        raise UnboundLocalError(f"local variable {name!r} is read before it is given a value")

    def effect(self, what: str, line: int) -> None:
        """Raises if a traced branch or loop would have an effect that a program cannot have."""
        if _depth.inside:
            raise self.error(
                line, f"{what} on a condition that is known only when the program runs"
            )

    def static(self, test: Any, line: int) -> Any:
        """A condition that must be known while tracing."""
        if known(test) is None:
            raise self.error(
                line, "an assertion about a value that is known only when the program runs"
            )
        return test

    def inplace(self, name: str, target: Any, value: Any) -> Any:
        """`target += value`, and the other in-place operators."""
        return getattr(operator, name)(target, value)

    # --- choices ----------------------------------------------------------------------------

    def if_(
        self, test: Any, then: Action, otherwise: Action, state: State, names: Any, line: int
    ) -> Any:
        """Run one of two sides, which may change variables. Returns its result."""
        chosen = known(test)
        if chosen is not None:
            return (then if chosen else otherwise)()
        return self._branch(test, (then, otherwise), state, names, line)

    def _branch(self, test: Any, sides: Any, state: State, names: Any, line: int) -> Any:
        """Trace both sides of a branch that the program decides, and add it as one operation."""
        predicate, before = condition(test), state.get()
        values = {p: v for name in names for p, v in leaves(before[name], (name,))}
        objects = Objects(values)
        found, locals_ = [], []
        for side in sides:
            local, change = objects.fresh(values)
            state.put({**before, **{n: rebuilt(before[n], (n,), change) for n in names}})
            result = self.inside(side, state, before)
            after = {n: result[1][n] for n in names} | {"return": result[0]}
            found.append(dict(pair for n in after for pair in leaves(after[n], (n,))))
            locals_.append(local)
        merged = Merge(self, objects, found, locals_, line)
        results = {n: merged.variable(n, before.get(n)) for n in (*names, "return")}
        outside = [*objects.stands, *merged.free()]
        graphs = [
            closed(tuple(side), tuple(outside), name)
            for side, name in zip(merged.outputs, ("then", "otherwise"), strict=True)
        ]
        if not merged.outputs[0]:
            state.put({**before, **{n: results[n] for n in names}})
            return results["return"]
        inputs = (*map(as_entry, objects.own), *outside[len(objects.stands) :])
        entries = choose(predicate, inputs, graphs)
        for index, place in merged.written.items():
            call("overwrite", objects.own[index], entries[place])
        final = {n: merged.filled(results[n], entries) for n in results}
        for name in names:
            final[name] = kept(before[name], final[name])
        state.put({**before, **{n: final[n] for n in names}})
        return final["return"]

    def inside(self, action: Action, state: State, before: Values) -> tuple[Any, Values]:
        """The result of an action and the variables after it. Then restores the variables."""
        _depth.inside += 1
        try:
            return action(), state.get()
        finally:
            _depth.inside -= 1
            state.put(before)

    def and_(self, first: Any, *others: Action, state: State, names: Any, line: int) -> Any:
        """`first and other() and ...`; later operands are only computed if they matter."""
        for other in others:
            value = first
            first = self.if_(value, other, lambda value=value: value, state, names, line)
        return first

    def or_(self, first: Any, *others: Action, state: State, names: Any, line: int) -> Any:
        """`first or other() or ...`; later operands are only computed if they matter."""
        for other in others:
            value = first
            first = self.if_(value, lambda value=value: value, other, state, names, line)
        return first

    def compare(self, left: Any, others: Any, state: State, names: Any, line: int) -> Any:
        """`left < other() < ...`; each operand is computed once, and only if it matters."""
        (sign, other), *rest = others
        right = other()
        inside = sign.removeprefix("not ") == "in"
        found = (
            (left in right) == (sign == "in") if inside else getattr(operator, sign)(left, right)
        )
        if not rest:
            return found
        return self.and_(
            found,
            lambda: self.compare(right, rest, state, names, line),
            state=state,
            names=names,
            line=line,
        )

    def not_(self, value: Any) -> Any:
        """`not value`."""
        found = known(value)
        return call("logical_not", condition(value)) if found is None else not found

    # --- loops ------------------------------------------------------------------------------

    def while_(self, test: Action, body: Action, state: State, names: Any, line: int) -> None:
        """Run steps as long as the test holds."""
        while True:
            holds = known(test())
            if holds is None:
                return Loop(self, test, body, state, tuple(names), line).run()
            if not holds:
                return None
            body()

    def for_(
        self, items: Any, body: Action, state: State, names: Any, stops: Any, line: int
    ) -> None:
        """Run a step for each item, until a variable of `stops` is true."""
        if isinstance(items, Range):
            return self._count(items, body, state, names, stops, line)
        for item in items:
            stop = self._stopped(state, stops, names, line)
            if known(stop):
                return None
            self.if_(stop, lambda: None, lambda item=item: body(item), state, names, line)
        return None

    def _stopped(self, state: State, stops: Any, names: Any, line: int) -> Any:
        flags = [lambda name=name: state.get()[name] for name in stops]
        return self.or_(False, *flags, state=state, names=names, line=line)

    def _count(
        self, items: Range, body: Action, state: State, names: Any, stops: Any, line: int
    ) -> None:
        """`for i in range(n)`, where n is only known when the program runs."""
        counter = [items.start]
        both = State(
            lambda: {**state.get(), HIDDEN: counter[0]},
            lambda values: (counter.__setitem__(0, values[HIDDEN]), state.put(values))[1],
        )

        def test() -> Any:
            going = self.not_(self._stopped(both, stops, (*names, HIDDEN), line))
            return self.and_(
                going, lambda: items.before(counter[0]), state=both, names=names, line=line
            )

        def step() -> None:
            item = counter[0]
            counter[0] = item + items.step
            body(item)

        self.while_(test, step, both, (*names, HIDDEN), line)

    # --- calls ------------------------------------------------------------------------------

    def call(self, function: Any) -> Any:
        """The function to call instead: one that also accepts symbols, if there is one."""
        try:
            return REPLACED.get(function, function)
        except TypeError:  # the function is not hashable
            return function


# --- Python's built-in functions ------------------------------------------------------------


class Range:
    """`range(...)` with a symbol as a bound, for `for` loops."""

    def __init__(self, *bounds: Any) -> None:
        full_ = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)
        self.start, self.stop, self.step = full_[:3]

    def before(self, counter: Any) -> Any:
        """Whether this count is within the range."""
        up = known(self.step > 0)
        if up is None:
            raise TraceError("range: the step must be known when the function is traced")
        return counter < self.stop if up else counter > self.stop

    def __iter__(self) -> Any:
        raise TraceError("range() of an array's value is only allowed directly in a for loop")


def _unknown(value: Any) -> bool:
    array = array_of(value)
    return isinstance(array, Entry) and not array.node.is_number


def _range(*bounds: Any) -> Any:
    if any(map(_unknown, bounds)):
        return Range(*(as_entry(bare(b)) if _unknown(b) else b for b in bounds))
    return range(*bounds)


def _converted(function: Any, dtype: str) -> Any:
    def convert(*value: Any) -> Any:
        if not value or not _unknown(value[0]):
            return function(*value)
        return like(value[0], call("cast", as_entry(bare(value[0])).reshape(()), dtype=dtype))

    return convert


REPLACED = {
    range: _range,
    int: _converted(int, "int64"),
    float: _converted(float, "float32"),
    bool: _converted(bool, "bool"),
}

__all__ = ["Flow", "State"]
