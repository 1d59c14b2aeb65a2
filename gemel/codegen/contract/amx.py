"""Which products tile registers (AMX) compute, and with which tiling; see `tiles.amx`."""

from __future__ import annotations

from gemel.codegen.contract.task import DEPTH, Task, WindowAxes, bucket
from gemel.codegen.contract.tilings import ALONE, LONGEST, Choice, block_of_windows, up
from gemel.codegen.language.program import Schedule

#: From so many rows, columns and k on they are faster than vectors; with any number of rows if
#: panels of b exist already.
LEAST_ROWS, LEAST_COLUMNS, LEAST_K = 6, 8, 32
#: The rows and columns of a micro-tile, and of one for at most half as many.
WHOLE, HALF = 32, 16
#: The longest block of k, in lanes.
BLOCK = 1024
#: The most columns of a tile, and the most lanes of their panels: these stay in the second-level
#: cache while all blocks of rows use them.
MOST_COLUMNS, RESIDENT = 512, 1 << 18
#: How many times more multiply-adds they do than `Task.cost` assumes.
FASTER = 8


def pays_in_tiles(task: Task) -> bool:
    """Whether a product is faster in tile registers."""
    task = task.in_buckets()
    rows = 1 if task.often else LEAST_ROWS
    return task.m >= rows and task.n >= LEAST_COLUMNS and bucket(task.k) >= LEAST_K


def in_tiles(task: Task, together: int, windows: WindowAxes | None = None) -> Choice:
    """The schedule and the tiling of a product in tile registers. `together`: how many k share a
    lane. `windows`: how b lies if it consists of windows."""
    task = task.all_in_buckets()
    rows, columns = (WHOLE if extent > HALF else HALF for extent in (task.m, task.n))
    depth = -(-task.k // together)
    k_block = up(-(-depth // -(-depth // BLOCK)), HALF) if depth > BLOCK else 0
    a_form, b_form = "k" if task.lasts[0] == "k" else "packed", "packed"
    if windows:
        depth = windows.steps(0) * windows.inner
        k_block, b_form = block_of_windows(windows), windows.form
    schedule = Schedule("amx", rows=rows, columns=columns, a_form=a_form, b_form=b_form)
    schedule = schedule._replace(split=depth > (DEPTH if windows else BLOCK))
    return _tiled(schedule, task, k_block, depth)


def _tiled(schedule: Schedule, task: Task, k_block: int, depth: int) -> Choice:
    """Cuts the columns where their panels would not stay in the cache, then the rows and the
    columns into enough tiles to keep several cores busy."""
    microseconds = task._replace(k=-(-task.k // FASTER)).cost / 1000
    wanted = 1
    if microseconds > ALONE:
        wanted = max(4 if microseconds < 100 else 8, int(microseconds / LONGEST) + 1)
    wide = min(MOST_COLUMNS, RESIDENT // (k_block or depth))
    n_block, n_parts = _cut(task.n, -(-task.n // wide), schedule.columns)
    m_block, m_parts = _cut(task.m, -(-wanted // (task.batch * n_parts)), schedule.rows)
    if task.batch * n_parts * m_parts < wanted:
        n_block, n_parts = _cut(task.n, -(-wanted // (task.batch * m_parts)), schedule.columns)
    chunk = max(1, task.batch * m_parts * n_parts // wanted)
    return Choice(schedule, m_block, n_block, chunk, k_block)


def _cut(total: int, parts: int, unit: int) -> tuple[int, int]:
    """About so many blocks of whole units: the size of each, and their number."""
    block = max(up(-(-total // max(parts, 1)), unit), unit)
    return block, -(-total // block)
