"""Counts the instructions of a call with valgrind, and compares them with recorded counts.

`instructions.json` has the counts on the issuing thread for a call that runs inline and for one
that is handed to a worker: `before`, when the engine had no tracing, lanes and links yet, and
`now`. To record new counts as `now`: `python -m benchmarks.instructions --update`. Counts do not
depend on the load of the machine, so a difference of a few instructions is visible. The kernels are
compiled for AVX2, which valgrind can run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.machine import ROOT
from benchmarks.table import print_rows

KEPT = Path(__file__).with_name("instructions.json")
#: The largest allowed ratio to the count from before; counts also vary a little by themselves.
ALLOWED = 1.05
#: The numbers of calls in two runs. Their difference excludes the start of the process.
RUNS = {"inline": (2000, 42000), "queued": (100, 900)}

PROGRAM = """
import sys, time
from gemel import _core, np
calls, kind = int(sys.argv[1]), sys.argv[2]
x = np.ones((1, 2) if kind == "inline" else (512, 512))
y = x + 1
if kind == "queued":
    _core.set_workers(1)
def issue(calls):
    for _ in range(calls):
        y = x + 1
issue(calls)
if kind == "queued":
    time.sleep(12)  # the worker's part: waiting would do it on this thread
"""


def count(kind: str, calls: int, folder: str) -> int:
    """The instructions of the main thread in one run."""
    output = Path(folder) / f"{kind}-{calls}"
    command = ["valgrind", "--tool=callgrind", "--separate-threads=yes"]
    command += [f"--callgrind-out-file={output}", sys.executable, "-c", PROGRAM, str(calls), kind]
    # The source tree comes last, because its core may not be compiled.
    paths = [entry for entry in sys.path if entry not in ("", str(ROOT))]
    environment = {
        **os.environ,
        "GEMEL_TARGET": "avx2",
        "GEMEL_WORKERS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join([*paths, str(ROOT)]),
    }
    quiet = {"check": True, "capture_output": True, "timeout": 300}
    subprocess.run(command, env=environment, cwd=folder, **quiet)
    main = output.with_name(output.name + "-01")
    text = (main if main.exists() else output).read_text()
    totals = [line for line in text.splitlines() if line.startswith("totals:")]
    return int(totals[-1].split()[1])


def per_call(kind: str) -> float:
    """The instructions of one call."""
    few, many = RUNS[kind]
    with tempfile.TemporaryDirectory() as folder:
        count(kind, few, folder)  # fill the kernel cache
        return (count(kind, many, folder) - count(kind, few, folder)) / (many - few)


def run(update: bool = False) -> bool:
    """Count, compare and print. Returns whether a call takes too many instructions."""
    if shutil.which("valgrind") is None:
        print("instructions of a call: valgrind is not installed, left out\n")
        return False
    kept = json.loads(KEPT.read_text())
    rows, broken = [], False
    for kind in RUNS:
        before, now = kept["before"][kind], per_call(kind)
        kept["now"][kind] = round(now)
        broken |= now > ALLOWED * before
        rows.append([kind, f"{before}", f"{now:.0f}", f"{now / before:.3f}", f"<= {ALLOWED}"])
    if update:
        KEPT.write_text(json.dumps(kept, indent=2) + "\n")
    print("## instructions of `y = x + 1` on the issuing thread\n")
    print_rows(["", "before", "now", "ratio", "allowed"], rows)
    return broken


if __name__ == "__main__":
    sys.exit(run(update="--update" in sys.argv))
