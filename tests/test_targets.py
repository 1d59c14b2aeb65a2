"""The operation table computed by other means than the core: by the kernels' meaning in NumPy, and
by code for other processors, played by QEMU (Debian's qemu-user and gcc-aarch64-linux-gnu).

`make targets` runs all of it; without these packages, what there is.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from op_table import CASES, SEED, Case, accepts, close, expected_of, inputs_of, on_gemel
from plan_runner import Elsewhere, Memory, Run
from random_kernels import Kernel

from gemel.codegen import meaning
from gemel.codegen.target import Target, generic
from gemel.errors import NoKernelError, TraceError

#: How other processors' programs are made and run.
TOOLS = {
    "aarch64": {
        "cc": "aarch64-linux-gnu-gcc",
        "ld": "aarch64-linux-gnu-ld",
        "run": "qemu-aarch64 -L /usr/aarch64-linux-gnu",
    }
}
WAYS = ("meaning", *TOOLS)


class Way:
    """How kernels are computed, for which target they are made, and the memory they work on."""

    def __init__(self, kernel: Callable[[Any], Kernel], target: Target, memory: Memory) -> None:
        self.kernel, self.target, self.memory = kernel, target, memory


@pytest.fixture(scope="module", params=WAYS)
def way(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    folder = tmp_path_factory.mktemp("target")
    memory = Memory(folder / "memory")
    if request.param == "meaning":
        yield Way(lambda program: partial(meaning.run, program), generic("x86_64"), memory)
        return
    tools = TOOLS[request.param]
    for tool in (tools["cc"], tools["ld"], tools["run"].split()[0]):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}")
    elsewhere = Elsewhere(folder, memory, generic(request.param), tools)
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
