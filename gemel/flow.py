"""What scripted functions do at `if`, `while` and `for`: see `gemel.scripting`, which writes the calls.

Where a condition is a Python value, so is the control flow. Where it is a symbol, the sides of a
branch (`branch`) or the step of a loop (`iterate`) are traced with stand-ins for the function's
variables, and what they leave in those becomes results of one operation.
"""

from __future__ import annotations

import builtins
import operator
import threading
from collections.abc import Callable, Iterator
from typing import Any

from gemel.dtype import bool_
from gemel.errors import GemelError, TraceError
from gemel.extent import NUMBER
from gemel.ir.graph import Entry, placeholder
from gemel.ir.methods import call
from gemel.ndarray import ndarray
from gemel.ops.control import branch, closed, free_inputs, iterate
from gemel.ops.elementwise import full
from gemel.runtime.prepare import as_entry

#: Where a value stands: a variable's name, then positions and keys in nested lists and dicts.
Path = tuple[Any, ...]
Values = dict[str, Any]
Action = Callable[..., Any]


class Undefined:
    """What a variable holds before it is given a value, or after it got one on some paths only."""

    def __init__(self, why: str = "") -> None:
        self.why = why


UNDEFINED = Undefined()
#: Variables of the rewriting itself: how the function's result waits until its end.
HIDDEN = "_gemel_"


class _Depth(threading.local):
    inside = 0


_depth = _Depth()


class State:
    """A function's variables: how they are read and written, and which of them a statement names."""

    def __init__(self, get: Callable[[], Values], put: Callable[[Values], None]) -> None:
        self.get, self.put = get, put


def array_of(value: Any) -> Any:
    """The array or symbol a value is or holds; None for others. Python's numbers are not arrays."""
    holder = getattr(type(value), "__flow__", None)
    value = holder(value) if holder is not None else value
    if isinstance(value, Entry):
        return None if value.spec.weak else value
    return value if isinstance(value, ndarray) else None


def like(value: Any, entry: Any) -> Any:
    """The entry, held as `value` holds its array."""
    maker = getattr(type(value), "__flow_with__", None)
    return entry if maker is None else maker(value, entry)


def leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """What a variable holds, with lists, tuples and dicts taken apart."""
    if type(value) in (list, tuple):
        yield (*path, type(value), len(value)), None
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    elif type(value) is dict:
        yield (*path, dict, *value), None
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    else:
        yield path, value


def rebuilt(value: Any, path: Path, change: dict[Path, Any]) -> Any:
    """The same nested value with other leaves, where there are others."""
    if type(value) in (list, tuple):
        return type(value)(rebuilt(item, (*path, i), change) for i, item in enumerate(value))
    if type(value) is dict:
        return {key: rebuilt(item, (*path, key), change) for key, item in value.items()}
    return change.get(path, value)


def known(test: Any) -> bool | None:
    """Whether a condition holds; None when only the running program can tell."""
    held = getattr(type(test), "__flow__", None)
    test = test if held is None else held(test)
    if not isinstance(test, Entry):
        return bool(test)
    try:
        return bool(test)
    except TraceError:
        return None


def condition(test: Any) -> Entry:
    """The symbol of a condition, as a boolean."""
    held = getattr(type(test), "__flow__", None)
    entry = as_entry(test if held is None else held(test))
    found: Entry = entry if entry.dtype is bool_ else call("not_equal", entry, 0)
    return found


def number(value: Any) -> bool:
    """Whether it is a Python number, or a symbol of one."""
    return isinstance(value, NUMBER) or (isinstance(value, Entry) and value.spec.weak)


def same(a: Any, b: Any) -> bool:
    """Whether two values that are no arrays are the same on two paths."""
    if a is b:
        return True
    if isinstance(a, Entry) or isinstance(b, Entry) or type(a) is not type(b):
        return False
    try:
        return bool(a == b)
    except Exception:
        return False


