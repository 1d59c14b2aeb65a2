"""Measures the memory of a way of training a network of `networks`; prints one line of JSON.

`python -m benchmarks.memory_worker LIBRARY NETWORK WAY TIMES`

A process has a peak of its own since it last wrote to `/proc/self/clear_refs` (Linux).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.memory import larger
from benchmarks.networks import NETWORKS
from benchmarks.networks_worker import STEPS, Gemel, Torch

#: What to write to `clear_refs` for a new peak.
NEW_PEAK = "5"


def megabytes(name: str) -> float:
    """A size in `/proc/self/status`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith(f"{name}:"))
    return int(kilobytes) / 1024


def main() -> None:
    """Measure what the arguments name."""
    library, name, way, times = sys.argv[1:]
    network = larger(next(each for each in NETWORKS if each.name == name), int(times))
    case: Gemel | Torch = (Torch if library == "torch" else Gemel)(network)
    case.begin(way)
    case.reset()
    Path("/proc/self/clear_refs").write_text(NEW_PEAK)
    before = megabytes("VmRSS")
    losses = [case.ways[way]() for _ in range(STEPS)]
    print(json.dumps([megabytes("VmHWM") - before, *losses]), flush=True)


if __name__ == "__main__":
    main()
