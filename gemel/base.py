"""MXNet's `base`: the error that its programs catch, and a few types that they use."""

from __future__ import annotations

from typing import Any

import numpy

from gemel.errors import GemelError, SymbolGivenError

#: Every error that gemel raises on purpose is one of these.
MXNetError = GemelError
mx_real_t = numpy.float32
numeric_types = (float, int, numpy.generic)
integer_types = (int, numpy.integer)
string_types = (str,)


class NotSupportedForSparseNDArray(MXNetError):
    """The error that MXNet raises for sparse arrays, which gemel does not have."""


NotImplementedForSymbol = SymbolGivenError


class classproperty:  # noqa: N801 -- used as a decorator
    """A property of a class."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self.function(owner)


__all__ = [
    "MXNetError",
    "NotImplementedForSymbol",
    "NotSupportedForSparseNDArray",
    "classproperty",
    "integer_types",
    "mx_real_t",
    "numeric_types",
    "string_types",
]
