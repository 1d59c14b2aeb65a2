"""Programs as CUDA C++, and NVIDIA's compiler."""

from __future__ import annotations

from gemel.codegen.cuda.kernels import form, source

__all__ = ["form", "source"]