class Objects:
    """The arrays among values: each once, however many variables hold it."""

    def __init__(self, values: dict[Path, Any]) -> None:
        self.own: list[Any] = []  # the arrays themselves
        self.at: dict[Path, int] = {}
        for path, value in values.items():
            array = array_of(value)
            if array is not None:
                found = next((i for i, x in enumerate(self.own) if x is array), len(self.own))
                self.own[found:] = self.own[found:] or [array]
                self.at[path] = found
        self.stands = [placeholder(as_entry(x).spec) for x in self.own]

    def fresh(self, values: dict[Path, Any]) -> tuple[list[Entry], dict[Path, Any]]:
        """Copies of the stand-ins, which may be written to, and the leaves that hold them."""
        local = [call("copy", entry) for entry in self.stands]
        return local, {path: like(values[path], local[i]) for path, i in self.at.items()}


class Flow:
    """The control flow of one scripted function, whose source is in `file`."""

    def __init__(self, file: str, function: str) -> None:
        self.file, self.function = file, function

    undefined = UNDEFINED
    State = State

    def error(self, line: int, text: str) -> TraceError:
        """What a program cannot do, and where it does it."""
        return TraceError(f"{self.function}: {self.file}:{line}: {text}")

    def read(self, value: Any, name: str, line: int) -> Any:
        """A variable's value. Raises what says why it has none."""
        if not isinstance(value, Undefined):
            return value
        if value.why:
            what = "the result" if name.startswith(HIDDEN) else repr(name)
            raise self.error(line, f"{what} {value.why}")
        raise UnboundLocalError(f"local variable {name!r} is read before it is given a value")

    def effect(self, what: str, line: int) -> None:
        """Raises where a traced branch or loop would do what a program cannot do later."""
        if _depth.inside:
            raise self.error(
                line, f"{what} on a condition that is only known when the program runs"
            )

    def static(self, test: Any, line: int) -> Any:
        """A condition that has to be known now."""
        if known(test) is None:
            raise self.error(line, "an assertion about a value that is only known later")
        return test

    def inplace(self, name: str, target: Any, value: Any) -> Any:
        """target += value, and the others."""
        return getattr(operator, name)(target, value)

    # --- choices ----------------------------------------------------------------------------

    def if_(
        self, test: Any, then: Action, otherwise: Action, state: State, names: Any, line: int
    ) -> Any:
        """One of two sides, which change the variables; what it returns, too."""
        chosen = known(test)
        if chosen is not None:
            return (then if chosen else otherwise)()
        return self._branch(test, (then, otherwise), state, names, line)

    def _branch(self, test: Any, sides: Any, state: State, names: Any, line: int) -> Any:
        predicate, before = condition(test), state.get()
        values = {p: v for name in names for p, v in leaves(before[name], (name,))}
        objects = Objects(values)
        found, locals_ = [], []
        for side in sides:
            local, change = objects.fresh(values)
            state.put({**before, **{n: rebuilt(before[n], (n,), change) for n in names}})
            result = self._inside(side, state, before)
            after = {n: result[1][n] for n in names} | {"return": result[0]}
            found.append(dict(pair for n in after for pair in leaves(after[n], (n,))))
            locals_.append(local)
        merged = _Merge(self, objects, found, locals_, line)
        results = {n: merged.variable(n, before.get(n)) for n in (*names, "return")}
        outside = [*objects.stands, *merged.free()]
        graphs = [closed(tuple(side), tuple(outside), name)
                  for side, name in zip(merged.outputs, ("then", "otherwise"), strict=True)]  # fmt: skip
        if not merged.outputs[0]:
            state.put({**before, **{n: results[n] for n in names}})
            return results["return"]
        inputs = (predicate, *map(as_entry, objects.own), *outside[len(objects.stands) :])
        entries = branch.apply(inputs, {"then": graphs[0], "otherwise": graphs[1]})
        for index, place in merged.written.items():
            call("overwrite", objects.own[index], entries[place])
        final = {n: merged.filled(results[n], entries) for n in results}
        for name in names:
            final[name] = _kept(before[name], final[name])
        state.put({**before, **{n: final[n] for n in names}})
        return final["return"]

    def _inside(self, action: Action, state: State, before: Values) -> tuple[Any, Values]:
        _depth.inside += 1
        try:
            return action(), state.get()
        finally:
            _depth.inside -= 1
            state.put(before)

    def and_(self, first: Any, *others: Action, state: State, names: Any, line: int) -> Any:
        """first and other() and ...; those behind are computed only where it matters."""
        for other in others:
            value = first
            first = self.if_(value, other, lambda value=value: value, state, names, line)
        return first

    def or_(self, first: Any, *others: Action, state: State, names: Any, line: int) -> Any:
        """first or other() or ..."""
        for other in others:
            value = first
            first = self.if_(value, lambda value=value: value, other, state, names, line)
        return first

    def compare(self, left: Any, others: Any, state: State, names: Any, line: int) -> Any:
        """left < other() < ...: each is computed once, and only where those before hold."""
        (sign, other), *rest = others
        right = other()
        inside = sign.removeprefix("not ") == "in"
        found = (
            (left in right) == (sign == "in") if inside else getattr(operator, sign)(left, right)
        )
        if not rest:
            return found
        return self.and_(
            found, lambda: self.compare(right, rest, state, names, line),
            state=state, names=names, line=line,
        )  # fmt: skip

    def not_(self, value: Any) -> Any:
        """Not value."""
        found = known(value)
        return call("logical_not", condition(value)) if found is None else not found

    # --- loops ------------------------------------------------------------------------------

    def while_(self, test: Action, body: Action, state: State, names: Any, line: int) -> None:
        """Steps as long as the test holds."""
        while True:
            holds = known(test())
            if holds is None:
                return _Loop(self, test, body, state, tuple(names), line).run()
            if not holds:
                return None
            body()

    def for_(
        self, items: Any, body: Action, state: State, names: Any, stops: Any, line: int
    ) -> None:
        """A step for each item, until a variable of `stops` is true."""
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
        """for i in range(n), where n is only known when the program runs."""
        counter = [items.start]
        both = State(lambda: {**state.get(), HIDDEN: counter[0]}, lambda values: (
            counter.__setitem__(0, values[HIDDEN]), state.put(values))[1])  # fmt: skip

        def test() -> Any:
            going = self.not_(self._stopped(both, stops, (*names, HIDDEN), line))
            return self.and_(going, lambda: items.before(counter[0]), state=both, names=names,
                             line=line)  # fmt: skip

        def step() -> None:
            item = counter[0]
            counter[0] = item + items.step
            body(item)

        self.while_(test, step, both, (*names, HIDDEN), line)

    # --- calls ------------------------------------------------------------------------------

    def call(self, function: Any) -> Any:
        """What is called in a function's place: its scripted form, or what takes symbols, too."""
        try:
            return REPLACED.get(function, function)
        except TypeError:  # it is not hashable
            return function


