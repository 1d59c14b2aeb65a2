"""Memory goes back to the system, and the core knows how much of the machine it may use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gemel import _core, device


def run(code: str) -> list[str]:
    """Run code in a fresh process; returns the words it prints."""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.split()


GROWN = """
import gc, random
from gemel import np, npx
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
random.seed(1)
shapes = [(int(2 ** random.uniform(4, 13)),) for _ in range(300)]  # 64 B to 32 KiB
def churn(steps):
    alive = [None] * 10_000
    for _ in range(steps):
        alive[random.randrange(len(alive))] = np.zeros(random.choice(shapes))
    npx.waitall()
    most = resident()
    random.shuffle(alive)
    while alive:
        alive.pop()
    gc.collect()
    return most
churn(1000)
before = resident()
most = churn(STEPS)
print(most - before, resident() - before)
"""


@pytest.mark.unsanitized("sanitizers keep freed memory to tell who uses it")
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc")
def test_small_arrays_give_their_memory_back() -> None:
    most, left = map(int, run(GROWN.replace("STEPS", "300_000")))
    assert most > 50e6
    assert left < 20e6


def test_cores_are_those_of_the_process() -> None:
    assert device.cpu_count() == _core.cores() >= 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity masks here")
def test_cores_follow_the_affinity_mask() -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from gemel import _core, device, np\n"
        "np.ones(2).wait_to_read()\n"
        "print(device.cpu_count(), _core.workers())\n"
    )
    assert run(code) == ["1", "1"]
