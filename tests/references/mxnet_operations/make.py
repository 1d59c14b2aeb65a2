"""Write operations.*: symbols of MXNet 1.9.1's rarer operations, and its results for them.

Run it with MXNet 1.9.1 and NumPy 1.23.5 in an environment of their own, in this folder.
"""

from __future__ import annotations

import json

import mxnet as mx
import numpy

random = numpy.random.RandomState(0)


def normal(*shape):
    return random.normal(size=shape).astype("float32")


def uniform(*shape):
    return random.uniform(0.1, 0.9, size=shape).astype("float32")


def floats(*values):
    return numpy.array(values, dtype="float32")


IMAGES = normal(2, 3, 6, 6)
ROIS = floats([0, 0, 0, 4, 4], [1, 1, 2, 5, 5])
SPD = (lambda a: (a @ a.T + 4 * numpy.eye(3)).astype("float32"))(normal(3, 3))
LOWER = numpy.linalg.cholesky(SPD).astype("float32")
CORNERS = numpy.sort(uniform(1, 6, 2, 2), axis=2).reshape(1, 6, 4)
BOXES = numpy.concatenate(
    [random.randint(0, 2, (1, 6, 1)), uniform(1, 6, 1), CORNERS], axis=2
).astype("float32")
LABELS = floats([[[1, 0.1, 0.1, 0.5, 0.6], [0, 0.3, 0.2, 0.9, 0.8]]]).reshape(1, 2, 5)
LENGTHS = floats(2, 3, 1)

