// Whole pages of memory directly from the system. Nothing here throws.

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>

namespace gemel::pages {

constexpr size_t kHugeBytes = 2 * 1024 * 1024;  // page faults of small pages cost 0.1 us/KiB

// Whether huge pages are requested. Usually they are faster than small ones. But a system that has
// none at hand moves other pages to make one, and a virtual machine may have to ask its host for
// every part of it, which takes milliseconds.
class HugePages {
 public:
  static constexpr std::chrono::microseconds kLongest{1000};  // as long as its small pages take
  static constexpr int kPause = 16;

  // For each block: false for the next blocks after a page that took long.
  bool are_wanted() noexcept { return left_.fetch_sub(1, std::memory_order_relaxed) <= 0; }
  // Returns whether a page that took so long was fast enough.
  bool is_fast(std::chrono::nanoseconds took) noexcept {
    const bool fast = took <= kLongest;
    left_.store(fast ? 0 : kPause, std::memory_order_relaxed);
    return fast;
  }

 private:
  std::atomic<int> left_{0};  // blocks without huge pages
};

// Returns memory at a multiple of `alignment` (a power of two), of which only pages that are
// touched take any. Null when there is no memory.
void* map(size_t bytes, size_t alignment) noexcept;

// `bytes` must be the number given to map().
void unmap(void* block, size_t bytes) noexcept;

// Requests huge pages where they fit into a block whose content is not needed, and touches the
// first.
void request_huge(void* block, size_t bytes) noexcept;

// Whole pages of mapped memory lose their content, and take no memory until they are touched.
void give_back(void* block, size_t bytes) noexcept;

}  // namespace gemel::pages
