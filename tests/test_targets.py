"""The operation table computed by other means than the core: by the kernels' meaning in NumPy, as
C, as code for another processor under QEMU, as WebAssembly in Node, and as CUDA C++ by threads of
this machine.

The last two need Debian's qemu-user and gcc-aarch64-linux-gnu, or nodejs. `make targets` runs
every way whose tools are installed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import cuda_host
import pytest
from hypothesis import given
from numpy_cases import examples
from op_table import CASES, SEED, Case, accepts, close, expected_of, inputs_of, on_gemel
from plan_runner import Elsewhere, InNode, Memory, Run, Tools
from random_kernels import Case as Kernels
from random_kernels import Kernel, Product, meant, outcome, products, programs, same_bytes, whole

from gemel.codegen.c.kernels import source
from gemel.codegen.target import MACHINE, Target, cuda, generic
from gemel.errors import NoKernelError, TraceError
from gemel.runtime.backend import native_code


def as_c(program: Any, target: Target) -> bytes:
    """A kernel as C, for any target."""
    return source([program]).encode()


ARM = "aarch64-linux-gnu-gcc", "qemu-aarch64 -L /usr/aarch64-linux-gnu", "aarch64"
#: How code for other targets is made and run.
TOOLS = {
    "aarch64": Tools(*ARM, native_code),
    "C": Tools("cc", "", MACHINE, as_c),
    "C on aarch64": Tools(*ARM, as_c),
}


class Way:
    """How kernels are made, for which target, and the memory they work on."""

    def __init__(self, kernel: Callable[[Any], Kernel], target: Target, memory: Memory) -> None:
        self.kernel, self.target, self.memory = kernel, target, memory


@pytest.fixture(
    scope="module",
    params=[
        "meaning",
        *(pytest.param(name, marks=pytest.mark.targets) for name in (*TOOLS, "wasm", "CUDA")),
    ],
)
def way(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    """Each way whose tools are installed."""
    folder = tmp_path_factory.mktemp("target")
    memory = Memory(folder / "memory")
    if request.param == "meaning":
        yield Way(meant, generic(MACHINE), memory)
        return
    if request.param == "wasm":
        if shutil.which("node") is None:
            pytest.skip("there is no node")
        node = InNode(memory)
        yield Way(node.kernel, node.target, memory)
        node.close()
        return
    if request.param == "CUDA":
        if cuda_host.COMPILER is None:
            pytest.skip("there is no C++ compiler")
        yield Way(cuda_host.cached_kernels(folder), cuda(90), memory)
        return
    tools = TOOLS[request.param]
    if tools.missing:
        pytest.skip(f"there is no {', '.join(tools.missing)}")
    elsewhere = Elsewhere(folder, memory, tools)
    yield Way(elsewhere.kernel, elsewhere.target, memory)
    elsewhere.close()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operations(way: Way, case: Case) -> None:
    inputs = inputs_of(case, "float32")
    if not accepts(case, inputs):
        inputs = inputs_of(case, "int32")
    way.memory.used = 0
    call = partial(case.op, **case.parameters)
    try:
        run = Run(call, on_gemel(inputs), way.kernel, way.target, way.memory, (SEED, 0))
    except (NoKernelError, TraceError) as error:
        pytest.skip(f"it has no plan: {error}")
    for found, wanted in zip(run.results, expected_of(case, inputs, (SEED, 0)), strict=False):
        close(found, wanted, case.name)


@pytest.mark.targets
@examples(40)
@given(case=programs())
def test_random_programs(way: Way, case: Kernels) -> None:
    """The bits are those that the kernels' meaning gives."""
    status, wanted = outcome(case, meant)
    way.memory.used = 0
    case = whole(case) if way.target.grid else case
    found, got = outcome(case, way.kernel, way.memory.copy)
    assert found == status
    same_bytes(case, got, wanted)


@pytest.mark.targets
@examples(20)
@given(product=products())
def test_random_products(way: Way, product: Product) -> None:
    if way.target.grid:
        pytest.skip("test_print_cuda.py has them")
    _, wanted = outcome(product.plain(), meant)
    case = product.planned(way.target)
    way.memory.used = 0
    _, got = outcome(case, way.kernel, way.memory.copy)
    same_bytes(product.plain(), got[:-1], wanted)
