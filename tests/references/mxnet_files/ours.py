"""Export every network of the layer table, with inputs and outputs, for `check.py`.

Run with gemel in the project's folder: ``python tests/references/mxnet_files/ours.py FOLDER``.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from layer_table import LAYERS

from gemel import init, npx

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for case in LAYERS:
        net = case.make()
        net.initialize(init.Normal(0.5))
        net.hybridize()
        for batch in (3, 5):
            inputs = case.inputs(batch)
            found = net(*inputs)
            outputs = found if isinstance(found, (list, tuple)) else [found]
            name = case.name.replace(" ", "_")
            held = {f"x{i}": x for i, x in enumerate(inputs)}
            npx.save(
                folder / f"{name}.{batch}", {**held, **{f"y{i}": y for i, y in enumerate(outputs)}}
            )
        net.export(folder / name)
