#include "cuda/blocks.h"

#include <algorithm>
#include <new>

namespace gemel::cuda {
namespace {

constexpr size_t kSmallest = 512;
constexpr size_t kPage = size_t{2} << 20;  // from here on, blocks are whole pages of the driver's

// Sizes are rounded up to one of eight for each power of two, then to whole pages.
size_t size_class(size_t bytes) {
  if (bytes <= kSmallest) return kSmallest;
  size_t step = kSmallest;
  while (step * 16 < bytes) step *= 2;
  step = std::min(std::max(step, kSmallest), kPage);
  return (bytes + step - 1) / step * step;
}

}  // namespace

void* Blocks::taken(size_t bytes) noexcept {
  Address block = 0;
  if (driver_.allocate(&block, bytes, stream_) != kSuccess) return nullptr;
  if (driver_.wait_for_stream(stream_) != kSuccess) return nullptr;
  return reinterpret_cast<void*>(block);
}

void* Blocks::allocate(size_t bytes) noexcept {
  const size_t size = size_class(bytes);
  {
    std::lock_guard<std::mutex> guard(mutex_);
    const auto found = free_.find(size);
    if (found != free_.end() && !found->second.empty()) {
      void* block = found->second.back();
      found->second.pop_back();
      kept_ -= size;
      return block;
    }
  }
  void* block = taken(size);
  if (block != nullptr) return block;
  trim();
  return taken(size);
}

void Blocks::release(void* block, size_t bytes) noexcept {
  const size_t size = size_class(bytes);
  bool enough = false;
  try {
    std::lock_guard<std::mutex> guard(mutex_);
    free_[size].push_back(block);
    kept_ += size;
    enough = kept_ > most_;
  } catch (const std::bad_alloc&) {
    driver_.release(reinterpret_cast<Address>(block), stream_);
  }
  if (enough) trim();
}

void Blocks::trim() noexcept {
  std::lock_guard<std::mutex> guard(mutex_);
  for (auto& [size, blocks] : free_) {
    for (void* block : blocks) driver_.release(reinterpret_cast<Address>(block), stream_);
    blocks.clear();
  }
  kept_ = 0;
}

}  // namespace gemel::cuda
