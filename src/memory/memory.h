// Pooled memory: 64-byte aligned blocks. Small ones have size classes, and are cut from slabs,
// which can serve any class. Empty slabs go back to the system, except for a few. Big blocks are
// whole pages of an arena (arena.h). Its free memory is kept up to a bound, and as long as it is
// used from time to time. Nothing here throws. A block allocated by one thread may be released by
// another.

#pragma once

#include <cstddef>
#include <cstdint>

namespace gemel::memory {

constexpr size_t kAlignment = 64;

struct Statistics {
  uint64_t allocations = 0;   // successful calls of allocate
  uint64_t bytes_in_use = 0;  // as requested by callers, rounded up to the size class or to pages
  // The highest footprint so far; small blocks count with the slab they come from.
  uint64_t peak_bytes = 0;
  uint64_t bytes_cached = 0;  // of free big blocks that take memory, for the next allocations
};

// Null when out of memory or over the limit. Zero bytes give a block too.
void* allocate(size_t bytes) noexcept;

// `bytes` must be the number given to allocate(). Null blocks are ignored.
void release(void* block, size_t bytes) noexcept;

Statistics statistics() noexcept;
uint64_t footprint() noexcept;  // bytes held now: big blocks in use, and all slabs
void reset_peak() noexcept;

// Gives the memory of free big blocks and empty slabs back to the system.
void trim() noexcept;

// Bounds the size of the cache of big blocks (default: 1 GiB, but at most an eighth of the memory
// this process may use).
void set_cache_limit(size_t bytes) noexcept;

// allocate() fails rather than hold more than this (default: no limit). For tests and containers.
void set_limit(size_t bytes) noexcept;

// Around fork(): the child must not inherit a free list that another thread was changing.
void lock_for_fork() noexcept;
void unlock_after_fork() noexcept;

}  // namespace gemel::memory
