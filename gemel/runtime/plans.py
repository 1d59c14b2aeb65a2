"""Plans and elementwise calls: read from disk, or made and stored there.

The key is a text that determines the plan (`ir.text.signature`). The file holds the image and its
kernels, so that only one file is read. If a plan has to be made, kernels that are known already
come from their own files (`runtime.cache`). A graph with closed-over arrays has no such text, so
every process lowers it.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from gemel import _core
from gemel.dtype import default_float
from gemel.errors import NoKernelError
from gemel.ir.graph import Graph
from gemel.ir.op import Op
from gemel.ir.text import call_text, signature
from gemel.process.forking import compiling
from gemel.process.urgent import urgent
from gemel.runtime import cache, files
from gemel.runtime.backend import Backend
from gemel.runtime.relay import Relay
from gemel.spec import Spec

#: The most files that a process writes: a program that needs more does not repeat its calls.
MOST_FILES = 1024
#: The content for an elementwise call: the number of results and the nanoseconds per element, then
#: the codes of the results' dtypes and the limits of integers among its operands.
ELEMENTWISE = "<qd"
#: The head of a kernel in a file: its name and the length of its code.
KERNEL = struct.Struct("<32sq")
#: The folders whose sources decide how something is computed.
SOURCES = (".", "codegen", "ir", "ops", "passes", "runtime")


_written = itertools.count()


class Prepared(NamedTuple):
    """The content of a file: the names of kernels, and bytes that say how to use them."""

    kernels: tuple[str, ...]
    content: bytes

    def pack(self) -> bytes | None:
        """The bytes of the file; None if the code of a kernel is not on disk."""
        codes = []
        heads = [struct.pack("<q", len(self.kernels))]
        for name in self.kernels:
            code = cache.code_of(name)
            if code is None:
                return None
            heads.append(KERNEL.pack(bytes.fromhex(name), len(code)))
            codes.append(code)
        return b"".join((*heads, *codes, self.content))

    def loaded(self, backend: Backend) -> tuple[list[Any], bytes]:
        """The kernels, which are in memory already, and the content."""
        return [cache.known_kernel(name, backend) for name in self.kernels], self.content


def _unpack(data: bytes, build: Callable[[list[Any], bytes], Any], backend: Backend) -> Any:
    """The result of `build` on the kernels and content in a file's bytes."""
    try:
        (count,) = struct.unpack_from("<q", data)
        heads = list(KERNEL.iter_unpack(data[8 : 8 + KERNEL.size * count]))
    except struct.error:
        raise ValueError("it is truncated") from None
    end = 8 + KERNEL.size * count
    kernels = []
    for name, length in heads:
        kernels.append(cache.loaded_kernel(name.hex(), data[end : end + length], backend))
        end += length
    return build(kernels, data[end:])


def cached(
    text: str,
    kind: str,
    backend: Backend,
    make: Callable[[], Prepared],
    build: Callable[[list[Any], bytes], Any],
) -> Any:
    """The object that `text` determines: `build` makes it from the file, or from the result of
    `make`.

    In the second case the file is written.
    """
    name = files.name_of(text, default_float().name, backend.text, files.fingerprint(*SOURCES))
    result = files.load(name, kind, partial(_unpack, build=build, backend=backend))
    if result is None:
        with making():
            prepared = make()
        result = build(*prepared.loaded(backend))
        if next(_written) < MOST_FILES:
            urgent.afterwards(partial(_store, name, kind, prepared))
    return result


def _store(name: str, kind: str, prepared: Prepared) -> None:
    packed = prepared.pack()
    if packed:
        files.store(name, kind, packed)


@contextmanager
def making() -> Iterator[None]:
    """A `with` block that compiles: forks and exits wait for its end, garbage is not collected."""
    with compiling, urgent:
        yield


def plan_for(
    text: str | None,
    backend: Backend,
    make: Callable[[], Any],
    keeper: _core.Keeper | None = None,
) -> Any:
    """The plan that `text` and `backend` determine. If it has to be made, `make` returns its image.

    With `text` None it is always made. Plans of one graph share a keeper.
    """
    if text is None or not backend.on_disk:
        with making():
            image = make()
        return image.plan(keeper)

    def prepared() -> Prepared:
        image = make()
        return Prepared(tuple(image.keys), image.early or image.write())

    return cached(text, "plan", backend, prepared, partial(_plan, keeper))


def _plan(keeper: _core.Keeper | None, kernels: list[Any], image: bytes) -> Any:
    return _core.Plan(image, kernels, (), keeper)


def single_plan(
    op: Op, specs: tuple[Spec, ...], parameters: dict[str, Any], backend: Backend
) -> Any:
    """The plan of one operation on dense arrays of these sizes."""

    def make() -> Any:
        from gemel.runtime.single import single_image

        return single_image(op, specs, parameters, backend, {}, [])

    return plan_for(call_text(op, (specs, "dense"), parameters), backend, make)


def plan_of(
    graph: Graph,
    backend: Backend,
    atomic: bool = True,
    passes: Sequence[Any] | None = None,
    early: Sequence[int] = (),
) -> Any:
    """The plan of a graph with known extents.

    `atomic`, `early`: see `Lowering`, `passes`: see `optimize`.
    """

    def make() -> Any:
        from gemel.passes import optimize
        from gemel.runtime.lower import lowered

        return lowered(optimize(graph, backend.passes(passes)), backend, atomic, early)

    text = None if passes else signature(graph)
    try:
        first = "".join(f", {output} early" for output in early)
        return plan_for(text and f"{text}keeps {atomic}{first}", backend, make)
    except NoKernelError:
        return Relay(graph, partial(plan_of, backend=backend, atomic=atomic, passes=passes))


__all__ = ["Prepared", "cached", "making", "plan_for", "plan_of"]
