"""Which kernels compute a matrix product, with which tiling: decided from shape and target only."""

from __future__ import annotations

from typing import NamedTuple

from gemel.codegen.contract.task import (
    DEPTH,
    EXACT,
    FOURS,
    NEAR_BYTES,
    PAIRS,
    STREAMED,
    Task,
    WindowAxes,
    WindowForm,
    rounded,
    spacing,
)
from gemel.codegen.language.program import Schedule
from gemel.errors import CompileError
from gemel.extent import Dim, hold, seen

#: The longest block of k, in elements of four bytes. Blocks are long because each further block
#: stores and loads the sums once more, but panels must stay in the second-level cache.
K_BLOCK = 1024
#: Below this many microseconds a product is a single tile: waking another core costs more.
ALONE = 20.0
#: The longest time a tile may take (microseconds), so that nothing waits long behind it.
LONGEST = 500.0
#: From this many microseconds on, tiles are chosen for the caches: each takes about LARGE_TILE
#: microseconds, and about RESIDENT bytes of b stay in the second-level cache.
LARGE, LARGE_TILE, RESIDENT = 4000.0, 300.0, 1 << 18
#: Up to this many rows, dot products straight from a b that is contiguous along k beat packing it;
DOT_ROWS = 8
#: up to LONG_DOT_ROWS, if k is so long that adding up the lanes costs little in comparison.
LONG_DOT_ROWS, LONG_DOT = 64, 128
#: Assembling a vector of windows from many runs, or transposing it, costs this many multiply-adds.
MADE = 7
#: Up to this many rows, a b that is contiguous along n is read where it lies.
DIRECT_ROWS = 32
#: Up to this many elements, an a that is contiguous along k is read where it lies; one that is
#: contiguous along m, up to this many rows: each k then reads other cache lines.
DIRECT_A, DIRECT_LINES = 1 << 18, 128
#: The row counts a micro-tile may have: few, because each is a kernel of its own.
HEIGHTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14)
#: Cycles for each row of an incomplete micro-tile, which is finished from memory.
REST = 12
#: Up to this k, writing the results takes longer than summing; then the cycles for starting a
#: micro-tile, and for each cache line it writes to.
SHALLOW, START, WRITTEN = 176, 30, 4
#: Cycles for packing a beforehand: fixed, and per element; and by how much reading rows that lie
#: apart is slower.
PACKING, PACKED, APART = 3000.0, 0.6, 0.08
#: Bytes of b that stay in the first-level cache; extra cycles for a vector from the second level.
FIRST_BYTES, SECOND = 1 << 14, 0.1

#: Tiles with fewer rows or columns than this take less time than reading far factors for them.
SMALL = 32
#: Up to this many rows, loading a part of b takes long compared to the work done with it.
FAR_ROWS = 256
#: The columns of tiles of a b that streams by, and those of many tiles.
STREAM, WIDE_STREAM = 512, 1024
#: Numbers of vectors of columns for which panels of two vectors are at least a sixteenth empty.
HALF = range(3, 16, 2)
#: From this many bytes on b is in no cache. Kernels for one or two rows, and dot products of
#: several rows, then prefetch it.
LARGEST_BYTES = 12 << 20
#: If lines of b are shorter (in bytes) or fewer than this, the processor prefetches them itself.
FORESEEN, FEW_LINES = 1 << 10, 32

#: The number of the first block of scratch memory, as of an operand; further blocks count down.
SCRATCH = -1

#: Up to this many rows windows are read without panels; the second if vectors have several parts,
#: the third where masks cost something.
FEW, FEW_OF_PARTS, FEW_UNDER_MASKS = 16, 10, 4
#: How many vectors wide tiles are if each row of a is read once for all panels of a tile.
WIDE = 8
#: How much of k fits into the panels that the first rows make, see `panel_depth`.
PANEL_DEPTH = K_BLOCK * 3 // 2
#: How many elements of panels stay in the first-level cache beside the results being written.
NEAR_ELEMENTS = 6144


