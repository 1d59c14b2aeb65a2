"""What is asked of a product: its sizes, and how its factors lie."""

from __future__ import annotations

from typing import NamedTuple

from gemel.codegen.target import Target
from gemel.dtype import DType
from gemel.errors import unknown_name
from gemel.extent import hold, maximum, seen

#: Estimated multiply-adds per nanosecond and per byte of vector width, on one core.
RATE = 1
#: Up to this size, each size has its own kernels and tiles.
EXACT = 64
#: Bytes read per nanosecond from the second-level cache, and its capacity. From beyond it come 20
#: bytes per nanosecond: as 1/20 = 1/90 + 1/26, each 26 bytes beyond it add a nanosecond.
NEAR, NEAR_BYTES, FURTHER = 90, 1 << 20, 26
#: The extent and stride of a missing axis.
ONE = (1, 0)
#: A vector of lines is assembled from at most this many runs.
MOST_RUNS = 4
#: From this many neighbours along k on, transposing a square costs less than gathering lines.
TURNED = 3
#: How many k share a lane of 32 bits: bytes that are summed in int32, and bfloat16.
FOURS, PAIRS = 4, 2
#: How much of k fits into the panels that kernels make of windows.
DEPTH = 576

#: The bytes of a page, and those of all pages whose addresses a processor keeps; and how many lines
#: that fall into the same sets of its caches are too many.
PAGE, REACH, CROWD = 1 << 12, 1 << 22, 512
#: How many lines of a b that streams by are read at a time.
STREAMED = 16

#: From this many rows and this much of k on, a product of bfloat16 is done in pairs; from fewer
#: rows on if panels of b exist already.
FEW_PAIRED, FEW_PAIRED_OFTEN, SHORT_PAIRED = 12, 4, 32
#: The same for windows: with fewer rows, no panels are made.
WINDOWS_PAIRED = 17
#: This many columns make up for copying the first factor if its pairs lie apart: the copy takes
#: 0.6 ns per element, and pairs save 1/230 ns per column.
MANY_PAIRED = 256


class WindowForm(NamedTuple):
    """How panels of windows are made, see `tiles.windows`. With ``rows`` a vector is assembled
    from `runs` runs of neighbours, whose elements are `step` apart."""

    way: str
    runs: int = 0
    step: int = 1

    @property
    def text(self) -> str:
        """The form as a word of a schedule."""
        return f"{self.way}-{self.runs}-{self.step}" if self.way == "rows" else self.way

    @staticmethod
    def parse(text: str) -> WindowForm:
        """The form of this text. Raises `UnknownNameError`."""
        way, *numbers = text.split("-")
        if len(numbers) != 2 * (way == "rows") or not all(map(str.isdigit, numbers)):
            raise unknown_name("form of windows", text, ("rows-1-1", "turned", "gathered"))
        return WindowForm(way, *map(int, numbers))


class WindowAxes(NamedTuple):
    """A second operand whose k or lines run along several axes: windows over an image.

    `k` and `n` have (extent, stride) of three axes each, the outermost first. `form` says how
    panels are made of them (see `tiles.windows`). In panels, `together` neighbours along the
    axis `paired` of k share a lane.
    """

    form: str
    k: tuple[tuple[int, int], ...]
    n: tuple[tuple[int, int], ...]
    together: int = 1

    @staticmethod
    def of(k: list[tuple[int, int]], n: list[tuple[int, int]], lanes: int) -> WindowAxes | None:
        """How to make panels; None if there is no way, so the operand has to be copied first."""
        if max(len(k), len(n)) > 3 or any(extent == 0 for extent, _ in (*k, *n)):
            return None
        form = _form(k, n, lanes)
        if form == "turned" and len(k) == 1:
            # The depth of panels is counted along the first axis; squares lie along the last.
            form, k = ("turned", [ONE, ONE, *k]) if k[0][0] <= DEPTH else ("gathered", k)
        k = [*k[:1], ONE, *k[1:]] if len(k) < 3 else k
        found = WindowAxes(form, (*k, *[ONE] * (3 - len(k))), (*[ONE] * (3 - len(n)), *n))
        return found if found.inner <= DEPTH else None

    @property
    def paired(self) -> int:
        """The axis of k whose neighbours can share a lane: the last one if lines are turned."""
        return 2 if self.form == "turned" else 0

    def steps(self, axis: int) -> int:
        """How many lanes there are along an axis of k."""
        length, _ = self.k[axis]
        return length // self.together if axis == self.paired else length

    @property
    def inner(self) -> int:
        """The depth of panels is a multiple of this: the lanes at one position of k's first
        axis."""
        return self.steps(1) * self.steps(2)


