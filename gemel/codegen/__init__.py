"""From programs to machine code.

In processing order:

- `language`: what a kernel computes (`Program`), recorded from operations, and its meaning;
- `contract`: matrix products: which kernels, with which tiling;
- `schedules`: the code for a program's schedule, in LLVM's assembly (`llvm`): `loops` or `tiles`;
- `assembling`: many kernels at a time, printed here and made into code by other threads;
- `functions`: the functions that assembly and C have no instruction for;
- `c`, `cuda`: the same programs as C for readers and as CUDA C++ for GPUs.

`target` says what the machine has, `analysis` what a program's instructions depend on.
"""
