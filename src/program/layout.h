// Shapes and strides of elementwise calls: broadcasting and coalescing. Knows no Python.

#pragma once

#include <cstdint>

namespace gemel {

constexpr int kMaxRank = 32;      // dimensions of an array
constexpr int kMaxOperands = 15;  // arrays, scalars and results of one elementwise call

// One operand of the loop. Strides are in elements.
struct OperandLayout {
  int ndim;
  const int64_t* shape;
  const int64_t* strides;
};

// The loop nest of one elementwise call. Unused parts remain uninitialised, since it is on the
// stack of the fastest path.
struct Loop {
  int rank;
  int moved;  // the dimension that `lines_last` has moved, or -1
  int operands;
  int64_t size;
  int64_t extents[kMaxRank];
  int64_t strides[kMaxOperands][kMaxRank];
};

// Transposing operands pays from this extent of the last two dimensions on.
constexpr int64_t kFewLines = 8;

// The stride classes along the last dimension for which kernels are specialised. kAcross: the
// operand has stride 1 along the dimension before the last.
enum StrideClass { kBroadcast, kContiguous, kStrided, kAcross };
inline int stride_class(int64_t stride) {
  return stride == 0 ? kBroadcast : stride == 1 ? kContiguous : kStrided;
}

// Computes the common shape; false when the shapes do not broadcast.
bool broadcast_shapes(const OperandLayout* operands, int count, int64_t* shape, int* ndim);

// Builds the loop over `shape` and merges neighbouring dimensions that every operand traverses with
// one stride. A result that is contiguous over `shape` is also contiguous over the merged
// dimensions.
void build_loop(const OperandLayout* operands, int count, const int64_t* shape, int ndim,
                Loop* loop);

// Moves the dimension along which most of the first `inputs` operands are contiguous that are not
// along the last one, right before the last: kernels transpose such operands there (kAcross).
void lines_last(Loop* loop, int inputs);

// The strides along the loop of a result that is contiguous over the shape.
void result_strides(const Loop& loop, int64_t* strides);

int64_t element_count(const int64_t* shape, int ndim);
void contiguous_strides(const int64_t* shape, int ndim, int64_t* strides);
bool is_contiguous(const int64_t* shape, const int64_t* strides, int ndim);

// The first element and one past the last element that are touched, relative to the operand's
// start.
void element_range(const OperandLayout& operand, int64_t* low, int64_t* high);

}  // namespace gemel
