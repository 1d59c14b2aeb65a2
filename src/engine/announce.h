// Tells the sanitizers what an operation reads and writes. Kernels made by LLVM are not
// instrumented: without this, a race between two of them, or one that touches memory given back,
// would pass. Outside sanitizer builds it is nothing.

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

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kAnnounced = true;
#else
constexpr bool kAnnounced = false;
#endif

#if defined(__SANITIZE_ADDRESS__)
// The first and the last byte: blocks are poisoned as wholes.
inline void check_alive(void* data, size_t bytes) {
  if (data == nullptr || bytes == 0) return;
  auto* last = static_cast<char*>(data) + bytes - 1;
  if (!__asan_address_is_poisoned(data) && !__asan_address_is_poisoned(last)) return;
  std::fprintf(stderr, "ERROR: an operation uses memory that has been given back\n");
  std::abort();
}
#endif

inline void announce_read([[maybe_unused]] void* data, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_THREAD__)
  if (data != nullptr) __tsan_read_range(data, bytes);
#elif defined(__SANITIZE_ADDRESS__)
  check_alive(data, bytes);
#endif
}

inline void announce_write([[maybe_unused]] void* data, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_THREAD__)
  if (data != nullptr) __tsan_write_range(data, bytes);
#elif defined(__SANITIZE_ADDRESS__)
  check_alive(data, bytes);
#endif
}

inline void announce([[maybe_unused]] Storage* const* reads, [[maybe_unused]] size_t read_count,
                     [[maybe_unused]] Storage* const* writes, [[maybe_unused]] size_t write_count) {
  for (size_t i = 0; i < read_count; ++i) announce_read(reads[i]->data(), reads[i]->bytes());
  for (size_t i = 0; i < write_count; ++i) announce_write(writes[i]->data(), writes[i]->bytes());
}

}  // namespace gemel
