"""Images: a plan as bytes, for many sizes. `docs/internals/plan-image.md` has the format.

The first half of the module is the data of an image, as named tuples; sizes in them are numbers or
`Dim`s. (A `Buffer` stands for memory that has no address yet.) `_ImageWriter` writes them as 64-bit
words; for a size that depends on free extents, the number of a slot, which the core computes when
it binds the plan to a call's sizes (`_Slots`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from gemel import _core
from gemel.errors import CompileError, ShapeError
from gemel.extent import Dim, Guard, name_of
from gemel.forms import Atom, Form
from gemel.spec import MOST_DIMENSIONS

MAGIC, VERSION = 0x006E616C706D6567, 3
#: The words before all others, and what stands for the checksum of an image for this process.
HEADER, UNCHECKED = 5, -1
OPERATIONS = ("+", "-", "*", "//", "%", "minimum", "maximum")
RELATIONS = ("==", "<", "<=")
#: Flags of an input: it has strides of its own; it is overwritten; it fails if its new value cannot
#: be computed (otherwise it keeps the old one); its old contents are read.
STRIDED, WRITTEN, FAILS, READ = 1, 2, 4, 8
#: The spaces of memory that addresses are in.
INPUT, OUTPUT, TEMPORARY, CAPTURED, WINDOW, KEPT = range(6)
#: The first word of each kind of item. A loop with a condition is a kind of its own.
_STEP, _BRANCHING, _PARALLEL, _LOOP, _KEPT, _CONDITIONAL_LOOP, _RESULT = range(7)

#: (space, index, offset in bytes).
Address = tuple[int, int, int]


class Input(NamedTuple):
    """An array a plan takes; `strides` if it is not dense."""

    dtype: int
    shape: Sequence[int]
    strides: Sequence[int] | None = None
    flags: int = 0


class Output(NamedTuple):
    """An array a plan returns: a new one, or, with `strides`, a view of (space, source)."""

    dtype: int
    shape: Sequence[int]
    strides: Sequence[int] | None = None
    offset: int = 0
    space: int = INPUT
    source: int = 0


class Temporary(NamedTuple):
    """Scratch memory in use from item `first` to item `last`, numbered by time."""

    size: int
    first: int
    last: int


class Step(NamedTuple):
    """A kernel launch. Scalars are (position among the integers, source, whether it is a float).

    `label` is a description for people, in which {0}, {1}, ... stand for sizes.
    """

    kernel: int
    buffers: Sequence[Address]
    integers: Sequence[int]
    extent: int
    chunk: int
    scalars: Sequence[tuple[int, int, bool]] = ()
    cost: int = 0
    failure: tuple[str, str] | None = None
    label: tuple[str, Sequence[int]] = ("", ())


class Branching(NamedTuple):
    """Two lists of items: `then` runs if the byte at `condition` is not 0, else `otherwise`."""

    condition: Address
    then: Sequence[Item]
    otherwise: Sequence[Item]


class Parallel(NamedTuple):
    """Lists of items that may run side by side."""

    parts: Sequence[Sequence[Item]]


class Loop(NamedTuple):
    """Items that run `rounds` times, over windows that move: (address, bytes per round, period).

    The period is 0 for a window that moves on each round; n for one that takes turns at n places;
    -1 - k for one that is window k in the first round and lags one round behind from then on.

    With a condition a round runs only if the byte there is not 0, and `after` runs once at the end.
    """

    rounds: int
    windows: Sequence[tuple[Address, int, int]]
    items: Sequence[Item]
    condition: Address | None = None
    after: Sequence[Item] = ()


class Kept(NamedTuple):
    """Items whose results (of `sizes` bytes) are kept from run to run; the first item of a plan.

    They depend only on these inputs and captured arrays, and run again when one of those changes.
    """

    inputs: Sequence[int]
    captured: Sequence[int]
    sizes: Sequence[int]
    items: Sequence[Item]


class Result(NamedTuple):
    """A mark: this output is finished, and can be read before the plan ends."""

    output: int


Item = Step | Branching | Parallel | Loop | Kept | Result


class Buffer:
    """A block of memory a plan uses: an input, output, captured array or temporary.

    `strided`: it belongs to an array that is not dense.
    """

    __slots__ = ("first", "index", "last", "size", "space", "strided")

    def __init__(self, space: int, index: int, size: int = 0, strided: bool = False) -> None:
        self.strided = strided
        self.space = space
        self.index = index
        self.size = size
        self.first = self.last = -1

    @property
    def root(self) -> Buffer:
        """The block itself; a `Window` has the block it moves over."""
        return self


def spanned(array: Any) -> tuple[Any, int]:
    """A contiguous view of the memory an array spans, and the offset of its first element in it."""
    if array._is_contiguous:
        return array, 0
    reaches = [(n - 1) * s for n, s in zip(array.shape, array._element_strides, strict=True)]
    before = -sum(reach for reach in reaches if reach < 0)
    extent = 1 + sum(map(abs, reaches))
    return array._as_strided((extent,), (1,), array.offset - before), before


def free_sizes(shapes: Iterable[Sequence[int]]) -> list[Guard]:
    """The guards that free extents of inputs are at least 2."""
    sizes = {repr(n): n for shape in shapes for n in shape if isinstance(n, Dim)}
    return [Guard(2, "<=", size, True) for size in sizes.values()]


def _steps(item: Item) -> int:
    """The number of kernel launches in an item, not counting those of `Kept`."""
    if isinstance(item, Step):
        return 1
    if isinstance(item, Branching):
        inside = [*item.then, *item.otherwise]
    elif isinstance(item, Parallel):
        inside = [step for part in item.parts for step in part]
    elif isinstance(item, Loop):
        inside = [*item.items, *item.after]
    else:
        inside = []
    return sum(map(_steps, inside))


class Image:
    """A plan under construction: lists to be filled, then `write` or `plan`."""

    def __init__(self, name: str, target: str = "") -> None:
        self.name = name
        self.target = target
        self.guards: list[Guard] = []
        self.inputs: list[Input] = []
        self.outputs: list[Output] = []
        self.scalars = 0
        self.random = 0
        self.temporaries: list[Temporary] = []
        self.captured: list[Any] = []
        self.keys: dict[str, int] = {}
        self.kernels: list[Any] = []
        self.objects: list[Callable[[], bytes]] = []
        self.items: list[Item] = []
        self.sites: list[tuple[int, list[int], list[int], list[int]]] = []
        #: The bytes, if they have been written already.
        self.early = b""

    def kernel(self, key: str, loaded: Any, code: Callable[[], bytes]) -> int:
        """The number of a kernel. `code` returns its object code, for images that embed it.

        `loaded` is the kernel itself; None if it is put into `kernels` later.
        """
        if key not in self.keys:
            self.keys[key] = len(self.kernels)
            self.kernels.append(loaded)
            self.objects.append(code)
        return self.keys[key]

    def count(self) -> int:
        """The number of kernel launches, including branches and loops, without `Kept`."""
        return sum(map(_steps, self.items))

    def write(self, embed: bool = False) -> bytes:
        """The bytes; with `embed` including the kernels' object code and captured arrays."""
        return _ImageWriter(self).image(embed)

    def plan(self, keeper: _core.Keeper | None = None) -> _core.Plan:
        """The callable plan. Plans of one graph share a keeper for the values of `Kept`."""
        return _core.Plan(self.early or self.write(), self.kernels, self.captured, keeper)