def _kept(before: Any, after: Any) -> Any:
    """A list or dict as it was, with its new contents: others may hold it."""
    if type(before) is list and type(after) is list:
        before[:] = after
        return before
    if type(before) is dict and type(after) is dict:
        before.clear()
        before.update(after)
        return before
    return after


class _Output:
    """A leaf that will be a result of the branch."""

    def __init__(self, place: int, holder: Any) -> None:
        self.place, self.holder = place, holder


class _Merge:
    """What two sides leave, as one: equal, a result of the branch, or on one side only."""

    def __init__(self, flow: Flow, objects: Objects, found: Any, local: Any, line: int) -> None:
        self.flow, self.objects, self.found, self.local = flow, objects, found, local
        self.line = line
        self.outputs: list[list[Entry]] = [[], []]
        self.written: dict[int, int] = {}
        for index in range(len(objects.own)):
            now = [as_entry(side[index]) for side in local]
            if any(new is not side[index] for new, side in zip(now, local, strict=True)):
                self.written[index] = self._output(*now)

    def _output(self, first: Entry, second: Entry) -> int:
        for side, entry in zip(self.outputs, (first, second), strict=True):
            side.append(entry)
        return len(self.outputs[0]) - 1

    def free(self) -> list[Entry]:
        """What the sides need besides the variables."""
        found: dict[Entry, None] = {}
        for side in self.outputs:
            found.update(dict.fromkeys(free_inputs(tuple(side), tuple(self.objects.stands))))
        return list(found)

    def variable(self, name: str, before: Any) -> Any:
        """What a variable holds after the branch; results of it are marked."""
        sides = [{p: v for p, v in found.items() if p[0] == name} for found in self.found]
        if any(isinstance(found.get((name,)), Undefined) for found in sides):
            return self._one_sided(name, *(found.get((name,)) for found in sides))
        if sides[0].keys() != sides[1].keys():
            return self._different(name, "is nested differently by the branches")
        change: dict[Path, Any] = {}
        for path, first in sides[0].items():
            change[path] = self._leaf(name, first, sides[1][path])
            if isinstance(change[path], Undefined):
                return change[path]
        return _of_leaves(change, (name,))

    def _one_sided(self, name: str, first: Any, second: Any) -> Any:
        if isinstance(first, Undefined) and isinstance(second, Undefined):
            return first if first.why else second
        value = second if isinstance(first, Undefined) else first
        array = array_of(value)
        if name.startswith(HIDDEN) and array is not None:  # nobody reads it where it is not given
            given = as_entry(array)
            zeros = full(0, shape=given.shape, dtype=given.dtype)
            pair = (zeros, given) if isinstance(first, Undefined) else (given, zeros)
            return _Output(self._output(*pair), value)
        return self._different(name, "is given a value by one branch only")

    def _different(self, name: str, why: str) -> Undefined:
        found = Undefined(f"{why} (line {self.line}), on a condition that is only known later")
        if name == "return":
            raise self.flow.error(self.line, f"a value {found.why}")
        return found

    def _leaf(self, name: str, first: Any, second: Any) -> Any:
        arrays = array_of(first), array_of(second)
        for index, pair in enumerate(zip(*self.local, strict=True)):
            if arrays[0] is pair[0] and arrays[1] is pair[1]:
                return like(first, self.objects.own[index])
        if arrays == (None, None) and same(first, second):
            return first
        if not all(
            a is not None or number(v) for a, v in zip(arrays, (first, second), strict=True)
        ):
            return self._different(
                name, f"is {_named(first)} in one branch, {_named(second)} in another"
            )
        pair = [
            as_entry(v if a is None else a) for a, v in zip(arrays, (first, second), strict=True)
        ]
        pair = _unified(*pair)
        if pair[0].spec != pair[1].spec:
            return self._different(
                name, f"is {pair[0].spec} in one branch, {pair[1].spec} in another"
            )
        return _Output(self._output(*pair), second if arrays[0] is None else first)

    def filled(self, value: Any, entries: Any) -> Any:
        """The value with the branch's results in their places."""
        if isinstance(value, _Output):
            return like(value.holder, entries[value.place])
        if type(value) in (list, tuple):
            return type(value)(self.filled(item, entries) for item in value)
        if type(value) is dict:
            return {key: self.filled(item, entries) for key, item in value.items()}
        return value


