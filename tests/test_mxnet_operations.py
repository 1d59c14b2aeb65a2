"""MXNet 1's rarer operations, compared with what MXNet 1.9.1 computed from its own symbols.

`references/mxnet_operations/make.py` writes the symbols, inputs and outputs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest

from gemel import npx, sym
from gemel.gluon import SymbolBlock

FILES = Path(__file__).parent / "references" / "mxnet_operations"
CASES: list[Any] = json.loads((FILES / "operations.json").read_text())
ARRAYS: Any = npx.load(FILES / "operations.params")
#: Cannot be traced, because the size of the result depends on values.
IMPERATIVE = ("contrib.boolean_mask",)


def arrays(place: int, kind: str) -> list[Any]:
    names = (f"{place}.{kind}{i}" for i in range(9))
    return [ARRAYS[name] for name in names if name in ARRAYS]


@pytest.mark.parametrize(
    ("place", "name", "graph"),
    [(place, *case) for place, case in enumerate(CASES)],
    ids=[f"{place} {name}" for place, (name, _) in enumerate(CASES)],
)
def test_operations(place: int, name: str, graph: Any) -> None:
    symbol = sym.load_json(json.dumps(graph))
    names, inputs, outputs = symbol.list_inputs(), arrays(place, "x"), arrays(place, "y")
    block = SymbolBlock(symbol, names)
    given = [inputs[int(each.removeprefix("data"))] for each in names]
    ways = [block(*given)]
    if name not in IMPERATIVE:
        block.hybridize()
        ways.append(block(*given))
    for way in ways:
        found = list(way) if isinstance(way, (list, tuple)) else [way]
        assert len(found) == len(outputs)
        for x, want in zip(found, outputs, strict=True):
            assert x.dtype == want.dtype
            assert x.shape == want.shape or (x.shape == () and want.shape == (1,))
            numpy.testing.assert_allclose(
                x.asnumpy().reshape(want.shape), want.asnumpy(), rtol=1e-4, atol=1e-5
            )
    written = json.loads(symbol.tojson())
    assert {**written, "attrs": graph["attrs"]} == graph