class _Slots:
    """The sizes of a plan: constants (kind 0), free extents (1), expressions of these (2).

    Until all are known a slot is (kind, number within the kind).
    """

    def __init__(self) -> None:
        self.kinds: tuple[dict[Any, int], ...] = ({}, {}, {})
        self._sums: dict[Form, tuple[int, int]] = {}

    def _known(self, kind: int, key: Any) -> tuple[int, int]:
        return kind, self.kinds[kind].setdefault(key, len(self.kinds[kind]))

    def given(self, extent: int) -> tuple[int, int]:
        """The slot of an extent or stride of an input; it may make a free extent known."""
        if isinstance(extent, Dim):
            if not name_of(extent):
                raise CompileError(f"an input's extent must be a name or a number, not {extent!r}")
            return self._known(1, name_of(extent))
        return self.of(extent)

    def of(self, extent: int) -> tuple[int, int]:
        """The slot of a size."""
        return self._sum(extent.form) if isinstance(extent, Dim) else self._known(0, int(extent))

    def _computed(
        self, operator: str, left: tuple[int, int], right: tuple[int, int]
    ) -> tuple[int, int]:
        return self._known(2, (OPERATIONS.index(operator), left, right))

    def _sum(self, form: Form) -> tuple[int, int]:
        slot = self._sums.get(form)
        if slot is None:
            slot = self._sums[form] = self._summed(form)
        return slot

    def _summed(self, form: Form) -> tuple[int, int]:
        total = None
        for product, count in sorted(form, key=lambda term: term[1] < 0):
            term = self._product(product, abs(count))
            if total is not None:
                total = self._computed("+" if count > 0 else "-", total, term)
            elif count < 0:
                total = self._computed("-", self._known(0, 0), term)
            else:
                total = term
        return self._known(0, 0) if total is None else total

    def _product(self, atoms: tuple[Atom, ...], count: int) -> tuple[int, int]:
        factors = [self._atom(atom) for atom in atoms]
        if count != 1 or not factors:
            factors.append(self._known(0, count))
        value = factors[0]
        for factor in factors[1:]:
            value = self._computed("*", value, factor)
        return value

    def _atom(self, atom: Atom) -> tuple[int, int]:
        if atom.operator:
            return self._computed(atom.operator, self._sum(atom.left), self._sum(atom.right))
        if atom not in self.kinds[1]:
            raise CompileError(f"the size {atom} does not occur in the inputs")
        return self._known(1, str(atom))


