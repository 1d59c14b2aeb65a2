"""MXNet's modules whose contents are in other modules here."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType

from gemel.errors import unknown_attribute

#: By their names after `mxnet.`, the names after `gemel.`.
ELSEWHERE = {
    "gluon.contrib.cnn": "gluon.nn",
    "gluon.contrib.data.sampler": "gluon.contrib.data",
    "gluon.contrib.estimator.batch_processor": "gluon.contrib.estimator",
    "gluon.contrib.estimator.estimator": "gluon.contrib.estimator",
    "gluon.contrib.estimator.event_handler": "gluon.contrib.event_handler",
    "gluon.contrib.nn.basic_layers": "gluon.contrib.nn",
    "gluon.contrib.rnn.conv_rnn_cell": "gluon.contrib.rnn",
    "gluon.contrib.rnn.rnn_cell": "gluon.contrib.rnn",
    "gluon.data.dataloader": "gluon.data",
    "gluon.model_zoo.vision.squeezenet": "gluon.model_zoo.vision",
    "gluon.model_zoo.vision.vgg": "gluon.model_zoo.vision",
    "gluon.nn.activations": "gluon.nn",
    "gluon.nn.basic_layers": "gluon.nn",
    "gluon.nn.conv_layers": "gluon.nn",
    "gluon.rnn.rnn_cell": "gluon.rnn",
    "gluon.rnn.rnn_layer": "gluon.rnn",
    "image.image": "image",
    "io.io": "io",
    "kvstore.kvstore": "kvstore",
    "numpy.multiarray": "np",
    "optimizer.optimizer": "optimizer",
}


def module_elsewhere(package: str, name: str, known: Iterable[str]) -> ModuleType:
    """What MXNet has as the module `name` of a package of gemel.

    Raises `AttributeError`, with the nearest of the known names, if it has none.
    """
    place = ELSEWHERE.get(f"{package}.{name}".removeprefix("gemel."))
    if place is None:
        raise unknown_attribute(package, name, known)
    return import_module(f"gemel.{place}")
