// Pooled memory: 64-byte aligned blocks by size class. Small ones are cut from slabs, which serve
// any class and go back to the system when they are empty, but for a few; big ones are cached up to
// a bound. Nothing here throws, blocks of one thread may be given back by another.

#pragma once

#include <cstddef>
#include <cstdint>

namespace gemel::memory {

constexpr size_t kAlignment = 64;

struct Statistics {
  uint64_t allocations = 0;   // calls of allocate that delivered
  uint64_t bytes_in_use = 0;  // as asked for by callers, rounded up to their size class
  // The most that were held at once; small blocks count by the slab they come from.
  uint64_t peak_bytes = 0;
  uint64_t bytes_cached = 0;  // free big blocks kept for the next caller
};

// Null when out of memory (or over the limit); zero bytes give a block too.
void* allocate(size_t bytes) noexcept;

// `bytes` as it was asked for. Null blocks are ignored.
void release(void* block, size_t bytes) noexcept;

Statistics statistics() noexcept;
uint64_t footprint() noexcept;  // bytes held now: big blocks in use, and all slabs
void reset_peak() noexcept;

// Gives cached big blocks and empty slabs back to the system.
void trim() noexcept;

// Bounds what is kept in the cache of big blocks (default 1 GiB, at most an eighth of the
// memory this process may use).
void set_cache_limit(size_t bytes) noexcept;

// allocate() fails rather than hold more than this (default: no limit). Tests and containers use
// it.
void set_limit(size_t bytes) noexcept;

// Around fork(): the child must not inherit a free list somebody was changing.
void lock_for_fork() noexcept;
void unlock_after_fork() noexcept;

}  // namespace gemel::memory
