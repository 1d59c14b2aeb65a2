"""`np.fft`: discrete Fourier transforms.

Written by `make stubs`: change what is declared instead.
"""

from typing import Any

from gemel.ndarray import ndarray

def fft(
    a: Any, n: int | None = None, axis: int = -1, norm: str | None = "backward", *, out: Any = None
) -> ndarray:
    """The Fourier transform along an axis, truncated or padded with zeros to n elements."""

def fft2(
    a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = "backward", *, out: Any = None
) -> ndarray:
    """The discrete Fourier transform of matrices."""

def fftfreq(
    n: int,
    d: float = 1.0,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    *,
    out: Any = None,
) -> ndarray:
    """The frequencies the elements of `fft` belong to, for samples `d` apart."""

def fftn(
    a: Any, s: Any = None, axes: Any = None, norm: str | None = "backward", *, out: Any = None
) -> ndarray:
    """The discrete Fourier transform along several axes, or all, of the lengths `s`."""

def fftshift(x: Any, axes: Any = None, *, out: Any = None) -> ndarray:
    """Move the frequency 0 to the middle of the given axes, or of all."""

def hfft(
    a: Any, n: int | None = None, axis: int = -1, norm: str | None = "backward", *, out: Any = None
) -> ndarray:
    """The real Fourier transform of a Hermitian-symmetric signal, of which the first half is given."""

def ifft(
    a: Any, n: int | None = None, axis: int = -1, norm: str | None = "backward", *, out: Any = None
) -> ndarray:
    """The inverse of `fft`."""

def ifft2(
    a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = "backward", *, out: Any = None
) -> ndarray:
    """The inverse of `fft2`."""

def ifftn(
    a: Any, s: Any = None, axes: Any = None, norm: str | None = "backward", *, out: Any = None
) -> ndarray:
    """The inverse of `fftn`."""

def ifftshift(x: Any, axes: Any = None, *, out: Any = None) -> ndarray:
    """The inverse of `fftshift`."""

def ihfft(
    a: Any, n: int | None = None, axis: int = -1, norm: str | None = "backward", *, out: Any = None
) -> ndarray:
    """The inverse of `hfft`."""

def irfft(
    a: Any, n: int | None = None, axis: int = -1, norm: str | None = "backward", *, out: Any = None
) -> ndarray:
    """The inverse of `rfft`: n real numbers, by default an even number of them."""

def irfft2(
    a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = "backward", *, out: Any = None
) -> ndarray:
    """The inverse of `rfft2`."""

def irfftn(
    a: Any, s: Any = None, axes: Any = None, norm: str | None = "backward", *, out: Any = None
) -> ndarray:
    """The inverse of `rfftn`."""

def rfft(
    a: Any, n: int | None = None, axis: int = -1, norm: str | None = "backward", *, out: Any = None
) -> ndarray:
    """The Fourier transform of real numbers: its first half, which determines the other half."""

def rfft2(
    a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = "backward", *, out: Any = None
) -> ndarray:
    """The Fourier transform of real matrices; half of it along the rows."""

def rfftfreq(
    n: int,
    d: float = 1.0,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    *,
    out: Any = None,
) -> ndarray:
    """The frequencies the elements of `rfft` belong to, for samples `d` apart."""

def rfftn(
    a: Any, s: Any = None, axes: Any = None, norm: str | None = "backward", *, out: Any = None
) -> ndarray:
    """The Fourier transform of real numbers along several axes, or all; half of it along the last
    axis."""

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]
