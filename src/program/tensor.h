// A tensor: extents, strides and an offset into a storage of the engine. Knows no Python.

#pragma once

#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "program/dtype.h"
#include "program/layout.h"

namespace gemel {

class Tensor {
 public:
  static constexpr int kInsideRank = 6;  // nothing is allocated up to this rank

  Tensor() noexcept {}  // without a storage until make() or view() is called
  ~Tensor() { clear(); }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  // Makes it dense, with a new storage that has no memory yet.
  void make(int code, const int64_t* extents, int rank, int device);
  // Makes it a view of `shared`. Null strides mean dense.
  void view(Storage* shared, int code, const int64_t* extents, const int64_t* strides, int rank,
            int64_t start);
  // make() and view() throw Error (too many dimensions, or more bytes than fit 63 bits) and
  // std::bad_alloc.
  void clear() noexcept;
  // Allocates the memory now; throws Error.
  void materialize();

  const int64_t* extents() const noexcept { return dims_; }
  const int64_t* strides() const noexcept { return dims_ + ndim; }
  OperandLayout layout() const noexcept { return {ndim, dims_, dims_ + ndim}; }
  int64_t bytes() const noexcept { return size * item_size(dtype); }
  int device() const noexcept { return storage->device(); }
  bool on_host() const noexcept { return Engine::on_host(storage->device()); }
  // The address of the first element; null if the memory has not been allocated yet.
  char* data() const noexcept {
    auto* base = static_cast<char*>(storage->data());
    return base == nullptr ? nullptr : base + offset * item_size(dtype);
  }
  bool same_layout(const Tensor& other) const noexcept;
  // Whether some element of the storage appears at several indexes.
  bool repeats() const noexcept;
  // Whether it covers its whole storage.
  bool whole() const noexcept {
    return contiguous && static_cast<size_t>(bytes()) == storage->bytes();
  }
  // True when it has not failed and nothing is pending that could make it fail.
  bool settled() const noexcept { return Engine::ready(storage) && !storage->failed(); }
  // Whether the byte ranges of both overlap, so that some byte may be part of both.
  bool overlaps(const Tensor& other) const noexcept;

  Storage* storage = nullptr;  // holds a reference
  int64_t offset = 0;          // in elements, from the start of the storage
  int64_t size = 0;            // in elements
  uint8_t dtype = kBool;       // a Code
  uint8_t ndim = 0;
  bool contiguous = true;

 private:
  void set_rank(int rank) {
    if (rank > kInsideRank) make_room(rank);
    ndim = static_cast<uint8_t>(rank);
  }
  void make_room(int rank);

  int64_t* dims_ = inside_;  // extents, then strides in elements
  int64_t inside_[2 * kInsideRank];
};

// "(2, 3)" and "float32[2, 3]".
std::string shape_text(const int64_t* extents, int rank);
std::string describe(int code, const int64_t* extents, int rank);
std::string describe(const Tensor& tensor);

}  // namespace gemel
