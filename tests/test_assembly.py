"""LLVM's assembly as text, llvmlite's library, and kernels compiled in parallel."""

from __future__ import annotations

import json
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from programs import end

from gemel._core import Llvm
from gemel.codegen import assembling
from gemel.codegen.llvm import libllvm, memory, objects
from gemel.codegen.llvm.assembly import (
    F32,
    F64,
    I8,
    I32,
    I64,
    POINTER,
    Builder,
    Constant,
    Module,
    Type,
    Value,
    widened,
)
from gemel.codegen.target import PORTABLE, Target, generic, host
from gemel.errors import CompileError
from gemel.process.forking import Helpers, compiling


def begun() -> tuple[Module, Builder]:
    module = Module(host().triple)
    return module, Builder(module)


def i64(value: int) -> Constant:
    return Constant(I64, value)


BEGIN, END = Value(I64, "%begin"), Value(I64, "%end")


def lines_of(module: Module, word: str) -> list[str]:
    return [line for line in str(module).splitlines() if word in line]


@pytest.mark.parametrize(
    ("kind", "lanes", "fenced"),
    [(F32, 16, "v16f32"), (F64, 4, "v4f64"), (I8, 16, "v4f32"), (I64, 2, "v4f32"), (I8, 2, "")],
)
@pytest.mark.parametrize("target", [host(), PORTABLE, generic("aarch64"), generic("wasm32")])
def test_opaque_values_are_the_same_on_every_target(
    kind: Type, lanes: int, fenced: str, target: Target
) -> None:
    module = Module(target.triple)
    builder = Builder(module)
    vector = widened(kind, lanes)
    there = builder.load(Value(POINTER, "%buffers"), POINTER, 8)
    found = builder.opaque(builder.load(there, vector, 1))
    assert found.type is vector
    builder.store(found, there, 1)
    builder.ret(Constant(I32, 0))
    fences = lines_of(module, "= call")
    assert [f"arithmetic.fence.{fenced}(" in line for line in fences] == [True] * bool(fenced)
    assert len(objects.emit_object(str(module), target)) > 0


def test_a_fence_makes_no_square_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    def square() -> tuple[int, int]:
        module, builder = begun()
        there = builder.load(Value(POINTER, "%buffers"), POINTER, 8)
        places = [builder.gep(there, i64(64 * i), F32) for i in range(8)]
        rows = [builder.load(place, widened(F32, 8), 4) for place in places]
        for row, place in zip(memory.transposed(builder, rows), places, strict=True):
            builder.store(row, place, 4)
        builder.ret(Constant(I32, 0))
        fences = len(lines_of(module, "= call"))
        return fences, len(objects.emit_object(str(module), host()))

    fences, length = square()
    monkeypatch.setattr(memory, "FENCED", 8)
    assert fences == 8 and square() == (0, length)


def test_known_instructions_are_not_written_again() -> None:
    module, builder = begun()
    once = builder.add(BEGIN, END)
    assert builder.add(BEGIN, END) is once and builder.mul(BEGIN, END) is not once
    assert len(lines_of(module, " = add ")) == 1


def test_a_block_knows_what_precedes_it_and_nothing_beside_it() -> None:
    module, builder = begun()
    before = builder.add(BEGIN, END)
    with builder.if_else(builder.icmp_signed("<", BEGIN, END)) as (then, other):
        with then:
            assert builder.add(BEGIN, END) is before
            inside = builder.mul(BEGIN, END)
        with other:
            assert builder.mul(BEGIN, END) is not inside
    assert builder.add(BEGIN, END) is before
    assert builder.mul(BEGIN, END) is not inside
    builder.ret(Constant(I32, 0))
    assert objects.emit_object(str(module), host())


def test_memory_is_read_each_time() -> None:
    module, builder = begun()
    place = Value(POINTER, "%integers")
    assert builder.load(place, I64, 8) is not builder.load(place, I64, 8)
    assert builder.alloca(I64) is not builder.alloca(I64)
    assert len(lines_of(module, " = load ")) == 2


