"""How many instructions a call takes: counted by valgrind, compared with what is kept.

`instructions.json` holds, for a call done inline and for one handed over, the count on the issuing
thread before tracing, lanes and links came into the engine, and the count now. Counts do not depend
on the machine's load, so a difference of a few instructions can be seen. The kernels are compiled
for AVX2 here, which valgrind can run.
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
#: How much more than the kept count from before is allowed, and how far counts drift by themselves.
ALLOWED = 1.05
#: Calls in the two runs whose difference is taken.
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
    """Instructions of the main thread of one run."""
    output = Path(folder) / f"{kind}-{calls}"
    command = ["valgrind", "--tool=callgrind", "--separate-threads=yes"]
    command += [f"--callgrind-out-file={output}", sys.executable, "-c", PROGRAM, str(calls), kind]
    # The checkout comes last: it may hold no compiled core.
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
    """Instructions of one call."""
    few, many = RUNS[kind]
    with tempfile.TemporaryDirectory() as folder:
        count(kind, few, folder)  # fills the kernel cache
        return (count(kind, many, folder) - count(kind, few, folder)) / (many - few)


def run(update: bool = False) -> bool:
    """Count, compare and print; whether a call has become too long."""
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
