#include "program/layout.h"

#include <algorithm>

namespace gemel {
namespace {

// The stride of an operand along dimension `axis` of the common shape.
int64_t stride_along(const OperandLayout& operand, int axis, int ndim) {
  int own = axis - (ndim - operand.ndim);
  if (own < 0 || operand.shape[own] == 1) return 0;
  return operand.strides[own];
}

// How many of the first `inputs` operands have stride 1 along `axis`, but are strided along the
// last dimension.
int lines_along(const Loop& loop, int axis, int inputs) {
  int lines = 0;
  for (int i = 0; i < inputs; ++i) {
    const int64_t* strides = loop.strides[i];
    lines += strides[axis] == 1 && stride_class(strides[loop.rank - 1]) == kStrided;
  }
  return lines;
}

}  // namespace

bool broadcast_shapes(const OperandLayout* operands, int count, int64_t* shape, int* ndim) {
  int rank = 0;
  for (int i = 0; i < count; ++i) {
    if (operands[i].ndim > rank) rank = operands[i].ndim;
  }
  for (int axis = 0; axis < rank; ++axis) shape[axis] = 1;
  for (int i = 0; i < count; ++i) {
    int shift = rank - operands[i].ndim;
    for (int own = 0; own < operands[i].ndim; ++own) {
      int64_t extent = operands[i].shape[own];
      int64_t& common = shape[own + shift];
      if (extent == common || extent == 1) continue;
      if (common != 1) return false;
      common = extent;
    }
  }
  *ndim = rank;
  return true;
}

void build_loop(const OperandLayout* operands, int count, const int64_t* shape, int ndim,
                Loop* loop) {
  int rank = 0;
  int64_t current[kMaxOperands];
  loop->operands = count;
  loop->moved = -1;
  loop->size = element_count(shape, ndim);
  for (int axis = 0; axis < ndim; ++axis) {
    int64_t extent = shape[axis];
    if (extent == 1) continue;
    bool merges = rank > 0;
    for (int i = 0; i < count; ++i) {
      current[i] = stride_along(operands[i], axis, ndim);
      if (rank > 0 && loop->strides[i][rank - 1] != current[i] * extent) merges = false;
    }
    if (!merges) ++rank;
    int64_t& loop_extent = loop->extents[rank - 1];
    loop_extent = merges ? loop_extent * extent : extent;
    for (int i = 0; i < count; ++i) loop->strides[i][rank - 1] = current[i];
  }
  if (rank == 0) {
    // One element: any stride is right, and with stride 1 the contiguous kernel serves.
    rank = 1;
    loop->extents[0] = 1;
    for (int i = 0; i < count; ++i) loop->strides[i][0] = 1;
  }
  loop->rank = rank;
}

void lines_last(Loop* loop, int inputs) {
  const int last = loop->rank - 1;
  int chosen = last - 1;
  if (last < 2 || loop->extents[last] < kFewLines) return;
  int most = lines_along(*loop, chosen, inputs);
  for (int axis = last - 2; axis >= 0; --axis) {
    const int lines = loop->extents[axis] < kFewLines ? 0 : lines_along(*loop, axis, inputs);
    if (lines > most) {
      chosen = axis;
      most = lines;
    }
  }
  if (chosen == last - 1) return;
  loop->moved = chosen;
  std::rotate(loop->extents + chosen, loop->extents + chosen + 1, loop->extents + last);
  for (int i = 0; i < loop->operands; ++i) {
    int64_t* strides = loop->strides[i];
    std::rotate(strides + chosen, strides + chosen + 1, strides + last);
  }
}

void result_strides(const Loop& loop, int64_t* strides) {
  const int last = loop.rank - 1;
  if (loop.moved < 0) return contiguous_strides(loop.extents, loop.rank, strides);
  int64_t extents[kMaxRank];
  std::copy_n(loop.extents, loop.rank, extents);
  std::rotate(extents + loop.moved, extents + last - 1, extents + last);
  contiguous_strides(extents, loop.rank, strides);
  std::rotate(strides + loop.moved, strides + loop.moved + 1, strides + last);
}

int64_t element_count(const int64_t* shape, int ndim) {
  int64_t size = 1;
  for (int axis = 0; axis < ndim; ++axis) size *= shape[axis];
  return size;
}

void contiguous_strides(const int64_t* shape, int ndim, int64_t* strides) {
  int64_t stride = 1;
  for (int axis = ndim - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    stride *= shape[axis];
  }
}

bool is_contiguous(const int64_t* shape, const int64_t* strides, int ndim) {
  int64_t expected = 1;
  for (int axis = ndim - 1; axis >= 0; --axis) {
    if (shape[axis] == 0) return true;
    if (shape[axis] != 1 && strides[axis] != expected) return false;
    expected *= shape[axis];
  }
  return true;
}

void element_range(const OperandLayout& operand, int64_t* low, int64_t* high) {
  *low = 0;
  *high = 1;
  for (int axis = 0; axis < operand.ndim; ++axis) {
    if (operand.shape[axis] == 0) {
      *high = *low;
      return;
    }
    int64_t reach = (operand.shape[axis] - 1) * operand.strides[axis];
    (reach < 0 ? *low : *high) += reach;
  }
}

}  // namespace gemel
