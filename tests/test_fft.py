"""`np.fft`: imperative = compiled = NumPy in values and dtypes, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy_cases import examples
from numpy_twins import Cases, alike, check_gradients

import gemel
from gemel import np
from gemel.errors import AxisError, DTypeError, ShapeError, UnknownNameError

RANDOM = numpy.random.default_rng(5)
ROWS, EVEN, ODD = (RANDOM.standard_normal(shape) for shape in ((2, 4), (6,), (5,)))
WAVES = RANDOM.standard_normal((3, 2, 4)) + 1j * RANDOM.standard_normal((3, 2, 4))
NORMS = (None, "backward", "ortho", "forward")

CASES: Cases = {
    "fft": (lambda np, a: np.fft.fft(a), (WAVES,)),
    "fft of reals": (lambda np, a: np.fft.fft(a), (ODD,)),
    "fft longer": (lambda np, a: np.fft.fft(a, 6, 0), (WAVES,)),
    "fft shorter": (lambda np, a: np.fft.fft(a, n=3), (ROWS,)),
    "ifft": (lambda np, a: np.fft.ifft(a, axis=1), (WAVES,)),
    "fft2": (lambda np, a: np.fft.fft2(a, (3, 3)), (WAVES,)),
    "ifft2": (lambda np, a: np.fft.ifft2(a), (ROWS,)),
    "fftn": (lambda np, a: np.fft.fftn(a), (WAVES,)),
    "fftn some": (lambda np, a: np.fft.fftn(a, s=(2, 5), axes=(0, 2)), (WAVES,)),
    "fftn kept": (lambda np, a: np.fft.fftn(a, s=(-1, 5), axes=(0, 2)), (WAVES,)),
    "ifftn": (lambda np, a: np.fft.ifftn(a, axes=(1, 0)), (WAVES,)),
    "rfft": (lambda np, a: np.fft.rfft(a), (EVEN,)),
    "rfft odd": (lambda np, a: np.fft.rfft(a), (ODD,)),
    "rfft longer": (lambda np, a: np.fft.rfft(a, 7, axis=0), (ROWS,)),
    "rfft2": (lambda np, a: np.fft.rfft2(a), (ROWS,)),
    "rfftn": (lambda np, a: np.fft.rfftn(a, (3, 3), (1, 0)), (ROWS,)),
    "irfft": (lambda np, a: np.fft.irfft(a), (WAVES,)),
    "irfft odd": (lambda np, a: np.fft.irfft(a, 5), (WAVES,)),
    "irfft longer": (lambda np, a: np.fft.irfft(a, 9, axis=0), (WAVES,)),
    "irfft of reals": (lambda np, a: np.fft.irfft(a), (ROWS,)),
    "irfft2": (lambda np, a: np.fft.irfft2(a), (WAVES,)),
    "irfftn": (lambda np, a: np.fft.irfftn(a), (WAVES,)),
    "hfft": (lambda np, a: np.fft.hfft(a), (WAVES,)),
    "hfft odd": (lambda np, a: np.fft.hfft(a, 5), (WAVES,)),
    "ihfft": (lambda np, a: np.fft.ihfft(a), (ROWS,)),
    **{
        f"{name} {norm}": (
            lambda np, a, name=name, norm=norm: getattr(np.fft, name)(a, norm=norm),
            (ROWS if name in ("rfft", "rfftn", "ihfft") else WAVES,),
        )
        for name in ("fft", "ifftn", "rfft", "rfftn", "irfft", "irfftn", "hfft", "ihfft")
        for norm in NORMS
    },
    "fftshift": (lambda np, a: np.fft.fftshift(a), (WAVES,)),
    "fftshift axis": (lambda np, a: np.fft.fftshift(a, 0), (WAVES,)),
    "ifftshift": (lambda np, a: np.fft.ifftshift(a, axes=(0, 2)), (WAVES,)),
    "ifftshift odd": (lambda np, a: np.fft.ifftshift(a), (ODD,)),
    "filtered": (lambda np, a: np.fft.irfft(np.fft.rfft(a) * 1j, 5), (ODD,)),
}


@pytest.mark.parametrize("name", CASES)
def test_imperative_compiled_and_numpy_alike(name: str) -> None:
    program, arrays = CASES[name]
    wanted = program(numpy, *arrays)
    given = list(map(np.array, arrays))
    for found in (program(np, *given), gemel.compile(lambda *x: program(np, *x))(*given)):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        numpy.testing.assert_allclose(found.asnumpy(), wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    check_gradients(*CASES[name])


@pytest.mark.parametrize("dtype", ["bool", "int32", "float16", "bfloat16", "float32", "float64"])
def test_precision_is_kept(dtype: str) -> None:
    x = np.ones((4,), dtype=dtype)
    wide = "complex128" if dtype == "float64" else "complex64"
    for found in (np.fft.fft(x), np.fft.rfft(x), np.fft.ifftn(x), np.fft.ihfft(x)):
        assert found.dtype == wide
    assert np.fft.fft(np.ones((4,), dtype=wide)).dtype == wide
    assert np.fft.fft(x).tolist() == [4, 0, 0, 0]
    assert np.fft.irfft(np.fft.rfft(x)).dtype == ("float64" if wide == "complex128" else "float32")
    assert numpy.fft.fft(x).dtype == wide, "NumPy's function on a gemel array"


def test_frequencies() -> None:
    for n in (1, 4, 5):
        alike(lambda np, n=n: [np.fft.fftfreq(n, 0.1, **_double(np))], (), exact=False)
        alike(lambda np, n=n: [np.fft.rfftfreq(n, d=2.0, **_double(np))], (), exact=False)
    assert np.fft.fftfreq(4).dtype == "float32" and np.fft.fftfreq(4).tolist() == [
        0,
        0.25,
        -0.5,
        -0.25,
    ]


def _double(namespace: Any) -> dict[str, str]:
    return {"dtype": "float64"} if namespace is np else {}


@examples(50)
@given(st.integers(1, 12), st.integers(1, 12), st.sampled_from(NORMS), st.integers(-2, 1))
def test_there_and_back(rows: int, n: int, norm: str | None, axis: int) -> None:
    x = RANDOM.standard_normal((rows, n)) + 1j * RANDOM.standard_normal((rows, n))
    z, real = np.array(x), np.array(x.real)
    back = np.fft.ifft(np.fft.fft(z, axis=axis, norm=norm), axis=axis, norm=norm)
    numpy.testing.assert_allclose(back.asnumpy(), x, atol=1e-12)
    half = np.fft.rfft(real, axis=axis, norm=norm)
    again = np.fft.irfft(half, x.shape[axis], axis=axis, norm=norm)
    numpy.testing.assert_allclose(again.asnumpy(), x.real, atol=1e-12)
    unit = np.fft.fftn(z, norm="ortho")
    assert np.linalg.norm(unit).item() == pytest.approx(np.linalg.norm(z).item())
    assert np.fft.ifftshift(np.fft.fftshift(z)).tolist() == z.tolist()


def test_another_batch_size_in_a_compiled_function() -> None:
    function = gemel.compile(lambda x: np.absolute(np.fft.rfft(x)))
    for rows in (2, 5, 1):
        x = RANDOM.standard_normal((rows, 6)).astype("float32")
        wanted = abs(numpy.fft.rfft(x))
        numpy.testing.assert_allclose(function(np.array(x)).asnumpy(), wanted, rtol=1e-5, atol=1e-6)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "empty": (lambda: np.fft.fft(np.zeros((2, 0))), ShapeError, "fft: 0 elements along axis 1"),
    "n": (lambda: np.fft.fft(np.ones((2,)), n=0), ShapeError, "fft: 0 elements"),
    "fraction": (lambda: np.fft.ifft(np.ones((2,)), n=2.5), ShapeError, "ifft: 2.5"),
    "axis": (lambda: np.fft.fft(np.ones((2,)), axis=1), AxisError, "fft: axis 1"),
    "0-d": (lambda: np.fft.fft(np.array(1.0)), AxisError, "fft: axis -1"),
    "norm": (lambda: np.fft.rfft(np.ones((2,)), norm="orto"), UnknownNameError, "ortho"),
    "complex": (lambda: np.fft.rfft(np.array(WAVES)), DTypeError, "rfft: complex128.*use fft"),
    "twice": (lambda: np.fft.fftn(np.ones((2, 2)), axes=(0, -2)), ShapeError, "an axis twice"),
    "lengths": (lambda: np.fft.fft2(np.ones((2, 2)), (2,)), ShapeError, "1 lengths .* 2 axes"),
    "short": (lambda: np.fft.irfft(np.ones((1,))), ShapeError, "irfft: 0 elements"),
    "frequencies": (lambda: np.fft.fftfreq(0), ShapeError, "fftfreq: 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_calls(name: str) -> None:
    call, error, told = REFUSED[name]
    with pytest.raises(error, match=told):
        call()
