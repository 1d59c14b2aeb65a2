"""The model zoo's networks: parameters named and shaped as MXNet's, results as MXNet computes them.

`references/zoo.json` was written by `references/zoo_mxnet.py` with MXNet 1.9.1.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
from references.zoo_mxnet import digest, size_of, usual_size, values

from gemel import np
from gemel.errors import ArgumentError, ParameterFileError, UnknownKeywordError, UnknownNameError
from gemel.gluon import model_zoo
from gemel.gluon.model_zoo import vision
from gemel.gluon.model_zoo.vision.store import PretrainedFileError, load_pretrained

HERE = Path(__file__).parent / "references"
EXPECTED: dict[str, Any] = json.loads((HERE / "zoo.json").read_text())
SMALL = EXPECTED.pop("small")
#: The quick networks; `make slow` compares the others.
QUICK = {
    "mobilenet0.25",
    "mobilenetv2_0.25",
    "resnet18_v1",
    "resnet18_v2",
    "resnet50_v2",
    "squeezenet1.1",
}
NAMES = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in EXPECTED]


def image(size: int, batch: int = 1) -> Any:
    return np.array(values("image", (batch, 3, size, size)))


@pytest.mark.parametrize("name", EXPECTED)
def test_parameters(name: str) -> None:
    net = vision.get_model(name)
    net.infer_shape(np.zeros((1, 3, usual_size(name), usual_size(name))))
    found = net.collect_params()
    assert len(found) == EXPECTED[name]["count"]
    assert digest(found, net.prefix) == EXPECTED[name]["digest"]


@pytest.mark.parametrize("name", NAMES)
def test_results(name: str) -> None:
    net = model_zoo.get_model(name, classes=10)
    x = image(size_of(name))
    net.infer_shape(x)
    filled = {key: np.array(values(key, p.shape)) for key, p in net.collect_params().items()}
    net.load_dict(filled)
    if name == "mobilenetv2_0.25":
        net.hybridize()
    expected = numpy.array(EXPECTED[name]["outputs"])
    scale = abs(expected).max()
    numpy.testing.assert_allclose(net(x).asnumpy()[0], expected, rtol=0, atol=1e-4 * scale)


def test_a_file_mxnet_wrote() -> None:
    """A loaded network also accepts another image size and batch size."""
    net = vision.ResNetV2(vision.BottleneckV2, [1, 1], [4, 8, 16], classes=3, thumbnail=True)
    net.load_parameters(str(HERE / "zoo_small.bin"))
    x = image(8, batch=2)
    for _ in range(2):
        found = net(x).asnumpy().ravel()
        numpy.testing.assert_allclose(found, SMALL["outputs"], rtol=1e-4, atol=1e-5)
        net.hybridize()
    assert net(image(11, batch=3)).shape == (3, 3)


@pytest.mark.parametrize(("name", "count"), [("small", 2_542_856), ("large", 5_483_032)])
def test_the_third_mobilenet(name: str, count: int) -> None:
    """MXNet lacks it: the number of parameters is that of torchvision's networks."""
    net = vision.get_model(f"mobilenetv3_{name}")
    net.infer_shape(np.zeros((1, 3, 224, 224)))
    trained = [p for p in net.collect_params().values() if p.grad_req != "null"]
    assert sum(int(numpy.prod(p.shape)) for p in trained) == count
    net.initialize()
    assert net(image(32, batch=2)).shape == (2, 1000)


def test_pretrained(tmp_path: Any) -> None:
    with pytest.raises(
        PretrainedFileError, match=r"resnet18_v1-a0666292\.params, which does not exist"
    ):
        vision.resnet18_v1(pretrained=True, root=tmp_path)
    (tmp_path / "resnet18_v1-a0666292.params").write_bytes(b"something else")
    with pytest.raises(ParameterFileError, match="SHA-1"):
        vision.resnet18_v1(pretrained=True, root=str(tmp_path))
    own = vision.mobilenet0_25(classes=2)
    own.initialize()
    expected = own(image(64))
    own.save_parameters(str(tmp_path / "mobilenet0.25.params"))
    read = vision.mobilenet0_25(pretrained=True, root=tmp_path, classes=2)
    assert read(image(64)).tolist() == expected.tolist()
    with pytest.raises(ParameterFileError, match=r"output.weight has shape \(2, 256\)"):
        vision.mobilenet0_25(pretrained=True, root=tmp_path, classes=3)


def test_where_trained_parameters_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """MXNET_HOME counts when the function is called; one that is empty counts as none."""
    for home, folder in (("/nowhere/at/all", "/nowhere/at/all"), ("", str(Path.home() / ".mxnet"))):
        monkeypatch.setenv("MXNET_HOME", home)
        with pytest.raises(PretrainedFileError, match=f"reads {folder}/models/nothing.params"):
            load_pretrained(vision.alexnet(), "nothing", None, None)
    with pytest.raises(ArgumentError, match="alexnet: root=5 is not the path"):
        vision.alexnet(pretrained=True, root=5)


def test_other_classes_on_the_same_features() -> None:
    """As in fine-tuning: the features come from another network, the output layer is new."""
    source = vision.resnet18_v2(classes=10)
    net = vision.resnet18_v2(classes=2)
    net.features = source.features
    source.initialize()
    net.output.initialize("xavier")
    net.output.collect_params().setattr("lr_mult", 10)
    assert net(image(32)).shape == (1, 2)
    assert {p.lr_mult for p in net.features.collect_params().values()} == {1}


def test_names() -> None:
    for public in vision.__all__:
        assert getattr(vision, public).__doc__
    assert vision.mobilenet_v2_1_0.__name__ == "mobilenet_v2_1_0"
    assert vision.inception_v3.__name__ == "inception_v3"
    assert vision.get_model("ResNet18_V1").name.startswith("resnetv1")
    with pytest.raises(UnknownNameError, match="did you mean 'resnet18_v1'"):
        vision.get_model("resnet18v1")
    with pytest.raises(UnknownKeywordError, match="did you mean 'classes'"):
        vision.alexnet(class_=10)
