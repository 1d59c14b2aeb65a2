"""Settings that are numbers are refused where they are given if they cannot be."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy
import pytest

from gemel import gluon, init, np, optimizer
from gemel.errors import ArgumentError, DTypeError, GemelError, OperandError, ShapeError
from gemel.gluon import nn
from gemel.gluon.contrib import estimator
from gemel.gluon.data import IntervalSampler, RandomSampler, SequentialSampler, WorkerBatchSampler
from gemel.gluon.data.vision import transforms

#: What makes an object, and what the error says.
LAYERS: list[tuple[Any, str]] = [
    (lambda: nn.Conv2D(3, 0), "Conv2D: kernel_size 0 must be whole numbers of at least 1"),
    (lambda: nn.Conv2D(3, (3, 2.5)), "Conv2D: kernel_size"),
    (lambda: nn.Conv1D(3, 3, strides=0), "Conv1D: strides 0"),
    (lambda: nn.Conv3D(3, 3, dilation=-1), "Conv3D: dilation -1"),
    (lambda: nn.Conv2D(3, 3, padding=-1), "Conv2D: padding -1 must be .* at least 0"),
    (lambda: nn.Conv2DTranspose(3, 3, output_padding=-1), "Conv2DTranspose: output_padding -1"),
    (lambda: nn.MaxPool2D(0), "MaxPool2D: pool_size 0"),
    (lambda: nn.AvgPool1D(2, strides=0), "AvgPool1D: strides 0"),
    (lambda: nn.PixelShuffle1D(0), "PixelShuffle1D: factor 0"),
    (lambda: nn.DeformableConvolution(0), "DeformableConvolution: channels must be"),
    (lambda: nn.DeformableConvolution(3, groups=2), "channels=3 is not divisible"),
    (lambda: nn.Embedding(0, 3), "Embedding: input_dim must be .* not 0"),
    (lambda: nn.Embedding(3, 2.5), r"Embedding: output_dim must be .* not 2\.5"),
    (lambda: nn.GroupNorm(0), "GroupNorm: num_groups must be"),
    (lambda: nn.LayerNorm(epsilon=-1), "LayerNorm: epsilon is -1; it must be .* at least 0"),
    (lambda: nn.BatchNorm(momentum=2), "BatchNorm: momentum is 2; it must be .* from 0 to 1"),
]

OPTIMIZERS: list[tuple[Any, str]] = [
    (lambda: optimizer.SGD(learning_rate=inf), "SGD: learning_rate is inf"),
    (lambda: optimizer.SGD(wd=-inf), "SGD: wd is -inf"),
    (lambda: optimizer.SGD(momentum=nan), "SGD: momentum is nan"),
    (lambda: optimizer.SGD().set_learning_rate(inf), "set_learning_rate: lr is inf"),
    (lambda: optimizer.SGLD(learning_rate=-1), "SGLD: learning_rate is -1"),
    (lambda: optimizer.Adam(beta1=2), "Adam: beta1 is 2; it must be .* from 0 to below 1"),
    (lambda: optimizer.LAMB(beta2=1), "LAMB: beta2 is 1"),
    (lambda: optimizer.Nadam(epsilon=-1), "Nadam: epsilon is -1"),
    (lambda: optimizer.RMSProp(rho=1.5), r"RMSProp: gamma1 is 1\.5"),
    (lambda: optimizer.AdaDelta(rho=-0.5), r"AdaDelta: rho is -0\.5"),
    (lambda: optimizer.AdaGrad(eps=-1), "AdaGrad: eps is -1"),
    (lambda: optimizer.LARS(eta=nan), "LARS: eta is nan"),
    (lambda: optimizer.Ftrl(lamda1=-1), "Ftrl: lamda1 is -1"),
]

INITIALIZERS: list[tuple[Any, str]] = [
    (lambda: init.Xavier(magnitude=-1), "Xavier: magnitude is -1"),
    (lambda: init.MSRAPrelu(slope=nan), "MSRAPrelu: slope is nan"),
    (lambda: init.Normal(-1), "Normal: sigma is -1"),
    (lambda: init.Uniform("a"), "Uniform: scale is 'a'; it must be a finite number"),
    (lambda: init.TruncNorm(stdev=-1), "TruncNorm: stdev is -1"),
    (lambda: init.Orthogonal(inf), "Orthogonal: scale is inf"),
]

SAMPLERS: list[tuple[Any, str]] = [
    (lambda: RandomSampler(-1), "RandomSampler: length must be .* at least 0, not -1"),
    (lambda: SequentialSampler(2.5), r"SequentialSampler: length must be .* not 2\.5"),
    (lambda: IntervalSampler(5, 0), "IntervalSampler: interval must be"),
    (lambda: IntervalSampler(5, 6), "IntervalSampler: the interval 6 .* the length, 5"),
    (lambda: WorkerBatchSampler(-3, 2), "WorkerBatchSampler: length must be"),
]

TRANSFORMS: list[tuple[Any, str]] = [
    (lambda: transforms.RandomBrightness(-1), "RandomBrightness: brightness is -1"),
    (lambda: transforms.RandomColorJitter(hue=nan), "RandomColorJitter: hue is nan"),
    (lambda: transforms.RandomFlipLeftRight(2.0), r"RandomFlipLeftRight: p is 2\.0; .* 0 to 1"),
    (lambda: transforms.RandomGray(-0.1), "RandomGray: p is"),
    (lambda: transforms.RandomApply([], 2), "RandomApply: p is 2"),
    (lambda: transforms.HybridRandomApply([], 2), "HybridRandomApply: p is 2"),
    (lambda: transforms.RandomRotation((0, 9), rotate_with_proba=2), "rotate_with_proba is 2"),
    (lambda: transforms.RandomResizedCrop(4, scale=(2, 3)), r"scale is \(2, 3\); .* at most 1"),
    (lambda: transforms.RandomResizedCrop(4, ratio=(2, 1)), r"ratio is \(2, 1\)"),
    (lambda: transforms.RandomResizedCrop(0), "RandomResizedCrop: the width must be"),
    (lambda: transforms.Resize((3, 0)), "Resize: the height must be .* not 0"),
    (lambda: transforms.CenterCrop((1, 2, 3)), r"CenterCrop: size is \(1, 2, 3\)"),
    (lambda: transforms.CropResize(-1, 0, 2, 2), "CropResize: x must be .* at least 0"),
    (lambda: transforms.RandomCrop(4, pad=-1), "RandomCrop: pad must be"),
    (lambda: transforms.Normalize(0.5, (1, 0)), r"Normalize: std is \(1, 0\)"),
    (lambda: transforms.RandomLighting(-1), "RandomLighting: alpha is -1"),
]


TRAINING: list[tuple[Any, str]] = [
    (lambda: gluon.EarlyStopping(patience=-1), "EarlyStopping: patience must be"),
    (lambda: gluon.EarlyStopping(min_delta=nan), "EarlyStopping: min_delta is nan"),
    (lambda: gluon.ClipGradients(-1), "ClipGradients: max_norm is -1"),
    (lambda: gluon.Checkpoint("a", epochs=0), "Checkpoint: epochs must be"),
    (lambda: gluon.Checkpoint("a", batches=2.5), "Checkpoint: batches must be"),
    (lambda: estimator.CheckpointHandler("a", max_checkpoints=0), "max_checkpoints must be"),
    (lambda: estimator.CheckpointHandler("a", epoch_period=-1), "epoch_period must be"),
]


@pytest.mark.parametrize(
    ("make", "said"), [*LAYERS, *OPTIMIZERS, *INITIALIZERS, *SAMPLERS, *TRANSFORMS, *TRAINING]
)
def test_numbers_that_cannot_be_are_refused_where_they_are_given(make: Any, said: str) -> None:
    with pytest.raises((ArgumentError, ShapeError), match=said):
        make()


def test_what_is_no_flag_and_no_array_is_refused_where_it_is_given() -> None:
    made: list[tuple[Any, str]] = [
        (lambda: estimator.CheckpointHandler("a", save_best="a"), "save_best is 'a'"),
        (lambda: estimator.CheckpointHandler("a", resume_from_checkpoint="no"), "is 'no'"),
        (lambda: optimizer.SGD().create_state_multi_precision(0, None), "weight is of .*NoneType"),
        (
            lambda: optimizer.get_updater(optimizer.SGD())(0, numpy.ones(1), numpy.ones(1)),
            "weight is of <class 'numpy.ndarray'>; give gemel's",
        ),
    ]
    for make, said in made:
        with pytest.raises(OperandError, match=said):
            make()


def test_numbers_that_may_be() -> None:
    assert optimizer.SGD(momentum=-0.5).momentum == -0.5
    assert optimizer.SGD(clip_gradient=inf).clip_gradient == inf
    assert optimizer.RMSProp(rho=0, momentum=1.5).gamma2 == 1.5
    assert list(RandomSampler(0)) == list(SequentialSampler(0)) == []
    assert nn.MaxPool2D(3, strides=None)._kwargs["stride"] == (3, 3)
    with pytest.raises(DTypeError, match="float33"):
        transforms.Cast("float33")


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (transforms.Resize(4), "Resize(size=4, keep_ratio=False, interpolation=1)"),
        (transforms.RandomBrightness(0.5), "RandomBrightness(brightness=0.5)"),
        (transforms.RandomFlipTopBottom(), "RandomFlipTopBottom(p=0.5)"),
        (transforms.ToTensor(), "ToTensor()"),
        (transforms.RandomCrop(4, 1), "RandomCrop(size=(4, 4), pad=1, pad_value=0, "
         "interpolation=1)"),
        (transforms.Compose([transforms.Cast("uint8")]), "Compose(\n  (0): Cast(dtype='uint8')\n)"),
        (init.MSRAPrelu(slope=0.5), "MSRAPrelu(factor_type='avg', slope=0.5)"),
        (init.Xavier(), "Xavier(rnd_type='uniform', factor_type='avg', magnitude=3.0)"),
    ],
)  # fmt: skip
def test_transforms_and_initializers_show_what_they_were_made_with(made: Any, shown: str) -> None:
    assert repr(made) == shown


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: init.create("[bad"), "create: '.bad' is not the text of"),
        (lambda: init.create('["uniform"]'), "is not the text of an initializer's dumps"),
        (lambda: init.create('["uniform", 3]'), "is not the text of an initializer's dumps"),
        (lambda: init.Mixed(["("], ["zeros"]), "pattern '.' is not a regular expression"),
        (lambda: init.Mixed("..", ["zeros", "ones"]), "patterns is '..'; it must be a list"),
        (lambda: init.Mixed(["."], "zeros"), "initializers is 'zeros'; it must be a list"),
        (lambda: init.Load([np.ones(2)]), "Load: list has no names"),
        (lambda: init.One()("x_weight", [1.0]), "One: it fills an array of gemel's"),
        (lambda: init.Uniform()(3, np.ones(2)), "Uniform: it fills an array of gemel's"),
    ],
)
def test_wrong_arguments_of_initializers(call: Any, message: str) -> None:
    with pytest.raises(GemelError, match=message):
        call()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(30, 40), (40, 30), (6, 2, 3)])
def test_orthogonal_in_the_precision_of_the_array(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, dtype=dtype)
    init.Orthogonal(scale=1.0)("x_weight", array)
    found = array.reshape(shape[0], -1)
    wide = found.shape[0] < found.shape[1]
    product = np.matmul(found, found.T) if wide else np.matmul(found.T, found)
    error = np.abs(product - np.eye(len(product), dtype=dtype)).max().item()
    assert error < {"float32": 1e-6, "float64": 1e-14}[dtype]


def test_modules_have_mxnets_names() -> None:
    assert gluon.data.dataloader.DataLoader is gluon.data.DataLoader
    assert gluon.rnn.rnn_cell is gluon.rnn.rnn_layer is gluon.rnn
    assert nn.basic_layers.Dense is nn.Dense and nn.conv_layers.Conv2D is nn.Conv2D
    assert gluon.trainer.Trainer is gluon.Trainer
    assert optimizer.optimizer.SGD is optimizer.SGD
    assert gluon.contrib.cnn is nn
    for module in (gluon.rnn, optimizer, gluon.data, nn):
        with pytest.raises(AttributeError, match=r"has no attribute 'basic_layer'"):
            module.basic_layer  # noqa: B018
