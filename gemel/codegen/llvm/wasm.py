"""WebAssembly: turns the object that LLVM writes for a kernel into a module to instantiate.

LLVM's object is a module except for what a linker adds. A kernel needs no linker: its function is
exported, and it may import a memory and the stack pointer, but no functions.

WebAssembly Core Specification 2.0, section 5 (binary format); relocations by the tool conventions'
"WebAssembly Object File Linking".
"""

from __future__ import annotations

from collections.abc import Iterator

from gemel.errors import CompileError

MAGIC = b"\0asm\1\0\0\0"
#: The numbers of the sections that matter here; the export is placed in the order of numbers.
CUSTOM, IMPORTS, EXPORTS, DATA = 0, 2, 7, 11
#: The kind of an import or export that is a function.
FUNCTION = 0
#: Relocations that need no work, because the object is the only one: the numbers of functions,
#: types and globals. All others say where a linker should put data or a table.
IN_PLACE = frozenset((0, 6, 7))


def module_of(code: bytes) -> bytes:
    """The module for an object whose first function is a kernel, exported as ``kernel``.

    It imports ``env.__linear_memory`` and, if it uses the stack, ``env.__stack_pointer``.
    Raises `CompileError` if the object imports a function, has data of its own, or refers to
    addresses that only a linker could assign.
    """
    wanted = functions_imported(code)
    if wanted:
        raise CompileError(f"the code for wasm calls {', '.join(wanted)}, which a kernel must not")
    if any(number == DATA for number, _ in _sections(code)):
        raise CompileError("the code for wasm has data of its own, which a kernel must not")
    moved = {kind for kind in _relocations(code) if kind not in IN_PLACE}
    if moved:
        raise CompileError(f"the code for wasm needs a linker (relocations {sorted(moved)})")
    export = b"\1" + _named(b"kernel") + bytes((FUNCTION, 0))
    sections = [each for each in _sections(code) if each[0] != CUSTOM]  # those are for a linker
    before = [each for each in sections if each[0] < EXPORTS]
    after = [each for each in sections if each[0] > EXPORTS]
    return MAGIC + b"".join(_section(*each) for each in (*before, (EXPORTS, export), *after))


def functions_imported(code: bytes) -> list[str]:
    """The functions that an object imports."""
    lists = [body for number, body in _sections(code) if number == IMPORTS]
    return [name for body in lists for name, kind in _imports(body) if kind == FUNCTION]


def _sections(code: bytes) -> Iterator[tuple[int, bytes]]:
    position = len(MAGIC)
    while position < len(code):
        size, start = _number(code, position + 1)
        yield code[position], code[start : start + size]
        position = start + size


def _relocations(code: bytes) -> Iterator[int]:
    """From each list of relocations, the first kind that is not `IN_PLACE`. The rest of such a list
    is not read, because entries of other kinds have another length."""
    for number, body in _sections(code):
        size, start = _number(body, 0)
        if number != CUSTOM or not body[start : start + size].startswith(b"reloc."):
            continue
        _, position = _number(body, start + size)  # the section that it applies to
        count, position = _number(body, position)
        for _ in range(count):
            kind, position = _number(body, position)
            if kind not in IN_PLACE:
                yield kind
                break
            for _ in ("where", "of what"):
                _, position = _number(body, position)


def _imports(body: bytes) -> Iterator[tuple[str, int]]:
    """The name and the kind of each import."""
    count, position = _number(body, 0)
    for _ in range(count):
        for _ in ("module", "name"):
            size, start = _number(body, position)
            name = body[start : start + size].decode()
            position = start + size
        kind = body[position]
        yield name, kind
        position = _after(body, kind, position + 1)


def _after(body: bytes, kind: int, position: int) -> int:
    """The end of the description of an import of this kind."""
    if kind == FUNCTION:
        return _number(body, position)[1]
    if kind == 3:  # a global: its type and mutability
        return position + 2
    position += kind == 1  # the type of a table's elements
    limited = body[position] & 1
    position = _number(body, position + 1)[1]
    return _number(body, position)[1] if limited else position


def _number(code: bytes, position: int) -> tuple[int, int]:
    """An unsigned number (LEB128), and its end."""
    value = shift = 0
    while True:
        value |= (code[position] & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if code[position - 1] < 0x80:
            return value, position


def _written(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def _named(name: bytes) -> bytes:
    return _written(len(name)) + name


def _section(number: int, body: bytes) -> bytes:
    return bytes((number,)) + _written(len(body)) + body


__all__ = ["functions_imported", "module_of"]
