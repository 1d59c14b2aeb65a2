// Shapes and strides of elementwise calls: broadcasting and coalescing. Knows no Python.

#pragma once

#include <cstdint>

namespace gemel {

constexpr int kMaxRank = 32;      // dimensions of an array
constexpr int kMaxOperands = 15;  // arrays, scalars and results of one elementwise call

// One operand as the loop sees it: strides are in elements.
struct OperandLayout {
  int ndim;
  const int64_t* shape;
  const int64_t* strides;
};

// The loop nest of one elementwise call; left uninitialised where unused, since it lives on the
// stack of the fastest path.
struct Loop {
  int rank;
  int operands;
  int64_t size;
  int64_t extents[kMaxRank];
  int64_t strides[kMaxOperands][kMaxRank];
};

// The stride classes along the last dimension that kernels are specialised for; what lies across
// has stride 1 along the one before.
enum StrideClass { kBroadcast, kContiguous, kStrided, kAcross };
inline int stride_class(int64_t stride) {
  return stride == 0 ? kBroadcast : stride == 1 ? kContiguous : kStrided;
}

// Writes the common shape; false when the shapes do not broadcast.
bool broadcast_shapes(const OperandLayout* operands, int count, int64_t* shape, int* ndim);

// Builds the loop over `shape`, merging dimensions that every operand walks evenly. A result that
// is contiguous over `shape` stays contiguous over the merged dimensions.
void build_loop(const OperandLayout* operands, int count, const int64_t* shape, int ndim,
                Loop* loop);

int64_t element_count(const int64_t* shape, int ndim);
void contiguous_strides(const int64_t* shape, int ndim, int64_t* strides);
bool is_contiguous(const int64_t* shape, const int64_t* strides, int ndim);

// The first and one past the last element touched, relative to the operand's start.
void element_range(const OperandLayout& operand, int64_t* low, int64_t* high);

}  // namespace gemel
