"""Sums in one process: dtypes that are summed as float32."""

from __future__ import annotations

from typing import Any

import pytest

from gemel import cpu, device, gpu, kvstore, np, npx

#: For each dtype a number to which adding 1 changes nothing, and that number plus 2.
LARGE = {"float16": (2048.0, 2050.0), "bfloat16": (256.0, 258.0)}


@pytest.fixture(autouse=True)
def gpus():
    device.simulate(3, gigabytes_per_second=100, microseconds=0)
    yield
    npx.waitall()
    device.simulate(0)


def store_with(value: Any, kind: str = "none", name: str = "device") -> Any:
    store = kvstore.create(name)
    if kind != "none":
        store.set_gradient_compression({"type": kind, "threshold": 0.5})
    store.init(0, value)
    return store


# ---- sums of two-byte numbers


@pytest.mark.parametrize("places", [[cpu(0), cpu(1), cpu(2)], [gpu(0), gpu(1), gpu(2)],
                                    [cpu(0), gpu(0), cpu(1)]], ids=str)  # fmt: skip
@pytest.mark.parametrize("dtype", LARGE)
@pytest.mark.parametrize(
    ("name", "kind"), [("device", "none"), ("local", "none"), ("device", "fp16")]
)
def test_two_byte_numbers_are_summed_in_float32_and_rounded_once(name, kind, dtype, places):
    large, expected = LARGE[dtype]
    values = [
        np.array([value], dtype=dtype, device=place)
        for value, place in zip((large, 1.0, 1.0), places, strict=True)
    ]
    store, out = store_with(values[0], kind, name), np.zeros((1,), dtype=dtype)
    store.push(0, values)
    store.pull(0, out)
    assert out.tolist() == [expected]
    for row in store.totals([0], [values], places):
        assert (row[0].dtype, row[0].tolist()) == (dtype, [expected])
    store.pushpull(0, values)
    assert [value.tolist() for value in values] == [[expected]] * 3


def test_the_sum_of_one_array_is_another_array():
    for dtype in ("bool", "float16", "float32"):
        one = np.ones((2,), dtype=dtype)
        (row,) = kvstore.create("device").totals([0], [[one]], [cpu(0)])
        row[0][...] = 0
        assert (row[0].dtype, one.tolist()) == (dtype, [1, 1])


@pytest.mark.parametrize("places", [[cpu(0)], [cpu(0), cpu(1)], [cpu(0), gpu(0)]], ids=str)
def test_sums_of_bools_are_bools(places):
    values = [np.array([True, False], dtype="bool", device=place) for place in places]
    for row in kvstore.create("device").totals([0], [values], places):
        assert (row[0].dtype, row[0].tolist()) == ("bool", [True, False])


@pytest.mark.parametrize("places", [[cpu(0), gpu(0)], [gpu(0), cpu(0)]], ids=str)
def test_sums_of_a_processor_and_a_gpu(places):
    """Whichever comes first, and wherever the sum is wanted."""
    values = [np.ones((2,), device=place) for place in places]
    for wanted in ([cpu(0)], [gpu(0)], places):
        rows = kvstore.create("device").totals([0], [values], wanted)
        assert [(row[0].device, row[0].tolist()) for row in rows] == [(d, [2, 2]) for d in wanted]
