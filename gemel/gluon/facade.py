"""`F`, the first argument of `hybrid_forward`: the operations under one name.

MXNet had one module for arrays and one for symbols. Here the same functions take both, so the two
facades differ in their name only: `print(F)` still tells whether the block is being traced.
"""

from __future__ import annotations

from typing import Any

from gemel import np, npx

#: Names of MXNet 1 whose meaning has another name in `np` or `npx`.
_OLD_NAMES = {
    "Activation": "activation",
    "BatchNorm": "batch_norm",
    "CTCLoss": "ctc_loss",
    "Convolution": "convolution",
    "Deconvolution": "deconvolution",
    "Dropout": "dropout",
    "Embedding": "embedding",
    "FullyConnected": "fully_connected",
    "GroupNorm": "group_norm",
    "InstanceNorm": "instance_norm",
    "L2Normalization": "l2_normalization",
    "LayerNorm": "layer_norm",
    "LeakyReLU": "leaky_relu",
    "Pooling": "pooling",
    "RNN": "rnn",
    "ROIPooling": "roi_pooling",
    "SequenceLast": "sequence_last",
    "SequenceMask": "sequence_mask",
    "SequenceReverse": "sequence_reverse",
    "UpSampling": "upsampling",
    "concat": "concatenate",
}


class Facade:
    """The names of `npx`, then those of `np`; both whole as `.npx` and `.np`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.np = np
        self.npx = npx
        self.random = np.random

    def __getattr__(self, name: str) -> Any:
        name = _OLD_NAMES.get(name, name)
        for module in (npx, np):
            found = getattr(module, name, None)
            if found is not None:
                return found
        raise AttributeError(f"F has no operation {name!r}: neither npx nor np has it")

    def __repr__(self) -> str:
        return f"<module 'gemel.{self._name}'>"


ndarray = Facade("ndarray")
symbol = Facade("symbol")
