// Memory for big blocks. It comes from the system in regions, each as large as all before it, of
// which only pages in use take memory. Free pages next to each other are joined, and divided for
// the next block, so that programs whose blocks have other sizes from one moment to the next hold
// little more than they use at a time. A block is taken from the smallest free pages that fit, up
// to an eighth, in constant time (two-level segregated fit: Masmano et al., ECRTS 2004). What is
// known of pages lies in tables beside them, so that free memory is not touched. Nothing throws.

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "memory/lock.h"

namespace gemel::memory {

constexpr size_t kPageBytes = 4096;

struct Region;

class Arena {
 public:
  // All sizes in bytes are multiples of kPageBytes. Null when there is no memory.
  void* allocate(size_t bytes) noexcept;
  void release(void* block, size_t bytes) noexcept;

  // The free bytes that take memory, and the fewest of them since forget_idle().
  size_t cached() const noexcept { return cached_.load(std::memory_order_relaxed); }
  size_t idle() const noexcept { return idle_.load(std::memory_order_relaxed); }
  void forget_idle() noexcept { idle_.store(cached(), std::memory_order_relaxed); }

  // Gives free pages back until at most so many bytes of them take memory.
  void shrink(size_t most) noexcept;

  Lock& lock() noexcept { return lock_; }  // for fork()

 private:
  static constexpr size_t kMostRegions = 256;

  Region* region_of(const void* block) const noexcept;
  Region* add_region(size_t bytes) noexcept;
  static uint32_t carve(Region& region, uint32_t span, uint32_t pages) noexcept;
  void count_cached(int64_t pages) noexcept;
  size_t take_out(size_t most) noexcept;
  void drop_empty_regions() noexcept;

  Lock lock_;  // guards all but the two counters, which it lets others read
  std::array<Region*, kMostRegions> regions_{};  // in the order in which blocks are sought
  size_t count_ = 0;
  size_t mapped_ = 0;  // bytes of all regions
  std::atomic<size_t> cached_{0};
  std::atomic<size_t> idle_{0};
};

}  // namespace gemel::memory
