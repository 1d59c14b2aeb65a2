"""Metrics, which are reported while a network learns.

`update` takes a batch without waiting: the sums are arrays, and only `get` waits for them.
"""

from gemel.gluon.metric.base import (
    CompositeEvalMetric,
    CustomMetric,
    EvalMetric,
    alias,
    check_label_shapes,
    create,
    register,
)
from gemel.gluon.metric.base import numpy_metric as np
from gemel.gluon.metric.classification import (
    F1,
    MCC,
    PCC,
    Accuracy,
    BinaryAccuracy,
    CrossEntropy,
    Fbeta,
    NegativeLogLikelihood,
    Perplexity,
    TopKAccuracy,
)
from gemel.gluon.metric.regression import (
    MAE,
    MSE,
    RMSE,
    Caffe,
    Loss,
    MeanCosineSimilarity,
    MeanPairwiseDistance,
    PearsonCorrelation,
    Torch,
)

__all__ = [
    "F1",
    "MAE",
    "MCC",
    "MSE",
    "PCC",
    "RMSE",
    "Accuracy",
    "BinaryAccuracy",
    "Caffe",
    "CompositeEvalMetric",
    "CrossEntropy",
    "CustomMetric",
    "EvalMetric",
    "Fbeta",
    "Loss",
    "MeanCosineSimilarity",
    "MeanPairwiseDistance",
    "NegativeLogLikelihood",
    "PearsonCorrelation",
    "Perplexity",
    "TopKAccuracy",
    "Torch",
    "alias",
    "check_label_shapes",
    "create",
    "np",
    "register",
]