def panel_depth(vectors: int) -> int:
    """How much of k the panels that first rows make have room for. Micro-tiles of more than three
    vectors occur with a short k only."""
    return PANEL_DEPTH if vectors <= 3 else SHALLOW


class TileLimits(NamedTuple):
    """The largest micro-tile that registers hold: rows, vectors of columns, and sums.

    With more, LLVM stores and loads some of them at each step of k.
    """

    rows: int
    vectors: int
    sums: int


#: For kernels that do nothing else; that also transpose squares; and that also assemble vectors
#: from more than two parts.
ALL = TileLimits(14, 8, 28)
BESIDE_SQUARES = TileLimits(12, 5, 24)
BESIDE_PARTS = TileLimits(10, 2, 20)
#: The most sums with more than three vectors.
SPREAD = 24


class Choice(NamedTuple):
    """The schedule of a product's kernel, and its tiling.

    A tile is `m_block` x `n_block` of the result; `chunk` tiles are computed by one call; k is cut
    into blocks of `k_block` (0: it is not cut).
    """

    schedule: Schedule
    m_block: int
    n_block: int
    chunk: int = 1
    k_block: int = 0


def decided(task: Task) -> Choice:
    """`variants` for the buckets of these sizes. A guard holds a free k in the range of one
    choice."""
    k, task = task.k, task.in_buckets()

    def at(depth: int) -> Choice:
        return variants(task._replace(k=depth))

    low = high = rounded(seen(k))
    choice = at(low)
    if isinstance(k, Dim):
        while low > 2 and at(low - spacing(low)) == choice:
            low -= spacing(low)
        while high < 8 * max(seen(k), EXACT) and at(rounded(high + 1)) == choice:
            high = rounded(high + 1)
        hold(k, low - spacing(low), high)
    return choice


def for_windows(task: Task, windows: WindowAxes, masked: bool) -> Choice:
    """The kernels and the tiling for a b of windows. `masked`: loads may be masked."""
    task = task.all_in_buckets()
    lanes = task.lanes
    if windows.together > 1:
        return _pairs_of_windows(task, windows)
    if _adds_along_k(task, windows):
        return _tiled(_dot(task), task)
    schedule = _gemm(task, lanes, False, BESIDE_SQUARES)
    schedule = schedule._replace(b_form=windows.form if masked else "gathered")
    if WindowForm.parse(schedule.b_form).way == "rows":
        schedule = _by_runs(schedule, task)
    k_block = 0
    if not schedule.direct:
        k_block = block_of_windows(windows)
        schedule = schedule._replace(split=task.k > DEPTH)
    schedule = schedule._replace(narrow=_is_narrow(schedule, task))
    return _tiled(schedule, task, k_block, WIDE * lanes)


