"""NVIDIA's run-time compiler: machine code for a GPU from CUDA C++.

The library comes with CUDA, or with the wheel that the extra ``gemel[cuda]`` installs. Its C
interface: https://docs.nvidia.com/cuda/nvrtc.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any

from gemel.errors import CompileError, DeviceError

#: The names of the library, newest first, where the system finds it.
NAMES = ("libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12")
#: Where wheels of NVIDIA's have it, below the folder of the package ``nvidia``, and CUDA itself.
WHEELS = ("cu*/lib", "cuda_nvrtc/lib")
SYSTEM = ("/usr/local/cuda/lib64", "/usr/local/cuda/targets/*/lib", "/opt/cuda/lib64")
#: No contraction of products and sums, so that functions have the same bits as on processors.
OPTIONS = ("--std=c++17", "--fmad=false", "--device-as-default-execution-space")


def machine_code(text: str, architecture: str) -> bytes:
    """The code of CUDA C++ for an architecture (``sm_90``), as the driver loads it.

    Raises `DeviceError` if the compiler is not installed, and `CompileError` for what it refuses.
    """
    library = _library()
    program = ctypes.c_void_p()
    source = ctypes.c_char_p(text.encode())
    _check(library, library.nvrtcCreateProgram(ctypes.byref(program), source, b"", 0, None, None))
    try:
        options = [f"--gpu-architecture={architecture}".encode(), *(o.encode() for o in OPTIONS)]
        given = (ctypes.c_char_p * len(options))(*options)
        if library.nvrtcCompileProgram(program, len(options), given):
            raise CompileError(f"NVRTC refuses a kernel:\n{_log(library, program)}\n{text}")
        return _code(library, program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _code(library: Any, program: Any) -> bytes:
    size = ctypes.c_size_t()
    _check(library, library.nvrtcGetCUBINSize(program, ctypes.byref(size)))
    code = ctypes.create_string_buffer(size.value)
    _check(library, library.nvrtcGetCUBIN(program, code))
    return code.raw


def _log(library: Any, program: Any) -> str:
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    return log.value.decode(errors="replace")


def _check(library: Any, result: int) -> None:
    if result:
        name = library.nvrtcGetErrorString(result).decode()
        raise CompileError(f"NVRTC: {name}")


@cache
def _library() -> Any:
    for name in _candidates():
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        return library
    raise DeviceError(
        "kernels for a GPU need NVIDIA's run-time compiler (NVRTC): pip install 'gemel[cuda]', or "
        "install CUDA"
    )


def _candidates() -> Iterator[str]:
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations or () if found else ():
        for pattern in WHEELS:
            yield from sorted(glob(str(Path(folder) / pattern / "libnvrtc.so*")), reverse=True)
    yield from NAMES
    for pattern in SYSTEM:
        yield from sorted(glob(f"{pattern}/libnvrtc.so*"), reverse=True)
