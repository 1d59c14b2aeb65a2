"""Load the files that `ours.py` wrote with MXNet 1.9.1, and compare the outputs.

Run it with MXNet 1.9.1 and NumPy 1.23.5 in an environment of their own: ``python check.py FOLDER``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy
from mxnet import gluon, npx

#: The size in bytes of a parameter file without parameters.
EMPTY = 32

if __name__ == "__main__":
    npx.set_np()
    symbols = sorted(Path(sys.argv[1]).glob("*-symbol.json"))
    for symbol in symbols:
        place = str(symbol).removesuffix("-symbol.json")
        params = f"{place}-0000.params"
        params = params if Path(params).stat().st_size > EMPTY else None
        for batch in (3, 5):
            held = npx.load(f"{place}.{batch}")
            inputs = [held[f"x{i}"] for i in range(sum(name[0] == "x" for name in held))]
            names = ["data"] if len(inputs) == 1 else [f"data{i}" for i in range(len(inputs))]
            found = gluon.SymbolBlock.imports(str(symbol), names, params)(*inputs)
            outputs = found if isinstance(found, (list, tuple)) else [found]
            for i, output in enumerate(outputs):
                want = held[f"y{i}"].asnumpy()
                assert output.shape == want.shape, (place, output.shape, want.shape)
                numpy.testing.assert_allclose(output.asnumpy(), want, 5e-4, 2e-5, err_msg=place)
    print(f"{len(symbols)} networks: equal")
