// A device is a table: how its memory is taken and given back, how bytes are copied, how a kernel
// is launched, and which lanes it has. Tables are registered at run time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gemel {

// The calling convention of machine-code kernels: buffers, integers, begin, end -> 0, or a positive
// status.
using KernelFunction = int32_t (*)(void* const* buffers, const int64_t* integers, int64_t begin,
                                   int64_t end);

// One call of a kernel over [0, extent), in pieces of `chunk`. On a device whose kernels are no
// functions of this process, `function` is whatever its `launch` understands.
struct KernelCall {
  KernelFunction function;
  void* const* buffers;
  const int64_t* integers;
  int64_t extent;
  int64_t chunk;
};

}  // namespace gemel
