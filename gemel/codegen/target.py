"""Targets: which vectors and which native operations the machine has.

Detecting the host's level reads one file and needs no compiler, so that the key of a cached kernel
is cheap. The level can also be set: ``GEMEL_TARGET=avx512``, ``avx2`` or ``generic``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

from gemel._core import tiles_allowed
from gemel.config import TARGET
from gemel.dtype import DType
from gemel.errors import DeviceError

MACHINE = os.uname().machine if hasattr(os, "uname") else "x86_64"


#: The compute capability of GPUs whose warps multiply in groups. Later ones lack that instruction.
WARP_GROUPS = 90


class Target(NamedTuple):
    """One level of a processor family.

    `width` is the vector width in bytes; `cpu` and `features` are LLVM's names. `masks`: loads and
    stores under a mask are native for 4 and 8 byte elements; `free_masks`: also for smaller ones,
    and they take no longer than others. (With AVX2 masked loads take twice as long, and on some
    processors masked stores take up to twenty times as long.) `rounds`: rounding to integers;
    `halves`: float16 conversion; `fma`: fused multiply-add; `scales`: multiplying by powers of two,
    in whole vectors. `grid`: kernels are run by a grid of threads, without vectors.
    """

    name: str
    width: int
    triple: str
    cpu: str
    features: str
    masks: bool = False
    free_masks: bool = False
    rounds: bool = False
    halves: bool = False
    fma: bool = False
    scales: bool = False
    grid: bool = False

    def narrowed(self, width: int) -> Target:
        """The same target with vectors of at most `width` bytes."""
        return self if width >= self.width else self._replace(width=width, scales=False)

    def has_masks_for(self, dtypes: Iterable[DType]) -> bool:
        """Whether loads and stores under a mask are native for all these dtypes."""
        least = min((dtype.itemsize for dtype in dtypes), default=4)
        return self.masks and (self.free_masks or least >= 4)

    @property
    def registers(self) -> int:
        """How many vectors registers hold."""
        return 32 if self.width == 64 or self.triple.startswith("aarch64") else 16

    @property
    def tensor_cores(self) -> bool:
        """Whether a GPU multiplies pieces of matrices of two-byte floats by one instruction."""
        return self.grid and self._capability >= 80

    @property
    def warp_groups(self) -> bool:
        """Whether four warps of a GPU multiply such matrices together, in shared memory."""
        return self.grid and self._capability == WARP_GROUPS

    @property
    def _capability(self) -> int:
        """The compute capability of a GPU."""
        return int(self.cpu.removeprefix("sm_").rstrip("a"))

    def with_extension(self, name: str) -> Target:
        """The same target with one of `EXTENSIONS`; unchanged for an empty name."""
        if not name:
            return self
        features = "".join(f",+{feature}" for feature in EXTENSIONS[name].features)
        return self._replace(features=self.features + features)

    @property
    def text(self) -> str:
        """What the code depends on; part of a kernel's key."""
        return f"{self.triple} {self.cpu} {self.name} {self.features}"

    @property
    def fields(self) -> tuple[str, str, str, str, int]:
        """What LLVM needs to know of it."""
        return self.triple, self.cpu, self.features, self.relocation, self.level

    @property
    def level(self) -> int:
        """LLVM's optimisation level for code generation. A higher one gives the same loops here; it
        only adds a faster division of small numbers, which takes a sixth of the time to compile."""
        return 1

    @property
    def relocation(self) -> str:
        """Kernels are loaded at any address; a WebAssembly module has its own address space."""
        return "static" if self.triple.startswith("wasm") else "pic"

    def __repr__(self) -> str:
        return f"Target({self.name!r}, width={self.width})"


class Extension(NamedTuple):
    """An extension that not every processor with AVX-512 has. `allowed`, if the system has to be
    asked, says whether it lets this process use it."""

    flags: frozenset[str]  # the operating system's names for it
    features: tuple[str, ...]  # LLVM's names for it
    allowed: Callable[[], bool] | None = None


#: These extensions, by their words in schedules: products of bytes, four at a time summed in
#: int32; of bfloat16, two at a time summed in float32; and both in tile registers.
EXTENSIONS = {
    "vnni": Extension(frozenset(["avx512_vnni"]), ("avx512vnni",)),
    "bf16": Extension(frozenset(["avx512_bf16"]), ("avx512bf16",)),
    "amx": Extension(
        frozenset(["amx_tile", "amx_bf16", "amx_int8"]),
        ("amx-tile", "amx-bf16", "amx-int8"),
        tiles_allowed,
    ),
}

