"""What products are asked for: sizes, and how the factors lie."""

from __future__ import annotations

from typing import NamedTuple

from gemel.codegen.target import Target
from gemel.dtype import DType
from gemel.errors import unknown_name
from gemel.extent import hold, maximum, seen

#: Estimated multiply-adds per nanosecond and byte of vector width, for one core.
RATE = 1
#: Up to here every size has kernels and tiles of its own.
EXACT = 64
#: Bytes read in a nanosecond from the second cache, and how many it holds. From beyond it come 20
#: in a nanosecond: a byte takes 1/20 = 1/90 + 1/26, so those beyond add one for every 26.
NEAR, NEAR_BYTES, FURTHER = 90, 1 << 20, 26
#: What has no length and no stride of its own.
ONE = (1, 0)
#: A vector of lines is put together of so many runs at most.
MOST_RUNS = 4
#: From so many neighbours along k on, transposing a square costs less than gathering its lines.
TURNED = 3
#: So many bytes along k are one lane of a product in int32.
FOURS, PAIRS = 4, 2
#: So much of k is in the panels that kernels make of windows.
DEPTH = 576


#: From so many rows and of so much k on, a product of bfloat16 is done by pairs; from fewer rows on
#: where panels of b are there already.
FEW_PAIRED, FEW_PAIRED_OFTEN, SHORT_PAIRED = 12, 4, 32
#: Windows from so many rows on: of fewer no panels are made.
WINDOWS_PAIRED = 17
#: So many columns make up for a copy of the first factor whose pairs lie apart: an element takes
#: 10 ns, and pairs save 1/230 ns a column.
MANY_PAIRED = 4096


class Form(NamedTuple):
    """How panels of windows are made, see `contract_windows`: a vector of ``rows`` is put together
    of so many runs of neighbours, whose elements are `step` apart."""

    way: str
    runs: int = 0
    step: int = 1

    @property
    def text(self) -> str:
        """As a schedule has it."""
        return f"{self.way}-{self.runs}-{self.step}" if self.way == "rows" else self.way

    @staticmethod
    def parse(text: str) -> Form:
        """Raises `UnknownNameError`."""
        way, *numbers = text.split("-")
        if len(numbers) != 2 * (way == "rows") or not all(map(str.isdigit, numbers)):
            raise unknown_name("form of windows", text, ("rows-1-1", "turned", "gathered"))
        return Form(way, *map(int, numbers))


class Several(NamedTuple):
    """A second operand whose k or lines run along several axes: windows over an image.

    `k` and `n` have (extent, stride) of three axes each, the outermost first; `form` says how
    panels are made of them, as `contract_windows` has it. In them `together` along the axis
    `paired` of k are one lane.
    """

    form: str
    k: tuple[tuple[int, int], ...]
    n: tuple[tuple[int, int], ...]
    together: int = 1

    @staticmethod
    def of(k: list[tuple[int, int]], n: list[tuple[int, int]], lanes: int) -> Several | None:
        """The way to make panels; None where there is none, and copying comes first."""
        if max(len(k), len(n)) > 3 or any(extent == 0 for extent, _ in (*k, *n)):
            return None
        form = _form(k, n, lanes)
        if form == "turned" and len(k) == 1:
            # The panels' depth is counted along the first axis, what lies side by side the last.
            form, k = ("turned", [ONE, ONE, *k]) if k[0][0] <= DEPTH else ("gathered", k)
        k = [*k[:1], ONE, *k[1:]] if len(k) < 3 else k
        found = Several(form, (*k, *[ONE] * (3 - len(k))), (*[ONE] * (3 - len(n)), *n))
        return found if found.inner <= DEPTH else None

    @property
    def paired(self) -> int:
        """The axis of k whose neighbours can be one lane: the last where lines are turned."""
        return 2 if self.form == "turned" else 0

    def steps(self, axis: int) -> int:
        """How many lanes there are along an axis of k."""
        length, _ = self.k[axis]
        return length // self.together if axis == self.paired else length

    @property
    def inner(self) -> int:
        """What depth is a multiple of: how many lanes there are at one place of k's first axis."""
        return self.steps(1) * self.steps(2)


def _form(k: list[tuple[int, int]], n: list[tuple[int, int]], lanes: int) -> str:
    """How panels of b are made: see `contract_windows`."""
    length, stride = n[-1] if n else ONE
    if stride in (1, 2):
        runs = 1 if len(n) == 1 else 2 if length >= lanes else (lanes - 2) // int(length) + 2
        if runs <= MOST_RUNS:
            return Form("rows", runs, stride).text
    along_k = k and k[-1][1] == 1 and k[-1][0] >= min(TURNED, lanes // 2)
    return "turned" if along_k else "gathered"


class Task(NamedTuple):
    """`batch` products of m x k by k x n, for which kernels are wanted.

    `lasts` are the axes along which the strides of both operands are 1. `often`: panels of b are
    made once for several tasks. `plain`: a is stored as it is computed in; else each element that
    is read where it lies is converted there.
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

        The larger of what the arithmetic and what reading both operands once takes.
        """
        m, n, k, size = self.m, self.n, self.k, self.dtype.itemsize
        work = m * n * k * size // (RATE * self.target.width * 4)
        whole = (m * k + k * n + m * n) * size
        moved = whole // NEAR + maximum(whole - NEAR_BYTES, 0) // FURTHER
        return 100 + self.batch * maximum(work, moved)

    def in_buckets(self) -> Task:
        """The same of sizes that decide for these; k stays."""
        m, n, batch = bucket(self.m), bucket(self.n), bucket(self.batch)
        return self._replace(m=m, n=n, batch=batch)


def bucket(extent: int) -> int:
    """The size that decides for an extent how it is computed; guards hold a free one near it.

    Exact up to 64, above that the next multiple of an eighth of the power of two below. Sizes that
    are known go the same way, so that a product has the same bits however its sizes are given.
    """
    if seen(extent) <= EXACT:
        return int(extent)
    found = rounded(seen(extent))
    hold(extent, found - spacing(found), found)
    return found


def spacing(size: int) -> int:
    """How far the next smaller bucket is."""
    return 1 if size <= EXACT else 1 << (size - 1).bit_length() - 4


def rounded(size: int) -> int:
    """The bucket a known size is in."""
    step = spacing(size)
    return -(-size // step) * step


def pays_in_pairs(task: Task) -> bool:
    """Whether a product of bfloat16 is quicker by pairs: both factors have to be put in panels."""
    task = task.in_buckets()
    if task.n < task.lanes or task.m < (FEW_PAIRED_OFTEN if task.often else FEW_PAIRED):
        return False
    return bucket(task.k) >= SHORT_PAIRED


def windows_pay_in_pairs(task: Task, several: Several, still: bool) -> bool:
    """Whether one of windows is: what lies side by side in panels of them must be pairs. `still`:
    the first factor is copied once for many calls, if it has to be."""
    length, _ = several.k[several.paired]
    task = task.in_buckets()
    if several.form == "gathered" or task.m < WINDOWS_PAIRED or length % 2 != 0:
        return False
    return still or several.paired == 2 or task.batch * task.n >= MANY_PAIRED
