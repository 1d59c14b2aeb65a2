"""A backend is a value: another one makes other kernels of a graph, cached under other names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import gemel
from gemel import _core, autograd, np
from gemel.codegen.target import TARGETS, host
from gemel.errors import DeviceError, UnknownNameError
from gemel.ir.graph import Graph, placeholder
from gemel.ir.trace import Trace
from gemel.runtime import backend as backend_module
from gemel.runtime import cache
from gemel.runtime.backend import Backend, backend_for, backend_of, native_code
from gemel.runtime.plans import plan_of
from gemel.spec import Spec


class Watched:
    """A backend for the generic target, which every machine of this family runs. Notes its use."""

    def __init__(self) -> None:
        self.printed: list[str] = []
        self.launched = 0
        self.backend = Backend(TARGETS["generic"], self.printer, self.launch)

    def printer(self, program: Any, target: Any) -> bytes:
        self.printed.append(program.text)
        return native_code(program, target)

    def launch(self, code: bytes) -> Any:
        self.launched += 1
        return _core.load_object(code)


@pytest.fixture
def watched(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """A backend other than this machine's own, with empty caches."""
    if host() is TARGETS["generic"]:
        pytest.skip("this machine's own target is the generic one")
    monkeypatch.setenv("GEMEL_CACHE", str(tmp_path))
    cache.clear()
    yield Watched()


def graph_of(extent: int) -> Graph:
    """A graph with a loop, a reduction and a matrix product."""
    with Trace():
        x = placeholder(Spec((extent, 3), "float32"))
        return Graph((x,), [np.dot(x.T, x * 2).sum(axis=0) + 1])


def test_a_plan_is_made_by_its_backend(watched: Watched) -> None:
    base = numpy.arange(15, dtype="float32").reshape(5, 3)
    x = np.array(base)
    found = [
        plan_of(graph_of(5), b)(x)[0].tolist() for b in (watched.backend, backend_of(x.device))
    ]
    assert found[0] == found[1] == ((base.T @ base).sum(axis=0) * 2 + 1).tolist()
    assert len(watched.printed) == watched.launched > 0


def test_what_is_kept_is_kept_by_backend(watched: Watched) -> None:
    """On disk and in memory, no backend gets a plan or kernel that was made for the other."""
    native = backend_of(gemel.cpu())
    first = plan_of(graph_of(6), native)
    assert not watched.printed
    second = plan_of(graph_of(6), watched.backend)
    made = len(watched.printed)
    assert made > 0 and first is not second
    plan_of(graph_of(6), watched.backend)
    assert len(watched.printed) == made, "the second time they are found"


def test_every_way_to_a_kernel_asks_the_device(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device's backend makes everything for it: kernels of calls, plans and gradients."""
    monkeypatch.setattr(backend_module, "_native", [watched.backend])
    _core.clear_tables()
    try:
        x = np.array(numpy.arange(11), dtype="float32")
        counts = [len(watched.printed)]

        def printed() -> bool:
            counts.append(len(watched.printed))
            return counts[-1] > counts[-2]

        assert (x * 3 + x).tolist() == [4.0 * i for i in range(11)] and printed()
        assert x.sum().item() == 55.0 and printed()
        assert np.arange(7, dtype="float64").tolist() == [*range(7)] and printed()
        assert gemel.compile(lambda y: (y * y).sum() + 1)(x).item() == 386.0 and printed()
        x.attach_grad()
        for _ in range(2):  # first by the operations' kernels, then by a plan
            with autograd.record():
                y = (x.exp() * 0 + x * 5).sum()
            y.backward()
            assert x.grad.tolist() == [5.0] * 11 and printed()
    finally:
        _core.clear_tables()


def test_the_backend_of_values_is_their_device_s() -> None:
    x = np.ones(2)
    assert backend_for((1, x)) is backend_of(x.device)
    assert backend_for(()) is backend_of(gemel.cpu())
    assert backend_of(x.device).target is host()


def test_a_level_that_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMEL_TARGET", "sse")
    monkeypatch.setattr("gemel.codegen.target._found", [])
    with pytest.raises(UnknownNameError, match="'sse': must be one of avx512, avx2, generic"):
        host()


AVX2 = {"fpu", "avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe", "popcnt"}


@pytest.mark.parametrize(
    ("level", "machine", "flags", "message"),
    [
        ("avx512", "x86_64", AVX2 | {"avx512f"}, "lacks avx512bw, .*vl; set it to avx2 or generic"),
        ("avx512", "x86_64", {"fpu"}, "lacks avx512bw, .*; set it to generic, or leave it out"),
        ("avx2", "AMD64", AVX2 - {"fma"}, "GEMEL_TARGET=avx2: this processor lacks fma; set it to"),
        ("avx2", "aarch64", set(), "lacks the instructions of x86-64; set it to generic"),
        ("avx2", "x86_64", AVX2, ""),
        ("avx512", "x86_64", set(), ""),  # the system does not list the features
        ("generic", "aarch64", set(), ""),
    ],
)
def test_a_level_that_the_processor_lacks(
    monkeypatch: pytest.MonkeyPatch, level: str, machine: str, flags: set[str], message: str
) -> None:
    """Its instructions would end the process."""
    monkeypatch.setenv("GEMEL_TARGET", level)
    for name, value in (("_found", []), ("MACHINE", machine), ("_flags", lambda: flags)):
        monkeypatch.setattr(f"gemel.codegen.target.{name}", value)
    if message:
        with pytest.raises(DeviceError, match=message):
            host()
    else:
        assert host() is TARGETS[level]


def test_the_text_says_which_instructions_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plans of products depend on the instructions, and the cache names plans by the text."""
    texts = []
    for there in ((), ("vnni",), ("bf16",), ("vnni", "bf16")):
        monkeypatch.setattr(backend_module, "has_extension", lambda _, name, t=there: name in t)
        texts.append(Backend(TARGETS["avx512"], native_code, _core.load_object).text)
    assert texts[0] == TARGETS["avx512"].text
    assert len(set(texts)) == 4
