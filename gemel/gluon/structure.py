"""What a block is made of, besides the attributes that users see in `vars(block)`."""

from __future__ import annotations

from _weakref import ref
from typing import TYPE_CHECKING, Any

from gemel.tracing import compiled

if TYPE_CHECKING:
    from gemel.gluon.block import Block


class Own:
    """What gemel notes about a block. Programs that walk over a block's attributes never meet it.

    `parents` are weak references to the blocks it is a part of, `names` counts the blocks named
    in its scope, `unfinished` says that the shape of an own parameter may still be unknown;
    `compiled` is the block's program and `program` what a call may go to straight away: the
    program, when there are no hooks around it; `last` is the kind of arguments the last program
    was for, once that is gone. `op_hook` is told what every operation gives. `group` is where the
    devices of a layer meet that computes over all of them. `state` is another one whenever the
    block or what is in it may do something else, None where no program asks; `in_parts` says that
    hooks inside are to be called, None: not known. `precision` is the mixed precision its programs
    are computed in, whatever is in force outside.
    """

    __slots__ = (
        "compiled",
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
        self.compiled: Any = None
        self.program: Any = None
        self.last: Any = None
        self.op_hook: Any = None
        self.group: Any = None
        self.state: Any = None
        self.in_parts: bool | None = None
        self.precision: Any = None

    def version(self) -> Any:
        """The `state`, for a program that has run the block."""
        if self.state is None:
            self.state = object()
        return self.state

    def renew(self) -> None:
        """Have programs that ran the block look at it again, and the block at its hooks."""
        self.program = self.in_parts = None
        if self.state is not None:
            self.state = None
            compiled.parameters_replaced()


class Children(dict[str, "Block"]):
    """The blocks inside of a block, by name; who writes to it changes the block."""

    __slots__ = ("_block",)

    def __init__(self, block: Block) -> None:
        super().__init__()
        self._block: Any = ref(block)

    def __setitem__(self, name: str, child: Block) -> None:
        super().__setitem__(name, child)
        parents = child._own.parents
        if self._block not in parents:
            child._own.parents = (*(p for p in parents if p() is not None), self._block)
        self._block()._changed()

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)  # a copy belongs to no block

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._block()._changed()