def _named(value: Any) -> str:
    array = array_of(value)
    return repr(value) if array is None else str(as_entry(array).spec)


def _unified(first: Entry, second: Entry) -> list[Entry]:
    """Numbers take the dtype of an array beside them, or of a floating number."""
    pair = [first, second]
    for one, other in ((0, 1), (1, 0)):
        mine, theirs = pair[one].spec, pair[other].spec
        if not mine.weak or mine.dtype is theirs.dtype and mine.weak == theirs.weak:
            continue
        if not theirs.weak or (theirs.dtype.is_inexact and not mine.dtype.is_inexact):
            pair[one] = call("cast", pair[one], dtype=theirs.dtype)
    return [_strong(entry) for entry in pair]


def _of_leaves(change: dict[Path, Any], path: Path) -> Any:
    """The nested value of its leaves: containers are entries of their own, see `leaves`."""
    if path in change:
        return change[path]
    size = len(path)
    mark = next(p for p in change if p[:size] == path and len(p) > size and p[size] in KINDS)
    kind = mark[size]
    if kind is dict:
        return {key: _of_leaves(change, (*path, key)) for key in mark[size + 1 :]}
    return kind(_of_leaves(change, (*path, index)) for index in range(mark[size + 1]))


KINDS = (list, tuple, dict)


