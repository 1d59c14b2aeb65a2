// Memory of a GPU for storages.

#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "cuda/driver.h"

namespace gemel::cuda {

// Blocks from the driver's pool. Released ones are kept for the next allocation of the same size
// class, which then needs no call of the driver. When memory is short, or they are more than `most`
// bytes, they are given back.
class Blocks {
 public:
  // The pool works on a stream of its own that is never behind.
  Blocks(const Driver& driver, Stream stream, size_t most)
      : driver_(driver), stream_(stream), most_(most) {}

  void* allocate(size_t bytes) noexcept;  // null when out of memory
  void release(void* block, size_t bytes) noexcept;
  void trim() noexcept;  // gives back what is kept

 private:
  void* taken(size_t bytes) noexcept;

  const Driver& driver_;
  const Stream stream_;
  const size_t most_;
  std::mutex mutex_;
  size_t kept_ = 0;  // bytes
  std::map<size_t, std::vector<void*>> free_;
};

}  // namespace gemel::cuda