_X86_NAMES = ("x86_64", "AMD64")
_X86 = "x86_64-unknown-linux-gnu"
_AVX2 = "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt,+movbe"
_AVX512 = _AVX2 + ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl,-prefer-256-bit"

#: Features that browsers and Node have had since 2021.
_WASM = "+simd128,+bulk-memory,+sign-ext,+nontrapping-fptoint"


def cuda(capability: int) -> Target:
    """A GPU of this CUDA compute capability (90 for 9.0)."""
    cpu = f"sm_{capability}{'a' if capability == WARP_GROUPS else ''}"
    return Target("cuda", 16, "nvptx64-nvidia-cuda", cpu, "", fma=True, grid=True)


def generic(machine: str) -> Target:
    """The target with the features that every processor of a family has."""
    if machine in _X86_NAMES:
        return Target("generic", 16, _X86, "x86-64", "")
    if machine == "wasm32":
        return Target("generic", 16, "wasm32-unknown-unknown", "generic", _WASM, rounds=True)
    arm = machine in ("aarch64", "arm64")
    triple = f"{'aarch64' if arm else machine}-unknown-linux-gnu"
    return Target("generic", 16, triple, "generic", "", rounds=arm, halves=arm, fma=arm)


#: Targets by name; the first two exist only on x86-64.
TARGETS = {
    "avx512": Target(
        *("avx512", 64, _X86, "x86-64-v4", _AVX512),
        masks=True,
        free_masks=True,
        rounds=True,
        halves=True,
        fma=True,
        scales=True,
    ),
    "avx2": Target(
        "avx2", 32, _X86, "x86-64-v3", _AVX2, masks=True, rounds=True, halves=True, fma=True
    ),
    "generic": generic(MACHINE),
}
#: Uses only native operations that every target has: the default when no target is named.
PORTABLE = Target("portable", 16, _X86, "x86-64", "")

_NEEDED = {
    "avx512": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "avx2": {"avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe", "popcnt"},
}
_found: list[Target] = []


@cache
def _flags() -> set[str]:
    """The processor's features as the Linux kernel lists them; empty if it does not."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("flags"):
                    return set(line.partition(":")[2].split())
    except OSError:
        pass
    return set()


def host() -> Target:
    """The best level of this machine, or the one that GEMEL_TARGET names.

    Raises `UnknownNameError` for an unknown level, and `DeviceError` for one whose instructions
    this machine lacks. Determined once per process.
    """
    if not _found:
        chosen, flags = TARGET.read(), _flags()
        if chosen:
            _check(chosen, flags)
        _found.append(TARGETS[chosen or _best(flags)])
    return _found[0]


def has_extension(target: Target, name: str) -> bool:
    """Whether this machine, if the target is at that level, has one of `EXTENSIONS`."""
    extension = EXTENSIONS[name]
    there = target.name == "avx512" and extension.flags <= _flags()
    return there and (extension.allowed is None or _answer(extension.allowed))


@cache
def _answer(allowed: Callable[[], bool]) -> bool:
    """What the system said when it was first asked. It may later say otherwise, but all plans of a
    process, and their keys, must agree."""
    return allowed()


def _check(level: str, flags: set[str]) -> None:
    """Refuse a level that this machine cannot run: its instructions would end the process.

    Where the system does not list the processor's features, `GEMEL_TARGET` is believed.
    """
    missing = _missing(level, flags)
    if missing:
        works = " or ".join(name for name in TARGETS if not _missing(name, flags))
        raise DeviceError(
            f"GEMEL_TARGET={level}: this processor lacks {', '.join(missing)}; set it to {works}, "
            "or leave it out"
        )


def _missing(level: str, flags: set[str]) -> list[str]:
    """What a level needs and this machine lacks, as far as the system says."""
    if level == "generic":
        return []
    if MACHINE not in _X86_NAMES:
        return ["the instructions of x86-64"]
    return sorted(_NEEDED[level] - flags) if flags else []


def _best(flags: set[str]) -> str:
    if not _NEEDED["avx2"] <= flags:
        return "generic"
    return "avx512" if _NEEDED["avx512"] <= flags else "avx2"
