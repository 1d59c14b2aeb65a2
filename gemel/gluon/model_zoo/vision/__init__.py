"""Well-known networks for images; their structure and parameter names are those of MXNet's zoo.

Each function creates a network with new parameters; ``pretrained=True`` reads MXNet's file from
`root` (``~/.mxnet/models``). Other keywords go to the network's class: ``classes=10``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from gemel.elsewhere import module_elsewhere
from gemel.errors import unknown_name
from gemel.gluon.model_zoo.vision.densenet import DENSENETS, DenseNet
from gemel.gluon.model_zoo.vision.inception import Inception3
from gemel.gluon.model_zoo.vision.mobilenet import LARGE, SMALL, MobileNet, MobileNetV2, MobileNetV3
from gemel.gluon.model_zoo.vision.parts import Network
from gemel.gluon.model_zoo.vision.plain import (
    FIRES,
    VGG,
    VGG_FILTERS,
    VGG_LAYERS,
    AlexNet,
    SqueezeNet,
)
from gemel.gluon.model_zoo.vision.resnet import (
    RESNETS,
    BasicBlockV1,
    BasicBlockV2,
    BottleneckV1,
    BottleneckV2,
    ResNetV1,
    ResNetV2,
    resnet,
)
from gemel.gluon.model_zoo.vision.store import load_pretrained
from gemel.ranges import check_flag

#: The function that makes each network, by name.
NETWORKS: dict[str, Callable[..., Network]] = {}


def get_model(name: str, **settings: Any) -> Network:
    """The network of that name, such as ``"resnet18_v1"``; for keywords see its function.

    Raises `UnknownNameError`, which suggests the nearest name.
    """
    if name.lower() not in NETWORKS:
        raise unknown_name("network", name, NETWORKS)
    return NETWORKS[name.lower()](**settings)


def _network(name: str, make: Callable[..., Network], *how: Any) -> Callable[..., Network]:
    """The public function that makes the network called `name`."""

    def build(
        pretrained: bool = False,
        ctx: Any = None,
        root: Any = None,
        device: Any = None,
        **settings: Any,
    ) -> Network:
        check_flag(name, "pretrained", pretrained)
        network = make(*how, **settings)
        if pretrained:
            load_pretrained(network, name, root, device if device is not None else ctx)
        return network

    # MXNet's names differ: mobilenetv2_1.0 is made by mobilenet_v2_1_0.
    build.__name__ = re.sub("(?<=[a-z])v(?=[0-9])", "_v", name).replace(".", "_")
    build.__qualname__ = build.__name__
    build.__doc__ = (
        f"The network {name}. With `pretrained` its parameters are read from MXNet's file, which "
        "must be in the folder `root` (by default ``models`` in MXNET_HOME or ``~/.mxnet``), to "
        "`device`. Other keywords are its class's, such as `classes`."
    )
    NETWORKS[name] = build
    return build


alexnet = _network("alexnet", AlexNet)
densenet121, densenet161, densenet169, densenet201 = (
    _network(f"densenet{count}", DenseNet, *how) for count, how in DENSENETS.items()
)
inception_v3 = _network("inceptionv3", Inception3)
mobilenet1_0, mobilenet0_75, mobilenet0_5, mobilenet0_25 = (
    _network(f"mobilenet{width}", MobileNet, width) for width in (1.0, 0.75, 0.5, 0.25)
)
mobilenet_v2_1_0, mobilenet_v2_0_75, mobilenet_v2_0_5, mobilenet_v2_0_25 = (
    _network(f"mobilenetv2_{width}", MobileNetV2, width) for width in (1.0, 0.75, 0.5, 0.25)
)
mobilenet_v3_large = _network("mobilenetv3_large", MobileNetV3, LARGE, 1280)
mobilenet_v3_small = _network("mobilenetv3_small", MobileNetV3, SMALL, 1024)
resnet18_v1, resnet34_v1, resnet50_v1, resnet101_v1, resnet152_v1 = (
    _network(f"resnet{count}_v1", resnet, 1, count) for count in RESNETS
)
resnet18_v2, resnet34_v2, resnet50_v2, resnet101_v2, resnet152_v2 = (
    _network(f"resnet{count}_v2", resnet, 2, count) for count in RESNETS
)
squeezenet1_0, squeezenet1_1 = (
    _network(f"squeezenet{version}", SqueezeNet, version) for version in FIRES
)
vgg11, vgg13, vgg16, vgg19 = (
    _network(f"vgg{count}", VGG, layers, VGG_FILTERS) for count, layers in VGG_LAYERS.items()
)
vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn = (
    _network(f"vgg{count}_bn", partial(VGG, batch_norm=True), layers, VGG_FILTERS)
    for count, layers in VGG_LAYERS.items()
)


def get_resnet(version: int, num_layers: int, **settings: Any) -> Network:
    """The residual network of that edition (1 or 2) and number of layers."""
    return get_model(f"resnet{num_layers}_v{version}", **settings)


def get_vgg(num_layers: int, **settings: Any) -> Network:
    """The VGG network of that number of layers, with ``batch_norm=True`` the normalized one."""
    ending = "_bn" if settings.pop("batch_norm", False) else ""
    return get_model(f"vgg{num_layers}{ending}", **settings)


def get_densenet(num_layers: int, **settings: Any) -> Network:
    """The DenseNet of that number of layers."""
    return get_model(f"densenet{num_layers}", **settings)


def get_squeezenet(version: str, **settings: Any) -> Network:
    """The SqueezeNet of that version, ``"1.0"`` or ``"1.1"``."""
    return get_model(f"squeezenet{version}", **settings)


def get_mobilenet(multiplier: float, **settings: Any) -> Network:
    """The MobileNet of that width."""
    return get_model(f"mobilenet{float(multiplier)}", **settings)


def get_mobilenet_v2(multiplier: float, **settings: Any) -> Network:
    """The MobileNetV2 of that width."""
    return get_model(f"mobilenetv2_{float(multiplier)}", **settings)


__all__ = [
    "VGG",
    "AlexNet",
    "BasicBlockV1",
    "BasicBlockV2",
    "BottleneckV1",
    "BottleneckV2",
    "DenseNet",
    "Inception3",
    "MobileNet",
    "MobileNetV2",
    "MobileNetV3",
    "ResNetV1",
    "ResNetV2",
    "SqueezeNet",
    "alexnet",
    "densenet121",
    "densenet161",
    "densenet169",
    "densenet201",
    "get_densenet",
    "get_mobilenet",
    "get_mobilenet_v2",
    "get_model",
    "get_resnet",
    "get_squeezenet",
    "get_vgg",
    "inception_v3",
    "mobilenet0_5",
    "mobilenet0_25",
    "mobilenet0_75",
    "mobilenet1_0",
    "mobilenet_v2_0_5",
    "mobilenet_v2_0_25",
    "mobilenet_v2_0_75",
    "mobilenet_v2_1_0",
    "mobilenet_v3_large",
    "mobilenet_v3_small",
    "resnet18_v1",
    "resnet18_v2",
    "resnet34_v1",
    "resnet34_v2",
    "resnet50_v1",
    "resnet50_v2",
    "resnet101_v1",
    "resnet101_v2",
    "resnet152_v1",
    "resnet152_v2",
    "squeezenet1_0",
    "squeezenet1_1",
    "vgg11",
    "vgg11_bn",
    "vgg13",
    "vgg13_bn",
    "vgg16",
    "vgg16_bn",
    "vgg19",
    "vgg19_bn",
]


def __getattr__(name: str) -> ModuleType:
    return module_elsewhere(__name__, name, __all__)
