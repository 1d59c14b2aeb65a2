// Whole pages of memory directly from the system. Nothing here throws.

#pragma once

#include <cstddef>

namespace gemel::pages {

constexpr size_t kHugeBytes = 2 * 1024 * 1024;  // page faults of small pages cost 0.1 us/KiB

// Returns zeroed memory at a multiple of `alignment` (a power of two), with huge pages requested
// where they fit. Null when there is no memory.
void* map(size_t bytes, size_t alignment) noexcept;

// `bytes` must be the number given to map().
void unmap(void* block, size_t bytes) noexcept;

}  // namespace gemel::pages
