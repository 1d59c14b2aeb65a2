"""Runs plans kernel by kernel in Python; NumPy or another machine computes each kernel."""

from __future__ import annotations

import math
import mmap
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from random_kernels import Kernel

import gemel
from gemel.codegen.language.launch import Number, Place
from gemel.codegen.target import Target, generic
from gemel.extent import seen
from gemel.ir.trace import Trace
from gemel.runtime.backend import Backend, native_code
from gemel.runtime.concurrent import Branch
from gemel.runtime.image import CAPTURED, INPUT, OUTPUT, TEMPORARY
from gemel.runtime.rounds import Repeat, Window

Array = Any


class Memory:
    """Memory for arrays, in a file that other processes can map too."""

    def __init__(self, path: Path, size: int = 1 << 26) -> None:
        path.write_bytes(b"")
        with path.open("r+b") as file:
            file.truncate(size)
            self.map = mmap.mmap(file.fileno(), size)
        self.path, self.size, self.used = path, size, 0
        self.bytes = numpy.frombuffer(self.map, "uint8")
        self.start = self.bytes.ctypes.data

    def take(self, count: int) -> Array:
        """`count` new bytes, each 0xa5."""
        found = self.bytes[self.used : self.used + count]
        assert found.size == count
        self.used += -(-count // 64) * 64 + 64
        found[:] = 0xA5
        return found

    def copy(self, content: Array) -> Array:
        """A copy of these bytes in this memory."""
        found = self.take(content.size)
        found[:] = content
        return found


class Tools(NamedTuple):
    """How to make and run kernels for a processor: a C compiler, an emulator, the processor's name,
    and a function that prints a kernel as an object file or as C."""

    compiler: str
    player: str
    machine: str
    printer: Callable[[Any, Target], bytes]

    @property
    def missing(self) -> list[str]:
        """The tools that are not installed."""
        tools = [self.compiler, *self.player.split()[:1]]
        return [tool for tool in tools if shutil.which(tool) is None]


#: A product and a sum are rounded separately, as in the kernels.
OPTIONS = ("-O1", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared")


class Elsewhere:
    """Kernels run by a process that has mapped the memory, perhaps on an emulated machine."""

    def __init__(self, folder: Path, memory: Memory, tools: Tools) -> None:
        self.folder, self.memory, self.tools = folder, memory, tools
        self.target = generic(tools.machine)
        program, text = folder / "kernels", Path(__file__).parent / "c" / "kernels.c"
        subprocess.run([tools.compiler, str(text), "-o", str(program), "-ldl"], check=True)
        command = [*tools.player.split(), str(program), str(memory.path), str(memory.size)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.known: dict[str, bytes] = {}

    def kernel(self, program: Any) -> Kernel:
        """A program as a kernel that the process runs."""
        path = self.known.get(program.text)
        if path is None:
            code = self.tools.printer(program, self.target)
            ending = ".o" if code[:4] == b"\x7fELF" else ".c"
            written = self.folder / f"kernel{len(self.known)}{ending}"
            written.write_bytes(code)
            library = written.with_suffix(".so")
            command = [self.tools.compiler, *OPTIONS, str(written), "-o", str(library), "-lm"]
            subprocess.run(command, check=True)
            path = self.known[program.text] = str(library).encode()
        return lambda addresses, integers, begin, end: self._run(
            path, [address - self.memory.start for address in addresses], integers, begin, end
        )

    def _run(self, path: bytes, places: Any, integers: Any, begin: int, end: int) -> int:
        assert self.process.stdin and self.process.stdout
        head = struct.pack("<6q", len(path), len(places), len(integers), begin, end, 0)
        numbers = struct.pack(f"<{len(places) + len(integers)}q", *places, *integers)
        self.process.stdin.write(head + path + numbers)
        self.process.stdin.flush()
        answer = self.process.stdout.read(8)
        assert len(answer) == 8, "the process with the kernels has ended"
        return int(struct.unpack("<q", answer)[0])

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


class InNode:
    """Kernels as WebAssembly, run by Node. Each call sends the memory there and back."""

    def __init__(self, memory: Memory) -> None:
        self.memory, self.target = memory, generic("wasm32")
        text = Path(__file__).parent / "c" / "kernels.js"
        command = ["node", str(text)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.known: dict[str, int] = {}

    def kernel(self, program: Any) -> Kernel:
        """A program as a kernel that the process runs."""
        code = b"" if program.text in self.known else native_code(program, self.target)
        number = self.known.setdefault(program.text, len(self.known))

        def run(addresses: Any, integers: Any, begin: int, end: int) -> int:
            nonlocal code
            places = [address - self.memory.start for address in addresses]
            found = self._run(number, code, places, integers, (begin, end))
            code = b""
            return found

        return run

    def _run(self, number: int, code: bytes, places: Any, integers: Any, span: Any) -> int:
        assert self.process.stdin and self.process.stdout
        used = self.memory.used
        head = struct.pack("<7q", number, len(code), len(places), len(integers), *span, used)
        numbers = struct.pack(f"<{len(places) + len(integers)}q", *places, *integers)
        content = self.memory.bytes[:used].tobytes()
        self.process.stdin.write(head + code + numbers + content)
        self.process.stdin.flush()
        answer = self.process.stdout.read(8 + used)
        assert len(answer) == 8 + used, "the process with the kernels has ended"
        self.memory.bytes[:used] = numpy.frombuffer(answer, "uint8", used, 8)
        return int(struct.unpack_from("<q", answer)[0])

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


class Run:
    """One call of a compiled function; its plan is run kernel by kernel."""

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: list[Any],
        kernel_of: Callable[[Any], Kernel],
        target: Target,
        memory: Memory,
        stream: tuple[int, int] = (0, 0),
    ) -> None:
        self.kernel_of, self.memory, self.stream = kernel_of, memory, stream
        self.target = target
        bound, given = gemel.compile(function)._find(tuple(arguments))
        backend = Backend(target, native_code, bytes)
        with Trace():
            lowering = bound.program.inference()._lowering(bound.values, backend)
            lowering.run()
        self.numbers = given.numbers
        self.blocks: dict[tuple[int, int], Array] = {}
        self.windows: dict[Window, int] = {}
        for index, array in enumerate(given.arrays):
            self._put(INPUT, index, array)
        for index, array in enumerate(lowering.captured):
            self._put(CAPTURED, index, array)
        for index, buffer in enumerate(lowering.emission.temporaries):
            self.blocks[TEMPORARY, index] = memory.take(seen(buffer.size))
        for index, entry in enumerate(lowering.graph.outputs):
            count = math.prod(map(seen, entry.shape)) * entry.dtype.itemsize
            self.blocks[OUTPUT, index] = memory.take(count)
        self._items(lowering.emission.items)
        self.results = [
            self.blocks[OUTPUT, index].view(entry.dtype.name).reshape(tuple(map(seen, entry.shape)))
            for index, entry in enumerate(lowering.graph.outputs)
        ]

    def _put(self, space: int, index: int, array: Any) -> None:
        content = numpy.ascontiguousarray(array.asnumpy()).reshape(-1).view("uint8")
        self.blocks[space, index] = self.memory.copy(content)

    def _items(self, items: list[Any]) -> None:
        for item in items:
            if isinstance(item, Branch):
                chosen = self.blocks[item.place.buffer.space, item.place.buffer.index][0]
                self._items(item.then if chosen else item.otherwise)
            elif isinstance(item, Repeat):
                self._rounds(item)
            else:
                self._launch(item)

    def _rounds(self, loop: Repeat) -> None:
        assert loop.condition is None, "only loops of a known length can be run here"
        for number in range(seen(loop.length)):
            for window in loop.windows:
                if window.start is not None:
                    self.windows[window] = self._behind(window, number)
                    continue
                steps = number % window.period if window.period else number
                away = seen(window.offset) + steps * seen(window.step)
                self.windows[window] = self._start(window.of) + away
            self._items(loop.items)

    def _behind(self, window: Window, number: int) -> int:
        """The address of a window that shows what the previous round wrote."""
        if number == 0:
            assert window.start is not None
            return self.windows[window.start]
        away = seen(window.offset) + (number - 1) * seen(window.step)
        return self._start(window.of) + away

    def _start(self, buffer: Any) -> int:
        """The address of a buffer, or of a window's contents in this round."""
        if isinstance(buffer, Window):
            return self.windows[buffer]
        return int(self.blocks[buffer.space, buffer.index].ctypes.data)

    def _launch(self, launch: Any) -> None:
        integers = [seen(n) for n in launch.integers]
        for position, number in launch.scalars:
            integers[position] = self._bits(number)
        extent = seen(launch.extent)
        # A grid of threads does all of it at once.
        chunk = extent if self.target.grid else seen(launch.chunk)
        run = self.kernel_of(launch.program)
        addresses = [self._address(place) for place in launch.places]
        for begin in range(0, extent, chunk or 1):
            status = run(addresses, integers, begin, min(begin + chunk, extent))
            assert status == 0, launch.failure

    def _address(self, place: Any) -> int:
        if not isinstance(place, Place):
            return self._start(place)
        return self._start(place.buffer) + seen(place.layout.offset) * place.dtype.itemsize

    def _bits(self, number: Number) -> int:
        kind = number.source[0]
        if kind == "constant":
            return seen(number.bits)
        if kind == "argument":
            value = self.numbers[number.source[1]]
        else:
            value = self.stream[0] if kind == "seed" else self.stream[1] + number.source[1]
        return Number(("constant", value), number.dtype).bits