#: The name in `mx.sym`, the arrays, and the settings of each call.
CASES = [
    ("contrib.AdaptiveAvgPooling2D", [IMAGES], {"output_size": (2, 3)}),
    ("contrib.AdaptiveAvgPooling2D", [IMAGES], {"output_size": 4}),
    ("contrib.AdaptiveAvgPooling2D", [IMAGES], {}),
    ("contrib.BilinearResize2D", [IMAGES], {"height": 9, "width": 4}),
    ("contrib.BilinearResize2D", [IMAGES], {"height": 9, "width": 4, "align_corners": False}),
    ("contrib.BilinearResize2D", [IMAGES], {"scale_height": 2, "scale_width": 0.5}),
    ("contrib.BilinearResize2D", [IMAGES, normal(2, 3, 5, 7)], {"mode": "like"}),
    ("contrib.ROIAlign", [IMAGES, ROIS], {"pooled_size": (2, 2), "spatial_scale": 1.0}),
    (
        "contrib.ROIAlign",
        [IMAGES, ROIS],
        {"pooled_size": (2, 3), "spatial_scale": 0.5, "sample_ratio": 2},
    ),
    ("ROIPooling", [IMAGES, ROIS], {"pooled_size": (2, 2), "spatial_scale": 1.0}),
    ("contrib.box_nms", [BOXES], {"overlap_thresh": 0.2, "id_index": 0, "topk": 4}),
    ("contrib.box_nms", [BOXES], {"overlap_thresh": 0.2, "force_suppress": True}),
    ("contrib.box_iou", [CORNERS[0], CORNERS[0, :2]], {"format": "corner"}),
    ("contrib.bipartite_matching", [uniform(1, 3, 4)], {"threshold": 0.3}),
    ("contrib.MultiBoxPrior", [IMAGES], {"sizes": (0.5, 0.25), "ratios": (1, 2), "clip": True}),
    ("contrib.MultiBoxTarget", [CORNERS, LABELS, normal(1, 3, 6)], {}),
    (
        "contrib.MultiBoxDetection",
        [uniform(1, 3, 6), normal(1, 24) * 0.1, CORNERS],
        {"nms_threshold": 0.4},
    ),
    ("slice_like", [IMAGES, normal(1, 2, 3, 3)], {"axes": (1, -1)}),
    ("slice_like", [normal(4, 5), normal(2, 3)], {}),
    ("SequenceMask", [normal(3, 3, 2), LENGTHS], {"use_sequence_length": True, "value": -1.0}),
    (
        "SequenceMask",
        [normal(3, 3, 2), LENGTHS],
        {"use_sequence_length": True, "axis": 1},
    ),
    ("SequenceLast", [normal(3, 3, 2), LENGTHS], {"use_sequence_length": True}),
    ("SequenceLast", [normal(3, 3, 2)], {}),
    ("SequenceReverse", [normal(3, 3, 2), LENGTHS], {"use_sequence_length": True}),
    ("topk", [normal(3, 5)], {"k": 2, "axis": 1, "ret_typ": "both"}),
    ("topk", [normal(3, 5)], {"k": 2, "axis": 0, "ret_typ": "mask", "is_ascend": True}),
    ("topk", [normal(3, 5)], {"k": 2, "axis": None, "dtype": "int32"}),
    ("sort", [normal(3, 5)], {"axis": 0, "is_ascend": False}),
    ("sort", [normal(3, 5)], {"axis": None}),
    ("argsort", [normal(3, 5)], {"axis": 1, "is_ascend": False, "dtype": "int32"}),
    ("where", [floats([1, 0], [0, 2]), normal(2, 2), normal(2, 2)], {}),
    ("pick", [normal(3, 5), floats(0, 4, 7)], {"axis": 1, "mode": "wrap"}),
    ("pick", [normal(3, 5), floats(0, 2, 1, 2, 0)], {"axis": 0, "keepdims": True}),
    ("gather_nd", [normal(3, 5), floats([0, 2], [1, 4])], {}),
    ("scatter_nd", [normal(2), floats([0, 2], [1, 4])], {"shape": (3, 5)}),
    ("one_hot", [floats(0, 2, 5)], {"depth": 4, "on_value": 3.0, "off_value": -1.0}),
    ("one_hot", [floats(0, 2)], {"depth": 3, "dtype": "int32"}),
    ("Embedding", [floats([0, 2], [4, 3]), normal(5, 3)], {"input_dim": 5, "output_dim": 3}),
    ("take", [normal(4, 3), floats([0, 5], [-1, 2])], {"axis": 0, "mode": "wrap"}),
    ("batch_take", [normal(3, 4), numpy.array([1, 3, 0], "int32")], {}),
    ("LayerNorm", [normal(3, 4), normal(4), normal(4)], {"eps": 1e-3}),
    ("LayerNorm", [normal(3, 4, 2), normal(4), normal(4)], {"axis": 1}),
    ("GroupNorm", [normal(2, 4, 3), normal(2), normal(2)], {"num_groups": 2}),
    ("InstanceNorm", [IMAGES, normal(3), normal(3)], {"eps": 1e-2}),
    ("LRN", [IMAGES], {"nsize": 3, "alpha": 0.1, "beta": 0.5, "knorm": 1.5}),
    ("UpSampling", [IMAGES], {"scale": 2, "sample_type": "nearest"}),
    (
        "UpSampling",
        [IMAGES, normal(2, 1, 3, 3)],
        {"scale": 2, "sample_type": "nearest", "num_args": 2},
    ),
    (
        "UpSampling",
        [IMAGES, normal(2, 3, 3, 3)],
        {"scale": 1, "sample_type": "nearest", "num_args": 2, "multi_input_mode": "sum"},
    ),
    (
        "UpSampling",
        [IMAGES, normal(3, 1, 4, 4)],
        {"scale": 2, "sample_type": "bilinear", "num_filter": 3, "num_args": 2},
    ),
    ("Pad", [IMAGES], {"mode": "reflect", "pad_width": (0, 0, 0, 0, 1, 2, 3, 0)}),
    (
        "Pad",
        [IMAGES],
        {"mode": "constant", "pad_width": (0, 0, 0, 0, 1, 2, 3, 0), "constant_value": 2.0},
    ),
    ("depth_to_space", [normal(1, 8, 2, 3)], {"block_size": 2}),
    ("space_to_depth", [normal(1, 2, 4, 6)], {"block_size": 2}),
    ("batch_dot", [normal(2, 3, 4), normal(2, 5, 4)], {"transpose_b": True}),
    ("linalg.gemm2", [normal(2, 3, 4), normal(2, 5, 4)], {"transpose_b": True, "alpha": 0.5}),
    (
        "linalg.gemm",
        [normal(2, 3, 4), normal(2, 4, 5), normal(2, 3, 5)],
        {"alpha": 0.5, "beta": 2.0},
    ),
    ("linalg.potrf", [SPD], {}),
    ("linalg.potri", [LOWER], {}),
    ("linalg.trsm", [LOWER, normal(3, 2)], {"alpha": 2.0}),
    ("linalg.trsm", [LOWER, normal(2, 3)], {"rightside": True, "transpose": True}),
    ("linalg.trmm", [LOWER, normal(3, 2)], {"transpose": True}),
    ("linalg.syrk", [normal(2, 3, 4)], {"transpose": False, "alpha": 2.0}),
    ("linalg.syrk", [normal(2, 3, 4)], {"transpose": True}),
    ("linalg.sumlogdiag", [SPD], {}),
    ("linalg.extractdiag", [normal(2, 3, 3)], {"offset": 1}),
    ("linalg.makediag", [normal(2, 3)], {"offset": -1}),
    ("linalg.extracttrian", [normal(2, 3, 3)], {"lower": False}),
    ("linalg.maketrian", [normal(2, 6)], {}),
    ("linalg.inverse", [SPD], {}),
    ("linalg.det", [SPD], {}),
    ("norm", [normal(3, 4)], {"ord": 1, "axis": (0, 1)}),
    ("norm", [normal(3, 4)], {"axis": 1, "keepdims": True}),
    ("L2Normalization", [IMAGES], {"mode": "channel"}),
    ("L2Normalization", [IMAGES], {"mode": "spatial", "eps": 0.1}),
    ("smooth_l1", [normal(3, 4) * 2], {"scalar": 2.0}),
    ("khatri_rao", [normal(2, 3), normal(4, 3)], {"num_args": 2}),
    ("Crop", [IMAGES], {"offset": (1, 2), "h_w": (3, 2), "num_args": 1}),
    ("Crop", [IMAGES, normal(1, 1, 4, 4)], {"center_crop": True, "num_args": 2}),
    ("im2col", [IMAGES], {"kernel": (2, 3), "stride": (2, 1), "pad": (1, 0)}),
    ("col2im", [normal(1, 8, 4)], {"output_size": (3, 3), "kernel": (2, 2)}),
    ("GridGenerator", [normal(2, 6)], {"transform_type": "affine", "target_shape": (3, 4)}),
    ("GridGenerator", [normal(2, 2, 3, 4)], {"transform_type": "warp"}),
    ("BilinearSampler", [IMAGES, uniform(2, 2, 3, 4) * 2.5 - 1.2], {}),
    (
        "SpatialTransformer",
        [IMAGES, normal(2, 6) * 0.5],
        {"target_shape": (3, 4), "transform_type": "affine", "sampler_type": "bilinear"},
    ),
    ("contrib.boolean_mask", [normal(4, 2), floats(0, 1, 1, 0)], {}),
    ("contrib.index_copy", [normal(4, 2), numpy.array([3, 0], "int64"), normal(2, 2)], {}),
    ("contrib.index_array", [normal(2, 3)], {}),
    ("contrib.index_array", [normal(2, 3)], {"axes": (1,)}),
    ("contrib.quadratic", [normal(3)], {"a": 1.0, "b": 2.0, "c": 3.0}),
    ("contrib.div_sqrt_dim", [normal(2, 4)], {}),
    ("contrib.gradientmultiplier", [normal(3)], {"scalar": 2.0}),
    ("contrib.round_ste", [normal(3)], {}),
    ("contrib.sign_ste", [normal(3)], {}),
    ("contrib.arange_like", [normal(2, 3)], {"axis": 1, "start": 2.0}),
    ("broadcast_like", [normal(2, 1), normal(2, 3)], {}),
    ("reshape_like", [normal(6), normal(2, 3)], {}),
    ("SwapAxis", [normal(2, 3, 4)], {"dim1": 0, "dim2": 2}),
    ("diag", [normal(2, 3, 3)], {"k": -1, "axis1": 1, "axis2": 2}),
    ("split_v2", [normal(4, 6)], {"indices_or_sections": (1, 3), "axis": 1}),
    ("split_v2", [normal(4, 6)], {"indices_or_sections": 2, "axis": 0, "squeeze_axis": False}),
    ("SliceChannel", [normal(4, 1)], {"num_outputs": 4, "axis": 0, "squeeze_axis": True}),
    ("moments", [normal(3, 4)], {"axes": (0,)}),
    ("SoftmaxActivation", [normal(2, 3, 2)], {"mode": "channel"}),
    ("softmin", [normal(2, 3)], {"axis": 0}),
    ("softmax", [normal(2, 3), numpy.array([2, 3], "int32")], {"use_length": True, "axis": 1}),
    ("ravel_multi_index", [floats([0, 2], [1, 4])], {"shape": (3, 5)}),
    ("unravel_index", [floats(1, 14)], {"shape": (3, 5)}),
    ("shape_array", [normal(2, 3)], {}),
    ("size_array", [normal(2, 3)], {}),
    ("hard_sigmoid", [normal(4)], {"alpha": 0.3}),
    ("degrees", [normal(4)], {}),
    ("cumsum", [normal(3, 4)], {"axis": 1}),
    ("argmax_channel", [normal(3, 4)], {}),
    ("multi_sum_sq", [normal(3), normal(2)], {"num_arrays": 2}),
    ("all_finite", [floats(1, numpy.inf)], {}),
    (
        "Convolution",
        [normal(1, 2, 5), normal(3, 2, 3), normal(3)],
        {"kernel": (3,), "num_filter": 3},
    ),
]


if __name__ == "__main__":
    texts, arrays = [], {}
    for place, (name, inputs, settings) in enumerate(CASES):
        function = mx.sym
        for part in name.split("."):
            function = getattr(function, part)
        symbol = function(*(mx.sym.var(f"data{i}") for i in range(len(inputs))), **settings)
        given = {f"data{i}": mx.nd.array(x, dtype=x.dtype) for i, x in enumerate(inputs)}
        outputs = symbol.bind(mx.cpu(), given).forward()
        texts.append([name, json.loads(symbol.tojson())])
        arrays.update({f"{place}.x{i}": given[f"data{i}"] for i in range(len(inputs))})
        copies = (mx.nd.array(y.asnumpy(), dtype=y.dtype) for y in outputs)
        arrays.update({f"{place}.y{i}": y for i, y in enumerate(copies)})
    lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in texts)
    with open("operations.json", "w") as file:
        file.write(f"[\n{lines}\n]\n")
    mx.nd.save("operations.params", arrays)
