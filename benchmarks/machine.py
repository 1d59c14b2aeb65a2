"""The limits of this machine, measured by floor.cc; unknown if there is no compiler."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import numpy

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "benchmarks"

#: Footprints that are taken to fit into a core's second-level cache, and into the third-level cache
#: of all cores. The second is used only if bandwidths at `FOOTPRINTS` are not known.
L2_BYTES, L3_BYTES = 1 << 20, 16 << 20
#: Footprints at which the read bandwidth of one core is measured. One rate for each cache is not
#: enough: the core shares the cache, and where pages lie in it is a matter of chance.
FOOTPRINTS = tuple(kib << 10 for kib in (256, 1024, 2048, 4096, 12288, 16384, 24576, 32768, 65536))
#: The footprints of the bandwidths that are fields of `Machine`.
NAMED_L2, NAMED_L3, NAMED_MEMORY = 656 << 10, 8 << 20, 256 << 20


class Machine(NamedTuple):
    """Peak multiply-add rates (GFLOP/s) and read bandwidths (GB/s); on one core, or on all."""

    cores: int
    gflops_one: float
    gflops_all: float
    l2_gbs: float
    l3_gbs: float
    memory_gbs: float
    memory_gbs_all: float
    #: Read bandwidths at `FOOTPRINTS`, GB/s on one core.
    reads_gbs: tuple[float, ...] = ()
    #: The rates of products of bfloat16; 0 if they are as slow as those of float32.
    bfloat16_one: float = 0.0
    bfloat16_all: float = 0.0

    def flops_per_us(self, threads: int, dtype: str = "float32") -> float:
        """Floating-point operations per microsecond on `threads` cores."""
        paired = dtype == "bfloat16"
        if threads == 1:
            return max(self.gflops_one, paired * self.bfloat16_one) * 1e3
        rate = max(self.gflops_all, paired * self.bfloat16_all)
        return rate * 1e3 * min(threads, self.cores) / self.cores

    def bytes_per_us(self, footprint: int, threads: int) -> float:
        """Bytes per microsecond that `threads` cores read, from data of `footprint` bytes."""
        cores = min(threads, self.cores)
        if self.reads_gbs:
            return self._read_gbs(footprint, cores) * 1e3
        if footprint <= L2_BYTES * cores:
            return self.l2_gbs * 1e3 * cores
        if footprint <= L3_BYTES:
            return self.l3_gbs * 1e3 * cores
        return (self.memory_gbs if cores == 1 else self.memory_gbs_all) * 1e3

    def _read_gbs(self, footprint: int, cores: int) -> float:
        """GB/s at a footprint, interpolated between the measurements around it.

        A smaller footprint is taken to be read at least as fast as a larger one.
        """
        memory = self.memory_gbs if cores == 1 else self.memory_gbs_all
        measured = [*zip(FOOTPRINTS, self.reads_gbs, strict=True)]
        measured += [(NAMED_L2, self.l2_gbs), (NAMED_L3, self.l3_gbs)]
        each = [
            (size * (cores if size <= L2_BYTES else 1), rate * cores) for size, rate in measured
        ]
        points = sorted([*each, (NAMED_MEMORY, memory)])
        rates = [max(rate for _, rate in points[i:]) for i in range(len(points))]
        return float(numpy.interp(footprint, [size for size, _ in points], rates))

    def or_better(self, other: Machine | None) -> Machine:
        """The better of two measurements, field by field: other programs only make them worse."""
        if other is None:
            return self
        pairs: Any = zip(self._fields, self, other, strict=True)
        best: dict[str, Any] = {name: max(rates) for name, *rates in pairs}
        reads = [each for each in (self.reads_gbs, other.reads_gbs) if each]
        best["reads_gbs"] = tuple(max(rates) for rates in zip(*reads, strict=True))
        return Machine(**best)

    @property
    def l2_bytes_per_us(self) -> float:
        """Bytes per microsecond that one core reads from its second-level cache."""
        return self.l2_gbs * 1e3


def measure_machine() -> Machine | None:
    """Compile and run floor.cc. Returns None if that is not possible."""
    BUILD.mkdir(parents=True, exist_ok=True)
    program = BUILD / "floor"
    source = Path(__file__).with_name("floor.cc")
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, "-O3", "-march=native", "-ffp-contract=fast", "-std=c++20", "-pthread"]
    try:
        if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
            subprocess.run([*command, str(source), "-o", str(program)], check=True)
        sizes = map(str, FOOTPRINTS)
        output = subprocess.run(
            [str(program), *sizes], check=True, capture_output=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no floors: {error}")
        return None
    found = json.loads(output)
    return Machine(**{**found, "reads_gbs": tuple(found["reads_gbs"])})


def processor() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
