"""Executors: symbols bound to arrays, and gradients of the output layers of MXNet 1's networks.

The expected figures are MXNet 1.9.1's for the same numbers: sums of outputs and of absolute
gradients, after two steps.
"""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from gemel import cpu, nd, sym
from gemel.errors import GradientError, ShapeError, UnknownNameError

X = sym.var("data")
LINE = sym.FullyConnected(X, num_hidden=3, name="fc")
NORM = sym.FullyConnected(sym.BatchNorm(X, name="bn", fix_gamma=False), num_hidden=3, name="fc")
POINTS = sym.Convolution(X, num_filter=3, kernel=(1, 1), name="c")
FLAT, IMAGES = (4, 5), (2, 4, 3, 3)


def softmax(data: Any = LINE, **settings: Any) -> Any:
    return sym.SoftmaxOutput(data, name="softmax", **settings)


def ignoring(**settings: Any) -> Any:
    return softmax(grad_scale=0.5, ignore_label=1, **settings)


def filled(net: Any, shape: tuple[int, ...], grad_req: Any = "write", whole: bool = True) -> Any:
    executor = net.simple_bind(ctx=cpu(), grad_req=grad_req, data=shape)
    random = numpy.random.RandomState(1)
    for name, array in sorted(executor.arg_dict.items()):
        values = random.normal(size=array.shape)
        if "label" in name and whole:
            values = random.randint(0, 3, size=array.shape)
        array[:] = nd.array(values)
    for array in executor.aux_dict.values():
        array[:] = 1
    return executor


@pytest.mark.parametrize(
    ("net", "shape", "output", "sizes"),
    [
        (softmax(), FLAT, 4.0, (12.5429, 4.5908, 15.7232, 0.0)),
        (ignoring(), FLAT, 4.0, (6.2714, 2.2954, 7.8616, 0.0)),
        (ignoring(use_ignore=True), FLAT, 4.0, (4.7792, 1.9785, 6.1009, 0.0)),
        (ignoring(normalization="batch"), FLAT, 4.0, (1.5679, 0.5738, 1.9654, 0.0)),
        (ignoring(normalization="valid"), FLAT, 4.0, (3.1357, 1.1477, 3.9308, 0.0)),
        (
            ignoring(normalization="valid", use_ignore=True),
            FLAT,
            4.0,
            (2.3896, 0.9892, 3.0505, 0.0),
        ),
        (softmax(POINTS, multi_output=True), IMAGES, 18.0, (1.0011, 2.408, 4.1417, 0.0)),
        (softmax(smooth_alpha=0.1), FLAT, 4.0, (11.5573, 4.1908, 14.9446, 0.0)),
        (sym.LinearRegressionOutput(LINE), FLAT, 5.1501, (17.1837, 6.0269, 25.8072, 0.0)),
        (
            sym.MAERegressionOutput(LINE, grad_scale=2),
            FLAT,
            5.1501,
            (17.0348, 2.6667, 29.216, 0.0),
        ),
        (sym.LogisticRegressionOutput(LINE), FLAT, 7.0028, (8.1857, 2.0857, 10.9158, 0.0)),
        (softmax(NORM), FLAT, 4.0, (13.1047, 8.189, 12.9022, 4.9409, 30.9523, 0.0)),
        (
            sym.MakeLoss(sym.sum(sym.square(LINE)), grad_scale=3.0),
            FLAT,
            38.0602,
            (239.7975, 101.6664, 336.554),
        ),
    ],
)
def test_gradients_of_ends(
    net: Any, shape: tuple[int, ...], output: float, sizes: tuple[float, ...]
) -> None:
    executor = filled(net, shape, whole="softmax_label" in net.list_arguments())
    for _ in range(2):
        executor.forward(is_train=True)
        executor.backward()
    found = [float(abs(g.asnumpy()).sum()) for _, g in sorted(executor.grad_dict.items())]
    assert numpy.allclose(found, sizes, atol=2e-4)
    assert float(executor.outputs[0].asnumpy().sum()) == pytest.approx(output, abs=1e-3)
    if executor.aux_dict:
        states = [float(x.asnumpy().sum()) for _, x in sorted(executor.aux_dict.items())]
        assert numpy.allclose(states, (4.0107, 4.6507), atol=1e-3)