# --- loops ----------------------------------------------------------------------------------


class _Loop:
    """A loop whose condition is a symbol: its step, traced once its variables keep their specs."""

    def __init__(
        self, flow: Flow, test: Action, body: Action, state: State, names: Any, line: int
    ) -> None:
        self.flow, self.test, self.body, self.state = flow, test, body, state
        self.names, self.line = names, line
        self.before = state.get()
        self.values = {p: v for n in names for p, v in leaves(self.before[n], (n,))}
        #: What starts anew with each step, and with which value the first one does.
        self.carried: dict[Path, Any] = {}
        #: Variables the step gives values to that they do not have before it.
        self.inner: set[str] = set()

    def run(self) -> None:
        """Trace until nothing changes any more; then the loop is one operation."""
        for _ in range(8 + len(self.values)):
            if self._traced():
                return
        raise self.flow.error(self.line, "what a loop's variables hold does not settle")

    def _traced(self) -> bool:
        held = {p: v for p, v in self.values.items() if p not in self.carried}
        objects = Objects(held)
        starts = {path: as_entry(_bare(value)) for path, value in self.carried.items()}
        stands = {path: placeholder(entry.spec) for path, entry in starts.items()}
        local, change = objects.fresh(held)
        for path, entry in stands.items():
            change[path] = like(self.carried[path], call("copy", entry))
        first = {n: rebuilt(self.before[n], (n,), change) for n in self.names}
        self.state.put({**self.before, **first})
        test, after = self.flow._inside(lambda: (condition(self.test()), self.body())[0],
                                        self.state, self.before)  # fmt: skip
        found = {p: v for n in self.names for p, v in leaves(after[n], (n,))}
        if self._adapted(found, objects, local, starts):
            return False
        written = [i for i, x in enumerate(local) if as_entry(x) is not x]
        news = [*(as_entry(local[i]) for i in written)]
        news += [_strong(as_entry(_bare(found[path]))) for path in stands]
        rest = [i for i in range(len(local)) if i not in written]
        inputs = [*(objects.stands[i] for i in written), *stands.values(),
                  *(objects.stands[i] for i in rest)]  # fmt: skip
        free = free_inputs((test, *news), tuple(inputs))
        graphs = {"test": closed((test,), (*inputs, *free), "test"),
                  "step": closed(tuple(news), (*inputs, *free), "step")}  # fmt: skip
        if any(n.op is not None and n.op.random for g in graphs.values() for n in g.walk()):
            raise self.flow.error(self.line, "random numbers in a loop of unknown length")
        given = [*(objects.own[i] for i in written), *starts.values(),
                 *(objects.own[i] for i in rest)]  # fmt: skip
        if not news:
            raise self.flow.error(self.line, "the loop changes nothing its condition could see")
        entries = iterate.apply((*map(as_entry, given), *free), graphs)
        for index, entry in zip(written, entries, strict=False):
            call("overwrite", objects.own[index], entry)
        last = {path: like(self.carried[path], entry)
                for path, entry in zip(stands, entries[len(written) :], strict=True)}  # fmt: skip
        final = {n: _kept(self.before[n], rebuilt(self.before[n], (n,), last)) for n in self.names}
        why = f"is given a value in the loop of line {self.line} only, which may make no step"
        final |= {name: Undefined(why) for name in self.inner}
        self.state.put({**self.before, **final})
        return True

    def _adapted(self, found: Any, objects: Objects, local: Any, starts: Any) -> bool:
        """Whether the step has to be traced again: it leaves something else than it was given."""
        changed = False
        for name in self.names:
            paths = [path for path in self.values if path[0] == name]
            if isinstance(self.before[name], Undefined):
                changed |= self._begun(name, found)
            elif paths != [path for path in found if path[0] == name]:
                raise self.flow.error(self.line, f"{name!r} is nested differently after a step")
            else:
                changed |= any([self._moved(p, found[p], objects, local, starts) for p in paths])
        return changed

    def _begun(self, name: str, found: Any) -> bool:
        """A variable without a value before the loop."""
        value = found.get((name,), UNDEFINED)
        array = array_of(value)
        if not name.startswith(HIDDEN) or array is None:
            self.inner |= {name} if not isinstance(value, Undefined) else set()
            return False
        if (name,) in self.carried:
            return False
        given = as_entry(array)
        zeros = full(0, shape=given.shape, dtype=given.dtype)
        self.carried[name,] = like(value, zeros)
        self.values[name,] = self.before[name]
        return True

    def _moved(self, path: Path, value: Any, objects: Objects, local: Any, starts: Any) -> bool:
        """One place: whether it has to be carried from step to step, or to begin otherwise."""
        array, before = array_of(value), self.values[path]
        if path not in self.carried:
            index = objects.at.get(path)
            if array is local[index] if index is not None else same(value, before):
                return False
            if index is None and not number(before):
                text = f"{path[0]!r} is {_named(before)} before a step and {_named(value)} after"
                raise self.flow.error(self.line, text)
            if index is None:  # a number: an array from the first step on
                before = _strong(as_entry(before))
            self.carried[path] = before
            return True
        if array is None and not number(value):
            raise self.flow.error(self.line, f"{path[0]!r} becomes {_named(value)} in the loop")
        new, old = as_entry(_bare(value)).spec, starts[path].spec
        if (new.shape, new.dtype) == (old.shape, old.dtype):
            return False
        if new.shape == old.shape and number(self.values[path]):
            self.carried[path] = like(value, call("cast", starts[path], dtype=new.dtype))
            return True
        text = f"{path[0]!r} is {old} before a step and {new} after; it must stay what it is"
        raise self.flow.error(self.line, text)