def _by_runs(schedule: Schedule, task: Task) -> Schedule:
    """How windows are read if their vectors are assembled from runs of neighbours."""
    _, runs, step = WindowForm.parse(schedule.b_form)
    masked = task.target.free_masks
    # With step 2, a run takes twice as many parts, each under its mask.
    few = FEW_OF_PARTS if runs * step > 2 else FEW
    direct = task.m <= (few if masked else FEW_UNDER_MASKS)
    packs_b = (masked or step == 1) and not direct
    # Without panels each block of rows assembles the vectors again, which takes longer.
    limits = BESIDE_PARTS if packs_b and runs * step > 2 else ALL
    rows, vectors = _micro_tile(task, min(2, -(-task.n // task.lanes)), limits)
    shape = schedule._replace(rows=rows, columns=vectors * task.lanes)
    return shape._replace(a_form="packed", direct=direct, packs_b=packs_b)


def for_fours(task: Task, native: bool) -> Choice:
    """The tiling of a product of bytes in groups of four. `native`: one instruction does four.

    Otherwise bytes are widened in registers, which leaves fewer registers for sums.
    """
    task = task.all_in_buckets()
    steps = task._replace(k=-(-task.k // FOURS))
    schedule = _grouped(steps, ALL._replace(rows=12 if native else 4))
    return _tiled(schedule._replace(vnni=native), task)


def for_pairs(task: Task) -> Choice:
    """The tiling of a product of bfloat16 in pairs, for the instruction that multiplies pairs."""
    task = task.all_in_buckets()
    steps = task._replace(k=-(-task.k // PAIRS))
    schedule = _grouped(steps, ALL)
    k_block, narrow = _k_block(schedule, steps), _is_narrow(schedule, steps)
    schedule = schedule._replace(bf16=True, split=k_block > 0, narrow=narrow)
    tiled = _tiled_large if steps.cost > LARGE * 1000 else _tiled
    return tiled(schedule, steps, k_block)


def _grouped(steps: Task, limits: TileLimits) -> Schedule:
    """The micro-tile of a product whose steps along k are groups in lanes of 32 bits."""
    lanes = steps.target.width // 4
    vectors = min(2 if steps.target.width == 64 else 1, -(-steps.n // lanes))
    rows, vectors = _micro_tile(steps, vectors, limits)
    shape = Schedule("gemm", rows=rows, columns=vectors * lanes)
    return shape._replace(a_form="packed", b_form="packed")


def block_of_windows(windows: WindowAxes) -> int:
    """The length of blocks of k: whole windows, as many as panels have room for."""
    length = windows.steps(0)
    blocks = -(-length // (DEPTH // windows.inner))
    return -(-length // blocks) * windows.inner


def _pairs_of_windows(task: Task, windows: WindowAxes) -> Choice:
    """As `for_windows`, in pairs: two neighbours along `WindowAxes.paired` share a lane of the
    panels."""
    steps = task._replace(k=-(-task.k // windows.together))
    split = windows.steps(0) * windows.inner > DEPTH
    schedule = _grouped(steps, ALL)._replace(b_form=windows.form, bf16=True, split=split)
    return _tiled(schedule, steps, block_of_windows(windows), WIDE * task.lanes)


def variants(task: Task) -> Choice:
    """The kernels and the tiling for exactly these sizes."""
    m, n, k = task.m, task.n, task.k
    few = m <= DOT_ROWS or (m <= LONG_DOT_ROWS and k >= LONG_DOT and not task.often)
    if task.lasts == ("k", "k") and few:
        schedule = _dot(task)
    else:
        # Half a vector, if that is enough.
        half = task.target.width == 64 and n <= task.lanes // 2
        schedule = _gemm(task, task.lanes // 2 if half else task.lanes, _may_pack_b(task), ALL)
        stays = n > schedule.columns and k * n * task.dtype.itemsize <= RESIDENT
        schedule = schedule._replace(across=k <= SHALLOW and stays and not schedule.packs_b)
    k_block = _k_block(schedule, task)
    if schedule.packs_b and (k_block or k) > panel_depth(schedule.columns // task.lanes):
        raise CompileError(f"{schedule.text} leaves more of k than there is room for: {task}")
    far, narrow = _is_far(schedule, task), _is_narrow(schedule, task)
    schedule = schedule._replace(split=k_block > 0, far=far, narrow=narrow)
    if schedule.b_form == "packed" and task.cost > LARGE * 1000:
        return _tiled_large(schedule, task, k_block)
    return _tiled(schedule, task, k_block)


def _is_narrow(schedule: Schedule, task: Task) -> bool:
    """Whether much would be computed past the last column: the last of few panels is half empty."""
    vectors = -(-task.n // task.lanes)
    pairs = schedule.kind == "gemm" and schedule.columns == 2 * task.lanes
    return pairs and vectors in HALF and not schedule.direct


def _is_far(schedule: Schedule, task: Task) -> bool:
    """Whether b is far away, read in an order that no processor predicts, and used by few rows."""
    line = task.n * task.dtype.itemsize
    whole = task.batch * task.k * line
    if schedule.kind == "dot":
        return task.m > 1 and whole > LARGEST_BYTES
    if schedule.b_form == "n" and (line < FORESEEN or task.k < FEW_LINES):
        return False
    if schedule.b_form == "n" and task.m < 3:
        return whole >= LARGEST_BYTES
    return task.m <= FAR_ROWS and whole > NEAR_BYTES


def _streams(schedule: Schedule, task: Task) -> bool:
    """Whether b is read where it lies, a few lines of all columns of a tile at a time."""
    return schedule.b_form == "n" and not schedule.packs_b and task.streams(schedule.rows)


def _dot(task: Task) -> Schedule:
    """Rows of a x rows of b, held as partial sums in most of the registers. The rows are divided as
    evenly as possible."""
    wide = task.target.width == 64
    m = max(task.m, 1)
    rows = -(-m // -(-m // (6 if wide else 2)))
    columns = min(task.lanes, 8 if wide and rows in (2, 3) else 4)
    return Schedule("dot", rows=rows, columns=columns, unroll=2 if rows == 1 else 1)


def _adds_along_k(task: Task, windows: WindowAxes) -> bool:
    """Whether windows are read along k. Short runs fill only part of a vector's lanes; but making
    panels takes as long as multiplying several rows."""
    length, stride = windows.k[2]
    form = WindowForm.parse(windows.form)
    near = form.way == "rows" and form.runs <= 2
    if near or task.lasts[0] != "k" or not stride == 1 or task.dtype.kind != "f":
        return False
    whole = -(-length // task.lanes) * task.lanes
    return bool((task.m * 21 + 40) * whole < (task.m + MADE) * 20 * length)


def _gemm(task: Task, lanes: int, packs_b: bool, limits: TileLimits) -> Schedule:
    """The micro-tiles of a sum held in registers. `packs_b`: the kernel may make panels of b
    itself.

    An a that is contiguous along k is packed if larger micro-tiles make up for the packing.
    """
    m, n, k = task.m, task.n, task.k
    a_last, b_last = task.lasts
    along_k = a_last == "k"
    near = task.plain and (m * k <= DIRECT_A if along_k else m <= DIRECT_LINES)
    forms = [a_last] if near or n <= 4 * lanes else ["packed"]
    if near and (along_k or n > 4 * lanes):
        forms.append("packed")
    # Where masks cost something, a panel of b is worth its room, which has no missing columns.
    whole = task.target.free_masks or n % lanes == 0 or k == 0
    direct = m <= DIRECT_ROWS or (whole and k * n <= 1 << 13)
    b_form = "n" if b_last == "n" and (direct or packs_b) else "packed"
    found: list[tuple[float, Schedule]] = []
    for form in forms:
        schedule = Schedule("gemm", a_form=form, b_form=b_form)
        schedule = schedule._replace(packs_b=b_form == "n" and not direct)
        cycles, schedule = _shaped(schedule, task, lanes, _left(limits, schedule))
        extra = PACKING + m * k * PACKED if found else cycles * APART
        found.append((cycles + extra, schedule))
    return min(found, key=lambda each: each[0])[1]


def _shaped(
    schedule: Schedule, task: Task, lanes: int, limits: TileLimits
) -> tuple[float, Schedule]:
    """A schedule with its micro-tile, and an estimate of the product's cycles with it."""
    vectors, m, k = -(-task.n // lanes), task.m, max(task.k, 1)
    rows, wide = _micro_tile(task, vectors, limits)
    cycles = -(-vectors // wide) * k * _cycles(rows, wide, m, k)
    if task.k <= SHALLOW and task.target.width == 64 and vectors > 2 and schedule.a_form != "m":
        cycles, rows, wide = _spread_out(schedule, task, vectors, limits)
    return cycles, schedule._replace(rows=rows, columns=wide * lanes)


def _may_pack_b(task: Task) -> bool:
    """Whether the kernel may make panels of b itself: not if later products need them again, nor if
    a block of a, all of which is read for each panel, does not stay in a near cache."""
    depth = min(task.k * task.dtype.itemsize, K_BLOCK * 4)
    wide = task.target.width == 64 and task.n > WIDE * task.lanes
    return not task.often and task.m * depth <= (NEAR_BYTES if wide else RESIDENT)


def _left(limits: TileLimits, schedule: Schedule) -> TileLimits:
    """The limits that remain. If a is read where it lies along k, each row needs a pointer, and
    there are few registers for pointers."""
    if schedule.a_form != "k":
        return limits
    rows, sums = (8, 18) if schedule.packs_b else (12, limits.sums)
    return TileLimits(min(limits.rows, rows), limits.vectors, min(limits.sums, sums))


def _spread_out(
    schedule: Schedule, task: Task, vectors: int, limits: TileLimits
) -> tuple[float, int, int]:
    """The cycles, rows and vectors of the best micro-tile if k is so short that writing the results
    takes long."""
    n, k, size = task.n, task.k, task.dtype.itemsize
    depth = 1 << (k - 1).bit_length()  # so that ranges of a free k share a choice
    further = SECOND if k * n * size > FIRST_BYTES else 0.0
    reads = 2 if schedule.b_form == "n" and not schedule.packs_b else 1
    return min(
        (_shallow_cost((rows, wide), task.m, vectors, depth, reads, further), rows, wide)
        for wide in range(1, limits.vectors + 1)
        for rows in HEIGHTS
        if rows <= limits.rows
        and rows * wide <= (limits.sums if wide <= 3 else min(SPREAD, limits.sums))
        if _registers(rows, wide) <= 32
    )


def _registers(rows: int, vectors: int) -> int:
    """How many registers a micro-tile needs: for sums, a line of b, and an element of a."""
    return rows * vectors + vectors + 1


def _shallow_cost(
    tile: tuple[int, int], m: int, vectors: int, k: int, reads: int, further: float
) -> float:
    """Estimated cycles of a result in micro-tiles. For each step of k: the multiply-adds or the
    loads (two per cycle; a vector of b takes `reads`), and the wait `further` for each vector of b.
    For each micro-tile: its start, and the cache lines it writes to, in each row one more than its
    vectors."""
    rows, wide = tile
    busy = max(rows * wide / 2, (rows + reads * wide) / 2, 4.0)
    cycles = k * (busy + wide * further) + START + WRITTEN * rows * (wide + 1)
    return -(-vectors // wide) * (-(-m // rows) * cycles + m % rows * REST * wide)


def _micro_tile(task: Task, vectors: int, limits: TileLimits) -> tuple[int, int]:
    """Rows and vectors of a micro-tile: as square as registers allow, with little waste in m."""
    m, k = task.m, max(task.k, 1)
    # (vectors of columns, the most rows) that fit into 32 or 16 registers, in order of preference.
    # 8 and 4 vectors are for results with so few rows that one micro-tile holds them all: with
    # fewer sums than that, each addition would have to wait for the one before.
    if task.target.width == 64:
        shapes = [(8, 2), (3, 9), (4, 6), (2, 14), (1, 14)]
    elif task.target.fma:
        shapes = [(8, 1), (3, 4), (4, 2), (2, 6), (1, 8)]
    else:  # without fused multiply-add, each product needs one more register
        shapes = [(8, 1), (4, 2), (2, 4), (1, 8)]
    fitting = [
        (count, rows) for count, rows in shapes if _fits(count, vectors) and count <= limits.vectors
    ]
    wide, limit = next((count, rows) for count, rows in fitting if m <= rows or count <= 3)
    most = min(limits.rows, limit, limits.sums // wide)
    heights = (count for count in HEIGHTS if count <= most)
    return min(heights, key=lambda rows: _cycles(rows, wide, m, k)), wide


def _cycles(rows: int, wide: int, m: int, k: int) -> float:
    """Estimated cycles per k for m rows of micro-tiles: two multiply-adds a cycle, but at least
    their latency; the start and end of each micro-tile; and the rows of an incomplete one."""
    fixed = 0.4 + 100 / k
    return -(-m // rows) * (max(rows * wide / 2, 4.0) + fixed) + m % rows * REST / k


def _fits(count: int, vectors: int) -> bool:
    """Whether micro-tiles of `count` vectors waste little on a result of `vectors`."""
    if count == 3:
        return vectors == 3
    return count <= vectors or count == 1 or (count < 2 * vectors and count <= 4)


def _k_block(schedule: Schedule, task: Task) -> int:
    """Equal blocks of k if what several micro-tiles read would outgrow the cache, short ones if b
    streams by; else 0."""
    if _streams(schedule, task):
        return STREAMED
    most = K_BLOCK * 4 // task.dtype.itemsize
    again = schedule.b_form == "packed" or task.m > schedule.rows
    if schedule.kind != "gemm" or not again or task.k <= most * 3 // 2:
        return 0
    return -(-task.k // -(-task.k // most))


def _tiled(schedule: Schedule, task: Task, k_block: int = 0, wide: int = 0) -> Choice:
    """Cuts the batch, then the result, into enough tiles to keep several cores busy.

    With `wide`, tiles stay that wide as long as they have many rows. If each core can keep all of b
    in its cache from one call to the next, each core keeps its rows: then the rows of a, and
    whatever follows on the results, need not come from another core.
    """
    m, n, batch, microseconds = task.m, task.n, task.batch, task.cost / 1000
    rows, columns = schedule.rows, schedule.columns
    m_block, n_block = max(up(m, rows), rows), max(up(n, columns), columns)
    wanted = 1
    if microseconds > ALONE:
        wanted = max(4 if microseconds < 100 else 8, int(microseconds / LONGEST) + 1)
    line = task.k * task.dtype.itemsize
    if _streams(schedule, task):
        wanted = min(wanted, max(2, min(4, n // STREAM), n // WIDE_STREAM))
    if schedule.packs_b and m * line > NEAR_BYTES:
        # Each tile reads its rows of a from afar, for all its columns.
        wanted = min(wanted, max(8, n // (2 * columns)))
    if min(m, n) >= SMALL and min(m, n) * line > NEAR_BYTES:
        # Both factors are far away, and each tile reads parts of both.
        wanted = min(wanted, max(4, m * n // (2 * SMALL) ** 2))
    m_parts = n_parts = 1
    stays_cached = task.often and batch * n * line <= NEAR_BYTES
    stays_cached = stays_cached and schedule.kind == "gemm" and not wide
    while batch * m_parts * n_parts < wanted:
        square = n_block <= (wide or m_block * 4)
        # At least this many micro-tiles share a panel of b, which the first has to fetch from afar.
        least = 2 if stays_cached else 8
        # Keep tiles tall where the first rows make panels, so that many rows use these.
        tall = m_block > least * rows and (stays_cached or square) and not schedule.packs_b
        if m_block > rows and (tall or n_block <= columns):
            m_block, m_parts = _cut(m, m_block, rows)
        elif n_block > columns:
            n_block, n_parts = _cut(n, n_block, columns)
        else:
            break
    by_rows = stays_cached and m_parts > 1 and batch * n_parts > 1
    chunk = max(1, batch * m_parts * n_parts // wanted)
    return Choice(schedule._replace(by_rows=by_rows), m_block, n_block, chunk, k_block)


def _tiled_large(schedule: Schedule, task: Task, k_block: int) -> Choice:
    """Blocks of b that stay in the second-level cache while the blocks of a stream by."""
    rows, columns = schedule.rows, schedule.columns
    line = (k_block or max(task.k, 1)) * task.dtype.itemsize
    resident = max(RESIDENT // line, columns)
    n_block = up(-(-task.n // -(-task.n // resident)), columns)
    share = task.cost / 1000 * n_block / max(task.n, 1)  # the time for n_block columns, all rows
    parts = max(1, -(-int(share) // int(LARGE_TILE)))
    m_block = max(up(-(-task.m // parts), rows), rows)
    return Choice(schedule, m_block, n_block, k_block=k_block)


def _cut(total: int, block: int, unit: int) -> tuple[int, int]:
    """The next smaller block of whole units, and how many such blocks of about equal size there
    are."""
    parts = -(-total // (block - unit))
    smaller = up(-(-total // parts), unit)
    return smaller, -(-total // smaller)


def up(value: int, multiple: int) -> int:
    """The value, rounded up to a multiple."""
    return -(-value // multiple) * multiple