def test_requests_and_head_gradients() -> None:
    executor = filled(softmax(), FLAT, {"fc_weight": "write", "data": "add"})
    for _ in range(2):
        executor.forward(is_train=True)
        executor.backward()
    assert executor.grad_dict["fc_bias"] is None
    assert float(abs(executor.grad_dict["data"].asnumpy()).sum()) == pytest.approx(25.0857, 1e-4)
    executor = filled(sym.Group([LINE, sym.tanh(LINE)]), FLAT)
    executor.forward(is_train=True)
    executor.backward([nd.ones((4, 3)) * 2, nd.ones((4, 3))])
    assert float(abs(executor.grad_arrays[1].asnumpy()).sum()) == pytest.approx(51.9875, 1e-4)


def test_binding_arrays() -> None:
    net = softmax()
    arrays = [nd.ones(shape) for shape in net.infer_shape(data=FLAT)[0]]
    gradients = {"fc_weight": nd.ones((3, 5))}
    executor = net.bind(cpu(), arrays, gradients)
    (found,) = executor.forward(is_train=True, data=nd.zeros(FLAT))
    assert numpy.allclose(found.asnumpy(), 1 / 3) and arrays[0].asnumpy().sum() == 0
    executor.backward()
    assert executor.grad_dict["fc_weight"] is gradients["fc_weight"]
    assert gradients["fc_weight"].asnumpy().sum() == 0 and executor.grad_dict["data"] is None
    assert list(executor.output_dict) == ["softmax_output"]
    smaller = executor.reshape(data=(2, 5))
    assert smaller.forward()[0].shape == (2, 3)
    assert smaller.arg_dict["fc_weight"] is arrays[1]
    executor.copy_params_from({"fc_bias": nd.zeros(3)})
    assert arrays[2].asnumpy().sum() == 0
    assert "FullyConnected fc(data, fc_weight, fc_bias)" in executor.debug_str()


def test_outputs_before_the_first_call() -> None:
    executor = softmax().simple_bind(cpu(1), data=FLAT)
    assert hasattr(executor, "outputs")
    (found,) = executor.outputs
    assert found.shape == (4, 3) and found.ctx == cpu(1) and not found.asnumpy().any()
    assert list(executor.output_dict) == ["softmax_output"]
    assert executor.forward()[0].asnumpy().any() and executor.outputs[0].asnumpy().any()
    drawn = (X + sym.zeros((2,))).simple_bind(cpu(1), data=(2,))
    assert drawn.forward()[0].ctx == cpu(1)


def test_types_and_composition() -> None:
    net = softmax()
    assert [str(t) for t in net.infer_type(data="float64")[0]] == ["float64"] * 4
    assert [str(t) for t in sym.Cast(X, dtype="int32").infer_type()[1]] == ["int32"]
    whole = LINE(data=sym.var("other") * 2)
    assert whole.list_arguments() == ["other", "fc_weight", "fc_bias"]
    assert LINE.list_arguments()[0] == "data", "the symbol itself is unchanged"


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: softmax().simple_bind(cpu()), ShapeError, "fc_weight"),
        (lambda: softmax().bind(cpu(), [nd.ones(1)]), ShapeError, "1 arrays for 4 names"),
        (lambda: softmax().bind(cpu(), {"data": nd.ones(1)}), UnknownNameError, "fc_weight"),
        (lambda: filled(softmax(), FLAT, "wrte"), UnknownNameError, "did you mean 'write'"),
        (lambda: filled(softmax(), FLAT).backward(), GradientError, "forward"),
        (lambda: filled(softmax(), FLAT).forward(dat=0), UnknownNameError, "did you mean 'data'"),
        (lambda: filled(softmax(), FLAT).forward(data=nd.ones(3)), ShapeError, "data is"),
        (lambda: LINE(dat=X), UnknownNameError, "did you mean 'data'"),
    ],
)
def test_mistakes(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