def _strong(entry: Entry) -> Entry:
    """An array, of a number, too."""
    found: Entry = call("cast", entry, dtype=entry.dtype) if entry.spec.weak else entry
    return found


def _bare(value: Any) -> Any:
    array = array_of(value)
    return value if array is None else array


# --- Python's own functions -----------------------------------------------------------------


class Range:
    """range(...) of which a bound is a symbol: for loops count with it."""

    def __init__(self, *bounds: Any) -> None:
        full_ = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)
        self.start, self.stop, self.step = full_[:3]

    def before(self, counter: Any) -> Any:
        """Whether there is a step for this count."""
        up = known(self.step > 0)
        if up is None:
            raise TraceError("range: the step must be known when the function is traced")
        return counter < self.stop if up else counter > self.stop

    def __iter__(self) -> Any:
        raise TraceError("range() of an array's value can only stand in a for loop of its own")


def _unknown(value: Any) -> bool:
    array = array_of(value)
    return isinstance(array, Entry) and not array.node.is_number


def _range(*bounds: Any) -> Any:
    if any(map(_unknown, bounds)):
        return Range(*(as_entry(_bare(b)) if _unknown(b) else b for b in bounds))
    return range(*bounds)


def _converted(function: Any, dtype: str) -> Any:
    def convert(*value: Any) -> Any:
        if not value or not _unknown(value[0]):
            return function(*value)
        return like(value[0], call("cast", as_entry(_bare(value[0])).reshape(()), dtype=dtype))

    return convert


REPLACED = {
    range: _range,
    int: _converted(int, "int64"),
    float: _converted(float, "float32"),
    bool: _converted(builtins.bool, "bool"),
}

__all__ = ["Flow", "GemelError", "State"]
