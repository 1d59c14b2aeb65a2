"""WebAssembly: kernels as modules, without a linker."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy
import pytest
from plan_runner import InNode, Memory

from gemel.codegen.language.lane import Lane, Recorder
from gemel.codegen.language.program import CONTIGUOUS, INPUT, OUTER, OUTPUT, Operand, Program
from gemel.codegen.llvm import wasm
from gemel.codegen.llvm.objects import emit_object
from gemel.codegen.schedules import compile_program
from gemel.codegen.target import generic
from gemel.dtype import float32
from gemel.errors import CompileError

pytest.importorskip("llvmlite.binding")


def cosine() -> Program:
    record = Recorder()
    record.store(1, Lane(record).cos(record.load(0, float32)))
    operands = tuple(Operand(float32, role, CONTIGUOUS) for role in (INPUT, OUTPUT))
    return Program(1, 0, OUTER, operands, (), 0, tuple(record.code))


def test_a_kernel_is_a_module_that_exports_it() -> None:
    code = compile_program(cosine(), generic("wasm32"))
    assert code.startswith(wasm.MAGIC) and b"\x06kernel\x00\x00" in code
    assert wasm.functions_imported(code) == []
    assert b"linking" not in code


def test_functions_from_elsewhere_are_refused() -> None:
    text = """
    declare float @sinf(float)
    define i32 @kernel(ptr %a, ptr %b, i64 %c, i64 %d) {
      %x = load float, ptr %a
      %y = call float @sinf(float %x)
      store float %y, ptr %b
      ret i32 0
    }"""
    with pytest.raises(CompileError, match="sinf"):
        emit_object(text, generic("wasm32"))


@pytest.mark.parametrize(
    ("constants", "says"), [("constant [2 x i32] [i32 4, i32 5]", "data"), ("", "linker")]
)
def test_code_that_needs_a_linker_is_refused(constants: str, says: str) -> None:
    """A constant table and an external variable: without a linker both would be at address 0."""
    table = f"@table = internal {constants}" if constants else "@table = external global [2 x i32]"
    text = f"""
    {table}
    define i32 @kernel(ptr %a, ptr %b, i64 %c, i64 %d) {{
      %at = getelementptr [2 x i32], ptr @table, i64 0, i64 %c
      %x = load i32, ptr %at
      ret i32 %x
    }}"""
    with pytest.raises(CompileError, match=says):
        emit_object(text, generic("wasm32"))


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
def test_node_runs_it(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory", 1 << 16)
    node = InNode(memory)
    x = numpy.linspace(-9, 9, 37, dtype="float32")
    x[3::8] *= 1e20  # large arguments need one of the module's own functions
    given, found = memory.copy(x.view("uint8")), memory.take(x.nbytes)
    kernel = node.kernel(cosine())
    for begin, end in ((0, 5), (5, 37)):
        addresses = [array.ctypes.data for array in (given, found)]
        assert kernel(addresses, [37, 1, 1], begin, end) == 0
    numpy.testing.assert_allclose(found.view("float32"), numpy.cos(x), atol=1e-7)
    node.close()
