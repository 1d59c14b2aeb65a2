#include "program/tensor.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "program/error.h"

namespace gemel {
namespace {

[[noreturn]] void refuse_size(const char* type, int code, const int64_t* extents, int rank) {
  throw Error(type, describe(code, extents, rank) +
                        " is larger than any address space: its bytes do not fit 63 bits");
}

// The number of elements. Throws an Error of this type when the bytes do not fit 63 bits.
int64_t checked_size(const char* type, int code, const int64_t* extents, int rank) {
  int64_t size = 1;
  bool overflow = false;
  for (int axis = 0; axis < rank; ++axis) {
    overflow |= __builtin_mul_overflow(size, extents[axis], &size);
  }
  int64_t bytes;
  overflow |= __builtin_mul_overflow(size, item_size(code), &bytes);
  if (!overflow) return size;
  const bool empty = std::find(extents, extents + rank, 0) != extents + rank;
  if (!empty) refuse_size(type, code, extents, rank);
  return 0;
}

}  // namespace

void Tensor::make_room(int rank) {
  if (rank > kMaxRank) {
    throw Error("ValueError", "an array has at most " + std::to_string(kMaxRank) +
                                  " dimensions, not " + std::to_string(rank));
  }
  dims_ = new int64_t[2 * static_cast<size_t>(rank)];
}

void Tensor::make(int code, const int64_t* extents, int rank, int device) {
  set_rank(rank);
  size = checked_size("MemoryError", code, extents, rank);
  storage = Storage::create(static_cast<size_t>(size * item_size(code)), device);
  dtype = static_cast<uint8_t>(code);
  for (int axis = 0; axis < rank; ++axis) dims_[axis] = extents[axis];
  contiguous_strides(extents, rank, dims_ + rank);
}

void Tensor::view(Storage* shared, int code, const int64_t* extents, const int64_t* strides,
                  int rank, int64_t start) {
  set_rank(rank);
  size = checked_size("ValueError", code, extents, rank);
  shared->retain();
  storage = shared;
  dtype = static_cast<uint8_t>(code);
  offset = start;
  for (int axis = 0; axis < rank; ++axis) dims_[axis] = extents[axis];
  if (strides == nullptr) {
    contiguous_strides(extents, rank, dims_ + rank);
    return;
  }
  for (int axis = 0; axis < rank; ++axis) dims_[rank + axis] = strides[axis];
  contiguous = size == 0 || is_contiguous(extents, strides, rank);
}

void Tensor::clear() noexcept {
  if (storage != nullptr) storage->release();
  storage = nullptr;
  if (dims_ != inside_) delete[] dims_;
  dims_ = inside_;
}

void Tensor::materialize() {
  if (size == 0 || storage->materialize() != nullptr) return;
  throw Error("MemoryError", "no memory for an array of " + std::to_string(bytes()) + " bytes");
}

bool Tensor::same_layout(const Tensor& other) const noexcept {
  return dtype == other.dtype && offset == other.offset && ndim == other.ndim &&
         std::memcmp(dims_, other.dims_, sizeof(int64_t) * 2 * ndim) == 0;
}

bool Tensor::repeats() const noexcept {
  for (int axis = 0; axis < ndim; ++axis) {
    if (strides()[axis] == 0 && extents()[axis] > 1) return size > 0;
  }
  return false;
}

bool Tensor::overlaps(const Tensor& other) const noexcept {
  if (storage != other.storage) return false;
  int64_t low, high, other_low, other_high;
  element_range(layout(), &low, &high);
  element_range(other.layout(), &other_low, &other_high);
  const int64_t item = item_size(dtype);
  const int64_t other_item = item_size(other.dtype);
  return (offset + low) * item < (other.offset + other_high) * other_item &&
         (other.offset + other_low) * other_item < (offset + high) * item;
}

std::string shape_text(const int64_t* extents, int rank) {
  std::string text = "(";
  for (int axis = 0; axis < rank; ++axis) {
    text += std::to_string(extents[axis]) + (axis + 1 < rank ? ", " : rank == 1 ? "," : "");
  }
  return text + ")";
}

std::string describe(int code, const int64_t* extents, int rank) {
  std::string text = kDTypes[code].name;
  text += "[";
  for (int axis = 0; axis < rank; ++axis) {
    text += (axis == 0 ? "" : ", ") + std::to_string(extents[axis]);
  }
  return text + "]";
}

std::string describe(const Tensor& tensor) {
  return describe(tensor.dtype, tensor.extents(), tensor.ndim);
}

}  // namespace gemel
