"""Dtypes as data: what each is computed in and adds up in, and what follows from that alone."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from op_table import FLOATING, OPS

from gemel import np
from gemel.dtype import DTYPES, DType

#: What a dtype is computed in, and what adds up in another one.
COMPUTED = {"float16": "float32"}
ADDED = {"bool": "int64", "uint8": "int64", "int8": "int64", "int32": "int64", "float16": "float32"}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_a_dtype_carries(dtype: DType) -> None:
    name = dtype.name
    assert dtype.compute == COMPUTED.get(name, name)
    assert dtype.accumulate == ADDED.get(name, name)
    assert dtype.compute.compute is dtype.compute, "what is computed in is computed in itself"
    assert dtype.accumulate.compute is dtype.accumulate
    assert dtype.accumulate.accumulate is dtype.accumulate


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_digits_are_numpy_s(dtype: DType) -> None:
    if dtype.kind == "f":
        assert dtype.digits == numpy.finfo(dtype).nmant + 1
    elif dtype.kind != "b":
        assert 2**dtype.digits - 1 == numpy.iinfo(dtype).max


#: Sums of ones beyond what a small dtype counts to: 2048 in float16, 127 in int8.
ADDING: dict[str, Any] = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean() * 4096,
    "matmul": lambda x: np.dot(x, x),
    "scatter": lambda x: OPS["scatter"](x, np.zeros(4096, dtype="int64"), axis=0, shape=(1,)),
}


@pytest.mark.parametrize("name", ADDING)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_adds_up_does_so_in_accumulate(name: str, dtype: DType) -> None:
    found = ADDING[name](np.ones(4096, dtype=dtype))
    integer = dtype.name not in FLOATING
    # A product of matrices and what meets in a place is stored in the operands' own dtype.
    expected = (
        numpy.int64(4096).astype(dtype) if integer and name in ("matmul", "scatter") else 4096
    )
    assert found.item() == expected


def test_a_dtype_computed_in_another_has_no_constants() -> None:
    """They are numbers in float64, rounded once."""
    from gemel.codegen.values import Recorder

    for dtype in DTYPES:
        recorder = Recorder()
        recorder.constant(1, dtype)
        names = [step.name for step in recorder.code]
        assert names == (["constant"] if dtype.compute is dtype else ["constant", "cast"])