def test_room_is_made_where_the_function_begins() -> None:
    """Stack slots are allocated in the entry block, also from a loop or in interleaved parts."""
    module, builder = begun()
    inside, after = builder.append_basic_block(), builder.append_basic_block()
    builder.branch(inside)
    builder.position_at_end(inside)
    with builder.interleaving() as part:
        for place in (BEGIN, END):
            part()
            builder.store(place, builder.alloca(I64), 8)
    builder.cbranch(builder.icmp_signed("<", BEGIN, END), inside, after)
    builder.position_at_end(after)
    builder.ret(Constant(I32, 0))
    first = module.body.partition("br ")[0]
    assert first.startswith("entry:") and first.count("alloca") == 2
    assert module.body.count("alloca") == 2
    assert objects.emit_object(str(module), host())


def test_whole_numbers_that_change_nothing() -> None:
    _, builder = begun()
    assert builder.add(BEGIN, i64(0)) is BEGIN and builder.add(i64(0), BEGIN) is BEGIN
    assert builder.mul(BEGIN, i64(1)) is BEGIN and builder.sub(BEGIN, i64(0)) is BEGIN
    assert builder.sub(i64(0), BEGIN) is not BEGIN and builder.mul(i64(0), BEGIN).text == "0"
    zero, x = Constant(F32, 0.0), Value(F32, "%x")
    assert builder.fadd(x, zero) is not x  # -0.0 + 0.0 is 0.0


def test_types_must_be_one() -> None:
    _, builder = begun()
    with pytest.raises(CompileError, match="add of i64 and i32"):
        builder.add(BEGIN, Constant(I32, 1))
    with pytest.raises(CompileError, match="of <4 x i64> and i64"):
        builder.icmp_signed("<", Value(widened(I64, 4), "%v"), BEGIN)


def test_bad_assembly_is_reported() -> None:
    with pytest.raises(CompileError, match=r"(?s)expected instruction opcode.*what for"):
        objects.emit_object("define i32 @kernel() {\nnothing\n}", host(), "what for")
    used_before = "%1 = add i32 %2, 1\n%2 = add i32 1, 1\nret i32 %1"
    with pytest.raises(CompileError, match="dominate"):
        objects.emit_object(f"define i32 @kernel() {{\n{used_before}\n}}", host())


def kernel() -> str:
    module, builder = begun()
    builder.ret(builder.trunc(builder.sub(END, BEGIN), I32))
    return str(module)


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A version of llvmlite whose library is not known."""
    monkeypatch.setattr(libllvm, "KNOWN", ("0.0.",))
    monkeypatch.setattr(libllvm, "_loaded", [])
    yield


def test_another_llvmlite_gives_the_same_object(request: pytest.FixtureRequest) -> None:
    assert libllvm.library() is not None
    made = [objects.emit_object(kernel(), target) for target in (host(), PORTABLE)]
    request.getfixturevalue("unknown")
    with pytest.warns(
        RuntimeWarning, match=r"llvmlite .* \(0\.0\.\*\); kernels are compiled by one"
    ):
        assert libllvm.library() is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the warning is given only once
        assert libllvm.library() is None
    assert [objects.emit_object(kernel(), target) for target in (host(), PORTABLE)] == made
    with pytest.raises(CompileError, match="expected instruction opcode"):
        objects.emit_object("define i32 @kernel() {\nnothing\n}", host())


T = TypeVar("T")
R = TypeVar("R")


def on_threads(work: Callable[[T], R], tasks: Iterable[T], threads: int) -> list[R]:
    """The results of the tasks, computed on threads."""
    with Helpers(work, threads) as helpers:
        for task in tasks:
            helpers.give(task)
        return helpers.results()


def test_many_threads_get_the_same_object() -> None:
    text = kernel()
    wanted = objects.emit_object(text, host())
    with compiling:
        found = on_threads(lambda _: objects.emit_object(text, host()), range(64), 8)
    assert found == [wanted] * 64


def assembled(texts: list[str], threads: int, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The objects of some assembly, made on so many threads besides this one."""

    def printed(program: Any, target: Target) -> objects.Assembly:
        return objects.Assembly(program, target, f"of {len(program)} letters")

    monkeypatch.setattr(assembling, "assembly_of", printed)
    with compiling, assembling.Assembling(host(), threads) as made:
        for number, text in enumerate(texts):
            made.give(text, number % 3)  # type: ignore[arg-type]
        return made.results()


