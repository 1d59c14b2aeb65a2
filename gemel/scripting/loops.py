"""Loops whose condition only the running program knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel.ir.graph import is_number, placeholder
from gemel.ir.methods import call
from gemel.ops.control import closed, free_inputs, iterate
from gemel.ops.elementwise import full
from gemel.runtime.prepare import as_entry
from gemel.scripting.choices import kept
from gemel.scripting.values import (
    HIDDEN,
    UNDEFINED,
    Action,
    Objects,
    Path,
    Undefined,
    array_of,
    bare,
    condition,
    described,
    leaves,
    like,
    rebuilt,
    same,
    strong,
)

if TYPE_CHECKING:
    from gemel.scripting.flow import Flow, State


class Loop:
    """A loop whose condition is a symbol. The step is traced until its specs are stable."""

    def __init__(
        self, flow: Flow, test: Action, body: Action, state: State, names: Any, line: int
    ) -> None:
        self.flow, self.test, self.body, self.state = flow, test, body, state
        self.names, self.line = names, line
        self.before = state.get()
        self.values = {p: v for n in names for p, v in leaves(self.before[n], (n,))}
        #: The values carried from step to step, with their initial values.
        self.carried: dict[Path, Any] = {}
        #: Variables that have no value before the step and get one in it.
        self.inner: set[str] = set()

    def run(self) -> None:
        """Trace the step until nothing changes any more; then add the loop as one operation."""
        for _ in range(8 + len(self.values)):
            if self._traced():
                return
        raise self.flow.error(self.line, "the kinds of the loop's variables keep changing")

    def _traced(self) -> bool:
        """Trace the condition and the step once; add the loop, unless they must be traced again."""
        held = {p: v for p, v in self.values.items() if p not in self.carried}
        objects = Objects(held)
        starts = {path: as_entry(bare(value)) for path, value in self.carried.items()}
        stands = {path: placeholder(entry.spec) for path, entry in starts.items()}
        local, change = objects.fresh(held)
        for path, entry in stands.items():
            change[path] = like(self.carried[path], call("copy", entry))
        first = {n: rebuilt(self.before[n], (n,), change) for n in self.names}
        self.state.put({**self.before, **first})
        test, after = self.flow.inside(
            lambda: (condition(self.test()), self.body())[0], self.state, self.before
        )
        found = {p: v for n in self.names for p, v in leaves(after[n], (n,))}
        if self._adapted(found, objects, local, starts):
            return False
        last = self._added(test, found, objects, local, starts, stands)
        final = {n: kept(self.before[n], rebuilt(self.before[n], (n,), last)) for n in self.names}
        why = f"is given a value in the loop of line {self.line} only, which may make no step"
        final |= {name: Undefined(why) for name in self.inner}
        self.state.put({**self.before, **final})
        return True

    def _added(
        self,
        test: Any,
        found: dict[Path, Any],
        objects: Objects,
        local: Any,
        starts: dict[Path, Any],
        stands: dict[Path, Any],
    ) -> dict[Path, Any]:
        """Add the loop as one operation. Returns the values that it carries, after its last step.

        Of the arrays in `objects`, `local` after the step, those that the step has written to are
        carried as well, and the others are read only.
        """
        written = [i for i, x in enumerate(local) if as_entry(x) is not x]
        rest = [i for i in range(len(local)) if i not in written]
        news = [*(as_entry(local[i]) for i in written)]
        news += [strong(as_entry(bare(found[path]))) for path in stands]
        inside, outside = objects.stands, objects.own
        inputs = [
            *(inside[i] for i in written),
            *stands.values(),
            *(inside[i] for i in rest),
        ]
        given = [*(outside[i] for i in written), *starts.values(), *(outside[i] for i in rest)]
        free = free_inputs((test, *news), tuple(inputs))
        graphs = {
            "condition": closed((test,), (*inputs, *free), "condition"),
            "step": closed(tuple(news), (*inputs, *free), "step"),
        }
        if any(n.op is not None and n.op.random for g in graphs.values() for n in g.walk()):
            raise self.flow.error(self.line, "random numbers in a loop of unknown length")
        if not news:
            raise self.flow.error(
                self.line, "the loop does not change anything that its condition depends on"
            )
        entries = iterate.apply((*map(as_entry, given), *free), graphs)
        for index, entry in zip(written, entries, strict=False):
            call("overwrite", outside[index], entry)
        return {
            path: like(self.carried[path], entry)
            for path, entry in zip(stands, entries[len(written) :], strict=True)
        }

    def _adapted(self, found: Any, objects: Objects, local: Any, starts: Any) -> bool:
        """Whether the step must be traced again, because its results differ from its inputs."""
        changed = False
        for name in self.names:
            paths = [path for path in self.values if path[0] == name]
            if isinstance(self.before[name], Undefined):
                changed |= self._begun(name, found)
            elif paths != [path for path in found if path[0] == name]:
                raise self.flow.error(self.line, f"{name!r} has a different nesting after a step")
            else:
                for path in paths:  # no short cut: each call has to see its path
                    changed |= self._moved(path, found[path], objects, local, starts)
        return changed

    def _begun(self, name: str, found: Any) -> bool:
        """Whether a variable without a value before the loop has to be carried from now on."""
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
        """Whether a place must be carried from step to step from now on, or begin differently."""
        array, before = array_of(value), self.values[path]
        if path not in self.carried:
            index = objects.at.get(path)
            if array is local[index] if index is not None else same(value, before):
                return False
            if index is None and not is_number(before):
                text = (
                    f"{path[0]!r} is {described(before)} before a step and {described(value)} after"
                )
                raise self.flow.error(self.line, text)
            if index is None:  # a number becomes an array, from the first step on
                before = strong(as_entry(before))
            self.carried[path] = before
            return True
        if array is None and not is_number(value):
            raise self.flow.error(self.line, f"{path[0]!r} becomes {described(value)} in the loop")
        new, old = as_entry(bare(value)).spec, starts[path].spec
        if (new.shape, new.dtype) == (old.shape, old.dtype):
            return False
        if new.shape == old.shape and is_number(self.values[path]):
            self.carried[path] = like(value, call("cast", starts[path], dtype=new.dtype))
            return True
        text = f"{path[0]!r} is {old} before a step and {new} after; it must stay what it is"
        raise self.flow.error(self.line, text)
