"""Devices: creation, copies, shares of the processor, simulated GPUs and their links."""

from __future__ import annotations

import itertools
import math
import os
import pickle
import subprocess
import sys
import threading
import time
from typing import Any

import numpy
import pytest
from programs import run

import gemel
from gemel import _core, autograd, cpu, device, gluon, gpu, np, npx, try_all_gpus, try_gpu
from gemel.errors import DeviceError

CREATIONS = [
    lambda place: np.zeros((2, 3), device=place),
    lambda place: np.ones((2, 3), ctx=place),
    lambda place: np.full((2, 3), 7, device=place),
    lambda place: np.array([[1, 2], [3, 4]], device=place),
    lambda place: np.array(numpy.eye(3), ctx=place),
    lambda place: np.arange(5, device=place),
    lambda place: np.linspace(0, 1, 5, device=place),
    lambda place: np.eye(3, device=place),
    lambda place: np.random.uniform(size=(3,), device=place),
    lambda place: np.random.normal(size=(3,), ctx=place),
    lambda place: np.random.randint(0, 9, size=(3,), device=place),
]


@pytest.mark.parametrize("create", CREATIONS)
def test_creation_on_a_device(create, two_gpus):
    for place in (cpu(1), two_gpus[1]):
        np.random.seed(1)
        there = create(place)
        np.random.seed(1)
        here = create(cpu(0))
        assert there.device == place
        assert (there.asnumpy() == here.asnumpy()).all()
        assert (there + 1).device == place
    with two_gpus[0]:
        assert create(None).device == two_gpus[0]


@pytest.mark.parametrize("key", [[True, False, True], [0, 2]], ids=["mask", "positions"])
@pytest.mark.parametrize("given", [5, [1, 2]], ids=["one", "two"])
def test_chosen_elements_take_values_of_any_device(key: Any, given: Any, two_gpus: Any) -> None:
    places = (cpu(0), cpu(1), *two_gpus)
    wanted = numpy.zeros(3)
    wanted[key] = given
    for place, other in itertools.product(places, repeat=2):
        x = np.zeros(3, device=place)
        x[np.array(key, device=place)] = np.array(given, "float32", device=other)
        assert x.device == place
        assert (x.asnumpy() == wanted).all()


# engine.md 23
def test_a_gpu_does_all_its_work_itself(two_gpus):
    npx.waitall()
    _core.trace_start()
    x = np.zeros((2,), device=two_gpus[0])
    y = x + 1
    y += x
    y[0] = 5
    z = y.reshape((2, 1)).sum(axis=0)
    npx.waitall()
    _core.trace_stop()
    trace = _core.trace_take()
    ran = {trace["threads"][o[5]] for o in trace["operations"]}
    assert ran == {"gpu(0)"} and len(trace["operations"]) >= 5
    assert z.tolist() == [6]


SMALL = """
from gemel import _core, device, gpu, np, npx
device.simulate(1)
grown = {}
for size in range(64, 577, 64):
    before = None
    for _ in range(3):
        arrays = []
        for number in range(400):
            x = np.full((size,), number % 100, dtype="uint8", device=gpu(0))
            x.wait_to_read()
            arrays.append(x)
        assert all(x.tolist()[::63] == [i % 100] * len(range(0, size, 63)) for i, x in
                   enumerate(arrays))
        del arrays, x
        npx.waitall()
        used = _core.counters()["bytes_in_use"]
        before = used if before is None else before
    grown[size] = used - before
tell(grown=grown)
"""


def test_small_arrays_of_a_gpu_give_their_memory_back() -> None:
    """Their data may lie behind the array's own record, but are not part of it."""
    grown = run(SMALL)["grown"]
    assert all(abs(more) < 10_000 for more in grown.values()), grown


