"""Kernels printed as CUDA C++, compiled for the CPU with the host's C++ compiler.

`cuda_host.h` runs the threads of a block as fibres, with the grids that a GPU would be given.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from random_kernels import Kernel, callable_at

from gemel.codegen import cuda
from gemel.codegen.language.program import Program

COMPILER = shutil.which("c++")
ROOT = Path(__file__).parent.parent
OPTIONS = ("-std=c++20", "-O1", "-w", "-ffp-contract=off", "-shared", "-fPIC")
OPTIONS += (f"-I{ROOT / 'src'}", f"-I{ROOT / 'tests' / 'cpp'}", "-fpermissive")


def built(programs: Sequence[Program], folder: Path) -> list[Kernel]:
    """Kernels of programs, from one file and one run of the compiler."""
    header = folder / "cuda_host.h.gch"  # most of the time would go into the standard headers
    if not header.exists():
        source = ROOT / "tests" / "cpp" / "cuda_host.h"
        subprocess.run(
            [str(COMPILER), *OPTIONS, "-x", "c++-header", str(source), "-o", str(header)],
            check=True,
        )
    number = len(list(folder.iterdir()))
    text, library = folder / f"kernels{number}.cc", folder / f"kernels{number}.so"
    text.write_text(in_c(programs))
    command = [str(COMPILER), f"-I{folder}", *OPTIONS, str(text), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000] + text.read_text()
    loaded = ctypes.CDLL(str(library))
    return [
        callable_at(ctypes.cast(loaded[f"run{i}"], ctypes.c_void_p).value or 0, loaded)
        for i in range(len(programs))
    ]


def in_c(programs: Sequence[Program]) -> str:
    """The kernels, and for each a function that is called as kernels for processors are."""
    text = cuda.source([*programs, programs[0]])
    calls = []
    for number, program in enumerate(programs):
        data = cuda.form(program)
        fields = ", ".join(str(each) for each in memoryview(data).cast("i"))
        calls.append(
            f'extern "C" int32_t run{number}(void *const *buffers, const int64_t *integers, '
            f"int64_t, int64_t) {{\n"
            f"    return host::run(kernel{number}, {{{fields}}}, buffers, integers);\n}}\n"
        )
    return "\n".join(('#include "cuda_host.h"', text, *calls))


def cached_kernels(folder: Path) -> Callable[[Any], Kernel]:
    """How to make kernels as CUDA C++ that run on this machine; each is made once."""
    known: dict[str, Kernel] = {}

    def kernel(program: Any) -> Kernel:
        if program.text not in known:
            (known[program.text],) = built([program], folder)
        return known[program.text]

    return kernel
