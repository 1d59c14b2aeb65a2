"""A branch that the running program decides: merging the variables of its two sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel.ir.graph import Entry, is_number
from gemel.ir.methods import call
from gemel.ops.control import free_inputs
from gemel.ops.elementwise import full
from gemel.runtime.prepare import as_entry
from gemel.scripting.values import (
    HIDDEN,
    Objects,
    Path,
    Undefined,
    array_of,
    described,
    like,
    same,
    strong,
)

if TYPE_CHECKING:
    from gemel.scripting.flow import Flow


def kept(before: Any, after: Any) -> Any:
    """The old list or dict with its new contents, as others may hold it."""
    if type(before) is list and type(after) is list:
        before[:] = after
        return before
    if type(before) is dict and type(after) is dict:
        before.clear()
        before.update(after)
        return before
    return after


class _Output:
    """Marks a leaf that will be a result of the branch."""

    def __init__(self, place: int, holder: Any) -> None:
        self.place, self.holder = place, holder


class Merge:
    """Merges the variables of two sides: equal ones, results of the branch, and one-sided ones."""

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
        """The inputs that the sides need besides the variables."""
        found: dict[Entry, None] = {}
        for side in self.outputs:
            found.update(dict.fromkeys(free_inputs(tuple(side), tuple(self.objects.stands))))
        return list(found)

    def variable(self, name: str, before: Any) -> Any:
        """The value of a variable after the branch, with an `_Output` for each result of it."""
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
        if name.startswith(HIDDEN) and array is not None:  # never read unless it was assigned
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
        for index, stands in enumerate(zip(*self.local, strict=True)):
            if arrays[0] is stands[0] and arrays[1] is stands[1]:
                return like(first, self.objects.own[index])
        if arrays == (None, None) and same(first, second):
            return first
        either = f"is {described(first)} in one branch, {described(second)} in another"
        values = list(zip(arrays, (first, second), strict=True))
        if not all(array is not None or is_number(value) for array, value in values):
            return self._different(name, either)
        both = _unified(*(as_entry(value if array is None else array) for array, value in values))
        if both[0].spec != both[1].spec:
            return self._different(name, either)
        return _Output(self._output(*both), second if arrays[0] is None else first)

    def filled(self, value: Any, entries: Any) -> Any:
        """The value with the branch's results in place of the marks."""
        if isinstance(value, _Output):
            return like(value.holder, entries[value.place])
        if type(value) in (list, tuple):
            return type(value)(self.filled(item, entries) for item in value)
        if type(value) is dict:
            return {key: self.filled(item, entries) for key, item in value.items()}
        return value


def _unified(first: Entry, second: Entry) -> list[Entry]:
    """Both entries as arrays; a number takes the dtype of an array or floating number beside it."""
    pair = [first, second]
    for one, other in ((0, 1), (1, 0)):
        mine, theirs = pair[one].spec, pair[other].spec
        if not mine.weak or mine.dtype is theirs.dtype and mine.weak == theirs.weak:
            continue
        if not theirs.weak or (theirs.dtype.is_inexact and not mine.dtype.is_inexact):
            pair[one] = call("cast", pair[one], dtype=theirs.dtype)
    return [strong(entry) for entry in pair]


def _of_leaves(change: dict[Path, Any], path: Path) -> Any:
    """The nested value made of leaves; containers have entries of their own, see `leaves`."""
    if path in change:
        return change[path]
    size = len(path)
    mark = next(p for p in change if p[:size] == path and len(p) > size and p[size] in KINDS)
    kind = mark[size]
    if kind is dict:
        return {key: _of_leaves(change, (*path, key)) for key in mark[size + 1 :]}
    return kind(_of_leaves(change, (*path, index)) for index in range(mark[size + 1]))


KINDS = (list, tuple, dict)
