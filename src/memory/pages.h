// Memory straight from the system, in whole pages. Nothing here throws.

#pragma once

#include <cstddef>

namespace gemel::pages {

constexpr size_t kHugeBytes = 2 * 1024 * 1024;  // faults of small pages cost 0.1 us/KiB

// Zeros, at a multiple of `alignment` (a power of two); huge pages are asked for where they fit.
// Null when there is no memory.
void* map(size_t bytes, size_t alignment) noexcept;

// `bytes` as given to map().
void unmap(void* block, size_t bytes) noexcept;

}  // namespace gemel::pages