def test_moving(two_gpus):
    x = np.arange(12).reshape((3, 4))
    for place in (cpu(1), *two_gpus):
        there = x.as_in_ctx(place)
        assert there.device == place and there.ctx == place
        assert there.to_device(place) is there
        assert x.copyto(place).tolist() == x.tolist()
        assert there.T.as_in_ctx(cpu(0)).tolist() == x.T.tolist()
        assert there[1:, ::2].copyto(two_gpus[0]).tolist() == x[1:, ::2].tolist()
        back = np.zeros((3, 4), dtype="int64")
        assert there.copyto(back) is back
        assert back.tolist() == x.tolist()
        part = np.zeros((3, 8), dtype="float32")
        there.copyto(part[:, ::2])
        assert part[:, ::2].tolist() == x.tolist() and part[:, 1::2].tolist() == [[0.0] * 4] * 3
        assert np.zeros((0, 3)).as_in_ctx(place).shape == (0, 3)


def test_reading_from_a_gpu(two_gpus):
    x = np.array([[1.5, 2.5]], device=two_gpus[1])
    assert x.tolist() == [[1.5, 2.5]]
    assert float(x.sum()) == 4.0 and bool(x[0, 0] == 1.5) and x[0, 1].item() == 2.5
    assert repr(x) == "array([[1.5, 2.5]], device=gpu(1, simulated))"
    assert str(two_gpus[0]) == "gpu(0, simulated)"
    assert pickle.loads(pickle.dumps(x)).device == two_gpus[1]


def test_arrays_of_two_devices_do_not_mix(two_gpus):
    with pytest.raises(
        DeviceError, match=r"add: the arrays are on cpu\(0\) and gpu\(0, simulated\)"
    ):
        np.ones(3) + np.ones(3, device=two_gpus[0])


@pytest.mark.parametrize("places", ["c0 g0", "g0 c0", "g0 g1", "c0 c1"])
@pytest.mark.parametrize("recorded", [False, True])
def test_compiled_arguments_of_two_devices_do_not_mix(places, recorded, two_gpus):
    first, second = [(cpu if word[0] == "c" else gpu)(int(word[1])) for word in places.split()]

    @gemel.compile
    def function(a: Any, b: Any) -> Any:
        return a + b

    for _ in range(2):
        scope = autograd.record() if recorded else autograd.pause()
        with (
            pytest.raises(DeviceError, match=r"function: the arrays are on .* and .*; move"),
            scope,
        ):
            function(np.ones(3, device=first), np.ones(3, device=second))
    assert function(np.ones(3, device=first), np.ones(3, device=first)).tolist() == [2, 2, 2]


