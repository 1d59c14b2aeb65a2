"""A network has few different kernels, whatever the number of its layers."""

from __future__ import annotations

import re

import pytest

import gemel
from gemel import gluon, np


@pytest.mark.parametrize("batch", [1, 8])
def test_resnet_18_has_at_most_48_kernels(batch: int) -> None:
    """It had 17 for products and 31 for loops when code generation was two languages."""
    net = gluon.model_zoo.vision.resnet18_v1()
    net.initialize()
    x = np.ones((batch, 3, 64, 64))
    net(x)  # sets the shapes of the parameters
    compiled = gemel.compile(net)
    compiled(x).wait_to_read()
    kernels = re.findall(r"^int32_t (kernel\d*)\(", compiled.source(x), re.MULTILINE)
    assert 10 < len(set(kernels)) == len(kernels) <= 48
