"""A real GPU: memory, copies, order, failures, and training as on the CPU. Skipped without one.

The tables of operations run there with ``pytest --device gpu`` (`make gpu`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, device, gluon, np, npx
from gemel.device import real_gpus
from gemel.errors import DeviceError

pytestmark = pytest.mark.skipif(
    device.simulated_topology() is not None or real_gpus() == 0, reason="no GPU that CUDA can use"
)
GPU = gemel.gpu(0)
KINDS = ("bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64")
KINDS += ("float16", "bfloat16", "float32", "float64")


@pytest.fixture(autouse=True)
def not_simulated() -> None:
    """Skip if another test of this process has simulated the GPU."""
    if GPU.simulated:
        pytest.skip("this process has simulated GPUs")


def on_gpu(values: Any) -> Any:
    return np.array(values, device=GPU)


def test_it_is_there() -> None:
    free, total = device.gpu_memory_info(0)
    assert 0 < free <= total and device.num_gpus() == real_gpus()
    assert repr(on_gpu([1.0]).device) == "gpu(0)" and not GPU.simulated
    assert gemel.util.get_cuda_compute_capability(GPU) >= 50
    assert gemel.runtime.Features().is_enabled("CUDA")
    with pytest.raises(DeviceError, match="real GPU"):
        device.simulate(1)


@pytest.mark.parametrize("kind", [*KINDS, "complex64", "complex128"])
def test_elements_travel_both_ways(kind: str) -> None:
    values = numpy.arange(24).reshape(2, 3, 4)
    there = np.array(values, dtype=kind, device=GPU)
    back = there.to_device(gemel.cpu())
    numpy.testing.assert_array_equal(
        back.asnumpy().astype("float64"), values if kind != "bool" else values != 0
    )
    turned = there.transpose(2, 0, 1)[::2, 1:]
    wanted = np.array(values, dtype=kind).transpose(2, 0, 1)[::2, 1:]
    numpy.testing.assert_array_equal(turned.asnumpy(), wanted.asnumpy())


def test_empty_arrays() -> None:
    none = np.zeros((0, 3), device=GPU)
    assert (none + 1).shape == (0, 3) and float(none.sum()) == 0
    assert np.dot(np.zeros((2, 0), device=GPU), np.zeros((0, 3), device=GPU)).asnumpy().sum() == 0


@pytest.mark.parametrize(
    "shape", [(1 << 22,), (3, 1 << 20), (1 << 20, 3), (1000, 33), (7, 5000, 11)]
)
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_reductions_of_many_sizes(shape: tuple[int, ...], axis: int | None) -> None:
    values = numpy.random.default_rng(0).standard_normal(shape).astype("float32")
    there = on_gpu(values)
    numpy.testing.assert_allclose(
        there.sum(axis=axis).asnumpy(), values.sum(axis=axis, dtype="float64"), rtol=1e-4, atol=1e-2
    )
    numpy.testing.assert_array_equal(there.max(axis=axis).asnumpy(), values.max(axis=axis))
    numpy.testing.assert_array_equal(there.argmax(axis=axis).asnumpy(), values.argmax(axis=axis))
    values.flat[7] = values.flat[-1] = numpy.nan
    numpy.testing.assert_array_equal(
        on_gpu(values).argmin(axis=axis).asnumpy(), values.argmin(axis=axis)
    )


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (65, 129, 33), (300, 200, 1000), (128, 4096, 64), (1, 1000, 2000)]
)
def test_products(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    source = numpy.random.default_rng(0)
    a, b = (source.standard_normal(shape).astype("float32") for shape in ((m, k), (k, n)))
    for left, right in ((on_gpu(a), on_gpu(b)), (on_gpu(a.T.copy()).T, on_gpu(b.T.copy()).T)):
        numpy.testing.assert_allclose(np.dot(left, right).asnumpy(), a @ b, rtol=1e-3, atol=1e-3)


def test_results_do_not_vary_from_run_to_run() -> None:
    values = on_gpu(numpy.random.default_rng(0).standard_normal(1 << 21).astype("float32"))
    found = {float(values.sum()) for _ in range(20)}
    assert len(found) == 1


# --- order ----------------------------------------------------------------------------------------


def test_copies_and_kernels_keep_their_order() -> None:
    """What kernels borrow is not given to a copy that is under way; writes wait for reads."""
    size = 1 << 18
    for round_ in range(100):
        x = on_gpu(numpy.full(size, round_, "float32"))
        y = np.concatenate([x, x * 2]).reshape(2, -1).sum(axis=0) + x.std()
        x[:] = numpy.full(size, -1.0, "float32")
        z = x + y
        kept = z.to_device(gemel.cpu())
        z[:] = 0
        numpy.testing.assert_array_equal(kept.asnumpy(), numpy.full(size, 3 * round_ - 1))


def test_several_threads() -> None:
    wrong: list[str] = []

    def work(seed: int) -> None:
        values = numpy.random.default_rng(seed).standard_normal((64, 64)).astype("float32")
        x = on_gpu(values)
        for _ in range(30):
            x = np.tanh(np.dot(x, x.T) * 0.01 + x)
            values = numpy.tanh(values @ values.T * numpy.float32(0.01) + values)
        if not numpy.allclose(x.asnumpy(), values, rtol=1e-3, atol=1e-3):
            wrong.append(str(seed))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_waiting_waits_for_the_gpu() -> None:
    a = np.random.normal(size=(4096, 4096), device=GPU)
    npx.waitall()
    for _ in range(20):
        b = np.dot(a, a)
    npx.waitall()
    timer = gemel.d2l.Timer()
    b.asnumpy()
    copied = timer.stop()
    assert copied < 5  # the products are over: what is left is the copy


# --- failures -------------------------------------------------------------------------------------


def test_an_index_out_of_range() -> None:
    x = on_gpu([1.0, 2.0, 3.0])
    with pytest.raises(IndexError):
        np.take(x, on_gpu([5]), mode="raise").asnumpy()
    assert (x + 1).asnumpy().tolist() == [2, 3, 4]  # the GPU goes on


def test_out_of_memory() -> None:
    _, total = device.gpu_memory_info(0)
    big = np.zeros((total // 2,), dtype="float32", device=GPU)
    with pytest.raises(MemoryError):
        big.asnumpy()
    assert float(on_gpu([1.0, 2.0]).sum()) == 3


def test_a_forked_child_is_told() -> None:
    program = textwrap.dedent("""
        import os
        import gemel
        from gemel import np
        x = np.ones((3,), device=gemel.gpu(0))
        assert x.asnumpy().tolist() == [1, 1, 1]
        child = os.fork()
        if child == 0:
            try:
                (x + 1).asnumpy()
            except gemel.errors.DeviceError as error:
                os._exit(0 if "forked" in str(error) else 1)
            except BaseException:
                os._exit(2)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (x + 1).asnumpy().tolist() == [2, 2, 2]
        """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_gpu_can_be_left_alone() -> None:
    command = "import gemel; assert gemel.num_gpus() == 0"
    environment = {**os.environ, "GEMEL_CUDA": "0"}
    subprocess.run([sys.executable, "-c", command], check=True, env=environment)


# --- training -------------------------------------------------------------------------------------


def trained(where: Any) -> list[Any]:
    """The losses and the parameters of a small network after some steps."""
    with where:
        net = gluon.nn.HybridSequential()
        net.add(
            gluon.nn.Conv2D(6, 3, padding=1, activation="relu"),
            gluon.nn.BatchNorm(),
            gluon.nn.MaxPool2D(2),
            gluon.nn.Conv2D(8, 3, strides=2),
            gluon.nn.Dense(10),
        )
        net.initialize(device=where)
        source = numpy.random.default_rng(0)
        x = np.array(source.standard_normal((16, 3, 14, 14)).astype("float32"), device=where)
        y = np.array(source.integers(0, 10, 16), device=where)
        net(x)
        for parameter in net.collect_params().values():
            drawn = source.standard_normal(parameter.shape).astype("float32") * 0.1
            parameter.set_data(np.array(drawn, device=where))
        net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
        loss, losses = gluon.loss.SoftmaxCrossEntropyLoss(), []
        for _ in range(10):
            with autograd.record():
                value = loss(net(x), y).mean()
            value.backward()
            trainer.step(1)
            losses.append(float(value))
        return [losses, *(p.data().asnumpy() for p in net.collect_params().values())]


def test_training_goes_as_on_the_cpu() -> None:
    for here, there in zip(trained(gemel.cpu()), trained(GPU), strict=True):
        numpy.testing.assert_allclose(there, here, rtol=2e-2, atol=2e-3)
