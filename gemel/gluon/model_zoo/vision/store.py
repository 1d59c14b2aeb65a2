"""Files of pretrained parameters."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gemel.arrays.archives import checked_path
from gemel.errors import GemelError, ParameterFileError

if TYPE_CHECKING:
    from gemel.gluon.block import Block

#: The beginnings of the SHA-1 digests of MXNet's files, which are part of their names.
DIGESTS = {
    "alexnet": "44335d1f",
    "densenet121": "f27dbf2d",
    "densenet161": "b6c8a957",
    "densenet169": "2603f878",
    "densenet201": "1cdbc116",
    "inceptionv3": "ed47ec45",
    "mobilenet0.25": "9f83e440",
    "mobilenet0.5": "8e9d539c",
    "mobilenet0.75": "529b2c7f",
    "mobilenet1.0": "6b8c5106",
    "mobilenetv2_0.25": "ae8f9392",
    "mobilenetv2_0.5": "aabd26cd",
    "mobilenetv2_0.75": "e2be7b72",
    "mobilenetv2_1.0": "36da4ff1",
    "resnet101_v1": "d988c13d",
    "resnet101_v2": "18e93e4f",
    "resnet152_v1": "671c637a",
    "resnet152_v2": "f2695542",
    "resnet18_v1": "a0666292",
    "resnet18_v2": "a81db45f",
    "resnet34_v1": "48216ba9",
    "resnet34_v2": "9d6b80bb",
    "resnet50_v1": "0aee57f9",
    "resnet50_v2": "ecdde353",
    "squeezenet1.0": "264ba497",
    "squeezenet1.1": "33ba0f93",
    "vgg11": "dd221b16",
    "vgg11_bn": "ee79a809",
    "vgg13": "6bc5de58",
    "vgg13_bn": "7d97a06c",
    "vgg16": "e660d456",
    "vgg16_bn": "7f01cf05",
    "vgg19": "ad2f660d",
    "vgg19_bn": "f360b758",
}


class PretrainedFileError(GemelError, FileNotFoundError):
    """The file of a network's trained parameters does not exist."""


def load_pretrained(network: Block, name: str, root: Any, device: Any) -> None:
    """Read the trained parameters of the network called `name` from its file in `root`, by default
    the folder ``models`` of MXNET_HOME.

    This is MXNet's file (``resnet18_v1-a0666292.params``), whose digest is checked, or a file
    without a digest in its name. Raises `PretrainedFileError` if neither exists.
    """
    if root is None:
        from gemel.gluon.download import data_dir  # which loads what only downloads need

        root = os.path.join(data_dir(), "models")
    digest = DIGESTS.get(name)
    folder = os.path.expanduser(checked_path(name, "root", root))
    plain = os.path.join(folder, f"{name}.params")
    wanted = plain if digest is None else os.path.join(folder, f"{name}-{digest}.params")
    if os.path.exists(wanted):
        _check(wanted, digest)
    elif not os.path.exists(plain):
        raise PretrainedFileError(
            f"{name}: pretrained=True reads {wanted}, which does not exist; put MXNet's file (or "
            f"your own, as {plain}) there, or give its folder as root="
        )
    network.load_parameters(wanted if os.path.exists(wanted) else plain, device)


def _check(path: str, digest: str | None) -> None:
    if digest is None:
        return
    import hashlib  # a first inference does not need it

    with open(path, "rb") as opened:
        found = hashlib.sha1(opened.read(), usedforsecurity=False).hexdigest()
    if not found.startswith(digest):
        raise ParameterFileError(
            f"{path} is damaged, or is not MXNet's file: its SHA-1 digest begins with {found[:8]}"
        )
