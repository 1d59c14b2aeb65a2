"""The few functions of llvmlite's library that turn assembly into an object, called directly.

llvmlite's own Python takes longer to import than a small network takes to compile, and it lets only
one thread compile at a time. These functions may change between versions of llvmlite, so they are
called directly only for the versions in `KNOWN`. For any other version, `gemel.codegen.llvm` uses
llvmlite's Python, and a warning says so, once.
"""

from __future__ import annotations

import ctypes
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gemel.codegen.target import Target

#: The versions of llvmlite (by prefix) that have the functions below.
KNOWN = ("0.50.",)

_MESSAGE = POINTER(c_void_p)
#: By name (without ``LLVMPY_``): the type of the result, then those of the arguments.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "InitializeAllTargetInfos": (None,),
    "InitializeAllTargets": (None,),
    "InitializeAllTargetMCs": (None,),
    "InitializeAllAsmPrinters": (None,),
    "DisposeString": (None, c_void_p),
    "ContextCreate": (c_void_p,),
    "ContextDispose": (None, c_void_p),
    "ParseAssembly": (c_void_p, c_void_p, c_char_p, _MESSAGE),
    "VerifyModule": (c_int, c_void_p, _MESSAGE),
    "DisposeModule": (None, c_void_p),
    "GetTargetFromTriple": (c_void_p, c_char_p, _MESSAGE),
    # triple, CPU, features; optimisation; relocation, code model; two flags; ABI
    "CreateTargetMachine": (
        *(c_void_p, c_void_p, c_char_p, c_char_p, c_char_p, c_int),
        *(c_char_p, c_char_p, c_int, c_int, c_char_p),
    ),
    "TargetMachineEmitToMemory": (c_void_p, c_void_p, c_void_p, c_int, _MESSAGE),
    "GetBufferStart": (c_void_p, c_void_p),
    "GetBufferSize": (c_size_t, c_void_p),
    "DisposeMemoryBuffer": (None, c_void_p),
}
#: The functions that take long: code generation. The others take a millisecond together.
_LONG = ("TargetMachineEmitToMemory",)


class Library:
    """The library at a path. Several threads may call `emit` at the same time."""

    def __init__(self, path: str) -> None:
        # Long calls release the GIL, so that other threads can run Python. Short calls keep it:
        # after releasing it, a thread may have to wait five milliseconds to get it back.
        long, short = ctypes.CDLL(path), ctypes.PyDLL(path)
        self._functions = {
            name: (long if name in _LONG else short)[f"LLVMPY_{name}"] for name in _FUNCTIONS
        }
        for name, (result, *arguments) in _FUNCTIONS.items():
            self._functions[name].restype, self._functions[name].argtypes = result, arguments
        for each in ("TargetInfos", "Targets", "TargetMCs", "AsmPrinters"):
            self._call(f"InitializeAll{each}")
        #: Idle target machines, by the text of their target. A machine serves one thread at a time.
        self._free: dict[str, list[int]] = {}

    def _call(self, name: str, *arguments: object) -> int:
        return self._functions[name](*arguments) or 0

    def _told(self, message: c_void_p) -> str:
        """LLVM's message; empty if there is none."""
        if not message.value:
            return ""
        text = ctypes.string_at(message.value).decode(errors="replace")
        self._call("DisposeString", message)
        return text

    def emit(self, assembly: str, target: Target) -> bytes:
        """The object for LLVM assembly. Raises `RuntimeError` with LLVM's message for bad code."""
        context = self._call("ContextCreate")
        try:
            module = self._parsed(context, assembly)
            try:
                with self._machine(target) as machine:
                    return self._object(machine, module)
            finally:
                self._call("DisposeModule", module)
        finally:
            self._call("ContextDispose", context)

    def _parsed(self, context: int, assembly: str) -> int:
        message = c_void_p()
        module = self._call("ParseAssembly", context, assembly.encode(), byref(message))
        refused = self._told(message)
        if module and not refused and self._call("VerifyModule", module, byref(message)):
            refused = self._told(message) or "it is not well formed"
        if refused or not module:
            if module:
                self._call("DisposeModule", module)
            raise RuntimeError(refused or "LLVM IR parsing error")
        return module

    def _object(self, machine: int, module: int) -> bytes:
        message = c_void_p()
        buffer = self._call("TargetMachineEmitToMemory", machine, module, 1, byref(message))
        refused = self._told(message)
        if not buffer:
            raise RuntimeError(refused)
        try:
            size = self._call("GetBufferSize", buffer)
            return ctypes.string_at(self._call("GetBufferStart", buffer), size)
        finally:
            self._call("DisposeMemoryBuffer", buffer)

    @contextmanager
    def _machine(self, target: Target) -> Iterator[int]:
        """A target machine that no other thread uses at the same time."""
        free = self._free.setdefault(target.text, [])
        try:
            machine = free.pop()
        except IndexError:
            machine = self._made(target)
        try:
            yield machine
        finally:
            free.append(machine)

    def _made(self, target: Target) -> int:
        triple, message = target.triple.encode(), c_void_p()
        found = self._call("GetTargetFromTriple", triple, byref(message))
        if not found:
            raise RuntimeError(self._told(message))
        texts = target.cpu.encode(), target.features.encode()
        model = target.relocation.encode(), b"small"
        return self._call(
            "CreateTargetMachine", found, triple, *texts, target.level, *model, 0, 0, b""
        )


_loaded: list[Library | None] = []
_loading = threading.Lock()


def library() -> Library | None:
    """llvmlite's library; None if its version is not known."""
    if not _loaded:
        with _loading:
            if not _loaded:
                _loaded.append(_found())
    return _loaded[0]


def _found() -> Library | None:
    import llvmlite
    from llvmlite.utils import get_library_name

    if not llvmlite.__version__.startswith(KNOWN):
        known = " or ".join(f"{version}*" for version in KNOWN)
        warnings.warn(
            f"llvmlite {llvmlite.__version__} is not a version whose library gemel knows "
            f"({known}); kernels are compiled by one thread at a time, which is slower",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    folder = os.path.dirname(llvmlite.__file__)
    path = os.path.join(folder, "binding", get_library_name())
    return Library(path) if os.path.exists(path) else None
