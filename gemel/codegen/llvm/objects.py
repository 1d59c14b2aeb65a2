"""LLVM assembly to machine code: an ELF object (or a WebAssembly module), through llvmlite.

No optimisation passes run: the kernel does what `loops` prints, and code generation alone takes a
few milliseconds. llvmlite is imported at the first compilation.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from gemel.codegen.llvm import wasm
from gemel.codegen.llvm.libllvm import library
from gemel.errors import CompileError

if TYPE_CHECKING:
    from typing import Any

    from gemel.codegen.target import Target

#: The only functions that generated code may call; nothing else can be resolved at load time.
ALLOWED = frozenset(("memcpy", "memset", "memmove"))

_machines: dict[str, Any] = {}


class Assembly(NamedTuple):
    """LLVM assembly for a target; `origin` is shown with an error."""

    text: str
    target: Target
    origin: str = ""


def emit_object(assembly: str, target: Target, origin: str = "") -> bytes:
    """LLVM assembly to an ELF object; `origin` is shown with an error.

    Raises `CompileError` for invalid assembly and for undefined symbols other than `ALLOWED`.
    """
    source, direct = Assembly(assembly, target, origin), library()
    try:
        code = direct.object_of(assembly, target.fields) if direct else _by_llvmlite(*source[:2])
    except RuntimeError as error:
        raise refused(str(error), source) from error
    return loadable(code, source)


def refused(message: str, source: Assembly) -> CompileError:
    """The error for assembly that LLVM refuses with a message."""
    return CompileError(f"LLVM refuses the code: {message}\n{source.origin}\n{source.text}")


def loadable(code: bytes, source: Assembly) -> bytes:
    """The object that LLVM made of some assembly, in the form in which it is loaded. Raises
    `CompileError` for undefined symbols."""
    target = source.target
    if target.triple.startswith("wasm"):
        return wasm.module_of(code)
    missing = undefined_symbols(code) - ALLOWED
    if missing:
        names = ", ".join(sorted(missing))
        raise CompileError(
            f"the code for {target.name} calls {names}, but a kernel must not call "
            f"anything\n{source.origin}"
        )
    return code


def _by_llvmlite(assembly: str, target: Target) -> bytes:
    """The object, through llvmlite's own Python."""
    import llvmlite.binding as binding

    if not _machines:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
    module = binding.parse_assembly(assembly)
    module.verify()
    machine = _machines.get(target.text)
    if machine is None:
        machine = _machines[target.text] = binding.Target.from_triple(
            target.triple
        ).create_target_machine(
            cpu=target.cpu,
            features=target.features,
            opt=target.level,
            reloc=target.relocation,
            codemodel="small",
        )
    code: bytes = machine.emit_object(module)
    return code


def undefined_symbols(code: bytes) -> set[str]:
    """The names of undefined symbols in an ELF64 object."""
    sections, width, count = (
        struct.unpack_from("<Q", code, 40)[0],
        *struct.unpack_from("<HH", code, 58),
    )
    found = set()
    for number in range(count):
        head = struct.unpack_from("<IIQQQQIIQQ", code, sections + number * width)
        if head[1] != 2:  # SHT_SYMTAB
            continue
        strings = struct.unpack_from("<IIQQQQIIQQ", code, sections + head[6] * width)[4]
        # The first symbol is empty by definition.
        for offset in range(head[4] + 24, head[4] + head[5], 24):
            name, _, _, section = struct.unpack_from("<IBBH", code, offset)
            if section == 0:
                end = code.index(b"\0", strings + name)
                found.add(code[strings + name : end].decode())
    return found
