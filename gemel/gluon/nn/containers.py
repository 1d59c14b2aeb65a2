"""Blocks made of other blocks: one after the other, or side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import np
from gemel.errors import ArrayIndexError
from gemel.gluon.block import Block, Tensor
from gemel.gluon.hybrid import HybridBlock
from gemel.spec import whole

if TYPE_CHECKING:
    from collections.abc import Iterator


class BlockList(Block):
    """What containers share: `add`, indexing, length and iteration."""

    _container = True

    def __init__(self, *blocks: Block, **settings: Any) -> None:
        super().__init__(**settings)
        self.add(*blocks)

    def add(self, *blocks: Block) -> None:
        """Append blocks."""
        for block in blocks:
            self.register_child(block)

    def __getitem__(self, key: int | slice) -> Any:
        """The child at this position; for a slice, a container of the same kind with those
        children. Raises `OperandError` and `ArrayIndexError`."""
        children = list(self._children.values())
        if not isinstance(key, slice):
            position = whole(type(self).__name__, "the position", key)
            if not -len(children) <= position < len(children):
                raise ArrayIndexError(
                    f"{type(self).__name__}: position {position} is out of range for "
                    f"{len(children)} blocks"
                )
            return children[position]
        part = type(self)(prefix=self.prefix)
        part.add(*children[key])
        return part

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Block]:
        return iter(self._children.values())

    def _one_after_the_other(self, x: Tensor, *arguments: Any) -> Tensor:
        """Each child receives the previous child's result; several results become several
        arguments."""
        for block in self._children.values():
            x = block(x, *arguments)
            arguments = ()
            if isinstance(x, (tuple, list)):
                x, *rest = x
                arguments = tuple(rest)
        return (x, *arguments) if arguments else x

    def _side_by_side(self, x: Tensor, axis: int) -> Tensor:
        return np.concatenate([block(x) for block in self._children.values()], axis=axis)


class Sequential(BlockList):
    """Blocks run one after the other."""

    def forward(self, x: Tensor, *arguments: Any) -> Tensor:
        """The last block's result."""
        return self._one_after_the_other(x, *arguments)


class HybridSequential(BlockList, HybridBlock):
    """Hybrid blocks run one after the other; `hybridize()` makes one program of them."""

    def forward(self, x: Tensor, *arguments: Any) -> Tensor:
        """The last block's result."""
        return self._one_after_the_other(x, *arguments)


class Concatenate(BlockList):
    """Blocks that all get the same input; their results are joined along `axis`."""

    def __init__(self, *blocks: Block, axis: int = -1, **settings: Any) -> None:
        self._axis = whole(type(self).__name__, "axis", axis)
        super().__init__(*blocks, **settings)

    def forward(self, x: Tensor) -> Tensor:
        """All blocks' results, joined."""
        return self._side_by_side(x, self._axis)


class HybridConcatenate(BlockList, HybridBlock):
    """Hybrid blocks that all get the same input; their results are joined along `axis`."""

    def __init__(self, *blocks: Block, axis: int = -1, **settings: Any) -> None:
        self._axis = whole(type(self).__name__, "axis", axis)
        super().__init__(*blocks, **settings)

    def forward(self, x: Tensor) -> Tensor:
        """All blocks' results, joined."""
        return self._side_by_side(x, self._axis)


#: Their older names.
Concurrent = Concatenate
HybridConcurrent = HybridConcatenate
