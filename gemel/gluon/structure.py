"""The bookkeeping of a block: its parents, its compiled program, and when that is invalid.

A compiled program over a block is valid while the block's structure stays the same. A change (a
child, parameter or hook is added, replaced or removed) calls `Block._changed`. This drops the
program and the `state` of the block and of all blocks that it is inside of. So does another value
of an attribute (`attribute_set`), unless `forward` gives it while it is traced.
"""

from __future__ import annotations

from _weakref import ref
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from gemel.ir.current import current_trace
from gemel.process.tracebacks import warn
from gemel.tracing import compiled

if TYPE_CHECKING:
    from gemel.gluon.block import Block


class Internals:
    """gemel's data about a block (`block._own`), kept out of `vars(block)`, which users iterate
    over.

    `parents`     weak references to the blocks that have it as a child
    `names`       how many blocks of each kind were named in its scope
    `unfinished`  whether a parameter inside may still have an unknown shape
    `changes`     how often each attribute got another value while there was a program
    `compiled`    its program, if it is hybridized and was called
    `program`     the same, if calls may go there directly because there are no hooks around it
    `given_up`    why it is not compiled as a whole although it is hybridized; None if it is
    `last`        the kind of arguments of the last program, kept after that was dropped
    `op_hook`     the callback for the results of operations
    `group`       the communication group of a layer that computes over several devices
    `state`       an object that is replaced whenever the block may compute something else; None
                  while no program asks for it
    `in_parts`    whether inner hooks require running the children one by one; None: not known yet
    `precision`   the mixed precision of its programs, which overrides the one outside
    """

    __slots__ = (
        "changes",
        "compiled",
        "given_up",
        "group",
        "in_parts",
        "last",
        "names",
        "op_hook",
        "parents",
        "precision",
        "program",
        "state",
        "unfinished",
    )

    def __init__(self) -> None:
        self.parents: tuple[Any, ...] = ()
        self.names: dict[str, int] = {}
        self.unfinished = False
        self.changes: dict[str, int] = {}
        self.compiled: Any = None
        self.program: Any = None
        self.given_up: str | None = None
        self.last: Any = None
        self.op_hook: Any = None
        self.group: Any = None
        self.state: Any = None
        self.in_parts: bool | None = None
        self.precision: Any = None

    def last_call(self) -> Any:
        """The kind of arguments of the last call of the block's program; None before the first."""
        return (self.compiled and self.compiled.last()) or self.last

    def version(self) -> Any:
        """The current `state`: a program that ran the block is valid while it stays the same."""
        if self.state is None:
            self.state = object()
        return self.state

    def invalidate(self) -> None:
        """Invalidate programs that ran the block, and check for hooks again."""
        self.program = self.in_parts = None
        if self.state is not None:
            self.state = None
            compiled.parameters_replaced()


class Children(dict[str, "Block"]):
    """The children of a block by name. Changing the dictionary changes the block's structure."""

    __slots__ = ("_block",)

    def __init__(self, block: Block) -> None:
        super().__init__()
        self._block: Any = ref(block)

    def __setitem__(self, name: str, child: Block) -> None:
        before = self.get(name)
        super().__setitem__(name, child)
        if before is not None:
            self._leave(before)
        parents = child._own.parents
        if self._block not in parents:
            child._own.parents = (*(p for p in parents if p() is not None), self._block)
        self._block()._changed()

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)  # a copy belongs to no block

    def __delitem__(self, name: str) -> None:
        child = self[name]
        super().__delitem__(name)
        self._leave(child)
        self._block()._changed()

    # Those of a dictionary would not tell the block.
    pop = MutableMapping.pop
    popitem = MutableMapping.popitem
    clear = MutableMapping.clear
    update = MutableMapping.update
    setdefault = MutableMapping.setdefault

    def _leave(self, child: Block) -> None:
        """The block is no longer a parent of a child that it has under no name."""
        if not any(other is child for other in self.values()):
            child._own.parents = tuple(p for p in child._own.parents if p is not self._block)


#: After so many changes of an attribute that dropped programs, a warning says so.
OFTEN = 8
#: Attributes of these types are the same if they are written alike, which 0.0 and -0.0 are not.
_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes))


def attribute_set(block: Block, name: str, value: Any) -> None:
    """Drop the programs that ran a block before one of its attributes, which `forward` may have
    read, gets another value.

    What `forward` itself keeps in the block while it is traced changes no program: it would be
    traced in each call.
    """
    own = getattr(block, "_own", None)
    if own is None or not (own.parents or own.state or own.compiled):
        return  # no program can have run it
    if current_trace() is not None or name in block._set_by_calls:
        return
    before, kind = block.__dict__.get(name, ...), type(value)
    alike = kind in _PLAIN and kind is type(before) and repr(value) == repr(before)
    if value is before or alike:
        return
    around = and_around(block)
    if any(each._own.compiled for each in around):
        _count_change(block, name)
    for each in around:
        each._drop_program()


def _count_change(block: Block, name: str) -> None:
    """Warn once if an attribute changes so often that it may change in every step."""
    changes = block._own.changes
    changes[name] = changes.get(name, 0) + 1
    if changes[name] == OFTEN:
        warn(
            f"{block.name}: the attribute {name} got another value {OFTEN} times, and each time "
            "the hybridized block is traced again, as forward may read it; keep what changes in "
            "every step elsewhere, or pass it to forward as an array"
        )


def and_around(block: Block) -> list[Block]:
    """The block, and the blocks that it is inside of at any depth, each once."""
    found = {id(block): block}
    waiting = [block]
    while waiting:
        parents = [parent() for parent in waiting.pop()._own.parents]
        new = [each for each in parents if each is not None and id(each) not in found]
        found.update((id(each), each) for each in new)
        waiting += new
    return list(found.values())