def _form(k: list[tuple[int, int]], n: list[tuple[int, int]], lanes: int) -> str:
    """How panels of b are made: see `tiles.windows`."""
    length, stride = n[-1] if n else ONE
    if stride in (1, 2):
        runs = 1 if len(n) == 1 else 2 if length >= lanes else (lanes - 2) // int(length) + 2
        if runs <= MOST_RUNS:
            return WindowForm("rows", runs, stride).text
    along_k = k and k[-1][1] == 1 and k[-1][0] >= min(TURNED, lanes // 2)
    return "turned" if along_k else "gathered"


class Task(NamedTuple):
    """`batch` products of m x k by k x n that need kernels.

    `lasts` names the axes along which the two operands have stride 1. `often`: panels of b are made
    once for several tasks. `plain`: a is stored in the dtype of the computation; otherwise each
    element that is read where it lies is converted.
    """

    dtype: DType
    lasts: tuple[str, str]
    target: Target
    m: int
    n: int
    k: int
    batch: int = 1
    often: bool = False
    plain: bool = True

    @property
    def lanes(self) -> int:
        """How many elements a vector has."""
        return self.target.width // self.dtype.itemsize

    @property
    def cost(self) -> int:
        """Estimated nanoseconds on one core.

        The longer of the time for the arithmetic and the time for moving the operands and the
        result.
        """
        m, n, k, size = self.m, self.n, self.k, self.dtype.itemsize
        arithmetic = m * n * k * size // (RATE * self.target.width * 4)
        whole = (m * k + k * n + m * n) * size
        moved = whole // NEAR + maximum(whole - NEAR_BYTES, 0) // FURTHER
        return 100 + self.batch * maximum(arithmetic, moved)

    def streams(self, rows: int) -> bool:
        """Whether it pays to read a few lines of b at a time, for many columns, in micro-tiles of
        `rows`.

        It does if a pass over few columns touches more pages than the processor keeps addresses
        for, or if further rows read lines again that fall into the same sets of the caches.
        """
        line = self.n * self.dtype.itemsize
        crowded = self.m > rows and self.k >= CROWD and line % (PAGE // 2) == 0
        far = self.k * line > NEAR_BYTES
        return bool(far and (crowded or self.k * min(line, PAGE) > REACH))

    def in_buckets(self) -> Task:
        """The same task with m, n and batch replaced by their buckets; k stays."""
        m, n, batch = bucket(self.m), bucket(self.n), bucket(self.batch)
        return self._replace(m=m, n=n, batch=batch)

    def all_in_buckets(self) -> Task:
        """The same task with all sizes replaced by their buckets."""
        return self.in_buckets()._replace(k=bucket(self.k))


def bucket(extent: int) -> int:
    """The size that represents an extent in decisions; a guard holds a free extent near it.

    Exact up to 64; above that, the next multiple of an eighth of the power of two below. Known
    sizes are treated the same way, so a product has the same bits whether its sizes are free or
    not.
    """
    if seen(extent) <= EXACT:
        return int(extent)
    found = rounded(seen(extent))
    hold(extent, found - spacing(found), found)
    return found


def spacing(size: int) -> int:
    """The distance to the next smaller bucket."""
    return 1 if size <= EXACT else 1 << (size - 1).bit_length() - 4


def rounded(size: int) -> int:
    """The bucket of a known size."""
    step = spacing(size)
    return -(-size // step) * step


def pays_in_pairs(task: Task) -> bool:
    """Whether a bfloat16 product is faster in pairs, for which both factors must be in panels."""
    task = task.in_buckets()
    if task.n < task.lanes or task.m < (FEW_PAIRED_OFTEN if task.often else FEW_PAIRED):
        return False
    return bucket(task.k) >= SHORT_PAIRED


def windows_pay_in_pairs(task: Task, windows: WindowAxes, still: bool) -> bool:
    """Whether a product of windows is faster in pairs; what shares a lane of the panels must be
    pairs. `still`: if the first factor has to be copied, one copy serves many calls."""
    length, _ = windows.k[windows.paired]
    task = task.in_buckets()
    if windows.form == "gathered" or task.m < WINDOWS_PAIRED or length % 2 != 0:
        return False
    return still or windows.paired == 2 or task.batch * task.n >= MANY_PAIRED