@pytest.mark.parametrize("threads", [0, 1, 5])
def test_other_threads_assemble_what_is_printed(
    threads: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    texts = [kernel().replace("sub", name) for name in ("sub", "add", "mul", "or", "xor", "and")]
    wanted = [objects.emit_object(text, host()) for text in texts]
    assert len({*wanted}) == 6
    before = threading.active_count()
    assert assembled(texts * 3, threads, monkeypatch) == wanted * 3
    assert assembled([], threads, monkeypatch) == []
    assert threading.active_count() == before
    request.getfixturevalue("unknown")
    with pytest.warns(RuntimeWarning, match="by one thread at a time"):
        assert assembled(texts, threads, monkeypatch) == wanted


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_in_the_middle_leaves_both_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one by a signal's handler: the child has none of the threads."""
    texts = [kernel().replace("sub", name) for name in ("sub", "add", "mul", "or", "xor", "and")]
    wanted = [objects.emit_object(text, host()) for text in texts] * 2
    monkeypatch.setattr(assembling, "assembly_of", objects.Assembly)
    with compiling, assembling.Assembling(host(), 2) as made:
        for text in texts:
            made.give(text)  # type: ignore[arg-type]
        child = os.fork()
        if child == 0:
            signal.alarm(30)
        try:
            for text in texts:
                made.give(text)  # type: ignore[arg-type]
            right = made.results() == wanted
        finally:
            if child == 0:
                os._exit(not right)
    assert right and os.waitpid(child, 0)[1] == 0


def test_what_llvm_refuses_is_told_with_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    bad, outside = "define i32 @kernel() {\nnothing\n}", kernel() + "declare void @other()\n"
    outside = outside.replace("ret ", "call void @other()\nret ")
    for text, said in ((bad, "expected instruction opcode"), (outside, "calls other")):
        with pytest.raises(CompileError, match=rf"(?s){said}.*of {len(text)} letters"):
            assembled([kernel(), text, kernel()], 1, monkeypatch)
    with pytest.raises(CompileError, match=r"^the code for .* calls other"):
        objects.emit_object(outside, host())


def test_a_library_that_cannot_be_opened_is_told() -> None:
    missing = Llvm("/there/is/no/library.so")
    missing.open_soon()
    missing.settle()
    with pytest.raises(RuntimeError, match=r"library\.so"):
        missing.object_of(kernel(), host().fields)


@pytest.mark.parametrize("after", ["", "os.fork() or os._exit(0)", "libllvm.library().settle()"])
def test_a_program_may_end_or_fork_while_the_library_is_opened(after: str) -> None:
    ended = end(f"""
import os
from gemel.codegen.llvm import libllvm
libllvm.open_soon()
libllvm.open_soon()
{after}
tell(done=True)""")
    assert ended.told == {"done": True}, ended


def test_forks_wait_for_the_library_one_after_another_and_after_kernels() -> None:
    """What a thread begins to open while others wait for its kernels is open at the fork."""
    ended = end(
        """
        import os, threading, time
        from gemel.codegen.llvm import libllvm
        from gemel.process.forking import compiling
        class Slow:
            opening, waiting, most = False, 0, 0
            def open_soon(self):
                self.opening = True
            def settle(self):
                self.waiting += 1
                self.most = max(self.most, self.waiting)
                time.sleep(0.05)
                self.waiting -= 1
                self.opening = False
        slow = Slow()
        libllvm._loaded[:] = [slow]
        def fork():
            pid = os.fork()
            if pid == 0:
                os._exit(slow.opening)
            codes.append(os.waitpid(pid, 0)[1])
        codes, forks = [], [threading.Thread(target=fork) for _ in range(3)]
        with compiling:
            for thread in forks:
                thread.start()
            time.sleep(0.2)
            libllvm.open_soon()
        for thread in forks:
            thread.join()
        tell(codes=codes, most=slow.most)
        """
    )
    assert ended.told == {"codes": [0, 0, 0], "most": 1}, ended


def test_a_signal_s_handler_may_compile_while_the_library_is_looked_for(tmp_path: Path) -> None:
    ended = end(
        """
        import os, signal, sys
        from gemel import np
        class Alarm:
            def find_spec(self, name, path=None, target=None):
                if name == "llvmlite.utils" and not found:
                    found.append(None)
                    os.kill(os.getpid(), signal.SIGALRM)
        found = []
        sys.meta_path.insert(0, Alarm())
        signal.signal(signal.SIGALRM, lambda *_: found.append(np.zeros(2).tolist()))
        tell(ones=np.ones(2).tolist(), found=found)
        """,
        seconds=30,
        GEMEL_CACHE=str(tmp_path),
    )
    assert ended.told == {"ones": [1, 1], "found": [None, [0, 0]]}, ended


def test_work_of_helpers_is_in_order_and_fails_as_it_would() -> None:
    assert on_threads(lambda n: n * n, range(5), 3) == [0, 1, 4, 9, 16]
    assert on_threads(lambda n: n, [], 4) == []
    assert on_threads(lambda n: n, range(3), 0) == [0, 1, 2]

    def work(n: int) -> int:
        if n == 2:
            raise CompileError("the third")
        return n

    with pytest.raises(CompileError, match="the third"):
        on_threads(work, range(20), 4)


def test_helpers_begin_before_all_is_given_and_leave_no_thread() -> None:
    before = threading.active_count()
    begun = threading.Event()

    def work(n: int) -> int:
        begun.set()
        return n

    with Helpers(work, 2) as helpers:
        for task in range(4):
            helpers.give(task)
        assert begun.wait(10)  # nobody has asked for results yet
        assert threading.active_count() <= before + 2
        assert helpers.results() == [0, 1, 2, 3]
    assert threading.active_count() == before


def test_helpers_end_if_the_caller_fails() -> None:
    before, done = threading.active_count(), []
    with pytest.raises(ValueError, match="here"), Helpers(done.append, 2) as helpers:
        for task in range(100):
            helpers.give(task)
        raise ValueError("here")
    assert threading.active_count() == before
    assert len(done) <= 100


def test_work_goes_on_where_no_thread_is_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert on_threads(lambda n: -n, range(4), 4) == [0, -1, -2, -3]


NETWORK = """
import json, os, threading
from gemel import compile, np, npx
from gemel.runtime.cache import counters

def network(x, w):
    for _ in range(2):
        x = np.exp(np.dot(x, w)).sum(axis=1, keepdims=True) * npx.softmax(x)
        x = np.concatenate([x, np.flip(x, axis=0)], axis=0)
    return np.sort(x, axis=1)

def value():
    x, w = np.ones((4, 8)), np.ones((8, 8))
    return float(compile(network)(x, w).asnumpy().sum())
"""


def test_kernels_of_a_plan_are_counted_and_kept(tmp_path: Path) -> None:
    program = f"{NETWORK}\nfound = value()\ntell(value=found, **counters)"
    first = end(program, GEMEL_CACHE=str(tmp_path)).told
    second = end(program, GEMEL_CACHE=str(tmp_path)).told
    assert first["compiled"] > 2 and second["compiled"] == 0, json.dumps([first, second])
    assert second["loaded"] == first["compiled"] and first["value"] == second["value"]


def test_a_fork_while_kernels_are_compiled(tmp_path: Path) -> None:
    program = f"""{NETWORK}
thread = threading.Thread(target=value)
thread.start()
child = os.fork()
if not child:
    os._exit(0 if value() > 0 else 1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
thread.join()
tell(code=code, value=value() > 0)"""
    ended = end(program, GEMEL_CACHE=str(tmp_path))
    assert ended.told == {"code": 0, "value": True}, ended
