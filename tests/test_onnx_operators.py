"""Operators of ONNX files in variants that the package's own cases leave out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest

import gemel
from gemel import np
from gemel.errors import ExportError, ShapeError
from gemel.onnx.read.network import network
from gemel.ops.linalg import matmul_of_bytes

onnx = pytest.importorskip("onnx")


DRAWS = numpy.random.default_rng(3)


def run(
    node: Any, folder: Path, x: Any, outputs: Any = ("y",), opset: int = 18, **constants: Any
) -> Any:
    """The results of a file with one node, whose first input is x."""
    helper = onnx.helper
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    tensors = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(
        [node],
        "made",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs],
        tensors,
    )
    sets = [helper.make_opsetid("", opset)]
    path = folder / "made.onnx"
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=8), str(path))
    return gemel.onnx.load(path)(np.array(x, dtype=x.dtype.name))


BRANCHES = {
    branch: onnx.helper.make_graph(
        [onnx.helper.make_node(kind, ["x"], [branch])], branch, [],
        [onnx.helper.make_tensor_value_info(branch, onnx.TensorProto.FLOAT, None)],
    )
    for branch, kind in (("then_branch", "Abs"), ("else_branch", "Neg"))
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs", "given", "attributes"),
    [
        ("CumSum", ["x", "a"], ["y"], numpy.array(1), {}),
        ("TopK", ["x", "a"], ["y", "places"], numpy.array([2]), {}),
        ("ReduceSum", ["x", "a"], ["y"], numpy.array([1]), {}),
        ("ReduceMax", ["x", "a"], ["y"], numpy.array([0]), {}),
        ("Reshape", ["x", "a"], ["y"], numpy.array([4, 3]), {}),
        ("Range", ["a", "a", "a"], ["y"], numpy.array(3), {}),
        ("If", ["a"], ["y"], numpy.array(False), BRANCHES),
    ],
)
def test_networks_with_values_to_be_known_among_their_inputs_run_uncompiled(
    kind: str, inputs: Any, outputs: Any, given: Any, attributes: Any
) -> None:
    helper, numbers = onnx.helper, numpy.arange(12, dtype="f").reshape(3, 4)
    node = helper.make_node(kind, inputs, outputs, **attributes)
    code = helper.np_dtype_to_tensor_dtype(given.dtype)
    takes = [
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, numbers.shape),
        helper.make_tensor_value_info("a", code, given.shape),
    ]
    gives = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "made", takes, gives)
    sets = [helper.make_opsetid("", 18)]
    net = network(helper.make_model(graph, opset_imports=sets, ir_version=8), "made")
    arguments = np.array(numbers), np.array(given, dtype=given.dtype.name)
    expected = net(*arguments)
    net.hybridize()
    with pytest.warns(UserWarning, match=f"^Network is not compiled as a whole: .*{kind} has to"):
        found = net(*arguments)
    assert found.dtype == expected.dtype
    assert found.tolist() == expected.tolist()
    with pytest.raises(ExportError, match="Network has no program, because it is not compiled"):
        gemel.save(net, "none")


@pytest.mark.parametrize(
    ("activations", "alpha", "beta", "expected"),
    [
        (["Tanh", "Affine"], [2.0], [0.25], [numpy.tanh(0.5), 1.25]),
        (["Affine", "Tanh"], [2.0], [0.25], [1.25, numpy.tanh(0.5)]),
        (["LeakyRelu", "Elu"], [0.1, 3.0], None, [0.5, 0.5]),
        (["ThresholdedRelu", "ScaledTanh"], [0.6, 3.0], [2.0], [0.0, 3 * numpy.tanh(1.0)]),
        (["Relu", "HardSigmoid"], [0.6], [0.1], [0.5, 0.4]),
        (["HardSigmoid", "HardSigmoid"], [0.6], [0.1], [0.4, 0.6]),  # the second has its own
    ],
)
def test_activations_take_their_alphas_and_betas_in_order(
    activations: Any, alpha: Any, beta: Any, expected: Any, tmp_path: Path
) -> None:
    node = onnx.helper.make_node(
        "RNN", ["x", "w", "r"], ["y"], hidden_size=1, direction="bidirectional",
        activations=activations, activation_alpha=alpha, activation_beta=beta,
    )  # fmt: skip
    weights = {"w": numpy.full((2, 1, 1), 0.5, "f"), "r": numpy.zeros((2, 1, 1), "f")}
    found = run(node, tmp_path, numpy.ones((1, 1, 1), "f"), **weights)
    numpy.testing.assert_allclose(found.asnumpy().ravel(), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_means_of_layer_normalization_have_a_dtype_of_their_own(dtype: str, tmp_path: Path) -> None:
    x = numpy.array([[1.0, 3.0, 300.0]]).astype(dtype)
    node = onnx.helper.make_node("LayerNormalization", ["x", "scale"], ["y", "mean", "inverse"])
    outputs, scale = ("y", "mean", "inverse"), numpy.ones(3, dtype)
    y, mean, inverse = run(node, tmp_path, x, outputs, scale=scale)
    assert [str(each.dtype) for each in (y, mean, inverse)] == [dtype, "float32", "float32"]
    wide = x.astype("float64")
    deviation = wide.std(axis=-1, keepdims=True)
    numpy.testing.assert_allclose(mean.asnumpy(), wide.mean(axis=-1, keepdims=True), rtol=1e-6)
    numpy.testing.assert_allclose(inverse.asnumpy(), 1 / deviation, rtol=1e-5)
    expected = (wide - wide.mean(axis=-1, keepdims=True)) / deviation
    tolerance = 1e-3 if dtype == "float16" else 1e-5
    numpy.testing.assert_allclose(y.asnumpy().astype("float64"), expected, rtol=tolerance)


@pytest.mark.parametrize("shape", [(1, 2, 3, 5), (2, 1, 1, 4)])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("aligned", [0, 1])
def test_samples_beyond_images_that_are_mirrored(
    aligned: int, mode: str, shape: Any, tmp_path: Path
) -> None:
    """Places that are mirrored have the value of the place inside that they come to."""
    random = numpy.random.default_rng(0)
    inside = random.uniform(-0.99, 0.99, (shape[0], 3, 7, 2))
    turns = random.integers(-3, 4, inside.shape)
    # Two lengths of the image further, everything is again as it was, and between that mirrored.
    outside = 2 * turns + inside * (-1.0) ** turns
    x = random.permutation(numpy.prod(shape)).reshape(shape).astype("f")
    samples = []
    for padding, places in ("border", inside), ("reflection", outside):
        node = onnx.helper.make_node(
            "GridSample", ["x", "grid"], ["y"],
            mode=mode, padding_mode=padding, align_corners=aligned,
        )  # fmt: skip
        samples.append(run(node, tmp_path, x, grid=places.astype("f"), opset=20).asnumpy())
    numpy.testing.assert_allclose(*samples, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("where", "rounding", "scale", "expected"),
    [
        ("half_pixel", "floor", 0.6, [0, 2, 3]),
        ("pytorch_half_pixel", "floor", 0.6, [0, 2, 3]),
        ("half_pixel", "ceil", 0.6, [1, 2, 4]),
        ("asymmetric", "floor", 0.6, [0, 1, 3]),
        ("asymmetric", "floor", 1 / 3, [0, 3]),
        ("half_pixel", "floor", 1 / 3, [1, 4]),
    ],
)
def test_resized_by_factors_that_float32_does_not_hold(
    where: str, rounding: str, scale: float, expected: Any, tmp_path: Path
) -> None:
    """ONNX Runtime gives these, too: quotients by them are rounded to float32."""
    node = onnx.helper.make_node(
        "Resize", ["x", "", "scales"], ["y"],
        mode="nearest", nearest_mode=rounding, coordinate_transformation_mode=where,
    )  # fmt: skip
    scales = numpy.array([1, scale], "f")
    found = run(node, tmp_path, numpy.arange(6, dtype="f")[None], scales=scales)
    assert found.tolist() == [expected]


# --- quantized numbers ------------------------------------------------------------------------


def whole(dtype: str, *shape: int) -> Any:
    limits = numpy.iinfo(dtype)
    return DRAWS.integers(limits.min, limits.max + 1, shape).astype(dtype)


def scales(*shape: int, dtype: str = "float32") -> Any:
    return DRAWS.uniform(0.5, 3, shape).astype(dtype)


def saturated(x: Any, zero: Any) -> Any:
    """Rounded with halves to even, moved by the zero point, clipped: all of it in float64."""
    limits = numpy.iinfo(zero.dtype)
    moved = numpy.rint(x).astype("float64") + zero.astype("float64")
    return numpy.clip(moved, limits.min, limits.max).astype(zero.dtype)


def spread(x: Any, each: Any, axis: int, block: int) -> Any:
    """One number for each element of x."""
    if block:
        return numpy.repeat(each, block, axis)[tuple(map(slice, x.shape))]
    return each.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("floating", ["float32", "float16"])
@pytest.mark.parametrize(
    ("opset", "axis", "block", "shape"),
    [
        (21, 1, 0, ()), (21, 0, 0, (3,)), (21, -1, 0, (4,)), (21, 1, 3, (3, 2, 4)),
        (21, -1, 4, (3, 5, 1)), (13, 1, 0, (5,)), (10, 1, 0, ()),
    ],
)  # fmt: skip
def test_numbers_are_quantized_and_back(
    opset: int, axis: int, block: int, shape: Any, floating: str, dtype: str, tmp_path: Path
) -> None:
    x = (DRAWS.normal(size=(3, 5, 4)) * 200).astype(floating)
    x[0, 0], x[1, 1] = [2.5, 3.5, -0.5, numpy.inf], [6e4, -6e4, -numpy.inf, 0]
    scale, zero = scales(*shape, dtype=floating), whole(dtype, *shape)
    lined = spread(x, scale, axis, block), spread(x, zero, axis, block)
    how = {"axis": axis, **({"block_size": block} if block else {})} if opset > 10 else {}
    node = onnx.helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], **how)
    found = run(node, tmp_path, x, opset=opset, s=scale, z=zero)
    expected = saturated(x.astype("f") / lined[0].astype("f"), lined[1])
    assert found.dtype == zero.dtype
    assert found.tolist() == expected.tolist()
    node = onnx.helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], **how)
    found = run(node, tmp_path, expected, opset=opset, s=scale, z=zero)
    wide = expected.astype("float32") - lined[1].astype("float32")
    with numpy.errstate(over="ignore"):
        expected = (wide * lined[0].astype("float32")).astype(floating)
    assert found.dtype == scale.dtype
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(("kinds"), [("uint8", "int8"), ("int8", "uint8"), ("int8", "int8")])
@pytest.mark.parametrize(
    ("one", "two", "rows", "columns"),
    [
        ((3, 5), (5, 4), (), ()), ((3, 5), (5, 4), (3,), (4,)), ((2, 3, 5), (5, 4), (), (4,)),
        ((2, 3, 5), (2, 5, 4), (2, 3, 1), (2, 1, 4)), ((5,), (5, 4), (), ()),
    ],
)  # fmt: skip
def test_quantized_products(
    one: Any, two: Any, rows: Any, columns: Any, kinds: Any, tmp_path: Path
) -> None:
    a, b = whole(kinds[0], *one), whole(kinds[1], *two)
    zero_a, zero_b = whole(kinds[0], *rows), whole(kinds[1], *columns)
    row = (..., None) if rows == (3,) else ...
    wide = (a.astype("int64") - zero_a[row]) @ (b.astype("int64") - zero_b)
    node = onnx.helper.make_node("MatMulInteger", ["x", "b", "za", "zb"], ["y"])
    found = run(node, tmp_path, a, b=b, za=zero_a, zb=zero_b)
    assert found.dtype == "int32"
    assert found.tolist() == wide.tolist()
    scale_a, scale_b = scales(*rows), scales(*columns)
    scale, zero = numpy.float32(900), whole(kinds[0])
    names = ["x", "sa", "za", "b", "sb", "zb", "s", "z"]
    node = onnx.helper.make_node("QLinearMatMul", names, ["y"])
    found = run(
        node, tmp_path, a, opset=21, b=b, za=zero_a, zb=zero_b, sa=scale_a, sb=scale_b,
        s=numpy.array(scale), z=zero,
    )  # fmt: skip
    expected = saturated(wide.astype("f") * (scale_a[row] * scale_b / scale), zero)
    assert found.dtype == zero.dtype
    assert found.tolist() == expected.tolist()


def test_quantized_products_are_products_of_bytes(tmp_path: Path) -> None:
    """Zero points are taken into account afterwards, also where sums begin again past int32."""
    a, b = numpy.full((2, 70_000), 255, "uint8"), numpy.full((70_000, 3), -128, "int8")
    node = onnx.helper.make_node("MatMulInteger", ["x", "b", "za", "zb"], ["y"])
    zero_a, zero_b = numpy.array(0, "uint8"), numpy.array([127, 0, -1], "int8")
    found = run(node, tmp_path, a, b=b, za=zero_a, zb=zero_b)
    wide = (a.astype("int64") - zero_a) @ (b.astype("int64") - zero_b)
    assert abs(wide).max() > 2**31
    numpy.testing.assert_array_equal(found, wide.astype("int32"))
    program = gemel.compile(gemel.onnx.load(tmp_path / "made.onnx"))
    x = np.array(a)
    numpy.testing.assert_array_equal(program(x), found)
    nodes = program.graph(x, optimized=True).walk()
    bodies = [node.params["body"] for node in nodes if "body" in node.params]
    assert any(node.op is matmul_of_bytes for body in bodies for node in body.walk())


@pytest.mark.parametrize("channels", [(), (4,)])
@pytest.mark.parametrize(("kinds"), [("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")])
def test_quantized_convolutions(kinds: Any, channels: Any, tmp_path: Path) -> None:
    x, w = whole(kinds[0], 2, 4, 6, 7), whole(kinds[1], 4, 2, 3, 3)
    zero_x, zero_w, lined = whole(kinds[0]), whole(kinds[1], *channels), (-1, 1, 1)
    image = numpy.pad(x.astype("int64") - zero_x, [(0, 0), (0, 0), (1, 2), (0, 1)])
    filters = w.astype("int64") - zero_w.reshape((-1, 1, 1, 1))
    windows = numpy.lib.stride_tricks.sliding_window_view(image, (3, 3), (2, 3))[:, :, ::2]
    halves = [(windows[:, i : i + 2], filters[i : i + 2]) for i in (0, 2)]
    wide = numpy.concatenate([numpy.einsum("nchwij,ocij->nohw", a, b) for a, b in halves], 1)
    how = {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1]}
    node = onnx.helper.make_node("ConvInteger", ["x", "w", "zx", "zw"], ["y"], **how)
    found = run(node, tmp_path, x, w=w, zx=zero_x, zw=zero_w)
    assert found.dtype == "int32"
    assert found.tolist() == wide.tolist()
    scale_w, zero, bias = scales(*channels), whole(kinds[0]), whole("int16", 4).astype("int32")
    given = {"sx": scales(), "zx": zero_x, "w": w, "sw": scale_w, "zw": zero_w}
    given = {**given, "s": numpy.array(800, "f"), "z": zero, "b": bias}
    node = onnx.helper.make_node("QLinearConv", ["x", *given], ["y"], **how)
    found = run(node, tmp_path, x, **given)
    factor = given["sx"] * scale_w.reshape(lined) / given["s"]
    expected = saturated((wide + bias.reshape(lined)).astype("f") * factor, zero)
    assert found.dtype == zero.dtype
    assert found.tolist() == expected.tolist()


#: Attributes, the image and the filters of convolutions that are products of bytes.
BYTES = [
    ({}, (2, 3, 7), (4, 3, 3)),
    ({"pads": [2, 1], "strides": [2]}, (1, 2, 9), (3, 2, 4)),
    ({}, (2, 5, 6, 7), (4, 5, 1, 1)),
    ({"strides": [2, 3]}, (2, 5, 6, 7), (4, 5, 1, 1)),
    ({"pads": [1, 1, 1, 1]}, (2, 5, 6, 7), (4, 5, 1, 1)),
    ({"pads": [1, 0, 2, 1], "dilations": [2, 1]}, (2, 3, 8, 7), (5, 3, 3, 3)),
    ({"pads": [1, 1, 1, 1], "strides": [2, 2]}, (1, 16, 9, 9), (8, 16, 3, 3)),
    ({"pads": [0, 1, 1, 0, 1, 1]}, (2, 3, 4, 5, 6), (4, 3, 2, 3, 3)),
    ({}, (0, 3, 5, 5), (4, 3, 3, 3)),
]


def convolved_whole(how: dict[str, Any], image: Any, filters: Any) -> Any:
    """The convolution of whole numbers, window by window."""
    axes = filters.ndim - 2
    pads, ones = how.get("pads", [0] * (2 * axes)), [1] * axes
    wide = numpy.pad(image, [(0, 0), (0, 0), *zip(pads[:axes], pads[axes:], strict=True)])
    dilations, strides = how.get("dilations", ones), how.get("strides", ones)
    spans = [(k - 1) * d + 1 for k, d in zip(filters.shape[2:], dilations, strict=True)]
    seen = numpy.lib.stride_tricks.sliding_window_view(wide, spans, tuple(range(2, 2 + axes)))
    steps = [slice(None, None, step) for step in (*strides, *dilations)]
    seen = seen[(slice(None), slice(None), *steps)]
    over = ((1, *range(2 + axes, 2 + 2 * axes)), (1, *range(2, 2 + axes)))
    return numpy.moveaxis(numpy.tensordot(seen, filters, over), -1, 1)


@pytest.mark.parametrize(("kinds"), [("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")])
@pytest.mark.parametrize(("how", "one", "two"), BYTES)
@pytest.mark.parametrize("zeros", ["none", "one", "each"])
def test_convolutions_of_bytes(
    kinds: Any, how: Any, one: Any, two: Any, zeros: str, tmp_path: Path
) -> None:
    x, w = whole(kinds[0], *one), whole(kinds[1], *two)
    zero_x, zero_w = whole(kinds[0]), whole(kinds[1], *(two[:1] if zeros == "each" else ()))
    given = {} if zeros == "none" else {"zx": zero_x, "zw": zero_w}
    if not given:
        zero_x, zero_w = zero_x * 0, zero_w * 0
    filters = w.astype("int64") - zero_w.reshape((-1, *[1] * (w.ndim - 1)))
    wide = convolved_whole(how, x.astype("int64") - zero_x, filters)
    node = onnx.helper.make_node("ConvInteger", ["x", "w", *given], ["y"], **how)
    found = run(node, tmp_path, x, w=w, **given)
    assert found.dtype == "int32" and found.shape == wide.shape
    assert found.tolist() == wide.tolist()
    program = gemel.compile(gemel.onnx.load(tmp_path / "made.onnx"))
    assert program(np.array(x, dtype=kinds[0])).tolist() == wide.tolist()


@pytest.mark.parametrize("terms", [258, 259])
def test_sums_in_groups_are_exact(terms: int, tmp_path: Path) -> None:
    """The largest sums that float32 holds, and larger ones."""
    x = numpy.full((1, 2 * terms, 3), 255, "uint8")
    x[:, 0, 1] = x[:, terms, 2] = 254
    w = numpy.full((4, terms, 1), -127, "int8")
    node = onnx.helper.make_node("ConvInteger", ["x", "w", "zx", "zw"], ["y"], group=2)
    found = run(node, tmp_path, x, w=w, zx=numpy.array(0, "uint8"), zw=numpy.array(127, "int8"))
    wide = (x.astype("int64").reshape(2, terms, 3) * -254).sum(1)
    assert found.tolist() == numpy.repeat(wide, 2, 0)[None].tolist()


def test_convolutions_of_bytes_are_products_of_bytes(tmp_path: Path) -> None:
    x, w = whole("uint8", 2, 8, 9, 9), whole("int8", 4, 8, 3, 3)
    node = onnx.helper.make_node("ConvInteger", ["x", "w"], ["y"])
    run(node, tmp_path, x, w=w)
    program = gemel.compile(gemel.onnx.load(tmp_path / "made.onnx"))
    nodes = program.graph(np.array(x), optimized=True).walk()
    bodies = [node.params["body"] for node in nodes if "body" in node.params]
    assert any(node.op is matmul_of_bytes for body in bodies for node in body.walk())


def test_zero_points_along_an_axis_that_is_not_there(tmp_path: Path) -> None:
    node = onnx.helper.make_node("DequantizeLinear", ["x", "s"], ["y"], axis=2)
    with pytest.raises(ShapeError, match=r"DequantizeLinear\): axis 2: the input has 1 axes"):
        run(node, tmp_path, whole("int8", 3), s=scales(3))


def test_negative_constants_become_unsigned_as_in_arrays(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Cast", ["c"], ["y"], to=onnx.TensorProto.UINT32)
    constant = numpy.array([-3, 7], dtype="int32")
    found = run(node, tmp_path, numpy.ones(1, dtype="float32"), c=constant)
    assert found.dtype == "uint32" and found.asnumpy().tolist() == [2**32 - 3, 7]
