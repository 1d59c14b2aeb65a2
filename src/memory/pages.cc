#include "memory/pages.h"

#include <cstdint>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#include <sys/mman.h>
#endif

namespace gemel::pages {

#if defined(__SANITIZE_ADDRESS__)

// The leak checker searches only memory that malloc returned.
void* map(size_t bytes, size_t alignment) noexcept {
  void* block = nullptr;
  return posix_memalign(&block, alignment, bytes) == 0 ? block : nullptr;
}

void unmap(void* block, size_t bytes) noexcept {
  ASAN_UNPOISON_MEMORY_REGION(block, bytes);
  std::free(block);
}

void give_back(void*, size_t) noexcept {}

void request_huge(void*, size_t) noexcept {}

#else

namespace {

void* map_anywhere(size_t bytes) noexcept {
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return block == MAP_FAILED ? nullptr : block;
}

// Maps too much, then unmaps what is before and behind the aligned part.
void* map_aligned(size_t bytes, size_t alignment) noexcept {
  char* const start = static_cast<char*>(map_anywhere(bytes + alignment));
  if (start == nullptr) return nullptr;
  const size_t before = -reinterpret_cast<uintptr_t>(start) & (alignment - 1);
  if (before > 0) munmap(start, before);
  munmap(start + before + bytes, alignment - before);
  return start + before;
}

HugePages huge_pages;

}  // namespace

void* map(size_t bytes, size_t alignment) noexcept {
  void* block = map_anywhere(bytes);
  // The system places mappings next to each other, so if the last one was aligned the next one
  // usually is too.
  if ((reinterpret_cast<uintptr_t>(block) & (alignment - 1)) != 0) {
    munmap(block, bytes);
    block = map_aligned(bytes, alignment);
  }
  return block;
}

void request_huge([[maybe_unused]] void* block, [[maybe_unused]] size_t bytes) noexcept {
#if defined(MADV_HUGEPAGE)
  const size_t before = -reinterpret_cast<uintptr_t>(block) & (kHugeBytes - 1);
  if (bytes < before + kHugeBytes || !huge_pages.are_wanted()) return;
  char* const begin = static_cast<char*>(block) + before;
  const size_t whole = (bytes - before) / kHugeBytes * kHugeBytes;
  if (madvise(begin, whole, MADV_HUGEPAGE) != 0) return;
  const auto start = std::chrono::steady_clock::now();
  *static_cast<volatile char*>(begin) = 0;
  if (!huge_pages.is_fast(std::chrono::steady_clock::now() - start)) {
    madvise(begin, whole, MADV_NOHUGEPAGE);
  }
#endif
}

void give_back(void* block, size_t bytes) noexcept { madvise(block, bytes, MADV_DONTNEED); }

void unmap(void* block, size_t bytes) noexcept {
  if (munmap(block, bytes) == 0) return;
  // The process has too many mappings to split one. The addresses are lost, but the memory goes
  // back.
  madvise(block, bytes, MADV_DONTNEED);
}

#endif

}  // namespace gemel::pages
