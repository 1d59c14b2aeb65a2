"""Comparisons, logic and bits of each element alone."""

from __future__ import annotations

from typing import Any

from gemel.ir.declare import elementwise


@elementwise(dtype="compare", public="np", operator="eq", onnx="Equal", mxnet="_npi_equal")
def equal(xp: Any, a: Any, b: Any) -> Any:
    """a == b."""
    return a == b


@elementwise(dtype="compare", public="np", operator="ne", mxnet="_npi_not_equal")
def not_equal(xp: Any, a: Any, b: Any) -> Any:
    """a != b; NaN differs from everything."""
    return a != b


@elementwise(dtype="compare", public="np", operator="lt", onnx="Less", mxnet="_npi_less")
def less(xp: Any, a: Any, b: Any) -> Any:
    """a < b."""
    return a < b


@elementwise(
    dtype="compare", public="np", operator="le", onnx="LessOrEqual", mxnet="_npi_less_equal"
)
def less_equal(xp: Any, a: Any, b: Any) -> Any:
    """a <= b."""
    return a <= b


@elementwise(dtype="compare", public="np", operator="gt", onnx="Greater", mxnet="_npi_greater")
def greater(xp: Any, a: Any, b: Any) -> Any:
    """a > b."""
    return a > b


@elementwise(
    dtype="compare", public="np", operator="ge", onnx="GreaterOrEqual", mxnet="_npi_greater_equal"
)
def greater_equal(xp: Any, a: Any, b: Any) -> Any:
    """a >= b."""
    return a >= b


@elementwise(dtype="compare", public="np", onnx="IsNaN", mxnet="_npi_isnan")
def isnan(xp: Any, x: Any) -> Any:
    """Where x is not a number."""
    return x != x


@elementwise(dtype="logical", public="np", onnx="And", mxnet="_npi_logical_and")
def logical_and(xp: Any, a: Any, b: Any) -> Any:
    """Whether both are true (not zero)."""
    return xp.logical_and(a, b)


@elementwise(dtype="logical", public="np", onnx="Or", mxnet="_npi_logical_or")
def logical_or(xp: Any, a: Any, b: Any) -> Any:
    """Whether either is true (not zero)."""
    return xp.logical_or(a, b)


@elementwise(dtype="logical", public="np", onnx="Xor", mxnet="_npi_logical_xor")
def logical_xor(xp: Any, a: Any, b: Any) -> Any:
    """Whether exactly one is true (not zero)."""
    return a ^ b


@elementwise(dtype="logical", public="np", onnx="Not", mxnet="_npi_logical_not")
def logical_not(xp: Any, x: Any) -> Any:
    """Whether x is false (zero)."""
    return xp.logical_not(x)


@elementwise(dtype="integral", public="np", operator="and", mxnet="_npi_bitwise_and")
def bitwise_and(xp: Any, a: Any, b: Any) -> Any:
    """Bits set in both."""
    return a & b


@elementwise(dtype="integral", public="np", operator="or", mxnet="_npi_bitwise_or")
def bitwise_or(xp: Any, a: Any, b: Any) -> Any:
    """Bits set in either."""
    return a | b


@elementwise(dtype="integral", public="np", operator="xor", mxnet="_npi_bitwise_xor")
def bitwise_xor(xp: Any, a: Any, b: Any) -> Any:
    """Bits set in exactly one."""
    return a ^ b


@elementwise(dtype="integral", public="np", operator="invert", mxnet="_npi_bitwise_not")
def invert(xp: Any, x: Any) -> Any:
    """Every bit reversed; for bools, not."""
    return ~x
