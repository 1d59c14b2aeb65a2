"""What this machine can do at best, measured by floor.cc; nothing when there is no compiler."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "benchmarks"

#: What is taken to stay in a core's second-level cache, and in the third of all.
L2_BYTES, L3_BYTES = 1 << 20, 16 << 20


class Machine(NamedTuple):
    """Peak products (GFLOP/s on one core and on all) and read bandwidths (GB/s on one core)."""

    cores: int
    gflops_one: float
    gflops_all: float
    l2_gbs: float
    l3_gbs: float
    memory_gbs: float
    memory_gbs_all: float

    def flops_per_us(self, threads: int) -> float:
        """Floating-point operations per microsecond on `threads` cores."""
        if threads == 1:
            return self.gflops_one * 1e3
        return self.gflops_all * 1e3 * min(threads, self.cores) / self.cores

    def bytes_per_us(self, footprint: int, threads: int) -> float:
        """Bytes that `threads` cores read in a microsecond of data of `footprint` bytes."""
        cores = min(threads, self.cores)
        if footprint <= L2_BYTES * cores:
            return self.l2_gbs * 1e3 * cores
        if footprint <= L3_BYTES:
            return self.l3_gbs * 1e3 * cores
        return (self.memory_gbs if cores == 1 else self.memory_gbs_all) * 1e3

    def or_better(self, other: Machine | None) -> Machine:
        """The best of two measurements: other programs can only make one worse."""
        if other is None:
            return self
        return Machine(*(max(pair) for pair in zip(self, other, strict=True)))

    @property
    def l2_bytes_per_us(self) -> float:
        """Bytes one core reads from its second-level cache in a microsecond."""
        return self.l2_gbs * 1e3


def measure_machine() -> Machine | None:
    """Compile and run floor.cc; None when that is not possible."""
    BUILD.mkdir(parents=True, exist_ok=True)
    program = BUILD / "floor"
    source = Path(__file__).with_name("floor.cc")
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, "-O3", "-march=native", "-ffp-contract=fast", "-std=c++20", "-pthread"]
    try:
        if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
            subprocess.run([*command, str(source), "-o", str(program)], check=True)
        output = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no floors: {error}")
        return None
    return Machine(**json.loads(output))


def processor() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