class _ImageWriter:
    """Writes one image: the body first, since it determines which slots the head has."""

    def __init__(self, image: Image) -> None:
        self.source = image
        self.slots = _Slots()
        self.bytes = bytearray()

    def image(self, embed: bool) -> bytes:
        """The bytes: a header, the words of head and body, then those of texts and kernels."""
        source = self.source
        inputs = self._list(source.inputs, self._input)
        body = [
            *self._list(source.guards, self._guard),
            *inputs,
            *self._list(source.outputs, self._output),
            source.scalars,
            source.random,
            *self._list(source.temporaries, lambda t: [self.slots.of(t.size), t.first, t.last]),
            *self._list(
                source.captured, lambda a: self._blob(_core.to_bytes(a) if embed else None)
            ),
            *self._list(source.keys, lambda key: self._kernel(key, embed)),
            *self._list(source.items, self._item),
            *self._list(source.sites, self._site),
        ]
        constants, free, computed = self.slots.kinds
        head = [
            *self._text(source.name),
            *self._text(source.target),
            len(constants),
            *constants,
            len(free),
            *self._list(computed, list),
        ]
        before = 0, len(constants), len(constants) + len(free)
        words = [before[w[0]] + w[1] if type(w) is tuple else w for w in (*head, *body)]
        try:
            rest = struct.pack(f"<{len(words)}q", *words) + bytes(self.bytes)
        except struct.error:
            raise OverflowError(f"{source.name}: a size does not fit 64 bits") from None
        header = [MAGIC, VERSION, len(words) + HEADER, len(self.bytes)]
        return struct.pack(f"<{HEADER}q", *header, crc32(rest) if embed else UNCHECKED) + rest

    def _list(self, items: Iterable[Any], write: Callable[[Any], list[Any]]) -> list[Any]:
        written = [write(item) for item in items]
        return [len(written), *(word for words in written for word in words)]

    def _text(self, text: str) -> list[int]:
        return self._blob(text.encode())

    def _blob(self, data: bytes | None) -> list[int]:
        if data is None:
            return [0, -1]
        self.bytes += b"\0" * (-len(self.bytes) % 64 if len(data) > 64 else 0)
        self.bytes += data
        return [len(self.bytes) - len(data), len(data)]

    def _sizes(self, sizes: Sequence[int] | None) -> list[Any]:
        return [self.slots.of(size) for size in sizes or ()]

    def _guard(self, guard: Guard) -> list[Any]:
        sides = self._sizes((guard.left, guard.right))
        return [RELATIONS.index(guard.relation), *sides, int(guard.answer)]

    def _input(self, array: Input) -> list[Any]:
        strided = array.strides is not None
        sizes = [self.slots.given(size) for size in (*array.shape, *(array.strides or ()))]
        return [array.dtype, array.flags | STRIDED * strided, len(array.shape), *sizes]

    def _output(self, output: Output) -> list[Any]:
        if len(output.shape) > MOST_DIMENSIONS:  # arrays inside a plan may have more
            shape = ", ".join(map(str, output.shape))
            raise ShapeError(
                f"{self.source.name}: its result of shape [{shape}] has {len(output.shape)} "
                f"dimensions; an array has at most {MOST_DIMENSIONS}: reshape the operands first, "
                "so that neighbouring axes are one"
            )
        view = output.strides is not None
        where = [output.space, output.source] if view else [0, 0]
        sizes = self._sizes((*output.shape, *(output.strides or ()), *[output.offset] * view))
        return [int(view), output.dtype, *where, len(output.shape), *sizes]

    def _kernel(self, key: str, embed: bool) -> list[int]:
        code = self.source.objects[self.source.keys[key]]
        return [*self._text(key), *self._blob(code() if embed else None)]

    def _address(self, address: Address) -> list[Any]:
        return [*address[:2], self.slots.of(address[2])]

    def _item(self, item: Item) -> list[Any]:
        if isinstance(item, Step):
            return [_STEP, *self._step(item)]
        if isinstance(item, Branching):
            sides = [self._list(side, self._item) for side in (item.then, item.otherwise)]
            return [_BRANCHING, *self._address(item.condition), *sides[0], *sides[1]]
        if isinstance(item, Loop):
            head = [self.slots.of(item.rounds), *self._list(item.windows, self._window)]
            items, after = (self._list(part, self._item) for part in (item.items, item.after))
            if item.condition is None:
                return [_LOOP, *head, *items]
            return [_CONDITIONAL_LOOP, *head, *self._address(item.condition), *items, *after]
        if isinstance(item, Result):
            return [_RESULT, item.output]
        if isinstance(item, Kept):
            lists = [word for numbers in item[:3] for word in (len(numbers), *numbers)]
            return [_KEPT, *lists, *self._list(item.items, self._item)]
        return [_PARALLEL, *self._list(item.parts, lambda part: self._list(part, self._item))]

    def _window(self, window: tuple[Address, int, int]) -> list[Any]:
        address, step, period = window
        return [*self._address(address), self.slots.of(step), period]

    def _step(self, step: Step) -> list[Any]:
        failure, message = step.failure or ("", "")
        return [
            step.kernel,
            *self._list(step.buffers, self._address),
            len(step.integers),
            *self._sizes(step.integers),
            *self._sizes((step.extent, step.chunk)),
            *self._list(step.scalars, lambda scalar: [*map(int, scalar)]),
            self.slots.of(step.cost),
            *self._text(failure),
            *self._text(message),
            *self._text(step.label[0]),
            len(step.label[1]),
            *self._sizes(step.label[1]),
        ]

    def _site(self, site: tuple[int, list[int], list[int], list[int]]) -> list[int]:
        item, *lists = site
        return [item, *(word for numbers in lists for word in (len(numbers), *numbers))]


__all__ = [
    "Branching",
    "Buffer",
    "Image",
    "Input",
    "Kept",
    "Loop",
    "Output",
    "Parallel",
    "Result",
    "Step",
    "Temporary",
    "free_sizes",
    "spanned",
]
