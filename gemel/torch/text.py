"""How tensors are printed: PyTorch's format, with its defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def text_of(array: Any, grad: str = "") -> str:
    """`tensor([...])` with what PyTorch adds where it is not the default."""
    import numpy  # when something is printed, not when the module is imported

    values, kind = array.asnumpy(), array.dtype.name
    notes = [f"device='cuda:{array.device.device_id}'"] if array.device.linked else []
    if kind not in ("float32", "int64", "bool") or (not array.size and kind != "float32"):
        notes.append(f"dtype=torch.{kind}")
    write = _writer(values[values != 0]) if values.dtype.kind == "f" else str
    counted = values if write is str else values[values != 0]
    width = max((len(write(value)) for value in counted.flat), default=1)
    shown = numpy.array2string(
        values, 80, separator=", ", prefix="tensor(", threshold=1000, edgeitems=3,
        formatter={"all": lambda value: write(value).rjust(width if array.ndim else 0)},
    )  # fmt: skip
    text = "tensor(" + shown.replace(", ..., ", ",  ..., ")
    for note in [*notes, *([grad] if grad else [])]:
        wide = len(text) - text.rfind("\n") + len(note) > 78
        text += (",\n" + " " * 7 if wide else ", ") + note
    return text + ")"


def _writer(values: Any) -> Callable[[Any], str]:
    """What writes one of the numbers of which these are those that are not 0."""
    import numpy

    sizes = numpy.abs(values[numpy.isfinite(values)]).astype("float64")
    low, high = (sizes.min(), sizes.max()) if sizes.size else (1.0, 1.0)
    whole = bool((sizes == numpy.floor(sizes)).all())
    if high / low > 1000 or high > 1e8 or (not whole and low < 1e-4):
        return "{:.4e}".format
    if whole:
        return lambda value: f"{value:.0f}" + ("." if numpy.isfinite(value) else "")
    return "{:.4f}".format
