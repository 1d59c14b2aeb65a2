"""MXNet's list of build features (`mx.runtime.Features`), with those gemel has enabled."""

from __future__ import annotations

from typing import NamedTuple

from gemel.device import real_gpus

#: MXNet's names of features, and which of them hold here.
NAMES = (
    *("BLAS_APPLE", "BLAS_ATLAS", "BLAS_MKL", "BLAS_OPEN", "CAFFE", "CPU_AVX", "CPU_AVX2"),
    *("CPU_SSE", "CUDA", "CUDA_RTC", "CUDNN", "CXX14", "DEBUG", "DIST_KVSTORE", "F16C"),
    *("INT64_TENSOR_SIZE", "JEMALLOC", "LAPACK", "MKLDNN", "NCCL", "ONEDNN", "OPENCV", "OPENMP"),
    *("PROFILER", "SIGNAL_HANDLER", "SSE", "TENSORRT", "TVM_OP"),
)
THERE = frozenset(("INT64_TENSOR_SIZE", "LAPACK"))


class Feature(NamedTuple):
    """One feature."""

    name: str
    enabled: bool

    def __repr__(self) -> str:
        return f"{'✔' if self.enabled else '✖'} {self.name}"


class Features(dict[str, Feature]):
    """The features by name."""

    def __init__(self) -> None:
        super().__init__((feature.name, feature) for feature in feature_list())

    def is_enabled(self, feature_name: str) -> bool:
        """Whether gemel has a feature. Raises `RuntimeError` for a name that is none of MXNet's."""
        name = feature_name.upper()
        if name not in self:
            raise RuntimeError(f"Features: {feature_name!r} is unknown (known: {', '.join(self)})")
        return self[name].enabled

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self.values()))}]"


def feature_list() -> list[Feature]:
    """All features. CUDA is there if this machine has a GPU that CUDA can use."""
    there = THERE | {"CUDA"} if real_gpus() else THERE
    return [Feature(name, name in there) for name in NAMES]