WRONG = [
    (lambda: cpu("0"), r"cpu\('0'\): '0' is not a whole number"),
    (lambda: gpu(1.5), "1.5 is not a whole number"),
    (lambda: device.Device("cpu", None), "None is not a whole number"),
    (lambda: device.cores("cpu(0)", 1), "is not a whole number"),
    (lambda: device.cores(0, 1.5), "cores: 1.5 is not a whole number"),
    (lambda: device.simulate("p3"), r"simulate: 'p3' is a name; pass device.topology\('p3'\)"),
    (lambda: device.simulate(1.5), "simulate: 1.5 is not a whole number"),
    (lambda: device.simulate(1, gigabytes_per_second=0), "a link of 0 GB/s"),
    (lambda: device.simulate(1, gigabytes_per_second=math.nan), "a link of nan GB/s"),
    (lambda: device.simulate(1, microseconds=math.nan), "nan us"),
    (lambda: device.simulate(1, microseconds=math.inf), "inf us"),
    (lambda: device.simulate(1, microseconds=1e300), r"1e\+300 us; .* from 0 to 1e\+07"),
    (lambda: device.simulate(1, gigabytes_per_second=1e-300), "1e-300 GB/s .*from 1e-06 to"),
    (lambda: device.simulate(device.topology("p3").slower(1e8)), "GB/s .*from 1e-06 to"),
    (lambda: device.simulate(1, gigabytes_per_second=math.inf), "inf GB/s .*finite numbers"),
    (lambda: device.simulate(1, gigabytes_per_second="8"), "'8' GB/s"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_devices_that_cannot_be(call, message):
    with pytest.raises(DeviceError, match=message):
        call()
    assert npx.num_gpus() == 0 and cpu(numpy.int64(1)) is cpu(1)


def test_without_gpus():
    assert npx.num_gpus() == 0
    assert try_gpu() == cpu() and try_all_gpus() == [cpu()]
    assert str([gpu(), gpu(1)]) == "[gpu(0), gpu(1)]"  # just names: the devices need not exist

    def inside() -> None:
        with gpu(1):
            np.ones(3)

    for use in (
        inside,
        lambda: np.ones(3, ctx=gpu(1)),
        lambda: np.ones(3).copyto(gpu(1)),
        lambda: gluon.nn.Dense(2).initialize(ctx=[gpu(1)]),
    ):
        with pytest.raises(DeviceError, match=r"gpu\(1\): no GPU found.*GEMEL_SIMULATED_GPUS=2"):
            use()
    with pytest.raises(DeviceError, match=r"cpu\(16\)"):
        cpu(16)


def test_with_gpus(two_gpus):
    assert npx.num_gpus() == 2
    assert try_gpu(1) == two_gpus[1] and try_gpu(5) == cpu()
    assert try_all_gpus() == list(two_gpus)
    with pytest.raises(DeviceError, match=r"gpu\(2\): there are 2 GPUs"):
        np.ones(3, ctx=gpu(2))


def test_the_environment_makes_gpus():
    code = "import gemel; print(gemel.try_all_gpus(), gemel.np.ones(2, device=gemel.gpu(1)).sum())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "GEMEL_SIMULATED_GPUS": "2"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert found.stdout.split("\n")[0] == "[gpu(0, simulated), gpu(1, simulated)] 2.0"


# engine.md 24
def test_a_link_takes_its_time(two_gpus):
    device.simulate(2, gigabytes_per_second=0.1, microseconds=1000)
    x = np.ones((250_000,))
    npx.waitall()
    start = time.perf_counter()
    x.as_in_ctx(two_gpus[0])
    npx.synchronize(two_gpus[0])
    # 1 MB at 0.1 GB/s, and 1 ms latency
    assert time.perf_counter() - start >= 0.011


# engine.md 23, 24
def test_links_work_side_by_side_and_one_after_another(two_gpus):
    # A copy takes 400 ms, so even a busy machine begins the next one in that time.
    device.simulate(2, gigabytes_per_second=0.005, microseconds=0)
    x = np.ones((500_000,))
    npx.waitall()
    _core.trace_start()
    copies = [x.as_in_ctx(two_gpus[0]), x.as_in_ctx(two_gpus[0]), x.as_in_ctx(two_gpus[1])]
    npx.waitall()
    _core.trace_stop()
    found = [o for o in _core.trace_take()["operations"] if o[1] == "copy"]
    (first, second, other) = [(o[8], o[9]) for o in found]
    assert first[1] <= second[0]
    assert other[0] < first[1]
    assert [c.device for c in copies] == [two_gpus[0], two_gpus[0], two_gpus[1]]


# engine.md 5, 37
def test_synchronize_waits_for_its_device_only(two_gpus):
    device.simulate(2, gigabytes_per_second=0.002, microseconds=0)
    x = np.ones((250_000,))
    assert (x.as_in_ctx(cpu(1)) + 1)[0].item() == 2
    npx.waitall()
    start = time.perf_counter()
    slow = x.as_in_ctx(two_gpus[0])  # 500 ms
    y = x.as_in_ctx(cpu(1)) + 1
    npx.synchronize(cpu(1))
    assert _core.counters()["pending"] > 0
    assert y[0].item() == 2
    npx.synchronize(two_gpus[0])
    assert time.perf_counter() - start >= 0.5
    assert slow[0].item() == 1


# engine.md 22
def test_a_share_bounds_how_many_threads_work():
    """Operations of a device with one core never overlap; those of two devices may overlap."""
    device.cores(0, 1)
    device.cores(1, 1)
    try:
        a = [np.ones((300, 300), device=cpu(i)) for i in (0, 1)]
        npx.waitall()
        _core.trace_start()
        for _ in range(6):
            for x in a:
                np.dot(x, x)
        npx.waitall()
        _core.trace_stop()
    finally:
        device.cores(0)
        device.cores(1)
    found = [o for o in _core.trace_take()["operations"] if o[1] == "matmul"]
    assert len(found) == 12
    for index in (0, 1):
        spans = sorted((o[8], o[9]) for o in found if o[3] == index)
        assert all(before[1] <= after[0] for before, after in zip(spans, spans[1:], strict=False))


def test_arrays_outlive_the_simulation_of_their_gpu(two_gpus):
    x = np.arange(7, device=two_gpus[1])
    device.simulate(1)
    assert x.device.simulated
    assert (x * 11 - 2).tolist() == [11 * i - 2 for i in range(7)]
    with pytest.raises(DeviceError, match="there are 1 GPUs"):
        np.ones(3, device=two_gpus[1])
    device.simulate(0)
    assert float(np.dot(x, x)) == 91


def test_a_process_that_simulates_gpus_uses_no_real_ones(two_gpus, monkeypatch):
    monkeypatch.setattr(device, "real_gpus", lambda: 2)
    device.simulate(0)
    assert device.num_gpus() == 0 and try_gpu() == cpu()
    with pytest.raises(DeviceError, match="has simulated GPUs"):
        np.ones(3, device=two_gpus[0])


def test_bad_shares():
    with pytest.raises(DeviceError, match="at least 1"):
        device.cores(0, 0)
    device.simulate(1)
    with pytest.raises(DeviceError, match="has its own worker"):
        device.cores(gpu(0), 1)
    device.simulate(0)
    with pytest.raises(DeviceError, match="0 to 8"):
        device.simulate(9)


def test_the_current_device_belongs_to_a_thread():
    seen = []
    with cpu(3):
        thread = threading.Thread(target=lambda: seen.append(np.ones(1).device))
        thread.start()
        thread.join()
        assert np.ones(1).device == cpu(3)
    assert seen == [cpu(0)]


def test_failures_travel(two_gpus):
    bad = np.arange(3)[np.array([5])].as_in_ctx(two_gpus[0])
    with pytest.raises(IndexError, match="out of bounds"):
        (bad + 1).asnumpy()


@pytest.mark.parametrize("place", [cpu(1), "gpu"])
def test_lists_and_numpy_arrays_go_where_the_array_is(place: Any) -> None:
    device.simulate(1)
    x = np.array([1.0, 2.0, 4.0], device=gpu(0) if place == "gpu" else place)
    calls: list[Any] = [
        lambda: x + [1, 2, 3],
        lambda: numpy.ones(3) + x,
        lambda: x[[0, 2]],
        lambda: x[numpy.array([True, False, True])],
        lambda: np.median(x),
        lambda: np.percentile(x, 30),
        lambda: np.divmod(x, 2)[1],
    ]
    assert [call().device for call in calls] == [x.device] * len(calls)
    x[[0, 1]] = [7, 8]
    assert x.tolist() == [7, 8, 4]


#: Functions composed of operations that need more than arrays: numbers, lists, grids.
BESIDE_ARRAYS: dict[str, Any] = {
    "append": lambda x, m: np.append(x, 5),
    "arange_like": lambda x, m: npx.arange_like(x),
    "average": lambda x, m: np.average(x, weights=[1, 2, 3, 4]),
    "convolve": lambda x, m: np.convolve(x, [1.0, 2.0]),
    "cov": lambda x, m: np.cov(x, [1.0, 2.0, 4.0, 8.0]),
    "cross": lambda x, m: np.cross(x[:3], [1.0, 2.0, 3.0]),
    "cumulative_prod": lambda x, m: np.cumulative_prod(x, include_initial=True),
    "diag_indices_from": lambda x, m: np.diag_indices_from(m)[0],
    "diff": lambda x, m: np.diff(x, prepend=0),
    "ediff1d": lambda x, m: np.ediff1d(x, to_begin=1),
    "gradient": lambda x, m: np.gradient(x),
    "histogram2d": lambda x, m: np.histogram2d(x, x)[0],
    "insert": lambda x, m: np.insert(x, 1, 5),
    "isin": lambda x, m: np.isin(x, [1, 2]),
    "kron": lambda x, m: np.kron([1.0, 2.0], x),
    "matrix_power": lambda x, m: np.linalg.matrix_power(m, 0),
    "packbits": lambda x, m: np.packbits(x > 2),
    "piecewise": lambda x, m: np.piecewise(x, [x > 2], [1, 0]),
    "poly": lambda x, m: np.poly(x),
    "polyder": lambda x, m: np.polyder(x),
    "polydiv": lambda x, m: np.polydiv(x, [1.0, 1.0])[0],
    "polyfit": lambda x, m: np.polyfit(x, x, 1),
    "polyint": lambda x, m: np.polyint(x),
    "polyval": lambda x, m: np.polyval([1, 2, 3], x),
    "r_": lambda x, m: np.r_[0:2, x, 1],
    "reduceat": lambda x, m: np.add.reduceat(x, [0, 2]),
    "resize": lambda x, m: np.resize(x, (3, 3)),
    "roots": lambda x, m: np.roots(x),
    "searchsorted": lambda x, m: np.searchsorted(np.sort(x), 2),
    "select": lambda x, m: np.select([x > 2], [x], 3),
    "stack": lambda x, m: np.stack([0.5, x[0]]),
    "tril_indices_from": lambda x, m: np.tril_indices_from(m)[0],
    "union1d": lambda x, m: np.union1d([7.0], x),
    "vectorize": lambda x, m: np.vectorize(lambda number: number * 2)(x),
}

#: Functions that write into the array they are called with.
WRITES_BESIDE: dict[str, Any] = {
    "at": lambda x: np.add.at(x, [0, 0], 1.0),
    "copyto": lambda x: np.copyto(x, [1, 2, 3, 4], where=[True, False, True, False]),
    "put": lambda x: np.put(x, [0, 3], [5, 6]),
    "put_along_axis": lambda x: np.put_along_axis(x, np.array([2, 1], ctx=x.device), 9, 0),
    "putmask": lambda x: np.putmask(x, x > 2, [7, 8]),
}


@pytest.mark.parametrize("place", [cpu(1), gpu(0)], ids=["cpu", "gpu"])
@pytest.mark.parametrize("name", BESIDE_ARRAYS)
def test_helper_arrays_are_made_on_the_device_of_the_inputs(
    name: str, place: Any, two_gpus: Any
) -> None:
    call = BESIDE_ARRAYS[name]
    values = np.array([3.0, 1.0, 2.0, 5.0]), np.array([[3.0, 1.0], [1.0, 4.0]])
    found = call(*(x.to_device(place) for x in values))
    assert found.device == place
    assert found.tolist() == call(*values).tolist()


@pytest.mark.parametrize("place", [cpu(1), gpu(0)], ids=["cpu", "gpu"])
@pytest.mark.parametrize("name", WRITES_BESIDE)
def test_written_values_are_made_on_the_device_of_the_array(
    name: str, place: Any, two_gpus: Any
) -> None:
    there, here = (np.array([3.0, 1.0, 2.0, 5.0], device=each) for each in (place, cpu(0)))
    for x in (there, here):
        WRITES_BESIDE[name](x)
    assert (there.device, there.tolist()) == (place, here.tolist())
