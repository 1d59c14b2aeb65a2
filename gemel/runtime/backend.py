"""Backends: what a program is compiled for, what prints its code, and what makes that startable.

A plan and its kernels are made for one backend, that of the device they are to run on. It is
handed down from there to whatever names, prints, loads or lowers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gemel import _core
from gemel.codegen.program import Program
from gemel.codegen.target import Target, host
from gemel.device import Device, current_device

#: From a program to the code of its kernel.
Printer = Callable[[Program, Target], bytes]


class Backend:
    """One way to get from a program to a kernel.

    `target` is what programs are compiled for; `printer` writes a kernel's code; `launch` gives of
    the code what the core's devices can start. `text` is what all of it depends on: part of every
    key under which a kernel or a plan is kept.
    """

    __slots__ = ("launch", "printer", "target", "text")

    def __init__(self, target: Target, printer: Printer, launch: Callable[[bytes], Any]) -> None:
        self.target = target
        self.printer = printer
        self.launch = launch
        self.text = target.text


def native_code(program: Program, target: Target) -> bytes:
    """The object code of a program, by LLVM."""
    if program.in_tiles:
        from gemel.codegen.contract import compile_tiles

        return compile_tiles(program, target)
    from gemel.codegen.llvm import compile_program

    return compile_program(program, target)


_native: list[Backend] = []


def backend_of(device: Device) -> Backend:
    """The backend of a device. All there are, simulated GPUs too, run on this machine's cores."""
    if not _native:  # finding the host's target reads a file
        _native.append(Backend(host(), native_code, _core.load_object))
    return _native[0]


def backend_for(values: Iterable[Any]) -> Backend:
    """The backend of the device these arrays lie on; of the current one where there are none."""
    device = next((value.device for value in values if hasattr(value, "device")), None)
    return backend_of(device or current_device())


__all__ = ["Backend", "backend_for", "backend_of", "native_code"]
