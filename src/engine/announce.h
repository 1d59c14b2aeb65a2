// Tells the sanitizers what an operation reads and writes. Kernels made by LLVM are not
// instrumented, so without this the sanitizers would miss a race between two kernels, or a kernel
// that uses memory after its release. In other builds these functions do nothing.

#pragma once

#include <cstddef>

#include "engine/engine.h"

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_read_range(void* address, unsigned long size);
extern "C" void __tsan_write_range(void* address, unsigned long size);
#elif defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>

#include <cstdio>
#include <cstdlib>
#endif

namespace gemel {

#if defined(__SANITIZE_THREAD__)
inline void announce_one(void* data, size_t bytes, bool write) {
  write ? __tsan_write_range(data, bytes) : __tsan_read_range(data, bytes);
}
#elif defined(__SANITIZE_ADDRESS__)
// Checks only the first and the last byte, since a block is always poisoned as a whole.
inline void announce_one(void* data, size_t bytes, bool) {
  auto* last = static_cast<char*>(data) + bytes - 1;
  if (!__asan_address_is_poisoned(data) && !__asan_address_is_poisoned(last)) return;
  std::fprintf(stderr, "ERROR: an operation uses memory that has been given back\n");
  std::abort();
}
#endif

inline void announce([[maybe_unused]] StorageList reads, [[maybe_unused]] StorageList writes) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  const auto announce_all = [](StorageList storages, bool write) {
    for (const Storage* storage : storages) {
      void* const data = storage->data();
      const size_t bytes = storage->bytes();
      if (data != nullptr && bytes > 0) announce_one(data, bytes, write);
    }
  };
  announce_all(reads, false);
  announce_all(writes, true);
#endif
}

}  // namespace gemel
