"""Gradient compression with error feedback: gradients are sent in fewer bits, and the rounding
error of an element is added to what it sends next.

An infinite or NaN element arrives as one that is not finite, so that whoever looks at the sum sees
the overflow (loss scaling does, `gemel.amp`). It leaves no error behind: its next gradient is sent
as if it were the first.

Seide et al., 1-bit stochastic gradient descent, Interspeech 2014; Karimireddy et al., Error
feedback fixes SignSGD, ICML 2019; the two bits are MXNet's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import isfinite, nan
from typing import Any
from weakref import WeakKeyDictionary

from gemel import np
from gemel.device import Device
from gemel.errors import ArgumentError, unknown_name
from gemel.tracing import compiled

#: The thresholds that float32 holds with all its digits: a smaller one may be 0, a larger infinite.
SMALLEST, LARGEST = 2.0**-126, 2.0**127


class Compression(ABC):
    """Encodes gradients for sending, and keeps the error to add to the next gradient.

    `name` describes the method in full: the workers compare it, because all must send the same way.
    `share` is the fraction of a float32's bytes that is sent.
    """

    name: str
    share: float

    def __init__(self) -> None:
        #: What the gradients are multiplied by, such as the scale of the loss.
        self._scale = 1.0
        #: For each owner of gradients that lives, and for each of its places: the errors, and the
        #: scale of the gradients that they were left by.
        self._kept: WeakKeyDictionary[Any, dict[Any, tuple[Any, float]]] = WeakKeyDictionary()
        self._lost = self._kept.setdefault(self, {})
        self._pack = compiled.compile(self._packed)
        self._unpack = compiled.compile(self._unpacked)

    @abstractmethod
    def _packed(self, gradient: Any, lost: Any) -> Any:
        """Encode a row of elements plus their earlier errors. Returns the codes and the new
        errors, which are 0 for elements that are not finite."""

    @abstractmethod
    def _unpacked(self, codes: Any) -> Any:
        """Decode to float32 elements, with up to three more at the end."""

    def begin(self, scale: float, owner: Any) -> None:
        """Gradients of this owner follow, which are multiplied by `scale`."""
        scale = float(scale)
        if scale and isfinite(scale):  # else they update nothing
            self._scale = scale
        self._lost = self._kept.setdefault(self if owner is None else owner, {})

    def encode(self, place: Any, value: Any) -> Any:
        """Encode an array as a row of codes; `place` (a key) says which stored errors to add."""
        lost, scale = self._lost.get(place, (None, self._scale))
        if lost is None or lost.shape != (value.size,) or lost.device != value.device:
            lost = np.zeros((value.size,), dtype="float32", device=value.device)
        elif scale != self._scale:
            lost = lost * (self._scale / scale)
        codes, lost = self._pack(value.reshape(-1).astype("float32"), lost)
        self._lost[place] = lost, self._scale
        return codes

    def decode(self, codes: Any, like: Any) -> Any:
        """Decode to an array of the shape of `like`: float64 if that is its dtype, else
        float32."""
        row = self._unpack(codes)[: like.size].reshape(like.shape)
        return row.astype("float64") if like.dtype == "float64" else row

    def sent(self, key: Any, values: Sequence[Any], place: Device) -> list[Any]:
        """The arrays of a key as they arrive at `place`, in the dtype in which they are summed."""
        found = []
        for number, value in enumerate(values):
            codes = self.encode((key, number), value)
            found.append(self.decode(codes.as_in_ctx(place), value))
        return found


class TwoBits(Compression):
    """Sends threshold, -threshold or 0 for each element, in 2 bits; NaN if it is not finite."""

    share = 1 / 16

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.name = f"2bit, threshold {threshold!r}"  # all digits: the workers compare it
        self._threshold = threshold

    def _packed(self, gradient: Any, lost: Any) -> Any:
        """Codes (0: none, 1: threshold, 2: -threshold, 3: not finite), four in a byte."""
        wanted = gradient + lost
        up, down = wanted >= self._threshold, wanted <= -self._threshold
        finite = np.isfinite(wanted)
        codes = np.where(finite, up.astype("uint8") + 2 * down.astype("uint8"), 3).astype("uint8")
        codes = np.pad(codes, ((0, -codes.shape[0] % 4),)).reshape(-1, 4)
        bytes_ = codes[:, 0] + 4 * codes[:, 1] + 16 * codes[:, 2] + 64 * codes[:, 3]
        signs = up.astype("float32") - down.astype("float32")
        return bytes_, np.where(finite, wanted - self._threshold * signs, 0)

    def _unpacked(self, codes: Any) -> Any:
        columns = [(codes // place) % 4 for place in (1, 4, 16, 64)]
        found = np.stack(columns, axis=1).reshape(-1)
        signs = (found == 1).astype("float32") - (found == 2).astype("float32")
        return np.where(found == 3, nan, self._threshold * signs)


class Halves(Compression):
    """Sends each element in 16 bits, as ``float16`` or ``bfloat16``.

    Finite values that the dtype cannot hold (with float16 those beyond 65504) are clipped, and the
    rest is sent the next time.
    """

    share = 1 / 2

    def __init__(self, name: str, dtype: str, largest: float) -> None:
        super().__init__()
        self.name = name
        self._dtype = dtype
        self._largest = largest

    def _packed(self, gradient: Any, lost: Any) -> Any:
        wanted = gradient + lost
        finite = np.isfinite(wanted)
        held = np.clip(wanted, -self._largest, self._largest)
        codes = np.where(finite, held, wanted).astype(self._dtype)
        return codes, np.where(finite, wanted - codes.astype("float32"), 0)

    def _unpacked(self, codes: Any) -> Any:
        return codes.astype("float32")


#: The function that makes each compression, given the threshold.
KINDS: dict[str, Callable[[float], Compression | None]] = {
    "none": lambda _: None,
    "2bit": TwoBits,
    "fp16": lambda _: Halves("fp16", "float16", 65504.0),
    "bf16": lambda _: Halves("bf16", "bfloat16", 3.3895313892515355e38),
}
#: The types that may come with a threshold. "none" ignores it, so that compression can be switched
#: off by its type alone.
WITH_THRESHOLD = ("none", "2bit")


def create(settings: dict[str, Any]) -> Compression | None:
    """Create the compression for settings like ``{"type": "2bit", "threshold": 0.5}``.

    Returns None for the type ``"none"``. Raises `UnknownNameError`, and `ArgumentError` if the
    settings are not a dictionary or have no type, if the type has no threshold, or if that is not a
    positive, finite number of float32.
    """
    if not isinstance(settings, Mapping):
        raise ArgumentError(
            f"gradient compression: {settings!r} is not a dictionary of settings, such as "
            '{"type": "2bit", "threshold": 0.5}'
        )
    for name in settings:
        if name not in ("type", "threshold"):
            raise unknown_name("setting of gradient compression", name, ("type", "threshold"))
    if settings and "type" not in settings:
        raise ArgumentError(
            f"gradient compression: {settings!r} has no type, so nothing would be compressed; "
            'give one, such as {"type": "2bit", "threshold": 0.5}'
        )
    given, settings = settings, {"type": "none", "threshold": 0.5, **settings}
    kind = settings["type"]
    if not isinstance(kind, str) or kind not in KINDS:
        raise unknown_name("gradient compression", kind, KINDS)
    if "threshold" in given and kind not in WITH_THRESHOLD:
        raise ArgumentError(
            f"gradient compression: {given!r}: the type {kind!r} takes no other setting, so no "
            'threshold; leave it out, or give the type "2bit"'
        )
    return KINDS[kind](_threshold(settings["threshold"]))


def _threshold(given: Any) -> float:
    """A threshold as a float. Raises `ArgumentError`."""
    try:
        threshold = float(given)
    except (TypeError, ValueError):
        threshold = 0.0
    if not SMALLEST <= threshold <= LARGEST:
        raise ArgumentError(
            f"gradient compression: threshold {given!r} is not a finite number above 0 that "
            f"float32 holds: {SMALLEST:g} to {LARGEST:g}"
        )
    return threshold


def shortens(value: Any) -> bool:
    """Whether this array is compressed; integers and complex numbers are not."""
    return bool(value.dtype.kind == "f")


__all__ = ["Compression", "create", "shortens"]
