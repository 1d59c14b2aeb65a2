"""What a namespace says about itself in the Array API standard (version 2024.12).

https://data-apis.org/array-api/2024.12/
"""

from __future__ import annotations

from typing import Any

from gemel.device import CPUS, GPUS, Device, as_device, current_device, num_gpus
from gemel.dtype import DTYPES, DType, default_float, int64
from gemel.ir.public import function
from gemel.np.types import isdtype
from gemel.spec import MOST_DIMENSIONS

#: Dtypes that are not in the standard.
BEYOND = ("float16", "bfloat16")


@function(public="np")
class __array_namespace_info__:  # noqa: N801 -- the standard's name
    """What the namespace can do: devices, dtypes, and which of them are the default.

    >>> np.__array_namespace_info__().default_dtypes()["real floating"]
    """

    def capabilities(self) -> dict[str, Any]:
        """Whether there are masks and shapes that depend on values; the most dimensions."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": MOST_DIMENSIONS,
        }

    def default_device(self) -> Device:
        """Where new arrays are made."""
        return current_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The dtypes of arrays made of Python numbers, and of positions."""
        as_device(device)
        return {
            "real floating": default_float(),
            "complex floating": default_float().complex,
            "integral": int64,
            "indexing": int64,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The standard's dtypes by name: all, of a kind ("integral"), or of a tuple of kinds."""
        as_device(device)
        known = {dtype.name: dtype for dtype in DTYPES if dtype.name not in BEYOND}
        return {
            name: dtype for name, dtype in known.items() if kind is None or isdtype(dtype, kind)
        }

    def devices(self) -> list[Device]:
        """All places for arrays."""
        return [*CPUS, *GPUS[: num_gpus()]]
